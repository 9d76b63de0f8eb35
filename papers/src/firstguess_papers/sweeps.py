"""What items that sweep a size or a constant share: γ by layer as numbers, series of them, a check that two differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from firstguess_papers.judging import Number, Truth, same
from firstguess_papers.tables import largest

if TYPE_CHECKING:
    from firstguess import Measurement

KAIMING = "dense(weight_var=2)"
EVEN = 0.05  # γ up to which we say even (theory.md §1)
FLIPS = 0.05  # of the average largest fraction, beyond coin flips: up to there guesses are called even


def deep(block: str, depth: int, dense: str = KAIMING) -> str:
    """`depth` times a dense layer and the block, and a dense output: Kaiming variances, no biases.

    >>> deep("relu > layernorm", 3)
    '3 x [dense(weight_var=2) > relu > layernorm] > dense(weight_var=2)'
    """
    return f"{depth} x [{dense} > {block}] > {dense}"


def gammas(m: Measurement) -> list[Number]:
    """γ of the hidden pre-activations behind 1, 2, … blocks: what the output of a network of that depth would have.

    Those have as many nodes as a layer is wide, the output only as many as there are classes: errors are far smaller.
    """
    # nodes that are centred over the data have the same γ in all networks, up to rounding
    errors = [float(e) if e > 1e-12 else 0.0 for e in m.gamma_se[1:-1]]
    return [Number(float(g), e) for g, e in zip(m.gamma[1:-1], errors, strict=True)]


def beyond_flips(m: Measurement) -> Number:
    """The average largest fraction beyond that of points whose classes are drawn evenly: 0 where guesses are even.

    Where every node is centred over the data γ is 0 by construction, and only the guesses can show what is left.
    """
    from firstguess import Guesses

    return largest(m) - Number(Guesses(0.0, m.classes, m.points).expected_max())


def differ(one: Number, other: Number | float, *, room: float) -> Truth:
    """Whether the two surely differ by more than `room`: the opposite of `same`.

    >>> differ(Number(0.6, 0.01), 0.5, room=0.02), differ(Number(0.502, 0.004), 0.5, room=0.02)
    (True, False)
    """
    found = same(one, other, room=room)
    return None if found is None else not found


def failing(checks: Mapping[str, Truth]) -> str:
    """Names of the checks that fail, for an entry's reason.

    >>> failing({"one": True, "two": False, "three": None})
    'two'
    """
    return ", ".join(name for name, check in checks.items() if check is False) or "none"


def line(name: str, number: Number, **more: Any) -> dict[str, Any]:
    """One line of a table: a value with its error."""
    return {"name": name, **more, "value": number}


def layer_lines(
    found: Mapping[Any, Sequence[Number]], names: Sequence[str], theory: Mapping[Any, Any] | None = None
) -> list[dict[str, Any]]:
    """A line for every cell and depth: γ after 1, 2, … blocks, and the closed form's; `names` are those of the keys.

    >>> layer_lines({("ReLU", "before"): [Number(0.5, 0.1)]}, ["name", "place"])
    [{'name': 'ReLU', 'place': 'before', 'depth': 1, 'value': Number(value=0.5, error=0.1)}]
    """
    return [
        {**dict(zip(names, key, strict=True)), "depth": k, "value": g}
        | ({} if theory is None else {"theory": float(theory[key][k - 1])})
        for key, values in found.items()
        for k, g in enumerate(values, start=1)
    ]
