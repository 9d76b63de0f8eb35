"""Many networks, trained: which starts are kept, what is looked at, and what is left when something stops it.

It drives any `Trainer`: that of descriptions (training_engine.py), or that of modules.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from firstguess._version import NUMERICS, __version__
from firstguess.base import checks
from firstguess.base.checks import count
from firstguess.base.errors import InvalidInput
from firstguess.base.files import ARRAYS, Arrays, FolderStore, address, reason
from firstguess.base.gaussian import Array
from firstguess.base.statistics import guesses
from firstguess.base.threads import run_all
from firstguess.ensemble.member_statistics import Cut, TrainedBlock, share
from firstguess.ensemble.seeds import tie_stream
from firstguess.ensemble.trained import TrainedMembers
from firstguess.theory.training.curves import Curve, CurveRecorder, Curves, looked_at
from firstguess.theory.training.problem import batch_size, check_decay, level_of, looks_of
from firstguess.theory.training.runs import BIASED, NEUTRAL
from firstguess.theory.training.schedules import rates

# How many networks are trained, checked: learning rates of every step, looks, batches, loss.

Start: TypeAlias = Literal["any", "even", "neutral", "biased"]  # "neutral" is the papers' word for "even"
MeanLoss: TypeAlias = "Callable[[NDArray[Any], NDArray[np.int64]], float]"  # of logits (points, classes) and labels

NAMED = ("gd", "sgd", "adam")  # optimizers
LOSSES = ("cross-entropy", "squared")


@dataclass(frozen=True, eq=False)
class Plan:
    """How every member is trained."""

    rates: NDArray[np.float64]  # the learning rate of every step
    looks: NDArray[np.int64]  # the steps that are looked at; the first is 0
    optimizer: Any  # 'gd', 'sgd', 'adam'; for modules also a class or a factory
    batch: int | None  # None: all points
    loss: Any  # 'cross-entropy', 'squared'; for modules also a callable
    decay: float
    seed: int

    @property
    def steps(self) -> int:
        """The last step."""
        return int(self.looks[-1])

    @property
    def recorded(self) -> dict[str, Any]:
        """What results and stores know it by; a loss of the user's by its name."""
        named = isinstance(self.loss, str)
        loss = self.loss if named else getattr(self.loss, "__qualname__", type(self.loss).__qualname__)
        known = {"optimizer": self.optimizer, "batch": self.batch, "loss": loss, "weight_decay": self.decay}
        return {**known, "seed": self.seed}

    def task(
        self,
        labels: NDArray[np.int64],
        held: NDArray[np.int64] | None,
        classes: int,
        level: float | None,
        loss: MeanLoss | None = None,
    ) -> TrainingTask:
        """What its members are looked at for; `loss`: one of the user's."""
        level = level_of(level, classes, labels)
        return TrainingTask(labels, held, classes, self.looks, loss or mean_loss(self.loss), level, self.seed)

    def provenance(self, rate: float, **known: Any) -> dict[str, Any]:
        """What a result says of where it comes from; `known`: of the network, and what it knows better."""
        versions = {"firstguess": __version__, "torch": metadata.version("torch")}
        return {**versions, **known, **self.recorded, "lr": rate, "steps": self.steps} | known


def plan(
    n: int,
    *,
    lr: Any,
    steps: Any = None,
    epochs: Any = None,
    optimizer: Any = "adam",
    batch: Any = None,
    loss: Any = "cross-entropy",
    weight_decay: Any = 0.0,
    seed: int = 0,
    named: bool = True,
) -> Plan:
    """The plan for n training points; `named`: optimizer and loss must be names (descriptions)."""
    if (named or isinstance(optimizer, str)) and optimizer not in NAMED:
        expected = "optimizer 'gd', 'sgd' or 'adam'" + ("" if named else ", a class of torch.optim, or a factory")
        raise InvalidInput(expected, got=optimizer, where="train(optimizer)", hint="optimizer='adam'")
    if (named or isinstance(loss, str)) and loss not in LOSSES:
        expected = "loss 'cross-entropy' or 'squared'" + ("" if named else ", or a function of outputs and labels")
        raise InvalidInput(expected, got=loss, where="train(loss)", hint="loss='cross-entropy'")
    size = batch_size(batch, optimizer, n, "train")
    check_decay(weight_decay)
    looks = _looks(steps, epochs, 1 if size is None else -(-n // size))
    seed = checks.count(seed, 0, "seed", "train(seed)", "seed=0")
    return Plan(rates(lr, int(looks[-1]), "train(lr)"), looks, optimizer, size, loss, float(weight_decay), seed)


def _looks(steps: Any, epochs: Any, of_an_epoch: int) -> NDArray[np.int64]:
    if (steps is None) == (epochs is None):
        got = "neither" if steps is None else "both"
        raise InvalidInput("steps or epochs, one of them", got=got, where="train", hint="epochs=20, or steps=1000")
    if epochs is not None:
        return looked_at(of_an_epoch * checks.count(epochs, 1, "number of epochs", "train(epochs)", "epochs=20"))
    return looks_of(steps, "train")


def mean_loss(kind: str) -> MeanLoss:
    """The loss of logits and labels, in float64: cross-entropy, or ½ Σ (f − one-hot)²; averaged over points."""

    def cross_entropy(logits: NDArray[Any], labels: NDArray[np.int64]) -> float:
        f = logits.astype(np.float64)
        f -= f.max(axis=1, keepdims=True)
        own = f[np.arange(len(f)), labels]
        return float((np.log(np.exp(f).sum(axis=1)) - own).mean())

    def squared(logits: NDArray[Any], labels: NDArray[np.int64]) -> float:
        f = logits.astype(np.float64)
        f[np.arange(len(f)), labels] -= 1.0
        return float(0.5 * np.square(f).sum(axis=1).mean())

    return squared if kind == "squared" else cross_entropy


# What trained members showed, a small file each: a training that was killed resumes where it was.

MemberStore: TypeAlias = FolderStore[Arrays]  # by the number of the member


def member_store(folder: str | os.PathLike[str], **parts: Any) -> MemberStore:
    """The store of members whose numbers depend on `parts`, if its folder can be made and written to."""
    try:
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        if not os.access(target, os.W_OK):
            raise PermissionError(13, "Permission denied", str(target))
    except (OSError, TypeError, ValueError) as error:
        got = reason(error) if isinstance(error, OSError) else str(error)
        expected = "a folder to keep results in"
        raise InvalidInput(expected, got=got, where="train(store)", hint="store='runs'") from error
    return FolderStore(target, ARRAYS, f"train-{address('training', NUMERICS, parts)}-")


Values: TypeAlias = NDArray[Any]  # floating
# observe(member, index of the look, logits of the training points (n, classes), of the held-out ones or None, norm of
# the gradient that the next step takes: of the loss on its batch, without weight decay, over all trained parameters).
# Logits that are not finite: the member has diverged, the others of its group continue.
Observe: TypeAlias = Callable[[int, int, Values, "Values | None", float], None]
Progress: TypeAlias = Callable[[int, int], object]  # (steps done by all members, steps in all)

_TRIES = 400  # starts drawn for one that is kept, at most
_SHOWN = 0.2  # seconds between two calls of progress


class Trainer(Protocol):
    """Something that can draw and train members."""

    @property
    def classes(self) -> int: ...

    @property
    def group(self) -> int:
        """Members convenient to train together in one call, per thread."""
        ...

    @property
    def threads(self) -> int:
        """Calls of `first` and `train` that may run at once, each in a Python thread; 1: in the caller's own."""
        ...

    @property
    def notes(self) -> tuple[str, ...]: ...

    def first(self, members: Sequence[int]) -> Iterator[Values]:
        """Logits (points, classes) of each at step 0; nothing is trained. BatchNorm as in training."""
        ...

    def train(
        self, members: Sequence[int], looks: NDArray[np.int64], observe: Observe, stopped: Callable[[], bool]
    ) -> None:
        """Train these together, and observe each at every look. `stopped` is asked once before every step of the
        group: True ends it there."""
        ...


@dataclass(frozen=True, eq=False)
class TrainingTask:
    """What members are looked at for."""

    labels: NDArray[np.int64]  # of the training points
    held: NDArray[np.int64] | None  # of the held-out ones
    classes: int
    looks: NDArray[np.int64]
    loss: MeanLoss
    level: float
    seed: int = 0

    def shares(self, member: int, logits: Values) -> tuple[NDArray[np.intp], Array]:
        """The class of every point, and the share of each class. Ties of a member are broken alike at every look."""
        best = guesses(logits, tie_stream(self.seed, member))
        return best, np.bincount(best, minlength=self.classes) / len(best)


class Track:
    """What one member showed, look by look. Arrays are NaN where it was not looked at."""

    def __init__(self, task: TrainingTask, member: int, arrays: dict[str, Array] | None = None) -> None:
        self._task, self._member = task, member
        self.arrays = arrays or {name: np.full(shape, math.nan) for name, shape in shapes(task).items()}

    def add(self, index: int, logits: Values, held: Values | None, gradient: float) -> None:
        """Take in one evaluation."""
        if not np.isfinite(logits).all():
            self.arrays["diverged"][0] = np.fmin(self._task.looks[index], self.arrays["diverged"][0])
            return
        self._record("", index, logits, self._task.labels)
        self.arrays["gradient"][index] = gradient
        if held is not None and self._task.held is not None and np.isfinite(held).all():
            self._record("held ", index, held, self._task.held)

    def _record(self, which: str, index: int, logits: Values, labels: NDArray[np.int64]) -> None:
        classes = self._task.classes
        best, self.arrays[f"{which}shares"][index] = self._task.shares(self._member, logits)
        self.arrays[f"{which}right"][index] = np.bincount(labels[best == labels], minlength=classes)
        self.arrays[f"{which}loss"][index] = self._task.loss(logits, labels)

    @property
    def diverged(self) -> int | None:
        """The look at which it was seen."""
        step = float(self.arrays["diverged"][0])
        return None if math.isnan(step) else int(step)

    @property
    def started(self) -> bool:
        """Whether any look was seen."""
        return self.diverged is not None or bool(np.isfinite(self.arrays["shares"]).any())

    @property
    def complete(self) -> bool:
        """Whether every look was seen, or it ended before."""
        return self.diverged is not None or bool(np.isfinite(self.arrays["shares"]).all())


def shapes(task: TrainingTask) -> dict[str, tuple[int, ...]]:
    """Shapes of what is kept of one member."""
    looks = len(task.looks)
    found: dict[str, tuple[int, ...]] = {"diverged": (1,), "gradient": (looks,)}
    for which in ("", "held ") if task.held is not None else ("",):
        found |= {f"{which}shares": (looks, task.classes), f"{which}right": (looks, task.classes)}
        found |= {f"{which}loss": (looks,)}
    return found


def _stored(store: MemberStore | None, member: int, wanted: dict[str, tuple[int, ...]]) -> dict[str, Array] | None:
    """A member's arrays; None if they are not in the store, not whole, or of other shapes."""
    found = (store and store.read(str(member))) or {}
    same = {name: array.shape for name, array in found.items()} == wanted
    return dict(found) if same and all(array.dtype == np.float64 for array in found.values()) else None


def follow(
    trainer: Trainer,
    task: TrainingTask,
    *,
    what: str,
    inits: int,
    start: Start = "any",
    provenance: dict[str, Any] | None = None,
    store: MemberStore | None = None,
    progress: Progress | None = None,
) -> TrainedMembers:
    """Draw starts, keep those asked for, train them, and look. Ctrl-C keeps what was seen until then."""
    began = time.perf_counter()
    inits = count(inits, 1, "number of initializations", "train(inits)", "inits=50")
    checks.choice(start, ("any", "even", "neutral", "biased"), "train(start)", "start")
    threads = min(trainer.threads, inits)
    side_by_side = min(trainer.group, -(-inits // threads))
    asked = share(inits, side_by_side if getattr(trainer, "bitwise_group", 0) and start == "any" else 0)
    members, drawn = _chosen(trainer, task, inits, start)
    if asked is not None and not asked.known:
        tracks = {member: Track(task, member) for member in range(asked.start, asked.stop)}
        _Groups(trainer, task, tracks, None, progress).all(list(tracks), len(tracks), side_by_side)
        arrays = {name: np.stack([track.arrays[name] for track in tracks.values()]) for name in shapes(task)}
        raise Cut(TrainedBlock(asked.start, arrays), inits, asked.size)
    tracks = {member: Track(task, member, _stored(store, member, shapes(task))) for member in members}
    for block in asked.known if asked is not None else ():
        for row in range(block.inits):
            member = block.start + row
            tracks[member] = Track(task, member, {name: found[row] for name, found in block.arrays.items()})
    missing = [member for member in members if not tracks[member].complete]
    for member in missing:
        tracks[member] = Track(task, member)
    interrupted = False
    if missing:
        try:
            _Groups(trainer, task, tracks, store, progress).all(missing, len(members))
        except KeyboardInterrupt:
            interrupted = True
            if not any(track.started for track in tracks.values()):
                raise
    kept = [member for member in members if tracks[member].started]
    return _result(
        task,
        {member: tracks[member] for member in kept},
        what=what,
        start=start,
        drawn=drawn,
        notes=trainer.notes,
        provenance={"points": len(task.labels), **(provenance or {})},
        seconds=time.perf_counter() - began,
        interrupted=interrupted,
    )


# Starts


def _chosen(trainer: Trainer, task: TrainingTask, inits: int, start: Start) -> tuple[list[int], int]:
    """The first `inits` members whose start is of the kind wanted, and how many were evaluated to find them."""
    if start == "any":
        return list(range(inits)), inits
    kept: list[int] = []
    seen: list[float] = []
    while len(kept) < inits:
        first = len(seen)
        block = range(first, first + trainer.group * trainer.threads)
        for member, logits in zip(block, _first(trainer, block), strict=True):
            largest = math.nan
            if np.isfinite(logits).all():
                largest = float(task.shares(member, logits)[1].max())
            seen.append(largest)
            if largest >= BIASED if start == "biased" else largest <= NEUTRAL / task.classes:
                kept.append(member)
                if len(kept) == inits:
                    break
        if len(seen) >= max(_TRIES, 20 * inits) and len(kept) < len(seen) / _TRIES:
            found = np.array(seen)
            low, high = (np.nanmin(found), np.nanmax(found)) if np.isfinite(found).any() else (math.nan, math.nan)
            got = f"{len(kept)} of {len(seen)} drawn (their largest shares are {low:.3f} to {high:.3f})"
            raise InvalidInput(f"starts that are {start}", got=got, where="train(start)", hint="start='any'")
    return kept, len(seen)


def _first(trainer: Trainer, members: Sequence[int]) -> Iterator[Values]:
    if trainer.threads == 1:
        yield from trainer.first(members)
        return
    parts = [members[i : i + trainer.group] for i in range(0, len(members), trainer.group)]
    with ThreadPoolExecutor(trainer.threads) as pool:
        for logits in pool.map(lambda part: list(trainer.first(part)), parts):
            yield from logits


# Training


class _Groups:
    """Groups of members on their way, in threads; files, progress and the wish to stop."""

    def __init__(
        self,
        trainer: Trainer,
        task: TrainingTask,
        tracks: dict[int, Track],
        store: MemberStore | None,
        progress: Progress | None,
    ) -> None:
        self._trainer, self._task, self._tracks, self._store, self._progress = trainer, task, tracks, store, progress
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._done = 0
        self._shown = 0.0

    def all(self, missing: Sequence[int], total: int, side_by_side: int | None = None) -> None:
        steps = int(self._task.looks[-1])
        self._total = total * steps
        self._done = (total - len(missing)) * steps
        threads = min(self._trainer.threads, len(missing))
        size = side_by_side or min(self._trainer.group, -(-len(missing) // threads))
        groups = iter([missing[i : i + size] for i in range(0, len(missing), size)])

        def work() -> None:
            while not self._stop.is_set():
                with self._lock:
                    group = next(groups, None)
                if group is None:
                    return
                self._one(group)

        if self._trainer.threads == 1:
            for group in groups:
                self._one(group, show=True)
        else:  # after Ctrl-C, or a progress that raises, steps under way finish, and no more are taken
            run_all([work] * threads, self._stop, self._show, _SHOWN)
        self._show(always=True)

    def _one(self, group: Sequence[int], *, show: bool = False) -> None:
        asked = 0

        def stopped() -> bool:
            nonlocal asked
            asked += 1
            if asked > 1:
                with self._lock:
                    self._done += len(group)
                if show:
                    self._show()
            return self._stop.is_set()

        self._trainer.train(group, self._task.looks, lambda member, *seen: self._tracks[member].add(*seen), stopped)
        store = None if self._stop.is_set() else self._store
        for member in group:
            if store is not None and self._tracks[member].complete:
                try:
                    store.keep(str(member), self._tracks[member].arrays)
                except OSError as error:
                    expected = "a folder that takes results"
                    raise InvalidInput(
                        expected, got=reason(error), where="train(store)", hint="another folder"
                    ) from error
        with self._lock:
            self._done += len(group) * (int(self._task.looks[-1]) - max(asked - 1, 0))

    def _show(self, *, always: bool = False) -> None:
        now = time.monotonic()
        if self._progress is not None and (always or now - self._shown >= _SHOWN):
            self._shown = now
            self._progress(self._total if always else min(self._done, self._total), self._total)


def _result(task: TrainingTask, tracks: dict[int, Track], **rest: Any) -> TrainedMembers:
    def stacked(name: str) -> Array:
        return np.stack([track.arrays[name] for track in tracks.values()])

    shares = stacked("shares")
    start = np.where(np.isnan(shares[:, 0]), -1.0, shares[:, 0])
    favourites = start.argmax(axis=1).astype(np.int64)

    def curves(which: str, labels: NDArray[np.int64]) -> Curves:
        recorder = CurveRecorder(task.looks, labels, task.classes, len(tracks))
        found, right, loss = stacked(f"{which}shares"), stacked(f"{which}right"), stacked(f"{which}loss")
        for index in range(len(task.looks)):
            recorder.add(index, found[:, index], right[:, index], loss[:, index])
        return recorder.curves(favourites)

    return TrainedMembers(
        classes=task.classes,
        curves=curves("", task.labels),
        test=None if task.held is None else curves("held ", task.held),
        gradients=Curve(task.looks, stacked("gradient")),
        shares=shares,
        favourites=favourites,
        members=tuple(tracks),
        level=task.level,
        diverged=tuple((m, track.diverged) for m, track in tracks.items() if track.diverged is not None),
        **rest,
    )
