"""Shapes of sequences: what token layers ask of the one in front of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from firstguess.base.errors import InvalidInput
from firstguess.network.grid import Grid, Shape

if TYPE_CHECKING:
    from firstguess.network.layer import Layer


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


def check_vocabulary(layers: Sequence[Layer], classes: int) -> None:
    """Raise InvalidInput unless the classes of a language model are the tokens of its embedding."""
    first, last = layers[0], layers[-1]
    size: int | None = getattr(first, "vocabulary", None)
    if size != classes and (size is not None or getattr(last, "tied", False)):
        raise InvalidInput(
            "as many classes as the vocabulary has tokens, for a language model",
            got=f"{classes} classes, and {'no vocabulary' if size is None else f'{size} tokens'}",
            hint=f"embed(…, vocabulary={classes})" if size is None else f"classes={size}",
        )
