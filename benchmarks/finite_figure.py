"""The figure of docs/finite-size.md: z-scores of predictions at finite size, from what `benchmarks/finite.py` measured.

    python benchmarks/finite.py --seconds 3600             measure
    python benchmarks/finite_figure.py --out out/finite.jsonl --figure docs/images/finite-z.png

Predictions are computed once and kept next to the measurements; `--kept` draws only those cells that have one already,
`--seconds` computes as many more as fit. A cell that the theory refuses is named, and left out.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from finite import NORMS, Row, cells, predict, read, row, z, z_of_std

import firstguess as fg
from firstguess.show.charts.lines import Series, lines_chart
from firstguess.show.charts.theme import Chart

STD, LARGEST = "Spread of the share of one of two classes", "Largest share of ten classes"
_FAR = 3.0  # standard errors: of a right theory 1 z-score in 370 is beyond


def rows(out: Path, *, kept: bool, seconds: float) -> tuple[list[Row], list[str]]:
    """All cells that were measured and can be predicted, and why others cannot."""
    by_cell: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in read(out):
        by_cell[line["cell"]].append(line)
    stored = out.with_suffix(".predicted.jsonl")
    known = {line["cell"] for line in read(stored)}
    found, refused, started = [], [], time.perf_counter()
    for cell in cells():
        late = kept or time.perf_counter() - started > seconds
        if cell.name not in by_cell or (late and cell.name not in known):
            continue
        try:
            found.append(row(cell, by_cell[cell.name], predict(cell, stored)))
        except fg.NotCovered as error:
            refused.append(f"{cell.name}: {error}")
    return found, refused


def scores(found: Sequence[Row]) -> dict[str, list[tuple[Row, float]]]:
    """z of every cell, by panel: what the prediction says of its own error counts."""
    return {
        STD: [(r, z_of_std(r.std, max(r.error, r.next_order))) for r in found],
        LARGEST: [(r, z(r.largest, max(r.error, r.next_order))) for r in found],
    }


def _of(right: dict[str, int], total: int) -> str:
    if set(right.values()) == {total}:
        return f"all {total} kinds of networks"
    return f"{right[STD]} and {right[LARGEST]} of {total} kinds of networks"


def chart(found: Sequence[Row]) -> Chart:
    """z against depth/width, by norm."""
    by_panel = scores(found)
    panels: dict[str, list[Series]] = {}
    for name, values in by_panel.items():
        here = [
            (norm, [(r.cell.depth / r.cell.width, score) for r, score in values if r.cell.norm == norm])
            for norm in NORMS
        ]
        panels[name] = [Series(norm, [x for x, _ in s], [y for _, y in s], mark="points") for norm, s in here if s]
    every = [abs(score) for values in by_panel.values() for _, score in values]
    right = {name: sum(abs(score) <= _FAR for _, score in values) for name, values in by_panel.items()}
    top = max(4.0, *(1.1 * score for score in every))
    networks = sorted({r.networks for r in found})
    many = " to ".join(dict.fromkeys(f"{n:,}".replace(",", " ") for n in (networks[0], networks[-1])))
    return lines_chart(
        panels,
        title=f"Finite width and dimension predicted: within {_FAR:g} standard errors in {_of(right, len(found))}",
        subtitle=[
            f"(measured − predicted)/standard error; {many} networks each; four activations, dimensions 20 to 3 072,",
            "widths 30 to 1 000, 1 to 50 layers. The error is the measurement's and the prediction's own.",
            "Nothing was fitted. If all is right, about 1 in 370 is beyond the outer lines by chance.",
        ],
        x_title="Depth / width",
        y_title="Difference in standard errors",
        x_scale="log",
        y_domain=(-top, top),
        rules={"+3": _FAR, "0": 0.0, "−3": -_FAR},
        columns=2,
        width=430,
        height=300,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/finite.jsonl"))
    parser.add_argument("--figure", type=Path, default=Path("docs/images/finite-z.png"))
    parser.add_argument("--kept", action="store_true", help="only cells whose prediction is at hand")
    parser.add_argument("--seconds", type=float, default=3600.0, help="for predictions that are not")
    args = parser.parse_args()
    found, refused = rows(args.out, kept=args.kept, seconds=args.seconds)
    for line in refused:
        print(f"refused: {line}")
    if not found:
        raise SystemExit("no cell is measured and predicted: run benchmarks/finite.py first")
    for name, values in scores(found).items():
        worst = sorted(values, key=lambda pair: -abs(pair[1]))[:5]
        print(f"{name}: " + "; ".join(f"{r.cell.name} {score:+.1f}" for r, score in worst))
    fg.figures.save(chart(found), args.figure)
    print(f"wrote {args.figure}")


if __name__ == "__main__":
    main()
