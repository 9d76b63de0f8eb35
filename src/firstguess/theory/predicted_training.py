"""What training does to the bias, predicted from kernels: no network is trained (theory.md (12)-(19))."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from firstguess.base import checks
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.gaussian import Array
from firstguess.network.grid import Grid, Shape
from firstguess.network.layer import Layer, Mix, text
from firstguess.network.network import Network
from firstguess.network.walk import changed, every, needs_images, shapes
from firstguess.theory import closed_form
from firstguess.theory.absorption import floor, softening
from firstguess.theory.curves import Absorption, Curves, Recorder, absorption, looked_at
from firstguess.theory.descent import Loss, Rate, State, Task, descend
from firstguess.theory.drawing import factor
from firstguess.theory.kernel import Kernel, image_kernel, kernel
from firstguess.theory.stepwise import Part, adam, mini_batches

Optimizer: TypeAlias = Literal["gd", "sgd", "adam"]
Start: TypeAlias = Literal["any", "neutral", "biased"]
Schedule: TypeAlias = "float | Callable[[int], float]"

NEUTRAL, BIASED = 1.1, 0.9  # largest share of a neutral start by the even one, and of a biased start
_TRIES = 400  # starts drawn for one that is kept, at most
_SINGLE = 400  # points from which products are in float32: 1e-5 of the logits
_STREAM = 0x7A1


@dataclass(frozen=True)
class Modes:
    """λ of the direction common to all points and of the labels' direction in Θ/n: theory.md (15)."""

    bias: float
    signal: float
    largest: float  # the largest eigenvalue
    common: float  # (1ᵀu₁)²/n: how much of the top eigenvector the common direction is

    @property
    def ratio(self) -> float:
        """Bias to signal: far above 1, the bias is gone long before anything is learned."""
        return self.bias / self.signal


@dataclass(frozen=True)
class Trust:
    """Whether the wide limit describes this network: `word`, and the numbers behind it (theory.md §7).

    `spread` and `ratio` are the relative spread and the mean, over a few initializations, of ‖∇ mean g‖² by its limit.
    """

    word: Literal["good", "with a random factor", "not lazy"]
    why: str
    ratio: float
    spread: float
    inits: int

    def __str__(self) -> str:
        return f"{self.word}: {self.why}"


@dataclass(frozen=True, eq=False)
class PredictedTraining:
    """Curves over steps, and the numbers that explain them."""

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

    @property
    def steps(self) -> NDArray[np.int64]:
        """The steps that were looked at."""
        return self.curves.largest.steps

    @property
    def largest(self) -> Any:
        """The share of the class that gets most."""
        return self.curves.largest

    @property
    def accuracy(self) -> Any:
        """Over all points; by group with [class], ["favoured"], ["others"]."""
        return self.curves.accuracy

    @property
    def loss(self) -> Any:
        return self.curves.loss

    @property
    def absorption(self) -> Absorption:
        """Steps until the largest share falls to `level`."""
        return self.absorbed(self.level)

    def absorbed(self, level: float) -> Absorption:
        """The same for another level."""
        return absorption(self.curves.largest, level)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        from firstguess.base.text import plain

        return plain(
            {
                "network": str(self.network),
                "steps": self.steps.tolist(),
                **self.curves.to_dict(),
                "test": None if self.test is None else self.test.to_dict(),
                "absorption": self.absorption.to_dict(),
                "modes": {"bias": self.modes.bias, "signal": self.modes.signal, "ratio": self.modes.ratio},
                "overshoot": self.overshoot,
                "lr_limit": self.lr_limit,
                "floor": self.floor,
                "trust": None if self.trust is None else asdict(self.trust),
                "assumptions": list(self.assumptions),
                "provenance": self.provenance,
                "seconds": self.seconds,
            }
        )


@dataclass(frozen=True)
class Options:
    """How it is trained, checked."""

    rate: Rate
    steps: NDArray[np.int64]
    optimizer: Optimizer
    batch: int | None
    loss: Loss
    decay: float


@dataclass(frozen=True, eq=False)
class Problem:
    """What is to be predicted, with its kernels."""

    network: Network
    x: Array  # training points, then held-out ones
    labels: NDArray[np.int64]
    held: NDArray[np.int64] | None
    options: Options
    width: int
    level: float
    kernel: Kernel
    modes: Modes
    spread: float  # of g over the data
    overshoot: float

    @property
    def n(self) -> int:
        """Training points."""
        return len(self.labels)


def prepare(
    network: Network | str,
    data: Any,
    test: Any,
    *,
    lr: Schedule,
    steps: int | Sequence[int],
    optimizer: Optimizer,
    batch: int | None,
    loss: Loss,
    weight_decay: float,
    width: int,
    level: float | None,
    classes: int | None,
) -> Problem:
    """Check what was asked, and carry the kernels."""
    network = closed_form.as_network(network, classes)
    train, held = _labelled(data, "data"), None if test is None else _labelled(test, "test")
    network = _classes(network, classes, train, held)
    options = _options(lr, steps, optimizer, batch, loss, weight_decay, len(train[1]), network)
    level = _level(level, network.classes)
    if held is not None:
        _no_mixing(network)
    x = train[0] if held is None else np.concatenate([train[0], held[0]])
    found, n = _kernel(network, x, width), len(train[0])
    assert found.tangent is not None
    modes = _modes(found.tangent[:n, :n], train[1])
    spread, kappa = _softness(found.covariance[:n, :n])
    overshoot = network.classes * kappa / modes.bias
    _check_rate(options, modes, overshoot)
    held_labels = None if held is None else held[1]
    return Problem(network, x, train[1], held_labels, options, width, level, found, modes, spread, overshoot)


def follow(
    problem: Problem,
    *,
    start: Start | Array = "any",
    draws: int = 200,
    seed: int = 0,
    noise: float = 0.0,
    progress: Callable[[int, int], None] | None = None,
) -> PredictedTraining:
    """Draw starts and move them. `noise` is S of (19): ln of the factor on Θ of every network has this variance."""
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
    for index, logits in enumerate(_run(problem, task, z0, seed)):
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


# -- What is asked ----------------------------------------------------------------------------------------------------


def _labelled(data: Any, where: str) -> tuple[Array, NDArray[np.int64]]:
    from firstguess.data import as_data, load

    given = load(data) if isinstance(data, str) else as_data(data)
    if given.y is None:
        raise InvalidInput("labelled points", got="points without labels", where=where, hint=f"{where}=(x, y)")
    if given.n < 2:
        raise InvalidInput("at least 2 points", got=given.n, where=where)
    return given.x.astype(np.float64), np.asarray(given.y, np.int64)


def _classes(network: Network, classes: int | None, train: Any, held: Any) -> Network:
    labels = train[1] if held is None else np.concatenate([train[1], held[1]])
    if len(np.unique(train[1])) < 2:
        raise InvalidInput("points of two classes at least", got="one class only", where="data")
    if labels.min() < 0:
        raise InvalidInput("labels 0, 1, …", got=int(labels.min()), where="data")
    most = max(int(labels.max()) + 1, 2)
    if classes is None and most > network.classes:
        return replace(network, classes=most)
    if most > network.classes:
        raise InvalidInput(f"labels 0…{network.classes - 1}", got=most - 1, where="data", hint=f"classes={most}")
    return network


def _options(
    lr: Any, steps: Any, optimizer: str, batch: Any, loss: str, decay: Any, n: int, network: Network
) -> Options:
    rate = lr if callable(lr) else None
    if rate is None:
        if not 0 < checks.number(lr) < math.inf:
            raise InvalidInput("a learning rate above 0", got=lr, where="predict_training(lr)", hint="lr=1e-3")
        constant = float(lr)
        rate = _constant(constant)
    if optimizer not in ("gd", "sgd", "adam"):
        raise InvalidInput("optimizer 'gd', 'sgd' or 'adam'", got=optimizer, where="predict_training(optimizer)")
    if loss not in ("cross-entropy", "squared"):
        raise InvalidInput("loss 'cross-entropy' or 'squared'", got=loss, where="predict_training(loss)")
    if batch is not None:
        batch = checks.count(batch, 1, "batch size", "predict_training(batch)", "batch=128")
        if optimizer == "gd":
            raise InvalidInput("no batch: 'gd' takes all points", got=batch, where="batch", hint="optimizer='sgd'")
    elif optimizer == "sgd":
        raise InvalidInput("the size of mini-batches", got="none", where="batch", hint="batch=128")
    if not 0 <= checks.number(decay) < math.inf:
        raise InvalidInput("a weight decay of at least 0", got=decay, where="weight_decay", hint="weight_decay=0.01")
    if decay and optimizer == "sgd":
        raise NotCovered("weight decay with 'gd' or 'adam'", got="'sgd'", hint="optimizer='gd'")
    if decay:
        _scale_free(network)
    if isinstance(steps, int) and not isinstance(steps, bool):
        looks = looked_at(checks.count(steps, 1, "number of steps", "predict_training(steps)", "steps=1000"))
    else:
        looks = np.unique(np.array([0, *steps], np.int64))
    return Options(rate, looks, optimizer, None if batch is None or batch >= n else batch, loss, float(decay))  # pyright: ignore


def _constant(value: float) -> Rate:
    return lambda step: value


def _level(level: float | None, classes: int) -> float:
    if level is None:
        return 0.6 if classes == 2 else 1.2 / classes
    if not 1.0 / classes < checks.number(level) < 1.0:
        raise InvalidInput(f"a share between 1/{classes} and 1", got=level, where="level", hint="level=0.6")
    return float(level)


def _no_mixing(network: Network) -> None:
    for layer in every(network.layers):
        if Mix.POINTS in layer.mixes:
            raise NotCovered(
                "held-out points in a network without norms over the data",
                got=text(layer),
                where="test",
                hint="leave test= out: what a BatchNorm does to held-out points depends on its running statistics",
            )


def _scale_free(network: Network) -> None:
    """Weight decay is known where f is homogeneous in every layer's weights."""
    for layer in every(network.layers):
        free = (layer.draws and not getattr(layer, "bias_var", 0.0)) or layer.rays is not None or layer.pools > 1
        if not free and layer.multiplier is None:
            raise NotCovered(
                "a scale-free network without biases (ReLU and its like, pools), for weight decay",
                got=text(layer),
                where="weight_decay",
                hint="weight_decay=0",
            )


# -- Kernels ----------------------------------------------------------------------------------------------------------


def _kernel(network: Network, x: Array, width: int) -> Kernel:
    if needs_images(network.layers):
        return image_kernel(network, x, tangent=True, width=width)
    return kernel(network, x, tangent=True, width=width)


def _modes(theta: Array, labels: NDArray[np.int64]) -> Modes:
    """Of Θ/n over the training points."""
    from scipy.sparse.linalg import eigsh

    n = len(theta)
    bias = float(theta.sum() / n**2)
    signals: list[float] = []
    for c in np.unique(labels):
        y = (labels == c) - float(np.mean(labels == c))
        signals.append(float(y @ theta @ y / (n * (y @ y))))
    if n > 3:
        value, vector = eigsh(theta, k=1, which="LA", v0=np.ones(n), tol=1e-6)
        top, u = float(value[0]), vector[:, 0]
    else:
        values, vectors = np.linalg.eigh(theta)
        top, u = float(values[-1]), vectors[:, -1]
    return Modes(bias, float(np.mean(signals)), top / n, float(u.sum() ** 2 / n))


def _softness(covariance: Array) -> tuple[float, float]:
    """s, the spread of g over the data, and κ: theory.md (16)."""
    n = len(covariance)
    q = float(np.trace(covariance) / n)
    off = float((covariance.sum() - np.trace(covariance)) / (n * (n - 1)))
    spread = math.sqrt(max(2.0 * (q - off), 0.0))
    return spread, softening(spread)


def _check_rate(options: Options, modes: Modes, overshoot: float) -> None:
    if options.optimizer == "adam":
        return
    rate = max(options.rate(int(step)) for step in options.steps[:-1])
    limit = 2.0 * overshoot if options.loss == "cross-entropy" else 2.0 / modes.largest
    if rate >= limit:
        what = "the bias swings for ever" if options.loss == "cross-entropy" else "training diverges"
        raise InvalidInput(
            f"a learning rate below {limit:.3g}, from which on {what}", got=rate, where="lr", hint=f"lr={limit / 4:.2g}"
        )


def _columns(classes: int) -> int:
    return 1 if classes == 2 else classes


def _starts(start: Any, covariance: Array, classes: int, draws: int, n: int, seed: int) -> tuple[Array, int]:
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


def _run(problem: Problem, task: Task, z0: Array, seed: int) -> Iterator[Array]:
    """Logits of all points (training, then held-out) at every step that is looked at."""
    theta, options, n = problem.kernel.tangent, problem.options, problem.n
    assert theta is not None
    full = theta.astype(z0.dtype, copy=False)
    start, looks = z0[:n], options.steps

    def everywhere(state: State) -> Array:
        if len(z0) == n:
            return state.z
        return np.concatenate([state.z, z0[n:] - z0.dtype.type(task.factor) * (full[n:, :n] @ state.s)])

    if options.optimizer == "adam":
        yield from _adam(problem, task, z0)
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


def _decaying(network: Network, task: Task, theta: Array, z0: Array, n: int, options: Options) -> Iterator[Array]:
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


def _adam(problem: Problem, task: Task, z0: Array) -> Iterator[Array]:
    options, n = problem.options, problem.n
    if options.decay:
        raise NotCovered("weight decay with 'gd'", got="'adam'", hint="optimizer='gd'")
    if options.loss == "squared":
        raise NotCovered("cross-entropy, for Adam", got="squared loss", hint="optimizer='gd'")
    found = layer_tangents(problem.network, problem.x, problem.width)
    kernels = [(theta.astype(z0.dtype), weights, last) for theta, weights, last in found]
    parts = [Part(np.ascontiguousarray(theta[:n, :n]), weights, last) for theta, weights, last in kernels]
    pairs = z0.dtype.type(2.0 if task.classes == 2 else 1.0)
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
        alone = _kernel(_only(network, index), x, width).tangent
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


def _record(recorder: Recorder, index: int, task: Task, z: Array) -> Array:
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
