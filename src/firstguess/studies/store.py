"""Pieces of work, each a small Parquet file: what was computed before Ctrl-C is there afterwards."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from firstguess.base.checks import optional
from firstguess.base.files import Codec, FolderStore, place

Piece: TypeAlias = Mapping[str, Any]  # name -> number, text, or array of numbers or texts, of any shape

_SHAPE = b"firstguess shape"
_SECONDS = b"firstguess seconds"
_MAGIC = b"PAR1"  # the first and the last four bytes of a Parquet file that is whole


def write_parquet(path: Path, table: Any, **options: Any) -> None:
    """Write an Arrow table with checksums."""
    import pyarrow.parquet as pq

    pq.write_table(table, path, write_page_checksum=True, **options)


def write_whole(path: Path, table: Any, **options: Any) -> None:
    """Write an Arrow table: all of it, or nothing, whatever happens; OSError where the disk refuses."""
    place(path, lambda half: write_parquet(half, table, **options))


def read_whole(path: Path, columns: list[str] | None = None) -> Any:
    """An Arrow table, its pages checked; None if it is not there, or damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            return file.read(columns=columns, use_threads=False)
    except (OSError, pa.ArrowException, ValueError, KeyError):
        return None


Read: TypeAlias = "tuple[dict[str, Any], float]"  # a result, and the seconds it took


def _write_piece(path: Path, found: Read) -> None:
    write_parquet(path, encoded([found[0]], {_SECONDS: repr(found[1])}), **SMALL)


def _read_piece(path: Path) -> Read | None:
    table = read_whole(path)
    try:
        (piece,) = decoded(table)
        return piece, float((table.schema.metadata or {}).get(_SECONDS, b"0"))
    except (AttributeError, ValueError, KeyError, IndexError, TypeError):
        return None


PARQUET = Codec(".parquet", _write_piece, _read_piece)


@dataclass(frozen=True)
class Store(FolderStore[Read]):
    """A folder of pieces as Parquet, with the seconds that each took. Pages have checksums: damage is not read."""

    codec: Codec[Read] = PARQUET

    def has(self, key: str) -> bool:
        """Whether the piece seems whole: a file that begins and ends as one. `read` looks at all of it."""
        try:
            with self.path(key).open("rb") as file:
                first = file.read(4)
                file.seek(-4, os.SEEK_END)
                return first == _MAGIC == file.read(4)
        except OSError:
            return False

    def write(self, key: str, piece: Piece, seconds: float) -> None:
        """Keep a piece; a reader sees all of it or nothing."""
        self.keep(key, (dict(piece), seconds))


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
    """The pieces of `encoded`; columns that were added to them are left out."""
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
    """A plain table, one row per line: the numbers behind a figure."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({name: np.asarray(values).tolist() for name, values in columns.items()}), path)


# Rows as one Arrow table: configuration first, results after it.

TASK, SECONDS = "task", "seconds"  # the two columns that every table has at its end
_FOUND = "_found"  # after the name of a result that has the name of a setting, and another value


def joined(shown: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration and its result as one row.

    >>> joined({"depth": 3, "seed": 1}, {"seed": 1, "depth": 4.0, "gamma": 0.5})
    {'depth': 3, 'seed': 1, 'depth_found': 4.0, 'gamma': 0.5}
    """
    found = dict(shown)
    for name, value in row.items():
        if name not in shown:
            found[name] = value
        elif not (np.ndim(value) == 0 and value == shown[name]):
            found[name + _FOUND] = value
    return found


def table_of(rows: Sequence[Mapping[str, Any]]) -> Any:
    """A `pyarrow.Table` of rows that may differ in their names: what a row lacks is null.

    >>> t = table_of([{"depth": 1, "norm": None}, {"depth": 2.5, "norm": "rmsnorm", "shares": np.array([0.5, 0.5])}])
    >>> t.column_names, t["depth"].to_pylist(), t["shares"].to_pylist()
    (['depth', 'norm', 'shares'], [1.0, 2.5], [None, [0.5, 0.5]])
    """
    import pyarrow as pa

    names = dict.fromkeys(name for row in rows for name in row)
    last = [name for name in (SECONDS, TASK) if name in names]
    ordered = [name for name in names if name not in last] + last
    return pa.table({name: _column([row.get(name) for row in rows]) for name in ordered})


def _column(values: list[Any]) -> Any:
    import pyarrow as pa

    plain = [value.tolist() if isinstance(value, np.ndarray) else value for value in values]
    kinds = {type(value) for value in plain} - {type(None)}
    if kinds == {int, float}:
        plain = [None if value is None else float(value) for value in plain]
    elif len(kinds) > 1:  # a setting that is a word here and a number there
        plain = [None if value is None else str(value) for value in plain]
    elif kinds == {list}:
        return pa.array(plain, _list_type(plain))
    return pa.array(plain)


def _list_type(values: list[Any]) -> Any:
    """The list type for arrays: the least that holds them all, since some may be whole numbers and others not."""
    import pyarrow as pa

    arrays = [np.asarray(value) for value in values if value is not None and np.size(value)]
    kind: Any = pa.float64()
    if arrays and all(array.dtype.kind == "U" for array in arrays):
        kind = pa.string()
    elif arrays and all(array.dtype.kind in "iu" for array in arrays):
        kind = pa.int64()
    elif arrays and all(array.dtype.kind == "b" for array in arrays):
        kind = pa.bool_()
    for _ in range(max((np.ndim(value) for value in values if value is not None), default=1)):
        kind = pa.list_(kind)
    return kind


# Results by their address, whichever study asked for them; failures; blocks of members.
#
# runs/tasks/3f/3f09….parquet        a result
# runs/tasks/3f/3f09….failed.json    why there is none
# runs/batches/5b21….parquet         results of small tasks that came back together, a row each, with their addresses
# runs/blocks/3f09…-50/100.parquet   a block of members, until all blocks of that ensemble have been joined

_FAILED = ".failed.json"
_LOOK = 1.0  # seconds between two looks for batches of other runs
_SETTLED = 2_000_000_000  # nanoseconds
_BY = "firstguess "  # before the two columns of a batch that are not of its results


def _place(key: str) -> str:
    """A file in one of 256 folders: a million files in one are slow to list."""
    return f"{key[:2]}/{key}"


class Results:
    """Results, failures and blocks by address. Whatever is written is there whole or not at all."""

    def __init__(self, folder: Path) -> None:
        optional("pyarrow", "studies", "the store of a study")
        self.folder = folder
        self._tasks = Store(folder / "tasks")
        self._batches = _Batches(folder / "batches")

    def _blocks(self, key: str, asked: int) -> Store:
        return Store(self.folder / "blocks" / f"{key}-{asked}")

    def whole(self, key: str) -> bool:
        """Whether there is a result."""
        return self._batches.where(key) is not None or self._tasks.has(_place(key))

    def read(self, key: str) -> Read | None:
        """A result; None if it is not there, or damaged."""
        (found,) = self.read_all([key])
        return found

    def read_all(self, keys: Iterable[str]) -> Iterator[Read | None]:
        """One after the other; a file with several of them is read once."""
        opened: dict[str, dict[str, Read]] = {}
        for key in keys:
            name = self._batches.where(key)
            if name is None:
                yield self._tasks.read(_place(key))
                continue
            if name not in opened:
                opened[name] = self._batches.read(name)
            yield opened[name].get(key)

    def set_aside(self, key: str) -> int:
        """Give a file that cannot be read another name, so that its results are missing; how many files that are."""
        return self._batches.set_aside(key) + self._tasks.set_aside(_place(key))

    def keep_all(self, found: Sequence[tuple[str, Piece, float]]) -> None:
        """Keep results, several in one file where they have the same names and shapes; failures are forgotten."""
        alike: dict[Any, list[tuple[str, Piece, float]]] = {}
        for one in found:
            alike.setdefault(signature(one[1]), []).append(one)
        for some in alike.values():
            if len(some) == 1:
                (key, piece, seconds) = some[0]
                self._tasks.write(_place(key), piece, seconds)
            else:
                self._batches.write(some)
        for key, _, _ in found:
            with contextlib.suppress(OSError):
                os.unlink(self._failure(key))

    def fail(self, key: str, reason: str, seconds: float, trace: str) -> None:
        """Keep why there is no result."""
        text = json.dumps({"reason": reason, "seconds": seconds, "trace": trace})
        place(Path(self._failure(key)), lambda half: half.write_text(text, encoding="utf-8"))

    def failed(self, key: str) -> dict[str, Any] | None:
        """Why there is no result, if it was tried."""
        try:
            return json.loads(Path(self._failure(key)).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def _failure(self, key: str) -> str:
        return f"{self.folder}/tasks/{_place(key)}{_FAILED}"

    def listed(self) -> tuple[set[str], set[str]]:
        """The addresses of all results, and of all failures: by the names of files, which are not looked into."""
        done, failed = self._batches.keys(), set[str]()
        for folder in _entries(self.folder / "tasks"):
            for entry in _entries(Path(folder.path)):
                if entry.name.endswith(".parquet"):
                    done.add(entry.name[: -len(".parquet")])
                elif entry.name.endswith(_FAILED):
                    failed.add(entry.name[: -len(_FAILED)])
        return done, failed - done

    # -- Blocks of about `asked` members ------------------------------------------------------------------------------

    def keep_block(self, key: str, asked: int, piece: Piece, seconds: float) -> None:
        """Keep members until there are all of them."""
        self._blocks(key, asked).write(str(piece["start"]), piece, seconds)

    def block(self, key: str, asked: int, start: int) -> Piece | None:
        """The members from `start` on."""
        found = self._blocks(key, asked).read(str(start))
        return None if found is None else found[0]

    def blocks(self, key: str, asked: int) -> tuple[Piece, ...]:
        """All blocks of an ensemble, in order; none, if one of them is not there."""
        first = self.block(key, asked, 0)
        if first is None:
            return ()
        rest = (self.block(key, asked, start) for start in range(first["size"], first["total"], first["size"]))
        found = [first]
        for piece in rest:
            if piece is None:
                return ()
            found.append(piece)
        return tuple(found)

    def drop_blocks(self, key: str, asked: int) -> None:
        """They have been joined."""
        shutil.rmtree(self._blocks(key, asked).folder, ignore_errors=True)


class _Batches:
    """Files with several results each, and where each result is. Other runs may add files at any time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._where: dict[str, str] = {}  # the file's name, by address
        self._known: set[str] = set()
        self._changed = 0  # the folder, when it was looked into
        self._looked = -_LOOK

    def where(self, key: str) -> str | None:
        """The name of the file with this result."""
        self._look()
        return self._where.get(key)

    def keys(self) -> set[str]:
        self._look(now=True)
        return set(self._where)

    def write(self, found: Sequence[tuple[str, Piece, float]]) -> None:
        import pyarrow as pa

        beside = {f"{_BY}{TASK}": pa.array([key for key, _, _ in found])}
        beside[f"{_BY}{SECONDS}"] = pa.array([seconds for _, _, seconds in found], pa.float64())
        name = f"{uuid.uuid4().hex[:16]}.parquet"
        write_whole(self._folder / name, encoded([piece for _, piece, _ in found], {}, **beside), **SMALL)
        self._known.add(name)
        self._where.update((key, name) for key, _, _ in found)

    def read(self, name: str) -> dict[str, Read]:
        """All results of a file; none, if it is damaged."""
        table = read_whole(self._folder / name)
        try:
            keys, seconds = (table.column(f"{_BY}{of}").to_pylist() for of in (TASK, SECONDS))
            return {key: (piece, took) for key, piece, took in zip(keys, decoded(table), seconds, strict=True)}
        except (AttributeError, ValueError, KeyError, IndexError, TypeError):
            return {}

    def set_aside(self, key: str) -> int:
        """The file with this result, and all others that are in it."""
        name = self._where.get(key)
        if name is None:
            return 0
        self._where = {other: file for other, file in self._where.items() if file != name}
        return self._rename(name)

    def _rename(self, name: str) -> int:
        with contextlib.suppress(OSError):
            (self._folder / name).replace((self._folder / name).with_suffix(".corrupt"))
            return 1
        return 0

    def _look(self, *, now: bool = False) -> None:
        """Files that have come since."""
        if not now and time.monotonic() - self._looked < _LOOK:
            return
        self._looked = time.monotonic()
        try:
            changed = self._folder.stat().st_mtime_ns
        except OSError:
            return
        if changed == self._changed:
            return
        if abs(time.time_ns() - changed) > _SETTLED:  # a file may still come at the very time that the folder has
            self._changed = changed
        for entry in _entries(self._folder):
            if entry.name.endswith(".parquet") and entry.name not in self._known:
                self._known.add(entry.name)
                table = read_whole(self._folder / entry.name, [f"{_BY}{TASK}"])
                if table is None or not table.num_columns:
                    self._rename(entry.name)
                    continue
                self._where.update(dict.fromkeys(table.column(0).to_pylist(), entry.name))


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except (FileNotFoundError, NotADirectoryError):
        return []
