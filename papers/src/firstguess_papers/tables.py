"""From measurements to what items need again and again: numbers with errors, rows of tables, γ by layer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from firstguess_papers import library
from firstguess_papers.judging import Number, proportion
from firstguess_papers.library import predicted_law

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from firstguess import EmpiricalGuesses, Guesses, Measurement, Prediction


def std(m: Measurement) -> Number:
    """Standard deviation of a guess fraction over initializations."""
    return Number(m.guesses.std(), m.guesses.standard_error("std"))


def largest(m: Measurement) -> Number:
    """The average largest fraction, E max_c G_c."""
    return Number(m.guesses.expected_max(), m.guesses.standard_error("expected_max"))


def gamma(m: Measurement, layer: int = -1) -> Number:
    """γ of a layer with weights: by default the output."""
    return Number(float(m.gamma[layer]), float(m.gamma_se[layer]))


def share(m: Measurement, low: float, high: float) -> Number:
    """The share of networks whose G₀ is from `low` to `high`, with its binomial error (at least that of one)."""
    inside = (m.guesses.fractions[:, 0] >= low) & (m.guesses.fractions[:, 0] <= high)
    return proportion(inside)


def ratio(over: NDArray[np.float64], under: NDArray[np.float64]) -> Number:
    """Of averages over networks, with its standard error to first order.

    >>> print(ratio(np.array([2.0, 4.0]), np.array([1.0, 2.0])))
    2
    """
    value = float(over.mean() / under.mean())
    return Number(value, float((over - value * under).std(ddof=1) / math.sqrt(len(over)) / abs(under.mean())))


def law_panel(
    label: str,
    m: Measurement,
    *,
    theory: Mapping[str, Guesses | EmpiricalGuesses | Prediction] | None = None,
    bins: int = 20,
    note: str | None = None,
    top: float | None = None,
) -> library.Panel:
    """The measured law of the guess fractions, and predicted ones on the same bins (for as many data points)."""
    from firstguess import Guesses, MixedGuesses, Prediction

    edges, density = m.guesses.histogram(bins)
    curves: dict[str, Any] = {}
    for name, law in (theory or {}).items():
        known = predicted_law(law, m.points) if isinstance(law, Prediction) else law
        if isinstance(known, Guesses | MixedGuesses):
            known = replace(known, points=m.points)
        below = known.cdf(edges)
        curves[name] = np.diff(below, prepend=0.0)[1:] / np.diff(edges)
    said = f"standard deviation {std(m)}" if note is None else note
    return library.Panel(label, edges, density, curves, said, top)


def row(name: str, m: Measurement, **more: Any) -> dict[str, Any]:
    """One line of a table: the headline numbers of a measurement."""
    numbers: dict[Literal["std", "largest"], Number] = {"std": std(m), "largest": largest(m)}
    line: dict[str, Any] = {"name": name, **more, "inits": m.inits, "points": m.points, "classes": m.classes}
    for key, number in numbers.items():
        line |= {key: number.value, f"{key}_error": number.error}
    if m.gamma.size:
        line |= {"gamma": float(m.gamma[-1]), "gamma_error": float(m.gamma_se[-1])}
    return line


def columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Rows as columns; what a row does not have is None, and a `Number` has a second column for its error.

    >>> columns([{"name": "ReLU", "gamma": Number(0.5, 0.1)}, {"name": "tanh"}])
    {'name': ['ReLU', 'tanh'], 'gamma': [0.5, None], 'gamma_error': [0.1, None]}
    """
    plain: list[dict[str, Any]] = []
    for line in rows:
        plain.append({})
        for name, value in line.items():
            if isinstance(value, Number):
                plain[-1] |= {name: value.value, "error" if name == "value" else f"{name}_error": value.error}
            else:
                plain[-1][name] = value
    names = list(dict.fromkeys(name for line in plain for name in line))
    return {name: [line.get(name) for line in plain] for name in names}


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
    """γ of the hidden pre-activations after 1, 2, … blocks: what the output of a network of that depth would have.

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
