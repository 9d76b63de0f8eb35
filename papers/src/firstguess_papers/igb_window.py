"""IGB I.3: where training ends with bias and without, and how wide the window of good learning rates is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firstguess import figures
from firstguess_papers import library
from firstguess_papers.bias_mode import chosen
from firstguess_papers.items import Entry, Holds
from firstguess_papers.judging import Number, Truth, above, entry, same
from firstguess_papers.measured import Found, Training, measured
from firstguess_papers.training_pieces import MEMBERS, Arm, modes

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


BIASED, EVEN, OTHER = ARMS


def _cells(c: Found) -> dict[Any, Training]:
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
        for name, (net, start) in ARMS.items() for factor in FACTORS
    }  # fmt: skip


def _quantities(c: Found) -> dict[str, Any]:
    arms, known = ({name: of(name) for name in ARMS} for of in (c.arms, c.known_arms))
    early, late = ({name: window_of(found, c.unit, k) for name, found in arms.items()} for k in (c.sooner, c.steps))
    return {"rates": arms, "forecasts": known, "widths": late, "early": early}


def _judge(c: Found) -> list[Entry]:
    numbers, (alike, no_gap) = ends(c.rates[BIASED], c.rates[EVEN])
    accuracy, gap = numbers["test accuracy"], numbers["test gap"]
    (narrow, start_matters), earlier = narrower(c.widths), narrower(c.early)[0]
    reasons = {
        "of the same network, even starts have no wider window: it belongs to the network, not to its start":
        start_matters,
        f"after {c.sooner} steps it is not narrower": earlier,
    }  # fmt: skip
    return [
        entry(
            "I25",
            f"held-out accuracy at the end, at the best rate: the same within {_ALIKE} from biased and from even "
            f"starts of one network; without a limit also the gap between classes, within {_GAP}",
            f"accuracy {accuracy[0]} (biased), {accuracy[1]} (even); favoured − other class {gap[0]} and {gap[1]}",
            [alike],
            within=[no_gap],
            limit="a gap between the classes stays on held-out points",
        ),
        entry(
            "I26",
            f"the window (rates that end within {GOOD:.0%} of the way from chance to the best) is narrower with "
            "bias than in the same network with ReLU minus its mean; without a limit also after half of the steps, "
            "and narrower from biased than from even starts of one network",
            "; ".join(f"{n}: {c.widths[n]} decades (after {c.sooner} steps {c.early[n]})" for n in ARMS),
            [narrow],
            within=[start_matters, earlier],
            limit="; ".join(text for text, check in reasons.items() if check is False),
        ),
    ]


def _chart(c: Found) -> Any:
    series: list[Any] = []
    for name, found in c.rates.items():
        label = f"{name} (window {c.widths[name].value:.1f} decades)"
        each = [np.nan_to_num(arm.values("test accuracy", c.steps), nan=CHANCE) for arm in found.values()]
        errors = [float(v.std(ddof=1) / math.sqrt(len(v))) for v in each]
        known = {factor: arm.at("test accuracy", c.steps).value for factor, arm in c.forecasts[name].items()}
        series.append(library.Series(label, [*found], [float(v.mean()) for v in each], errors, mark="points"))
        series.append(library.Series(label, [*known], [*known.values()], mark="line"))
    for name, words in ((BIASED, "4κ/λ_b: swings for ever"), (OTHER, "4κ/λ_b")):
        series.append(library.Series(f"{name}, {words}", [c.limits[name] / c.unit] * 2, [0.0, 1.0], mark="dashed"))
    return figures.lines_chart(
        series, title="Accuracy at the end by learning rate, with bias and without",
        subtitle=[f"Accuracy on held-out MNIST images, even or odd, after {c.steps} steps on {c.n} images; "
                  f"{c.rates[BIASED][1.0].networks} networks a point, ± 2 s.e. Lines: predicted by the tangent kernel, "
                  "up to 4κ/λ_b."],
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
    cells=_cells,
    quantities=_quantities,
    judge=_judge,
    tables=lambda c: {"ends": [
        {"arm": name, "source": source, "factor": factor, "networks": arm.networks, "diverged": len(arm.diverged)}
        | {what.replace(" ", "_"): arm.at(what, c.steps).value for what in ("test accuracy", "test gap", "accuracy")}
        | {"error": arm.at("test accuracy", c.steps).error}
        for source, given in (("trained", c.rates), ("predicted", c.forecasts))
        for name, found in given.items() for factor, arm in found.items()
    ]},
    charts=lambda c: {"window": _chart(c)},
    holds={"window": Holds("With bias fewer learning rates are good than with ReLU minus its mean", entries=(1,))},
    notes=lambda c: [
        "Predicted: rates from which on the bias swings for ever, 4κ/λ_b: "
        + ", ".join(f"{name} {value:.3g}" for name, value in c.limits.items())
        + f"; rates in the figure are by 2κ/λ_b = {c.unit:.3g} of ReLU.",
        "A rate that is too low only needs more steps: the window is that of a given number of steps.",
    ],
)  # fmt: skip
