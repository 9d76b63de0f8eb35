"""Parquet files of images: every layout, every broken version, and only what is kept is decoded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_files import ANIMALS, colours, png, small_parquet, write_parquet

from firstguess.base.errors import InvalidInput
from firstguess.data import parquet


@pytest.fixture
def small(tmp_path: Path) -> tuple[Path, np.ndarray]:
    return small_parquet(tmp_path)


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
