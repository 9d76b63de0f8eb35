"""Positions and sizes: where on a data point a unit can be, and what one data point looks like between two layers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

from firstguess.base.errors import InvalidInput, NotCovered


@dataclass(frozen=True)
class PositionGrid:
    """Positions of a data point: () flat, (H, W) an image, (T,) a sequence.

    >>> PositionGrid((28, 28)).windows(3, stride=2, padding=1).sides
    (14, 14)
    """

    sides: tuple[int, ...] = ()
    apart: bool = False  # tokens: dense layers and norms act at each position; images: on all at once

    @property
    def flat(self) -> bool:
        """Whether there are no positions; an image of 1×1 has one, and its pools run over it."""
        return not self.sides

    @property
    def places(self) -> int:
        """How many positions there are; a flat signal counts as one."""
        return math.prod(self.sides)

    def rows(self, points: slice) -> slice:
        """The rows of a tile that these data points have."""
        return slice(points.start * self.places, points.stop * self.places)

    def points(self, rows: slice) -> slice:
        """Which data points these rows of a tile are."""
        return slice(rows.start // self.places, rows.stop // self.places)

    def windows(self, size: int, *, stride: int = 1, padding: int = 0) -> PositionGrid:
        """The grid of all windows of `size` positions a side that fit: the one rule for kernels and pools."""
        return replace(self, sides=tuple((side + 2 * padding - size) // stride + 1 for side in self.sides))

    def fits(self, size: int, *, padding: int = 0) -> bool:
        """Whether a window of `size` positions a side fits at all."""
        return min(self.sides) + 2 * padding >= size

    def __str__(self) -> str:
        return "×".join(map(str, self.sides)) if self.sides else "a flat signal"


@dataclass(frozen=True)
class Shape:
    """Width (units, or channels) and grid of one data point.

    A grid of None: a description that no data have met. Then a width is known where weights without positions name it.
    """

    width: int | None
    grid: PositionGrid | None = PositionGrid()
    drawn: bool = False  # real tensors: pools and groups must divide the width

    @property
    def sizes(self) -> tuple[int, ...]:
        """(units,) or (channels, height, width), where both are known."""
        assert self.grid is not None
        return (self.units, *self.grid.sides)

    @property
    def units(self) -> int:
        """The width, where it is known."""
        assert self.width is not None
        return self.width

    @property
    def own_sizes(self) -> list[int]:
        """What a norm over units runs over: all of a data point, of a sequence one token's units."""
        return list(self.sizes[:1]) if self.grid is not None and self.grid.apart else list(self.sizes)

    @property
    def nodes(self) -> int:
        """How many numbers one data point has."""
        return math.prod(self.sizes)

    @property
    def images(self) -> bool:
        """Whether units have places on an image (unlike tokens, over all of which a dense layer sums)."""
        return self.grid is not None and not self.grid.flat and not self.grid.apart

    def pooled(self, kind: str, size: int, *, stride: int | None = None, padding: int = 0) -> Shape:
        """The shape after a pool of `size` units where there are no positions, else of k×k = size of them."""
        if self.grid is None or self.grid.flat or self.grid.apart:
            return self._pooled_nodes(kind, size)
        side = math.isqrt(size)
        if side * side != size:
            hint = f"{kind}({side * side}) pools {side}×{side}"
            raise InvalidInput("a pool of k×k positions: a square number", got=size, hint=hint)
        if not self.grid.fits(side, padding=padding):
            hint = "fewer pools, or larger images"
            raise InvalidInput(f"images of at least {side}×{side}", got=str(self.grid), hint=hint)
        return replace(self, grid=self.grid.windows(side, stride=stride or side, padding=padding))

    def _pooled_nodes(self, kind: str, size: int) -> Shape:
        if self.width is None:
            return self
        if self.drawn and self.width % size:
            near = max(1, self.width // size) * size
            hint = f"width={near}, or {kind}({math.gcd(self.width, size)})"
            raise InvalidInput(f"a width that the pool of {size} divides", got=self.width, hint=hint)
        if size > self.width:
            hint = f"{kind}({self.width})"
            raise InvalidInput(f"a pool of at most {self.width} nodes, the width of its layer", got=size, hint=hint)
        return replace(self, width=self.width // size)


UNKNOWN = Shape(None, None)  # before a description that no data have met yet


class Shaped(Protocol):
    """What has a rule for sizes: a layer."""

    def shape(self, before: Shape, units: int | None) -> Shape: ...


def check_first_tokens(real: bool) -> None:
    """Refuse sequences that begin with padding, where their first tokens are to be read."""
    if not real:
        hint = "padding after the tokens, not before"
        raise InvalidInput("sequences that begin with a token", got="some that begin with padding", hint=hint)


def check_unpadded(real: object) -> None:
    """Refuse padding where every place has weights of its own; None: there is none."""
    if real is not None:
        expected = "sequences without padding before tokenmix, which has a weight for every place"
        raise NotCovered(expected, got="padding", hint="sequences of one length")
