"""IGB: how networks split random data (Fig 5), by depth (Fig 7), with the shifted ReLU (Fig 8), by width."""

from __future__ import annotations

import math
from typing import Any

import firstguess as fg
from firstguess_papers import library
from firstguess_papers.charts import points
from firstguess_papers.items import Holds
from firstguess_papers.judging import Check, Number, all_of, check, stated
from firstguess_papers.measured import Cell, Claim, Found, measured
from firstguess_papers.tables import deep, gamma, largest, law_panel, share, std

ONE = "dense(weight_var=2) > {} > dense(weight_var=2)"
POOLED = "ReLU + max-pool of 4"
KINDS = {"linear": ONE.format("linear"), "ReLU": ONE.format("relu"), POOLED: ONE.format("relu > maxpool(4)")}


def exponent(one: Number, other: Number, ratio: float) -> Number:
    """Exponent of the power law through two points whose x differ by a factor `ratio`.

    >>> exponent(Number(0.1, 0.001), Number(0.05, 0.001), 4.0).value
    -0.5
    """
    span = math.log(ratio)
    error = math.hypot(one.error / one.value, other.error / other.value) / span
    return Number(math.log(other.value / one.value) / span, error)


def theory_gamma(network: Any) -> float:
    """γ of the output in the wide limit."""
    return float(fg.predict(network).gamma[-1])


def _middle(m: Any) -> Number:
    """The share of networks with G₀ in the middle fifth."""
    return share(m, 0.4, 0.6)


def _ends(m: Any) -> Number:
    """The share of networks with G₀ in the outer fifth, both ends of a tenth."""
    low, high = share(m, 0.0, 0.1), share(m, 0.9, 1.0)
    return Number(low.value + high.value, math.hypot(low.error, high.error))


fig5 = measured(
    "igb/fig5", "How an untrained network splits random data", "IGB Fig 5",
    about="One hidden layer of {width} (our size), Kaiming; blobs in {d} dimensions, {n} points; {inits} networks "
    "each.",
    quick=dict(width=300, d=1000, n=(100, 800), inits=300),
    full=[dict(width=300, d=1000, n=(300, 3000), inits=1000), dict(width=1000, d=3072, n=(200, 1000), inits=600)],
    seconds=(12, 90),
    cells=lambda c: {(kind, n): Cell(net, c.blob(n, c.d)) for n in c.n for kind, net in KINDS.items()},
    rows=lambda c, kind, _: {"width": c.width, "dimensions": c.d, "theory_gamma": theory_gamma(KINDS[kind])},
    tests=[Claim("I1", "std of G₀, and shares of networks with G₀ in the middle and in the outer fifth", lambda c: [
        check("linear, power of n", exponent(std(c["linear", c.n[0]]), std(c["linear", c.n[1]]), c.n[1] / c.n[0]),
              near=-0.5, room=0.1),
        check("ReLU, std at the larger n by that at the smaller", std(c["ReLU", c.n[1]]) / std(c["ReLU", c.n[0]]),
              near=1.0, room=0.15),
        check("ReLU, middle", _middle(c["ReLU", c.n[1]]), above=_ends(c["ReLU", c.n[1]]), than="the outer"),
        check(f"{POOLED}, outer", _ends(c[POOLED, c.n[1]]), above=_middle(c[POOLED, c.n[1]]), than="the middle"),
    ])],
    charts=lambda c: {"laws": fg.figures.panels_chart(
        [law_panel(f"{kind}, {n:,} points", m, theory={"theory": fg.predict(KINDS[kind])})
         for (kind, n), m in c.cells.items()],
        title="How untrained networks of three kinds split random data",
        subtitle=[f"One hidden layer of {c.width}, {c.inits:,} networks a panel, random data. Lines: "
                  "closed form for as many points, no free parameter."],
    )},
    holds={"laws": Holds(
        "A linear network splits data evenly; ReLU does not, and max-pooling sends most to one class"
    )},
    notes=["The paper's width is not given: ours, and the full setting has a second one."],
)  # fmt: skip

DEEPER: dict[str, Any] = {"ReLU": "relu", "tanh": "tanh", "ReLU minus its mean": "centered(relu)"}
DEPTHS = (1, 2, 5, 10, 20)


def _mlp(kind: str, depth: int) -> Any:
    return fg.mlp(depth=depth, activation=fg.centered("relu") if "mean" in kind else DEEPER[kind])


def _fig7_charts(first: Found) -> dict[str, Any]:
    every = first.every
    checks = all_of(one.truth for c in every for one in _fig7_checks(c))
    g = {depth: gamma(every[-1]["ReLU", depth]).value for depth in (1, 20)}
    grown = f"γ {g[1]:.2g} → {g[20]:.3g} in 20 layers"
    series = [library.Series("ReLU, theory", range(1, 21), fg.predict(_mlp("ReLU", 20)).gamma[1:], mark="line")]
    series += [points(f"{kind}, width {c.width}", {d: gamma(m) for (k, d), m in c.cells.items() if k == kind})
               for c in every for kind in DEEPER]  # fmt: skip
    laws = fg.figures.panels_chart(
        [law_panel(f"ReLU, {k} hidden layers", first["ReLU", k], theory={"theory": fg.predict(_mlp("ReLU", k))})
         for k in (1, 5, 20)],
        title="Guesses of ReLU networks by depth",
        subtitle=[f"{first.inits:,} networks a panel, width {first.width}, random data. Lines: closed form."],
    )  # fmt: skip
    growth = fg.figures.lines_chart(
        series,
        title=stated(checks, f"Depth amplifies the bias of ReLU, {grown}; where there is none, it creates none",
                     f"ReLU with depth: {grown}; not what is claimed of depth"),
        subtitle=["Drift ratio γ of the output ± 2 standard errors; random data, σw² = 2. Points step aside."],
        x_title="Hidden layers", y_title="Drift ratio γ of the output", x_scale="log", dodge=True, width=640,
    )  # fmt: skip
    return {"growth": growth, "laws": laws}


def _fig7_checks(c: Found) -> list[Check]:
    g = {depth: gamma(c["ReLU", depth]) for depth in (1, 5, 20)}
    far = fg.predict(fg.mlp(depth=1000)).guesses.prob_max_above(0.9)
    return [
        check("ReLU, largest fraction at depth 20", largest(c["ReLU", 20]), above=largest(c["ReLU", 1]),
              than="depth 1's"),
        *(check(f"ReLU, γ at depth {b}", g[b], above=g[a], than=f"depth {a}'s") for a, b in ((5, 20), (1, 5))),
        *(check(f"{name}, γ at depth 20", gamma(c[name, 20]), near=0.0, room=0.1) for name in DEEPER if name != "ReLU"),
        *([check("P(largest fraction > 0.9) at depth 1000 by theory", far, above=0.97)] if c.first else []),
    ]  # fmt: skip


fig7 = measured(
    "igb/fig7", "Depth amplifies bias and never creates it", "IGB Fig 7, App. F.2",
    about="ReLU, tanh and ReLU minus its mean, 1 to 20 hidden layers of {width} (our size), σw² = 2; blobs in {d} "
    "dimensions, {n} points; {inits} networks each.",
    quick=dict(width=200, d=200, n=400, inits=300),
    full=[dict(width=300, d=1000, n=500, inits=600), dict(width=1000, d=300, n=300, inits=200)],
    seconds=(12, 90),
    cells=lambda c: {
        (kind, depth): Cell(_mlp(kind, depth), c.blob(c.n, c.d))
        for kind in DEEPER for depth in (DEPTHS if kind == "ReLU" else (1, 20))
    },
    table="depth",
    rows=lambda c, kind, depth: {"depth": depth, "width": c.width, "theory_gamma": theory_gamma(_mlp(kind, depth))},
    tests=[Claim(
        "I9", "by depth", _fig7_checks,
        within=lambda c: [check("ReLU, γ at depth 20", gamma(c["ReLU", 20]), near=theory_gamma(_mlp("ReLU", 20)),
                                room=0.2 * theory_gamma(_mlp("ReLU", 20)), than="within 20 % of theory")],
        limit="at finite width γ of deep ReLU networks departs from theory",
    )],
    charts=_fig7_charts,
    holds={"laws": Holds("With depth, ReLU networks give all data to one class")},
)  # fmt: skip

SHIFT = 1 / math.sqrt(math.pi)  # E ReLU of a Gaussian with variance 2: Kaiming's first layer on the blob
SHIFTED = {"ReLU": "relu", "ReLU minus its mean": "centered(relu)", "ReLU minus 1/√π": f"relu > shift({-SHIFT!r})"}
NEUTRAL_ONES = [(kind, depth) for depth in (1, 5) for kind in SHIFTED if kind != "ReLU"]


def _even(c: Found, *, anew: bool) -> list[Check]:
    """Whether std of G₀ is that of coin flips: where the mean is taken off in every layer anew, or where it is not."""
    return [
        check(f"{kind}, depth {depth}", std(c[kind, depth]), near=0.5 / math.sqrt(c.n), room=0.02, than="coin flips")
        for kind, depth in NEUTRAL_ONES
        if (depth == 1 or "its" in kind) == anew
    ]


fig8 = measured(
    "igb/fig8", "ReLU minus its mean is neutral", "IGB Fig 8",
    about="One hidden layer and five, of {width} (our size), σw² = 2; blobs in 1000 dimensions, {n} points; {inits} "
    "networks each. The shift is each layer's own mean, or the first layer's constant 1/√π everywhere.",
    quick=dict(width=300, n=500, inits=300),
    full=[dict(width=300, n=1000, inits=1000), dict(width=1000, n=500, inits=300)],
    seconds=(10, 70),
    cells=lambda c: {(kind, depth): Cell(deep(block, depth), c.blob(c.n, 1000))
                     for depth in (1, 5) for kind, block in SHIFTED.items()},
    rows=lambda c, _, depth: {"depth": depth, "width": c.width},
    tests=[Claim(
        "I6", "std of G₀", lambda c: _even(c, anew=True), within=lambda c: _even(c, anew=False),
        limit="a constant shift fits one variance of the pre-activations: in the second layer it is another, and bias "
        "is back",
    )],
    charts=lambda c: {"laws": fg.figures.panels_chart(
        [law_panel(f"{kind}, {depth} layer{'s' * (depth > 1)}", m, bins=30)
         for (kind, depth), m in c.cells.items()],
        title="Guesses with the mean taken off ReLU, in every layer anew or once and for all",
        subtitle=[f"{c.inits:,} networks a panel, width {c.width}, {c.n:,} random points."],
    )},
    holds={"laws": Holds("Taking the mean off ReLU removes the bias, if it is taken off in every layer anew",
                         verdicts=("holds with a limit",))},
)  # fmt: skip


def _slope(c: Found, classes: int) -> Number:
    few, many = c.widths[0], c.widths[-1]
    return exponent(std(c[f"{classes} classes", few]), std(c[f"{classes} classes", many]), many / few)


self_averaging = measured(
    "igb/self_averaging", "A larger network does not have a more even split", "IGB §4.1",
    about="One hidden ReLU layer of {widths}, 2 and 10 classes; blobs in {d} dimensions, {n} points; {inits} networks "
    "each.",
    quick=dict(d=300, n=400, widths=(30, 100, 300, 1000), inits=400),
    full=dict(d=300, n=500, widths=(30, 100, 300, 1000, 3000), inits=1000),
    seconds=(10, 70),
    cells=lambda c: {
        (f"{n} classes", width): Cell(fg.mlp(depth=1, classes=n), c.blob(c.n, c.d), {"width": width})
        for n in (2, 10) for width in c.widths
    },
    table="widths",
    rows=lambda c, _, width: {"width": width},
    tests=[Claim("I4", "std of a fraction over networks, and class means over them (χ² test)", lambda c: [
        *(check(f"{n} classes, power of width", _slope(c, n), near=0.0, room=0.05) for n in (2, 10)),
        check("p of alike class means", [library.equal_means_test(m.guesses.fractions)[1] for m in c.cells.values()],
              above=1e-4, at=[f"{label}, width {width}" for label, width in c.cells]),
    ])],
    charts=lambda c: {"widths": fg.figures.lines_chart(
        [series for n in (2, 10) for series in (
            points(f"{n} classes", {w: std(c[f"{n} classes", w]) for w in c.widths}),
            library.Series(f"{n} classes", [c.widths[0], c.widths[-1]],
                           [fg.Guesses(1 / (math.pi - 1), n, c.n).std()] * 2, mark="dashed"))],
        title="Spread of the guesses by width",
        subtitle=["One hidden ReLU layer, random data; ± 2 standard errors. Dashed: theory for infinite width."],
        x_title="Width of the hidden layer", y_title="Standard deviation of a guess fraction", x_scale="log",
        y_domain=(0.0, 0.3), width=640,
    )},
    holds={"widths": Holds("Width does not even out the guesses: two large networks differ as much as two small ones")},
)  # fmt: skip
