"""IGB: how networks split random data (Fig 5), by depth (Fig 7), with the shifted ReLU (Fig 8), by width."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from firstguess_papers.items import Holds, Outcome, item
from firstguess_papers.judging import Number, Truth, above, all_of, entry, same, stated
from firstguess_papers.running import Run
from firstguess_papers.tables import columns, gamma, largest, law_panel, row, share, std

KINDS = {
    "linear": "dense(weight_var=2) > linear > dense(weight_var=2)",
    "ReLU": "dense(weight_var=2) > relu > dense(weight_var=2)",
    "ReLU + max-pool of 4": "dense(weight_var=2) > relu > maxpool(4) > dense(weight_var=2)",
}


@item(
    "igb/fig5",
    "How an untrained network splits random data",
    claims=("I1",),
    where="IGB Fig 5",
    about="One hidden layer of {width} (our size), Kaiming; blobs in {d} dimensions, {n} points; {inits} networks each."
    "One hidden layer of {width} (our size), Kaiming; blobs in {d} dimensions, {n} points; {inits} networks each.",
    quick=[dict(width=300, d=1000, n=(100, 800), inits=300)],
    full=[dict(width=300, d=1000, n=(300, 3000), inits=1000), dict(width=1000, d=3072, n=(200, 1000), inits=600)],
    seconds=(12, 90),
)
def fig5(run: Run) -> Outcome:
    """I1: std(G₀) falls as n^−½ for linear; ReLU and max-pooling keep theirs; where the law has its mass."""
    import firstguess as fg
    from firstguess import figures

    settings = run.takes("width d n inits")
    rows: list[dict[str, Any]] = []
    panels: list[Any] = []
    checks: list[Truth] = []
    said: list[str] = []
    for width, d, sizes, inits in settings:
        found: dict[tuple[str, int], fg.Measurement] = {}
        for n in sizes:
            x = fg.data.blob(n, d, seed=run.seed)
            for name, text in KINDS.items():
                shown = f"{name}, {n} points, width {width}"
                m = run.measure(text, x, inits=inits, width=width, probe="output", label=shown)
                found[name, n] = m
                theory = fg.predict(text)
                rows.append(row(name, m, width=width, dimensions=d, theory_gamma=float(theory.gamma[-1])))
                if width == settings[0][0]:
                    panels.append(law_panel(f"{name}, {n:,} points", m, theory={"theory": theory}))
        few, many = sizes
        slope = exponent(std(found["linear", few]), std(found["linear", many]), many / few)
        relu, relu_few = std(found["ReLU", many]), std(found["ReLU", few])
        middle, ends = _middle_and_ends(found["ReLU", many])
        pool_middle, pool_ends = _middle_and_ends(found["ReLU + max-pool of 4", many])
        checks += [
            same(slope, -0.5, room=0.1),
            same(relu / relu_few, 1.0, room=0.15),
            above(middle, ends),
            above(pool_ends, pool_middle),
        ]
        said.append(
            f"width {width}: linear std ∝ n^({slope}); ReLU std {relu_few} → {relu}, {middle} of networks in the "
            f"middle fifth, {ends} in the outer fifth; with max-pooling {pool_middle} and {pool_ends}"
        )
    chart = figures.panels_chart(
        panels,
        title="How untrained networks of three kinds split random data",
        subtitle=[
            f"One hidden layer of {settings[0][0]}, {settings[0][3]:,} networks a panel, random data. Lines: closed "
            "form for as many points, no free parameter."
        ],
    )
    return Outcome(
        [
            entry(
                "I1",
                "std of G₀ falls as n^−½ for linear (exponent within 0.1), is the same at both n for ReLU (within "
                "15 %); more networks in the middle fifth than in the outer one for ReLU, fewer with max-pooling",
                "; ".join(said),
                checks,
            )
        ],
        {"laws": columns(rows)},
        {"laws": chart},
        ["The paper's width is not given: ours, and the full setting has a second one."],
        holds={
            "laws": Holds("A linear network splits data evenly; ReLU does not, and max-pooling sends most to one class")
        },
    )


def exponent(one: Number, other: Number, ratio: float) -> Number:
    """Exponent of the power law through two points whose x differ by a factor `ratio`.

    >>> exponent(Number(0.1, 0.001), Number(0.05, 0.001), 4.0).value
    -0.5
    """
    span = math.log(ratio)
    error = math.hypot(one.error / one.value, other.error / other.value) / span
    return Number(math.log(other.value / one.value) / span, error)


def _middle_and_ends(m: Any) -> tuple[Number, Number]:
    """Shares of networks with G₀ in the middle fifth, and in the outer fifth (both ends of a tenth)."""
    low, high = share(m, 0.0, 0.1), share(m, 0.9, 1.0)
    return share(m, 0.4, 0.6), Number(low.value + high.value, math.hypot(low.error, high.error))


@item(
    "igb/fig7",
    "Depth amplifies bias and never creates it",
    claims=("I9",),
    where="IGB Fig 7, App. F.2",
    about="ReLU, tanh and ReLU minus its mean, 1 to 20 hidden layers of {width} (our size), σw² = 2; blobs in {d} "
    "dimensions, {n} points; {inits} networks each.",
    quick=[dict(width=200, d=200, n=400, inits=300)],
    full=[dict(width=300, d=1000, n=500, inits=600), dict(width=1000, d=300, n=300, inits=200)],
    seconds=(12, 90),
)
def fig7(run: Run) -> Outcome:
    """I9: γ and P(max > 0.9) grow with depth for ReLU; γ stays 0 for tanh and for ReLU minus its mean."""
    import firstguess as fg
    from firstguess import figures
    from firstguess_papers.library import Series

    sizes = run.takes("width d n inits")
    depths = (1, 2, 5, 10, 20)
    kinds: dict[str, Any] = {"ReLU": "relu", "tanh": "tanh", "ReLU minus its mean": fg.centered("relu")}
    rows: list[dict[str, Any]] = []
    panels: list[Any] = []
    series: list[Series] = []
    grown = ""
    checks: list[Truth] = []
    limits: list[Truth] = []
    said: list[str] = []
    for width, d, n, inits in sizes:
        x = fg.data.blob(n, d, seed=run.seed)
        for name, phi in kinds.items():
            theory = fg.predict(fg.mlp(depth=max(depths), activation=phi))
            found: dict[int, fg.Measurement] = {}
            for depth in depths if name == "ReLU" else (1, 20):
                net = fg.mlp(depth=depth, activation=phi)
                shown = f"{name}, depth {depth}, width {width}"
                found[depth] = m = run.measure(net, x, inits=inits, width=width, probe="output", label=shown)
                rows.append(row(name, m, depth=depth, width=width, theory_gamma=float(fg.predict(net).gamma[-1])))
                if name == "ReLU" and width == sizes[0][0] and depth in (1, 5, 20):
                    panels.append(law_panel(f"ReLU, {depth} hidden layers", m, theory={"theory": fg.predict(net)}))
            series.append(
                Series(f"{name}, width {width}", list(found), [gamma(m).value for m in found.values()],
                       [gamma(m).error for m in found.values()], "points")
            )  # fmt: skip
            if name == "ReLU":
                if width == sizes[0][0]:
                    series.insert(0, Series("ReLU, theory", range(1, 21), theory.gamma[1:], mark="line"))
                one, last = largest(found[1]), largest(found[20])
                checks += [
                    above(last, one),
                    above(gamma(found[20]), gamma(found[5])),
                    above(gamma(found[5]), gamma(found[1])),
                ]
                grown = f"γ {gamma(found[1]).value:.2g} → {gamma(found[20]).value:.3g} in 20 layers"
                predicted = float(theory.gamma[-1])
                limits.append(same(gamma(found[20]), predicted, room=0.2 * predicted))
                said.append(f"width {width}: ReLU γ {gamma(found[1])} → {gamma(found[20])} (theory {predicted:.4g}), "
                            f"largest fraction {one} → {last}")  # fmt: skip
            else:
                checks.append(same(gamma(found[20]), 0.0, room=0.1))
                said.append(f"{name} at depth 20 γ = {gamma(found[20])}")
    far = fg.predict(fg.mlp(depth=1000)).guesses.prob_max_above(0.9)
    checks.append(above(Number(far), 0.97))
    law = figures.panels_chart(
        panels,
        title="Guesses of ReLU networks by depth",
        subtitle=[f"{sizes[0][3]:,} networks a panel, width {sizes[0][0]}, random data. Lines: closed form."],
    )
    growth = figures.lines_chart(
        series,
        title=stated(
            all_of(checks),
            f"Depth amplifies the bias of ReLU, {grown}; where there is none, it creates none",
            f"ReLU with depth: {grown}; not what is claimed of depth",
        ),
        subtitle=["Drift ratio γ of the output ± 2 standard errors; random data, σw² = 2. Points step aside."],
        x_title="Hidden layers",
        y_title="Drift ratio γ of the output",
        x_scale="log",
        dodge=True,
        width=640,
    )
    return Outcome(
        [
            entry(
                "I9",
                "ReLU: γ grows from depth 1 to 5 to 20, and so does the largest fraction; by theory at depth 1000 over "
                "97 % of networks give 90 % of the data to one class. tanh and ReLU minus its mean: γ at depth 20 is 0 "
                "within 0.1. Without a limit: γ of ReLU at depth 20 within 20 % of theory",
                f"{'; '.join(said)}; P(largest > 0.9) at depth 1000 by theory {far:.4f}",
                checks,
                within=limits,
                limit="at finite width γ of deep ReLU networks departs from theory by more than 20 %",
            )
        ],
        {"depth": columns(rows)},
        {"growth": growth, "laws": law},
        holds={"laws": Holds("With depth, ReLU networks give all data to one class")},
    )


@item(
    "igb/fig8",
    "ReLU minus its mean is neutral",
    claims=("I6",),
    where="IGB Fig 8",
    about="One hidden layer and five, of {width} (our size), σw² = 2; blobs in 1000 dimensions, {n} points; {inits} "
    "networks each. The shift is each layer's own mean, or the first layer's constant 1/√π everywhere.",
    quick=[dict(width=300, n=500, inits=300)],
    full=[dict(width=300, n=1000, inits=1000), dict(width=1000, n=500, inits=300)],
    seconds=(10, 70),
)
def fig8(run: Run) -> Outcome:
    """I6: std(G₀) of ReLU − mean is that of coin flips; a constant shift is right for one layer only."""
    import firstguess as fg
    from firstguess import figures

    sizes = run.takes("width n inits")
    constant = 1 / math.sqrt(math.pi)  # E ReLU of a Gaussian with variance 2: Kaiming's first layer on the blob
    blocks = {
        "ReLU": "relu",
        "ReLU minus its mean": "centered(relu)",
        "ReLU minus 1/√π": f"relu > shift({-constant!r})",
    }
    rows: list[dict[str, Any]] = []
    panels: list[Any] = []
    checks: list[Truth] = []
    limits: list[Truth] = []
    said: list[str] = []
    for width, n, inits in sizes:
        x = fg.data.blob(n, 1000, seed=run.seed)
        coin = 0.5 / math.sqrt(n)
        for depth in (1, 5):
            for name, block in blocks.items():
                net = f"{depth} x [dense(weight_var=2) > {block}] > dense(weight_var=2)"
                shown = f"{name}, depth {depth}, width {width}"
                m = run.measure(net, x, inits=inits, width=width, probe="output", label=shown)
                rows.append(row(name, m, depth=depth, width=width))
                if width == sizes[0][0]:
                    panels.append(law_panel(f"{name}, {depth} layer{'s' * (depth > 1)}", m, bins=30))
                if name == "ReLU":
                    continue
                neutral = same(std(m), coin, room=0.02)
                (checks if depth == 1 or "its" in name else limits).append(neutral)
                said.append(f"{name}, depth {depth}: {std(m)} (coin flips {coin:.4f})")
    chart = figures.panels_chart(
        panels,
        title=stated(
            all_of([*checks, all_of(limits) is False]),
            "Taking the mean off ReLU removes the bias, if it is taken off in every layer anew",
            "Guesses with the mean taken off ReLU, in every layer anew or once and for all",
        ),
        subtitle=[f"{sizes[0][2]:,} networks a panel, width {sizes[0][0]}, {sizes[0][1]:,} random points."],
    )
    return Outcome(
        [
            entry(
                "I6",
                "std of G₀ within 0.02 of coin flips, 1/(2√n), for ReLU minus its mean at depth 1 and 5, and for "
                "the constant shift at depth 1; without a limit also for the constant at depth 5",
                "; ".join(said),
                checks,
                within=limits,
                limit="a constant shift fits one variance of the pre-activations: in the second layer it is another, "
                "and bias is back",
            )
        ],
        {"laws": columns(rows)},
        {"laws": chart},
    )


@item(
    "igb/self_averaging",
    "A larger network does not have a more even split",
    claims=("I4",),
    where="IGB §4.1",
    about="One hidden ReLU layer of {widths}, 2 and 10 classes; blobs in {d} dimensions, {n} points; {inits} networks "
    "each.",
    quick=dict(d=300, n=400, widths=(30, 100, 300, 1000), inits=400),
    full=dict(d=300, n=500, widths=(30, 100, 300, 1000, 3000), inits=1000),
    seconds=(10, 70),
)
def self_averaging(run: Run) -> Outcome:
    """I4: std(G₀) does not fall with width, each class's mean over networks is 1/M."""
    import firstguess as fg
    from firstguess import figures
    from firstguess_papers.library import Series, statistics

    d, n, widths, inits = run.take("d n widths inits")
    x = fg.data.blob(n, d, seed=run.seed)
    rows: list[dict[str, Any]] = []
    series: list[Series] = []
    stays: list[Truth] = []
    even: list[Truth] = []
    said: list[str] = []
    for classes in (2, 10):
        found: list[fg.Measurement] = []
        for width in widths:
            net = fg.mlp(depth=1, classes=classes)
            shown = f"{classes} classes, width {width}"
            m = run.measure(net, x, inits=inits, width=width, probe="output", label=shown)
            found.append(m)
            rows.append(row(f"{classes} classes", m, width=width))
            _, chance = statistics.alike(m.guesses.fractions)
            even.append(chance > 1e-4)
            said.append(f"{shown}: std {std(m)}, class means within "
            f"{np.abs(m.guesses.class_means - 1 / classes).max():.3f} "
                        f"of 1/{classes} (p = {chance:.2g})")  # fmt: skip
        slope = exponent(std(found[0]), std(found[-1]), widths[-1] / widths[0])
        stays.append(same(slope, 0.0, room=0.05))
        said.append(f"std ∝ width^({slope})")
        label = f"{classes} classes"
        series.append(Series(label, widths, [std(m).value for m in found], [std(m).error for m in found], "points"))
        law = fg.Guesses(1 / (math.pi - 1), classes, n)
        series.append(Series(label, [widths[0], widths[-1]], [law.std()] * 2, mark="dashed"))
    chart = figures.lines_chart(
        series,
        title="Spread of the guesses by width",
        subtitle=["One hidden ReLU layer, random data; ± 2 standard errors. Dashed: theory for infinite width."],
        x_title="Width of the hidden layer",
        y_title="Standard deviation of a guess fraction",
        x_scale="log",
        y_domain=(0.0, 0.3),
        width=640,
    )
    return Outcome(
        [
            entry(
                "I4",
                "the standard deviation of a fraction over networks does not depend on width (exponent 0 within "
                "0.05); class means over networks are alike (χ² test, level 1e-4)",
                "; ".join(said),
                [*stays, *even],
            )
        ],
        {"widths": columns(rows)},
        {"widths": chart},
        holds={
            "widths": Holds("Width does not even out the guesses: two large networks differ as much as two small ones")
        },
    )
