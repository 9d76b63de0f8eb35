"""A study's files in a store: its configurations with the addresses of their results, and its table.

runs/studies/norms.parquet         its configurations
runs/studies/norms.table.parquet   its table, when all results are there
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firstguess.base.errors import InvalidInput
from firstguess.studies.store import SECONDS, TASK, Results, joined, table_of, write_whole

_ABOUT = b"firstguess study"


@dataclass(frozen=True)
class StudyFiles:
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
        _write(self._plan, _with(table_of(rows), about))

    def plan(self, digest: str | None = None) -> Any:
        """Configurations and addresses; None if there are none. With `digest`, of that study, or one clear error."""
        found = _read(self._plan)
        if found is not None and digest not in (None, _known(found.schema).get("digest")):
            expected = "a name of its own for each study of a store"
            got = f"{self.name}, which another study has taken since"
            raise InvalidInput(expected, got=got, where=str(self.results.folder), hint="another name")
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
            hint = "study.run()"
            raise InvalidInput("a study that has run", got=self.name, where=str(self.results.folder), hint=hint)
        rows, damaged = list[dict[str, Any]](), 0
        listed = plan.to_pylist()
        found = self.results.read_all(shown[TASK] for shown in listed)
        for shown, one in zip(listed, found, strict=True):
            if one is None:
                damaged += self.results.set_aside(shown[TASK])
                continue
            row, seconds = one
            key = shown.pop(TASK)
            rows.append({**joined(shown, row), SECONDS: seconds, TASK: key})
        table = _with(table_of(rows), _known(plan.schema))
        if len(rows) == plan.num_rows:
            with contextlib.suppress(OSError):  # a convenience: without it the next one takes longer
                self.keep_table(table)
        return table, damaged

    def keep_table(self, table: Any) -> None:
        """Keep the table of all results, as it is read the next time."""
        _write(self._table, table)

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


def studies_in(folder: Path) -> Iterator[StudyFiles]:
    """All studies of a store, by name."""
    for path in sorted((folder / "studies").glob("*.parquet")):
        if not path.name.endswith(".table.parquet"):
            yield StudyFiles(Results(folder), path.name[: -len(".parquet")])


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


def _write(path: Path, table: Any) -> None:
    """Write for opening at once: numbers as they are in memory, only words that repeat by their number."""
    words = [field.name for field in table.schema if str(field.type) == "string" and field.name != TASK]
    write_whole(path, table, compression="none", use_dictionary=words or False)


def _read(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(path, memory_map=True)
    except (OSError, pa.ArrowException):
        return None
