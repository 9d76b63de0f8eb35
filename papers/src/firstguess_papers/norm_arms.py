"""NORM Fig G.9 at full size: ensembles of ResNet101 and Swin-L, one piece a network; and the figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from firstguess import EmpiricalGuesses
from firstguess_papers.charts import dots
from firstguess_papers.judging import Number
from firstguess_papers.norm_models import Place
from firstguess_papers.norm_true_size import Init, ResNet, Swin
from firstguess_papers.running import Run

if TYPE_CHECKING:
    from torch import Tensor

    from firstguess.data import Data
    from firstguess_papers.library import Chart

SWAPPED: Place = "after"
EVERYWHERE: Place = "after, also behind the sums"
CLASSES = 200  # as many as Tiny ImageNet has
PLACES: dict[str, tuple[Place, ...]] = {"ResNet": ("before", SWAPPED, EVERYWHERE), "Swin": ("before", SWAPPED)}
SIDE = 64
_CHUNK = 50  # images at once where no batch is needed: less memory


@dataclass(frozen=True)
class Arm:
    """Networks of one kind with their norms at one place: guess fractions, and γ of the output."""

    how: Init
    kind: str
    label: str
    place: Place
    guesses: EmpiricalGuesses
    gamma: Number

    @property
    def largest(self) -> Number:
        """The average largest fraction."""
        return Number(self.guesses.expected_max(), self.guesses.standard_error("expected_max"))

    def row(self) -> dict[str, Any]:
        """For the table of numbers."""
        about = {"name": self.label, "init": self.how, "norm": self.place, "inits": self.guesses.inits}
        numbers = {"largest": self.largest, "gamma": self.gamma}
        values = {key: v for name, x in numbers.items() for key, v in ((name, x.value), (f"{name}_error", x.error))}
        return {**about, "points": self.guesses.points, "classes": self.guesses.classes, **values}


def true_size_arms(run: Run, data: Data) -> list[Arm]:
    """ResNet101 with Kaiming, Swin-L with Kaiming and with the library's own initialization; all places each."""
    x = enlarged(data)
    plan: list[tuple[Init, str, str, ResNet | Swin, int]] = [
        ("Kaiming", "ResNet", "ResNet101", ResNet(classes=CLASSES), 24),
        ("Kaiming", "Swin", "Swin-L", Swin(side=SIDE, classes=CLASSES), 16),
        ("the library's own", "Swin", "Swin-L", Swin(side=SIDE, classes=CLASSES), 10),
    ]
    found: list[Arm] = []
    for how, kind, label, net, many in plan:
        places = PLACES[kind]
        pieces = [
            run.piece(
                {"net": label, "sizes": str(net), "init": how, "data": data.hash, "member": k},
                lambda net=net, how=how, places=places, k=k: measured(net, x, places, how, 1000 * run.seed + k),
                label=f"{label}, {how}, network {k + 1} of {many}",
            )
            for k in range(many)
        ]
        for index, place in enumerate(places):
            fractions, center, spread = (
                np.stack([np.asarray(p[name])[index] for p in pieces]) for name in ("fractions", "center", "spread")
            )
            law = EmpiricalGuesses(fractions, data.n, run.seed)
            found.append(Arm(how, kind, label, place, law, ratio(center, spread)))
    return found


def enlarged(data: Data) -> Tensor:
    """Images at 64 × 64, bilinear."""
    import torch
    from torch.nn.functional import interpolate

    return interpolate(torch.tensor(data.x), size=(SIDE, SIDE), mode="bilinear", align_corners=False)


def measured(net: ResNet | Swin, x: Tensor, places: Sequence[Place], init: Init, seed: int) -> dict[str, Any]:
    """One network, drawn, measured at all places and dropped: guess fractions, center and spread of its outputs."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)  # others are at work beside
    try:
        with torch.inference_mode():
            weights = net.draw(init, seed)
            parts = (x,) if net.whole_batch else x.split(_CHUNK)  # BatchNorm sees one batch
            logits = [
                torch.cat([net.logits(part, weights, place) for part in parts]).double().numpy() for place in places
            ]
    finally:
        torch.set_num_threads(before)
    read = [_reading(u) for u in logits]
    return {key: np.stack([one[key] for one in read]) for key in ("fractions", "center", "spread")}


def _reading(u: np.ndarray[Any, Any]) -> dict[str, Any]:
    """theory.md §1: variance of the nodes' means (without what finite data add), average variance over data."""
    n, classes = u.shape
    spread = float(u.var(axis=0, ddof=1).mean())
    counts = np.bincount(u.argmax(axis=1), minlength=classes)
    return {"fractions": counts / n, "center": float(u.mean(axis=0).var(ddof=1)) - spread / n, "spread": spread}


def ratio(center: np.ndarray[Any, Any], spread: np.ndarray[Any, Any]) -> Number:
    """γ of an ensemble: the ratio of averages, with its error over networks."""
    value = float(center.mean() / spread.mean())
    error = float((center - value * spread).std(ddof=1) / spread.mean() / math.sqrt(len(center)))
    return Number(value, error)


def arms_chart(arms: Sequence[Arm], points: int) -> Chart:
    """The average largest fraction of every arm, by initialization."""
    headings = {"Kaiming": "Kaiming initialization", "the library's own": "Initialized as the library does"}
    inits = " or ".join(str(k) for k in sorted({arm.guesses.inits for arm in arms}))
    return dots(
        [{"label": a.label, "place": f"norm {a.place}", "largest": a.largest, "panel": headings[a.how]} for a in arms],
        "label", "largest", by="place", panel="panel", title="The largest guess fraction by the place of the norms",
        subtitle=f"{points} CIFAR-10 images, one batch; {inits} networks a point, the same weights in every place. "
        "ResNet: BatchNorm and ReLU; Swin: LayerNorm and GELU.",
        x_title=f"Average largest of {CLASSES} guess fractions", percent=True, width=440,
    )  # fmt: skip
