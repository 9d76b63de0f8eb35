"""IDX files: every layout of MNIST and Fashion-MNIST, and every broken version of it."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from data_files import idx_bytes, write_idx

from firstguess.base.errors import InvalidInput
from firstguess.data import cifar10, fashion_mnist, idx, mnist


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("mark", ["-", "."])
def test_idx(tmp_path: Path, zipped: bool, mark: str) -> None:
    images = write_idx(tmp_path / "mnist", zipped=zipped, mark=mark)
    write_idx(tmp_path / "mnist", prefix="t10k", n=8, zipped=zipped, mark=mark)
    data = mnist(tmp_path, standardize="none")
    assert data.shape == (1, 5, 4)
    np.testing.assert_allclose(data.x[:, 0], images / 255, rtol=1e-6)
    assert data.y.tolist() == [i % 10 for i in range(20)]
    assert mnist(tmp_path, "test").n == 8
    assert idx(tmp_path / "mnist").hash == data.hash
    chosen = mnist(tmp_path, classes="even-odd", points=7, standardize="none", seed=5)
    assert chosen.hash == data.select("even-odd").subset(7, 5).hash
    assert chosen.name == "mnist train, even vs odd, 7 points"


def test_idx_files_by_name(tmp_path: Path) -> None:
    write_idx(tmp_path)
    pictures, labels = tmp_path / "train-images-idx3-ubyte", tmp_path / "train-labels-idx1-ubyte"
    assert idx((pictures, labels)).y is not None
    assert idx(pictures).y is None
    with pytest.raises(InvalidInput, match="label file"):
        idx(pictures, classes="even-odd")
    with pytest.raises(InvalidInput, match="two files"):
        idx([pictures])


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("damage", ["cut", "empty", "magic", "huge", "longer", "swapped", "header"])
def test_broken_idx(tmp_path: Path, damage: str, zipped: bool) -> None:
    write_idx(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte"
    content = path.read_bytes()
    broken = {
        "cut": content[:-50],
        "empty": b"",
        "magic": b"\x00\x00\x0d\x03" + content[4:],
        "huge": content[:4] + b"\xff" * 12 + content[16:],
        "longer": content + b"more",
        "swapped": (tmp_path / "train-labels-idx1-ubyte").read_bytes(),
        "header": content[:9],
    }[damage]
    path.write_bytes(gzip.compress(broken) if zipped else broken)
    with pytest.raises(InvalidInput, match=r"train-images-idx3-ubyte. Try: .*get it again"):
        idx(tmp_path)


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_broken_gzip(tmp_path: Path, damage: str) -> None:
    write_idx(tmp_path, zipped=True)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    content = path.read_bytes()
    path.write_bytes(content[:-20] if damage == "cut" else content[:60] + b"\xff" * 60 + content[120:])
    with pytest.raises(InvalidInput, match="get it again"):
        idx(tmp_path)


def test_labels_that_do_not_fit(tmp_path: Path) -> None:
    write_idx(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx_bytes(np.arange(5)))
    with pytest.raises(InvalidInput, match=r"each of the 20 images.*got 5 labels"):
        idx(tmp_path)


def test_missing_data_says_where_and_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FIRSTGUESS_DATA", raising=False)
    with pytest.raises(InvalidInput, match=r"FIRSTGUESS_DATA is not set.*train-images-idx3-ubyte"):
        mnist()
    monkeypatch.setenv("FIRSTGUESS_DATA", str(tmp_path))
    with pytest.raises(
        InvalidInput, match=rf"{tmp_path}/mnist, {tmp_path}/MNIST/raw, {tmp_path}. Try: put t10k-images"
    ):
        mnist(split="test")
    with pytest.raises(InvalidInput, match=rf"{tmp_path}/cifar10.*train-00000-of-00001.parquet"):
        cifar10()
    with pytest.raises(InvalidInput, match="split"):
        mnist(split="dev")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"pair of IDX files.*none"):
        idx(tmp_path)


def test_one_mnist_is_not_taken_for_the_other(tmp_path: Path) -> None:
    write_idx(tmp_path / "mnist")
    write_idx(tmp_path / "MNIST" / "raw")
    assert mnist(tmp_path / "mnist").n == 20
    for folder in (tmp_path / "mnist", tmp_path / "MNIST" / "raw"):
        with pytest.raises(InvalidInput, match="Fashion-MNIST"):
            fashion_mnist(folder)
    write_idx(tmp_path / "FashionMNIST" / "raw", n=12)
    fashion = fashion_mnist(tmp_path, classes="parity")
    assert (fashion.n, fashion.class_names) == (12, ("even", "odd"))
    assert fashion_mnist(tmp_path, classes="T-shirt/top vs Bag").y.tolist() == [0, 1, 0]
