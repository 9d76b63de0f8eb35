"""Pieces of work, each a small Parquet file: what was computed before Ctrl-C is there afterwards."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import uuid
from collections.abc import Mapping
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
    return hashlib.sha256(text.encode()).hexdigest()[:16]


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
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(self.path(key), page_checksum_verification=True) as file:
                table: Any = file.read(use_threads=False)
            seconds = float((table.schema.metadata or {}).get(_SECONDS, b"0"))
            return {field.name: _value(table, field) for field in table.schema}, seconds
        except (OSError, pa.ArrowException, ValueError, KeyError, IndexError, TypeError):
            return None

    def write(self, key: str, piece: Piece, seconds: float) -> None:
        """Keep a piece; a reader sees all of it or nothing."""
        import pyarrow as pa

        fields: list[Any] = []
        columns: list[Any] = []
        for name, value in piece.items():
            array = np.asarray(value)
            if array.dtype.kind not in "biufU":
                raise TypeError(f"a piece holds numbers and texts, not {array.dtype} ({name})")
            flat: Any = pa.array(array.ravel().tolist() if array.dtype.kind in "bU" else array.ravel(), _type(array))
            column: Any = pa.ListArray.from_arrays(pa.array([0, array.size], pa.int32()), flat)
            fields.append(pa.field(name, column.type, metadata={_SHAPE: json.dumps(array.shape)}))
            columns.append(column)
        schema: Any = pa.schema(fields, metadata={_SECONDS: repr(seconds)})
        # Of one row, a dictionary and statistics are longer than the values, and take as long to write.
        write_whole(
            self.path(key), pa.Table.from_arrays(columns, schema=schema), use_dictionary=False, write_statistics=False
        )

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

    half = path.with_suffix(f".{uuid.uuid4().hex[:12]}.part")
    try:
        try:
            pq.write_table(table, half, write_page_checksum=True, **options)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(table, half, write_page_checksum=True, **options)
        half.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            half.unlink(missing_ok=True)
        raise


def _type(array: np.ndarray[Any, Any]) -> Any:
    import pyarrow as pa

    return {"b": pa.bool_(), "i": pa.int64(), "u": pa.int64(), "f": pa.float64(), "U": pa.string()}[array.dtype.kind]


def _value(table: Any, field: Any) -> Any:
    shape = tuple(json.loads(field.metadata[_SHAPE]))
    values = table.column(field.name).chunk(0).flatten()
    if shape == ():
        return values[0].as_py()
    kind = field.type.value_type
    array = np.array(values.to_pylist() if str(kind) in ("bool", "string") else values.to_numpy(), _numpy(kind))
    return array.reshape(shape)


def _numpy(kind: Any) -> Any:
    return {"bool": np.bool_, "int64": np.int64, "double": np.float64, "string": np.str_}[str(kind)]


def write_table(path: Path, columns: Mapping[str, Any]) -> None:
    """A plain table, one row a line: the numbers behind a figure."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({name: np.asarray(values).tolist() for name, values in columns.items()}), path)
