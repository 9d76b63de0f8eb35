"""Predicted training compared with real training: numbers by a plain loop, false alarms, refusals, words."""

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import firstguess as fg
from firstguess.base.statistics import permutation_test
from firstguess.data import two_blobs
from firstguess.diagnosis.training_comparison import TrainingComparison
from firstguess.ensemble.trained import TrainedMembers
from firstguess.theory.training.curves import Accuracy, Curve, Curves

NET = "dense(weight_var=2) > relu > dense(weight_var=2)"
DATA = two_blobs(40, 20)
OPTIONS = {"data": DATA, "lr": 0.01, "steps": 100, "width": 100}


def as_trained(t, *, steps=None, shift=0.0, **changes):
    """A result of training with the curves of a prediction: the same distribution in other hands."""
    keep = np.arange(len(t.steps)) if steps is None else np.flatnonzero(np.isin(t.steps, steps))

    def cut(curve):
        return Curve(curve.steps[keep], curve.draws[:, keep])

    def moved(curves):
        groups = {name: draws[:, keep] for name, draws in curves.accuracy.groups.items()}
        accuracy = Accuracy(curves.accuracy.steps[keep], curves.accuracy.draws[:, keep], groups)
        largest = cut(curves.largest)
        return Curves(Curve(largest.steps, largest.draws + shift), accuracy, cut(curves.loss))

    count = len(t.largest.draws)
    own = {
        "what": "it",
        "classes": t.network.classes,
        "curves": moved(t.curves),
        "test": None if t.test is None else moved(t.test),
        "gradients": cut(t.loss),
        "shares": np.zeros((count, len(keep), t.network.classes)),
        "favourites": np.zeros(count, np.int64),
        "members": tuple(range(count)),
        "level": t.level,
        "drawn": count,
        "provenance": {"points": t.provenance["points"], "optimizer": t.provenance["optimizer"]},
    }
    return TrainedMembers(**own | changes)


@pytest.fixture(scope="module")
def pair():
    t = fg.predict_training(NET, **OPTIONS, draws=60, seed=1, test=two_blobs(30, 20, seed=5), trust=False)
    other = fg.predict_training(NET, **OPTIONS, draws=25, seed=2, test=two_blobs(30, 20, seed=5), trust=False)
    return t, as_trained(other)


def test_numbers_by_a_plain_loop(pair):
    t, r = pair
    c = fg.compare(t, r)
    assert isinstance(c, TrainingComparison)
    assert [curve.name for curve in c.curves][:5] == [
        "largest share",
        "accuracy",
        "accuracy, favoured class",
        "accuracy, other classes",
        "loss",
    ]
    assert len(c.curves) == 10
    for name, one, other in (
        ("largest share", t.largest, r.largest),
        ("accuracy, other classes", t.accuracy["others"], r.accuracy["others"]),
        ("loss, held out", t.test.loss, r.test.loss),
    ):
        found = c[name]
        for k in range(len(t.steps)):
            a, b = one.draws[:, k], other.draws[:, k]
            difference = b.mean() - a.mean()
            se = math.sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b))
            assert found.difference[k] == pytest.approx(difference, abs=1e-12)
            assert found.se[k] == pytest.approx(se, abs=1e-12)
            assert found.z[k] == pytest.approx(difference / se if se else 0.0, rel=1e-9, abs=1e-9)
        assert found.largest == pytest.approx(max(abs(found.difference)))


def test_absorption_by_a_plain_loop(pair):
    t, r = pair
    found = fg.compare(t, r).absorption

    def median(curve):
        times = []
        for row in curve.draws:
            k = next((k for k, share in enumerate(row) if share <= found.level), None)
            if k is None:
                times.append(math.inf)
            elif k == 0:
                times.append(0.0)
            else:
                a, b = float(curve.steps[k - 1]), float(curve.steps[k])
                times.append(a + (row[k - 1] - found.level) / (row[k - 1] - row[k]) * (b - a))
        return sorted(times)[(len(times) - 1) // 2]

    assert found.predicted == pytest.approx(median(t.largest))
    assert found.trained == pytest.approx(median(r.largest))
    assert found.ratio == pytest.approx(found.trained / found.predicted)
    assert found.low <= found.ratio <= found.high


def test_chance_is_that_of_all_deals():
    """Few networks: every deal can be written down."""
    rng = np.random.default_rng(3)
    a, b = rng.exponential(size=(4, 6)), rng.exponential(size=(5, 6)) + 0.6
    a[1, 2:] = np.nan  # diverged
    (first, second), whole = permutation_test([(a[:, :3], b[:, :3]), (a[:, 3:], b[:, 3:])])
    both = np.concatenate([a, b])

    def sizes(chosen):
        out = []
        for column in both.T:
            own = [column[i] for i in chosen if np.isfinite(column[i])]
            rest = [column[i] for i in range(9) if i not in chosen and np.isfinite(column[i])]
            every = [v for v in column if np.isfinite(v)]
            if not own or not rest:
                out.append(0.0)
                continue
            sigma = np.std(every) * math.sqrt(1 / len(own) + 1 / len(rest))
            out.append(abs(np.mean(own) - np.mean(rest)) / sigma)
        return max(out[:3]), max(out[3:])

    seen = sizes(range(4))
    deals = np.array([sizes(chosen) for chosen in itertools.combinations(range(9), 4)])
    for value, exact in (
        (first, np.mean(deals[:, 0] >= seen[0] - 1e-9)),
        (second, np.mean(deals[:, 1] >= seen[1] - 1e-9)),
        (whole, np.mean(deals.max(1) >= max(seen) - 1e-9)),
    ):
        spread = math.sqrt(exact * (1 - exact) / 9999) + 1e-4
        assert abs(value - exact) < 6 * spread


def alarms(trials, level, seed):
    """How often equal networks are said to disagree: shares that fall at a pace of their own, skewed and tied."""
    rng = np.random.default_rng(seed)
    steps = np.arange(12)

    def curves(count):
        start, pace = rng.beta(0.5, 0.5, (count, 1)), rng.exponential(1.0, (count, 1))
        share = np.round(40 * (0.5 + abs(start - 0.5) * np.exp(-pace * steps / 4))) / 40
        return share, 1.0 - share

    found = 0
    for _ in range(trials):
        one, other = curves(30), curves(8)
        found += permutation_test(list(zip(one, other, strict=True)))[1] < level
    return found


def test_few_false_alarms():
    found = alarms(60, 0.05, 11)
    assert stats.binom.sf(found - 1, 60, 0.05) > 1e-6


@pytest.mark.slow
def test_false_alarms_are_as_many_as_stated():
    found = alarms(1500, 0.05, 12)
    assert stats.binom.sf(found - 1, 1500, 0.05) > 1e-6
    assert stats.binom.cdf(found, 1500, 0.035) > 1e-6  # ties make it a little less


def test_the_same_law_agrees_and_another_does_not(pair):
    """That three pairs of one distribution all disagree at 1 % has a chance of 1e-6."""
    t, r = pair
    again = [
        [fg.predict_training(NET, **OPTIONS, draws=40, seed=seed + k, trust=False) for k in (0, 1)] for seed in (20, 30)
    ]
    laws = [(t, r), *((one, as_trained(other)) for one, other in again)]
    assert any(fg.compare(one, other, level=0.01).agrees for one, other in laws)
    other = fg.predict_training(NET, **{**OPTIONS, "lr": 0.003}, draws=60, seed=2, trust=False)
    assert not fg.compare(t, as_trained(other)).agrees
    assert "disagree" in str(fg.compare(t, as_trained(other)))


def test_only_common_steps_are_compared(pair):
    t, r = pair
    few = as_trained(t, steps=[0, 5, 100])
    assert fg.compare(t, few).steps.tolist() == [0, 5, 100]
    with pytest.raises(fg.InvalidInput, match="steps that both"):
        fg.compare(t, as_trained(t, steps=[0]))
    with pytest.raises(fg.InvalidInput, match="2 classes"):
        fg.compare(t, replace(r, classes=3))
    with pytest.raises(fg.InvalidInput, match="points"):
        fg.compare(t, replace(r, provenance={"points": 3}))
    with pytest.raises(fg.InvalidInput, match="level"):
        fg.compare(t, r, level=1e-9)
    with pytest.raises(fg.InvalidInput, match="Measurement"):
        fg.compare(r, t)


def test_what_it_says(pair):
    t, r = pair
    c = fg.compare(t, r)
    text = str(c)
    assert text.splitlines()[0].startswith(
        ("Predicted and real training agree", "Predicted and real training disagree")
    )
    assert "60 predicted and 25 trained networks" in text
    assert "in the median" in text
    assert max(len(line) for line in text.splitlines()) <= 120
    assert "largest share" in c._repr_html_()
    data = json.loads(json.dumps(c.to_dict(), allow_nan=False))
    assert data["agrees"] is c.agrees
    assert data["curves"][0]["difference"] == pytest.approx(c.curves[0].difference.tolist())
    lost = replace(r, diverged=((3, 5),), interrupted=True, start="biased", provenance={"optimizer": "adam"})
    notes = " ".join(fg.compare(t, lost).notes)
    assert "diverged" in notes
    assert "interrupted" in notes
    assert "trained by adam" in notes
    assert "start=" in notes
    one = as_trained(replace(t, curves=_first(t.curves), test=None))
    assert "too few networks" in str(fg.compare(t, one))
    mine = replace(r, provenance={**r.provenance, "loss": "my_loss"})
    assert "my_loss" in str(fg.compare(t, mine))
    assert all("loss" not in curve.name for curve in fg.compare(t, mine).curves)


def _first(curves):
    groups = {name: draws[:1] for name, draws in curves.accuracy.groups.items()}
    steps = curves.largest.steps
    accuracy = Accuracy(steps, curves.accuracy.draws[:1], groups)
    return Curves(Curve(steps, curves.largest.draws[:1]), accuracy, Curve(steps, curves.loss.draws[:1]))


def test_constant_curves_do_not_matter():
    """All networks alike at some step: no difference, and no division by it."""
    a, b = np.ones((5, 2)), np.ones((7, 2))
    assert permutation_test([(a, b)]) == ([1.0], 1.0)


def test_trainings_that_diverged_are_said_and_only_they(pair):
    predicted, _ = pair
    calm = fg.compare(predicted, as_trained(predicted))
    lost = fg.compare(predicted, as_trained(predicted, diverged=((0, 3), (4, 7))))
    assert not any("diverged" in note for note in calm.notes)
    assert any(f"2 of {len(predicted.largest.draws)} trainings diverged" in note for note in lost.notes)
