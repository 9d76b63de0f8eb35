"""Data: every source, every broken version of it, and streams that leave no trace in random generators."""

from __future__ import annotations

import gzip
import io
import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.stats import chi2
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from firstguess.data import (
    Data,
    as_data,
    batches,
    blob,
    cifar10,
    collect,
    digits,
    fashion_mnist,
    idx,
    load,
    mnist,
    npz,
    parquet,
    two_blobs,
)
from firstguess.errors import InvalidInput

REAL = Path(__file__).resolve().parents[2] / "shared" / "data"
ANIMALS = ("ant", "bee", "cow", "dog")
Z = 5.0  # standard errors: a two-sided false-alarm rate of 6e-7 a check


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# --- files --------------------------------------------------------------------------------------------------------


def idx_bytes(array: np.ndarray) -> bytes:
    return (
        bytes((0, 0, 8, array.ndim)) + np.array(array.shape, dtype=">u4").tobytes() + array.astype(np.uint8).tobytes()
    )


def write_idx(folder: Path, *, prefix: str = "train", n: int = 20, zipped: bool = False, mark: str = "-") -> np.ndarray:
    folder.mkdir(parents=True, exist_ok=True)
    images = np.random.default_rng(1).integers(0, 256, (n, 5, 4))
    for kind, array in (("images", images), ("labels", np.arange(n) % 10)):
        content = idx_bytes(array)
        name = f"{prefix}-{kind}{mark}idx{array.ndim}-ubyte"
        path = folder / (name + (".gz" if zipped else ""))
        path.write_bytes(gzip.compress(content) if zipped else content)
    return images


def png(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(array.astype(np.uint8)).save(buffer, format="PNG")
    return buffer.getvalue()


def write_parquet(
    path: Path,
    images: list[bytes | None],
    labels: list[int] | None,
    *,
    image: str = "img",
    label: str = "label",
    names: tuple[str, ...] | None = ANIMALS,
    row_group_size: int = 3,
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    columns = {image: pa.array([{"bytes": content, "path": None} for content in images], type=kind)}
    if labels is not None:
        columns[label] = pa.array(labels, type=pa.int64())
    table = pa.table(columns)
    if names is not None:
        features = {label: {"names": list(names), "_type": "ClassLabel"}, image: {"_type": "Image"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(table, path, row_group_size=row_group_size)


def colours(n: int, seed: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, 4, 6, 3)).astype(np.uint8)


@pytest.fixture
def small(tmp_path: Path) -> tuple[Path, np.ndarray]:
    images = colours(12)
    path = tmp_path / "set" / "train-00000-of-00001.parquet"
    write_parquet(path, [png(image) for image in images], [i % 4 for i in range(12)])
    return path, images


# --- Data ---------------------------------------------------------------------------------------------------------


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


@settings(max_examples=30, deadline=None)
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
    with pytest.raises(InvalidInput, match="global, channel, pixel, centre, none"):
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
    merged = data.merge({"low": [0, 1], "high": ["8", "9"]})
    assert (merged.y.tolist(), merged.class_names) == ([0, 0, 1, 1], ("low", "high"))
    assert "low vs high" in merged.name
    unnamed = Data(np.eye(3), np.array([-1, 1, 1]))
    assert unnamed.select([1, -1]).y.tolist() == [1, 0, 0]


@settings(max_examples=30, deadline=None)
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
        (np.eye(3), np.array(["a", "b", "c"]), "whole numbers"),
        (np.eye(3), np.array([0, np.nan, 1]), "whole numbers"),
    ],
)
def test_bad_data(x: np.ndarray, y: np.ndarray | None, text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        Data(x, y, name="mine")


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


# --- sources ------------------------------------------------------------------------------------------------------


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
    data = digits()
    assert (data.n, data.shape, data.x.min(), data.x.max()) == (1797, (1, 8, 8), 0, 1)
    assert np.bincount(data.y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]  # scikit-learn's own


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("mark", ["-", "."])
def test_idx(tmp_path: Path, zipped: bool, mark: str) -> None:
    images = write_idx(tmp_path / "mnist", zipped=zipped, mark=mark)
    write_idx(tmp_path / "mnist", prefix="t10k", n=8, zipped=zipped, mark=mark)
    data = mnist(tmp_path)
    assert data.shape == (1, 5, 4)
    np.testing.assert_allclose(data.x[:, 0], images / 255, rtol=1e-6)
    assert data.y.tolist() == [i % 10 for i in range(20)]
    assert mnist(tmp_path, "test").n == 8
    assert idx(tmp_path / "mnist").hash == data.hash
    chosen = mnist(tmp_path, classes="even-odd", points=7, seed=5)
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


def test_parquet(small: tuple[Path, np.ndarray]) -> None:
    path, images = small
    data = parquet(path)
    np.testing.assert_allclose(data.x, images.transpose(0, 3, 1, 2) / 255, rtol=1e-6)
    assert data.class_names == ANIMALS
    assert data.y.tolist() == [0, 1, 2, 3] * 3
    assert parquet(path.parent).hash == data.hash
    assert parquet(path.parent).name == "set train"


def test_parquet_decodes_only_what_is_kept(small: tuple[Path, np.ndarray]) -> None:
    path, _ = small
    whole, calls = parquet(path), []
    chosen = parquet(
        path, classes="dog-ant", points=3, seed=2, progress=lambda done, total: calls.append((done, total))
    )
    assert chosen.hash == whole.select("dog-ant").subset(3, 2).hash
    assert calls == [(3, 3)]
    content = [png(image) for image in colours(4)]
    write_parquet(path, [b"not an image", *content[1:]], [0, 1, 2, 3])
    assert parquet(path, classes=["bee", "dog"]).n == 2


def test_parquet_layouts(tmp_path: Path) -> None:
    images = [png(image) for image in colours(3)]
    write_parquet(tmp_path / "a" / "image" / "test" / "0000.parquet", images, [0, 1, 2], image="image")
    assert parquet(tmp_path / "a", "test").n == 3
    write_parquet(tmp_path / "b" / "train.parquet", images, [5, 6, 7], label="fine_label", names=None)
    assert parquet(tmp_path / "b").class_names is None
    assert parquet(tmp_path / "b").y.tolist() == [5, 6, 7]
    write_parquet(tmp_path / "c.parquet", images, None)
    assert parquet(tmp_path / "c.parquet").y is None
    write_parquet(tmp_path / "d.parquet", images, [-1, -1, -1])
    assert parquet(tmp_path / "d.parquet").y is None
    for number in (0, 1):
        write_parquet(tmp_path / "e" / f"train-0000{number}-of-00002.parquet", images, [0, 1, 2])
    assert parquet(tmp_path / "e").n == 6
    (tmp_path / "e" / "train-00000-of-00002.parquet").unlink()
    with pytest.raises(InvalidInput, match="all 2 shards"):
        parquet(tmp_path / "e")
    with pytest.raises(InvalidInput, match=r"only image/test/0000.parquet"):
        parquet(tmp_path / "a", "train")
    write_parquet(tmp_path / "f" / "one" / "train.parquet", images, [0, 1, 2])
    write_parquet(tmp_path / "f" / "two" / "train.parquet", images, [0, 1, 2])
    with pytest.raises(InvalidInput, match="2 directories"):
        parquet(tmp_path / "f")


def test_grey_and_colour(tmp_path: Path) -> None:
    grey, colour = png(np.full((4, 6), 51)), png(colours(1)[0])
    write_parquet(tmp_path / "grey.parquet", [grey, grey], [0, 1])
    assert parquet(tmp_path / "grey.parquet").shape == (1, 4, 6)
    write_parquet(tmp_path / "both.parquet", [grey, colour], [0, 1])
    both = parquet(tmp_path / "both.parquet")
    assert both.shape == (3, 4, 6)
    np.testing.assert_allclose(both.x[0], 0.2, rtol=1e-6)


def test_broken_parquet(tmp_path: Path, small: tuple[Path, np.ndarray]) -> None:
    path, _ = small
    content = path.read_bytes()
    for broken in (b"", b"PAR1", content[:-30], content[: len(content) // 2]):
        path.write_bytes(broken)
        with pytest.raises(InvalidInput, match=r"readable parquet file.*get it again"):
            parquet(path)
    good = [png(image) for image in colours(5)]
    cases: list[tuple[list[bytes | None], str]] = [
        ([*good[:4], b"junk"], r"decoded.*broken.parquet, row 4"),
        ([*good[:4], good[4][:60]], r"row 4"),
        ([*good[:4], None], r"image in every row.*row 4"),
        ([*good[:4], png(np.zeros((4, 7)))], r"one size \(4 × 6, as the first\), but got 4 × 7.*row 4"),
        ([], "no rows"),
    ]
    for images, text in cases:
        write_parquet(tmp_path / "broken.parquet", images, [0, 1, 2, 3, 0] if images else [])
        with pytest.raises(InvalidInput, match=text):
            parquet(tmp_path / "broken.parquet")


def test_parquet_of_something_else(tmp_path: Path, small: tuple[Path, np.ndarray]) -> None:
    path, _ = small
    pq.write_table(pa.table({"text": ["a"], "label": [1]}), tmp_path / "text.parquet")
    with pytest.raises(InvalidInput, match="img or image, but got columns text, label"):
        parquet(tmp_path / "text.parquet")
    pq.write_table(pa.table({"img": [1.5]}), tmp_path / "numbers.parquet")
    with pytest.raises(InvalidInput, match="encoded images"):
        parquet(tmp_path / "numbers.parquet")
    with pytest.raises(InvalidInput, match="one of img, label"):
        parquet(path, label="coarse_label")
    with pytest.raises(InvalidInput, match="between 1 and 12 points"):
        parquet(path, points=13)
    with pytest.raises(InvalidInput, match="no such path"):
        parquet(tmp_path / "missing.parquet")


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
    with pytest.raises(InvalidInput, match="plain arrays"):
        npz(path)
    for content in (b"", b"junk", b"PK\x03\x04junk"):
        path.write_bytes(content)
        with pytest.raises(InvalidInput, match=r"readable .npz"):
            npz(path)
    np.save(tmp_path / "one.npy", np.eye(2))
    with pytest.raises(InvalidInput, match="npy"):
        npz(tmp_path / "one.npy")
    with pytest.raises(InvalidInput, match="no such file"):
        npz(tmp_path / "missing.npz")


# --- load ---------------------------------------------------------------------------------------------------------


def test_load(tmp_path: Path, small: tuple[Path, np.ndarray]) -> None:
    path, _ = small
    write_idx(tmp_path / "mnist", prefix="t10k")
    assert load("blob:n=20,d=3").hash == blob(20, 3).hash
    assert load("two_blobs:n=20,d=3,seed=4", points=7).hash == two_blobs(20, 3, seed=4).subset(7).hash
    even = load("mnist:test,even-odd", data_dir=tmp_path, points=10, shift=2.0)
    assert even.hash == mnist(tmp_path, "test").select("parity").subset(10).standardize("global").shift(2.0).hash
    assert load("mnist:test", data_dir=tmp_path, standardize="none").hash == mnist(tmp_path, "test").hash
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


# --- what users hand in -------------------------------------------------------------------------------------------


def test_as_data() -> None:
    x, y = numbers(6, 3), np.arange(6) % 2
    tensor, labels = torch.from_numpy(x), torch.from_numpy(y)
    reference, labelled = Data(x).hash, Data(x, y).hash
    for given_x in (x, x.astype(np.float64), tensor, tensor.double().requires_grad_(), x.tolist(), {"x": x}, (x, None)):
        assert as_data(given_x).hash == reference
    loader = DataLoader(TensorDataset(tensor, labels), batch_size=4)
    for pair in (
        (x, y),
        [x, y],
        (tensor, labels),
        {"pixel_values": tensor, "labels": labels},
        (x.tolist(), y.tolist()),
    ):
        assert as_data(pair).hash == labelled
    for stream in (loader, loader.dataset, iter(loader), [(tensor[:2], labels[:2]), (tensor[2:], labels[2:])]):
        assert as_data(stream).hash == labelled
    data = Data(x, y)
    assert as_data(data) is data
    assert as_data(data, points=2).n == 2
    assert as_data(loader, points=5).n == 5
    assert as_data([{"pixel_values": tensor, "label": labels}]).hash == labelled
    half = as_data(tensor.bfloat16())
    np.testing.assert_array_equal(half.x, tensor.bfloat16().float().numpy())


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        ("mnist", "load"),
        (3, "DataLoader"),
        (None, "DataLoader"),
        ({"a": 1}, "keys a"),
        ((np.eye(3), np.arange(2)), "3 labels"),
        ([], "at least one point"),
        ([[1, 2], [3]], "array of numbers"),
        (torch.zeros(3, 3, device="meta"), "meta"),
        ([torch.zeros(2, 3), torch.zeros(2, 4)], "one shape"),
        (torch.full((2, 2), torch.nan), "4 of 4"),
        ([(torch.zeros(2, 3), torch.zeros(2, 3), None)], "one input"),
    ],
)
def test_bad_as_data(obj: object, text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        as_data(obj)


def test_as_data_states_how_many_there_are() -> None:
    for obj in (np.eye(4), DataLoader(TensorDataset(torch.eye(4)), batch_size=3)):
        with pytest.raises(InvalidInput, match="there are 4"):
            as_data(obj, points=9)


def joined(found: list) -> torch.Tensor:
    return torch.cat([batch.inputs for batch in found])


def test_collect_arrays() -> None:
    x, y = torch.randn(10, 3, generator=torch.Generator().manual_seed(0)), torch.arange(10)
    for obj in (x, x.numpy(), (x, y), [x, y], {"x": x, "y": y}, Data(x.numpy(), y.numpy()), TensorDataset(x, y)):
        found = collect(obj, batch_size=4)
        assert [batch.size for batch in found] == [4, 4, 2]
        assert torch.equal(joined(found), x)
        capped = collect(obj, 7, batch_size=4)
        assert [batch.size for batch in capped] == [4, 3]
    labelled = collect((x, y), 7, batch_size=4)
    chosen = torch.cat([batch.labels for batch in labelled])
    assert torch.equal(joined(labelled), x[chosen])
    assert not torch.equal(chosen, y[:7])  # sorted data must not give its first classes only; fixed seed 0
    assert len(collect(x, 99)) == 1
    assert collect(x.numpy().astype(np.float64))[0].inputs.dtype == torch.float32
    assert collect(x.double())[0].inputs.dtype == torch.float64
    assert collect(x.bfloat16())[0].inputs.dtype == torch.bfloat16
    assert collect([[1, 2], [3, 4]])[0].inputs.tolist() == [[1, 2], [3, 4]]


def test_collect_streams() -> None:
    x, y = torch.arange(20.0).reshape(10, 2), torch.arange(10)
    pairs = [(x[:6], y[:6]), (x[6:], y[6:])]
    for obj in (pairs, (pair for pair in pairs), tuple(pairs), DataLoader(TensorDataset(x, y), batch_size=6)):
        found = collect(obj, 8)
        assert [batch.size for batch in found] == [6, 2]
        assert torch.equal(joined(found), x[:8])
        assert torch.equal(torch.cat([batch.labels for batch in found]), y[:8])
    assert [batch.labels for batch in collect([x, x])] == [None, None]
    assert collect([(x,)])[0].inputs is not None
    endless = (x for _ in iter(int, 1))
    assert sum(batch.size for batch in collect(endless, 25)) == 25


class Squares(Dataset):
    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> dict[str, object]:
        noise = torch.rand(()) + random.random() + np.random.rand()  # noqa: NPY002 - as users' transforms do
        return {"image": index + noise.repeat(2), "label": index}


class Counting(IterableDataset):
    def __iter__(self):
        return ((torch.tensor([float(i)]), i) for i in range(5))


class Pictures(Squares):
    def __getitem__(self, index: int) -> object:
        return Image.new("L", (2, 2))


class Ragged(Squares):
    def __getitem__(self, index: int) -> object:
        return torch.zeros(index + 1)


class Duck:
    """Indexable, as Hugging Face's Dataset is, without being torch's."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> dict[str, object]:
        if index >= 4:
            raise IndexError
        return {"pixel_values": np.full(3, index, dtype=np.float32), "labels": index}


def test_datasets() -> None:
    found = collect(Squares(), 5, batch_size=3)
    assert [batch.size for batch in found] == [3, 2]
    assert found[0].inputs.shape == (3, 2)
    assert [batch.size for batch in collect(Counting(), batch_size=2)] == [2, 2, 1]
    duck = collect(Duck())[0]
    assert duck.inputs["pixel_values"].shape == (4, 3)
    assert duck.labels.tolist() == [0, 1, 2, 3]
    for dataset in (Pictures(), Ragged()):
        with pytest.raises(InvalidInput, match="collate_fn"):
            collect(dataset)
    foreign = np.arange(6.0).reshape(3, 2).astype(">f8")[::-1]
    assert collect(foreign)[0].inputs[:, 0].tolist() == [4, 2, 0]
    assert collect(np.eye(2, dtype=np.longdouble))[0].inputs.dtype == torch.float32


def test_several_inputs_and_keywords() -> None:
    a, b, y = torch.zeros(5, 2), torch.ones(5, 3), torch.arange(5)
    for obj in ((a, b, y), ((a, b), y), [((a, b), y)], [(a, b, y)]):
        (batch,) = collect(obj)
        assert isinstance(batch.inputs, tuple)
        assert [part.shape for part in batch.inputs] == [(5, 2), (5, 3)]
        assert batch.labels.tolist() == [0, 1, 2, 3, 4]
    assert len(collect((a, b, b))[0].inputs) == 3
    tokens = {"input_ids": torch.ones(5, 4, dtype=torch.long), "attention_mask": torch.full((5, 4), -torch.inf)}
    for obj in ({**tokens, "labels": y, "return_dict": True}, [({**tokens, "return_dict": True}, y)]):
        batch = collect(obj, 3)[0]
        assert list(batch.inputs) == ["input_ids", "attention_mask", "return_dict"]
        assert (batch.size, batch.inputs["input_ids"].shape, batch.inputs["return_dict"]) == (3, (3, 4), True)
        assert len(batch.labels) == 3


def test_dict_like_batches() -> None:
    from collections import UserDict  # what a tokenizer's BatchEncoding is

    class Encoding(UserDict): ...

    batch = collect(Encoding(input_ids=[[1, 2], [3, 4]], label=[0, 1]))[0]
    assert batch.inputs["input_ids"].tolist() == [[1, 2], [3, 4]]
    with pytest.raises(InvalidInput, match="padding=True"):
        collect(Encoding(input_ids=[[1, 2], [3]]))


def states() -> list[bytes]:
    legacy = np.random.get_state()  # noqa: NPY002
    return [
        torch.get_rng_state().numpy().tobytes(),
        repr(random.getstate()).encode(),
        repr(legacy[1].tolist()).encode(),
    ]


@pytest.mark.parametrize("own", [False, True])
def test_random_generators_are_untouched(own: bool) -> None:
    generator = torch.Generator().manual_seed(5) if own else None
    loader = DataLoader(Squares(), batch_size=2, shuffle=True, generator=generator)
    before, mine = states(), generator.get_state() if generator else None
    first = collect(loader)
    assert states() == before
    torch.rand(3)  # a user's draw in between must not change what is seen
    second = collect(loader)
    assert torch.equal(joined(first), joined(second))
    collect(loader, 3)
    collect(Squares(), 3)
    as_data(loader)
    if generator is not None and mine is not None:
        assert torch.equal(generator.get_state(), mine)
    order = torch.cat([batch.labels for batch in first]).tolist()
    assert sorted(order) == list(range(9))


def test_random_generators_between_batches() -> None:
    """The consumer's own draws between two batches count, and are not undone at the end."""
    expected = torch.Generator()
    expected.set_state(torch.get_rng_state())
    for _ in batches(DataLoader(Squares(), batch_size=2, shuffle=True)):
        assert torch.rand(()) == torch.rand((), generator=expected)
    assert torch.equal(torch.get_rng_state(), expected.get_state())


def test_random_generators_after_an_error() -> None:
    def failing():
        yield torch.rand(2, 2)
        torch.rand(1)
        raise RuntimeError("disk on fire")

    before = states()
    with pytest.raises(RuntimeError, match="disk on fire"):
        collect(failing())
    assert states() == before


def test_users_tensors_are_untouched() -> None:
    x = torch.zeros(4, 2, requires_grad=True)
    array = np.zeros((4, 2), dtype=np.float32)
    collect(x)
    as_data(x)
    as_data(array)
    assert x.requires_grad
    assert x.grad is None
    assert array.flags.writeable
    data = Data(array)
    collect(data)[0].inputs.fill_(7)  # a model that works in place
    assert data.x.max() == 0


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        (torch.zeros(0, 3), "empty data"),
        ([], "empty stream"),
        (iter([]), "read only once"),
        (TensorDataset(torch.zeros(0, 2)), "empty Dataset"),
        ("digits", "load"),
        (3, "builtins.int"),
        (torch.zeros(()), "no tensor"),
        (np.array([["a"]]), "dtype"),
        ({"text": ["a", "b"]}, "key 'text'"),
        ({"labels": torch.zeros(3)}, "no tensor"),
        ({"a": torch.zeros(3, 2), "b": torch.zeros(4, 2)}, r"\[3, 4\]"),
        ((torch.zeros(3, 2), torch.zeros(4)), "3 labels"),
        (torch.tensor([[1.0, 2.0], [torch.inf, 0.0]]), r"1 of 4 entries, first in point 1, entry \(0,\)"),
        ([torch.zeros(3, 2), torch.full((2, 2), torch.nan)], "first in point 3.*batch 1"),
        ({"inputs_embeds": torch.full((2, 2), torch.nan)}, "inputs_embeds"),
    ],
)
def test_bad_streams(obj: object, text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        collect(obj)


def test_bad_sizes_are_found_before_anything_is_read() -> None:
    def explode():
        raise AssertionError("was read")
        yield

    for keywords in ({"points": 0}, {"points": 1.5}, {"batch_size": 0}):
        with pytest.raises(InvalidInput):
            batches(explode(), **keywords)


def test_a_loader_with_workers() -> None:
    before = states()
    loader = DataLoader(TensorDataset(torch.arange(6.0)[:, None]), batch_size=2, num_workers=1)
    assert joined(collect(loader, 3))[:, 0].tolist() == [0, 1, 2]
    assert states() == before


# --- real files, where they are -----------------------------------------------------------------------------------


@pytest.mark.skipif(not (REAL / "mnist").is_dir(), reason=f"no MNIST in {REAL}")
def test_real_mnist() -> None:
    data = mnist(REAL, "test")
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
    np.testing.assert_allclose(data.x.mean(axis=(0, 2, 3), dtype=np.float64), 0, atol=1e-5)
    assert cifar10(REAL, "test", classes="cat-dog", points=50).classes == 2
