"""docs/models.md: models and data as people have them, firstguess beside a plain loop (tests/any_models.py has both).

python tests/golden/make_models.py [initializations]
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from any_models import CLASSES, ROWS, Numbers, apart, compared  # noqa: E402

PAGE = ROOT / "docs" / "models.md"
START = "<!-- table: python tests/golden/make_models.py -->"


def row(name: str, inits: int) -> str:
    mine, found = compared(name, inits)
    cells = [f"{mine.largest:.3f} ± {mine.largest_se:.3f}", _gamma(mine)]
    for numbers, m in found.values():
        if m.inits == 1:
            cells.append("one model: not re-drawn, and said so")
            continue
        by, of = apart(numbers, mine)
        cells.append(f"{numbers.largest:.3f} ({by:+.1f} s.e.), γ {of:+.1f} s.e.")
    return f"| {name} | {' | '.join(cells)} |"


def _gamma(numbers: Numbers) -> str:
    value = 2.718281828459045**numbers.log_gamma
    return f"{value:.3g} ± {value * numbers.log_gamma_se:.1g}"


def main() -> None:
    inits = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    lines = [
        START,
        f"{inits} initializations each, {CLASSES} classes. Differences are from the own loop, in standard errors.",
        "",
        "| model, data | own loop: largest share | own loop: γ | class or factory | instance |",
        "|---|---|---|---|---|",
    ]
    for name in ROWS:
        lines.append(row(name, inits))
        print(lines[-1], flush=True)
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(text.partition(START)[0] + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
