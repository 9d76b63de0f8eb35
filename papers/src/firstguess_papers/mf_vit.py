"""MF: a vision transformer without norms and skip connections, before training and in training."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from firstguess_papers import training_speed as speed
from firstguess_papers.charts import lines
from firstguess_papers.items import Entry, Outcome, item
from firstguess_papers.judging import Number, average, check, claimed
from firstguess_papers.measured import Found, measured
from firstguess_papers.mf_simulation import Array
from firstguess_papers.mf_training import RATE
from firstguess_papers.running import Run
from firstguess_papers.training_pieces import Arm, trained

if TYPE_CHECKING:
    from firstguess.data import Data

# Where tokens of an image have become alike, attention passes them on: a block multiplies the mean square by σw² four
# times (value, mix, two dense layers) and ReLU halves it. σw⁸/2 = 1:
EXPECTED = 2.0**0.25
GROUPS = {"all": "all points", "favoured": "favoured class", "others": "other classes"}
_SEARCH = (0.9, 1.0, 1.1)


_NAMES = {0.7: "0.7 × critical", 1.0: "critical", 1.3: "1.3 × critical"}


def _vit(c: Found) -> dict[str, Any]:
    """Growth of gradients a block at 0.7, 1 and 1.3 times the weight variance at which it crosses 1."""
    x = c.run.data("cifar10", points=c.points)
    sizes = {"width": c.width, "blocks": c.blocks, "networks": c.networks}
    logs = np.array([_growths(_gradients(c.run, x, EXPECTED * m, first=0, **sizes)) for m in _SEARCH])
    slope = (logs[-1] - logs[0]) / math.log(_SEARCH[-1] / _SEARCH[0])
    crossing = average(-logs[1] / slope)  # ln of critical/expected, network by network
    critical = Number(EXPECTED * math.exp(crossing.value), EXPECTED * math.exp(crossing.value) * crossing.error)
    tested = {m: _gradients(c.run, x, critical.value * m, first=1000, **sizes) for m in _NAMES}
    return {"critical": critical, "tested": tested, "rows": [
        {"multiple": m, "weight_var": m * critical.value, "block": b, "quantity": name, "log10": v, "error": e}
        for m, s in tested.items()
        for k, name in enumerate(("all", "favoured", "others", "tokens", "alike"))
        for b, v, e in zip(range(1, c.blocks + 1), *_levels(s[:, :, k]), strict=True)
    ]}  # fmt: skip


def _judge_vit(c: Found) -> Entry:
    ordered, edge, chaotic = (_factor(average(_growths(s))) for s in c.tested.values())
    alike = {m: tuple(float(s[:, k, 4].mean()) for k in (1, c.blocks // 2)) for m, s in c.tested.items()}
    return claimed(
        "M7", "growth of gradients a block, of other networks than those in which the critical weight variance was "
        "found, where it crosses 1",
        [check(_NAMES[0.7], ordered, below=0.8), check(_NAMES[1.0], edge, near=1.0, room=0.2),
         check(_NAMES[1.3], chaotic, above=1.25)],
        within=[check("critical σw²", c.critical, near=EXPECTED, room=0.05, than="2^¼, where σw⁸/2 = 1")],
        limit="the transition is there, at a weight variance that differs from 2^¼",
        also="wide limit " + ", ".join(f"{(m * c.critical.value) ** 4 / 2:.3g}" for m in _NAMES)
        + f"; correlation of an image's tokens after 2 and {c.blocks // 2 + 1} blocks: "
        + ", ".join(f"{a:.3f} and {b:.3f} ({_NAMES[m]})" for m, (a, b) in alike.items()),
    )  # fmt: skip


vit = measured(
    "mf/vit", "A vision transformer without norms and skips has an edge, too", "MF, vanilla ViT", claims=("M7",),
    needs=("cifar10",),
    about="Patches of 4, {blocks} blocks of width {width}, one head, ReLU, no biases, no norm, no skip, no positions "
    "(inner width = width, mean over tokens: ours); {points} images of CIFAR-10; {networks} networks to find the "
    "critical weight variance, as many others to test.",
    quick=dict(width=100, blocks=10, points=24, networks=8),
    full=dict(width=300, blocks=20, points=16, networks=5),
    seconds=(8, 90),
    quantities=_vit,
    judge=lambda c: [_judge_vit(c)],
    tables=lambda c: {"blocks": c.rows},
    charts=lambda c: {"blocks": lines(
        [row | {"name": group, "panel": f"{_NAMES[row['multiple']]}: σw² = {row['weight_var']:.3f}"}
         for row in c.rows for group in [GROUPS.get(row["quantity"])] if group],
        "block", "log10", panel="panel", title="Gradients of a plain transformer by block",
        x_title="Block", y_title="log10 of mean square gradient", dodge=False, width=300,
    )},
    holds={"blocks": "A plain transformer has the MLP's transition: gradients vanish, survive, explode"},
    notes=lambda c: [
        f"Critical is not given by the paper as a number: measured ({c.critical}), from networks at 0.9, 1 and 1.1 × "
        "2^¼, by where the slope of log mean square against block crosses 0.",
        "2^¼: once an image's tokens are alike, a block is four weight layers and one ReLU. Inner width and the lack "
        "of positions are ours; the factor a block does not contain the inner width.",
    ],
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
        number = average(kept) if len(kept) > 1 else Number(math.nan, math.nan)
        values.append(number.value)
        errors.append(number.error)
    return values, errors


MULTIPLES = {speed.ORDERED: 0.7, speed.EDGE: 1.0, speed.BIASED: 1.3}
_NAME = "plain transformer"
_PROBED = 1000  # members that give the rates are none of those that are trained


@item(
    "mf/vit-training",
    "Phases in training: a vision transformer without norms and skips",
    claims=("M10",),
    where="MF, vanilla ViT",
    needs=("cifar10",),
    about="Patches of 4, {blocks} blocks of width {width} (MF: 20 of 300), again with {other}, one head, ReLU, no "
    "biases, norms, skips or positions; weight variance 0.7, 1, 1.3 × 2^¼; CIFAR-10, vehicles against animals, "
    "{points} images and as many held-out ones, mini-batches of {batch}, plain descent, {steps} steps, 10 networks "
    "each; one rate for all, 0.2 of the critical network's overshoot, and once more 0.2 of each one's own.",
    quick=dict(blocks=3, other=2, width=24, points=50, batch=25, steps=16),
    full=dict(blocks=8, other=4, width=40, points=100, batch=40, steps=60),
    seconds=(17, 280),
)
def vit_training(run: Run) -> Outcome:
    """M10 for MF's vanilla ViT: absorbing and learning at 0.7, 1 and 1.3 times the critical weight variance."""
    blocks, other, width, points, batch, steps = run.take("blocks other width points batch steps")
    x, held = speed.with_held_out(run, "cifar10:vehicles-animals", points, points)
    main, own, second = (
        {_NAME: _sweep(run, x, held, blocks=depth, width=width, batch=batch, steps=steps, own=own_rates)}
        for depth, own_rates in ((blocks, False), (blocks, True), (other, False))
    )
    where = (
        f"{blocks} blocks of width {width}; {points} images of CIFAR-10, vehicles against animals, batches of {batch}"
    )
    return Outcome(
        speed.judged(
            main, own, second, other_words=f"{other} blocks", subjects="vanilla ViT, critical weight variance 2^¼"
        ),
        speed.phases_tables([*main.items(), *own.items(), *second.items()], named=False),
        {
            "one_rate": speed.phases_chart(
                {"One rate": main[_NAME], "Own rates": own[_NAME]},
                title=speed.phases_title(
                    main, subject="A plain transformer's edge of chaos", rates="at one rate (above)"
                ),
                subtitle=[
                    "Above one rate for all, below each at the same fraction of its own overshoot; 10 networks a line.",
                    f"{where}.",
                ],
            )
        },
        [
            "Ours: fewer and narrower blocks than MF's 20 of 300, two classes, few images and steps; critical is taken "
            "as 2^¼, which mf/vit measures.",
            "There is no prediction: the tangent kernel of attention is not carried. The overshoot is 2/λ with λ = "
            "½‖∇ of the mean logit difference‖², measured on four other networks.",
        ],
    )


def _sweep(run: Run, x: Data, held: Data, *, blocks: int, width: int, batch: int, steps: int, own: bool) -> speed.Sweep:
    variances = {phase: times * EXPECTED for phase, times in MULTIPLES.items()}
    units = {
        phase: 2.0 / _eigenvalue(run, x, weight_var=variance, blocks=blocks, width=width, batch=batch)
        for phase, variance in variances.items()
    }
    arms: dict[str, Arm] = {}
    rates: dict[str, float] = {}
    for phase, variance in variances.items():
        rates[phase] = RATE * (units[phase] if own else units[speed.EDGE])
        name = f"vanilla ViT, {blocks} blocks of {width}, weight_var {variance!r}"
        arm = trained(
            run, factory(width=width, blocks=blocks, weight_var=variance), x, name=name, test=held, inits=10,
            label=f"{phase}, {blocks} blocks" + (", own rate" if own else ""), optimizer="sgd", lr=rates[phase],
            batch=batch, steps=speed.few_looks(steps), strategy="loop",
        )  # fmt: skip
        arms[phase] = speed.relabelled(arm, phase)
    return speed.Sweep(arms, {}, rates, f"{blocks} blocks, {'own rates' if own else 'one rate'}")


def factory(*, width: int, blocks: int, weight_var: float) -> Any:
    """Makes a network from torch's own generator, which `fg.train` seeds for every member."""

    def make() -> Any:
        import torch

        from firstguess_papers.vanilla_vit import VanillaViT

        drawn = int(torch.randint(1 << 31, ()))
        return VanillaViT(width=width, blocks=blocks, classes=2, weight_var=weight_var, seed=0, member=drawn)

    return make


def _eigenvalue(run: Run, x: Data, *, weight_var: float, blocks: int, width: int, batch: int) -> float:
    """λ of the mode that all points of a mini-batch share: the mean over four networks of ½‖∇ mean(f₁ − f₀)‖²."""

    def compute() -> dict[str, Any]:
        import torch

        from firstguess_papers.vanilla_vit import VanillaViT

        images = torch.tensor(np.asarray(x.x[:batch], dtype=np.float32)).reshape(-1, 3, 32, 32)
        found: list[float] = []
        for member in range(_PROBED, _PROBED + 4):
            model = VanillaViT(
                width=width, blocks=blocks, classes=2, weight_var=weight_var, seed=run.seed, member=member
            )
            logits = model(images)
            slopes = torch.autograd.grad((logits[:, 1] - logits[:, 0]).mean(), list(model.parameters()))
            found.append(0.5 * sum(float((g.double() ** 2).sum()) for g in slopes))
        return {"values": np.array(found)}

    key = {"eigenvalue": [width, blocks, batch], "weight_var": weight_var, "data": x.hash}
    return float(np.mean(run.piece(key, compute, label=f"rate at {weight_var:.3f}")["values"]))
