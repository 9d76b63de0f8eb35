"""Runs items: skips what misses something, writes charts, tables, records; several at once, or one's pieces spread.

Several items run side by side in a study's pool (processes of this machine, or Ray); only their records come back. Of a
single item, pieces are spread: its function runs here, asks for them and waits where it needs one. Workers keep pieces
in the output folder as they are done, so that nothing is lost if this process dies.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import time
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal

from firstguess import FirstguessError, InvalidInput, __version__
from firstguess_papers import records, registry
from firstguess_papers.items import Item, Outcome, Sizes
from firstguess_papers.judging import NOISY, later_looks
from firstguess_papers.library import Job, LocalPool, Piece, RayPool, Store, Work, cores, write_table
from firstguess_papers.records import Record, Status, folder_of, provenance
from firstguess_papers.running import Crew, Missing, Progress, Run, silent

ERROR = "error.txt"
LOOKS = 3  # further ones, at most, where sampling goes on: with 2, 4 and 8 times the item's networks


def run_item(item: Item, out: Path, *, until_decided: bool = False, **options: Any) -> Record:
    """Run an item, or go on with it (`run_once` has the options); its files and its record are in `out` afterwards.

    `until_decided`: where errors leave a verdict open, go on look by look until none is or the looks are used up. The
    plan is fixed beforehand: how many looks, and (`least`, `room`) which differences are too small to matter.
    """
    record = run_once(item, out, **options)
    for look in range(1, LOOKS + 1 if until_decided else 1):
        if any(entry.why.startswith(NOISY) for entry in record.entries):
            record = run_once(item, out, look=look, **options)
    return record


def run_once(
    item: Item,
    out: Path,
    *,
    quick: bool = False,
    data_dir: str | Path | None = None,
    seed: int = 0,
    fresh: bool = False,
    progress: Progress = silent,
    changed: Sizes | None = None,
    look: int = 0,
    crew: Callable[[Path], AbstractContextManager[Crew]] | None = None,
) -> Record:
    """Run an item once.

    What is missing makes it "skipped", an error of firstguess "failed": other items can still run. Ctrl-C passes
    through, and the pieces that were done stay. `changed` are sizes other than the item's: such a run has a folder of
    its own, and its record never counts as the item's. At the further `look` k, of `LOOKS`, ensembles have 2ᵏ times as
    many parts, of which those of earlier looks are there, and all further looks share the chance to err of one.
    `crew` makes those who compute pieces for a folder of them.
    """
    sizes = item.sizes(quick, changed)
    times = 2**look
    folder = records.folder_of(out, quick, item.id, changed)
    folder.mkdir(parents=True, exist_ok=True)
    made = provenance(item)  # before: what is edited while it runs did not make these numbers
    run = Run(item, quick, Store(folder / "pieces"), data_dir, seed, progress, fresh, changed, times)
    workers: Callable[[Path], AbstractContextManager[Any]] = crew or (lambda _: nullcontext())
    started = time.perf_counter()
    status: Status = "done"
    reason, outcome, charts = "", Outcome(()), list[str]()
    try:
        if absent := " ".join(name for name in item.packages if importlib.util.find_spec(name) is None):
            how = f"pip install firstguess-papers, or pip install {absent}"
            raise Missing(f"this item needs the package {absent}, which is not installed: {how}")
        with workers(folder / "pieces") as run.crew, later_looks(LOOKS) if look else nullcontext():
            outcome = item.outcome(run)
        answered = {entry.claim for entry in outcome.entries}
        if answered != set(item.claims):
            got = ", ".join(sorted(answered)) or "none"
            raise InvalidInput(f"entries for the claims {', '.join(item.claims)}", got=got, where=item.id)
        charts = _write(outcome, folder)
    except Missing as missing:
        status, reason = "skipped", str(missing)
    except FirstguessError as error:
        status, reason, outcome = "failed", str(error), Outcome(())
    except Exception as error:  # a fault of the item: the others still run, and the trace is kept
        (folder / ERROR).write_text(traceback.format_exc(), encoding="utf-8")
        reason = f"{type(error).__name__}: {error}".splitlines()[0] + f" (see {folder / ERROR})"
        status, outcome = "failed", Outcome(())
    seconds = round(time.perf_counter() - started + run.saved_seconds, 1)
    tables = tuple(f"{name}.parquet" for name in outcome.tables)
    record = Record(
        item.id, item.title, tuple(item.claims), item.where, status, quick, item.settings(quick, changed, times),
        item.version, __version__, seed, seconds, tuple(outcome.entries), tuple(charts), tables, tuple(outcome.notes),
        reason, made.commit, made.checks, tuple(records.plain(sizes)), look,
    )  # fmt: skip
    records.write(folder, record)
    return record


def _write(outcome: Outcome, folder: Path) -> list[str]:
    from firstguess.figures import save

    for name, table in outcome.tables.items():
        write_table(folder / f"{name}.parquet", table)
    for name, chart in outcome.charts.items():
        for ending in ("png", "html"):
            save(chart, folder / f"{name}.{ending}")
    return [f"{name}.png" for name in outcome.charts]


def run_items(
    items: Sequence[Item],
    out: Path,
    *,
    engine: Literal["local", "ray"],
    address: str | None = None,
    workers: int | None = None,
    **options: Any,
) -> Generator[Record]:
    """Run items side by side, or one with its pieces spread; records in the order in which they are done.

    `options` are those of `run_item`. What takes its process down is tried once more; after that it is an error, since
    nothing says why.
    """
    if len(items) == 1:
        crew = functools.partial(Workers, engine=engine, address=address, workers=workers or cores())
        yield run_item(items[0], out, crew=crew, **options)
        return
    work = Work(functools.partial(perform_item, str(out.resolve()), options))
    pool = _pool(work, engine, address, min(workers or cores(), len(items)))
    waiting, flying = list(items), 0
    try:
        while waiting or flying:
            while waiting and flying < pool.capacity:
                item = waiting.pop(0)
                pool.start((Job(item.id, item.id),))
                flying += 1
            for outcome in (one for came in pool.wait() for one in came.outcomes):
                flying -= 1
                if outcome.reason:
                    raise FirstguessError("an item that runs to its end", got=outcome.reason, where=outcome.key)
                yield _whole(Record.from_dict(json.loads(outcome.piece["record"])), out)
    finally:
        pool.close()


def perform_item(out: str, options: dict[str, Any], id: str) -> dict[str, str]:
    """One item, in a worker: its files are in `out`, its record is what it returns."""
    record = run_item(registry.items()[id], Path(out), **options)
    return {"record": json.dumps(record.to_dict(), ensure_ascii=False)}


class Workers:
    """A pool that computes pieces and keeps them in a folder."""

    def __init__(self, folder: Path, *, engine: str, address: str | None, workers: int) -> None:
        work = Work(functools.partial(perform_piece, str(folder.resolve())))
        self._pool = _pool(work, engine, address, workers)
        self._waiting: dict[str, Job] = {}
        self._flying: set[str] = set()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    def submit(self, where: str, function: Callable[..., Piece], given: Mapping[str, Any]) -> None:
        """Have a piece computed; one that is under way is not computed twice."""
        if where not in self._flying:
            self._waiting[where] = Job(where, (where, function, dict(given)))
        self._send()

    def finish(self, where: str) -> None:
        """Wait until a piece is kept; others come in meanwhile."""
        while where in self._waiting or where in self._flying:
            for outcome in (one for came in self._pool.wait() for one in came.outcomes):
                self._flying.discard(outcome.key)
                if outcome.reason:
                    raise FirstguessError("a piece that can be computed", got=outcome.reason, where=outcome.key)
            self._send()

    def _send(self) -> None:
        while self._waiting and len(self._flying) < self._pool.capacity:
            where = next(iter(self._waiting))
            self._pool.start((self._waiting.pop(where),))
            self._flying.add(where)


def perform_piece(folder: str, task: tuple[str, Callable[..., Piece], dict[str, Any]]) -> dict[str, float]:
    """One piece, in a worker, kept where the item looks for it."""
    where, function, given = task
    started = time.perf_counter()
    Store(Path(folder)).write(where, function(**given), time.perf_counter() - started)
    return {"seconds": time.perf_counter() - started}


def _pool(work: Work, engine: str, address: str | None, workers: int) -> LocalPool | RayPool:
    if engine == "local":
        return LocalPool(work, workers=workers, retries=1)
    return RayPool(work, address=address, retries=1)


def _whole(record: Record, out: Path) -> Record:
    """The record, if its files are where this process can see them."""
    folder = folder_of(out, record.quick, record.id)
    absent = [name for name in (*record.charts, *record.tables) if not (folder / name).exists()]
    if absent:
        raise FirstguessError(
            "an output folder that all nodes share", got=f"no {absent[0]} in {folder}", where="--out",
            hint="--out on a disk in common",
        )  # fmt: skip
    return record
