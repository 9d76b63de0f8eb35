"""NORM: bias by depth and batch size; BatchNorm against LayerNorm; LayerNorm against RMSNorm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import firstguess as fg
from firstguess import figures
from firstguess_papers.charts import lines
from firstguess_papers.items import Holds, Outcome, item
from firstguess_papers.judging import Number, above, below, entry, same
from firstguess_papers.norm import NEUTRAL, PLACES, ROOM, beyond_even, network, paired
from firstguess_papers.running import Run
from firstguess_papers.tables import columns, gamma, law_panel, row, std

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from firstguess.data import Data

    Array = NDArray[np.float64]

BATCHES = (4, 16, 64, None)


@item(
    "norm/depth",
    "Bias layer by layer, and BatchNorm with small batches",
    claims=("N1", "N2", "N3"),
    where="NORM Th 4.1-4.3",
    about="20 hidden ReLU layers of {width} (our size), Kaiming, γ at every layer; blob of {n} points in 1000 "
    "dimensions; {inits} networks each. BatchNorm after: batches of 4, 16, 64 and all, 5 layers of {widths}, {many} "
    "networks each.",
    quick=dict(n=320, width=300, inits=32, widths=(100,), many=160),
    full=dict(n=640, width=1000, inits=30, widths=(100, 400), many=300),
    seconds=(12, 180),
)
def depth(run: Run) -> Outcome:
    """γ of every layer against the closed form; std(G₀) of BatchNorm after by batch size."""

    n, width, inits, widths, many = run.take("n width inits widths many")
    x = fg.data.blob(n, 1000, seed=run.seed)
    rows: list[dict[str, Any]] = []
    by_layer: dict[str, list[Number]] = {}
    for place in PLACES:
        # one layer more than is shown: γ of a hidden layer is an average over many nodes, that of the output over two
        m = run.measure(network(place, 21), x, inits=inits, width=width, probe="weights", label=f"{place}, 20 layers")
        theory = fg.predict(network(place, 21)).gamma
        by_layer[place] = [gamma(m, k) for k in range(1, 21)]
        rows += [
            {"name": place, "layers": k, "gamma": g, "theory": float(theory[k])}
            for k, g in enumerate(by_layer[place], start=1)
        ]
    small: dict[tuple[int | None, int], Any] = {}
    for w in widths:
        for batch in BATCHES:
            text = network("BatchNorm after", 5).replace(
                "batchnorm", "batchnorm" if batch is None else f"batchnorm(batch={batch})"
            )
            small[batch, w] = run.measure(
                text, x, inits=many, width=w, probe="output", label=f"batch {batch or n}, width {w}"
            )
    level = 1 / (np.pi - 1)
    before, plain, layernorm = (by_layer[p] for p in ("BatchNorm before", "no norm", "LayerNorm before"))
    flat = [same(g, level, room=0.15) for g in (before[0], before[4], before[9], before[19])]
    growth = [above(layernorm[k], layernorm[j]) for j, k in ((0, 4), (4, 9), (9, 19))]
    pairs = [same(layernorm[k] / plain[k], 1.0, room=0.25) for k in (0, 4, 9, 19)]
    chart = lines(
        [row if "after" not in row["name"] else row | {"theory": None} for row in rows], "layers", "gamma",
        title=f"20 layers: γ = {plain[19].value:.3g} without a norm, {layernorm[19].value:.3g} with LayerNorm before, "
        f"{before[19].value:.2g} with BatchNorm before; after the activation "
        f"{max(by_layer[p][19].value for p in PLACES if 'after' in p):.1g} at most",
        x_title="Hidden layers", y_title="Drift ratio γ of the layer after", y_scale="symlog", y_domain=(-0.2, 24.0),
        width=900, height=380,
    )  # fmt: skip
    even = 0.5 / np.sqrt(n)
    said = "; ".join(f"width {w}, batch {b or n}: {std(m)}" for (b, w), m in small.items())
    shown = ", ".join(str(before[k]) for k in (0, 4, 9, 19))
    grown = ", ".join(str(layernorm[k]) for k in (0, 4, 9, 19))
    without = ", ".join(str(plain[k]) for k in (0, 4, 9, 19))
    return Outcome(
        [
            entry(
                "N1",
                "γ behind 1, 5, 10, 20 layers with BatchNorm before each ReLU is 1/(π−1) = 0.467 within 0.15, and "
                "less than a tenth of what 20 plain layers have",
                f"{shown}; 20 plain layers {plain[19]}",
                [*flat, below(before[19], 0.1 * plain[19].value)],
            ),
            entry(
                "N3",
                "γ with LayerNorm before grows from 1 to 5 to 10 to 20 layers, and is that without a norm within 25 %",
                f"{grown}; without a norm {without}",
                [*growth, *pairs],
            ),
            entry(
                "N2",
                "BatchNorm after ReLU, 5 layers, batches of 4, 16, 64 and all: std of G₀ beyond even guesses below "
                f"{NEUTRAL:.3f}, a third of one plain layer's",
                f"{said}; even guesses would have {even:.4f}",
                [below(beyond_even(m), NEUTRAL) for m in small.values()],
            ),
        ],
        {
            "layers": columns(rows),
            "batches": columns([row("BatchNorm after", m, batch=b or n, width=w) for (b, w), m in small.items()]),
        },
        {"layers": chart},
        ["Widths, points and networks are ours; γ at finite width lies below the closed form in deep plain networks."],
    )


def _normalized(u: Array) -> tuple[Array, Array, Array]:
    """A layer's values (n, nodes) after BatchNorm over all data, LayerNorm, RMSNorm."""
    batch = (u - u.mean(axis=0)) / u.std(axis=0)
    layer = (u - u.mean(axis=1, keepdims=True)) / u.std(axis=1, keepdims=True)
    return batch, layer, u / np.sqrt(np.square(u).mean(axis=1, keepdims=True))


def _rms(a: Array) -> float:
    return float(np.sqrt(np.square(a).mean()))


def _plain_layers(x: Array, width: int, depth: int, rng: np.random.Generator) -> list[Array]:
    """Pre-activations of every hidden layer of one plain ReLU network with Kaiming weights."""
    layers: list[Array] = []
    for _ in range(depth):
        u = x @ (rng.standard_normal((x.shape[1], width)) * np.sqrt(2.0 / x.shape[1]))
        layers.append(u)
        x = np.maximum(u, 0.0)
    return layers


def layer_differences(run: Run, x: Data, width: int, depth: int, inits: int) -> dict[str, Any]:
    """Root-mean-square differences of the norms' outputs by layer, (inits, depth) each."""

    def compute() -> dict[str, Any]:
        apart: dict[str, list[list[float]]] = {"bn_ln": [], "ln_rms": [], "ln_rms_after": []}
        for member in range(inits):
            rng = np.random.default_rng([run.seed, width, member])
            lines: dict[str, list[float]] = {key: [] for key in apart}
            for u in _plain_layers(x.flat().astype(np.float64), width, depth, rng):
                batch, layer, rms = _normalized(u)
                _, after, rms_after = _normalized(np.maximum(u, 0.0) + 1e-30)
                lines["bn_ln"].append(_rms(batch - layer))
                lines["ln_rms"].append(_rms(layer - rms))
                lines["ln_rms_after"].append(_rms(after - rms_after))
            for key, values in lines.items():
                apart[key].append(values)
        return {key: np.array(values) for key, values in apart.items()}

    key = {"differences": "of norms", "data": x.hash, "width": width, "depth": depth, "inits": inits}
    return run.piece(key, compute, label=f"norms of one layer's values, width {width}, {x.name}")


def exponent(one: Number, other: Number, ratio: float) -> Number:
    """Of a power law through two values, where the second's size is `ratio` times the first's."""
    span = np.log(ratio)
    error = np.hypot(one.error / one.value, other.error / other.value) / span
    return Number(float(np.log(other.value / one.value) / span), float(error))


def _average(values: Array) -> list[Number]:
    """Mean and standard error over networks, for every layer."""
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    return [Number(float(v), float(e)) for v, e in zip(values.mean(axis=0), error, strict=True)]


@item(
    "norm/batchnorm-layernorm",
    "BatchNorm of all data against LayerNorm: the same in the first layer, not beyond",
    claims=("N5",),
    where="NORM §2, §4.1.4",
    about="Values of {layers} hidden layers of plain ReLU networks, Kaiming; as many nodes as points and dimensions, "
    "{sizes} (ours); blobs, and the same shifted by 0.5; {inits} networks. Guesses: 1 and 5 layers of {w}, {many} "
    "networks, 400 points.",
    quick=dict(layers=6, sizes=(100, 400), inits=6, w=200, many=150),
    full=dict(layers=10, sizes=(100, 400, 1200), inits=6, w=400, many=300),
    seconds=(8, 70),
)
def batchnorm_layernorm(run: Run) -> Outcome:
    """N5: how far apart the two norms put the same values, layer by layer, and what that does to guesses."""

    layers, sizes, inits, w, many = run.take("layers sizes inits w many")
    rows: list[dict[str, Any]] = []
    apart: dict[tuple[str, int], list[Number]] = {}
    plain = fg.Network.parse(f"{layers} x [dense(weight_var=2) > relu] > dense(weight_var=2)")
    for name, shift in (("centred data", 0.0), ("data shifted by 0.5", 0.5)):
        drift = fg.predict(plain, inputs=fg.Inputs(mean_square=shift**2, mean=shift)).gamma[:layers]
        theory = np.sqrt(2.0 - 2.0 / np.sqrt(1.0 + drift))
        for size in sizes:
            data = fg.data.blob(size, size, seed=run.seed).shift(shift)
            found = _average(layer_differences(run, data, size, layers, inits)["bn_ln"])
            apart[name, size] = found
            rows += [
                {"data": name, "size": size, "layer": k + 1, "apart": v.value, "error": v.error, "theory": float(t)}
                for k, (v, t) in enumerate(zip(found, theory, strict=True))
            ]
    x = fg.data.blob(400, 1000, seed=run.seed)
    guesses = {
        (place, depth): run.measure(
            network(place, depth), x, inits=many, width=w, probe="output", label=f"{place}, {depth}"
        )
        for place in ("BatchNorm before", "LayerNorm before")
        for depth in (1, 5)
    }
    first, wide = apart["centred data", sizes[0]], apart["centred data", sizes[-1]]
    shifted = apart["data shifted by 0.5", sizes[-1]]
    fall = exponent(first[0], wide[0], sizes[-1] / sizes[0])
    one = std(guesses["LayerNorm before", 1]) - std(guesses["BatchNorm before", 1])
    deep = std(guesses["LayerNorm before", 5]) - std(guesses["BatchNorm before", 5])
    chart = lines(
        [row | {"name": f"{row['size']} nodes, points, dimensions"} for row in rows], "layer", "apart", panel="data",
        title="How far apart BatchNorm and LayerNorm put the same values, by layer",
        y_title="Difference of the two norms' values (r.m.s.)", y_domain=(0.0, 1.25), dodge=False,
    )  # fmt: skip
    return Outcome(
        [
            entry(
                "N5",
                "values of one layer after BatchNorm over all data and after LayerNorm: in the first layer the r.m.s. "
                "difference falls as size^−½ (width, points, dimensions together; exponent within 0.1), from the "
                "second on it stays above 0.4 at every size; with shifted data above 0.4 in the first layer already",
                f"layer 1: {first[0]} at size {sizes[0]}, {wide[0]} at {sizes[-1]}, exponent {fall}; layer 2: "
                f"{first[1]}, {wide[1]}; shifted data, layer 1: {shifted[0]}",
                [
                    same(fall, -0.5, room=0.1),
                    above(first[1], 0.4),
                    above(wide[1], 0.4),
                    above(shifted[0], 0.4),
                ],
            ),
            entry(
                "N5",
                f"guesses with the norm before ReLU: std of G₀ the same within {2 * ROOM:g} after one layer, larger "
                "with LayerNorm after five",
                f"LayerNorm − BatchNorm: {one} after 1 layer, {deep} after 5",
                [same(one, 0.0, room=2 * ROOM), above(deep, 0.0)],
            ),
        ],
        {
            "differences": columns(rows),
            "guesses": columns([row(p, m, depth=k, width=w) for (p, k), m in guesses.items()]),
        },
        {"differences": chart},
        [
            "Sizes are ours. What differs in the first layer are the fluctuations of means and scales over few points "
            "or nodes."
        ],
        holds={
            "differences": Holds(
                "BatchNorm and LayerNorm agree only where all nodes are alike: in the first layer, on centred data",
                entries=(0,),
            )
        },
    )


NORMS = {
    "LayerNorm before": "layernorm > relu",
    "RMSNorm before": "rmsnorm > relu",
    "LayerNorm after": "relu > layernorm",
    "RMSNorm after": "relu > rmsnorm",
}


@item(
    "norm/rmsnorm",
    "RMSNorm is LayerNorm before the activation, and no norm at all after it",
    claims=("N6",),
    where="NORM §4.1.3",
    about="{depths} hidden ReLU layers of {width} (ours), Kaiming; blob of {n} points in {d} dimensions; {inits} "
    "networks each. Values of 3 plain ReLU layers of {widths} nodes, {few} networks.",
    quick=dict(n=400, d=500, depths=(5,), width=200, inits=150, widths=(50, 200, 800), few=40),
    full=dict(n=800, d=1000, depths=(5, 20), width=400, inits=400, widths=(50, 200, 800), few=100),
    seconds=(8, 70),
)
def rmsnorm(run: Run) -> Outcome:
    """N6: values apart as width grows, and laws of the guesses, before and after the activation."""
    n, d, depths, width, inits, widths, few = run.take("n d depths width inits widths few")
    x = fg.data.blob(n, d, seed=run.seed)
    names = {"ln_rms": "before the activation", "ln_rms_after": "after the activation"}
    apart: dict[str, list[Number]] = {key: [] for key in names}
    for w in widths:
        found = layer_differences(run, x, w, 3, few)
        for key in names:
            # Third layer. Squares are averaged: the mean over nodes there has few directions, so networks differ a lot.
            squares = np.square(found[key][:, -1])
            root = float(np.sqrt(squares.mean()))
            apart[key].append(Number(root, float(squares.std(ddof=1) / np.sqrt(few)) / (2 * root)))
    texts = {
        (name, depth): f"{depth} x [dense(weight_var=2) > {norm}] > dense(weight_var=2)"
        for depth in depths
        for name, norm in {"no norm": "relu", **NORMS}.items()
    }
    laws = {
        key: run.measure(text, x, inits=inits, width=width, probe="output", label=f"{key[0]}, {key[1]} layers")
        for key, text in texts.items()
    }
    limits = {
        "ln_rms": 1 / np.sqrt(np.array(widths)),
        "ln_rms_after": np.full(len(widths), np.sqrt(2 - 2 * np.sqrt(1 - 1 / np.pi))),
    }
    first = depths[0]
    laws_chart = figures.panels_chart(
        [law_panel(name, laws[name, first], theory={"theory": fg.predict(texts[name, first])},
                   note=f"std {std(laws[name, first])}") for name in NORMS],
        title="Guesses with RMSNorm and LayerNorm, before and after ReLU",
        subtitle=[f"{first} hidden layers of {width}, random data, {n} points, {inits} networks a panel."],
        columns=4,
    )  # fmt: skip
    before = [paired(laws["RMSNorm before", depth], laws["LayerNorm before", depth]) for depth in depths]
    after = [paired(laws["RMSNorm after", depth], laws["LayerNorm after", depth]) for depth in depths]
    slope = exponent(apart["ln_rms"][0], apart["ln_rms"][-1], widths[-1] / widths[0])
    none = [paired(laws["RMSNorm after", depth], laws["no norm", depth]) for depth in depths]
    rows = [row(name, m, depth=depth, width=width) for (name, depth), m in laws.items()]
    table: list[dict[str, Any]] = [
        {"place": names[key], "width": w, "apart": v.value, "error": v.error, "theory": float(limit)}
        for key in names
        for w, v, limit in zip(widths, apart[key], limits[key], strict=True)
    ]
    return Outcome(
        [
            entry(
                "N6",
                f"std of G₀ with RMSNorm − with LayerNorm, before ReLU, is 0 within {ROOM}, and their values differ "
                "by width^−½ (exponent within 0.1); without a limit if the same holds for the guesses after ReLU",
                f"before: {', '.join(map(str, before))} ({', '.join(map(str, depths))} layers), exponent {slope}; "
                f"after: {', '.join(map(str, after))}",
                [*(same(b, 0.0, room=ROOM) for b in before), same(slope, -0.5, room=0.1)],
                within=[same(a, 0.0, room=ROOM) for a in after],
                limit="only before the activation: after it RMSNorm does not centre, and cures nothing",
            ),
            entry(
                "N6",
                f"beyond the paper: after ReLU, RMSNorm leaves std of G₀ as without a norm within {ROOM}, where "
                f"LayerNorm takes it (beyond even guesses) below {NEUTRAL:.3f}",
                "; ".join(
                    f"{depth} layers: no norm {std(laws['no norm', depth])}, RMSNorm "
                    f"{std(laws['RMSNorm after', depth])}, LayerNorm {std(laws['LayerNorm after', depth])}"
                    for depth in depths
                ),
                [
                    *(same(v, 0.0, room=ROOM) for v in none),
                    *(above(Number(NEUTRAL), beyond_even(laws["LayerNorm after", depth])) for depth in depths),
                ],
            ),
        ],
        {"laws": columns(rows), "values": columns(table)},
        {
            "laws": laws_chart,
            "values": lines(
                table,
                "width",
                "apart",
                by="place",
                x_scale="log",
                y_scale="log",
                width=740,
                title="How far apart RMSNorm and LayerNorm put the same values, by width",
                y_title="LayerNorm's values − RMSNorm's (r.m.s.)",
            ),
        },
        ["All sizes are ours."],
        holds={
            "values": Holds(
                "RMSNorm turns into LayerNorm as width grows, but only before the activation",
                entries=(0,),
                verdicts=("holds with a limit",),
            ),
            "laws": Holds(
                "After ReLU, LayerNorm makes guesses even and RMSNorm leaves the bias as it was", entries=(1,)
            ),
        },
    )
