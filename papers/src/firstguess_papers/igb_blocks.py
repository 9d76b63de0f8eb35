"""IGB on single blocks: constants (App. G.3), pools (§4.2), weights (§3), the order of limits (App. C)."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import integrate, special

import firstguess as fg
from firstguess_papers import charts
from firstguess_papers.charts import EVEN, FLIPS, KAIMING, deep, dots, gamma, gammas, grid, lines, std, theory_gamma
from firstguess_papers.items import Holds, Item
from firstguess_papers.judging import Check, biased, check, claimed, close
from firstguess_papers.measured import Cell, Found
from firstguess_papers.norm import NEUTRAL, ROOM, beyond_even

CONSTANTS = (0.0, 0.25, 0.5, 1.0, 2.0)
NO_BIAS = 0.02  # γ that we cannot tell from none
PLAIN, WHOLE, BATCHES = "ReLU", "minus the mean of all data", "minus the mean of a batch of 16"
BLOCKS = {PLAIN: "relu", WHOLE: "relu > batchcenter", BATCHES: "relu > batchcenter(batch=16)"}
SHIFTED = {a: f"{KAIMING} > tanh > shift({a:g}) > {KAIMING}" for a in CONSTANTS}


def _is_even(c: Found, name: str) -> list[Check]:
    return [
        check(f"{name}, γ at every depth", c.found[name], near=0.0, room=EVEN),
        check(f"{name}, largest fraction beyond flips", c.left[name], below=FLIPS),
    ]


constants = Item(
    "igb/constants", "A constant brings bias, a batch's own mean takes it away", "IGB App. G.3", claims=("I22",),
    about="tanh + 0 to 2, one hidden layer of {width}; ReLU without and with its batch's mean taken off (all {n} "
    "points, or batches of 16), {depth} layers of {width} and one more (our sizes); Kaiming, blobs of that dimension; "
    "{inits} networks of ten outputs each.",
    quick=dict(width=200, n=320, inits=200, depth=6),
    full=dict(width=500, n=640, inits=300, depth=6),
    seconds=(8, 60), measure={"classes": 10},
    cells=lambda c: {a: Cell(text, c.blob(c.n, c.width)) for a, text in SHIFTED.items()} | {
        name: Cell(deep(block, c.depth + 1), c.blob(c.n, c.width), {"probe": "weights"})
        for name, block in BLOCKS.items()
    },
    quantities=lambda c: {
        "shifted": {a: gamma(c[a]) for a in CONSTANTS},
        "theory": {a: theory_gamma(text) for a, text in SHIFTED.items()},
        "found": {name: gammas(c[name]) for name in BLOCKS},
        "left": {name: charts.beyond_flips(c[name]) for name in BLOCKS},
    },
    judge=lambda c: [
        claimed(
            "I22", "γ of tanh plus a constant",
            [check("constant 0", c.shifted[0.0], near=0.0, room=NO_BIAS),
             *(check(f"constant {b:g}", c.shifted[b], above=c.shifted[a], than="at the constant before")
               for a, b in pairwise(CONSTANTS))],
            within=[close(f"constant {a:g}", c.shifted[a], c.theory[a], 0.1, 0.02, to="the closed form")
                    for a in CONSTANTS],
            headline=f"tanh + 1: γ = {c.shifted[1.0]}",
        ),
        claimed(
            "I22", f"γ after 1 to {len(c.found[PLAIN])} layers, and how far the largest of ten fractions is beyond "
            "coin flips",
            [check(f"{PLAIN}, one layer", c.found[PLAIN][0], above=EVEN),
             check(f"{PLAIN}, all layers", c.found[PLAIN][-1], above=c.found[PLAIN][0], than="one layer's"),
             check(f"{PLAIN}, largest fraction beyond flips", c.left[PLAIN], above=FLIPS), *_is_even(c, WHOLE)],
            within=_is_even(c, BATCHES),
            headline=f"largest fraction beyond coin flips: {c.left[PLAIN]} → {c.left[WHOLE]}",
            limit="with the means of small batches some bias is left",
        ),
    ],
    tables=lambda c: {
        "constants": grid("at", value=c.shifted, name=lambda _: "tanh + constant", theory=c.theory),
        "centred": grid("name depth", value=c.found),
    },
    charts=lambda c: {
        "centred": lines(
            grid("name depth", value=c.found,
                 theory={name: fg.predict(deep(BLOCKS[name], c.depth)).gamma[1:] for name in (PLAIN, WHOLE)}),
            "depth", title="ReLU minus its batch's own mean: γ by depth",
        ),
        "constants": lines(
            c.tables["constants"], "at", title="tanh plus a constant: γ of the output",
            x_title="Constant added after tanh",
        ),
    },
    holds={
        "constants": Holds("A constant gives an odd activation bias", entries=(0,)),
        "centred": Holds("Taking a batch's own mean off keeps ReLU even at every depth", entries=(1,)),
    },
)  # fmt: skip


ODD = {"linear": "linear", "tanh": "tanh", "erf": "erf", "sin": "sin"}
PHI = {**ODD, "ReLU": "relu", "ReLU − mean": "centered(relu)", "GELU": "gelu"}
POOLS = {"no pool": "", "average of 4": "avgpool(4)", "largest of 2": "maxpool(2)", "largest of 4": "maxpool(4)"}
SHIFTED_POOLING = "tanh − pooled mean"


def pooled_mean(activation: str, pool: int, q: float = 2.0) -> float:
    """The mean of the largest of K activated nodes, for a φ that never decreases: E φ(√q · max z), by quadrature.

    >>> print(f"{pooled_mean('linear', 2, 1.0):.6f}")  # 1/√π
    0.564190
    """
    z = np.linspace(-12.0, 12.0, 24_001)
    weight = pool * special.ndtr(z) ** (pool - 1) * np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    return float(integrate.simpson(fg.activation(activation)(np.sqrt(q) * z) * weight, x=z))


def _texts() -> dict[tuple[str, str], str]:
    """All blocks, by activation and pool."""
    found = {(a, p): " > ".join(filter(None, (phi, pool))) for a, phi in PHI.items() for p, pool in POOLS.items()}
    shift = f"shift({-pooled_mean('tanh', 2):.12g})"
    found[SHIFTED_POOLING, "no pool"] = f"tanh > {shift}"
    found[SHIFTED_POOLING, "largest of 2"] = f"tanh > maxpool(2) > {shift}"  # the same as taking it off before
    return found


def _closed_form(block: str) -> float | None:
    try:
        return theory_gamma(f"{KAIMING} > {block} > {KAIMING}")
    except fg.NotCovered:
        return None


pooling = Item(
    "igb/pooling", "Bias comes from activation and pooling together", "IGB §4.2, eq. 16", claims=("I21",),
    about="One hidden layer of {nodes} pooled nodes (our size), Kaiming: seven activations × no pool, average of 4, "
    "largest of 2 and of 4, and tanh minus the mean of the largest of two; blobs in {d} dimensions, {n} points; "
    "{inits} networks of ten outputs each.",
    quick=dict(d=200, n=300, inits=150, nodes=150),
    full=dict(d=500, n=500, inits=300, nodes=300),
    seconds=(12, 80), measure={"classes": 10},
    cells=lambda c: {
        (a, p): Cell(f"{KAIMING} > {text} > {KAIMING}", c.blob(c.n, c.d),
                     {"width": c.nodes * (4 if "4" in p else 2 if "2" in p else 1)})
        for (a, p), text in _texts().items()
    },
    quantities=lambda c: {"blocks": [
        {"activation": a, "pool": p, "text": text, "causes": bool(fg.causes_bias(text, q=2.0)), "gamma": gamma(c[a, p]),
         "theory": _closed_form(text)} for (a, p), text in _texts().items()
    ]},
    judge=lambda c: [
        claimed("I21", "odd activations, γ", [
            biased(f"{b['activation']}, {b['pool']}", b["gamma"], b["pool"].startswith("largest"), least=NO_BIAS)
            for b in c.blocks if b["activation"] in ODD
        ]),
        claimed(
            "I21", "γ is above 0 exactly where the mean of the pooled nodes is not 0 (fg.causes_bias), with tanh minus "
            "the mean of the largest of two among them: biased by itself, not with the pool",
            [biased(f"{b['activation']}, {b['pool']}", b["gamma"], b["causes"]) for b in c.blocks],
            within=[close(f"{b['activation']}, {b['pool']}", b["gamma"], b["theory"], 0.1, 0.02, to="the closed form")
                    for b in c.blocks if b["theory"] is not None],
            limit="at this width some depart from theory by more", otherwise="not as the criterion says",
        ),
    ],
    tables=lambda c: {"blocks": c.blocks},
    charts=lambda c: {"blocks": dots(
        c.blocks, "activation", "gamma", panel="pool",
        x_domain=(-0.1, 1.05 * max(b["gamma"].value + 2 * b["gamma"].error for b in c.blocks)),
    )},
    holds={"blocks": Holds("Max-pooling biases odd activations: what counts is the mean after the pool", entries=(1,))},
    notes=["Max-pools of GELU and sin, which fall somewhere, have no closed form."],
)  # fmt: skip


LAWS = {
    "normal": "Gaussian", "uniform": "uniform", "rademacher": "±1 (Rademacher)", "laplace": "Laplace",
    "orthogonal": "orthogonal", "student(5)": "Student t, 5 degrees", "student(3)": "Student t, 3 (no 4th moment)",
    "student(1.5)": "Student t, 1.5 (no variance)",
}  # fmt: skip
SLOW, ENDLESS = "student(3)", "student(1.5)"  # no fourth moment; no variance


def network(law: str, block: str = "relu") -> str:
    """Three hidden layers with weights of this law everywhere, Kaiming variances."""
    return deep(block, 3, f"dense(weight_var=2, init={law})")


def _usual(c: Found, *laws: str) -> list[Check]:
    wide = max(width for _, width in c.plain)
    return [one for law in laws for one in (
        check(LAWS[law], c.plain[law, wide], near=c.theory, room=ROOM, than="the closed form"),
        check(f"{LAWS[law]}, LayerNorm after", c.cured[law], below=NEUTRAL),
    )]  # fmt: skip


def _departs(c: Found, width: int) -> Check:
    one = check(f"plain, width {width}", c.plain[ENDLESS, width], near=c.theory, room=ROOM)
    return replace(one, asked=f"not {one.asked}", truth=None if one.truth is None else not one.truth)


weight_laws = Item(
    "igb/weight_laws", "Weights of any law with the same variance", "IGB §3; NORM §2", claims=("I20",),
    about="Eight weight distributions, three ReLU layers, Kaiming variances; blobs in {d} dimensions, {n} points; "
    "networks each by width (our sizes): {sizes}. LayerNorm after ReLU at width {wide}: {after} networks each.",
    quick=dict(d=150, n=300, sizes={40: 150, 150: 200}, wide=150, after=150),
    full=dict(d=300, n=300, sizes={50: 500, 200: 500, 600: 250}, wide=200, after=250),
    seconds=(15, 110), measure={"classes": 2},
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
        "theory": fg.Guesses(theory_gamma(network("normal")), 2, c.n).std(),
    },
    judge=lambda c: [
        claimed(
            "I20", f"three ReLU layers of {max(width for _, width in c.plain)}, std of G₀, and with LayerNorm after "
            "beyond even guesses", _usual(c, *(law for law in LAWS if law not in (SLOW, ENDLESS))),
            within=_usual(c, SLOW), limit="with a variance but no fourth moment the limit is not reached at this width",
            otherwise="another law for",
        ),
        claimed(
            "I20", "without a variance (Student, 1.5 degrees) LayerNorm after ReLU leaves bias, where theory has none",
            [check("beyond even guesses", c.cured[ENDLESS], above=NEUTRAL)],
            within=[_departs(c, width) for law, width in c.plain if law == ENDLESS],
            limit="what breaks is the cure; the plain network's spread is about the same without a variance",
            otherwise="even without a variance LayerNorm after ReLU leaves no bias",
        ),
    ],
    tables=lambda c: {"laws": grid("law width", std=c.plain, theory=lambda *_: c.theory)},
    charts=lambda c: {"laws": dots(
        grid("panel law width", std={
            panel: {(LAWS[law], f"width {width}"): found for (law, width), found in of.items()} for panel, of in (
                ("Plain ReLU", c.plain),
                ("LayerNorm after ReLU: beyond even", {(law, c.wide): g for law, g in c.cured.items()}))
        }, theory=lambda panel, *_: c.theory if panel == "Plain ReLU" else 0.0),
        "law", "std", by="width", panel="panel", x_domain=(-0.02, 0.42),
    )},
    holds={"laws": Holds("The distribution of the weights does not matter while tails are light", entries=(0,))},
    notes=["Student weights of 1.5 degrees have no variance: scaled by N^(−1/1.5), with which sums neither vanish nor "
           "grow."],
)  # fmt: skip


ROOM_LIMITS = 0.02  # of the standard deviation of G₀: a tenth of that after one ReLU layer
RATIOS = (1 / 16, 1 / 4, 1.0, 4.0, 16.0)
WIDTHS, LAYERS, DATA, DEPTH_LIMITS = "N₁/d", "N₂/N₁", "n/N", "depth/N"
WORDS = ("Width / dimension", "Second width / first width", "Data points / width", "Depth / width")
HEADINGS = dict(zip((WIDTHS, LAYERS, DATA, DEPTH_LIMITS), WORDS, strict=True))
LAYER_NORM = "LayerNorm after ReLU"
# theory.md §12: C' and C'' at 0 (the fourth derivative is C'' again), derivatives of a node's bias and variance, its
# skewness
C1, C2 = 0.733471, 0.466942
B1, B2 = -0.215233, -2.251031
S1, S2 = 1.369954, -2.449870
SKEW = 1.640561


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


def _ordered(c: Found, deep: bool) -> list[Check]:
    """Whether std of G₀ is the closed form's, in the sweep of depth or in the others."""
    checks: list[Check] = []
    for s in c.seen:
        if (s["sweep"] == DEPTH_LIMITS) == deep:
            name = f"{s['series']}, {s['sizes']}"
            one = check(name, s["std"], near=s["theory"], room=ROOM_LIMITS, than="the closed form")
            known = f", theory.md (42) {s['finite_width']:.4f}" if math.isfinite(s["finite_width"]) else ""
            checks.append(replace(one, found=one.found + known))
    return checks


def _limit_cells(c: Found) -> dict[Any, Cell]:
    """By sweep, ratio, series and sizes."""
    cells: dict[Any, Cell] = {}

    def add(sweep: str, ratio: float, label: str, sizes: str, text: str, points: int = 0, d: int = 500) -> None:
        options = {"inits": c.few if sweep == DEPTH_LIMITS else c.inits, "classes": 2}
        cells[sweep, ratio, label, sizes] = Cell(text, c.blob(points or c.n, d), options)

    def layers(*widths: int) -> str:
        return " > ".join(f"dense(weight_var=2, width={w}) > relu" for w in widths) + f" > {KAIMING}"

    for size in c.smaller:
        for ratio in RATIOS:
            one, two = (size, round(size * ratio)) if ratio >= 1 else (round(size / ratio), size)
            label = f"smaller size {size}"
            add(WIDTHS, ratio, label, f"d = {one}, N₁ = {two}", layers(two), d=one)
            add(LAYERS, ratio, label, f"N₁ = {one}, N₂ = {two}", layers(one, two))
            add(DATA, ratio, label, f"N = {one}, n = {two}", layers(one), two)
    for depth in (1, 5, 20, 60):
        for label, block in ((LAYER_NORM, "relu > layernorm"), ("plain ReLU", "relu")):
            text = f"{depth} x [dense(weight_var=2, width=60) > {block}] > {KAIMING}"
            add(DEPTH_LIMITS, depth / 60, label, f"{depth} layers of 60", text)
    return cells


limits = Item(
    "igb/limits", "Must dimension, widths, data and depth grow in an order?", "IGB App. C, Remark 1; MF",
    claims=("I19",),
    about="ReLU, Kaiming, random data ({n} points), two classes. One hidden layer: width/dimension from 1/16 to 16, "
    "and data points/width likewise; two hidden layers: ratio of their widths likewise (smaller size {smaller}); "
    "{inits} networks each. Depth: 1 to 60 layers of 60, {few} networks each, plain and with LayerNorm after ReLU. "
    "Sizes are ours.",
    quick=dict(smaller=(40,), n=300, inits=300, few=100),
    full=dict(smaller=(40, 160), n=500, inits=800, few=400),
    seconds=(14, 110), cells=_limit_cells,
    quantities=lambda c: {"seen": [
        {"sweep": sweep, "ratio": ratio, "series": label, "sizes": sizes, "std": std(c[sweep, ratio, label, sizes]),
         "theory": fg.Guesses(theory_gamma(cell.what), 2, c[sweep, ratio, label, sizes].points).std(),
         "finite_width": finite_std(round(60 * ratio), 60, 500, c.n) if label == LAYER_NORM else math.nan}
        for (sweep, ratio, label, sizes), cell in _limit_cells(c).items()
    ]},
    judge=lambda c: [claimed(
        "I19", "no order is needed: std of G₀ whichever of two sizes is larger, 16 times", _ordered(c, False),
        within=_ordered(c, True),
        limit="sizes may be in any order, but depth must not come before width: deep networks depart",
        headline="largest departure from theory in any order: "
        f"{max(abs(s['std'].value - s['theory']) for s in c.seen if s['sweep'] != DEPTH_LIMITS):.3f}",
    )],
    tables=lambda c: {"ratios": c.seen},
    charts=lambda c: {"ratios": lines(
        [row | {"sweep": HEADINGS[row["sweep"]]} for row in c.seen], "ratio", "std", by="series", panel="sweep",
        also={HEADINGS[DEPTH_LIMITS]: [charts.predicted("finite width, theory.md (42)", *zip(*(
            (row["ratio"], row["finite_width"]) for row in c.seen if math.isfinite(row["finite_width"])
        ), strict=True))]}, title="Sizes in every order: spread of the guesses beside theory",
        x_title="Ratio of the two sizes", x_scale="log", y_domain=(0.0, 0.55), dodge=False, height=230,
    )},
    holds={"ratios": "Dimension, widths and data may grow in any order: the distribution of the guesses stays"},
)  # fmt: skip
