"""IGB I.3: where training ends with bias and without, and how wide the window of good learning rates is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firstguess_papers.bias_mode import chosen
from firstguess_papers.items import Outcome, item
from firstguess_papers.judging import Number, Truth, above, entry, same, stated
from firstguess_papers.running import Run
from firstguess_papers.tables import columns
from firstguess_papers.training_pieces import MEMBERS, Arm, predicted, trained

Array = NDArray[np.float64]
_RELU = "3 x [dense(weight_var=2) > relu] > dense(weight_var=2)"
_EVEN = "3 x [dense(weight_var=2) > centered(relu)] > dense(weight_var=2)"
ARMS: dict[str, tuple[str, Any]] = {
    "ReLU, biased starts": (_RELU, "biased"),
    "ReLU, even starts": (_RELU, "even"),
    "ReLU minus its mean": (_EVEN, "any"),
}
FACTORS = (0.01, 0.03, 0.1, 0.3, 1.0, 2.0, 4.0, 8.0, 16.0)  # learning rates by ReLU's 2κ/λ_b
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


def ends(
    biased: Mapping[float, Arm], even: Mapping[float, Arm]
) -> tuple[dict[str, tuple[Number, Number]], list[Truth]]:
    """I25: held-out accuracy and the gap between classes at the end, each at its own best rate; whether they agree."""
    one, two = biased[best(biased)], even[best(even)]
    found = {what: (one.at(what, one.last), two.at(what, two.last)) for what in ("test accuracy", "test gap")}
    return found, [same(*found["test accuracy"], room=_ALIKE), same(*found["test gap"], room=_GAP)]


def narrower(widths: Mapping[str, Number]) -> list[Truth]:
    """I26: narrower with bias than in the network without; and than in the same network from even starts."""
    biased, even, other = (widths[name] for name in ARMS)
    return [above(other, biased), above(even, biased)]


@item(
    "igb/window",
    "Where training ends, and the window of good learning rates",
    claims=("I25", "I26"),
    where="IGB App. I.3",
    needs=("mnist",),
    about="3 hidden layers of {width} on {n} MNIST images, even or odd, each pixel centred; full batches, {steps} "
    "steps, 9 rates; {networks} networks an arm, {draws} predicted; {held} held-out images. Network, data and rates "
    "are in no text: ours.",
    quick=dict(n=60, held=200, width=60, steps=60, inits=10, parts=1, draws=40),
    full=dict(n=100, held=400, width=100, steps=200, inits=12, parts=2, draws=100),
    seconds=(15, 200),
)
def rates(run: Run) -> Outcome:
    """I25, I26: held-out accuracy at the end by learning rate, for biased and even starts and without bias."""
    n, held, width, steps, inits, parts, draws = run.take("n held width steps inits parts draws")
    whole = run.data("mnist:even-odd", points=2 * (n + held), standardize="centre")
    x = chosen(whole, (n // 2, n // 2), flat=True)
    test = chosen(whole, (held // 2, held // 2), skip=(n // 2, n // 2), flat=True)
    first = predicted(run, _RELU, x, label="modes", lr=1e-7, steps=[0, 1], width=width, draws=20)
    unit = float(first.about["overshoot"])
    looks = sorted({0, *(round(steps * part) for part in (0.1, 0.25, 0.5, 0.75, 1.0))})
    arms: dict[str, dict[float, Arm]] = {}
    forecasts: dict[str, dict[float, Arm]] = {}
    limits: dict[str, float] = {}
    for name, (net, start) in ARMS.items():
        about = predicted(run, net, x, label=f"{name}, modes", lr=1e-7, steps=[0, 1], width=width, draws=20).about
        limits[name] = float(about["lr_limit"])
        arms[name], forecasts[name] = {}, {}
        for factor in FACTORS:
            how: dict[str, Any] = {"lr": factor * unit, "steps": looks, "width": width, "start": start}
            label = f"{name}, rate × {factor:g}"
            arms[name][factor] = trained(
                run, net, x, label=label, test=test, inits=inits, parts=parts, optimizer="gd", **how
            )
            if factor * unit < limits[name]:
                forecasts[name][factor] = predicted(
                    run, net, x, label=label, test=test, draws=draws, trust=False, **how
                )
    widths = {name: window_of(found, unit, steps) for name, found in arms.items()}
    sooner = {name: window_of(found, unit, looks[-3]) for name, found in arms.items()}
    biased, even, _ = ARMS
    numbers, (alike, no_gap) = ends(arms[biased], arms[even])
    narrow, start_matters = narrower(widths)
    earlier = narrower(sooner)[0]
    limit26 = "; ".join(
        text
        for text, check in {
            "of the same network, even starts have no wider window: it belongs to the network, not to its start":
            start_matters,
            f"after {looks[-3]} steps it is not narrower": earlier,
        }.items()
        if check is False
    )  # fmt: skip
    said = "; ".join(f"{name}: {widths[name]} decades (after {looks[-3]} steps {sooner[name]})" for name in ARMS)
    return Outcome(
        [
            entry(
                "I25",
                f"held-out accuracy at the end, at the best rate: the same within {_ALIKE} from biased and from even "
                f"starts of one network; without a limit also the gap between classes, within {_GAP}",
                f"accuracy {numbers['test accuracy'][0]} (biased), {numbers['test accuracy'][1]} (even); favoured − "
                f"other class {numbers['test gap'][0]} and {numbers['test gap'][1]}",
                [alike],
                within=[no_gap],
                limit="a gap between the classes stays on held-out points",
            ),
            entry(
                "I26",
                f"the window (rates that end within {GOOD:.0%} of the way from chance to the best) is narrower with "
                "bias than in the same network with ReLU minus its mean; without a limit also after half of the steps, "
                "and narrower from biased than from even starts of one network",
                said,
                [narrow],
                within=[start_matters, earlier],
                limit=limit26,
            ),
        ],
        {"ends": columns(_rows(arms, forecasts, steps))},
        {"window": _chart(arms, forecasts, {k: v / unit for k, v in limits.items()}, widths, narrow, (x.n, steps))},
        [
            "Predicted: rates from which on the bias swings for ever, 4κ/λ_b: "
            + ", ".join(f"{name} {value:.3g}" for name, value in limits.items())
            + f"; rates in the figure are by 2κ/λ_b = {unit:.3g} of ReLU.",
            "A rate that is too low only needs more steps: the window is that of a given number of steps.",
        ],
    )


def _rows(arms: Mapping[str, Any], forecasts: Mapping[str, Any], step: int) -> list[dict[str, Any]]:
    return [
        {"arm": name, "source": source, "factor": factor, "networks": arm.networks, "diverged": len(arm.diverged)}
        | {what.replace(" ", "_"): arm.at(what, step).value for what in ("test accuracy", "test gap", "accuracy")}
        | {"error": arm.at("test accuracy", step).error}
        for source, given in (("trained", arms), ("predicted", forecasts))
        for name, found in given.items()
        for factor, arm in found.items()
    ]


def _chart(
    arms: Mapping[str, Mapping[float, Arm]], forecasts: Mapping[str, Mapping[float, Arm]],
    limits: Mapping[str, float], widths: Mapping[str, Number], narrow: Truth, sizes: tuple[int, int],
) -> Any:  # fmt: skip
    from firstguess import figures
    from firstguess_papers.library import Series

    steps = sizes[1]
    series: list[Series] = []
    for name, found in arms.items():
        label = f"{name} (window {widths[name].value:.1f} decades)"
        each = [np.nan_to_num(arm.values("test accuracy", steps), nan=CHANCE) for arm in found.values()]
        errors = [float(v.std(ddof=1) / math.sqrt(len(v))) for v in each]
        series.append(Series(label, list(found), [float(v.mean()) for v in each], errors, mark="points"))
        known = forecasts[name]
        series.append(
            Series(label, list(known), [float(a.at("test accuracy", steps).value) for a in known.values()], mark="line")
        )
    biased, _, other = ARMS
    bottom: list[float] = [0.0, 1.0]
    series.append(Series(f"{biased}, 4κ/λ_b: swings for ever", [limits[biased]] * 2, bottom, mark="dashed"))
    series.append(Series(f"{other}, 4κ/λ_b", [limits[other]] * 2, bottom, mark="dashed"))
    inits = next(iter(arms[biased].values())).networks
    return figures.lines_chart(
        series,
        title=stated(
            narrow,
            f"With bias good learning rates span {widths[biased].value:.1f} decades, with ReLU minus its mean "
            f"{widths[other].value:.1f}",
            "Accuracy at the end by learning rate, with bias and without",
        ),
        subtitle=[
            f"Accuracy on held-out MNIST images, even or odd, after {steps} steps on {sizes[0]} images; {inits} "
            "networks a point, ± 2 s.e. Lines: predicted by the tangent kernel, up to 4κ/λ_b."
        ],
        x_title="Learning rate by ReLU's 2κ/λ_b",
        y_title="Held-out accuracy",
        x_scale="log",
        y_domain=(0.0, 1.0),
        percent=True,
        dodge=True,
        width=620,
        height=340,
    )
