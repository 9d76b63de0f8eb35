"""Functions that studies in tests run: cheap, without torch, and able to go wrong in every way there is."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


def numbers(p: dict[str, Any]) -> dict[str, Any]:
    """Some numbers of a configuration, with all their digits."""
    rng = np.random.default_rng(p["seed"])
    return {"mean": float(rng.standard_normal(50).mean()), "draws": rng.standard_normal(3), "word": f"seed {p['seed']}"}


def counted(p: dict[str, Any]) -> dict[str, Any]:
    """The same, and a mark in the folder `p["marks"]` for each time that it ran."""
    with (Path(p["marks"]) / f"{p['seed']}").open("a") as file:
        file.write("x")
    return numbers(p)


def times(marks: Path) -> dict[int, int]:
    """How often each seed was computed."""
    return {int(path.name): len(path.read_text()) for path in marks.iterdir() if path.name.isdecimal()}


def troubled(p: dict[str, Any]) -> dict[str, Any]:
    """One seed raises, one leaves, one hangs, one eats memory, one ends its process; the others are well."""
    match p["seed"]:
        case 1:
            raise ValueError("a seed that does not grow\nand a second line")
        case 2:
            time.sleep(600)
        case 3:
            return {"mean": float(np.ones(1 << 32).sum())}  # 32 GB
        case 4:
            os.kill(os.getpid(), signal.SIGKILL)
        case 5:
            sys.exit(3)
        case 6:
            return {"what": object()}
        case _:
            pass
    return numbers(p)


def dies_once(p: dict[str, Any]) -> dict[str, Any]:
    """Each seed takes its process down the first time it is tried."""
    mark = Path(p["marks"]) / f"died-{p['seed']}"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return numbers(p)


def slow(p: dict[str, Any]) -> dict[str, Any]:
    """Counted, and takes a while."""
    found = counted(p)
    time.sleep(p["seconds"])
    (Path(p["marks"]) / f"done-{p['seed']}").touch()
    return found


def long_words(p: dict[str, Any]) -> dict[str, Any]:
    """Numbers, and some 4 kB that do not compress, in a few milliseconds."""
    time.sleep(0.002)
    rng = np.random.default_rng(p["seed"])
    return numbers(p) | {"noise": rng.random(500)}


class DiesOnLoading:
    """Something that a function refers to; the processes that load it end, the first `times` of them."""

    def __init__(self, marks: str, times: int) -> None:
        self.marks, self.times = marks, times

    def __reduce__(self) -> Any:
        return _loaded, (self.marks, self.times)


def _loaded(marks: str, times: int) -> DiesOnLoading:
    loaded = len(list(Path(marks).iterdir()))
    if loaded < times:
        (Path(marks) / f"loaded-{os.getpid()}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return DiesOnLoading(marks, times)
