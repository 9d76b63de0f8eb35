"""NORM: bias by depth and batch size, norms compared, and how the boundary moves and turns (App. C.1)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

import firstguess as fg
from firstguess import figures
from firstguess.data import Data
from firstguess_papers.charts import Line, arms_chart, deep, gamma, laws, lines, row, std
from firstguess_papers.items import Holds, Item
from firstguess_papers.judging import Array, Number, average, check, claimed, each, power_law, root
from firstguess_papers.library import Curve, looked_at
from firstguess_papers.measured import Cell, Found
from firstguess_papers.norm import NEUTRAL, PLACES, ROOM, beyond_even, network, paired
from firstguess_papers.training_pieces import MEMBERS, SEEDS, chosen, first

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


depth = Item(
    "norm/depth", "Bias layer by layer, and BatchNorm with small batches", "NORM Th 4.1-4.3", claims=("N1", "N2", "N3"),
    about="20 hidden ReLU layers of {width} (our size), Kaiming, γ at every layer; blob of {n} points in 1000 "
    "dimensions; {inits} networks each. BatchNorm after: batches of 4, 16, 64 and all, 5 layers of {widths}, {many} "
    "networks each.",
    quick=dict(n=320, width=300, inits=32, widths=(100,), many=160),
    full=dict(n=640, width=1000, inits=30, widths=(100, 400), many=300),
    seconds=(12, 180), cells=_cells_depth,
    quantities=lambda c: {
        "layers": {place: [gamma(c[place], k) for k in range(1, 21)] for place in PLACES},
        "at": {place: [gamma(c[place], k) for k in AT] for place in PLACES},
        "last": {place: gamma(c[place], 20).value for place in PLACES},
        "batches": {f"batch {b or c.n}, width {w}": c[b, w] for w in c.widths for b in BATCHES},
    },
    judge=lambda c: [
        claimed(
            "N1", "γ after 1, 5, 10, 20 layers with BatchNorm before each ReLU",
            [check("every depth", c.at["BatchNorm before"], near=LEVEL, room=0.15, than="1/(π−1)"),
             check("20 layers", c.at["BatchNorm before"][-1], below=0.1 * c.last["no norm"],
                   than="a tenth of 20 plain layers'")],
        ),
        claimed(
            "N3", "γ after 1, 5, 10, 20 layers with LayerNorm before each ReLU",
            [check("5, 10, 20 layers", c.at["LayerNorm before"][1:], above=c.at["LayerNorm before"][:-1],
                   than="the next smaller depth's"),
             check("over γ without a norm", [a / b for a, b in zip(c.at["LayerNorm before"], c.at["no norm"],
                                                                   strict=True)], near=1.0, room=0.25)],
        ),
        claimed(
            "N2", "BatchNorm after ReLU, 5 layers, std of G₀ beyond even guesses (below a third of one plain layer's)",
            [check(name, beyond_even(m), below=NEUTRAL) for name, m in c.batches.items()],
            also=f"std of G₀ {', '.join(str(std(m)) for m in c.batches.values())}; even guesses would have "
            f"{0.5 / np.sqrt(c.n):.4f}",
        ),
    ],
    tables=lambda c: {
        "layers": [
            {"name": place, "layers": k, "gamma": g, "theory": float(t)} for place, values in c.layers.items()
            for k, (g, t) in enumerate(zip(values, fg.predict(network(place, 21)).gamma[1:], strict=False), start=1)
        ],
        "batches": [row("BatchNorm after", c[b, w], batch=b or c.n, width=w) for w in c.widths for b in BATCHES],
    },
    charts=lambda c: {"layers": lines(
        [one | ({"theory": None} if "after" in one["name"] else {}) for one in c.tables["layers"]], "layers", "gamma",
        title=f"20 layers: γ = {c.last['no norm']:.3g} without a norm, {c.last['LayerNorm before']:.3g} with LayerNorm "
        f"before, {c.last['BatchNorm before']:.2g} with BatchNorm before; after the activation "
        f"{max(c.last[p] for p in PLACES if 'after' in p):.1g} at most",
        x_title="Hidden layers", y_title="Drift ratio γ of the layer after", y_scale="symlog", y_domain=(-0.2, 24.0),
        width=900, height=380,
    )},
)  # fmt: skip


def _rms(a: Array) -> float:
    return float(np.sqrt(np.square(a).mean()))


def _normalized(u: Array) -> tuple[Array, Array, Array]:
    """A layer's values (n, nodes) after BatchNorm over all data, LayerNorm, RMSNorm."""
    batch = (u - u.mean(axis=0)) / u.std(axis=0)
    layer = (u - u.mean(axis=1, keepdims=True)) / u.std(axis=1, keepdims=True)
    return batch, layer, u / np.sqrt(np.square(u).mean(axis=1, keepdims=True))


def _differences(x: Array, width: int, depth: int, rng: np.random.Generator) -> Iterator[tuple[float, float, float]]:
    """How norms differ on the pre-activations of every hidden layer of one plain ReLU network with Kaiming weights."""
    for _ in range(depth):
        u = x @ (rng.standard_normal((x.shape[1], width)) * np.sqrt(2.0 / x.shape[1]))
        x = np.maximum(u, 0.0)
        (batch, layer, rms), (_, after, rms_after) = _normalized(u), _normalized(x + 1e-30)
        yield _rms(batch - layer), _rms(layer - rms), _rms(after - rms_after)


BN_LN, LN_RMS, LN_RMS_AFTER = "bn_ln", "ln_rms", "ln_rms_after"


def _layer_differences(c: Found, x: Data, width: int, depth: int, inits: int) -> Mapping[str, Any]:
    """Root-mean-square differences of the norms' outputs by layer, (inits, depth) each."""
    label = f"norms of one layer's values, width {width}, {x.name}"
    return c.run.keep(_all_differences, label=label, x=x, width=width, depth=depth, inits=inits, seed=c.run.seed)


def _all_differences(x: Data, width: int, depth: int, inits: int, seed: int) -> dict[str, Any]:
    drawn, points = (np.random.default_rng([seed, width, k]) for k in range(inits)), x.flat().astype(np.float64)
    found = np.array([list(_differences(points, width, depth, rng)) for rng in drawn])
    return {key: found[:, :, k] for k, key in enumerate((BN_LN, LN_RMS, LN_RMS_AFTER))}


DATA = {"centred data": 0.0, "data shifted by 0.5": 0.5}
CENTRED, SHIFTED = DATA


def _pair(c: Found) -> dict[str, Any]:
    """How far apart BatchNorm and LayerNorm put the same values, by layer; and their guesses."""
    apart = {
        (name, size): [average(values) for values in _layer_differences(
            c, c.blob(size, size).shift(shift), size, c.layers, c.inits)[BN_LN].T]
        for name, shift in DATA.items() for size in c.sizes
    }  # fmt: skip
    small, large = (apart[CENTRED, size] for size in (c.sizes[0], c.sizes[-1]))
    return {
        "apart": apart, "small": small, "large": large,
        "fall": power_law((c.sizes[0], c.sizes[-1]), (small[0], large[0]))[0],
        "guesses": {k: std(c["LayerNorm before", k]) - std(c["BatchNorm before", k]) for k in (1, 5)},
    }  # fmt: skip


def _apart_theory(c: Found, shift: float) -> list[float]:
    """The same in wide layers, by layer."""
    drift = fg.predict(deep("relu", c.layers), inputs=fg.Inputs(mean_square=shift**2, mean=shift)).gamma[: c.layers]
    return np.sqrt(2.0 - 2.0 / np.sqrt(1.0 + drift)).tolist()


batchnorm_layernorm = Item(
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
    quantities=_pair,
    judge=lambda c: [
        claimed(
            "N5", "values of one layer after BatchNorm over all data and after LayerNorm, r.m.s. difference by size "
            f"(width, points, dimensions together, {c.sizes[0]} to {c.sizes[-1]})",
            [check("exponent, layer 1", c.fall, near=-0.5, room=0.1),
             check("layer 2", [c.small[1], c.large[1]], above=0.4),
             check("layer 1 on shifted data", c.apart[SHIFTED, c.sizes[-1]][0], above=0.4)],
            also=f"layer 1: {c.small[0]} at size {c.sizes[0]}, {c.large[0]} at {c.sizes[-1]}",
        ),
        claimed(
            "N5", "guesses with the norm before ReLU, std of G₀ with LayerNorm − with BatchNorm",
            [check("after 1 layer", c.guesses[1], near=0.0, room=2 * ROOM),
             check("after 5 layers", c.guesses[5], above=0.0)],
        ),
    ],
    table="guesses",
    rows=lambda c, place, depth: {"depth": depth, "width": c.w},
    tables=lambda c: {"differences": [
        {"data": name, "size": size, "layer": k, "apart": v.value, "error": v.error, "theory": t}
        for (name, size), values in c.apart.items()
        for k, (v, t) in enumerate(zip(values, _apart_theory(c, DATA[name]), strict=True), start=1)
    ]},
    charts=lambda c: {"differences": lines(
        [row | {"name": f"{row['size']} nodes, points, dimensions"} for row in c.tables["differences"]], "layer",
        "apart", panel="data", title="How far apart BatchNorm and LayerNorm put the same values, by layer",
        y_title="Difference of the two norms' values (r.m.s.)", y_domain=(0.0, 1.25), dodge=False,
    )},
    holds={"differences": Holds(
        "BatchNorm and LayerNorm agree only where all nodes are alike: in the first layer, on centred data",
        entries=(0,),
    )},
    notes=["What differs in the first layer are fluctuations of means and scales over few points or nodes."],
)  # fmt: skip


NORMS = {
    "LayerNorm before": "layernorm > relu",
    "RMSNorm before": "rmsnorm > relu",
    "LayerNorm after": "relu > layernorm",
    "RMSNorm after": "relu > rmsnorm",
}
PLACED = {LN_RMS: "before the activation", LN_RMS_AFTER: "after the activation"}
LIMITS = {LN_RMS: lambda w: 1 / np.sqrt(w), LN_RMS_AFTER: lambda _: np.sqrt(2 - 2 * np.sqrt(1 - 1 / np.pi))}


def _less(c: Found, one: str, other: str) -> list[Number]:
    return [paired(c[one, depth], c[other, depth]) for depth in c.depths]


rmsnorm = Item(
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
    quantities=lambda c: {
        # of the third layer. Squares are averaged: the mean over nodes there has few directions, so networks differ
        "apart": {key: {w: root(average(np.square(_layer_differences(c, c.blob(c.n, c.d), w, 3, c.few)[key][:, -1])))
                        for w in c.widths} for key in PLACED},
        "ends": (c.widths[0], c.widths[-1]),
    },
    judge=lambda c: [
        claimed(
            "N6", "std of G₀ with RMSNorm − with LayerNorm, and how their values differ by width",
            [check("before ReLU", _less(c, "RMSNorm before", "LayerNorm before"), near=0.0, room=ROOM),
             check("exponent", power_law(c.ends, [c.apart[LN_RMS][w] for w in c.ends])[0], near=-0.5, room=0.1)],
            within=[check("after ReLU", _less(c, "RMSNorm after", "LayerNorm after"), near=0.0, room=ROOM)],
            limit="only before the activation: after it RMSNorm does not centre, and cures nothing",
        ),
        claimed(
            "N6", "beyond the paper: after ReLU, std of G₀ with RMSNorm − without a norm, and with LayerNorm beyond "
            "even guesses",
            [check("RMSNorm − none", _less(c, "RMSNorm after", "no norm"), near=0.0, room=ROOM),
             check("LayerNorm", [beyond_even(c["LayerNorm after", k]) for k in c.depths], below=NEUTRAL)],
            also="; ".join(
                f"{k} layers: " + ", ".join(f"{name} {std(c[name, k])}" for name in ("no norm", *list(NORMS)[2:]))
                for k in c.depths
            ),
        ),
    ],
    rows=lambda c, name, depth: {"depth": depth, "width": c.width},
    tables=lambda c: {"values": [
        {"place": place, "width": w, "apart": v.value, "error": v.error, "theory": float(LIMITS[key](w))}
        for key, place in PLACED.items() for w, v in c.apart[key].items()
    ]},
    charts=lambda c: {
        "laws": laws(
            {name: c[name, c.depths[0]] for name in NORMS}, lambda name: f"{name}, {c.depths[0]} layers",
            theory=lambda name: {"theory": fg.predict(deep(NORMS[name], c.depths[0]))}, columns=4,
            note=lambda m: f"std {std(m)}", title="Guesses with RMSNorm and LayerNorm, before and after ReLU",
        ),
        "values": lines(
            c.tables["values"], "width", "apart", by="place", x_scale="log", y_scale="log", width=740,
            title="How far apart RMSNorm and LayerNorm put the same values, by width",
            y_title="LayerNorm's values − RMSNorm's (r.m.s.)",
        ),
    },
    holds={
        "values": Holds("RMSNorm turns into LayerNorm as width grows, but only before the activation", entries=(0,),
                        verdicts=("holds with a limit",)),
        "laws": Holds("After ReLU, LayerNorm makes guesses even and RMSNorm leaves the bias as it was", entries=(1,)),
    },
)  # fmt: skip


Steps = NDArray[np.int64]
Motion = dict[str, Any]
NETS = {
    "ReLU, 1 hidden layer": "dense(weight_var=2) > relu > dense(weight_var=2)",
    "ReLU, 3 hidden layers": "3 x [dense(weight_var=2) > relu] > dense(weight_var=2)",
    "tanh at its edge, 3 hidden layers": "3 x [dense(weight_var=1.99, bias_var=0.1) > tanh] > dense(weight_var=1.99)",
}
_SHOWN = "ReLU, 3 hidden layers"
_FAR = 0.5  # spreads of the margin: clouds nearer to the boundary have nothing to translate
_TRIES = 40  # starts looked at for one that is kept, at most
_TWO = 2.0  # times as late: two time scales


def motion(steps: Steps, margins: Array, labels: NDArray[np.int64]) -> Motion:
    """Translation and rotation of the boundary, from margins g = f₁ − f₀ (networks, steps, points) over training.

    `offset`: the mean margin by its value at the start; `translated`: steps until half of it is gone, of every network,
    the last step where it is not. `alignment`: correlation over the data of margin and label, the cosine of the angle
    between them; `rotated`: steps until it is half-way from its start to its end.
    """
    m, y = margins.mean(axis=2), labels - labels.mean()
    g = margins - m[:, :, None]

    def reached(rows: Array, levels: Array) -> Array:
        at = steps.astype(float)
        return np.array([min(first(row, at, level), at[-1]) for row, level in zip(rows, levels, strict=True)])

    offset, a = m / m[:, :1], (g @ y) / np.sqrt((g**2).sum(axis=2) * float(y @ y))
    return {
        "steps": steps, "margins": margins, "labels": labels, "offset": Curve(steps, offset),
        "alignment": Curve(steps, a), "translated": reached(-np.abs(offset), np.full(len(m), -0.5)),
        "rotated": reached(a, (a[:, 0] + a[:, -1]) / 2.0),
    }  # fmt: skip


def _logarithm(values: Array) -> Number:
    """Mean of the logarithm of one positive value a network, ± standard error; unknown with too few networks."""
    found = average(np.log(np.maximum(values, 1e-9)))
    return found if len(values) >= MEMBERS else Number(found.value, math.nan)


def _later(one: Motion) -> Number:
    """ln of how many times later the boundary turns than it moves, network by network."""
    return _logarithm(one["rotated"] / one["translated"])


def _times(log: Number) -> str:
    factor = math.exp(log.value)
    return str(Number(factor, factor * log.error))


def _motions(c: Found) -> dict[str, Any]:
    """Logits and margins of trained networks, and margins along the tangent kernel; rates, λ_b and λ_sig."""
    x = chosen(c.run.data("mnist:even-odd", points=4 * c.n), (c.n // 2, c.n // 2), flat=True)
    assert x.y is not None
    looks = looked_at(c.steps)
    found: dict[str, dict[str, Any]] = {"logits": {}, "seen": {}, "moved": {}, "scales": {}}

    for name, text in NETS.items():
        own = c.run.keep(_modes, label=f"modes of {text}", text=text, x=x, width=c.width)
        found["scales"][name] = rate, _, _ = tuple(float(own[key]) for key in ("rate", "bias", "signal"))
        about: dict[str, Any] = {"text": text, "x": x, "width": c.width, "rate": rate, "looks": looks}
        pieces = [
            c.run.keep(_moved, label=f"{name}, part {k + 1}", inits=c.inits, seed=seed, **about)
            for k, seed in enumerate(range(c.run.seed, c.run.seed + SEEDS * c.parts, SEEDS))
        ]
        logits, margins = (np.concatenate([np.asarray(p[key]) for p in pieces]) for key in ("trained", "predicted"))
        found["logits"][name] = logits  # (networks, steps, points, 2)
        found["seen"][name] = motion(looks, logits[..., 1] - logits[..., 0], x.y)
        found["moved"][name] = motion(looks, margins, x.y)
    return found


def _modes(text: str, x: Data, width: int) -> dict[str, float]:
    t = fg.predict_training(text, data=x, lr=1e-7, steps=1, width=width, draws=2, trust=False)
    return {"rate": float(0.05 * t.overshoot), "bias": float(t.modes.bias), "signal": float(t.modes.signal)}


def _moved(text: str, x: Data, width: int, rate: float, looks: Steps, inits: int, seed: int) -> dict[str, Any]:
    """Logits of networks that start far from the boundary, trained; margins moved along the tangent kernel."""
    from firstguess_papers.library import kernel_of

    assert x.y is not None
    network = fg.Network.parse(text)
    tangent = kernel_of(network, x.x.astype(np.float64), width).tangent
    assert tangent is not None
    tried = (descend(network, x, width, rate, looks, seed, member) for member in range(_TRIES * inits))
    seen = np.array(list(islice((found for found in tried if found is not None), inits)))
    starts = seen[:, 0, :, 1] - seen[:, 0, :, 0]
    return {"trained": seen, "predicted": lazily(starts, tangent, x.y, rate, looks)}


def descend(
    network: fg.Network, x: Data, width: int, rate: float, looks: Steps, seed: int, member: int, *,
    far: float = _FAR,
) -> Array | None:  # fmt: skip
    """Logits of one network at these steps of gradient descent, (steps, points, 2); None if it starts too near."""
    import torch

    from firstguess_papers.library import build

    model = build(network, x.x, width=width, seed=seed, member=member)
    inputs, labels = torch.from_numpy(np.array(x.x)), torch.from_numpy(np.array(x.y, dtype=np.int64))
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=rate)
    found: list[Array] = []
    wanted = set(looks.tolist())
    with torch.enable_grad():
        for step in range(int(looks[-1]) + 1):
            rows = model(inputs)
            if step in wanted:
                found.append(rows.detach().double().numpy())
                g = found[0][:, 1] - found[0][:, 0]
                if abs(g.mean()) < far * g.std(ddof=1):
                    return None
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(rows, labels).backward()
            optimizer.step()
    return np.array(found)


def lazily(starts: Array, tangent: Array, labels: NDArray[np.int64], rate: float, looks: Steps) -> Array:
    """The same by theory.md (14): g ← g − (2η/n) Θ (σ(g) − y), (networks, steps, points)."""
    from scipy import special

    g, wanted = starts.T.copy(), set(looks.tolist())
    found: list[Array] = []
    for step in range(int(looks[-1]) + 1):
        if step in wanted:
            found.append(g.T.copy())
        g = g - (2.0 * rate / len(labels)) * (tangent @ (special.expit(g) - labels[:, None]))
    return np.array(found).transpose(1, 0, 2)


def _film(one: Motion, logits: Array) -> Any:
    """The network whose start is the most usual."""
    first = np.abs(one["margins"][:, 0].mean(axis=1)) / one["margins"][:, 0].std(axis=1, ddof=1)
    k = int(np.abs(first - np.median(first)).argmin())
    return figures.logits_film(dict(zip(one["steps"].tolist(), logits[k], strict=True)), one["labels"])


MOVE, TURN = "Translation: mean margin, by its start", "Rotation: correlation of margin and labels"

geometry = Item(
    "norm/geometry", "The boundary first translates, then rotates", "NORM App. C.1", claims=("N21",), needs=("mnist",),
    about="ReLU with 1 and 3 hidden layers of {width} and tanh at its edge, {n} MNIST images, even or odd; full "
    "batches at 0.05 of the rate that overshoots, {steps} steps; {networks} networks each whose cloud starts at least "
    "half its spread from the boundary. Network, data and rate are ours.",
    quick=dict(n=60, width=100, steps=150, inits=10, parts=1),
    full=dict(n=150, width=200, steps=400, inits=10, parts=2),
    seconds=(15, 120), quantities=_motions,
    judge=lambda c: [
        claimed(
            "N21", "ln of how many times later than half of the move (mean margin) half of the turn (correlation of "
            f"margin and labels) comes; without a limit two time scales, {_TWO:g} times as late",
            each({name: _later(one) for name, one in c.seen.items()}, above=0.0),
            within=each({name: _later(one) for name, one in c.seen.items()}, above=math.log(_TWO), than=f"ln {_TWO:g}"),
            limit="not two time scales",
            also="; ".join(f"{name}: × {_times(_later(one))} (kernel × {_times(_later(c.moved[name]))})"
                           for name, one in c.seen.items()),
        ),
        claimed(
            "N21", "ln of trained times over those of the tangent kernel, from each network's own start",
            each({f"half of the {word}, {name.replace(',', '')}": _logarithm(one[what] / c.moved[name][what])
                  for what, word in (("translated", "move"), ("rotated", "turn")) for name, one in c.seen.items()},
                 near=0.0, room=math.log(1.25)),
        ),
    ],
    tables=lambda c: {"times": [
        {"network": name, "source": source, "member": k, "translated": float(a), "rotated": float(b)}
        for source, given in (("trained", c.seen), ("predicted", c.moved)) for name, one in given.items()
        for k, (a, b) in enumerate(zip(one["translated"], one["rotated"], strict=True))
    ]},
    charts=lambda c: {
        "curves": arms_chart(
            {title: [Line(name, c.seen[name][what], c.moved[name][what]) for name in c.seen]
             for title, what in ((MOVE, "offset"), (TURN, "alignment"))},
            title="How the boundary moves and turns in training", columns=2, width=430, plain=(MOVE, TURN),
            y_domains={MOVE: (-0.2, 1.05), TURN: (-0.3, 1.0)},
        ),
        "film": _film(c.seen[_SHOWN], c.logits[_SHOWN]),
    },
    holds={"curves": Holds("The boundary first moves, then turns", entries=(0,))},
    notes=lambda c: [
        "Networks whose cloud starts nearer than half its spread to the boundary are left out: nothing translates.",
        "Steps: " + "; ".join(
            f"{name}: " + ", ".join(
                f"{words} {np.median(c.seen[name][what]):.3g} (kernel {np.median(c.moved[name][what]):.3g})"
                for words, what in (("half of the move", "translated"), ("of the turn", "rotated")))
            + f", 1/ηλ_b = {1 / (rate * bias):.3g}, 1/ηλ_sig = {1 / (rate * signal):.3g}"
            for name, (rate, bias, signal) in c.scales.items()
        ) + ".",
    ],
)  # fmt: skip
