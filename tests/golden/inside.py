"""What the golden files need from inside the package, in one place, and where they were made.

Everything else in this folder goes through the public API, so that files may be moved without touching it.
"""

from __future__ import annotations

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
    """What the last bits depend on: libraries, and the processor, by which libraries choose their loops."""
    import scipy
    import torch

    cpu = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        found = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE)
        cpu = found.group(1) if found else cpu
    return {
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "torch": torch.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": f"{cpu}, {torch.backends.cpu.get_cpu_capability()}",
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


def write(name: str, jobs: Jobs) -> None:
    """Do all jobs; JSON, one a line, and where it was made."""
    made = {"made": machine()} | {job: attempt(work) for job, work in jobs.items()}
    lines = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in made.items())
    (HERE / name).write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def read(name: str) -> tuple[dict[str, Any], bool]:
    """What is stored, and whether it was made on a machine like this one."""
    stored = json.loads((HERE / name).read_text(encoding="utf-8"))
    return stored, stored.pop("made") == machine()
