"""IGB: how networks split random data (Figs 5, 7, 8), and what creates bias (§4, §5, App. E, G)."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import integrate, special

import firstguess as fg
from firstguess_papers import charts, library
from firstguess_papers.charts import deep, gamma, grid, largest, laws, lines, points, share, std, theory_gamma
from firstguess_papers.items import Holds, Item
from firstguess_papers.judging import Check, Number, all_of, biased, check, claimed, close, power_law, same, surely
from firstguess_papers.measured import Cell, Found

ONE = "dense(weight_var=2) > {} > dense(weight_var=2)"
POOLED = "ReLU + max-pool of 4"
CLOSED = "Lines: closed form for as many points, no free parameter."
KINDS = {"linear": ONE.format("linear"), "ReLU": ONE.format("relu"), POOLED: ONE.format("relu > maxpool(4)")}


def _middle_and_ends(m: Any) -> tuple[Number, Number]:
    """The shares of networks with G₀ in the middle fifth, and in the outer one, both ends of a tenth."""
    low, high = share(m, 0.0, 0.1), share(m, 0.9, 1.0)
    return share(m, 0.4, 0.6), Number(low.value + high.value, math.hypot(low.error, high.error))


fig5 = Item(
    "igb/fig5", "How an untrained network splits random data", "IGB Fig 5", claims=("I1",),
    about="One hidden layer of {width} (our size), Kaiming; blobs in {d} dimensions, {n} points; {inits} networks "
    "each.",
    quick=dict(width=300, d=1000, n=(100, 800), inits=300),
    full=[dict(width=300, d=1000, n=(300, 3000), inits=1000), dict(width=1000, d=3072, n=(200, 1000), inits=600)],
    seconds=(12, 90),
    cells=lambda c: {(kind, n): Cell(net, c.blob(n, c.d)) for n in c.n for kind, net in KINDS.items()},
    quantities=lambda c: {"relu": _middle_and_ends(c["ReLU", c.n[1]]), "pooled": _middle_and_ends(c[POOLED, c.n[1]])},
    rows=lambda c, kind, _: {"width": c.width, "dimensions": c.d, "theory_gamma": theory_gamma(KINDS[kind])},
    judge=lambda c: [claimed(
        "I1", "std of G₀, and shares of networks with G₀ in the middle and in the outer fifth", c.over(lambda c: [
            check("linear, power of n", power_law(c.n, [std(c["linear", n]) for n in c.n])[0], near=-0.5, room=0.1),
            check("ReLU, std at the larger n by that at the smaller", std(c["ReLU", c.n[1]]) / std(c["ReLU", c.n[0]]),
                  near=1.0, room=0.15),
            check("ReLU, middle", c.relu[0], above=c.relu[1], than="the outer"),
            check(f"{POOLED}, outer", c.pooled[1], above=c.pooled[0], than="the middle"),
        ]),
    )],
    charts=lambda c: {"laws": laws(
        c.cells, lambda kind, n: f"{kind}, {n:,} points", theory=lambda kind, _: {"theory": fg.predict(KINDS[kind])},
        title="How untrained networks of three kinds split random data", says=CLOSED,
    )},
    holds={"laws": "A linear network splits data evenly; ReLU does not, and max-pooling sends most to one class"},
)  # fmt: skip


def _mlp(kind: str, depth: int) -> Any:
    phi: Any = fg.centered("relu") if "mean" in kind else kind.lower()
    return fg.mlp(depth=depth, activation=phi)


DEEPER = ("ReLU", "tanh", "ReLU minus its mean")
fig7 = Item(
    "igb/fig7", "Depth amplifies bias and never creates it", "IGB Fig 7, App. F.2", claims=("I9",),
    about="ReLU, tanh and ReLU minus its mean, 1 to 20 hidden layers of {width} (our size), σw² = 2; blobs in {d} "
    "dimensions, {n} points; {inits} networks each.",
    quick=dict(width=200, d=200, n=400, inits=300),
    full=[dict(width=300, d=1000, n=500, inits=600), dict(width=1000, d=300, n=300, inits=200)],
    seconds=(12, 90),
    cells=lambda c: {
        (kind, depth): Cell(_mlp(kind, depth), c.blob(c.n, c.d))
        for kind in DEEPER for depth in ((1, 2, 5, 10, 20) if kind == "ReLU" else (1, 20))
    },
    quantities=lambda c: {"by_depth": {kind: {k: gamma(m) for (own, k), m in c.cells.items() if own == kind}
                                       for kind in DEEPER}},
    table="depth",
    rows=lambda c, kind, depth: {"depth": depth, "width": c.width, "theory_gamma": theory_gamma(_mlp(kind, depth))},
    judge=lambda c: [claimed(
        "I9", "by depth", c.over(lambda c: [
            check("ReLU, largest fraction at depth 20", largest(c["ReLU", 20]), above=largest(c["ReLU", 1]),
                  than="depth 1's"),
            *(check(f"ReLU, γ at depth {b}", c.by_depth["ReLU"][b], above=c.by_depth["ReLU"][a], than=f"depth {a}'s")
              for a, b in ((5, 20), (1, 5))),
            *(check(f"{kind}, γ at depth 20", c.by_depth[kind][20], near=0.0, room=0.1) for kind in DEEPER[1:]),
            *([check("P(largest fraction > 0.9) at depth 1000 by theory",
                     fg.predict(fg.mlp(depth=1000)).guesses.prob_max_above(0.9), above=0.97)] if c.first else []),
        ]),
        within=c.over(lambda c: [close("ReLU, γ at depth 20", gamma(c["ReLU", 20]), theory_gamma(_mlp("ReLU", 20)), 0.2,
                                       to="theory")]),
        limit="at finite width γ of deep ReLU networks departs from theory",
    )],
    charts=lambda c: {
        "growth": fg.figures.lines_chart(
            [charts.predicted("ReLU, theory", range(1, 21), fg.predict(_mlp("ReLU", 20)).gamma[1:].tolist()),
             *(points(f"{kind}, width {one.width}", one.by_depth[kind]) for one in c.every for kind in DEEPER)],
            title="Bias by depth: γ of ReLU networks {0[1].value:.2g} → {0[20].value:.3g} in 20 layers".format(
                c.every[-1].by_depth["ReLU"]),
            subtitle=[charts.MARKS],
            x_title="Hidden layers", y_title="Drift ratio γ of the output", x_scale="log", dodge=True, width=640,
        ),
        "laws": laws(
            {k: c["ReLU", k] for k in (1, 5, 20)}, lambda k: f"ReLU, {k} hidden layers", says=CLOSED,
            theory=lambda k: {"theory": fg.predict(_mlp("ReLU", k))}, title="Guesses of ReLU networks by depth",
        ),
    },
    holds={
        "growth": "Depth amplifies the bias of ReLU; where there is none, it creates none",
        "laws": "With depth, ReLU networks give all data to one class",
    },
)  # fmt: skip

SHIFT = 1 / math.sqrt(math.pi)  # E ReLU of a Gaussian with variance 2: Kaiming's first layer on the blob
SHIFTED = {"ReLU": "relu", "ReLU minus its mean": "centered(relu)", "ReLU minus 1/√π": f"relu > shift({-SHIFT!r})"}


def _even(c: Found, *keys: tuple[str, int]) -> list[Check]:
    """Whether std of G₀ is that of coin flips."""
    return [check(f"{kind}, depth {depth}", std(c[kind, depth]), near=0.5 / math.sqrt(c.n), room=0.02,
                  than="coin flips") for kind, depth in keys]  # fmt: skip


fig8 = Item(
    "igb/fig8", "ReLU minus its mean is neutral", "IGB Fig 8", claims=("I6",),
    about="One hidden layer and five, of {width} (our size), σw² = 2; blobs in 1000 dimensions, {n} points; {inits} "
    "networks each. The shift is each layer's own mean, or the first layer's constant 1/√π everywhere.",
    quick=dict(width=300, n=500, inits=300),
    full=[dict(width=300, n=1000, inits=1000), dict(width=1000, n=500, inits=300)],
    seconds=(10, 70),
    cells=lambda c: {(kind, depth): Cell(deep(block, depth), c.blob(c.n, 1000))
                     for depth in (1, 5) for kind, block in SHIFTED.items()},
    rows=lambda c, _, depth: {"depth": depth, "width": c.width},
    judge=lambda c: [claimed(
        "I6", "std of G₀",
        c.over(lambda c: _even(c, ("ReLU minus its mean", 1), ("ReLU minus 1/√π", 1), ("ReLU minus its mean", 5))),
        within=c.over(lambda c: _even(c, ("ReLU minus 1/√π", 5))),
        limit="a constant shift fits one variance of the pre-activations: in the second layer it is another, and bias "
        "is back",
    )],
    charts=lambda c: {"laws": laws(
        c.cells, lambda kind, depth: f"{kind}, {depth} layer{'s' * (depth > 1)}", bins=30,
        title="Guesses with the mean taken off ReLU, in every layer or by one constant",
    )},
    holds={"laws": Holds("Subtracting the mean of ReLU removes the bias, if every layer does it",
                         verdicts=("holds with a limit",))},
)  # fmt: skip


self_averaging = Item(
    "igb/self_averaging", "A larger network does not have a more even split", "IGB §4.1", claims=("I4",),
    about="One hidden ReLU layer of {widths}, 2 and 10 classes; blobs in {d} dimensions, {n} points; {inits} networks "
    "each.",
    quick=dict(d=300, n=400, widths=(30, 100, 300, 1000), inits=400),
    full=dict(d=300, n=500, widths=(30, 100, 300, 1000, 3000), inits=1000),
    seconds=(10, 70),
    cells=lambda c: {
        (f"{n} classes", width): Cell(fg.mlp(depth=1, classes=n), c.blob(c.n, c.d), {"width": width})
        for n in (2, 10) for width in c.widths
    },
    quantities=lambda c: {"ends": (c.widths[0], c.widths[-1])}, table="widths",
    rows=lambda c, _, width: {"width": width},
    judge=lambda c: [claimed("I4", "std of a fraction over networks, and class means over them (χ² test)", [
        *(check(f"{n}, power of width", power_law(c.ends, [std(c[n, w]) for w in c.ends])[0], near=0.0, room=0.05)
          for n in ("2 classes", "10 classes")),
        check("p of alike class means", [library.equal_means_test(m.guesses.fractions)[1] for m in c.cells.values()],
              above=1e-4, at=[f"{label}, width {width}" for label, width in c.cells]),
    ])],
    charts=lambda c: {"widths": fg.figures.lines_chart(
        [series for n in (2, 10) for series in (
            points(f"{n} classes", {w: std(c[f"{n} classes", w]) for w in c.widths}),
            fg.figures.Series(f"{n} classes", c.ends, [fg.Guesses(1 / (math.pi - 1), n, c.n).std()] * 2, mark="dashed"),
        )],
        title="Spread of the guesses by width",
        subtitle=["Points: measured ± 2 standard errors. Dashed: theory for infinite width."],
        x_title="Width of the hidden layer", y_title="Standard deviation of a guess fraction", x_scale="log",
        y_domain=(0.0, 0.3), width=640,
    )},
    holds={"widths": "Width does not even out the guesses: two large networks differ as much as two small ones"},
)  # fmt: skip


def _one_layer(name: str) -> Any:
    # ten outputs: γ is an average over output nodes, so five times the networks
    return fg.Network.parse(f"dense > {name} > dense", classes=10)


def _activation(name: str) -> Any:
    return fg.activation(name) if "(" not in name else fg.centered(name[9:-1])


criterion = Item(
    "igb/criterion", "Every registered activation: bias iff its mean is not 0", "IGB App. G", claims=("I5",),
    about="One hidden layer of {width} (our size), σw² = 1; blobs in {d} dimensions, {n} points; {inits} networks of "
    "ten outputs an activation: all registered ones, and four with their mean taken off.",
    quick=dict(width=300, d=300, n=500, inits=150),
    full=[dict(width=300, d=1000, n=1000, inits=600), dict(width=1000, d=1000, n=1000, inits=150)],
    seconds=(12, 90),
    cells=lambda c: {
        name: Cell(_one_layer(name), c.blob(c.n, c.d))
        for name in [*library.names(), *(f"centered({k})" for k in ("relu", "gelu", "softplus", "abs"))]
    },
    quantities=lambda c: {
        "found": {name: gamma(m) for name, m in c.cells.items()},
        "theory": {name: theory_gamma(_one_layer(name)) for name in c.cells},
        "biased": {causes: [name for name in c.cells if bool(fg.causes_bias(_activation(name))) is causes]
                   for causes in (True, False)},
    },
    table="activations",
    rows=lambda c, name: {
        "width": c.width, "theory_gamma": c.theory[name], "mean": _activation(name).moments(0.0, 1.0).mean,
        "causes": name in c.biased[True],
    },
    judge=lambda c: [claimed(
        "I5", "γ of activations (odd ones, and those with their mean taken off, have mean 0)", c.over(lambda c: [
            biased(f"{len(own)} whose mean is {'not ' * causes}0", [c.found[name] for name in own], causes, at=own)
            for causes, own in c.biased.items()
        ]),
        within=c.over(lambda c: [close("all", [*c.found.values()], [*c.theory.values()], 0.1, 0.02, to="theory",
                                       at=c.found)]),
        limit="at this width some depart from theory by more",
        otherwise="not as the criterion says",
    )],
    charts=lambda c: {"activations": fg.figures.lines_chart(
        [*(fg.figures.Series(f"mean is {'not ' * causes}0", [max(c.theory[name], 1e-4) for name in names],
                  [max(c.found[name].value, 1e-4) for name in names], [c.found[name].error for name in names],
                  "points") for causes, names in c.biased.items()),
         fg.figures.Series("theory = measured", [1e-4, 100.0], [1e-4, 100.0], mark="dashed")],
        title="Bias of every activation, measured and by theory",
        subtitle=[f"{charts.MARKS_ALONE} Values below 0.0001 are drawn there."],
        x_title="γ by theory", y_title="γ measured", x_scale="log", y_scale="log", width=520, height=420,
        x_domain=(5e-5, 200.0), y_domain=(5e-5, 200.0),
    )},
    holds={"activations": "An activation causes bias exactly when its mean is not 0"},
)  # fmt: skip

SHIFTS = (0.0, 0.25, 0.5, 1.0, 2.0)
ODD = {"linear": "linear", "tanh": "tanh", "erf": "erf", "sin": "sin", "ReLU": "relu"}
CENTRED = "the same, centred"


def _uncentred_cells(c: Found) -> dict[Any, Cell]:
    rng = np.random.default_rng([c.run.seed, 7])
    pixels = fg.data.as_data(rng.random((c.n, c.d), dtype=np.float32))
    raw = c.run.data("digits", points=c.n, standardize="none")
    digits = fg.data.as_data(raw.flat() / 16 if float(raw.x.max()) > 1 else raw.flat())
    sets = {"uniform pixels": pixels, CENTRED: pixels.standardize("pixel"), "digits": digits}
    shifted = {f"blob + {shift}": c.blob(c.n, c.d).shift(shift) for shift in SHIFTS}
    moved = {(name, label, c.widths[0]): (phi, x) for name, phi in ODD.items() for label, x in shifted.items()}
    moved |= {(name, label, w): (name, x) for w in c.widths for name in ("tanh", "sin") for label, x in sets.items()}
    return {key: Cell(f"dense > {phi} > dense", x, {"width": key[2]}) for key, (phi, x) in moved.items()}


def _shifted_gamma(name: str, shift: float) -> float:
    """γ of the output on data shifted by a constant, in closed form."""
    inputs = fg.Inputs(mean_square=shift**2, variance=1.0)
    return float(fg.predict(f"dense > {ODD[name]} > dense", inputs=inputs).gamma[-1])


uncentred = Item(
    "igb/uncentred", "Uncentred inputs bring bias with any activation", "IGB §4.1",
    claims=("I7",), needs=("digits",), seconds=(12, 80),
    about="Linear, tanh, erf, sin and ReLU, one hidden layer of {widths} (our size), σw² = 1; blobs in {d} dimensions "
    "shifted by 0 to 2, uniform pixels from 0 to 1, digits from 0 to 1; {n} points, {inits} networks each.",
    quick=dict(d=300, n=500, inits=150, widths=(300,)),
    full=dict(d=1000, n=500, inits=600, widths=(300, 1000)),
    cells=_uncentred_cells,
    quantities=lambda c: {
        "moved": {name: {s: gamma(c[name, f"blob + {s}", c.widths[0]]) for s in SHIFTS} for name in ODD},
    },
    table="uncentred",
    rows=lambda c, name, label, width: {"data": label, "width": width} | (
        {"theory_gamma": _shifted_gamma(name, float(label[7:]))} if label.startswith("blob") else {}
    ),
    judge=lambda c: [claimed(
        "I7", "γ of odd activations", [
            *(one for name, g in c.moved.items() if name != "ReLU" for one in (
                check(f"{name}, centred blob", g[0.0], near=0.0, room=0.02),
                check(f"{name}, blob shifted by ½", g[0.5], above=g[0.0], than="on the centred one"),
                check(f"{name}, blob shifted by 2", g[2.0], above=g[0.5], than="shifted by ½"))),
            *(biased(f"{name}, {label}, width {width}", gamma(m), label != CENTRED, least=0.3)
              for (name, label, width), m in c.cells.items() if not label.startswith("blob")),
        ],
        also="blobs shifted by 1: " + ", ".join(f"{name} {g[1.0]}" for name, g in c.moved.items()),
    )],
    charts=lambda c: {"shift": lines(
        grid("name shift", gamma=c.moved, theory=_shifted_gamma), "shift", "gamma",
        x_title="Constant added to all inputs (their spread is 1)", y_scale="symlog",
    )},
    holds={"shift": "Moving the data off zero biases networks whose activation is odd"},
)  # fmt: skip


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


MAXIMA = [2.0, 4.0, 9.0, 25.0, 100.0, 1e4, 1e6, 1e9, 1e12]


def _pooled(name: str, k: int) -> str:
    return ONE.format(f"{name.lower()} > maxpool({k})")


def _maxpool(c: Found) -> dict[str, Any]:
    """γ by pool, and that of theory; mean of the largest of K by √(2 ln K), and its spread by its mean."""
    found = [(k, *largest_of(k)) for k in MAXIMA]
    return {
        "by_pool": {name: {k: gamma(c[name, k]) for k in c.pools} for name in ("linear", "ReLU")},
        "theory": {key: theory_gamma(_pooled(*key)) for key in c.cells},
        "ratios": [mean / math.sqrt(2 * math.log(k)) for k, mean, _ in found],
        "spreads": [std / mean for _, mean, std in found],
    }


maxpool = Item(
    "igb/maxpool", "Max-pooling creates bias and amplifies it", "IGB §4.2, App. E", claims=("I8",),
    about="One hidden layer, linear or ReLU, max-pool of K = {pools} over 200·K nodes (at most {most}; our sizes); "
    "blobs in {d} dimensions, {n} points; {inits} networks each. The maximum of K Gaussians by quadrature, K to 10¹².",
    quick=dict(d=200, n=300, inits=200, pools=(1, 2, 4, 9, 25), most=2000),
    full=dict(d=200, n=500, inits=400, pools=(1, 2, 4, 9, 25, 100), most=10_000),
    seconds=(12, 80),
    cells=lambda c: {
        (name, k): Cell(_pooled(name, k), c.blob(c.n, c.d), {"width": min(200 * k, c.most)})
        for name in ("linear", "ReLU") for k in c.pools
    },
    quantities=_maxpool, table="pools",
    rows=lambda c, name, k: {"pool": k, "width": min(200 * k, c.most), "theory_gamma": c.theory[name, k]},
    tables=lambda c: {"maxima": {"k": MAXIMA, "ratio": c.ratios, "relative_spread": c.spreads}},
    judge=lambda c: [
        claimed(
            "I8", "γ by the size of pools", [
                *(check(f"{name}, K = {k}", g[k], above=g[before], than="a smaller pool's")
                  for name, g in c.by_pool.items() for before, k in pairwise(g)),
                check("linear, K = 1", c.by_pool["linear"][1], near=0.0, room=0.02),
            ],
            within=[close("all", [gamma(c[key]) for key in c.theory], [*c.theory.values()], 0.15, 0.05,
                          to="theory.md (9)", at=[f"{name}, K = {k}" for name, k in c.theory])],
            limit="few pooled nodes: some measured γ depart from theory",
        ),
        claimed(
            "I8", "the maximum of K Gaussians", [
                check("mean/√(2 ln K)", c.ratios[1:], above=c.ratios[:-1], than="a smaller K's"),
                check("mean/√(2 ln K) at K = 10¹²", c.ratios[-1], above=0.95),
                check("spread/mean", c.spreads[1:], below=c.spreads[:-1], than="a smaller K's"),
            ],
            within=[check(f"mean/√(2 ln K) at K = {k:g}", r, near=1.0, room=0.1)
                    for k, r in zip(MAXIMA[1:3], c.ratios[1:3], strict=True)],
            limit="convergence is logarithmic: at the pool sizes of image networks √(2 ln K) is far too large; use the "
            "exact moments, theory.md (9)",
        ),
    ],
    charts=lambda c: {
        "pools": lines(
            grid("name pool", gamma=c.by_pool, theory=c.theory), "pool", "gamma", x_scale="log",
            title="Bias by the size of max-pools", x_title="Nodes in a pool, K",
            y_scale="symlog", dodge=False,
        ),
        "maxima": fg.figures.lines_chart(
            [fg.figures.Series("mean of the maximum / √(2 ln K)", MAXIMA, c.ratios),
             fg.figures.Series("its spread / its mean", MAXIMA, c.spreads)],
            title="The maximum of K Gaussians by √(2 ln K)", x_title="Nodes in a pool, K", y_title="Ratio",
            x_scale="log", y_domain=(0.0, 1.2), rules={"limit": 1.0}, width=640,
        ),
    },
    holds={
        "pools": Holds("A larger pool makes a network more biased, with or without ReLU", entries=(0,)),
        "maxima": Holds("√(2 ln K) is where the maximum of K Gaussians ends, not where pools in use are", (1,),
                        ("holds with a limit",)),
    },
)  # fmt: skip

SCALED = {"ReLU": ("relu", 0.0), "GELU": ("gelu", 0.0), "sigmoid": ("sigmoid", 0.0), "ReLU with biases": ("relu", 0.1)}
FLIPS = 0.5 / math.sqrt(300)  # std of G₀ of 300 coin flips


def _scaled(name: str, width: int, small: bool) -> str:
    phi, bias = SCALED[name]
    dense = f"dense(weight_var={2 / width if small else 2!r}, bias_var={bias})"
    return f"{dense} > {phi} > {dense}"


def _coins(pair: list[Number], name: str) -> Check:
    """Whether guesses of small weights are coin flips; said with those of usual ones."""
    one = check(name, pair[1], near=FLIPS, room=0.03, than="coin flips")
    return replace(one, found=f"{pair[0]} with 1/√N → {one.found}")


def _scales(c: Found) -> dict[str, Any]:
    """With weights of order 1/√N and 1/N at the largest width: std of G₀; and what small ones do from end to end."""
    one, two = (c["ReLU", width, True] for width in (c.widths[0], c.widths[-1]))
    before, after = (Number(m.weights_layers[-1].center, m.weights_layers[-1].center_se) for m in (one, two))
    unchanged = all_of(same(std(c["ReLU", w, True]), std(c["ReLU", w, False]), room=0.03) for w in c.widths)
    return {
        "narrow": c.widths[0], "last": c.widths[-1], "fall": after / before, "gammas": (gamma(one), gamma(two)),
        "pair": {name: [std(c[name, c.widths[-1], small]) for small in (False, True)] for name in SCALED},
        "still": "; ReLU's guesses do not change at all (std equal within 0.03 at every N)" if unchanged else "",
    }  # fmt: skip


weight_scale = Item(
    "igb/weight_scale", "Weights of order 1/N: what an arg-max sees", "IGB §5", claims=("I11",),
    about="One hidden layer of N = {widths}, inputs of N dimensions (blobs, 300 points); standard deviation of weights "
    "√2/√N or √2/N; ReLU, GELU and sigmoid without biases, ReLU with biases of variance 0.1; {inits} networks each.",
    quick=dict(widths=(100, 400), inits=300),
    full=dict(widths=(100, 400, 1600), inits=1000),
    seconds=(12, 80),
    cells=lambda c: {
        (name, width, small): Cell(_scaled(name, width, small), c.blob(300, width), {"width": width})
        for width in c.widths for name in SCALED for small in (False, True)
    },
    quantities=_scales, table="scales",
    rows=lambda c, name, width, small: {"width": width, "small": small} | {
        part: getattr(c[name, width, small].weights_layers[-1], part) for part in ("center", "spread")
    },
    judge=lambda c: [
        claimed(
            "I11", f"as guesses, in general: std of G₀ with weights of order 1/N at N = {c.last}",
            [_coins(pair, name) for name, pair in c.pair.items()],
            otherwise=f"the arg-max does not see a common scale{c.still}. Not neutral",
        ),
        claimed(
            "I11", "as an absolute statement about centers, ReLU with weights of order 1/N from N = "
            f"{c.narrow} to {c.last}",
            [check("center variance of the outputs, last by first", c.fall, below=0.5)],
            within=[surely(check("γ at the first N", c.gammas[0], above=c.gammas[1], by=0.1, than="at the last"))],
            limit="the spread over data falls with it: their ratio γ, and so the guesses, stay",
        ),
        claimed(
            "I11", "for a smooth activation with φ(0) = 0 small weights make it linear: std of G₀",
            [_coins(c.pair["GELU"], "GELU")],
        ),
    ],
    charts=lambda c: {"scales": fg.figures.lines_chart(
        {f"Weights of order 1/{'N' if small else '√N'}": [
            replace(points(name, {w: std(c[name, w, small]) for w in c.widths}), mark="both") for name in SCALED
        ] for small in (False, True)},
        title=f"Weights of order 1/N instead of 1/√N, spread of guesses at N = {c.last}: "
        + ", ".join(f"{name} {a.value:.2f} → {b.value:.2f}" for name, (a, b) in c.pair.items()),
        subtitle=[charts.MARKS_ALONE],
        x_title="Width N", y_title="Standard deviation of a guess fraction", x_scale="log", y_domain=(0.0, 0.55),
        rules={"coin flips": FLIPS},
    )},
)  # fmt: skip
