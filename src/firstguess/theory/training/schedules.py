"""Learning rates over training, as plain functions of the step: `fg.schedules`.

Wherever firstguess takes `lr=` a schedule fits; in torch, `LambdaLR(optimizer, cosine(1.0, steps=1000))`: there the
numbers are factors on the optimizer's own rate, so schedules of 1.0 are wanted.

>>> rate = warmup(cosine(0.1, steps=100), steps=10)
>>> [round(rate(k), 4) for k in (0, 9, 10, 60, 110)]
[0.01, 0.1, 0.1, 0.05, 0.0]
>>> print(rate)
cosine from 0.1 to 0 over 100 steps, after a warm-up of 10
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from firstguess.base import checks
from firstguess.base.errors import InvalidInput

Rate: TypeAlias = Callable[[int], float]
Shape: TypeAlias = Literal["constant", "cosine", "linear"]
SHAPES: tuple[Shape, ...] = ("constant", "cosine", "linear")

__all__ = ["SHAPES", "Schedule", "constant", "cosine", "linear", "named", "rates", "warmup"]


@dataclass(frozen=True)
class Schedule:
    """A rate from `lr` to `end` over `steps`, then `end`; before them a ramp of `ramp` steps. Call it with the step."""

    shape: Shape
    lr: float
    steps: int = 0
    end: float = 0.0
    ramp: int = 0

    def __call__(self, step: int) -> float:
        return self._after(0) * (step + 1) / self.ramp if step < self.ramp else self._after(step - self.ramp)

    def _after(self, step: int) -> float:
        if self.shape == "constant":
            return self.lr
        part = min(step / self.steps, 1.0)
        left = 0.5 * (1.0 + math.cos(math.pi * part)) if self.shape == "cosine" else 1.0 - part
        return self.end + (self.lr - self.end) * left

    def __str__(self) -> str:
        words = f"{self.lr:g}"
        if self.shape != "constant":
            words = f"{self.shape} from {self.lr:g} to {self.end:g} over {self.steps} steps"
        return words + (f", after a warm-up of {self.ramp}" if self.ramp else "")


def constant(lr: float) -> Schedule:
    """The same rate at every step."""
    return Schedule("constant", _positive(lr))


def cosine(lr: float, *, steps: int, end: float = 0.0) -> Schedule:
    """Half a cosine from `lr` down to `end` (Loshchilov and Hutter 2017), as torch's CosineAnnealingLR."""
    return Schedule("cosine", _positive(lr), _count(steps), _end(end))


def linear(lr: float, *, steps: int, end: float = 0.0) -> Schedule:
    """A straight line from `lr` to `end`."""
    return Schedule("linear", _positive(lr), _count(steps), _end(end))


def warmup(then: Schedule | float, *, steps: int) -> Schedule:
    """Rise to the first rate of `then` in equal parts, (k + 1)/steps of it at step k; `then` starts after that.

    A warm-up of a warm-up is one ramp of both lengths.
    """
    given = then if isinstance(then, Schedule) else constant(then)
    ramp = _count(steps) + given.ramp
    return Schedule(given.shape, given.lr, given.steps, given.end, ramp)


def named(shape: str, lr: float, *, steps: int, warmup: int = 0) -> Schedule:
    """A schedule as the shell says it: a word, over all `steps` of training, warm-up included.

    >>> print(named("linear", 0.1, steps=100, warmup=20))
    linear from 0.1 to 0 over 80 steps, after a warm-up of 20
    """
    word = checks.choice(shape, SHAPES, "schedule", "schedule")
    if warmup and not 0 < warmup < steps:
        raise InvalidInput(f"a warm-up shorter than the {steps} steps", got=warmup, where="warmup", hint="warmup=10")
    return Schedule(word, _positive(lr), 0 if word == "constant" else _count(steps - warmup), ramp=warmup)


def rates(lr: Any, steps: int, where: str) -> NDArray[np.float64]:
    """The learning rate of every step of training, checked: a number above 0, or a function of the step."""
    if not callable(lr):
        return np.full(steps, _positive(lr, where))
    found = np.array([checks.number(lr(step)) for step in range(steps)])
    bad = np.flatnonzero(~(np.isfinite(found) & (found >= 0)))
    if len(bad):
        step = int(bad[0])
        value = repr(lr(step)) if math.isnan(found[step]) else f"{found[step]:g}"
        raise InvalidInput("learning rates of at least 0", got=f"{value} at step {step}", where=where, hint="lr=1e-3")
    if not found.any():
        raise InvalidInput("a learning rate above 0 at some step", got="0 at all of them", where=where, hint="lr=1e-3")
    return found


def _positive(lr: Any, where: str = "lr") -> float:
    checks.within(lr, "a learning rate above 0", where, "lr=1e-3")
    return float(lr)


def _end(end: Any) -> float:
    checks.within(end, "a last learning rate of at least 0", "end", "end=0", closed=True)
    return float(end)


def _count(steps: Any) -> int:
    return checks.count(steps, 1, "number of steps", "steps", "steps=1000")
