"""NORM: choosing early in training (§1, §6); other activations, norms, pools and inputs; Gaussian nodes (App. D)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import firstguess as fg
from firstguess_papers.charts import EVEN, FLIPS, beyond_flips, deep, dots, gammas, layer_lines, lines
from firstguess_papers.items import Entry, Holds
from firstguess_papers.judging import Array, Check, Number, all_of, below, check, claimed, each, same
from firstguess_papers.library import SKEWED, TAILED
from firstguess_papers.measured import Cell, Found, measured
from firstguess_papers.norm import AROUND
from firstguess_papers.running import Run
from firstguess_papers.training_pieces import Arm, modes, predicted, trained
from firstguess_papers.training_speed import chosen

if TYPE_CHECKING:
    from firstguess import Measurement

PLACEMENTS = {
    "no norm": deep("relu", 5),
    "LayerNorm before": deep("layernorm > relu", 5),
    "LayerNorm after": deep("relu > layernorm", 5),
}
FACTORS = (0.01, 0.03, 0.1, 0.3, 0.9)  # learning rates by 2κ/λ_b of the network without a norm
RULES = {"global": "accuracy", "worst class": "worst"}  # what is looked at early, on the training points
SETS = {"All candidates": tuple(PLACEMENTS), "Learning rate only, no norm": ("no norm",)}
_EARLY = 5  # the step that is judged
_MORE = 0.05  # of recall: how much more the favoured class must have of it
_LOSS = 0.01  # of the worst class's accuracy at the end, that counts as a loss
Candidate = tuple[str, float]


@dataclass(frozen=True)
class Choice:
    """What every network's tuner chose at a step: its favoured class's lead then, and what it has at the end."""

    lead: Array  # favoured − other class, training points, at that step
    final: Array  # held-out accuracy at the end
    worst: Array  # of the worst class
    after: Array  # whether a norm after the activation was chosen


def choose(arms: Mapping[Candidate, Arm], rule: str, step: int) -> Choice:
    """Network i of every candidate is one tuner's: it takes the candidate that is best at `step`, of ties each in part.

    A candidate that has diverged is never taken.
    """
    score = _stack(arms, rule, step)
    best = (score == score.max(axis=0)).astype(float)
    part = best / best.sum(axis=0)

    def of(values: Array) -> Array:
        return (part * values).sum(axis=0)

    last = next(iter(arms.values())).last
    after = np.array([float(placement == "LayerNorm after") for placement, _ in arms])
    return Choice(
        of(_stack(arms, "gap", step)),
        of(_stack(arms, "test accuracy", last)),
        of(_stack(arms, "test worst", last)),
        of(np.broadcast_to(after[:, None], score.shape)),
    )


def _stack(arms: Mapping[Candidate, Arm], what: str, step: int) -> Array:
    """(candidates, networks); what has diverged is worth nothing."""
    return np.array([np.nan_to_num(arm.values(what, step), nan=0.0) for arm in arms.values()])


def judged(one: Arm, by_global: Choice, by_worst: Choice) -> list[Check]:
    """N20: chosen by global accuracy, the favoured class leads by more; and the worst class ends lower."""
    return [
        check("lead of the favoured class, by global − by worst class", one.number(by_global.lead - by_worst.lead),
              above=_MORE),
        check("held-out worst class at the end, by worst class − by global",
              one.number(by_worst.worst - by_global.worst), above=_LOSS),
    ]  # fmt: skip


def _candidates(c: Found) -> dict[str, Any]:
    """Trained and predicted candidates, and by what both rules pick at step k among each set of them."""
    run = c.run
    whole = run.data("mnist:even-odd", points=2 * (c.n + c.held))
    x = chosen(whole, (c.n // 2, c.n // 2), flat=True)
    test = chosen(whole, (c.held // 2, c.held // 2), skip=(c.n // 2, c.n // 2), flat=True)
    unit = float(modes(run, PLACEMENTS["no norm"], x, c.width)["overshoot"])
    looks = [k for k in (0, 1, 2, _EARLY, 10, 20, 40, 70, 100, 150, 200, 300) if k <= c.steps]
    arms: dict[Candidate, Arm] = {}
    forecasts: dict[Candidate, Arm] = {}
    for placement, net in PLACEMENTS.items():
        limit = float(modes(run, net, x, c.width, label=f"{placement}, modes")["lr_limit"])
        for factor in FACTORS:
            how: dict[str, Any] = {"lr": factor * unit, "steps": looks, "width": c.width, "optimizer": "gd"}
            how |= {"label": f"{placement}, rate × {factor:g}", "test": test}
            arms[placement, factor] = trained(run, net, x, inits=c.inits, parts=c.parts, **how)
            if factor * unit < limit:
                forecasts[placement, factor] = predicted(run, net, x, draws=c.draws, trust=False, **how)
    sources = {"trained": arms, "predicted": forecasts}
    picks = {
        (words, source): {rule: {k: choose(_only(given, names), what, k) for k in looks[1:]}
                          for rule, what in RULES.items()}
        for words, names in SETS.items() for source, given in sources.items()
    }  # fmt: skip
    return {"candidates": arms, "forecasts": forecasts, "picks": picks,
            "one": {source: next(iter(given.values())) for source, given in sources.items()}}  # fmt: skip


def _only(arms: Mapping[Candidate, Arm], names: Sequence[str]) -> dict[Candidate, Arm]:
    return {key: arm for key, arm in arms.items() if key[0] in names}


def _entry(c: Found, words: str, names: Sequence[str]) -> Entry:
    one, picks = c.one["trained"], c.picks[words, "trained"]
    early = {rule: by_step[_EARLY] for rule, by_step in picks.items()}
    arms = _only(c.candidates, names).values()
    ideal = float(np.max([np.nan_to_num(arm.values("test worst", arm.last)).mean() for arm in arms]))
    leads, costs = judged(one, early["global"], early["worst class"])
    late = picks["global"][max(picks["global"])]
    return claimed(
        "N20", f"{words}, picked at step {_EARLY} by global accuracy or by the worst class's", [leads], within=[costs],
        limit="at the end the worst class is hardly lower: what was picked for the favoured class trains as well",
        otherwise="what both rules pick favours a class alike: with even classes, less bias is more accuracy by either",
        also="; ".join(
            f"by {rule}: lead {one.number(choice.lead)}, held-out accuracy at the end {one.number(choice.final)}, of "
            f"the worst class {one.number(choice.worst)}, LayerNorm after chosen by {one.number(choice.after)}"
            for rule, choice in early.items()
        ) + f"; picked by global at the last step {one.number(late.worst)}; best single candidate {ideal:.3f}",
    )  # fmt: skip


def _picked(c: Found) -> list[tuple[dict[str, Any], dict[str, Number]]]:
    """Every choice: which it is, and its numbers."""
    return [
        ({"candidates": words, "source": source, "rule": rule, "step": k},
         {what: c.one[source].number(getattr(choice, what)) for what in ("lead", "final", "worst", "after")})
        for (words, source), by_rule in c.picks.items()
        for rule, by_step in by_rule.items() for k, choice in by_step.items()
    ]  # fmt: skip


def _chart(c: Found) -> Any:
    """Trained (points) and picked among predicted trainings (lines), by what is picked for."""
    shown = {"lead": "lead of the favoured class", "worst": "worst class at the end"}
    known = {(*key.values(),): numbers for key, numbers in _picked(c)}
    rows = [
        {"name": f"picked by {key['rule']} accuracy", "panel": f"{words}: {heading}", "step": key["step"]}
        | {"value": Number(numbers[what].value, float(np.nan_to_num(numbers[what].error)))}
        | {"theory": known[words, "predicted", key["rule"], key["step"]][what].value}
        for words in SETS for what, heading in shown.items() for key, numbers in _picked(c)
        if (key["candidates"], key["source"]) == (words, "trained")
    ]  # fmt: skip
    return lines(
        rows, "step", panel="panel", title="Learning rate and norm placement, picked early by two rules",
        x_title="Step at which one picks", y_title="", x_scale="log", y_domain=(-0.1, 1.0), percent=True, width=430,
        height=220,
    )  # fmt: skip


def _missing(c: Found) -> str:
    unknown = [f"{p}, rate × {factor:g}" for p, factor in c.candidates if (p, factor) not in c.forecasts]
    return f" No prediction beyond 4κ/λ_b: {', '.join(unknown)}." if unknown else ""


selection = measured(
    "norm/selection", "Choosing hyper-parameters early", "NORM §1, §3.1, §6", claims=("N20",), needs=("mnist",),
    about="3 placements of LayerNorm × 5 learning rates, 5 hidden layers of {width} on {n} MNIST images, even or odd; "
    "full batches, {steps} steps; {networks} networks a candidate, {draws} predicted; {held} held-out images. "
    "Network, data and candidates are ours.",
    quick=dict(n=60, held=200, width=60, steps=100, inits=16, parts=1, draws=40),
    full=dict(n=150, held=400, width=100, steps=200, inits=12, parts=2, draws=100),
    seconds=(20, 200),
    quantities=_candidates,
    judge=lambda c: [_entry(c, words, names) for words, names in SETS.items()],
    tables=lambda c: {"picks": [
        key | {what: number.value for what, number in numbers.items()}
        | {"worst_error": numbers["worst"].error, "lead_error": numbers["lead"].error} for key, numbers in _picked(c)
    ]},
    charts=lambda c: {"picks": _chart(c)},
    holds={"picks": Holds("Picked early by global accuracy, the favoured class leads by more", entries=(0,))},
    notes=lambda c: [f"Picked on training images, judged on held-out ones; every network is one tuner.{_missing(c)}"],
)  # fmt: skip


PHI = {"ReLU": "relu", "GELU": "gelu", "SiLU": "silu", "sigmoid": "sigmoid", "tanh": "tanh"}
ODD = ("tanh",)
NONE, BN_BEFORE, LN_BEFORE, BN_AFTER, LN_AFTER = AROUND
DEPTH = 5
Found_activations = Mapping[tuple[str, str], Sequence[Number]]  # (activation, place) -> γ after 1, 2, … layers
Left = Mapping[tuple[str, str], Number]  # the largest of ten fractions beyond coin flips, after all layers


def room(gamma: float) -> float:
    """A difference of γ that does not matter: 15 % and 0.02."""
    return 0.02 + 0.15 * abs(gamma)


def correlation(gamma: Number) -> Number:
    """c = γ/(1 + γ), with its error to first order."""
    return Number(gamma.value / (1 + gamma.value), gamma.error / (1 + gamma.value) ** 2)


def judge_activations(found: Found_activations, left: Left) -> list[Entry]:
    """N16: every theorem for every activation; and LayerNorm before as none."""
    one = {key: values[0] for key, values in found.items()}
    last = {key: values[-1] for key, values in found.items()}

    def close(phi: str, place: str, other: Number, than: str) -> Check:
        return check(f"{phi}, {place}", last[phi, place], near=other, room=room(other.value), than=than)

    after = [(phi, place) for place in (BN_AFTER, LN_AFTER) for phi in PHI]
    return [
        claimed(
            "N16", f"γ after {DEPTH} layers, and how far the largest of ten fractions is beyond coin flips",
            [
                *(close(phi, BN_BEFORE, one[phi, BN_BEFORE], "within 15 % + 0.02 of one layer's") for phi in PHI),
                *(check(f"{phi}, {place}", found[phi, place], near=0.0, room=EVEN) for phi, place in after),
                *(check(f"{phi}, {place}, beyond flips", left[phi, place], below=FLIPS) for phi, place in after),
                *(check(f"{phi}, {LN_BEFORE}", last[phi, LN_BEFORE], above=one[phi, LN_BEFORE], than="one layer's")
                  for phi in PHI if phi not in ODD),
            ],
            headline=f"GELU, {DEPTH} layers: γ with BatchNorm before {last['GELU', BN_BEFORE]}, LayerNorm "
            f"before {last['GELU', LN_BEFORE]}, after {last['GELU', LN_AFTER]}",
        ),
        claimed(
            "N16", f"LayerNorm before is as no norm, γ after {DEPTH} layers",
            [close(phi, LN_BEFORE, last[phi, NONE], "within 15 % + 0.02 of no norm's") for phi in PHI],
            otherwise="not for activations that see the scale, which LayerNorm sets",
        ),
    ]  # fmt: skip


NETWORKS = {(label, place): deep(block.format(phi), DEPTH + 1)
            for label, phi in PHI.items() for place, block in AROUND.items()}  # fmt: skip

activations = measured(
    "norm/activations", "The theorems on norms for other activations", "NORM §4.1, App. B", claims=("N16",),
    about="Five activations × no norm, BatchNorm and LayerNorm before and after; 6 hidden layers of {width} (our "
    "sizes), Kaiming variances; blobs of that dimension, {n} points; {inits} networks of ten outputs each, γ by layer.",
    quick=dict(width=200, n=300, inits=40),
    full=dict(width=500, n=500, inits=100),
    seconds=(12, 100),
    measure={"classes": 10, "probe": "weights"},
    cells=lambda c: {key: Cell(text, c.blob(c.n, c.width)) for key, text in NETWORKS.items()},
    quantities=lambda c: {
        "found": {key: gammas(c[key]) for key in NETWORKS},
        "theory": {key: fg.predict(text).gamma[1:-1] for key, text in NETWORKS.items()},
    },
    judge=lambda c: judge_activations(c.found, {key: beyond_flips(c[key]) for key in NETWORKS}),
    tables=lambda c: {"activations": layer_lines(c.found, ["name", "place"], c.theory)},
    charts=lambda c: {"activations": lines(
        layer_lines(
            {key: [correlation(g) for g in values] for key, values in c.found.items()}, ["name", "place"],
            {key: values / (1 + values) for key, values in c.theory.items()},
        ),
        "depth", by="place", panel="name", y_title="Correlation c = γ/(1 + γ)",
        y_domain=(-0.05, 1.05), width=280, height=260,
    )},
    holds={"activations": Holds("Norms do for other activations what they do for ReLU", entries=(0,))},
)  # fmt: skip


EACH = (2, 4, 8, 32)
LAYER = "LayerNorm"
GROUPS = {LAYER: "layernorm"} | {f"groups of {k}": f"groupnorm(each={k})" for k in EACH}
INSTANCE, BATCH = "InstanceNorm", "BatchNorm"
IMAGE = {LAYER: "layernorm", INSTANCE: "instancenorm", BATCH: "batchnorm"}
Found_groups = Mapping[tuple[str, str], Sequence[Number]]  # (norm, "before" or "after") -> γ after 1, 2, … layers


def block(norm: str, place: str) -> str:
    """The norm before or after ReLU."""
    return f"{norm} > relu" if place == "before" else f"relu > {norm}"


def judge_groups(found: Found_groups) -> Entry:
    """N17, GroupNorm: before as LayerNorm, growing; after none, for groups of any width."""
    names, layer = list(GROUPS)[1:], found[LAYER, "before"]
    rooms = [0.02 + 0.1 * g.value for g in layer]
    return claimed(
        "N17", f"GroupNorm, γ after 1 to {DEPTH} layers",
        [*(check(f"{name} after", found[name, "after"], near=0.0, room=EVEN) for name in names),
         *(check(f"{name} before", found[name, "before"][-1], above=found[name, "before"][0], than="one layer's")
           for name in names)],
        within=[check(f"{name} before", found[name, "before"], near=layer, room=rooms,
                      than="within 10 % + 0.02 of LayerNorm's") for name in names],
        limit="narrow groups before ReLU have a law of their own",
        otherwise="not as LayerNorm",
    )  # fmt: skip


def judge_instance(found: Found_groups) -> Entry:
    """N17, InstanceNorm on images: after none; before, does it grow as LayerNorm's or stay as BatchNorm's?"""
    own, layer, batch = (found[name, "before"] for name in (INSTANCE, LAYER, BATCH))
    as_batch = all_of([below(own[-1], layer[-1]), same(own[-1], batch[-1], room=room(batch[-1].value))])
    return claimed(
        "N17", "InstanceNorm in convolutional networks, γ by hidden layer",
        [check("after ReLU", found[INSTANCE, "after"], near=0.0, room=EVEN),
         check("LayerNorm before, last layer", layer[-1], above=layer[0], than="its first"),
         check("InstanceNorm before, last layer", own[-1], near=layer[-1], room=room(layer[-1].value),
               than="within 15 % + 0.02 of LayerNorm's")],
        also=f"BatchNorm before {batch[0]} → {batch[-1]}",
        otherwise="it takes each channel's own center off, as BatchNorm does" if as_batch else "not as LayerNorm",
    )  # fmt: skip


DENSE = {(name, place): deep(block(norm, place), DEPTH + 1)
         for place in ("before", "after") for name, norm in GROUPS.items()}  # fmt: skip
CONV = "4 x [conv(weight_var=2, kernel=3, padding=1) > {}] > dense(weight_var=2)"
IMAGES = {(name, place): CONV.format(block(norm, place))
          for place in ("before", "after") for name, norm in IMAGE.items()}  # fmt: skip


def _cells_groups(c: Found) -> dict[Any, Cell]:
    shape = (c.images, 3, c.side, c.side)
    pictures = np.random.default_rng([c.run.seed, 17]).standard_normal(shape, dtype=np.float32)
    return {key: Cell(text, c.blob(c.n, c.d)) for key, text in DENSE.items()} | {
        (*key, "images"): Cell(text, fg.data.as_data(pictures), {"inits": c.many, "width": c.channels})
        for key, text in IMAGES.items()
    }


groups = measured(
    "norm/groups", "GroupNorm and InstanceNorm: LayerNorm again?", "NORM §2, footnote", claims=("N17",),
    about="ReLU, Kaiming. GroupNorm with groups of 2, 4, 8, 32 and LayerNorm, before and after: 6 hidden layers of "
    "{width}, blobs in {d} dimensions, {n} points, {inits} networks of ten outputs. InstanceNorm, LayerNorm, "
    "BatchNorm: 4 convolutional layers of {channels} channels on {images} images of {side}×{side} independent pixels, "
    "{many} networks. Sizes are ours.",
    quick=dict(width=192, d=200, n=300, inits=80, side=8, images=60, channels=32, many=60),
    full=dict(width=512, d=500, n=500, inits=200, side=12, images=100, channels=64, many=80),
    seconds=(12, 100),
    measure={"classes": 10, "probe": "weights"},
    cells=_cells_groups,
    quantities=lambda c: {
        "found": {key: gammas(c[key]) for key in DENSE},
        "theory": {key: fg.predict(text).gamma[1:-1] for key, text in DENSE.items()},
        "seen": {key: gammas(c[(*key, "images")]) for key in IMAGES},
    },
    judge=lambda c: [judge_groups(c.found), judge_instance(c.seen)],
    tables=lambda c: {"groups": [
        {"data": data, **row} for data, part in (("blob", c.found), ("images", c.seen))
        for row in layer_lines(part, ["name", "place"])
    ]},
    charts=lambda c: {
        "groups": lines(
            layer_lines(c.found, ["name", "place"], c.theory), "depth", panel="place",
            title="GroupNorm before and after ReLU, by the width of its groups",
        ),
        "images": lines(
            layer_lines(c.seen, ["name", "place"]), "depth", panel="place", x_title="Convolutional layers",
            title="InstanceNorm before and after ReLU on images, beside LayerNorm and BatchNorm",
        ),
    },
    holds={
        "groups": Holds("GroupNorm behaves as LayerNorm: even after ReLU, growing before", entries=(0,)),
        "images": Holds("InstanceNorm on images is as LayerNorm", entries=(1,)),
    },
)  # fmt: skip


POOLS = {
    "no pool": "",
    "largest of 2": " > maxpool(2)",
    "largest of 4": " > maxpool(4)",
    "average of 4": " > avgpool(4)",
}
Input = tuple[float, float]
INPUTS = ((0.0, 1.0), (1.0, 1.0), (3.0, 1.0), (0.0, 0.1), (0.0, 10.0), (3.0, 0.1), (3.0, 10.0))  # mean, spread


def judge_pools(normed: Mapping[str, Sequence[Number]], theory: Mapping[str, float], plain: Sequence[Number]) -> Entry:
    """N18, first half: γ with BatchNorm before, by pool and depth; `plain` is the no-norm, no-pool network."""
    return claimed(
        "N18", f"BatchNorm before ReLU with pools, γ after 1 to {DEPTH} layers",
        [*(check(pool, values[1:], near=values[0], room=0.02 + 0.1 * values[0].value,
                 than="within 10 % + 0.02 of one layer's") for pool, values in normed.items()),
         check("no norm", plain[-1], above=plain[0], than="one layer's")],
        within=[check(pool, values, near=theory[pool], room=0.02 + 0.1 * theory[pool],
                      than="within 10 % + 0.02 of the closed form") for pool, values in normed.items()],
        limit="constant, but at another level than the closed form says", otherwise="not constant",
    )  # fmt: skip


def judge_inputs(found: Mapping[Input, Sequence[Number]], left: Mapping[Input, Number]) -> Entry:
    """N18, second half: BatchNorm after, by mean and spread of the data: γ by depth, and what is beyond coin flips."""
    names = {key: f"mean {key[0]:g}, spread {key[1]:g}" for key in found}
    return claimed(
        "N18", f"BatchNorm after ReLU, γ after 1 to {DEPTH} layers and the largest of ten fractions beyond coin flips",
        [*each({names[key]: values for key, values in found.items()}, near=0.0, room=EVEN),
         *each({names[key]: left[key] for key in found}, below=FLIPS)],
        otherwise="not even",
    )  # fmt: skip


NORMED, PLAIN, AFTER = "BatchNorm before ReLU", "No norm", "BatchNorm after"
BLOCKS = {(norm, pool): f"{block}relu{layers}"
          for norm, block in ((NORMED, "batchnorm > "), (PLAIN, "")) for pool, layers in POOLS.items()}  # fmt: skip


def _cells_pooling(c: Found) -> dict[Any, Cell]:
    x = c.blob(c.n, c.d)
    data = {(mean, spread): fg.data.as_data(x.flat() * spread + mean) for mean, spread in INPUTS}
    return {key: Cell(deep(block, DEPTH + 1), x) for key, block in BLOCKS.items()} | {
        (AFTER, *key): Cell(deep("relu > batchnorm", DEPTH + 1), own, {"width": 200}) for key, own in data.items()
    }


pooling = measured(
    "norm/pooling", "BatchNorm with pooling, and on data of any mean and variance", "NORM App. E.1, E.2.1",
    claims=("N18",),
    about="ReLU, Kaiming, 6 hidden layers of {width} nodes before pooling (our size): BatchNorm before with pools of "
    "1, 2 and 4, and no norm; BatchNorm after on blobs of mean 0, 1, 3 and spread 0.1, 1, 10; {d} dimensions, {n} "
    "points; {inits} networks of ten outputs each.",
    quick=dict(width=400, d=200, n=300, inits=40),
    full=dict(width=1200, d=500, n=500, inits=60),
    seconds=(12, 100),
    measure={"classes": 10, "probe": "weights"},
    cells=_cells_pooling,
    quantities=lambda c: {
        "found": {key: gammas(c[key]) for key in BLOCKS},
        "theory": {key: fg.predict(deep(block, DEPTH + 1)).gamma[1:-1] for key, block in BLOCKS.items()},
        "after": {key: gammas(c[(AFTER, *key)]) for key in INPUTS},
        "left": {key: beyond_flips(c[(AFTER, *key)]) for key in INPUTS},
    },
    judge=lambda c: [
        judge_pools(
            {pool: c.found[NORMED, pool] for pool in POOLS},
            {pool: float(c.theory[NORMED, pool][0]) for pool in POOLS}, c.found[PLAIN, "no pool"],
        ),
        judge_inputs(c.after, c.left),
    ],
    tables=lambda c: {
        "pools": layer_lines(c.found, ["norm", "name"], c.theory),
        "inputs": layer_lines({(AFTER, *key): g for key, g in c.after.items()}, ["name", "mean", "spread"]),
    },
    charts=lambda c: {
        "pools": lines(layer_lines(c.found, ["norm", "name"], c.theory), "depth", panel="norm", y_scale="log"),
        "inputs": dots(
            [{"mean": f"mean {m:g}", "spread": f"spread {s:g}", "value": v} for (m, s), v in sorted(c.left.items())],
            "mean", by="spread", title="BatchNorm after ReLU on data of other means and scales",
            x_title="Largest of ten guess fractions beyond that of coin flips", x_domain=(-0.02, 0.08), percent=True,
        ),
    },
    holds={
        "pools": Holds("BatchNorm before ReLU keeps γ constant in depth with pooling, too", entries=(0,)),
        "inputs": Holds("BatchNorm after ReLU guesses evenly whatever the data's mean and scale", entries=(1,)),
    },
)  # fmt: skip


BLOB, DIGITS, CLUSTERS, SPARSE = "random data", "digits", "two clusters", "one pixel in twenty"
DATA = (BLOB, DIGITS, CLUSTERS, SPARSE)


@dataclass(frozen=True)
class Shape:
    """Skewness (root mean square over nodes) and excess kurtosis over the data, of the pre-activations of a layer."""

    skewness: Number
    kurtosis: Number

    @property
    def tails(self) -> Number:
        """The size of the kurtosis, on either side."""
        return Number(abs(self.kurtosis.value), self.kurtosis.error)


Found_gaussian = Mapping[tuple[str, int], Sequence[Shape]]  # (data, width) -> layer by layer


def shapes(m: Measurement) -> list[Shape]:
    """Of the layers with weights, without the output (its few nodes)."""
    return [Shape(Number(s.skewness, s.skewness_se), Number(s.kurtosis, s.kurtosis_se)) for s in m.shapes[:-1]]


def judge_gaussian(found: Found_gaussian) -> list[Entry]:
    """N19: Gaussian where the theorem's conditions are met, more so with width; and where it fails."""
    widths = sorted({width for _, width in found})
    narrow, wide = widths[0], widths[-1]

    def gaussian(name: str) -> list[Check]:
        return [
            check(f"{name}, skewness", [s.skewness for s in found[name, wide]], below=SKEWED),
            check(f"{name}, size of the kurtosis", [s.tails for s in found[name, wide]], below=TAILED),
        ]

    ends = [found[BLOB, width][-1].kurtosis for width in (narrow, wide)]
    return [
        claimed(
            "N19", f"ReLU, every one of {DEPTH} layers at width {wide}",
            [*gaussian(BLOB), check(f"kurtosis of the last layer, width {narrow}", ends[0], above=ends[1],
                                    than=f"at width {wide}")],
            within=[one for name in DATA if name != BLOB for one in gaussian(name)],
            headline=f"kurtosis in layer {DEPTH}: {ends[0]} at width {narrow}, {ends[1]} at {wide}",
            limit="not on every data", otherwise="not even on random data",
        ),
        claimed(
            "N19", "where it fails on data, width is no cure: size of the first layer's kurtosis",
            [check(f"{name}, width {w}", found[name, w][0].tails, above=TAILED / 2)
             for name in (CLUSTERS, SPARSE) for w in (narrow, wide)],
            otherwise="there the first layer is Gaussian enough",
        ),
    ]  # fmt: skip


def _data(run: Run, n: int, d: int) -> dict[str, Any]:
    rng = np.random.default_rng([run.seed, 19])
    x = rng.standard_normal((n, d), dtype=np.float32)
    side = np.where(rng.random(n) < 0.5, -2.0, 2.0).astype(np.float32)  # 2 spreads from the middle in every coordinate
    one = x * (rng.random((n, d)) < 0.05)
    return {
        BLOB: fg.data.as_data(x),
        DIGITS: fg.data.as_data(run.data("digits", points=n).flat()),
        CLUSTERS: fg.data.as_data(x + side[:, None]),
        SPARSE: fg.data.as_data((one * np.sqrt(20.0)).astype(np.float32)),
    }


gaussian = measured(
    "norm/gaussian", "Where pre-activations are Gaussian, and where not", "NORM App. D; IGB App. B", claims=("N19",),
    needs=("digits",), seconds=(12, 100),
    about="ReLU, 5 hidden layers of {widths} (our sizes), Kaiming; random data in 100 dimensions, digits, two clusters "
    "4 spreads apart in every coordinate, inputs with one pixel in twenty; {n} points; {inits} networks each.",
    quick=dict(n=400, widths=(20, 80, 320), inits=40),
    full=dict(n=1000, widths=(20, 80, 320, 800), inits=80),
    measure={"classes": 2, "moments": 4, "probe": "weights"},
    cells=lambda c: {
        (name, width): Cell(deep("relu", DEPTH), x, {"width": width})
        for name, x in _data(c.run, c.n, 100).items() for width in c.widths
    },
    quantities=lambda c: {"found": {key: shapes(m) for key, m in c.cells.items()}},
    judge=lambda c: judge_gaussian(c.found),
    tables=lambda c: {"shapes": [
        {"data": name, "width": width, "layer": k, **vars(shape)}
        for (name, width), layers in c.found.items() for k, shape in enumerate(layers, start=1)
    ]},
    charts=lambda c: {"shapes": lines(
        [{"panel": panel, "name": name, "layer": k, "value": shape.kurtosis}
         for panel, keys in (
             ("Random data, by width", {f"width {w}": (BLOB, w) for w in c.widths}),
             (f"Width {c.widths[-1]}, by data", {name: (name, c.widths[-1]) for name in DATA}),
         )
         for name, key in keys.items() for k, shape in enumerate(c.found[key], start=1)],
        "layer", panel="panel", y_title="Excess kurtosis over the data",
        rules={"Gaussian": 0.0, "not Gaussian above": TAILED, "nor below": -TAILED},
    )},
    holds={"shapes": Holds("Wide networks have Gaussian nodes in every layer on random data", entries=(0,))},
)  # fmt: skip
