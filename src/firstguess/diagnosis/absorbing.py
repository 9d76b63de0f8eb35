"""Following the bias of a model's own starts along the tangent kernel of its description: no network is trained."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast, get_args

import numpy as np
import torch
from torch import nn

from firstguess.base import checks
from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.diagnosis.lasting import LEFT, Array, Lasting, Optimizer, left_of, settled
from firstguess.ensemble.lazy_training import evenness_of, trust_of
from firstguess.network.grid import Grid, Shape
from firstguess.network.walk import every, needs_images
from firstguess.theory.budget import Budget
from firstguess.theory.curves import looked_at
from firstguess.theory.training_problem import Problem, prepare
from firstguess.theory.training_runs import follow

if TYPE_CHECKING:
    from firstguess.data import Data
    from firstguess.network.network import Network

Start = tuple[nn.Module, torch.Tensor]  # an initialization, and its logits
Starts = Callable[["Data"], Generator[Start]]

_SAFE = 0.25  # of the rate from which on the bias overshoots: the default rate
_ADAM = 1e-3  # torch's default
_POINTS, _FEW, _TRIAL = 300, 50, 32  # of the kernel: at most, at least, and to see how long it takes
_A_CLASS = 4  # points of a class, on average, below which a kernel of so few says little
_INITS, _LEAST = 48, 16  # starts
_AGREE = 0.2  # by how much the model's own gradients may be off the kernel's, beyond three standard errors
_UNEVEN = 0.5  # relative spread of them over networks from which on training is not lazy: theory.md §7
_SLOW = 50.0  # rates this much below the overshoot are one and the same flow, whose time is η·steps
_HORIZON, _ADAM_STEPS, _LONGEST = 8.0, 64, 3  # of the first look ahead; how often it is made four times as long

WATCH = "watch it while it trains: fg.Watch(model, loader)"


def check_asked(lr: float | None, optimizer: str) -> None:
    """One clear error, before anything is measured."""
    if lr is not None and not (not isinstance(lr, bool) and 0 < checks.number(lr) < math.inf):
        raise InvalidInput("a learning rate above 0", got=repr(lr), where="diagnose(lr)", hint="lr=1e-3")
    if optimizer not in get_args(Optimizer):
        raise InvalidInput("optimizer 'gd', 'sgd' or 'adam'", got=repr(optimizer), where="diagnose(optimizer)")


def lasting(
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
) -> Lasting:
    """Follow the bias of a model's own starts along the tangent kernel of `network`, its description.

    `batch` is the size of mini-batches: "sgd" follows the path of full batches on average, Adam's pace depends on it.
    `whole`: there are no more points than these.
    """
    asked = Lasting(optimizer=optimizer, batch=None if optimizer == "gd" else batch)
    started = time.perf_counter()
    if data is None:
        return replace(asked, why="not predicted: the inputs are not one array of numbers")
    if data.y is None:
        return replace(asked, why="not predicted: the data have no labels (one a point), so what is learned is unknown")
    if len(np.unique(data.y)) < 2:
        return replace(asked, why="not predicted: all labels are the same")
    layers = sum(layer.draws for layer in every(network.layers)) if optimizer == "adam" else 0
    try:
        points = _affordable(network, data, width, seconds / (3.0 * (1 + layers)))
        if points < min(_FEW, data.n):
            return replace(asked, why="not predicted: there was no time for its tangent kernel")
        if points < _A_CLASS * network.classes:
            some = f"{points} points of {network.classes} classes, and the kernel takes {_POINTS} at most"
            return replace(asked, why=f"not predicted: fewer than {_A_CLASS} points a class ({some})")
        few = data if data.n <= points else data.subset(points, seed)
        problem = _problem(network, few, width, optimizer)
        begun = time.perf_counter() - started
        with closing(starts(few)) as members:
            logits, own = _looked(problem, members, seconds / 3.0)
        if len(logits) < _LEAST:
            return replace(asked, why="not predicted: there was no time to draw enough initializations")
        trust = trust_of(problem, seed=seed)
    except FirstguessError as error:
        return replace(asked, why=f"not predicted: {error}")
    found = replace(
        asked,
        lr=lr if lr is not None else _ADAM if optimizer == "adam" else _SAFE * problem.overshoot,
        chosen=lr is None,
        overshoot=problem.overshoot,
        ratio=problem.modes.ratio,
        majority=float(np.bincount(problem.labels).max() / problem.n),
        points=problem.n,
        inits=len(logits),
        own=own,
        trust=trust,
    )
    if why := _not_lazy(found):
        return replace(found, why=why)
    size = _same_noise(batch, problem.n, data.n if whole else None)
    noise = math.log1p(own[1] ** 2) if trust.word == "with a random factor" else 0.0
    left = max(0.0, seconds - (time.perf_counter() - started) - begun * layers)
    try:
        return _followed(found, problem, logits, size, noise, left, seed)
    except FirstguessError as error:
        return replace(found, why=f"not predicted: {error}")


# -- Parts ------------------------------------------------------------------------------------------------------------


def _affordable(network: Network, data: Data, width: int, seconds: float) -> int:
    """How many points' kernel can be had in this time: from that of a few, by the square of their number."""
    most = min(data.n, _POINTS)
    if most <= _TRIAL:
        return most
    if needs_images(network.layers) and data.x.ndim == 4:
        shape = Shape(data.x.shape[1], Grid(tuple(data.x.shape[2:])))
        Budget(_TRIAL, True, seconds=seconds).plan(network.layers, shape)  # or it says why not
    started = time.perf_counter()
    trial = data.subset(_TRIAL, 0)
    rows = np.arange(_TRIAL) % network.classes  # labels of all classes, which a few points may lack
    _problem(network, replace(trial, y=rows), width, "gd")
    taken = time.perf_counter() - started
    return min(most, int(_TRIAL * math.sqrt(seconds / max(taken, 1e-6))))


def _problem(network: Network, data: Data, width: int, optimizer: Optimizer) -> Problem:
    """At a rate that is refused by nobody: rates come later."""
    return prepare(
        network,
        data,
        None,
        lr=1e-12,
        steps=1,
        optimizer="adam" if optimizer == "adam" else "gd",
        batch=None,
        loss="cross-entropy",
        weight_decay=0.0,
        width=width,
        level=None,
        classes=network.classes,
    )


def _looked(problem: Problem, starts: Generator[Start], seconds: float) -> tuple[list[Array], tuple[float, float]]:
    """Logits of initializations, and their ‖∇ mean g‖² by the kernel's 2λ_b: its mean, its relative spread."""
    started = time.perf_counter()
    logits: list[Array] = []
    squares: list[float] = []
    for model, rows in starts:
        if rows.ndim != 2 or tuple(rows.shape) != (problem.n, problem.network.classes):
            one = "one output, whose sign is the guess" if rows.ndim == 1 else f"outputs of shape {tuple(rows.shape)}"
            raise InvalidInput("one output a class for every point, for the theory of training", got=one)
        if not rows.requires_grad:
            raise InvalidInput("a model that can be differentiated", got="outputs without a gradient")
        weights = [p for p in model.parameters() if p.requires_grad]
        mean = (rows[:, 1] - rows[:, 0]).mean()
        found = torch.autograd.grad(mean, weights, allow_unused=True)
        squares.append(sum(float(g.double().square().sum()) for g in found if cast("Any", g) is not None))
        logits.append(rows.detach().to("cpu", torch.float64).numpy())
        if len(logits) >= _INITS or time.perf_counter() - started > seconds:
            break
    values = np.array(squares) / (2.0 * problem.modes.bias)
    mean_of = float(values.mean()) if len(values) else math.nan
    return logits, (mean_of, float(values.std(ddof=1) / mean_of) if len(values) > 1 and mean_of > 0 else math.inf)


def _not_lazy(found: Lasting) -> str:
    """Why no number is to be said; empty where it may be."""
    assert found.trust is not None
    ratio, spread = found.own
    if found.trust.word == "not lazy" or spread > _UNEVEN:
        pace = f"its initializations differ by {100 * max(spread, found.trust.spread):.0f} % in the pace of the bias"
        reason = pace if not found.trust.spread <= _UNEVEN or spread > _UNEVEN else found.trust.why
        return f"not predicted: training is not lazy, the network is too deep or too narrow ({reason}); {WATCH}"
    if abs(ratio - 1.0) > _AGREE + 3.0 * spread / math.sqrt(found.inits):
        return (
            f"not predicted: the model's bias moves at {ratio:.2g} of its description's pace (frozen parameters, or "
            f"some that a description does not have?); {WATCH}"
        )
    if found.optimizer != "adam" and found.lr >= found.overshoot:
        return (
            f"at lr {found.lr:.3g} the bias overshoots: from {found.overshoot:.2g} on classes hand over to each "
            f"other, step by step. A rate of {found.overshoot / 2:.1g} or less, or one that is warmed up, avoids that"
        )
    return ""


def _same_noise(batch: int | None, n: int, total: int | None) -> int | None:
    """Batches of n points whose gradients scatter as those of `batch` of `total` do: (1/B)(1 − B/N)."""
    if batch is None or (total is not None and batch >= total):
        return None
    scatter = 1.0 / batch - (0.0 if total is None else 1.0 / total)
    return max(1, min(n, round(1.0 / (scatter + 1.0 / n))))


def _followed(
    found: Lasting, problem: Problem, logits: list[Array], batch: int | None, noise: float, seconds: float, seed: int
) -> Lasting:
    """The path of these starts, further and further until the bias is gone."""
    adam = found.optimizer == "adam"
    # Slow descent is a flow: it is followed in larger steps, of `scale` each.
    rate = found.lr if adam else max(found.lr, found.overshoot / _SLOW)
    scale = rate / found.lr
    horizon = _ADAM_STEPS if adam else max(32, math.ceil(_HORIZON * problem.overshoot / rate))
    evenness = evenness_of(problem, seed=seed) if adam else None
    starts = np.stack(logits)
    result = found
    for _ in range(1 + _LONGEST):
        started = time.perf_counter()
        options = replace(
            problem.options,
            rate=cast("Any", partial(_constant, rate)),
            steps=looked_at(horizon),
            batch=batch if adam else None,
        )
        asked = replace(problem, options=options)
        t = follow(asked, start=starts, draws=len(starts), seed=seed, noise=noise, evenness=evenness)
        left = left_of(t.accuracy)
        steps = settled(t.steps, left, LEFT) * scale
        result = replace(
            found,
            steps=steps,
            half=settled(t.steps, left, 0.5) * scale,
            largest=_at(t.steps * scale, t.largest.mean, steps),
            accuracy=_at(t.steps * scale, t.accuracy.mean, steps),
            at=tuple(float(step) for step in t.steps * scale),
            left=tuple(float(part) for part in left),
            training=replace(t, trust=found.trust),
            scale=scale,
        )
        seconds -= time.perf_counter() - started
        if math.isfinite(steps) or 4.0 * (time.perf_counter() - started) > seconds:
            break
        horizon *= 4
    return result


def _constant(rate: float, step: int) -> float:
    return rate


def _at(steps: Any, curve: Array, step: float) -> tuple[float, float]:
    """A curve at the start, and at a step between those looked at (its last, where that is beyond)."""
    return float(curve[0]), float(np.interp(min(step, float(steps[-1])), steps, curve))
