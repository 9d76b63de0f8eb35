"""Keeps the numbers of quick runs of the papers' items: `python tests/golden/make_papers.py OUT`.

OUT is the folder of `firstguess reproduce all --quick --data-dir data --out OUT`. Of every table: its lines, and of
every column of numbers the sum and the sum weighted by the line's number: two lines that changed places are seen.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

KEPT = Path(__file__).parent / "papers_quick.json"


def digest(table: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """What is kept of a table."""
    found: dict[str, Any] = {"lines": len(next(iter(table.values()), ()))}
    for name, values in sorted(table.items()):
        fine = [
            (k, float(v))
            for k, v in enumerate(values, start=1)
            if isinstance(v, (int, float)) and math.isfinite(v) and not isinstance(v, bool)
        ]
        if fine:
            found[name] = [len(fine), sum(v for _, v in fine), sum(k * v for k, v in fine)]
    return found


def read(folder: Path) -> dict[str, Any]:
    """What is kept of an item's run: verdicts and tables."""
    import pyarrow.parquet as pq

    record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    tables = {name: digest(pq.read_table(folder / name).to_pydict()) for name in record["tables"]}
    return {"verdicts": [[e["claim"], e["verdict"]] for e in record["entries"]], "tables": tables}


def main(out: Path) -> None:
    """Write the file of all items that ran there."""
    folders = sorted(path.parent for path in (out / "quick").glob("*/*/record.json"))
    found = {f"{folder.parent.name}/{folder.name}": read(folder) for folder in folders}
    KEPT.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
