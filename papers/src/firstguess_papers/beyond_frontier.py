"""Beyond the papers: Adam's early phase and narrow networks by tangent kernels; knobs on bias before training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

import firstguess as fg
from firstguess import Network, Stand, predict, tune
from firstguess.data import Data
from firstguess_papers import library
from firstguess_papers.beyond_repair import AFTER, BEFORE, INSIDE, PLAIN, SHALLOW, networks
from firstguess_papers.charts import Line, arms_chart, by_class, lines, lines_of, ratio
from firstguess_papers.charts import predicted as line
from firstguess_papers.items import Entry, Holds, Item
from firstguess_papers.judging import Check, Number, Truth, above, all_of, average, check, claimed, each
from firstguess_papers.library import Piece, stand
from firstguess_papers.measured import Found
from firstguess_papers.running import Run
from firstguess_papers.training_pieces import Arm, chosen, modes, predicted, starts, trained

ROOM = 0.05  # of a share or an accuracy: what a prediction may be off
CURVES = ("largest", "favoured", "others")
RELU = "dense(weight_var=2) > relu"
EDGE = "dense(weight_var=1.99, bias_var=0.1)"
GENTLE = 0.05  # rate of the narrow networks, by that from which the bias overshoots
FACTORS = 10  # random factors drawn for every start
_WIDE_LOOKS = (*range(0, 20, 2), *range(20, 101, 10))
_NARROW_LOOKS = (*range(0, 20, 2), *range(20, 201, 20))


@dataclass(frozen=True)
class Case:
    """A network and its data. `rate` is Adam's; None: gradient descent at `GENTLE` of the rate that overshoots."""

    network: str
    data: str
    width: int
    rate: float | None = None


_THREE = f"3 x [{RELU}] > dense(weight_var=2)"
CASES = {
    "ReLU, 1 layer, MNIST": Case(f"{RELU} > dense(weight_var=2)", "mnist", 600, 4e-5),
    "ReLU, 3 layers, MNIST": Case(_THREE, "mnist", 600, 2e-5),
    "ReLU, 3 layers, two blobs": Case(_THREE, "blobs", 600, 2e-5),
    "LayerNorm before ReLU, 3, MNIST": Case(
        "3 x [dense(weight_var=2) > layernorm > relu] > dense(weight_var=2)", "mnist", 600, 2e-5
    ),
    "tanh at the edge, 3, MNIST": Case(f"3 x [{EDGE} > tanh] > {EDGE}", "mnist", 600, 2e-5),
    "ReLU, 3 layers of 100": Case(_THREE, "mnist", 100),
    "ReLU, 10 layers of 300": Case(f"10 x [{RELU}] > dense(weight_var=2)", "mnist", 300),
}
QUICK_CASES = {
    "ReLU, 1 layer, two blobs": Case(f"{RELU} > dense(weight_var=2)", "blobs", 200, 1e-4),
    "ReLU, 3 layers, two blobs": Case(_THREE, "blobs", 200, 5e-5),
    "ReLU, 3 layers of 40": Case(_THREE, "blobs", 40),
}


@dataclass(frozen=True, eq=False)
class Pair:
    """Networks trained, and predicted from their own starts."""

    trained: Arm
    predicted: Arm

    def off(self, what: str, look: int | None = None) -> Number:
        """Predicted − trained, network by network: at a look, or averaged over all of them."""
        apart = self.predicted.draws[what] - self.trained.draws[what]
        return average(apart.mean(axis=1) if look is None else apart[:, look])

    def offs(self, what: str) -> list[Number]:
        """The same at every look."""
        return [self.off(what, look) for look in range(len(self.trained.steps))]

    def farthest(self, what: str) -> Number:
        """The largest difference of the means, at any look."""
        return max(self.offs(what), key=lambda number: abs(number.value))


Narrow: TypeAlias = Mapping[str, tuple[Pair, Pair]]  # with the random factor, and without


def nearer(factor: Pair, none: Pair) -> Truth:
    """Whether the share averaged over looks is less off with the random factor than without it; the networks are the
    same, so that what is gained has a smaller error than either prediction."""
    with_it, without = (p.off("largest") for p in (factor, none))
    moved = none.predicted.draws["largest"] - factor.predicted.draws["largest"]
    gained = average(np.sign(without.value) * moved.mean(axis=1))
    if above(Number(abs(without.value), without.error), 0.0) is not True:
        return None  # there is nothing to bring nearer
    return all_of([above(gained, 0.0), abs(with_it.value) <= abs(without.value)])


def _pairs(c: Found) -> dict[str, Any]:
    """Wide networks under Adam, and narrow ones under descent, with the random factor and without."""
    cases = {name: (CASES if c.dimension == 784 else QUICK_CASES)[name] for name in c.known["cases"]}
    sets = {"blobs": fg.data.two_blobs(c.points // 2, c.dimension, seed=c.run.seed)}
    if any(case.data == "mnist" for case in cases.values()):
        sets["mnist"] = chosen(c.run.data("mnist:even-odd", points=4 * c.points), (c.points // 2,) * 2, flat=True)
    wide = {name: pair(c.run, name, case, sets[case.data], c.inits) for name, case in cases.items() if case.rate}
    narrow = {
        name: tuple(pair(c.run, name, case, sets[case.data], c.many, factor=own) for own in (True, False))
        for name, case in cases.items() if not case.rate
    }  # fmt: skip
    return {"wide": wide, "narrow": narrow}


def _rows(wide: Mapping[str, Pair], narrow: Narrow) -> list[dict[str, Any]]:
    found = {"Adam": wide} | {how: {name: both[k] for name, both in narrow.items()}
                              for k, how in enumerate(("with a factor", "without"))}  # fmt: skip
    return [
        {"network": name, "how": how, "curve": what, "step": int(step), "trained": t, "predicted": p}
        for how, pairs in found.items() for name, one in pairs.items() for what in CURVES
        for step, t, p in zip(one.trained.steps, *(arm.draws[what].mean(axis=0) for arm in vars(one).values()),
                              strict=True)
    ]  # fmt: skip


def pair(run: Run, name: str, case: Case, x: Data, inits: int, *, factor: bool = True) -> Pair:
    """`factor`: with the random factor that `trust` asks for, `FACTORS` times one of its own for every network."""
    looks = list(_NARROW_LOOKS if case.rate is None else _WIDE_LOOKS)
    how: dict[str, Any] = {"optimizer": "gd" if case.rate is None else "adam", "steps": looks, "width": case.width}
    how["lr"] = case.rate or GENTLE * modes(run, case.network, x, case.width, label=f"rate of {name}")["overshoot"]
    network, many = Network.parse(case.network, classes=2), FACTORS if case.rate is None and factor else 1
    arm = trained(run, network, x, label=name, inits=inits, **how)
    own = np.tile(starts(run, network, x.x, case.width, range(inits), label=name, seed=run.seed), (many, 1, 1))
    label = name + ("" if factor else ", without a factor")
    known = predicted(run, case.network, x, label=label, start=own, trust=factor, **how)
    draws = {what: known.draws[what].reshape(many, inits, -1).mean(axis=0) for what in CURVES}
    return Pair(arm, replace(known, draws=draws))


def judged_adam(wide: Mapping[str, Pair], narrow: Narrow) -> list[Entry]:
    """B7: Adam in wide networks; the random factor in narrow ones (with it, without it)."""

    def close(what: str) -> list[Check]:
        """At every look; where they are farthest apart is what is said."""
        return [
            replace(check(f"{what}, {name.replace(',', '')}", one.offs(what), near=0.0, room=ROOM),
                    found=str(one.farthest(what)))
            for name, one in wide.items()
        ]  # fmt: skip

    drawn = {name: both for name, both in narrow.items() if both[0].predicted.about["trust"] == "with a random factor"}
    offs = {name: tuple(one.off("largest") for one in both) for name, both in narrow.items()}
    farthest = max((one.farthest("largest") for one in wide.values()), key=lambda number: abs(number.value))
    said = ", ".join(f"{name}: off by {one}, without the factor {other}" for name, (one, other) in offs.items())
    nothing = Check("a random factor", "asked for", None, "nowhere")
    return [
        claimed(
            "B7", "under Adam mean curves of wide networks as tangent kernels predict − trained, at every look: the "
            "largest share, and accuracies of the class favoured at the start and of the other",
            close("largest"), within=[*close("favoured"), *close("others")],
            headline=f"largest share, predicted − trained: at most {farthest}",
        ),
        claimed(
            "B7", "in narrow networks, averaged over looks, the largest share predicted with a random factor for every "
            "network − trained",
            each({name: one for name, (one, _) in offs.items()}, near=0.0, room=ROOM),
            within=[Check(name, "nearer by the factor", nearer(*both), f"{offs[name][1]} without it")
                    for name, both in drawn.items()] or [nothing],
            limit="with the factor it is not nearer", headline=said,
        ),
    ]  # fmt: skip


def charts(wide: Mapping[str, Pair], narrow: Narrow) -> dict[str, Any]:
    """Largest share and accuracies over steps: Adam in wide networks; narrow ones with and without a factor."""
    both = {name: one.trained for name, one in wide.items()}, {name: one.predicted for name, one in wide.items()}
    return {
        "adam": arms_chart(
            {"Largest share": lines_of("largest", *both), "Accuracy, favoured and other class": by_class(*both)},
            title="Adam, predicted and trained", columns=2,
        ),
        "factor": arms_chart(
            {name: [Line("trained, and with a random factor", *(arm.curve("largest") for arm in vars(one).values())),
                    Line("without a factor", None, none.predicted.curve("largest"))]
             for name, (one, none) in narrow.items()},
            title="Narrow networks, predicted with a random factor and without", columns=2,
        ),
    }  # fmt: skip


adam = Item(
    "beyond/adam", "Adam's early phase, and narrow networks, by tangent kernels", "theory.md §7", claims=("B7",),
    needs=("mnist",), seconds=(20, 400),
    about="{cases}. Those named with a width: gradient descent at a twentieth of the rate that overshoots, {many} "
    "networks, 200 steps; the others: Adam, {inits} networks each, 100 steps. {points} points of MNIST by parity or "
    "of two blobs in {dimension} dimensions, all of them at every step.",
    quick=dict(points=60, dimension=100, inits=12, many=24, cases=tuple(QUICK_CASES)),
    full=dict(points=300, dimension=784, inits=24, many=96, cases=tuple(CASES)),
    quantities=_pairs, judge=lambda c: judged_adam(c.wide, c.narrow),
    tables=lambda c: {"curves": _rows(c.wide, c.narrow)},
    charts=lambda c: charts(c.wide, c.narrow),
    holds={
        "adam": Holds("Adam's first hundred steps follow from tangent kernels", entries=(0,)),
        "factor": Holds("In narrow networks one random factor brings the prediction nearer", (1,), ("holds",)),
    },
    notes=["Every prediction is from the logits of the very networks that are trained. The margin of 0.05 was chosen "
           "with the table of docs/training.md known, which has other widths, rates and networks."],
)  # fmt: skip


DEPTH = 20
TARGETS = (0.1, 0.5, 2.0)  # γ
PARAMETERS: Mapping[str, tuple[str, Literal["slope", "branch_scale", "variances", "affine"]]] = {
    "leaky ReLU, slope": (f"{DEPTH} x [dense > relu] > dense", "slope"),
    "residual ReLU, branch scale": (f"dense > {DEPTH} x [residual[relu > dense]] > dense", "branch_scale"),
    "tanh, variances": (f"{DEPTH} x [dense > tanh] > dense", "variances"),
    "GELU, shift and scale": (f"{DEPTH} x [dense > gelu] > dense", "affine"),
}
EXACT = 0.05  # of 1: room for the law between measured numbers
NEAR = 0.15  # of 1: room for measured numbers against those for infinite width
OUTPUTS = 20  # nodes whose centers and spreads are averaged


@dataclass(frozen=True)
class Candidate:
    """A network, where it should stand, and of which family it is."""

    family: str
    label: str
    network: Network
    known: Stand
    tuned: bool = False


@dataclass(frozen=True)
class Numbers:
    """What networks have: 1 + γ, the factor on gradients, P, and (1 + γ)·g·q₁/q_L over P, which the law has at 1."""

    one_plus_gamma: Number
    gradients: Number
    nonlinearity: Number
    law: Number
    kept: Number  # q_L/q₁: mean squares of outputs over those of first pre-activations


def cases() -> list[Candidate]:
    """Networks as they are, with norms, shallow; and each knob at three γ."""
    found: list[Candidate] = []
    for label, network in networks(DEPTH).items():
        if label in (PLAIN, BEFORE, AFTER, INSIDE, SHALLOW):
            family = "plain ReLU" if label in (PLAIN, SHALLOW) else label
            found.append(Candidate(family, label, network, stand(predict(network))))
    five = Network.parse("5 x [dense(weight_var=2) > relu] > dense(weight_var=2)")
    found.append(Candidate("plain ReLU", "plain, 5 layers", five, stand(predict(five))))
    for family, (text, knob) in PARAMETERS.items():
        for gamma in TARGETS:
            network = tune(text, gamma=gamma, knob=knob).network
            found.append(Candidate(family, f"{family}, γ = {gamma:g}", network, stand(predict(network)), True))
    return found


def sampled(network: Network, *, width: int, dimension: int, points: int, inits: int, seed: int) -> Piece:
    """Of every member on random data of its own, by automatic differentiation: averages over points and outputs.

    `spread`: variance of an output over the data; `center`: its squared mean, free of what finite data add; `inputs`
    and `first`: squared gradient by the input and by the first pre-activations; `size`: their mean square.
    """
    import torch

    from firstguess_papers.library import build

    wide = replace(network, classes=OUTPUTS)
    found: dict[str, list[float]] = {name: [] for name in ("spread", "center", "inputs", "first", "size")}
    for member in range(inits):
        rng = np.random.default_rng([seed, member, 0xF207])
        x = torch.from_numpy(rng.standard_normal((points, dimension)).astype(np.float32)).requires_grad_()
        model = build(wide, dimension, width=width, seed=seed, member=member)
        first = model[0](x)
        out = model[1:](first)
        weights = torch.from_numpy(rng.standard_normal(tuple(out.shape)).astype(np.float32))
        by_input, by_first = torch.autograd.grad((out * weights).sum(), (x, first))
        values = out.detach().double()
        spread = float(values.var(0).mean())
        found["spread"].append(spread)
        found["center"].append(float(values.mean(0).square().mean()) - spread / points)
        for name, gradient in (("inputs", by_input), ("first", by_first)):
            found[name].append(float(gradient.double().square().sum(1).mean()) / OUTPUTS)
        found["size"].append(float(first.detach().double().square().mean()))
    return {name: np.array(values) for name, values in found.items()}


def numbers_of(piece: Mapping[str, Any]) -> Numbers:
    """Numbers from a piece of `sampled`; the inputs' variance is 1."""
    spread, center, inputs, first, size = (
        np.asarray(piece[name], dtype=np.float64) for name in ("spread", "center", "inputs", "first", "size")
    )
    square = spread + center
    return Numbers(
        ratio(square, spread),
        average(first),
        ratio(inputs, spread),
        ratio(first * float(size.mean()), inputs),  # (1 + γ)·g·(q₁/q_L)/P = g·q₁/E‖∇f‖²: γ and q_L drop out
        ratio(square, size),
    )


ENDS = (0.08, 25.0)  # of the line γ = P − 1


Measured: TypeAlias = Mapping[str, tuple[Candidate, Numbers]]


def _sampled(c: Found) -> dict[str, Any]:
    sizes = {"width": c.width, "dimension": c.width, "points": c.points, "inits": c.inits, "seed": c.run.seed}
    found = {
        case.label: (case, numbers_of(c.run.keep(sampled, label=case.label, network=case.network, **sizes)))
        for case in cases()
    }
    return {"networks": found}


def _predicted(case: Candidate, f: Numbers) -> Check:
    """1 + γ, gradients and P are those of the closed form: within 15 %, whatever the errors are."""
    known = (1.0 + case.known.gamma, case.known.gradients, case.known.nonlinearity)
    ratios = [m / Number(k) for m, k in zip((f.one_plus_gamma, f.gradients, f.nonlinearity), known, strict=True)]
    found = check(case.label, ratios, near=1.0, room=NEAR)
    return replace(found, truth=False) if any(abs(one.value - 1.0) > NEAR for one in ratios) else found


def judged_frontier(found: Measured) -> list[Entry]:
    """B4: the law between measured numbers, the knobs, and the closed form."""
    worst = max((f.law for _, f in found.values()), key=lambda law: abs(law.value - 1.0))
    tuned, others = ([one for one in found.values() if one[0].tuned is own] for own in (True, False))
    half = [f"{c.family} {_gamma(f)}" for c, f in tuned if math.isclose(c.known.gamma, 0.5, rel_tol=1e-3)]
    return [
        claimed(
            "B4", f"(1 + γ)·g·q₁/q_L over P, between measured numbers of {len(found)} networks",
            each({label: f.law for label, (_, f) in found.items()}, near=1.0, room=EXACT),
            headline=f"(1 + γ)·g over P in {len(found)} networks: farthest from 1 is {worst}",
        ),
        claimed(
            "B4", f"knobs reach γ = {', '.join(f'{g:g}' for g in TARGETS)} at constant gradients: gradients, mean "
            "squares, 1 + γ over what was asked for, and over P",
            each({c.label: [f.gradients, f.kept, f.one_plus_gamma / Number(1.0 + c.known.gamma),
                            f.one_plus_gamma / f.nonlinearity] for c, f in tuned}, near=1.0, room=NEAR),
            headline=f"γ where 0.5 was asked for: {', '.join(half)}",
        ),
        claimed(
            "B4", "1 + γ, gradients and P of finite networks, each over the closed form's",
            [_predicted(*one) for one in tuned], within=[_predicted(*one) for one in others],
            limit="not so at this width",
        ),
    ]  # fmt: skip


def _gamma(found: Numbers) -> Number:
    return Number(found.one_plus_gamma.value - 1.0, found.one_plus_gamma.error)


def _row(case: Candidate, found: Numbers) -> dict[str, Any]:
    line: dict[str, Any] = {"network": str(case.network), "name": case.label, "tuned": case.tuned}
    line |= {"gamma": _gamma(found), "gradients": found.gradients, "nonlinearity": found.nonlinearity}
    line |= {f"{name}_predicted": getattr(case.known, name) for name in ("gamma", "gradients", "nonlinearity")}
    return line | {"law": found.law, "kept": found.kept.value}


def chart(found: Measured) -> library.Chart:
    """γ and P − 1 of networks over γ in closed form; those at one γ stand side by side."""
    rows: list[dict[str, Any]] = []
    for case, one in found.values():
        aside = 1.1 ** (list(PARAMETERS).index(case.family) - 1.5) if case.family in PARAMETERS else 1.0
        for panel, value in (("γ", one.one_plus_gamma), ("P − 1", one.nonlinearity)):
            if case.known.gamma > 0.0:
                rows.append({"name": case.family, "at": aside * case.known.gamma, "panel": panel})
                rows[-1]["value"] = Number(value.value - 1.0, value.error)
    return lines(
        rows, "at", panel="panel", also={panel: [line("γ = P − 1", ENDS, ENDS)] for panel in ("γ", "P − 1")},
        title="Bias and nonlinearity of networks whose gradients are nearly constant",
        x_title="γ in closed form (logarithmic)", y_title="Measured", x_scale="log", y_scale="log", dodge=False,
        width=430, height=320,
    )  # fmt: skip


frontier = Item(
    "beyond/frontier", "Bias, gradients and nonlinearity before training", "theory.md §10", claims=("B4",),
    about="18 networks of width {width} (plain, norms, shallow, four knobs at γ = 0.1, 0.5 and 2; 20 layers), 20 "
    "outputs, {points} random points of that dimension, {inits} initializations each.",
    quick=dict(width=200, points=60, inits=30),
    full=dict(width=500, points=64, inits=40),
    seconds=(11, 150), quantities=_sampled, judge=lambda c: judged_frontier(c.networks),
    tables=lambda c: {"frontier": [_row(*one) for one in c.networks.values()]},
    charts=lambda c: {"frontier": chart(c.networks)},
    holds={"frontier": Holds("At constant gradients bias is nonlinearity: parameters put γ where it is wanted", (1,))},
    notes=["Gradients and P are by automatic differentiation of outputs; γ is that of output nodes."],
)  # fmt: skip
