"""IGB Fig 15: training at a large learning rate: classes hand over to each other, and from which rate on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from firstguess_papers.bias_mode import GAP, BiasModes, chosen, hand_overs
from firstguess_papers.igb_small_rate import HALF, LARGE, WHOLE, network_of
from firstguess_papers.image_networks import KINDS
from firstguess_papers.items import Entry, Outcome, item
from firstguess_papers.judging import Number, Truth, above, all_of, below, entry, stated
from firstguess_papers.running import Run
from firstguess_papers.tables import columns
from firstguess_papers.training_pieces import Arm, predicted, trained

if TYPE_CHECKING:
    from firstguess.data import Data

FACTORS = (0.25, 0.5, 0.75, 1.0, 1.5, 1.9, 3.0)  # learning rates by 2κ/λ_b; from 2 on (4κ/λ_b) nothing is predicted
_BELOW, _BETWEEN, _BEYOND = 0.5, 1.5, 3.0  # those that are judged
_NET = "3 x [dense(weight_var=2) > relu] > dense(weight_var=2)"
_ONE_IN = 10  # points of the rarer class, where classes are not even
_GROUPS = ("favoured", "others")
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


@item(
    "igb/fig15",
    "A large learning rate: classes hand over to each other",
    claims=("I18",),
    where="IGB Fig 15",
    needs=("cifar10",),
    about="{network} ({n}), weights of PyTorch's variance (1/3 by fan-in), biases 0, full batches at {lr}, {steps} "
    "steps, {networks} networks each. Model, data and rate are in no text: ours, fixed before the first run (of the "
    "half network, whose bias mode is a fifth, five times the rate). Imbalance: 9 to 1. MLP (3 hidden layers of "
    "{width}) at 0.25 to 3 times the predicted threshold, {mlp_parts} times {biased} biased starts each. Bias modes: "
    "{draws} draws.",
    quick=dict(
        network=HALF, n=40, steps=30, inits=12, parts=1, lr=5 * LARGE, draws=20, width=150, biased=12, mlp_parts=1
    ),
    full=dict(network=WHOLE, n=100, steps=40, inits=6, parts=2, lr=LARGE, draws=40, width=200, biased=20, mlp_parts=2),
    seconds=(15, 170),
)
def fig15(run: Run) -> Outcome:
    """I18: hand-overs by network with bias, without, and without on imbalanced data; and from which rate on."""
    net = network_of(run)
    n, steps, inits, parts, lr, draws = run.take("n steps inits parts lr draws")
    x = net.data(run, (n // 2, n // 2))
    rare = net.data(run, (n - n // _ONE_IN, n // _ONE_IN))
    tanh, relu = KINDS
    looks = list(range(steps + 1))
    how: dict[str, Any] = {"optimizer": "gd", "lr": lr, "steps": looks, "inits": inits, "parts": parts}
    biased = net.trained(run, relu, x, "With bias (ReLU + max-pool)", **how)
    even = net.trained(run, tanh, x, "Without (tanh + average-pool)", **how)
    imbalanced = net.trained(run, tanh, rare, "Without, 9 to 1 data", **how)
    modes = {kind: net.modes(run, kind, x, draws=draws) for kind in KINDS}
    own = lr * modes[tanh].overshoot.value / modes[relu].overshoot.value
    faster = net.trained(run, tanh, rare, f"Without, 9 to 1 data, at {own:.2g}", **(how | {"lr": own}))
    first = _cnn_entry((biased, even, imbalanced, faster), modes, lr)
    arms, forecasts, second = _mlp(run, chosen(x, (n // 2, n // 2), flat=True), steps)
    return Outcome(
        [first, second],
        {
            "curves": columns([row for arm in (biased, even, imbalanced, faster) for row in arm.rows()]),
            "rates": columns(_rows(arms, forecasts)),
        },
        {
            "recall": _curves_chart((biased, even, imbalanced), modes, lr, net.words),
            "rates": _rates_chart(arms, forecasts, second),
        },
        [
            f"A hand-over: the gap between the classes' recalls goes from above {GAP} to below −{GAP}, or back. Full "
            "batches are ours: no batch's own imbalance moves the classes.",
            f"Predicted rates from which on CNN-A hands over, 2κ/λ_b: {relu} {modes[relu].overshoot}, {tanh} "
            f"{modes[tanh].overshoot}; for ever from twice that on. The rate is {lr:g}.",
        ],
    )


def _cnn_entry(arms: Sequence[Arm], modes: dict[Any, BiasModes], lr: float) -> Entry:
    biased, even, imbalanced, faster = arms
    tanh, relu = KINDS
    ratios = {kind: lr / modes[kind].overshoot.value for kind in KINDS}
    return entry(
        "I18",
        "CNN-A at a large rate: networks with bias (ReLU + max-pool) hand over more than once on average, and more "
        "often than without (tanh + average-pool). Without a limit: so do networks without bias on imbalanced data "
        "(9 to 1)",
        f"hand-overs in {biased.last} steps: {handed(biased)} with bias ({len(biased.diverged)} of {biased.networks} "
        f"diverged), {handed(even)} without, {handed(imbalanced)} without on imbalanced data; the rate is "
        f"{ratios[relu]:.2g} and {ratios[tanh]:.2g} times the predicted 2κ/λ_b. Without bias on imbalanced data at as "
        f"many times its own threshold: {handed(faster)}",
        judged(biased, even),
        within=[above(handed(imbalanced), 1.0)],
        limit="imbalance alone does not do it at this rate: what decides is 2κ/λ_b, and without bias λ_b is small",
    )


def _mlp(run: Run, x: Data, steps: int) -> tuple[dict[float, Arm], dict[float, Arm], Entry]:
    """An MLP at multiples of its predicted threshold, trained, and predicted as far as that goes."""
    width, inits, parts = run.take("width biased mlp_parts")
    slow = predicted(run, _NET, x, label="modes", lr=1e-7, steps=[0, 1], width=width, draws=20)
    unit = float(slow.about["overshoot"])
    looks = list(range(steps + 1))
    arms: dict[float, Arm] = {}
    forecasts: dict[float, Arm] = {}
    for factor in FACTORS:
        how: dict[str, Any] = {
            "lr": factor * unit,
            "steps": looks,
            "width": width,
            "optimizer": "gd",
            "start": "biased",
        }
        arms[factor] = trained(run, _NET, x, label=f"MLP, rate × {factor:g}", inits=inits, parts=parts, **how)
        if factor < 2:
            forecasts[factor] = predicted(run, _NET, x, label=f"MLP, rate × {factor:g}", draws=100, trust=False, **how)
    counts = {factor: handed(arm) for factor, arm in arms.items()}
    late = {factor: handed(arm, last=_LATE) for factor, arm in arms.items()}
    checks = thresholds(counts, late)
    begin, some, end, for_ever = checks
    reasons = {
        f"there are hand-overs at {_BELOW:g} of the threshold already": begin,
        f"there are hardly any at {_BETWEEN:g} of it": some,
        f"at {_BETWEEN:g} of it they do not end": end,
        "beyond 4κ/λ_b they end, too: the network leaves its kernel for a flatter place": for_ever,
    }
    said = "; ".join(
        f"× {f:g}: {counts[f]}" + (f" (predicted {handed(forecasts[f])})" if f in forecasts else "")
        for f in FACTORS
    )  # fmt: skip
    found = entry(
        "I18",
        f"the thresholds of theory.md (17) on an MLP: at {_BELOW:g} times 2κ/λ_b less than 0.5 hand-overs a network, "
        f"at {_BETWEEN:g} times more; without a limit these end (less than 1 in the last {_LATE} steps), and at "
        f"{_BEYOND:g} times, beyond 4κ/λ_b, they do not",
        f"2κ/λ_b = {unit:.3g}; hand-overs in {steps} steps: {said}; in the last {_LATE}: {late[_BETWEEN]} at × "
        f"{_BETWEEN:g}, {late[_BEYOND]} at × {_BEYOND:g}",
        checks[:2],
        within=checks[2:],
        limit="; ".join(text for text, check in reasons.items() if check is False),
    )
    return arms, forecasts, found


def _rows(arms: dict[float, Arm], forecasts: dict[float, Arm]) -> list[dict[str, Any]]:
    return [
        {"source": source, "factor": factor, "hand_overs": handed(arm).value, "error": handed(arm).error}
        | {"late": handed(arm, last=_LATE).value, "networks": arm.networks, "diverged": len(arm.diverged)}
        for source, found in (("trained", arms), ("predicted", forecasts))
        for factor, arm in found.items()
    ]


def _curves_chart(arms: Sequence[Arm], modes: dict[Any, BiasModes], lr: float, words: str) -> Any:
    """One network of each arm, the one with the median number of hand-overs; below, averages and prediction."""
    from firstguess import figures
    from firstguess_papers.library import Series

    tanh, relu = KINDS
    names = ("class favoured at the start", "the other class")
    classes = ("the frequent class", "the rare class")
    panels: dict[str, list[Series]] = {}
    for arm in arms:
        counts = hand_overs(arm.curve("gap").draws)
        k = int(np.abs(counts - np.median(counts)).argmin())
        rare = arm is arms[-1]
        which = (("class 0", classes[0]), ("class 1", classes[1])) if rare else tuple(zip(_GROUPS, names, strict=True))
        panels[f"{arm.label}: one network"] = [
            Series(name, arm.steps, arm.curve(what).draws[k], mark="both") for what, name in which
        ]
    for arm, kind in zip(arms, (relu, tanh, None), strict=True):
        many = f"{arm.label}: {handed(arm).value:.1f} hand-overs a network"
        if kind is None:
            panels[many] = [_average(arm, f"class {k}", name) for k, name in enumerate(classes)]
            continue
        known = modes[kind].recalls(lr, arm.steps[arm.steps <= _FORESEEN])
        panels[many] = [_average(arm, what, name) for what, name in zip(_GROUPS, names, strict=True)]
        panels[many] += [Series(n, c.steps, c.mean, mark="dashed") for n, c in zip(names, known, strict=True)]
    return figures.lines_chart(
        panels,
        title=stated(
            all_of(judged(*arms[:2])),
            "At a large learning rate a biased network hands its images from class to class; an unbiased one does not",
            "A large learning rate: recall by class, with bias, without, and on imbalanced data",
        ),
        subtitle=[
            f"{words}, full batches at {lr:g}. Above: the network with the median number of hand-overs. Below: means "
            f"of {arms[0].networks} networks ± 2 s.e.; dashed: the predicted bias mode, {_FORESEEN} steps."
        ],
        x_title="Step of training",
        y_title="Recall",
        y_domain=(0.0, 1.0),
        percent=True,
        columns=3,
        width=330,
        height=200,
    )


def _average(arm: Arm, what: str, name: str) -> Any:
    from firstguess_papers.library import Series

    curve = arm.curve(what)
    return Series(name, curve.steps, curve.mean, np.nan_to_num(curve.se), mark="both")


def _rates_chart(arms: dict[float, Arm], forecasts: dict[float, Arm], found: Entry) -> Any:
    from firstguess import figures
    from firstguess_papers.library import Series

    def series(name: str, given: dict[float, Arm], last: int | None, mark: Any) -> Series:
        found = [handed(arm, last=last) for arm in given.values()]
        errors = [float(np.nan_to_num(v.error)) for v in found]
        return Series(name, list(given), [v.value for v in found], errors if mark == "points" else None, mark=mark)

    numbers = [handed(arm) for arm in (*arms.values(), *forecasts.values())]
    every = [0.0, max(1.0, *(v.value + 2 * float(np.nan_to_num(v.error)) for v in numbers))]
    return figures.lines_chart(
        [
            series("all steps", arms, None, "points"),
            series("all steps", forecasts, None, "line"),
            series(f"the last {_LATE} steps", arms, _LATE, "points"),
            series(f"the last {_LATE} steps", forecasts, _LATE, "line"),
            Series("2κ/λ_b: classes hand over", [1.0, 1.0], every, mark="dashed"),
            Series("4κ/λ_b: for ever", [2.0, 2.0], every, mark="dashed"),
        ],
        title=stated(
            all_of([found.verdict.startswith("holds")]),
            "Classes hand over to each other from about the learning rate that theory says",
            "Hand-overs between classes by learning rate",
        ),
        subtitle=[
            f"MLP of 3 hidden layers on cats and dogs, full batches, {next(iter(arms.values())).networks} biased "
            f"starts a rate. Points: trained, ± 2 s.e.; lines: predicted, below 4κ/λ_b."
        ],
        x_title="Learning rate by 2κ/λ_b",
        y_title=f"Hand-overs a network in {next(iter(arms.values())).last} steps",
        width=560,
        height=320,
    )
