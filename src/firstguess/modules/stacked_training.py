"""Several members in training at once: their parameters stacked, one vmapped forward, one optimizer for all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.func import vmap

from firstguess.modules.labelled import Labelled
from firstguess.modules.lessons import Lesson, Logits, as_array
from firstguess.modules.optimizers import Recipe
from firstguess.modules.stacked import Functional, places


class Stack:
    """Members of one model, which has no state that a forward writes and nothing random in it (`Pupil` of pupils.py).

    `rows`: the points of each member's mini-batches.
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        lesson: Lesson,
        recipe: Recipe,
        rows: Sequence[Iterator[NDArray[np.int64]]],
    ) -> None:
        self._model, self._lesson, self._rows = models[0], lesson, rows
        self._places = places(self._model)
        self.parameters: dict[str, nn.Parameter] = {}
        self._fixed: dict[str, torch.Tensor] = {}
        named = [dict((*model.named_parameters(), *model.named_buffers())) for model in models]
        for name, first in named[0].items():
            tensors = [own[name].detach() for own in named]
            if isinstance(first, nn.Parameter) and first.requires_grad:
                self.parameters[name] = nn.Parameter(torch.stack(tensors))
            elif not all(torch.equal(tensor, tensors[0]) for tensor in tensors[1:]):
                self._fixed[name] = torch.stack(tensors)
        own = {name: p for name, p in self._model.named_parameters() if name in self.parameters}
        found = recipe.stacked(list(own.values()), {id(p): self.parameters[name] for name, p in own.items()})
        if found is None:
            raise NotImplementedError("this optimizer is not known to treat every weight by itself")
        self._stepper = found

    def gradient(self) -> None:
        """Of the loss on each member's next mini-batch."""
        self._model.train()
        points = self._lesson.train
        parts = [next(own) for own in self._rows]
        if len(parts[0]) == points.n:
            every = slice(0, points.n)
            self._stepper.gradient(lambda: self._each(points, every, points.n)[0].sum())
            return
        rows = torch.from_numpy(np.stack(parts))
        self._stepper.gradient(lambda: self._each(points, rows, rows.shape[1])[0].sum())

    def norms(self) -> list[float]:
        """Of the gradient."""
        squares = [p.grad.flatten(1).double().square().sum(1) for p in self.parameters.values() if p.grad is not None]
        return torch.stack(squares).sum(0).sqrt().tolist()

    def step(self) -> None:
        """Down the gradient."""
        self._stepper.step()

    def look(self) -> list[tuple[Logits, Logits | None]]:
        """As `Lesson.look`, member by member."""
        self._model.eval()
        train = self._logits(self._lesson.train)
        held = None if self._lesson.held is None else self._logits(self._lesson.held)
        return [(one, None if held is None else held[k]) for k, one in enumerate(train)]

    def _logits(self, points: Labelled) -> list[Logits]:
        with torch.no_grad():
            found = [self._each(points, rows, rows.stop - rows.start)[1] for rows in self._lesson.chunks(points)]
        return [as_array(own) for own in torch.cat(found, 1)]

    def _each(self, points: Labelled, rows: torch.Tensor | slice, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Every member's loss and logits on its own `rows`, or on those that all share."""

        def one(tensors: dict[str, torch.Tensor], own: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self._lesson.loss(self._with(tensors), *points.rows(own, size))

        def shared(tensors: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
            return self._lesson.loss(self._with(tensors), *points.rows(rows, size))

        tensors = {**self.parameters, **self._fixed}
        if isinstance(rows, slice):
            return vmap(shared, randomness="error")(tensors)
        return vmap(one, randomness="error")(tensors, rows)

    def _with(self, tensors: dict[str, torch.Tensor]) -> nn.Module:
        return Functional(self._model, {name: tensors[first] for name, first in self._places if first in tensors})
