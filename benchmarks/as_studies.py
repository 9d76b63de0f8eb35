"""What the scripts that write tables for docs/ have in common: their loops are studies, on any engine."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import firstguess as fg


def run_options(parser: argparse.ArgumentParser) -> None:
    """Where the tasks run."""
    parser.add_argument("--engine", choices=("local", "ray"), default="local")
    parser.add_argument("--address", help="of a Ray cluster")
    parser.add_argument("--workers", type=int, help="processes on this machine; by default one per core")


def run(study: fg.Study, given: argparse.Namespace, **options: Any) -> fg.Study:
    """Compute what is missing; what failed is said, and the rest continues."""
    study.run(engine=given.engine, address=given.address, workers=given.workers, **options)
    print(f"{study.name}: {study.ran}", file=sys.stderr, flush=True)
    for reason in dict.fromkeys(study.failures()["reason"].to_pylist()):
        print(f"{study.name}: failed: {reason}", file=sys.stderr, flush=True)
    return study


def lines(
    name: str,
    made_of: Iterable[dict[str, Any]],
    function: Callable[[dict[str, Any]], Iterable[dict[str, Any]]],
    given: argparse.Namespace,
    *,
    compute: bool = True,
) -> list[dict[str, Any]]:
    """What a function finds for each configuration: some dicts, kept as text; of all that are done, in order."""

    def kept(p: dict[str, Any]) -> dict[str, str]:
        return {"lines": json.dumps(list(function(p)))}

    study = fg.study(name, list(made_of), kept, store=given.out)
    if compute:
        run(study, given)
    table = study.table()
    return [line for text in (table["lines"].to_pylist() if table.num_rows else ()) for line in json.loads(text)]


def line_options(parser: argparse.ArgumentParser, out: str) -> None:
    """Where results are, and where tasks run."""
    parser.add_argument("--out", type=Path, default=Path(out), help="the study's store")
    run_options(parser)
