"""How long the bias will last in training: what is said of it, and of which numbers.

What is followed is how much of the starting bias is left: by how much the accuracy on a class still depends on which
class a network favoured at the start. (When the largest share falls to a level says less: outputs that hardly differ
yet all follow the labels' majority for a while, which is no bias of the start.)

It is followed along the tangent kernel of the description, from the model's own starts: no network is trained.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.base.text import percent, percents, plain, rounded
from firstguess.data import Data
from firstguess.ensemble.predict_training import measured, trust_of
from firstguess.network.shapes import PositionGrid, Shape
from firstguess.network.walk import every, needs_images
from firstguess.theory.kernel.tiles import Budget
from firstguess.theory.training.curves import Accuracy, looked_at
from firstguess.theory.training.problem import Problem, prepare
from firstguess.theory.training.runs import PredictedTraining, Trust, follow

if TYPE_CHECKING:
    from firstguess.network.network import Network

Optimizer = Literal["gd", "sgd", "adam"]
Array = NDArray[np.float64]

LEFT = 0.25  # of the starting bias: gone, for the page. Its last tenth is known less well: networks differ in pace
EDGE = 0.1  # a part of it that may be there or not: so well is it known
_APART = 1.5  # two numbers of steps that do not agree: the page says both, and compares neither
_FOLLOWS = 0.2  # beyond the labels' own largest share: outputs that hardly differ follow their majority for a while
_EARLY, _LATE, _FASTER = 0.25, 0.5, 3.0  # part of learning that is done by then; bias to signal


@dataclass(frozen=True, eq=False)
class PredictedDuration:
    """How long the bias lasts in training, or `why` that is not known.

    `left` is the part of the starting bias that is left at `at`: accuracies by class, regressed over initializations
    on those of the start (1 at the start; negative where other classes are favoured in turn). `steps` is the step from
    which on it stays within a quarter; `half` within a half. `low` and `high` are `steps` for labels one standard
    error less or more even than those of the points, where there are more points than these, and for a swing to other
    classes that is a little less or more (NaN: neither matters). `largest` and `accuracy`
    are averages at the start and at `steps`. `ratio` is bias to signal (theory.md (15)); `overshoot` the learning rate
    from which on classes hand over to each other. `own` is the model's squared gradient of the bias by the kernel's,
    with its spread over networks; `own_signal` that of the labels' direction.
    """

    why: str = ""
    optimizer: Optimizer = "gd"
    lr: float = math.nan
    chosen: bool = False  # the rate is ours, not the user's
    batch: int | None = None
    steps: float = math.nan
    low: float = math.nan
    high: float = math.nan
    half: float = math.nan
    ratio: float = math.nan
    largest: tuple[float, float] = (math.nan, math.nan)
    accuracy: tuple[float, float] = (math.nan, math.nan)
    majority: float = math.nan  # the labels' largest share
    overshoot: float = math.nan
    at: tuple[float, ...] = ()
    left: tuple[float, ...] = ()
    points: int = 0
    inits: int = 0
    own: tuple[float, float] = (math.nan, math.nan)
    own_signal: tuple[float, float] = (math.nan, math.nan)
    trust: Trust | None = None
    training: PredictedTraining | None = None  # in steps of `scale` each
    scale: float = 1.0

    @property
    def known(self) -> bool:
        return not self.why

    @property
    def uncertain(self) -> bool:
        """Whether several numbers of steps are possible, which differ."""
        return self.high > _APART * self.low

    @property
    def learned(self) -> float:
        """The part of what accuracy can gain that it has gained by then."""
        base = max(self.accuracy[0], self.majority)
        return (self.accuracy[1] - base) / (1.0 - base) if base < 1.0 else 1.0

    @property
    def early(self) -> bool:
        """Gone before much is learned: both by the accuracy at that step and by the kernel's modes."""
        sure = math.isfinite(self.steps) and not self.uncertain
        return self.known and sure and self.learned <= _EARLY and self.ratio >= _FASTER

    @property
    def late(self) -> bool:
        """Whether it is not gone before most is learned, by both."""
        return self.known and self.learned >= _LATE and self.ratio < _FASTER

    @property
    def how(self) -> str:
        """Optimizer and rate, in words."""
        name = "Adam" if self.optimizer == "adam" else "gradient descent"
        batches = "" if self.batch is None else f" in batches of {self.batch}"
        ours = ", its default" if self.optimizer == "adam" else ", a quarter of the rate at which the bias overshoots"
        return f"{name}{batches} at lr {self.lr:.3g}{f' ({ours[2:]}; pass lr= to use yours)' if self.chosen else ''}"

    @property
    def words(self) -> str:
        """How long it lasts, in a few sentences: what to do is the answer's part."""
        if self.why:
            return self.why
        if not math.isfinite(self.steps):
            last = self._number(self.at[-1]) if self.at else "0"
            late = f"more than a quarter of the starting bias is left after {last} steps"
            return f"with {self.how} {late} (raise seconds= to look further)"
        about = "roughly" if self.optimizer == "adam" else "about"
        if self.uncertain:
            end = f"to {self._number(self.high)} steps" if math.isfinite(self.high) else "steps or more"
            count = f"{self._number(self.low)} {end}"
            why = "outputs differ so little that it depends on how even the labels are: too few points to tell"
            if min(self.left, default=0.0) < EDGE - LEFT:
                why = "on the way other classes are favoured in turn, and how much is not known well enough"
            return f"with {self.how} 75 % of the starting bias is gone after {count}: {why}"
        count = self._number(self.steps)
        count = "one step" if count == "1" else f"{count} steps"
        text = f"with {self.how} 75 % of the starting bias is gone after {about} {count}"
        then = "accuracy is {} by then, {} at the start".format(*percents(self.accuracy[1], self.accuracy[0]))
        faster = f"the bias moves {rounded(self.ratio)} × faster than the labels' signal"
        if self.early:
            text += f", before much is learned ({then}; {faster})"
        elif self.late:
            text += f", but most is learned before that ({then})"
        else:
            text += f" ({then}; {faster})"
        if self.steps > 3:  # nobody evaluates before
            text += f". Scores by class before step {self._number(self.steps)} still show the start's bias"
        if self.left and (part := -min(self.left)) > LEFT:
            step = self._number(self.at[int(np.argmin(self.left))])
            text += f". On the way it is thrown over to the other classes: {part:.1g} of it, reversed, at step {step}"
        if self.largest[1] > self.majority + _FOLLOWS:
            text += f". The largest share is still {percent(self.largest[1])} then"
        return f"{text}. Predicted from {self.points} points and {self.inits} initializations; none was trained"

    @staticmethod
    def _number(steps: float) -> str:
        return rounded(max(1.0, float(round(steps))))

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        names = ("why", "optimizer", "lr", "chosen", "batch", "steps", "low", "high", "half", "ratio", "majority")
        found = {name: getattr(self, name) for name in (*names, "overshoot", "points", "inits")}
        for name in ("largest", "accuracy"):
            found[name] = {"start": getattr(self, name)[0], "then": getattr(self, name)[1]}
        found["left"] = {"steps": list(self.at), "part": list(self.left)}
        for name in ("own", "own_signal"):
            found[name] = {"ratio": getattr(self, name)[0], "spread": getattr(self, name)[1]}
        found["trust"] = None if self.trust is None else str(self.trust)
        return plain({"words": self.words, **found})


def left_of(accuracy: Accuracy | Array, *, within: bool = False) -> Array:
    """The part of the starting bias that is left, at every step: accuracies by class (classes, networks, steps),
    regressed on those of step 0.

    From both the average over networks is subtracted, class by class: what all networks do alike (learning, the labels'
    majority) is no memory of a start. `within`: that over classes instead, for a few networks. NaN where starts do not
    differ.
    """
    if isinstance(accuracy, Accuracy):
        accuracy = np.stack([group for which, group in accuracy.groups.items() if isinstance(which, int)])
    apart = accuracy - accuracy.mean(axis=0 if within else 1, keepdims=True)
    first = apart[:, :, :1]
    total = float(np.square(first).sum())
    return (apart * first).sum(axis=(0, 1)) / total if total > 0 else np.full(accuracy.shape[2], math.nan)


def settled(steps: NDArray[Any], left: Array, level: float) -> float:
    """The step from which on |left| stays within `level`, between those that were looked at; inf: not within these.

    >>> settled(np.array([0, 1, 2, 4]), np.array([1.0, 0.5, -0.5, 0.0]), 0.25)
    3.0
    """
    beyond = np.flatnonzero(~(np.abs(left) <= level))
    if not len(beyond):
        return 0.0
    k = int(beyond[-1])
    if k == len(left) - 1:
        return math.inf
    edge = math.copysign(level, left[k])
    part = (left[k] - edge) / (left[k] - left[k + 1])
    return float(steps[k] + part * (steps[k + 1] - steps[k]))


Start = tuple[nn.Module, torch.Tensor]  # an initialization, and its logits
Starts = Callable[[Data], Generator[Start]]

_SAFE = 0.25  # of the rate from which on the bias overshoots: the default rate
_ADAM = 1e-3  # torch's default
_POINTS, _FEW, _TRIAL = 300, 50, 32  # of the kernel: at most, at least, and to see how long it takes
_A_CLASS = 4  # points of a class, on average, below which a kernel of so few says little
_INITS, _LEAST = 48, 16  # starts
_AGREE = 0.2  # by how much the model's own gradients may be off the kernel's, beyond three standard errors
_UNEVEN = 0.5  # relative spread of them over networks from which on training is not lazy: theory.md §7
_SLOW = 50.0  # rates this much below the overshoot are one and the same flow, whose time is η·steps
_HORIZON, _ADAM_STEPS, _LONGEST = 8.0, 16, 3  # of the first look ahead; how often it is made four times as long
_COLUMNS = 96  # logits of a point, of all networks, that Adam is followed for: its steps are costly
_STREAM = 0x1A57

WATCH = "watch it while it trains: fg.Watch(model, loader)"


def predict_duration(
    network: Network,
    data: Data | None,
    starts: Starts,
    *,
    lr: float | None = None,
    optimizer: Optimizer = "gd",
    batch: int | None = None,
    whole: bool = True,
    width: int = 1000,
    seconds: float = 10.0,
    seed: int = 0,
) -> PredictedDuration:
    """Follow the bias of a model's own starts along the tangent kernel of `network`, its description.

    `batch` is the size of mini-batches: "sgd" follows the path of full batches on average, Adam's pace depends on it.
    `whole`: there are no more points than these.
    """
    batch = None if batch is None or optimizer == "gd" or (whole and data is not None and batch >= data.n) else batch
    asked = PredictedDuration(optimizer=optimizer, batch=batch)
    started = time.perf_counter()
    if data is None:
        return replace(asked, why="not predicted: the inputs are not one array of numbers")
    if data.y is None:
        why = "the data have no class labels (one per point), so what is learned is unknown"
        return replace(asked, why=f"not predicted: {why}")
    if len(np.unique(data.y)) < 2:
        return replace(asked, why="not predicted: all labels are the same")
    layers = sum(layer.draws for layer in every(network.layers)) if optimizer == "adam" else 0
    try:
        points = _affordable(network, data, width, seconds / (2.0 * (1 + layers)))
        if points < min(_FEW, data.n):
            return replace(asked, why="not predicted: there was no time for its tangent kernel")
        if points < _A_CLASS * network.classes:
            some = f"{points} points of {network.classes} classes, and the kernel takes {_POINTS} at most"
            return replace(asked, why=f"not predicted: fewer than {_A_CLASS} points per class ({some})")
        if optimizer == "adam":  # whose steps cost as many points times classes
            points = min(points, max(3 * _A_CLASS * network.classes, 2 * _POINTS // network.classes))
        rows = proportional(data.y, points, seed)
        few = Data(data.x[rows], data.y[rows])
        problem = _problem(network, few, width, optimizer)
        begun = time.perf_counter() - started
        with closing(starts(few)) as members:
            logits, (bias, signal) = _looked(problem, members, seconds / 3.0)
        if len(logits) < _LEAST:
            return replace(asked, why="not predicted: there was no time to draw enough initializations")
        trust = trust_of(problem, seed=seed)
    except FirstguessError as error:
        return replace(asked, why=f"not predicted: {error.reason}")
    found = replace(
        asked,
        lr=lr if lr is not None else _ADAM if optimizer == "adam" else _SAFE * problem.overshoot,
        chosen=lr is None,
        overshoot=problem.overshoot,
        ratio=problem.modes.ratio,
        majority=float(np.bincount(problem.labels).max() / problem.n),
        points=problem.n,
        inits=len(logits),
        own=bias,
        own_signal=signal,
        trust=trust,
    )
    if why := _not_lazy(found):
        return replace(found, why=why)
    size = same_noise(batch, problem.n, data.n if whole else None)
    noise = math.log1p(bias[1] ** 2) if trust.word == "with a random factor" else 0.0
    left = max(0.0, seconds - (time.perf_counter() - started) - begun * layers)
    networks = max(_LEAST, _COLUMNS // problem.network.classes) if optimizer == "adam" else _INITS
    path = _Path(found, np.stack(logits)[:networks], size, noise, seed)
    try:
        found = path.followed(problem, left)
        if whole or not math.isfinite(found.steps):
            return found
        # The points are some of more: their labels may be more or less even than all are.
        others = [path.steps(one, found) for one in _other_labels(problem, data.y)]
        known = [*others, found.steps, *(v for v in (found.low, found.high) if not math.isnan(v))]
        return replace(found, low=min(known), high=max(known))
    except FirstguessError as error:
        return replace(found, why=f"not predicted: {error.reason}")


# -- Parts ------------------------------------------------------------------------------------------------------------


def _affordable(network: Network, data: Data, width: int, seconds: float) -> int:
    """How many points' kernel can be had in this time: from that of a few, by the square of their number."""
    most = min(data.n, _POINTS)
    if most <= _TRIAL:
        return most
    if needs_images(network.layers) and data.x.ndim == 4:
        shape = Shape(data.x.shape[1], PositionGrid(tuple(data.x.shape[2:])))
        Budget(_TRIAL, True, seconds=seconds).plan(network.layers, shape)  # or it says why not
    trial = Data(data.x[:_TRIAL], np.arange(_TRIAL) % network.classes)
    points = 0
    for _ in range(2):  # tables of an activation are made once
        started = time.perf_counter()
        _problem(network, trial, width, "gd")
        points = int(_TRIAL * math.sqrt(seconds / max(time.perf_counter() - started, 1e-6)))
        if points >= most:
            break
    return min(most, points)


def proportional(labels: NDArray[np.int64], count: int, seed: int) -> NDArray[np.int64]:
    """Rows of this many points, of each class in proportion: which class the labels favour moves the guesses."""
    if count >= len(labels):
        return np.arange(len(labels))
    order = np.random.default_rng([seed, _STREAM]).permutation(len(labels))
    rank = np.empty(len(labels))
    for c in np.unique(labels):
        own = order[labels[order] == c]
        rank[own] = (np.arange(len(own)) + 0.5) / len(own)  # the first of every class come first
    return np.sort(np.argsort(rank, kind="stable")[:count])


def _other_labels(problem: Problem, labels: NDArray[np.int64]) -> Iterator[tuple[Problem, NDArray[np.int64]]]:
    """The same without some points of the largest class, and without some of the others: each time enough that its
    share changes by one standard error of that in `labels`; and the rows that are left."""
    n, largest = problem.n, int(np.bincount(problem.labels).argmax())
    mine = np.flatnonzero(problem.labels == largest)
    others = np.flatnonzero(problem.labels != largest)
    share = len(mine) / n
    change = math.sqrt(share * (1.0 - share) / len(labels))
    k, theta = problem.kernel.covariance, problem.kernel.tangent
    assert theta is not None
    for group, part in ((mine, 1.0 - share), (others, share)):
        fewer = min(len(group) - 1, math.ceil(change * n / part))
        rows = np.setdiff1d(np.arange(n), group[:fewer])
        pairs = np.ix_(rows, rows)
        few = replace(problem.kernel, covariance=k[pairs], tangent=theta[pairs])
        modes = replace(problem.modes, largest=problem.modes.largest * n / len(rows))  # a bound
        yield replace(problem, x=problem.x[rows], labels=problem.labels[rows], kernel=few, modes=modes), rows


def _problem(network: Network, data: Data, width: int, optimizer: Optimizer) -> Problem:
    """The problem at a rate that is refused by nobody: rates come later."""
    return prepare(
        network, data, None, lr=1e-12, steps=1, optimizer="adam" if optimizer == "adam" else "gd", batch=None,
        loss="cross-entropy", weight_decay=0.0, width=width, level=None, classes=network.classes,
    )  # fmt: skip


def _looked(
    problem: Problem, starts: Generator[Start], seconds: float
) -> tuple[list[Array], tuple[tuple[float, float], tuple[float, float]]]:
    """Logits of initializations, and squared gradients of g = f₁ − f₀ by the kernel's, mean and relative spread: of its
    mean over the points, by 2λ_b (theory.md §7), and along the labels."""
    started = time.perf_counter()
    n, theta = problem.n, problem.kernel.tangent
    assert theta is not None
    largest = problem.labels == np.bincount(problem.labels).argmax()
    along = np.stack([np.full(n, 1.0 / n), (largest - largest.mean()) / n])
    limits = np.array([2.0 * float(v @ theta @ v) for v in along])
    logits: list[Array] = []
    squares: list[list[float]] = []
    for model, rows in starts:
        if rows.ndim != 2 or tuple(rows.shape) != (n, problem.network.classes):
            one = "one output, whose sign is the guess" if rows.ndim == 1 else f"outputs of shape {tuple(rows.shape)}"
            raise InvalidInput("one output per class for every point, for the theory of training", got=one)
        if not rows.requires_grad:
            raise InvalidInput("a model that can be differentiated", got="outputs without a gradient")
        weights = [p for p in model.parameters() if p.requires_grad]
        squares.append([_squared(rows, direction, weights, last=k == 1) for k, direction in enumerate(along)])
        logits.append(rows.detach().to("cpu", torch.float64).numpy())
        if len(logits) >= _INITS or time.perf_counter() - started > seconds:
            break
    if len(logits) < _LEAST:
        return logits, ((math.nan, math.inf), (math.nan, math.inf))
    values = np.array(squares) / limits
    means, spreads = values.mean(axis=0), values.std(axis=0, ddof=1) / values.mean(axis=0)
    return logits, ((float(means[0]), float(spreads[0])), (float(means[1]), float(spreads[1])))


def _squared(rows: torch.Tensor, along: Array, weights: list[nn.Parameter], *, last: bool) -> float:
    """‖∇ Σ_a v_a (f₁ − f₀)(a)‖²."""
    pull = ((rows[:, 1] - rows[:, 0]) * torch.from_numpy(along).to(rows)).sum()
    found: Any = torch.autograd.grad(pull, weights, allow_unused=True, retain_graph=not last)
    return sum(float(g.double().square().sum()) for g in found if g is not None)


def _not_lazy(found: PredictedDuration) -> str:
    """Why no number is to be said; empty where it may be."""
    assert found.trust is not None
    spread = found.own[1]
    if found.trust.word == "not lazy" or spread > _UNEVEN:
        pace = f"its initializations differ by {100 * max(spread, found.trust.spread):.0f} % in the pace of the bias"
        reason = pace if not found.trust.spread <= _UNEVEN or spread > _UNEVEN else found.trust.why
        return f"not predicted: training is not lazy, the network is too deep or too narrow ({reason}); {WATCH}"
    for what, (ratio, differing) in (("bias", found.own), ("labels' signal", found.own_signal)):
        if not abs(ratio - 1.0) <= _AGREE + 3.0 * differing / math.sqrt(found.inits):
            return (
                f"not predicted: in this model the {what} moves at × {rounded(ratio)} of the pace of its description "
                f"(frozen parameters, or some that a description does not have?); {WATCH}"
            )
    if found.optimizer != "adam" and found.lr >= found.overshoot:
        return (
            f"at lr {found.lr:.3g} the bias overshoots: from {found.overshoot:.2g} on classes hand over to each "
            f"other, step by step. A rate of {found.overshoot / 2:.1g} or less, or one that is warmed up, avoids that"
        )
    return ""


def same_noise(batch: int | None, n: int, total: int | None) -> int | None:
    """Batches of n points whose gradients scatter as those of `batch` of `total` do: (1/B)(1 − B/N)."""
    if batch is None or (total is not None and batch >= total):
        return None
    scatter = 1.0 / batch - (0.0 if total is None else 1.0 / total)
    return max(1, min(n, round(1.0 / (scatter + 1.0 / n))))


@dataclass(frozen=True, eq=False)
class _Path:
    """What is followed: these starts, as requested."""

    asked: PredictedDuration
    starts: Array  # (networks, points, classes)
    batch: int | None
    noise: float
    seed: int

    @property
    def rate(self) -> float:
        """Slow descent is a flow: it is followed in larger steps, of `scale` each."""
        asked = self.asked
        return asked.lr if asked.optimizer == "adam" else max(asked.lr, asked.overshoot / _SLOW)

    def steps(self, other: tuple[Problem, NDArray[np.int64]], known: PredictedDuration) -> float:
        """The steps of some of the points."""
        t = self._run(other[0], self.starts[:, other[1]], round(known.at[-1] / known.scale))
        return settled(t.steps, left_of(t.accuracy), LEFT) * known.scale

    def followed(self, problem: Problem, seconds: float) -> PredictedDuration:
        """Further and further, until the bias is gone."""
        asked, scale = self.asked, self.rate / self.asked.lr
        adam = asked.optimizer == "adam"
        horizon = _ADAM_STEPS if adam else max(32, math.ceil(_HORIZON * problem.overshoot / self.rate))
        longest = horizon * 4**_LONGEST
        while True:
            started = time.perf_counter()
            t = self._run(problem, self.starts, horizon)
            taken = time.perf_counter() - started
            seconds -= taken
            steps = settled(t.steps, left_of(t.accuracy), LEFT)
            if math.isfinite(steps) or 4.0 * taken > seconds or horizon >= longest:
                break
            horizon *= 4
        left = left_of(t.accuracy)
        low = high = math.nan
        if abs(float(np.min(left)) + LEFT) < EDGE:  # thrown over to other classes, by about a quarter: or is it less?
            low, high = (settled(t.steps, left, level) * scale for level in (LEFT + EDGE, LEFT - EDGE))
        return replace(
            asked,
            low=low,
            high=high,
            inits=len(self.starts),
            steps=steps * scale,
            half=settled(t.steps, left, 0.5) * scale,
            largest=_at(t.steps, t.largest.mean, steps),
            accuracy=_at(t.steps, t.accuracy.mean, steps),
            at=tuple(float(step) for step in t.steps * scale),
            left=tuple(float(part) for part in left),
            training=replace(t, trust=asked.trust),
            scale=scale,
        )

    def _run(self, problem: Problem, starts: Array, horizon: int) -> PredictedTraining:
        adam = self.asked.optimizer == "adam"
        batch, rates = self.batch if adam else None, np.full(horizon, self.rate)
        asked = replace(problem, options=replace(problem.options, rates=rates, steps=looked_at(horizon), batch=batch))
        found = measured(asked, seed=self.seed) if adam else None
        return follow(asked, start=starts, draws=len(starts), seed=self.seed, noise=self.noise, adam=found)


def _at(steps: Any, curve: Array, step: float) -> tuple[float, float]:
    """A curve at the start, and at a step between those looked at (its last, where that is beyond)."""
    return float(curve[0]), float(np.interp(min(step, float(steps[-1])), steps, curve))
