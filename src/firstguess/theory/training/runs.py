"""Starts are drawn from the covariance and moved along the tangent kernel: no network is trained."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from firstguess.base import checks
from firstguess.base.errors import InvalidInput
from firstguess.base.gaussian import Array
from firstguess.base.record import Record, Shown
from firstguess.base.statistics import guesses
from firstguess.base.text import four_digits, spaced
from firstguess.network.network import Network
from firstguess.network.walk import every
from firstguess.theory.shares.argmax_sampling import factor
from firstguess.theory.training import stepwise
from firstguess.theory.training.absorption import floor
from firstguess.theory.training.curves import CurveRecorder, Curves, Followed
from firstguess.theory.training.flow import DescentTask, Values, descend
from firstguess.theory.training.problem import Modes, Problem, modes_of

# What a prediction of training says: curves over steps, and the numbers that explain them (theory.md (12)-(19)).


@dataclass(frozen=True)
class Trust:
    """Whether the wide limit describes this network: `word`, and the numbers after it (theory.md §7).

    `spread` and `ratio` are the relative spread and the mean, over a few initializations, of ‖∇ mean g‖² by its limit.
    """

    word: Literal["good", "with a random factor", "rough", "not lazy"]
    why: str
    ratio: float
    spread: float
    inits: int

    def __str__(self) -> str:
        return f"{self.word}: {self.why}"


@dataclass(frozen=True, eq=False)
class PredictedTraining(Followed, Record, Shown):
    """Curves over steps, and the numbers that explain them."""

    _also = ("steps", "largest", "accuracy", "loss", "absorption", "diverged")
    _apart = ("curves", "level", "drawn", "instead")
    _as_text = ("network",)

    network: Network
    curves: Curves
    test: Curves | None
    modes: Modes
    overshoot: float  # the learning rate from which on classes hand over to each other: 2κ/λ_b
    lr_limit: float  # from which on that does not end: 4κ/λ_b
    floor: float  # the largest share that mini-batches leave, on average; NaN: full batches
    level: float
    assumptions: tuple[str, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict[str, Any])
    seconds: float = 0.0
    drawn: int = 0  # starts, of which those asked for were kept
    trust: Trust | None = None
    instead: str = ""  # what would say the same in less time, if anything does

    @property
    def diverged(self) -> tuple[tuple[int, int], ...]:
        """(network, the first step at which its loss is not finite), of those that leave all numbers after."""
        bad = ~np.isfinite(self.loss.draws)
        return tuple((int(i), int(self.steps[bad[i].argmax()])) for i in np.flatnonzero(bad.any(axis=1)))

    def summary(self) -> list[tuple[str, str]]:
        """Label and value of every headline number."""
        found, modes = self.absorption, self.modes
        start, end = (float(v) for v in self.largest.mean[[0, -1]])
        rows = [
            ("network", four_digits(self.network)),
            ("largest share", f"{start:.3f} at the start, {end:.3f} after {spaced(float(self.steps[-1]))} steps"),
            (found.label, found.words(int(self.steps[-1]))),
            ("accuracy at the end", f"{float(self.accuracy.mean[-1]):.3f}"),
            (
                "bias is faster than signal by",
                f"{modes.ratio:.3g} (λ {modes.bias:.4g} and {modes.signal:.4g})"
                if modes.has_bias
                else "nothing moves the bias: a norm subtracts it",
            ),
            (
                "learning rates",
                f"{'classes hand over to each other' if modes.has_bias else 'the fastest mode overshoots'} from "
                f"{self.overshoot:.3g} on, for ever from {self.lr_limit:.3g}",
            ),
        ]
        if self.test is not None:
            rows.insert(4, ("accuracy on held-out points", f"{float(self.test.accuracy.mean[-1]):.3f}"))
        if not math.isnan(self.floor):
            rows.append(("mini-batches leave", f"a largest share of {self.floor:.3f} on average"))
        if self.diverged:
            count, first = len(self.diverged), min(step for _, step in self.diverged)
            rows.append(("diverged", f"{count} of {len(self.loss.draws)} networks, the first by step {spaced(first)}"))
        if self.trust is not None:
            rows.append(("trust", str(self.trust)))
        if self.instead:
            rows.append(("quicker", self.instead))
        return rows

    def __repr__(self) -> str:
        draws, last = len(self.largest.draws), int(self.steps[-1])
        return f"PredictedTraining({draws} networks, {last} steps, {self.network.classes} classes)"

    def __str__(self) -> str:
        rows = self.summary()
        width = max(len(label) for label, _ in rows)
        optimizer, draws = self.provenance.get("optimizer"), len(self.largest.draws)
        lines = [f"Predicted training ({optimizer}, {draws} networks, {self.network.classes} classes)"]
        lines += [f"  {label:<{width}}  {value}" for label, value in rows]
        lines += [f"  assumes: {a}" for a in self.assumptions]
        return "\n".join(lines)


Start: TypeAlias = Literal["any", "even", "neutral", "biased"]  # "neutral" is the papers' word for "even"

NEUTRAL, BIASED = 1.1, 0.9  # largest share of an even start by 1/classes, and of a biased start
_TRIES = 400  # starts drawn for one that is kept, at most
_SINGLE = 400  # points from which products are in float32: 1e-5 of the logits
_STREAM, _TIES = 0x7A1, 0x7135


def follow(
    problem: Problem,
    *,
    start: Start | Array = "any",
    draws: int = 200,
    seed: int = 0,
    noise: float = 0.0,
    adam: Adam | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> PredictedTraining:
    """Draw starts and move them. `noise` is S of (19): ln of the factor on Θ of every network has this variance.
    `adam` is what was measured for it."""
    started = time.perf_counter()
    draws = checks.count(draws, 1, "number of draws", "predict_training(draws)", "draws=200")
    network, options, modes, n = problem.network, problem.options, problem.modes, problem.n
    # Under squared loss Adam's steps depend on the sum of two logits too, else their difference is all.
    task = DescentTask(problem.labels, network.classes, draws, options.loss, each=options.each)
    z0, drawn = _starts(start, problem.kernel.covariance, task, seed)
    count = z0.shape[1] // task.columns
    gains = None
    if noise > 0.0:
        normal = np.random.default_rng([seed, _STREAM, 1 << 30]).standard_normal(count)
        gains = np.repeat(np.exp(math.sqrt(noise) * normal - noise / 2.0), task.columns)
    task = replace(task, networks=count, gains=gains)
    looks = options.steps
    recorders = [
        CurveRecorder(looks, labels, network.classes, count)
        for labels in (problem.labels, problem.held)
        if labels is not None
    ]
    favourites = np.zeros(count, np.int64)
    states = _run(problem, task, z0, seed, adam)
    with np.errstate(over="ignore", invalid="ignore"):  # logits and losses that are not finite are a result, too
        for index, logits in enumerate(states):
            for recorder, rows in zip(recorders, (slice(0, n), slice(n, None)), strict=False):
                shares = _record(recorder, index, task, logits[rows], seed)
                if index == 0 and rows.start == 0:
                    favourites = shares.argmax(axis=1)
            if progress is not None:
                progress(int(looks[index]), int(looks[-1]))
    curves = [recorder.curves(favourites) for recorder in recorders]
    rate = float(options.rates[-1]) * modes.bias  # the floor is that of the last steps
    batch = options.batch if options.optimizer == "sgd" else None
    return PredictedTraining(
        network,
        curves[0],
        curves[1] if len(curves) > 1 else None,
        modes,
        problem.overshoot,
        2.0 * problem.overshoot,
        math.nan if batch is None else floor(rate, problem.spread, batch, n),
        problem.level,
        ("wide layers, whose weights hardly move (lazy training)", *problem.kernel.remarks),
        {
            "network": str(network),
            "points": n,
            "optimizer": options.optimizer,
            "draws": draws,
            "seed": seed,
            "width": problem.width,
        },
        problem.kernel.seconds + time.perf_counter() - started,
        drawn,
    )


def _starts(start: Any, covariance: Array, task: DescentTask, seed: int) -> tuple[Values, int]:
    """Logits at initialization (points, networks·columns), and how many networks were drawn for them."""
    k, total, n = task.columns, len(covariance), len(task.labels)
    classes, draws = task.classes, task.networks
    dtype = np.float32 if n >= _SINGLE else np.float64
    if not isinstance(start, str):
        given = np.asarray(start, np.float64)
        if given.ndim != 3 or given.shape[1:] != (total, classes):
            expected = f"logits of shape (networks, {total}, {classes})"
            raise InvalidInput(expected, got=f"shape {given.shape}", where="start")
        if not np.isfinite(given).all():
            raise InvalidInput("finite logits", got="NaN or Inf", where="start")
        z = given[..., 1:] - given[..., :1] if task.paired else given
        return np.ascontiguousarray(z.transpose(1, 0, 2).reshape(total, -1), dtype=dtype), len(given)
    if start not in ("any", "even", "neutral", "biased"):
        raise InvalidInput("start 'any', 'even', 'biased' or logits", got=start, where="start", hint="start='any'")
    lower, _ = factor(covariance)
    kept: list[Array] = []
    tried = found = 0
    while found < draws:
        rng = np.random.default_rng([seed, _STREAM, tried])
        z = (math.sqrt(2.0) if task.paired else 1.0) * (lower @ rng.standard_normal((total, draws * k)))
        tried += draws
        if start != "any":
            best = guesses(task.shaped(z[:n]), np.random.default_rng([seed, _TIES]))
            largest = np.array([np.bincount(row, minlength=classes).max() / n for row in best.T])
            keep = largest >= BIASED if start == "biased" else largest <= NEUTRAL / classes
            z = z.reshape(total, draws, k)[:, keep].reshape(total, -1)
        found += z.shape[1] // k
        kept.append(z)
        if tried >= 20 * draws and found < tried / _TRIES:
            share = found / tried
            hint = "start='any'"
            raise InvalidInput(f"starts that are {start}", got=f"{share:.2%} of those drawn", where="start", hint=hint)
    return np.concatenate(kept, axis=1)[:, : draws * k].astype(dtype), tried


def _run(problem: Problem, task: DescentTask, z0: Values, seed: int, adam: Adam | None) -> Iterator[Values]:
    """Logits of all points (training, then held-out) at every step that is looked at."""
    theta, options, n = problem.kernel.tangent, problem.options, problem.n
    assert theta is not None
    if options.optimizer == "adam":
        yield from _adam(problem, task, z0, seed, adam or Adam())
        return
    full = theta.astype(z0.dtype, copy=False)
    start, looks, rate = z0[:n], options.steps, options.rate
    square = np.ascontiguousarray(full[:n, :n])
    if options.batch is not None or options.decay:
        layers = sum(layer.draws and not getattr(layer, "frozen", False) for layer in every(problem.network.layers))
        states = stepwise.step_by_step(
            task, square, start, rate, looks, batch=options.batch, seed=seed, decay=options.decay, layers=layers
        )
    else:
        most = 1.0 if task.gains is None else float(task.gains.max())
        states = descend(task, square, start, rate, looks, spread=problem.modes.largest * most)
    for state in states:
        if len(z0) == n:
            yield state.z
            continue
        moved = z0.dtype.type(task.factor) * (full[n:, :n] @ state.s)
        yield np.concatenate([state.z, z0.dtype.type(state.kept) * z0[n:] - moved])


@dataclass(frozen=True)
class Adam:
    """What was measured for it: weights of a few networks or, after norms over the data, how even gradients are."""

    samples: Sequence[stepwise.WeightSample] = ()
    evenness: Sequence[tuple[float, float]] = ()  # the constants C of (18) by layer


def _adam(problem: Problem, task: DescentTask, z0: Values, seed: int, measured: Adam) -> Iterator[Values]:
    options, n = problem.options, problem.n
    found = [
        (theta.astype(z0.dtype), size, last)
        for theta, size, last in stepwise.layer_tangents(problem.network, problem.x, problem.width)
    ]
    if measured.samples:
        tangents = [np.ascontiguousarray(theta[:, :n]) for theta, _, _ in found]
        yield from stepwise.sampled_adam(
            task, measured.samples, tangents, z0, options.rate, options.steps, batch=options.batch, seed=seed
        )
        return
    known = measured.evenness or [
        (stepwise.OUTPUT, stepwise.OUTPUT) if last else (stepwise.HIDDEN, stepwise.HIDDEN) for _, _, last in found
    ]
    parts = [
        stepwise.LayerPart(np.ascontiguousarray(theta[:n, :n]), weights, last, even)
        for (theta, weights, last), even in zip(found, known, strict=True)
    ]
    pairs = z0.dtype.type(task.factor)
    for state, sums in stepwise.adam_by_layer(task, parts, z0[:n], options.rate, options.steps, batch=options.batch):
        if len(z0) == n:
            yield state.z
            continue
        moved = sum(theta[n:, :n] @ s for (theta, _, _), s in zip(found, sums, strict=True))
        yield np.concatenate([state.z, z0[n:] - pairs * moved])


def _record(recorder: CurveRecorder, index: int, task: DescentTask, z: Values, seed: int) -> Array:
    """Shares of every network, after the recorder has them with accuracies and losses."""
    labels, classes = recorder.labels, task.classes
    own = replace(task, labels=labels, gains=None)
    f = own.shaped(z).astype(np.float64)
    best = guesses(f, np.random.default_rng([seed, _TIES]))
    shares = np.stack([(best == c).mean(axis=0) for c in range(classes)], axis=1)
    right = best == labels[:, None]
    by_class = np.stack([right[labels == c].sum(axis=0) for c in range(classes)], axis=1)
    if task.loss == "squared":
        target = np.eye(classes)[labels][:, None, :]
        half = 0.25 if task.paired else 0.5  # where only the difference is followed: f₁ = g/2 + ½, f₀ = ½ − g/2
        off = (z - (2 * labels - 1)[:, None])[..., None] if task.paired else f - target
        loss = half * np.square(off).sum(axis=2).mean(axis=0)
    else:
        top = f.max(axis=2)
        mine = np.take_along_axis(f, labels[:, None, None], axis=2)[..., 0]
        loss = (top + np.log(np.exp(f - top[..., None]).sum(axis=2)) - mine).mean(axis=0)
    recorder.add(index, shares, by_class, loss)
    return shares


# The modes of the tangent kernel over a data set, and where bias and labels are among them (theory.md (15)).


@dataclass(frozen=True, eq=False)
class KernelSpectrum:
    """Eigenvalues of Θ/n, the largest first, and how much of two directions each mode holds (each sums to 1)."""

    values: Array
    bias: Array  # of the direction common to all points
    signal: Array  # of the labels' directions, on average over classes
    modes: Modes


def spectrum(tangent: Array, labels: NDArray[np.int64]) -> KernelSpectrum:
    """The spectrum of the tangent kernel of `fg.predict(net, data=x, tangent=True)` and these points' labels.

    >>> s = spectrum(np.array([[2.0, 1.0], [1.0, 2.0]]), np.array([0, 1]))
    >>> s.values.round(6).tolist(), s.bias.round(6).tolist(), s.signal.round(6).tolist()
    ([1.5, 0.5], [1.0, 0.0], [0.0, 1.0])
    """
    labels = np.asarray(labels)
    n = len(tangent)
    if tangent.shape != (n, n) or labels.shape != (n,):
        raise InvalidInput(f"{n} labels, one per point", got=f"shape {labels.shape}", where="spectrum")
    checks.two_classes(labels, "spectrum")
    values, vectors = np.linalg.eigh(np.asarray(tangent, np.float64) / n)
    vectors = vectors[:, ::-1]
    shares = [np.square(vectors.sum(axis=0)) / n]
    parts: list[Array] = []
    for c in np.unique(labels):
        y = (labels == c) - float(np.mean(labels == c))
        parts.append(np.square(y @ vectors) / (y @ y))
    return KernelSpectrum(values[::-1], shares[0], np.mean(parts, axis=0), modes_of(np.asarray(tangent), labels))
