"""MF: what skip connections and norms do to the phases."""

from __future__ import annotations

import math

import numpy as np

import firstguess as fg
from firstguess_papers.charts import lines
from firstguess_papers.items import Holds, Outcome, item
from firstguess_papers.judging import Number, Truth, above, below, entry, same
from firstguess_papers.mf_gradients import growth, stored_gradients
from firstguess_papers.mf_simulation import BIAS_VAR
from firstguess_papers.running import Run
from firstguess_papers.tables import columns

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
