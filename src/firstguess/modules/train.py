"""`fg.train`: many initializations of a description or a module, trained for real, and what their guesses do."""

from __future__ import annotations

import json
import os
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any, Unpack, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from firstguess.base import checks
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.text import brief as short_time
from firstguess.base.threads import cores, torch_threads
from firstguess.data.items import tensors
from firstguess.data.streams import IsolatedRandomness, generator_states
from firstguess.ensemble.seeds import check_seed, member_seeds, orders
from firstguess.ensemble.trained import TrainedMembers
from firstguess.ensemble.training_engine import train_description
from firstguess.ensemble.training_loop import MemberStore, Observe, Plan, Progress, Start, follow, member_store, plan
from firstguess.modules import optimizers
from firstguess.modules.call_model import Labelled, first_forward, labelled, left_aside, part
from firstguess.modules.guard import differentiable, own_copy, restored
from firstguess.modules.members.initializers import BATCH_NORMS
from firstguess.modules.members.sources import named, source_of
from firstguess.modules.optimizers import Logits, Loss, MemberTrainer, Objective, Recipe, StackedMembers, recipe
from firstguess.modules.options import WIDTH, ModelOptions, settled
from firstguess.modules.outputs import Pick, is_probability
from firstguess.modules.stacked import Strategy, brief
from firstguess.network.network import Network

_TAKEN = ("init", "logits", "forward", "redraw", "scale", "device", "strategy", "threads")


@checks.takes(_TAKEN)
def train(
    what: object,
    *,
    data: Any,
    test: Any = None,
    inits: int = 50,
    start: Start = "any",
    optimizer: Any = "adam",
    lr: float | Callable[[int], float] = 1e-3,
    batch: int | None = None,
    epochs: int | None = None,
    steps: int | Sequence[int] | None = None,
    loss: Any = "cross-entropy",
    scheduler: Any = None,
    weight_decay: float = 0.0,
    width: int = WIDTH,
    level: float | None = None,
    seed: int = 0,
    store: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    classes: int | None = None,
    **more: Unpack[ModelOptions],
) -> TrainedMembers:
    """Train many initializations, and look at their guesses, accuracies and losses on the way.

    Member i depends on (seed, i) only, but for rounding: its weights, and the order in which it sees the data. Ctrl-C
    keeps the curves so far; a member that diverges (NaN or Inf) is a result, and the others continue.

    Args:
        what: A `Network` or its text; or an `nn.Module`, a class or a factory that makes one.
        data: Labelled points: a pair (x, y), `Data`, a name.
        test: Held-out points, likewise. After a BatchNorm a description's are normalized by the statistics of all
            training points at that step, which running statistics follow.
        inits: How many networks are trained.
        start: "any"; "even" (or "neutral"): at most 1.1 of an even share; "biased": at least 0.9. Starts are
            drawn and evaluated until there are enough; the others are not trained.
        optimizer: "gd" (all points), "sgd" (mini-batches of `batch`), "adam" (with or without `batch`), as torch
            has them. For modules also a class of `torch.optim`, or a function of the parameters that makes one.
        lr: The learning rate, or a function of the step.
        batch: Size of mini-batches. Epochs are reshuffled; the last batch of one may be smaller.
        epochs: How many; or
        steps: how many, or which to look at (default: 0–7, then ten per decade).
        loss: "cross-entropy", or "squared": ½ Σ (f − one-hot)². For modules also a function of outputs and labels.
        scheduler: Modules only: a function of the optimizer that makes a scheduler, stepped after every step.
        weight_decay: As torch's optimizers have it: added to the gradient.
        width: Width of layers of a description that name none.
        level: Level of the largest share, for `absorption`: by default a fifth of the way from the labels' largest
            share to 1, which is 0.6 of two even classes.
        seed: Random seed of weights and orders.
        store: A folder. Members that were trained before with the same settings and data are read from it, so a
            training that was stopped in any way resumes where it was.
        progress: Called with (steps done by all networks, steps in all).
        classes: For a text; by default those of the labels. Else a check.
        more: From `ModelOptions`: threads, and for modules only init, logits, forward, redraw, scale, device and
            strategy. Parameters that require no gradient stay as they are drawn.

    >>> from firstguess.data import two_blobs
    >>> net = "dense(weight_var=2) > relu > dense(weight_var=2)"
    >>> r = train(net, data=two_blobs(50, 20), inits=4, width=30, optimizer="gd", lr=0.1, steps=50)
    >>> r.largest.draws.shape == (4, len(r.steps)), bool(r.loss.mean[-1] < r.loss.mean[0])
    (True, True)
    """
    known = settled(more)
    options: dict[str, Any] = {
        "lr": lr, "batch": batch, "epochs": epochs, "steps": steps, "optimizer": optimizer, "loss": loss,
        "weight_decay": weight_decay, "seed": seed, "inits": inits, "start": start, "level": level, "store": store,
        "progress": progress, "classes": classes, "threads": known.pop("threads", None),
    }  # fmt: skip
    what = named(what)
    if isinstance(what, Network | str):
        if scheduler is not None:
            expected = "a learning rate that is a function of the step, for a description"
            hint = "lr=lambda step: 1e-3 * 0.99**step"
            raise NotCovered(expected, got="scheduler=", where="train(scheduler)", hint=hint)
        for name in known:
            raise InvalidInput("an option of train for a description", got=f"{name}=", where="train")
        return train_description(what, data, test, width=width, **options)
    if not callable(what):
        raise checks.no_model(what, "train(what)", 'fg.train("dense > relu > dense", data=(x, y), steps=1000)')
    if width != WIDTH:
        raise InvalidInput("no width: a module has its own", got=width, where="train(width)")

    with warnings.catch_warnings():
        # vmap says that an operation has no batching rule: whether that is slow is timed. Here, and not where members
        # are trained, because filters are those of all threads.
        warnings.filterwarnings("ignore", message="There is a performance drop", category=UserWarning)
        return train_module(what, data, test, scheduler=scheduler, more=known, **options)


# Modules, trained: settings checked, members followed, and what a stored result is known by.

LR = 1e-3  # where nothing is said


def train_module(
    what: Callable[..., Any],
    data: Any,
    test: Any,
    *,
    inits: int,
    start: Any,
    level: float | None,
    threads: int | None,
    store: Any,
    progress: Any,
    classes: int | None,
    scheduler: Any = None,
    more: dict[str, Any],
    **options: Any,
) -> TrainedMembers:
    """`fg.train` of an instance, a class or a factory. `more`: what else `ModuleTrainer` takes."""
    forward = more.pop("forward", None)
    train = labelled(what, data, "data", forward)
    held = None if test is None else labelled(what, test, "test", forward)
    checks.two_classes(train.classes())
    lr, optimizer = options["lr"], options["optimizer"]
    own = not isinstance(optimizer, (str, type)) and callable(optimizer) and not isinstance(optimizer, partial)
    how = plan(train.n, named=False, **options)
    if threads is not None:
        threads = checks.count(threads, 1, "number of threads", "train(threads)", "threads=2")
    made = recipe(optimizer, None if own and lr == LR else lr, how.decay, scheduler)
    inits = checks.count(inits, 1, "number of initializations", "train(inits)", "inits=50")
    more |= {"seed": how.seed, "batch": how.batch, "loss": how.loss, "threads": threads, "inits": inits}
    make = partial(ModuleTrainer, what, train, held, recipe=made, **more)
    asked = more.get("strategy")
    trainer = make() if store is None or asked else make(strategy="loop")
    if classes is not None and classes != trainer.classes:
        raise InvalidInput(f"{trainer.classes} classes, what the model gives", got=classes, where="train(classes)")
    loss = None if isinstance(how.loss, str) else trainer.mean_loss
    task = how.task(train.classes(), None if held is None else held.classes(), trainer.classes, level, loss)
    rates = trainer.rates(how.steps)  # a scheduler that has too few is refused now
    kept = None
    if store is not None:
        kept = member_store(store, **_dependencies(trainer, how, rates, train, held))
        trainer = trainer if asked else _as_before(kept, make)
    known = {} if isinstance(optimizer, str) else {"optimizer": trainer.optimizer}
    origin = how.provenance(rates[0], model=trainer.model, **known)
    said: dict[str, Any] = {"what": trainer.model, "inits": inits, "start": start, "progress": progress}
    with torch_threads():  # which trainers set
        return follow(trainer, task, provenance=origin, store=kept, **said)


def _dependencies(
    trainer: ModuleTrainer, how: Plan, rates: list[float], train: Labelled, held: Labelled | None
) -> dict[str, Any]:
    """What members' numbers depend on. Functions are known by what they do: to the first member, to learning rates."""
    arrays: dict[str, Any] = {"looks": how.looks, "rates": np.array(rates)}
    for where, points in (("data", train), ("test", held)):
        if points is not None:
            arrays |= {f"{where} {key}": leaf.numpy() for key, leaf in tensors(points.batch.inputs).items()}
            arrays[f"{where} labels"] = points.classes()
    found = {"model": trainer.model, "optimizer": trainer.settings(), "batch": how.batch, "seed": how.seed}
    return {**found, "loss": how.recorded["loss"], "torch": torch.__version__, **arrays, **trainer.fingerprint()}


def _as_before(kept: MemberStore, make: Callable[..., ModuleTrainer]) -> ModuleTrainer:
    """One by one or by vmap, whichever was faster when this store was begun: both give the same but for rounding."""
    path = kept.folder / f"{kept.prefix[:-1]}.json"
    try:
        way = cast("dict[str, Any]", json.loads(path.read_text()))["strategy"]
    except (OSError, ValueError, KeyError, TypeError):
        way = None
    if way in ("loop", "vmap"):
        return make(strategy=way)
    trainer = make()
    path.write_text(json.dumps({"strategy": "vmap" if trainer.group > 1 else "loop"}))
    return trainer


# Members of a user's model in training: drawn as `fg.measure` draws them, stepped by any optimizer of torch's.
#

_GROUP = 16  # members of one vmapped step, at most: more only enlarge what has to stay in cache
_MEMORY = 1e9  # bytes that a group may take, about
_TRIED = 3  # steps that are timed, after one that is not
_LONG = 0.1  # seconds of a step from which on two members are tried, not a group
_GAIN = 0.9  # vmap has to be this much faster
_NOISE = 0xD509  # keeps the stream of dropout apart from that which draws the weights


class ModuleTrainer:
    """Trains initializations of a model, a class or a factory (`Trainer` of training_loop.py).

    Member i has the weights of `fg.measure`'s member i, and depends on (seed, i) only: weights, order of the data,
    dropout. `loss` may be a function of what the model returns and the labels, averaged over points; `source`: of
    `source_of`. Members are trained by vmap where the first steps show it to be faster, unless `strategy` says how.
    """

    def __init__(
        self,
        what: Callable[..., Any],
        train: Labelled,
        held: Labelled | None = None,
        *,
        recipe: Recipe,
        seed: int = 0,
        batch: int | None = None,
        loss: Loss = "cross-entropy",
        logits: Pick = None,
        strategy: Strategy = "auto",
        threads: int | None = None,
        inits: int | None = None,
        **source: Any,
    ) -> None:
        self._seed = check_seed(seed)
        self._batch = None if batch is None or batch >= train.n else int(batch)
        self._objective = Objective(train, held, loss, logits)
        self._recipe = recipe
        few = [part(train.batch, 0, min(train.n, self._batch or train.n))]
        self._source = source_of(what, few, logits=logits, **source)
        self.findings = (*self._source.findings, *left_aside([train.batch]))
        self._lock = threading.RLock()
        self._notes: list[str] = []
        self._copies, self._noisy, self._writes = True, False, False
        self._bytes, self.classes, self.model = 0.0, 0, ""
        with differentiable():
            self._study()
            self.threads = self._threads(threads)
            self._asked = strategy
            self.group = self._choose(strategy, _GROUP if inits is None else -(-inits // self.threads))

    @property
    def notes(self) -> tuple[str, ...]:
        """How members were trained."""
        return tuple(self._notes)

    @property
    def bitwise_group(self) -> int:
        """1 one by one, by request or because there is no other way; 0 where the clock decides."""
        return int(self._asked == "loop" or bool(self._no_vmap()))

    def mean_loss(self, logits: NDArray[Any], labels: NDArray[np.int64]) -> float:
        """A loss of the user's, over all of some points."""
        return self._objective.mean(logits, labels)

    # What results are known by

    @property
    def optimizer(self) -> str:
        """The class's name."""
        return type(self._recipe.make([nn.Parameter(torch.zeros(1))])).__name__

    def settings(self) -> list[dict[str, Any]]:
        """Settings of the first member's optimizer: groups, how many parameters each has, and their options."""
        with differentiable(), self._member(0) as model:
            found = self._recipe.make([p for p in model.parameters() if p.requires_grad])
            groups = [{**group, "params": len(group["params"])} for group in found.param_groups]
        return [{"kind": type(found).__name__}, *groups]

    def rates(self, steps: int) -> list[float]:
        """The learning rate of the first group at every step."""
        stepper = self._recipe.begin([nn.Parameter(torch.zeros(1))])
        if self._recipe.rate is None and self._recipe.scheduler is None:
            return [stepper.rate()] * steps
        return [stepper.rate() for _ in range(steps)]

    def fingerprint(self) -> dict[str, NDArray[Any]]:
        """The first member: its parameters and buffers, and what it makes of a few points."""
        few = part(self._objective.train.batch, 0, min(16, self._batch or self._objective.train.n))
        with differentiable(), self._member(0) as model, torch.no_grad():
            found = {
                f"member {name}": tensor.detach().to("cpu", torch.float32).numpy().copy()
                for name, tensor in (*model.named_parameters(), *model.named_buffers())
            }
            rows, _ = self._objective.rows(model.eval(), few)
            # Five digits: sums in another order, by another number of threads, are no other model.
            return found | {"logits": np.array([f"{value:.4e}" for value in rows.flatten().tolist()])}

    # Finding out what there is

    def _study(self) -> None:
        """One step of member 0 on a few points: whether it can be copied, what it writes, whether it throws dice."""
        train = self._objective.train
        size = min(train.n, self._batch or train.n)
        with self._member(0) as model, IsolatedRandomness(0), first_forward(train.batch):
            if not any(parameter.requires_grad for parameter in model.parameters()):
                raise InvalidInput("a model with something to train", got="no parameter that requires a gradient")
            norms = any(isinstance(module, BATCH_NORMS) for module in model.modules())
            if norms and 1 in (size, train.n % size):
                expected = "mini-batches of two points or more, for a BatchNorm"
                got = f"one of 1 point ({train.n} points in batches of {size})"
                raise InvalidInput(expected, got=got, where="batch", hint=f"batch={size + 1}")
            with restored(model, parameters=False), torch.no_grad():
                few = train.rows(slice(0, size), size)[0]
                rows, _ = self._objective.rows(model, few)
                self.classes = rows.shape[1]
                self._check_outputs(rows, lambda: self._objective.rows(model, few)[1])
            for points, where in ((train, "data"), (self._objective.held, "test")):
                if points is not None and (top := int(points.labels.max())) >= self.classes:
                    expected = f"labels 0…{self.classes - 1}, one for each class of the model"
                    raise InvalidInput(expected, got=top, where=where)
            before = {name: buffer.clone() for name, buffer in model.named_buffers()}
            dice = generator_states()
            seen, saved = {parameter.data_ptr() for parameter in model.parameters()}, 0

            def pack(tensor: torch.Tensor) -> torch.Tensor:
                nonlocal saved  # bytes that a forward keeps for its backward, but for parameters
                saved += 0 if tensor.data_ptr() in seen else tensor.numel() * tensor.element_size()
                seen.add(tensor.data_ptr())
                return tensor

            model.train()
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                value, _ = self._objective.loss(model, *train.rows(slice(0, size), size))
            if value.ndim or not value.requires_grad:
                raise InvalidInput("a loss that is one number with a gradient", got=f"shape {tuple(value.shape)}")
            self._noisy = not _same_dice(dice, generator_states())
            self._writes = any(not torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())
            state = sum(t.numel() * t.element_size() for t in (*model.parameters(), *model.buffers()))
            own = max(saved / size, 1.0)  # of one point
            self._objective.most = max(size, int(_MEMORY / own / 4))
            self._bytes = 6.0 * state + own * max(size, min(self._objective.most, train.n))
            self._norms = norms
            self._device = next(model.parameters()).device
            self.model = f"{type(model).__module__}.{type(model).__qualname__}"

    def _check_outputs(self, rows: torch.Tensor, forward: Callable[[], torch.Tensor]) -> None:
        """Probabilities are no logits: their cross-entropy is another loss, and one of them is decided at ½."""
        one = self._objective.single is not None
        if one:  # logits of a biased network may all be between 0 and 1
            found = len(rows) > 1 and bool(is_probability(rows[:, 1], forward))
        else:  # which a loss of the user's may want
            inside = len(rows) > 1 and bool(((rows >= 0) & (rows <= 1)).all())
            sums = torch.allclose(rows.sum(1), torch.ones(len(rows)).to(rows), atol=1e-5)
            found = inside and sums and isinstance(self._objective.loss_of, str)
        if found:
            expected = "logits, to train with cross-entropy or to count guesses"
            hint = "a model without its last softmax or sigmoid"
            got = "probabilities: outputs between 0 and 1" + ("" if one else " that sum to 1")
            raise InvalidInput(expected, got=got, where="the model's output", hint=hint)

    def _threads(self, asked: int | None) -> int:
        alone = "dropout, or something else that is random" if self._noisy else ""
        alone = alone or ("the model cannot be copied" if not self._copies else "")
        alone = alone or (f"it computes on {self._device}" if self._device.type != "cpu" else "")
        most = min(cores(), 2) if asked is None else max(1, int(asked))
        if alone and most > 1:
            self._notes.append(f"one member at a time: {alone}")
        return 1 if alone else most

    # One by one, or several at once

    def _choose(self, strategy: Strategy, most: int) -> int:
        """Members of a group, at most `most`: measured on a few steps, of members that are then re-initialized."""
        if strategy == "loop" or (most < 2 and strategy != "vmap"):
            return 1
        why = self._no_vmap()
        size = max(2, min(_GROUP, most, int(_MEMORY / max(self._bytes, 1.0))))
        if not why:
            try:
                with torch_threads(1):  # as in training
                    alone = self._time_loop()
                    size = 2 if alone[0] > _LONG else size
                    several = self._time_stack(size, alone[1])
            except Exception as error:  # any operation without a rule, or control flow that depends on data
                why = brief(error)
            else:
                if strategy == "vmap" or several < _GAIN * alone[0]:
                    each = f"{short_time(several)} per step and member (one by one: {short_time(alone[0])})"
                    self._notes.append(f"members trained {size} at once by vmap: {each}")
                    return size
                each = f"{short_time(alone[0])} per step (by vmap: {short_time(several)})"
                self._notes.append(f"members trained one by one: {each}")
                return 1
        if strategy == "vmap":
            raise InvalidInput("a model that vmap can train", got=why, where="strategy", hint="strategy='loop'")
        self._notes.append(f"members trained one by one (by vmap: not possible, {why})")
        return 1

    def _no_vmap(self) -> str:
        if not self._copies:
            return "the model cannot be copied"
        if self._noisy:
            return "dropout, or something else that is random"
        if self._norms:
            return "a BatchNorm, whose running statistics a forward writes"
        return "a forward writes into buffers" if self._writes else ""

    def _rows(self, member: int) -> Iterator[NDArray[np.int64]]:
        """The points of a member's mini-batches."""
        return orders(self._seed, member, self._objective.train.n, self._batch)

    def _time_loop(self) -> tuple[float, dict[str, torch.Tensor]]:
        with self._member(0) as model:
            one = optimizers.SingleMember(model, self._objective, self._recipe, self._rows(0))
            model.train()
            spent = [_timed(one) for _ in range(_TRIED + 1)]
            return min(spent[1:]), {name: p.detach().clone() for name, p in model.named_parameters()}

    def _time_stack(self, size: int, alone: dict[str, torch.Tensor]) -> float:
        stack = self._stack(range(size))
        spent = [_timed(stack) for _ in range(_TRIED + 1)]
        for name, stacked in stack.parameters.items():
            scale = float(alone[name].abs().max()) if alone[name].numel() else 0.0
            if not torch.allclose(stacked[0], alone[name], rtol=1e-3, atol=1e-4 * scale, equal_nan=True):
                raise InvalidInput("the same numbers as one by one", got=f"others in {name}")
        stack.look()  # which has to be possible too
        return min(spent[1:]) / size

    # Members

    @contextmanager
    def _member(self, member: int) -> Generator[nn.Module]:
        """A model that may be trained, and is nobody else's; one that cannot be copied is used, and restored."""
        seed = int(member_seeds(self._seed, member, member + 1)[0])
        with ExitStack() as stack:
            stack.enter_context(self._lock)
            drawn = stack.enter_context(self._source.member(seed))
            model = own_copy(drawn) if self._copies else None
            if model is not None:
                stack.close()
            else:
                self._copies = False
                model = stack.enter_context(restored(drawn, parameters=True))
            yield model

    def _noise(self, member: int) -> Any:
        """Isolate the member's dropout; nothing where no dice are thrown, so that threads may run."""
        if not self._noisy:
            return nullcontext()
        return IsolatedRandomness(int(member_seeds(self._seed ^ (_NOISE << 32), member, member + 1)[0]))

    def _stack(self, members: Sequence[int]) -> StackedMembers:
        models: list[nn.Module] = []
        for member in members:
            with self._member(member) as model:
                models.append(model)
        return StackedMembers(models, self._objective, self._recipe, [self._rows(member) for member in members])

    # What is driven

    def first(self, members: Sequence[int]) -> Iterator[Logits]:
        """Logits of the training points at step 0."""
        if self.threads > 1:
            torch.set_num_threads(1)  # one of torch's for each of ours
        for member in members:
            with differentiable(), self._member(member) as model:
                logits = self._objective.first(model)
            yield logits

    def train(
        self, members: Sequence[int], looks: NDArray[np.int64], observe: Observe, stopped: Callable[[], bool]
    ) -> None:
        """Train these, and show what there is at every look."""
        if self.threads > 1:
            torch.set_num_threads(1)
        with differentiable():
            if len(members) > 1 and self.group > 1:
                optimizers.run_steps(
                    self._stack(members), looks, lambda k, *found: observe(members[k], *found), stopped
                )
                return
            for member in members:
                with self._member(member) as model, self._noise(member):
                    single = optimizers.SingleMember(model, self._objective, self._recipe, self._rows(member))
                    optimizers.run_steps(single, looks, lambda _, *found, own=member: observe(own, *found), stopped)


def _timed(member: MemberTrainer) -> float:
    began = time.perf_counter()
    member.gradient()
    member.step()
    return time.perf_counter() - began


def _same_dice(one: list[Any], other: list[Any]) -> bool:
    """Whether torch, Python and NumPy would give the same numbers next."""
    (_, t), (_, r), (_, n), (_, u), (_, s), (_, m) = *one[:3], *other[:3]
    return bool(torch.equal(t, u)) and r == s and n[2] == m[2] and bool(np.array_equal(n[1], m[1]))
