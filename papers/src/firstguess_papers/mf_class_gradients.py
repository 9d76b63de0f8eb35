"""MF §4: gradients of single classes in the first steps, and whether networks with unequal ones learn more slowly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from firstguess_papers.items import Entry
from firstguess_papers.judging import Number, all_of, below, check, claimed
from firstguess_papers.library import Curve, looked_at
from firstguess_papers.measured import Found, measured
from firstguess_papers.mf_first_steps import overshoot, rank_correlation, starts
from firstguess_papers.mf_simulation import mf_settings
from firstguess_papers.running import Run
from firstguess_papers.training_pieces import MEMBERS, Array, predicted
from firstguess_papers.training_speed import SAME_SCORE, balanced, exceeds

if TYPE_CHECKING:
    from firstguess.data import Data
    from firstguess_papers.library import Chart
    from firstguess_papers.training_charts import Line

_TIE = -0.3  # a rank correlation stronger than this: a tenth of the differences in speed
_CHUNK = 60  # networks a piece
_RATE = 0.2  # of the overshoot


@dataclass(frozen=True, eq=False)
class Pulls:
    """Of one arm: norms of classes' gradients (networks, looks, classes), shares, accuracies; those made equal."""

    steps: Any
    norms: Array
    shares: Array
    right: Array
    evened: Array  # accuracies of the first networks, with gradients of equal length
    known: Array  # accuracies predicted from the same starts

    @property
    def imbalance(self) -> Array:
        """|ln| of the ratio of the two classes' gradients at the start, of every network."""
        return np.abs(np.log(self.norms[:, 0, 0] / self.norms[:, 0, 1]))

    @property
    def speed(self) -> Array:
        """Accuracy on training points, averaged over looks from step 1 on."""
        return self.right[:, self.steps >= 1].mean(axis=1)

    def tie(self) -> Number:
        """Rank correlation, over networks, of imbalance and speed."""
        n = len(self.right)
        value = float(rank_correlation(self.imbalance, self.speed))
        return Number(value, 1 / math.sqrt(n - 3) if n >= MEMBERS else math.nan)

    def third(self, unequal: bool) -> Any:
        """Which networks are in the third with the most, or least, unequal gradients."""
        cut = np.quantile(self.imbalance, 2 / 3 if unequal else 1 / 3)
        return self.imbalance >= cut if unequal else self.imbalance <= cut


def _pulls(run: Run, name: str, x: Data, *, depth: int, width: int, steps: int, many: int, few: int) -> Pulls:
    from firstguess_papers.class_gradients import EQUAL, PLAIN, follow

    text = next(s for s in mf_settings() if s.name == name).text(depth)
    rate = _RATE * overshoot(run, text, x, width, name)
    looks = looked_at(steps)
    assert x.y is not None
    y = np.asarray(x.y, dtype=np.int64)

    def part(how: str, members: range) -> dict[str, Any]:
        def compute() -> dict[str, Any]:
            norms, shares, right = follow(
                text, x.x, y, members=members, width=width, lr=rate, looks=looks.tolist(), seed=run.seed, how=how,
                progress=lambda done, total: run.progress(f"gradients of {name}", done, total),
            )  # fmt: skip
            return {"norms": norms, "shares": shares, "right": right}

        key = {"pulls": text, "how": how, "members": [members.start, members.stop], "width": width, "lr": rate}
        label = f"gradients of {name}, {how}, {members.start + 1} to {members.stop}"
        return run.piece(key | {"steps": steps, "data": x.hash}, compute, label=label)

    found = [part(PLAIN, range(a, min(a + _CHUNK, many))) for a in range(0, many, _CHUNK)]
    norms, shares, right = (np.concatenate([p[k] for p in found]) for k in ("norms", "shares", "right"))
    evened = np.asarray(part(EQUAL, range(few))["right"])
    own = starts(run, text, x.x, 2, range(many), width, name)
    known = predicted(
        run, text, x, label=f"{name}, two classes", lr=rate, steps=steps, width=width, optimizer="gd", start=own
    ).accuracy.draws
    return Pulls(looks, norms, shares, right, evened, known)


def judged_pulls(pulls: dict[str, Pulls]) -> Entry:
    """M15, its first half; the second is mf/lr-search."""
    return claimed(
        "M15", "“unequal gradients of classes slow learning”: over networks at the edge",
        [check(f"{name}, rank correlation of imbalance at the start and speed of learning", p.tie(), below=_TIE)
         for name, p in pulls.items()],
        within=[exceeds(f"{name}, speed with gradients of equal length", p.evened[:, p.steps >= 1].mean(axis=1),
                        p.speed[: len(p.evened)], room=SAME_SCORE, than="the same networks' own")
                for name, p in pulls.items()],
        limit="networks with unequal gradients are slower, but equal lengths do not make them faster",
        headline="; ".join(f"{name}: rank correlation {p.tie()}" for name, p in pulls.items()),
        otherwise="imbalance at the start explains little of the speed, or the opposite",
        also="typical imbalance × " + ", ".join(f"{math.exp(float(np.median(p.imbalance))):.2f} ({name})"
                                                for name, p in pulls.items()),
    )  # fmt: skip


def _ticks(lines: list[Line]) -> tuple[float, float]:
    """Half decades around all curves: axes begin and end with a tick."""
    means = np.concatenate([line.trained.mean for line in lines if line.trained is not None])
    return math.floor(2 * float(np.nanmin(means)) - 0.2) / 2, math.ceil(2 * float(np.nanmax(means)) + 0.2) / 2


def _pull_chart(pulls: dict[str, Pulls], settings: str) -> Chart:
    from firstguess_papers.training_charts import Line, arms_chart

    panels: dict[str, list[Line]] = {}
    plain: list[str] = []
    for name, p in pulls.items():
        favoured = p.shares[:, 0].argmax(axis=1)
        each = np.arange(len(favoured))
        heading = f"{name}: log10 of gradient's norm"
        plain.append(heading)
        panels[heading] = [
            Line(words, Curve(p.steps, np.log10(p.norms[each, :, which])))
            for words, which in (("class favoured at the start", favoured), ("other class", 1 - favoured))
        ]
        panels[f"{name}: accuracy, training"] = [
            Line(words, Curve(p.steps, p.right[p.third(unequal)]), Curve(p.steps, p.known[p.third(unequal)]))
            for words, unequal in (("third with the most equal gradients", False), ("with the least equal", True))
        ]
    slower = all_of(below(p.tie(), _TIE) for p in pulls.values())
    titles = {
        True: "Networks whose classes pull unequally at the start learn more slowly",
        False: "How unequally classes pull at the start says little about the speed of learning",
        None: "Gradients of classes in the first steps, and the speed of learning",
    }
    return arms_chart(
        panels,
        title=titles[slower],
        subtitle=[f"{settings}, full batches."],
        columns=2,
        plain=plain,
        y_domains={h: _ticks(lines) if h in plain else (0.4, 1.0) for h, lines in panels.items()},
        width=430,
    )


def _found(c: Found) -> dict[str, Any]:
    x = balanced(c.run.data("fashion_mnist:parity", points=3 * c.points), c.points)
    sizes: dict[str, Any] = {"depth": c.depth, "width": c.width, "steps": c.steps, "many": c.many, "few": c.few}
    return {"images": x.n, "pulls": {name: _pulls(c.run, name, x, **sizes) for name in ("ReLU, edge", "tanh, edge")}}


class_gradients = measured(
    "mf/class-gradients", "The first steps: unequal gradients of classes", "MF §4", claims=("M15",),
    needs=("fashion_mnist",),
    about="Fashion-MNIST by parity, {points} images, as many of each class, full batches; ReLU and tanh at the edge, "
    "{depth} hidden layers of {width}, {steps} steps, {many} networks each, {few} with gradients made equal. Sizes "
    "and the rate (0.2 of the overshoot) are ours.",
    quick=dict(depth=5, width=40, steps=20, many=40, few=10, points=80),
    full=dict(depth=10, width=80, steps=50, many=240, few=24, points=150),
    seconds=(15, 150),
    quantities=_found,
    judge=lambda c: [judged_pulls(c.pulls)],
    tables=lambda c: {"gradients": [
        {"arm": name, "network": i, "imbalance": float(a), "speed": float(b)}
        for name, p in c.pulls.items() for i, (a, b) in enumerate(zip(p.imbalance, p.speed, strict=True))
    ]},
    charts=lambda c: {"gradients": _pull_chart(
        c.pulls, f"{c.many} networks each, {c.depth} hidden layers of {c.width}; {c.images} images of Fashion-MNIST by "
        "parity",
    )},
    notes=[
        "Gradients: norms over all weights of the gradient of the mean loss on one class. Made equal: every class's "
        "gradient is given the same length, and the step the length that it had.",
        "What the search for a learning rate gains at the edge is in mf/lr-search.",
    ],
)  # fmt: skip
