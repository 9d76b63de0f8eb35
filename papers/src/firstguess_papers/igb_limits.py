"""IGB App. C, Remark 1, and MF: limits are taken in an order (dimension, widths, data, depth). Is it needed?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import firstguess as fg
from firstguess_papers.charts import lines, predicted
from firstguess_papers.items import Entry, Outcome, item
from firstguess_papers.judging import Number, Truth, entry, same
from firstguess_papers.running import Run
from firstguess_papers.tables import columns, std

ROOM = 0.02  # of the standard deviation of G₀: a tenth of that after one ReLU layer
RATIOS = (1 / 16, 1 / 4, 1.0, 4.0, 16.0)
WIDTHS, LAYERS, DATA, DEPTH = "N₁/d", "N₂/N₁", "n/N", "depth/N"
# LayerNorm after ReLU, theory.md §12: C' and C'' at 0 (the fourth derivative is C'' again), derivatives of a node's
# bias and variance, its skewness
C1, C2 = 0.733471, 0.466942
B1, B2 = -0.215233, -2.251031
S1, S2 = 1.369954, -2.449870
SKEW = 1.640561


@dataclass(frozen=True)
class LimitRow:
    """The standard deviation of G₀ in one setting: of which sweep, at what ratio of sizes, and what theory says."""

    sweep: str
    ratio: float
    label: str  # of the series
    sizes: str
    found: Number
    theory: float  # closed form, all sizes infinite but for the data points
    finite: float = math.nan  # theory.md (42), where there is one

    @property
    def holds(self) -> Truth:
        return same(self.found, self.theory, room=ROOM)


def finite_std(depth: int, width: int, dimensions: int, points: int) -> float:
    """Standard deviation of G₀ with LayerNorm after ReLU at finite sizes: theory.md (42), and (41) for n points.

    e, v, k are mean, variance and third moment of the overlap of two points, over pairs of them and networks.

    >>> print(f"{finite_std(2, 100, 100, 600):.7f}")  # theory.md §12
    0.0354641
    """
    n, e, v, k = width, 0.0, 1.0 / dimensions, 0.0
    for _ in range(depth):
        slope = C1 + C2 * e
        e, v, k = (
            C1 * e + 0.5 * C2 * (e * e + v) + C2 * v * v / 8 + (B1 * e + 0.5 * B2 * v) / n,
            slope**2 * v + slope * C2 * k + 0.5 * C2**2 * v * v + 2 * C1 * B1 * v / n
            + 1 / (n - 1) + (S1 * e + 0.5 * S2 * (v + e * e)) / n,
            slope**3 * k + 3 * C1**2 * C2 * v * v + 3 * C1 * S1 * v / n + SKEW**2 / n**2,
        )  # fmt: skip
    angle = e + (e**3 + 3 * e * v + k) / 6
    return math.sqrt(0.25 / points + (1 - 1 / points) * angle / (2 * math.pi))


def pair(smaller: int, ratio: float) -> tuple[int, int]:
    """Two sizes, the second `ratio` times the first, of which the smaller one is given.

    >>> pair(40, 4.0), pair(40, 0.25)
    ((40, 160), (160, 40))
    """
    return (smaller, round(smaller * ratio)) if ratio >= 1 else (round(smaller / ratio), smaller)


def judge(seen: Sequence[LimitRow]) -> Entry:
    """I19: the same law at every ratio of sizes; without a limit also for networks deeper than wide."""
    core = [s for s in seen if s.sweep != DEPTH]
    beyond = [s for s in seen if s.sweep == DEPTH]
    worst = {w: max((s for s in seen if s.sweep == w), key=lambda s: abs(s.found.value - s.theory))
             for w in dict.fromkeys(s.sweep for s in seen)}  # fmt: skip
    said = "; ".join(f"{w}: largest departure {s.found} against {s.theory:.4f} ({s.sizes})" for w, s in worst.items())
    far = worst.get(DEPTH)
    explained = f", where theory.md (42) says {far.finite:.4f}" if far and math.isfinite(far.finite) else ""
    return entry(
        "I19",
        f"no order is needed: std of G₀ is within {ROOM} of the closed form whichever of dimension and width "
        "(1/16 to 16), of two widths (1/16 to 16), of data points and width (1/16 to 16) is larger; without a limit "
        "also for LayerNorm after ReLU and plain ReLU up to as many layers as nodes",
        said,
        [s.holds for s in core],
        within=[s.holds for s in beyond],
        limit="sizes may be in any order, but depth must not come before width: deep networks depart "
        + (f"({far.label}, {far.sizes}: {far.found} against {far.theory:.4f}{explained})" if far else ""),
        headline=f"largest departure from theory in any order: {max(abs(s.found.value - s.theory) for s in core):.3f}",
        otherwise="at some ratio of sizes the law departs: "
        + "; ".join(f"{s.sweep} = {s.ratio:g} ({s.sizes})" for s in core if s.holds is False),
    )


def _seen(run: Run) -> list[LimitRow]:

    smaller, n, inits, few = run.take("smaller n inits few")
    found: list[LimitRow] = []

    def add(
        sweep: str, ratio: float, label: str, sizes: str, text: str, points: int, d: int, finite: float = math.nan
    ) -> None:
        x = fg.data.blob(points, d, seed=run.seed)
        many = few if sweep == DEPTH else inits
        m = run.measure(text, x, inits=many, probe="output", classes=2, label=f"{sweep}: {sizes}")
        theory = fg.Guesses(float(fg.predict(text).gamma[-1]), 2, points).std()
        found.append(LimitRow(sweep, ratio, label, sizes, std(m), theory, finite))

    def layers(*widths: int) -> str:
        return " > ".join(f"dense(weight_var=2, width={w}) > relu" for w in widths) + " > dense(weight_var=2)"

    for size in smaller:
        for ratio in RATIOS:
            one, two = pair(size, ratio)
            label = f"smaller size {size}"
            add(WIDTHS, ratio, label, f"d = {one}, N₁ = {two}", layers(two), n, one)
            add(LAYERS, ratio, label, f"N₁ = {one}, N₂ = {two}", layers(one, two), n, 500)
            add(DATA, ratio, label, f"N = {one}, n = {two}", layers(one), two, 500)
    width = 60
    for depth in (1, 5, 20, 60):
        for label, block in (("LayerNorm after ReLU", "relu > layernorm"), ("plain ReLU", "relu")):
            text = f"{depth} x [dense(weight_var=2, width={width}) > {block}] > dense(weight_var=2)"
            finite = finite_std(depth, width, 500, n) if "layernorm" in block else math.nan
            add(DEPTH, depth / width, label, f"{depth} layers of {width}", text, n, 500, finite)
    return found


@item(
    "igb/limits",
    "Must dimension, widths, data and depth grow in an order?",
    claims=("I19",),
    where="IGB App. C, Remark 1; MF",
    about="ReLU, Kaiming, random data ({n} points), two classes. One hidden layer: width/dimension from 1/16 to 16, "
    "and data points/width likewise; two hidden layers: ratio of their widths likewise (smaller size {smaller}); "
    "{inits} networks each. Depth: 1 to 60 layers of 60, {few} networks each, plain and with LayerNorm after ReLU. "
    "Sizes are ours.",
    quick=dict(smaller=(40,), n=300, inits=300, few=100),
    full=dict(smaller=(40, 160), n=500, inits=800, few=400),
    seconds=(14, 110),
)
def limits(run: Run) -> Outcome:
    """I19: std of G₀ against the closed form, over ratios of sizes."""

    seen = _seen(run)
    found = judge(seen)
    headings = {
        WIDTHS: "Width / dimension", LAYERS: "Second width / first width", DATA: "Data points / width",
        DEPTH: "Depth / width",
    }  # fmt: skip
    rows: list[dict[str, Any]] = [
        {"sweep": s.sweep, "ratio": s.ratio, "series": s.label, "sizes": s.sizes, "std": s.found, "theory": s.theory}
        | {"finite_width": s.finite}
        for s in seen
    ]
    far = [row for row in rows if math.isfinite(row["finite_width"])]
    finite = predicted("finite width, theory.md (42)", [r["ratio"] for r in far], [r["finite_width"] for r in far])
    chart = lines(
        [row | {"sweep": headings[row["sweep"]]} for row in rows], "ratio", "std", by="series", panel="sweep",
        also={headings[DEPTH]: [finite]}, title="Sizes in every order: spread of the guesses beside theory",
        x_title="Ratio of the two sizes", x_scale="log", y_domain=(0.0, 0.55), dodge=False, height=230,
    )  # fmt: skip
    return Outcome([found], {"ratios": columns(rows)}, {"ratios": chart}, ["All sizes are ours."], {
        "ratios": "Dimension, widths and data may grow in any order: the distribution of the guesses stays",
    })  # fmt: skip
