"""MF, key findings: "the edge is the state of maximal initial bias". Is it, in any sense?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

import firstguess as fg
from firstguess_papers.charts import lines, predicted
from firstguess_papers.items import Entry, Holds, Outcome, item
from firstguess_papers.judging import Number, Truth, above, entry
from firstguess_papers.mf_simulation import BIAS_VAR, CENTER, SPREAD, Setting, ratio, stored
from firstguess_papers.running import Run
from firstguess_papers.sweeps import failing
from firstguess_papers.tables import columns

MULTIPLES = (0.5, 0.8, 1.0, 1.25, 1.6, 2.5)
PHI = {"tanh": "tanh", "ReLU": "relu"}
Found = Mapping[tuple[str, float, int], Number]  # (activation, multiple of critical, hidden layers) -> log₁₀ γ


def log10(number: Number) -> Number:
    """log₁₀ of a positive number, with its error to first order."""
    if number.value <= 0:
        return Number(math.nan, math.nan)
    return Number(math.log10(number.value), number.error / number.value / math.log(10))


def judge(found: Found, limits: Mapping[tuple[str, float], tuple[float, float]]) -> list[Entry]:
    """M13: γ at the edge against the other phases; `limits` has (γ, χ) of infinitely deep networks."""
    depths = sorted({depth for _, _, depth in found})
    last = depths[-1]

    def larger(phi: str, multiple: float, depth: int) -> Truth:
        return above(found[phi, 1.0, depth], found[phi, multiple, depth])

    every: dict[str, Truth] = {
        f"{phi}, {m:g} × critical, {depth} layers": larger(phi, m, depth)
        for phi in PHI for m in MULTIPLES if m != 1.0 for depth in depths
    }  # fmt: skip
    chaos: dict[str, Truth] = {f"tanh, {m:g} ×, {last} layers": larger("tanh", m, last) for m in MULTIPLES if m > 1.0}
    relu: dict[str, Truth] = {f"ReLU, {m:g} ×, {last} layers": larger("ReLU", m, last)
                              for m in MULTIPLES if m > 1.0}  # fmt: skip
    unlimited = [(phi, m) for (phi, m), (g, _) in limits.items() if math.isinf(g)]
    said = "; ".join(
        f"{phi}, {depth} layers: " + ", ".join(f"{found[phi, m, depth]} at {m:g} ×" for m in MULTIPLES)
        for phi in PHI for depth in (depths[0], last)
    )  # fmt: skip
    return [
        entry(
            "M13",
            f"as it is said: at every depth ({', '.join(map(str, depths))} layers) γ is larger at the edge than at any "
            "other multiple of the critical weight variance, for tanh and ReLU",
            f"log₁₀ γ: {said}",
            every.values(),
            headline=f"tanh, {last} layers, log₁₀ γ: {found['tanh', 1.0, last]} at the edge, "
            f"{found['tanh', 0.5, last]} at half its weight variance",
            otherwise="ordered networks are more biased at every finite depth seen, or chaotic ones: not at "
            f"{failing(every)}",
        ),
        entry(
            "M13",
            "of the networks whose gradients do not vanish (edge and beyond) the edge has the largest γ, behind "
            f"{last} layers, for tanh; without a limit for ReLU, too. Infinitely deep, γ is infinite at the edge and "
            "in the whole ordered phase",
            f"log₁₀ γ behind {last} layers as above; infinite in closed form for "
            + ", ".join(f"{phi} at {m:g} ×" for phi, m in unlimited),
            [*chaos.values(), all(math.isinf(limits["tanh", m][0]) == (m <= 1.0) for m in MULTIPLES)],
            within=relu.values(),
            headline=f"tanh, {last} layers, log₁₀ γ: {found['tanh', 1.0, last]} at the edge, "
            f"{found['tanh', 1.25, last]} at 1.25 ×",
            limit=f"not for ReLU, whose γ is not larger at the edge than in chaos: {failing(relu)}",
            otherwise=f"chaotic networks are as biased: {failing(chaos)}",
        ),
    ]


@item(
    "mf/edge-bias",
    "Is the edge of chaos the state of largest bias?",
    claims=("M13",),
    where="MF, key findings",
    about="tanh and ReLU at 0.5 to 2.5 times the critical weight variance, bias variance 0.1; 40 hidden layers of "
    "{width} (our sizes), {members} networks each; closed form at the same depths.",
    quick=dict(width=200, members=24, chunk=12),
    full=dict(width=600, members=40, chunk=8),
    seconds=(12, 100),
)
def edge_bias(run: Run) -> Outcome:
    """M13: γ over the weight variance at several depths, and in the limit of infinite depth."""
    width, members, chunk = run.take("width members chunk")
    depths = (5, 15, 40)
    found: dict[tuple[str, float, int], Number] = {}
    limits: dict[tuple[str, float], tuple[float, float]] = {}
    panels: dict[str, Any] = {}
    fine = np.geomspace(MULTIPLES[0], MULTIPLES[-1], 41)
    edges: dict[str, float] = {}
    rows: list[dict[str, Any]] = []
    for label, phi in PHI.items():
        edge = edges[label] = fg.edge_of_chaos(phi, bias_var=BIAS_VAR)
        settings = [Setting(f"{label}, {m:g}", phi, round(m * edge, 6), BIAS_VAR) for m in MULTIPLES]
        stats = stored(run, settings, width=width, depth=depths[-1], members=members, chunk=chunk, points=32, pairs=1)
        for i, m in enumerate(MULTIPLES):
            p = fg.fixed_point(phi, weight_var=m * edge, bias_var=BIAS_VAR)
            limits[label, m] = p.gamma, p.chi
            for depth in depths:
                found[label, m, depth] = log10(ratio(stats[:, i, depth, CENTER], stats[:, i, depth, SPREAD]))
        curves = np.array(
            [fg.predict(Setting("", phi, float(m * edge), BIAS_VAR).text(depths[-1])).gamma for m in fine]
        )
        panels[label] = [
            predicted(f"{depth} hidden layers", fine.tolist(), np.log10(curves[:, depth]).tolist()) for depth in depths
        ]
        rows += [
            {"activation": label, "multiple": m, "depth": depth, "log10_gamma": found[label, m, depth].value}
            | {"error": found[label, m, depth].error, "limit": limits[label, m][0], "chi": limits[label, m][1]}
            for m in MULTIPLES for depth in depths
        ]  # fmt: skip
    entries = judge(found, limits)
    chart = lines(
        [row | {"name": f"{row['depth']} hidden layers"} for row in rows], "multiple", "log10_gamma", theory="",
        panel="activation", also=panels, title="Bias by weight variance and depth",
        y_title="log10 of the drift ratio γ", x_scale="log", dodge=False, height=320,
    )  # fmt: skip
    return Outcome(entries, {"edge": columns(rows)}, {"edge": chart}, [
        "Sizes are ours; MF's depth is 100, where ordered networks leave what float32 can tell."
    ], {"edge": Holds("The edge of chaos is where bias is largest", entries=(0,))})  # fmt: skip
