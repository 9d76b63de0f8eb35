"""NORM §4.1.3: whether RMSNorm does what LayerNorm does."""

from __future__ import annotations

from typing import Any

import numpy as np

import firstguess as fg
from firstguess import figures
from firstguess_papers.charts import lines
from firstguess_papers.items import Holds, Outcome, item
from firstguess_papers.judging import Number, above, entry, same
from firstguess_papers.norm import NEUTRAL, ROOM, beyond_even, paired
from firstguess_papers.norm_depth import exponent, layer_differences
from firstguess_papers.running import Run
from firstguess_papers.tables import columns, law_panel, row, std

NORMS = {
    "LayerNorm before": "layernorm > relu",
    "RMSNorm before": "rmsnorm > relu",
    "LayerNorm after": "relu > layernorm",
    "RMSNorm after": "relu > rmsnorm",
}


@item(
    "norm/rmsnorm",
    "RMSNorm is LayerNorm before the activation, and no norm at all after it",
    claims=("N6",),
    where="NORM §4.1.3",
    about="{depths} hidden ReLU layers of {width} (ours), Kaiming; blob of {n} points in {d} dimensions; {inits} "
    "networks each. Values of 3 plain ReLU layers of {widths} nodes, {few} networks.",
    quick=dict(n=400, d=500, depths=(5,), width=200, inits=150, widths=(50, 200, 800), few=40),
    full=dict(n=800, d=1000, depths=(5, 20), width=400, inits=400, widths=(50, 200, 800), few=100),
    seconds=(8, 70),
)
def rmsnorm(run: Run) -> Outcome:
    """N6: values apart as width grows, and laws of the guesses, before and after the activation."""
    n, d, depths, width, inits, widths, few = run.take("n d depths width inits widths few")
    x = fg.data.blob(n, d, seed=run.seed)
    names = {"ln_rms": "before the activation", "ln_rms_after": "after the activation"}
    apart: dict[str, list[Number]] = {key: [] for key in names}
    for w in widths:
        found = layer_differences(run, x, w, 3, few)
        for key in names:
            # Third layer. Squares are averaged: the mean over nodes there has few directions, so networks differ a lot.
            squares = np.square(found[key][:, -1])
            root = float(np.sqrt(squares.mean()))
            apart[key].append(Number(root, float(squares.std(ddof=1) / np.sqrt(few)) / (2 * root)))
    texts = {
        (name, depth): f"{depth} x [dense(weight_var=2) > {norm}] > dense(weight_var=2)"
        for depth in depths
        for name, norm in {"no norm": "relu", **NORMS}.items()
    }
    laws = {
        key: run.measure(text, x, inits=inits, width=width, probe="output", label=f"{key[0]}, {key[1]} layers")
        for key, text in texts.items()
    }
    limits = {
        "ln_rms": 1 / np.sqrt(np.array(widths)),
        "ln_rms_after": np.full(len(widths), np.sqrt(2 - 2 * np.sqrt(1 - 1 / np.pi))),
    }
    first = depths[0]
    laws_chart = figures.panels_chart(
        [law_panel(name, laws[name, first], theory={"theory": fg.predict(texts[name, first])},
                   note=f"std {std(laws[name, first])}") for name in NORMS],
        title="Guesses with RMSNorm and LayerNorm, before and after ReLU",
        subtitle=[f"{first} hidden layers of {width}, random data, {n} points, {inits} networks a panel."],
        columns=4,
    )  # fmt: skip
    before = [paired(laws["RMSNorm before", depth], laws["LayerNorm before", depth]) for depth in depths]
    after = [paired(laws["RMSNorm after", depth], laws["LayerNorm after", depth]) for depth in depths]
    slope = exponent(apart["ln_rms"][0], apart["ln_rms"][-1], widths[-1] / widths[0])
    none = [paired(laws["RMSNorm after", depth], laws["no norm", depth]) for depth in depths]
    rows = [row(name, m, depth=depth, width=width) for (name, depth), m in laws.items()]
    table: list[dict[str, Any]] = [
        {"place": names[key], "width": w, "apart": v.value, "error": v.error, "theory": float(limit)}
        for key in names
        for w, v, limit in zip(widths, apart[key], limits[key], strict=True)
    ]
    return Outcome(
        [
            entry(
                "N6",
                f"std of G₀ with RMSNorm − with LayerNorm, before ReLU, is 0 within {ROOM}, and their values differ "
                "by width^−½ (exponent within 0.1); without a limit if the same holds for the guesses after ReLU",
                f"before: {', '.join(map(str, before))} ({', '.join(map(str, depths))} layers), exponent {slope}; "
                f"after: {', '.join(map(str, after))}",
                [*(same(b, 0.0, room=ROOM) for b in before), same(slope, -0.5, room=0.1)],
                within=[same(a, 0.0, room=ROOM) for a in after],
                limit="only before the activation: after it RMSNorm does not centre, and cures nothing",
            ),
            entry(
                "N6",
                f"beyond the paper: after ReLU, RMSNorm leaves std of G₀ as without a norm within {ROOM}, where "
                f"LayerNorm takes it (beyond even guesses) below {NEUTRAL:.3f}",
                "; ".join(
                    f"{depth} layers: no norm {std(laws['no norm', depth])}, RMSNorm "
                    f"{std(laws['RMSNorm after', depth])}, LayerNorm {std(laws['LayerNorm after', depth])}"
                    for depth in depths
                ),
                [
                    *(same(v, 0.0, room=ROOM) for v in none),
                    *(above(Number(NEUTRAL), beyond_even(laws["LayerNorm after", depth])) for depth in depths),
                ],
            ),
        ],
        {"laws": columns(rows), "values": columns(table)},
        {
            "laws": laws_chart,
            "values": lines(
                table,
                "width",
                "apart",
                by="place",
                x_scale="log",
                y_scale="log",
                width=740,
                title="How far apart RMSNorm and LayerNorm put the same values, by width",
                y_title="LayerNorm's values − RMSNorm's (r.m.s.)",
            ),
        },
        ["All sizes are ours."],
        holds={
            "values": Holds(
                "RMSNorm turns into LayerNorm as width grows, but only before the activation",
                entries=(0,),
                verdicts=("holds with a limit",),
            ),
            "laws": Holds(
                "After ReLU, LayerNorm makes guesses even and RMSNorm leaves the bias as it was", entries=(1,)
            ),
        },
    )
