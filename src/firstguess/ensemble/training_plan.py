"""How many networks are trained, checked: learning rates of every step, looks, batches, loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from firstguess.base import checks
from firstguess.base.errors import InvalidInput
from firstguess.theory.training.curves import looked_at

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
    if batch is not None:
        batch = checks.count(batch, 1, "batch size", "train(batch)", "batch=128")
        if optimizer == "gd":
            raise InvalidInput("no batch: 'gd' takes all points", got=batch, where="batch", hint="optimizer='sgd'")
    elif optimizer == "sgd":
        raise InvalidInput("the size of mini-batches", got="none", where="batch", hint="batch=128")
    if not 0 <= checks.number(weight_decay) < math.inf:
        raise InvalidInput(
            "a weight decay of at least 0", got=weight_decay, where="weight_decay", hint="weight_decay=0.01"
        )
    size = None if batch is None or batch >= n else int(batch)
    looks = _looks(steps, epochs, 1 if size is None else -(-n // size))
    seed = checks.count(seed, 0, "seed", "train(seed)", "seed=0")
    return Plan(_rates(lr, int(looks[-1])), looks, optimizer, size, loss, float(weight_decay), seed)


def _looks(steps: Any, epochs: Any, of_an_epoch: int) -> NDArray[np.int64]:
    if (steps is None) == (epochs is None):
        got = "neither" if steps is None else "both"
        raise InvalidInput("steps or epochs, one of them", got=got, where="train", hint="epochs=20, or steps=1000")
    if epochs is not None:
        return looked_at(of_an_epoch * checks.count(epochs, 1, "number of epochs", "train(epochs)", "epochs=20"))
    if np.ndim(steps) == 0:
        return looked_at(checks.count(steps, 1, "number of steps", "train(steps)", "steps=1000"))
    found = np.asarray(steps)
    if found.ndim != 1 or found.dtype.kind not in "iu" or not len(found) or found.min() < 0 or found.max() < 1:
        raise InvalidInput("a number of steps, or a list of some", got=steps, where="steps", hint="steps=[0, 10, 100]")
    return np.unique(np.concatenate([[0], found])).astype(np.int64)


def _rates(lr: Any, steps: int) -> NDArray[np.float64]:
    if callable(lr):
        rate = cast("Callable[[int], float]", lr)
        rates = np.array([checks.number(rate(step)) for step in range(steps)])
        bad = np.flatnonzero(~((rates >= 0) & (rates < math.inf)))
        if len(bad):
            got = f"{rates[bad[0]]:g} at step {bad[0]}"
            raise InvalidInput("learning rates of at least 0", got=got, where="train(lr)", hint="lr=1e-3")
        return rates
    if not 0 < checks.number(lr) < math.inf:
        raise InvalidInput("a learning rate above 0", got=lr, where="train(lr)", hint="lr=1e-3")
    return np.full(steps, float(lr))


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


def room_for(need: float, threads: int, memory: float) -> int:
    """How many threads memory has room for, each of which needs `need` bytes."""
    if need > memory:
        raise InvalidInput(
            f"memory for one network in training, {need:.2g} bytes",
            got=f"{memory:.2g} bytes that are free",
            where="train",
            hint="a smaller batch, a smaller width, or fewer points",
        )
    return max(1, min(threads, int(memory // need)))
