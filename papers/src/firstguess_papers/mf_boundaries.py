"""MF §4, limitations: ReLU's variances by phase; how norms and skip connections move the phases' boundaries."""

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
from firstguess_papers.sweeps import failing
from firstguess_papers.tables import columns

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
