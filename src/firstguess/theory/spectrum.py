"""The modes of the tangent kernel over a data set, and where bias and labels are among them (theory.md (15))."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firstguess.base.errors import InvalidInput
from firstguess.base.gaussian import Array
from firstguess.theory.training_problem import Modes, modes_of


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues of Θ/n, the largest first, and how much of two directions each mode holds (each sums to 1)."""

    values: Array
    bias: Array  # of the direction common to all points
    signal: Array  # of the labels' directions, on average over classes
    modes: Modes


def spectrum(tangent: Array, labels: NDArray[np.int64]) -> Spectrum:
    """Of the tangent kernel of `fg.predict(net, data=x, tangent=True)` and these points' labels.

    >>> s = spectrum(np.array([[2.0, 1.0], [1.0, 2.0]]), np.array([0, 1]))
    >>> s.values.round(6).tolist(), s.bias.round(6).tolist(), s.signal.round(6).tolist()
    ([1.5, 0.5], [1.0, 0.0], [0.0, 1.0])
    """
    labels = np.asarray(labels)
    n = len(tangent)
    if tangent.shape != (n, n) or labels.shape != (n,):
        raise InvalidInput(f"{n} labels, one a point", got=f"shape {labels.shape}", where="spectrum")
    if len(np.unique(labels)) < 2:
        raise InvalidInput("points of two classes at least", got="one class only", where="spectrum")
    values, vectors = np.linalg.eigh(np.asarray(tangent, np.float64) / n)
    vectors = vectors[:, ::-1]
    shares = [np.square(vectors.sum(axis=0)) / n]
    parts: list[Array] = []
    for c in np.unique(labels):
        y = (labels == c) - float(np.mean(labels == c))
        parts.append(np.square(y @ vectors) / (y @ y))
    return Spectrum(values[::-1], shares[0], np.mean(parts, axis=0), modes_of(np.asarray(tangent), labels))
