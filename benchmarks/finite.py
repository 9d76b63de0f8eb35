"""Predictions at finite width and dimension against real networks: width × depth × dimension × activation × norm.

    python benchmarks/finite.py --seconds 3600             measure: cells in turn, cheap ones first
    python benchmarks/finite.py --table                    predict what was measured, and print the z-scores
    python benchmarks/finite.py --table --write docs/tables/finite-size.txt
    python benchmarks/finite.py --costs                    what a width costs next to infinite width

Every batch of 250 networks is a line of `--out` (JSON), so a run that was stopped resumes where it was. Networks are
simulated here with arithmetic of its own (weights are drawn, nothing is taken from the package): 300 fresh points a
network, 100 at width 1000. Besides the guesses each network gives two numbers of its last hidden layer, averaged over
all pairs of points: the overlap c and arcsin(c)/2π, which is the variance of G₀ over output weights, without the noise
of counting.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

Array = NDArray[np.float32]

WIDTHS, DEPTHS, DIMENSIONS = (30, 50, 100, 300, 1000), (1, 5, 20, 50), (20, 300, 3072)
PHI = ("relu", "tanh", "gelu", "centered(relu)")
NORMS = {
    "none": "{phi}",
    "LN before": "layernorm > {phi}",
    "RMS before": "rmsnorm > {phi}",
    "LN after": "{phi} > layernorm",
    "RMS after": "{phi} > rmsnorm",
    "BN before": "batchnorm > {phi}",
    "BN after": "{phi} > batchnorm",
}
POINTS, CLASSES, BATCH, NETWORKS = 300, 10, 250, 2000
_MOST = 20_000  # width · depth of a cell: more would take this machine hours
_LARGE = 5_000  # from here on only where a pair of settings needs it
_ROOT = math.sqrt(0.5)


@dataclass(frozen=True)
class Cell:
    """One kind of network on one kind of data."""

    width: int
    depth: int
    dimension: int
    phi: str
    norm: str

    @property
    def name(self) -> str:
        return f"{self.phi}, {self.norm}, depth {self.depth}, width {self.width}, dimension {self.dimension}"

    @property
    def text(self) -> str:
        body = NORMS[self.norm].format(phi=self.phi)
        return f"{self.depth} x [dense(weight_var=2) > {body}] > dense(weight_var=2)"

    @property
    def points(self) -> int:
        return POINTS if self.width < 1000 else 100

    @property
    def cost(self) -> float:
        return self.points * self.width * self.depth * min(self.width, self.points)


def cells(count: int = 84) -> list[Cell]:
    """A subset in which all pairs of settings occur, but for the deepest widest networks: greedily, from cells in a
    shuffled order, the smaller of two that add as many new pairs; cheap ones first."""
    every = [Cell(*v) for v in itertools.product(WIDTHS, DEPTHS, DIMENSIONS, PHI, NORMS) if v[0] * v[1] <= _MOST]
    order = np.random.default_rng(17).permutation(len(every))
    seen: set[tuple[Any, ...]] = set()
    chosen: list[Cell] = []

    def pairs(c: Cell) -> set[tuple[Any, ...]]:
        values = (c.width, c.depth, c.dimension, c.phi, c.norm)
        return {(i, j, values[i], values[j]) for i, j in itertools.combinations(range(5), 2)}

    left = [every[int(i)] for i in order]
    while len(chosen) < count:
        best = max(left, key=lambda c: (len(pairs(c) - seen), c.width * c.depth <= _LARGE))
        chosen.append(best)
        seen |= pairs(best)
        left.remove(best)
    return sorted(chosen, key=lambda c: c.cost)


def activated(x: Array, phi: str, constant: float) -> Array:
    if phi == "tanh":
        return np.tanh(x)
    if phi == "gelu":
        return (0.5 * x * (1.0 + special.erf(_ROOT * x))).astype(np.float32)
    return np.maximum(x, 0.0) - np.float32(constant)


def normed(x: Array, norm: str) -> Array:
    axis = 1 if norm.startswith("BN") else 2  # (networks, points, nodes)
    if not norm.startswith("RMS"):
        x = x - x.mean(axis=axis, keepdims=True)
    square = np.mean(x * x, axis=axis, keepdims=True)
    return (x / np.sqrt(np.where(square > 0.0, square, 1.0))).astype(np.float32)  # a node that is 0 stays 0


def simulate(cell: Cell, rng: np.random.Generator, networks: int) -> dict[str, list[float]]:
    """Overlap and arcsin averaged over pairs, G₀ of two classes, the largest of ten: for every network."""
    n = cell.points
    found: dict[str, list[float]] = {"overlap": [], "arcsin": [], "g0": [], "max10": []}
    # E φ at the variance that the wide limit has there: 2·v, with v = 1 after a norm or at the input, else halved by
    # ReLU and doubled by weights, less the constant itself: v' = 2(v/2 − v/2π) = v(1 − 1/π).
    variance = 2.0
    x = rng.standard_normal((networks, n, cell.dimension), dtype=np.float32)
    for _ in range(cell.depth):
        weights = rng.standard_normal((networks, x.shape[2], cell.width), dtype=np.float32)
        x = np.matmul(x, weights) * np.float32(math.sqrt(2.0 / x.shape[2]))
        if cell.norm.endswith("before"):
            x = normed(x, cell.norm)
        here = 1.0 if cell.norm.endswith("before") else variance
        constant = math.sqrt(here / (2.0 * math.pi)) if cell.phi.startswith("centered") else 0.0
        x = activated(x, cell.phi, constant)
        if cell.norm == "none" and cell.phi.startswith("centered"):
            variance *= 1.0 - 1.0 / math.pi
        if cell.norm.endswith("after"):
            x = normed(x, cell.norm)
    unit = x / np.sqrt(np.sum(x * x, axis=2, keepdims=True))
    heads = rng.standard_normal((networks, cell.width, 2 + CLASSES), dtype=np.float32)
    logits = np.matmul(unit, heads)  # the size of a point does not change its arg-max
    ten = logits[:, :, 2:].argmax(axis=2)
    for r in range(networks):
        k = np.clip(unit[r] @ unit[r].T, -1.0, 1.0)
        off = ~np.eye(n, dtype=bool)
        found["overlap"].append(float(k[off].mean(dtype=np.float64)))
        found["arcsin"].append(float(np.arcsin(k[off]).mean(dtype=np.float64)))
        found["g0"].append(float(np.mean(logits[r, :, 0] > logits[r, :, 1])))
        found["max10"].append(float(np.bincount(ten[r], minlength=CLASSES).max()) / n)
    return found


def measure(out: Path, seconds: float, networks: int) -> None:
    done: defaultdict[str, int] = defaultdict(int)
    for line in read(out):
        done[line["cell"]] += len(line["g0"])
    started = time.perf_counter()
    todo = cells()
    for round_ in range(-(-networks // BATCH)):
        for index, cell in enumerate(todo):
            if done[cell.name] > round_ * BATCH:
                continue
            if time.perf_counter() - started > seconds:
                return
            rng = np.random.default_rng([index, round_, 20261117])
            at_once = max(1, min(BATCH, int(6e6 // (cell.points * max(cell.width, cell.dimension)))))
            total: dict[str, list[float]] = defaultdict(list)
            for start in range(0, BATCH, at_once):
                for key, values in simulate(cell, rng, min(at_once, BATCH - start)).items():
                    total[key] += [round(v, 7) for v in values]
            with out.open("a") as file:
                file.write(json.dumps({"cell": cell.name, "batch": round_, **total}) + "\n")
            done[cell.name] += BATCH


def read(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


@dataclass(frozen=True)
class Row:
    """A cell's numbers: (predicted, measured, error) of each; what the prediction says of itself."""

    cell: Cell
    networks: int
    overlap: tuple[float, float, float]
    std: tuple[float, float, float]  # of G₀ of infinitely many points
    counted: tuple[float, float, float]  # of G₀ of these points
    largest: tuple[float, float, float]
    infinite: float
    way: str
    next_order: float
    error: float


def z(numbers: tuple[float, float, float], room: float = 0.0) -> float:
    predicted, measured, error = numbers
    return (measured - predicted) / math.hypot(error, room)


def z_of_std(numbers: tuple[float, float, float], room: float = 0.0) -> float:
    """Of the variances: a standard deviation of 0 has no symmetric error."""
    predicted, measured, error = numbers
    between = math.hypot(2.0 * measured * error, max(2.0 * predicted * room, room**2))
    return (measured**2 - predicted**2) / between if between > 0.0 else 0.0


def predict(cell: Cell, kept: Path) -> dict[str, Any]:
    """What is predicted of a cell: computed once, kept in a line of a file."""
    for line in read(kept):
        if line["cell"] == cell.name:
            return line
    import firstguess as fg

    inputs = fg.Inputs(dimension=cell.dimension)
    two = fg.predict(cell.text, width=cell.width, inputs=inputs, points=cell.points)
    ten = fg.predict(cell.text, width=cell.width, inputs=inputs, points=cell.points, classes=CLASSES)
    assert two.finite_size is not None
    found = {
        "cell": cell.name,
        "size": two.finite_size.to_dict(),
        "counted": two.guesses.std(),
        "counted_error": _error(two.guesses, "std"),
        "largest": ten.guesses.expected_max(),
        "largest_error": _error(ten.guesses, "expected_max"),
    }
    with kept.open("a") as file:
        file.write(json.dumps(found) + "\n")
    return found


def _error(law: Any, what: str) -> float:
    """What drawing a law adds to the error of its numbers."""
    if hasattr(law, "standard_error"):
        return float(law.standard_error(what))
    return float(law.expected_max_error()) if what == "expected_max" else 0.0


def row(cell: Cell, lines: Sequence[dict[str, Any]], predicted: dict[str, Any]) -> Row:
    kept = {key: np.array([v for line in lines for v in line[key]]) for key in ("overlap", "arcsin", "g0", "max10")}
    size, found = len(kept["g0"]), predicted["size"]

    def mean(values: NDArray[np.float64]) -> tuple[float, float]:
        return float(values.mean()), float(values.std(ddof=1)) / math.sqrt(size)

    def root(values: NDArray[np.float64]) -> tuple[float, float]:
        average, error = mean(values)
        std = math.sqrt(max(average, 0.0))
        return std, error / (2.0 * std) if std > 0.0 else math.sqrt(error)

    counted = (predicted["counted"], *root((kept["g0"] - 0.5) ** 2))
    # A batch that is centred has overlaps below 0 on average: there is no share of infinitely many points. The same
    # average over pairs, with counting (theory.md (41)), is then compared with the distribution of the counts.
    batch, n = cell.norm.startswith("BN"), cell.points
    pairs = kept["arcsin"] / (2.0 * math.pi)
    std = (predicted["counted"], *root(0.25 / n + (1 - 1 / n) * pairs)) if batch else (found["std"], *root(pairs))
    largest, error = mean(kept["max10"])
    return Row(
        cell,
        size,
        (found["overlap"], *mean(kept["overlap"])),
        (std[0], std[1], math.hypot(std[2], predicted.get("counted_error", 0.0) if batch else 0.0)),
        (counted[0], counted[1], math.hypot(counted[2], predicted.get("counted_error", 0.0))),
        (predicted["largest"], largest, math.hypot(error, predicted.get("largest_error", 0.0))),
        found["infinite"],
        found["way"],
        found["next_order"],
        found["error"],
    )


def table(rows: Sequence[Row]) -> str:
    lines = [
        "| network | way | std G₀: infinite | predicted | measured | z | counted z | E max of 10: predicted | measured "
        "| z |",
        "|" + "---|" * 10,
    ]
    for r in rows:
        room = max(r.next_order, r.error)
        p, m, e = r.std
        lines.append(
            f"| {r.cell.name} | {r.way} ± {room:.1g} | {r.infinite:.4f} | {p:.4f} | {m:.4f} ± {e:.4f} | "
            f"{z_of_std(r.std, r.error):+.1f} | {z_of_std(r.counted, r.error):+.1f} | {r.largest[0]:.4f} | "
            f"{r.largest[1]:.4f} ± {r.largest[2]:.4f} | {z(r.largest, r.error):+.1f} |"
        )
    return "\n".join(lines)


def costs() -> str:
    """Processor seconds of a prediction with a width next to one without, taken in turns: the least of several each."""
    import firstguess as fg

    def least(runs: list[Any], repeats: int) -> list[float]:
        found: list[list[float]] = []
        for _ in range(repeats):
            started = [time.process_time()]
            for run in runs:
                run()
                started.append(time.process_time())
            found.append(np.diff(started).tolist())
        return np.min(found, axis=0).tolist()

    lines = ["| prediction, layers, depth | infinite, ms | with a width, ms | ratio | way |", "|" + "---|" * 5]
    x = np.random.default_rng(0).standard_normal((1000, 300))
    for depth, body in ((20, "relu > layernorm"), (20, "relu"), (5, "gelu > layernorm"), (20, "layernorm > relu")):
        net = fg.Network.parse(f"{depth} x [dense(weight_var=2) > {body}] > dense(weight_var=2)")
        on_data: dict[str, Any] = {"data": x, "draws": 1000}
        each: list[tuple[str, dict[str, Any], dict[str, Any], int]] = [
            ("closed form", {}, {"width": 400, "inputs": fg.Inputs(dimension=1000)}, 300),
            ("kernel, 1 000 points", on_data, {"width": 1000}, 4),
        ]
        for name, common, own, repeats in each:
            size = fg.predict(net, **common, **own).finite_size  # once before timing: series are kept
            wide, finite = least([partial(fg.predict, net, **kw) for kw in (common, common | own)], repeats)
            ratio, way = finite / wide, size.way if size else ""
            lines.append(f"| {name}, {body}, {depth} | {1e3 * wide:.2f} | {1e3 * finite:.2f} | {ratio:.2f} | {way} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/finite.jsonl"))
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--networks", type=int, default=NETWORKS)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--kept", action="store_true", help="only cells whose prediction is at hand")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--costs", action="store_true")
    args = parser.parse_args()
    if args.costs:
        print(costs())
        return
    args.out.parent.mkdir(parents=True, exist_ok=True)
    if not args.table:
        measure(args.out, args.seconds, args.networks)
        return
    by_cell: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in read(args.out):
        by_cell[line["cell"]].append(line)
    kept = args.out.with_suffix(".predicted.jsonl")
    known = {line["cell"] for line in read(kept)}
    wanted = [c for c in cells() if c.name in by_cell and (not args.kept or c.name in known)]
    rows = [row(cell, by_cell[cell.name], predict(cell, kept)) for cell in wanted]
    text = table(rows)
    print(text)
    if args.write:
        args.write.write_text(text + "\n")


if __name__ == "__main__":
    main()
