"""Shapes of sequences: what token layers ask of the one in front of them."""

from __future__ import annotations

from firstguess.base.errors import InvalidInput
from firstguess.network.grid import Grid, Shape


def sequence(tokens: int) -> Grid:
    """The grid of a sequence: dense layers and norms act at each of its positions."""
    return Grid((tokens,), apart=True)


def check_tokens(before: Shape, kind: str) -> None:
    """Raise InvalidInput where there is no sequence of tokens in front of a layer that wants one."""
    if before.grid is not None and not before.grid.apart:
        raise InvalidInput(
            f"tokens in front of {kind}",
            got="images" if before.images else f"{before.grid}",
            hint="embed(0.02) or patches(16) in front of it",
        )
