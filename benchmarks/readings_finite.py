"""The rejected cells of docs/readings.md once more, against the theory at the width of the networks.

    python benchmarks/readings_finite.py --data-dir data                measure, predict, write the page's section
    python benchmarks/readings_finite.py --data-dir data --most 2       the cheapest two only

Cells are those whose p-value on the page is below its Bonferroni level. Networks have the seeds of `readings.py`, so
they are the same ones; counts of guesses are kept in `--out`, and not computed again. Without `--most` all are done,
norms over nodes first; the section has what there is.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from readings import DATA, DRAWS, PHI, ROUND, TITLES, WIDTH, Cell, cells, counts, guesses, measure, points_of
from readings import same_law as p_value

import firstguess as fg

TITLE = "## The rejected settings at finite width"
_TESTS = 2 * len(cells(tuple(DATA)))
LEVEL = 0.05 / _TESTS


def rejected(page: str) -> list[Cell]:
    """Cells of the tables with a p-value below the level, norms over nodes first."""
    names = {title: data for data, title in TITLES.items()}
    found: list[Cell] = []
    data = ""
    for line in page.splitlines():
        data = names.get(line.removeprefix("## "), "") if line.startswith("## ") else data
        parts = [part.strip() for part in line.strip("|").split("|")]
        if data and len(parts) == 11 and parts[0] in PHI and min(map(float, parts[9:])) < LEVEL:
            found.append(Cell(data, parts[0], parts[1], int(parts[2])))
    return sorted(found, key=lambda cell: "BN" in cell.norm)


@dataclass(frozen=True)
class Again:
    """A cell: the networks, and the two laws."""

    cell: Cell
    measured: fg.EmpiricalGuesses
    infinite: fg.EmpiricalGuesses
    finite: fg.EmpiricalGuesses
    size: str

    def line(self) -> str:
        m = self.measured
        laws = [
            f"{law.std():.4f} | {law.expected_max():.4f} | {p_value(law.largest, m.largest):.2g}"
            for law in (self.infinite, self.finite)
        ]
        seen = f"{m.std():.4f} ± {m.standard_error('std'):.4f} | "
        seen += f"{m.expected_max():.4f} ± {m.standard_error('expected_max'):.4f}"
        c = self.cell
        return f"| {c.data} | {c.phi} | {c.norm} | {c.depth} | {seen} | {' | '.join(laws)} | {self.size} |"


def kept(folder: Path, name: str, data: fg.data.Data, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Counts of guesses in a small file, computed once for these data."""
    path = folder / f"{name}.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    if found.get("hash") != data.hash:
        found = compute() | {"hash": data.hash}
        found["counts"] = np.asarray(found["counts"]).tolist()
        path.write_text(json.dumps(found))
    return found


def predicted(cell: Cell, data: fg.data.Data, width: int | None) -> dict[str, Any]:
    p = fg.predict(cell.network(data.classes or 2), data=data, draws=DRAWS, seed=cell.index, width=width)
    assert isinstance(p.guesses, fg.EmpiricalGuesses)
    return {"counts": counts(p.guesses.fractions), "way": "" if p.finite_size is None else p.finite_size.way}


def again(folder: Path, cell: Cell, data: fg.data.Data) -> Again:
    """Measured, and predicted at both sizes."""
    params = asdict(cell) | {"width": WIDTH, "round": 0}
    seen = kept(folder, f"{cell.name}.measured", data, lambda: measure(params, data))
    infinite = kept(folder, f"{cell.name}.infinite", data, lambda: predicted(cell, data, None))
    finite = kept(folder, f"{cell.name}.finite", data, lambda: predicted(cell, data, WIDTH))
    return Again(cell, guesses(seen["counts"]), guesses(infinite["counts"]), guesses(finite["counts"]), finite["way"])


def section(found: list[Again], wanted: int) -> str:
    """The part of the page."""
    at = [p_value(a.finite.largest, a.measured.largest) for a in found]
    said = f"of the {wanted} settings that the kernel at infinite width gets wrong, {len(found)} were compared so far"
    if len(found) == wanted:
        said = f"all {wanted} settings that the kernel at infinite width gets wrong were compared"
    head = (
        "| data | φ | norm | depth | std G₀: measured | E max: measured | infinite width: std | E max | p: max | "
        f"width {WIDTH}: std | E max | p: max | way |"
    )
    return "\n\n".join(
        [
            TITLE,
            f"`benchmarks/readings_finite.py`: the same networks ({ROUND} of width {WIDTH}) against "
            f"`fg.predict(net, data=x, width={WIDTH})` (theory.md §12): {said}, and {sum(p >= LEVEL for p in at)} of "
            f"these are accepted at the level {LEVEL:.1e} (the least p-value is {min(at):.2g}). *expansion* is in "
            "1/width, *chain* draws networks of this width.",
            "\n".join([head, "|" + "---|" * 13, *(a.line() for a in found)]),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True, help="where CIFAR-10 is")
    parser.add_argument("--out", type=Path, default=Path("out/readings-finite"))
    parser.add_argument("--page", type=Path, default=Path("docs/readings.md"))
    parser.add_argument("--most", type=int, help="cells, the cheapest first")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    text = args.page.read_text()
    todo = rejected((args.page.parent / "tables" / "readings.txt").read_text())
    found: list[Again] = []
    for cell in todo[: args.most]:
        folder = None if cell.data == "digits" else args.data_dir
        found.append(again(args.out, cell, points_of(cell.data, folder)))
        print(found[-1].line(), flush=True)
        rest = re.split(rf"\n*^{TITLE}$", text, flags=re.MULTILINE)[0].rstrip("\n")
        args.page.write_text(f"{rest}\n\n{section(found, len(todo))}\n")


if __name__ == "__main__":
    main()
