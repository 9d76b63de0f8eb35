"""Data: content, moments, subsets, scaling and classes; what is refused, and why."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from data_files import ANIMALS, numbers
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from firstguess.base.errors import InvalidInput
from firstguess.data import Data


def test_import_is_light() -> None:
    code = (
        "import sys, numpy as np, firstguess.data as d; d.as_data(np.eye(3)); d.blob(3, 3).inputs();"
        "print([m for m in ('torch', 'pyarrow', 'sklearn', 'PIL', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_data_is_read_only_and_does_not_follow_its_source() -> None:
    source = numbers(4, 3)
    data = Data(source)
    before = data.hash
    source[0, 0] = 99.0
    assert data.x[0, 0] != 99.0
    assert Data(data.x).hash == before
    assert source.flags.writeable
    labelled = Data(np.zeros((4, 3)), np.array([0, 1, 0, 1]))
    assert labelled.y is not None
    with pytest.raises(ValueError, match="read-only"):
        labelled.y[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        data.x[0, 0] = 1.0
    assert (data.n, len(data), data.d, data.shape, data.flat().shape) == (4, 4, 3, (3,), (4, 3))


def test_hash_depends_on_content_only() -> None:
    x, y = numbers(6, 2), np.arange(6)
    reference = Data(x, y, name="a").hash
    assert Data(x, y, name="b").hash == reference
    assert len({reference, Data(x).hash, Data(x + 1, y).hash, Data(x, y[::-1]).hash, Data(x.reshape(3, 4)).hash}) == 5


def test_inputs_are_the_moments_of_theory_2() -> None:
    x = numbers(50, 3, 4) + 2.0
    mean, mean_square, variance = Data(x).inputs()
    flat = x.reshape(50, 12).astype(np.float64)
    assert mean == pytest.approx(flat.mean(), rel=1e-12)
    assert mean_square == pytest.approx((flat.mean(axis=0) ** 2).mean(), rel=1e-12)
    assert variance == pytest.approx(np.trace(np.cov(flat.T, bias=True)) / 12, rel=1e-12)
    assert mean_square + variance == pytest.approx((flat**2).mean(), rel=1e-12)


def test_inputs_do_not_cancel_far_from_zero() -> None:
    far = Data(np.array([[1e6], [1e6 + 1]]))
    assert far.inputs().variance == 0.25


@examples(30)
@given(st.integers(1, 40), st.integers(0, 1000))
def test_subsets_are_nested_and_by_seed(n: int, seed: int) -> None:
    data = Data(np.arange(40.0)[:, None], np.arange(40))
    small, large = data.subset(n, seed), data.subset(min(40, n + 5), seed)
    assert set(small.y.tolist()) <= set(large.y.tolist())
    assert small.n == n
    assert np.array_equal(small.x[:, 0], small.y)
    assert small.hash == data.subset(n, seed).hash


@pytest.mark.parametrize(
    ("how", "axes"),
    [("global", (0, 1, 2, 3)), ("channel", (0, 2, 3)), ("pixel", (0,))],
    ids=["global", "channel", "pixel"],
)
def test_standardize(how: str, axes: tuple[int, ...]) -> None:
    data = Data(numbers(30, 3, 4, 5) * np.array([1, 10, 100])[:, None, None] + 7)
    done = data.standardize(how)  # type: ignore[arg-type]
    x = done.x.astype(np.float64)
    np.testing.assert_allclose(x.mean(axis=axes), 0, atol=1e-6)
    np.testing.assert_allclose(x.std(axis=axes), 1, atol=1e-6)
    assert how in done.name


def test_standardize_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    data = Data(numbers(30, 2, 5) + 3)
    whole = data.standardize("channel").x
    monkeypatch.setattr("firstguess.data.dataset._CHUNK", 40)
    np.testing.assert_allclose(Data(data.x).standardize("channel").x, whole, atol=1e-6)


def test_standardize_edges() -> None:
    x = numbers(10, 2)
    x[:, 1] = 0.1
    done = Data(x).standardize("pixel")
    assert np.all(done.x[:, 1] == 0)
    assert Data(x).standardize("none").x is not None
    with pytest.raises(InvalidInput, match="channels"):
        Data(x).standardize("channel")
    with pytest.raises(InvalidInput, match="vary"):
        Data(np.full((5, 3), 0.1)).standardize("global")
    with pytest.raises(InvalidInput, match="'global', 'channel', 'pixel', 'centre' or 'none'"):
        Data(x).standardize("zscore")  # type: ignore[arg-type]


def test_shift_sets_the_mean_square() -> None:
    data = Data(numbers(400, 20)).standardize("pixel")
    for value in (0.0, 2.0, -4.0):
        moments = data.shift(value).inputs()
        assert moments.mean_square == pytest.approx(value**2, abs=1e-5)
        assert moments.variance == pytest.approx(1, abs=1e-5)
    with pytest.raises(InvalidInput, match="finite"):
        data.shift(float("nan"))


def test_classes() -> None:
    data = Data(np.arange(10.0)[:, None], np.arange(10), class_names=tuple("0123456789"))
    assert data.select([7, "2"]).x[:, 0].tolist() == [2, 7]
    assert data.select([7, "2"]).y.tolist() == [1, 0]
    assert data.select("odd-even").y.tolist() == [1, 0] * 5
    assert data.select("parity").class_names == ("even", "odd")
    assert data.select("0+1 vs 9").y.tolist() == [0, 0, 1]
    merged = data.select({"low": [0, 1], "high": ["8", "9"]})
    assert (merged.y.tolist(), merged.class_names) == ([0, 0, 1, 1], ("low", "high"))
    assert "low vs high" in merged.name
    unnamed = Data(np.eye(3), np.array([-1, 1, 1]))
    assert unnamed.select([1, -1]).y.tolist() == [1, 0, 0]


@examples(30)
@given(st.permutations(range(6)), st.integers(1, 6))
def test_select_keeps_points_with_their_class(order: list[int], k: int) -> None:
    y = np.random.default_rng(0).integers(0, 6, 60)
    chosen = Data(y[:, None], y).select(order[:k])
    assert np.array_equal(np.array(order)[chosen.y], chosen.x[:, 0])


@pytest.mark.parametrize(
    "classes", ["ant-cat", ["ant", "cat"], {"a": ["ant"], "b": ["ant"]}, [], {"a": []}, "", [9], "vehicles-ant"]
)
def test_bad_classes(classes: object) -> None:
    data = Data(np.eye(4), np.arange(4), class_names=ANIMALS, name="zoo")
    with pytest.raises(InvalidInput, match="class"):
        data.select(classes)  # type: ignore[arg-type]


def test_unknown_class_lists_the_known() -> None:
    data = Data(np.eye(4), np.arange(4), class_names=ANIMALS, name="zoo")
    with pytest.raises(InvalidInput, match=r"'cat', at zoo. Try: one of ant, bee, cow, dog"):
        data.select("cat-dog")
    with pytest.raises(InvalidInput, match="labels"):
        Data(np.eye(4)).select("ant")
    with pytest.raises(InvalidInput, match=r"none among 1 points.*occur here: ant"):
        data.select(["ant"])._with(x=np.eye(1), step="", y=[0], class_names=ANIMALS).select("dog")


def test_a_dash_in_a_name() -> None:
    data = Data(np.eye(3), np.arange(3), class_names=("T-shirt/top", "Ankle boot", "Bag"))
    assert data.select("t-shirt/top vs ankle_boot").class_names == ("T-shirt/top", "Ankle boot")
    assert data.select("T-shirt/top").n == 1


@pytest.mark.parametrize(
    ("x", "y", "text"),
    [
        (np.zeros(3), None, "two axes"),
        (np.zeros((0, 3)), None, "at least one point"),
        (np.array([["a", "b"]]), None, "real numbers"),
        (np.ones((2, 2)) * 1j, None, "real numbers"),
        (np.array([[1.0, 2.0], [np.nan, np.inf]]), None, r"2 of 4 entries, first in point 1, entry \(0,\)"),
        (np.array([[1e300, 1.0]]), None, "1 of 2 entries"),
        (np.eye(3), np.arange(2), "3 labels"),
        (np.eye(3), np.eye(3), "argmax"),
        (np.eye(3), np.array([0.5, 1, 2]), "whole numbers"),
        (np.eye(3), np.array(["a", 1, "c"], dtype=object), "return_inverse"),
        (np.eye(3), np.array(["a", "b"]), "3 labels"),
        (np.eye(3), np.array([0, np.nan, 1]), "whole numbers"),
    ],
)
def test_bad_data(x: np.ndarray, y: np.ndarray | None, text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        Data(x, y, name="mine")


def test_labels_may_be_texts() -> None:
    for y in (np.array(["b", "a", "b"]), np.array(["b", "a", "b"], dtype=object), ["b", "a", "b"]):
        data = Data(np.eye(3), y)  # type: ignore[arg-type]
        assert (data.y.tolist(), data.class_names, data.classes) == ([1, 0, 1], ("a", "b"), 2)
    with pytest.raises(InvalidInput, match="class names a, c, but got 'b'"):
        Data(np.eye(3), np.array(["b", "a", "b"]), class_names=("a", "c"))


def test_labels_must_have_names() -> None:
    with pytest.raises(InvalidInput, match="from 0 to 2"):
        Data(np.eye(3), np.arange(3), class_names=("a", "b"))


def test_to_dict_is_json() -> None:
    data = Data(np.eye(4), np.array([0, 0, 1, 1]), name="zoo", class_names=("a", "b"))
    found = json.loads(json.dumps(data.to_dict()))
    assert found["class_counts"] == [2, 2]
    assert found["hash"] == data.hash
    assert found["inputs"]["variance"] == data.inputs().variance


@pytest.mark.parametrize("n", [0, 11, -1, 2.0, True])
def test_too_many_points(n: object) -> None:
    with pytest.raises(InvalidInput, match=r"between 1 and 10 points|whole number"):
        Data(np.zeros((10, 1))).subset(n)  # type: ignore[arg-type]
