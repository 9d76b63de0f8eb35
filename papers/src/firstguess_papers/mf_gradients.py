"""MF: gradients of untrained networks by layer, of all points, of the favoured class's and of the others'."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import firstguess as fg
from firstguess import figures
from firstguess_papers.charts import lines, panels_of, predicted
from firstguess_papers.items import Holds, Outcome, item
from firstguess_papers.judging import Number, Truth, above, below, entry, same
from firstguess_papers.mf_simulation import Setting, mf_settings
from firstguess_papers.running import Run
from firstguess_papers.tables import columns, gamma

if TYPE_CHECKING:
    from firstguess import Gradients
    from firstguess.data import Data
    from firstguess_papers.library import GradientLayer, Level

_DEPTH = 100  # MF's
_GROUPS = {"all": "all points", "favoured": "favoured class", "others": "other classes"}


def stored_gradients(run: Run, text: str, data: Data, *, label: str, **options: Any) -> Gradients:
    """`measure_gradients` of a description, kept as a piece; in float64, which reaches the smallest gradients.

    Levels are the paper's: means over a dense layer's nodes, where ours are sums.
    """
    from firstguess import Gradients

    def compute() -> dict[str, Any]:
        import torch

        from firstguess import measure_gradients

        g = measure_gradients(
            text, data, seed=run.seed, dtype=torch.float64,
            progress=lambda done, total: run.progress(f"gradients of {label}", done, total), **options,
        )  # fmt: skip
        g = replace(g, layers=tuple(_over_nodes(layer) for layer in g.layers), seconds=0.0)
        return {"gradients": json.dumps(g.to_dict())}

    about = {"gradients": text, "of": "weights", "data": data.hash, **options}
    piece = run.piece(about, compute, label=f"gradients of {label}")
    return Gradients.from_dict(json.loads(piece["gradients"]))


def _over_nodes(layer: GradientLayer) -> GradientLayer:
    shift = math.log10(layer.nodes)
    levels = {group: getattr(layer, group) for group in _GROUPS}
    return replace(layer, **{group: replace(level, value=level.value - shift) for group, level in levels.items()})


def growth(g: Gradients) -> Number:
    """The factor on the mean square a layer, going back; the error from the 95 % interval."""
    from scipy import special

    half = math.log(g.growth.high / g.growth.low) / 2
    return Number(g.growth.value, g.growth.value * half / float(special.stdtrit(g.growth.inits - 1, 0.975)))


def level(found: Level) -> Number:
    """log10 of a mean square, as a number with an error."""
    return Number(found.value, found.error)


@item(
    "mf/gradients",
    "Who gets gradients, through the phases",
    claims=("M5", "M6"),
    where="MF Prop 4.1 and its figures of gradients",
    about="40 hidden layers (our depth: deeper, the favoured class's gradient leaves float64) of {width} (MF: 1000), "
    "MF's seven settings, bias variance 0.1; {points} points of a blob in 300 dimensions with random labels of two "
    "classes; {inits} networks. γ at 100 layers, {wide} networks; chaotic ReLU by depth: 5, 10, 20, 40 layers, {many} "
    "networks.",
    quick=dict(width=200, points=50, inits=12, many=48, wide=24),
    full=dict(width=500, points=100, inits=12, many=48, wide=20),
    seconds=(12, 110),
)
def gradients(run: Run) -> Outcome:
    """M5: gradients keep their size where γ is large; M6: what depth does to them by class, for ReLU."""

    width, points, inits, many, wide = run.take("width points inits many wide")
    return _gradients(
        run, fg.data.blob(points, 300, seed=run.seed), mf_settings(), width=width, inits=inits, many=many, wide=wide
    )


@item(
    "mf/gradients-cifar10",
    "Who gets gradients, on CIFAR-10",
    claims=("M5", "M6"),
    where="MF, figures of gradients on CIFAR-10",
    needs=("cifar10",),
    about="40 hidden layers of {width} (MF: 1000), ReLU at 0.75, 1, 1.5 and tanh at 0.8, 1, 1.25, 2.5 times the "
    "critical weight variance, bias variance 0.1; {points} images of CIFAR-10, ten classes; {inits} networks. γ at "
    "100 layers, {wide} networks; chaotic ReLU by depth: 5, 10, 20 layers, {many} networks.",
    quick=dict(width=200, points=60, inits=12, many=100, wide=24),
    full=dict(width=500, points=100, inits=12, many=96, wide=20),
    seconds=(12, 120),
)
def gradients_cifar10(run: Run) -> Outcome:
    """The same on images, with ten classes."""
    width, points, inits, many, wide = run.take("width points inits many wide")
    settings = [
        Setting(s.name, s.activation, 3.0, s.bias_var) if s.name == "ReLU, chaotic" else s for s in mf_settings()
    ]
    return _gradients(run, run.data("cifar10", points=points), settings, width=width, inits=inits, many=many, wide=wide)


def _gradients(run: Run, x: Data, settings: list[Setting], *, width: int, inits: int, many: int, wide: int) -> Outcome:
    from firstguess_papers.library import DEEPLY_BIASED

    depth, images = 40, x.classes is not None
    options: dict[str, Any] = {"inits": inits, "width": width, "points": x.n}
    found: dict[str, Gradients] = {}
    drift: dict[str, Number] = {}
    for s in settings:
        found[s.name] = stored_gradients(run, s.text(depth), x, label=s.name, **options)
    edges, neutral = ("ReLU, edge", "tanh, edge"), "tanh, neutral chaos"
    for s in settings:
        if s.name in (*edges, neutral):
            m = run.measure(s.text(_DEPTH), x, inits=wide, width=width, label=f"γ of {s.name}, {_DEPTH} layers")
            drift[s.name] = gamma(m, -2)  # the last hidden layer: the law of the output, with more nodes
    speeds = {name: growth(g) for name, g in found.items()}
    m5: list[Truth] = [
        *(same(speeds[name], 1.0, room=0.05) for name in edges),
        *(above(_log(drift[name]), math.log(DEEPLY_BIASED)) for name in edges),
        above(speeds[neutral], 1.05),
        *([] if images else [below(_log(drift[neutral]), 0.0)]),
        *(below(speeds[name], 0.95) for name in ("ReLU, ordered", "tanh, ordered")),
    ]
    depths = (5, 10, 20) if images else (5, 10, 20, 40)
    chaotic = next(s for s in settings if s.name == "ReLU, chaotic")
    edge = next(s for s in settings if s.name == "ReLU, edge")
    ends: dict[str, dict[str, tuple[Number, Number]]] = {}
    rows: list[dict[str, Any]] = []
    for s in (edge, chaotic):
        # The favoured class's level scatters over networks by as much as it is: more of them, where they decide.
        more = options if s is edge else options | {"inits": many}
        deep = [stored_gradients(run, s.text(d), x, label=f"{s.name}, {d} layers", **more) for d in depths]
        levels = {group: [level(getattr(g.layers[0], group)) for g in deep] for group in _GROUPS}
        ends[s.name] = {group: (values[0], values[-1]) for group, values in levels.items()}
        rows += [
            {"setting": s.name, "hidden_layers": d, "group": group, "log10_first_layer": v.value, "error": v.error}
            | {"zeros": getattr(g.layers[0], group).zeros}
            for group, values in levels.items()
            for d, v, g in zip(depths, values, deep, strict=True)
        ]
    low, high = ends["ReLU, chaotic"]["favoured"], ends["ReLU, chaotic"]["others"]
    m6: list[Truth] = [above(high[1], high[0], by=0.5), below(low[1], low[0], by=0.5)]
    said5 = "; ".join(
        f"{name}: gradients × {speeds[name]}" + (f", γ = {drift[name]}" if name in drift else "") for name in speeds
    )
    layers: list[dict[str, Any]] = [row | {"group": _GROUPS[row["group"]]} for row in _rows(found)]
    chart = figures.lines_chart(
        {name: [predicted(group, [row["layer"] for row in own], [row["log10"] for row in own])
                for group, own in panels_of(of, "group").items()]
         for name, of in panels_of([row for row in layers if row["layer"] <= depth], "setting").items()},
        title="Gradients by layer in every phase",
        subtitle=["Mean square gradient of a point's loss at pre-activations. Favoured: points whose label is the "
                  "class that the untrained network guesses most; in chaotic ReLU their line lies far below."],
        x_title="Layer", y_title="log10 of mean square", columns=4, width=250, height=210, y_domain=(-12.0, 7.0),
    )  # fmt: skip
    growing = lines(
        [row | {"group": _GROUPS[row["group"]]} for row in rows], "hidden_layers", "log10_first_layer", by="group",
        panel="setting", title="Gradients at the first layer by depth, class by class",
        y_title="log10 of mean square, first layer", dodge=False,
    )  # fmt: skip
    return Outcome(
        [
            entry(
                "M5",
                f"at the edges (ReLU, tanh) gradients change by less than 5 % a layer ({depth} layers) and γ is above "
                f"{DEEPLY_BIASED:.2f} (deeply biased; {_DEPTH} layers); ordered they vanish (< 0.95), in neutral "
                "chaos they explode (> 1.05)" + ("" if images else " and γ < 1"),
                said5,
                m5,
            ),
            entry(
                "M6",
                f"chaotic ReLU, first layer, from {depths[0]} to {depths[-1]} layers: the mean square gradient of "
                "the others grows and that of the favoured class falls, each by more than half a decade",
                f"log10, others {high[0]} → {high[1]}, favoured {low[0]} → {low[1]} (networks in which it is exactly 0 "
                f"in float64 left out); for comparison at the edge: others {ends['ReLU, edge']['others'][0]} → "
                f"{ends['ReLU, edge']['others'][1]}, favoured {ends['ReLU, edge']['favoured'][0]} → "
                f"{ends['ReLU, edge']['favoured'][1]}",
                m6,
            ),
        ],
        {"layers": columns(_rows(found)), "depths": columns(rows)},
        {"layers": chart, "depths": growing},
        [
            "Going back, gradients of both groups grow by the same factor a layer: what differs is the loss's own "
            "gradient at the output, which the favoured class has next to none of.",
            f"γ is taken at MF's {_DEPTH} layers (at 40, where we first looked, tanh at its edge is on its way: γ ≈ "
            "8.6), and judged by its logarithm.",
            "The paper's depth for gradients is ours (40 and less): with 100 chaotic layers the favoured class's "
            "gradient is 0 in float64.",
        ],
        holds={
            "layers": Holds(
                "At the edge gradients keep their size; in ReLU's chaos the favoured class gets next to none of them"
            ),
            "depths": Holds(
                "Chaotic ReLU: with depth the others' gradient explodes, the favoured class's vanishes", entries=(1,)
            ),
        },
    )


def _log(ratio: Number) -> Number:
    """ln of a ratio of averages over networks: its errors are even on that scale, γ's own are not."""
    return Number(math.log(ratio.value), ratio.error / ratio.value)


def _rows(found: dict[str, Gradients]) -> list[dict[str, Any]]:
    return [
        {"setting": name, "layer": i + 1, "group": group, "log10": level.value, "error": level.error}
        | {"zeros": level.zeros}
        for name, g in found.items()
        for i, layer in enumerate(g.layers)
        for group, level in ((key, getattr(layer, key)) for key in _GROUPS)
    ]
