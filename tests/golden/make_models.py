"""docs/models.md: models and data as people have, firstguess compared with a plain loop (tests/any_models.py has both).

    python tests/golden/make_models.py [--inits 200] [--engine ray --address auto]

A row is a task of a study (docs/studies.md), kept in `--out`: a run that was stopped continues where it was.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benchmarks")]

from any_models import CLASSES, ROWS, Numbers, apart, compared  # noqa: E402
from as_studies import line_options, lines  # noqa: E402

TABLE = ROOT / "docs" / "tables" / "models.txt"  # of docs/models.md


def row(p: dict[str, Any]) -> list[dict[str, str]]:
    name = p["model"]
    mine, found = compared(name, p["inits"])
    cells = [f"{mine.largest:.3f} ± {mine.largest_se:.3f}", _gamma(mine)]
    for numbers, m in found.values():
        if m.inits == 1:
            cells.append("one model: not re-initialized, and said so")
            continue
        by, of = apart(numbers, mine)
        cells.append(f"{numbers.largest:.3f} ({by:+.1f} s.e.), γ {of:+.1f} s.e.")
    return [{"row": f"| {name} | {' | '.join(cells)} |"}]


def _gamma(numbers: Numbers) -> str:
    value = 2.718281828459045**numbers.log_gamma
    return f"{value:.3g} ± {value * numbers.log_gamma_se:.1g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    line_options(parser, "out/models")
    parser.add_argument("--inits", type=int, default=200)
    given = parser.parse_args()
    head = [
        f"{given.inits} initializations each, {CLASSES} classes. "
        "Differences are from the own loop, in standard errors.",
        "",
        "| model, data | own loop: largest share | own loop: γ | class or factory | instance |",
        "|---|---|---|---|---|",
    ]
    found = lines("models", [{"model": name, "inits": given.inits} for name in ROWS], row, given)
    if len(found) < len(ROWS):
        raise SystemExit(f"{len(found)} of {len(ROWS)} rows: the table stays as it is")
    TABLE.write_text("\n".join([*head, *(line["row"] for line in found)]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
