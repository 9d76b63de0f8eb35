"""Runs one item: skips it where something is missing, writes charts, tables and its record."""

from __future__ import annotations

import importlib.util
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from firstguess import FirstguessError, InvalidInput, __version__
from firstguess_papers import records
from firstguess_papers.items import Item, Outcome, Sizes
from firstguess_papers.judging import NOISY, later_looks
from firstguess_papers.library import Store, write_table
from firstguess_papers.provenance import provenance
from firstguess_papers.records import Record, Status
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
        if any(entry.why == NOISY for entry in record.entries):
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
    reason = ""
    outcome = Outcome(())
    charts: list[str] = []
    try:
        _need_packages(item)
        with workers(folder / "pieces") as run.crew, later_looks(LOOKS) if look else nullcontext():
            outcome = item.function(run)
        _check(item, outcome)
        charts = _write(outcome, folder)
    except Missing as missing:
        status, reason = "skipped", str(missing)
    except FirstguessError as error:
        status, reason, outcome = "failed", str(error), Outcome(())
    except Exception as error:  # a fault of the item: the others still run, and the trace is kept
        (folder / ERROR).write_text(traceback.format_exc(), encoding="utf-8")
        reason = f"{type(error).__name__}: {error}".splitlines()[0] + f" (see {folder / ERROR})"
        status, outcome = "failed", Outcome(())
    record = Record(
        item.id,
        item.title,
        item.claims,
        item.where,
        status,
        quick,
        item.settings(quick, changed, times),
        item.version,
        __version__,
        seed,
        round(time.perf_counter() - started + run.saved_seconds, 1),
        tuple(outcome.entries),
        tuple(charts),
        tuple(f"{name}.parquet" for name in outcome.tables),
        tuple(outcome.notes),
        reason,
        made.commit,
        made.checks,
        tuple(records.plain(sizes)),
        look,
    )
    records.write(folder, record)
    return record


def _need_packages(item: Item) -> None:
    absent = [name for name in item.packages if importlib.util.find_spec(name) is None]
    if absent:
        names = " ".join(absent)
        raise Missing(
            f"this item needs the package {names}, which is not installed: pip install firstguess-papers, "
            f"or pip install {names}"
        )


def _check(item: Item, outcome: Outcome) -> None:
    answered = {entry.claim for entry in outcome.entries}
    if answered != set(item.claims):
        raise InvalidInput(
            f"entries for the claims {', '.join(item.claims)}", got=", ".join(sorted(answered)) or "none", where=item.id
        )


def _write(outcome: Outcome, folder: Path) -> list[str]:
    from firstguess_papers.library import save

    for name, table in outcome.tables.items():
        write_table(folder / f"{name}.parquet", table)
    for name, chart in outcome.charts.items():
        for ending in ("png", "html"):
            save(chart, folder / f"{name}.{ending}")
    return [f"{name}.png" for name in outcome.charts]
