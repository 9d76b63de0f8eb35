"""A store's files. Results stand by their address, whichever study asked for them; studies name the addresses.

runs/tasks/3f/3f09….parquet        a result                runs/studies/norms.parquet         its configurations
runs/tasks/3f/3f09….failed.json    why there is none       runs/studies/norms.table.parquet   its table, when done
runs/blocks/3f09…-50/100.parquet   a block of members, until all blocks of that ensemble have been joined
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firstguess.base.errors import InvalidInput
from firstguess.studies.store import Piece, Store, write_whole
from firstguess.studies.tables import SECONDS, TASK, joined, table_of

_ABOUT = b"firstguess study"
_FAILED = ".failed.json"


def _place(key: str) -> str:
    """In one of 256 folders: a million files in one are slow to list."""
    return f"{key[:2]}/{key}"


@dataclass(frozen=True)
class Results:
    """Results, failures and blocks by address."""

    folder: Path

    @property
    def _tasks(self) -> Store:
        return Store(self.folder / "tasks")

    def _blocks(self, key: str, asked: int) -> Store:
        return Store(self.folder / "blocks" / f"{key}-{asked}")

    def whole(self, key: str) -> bool:
        """Whether there is a result."""
        return self._tasks.has(_place(key))

    def read(self, key: str) -> tuple[dict[str, Any], float] | None:
        """A result, with the seconds it took; None if it is not there, or damaged."""
        return self._tasks.read(_place(key))

    def set_aside(self, key: str) -> bool:
        """Give a result that cannot be read another name, so that it is missing; whether there was one."""
        return self._tasks.set_aside(_place(key))

    def keep(self, key: str, piece: Piece, seconds: float) -> None:
        """Keep a result; an earlier failure is forgotten."""
        self._tasks.write(_place(key), piece, seconds)
        with contextlib.suppress(OSError):
            self._failure(key).unlink(missing_ok=True)

    def fail(self, key: str, reason: str, seconds: float, trace: str) -> None:
        """Keep why there is no result."""
        path = self._failure(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(f".{uuid.uuid4().hex[:12]}.part")
        half.write_text(json.dumps({"reason": reason, "seconds": seconds, "trace": trace}), encoding="utf-8")
        half.replace(path)

    def failed(self, key: str) -> dict[str, Any] | None:
        """Why there is no result, if it was tried."""
        try:
            return json.loads(self._failure(key).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def _failure(self, key: str) -> Path:
        return self.folder / "tasks" / f"{_place(key)}{_FAILED}"

    def listed(self) -> tuple[set[str], set[str]]:
        """The addresses of all results, and of all failures: by the names of files, which are not looked into."""
        done, failed = set[str](), set[str]()
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
        """All blocks of an ensemble that is complete, in order."""
        first = self.block(key, asked, 0)
        starts = range(first["size"], first["total"], first["size"]) if first is not None else range(0)
        found = [first, *(self.block(key, asked, start) for start in starts)]
        whole = tuple(piece for piece in found if piece is not None)
        if len(whole) < len(found):
            raise OSError(f"blocks of members have gone from {self._blocks(key, asked).folder}")
        return whole

    def drop_blocks(self, key: str, asked: int) -> None:
        """They have been joined."""
        shutil.rmtree(self._blocks(key, asked).folder, ignore_errors=True)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except (FileNotFoundError, NotADirectoryError):
        return []


@dataclass(frozen=True)
class KeptStudy:
    """A study as its store knows it: without the function, so that a shell can show it."""

    results: Results
    name: str

    @property
    def _plan(self) -> Path:
        return self.results.folder / "studies" / f"{self.name}.parquet"

    @property
    def _table(self) -> Path:
        return self.results.folder / "studies" / f"{self.name}.table.parquet"

    def write_plan(self, shown: Sequence[dict[str, Any]], keys: Sequence[str], about: dict[str, Any]) -> None:
        """Keep what the study is made of."""
        rows = [{**row, TASK: key} for row, key in zip(shown, keys, strict=True)]
        write_whole(self._plan, _with(table_of(rows), about))

    def plan(self, digest: str | None = None) -> Any:
        """Configurations and addresses; None if there are none. With `digest`, of that study, or one clear error."""
        found = _read(self._plan)
        if found is not None and digest not in (None, _known(found.schema).get("digest")):
            raise InvalidInput(
                "a name of its own for each study of a store", got=f"{self.name}, which another study has taken since",
                where=str(self.results.folder), hint="another name",
            )  # fmt: skip
        return found

    @contextlib.contextmanager
    def alone(self) -> Generator[bool]:
        """Whether no other process runs this study now, as far as the file system can say."""
        with contextlib.ExitStack() as held:
            alone = True
            try:
                import fcntl

                file = held.enter_context(self._plan.with_suffix(".lock").open("w"))
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # ends with the process, however that ends
            except BlockingIOError:
                alone = False
            except (ImportError, OSError):  # no such locks here: runs begin at the same end
                pass
            yield alone

    def settings(self) -> list[str]:
        """The names of what a configuration sets."""
        schema = _schema(self._plan)
        return [] if schema is None else [name for name in schema.names if name != TASK]

    def about(self) -> dict[str, Any]:
        """What is known of the study: its digest, its function's text, versions; nothing, if it has not run."""
        return _about(self._plan)

    def table(self, digest: str | None = None) -> tuple[Any, int]:
        """Configurations and results as one table, and how many results were found damaged (and set aside).

        A table of all results is kept, and read as it is the next time: `digest` says that it is this study's.
        """
        wanted = digest or self.about().get("digest")
        if _about(self._table).get("digest", "none") == wanted:
            kept = _read(self._table)
            if kept is not None and _known(kept.schema).get("digest") == wanted:
                return kept, 0
        plan = self.plan(digest)
        if plan is None:
            raise InvalidInput(
                "a study that has run", got=self.name, where=str(self.results.folder), hint="study.run()"
            )
        rows, damaged = list[dict[str, Any]](), 0
        for shown in plan.to_pylist():
            found = self.results.read(shown[TASK])
            if found is None:
                damaged += self.results.set_aside(shown[TASK])
                continue
            row, seconds = found
            key = shown.pop(TASK)
            rows.append({**joined(shown, row), SECONDS: seconds, TASK: key})
        table = _with(table_of(rows), _known(plan.schema))
        if len(rows) == plan.num_rows:
            with contextlib.suppress(OSError):  # a convenience: without it the next one takes longer
                write_whole(self._table, table)
        return table, damaged

    def failures(self) -> Any:
        """Configurations without a result that were tried, each with its reason."""
        plan = self.plan()
        _, failed = self.results.listed()
        rows: list[dict[str, Any]] = []
        for shown in [] if plan is None or not failed else plan.to_pylist():
            if shown[TASK] in failed and (why := self.results.failed(shown[TASK])) is not None:
                key = shown.pop(TASK)
                rows.append(
                    {**shown, "reason": why["reason"], "trace": why["trace"], SECONDS: why["seconds"], TASK: key}
                )
        # Without failures an empty table, which has the columns still.
        return table_of(rows or [dict.fromkeys([*self.settings(), "reason", "trace", SECONDS, TASK])]).slice(not rows)

    def counts(self) -> dict[str, int]:
        """How many tasks there are, are done, have failed, are missing."""
        plan = self.plan()
        keys = [] if plan is None else plan[TASK].to_pylist()
        done, failed = self.results.listed()
        ready, bad = sum(key in done for key in keys), sum(key in failed for key in keys)
        return {"tasks": len(keys), "done": ready, "failed": bad, "missing": len(keys) - ready - bad}


def studies_in(folder: Path) -> Iterator[KeptStudy]:
    """All studies of a store, by name."""
    for path in sorted((folder / "studies").glob("*.parquet")):
        if not path.name.endswith(".table.parquet"):
            yield KeptStudy(Results(folder), path.name[: -len(".parquet")])


def _schema(path: Path) -> Any:
    """Names, types and what is written in a file's head, without reading its rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_schema(path)
    except (OSError, pa.ArrowException):
        return None


def _about(path: Path) -> dict[str, Any]:
    schema = _schema(path)
    return {} if schema is None else _known(schema)


def _known(schema: Any) -> dict[str, Any]:
    return json.loads((schema.metadata or {}).get(_ABOUT, b"{}"))


def _with(table: Any, known: dict[str, Any]) -> Any:
    return table.replace_schema_metadata({_ABOUT: json.dumps(known)})


def _read(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(path, memory_map=True)
    except (OSError, pa.ArrowException):
        return None
