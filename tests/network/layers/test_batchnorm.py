"""BatchNorm over batches: theory.md (5) and NORM's leave-one-out estimator, by quadrature and by drawing batches."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from random_networks import BUILT_IN
from scipy import integrate
from simulated import FUNCTIONS, agrees, forward

import firstguess as fg
from firstguess.network.activations.registry import activation
from firstguess.network.grammar import parse_layers
from firstguess.network.layers import BatchNorm
from firstguess.network.norms import BatchNormed, Estimator
from firstguess.network.signal import Gaussian, Signal

UNIT = Signal(0.0, 0.0, 1.0, distribution=Gaussian())


def by_quad(name: str, batch: int, estimator: Estimator) -> tuple[float, float]:
    """E φ and E φ² by scipy, over the angle in which both densities are cos^{B−3}."""
    phi = activation(name)
    usual = estimator == "usual"
    segment = math.sqrt(batch - 1) if usual else math.sqrt(batch / (batch - 1) * (batch - 2))
    limit = min(math.pi / 2 - 1e-13, 12 / math.sqrt(batch))
    kinks = [f.at / segment for f in phi.features]
    kinks = [math.asin(k) for k in kinks if abs(k) < 1] if usual else [math.atan(k) for k in kinks]
    edges = sorted({-limit, 0.0, limit, *(k for k in kinks if abs(k) < limit)})

    def integral(power: int) -> float:
        def f(alpha: float) -> float:
            u = segment * (math.sin(alpha) if usual else math.tan(alpha))
            return float(phi(np.array(u))) ** power * math.cos(alpha) ** (batch - 3)

        return sum(integrate.quad(f, a, b, epsabs=0, epsrel=1e-11, limit=200)[0] for a, b in pairwise(edges))

    norm = integral(0)
    return integral(1) / norm if not phi.odd else 0.0, integral(2) / norm


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")  # odd parts of 0
@pytest.mark.parametrize("name", [n for n in BUILT_IN if n != "sin"])
@pytest.mark.parametrize(
    ("batch", "estimator"), [(3, "usual"), (16, "usual"), (7, "leave_one_out"), (40, "leave_one_out")]
)
def test_every_activation_against_scipy(name: str, batch: int, estimator: Estimator) -> None:
    out = BatchNormed(batch, estimator).activate(UNIT, activation(name))
    mean, total = by_quad(name, batch, estimator)
    assert out.mean == pytest.approx(mean, rel=1e-10, abs=1e-12 * math.sqrt(total))
    assert out.total == pytest.approx(total, rel=1e-10)
    assert out.between == 0.0


def test_a_wave_in_heavy_tails() -> None:
    """E sin² t' = ½(1 − χ(2)) with the characteristic function of Student's t, 3 degrees: e^{−√3|s|}(1 + √3|s|)."""
    out = BatchNormed(5, "leave_one_out").activate(UNIT, activation("sin"))
    s = 2.0 * math.sqrt(5 / 4)
    want = 0.5 * (1.0 - math.exp(-math.sqrt(3) * s) * (1 + math.sqrt(3) * s))
    assert out.total == pytest.approx(want, rel=1e-8)


@pytest.mark.parametrize("name", ["relu", "tanh"])
@pytest.mark.parametrize("batch", [2, 3, 5, 16])
def test_usual_estimator_against_drawn_batches(name: str, batch: int) -> None:
    """250 replicates of 800 batches; 5.5 standard errors, false alarm < 2e-7 a number."""
    rng = np.random.default_rng(8)
    u = rng.standard_normal((250, 800, batch))
    normed = FUNCTIONS[name]((u - u.mean(2, keepdims=True)) / u.std(2, keepdims=True))
    out = BatchNormed(batch, "usual").activate(UNIT, activation(name))
    agrees(normed[:, :, 0].mean(1), out.mean, what="mean")
    if (name, batch) != ("tanh", 2):  # û = ±1, so tanh² is a constant
        agrees((normed**2).mean((1, 2)), out.total, what="total")
    else:
        assert out.total == pytest.approx(math.tanh(1.0) ** 2, rel=1e-14)


@pytest.mark.parametrize("name", ["relu", "tanh"])
@pytest.mark.parametrize("batch", [7, 8, 16, 64])
def test_leave_one_out_against_drawn_batches(name: str, batch: int) -> None:
    """Student's t needs four moments for a standard error of E relu²: B − 2 > 4. 5.5 standard errors, < 2e-7."""
    rng = np.random.default_rng(9)
    u = rng.standard_normal((250, 800, batch))
    others = u[:, :, 1:]
    value = FUNCTIONS[name]((u[:, :, 0] - others.mean(2)) / others.std(2, ddof=1))
    out = BatchNormed(batch, "leave_one_out").activate(UNIT, activation(name))
    agrees(value.mean(1), out.mean, what="mean")
    if name == "tanh" or batch > 10:
        agrees((value**2).mean(1), out.total, what="total")


def test_leave_one_out_law_is_student() -> None:
    for batch in (5, 9, 33):
        spread = BatchNorm(batch, "leave_one_out").moments(UNIT).spread
        linear = BatchNormed(batch, "leave_one_out").activate(UNIT, activation("linear"))
        assert spread == pytest.approx(batch / (batch - 1) * (batch - 2) / (batch - 4), rel=1e-14)
        assert linear.spread == pytest.approx(spread, rel=1e-9)


def test_estimators_meet_for_large_batches() -> None:
    gammas = [
        fg.predict(f"dense > batchnorm({text}) > relu > dense").gamma[-1]
        for text in ("batch=20000", "batch=20000, estimator=leave_one_out", "")
    ]
    assert gammas[0] == pytest.approx(gammas[2], rel=1e-4)
    assert gammas[1] == pytest.approx(gammas[2], rel=2e-4)


def test_mini_batches_in_a_real_network() -> None:
    """Center and total of the output, statistics over batches of 8: 240 networks of width 200, two layers deep."""
    layers = parse_layers("dense(weight_var=2)")
    want = fg.predict("2 x [dense(weight_var=2) > batchnorm(batch=8) > relu] > dense(weight_var=2)")
    rng = np.random.default_rng(21)
    got = []
    for _ in range(240):
        x = rng.standard_normal((16, 200))  # two batches
        for _ in range(2):
            u = forward(layers, x, rng, 200).reshape(2, 8, 200)
            x = np.maximum((u - u.mean(1, keepdims=True)) / u.std(1, keepdims=True), 0.0).reshape(16, 200)
        out = forward(layers, x, rng, 200)
        first, second = out[:8], out[8:]
        # points of one batch share its statistics; the center is between independent points
        got.append((float(np.mean(first[:, None] * second[None])), float(np.mean(out * out))))
    center, total = np.array(got).T
    agrees(center, float(want.correlation[-1] * want.q[-1]), what="center")
    agrees(total, float(want.q[-1]), what="total")


def test_gradients_are_known_for_whole_batches_only() -> None:
    whole = fg.predict("2 x [dense(weight_var=3) > batchnorm > tanh] > dense(weight_var=3)")
    assert np.all(np.isfinite(whole.gradient_growth))
    small = fg.predict("2 x [dense(weight_var=3) > batchnorm(batch=8) > tanh] > dense(weight_var=3)")
    assert np.all(np.isnan(small.gradient_growth))


@pytest.mark.parametrize("batch", [1, 0, -3, 2.5, True, "16"])
def test_bad_batches(batch: object) -> None:
    with pytest.raises(fg.InvalidInput, match="batch"):
        BatchNorm(batch)  # type: ignore[arg-type]


def test_bad_estimators() -> None:
    with pytest.raises(fg.InvalidInput, match="estimator"):
        BatchNorm(16, "jackknife")  # type: ignore[arg-type]
    for batch in (None, 2, 4):
        with pytest.raises(fg.InvalidInput, match="at least 5"):
            BatchNorm(batch, "leave_one_out")


@pytest.mark.parametrize(("batch", "name"), [(5, "square"), (6, "square")])
def test_moments_that_do_not_exist(batch: int, name: str) -> None:
    with pytest.raises(fg.NotCovered, match="heavy tails"):
        fg.predict(f"dense > batchnorm(batch={batch}, estimator=leave_one_out) > {name} > dense")
    fg.predict(f"dense > batchnorm(batch=7, estimator=leave_one_out) > {name} > dense")


def test_no_variance_to_divide_by() -> None:
    with pytest.raises(fg.NotCovered, match=r"layer 2 \(batchnorm\)"):
        fg.predict("dense(weight_var=0, bias_var=1) > batchnorm > relu > dense")
