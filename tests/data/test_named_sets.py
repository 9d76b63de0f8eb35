"""CIFAR-100 and Tiny ImageNet by name: the parquet layouts that Hugging Face has of them, read from local files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from data_files import ANIMALS, REAL, colours, png, write_parquet

import firstguess as fg
from firstguess.base.errors import InvalidInput
from firstguess.data import cifar100, load, parquet, tiny_imagenet

LAST = 99  # "worm"


def images(n: int) -> list[bytes | None]:
    return [png(image) for image in colours(n)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "cifar100" / "test-00000-of-00001.parquet"
    write_parquet(path, images(6), [0, LAST, 1, 0, LAST, 1], label="fine_label", names=None)
    return tmp_path


def test_cifar100(folder: Path) -> None:
    data = cifar100(folder, "test")
    assert (data.n, data.classes, data.shape) == (6, 100, (3, 4, 6))
    assert data.class_names is not None
    assert (data.class_names[0], data.class_names[1], data.class_names[LAST]) == ("apple", "aquarium_fish", "worm")
    assert sorted(set(data.class_names)) == list(data.class_names)  # the labels are numbered by alphabet
    np.testing.assert_allclose(data.x.mean(axis=(0, 2, 3)), 0, atol=1e-6)  # standardized by channel
    np.testing.assert_allclose(data.x.std(axis=(0, 2, 3)), 1, rtol=1e-5)
    raw = colours(6).transpose(0, 3, 1, 2) / 255
    np.testing.assert_allclose(cifar100(folder, "test", standardize="none").x, raw, rtol=1e-6)
    for spec in ("cifar100:test", "cifar100:test,worm-aquarium_fish"):
        assert load(spec, data_dir=folder).name.startswith("cifar100 test")
    few = load("cifar100:test", data_dir=folder, points=3)
    assert few.hash == data.subset(3).hash
    two = load("cifar100:test,worm-aquarium_fish", data_dir=folder)
    assert two.y is not None
    assert two.y.tolist() == [0, 1, 0, 1]
    assert fg.measure("dense > relu > dense", data, inits=2, width=5).classes == 100
    with pytest.raises(InvalidInput, match=r"CIFAR-100 \(train-\*.parquet.*put Hugging Face's train-00000"):
        cifar100(folder)


def test_cifar100_is_not_taken_for_cifar10(folder: Path) -> None:
    with pytest.raises(InvalidInput, match="CIFAR-10 "):
        fg.data.cifar10(folder / "cifar100", "test")
    assert cifar100(folder / "cifar100", "test").n == 6  # its own folder is as good as the parent


@pytest.mark.parametrize("where", ["tiny-imagenet", "tiny_imagenet", "tiny-imagenet-200"])
def test_tiny_imagenet(where: str, tmp_path: Path) -> None:
    """Hugging Face's file names end in a digest; some images are grey; the labelled splits are train and valid."""
    grey = png(np.full((4, 6), 51))
    for split, count in (("train", 2), ("valid", 1)):
        for shard in range(count):
            name = f"{split}-0000{shard}-of-0000{count}-1359597a978bc4f{shard}.parquet"
            write_parquet(tmp_path / where / "data" / name, [*images(3), grey], [0, 1, 2, 3], image="image")
    data = load("tiny-imagenet:valid", data_dir=tmp_path)
    assert (data.n, data.shape, data.class_names) == (4, (3, 4, 6), ANIMALS)
    assert data.name == "tiny-imagenet valid, standardized (channel)"
    assert data.hash == tiny_imagenet(tmp_path, "valid").hash == load("tiny_imagenet:valid", data_dir=tmp_path).hash
    raw = parquet(tmp_path / where, "valid", name="tiny-imagenet valid")
    assert data.hash == raw.standardize("channel").hash
    assert tiny_imagenet(tmp_path, standardize="none").n == 8
    with pytest.raises(InvalidInput, match=r'"train" or "valid".*test.*Tiny ImageNet'):
        load("tiny-imagenet:test", data_dir=tmp_path)
    next((tmp_path / where / "data").glob("train-00001*")).unlink()
    with pytest.raises(InvalidInput, match="all 2 shards"):
        tiny_imagenet(tmp_path)


@pytest.mark.skipif(not (REAL / "cifar100").is_dir(), reason=f"no CIFAR-100 in {REAL}")
def test_real_cifar100() -> None:
    names = (REAL / "cifar100" / "classes.txt").read_text(encoding="utf-8").split()
    data = load("cifar100:test", data_dir=REAL)
    assert (data.shape, data.classes, data.class_names) == ((3, 32, 32), 100, tuple(names))
    np.testing.assert_allclose(data.x.mean(axis=(0, 2, 3), dtype=np.float64), 0, atol=1e-4)
