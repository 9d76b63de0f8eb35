"""The record of what finite width and dimension changed in a prediction."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from firstguess.base.errors import FirstguessError
from firstguess.base.shown import Shown


def missing(error: FirstguessError) -> str:
    """What an expansion or a chain lacked, for a remark on a page: no call of the reader's failed.

    >>> from firstguess.base.errors import NotCovered
    >>> missing(NotCovered("Gaussian weights, for an expansion in 1/width", got="init=uniform", where="layer 1"))
    'it needs Gaussian weights'
    """
    return f"it needs {error.expected.partition(', for an expansion')[0]}"


@dataclass(frozen=True)
class FiniteSize(Shown):
    """What finite width and dimension changed, and how well that is known.

    `std` is the standard deviation of a class's share of infinitely many points, `infinite` the same for infinitely
    wide layers and infinitely many dimensions. `next_order` is an estimate of what the expansion leaves out of `std`,
    `error` the standard error of `std` where a chain was sampled (`networks` of them).
    """

    width: int | None
    dimension: int | None
    way: Literal["expansion", "chain"]
    std: float
    infinite: float
    next_order: float = 0.0
    error: float = 0.0
    networks: int = 0
    overlap: float = 0.0  # the mean overlap (cosine) of two points at the output, and its variance over pairs
    overlap_variance: float = 0.0
    remark: str = ""

    @property
    def added(self) -> float:
        """What finite size added to the standard deviation of a class's share."""
        return self.std - self.infinite

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> FiniteSize:
        return cls(**data)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def __repr__(self) -> str:
        return f"FiniteSize(width={self.width}, dimension={self.dimension}: std {self.infinite:.4g} → {self.std:.4g})"

    def __str__(self) -> str:
        sizes = [f"{name} {size}" for name, size in (("width", self.width), ("dimension", self.dimension)) if size]
        known = (
            f"expansion, next order about {self.next_order:.1g}"
            if self.way == "expansion"
            else f"{self.networks} networks drawn, ± {self.error:.1g}"
        )
        return f"{', '.join(sizes)}: std {self.std:.4g} instead of {self.infinite:.4g} at infinite size ({known})"
