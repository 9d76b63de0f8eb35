"""The chain of a few points through many networks, theory.md (41): against expansions, real networks and limits."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import firstguess as fg
from firstguess.base.errors import NotCovered
from firstguess.network.finite_sample import input_gram, lower
from firstguess.theory.finite.expansion import expanded
from firstguess.theory.finite.monte_carlo import SampledPoints, sample_points
from firstguess.theory.shares.gaussian_argmax import agreement_probability
from firstguess.theory.shares.mixture import share_distribution

FAR = 5.5  # standard errors: 4e-8 a comparison


def sampled(text: str, width: int, inputs: fg.Inputs, networks: int = 600, seed: int = 11) -> SampledPoints:
    return sample_points(fg.Network.parse(text), inputs, width, networks=networks, seed=seed)


def test_factor_of_singular_covariances() -> None:
    """More points than directions: the factor still gives the covariance back."""
    x = np.random.default_rng(3).standard_normal((5, 6, 3))
    k = x @ x.transpose(0, 2, 1)
    found = lower(k)
    assert np.allclose(found @ found.transpose(0, 2, 1), k, atol=1e-9)
    assert np.all(np.triu(found, 1) == 0.0)


@pytest.mark.parametrize(("d", "center"), [(40, 0.0), (40, 0.3), (3, 0.0), (3, 0.3)])
def test_overlaps_of_inputs(d: int, center: float) -> None:
    """Bartlett's decomposition against components drawn one by one: mean, variance and the third moment of a pair."""
    rng = np.random.default_rng(8)
    size = 20_000
    found = input_gram(rng, size, 5, center, 1.0, d)
    mean = math.sqrt(center) * np.ones(d)
    drawn = mean + rng.standard_normal((size, 5, d))
    other = drawn @ drawn.transpose(0, 2, 1) / d
    for statistic in (
        lambda k: k[:, 0, 0],
        lambda k: k[:, 4, 4] ** 2,
        lambda k: k[:, 0, 4],
        lambda k: k[:, 3, 4] ** 2,
        lambda k: k[:, 2, 3] * k[:, 3, 4] * k[:, 2, 4],
    ):
        one, two = statistic(found), statistic(other)
        assert abs(one.mean() - two.mean()) < FAR * math.hypot(one.std(), two.std()) / math.sqrt(size)


def test_inputs_with_a_mean() -> None:
    """A linear layer on inputs of mean square 0.4 and 40 dimensions: their common mean does not fluctuate."""
    text = "dense > dense"
    inputs = fg.Inputs(mean_square=0.4, dimension=40)
    few = sampled(text, 400, inputs, networks=2000)
    found, why = expanded(fg.predict(text, inputs=replace(inputs, dimension=None)), inputs, 400, 0.0)
    assert found is not None, why
    assert abs(few.overlap - found.size.overlap) < FAR * few.overlap_error + 2.0 / 40**2
    assert abs(few.variance / found.size.overlap_variance - 1.0) < 0.1
    assert abs(few.differ / found.differ - 1.0) < 0.15


@pytest.mark.parametrize(
    ("body", "width", "dimension"),
    [
        ("relu > layernorm", 100, 300),
        ("relu", 200, 300),
        ("layernorm > relu", 200, 300),
        ("gelu > layernorm", 200, 300),
    ],
)
def test_chain_and_expansion_agree(body: str, width: int, dimension: int) -> None:
    """Mean overlap and its variance at depth 3: within errors, and the next order's estimate."""
    text = f"3 x [dense(weight_var=2) > {body}] > dense(weight_var=2)"
    net, inputs = fg.Network.parse(text), fg.Inputs(dimension=dimension)
    few = sampled(text, width, inputs)
    found, why = expanded(fg.predict(net), inputs, width, 0.0)
    assert found is not None, why
    assert abs(few.overlap - found.size.overlap) < FAR * few.overlap_error + 2e-4
    assert abs(few.variance / found.size.overlap_variance - 1.0) < 0.15
    if found.differ:
        assert abs(few.differ / found.differ - 1.0) < 0.3


def measured(text: str, width: int, d: int, n: int, inits: int, classes: int = 2) -> fg.Measurement:
    rng = np.random.default_rng(5)
    net = fg.Network.parse(text, classes=classes)
    return fg.measure(net, rng.standard_normal((n, d)), inits=inits, width=width, seed=77, probe="output", threads=1)


@pytest.mark.parametrize(
    "body", ["relu > layernorm", "gelu", "centered(relu)", "residual[relu > dense(weight_var=2)] > rmsnorm"]
)
def test_real_networks(body: str) -> None:
    """Standard deviation of G₀ at width 30 on 400 points: 400 real networks."""
    text = f"4 x [dense(weight_var=2) > {body}] > dense(weight_var=2)"
    few = sampled(text, 30, fg.Inputs(dimension=50))
    distribution = share_distribution(few.excess, few.differ, 2, 400)
    seen = measured(text, 30, 50, 400, 400).guesses
    room = few.excess_error / 2 / (2 * distribution.std())
    assert abs(seen.std() - distribution.std()) < FAR * math.hypot(seen.standard_error("std"), room)
    assert abs(seen.expected_max() - distribution.expected_max()) < FAR * math.hypot(
        seen.standard_error("expected_max"), room
    )


@pytest.mark.slow
@pytest.mark.parametrize("body", ["relu", "relu > layernorm", "layernorm > gelu", "tanh > rmsnorm"])
@pytest.mark.parametrize("classes", [2, 10])
def test_many_real_networks(body: str, classes: int) -> None:
    """The same with 2000 networks of depth 8 at width 50, two and ten classes."""
    text = f"8 x [dense(weight_var=2) > {body}] > dense(weight_var=2)"
    p = fg.predict(text, width=50, inputs=fg.Inputs(dimension=100), points=500, classes=classes)
    seen = measured(text, 50, 100, 500, 2000, classes).guesses
    size = p.finite_size
    assert size is not None
    room = math.hypot(size.error, size.next_order)
    assert abs(seen.std() - p.guesses.std()) < FAR * math.hypot(seen.standard_error("std"), room)
    assert not isinstance(p.guesses, fg.EmpiricalGuesses)
    error = math.hypot(seen.standard_error("expected_max"), room, p.guesses.expected_max_error())
    assert abs(seen.expected_max() - p.guesses.expected_max()) < FAR * error


def test_wide_chain_is_the_closed_form() -> None:
    """Infinitely many dimensions and width 2000: γ of the wide limit, to 1/width."""
    text = "2 x [dense(weight_var=2, bias_var=0.1) > tanh] > dense(weight_var=2)"
    few = sampled(text, 2000, fg.Inputs(mean_square=0.2), networks=60)
    infinite = fg.predict(text, inputs=fg.Inputs(mean_square=0.2))
    assert np.allclose([x.gamma for x in few.layers if x.weights], infinite.gamma, rtol=0.03)


def test_compared_by_guesses() -> None:
    """A finite-size prediction compared with networks of that width: it agrees where infinite width does not."""
    text = "5 x [dense(weight_var=2) > relu > layernorm] > dense(weight_var=2)"
    m = measured(text, 30, 50, 300, 400)
    finite = fg.compare(fg.predict(text, width=30, inputs=fg.Inputs(dimension=50)), m)
    assert finite.agrees
    assert [layer.name for layer in finite.layers] == ["γ of the output: dense(weight_var=2)"]  # after a norm
    assert not fg.compare(fg.predict(text), m).agrees


def test_same_networks_for_one_seed() -> None:
    text = "dense > relu > dense"
    inputs = fg.Inputs(dimension=20)
    one, two, other = (sampled(text, 20, inputs, 50, seed=s).overlap for s in (1, 1, 2))
    assert one == two != other


def test_chance_of_one_class() -> None:
    """A(c) against pairs of Gaussian vectors, at both signs; and back."""
    rng = np.random.default_rng(4)
    same = agreement_probability(4)
    for c in (-0.8, -0.3, 0.2, 0.9):
        x, y = rng.standard_normal((2, 200_000, 4))
        y = c * x + math.sqrt(1 - c * c) * y
        share = float(np.mean(x.argmax(1) == y.argmax(1)))
        assert abs(float(same(np.array([c]))[0]) + 0.25 - share) < FAR * 0.5 / math.sqrt(200_000)
    assert abs(same.overlap(float(same(np.array([0.3]))[0])) - 0.3) < 1e-9
    h = 1e-3
    values = same(np.array([-h, 0.0, h]))
    one, two, *_ = same.slopes_at_zero()
    assert abs((values[2] - values[0]) / (2 * h) - one) < 1e-5
    assert abs((values[0] - 2 * values[1] + values[2]) / h**2 - two) < 1e-4


def test_mixture() -> None:
    """Moments of a mixture are those of its draws; the average variance is kept."""
    distribution = share_distribution(0.25, 0.4, 2, None)
    assert isinstance(distribution, fg.MixedGuesses)
    assert abs(distribution.var() - 0.125) < 1e-9
    drawn = distribution.sample(40_000, seed=3)
    error = 0.5 / math.sqrt(40_000)
    assert abs(drawn[:, 0].var() - distribution.var()) < FAR * error
    assert abs(drawn.max(axis=1).mean() - distribution.expected_max()) < FAR * error
    assert abs(float(np.mean(drawn.max(axis=1) > 0.9)) - distribution.prob_max_above(0.9)) < FAR * error
    assert abs(distribution.cdf(distribution.quantile(0.2)) - 0.2) < 1e-9
    counted = fg.MixedGuesses(distribution.gammas, distribution.weights, 2, 50)
    assert abs(float(counted.pmf().sum()) - 1.0) < 1e-9
    assert abs(counted.quantile(0.2) * 50 - round(counted.quantile(0.2) * 50)) < 1e-9
    assert counted.cdf(counted.quantile(0.2)) >= 0.2 > counted.cdf(counted.quantile(0.2) - 0.02)
    one = share_distribution(1 / 6, 0.0, 2, None)
    assert isinstance(one, fg.Guesses)
    assert abs(one.gamma - 1.0) < 1e-12


def test_refused_by_name() -> None:
    for text, what in (
        ("dense > relu > layernorm", "layernorm"),
        ("conv > relu > dense", "conv"),
        ("dense > gated(relu) > dense", "gated"),
    ):
        with pytest.raises(NotCovered, match=what):
            sample_points(fg.Network.parse(text), fg.Inputs(dimension=10), 10, networks=10)


@pytest.mark.parametrize("depth", [1, 3, 20])
def test_sampling_makes_no_drift_ratio_negative(depth: int) -> None:
    """Independent points have a mean overlap of at least 0: what sampling leaves below it is noise, and γ is 0."""
    net = f"{depth} x [dense(weight_var=3, bias_var=1e-6) > sign] > dense"
    for seed in range(3):
        assert (fg.predict(net, width=50, seed=seed).gamma >= 0.0).all()


def test_a_centred_batch_keeps_its_negative_drift_ratio() -> None:
    """BatchNorm leaves −1/(n − 1) as the mean overlap of n points, which is no noise."""
    gamma = fg.predict("dense > tanh > batchnorm > dense", width=30, points=64).gamma
    assert -2.0 / 64 < gamma[-1] < 0.0
