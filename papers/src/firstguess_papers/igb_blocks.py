"""IGB on single blocks: constants (App. G.3), pools (§4.2), weights (§3), the order of limits (App. C)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import integrate, special

import firstguess as fg
from firstguess_papers.charts import (
    EVEN,
    FLIPS,
    KAIMING,
    beyond_flips,
    deep,
    dots,
    gamma,
    gammas,
    layer_lines,
    line,
    lines,
    predicted,
    std,
)
from firstguess_papers.items import Entry, Holds
from firstguess_papers.judging import Check, Number, check, claimed
from firstguess_papers.measured import Cell, Found, measured
from firstguess_papers.norm import NEUTRAL, ROOM, beyond_even

CONSTANTS = (0.0, 0.25, 0.5, 1.0, 2.0)
NO_BIAS = 0.02  # γ that we cannot tell from none
PLAIN, WHOLE, BATCHES = "ReLU", "minus the mean of all data", "minus the mean of a batch of 16"
BLOCKS = {PLAIN: "relu", WHOLE: "relu > batchcenter", BATCHES: "relu > batchcenter(batch=16)"}


def judge_shift(found: Sequence[Number], theory: Sequence[float]) -> Entry:
    """I22, first half: γ of tanh + constant, over `CONSTANTS`."""
    return claimed(
        "I22", "γ of tanh plus a constant",
        [check("constant 0", found[0], near=0.0, room=NO_BIAS),
         *(check(f"constant {a:g}", two, above=one, than="at the constant before")
           for a, (one, two) in zip(CONSTANTS[1:], pairwise(found), strict=True))],
        within=[check(f"constant {a:g}", g, near=t, room=0.02 + 0.1 * t, than="within 10 % + 0.02 of the closed form")
                for a, g, t in zip(CONSTANTS, found, theory, strict=True)],
        headline=f"tanh + {CONSTANTS[3]:g}: γ = {found[3]}",
    )  # fmt: skip


def judge_centre(found: Mapping[str, Sequence[Number]], left: Mapping[str, Number]) -> Entry:
    """I22, second half: γ by depth of ReLU, and with the batch's own mean taken off; `left` is beyond coin flips."""

    def even(name: str) -> list[Check]:
        return [
            check(f"{name}, γ at every depth", found[name], near=0.0, room=EVEN),
            check(f"{name}, largest fraction beyond flips", left[name], below=FLIPS),
        ]

    plain = found[PLAIN]
    return claimed(
        "I22", f"γ after 1 to {len(plain)} layers, and how far the largest of ten fractions is beyond coin flips",
        [check(f"{PLAIN}, one layer", plain[0], above=EVEN),
         check(f"{PLAIN}, all layers", plain[-1], above=plain[0], than="one layer's"),
         check(f"{PLAIN}, largest fraction beyond flips", left[PLAIN], above=FLIPS), *even(WHOLE)],
        within=even(BATCHES),
        headline=f"largest fraction beyond coin flips: {left[PLAIN]} → {left[WHOLE]}",
        limit="with the means of small batches some bias is left",
    )  # fmt: skip


SHIFTED_CONSTANTS = {a: f"{KAIMING} > tanh > shift({a:g}) > {KAIMING}" for a in CONSTANTS}


def _quantities(c: Found) -> dict[str, Any]:
    shifted = [line("tanh + constant", gamma(c[a]), at=a, theory=float(fg.predict(text).gamma[-1]))
               for a, text in SHIFTED_CONSTANTS.items()]  # fmt: skip
    found = {(name,): gammas(c[name]) for name in BLOCKS}
    theory = {(name,): fg.predict(deep(block, c.depth)).gamma[1:] for name, block in BLOCKS.items() if name != BATCHES}
    known = layer_lines({key: found[key] for key in theory}, ["name"], theory)
    rest = layer_lines({(BATCHES,): found[BATCHES,]}, ["name"])
    return {"shifted": shifted, "found": {name: g for (name,), g in found.items()}, "by_depth": [*known, *rest]}


constants = measured(
    "igb/constants", "A constant brings bias, a batch's own mean takes it away", "IGB App. G.3", claims=("I22",),
    about="tanh + 0 to 2, one hidden layer of {width}; ReLU without and with its batch's mean taken off (all {n} "
    "points, or batches of 16), {depth} layers of {width} and one more (our sizes); Kaiming, blobs of that dimension; "
    "{inits} networks of ten outputs each.",
    quick=dict(width=200, n=320, inits=200, depth=6),
    full=dict(width=500, n=640, inits=300, depth=6),
    seconds=(8, 60),
    measure={"classes": 10},
    cells=lambda c: {a: Cell(text, c.blob(c.n, c.width)) for a, text in SHIFTED_CONSTANTS.items()} | {
        name: Cell(deep(block, c.depth + 1), c.blob(c.n, c.width), {"probe": "weights"})
        for name, block in BLOCKS.items()
    },
    quantities=_quantities,
    judge=lambda c: [
        judge_shift([row["value"] for row in c.shifted], [row["theory"] for row in c.shifted]),
        judge_centre(c.found, {name: beyond_flips(c[name]) for name in BLOCKS}),
    ],
    tables=lambda c: {
        "constants": c.shifted,
        "centred": [{name: row[name] for name in ("name", "depth", "value")} for row in c.by_depth],
    },
    charts=lambda c: {
        "centred": lines(c.by_depth, "depth", title="ReLU minus its batch's own mean: γ by depth"),
        "constants": lines(
            c.shifted, "at", title="tanh plus a constant: γ of the output", x_title="Constant added after tanh"
        ),
    },
    holds={
        "constants": Holds("A constant gives an odd activation bias", entries=(0,)),
        "centred": Holds("Taking a batch's own mean off keeps ReLU even at every depth", entries=(1,)),
    },
)  # fmt: skip


PHI = {
    "linear": "linear", "tanh": "tanh", "erf": "erf", "sin": "sin", "ReLU": "relu", "ReLU − mean": "centered(relu)",
    "GELU": "gelu",
}  # fmt: skip
POOLS = {"no pool": "", "average of 4": "avgpool(4)", "largest of 2": "maxpool(2)", "largest of 4": "maxpool(4)"}
SHIFTED_POOLING = "tanh − pooled mean"


@dataclass(frozen=True)
class Block:
    """An activation with a pool: γ measured after one such layer, what the criterion says, and the closed form's γ."""

    activation: str
    pool: str
    text: str
    causes: bool
    found: Number
    theory: float | None

    def biased(self, yes: bool, least: float = 0.0) -> Check:
        """Whether γ is above `least`, or 0."""
        name = f"{self.activation}, {self.pool}"
        return check(name, self.found, above=least) if yes else check(name, self.found, near=0.0, room=NO_BIAS)


def judge_pooling(blocks: Sequence[Block]) -> list[Entry]:
    """I21: odd and linear nodes get bias from max-pooling and from nothing else here; all as the criterion says."""
    odd = [b for b in blocks if b.activation in ("linear", "tanh", "erf", "sin")]
    return [
        claimed("I21", "odd activations, γ", [b.biased(b.pool.startswith("largest"), NO_BIAS) for b in odd]),
        claimed(
            "I21", "γ is above 0 exactly where the mean of the pooled nodes is not 0 (fg.causes_bias), with tanh minus "
            "the mean of the largest of two among them: biased by itself, not with the pool",
            [b.biased(b.causes) for b in blocks],
            within=[check(f"{b.activation}, {b.pool}", b.found, near=b.theory, room=0.02 + 0.1 * b.theory,
                          than="within 10 % + 0.02 of the closed form") for b in blocks if b.theory is not None],
            limit="at this width some depart from theory by more", otherwise="not as the criterion says",
        ),
    ]  # fmt: skip


def pooled_mean(activation: str, pool: int, q: float = 2.0) -> float:
    """The mean of the largest of K activated nodes, for a φ that never decreases: E φ(√q · max z), by quadrature.

    >>> print(f"{pooled_mean('linear', 2, 1.0):.6f}")  # 1/√π
    0.564190
    """
    z = np.linspace(-12.0, 12.0, 24_001)
    weight = pool * special.ndtr(z) ** (pool - 1) * np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    return float(integrate.simpson(fg.activation(activation)(np.sqrt(q) * z) * weight, x=z))


def texts() -> dict[tuple[str, str], str]:
    """All blocks, by activation and pool."""
    found = {(a, p): " > ".join(filter(None, (phi, pool))) for a, phi in PHI.items() for p, pool in POOLS.items()}
    shift = f"shift({-pooled_mean('tanh', 2):.12g})"
    found[SHIFTED_POOLING, "no pool"] = f"tanh > {shift}"
    found[SHIFTED_POOLING, "largest of 2"] = f"tanh > maxpool(2) > {shift}"  # the same as taking it off before
    return found


def _block(c: Found, activation: str, pool: str, text: str) -> Block:
    try:
        theory = float(fg.predict(f"{KAIMING} > {text} > {KAIMING}").gamma[-1])
    except fg.NotCovered:
        theory = None
    return Block(activation, pool, text, bool(fg.causes_bias(text, q=2.0)), gamma(c[activation, pool]), theory)


pooling = measured(
    "igb/pooling", "Bias comes from activation and pooling together", "IGB §4.2, eq. 16", claims=("I21",),
    about="One hidden layer of {nodes} pooled nodes (our size), Kaiming: seven activations × no pool, average of 4, "
    "largest of 2 and of 4, and tanh minus the mean of the largest of two; blobs in {d} dimensions, {n} points; "
    "{inits} networks of ten outputs each.",
    quick=dict(d=200, n=300, inits=150, nodes=150),
    full=dict(d=500, n=500, inits=300, nodes=300),
    seconds=(12, 80),
    measure={"classes": 10},
    cells=lambda c: {
        (a, p): Cell(f"{KAIMING} > {text} > {KAIMING}", c.blob(c.n, c.d),
                     {"width": c.nodes * (4 if "4" in p else 2 if "2" in p else 1)})
        for (a, p), text in texts().items()
    },
    quantities=lambda c: {"blocks": [_block(c, *key, text) for key, text in texts().items()]},
    judge=lambda c: judge_pooling(c.blocks),
    tables=lambda c: {"blocks": [
        {"activation": b.activation, "pool": b.pool, "text": b.text, "causes": b.causes, "gamma": b.found,
         "theory": b.theory} for b in c.blocks
    ]},
    charts=lambda c: {"blocks": dots(
        [vars(b) | {"gamma": b.found} for b in c.blocks], "activation", "gamma", panel="pool",
        x_domain=(-0.1, 1.05 * max(b.found.value + 2 * b.found.error for b in c.blocks)),
    )},
    holds={"blocks": Holds("Max-pooling biases odd activations: what counts is the mean after the pool", entries=(1,))},
    notes=["Max-pools of GELU and sin, which fall somewhere, have no closed form."],
)  # fmt: skip


LAWS = ("normal", "uniform", "rademacher", "laplace", "orthogonal", "student(5)", "student(3)", "student(1.5)")
SLOW, ENDLESS = "student(3)", "student(1.5)"  # no fourth moment; no variance
NAMES = {
    "normal": "Gaussian", "uniform": "uniform", "rademacher": "±1 (Rademacher)", "laplace": "Laplace",
    "orthogonal": "orthogonal", "student(5)": "Student t, 5 degrees", SLOW: "Student t, 3 (no 4th moment)",
    ENDLESS: "Student t, 1.5 (no variance)",
}  # fmt: skip
DEPTH_WEIGHTS = 3
Found_weights = Mapping[tuple[str, int], Number]  # (law, width)


def network(law: str, block: str = "relu") -> str:
    """Three hidden layers with weights of this law everywhere, Kaiming variances."""
    dense = f"dense(weight_var=2, init={law})"
    return f"{DEPTH_WEIGHTS} x [{dense} > {block}] > {dense}"


def judge_weights(plain: Found_weights, cured: Mapping[str, Number], theory: float) -> list[Entry]:
    """I20: `plain` is std of G₀ by law and width, `cured` what LayerNorm after ReLU leaves beyond even guesses."""
    widest = max(width for _, width in plain)

    def usual(law: str) -> list[Check]:
        return [
            check(NAMES[law], plain[law, widest], near=theory, room=ROOM, than="the closed form"),
            *([check(f"{NAMES[law]}, LayerNorm after", cured[law], below=NEUTRAL)] if law in cured else []),
        ]

    endless = {width: value for (law, width), value in plain.items() if law == ENDLESS}
    other = [check(f"plain, width {width}", value, near=theory, room=ROOM) for width, value in endless.items()]
    return [
        claimed(
            "I20", f"three ReLU layers of {widest}, std of G₀, and with LayerNorm after beyond even guesses",
            [one for law in LAWS if law not in (SLOW, ENDLESS) for one in usual(law)], within=usual(SLOW),
            limit="with a variance but no fourth moment the limit is not reached at this width",
            otherwise="another law for",
        ),
        claimed(
            "I20", "without a variance (Student, 1.5 degrees) LayerNorm after ReLU leaves bias, where theory has none",
            [check("beyond even guesses", cured[ENDLESS], above=NEUTRAL)],
            within=[replace(one, asked=f"not {one.asked}", truth=None if one.truth is None else not one.truth)
                    for one in other],
            limit="what breaks is the cure; the plain network's spread is about the same without a variance",
            otherwise="even without a variance LayerNorm after ReLU leaves no bias",
        ),
    ]  # fmt: skip


weight_laws = measured(
    "igb/weight_laws", "Weights of any law with the same variance", "IGB §3; NORM §2", claims=("I20",),
    about="Eight laws of weights, three ReLU layers, Kaiming variances; blobs in {d} dimensions, {n} points; networks "
    "each by width (our sizes): {sizes}. LayerNorm after ReLU at width {wide}: {after} networks each.",
    quick=dict(d=150, n=300, sizes={40: 150, 150: 200}, wide=150, after=150),
    full=dict(d=300, n=300, sizes={50: 500, 200: 500, 600: 250}, wide=200, after=250),
    seconds=(15, 110),
    measure={"classes": 2},
    cells=lambda c: {
        (law, width): Cell(network(law), c.blob(c.n, c.d), {"inits": inits, "width": width})
        for law in LAWS for width, inits in c.sizes.items()
    } | {
        law: Cell(network(law, "relu > layernorm"), c.blob(c.n, c.d), {"inits": c.after, "width": c.wide})
        for law in LAWS
    },
    quantities=lambda c: {
        "plain": {key: std(m) for key, m in c.cells.items() if isinstance(key, tuple)},
        "cured": {law: beyond_even(c[law]) for law in LAWS},
        "theory": fg.Guesses(float(fg.predict(network("normal")).gamma[-1]), 2, c.n).std(),
    },
    judge=lambda c: judge_weights(c.plain, c.cured, c.theory),
    tables=lambda c: {"laws": [
        {"law": law, "width": width, "std": found, "theory": c.theory} for (law, width), found in c.plain.items()
    ]},
    charts=lambda c: {"laws": dots(
        [{"panel": "Plain ReLU", "law": NAMES[law], "width": f"width {width}", "std": found, "theory": c.theory}
         for (law, width), found in c.plain.items()]
        + [{"panel": "LayerNorm after ReLU: beyond even", "law": NAMES[law], "width": f"width {c.wide}", "std": found,
            "theory": 0.0} for law, found in c.cured.items()],
        "law", "std", by="width", panel="panel", x_domain=(-0.02, 0.42),
    )},
    holds={"laws": Holds("The distribution of the weights does not matter while tails are light", entries=(0,))},
    notes=["Student weights of 1.5 degrees have no variance: scaled by N^(−1/1.5), with which sums neither vanish nor "
           "grow."],
)  # fmt: skip


ROOM_LIMITS = 0.02  # of the standard deviation of G₀: a tenth of that after one ReLU layer
RATIOS = (1 / 16, 1 / 4, 1.0, 4.0, 16.0)
WIDTHS, LAYERS, DATA, DEPTH_LIMITS = "N₁/d", "N₂/N₁", "n/N", "depth/N"
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
    def check(self) -> Check:
        """Whether it is the closed form's."""
        name = f"{self.label}, {self.sizes}"
        one = check(name, self.found, near=self.theory, room=ROOM_LIMITS, than="the closed form")
        known = "" if math.isnan(self.finite) else f", theory.md (42) {self.finite:.4f}"
        return replace(one, found=one.found + known)


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


def judge_limits(seen: Sequence[LimitRow]) -> Entry:
    """I19: the same law at every ratio of sizes; without a limit also for networks deeper than wide."""
    core = [s for s in seen if s.sweep != DEPTH_LIMITS]
    return claimed(
        "I19", "no order is needed: std of G₀ whichever of two sizes is larger, 16 times",
        [s.check for s in core], within=[s.check for s in seen if s.sweep == DEPTH_LIMITS],
        limit="sizes may be in any order, but depth must not come before width: deep networks depart",
        headline=f"largest departure from theory in any order: {max(abs(s.found.value - s.theory) for s in core):.3f}",
    )  # fmt: skip


def _limit_cells(c: Found) -> dict[Any, Cell]:
    """By sweep, ratio, series and sizes."""
    cells: dict[Any, Cell] = {}

    def add(sweep: str, ratio: float, label: str, sizes: str, text: str, points: int = 0, d: int = 500) -> None:
        options = {"inits": c.few if sweep == DEPTH_LIMITS else c.inits, "classes": 2}
        cells[sweep, ratio, label, sizes] = Cell(text, c.blob(points or c.n, d), options)

    def layers(*widths: int) -> str:
        return " > ".join(f"dense(weight_var=2, width={w}) > relu" for w in widths) + " > dense(weight_var=2)"

    for size in c.smaller:
        for ratio in RATIOS:
            one, two = pair(size, ratio)
            label = f"smaller size {size}"
            add(WIDTHS, ratio, label, f"d = {one}, N₁ = {two}", layers(two), d=one)
            add(LAYERS, ratio, label, f"N₁ = {one}, N₂ = {two}", layers(one, two))
            add(DATA, ratio, label, f"N = {one}, n = {two}", layers(one), two)
    for depth in (1, 5, 20, 60):
        for label, block in ((LAYER_NORM, "relu > layernorm"), ("plain ReLU", "relu")):
            text = f"{depth} x [dense(weight_var=2, width=60) > {block}] > dense(weight_var=2)"
            add(DEPTH_LIMITS, depth / 60, label, f"{depth} layers of 60", text)
    return cells


def _seen(c: Found) -> list[LimitRow]:
    found: list[LimitRow] = []
    for ((sweep, ratio, label, sizes), cell), m in zip(_limit_cells(c).items(), c.cells.values(), strict=True):
        theory = fg.Guesses(float(fg.predict(cell.what).gamma[-1]), 2, m.points).std()
        finite = finite_std(round(60 * ratio), 60, 500, c.n) if label == LAYER_NORM else math.nan
        found.append(LimitRow(sweep, ratio, label, sizes, std(m), theory, finite))
    return found


LAYER_NORM = "LayerNorm after ReLU"
HEADINGS = {
    WIDTHS: "Width / dimension", LAYERS: "Second width / first width", DATA: "Data points / width",
    DEPTH_LIMITS: "Depth / width",
}  # fmt: skip


def _limits_chart(rows: list[dict[str, Any]]) -> Any:
    far = [row for row in rows if math.isfinite(row["finite_width"])]
    finite = predicted("finite width, theory.md (42)", [r["ratio"] for r in far], [r["finite_width"] for r in far])
    return lines(
        [row | {"sweep": HEADINGS[row["sweep"]]} for row in rows], "ratio", "std", by="series", panel="sweep",
        also={HEADINGS[DEPTH_LIMITS]: [finite]}, title="Sizes in every order: spread of the guesses beside theory",
        x_title="Ratio of the two sizes", x_scale="log", y_domain=(0.0, 0.55), dodge=False, height=230,
    )  # fmt: skip


limits = measured(
    "igb/limits", "Must dimension, widths, data and depth grow in an order?", "IGB App. C, Remark 1; MF",
    claims=("I19",),
    about="ReLU, Kaiming, random data ({n} points), two classes. One hidden layer: width/dimension from 1/16 to 16, "
    "and data points/width likewise; two hidden layers: ratio of their widths likewise (smaller size {smaller}); "
    "{inits} networks each. Depth: 1 to 60 layers of 60, {few} networks each, plain and with LayerNorm after ReLU. "
    "Sizes are ours.",
    quick=dict(smaller=(40,), n=300, inits=300, few=100),
    full=dict(smaller=(40, 160), n=500, inits=800, few=400),
    seconds=(14, 110),
    cells=_limit_cells,
    quantities=lambda c: {"seen": _seen(c)},
    judge=lambda c: [judge_limits(c.seen)],
    tables=lambda c: {"ratios": _limit_rows(c.seen)},
    charts=lambda c: {"ratios": _limits_chart(_limit_rows(c.seen))},
    holds={"ratios": "Dimension, widths and data may grow in any order: the distribution of the guesses stays"},
)  # fmt: skip


def _limit_rows(seen: Sequence[LimitRow]) -> list[dict[str, Any]]:
    return [
        {"sweep": s.sweep, "ratio": s.ratio, "series": s.label, "sizes": s.sizes, "std": s.found, "theory": s.theory}
        | {"finite_width": s.finite}
        for s in seen
    ]
