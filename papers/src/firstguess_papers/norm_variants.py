"""NORM: choosing early in training (§1, §6); other activations, norms, pools and inputs; Gaussian nodes (App. D)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import firstguess as fg
from firstguess_papers.charts import EVEN, FLIPS, beyond_flips, deep, dots, gammas, grid, lines
from firstguess_papers.items import Holds, Item
from firstguess_papers.judging import Array, Check, Number, all_of, below, check, claimed, close, each, same
from firstguess_papers.library import SKEWED, TAILED
from firstguess_papers.measured import Cell, Found, Training
from firstguess_papers.norm import AROUND
from firstguess_papers.training_pieces import Arm, chosen, modes

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
Candidates = Mapping[tuple[str, float], Arm]


def choose(arms: Candidates, rule: str, step: int) -> dict[str, Array]:
    """Network i of every candidate is one tuner's: it takes the candidate that is best at `step`, of ties each in part.

    `lead`: favoured − other class of what is chosen, training points, at that step; `final`: held-out accuracy at the
    end, `worst`: of the worst class; `after`: whether a norm after the activation was chosen. A candidate that has
    diverged is never taken, and worth nothing.
    """

    def of(what: str, step: int) -> Array:  # (candidates, networks)
        return np.array([np.nan_to_num(arm.values(what, step), nan=0.0) for arm in arms.values()])

    score = of(rule, step)
    part = (score == score.max(axis=0)).astype(float)
    part /= part.sum(axis=0)
    last = next(iter(arms.values())).last
    after = np.array([[float(placement == "LayerNorm after")] for placement, _ in arms])
    of_each = {"lead": of("gap", step), "final": of("test accuracy", last), "worst": of("test worst", last)}
    return {what: (part * values).sum(axis=0) for what, values in (of_each | {"after": after}).items()}


def _candidates(c: Found) -> dict[Any, Training]:
    """Every placement at every rate, predicted below the rate from which on its bias swings for ever."""
    whole = c.run.data("mnist:even-odd", points=2 * (c.n + c.held))
    x = chosen(whole, (c.n // 2, c.n // 2), flat=True)
    test = chosen(whole, (c.held // 2, c.held // 2), skip=(c.n // 2, c.n // 2), flat=True)
    unit = float(modes(c.run, PLACEMENTS["no norm"], x, c.width)["overshoot"])
    limits = {placement: float(modes(c.run, net, x, c.width, label=f"{placement}, modes")["lr_limit"])
              for placement, net in PLACEMENTS.items()}  # fmt: skip
    c.known["looks"] = [k for k in (0, 1, 2, _EARLY, 10, 20, 40, 70, 100, 150, 200, 300) if k <= c.steps]
    return {
        (placement, factor): Training(
            net, x, {"lr": factor * unit, "steps": c.looks, "optimizer": "gd"}, test=test, predict={"trust": False},
            draws=c.draws if factor * unit < limits[placement] else 0,
        ) for placement, net in PLACEMENTS.items() for factor in FACTORS
    }  # fmt: skip


def _picks(c: Found) -> dict[str, Any]:
    """What both rules pick at step k among each set of candidates, trained and predicted."""
    found: dict[str, Mapping[Any, Arm]] = {"trained": c.cells, "predicted": c.predictions}
    picks = {
        (words, source, rule, k): choose({key: arm for key, arm in given.items() if key[0] in names}, what, k)
        for words, names in SETS.items() for source, given in found.items() for rule, what in RULES.items()
        for k in c.looks[1:]
    }  # fmt: skip
    one = {source: next(iter(given.values())) for source, given in found.items()}
    ends = {key: np.nan_to_num(arm.values("test worst", arm.last)).mean() for key, arm in c.cells.items()}
    return {
        "picks": picks, "one": one["trained"], "end": c.looks[-1],
        "ideal": {words: max(end for key, end in ends.items() if key[0] in names) for words, names in SETS.items()},
        "picked": {key: {what: one[key[1]].number(values) for what, values in pick.items()}
                   for key, pick in picks.items()},
        "unknown": [f"{p}, rate × {f:g}" for p, f in c.cells if (p, f) not in c.predictions],
    }  # fmt: skip


def _chosen(c: Found, words: str) -> Any:
    """Chosen by global accuracy, the favoured class leads by more; and the worst class ends lower."""
    by_global, by_worst = (c.picks[words, "trained", rule, _EARLY] for rule in RULES)
    late = c.picked[words, "trained", "global", c.end]
    return claimed(
        "N20", f"{words}, picked at step {_EARLY} by global accuracy or by the worst class's",
        [check("lead of the favoured class, by global − by worst class",
               c.one.number(by_global["lead"] - by_worst["lead"]), above=_MORE)],
        within=[check("held-out worst class at the end, by worst class − by global",
                      c.one.number(by_worst["worst"] - by_global["worst"]), above=_LOSS)],
        limit="at the end the worst class is hardly lower: what was picked for the favoured class trains as well",
        otherwise="what both rules pick favours a class alike: with even classes, less bias is more accuracy by either",
        also="; ".join(
            f"by {rule}: " + "lead {lead}, held-out accuracy at the end {final}, of the worst class {worst}, LayerNorm "
            "after chosen by {after}".format(**c.picked[words, "trained", rule, _EARLY]) for rule in RULES
        ) + f"; picked by global at the last step {late['worst']}; best single candidate {c.ideal[words]:.3f}",
    )  # fmt: skip


selection = Item(
    "norm/selection", "Choosing hyper-parameters early", "NORM §1, §3.1, §6", claims=("N20",), needs=("mnist",),
    about="3 placements of LayerNorm × 5 learning rates, 5 hidden layers of {width} on {n} MNIST images, even or odd; "
    "full batches, {steps} steps; {networks} networks a candidate, {draws} predicted; {held} held-out images. "
    "Network, data and candidates are ours.",
    quick=dict(n=60, held=200, width=60, steps=100, inits=16, parts=1, draws=40),
    full=dict(n=150, held=400, width=100, steps=200, inits=12, parts=2, draws=100),
    seconds=(20, 200), cells=_candidates, quantities=_picks, judge=lambda c: [_chosen(c, words) for words in SETS],
    tables=lambda c: {"picks": [
        {"candidates": words, "source": source, "rule": rule, "step": k}
        | {what: number.value for what, number in numbers.items()}
        | {"worst_error": numbers["worst"].error, "lead_error": numbers["lead"].error}
        for (words, source, rule, k), numbers in c.picked.items()
    ]},
    charts=lambda c: {"picks": lines(  # trained (points), and picked among predicted trainings (lines)
        [{"name": f"picked by {rule} accuracy", "panel": f"{words}: {heading}", "step": k,
          "value": Number(numbers[what].value, float(np.nan_to_num(numbers[what].error))),
          "theory": c.picked[words, "predicted", rule, k][what].value}
         for own in SETS for what, heading in (("lead", "lead of the favoured class"),
                                               ("worst", "worst class at the end"))
         for (words, source, rule, k), numbers in c.picked.items() if (words, source) == (own, "trained")],
        "step", panel="panel", title="Learning rate and norm placement, picked early by two rules",
        x_title="Step at which one picks", y_title="", x_scale="log", y_domain=(-0.1, 1.0), percent=True, width=430,
        height=220,
    )},
    holds={"picks": Holds("Picked early by global accuracy, the favoured class leads by more", entries=(0,))},
    notes=lambda c: [
        "Picked on training images, judged on held-out ones; every network is one tuner."
        + (f" No prediction beyond 4κ/λ_b: {', '.join(c.unknown)}." if c.unknown else "")
    ],
)  # fmt: skip


PHI = {"ReLU": "relu", "GELU": "gelu", "SiLU": "silu", "sigmoid": "sigmoid", "tanh": "tanh"}
ODD = ("tanh",)
NONE, BN_BEFORE, LN_BEFORE, BN_AFTER, LN_AFTER = AROUND
DEPTH = 5
NETWORKS = {(label, place): deep(block.format(phi), DEPTH + 1)
            for label, phi in PHI.items() for place, block in AROUND.items()}  # fmt: skip


def _by_layer(c: Found, texts: Mapping[Any, str]) -> dict[str, Any]:
    """γ after 1, 2, … layers, measured and in closed form."""
    return {"found": {key: gammas(c[key]) for key in texts},
            "theory": {key: fg.predict(text).gamma[1:-1] for key, text in texts.items()}}  # fmt: skip


def correlation(gamma: Number) -> Number:
    """c = γ/(1 + γ), with its error to first order."""
    return Number(gamma.value / (1 + gamma.value), gamma.error / (1 + gamma.value) ** 2)


def _close(c: Found, place: str, other: str, layer: int, to: str) -> list[Check]:
    """After all layers, to γ of another place after one or all of them."""
    return [close(f"{phi}, {place}", c.found[phi, place][-1], c.found[phi, other][layer], 0.15, 0.02, to=to)
            for phi in PHI]  # fmt: skip


activations = Item(
    "norm/activations", "The theorems on norms for other activations", "NORM §4.1, App. B", claims=("N16",),
    about="Five activations × no norm, BatchNorm and LayerNorm before and after; 6 hidden layers of {width} (our "
    "sizes), Kaiming variances; blobs of that dimension, {n} points; {inits} networks of ten outputs each, γ by layer.",
    quick=dict(width=200, n=300, inits=40),
    full=dict(width=500, n=500, inits=100),
    seconds=(12, 100), measure={"classes": 10, "probe": "weights"},
    cells=lambda c: {key: Cell(text, c.blob(c.n, c.width)) for key, text in NETWORKS.items()},
    quantities=lambda c: _by_layer(c, NETWORKS) | {"left": {key: beyond_flips(c[key]) for key in NETWORKS}},
    judge=lambda c: [
        claimed(
            "N16", f"γ after {DEPTH} layers, and how far the largest of ten fractions is beyond coin flips",
            [*_close(c, BN_BEFORE, BN_BEFORE, 0, "one layer's"),
             *(check(f"{phi}, {place}", c.found[phi, place], near=0.0, room=EVEN)
               for place in (BN_AFTER, LN_AFTER) for phi in PHI),
             *(check(f"{phi}, {place}, beyond flips", c.left[phi, place], below=FLIPS)
               for place in (BN_AFTER, LN_AFTER) for phi in PHI),
             *(check(f"{phi}, {LN_BEFORE}", c.found[phi, LN_BEFORE][-1], above=c.found[phi, LN_BEFORE][0],
                     than="one layer's") for phi in PHI if phi not in ODD)],
            headline=f"GELU, {DEPTH} layers: γ with BatchNorm before {c.found['GELU', BN_BEFORE][-1]}, LayerNorm "
            f"before {c.found['GELU', LN_BEFORE][-1]}, after {c.found['GELU', LN_AFTER][-1]}",
        ),
        claimed(
            "N16", f"LayerNorm before is as no norm, γ after {DEPTH} layers",
            _close(c, LN_BEFORE, NONE, -1, "no norm's"),
            otherwise="not for activations that see the scale, which LayerNorm sets",
        ),
    ],
    tables=lambda c: {"activations": grid("name place depth", value=c.found, theory=c.theory)},
    charts=lambda c: {"activations": lines(
        grid("name place depth", value={key: [*map(correlation, values)] for key, values in c.found.items()},
             theory={key: values / (1 + values) for key, values in c.theory.items()}),
        "depth", by="place", panel="name", y_title="Correlation c = γ/(1 + γ)",
        y_domain=(-0.05, 1.05), width=280, height=260,
    )},
    holds={"activations": Holds("Norms do for other activations what they do for ReLU", entries=(0,))},
)  # fmt: skip


LAYER, INSTANCE, BATCH = "LayerNorm", "InstanceNorm", "BatchNorm"
GROUPS = {LAYER: "layernorm"} | {f"groups of {k}": f"groupnorm(each={k})" for k in (2, 4, 8, 32)}
IMAGE = {LAYER: "layernorm", INSTANCE: "instancenorm", BATCH: "batchnorm"}
PLACED = {"before": "{} > relu", "after": "relu > {}"}  # ReLU
CONV = "4 x [conv(weight_var=2, kernel=3, padding=1) > {}] > dense(weight_var=2)"
DENSE = {(name, place): deep(block.format(norm), DEPTH + 1)
         for place, block in PLACED.items() for name, norm in GROUPS.items()}  # fmt: skip
IMAGES = {(name, place): CONV.format(block.format(norm))
          for place, block in PLACED.items() for name, norm in IMAGE.items()}  # fmt: skip


def _cells_groups(c: Found) -> dict[Any, Cell]:
    shape = (c.images, 3, c.side, c.side)
    pictures = np.random.default_rng([c.run.seed, 17]).standard_normal(shape, dtype=np.float32)
    return {key: Cell(text, c.blob(c.n, c.d)) for key, text in DENSE.items()} | {
        (*key, "images"): Cell(text, fg.data.as_data(pictures), {"inits": c.many, "width": c.channels})
        for key, text in IMAGES.items()
    }


def _otherwise(c: Found) -> str:
    """Does InstanceNorm before grow as LayerNorm's or stay as BatchNorm's?"""
    own, layer, batch = (c.seen[name, "before"][-1] for name in (INSTANCE, LAYER, BATCH))
    as_batch = all_of([below(own, layer), same(own, batch, room=0.02 + 0.15 * batch.value)])
    return "it takes each channel's own center off, as BatchNorm does" if as_batch else "not as LayerNorm"


groups = Item(
    "norm/groups", "GroupNorm and InstanceNorm: LayerNorm again?", "NORM §2, footnote", claims=("N17",),
    about="ReLU, Kaiming. GroupNorm with groups of 2, 4, 8, 32 and LayerNorm, before and after: 6 hidden layers of "
    "{width}, blobs in {d} dimensions, {n} points, {inits} networks of ten outputs. InstanceNorm, LayerNorm, "
    "BatchNorm: 4 convolutional layers of {channels} channels on {images} images of {side}×{side} independent pixels, "
    "{many} networks. Sizes are ours.",
    quick=dict(width=192, d=200, n=300, inits=80, side=8, images=60, channels=32, many=60),
    full=dict(width=512, d=500, n=500, inits=200, side=12, images=100, channels=64, many=80),
    seconds=(12, 100), measure={"classes": 10, "probe": "weights"}, cells=_cells_groups,
    quantities=lambda c: _by_layer(c, DENSE) | {"seen": {key: gammas(c[(*key, "images")]) for key in IMAGES}},
    judge=lambda c: [
        claimed(
            "N17", f"GroupNorm, γ after 1 to {DEPTH} layers",
            [*(check(f"{name} after", c.found[name, "after"], near=0.0, room=EVEN) for name in list(GROUPS)[1:]),
             *(check(f"{name} before", c.found[name, "before"][-1], above=c.found[name, "before"][0],
                     than="one layer's") for name in list(GROUPS)[1:])],
            within=[close(f"{name} before", c.found[name, "before"], c.found[LAYER, "before"], 0.1, 0.02,
                          to="LayerNorm's") for name in list(GROUPS)[1:]],
            limit="narrow groups before ReLU have a distribution of their own",
            otherwise="not as LayerNorm",
        ),
        claimed(
            "N17", "InstanceNorm in convolutional networks, γ by hidden layer",
            [check("after ReLU", c.seen[INSTANCE, "after"], near=0.0, room=EVEN),
             check("LayerNorm before, last layer", c.seen[LAYER, "before"][-1], above=c.seen[LAYER, "before"][0],
                   than="its first"),
             close("InstanceNorm before, last layer", c.seen[INSTANCE, "before"][-1], c.seen[LAYER, "before"][-1], 0.15,
                   0.02, to="LayerNorm's")],
            also=f"BatchNorm before {c.seen[BATCH, 'before'][0]} → {c.seen[BATCH, 'before'][-1]}",
            otherwise=_otherwise(c),
        ),
    ],
    tables=lambda c: {"groups": grid("data name place depth", value={"blob": c.found, "images": c.seen})},
    charts=lambda c: {
        "groups": lines(
            grid("name place depth", value=c.found, theory=c.theory), "depth", panel="place",
            title="GroupNorm before and after ReLU, by the width of its groups",
        ),
        "images": lines(
            grid("name place depth", value=c.seen), "depth", panel="place", x_title="Convolutional layers",
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
INPUTS = ((0.0, 1.0), (1.0, 1.0), (3.0, 1.0), (0.0, 0.1), (0.0, 10.0), (3.0, 0.1), (3.0, 10.0))  # mean, spread
NORMED, PLAIN, AFTER = "BatchNorm before ReLU", "No norm", "BatchNorm after"
BLOCKS = {(norm, pool): deep(f"{block}relu{layers}", DEPTH + 1)
          for norm, block in ((NORMED, "batchnorm > "), (PLAIN, "")) for pool, layers in POOLS.items()}  # fmt: skip


def _cells_pooling(c: Found) -> dict[Any, Cell]:
    x = c.blob(c.n, c.d)
    data = {(mean, spread): fg.data.as_data(x.flat() * spread + mean) for mean, spread in INPUTS}
    return {key: Cell(text, x) for key, text in BLOCKS.items()} | {
        (AFTER, *key): Cell(deep("relu > batchnorm", DEPTH + 1), own, {"width": 200}) for key, own in data.items()
    }


pooling = Item(
    "norm/pooling", "BatchNorm with pooling, and on data of any mean and variance", "NORM App. E.1, E.2.1",
    claims=("N18",),
    about="ReLU, Kaiming, 6 hidden layers of {width} nodes before pooling (our size): BatchNorm before with pools of "
    "1, 2 and 4, and no norm; BatchNorm after on blobs of mean 0, 1, 3 and spread 0.1, 1, 10; {d} dimensions, {n} "
    "points; {inits} networks of ten outputs each.",
    quick=dict(width=400, d=200, n=300, inits=40),
    full=dict(width=1200, d=500, n=500, inits=60),
    seconds=(12, 100), measure={"classes": 10, "probe": "weights"}, cells=_cells_pooling,
    quantities=lambda c: _by_layer(c, BLOCKS) | {
        "after": {key: gammas(c[(AFTER, *key)]) for key in INPUTS},
        "left": {key: beyond_flips(c[(AFTER, *key)]) for key in INPUTS},
    },
    judge=lambda c: [
        claimed(
            "N18", f"BatchNorm before ReLU with pools, γ after 1 to {DEPTH} layers",
            [*(close(pool, g[1:], g[0], 0.1, 0.02, to="one layer's") for (norm, pool), g in c.found.items()
               if norm == NORMED),
             check("no norm", c.found[PLAIN, "no pool"][-1], above=c.found[PLAIN, "no pool"][0], than="one layer's")],
            within=[close(pool, g, float(c.theory[norm, pool][0]), 0.1, 0.02, to="the closed form")
                    for (norm, pool), g in c.found.items() if norm == NORMED],
            limit="constant, but at another level than the closed form says", otherwise="not constant",
        ),
        claimed(
            "N18", f"BatchNorm after ReLU, γ after 1 to {DEPTH} layers and the largest of ten fractions beyond coin "
            "flips",
            [*each({f"mean {m:g}, spread {s:g}": values for (m, s), values in c.after.items()}, near=0.0, room=EVEN),
             *each({f"mean {m:g}, spread {s:g}": value for (m, s), value in c.left.items()}, below=FLIPS)],
            otherwise="not even",
        ),
    ],
    tables=lambda c: {
        "pools": grid("norm name depth", value=c.found, theory=c.theory),
        "inputs": grid("name mean spread depth", value={AFTER: c.after}),
    },
    charts=lambda c: {
        "pools": lines(c.tables["pools"], "depth", panel="norm", y_scale="log"),
        "inputs": dots(
            grid("mean spread", value={(f"mean {m:g}", f"spread {s:g}"): v for (m, s), v in sorted(c.left.items())}),
            "mean", by="spread", title="BatchNorm after ReLU on data of other means and scales",
            x_title="Largest of ten guess fractions beyond that of coin flips", x_domain=(-0.02, 0.08), percent=True,
        ),
    },
    holds={
        "pools": Holds("BatchNorm before ReLU keeps γ constant in depth with pooling, too", entries=(0,)),
        "inputs": Holds("BatchNorm after ReLU guesses evenly whatever the data's mean and scale", entries=(1,)),
    },
)  # fmt: skip


BLOB, DIGITS, CLUSTERS, SPARSE = DATA = ("random data", "digits", "two clusters", "one pixel in twenty")
Shape = dict[str, Number]  # skewness (rms over nodes) and excess kurtosis over the data, of a layer's pre-activations


def shapes(m: Any) -> list[Shape]:
    """Of the layers with weights, without the output (its few nodes)."""
    return [{what: Number(getattr(s, what), getattr(s, f"{what}_se")) for what in ("skewness", "kurtosis")}
            for s in m.shapes[:-1]]  # fmt: skip


def _tails(shape: Shape) -> Number:
    """The size of the kurtosis, on either side."""
    return Number(abs(shape["kurtosis"].value), shape["kurtosis"].error)


def _gaussian(c: Found, *names: str) -> list[Check]:
    """Whether all layers of the widest networks are."""
    return [one for name in names for one in (
        check(f"{name}, skewness", [s["skewness"] for s in c.found[name, c.widths[-1]]], below=SKEWED),
        check(f"{name}, size of the kurtosis", [_tails(s) for s in c.found[name, c.widths[-1]]], below=TAILED),
    )]  # fmt: skip


def _data(c: Found) -> dict[str, Any]:
    rng = np.random.default_rng([c.run.seed, 19])
    n, d = c.n, 100
    x = rng.standard_normal((n, d), dtype=np.float32)
    side = np.where(rng.random(n) < 0.5, -2.0, 2.0).astype(np.float32)  # 2 spreads from the middle in every coordinate
    one = x * (rng.random((n, d)) < 0.05)
    return {
        BLOB: fg.data.as_data(x),
        DIGITS: fg.data.as_data(c.run.data("digits", points=n).flat()),
        CLUSTERS: fg.data.as_data(x + side[:, None]),
        SPARSE: fg.data.as_data((one * np.sqrt(20.0)).astype(np.float32)),
    }


gaussian = Item(
    "norm/gaussian", "Where pre-activations are Gaussian, and where not", "NORM App. D; IGB App. B", claims=("N19",),
    needs=("digits",), seconds=(12, 100),
    about="ReLU, 5 hidden layers of {widths} (our sizes), Kaiming; random data in 100 dimensions, digits, two clusters "
    "4 spreads apart in every coordinate, inputs with one pixel in twenty; {n} points; {inits} networks each.",
    quick=dict(n=400, widths=(20, 80, 320), inits=40),
    full=dict(n=1000, widths=(20, 80, 320, 800), inits=80),
    measure={"classes": 2, "moments": 4, "probe": "weights"},
    cells=lambda c: {
        (name, width): Cell(deep("relu", DEPTH), x, {"width": width})
        for name, x in _data(c).items() for width in c.widths
    },
    quantities=lambda c: {"found": {key: shapes(m) for key, m in c.cells.items()}},
    judge=lambda c: [
        claimed(
            "N19", f"ReLU, every one of {DEPTH} layers at width {c.widths[-1]}",
            [*_gaussian(c, BLOB),
             check(f"kurtosis of the last layer, width {c.widths[0]}", c.found[BLOB, c.widths[0]][-1]["kurtosis"],
                   above=c.found[BLOB, c.widths[-1]][-1]["kurtosis"], than=f"at width {c.widths[-1]}")],
            within=_gaussian(c, DIGITS, CLUSTERS, SPARSE),
            headline=f"kurtosis in layer {DEPTH}: " + ", ".join(
                f"{c.found[BLOB, w][-1]['kurtosis']} at {word}{w}"
                for w, word in ((c.widths[0], "width "), (c.widths[-1], ""))),
            limit="not on every data", otherwise="not even on random data",
        ),
        claimed(
            "N19", "where it fails on data, width is no cure: size of the first layer's kurtosis",
            [check(f"{name}, width {w}", _tails(c.found[name, w][0]), above=TAILED / 2)
             for name in (CLUSTERS, SPARSE) for w in (c.widths[0], c.widths[-1])],
            otherwise="there the first layer is Gaussian enough",
        ),
    ],
    tables=lambda c: {"shapes": [
        {"data": name, "width": width, "layer": k, **shape}
        for (name, width), layers in c.found.items() for k, shape in enumerate(layers, start=1)
    ]},
    charts=lambda c: {"shapes": lines(
        [{"panel": panel, "name": name, "layer": k, "value": shape["kurtosis"]}
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
