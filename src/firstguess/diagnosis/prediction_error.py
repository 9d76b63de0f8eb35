"""How well a prediction at finite size is known itself: what a comparison must not hold against it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from firstguess.theory.histograms import Law
from firstguess.theory.prediction import Prediction
from firstguess.theory.same_class import same_class

_STRETCHED, _SHIFTED = 0.242, 0.399  # max x·φ(x) and max φ(x): by how much a normal cdf changes, per unit


@dataclass(frozen=True)
class PredictionError:
    """Of the standard deviation of a guess fraction, as a share of it: sampled (a standard error), or left out.

    The chain of networks has a standard error. The expansion leaves out about `next_order`: not a random error but a
    difference that says nothing against it. E max − 1/M of a law changes about as its standard deviation does.
    """

    sampled: float = 0.0
    left_out: float = 0.0

    def std(self, law: Law) -> tuple[float, float]:
        """Standard error and room of the law's standard deviation."""
        return self.sampled * law.std(), self.left_out * law.std()

    def largest(self, law: Law) -> tuple[float, float]:
        """Standard error and room of the average largest fraction."""
        above = law.expected_max() - 1.0 / law.classes
        return self.sampled * above, self.left_out * above

    def distance(self, law: Law, spread: float) -> float:
        """Room of the largest distance of two cdfs: of G₀ (stretched about 1/2), or of max G (of this `spread`)."""
        if law.classes == 2:
            return _STRETCHED * self.left_out
        return _SHIFTED * self.largest(law)[1] / spread if spread > 0.0 else 0.0


def error_of(prediction: Prediction, law: Law) -> PredictionError:
    """Of the law on so many points: Var G is the variance at infinitely many points plus what counting adds."""
    size, std = prediction.finite_size, law.std()
    if size is None or not std > 0.0:
        return PredictionError()
    share = min(size.std / std, 1.0) / std  # dσ/σ for a change of the part that is not counting
    if size.std == 0.0:  # its error is then that of a variance around 0: √error² of it
        return PredictionError(0.5 * (size.error / std) ** 2, 0.5 * (size.next_order / std) ** 2)
    found = PredictionError(size.error * share, size.next_order * share)
    return found if math.isfinite(found.sampled + found.left_out) else PredictionError()


def gamma_error(prediction: Prediction) -> tuple[float, float]:
    """Standard error and room of γ of the mean overlap e: Var G = A(e)/M, so that de = 2Mσ·dσ/A'(e), dγ = de/(1 − e)².

    >>> from firstguess.theory.readings import predict
    >>> p = predict("5 x [dense(weight_var=2) > relu > rmsnorm] > dense(weight_var=2)", width=50)
    >>> print(*(f"{x:.2g}" for x in gamma_error(p)))
    0 0.081
    """
    size = prediction.finite_size
    if size is None or not -1.0 < size.overlap < 1.0:
        return 0.0, 0.0
    same, e = same_class(prediction.network.classes), size.overlap
    step = 1e-3 * (1.0 - abs(e))
    low, high = (float(x) for x in same(np.array([e - step, e + step])))
    slope = 2.0 * prediction.network.classes * size.std * 2.0 * step / (high - low) / (1.0 - e) ** 2
    return slope * size.error, slope * size.next_order


def gamma_of(p: Prediction) -> float:
    """γ of the output; at finite width that of the mean overlap, e/(1 − e)."""
    if p.finite_size is None:
        return float(p.gamma[-1])
    e = p.finite_size.overlap
    return e / (1.0 - e) if e < 1.0 else math.inf
