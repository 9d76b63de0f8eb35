"""MF: a vision transformer without norms and skip connections goes through the same transition."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from firstguess_papers.charts import lines
from firstguess_papers.items import Holds, Outcome, item
from firstguess_papers.judging import Number, Truth, above, below, entry, same
from firstguess_papers.mf_simulation import Array, mean
from firstguess_papers.running import Run
from firstguess_papers.tables import columns

if TYPE_CHECKING:
    from firstguess.data import Data

# Where tokens of an image have become alike, attention passes them on: a block multiplies the mean square by σw² four
# times (value, mix, two dense layers) and ReLU halves it. σw⁸/2 = 1:
EXPECTED = 2.0**0.25
GROUPS = {"all": "all points", "favoured": "favoured class", "others": "other classes"}
_SEARCH = (0.9, 1.0, 1.1)
_MULTIPLES = (0.7, 1.0, 1.3)


@item(
    "mf/vit",
    "A vision transformer without norms and skips has an edge, too",
    claims=("M7",),
    where="MF, vanilla ViT",
    needs=("cifar10",),
    about="Patches of 4, {blocks} blocks of width {width}, one head, ReLU, no biases, no norm, no skip, no positions "
    "(inner width = width, mean over tokens: ours); {points} images of CIFAR-10; {networks} networks to find the "
    "critical weight variance, as many others to test.",
    quick=dict(width=100, blocks=10, points=24, networks=8),
    full=dict(width=300, blocks=20, points=16, networks=5),
    seconds=(10, 90),
)
def vit(run: Run) -> Outcome:
    """M7: growth of gradients a block at 0.7, 1 and 1.3 times the weight variance at which it crosses 1."""

    width, blocks, points, networks = run.take("width blocks points networks")
    x = run.data("cifar10", points=points)
    sizes = {"width": width, "blocks": blocks, "networks": networks}
    search = [_gradients(run, x, EXPECTED * m, first=0, **sizes) for m in _SEARCH]
    logs = np.array([_growths(s) for s in search])  # (σw², networks)
    slope = (logs[-1] - logs[0]) / math.log(_SEARCH[-1] / _SEARCH[0])
    crossing = mean(-logs[1] / slope)  # ln of critical/expected, network by network
    critical = Number(EXPECTED * math.exp(crossing.value), EXPECTED * math.exp(crossing.value) * crossing.error)
    tested = {m: _gradients(run, x, critical.value * m, first=1000, **sizes) for m in _MULTIPLES}
    growths = {m: _factor(mean(_growths(s))) for m, s in tested.items()}
    ordered, edge, chaotic = (growths[m] for m in _MULTIPLES)
    must: list[Truth] = [
        below(ordered, 0.8),
        same(edge, 1.0, room=0.2),
        above(chaotic, 1.25),
    ]
    within: list[Truth] = [same(critical, EXPECTED, room=0.05)]
    names = {0.7: "0.7 × critical", 1.0: "critical", 1.3: "1.3 × critical"}
    at = np.arange(1, blocks + 1)
    rows: list[dict[str, Any]] = [
        {"multiple": m, "weight_var": m * critical.value, "block": int(b), "quantity": name, "log10": v, "error": e}
        for m, s in tested.items()
        for k, name in enumerate(("all", "favoured", "others", "tokens", "alike"))
        for b, v, e in zip(at, *_levels(s[:, :, k]), strict=True)
    ]
    alike = {m: tuple(float(s[:, k, 4].mean()) for k in (1, blocks // 2)) for m, s in tested.items()}
    said = "; ".join(
        f"{names[m]}: × {growths[m]} a block (wide limit {(m * critical.value) ** 4 / 2:.3g})" for m in _MULTIPLES
    )
    return Outcome(
        [
            entry(
                "M7",
                "with the critical weight variance measured where gradients' growth a block crosses 1, other networks "
                "have less than 0.8 a block at 0.7 ×, 1 within 0.2 at 1 ×, more than 1.25 at 1.3 ×; for `holds` it is "
                "also within 0.05 of 2^¼, where σw⁸/2 = 1",
                f"critical σw² = {critical} (2^¼ = {EXPECTED:.4f}); {said}; correlation of an image's tokens after 2 "
                f"and {blocks // 2 + 1} blocks: "
                f"" + ", ".join(f"{a:.3f} and {b:.3f} ({names[m]})" for m, (a, b) in alike.items()),
                must,
                within=within,
                limit="the transition is there, at a weight variance that differs from 2^¼",
            )
        ],
        {"blocks": columns(rows)},
        {
            "blocks": lines(
                [row | {"name": group, "panel": f"{names[row['multiple']]}: σw² = {row['weight_var']:.3f}"}
                 for row in rows for group in [GROUPS.get(row["quantity"])] if group],
                "block", "log10", panel="panel", title="Gradients of a plain transformer by block",
                x_title="Block", y_title="log10 of mean square gradient", dodge=False, width=300,
            )
        },
        [
            f"Critical is not given by the paper as a number: measured ({critical}), from networks at 0.9, 1 and 1.1 "
            "× 2^¼, by where the slope of log mean square against block crosses 0.",
            "2^¼: once an image's tokens are alike, a block is four weight layers and one ReLU. Inner width and the "
            "lack of positions are ours; the factor a block does not contain the inner width.",
        ], holds={"blocks": Holds("A plain transformer has the MLP's transition: gradients vanish, survive, explode")},
    )  # fmt: skip


def _gradients(run: Run, x: Data, weight_var: float, *, first: int, width: int, blocks: int, networks: int) -> Array:
    """(networks, blocks, 5) of `vanilla_vit.block_gradients`, members from `first` on."""

    def compute() -> dict[str, Array]:
        import torch

        from firstguess_papers.vanilla_vit import VanillaViT, block_gradients

        assert x.y is not None
        assert x.classes is not None
        images = torch.tensor(np.asarray(x.x, dtype=np.float32)).reshape(-1, 3, 32, 32)
        labels = torch.tensor(np.asarray(x.y, dtype=np.int64))
        found: list[Array] = []
        for member in range(first, first + networks):
            model = VanillaViT(
                width=width, blocks=blocks, classes=x.classes, weight_var=weight_var, seed=run.seed, member=member
            )
            found.append(block_gradients(model, images, labels))
            run.progress(f"transformer at {weight_var:.3f}", len(found), networks)
        return {"stats": np.array(found)}

    key = {"vit": [width, blocks, networks, first], "weight_var": weight_var, "data": x.hash}
    return np.asarray(run.piece(key, compute, label=f"transformer at {weight_var:.3f}")["stats"])


def _growths(stats: Array) -> Array:
    """ln of the factor a block, going back, of each network: from the second block's tokens to the last but one's."""
    logs = np.log(stats[:, 1:-1, 0])
    away = np.arange(logs.shape[1]) - (logs.shape[1] - 1) / 2
    return -(logs @ away) / float(away @ away)


def _factor(log: Number) -> Number:
    return Number(math.exp(log.value), math.exp(log.value) * log.error)


def _levels(squares: Array) -> tuple[list[float], list[float]]:
    """Mean over networks of log10, and its standard error, by block; networks without such a point are left out."""
    fine = np.isfinite(squares) & (squares > 0)
    logs = np.where(fine, np.log10(np.where(fine, squares, 1.0)), math.nan)
    values, errors = [], []
    for column in logs.T:
        kept = column[np.isfinite(column)]
        number = mean(kept) if len(kept) > 1 else Number(math.nan, math.nan)
        values.append(number.value)
        errors.append(number.error)
    return values, errors
