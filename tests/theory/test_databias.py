"""What data alone bring: numbers by hand, standardizations against `Data.standardize` itself, and plain words."""

from __future__ import annotations

import time

import numpy as np
import pytest
from data_files import REAL

import firstguess as fg
from firstguess.base.errors import InvalidInput


def test_numbers_by_hand() -> None:
    x = np.array([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0], [0.0, 2.0]])
    bias = fg.data_bias(x)
    assert bias.mean_square == pytest.approx((1 + 1) / 2)
    assert bias.variance == pytest.approx((1.5 + 1.0) / 2)
    assert bias.gamma == pytest.approx(1.0 / 1.25)
    assert bias.correlation == pytest.approx(2 * 2 / 12)  # two of the six pairs are parallel, four are perpendicular
    values = np.linalg.eigvalsh(np.cov(x.T, bias=True))[::-1]
    assert bias.shares == pytest.approx((values[0] / values.sum(), 1.0, 1.0), abs=1e-6)
    assert bias.directions == pytest.approx(values.sum() ** 2 / np.square(values).sum(), rel=1e-5)


@pytest.mark.parametrize("shape", [(700, 30), (40, 900), (700, 650)])
def test_the_spectrum_from_the_smaller_matrix(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape) @ np.diag(np.linspace(0.2, 3.0, shape[1])) + 0.7
    bias = fg.data_bias(x)
    values = np.linalg.svd(x - x.mean(axis=0), compute_uv=False) ** 2
    assert bias.shares == pytest.approx(tuple(values[:k].sum() / values.sum() for k in (1, 3, 10)), rel=1e-4)
    assert bias.directions == pytest.approx(values.sum() ** 2 / np.square(values).sum(), rel=1e-4)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    cosines = (unit @ unit.T)[~np.eye(len(x), dtype=bool)]
    assert bias.correlation == pytest.approx(cosines.mean(), rel=1e-5)


def test_after_is_what_standardizing_does() -> None:
    rng = np.random.default_rng(0)
    x = rng.gamma(2.0, size=(300, 3, 4, 5)) * np.array([0.5, 2.0, 5.0])[None, :, None, None] + np.linspace(0, 3, 5)
    data = fg.data.as_data(x)
    bias = fg.data_bias(data)
    for how in ("none", "global", "channel", "pixel", "centre"):
        moments = data.standardize(how).inputs()
        assert bias.after[how] == pytest.approx(moments.mean_square / moments.variance, rel=1e-4, abs=1e-10)
    assert bias.after["centre"] == 0.0
    assert "channel" not in fg.data_bias(x.reshape(300, -1)).after


def test_the_recommendation_is_the_mildest_that_works() -> None:
    noise = np.random.default_rng(0).standard_normal((400, 100))
    assert fg.data_bias(noise).recommended == "none"
    assert "nothing to repair" in fg.data_bias(noise).recommendation
    assert fg.data_bias(noise + 2.0).recommended == "global"
    tilted = fg.data_bias(noise + np.linspace(-3, 3, 100))
    assert tilted.recommended == "centre"
    assert f"γ₀ falls from {tilted.gamma:.3g} to 0" in tilted.recommendation
    assert "directions tell the points apart" in fg.data_bias("digits").recommendation
    colours = noise.reshape(400, 4, 25) + np.array([1.0, -2.0, 3.0, 0.0])[None, :, None]
    assert fg.data_bias(colours).recommended == "channel"


def test_prints_and_reads_back() -> None:
    bias = fg.data_bias("digits:even-odd", points=300)
    assert fg.DataBias.from_dict(bias.to_dict()) == bias
    text = str(bias)
    for words in ("drift ratio γ₀", "effective number of directions", "centre", "300 points of shape (1, 8, 8)"):
        assert words in text
    assert "effective number of directions" in bias._repr_html_()
    assert fg.data_bias(fg.data.digits(), points=50).points == 50


def test_bad_input_and_notes() -> None:
    with pytest.raises(InvalidInput, match="at least 2 data points"):
        fg.data_bias(np.ones((1, 3)))
    with pytest.raises(InvalidInput, match="5 copies of one point"):
        fg.data_bias(np.full((5, 3), 0.1))
    with pytest.raises(InvalidInput, match="NaN or Inf"):
        fg.data_bias(np.array([[1.0, np.nan], [1.0, 2.0]]))
    bias = fg.data_bias(np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 1.0], [2.0, 0.0, 0.5], [0.0, 0.0, 0.0]]))
    assert any("1 points are zero everywhere" in note for note in bias.notes)
    assert any("1 of 3 coordinates never vary" in note for note in bias.notes)
    assert fg.data_bias(np.array([[0.0], [1.0], [3.0]])).shares == (1.0, 1.0, 1.0)
    huge = fg.data_bias(1e15 * np.random.default_rng(0).standard_normal((50, 20)))
    assert 5 < huge.directions < 20


def test_five_thousand_images_are_fast() -> None:
    x = np.random.default_rng(0).standard_normal((5000, 3072), dtype=np.float32)
    started = time.perf_counter()
    bias = fg.data_bias(x)
    assert time.perf_counter() - started < 30  # 2 to 4 s on two cores; room for busy machines
    assert bias.gamma < 0.001


@pytest.mark.skipif(not (REAL / "mnist").is_dir(), reason=f"no MNIST in {REAL}")
def test_mnist_brings_bias_that_standardizing_leaves() -> None:
    bias = fg.data_bias(fg.data.load("mnist", data_dir=REAL, standardize="none", points=6000))
    assert bias.gamma == pytest.approx(0.66, abs=0.03)
    assert bias.after["global"] == pytest.approx(0.41, abs=0.03)
    assert bias.recommended == "centre"
    assert any("5000 of the 6000 points" in note for note in bias.notes)
