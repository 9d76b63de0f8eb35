"""The kernel reading against real networks, cell by cell: data × activation × norm × depth.

    python benchmarks/readings.py                          digits only (embedded), 30 initializations a cell
    python benchmarks/readings.py --data-dir data --inits 90 --write docs/readings.md
    python benchmarks/readings.py --data-dir data --wide 3000    the least likely cells once more, wider
    python benchmarks/readings.py --data-dir data --engine ray --address auto

Rounds of networks and kernels are tasks of studies (docs/studies.md), kept in the store `--out`: a run that was stopped
continues where it was, and one with more initializations adds to what is there. Every round of a cell has a seed of its
own: cells are independent. Numbers of another version of firstguess are not taken over, but computed again.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from as_studies import run, run_options
from numpy.typing import NDArray
from scipy import stats

import firstguess as fg

Array = NDArray[np.float64]

DATA = {"digits": "digits", "mnist": "mnist:even-odd", "cifar10": "cifar10"}
PHI = ("relu", "tanh", "gelu")
NORMS = {
    "none": "{phi}",
    "BN before": "batchnorm > {phi}",
    "LN before": "layernorm > {phi}",
    "RMS before": "rmsnorm > {phi}",
    "BN after": "{phi} > batchnorm",
    "LN after": "{phi} > layernorm",
    "RMS after": "{phi} > rmsnorm",
}
DEPTHS = (1, 5, 20)
POINTS = 1000
WIDTH = 1000
ROUND = 30  # initializations with one seed
DRAWS = 5000


@dataclass(frozen=True)
class Cell:
    """One network on one data set."""

    data: str
    phi: str
    norm: str
    depth: int

    @property
    def index(self) -> int:
        place = tuple(DATA).index(self.data), PHI.index(self.phi), tuple(NORMS).index(self.norm)
        return ((place[0] * len(PHI) + place[1]) * len(NORMS) + place[2]) * len(DEPTHS) + DEPTHS.index(self.depth)

    @property
    def name(self) -> str:
        return f"{self.data}-{self.phi}-{self.norm.replace(' ', '-')}-{self.depth}"

    def network(self, classes: int) -> fg.Network:
        body = NORMS[self.norm].format(phi=self.phi)
        return fg.Network.parse(f"{self.depth} x [dense(weight_var=2) > {body}] > dense(weight_var=2)", classes=classes)


def cells(data: Sequence[str]) -> list[Cell]:
    return [Cell(d, phi, norm, depth) for d in data for phi in PHI for norm in NORMS for depth in DEPTHS]


class Kept:
    """What studies have kept of each cell: counts of guesses of its networks by width, and of its kernel."""

    def __init__(self) -> None:
        self.rounds: dict[tuple[str, int], list[list[int]]] = {}  # by cell and width
        self.kernels: dict[str, dict[str, Any]] = {}

    def widths(self, cell: Cell) -> list[int]:
        return sorted(width for name, width in self.rounds if name == cell.name)

    def add(self, found: Any) -> None:
        """The table of a study, in the order of its rounds."""
        for line in found.to_pylist():
            name = Cell(line["data"], line["phi"], line["norm"], line["depth"]).name
            if "width" in line:
                self.rounds.setdefault((name, line["width"]), []).extend(line["counts"])
            else:
                self.kernels[name] = line


def counts(fractions: Array) -> NDArray[np.int64]:
    return np.rint(fractions * POINTS).astype(np.int64)


def guesses(kept: Sequence[Sequence[int]]) -> fg.EmpiricalGuesses:
    found = np.array(kept, dtype=float)
    return fg.EmpiricalGuesses(found / found.sum(axis=1, keepdims=True), POINTS)  # a shared tie was rounded


def measure(p: dict[str, Any], data: fg.data.Data) -> dict[str, Any]:
    """A round of networks of a cell."""
    cell = Cell(p["data"], p["phi"], p["norm"], p["depth"])
    seed = 1000 * p["round"] + cell.index
    m = fg.measure(
        cell.network(data.classes or 2), data, inits=ROUND, width=p["width"], seed=seed, threads=1, probe="output"
    )
    return {"counts": counts(m.guesses.fractions)}


def read_kernel(p: dict[str, Any], data: fg.data.Data) -> dict[str, Any]:
    """The kernel's draws, and the closed form's standard deviation and largest share."""
    cell = Cell(**p)
    network = cell.network(data.classes or 2)
    found = fg.predict(network, data=data, draws=DRAWS, seed=cell.index)
    iid = fg.predict(network, points=POINTS).guesses
    assert isinstance(found.guesses, fg.EmpiricalGuesses)
    return {"counts": counts(found.guesses.fractions), "closed_form": [iid.std(), iid.expected_max()]}


def rounds(some: Sequence[Cell], inits: int, width: int) -> list[dict[str, Any]]:
    """All cells get a first round before any gets a second."""
    return [{**asdict(c), "width": width, "round": k} for k in range(-(-inits // ROUND)) for c in some]


@dataclass(frozen=True)
class Row:
    """What a cell says; None where it was not measured."""

    cell: Cell
    inits: int
    std: tuple[float, float, float, float]  # kernel, measured, standard error, closed form
    largest: tuple[float, float, float, float]
    p_one: float
    p_largest: float


def same_law(a: Array, b: Array) -> float:
    found: Any = stats.ks_2samp(a, b)
    return float(found.pvalue)


def row(kept: Kept, cell: Cell, width: int) -> Row | None:
    kernel, measured = kept.kernels.get(cell.name), kept.rounds.get((cell.name, width))
    if kernel is None or measured is None:
        return None
    one, other = guesses(kernel["counts"]), guesses(measured)
    std, largest = kernel["closed_form"]
    return Row(
        cell,
        other.inits,
        (one.std(), other.std(), other.standard_error("std"), std),
        (one.expected_max(), other.expected_max(), other.standard_error("expected_max"), largest),
        same_law(one.fractions[:, 0], other.fractions[:, 0]),
        same_law(one.largest, other.largest),
    )


# --- the page ---------------------------------------------------------------------------------------------------------


def table(rows: Sequence[Row]) -> str:
    lines = [
        "| φ | norm | depth | std G₀: kernel | measured | i.i.d. | E max: kernel | measured | i.i.d. | p: G₀ | max |",
        "|" + "---|" * 11,
    ]
    for r in rows:
        (k, m, e, c), (km, mm, em, cm) = r.std, r.largest
        lines.append(
            f"| {r.cell.phi} | {r.cell.norm} | {r.cell.depth} | {k:.3f} | {m:.3f} ± {e:.3f} | {c:.3f} | "
            f"{km:.3f} | {mm:.3f} ± {em:.3f} | {cm:.3f} | {r.p_one:.2g} | {r.p_largest:.2g} |"
        )
    return "\n".join(lines)


def say(rows: Sequence[Row]) -> str:
    """All p-values together, and whether measured numbers lie on one side of the kernel's."""
    p = {"G₀": np.array([r.p_one for r in rows]), "the largest": np.array([r.p_largest for r in rows])}
    both = np.concatenate(list(p.values()))
    level = 0.05 / len(both)
    lines = [
        f"- {len(rows)} of {len(cells(tuple(DATA)))} settings, {len(both)} two-sample Kolmogorov-Smirnov tests: "
        f"{int(np.sum(both < level))} below the Bonferroni level 0.05/{len(both)} = {level:.1e}; the least p-value is "
        f"{both.min():.2g}."
    ]
    for name, values in p.items():
        alike = stats.kstest(values, "uniform", alternative="greater").pvalue
        lines.append(
            f"- p-values of {name}: {np.mean(values < 0.05):.1%} below 0.05, {np.mean(values < 0.5):.1%} below 0.5; "
            f"one-sided test against the uniform distribution p = {alike:.2g}."
        )
    for depth in DEPTHS:
        parts: list[str] = []
        for name, of in (("std G₀", lambda r: r.std), ("E max", lambda r: r.largest)):
            here = [of(r) for r in rows if r.cell.depth == depth and of(r)[2] > 0]
            if here:
                z = np.array([(m - k) / e for k, m, e, _ in here])
                parts.append(f"{name} {z.mean():+.2f} ± {1 / np.sqrt(len(z)):.2f} (spread {z.std():.2f})")
        lines.append(f"- (measured − kernel)/s.e. at depth {depth}, averaged over settings: {', '.join(parts)}.")
    return "\n".join(lines)


def wider(kept: Kept, rows: Sequence[Row]) -> str:
    """The cells that were measured at other widths too."""
    lines = [
        "| data | φ | norm | depth | width | networks | std G₀: kernel | measured | width · (variance − kernel's) | "
        "p: max |",
        "|" + "---|" * 10,
    ]
    for r in rows:
        for width in kept.widths(r.cell):
            w = row(kept, r.cell, width)
            if w is not None:
                (k, m, e, _), excess = w.std, width * (w.std[1] ** 2 - w.std[0] ** 2)
                lines.append(
                    f"| {w.cell.data} | {w.cell.phi} | {w.cell.norm} | {w.cell.depth} | {width} | {w.inits} | "
                    f"{k:.4f} | {m:.4f} ± {e:.4f} | {excess:.3f} ± {2 * width * m * e:.3f} | {w.p_largest:.2g} |"
                )
    return "\n".join(lines)


SHOWN = 0.001  # p-values of the settings that the page counts
TITLES = {"digits": "Digits, 10 classes", "mnist": "MNIST, even against odd", "cifar10": "CIFAR-10, 10 classes"}


def page(kept: Kept, rows: Sequence[Row], repeated: Sequence[Row]) -> str:
    inits = sorted({r.inits for r in rows})
    networks = f"{inits[0]}" if len(inits) == 1 else f"{inits[0]} to {inits[-1]}"
    parts = [
        "# The kernel compared with real networks",
        "How well does the kernel predict real networks on real data? "
        f"{POINTS} points of each data set, standardized by these points; hidden layers of width {WIDTH}, "
        f"weight_var = 2, no biases, BatchNorm over all points; {networks} networks per setting against {DRAWS} draws "
        "of the kernel (`benchmarks/readings.py`). std G₀ is the standard deviation of a class's share over "
        "initializations, E max the average of the largest share, ± one standard error; p-values are those of "
        "two-sample Kolmogorov-Smirnov tests.",
        "## All settings together",
        say(rows),
    ]
    few = {data: [r for r in rows if r.cell.data == data] for data in TITLES}
    below = ", ".join(
        f"{sum(min(r.p_one, r.p_largest) < SHOWN for r in here)} of {len(here)} ({title})"
        for (data, title) in TITLES.items()
        if (here := few[data])
    )
    parts.append(f"Settings with a p-value below {SHOWN}: {below}; [all settings](tables/readings.txt).")
    if repeated:
        parts += [
            "## The least likely settings at other widths",
            "The smallest p-values are those of deep, nearly even networks: real ones are a little less even, because "
            "covariances at finite width fluctuate by the order of depth/width. The variance of G₀ beyond the kernel's "
            "then falls like 1/width: width · (variance − kernel's) is the same at all widths. An error of the kernel "
            "would make it grow.",
            wider(kept, repeated),
        ]
    return "\n\n".join(parts) + "\n"


def unlikely(rows: Sequence[Row], most: int) -> list[Row]:
    return sorted(rows, key=lambda r: min(r.p_one, r.p_largest))[:most]


def points_of(name: str, folder: str | None) -> fg.data.Data:
    """Some points of a data set, standardized by these, as the page's numbers are; `load` does so by all points."""
    raw = fg.data.load(DATA[name], points=POINTS, standardize="none", data_dir=folder)
    return raw.standardize("channel" if name == "cifar10" else "global")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", help="where MNIST and CIFAR-10 are; without it digits only")
    parser.add_argument("--inits", type=int, default=ROUND, help="networks a cell (in rounds of 30)")
    parser.add_argument("--out", type=Path, default=Path("out/readings"), help="the studies' store")
    parser.add_argument("--wide", type=int, nargs="*", default=[], help="the least likely cells at these widths too")
    parser.add_argument("--most", type=int, default=6, help="how many of them")
    parser.add_argument("--only", choices=("measured", "kernel", "page"), help="one of the readings, or what is kept")
    parser.add_argument("--write", type=Path, help="write the page")
    run_options(parser)
    args = parser.parse_args()

    kept = Kept()
    names = list(DATA) if args.data_dir else ["digits"]
    data = {d: points_of(d, None if d == "digits" else args.data_dir) for d in names}

    def study(kind: str, function: Callable[..., Any], made_of: list[dict[str, Any]]) -> None:
        """A study a data set: run, and taken up as far as it is done."""
        for name in names:
            if here := [p for p in made_of if p["data"] == name]:
                one = fg.study(f"{name} {kind}", here, function, data=data[name], store=args.out)
                if args.only in (None, kind.split()[0]):
                    run(one, args)
                kept.add(one.table())

    todo = cells(names)
    quick_first = sorted(todo, key=lambda c: c.depth * c.norm.startswith("BN"))
    study("measured", measure, rounds(todo, args.inits, WIDTH))
    study("kernel", read_kernel, [asdict(cell) for cell in quick_first])
    rows = [r for cell in todo if (r := row(kept, cell, WIDTH)) is not None]
    few = [r.cell for r in unlikely(rows, args.most)]
    for width in args.wide:
        study(f"measured at {width}", measure, rounds(few, args.inits, width))
    print(say(rows))
    repeated = [r for r in unlikely(rows, len(rows)) if len(kept.widths(r.cell)) > 1]
    print(wider(kept, repeated or unlikely(rows, args.most)))
    if args.write:
        args.write.write_text(page(kept, rows, repeated))
        whole = [f"## {title}\n\n{table([r for r in rows if r.cell.data == name])}" for name, title in TITLES.items()]
        (args.write.parent / "tables" / "readings.txt").write_text("\n\n".join(whole) + "\n")


if __name__ == "__main__":
    main()
