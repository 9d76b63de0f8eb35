"""What theory expects of a watched training: from its own starting logits, where the model can be read."""

from __future__ import annotations

import bisect
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import nn

from firstguess.base import checks
from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.data import Batch
from firstguess.ensemble.predict_training import predict_training
from firstguess.modules.guard import unwrapped
from firstguess.modules.members import weight_statistics
from firstguess.modules.read.read import read
from firstguess.network.network import Network
from firstguess.theory.training.problem import Schedule
from firstguess.theory.training.runs import PredictedTraining
from firstguess.watch.evaluation import Eyes, Look

_STEPS = 5_000  # that are predicted at most
_WEIGHTS = 20_000_000  # parameters of the largest model that is read for this
_DRAWS = 24  # times the one start: where the pace of a network, or the order of its data, is drawn at random
_BETAS, _EPS = (0.9, 0.999), 1e-8

Kind = Literal["gd", "sgd", "adam"]


class _TimeUp(Exception):
    def __init__(self, step: int) -> None:
        self.step = step


class Predictor:
    """Knows how a model is trained, as far as it was told, and what it was at the start."""

    def __init__(
        self, model: nn.Module, batches: Sequence[Batch], lr: Schedule | None, optimizer: Any, batch: int | None,
        seconds: float = 20.0,
    ) -> None:  # fmt: skip
        self._seconds = seconds
        self._lr, self._batch, self._batches = lr, batch, batches
        self._object = optimizer if isinstance(optimizer, torch.optim.Optimizer) else None
        self._kind: Kind = "gd" if batch is None else "sgd"
        self._rates: list[tuple[int, float]] = []
        self._network: Network | None = None
        self._made: tuple[int, tuple[PredictedTraining | None, str]] | None = None
        self._why = ""
        if optimizer is None and lr is None:
            return  # not asked for: nothing is said of it
        if isinstance(optimizer, str):
            if optimizer not in ("gd", "sgd", "adam"):
                raise InvalidInput("optimizer 'gd', 'sgd', 'adam' or a torch.optim one", got=optimizer, where="Watch")
            self._kind = optimizer
        elif self._object is not None:
            found = _kind_of(self._object, batch)
            if found in ("gd", "sgd", "adam"):
                self._kind = found
            else:
                self._why = found
        elif optimizer is not None:
            raise InvalidInput("optimizer 'gd', 'sgd', 'adam' or a torch.optim one", got=type(optimizer).__name__)
        if lr is None and self._object is None:
            raise InvalidInput("the learning rate", got="none", where="Watch(lr)", hint="lr=1e-3")
        if lr is not None and not callable(lr) and not 0 < checks.number(lr) < math.inf:
            raise InvalidInput("a learning rate above 0", got=lr, where="Watch(lr)", hint="lr=1e-3")
        self._why = self._why or self._read(unwrapped(model))

    @property
    def wanted(self) -> bool:
        """Whether a prediction will be made, from the logits of the first look."""
        return self._network is not None

    def see(self, step: int) -> None:
        """Note the learning rate, where an optimizer has it."""
        if self._object is None or self._network is None:
            return
        rate = self._object.param_groups[0]["lr"]
        if not self._rates or rate != self._rates[-1][1]:
            self._rates.append((step, float(rate)))

    def predict(self, looks: Sequence[Look], eyes: Eyes) -> tuple[PredictedTraining | None, str]:
        """The prediction at the steps that were looked at; or None, and why, or nothing where it was not asked for."""
        if self._network is None:
            return None, self._why
        last = looks[-1].step
        if self._made is None or self._made[0] != last:
            self._made = last, self._predicted(looks, eyes)
        return self._made[1]

    def _predicted(self, looks: Sequence[Look], eyes: Eyes) -> tuple[PredictedTraining | None, str]:
        network, first = self._network, eyes.first
        assert network is not None
        if looks[0].step > 0:
            return None, f"the watch began at step {looks[0].step}, and the start is not known"
        if eyes.labels is None or len(eyes.labels) != eyes.points:
            return None, "some points have no label"
        if first is None or looks[0].lost:
            return None, "the first logits are not finite"
        if eyes.single and self._kind == "adam":
            return None, "Adam on one logit is not covered"
        steps = [look.step for look in looks if look.step <= _STEPS]
        if steps[-1] < 1:
            return None, "no step was made yet"
        x = torch.cat([cast("torch.Tensor", batch.inputs) for batch in self._batches]).float().numpy()
        batch = None if self._kind == "gd" else self._batch
        began = time.perf_counter()

        def progress(step: int, last: int) -> None:
            if step < last and time.perf_counter() - began > self._seconds:
                raise _TimeUp(step)

        try:
            t = predict_training(
                network,
                data=(x, eyes.labels),
                lr=self._rate(0.5 if eyes.single else 1.0),
                steps=steps,
                optimizer=self._kind,
                batch=batch,
                start=np.repeat(first[None].astype(np.float64), _DRAWS, axis=0),
                progress=progress,
            )
        except _TimeUp as up:
            limit = f"{self._seconds:g} seconds were up at step {up.step} of {steps[-1]}"
            return None, f"{limit}: fg.Watch(…, predict_seconds=600) takes longer"
        except FirstguessError as error:
            return None, str(error)
        return t, ""

    def _rate(self, factor: float) -> Callable[[int], float]:
        """One logit moves along Θ where the difference of two moves along 2Θ (theory.md (14)): half the rate."""
        lr, rates = self._lr, self._rates
        if lr is not None:
            return (lambda step: factor * lr(step)) if callable(lr) else (lambda step: factor * float(lr))
        changes = [step for step, _ in rates]
        return lambda step: factor * rates[max(0, bisect.bisect_right(changes, step) - 1)][1]

    def _read(self, model: nn.Module) -> str:
        """The model's description into `_network`; or why there is none."""
        if any(not isinstance(batch.inputs, torch.Tensor) or batch.call is not None for batch in self._batches):
            return "inputs are not one tensor"
        if len({cast("torch.Tensor", batch.inputs).shape[1:] for batch in self._batches}) > 1:
            return "inputs have different shapes"
        if sum(p.numel() for p in model.parameters()) > _WEIGHTS:
            return f"a model of more than {_WEIGHTS // 1_000_000} million parameters is not read in passing"
        if any(weight_statistics.score(p) > weight_statistics.TRAINED for p in model.parameters()):
            return "some weights look trained, and theory is of fresh ones"
        if not all(p.requires_grad for p in model.parameters()):
            return "some parameters are frozen"
        try:
            structure = read(model, self._batches[0])
        except FirstguessError as error:
            return str(error)
        if structure.network is None:
            part = structure.unread[0] if structure.unread else None
            return f"the model could not be read{f' ({part.path or part.kind}: {part.why})' if part else ''}"
        self._network = structure.network
        return ""


def _kind_of(optimizer: torch.optim.Optimizer, batch: int | None) -> str:
    """What predictions call it, or why they do not know it."""
    name, groups = type(optimizer).__name__, optimizer.param_groups
    if len({float(group["lr"]) for group in groups}) > 1:
        return "groups of parameters have different learning rates"
    group = groups[0]
    plain = not any(group.get(option) for group in groups for option in ("maximize", "momentum", "nesterov", "amsgrad"))
    if name == "SGD" and plain and not group.get("weight_decay"):
        return "gd" if batch is None else "sgd"
    usual = tuple(group.get("betas", ())) == _BETAS and group.get("eps") == _EPS and plain
    if name in ("Adam", "AdamW") and usual and not group.get("weight_decay"):
        return "adam"
    return f"{name} with these options is not one of plain SGD and Adam without weight decay"
