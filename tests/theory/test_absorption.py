"""The closed form of training: golden numbers of theory.md §7, limits on paper, and the kernel on blobs."""

import numpy as np
import pytest
from scipy import special
from scipy.integrate import solve_ivp

import firstguess as fg
from firstguess.data import two_blobs
from firstguess.network.network import Network
from firstguess.theory.training.absorption import Tangent, absorption_of, floor, scalar_tangent, softening, steps_to

KAIMING = "dense(weight_var=2)"


def network(depth: int, inner: str) -> Network:
    return Network.parse(f"{depth} x [{KAIMING} > {inner}] > {KAIMING}")


@pytest.mark.parametrize(
    ("depth", "inner", "golden"),
    [
        (1, "relu", (1784, 318.30989, 892)),
        (3, "relu", (3784, 1060.3881, 869.29855)),
        (20, "relu", (20784, 6487.3272, 636.84815)),
        (3, "layernorm > relu", (1892, 530.19405, None)),
        (3, "batchnorm > relu", (2577.0235, 159.15494, None)),
    ],
)
def test_golden_numbers(depth, inner, golden):
    t = scalar_tangent(network(depth, inner), dimension=784, width=1000)
    for got, known in zip((t.diagonal, t.off, t.signal), golden, strict=True):
        if known is not None:
            assert got == pytest.approx(known, rel=1e-6)


def test_golden_number_at_the_edge():
    edge = fg.edge_of_chaos("tanh", bias_var=0.1)
    text = f"dense(weight_var={edge!r}, bias_var=0.1)"
    t = scalar_tangent(Network.parse(f"10 x [{text} > tanh] > {text}"), dimension=784, width=1000)
    assert (t.diagonal, t.off) == (pytest.approx(4098.2998, rel=1e-6), pytest.approx(833.05342, rel=1e-6))


@pytest.mark.parametrize(("mean", "spread", "golden"), [(2.0, 1.4, 4.840086), (5.0, 0.1, 12.355771)])
def test_golden_time(mean, spread, golden):
    slow = 1e-9  # so that steps are the flow
    assert float(steps_to(0.6, np.array([mean]), spread, slow)[0]) * slow == pytest.approx(golden, rel=1e-6)


@pytest.mark.parametrize(("mean", "spread", "level"), [(2.0, 1.4, 0.6), (0.9, 0.5, 0.7), (8.0, 3.0, 0.55)])
def test_the_time_solves_the_equation_of_the_mean(mean, spread, level):
    """ṁ = −2(Eσ − ½) with σ's average as σ(m/κ): the integral that (16) is."""
    kappa = softening(spread)
    target = spread * float(special.ndtri(level))

    def hit(t, m):
        return m[0] - target

    hit.terminal = True
    flow = solve_ivp(lambda t, m: -np.tanh(m / (2 * kappa)), (0, 1e4), [mean], events=hit, rtol=1e-10, atol=1e-12)
    assert float(steps_to(level, np.array([mean]), spread, 1e-9)[0]) * 1e-9 == pytest.approx(
        flow.t_events[0][0], rel=1e-6
    )


@pytest.mark.parametrize(("mean", "prior"), [(2.0, 0.45), (2.0, 0.55), (-2.0, 0.55), (-3.0, 0.8), (60.0, 0.3)])
def test_uneven_labels_by_the_equation_of_the_mean(mean, prior):
    """ṁ = −2(σ(m/κ) − prior), by an integrator."""
    spread, level = 1.4, 0.6
    kappa = softening(spread)
    target = np.sign(mean) * spread * float(special.ndtri(level))

    def hit(t, m):
        return m[0] - target

    hit.terminal = True
    flow = solve_ivp(
        lambda t, m: -2 * (special.expit(m / kappa) - prior), (0, 1e4), [mean], events=hit, rtol=1e-10, atol=1e-12
    )
    assert float(steps_to(level, np.array([mean]), spread, 1e-9, prior)[0]) * 1e-9 == pytest.approx(
        flow.t_events[0][0], rel=1e-6
    )


def test_uneven_labels_may_keep_a_network_above_the_level():
    """At rest the mean is κ·logit(prior): at spread 1 and prior 0.6 Φ(0.479) = 0.684 of the guesses."""
    rest = softening(1.0) * special.logit(0.6)
    assert special.ndtr(rest) == pytest.approx(0.684, abs=1e-3)
    for level, kept in ((0.68, True), (0.69, False)):
        one, other = steps_to(level, np.array([3.0, -3.0]), 1.0, 1e-3, 0.6)
        assert np.isinf(one) == kept
        assert np.isfinite(other)
    with pytest.raises(fg.InvalidInput, match="share of labels"):
        steps_to(0.6, np.array([1.0]), 1.0, 1e-3, 1.0)
    with pytest.raises(fg.NotCovered, match="two classes"):
        fg.predict("dense > relu > dense", classes=3).absorption(lr=1e-6, prior=0.4)


def test_discrete_steps_near_even_are_counted_one_by_one():
    """Near even (16) is linear: m shrinks by 1 − ρ a step, ρ = ηλ/2κ; (16) divides by −ln(1 − ρ)/ρ with κ → 1."""
    spread, rate = 1e-3, 0.8
    m0, level = 2e-3, 0.6
    target = spread * 0.2533471031357997
    counted = np.log(target / m0) / np.log(1 - rate / 2)
    assert float(steps_to(level, np.array([m0]), spread, rate)[0]) == pytest.approx(counted, rel=1e-3)


def test_the_kernel_of_many_blob_points_has_these_numbers():
    """θ_off and the bias mode of 800 points: in standard errors of the mean over pairs (false alarm 1e-6: 4.9)."""
    d, width = 300, 500
    data = two_blobs(400, d)
    t = scalar_tangent(network(3, "relu"), dimension=d, width=width)
    p = fg.predict(network(3, "relu"), data=data, tangent=True, width=width, draws=1)
    assert p.tangent is not None
    assert p.covariance is not None
    off = p.tangent[~np.eye(800, dtype=bool)].reshape(800, 799).mean(axis=1)
    se = off.std(ddof=1) / np.sqrt(800) * 2  # rows share points
    assert abs(off.mean() - t.off) < 4.9 * se + 0.01 * t.off  # blobs at ±1/√d are not quite i.i.d.
    labels = 2.0 * np.asarray(data.y) - 1
    signal = labels @ p.tangent @ labels / 800**2
    assert signal == pytest.approx(t.signal_mode(800), rel=0.15)
    assert p.covariance.shape == (800, 800)


def test_signal_passes_a_batchnorm():
    """BatchNorm takes off what is common; what tells two classes apart it only rescales: against the kernel."""
    d, width = 200, 400
    data = two_blobs(300, d)
    net = Network.parse(f"{KAIMING} > batchnorm > relu > {KAIMING}")
    t = scalar_tangent(net, dimension=d, width=width)
    p = fg.predict(net, data=data, tangent=True, width=width, draws=1)
    assert p.tangent is not None
    labels = 2.0 * np.asarray(data.y) - 1
    assert labels @ p.tangent @ labels / 600**2 == pytest.approx(t.signal_mode(600), rel=0.2)


def test_absorption_is_a_law_over_starts():
    p = fg.predict("3 x [dense(weight_var=2) > relu] > dense(weight_var=2)")
    found = p.absorption(lr=1e-4, dimension=784)
    t = scalar_tangent(network(3, "relu"), dimension=784)
    drawn = np.random.default_rng(0).normal(0, np.sqrt(2 * t.q_ab), 200_000)
    spread = np.sqrt(2 * (t.q - t.q_ab))
    again = steps_to(0.6, drawn, spread, 1e-4 * t.off)
    se = 1.2533 * again.std() / np.sqrt(len(drawn))
    assert abs(np.median(again) - found.median) < 6 * se + 0.1
    assert np.mean(again == 0) == pytest.approx(np.mean(found.draws == 0), abs=5e-3)
    assert p.bias_to_signal > 100


def test_a_network_without_bias_has_nothing_to_absorb():
    p = fg.predict("2 x [dense > tanh] > dense")
    assert p.absorption(lr=1e-4).quantile(0.999) == 0.0


def test_refusals():
    with pytest.raises(fg.InvalidInput, match=r"above 0\.333"):
        fg.predict("dense > relu > dense", classes=3).absorption(lr=1e-6, level=0.3)
    with pytest.raises(fg.InvalidInput, match=r"above 0\.5"):
        fg.predict("dense > relu > dense").absorption(lr=1e-6, level=0.4)
    with pytest.raises(fg.InvalidInput, match="overshoot"):
        fg.predict("dense > relu > dense").absorption(lr=10.0)
    with pytest.raises(fg.NotCovered, match="residual"):
        fg.predict("dense > residual[batchnorm > relu > dense] > dense").absorption(lr=1e-3)
    with pytest.raises(fg.NotCovered, match="kernel reading"):
        fg.predict("dense > relu > dense", data=two_blobs(5, 3), draws=1).absorption(lr=1e-3)


def test_the_floor_of_mini_batches():
    assert floor(0.1, 1.0, 100, 100) == 0.5  # full batches leave none
    assert floor(0.1, 0.01, 10, None) == pytest.approx(0.5 + np.arctan(np.sqrt(0.1 / 10 / (1 - 0.025)) / 0.01) / np.pi)
    assert np.isnan(floor(5.0, 1.0, 10, None))
    even = Tangent(2.0, 0.0, 10.0, 1.0, 1.0, 10)
    assert absorption_of(even, lr=1e-3, level=0.6).quantile(1.0) == 0.0


@pytest.mark.parametrize("classes", [2, 10])
def test_a_network_without_a_bias_has_none_to_absorb(classes):
    """λ_b = 0 was divided by. tanh without biases has no common part: the largest share is even from the start."""
    found = fg.predict("5 x [dense > tanh] > dense", classes=classes).absorption(lr=1e-3)
    assert np.all(found.draws == 0.0)
