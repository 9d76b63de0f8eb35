"""Third and fourth moments of a module's nodes over the data, batch by batch: for `fg.measure(…, moments=4)`."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from firstguess.ensemble.shapes import member_shape

Array: TypeAlias = NDArray[np.float64]

_BLOCK = 1 << 20  # numbers that are wide at once: 8 MB


def central_sums(x: torch.Tensor, keep: torch.Tensor | None = None) -> torch.Tensor:
    """(points, nodes) → (5, nodes) in float64: count, mean, and Σ(x − mean)^r for r = 2, 3, 4.

    `keep`, of the same shape: which entries count. In operations that `torch.func.vmap` knows.
    """
    step = max(1, _BLOCK // max(1, x.shape[0]))
    parts: list[torch.Tensor] = []
    for first in range(0, x.shape[1], step):
        wide = x[:, first : first + step].detach()
        wide = wide.cpu().double() if wide.device.type == "mps" else wide.double()  # which has no float64
        if keep is None:
            count = torch.full_like(wide[0], float(x.shape[0]))
            rest = wide - (mean := wide.mean(0))
        else:
            kept = keep[:, first : first + step]
            count = kept.sum(0).double()
            mean = torch.where(kept, wide, 0.0).sum(0) / count.clamp_min(1.0)
            rest = torch.where(kept, wide - mean, 0.0)
        square = rest * rest
        parts.append(torch.stack([count, mean, square.sum(0), (square * rest).sum(0), (square * square).sum(0)]))
    return torch.cat(parts, 1)


class Shape:
    """One layer of one member, over the batches so far."""

    def __init__(self) -> None:
        self.sums: Array | None = None  # (5, nodes)

    def add(self, new: Array) -> None:
        """Pébay's (2008) update of central moments by those of another batch; other numbers of nodes are left out."""
        if self.sums is None:
            self.sums = new
        elif self.sums.shape == new.shape:
            self.sums = _merged(self.sums, new)

    def stats(self) -> Array:
        """(4,) as in `ensemble/shapes.py`; NaN if the layer was not called."""
        if self.sums is None:
            return np.full(4, np.nan)
        count, mean, *powers = self.sums[:, self.sums[0] > 0]
        return member_shape(mean, [power / count for power in powers], count)


def _merged(a: Array, b: Array) -> Array:
    (na, ma, a2, a3, a4), (nb, mb, b2, b3, b4) = a, b
    n = np.maximum(na + nb, 1.0)
    d = mb - ma
    u, v = na / n, nb / n
    second = a2 + b2 + d**2 * na * v
    third = a3 + b3 + d**3 * na * v * (u - v) + 3 * d * (u * b2 - v * a2)
    fourth = a4 + b4 + d**4 * na * v * (u * u - u * v + v * v)
    fourth += 6 * d**2 * (u * u * b2 + v * v * a2) + 4 * d * (u * b3 - v * a3)
    return np.stack([na + nb, ma + d * v, second, third, fourth])
