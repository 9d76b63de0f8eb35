"""IDX files, the format of MNIST and Fashion-MNIST, plain or gzipped."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from firstguess.base.errors import InvalidInput
from firstguess.base.files import reads_files
from firstguess.data.classes import Classes, regroup
from firstguess.data.dataset import Data, class_step, pick

PathLike: TypeAlias = str | os.PathLike[str]
Split: TypeAlias = Literal["train", "test"]

_PREFIX = {"train": "train", "test": "t10k"}
_DEFLATE_MOST = 1032  # no deflate stream expands more than this: guards memory against a wrong header


@reads_files
def idx(
    source: PathLike | Sequence[PathLike],
    split: Split = "train",
    *,
    classes: Classes | None = None,
    points: int | None = None,
    seed: int = 0,
    class_names: tuple[str, ...] | None = None,
    name: str | None = None,
) -> Data:
    """Images from IDX files as (n, 1, height, width) in [0, 1].

    Args:
        source: A directory with MNIST's file names (`train-images-idx3-ubyte`, `.gz` or plain, or with a dot before
            `idx3`), or the files themselves: images, or (images, labels).
        split: "train" or "test" (`t10k-…`), when `source` is a directory.
        classes: Which classes to keep or join; see `Data.select`.
        points: How many points to draw, by `seed`, after choosing classes.

    >>> idx("no/such/folder")
    Traceback (most recent call last):
    firstguess.InvalidInput: Expected an existing file or directory, but got no/such/folder...
    """
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        if not path.exists():
            raise InvalidInput("an existing file or directory", got=str(path), hint=needed(split))
        files = find(path, split) if path.is_dir() else (path, None)
        if files is None:
            raise InvalidInput("a pair of IDX files", got="none", where=str(path), hint=needed(split))
    elif len(source) == 2:
        files = (Path(source[0]), Path(source[1]))
    else:
        raise InvalidInput("two files, (images, labels)", got=f"{len(source)} files")

    images = _read(files[0], axes=3)
    labels = None if files[1] is None else _read(files[1], axes=1).astype(np.int64)
    if labels is not None and len(labels) != len(images):
        raise InvalidInput(
            f"a label for each of the {len(images)} images in {files[0]}",
            got=f"{len(labels)} labels",
            where=str(files[1]),
            hint="get both files again, from one source",
        )
    name = name or f"{files[0].parent.name} {split}"
    rows = np.arange(len(images), dtype=np.int64)
    if classes is not None:
        if labels is None:
            raise InvalidInput("a label file, to choose classes by", got="images only", where=str(files[0]))
        rows, labels, class_names = regroup(labels, class_names, classes, where=name)
        name = f"{name}, {class_step(class_names)}"
    kept = pick(len(rows), points, seed=seed, where=name)
    if points is not None:
        name = f"{name}, {points} points"
    x = images[rows[kept], None].astype(np.float32)
    x /= np.float32(255)
    x.flags.writeable = False
    return Data(x, None if labels is None else labels[kept], name=name, class_names=class_names)


def find(directory: Path, split: str) -> tuple[Path, Path] | None:
    """The image and label file of a split in a directory, or None when one of the two is not there."""
    if split not in _PREFIX:
        raise InvalidInput('the split "train" or "test"', got=repr(split))
    found: list[Path] = []
    for kind, axes in (("images", 3), ("labels", 1)):
        stems = [f"{_PREFIX[split]}-{kind}{mark}idx{axes}-ubyte" for mark in "-."]
        files = [directory / (stem + suffix) for stem in stems for suffix in ("", ".gz")]
        found += [file for file in files if file.is_file()][:1]
    return (found[0], found[1]) if len(found) == 2 else None


def needed(split: str) -> str:
    """How to provide the files of a split."""
    prefix = _PREFIX.get(split, "train")
    return f"put {prefix}-images-idx3-ubyte and {prefix}-labels-idx1-ubyte there, plain or as .gz"


def _read(path: Path, *, axes: int) -> npt.NDArray[np.uint8]:
    again = "the file is incomplete or not what its name says: get it again"
    try:
        with path.open("rb") as raw:
            gzipped = raw.read(2) == b"\x1f\x8b"  # by content: downloads often lose or keep ".gz" wrongly
        limit = path.stat().st_size * (_DEFLATE_MOST if gzipped else 1)
        with gzip.open(path, "rb") if gzipped else path.open("rb") as file:
            header = file.read(4 + 4 * axes)
            magic = bytes((0, 0, 8, axes))
            if header[:4] != magic:
                raise InvalidInput(
                    f"an IDX file of bytes with {axes} axes (first bytes {magic.hex()})",
                    got=f"first bytes {header[:4].hex() or 'none: the file is empty'}",
                    where=str(path),
                    hint=again,
                )
            shape = tuple(int(size) for size in np.frombuffer(header[4:].ljust(4 * axes, b"\0"), dtype=">u4"))
            size = int(np.prod(shape, dtype=object))
            content = file.read(size + 1) if size <= limit else b""
    except (EOFError, zlib.error, OSError) as error:
        missing = isinstance(error, FileNotFoundError)
        raise InvalidInput(
            "an existing IDX file" if missing else "a readable IDX file",
            got="no such file" if missing else f"{type(error).__name__}: {error}",
            where=str(path),
            hint="check the path" if missing else again,
        ) from error
    if len(content) != size or size == 0:
        got = "more" if len(content) > size else f"{len(content)}" if size <= limit else "a file too small for that"
        raise InvalidInput(
            f"{size} bytes of content, as the header's shape {shape} says", got=got, where=str(path), hint=again
        )
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)
