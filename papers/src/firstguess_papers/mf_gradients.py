"""MF: gradients by layer and class; ReLU's variances by phase; norms and skips at the phases' boundaries."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import firstguess as fg
from firstguess import figures
from firstguess.data import Data
from firstguess_papers.charts import MARKS, deep, gamma, lines, panels_of, points, predicted
from firstguess_papers.items import Entry, Holds, Item
from firstguess_papers.judging import Check, Number, average, check, claimed
from firstguess_papers.measured import Found
from firstguess_papers.mf import BIAS_VAR, CENTER, SPREAD, Setting, mf_settings, ratio, sampled
from firstguess_papers.running import Run

_DEPTH = 100  # MF's
_EDGES, _NEUTRAL = ("ReLU, edge", "tanh, edge"), "tanh, neutral chaos"
_GROUPS = {"all": "all points", "favoured": "favoured class", "others": "other classes"}


def stored_gradients(run: Run, text: str, data: Data, *, label: str, **options: Any) -> fg.Gradients:
    """`measure_gradients` of a description, kept as a piece; in float64, which reaches the smallest gradients.

    Levels are the paper's: means over a dense layer's nodes, where ours are sums.
    """
    given: dict[str, Any] = {"text": text, "data": data, "seed": run.seed, **options}
    piece = run.keep(_gradients_of, label=f"gradients of {label}", **given)
    return run.later(fg.Gradients, lambda: fg.Gradients.from_dict(json.loads(piece["gradients"])))


def _gradients_of(text: str, data: Data, *, progress: Any = None, **options: Any) -> dict[str, str]:
    import torch

    g = fg.measure_gradients(text, data, dtype=torch.float64, progress=progress, **options)
    layers = tuple(_over_nodes(layer) for layer in g.layers)
    return {"gradients": json.dumps(replace(g, layers=layers, seconds=0.0).to_dict())}


def _over_nodes(layer: Any) -> Any:
    shift = math.log10(layer.nodes)
    levels = {group: getattr(layer, group) for group in _GROUPS}
    return replace(layer, **{group: replace(level, value=level.value - shift) for group, level in levels.items()})


def growth(g: fg.Gradients) -> Number:
    """The factor on the mean square a layer, going back; the error from the 95 % interval."""
    from scipy import special

    half = math.log(g.growth.high / g.growth.low) / 2
    return Number(g.growth.value, g.growth.value * half / float(special.stdtrit(g.growth.inits - 1, 0.975)))


def _factors(
    c: Found, texts: Mapping[str, Sequence[str]], at: Sequence[float], x: Data, **sizes: Any
) -> dict[str, list[Number]]:
    """`growth` of networks at multiples of the critical weight variance, by name."""
    return {
        name: [
            growth(stored_gradients(c.run, text, x, label=f"{name}, {times:g} × critical", **sizes))
            for text, times in zip(own, at, strict=True)
        ]
        for name, own in texts.items()
    }


def level(found: Any) -> Number:
    """log10 of a mean square."""
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
            subtitle=["Lines: a point's loss at pre-activations. Favoured: points of the class that is guessed most."],
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

gradients = Item(
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

gradients_cifar10 = Item(
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


PLAIN = "plain tanh"
BLOCKS = {
    PLAIN: "tanh", "LayerNorm before": "layernorm > tanh", "LayerNorm after": "tanh > layernorm",
    "BatchNorm before": "batchnorm > tanh", "BatchNorm after": "tanh > batchnorm",
    "skip connection": "residual[tanh > dense]",
}  # fmt: skip
MULTIPLES = (0.5, 0.75, 1.0, 1.5, 2.0)
MOVED = 0.05  # relative: a boundary that is moved by less is called the same
AGREE = 0.08  # of a factor on gradients a layer
ORDERED, EDGE, CHAOTIC = "ReLU, ordered", "ReLU, edge", "ReLU, chaotic"
PHASES = (ORDERED, EDGE, CHAOTIC)


def judge_variances(late: Mapping[str, tuple[Number, Number]], whole: Mapping[str, Number]) -> Entry:
    """M14, first half.

    `late`: centers and spreads at the last layer over those at half the depth (centers at the edge: a quarter);
    `whole`: the spread at the last layer over that at the first.
    """
    (center, _), (at_edge, _), (blown, spread) = (late[phase] for phase in PHASES)
    half, first = "last layer over half the depth", "spread over data, last layer over the first"
    return claimed(
        "M14", "ReLU with biases",
        [check(f"ordered, variance of centers, {half}", center, near=1.0, room=0.15),
         check(f"ordered, {first}", whole[ORDERED], below=0.1),
         check("edge, variance of centers, last layer over a quarter of the depth", at_edge, above=1.0),
         check(f"edge, {first}", whole[EDGE], below=1.0),
         check(f"chaotic, variance of centers, {half}", blown, above=1.0),
         check(f"chaotic, spread over data, {half}", spread, above=1.0)],
        headline=f"spread over data, last over first layer: ordered {whole[ORDERED]}, edge {whole[EDGE]}",
    )  # fmt: skip


def judge_boundaries(
    edges: Mapping[str, float | None], found: Mapping[str, list[Number]], theory: Mapping[str, list[float]]
) -> Entry:
    """M14, second half: the weight variance of the edge by block (None: there is none), and gradients beside theory."""
    plain = edges[PLAIN]
    assert plain is not None
    return claimed(
        "M14", "tanh with norms or a skip connection, and its factors on gradients a layer",
        [*(Check(f"{name}, edge", f"moved by over {100 * MOVED:.0f} % of the weight variance, or gone (closed form)",
                 edge is None or abs(edge / plain - 1) > MOVED, "none" if edge is None else f"{edge:.4g}")
           for name, edge in edges.items() if name != PLAIN),
         check(f"{PLAIN}, factor at {MULTIPLES[0]:g} ×", found[PLAIN][0], below=1.0),
         check(f"{PLAIN}, factor at {MULTIPLES[-1]:g} ×", found[PLAIN][-1], above=1.0),
         *(check(name, found[name], near=theory[name], room=AGREE, than="the closed form's",
                 at=[f"{m:g} ×" for m in MULTIPLES]) for name in found)],
        headline="edge at " + ", ".join(f"{name} {edge:.3g}" for name, edge in edges.items() if edge is not None),
        also=f"edge of {PLAIN}: {plain:.4g}",
    )  # fmt: skip


def network(block: str, weight_var: float, depth: int) -> str:
    """`depth` layers of a block with these variances everywhere."""
    dense = f"dense(weight_var={weight_var:g}, bias_var={BIAS_VAR})"
    if block.startswith("residual"):
        return f"{dense} > {depth} x [{block.replace('dense', dense)}] > {dense}"
    return deep(block, depth, dense)


def edge_of(block: str) -> float | None:
    """The weight variance of the edge of chaos, None where there is none."""
    try:
        return fg.edge_of_chaos(block, bias_var=BIAS_VAR)
    except fg.NotCovered:
        return None


def mean_growth(text: str, depth: int) -> float:
    """The factor on gradients a layer, averaged (geometrically) over the hidden layers, in closed form."""
    factors = np.asarray(fg.predict(text).gradient_growth)
    return float(np.exp(np.log(factors[1:depth]).mean()))


def _boundaries(c: Found) -> dict[str, Any]:
    """Centers and spread by layer; the factor on gradients over the weight variance, by block."""
    settings = [s for s in mf_settings() if s.name in PHASES]
    stats = sampled(c, settings, c.depth)
    late: dict[str, tuple[Number, Number]] = {}
    whole: dict[str, Number] = {}
    half = c.depth // 2
    for i, s in enumerate(settings):
        center, spread = stats[:, i, :, CENTER], stats[:, i, :, SPREAD]
        since = c.depth // 4 if s.name == EDGE else half  # slow growth needs a longer way
        late[s.name] = ratio(center[:, -1], center[:, since]), ratio(spread[:, -1], spread[:, half])
        whole[s.name] = ratio(spread[:, -1], spread[:, 1])
    edges = {name: edge_of(block) for name, block in BLOCKS.items()}
    plain = edges[PLAIN]
    assert plain is not None
    sizes: dict[str, Any] = {"inits": c.inits, "width": c.nodes, "points": c.points}
    texts = {b: [network(block, m * plain, c.layers) for m in MULTIPLES] for b, block in BLOCKS.items()}
    found = _factors(c, texts, MULTIPLES, c.blob(c.points, 300), **sizes)
    theory = {name: [mean_growth(text, c.layers) for text in own] for name, own in texts.items()}
    return {"late": late, "whole": whole, "edges": edges, "found": found, "theory": theory, "rows": [
        {"block": name, "multiple": m, "edge": edges[name], "factor": g.value, "error": g.error, "theory": t}
        for name in BLOCKS for m, g, t in zip(MULTIPLES, found[name], theory[name], strict=True)
    ], "panels": {s.name.removeprefix("ReLU, ").capitalize(): _by_layer(stats[:, i], s.text(c.depth))
                  for i, s in enumerate(settings)}}  # fmt: skip


def _by_layer(stats: Any, text: str) -> list[fg.figures.Series]:
    """Variances of centers and over data, measured at every fourth layer, and in closed form."""
    p, layers = fg.predict(text), stats.shape[1]
    q, at = np.exp(p.log_q), range(0, layers, 4)
    found: list[fg.figures.Series] = []
    for label, k, curve in (("centers", CENTER, q * p.correlation), ("spread over data", SPREAD, q * p.one_minus_c)):
        found += [predicted(label, list(range(layers)), curve.tolist())]
        found += [points(label, {layer: average(stats[:, layer, k]) for layer in at})]
    return found


boundaries = Item(
    "mf/boundaries", "ReLU's variances by phase; norms and skips move the boundaries", "MF §4, limitations",
    claims=("M14",),
    about="ReLU at 0.75, 1, 1.25 × critical, bias variance 0.1, {depth} layers of {width}, {members} networks. tanh, "
    "plain, with LayerNorm, BatchNorm and skips, at 0.5 to 2 × the plain network's critical weight variance: "
    "gradients of {layers} layers of {nodes}, {points} points, {inits} networks each. Sizes are ours.",
    quick=dict(width=300, depth=40, members=24, chunk=12, layers=20, nodes=150, points=100, inits=6),
    full=dict(width=800, depth=60, members=24, chunk=4, layers=20, nodes=400, points=150, inits=10),
    seconds=(14, 110), quantities=_boundaries,
    judge=lambda c: [judge_variances(c.late, c.whole), judge_boundaries(c.edges, c.found, c.theory)],
    tables=lambda c: {"boundaries": c.rows},
    charts=lambda c: {
        "boundaries": lines(
            c.rows, "multiple", "factor", by="block", title="The factor on gradients by block and weight variance",
            y_title="Factor on gradients' mean square per layer", x_domain=(0.4, 2.1),
            rules={"gradients keep their size": 1.0}, width=720, height=380,
        ),
        "variances": fg.figures.lines_chart(
            c.panels, title="ReLU: variance of centers and spread over data, by phase", subtitle=[MARKS],
            x_title="Hidden layers", y_title="Variance of pre-activations", y_scale="log", width=290, height=280,
        ),
    },
    holds={
        "variances": Holds("ReLU: centers settle when ordered, grow slowly at the edge, explode in chaos; the spread "
                           "over data goes, falls, explodes", entries=(0,), verdicts=("holds",)),
        "boundaries": Holds("Norms and skips move the edge of chaos, or take it away", entries=(1,)),
    },
)  # fmt: skip


_RESIDUAL = "residual"
_PLACED = {
    "plain": "relu", "LayerNorm before ReLU": "layernorm > relu", "BatchNorm before ReLU": "batchnorm > relu",
    "LayerNorm after ReLU": "relu > layernorm", "BatchNorm after ReLU": "relu > batchnorm",
    _RESIDUAL: "residual[relu > dense]",
}  # fmt: skip
TIMES = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0)  # weight variances, by the plain network's critical one
_NORMED = [name for name in _PLACED if name not in ("plain", _RESIDUAL)]


def _residual(c: Found) -> dict[str, Any]:
    """The factor on gradients a layer against the weight variance, with skips and norms; how c approaches 1."""
    sizes: dict[str, Any] = {"inits": c.inits, "width": c.width, "points": c.points}
    texts = {name: [network(block, 2 * m, 20) for m in TIMES] for name, block in _PLACED.items()}
    found = _factors(c, texts, TIMES, c.blob(c.points, 300), **sizes)
    # χ of one layer in the middle of the network, in closed form (theory.md (10))
    known = {name: [float(fg.predict(text).gradient_growth[10]) for text in own] for name, own in texts.items()}
    rows = [
        {"network": name, "multiple": m, "weight_var": 2 * m, "factor": v.value, "error": v.error, "theory": t}
        for name in texts for m, v, t in zip(TIMES, found[name], known[name], strict=True)
    ]  # fmt: skip
    return {"found": found, "theory": known, "closed": [_closed(2 * m) for m in TIMES], "rows": rows}


def _judge_residual(c: Found) -> list[Entry]:
    at, own = [f"{m:g} ×" for m in TIMES], c.found[_RESIDUAL]
    spans = {name: values[-1] / values[0] for name, values in c.found.items()}
    flat = {name: max(values) / min(values) for name, values in c.theory.items()}
    return [
        claimed(
            "M8", "residual ReLU, by weight variance, factors a layer",
            [check("gradients", own, above=0.97, at=at),
             check("gradients over the forward variance", near=1.0, room=0.05, at=at,
                   found=[g / Number(forward) for g, (forward, *_) in zip(own, c.closed, strict=True)]),
             check("local exponent of 1 − c at 2000 layers over that at 1000, closed form",
                   [late / early for _, early, late in c.closed], near=1.0, room=0.1, at=at)],
            within=[check("gradients", own, near=1.0, room=0.05, at=at)],
            limit="one phase, without a transition; but gradients and signals both grow, by 1 + σw²/2 a layer in mean "
            "square",
            also="exponents " + ", ".join(f"{late:.2f}" for _, _, late in c.closed),
        ),
        claimed(
            "M8", f"change of the factor on gradients between {TIMES[0]:g} and {TIMES[-1]:g} × critical",
            [check("plain", spans["plain"], above=3.0),
             *(check(name, spans[name], below=1.5) for name in _NORMED)],
            within=[check(f"{name}, closed form, largest over smallest", flat[name], below=1.1) for name in _NORMED],
            limit="with biases, LayerNorm before ReLU leaves a weak dependence on the weight variance; no network with "
            "a norm crosses from vanishing to exploding",
            also="; ".join(f"{name}: × {c.found[name][0]} → {c.found[name][-1]} (closed form {c.theory[name][0]:.3f} → "
                           f"{c.theory[name][-1]:.3f})" for name in _PLACED if name != _RESIDUAL),
        ),
    ]  # fmt: skip


residual = Item(
    "mf/residual", "Skip connections and norms take the phases away", "MF appendix", claims=("M8",),
    about="ReLU, 20 hidden layers (our depth) of {width} at 0.5, 0.75, 1, 1.25, 1.5, 2 times the critical weight "
    "variance of the plain network, bias variance 0.1: plain, residual, LayerNorm and BatchNorm before and after; "
    "{points} points of a blob; {inits} networks. Closed form to 2000 layers.",
    quick=dict(width=200, points=128, inits=6),
    full=dict(width=1000, points=256, inits=8),
    seconds=(11, 110), quantities=_residual, judge=_judge_residual, tables=lambda c: {"growth": c.rows},
    charts=lambda c: {"growth": lines(
        [*c.rows[-len(TIMES) :], *c.rows[: -len(TIMES)]], "multiple", "factor", by="network",
        title="Gradients by weight variance, with skips and norms",
        y_title="Factor on gradients' mean square per layer", y_scale="log", rules={"gradients keep their size": 1.0},
        width=760, height=400,
    )},
    holds={"growth": Holds("Plain networks' gradients pass from vanishing to exploding; with a norm they hardly change",
                           entries=(1,))},
    notes=lambda c: [
        "The closed form of BatchNorm is for large batches; after ReLU it is approached slowly: a batch of 128 adds 3 "
        "to 6 %. Nodes that are rarely active, whose scale is uncertain, may be why; this was not tested.",
        "Residual: x + dense(ReLU(x)). A norm before the next weights makes their size irrelevant, up to the "
        "biases.",
        "Largest over smallest factor: " + ", ".join(f"{name} {max(v).value / min(v).value:.2f}"
                                                      for name, v in c.found.items()) + ".",
    ],
)  # fmt: skip


def _closed(weight_var: float) -> tuple[float, float, float]:
    """Of a residual network: the forward variance's factor a layer, and local exponents of 1 − c at 1000 and 2000."""
    far = 2000
    p = fg.predict(network(_PLACED[_RESIDUAL], weight_var, far))
    left, log_q = p.one_minus_c, p.log_q
    early, late = (float(np.log2(left[k] / left[k // 2])) for k in (far // 2, far))
    return math.exp(float(log_q[20] - log_q[2]) / 18), early, late
