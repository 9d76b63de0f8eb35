"""IGB: how networks split random data (Fig 5), by depth (Fig 7), with the shifted ReLU (Fig 8), by width."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import firstguess as fg
from firstguess_papers import library
from firstguess_papers.charts import points
from firstguess_papers.items import Holds
from firstguess_papers.judging import Number, Truth, above, all_of, same, stated
from firstguess_papers.measured import Cell, Found, Tested, measured
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
    quantities=lambda c: {
        "slope": exponent(std(c["linear", c.n[0]]), std(c["linear", c.n[1]]), c.n[1] / c.n[0]),
        "few": std(c["ReLU", c.n[0]]), "many": std(c["ReLU", c.n[1]]),
        "middle": _middle(c["ReLU", c.n[1]]), "ends": _ends(c["ReLU", c.n[1]]),
        "pool_middle": _middle(c[POOLED, c.n[1]]), "pool_ends": _ends(c[POOLED, c.n[1]]),
    },
    tests=[Tested(
        "I1",
        "std of G₀ falls as n^−½ for linear (exponent within 0.1), is the same at both n for ReLU (within 15 %); more "
        "networks in the middle fifth than in the outer one for ReLU, fewer with max-pooling",
        "width {width}: linear std ∝ n^({slope}); ReLU std {few} → {many}, {middle} of networks in the middle fifth, "
        "{ends} in the outer fifth; with max-pooling {pool_middle} and {pool_ends}",
        lambda c: [same(c.slope, -0.5, room=0.1), same(c.many / c.few, 1.0, room=0.15), above(c.middle, c.ends),
                   above(c.pool_ends, c.pool_middle)],
    )],
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
    checks = all_of(check for c in every for check in _fig7_checks(c))
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


def _fig7_checks(c: Found) -> list[Truth]:
    grows = [above(c.last, c.one), above(c.g20, c.g5), above(c.g5, c.g1)]
    return [
        *grows,
        *(same(g, 0.0, room=0.1) for g in (c.tanh, c.centred)),
        *([above(Number(c.far), 0.97)] if c.first else []),
    ]


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
    quantities=lambda c: {
        "g1": gamma(c["ReLU", 1]), "g5": gamma(c["ReLU", 5]), "g20": gamma(c["ReLU", 20]),
        "theory": theory_gamma(_mlp("ReLU", 20)),
        "one": largest(c["ReLU", 1]), "last": largest(c["ReLU", 20]), "tanh": gamma(c["tanh", 20]),
        "centred": gamma(c["ReLU minus its mean", 20]),
        "far": fg.predict(fg.mlp(depth=1000)).guesses.prob_max_above(0.9),
    },
    tests=[Tested(
        "I9",
        "ReLU: γ grows from depth 1 to 5 to 20, and so does the largest fraction; by theory at depth 1000 over 97 % of "
        "networks give 90 % of the data to one class. tanh and ReLU minus its mean: γ at depth 20 is 0 within 0.1. "
        "Without a limit: γ of ReLU at depth 20 within 20 % of theory",
        "width {width}: ReLU γ {g1} → {g20} (theory {theory:.4g}), largest fraction {one} → {last}; tanh at depth 20 γ "
        "= {tanh}; ReLU minus its mean at depth 20 γ = {centred}; P(largest > 0.9) at depth 1000 by theory {far:.4f}",
        _fig7_checks,
        within=lambda c: [same(c.g20, c.theory, room=0.2 * c.theory)],
        limit="at finite width γ of deep ReLU networks departs from theory by more than 20 %",
    )],
    charts=_fig7_charts,
    holds={"laws": Holds("With depth, ReLU networks give all data to one class")},
)  # fmt: skip

SHIFT = 1 / math.sqrt(math.pi)  # E ReLU of a Gaussian with variance 2: Kaiming's first layer on the blob
SHIFTED = {"ReLU": "relu", "ReLU minus its mean": "centered(relu)", "ReLU minus 1/√π": f"relu > shift({-SHIFT!r})"}
NEUTRAL_ONES = [(kind, depth) for depth in (1, 5) for kind in SHIFTED if kind != "ReLU"]


def _even(c: Found, *, anew: bool) -> list[Truth]:
    """Whether std of G₀ is that of coin flips: with the mean taken off in every layer anew or in the only one; or "
    "not."""
    return [
        same(std(c[kind, depth]), c.coin, room=0.02)
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
    quantities=lambda c: {"coin": 0.5 / math.sqrt(c.n)},
    tests=[Tested(
        "I6",
        "std of G₀ within 0.02 of coin flips, 1/(2√n), for ReLU minus its mean at depth 1 and 5, and for the constant "
        "shift at depth 1; without a limit also for the constant at depth 5",
        lambda c: "; ".join(f"{k}, depth {d}: {std(c[k, d])} (coin flips {c.coin:.4f})" for k, d in NEUTRAL_ONES),
        lambda c: _even(c, anew=True),
        within=lambda c: _even(c, anew=False),
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


def _apart(m: Any, classes: int) -> str:
    off = np.abs(m.guesses.class_means - 1 / classes).max()
    return f"std {std(m)}, class means within {off:.3f} of 1/{classes} (p = {_alike(m):.2g})"


def _alike(m: Any) -> float:
    return library.equal_means_test(m.guesses.fractions)[1]


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
    tests=[Tested(
        "I4",
        "the standard deviation of a fraction over networks does not depend on width (exponent 0 within 0.05); class "
        "means over networks are alike (χ² test, level 1e-4)",
        lambda c: "; ".join(
            "; ".join(f"{n} classes, width {w}: {_apart(c[f'{n} classes', w], n)}" for w in c.widths)
            + f"; std ∝ width^({_slope(c, n)})"
            for n in (2, 10)
        ),
        lambda c: [*(same(_slope(c, n), 0.0, room=0.05) for n in (2, 10)),
                   *(_alike(m) > 1e-4 for m in c.cells.values())],
    )],
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
