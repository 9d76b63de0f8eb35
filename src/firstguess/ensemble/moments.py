"""What is read off tensors: unit means and variances over the data, and guesses."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firstguess.base.statistics import settle
from firstguess.network.tensors import Scratch

# A unit whose standard deviation is below this share of its mean is constant to float32.
_CONSTANT = 4.0 * 2.0**-23


def is_image(x: Tensor) -> bool:
    """Which of the two layouts a tensor has."""
    return x.dim() == 5


class NodeMoments:
    """Mean and variance of every unit over the data, chunk by chunk: sums in float32 about a pivot, then float64.

    The pivot (the unit's mean in the first chunk) keeps digits where γ is large: Σx² − n·m² would lose them. Sum and
    vector_norm, because var_mean is 25–70 times slower on CPU (performance.md). With `order` 4 also third and fourth
    moments, of differences in units of their own root mean square: fourth powers of 1e10 are not in float32.
    """

    def __init__(self, order: int = 2) -> None:
        self.order = order
        self.powers: list[tuple[Tensor, Tensor]] = []  # Σ(x − pivot)³ and Σ(x − pivot)⁴
        self.points = 0
        self.dim = 2
        self.pivot: Tensor | None = None
        self.sums: list[tuple[Tensor, Tensor]] = []
        self.terms: tuple[Tensor, ...] | None = None  # what the next layer makes of them
        self._done: tuple[Tensor, Tensor] | None = None

    def add(self, x: Tensor, scratch: Scratch) -> None:
        """Take in a chunk: (inits, units, points) or (points, inits, channels, height, width)."""
        if is_image(x):
            x, self.dim = x.view(*x.shape[:2], -1), 0
        dim = self.dim
        if self.pivot is None:
            self.pivot = x.sum(dim, keepdim=True).div_(x.shape[dim])
        difference = torch.sub(x, self.pivot, out=scratch(x))
        self.sums.append((difference.sum(dim), torch.linalg.vector_norm(difference, dim=dim)))
        if self.order == 4:
            self.powers.append(_powers(difference, self.sums[-1][1], dim))
        self.points += x.shape[dim]

    def result(self) -> tuple[Tensor, Tensor]:
        """Means and population variances, (inits, units) in float64."""
        if self._done is not None:
            return self._done
        assert self.pivot is not None
        pivot = self.pivot.squeeze(self.dim)
        total = torch.stack([s for s, _ in self.sums]).double().sum(0) / self.points
        square = torch.stack([q for _, q in self.sums]).double().square().sum(0) / self.points
        self._done = pivot.double() + total, (square - total.square()).clamp_min_(0.0)
        return self._done

    def shape(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Means, and second, third and fourth central moments, (inits, units) in float64."""
        assert self.pivot is not None
        mean, variance = self.result()
        off = mean - self.pivot.squeeze(self.dim).double()
        square = variance + off.square()
        third, fourth = (torch.stack(part).sum(0) / self.points for part in zip(*self.powers, strict=True))
        return (
            mean,
            variance,
            third - 3 * off * square + 2 * off**3,
            fourth - 4 * off * third + 6 * off.square() * square - 3 * off**4,
        )


def _powers(difference: Tensor, norm: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    scale = (norm / difference.shape[dim] ** 0.5).unsqueeze(dim)
    unit = difference / scale.clamp_min(torch.finfo(scale.dtype).tiny)
    square = unit * unit
    wide = scale.squeeze(dim).double()
    return unit.mul_(square).sum(dim).double() * wide**3, square.square_().sum(dim).double() * wide**4


def statistics(mean: Tensor, variance: Tensor, points: int) -> Tensor:
    """(inits, 4): MEAN, BETWEEN, SPREAD and DEAD of `Members` from unit means and population variances."""
    spread = variance.mean(1) * (points / (points - 1) if points > 1 else np.nan)
    between = mean.var(1, correction=0) - spread / points
    dead = (variance <= (_CONSTANT * mean).square()).double().mean(1)
    return torch.stack([mean.mean(1), between, spread, dead], 1)


class GuessCounts:
    """Counts of the largest logit, chunk by chunk; ties are kept aside and broken at the end, in order of points."""

    def __init__(self, inits: int, classes: int) -> None:
        self.counts = torch.zeros(inits, classes, dtype=torch.float64)
        self.lost = torch.zeros(inits, dtype=torch.bool)  # a logit that is not a number
        self.tied: dict[int, list[tuple[int, NDArray[np.bool_]]]] = {}

    def add(self, logits: Tensor, first: int) -> None:
        """Take in logits (inits, classes, points) of the points from `first` on.

        The maximum and comparisons with it: 9 times faster than arg-max and one-hot (performance.md).
        """
        points = logits.shape[2]
        largest = logits.amax(1, keepdim=True)
        equal = logits == largest
        counts = equal.sum(2)
        self.counts += counts
        shared = counts.sum(1)
        self.lost |= shared < points  # NaN is equal to nothing
        for i in torch.nonzero(shared > points).flatten().tolist():
            several = equal[i].sum(0) > 1
            self.counts[i] -= equal[i][:, several].sum(1)
            self.tied.setdefault(i, []).append((first, equal[i][:, several].numpy()))

    def ties(self, i: int) -> int:
        """How many points of init i had several largest logits."""
        return sum(mask.shape[1] for _, mask in self.tied.get(i, ()))

    def settle(self, i: int, stream: np.random.Generator) -> None:
        """Break the ties of init i at random."""
        for _, mask in sorted(self.tied.get(i, ()), key=lambda part: part[0]):
            settle(mask, stream)
            self.counts[i] += torch.from_numpy(mask.sum(1))
