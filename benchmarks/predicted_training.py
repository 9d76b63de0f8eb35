"""Predicted training next to real training, from the same starts: the table of docs/training.md.

    python benchmarks/predicted_training.py [--data DIR] [--members 8] [--only WORD] [--table]

Every cell draws networks of one description, follows them by `fg.predict_training` from their own starting logits, and
trains them in a plain loop of PyTorch. Written: the largest differences of mean curves over all steps looked at (share
of the largest class, accuracy of either group), the ratio of absorption steps by kernel and in closed form, and what
`trust` said beforehand. Cells are kept in out/predicted_training, so that a second run only does what is missing.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import firstguess as fg
from firstguess.ensemble.member_module import build
from firstguess.theory.training.absorption import scalar_tangent, steps_to
from firstguess.theory.training.curves import FAVOURED, OTHERS, CurveRecorder, absorption, looked_at

POINTS = 300
OUT = Path("out/predicted_training")
RELU = "dense(weight_var=2) > relu"
TANH = {"ordered": 1.59, "edge": 1.99, "biased chaos": 2.48, "even chaos": 4.97}


@dataclass(frozen=True)
class Cell:
    """One setting; `rate` is the learning rate by that of overshoot (2κ/λ_b), or of Adam itself."""

    name: str
    network: str
    data: str
    width: int
    rate: float = 0.05
    steps: int = 200
    optimizer: str = "gd"
    batch: int | None = None


def mlp(block: str, depth: int, last: str = "dense(weight_var=2)") -> str:
    return f"{depth} x [{block}] > {last}"


def tanh(phase: str, depth: int) -> str:
    dense = f"dense(weight_var={TANH[phase]}, bias_var=0.1)"
    return mlp(f"{dense} > tanh", depth, dense)


CELLS = [
    Cell("ReLU, depth 1", mlp(RELU, 1), "mnist", 600),
    Cell("ReLU, depth 3", mlp(RELU, 3), "mnist", 900),
    Cell("ReLU, depth 3", mlp(RELU, 3), "cifar", 900),
    Cell("ReLU, depth 1", mlp(RELU, 1), "gb2", 600),
    Cell("ReLU, depth 3", mlp(RELU, 3), "gb2", 900),
    Cell("ReLU, depth 1", mlp(RELU, 1), "digits", 600),
    Cell("ReLU, depth 3", mlp(RELU, 3), "digits", 900),
    *(Cell(f"tanh {phase}, depth 3", tanh(phase, 3), "mnist", 900) for phase in TANH),
    Cell("tanh edge, depth 3", tanh("edge", 3), "digits", 900),
    Cell("LayerNorm before", mlp("dense(weight_var=2) > layernorm > relu", 3), "mnist", 900),
    Cell("LayerNorm after", mlp("dense(weight_var=2) > relu > layernorm", 3), "mnist", 900),
    Cell("BatchNorm before", mlp("dense(weight_var=2) > batchnorm > relu", 3), "mnist", 900),
    Cell("BatchNorm after", mlp("dense(weight_var=2) > relu > batchnorm", 3), "mnist", 900),
    Cell("LayerNorm before", mlp("dense(weight_var=2) > layernorm > relu", 3), "cifar", 900),
    Cell("BatchNorm before", mlp("dense(weight_var=2) > batchnorm > relu", 3), "cifar", 900),
    Cell("ReLU, depth 3, SGD", mlp(RELU, 3), "mnist", 900, optimizer="sgd", batch=32),
    Cell("ReLU, depth 1, Adam", mlp(RELU, 1), "mnist", 600, 2e-5, 200, "adam"),
    Cell("ReLU, depth 3, Adam", mlp(RELU, 3), "mnist", 900, 1e-5, 100, "adam"),
    Cell("ReLU, depth 3, Adam", mlp(RELU, 3), "gb2", 900, 1e-5, 100, "adam"),
    Cell("ReLU, depth 3, Adam", mlp(RELU, 3), "digits", 900, 1e-5, 100, "adam"),
    Cell("ReLU, depth 3, Adam, batches", mlp(RELU, 3), "cifar", 900, 1e-5, 100, "adam", 64),
    # where it is known to fail
    Cell("ReLU, depth 3, narrow", mlp(RELU, 3), "mnist", 100),
    Cell("ReLU, depth 10, narrow", mlp(RELU, 10), "mnist", 100),
    Cell("ReLU, depth 10, narrow", mlp(RELU, 10), "mnist", 300),
    *(Cell(f"tanh {phase}, depth 10, narrow", tanh(phase, 10), "mnist", 300) for phase in TANH),
    Cell("ReLU, depth 3, large rate", mlp(RELU, 3), "mnist", 900, 1.5, 100),
]


NAMES = {
    "mnist": "MNIST even/odd",
    "cifar": "CIFAR-10 vehicles/animals",
    "gb2": "two blobs",
    "digits": "digits, ten classes",
}


def points(name: str, folder: Path) -> Any:
    """300 labelled points, flat; two classes are even, as the closed form takes them."""
    match name:
        case "gb2":
            found = fg.data.two_blobs(POINTS // 2, 1000, seed=1)
        case "mnist":
            found = fg.data.mnist(folder, classes="even-odd", points=2 * POINTS, seed=1)
        case "cifar":
            found = fg.data.cifar10(folder, classes="vehicles-animals", points=2 * POINTS, seed=1)
        case _:
            found = fg.data.digits().standardize("global").subset(POINTS, seed=1)
    x, y = found.flat(), np.asarray(found.y)
    if len(x) > POINTS:
        kept = np.sort(np.concatenate([np.flatnonzero(y == c)[: POINTS // 2] for c in (0, 1)]))
        x, y = x[kept], y[kept]
    return x, y


def train(cell: Cell, net: fg.Network, x: Any, y: Any, rate: float, looks: Any, members: int) -> tuple[Any, Any]:
    """Starting logits, and the curves of real training: a plain loop."""
    inputs, labels = torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y.copy())
    recorder = CurveRecorder(looks, y, net.classes, members)
    starts = np.zeros((members, len(x), net.classes))
    shares = np.zeros((len(looks), members, net.classes))
    right, loss = np.zeros_like(shares), np.zeros((len(looks), members))
    for member in range(members):
        model = build(net, x.astype(np.float32), width=cell.width, seed=7, member=member)
        made = torch.optim.Adam if cell.optimizer == "adam" else torch.optim.SGD
        optimizer = made(model.parameters(), lr=rate)
        order = np.random.default_rng([7, member])
        queue: list[Any] = []
        look = 0
        for step in range(int(looks[-1]) + 1):
            if step == looks[look]:
                with torch.no_grad():
                    f = model(inputs)
                if step == 0:
                    starts[member] = f.double().numpy()
                best = f.argmax(1).numpy()
                shares[look, member] = np.bincount(best, minlength=net.classes) / len(x)
                right[look, member] = np.bincount(y[best == y], minlength=net.classes)
                loss[look, member] = float(torch.nn.functional.cross_entropy(f.double(), labels))
                look += 1
            if step == looks[-1]:
                break
            if not queue:
                size = cell.batch or len(x)
                shuffled = order.permutation(len(x)) if cell.batch else np.arange(len(x))
                queue = [torch.from_numpy(shuffled[i : i + size]) for i in range(0, len(x), size)]
            rows = queue.pop(0)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs[rows]), labels[rows]).backward()
            optimizer.step()
    for index in range(len(looks)):
        recorder.add(index, shares[index], right[index], loss[index])
    return starts, recorder.curves(shares[0].argmax(axis=1))


def run(cell: Cell, folder: Path, members: int) -> dict[str, Any]:
    """One row."""
    x, y = points(cell.data, folder)
    net = fg.Network.parse(cell.network, classes=int(y.max()) + 1)
    looks = looked_at(cell.steps)
    first = fg.predict_training(net, data=(x, y), lr=1e-12, steps=1, draws=2, width=cell.width, trust=False)
    rate = cell.rate if cell.optimizer == "adam" else cell.rate * first.overshoot
    began = time.perf_counter()
    starts, seen = train(cell, net, x, y, rate, looks, members)
    trained = time.perf_counter() - began
    t = fg.predict_training(
        net, data=(x, y), lr=rate, steps=cell.steps, optimizer=cell.optimizer, batch=cell.batch,  # type: ignore[arg-type]
        start=starts, width=cell.width,
    )  # fmt: skip

    def off(a: Any, b: Any) -> float:
        return float(np.nanmax(np.abs(a.mean - b.mean)))

    assert t.trust is not None
    real, said = absorption(seen.largest, t.level).draws, t.absorption.draws
    both = np.isfinite(real) & np.isfinite(said) & (real > 0)
    law = np.full(members, math.nan)
    if net.classes == 2 and cell.optimizer == "gd":
        m = fg.data.as_data((x, y)).inputs()
        try:
            tangent = scalar_tangent(
                net, fg.Inputs(mean_square=m.mean_square, variance=m.variance), dimension=x.shape[1], width=cell.width
            )
            g = starts[:, :, 1] - starts[:, :, 0]
            spread = math.sqrt(2.0 * (tangent.q - tangent.q_ab))
            law = steps_to(t.level, g.mean(axis=1), spread, rate * tangent.bias_mode(len(x)))
        except fg.FirstguessError as error:
            print("   closed form:", error)
    return {
        "name": cell.name,
        "data": NAMES[cell.data],
        "width": cell.width,
        "rate": rate,
        "members": members,
        "largest": off(t.largest, seen.largest),
        "accuracy": max(off(t.accuracy[g], seen.accuracy[g]) for g in (FAVOURED, OTHERS)),
        "start": float(seen.largest.mean[0]),
        "absorbed": int(both.sum()),
        "ratio": float(said[both].mean() / real[both].mean()) if both.any() else math.nan,
        "real": real.tolist(),
        "said": said.tolist(),
        "closed": float(law[both].mean() / real[both].mean()) if both.any() else math.nan,
        "law": law.tolist(),
        "bias_to_signal": t.modes.ratio,
        "common": t.modes.common,
        "trust": t.trust.word,
        "spread": t.trust.spread,
        "pace": t.trust.ratio,
        "why": t.trust.why,
        "seconds": trained,
    }


def main() -> None:
    """Run what is missing, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--only", default="")
    parser.add_argument("--table", action="store_true", help="only what is there")
    asked = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for index, cell in enumerate(CELLS):
        file = OUT / f"{index:02d}-{cell.data}-{cell.width}.json"
        if not file.exists() and not asked.table and asked.only in f"{cell.name} {cell.data}":
            try:
                row = run(cell, asked.data, asked.members)
            except fg.FirstguessError as error:
                print(cell.name, error, flush=True)
                continue
            file.write_text(json.dumps(row, indent=1))
            print({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
        if file.exists():
            rows.append(json.loads(file.read_text()))
    print("| network | data | width | share | accuracy | kernel | closed form | common | trust |")
    print("|---|---|---|---|---|---|---|---|---|")
    for r in rows:
        print(
            f"| {r['name']} | {r['data']} | {r['width']} | {r['largest']:.3f} | {r['accuracy']:.3f} | {r['ratio']:.2f}"
            f" | {r['closed']:.2f} | {r['common']:.3f} | {r['trust']} ({r['pace']:.2f} ± {r['spread']:.2f}) |"
        )


if __name__ == "__main__":
    main()
