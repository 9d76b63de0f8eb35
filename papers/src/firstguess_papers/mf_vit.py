"""MF: vision transformers. Trained ones with scaled weights; ones without norms and skips, also in training."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from firstguess.data import Data
from firstguess_papers import library
from firstguess_papers.charts import arms_chart, lines, lines_of
from firstguess_papers.items import Entry, Item
from firstguess_papers.judging import Array, Check, Number, above, average, check, claimed
from firstguess_papers.library import Curve
from firstguess_papers.measured import Found
from firstguess_papers.running import Run
from firstguess_papers.training_pieces import (
    SAME_SCORE,
    Arm,
    apart,
    exceeds,
    joined,
    number,
    scores,
    trained,
    with_held_out,
)

FIRST = "cifar10:airplane-automobile-bird-cat-deer"
OTHER = "cifar10:dog-frog-horse-ship-truck"
CLASSES = 5
SCALES = (0.5, 1.0, 1.5)
PAST = 0.1  # a pre-trained network's held-out accuracy is above chance by more
STRONG = 0.1  # of the largest share
_BODIES = 10
_SAME_LOSS = 0.05
_RATE = 1e-3


def rises(t: Arm) -> Array:
    """How much the training loss rises from look to look, in all: 0 where it only falls. Instability."""
    return np.maximum(np.diff(t.draws["loss"], axis=1), 0.0).sum(axis=1)


def _pretrained(c: Found) -> dict[str, Any]:
    """Initial bias, stability and accuracy of fine-tuning, by the factor on all weights."""
    sizes: dict[str, int] = {"width": c.width, "blocks": c.blocks}
    x, held = with_held_out(c.run, FIRST, c.points, 300)
    bodies = [
        c.run.keep(pretraining, label=f"pre-training {seed + 1}", seed=c.run.seed + seed, x=x, held=held,
                   steps=c.steps, **sizes) for seed in range(c.parts * _BODIES)
    ]  # fmt: skip
    other, test = with_held_out(c.run, OTHER, c.few, c.rest)
    weights = [b["weights"] for b in bodies]
    found = {scale: _tuned(c.run, weights, scale, other, test, steps=c.tuning, sizes=sizes) for scale in SCALES}
    return {"found": found, "past": number(np.array([float(b["accuracy"]) for b in bodies]))}


pretrained = Item(
    "mf/pretrained", "A trained vision transformer with scaled weights, fine-tuned", "MF, pre-trained ViT",
    claims=("M11",), needs=("cifar10",),
    about="Stand-in: {parts} × 10 vision transformers (patches of 4, {blocks} blocks of width {width}, norms first), "
    "pre-trained on {points} images of five classes of CIFAR-10 (airplane to deer), {steps} steps of Adam; weights × "
    "0.5, 1, 1.5, a new head; fine-tuned on {few} images of the other five, {tuning} steps of Adam; {rest} held out.",
    quick=dict(width=16, blocks=2, points=300, steps=50, tuning=12, few=60, rest=60, parts=1),
    full=dict(width=40, blocks=3, points=1000, steps=150, tuning=40, few=150, rest=200, parts=1),
    seconds=(17, 240), quantities=_pretrained, judge=lambda c: judged(c.found, c.past),
    tables=lambda c: {"curves": [
        {"scale": scale, "curve": name, "step": int(step), "mean": float(m), "error": float(e)}
        for scale, t in c.found.items()
        for name, what in (("largest",) * 2, ("accuracy",) * 2, ("held", "test accuracy"), ("loss",) * 2)
        for step, m, e in zip(t.steps, t.curve(what).mean, t.curve(what).se, strict=True)
    ]},
    charts=lambda c: {"scaled": _chart(c.found)},
    holds={"scaled": "Halved weights bias a trained transformer; weights as they are are tuned best"},
    notes=[
        "Stand-in for MF's large pre-trained ViT: small ones, pre-trained here; a member is a pre-training of its own "
        "(start, order of the data) with a new head, so that errors are those of the whole procedure.",
        "Scaled are all parameters with two or more axes, the new head's too; norms' and biases' are not. The rate of "
        "fine-tuning (Adam, 0.001, batches of 50) is ours and the same for all.",
        "There is no prediction: a trained network is not one of the wide limit.",
    ],
)  # fmt: skip


def pretraining(seed: int, x: Data, held: Data, *, steps: int, width: int, blocks: int) -> dict[str, Any]:
    """One pre-training: its weights and its accuracy on held-out images of the same classes."""
    from firstguess_papers import models

    model = models.made(seed, width=width, blocks=blocks, classes=CLASSES)
    models.pretrain(model, *_tensors(x), seed=seed, steps=steps, batch=50, lr=2e-3)
    return {"weights": models.weights_of(model), "accuracy": models.accuracy(model, *_tensors(held))}


def _tensors(data: Data) -> tuple[Any, Any]:
    import torch

    assert data.y is not None
    images = torch.tensor(np.asarray(data.x, dtype=np.float32)).reshape(-1, 3, 32, 32)
    return images, torch.tensor(np.asarray(data.y, dtype=np.int64))


def _tuned(run: Run, bodies: list[Any], scale: float, x: Data, held: Data, *, steps: int, sizes: dict[str, int]) -> Arm:
    """Fine-tuning at one scale, a network for each pre-training."""
    from firstguess_papers import models

    arms = []
    for k, weights in enumerate(bodies):
        model = models.made(0, classes=CLASSES, **sizes)
        models.set_weights(model, np.asarray(weights))
        arms.append(
            trained(
                run, model, x, test=held, label=f"weights × {scale}, {k + 1} of {len(bodies)}", seed=run.seed + k,
                name=f"pre-trained ViT {k} of {sizes}, weights {float(np.abs(weights).sum())!r}", inits=1,
                redraw="head", scale=scale, optimizer="adam", lr=_RATE, batch=50, steps=steps, strategy="loop",
            )
        )  # fmt: skip
    return joined(f"weights × {scale:g}", arms)


def halved_is_biased(found: dict[float, Arm]) -> Check:
    """Weights × 0.5 start with a largest share above that of × 1 by more than 0.1."""
    more = apart(*(scores(found[scale], "largest", 0) for scale in (0.5, 1.0)))
    return check("× 0.5, largest share before fine-tuning beyond that of × 1", more, above=STRONG, least=SAME_SCORE)


def as_is_is_best(found: dict[float, Arm]) -> list[Check]:
    """Held-out accuracy at the end is highest for × 1; not decided unless one of them is past chance by 0.05."""
    ends = {scale: t.draws["test accuracy"][:, -1] for scale, t in found.items()}
    learned = any(above(number(end), 1 / CLASSES, by=0.05) is True for end in ends.values())
    best = [exceeds("× 1, held-out accuracy at the end", ends[1.0], ends[scale], room=SAME_SCORE,
                    than=f"that of × {scale:g}") for scale in (0.5, 1.5)]  # fmt: skip
    return [one if learned else replace(one, truth=None) for one in best]


def judged(found: dict[float, Arm], past: Number) -> list[Entry]:
    """M11 in two parts; nothing is decided unless pre-training was past chance."""
    ready = check("pre-trained networks, held-out images right", past, above=1 / CLASSES, by=PAST, than="chance")
    ready = replace(ready, truth=ready.truth or None)  # a network that learned nothing tests nothing
    raised, plain = found[1.5], found[1.0]

    def said(words: str, what: str, look: int) -> str:
        return f"{words} " + ", ".join(f"× {k:g} {number(t.draws[what][:, look])}" for k, t in found.items())

    shares = said("largest share", "largest", 0)

    return [
        claimed(
            "M11", "“× 0.5 triggers strong bias, × 1.5 weakens it”", [ready, halved_is_biased(found)],
            within=[exceeds("× 1.5, largest share", *(t.draws["largest"][:, 0] for t in (raised, plain)),
                            room=SAME_SCORE, than="that of × 1", below=True)],
            limit="× 1.5 does not weaken it", headline=shares, also=shares,
        ),
        claimed(
            "M11", "“as it is, best; × 1.5 is unstable”: where one of them ends past chance by 0.05",
            [ready, *as_is_is_best(found)],
            within=[exceeds("× 1.5, rises of the training loss from look to look", rises(raised), rises(plain),
                            room=_SAME_LOSS, than="those of × 1")],
            limit="× 1.5 is not less stable", headline=said("held-out accuracy", "test accuracy", -1),
        ),
    ]  # fmt: skip


def _chart(found: dict[float, Arm]) -> library.Chart:
    arms, loss = {arm.label: arm for arm in found.values()}, "Loss, training"
    top = max(float(np.nanmax(arm.curve("loss").mean)) for arm in found.values())
    return arms_chart(
        {"Share of the largest class": lines_of("largest", arms),
         "Accuracy, held out": lines_of("test accuracy", arms), loss: lines_of("loss", arms)},
        title="A trained transformer with scaled weights, fine-tuned on other classes", plain=[loss],
        y_domains={loss: (0.0, math.ceil(2 * top + 0.2) / 2 if math.isfinite(top) else 1.0)},
    )  # fmt: skip


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

    def drawn(variances: Sequence[float], first: int) -> list[Array]:
        given: dict[str, Any] = {"x": x, "first": first, "seed": c.run.seed, **sizes}
        pieces = [c.run.keep(_gradients, label=f"transformer at {v:.3f}", weight_var=v, **given) for v in variances]
        return [piece["stats"] for piece in pieces]

    logs = np.array([_growths(stats) for stats in drawn([EXPECTED * m for m in _SEARCH], 0)])
    slope = (logs[-1] - logs[0]) / math.log(_SEARCH[-1] / _SEARCH[0])
    crossing = average(-logs[1] / slope)  # ln of critical/expected, network by network
    critical = Number(EXPECTED * math.exp(crossing.value), EXPECTED * math.exp(crossing.value) * crossing.error)
    tested = dict(zip(_NAMES, drawn([critical.value * m for m in _NAMES], 1000), strict=True))
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


vit = Item(
    "mf/vit", "A vision transformer without norms and skips has an edge, too", "MF, vanilla ViT", claims=("M7",),
    needs=("cifar10",),
    about="Patches of 4, {blocks} blocks of width {width}, one head, ReLU, no biases, no norm, no skip, no positions "
    "(inner width = width, mean over tokens: ours); {points} images of CIFAR-10; {networks} networks to find the "
    "critical weight variance, as many others to test.",
    quick=dict(width=100, blocks=10, points=24, networks=8),
    full=dict(width=300, blocks=20, points=16, networks=5),
    seconds=(8, 90), quantities=_vit, judge=lambda c: [_judge_vit(c)], tables=lambda c: {"blocks": c.rows},
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


def _gradients(
    x: Data, weight_var: float, *, first: int, width: int, blocks: int, networks: int, seed: int,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> dict[str, Array]:  # fmt: skip
    """(networks, blocks, 5) of `block_gradients`, members from `first` on."""
    from firstguess_papers.models import VanillaViT, block_gradients

    images, labels = _tensors(x)
    sizes: dict[str, Any] = {"width": width, "blocks": blocks, "classes": x.classes, "weight_var": weight_var}
    found: list[Array] = []
    for member in range(first, first + networks):
        found.append(block_gradients(VanillaViT(seed=seed, member=member, **sizes), images, labels))
        progress(len(found), networks)
    return {"stats": np.array(found)}


def _growths(stats: Array) -> Array:
    """ln of the factor a block, going back, of each network: from the second block's tokens to the last but one's."""
    logs = np.log(stats[:, 1:-1, 0])
    away = np.arange(logs.shape[1]) - (logs.shape[1] - 1) / 2
    return -(logs @ away) / float(away @ away)


def _factor(log: Number) -> Number:
    return Number(math.exp(log.value), math.exp(log.value) * log.error)


def _levels(squares: Array) -> tuple[Array, Array]:
    """Mean over networks of log10, and its standard error, by block; networks without such a point are left out."""
    fine = np.isfinite(squares) & (squares > 0)
    found = Curve(np.arange(squares.shape[1]), np.where(fine, np.log10(np.where(fine, squares, 1.0)), math.nan))
    return found.mean, found.se
