"""`fg.predict_training`: predicted from kernels, and tried on a few initializations whether it may be trusted."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from firstguess.base.checks import known_options
from firstguess.base.errors import FirstguessError
from firstguess.base.gaussian import Array
from firstguess.ensemble.member_module import build
from firstguess.network.network import Network
from firstguess.theory.descent import Loss
from firstguess.theory.predicted_training import PredictedTraining, Trust
from firstguess.theory.training_problem import Optimizer, Problem, Schedule, prepare
from firstguess.theory.training_runs import Start, follow

_INITS = 10
_GOOD, _FAIR = 0.2, 0.5  # relative spread of ‖∇ mean g‖² over initializations: theory.md §7
_OFF = 0.3  # of its mean from the limit, beyond what so few initializations leave open


@known_options
def predict_training(
    network: Network | str,
    *,
    data: Any,
    test: Any = None,
    lr: Schedule = 1e-3,
    steps: int | Sequence[int] = 10_000,
    optimizer: Optimizer = "gd",
    batch: int | None = None,
    loss: Loss = "cross-entropy",
    weight_decay: float = 0.0,
    start: Start | Array = "any",
    draws: int = 200,
    width: int = 1000,
    level: float | None = None,
    seed: int = 0,
    classes: int | None = None,
    trust: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> PredictedTraining:
    """Predict shares, accuracies and loss over training, from kernels of the data: no network is trained.

    Args:
        network: A description.
        data: Labelled points: a pair (x, y), `Data`, a name.
        test: Held-out points, likewise.
        lr: The learning rate, or a function of the step.
        steps: How many, or which to look at (default: 0–7, then ten a decade).
        optimizer: "gd" (full batches), "sgd" (mini-batches of `batch`), "adam" (with or without `batch`).
        batch: Size of mini-batches.
        loss: "cross-entropy", or "squared": ½ Σ (f − one-hot)².
        weight_decay: With "gd", of scale-free networks without biases.
        start: "any"; "neutral": the largest share is at most 1.1 of an even one; "biased": at least 0.9; or logits
            (networks, points, classes) of your own networks on the training points, and behind them the held-out ones.
        draws: Networks.
        width: Of layers that name none: the tangent kernel grows with it.
        level: Of the largest share, for `absorption`: by default a fifth of the way from the labels' largest share to
            1, which is 0.6 of two even classes.
        seed: Of starts, the order of the data, and the initializations that `trust` looks at.
        classes: For a text; by default those of the labels.
        trust: Draw ten networks of this width and look whether their gradients are those of the limit.
        progress: Called with (step, last step).

    >>> from firstguess.data import two_blobs
    >>> net = "dense(weight_var=2) > relu > dense(weight_var=2)"
    >>> t = predict_training(net, data=two_blobs(50, 20), lr=1e-3, steps=300)
    >>> bool(t.largest.mean[0] > t.largest.mean[-1]), t.modes.ratio > 1, t.trust.word
    (True, True, 'good')
    """
    started = time.perf_counter()
    problem = prepare(
        network,
        data,
        test,
        lr=lr,
        steps=steps,
        optimizer=optimizer,
        batch=batch,
        loss=loss,
        weight_decay=weight_decay,
        width=width,
        level=level,
        classes=classes,
    )
    found = trust_of(problem, seed=seed) if trust else None
    noise = math.log1p(found.spread**2) if found is not None and found.word == "with a random factor" else 0.0
    evenness = evenness_of(problem, seed=seed) if trust and optimizer == "adam" else None
    t = follow(problem, start=start, draws=draws, seed=seed, noise=noise, evenness=evenness, progress=progress)
    return replace(t, trust=found, seconds=time.perf_counter() - started)


def trust_of(problem: Problem, *, seed: int = 0, inits: int = _INITS) -> Trust:
    """One backward pass of the mean of g = f₁ − f₀ over the training points, for each of a few networks.

    Its squared gradient is 1ᵀΓ1/n² of this very network, Γ = 2Θ in the limit: 2λ_b (theory.md §7).
    """
    x = problem.x[: problem.n].astype(np.float32)
    limit = 2.0 * problem.modes.bias
    try:
        found = [_squared_gradient(problem, x, seed, member) / limit for member in range(inits)]
    except FirstguessError as error:
        return Trust("not lazy", f"no network could be drawn to try it: {error}", math.nan, math.nan, 0)
    values = np.array(found)
    ratio, spread = float(values.mean()), float(values.std(ddof=1) / values.mean())
    said = f"over {inits} initializations the squared gradient of the bias is {ratio:.2f} ± {spread:.2f} of its limit"
    rate = max(problem.options.rate(int(step)) for step in problem.options.steps[:-1])
    off = abs(ratio - 1.0) - 3.0 * spread / math.sqrt(inits)
    if not math.isfinite(spread) or spread > _FAIR or off > _OFF:
        return Trust("not lazy", f"{said}: too narrow or too deep for this theory", ratio, spread, inits)
    if problem.options.optimizer != "adam" and rate >= problem.overshoot:
        why = f"{said}, but the learning rate is above {problem.overshoot:.3g}, where the bias overshoots"
        return Trust("not lazy", why, ratio, spread, inits)
    if spread > _GOOD:
        why = f"{said}: every network has its own pace, drawn at random"
        return Trust("with a random factor", why, ratio, spread, inits)
    return Trust("good", said, ratio, spread, inits)


def _squared_gradient(problem: Problem, x: NDArray[np.float32], seed: int, member: int) -> float:
    model = build(problem.network, x, width=problem.width, seed=seed, member=member)
    with torch.enable_grad():
        rows = model(torch.from_numpy(x))
        (rows[:, 1] - rows[:, 0]).mean().backward()
    return sum(float(p.grad.double().square().sum()) for p in model.parameters() if p.grad is not None)


def evenness_of(problem: Problem, *, seed: int = 0, inits: int = 4) -> list[tuple[float, float]]:
    """Σ|g| / (√P·‖g‖) of each layer's weights: by how much less than a step of equal weights Adam's moves the logits.

    For gradients of the points' mean logit, and of the labels' direction: the constants C of (18), which depend on the
    data (inputs with many zeros, nodes that are silent on all points) more than on the network.
    """
    x = problem.x[: problem.n].astype(np.float32)
    labels = torch.from_numpy(problem.labels.copy())
    classes = problem.network.classes
    sums: list[list[float]] = [[], []]
    for member in range(inits):
        model = build(problem.network, x, width=problem.width, seed=seed, member=member)
        weights = [p.requires_grad_() for p in model.parameters() if p.ndim > 1]
        for which, targets in enumerate((torch.zeros_like(labels), labels)):
            pull = torch.nn.functional.one_hot(targets, classes).float()
            pull -= 1.0 / classes if which == 0 else pull.mean(0)
            with torch.enable_grad():
                found = torch.autograd.grad((model(torch.from_numpy(x)) * pull).sum(), weights)
            sums[which] += [float(g.abs().double().mean() / g.double().square().mean().sqrt()) for g in found]
    count = len(sums[0]) // inits
    means = [np.reshape(values, (inits, count)).mean(axis=0) for values in sums]
    return [(float(one), float(other)) for one, other in zip(*means, strict=True)]
