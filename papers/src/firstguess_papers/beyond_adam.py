"""Beyond the papers: Adam's early phase by tangent kernels, and what a random factor gives narrow networks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import firstguess as fg
from firstguess import Network
from firstguess_papers.bias_mode import chosen
from firstguess_papers.items import Entry, Holds
from firstguess_papers.judging import Check, Number, Truth, above, all_of, check, claimed, each
from firstguess_papers.library import Curve
from firstguess_papers.measured import Found, measured
from firstguess_papers.mf_simulation import mean
from firstguess_papers.running import Run
from firstguess_papers.training_charts import Line, arms_chart
from firstguess_papers.training_pieces import Array, trained

if TYPE_CHECKING:
    from firstguess.data import Data
    from firstguess_papers.library import Piece
    from firstguess_papers.training_pieces import Arm

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
    """Curves of every network, trained and predicted from its own start: name → (networks, looks)."""

    steps: Array
    trained: Mapping[str, Array]
    predicted: Mapping[str, Array]
    trust: str = ""

    def off(self, what: str, look: int | None = None) -> Number:
        """Predicted − trained, network by network: at a look, or averaged over all of them."""
        apart = self.predicted[what] - self.trained[what]
        return mean(apart.mean(axis=1) if look is None else apart[:, look])

    def offs(self, what: str) -> list[Number]:
        """The same at every look."""
        return [self.off(what, look) for look in range(len(self.steps))]

    def farthest(self, what: str) -> Number:
        """The largest difference of the means, at any look."""
        return max(self.offs(what), key=lambda number: abs(number.value))

    def curve(self, what: str, source: str) -> Curve:
        """For a figure."""
        return Curve(self.steps.astype(np.int64), (self.trained if source == "trained" else self.predicted)[what])


def nearer(factor: Pair, none: Pair) -> Truth:
    """Whether the share averaged over looks is less off with the random factor than without it; the networks are the
    same, so that what is gained has a smaller error than either prediction."""
    with_it, without = (p.off("largest") for p in (factor, none))
    gained = mean(np.sign(without.value) * (none.predicted["largest"] - factor.predicted["largest"]).mean(axis=1))
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


def _rows(wide: Mapping[str, Pair], narrow: Mapping[str, tuple[Pair, Pair]]) -> list[dict[str, Any]]:
    found = [(name, "Adam", one) for name, one in wide.items()]
    for k, how in enumerate(("with a factor", "without")):
        found += [(name, how, both[k]) for name, both in narrow.items()]
    return [
        {"network": name, "how": how, "curve": what, "step": int(step), "trained": t, "predicted": p}
        for name, how, one in found
        for what in CURVES
        for step, t, p in zip(one.steps, one.trained[what].mean(axis=0), one.predicted[what].mean(axis=0), strict=True)
    ]


def pair(run: Run, name: str, case: Case, x: Data, inits: int, *, factor: bool = True) -> Pair:
    """Trained networks, and their prediction; `factor`: with the random factor that `trust` asks for."""
    looks = list(_NARROW_LOOKS if case.rate is None else _WIDE_LOOKS)
    how: dict[str, Any] = {"optimizer": "gd" if case.rate is None else "adam", "steps": looks, "width": case.width}
    rate = {"network": case.network, "data": x.hash, "width": case.width}
    how["lr"] = case.rate or GENTLE * float(run.piece({"rate": rate}, lambda: _overshoot(case, x))["rate"])
    arm = trained(run, Network.parse(case.network, classes=2), x, label=name, inits=inits, **how)
    known = run.piece(
        {"predict": rate, "lr": how["lr"], "looks": looks, "inits": inits, "factor": factor},
        lambda: predicted(case, x, inits, run.seed, how, factor=factor),
        label=f"prediction: {name}" + ("" if factor else ", without a factor"),
    )
    return _paired(arm, known)


def _paired(arm: Arm, known: Mapping[str, Any]) -> Pair:
    real = {what: arm.curve(what).draws for what in CURVES}
    inits = len(real["largest"])
    found = {
        what: np.asarray(known[what], dtype=np.float64).reshape(-1, inits, len(arm.steps)).mean(axis=0)
        for what in CURVES
    }
    return Pair(np.asarray(arm.steps, dtype=np.float64), real, found, str(known["trust"]))


def _overshoot(case: Case, x: Data) -> Piece:

    t = fg.predict_training(case.network, data=x, steps=[0, 1], width=case.width, draws=2, trust=False)
    return {"rate": t.overshoot}


def starts_of(network: Network, x: Data, width: int, inits: int, seed: int) -> Array:
    """Logits of every network before training: (networks, points, classes)."""
    import torch

    from firstguess_papers.library import build

    points = torch.from_numpy(np.array(x.x, dtype=np.float32))
    models = (build(network, x.x.shape[1:], width=width, seed=seed, member=member) for member in range(inits))
    with torch.no_grad():
        return np.array([model(points).double().numpy() for model in models])


def predicted(case: Case, x: Data, inits: int, seed: int, how: dict[str, Any], *, factor: bool) -> Piece:
    """Rows go through all networks, `FACTORS` times where each has a random factor of its own."""

    starts = starts_of(Network.parse(case.network, classes=2), x, case.width, inits, seed)
    if case.rate is None and factor:
        starts = np.tile(starts, (FACTORS, 1, 1))
    t = fg.predict_training(case.network, data=x, start=starts, seed=seed, trust=factor, **how)
    curves = {"largest": t.largest.draws} | {what: t.accuracy[what].draws for what in CURVES[1:]}
    return curves | {"trust": t.trust.word if t.trust is not None else ""}


# -- Checks


def judged(wide: Mapping[str, Pair], narrow: Mapping[str, tuple[Pair, Pair]]) -> list[Entry]:
    """B7: Adam in wide networks; the random factor in narrow ones (with it, without it)."""

    def close(what: str) -> list[Check]:
        """At every look; where they are farthest apart is what is said."""
        return [
            replace(check(f"{what}, {name.replace(',', '')}", one.offs(what), near=0.0, room=ROOM),
                    found=str(one.farthest(what)))
            for name, one in wide.items()
        ]  # fmt: skip

    drawn = {name: both for name, both in narrow.items() if both[0].trust == "with a random factor"}
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


# -- Figures


def charts(wide: Mapping[str, Pair], narrow: Mapping[str, tuple[Pair, Pair]]) -> dict[str, Any]:
    """Largest share and accuracies over steps: Adam in wide networks; narrow ones with and without a factor."""

    def line(name: str, one: Pair, what: str = "largest", *, dashed: bool = False) -> Line:
        return Line(name, one.curve(what, "trained"), one.curve(what, "predicted"), dashed)

    def every(what: str, *, dashed: bool = False) -> list[Line]:
        return [line(name, one, what, dashed=dashed) for name, one in wide.items()]

    return {
        "adam": arms_chart(
            {"Largest share": every("largest"),
             "Accuracy, favoured and other class": [*every("favoured"), *every("others", dashed=True)]},
            title="Adam, predicted and trained", columns=2,
        ),
        "factor": arms_chart(
            {name: [line("trained, and with a random factor", both[0]),
                    Line("without a factor", None, both[1].curve("largest", "predicted"))]
             for name, both in narrow.items()},
            title="Narrow networks, predicted with a random factor and without", columns=2,
        ),
    }  # fmt: skip


adam = measured(
    "beyond/adam", "Adam's early phase, and narrow networks, by tangent kernels", "theory.md §7", claims=("B7",),
    needs=("mnist",), seconds=(20, 400),
    about="{cases}. Those named with a width: gradient descent at a twentieth of the rate that overshoots, {many} "
    "networks, 200 steps; the others: Adam, {inits} networks each, 100 steps. {points} points of MNIST by parity or "
    "of two blobs in {dimension} dimensions, all of them at every step.",
    quick=dict(points=60, dimension=100, inits=12, many=24, cases=tuple(QUICK_CASES)),
    full=dict(points=300, dimension=784, inits=24, many=96, cases=tuple(CASES)),
    quantities=_pairs,
    judge=lambda c: judged(c.wide, c.narrow),
    tables=lambda c: {"curves": _rows(c.wide, c.narrow)},
    charts=lambda c: charts(c.wide, c.narrow),
    holds={
        "adam": Holds("Adam's first hundred steps follow from tangent kernels", entries=(0,)),
        "factor": Holds("In narrow networks one random factor brings the prediction nearer", (1,), ("holds",)),
    },
    notes=["Every prediction is from the logits of the very networks that are trained. The margin of 0.05 was chosen "
           "with the table of docs/training.md known, which has other widths, rates and networks."],
)  # fmt: skip
