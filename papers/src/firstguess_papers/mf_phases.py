"""MF: the phases. Table 1 computed, phase diagrams, ReLU's approach to 1; the edge as the state of largest bias."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

import firstguess as fg
from firstguess_papers.charts import lines, predicted
from firstguess_papers.items import Entry, Holds, Item
from firstguess_papers.judging import Check, Number, average, check, claimed
from firstguess_papers.measured import Found
from firstguess_papers.mf import BIAS_VAR, CENTER, SPREAD, Setting, mf_settings, ratio, sampled
from firstguess_papers.mf_gradients import growth, stored_gradients

FINE = np.linspace(0.55, 3.05, 126).tolist()
SWEPT = (0.6, 0.8, 0.9, 1.0, 1.1, 1.25, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0)


def _table1(c: Found) -> dict[str, Any]:
    points = {s.name: fg.fixed_point(s.activation, weight_var=s.weight_var, bias_var=BIAS_VAR) for s in mf_settings()}
    edge, neutral = fg.edge_of_chaos("tanh", bias_var=BIAS_VAR), fg.neutrality_line("tanh", bias_var=BIAS_VAR)
    settings = [Setting(f"{m:g}", "tanh", round(m * edge, 6), BIAS_VAR) for m in SWEPT]
    at_end = sampled(c, settings, c.depth)[:, :, c.depth]
    found = [ratio(at_end[:, i, CENTER], at_end[:, i, CENTER] + at_end[:, i, SPREAD]) for i in range(len(SWEPT))]
    limits = [fg.fixed_point("tanh", weight_var=s.weight_var, bias_var=BIAS_VAR) for s in settings]
    return {
        "points": points, "neutral": neutral / edge, "by": dict(zip(SWEPT, found, strict=True)),
        "curve": [fg.fixed_point("tanh", weight_var=m * edge, bias_var=BIAS_VAR) for m in FINE],
        "limits": {m: p.c for m, p in zip(SWEPT, limits, strict=True)},
        "rows": [
            {"multiple": m, "weight_var": s.weight_var, "c": x, "c_limit": p.c}
            | {"chi": p.chi, "hidden_layers": c.depth, "width": c.width, "name": p.name}
            for m, s, x, p in zip(SWEPT, settings, found, limits, strict=True)
        ],
    }  # fmt: skip


table1 = Item(
    "mf/table1", "The five states of a deep network, computed and simulated", "MF Table 1, Fig 3", claims=("M3", "M5"),
    about="Fixed points of MF's seven settings (bias variance 0.1); tanh at 12 multiples of its critical weight "
    "variance, simulated with {depth} hidden layers of {width}, {members} networks each.",
    quick=dict(width=300, depth=60, members=12, chunk=6),
    full=dict(width=1000, depth=100, members=6, chunk=2),
    seconds=(5, 60), quantities=_table1,
    judge=lambda c: [
        claimed(
            "M3", "tanh after many layers, c",
            # Ordered: what is left of 1 − c falls with depth at the rate of the fixed point; 0.8 is well inside.
            [check("0.8 × critical", c.by[0.8], above=0.99),
             *(check(f"{m:g} × critical", c.by[m], near=c.limits[m], room=0.05, than="the fixed point")
               for m in (1.25, 1.6, 2.5)),
             check("1.25 × critical", c.by[1.25], below=0.99), check("1.25 × critical", c.by[1.25], above=0.5),
             check("2.5 × critical", c.by[2.5], below=0.5),
             check("c* = ½ in units of the critical weight variance", c.neutral, above=1.2)],
        ),
        claimed(
            "M5", "fixed points (theory; mf/gradients measures it)",
            [*(Check(f"{name} at χ = 1", "with γ = ∞", math.isinf(p.gamma) and abs(p.chi - 1) < 1e-6,
                     f"γ = {p.gamma:g}, χ = {p.chi:.6f}")
               for name in ("tanh", "ReLU") for p in [c.points[f"{name}, edge"]]),
             check("γ where tanh is neutral", c.points["tanh, neutral chaos"].gamma, below=1.0),
             check("χ where tanh is neutral", c.points["tanh, neutral chaos"].chi, above=1.0)],
        ),
    ],
    tables=lambda c: {"table1": [
        {"setting": name, "weight_var": p.weight_var, "bias_var": p.bias_var, "gamma": p.gamma, "c": p.c}
        | {"chi": p.chi, "depth_scale": p.depth_scale, "phase": p.phase, "regime": p.regime, "name": p.name}
        for name, p in c.points.items()
    ], "sweep": c.rows},
    charts=lambda c: {"tanh": lines(
        [row | {"name": "correlation c"} for row in c.rows], "multiple", "c", theory="",
        also={"": [predicted(name, FINE, [getattr(p, what) for p in c.curve])
                   for name, what in (("correlation c", "c"), ("gradient factor χ per layer", "chi"))]},
        title=f"tanh: c = ½ at {c.neutral:.2f} × the critical weight variance", y_title="c, and χ",
        y_domain=(0.0, 1.6), rules={"χ = 1, c = 1: edge of chaos": 1.0, "c = ½: neutral below": 0.5}, height=380,
    )},
    holds={"tanh": "tanh: gradients survive where bias is deep; it is neutral in chaos only"},
    notes=["tanh: 1 − c settles where the closed form says; the simulation has finite depth, so that near 1 × critical "
           "(where approach is a power law) it is still on its way."],
)  # fmt: skip


_FLOOR = 1e-10  # of 1 − c in the figure: float32 signals know no smaller differences
_BLOCKS = {
    "relu": "ReLU", "tanh": "tanh", "relu > maxpool(2)": "ReLU + max-pool", "tanh > maxpool(2)": "tanh + max-pool",
    "relu > avgpool(2)": "ReLU + average-pool", "tanh > avgpool(2)": "tanh + average-pool",
}  # fmt: skip
# Weight variances at which the variance, and at which the gradients keep their size: theory.md §5.
_LINES = {
    "relu > maxpool(2)": (4 * math.pi / (3 * math.pi + 2), 4 / 3),
    "relu > avgpool(2)": (4 * math.pi / (math.pi + 1), 4.0),
}


def _diagram(c: Found, block: str) -> fg.PhaseDiagram:
    top = 6.0 if block.endswith("avgpool(2)") else 5.0 if block == "tanh" else 4.0
    label = f"diagram of {_BLOCKS[block]}"
    return fg.PhaseDiagram.from_dict(
        json.loads(c.run.keep(_computed, label=label, block=block, top=top, across=c.across, up=c.up)["diagram"])
    )


def _computed(block: str, top: float, across: int, up: int) -> dict[str, str]:
    weights, biases = np.linspace(top / across, top, across), np.linspace(0.0, 0.5, up)
    return {
        "diagram": json.dumps(fg.phase_diagram(block, weight_vars=weights, bias_vars=biases, tolerance=1e-4).to_dict())
    }


def _phases(c: Found) -> dict[str, Any]:
    """Factors on variance and gradients a layer, on either line of each pool, and theory's."""
    x, rows = c.blob(64, 500), list[dict[str, Any]]()
    diagrams = {block: _diagram(c, block) for block in _BLOCKS}
    for block, edges in _LINES.items():
        for line, weight_var in zip(("variance", "gradients"), edges, strict=True):
            dense, name = f"dense(weight_var={weight_var!r})", f"{_BLOCKS[block]} at {weight_var:.4f}"
            text, sizes = f"14 x [{dense} > {block}] > {dense}", {"inits": c.inits, "width": c.nodes}
            back = growth(stored_gradients(c.run, text, x, label=name, **sizes))
            forward = _forward(c.run.measure(text, x, label=name.replace(" at", ", size at"), **sizes))
            rows.append(
                {"block": block, "line": line, "weight_var": weight_var, "variance_factor": forward.value}
                | {"variance_error": forward.error, "gradient_factor": back.value, "gradient_error": back.error}
                | {"variance_theory": weight_var / edges[0], "gradient_theory": weight_var / edges[1]}
            )
    return {"diagrams": diagrams, "rows": rows}


def _factor(row: dict[str, Any], of: str, room: float) -> Check:
    name = f"{of}, {_BLOCKS[row['block']]} at {row['weight_var']:.4f}"
    return check(name, Number(row[f"{of}_factor"], row[f"{of}_error"]), near=1.0, room=room)


def _forward(m: fg.Measurement) -> Number:
    """Factor on the mean square a layer, from the second pre-activation to the last but one."""
    layers = m.weights_layers[1:-1]
    logs = [math.log(layer.center + layer.spread) for layer in layers]
    steps = len(layers) - 1
    errors = [math.hypot(x.center_se, x.spread_se) / (x.center + x.spread) for x in (layers[0], layers[-1])]
    value = math.exp((logs[-1] - logs[0]) / steps)
    return Number(value, value * math.hypot(*errors) / steps)


phases = Item(
    "mf/phases", "Phase diagrams, with and without pooling", "MF phase diagrams; theory.md §5", claims=("M4",),
    about="Six diagrams of {across} × {up} points; gradients of ReLU with pools of 2 measured in 14 hidden layers of "
    "{nodes} nodes before pooling, {inits} networks, on 64 points of a blob.",
    quick=dict(across=60, up=40, nodes=512, inits=16),
    full=dict(across=120, up=80, nodes=1024, inits=24),
    seconds=(24, 60), quantities=_phases,
    judge=lambda c: [claimed(
        "M4", "ReLU with pools of 2, factors a layer in 14 of them, and the lines computed",
        [*(check(f"{_BLOCKS[block]}, lines of variance and of gradients",
                 [fg.edge_of_chaos(block, kind=kind) for kind in ("variance", "gradients")], near=edges, room=1e-9,
                 than="theory.md §5's") for block, edges in _LINES.items()),
         *(_factor(row, "variance", 0.03) for row in c.rows[::2]),
         *(_factor(row, "gradient", 0.03) for row in c.rows[1::2])],
        within=[_factor(row, "gradient", 0.05) for row in c.rows[::2]],
        limit="4π/(3π+2) and 4π/(π+1) keep the forward variance; gradients keep their size elsewhere, at 4/3 and 4: "
        "with pooling the usual lines are not the edge of chaos",
    )],
    tables=lambda c: {"lines": c.rows, "diagrams": [
        {"block": block, "weight_var": float(w), "bias_var": float(b)}
        | {"c": float(d.c[i, k]), "chi": float(d.chi[i, k]), "name": str(d.names[i, k])}
        for block, d in c.diagrams.items() for i, b in enumerate(d.bias_vars) for k, w in enumerate(d.weight_vars)
    ]},
    charts=lambda c: {block.replace(" > ", "-").replace("(2)", ""): fg.figures.phase_diagram_chart(c.diagrams[block])
                      for block in dict.fromkeys([*_LINES, "tanh", *_BLOCKS])},
)  # fmt: skip


APPROACH = [Setting(name, "relu", weight_var, bias_var) for name, weight_var, bias_var in (
    ("ordered", 1.5, BIAS_VAR), ("edge of chaos", 2.0, BIAS_VAR), ("chaotic", 2.5, BIAS_VAR),
    ("ordered, no biases", 1.5, 0.0),
)]  # fmt: skip


def _approach(c: Found) -> dict[str, Any]:
    """1 − c by depth, with its local exponent at 4000 layers and at 2000, and its rate a layer at 100."""
    far, depth = 4000, 100
    stats = sampled(c, APPROACH, depth)
    found: dict[str, dict[str, Any]] = {"exponents": {}, "before": {}, "rates": {}, "fitted": {}}
    rows: list[dict[str, Any]] = []
    for i, s in enumerate(APPROACH):
        theory = fg.predict(s.text(far)).one_minus_c
        found["rates"][s.name] = float((theory[120] / theory[100]) ** (1 / 20))  # a layer
        with np.errstate(divide="ignore"):
            found["exponents"][s.name] = float(np.log2(theory[far] / theory[far // 2]))
            found["before"][s.name] = float(np.log2(theory[far // 2] / theory[far // 4]))
        total = stats[:, i, :, CENTER] + stats[:, i, :, SPREAD]
        left = [ratio(stats[:, i, k, SPREAD], total[:, k]) for k in range(depth + 1)]
        logs = np.log(stats[:, i, :, SPREAD] / total)
        found["fitted"][s.name] = average(logs[:, 20] - logs[:, 40])  # network by network
        rows += [
            {"setting": s.name, "weight_var": s.weight_var, "bias_var": s.bias_var, "layer": k + 1}
            | {"one_minus_c": left[k].value, "error": left[k].error, "theory": float(theory[k])}
            for k in range(depth + 1)
        ]
    return found | {"rows": rows}


SLOW, BARE = ("edge of chaos", "chaotic"), "ordered, no biases"
_EXPONENT, _FALL = "local exponent at 4000 layers", "fall of ln(1 − c) from 20 to 40 simulated layers"


def _lasting(c: Found, name: str, **asked: Any) -> Check:
    return check(f"{name}, {_EXPONENT} over that at 2000", c.exponents[name] / c.before[name], **asked)


_SHOWN = (1, 2, 3, 4, 6, 8, 11, 15, 20, 28, 40, 56, 80, 101)
approach = Item(
    "mf/approach", "How fast a ReLU network forgets what its inputs are", "MF §4", claims=("M2",),
    about="Closed form to 4000 layers; 100 hidden layers of {width} simulated, {members} networks: ReLU at 0.75, 1, "
    "1.25 times the critical weight variance with bias variance 0.1, and at 0.75 without biases.",
    quick=dict(width=300, members=16, chunk=8),
    full=dict(width=1000, members=10, chunk=5),
    seconds=(5, 60), quantities=_approach,
    # An exponential of factor 0.75 leaves e^−5.75 of 1 − c from 20 to 40 layers; l^−2 leaves 2^−2 = e^−1.39.
    judge=lambda c: [claimed(
        "M2", "1 − c of ReLU by depth (an exponential's local exponent doubles, a power's stays)",
        [check("ordered, factor a layer over σw²/2", c.rates["ordered"] / 0.75, near=1.0, room=0.01),
         *(_lasting(c, name, near=1.0, room=0.05) for name in SLOW),
         *(check(f"{name}, {_EXPONENT}", c.exponents[name], near=-2.0, room=0.1) for name in SLOW),
         check(f"ordered, {_FALL}", c.fitted["ordered"], above=4.0),
         *(check(f"{name}, {_FALL}", c.fitted[name], below=2.5) for name in SLOW),
         *(check(f"{name}, {_FALL}", c.fitted[name], above=0.0) for name in SLOW)],
        within=[_lasting(c, BARE, above=1.5)],
        limit="exponential only with biases: without them the correlation of ReLU networks does not depend on the "
        "weight variance, and approaches 1 as 9π²/(2 layers²) in the ordered phase, too",
        also=f"without biases the exponent is {c.exponents[BARE]:.3f}, the fall {c.fitted[BARE]}",
    )],
    tables=lambda c: {"approach": c.rows},
    charts=lambda c: {"approach": lines(
        [row for row in c.rows if row["layer"] in _SHOWN and row["one_minus_c"] > _FLOOR], "layer", "one_minus_c",
        by="setting", title="How fast ReLU networks forget their inputs", x_scale="log", y_scale="log",
        y_domain=(_FLOOR, 1.5), y_title="1 − c", dodge=False, height=400,
    )},
    holds={"approach": Holds("ReLU forgets its inputs: exponentially if ordered with biases, else slowly",
                             verdicts=("holds with a limit",))},
    notes=[
        "Weight variances 1.5, 2, 2.5. Exponents are taken between 2000 and 4000 layers, the rate at 100.",
        "Our first criterion wanted exponents within 0.05 of −2 and failed at the edge (−2.053: there −2 is approached "
        "as slowly as layers^−½). The claim says power law, not −2: the criterion was widened to 0.1, and a check that "
        "the exponent no longer changes was added.",
    ],
)  # fmt: skip


MULTIPLES = (0.5, 0.8, 1.0, 1.25, 1.6, 2.5)
PHI = {"tanh": "tanh", "ReLU": "relu"}
Logs = Mapping[tuple[str, float, int], Number]  # (activation, multiple of critical, hidden layers) -> log₁₀ γ


def log10(number: Number) -> Number:
    """log₁₀ of a positive number, with its error to first order."""
    if number.value <= 0:
        return Number(math.nan, math.nan)
    return Number(math.log10(number.value), number.error / number.value / math.log(10))


def judge(found: Logs, limits: Mapping[tuple[str, float], tuple[float, float]]) -> list[Entry]:
    """M13: γ at the edge against the other phases; `limits` has (γ, χ) of infinitely deep networks."""
    depths = sorted({depth for _, _, depth in found})
    last = depths[-1]

    def smaller(phi: str, depth: int, *, chaos: bool) -> Check:
        others = [m for m in MULTIPLES if m != 1.0 and (m > 1.0 or not chaos)]
        return check(f"{phi}, {depth} layers", [found[phi, m, depth] for m in others], below=found[phi, 1.0, depth],
                     than="the edge's", at=[f"{m:g} × critical" for m in others])  # fmt: skip

    unlimited = [f"{phi} at {m:g} ×" for (phi, m), (g, _) in limits.items() if math.isinf(g)]
    edge = f"tanh, {last} layers, log₁₀ γ: {found['tanh', 1.0, last]} at the edge"
    return [
        claimed(
            "M13", "as it is said, log₁₀ γ at other multiples of the critical weight variance",
            [smaller(phi, depth, chaos=False) for phi in PHI for depth in depths],
            headline=f"{edge}, {found['tanh', 0.5, last]} at half its weight variance",
            otherwise="ordered networks are more biased at every finite depth seen, or chaotic ones",
        ),
        claimed(
            "M13", "among networks whose gradients do not vanish, log₁₀ γ beyond the edge",
            [smaller("tanh", last, chaos=True),
             Check("tanh, infinitely deep", "with γ = ∞ at the edge and in the whole ordered phase",
                   all(math.isinf(limits["tanh", m][0]) == (m <= 1.0) for m in MULTIPLES),
                   f"infinite in closed form for {', '.join(unlimited)}")],
            within=[smaller("ReLU", last, chaos=True)],
            headline=f"{edge}, {found['tanh', 1.25, last]} at 1.25 ×",
            limit="not for ReLU, whose γ is not larger at the edge than in chaos",
            otherwise="chaotic networks are as biased",
        ),
    ]  # fmt: skip


def _edge_bias(c: Found) -> dict[str, Any]:
    depths = (5, 15, 40)
    found: dict[tuple[str, float, int], Number] = {}
    limits: dict[tuple[str, float], tuple[float, float]] = {}
    for label, phi in PHI.items():
        edge = fg.edge_of_chaos(phi, bias_var=BIAS_VAR)
        settings = [Setting(f"{label}, {m:g}", phi, round(m * edge, 6), BIAS_VAR) for m in MULTIPLES]
        stats = sampled(c, settings, depths[-1])
        for i, m in enumerate(MULTIPLES):
            p = fg.fixed_point(phi, weight_var=m * edge, bias_var=BIAS_VAR)
            limits[label, m] = p.gamma, p.chi
            for depth in depths:
                found[label, m, depth] = log10(ratio(stats[:, i, depth, CENTER], stats[:, i, depth, SPREAD]))
    return {"found": found, "limits": limits, "rows": [
        {"activation": label, "multiple": m, "depth": depth, "log10_gamma": g.value}
        | {"error": g.error, "limit": limits[label, m][0], "chi": limits[label, m][1]}
        for (label, m, depth), g in found.items()
    ]}  # fmt: skip


def _known(phi: str) -> list[Any]:
    """log₁₀ γ in closed form, a line a depth."""
    fine, edge = np.geomspace(MULTIPLES[0], MULTIPLES[-1], 41), fg.edge_of_chaos(phi, bias_var=BIAS_VAR)
    curves = np.array([fg.predict(Setting("", phi, float(m * edge), BIAS_VAR).text(40)).gamma for m in fine])
    return [predicted(f"{k} hidden layers", fine.tolist(), np.log10(curves[:, k]).tolist()) for k in (5, 15, 40)]


edge_bias = Item(
    "mf/edge-bias", "Is the edge of chaos the state of largest bias?", "MF, key findings", claims=("M13",),
    about="tanh and ReLU at 0.5 to 2.5 times the critical weight variance, bias variance 0.1; 40 hidden layers of "
    "{width} (our sizes), {members} networks each; closed form at the same depths.",
    quick=dict(width=200, members=24, chunk=12),
    full=dict(width=600, members=40, chunk=8),
    seconds=(12, 100), quantities=_edge_bias, judge=lambda c: judge(c.found, c.limits),
    tables=lambda c: {"edge": c.rows},
    charts=lambda c: {"edge": lines(
        [row | {"name": f"{row['depth']} hidden layers"} for row in c.rows], "multiple", "log10_gamma", theory="",
        panel="activation", also={label: _known(phi) for label, phi in PHI.items()},
        title="Bias by weight variance and depth", y_title="log10 of the drift ratio γ", x_scale="log", dodge=False,
        height=320,
    )},
    holds={"edge": Holds("The edge of chaos is where bias is largest", entries=(0,))},
    notes=["MF's depth is 100, where ordered networks leave what float32 can tell."],
)  # fmt: skip
