"""How fast networks absorb bias and learn, one number per network; the bias mode of any model; points of data sets.

A network that diverged (NaN or Inf) counts as one that guesses a single class for ever: never absorbed, accuracy
1/classes, largest share 1. Otherwise an arm that breaks would look better, or undecided, for having lost its worst.

The bias mode is followed from one backward pass: g = f₁ − f₀ of a network is m + s·z over the data, and gradient
descent moves its mean by `m ← m − 2ηλ_b (E σ(m + s z) − ½)` (theory.md (16)), with λ_b = ‖∇ m‖²/2 of this very network.
Nothing is learned here: what is predicted is when the bias goes, or where it overshoots (2κ/λ_b) and swings for ever
(4κ/λ_b).
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
from firstguess_papers.judging import Array, Check, Number, Truth, above, average
from firstguess_papers.library import BIASED, Curve
from firstguess_papers.running import Run
from firstguess_papers.training_pieces import MEMBERS, Arm

if TYPE_CHECKING:
    from firstguess.data import Data

SAME_SCORE = 0.02  # accuracies that differ by less are the same


def few_looks(steps: int) -> list[int]:
    """Steps 0 to 3, then five a decade, and the last: a look at all points takes as long as many steps.

    >>> few_looks(100)
    [0, 1, 2, 3, 4, 6, 10, 16, 25, 40, 63, 100]
    """
    later = (round(10 ** (k / 5)) for k in range(3, 40))
    return sorted({0, 1, 2, 3, steps, *(step for step in later if step < steps)})


def with_held_out(run: Run, spec: str, points: int, held: int) -> tuple[Data, Data]:
    """Training points and others of the same data, standardized together, in an order of their own."""
    whole = run.data(spec, points=points + held)
    order = np.random.default_rng([run.seed, 0x7E57]).permutation(whole.n)
    return part_of(whole, order[:points]), part_of(whole, order[points:])


def part_of(data: Data, rows: NDArray[np.int64]) -> Data:
    """Some of the points, with their labels."""
    from firstguess.data import Data

    assert data.y is not None
    return Data(data.x[rows], data.y[rows], name=f"{data.name}, {len(rows)} of them", class_names=data.class_names)


def balanced(data: Data, points: int) -> Data:
    """The first points of every class, as many of each: no class is favoured by the labels."""
    assert data.y is not None
    classes = int(data.y.max()) + 1
    rows = np.concatenate([np.flatnonzero(data.y == c)[: points // classes] for c in range(classes)])
    return part_of(data, np.sort(rows))


def settled(arm: Arm, level: float | None = None) -> Array:
    """Steps from which on the largest share of each network stays at or below the level until the end; inf: never.

    Not the first time that it is there: where classes hand over to each other the share passes the level on its way
    from one to the other. Linear between the look before and the look at which it is there for good.
    """
    limit = arm.level if level is None else level
    steps = arm.steps.astype(float)
    found = np.full(arm.networks, math.inf)
    for i, row in enumerate(arm.draws["largest"]):
        out = np.flatnonzero(~(row <= limit))  # NaN is out, too
        if not len(out):
            found[i] = 0.0
        elif out[-1] + 1 < len(row):
            k = int(out[-1])
            part = (row[k] - limit) / (row[k] - row[k + 1]) if math.isfinite(row[k]) else 1.0
            found[i] = steps[k] + part * (steps[k + 1] - steps[k])
    return found


def log_steps(steps: Array, last: int) -> Array:
    """log10(1 + steps), those that never end at the last step: a mean of these is at least so large."""
    return np.log10(1.0 + np.minimum(steps, float(last)))


def scores(arm: Arm, what: str, step: int | None = None) -> Array:
    """A share of every network at a step (default: the last); of a network that diverged, that of a single class."""
    values = arm.values(what, arm.last if step is None else step)
    return np.where(np.isfinite(values), values, _lost(arm, what))


def over_looks(arm: Arm, what: str) -> Array:
    """The mean of a share over the looks from step 1 on, which are even on a logarithmic axis: speed and height."""
    draws = arm.curve(what).draws[:, arm.steps >= 1]
    return np.where(np.isfinite(draws), draws, _lost(arm, what)).mean(axis=1)


def _lost(arm: Arm, what: str) -> float:
    return 1.0 if what.endswith("largest") else 1.0 / len(arm.classes)


def number(values: Array) -> Number:
    """Mean ± standard error over networks; fewer than ten decide nothing (NaN)."""
    return average(values) if len(values) >= MEMBERS else Number(float(values.mean()), math.nan)


def apart(one: Array, other: Array) -> Number:
    """The mean difference, network by network: arms have the same members, drawn from the same numbers."""
    return number(one - other)


def more(one: Array, other: Array, *, room: float) -> Truth:
    """Whether one arm has more than the other, by 4 standard errors: a difference of less than `room` is none.

    >>> more(np.linspace(0.5, 0.6, 20), np.linspace(0.3, 0.4, 20), room=0.02)
    True
    >>> more(np.linspace(0.5, 0.501, 20), np.full(20, 0.5), room=0.02)
    False
    """
    difference = apart(one, other)
    if abs(difference.value) < room and 2 * difference.error <= room:
        return False
    return above(difference, 0.0)


def less(one: Array, other: Array, *, room: float) -> Truth:
    """The mirror of `more`."""
    return more(other, one, room=room)


def exceeds(name: str, one: Array, other: Array, *, room: float, than: str, below: bool = False) -> Check:
    """`more`, or `less` (`below`), as a named check, network by network."""
    truth = less(one, other, room=room) if below else more(one, other, room=room)
    asked = f"{'below' if below else 'above'} {than} (less than {room:g} is no difference)"
    return Check(name, asked, truth, f"{number(one)} against {number(other)}")


def typical(logs: Number) -> str:
    """A number of log10(1 + steps) as steps, the error as a factor.

    >>> typical(Number(2.0, 0.1))
    '99 steps (×/÷ 1.26)'
    """
    steps = 10**logs.value - 1
    said = f"{steps:.0f}" if steps >= 10 else f"{steps:.1f}"
    return f"{said} steps" + (f" (×/÷ {10**logs.error:.2f})" if math.isfinite(logs.error) and logs.error > 0 else "")


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
