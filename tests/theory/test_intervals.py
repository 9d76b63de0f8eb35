"""Intervals of guess fractions: how often they hold, what they never depend on, and one initialization without any."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import firstguess as fg
from firstguess.base import statistics
from firstguess.theory.shares import empirical
from firstguess.theory.shares.empirical import EmpiricalGuesses
from firstguess.theory.shares.gaussian import Guesses

SEED = 20261116
POINTS = 1000
FALSE_ALARM = 1e-6 / 200  # of all checks of coverage in this file


def holds_as_often_as_said(hits: list[bool]) -> None:
    """A share of 93 to 97 %: neither end is so far off that the number of hits has a chance below FALSE_ALARM."""
    number, seen = len(hits), sum(hits)
    assert stats.binom.cdf(seen, number, 0.93) > FALSE_ALARM, f"{seen} of {number}"
    assert stats.binom.sf(seen - 1, number, 0.97) > FALSE_ALARM, f"{seen} of {number}"


def held(rows: np.ndarray, points: int, std: float, largest: float) -> tuple[list[bool], list[bool]]:
    """Whether the intervals of rows (repetitions, inits, classes) hold the truth: of std, and of E max."""
    seen = [EmpiricalGuesses(one, points) for one in rows]
    one, two = ([g.interval(what) for g in seen] for what in ("std", "expected_max"))
    return [low <= std <= high for low, high in one], [low <= largest <= high for low, high in two]


@pytest.mark.slow
@pytest.mark.parametrize("inits", [20, 100])
@pytest.mark.parametrize("classes", [2, 10])
@pytest.mark.parametrize("gamma", [0.47, 18.0, 300.0, 2000.0])
def test_intervals_hold_for_the_law(gamma: float, classes: int, inits: int) -> None:
    """1 000 ensembles of members drawn from theory.md (8), at 1 000 points; truth by (6) to (8)."""
    distribution = Guesses(gamma, classes, POINTS)
    for hits in held(
        distribution.sample(1000 * inits, SEED).reshape(1000, inits, -1),
        POINTS,
        distribution.std(),
        distribution.expected_max(),
    ):
        holds_as_often_as_said(hits)
    rng = np.random.default_rng(SEED)
    nodes, shape = classes - 1, (inits, 1000)  # logits centred over classes: theory.md (38)
    spread = rng.chisquare(nodes * (POINTS - 1), shape) / (nodes * (POINTS - 1))
    center = (gamma + 1 / POINTS) * rng.chisquare(nodes, shape) / nodes - spread / POINTS
    found = statistics.ratios(center, spread)
    holds_as_often_as_said(((found.low <= gamma) & (gamma <= found.high)).tolist())


def of_a_mixture(gammas: Callable[[np.random.Generator, int], np.ndarray], shift: float, size: int) -> np.ndarray:
    """Two classes, members with a γ of their own, class 0 preferred by `shift` standard deviations of a center."""
    rng = np.random.default_rng(SEED)
    gamma = gammas(rng, size)
    share = stats.norm.cdf(np.sqrt(gamma / 2) * (rng.standard_normal((size, 2)) @ [1, -1] + shift))
    counts = rng.binomial(POINTS, share)
    return np.stack([counts, POINTS - counts], axis=1) / POINTS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gammas", "shift"),
    [
        (lambda rng, size: 5.0 * np.exp(2.0 * rng.standard_normal(size)), 0.0),
        (lambda rng, size: np.where(rng.random(size) < 0.5, 0.1, 1000.0), 0.0),
        (lambda rng, size: np.ones(size), 1.5),
        (lambda rng, size: np.where(rng.random(size) < 0.1, 1e6, 0.05), 0.0),
    ],
)
def test_intervals_hold_for_networks_that_do_not_follow_the_law(
    gammas: Callable[[np.random.Generator, int], np.ndarray], shift: float
) -> None:
    """100 initializations; what is reached with 20 is in docs/intervals.md. Truth: the 400 000 members resampled."""
    many = of_a_mixture(gammas, shift, 400_000)
    rows = many[np.random.default_rng(SEED).integers(0, len(many), (1000, 100))]
    for hits in held(rows, POINTS, math.sqrt(many.var(axis=0).mean()), float(many.max(axis=1).mean())):
        holds_as_often_as_said(hits)


@pytest.mark.slow
@pytest.mark.parametrize("network", ["dense > relu > dense", "12 x [dense(weight_var=2) > relu] > dense"])
def test_intervals_hold_for_real_networks(network: str) -> None:
    """400 ensembles of 20 networks of width 30; truth: all 8 000. Their average is 1/20 of an interval's width."""
    many = fg.measure(network, fg.data.blob(200, 20), width=30, inits=8000, probe="output").guesses.fractions
    rows = many.reshape(400, 20, -1)
    for hits in held(rows, 200, math.sqrt(many.var(axis=0).mean()), float(many.max(axis=1).mean())):
        holds_as_often_as_said(hits)


@pytest.mark.parametrize("gamma", [0.01, 0.47, 3.0, 18.0, 300.0])
def test_variances_of_two_classes(gamma: float) -> None:
    """max = ½ + |G − ½|, so Var max = Var G − (E max − ½)²: the table is within 2 % of it."""
    distribution = Guesses(gamma)
    mean = 2 * distribution.expected_max() - 1
    ours = empirical._variance(empirical._table(empirical._LARGEST, 2), mean, 1 - mean)
    assert ours == pytest.approx(4 * distribution.var() - mean**2, rel=0.02)


@pytest.mark.parametrize("classes", [4, 10, 60])
def test_variances_of_many_classes(classes: int) -> None:
    """From members: a variance of n numbers has a relative error of √((κ − 1)/n); 5 of them, and 5 % for the table."""
    for gamma in (0.3, 3.0, 30.0):
        distribution = Guesses(gamma, classes)
        rows, room = distribution.sample(4000, SEED), 1 - 1 / classes
        for table, x in (
            (empirical._LARGEST, (rows.max(axis=1) - 1 / classes) / room),
            (empirical._SQUARES, np.square(rows - 1 / classes).sum(axis=1) / room),
        ):
            mean = (
                (distribution.expected_max() - 1 / classes) / room
                if table is empirical._LARGEST
                else distribution.var() * classes / room
            )
            error = math.sqrt((stats.kurtosis(x, fisher=False) - 1) / len(x))
            ours = empirical._variance(empirical._table(table, classes), mean, 1 - mean)
            assert abs(x.var() / ours - 1) < 5.5 * error + 0.05


def test_law_of_a_few_jumps() -> None:
    """Against a plain simulation: a Poisson number of Φ(−x), x uniform up to 6. Five standard errors of 20 000 sums."""
    rng = np.random.default_rng(SEED)
    mean, size = 0.8, 20_000
    number = rng.poisson(mean * math.sqrt(2 * math.pi) * 6, size)
    jumps = stats.norm.cdf(-6 * rng.random(number.sum()))
    sums = np.bincount(np.repeat(np.arange(size), number), jumps, minlength=size)
    distribution = empirical._compound(mean)
    for at in (0.1, 0.5, 1.0, 2.0):
        share = np.interp(at * empirical._BINS, np.arange(len(distribution)) + 0.5, distribution)
        assert abs((sums <= at).mean() - share) < 5.5 * math.sqrt(share * (1 - share) / size) + 0.002  # of one bin
    assert distribution[-1] == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("classes", [2, 3, 50, 2000])
@pytest.mark.parametrize("inits", [2, 3, 7, 30])
def test_intervals_make_sense_everywhere(classes: int, inits: int) -> None:
    """They hold the estimate, stay where a truth can be, widen with the level, and the order of members is nothing."""
    rng = np.random.default_rng([SEED, classes, inits])
    for gamma in (0.0, 0.01, 1.0, 30.0, 1e4, math.inf):
        for points in (1, 10, 1000):
            rows = Guesses(gamma, classes, points).sample(inits, int(rng.integers(2**31)))
            seen = EmpiricalGuesses(rows, points)
            for what, value, least, most in (
                ("expected_max", seen.expected_max(), 1 / classes, 1.0),
                ("std", seen.std(), 0.0, max(seen.std(), math.sqrt((1 - 1 / classes) / classes))),
            ):
                low, high = seen.interval(what)
                assert least - 1e-12 <= low <= value + 1e-12
                assert value - 1e-12 <= high <= most + 1e-12
                wide = seen.interval(what, level=0.99)
                assert wide[0] <= low + 1e-6
                assert high - 1e-6 <= wide[1]
                mixed = EmpiricalGuesses(rows[rng.permutation(inits)], points, seed=0)
                assert mixed.interval(what) == pytest.approx((low, high), rel=1e-9, abs=1e-12)


def test_members_that_hardly_vary_are_known_well() -> None:
    """No assumption: each member gives 0.97 ± 0.001 to a class of its own; the interval is that of a mean."""
    rng = np.random.default_rng(SEED)
    largest = 0.97 + 0.001 * rng.standard_normal(20)
    rows = np.full((20, 4), 0.0)
    rows[np.arange(20), np.arange(20) % 4] = largest
    rows[np.arange(20), (np.arange(20) + 1) % 4] = 1 - largest
    low, high = EmpiricalGuesses(rows, POINTS).interval("expected_max")
    assert high - low == pytest.approx(2 * 2.093 * largest.std(ddof=1) / math.sqrt(20), rel=0.2)


def test_order_of_members_does_not_change_gamma() -> None:
    rng = np.random.default_rng(SEED)
    x, y = rng.chisquare(2, (2, 30, 3))
    order = rng.permutation(30)
    one, two = statistics.ratios(x, y), statistics.ratios(x[order], y[order])
    assert two.low == pytest.approx(one.low, rel=1e-9)
    assert two.high == pytest.approx(one.high, rel=1e-9)


@pytest.mark.usefixtures("one_thread")
def test_one_initialization_says_that_it_has_no_interval() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    m = fg.measure(model, torch.randn(60, 8), inits=1)
    d = fg.diagnose(model, torch.randn(60, 8), inits=1, seconds=2, advice=False)
    for text in (str(m), m._repr_html_(), str(d)):
        assert "no interval from one initialization" in " ".join(text.split())  # wherever the line is broken
        assert "nan to nan" not in text
        assert "± nan" not in text
    data = json.loads(json.dumps(m.to_dict()))
    assert data["std_interval"] is None
    assert data["expected_max_interval"] is None
    assert data["layers"][0]["low"] is None
    assert d.to_dict()["verdict"]["low"] is None
    back = fg.Measurement.from_dict(data)
    assert math.isnan(back.layers[0].low)
    assert str(back) == str(m)
    assert "nan" not in str(fg.compare(fg.predict("dense > relu > dense", classes=3), m)).replace(
        "                 nan", ""
    )
