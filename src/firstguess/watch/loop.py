"""`Watch`: looks at a model now and then while somebody trains it."""

from __future__ import annotations

import math
import operator
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import torch
from torch import nn

from firstguess.base import checks
from firstguess.base.errors import InvalidInput
from firstguess.base.record import Shown
from firstguess.data import Batch
from firstguess.modules.call_model import Forward, fed, first_forward, left_aside
from firstguess.modules.guard import unwrapped
from firstguess.modules.measure import data_hash, versions
from firstguess.modules.members.sources import Mode
from firstguess.modules.outputs import Pick
from firstguess.theory.training.curves import FAVOURED, OTHERS, looked_at
from firstguess.theory.training.problem import Schedule, level_of
from firstguess.watch.evaluation import Eyes, Look, held
from firstguess.watch.predicting import Predictor
from firstguess.watch.seen import FIRST, Cost, LazyPrediction
from firstguess.watch.watched import EarlyEvaluation, WatchedTraining
from firstguess.watch.wording import warning

if TYPE_CHECKING:
    from torch.optim import Optimizer

Log: TypeAlias = Callable[[dict[str, float], int], object]

_STEADY = 0.6  # of the allowed share that later looks may take: the rest pays for the first ones
_NAMED = 20  # classes up to which each is logged


class Watch(Shown):
    """Watches a training: at some steps the model guesses a few held points, and everything is then as it was.

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

    A look is made at steps 0–7, then ten a decade, and at every `every`-th. From step 100 on, one that would make later
    looks take more than 1.2 % of the training's time is put off until they do not (`cost`).

    Args:
        model: The model that is trained, also inside torch.compile, DataParallel or DistributedDataParallel.
        data: What it is trained on: a `DataLoader`, or anything that `fg.measure` takes. Read once, now: a loader's
            state and the random generators stay as they are.
        every: Steps between looks, from where logarithmic ones are farther apart.
        points: How many points are looked at: by default two batches, from 64 to 256.
        level: The largest share at which the bias counts as absorbed: by default a fifth of the way from the labels'
            own largest share to 1, which is 0.6 of two even classes.
        log: Called with (numbers by name, step) after every look: `wandb.log`, or your own function.
        names: Of the classes.
        lr: The learning rate, or a function of the step: then training is also predicted, where the model can be read
            and labels are there. Taken from `optimizer` if that is one.
        optimizer: "gd", "sgd" or "adam", or the `torch.optim` object that trains the model.
        batch: The size of mini-batches, for the prediction; by default the loader's.
        forward: How the model is called, as for `fg.measure`; likewise `logits`.
        mode: "train" (the default): BatchNorm normalizes by the batch, as while training; "eval": by its running
            statistics. Dropout is off.
        seed: Of the choice of points.
        cost: The share of the training's time that looks may take after the first 100 steps, which have 20 looks
            whatever they take (about a fifth of a training of 200 steps); None: looks are made when they are due.
        log_all: Log all numbers of a look, also shares and recall of every class; by default three: the largest share,
            how much of the starting bias is left, and γ.
        predict_seconds: How long the prediction may take. It is made when the result is printed, saved or asked for it.
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
        batch: int | None = None,
        forward: Forward | None = None,
        logits: Pick = None,
        mode: Mode = "train",
        seed: int = 0,
        cost: float | None = 0.02,
        log_all: bool = False,
        predict_seconds: float = 20.0,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise InvalidInput(
                "a model, an instance of nn.Module",
                got=type(model).__name__,
                where="Watch(model)",
                hint="fg.Watch(model, loader): the model comes first",
            )
        checks.choice(mode, ("train", "eval"), "Watch(mode)", "mode")
        checks.within(cost, "a share of the training's time", "Watch(cost)", "cost=0.02", infinite=True, optional=True)
        if log is not None and not callable(log):
            raise InvalidInput("a function of numbers and step", got=repr(log), where="Watch(log)", hint="wandb.log")
        self.every = checks.count(every, 1, "number of steps", "Watch(every)", "every=50")
        self.log, self.names, self._log_all = log, tuple(str(name) for name in names), log_all
        self._collapsed = False  # and warned of it
        checks.within(predict_seconds, "seconds above 0", "Watch(predict_seconds)", infinite=True)
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
        self._shift = 0  # added to steps, where their numbers began anew
        self._given = self._done = -1  # the latest step as it was given, and as it counts
        self._due = 0
        self._began = self._now = 0.0  # of the first and the latest call of `step`
        self._spent = self._spent_first = 0.0
        self._ended_first = math.nan
        self._blind = False  # a look has failed
        self._result: tuple[int, WatchedTraining] | None = None

    # -- What a loop calls ---------------------------------------------------------------------------------------------

    def step(self, step: int | None = None) -> None:
        """Say that so many updates are done: before each update, from 0 on; without a number they are counted.

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

    # -- What it has seen ----------------------------------------------------------------------------------------------

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
        return Cost(len(self._looks), self._spent, training, max(0, self._done - first), later)

    def save(self, path: str | Path) -> Path:
        """The page of the result: one HTML file that opens offline."""
        return self.result.save(path)

    def __str__(self) -> str:
        return str(self.result)

    def __repr__(self) -> str:
        return f"Watch({len(self._looks)} looks up to step {self._done})"

    def _repr_html_(self) -> str:
        return self.result._repr_html_()  # pyright: ignore[reportPrivateUsage]

    # -- When to look --------------------------------------------------------------------------------------------------

    def _count(self, step: int | None) -> int:
        if step is None:
            self._done += 1
            self._given = self._done - self._shift
            return self._done
        try:
            given = operator.index(step)
        except TypeError:
            raise InvalidInput("a number of updates", got=step, where="Watch.step", hint="watch.step(k)") from None
        if given < 0:
            raise InvalidInput("a number of updates, from 0 on", got=given, where="Watch.step", hint="watch.step(k)")
        if given < self._given:
            self._shift = self._done + 1 - given
            note = f"steps began anew at {given} after {self._given}: they were counted on"
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

    # -- Looking -------------------------------------------------------------------------------------------------------

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
            except Exception as error:  # of a user's model: his training goes on
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
            warnings.warn(f"firstguess.Watch: {seen.finding}", RuntimeWarning, stacklevel=3)
        if self.log is not None:
            self.log(self.numbers(), step)
        self._now = time.perf_counter()
        if self._began == 0.0:  # evaluated before the first step
            self._began = began
        self._spent += self._now - began

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
        labels = eyes.labels
        even = np.arange(max(eyes.classes, 2)) if labels is None else labels
        looks = tuple(looks)
        later = LazyPrediction((lambda: self._predictor.predict(looks, eyes)) if predict and looks else None)
        return WatchedTraining(
            looks,
            eyes.points,
            eyes.classes,
            labels,
            level_of(self._level, max(eyes.classes, 2), even),
            tuple(self._early),
            tuple(self._notes),
            self.names,
            self.cost,
            later,
            self._provenance(model) if predict else {},
        )

    def _provenance(self, model: nn.Module) -> dict[str, Any]:
        batches = self._eyes.batches
        return {
            "model": f"{type(model).__module__}.{type(model).__qualname__}",
            "parameters": sum(p.numel() for p in model.parameters()),
            "inputs held": sum(batch.size for batch in batches),
            "held inputs' hash": data_hash(batches),
            "every": self.every,
            "mode": self._eyes.mode,
            "seed": self._eyes.seed,
            **versions(),
        }


def _finite(found: dict[str, float]) -> dict[str, float]:
    return {f"firstguess/{name}": float(value) for name, value in found.items() if math.isfinite(value)}


def _wait_for(model: nn.Module) -> None:
    """Until a device is done with what training has asked of it: its time is not that of the look."""
    kinds = {p.device.type for p in model.parameters()}
    if "cuda" in kinds:
        torch.cuda.synchronize()
    if "mps" in kinds:
        torch.mps.synchronize()
