"""At the ends of float64 and beyond: a result, or one clear error; never a traceback, a warning or a NaN."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random, SystemRandom
from typing import Any

import numpy as np
import pytest
from random_texts import description

import firstguess as fg
from firstguess.network.activations import record

pytestmark = pytest.mark.usefixtures("one_thread")
POINTS = np.random.default_rng(0).normal(size=(12, 20)).astype(np.float32)
IMAGES = np.random.default_rng(0).normal(size=(5, 2, 4, 4)).astype(np.float32)


def closed_form(text: str) -> Any:
    found = fg.predict(text, points=100)
    assert str(found)
    assert found.to_dict()
    assert 0.0 <= found.guesses.std() <= 0.5
    return found


def on_data(text: str) -> Any:
    found = fg.predict(text, data=IMAGES if "conv" in text else POINTS, draws=20)
    assert str(found)
    assert np.isfinite(found.guesses.expected_max())
    return found


def measured(text: str) -> Any:
    found = fg.measure(text, IMAGES if "conv" in text else POINTS, inits=3, width=8)
    assert str(found)
    return found


def one_clear_line(read: Callable[[str], Any], text: str) -> None:
    said = ""
    try:
        read(text)
    except fg.FirstguessError as error:
        said = str(error)
    except Exception as error:
        raise AssertionError(f"{read.__name__} of {text!r}") from error
    assert "\n" not in said
    assert len(said) < 2500


@pytest.mark.parametrize("read", [closed_form, on_data, measured])
@pytest.mark.parametrize(
    "text",
    [
        "dense(weight_var=1e160) > erf > dense",
        "dense > leaky_relu(1e200) > dense",
        "dense > leaky_relu(-1e200) > dense",
        "dense > shift(1e160) > dense",
        "dense > elu(1e300) > dense",
        "scale(0) > relu6 > maxpool(100)",
        "scale(0) > relu6 > maxpool(100) > dense",
        "scale(0) > shift(1) > dense",
        "scale(-5e303) > dense",
        "scale(1e-240) > dense",
        "dense(weight_var=6.6e219) > batchnorm(100) > dense",
        "dense(weight_var=6.6e212) > centered(hardswish) > dense",
        "residual(scale=2.9e286)[dense(bias_var=1.3)] > dense",
        "dense(weight_var=7.9e204, init=uniform) > dense",
        "shift(8.6e216) > scale(4.3e-36) > centered(silu) > dense > dense",
        "a" * 1_000_000,
        "dense(" + "b" * 1_000_000 + "=2)",
        "dense(weight_var=" + "1" * 1_000_000 + ")",
    ],
)
def test_named_cases(read: Callable[[str], Any], text: str) -> None:
    one_clear_line(read, text)


@pytest.mark.parametrize(("read", "tries"), [(closed_form, 2000), (on_data, 200), (measured, 300)])
def test_random_descriptions(read: Callable[[str], Any], tries: int) -> None:
    for seed in range(tries):
        one_clear_line(read, description(Random(seed)))


@pytest.mark.slow
@pytest.mark.parametrize(("read", "tries"), [(closed_form, 90_000), (on_data, 4000), (measured, 6000)])
def test_many_random_descriptions(read: Callable[[str], Any], tries: int) -> None:
    """A hundred thousand in all, new ones each time; an error shows its text."""
    r = SystemRandom()
    for _ in range(tries):
        one_clear_line(read, description(Random(r.getrandbits(60))))


@pytest.mark.parametrize("q", [1e149, 1e160, 1e300])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.999])
def test_erf_of_a_huge_signal_is_sign(q: float, share: float) -> None:
    """At q = 1e160 erf jumps, and its moments are those of sign: (2/π) arcsin c."""
    m = record.erf(share * q, (1.0 - share) * q)
    assert m.between == pytest.approx(2.0 / math.pi * math.asin(share), rel=1e-12)
    assert m.spread == pytest.approx(2.0 / math.pi * math.acos(share), rel=1e-12)


def test_a_constant_network_keeps_its_constant() -> None:
    """scale(0) > shift(1) forgets the data: all points coincide, and every initialization puts all in one class."""
    found = fg.predict("scale(0) > shift(1) > dense", data=POINTS, draws=50)
    assert found.gamma[-1] == math.inf
    assert found.guesses.expected_max() == 1.0


def test_outputs_that_are_all_zero_are_refused() -> None:
    for data in (None, POINTS):
        with pytest.raises(fg.NotCovered, match="outputs that are not all zero"):
            fg.predict("dense > scale(0) > dense", data=data)


@pytest.mark.parametrize(("gamma", "classes"), [(1e4, 10), (1e8, 3), (1e10, 10), (1e300, 10), (1e-300, 10)])
def test_quantiles_at_the_ends(gamma: float, classes: int) -> None:
    """The smallest g whose distribution function reaches u: checked by `cdf`, and in between."""
    distribution = fg.Guesses(gamma, classes, 10**6)
    quantiles = distribution.quantile([0.1, 0.3, 0.95])
    assert np.all(np.diff(quantiles) >= 0.0)
    for u, g in zip([0.1, 0.3, 0.95], quantiles, strict=True):
        assert distribution.cdf(float(g)) >= u
        assert g == 0.0 or distribution.cdf(float(g) - 1e-6) < u


@pytest.mark.parametrize("q", [1e-300, 1e300, math.nan, 0.0])
def test_variances_beyond_float64(q: float) -> None:
    with pytest.raises(fg.InvalidInput, match="q"):
        fg.causes_bias("gelu", q=q)
    assert fg.causes_bias("relu", q=1e-100)


@pytest.mark.parametrize("name", ['a"b', "a'b", "a\nb", "class", "a b"])
def test_names_of_layers(name: str) -> None:
    """torch allows any; torch.fx would write them into Python."""
    from torch import nn

    model = nn.Sequential()
    model.add_module(name, nn.Linear(20, 8))
    model.add_module("relu", nn.ReLU())
    model.add_module("head", nn.Linear(8, 3))
    assert fg.read(model, POINTS).network is not None
    assert fg.measure(model, POINTS, inits=3).guesses.classes == 3


def test_gradients_of_a_stream_beyond_float64_are_infinite() -> None:
    """What a block multiplies by is a product of its layers' factors: exp of a sum of logarithms."""
    wide = "residual[dense(weight_var=3.8e-246)] > 7 x [scale(-5.7e136) > conv(weight_var=5.4e-168, kernel=3)]"
    p = fg.predict(f"dense(weight_var=10, bias_var=0.5) > scale(10) > 4 x [{wide}] > dense")
    assert np.isfinite(p.gamma).all()
    assert str(p)
    assert p.to_dict()
