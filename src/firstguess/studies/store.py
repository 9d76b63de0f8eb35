"""Pieces of work, each a small Parquet file: what was computed before Ctrl-C is there afterwards."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

Piece: TypeAlias = Mapping[str, Any]  # name -> number, text, or array of numbers or texts, of any shape

_SHAPE = b"firstguess shape"
_SECONDS = b"firstguess seconds"
_MAGIC = b"PAR1"  # the first and the last four bytes of a Parquet file that is whole


def address(*parts: Any) -> str:
    """Sixteen hexadecimal digits of everything that a piece depends on.

    >>> address("igb/fig5", 1, {"n": 100, "widths": (1, 2)}) == address("igb/fig5", 1, {"widths": [1, 2], "n": 100})
    True
    """
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True)
class Store:
    """A folder of pieces. Keys may name folders in it: "3f/3f09…".

    A piece is written beside its place and then moved there, so that readers, writers in other processes and what is
    left after a crash see all of it or nothing. Pages have checksums: a piece that was damaged later is not read.
    """

    folder: Path

    def path(self, key: str) -> Path:
        """Where the piece with this key is, or would be."""
        return self.folder / f"{key}.parquet"

    def has(self, key: str) -> bool:
        """Whether the piece seems whole: a file that begins and ends as one. `read` looks at all of it."""
        try:
            with self.path(key).open("rb") as file:
                first = file.read(4)
                file.seek(-4, os.SEEK_END)
                return first == _MAGIC == file.read(4)
        except OSError:
            return False

    def read(self, key: str) -> tuple[dict[str, Any], float] | None:
        """The piece and the seconds it took; None if it is not there, or not whole."""
        table = read_whole(self.path(key))
        try:
            (piece,) = decoded(table)
            return piece, float((table.schema.metadata or {}).get(_SECONDS, b"0"))
        except (AttributeError, ValueError, KeyError, IndexError, TypeError):
            return None

    def write(self, key: str, piece: Piece, seconds: float) -> None:
        """Keep a piece; a reader sees all of it or nothing."""
        write_whole(self.path(key), encoded([piece], {_SECONDS: repr(seconds)}), **SMALL)

    def set_aside(self, key: str) -> bool:
        """Give a damaged piece another name, so that it is missing; whether there was one."""
        try:
            self.path(key).replace(self.path(key).with_suffix(".corrupt"))
        except OSError:
            return False
        return True


def write_whole(path: Path, table: Any, **options: Any) -> None:
    """Write an Arrow table: all of it, or nothing, whatever happens; OSError where the disk refuses."""
    import pyarrow.parquet as pq

    place(path, lambda half: pq.write_table(table, half, write_page_checksum=True, **options))


def place(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file beside its place and move it there; half a file is not left behind."""
    half = path.with_suffix(f".{uuid.uuid4().hex[:12]}.part")
    try:
        try:
            write(half)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            write(half)
        half.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            half.unlink(missing_ok=True)
        raise


def read_whole(path: Path, columns: list[str] | None = None) -> Any:
    """An Arrow table, its pages checked; None if it is not there, or damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            return file.read(columns=columns, use_threads=False)
    except (OSError, pa.ArrowException, ValueError, KeyError):
        return None


# -- Pieces as rows ---------------------------------------------------------------------------------------------------

SMALL: dict[str, Any] = {"use_dictionary": False, "write_statistics": False}  # of few rows: longer than the values
_TYPES = {"b": "bool", "i": "int64", "u": "int64", "f": "double", "U": "string"}
_NUMPY: dict[str, Any] = {"bool": np.bool_, "int64": np.int64, "double": np.float64, "string": np.str_}


def signature(piece: Piece) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
    """Names, types and shapes: pieces that have one in common can be rows of one table."""
    return tuple((name, _kind(value, name), np.shape(value)) for name, value in piece.items())


def encoded(pieces: Sequence[Piece], known: Mapping[bytes, str], **columns: Any) -> Any:
    """An Arrow table of pieces with one signature, a row each; each value is a list, its shape with the field."""
    import pyarrow as pa

    fields = [pa.field(name, column.type) for name, column in columns.items()]
    arrays = list(columns.values())
    for name, kind, shape in signature(pieces[0]):
        size = math.prod(shape)
        kept = pa.type_for_alias(_TYPES[kind])
        if shape == ():
            flat: Any = pa.array([_plain(piece[name]) for piece in pieces], kept)
        else:
            parts = [np.asarray(piece[name]).ravel() for piece in pieces]
            whole = np.concatenate(parts)
            flat = pa.array(whole.tolist() if kind in "bU" else whole, kept)
        offsets = pa.array(np.arange(len(pieces) + 1) * size, pa.int32())
        arrays.append(pa.ListArray.from_arrays(offsets, flat))
        fields.append(pa.field(name, arrays[-1].type, metadata={_SHAPE: json.dumps(shape)}))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=dict(known)))


def decoded(table: Any) -> list[dict[str, Any]]:
    """The pieces of `encoded`; columns that were put beside them are left out."""
    found: list[dict[str, Any]] = [{} for _ in range(table.num_rows)]
    for field in table.schema:
        if not (field.metadata or {}).get(_SHAPE):
            continue
        shape = tuple(json.loads(field.metadata[_SHAPE]))
        values = table.column(field.name).combine_chunks().flatten()
        each: Any
        if shape == ():
            each = values.to_pylist()
        else:
            kind = str(field.type.value_type)
            flat = np.array(values.to_pylist() if kind in ("bool", "string") else values.to_numpy(), _NUMPY[kind])
            each = flat.reshape(len(found), *shape)
        for piece, value in zip(found, each, strict=True):
            piece[field.name] = value
    return found


def _plain(value: Any) -> Any:
    return value if type(value) in (bool, int, float, str) else np.asarray(value).item()


def _kind(value: Any, name: str) -> str:
    kind = {bool: "b", int: "i", float: "f", str: "U"}.get(type(value)) or np.asarray(value).dtype.kind
    if kind not in _TYPES:
        raise TypeError(f"a piece holds numbers and texts, not {np.asarray(value).dtype} ({name})")
    return "i" if kind == "u" else kind


def write_table(path: Path, columns: Mapping[str, Any]) -> None:
    """A plain table, one row a line: the numbers behind a figure."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({name: np.asarray(values).tolist() for name, values in columns.items()}), path)
