"""What a study costs: overhead a task here and on Ray, a second worker, opening a table of a million rows.

    python benchmarks/studies.py [--tasks 10000] [--no-ray]

Run nothing else meanwhile. Limits, which end the script with 1 where they are missed: 2 ms per task on this machine, 5
ms on Ray, at 10 000 tasks that do nothing; two workers 1.8 times as fast as one where they measure; a kept table of
1 000 000 rows read in a second.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import firstguess as fg
from firstguess.base.threads import cores
from firstguess.studies import scheduler
from firstguess.studies.store import TASK, Results, write_whole
from firstguess.studies.study_files import StudyFiles


def nothing(p: dict[str, Any]) -> dict[str, Any]:
    return {"value": p["k"] + 0.5, "word": "a"}


def processor_seconds() -> tuple[float, float]:
    """Of this process, and of those that it has started and that have ended."""
    own, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime, others.ru_utime + others.ru_stime


def overhead(tasks: int, folder: Path, **options: Any) -> float:
    """Milliseconds a task: all of a run, from reading the configurations to the last result on disk."""
    study = fg.study("nothing", fg.grid(k=range(tasks)), nothing, store=folder)
    warm = fg.study("warm", fg.grid(k=[-1]), nothing, store=folder / "warm")
    warm.run(**options)  # a cluster that was started stays for the next run, processes do not
    before, started = processor_seconds(), time.perf_counter()
    study.run(**options)
    took, after = time.perf_counter() - started, processor_seconds()
    assert study.ran is not None
    assert study.ran.done == tasks
    driver, workers = (1e3 * (b - a) / tasks for a, b in zip(before, after, strict=True))
    own = "" if options.get("engine") == "ray" else f", of workers {workers:.3f} with their start"
    print(f"    processor time of the driver {driver:.3f} ms per task{own}")
    started = time.perf_counter()
    study.run(**options)
    print(f"    going on where nothing is missing: {1e3 * (time.perf_counter() - started) / tasks:.3f} ms per task")
    started = time.perf_counter()
    study.table()
    print(f"    the first table, read from results: {1e3 * (time.perf_counter() - started) / tasks:.3f} ms per row")
    return 1e3 * took / tasks


def measuring(folder: Path, workers: int, rounds: int = 8) -> float:
    """Seconds for some ensembles; the first task of each worker, which loads torch, is not counted."""
    x = np.random.default_rng(0).standard_normal((1000, 200), dtype=np.float32)
    grid = fg.grid(depth=[3], seed=range(workers + rounds))

    def function(p: dict[str, Any], data: Any) -> Any:
        return fg.measure(fg.mlp(depth=p["depth"]), data, inits=60, width=500, seed=p["seed"])

    ticks: list[float] = []
    study = fg.study("measuring", grid, function, data=x, store=folder / f"{workers}")
    study.run(workers=workers, progress=lambda ran: ticks.append(time.perf_counter()))
    return ticks[-1] - ticks[workers - 1]


def opening(folder: Path, rows: int) -> float:
    """Seconds to open a kept table."""
    import pyarrow as pa

    rng = np.random.default_rng(0)
    kept = StudyFiles(Results(folder), "large")
    keys = pa.array([f"{k:016x}" for k in range(rows)])
    about = {b"firstguess study": b'{"digest": "d"}'}
    settings = {"depth": np.arange(rows), "norm": pa.array(["layernorm"] * rows)}
    plan = pa.table({**settings, TASK: keys})
    numbers = {name: rng.standard_normal(rows) for name in ("gamma", "gamma_se", "expected_max", "std", "over_90")}
    table = pa.table({**settings, **numbers, TASK: keys})
    write_whole(folder / "studies" / "large.parquet", plan.replace_schema_metadata(about))
    kept.keep_table(table.replace_schema_metadata(about))
    before, started = time.process_time(), time.perf_counter()
    found, _ = kept.table()
    took = time.perf_counter() - started
    print(f"    processor time {time.process_time() - before:.3f} s")
    assert found.num_rows == rows
    return took


def main() -> int:
    """Print a line for each; 1 if a limit was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--no-ray", action="store_true")
    asked = parser.parse_args()
    missed = False
    most = scheduler.MOST

    def said(what: str, value: float, limit: float, unit: str, *, least: bool = False) -> None:
        nonlocal missed
        fine = value >= limit if least else value <= limit
        missed |= not fine
        words = f"{'at least' if least else 'at most'} {limit:g}"
        print(f"{what}: {value:.3g} {unit} ({words}){'' if fine else ': MISSED'}", flush=True)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        said("overhead on this machine", overhead(asked.tasks, folder / "local"), 2.0, "ms per task")
        if not asked.no_ray and importlib.util.find_spec("ray") is not None:
            import ray

            ray.init("local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
            said("overhead on Ray", overhead(asked.tasks, folder / "ray", engine="ray"), 5.0, "ms per task")
            scheduler.MOST = 1
            few = min(asked.tasks, 2000)
            said("the same, a call and a file each", overhead(few, folder / "alone", engine="ray"), 5.0, "ms per task")
            ray.shutdown()
            scheduler.MOST = most
        if cores() > 1:
            one, two = (measuring(folder / "measuring", workers) for workers in (1, 2))
            said("two workers against one, measuring", one / two, 1.8, "times as fast", least=True)
        said("opening a table of 1 000 000 rows", opening(folder / "large", 1_000_000), 1.0, "s")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
