"""Theory and simulation side by side: `compare(prediction, measurement)`, with differences in standard errors."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, overload

import numpy as np
from scipy import stats

from firstguess.base import checks
from firstguess.base.errors import InvalidInput
from firstguess.base.record import Shown, StoredRecord
from firstguess.base.statistics import chance
from firstguess.base.text import deviation, page, with_error, without_middle
from firstguess.diagnosis.training_comparison import TrainingComparison, compare_training
from firstguess.ensemble.measurement import Measurement
from firstguess.ensemble.trained import TrainedMembers
from firstguess.theory.prediction import Prediction
from firstguess.theory.shares.base import ClassShares
from firstguess.theory.shares.empirical import EmpiricalGuesses
from firstguess.theory.shares.gaussian_argmax import agreement_probability
from firstguess.theory.training.runs import PredictedTraining

# How well a prediction at finite size is known itself: what a comparison must not hold against it.

_STRETCHED, _SHIFTED = 0.242, 0.399  # max x·φ(x) and max φ(x): by how much a normal cdf changes, per unit


@dataclass(frozen=True)
class PredictionError:
    """The error of the standard deviation of a class share, relative to it: sampled (a standard error), or left out.

    The chain of networks has a standard error. The expansion leaves out about `next_order`: not a random error but a
    difference that says nothing against it. E max − 1/M of a distribution changes about as its standard deviation does.
    """

    sampled: float = 0.0
    left_out: float = 0.0

    def std(self, law: ClassShares) -> tuple[float, float]:
        """Standard error and room of the distribution's standard deviation."""
        return self.sampled * law.std(), self.left_out * law.std()

    def largest(self, law: ClassShares) -> tuple[float, float]:
        """Standard error and room of the average largest fraction."""
        above = law.expected_max() - 1.0 / law.classes
        return self.sampled * above, self.left_out * above

    def distance(self, law: ClassShares, spread: float) -> float:
        """Room of the largest distance of two cdfs: of G₀ (stretched about 1/2), or of max G (of this `spread`)."""
        if law.classes == 2:
            return _STRETCHED * self.left_out
        return _SHIFTED * self.largest(law)[1] / spread if spread > 0.0 else 0.0


def error_of(prediction: Prediction, law: ClassShares) -> PredictionError:
    """The error on this many points: Var G is that at infinitely many points plus what counting adds."""
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

    >>> from firstguess.theory.predict import predict
    >>> p = predict("5 x [dense(weight_var=2) > relu > rmsnorm] > dense(weight_var=2)", width=50)
    >>> print(*(f"{x:.2g}" for x in gamma_error(p)))
    0 0.081
    """
    size = prediction.finite_size
    if size is None or not -1.0 < size.overlap < 1.0:
        return 0.0, 0.0
    same, e = agreement_probability(prediction.network.classes), size.overlap
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


LEVEL = 1e-3  # how often `agrees` is wrong about a theory that is right
_SEED = 20240722  # of the draws that stand for the predicted max_c G_c: not one that a user would sample with


@dataclass(frozen=True)
class Difference:
    """One number, predicted and measured, and the chance of a difference like this.

    `room` is a difference that is not held against the prediction (γ of finitely many data, what an expansion in
    1/width leaves out; see `compare`). `z` is the rest of the difference in standard errors: (|measured − predicted| −
    room)/se with its sign, and 0 within the room.
    """

    name: str
    predicted: float
    measured: float
    se: float
    z: float
    p_value: float
    room: float = 0.0


@dataclass(frozen=True, repr=False)
class Comparison(StoredRecord, Shown):
    """A prediction compared with a measurement.

    `layers`: γ of the layers with weights. `summaries`: std of a class's share, E max_c G_c, P(max_c G_c > 0.9).
    `distance`: Kolmogorov-Smirnov distance of the two G₀ (two classes) or max_c G_c (more), `p_value` its
    p-value. All predictions of guesses are for as many data points as were measured.

    `agrees` means that no p-value is below `level` divided by their number (Bonferroni): of predictions that are
    exactly right, at most about a share `level` is said to disagree. A prediction for infinite width, or (in closed
    form) for i.i.d. data, is never that: with enough initializations every finite network departs from it. How much is
    in the numbers; `fg.predict(…, width=…)` is for the width that was measured.
    """

    _also = ("agrees",)

    layers: tuple[Difference, ...]
    summaries: tuple[Difference, ...]
    distance: float
    p_value: float
    classes: int
    points: int
    inits: int
    level: float = LEVEL
    notes: tuple[str, ...] = ()

    @property
    def differences(self) -> tuple[Difference, ...]:
        """All numbers that are compared: layers, then summaries."""
        return (*self.layers, *self.summaries)

    @property
    def agrees(self) -> bool:
        """Whether the measurement could have come from the prediction; see the class."""
        p_values = [*(d.p_value for d in self.differences), self.p_value]
        return not any(p < self.level / len(p_values) for p in p_values)

    @property
    def worst(self) -> Difference:
        """The number with the smallest p-value."""
        return min(self.differences, key=lambda d: (d.p_value, -abs(d.z)))

    def __repr__(self) -> str:
        verdict = "agrees" if self.agrees else f"disagrees, worst {self.worst.name}"
        return f"Comparison({len(self.layers)} layers, {self.inits} initializations: {verdict})"

    def __str__(self) -> str:
        verdict = "agree" if self.agrees else "disagree"
        allowed = any(d.room > 0 for d in self.differences)  # else their column is left out
        rooms = f"   {'allowed':>9}" if allowed else ""
        size = f"{self.inits} initializations, {self.points} points, {self.classes} classes"
        lines = [f"  {'':<32} {'predicted':>10}   {'measured ± s.e.':>20}{rooms}   {'difference':>13}"]
        lines += without_middle([_line(d, allowed) for d in self.differences], "  …")
        law = f"the distributions of {'G₀' if self.classes == 2 else 'the largest share'}"
        lines.append(f"  Kolmogorov-Smirnov distance of {law}: {self.distance:.4f} (p = {self.p_value:.2g})")
        if self.differences:
            w = self.worst
            least = f"; below {self.level / (len(self.differences) + 1):.1g} would disagree" if self.agrees else ""
            lines.append(f"  least likely: {w.name}, p = {w.p_value:.2g}{least}")
        notes = [f"note: {note}" for note in self.notes]
        return page(f"Prediction and measurement {verdict} ({size})", [], table=lines, remarks=notes)


def check_pair(prediction: Prediction, measurement: Measurement, call: str) -> None:
    """Raise InvalidInput unless the two can be compared; `call` is what the user called."""
    where = call.removeprefix("fg.")
    given = cast("tuple[object, object]", (prediction, measurement))  # a user may swap them
    if not isinstance(given[0], Prediction) or not isinstance(given[1], Measurement):
        got, hint = " and ".join(type(one).__name__ for one in given), f"{call}(fg.predict(net), fg.measure(net, x))"
        raise InvalidInput("a Prediction and a Measurement", got=got, where=where, hint=hint)
    if prediction.guesses.classes != measurement.classes:
        expected = f"a measurement with {prediction.guesses.classes} classes, like the prediction"
        hint = f"fg.predict(…, classes={measurement.classes})"
        raise InvalidInput(expected, got=f"{measurement.classes} classes", where=where, hint=hint)


@overload
def compare(prediction: Prediction, measurement: Measurement, *, level: float = LEVEL) -> Comparison: ...


@overload
def compare(
    prediction: PredictedTraining, measurement: TrainedMembers, *, level: float = LEVEL
) -> TrainingComparison: ...


def compare(prediction: Any, measurement: Any, *, level: float = LEVEL) -> Comparison | TrainingComparison:
    """Compare a prediction with a measurement: γ by layer and class shares, differences in standard errors.

    A prediction of training (`fg.predict_training`) is compared with real training (`fg.train`): curves over steps.

    γ is compared layer by layer where both have as many layers with weights, else at the output only. A difference of
    up to (1 + γ)/n is not held against γ (`Difference.room`, "allowed" in print): n points have a mean of their own,
    which no initialization changes, and subtracting V/n from the center takes them for
    independent, which BatchNorm makes them not. γ of a prediction at finite width is that of the mean overlap, and a
    measurement's a ratio of averages: they are one number where a norm over nodes feeds the output, and compared there
    only. What an expansion in 1/width leaves out is not held against it either, and a sampled chain's standard error
    counts (`finite_size`). P(max > 0.9) has an exact binomial p-value, and its z the standard
    error it would have if the prediction were right.

    >>> from firstguess.theory.closed_form import predict
    >>> from firstguess.theory.shares.empirical import EmpiricalGuesses
    >>> from firstguess.theory.shares.gaussian import Guesses
    >>> p = predict("dense(weight_var=2) > relu > dense(weight_var=2)")
    >>> m = Measurement(EmpiricalGuesses(Guesses(0.6, points=1000).sample(2000), points=1000), layers=())
    >>> c = compare(p, m)
    >>> c.agrees, c.worst.name
    (False, "std of a class's share")
    >>> print(f"{c.worst.predicted:.3f}, measured {c.worst.measured:.3f} ± {c.worst.se:.3f}")
    0.227, measured 0.251 ± 0.003
    """
    if isinstance(prediction, PredictedTraining) and isinstance(measurement, TrainedMembers):
        return compare_training(prediction, measurement, level=level)
    return _compared(cast("Prediction", prediction), cast("Measurement", measurement), level)


def _compared(prediction: Prediction, measurement: Measurement, level: float) -> Comparison:
    check_pair(prediction, measurement, "fg.compare")
    checks.within(level, "a level between 0 and 1", "compare(level)", "level=1e-3", high=1)
    seen = measurement.guesses
    law = predicted_law(prediction, seen.points)
    layers, notes = _layers(prediction, measurement)
    texts = " > ".join(layer.layer for layer in prediction.layers)
    if who := "BatchNorm" if "batchnorm" in texts else "batchcenter" if "batchcenter" in texts else "":
        notes += (
            f"{who} ties the points of a batch together: near γ = 0 guesses vary less than those of independent "
            "points, for which the prediction is",
        )
    own = error_of(prediction, law)
    distance, p_value = _kolmogorov_smirnov(law, measurement, own.distance(law, float(seen.largest.std())))
    if own.left_out > 0.0:
        notes += (f"allowed: what the expansion in 1/width leaves out, about {own.left_out:.2g} of the spread",)
    summaries, counts = _summaries(law, measurement, own), (seen.classes, seen.points, seen.inits)
    return Comparison(layers, summaries, distance, p_value, *counts, level, notes)


def predicted_law(prediction: Prediction, points: int) -> ClassShares:
    """The distribution that a measurement on this many points is compared with: a kernel's has its own points."""
    return prediction.guesses.on_points(points)


def _layers(prediction: Prediction, measurement: Measurement) -> tuple[tuple[Difference, ...], tuple[str, ...]]:
    theory = [layer for layer in prediction.layers if layer.weights]
    seen = list(measurement.weights_layers)
    notes: tuple[str, ...] = ()
    size = prediction.finite_size
    why = "γ at finite width is that of the mean overlap, a measurement's is a ratio of averages"
    if size is not None:
        drawn = size.way == "chain" and prediction.reading == "kernel"  # whose overlap is that of equal guesses
        if drawn or not seen or len(prediction.layers) < 2 or not prediction.network.layers[-2].one_size:
            return (), (f"{why}: only guesses are compared",)
        theory = [replace(theory[-1], gamma=gamma_of(prediction))]
    if not seen:
        return (), ("no layer with weights was probed: only guesses are compared",)
    if size is not None:
        notes, seen = (f"{why}, which is the same after a norm: that of the output is compared",), seen[-1:]
    elif len(theory) != len(seen):
        notes = (f"{len(theory)} layers with weights predicted, {len(seen)} measured: only the output is compared",)
        theory, seen = theory[-1:], seen[-1:]
    rows: list[Difference] = []
    for number, (one, other) in enumerate(zip(theory, seen, strict=True), start=1):
        name = f"γ {number}: {other.name}" if len(seen) > 1 else f"γ of the output: {other.name}"
        room = (1 + abs(one.gamma)) / measurement.points
        own, left_out = gamma_error(prediction)
        room = room + left_out if math.isfinite(room) else 0.0
        difference, se = other.gamma - one.gamma, math.hypot(other.gamma_se, own)
        z = _z(math.copysign(max(abs(difference) - room, 0.0), difference), se)
        p_value = chance(z, other.skew, measurement.inits)
        rows.append(Difference(name, one.gamma, other.gamma, se, z, p_value, room))
    if any(row.room > 0 for row in rows):
        notes += (
            f"allowed: γ is that of these {measurement.points} points, whose own mean no initialization changes; "
            "up to (1 + γ)/points is not held against the prediction, and differences are what is beyond",
        )
    return tuple(rows), notes


def _summaries(law: ClassShares, measurement: Measurement, own: PredictionError) -> tuple[Difference, ...]:
    seen = measurement.guesses
    often = law.prob_max_above(0.9)
    share = seen.prob_max_above(0.9)
    count = round(share * seen.inits)
    std_error, max_error = law.standard_error("std"), law.standard_error("expected_max")
    above_error = law.standard_error(("prob_max_above", 0.9))
    (std_own, std_room), (max_own, max_room) = own.std(law), own.largest(law)
    std_error, max_error = math.hypot(std_error, std_own), math.hypot(max_error, max_own)
    se = math.sqrt(max(often * (1 - often), 0.0) / seen.inits + above_error**2)
    if law.inits is not None:
        drawn = round(often * law.inits)
        table = [[count, seen.inits - count], [drawn, law.inits - drawn]]
        exact = float(cast(Any, stats.fisher_exact(table)).pvalue)
    else:
        # SciPy overflows at probabilities near 1e-308; at 1e-15 a count above 0 has a p-value of about 0 as well.
        exact = float(cast(Any, stats.binomtest(count, seen.inits, min(max(often, 1e-15), 1.0))).pvalue)
    return (
        _guess("std of a class's share", "std", law.std(), std_error, std_room, seen),
        _guess("average largest share", "expected_max", law.expected_max(), max_error, max_room, seen),
        Difference("P(largest share > 0.9)", often, share, se, _z(share - often, se), exact),
    )


def _guess(
    name: str, what: Literal["std", "expected_max"], predicted: float, error: float, room: float, seen: EmpiricalGuesses
) -> Difference:
    """A share's difference, with the prediction's own standard error and a tolerance that does not count."""
    measured = seen.std() if what == "std" else seen.expected_max()
    se = math.hypot(seen.standard_error(what), error)
    nearest = min(max(measured, predicted - room), predicted + room)
    p_value = seen.chance(what, nearest, room=error)
    return Difference(name, predicted, measured, se, _z(measured - nearest, se), p_value, room)


def _z(difference: float, se: float) -> float:
    """The difference in standard errors: 0 for none, ±∞ for one without an error, NaN where nothing is known."""
    if abs(difference) < 1e-12:
        return 0.0
    if math.isnan(difference) or math.isnan(se):
        return math.nan
    return difference / se if se > 0 else math.copysign(math.inf, difference)


def _kolmogorov_smirnov(law: ClassShares, measurement: Measurement, room: float) -> tuple[float, float]:
    """Largest distance of two cdfs, and the p-value of what is beyond `room`: rather too large for counts k/n."""
    seen = measurement.guesses
    if isinstance(law, EmpiricalGuesses):
        one, other = (g.fractions[:, 0] if g.classes == 2 else g.largest for g in (seen, law))
    elif seen.classes == 2:
        values, times = np.unique(np.round(seen.fractions[:, 0] * seen.points), return_counts=True)
        after = np.cumsum(times) / seen.inits
        # Just below a count that occurs, the empirical cdf is still the one before and theory's is that of count − 1.
        steps = np.concatenate([[0.0], after[:-1]]) - law.cdf((values - 1) / seen.points)
        distance = float(max(np.abs(after - law.cdf(values / seen.points)).max(), np.abs(steps).max()))
        return distance, float(stats.kstwo.sf(max(distance - room, 0.0), seen.inits))
    else:
        size = max(2000, min(20_000, 4_000_000 // seen.classes))
        drawn = law.sample(size, seed=_SEED).max(axis=1)
        # Counts again: k/n from two sources may differ in the last digit.
        one, other = np.round(seen.largest * seen.points), np.round(drawn * seen.points)
    found = cast(Any, stats.ks_2samp(one, other, method="asymp"))
    distance, together = float(found.statistic), len(one) * len(other) / (len(one) + len(other))
    beyond = max(distance - room, 0.0)
    return distance, float(found.pvalue) if room == 0.0 else float(stats.kstwo.sf(beyond, round(together)))


def _line(d: Difference, allowed: bool) -> str:
    name = d.name if len(d.name) <= 32 else f"{d.name[:20]}…{d.name[-11:]}"
    measured = with_error(d.measured, d.se)
    apart = deviation(d.z) if math.isnan(d.z) else f"{deviation(d.z)} s.e."
    room = f"   {f'± {d.room:.2g}' if d.room > 0 else '':>9}" if allowed else ""
    return f"  {name:<32} {d.predicted:>10.4g}   {measured:>20}{room}   {apart:>13}"
