"""The logits of one network over the data: where the cloud of points is, and how far from the boundary.

Bias, seen: over the data the logits of one network are a cloud around the class centers. Arg-max cuts it along fixed
boundaries (f_i = f_j), so a cloud whose center is far from them falls to one side. For two classes the margin f₁ − f₀
is N(Δμ, 2σ_y²) over the data, and the favoured class gets Φ(|Δμ|/√(2σ_y²)) of it: theory.md §1, (6); IGB §3, Figs 3, 4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from firstguess.base import checks
from firstguess.base.errors import InvalidInput
from firstguess.base.record import Record, Shown
from firstguess.base.statistics import FloatArray, guesses
from firstguess.base.text import page

_TIES = 0x7135


@dataclass(frozen=True, eq=False, repr=False)
class Logits(Record, Shown):
    """One network's logits, (points, classes), and what they say about its guesses.

    `member` is the network's place in its ensemble. All numbers are of this network on these data: they have no error.

    >>> flat = Logits([[0.0, 2.0], [1.0, 2.5], [0.5, 1.0], [1.0, 0.0]])
    >>> flat.favoured, flat.shares.tolist(), flat.margin.tolist()
    (1, [0.25, 0.75], [2.0, 1.5, 0.5, -1.0])
    >>> print(f"{flat.offset:.2f} from the boundary, {flat.distance:.2f} spreads of the cloud")
    0.75 from the boundary, 0.57 spreads of the cloud
    """

    _also = (
        "points", "classes", "favoured", "shares", "centers", "spread", "offset", "margin_spread", "distance",
        "gaussian_share",
    )  # fmt: skip
    _apart = ("values",)

    values: FloatArray
    member: int = 0

    def __init__(self, values: ArrayLike, member: int = 0) -> None:
        given: Any = values
        array = np.asarray(given.detach().cpu() if hasattr(given, "detach") else given, dtype=np.float64)
        if array.ndim == 1:  # one logit, decided at 0
            array = np.stack([-array / 2, array / 2], axis=1)
        if array.ndim != 2 or array.shape[0] < 2 or array.shape[1] < 2:
            expected = "logits of shape (points, classes), at least 2 of both"
            raise InvalidInput(expected, got=f"shape {array.shape}", where="Logits")
        if not np.isfinite(array).all():
            raise InvalidInput("finite logits", got="NaN or Inf", where="Logits")
        array = array.copy()
        array.flags.writeable = False
        object.__setattr__(self, "values", array)
        object.__setattr__(self, "member", member)

    @property
    def points(self) -> int:
        """The number of data points."""
        return self.values.shape[0]

    @property
    def classes(self) -> int:
        """The number of classes."""
        return self.values.shape[1]

    @property
    def guesses(self) -> NDArray[np.int64]:
        """The class of each point, (points,); of classes that share the largest logit one, at random."""
        return guesses(self.values, np.random.default_rng([self.member, _TIES])).astype(np.int64)

    @property
    def shares(self) -> FloatArray:
        """The share of the points in each class, (classes,)."""
        return np.bincount(self.guesses, minlength=self.classes) / self.points

    @property
    def favoured(self) -> int:
        """The class with the largest share."""
        return int(self.shares.argmax())

    @property
    def rival(self) -> int:
        """The class that comes next: the largest share of the others or, where they get nothing, the highest center."""
        others = [c for c in range(self.classes) if c != self.favoured]
        return max(others, key=lambda c: (self.shares[c], self.centers[c]))

    @property
    def centers(self) -> FloatArray:
        """Each class's mean logit over the data, μ, (classes,)."""
        return self.values.mean(axis=0)

    @property
    def spread(self) -> FloatArray:
        """Each class's standard deviation over the data, σ_y, (classes,)."""
        return self.values.std(axis=0, ddof=1)

    @property
    def margin(self) -> FloatArray:
        """The favoured class's logit minus the largest other one, (points,): positive where that class is guessed."""
        return self.margin_of(self.favoured)

    def margin_of(self, which: int) -> FloatArray:
        """Another class's margin, its logit minus the largest other one, (points,)."""
        expected = f"a class from 0 to {self.classes - 1}"
        checks.within(which, expected, "margin_of", high=self.classes, closed=True)
        return self.values[:, which] - np.delete(self.values, which, axis=1).max(axis=1)

    @property
    def offset(self) -> float:
        """The mean margin (two classes: Δμ): how far the center is beyond the boundary, in units of the logits."""
        return float(self.margin.mean())

    @property
    def margin_spread(self) -> float:
        """Standard deviation of the margin over the data (two classes: √2·σ_y where logits are independent)."""
        return float(self.margin.std(ddof=1))

    @property
    def distance(self) -> float:
        """The offset in spreads of the margin: 0 is on the boundary, 2 is deep inside one class."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(np.divide(self.offset, self.margin_spread))

    @property
    def gaussian_share(self) -> float:
        """The favoured class's share if its margin were Gaussian, Φ(distance): `shares` has the true one."""
        return float(special.ndtr(self.distance))

    def alignment(self, labels: ArrayLike, which: int | None = None) -> float:
        """Correlation over the data of a class's margin (the favoured one's) with being of it: 0 knows nothing.

        It is the cosine of the angle between the two, as vectors over the points without their means: what turns in
        training, while `distance` is what shifts (NORM App. C.1).
        """
        y = np.asarray(labels)
        if y.shape != (self.points,):
            raise InvalidInput(f"a label for each of {self.points} points", got=f"shape {y.shape}", where="alignment")
        which = self.favoured if which is None else which
        own, margin = (y == which).astype(np.float64), self.margin_of(which)
        own, margin = own - own.mean(), margin - margin.mean()
        size = math.sqrt(float(own @ own) * float(margin @ margin))
        return float(own @ margin) / size if size > 0 else math.nan

    def summary(self) -> list[tuple[str, str]]:
        """Label and value of every headline number."""
        share, f = self.shares[self.favoured], self.favoured
        rows = [("favoured class", f"{f}, {share:.1%} of {self.points} points (even split {1 / self.classes:.1%})")]
        if self.margin_spread > 0.0:
            apart = f"{self.offset:.3g}, {self.distance:.2f} spreads of the cloud"
            rows.append(("its center beyond the boundary", apart))
            rows.append(("share if the margin were Gaussian", f"{self.gaussian_share:.1%}"))
        else:
            told = f"{self.offset:.3g}, on every point" if self.offset else "0 on every point: all guesses are ties"
            rows.append(("its center beyond the boundary", told))
        if self.classes <= 10:
            rows.append(("class centers", ", ".join(f"{c:.3g}" for c in self.centers)))
            rows.append(("spread over the data", ", ".join(f"{s:.3g}" for s in self.spread)))
        return rows

    def __repr__(self) -> str:
        return f"Logits(network {self.member}, {self.points} points, {self.classes} classes)"

    def __str__(self) -> str:
        return page(f"Logits of network {self.member}", self.summary())


def typical(logits: Sequence[NDArray[Any]], largest: FloatArray) -> int:
    """Which of the kept members is like most: its largest share is nearest the median of the ensemble's, `largest`.

    >>> typical([np.eye(2), np.array([[0.0, 1.0], [0.0, 1.0]])], np.array([0.5, 1.0, 0.9, 0.97]))
    1
    """
    kept = largest[: len(logits)]
    return int(np.abs(kept - np.median(largest)).argmin())
