"""Items as tasks of a study's pool: several at once, in processes of this machine or on Ray.

An item runs as ever, and keeps its pieces in the output folder as it goes: on a cluster that folder has to be one that
all nodes share. Only what `run_item` returns, the record, comes back.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, Literal

from firstguess import FirstguessError
from firstguess_papers import registry
from firstguess_papers.execute import run_item
from firstguess_papers.items import Item
from firstguess_papers.library import Job, LocalPool, Pool, Work, cores
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
    """Run items side by side; records in the order in which they are done. `options` are those of `run_item`.

    An item whose process dies is tried once more; after that it is an error, since nothing says why.
    """
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
