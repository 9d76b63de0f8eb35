"""MF: ReLU's variances by phase; what norms and skip connections do to the phases' boundaries."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

import firstguess as fg
from firstguess import figures
from firstguess_papers import library
from firstguess_papers.charts import MARKS, lines, measured, predicted
from firstguess_papers.items import Entry, Holds, Outcome, item
from firstguess_papers.judging import Number, Truth, above, below, entry, same
from firstguess_papers.mf_gradients import growth, stored_gradients
from firstguess_papers.mf_simulation import BIAS_VAR, CENTER, SPREAD, mf_settings, ratio, stored
from firstguess_papers.running import Run
from firstguess_papers.tables import columns, failing

PLAIN = "plain tanh"
BLOCKS = {
    PLAIN: "tanh",
    "LayerNorm before": "layernorm > tanh",
    "LayerNorm after": "tanh > layernorm",
    "BatchNorm before": "batchnorm > tanh",
    "BatchNorm after": "tanh > batchnorm",
    "skip connection": "residual[tanh > dense]",
}
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
    return entry(
        "M14",
        "ReLU with biases: ordered, centers' variance settles (last layer over half depth: 1 within 0.15) and the "
        "spread over data vanishes (below a tenth of the first layer's); at the edge centers' variance grows (last "
        "layer over a quarter of the depth) while the spread falls; chaotic, both grow",
        f"centers, last over half depth: ordered {center}, chaotic {blown}, over a quarter: edge {at_edge}; spread, "
        f"last over first layer: ordered {whole[ORDERED]}, edge {whole[EDGE]}; chaotic, last over half depth: {spread}",
        [
            same(center, 1.0, room=0.15),
            below(whole[ORDERED], 0.1),
            above(at_edge, 1.0),
            below(whole[EDGE], 1.0),
            above(blown, 1.0),
            above(spread, 1.0),
        ],
        headline=f"spread over data, last over first layer: ordered {whole[ORDERED]}, edge {whole[EDGE]}",
    )


def judge_boundaries(
    edges: Mapping[str, float | None], found: Mapping[str, list[Number]], theory: Mapping[str, list[float]]
) -> Entry:
    """M14, second half: the weight variance of the edge by block (None: there is none), and gradients beside theory."""
    plain = edges[PLAIN]
    assert plain is not None
    moved: dict[str, Truth] = {
        name: edge is None or abs(edge / plain - 1) > MOVED for name, edge in edges.items() if name != PLAIN
    }
    agree: dict[str, Truth] = {
        f"{name} at {m:g} ×": same(g, t, room=AGREE)
        for name in found for m, g, t in zip(MULTIPLES, found[name], theory[name], strict=True)
    }  # fmt: skip
    crossing: list[Truth] = [below(found[PLAIN][0], 1.0), above(found[PLAIN][-1], 1.0)]
    return entry(
        "M14",
        f"tanh with LayerNorm, BatchNorm (before, after) or a skip connection: the edge is moved by over "
        f"{100 * MOVED:.0f} % of the weight variance, or gone (closed form); measured factors on gradients a layer are "
        f"within {AGREE} of the closed form's at every weight variance, and plain networks' pass 1",
        "edge at "
        + ", ".join(f"{name} {'none' if edge is None else f'{edge:.4g}'}" for name, edge in edges.items())
        + "; factors at 0.5 and 2 ×: "
        + "; ".join(
            f"{name} {g[0]}, {g[-1]} ({theory[name][0]:.3f}, {theory[name][-1]:.3f})" for name, g in found.items()
        ),
        [*moved.values(), *crossing, *agree.values()],
        headline="edge at " + ", ".join(f"{name} {edge:.3g}" for name, edge in edges.items() if edge is not None),
        otherwise=f"not moved: {failing(moved)}; not as the closed form says: {failing(agree)}",
    )


def network(name: str, weight_var: float, depth: int) -> str:
    """`depth` layers of a block with these variances everywhere."""
    dense = f"dense(weight_var={weight_var:.6g}, bias_var={BIAS_VAR})"
    block = BLOCKS[name]
    if block.startswith("residual"):
        return f"{dense} > {depth} x [{block.replace('dense', dense)}] > {dense}"
    return f"{depth} x [{dense} > {block}] > {dense}"


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


@item(
    "mf/boundaries",
    "ReLU's variances by phase; norms and skips move the boundaries",
    claims=("M14",),
    where="MF §4, limitations",
    about="ReLU at 0.75, 1, 1.25 × critical, bias variance 0.1, {depth} layers of {width}, {members} networks. tanh, "
    "plain, with LayerNorm, BatchNorm and skips, at 0.5 to 2 × the plain network's critical weight variance: "
    "gradients of {layers} layers of {nodes}, {points} points, {inits} networks each. Sizes are ours.",
    quick=dict(width=300, depth=40, members=24, chunk=12, layers=20, nodes=150, points=100, inits=6),
    full=dict(width=800, depth=60, members=24, chunk=4, layers=20, nodes=400, points=150, inits=10),
    seconds=(14, 110),
)
def boundaries(run: Run) -> Outcome:
    """M14: centers and spread by layer; the factor on gradients over the weight variance, by block."""

    width, depth, members, chunk = run.take("width depth members chunk")
    settings = [s for s in mf_settings() if s.name in PHASES]
    stats = stored(run, settings, width=width, depth=depth, members=members, chunk=chunk, points=32, pairs=1)
    late: dict[str, tuple[Number, Number]] = {}
    whole: dict[str, Number] = {}
    panels: dict[str, list[library.Series]] = {}
    at = [k for k in range(depth + 1) if k % 4 == 0]
    for i, s in enumerate(settings):
        half = depth // 2
        since = depth // 4 if s.name == EDGE else half  # slow growth needs a longer way
        late[s.name] = (ratio(stats[:, i, depth, CENTER], stats[:, i, since, CENTER]),
                        ratio(stats[:, i, depth, SPREAD], stats[:, i, half, SPREAD]))  # fmt: skip
        whole[s.name] = ratio(stats[:, i, depth, SPREAD], stats[:, i, 1, SPREAD])
        p = fg.predict(s.text(depth))
        q, c = np.exp(p.log_q), p.correlation
        heading = s.name.removeprefix("ReLU, ").capitalize()
        panels[heading] = []
        for label, k, curve in (("centers", CENTER, q * c), ("spread over data", SPREAD, q * p.one_minus_c)):
            values = stats[:, i][:, at, k]
            numbers = [Number(float(v), float(e)) for v, e in
                       zip(values.mean(0), values.std(0, ddof=1) / math.sqrt(members), strict=True)]  # fmt: skip
            panels[heading] += [predicted(label, list(range(depth + 1)), curve.tolist()), measured(label, at, numbers)]
    layers, nodes, points, inits = run.take("layers nodes points inits")
    edges = {name: edge_of(block) for name, block in BLOCKS.items()}
    plain = edges[PLAIN]
    assert plain is not None
    x = fg.data.blob(points, 300, seed=run.seed)
    found: dict[str, list[Number]] = {}
    theory: dict[str, list[float]] = {}
    for name in BLOCKS:
        texts = [network(name, m * plain, layers) for m in MULTIPLES]
        found[name] = [
            growth(
                stored_gradients(run, t, x, label=f"{name}, {m:g} × critical", inits=inits, width=nodes, points=points)
            )
            for t, m in zip(texts, MULTIPLES, strict=True)
        ]
        theory[name] = [mean_growth(t, layers) for t in texts]
    entries = [judge_variances(late, whole), judge_boundaries(edges, found, theory)]
    variances = figures.lines_chart(
        panels, title="ReLU: variance of centers and spread over data, by phase", subtitle=[MARKS],
        x_title="Hidden layers", y_title="Variance of pre-activations", y_scale="log", width=290, height=280,
    )  # fmt: skip
    rows = [
        {"block": name, "multiple": m, "edge": edges[name], "factor": g.value, "error": g.error, "theory": t}
        for name in BLOCKS for m, g, t in zip(MULTIPLES, found[name], theory[name], strict=True)
    ]  # fmt: skip
    moved = lines(
        rows, "multiple", "factor", by="block", title="The factor on gradients by block and weight variance",
        y_title="Factor on gradients' mean square per layer", x_domain=(0.4, 2.1),
        rules={"gradients keep their size": 1.0}, width=720, height=380,
    )  # fmt: skip
    return Outcome(entries, {"boundaries": columns(rows)}, {"boundaries": moved, "variances": variances}, holds={
        "variances": Holds("ReLU: centers settle when ordered, grow slowly at the edge, explode in chaos; the spread "
                           "over data goes, falls, explodes", entries=(0,), verdicts=("holds",)),
        "boundaries": Holds("Norms and skips move the edge of chaos, or take it away", entries=(1,)),
    })  # fmt: skip


_PLACED = {
    "plain": "{dense} > relu",
    "LayerNorm before ReLU": "{dense} > layernorm > relu",
    "BatchNorm before ReLU": "{dense} > batchnorm > relu",
    "LayerNorm after ReLU": "{dense} > relu > layernorm",
    "BatchNorm after ReLU": "{dense} > relu > batchnorm",
}
_RESIDUAL = "residual"


@item(
    "mf/residual",
    "Skip connections and norms take the phases away",
    claims=("M8",),
    where="MF appendix",
    about="ReLU, 20 hidden layers (our depth) of {width} at 0.5, 0.75, 1, 1.25, 1.5, 2 times the critical weight "
    "variance of the plain network, bias variance 0.1: plain, residual, LayerNorm and BatchNorm before and after; "
    "{points} points of a blob; {inits} networks. Closed form to 2000 layers.",
    quick=dict(width=200, points=128, inits=6),
    full=dict(width=1000, points=256, inits=8),
    seconds=(12, 110),
)
def residual(run: Run) -> Outcome:
    """M8: the factor on gradients a layer against the weight variance, with skips and norms; how c approaches 1."""
    width, points, inits = run.take("width points inits")
    depth, multiples = 20, (0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
    x = fg.data.blob(points, 300, seed=run.seed)
    found: dict[str, list[Number]] = {}
    for name in (*_PLACED, _RESIDUAL):
        found[name] = []
        for m in multiples:
            g = stored_gradients(
                run,
                _text(name, 2 * m, depth),
                x,
                label=f"{name}, {m:g} × critical",
                inits=inits,
                width=width,
                points=points,
            )
            found[name].append(growth(g))
    closed = [_closed(2 * m) for m in multiples]
    own = [g / Number(forward) for g, (forward, _, _) in zip(found[_RESIDUAL], closed, strict=True)]
    first: list[Truth] = [
        *(above(g, 0.97) for g in found[_RESIDUAL]),
        *(same(g, 1.0, room=0.05) for g in own),
        *(abs(late / early - 1) < 0.1 for _, early, late in closed),
    ]
    alone: list[Truth] = [same(g, 1.0, room=0.05) for g in found[_RESIDUAL]]
    ranges = {name: Number(max(values).value) / Number(min(values).value) for name, values in found.items()}
    spans = {name: values[-1] / values[0] for name, values in found.items()}
    second: list[Truth] = [
        above(spans["plain"], 3.0),
        *(below(spans[name], 1.5) for name in _PLACED if name != "plain"),
    ]
    known = {name: [_known(name, 2 * m) for m in multiples] for name in found}
    flat: list[Truth] = [max(known[name]) / min(known[name]) < 1.1 for name in _PLACED if name != "plain"]
    rows = [
        {"network": name, "multiple": m, "weight_var": 2 * m, "factor": v.value, "error": v.error, "theory": t}
        for name in (_RESIDUAL, *_PLACED)
        for m, v, t in zip(multiples, found[name], known[name], strict=True)
    ]
    chart = lines(
        rows, "multiple", "factor", by="network", title="Gradients by weight variance, with skips and norms",
        y_title="Factor on gradients' mean square per layer", y_scale="log",
        rules={"gradients keep their size": 1.0}, width=760, height=400,
    )  # fmt: skip
    ends = f"{multiples[0]:g} and {multiples[-1]:g} × critical"
    return Outcome(
        [
            entry(
                "M8",
                "residual ReLU, at every weight variance: gradients do not vanish (factor a layer above 0.97); over "
                "the forward variance's own factor they keep their size (within 5 %); in closed form 1 − c falls as "
                "a power of depth (local exponent at 2000 layers that at 1000 within 10 %). For `holds` the factor "
                "itself is 1 within 5 %",
                "factors " + ", ".join(f"{v} at {m:g}" for m, v in zip(multiples, found[_RESIDUAL], strict=True))
                + "; over the forward factor " + ", ".join(str(v) for v in own)
                + "; exponents " + ", ".join(f"{late:.2f}" for _, _, late in closed),
                first,
                within=alone,
                limit="one phase, without a transition; but gradients and signals both grow, by 1 + σw²/2 a layer "
                "in mean square",
            ),
            entry(
                "M8",
                f"between {ends} the factor on gradients changes more than threefold in the plain network, and less "
                "than 1.5-fold with LayerNorm or BatchNorm before or after ReLU; for `holds` less than 1.1-fold with "
                "all of them in closed form",
                "; ".join(
                    f"{name}: × {found[name][0]} → {found[name][-1]} (closed form {known[name][0]:.3f} → "
                    f"{known[name][-1]:.3f})"
                    for name in _PLACED
                ),
                second,
                within=flat,
                limit="with biases, LayerNorm before ReLU leaves a weak dependence on the weight variance; no network "
                "with a norm crosses from vanishing to exploding",
            ),
        ],
        {"growth": columns([*rows[len(multiples) :], *rows[: len(multiples)]])},
        {"growth": chart},
        [
            "The closed form of BatchNorm is for large batches; after ReLU it is approached slowly: a batch of 128 "
            "adds 3 to 6 %. Nodes that are rarely active, whose scale is uncertain, may be why; this was not tested.",
            "Residual: x + dense(ReLU(x)). A norm in front of the next weights makes their size irrelevant, up to "
            "the biases.",
            f"Largest over smallest factor: {', '.join(f'{name} {r.value:.2f}' for name, r in ranges.items())}.",
        ],
        holds={"growth": Holds(
            "Plain networks' gradients pass from vanishing to exploding; with a norm they hardly change", entries=(1,)
        )},
    )  # fmt: skip


def _text(name: str, weight_var: float, depth: int) -> str:
    dense = f"dense(weight_var={weight_var:g}, bias_var={BIAS_VAR})"
    if name == _RESIDUAL:
        return f"{dense} > {depth} x [residual[relu > {dense}]] > {dense}"
    return f"{depth} x [{_PLACED[name].format(dense=dense)}] > {dense}"


def _known(name: str, weight_var: float) -> float:
    """χ of one layer in the middle of the network, in closed form (theory.md (10))."""
    return float(fg.predict(_text(name, weight_var, 20)).gradient_growth[10])


def _closed(weight_var: float) -> tuple[float, float, float]:
    """Of a residual network: the forward variance's factor a layer, and local exponents of 1 − c at 1000 and 2000."""
    far = 2000
    p = fg.predict(_text(_RESIDUAL, weight_var, far))
    left, log_q = p.one_minus_c, p.log_q
    early, late = (float(np.log2(left[k] / left[k // 2])) for k in (far // 2, far))
    return math.exp(float(log_q[20] - log_q[2]) / 18), early, late
