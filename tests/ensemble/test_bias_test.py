"""Is there bias at all? The test's false-alarm rate and its power, on outputs drawn by plain arithmetic."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from diagnoses import layer, measurement
from scipy import stats

import firstguess as fg
from firstguess.ensemble.measurement import LEVEL, bias_test, layer_measurements
from firstguess.ensemble.member_statistics import BETWEEN, MEAN, SPREAD, ProbedLayer


def p_value(rng: np.random.Generator, inits: int, classes: int, points: int, dim: int, gamma: float = 0.0) -> float:
    """A linear classifier of fresh weights on a fresh blob whose points share a direction by γ."""
    x = rng.standard_normal((points, dim))
    x = np.concatenate([x, np.full((points, 1), math.sqrt(gamma * dim))], axis=1)
    logits = (x @ rng.standard_normal((dim + 1, inits * classes))).reshape(points, inits, classes)
    logits -= logits.mean(axis=2, keepdims=True)
    mean, variance = logits.mean(axis=0), logits.var(axis=0, ddof=1)
    numbers = np.zeros((inits, 1, 4))
    numbers[:, 0, MEAN] = mean.mean(axis=1)
    numbers[:, 0, BETWEEN] = (mean**2 - variance / points).mean(axis=1) - mean.mean(axis=1) ** 2
    numbers[:, 0, SPREAD] = variance.mean(axis=1)
    (output,) = layer_measurements([ProbedLayer("head", "Linear", classes, True)], numbers, 0)
    return bias_test(output, inits, points).p_value


def allowed(count: int, rate: float) -> int:
    """Alarms that `count` tests of this rate exceed once in 10⁶."""
    return int(stats.binom.isf(1e-6, count, rate))


@pytest.mark.parametrize(
    ("inits", "classes", "dim"), [(64, 2, 20), (64, 10, 5), (20, 2, 5), (20, 10, 20), (6, 2, 20), (6, 10, 20)]
)
def test_false_alarms_are_as_rare_as_stated(inits: int, classes: int, dim: int) -> None:
    """1 %, up to 1.5 % as only two moments are matched. γ's own interval is blind to the points' luck: 8 to 36 %."""
    rng, count = np.random.default_rng(7), 400
    alarms = sum(p_value(rng, inits, classes, 80, dim) < LEVEL for _ in range(count))
    assert alarms <= allowed(count, 1.5 * LEVEL)


@pytest.mark.parametrize(("inits", "classes", "gamma"), [(64, 2, 0.05), (64, 10, 0.05), (20, 2, 0.1), (6, 2, 1.0)])
def test_bias_is_seen(inits: int, classes: int, gamma: float) -> None:
    rng, count = np.random.default_rng(8), 60
    seen = sum(p_value(rng, inits, classes, 200, 20, gamma) < LEVEL for _ in range(count))
    assert seen >= stats.binom.ppf(1e-6, count, 0.8)


@pytest.mark.slow
@pytest.mark.parametrize(
    "net",
    ["3 x [dense > tanh] > dense", "2 x [dense > tanh > layernorm] > dense", "2 x [dense > relu > batchnorm] > dense"],
)
def test_false_alarms_of_real_networks(net: str) -> None:
    """Odd networks and BatchNorm after have γ = 0 at any width (theory.md §2, §12); 250 blobs, 64 networks each."""
    count = 250
    alarms = sum(
        bool(fg.measure(net, fg.data.blob(100, 20, seed=i), inits=64, width=30, seed=i).bias_test.found)
        for i in range(count)
    )
    assert alarms <= allowed(count, 1.5 * LEVEL)


def test_what_cannot_be_tested_is_not() -> None:
    one = measurement(inits=1)
    seen = replace(one, layers=(layer("4", "Linear", 2.0, spread_se=math.nan),))
    assert seen.bias_test.found is None
    assert replace(one, layers=()).bias_test.found is None
    assert "at all" not in str(replace(one, layers=()))
    assert replace(measurement(), ties=0.9).bias_test.found is None


def test_the_answer_is_in_the_page_and_in_json() -> None:
    m = fg.measure("dense(weight_var=2) > relu > dense", fg.data.blob(100, 20), inits=20, width=50)
    assert m.bias_test.found
    assert "bias detectable?" in str(m)
    assert m.to_dict()["bias_test"]["found"] is True
    none = fg.measure("dense > relu > batchnorm > dense", fg.data.blob(100, 20), inits=20, width=50)
    assert none.bias_test.found is False
    assert "no: γ is not above 0 at the 1 % level (p = 1)" in str(none)


@pytest.mark.parametrize("seed", range(5))
def test_an_interval_of_gamma_reaches_below_0_only_where_gamma_does(seed: int) -> None:
    """Heavy tails, as a spectral norm that is not converged has: −5.7 to 32 was printed for γ = 1."""
    rng = np.random.default_rng(seed)
    numbers = np.zeros((10, 2, 4))
    numbers[:, 0, SPREAD] = rng.standard_cauchy(10) ** 2
    numbers[:, 0, BETWEEN] = rng.standard_cauchy(10) ** 2
    numbers[:, 1, SPREAD] = 1.0
    numbers[:, 1, BETWEEN] = -0.01 + 0.001 * rng.standard_normal(10)
    heavy, level = layer_measurements([ProbedLayer(name, "Linear", 4, True) for name in "ab"], numbers, 0)
    assert 0.0 <= heavy.low < heavy.gamma < heavy.high
    assert 0.0 <= heavy.correlation_interval[0] <= heavy.correlation
    assert level.low < level.gamma < level.high < 0.0
