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
from torch import Tensor, nn

from firstguess.base.checks import known_options
from firstguess.base.errors import FirstguessError, NotCovered
from firstguess.base.gaussian import Array
from firstguess.ensemble.member_module import build
from firstguess.network.layer import Mix, text
from firstguess.network.network import Network
from firstguess.network.walk import every
from firstguess.theory.training.flow import Loss
from firstguess.theory.training.problem import Optimizer, Problem, Schedule, prepare
from firstguess.theory.training.runs import Adam, PredictedTraining, Start, Trust, follow
from firstguess.theory.training.stepwise import WeightSample, layer_weights

# Weights drawn at random from networks of a description, with the derivatives of all logits by them.

_STREAM = 0x5D8
_CHUNK = 2e7  # numbers at once, in products over positions


def trained(model: nn.Module, network: Network) -> list[nn.Linear | nn.Conv2d]:
    """The modules with weights that are trained, in the order of the description."""
    modules = [m for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    layers = [layer for layer in every(network.layers) if layer.draws]
    return [m for m, layer in zip(modules, layers, strict=True) if not getattr(layer, "frozen", False)]


def weight_sample(
    network: Network, x: NDArray[np.float32], *, width: int, columns: int, most: int, seed: int, member: int
) -> WeightSample:
    """At most `most` weights of every trained layer of one network.

    `columns` 1 is the difference of two classes' logits. Norms over the data are refused: there a point's logits depend
    on all points, and one backward pass does not tell them apart.
    """
    for layer in every(network.layers):
        if Mix.POINTS in layer.mixes:
            raise NotCovered("a network without norms over the data, for Adam weight by weight", got=text(layer))
    model = build(network, x, width=width, seed=seed, member=member)
    modules = trained(model, network)
    inputs, outputs = _followed(model, modules, torch.from_numpy(x))
    rows = outputs.pop()
    wanted = [rows[:, 1] - rows[:, 0]] if columns == 1 else list(rows.unbind(1))
    rng = np.random.default_rng([seed, _STREAM, member])
    # A point's logit depends on that point alone, so the gradient of the sum holds every point's own.
    backward = [torch.autograd.grad(logits.sum(), outputs, retain_graph=True) for logits in wanted]
    parts: list[NDArray[np.float32]] = []
    counts: list[NDArray[np.float64]] = []
    for index, (module, h) in enumerate(zip(modules, inputs, strict=True)):
        deltas = [found[index] for found in backward]
        units, places, stands_for = _choose(rng, module, h, deltas, most)
        rows = [_derivatives(module, h, delta, units, places) for delta in deltas]
        parts.append(torch.stack(rows, dim=1).reshape(len(x) * columns, -1).numpy())
        counts.append(stands_for)
    return WeightSample(np.concatenate(parts, axis=1), tuple(counts))


def _choose(
    rng: np.random.Generator, module: nn.Linear | nn.Conv2d, h: Tensor, deltas: list[Tensor], most: int
) -> tuple[Tensor, Tensor, NDArray[np.float64]]:
    """Weights by their unit and place in it, and how many each stands for; a bias is the weight of a 1 that comes in.

    Weights are drawn by how much they move logits: with a chance proportional to the root mean square of what comes in
    times that of what goes back. Each of the two is drawn systematically, so that every unit has its due.
    """
    fan_in = module.weight[0].numel()
    places = fan_in + (module.bias is not None)
    weights = len(module.weight) * places
    if weights <= most:
        which = torch.arange(weights)
        return which // places, which % places, np.ones(weights)
    square = h.square().mean(dim=0)
    if isinstance(module, nn.Conv2d):
        square = square.flatten(1).mean(dim=1).repeat_interleave(fan_in // len(square))
    square = nn.functional.pad(square, (0, places - fan_in), value=1.0)
    squares = [delta.square().flatten(2).sum(2) if delta.ndim > 2 else delta.square() for delta in deltas]
    back = torch.stack([one.mean(0) for one in squares]).sum(0)
    (at, due), (units, own) = (_systematic(rng, np.sqrt(s.double().numpy()), most) for s in (square, back))
    return torch.from_numpy(units), torch.from_numpy(at), 1.0 / (most * due * own)


def _systematic(
    rng: np.random.Generator, size: NDArray[np.float64], count: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Numbers drawn in proportion to their size, in random order, and the chance of each."""
    chance = size / size.sum() if size.sum() > 0 else np.full(len(size), 1.0 / len(size))
    edges = np.cumsum(chance)
    at = (rng.permutation(count) + rng.random()) / count
    found = np.minimum(np.searchsorted(edges / edges[-1], at), len(size) - 1)
    return found, chance[found]


def _followed(model: nn.Module, modules: list[Any], x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """What goes into each module and what comes out; after them the logits."""
    inputs: dict[int, Tensor] = {}
    outputs: dict[int, Tensor] = {}

    def hook(module: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> Tensor:
        inputs[id(module)] = given[0].detach()
        outputs[id(module)] = out if out.requires_grad else out.requires_grad_()
        return outputs[id(module)]

    for module in modules:  # of a model that is made for this: nothing to restore
        module.register_forward_hook(hook)
    with torch.enable_grad():
        rows = model(x)
    return [inputs[id(m)] for m in modules], [*(outputs[id(m)] for m in modules), rows]


def _derivatives(module: nn.Linear | nn.Conv2d, h: Tensor, delta: Tensor, units: Tensor, places: Tensor) -> Tensor:
    """(points, weights): of one logit by these weights."""
    if isinstance(module, nn.Linear):
        return nn.functional.pad(h, (0, 1), value=1.0)[:, places] * delta[:, units]
    conv: Any = module
    found: list[Tensor] = []
    step = max(1, int(_CHUNK / (len(units) * delta[0, 0].numel())))
    for i in range(0, len(h), step):
        patches = nn.functional.unfold(h[i : i + step], conv.kernel_size, padding=conv.padding, stride=conv.stride)
        patches = nn.functional.pad(patches, (0, 0, 0, 1), value=1.0)
        found.append(torch.einsum("asp,asp->as", patches[:, places], delta[i : i + step].flatten(2)[:, units]))
    return torch.cat(found)


_INITS = 10
_GOOD, _FAIR = 0.2, 0.5  # relative spread of ‖∇ mean g‖² over initializations: theory.md §7
# Points for every sampled weight of a layer up to which Adam's prediction is right: what a sum over m weights has of
# luck, m^-½, is as large as what one of n points does to another, n^-½, at n = m. With blobs of 1000 dimensions and
# 1000 weights the accuracy was 0.03 low at 400 points and 0.14 at 2000.
_PER_WEIGHT = 0.6
_SAMPLES, _MOST, _FEWEST = 4, 1000, 100  # networks whose weights Adam's prediction samples, weights of a layer
_TRAINED = 60  # networks whose real training shows as much as a prediction of Adam's
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
        steps: How many, or which to look at (default: 0–7, then ten per decade).
        optimizer: "gd" (full batches), "sgd" (mini-batches of `batch`), "adam" (with or without `batch`).
        batch: Size of mini-batches.
        loss: "cross-entropy", or "squared": ½ Σ (f − one-hot)².
        weight_decay: As torch.optim.SGD's, with "gd" or "sgd", of scale-free networks without biases.
        start: "any"; "even" (or "neutral"): the largest share is at most 1.1 of an even one; "biased": at least 0.9; or
            logits (networks, points, classes) of your own networks on the training points, then on held-out ones.
        draws: Networks.
        width: Width of layers that name none: the tangent kernel grows with it.
        level: Level of the largest share, for `absorption`: by default a fifth of the way from the labels' largest
            share to 1, which is 0.6 of two even classes.
        seed: Random seed of starts, the order of the data, and the initializations that `trust` looks at.
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
    instead = _quicker(problem, len(t.largest.draws)) if optimizer == "adam" else ""
    return replace(t, trust=found, seconds=time.perf_counter() - started, instead=instead)


def _quicker(problem: Problem, draws: int) -> str:
    """What to say where training networks takes less time than following Adam on a sample of their weights.

    By products of a point: a network's step has three of every weight, a prediction's two of every sampled weight and
    logit of a drawn network.
    """
    weights = list(layer_weights(problem.network, problem.x, problem.width))
    followed = 2.0 * draws * _columns(problem) * sum(min(size, _sampled(problem)) for size in weights)
    if mixes_points(problem.network) or 3.0 * _TRAINED * sum(weights) >= followed:
        return ""
    return f"fg.train(…, inits={_TRAINED}) trains that many networks of this width in less time than this took"


def measured(problem: Problem, *, seed: int = 0) -> Adam:
    """What Adam's prediction wants of a few networks: some weights, with the derivatives of all logits by them.

    After a norm over the data, where these are not to be had, how evenly gradients are spread over each layer.
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
        why = f"{said}, but after a norm over the data Adam is known by averages over layers only"
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
    data (inputs with many zeros, units that are silent on all points) more than on the network.
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
