"""What a user will train with: optimizer, rate and loss, as theory takes them and as copies are trained with them."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from functools import partial
from typing import Any, cast, get_args

import torch
from torch import nn, optim
from torch.nn import functional as F

from firstguess.base import checks
from firstguess.base.errors import InvalidInput
from firstguess.diagnosis.bias_duration import Optimizer
from firstguess.modules.optimizers import like, recipe

RATES: dict[str, float] = {"adam": 1e-3, "sgd": 1e-2, "gd": 1e-2}  # where nothing is said, and theory chooses none


@dataclass(frozen=True, eq=False)
class TrainedWith:
    """`named` is what theory follows (None: it has no theory of this), `make` what copies are trained with."""

    named: Optimizer | None
    make: Any
    lr: float | None  # the user's; None where copies take their optimizer's own, or nothing was said
    loss: Any
    title: str
    chosen: bool  # optimizer and rate are ours

    @property
    def why(self) -> str:
        """Why theory says nothing."""
        if self.named is None:
            return f"there is no theory of {self.title} here"
        return "" if self.loss == "cross-entropy" else "theory is of cross-entropy"

    def rate(self, predicted: float) -> float:
        """Of copies: the user's, else the one that theory chose, else a usual one."""
        if self.lr is not None:
            return self.lr
        known = predicted if math.isfinite(predicted) and self.named != "adam" else math.nan
        return RATES[self.named or "adam"] if math.isnan(known) else known

    def words(self, predicted: float) -> str:
        """Optimizer, rate and loss."""
        loss = "" if self.loss == "cross-entropy" else f" and {_name(self.loss)}"
        return f"{self.title} at lr {self.rate(predicted):.3g}{loss}"


def trained_with(optimizer: Any, lr: float | None, loss: Any, model: object) -> TrainedWith:
    """Checked before anything is measured. `model` is whose parameters an optimizer that exists already has."""
    if lr is not None and not (not isinstance(lr, bool) and 0 < checks.number(lr) < math.inf):
        raise InvalidInput("a learning rate above 0", got=repr(lr), where="diagnose(lr)", hint="lr=1e-3")
    if loss is not None and not callable(loss) and loss not in ("cross-entropy", "squared"):
        raise InvalidInput(
            "a loss: a function of outputs and labels, 'cross-entropy' or 'squared'",
            got=repr(loss),
            where="diagnose(loss)",
            hint="loss=nn.CrossEntropyLoss()",
        )
    used = "cross-entropy" if loss is None or _is_cross_entropy(loss) else loss
    if optimizer is None or isinstance(optimizer, str):
        if optimizer is not None and optimizer not in get_args(Optimizer):
            expected = "optimizer 'gd', 'sgd' or 'adam', an optimizer of torch's, or a function of the parameters"
            raise InvalidInput(expected, got=repr(optimizer), where="diagnose(optimizer)", hint="optimizer='adam'")
        named = cast("Optimizer", optimizer or "adam")
        title = {"adam": "Adam", "sgd": "SGD", "gd": "gradient descent"}[named]
        return TrainedWith(named, named, lr, used, title, chosen=optimizer is None and lr is None)
    if isinstance(optimizer, optim.Optimizer):
        if lr is not None:
            raise InvalidInput("the rate within the optimizer", got=lr, where="diagnose(lr)", hint="leave lr= out")
        made: Any = like(optimizer, model if isinstance(model, nn.Module) else None)
        example = optimizer
    else:
        made = partial(optimizer, lr=lr) if lr is not None and inspect.isclass(optimizer) else optimizer
        example = recipe(made, None).make([nn.Parameter(torch.zeros(1))])
    group = example.param_groups[0]
    named = _named(example) if len(example.param_groups) == 1 else None
    return TrainedWith(named, made, float(group["lr"]), used, type(example).__name__, chosen=False)


def _named(optimizer: optim.Optimizer) -> Optimizer | None:
    group = optimizer.param_groups[0]
    if group.get("weight_decay") or group.get("amsgrad") or group.get("maximize"):
        return None
    if type(optimizer) is optim.SGD:
        return "sgd" if not group["momentum"] else None
    return "adam" if type(optimizer) is optim.Adam and tuple(group["betas"]) == (0.9, 0.999) else None


def _is_cross_entropy(loss: Any) -> bool:
    if loss is F.cross_entropy or loss == "cross-entropy":
        return True
    return type(loss) is nn.CrossEntropyLoss and loss.weight is None and not loss.label_smoothing


def _name(loss: Any) -> str:
    return loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
