"""MF: a trained vision transformer whose weights are scaled, then fine-tuned on other classes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from firstguess_papers.items import Entry
from firstguess_papers.judging import Check, Number, above, all_of, check, claimed
from firstguess_papers.library import Curve
from firstguess_papers.measured import Found, measured
from firstguess_papers.running import Run
from firstguess_papers.training_pieces import Array, trained
from firstguess_papers.training_speed import SAME_SCORE, apart, exceeds, number, with_held_out

if TYPE_CHECKING:
    from firstguess.data import Data
    from firstguess_papers.library import Chart

FIRST = "cifar10:airplane-automobile-bird-cat-deer"
OTHER = "cifar10:dog-frog-horse-ship-truck"
CLASSES = 5
SCALES = (0.5, 1.0, 1.5)
PAST = 0.1  # a pre-trained network's held-out accuracy is above chance by more
STRONG = 0.1  # of the largest share
_BODIES = 10
_SAME_LOSS = 0.05
_RATE = 1e-3


@dataclass(frozen=True, eq=False)
class Tuned:
    """Fine-tuning at one scale: curves (pre-trained networks, looks)."""

    steps: Any
    largest: Array
    accuracy: Array
    held: Array
    loss: Array

    @property
    def rises(self) -> Array:
        """How much the training loss rises from look to look, in all: 0 where it only falls. Instability."""
        return np.maximum(np.diff(self.loss, axis=1), 0.0).sum(axis=1)

    @property
    def end(self) -> Array:
        """Held-out accuracy at the end."""
        return self.held[:, -1]


def _pretrained(c: Found) -> dict[str, Any]:
    """Initial bias, stability and accuracy of fine-tuning, by the factor on all weights."""
    sizes: dict[str, int] = {"width": c.width, "blocks": c.blocks}
    x, held = with_held_out(c.run, FIRST, c.points, 300)
    bodies = [_body(c.run, seed, x, held, steps=c.steps, **sizes) for seed in range(_BODIES)]
    other, test = with_held_out(c.run, OTHER, c.few, c.rest)
    weights = [b["weights"] for b in bodies]
    found = {scale: _tuned(c.run, weights, scale, other, test, steps=c.tuning, sizes=sizes) for scale in SCALES}
    return {"found": found, "past": number(np.array([float(b["accuracy"]) for b in bodies]))}


pretrained = measured(
    "mf/pretrained", "A trained vision transformer with scaled weights, fine-tuned", "MF, pre-trained ViT",
    claims=("M11",), needs=("cifar10",),
    about="Stand-in: 10 vision transformers (patches of 4, {blocks} blocks of width {width}, norms first) pre-trained "
    "here on {points} images of five classes of CIFAR-10 (airplane to deer), {steps} steps of Adam; weights × 0.5, 1, "
    "1.5, a new head; fine-tuned on {few} images of the other five, {tuning} steps of Adam, {rest} held-out images.",
    quick=dict(width=16, blocks=2, points=300, steps=50, tuning=12, few=60, rest=60),
    full=dict(width=40, blocks=3, points=1000, steps=150, tuning=40, few=150, rest=200),
    seconds=(17, 240),
    quantities=_pretrained,
    judge=lambda c: judged(c.found, c.past),
    tables=lambda c: {"curves": [
        {"scale": scale, "curve": name, "step": int(step), "mean": float(m), "error": float(e)}
        for scale, t in c.found.items() for name in ("largest", "accuracy", "held", "loss")
        for step, m, e in zip(t.steps, _curve(t, name).mean, _curve(t, name).se, strict=True)
    ]},
    charts=lambda c: {"scaled": _chart(
        c.found, f"{_BODIES} transformers ({c.blocks} blocks of width {c.width}) pre-trained on five classes of "
        f"CIFAR-10 ({c.past.value:.0%} of held-out images right, chance {1 / CLASSES:.0%}), each with a new head; "
        f"{c.few} images of the other five.",
    )},
    notes=[
        "Stand-in for MF's large pre-trained ViT: small ones, pre-trained here; a member is a pre-training of its own "
        "(start, order of the data) with a new head, so that errors are those of the whole procedure.",
        "Scaled are all parameters with two or more axes, the new head's too; norms' and biases' are not. The rate of "
        "fine-tuning (Adam, 0.001, batches of 50) is ours and the same for all.",
        "There is no prediction: a trained network is not one of the wide limit.",
    ],
)  # fmt: skip


def _body(run: Run, seed: int, x: Data, held: Data, *, steps: int, width: int, blocks: int) -> dict[str, Any]:
    """One pre-training: its weights and its accuracy on held-out images of the same classes."""

    def compute() -> dict[str, Any]:
        from firstguess_papers import small_vit

        model = small_vit.made(run.seed + seed, width=width, blocks=blocks, classes=CLASSES)
        small_vit.pretrain(model, *_tensors(x), seed=run.seed + seed, steps=steps, batch=50, lr=2e-3)
        return {"weights": small_vit.weights_of(model), "accuracy": small_vit.accuracy(model, *_tensors(held))}

    key = {"pretrain": [width, blocks, steps], "seed": seed, "data": x.hash, "held": held.hash}
    return run.piece(key, compute, label=f"pre-training {seed + 1} of {_BODIES}")


def _tensors(data: Data) -> tuple[Any, Any]:
    import torch

    assert data.y is not None
    images = torch.tensor(np.asarray(data.x, dtype=np.float32)).reshape(-1, 3, 32, 32)
    return images, torch.tensor(np.asarray(data.y, dtype=np.int64))


def _tuned(
    run: Run, bodies: list[Any], scale: float, x: Data, held: Data, *, steps: int, sizes: dict[str, int]
) -> Tuned:
    from firstguess_papers import small_vit

    arms = []
    for k, weights in enumerate(bodies):
        model = small_vit.made(0, classes=CLASSES, **sizes)
        small_vit.set_weights(model, np.asarray(weights))
        arms.append(
            trained(
                run, model, x, test=held, label=f"weights × {scale}, {k + 1} of {len(bodies)}", seed=run.seed + k,
                name=f"pre-trained ViT {k} of {sizes}, weights {float(np.abs(weights).sum())!r}", inits=1,
                redraw="head", scale=scale, optimizer="adam", lr=_RATE, batch=50, steps=steps, strategy="loop",
            )
        )  # fmt: skip

    def joined(what: str) -> Array:
        return np.concatenate([arm.curve(what).draws for arm in arms])

    return Tuned(arms[0].steps, joined("largest"), joined("accuracy"), joined("test accuracy"), joined("loss"))


def _curve(tuned: Tuned, name: str) -> Curve:
    return Curve(tuned.steps, getattr(tuned, name))


# -- What is judged -----------------------------------------------------------------------------------------------


def halved_is_biased(found: dict[float, Tuned]) -> Check:
    """Weights × 0.5 start with a largest share above that of × 1 by more than 0.1."""
    apart_by = apart(found[0.5].largest[:, 0], found[1.0].largest[:, 0])
    return check("× 0.5, largest share before fine-tuning beyond that of × 1", apart_by, above=STRONG)


def as_is_is_best(found: dict[float, Tuned]) -> list[Check]:
    """Held-out accuracy at the end is highest for × 1; not decided unless one of them is past chance by 0.05."""
    learned = any(above(number(t.end), 1 / CLASSES, by=0.05) is True for t in found.values())
    best = [exceeds("× 1, held-out accuracy at the end", found[1.0].end, found[scale].end, room=SAME_SCORE,
                    than=f"that of × {scale:g}") for scale in (0.5, 1.5)]  # fmt: skip
    return [one if learned else replace(one, truth=None) for one in best]


def judged(found: dict[float, Tuned], past: Number) -> list[Entry]:
    """M11 in two parts; nothing is decided unless pre-training was past chance."""
    ready = check("pre-trained networks, held-out images right", past, above=1 / CLASSES, by=PAST, than="chance")
    ready = replace(ready, truth=ready.truth or None)  # a network that learned nothing tests nothing
    raised, plain = found[1.5], found[1.0]

    def said(what: str, values: Any) -> str:
        return f"{what} " + ", ".join(f"× {scale:g} {number(values(t))}" for scale, t in found.items())

    return [
        claimed(
            "M11", "“× 0.5 triggers strong bias, × 1.5 weakens it”", [ready, halved_is_biased(found)],
            within=[exceeds("× 1.5, largest share", raised.largest[:, 0], plain.largest[:, 0], room=SAME_SCORE,
                            than="that of × 1", below=True)],
            limit="× 1.5 does not weaken it", headline=said("largest share", lambda t: t.largest[:, 0]),
            also=said("largest share", lambda t: t.largest[:, 0]),
        ),
        claimed(
            "M11", "“as it is, best; × 1.5 is unstable”: where one of them ends past chance by 0.05",
            [ready, *as_is_is_best(found)],
            within=[exceeds("× 1.5, rises of the training loss from look to look", raised.rises, plain.rises,
                            room=_SAME_LOSS, than="those of × 1")],
            limit="× 1.5 is not less stable", headline=said("held-out accuracy", lambda t: t.end),
        ),
    ]  # fmt: skip


def _title(found: dict[float, Tuned]) -> str:
    """What was found of bias and of fine-tuning; what was not decided is not said."""
    bias = {True: "halved weights bias a trained transformer", False: "halved weights hardly bias a trained network"}
    tuned = {True: "weights as they are are tuned best", False: "weights as they are are not tuned best"}
    parts = ((bias, halved_is_biased(found).truth), (tuned, all_of(one.truth for one in as_is_is_best(found))))
    line = "; ".join(words[truth] for words, truth in parts if truth is not None)
    return (line[:1].upper() + line[1:]) or "A trained transformer with scaled weights, fine-tuned on other classes"


def _chart(found: dict[float, Tuned], settings: str) -> Chart:
    from firstguess_papers.training_charts import Line, arms_chart

    panels = {
        heading: [Line(f"weights × {scale:g}", _curve(t, name)) for scale, t in found.items()]
        for heading, name in (
            ("Share of the largest class", "largest"),
            ("Accuracy, held out", "held"),
            ("Loss, training", "loss"),
        )
    }
    top = max(float(np.nanmax(_curve(t, "loss").mean)) for t in found.values())
    return arms_chart(
        panels,
        title=_title(found),
        subtitle=[settings],
        plain=["Loss, training"],
        y_domains={"Loss, training": (0.0, math.ceil(2 * top + 0.2) / 2 if math.isfinite(top) else 1.0)},
    )
