"""IGB: the centers of nodes (Fig 6, §3), and many classes by the strongest rival alone (App. H)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

import firstguess as fg
from firstguess import figures
from firstguess_papers.charts import largest, law_panel, lines, predicted, row
from firstguess_papers.items import Entry, Holds
from firstguess_papers.judging import Array, Number, average, check, claimed, power_law, root, same
from firstguess_papers.measured import Cell, Found, measured
from firstguess_papers.running import Run

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "linear": lambda u: u,
    "relu": lambda u: np.maximum(u, 0.0),
    "tanh": np.tanh,
}


@dataclass(frozen=True)
class Nodes:
    """Pre-activations of some nodes of every layer, over data: (inits, layers, nodes) each."""

    mean: Array
    variance: Array  # unbiased
    skewness: Array
    kurtosis: Array  # excess
    points: int

    @property
    def centers(self) -> Array:
        """Means in units of the layer's typical spread over data."""
        return self.mean / np.sqrt(self.variance.mean(axis=(0, 2), keepdims=True))

    def gamma(self, layer: int) -> Number:
        """γ of a layer: E[mean² − V/n]/E V, with its error over initializations."""
        v = self.variance[:, layer].mean(axis=1)
        c = (self.mean[:, layer] ** 2 - self.variance[:, layer] / self.points).mean(axis=1)
        ratio = float(c.mean() / v.mean())
        error = float((c - ratio * v).std(ddof=1) / v.mean() / math.sqrt(len(c)))
        return Number(ratio, error)

    def pack(self) -> dict[str, Any]:
        """As a piece."""
        return {**vars(self)}


def simulate(
    x: npt.NDArray[Any], *, depth: int, width: int, activation: str, inits: int, nodes: int, seed: list[int]
) -> Nodes:
    """Networks with Kaiming weights (σw² = 2), `depth` hidden layers and `nodes` outputs; so many nodes of each layer.

    >>> x = np.random.default_rng(0).standard_normal((500, 50))
    >>> found = simulate(x, depth=1, width=100, activation="relu", inits=20, nodes=5, seed=[0])
    >>> found.mean.shape, abs(found.gamma(0).value) < 0.01, 0.2 < found.gamma(1).value < 0.8
    ((20, 2, 5), True, True)
    """
    rng = np.random.default_rng(seed)
    phi = ACTIVATIONS[activation]
    moments = np.empty((4, inits, depth + 1, nodes))
    data = np.ascontiguousarray(x, dtype=np.float32)
    for i in range(inits):
        h = data
        for layer in range(depth + 1):
            out = width if layer < depth else nodes
            w = rng.standard_normal((h.shape[1], out), dtype=np.float32) * np.float32(math.sqrt(2 / h.shape[1]))
            u = h @ w
            moments[:, i, layer] = _moments(u[:, :nodes].astype(np.float64))
            h = phi(u)
    return Nodes(*moments, points=len(data))


def _moments(u: Array) -> Array:
    n = len(u)
    mean = u.mean(axis=0)
    y = u - mean
    y2 = y * y
    square = y2.mean(axis=0)
    skewness, kurtosis = (y2 * y).mean(axis=0) / square**1.5, (y2 * y2).mean(axis=0) / square**2 - 3
    return np.stack([mean, square * n / (n - 1), skewness, kurtosis])


GAMMA = 1 / (math.pi - 1)  # one ReLU layer


def _nodes(run: Run, x: Any, **options: Any) -> Nodes:
    """`simulate`, kept as a piece."""
    label = ", ".join(f"{key} {value}" for key, value in options.items())
    seed = [run.seed, options["depth"], options["width"], len(x)]
    piece = run.piece(
        {**options, "data": x.hash, "seed": seed}, lambda: simulate(x.flat(), **options, seed=seed).pack(), label=label
    )
    return Nodes(**piece)


def _spread(values: Any) -> Number:
    """Standard deviation about 0, of centers: nodes of one network are independent given its hidden layers."""
    return root(average((values**2).mean(axis=1)))


def _panel_centers(label: str, values: Any, variance: float | None, reach: float, note: str) -> Any:

    edges = np.linspace(-reach, reach, 32)
    counts, _ = np.histogram(values, edges)
    curves: dict[str, Any] = {}
    if variance is not None and variance > 0:
        curves["theory"] = np.diff(special.ndtr(edges / math.sqrt(variance))) / np.diff(edges)
    return fg.figures.Panel(label, edges, counts / values.size / np.diff(edges), curves, note)


def _relative_spread(nodes: Nodes, n: int) -> Number:
    """How much output nodes of one network differ in variance, without what finite data do (2/n for a Gaussian)."""
    v = nodes.variance[:, 1]
    per_network = v.var(axis=1, ddof=1) / v.mean(axis=1) ** 2 - 2 / n
    square = average(per_network)
    return root(Number(max(square.value, 1e-12), square.error))


def _fig6(c: Found) -> dict[str, Any]:
    """Centers by activation and number of points; by width, as well as how far variances of nodes differ."""

    def nodes(points: int, d: int, width: int, activation: str) -> Nodes:
        x = c.blob(points, d)
        return _nodes(c.run, x, depth=1, width=width, activation=activation, inits=c.inits, nodes=20)

    centers = {(phi, n): nodes(n, c.d, 200, phi.lower()).centers[:, 1] for phi in ("Linear", "ReLU") for n in c.sizes}
    wide = {w: nodes(c.many, w, w, "relu") for w in c.widths}  # as many dimensions: inputs that share few directions
    last = wide[c.widths[-1]]  # keep variances apart at any width
    return {
        "centers": centers, "spreads": {key: _spread(values) for key, values in centers.items()},
        "center": {w: _spread(n.centers[:, 1]) for w, n in wide.items()},
        "relative": {w: _relative_spread(n, c.many) for w, n in wide.items()},
        "skewness": _spread(last.skewness[:, 1]), "kurtosis": average(last.kurtosis[:, 1].mean(axis=1)),
    }  # fmt: skip


def _variance(phi: str, n: int) -> float:
    """Of centers of output nodes by their spread over n points, in the wide limit."""
    return (GAMMA if phi == "ReLU" else 0.0) + 1 / n


def _judge_fig6(c: Found) -> list[Entry]:
    narrow, wide, few, many = c.widths[0], c.widths[-1], c.sizes[0], c.sizes[-1]
    falls, stays = (power_law((narrow, wide), (of[narrow], of[wide]))[0] for of in (c.relative, c.center))
    linear, _ = power_law((few, many), [c.spreads["Linear", n] for n in (few, many)])
    return [
        claimed(
            "I2", f"ReLU, output nodes over data (width {wide}), and powers of the width (as many input dimensions)",
            [check("skewness (rms)", c.skewness, near=0.0, room=0.15),
             check("excess kurtosis", c.kurtosis, near=0.0, room=0.15),
             check("power of the relative difference of variances", falls, near=-0.5, room=0.1),
             check("power of the standard deviation of centers", stays, near=0.0, room=0.05)],
        ),
        claimed(
            "I3", "standard deviation of centers",
            [check("linear, power of n", linear, near=-0.5, room=0.1),
             check(f"ReLU, {many} points", c.spreads["ReLU", many], near=math.sqrt(_variance("ReLU", many)),
                   room=0.1 * math.sqrt(GAMMA), than="within 10 % of theory")],
            also=f"ReLU, {few} points: {c.spreads['ReLU', few]}",
        ),
    ]  # fmt: skip


def _charts_fig6(c: Found) -> dict[str, Any]:
    panels = [
        _panel_centers(f"{phi}, {n:,} points", values, _variance(phi, n), 2.2, f"standard deviation {_spread(values)}")
        for (phi, n), values in c.centers.items()
    ]
    by_width = {"centers: standard deviation over nodes": c.center,
                "spread over data: relative difference between nodes": c.relative}  # fmt: skip
    ends = [c.widths[0], c.widths[-1]]
    return {
        "centers": figures.panels_chart(
            panels, title="Centers of output nodes by the number of points", percent=False,
            subtitle=["Bars: networks × nodes. Lines: Gaussian with variance γ + 1/n."],
            x_title="Center of an output node / its spread over data",
        ),
        "widths": lines(
            [{"width": w, "name": name, "value": v} for name, values in by_width.items() for w, v in values.items()],
            "width", also={"": [predicted("theory", ends, [math.sqrt(_variance("ReLU", c.many))] * 2)]},
            title="Centers and spreads of output nodes by width", y_title="Standard deviation between nodes",
            x_scale="log", y_scale="log", dodge=False,
        ),
    }  # fmt: skip


fig6 = measured(
    "igb/fig6", "The centers of output nodes: their law against the number of points and the width",
    "IGB Fig 6, §3, App. B, C", claims=("I2", "I3"),
    about="One hidden layer of 200 (our size), linear or ReLU, σw² = 2; blobs in {d} dimensions, {sizes} points; and "
    "widths {widths} with as many dimensions, {many} points; {inits} networks of 20 output nodes each, in plain NumPy.",
    quick=dict(d=300, sizes=(100, 500, 3000), widths=(50, 200, 800), many=2000, inits=60),
    full=dict(d=1000, sizes=(100, 1000, 10_000), widths=(50, 300, 1600), many=4000, inits=100),
    seconds=(10, 80),
    quantities=_fig6,
    judge=_judge_fig6,
    tables=lambda c: {"centers": [
        *({"name": phi, "points": n, "std": v.value, "error": v.error, "theory": math.sqrt(_variance(phi, n))}
          for (phi, n), v in c.spreads.items()),
        *({"name": "ReLU by width", "width": w, "points": c.many, "std": v.value, "error": v.error,
           "variance_spread": c.relative[w]} for w, v in c.center.items()),
    ]},
    charts=_charts_fig6,
    holds={
        "centers": Holds("More data pull a linear network's centers together, but not ReLU's", entries=(1,)),
        "widths": Holds("In wide networks all nodes have the same spread, and still different centers", entries=(0,)),
    },
)  # fmt: skip


def _layers(c: Found) -> dict[str, Any]:
    """Nodes of hidden layers 1, 2, 3 for ReLU and tanh, centred data; then the same with a shift of the data."""
    nodes = {
        (f"{name}{', data shifted by ½' * (shift > 0)}", width): _nodes(
            c.run, c.blob(c.n, c.d).shift(shift), depth=3, width=width, activation=name.lower(), inits=c.inits, nodes=20
        )
        for width in c.widths
        for name in ("ReLU", "tanh")
        for shift in (0.0, 0.5)
    }
    return {"nodes": nodes, "gammas": {key: [n.gamma(layer) for layer in range(3)] for key, n in nodes.items()}}


def _judge_layers(c: Found) -> Entry:
    def first(shifted: bool) -> list[Any]:
        return [check(f"{name}, width {w}, layer 1", g[0], near=0.0, room=0.02)
                for (name, w), g in c.gammas.items() if ("shifted" in name) == shifted]  # fmt: skip

    return claimed(
        "I10", "γ of hidden layers",
        [*first(False), *(check(f"ReLU, width {w}, layer 2", c.gammas["ReLU", w][1], above=0.1) for w in c.widths),
         *(check(f"tanh, width {w}, layer 2", c.gammas["tanh", w][1], near=0.0, room=0.02) for w in c.widths)],
        within=first(True),
        limit="only for centred data: those that are not differ in the first layer already, theory.md (2)",
    )  # fmt: skip


layers = measured(
    "igb/layers", "In which layer nodes first differ in their centers", "IGB §3", claims=("I10",),
    about="ReLU and tanh, 3 hidden layers of {widths} (our size), σw² = 2; blobs in {d} dimensions, {n} points, "
    "centred or shifted by 0.5; {inits} networks, 20 nodes a layer, in plain NumPy.",
    quick=dict(d=300, n=1500, inits=60, widths=(200,)),
    full=dict(d=1000, n=2000, inits=80, widths=(200, 1000)),
    seconds=(5, 70),
    quantities=_layers,
    judge=lambda c: [_judge_layers(c)],
    tables=lambda c: {"layers": [
        {"name": name, "width": width, "layer": k + 1, "gamma": g.value, "error": g.error}
        for (name, width), gammas in c.gammas.items() for k, g in enumerate(gammas)
    ]},
    charts=lambda c: {"layers": figures.panels_chart(
        [_panel_centers(f"{name}, hidden layer {k + 1}", c.nodes[name, c.widths[0]].centers[:, k], None, 2.5,
                        f"γ = {c.gammas[name, c.widths[0]][k]}") for name in ("ReLU", "tanh") for k in range(3)],
        title="Centers of nodes by layer", x_title="Center of a node / its spread over data", percent=False,
        subtitle=["Bars: networks × nodes, centred data."],
    )},
    holds={"layers": Holds("Nodes of the first layer share a center; after ReLU they do not")},
)  # fmt: skip


GOOD = 0.05  # relative error of the average largest fraction up to which an approximation is called good
OTHERWISE = {
    True: "several rivals matter: even with strong bias and ten classes it overstates the largest fraction by more "
    "than that; the exact law costs no more",
    False: "the exact law is not that of these networks",
    None: "even with strong bias and ten classes it overstates the largest fraction by more than that",
}
STRONG = 10.0  # γ from which bias is strong: deeply biased starts at 9.47


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
    ratio = near.max(axis=1).mean() / exact.max(axis=1).mean()
    # Paired draws: the error of the ratio is that of the difference only.
    rest = near.max(axis=1) - ratio * exact.max(axis=1)
    one, other = np.sort(near, axis=None), np.sort(exact, axis=None)
    at = np.concatenate([one, other])
    distance = np.abs(np.searchsorted(one, at, "right") - np.searchsorted(other, at, "right")).max() / one.size
    return {
        "ratio": float(ratio),
        "ratio_error": float(rest.std(ddof=1) / math.sqrt(draws) / exact.max(axis=1).mean()),
        "largest": float(near.max(axis=1).mean()),
        "largest_exact": float(exact.max(axis=1).mean()),
        "sum": float(near.sum(axis=1).mean()),
        "distance": float(distance),
    }


GAMMAS = (0.1, 0.466942, 1.0, 2.429259, STRONG, 100.0)


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
    table: list[dict[str, Any]] = []
    for classes in c.many:
        size = min(c.draws, 2_000_000 // classes)
        for g in GAMMAS:
            found = c.run.piece({"classes": classes, "gamma": g, "draws": size},
                                lambda c_=classes, g=g, size=size: _against_exact(c_, g, size, c.run.seed),
                                label=f"{classes} classes, γ = {g:g}")  # fmt: skip
            table.append({"classes": classes, "gamma": g, **found})
    laws: dict[Any, tuple[float, float, Array]] = {}  # γ, exact E max, draws by the strongest rival
    for (pool, classes), cell in _pooled(c).items():
        gamma = float(fg.predict(cell.what).gamma[-1])
        z = np.random.default_rng([c.run.seed, classes]).standard_normal((4000, classes))
        laws[pool, classes] = gamma, fg.Guesses(gamma, classes, c.n).expected_max(), strongest_rival(z, gamma)

    def worst(strong: bool) -> dict[str, Any]:
        chosen = [r for r in table if r["gamma"] > 0.4 and (r["gamma"] >= STRONG) == strong]
        return max(chosen, key=lambda r: r["ratio"])

    return {"table": table, "laws": laws, "weak": worst(False), "strong": worst(True)}


def _judge_multiclass(c: Found) -> Entry:
    def ratios(name: str, chosen: list[dict[str, Any]]) -> Any:
        return check(f"largest fraction by the strongest rival over the exact one, {name}",
                     [Number(r["ratio"], r["ratio_error"]) for r in chosen], near=1.0, room=GOOD,
                     at=[f"{r['classes']} classes, γ = {r['gamma']:g}" for r in chosen])  # fmt: skip

    networks = check(
        "networks of 3 to 100 classes", [largest(m) for m in c.cells.values()], room=0.04, than="theory.md (8)",
        near=[exact for _, exact, _ in c.laws.values()],
        at=[f"{classes} classes, γ = {gamma:.3g}" for (_, classes), (gamma, _, _) in c.laws.items()],
    )  # fmt: skip
    region = ", ".join(f"for {k} classes {_from([r for r in c.table if r['classes'] == k])}" for k in c.many)
    return claimed(
        "I12", "average largest fraction",
        [networks, ratios("γ ≥ 10, up to 10 classes (the paper's)",
                          [r for r in c.table if r["gamma"] >= STRONG and r["classes"] <= 10])],
        within=[ratios(f"γ from 0.47 on, up to {c.many[-1]} classes", [r for r in c.table if r["gamma"] > 0.4])],
        limit="with weak bias or many classes several rivals matter, and the approximation overstates fractions; the "
        "exact law costs no more",
        otherwise=OTHERWISE[networks.truth],
        also=f"good {region}; fractions add up to {c.weak['sum']:.2f} ({c.weak['classes']} classes, γ = "
        f"{c.weak['gamma']:g})",
    )  # fmt: skip


multiclass = measured(
    "igb/multiclass", "Many classes: the strongest rival alone, against the exact law and networks", "IGB App. H",
    claims=("I12",),
    about="{many} classes, γ from 0.1 to 100: both laws on the same {draws} draws of centers; networks with one hidden "
    "ReLU layer and max-pools of 1, 4, 25 (γ = 0.47, 2.4, 15; {nodes} pooled nodes or more, our size), 3, 10 and 100 "
    "classes, {n} random points, {inits} networks each.",
    quick=dict(draws=4000, many=(2, 3, 10, 100), n=500, inits=150, nodes=100),
    full=dict(draws=20_000, many=(2, 3, 10, 100, 1000), n=1000, inits=400, nodes=200),
    seconds=(12, 80),
    cells=_pooled,
    quantities=_multiclass,
    judge=lambda c: [_judge_multiclass(c)],
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
