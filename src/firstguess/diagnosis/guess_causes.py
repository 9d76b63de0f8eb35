"""Why a model guesses as it does: each cause is told by a test of its own, with the numbers that speak for it.

False alarms. NaN, a zero head and BatchNorms without data are facts, not estimates. Of the others none is raised unless
the guess is notable, which fair coins are once in 2e6; then: dead units need four standard deviations of the ensemble
and 25 points of a percentage above its average; saturation and a head's bias are again facts of this model; centring
must lower the excess of the same initializations by three standard errors, of so many initializations that another
seed would say the same (`is_clear`), and is called "partly" the cause unless it surely takes half of the excess;
"unlike its initialization" has a nominal chance of 1e-4, and needs a guess beyond every initialization.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy import special

from firstguess.base.statistics import FloatArray, proportion
from firstguess.ensemble.measurement import Measurement
from firstguess.modules.snapshot import Snapshot
from firstguess.theory.databias import DataBias

Kind: TypeAlias = Literal[
    "NaN or Inf",
    "zero head",
    "dead units",
    "saturated outputs",
    "batchnorm in eval mode before training",
    "head bias",
    "data not centred",
    "expected from architecture",
    "unlike its initialization",
]

NOTABLE = 0.3  # of the way from an even split to one class for all: 65 % of two classes, 37 % of ten
_COINS = 5.0  # standard deviations of fair coins that an even split may be off
GAMMA = 0.3  # γ₀ of the data from which centring is tried: two classes split 66 to 34 by it alone
_HALF = 0.5
_MORE = 0.25  # more dead nodes than the ensemble's average
_SDS = 4.0  # … and standard deviations of its members
_OFTEN = 0.05  # share of initializations from which a guess is no surprise
_RARE = 1e-4  # chance below which a guess is unlike the initialization
_FALL = 0.75  # of the excess over an even split that may remain where a cure is to count as one
_SURE = 3.0  # standard errors that centring must lower the excess by
_CLEAR = 5.0  # standard errors from which no more initializations are needed to say so
_SLIGHT = 0.1  # of the excess: centring that takes surely less is no cause
_TIES = 0.01


@dataclass(frozen=True)
class GuessCause:
    """One reason for the guess: `kind` is a stable word, `evidence` holds the numbers behind the message."""

    kind: Kind
    message: str
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Observed:
    """All that was looked at."""

    now: Snapshot
    measurement: Measurement | None
    norms: list[str]  # BatchNorms in eval mode that have seen no data
    trained: Snapshot | None  # with these in train mode
    bias: DataBias | None
    centred: Snapshot | None  # now, on centred data
    raw_excess: FloatArray  # of members on the data, and of the same members on centred data
    centred_excess: FloatArray

    @property
    def notable(self) -> bool:
        return is_notable(self.now.fractions, self.now.points - self.now.lost)

    @property
    def p(self) -> tuple[float, float, float]:
        return surprise(self.now.largest, self.measurement)

    @staticmethod
    def excess(seen: Snapshot) -> float:
        return float(excess(seen.fractions)) if seen.points > seen.lost else math.nan


def excess(fractions: FloatArray) -> FloatArray:
    """How far the largest fraction is on the way from an even split (0) to all points in one class (1)."""
    even = 1 / fractions.shape[-1]
    return np.asarray((fractions.max(axis=-1) - even) / (1 - even))


def is_notable(fractions: FloatArray, points: int) -> bool:
    """Whether there is anything to explain: a largest fraction far from an even split, and no play of chance.

    >>> is_notable(np.array([0.7, 0.3]), 1000), is_notable(np.array([0.7, 0.3]), 50), is_notable(np.eye(2)[0], 50)
    (True, False, True)
    """
    even = 1 / len(fractions)
    chance = _COINS * math.sqrt(even * (1 - even) / max(points, 1))
    return float(excess(fractions)) >= NOTABLE and float(fractions.max()) > even + chance


def surprise(largest: float, measurement: Measurement | None) -> tuple[float, float, float]:
    """The share of initializations whose largest fraction is at least this, with its 95 % Clopper-Pearson interval."""
    if measurement is None or math.isnan(largest):
        return (math.nan, math.nan, math.nan)
    tops = measurement.guesses.fractions.max(axis=1)
    hits, inits = int((tops >= largest - 1e-12).sum()), len(tops)
    return (hits / inits, *proportion(hits, inits, method="exact"))


def causes(seen: Observed) -> tuple[GuessCause, ...]:
    """Those that hold, the most important first."""
    found: list[GuessCause] = []
    for test in _TESTS:
        cause = test(seen, found)
        if cause is not None:
            found.append(cause)
    return tuple(sorted(found, key=lambda cause: bool(cause.evidence.get("partly"))))


def _nonfinite(seen: Observed, _: list[GuessCause]) -> GuessCause | None:
    now = seen.now
    if not now.nonfinite:
        return None
    share = now.lost / now.points
    return GuessCause(
        "NaN or Inf",
        f"{now.nonfinite} is the first layer that gives NaN or Inf; {share:.1%} of the points have no guess",
        {"layer": now.nonfinite, "points_lost": share},
    )


def _zero_head(seen: Observed, _: list[GuessCause]) -> GuessCause | None:
    now = seen.now
    if now.ties < _TIES or not (now.head_zero or now.level) or _dead_layers(seen):
        return None
    why = "its weights are zero" if now.head_zero else "it gives every class the same logit"
    return GuessCause(
        "zero head",
        f"{now.head}: {why}, so {now.ties:.1%} of the points have no largest logit; an arg-max takes the first class",
        {"layer": now.head, "ties": now.ties, "weights_zero": now.head_zero},
    )


def _dead_layers(seen: Observed) -> dict[str, tuple[float, float]]:
    """Layers where most nodes give one value on all points, far more than in the ensemble: (now, ensemble)."""
    found: dict[str, tuple[float, float]] = {}
    if seen.measurement is None:
        return found
    usual = {layer.name: layer for layer in seen.measurement.layers}
    head = seen.now.head if seen.now.head_zero else ""
    for name, share in seen.now.dead.items():
        if name not in usual or share < _HALF or name == head:
            continue
        mean, error = usual[name].dead, usual[name].dead_se
        sd = error * math.sqrt(seen.measurement.inits) if math.isfinite(error) else 0.0
        if share > mean + max(_MORE, _SDS * sd):
            found[name] = (share, mean)
    return found


def _dead(seen: Observed, _: list[GuessCause]) -> GuessCause | None:
    layers = _dead_layers(seen)
    if not layers or not (seen.notable or seen.now.ties >= _TIES):
        return None
    first, (share, usual) = next(iter(layers.items()))
    return GuessCause(
        "dead units",
        f"{first}: {share:.0%} of its nodes give one value on all points, {usual:.0%} after an initialization; "
        f"{len(layers)} such layers",
        {"layer": first, "dead": share, "dead_in_ensemble": usual, "layers": list(layers)},
    )


def _saturated(seen: Observed, _: list[GuessCause]) -> GuessCause | None:
    now = seen.now
    if not seen.notable:
        return None
    if now.probabilities and now.sure > _HALF:
        return GuessCause(
            "saturated outputs",
            f"the model ends in a {now.probabilities} that is above 0.99 or at its ends on {now.sure:.0%} of the "
            "points: gradients through it are almost 0",
            {"outputs": now.probabilities, "sure": now.sure},
        )
    layers = {name: share for name, share in now.saturated.items() if share > _HALF}
    if not layers:
        return None
    worst = max(layers, key=layers.__getitem__)
    return GuessCause(
        "saturated outputs",
        f"{worst}: {layers[worst]:.0%} of its values are at the ends of its range (beyond 0.99 of it); {len(layers)} "
        "such layers: gradients through them are almost 0",
        {"layer": worst, "saturated": layers[worst], "layers": layers},
    )


def _fresh_norms(seen: Observed, _: list[GuessCause]) -> GuessCause | None:
    if not seen.norms or seen.trained is None or not seen.notable:
        return None
    before, after = seen.excess(seen.now), seen.excess(seen.trained)
    if not after < _FALL * before:
        return None
    return GuessCause(
        "batchnorm in eval mode before training",
        f"{len(seen.norms)} BatchNorms ({seen.norms[0]} first) are in eval mode with running statistics that have seen "
        f"no data, so they do nothing; in train mode the largest fraction is {seen.trained.largest:.1%}",
        {"layers": seen.norms, "largest_in_train_mode": seen.trained.largest},
    )


def _head_bias(seen: Observed, _: list[GuessCause]) -> GuessCause | None:
    now = seen.now
    if not seen.notable or now.bias is None or now.without_bias is None or now.level:
        return None
    bias = np.array([-now.bias[0], now.bias[0]]) if len(now.bias) == 1 else now.bias
    favoured = int(now.fractions.argmax())
    without = float(excess(now.without_bias))
    if int(bias.argmax()) != favoured or without >= _HALF * seen.excess(now):
        return None
    return GuessCause(
        "head bias",
        f"{now.head}.bias is largest for class {favoured} and decides: without it the largest fraction is "
        f"{now.without_bias.max():.1%}",
        {"layer": now.head, "bias": now.bias.tolist(), "largest_without": float(now.without_bias.max())},
    )


def is_clear(raw: FloatArray, cured: FloatArray) -> bool:
    """Whether so many pairs say if centring helps: it does by far more than `_SURE` standard errors, or surely not.

    >>> raw, noise = np.full(40, 0.5), np.resize([0.1, -0.1], 40)
    >>> is_clear(raw, 0.3 + noise), is_clear(raw, 0.5 + noise), is_clear(raw, 0.45 + noise)
    (True, True, False)
    """
    falls = raw - cured
    error = float(falls.std(ddof=1)) / math.sqrt(len(falls))
    return not raw.any() or float(falls.mean()) > _CLEAR * error or _taken(raw, cured)[2] < _SLIGHT


def _taken(raw: FloatArray, cured: FloatArray) -> tuple[float, float, float]:
    """The part of the excess that centring takes, with its 95 % interval: a ratio of averages over the same members."""
    rest = float(cured.mean()) / float(raw.mean())
    error = float((cured - rest * raw).std(ddof=1)) / math.sqrt(len(raw)) / float(raw.mean())
    return 1 - rest, 1 - rest - 1.96 * error, 1 - rest + 1.96 * error


def _data(seen: Observed, _: list[GuessCause]) -> GuessCause | None:
    if not seen.notable or seen.bias is None or seen.centred is None or len(seen.centred_excess) < 2:
        return None
    raw, cured = seen.raw_excess[: len(seen.centred_excess)], seen.centred_excess
    falls = raw - cured  # the same weights on both: a paired comparison
    error = float(falls.std(ddof=1)) / math.sqrt(len(falls))
    if seen.bias.gamma < GAMMA or not float(falls.mean()) > _SURE * error:
        return None
    share, low, high = _taken(raw, cured)
    # The ensemble has the same data: where it never guesses like this model, data are not the reason.
    mine = seen.excess(seen.centred) < _FALL * seen.excess(seen.now) or seen.p[0] >= _OFTEN
    if high < _SLIGHT or not mine:
        return None
    partly = low < _HALF
    return GuessCause(
        "data not centred",
        f"{'partly: ' if partly else ''}the points share a direction, γ₀ = {seen.bias.gamma:.3g}; with the mean point "
        f"subtracted the excess over an even split falls from {raw.mean():.2f} to {cured.mean():.2f}, by {share:.0%} "
        f"(95 %: {low:.0%} to {high:.0%}), on average over {len(cured)} initializations, and this model's largest "
        f"fraction is {seen.centred.largest:.1%}",
        {
            "gamma": seen.bias.gamma,
            "largest_centred": seen.centred.largest,
            "excess": float(raw.mean()),
            "excess_centred": float(cured.mean()),
            "share": share,
            "share_interval": [low, high],
            "partly": partly,
            "recommendation": seen.bias.recommendation,
        },
    )


def _expected(seen: Observed, _: list[GuessCause]) -> GuessCause | None:
    p, low, high = seen.p
    if not seen.notable or seen.measurement is None or not p >= _OFTEN:
        return None
    m = seen.measurement
    over = next((layer.name for layer in m.weights_layers if layer.gamma > 1), "")
    gamma = float(m.gamma[-1]) if m.gamma.size else math.nan
    where = f"; γ is above 1 from layer {over} on" if over else ""
    return GuessCause(
        "expected from architecture",
        f"{p:.0%} of {m.inits} initializations on these data do the same or more: {m.verdict}, γ = {gamma:.3g} at the "
        f"output{where}",
        {
            "p": p,
            "interval": [low, high],
            "gamma": gamma,
            "verdict": m.verdict,
            "regime": m.regime,
            "first_layer_above_1": over,
        },
    )


def _unlike(seen: Observed, found: list[GuessCause]) -> GuessCause | None:
    chance = _chance(seen)
    # Data, and BatchNorms that do nothing, are the same in the ensemble: they do not explain what it never does.
    if any(cause.kind not in ("data not centred", "batchnorm in eval mode before training") for cause in found):
        return None
    if not seen.notable or seen.measurement is None or seen.p[0] > 0 or not chance < _RARE:
        return None
    tops = seen.measurement.guesses.fractions.max(axis=1)
    return GuessCause(
        "unlike its initialization",
        f"none of {len(tops)} initializations has a largest fraction above {tops.max():.1%} (chance of this one about "
        f"{chance:.1g}): its weights have changed since, by training, loading or a fault",
        {"chance": chance, "largest_in_ensemble": float(tops.max()), "interval": list(seen.p[1:])},
    )


def _chance(seen: Observed) -> float:
    """Of a largest fraction as large: Student's t for one more member, on the scale of log-odds.

    An even split has little variation but that of counting, so the standard deviation is at least the binomial one.
    """
    if seen.measurement is None or seen.now.points <= seen.now.lost:
        return 1.0
    n = seen.measurement.points
    tops = seen.measurement.guesses.fractions.max(axis=1)
    if len(tops) < 3:
        return 1.0
    logits = special.logit(np.clip(tops, 0.5 / n, 1 - 0.5 / n))
    mine = float(special.logit(min(max(seen.now.largest, 0.5 / n), 1 - 0.5 / n)))
    middle = float(special.expit(logits.mean()))
    sd = max(float(logits.std(ddof=1)), 1 / math.sqrt(n * middle * (1 - middle)))
    z = (mine - float(logits.mean())) / (sd * math.sqrt(1 + 1 / len(tops)))
    return float(special.stdtr(len(tops) - 1, -z))


_TESTS: tuple[Callable[[Observed, list[GuessCause]], GuessCause | None], ...] = (
    _nonfinite,
    _zero_head,
    _dead,
    _saturated,
    _fresh_norms,
    _head_bias,
    _data,
    _expected,
    _unlike,
)
