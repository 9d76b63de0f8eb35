"""How long the bias will last in training: what is said of it, and of which numbers.

What is followed is how much of the starting bias is left: by how much the accuracy on a class still depends on which
class a network favoured at the start. (When the largest share falls to a level says less: outputs that hardly differ
yet all follow the labels' majority for a while, which is no bias of the start.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from firstguess.base.text import percent, percents, plain
from firstguess.theory.training.curves import Accuracy
from firstguess.theory.training.result import PredictedTraining, Trust

Optimizer = Literal["gd", "sgd", "adam"]
Array = NDArray[np.float64]

LEFT = 0.25  # of the starting bias: gone, for the page. Its last tenth is known less well: networks differ in pace
EDGE = 0.1  # a part of it that may be there or not: so well is it known
_APART = 1.5  # two numbers of steps that do not agree: the page says both, and compares neither
_FOLLOWS = 0.2  # beyond the labels' own largest share: outputs that hardly differ follow their majority for a while
_EARLY, _LATE, _FASTER = 0.25, 0.5, 3.0  # part of learning that is done by then; bias to signal


@dataclass(frozen=True, eq=False)
class Lasting:
    """How long the bias lasts in training, or `why` that is not known.

    `left` is the part of the starting bias that is left at `at`: accuracies by class, regressed over initializations
    on those of the start (1 at the start; negative where other classes are favoured in turn). `steps` is the step from
    which on it stays within a quarter; `half` within a half. `low` and `high` are `steps` for labels one standard
    error less or more even than those of the points, where there are more points than these, and for a swing to other
    classes that is a little less or more (NaN: neither matters). `largest` and `accuracy`
    are averages at the start and at `steps`. `ratio` is bias to signal (theory.md (15)); `overshoot` the learning rate
    from which on classes hand over to each other. `own` is the model's squared gradient of the bias by the kernel's,
    with its spread over networks; `own_signal` that of the labels' direction.
    """

    why: str = ""
    optimizer: Optimizer = "gd"
    lr: float = math.nan
    chosen: bool = False  # the rate is ours, not the user's
    batch: int | None = None
    steps: float = math.nan
    low: float = math.nan
    high: float = math.nan
    half: float = math.nan
    ratio: float = math.nan
    largest: tuple[float, float] = (math.nan, math.nan)
    accuracy: tuple[float, float] = (math.nan, math.nan)
    majority: float = math.nan  # the labels' largest share
    overshoot: float = math.nan
    at: tuple[float, ...] = ()
    left: tuple[float, ...] = ()
    points: int = 0
    inits: int = 0
    own: tuple[float, float] = (math.nan, math.nan)
    own_signal: tuple[float, float] = (math.nan, math.nan)
    trust: Trust | None = None
    training: PredictedTraining | None = None  # in steps of `scale` each
    scale: float = 1.0

    @property
    def known(self) -> bool:
        return not self.why

    @property
    def uncertain(self) -> bool:
        """Whether several numbers of steps are possible, which differ."""
        return self.high > _APART * self.low

    @property
    def learned(self) -> float:
        """The part of what accuracy can gain that it has gained by then."""
        base = max(self.accuracy[0], self.majority)
        return (self.accuracy[1] - base) / (1.0 - base) if base < 1.0 else 1.0

    @property
    def early(self) -> bool:
        """Gone before much is learned: both by the accuracy at that step and by the kernel's modes."""
        sure = math.isfinite(self.steps) and not self.uncertain
        return self.known and sure and self.learned <= _EARLY and self.ratio >= _FASTER

    @property
    def late(self) -> bool:
        """Not gone before most is learned, by both."""
        return self.known and self.learned >= _LATE and self.ratio < _FASTER

    @property
    def how(self) -> str:
        """Optimizer and rate, in words."""
        name = "Adam" if self.optimizer == "adam" else "gradient descent"
        batches = "" if self.batch is None else f" in batches of {self.batch}"
        ours = ", its default" if self.optimizer == "adam" else ", a quarter of the rate at which the bias overshoots"
        return f"{name}{batches} at lr {self.lr:.3g}{f' ({ours[2:]}; lr= is yours)' if self.chosen else ''}"

    @property
    def words(self) -> str:
        """What to do about it, in a few sentences."""
        if self.why:
            return self.why
        if not math.isfinite(self.steps):
            late = f"more than a quarter of the starting bias is left after {self._last} steps"
            return f"with {self.how} {late} (more seconds= look further)"
        about = "roughly" if self.optimizer == "adam" else "about"
        if self.uncertain:
            most = self._number(self.high) if math.isfinite(self.high) else f"more than {self._last}"
            count = f"{self._number(self.low)} to {most} steps"
            why = "outputs differ so little that it depends on how even the labels are, which so few points do not tell"
            if min(self.left, default=0.0) < EDGE - LEFT:
                why = "on the way other classes are favoured in turn, and how much is not known well enough"
            return f"with {self.how} three quarters of the starting bias are gone after {count}: {why}"
        count = self._count(self.steps)
        text = f"with {self.how} three quarters of the starting bias are gone after {about} {count}"
        then = "accuracy is {} by then, {} at the start".format(*percents(self.accuracy[1], self.accuracy[0]))
        faster = f"the bias moves {_rounded(self.ratio)} × faster than the labels' signal"
        if self.early:
            do = ": nothing to do" if self.optimizer != "adam" else ""
            text += f", before much is learned ({then}; {faster}){do}"
        elif self.late:
            text += f", but most is learned before that ({then}): where classes matter, change the network first"
        else:
            text += f" ({then}; {faster})"
        if self.steps > 3:  # nobody evaluates before
            text += f". Scores by class before step {self._number(self.steps)} still show the start's bias"
        text += self._swing()
        if self.largest[1] > self.majority + _FOLLOWS:
            text += f". The largest share is still {percent(self.largest[1])} then"
        return f"{text}. Predicted from {self.points} points and {self.inits} initializations; none was trained"

    def _count(self, steps: float) -> str:
        number = self._number(steps)
        return "one step" if number == "1" else f"{number} steps"

    def _number(self, steps: float) -> str:
        """With as many digits as are known: one for Adam."""
        return _rounded(max(1.0, float(round(steps))), 1 if self.optimizer == "adam" else 2)

    @property
    def _last(self) -> str:
        return self._number(self.at[-1]) if self.at else "0"

    def _swing(self) -> str:
        lowest = int(np.argmin(self.left)) if self.left else 0
        if not self.left or self.left[lowest] >= -LEFT:
            return ""
        part, step = -self.left[lowest], self._number(self.at[lowest])
        return f". On the way it is thrown over to the other classes: {part:.1g} of it, reversed, at step {step}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        names = ("why", "optimizer", "lr", "chosen", "batch", "steps", "low", "high", "half", "ratio", "majority")
        found = {name: getattr(self, name) for name in (*names, "overshoot", "points", "inits")}
        for name in ("largest", "accuracy"):
            found[name] = {"start": getattr(self, name)[0], "then": getattr(self, name)[1]}
        found["left"] = {"steps": list(self.at), "part": list(self.left)}
        for name in ("own", "own_signal"):
            found[name] = {"ratio": getattr(self, name)[0], "spread": getattr(self, name)[1]}
        found["trust"] = None if self.trust is None else str(self.trust)
        return plain({"words": self.words, **found})


def _rounded(value: float, digits: int = 2) -> str:
    """
    >>> _rounded(432.1), _rounded(12345.0, 1), _rounded(5.46)
    ('430', '10 000', '5.5')
    """
    value = float(f"{value:.{digits}g}")
    return f"{value:,.0f}".replace(",", " ") if value >= 10 or value == int(value) else f"{value:g}"


def left_of(accuracy: Accuracy | Array, *, within: bool = False) -> Array:
    """The part of the starting bias that is left, at every step: accuracies by class (classes, networks, steps),
    regressed on those of step 0.

    From both the average over networks is subtracted, class by class: what all networks do alike (learning, the labels'
    majority) is no memory of a start. `within`: that over classes instead, for a few networks. NaN where starts do not
    differ.
    """
    if isinstance(accuracy, Accuracy):
        accuracy = np.stack([group for which, group in accuracy.groups.items() if isinstance(which, int)])
    apart = accuracy - accuracy.mean(axis=0 if within else 1, keepdims=True)
    first = apart[:, :, :1]
    total = float(np.square(first).sum())
    return (apart * first).sum(axis=(0, 1)) / total if total > 0 else np.full(accuracy.shape[2], math.nan)


def settled(steps: NDArray[Any], left: Array, level: float) -> float:
    """The step from which on |left| stays within `level`, between those that were looked at; inf: not within these.

    >>> settled(np.array([0, 1, 2, 4]), np.array([1.0, 0.5, -0.5, 0.0]), 0.25)
    3.0
    """
    beyond = np.flatnonzero(~(np.abs(left) <= level))
    if not len(beyond):
        return 0.0
    k = int(beyond[-1])
    if k == len(left) - 1:
        return math.inf
    edge = math.copysign(level, left[k])
    part = (left[k] - edge) / (left[k] - left[k + 1])
    return float(steps[k] + part * (steps[k + 1] - steps[k]))
