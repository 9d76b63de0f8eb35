"""IGB: what creates bias. Activations (App. G), uncentred inputs (§4.1), max-pooling (App. E), weight scale (§5)."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import integrate, special

from firstguess_papers.items import Holds, Outcome, item
from firstguess_papers.judging import Number, Truth, above, all_of, entry, same, stated
from firstguess_papers.running import Run
from firstguess_papers.tables import columns, gamma, largest, row, std


@item(
    "igb/criterion",
    "Every registered activation: bias iff its mean is not 0",
    claims=("I5",),
    where="IGB App. G",
    about="One hidden layer of {width} (our size), σw² = 1; blobs in {d} dimensions, {n} points; {inits} networks of "
    "ten outputs an activation: all registered ones, and four with their mean taken off.",
    quick=[dict(width=300, d=300, n=500, inits=150)],
    full=[dict(width=300, d=1000, n=1000, inits=600), dict(width=1000, d=1000, n=1000, inits=150)],
    seconds=(12, 90),
)
def criterion(run: Run) -> Outcome:
    """I5: γ of the output is 0 (within 0.02) iff E φ = 0, and equals theory."""
    import firstguess as fg
    from firstguess import figures
    from firstguess_papers.library import Series
    from firstguess_papers.library import activation_names as names

    sizes = run.takes("width d n inits")
    chosen = [*names(), *(f"centered({name})" for name in ("relu", "gelu", "softplus", "abs"))]
    rows: list[dict[str, Any]] = []
    right: list[Truth] = []
    close: list[Truth] = []
    for width, d, n, inits in sizes:
        x = fg.data.blob(n, d, seed=run.seed)
        for name in chosen:
            # ten outputs: γ is an average over output nodes, so five times the networks
            net = fg.Network.parse(f"dense > {name} > dense", classes=10)
            m = run.measure(net, x, inits=inits, width=width, probe="output", label=f"{name}, width {width}")
            predicted = float(fg.predict(net).gamma[-1])
            phi = fg.activation(name) if "(" not in name else fg.centered(name[9:-1])
            causes = bool(fg.causes_bias(phi))
            seen = gamma(m)
            right.append(above(seen, 0.0) if causes else same(seen, 0.0, room=0.02))
            close.append(same(seen, predicted, room=0.02 + 0.1 * predicted))
            rows.append(
                row(name, m, width=width, theory_gamma=predicted, mean=phi.moments(0.0, 1.0).mean, causes=causes)
            )
    wrong = [str(r["name"]) for r, ok in zip(rows, right, strict=True) if ok is not True]
    off = [str(r["name"]) for r, ok in zip(rows, close, strict=True) if ok is False]
    biased = [r for r in rows if r["causes"]]
    neutral = [r for r in rows if not r["causes"]]
    worst = max(neutral, key=lambda r: abs(r["gamma"]))
    least = min(biased, key=lambda r: r["gamma"])
    first = [r for r in rows if r["width"] == sizes[0][0]]
    chart = figures.lines_chart(
        [
            Series(label, [max(r["theory_gamma"], 1e-4) for r in first if r["causes"] == flag],
                   [max(r["gamma"], 1e-4) for r in first if r["causes"] == flag],
                   [r["gamma_error"] for r in first if r["causes"] == flag], "points")
            for flag, label in ((True, "mean is not 0"), (False, "mean is 0"))
        ]
        + [Series("theory = measured", [1e-4, 100.0], [1e-4, 100.0], mark="dashed")],
        title='Bias of every activation, measured and by theory',
        subtitle=[f"Drift ratio γ after one hidden layer of {sizes[0][0]}, {len(chosen)} activations; random data, ± "
        "2 standard "
                  "errors. Values below 0.0001 are drawn there."],
        x_title="γ by theory", y_title="γ measured", x_scale="log", y_scale="log", width=520, height=420,
        x_domain=(5e-5, 200.0), y_domain=(5e-5, 200.0),
    )  # fmt: skip
    return Outcome(
        [
            entry(
                "I5",
                f"{len(chosen)} activations: γ above 0 where the mean is not 0; 0 within 0.02 where it is (odd ones, "
                "and those with their mean taken off). Without a limit: all within 10 % + 0.02 of theory",
                f"{len(biased)} measurements with a mean: the smallest γ is "
                f"{Number(least['gamma'], least['gamma_error'])} "
                f"({least['name']}); {len(neutral)} without: the largest |γ| is "
                f"{Number(worst['gamma'], worst['gamma_error'])} ({worst['name']})",
                right,
                within=close,
                limit=f"at this width some depart from theory by more: {', '.join(dict.fromkeys(off))}",
                otherwise=f"not as the criterion says: {', '.join(dict.fromkeys(wrong))}",
            )
        ],
        {"activations": columns(rows)},
        {"activations": chart},
        holds={"activations": Holds("An activation causes bias exactly when its mean is not 0")},
    )


@item(
    "igb/uncentred",
    "Uncentred inputs bring bias with any activation",
    claims=("I7",),
    where="IGB §4.1",
    needs=("digits",),
    about="Linear, tanh, erf, sin and ReLU, one hidden layer of {widths} (our size), σw² = 1; blobs in {d} dimensions "
    "shifted by 0 to 2, uniform pixels from 0 to 1, digits from 0 to 1; {n} points, {inits} networks each.",
    quick=dict(d=300, n=500, inits=150, widths=(300,)),
    full=dict(d=1000, n=500, inits=600, widths=(300, 1000)),
    seconds=(12, 80),
)
def uncentred(run: Run) -> Outcome:
    """I7: γ of odd activations grows with the shift of the data; pixels in [0, 1] bias them; centring cures."""
    import firstguess as fg
    from firstguess import figures
    from firstguess_papers.library import Series

    d, n, inits, widths = run.take("d n inits widths")
    shifts = (0.0, 0.25, 0.5, 1.0, 2.0)
    kinds = {"linear": "linear", "tanh": "tanh", "erf": "erf", "sin": "sin", "ReLU": "relu"}
    rows: list[dict[str, Any]] = []
    series: list[Series] = []
    must: list[Truth] = []
    said: list[str] = []
    for name, phi in kinds.items():
        net = f"dense > {phi} > dense"
        found: list[Number] = []
        theory: list[float] = []
        for shift in shifts:
            x = fg.data.blob(n, d, seed=run.seed).shift(shift)
            m = run.measure(net, x, inits=inits, width=widths[0], probe="output", label=f"{name}, shift {shift}")
            found.append(gamma(m))
            theory.append(float(fg.predict(net, inputs=fg.Inputs(mean_square=shift**2, variance=1.0)).gamma[-1]))
            rows.append(row(name, m, data=f"blob + {shift}", width=widths[0], theory_gamma=theory[-1]))
        series += [
            Series(name, shifts, [g.value for g in found], [g.error for g in found], "points"),
            Series(name, shifts, theory, mark="line"),
        ]
        if name != "ReLU":
            must += [same(found[0], 0.0, room=0.02), above(found[2], found[0]), above(found[-1], found[2])]
    rng = np.random.default_rng([run.seed, 7])
    pixels = fg.data.as_data(rng.random((n, d), dtype=np.float32))
    raw = run.data("digits", points=n, standardize="none")
    digits = fg.data.as_data(raw.flat() / 16 if float(raw.x.max()) > 1 else raw.flat())
    for width in widths:
        for name, phi in (("tanh", "tanh"), ("sin", "sin")):
            net = f"dense > {phi} > dense"
            for label, x in (
                ("uniform pixels", pixels), ("the same, centred", pixels.standardize("pixel")), ("digits", digits)
            ):  # fmt: skip
                m = run.measure(
                    net, x, inits=inits, width=width, probe="output", label=f"{name}, {label}, width {width}"
                )
                rows.append(row(name, m, data=label, width=width))
                said.append(f"{name} on {label}, width {width}: γ = {gamma(m)}, largest fraction {largest(m)}")
                centred = label.endswith("centred")
                must.append(same(gamma(m), 0.0, room=0.02) if centred else above(gamma(m), 0.3))
    most = max(float(r["gamma"]) for r in rows if r["data"] == "blob + 1.0" and r["name"] != "ReLU")
    chart = figures.lines_chart(
        series,
        title=stated(
            all_of(must),
            f"Moving the data off zero biases networks whose activation is odd: by 1, γ is up to {most:.2g}",
            f"Data moved off zero: by 1, γ of odd activations is up to {most:.2g}",
        ),
        subtitle=[f"Drift ratio γ of the output, one hidden layer of {widths[0]}; points: measured ± 2 standard "
        "errors, lines: "
                  "closed form."],
        x_title="Constant added to all inputs (their spread is 1)", y_title="Drift ratio γ of the output",
        y_scale="symlog", width=640, dodge=True,
    )  # fmt: skip
    odd = " ".join(f"{r['name']} {Number(r['gamma'], r['gamma_error'])}" for r in rows if r["data"] == "blob + 1.0")
    return Outcome(
        [
            entry(
                "I7",
                "odd activations (linear, tanh, erf, sin): γ = 0 within 0.02 on centred blobs, growing with a shift "
                "of ½ and of 2; tanh and sin on pixels from 0 to 1 and on digits: γ above 0.3, and 0 within 0.02 "
                "once each pixel is centred",
                f"blobs shifted by 1: {odd}; {'; '.join(said)}",
                must,
            )
        ],
        {"uncentred": columns(rows)},
        {"shift": chart},
    )


@item(
    "igb/maxpool",
    "Max-pooling creates bias and amplifies it",
    claims=("I8",),
    where="IGB §4.2, App. E",
    about="One hidden layer, linear or ReLU, max-pool of K = {pools} over 200·K nodes (at most {most}; our sizes); "
    "blobs in {d} dimensions, {n} points; {inits} networks each. The maximum of K Gaussians by quadrature, K to 10¹².",
    quick=dict(d=200, n=300, inits=200, pools=(1, 2, 4, 9, 25), most=2000),
    full=dict(d=200, n=500, inits=400, pools=(1, 2, 4, 9, 25, 100), most=10_000),
    seconds=(12, 80),
)
def maxpool(run: Run) -> Outcome:
    """I8: γ grows with K and follows theory.md (9); E max/√(2 ln K) tends to 1, slowly."""
    import firstguess as fg
    from firstguess import figures
    from firstguess_papers.library import Series

    d, n, inits, pools, most = run.take("d n inits pools most")
    x = fg.data.blob(n, d, seed=run.seed)
    rows: list[dict[str, Any]] = []
    series: list[Series] = []
    must: list[Truth] = []
    close: list[Truth] = []
    said: list[str] = []
    for name, phi in (("linear", "linear"), ("ReLU", "relu")):
        found: list[Number] = []
        theory: list[float] = []
        for k in pools:
            net = f"dense(weight_var=2) > {phi} > maxpool({k}) > dense(weight_var=2)"
            width = min(200 * k, most)
            m = run.measure(net, x, inits=inits, width=width, probe="output", label=f"{name}, pool of {k}")
            found.append(gamma(m))
            theory.append(float(fg.predict(net).gamma[-1]))
            rows.append(row(name, m, pool=k, width=width, theory_gamma=theory[-1]))
            close.append(same(found[-1], theory[-1], room=0.05 + 0.15 * theory[-1]))
        must += [above(b, a) for a, b in pairwise(found)]
        if name == "linear":
            must.append(same(found[0], 0.0, room=0.02))
        said.append(f"{name}: γ = " + ", ".join(f"{g} (K = {k})" for k, g in zip(pools, found, strict=True)))
        series += [
            Series(name, pools, [g.value for g in found], [g.error for g in found], "points"),
            Series(name, pools, theory, mark="line"),
        ]
    sizes = [2.0, 4.0, 9.0, 25.0, 100.0, 1e4, 1e6, 1e9, 1e12]
    ratios = [largest_of(k)[0] / math.sqrt(2 * math.log(k)) for k in sizes]
    spreads = [largest_of(k)[1] / largest_of(k)[0] for k in sizes]
    tends = all(b > a for a, b in pairwise(ratios)) and ratios[-1] > 0.95
    narrows = all(b < a for a, b in pairwise(spreads))
    growth = figures.lines_chart(
        series,
        title='Bias by the size of max-pools',
        subtitle=["Drift ratio γ of the output; points: measured ± 2 standard errors, lines: theory.md (9)."],
        x_title="Nodes in a pool, K", y_title="Drift ratio γ of the output", x_scale="log", y_scale="symlog", width=640,
    )  # fmt: skip
    rule = figures.lines_chart(
        [Series("mean of the maximum / √(2 ln K)", sizes, ratios), Series("its spread / its mean", sizes, spreads)],
        title=stated(
            tends and abs(ratios[1] - 1) > 0.1,
            "√(2 ln K) is where the maximum of K Gaussians ends, not where pools in use are",
            "The maximum of K Gaussians by √(2 ln K)",
        ),
        x_title="Nodes in a pool, K", y_title="Ratio", x_scale="log", y_domain=(0.0, 1.2), rules={"limit": 1.0},
        width=640,
    )  # fmt: skip
    return Outcome(
        [
            entry(
                "I8",
                "γ grows with every step of K, for linear (from 0, within 0.02, at K = 1) and for ReLU; without a "
                "limit within 15 % + 0.05 of theory.md (9)",
                "; ".join(said),
                must,
                within=close,
                limit="few pooled nodes: some measured γ depart from theory by more than 15 %",
            ),
            entry(
                "I8",
                "the maximum of K Gaussians: mean/√(2 ln K) rises with K and passes 0.95 by K = 10¹², its relative "
                "spread falls; without a limit the mean is within 10 % of √(2 ln K) for K = 4 and 9",
                ", ".join(
                    f"K = {k:g}: {r:.3f} (spread {s:.2f})" for k, r, s in zip(sizes, ratios, spreads, strict=True)
                ),
                [tends, narrows],
                within=[abs(ratios[1] - 1) < 0.1, abs(ratios[2] - 1) < 0.1],
                limit="convergence is logarithmic: at the pool sizes of image networks √(2 ln K) is far too large; "
                "use the exact moments, theory.md (9)",
            ),
        ],
        {"pools": columns(rows), "maxima": {"k": sizes, "ratio": ratios, "relative_spread": spreads}},
        {"pools": growth, "maxima": rule},
        holds={"pools": Holds("A larger pool makes a network more biased, with or without ReLU", entries=(0,))},
    )


def largest_of(k: float) -> tuple[float, float]:
    """Mean and standard deviation of the largest of k standard Gaussians, by quadrature.

    >>> [round(value, 6) for value in largest_of(2)]  # 1/√π and √(1 − 1/π)
    [0.56419, 0.825645]
    """
    grid = np.linspace(-12.0, 14.0, 26_001)
    # Φ(x)^k = exp(k·log Φ(x)): log_ndtr keeps its digits where Φ is 1 − 1e-13.
    below = np.exp(k * special.log_ndtr(grid))
    end = float(grid[-1])
    mean = end - float(integrate.simpson(below, x=grid))
    square = end**2 - float(integrate.simpson(2 * grid * below, x=grid))
    return mean, math.sqrt(square - mean**2)


@item(
    "igb/weight_scale",
    "Weights of order 1/N: what an arg-max sees",
    claims=("I11",),
    where="IGB §5",
    about="One hidden layer of N = {widths}, inputs of N dimensions (blobs, 300 points); standard deviation of weights "
    "√2/√N or √2/N; ReLU, GELU and sigmoid without biases, ReLU with biases of variance 0.1; {inits} networks each.",
    quick=dict(widths=(100, 400), inits=300),
    full=dict(widths=(100, 400, 1600), inits=1000),
    seconds=(12, 80),
)
def weight_scale(run: Run) -> Outcome:
    """I11: centers and spreads shrink together; ReLU's arg-max sees nothing; what smooth activations and biases do."""
    import firstguess as fg
    from firstguess import figures
    from firstguess_papers.library import Series

    widths, inits = run.take("widths inits")
    cases = {
        "ReLU": ("relu", 0.0),
        "GELU": ("gelu", 0.0),
        "sigmoid": ("sigmoid", 0.0),
        "ReLU with biases": ("relu", 0.1),
    }
    rows: list[dict[str, Any]] = []
    found: dict[tuple[str, int, bool], fg.Measurement] = {}
    for width in widths:
        x = fg.data.blob(300, width, seed=run.seed)
        for name, (phi, bias) in cases.items():
            for small in (False, True):
                dense = f"dense(weight_var={2 / width if small else 2!r}, bias_var={bias})"
                shown = f"{name}, N = {width}, weights 1/{'N' if small else '√N'}"
                m = run.measure(f"{dense} > {phi} > {dense}", x, inits=inits, width=width, probe="output", label=shown)
                found[name, width, small] = m
                last = m.weights_layers[-1]
                rows.append(row(name, m, width=width, small=small, center=last.center, spread=last.spread))
    at = widths[-1]
    pair = {name: (std(found[name, at, False]), std(found[name, at, True])) for name in cases}
    unchanged = all_of(same(std(found["ReLU", w, True]), std(found["ReLU", w, False]), room=0.03) for w in widths)
    neutral = {name: same(seen[1], 0.5 / math.sqrt(300), room=0.03) for name, seen in pair.items()}
    center = [found["ReLU", w, True].weights_layers[-1] for w in widths]
    fall = Number(center[-1].center, center[-1].center_se) / Number(center[0].center, center[0].center_se)
    said = "; ".join(f"{name} {a} → {b}" for name, (a, b) in pair.items())
    chart = figures.lines_chart(
        {
            f"Weights of order 1/{'N' if small else '√N'}": [
                Series(name, widths, [std(found[name, w, small]).value for w in widths],
                       [std(found[name, w, small]).error for w in widths])
                for name in cases
            ]
            for small in (False, True)
        },
        title=f"Weights of order 1/N instead of 1/√N, spread of guesses at N = {at}: "
        + ", ".join(f"{name} {a.value:.2f} → {b.value:.2f}" for name, (a, b) in pair.items()),
        subtitle=["Standard deviation of a guess fraction ± 2 standard errors; one hidden layer, two classes, 300 "
        "random points."],
        x_title="Width N", y_title="Standard deviation of a guess fraction", x_scale="log", y_domain=(0.0, 0.55),
        rules={"coin flips": 0.5 / math.sqrt(300)},
    )  # fmt: skip
    return Outcome(
        [
            entry(
                "I11",
                "as guesses, in general (ReLU, GELU, sigmoid; ReLU with biases): with weights of order 1/N the "
                "standard deviation "
                f"of G₀ at N = {at} is that of coin flips (within 0.03)",
                f"standard deviation of G₀, weights 1/√N → 1/N: {said}",
                list(neutral.values()),
                otherwise="the arg-max does not see a common scale: "
                + ("ReLU's guesses do not change at all (std equal within 0.03 at every N). " if unchanged else "")
                + "Not neutral: "
                + ", ".join(name for name, ok in neutral.items() if ok is not True),
            ),
            entry(
                "I11",
                "as an absolute statement about centers: with weights of order 1/N the center variance of ReLU's "
                f"outputs falls by more than half from N = {widths[0]} to {at}; without a limit γ falls as well",
                f"center variance × {fall}; γ {gamma(found['ReLU', widths[0], True])} → "
                f"{gamma(found['ReLU', at, True])}",
                [above(Number(0.5), fall)],
                within=[above(gamma(found["ReLU", widths[0], True]), gamma(found["ReLU", at, True]), by=0.1) is True],
                limit="the spread over data falls with it: their ratio γ, and so the guesses, stay",
            ),
            entry(
                "I11",
                "for a smooth activation with φ(0) = 0 (GELU): small weights make it linear, so G₀ is split as by "
                "coin flips (within 0.03)",
                f"GELU: {pair['GELU'][0]} → {pair['GELU'][1]}, coin flips {0.5 / math.sqrt(300):.4f}",
                [neutral["GELU"]],
            ),
        ],
        {"scales": columns(rows)},
        {"scales": chart},
    )
