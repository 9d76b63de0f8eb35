"""How long it takes to start: `import firstguess` and the shell, next to a Python that does nothing.

    python benchmarks/start.py [--runs 15]

Processor time (user and system) of whole processes, the least of many runs: a loaded machine adds to the clock on the
wall, not to this. Every command runs once before it counts, so that bytecode is there as it is for users.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

SRC = Path(__file__).resolve().parent.parent / "src"
COMMANDS = {
    "python -c pass": ("-c", "pass"),
    "import firstguess": ("-c", "import firstguess"),
    "import numpy, scipy.special": ("-c", "import numpy, scipy.special"),
    "import typer, rich": ("-c", "import typer, rich.console"),
    "firstguess --version": ("-m", "firstguess", "--version"),
    "firstguess --help": ("-m", "firstguess", "--help"),
    "firstguess predict mlp --depth 20": ("-m", "firstguess", "predict", "mlp", "--depth", "20"),
    "firstguess activations": ("-m", "firstguess", "activations"),
}
LIMITS = {"import firstguess": 0.010, "firstguess --help": 0.6, "firstguess predict mlp --depth 20": 0.6}


def processor_time(arguments: tuple[str, ...], environment: dict[str, str]) -> float:
    """User and system seconds of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], env=environment, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def times(runs: int) -> dict[str, float]:
    """Seconds by command, the least of this many runs."""
    with tempfile.TemporaryDirectory() as bytecode:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment |= {"PYTHONPATH": str(SRC), "PYTHONPYCACHEPREFIX": bytecode, "OMP_NUM_THREADS": "1"}
        found: dict[str, float] = {}
        for name, arguments in COMMANDS.items():
            processor_time(arguments, environment)
            found[name] = min(processor_time(arguments, environment) for _ in range(runs))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    found = times(parser.parse_args().runs)
    bare = found["python -c pass"]
    print(f"{'':38}{'ms':>8}{'beyond bare':>14}{'wanted':>10}")
    for name, seconds in found.items():
        limit = LIMITS.get(name)
        wanted = "" if limit is None else f"≤ {1000 * limit:.0f}"
        print(f"{name:38}{1000 * seconds:8.0f}{1000 * (seconds - bare):14.0f}{wanted:>10}")


if __name__ == "__main__":
    main()
