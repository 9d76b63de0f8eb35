"""IGB: the centers of nodes (Fig 6, §3), and many classes by the strongest rival alone (App. H)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

import firstguess as fg
from firstguess import figures
from firstguess_papers import library
from firstguess_papers.charts import lines, predicted
from firstguess_papers.igb import exponent
from firstguess_papers.items import Holds, Outcome, item
from firstguess_papers.judging import Number, Truth, above, all_of, entry, same
from firstguess_papers.nodes import Nodes, simulate
from firstguess_papers.running import Run
from firstguess_papers.tables import columns, largest, law_panel, row

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
    per_network = (values**2).mean(axis=1)
    square = float(per_network.mean())
    error = float(per_network.std(ddof=1) / math.sqrt(len(per_network)))
    return Number(math.sqrt(square), error / (2 * math.sqrt(square)))


def _panel_centers(label: str, values: Any, variance: float | None, reach: float, note: str) -> Any:

    edges = np.linspace(-reach, reach, 32)
    counts, _ = np.histogram(values, edges)
    curves: dict[str, Any] = {}
    if variance is not None and variance > 0:
        curves["theory"] = np.diff(special.ndtr(edges / math.sqrt(variance))) / np.diff(edges)
    return library.Panel(label, edges, counts / values.size / np.diff(edges), curves, note)


@item(
    "igb/fig6",
    "The centers of output nodes: their law against the number of points and the width",
    claims=("I2", "I3"),
    where="IGB Fig 6, §3, App. B, C",
    about="One hidden layer of 200 (our size), linear or ReLU, σw² = 2; blobs in {d} dimensions, {sizes} points; and "
    "widths {widths} with as many dimensions, {many} points; {inits} networks of 20 output nodes each, in plain NumPy.",
    quick=dict(d=300, sizes=(100, 500, 3000), widths=(50, 200, 800), many=2000, inits=60),
    full=dict(d=1000, sizes=(100, 1000, 10_000), widths=(50, 300, 1600), many=4000, inits=100),
    seconds=(10, 80),
)
def fig6(run: Run) -> Outcome:
    """I3: std of centers ∝ n^−½ for linear, constant for ReLU. I2: Gaussian nodes, equal variances, unequal centers."""

    d, sizes, widths, many, inits = run.take("d sizes widths many inits")
    base = 200
    rows: list[dict[str, Any]] = []
    panels: list[Any] = []
    spreads: dict[str, list[Number]] = {"linear": [], "relu": []}
    names = {"linear": "Linear", "relu": "ReLU"}
    for activation, found in spreads.items():
        for n in sizes:
            x = fg.data.blob(n, d, seed=run.seed)
            centers = _nodes(run, x, depth=1, width=base, activation=activation, inits=inits, nodes=20).centers[:, 1]
            found.append(_spread(centers))
            gamma = GAMMA if activation == "relu" else 0.0
            rows.append({"name": names[activation], "points": n, "std": found[-1].value, "error": found[-1].error,
                         "theory": math.sqrt(gamma + 1 / n)})  # fmt: skip
            note = f"standard deviation {found[-1]}"
            panels.append(_panel_centers(f"{names[activation]}, {n:,} points", centers, gamma + 1 / n, 2.2, note))
    ratio = sizes[-1] / sizes[0]
    slope = {name: exponent(found[0], found[-1], ratio) for name, found in spreads.items()}
    wide: dict[int, Nodes] = {}
    for w in widths:  # as many dimensions: inputs that share few directions keep variances apart at any width
        x = fg.data.blob(many, w, seed=run.seed)
        wide[w] = _nodes(run, x, depth=1, width=w, activation="relu", inits=inits, nodes=20)
    relative = [_relative_spread(nodes, many) for nodes in wide.values()]
    center = [_spread(nodes.centers[:, 1]) for nodes in wide.values()]
    falls = exponent(relative[0], relative[-1], widths[-1] / widths[0])
    stays = exponent(center[0], center[-1], widths[-1] / widths[0])
    last = wide[widths[-1]]
    skew, kurtosis = _spread(last.skewness[:, 1]), _mean(last.kurtosis[:, 1])
    rows += [
        {"name": "ReLU by width", "width": w, "points": many, "std": c.value, "error": c.error,
         "variance_spread": v.value, "variance_spread_error": v.error}
        for w, c, v in zip(widths, center, relative, strict=True)
    ]  # fmt: skip
    law = figures.panels_chart(
        panels,
        title="Centers of output nodes by the number of points",
        subtitle=[
            f"Mean of an output node over the data, in units of its spread; {inits} networks × 20 nodes a panel, "
            f"hidden layer of {base}. Lines: Gaussian with variance γ + 1/n."
        ],
        x_title="Center of an output node / its spread over data",
        percent=False,
    )
    by_width = lines(
        [{"width": w, "name": name, "value": v}
         for name, values in (("centers: standard deviation over nodes", center),
                              ("spread over data: relative difference between nodes", relative))
         for w, v in zip(widths, values, strict=True)],
        "width", also={"": [predicted("theory", [widths[0], widths[-1]], [math.sqrt(GAMMA + 1 / many)] * 2)]},
        title="Centers and spreads of output nodes by width", y_title="Standard deviation between nodes",
        x_scale="log", y_scale="log", dodge=False,
    )  # fmt: skip
    return Outcome(
        [
            entry(
                "I2",
                "ReLU, output nodes: rms skewness and mean excess kurtosis over data below 0.15 at the largest "
                "width; the relative difference of variances between nodes falls as width^−½ (exponent within 0.1; "
                "as many input dimensions), the standard deviation of centers does not fall (exponent 0 within 0.05)",
                f"width {widths[-1]}: skewness {skew}, kurtosis {kurtosis}; variances ∝ width^({falls}), centers ∝ "
                f"width^({stays})",
                [
                    same(skew, 0.0, room=0.15),
                    same(kurtosis, 0.0, room=0.15),
                    same(falls, -0.5, room=0.1),
                    same(stays, 0.0, room=0.05),
                ],
            ),
            entry(
                "I3",
                "standard deviation of centers ∝ n^−½ for linear (exponent within 0.1); for ReLU it stays, within "
                "10 % of theory at the largest n",
                f"linear ∝ n^({slope['linear']}); ReLU {spreads['relu'][0]} → {spreads['relu'][-1]}, theory "
                f"{math.sqrt(GAMMA):.4f}",
                [
                    same(slope["linear"], -0.5, room=0.1),
                    same(spreads["relu"][-1], math.sqrt(GAMMA + 1 / sizes[-1]), room=0.1 * math.sqrt(GAMMA)),
                ],
            ),
        ],
        {"centers": columns(rows)},
        {"centers": law, "widths": by_width},
        holds={
            "centers": Holds("More data pull a linear network's centers together, but not ReLU's", entries=(1,)),
            "widths": Holds(
                "In wide networks all nodes have the same spread, and still different centers", entries=(0,)
            ),
        },
    )


def _relative_spread(nodes: Nodes, n: int) -> Number:
    """How much output nodes of one network differ in variance, without what finite data do (2/n for a Gaussian)."""
    v = nodes.variance[:, 1]
    per_network = v.var(axis=1, ddof=1) / v.mean(axis=1) ** 2 - 2 / n
    square = max(float(per_network.mean()), 1e-12)
    error = float(per_network.std(ddof=1) / math.sqrt(len(per_network)))
    return Number(math.sqrt(square), error / (2 * math.sqrt(square)))


def _mean(values: Any) -> Number:
    per_network = values.mean(axis=1)
    return Number(float(per_network.mean()), float(per_network.std(ddof=1) / math.sqrt(len(per_network))))


@item(
    "igb/layers",
    "In which layer nodes first differ in their centers",
    claims=("I10",),
    where="IGB §3",
    about="ReLU and tanh, 3 hidden layers of {widths} (our size), σw² = 2; blobs in {d} dimensions, {n} points, "
    "centred or shifted by 0.5; {inits} networks, 20 nodes a layer, in plain NumPy.",
    quick=dict(d=300, n=1500, inits=60, widths=(200,)),
    full=dict(d=1000, n=2000, inits=80, widths=(200, 1000)),
    seconds=(5, 70),
)
def layers(run: Run) -> Outcome:
    """I10: γ of hidden layers 1, 2, 3 for ReLU and tanh, centred data; then the same with a shift of the data."""

    d, n, inits, widths = run.take("d n inits widths")
    rows: list[dict[str, Any]] = []
    panels: list[Any] = []
    must: list[Truth] = []
    limits: list[Truth] = []
    said: list[str] = []
    for width in widths:
        for activation in ("relu", "tanh"):
            for shift in (0.0, 0.5):
                x = fg.data.blob(n, d, seed=run.seed).shift(shift)
                nodes = _nodes(run, x, depth=3, width=width, activation=activation, inits=inits, nodes=20)
                gammas = [nodes.gamma(layer) for layer in range(3)]
                kind = f"{'ReLU' if activation == 'relu' else 'tanh'}{', data shifted by ½' * (shift > 0)}"
                rows += [
                    {"name": kind, "width": width, "layer": k + 1, "gamma": g.value, "error": g.error}
                    for k, g in enumerate(gammas)
                ]
                said.append(f"{kind}, width {width}: γ = {', '.join(map(str, gammas))}")
                if shift > 0:
                    limits.append(same(gammas[0], 0.0, room=0.02))
                    continue
                must.append(same(gammas[0], 0.0, room=0.02))
                must.append(above(gammas[1], 0.1) if activation == "relu" else same(gammas[1], 0.0, room=0.02))
                if width == widths[0]:
                    panels += [
                        _panel_centers(
                            f"{kind}, hidden layer {k + 1}", nodes.centers[:, k], None, 2.5, f"γ = {gammas[k]}"
                        )
                        for k in range(3)
                    ]
    chart = figures.panels_chart(
        panels,
        title="Centers of nodes by layer",
        subtitle=[
            f"Centers of the nodes of hidden layers, in units of their spread over {n:,} random points (centred); "
            f"{inits} networks × 20 nodes, width {widths[0]}."
        ],
        x_title="Center of a node / its spread over data",
        percent=False,
    )
    return Outcome(
        [
            entry(
                "I10",
                "centred data: γ = 0 in hidden layer 1 (within 0.02) for both; in layer 2 above 0.1 for ReLU, 0 for "
                "tanh; without a limit also γ = 0 in layer 1 for data shifted by ½",
                "; ".join(said),
                must,
                within=limits,
                limit="only for centred data: those that are not differ in the first layer already, theory.md (2)",
            )
        ],
        {"layers": columns(rows)},
        {"layers": chart},
        holds={"layers": Holds("Nodes of the first layer share a center; after ReLU they do not")},
    )


FloatArray = npt.NDArray[np.float64]
GOOD = 0.05  # relative error of the average largest fraction up to which an approximation is called good
OTHERWISE = {
    True: "several rivals matter: even with strong bias and ten classes it overstates the largest fraction by more "
    "than that; the exact law costs no more",
    False: "the exact law is not that of these networks",
    None: "even with strong bias and ten classes it overstates the largest fraction by more than that",
}
STRONG = 10.0  # γ from which bias is strong: deeply biased starts at 9.47


def strongest_rival(z: FloatArray, gamma: float) -> FloatArray:
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


@item(
    "igb/multiclass",
    "Many classes: the strongest rival alone, against the exact law and networks",
    claims=("I12",),
    where="IGB App. H",
    about="{many} classes, γ from 0.1 to 100: both laws on the same {draws} draws of centers; networks with one hidden "
    "ReLU layer and max-pools of 1, 4, 25 (γ = 0.47, 2.4, 15; {nodes} pooled nodes or more, our size), 3, 10 and 100 "
    "classes, {n} random points, {inits} networks each.",
    quick=dict(draws=4000, many=(2, 3, 10, 100), n=500, inits=150, nodes=100),
    full=dict(draws=20_000, many=(2, 3, 10, 100, 1000), n=1000, inits=400, nodes=200),
    seconds=(12, 80),
)
def multiclass(run: Run) -> Outcome:
    """I12: relative error of E max over (M, γ); exact law against simulation."""

    draws, many, n, inits, nodes = run.take("draws many n inits nodes")
    gammas = (0.1, 0.466942, 1.0, 2.429259, STRONG, 100.0)
    table: list[dict[str, Any]] = []
    for classes in many:
        size = min(draws, 2_000_000 // classes)
        found = [
            run.piece({"classes": classes, "gamma": g, "draws": size},
                      lambda c=classes, g=g, size=size: _against_exact(c, g, size, run.seed),
                      label=f"{classes} classes, γ = {g:g}")
            for g in gammas
        ]  # fmt: skip
        table += [{"classes": classes, "gamma": g, **piece} for g, piece in zip(gammas, found, strict=True)]
    x = fg.data.blob(n, 200, seed=run.seed)
    rows: list[dict[str, Any]] = []
    panels: list[Any] = []
    agrees: list[Truth] = []
    said: list[str] = []
    for pool in (1, 4, 25):
        text = f"dense(weight_var=2) > relu > maxpool({pool}) > dense(weight_var=2)"
        for classes in (3, 10, 100):
            net = fg.Network.parse(text, classes=classes)
            shown = f"pool of {pool}, {classes} classes"
            m = run.measure(net, x, inits=inits, width=max(300, nodes * pool), probe="output", label=shown)
            gamma = float(fg.predict(net).gamma[-1])
            exact = fg.Guesses(gamma, classes, n).expected_max()
            z = np.random.default_rng([run.seed, classes]).standard_normal((4000, classes))
            rival = strongest_rival(z, gamma)
            agrees.append(same(largest(m), exact, room=0.04))
            rows.append(row(shown, m, theory_gamma=gamma, exact=exact, strongest_rival=float(rival.max(axis=1).mean())))
            numbers = f"networks {largest(m)}, exact {exact:.4f}, strongest rival {rival.max(axis=1).mean():.4f}"
            said.append(f"γ = {gamma:.3g}, {classes} classes: {numbers}")
            if classes == 10:
                panels.append(_panel_classes(f"γ = {gamma:.3g}", m, fg.Guesses(gamma, classes), rival))
    weak = max((r for r in table if 0.4 < r["gamma"] < STRONG), key=lambda r: r["ratio"])
    ten = max((r for r in table if r["gamma"] >= STRONG and r["classes"] <= 10), key=lambda r: r["ratio"])
    strong = max((r for r in table if r["gamma"] >= STRONG), key=lambda r: r["ratio"])
    region = ", ".join(f"for {c} classes {_from([r for r in table if r['classes'] == c])}" for c in many)
    laws = figures.panels_chart(
        panels,
        title='Ten classes: networks, the exact law, and the strongest rival alone',
        subtitle=[f"Guess fractions of {inits} networks on {n:,} random points, the exact law (theory.md (8)), and "
        "IGB's comparison with the strongest rival only. The axis is cut at the top."],
    )  # fmt: skip
    errors = lines(
        [row | {"name": f"{row['classes']} classes"} for row in table], "gamma", "ratio", theory="",
        title=f"The strongest rival alone gives the largest class {weak['ratio']:.2g} times too much at γ = "
        f"{weak['gamma']:.3g} and {weak['classes']} classes, {strong['ratio']:.3g} times from γ = {STRONG:g} on",
        x_title="Drift ratio γ", y_title="Approximate / exact largest fraction", x_scale="log", y_scale="log",
        rules={"exact": 1.0}, dodge=False,
    )  # fmt: skip
    return Outcome(
        [
            entry(
                "I12",
                f"for γ ≥ {STRONG:g} and up to 10 classes (the paper's) the average largest fraction by the strongest "
                f"rival is within {100 * GOOD:.0f} % of the exact one; without a limit also up to {many[-1]} classes "
                "and for γ from 0.47 on. What is exact, theory.md (8), is itself within 0.04 of networks with 3 to 100 "
                "classes",
                f"good {region}; worst ratio for γ ≥ {STRONG:g}: {Number(strong['ratio'], strong['ratio_error'])} "
                f"({strong['classes']} classes, γ = {strong['gamma']:g}), up to 10 classes "
                f"{Number(ten['ratio'], ten['ratio_error'])}; for smaller γ: "
                f"{Number(weak['ratio'], weak['ratio_error'])} ({weak['classes']} classes, γ = {weak['gamma']:g}), "
                f"where fractions add up to {weak['sum']:.2f}. Average largest fraction, {'; '.join(said)}",
                [*agrees, *(_good(r) for r in table if r["gamma"] >= STRONG and r["classes"] <= 10)],
                within=[_good(r) for r in table if r["gamma"] > 0.4],
                limit="with weak bias or many classes several rivals matter, and the approximation overstates "
                "fractions; the exact law costs no more",
                otherwise=OTHERWISE[all_of(agrees)],
            ),
        ],
        {"approximation": columns(table), "networks": columns(rows)},
        {"error": errors, "laws": laws},
        holds={
            "laws": Holds(
                "Ten classes: the strongest rival alone overstates every class",
                verdicts=("does not hold", "holds with a limit"),
            )
        },
    )


def _good(line: dict[str, Any]) -> Truth:
    return same(Number(line["ratio"], line["ratio_error"]), 1.0, room=GOOD)


def _from(lines: list[dict[str, Any]]) -> str:
    """From which γ of the grid on the approximation is good."""
    bad = [line["gamma"] for line in lines if _good(line) is not True]
    fine = [line["gamma"] for line in lines if not bad or line["gamma"] > max(bad)]
    return f"from γ = {min(fine):g} on" if fine else f"not up to γ = {max(bad):g}"


def _panel_classes(label: str, m: Any, law: Any, rival: FloatArray) -> Any:
    from dataclasses import replace

    panel = law_panel(label, m, theory={"exact": law}, bins=20, note=f"largest fraction {largest(m)}")
    counts, _ = np.histogram(rival, np.asarray(panel.edges))
    curves = {**panel.curves, "strongest rival only": counts / rival.size / np.diff(panel.edges)}
    return replace(panel, curves=curves, top=5.0)
