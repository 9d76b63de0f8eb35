"""What a prediction of training is asked, checked, with the kernels that answer it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, cast, get_args

import numpy as np
from numpy.typing import NDArray

from firstguess.base import checks
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.gaussian import Array
from firstguess.base.record import Record
from firstguess.base.text import in_bytes
from firstguess.network.builders import as_network
from firstguess.network.layer import Mix, text
from firstguess.network.network import Network
from firstguess.network.walk import every, needs_images, needs_tokens
from firstguess.theory.kernel.propagation import Kernel, image_kernel, kernel
from firstguess.theory.training.absorption import overshoot_rate, softening
from firstguess.theory.training.curves import looked_at
from firstguess.theory.training.flow import Loss
from firstguess.theory.training.schedules import Rate, rates

Optimizer: TypeAlias = Literal["gd", "sgd", "adam"]
# Bytes, by pair of points, by point and logit, by point and class of a network: counted by hand, not measured.
_PAIRS, _EACH, _RECORD = 44.0, 60.0, 40.0
Schedule: TypeAlias = "float | Callable[[int], float]"


_NO_BIAS = 1e-6  # of the largest eigenvalue: rounding, and sampled units


@dataclass(frozen=True)
class Modes(Record):
    """λ of the direction common to all points and of the labels' direction in Θ/n: theory.md (15)."""

    _also = ("ratio",)
    _apart = ("largest", "common")

    bias: float
    signal: float
    largest: float  # the largest eigenvalue
    common: float  # (1ᵀu₁)²/n: how much of the top eigenvector the common direction is

    @property
    def has_bias(self) -> bool:
        """Whether the common direction moves at all: after a BatchNorm after the activation it does not."""
        return self.bias > _NO_BIAS * self.largest

    @property
    def ratio(self) -> float:
        """Bias to signal: far above 1, the bias is gone long before anything is learned."""
        return self.bias / self.signal


@dataclass(frozen=True)
class Options:
    """How it is trained, checked."""

    rates: NDArray[np.float64]  # of every step
    steps: NDArray[np.int64]  # that are looked at
    optimizer: Optimizer
    batch: int | None
    loss: Loss
    decay: float

    @property
    def each(self) -> bool:
        """Whether both logits of two classes matter: under squared loss Adam's steps depend on their sum as well."""
        return self.optimizer == "adam" and self.loss == "squared"

    @property
    def rate(self) -> Rate:
        """The learning rate of a step."""
        return self.rates.tolist().__getitem__


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
    memory: float = 2e9  # bytes

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
    draws: int = 200,
    memory: float = 2e9,
) -> Problem:
    """Check the arguments and compute the kernels."""
    network = as_network(network, classes, where="predict_training")
    train, held = labelled(data, "data"), None if test is None else labelled(test, "test")
    network = with_classes(network, classes, train, held)
    optimizer = checks.choice(optimizer, get_args(Optimizer), "predict_training(optimizer)", "optimizer")
    loss = checks.choice(loss, get_args(Loss), "predict_training(loss)", "loss")
    size = batch_size(batch, optimizer, len(train[1]), "predict_training")
    check_decay(weight_decay)
    if weight_decay and optimizer == "adam":
        raise NotCovered(
            "weight decay with 'gd' or 'sgd' (Adam divides it by a weight's own gradient: no layer shrinks as one)",
            got="'adam'",
            where="weight_decay",
            hint="optimizer='sgd', or weight_decay=0",
        )
    if weight_decay:
        _scale_free(network)
    looks = looks_of(steps, "predict_training")
    paces = rates(lr, int(looks[-1]), "predict_training(lr)")
    options = Options(paces, looks, optimizer, size, loss, float(weight_decay))
    level = level_of(level, network.classes, train[1])
    mixing = next((layer for layer in every(network.layers) if Mix.POINTS in layer.mixes), None)
    if held is not None and mixing is not None:
        expected = "held-out points in a network without norms over the data"
        hint = "leave test= out: what a BatchNorm does to held-out points depends on its running statistics"
        raise NotCovered(expected, got=text(mixing), where="test", hint=hint)
    x = train[0] if held is None else np.concatenate([train[0], held[0]])
    check_memory(len(x), draws, network, options, memory)
    found, n = kernel_of(network, x, width), len(train[0])
    assert found.tangent is not None
    modes = modes_of(found.tangent[:n, :n], train[1])
    trace, total = float(np.trace(found.covariance[:n, :n])), float(found.covariance[:n, :n].sum())
    spread = math.sqrt(max(2.0 * (trace / n - (total - trace) / (n * (n - 1))), 0.0))  # of g over the data: (16)
    overshoot = overshoot_rate(modes.bias if modes.has_bias else modes.largest, network.classes, softening(spread))
    _check_rate(options, modes, overshoot)
    held_labels = None if held is None else held[1]
    return Problem(
        network, x, train[1], held_labels, options, width, level, found, modes, spread, overshoot, float(memory)
    )


def labelled(data: Any, where: str, dtype: type = np.float64) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Points and labels, or one clear error."""
    from firstguess.data import as_data, load

    given = load(data) if isinstance(data, str) else as_data(data)
    if given.y is None:
        raise InvalidInput("labelled points", got="points without labels", where=where, hint=f"{where}=(x, y)")
    checks.within(given.n, "at least 2 points", where, low=2, closed=True)
    return given.x.astype(dtype, copy=False), np.asarray(given.y, np.int64)


def with_classes(network: Network, classes: int | None, train: Any, held: Any) -> Network:
    """The network with as many classes as the labels have, if nobody said how many."""
    labels = train[1] if held is None else np.concatenate([train[1], held[1]])
    checks.two_classes(train[1])
    if labels.min() < 0:
        raise InvalidInput("labels 0, 1, …", got=int(labels.min()), where="data")
    most = max(int(labels.max()) + 1, 2)
    if classes is None and most > network.classes:
        return replace(network, classes=most)
    if most > network.classes:
        raise InvalidInput(f"labels 0…{network.classes - 1}", got=most - 1, where="data", hint=f"classes={most}")
    return network


def batch_size(batch: Any, optimizer: Any, n: int, where: str) -> int | None:
    """The size of mini-batches of n points; None: all points at once."""
    if batch is None:
        if optimizer == "sgd":
            raise InvalidInput("the size of mini-batches", got="none", where="batch", hint="batch=128")
        return None
    size = checks.count(batch, 1, "batch size", f"{where}(batch)", "batch=128")
    if optimizer == "gd":
        raise InvalidInput("no batch: 'gd' takes all points", got=size, where="batch", hint="optimizer='sgd'")
    return None if size >= n else size


def check_decay(decay: Any) -> None:
    """Refuse a weight decay below 0."""
    checks.within(decay, "a weight decay of at least 0", "weight_decay", "weight_decay=0.01", closed=True)


def looks_of(steps: Any, where: str) -> NDArray[np.int64]:
    """The steps to look at: of a number of steps the usual ones, else those given; always also the start."""
    if np.ndim(steps) == 0:
        return looked_at(checks.count(steps, 1, "number of steps", f"{where}(steps)", "steps=1000"))
    found = np.asarray(steps)
    if found.ndim != 1 or found.dtype.kind not in "iu" or not len(found) or found.min() < 0 or found.max() < 1:
        raise InvalidInput("a number of steps, or a list of some", got=steps, where="steps", hint="steps=[0, 10, 100]")
    return np.unique(np.concatenate([[0], found])).astype(np.int64)


def level_of(level: float | None, classes: int, labels: NDArray[np.int64]) -> float:
    """The level, by default a fifth of the way from the labels' largest share to one class: 0.6 of two even ones."""
    if level is None:
        even = max(1.0 / classes, float(np.bincount(labels).max() / len(labels)))
        return even + 0.2 * (1.0 - even)
    checks.within(level, f"a share between 1/{classes} and 1", "level", "level=0.6", low=1.0 / classes, high=1.0)
    return float(level)


def _scale_free(network: Network) -> None:
    """Weight decay is known where f is homogeneous in every layer's weights."""
    for layer in every(network.layers):
        free = (
            (layer.draws and not getattr(layer, "bias_var", 0.0)) or layer.leaky_slopes is not None or layer.pools > 1
        )
        if not free and layer.multiplier is None:
            expected = "a scale-free network without biases (ReLU and similar ones, pools), for weight decay"
            raise NotCovered(expected, got=text(layer), where="weight_decay", hint="weight_decay=0")


def check_memory(points: int, draws: int, network: Network, options: Options, memory: float) -> None:
    """Refuse what would not fit, before anything is allocated, with the number of points that would.

    By point and point: covariance, tangent and the factor of one in float64, and their copies in float32 (for Adam the
    tangent of every layer). By point and network: logits, residuals, and what an integrator keeps.
    """
    checks.within(memory, "a number of bytes above 0", "memory", "memory=2e9", infinite=True)
    layers = sum(layer.draws for layer in every(network.layers))
    pairs = _PAIRS + (4.0 * layers if options.optimizer == "adam" else 0.0)
    columns = network.classes if network.classes > 2 or options.each else 1
    each = float(draws) * (_EACH * columns + _RECORD * network.classes)
    needs = pairs * points**2 + each * points
    if needs > memory:
        most = int((math.sqrt(each**2 + 4.0 * pairs * memory) - each) / (2.0 * pairs))
        expected = f"data whose pairs fit in {in_bytes(memory)}"
        hint = f"a random subset of {most} points, or memory={needs:.1g}"
        raise InvalidInput(expected, got=f"{points} points: {in_bytes(needs)}", where="predict_training", hint=hint)


def kernel_of(network: Network, x: Array, width: int) -> Kernel:
    for layer in every(network.layers):
        if needs_tokens([layer]):
            raise NotCovered("a network without tokens, for a tangent kernel", got=text(layer), where="network")
    if needs_images(network.layers):
        return image_kernel(network, x, tangent=True, width=width)
    return kernel(network, x, tangent=True, width=width)


def modes_of(theta: Array, labels: NDArray[np.int64]) -> Modes:
    """The modes of Θ/n over the training points."""
    from scipy.sparse.linalg import eigsh

    n = len(theta)
    bias = float(theta.sum() / n**2)
    signals: list[float] = []
    for c in np.unique(labels):
        y = (labels == c) - float(np.mean(labels == c))
        signals.append(float(y @ theta @ y / (n * (y @ y))))
    if n > 3:
        value, vector = cast("Any", eigsh)(theta, k=1, which="LA", v0=np.ones(n), tol=1e-6)
        top, u = float(value[0]), vector[:, 0]
    else:
        values, vectors = np.linalg.eigh(theta)
        top, u = float(values[-1]), vectors[:, -1]
    return Modes(bias, float(np.mean(signals)), top / n, float(u.sum() ** 2 / n))


def _check_rate(options: Options, modes: Modes, overshoot: float) -> None:
    if options.optimizer == "adam":
        return
    step = int(options.rates.argmax())
    rate = float(options.rates[step])
    limit = 2.0 * overshoot if options.loss == "cross-entropy" else 2.0 / modes.largest
    if rate >= limit:
        what = "the bias swings for ever" if options.loss == "cross-entropy" else "training diverges"
        expected = f"a learning rate below {limit:.3g}, from which on {what}"
        hint = f"lr={limit / 4:.2g}"
        raise InvalidInput(expected, got=f"{rate:.3g}" + (f" at step {step}" if step else ""), where="lr", hint=hint)
