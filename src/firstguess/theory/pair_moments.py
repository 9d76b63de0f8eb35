"""How the overlaps of pairs of points hang together within a network: what the law of many classes needs.

The last hidden layer of a point is μ + g_a, with μ what all points have in common (|μ|² = e, the mean overlap) and g_a
of covariance Σ over the points; of unit vectors tr Σ = 1 − e. Then over distinct points

    E c_ab = e,   E c_ab c_ac = e² + μΣμ,   E c_ab c_cd = e²,   E c_ab² = e² + 2μΣμ + tr Σ²,
    E c_ab c_bc c_cd = e³ + 2e·μΣμ + μΣ²μ,   E c_ab c_bc c_ca = e³ + 3e·μΣμ + 3μΣ²μ + tr Σ³,

sums over pairs, paths and triangles of points, of which a handful has many.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from firstguess.base.gaussian import Array


class PairMoments(NamedTuple):
    """e; what pairs differ by: `spread` = tr Σ²/(tr Σ)², `third` = tr Σ³/(tr Σ)³ in units of its square; `along` = μΣμ.

    `spread` is one over how many directions points differ in; `third` is 1 where these are all alike, more where some
    have more than others.
    """

    e: float
    spread: float
    third: float
    along: float

    @classmethod
    def none(cls) -> PairMoments:
        return cls(0.0, 0.0, 1.0, 0.0)

    @classmethod
    def of(cls, rows: Array) -> PairMoments:
        """Of the averages of every network (`pair_moments`)."""
        e, square, near, far, path, triangle = (float(v) for v in rows.mean(axis=0))
        along = near - far
        spread = square - 2.0 * near + far
        own = 1.0 - e
        if spread <= 0.0 or own <= 0.0:
            return cls(e, 0.0, 1.0, 0.0)
        curved = path - e**3 - 2.0 * e * along  # μΣ²μ
        third = triangle - e**3 - 3.0 * e * along - 3.0 * curved
        return cls(e, spread / own**2, third * own / spread**2, along)


def pair_moments(c: Array) -> Array:
    """(networks, 6): of cosines c the averages of c_ab, c_ab², c_ab c_ac, c_ab c_cd, c_ab c_bc c_cd, c_ab c_bc c_ca."""
    n = c.shape[1]
    c = c * (1.0 - np.eye(n))
    row = c.sum(axis=2)
    squares = (c * c).sum(axis=2)
    one, two = row.sum(axis=1), squares.sum(axis=1)
    near = (row**2).sum(axis=1) - two
    far = one**2 - 2.0 * two - 4.0 * near
    triangle = np.einsum("rab,rba->r", c @ c, c)
    # all a-b-c-d with neighbours distinct, less those with a = c, b = d or a = d
    path = (
        np.einsum("ra,rab,rb->r", row, c, row) - 2.0 * (squares * row).sum(axis=1) + (c**3).sum(axis=(1, 2)) - triangle
    )
    pairs = n * (n - 1.0)
    threes = pairs * (n - 2.0)
    fours = threes * (n - 3.0)
    return np.stack([one / pairs, two / pairs, near / threes, far / fours, path / fours, triangle / threes], axis=1)
