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
from firstguess.ensemble.sampled_weights import trained, weight_sample
from firstguess.network.layer import Mix
from firstguess.network.network import Network
from firstguess.network.walk import every
from firstguess.theory.descent import Loss
from firstguess.theory.predicted_training import PredictedTraining, Trust
from firstguess.theory.training_problem import Optimizer, Problem, Schedule, prepare
from firstguess.theory.training_runs import Adam, Start, follow

_INITS = 10
_GOOD, _FAIR = 0.2, 0.5  # relative spread of ‖∇ mean g‖² over initializations: theory.md §7
# Points for every sampled weight of a layer up to which Adam's prediction is right: what a sum over m weights has of
# luck, m^-½, is as large as what one of n points does to another, n^-½, at n = m. With blobs of 1000 dimensions and
# 1000 weights the accuracy was 0.03 low at 400 points and 0.14 at 2000.
_PER_WEIGHT = 0.6
_SAMPLES, _MOST, _FEWEST = 4, 1000, 100  # networks whose weights Adam's prediction samples, weights of a layer
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
    memory: float = 2e9,
    progress: Callable[[int, int], None] | None = None,
) -> PredictedTraining:
    """Predict shares, accuracies and loss over training, from kernels of the data: no network is trained.

    Args:
        network: A description.
        data: Labelled points: a pair (x, y), `Data`, a name.
        test: Held-out points, likewise.
        lr: The learning rate, or a function of the step: `fg.schedules`.
        steps: How many, or which to look at (default: 0–7, then ten a decade).
        optimizer: "gd" (full batches), "sgd" (mini-batches of `batch`), "adam" (with or without `batch`).
        batch: Size of mini-batches.
        loss: "cross-entropy", or "squared": ½ Σ (f − one-hot)².
        weight_decay: As torch.optim.SGD's, with "gd" or "sgd", of scale-free networks without biases.
        start: "any"; "even" (or "neutral"): the largest share is at most 1.1 of an even one; "biased": at least 0.9; or
            logits (networks, points, classes) of your own networks on the training points, then on held-out ones.
        draws: Networks.
        width: Of layers that name none: the tangent kernel grows with it.
        level: Of the largest share, for `absorption`: by default a fifth of the way from the labels' largest share to
            1, which is 0.6 of two even classes.
        seed: Of starts, the order of the data, and the initializations that `trust` looks at.
        classes: For a text; by default those of the labels.
        trust: Draw ten networks of this width and look whether their gradients are those of the limit.
        memory: Bytes that it may take, above Python and its libraries; what takes more is refused, with the number of
            points that would fit.
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
        draws=draws,
        memory=memory,
    )
    found = trust_of(problem, seed=seed) if trust else None
    noise = math.log1p(found.spread**2) if found is not None and found.word == "with a random factor" else 0.0
    adam = measured(problem, seed=seed) if optimizer == "adam" else None
    t = follow(problem, start=start, draws=draws, seed=seed, noise=noise, adam=adam, progress=progress)
    if found is not None and t.diverged:
        found = replace(found, word="not lazy", why=f"{found.why}, but training diverges")
    return replace(t, trust=found, seconds=time.perf_counter() - started)


def measured(problem: Problem, *, seed: int = 0) -> Adam:
    """What Adam's prediction wants of a few networks: some weights, with the derivatives of all logits by them.

    Behind a norm over the data, where these are not to be had, how evenly gradients are spread over each layer.
    """
    if mixes_points(problem.network):
        return Adam(evenness=evenness_of(problem, seed=seed))
    x, most = problem.x.astype(np.float32), _sampled(problem)
    columns = _columns(problem)
    return Adam(
        [
            weight_sample(problem.network, x, width=problem.width, columns=columns, most=most, seed=seed, member=member)
            for member in range(_SAMPLES)
        ]
    )


def _columns(problem: Problem) -> int:
    classes = problem.network.classes
    return 1 if classes == 2 and not problem.options.each else classes


def _sampled(problem: Problem) -> int:
    """Weights of a layer that memory has room for."""
    layers = sum(layer.draws for layer in every(problem.network.layers))
    fits = 0.3 * problem.memory / (4.0 * _SAMPLES * len(problem.x) * _columns(problem) * layers)
    return max(_FEWEST, min(_MOST, int(fits)))


def mixes_points(network: Network) -> bool:
    return any(Mix.POINTS in layer.mixes for layer in every(network.layers))


def trust_of(problem: Problem, *, seed: int = 0, inits: int = _INITS) -> Trust:
    """One backward pass of the mean of g = f₁ − f₀ over the training points, for each of a few networks.

    Its squared gradient is 1ᵀΓ1/n² of this very network, Γ = 2Θ in the limit: 2λ_b (theory.md §7). Where the bias does
    not move at all (BatchNorm after the activation), the same for the direction of the labels.
    """
    x = problem.x[: problem.n].astype(np.float32)
    bias = problem.modes.has_bias
    of, along = ("bias", np.ones(problem.n)) if bias else ("signal", _direction(problem.labels))
    assert problem.kernel.tangent is not None
    limit = 2.0 * float(along @ problem.kernel.tangent[: problem.n, : problem.n] @ along) / problem.n**2
    try:
        found = [_squared_gradient(problem, x, along, seed, member) / limit for member in range(inits)]
    except FirstguessError as error:
        return Trust("not lazy", f"no network could be drawn to try it: {error}", math.nan, math.nan, 0)
    values = np.array(found)
    ratio, spread = float(values.mean()), float(values.std(ddof=1) / values.mean())
    said = f"over {inits} initializations the squared gradient of the {of} is {ratio:.2f} ± {spread:.2f} of its limit"
    rate = float(problem.options.rates.max())
    off = abs(ratio - 1.0) - 3.0 * spread / math.sqrt(inits)
    if not math.isfinite(spread) or spread > _FAIR or off > _OFF:
        return Trust("not lazy", f"{said}: too narrow or too deep for this theory", ratio, spread, inits)
    if problem.options.optimizer != "adam" and rate >= problem.overshoot:
        why = f"{said}, but the learning rate is above {problem.overshoot:.3g}, where the bias overshoots"
        return Trust("not lazy", why, ratio, spread, inits)
    if spread > _GOOD:
        why = f"{said}: every network has its own pace, drawn at random"
        return Trust("with a random factor", why, ratio, spread, inits)
    if problem.options.optimizer == "adam" and mixes_points(problem.network):
        why = f"{said}, but behind a norm over the data Adam is known by averages over layers only"
        return Trust("rough", why, ratio, spread, inits)
    if problem.options.optimizer == "adam" and problem.n > _PER_WEIGHT * _sampled(problem):
        why = (
            f"{said}, but Adam is followed on {_sampled(problem)} weights of a layer, which are too few to tell what "
            f"{problem.n} points do to each other"
        )
        return Trust("rough", why, ratio, spread, inits)
    return Trust("good", said, ratio, spread, inits)


def _direction(labels: NDArray[np.int64]) -> Array:
    """The most frequent class against the rest, with mean 0."""
    own = labels == np.bincount(labels).argmax()
    return own - own.mean()


def _squared_gradient(problem: Problem, x: NDArray[np.float32], along: Array, seed: int, member: int) -> float:
    """‖∇ mean(along · g)‖²."""
    model = build(problem.network, x, width=problem.width, seed=seed, member=member)
    with torch.enable_grad():
        rows = model(torch.from_numpy(x))
        ((rows[:, 1] - rows[:, 0]) * torch.from_numpy(along.astype(np.float32))).mean().backward()
    parameters = (p for module in trained(model, problem.network) for p in module.parameters())
    return sum(float(p.grad.double().square().sum()) for p in parameters if p.grad is not None)


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
        weights = [module.weight for module in trained(model, problem.network)]
        for which, targets in enumerate((torch.zeros_like(labels), labels)):
            pull = torch.nn.functional.one_hot(targets, classes).float()
            pull -= 1.0 / classes if which == 0 else pull.mean(0)
            with torch.enable_grad():
                found = torch.autograd.grad((model(torch.from_numpy(x)) * pull).sum(), weights)
            sums[which] += [float(g.abs().double().mean() / g.double().square().mean().sqrt()) for g in found]
    count = len(sums[0]) // inits
    means = [np.reshape(values, (inits, count)).mean(axis=0) for values in sums]
    return [(float(one), float(other)) for one, other in zip(*means, strict=True)]
