"""Results by their address, whichever study asked for them; failures; blocks of members.

runs/tasks/3f/3f09….parquet        a result
runs/tasks/3f/3f09….failed.json    why there is none
runs/batches/5b21….parquet         results of small tasks that came back together, a row each, with their addresses
runs/blocks/3f09…-50/100.parquet   a block of members, until all blocks of that ensemble have been joined
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from firstguess.studies.store import SMALL, Piece, Store, decoded, encoded, place, read_whole, signature, write_whole
from firstguess.studies.tables import SECONDS, TASK

_FAILED = ".failed.json"
_LOOK = 1.0  # seconds between two looks for batches of other runs
_SETTLED = 2_000_000_000  # nanoseconds
_BY = "firstguess "  # in front of the two columns of a batch that are not of its results
Read: TypeAlias = "tuple[dict[str, Any], float]"  # a result, and the seconds it took


def _place(key: str) -> str:
    """In one of 256 folders: a million files in one are slow to list."""
    return f"{key[:2]}/{key}"


class Results:
    """Results, failures and blocks by address. Whatever is written is there whole or not at all."""

    def __init__(self, folder: Path) -> None:
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
