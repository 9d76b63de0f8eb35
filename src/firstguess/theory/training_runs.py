"""Starts are drawn from the covariance and moved along the tangent kernel: no network is trained."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np

from firstguess.base import checks
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.gaussian import Array
from firstguess.network.grid import Grid, Shape
from firstguess.network.layer import Layer
from firstguess.network.network import Network
from firstguess.network.walk import changed, every, needs_images, shapes
from firstguess.theory.absorption import floor
from firstguess.theory.curves import Recorder
from firstguess.theory.descent import State, Task, Values, descend
from firstguess.theory.drawing import factor
from firstguess.theory.predicted_training import PredictedTraining
from firstguess.theory.stepwise import HIDDEN, OUTPUT, Part, adam, mini_batches
from firstguess.theory.training_problem import Options, Problem, kernel_of

Start: TypeAlias = Literal["any", "neutral", "biased"]

NEUTRAL, BIASED = 1.1, 0.9  # largest share of a neutral start by the even one, and of a biased start
_TRIES = 400  # starts drawn for one that is kept, at most
_SINGLE = 400  # points from which products are in float32: 1e-5 of the logits
_STREAM = 0x7A1


def follow(
    problem: Problem,
    *,
    start: Start | Array = "any",
    draws: int = 200,
    seed: int = 0,
    noise: float = 0.0,
    evenness: Sequence[tuple[float, float]] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> PredictedTraining:
    """Draw starts and move them. `noise` is S of (19): ln of the factor on Θ of every network has this variance.
    `evenness` are Adam's constants C of (18) by layer, where they were measured."""
    started = time.perf_counter()
    draws = checks.count(draws, 1, "number of draws", "predict_training(draws)", "draws=200")
    network, options, modes, n = problem.network, problem.options, problem.modes, problem.n
    z0, drawn = _starts(start, problem.kernel.covariance, network.classes, draws, n, seed)
    columns = _columns(network.classes)
    count = z0.shape[1] // columns
    gains = None
    if noise > 0.0:
        normal = np.random.default_rng([seed, _STREAM, 1 << 30]).standard_normal(count)
        gains = np.repeat(np.exp(math.sqrt(noise) * normal - noise / 2.0), columns)
    task = Task(problem.labels, network.classes, count, options.loss, gains)
    looks = options.steps
    recorders = [
        Recorder(looks, labels, network.classes, count)
        for labels in (problem.labels, problem.held)
        if labels is not None
    ]
    favourites = np.zeros(count, np.int64)
    for index, logits in enumerate(_run(problem, task, z0, seed, evenness)):
        for recorder, rows in zip(recorders, (slice(0, n), slice(n, None)), strict=False):
            shares = _record(recorder, index, task, logits[rows])
            if index == 0 and rows.start == 0:
                favourites = shares.argmax(axis=1)
        if progress is not None:
            progress(int(looks[index]), int(looks[-1]))
    curves = [recorder.curves(favourites) for recorder in recorders]
    rate = options.rate(0) * modes.bias
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


def _columns(classes: int) -> int:
    return 1 if classes == 2 else classes


def _starts(start: Any, covariance: Array, classes: int, draws: int, n: int, seed: int) -> tuple[Values, int]:
    """Logits at initialization (points, networks·columns), and how many networks were drawn for them."""
    k, total = _columns(classes), len(covariance)
    dtype = np.float32 if n >= _SINGLE else np.float64
    if not isinstance(start, str):
        given = np.asarray(start, np.float64)
        if given.ndim != 3 or given.shape[1:] != (total, classes):
            raise InvalidInput(
                f"logits of shape (networks, {total}, {classes})", got=f"shape {given.shape}", where="start"
            )
        z = given[..., 1:] - given[..., :1] if classes == 2 else given
        return np.ascontiguousarray(z.transpose(1, 0, 2).reshape(total, -1), dtype=dtype), len(given)
    if start not in ("any", "neutral", "biased"):
        raise InvalidInput("start 'any', 'neutral', 'biased' or logits", got=start, where="start", hint="start='any'")
    lower, _ = factor(covariance)
    kept: list[Array] = []
    tried = found = 0
    while found < draws:
        rng = np.random.default_rng([seed, _STREAM, tried])
        z = (math.sqrt(2.0) if classes == 2 else 1.0) * (lower @ rng.standard_normal((total, draws * k)))
        tried += draws
        if start != "any":
            z = _filtered(z, start, classes, draws, n)
        found += z.shape[1] // k
        kept.append(z)
        if tried >= 20 * draws and found < tried / _TRIES:
            share = found / tried
            raise InvalidInput(
                f"starts that are {start}", got=f"{share:.2%} of those drawn", where="start", hint="start='any'"
            )
    return np.concatenate(kept, axis=1)[:, : draws * k].astype(dtype), tried


def _filtered(z: Array, start: str, classes: int, draws: int, n: int) -> Array:
    k = _columns(classes)
    best = (z[:n] > 0).astype(np.int64) if classes == 2 else z[:n].reshape(n, draws, k).argmax(axis=2)
    largest = np.array([np.bincount(best[:, i], minlength=classes).max() / n for i in range(draws)])
    keep = largest <= NEUTRAL / classes if start == "neutral" else largest >= BIASED
    return z.reshape(len(z), draws, k)[:, keep].reshape(len(z), -1)


# -- Running ----------------------------------------------------------------------------------------------------------


def _run(
    problem: Problem, task: Task, z0: Values, seed: int, evenness: Sequence[tuple[float, float]] | None
) -> Iterator[Values]:
    """Logits of all points (training, then held-out) at every step that is looked at."""
    theta, options, n = problem.kernel.tangent, problem.options, problem.n
    assert theta is not None
    full = theta.astype(z0.dtype, copy=False)
    start, looks = z0[:n], options.steps

    def everywhere(state: State) -> Values:
        if len(z0) == n:
            return state.z
        return np.concatenate([state.z, z0[n:] - z0.dtype.type(task.factor) * (full[n:, :n] @ state.s)])

    if options.optimizer == "adam":
        yield from _adam(problem, task, z0, evenness)
        return
    if options.decay:
        yield from _decaying(problem.network, task, full[:, :n], z0, n, options)
        return
    square = np.ascontiguousarray(full[:n, :n])
    if options.batch is not None:
        states = mini_batches(task, square, start, options.rate, looks, batch=options.batch, seed=seed)
    else:
        most = 1.0 if task.gains is None else float(task.gains.max())
        states = descend(task, square, start, options.rate, looks, spread=problem.modes.largest * most)
    for state in states:
        yield everywhere(state)


def _decaying(network: Network, task: Task, theta: Values, z0: Values, n: int, options: Options) -> Iterator[Values]:
    """With weights that shrink by s: f ∝ s^D and Θ ∝ s^{2(D−1)} for D layers with weights."""
    layers = sum(layer.draws for layer in every(network.layers))
    z, step, shrunk = z0.copy(), 0, 1.0
    for target in options.steps.tolist():
        while step < target:
            rate = options.rate(step)
            keep = 1.0 - rate * options.decay
            r = task.residuals(z[:n])
            pull = rate / n * task.factor * shrunk ** (2 * (layers - 1))
            z = z.dtype.type(keep**layers) * z - z.dtype.type(pull) * (theta @ r)
            shrunk *= keep
            step += 1
        yield z


def _adam(problem: Problem, task: Task, z0: Values, evenness: Sequence[tuple[float, float]] | None) -> Iterator[Values]:
    options, n = problem.options, problem.n
    if options.decay:
        raise NotCovered("weight decay with 'gd'", got="'adam'", hint="optimizer='gd'")
    if options.loss == "squared":
        raise NotCovered("cross-entropy, for Adam", got="squared loss", hint="optimizer='gd'")
    found = layer_tangents(problem.network, problem.x, problem.width)
    kernels = [(theta.astype(z0.dtype), weights, last) for theta, weights, last in found]
    known = evenness or [(OUTPUT, OUTPUT) if last else (HIDDEN, HIDDEN) for _, _, last in kernels]
    parts = [
        Part(np.ascontiguousarray(theta[:n, :n]), weights, last, even)
        for (theta, weights, last), even in zip(kernels, known, strict=True)
    ]
    pairs = z0.dtype.type(task.factor)
    for state, sums in adam(task, parts, z0[:n], options.rate, options.steps, batch=options.batch):
        if len(z0) == n:
            yield state.z
            continue
        moved = sum(theta[n:, :n] @ s for (theta, _, _), s in zip(kernels, sums, strict=True))
        yield np.concatenate([state.z, z0[n:] - pairs * moved])


def layer_tangents(network: Network, x: Array, width: int) -> Iterator[tuple[Array, int, bool]]:
    """Θ of each layer's own weights alone, their number, and whether it is the output: the sum is Θ."""
    sizes = list(_weights(network, x, width))
    for index, size in enumerate(sizes):
        alone = kernel_of(_only(network, index), x, width).tangent
        assert alone is not None
        yield alone, size, index == len(sizes) - 1


def _only(network: Network, index: int) -> Network:
    """The network in which only one layer is trained."""
    seen = -1

    def change(layer: Layer) -> tuple[Layer, ...]:
        nonlocal seen
        if not layer.draws:
            return (layer,)
        seen += 1
        frozen: Any = layer
        return (replace(frozen, frozen=seen != index),)

    return replace(network, layers=changed(network.layers, change))


def _weights(network: Network, x: Array, width: int) -> Iterator[int]:
    """How many weights each layer has, in the order of `changed`."""
    images = needs_images(network.layers)
    shape = Shape(x.shape[1], Grid(tuple(x.shape[2:]))) if images else Shape(math.prod(x.shape[1:]))
    yield from _counted(network.layers, shapes(network.layers, shape, width, last=network.classes), width)


def _counted(layers: Sequence[Layer], found: Sequence[Shape], width: int) -> Iterator[int]:
    for layer, before, after in zip(layers, found, found[1:], strict=False):
        for path, inner in zip(layer.paths, layer.inside(before, width), strict=False):
            yield from _counted(path, inner, width)
        if layer.draws:
            assert before.width is not None
            assert after.width is not None
            places = layer.kernel_side**2 if layer.kernel_side else (before.grid.places if before.grid else 1)
            yield before.width * places * after.width


def _record(recorder: Recorder, index: int, task: Task, z: Values) -> Array:
    """Shares of every network, after the recorder has them with accuracies and losses."""
    labels, classes = recorder.labels, task.classes
    own = Task(labels, classes, task.networks, task.loss)
    f = own.shaped(z).astype(np.float64)
    best = f.argmax(axis=2)
    shares = np.stack([(best == c).mean(axis=0) for c in range(classes)], axis=1)
    right = best == labels[:, None]
    by_class = np.stack([right[labels == c].sum(axis=0) for c in range(classes)], axis=1)
    if task.loss == "squared":
        target = np.eye(classes)[labels][:, None, :]
        half = (
            0.5 if classes > 2 else 0.25
        )  # of two classes only the difference is followed: f₁ = g/2 + ½, f₀ = ½ − g/2
        off = f - target if classes > 2 else (z - (2 * labels - 1)[:, None])[..., None]
        loss = half * np.square(off).sum(axis=2).mean(axis=0)
    else:
        top = f.max(axis=2)
        mine = np.take_along_axis(f, labels[:, None, None], axis=2)[..., 0]
        loss = (top + np.log(np.exp(f - top[..., None]).sum(axis=2)) - mine).mean(axis=0)
    recorder.add(index, shares, by_class, loss)
    return shares
