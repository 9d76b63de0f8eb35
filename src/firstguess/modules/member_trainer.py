"""What a model in training is asked: its loss on some points, its logits on all of them, its gradient."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F

from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.data import Batch
from firstguess.modules.call_model import Caller, Labelled
from firstguess.modules.members.initializers import RUNNING_NORMS
from firstguess.modules.optimizers import Recipe
from firstguess.modules.outputs import Pick, as_rows, find_logits

Loss: TypeAlias = "str | Callable[[torch.Tensor, torch.Tensor], torch.Tensor]"
Logits: TypeAlias = NDArray[np.float32]


class Objective:
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
        self.train, self.held, self.loss_of, self._pick = train, held, loss, pick
        self.most = train.n
        self._call = Caller()
        self.single: tuple[int, ...] | None = None  # of one logit: the axes after the points in its shape

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
        if not isinstance(self.loss_of, str):
            return self.loss_of(raw, labels), rows
        if self.loss_of == "squared":
            if self.single is not None:
                raise InvalidInput("a logit for every class, for squared loss", got="one logit", where="loss")
            return 0.5 * (rows - F.one_hot(labels, rows.shape[1])).square().sum(1).mean(), rows
        return F.cross_entropy(rows, labels), rows

    def mean(self, logits: NDArray[Any], labels: NDArray[np.int64]) -> float:
        """The loss over all of some points, by their logits: for a loss of the user's."""
        assert not isinstance(self.loss_of, str)
        rows = torch.from_numpy(np.asarray(logits, np.float32))
        if self.single is not None:
            rows = rows[:, 1].reshape(len(rows), *self.single)
        with torch.no_grad():
            return float(self.loss_of(rows, torch.from_numpy(labels)))

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


# One member in training, and the order of what is done with one or several: look, gradient, step.


class MemberTrainer(Protocol):
    """One or several members in training; lists are over them."""

    def look(self) -> list[tuple[Logits, Logits | None]]: ...

    def gradient(self) -> None: ...

    def norms(self) -> list[float]: ...

    def step(self) -> None: ...


def run_steps(
    member: MemberTrainer,
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
            found = member.look()
            over = not any(np.isfinite(logits).all() for logits, _ in found)
            if not over:
                member.gradient()
            norms = [math.nan] * len(found) if over else member.norms()
            for k, (logits, held) in enumerate(found):
                seen(k, index, logits, held, norms[k])
            index += 1
            if over:
                return
        if done == steps[-1] or stopped():
            return
        if not looked:
            member.gradient()
        member.step()


class SingleMember:
    """One member. A model that refuses numbers that are not finite has diverged, as others have that return them."""

    def __init__(
        self, model: nn.Module, objective: Objective, recipe: Recipe, rows: Iterator[NDArray[np.int64]]
    ) -> None:
        self.model, self._objective, self._rows = model, objective, rows
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._stepper = recipe.begin(self._parameters)
        self._lost = False

    def look(self) -> list[tuple[Logits, Logits | None]]:
        """Logits of training points, and of held-out ones."""
        found: list[tuple[Logits, Logits | None]] = []
        self._tried(lambda: found.append(self._objective.look(self.model)))
        self.model.train()
        return found or [(self._nothing(), None)]

    def gradient(self) -> None:
        """Compute the gradient of the loss on the next mini-batch, in training mode."""
        train, own = self._objective.train, next(self._rows)
        rows = slice(0, train.n) if len(own) == train.n else torch.from_numpy(own)
        batch = train.rows(rows, len(own))
        self._tried(lambda: self._stepper.gradient(lambda: self._objective.loss(self.model, *batch)[0]))

    def norms(self) -> list[float]:
        """Norm of the gradient."""
        squares = [p.grad.double().square().sum() for p in self._parameters if p.grad is not None]
        return [math.sqrt(float(torch.stack(squares).sum())) if squares else math.nan]

    def step(self) -> None:
        """Step down the gradient."""
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
        return np.full((self._objective.train.n, 2), math.nan, np.float32)
