"""Whether a weight looks trained: singular values that no draw of independent entries has.

Of independent entries the largest singular value stays at the Marchenko-Pastur edge σ(√m + √n), within Tracy-Widom
fluctuations of about ½(m^-½ + n^-½)^⅓·σ. Training adds directions that many rows share, and they stand out of it.
Rows and columns are brought to one size and their means taken off first, so that neither scale, nor blocks of different
scale (a fused projection of q, k and v), nor a law with a mean, nor rows of zeros (padding) count. The edge itself is
that of the same entries with random signs, which keeps whatever law, zeros and outliers they have.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

# In standard deviations of Tracy and Widom's law, whose tail is exp(−⅔s^1.5): below 1e-9 a weight, 1e-6 a model of a
# thousand. Of 12 000 fresh weights of 30 laws none was above 5, but for copied rows, which are taken once.
TRAINED = 8.0
_SCREEN = 4.0  # beyond the edge of equal variances, from where on random signs are asked
_SHORT, _LONG = 256, 1024  # rows and columns that are looked at, at even distances
_LEAST = 8  # rows and columns: fewer have no power
_SIGNS = 4  # draws of random signs
_SD = 1.27  # of Tracy and Widom's law for real entries


def has_power(value: torch.Tensor) -> bool:
    """Whether training could be seen at all: a matrix of at least 8 rows and columns, in some view."""
    return value.is_floating_point() and any(min(view.shape) >= _LEAST for view in _views(value))


def score(value: torch.Tensor) -> float:
    """How far the largest singular value is beyond what independent entries give, in standard deviations.

    Of a kernel also along its inputs and along its positions. 0 where there is no power (`has_power`).

    >>> g = torch.Generator().manual_seed(0)
    >>> w = torch.randn(100, 300, generator=g)
    >>> score(w) < 4, score(torch.cat([w, 10 * w.flip(1)])) < 4, score(w + 0.2 * w[:, :1] * w[:1]) > TRAINED
    (True, True, True)
    """
    if not value.is_floating_point():
        return 0.0
    generator = torch.Generator().manual_seed(0)
    return max((_score(view, generator) for view in _views(value.detach())), default=0.0)


def _views(value: torch.Tensor) -> Iterator[torch.Tensor]:
    """The matrices that a weight (units, inputs, positions …) is, one for each axis."""
    if value.ndim < 2 or value.numel() == 0:
        return
    yield value.flatten(1)
    if value.ndim > 2:
        yield value.transpose(0, 1).flatten(1)
        yield value.flatten(0, 1).flatten(1)


def _score(matrix: torch.Tensor, generator: torch.Generator) -> float:
    found = _against_signs(_part(matrix), generator)
    if found > TRAINED:  # rows or columns that were copied when they were drawn (ICNR, shared heads) are one draw
        for axis in (0, 1):
            matrix = _without_copies(matrix, axis)
        found = _against_signs(_part(matrix), generator)
    return found


def _against_signs(w: torch.Tensor, generator: torch.Generator) -> float:
    if not bool(torch.isfinite(w).all()):
        return 0.0
    w = _levelled(w)
    rows, columns = w.shape
    if min(rows, columns) < _LEAST:
        return 0.0
    known = (w != 0).to(w.dtype)
    centred = _centred(w, known)
    entries = centred * math.sqrt(rows * columns / ((rows - 1) * (columns - 1)))  # what centring took
    squares = entries.square()
    size = math.sqrt(float(squares.mean()))
    if size == 0.0:
        return 0.0
    heavy = math.sqrt(max(1.0, float(squares.square().mean()) / (3.0 * size**4)))  # outliers: fewer that count
    unit = 0.5 * _SD * (rows**-0.5 + columns**-0.5) ** (1 / 3) * size * heavy
    own = _largest(centred)
    if own < size * (math.sqrt(rows) + math.sqrt(columns)) + _SCREEN * unit:
        return 0.0
    edges = [
        _largest(_centred(entries * (2.0 * torch.randint(0, 2, w.shape, generator=generator) - 1.0), known))
        for _ in range(_SIGNS)
    ]
    return (own - sum(edges) / _SIGNS) / unit


def _part(matrix: torch.Tensor) -> torch.Tensor:
    """At most 256 × 1024 entries, at even distances, with the short side first."""
    matrix = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    for axis, most in enumerate((_SHORT, _LONG)):
        size = matrix.shape[axis]
        if size > most:
            chosen = torch.linspace(0, size - 1, most, device=matrix.device).round().long()
            matrix = matrix.index_select(axis, chosen)
    return matrix.double().cpu()


def _levelled(w: torch.Tensor) -> torch.Tensor:
    """Rows and columns of one standard deviation, of the entries that are not 0; without those that have none."""
    for axis in (1, 0):
        low, high = w.amin(axis), w.amax(axis)
        w = w.index_select(1 - axis, (high > low).nonzero().flatten())
        if w.numel() == 0:
            return w
    for axis in (1, 0, 1, 0):
        if w.numel() == 0:
            return w
        known = (w != 0).to(w.dtype)
        count = known.sum(axis, keepdim=True).clamp_min(1.0)
        mean = w.sum(axis, keepdim=True) / count
        sd = (((w - mean) * known).square().sum(axis, keepdim=True) / count).sqrt()
        # Else too few entries for a mean and a size, or rounding, of a row that is one constant.
        varies = ((count >= _LEAST) & (sd > 1e-6 * mean.abs())).flatten()
        w = (w / sd.clamp_min(1e-300)).index_select(1 - axis, varies.nonzero().flatten())
    return w


def _centred(w: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
    for axis in (1, 0):
        w = (w - w.sum(axis, keepdim=True) / known.sum(axis, keepdim=True).clamp_min(1.0)) * known
    return w


def _largest(w: torch.Tensor) -> float:
    w = w if w.shape[0] <= w.shape[1] else w.T
    return math.sqrt(max(float(torch.linalg.eigvalsh(w @ w.T)[-1]), 0.0))


def _without_copies(matrix: torch.Tensor, axis: int) -> torch.Tensor:
    """The first of all rows (axis 0) or columns (1) that are equal, told by their product with random numbers."""
    across = matrix if axis == 0 else matrix.T
    mark = torch.randn(across.shape[1], generator=torch.Generator().manual_seed(1)).to(across)
    products = (across * mark).sum(1)
    ordered, order = torch.sort(products, stable=True)
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return across[order[first].sort().values] if axis == 0 else across[order[first].sort().values].T
