"""IGB Fig 15: training at a large learning rate: classes hand over to each other, and from which rate on."""

from __future__ import annotations

from typing import Any

import numpy as np

from firstguess import figures
from firstguess_papers import library
from firstguess_papers.bias_mode import GAP, chosen, hand_overs
from firstguess_papers.charts import measured as measured_points
from firstguess_papers.charts import predicted as predicted_line
from firstguess_papers.igb_small_rate import HALF, LARGE, RELU, TANH, WHOLE, network_of
from firstguess_papers.image_networks import KINDS
from firstguess_papers.items import Entry, Holds
from firstguess_papers.judging import Number, Truth, above, below, entry
from firstguess_papers.measured import Found, Training, measured
from firstguess_papers.training_pieces import Arm, curve_rows, modes

FACTORS = (0.25, 0.5, 0.75, 1.0, 1.5, 1.9, 3.0)  # learning rates by 2κ/λ_b; from 2 on (4κ/λ_b) nothing is predicted
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


def judged(biased: Arm, even: Arm) -> list[Truth]:
    """I18 itself: with bias a network hands over more than once, and more often than without."""
    return [above(handed(biased), 1.0), above(handed(biased), handed(even))]


def thresholds(counts: dict[float, Number], late: dict[float, Number]) -> list[Truth]:
    """Theory's: none at half of 2κ/λ_b; at 1.5 of it there are some, and they end; beyond 4κ/λ_b they last."""
    return [
        below(counts[_BELOW], 0.5),
        above(counts[_BETWEEN], 0.5),
        below(late[_BETWEEN], 1.0),
        above(late[_BEYOND], 1.0),
    ]


BIASED_ONE, EVEN_ONE, RARE = "With bias (ReLU + max-pool)", "Without (tanh + average-pool)", "Without, 9 to 1 data"


def _cells(c: Found) -> dict[Any, Training]:
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
        for f in FACTORS
    }


def _quantities(c: Found) -> dict[str, Any]:
    arms, known = ({f: of[f"rate × {f:g}"] for f in FACTORS if f"rate × {f:g}" in of}
                   for of in (c.arms("MLP"), c.known_arms("MLP")))  # fmt: skip
    return {"cnn": list(c.cells.values())[:4], "mlps": arms, "forecasts": known}


def _cnn_entry(c: Found) -> Entry:
    biased, even, imbalanced, faster = c.cnn
    ratios = {kind: c.lr / c.modes[kind].overshoot.value for kind in KINDS}
    return entry(
        "I18",
        "CNN-A at a large rate: networks with bias (ReLU + max-pool) hand over more than once on average, and more "
        "often than without (tanh + average-pool). Without a limit: so do networks without bias on imbalanced data "
        "(9 to 1)",
        f"hand-overs in {biased.last} steps: {handed(biased)} with bias ({len(biased.diverged)} of {biased.networks} "
        f"diverged), {handed(even)} without, {handed(imbalanced)} without on imbalanced data; the rate is "
        f"{ratios[RELU]:.2g} and {ratios[TANH]:.2g} times the predicted 2κ/λ_b. Without bias on imbalanced data at as "
        f"many times its own threshold: {handed(faster)}",
        judged(biased, even),
        within=[above(handed(imbalanced), 1.0)],
        limit="imbalance alone does not do it at this rate: what decides is 2κ/λ_b, and without bias λ_b is small",
    )


def _mlp_entry(c: Found) -> Entry:
    counts = {factor: handed(arm) for factor, arm in c.mlps.items()}
    late = {factor: handed(arm, last=_LATE) for factor, arm in c.mlps.items()}
    checks = thresholds(counts, late)
    reasons = (
        f"there are hand-overs at {_BELOW:g} of the threshold already",
        f"there are hardly any at {_BETWEEN:g} of it",
        f"at {_BETWEEN:g} of it they do not end",
        "beyond 4κ/λ_b they end, too: the network leaves its kernel for a flatter place",
    )
    said = "; ".join(
        f"× {f:g}: {counts[f]}" + (f" (predicted {handed(c.forecasts[f])})" if f in c.forecasts else "")
        for f in FACTORS
    )  # fmt: skip
    return entry(
        "I18",
        f"the thresholds of theory.md (17) on an MLP: at {_BELOW:g} times 2κ/λ_b less than 0.5 hand-overs a network, "
        f"at {_BETWEEN:g} times more; without a limit these end (less than 1 in the last {_LATE} steps), and at "
        f"{_BEYOND:g} times, beyond 4κ/λ_b, they do not",
        f"2κ/λ_b = {c.unit:.3g}; hand-overs in {c.steps} steps: {said}; in the last {_LATE}: {late[_BETWEEN]} at × "
        f"{_BETWEEN:g}, {late[_BEYOND]} at × {_BEYOND:g}",
        checks[:2],
        within=checks[2:],
        limit="; ".join(text for text, check in zip(reasons, checks, strict=True) if check is False),
    )


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
            library.Series(name, arm.steps, curve.draws[k]) for name, curve in curves.items()
        ]
        own = panels[f"{arm.label}: {handed(arm).value:.1f} hand-overs a network"] = [
            library.Series(name, arm.steps, curve.mean, np.nan_to_num(curve.se)) for name, curve in curves.items()
        ]
        if kind:
            known = c.modes[kind].recalls(c.lr, arm.steps[arm.steps <= _FORESEEN])
            own += [library.Series(n, x.steps, x.mean, mark="dashed") for n, x in zip(curves, known, strict=True)]
    return figures.lines_chart(
        above_all | panels, title="A large learning rate: recall by class, with bias, without, and on imbalanced data",
        subtitle=["Above: the network with the median number of hand-overs. Below: means of "
                  f"{c.cnn[0].networks} networks ± 2 s.e.; dashed: the predicted bias mode, {_FORESEEN} steps."],
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
        series.append(library.Series(name, [at, at], [0.0, top], mark="dashed"))
    return figures.lines_chart(
        series, title="Hand-overs between classes by learning rate",
        subtitle=[f"MLP of 3 hidden layers on cats and dogs, full batches, {c.mlps[1.0].networks} biased starts a "
                  "rate. Points: trained, ± 2 s.e.; lines: predicted, below 4κ/λ_b."],
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
    cells=_cells,
    quantities=_quantities,
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
