"""Sources by name: blobs, digits, `.npz`, what `load` reads, and real files where they are."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from data_files import REAL, small_parquet, write_idx
from scipy.stats import chi2

import firstguess as fg
from firstguess.base.errors import InvalidInput
from firstguess.data import blob, cifar10, digits, fashion_mnist, load, mnist, npz, parquet, two_blobs

Z = 5.0  # standard errors: a two-sided false-alarm rate of 6e-7 a check


@pytest.mark.parametrize("seed", range(5))
def test_blob_statistics(seed: int) -> None:
    """Mean and variance of n·d standard normals, in standard errors."""
    n, d = 400, 50
    x = blob(n, d, seed=seed).x.astype(np.float64)
    count = n * d
    assert abs(x.mean()) < Z / np.sqrt(count)
    assert abs((x**2).mean() - 1) < Z * np.sqrt(2 / count)
    # n·d·m0 is χ² with d degrees of freedom, whose tail is heavier than the normal's.
    assert n * d * blob(n, d, seed=seed).inputs().mean_square < chi2.isf(1e-6, d)


def test_blob_rows_depend_on_seed_and_row_only() -> None:
    assert np.array_equal(blob(10, 7, seed=3).x, blob(20, 7, seed=3).x[:10])
    assert blob(10, 7, seed=3).hash != blob(10, 7, seed=4).hash


@pytest.mark.parametrize("seed", range(3))
def test_two_blobs_statistics(seed: int) -> None:
    n, d = 300, 64
    data = two_blobs(n, d, seed=seed)
    assert data.class_names is not None
    assert np.bincount(data.y).tolist() == [n, n]
    for label, centre in ((0, -1 / np.sqrt(d)), (1, 1 / np.sqrt(d))):
        x = data.x[data.y == label].astype(np.float64)
        assert abs(x.mean() - centre) < Z / np.sqrt(n * d)
        assert abs(((x - centre) ** 2).mean() - 1) < Z * np.sqrt(2 / (n * d))


@pytest.mark.parametrize(("n", "d", "seed"), [(0, 3, 0), (3, 0, 0), (3, 2.5, 0), (3, 3, -1), ("3", 3, 0)])
def test_bad_blobs(n: object, d: object, seed: int) -> None:
    for make in (blob, two_blobs):
        with pytest.raises(InvalidInput):
            make(n, d, seed=seed)  # type: ignore[arg-type]


def test_digits() -> None:
    data = digits(standardize="none")
    assert (data.n, data.shape, data.x.min(), data.x.max()) == (1797, (1, 8, 8), 0, 1)
    assert np.bincount(data.y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]  # scikit-learn's own


def test_npz(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, x=np.eye(4), y=np.arange(4) % 2, class_names=np.array(["a", "b"]))
    assert npz(path).class_names == ("a", "b")
    assert npz(path).name == "mine"
    np.savez_compressed(path, x_train=np.eye(4), y_train=np.arange(4), x_test=np.eye(3), other=np.ones((5, 2)))
    assert (npz(path, "train").n, npz(path, "test").n, npz(path, x="other").n) == (4, 3, 5)
    with pytest.raises(InvalidInput, match="got arrays x_train, y_train, x_test, other"):
        npz(path)
    with pytest.raises(InvalidInput, match="'z'"):
        npz(path, x="other", y="z")
    np.savez(path, x=np.array([{}], dtype=object))
    with pytest.raises(InvalidInput, match="plain arrays, but got arrays of Python objects") as caught:
        npz(path)
    assert "pickle" not in str(caught.value)  # NumPy's own advice is to run whatever the file holds
    for content in (b"", b"junk", b"PK\x03\x04junk"):
        path.write_bytes(content)
        with pytest.raises(InvalidInput, match=r"readable .npz") as caught:
            npz(path)
        assert "pickle" not in str(caught.value)
    np.save(tmp_path / "one.npy", np.eye(2))
    with pytest.raises(InvalidInput, match="npy"):
        npz(tmp_path / "one.npy", "train")
    with pytest.raises(InvalidInput, match="no such file"):
        npz(tmp_path / "missing.npz")


def test_npy_is_points_without_labels(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.arange(6.0).reshape(3, 2))
    data = load(str(tmp_path / "one.npy"))
    assert (data.n, data.y, data.name) == (3, None, "one")
    np.testing.assert_array_equal(data.x, np.arange(6.0).reshape(3, 2))


def test_labels_that_are_texts_name_their_classes(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, x=np.eye(4), y=np.array(["dog", "ant", "dog", "bee"]))
    data = load(str(path))
    assert (data.class_names, data.y.tolist()) == (("ant", "bee", "dog"), [2, 0, 2, 1])
    assert load(f"{path}:ant-dog").y.tolist() == [1, 0, 1]
    np.savez(path, x=np.eye(2), y=np.array(["dog", "ant"]), class_names=np.array(["dog", "cow", "ant"]))
    assert npz(path).y.tolist() == [0, 2]


def test_a_blob_that_does_not_fit_is_refused_before_it_is_made() -> None:
    tracemalloc.start()
    try:
        for make in (blob, two_blobs):
            with pytest.raises(InvalidInput, match=r"fit in memory .* points of 5000 numbers.*Try: n="):
                make(10**9, 5000)
        assert tracemalloc.get_traced_memory()[1] < 1e6  # bytes at the peak; NumPy's arrays count
    finally:
        tracemalloc.stop()


def test_a_name_is_its_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The very same array, whoever asks and however few points are asked for: their statistics are those of all."""
    write_idx(tmp_path / "mnist", prefix="t10k")
    write_idx(tmp_path / "fashion-mnist", prefix="t10k")
    monkeypatch.setenv("FIRSTGUESS_DATA", str(tmp_path))
    pairs = {
        "digits": digits(),
        "blob:n=30,d=4": blob(30, 4),
        "mnist:test": mnist(split="test"),
        "mnist:test,even-odd": mnist(split="test", classes="even-odd"),
        "fashion_mnist:test": fashion_mnist(split="test"),
    }
    for name, given in pairs.items():
        np.testing.assert_array_equal(load(name).x, given.x)
        np.testing.assert_array_equal(load(name, points=8).x, given.subset(8).x)
        assert str(fg.data_bias(name)) == str(fg.data_bias(given))
        one, two = (fg.measure("dense > relu > dense", x, inits=2, width=5) for x in (name, given))
        np.testing.assert_array_equal(one.gamma, two.gamma)
    assert mnist(split="test", points=8).hash == pairs["mnist:test"].subset(8).hash


def test_every_result_prints_how_its_data_were_prepared() -> None:
    net, x, raw = "dense > relu > dense", "digits", digits(standardize="none")
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))
    for ask in (
        lambda data: fg.measure(net, data, inits=2, width=5),
        lambda data: fg.measure(model, data, inits=2),
        lambda data: fg.predict(net, data=data, points=50, draws=10),
        lambda data: fg.measure_gradients(net, data, inits=2, width=5),
        lambda data: fg.explain_guess(model, data, inits=3, seconds=5),
        lambda data: fg.diagnose(model, data, inits=4, seconds=2, advice=False),
        lambda data: fg.data_bias(data),
    ):
        assert "digits, standardized (global)" in str(ask(x))
        assert re.search(r"digits(, \d+ points)?, not standardized", str(ask(raw)))


# --- load ---------------------------------------------------------------------------------------------------------


def test_load(tmp_path: Path) -> None:
    path, _ = small_parquet(tmp_path)
    write_idx(tmp_path / "mnist", prefix="t10k")
    assert load("blob:n=20,d=3").hash == blob(20, 3).hash
    assert load("two_blobs:n=20,d=3,seed=4", points=7).hash == two_blobs(20, 3, seed=4).subset(7).hash
    even = load("mnist:test,even-odd", data_dir=tmp_path, points=10, shift=2.0)
    raw = mnist(tmp_path, "test", standardize="none")
    assert even.hash == raw.select("parity").standardize("global").subset(10).shift(2.0).hash
    assert load("mnist:test", data_dir=tmp_path, standardize="none").hash == raw.hash
    pictures = parquet(path)
    assert load(str(path)).hash == pictures.standardize("channel").hash
    assert load(f"{path.parent}:ant-dog").hash == pictures.select("ant-dog").standardize("channel").hash
    assert load(f"{tmp_path / 'mnist'}:test").n == 20
    np.savez(tmp_path / "mine.npz", x=np.eye(4), y=np.arange(4))
    assert load(f"{tmp_path / 'mine.npz'}:parity").classes == 2


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("imagenet", "one of blob, two_blobs, digits, mnist, fashion_mnist, cifar10"),
        ("", "name of data"),
        ("blob:n=ten", "whole number for n"),
        ("blob:m=10", "n=, d=, seed="),
        ("blob:n=0,d=3", "at least 1"),
        ("blob:even-odd", "labels"),
        ("digits:cat-dog", "one of 0, 1"),
        ("digits:0-1,2-3", "one choice of classes"),
        ("mnist:validation", "train"),
        ("missing.npz", "no such file"),
        ("missing.parquet:test", "no such path"),
    ],
)
def test_bad_specs(spec: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=text):
        load(spec, data_dir=tmp_path)


@pytest.mark.parametrize("name", ["table.csv", "x.pt", "train-images-idx3-ubyte"])
def test_files_of_other_kinds_are_told_which_are_known(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("1,2,3")
    with pytest.raises(InvalidInput, match=r"\.npz or \.npy .* \.parquet"):
        load(str(tmp_path / name))
    path, _ = small_parquet(tmp_path)
    other = path.rename(tmp_path / "pictures.data")  # a known kind with another name
    assert load(str(other)).n == parquet(other).n


# --- real files, where they are -----------------------------------------------------------------------------------


@pytest.mark.skipif(not (REAL / "mnist").is_dir(), reason=f"no MNIST in {REAL}")
def test_real_mnist() -> None:
    data = mnist(REAL, "test", standardize="none")
    assert (data.n, data.shape) == (10_000, (1, 28, 28))
    # The usual normalization constants of MNIST's test images.
    assert data.inputs().mean == pytest.approx(0.1325, abs=1e-4)
    assert float(data.x.std()) == pytest.approx(0.3105, abs=1e-3)
    assert np.bincount(data.select("even-odd").y).tolist() == [4926, 5074]


@pytest.mark.skipif(not (REAL / "cifar10").is_dir(), reason=f"no CIFAR-10 in {REAL}")
def test_real_cifar10() -> None:
    data = load("cifar10:test,vehicles-animals", data_dir=REAL, points=500)
    assert (data.n, data.shape, data.class_names) == (500, (3, 32, 32), ("vehicles", "animals"))
    counts = np.bincount(data.y)
    assert abs(counts[0] - 250) < Z * np.sqrt(500) / 2
    whole = load("cifar10:test,vehicles-animals", data_dir=REAL)
    np.testing.assert_allclose(whole.x.mean(axis=(0, 2, 3), dtype=np.float64), 0, atol=1e-4)
    assert data.hash == whole.subset(500).hash
    assert cifar10(REAL, "test", classes="cat-dog", points=50).classes == 2
