"""Score the doctor: threads and programs whose cause is known, and trainings that nothing is wrong with.

    python benchmarks/faults.py                     all, some minutes
    python benchmarks/faults.py --only threads      threads, programs or healthy
    python benchmarks/faults.py --every 5           every fifth healthy training

"named first": the headline says the cause; "misleading": it says another one; "silent": it says nothing. Seconds are of
`fg.explain_guess` alone, on one thread. The cases are in tests/doctor_cases.py and tests/doctor_healthy.py.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch

import firstguess as fg

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))


def asked(build: Any, seed: int, seconds: float) -> tuple[str, float]:
    """The headline, empty where nothing is said, and how long that took."""
    torch.manual_seed(seed)
    model, data, known = build()
    began = time.perf_counter()
    e = fg.explain_guess(model, data, seconds=seconds, **known)
    name = e.faults[0].name if e.faults else next((c.name for c in e.causes if c.numbers.get("meant")), "")
    return name, time.perf_counter() - began


def table(title: str, source: str, seconds: float) -> list[float]:
    from doctor_cases import CASES  # pyright: ignore[reportMissingImports]

    times: list[float] = []
    rows: list[tuple[str, str, str]] = []
    for k, case in enumerate(c for c in CASES if c.source == source):
        name, taken = asked(case.build, k, seconds)
        times.append(taken)
        verdict = "named first" if name in case.names else "misleading" if name else "silent"
        rows.append((case.id, verdict, f"{case.cause}; said: {name or 'nothing'}"))
    for row in rows:
        print("  ".join(row))
    counts = {word: sum(row[1] == word for row in rows) for word in ("named first", "misleading", "silent")}
    print(f"{title}: {len(rows)} cases, " + ", ".join(f"{count} {word}" for word, count in counts.items()))
    return times


def healthy(every: int, seconds: float) -> list[float]:
    from doctor_healthy import HEALTHY  # pyright: ignore[reportMissingImports]

    times: list[float] = []
    alarms = 0
    for k, one in enumerate(HEALTHY[::every]):
        torch.manual_seed(k)
        model, data, known = one.build()
        began = time.perf_counter()
        found = fg.explain_guess(model, data, seconds=seconds, **known).faults
        times.append(time.perf_counter() - began)
        if found:
            alarms += 1
            print(f"ALARM  {one.id}: {found[0]}")
    print(f"healthy: {len(times)} trainings, {alarms} false alarms")
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["threads", "programs", "healthy"])
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30.0, help="that a case may take")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    times: list[float] = []
    if given.only in (None, "threads"):
        times += table("threads", "thread", given.seconds)
    if given.only in (None, "programs"):
        times += table("programs", "program", given.seconds)
    if given.only in (None, "healthy"):
        times += healthy(given.every, given.seconds)
    times.sort()
    print(f"seconds per case: median {statistics.median(times):.1f}, 95 % {times[int(0.95 * (len(times) - 1))]:.1f}")


if __name__ == "__main__":
    main()
