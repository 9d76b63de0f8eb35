"""IGB in training: a small and a large learning rate (Figs 14, 15), and the window of good ones (App. I.3)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import firstguess as fg
from firstguess import figures
from firstguess_papers import image_models as networks
from firstguess_papers.charts import Line, arms_chart, by_class
from firstguess_papers.charts import measured as measured_points
from firstguess_papers.charts import predicted as predicted_line
from firstguess_papers.image_models import CNN_A, KINDS, Block, Kind
from firstguess_papers.items import Entry, Holds
from firstguess_papers.judging import Array, Check, Number, check, claimed, each
from firstguess_papers.measured import Found, Training, measured
from firstguess_papers.running import Run
from firstguess_papers.training_pieces import MEMBERS, Arm, curve_rows, modes
from firstguess_papers.training_speed import GAP, BiasModes, bias_modes, chosen, hand_overs

if TYPE_CHECKING:
    from firstguess.data import Data
    from firstguess_papers.library import Chart

SMALL, LARGE = 1e-3, 1e-1  # learning rates: ours, fixed before the first run
HALF_A = (Block(8, 5, 2, 2), Block(32, 5, 4, 4))  # half of CNN-A's channels, for quick runs on 16 × 16 pixels
LOW = 0.4  # a recall below is low: two classes at even shares have 0.5
LONG = 10.0  # steps that count as long
TORCH, KAIMING = 1 / 3, 2.0  # variance of a weight × fan-in: as PyTorch draws by default (but biases 0), and Kaiming's


@dataclass(frozen=True)
class Convolutional:
    """CNN-A on cats and dogs, or its half on shrunken images."""

    blocks: tuple[Block, ...]
    size: int  # pixels of a side
    words: str

    def data(self, run: Run, counts: tuple[int, int]) -> Data:
        """Balanced or not: `counts` cats and dogs."""
        x = chosen(run.data("cifar10:cat-dog", points=3 * max(counts) + 100), counts)
        by = 32 // self.size
        if by == 1:
            return x
        small = x.x.reshape(x.n, 3, self.size, by, self.size, by).mean(axis=(3, 5))
        return fg.data.as_data((small, x.y)).standardize("channel")

    def factory(self, kind: Kind) -> Any:
        """Makes one, with two classes."""
        return networks.cnn(self.blocks, kind, (3, self.size, self.size), 2)

    def name(self, kind: Kind) -> str:
        """With all sizes: the key of pieces."""
        return f"{kind}: " + ", ".join(f"{b.channels}c{b.kernel}p{b.pool}s{b.stride}" for b in self.blocks)

    def modes(self, run: Run, kind: Kind, x: Data, *, draws: int, weight_var: float = TORCH) -> BiasModes:
        """The bias modes of untrained ones."""
        return bias_modes(run, self.factory(kind), x, name=self.name(kind), draws=draws, weight_var=weight_var)

    def training(self, kind: Kind, x: Data, *, weight_var: float = TORCH, **options: Any) -> Training:
        """Trained one by one; biases start at 0."""
        given: dict[str, Any] = {"strategy": "loop", "init": (weight_var, 0.0), "width": None, **options}
        return Training(self.factory(kind), x, given, name=self.name(kind))


NETWORKS = {
    "half of CNN-A (8 and 32 channels) on cats and dogs of 16 × 16 pixels": (HALF_A, 16),
    "CNN-A on cats and dogs": (CNN_A, 32),
}
HALF, WHOLE = NETWORKS


def network_of(run: Run) -> Convolutional:
    """CNN-A, or for quick runs its half."""
    words = run.take("network")
    return Convolutional(*NETWORKS[words], words)


TANH, RELU = KINDS


def split(arm: Arm, step: int) -> Number:
    """How far the recall of the class favoured at the start is above the other's."""
    return arm.at("gap", step)


def judged_small(biased: Arm, even: Arm, step: int) -> list[Check]:
    """I17 itself: with bias recalls part and the other class's stays low for long, without they coincide."""
    low = f"{RELU}, steps with the other class's recall below {LOW}"
    return [
        check(f"{RELU}, gap", split(biased, step), above=GAP),
        check(low, biased.steps_to("others", LOW, least=True), above=LONG),
        check(f"{TANH}, gap", split(even, step), below=GAP),
        check(f"{TANH}, gap at the start", split(even, 0), below=GAP),
    ]


def learned_half(arm: Arm) -> Number:
    """Steps until the accuracy of a network is half-way from one half to what the arm ends with on average."""
    end = arm.at("accuracy", arm.last).value
    return arm.steps_to("accuracy", 0.5 + 0.5 * (end - 0.5), least=True)


def _cells_small(c: Found) -> dict[Any, Training]:
    net = network_of(c.run)
    x = net.data(c.run, (c.half, c.half))
    modes = {TANH: net.modes(c.run, TANH, x, draws=c.draws), RELU: net.modes(c.run, RELU, x, draws=c.draws).biased()}
    scaled = net.modes(c.run, RELU, x, draws=c.draws, weight_var=KAIMING).biased()
    other = c.lr * scaled.overshoot.value / modes[RELU].overshoot.value
    c.known |= {"modes": modes, "scaled": scaled, "other": other}
    how: dict[str, Any] = {"optimizer": "sgd", "batch": 32}
    again: dict[str, Any] = how | {"steps": c.short, "parts": c.fewer, "start": "biased"}
    return {
        RELU: net.training(RELU, x, lr=c.lr, start="biased", **how),
        TANH: net.training(TANH, x, lr=c.lr, **how),
        f"{RELU} at {c.lower:g}": net.training(RELU, x, lr=c.lower, **again),
        f"{RELU}, Kaiming": net.training(RELU, x, weight_var=KAIMING, lr=other, **again),
    }


def _quantities_small(c: Found) -> dict[str, Any]:
    biased, even, slow, kaiming = c.cells.values()
    return {
        "biased": biased, "even": even, "at": biased.near(c.modes[RELU].time_constant(c.lr)),
        "low": biased.steps_to("others", LOW, least=True), "learned": learned_half(biased),
        "slower": split(slow, slow.near(c.modes[RELU].time_constant(c.lower))),
        "kaiming": split(kaiming, kaiming.near(c.scaled.time_constant(c.other))),
    }  # fmt: skip


def _entry(c: Found) -> Entry:
    again = {f"{RELU} at {c.lower:g}, gap": c.slower, f"{RELU} with Kaiming weights at {c.other:.2g}, gap": c.kaiming}
    return claimed(
        "I17", f"CNN-A, gap of recalls one predicted time constant into training (step {c.at})",
        judged_small(c.biased, c.even, c.at),
        within=[check("steps with the other class's recall low", c.low, above=c.learned,
                      than="those to half of the accuracy"), *each(again, above=GAP)],
        limit="it does not last until half of the accuracy is there, or not at another rate or with Kaiming weights",
        also=f"gap at the start {split(c.biased, 0)} with bias",
    )  # fmt: skip


def _chart_small(c: Found) -> Chart:
    gap = "Gap of recalls, favoured − other"
    recalls = by_class({RELU: c.biased, TANH: c.even})
    for k, line in enumerate(recalls):
        foreseen = c.modes[line.label].recalls(c.lr, c.biased.steps)[line.dashed]
        recalls[k] = Line(line.label, line.trained, foreseen, line.dashed)
    return arms_chart(
        {"Recall by class": recalls, gap: [Line(arm.label, arm.curve("gap")) for arm in c.cells.values()]},
        columns=2, width=430, plain=(gap,), y_domains={gap: (-0.1, 1.0)},
    )  # fmt: skip


fig14 = measured(
    "igb/fig14", "A small learning rate: recall class by class, with bias and without", "IGB Fig 14", claims=("I17",),
    needs=("cifar10",), seconds=(20, 220),
    about="{network}, {half} of each, weights of PyTorch's variance (1/3 by fan-in), biases 0, SGD in batches of 32 at "
    "{lr}, {steps} steps, {networks} networks each, those with bias from starts whose largest share is at least 0.9. "
    "Model, data and rate are in no text: ours, fixed before the first run (of the half network, whose bias mode is a "
    "fifth, five times the rate). With bias again at {lower}, and with Kaiming weights at the same part of the rate "
    "that overshoots, {short} steps, {fewer} times {inits} networks each. Bias modes: {draws} draws.",
    quick=dict(network=HALF, half=80, steps=100, short=50, inits=12, parts=1, fewer=1, lr=5 * SMALL, lower=1.5 * SMALL,
               draws=30),
    full=dict(network=WHOLE, half=160, steps=360, short=200, inits=4, parts=4, fewer=3, lr=SMALL, lower=0.3 * SMALL,
              draws=40),
    cells=_cells_small,
    quantities=_quantities_small,
    judge=lambda c: [_entry(c)],
    tables=lambda c: {"curves": curve_rows(c.cells.values())},
    charts=lambda c: {"recall": _chart_small(c)},
    holds={"recall": "With bias one class's recall stays low for long; without, the classes go together"},
    notes=lambda c: [
        "Weights have PyTorch's variance because the predicted thresholds then lie between the two rates (with Kaiming "
        "weights 1e-3 would already overshoot); biases start at 0 because PyTorch's random ones bias both variants.",
        f"Predicted rates from which on classes hand over, 2κ/λ_b: {RELU} {c.modes[RELU].overshoot}, {TANH} "
        f"{c.modes[TANH].overshoot}, {RELU} with Kaiming weights {c.scaled.overshoot}.",
    ],
)  # fmt: skip


# learning rates by 2κ/λ_b; from 2 on (4κ/λ_b) nothing is predicted
FACTORS_LARGE = (0.25, 0.5, 0.75, 1.0, 1.5, 1.9, 3.0)
_BELOW, _BETWEEN, _BEYOND = 0.5, 1.5, 3.0  # those that are judged
_NET = "3 x [dense(weight_var=2) > relu] > dense(weight_var=2)"
_ONE_IN = 10  # points of the rarer class, where classes are not even
_FORESEEN = 4  # steps of the predicted bias mode in the figure: then it swings for ever, as it does not know better
_LATE = 10  # last steps, in which what lasts is still there


def handed(arm: Arm, *, last: int | None = None) -> Number:
    """Hand-overs of a network, on average over the arm; `last`: in so many last steps only."""
    gaps = arm.curve("gap").draws
    counts = hand_overs(gaps if last is None else gaps[:, -last - 1 :])
    return arm.number(counts)


def judged_large(biased: Arm, even: Arm) -> list[Check]:
    """I18 itself: with bias a network hands over more than once, and more often than without."""
    return [
        check("with bias", handed(biased), above=1.0),
        check("with bias", handed(biased), above=handed(even), than="without"),
    ]


def thresholds(counts: dict[float, Number], late: dict[float, Number]) -> list[Check]:
    """Theory's: none at half of 2κ/λ_b; at 1.5 of it there are some, and they end; beyond 4κ/λ_b they last."""
    return [
        check(f"× {_BELOW:g}", counts[_BELOW], below=0.5),
        check(f"× {_BETWEEN:g}", counts[_BETWEEN], above=0.5),
        check(f"× {_BETWEEN:g}, in the last {_LATE} steps", late[_BETWEEN], below=1.0),
        check(f"× {_BEYOND:g}, in the last {_LATE} steps", late[_BEYOND], above=1.0),
    ]


BIASED_ONE, EVEN_ONE, RARE = "With bias (ReLU + max-pool)", "Without (tanh + average-pool)", "Without, 9 to 1 data"


def _cells_large(c: Found) -> dict[Any, Training]:
    """The CNN with bias, without, and without on imbalanced data; an MLP at multiples of its predicted threshold."""
    net, run, n = network_of(c.run), c.run, c.n
    x, rare = (net.data(run, counts) for counts in ((n // 2, n // 2), (n - n // _ONE_IN, n // _ONE_IN)))
    bias = {kind: net.modes(run, kind, x, draws=c.draws) for kind in KINDS}
    own = c.lr * bias[TANH].overshoot.value / bias[RELU].overshoot.value
    flat = chosen(x, (n // 2, n // 2), flat=True)
    unit = float(modes(run, _NET, flat, c.width)["overshoot"])
    c.known |= {"modes": bias, "unit": unit}
    how: dict[str, Any] = {"optimizer": "gd", "steps": list(range(c.steps + 1))}
    mlp = how | {"inits": c.biased, "parts": c.mlp_parts, "start": "biased"}
    return {
        BIASED_ONE: net.training(RELU, x, lr=c.lr, **how),
        EVEN_ONE: net.training(TANH, x, lr=c.lr, **how),
        RARE: net.training(TANH, rare, lr=c.lr, **how),
        f"{RARE}, at {own:.2g}": net.training(TANH, rare, lr=own, **how),
    } | {
        ("MLP", f"rate × {f:g}"): Training(
            _NET, flat, {"lr": f * unit, **mlp}, draws=100 if f < 2 else 0, predict={"trust": False}
        )
        for f in FACTORS_LARGE
    }


def _quantities_large(c: Found) -> dict[str, Any]:
    arms, known = ({f: of[f"rate × {f:g}"] for f in FACTORS_LARGE if f"rate × {f:g}" in of}
                   for of in (c.arms("MLP"), c.known_arms("MLP")))  # fmt: skip
    return {"cnn": list(c.cells.values())[:4], "mlps": arms, "forecasts": known}


def _cnn_entry(c: Found) -> Entry:
    biased, even, imbalanced, faster = c.cnn
    ratios = {kind: c.lr / c.modes[kind].overshoot.value for kind in KINDS}
    return claimed(
        "I18", f"CNN-A at a large rate, hand-overs of a network in {biased.last} steps ({RELU} has bias, {TANH} none)",
        judged_large(biased, even),
        within=[check("without, on imbalanced data (9 to 1)", handed(imbalanced), above=1.0)],
        limit="imbalance alone does not do it at this rate: what decides is 2κ/λ_b, and without bias λ_b is small",
        also=f"{len(biased.diverged)} of {biased.networks} with bias diverged; the rate is {ratios[RELU]:.2g} and "
        f"{ratios[TANH]:.2g} times the predicted 2κ/λ_b. Without bias on imbalanced data at as many times its own "
        f"threshold: {handed(faster)}",
    )  # fmt: skip


def _mlp_entry(c: Found) -> Entry:
    late = {factor: handed(arm, last=_LATE) for factor, arm in c.mlps.items()}
    checks = thresholds({factor: handed(arm) for factor, arm in c.mlps.items()}, late)
    known = ", ".join(f"{handed(arm)} at × {f:g}" for f, arm in c.forecasts.items())
    return claimed(
        "I18", f"the thresholds of theory.md (17) on an MLP, hand-overs in {c.steps} steps at multiples of 2κ/λ_b: "
        "they begin at 1, and last for ever from 2 on",
        checks[:2], within=checks[2:],
        limit="they do not end between the thresholds, or end beyond both (the network leaves its kernel for a flatter "
        "place)",
        also=f"2κ/λ_b = {c.unit:.3g}; predicted {known}",
    )  # fmt: skip


def _curves_chart(c: Found) -> Any:
    """One network of each arm, the one with the median number of hand-overs; below, averages and prediction."""
    names = {"favoured": "class favoured at the start", "others": "the other class"}
    panels: dict[str, list[Any]] = {}
    above_all: dict[str, list[Any]] = {}
    for arm, kind in zip(c.cnn[:3], (RELU, TANH, None), strict=True):
        shown = names if kind else {"class 0": "the frequent class", "class 1": "the rare class"}
        counts = hand_overs(arm.curve("gap").draws)
        k = int(np.abs(counts - np.median(counts)).argmin())
        curves = {name: arm.curve(what) for what, name in shown.items()}
        above_all[f"{arm.label}: one network"] = [
            fg.figures.Series(name, arm.steps, curve.draws[k]) for name, curve in curves.items()
        ]
        own = panels[f"{arm.label}: {handed(arm).value:.1f} hand-overs a network"] = [
            fg.figures.Series(name, arm.steps, curve.mean, np.nan_to_num(curve.se)) for name, curve in curves.items()
        ]
        if kind:
            known = c.modes[kind].recalls(c.lr, arm.steps[arm.steps <= _FORESEEN])
            own += [fg.figures.Series(n, x.steps, x.mean, mark="dashed") for n, x in zip(curves, known, strict=True)]
    return figures.lines_chart(
        above_all | panels, title="A large learning rate: recall by class, with bias, without, and on imbalanced data",
        subtitle=["Lines above: the network with the median number of hand-overs. Below: means ± 2 s.e.; dashed: the "
                  f"predicted bias mode, {_FORESEEN} steps."],
        x_title="Step of training", y_title="Recall", y_domain=(0.0, 1.0), percent=True, width=330, height=200,
    )  # fmt: skip


def _rates_chart(c: Found) -> Any:
    series: list[Any] = []
    top = 1.0
    for name, last in (("all steps", None), (f"the last {_LATE} steps", _LATE)):
        found = {f: handed(arm, last=last) for f, arm in c.mlps.items()}
        known = {f: handed(arm, last=last).value for f, arm in c.forecasts.items()}
        fine = [Number(v.value, float(np.nan_to_num(v.error))) for v in found.values()]
        series += [measured_points(name, [*found], fine), predicted_line(name, [*known], [*known.values()])]
        top = max(top, *(v.value + 2 * v.error for v in fine), *known.values())
    for name, at in (("2κ/λ_b: classes hand over", 1.0), ("4κ/λ_b: for ever", 2.0)):
        series.append(fg.figures.Series(name, [at, at], [0.0, top], mark="dashed"))
    return figures.lines_chart(
        series, title="Hand-overs between classes by learning rate",
        subtitle=["Points: trained MLPs, ± 2 s.e.; lines: predicted, below 4κ/λ_b."],
        x_title="Learning rate by 2κ/λ_b", y_title=f"Hand-overs a network in {c.steps} steps", width=560, height=320,
    )  # fmt: skip


fig15 = measured(
    "igb/fig15", "A large learning rate: classes hand over to each other", "IGB Fig 15", claims=("I18",),
    needs=("cifar10",), seconds=(15, 170),
    about="{network} ({n}), weights of PyTorch's variance (1/3 by fan-in), biases 0, full batches at {lr}, {steps} "
    "steps, {networks} networks each. Model, data and rate are in no text: ours, fixed before the first run (of the "
    "half network, whose bias mode is a fifth, five times the rate). Imbalance: 9 to 1. MLP (3 hidden layers of "
    "{width}) at 0.25 to 3 times the predicted threshold, {mlp_parts} times {biased} biased starts each. Bias modes: "
    "{draws} draws.",
    quick=dict(network=HALF, n=40, steps=30, inits=12, parts=1, lr=5 * LARGE, draws=20, width=150, biased=12,
               mlp_parts=1),
    full=dict(network=WHOLE, n=100, steps=40, inits=6, parts=2, lr=LARGE, draws=40, width=200, biased=20, mlp_parts=2),
    cells=_cells_large,
    quantities=_quantities_large,
    judge=lambda c: [_cnn_entry(c), _mlp_entry(c)],
    tables=lambda c: {"curves": curve_rows(c.cnn), "rates": [
        {"source": source, "factor": factor, "hand_overs": handed(arm).value, "error": handed(arm).error,
         "late": handed(arm, last=_LATE).value, "networks": arm.networks, "diverged": len(arm.diverged)}
        for source, found in (("trained", c.mlps), ("predicted", c.forecasts)) for factor, arm in found.items()
    ]},
    charts=lambda c: {"recall": _curves_chart(c), "rates": _rates_chart(c)},
    holds={
        "recall": Holds("At a large learning rate a biased network hands its images from class to class; an unbiased "
                        "one does not", entries=(0,)),
        "rates": Holds("Classes hand over to each other from about the learning rate that theory says", entries=(1,)),
    },
    notes=lambda c: [
        f"A hand-over: the gap between the classes' recalls goes from above {GAP} to below −{GAP}, or back. Full "
        "batches are ours: no batch's own imbalance moves the classes.",
        f"Predicted rates from which on CNN-A hands over, 2κ/λ_b: {RELU} {c.modes[RELU].overshoot}, {TANH} "
        f"{c.modes[TANH].overshoot}; for ever from twice that on. The rate is {c.lr:g}.",
    ],
)  # fmt: skip


_RELU = "3 x [dense(weight_var=2) > relu] > dense(weight_var=2)"
_EVEN = "3 x [dense(weight_var=2) > centered(relu)] > dense(weight_var=2)"
ARMS: dict[str, tuple[str, Any]] = {
    "ReLU, biased starts": (_RELU, "biased"),
    "ReLU, even starts": (_RELU, "even"),
    "ReLU minus its mean": (_EVEN, "any"),
}
BIASED, EVEN, OTHER = ARMS
FACTORS_WINDOW = (0.01, 0.03, 0.1, 0.3, 1.0, 2.0, 4.0, 8.0, 16.0)  # learning rates by ReLU's 2κ/λ_b
GOOD = 0.9  # of the way from chance to the best rate's accuracy: rates that get there are good
CHANCE = 0.5
_ALIKE = 0.03  # of accuracy: ends that differ by less are the same
_GAP = 0.05  # of recall: the same, of the gap between classes
_RESAMPLED = 400


def window(rates: Sequence[float], scores: Array) -> float:
    """Decades of learning rates that are good: accuracies (rates,), linear in the logarithm of the rate between them.

    >>> window([0.01, 0.1, 1.0, 10.0], np.array([0.5, 1.0, 1.0, 0.5]))
    1.2
    """
    line = CHANCE + GOOD * (float(scores.max()) - CHANCE)
    at = np.log10(np.asarray(rates, dtype=float))
    total = 0.0
    for k in range(len(at) - 1):
        a, b = float(scores[k]) - line, float(scores[k + 1]) - line
        part = 1.0 if a >= 0 and b >= 0 else 0.0 if a < 0 and b < 0 else max(a, b) / abs(a - b)
        total += part * (at[k + 1] - at[k])
    return round(float(total), 12)


def window_of(arms: Mapping[float, Arm], unit: float, step: int) -> Number:
    """The window of the networks' mean accuracy on held-out points; its error from resampled networks.

    A network that has diverged guesses: it counts with chance.
    """
    each = np.array([np.nan_to_num(arm.values("test accuracy", step), nan=CHANCE) for arm in arms.values()])
    rates = [factor * unit for factor in arms]
    value = window(rates, each.mean(axis=1))
    networks = each.shape[1]
    if next(iter(arms.values())).real and networks < MEMBERS:
        return Number(value, math.nan)
    rng = np.random.default_rng(26)
    found = [window(rates, each[:, rng.integers(networks, size=networks)].mean(axis=1)) for _ in range(_RESAMPLED)]
    return Number(value, float(np.std(found, ddof=1)))


def best(arms: Mapping[float, Arm]) -> float:
    """The rate at which held-out accuracy ends highest on average."""
    return max(arms, key=lambda f: float(np.nan_to_num(arms[f].values("test accuracy", arms[f].last), nan=0.5).mean()))


def ends(biased: Mapping[float, Arm], even: Mapping[float, Arm]) -> list[Check]:
    """I25: held-out accuracy and the gap between classes at the end, each at its own best rate."""
    one, two = biased[best(biased)], even[best(even)]
    return [
        check(f"{what} from biased starts", one.at(what, one.last), near=two.at(what, two.last), room=room,
              than="that from even ones")
        for what, room in (("test accuracy", _ALIKE), ("test gap", _GAP))
    ]  # fmt: skip


def narrower(widths: Mapping[str, Number], when: str = "at the end") -> list[Check]:
    """I26: narrower with bias than in the network without; and than in the same network from even starts."""
    return [check(f"{BIASED}, {when}", widths[BIASED], below=widths[name], than=name) for name in (OTHER, EVEN)]


def _cells_window(c: Found) -> dict[Any, Training]:
    """Every arm at every rate; predicted below the rate from which on its bias swings for ever."""
    n, held = c.n // 2, c.held // 2
    whole = c.run.data("mnist:even-odd", points=4 * (n + held), standardize="centre")
    x = chosen(whole, (n, n), flat=True)
    test = chosen(whole, (held, held), skip=(n, n), flat=True)
    unit = float(modes(c.run, _RELU, x, c.width)["overshoot"])
    looks = sorted({0, *(round(c.steps * part) for part in (0.1, 0.25, 0.5, 0.75, 1.0))})
    limits = {name: float(modes(c.run, net, x, c.width, label=f"{name}, modes")["lr_limit"])
              for name, (net, _) in ARMS.items()}  # fmt: skip
    c.known |= {"unit": unit, "limits": limits, "sooner": looks[-3]}
    return {
        (name, factor): Training(
            net, x, {"lr": factor * unit, "steps": looks, "start": start, "optimizer": "gd"}, test=test,
            draws=c.draws if factor * unit < limits[name] else 0, predict={"trust": False, "optimizer": None},
        )
        for name, (net, start) in ARMS.items() for factor in FACTORS_WINDOW
    }  # fmt: skip


def _quantities_window(c: Found) -> dict[str, Any]:
    arms, known = ({name: of(name) for name in ARMS} for of in (c.arms, c.known_arms))
    early, late = ({name: window_of(found, c.unit, k) for name, found in arms.items()} for k in (c.sooner, c.steps))
    return {"rates": arms, "forecasts": known, "widths": late, "early": early}


def _judge(c: Found) -> list[Entry]:
    alike, no_gap = ends(c.rates[BIASED], c.rates[EVEN])
    narrow, start_matters = narrower(c.widths)
    return [
        claimed(
            "I25", "held out, at the end, at the best rate of starts of one network", [alike], within=[no_gap],
            limit="a gap between the classes stays on held-out points",
        ),
        claimed(
            "I26", f"the window, in decades: rates that end within {GOOD:.0%} of the way from chance to the best",
            [narrow], within=[start_matters, narrower(c.early, f"after {c.sooner} steps")[0]],
            limit="it belongs to the network, not to its start, or is no narrower earlier",
            also=f"after {c.sooner} steps: " + ", ".join(f"{n} {c.early[n]}" for n in ARMS),
        ),
    ]  # fmt: skip


def _chart_window(c: Found) -> Any:
    series: list[Any] = []
    for name, found in c.rates.items():
        label = f"{name} (window {c.widths[name].value:.1f} decades)"
        each = [np.nan_to_num(arm.values("test accuracy", c.steps), nan=CHANCE) for arm in found.values()]
        errors = [float(v.std(ddof=1) / math.sqrt(len(v))) for v in each]
        known = {factor: arm.at("test accuracy", c.steps).value for factor, arm in c.forecasts[name].items()}
        series.append(fg.figures.Series(label, [*found], [float(v.mean()) for v in each], errors, mark="points"))
        series.append(fg.figures.Series(label, [*known], [*known.values()], mark="line"))
    for name, words in ((BIASED, "4κ/λ_b: swings for ever"), (OTHER, "4κ/λ_b")):
        series.append(fg.figures.Series(f"{name}, {words}", [c.limits[name] / c.unit] * 2, [0.0, 1.0], mark="dashed"))
    return figures.lines_chart(
        series, title="Accuracy at the end by learning rate, with bias and without",
        subtitle=["Points: trained, ± 2 s.e. Lines: predicted by the tangent kernel, up to 4κ/λ_b."],
        x_title="Learning rate by ReLU's 2κ/λ_b", y_title="Held-out accuracy", x_scale="log", y_domain=(0.0, 1.0),
        percent=True, dodge=True, width=620, height=340,
    )  # fmt: skip


rates = measured(
    "igb/window", "Where training ends, and the window of good learning rates", "IGB App. I.3", claims=("I25", "I26"),
    needs=("mnist",), seconds=(15, 200),
    about="3 hidden layers of {width} on {n} MNIST images, even or odd, each pixel centred; full batches, {steps} "
    "steps, 9 rates; {networks} networks an arm, {draws} predicted; {held} held-out images. Network, data and rates "
    "are in no text: ours.",
    quick=dict(n=60, held=200, width=60, steps=60, inits=10, parts=1, draws=40),
    full=dict(n=100, held=400, width=100, steps=200, inits=12, parts=2, draws=100),
    cells=_cells_window,
    quantities=_quantities_window,
    judge=_judge,
    tables=lambda c: {"ends": [
        {"arm": name, "source": source, "factor": factor, "networks": arm.networks, "diverged": len(arm.diverged)}
        | {what.replace(" ", "_"): arm.at(what, c.steps).value for what in ("test accuracy", "test gap", "accuracy")}
        | {"error": arm.at("test accuracy", c.steps).error}
        for source, given in (("trained", c.rates), ("predicted", c.forecasts))
        for name, found in given.items() for factor, arm in found.items()
    ]},
    charts=lambda c: {"window": _chart_window(c)},
    holds={"window": Holds("With bias fewer learning rates are good than with ReLU minus its mean", entries=(1,))},
    notes=lambda c: [
        "Predicted: rates from which on the bias swings for ever, 4κ/λ_b: "
        + ", ".join(f"{name} {value:.3g}" for name, value in c.limits.items())
        + f"; rates in the figure are by 2κ/λ_b = {c.unit:.3g} of ReLU.",
        "A rate that is too low only needs more steps: the window is that of a given number of steps.",
    ],
)  # fmt: skip
