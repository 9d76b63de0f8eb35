"""IGB in training: a small and a large learning rate (Figs 14, 15), and the window of good ones (App. I.3)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

import firstguess as fg
from firstguess.data import Data
from firstguess_papers import charts
from firstguess_papers import image_models as networks
from firstguess_papers.charts import Line, arms_chart, by_class
from firstguess_papers.image_models import CNN_A, KINDS, Block, Kind
from firstguess_papers.items import Holds, Item
from firstguess_papers.judging import Array, Check, Number, check, claimed, each
from firstguess_papers.measured import Found, Training
from firstguess_papers.training_pieces import (
    GAP,
    MEMBERS,
    Arm,
    BiasModes,
    bias_modes,
    chosen,
    curve_rows,
    hand_overs,
    modes,
)

TANH, RELU = KINDS
SMALL, LARGE = 1e-3, 1e-1  # learning rates: ours, fixed before the first run
LOW = 0.4  # a recall below is low: two classes at even shares have 0.5
LONG = 10.0  # steps that count as long
TORCH, KAIMING = 1 / 3, 2.0  # variance of a weight × fan-in: as PyTorch draws by default (but biases 0), and Kaiming's
NETWORKS = {  # blocks, and pixels of a side; half of CNN-A's channels for quick runs
    "half of CNN-A (8 and 32 channels) on cats and dogs of 16 × 16 pixels": (
        (Block(8, 5, 2, 2), Block(32, 5, 4, 4)), 16),
    "CNN-A on cats and dogs": (CNN_A, 32),
}  # fmt: skip
HALF, WHOLE = NETWORKS


def _images(c: Found, *counts: int) -> Data:
    """So many cats and dogs, shrunken for the half network."""
    x = chosen(c.run.data("cifar10:cat-dog", points=3 * max(counts) + 100), counts)
    side = NETWORKS[c.network][1]
    if side == 32:
        return x
    small = x.x.reshape(x.n, 3, side, 32 // side, side, 32 // side).mean(axis=(3, 5))
    return fg.data.as_data((small, x.y)).standardize("channel")


def _cnn(c: Found, kind: Kind) -> tuple[Any, str]:
    """What makes one, with two classes; and its name with all sizes, the key of pieces."""
    blocks, side = NETWORKS[c.network]
    sizes = ", ".join(f"{b.channels}c{b.kernel}p{b.pool}s{b.stride}" for b in blocks)
    return networks.cnn(blocks, kind, (3, side, side), 2), f"{kind}: {sizes}"


def _modes(c: Found, kind: Kind, x: Data, weight_var: float = TORCH) -> BiasModes:
    make, name = _cnn(c, kind)
    return bias_modes(c.run, make, x, name=name, draws=c.draws, weight_var=weight_var)


def _training(c: Found, kind: Kind, x: Data, weight_var: float = TORCH, **options: Any) -> Training:
    """Trained one by one; biases start at 0."""
    make, name = _cnn(c, kind)
    return Training(make, x, {"strategy": "loop", "init": (weight_var, 0.0), "width": None, **options}, name=name)


def _cells_small(c: Found) -> dict[Any, Training]:
    x = _images(c, c.half, c.half)
    bias = {TANH: _modes(c, TANH, x), RELU: _modes(c, RELU, x).biased()}
    scaled = _modes(c, RELU, x, KAIMING).biased()
    other = c.lr * scaled.overshoot.value / bias[RELU].overshoot.value
    c.known |= {"modes": bias, "scaled": scaled, "other": other}
    how: dict[str, Any] = {"optimizer": "sgd", "batch": 32}
    again: dict[str, Any] = how | {"steps": c.short, "parts": c.fewer, "start": "biased"}
    return {
        RELU: _training(c, RELU, x, lr=c.lr, start="biased", **how),
        TANH: _training(c, TANH, x, lr=c.lr, **how),
        f"{RELU} at {c.lower:g}": _training(c, RELU, x, lr=c.lower, **again),
        f"{RELU}, Kaiming": _training(c, RELU, x, KAIMING, lr=other, **again),
    }


def _quantities_small(c: Found) -> dict[str, Any]:
    """Arms; one predicted time constant into each; steps to half of the way to the accuracy that one ends with."""
    biased, even, slow, kaiming = c.cells.values()
    end = biased.at("accuracy", biased.last).value
    return {
        "biased": biased, "even": even, "at": biased.near(c.modes[RELU].time_constant(c.lr)),
        "learned": biased.steps_to("accuracy", 0.5 + 0.5 * (end - 0.5), least=True),
        "again": {
            f"{RELU} at {c.lower:g}, gap": slow.at("gap", slow.near(c.modes[RELU].time_constant(c.lower))),
            f"{RELU} with Kaiming weights at {c.other:.2g}, gap": kaiming.at(
                "gap", kaiming.near(c.scaled.time_constant(c.other))),
        },
    }  # fmt: skip


fig14 = Item(
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
    cells=_cells_small, quantities=_quantities_small,
    judge=lambda c: [claimed(
        "I17", f"CNN-A, gap of recalls one predicted time constant into training (step {c.at})",
        [check(f"{RELU}, gap", c.biased.at("gap", c.at), above=GAP),
         check(f"{RELU}, steps with the other class's recall below {LOW}",
               c.biased.steps_to("others", LOW, least=True), above=LONG),
         check(f"{TANH}, gap", c.even.at("gap", c.at), below=GAP),
         check(f"{TANH}, gap at the start", c.even.at("gap", 0), below=GAP)],
        within=[check("steps with the other class's recall low", c.biased.steps_to("others", LOW, least=True),
                      above=c.learned, than="those to half of the accuracy"), *each(c.again, above=GAP)],
        limit="it does not last until half of the accuracy is there, or not at another rate or with Kaiming weights",
        also=f"gap at the start {c.biased.at('gap', 0)} with bias",
    )],
    tables=lambda c: {"curves": curve_rows(c.cells.values())},
    charts=lambda c: {"recall": arms_chart(
        {"Recall by class": [
            Line(one.label, one.trained, c.modes[one.label].recalls(c.lr, c.biased.steps)[one.dashed], one.dashed)
            for one in by_class({RELU: c.biased, TANH: c.even})],
         "Gap of recalls, favoured − other": [Line(arm.label, arm.curve("gap")) for arm in c.cells.values()]},
        columns=2, width=430, plain=("Gap of recalls, favoured − other",),
        y_domains={"Gap of recalls, favoured − other": (-0.1, 1.0)},
    )},
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
_NET = "3 x [dense(weight_var=2) > relu] > dense(weight_var=2)"
_ONE_IN = 10  # points of the rarer class, where classes are not even
_FORESEEN = 4  # steps of the predicted bias mode in the figure: then it swings for ever, as it does not know better
_LATE = 10  # last steps, in which what lasts is still there


def handed(arm: Arm, last: int | None = None) -> Number:
    """Hand-overs of a network, on average over the arm; `last`: in so many last steps only."""
    gaps = arm.curve("gap").draws
    return arm.number(hand_overs(gaps if last is None else gaps[:, -last - 1 :]))


BIASED_ONE, EVEN_ONE, RARE = "With bias (ReLU + max-pool)", "Without (tanh + average-pool)", "Without, 9 to 1 data"


def _cells_large(c: Found) -> dict[Any, Training]:
    """The CNN with bias, without, and without on imbalanced data; an MLP at multiples of its predicted threshold."""
    n = c.n
    x, rare = _images(c, n // 2, n // 2), _images(c, n - n // _ONE_IN, n // _ONE_IN)
    bias = {kind: _modes(c, kind, x) for kind in KINDS}
    own = c.lr * bias[TANH].overshoot.value / bias[RELU].overshoot.value
    flat = chosen(x, (n // 2, n // 2), flat=True)
    unit = float(modes(c.run, _NET, flat, c.width)["overshoot"])
    c.known |= {"modes": bias, "unit": unit}
    how: dict[str, Any] = {"optimizer": "gd", "steps": list(range(c.steps + 1))}
    mlp = how | {"inits": c.biased, "parts": c.mlp_parts, "start": "biased"}
    return {
        BIASED_ONE: _training(c, RELU, x, lr=c.lr, **how),
        EVEN_ONE: _training(c, TANH, x, lr=c.lr, **how),
        RARE: _training(c, TANH, rare, lr=c.lr, **how),
        f"{RARE}, at {own:.2g}": _training(c, TANH, rare, lr=own, **how),
    } | {
        ("MLP", f"rate × {f:g}"): Training(
            _NET, flat, {"lr": f * unit, **mlp}, draws=100 if f < 2 else 0, predict={"trust": False}
        )
        for f in FACTORS_LARGE
    }


def _quantities_large(c: Found) -> dict[str, Any]:
    """Arms; hand-overs by source and factor in all steps, and in the last."""
    arms, known = ({f: of[f"rate × {f:g}"] for f in FACTORS_LARGE if f"rate × {f:g}" in of}
                   for of in (c.arms("MLP"), c.known_arms("MLP")))  # fmt: skip
    return {
        "cnn": list(c.cells.values())[:4], "mlps": {"trained": arms, "predicted": known},
        "ratios": {kind: c.lr / c.modes[kind].overshoot.value for kind in KINDS},
        "counts": {source: {f: handed(arm) for f, arm in of.items()}
                   for source, of in (("trained", arms), ("predicted", known))},
        "late": {source: {f: handed(arm, _LATE) for f, arm in of.items()}
                 for source, of in (("trained", arms), ("predicted", known))},
    }  # fmt: skip


def _curves_chart(c: Found) -> Any:
    """One network of each arm, the one with the median number of hand-overs; below, averages and prediction."""
    panels: dict[str, list[Any]] = {}
    above_all: dict[str, list[Any]] = {}
    for arm, kind in zip(c.cnn[:3], (RELU, TANH, None), strict=True):
        names = {"favoured": "class favoured at the start", "others": "the other class"}
        names = names if kind else {"class 0": "the frequent class", "class 1": "the rare class"}
        counts = hand_overs(arm.curve("gap").draws)
        k = int(np.abs(counts - np.median(counts)).argmin())
        curves = {name: arm.curve(what) for what, name in names.items()}
        above_all[f"{arm.label}: one network"] = [
            fg.figures.Series(name, arm.steps, x.draws[k]) for name, x in curves.items()
        ]
        own = panels[f"{arm.label}: {handed(arm).value:.1f} hand-overs a network"] = [
            fg.figures.Series(name, arm.steps, x.mean, np.nan_to_num(x.se)) for name, x in curves.items()
        ]
        if kind:
            known = c.modes[kind].recalls(c.lr, arm.steps[arm.steps <= _FORESEEN])
            own += [
                fg.figures.Series(name, x.steps, x.mean, mark="dashed") for name, x in zip(curves, known, strict=True)
            ]
    return fg.figures.lines_chart(
        above_all | panels, title="A large learning rate: recall by class, with bias, without, and on imbalanced data",
        subtitle=["Lines above: the network with the median number of hand-overs. Below: means ± 2 s.e.; dashed: the "
                  f"predicted bias mode, {_FORESEEN} steps."],
        x_title="Step of training", y_title="Recall", y_domain=(0.0, 1.0), percent=True, width=330, height=200,
    )  # fmt: skip


def _rates_chart(c: Found) -> Any:
    series: list[Any] = []
    top = 1.0
    for name, of in (("all steps", c.counts), (f"the last {_LATE} steps", c.late)):
        known = {f: v.value for f, v in of["predicted"].items()}
        fine = {f: Number(v.value, float(np.nan_to_num(v.error))) for f, v in of["trained"].items()}
        series += [charts.points(name, fine), charts.predicted(name, [*known], [*known.values()])]
        top = max(top, *(v.value + 2 * v.error for v in fine.values()), *known.values())
    for name, at in (("2κ/λ_b: classes hand over", 1.0), ("4κ/λ_b: for ever", 2.0)):
        series.append(fg.figures.Series(name, [at, at], [0.0, top], mark="dashed"))
    return fg.figures.lines_chart(
        series, title="Hand-overs between classes by learning rate",
        subtitle=["Points: trained MLPs, ± 2 s.e.; lines: predicted, below 4κ/λ_b."],
        x_title="Learning rate by 2κ/λ_b", y_title=f"Hand-overs a network in {c.steps} steps", width=560, height=320,
    )  # fmt: skip


fig15 = Item(
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
    cells=_cells_large, quantities=_quantities_large,
    judge=lambda c: [
        claimed(
            "I18", f"CNN-A at a large rate, hand-overs of a network in {c.cnn[0].last} steps ({RELU} has bias, {TANH} "
            "none)",
            [check("with bias", handed(c.cnn[0]), above=1.0),
             check("with bias", handed(c.cnn[0]), above=handed(c.cnn[1]), than="without")],
            within=[check("without, on imbalanced data (9 to 1)", handed(c.cnn[2]), above=1.0)],
            limit="imbalance alone does not do it at this rate: what decides is 2κ/λ_b, and without bias λ_b is small",
            also=f"{len(c.cnn[0].diverged)} of {c.cnn[0].networks} with bias diverged; the rate is "
            f"{c.ratios[RELU]:.2g} and {c.ratios[TANH]:.2g} times the predicted 2κ/λ_b. Without bias on imbalanced "
            f"data at as many times its own threshold: {handed(c.cnn[3])}",
        ),
        claimed(
            "I18", f"the thresholds of theory.md (17) on an MLP, hand-overs in {c.steps} steps at multiples of 2κ/λ_b: "
            "they begin at 1, and last for ever from 2 on",
            [check("× 0.5", c.counts["trained"][0.5], below=0.5), check("× 1.5", c.counts["trained"][1.5], above=0.5)],
            within=[check(f"× 1.5, in the last {_LATE} steps", c.late["trained"][1.5], below=1.0),
                    check(f"× 3, in the last {_LATE} steps", c.late["trained"][3.0], above=1.0)],
            limit="they do not end between the thresholds, or end beyond both (the network leaves its kernel for a "
            "flatter place)",
            also=f"2κ/λ_b = {c.unit:.3g}; predicted "
            + ", ".join(f"{found} at × {f:g}" for f, found in c.counts["predicted"].items()),
        ),
    ],
    tables=lambda c: {"curves": curve_rows(c.cnn), "rates": [
        {"source": source, "factor": factor, "hand_overs": c.counts[source][factor].value,
         "error": c.counts[source][factor].error, "late": c.late[source][factor].value, "networks": arm.networks,
         "diverged": len(arm.diverged)} for source, found in c.mlps.items() for factor, arm in found.items()
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


ARMS: dict[str, tuple[str, Any]] = {
    "ReLU, biased starts": (_NET, "biased"),
    "ReLU, even starts": (_NET, "even"),
    "ReLU minus its mean": (_NET.replace("relu", "centered(relu)"), "any"),
}
BIASED, EVEN, OTHER = ARMS
FACTORS_WINDOW = (0.01, 0.03, 0.1, 0.3, 1.0, 2.0, 4.0, 8.0, 16.0)  # learning rates by ReLU's 2κ/λ_b
GOOD = 0.9  # of the way from chance to the best rate's accuracy: rates that get there are good
CHANCE = 0.5
LEAST = 0.05  # decades, of a window: an eighth of a rate; stated before sampling goes on


def window(rates: Sequence[float], scores: Array) -> float:
    """Decades of learning rates that are good: accuracies (rates,), linear in the logarithm of the rate between them.

    >>> window([0.01, 0.1, 1.0, 10.0], np.array([0.5, 1.0, 1.0, 0.5]))
    1.2
    """
    above = scores - (CHANCE + GOOD * (float(scores.max()) - CHANCE))
    at = np.log10(np.asarray(rates, dtype=float))
    total = 0.0
    for k, (a, b) in enumerate(pairwise(above)):
        part = 1.0 if a >= 0 and b >= 0 else 0.0 if a < 0 and b < 0 else max(a, b) / abs(a - b)
        total += part * (at[k + 1] - at[k])
    return round(float(total), 12)


def _held_out(arm: Arm, step: int) -> Array:
    """Accuracies of networks on held-out points; one that has diverged guesses: it counts with chance."""
    return np.nan_to_num(arm.values("test accuracy", step), nan=CHANCE)


def window_of(arms: Mapping[float, Arm], unit: float, step: int) -> Number:
    """The window of the networks' mean accuracy on held-out points; its error from 400 times resampled networks."""
    each = np.array([_held_out(arm, step) for arm in arms.values()])
    rates = [factor * unit for factor in arms]
    value = window(rates, each.mean(axis=1))
    networks = each.shape[1]
    if next(iter(arms.values())).real and networks < MEMBERS:
        return Number(value, math.nan)
    rng = np.random.default_rng(26)
    found = [window(rates, each[:, rng.integers(networks, size=networks)].mean(axis=1)) for _ in range(400)]
    return Number(value, float(np.std(found, ddof=1)))


def best(arms: Mapping[float, Arm]) -> float:
    """The rate at which held-out accuracy ends highest on average."""
    return max(arms, key=lambda f: float(_held_out(arms[f], arms[f].last).mean()))


def _end(c: Found, what: str, room: float) -> Check:
    """At the end, from biased and from even starts, each at its own best rate."""
    one, two = (c.rates[name][best(c.rates[name])] for name in (BIASED, EVEN))
    return check(f"{what} from biased starts", one.at(what, one.last), near=two.at(what, two.last), room=room,
                 than="that from even ones")  # fmt: skip


def _cells_window(c: Found) -> dict[Any, Training]:
    """Every arm at every rate; predicted below the rate from which on its bias swings for ever."""
    n, held = c.n // 2, c.held // 2
    whole = c.run.data("mnist:even-odd", points=4 * (n + held), standardize="centre")
    x = chosen(whole, (n, n), flat=True)
    test = chosen(whole, (held, held), skip=(n, n), flat=True)
    unit = float(modes(c.run, _NET, x, c.width)["overshoot"])
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


def _window_series(c: Found) -> list[fg.figures.Series]:
    series: list[fg.figures.Series] = []
    for name, found in c.rates.items():
        label = f"{name} (window {c.widths[name].value:.1f} decades)"
        each = {f: _held_out(arm, c.steps) for f, arm in found.items()}
        known = {f: arm.at("test accuracy", c.steps).value for f, arm in c.forecasts[name].items()}
        series.append(charts.points(label, {
            f: Number(float(v.mean()), float(v.std(ddof=1) / math.sqrt(len(v)))) for f, v in each.items()
        }))  # fmt: skip
        series.append(charts.predicted(label, [*known], [*known.values()]))
    for name, words in ((BIASED, "4κ/λ_b: swings for ever"), (OTHER, "4κ/λ_b")):
        series.append(fg.figures.Series(f"{name}, {words}", [c.limits[name] / c.unit] * 2, [0.0, 1.0], mark="dashed"))
    return series


rates = Item(
    "igb/window", "Where training ends, and the window of good learning rates", "IGB App. I.3", claims=("I25", "I26"),
    needs=("mnist",), seconds=(15, 200),
    about="3 hidden layers of {width} on {n} MNIST images, even or odd, each pixel centred; full batches, {steps} "
    "steps, 9 rates; {networks} networks an arm, {draws} predicted; {held} held-out images. Network, data and rates "
    "are in no text: ours.",
    quick=dict(n=60, held=200, width=60, steps=60, inits=10, parts=1, draws=40),
    full=dict(n=100, held=400, width=100, steps=200, inits=12, parts=2, draws=100),
    cells=_cells_window, quantities=_quantities_window,
    judge=lambda c: [
        claimed(
            "I25", "held out, at the end, at the best rate of starts of one network", [_end(c, "test accuracy", 0.03)],
            within=[_end(c, "test gap", 0.05)], limit="a gap between the classes stays on held-out points",
        ),
        claimed(
            "I26", f"the window, in decades: rates that end within {GOOD:.0%} of the way from chance to the best",
            [check(f"{BIASED}, at the end", c.widths[BIASED], below=c.widths[OTHER], than=OTHER, least=LEAST)],
            within=[check(f"{BIASED}, at the end", c.widths[BIASED], below=c.widths[EVEN], than=EVEN, least=LEAST),
                    check(f"{BIASED}, after {c.sooner} steps", c.early[BIASED], below=c.early[OTHER], than=OTHER,
                          least=LEAST)],
            limit="it belongs to the network, not to its start, or is no narrower earlier",
            also=f"after {c.sooner} steps: " + ", ".join(f"{n} {c.early[n]}" for n in ARMS),
        ),
    ],
    tables=lambda c: {"ends": [
        {"arm": name, "source": source, "factor": factor, "networks": arm.networks, "diverged": len(arm.diverged)}
        | {what.replace(" ", "_"): arm.at(what, c.steps).value for what in ("test accuracy", "test gap", "accuracy")}
        | {"error": arm.at("test accuracy", c.steps).error}
        for source, given in (("trained", c.rates), ("predicted", c.forecasts))
        for name, found in given.items() for factor, arm in found.items()
    ]},
    charts=lambda c: {"window": fg.figures.lines_chart(
        _window_series(c), title="Accuracy at the end by learning rate, with bias and without",
        subtitle=["Points: trained, ± 2 s.e. Lines: predicted by the tangent kernel, up to 4κ/λ_b."],
        x_title="Learning rate by ReLU's 2κ/λ_b", y_title="Held-out accuracy", x_scale="log", y_domain=(0.0, 1.0),
        percent=True, dodge=True, width=620, height=340,
    )},
    holds={"window": Holds("With bias fewer learning rates are good than with ReLU minus its mean", entries=(1,))},
    notes=lambda c: [
        "Predicted: rates from which on the bias swings for ever, 4κ/λ_b: "
        + ", ".join(f"{name} {value:.3g}" for name, value in c.limits.items())
        + f"; rates in the figure are by 2κ/λ_b = {c.unit:.3g} of ReLU.",
        "A rate that is too low only needs more steps: the window is that of a given number of steps.",
    ],
)  # fmt: skip
