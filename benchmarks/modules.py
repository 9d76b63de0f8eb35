"""Ensembles of a ResNet-18-sized network on 32×32 images: a plain loop, vmap, and ModuleEngine, interleaved.

    python benchmarks/modules.py [--images 128] [--batch 64] [--members 2] [--rounds 3] [--small] [--cpu]

The plain loop builds the model, runs all data once, takes the arg-max: no statistics of layers. vmap does the same for
stacked parameters. Ours counts guesses and measures all layers. Best of several rounds, in one process.
`--small`: a dense network on 256 points instead, where calls cost more than products and vmap has its place.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

from firstguess.data import collect
from firstguess.modules.engine import ModuleEngine


class Block(nn.Module):
    """Basic block of He et al. (2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        return self.relu(out + self.shortcut(x))


def resnet18() -> nn.Module:
    """11.2 million parameters, 0.56 GFLOP multiply-adds an image of 32×32."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    inputs = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(inputs, outputs, stride), Block(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def dense() -> nn.Module:
    layers: list[nn.Module] = []
    for inputs in (50, *[100] * 5):
        layers += [nn.Linear(inputs, 100), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(100, 10))


def plain(make: Callable[[], nn.Module], batches: list[torch.Tensor], members: int) -> None:
    for seed in range(members):
        torch.manual_seed(seed)
        model = make().train()
        counts = np.zeros(10)
        with torch.no_grad():
            for x in batches:
                counts += np.bincount(model(x).argmax(1).numpy(), minlength=10)


def stacked(make: Callable[[], nn.Module], batches: list[torch.Tensor], members: int) -> None:
    models: list[nn.Module] = []
    for seed in range(members):
        torch.manual_seed(seed)
        models.append(make().train())
    params, buffers = stack_module_state(models)
    base = copy.deepcopy(models[0])
    del models

    def one(p: dict[str, torch.Tensor], b: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return functional_call(base, (p, b), (x,))

    with torch.no_grad():
        for x in batches:
            guesses = vmap(one, in_dims=(0, 0, None))(params, buffers, x).argmax(-1)
            for row in guesses.numpy():
                np.bincount(row, minlength=10)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=int, default=128)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--members", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--cpu", action="store_true", help="CPU time of one thread: what a busy machine can still tell")
    options = parser.parse_args()
    torch.set_num_threads(1 if options.cpu else options.threads)
    clock = time.process_time if options.cpu else time.perf_counter
    if options.small:
        make, x, batch, members = dense, torch.randn(256, 50), 256, 64
    else:
        make, x, batch, members = resnet18, torch.randn(options.images, 3, 32, 32), options.batch, options.members
    batches = list(x.split(batch))
    engines = {
        way: ModuleEngine(make(), collect(x, batch_size=batch), strategy=way) for way in ("auto", "loop", "vmap")
    }  # fmt: skip
    law = ModuleEngine(make(), collect(x, batch_size=batch), probe="output")  # the plain loop's own job
    ways: dict[str, Callable[[], object]] = {
        "plain loop (no layer statistics)": lambda: plain(make, batches, members),
        "vmap (no layer statistics)": lambda: stacked(make, batches, members),
        "ours, strategy='loop'": lambda: engines["loop"].run(0, members),
        "ours, strategy='vmap'": lambda: engines["vmap"].run(0, members),
        "ours, strategy='auto'": lambda: engines["auto"].run(0, members),
        "ours, auto, probe='output'": lambda: law.run(0, members),
    }
    for engine in (engines["auto"], law):
        engine.run(0, 40 if options.small else 11)  # it has chosen before it is timed
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name, run in ways.items():
            began = clock()
            run()
            times[name].append((clock() - began) / members)
    base = min(times["plain loop (no layer statistics)"])
    print(f"{len(x)} points, batches of {batch}, {members} members a run, {torch.get_num_threads()} threads")
    for name, seconds in times.items():
        best = min(seconds)
        print(f"{name:34s} {1e3 * best:9.2f} ms per member (best), {1e3 * float(np.median(seconds)):9.2f} (median), "
              f"{base / best:5.2f}x the plain loop")  # fmt: skip
    print("auto:", *engines["auto"].notes)


if __name__ == "__main__":
    main()
