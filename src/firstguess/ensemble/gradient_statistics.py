"""What gradients of untrained networks look like, layer by layer: sizes, growth going back, who gets them."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy import special

from firstguess.base import statistics
from firstguess.base.statistics import FloatArray
from firstguess.base.text import page, plain
from firstguess.ensemble.members import Finding, ProbedLayer

Word: TypeAlias = Literal["vanish", "keep their size", "explode", "not known"]

# The last axis of the members' mean squares, (inits, layers, 4).
ALL, FAVOURED, OTHERS, WEIGHT = range(4)
GROUPS = ("all", "favoured", "others", "weight")

_ROWS = 24  # layers shown when printed
_LINE = 3  # layers from which a line can be missed
_EVEN = math.log10(2)  # by which layers may be off the line whose slope is the growth
_TOTAL = 2.0  # a change in mean square over the whole network that is worth a word


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
    """Gradients at one layer with weights: with L_a the loss of point a and u its output (before the activation),
    the mean over nodes and points of (∂ Σ_a L_a / ∂u)²; over all points, over those whose label is the class that this
    initialization favours, and over the others. `weight`: the mean over entries of (∂ mean_a L_a / ∂W)².
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
    """The factor on the mean square of gradients a layer, going back (χ̃ of theory.md (10)), with its 95 % interval.

    Each initialization gives one: minus the least-squares slope of log mean square against the number of the layer,
    over hidden layers with weights. The output layer, whose gradient is the loss's own, is left out, and where three
    layers remain also the first, whose scale is that of the data (before a BatchNorm it would shift the slope). `value`
    is the geometric mean over `inits` initializations: at finite width a little below χ̃, which is a ratio of averages.
    `total` is the factor over these `layers`, which are counted in call order, also those side by side (queries and
    keys, branches): a note of the result says where levels are far from a line, that of the first layer too.
    """

    value: float
    low: float
    high: float
    inits: int
    total: float
    layers: int = 0  # that the slope is over

    @property
    def word(self) -> Word:
        """vanish or explode: the interval excludes 1 and the mean square changes by more than 2 over the network."""
        if not math.isfinite(self.value) or math.isnan(self.low):
            return "not known"
        if self.high < 1.0 and self.total < 1 / _TOTAL:
            return "vanish"
        return "explode" if self.low > 1.0 and self.total > _TOTAL else "keep their size"

    def __str__(self) -> str:
        if not math.isfinite(self.value):
            return "not known"
        interval = f"(95 %: {self.low:.4g} to {self.high:.4g})"
        word = "one initialization has no interval" if self.word == "not known" else f"they {self.word}"
        return f"× {self.value:.4g} a layer in mean square  {interval}: {word}"


@dataclass(frozen=True, repr=False)
class Gradients:
    """Gradients of an ensemble of untrained networks at their first step. Print it.

    `growth` is that of all points; `favoured_growth` and `others_growth` of points whose label is, or is not, the
    class that most points of the batch are put in.
    """

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

    @property
    def word(self) -> Word:
        """vanish, keep their size, or explode, going back."""
        return self.growth.word

    @property
    def contrast(self) -> float:
        """log10 of the favoured class's mean square over the others' at the output: how unequal the first step is."""
        if not self.layers:
            return math.nan
        return self.layers[-1].favoured.value - self.layers[-1].others.value

    @property
    def off_line(self) -> str:
        """Where the growth a layer does not describe the layers, in words; empty where it does."""
        return off_line([layer.all.value for layer in self.layers[:-1]], self.growth.layers)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with NaN and ∞ as text; `Gradients.from_dict` reads it back."""
        return plain(asdict(self) | {"word": self.word, "contrast": self.contrast})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Gradients:
        """The inverse of `to_dict`."""

        def numbers(item: Mapping[str, Any], *whole: str) -> dict[str, Any]:
            return {key: value if key in whole else float(value) for key, value in item.items()}

        layers = [
            GradientLayer(
                layer["name"],
                layer["kind"],
                layer["nodes"],
                *(Level(**numbers(layer[group], "inits", "zeros")) for group in GROUPS),
            )
            for layer in data["layers"]
        ]
        growths = {
            name: Growth(**numbers(data[name], "inits", "layers"))
            for name in ("growth", "favoured_growth", "others_growth")
        }
        return cls(
            tuple(layers),
            **growths,
            favoured_fraction=float(data["favoured_fraction"]),
            findings=tuple(Finding.from_dict(finding) for finding in data["findings"]),
            notes=tuple(data["notes"]),
            provenance=dict(data["provenance"]),
            **{name: data[name] for name in ("inits", "points", "classes", "seed", "seconds")},
        )

    def summary(self) -> list[tuple[str, str]]:
        """Label and value of every headline number."""
        rows = [("network", str(self.provenance["network"]))] if "network" in self.provenance else []
        prepared = self.provenance.get("prepared", "")
        rows += [("data", str(prepared))] if prepared else []
        rows += [
            ("gradients, going back", str(self.growth)),
            ("  of the favoured class", str(self.favoured_growth)),
            ("  of the other classes", str(self.others_growth)),
            ("favoured class's share of guesses", f"{self.favoured_fraction:.4g}  (even split {1 / self.classes:.4g})"),
        ]
        if math.isfinite(self.contrast):
            times = f"{10.0**self.contrast:.3g} of the others' at the output, in mean square"
            rows.append(("favoured class's gradient", times))
        return rows

    def __repr__(self) -> str:
        return f"Gradients({self.inits} initializations, {len(self.layers)} layers, going back they {self.word})"

    def __str__(self) -> str:
        size = f"{self.inits} initializations, {self.points} points, {self.classes} classes"
        remarks = [*(str(finding) for finding in self.findings), *(f"note: {note}" for note in self.notes)]
        return page(f"Gradients ({size}, seed {self.seed})", self.summary(), table=self._table(), remarks=remarks)

    def _table(self) -> list[str]:
        if not self.layers:
            return []
        rows = list(enumerate(self.layers, start=1))
        hidden = max(0, len(rows) - _ROWS)
        head = _ROWS // 2 if hidden else len(rows)
        width = min(24, max(5, *(len(layer.name) for layer in self.layers)))
        lines = [
            "  log10 of the mean square gradient",
            f"  {'':>4} {'layer':<{width}} {'kind':<10} {'all ± s.e.':>15} "
            f"{'favoured':>9} {'others':>9} {'weights':>9}",
        ]
        for i, layer in rows:
            if hidden and i == head + 1:
                lines.append(f"  {'':>4} … {hidden} more")
            if hidden and head < i <= head + hidden:
                continue
            level = f"{layer.all.value:.3f} ± {layer.all.error:.3f}"
            others = " ".join(f"{x.value:>9.3f}" for x in (layer.favoured, layer.others, layer.weight))
            lines.append(f"  {i:>4} {_short(layer.name, width):<{width}} {layer.kind[:10]:<10} {level:>15} {others}")
        return lines

    def _repr_html_(self) -> str:
        def cells(values: Sequence[str], tag: str = "td") -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(value)}</{tag}>" for value in values) + "</tr>"

        body = "".join(cells((label.strip(), value)) for label, value in self.summary())
        body += "".join(cells((f"finding: {f.kind}", f"{f.message} {f.layer}".strip())) for f in self.findings)
        table = cells(("layer", "kind", "nodes", "all", "favoured", "others", "weights"), "th")
        for layer in self.layers:
            levels = [f"{x.value:.3f} ± {x.error:.2g}" for x in (layer.all, layer.favoured, layer.others, layer.weight)]
            table += cells((layer.name, layer.kind, str(layer.nodes), *levels))
        return f"<table>{body}</table><p>log10 of the mean square gradient</p><table>{table}</table>"


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
    """Growth going back, from the mean squares of hidden layers in call order, (inits, layers).

    >>> print(growth_of(np.array([[4.0, 2.0, 1.0], [8.0, 4.0, 2.0], [4.4, 2.0, 1.0]])))
    × 2.032 a layer in mean square  (95 %: 1.898 to 2.176): they explode
    """
    layers = squares.shape[1]
    if layers < 2 or not len(squares):
        return Growth(math.nan, math.nan, math.nan, 0, math.nan, layers)
    away = np.arange(layers) - (layers - 1) / 2
    # A layer without a logarithm leaves its initialization without a slope: part of a network is another network.
    slopes = -(logarithms(squares) @ away) / float(away @ away)
    inits = int(np.isfinite(slopes).sum())
    with np.errstate(invalid="ignore"):
        found = statistics.means(slopes[:, None], level=None)
    value, error = float(found.value[0]), float(found.error[0])
    # Student's t: slopes average over layers and nodes, so they are close to Gaussian; NaN from one initialization.
    half = float(special.stdtrit(inits - 1, 0.975)) * error if inits > 1 else math.nan
    with np.errstate(over="ignore"):
        factor, low, high, total = (float(x) for x in np.exp([value, value - half, value + half, value * (layers - 1)]))
    return Growth(factor, low, high, inits, total, layers)


def off_line(levels: Sequence[float], fitted: int) -> str:
    """Whether one factor a layer describes these log10 mean squares of hidden layers, the last `fitted` of which are
    on the line; empty where it does. A layer that was left out of the line is held against it too.

    >>> off_line([-6.39, -6.87, -6.11, -5.33], 3)
    'the first layer, which the slope leaves out, is off its line by a factor of 18'
    >>> off_line([-4.0, -3.0, -2.0, -1.0], 3)
    ''
    """
    level = np.array(levels)
    if fitted < _LINE or len(level) < fitted or not np.isfinite(level).all():
        return ""
    depth = np.arange(len(level))
    rest = level - np.polyval(np.polyfit(depth[-fitted:], level[-fitted:], 1), depth)
    words: list[str] = []
    if (size := float(np.std(rest[-fitted:]))) > _EVEN:
        words.append(f"layers are off the line by a factor of {10**size:.2g}: no one factor a layer describes them")
    # Left out because its scale is that of the data; a reader of "a layer" takes it to be on the line all the same.
    for number, gap in enumerate(np.abs(rest[:-fitted]), start=1):
        if gap > _EVEN:
            place = "the first layer" if number == 1 else f"layer {number}"
            words.append(f"{place}, which the slope leaves out, is off its line by a factor of {10**gap:.2g}")
    return "; ".join(words)


def _short(text: str, width: int) -> str:
    if len(text) <= width:
        return text
    keep = width - 1
    return f"{text[: keep // 2]}…{text[len(text) - (keep - keep // 2) :]}"
