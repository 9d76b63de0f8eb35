"""What a watch costs: the same training with and without one, in turn, on an MLP and a small CNN.

    python benchmarks/watch.py [--steps 5000]

Both trainings run in turn, in blocks of 50 steps, one thread; printed is the difference of their processor times, and
the watch's own account (`watch.cost`). Its clock stands while the other training runs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Generator
from types import SimpleNamespace

import torch
from torch import nn

import firstguess as fg
from firstguess.watch import loop

BATCH, BLOCK = 128, 50


def mlp() -> tuple[nn.Module, torch.Tensor]:
    """Three hidden layers of 512 on 784 inputs."""
    body = [nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU()]
    return nn.Sequential(*body, nn.Linear(512, 10)), torch.randn(2048, 784)


def cnn() -> tuple[nn.Module, torch.Tensor]:
    """Three convolutions with BatchNorm on images of 16×16."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 16), (16, 32), (32, 32)):
        layers += [nn.Conv2d(inputs, outputs, 3, 2, 1), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128, 10)), torch.randn(2048, 3, 16, 16)


MODELS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {"mlp": mlp, "cnn": cnn}


def training(
    make: Callable[[], tuple[nn.Module, torch.Tensor]], steps: int, *, watched: bool
) -> Generator[None, None, str]:
    """A training that stops after every block of steps; at the end, the watch's account."""
    torch.manual_seed(0)
    model, x = make()
    y = torch.arange(len(x)) % 10
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=BATCH)
    watch = fg.Watch(model, loader) if watched else None
    for k in range(steps):
        if k % BLOCK == 0:
            yield
        if watch is not None:
            watch.step(k)
        at = k * BATCH % len(x)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[at : at + BATCH]), y[at : at + BATCH]).backward()
        optimizer.step()
    return "" if watch is None else str(watch.cost)


def beside(make: Callable[[], tuple[nn.Module, torch.Tensor]], steps: int) -> tuple[float, float, str]:
    """Seconds of the processor without and with a watch, block by block in turn; and the watch's account."""
    runs = [training(make, steps, watched=watched) for watched in (False, True)]
    spent, said = [0.0, 0.0], ""
    away = 0.0  # seconds of the other training, which a watch next to it must not take for its own
    loop.time = SimpleNamespace(perf_counter=lambda: time.perf_counter() - away)  # type: ignore[assignment]
    for block in range(steps // BLOCK + 2):
        for i in (0, 1) if block % 2 else (1, 0):
            began, left = time.process_time(), time.perf_counter()
            try:
                next(runs[i])
            except StopIteration as end:
                said = end.value or said
            if block:  # the first one makes the model and chooses points
                spent[i] += time.process_time() - began
            if i == 0:
                away += time.perf_counter() - left
    return spent[0], spent[1], said


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=5000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name, make in MODELS.items():
        beside(make, 2 * BLOCK)  # libraries are loaded, kernels chosen
        bare, seen, said = beside(make, options.steps)
        print(f"{name}: {1e3 * bare / options.steps:.2f} ms per step; with a watch {seen / bare - 1:+.1%}; "
              f"by its own account {said}")  # fmt: skip


if __name__ == "__main__":
    main()
