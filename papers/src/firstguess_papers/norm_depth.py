"""NORM: bias by depth and batch size; BatchNorm against LayerNorm; LayerNorm against RMSNorm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

import firstguess as fg
from firstguess import figures
from firstguess_papers.charts import lines
from firstguess_papers.items import Entry, Holds
from firstguess_papers.judging import Number, check, claimed
from firstguess_papers.measured import Cell, Found, measured
from firstguess_papers.mf_simulation import mean, power_law
from firstguess_papers.norm import NEUTRAL, PLACES, ROOM, beyond_even, network, paired
from firstguess_papers.tables import deep, gamma, law_panel, row, std

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from firstguess.data import Data
    from firstguess_papers.running import Run

    Array = NDArray[np.float64]

BATCHES = (4, 16, 64, None)
AT = (1, 5, 10, 20)  # hidden layers that are judged
LEVEL = 1 / (np.pi - 1)  # γ after BatchNorm and ReLU


def _cells_depth(c: Found) -> dict[Any, Cell]:
    x, after = c.blob(c.n, 1000), network("BatchNorm after", 5)
    # one layer more than is shown: γ of a hidden layer is an average over many nodes, that of the output over two
    return {place: Cell(network(place, 21), x, {"probe": "weights"}) for place in PLACES} | {
        (batch, width): Cell(
            after.replace("batchnorm", f"batchnorm(batch={batch})") if batch else after, x,
            {"inits": c.many, "width": width},
        )
        for width in c.widths
        for batch in BATCHES
    }  # fmt: skip


def _judge_depth(c: Found) -> list[Entry]:
    before, plain, layer = (
        [c.layers[place][k - 1] for k in AT] for place in ("BatchNorm before", "no norm", "LayerNorm before")
    )
    return [
        claimed(
            "N1", "γ after 1, 5, 10, 20 layers with BatchNorm before each ReLU",
            [check("every depth", before, near=LEVEL, room=0.15, than="1/(π−1)"),
             check("20 layers", before[-1], below=0.1 * plain[-1].value, than="a tenth of 20 plain layers'")],
        ),
        claimed(
            "N3", "γ after 1, 5, 10, 20 layers with LayerNorm before each ReLU",
            [check("5, 10, 20 layers", layer[1:], above=layer[:-1], than="the next smaller depth's"),
             check("over γ without a norm", [a / b for a, b in zip(layer, plain, strict=True)], near=1.0, room=0.25)],
        ),
        claimed(
            "N2", "BatchNorm after ReLU, 5 layers, std of G₀ beyond even guesses (below a third of one plain layer's)",
            [check(f"batch {b or c.n}, width {w}", beyond_even(c[b, w]), below=NEUTRAL)
             for w in c.widths for b in BATCHES],
            also=f"std of G₀ {', '.join(str(std(c[b, w])) for w in c.widths for b in BATCHES)}; even guesses would "
            f"have {0.5 / np.sqrt(c.n):.4f}",
        ),
    ]  # fmt: skip


def _layer_rows(c: Found) -> list[dict[str, Any]]:
    theory = {place: fg.predict(network(place, 21)).gamma for place in PLACES}
    return [
        {"name": place, "layers": k, "gamma": g, "theory": float(theory[place][k])}
        for place, values in c.layers.items()
        for k, g in enumerate(values, start=1)
    ]


def _depth_chart(c: Found) -> Any:
    last = {place: values[-1].value for place, values in c.layers.items()}
    return lines(
        [row if "after" not in row["name"] else row | {"theory": None} for row in _layer_rows(c)], "layers", "gamma",
        title=f"20 layers: γ = {last['no norm']:.3g} without a norm, {last['LayerNorm before']:.3g} with LayerNorm "
        f"before, {last['BatchNorm before']:.2g} with BatchNorm before; after the activation "
        f"{max(last[p] for p in PLACES if 'after' in p):.1g} at most",
        x_title="Hidden layers", y_title="Drift ratio γ of the layer after", y_scale="symlog", y_domain=(-0.2, 24.0),
        width=900, height=380,
    )  # fmt: skip


depth = measured(
    "norm/depth", "Bias layer by layer, and BatchNorm with small batches", "NORM Th 4.1-4.3", claims=("N1", "N2", "N3"),
    about="20 hidden ReLU layers of {width} (our size), Kaiming, γ at every layer; blob of {n} points in 1000 "
    "dimensions; {inits} networks each. BatchNorm after: batches of 4, 16, 64 and all, 5 layers of {widths}, {many} "
    "networks each.",
    quick=dict(n=320, width=300, inits=32, widths=(100,), many=160),
    full=dict(n=640, width=1000, inits=30, widths=(100, 400), many=300),
    seconds=(12, 180),
    cells=_cells_depth,
    quantities=lambda c: {"layers": {place: [gamma(c[place], k) for k in range(1, 21)] for place in PLACES}},
    judge=_judge_depth,
    table="",
    tables=lambda c: {
        "layers": _layer_rows(c),
        "batches": [row("BatchNorm after", c[b, w], batch=b or c.n, width=w) for w in c.widths for b in BATCHES],
    },
    charts=lambda c: {"layers": _depth_chart(c)},
    notes=["Widths, points and networks are ours; γ of deep plain networks of finite width is below the closed form."],
)  # fmt: skip


def _normalized(u: Array) -> tuple[Array, Array, Array]:
    """A layer's values (n, nodes) after BatchNorm over all data, LayerNorm, RMSNorm."""
    batch = (u - u.mean(axis=0)) / u.std(axis=0)
    layer = (u - u.mean(axis=1, keepdims=True)) / u.std(axis=1, keepdims=True)
    return batch, layer, u / np.sqrt(np.square(u).mean(axis=1, keepdims=True))


def _rms(a: Array) -> float:
    return float(np.sqrt(np.square(a).mean()))


def _plain_layers(x: Array, width: int, depth: int, rng: np.random.Generator) -> Iterator[Array]:
    """Pre-activations of every hidden layer of one plain ReLU network with Kaiming weights."""
    for _ in range(depth):
        u = x @ (rng.standard_normal((x.shape[1], width)) * np.sqrt(2.0 / x.shape[1]))
        yield u
        x = np.maximum(u, 0.0)


BN_LN, LN_RMS, LN_RMS_AFTER = "bn_ln", "ln_rms", "ln_rms_after"


def layer_differences(run: Run, x: Data, width: int, depth: int, inits: int) -> dict[str, Any]:
    """Root-mean-square differences of the norms' outputs by layer, (inits, depth) each."""

    def differences(u: Array) -> tuple[float, float, float]:
        batch, layer, rms = _normalized(u)
        _, after, rms_after = _normalized(np.maximum(u, 0.0) + 1e-30)
        return _rms(batch - layer), _rms(layer - rms), _rms(after - rms_after)

    def compute() -> dict[str, Any]:
        points = x.flat().astype(np.float64)
        drawn = (np.random.default_rng([run.seed, width, member]) for member in range(inits))
        found = np.array([[differences(u) for u in _plain_layers(points, width, depth, rng)] for rng in drawn])
        return {key: found[:, :, k] for k, key in enumerate((BN_LN, LN_RMS, LN_RMS_AFTER))}

    key = {"differences": "of norms", "data": x.hash, "width": width, "depth": depth, "inits": inits}
    return run.piece(key, compute, label=f"norms of one layer's values, width {width}, {x.name}")


DATA = {"centred data": 0.0, "data shifted by 0.5": 0.5}
CENTRED, SHIFTED = DATA


def _apart(c: Found, shift: float, size: int) -> list[Number]:
    """How far apart BatchNorm and LayerNorm put the same values: mean ± standard error over networks, by layer."""
    data = c.blob(size, size).shift(shift)
    return [mean(values) for values in layer_differences(c.run, data, size, c.layers, c.inits)[BN_LN].T]


def _judge_pair(c: Found) -> list[Entry]:
    small, large = (c.apart[CENTRED, size] for size in (c.sizes[0], c.sizes[-1]))
    fall, _ = power_law((c.sizes[0], c.sizes[-1]), (small[0], large[0]))
    one, five = (std(c["LayerNorm before", k]) - std(c["BatchNorm before", k]) for k in (1, 5))
    return [
        claimed(
            "N5", "values of one layer after BatchNorm over all data and after LayerNorm, r.m.s. difference by size "
            f"(width, points, dimensions together, {c.sizes[0]} to {c.sizes[-1]})",
            [check("exponent, layer 1", fall, near=-0.5, room=0.1),
             check("layer 2", [small[1], large[1]], above=0.4),
             check("layer 1 on shifted data", c.apart[SHIFTED, c.sizes[-1]][0], above=0.4)],
            also=f"layer 1: {small[0]} at size {c.sizes[0]}, {large[0]} at {c.sizes[-1]}",
        ),
        claimed(
            "N5", "guesses with the norm before ReLU, std of G₀ with LayerNorm − with BatchNorm",
            [check("after 1 layer", one, near=0.0, room=2 * ROOM), check("after 5 layers", five, above=0.0)],
        ),
    ]  # fmt: skip


def _apart_rows(c: Found) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for (name, size), values in c.apart.items():
        shift = DATA[name]
        drift = fg.predict(deep("relu", c.layers), inputs=fg.Inputs(mean_square=shift**2, mean=shift)).gamma[: c.layers]
        theory = np.sqrt(2.0 - 2.0 / np.sqrt(1.0 + drift))
        rows += [
            {"data": name, "size": size, "layer": k, "apart": v.value, "error": v.error, "theory": float(t)}
            for k, (v, t) in enumerate(zip(values, theory, strict=True), start=1)
        ]
    return rows


batchnorm_layernorm = measured(
    "norm/batchnorm-layernorm", "BatchNorm of all data against LayerNorm: the same in the first layer, not beyond",
    "NORM §2, §4.1.4", claims=("N5",),
    about="Values of {layers} hidden layers of plain ReLU networks, Kaiming; as many nodes as points and dimensions, "
    "{sizes} (ours); blobs, and the same shifted by 0.5; {inits} networks. Guesses: 1 and 5 layers of {w}, {many} "
    "networks, 400 points.",
    quick=dict(layers=6, sizes=(100, 400), inits=6, w=200, many=150),
    full=dict(layers=10, sizes=(100, 400, 1200), inits=6, w=400, many=300),
    seconds=(8, 70),
    cells=lambda c: {
        (place, depth): Cell(network(place, depth), c.blob(400, 1000), {"inits": c.many, "width": c.w})
        for place in ("BatchNorm before", "LayerNorm before") for depth in (1, 5)
    },
    quantities=lambda c: {
        "apart": {(name, size): _apart(c, shift, size) for name, shift in DATA.items() for size in c.sizes}
    },
    judge=_judge_pair,
    table="guesses",
    rows=lambda c, place, depth: {"depth": depth, "width": c.w},
    tables=lambda c: {"differences": _apart_rows(c)},
    charts=lambda c: {"differences": lines(
        [row | {"name": f"{row['size']} nodes, points, dimensions"} for row in _apart_rows(c)], "layer", "apart",
        panel="data", title="How far apart BatchNorm and LayerNorm put the same values, by layer",
        y_title="Difference of the two norms' values (r.m.s.)", y_domain=(0.0, 1.25), dodge=False,
    )},
    holds={"differences": Holds(
        "BatchNorm and LayerNorm agree only where all nodes are alike: in the first layer, on centred data",
        entries=(0,),
    )},
    notes=["Sizes are ours. What differs in the first layer are the fluctuations of means and scales over few points "
           "or nodes."],
)  # fmt: skip


NORMS = {
    "LayerNorm before": "layernorm > relu",
    "RMSNorm before": "rmsnorm > relu",
    "LayerNorm after": "relu > layernorm",
    "RMSNorm after": "relu > rmsnorm",
}
PLACED = {LN_RMS: "before the activation", LN_RMS_AFTER: "after the activation"}


def _rooted(values: Array) -> Number:
    """Third layer. Squares are averaged: the mean over nodes there has few directions, so networks differ a lot."""
    squares = np.square(values[:, -1])
    root = float(np.sqrt(squares.mean()))
    return Number(root, float(squares.std(ddof=1) / np.sqrt(len(squares))) / (2 * root))


def _judge_rms(c: Found) -> list[Entry]:
    def less(one: str, other: str) -> list[Number]:
        return [paired(c[one, depth], c[other, depth]) for depth in c.depths]

    ends = (c.widths[0], c.widths[-1])
    slope, _ = power_law(ends, [c.apart[LN_RMS][w] for w in ends])
    return [
        claimed(
            "N6", "std of G₀ with RMSNorm − with LayerNorm, and how their values differ by width",
            [check("before ReLU", less("RMSNorm before", "LayerNorm before"), near=0.0, room=ROOM),
             check("exponent", slope, near=-0.5, room=0.1)],
            within=[check("after ReLU", less("RMSNorm after", "LayerNorm after"), near=0.0, room=ROOM)],
            limit="only before the activation: after it RMSNorm does not centre, and cures nothing",
        ),
        claimed(
            "N6", "beyond the paper: after ReLU, std of G₀ with RMSNorm − without a norm, and with LayerNorm beyond "
            "even guesses",
            [check("RMSNorm − none", less("RMSNorm after", "no norm"), near=0.0, room=ROOM),
             check("LayerNorm", [beyond_even(c["LayerNorm after", k]) for k in c.depths], below=NEUTRAL)],
            also="; ".join(
                f"{k} layers: " + ", ".join(f"{name} {std(c[name, k])}" for name in ("no norm", *list(NORMS)[2:]))
                for k in c.depths
            ),
        ),
    ]  # fmt: skip


def _value_rows(c: Found) -> list[dict[str, Any]]:
    limit = {LN_RMS: lambda w: 1 / np.sqrt(w), LN_RMS_AFTER: lambda _: np.sqrt(2 - 2 * np.sqrt(1 - 1 / np.pi))}
    return [
        {"place": place, "width": w, "apart": v.value, "error": v.error, "theory": float(limit[key](w))}
        for key, place in PLACED.items()
        for w, v in c.apart[key].items()
    ]


rmsnorm = measured(
    "norm/rmsnorm", "RMSNorm is LayerNorm before the activation, and no norm at all after it", "NORM §4.1.3",
    claims=("N6",),
    about="{depths} hidden ReLU layers of {width} (ours), Kaiming; blob of {n} points in {d} dimensions; {inits} "
    "networks each. Values of 3 plain ReLU layers of {widths} nodes, {few} networks.",
    quick=dict(n=400, d=500, depths=(5,), width=200, inits=150, widths=(50, 200, 800), few=40),
    full=dict(n=800, d=1000, depths=(5, 20), width=400, inits=400, widths=(50, 200, 800), few=100),
    seconds=(8, 70),
    cells=lambda c: {
        (name, depth): Cell(deep(norm, depth), c.blob(c.n, c.d))
        for depth in c.depths for name, norm in {"no norm": "relu", **NORMS}.items()
    },
    quantities=lambda c: {"apart": {
        key: {w: _rooted(layer_differences(c.run, c.blob(c.n, c.d), w, 3, c.few)[key]) for w in c.widths}
        for key in PLACED
    }},
    judge=_judge_rms,
    rows=lambda c, name, depth: {"depth": depth, "width": c.width},
    tables=lambda c: {"values": _value_rows(c)},
    charts=lambda c: {
        "laws": figures.panels_chart(
            [law_panel(name, c[name, c.depths[0]], theory={"theory": fg.predict(deep(norm, c.depths[0]))},
                       note=f"std {std(c[name, c.depths[0]])}") for name, norm in NORMS.items()],
            title="Guesses with RMSNorm and LayerNorm, before and after ReLU", columns=4,
            subtitle=[f"{c.depths[0]} hidden layers of {c.width}, random data, {c.n} points, {c.inits} networks a "
                      "panel."],
        ),
        "values": lines(
            _value_rows(c), "width", "apart", by="place", x_scale="log", y_scale="log", width=740,
            title="How far apart RMSNorm and LayerNorm put the same values, by width",
            y_title="LayerNorm's values − RMSNorm's (r.m.s.)",
        ),
    },
    holds={
        "values": Holds("RMSNorm turns into LayerNorm as width grows, but only before the activation", entries=(0,),
                        verdicts=("holds with a limit",)),
        "laws": Holds("After ReLU, LayerNorm makes guesses even and RMSNorm leaves the bias as it was", entries=(1,)),
    },
    notes=["All sizes are ours."],
)  # fmt: skip
