"""One member in training, and the order of what is done with one or several: look, gradient, step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from firstguess.base.errors import FirstguessError
from firstguess.modules.lessons import Lesson, Logits
from firstguess.modules.optimizers import Recipe


class Pupil(Protocol):
    """One or several members in training; lists are over them."""

    def look(self) -> list[tuple[Logits, Logits | None]]: ...

    def gradient(self) -> None: ...

    def norms(self) -> list[float]: ...

    def step(self) -> None: ...


def teach(
    pupil: Pupil,
    looks: NDArray[np.int64],
    seen: Callable[[int, int, Logits, Logits | None, float], object],
    stopped: Callable[[], bool],
) -> None:
    """Steps until the last look; what is seen is (which of them, look, logits, held-out ones, norm of the gradient that
    the next step takes). Over when all have diverged, or `stopped`, which is asked once before every step."""
    steps = looks.tolist()
    index = 0
    for done in range(steps[-1] + 1):
        looked = done == steps[index]
        if looked:
            # Before the gradient: its forward moves the running statistics that held-out points are normalized by.
            found = pupil.look()
            over = not any(np.isfinite(logits).all() for logits, _ in found)
            if not over:
                pupil.gradient()
            norms = [math.nan] * len(found) if over else pupil.norms()
            for k, (logits, held) in enumerate(found):
                seen(k, index, logits, held, norms[k])
            index += 1
            if over:
                return
        if done == steps[-1] or stopped():
            return
        if not looked:
            pupil.gradient()
        pupil.step()


class Alone:
    """One member. A model that refuses numbers that are not finite has diverged, as others have that return them."""

    def __init__(self, model: nn.Module, lesson: Lesson, recipe: Recipe, rows: Iterator[NDArray[np.int64]]) -> None:
        self.model, self._lesson, self._rows = model, lesson, rows
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._stepper = recipe.begin(self._parameters)
        self._lost = False

    def look(self) -> list[tuple[Logits, Logits | None]]:
        """Logits of training points, and of held-out ones."""
        found: list[tuple[Logits, Logits | None]] = []
        self._tried(lambda: found.append(self._lesson.look(self.model)))
        self.model.train()
        return found or [(self._nothing(), None)]

    def gradient(self) -> None:
        """Of the loss on the next mini-batch, in training mode."""
        train, own = self._lesson.train, next(self._rows)
        rows = slice(0, train.n) if len(own) == train.n else torch.from_numpy(own)
        batch = train.rows(rows, len(own))
        self._tried(lambda: self._stepper.gradient(lambda: self._lesson.loss(self.model, *batch)[0]))

    def norms(self) -> list[float]:
        """Of the gradient."""
        squares = [p.grad.double().square().sum() for p in self._parameters if p.grad is not None]
        return [math.sqrt(float(torch.stack(squares).sum())) if squares else math.nan]

    def step(self) -> None:
        """Down the gradient."""
        self._tried(self._stepper.step)

    def _tried(self, what: Callable[[], object]) -> None:
        if self._lost:
            return
        try:
            what()
        except FirstguessError:
            raise
        except Exception:
            if all(bool(parameter.isfinite().all()) for parameter in self.model.parameters()):
                raise
            self._lost = True

    def _nothing(self) -> Logits:
        return np.full((self._lesson.train.n, 2), math.nan, np.float32)
