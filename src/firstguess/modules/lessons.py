"""What a model in training is asked: its loss on some points, its logits on all of them, its gradient."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F

from firstguess.base.errors import InvalidInput
from firstguess.data import Batch
from firstguess.modules.calling import Caller
from firstguess.modules.initializers import RUNNING_NORMS
from firstguess.modules.labelled import Labelled
from firstguess.modules.outputs import Pick, as_rows, find_logits

Loss: TypeAlias = "str | Callable[[torch.Tensor, torch.Tensor], torch.Tensor]"
Logits: TypeAlias = NDArray[np.float32]


class Lesson:
    """Training points and held-out ones, and the loss.

    At a look dropout is off. BatchNorms normalize training points by the batch, as in training (running statistics stay
    what they were), and held-out points by running statistics. The batch is all training points, or (`most`) as many as
    memory has room for.
    """

    def __init__(self, train: Labelled, held: Labelled | None, loss: Loss, pick: Pick) -> None:
        if isinstance(loss, str) and loss not in ("cross-entropy", "squared"):
            raise InvalidInput(
                "a loss 'cross-entropy', 'squared', or a function of logits and labels",
                got=loss,
                where="loss",
                hint="loss=torch.nn.CrossEntropyLoss(label_smoothing=0.1)",
            )
        self.train, self.held, self._loss, self._pick = train, held, loss, pick
        self.most = train.n
        self._call = Caller()
        self.single: tuple[int, ...] | None = None  # of one logit: what stands behind the points in its shape

    # -- One call -----------------------------------------------------------------------------------------------------

    def rows(self, model: nn.Module, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (points, classes), of one logit as (0, z); and the output as it was, for a loss of the user's."""
        raw = find_logits(self._call(model, batch, copies=True), self._pick)
        rows = as_rows(raw, batch, self._pick)
        if len(rows) != batch.size:
            raise InvalidInput(
                "one guess a point, to train",
                got=f"logits of shape {tuple(raw.shape)}, a guess at every position",
                where="the model's output",
                hint="logits=lambda output: output[:, 0] picks one",
            )
        if rows.ndim == 1:
            self.single = tuple(raw.shape[1:])
            return torch.stack((torch.zeros_like(rows), rows), 1), raw
        return rows, raw

    def loss(self, model: nn.Module, batch: Batch, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Averaged over the points of a batch, and the logits."""
        rows, raw = self.rows(model, batch)
        labels = labels.to(rows.device)
        if not isinstance(self._loss, str):
            return self._loss(raw, labels), rows
        if self._loss == "squared":
            if self.single is not None:
                raise InvalidInput("a logit for every class, for squared loss", got="one logit", where="loss")
            return 0.5 * (rows - F.one_hot(labels, rows.shape[1])).square().sum(1).mean(), rows
        return F.cross_entropy(rows, labels), rows

    def mean(self, logits: NDArray[Any], labels: NDArray[np.int64]) -> float:
        """The loss over all of some points, by their logits: for a loss of the user's."""
        assert not isinstance(self._loss, str)
        rows = torch.from_numpy(np.asarray(logits, np.float32))
        if self.single is not None:
            rows = rows[:, 1].reshape(len(rows), *self.single)
        with torch.no_grad():
            return float(self._loss(rows, torch.from_numpy(labels)))

    # -- All points ---------------------------------------------------------------------------------------------------

    def chunks(self, points: Labelled) -> Iterator[slice]:
        """Points of one forward at a look: all of them, or as many as memory has room for."""
        edges = np.linspace(0, points.n, -(-points.n // max(self.most, 1)) + 1).round().astype(int).tolist()
        yield from (slice(a, b) for a, b in pairwise(edges))

    def look(self, model: nn.Module) -> tuple[Logits, Logits | None]:
        """Logits of training points, and of held-out ones."""
        train = self.first(model)
        if self.held is None:
            return train, None
        model.eval()
        return train, self._outputs(model, self.held)

    def first(self, model: nn.Module) -> Logits:
        """Logits of training points."""
        with looking(model):
            return self._outputs(model, self.train)

    def _outputs(self, model: nn.Module, points: Labelled) -> Logits:
        with torch.no_grad():
            found = [self.rows(model, points.rows(rows, rows.stop - rows.start)[0])[0] for rows in self.chunks(points)]
        return as_array(torch.cat(found))


def as_array(rows: torch.Tensor) -> Logits:
    return rows.detach().to("cpu", torch.float32).numpy()


@contextmanager
def looking(model: nn.Module) -> Generator[None]:
    """Dropout off, norms over the data at hand; their running statistics come back as they were."""
    model.eval()
    norms = [module for module in model.modules() if isinstance(module, RUNNING_NORMS)]
    kept = [(buffer, buffer.clone()) for module in norms for buffer in module.buffers(recurse=False)]
    for module in norms:
        module.training = True
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in kept:
                buffer.copy_(value)
