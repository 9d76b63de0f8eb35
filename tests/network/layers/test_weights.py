"""Dense and convolution: any variance float64 has, initializers, bad values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

import firstguess as fg
from firstguess.network.layers import AvgPool, Conv, Dense, Scale, Shift
from firstguess.network.signal import Gaussian, Signal

VAR = st.floats(1e-300, 1e300)


@given(VAR, st.just(0.0) | VAR, st.floats(-900.0, 900.0), st.floats(1e-30, 1.0))
@examples(200)
def test_moments_in_logarithms(weight_var: float, bias_var: float, log_q: float, gap: float) -> None:
    """log q' = log(σw²q + σb²) and log spread' = log(σw²·spread) wherever float64 can say so."""
    before = Signal(0.0, 1.0 - gap, gap, log_q, Gaussian())
    after = Dense(weight_var, bias_var).moments(before)
    want = float(np.logaddexp(math.log(weight_var) + log_q, math.log(bias_var) if bias_var else -math.inf))
    assert after.log_q == pytest.approx(want, abs=1e-11)
    spread = math.log(weight_var) + log_q + math.log(gap)
    if spread - want > -650.0:  # below, 1 − c leaves float64
        assert math.log(after.spread) + after.log_scale == pytest.approx(spread, abs=1e-11)


@given(st.floats(1e-3, 1e3), st.floats(0.0, 10.0))
def test_initializers_and_convolutions_have_the_same_moments(weight_var: float, bias_var: float) -> None:
    signal = Signal(0.3, 0.2, 0.9)
    normal = Dense(weight_var, bias_var).moments(signal)
    assert Dense(weight_var, bias_var, init="uniform").moments(signal) == normal
    assert Dense(weight_var, bias_var, init="orthogonal").moments(signal) == normal
    for init in ("rademacher", "laplace", "student(2.5)"):
        assert Dense(weight_var, bias_var, init=init).moments(signal) == normal
        assert Conv(weight_var, bias_var, init=init).moments(signal) == normal
    assert Conv(weight_var, bias_var, kernel=5).moments(signal) == normal
    assert any("orthogonal" in line for line in Dense(init="orthogonal").assumptions())
    assert any("positions" in line for line in Conv().assumptions())


@pytest.mark.parametrize("value", [-1.0, -1e-300, math.nan, math.inf, "2", None, True])
@pytest.mark.parametrize("kind", [Dense, Conv])
@pytest.mark.parametrize("name", ["weight_var", "bias_var"])
def test_bad_variances(kind: type, name: str, value: object) -> None:
    with pytest.raises(fg.InvalidInput, match=name) as caught:
        kind(**{name: value})
    assert caught.value.hint
    assert caught.value.where == kind.kind  # type: ignore[attr-defined]


def test_bad_words_and_counts() -> None:
    with pytest.raises(fg.InvalidInput, match="init"):
        Dense(init="xavier")  # type: ignore[arg-type]
    with pytest.raises(fg.InvalidInput, match="not all zero"):
        Dense(0.0, 0.0)
    for bad in (0, -1, 1.5, True):
        with pytest.raises(fg.InvalidInput, match="width"):
            Dense(width=bad)  # type: ignore[arg-type]
    with pytest.raises(fg.InvalidInput, match="padding"):
        Conv(padding=-1)
    with pytest.raises(fg.InvalidInput, match="size"):
        AvgPool(0)
    for bad_number in (math.nan, math.inf, "a"):
        with pytest.raises(fg.InvalidInput, match="factor"):
            Scale(bad_number)  # type: ignore[arg-type]
        with pytest.raises(fg.InvalidInput, match="by"):
            Shift(bad_number)  # type: ignore[arg-type]


def test_numpy_numbers_are_numbers() -> None:
    dense = Dense(np.float64(0.1), np.float32(0.5), np.int64(3))  # type: ignore[arg-type]
    assert dense == Dense(0.1, 0.5, 3)
    assert str(fg.Network((dense,))) == "dense(weight_var=0.1, bias_var=0.5, width=3)"


@pytest.mark.parametrize("factor", [1e-200, -1e200, 1e308, 3.0])
def test_scaling_is_undone_by_a_norm(factor: float) -> None:
    plain = fg.predict("dense(bias_var=0.5) > relu > dense(bias_var=0.5)")
    scaled = fg.predict(f"dense(bias_var=0.5) > scale({factor!r}) > rmsnorm > relu > dense(bias_var=0.5)")
    unit = fg.predict("dense(bias_var=0.5) > rmsnorm > relu > dense(bias_var=0.5)")
    assert scaled.gamma == pytest.approx(unit.gamma, rel=1e-12)
    assert plain.gamma[0] == unit.gamma[0]


def test_shifts_give_and_take_bias() -> None:
    """ReLU of a unit Gaussian has mean 1/√2π: taking it off leaves none."""
    cured = fg.predict(f"dense > relu > shift({-1 / math.sqrt(2 * math.pi)!r}) > dense")
    assert cured.gamma[-1] == pytest.approx(0.0, abs=1e-30)
    assert fg.predict("dense > tanh > shift(2) > dense").gamma[-1] == pytest.approx(
        4 / fg.activation("tanh").moments(0, 1).spread, rel=1e-12
    )
