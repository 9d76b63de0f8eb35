"""Score the doctor: threads and programs whose cause is known, faults written blind, and healthy trainings.

    python benchmarks/faults.py                        all that is not in the store yet, then the table
    python benchmarks/faults.py --only blind twins     some of threads, programs, blind, twins, again and healthy
    python benchmarks/faults.py --again                 all of it again; --stale: what other rules have answered

"named first": the headline says the cause; "misleading": it says another one; "silent": it says nothing; "alarm": of a
healthy training it says anything. Seconds are of `fg.explain_guess` alone, on one thread, by the clock and of the
processor. Every answer goes to the store (a line of JSON each) as it comes, so that a run which was stopped continues.
The cases are in tests/doctor_*.py.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import sys
import time
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import torch

import firstguess as fg

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

SETS = ("threads", "programs", "blind", "twins", "again", "healthy")
Row: TypeAlias = dict[str, Any]
Build: TypeAlias = Callable[[], tuple[Any, Any, dict[str, Any]]]


def cases(of: str) -> Iterator[tuple[str, tuple[str, ...], Build]]:
    """Name, the names that say its fault (none of a healthy one), and what makes it."""
    from doctor_again import AGAIN  # pyright: ignore[reportMissingImports]
    from doctor_blind import BLIND  # pyright: ignore[reportMissingImports]
    from doctor_cases import CASES  # pyright: ignore[reportMissingImports]
    from doctor_healthy import HEALTHY  # pyright: ignore[reportMissingImports]

    if of in ("threads", "programs"):
        yield from ((c.id, c.names, c.build) for c in CASES if f"{c.source}s" == of)
    elif of == "again":
        yield from ((a.id, a.names, a.build) for a in AGAIN)
    elif of == "healthy":
        yield from ((h.id, (), h.build) for h in HEALTHY)
    else:
        yield from ((b.id, b.names if of == "blind" else (), b.fault if of == "blind" else b.twin) for b in BLIND)


def asked(names: tuple[str, ...], build: Build, seed: int, seconds: float) -> Row:
    """What `explain_guess` says first, and how long that took."""
    torch.manual_seed(seed)
    model, data, known = build()
    began, worked, said = time.perf_counter(), time.process_time(), ""
    try:
        e = fg.explain_guess(model, data, seconds=seconds, **known)
        faults = [fault.name for fault in e.faults]
        if names:  # a zero head that the loss moves is a cause, and no fault
            faults += [cause.name for cause in e.causes if cause.numbers.get("meant")]
        said = faults[0] if faults else ""
        words = str(e.faults[0]) if e.faults else ""
    except Exception as error:  # of the doctor: it counts as misleading
        said, words = f"error: {type(error).__name__}", traceback.format_exc(limit=-3)
    taken = {"seconds": time.perf_counter() - began, "processor": time.process_time() - worked}
    if names:
        verdict = "named first" if said in names else "misleading" if said else "silent"
    else:
        verdict = "alarm" if said else "silent"
    return {"verdict": verdict, "said": said, "words": words, "names": names, **taken}


def rules() -> str:
    """The sources that answers depend on, as a short hash."""
    files = sorted((ROOT / "src/firstguess/diagnosis/faults").glob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def stored(store: Path) -> dict[tuple[str, str], Row]:
    """The last answer for each case."""
    lines = store.read_text().splitlines() if store.exists() else []
    return {(row["set"], row["id"]): row for row in map(json.loads, lines)}


def table(known: dict[tuple[str, str], Row], only: list[str]) -> None:
    """Counts per set, and what was not named; then the times."""
    mine: list[Row] = []
    for of in only:
        ids = [name for name, _, _ in cases(of)]
        rows = [known[of, name] for name in ids if (of, name) in known]
        mine += rows
        for row in rows:
            if row["verdict"] != ("named first" if row["names"] else "silent"):
                wanted, said = ", ".join(row["names"]) or "nothing", row["words"] or "nothing"
                print(f"  {of} {row['id']}: {row['verdict']}. Wanted: {wanted}. Said: {said}")
        counts = {v: sum(row["verdict"] == v for row in rows) for v in ("named first", "misleading", "silent", "alarm")}
        told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
        print(f"{of}: {len(rows)} of {len(ids)} asked; {told}")
    now = rules()
    older = sum(row["rules"] != now for row in mine)
    print(f"{len(mine)} answers, {older} of them by rules that have changed since")
    for clock in ("seconds", "processor"):
        times = sorted(row[clock] for row in mine)
        if times:
            high = times[int(0.95 * (len(times) - 1))]
            print(f"{clock} per case: median {statistics.median(times):.1f}, 95 % {high:.1f}, most {times[-1]:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--again", action="store_true", help="ask again what is in the store")
    parser.add_argument("--stale", action="store_true", help="ask again what other rules have answered")
    parser.add_argument("--match", default="", help="only cases with this in their names")
    parser.add_argument("--store", type=Path, default=Path("faults.jsonl"))
    parser.add_argument("--seconds", type=float, default=30.0, help="that a case may take")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    known, version = stored(given.store), rules()
    for of in given.only:
        every = [case for case in cases(of)]
        for k, (name, names, build) in enumerate(every):
            old = known.get((of, name))
            fine = old is not None and not given.again and not (given.stale and old["rules"] != version)
            if fine or given.match not in name:
                continue
            row = {
                "set": of,
                "id": name,
                "rules": version,
                **asked(names, build, zlib.crc32(name.encode()), given.seconds),
            }
            known[of, name] = row
            with given.store.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(
                f"{of} {k + 1}/{len(every)} {name}: {row['verdict']} ({row['said']}) {row['seconds']:.1f} s", flush=True
            )
    table(known, given.only)


if __name__ == "__main__":
    main()
