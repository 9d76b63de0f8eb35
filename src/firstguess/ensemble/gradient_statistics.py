"""What gradients of untrained networks look like, layer by layer: sizes, growth going back, who gets them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy import special

from firstguess.base import statistics
from firstguess.base.record import Shown, StoredRecord
from firstguess.base.statistics import FloatArray
from firstguess.base.text import elided, page, without_middle
from firstguess.ensemble.member_statistics import Finding, ProbedLayer
from firstguess.theory.prediction import GradientWord, gradient_word

Word: TypeAlias = GradientWord | Literal["zero", "not finite", "not known"]

# The last axis of the members' mean squares, (inits, layers, 4).
ALL, FAVOURED, OTHERS, WEIGHT = range(4)
GROUPS = ("all", "favoured", "others", "weight")

_LINE = 3  # layers from which a line can be missed


@dataclass(frozen=True)
class Level:
    """A size on a logarithmic scale: the mean over initializations of log10 of a mean square, and its standard error.

    `zeros` initializations, in which it was exactly 0 (below what the number format holds), and those in which it was
    not defined (no such point, NaN) have no logarithm: the mean is over the other `inits`.
    """

    value: float
    error: float
    inits: int
    zeros: int = 0

    @property
    def mean_square(self) -> float:
        """10 to the level: the geometric mean over initializations."""
        return 10.0**self.value


@dataclass(frozen=True)
class GradientLayer:
    """Gradients at one layer with weights W, or at a place of the residual stream.

    `all`: the mean over points of ‖∂L_a/∂W‖² / ‖h_a‖², with L_a the loss of point a and h_a what the layer is given:
    the gradient of its weights for inputs of unit size, summed over positions (pixels, tokens) that share them. Without
    positions it is Σ_i (∂L_a/∂u_i)², u being the layer's output. `favoured`: the same over points whose label is the
    class that this initialization favours, `others` over the others. `weight`: the mean over entries of
    (∂ mean_a L_a / ∂W)². At a place of the stream there are no weights: `all` is the larger of Σ_p ‖∂L_a/∂x_p‖² and
    ‖Σ_p ∂L_a/∂x_p‖², between which the gradients of weights are that it feeds.
    """

    name: str
    kind: str
    nodes: int
    all: Level
    favoured: Level
    others: Level
    weight: Level


@dataclass(frozen=True)
class Growth:
    """The factor on the mean square of weights' gradients per layer, going back (χ̃ of theory.md (10)), with its 95 %
    interval.

    Over hidden layers with weights that every gradient passes; in residual networks over the stream, block by block.
    The output layer, whose gradient is the loss's own, is left out, and the first, whose scale is that of the data.
    Each initialization gives one: minus the least-squares slope of log `GradientLayer.all` against the number of the
    layer. `value` is the geometric mean over `inits` initializations: at finite width a little below χ̃, which is a
    ratio of averages. Where the levels are far from a line no one factor describes them, and `value` is NaN. `total` is
    the factor over the network: of the line, carried on to the first layer, or else between the two ends of `layers`; 0
    where the far end has none. In `zeros` initializations all hidden layers' gradients are 0, in `lost` NaN or Inf.
    """

    value: float
    low: float
    high: float
    inits: int
    total: float
    layers: int = 0  # or blocks, that the slope is over
    total_low: float = math.nan
    total_high: float = math.nan
    zeros: int = 0
    lost: int = 0

    @property
    def word(self) -> Word:
        """vanish or explode: the mean square changes by more than 10⁴ over the network, gradients a hundredfold, from
        where on training was seen to suffer. shrink or grow: by more than 2. In each case the interval excludes 1."""
        if self.zeros > self.inits:
            return "zero"
        if self.lost > self.inits:
            return "not finite"
        low, high = (self.low, self.high) if math.isfinite(self.value) else (self.total_low, self.total_high)
        if math.isnan(self.total) or math.isnan(low):
            return "not known"
        sure = high < 1.0 if self.total < 1.0 else low > 1.0
        return gradient_word(self.total) if sure else "keep their size"

    def __str__(self) -> str:
        word = self.word
        if word in ("zero", "not finite"):
            return f"they are {word}"
        if math.isfinite(self.value):
            size = f"× {self.value:.4g} per layer in mean square"
            if word == "not known":
                return f"{size}  (no interval from one initialization)"
            return f"{size}  (95 %: {self.low:.4g} to {self.high:.4g}): they {word}"
        if word == "not known":
            return word
        if self.total == 0:
            return "they vanish: exactly 0 from some layer on"
        return f"they {word}: × {self.total:.4g} in mean square over {self.layers} layers, unevenly"


@dataclass(frozen=True, repr=False)
class Gradients(StoredRecord, Shown):
    """Gradients of an ensemble of untrained networks at their first step. Print it.

    `layers` are all with weights; `stream`, in residual networks, what enters each block, and what leaves the last.
    `growth` is that of all points; `favoured_growth` and `others_growth` of points whose label is, or is not, the
    class that most points of the batch are put in.
    """

    _also = ("word", "contrast")

    layers: tuple[GradientLayer, ...]
    growth: Growth
    favoured_growth: Growth
    others_growth: Growth
    favoured_fraction: float  # of the favoured class, on average over initializations
    inits: int
    points: int
    classes: int
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    seed: int = 0
    provenance: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    stream: tuple[GradientLayer, ...] = ()

    @property
    def word(self) -> Word:
        """vanish, keep their size, explode, …, going back."""
        return self.growth.word

    @property
    def contrast(self) -> float:
        """log10 of the favoured class's mean square over the others' at the output: how unequal the first step is."""
        return math.nan if not self.layers else self.layers[-1].favoured.value - self.layers[-1].others.value

    @property
    def followed(self) -> tuple[GradientLayer, ...]:
        """What the growth is of: the stream of a residual network, otherwise its layers."""
        return self.stream or self.layers

    def summary(self) -> list[tuple[str, str]]:
        """Label and value of every headline number."""
        rows = [("network", str(self.provenance["network"]))] if "network" in self.provenance else []
        prepared = self.provenance.get("prepared", "")
        rows += [("data", str(prepared))] if prepared else []
        rows += [
            (
                "gradients, going back",
                str(self.growth).replace(" per layer", " per block" if self.stream else " per layer"),
            ),
            ("favoured class's share of guesses", f"{self.favoured_fraction:.4g}  (even split {1 / self.classes:.4g})"),
        ]
        if math.isfinite(self.contrast):
            times = f"{10.0**self.contrast:.3g} of the others' at the output, in mean square"
            rows.append(("favoured class's gradient", times))
        return rows

    def __repr__(self) -> str:
        return f"Gradients({self.inits} initializations, {len(self.layers)} layers, going back: {self.word})"

    def __str__(self) -> str:
        size = f"{self.inits} initializations, {self.points} points, {self.classes} classes"
        remarks = [*(str(finding) for finding in self.findings), *(f"note: {note}" for note in self.notes)]
        return page(f"Gradients ({size}, seed {self.seed})", self.summary(), table=self._table(), remarks=remarks)

    def _table(self) -> list[str]:
        if not self.layers:
            return []
        width = min(24, max(5, *(len(layer.name) for layer in self.followed)))
        lines = [
            f"  log10 of the mean square gradient{' along the stream' if self.stream else ''}",
            f"  {'':>4} {'layer':<{width}} {'kind':<10} {'all ± s.e.':>15} "
            f"{'favoured':>9} {'others':>9} {'weights':>9}",
        ]
        rows: list[str] = []
        for i, layer in enumerate(self.followed, start=1):
            error = f" ± {layer.all.error:.3f}" if math.isfinite(layer.all.error) else ""
            level = f"{layer.all.value:.3f}{error}"
            others = " ".join(f"{x.value:>9.3f}" for x in (layer.favoured, layer.others, layer.weight))
            rows.append(f"  {i:>4} {elided(layer.name, width):<{width}} {layer.kind[:10]:<10} {level:>15} {others}")
        return lines + without_middle(rows, f"  {'':>4} … {{}} more")


def gradient_layers(layers: Sequence[ProbedLayer], squares: FloatArray) -> tuple[GradientLayer, ...]:
    """Averages of the logarithms of the members' mean squares, (inits, layers, 4)."""
    levels = {group: _levels(squares[..., i]) for i, group in enumerate(GROUPS)}
    return tuple(
        GradientLayer(layer.name, layer.kind, layer.nodes, *(levels[group][i] for group in GROUPS))
        for i, layer in enumerate(layers)
    )


def _levels(squares: FloatArray) -> list[Level]:
    logs = logarithms(squares) / math.log(10)
    with np.errstate(invalid="ignore"):
        found = statistics.means(logs, level=None)
    used, zeros = np.isfinite(logs).sum(axis=0), (squares == 0).sum(axis=0)
    return [
        Level(float(found.value[i]), float(found.error[i]), int(used[i]), int(zeros[i])) for i in range(logs.shape[1])
    ]


def logarithms(squares: FloatArray) -> FloatArray:
    """Natural logarithms, NaN where there is none: 0, NaN and ∞."""
    fine = np.isfinite(squares) & (squares > 0)
    return np.where(fine, np.log(np.where(fine, squares, 1.0)), math.nan)


def growth_of(squares: FloatArray) -> Growth:
    """Growth going back, from the mean squares of hidden layers, input first, (inits, layers).

    >>> print(growth_of(np.array([[4.0, 2.0, 1.0], [8.0, 4.0, 2.0], [4.4, 2.0, 1.0]])))
    × 2.032 per layer in mean square  (95 %: 1.898 to 2.176): they grow
    """
    layers = squares.shape[1]
    if layers < 2 or not len(squares):
        return Growth(math.nan, math.nan, math.nan, 0, math.nan, layers)
    away = np.arange(layers) - (layers - 1) / 2
    logs = logarithms(squares)
    # A layer without a logarithm leaves its initialization without a slope: part of a network is another network.
    slopes = -(logs @ away) / float(away @ away)
    inits = int(np.isfinite(slopes).sum())
    value, half = _mean(slopes)
    total, total_half = value * layers, half * layers
    if not is_line(logs[np.isfinite(slopes)].mean(axis=0) if inits else logs[:0]):
        value = half = math.nan
        total, total_half = _mean(logs[:, 0] - logs[:, -1])
    with np.errstate(over="ignore", under="ignore"):
        factor, low, high = (float(x) for x in np.exp([value, value - half, value + half]))
        ends = [float(x) for x in np.exp([total, total - total_half, total + total_half])]
    faded = int(((squares[:, 0] == 0) & (squares[:, -1] > 0)).sum())
    if faded > inits:  # below the number format at the far end
        inits, factor, low, high, ends = faded, math.nan, math.nan, math.nan, [0.0, 0.0, 0.0]
    return Growth(factor, low, high, inits, ends[0], layers, ends[1], ends[2])


def _mean(values: FloatArray) -> tuple[float, float]:
    """Mean and half its 95 % interval: Student's t, as slopes average over layers and units and are close to Gaussian;
    no interval from one."""
    count = int(np.isfinite(values).sum())
    with np.errstate(invalid="ignore"):
        found = statistics.means(values[:, None], level=None)
    half = float(special.stdtrit(count - 1, 0.975)) * float(found.error[0]) if count > 1 else math.nan
    return float(found.value[0]), half


def is_line(logs: FloatArray) -> bool:
    """Whether one factor per layer describes these logarithms of mean squares: their distances from a line have an rms
    of at most a factor 2, or a tenth of what the line changes by.

    >>> is_line(np.array([0.0, 1.0, 2.0, 3.0])), is_line(np.array([0.0, 3.0, 0.0, 3.0]))
    (True, False)
    """
    if len(logs) < _LINE or not np.isfinite(logs).all():
        return len(logs) > 0
    depth = np.arange(len(logs))
    slope, at = np.polyfit(depth, logs, 1)
    rest = float(np.std(logs - slope * depth - at))
    return rest <= max(math.log(2), 0.1 * abs(slope) * (len(logs) - 1))
