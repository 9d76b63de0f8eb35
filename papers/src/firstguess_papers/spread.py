"""Items, or the pieces of one item, as tasks of a study's pool: in processes of this machine or on Ray.

Several items run side by side, each as ever; only their records come back. Of a single item, pieces are spread: its
function runs here, asks for them and waits where it needs one. Workers keep pieces in the output folder as they are
done, so that nothing is lost if this process dies; on a cluster that folder has to be one that all nodes share.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from firstguess import FirstguessError
from firstguess_papers import registry
from firstguess_papers.execute import run_item
from firstguess_papers.items import Item
from firstguess_papers.library import Job, LocalPool, Piece, Pool, Store, Work, cores
from firstguess_papers.records import Record, folder_of


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


def _pool(work: Work, engine: str, address: str | None, workers: int) -> Pool:
    if engine == "local":
        return LocalPool(work, workers=workers, retries=1)
    from firstguess_papers.library import RayPool

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
