"""What the scripts that write tables for docs/ have in common: their loops are studies, on any engine."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import firstguess as fg


def run_options(parser: argparse.ArgumentParser) -> None:
    """Where the tasks run."""
    parser.add_argument("--engine", choices=("local", "ray"), default="local")
    parser.add_argument("--address", help="of a Ray cluster")
    parser.add_argument("--workers", type=int, help="processes on this machine; by default one a core")


def run(study: fg.Study, given: argparse.Namespace, **options: Any) -> fg.Study:
    """Compute what is missing; what failed is said, and the rest goes on."""
    study.run(engine=given.engine, address=given.address, workers=given.workers, **options)
    print(f"{study.name}: {study.ran}", file=sys.stderr, flush=True)
    for reason in dict.fromkeys(study.failures()["reason"].to_pylist()):
        print(f"{study.name}: failed: {reason}", file=sys.stderr, flush=True)
    return study
