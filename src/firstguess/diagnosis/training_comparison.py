"""Predicted training compared with real training: `compare(t, r)`, curve by curve, in standard errors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firstguess.base import checks
from firstguess.base.errors import InvalidInput
from firstguess.base.gaussian import Array
from firstguess.base.record import Record, Shown
from firstguess.base.statistics import permutation_test
from firstguess.base.text import deviation, page, spaced, with_error
from firstguess.ensemble.trained import TrainedMembers
from firstguess.theory.training.curves import FAVOURED, OTHERS, Absorption, Curve, Curves
from firstguess.theory.training.runs import PredictedTraining

LEVEL = 1e-3  # how often `agrees` is wrong about a prediction that is right
_LEAST = 1e-4  # a level below would need more permutations
_SEED = 20240722  # of permutations and resamples: not one that a user would draw networks with
_RESAMPLES = 999
_HEAD = ("largest difference of", "at step", "predicted ± s.e.", "trained ± s.e.", "difference")


@dataclass(frozen=True, eq=False)
class CurveDifference(Record):
    """One curve, predicted and trained, at the steps that both have; errors are of the means over networks.

    `p_value`: the chance that some step differs as much as the most unlikely one here, if networks of both kinds were
    of one distribution.
    """

    _also = ("largest", "step", "difference", "z")
    _apart = ("steps",)

    name: str
    steps: NDArray[np.int64]
    predicted: Array
    predicted_se: Array
    trained: Array
    trained_se: Array
    p_value: float

    @property
    def difference(self) -> Array:
        """Trained − predicted."""
        return self.trained - self.predicted

    @property
    def se(self) -> Array:
        """The standard error of the difference; what one network's would be is not known, and left out."""
        return np.hypot(np.nan_to_num(self.predicted_se), np.nan_to_num(self.trained_se))

    @property
    def z(self) -> Array:
        """The difference in standard errors; ±∞ where neither kind varies."""
        away, se = self.difference, self.se
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(np.abs(away) < 1e-12, 0.0, away / se)

    @property
    def at(self) -> int:
        """The index of the largest difference; −1 if the curves have no step in common."""
        size = np.abs(self.difference)
        return int(np.nanargmax(size)) if np.isfinite(size).any() else -1

    @property
    def largest(self) -> float:
        """The largest difference of the means, without its sign."""
        return float(abs(self.difference[self.at])) if self.at >= 0 else math.nan

    @property
    def step(self) -> int | None:
        """The step of the largest difference."""
        return int(self.steps[self.at]) if self.at >= 0 else None


@dataclass(frozen=True)
class AbsorptionRatio(Record):
    """Steps until the largest share is `level`, in the median of networks: trained by predicted, with an interval of
    95 % from resampling both kinds of networks. NaN: a median is 0 or not reached."""

    _also = ("interval",)
    _apart = ("low", "high")

    level: float
    predicted: float
    trained: float
    ratio: float
    low: float
    high: float

    @property
    def interval(self) -> tuple[float, float]:
        """The interval of the ratio."""
        return self.low, self.high


@dataclass(frozen=True, eq=False, repr=False)
class TrainingComparison(Record, Shown):
    """Predicted training compared with real training.

    `curves`: largest share, accuracies and loss on training points, and on held-out points where both have them.
    `agrees` means that `p_value` is not below `level`: the chance that networks of one distribution differ somewhere by
    as many standard errors as these, from permutations of predicted and trained networks over all curves and steps
    together. Of predictions that are exactly right, at most a share `level` is said to disagree. Theory is for infinite
    width: with enough networks every finite one departs from it. How much is in the numbers.
    """

    _also = ("agrees",)

    steps: NDArray[np.int64]
    curves: tuple[CurveDifference, ...]
    absorption: AbsorptionRatio
    p_value: float
    draws: int  # predicted networks
    members: int  # trained ones
    level: float = LEVEL
    notes: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether the trained networks could have come from the prediction; see the class."""
        return self.p_value >= self.level

    @property
    def worst(self) -> CurveDifference:
        """The curve that differs least likely."""
        return min(self.curves, key=lambda c: (c.p_value, -np.abs(c.z[~np.isnan(c.z)]).max(initial=0.0)))

    def __getitem__(self, name: str) -> CurveDifference:
        for curve in self.curves:
            if curve.name == name:
                return curve
        names = ", ".join(repr(curve.name) for curve in self.curves)
        raise InvalidInput(f"one of the curves {names}", got=repr(name), where="comparison[…]")

    def __repr__(self) -> str:
        verdict = "agrees" if self.agrees else f"disagrees, worst {self.worst.name}"
        return f"TrainingComparison({len(self.curves)} curves, {len(self.steps)} steps: {verdict})"

    def __str__(self) -> str:
        shares = max(c.largest for c in self.curves if c.name.startswith("largest") and c.at >= 0)
        scores = max(c.largest for c in self.curves if c.name.startswith("accuracy") and c.at >= 0)
        within = f"shares of the largest class within {shares:.3f}, accuracies within {scores:.3f}"
        found = self.absorption
        absorbed = f"steps until the largest share is {found.level:.3g}, in the median: "
        absorbed += f"{_steps(found.predicted)} predicted, {_steps(found.trained)} trained"
        if not math.isnan(found.ratio):
            absorbed += "; ratio {:.3g}, 95 % from {:.3g} to {:.3g}".format(found.ratio, *found.interval)
        chance = f"chance of differences like these, if both had one distribution: p = {self.p_value:.2g}"
        lines = [f"means at all steps: {within}", absorbed, chance]
        if not self.agrees:
            lines.append(f"least likely: {self.worst.name}, p = {self.worst.p_value:.2g}")
        rows = [_HEAD, *map(_cells, self.curves)]
        name, *wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = [f"  {a:<{name}}" + "".join(f"   {b:>{w}}" for b, w in zip(r, wide, strict=True)) for a, *r in rows]
        table += [f"  {line}" for line in lines]
        counts = f"{self.draws} predicted and {self.members} trained networks, {len(self.steps)} steps"
        title = f"Predicted and real training {'agree' if self.agrees else 'disagree'}"
        title += f" ({counts} up to {spaced(self.steps[-1])})"
        return page(title, [], table=table, remarks=[f"note: {note}" for note in self.notes])


def compare_training(
    predicted: PredictedTraining, trained: TrainedMembers, *, level: float = LEVEL
) -> TrainingComparison:
    """Compare a prediction of training with real training: what `fg.compare(t, r)` does.

    Networks of both kinds are taken for independent. Those that diverged count until then.
    """
    _check(predicted, trained, level)
    steps, mine, theirs = np.intersect1d(predicted.steps, trained.steps, return_indices=True)
    pairs = list(_pairs(predicted, trained))
    tables = [(one.draws[:, mine], other.draws[:, theirs]) for _, one, other in pairs]
    chances, whole = permutation_test(tables, deals=max(9999, math.ceil(10.0 / level) - 1), seed=_SEED)
    curves = tuple(
        CurveDifference(name, steps, one.mean[mine], one.se[mine], other.mean[theirs], other.se[theirs], chance)
        for (name, one, other), chance in zip(pairs, chances, strict=True)
    )
    counts = len(predicted.largest.draws), len(trained.largest.draws)
    ratio = _absorption(predicted.absorbed(trained.level), trained.absorption)
    return TrainingComparison(steps, curves, ratio, whole, *counts, level, tuple(_notes(predicted, trained, level)))


def _check(predicted: PredictedTraining, trained: TrainedMembers, level: float) -> None:
    where = "compare"
    if predicted.network.classes != trained.classes:
        expected = f"trained networks with {predicted.network.classes} classes, like the prediction"
        hint = f"fg.predict_training(…, classes={trained.classes})"
        raise InvalidInput(expected, got=f"{trained.classes} classes", where=where, hint=hint)
    points = predicted.provenance.get("points"), trained.provenance.get("points")
    if None not in points and points[0] != points[1]:
        raise InvalidInput(f"training on the {points[0]} points of the prediction", got=f"{points[1]}", where=where)
    if len(np.intersect1d(predicted.steps, trained.steps)) < 2:
        got = f"steps up to {predicted.steps[-1]} and {trained.steps[-1]}, in common only the start"
        raise InvalidInput("steps that both were looked at", got=got, where=where, hint="the same steps= for both")
    expected, hint = f"a level from {_LEAST:g} to 1", f"level={LEVEL:g}"
    checks.within(level, expected, "compare(level)", hint, low=_LEAST, high=1, closed=True)


def _pairs(predicted: PredictedTraining, trained: TrainedMembers) -> Iterator[tuple[str, Curve, Curve]]:
    loss = not _other_loss(trained)
    yield from _of(predicted.curves, trained.curves, "", loss=loss)
    if predicted.test is not None and trained.test is not None:
        yield from _of(predicted.test, trained.test, ", held out", loss=loss)


def _other_loss(trained: TrainedMembers) -> str:
    """Why losses are not compared; empty if they are."""
    loss = trained.provenance.get("loss", "cross-entropy")
    if loss == "squared" and trained.classes == 2:
        return "losses are not compared: of two classes only the difference of their logits is predicted"
    if loss not in ("cross-entropy", "squared"):
        return f"losses are not compared: the trained one is {loss}"
    return ""


def _of(one: Curves, other: Curves, where: str, *, loss: bool) -> Iterator[tuple[str, Curve, Curve]]:
    yield f"largest share{where}", one.largest, other.largest
    yield f"accuracy{where}", one.accuracy, other.accuracy
    for group, words in ((FAVOURED, "favoured class"), (OTHERS, "other classes")):
        yield f"accuracy, {words}{where}", one.accuracy[group], other.accuracy[group]
    if loss:
        yield f"loss{where}", one.loss, other.loss


def _absorption(predicted: Absorption, trained: Absorption) -> AbsorptionRatio:
    """Medians of both, their ratio, and what it is over resampled networks."""

    def ratio(top: Array, bottom: Array) -> Array:
        known = np.isfinite(bottom) & (bottom > 0) & ~np.isnan(top)
        return np.where(known, top / np.where(known, bottom, 1.0), math.nan)

    rng = np.random.default_rng(_SEED)
    medians = [
        np.quantile(rng.choice(law.draws, (_RESAMPLES, len(law.draws))), 0.5, axis=1, method="inverted_cdf")
        for law in (predicted, trained)
    ]
    value = float(ratio(np.array([trained.median]), np.array([predicted.median]))[0])
    drawn = ratio(medians[1], medians[0])
    drawn = drawn[~np.isnan(drawn)]
    known = math.isfinite(value) and len(drawn) > 0
    ends = np.quantile(drawn, [0.025, 0.975], method="inverted_cdf") if known else (math.nan, math.nan)
    low, high = float(ends[0]), float(ends[1])
    return AbsorptionRatio(trained.level, predicted.median, trained.median, value if known else math.nan, low, high)


def _notes(predicted: PredictedTraining, trained: TrainedMembers, level: float) -> Iterator[str]:
    counts = len(predicted.largest.draws), len(trained.largest.draws)
    if math.comb(sum(counts), min(counts)) < 1.0 / level:
        yield f"too few networks to disagree at a level of {level:g}: only the numbers say something"
    if predicted.trust is not None and predicted.trust.word != "good":
        yield f"the prediction says itself how far to trust it: {predicted.trust}"
    one, other = (run.provenance.get("optimizer") for run in (predicted, trained))
    if one != other:
        yield f"predicted for {one}, trained by {other}"
    if why := _other_loss(trained):
        yield why
    if (trained.start == "any") != (predicted.drawn in (0, counts[0])):
        yield "starts were chosen in another way: give start= to both"
    if trained.diverged:
        lost = f"{len(trained.diverged)} of {counts[1]} trainings diverged"
        yield f"{lost}, which no prediction does: they count until then"
    if trained.interrupted:
        yield "training was interrupted: later steps have fewer networks"


def _cells(curve: CurveDifference) -> tuple[str, str, str, str, str]:
    at = curve.at
    if at < 0:
        return curve.name, "", "none", "none", ""
    predicted = with_error(float(curve.predicted[at]), float(curve.predicted_se[at]))
    trained = with_error(float(curve.trained[at]), float(curve.trained_se[at]))
    return curve.name, spaced(curve.steps[at]), predicted, trained, f"{deviation(float(curve.z[at]))} s.e."


def _steps(number: float) -> str:
    return f"{number:,.3g}".replace(",", " ") if math.isfinite(number) else "not reached"
