"""Files and folders that cannot be read end in one clear error."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import firstguess as fg
from firstguess.base.files import checked, reads_files

LONG = "a" * 300


def header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00v\x00" + text.encode().ljust(117) + b"\n"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93NUMPY",
        b"\x93NUMPY\x09\x00\x10\x00",
        b"\x93NUMPY\x01\x00\x10\x00{'descr': junk}\n",
        header("{'descr': '<f4', 'fortran_order': False, 'shape': ((((((("),
        header("{'descr': '<z4', 'fortran_order': False, 'shape': (3,), }"),
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (-3,), }"),
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000000, 10), }"),
        header("{'descr': ('<f4',), 'fortran_order': False, 'shape': (3,), }"),
        header("{1: 2}"),
    ],
)
def test_bad_headers(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with pytest.raises(fg.InvalidInput, match="readable"):
        fg.data.load(str(path))


@pytest.mark.parametrize("names", [("img", "img", "label"), ("img", "label", "label"), ("image", "x", "x")])
def test_columns_of_the_same_name(tmp_path: Path, names: tuple[str, ...]) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    arrays = [pa.array([{"bytes": b"x"}]) if name.startswith("im") else pa.array([1]) for name in names]
    pq.write_table(pa.table(arrays, names=list(names)), tmp_path / "x.parquet")
    with pytest.raises(fg.InvalidInput, match="more than once"):
        fg.data.load(str(tmp_path / "x.parquet"))


def test_names_too_long() -> None:
    for read in (
        lambda: fg.data.load(LONG),
        lambda: fg.data.load(LONG + ".npy"),
        lambda: fg.data.load("mnist", data_dir=LONG),
        lambda: fg.data.mnist(LONG),
        lambda: fg.data.idx(LONG),
        lambda: fg.data.parquet(LONG),
        lambda: fg.data.npz(LONG),
        lambda: checked(LONG + ".png", (".png",), said=".png", example="figure.png"),
    ):
        with pytest.raises(fg.InvalidInput, match="File name too long"):
            read()


def test_folders_that_may_not_be_read() -> None:
    """As another user than root would find them."""

    @reads_files
    def read() -> None:
        raise PermissionError(13, "Permission denied", "secret/x.npy")

    with pytest.raises(fg.InvalidInput, match=r"files that can be read, but got Permission denied: secret/x\.npy"):
        read()


def test_numbers_too_long() -> None:
    with pytest.raises(fg.InvalidInput, match="a whole number for n"):
        fg.data.load("blob:n=" + "1" * 100_000)


@pytest.mark.parametrize(
    "read",
    [
        fg.data.npz,
        fg.data.idx,
        lambda path: fg.data.idx([path, path]),
        lambda path: fg.data.load(str(path)),
        fg.data.collect,
    ],
)
def test_a_pipe_is_refused_not_waited_for(tmp_path: Path, read: Callable[[Path], object]) -> None:
    os.mkfifo(pipe := tmp_path / "x.npz")
    with pytest.raises(fg.InvalidInput, match="a pipe or a device"):
        read(pipe)
