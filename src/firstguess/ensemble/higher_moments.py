"""How Gaussian pre-activations are: skewness and kurtosis by layer, from one network's units to the ensemble.

Theory takes u = μ + y for every pre-activation (theory.md §1): y Gaussian over the *data*, at fixed weights, around the
unit's center μ; and μ Gaussian over *units and initializations*. Both can fail, for different reasons: the first where
few directions or clusters of the data dominate what a unit sums (NORM App. D, IGB App. B), the second where networks
are so narrow or deep that the scale of a layer differs from one initialization to the next.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from firstguess.base import statistics
from firstguess.base.gaussian import Array
from firstguess.base.record import StoredRecord
from firstguess.base.text import with_error, without_middle
from firstguess.ensemble.member_statistics import Finding, FindingKind, ProbedLayer
from firstguess.theory.prediction import EDGES

# The last axis of Members.shapes.
SKEW_SQUARE, KURTOSIS, MEAN_SQUARE, MEAN_FOURTH = range(4)
LEAST = 4  # points from which a kurtosis can be estimated

_CONSTANT = 4.0 * 2.0**-23  # a unit that deviates by less than this share of its mean is constant to float32

# Edgeworth's first terms move a share by skewness·φ(0)/6 in the middle and kurtosis·2φ(1)/24 at one deviation: at these
# values by 2 % of the data, which a reader of guess fractions would see.
SKEWED, TAILED = 0.3, 1.0
_SURELY = 4.0  # standard errors beyond which a layer is flagged: by chance in 1 of 30 000


def member_shape(mean: Array, powers: Sequence[Array], count: Array | float) -> Array:
    """One network's layer, (4,), from the units' means and central moments of order 2, 3, 4 over `count` points.

    Over the data: the mean over units of skewness² and of the excess kurtosis, both without the bias of finite data (a
    Gaussian sample has E g₁² = 6(n−2)/((n+1)(n+3)), and G₂ of Joanes & Gill (1998) has mean 0). Of the centers: the
    means over units of m² and m⁴, which the ensemble makes a kurtosis of. Units that are constant have no shape.
    """
    second, third, fourth = powers
    row = np.full(4, np.nan)
    with np.errstate(over="ignore", invalid="ignore"):
        row[MEAN_SQUARE], row[MEAN_FOURTH] = np.square(mean).mean(), np.square(np.square(mean)).mean()
    n = np.broadcast_to(np.asarray(count, dtype=np.float64), mean.shape)
    keep = (n >= LEAST) & (second > np.square(_CONSTANT * mean))
    if not keep.any():
        return row
    n, scale = n[keep], np.sqrt(second[keep])
    skew = third[keep] / scale / scale / scale
    excess = fourth[keep] / scale / scale / scale / scale - 3.0
    row[SKEW_SQUARE] = (np.square(skew) - 6 * (n - 2) / ((n + 1) * (n + 3))).mean()
    row[KURTOSIS] = ((n - 1) / ((n - 2) * (n - 3)) * ((n + 1) * excess + 6)).mean()
    return row


@dataclass(frozen=True)
class LayerShape(StoredRecord):
    """How Gaussian a layer's pre-activations are; for a Gaussian all three numbers are 0.

    `skewness` (root mean square over units: its sign is a unit's own) and `kurtosis` (excess, mean over units) are over
    the data, of each unit about its own center; `center_kurtosis` is the excess kurtosis of the units' means over the
    data, over all units and initializations: theory.md §1; NaN in even layers (γ not above 0.05), where centers hardly
    matter and are mostly the noise of finite data. Estimates are free of the bias of finite data.
    """

    name: str
    skewness: float
    skewness_se: float
    kurtosis: float
    kurtosis_se: float
    center_kurtosis: float
    center_kurtosis_se: float

    @property
    def fails(self) -> tuple[str, ...]:
        """What is clearly not Gaussian enough: a share of 2 % of the data is at stake."""
        found: list[str] = []
        if _beyond(self.skewness, self.skewness_se, SKEWED):
            found.append(f"skewness {with_error(self.skewness, self.skewness_se)} over the data")
        if _beyond(self.kurtosis, self.kurtosis_se, TAILED):
            found.append(f"excess kurtosis {with_error(self.kurtosis, self.kurtosis_se)} over the data")
        if _beyond(self.center_kurtosis, self.center_kurtosis_se, TAILED):
            number = with_error(self.center_kurtosis, self.center_kurtosis_se)
            found.append(f"centers of excess kurtosis {number} over nodes and initializations")
        return tuple(found)

    @property
    def gaussian(self) -> bool:
        """Whether nothing of that was seen."""
        return not self.fails


def _beyond(value: float, error: float, size: float) -> bool:
    return abs(value) - size > _SURELY * (error if math.isfinite(error) else math.inf)


def layer_shapes(layers: Sequence[ProbedLayer], members: Array, gammas: Sequence[float]) -> tuple[LayerShape, ...]:
    """Shapes of the layers with weights and of the output, from the members' numbers (inits, layers, 4) and their γ."""
    skew = statistics.means(members[..., SKEW_SQUARE], level=None)
    tails = statistics.means(members[..., KURTOSIS], level=None)
    found: list[LayerShape] = []
    for i, layer in enumerate(layers):
        if not layer.weights and i + 1 < len(layers):
            continue
        size = math.sqrt(max(float(skew.value[i]), 0.0)) if math.isfinite(skew.value[i]) else math.nan
        error = float(skew.error[i]) / (2 * size) if size > 0 else math.sqrt(max(float(skew.error[i]), 0.0))
        centers = (math.nan, math.nan)
        if gammas[i] > EDGES[0]:
            centers = _pooled_kurtosis(members[:, i, MEAN_SQUARE], members[:, i, MEAN_FOURTH])
        found.append(LayerShape(layer.name, size, error, float(tails.value[i]), float(tails.error[i]), *centers))
    return tuple(found)


def _pooled_kurtosis(square: Array, fourth: Array) -> tuple[float, float]:
    """E m⁴/(E m²)² − 3 over units and initializations, and its standard error over initializations."""
    fine = np.isfinite(square) & np.isfinite(fourth)
    square, fourth = square[fine], fourth[fine]
    count = len(square)
    if not count or not square.mean() > 0:
        return math.nan, math.nan
    square, fourth = square / square.mean(), fourth / square.mean() ** 2
    value = float(fourth.mean())
    influence = fourth - value - 2 * value * (square - 1)
    error = float(influence.std(ddof=1) / math.sqrt(count)) if count > 1 else math.nan
    return value - 3.0, error


def not_gaussian(shapes: Sequence[LayerShape]) -> list[Finding]:
    """One finding for all layers where theory's "Gaussian" fails: at the first of them."""
    bad = [shape for shape in shapes if not shape.gaussian]
    if not bad:
        return []
    more = f" ({len(bad)} of {len(shapes)} layers are like this)" if len(bad) > 1 else ""
    words = f"pre-activations are not Gaussian, as theory takes them: {', '.join(bad[0].fails)}{more}"
    return [Finding(FindingKind.NOT_GAUSSIAN, words, bad[0].name)]


def table(shapes: Sequence[LayerShape], width: int) -> list[str]:
    """The table of a printed page: numbers with errors by layer; the middle of long networks is left out."""
    if not shapes:
        return []
    width = max(width, len("pre-activation"))
    lines = ["", f"  {'pre-activation':<{width}} {'skewness':>15} {'kurtosis':>15} {'of centers':>15}  Gaussian"]
    rows: list[str] = []
    for shape in shapes:
        numbers = (
            _cell(shape.skewness, shape.skewness_se),
            _cell(shape.kurtosis, shape.kurtosis_se),
            _cell(shape.center_kurtosis, shape.center_kurtosis_se),
        )
        name = shape.name if len(shape.name) <= width else f"…{shape.name[1 - width :]}"
        rows.append(f"  {name:<{width}} {' '.join(f'{x:>15}' for x in numbers)}  {'yes' if shape.gaussian else 'no'}")
    return lines + without_middle(rows, "  … {} more")


def _cell(value: float, error: float) -> str:
    if math.isnan(value):
        return "–"
    return f"{value:.3f}" if math.isnan(error) else f"{value:.3f} ± {error:.3f}"
