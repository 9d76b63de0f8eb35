"""Optimizers and schedulers of `fg.train` for modules: by name, any class of `torch.optim`, or a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast

import torch
from torch import nn, optim

from firstguess.base.errors import InvalidInput

Optimizer: TypeAlias = "str | type[optim.Optimizer] | Callable[[list[nn.Parameter]], optim.Optimizer]"
Scheduler: TypeAlias = "Callable[[optim.Optimizer], Any]"
Schedule: TypeAlias = "float | Callable[[int], float] | None"

NAMED: dict[str, type[optim.Optimizer]] = {"adam": optim.Adam, "sgd": optim.SGD, "gd": optim.SGD}
# What these do to a weight depends on its own gradients only, so that a stack of members is a larger parameter.
_ELEMENTWISE = (
    optim.SGD,
    optim.Adam,
    optim.AdamW,
    optim.Adamax,
    optim.NAdam,
    optim.RAdam,
    optim.Adagrad,
    optim.Adadelta,
    optim.RMSprop,
    optim.Rprop,
    optim.ASGD,
)


@dataclass(frozen=True)
class Recipe:
    """What makes a member's optimizer, and what changes its learning rate after every step."""

    make: Callable[[list[nn.Parameter]], optim.Optimizer]
    rate: Callable[[int], float] | None = None  # of the step
    scheduler: Scheduler | None = None

    def begin(self, parameters: list[nn.Parameter]) -> Stepper:
        """A member's own."""
        return Stepper(self.make(parameters), self)

    def stacked(self, first: Sequence[nn.Parameter], stacks: Mapping[int, nn.Parameter]) -> Stepper | None:
        """One for members whose parameters are stacked, in the groups that the optimizer of one of them has; None where
        it is not known to treat every weight by itself. `first` are one member's parameters, `stacks` all, by id."""
        one = self.make(list(first))
        hooks = [*cast("Any", one)._optimizer_step_pre_hooks, *cast("Any", one)._optimizer_step_post_hooks]
        if type(one) not in _ELEMENTWISE or hooks:
            return None
        groups = [{**group, "params": [stacks[id(p)] for p in group["params"]]} for group in one.param_groups]
        kind = cast("Any", type(one))
        return Stepper(kind(groups, lr=one.defaults["lr"]), self)


class Stepper:
    """An optimizer at work, with its schedule: a gradient, then a step down it."""

    def __init__(self, optimizer: optim.Optimizer, recipe: Recipe) -> None:
        self.optimizer, self._rate = optimizer, recipe.rate
        self._taken = 0
        self._loss: Callable[[], torch.Tensor] | None = None
        self._scheduler = None if recipe.scheduler is None else _scheduler(recipe.scheduler, optimizer)

    def gradient(self, loss: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Compute the gradient of what `loss` gives, in place of the one before."""
        self._loss = loss
        self.optimizer.zero_grad(set_to_none=True)
        value = loss()
        value.backward()
        return value

    def rate(self) -> float:
        """The learning rate of the next step, which is taken to be done."""
        self._set_rate()
        found = float(self.optimizer.param_groups[0]["lr"])
        if self._scheduler is not None:
            self.optimizer.step(cast("Any", lambda: 0.0) if isinstance(self.optimizer, optim.LBFGS) else None)
        self._took()
        return found

    def step(self) -> None:
        """Step down the latest gradient."""
        self._set_rate()
        if isinstance(self.optimizer, optim.LBFGS):  # which takes the gradient itself, more than once
            assert self._loss is not None
            loss = self._loss
            self.optimizer.step(cast("Any", lambda: self.gradient(loss)))
        else:
            self.optimizer.step()
        self._took()

    def _set_rate(self) -> None:
        if self._rate is not None:
            for group in self.optimizer.param_groups:
                group["lr"] = self._rate(self._taken)

    def _took(self) -> None:
        self._taken += 1
        if self._scheduler is not None:
            try:
                self._scheduler.step()
            except ValueError as error:  # OneCycleLR has no step after its last
                raise InvalidInput(
                    "a scheduler for as many steps as are trained", got=f"ValueError: {error}", where="scheduler"
                ) from error


def like(optimizer: optim.Optimizer, model: nn.Module | None) -> Callable[[list[nn.Parameter]], optim.Optimizer]:
    """A function that makes one like an optimizer that exists, for another network's parameters: of the same class,
    with the same groups where they are of `model`'s parameters, each at its first rate."""
    own = [] if model is None else [id(p) for p in model.parameters() if p.requires_grad]
    places = [[own.index(id(p)) for p in group["params"] if id(p) in own] for group in optimizer.param_groups]
    kind, known = cast("Any", type(optimizer)), inspect.signature(type(optimizer)).parameters
    defaults = {key: value for key, value in optimizer.defaults.items() if key in known}

    def make(parameters: list[nn.Parameter]) -> optim.Optimizer:
        if len(places) == 1 or len(parameters) != len(own) or not any(places):
            first = {key: value for key, value in optimizer.param_groups[0].items() if key in known and key != "params"}
            return kind(parameters, **defaults | first)
        groups = [
            {**{k: v for k, v in group.items() if k != "params"}, "params": [parameters[i] for i in place]}
            for group, place in zip(optimizer.param_groups, places, strict=True)
            if place
        ]
        return kind(groups, **defaults)

    return make


def recipe(optimizer: Any, lr: Any, weight_decay: float = 0.0, scheduler: Any = None) -> Recipe:
    """Make a recipe of a name, a class or a function of parameters; `lr`: a number, a function of the step, or None."""
    rate = cast("Callable[[int], float]", lr) if callable(lr) else None
    if rate is not None and scheduler is not None:
        raise InvalidInput("one schedule", got="a scheduler, and lr as a function of the step", where="lr")
    if scheduler is not None and not callable(scheduler):
        raise InvalidInput(
            "a function of an optimizer",
            got=f"a {type(scheduler).__name__}",
            where="scheduler",
            hint="scheduler=lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=1000)",
        )
    options: dict[str, Any] = {} if lr is None else {"lr": lr if rate is None else rate(0)}
    if weight_decay:
        options["weight_decay"] = weight_decay
    if isinstance(optimizer, str):
        if optimizer not in NAMED:
            raise InvalidInput(
                f"an optimizer {', '.join(repr(name) for name in NAMED)}, a class of torch.optim, or a function",
                got=repr(optimizer),
                where="optimizer",
                hint="optimizer=torch.optim.AdamW",
            )
        made: Any = NAMED[optimizer]
    elif inspect.isclass(optimizer) and issubclass(optimizer, optim.Optimizer):
        made = optimizer
    elif isinstance(optimizer, partial) and inspect.isclass(cast("Any", optimizer).func):
        made = cast("Any", optimizer)
        options = {name: value for name, value in options.items() if name not in made.keywords}
    elif callable(optimizer):
        if weight_decay:
            raise InvalidInput("a weight decay within the function", got=weight_decay, where="weight_decay")
        if lr is not None and rate is None:
            raise InvalidInput(
                "the learning rate within the function that makes the optimizer, or a function of the step",
                got=lr,
                where="lr",
                hint=f"optimizer=lambda params: torch.optim.SGD(params, lr={lr:g}, momentum=0.9)",
            )
        made, options = optimizer, {}
    else:
        raise InvalidInput(
            "an optimizer: a name, a class of torch.optim, or a function of parameters",
            got=f"a {type(cast('object', optimizer)).__name__}",
            where="optimizer",
            hint="optimizer=lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9)",
        )
    return Recipe(partial(_made, made, options), rate, scheduler)


def _made(make: Any, options: dict[str, Any], parameters: list[nn.Parameter]) -> optim.Optimizer:
    try:
        found = make(parameters, **options)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            "an optimizer that can be made of the model's parameters",
            got=f"{type(error).__name__}: {error}",
            where="optimizer",
            hint="optimizer=lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9)",
        ) from error
    if not isinstance(found, optim.Optimizer):
        raise InvalidInput("a function that returns an optimizer", got=f"a {type(found).__name__}", where="optimizer")
    return found


def _scheduler(make: Scheduler, optimizer: optim.Optimizer) -> Any:
    try:
        found = make(optimizer)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            "a function that makes a scheduler of an optimizer",
            got=f"{type(error).__name__}: {error}",
            where="scheduler",
            hint="scheduler=lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=1000)",
        ) from error
    if isinstance(found, optim.lr_scheduler.ReduceLROnPlateau) or not hasattr(found, "step"):
        raise InvalidInput(
            "a scheduler that is stepped without a score", got=f"a {type(found).__name__}", where="scheduler"
        )
    return found
