"""What the golden files need from inside the package, in one place, and where they were made.

Everything else in this folder goes through the public API, so that files may be moved without touching it.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

import firstguess as fg

HERE = Path(__file__).parent
Jobs: TypeAlias = dict[str, Callable[[], Any]]


def kernel(network: fg.Network, x: NDArray[Any], *, single: bool = False, tangent: bool = False) -> Any:
    """The covariance of the outputs over a data set: what `fg.predict(network, data=x)` draws guesses from."""
    readings: Any = sys.modules[fg.predict.__module__]
    if readings.needs_images(network.layers):
        return readings.image_kernel(network, x, tangent=tangent)
    return readings.kernel(network, x, tangent=tangent, dtype=np.float32 if single else np.float64)


def engine(network: fg.Network, x: NDArray[Any], **options: Any) -> Any:
    """The ensemble of a description, member by member."""
    from firstguess.ensemble.engine import DescriptionEngine

    return DescriptionEngine(network, x, threads=1, **options)


def machine() -> dict[str, str]:
    """What the last bits depend on: libraries, and the processor, by which libraries choose their loops.

    A model's name is not enough: processors of several generations call themselves "AMD EPYC".
    """
    import scipy
    import torch
    from threadpoolctl import threadpool_info

    cpu = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        known = dict(re.findall(r"^(model name|cpu family|model)\s*:\s*(.+)$", info.read_text(), re.MULTILINE))
        cpu = " ".join(known[key] for key in ("model name", "cpu family", "model") if key in known) or cpu
    loops = sorted({str(found.get("architecture")) for found in threadpool_info() if found["user_api"] == "blas"})
    return {
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "torch": torch.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": f"{cpu}, {torch.backends.cpu.get_cpu_capability()}",
        "blas": ", ".join(loops),
    }


def attempt(work: Callable[[], Any]) -> Any:
    """What comes out, or the refusal in its own words."""
    try:
        return work()
    except fg.FirstguessError as error:
        return f"{type(error).__name__}: {error}"


def numbers(values: Any) -> list[str]:
    """Floats to the last bit, as text."""
    return [float(v).hex() for v in np.asarray(values, dtype=np.float64).ravel()]


def close(new: Any, old: Any) -> bool:
    """Whether two stored values agree: numbers to 1e-12 of the larger one (1e-15 near 0), all else exactly."""
    if isinstance(new, dict) and isinstance(old, dict):
        return new.keys() == old.keys() and all(close(new[key], old[key]) for key in new)
    if isinstance(new, list) and isinstance(old, list):
        return len(new) == len(old) and all(close(a, b) for a, b in zip(new, old, strict=True))
    try:
        a, b = (float.fromhex(x) if isinstance(x, str) and "0x" in x else x for x in (new, old))
        return a == b or bool(abs(a - b) <= 1e-12 * max(abs(a), abs(b), 1e-3)) or (a != a and b != b)
    except (TypeError, ValueError):
        return new == old


def chosen(jobs: dict[str, Any]) -> dict[str, Any]:
    """The jobs that `--only TEXT` names (all that contain it), or all of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", metavar="TEXT", default="", help="only the jobs whose name contains this")
    found = {name: job for name, job in jobs.items() if parser.parse_args().only in name}
    if not found:
        raise SystemExit("no job has that in its name")
    return found


def write(name: str, jobs: Jobs) -> None:
    """Do the jobs; JSON, one a line, by name. A line stays where the new numbers agree with it to 1e-12."""
    file = HERE / name
    stored = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    made = {job: stored[job] for job in jobs if job in stored}
    for job, work in chosen(jobs).items():
        new = json.loads(json.dumps(attempt(work)))
        if job not in made or not close(new, made[job]):
            print("new:" if job not in made else "changed:", job)
            made[job] = new
    kept = stored.get("made") if made == {k: v for k, v in stored.items() if k != "made"} else None
    everything = {"made": kept or machine()} | {job: made[job] for job in jobs if job in made}
    lines = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in everything.items())
    file.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def read(name: str) -> tuple[dict[str, Any], bool]:
    """What is stored, and whether it was made on a machine like this one."""
    stored = json.loads((HERE / name).read_text(encoding="utf-8"))
    return stored, stored.pop("made") == machine()
