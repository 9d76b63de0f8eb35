"""The coordinate check: sizes of activations and gradients by layer, over widths and the first steps of training.

Sizes that stay the same as layers get wider, at initialization and after every step, are what maximal update
parameterization (μP) asks for. In the usual parameterization they do at initialization, where the size of a layer's
output is √q of theory.md §2; then steps of Adam let them grow with width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F

from firstguess.base import checks
from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.base.record import Record
from firstguess.data import as_data, load
from firstguess.data.streams import IsolatedRandomness
from firstguess.ensemble.member_module import build
from firstguess.ensemble.seeds import member_seeds
from firstguess.modules.optimizers import NAMED
from firstguess.modules.outputs import find_logits
from firstguess.modules.read.read import read
from firstguess.network.builders import as_network
from firstguess.network.network import Network
from firstguess.theory.predict import predict

FLAT = 0.1  # an exponent of width that counts as flat: 7 % per doubling


@dataclass(frozen=True, eq=False)
class Coordinates(Record):
    """Root mean squares by width, step and layer with weights, (widths, steps + 1, layers), averaged over `inits`.

    `gradients` are the loss's at the `outputs` of the layers. `exponents` (steps + 1, layers): outputs grow like width
    to this power. `predicted`: the size of outputs at initialization in wide layers, None where it is not known.
    """

    _also = ("verdict",)

    layers: tuple[str, ...]
    widths: tuple[int, ...]
    outputs: NDArray[np.float64]
    outputs_se: NDArray[np.float64]
    gradients: NDArray[np.float64]
    exponents: NDArray[np.float64]
    exponents_se: NDArray[np.float64]
    predicted: tuple[float, ...] | None
    optimizer: str
    lr: float
    inits: int

    @property
    def verdict(self) -> str:
        """The layer and step whose size depends on width most, where one clearly does."""
        clear = np.abs(self.exponents) - 3 * self.exponents_se > FLAT
        if not clear.any():
            return "sizes do not depend on width"
        sizes = np.where(clear, np.abs(self.exponents), 0)
        step, layer = (int(place[0]) for place in np.nonzero(sizes == sizes.max()))
        power = self.exponents[step, layer]
        way = "grows" if power > 0 else "shrinks"
        when = "at initialization" if step == 0 else f"after step {step}"
        return f"layer {self.layers[layer]} {way} with width {when}: like width^{power:.2f}"


def coordinates(
    what: Network | str | Callable[[int], nn.Module],
    data: object,
    *,
    widths: Sequence[int] = (64, 128, 256, 512),
    steps: int = 3,
    optimizer: str = "adam",
    lr: float = 1e-3,
    inits: int = 5,
    points: int = 128,
    seed: int = 0,
) -> Coordinates:
    """Train a few steps in several widths, and measure how large every layer's output and its gradient are.

    `what` is a description, or a function that takes a width and returns an nn.Module. All points are one batch; the
    loss is the cross-entropy with the data's labels, or with random ones where there are none.

    >>> c = coordinates("2 x [dense(weight_var=2) > relu] > dense", "blob:n=64,d=20", widths=(32, 64), steps=1)
    >>> c.layers, [round(size, 2) for size in c.predicted]
    (('0', '2', '4'), [1.42, 1.42, 1.01])
    """
    sizes = tuple(checks.count(width, 1, "width", "coordinates(widths)", "widths=(64, 128)") for width in widths)
    if len(set(sizes)) < 2:
        raise InvalidInput("at least two widths", got=list(sizes), where="coordinates(widths)", hint="widths=(64, 128)")
    steps = checks.count(steps, 0, "number of steps", "coordinates(steps)", "steps=3")
    inits = checks.count(inits, 2, "number of initializations", "coordinates(inits)", "inits=5")
    if optimizer not in ("adam", "sgd"):
        raise InvalidInput("'adam' or 'sgd'", got=repr(optimizer), where="coordinates(optimizer)")
    given = as_data(load(data) if isinstance(data, str) else data)
    given = given.subset(points, seed) if points < given.n else given
    x, classes = np.array(given.x, np.float32), max(2, given.classes or 2)
    y = np.random.default_rng(seed).integers(0, classes, len(x)) if given.y is None else np.array(given.y)
    network = None
    if isinstance(what, (str, Network)):
        network = Network(as_network(what, where="coordinates").layers, classes)
    make = partial(_made, network or what, x, seed)
    train = partial(_sizes, x=torch.as_tensor(x), y=torch.as_tensor(y).long(), kind=NAMED[optimizer], lr=lr)
    seen = np.array([[train(make(width, i), steps=steps) for i in range(inits)] for width in sizes])
    mean, error = seen.mean(axis=1), seen.std(axis=1, ddof=1) / np.sqrt(inits)  # seen: (widths, inits, …, layers, 2)
    centred = np.log(sizes) - np.mean(np.log(sizes))
    powers = np.einsum("w,wisl->isl", centred, np.log(np.maximum(seen[..., 0], 1e-300))) / np.sum(centred**2)
    names = tuple(name for name, _ in _leaves(make(sizes[0], 0)))
    return Coordinates(
        names, sizes, mean[..., 0], error[..., 0], mean[..., 1], powers.mean(axis=0),
        powers.std(axis=0, ddof=1) / np.sqrt(inits), _predicted(network, lambda: make(sizes[-1], 0), x, len(names)),
        optimizer, lr, inits,
    )  # fmt: skip


def _made(what: Any, x: NDArray[Any], seed: int, width: int, i: int) -> nn.Module:
    if isinstance(what, Network):
        return build(what, x, width=width, seed=seed, member=i)
    with IsolatedRandomness(int(member_seeds(seed, i, i + 1)[0])):
        try:
            model: Any = what(width)
        except TypeError as error:
            expected, hint = "a function that takes a width and returns an nn.Module", "def net(width): ..."
            raise InvalidInput(expected, got=str(error), where="coordinates", hint=hint) from error
    if not isinstance(model, nn.Module):
        raise InvalidInput("a function that returns an nn.Module", got=type(model).__name__, where="coordinates")
    return model


def _leaves(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The modules with weights, biases alone do not count."""
    return [
        (name or "the model", module)
        for name, module in model.named_modules()
        if not list(module.children()) and any(p.ndim > 1 for p in module.parameters(recurse=False))
    ]


def _sizes(
    model: nn.Module, *, x: torch.Tensor, y: torch.Tensor, steps: int, kind: Any, lr: float
) -> NDArray[np.float64]:
    """Sizes of outputs and gradients, (steps + 1, layers, 2), of one model in its first steps."""
    leaves = _leaves(model)
    if not leaves:
        raise InvalidInput("a model with weights", got="none", where="coordinates")
    updates = kind(model.parameters(), lr=lr)
    sizes = np.full((steps + 1, len(leaves), 2), np.nan)
    kept: dict[nn.Module, torch.Tensor] = {}

    def keep(module: nn.Module, args: Any, output: Any) -> None:
        if isinstance(output, torch.Tensor) and output.requires_grad:
            output.retain_grad()
            kept[module] = output

    for _, module in leaves:
        module.register_forward_hook(keep)  # of a model that is made for this: nothing to restore
    for k in range(steps + 1):
        logits = find_logits(model(x), None)
        if logits.ndim != 2 or logits.shape[1] <= int(y.max()):
            got = f"shape {tuple(logits.shape)}"
            raise InvalidInput(f"logits ({len(x)}, {int(y.max()) + 1} or more)", got=got, where="coordinates")
        updates.zero_grad()
        F.cross_entropy(logits, y).backward()
        for j, (_, module) in enumerate(leaves):
            if module in kept and kept[module].grad is not None:
                pair = (kept[module].detach(), kept[module].grad)
                sizes[k, j] = [values.double().square().mean().sqrt().item() for values in pair if values is not None]
        updates.step()
    return sizes


def _predicted(
    network: Network | None, make: Callable[[], nn.Module], x: NDArray[Any], layers: int
) -> tuple[float, ...] | None:
    """√q of the layers with weights, on these points; None where a model cannot be read."""
    try:
        known = read(make(), x).network if network is None else network
        if known is None:
            return None
        found = tuple(float(np.exp(r.log_q / 2)) for r in predict(known, data=x).layers if r.weights)
    except FirstguessError:
        return None
    return found if len(found) == layers else None
