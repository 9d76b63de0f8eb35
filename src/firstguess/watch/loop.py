"""`Watch`: looks at a model now and then while somebody trains it."""

from __future__ import annotations

import bisect
import math
import operator
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import numpy as np
import torch
from torch import nn

from firstguess.base import checks
from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.base.record import Shown
from firstguess.data import Batch
from firstguess.ensemble.predict_training import predict_training
from firstguess.modules.call_model import Forward, fed, first_forward, left_aside
from firstguess.modules.guard import unwrapped
from firstguess.modules.measure import data_hash, versions
from firstguess.modules.members import weight_statistics
from firstguess.modules.members.sources import Mode
from firstguess.modules.outputs import Pick
from firstguess.modules.read.read import read
from firstguess.modules.repair import check_instance
from firstguess.network.network import Network
from firstguess.theory.training.curves import FAVOURED, OTHERS, looked_at
from firstguess.theory.training.problem import Schedule, level_of
from firstguess.theory.training.runs import PredictedTraining
from firstguess.watch.evaluation import Eyes, Look, held
from firstguess.watch.seen import FIRST, Collapse, Cost, EarlyEvaluation, LazyPrediction, WatchedTraining, warning

if TYPE_CHECKING:
    from torch.optim import Optimizer

Log: TypeAlias = Callable[[dict[str, float], int], object]

_STEADY = 0.6  # of the allowed share that later looks may take: the rest pays for the first ones
_NAMED = 20  # classes up to which each is logged
_NAMING = 5.0  # seconds for the name of a collapse


class Watch(Shown):
    """Follow a training: at some steps the model classifies a few fixed points. The training itself is not changed.

    >>> import firstguess as fg
    >>> x, y = torch.randn(400, 20), torch.arange(400) % 2
    >>> model = nn.Sequential(nn.Linear(20, 50), nn.ReLU(), nn.Linear(50, 2))
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> with fg.Watch(model, (x, y), every=50) as watch:
    ...     for k in range(20):
    ...         watch.step(k)  # k updates are done
    ...         optimizer.zero_grad()
    ...         nn.functional.cross_entropy(model(x), y).backward()
    ...         optimizer.step()
    >>> watch.result.steps.tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 13, 16, 20]

    A look is made at steps 0–7, then ten per decade, and at every `every`-th. From step 100 on, one that would make
    later looks take more than 1.2 % of the training's time is put off until they do not (`cost`).

    Args:
        model: The model that is trained, also inside torch.compile, DataParallel or DistributedDataParallel.
        data: What it is trained on: a `DataLoader`, or anything that `fg.measure` takes. Read once, now: a loader's
            state and the random generators stay as they are.
        every: Steps between looks, from where logarithmic ones are farther apart.
        points: How many points are looked at: by default two batches, from 64 to 256.
        level: The largest share at which the bias counts as absorbed: by default a fifth of the way from the labels'
            own largest share to 1, which is 0.6 of two even classes.
        log: Called with (numbers by name, step) after every look: `wandb.log`, or your own function.
        names: Names of the classes.
        lr: The learning rate, or a function of the step: then training is also predicted, where the model can be read
            and labels are there. Taken from `optimizer` if that is one.
        optimizer: "gd", "sgd" or "adam", or the `torch.optim` object that trains the model.
        loss: What it is trained with, of (outputs, labels). If outputs collapse to one class, the fault that
            `fg.explain_guess` would name is reported, with `optimizer`'s rate where that is an object. This takes about
            five seconds, once, on copies; `cost` counts it separately.
        batch: The size of mini-batches, for the prediction; by default the loader's.
        forward: How the model is called, as for `fg.measure`; likewise `logits`.
        mode: "train" (the default): BatchNorm normalizes by the batch, as while training; "eval": by its running
            statistics. Dropout is off.
        seed: Random seed of the choice of points.
        cost: The share of the training's time that looks may take after the first 100 steps, which have 20 looks
            whatever they take (about a fifth of a training of 200 steps); None: looks are made when they are due.
        log_all: Log all numbers of a look, also shares and recall of every class; by default three: the largest share,
            how much of the starting bias is left, and γ.
        predict_seconds: How long the prediction may take. It is made when the result is printed, saved or asked for it;
            0: none is made.
    """

    def __init__(
        self,
        model: nn.Module,
        data: object,
        every: int = 50,
        *,
        points: int | None = None,
        level: float | None = None,
        log: Log | None = None,
        names: Sequence[str] = (),
        lr: Schedule | None = None,
        optimizer: Literal["gd", "sgd", "adam"] | Optimizer | None = None,
        loss: Callable[[Any, Any], Any] | None = None,
        batch: int | None = None,
        forward: Forward | None = None,
        logits: Pick = None,
        mode: Mode = "train",
        seed: int = 0,
        cost: float | None = 0.02,
        log_all: bool = False,
        predict_seconds: float = 20.0,
    ) -> None:
        check_instance(model, "Watch")
        checks.choice(mode, ("train", "eval"), "Watch(mode)", "mode")
        checks.within(cost, "a share of the training's time", "Watch(cost)", "cost=0.02", infinite=True, optional=True)
        if log is not None and not callable(log):
            raise InvalidInput("a function of numbers and step", got=repr(log), where="Watch(log)", hint="wandb.log")
        self.every = checks.count(every, 1, "number of steps", "Watch(every)", "every=50")
        self.log, self.names, self._log_all = log, tuple(str(name) for name in names), log_all
        self._collapsed = False  # and warned of it
        self._loss, self._named, self._naming = loss, ("", ""), 0.0
        checks.within(predict_seconds, "seconds, from 0 on", "Watch(predict_seconds)", closed=True, infinite=True)
        self._level, self._budget = level, cost
        seed = checks.count(seed, 0, "seed", "Watch(seed)", "seed=0")
        batches: list[Batch] = fed(model, held(data, points, seed), forward)
        self._eyes = Eyes(model, batches, logits, mode, seed)
        self._notes = [finding.message for finding in left_aside(batches)]
        size: Any = getattr(data, "batch_size", None)
        size = batch or (size if isinstance(size, int) else None)
        self._predictor = Predictor(model, batches, lr, optimizer, size, float(predict_seconds))
        self._looks: list[Look] = []
        self._early: list[int] = []
        self._absorbed = math.inf
        self._shift = 0  # added to steps, where their numbers began again
        self._given = self._done = -1  # the latest step as it was given, and as it counts
        self._due = 0
        self._began = self._now = 0.0  # of the first and the latest call of `step`
        self._spent = self._spent_first = 0.0
        self._ended_first = math.nan
        self._blind = False  # a look has failed
        self._result: tuple[int, WatchedTraining] | None = None

    def step(self, step: int | None = None) -> None:
        """Report how many updates are done: before each update, from 0 on; without a number they are counted.

        Looks at the model if it is time to; else it costs a microsecond.
        """
        k = self._count(step)
        self._now = time.perf_counter()
        if self._began == 0.0:
            self._began = self._now
        self._predictor.see(k)
        if k >= self._due and self._may(k):
            self._look(k)

    def evaluating(self, step: int | None = None) -> None:
        """Say that the model is being evaluated: warns, once, if that is before the bias of the start is absorbed.

        Looks at the model unless it was looked at after this very number of updates: by default one more than at the
        latest `step`.
        """
        k = self._done + 1 if step is None else self._count(step)
        self._look(k)
        if not self._looks or not self._biased():
            return
        self._early.append(k)
        self._result = None
        if len(self._early) == 1:
            warnings.warn(warning(self._seen(self._looks), k), EarlyEvaluation, stacklevel=2)

    def finish(self, step: int | None = None) -> WatchedTraining:
        """A last look, by default one update after the latest `step`; the result. Leaving a `with` block does this."""
        if step is not None or self._done >= 0:
            self._look(self._done + 1 if step is None else self._count(step))
        return self.result

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.finish()

    @property
    def result(self) -> WatchedTraining:
        """What was seen so far; with a prediction where one can be made."""
        if self._result is None or self._result[0] != len(self._looks):
            self._result = len(self._looks), self._seen(self._looks, predict=True)
        return self._result[1]

    @property
    def absorbed_at(self) -> float:
        """The step at which the bias of the start was absorbed; inf: not yet; NaN: not known."""
        return self._absorbed

    @property
    def cost(self) -> Cost:
        """What looking took."""
        training, later = max(0.0, self._now - self._began - self._spent), math.nan
        if not math.isnan(self._ended_first):
            spent = self._spent - self._spent_first
            passed = self._now - self._ended_first - spent
            later = spent / passed if passed > 0 else math.nan
        first = self._looks[0].step if self._looks else 0
        return Cost(len(self._looks), self._spent, training, max(0, self._done - first), later, naming=self._naming)

    def save(self, path: str | Path) -> Path:
        """The page of the result: one HTML file that opens offline."""
        return self.result.save(path)

    def __str__(self) -> str:
        return str(self.result)

    def __repr__(self) -> str:
        return f"Watch({len(self._looks)} looks up to step {self._done})"

    def _repr_html_(self) -> str:
        return self.result._repr_html_()  # pyright: ignore[reportPrivateUsage]

    def _count(self, step: int | None) -> int:
        if step is None:
            self._done += 1
            self._given = self._done - self._shift
            return self._done
        try:
            given = operator.index(step)
        except TypeError:
            raise InvalidInput("a number of updates", got=step, where="Watch.step", hint="watch.step(k)") from None
        checks.within(given, "a number of updates, from 0 on", "Watch.step", "watch.step(k)", closed=True)
        if given < self._given:
            self._shift = self._done + 1 - given
            note = f"steps started again at {given} after {self._given}: they were counted on"
            if note not in self._notes:
                self._notes.append(note)
        self._given, self._done = given, given + self._shift
        return self._done

    def _may(self, step: int) -> bool:
        """Whether the looks so far leave room for one more."""
        if self._budget is None or not self._looks or step - self._looks[0].step <= FIRST:
            return True
        if math.isnan(self._ended_first):
            self._ended_first, self._spent_first = self._now, self._spent
        later = self._spent - self._spent_first
        passed = self._now - self._ended_first - later
        return later + self._spent / len(self._looks) <= _STEADY * self._budget * passed

    def _next(self, step: int) -> int:
        regular = (step // self.every + 1) * self.every
        passed = step - self._looks[0].step
        close = next(int(k) for k in looked_at(10 * max(passed, 1)) if k > passed)
        return min(regular, self._looks[0].step + close)

    def _look(self, step: int) -> None:
        if self._blind or (self._looks and step <= self._looks[-1].step):
            return
        _wait_for(self._eyes.model)
        began = time.perf_counter()
        if not self._looks:
            with first_forward():
                look = self._eyes.look(step, keep=self._predictor.wanted)
            self._notes += self._eyes.notes
        else:
            try:
                look = self._eyes.look(step)
            except Exception as error:  # of a user's model: his training continues
                self._blind = True
                self._notes.append(f"looks ended at step {step}: {type(error).__name__}: {error}")
                warnings.warn(f"firstguess.Watch: {self._notes[-1]}", RuntimeWarning, stacklevel=3)
                return
        if math.isinf(self._absorbed) and not look.lost:
            before = next((one for one in reversed(self._looks) if not one.lost), None)
            self._absorbed = self._seen((look,) if before is None else (before, look)).absorbed_at
        self._looks.append(look)
        self._due = self._next(step)
        if not self._collapsed and not look.lost and (seen := self._seen(self._looks)).collapse is not None:
            self._collapsed = True
            began += self._name(seen.collapse)
            warnings.warn(f"firstguess.Watch: {self._seen(self._looks).finding}", RuntimeWarning, stacklevel=3)
        if self.log is not None:
            self.log(self.numbers(), step)
        self._now = time.perf_counter()
        if self._began == 0.0:  # evaluated before the first step
            self._began = began
        self._spent += self._now - began

    def _name(self, collapse: Collapse) -> float:
        """Ask why outputs collapsed, once, on copies: nothing of the training is touched. Gives the seconds it took,
        which count neither as looks nor as training."""
        from firstguess.diagnosis.faults import explain_collapse, is_symptom

        began = time.perf_counter()
        known: dict[str, Any] = {"loss": self._loss, "optimizer": self._predictor.object, "logits": self._eyes.pick}
        known |= {"seed": self._eyes.seed, "seconds": _NAMING}
        try:
            found = explain_collapse(self._eyes.model, self._eyes.batches, **known)
        except Exception as error:  # of a user's model, which cannot be copied
            self._notes.append(f"why outputs collapsed could not be found out: {type(error).__name__}: {error}")
            found = ()
        if found:
            # Without an optimizer, or with time up, nobody could ask for its rate; a loss that rose tells. Nor were
            # weights as memory was found: the first look would have said so.
            late = time.perf_counter() - began >= _NAMING
            name, asked = found[0].name, self._predictor.object is not None and not late
            if not (collapse.loss and is_symptom(name) and (not asked or name == "weights never initialized")):
                self._named = name, found[0].words
        self._naming = time.perf_counter() - began
        self._began += self._naming
        self._ended_first += self._naming
        return self._naming

    def numbers(self) -> dict[str, float]:
        """The latest look as what is logged: what is known of it, by name."""
        look = self._looks[-1]
        seen = self._seen((self._looks[0], look))
        if look.lost:
            return {"firstguess/lost": float(look.lost)}
        found = {"largest": look.largest, "left": seen.left[-1], "gamma": look.gamma}
        if not self._log_all:
            return _finite(found)
        if self._absorbed < math.inf:
            found["absorbed_at"] = self._absorbed
        if seen.labels is not None:
            curves = seen.curves
            found |= {"accuracy": curves.accuracy.draws[0, -1], "loss": look.loss}
            found |= {f"recall/{which}": curves.accuracy[which].draws[0, -1] for which in (FAVOURED, OTHERS)}
        if seen.classes <= _NAMED:
            found |= {f"share/{seen.name(c)}": value for c, value in enumerate(look.shares)}
            found |= {f"recall/{seen.name(c)}": value for c, value in enumerate(seen.recall[-1])}
        return _finite(found)

    def _biased(self) -> bool:
        """Whether the bias of the start is not absorbed yet, or one class leads again."""
        last = self._looks[-1]
        again = math.isfinite(self._absorbed) and any(last.step == b for _, b in self._seen(self._looks).relapses)
        return not last.lost and (math.isinf(self._absorbed) or again)

    def _seen(self, looks: Sequence[Look], *, predict: bool = False) -> WatchedTraining:
        eyes, model = self._eyes, unwrapped(self._eyes.model)
        labels, least = eyes.labels, max(eyes.classes, 2)
        level = level_of(self._level, least, np.arange(least) if labels is None else labels)
        looks = tuple(looks)
        later = LazyPrediction((lambda: self._predictor.predict(looks, eyes)) if predict and looks else None)
        origin: dict[str, Any] = {}
        if predict:
            origin["model"] = f"{type(model).__module__}.{type(model).__qualname__}"
            origin["parameters"] = sum(p.numel() for p in model.parameters())
            origin["inputs held"] = sum(batch.size for batch in eyes.batches)
            origin["held inputs' hash"] = data_hash(eyes.batches)
            origin |= {"every": self.every, "mode": eyes.mode, "seed": eyes.seed, **versions()}
        return WatchedTraining(
            looks,
            eyes.points,
            eyes.classes,
            labels,
            level,
            early=tuple(self._early),
            notes=tuple(self._notes),
            names=self.names,
            cost=self.cost,
            prediction=later,
            provenance=origin,
            named=self._named,
        )


def _finite(found: dict[str, float]) -> dict[str, float]:
    return {f"firstguess/{name}": float(value) for name, value in found.items() if math.isfinite(value)}


def _wait_for(model: nn.Module) -> None:
    """Wait until a device is done with what training has asked of it: its time is not that of the look."""
    kinds = {p.device.type for p in model.parameters()}
    if "cuda" in kinds:
        torch.cuda.synchronize()
    if "mps" in kinds:
        torch.mps.synchronize()


# What theory expects of it: from its own starting logits, where the model can be read.

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
        self.object = optimizer if isinstance(optimizer, torch.optim.Optimizer) else None
        self._kind: Kind = "gd" if batch is None else "sgd"
        self._rates: list[tuple[int, float]] = []
        self._network: Network | None = None
        self._made: tuple[int, tuple[PredictedTraining | None, str]] | None = None
        self._why = ""
        if (optimizer is None and lr is None) or not seconds:
            return  # not requested: nothing is said of it
        found: Any = optimizer if self.object is None else _kind_of(self.object, batch)
        if found in ("gd", "sgd", "adam"):
            self._kind = found
        elif self.object is not None:
            self._why = found
        elif optimizer is not None:
            known, where = isinstance(optimizer, str), "Watch" if isinstance(optimizer, str) else ""
            got = optimizer if known else type(optimizer).__name__
            raise InvalidInput("optimizer 'gd', 'sgd', 'adam' or a torch.optim one", got=got, where=where)
        if lr is None and self.object is None:
            raise InvalidInput("the learning rate", got="none", where="Watch(lr)", hint="lr=1e-3")
        if not callable(lr):
            checks.within(lr, "a learning rate above 0", "Watch(lr)", "lr=1e-3", optional=True)
        self._why = self._why or self._read(unwrapped(model))

    @property
    def wanted(self) -> bool:
        """Whether a prediction will be made, from the logits of the first look."""
        return self._network is not None

    def see(self, step: int) -> None:
        """Note the learning rate, where an optimizer has it."""
        if self.object is None or self._network is None:
            return
        rate = self.object.param_groups[0]["lr"]
        if not self._rates or rate != self._rates[-1][1]:
            self._rates.append((step, float(rate)))

    def predict(self, looks: Sequence[Look], eyes: Eyes) -> tuple[PredictedTraining | None, str]:
        """The prediction at the steps that were looked at; or None, and why, or nothing where it was not requested."""
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
            start = np.repeat(first[None].astype(np.float64), _DRAWS, axis=0)
            known: dict[str, Any] = {"optimizer": self._kind, "batch": batch, "start": start, "progress": progress}
            rate = self._rate(0.5 if eyes.single else 1.0)
            t = predict_training(network, data=(x, eyes.labels), lr=rate, steps=steps, **known)
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
