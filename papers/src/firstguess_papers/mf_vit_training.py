"""MF: the vision transformer without norms and skip connections in training, through its phases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from firstguess_papers.items import Outcome, item
from firstguess_papers.mf_training import RATE
from firstguess_papers.mf_vit import EXPECTED
from firstguess_papers.phase_sweeps import (  # fmt: skip
    BIASED,
    EDGE,
    ORDERED,
    Sweep,
    judged,
    phases_chart,
    phases_title,
    summary_rows,
)
from firstguess_papers.running import Run
from firstguess_papers.tables import columns
from firstguess_papers.training_pieces import Arm, trained
from firstguess_papers.training_speed import few_looks, relabelled, with_held_out

if TYPE_CHECKING:
    from firstguess.data import Data

MULTIPLES = {ORDERED: 0.7, EDGE: 1.0, BIASED: 1.3}
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
    seconds=(20, 280),
)
def vit_training(run: Run) -> Outcome:
    """M10 for MF's vanilla ViT: absorbing and learning at 0.7, 1 and 1.3 times the critical weight variance."""
    blocks, other, width, points, batch, steps = run.take("blocks other width points batch steps")
    x, held = with_held_out(run, "cifar10:vehicles-animals", points, points)
    main, own, second = (
        {_NAME: _sweep(run, x, held, blocks=depth, width=width, batch=batch, steps=steps, own=own_rates)}
        for depth, own_rates in ((blocks, False), (blocks, True), (other, False))
    )
    sweeps = (main[_NAME], own[_NAME], second[_NAME])
    rows = [
        {"sweep": s.words, **line, "rate": s.rates[line["arm"]]}
        for s in sweeps
        for arm in s.arms.values()
        for line in arm.rows()
    ]
    where = (
        f"{blocks} blocks of width {width}; {points} images of CIFAR-10, vehicles against animals, batches of {batch}"
    )
    return Outcome(
        judged(main, own, second, other_words=f"{other} blocks", subjects="vanilla ViT, critical weight variance 2^¼"),
        {"curves": columns(rows), "summary": columns([row for s in sweeps for row in summary_rows(_NAME, s)])},
        {
            "one_rate": phases_chart(
                {"One rate": main[_NAME], "Own rates": own[_NAME]},
                title=phases_title(main, subject="A plain transformer's edge of chaos", rates="at one rate (above)"),
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


def _sweep(run: Run, x: Data, held: Data, *, blocks: int, width: int, batch: int, steps: int, own: bool) -> Sweep:
    variances = {phase: times * EXPECTED for phase, times in MULTIPLES.items()}
    units = {
        phase: 2.0 / _eigenvalue(run, x, weight_var=variance, blocks=blocks, width=width, batch=batch)
        for phase, variance in variances.items()
    }
    arms: dict[str, Arm] = {}
    rates: dict[str, float] = {}
    for phase, variance in variances.items():
        rates[phase] = RATE * (units[phase] if own else units[EDGE])
        name = f"vanilla ViT, {blocks} blocks of {width}, weight_var {variance!r}"
        arm = trained(
            run, factory(width=width, blocks=blocks, weight_var=variance), x, name=name, test=held, inits=10,
            label=f"{phase}, {blocks} blocks" + (", own rate" if own else ""), optimizer="sgd", lr=rates[phase],
            batch=batch, steps=few_looks(steps), strategy="loop",
        )  # fmt: skip
        arms[phase] = relabelled(arm, phase)
    return Sweep(arms, {}, rates, f"{blocks} blocks, {'own rates' if own else 'one rate'}")


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
