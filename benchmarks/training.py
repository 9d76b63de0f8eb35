"""Predicted training: seconds and memory, and how many times sooner it is there than networks that are trained.

    python benchmarks/training.py            some minutes
    python benchmarks/training.py --quick    a smoke run: fewer points, networks and steps

Two blobs of 784 dimensions, three hidden ReLU layers of width 1000, full-batch descent, 10 000 steps.

1. 1 000 points, 200 draws: seconds for the kernels, and for all that comes after them (wanted: 3 s).
2. 5 000 points, 200 draws, in a process of its own: seconds in all (wanted: 60), and the most memory that it had
   (wanted: 2 GB above Python and its libraries, which are measured before).
3. The mean curve of 50 networks on 1 000 points: predicted from 50 draws, so that both means have the same standard
   error, kernels included, against training 50 networks in a plain loop (nn.Sequential, torch.optim.SGD, two threads).
   Only this many steps are trained, as the line says; the rest is by multiplication, and looks at the logits
   are left out. Wanted: 1 000 times.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import firstguess as fg
from firstguess.theory.training.problem import prepare
from firstguess.theory.training.runs import follow

NET = "3 x [dense(weight_var=2) > relu] > dense(weight_var=2)"
D, WIDTH, RATE = 784, 1000, 1e-4


@dataclass(frozen=True)
class Sizes:
    """What is run."""

    points: int = 1000
    many: int = 5000
    draws: int = 200
    steps: int = 10_000
    networks: int = 50
    tried: int = 30  # steps of real training that are timed


QUICK = Sizes(points=200, many=400, draws=20, steps=200, networks=50, tried=3)


def predicted(points: int, draws: int, steps: int) -> tuple[float, float]:
    """Seconds for the kernels and what belongs to them, and for the prediction."""
    data = fg.data.two_blobs(points // 2, D)
    began = time.perf_counter()
    options: dict[str, Any] = {"weight_decay": 0.0, "width": WIDTH, "level": None, "classes": None, "batch": None}
    problem = prepare(
        NET, data, None, lr=RATE, steps=steps, optimizer="gd", loss="cross-entropy", draws=draws, **options
    )
    middle = time.perf_counter()
    follow(problem, draws=draws)
    return middle - began, time.perf_counter() - middle


def peak() -> float:
    """Of this process, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * unit


def child(points: int, draws: int, steps: int) -> None:
    """In a process of its own, since memory is counted by process: JSON on standard output."""
    predicted(20, 2, 10)  # libraries are loaded
    before = peak()
    kernels, rest = predicted(points, draws, steps)
    print(json.dumps({"kernels": kernels, "rest": rest, "before": before, "peak": peak()}))


def trained(points: int, tried: int) -> float:
    """Seconds a step of one network, in a plain loop."""
    data = fg.data.two_blobs(points // 2, D)
    x, y = torch.tensor(data.x).float(), torch.tensor(data.y)
    layers: list[nn.Module] = []
    for inputs in (D, WIDTH, WIDTH):
        layers += [nn.Linear(inputs, WIDTH, bias=False), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, 2, bias=False))
    optimizer, loss = torch.optim.SGD(model.parameters(), lr=RATE), nn.CrossEntropyLoss()
    began = 0.0
    for step in range(-2, tried):
        if step == 0:
            began = time.perf_counter()
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    return (time.perf_counter() - began) / tried


def main() -> None:
    """All three."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    torch.set_num_threads(2)
    if asked.child:
        points, draws, steps = (int(v) for v in asked.child.split(","))
        child(points, draws, steps)
        return
    size = QUICK if asked.quick else Sizes()
    predicted(20, 2, 10)

    kernels, rest = min((predicted(size.points, size.draws, size.steps) for _ in range(3)), key=sum)
    print(f"{size.points} points, {size.draws} draws, {size.steps} steps: kernels {kernels:.2f} s, then {rest:.2f} s")

    said = subprocess.run(
        [sys.executable, __file__, "--child", f"{size.many},{size.draws},{size.steps}"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    r = json.loads(said.stdout)
    print(
        f"{size.many} points, {size.draws} draws, {size.steps} steps: {r['kernels'] + r['rest']:.1f} s (kernels "
        f"{r['kernels']:.1f}), {r['peak'] / 1e9:.2f} GB, {(r['peak'] - r['before']) / 1e9:.2f} above Python's own"
    )

    ours = min(sum(predicted(size.points, size.networks, size.steps)) for _ in range(3))
    step = min(trained(size.points, size.tried) for _ in range(2))
    theirs = step * size.steps * size.networks
    print(
        f"mean curve of {size.networks} networks, {size.points} points, {size.steps} steps: predicted in {ours:.2f} s, "
        f"trained in {theirs / 3600:.2f} h ({1e3 * step:.0f} ms per step and network, over {size.tried} steps): "
        f"{theirs / ours:,.0f} times"
    )


if __name__ == "__main__":
    main()
