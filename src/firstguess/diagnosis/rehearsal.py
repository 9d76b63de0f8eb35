"""The first steps of training, seen: copies of the model, with the user's own loss and optimizer."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast, get_args

import numpy as np
import torch
from torch import nn, optim
from torch.nn import functional as F

from firstguess.base import checks
from firstguess.base.errors import InvalidInput
from firstguess.base.record import Record
from firstguess.data import Batch
from firstguess.diagnosis.bias_duration import LEFT, Optimizer, left_of, settled
from firstguess.ensemble.trained import TrainedMembers
from firstguess.modules.call_model import joined, signature
from firstguess.modules.optimizers import like, recipe
from firstguess.modules.train import train_module

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
        """The rate of copies: the user's, else the one that theory chose, else a usual one."""
        if self.lr is not None:
            return self.lr
        known = predicted if math.isfinite(predicted) and self.named != "adam" else math.nan
        return RATES[self.named or "adam"] if math.isnan(known) else known

    def words(self, predicted: float) -> str:
        """Optimizer, rate and loss."""
        name = self.loss if isinstance(self.loss, str) else getattr(self.loss, "__name__", type(self.loss).__name__)
        loss = "" if name == "cross-entropy" else f" and {name}"
        return f"{self.title} at lr {self.rate(predicted):.3g}{loss}"


def trained_with(optimizer: Any, lr: float | None, loss: Any, model: object) -> TrainedWith:
    """Checked before anything is measured. `model` is whose parameters an optimizer that exists already has."""
    if lr is not None and not (not isinstance(lr, bool) and 0 < checks.number(lr) < math.inf):
        raise InvalidInput("a learning rate above 0", got=repr(lr), where="diagnose(lr)", hint="lr=1e-3")
    if loss is not None and not callable(loss) and loss not in ("cross-entropy", "squared"):
        expected = "a loss: a function of outputs and labels, 'cross-entropy' or 'squared'"
        raise InvalidInput(expected, got=repr(loss), where="diagnose(loss)", hint="loss=nn.CrossEntropyLoss()")
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
    plain = type(loss) is nn.CrossEntropyLoss and loss.weight is None and not loss.label_smoothing
    return plain or loss is F.cross_entropy


INITS, FEWEST = 8, 4  # copies; below the second number bias is told within each, not between them
MANY = 32  # of them, where the number of steps hangs on which eight were drawn
_DRAWS, _MIDDLE = 100, (1 / 6, 5 / 6)  # of the copies, with replacement; quantiles of a number of steps: two thirds
_FOLDS = 4  # each is held out once
STEPS, FURTHER = 64, 4  # of the first look; how much further the next ones go
LONGEST = 256  # steps, or as long as the run is, where fewer leave it open
_SHORTEST = 16  # steps below which nothing is said
_LEARNED = 0.03  # of the label entropy that the loss must fall by, or of what balanced accuracy can gain
_SURE = 3.0  # standard errors
_BEHIND = 0.5  # of what the nearest class mean knows: copies that know less by the last look learn slowly


@dataclass(frozen=True, eq=False)
class Rehearsal(Record):
    """What copies of the model did in their first steps, or `why` there are none.

    `left` is the part of the starting bias that is left at the steps `at` (as `PredictedDuration.left`); `steps` the
    step from which it stays within a quarter, ∞ where it does not by the last. `accuracy` is balanced: every class
    counts the same. `learns`: the loss (cross-entropy) or that accuracy is clearly better than any guess that ignores
    the input.
    `low` and `high` are `steps` for two thirds of other draws of the copies.
    `easy` is the balanced accuracy of the simplest rule that looks at the inputs, their nearest class mean; `doubt`:
    labels may have nothing to do with the inputs, and copies would learn them by heart. Then some copies are trained
    without a quarter of the points each: `own` is their balanced accuracy on the points that they learned, `held` on
    the others, with its error.
    """

    why: str = ""
    how: str = ""  # loss and optimizer, in words
    at: tuple[int, ...] = ()
    left: tuple[float, ...] = ()
    largest: tuple[float, ...] = ()
    accuracy: tuple[float, ...] = ()
    loss: tuple[float, ...] = ()
    steps: float = math.nan
    learns: bool = False
    diverged: int = 0  # of the copies
    inits: int = 0
    classes: int = 0
    easy: float = math.nan
    doubt: str = ""
    low: float = math.nan
    high: float = math.nan
    own: float = math.nan
    held: float = math.nan
    held_error: float = math.nan

    @property
    def by_heart(self) -> bool:
        """Whether nothing of what copies learn carries over to points that they have not seen."""
        chance, error = 1.0 / max(self.classes, 1), _SURE * self.held_error
        little = self.held + error - chance < 0.5 * (self.own - chance)
        return self.learns and self.held - error <= chance and little

    @property
    def known(self) -> bool:
        """Whether copies were trained."""
        return not self.why

    @property
    def behind(self) -> bool:
        """Whether copies have gained less than half of what the nearest class mean has, or, in doubt, of all there is;
        False where neither is known."""
        chance, wanted = 1.0 / max(self.classes, 1), 1.0 if self.doubt else self.easy
        return bool(self.accuracy) and self.accuracy[-1] - chance < _BEHIND * (wanted - chance)

    @property
    def slow(self) -> bool:
        """Whether they learn, and are still slow after many steps."""
        return self.learns and self.behind and self.last >= LONGEST

    @property
    def last(self) -> int:
        """The last step that was seen."""
        return self.at[-1] if self.at else 0


@dataclass(frozen=True, eq=False)
class RehearsalPlan:
    """What is trained, on what and how; `words` name the loss and the optimizer."""

    model: Callable[..., Any]
    batches: Sequence[Batch]
    loss: Any
    optimizer: Any
    lr: float
    words: str
    options: dict[str, Any]  # where copies come from: init, redraw, logits, …
    seed: int = 0
    easy: float = math.nan
    doubt: str = ""
    hold_out: bool = False  # in doubt, whether what is learned carries over
    of: int | None = None  # points of a step, where batches are others than those that the model gets

    @property
    def batch(self) -> int | None:
        """Points of a step: those of the batches that the model gets."""
        return None if self.optimizer == "gd" else self.of or max(2, self.batches[0].size)


def rehearse(
    asked: RehearsalPlan,
    *,
    enough: Callable[[Rehearsal], bool],
    sure: Callable[[Rehearsal], bool],
    seconds: float,
    most: int,
) -> Rehearsal:
    """Train copies for 64 steps; four times as many where these leave it open (not `enough`) and there is time. Four
    times as many copies where the number of steps hangs on which were drawn (not `sure`)."""
    nothing = Rehearsal(how=asked.words)
    if any(batch.labels is None for batch in asked.batches):
        return replace(nothing, why="the data have no labels")
    began = time.perf_counter()
    trial = _trained(asked, 1, 4)
    a_step = max(trial.seconds, 1e-4) / 4

    def left() -> float:
        return seconds - (time.perf_counter() - began)

    steps = STEPS
    inits = int(min(INITS, left() / (a_step * steps)))
    if inits < 1:
        inits, steps = 1, int(left() / a_step)
        if steps < _SHORTEST:
            needed = (_SHORTEST + 8) * a_step
            return replace(nothing, why=f"{_SHORTEST} steps of a copy would take about {needed:.0f} s more")
    found = seen(_trained(asked, inits, steps), asked)
    while not enough(found) and steps < most:
        steps = min(most, FURTHER * steps)
        affordable = int(min(inits, left() / (a_step * steps)))
        if affordable < min(inits, FEWEST):
            break
        inits = affordable
        found = seen(_trained(asked, inits, steps), asked)
    affordable = int(min(MANY, left() / (a_step * steps)))
    if not sure(found) and affordable >= 2 * inits:
        found = seen(_trained(asked, affordable, steps), asked)
    if asked.hold_out and asked.doubt and found.learns and left() > 2 * _FOLDS * a_step * steps:
        found = _held_out(found, asked, steps)
    return found


def _held_out(found: Rehearsal, asked: RehearsalPlan, steps: int) -> Rehearsal:
    """What copies know of points that they have not seen: every point is held out once."""
    if len({signature(batch) for batch in asked.batches}) > 1 or asked.batches[0].call is not None:
        return found  # points that cannot be put together
    whole = joined(asked.batches)
    order = torch.randperm(whole.size, generator=torch.Generator().manual_seed(asked.seed))
    own: list[float] = []
    right: list[Any] = []
    for fold in range(_FOLDS):
        out = torch.zeros(whole.size, dtype=torch.bool)
        out[order[fold::_FOLDS]] = True
        kept, held = (whole.rows(which.nonzero().reshape(-1), int(which.sum())) for which in (~out, out))
        t = _trained(replace(asked, batches=[kept], of=asked.batch), 2, steps, [held])
        assert t.test is not None
        own.append(_balanced(t.accuracy, kept))
        right.append((t.test, held))
    labels = cast("torch.Tensor", whole.labels).reshape(-1).long()
    counts = torch.bincount(labels, minlength=found.classes).double().numpy()
    hits = np.zeros(len(counts))
    for test, held in right:
        per = torch.bincount(cast("torch.Tensor", held.labels).reshape(-1).long(), minlength=len(counts)).numpy()
        for c in np.flatnonzero(per).tolist():
            hits[c] += per[c] * float(np.nanmean(test.accuracy.groups[c][:, -1]))
    p = hits[counts > 0] / counts[counts > 0]
    _, error = _guessing(p[:, None], counts)
    return replace(found, own=float(np.mean(own)), held=float(p.mean()), held_error=error)


def _balanced(accuracy: Any, batch: Batch) -> float:
    classes = torch.unique(cast("torch.Tensor", batch.labels)).tolist()
    return float(np.mean([np.nanmean(accuracy.groups[int(c)][:, -1]) for c in classes]))


def _trained(asked: RehearsalPlan, inits: int, steps: int, test: Sequence[Batch] | None = None) -> TrainedMembers:
    return train_module(
        asked.model, list(asked.batches), test, inits=inits, start="any", level=None, threads=1, store=None,
        progress=None, classes=None, more={"strategy": "loop", **asked.options}, lr=asked.lr,
        optimizer=asked.optimizer, steps=steps, epochs=None, batch=asked.batch, loss=_fitted(asked.loss),
        weight_decay=0.0, seed=asked.seed,
    )  # fmt: skip


def _fitted(loss: Any) -> Any:
    """A loss of the user's that also takes labels as numbers, where one logit is compared with them."""
    if isinstance(loss, str):
        return loss

    def value(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if output.numel() == labels.numel():
            return loss(output, labels.to(output.dtype).view_as(output))
        return loss(output, labels)

    return value


def seen(t: TrainedMembers, asked: RehearsalPlan) -> Rehearsal:
    """The curves, summed up over copies that stayed finite."""
    labels = torch.cat([batch.labels.reshape(-1) for batch in asked.batches if batch.labels is not None]).long()
    counts = torch.bincount(labels, minlength=t.classes).double().numpy()
    lost = {member for member, _ in t.diverged}
    fine = np.array([member not in lost for member in t.members])
    at = tuple(t.steps.tolist())
    found = Rehearsal(how=asked.words, at=at, easy=asked.easy, doubt=asked.doubt)
    found = replace(found, inits=len(t.members), diverged=len(lost), classes=t.classes)
    if not fine.any():
        return replace(found, steps=math.inf)
    by_class = np.stack([t.accuracy.groups[c][fine] for c in np.flatnonzero(counts).tolist()])  # (class, copy, step)
    balanced, loss = by_class.mean(axis=0), t.loss.draws[fine]
    left = left_of(by_class, within=by_class.shape[1] < FEWEST)
    if np.isnan(left[0]):  # all copies start alike, with a head's bias that every initialization keeps
        left = left_of(by_class, within=True)
    low, high = likely_steps(t.steps, by_class)
    learns = _better(balanced[:, -1], _guessing(by_class[:, :, -1], counts), 1.0 - 1.0 / len(by_class))
    if asked.loss == "cross-entropy":
        p = counts[counts > 0] / counts.sum()
        entropy = float(-(p * np.log(p)).sum())  # of the best guess that ignores the input
        learns = learns or _better(-loss[:, -1], (-entropy, 0.0), entropy)
    curves = (t.largest.draws[fine], balanced, loss)
    largest, accuracy, losses = (tuple(curve.mean(axis=0).tolist()) for curve in curves)
    found = replace(found, left=tuple(left.tolist()), largest=largest, accuracy=accuracy, loss=losses)
    steps = math.nan if np.isnan(left[0]) else settled(t.steps, left, LEFT)
    return replace(found, steps=steps, low=low, high=high, learns=learns)


def likely_steps(at: Any, by_class: Any) -> tuple[float, float]:
    """Between which numbers of steps two thirds of other draws of these copies are; NaN for a few of them."""
    count, stream = by_class.shape[1], np.random.default_rng(0)
    if count < FEWEST or not np.isfinite(left_of(by_class)).all():
        return math.nan, math.nan
    draws = [left_of(by_class[:, stream.integers(count, size=count)]) for _ in range(_DRAWS)]
    steps = sorted(settled(at, left, LEFT) for left in draws if np.isfinite(left).all())
    low, high = (steps[int(part * (len(steps) - 1))] for part in _MIDDLE)
    return low, high


def _better(values: Any, guessing: tuple[float, float], room: float) -> bool:
    """Whether it is better by a part of what is left, and by what copies and points differ by."""
    chance, error = guessing
    spread = float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return float(values.mean()) - chance > max(_LEARNED * room, _SURE * math.hypot(error, spread))


def _guessing(accuracy: Any, counts: Any) -> tuple[float, float]:
    """Balanced accuracy of what ignores the input, and the error of one that this many points have."""
    p, n = accuracy.mean(axis=1), counts[counts > 0]
    return 1.0 / len(n), float(np.sqrt((np.clip(p * (1 - p), 0.01, None) / n).sum()) / len(n))


def by_class_means(x: torch.Tensor, labels: torch.Tensor) -> float:
    """Balanced accuracy of the nearest class mean; a point does not count in the mean of its own class.

    >>> by_class_means(torch.tensor([[0.0], [1.0], [2.0], [8.0], [9.0], [3.0]]), torch.tensor([0, 0, 0, 1, 1, 1]))
    0.8333333333333333
    """
    rows = x.flatten(1)
    classes, own, counts = torch.unique(labels, return_inverse=True, return_counts=True)
    means = torch.zeros(len(classes), rows.shape[1]).index_add_(0, own, rows.float()) / counts[:, None]
    apart = torch.cdist(rows.float(), means)
    apart[torch.arange(len(rows)), own] *= counts[own] / (counts[own] - 1)  # infinite for a point that is alone
    right = (apart.argmin(1) == own).double()
    return float(np.mean([right[own == c].mean().item() for c in range(len(classes))]))
