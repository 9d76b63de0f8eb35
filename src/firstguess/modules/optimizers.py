"""Modules in training: optimizers and schedulers, what a member is asked, one member or several at once."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn, optim
from torch.func import vmap
from torch.nn import functional as F

from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.data import Batch
from firstguess.ensemble.training_engine import gradient_norms
from firstguess.modules.call_model import Labelled
from firstguess.modules.members.initializers import RUNNING_NORMS
from firstguess.modules.outputs import LogitCaller, Pick, by_class
from firstguess.modules.stacked import Functional, places

Optimizer: TypeAlias = "str | type[optim.Optimizer] | Callable[[list[nn.Parameter]], optim.Optimizer]"
Scheduler: TypeAlias = "Callable[[optim.Optimizer], Any]"
Schedule: TypeAlias = "float | Callable[[int], float] | None"

NAMED: dict[str, type[optim.Optimizer]] = {"adam": optim.Adam, "sgd": optim.SGD, "gd": optim.SGD}
_AN_OPTIMIZER = "optimizer=lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9)"
_A_SCHEDULER = "scheduler=lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=1000)"
# What these do to a weight depends on its own gradients only, so that a stack of members is a larger parameter.
_ELEMENTWISE = (
    optim.SGD, optim.Adam, optim.AdamW, optim.Adamax, optim.NAdam, optim.RAdam, optim.Adagrad, optim.Adadelta,
    optim.RMSprop, optim.Rprop, optim.ASGD,
)  # fmt: skip


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
                expected, got = "a scheduler for as many steps as are trained", f"ValueError: {error}"
                raise InvalidInput(expected, got=got, where="scheduler") from error


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
        got = f"a {type(scheduler).__name__}"
        raise InvalidInput("a function of an optimizer", got=got, where="scheduler", hint=_A_SCHEDULER)
    options: dict[str, Any] = {} if lr is None else {"lr": lr if rate is None else rate(0)}
    if weight_decay:
        options["weight_decay"] = weight_decay
    if isinstance(optimizer, str):
        if optimizer not in NAMED:
            expected = f"an optimizer {', '.join(map(repr, NAMED))}, a class of torch.optim, or a function"
            raise InvalidInput(expected, got=repr(optimizer), where="optimizer", hint="optimizer=torch.optim.AdamW")
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
            expected = "the learning rate within the function that makes the optimizer, or a function of the step"
            raise InvalidInput(expected, got=lr, where="lr", hint=_AN_OPTIMIZER.replace("0.1", f"{lr:g}"))
        made, options = optimizer, {}
    else:
        expected = "an optimizer: a name, a class of torch.optim, or a function of parameters"
        got = f"a {type(cast('object', optimizer)).__name__}"
        raise InvalidInput(expected, got=got, where="optimizer", hint=_AN_OPTIMIZER)
    return Recipe(partial(_made, made, options), rate, scheduler)


def _tried(make: Callable[[], Any], expected: str, where: str, hint: str) -> Any:
    """What a user's function makes, or one clear error."""
    try:
        return make()
    except (TypeError, ValueError) as error:
        raise InvalidInput(expected, got=f"{type(error).__name__}: {error}", where=where, hint=hint) from error


def _made(make: Any, options: dict[str, Any], parameters: list[nn.Parameter]) -> optim.Optimizer:
    expected = "an optimizer that can be made of the model's parameters"
    found = _tried(lambda: make(parameters, **options), expected, "optimizer", _AN_OPTIMIZER)
    if not isinstance(found, optim.Optimizer):
        raise InvalidInput("a function that returns an optimizer", got=f"a {type(found).__name__}", where="optimizer")
    return found


def _scheduler(make: Scheduler, optimizer: optim.Optimizer) -> Any:
    expected = "a function that makes a scheduler of an optimizer"
    found = _tried(lambda: make(optimizer), expected, "scheduler", _A_SCHEDULER)
    if isinstance(found, optim.lr_scheduler.ReduceLROnPlateau) or not hasattr(found, "step"):
        got = f"a {type(found).__name__}"
        raise InvalidInput("a scheduler that is stepped without a score", got=got, where="scheduler")
    return found


# What a model in training is asked: its loss on some points, its logits on all of them, its gradient.

Loss: TypeAlias = "str | Callable[[torch.Tensor, torch.Tensor], torch.Tensor]"
Logits: TypeAlias = NDArray[np.float32]


class Objective:
    """Training points and held-out ones, and the loss.

    At a look dropout is off. BatchNorms normalize training points by the batch, as in training (running statistics stay
    what they were), and held-out points by running statistics. The batch is all training points, or (`most`) as many as
    memory has room for.
    """

    def __init__(self, train: Labelled, held: Labelled | None, loss: Loss, pick: Pick) -> None:
        self.train, self.held, self.loss_of = train, held, loss
        self.most = train.n
        self._call = LogitCaller(pick)
        self.single: tuple[int, ...] | None = None  # of one logit: the axes after the points in its shape

    # One call

    def rows(self, model: nn.Module, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (points, classes), of one logit as (0, z); and the output as it was, for a loss of the user's."""
        raw, rows = self._call.rows(model, batch)
        if len(rows) != batch.size:
            got = f"logits of shape {tuple(raw.shape)}, a guess at every position"
            hint = "logits=lambda output: output[:, 0] picks one"
            raise InvalidInput("one guess per point, to train", got=got, where="the model's output", hint=hint)
        if rows.ndim == 1:
            self.single = tuple(raw.shape[1:])
        return by_class(rows), raw

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

    # All points

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


# One member in training, or several at once (their parameters stacked, one vmapped forward, one optimizer for all), and
# the order of what is done with them: look, gradient, step. Lists are over members.


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
        return found or [(np.full((self._objective.train.n, 2), math.nan, np.float32), None)]

    def gradient(self) -> None:
        """Compute the gradient of the loss on the next mini-batch, in training mode."""
        train, own = self._objective.train, next(self._rows)
        rows = slice(0, train.n) if len(own) == train.n else torch.from_numpy(own)
        batch = train.rows(rows, len(own))
        self._tried(lambda: self._stepper.gradient(lambda: self._objective.loss(self.model, *batch)[0]))

    def norms(self) -> list[float]:
        """Norm of the gradient."""
        return gradient_norms(self._parameters)

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


class StackedMembers:
    """Members of one model, which has no state that a forward writes and nothing random in it.

    `rows`: the points of each member's mini-batches.
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        objective: Objective,
        recipe: Recipe,
        rows: Sequence[Iterator[NDArray[np.int64]]],
    ) -> None:
        self._model, self._objective, self._rows = models[0], objective, rows
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
        """Compute the gradient of the loss on each member's next mini-batch."""
        self._model.train()
        points = self._objective.train
        parts = [next(own) for own in self._rows]
        if len(parts[0]) == points.n:
            every = slice(0, points.n)
            self._stepper.gradient(lambda: self._each(points, every, points.n)[0].sum())
            return
        rows = torch.from_numpy(np.stack(parts))
        self._stepper.gradient(lambda: self._each(points, rows, rows.shape[1])[0].sum())

    def norms(self) -> list[float]:
        """Norms of the gradients."""
        return gradient_norms(self.parameters.values(), len(self._rows))

    def step(self) -> None:
        """Step down the gradients."""
        self._stepper.step()

    def look(self) -> list[tuple[Logits, Logits | None]]:
        """Evaluate as `Objective.look` does, member by member."""
        self._model.eval()
        train = self._logits(self._objective.train)
        held = None if self._objective.held is None else self._logits(self._objective.held)
        return [(one, None if held is None else held[k]) for k, one in enumerate(train)]

    def _logits(self, points: Labelled) -> list[Logits]:
        with torch.no_grad():
            found = [self._each(points, rows, rows.stop - rows.start)[1] for rows in self._objective.chunks(points)]
        return [as_array(own) for own in torch.cat(found, 1)]

    def _each(self, points: Labelled, rows: torch.Tensor | slice, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Every member's loss and logits on its own `rows`, or on those that all share."""

        def one(tensors: dict[str, torch.Tensor], own: torch.Tensor | slice) -> tuple[torch.Tensor, torch.Tensor]:
            mine = {name: tensors[first] for name, first in self._places if first in tensors}
            return self._objective.loss(Functional(self._model, mine), *points.rows(own, size))

        axes = (0, None if isinstance(rows, slice) else 0)
        return vmap(one, axes, randomness="error")({**self.parameters, **self._fixed}, rows)


MemberTrainer: TypeAlias = SingleMember | StackedMembers
