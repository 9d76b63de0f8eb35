"""Pieces of an item's work, each a small Parquet file: what was computed before Ctrl-C is there afterwards."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

Piece: TypeAlias = Mapping[str, Any]  # name -> number, text, or array of numbers or texts, of any shape

_SHAPE = b"firstguess shape"
_SECONDS = b"firstguess seconds"


def address(*parts: Any) -> str:
    """Sixteen hexadecimal digits of everything that a piece depends on.

    >>> address("igb/fig5", 1, {"n": 100, "widths": (1, 2)}) == address("igb/fig5", 1, {"widths": [1, 2], "n": 100})
    True
    """
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Store:
    """A folder of pieces."""

    folder: Path

    def read(self, key: str) -> tuple[dict[str, Any], float] | None:
        """The piece and the seconds it took; None if it is not there, or not whole."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            table: Any = pq.read_table(self.folder / f"{key}.parquet")
        except (OSError, pa.ArrowInvalid):
            return None
        seconds = float((table.schema.metadata or {}).get(_SECONDS, b"0"))
        return {field.name: _value(table, field) for field in table.schema}, seconds

    def write(self, key: str, piece: Piece, seconds: float) -> None:
        """Keep a piece; a reader sees all of it or nothing."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        fields: list[Any] = []
        columns: list[Any] = []
        for name, value in piece.items():
            array = np.asarray(value)
            if array.dtype.kind not in "biufU":
                raise TypeError(f"a piece holds numbers and texts, not {array.dtype} ({name})")
            column: Any = pa.array([array.ravel().tolist()], type=pa.list_(_type(array)))
            fields.append(pa.field(name, column.type, metadata={_SHAPE: json.dumps(array.shape)}))
            columns.append(column)
        schema: Any = pa.schema(fields, metadata={_SECONDS: repr(seconds)})
        self.folder.mkdir(parents=True, exist_ok=True)
        half = self.folder / f"{key}.{os.getpid()}.part"
        pq.write_table(pa.Table.from_arrays(columns, schema=schema), half)
        half.replace(self.folder / f"{key}.parquet")


def _type(array: np.ndarray[Any, Any]) -> Any:
    import pyarrow as pa

    return {"b": pa.bool_(), "i": pa.int64(), "u": pa.int64(), "f": pa.float64(), "U": pa.string()}[array.dtype.kind]


def _value(table: Any, field: Any) -> Any:
    values = table.column(field.name)[0].as_py()
    shape = tuple(json.loads(field.metadata[_SHAPE]))
    if shape == ():
        return values[0]
    return np.array(values, dtype=field.type.value_type.to_pandas_dtype()).reshape(shape)


def write_table(path: Path, columns: Mapping[str, Any]) -> None:
    """A plain table, one row a line: the numbers behind a figure."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({name: np.asarray(values).tolist() for name, values in columns.items()}), path)
