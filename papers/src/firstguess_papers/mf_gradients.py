"""MF: gradients of untrained networks by layer, of all points, of the favoured class's and of the others'."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from firstguess import figures
from firstguess_papers.charts import lines, panels_of, predicted
from firstguess_papers.items import Entry, Holds
from firstguess_papers.judging import Number, check, claimed
from firstguess_papers.measured import Found, measured
from firstguess_papers.mf_simulation import Setting, mf_settings
from firstguess_papers.running import Run
from firstguess_papers.tables import gamma

if TYPE_CHECKING:
    from firstguess import Gradients
    from firstguess.data import Data
    from firstguess_papers.library import GradientLayer, Level

_DEPTH = 100  # MF's
_EDGES, _NEUTRAL = ("ReLU, edge", "tanh, edge"), "tanh, neutral chaos"
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


def _gradients(c: Found, x: Data, settings: list[Setting], depths: Sequence[int]) -> dict[str, Any]:
    """Gradients in every phase, γ where it decides, and ReLU's gradients at the first layer by depth."""
    options: dict[str, Any] = {"inits": c.inits, "width": c.width, "points": x.n}
    found = {s.name: stored_gradients(c.run, s.text(40), x, label=s.name, **options) for s in settings}
    drift = {
        s.name: gamma(
            c.run.measure(s.text(_DEPTH), x, inits=c.wide, width=c.width, label=f"γ of {s.name}, {_DEPTH} layers"), -2
        )  # the last hidden layer: the law of the output, with more nodes
        for s in settings if s.name in (*_EDGES, _NEUTRAL)
    }  # fmt: skip
    ends: dict[tuple[str, str], tuple[Number, Number]] = {}
    rows: list[dict[str, Any]] = []
    for s in (s for s in settings if s.name in ("ReLU, edge", "ReLU, chaotic")):
        # The favoured class's level scatters over networks by as much as it is: more of them, where they decide.
        more = options if s.name == "ReLU, edge" else options | {"inits": c.many}
        deep = [stored_gradients(c.run, s.text(d), x, label=f"{s.name}, {d} layers", **more) for d in depths]
        for group in _GROUPS:
            levels = [getattr(g.layers[0], group) for g in deep]
            ends[s.name, group] = level(levels[0]), level(levels[-1])
            rows += [
                {"setting": s.name, "hidden_layers": d, "group": group, "log10_first_layer": v.value, "error": v.error}
                | {"zeros": v.zeros} for d, v in zip(depths, levels, strict=True)
            ]  # fmt: skip
    layers = [
        {"setting": name, "layer": i + 1, "group": group, "log10": v.value, "error": v.error} | {"zeros": v.zeros}
        for name, g in found.items() for i, layer in enumerate(g.layers)
        for group, v in ((key, getattr(layer, key)) for key in _GROUPS)
    ]  # fmt: skip
    return {"speeds": {name: growth(g) for name, g in found.items()}, "drift": drift, "ends": ends, "rows": rows,
            "by_layer": layers, "depths": depths, "images": x.classes is not None}  # fmt: skip


def _judge(c: Found) -> list[Entry]:
    from firstguess_papers.library import DEEPLY_BIASED

    drift = {name: check(f"{name}, ln γ", _log(g), above=math.log(DEEPLY_BIASED), than="deeply biased")
             for name, g in c.drift.items()}  # fmt: skip
    low, high = (c.ends["ReLU, chaotic", group] for group in ("favoured", "others"))
    return [
        claimed(
            "M5", f"factors on gradients a layer (40 layers), and ln γ after {_DEPTH}",
            [*(check(name, c.speeds[name], near=1.0, room=0.05) for name in _EDGES), *(drift[name] for name in _EDGES),
             check(_NEUTRAL, c.speeds[_NEUTRAL], above=1.05),
             *([] if c.images else [check(f"{_NEUTRAL}, ln γ", _log(c.drift[_NEUTRAL]), below=0.0)]),
             *(check(name, c.speeds[name], below=0.95) for name in ("ReLU, ordered", "tanh, ordered"))],
            also="γ: " + ", ".join(f"{name} {g}" for name, g in c.drift.items()) + "; gradients elsewhere × "
            + ", ".join(f"{g} ({name})" for name, g in c.speeds.items() if name.endswith(("chaotic", "biased chaos"))),
        ),
        claimed(
            "M6", f"chaotic ReLU, log10 of the mean square gradient at the first layer with {c.depths[-1]} layers",
            [check("other classes", high[1], above=high[0], by=0.5, than=f"with {c.depths[0]}"),
             check("favoured class", low[1], below=low[0], by=0.5, than=f"with {c.depths[0]}")],
            also="networks in which it is exactly 0 in float64 left out; for comparison at the edge: "
            + ", ".join("{} {} → {}".format(_GROUPS[group], *c.ends["ReLU, edge", group])
                        for group in ("others", "favoured")),
        ),
    ]  # fmt: skip


def _charts(c: Found) -> dict[str, Any]:
    layers, rows = ([row | {"group": _GROUPS[row["group"]]} for row in of] for of in (c.by_layer, c.rows))
    return {
        "layers": figures.lines_chart(
            {name: [predicted(group, [row["layer"] for row in own], [row["log10"] for row in own])
                    for group, own in panels_of(of, "group").items()]
             for name, of in panels_of([row for row in layers if row["layer"] <= 40], "setting").items()},
            title="Gradients by layer in every phase",
            subtitle=["Mean square gradient of a point's loss at pre-activations. Favoured: points whose label is the "
                      "class that the untrained network guesses most; in chaotic ReLU their line lies far below."],
            x_title="Layer", y_title="log10 of mean square", columns=4, width=250, height=210, y_domain=(-12.0, 7.0),
        ),
        "depths": lines(
            rows, "hidden_layers", "log10_first_layer", by="group", panel="setting",
            title="Gradients at the first layer by depth, class by class",
            y_title="log10 of mean square, first layer", dodge=False,
        ),
    }  # fmt: skip


_SAME: dict[str, Any] = {  # what both items have
    "claims": ("M5", "M6"), "judge": _judge, "charts": _charts, "table": "",
    "tables": lambda c: {"layers": c.by_layer, "depths": c.rows},
    "notes": [
        "Going back, gradients of both groups grow by the same factor a layer: what differs is the loss's own "
        "gradient at the output, which the favoured class has next to none of.",
        f"γ is taken at MF's {_DEPTH} layers (at 40, where we first looked, tanh at its edge is on its way: γ ≈ 8.6), "
        "and judged by its logarithm.",
        "The paper's depth for gradients is ours (40 and less): with 100 chaotic layers the favoured class's gradient "
        "is 0 in float64.",
    ],
    "holds": {
        "layers": "At the edge gradients keep their size; in ReLU's chaos the favoured class gets next to none of them",
        "depths": Holds("Chaotic ReLU: with depth the others' gradient explodes, the favoured class's vanishes", (1,)),
    },
}  # fmt: skip

gradients = measured(
    "mf/gradients", "Who gets gradients, through the phases", "MF Prop 4.1 and its figures of gradients",
    about="40 hidden layers (our depth: deeper, the favoured class's gradient leaves float64) of {width} (MF: 1000), "
    "MF's seven settings, bias variance 0.1; {points} points of a blob in 300 dimensions with random labels of two "
    "classes; {inits} networks. γ at 100 layers, {wide} networks; chaotic ReLU by depth: 5, 10, 20, 40 layers, {many} "
    "networks.",
    quick=dict(width=200, points=50, inits=12, many=48, wide=24),
    full=dict(width=500, points=100, inits=12, many=48, wide=20),
    seconds=(12, 110),
    quantities=lambda c: _gradients(c, c.blob(c.points, 300), mf_settings(), (5, 10, 20, 40)), **_SAME,
)  # fmt: skip

gradients_cifar10 = measured(
    "mf/gradients-cifar10", "Who gets gradients, on CIFAR-10", "MF, figures of gradients on CIFAR-10",
    needs=("cifar10",),
    about="40 hidden layers of {width} (MF: 1000), ReLU at 0.75, 1, 1.5 and tanh at 0.8, 1, 1.25, 2.5 times the "
    "critical weight variance, bias variance 0.1; {points} images of CIFAR-10, ten classes; {inits} networks. γ at "
    "100 layers, {wide} networks; chaotic ReLU by depth: 5, 10, 20 layers, {many} networks.",
    quick=dict(width=200, points=60, inits=12, many=100, wide=24),
    full=dict(width=500, points=100, inits=12, many=96, wide=20),
    seconds=(12, 120),
    quantities=lambda c: _gradients(
        c, c.run.data("cifar10", points=c.points),
        [replace(s, weight_var=3.0) if s.name == "ReLU, chaotic" else s for s in mf_settings()], (5, 10, 20),
    ), **_SAME,
)  # fmt: skip


def _log(ratio: Number) -> Number:
    """ln of a ratio of averages over networks: its errors are even on that scale, γ's own are not."""
    return Number(math.log(ratio.value), ratio.error / ratio.value)
