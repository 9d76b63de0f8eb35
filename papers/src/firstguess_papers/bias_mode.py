"""The bias of any model in training, from one backward pass: the mode that all points share, followed by itself.

g = f₁ − f₀ of a network is m + s·z over the data. Gradient descent moves its mean by `m ← m − 2ηλ_b (E σ(m + s z) − ½)`
(theory.md (16)), with λ_b = ‖∇ m‖²/2 of this very network. Nothing is learned here: what is predicted is when the bias
goes, or where it overshoots (2κ/λ_b) and swings for ever (4κ/λ_b).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

import firstguess as fg
from firstguess_papers.judging import Array, Number, average
from firstguess_papers.library import BIASED, Curve
from firstguess_papers.running import Run

if TYPE_CHECKING:
    from firstguess.data import Data

GAP = (
    0.2  # of recall: classes whose recalls differ by more have parted; shares of 60 and 40 % in a network that guesses
)
_NODES, _MASSES = np.polynomial.hermite_e.hermegauss(41)


@dataclass(frozen=True, eq=False)
class BiasModes:
    """Of several untrained networks: the mean and spread of g over the data, and λ_b."""

    mean: Array
    spread: Array
    eigenvalue: Array

    @property
    def kappa(self) -> Array:
        """κ = √(1 + π s²/8)."""
        return np.sqrt(1.0 + math.pi * self.spread**2 / 8.0)

    @property
    def overshoot(self) -> Number:
        """2κ/λ_b, the learning rate from which on classes hand over to each other: mean ± standard error."""
        return average(2.0 * self.kappa / self.eigenvalue)

    def biased(self) -> BiasModes:
        """Those whose largest share is at least 0.9, as `start="biased"` keeps them."""
        kept = special.ndtr(np.abs(self.mean) / self.spread) >= BIASED
        return BiasModes(self.mean[kept], self.spread[kept], self.eigenvalue[kept])

    def time_constant(self, lr: float) -> float:
        """Steps in which a small bias falls by e: 2κ/(ηλ_b), at the average overshoot."""
        return self.overshoot.value / lr

    def means(self, lr: float, steps: Sequence[int] | NDArray[np.int64]) -> Array:
        """m at these steps, (networks, steps); one step of descent after the other."""
        m = np.abs(self.mean)
        found = np.empty((len(m), len(steps)))
        looks = {int(step): k for k, step in enumerate(steps)}
        for step in range(int(max(steps)) + 1):
            if step in looks:
                found[:, looks[step]] = m
            pull = special.expit(m[:, None] + self.spread[:, None] * _NODES) @ _MASSES / _MASSES.sum() - 0.5
            m = m - 2.0 * lr * self.eigenvalue * pull
        return found

    def recalls(self, lr: float, steps: NDArray[np.int64]) -> tuple[Curve, Curve]:
        """Of the class that is favoured at the start, and of the other: Φ(m/s) and the rest, as nothing is learned."""
        share = special.ndtr(self.means(lr, steps) / self.spread[:, None])
        return Curve(steps, share), Curve(steps, 1.0 - share)


def bias_modes(run: Run, make: Callable[[], Any], data: Data, *, name: str, draws: int, weight_var: float) -> BiasModes:
    """Of `draws` networks that a factory makes, as a piece: one forward and one backward pass each.

    Weights are Gaussian with variance weight_var/fan-in, biases 0: `init=(weight_var, 0)` of `fg.train`.
    """
    key = {"bias modes": name, "data": data.hash, "draws": draws, "weight_var": weight_var}
    piece = run.piece(key, lambda: _passes(make, data, run.seed, draws, weight_var), label=f"bias modes of {name}")
    return BiasModes(*(np.asarray(piece[part]) for part in ("mean", "spread", "eigenvalue")))


def _passes(make: Callable[[], Any], data: Data, seed: int, draws: int, weight_var: float) -> dict[str, Any]:
    import torch

    x = torch.from_numpy(np.array(data.x))
    found: list[tuple[float, float, float]] = []
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        for draw in range(draws):
            torch.manual_seed((seed << 20) + draw)
            model = make()
            _draw(model, weight_var)
            rows = model(x)
            g = rows[:, 1] - rows[:, 0]
            g.mean().backward()
            square = sum(float(p.grad.double().square().sum()) for p in model.parameters() if p.grad is not None)
            found.append((float(g.detach().mean()), float(g.detach().std()), square / 2.0))
    mean, spread, eigenvalue = np.array(found).T
    return {"mean": mean, "spread": spread, "eigenvalue": eigenvalue}


def _draw(model: Any, weight_var: float) -> None:
    from torch import nn

    for layer in model.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.normal_(layer.weight, std=math.sqrt(weight_var / layer.weight[0].numel()))
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def hand_overs(gaps: Array) -> Array:
    """How often each network passes from one class to the other: its gap of recalls from above GAP to below −GAP or
    back, however long in between. Rows are networks, columns steps; what comes after NaN (diverged) does not count.

    >>> hand_overs(np.array([[0.9, 0.1, -0.5, -0.1, -0.3, 0.4], [0.9, 0.5, 0.1, -0.1, 0.1, 0.0]])).tolist()
    [2.0, 0.0]
    """
    found = np.zeros(len(gaps))
    for i, row in enumerate(gaps):
        sides = [math.copysign(1.0, gap) for gap in row if abs(gap) > GAP]  # NaN is above nothing
        found[i] = sum(a != b for a, b in pairwise(sides))
    return found


def chosen(data: Data, counts: Sequence[int], *, skip: Sequence[int] | None = None, flat: bool = False) -> Data:
    """The first `counts[c]` points of every class c (after the first `skip[c]`), in their old order.

    >>> from firstguess.data import as_data
    >>> data = as_data((np.arange(12.0).reshape(6, 2), np.array([0, 1, 0, 1, 0, 1])))
    >>> chosen(data, (2, 1)).y.tolist(), chosen(data, (1, 1), skip=(2, 1)).x[:, 0].tolist()
    ([0, 1, 0], [6.0, 8.0])
    """
    from firstguess import InvalidInput

    assert data.y is not None
    rows: list[int] = []
    for label, count in enumerate(counts):
        first = 0 if skip is None else skip[label]
        own = np.flatnonzero(data.y == label)[first : first + count]
        if len(own) < count:
            raise InvalidInput(f"{count} points of class {label}", got=len(own), where=data.name, hint="more points")
        rows += own.tolist()
    kept = np.sort(np.array(rows))
    x = data.x[kept]
    return fg.data.as_data((x.reshape(len(x), -1) if flat else x, data.y[kept]))
