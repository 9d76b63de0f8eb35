"""IGB: the centers of nodes (Fig 6, §3), and many classes by the strongest rival alone (App. H)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

import firstguess as fg
from firstguess import figures
from firstguess.data import Data
from firstguess_papers.charts import grid, largest, law_panel, lines, predicted, ratio, row, theory_gamma
from firstguess_papers.items import Holds, Item
from firstguess_papers.judging import Array, Check, Number, average, check, claimed, power_law, root, same
from firstguess_papers.measured import Cell, Found


def simulate(
    x: NDArray[Any], *, depth: int, width: int, activation: str, inits: int, nodes: int, seed: list[int]
) -> dict[str, Any]:
    """Moments over data of the pre-activations of `nodes` nodes of every layer, (inits, layers, nodes) each.

    Networks with Kaiming weights (σw² = 2), `depth` hidden layers and `nodes` outputs. Variances are unbiased, the
    kurtosis is that beyond a Gaussian's.

    >>> x = np.random.default_rng(0).standard_normal((500, 50))
    >>> found = simulate(x, depth=1, width=100, activation="relu", inits=20, nodes=5, seed=[0])
    >>> found["mean"].shape, abs(node_gamma(found, 0).value) < 0.01, 0.2 < node_gamma(found, 1).value < 0.8
    ((20, 2, 5), True, True)
    """
    rng = np.random.default_rng(seed)
    phi = {"linear": np.asarray, "relu": lambda u: np.maximum(u, 0.0), "tanh": np.tanh}[activation]
    moments = np.empty((4, inits, depth + 1, nodes))
    for i in range(inits):
        h = np.ascontiguousarray(x, dtype=np.float32)
        for layer in range(depth + 1):
            out = width if layer < depth else nodes
            w = rng.standard_normal((h.shape[1], out), dtype=np.float32) * np.float32(math.sqrt(2 / h.shape[1]))
            u = h @ w
            moments[:, i, layer] = _moments(u[:, :nodes].astype(np.float64))
            h = phi(u)
    names = ("mean", "variance", "skewness", "kurtosis")
    return dict(zip(names, moments, strict=True)) | {"points": len(x)}


def _moments(u: Array) -> Array:
    n = len(u)
    mean = u.mean(axis=0)
    y = u - mean
    y2 = y * y
    square = y2.mean(axis=0)
    skewness, kurtosis = (y2 * y).mean(axis=0) / square**1.5, (y2 * y2).mean(axis=0) / square**2 - 3
    return np.stack([mean, square * n / (n - 1), skewness, kurtosis])


def node_gamma(nodes: Mapping[str, Any], layer: int) -> Number:
    """γ of a layer: E[mean² − V/n]/E V, with its error over initializations."""
    mean, v = nodes["mean"][:, layer], nodes["variance"][:, layer]
    return ratio((mean**2 - v / nodes["points"]).mean(axis=1), v.mean(axis=1))


def _centers(nodes: Mapping[str, Any], layer: int = 1) -> Array:
    """Means of a layer's nodes in units of the layer's typical spread over data."""
    return nodes["mean"][:, layer] / np.sqrt(nodes["variance"][:, layer].mean())


def _nodes(c: Found, x: Any, **options: Any) -> Mapping[str, Any]:
    """`simulate`, kept as a piece."""
    label = ", ".join(f"{key} {value}" for key, value in options.items())
    seed = [c.run.seed, options["depth"], options["width"], len(x)]
    return c.run.keep(_simulated, label=label, x=x, inits=c.inits, nodes=20, seed=seed, **options)


def _simulated(x: Data, **options: Any) -> dict[str, Any]:
    return simulate(x.flat(), **options)


def _spread(values: Any) -> Number:
    """Standard deviation about 0, of centers: nodes of one network are independent given its hidden layers."""
    return root(average((values**2).mean(axis=1)))


def _panel(label: str, values: Any, variance: float | None, reach: float, note: str) -> Any:
    edges = np.linspace(-reach, reach, 32)
    counts, _ = np.histogram(values, edges)
    known = {} if variance is None else {"theory": np.diff(special.ndtr(edges / math.sqrt(variance))) / np.diff(edges)}
    return figures.Panel(label, edges, counts / values.size / np.diff(edges), known, note)


def _relative_spread(variance: Array, n: int) -> Number:
    """How much output nodes of one network differ in variance, without what finite data do (2/n for a Gaussian)."""
    square = average(variance.var(axis=1, ddof=1) / variance.mean(axis=1) ** 2 - 2 / n)
    return root(Number(max(square.value, 1e-12), square.error))


GAMMA = 1 / (math.pi - 1)  # one ReLU layer


def _std(phi: str, n: int) -> float:
    """Of centers of output nodes by their spread over n points, in the wide limit."""
    return math.sqrt((GAMMA if phi == "ReLU" else 0.0) + 1 / n)


def _fig6(c: Found) -> dict[str, Any]:
    """Centers by activation and number of points; by width, as well as how far variances of nodes differ."""
    centers = {
        (phi, n): _centers(_nodes(c, c.blob(n, c.d), depth=1, width=200, activation=phi.lower()))
        for phi in ("Linear", "ReLU") for n in c.sizes
    }  # fmt: skip
    # as many dimensions: inputs that share few directions keep variances apart at any width
    wide = {w: _nodes(c, c.blob(c.many, w), depth=1, width=w, activation="relu") for w in c.widths}
    spreads, by_width = ({key: _spread(values) for key, values in of.items()}
                         for of in (centers, {w: _centers(n) for w, n in wide.items()}))  # fmt: skip
    relative = {w: _relative_spread(n["variance"][:, 1], c.many) for w, n in wide.items()}
    ends, few, many = (c.widths[0], c.widths[-1]), c.sizes[0], c.sizes[-1]
    return {
        "centers": centers, "spreads": spreads, "center": by_width, "relative": relative, "few": few, "most": many,
        "powers": [power_law(ends, [of[w] for w in ends])[0] for of in (relative, by_width)], "ends": ends,
        "linear": power_law((few, many), [spreads["Linear", n] for n in (few, many)])[0],
        "skewness": _spread(wide[ends[1]]["skewness"][:, 1]),
        "kurtosis": average(wide[ends[1]]["kurtosis"][:, 1].mean(axis=1)),
    }  # fmt: skip


fig6 = Item(
    "igb/fig6", "The centers of output nodes: their law against the number of points and the width",
    "IGB Fig 6, §3, App. B, C", claims=("I2", "I3"),
    about="One hidden layer of 200 (our size), linear or ReLU, σw² = 2; blobs in {d} dimensions, {sizes} points; and "
    "widths {widths} with as many dimensions, {many} points; {inits} networks of 20 output nodes each, in plain NumPy.",
    quick=dict(d=300, sizes=(100, 500, 3000), widths=(50, 200, 800), many=2000, inits=60),
    full=dict(d=1000, sizes=(100, 1000, 10_000), widths=(50, 300, 1600), many=4000, inits=100),
    seconds=(10, 80), quantities=_fig6,
    judge=lambda c: [
        claimed(
            "I2", f"ReLU, output nodes over data (width {c.ends[1]}), and powers of the width (as many input "
            "dimensions)",
            [check("skewness (rms)", c.skewness, near=0.0, room=0.15),
             check("excess kurtosis", c.kurtosis, near=0.0, room=0.15),
             check("power of the relative difference of variances", c.powers[0], near=-0.5, room=0.1),
             check("power of the standard deviation of centers", c.powers[1], near=0.0, room=0.05)],
        ),
        claimed(
            "I3", "standard deviation of centers",
            [check("linear, power of n", c.linear, near=-0.5, room=0.1),
             check(f"ReLU, {c.most} points", c.spreads["ReLU", c.most], near=_std("ReLU", c.most),
                   room=0.1 * math.sqrt(GAMMA), than="within 10 % of theory")],
            also=f"ReLU, {c.few} points: {c.spreads['ReLU', c.few]}",
        ),
    ],
    tables=lambda c: {"centers": [
        *({"name": phi, "points": n, "std": v.value, "error": v.error, "theory": _std(phi, n)}
          for (phi, n), v in c.spreads.items()),
        *({"name": "ReLU by width", "width": w, "points": c.many, "std": v.value, "error": v.error,
           "variance_spread": c.relative[w]} for w, v in c.center.items()),
    ]},
    charts=lambda c: {
        "centers": figures.panels_chart(
            [_panel(f"{phi}, {n:,} points", values, _std(phi, n) ** 2, 2.2,
                    f"standard deviation {_spread(values)}") for (phi, n), values in c.centers.items()],
            title="Centers of output nodes by the number of points", percent=False,
            subtitle=["Bars: networks × nodes. Lines: Gaussian with variance γ + 1/n."],
            x_title="Center of an output node / its spread over data",
        ),
        "widths": lines(
            grid("name width", value={"centers: standard deviation over nodes": c.center,
                                      "spread over data: relative difference between nodes": c.relative}),
            "width", also={"": [predicted("theory", c.ends, [_std("ReLU", c.many)] * 2)]},
            title="Centers and spreads of output nodes by width", y_title="Standard deviation between nodes",
            x_scale="log", y_scale="log", dodge=False,
        ),
    },
    holds={
        "centers": Holds("More data pull a linear network's centers together, but not ReLU's", entries=(1,)),
        "widths": Holds("In wide networks all nodes have the same spread, and still different centers", entries=(0,)),
    },
)  # fmt: skip


def _layers(c: Found) -> dict[str, Any]:
    """Nodes of hidden layers 1, 2, 3 for ReLU and tanh, centred data; then the same with a shift of the data."""
    nodes = {
        (f"{name}{', data shifted by ½' * (shift > 0)}", width): _nodes(
            c, c.blob(c.n, c.d).shift(shift), depth=3, width=width, activation=name.lower()
        )
        for width in c.widths
        for name in ("ReLU", "tanh")
        for shift in (0.0, 0.5)
    }
    return {"nodes": nodes, "gammas": {key: [node_gamma(n, layer) for layer in range(3)] for key, n in nodes.items()}}


def _first(c: Found, shifted: bool) -> list[Check]:
    return [check(f"{name}, width {w}, layer 1", g[0], near=0.0, room=0.02)
            for (name, w), g in c.gammas.items() if ("shifted" in name) == shifted]  # fmt: skip


layers = Item(
    "igb/layers", "In which layer nodes first differ in their centers", "IGB §3", claims=("I10",),
    about="ReLU and tanh, 3 hidden layers of {widths} (our size), σw² = 2; blobs in {d} dimensions, {n} points, "
    "centred or shifted by 0.5; {inits} networks, 20 nodes a layer, in plain NumPy.",
    quick=dict(d=300, n=1500, inits=60, widths=(200,)),
    full=dict(d=1000, n=2000, inits=80, widths=(200, 1000)),
    seconds=(5, 70), quantities=_layers,
    judge=lambda c: [claimed(
        "I10", "γ of hidden layers",
        [*_first(c, False), *(check(f"ReLU, width {w}, layer 2", c.gammas["ReLU", w][1], above=0.1) for w in c.widths),
         *(check(f"tanh, width {w}, layer 2", c.gammas["tanh", w][1], near=0.0, room=0.02) for w in c.widths)],
        within=_first(c, True),
        limit="only for centred data: those that are not differ in the first layer already, theory.md (2)",
    )],
    tables=lambda c: {"layers": [
        {"name": name, "width": width, "layer": k + 1, "gamma": g.value, "error": g.error}
        for (name, width), gammas in c.gammas.items() for k, g in enumerate(gammas)
    ]},
    charts=lambda c: {"layers": figures.panels_chart(
        [_panel(f"{name}, hidden layer {k + 1}", _centers(c.nodes[name, c.widths[0]], k), None, 2.5,
                f"γ = {c.gammas[name, c.widths[0]][k]}") for name in ("ReLU", "tanh") for k in range(3)],
        title="Centers of nodes by layer", x_title="Center of a node / its spread over data", percent=False,
        subtitle=["Bars: networks × nodes, centred data."],
    )},
    holds={"layers": "Nodes of the first layer share a center; after ReLU they do not"},
)  # fmt: skip


GOOD = 0.05  # relative error of the average largest fraction up to which an approximation is called good
OTHERWISE = {
    True: "several rivals matter: even with strong bias and ten classes it overstates the largest fraction by more "
    "than that; the exact law costs no more",
    False: "the exact law is not that of these networks",
    None: "even with strong bias and ten classes it overstates the largest fraction by more than that",
}
STRONG = 10.0  # γ from which bias is strong: deeply biased starts at 9.47
GAMMAS = (0.1, 0.466942, 1.0, 2.429259, STRONG, 100.0)


def strongest_rival(z: Array, gamma: float) -> Array:
    """IGB App. H: G_c ≈ Φ(√(γ/2)·(z_c − max_{j≠c} z_j)), class c against its strongest rival only.

    `z` (draws, classes) are centers in units of their own spread. Over the data the difference of two logits has
    variance 2σ_y², hence the ½. Exact for two classes; for more the fractions add up to more than 1.

    >>> strongest_rival(np.array([[1.0, 0.0, -1.0]]), 2.0).round(4).tolist()
    [[0.8413, 0.1587, 0.0228]]
    """
    order = np.sort(z, axis=1)
    rival = np.where(z == order[:, -1:], order[:, -2:-1], order[:, -1:])
    return special.ndtr(math.sqrt(gamma / 2) * (z - rival))


def _against_exact(classes: int, gamma: float, draws: int, seed: int) -> dict[str, Any]:
    """Both laws on the same centers: the average largest fraction, the sum of fractions, the distance of the laws."""
    from firstguess_papers.library import gaussian_argmax

    z = np.random.default_rng([seed, classes]).standard_normal((draws, classes))
    near = strongest_rival(z, gamma)
    two = classes == 2
    exact = gaussian_argmax.ndtr(np.sqrt(gamma / 2) * (z - z[:, ::-1])) if two else gaussian_argmax.fractions(z, gamma)
    by = ratio(near.max(axis=1), exact.max(axis=1))  # paired draws: its error is that of the difference only
    one, other = np.sort(near, axis=None), np.sort(exact, axis=None)
    at = np.concatenate([one, other])
    distance = np.abs(np.searchsorted(one, at, "right") - np.searchsorted(other, at, "right")).max() / one.size
    return {
        "ratio": by.value, "ratio_error": by.error, "largest": float(near.max(axis=1).mean()),
        "largest_exact": float(exact.max(axis=1).mean()), "sum": float(near.sum(axis=1).mean()),
        "distance": float(distance),
    }  # fmt: skip


def _pooled(c: Found) -> dict[Any, Cell]:
    x = c.blob(c.n, 200)
    return {
        (pool, classes): Cell(
            fg.Network.parse(f"dense(weight_var=2) > relu > maxpool({pool}) > dense(weight_var=2)", classes=classes), x,
            {"width": max(300, c.nodes * pool)},
        )
        for pool in (1, 4, 25) for classes in (3, 10, 100)
    }  # fmt: skip


def _multiclass(c: Found) -> dict[str, Any]:
    """Relative error of E max over (M, γ); the exact law and the strongest rival's beside networks."""
    grid = [{"classes": classes, "gamma": g} for classes in c.many for g in GAMMAS]
    both = [c.run.keep(_against_exact, label="{classes} classes, γ = {gamma:g}".format(**at), seed=c.run.seed,
                       draws=min(c.draws, 2_000_000 // at["classes"]), **at) for at in grid]  # fmt: skip
    table: list[dict[str, Any]] = [{**at, **found} for at, found in zip(grid, both, strict=True)]
    laws: dict[Any, tuple[float, float, Array]] = {}  # γ, exact E max, draws by the strongest rival
    for (pool, classes), cell in _pooled(c).items():
        gamma = theory_gamma(cell.what)
        z = np.random.default_rng([c.run.seed, classes]).standard_normal((4000, classes))
        laws[pool, classes] = gamma, fg.Guesses(gamma, classes, c.n).expected_max(), strongest_rival(z, gamma)
    weak, strong = (
        max((r for r in table if r["gamma"] > 0.4 and (r["gamma"] >= STRONG) is own), key=lambda r: r["ratio"])
        for own in (False, True)
    )
    networks = check(
        "networks of 3 to 100 classes", [largest(m) for m in c.cells.values()], room=0.04, than="theory.md (8)",
        near=[exact for _, exact, _ in laws.values()],
        at=[f"{classes} classes, γ = {gamma:.3g}" for (_, classes), (gamma, _, _) in laws.items()],
    )  # fmt: skip
    return {"table": table, "laws": laws, "weak": weak, "strong": strong, "networks": networks}


def _ratios(name: str, chosen: list[dict[str, Any]]) -> Check:
    return check(f"largest fraction by the strongest rival over the exact one, {name}",
                 [Number(r["ratio"], r["ratio_error"]) for r in chosen], near=1.0, room=GOOD,
                 at=[f"{r['classes']} classes, γ = {r['gamma']:g}" for r in chosen])  # fmt: skip


def _from(lines: list[dict[str, Any]]) -> str:
    """From which γ of the grid on the approximation is good."""
    bad = [r["gamma"] for r in lines if same(Number(r["ratio"], r["ratio_error"]), 1.0, room=GOOD) is not True]
    fine = [line["gamma"] for line in lines if not bad or line["gamma"] > max(bad)]
    return f"from γ = {min(fine):g} on" if fine else f"not up to γ = {max(bad):g}"


def _panel_classes(label: str, m: Any, law: Any, rival: Array) -> Any:
    panel = law_panel(label, m, theory={"exact": law}, bins=20, note=f"largest fraction {largest(m)}")
    counts, _ = np.histogram(rival, np.asarray(panel.edges))
    curves = {**panel.curves, "strongest rival only": counts / rival.size / np.diff(panel.edges)}
    return replace(panel, curves=curves, top=5.0)


multiclass = Item(
    "igb/multiclass", "Many classes: the strongest rival alone, against the exact law and networks", "IGB App. H",
    claims=("I12",),
    about="{many} classes, γ from 0.1 to 100: both laws on the same {draws} draws of centers; networks with one hidden "
    "ReLU layer and max-pools of 1, 4, 25 (γ = 0.47, 2.4, 15; {nodes} pooled nodes or more, our size), 3, 10 and 100 "
    "classes, {n} random points, {inits} networks each.",
    quick=dict(draws=4000, many=(2, 3, 10, 100), n=500, inits=150, nodes=100),
    full=dict(draws=20_000, many=(2, 3, 10, 100, 1000), n=1000, inits=400, nodes=200),
    seconds=(12, 80), cells=_pooled, quantities=_multiclass,
    judge=lambda c: [claimed(
        "I12", "average largest fraction",
        [c.networks, _ratios("γ ≥ 10, up to 10 classes (the paper's)",
                             [r for r in c.table if r["gamma"] >= STRONG and r["classes"] <= 10])],
        within=[_ratios(f"γ from 0.47 on, up to {c.many[-1]} classes", [r for r in c.table if r["gamma"] > 0.4])],
        limit="with weak bias or many classes several rivals matter, and the approximation overstates fractions; the "
        "exact law costs no more",
        otherwise=OTHERWISE[c.networks.truth],
        also="good " + ", ".join(f"for {k} classes {_from([r for r in c.table if r['classes'] == k])}" for k in c.many)
        + "; fractions add up to {sum:.2f} ({classes} classes, γ = {gamma:g})".format(**c.weak),
    )],
    tables=lambda c: {"approximation": c.table, "networks": [
        row(f"pool of {pool}, {classes} classes", m, theory_gamma=gamma, exact=exact,
            strongest_rival=float(rival.max(axis=1).mean()))
        for ((pool, classes), m), (gamma, exact, rival) in zip(c.cells.items(), c.laws.values(), strict=True)
    ]},
    charts=lambda c: {
        "error": lines(
            [row | {"name": f"{row['classes']} classes"} for row in c.table], "gamma", "ratio", theory="",
            title=f"The strongest rival alone gives the largest class {c.weak['ratio']:.2g} times too much at γ = "
            f"{c.weak['gamma']:.3g} and {c.weak['classes']} classes, {c.strong['ratio']:.3g} times from γ = "
            f"{STRONG:g} on",
            x_title="Drift ratio γ", y_title="Approximate / exact largest fraction", x_scale="log", y_scale="log",
            rules={"exact": 1.0}, dodge=False,
        ),
        "laws": figures.panels_chart(
            [_panel_classes(f"γ = {gamma:.3g}", c[key], fg.Guesses(gamma, 10), rival)
             for key, (gamma, _, rival) in c.laws.items() if key[1] == 10],
            title="Ten classes: networks, the exact law, and the strongest rival alone",
            subtitle=["Bars: networks. Lines: theory.md (8), and IGB's strongest rival. The axis is cut at the top."],
        ),
    },
    holds={"laws": Holds("Ten classes: the strongest rival alone overstates every class",
                         verdicts=("does not hold", "holds with a limit"))},
)  # fmt: skip
