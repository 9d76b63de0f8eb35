"""Training many networks: `fg.train`'s engine against a plain loop over networks, interleaved in one run.

    python benchmarks/train_many.py            both jobs, some minutes
    python benchmarks/train_many.py --quick    a smoke run

20 000 points of 1 000 dimensions in two classes, one hidden layer of 100 ReLUs (SHLP) or twenty (MHLP), batches of 512,
Adam: milliseconds a network and step. The plain loop is what users write: nn.Sequential, nn.CrossEntropyLoss,
torch.optim.Adam, one network after another, two torch threads. Looks (all points through the network, now and then) are
in neither; the last column says how many steps one of ours costs. Best of all rounds.
"""

from __future__ import annotations

import argparse
import math
import threading
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from firstguess.base.threads import cores
from firstguess.ensemble.training_engine import DescriptionTrainer
from firstguess.ensemble.training_loop import plan
from firstguess.network.network import Network

N, D, WIDTH, BATCH, RATE = 20_000, 1_000, 100, 512, 1e-4


def plain(x: torch.Tensor, y: torch.Tensor, depth: int, steps: int) -> float:
    """Seconds a step."""
    layers: list[nn.Module] = []
    for i in range(depth):
        layers += [nn.Linear(D if i == 0 else WIDTH, WIDTH, bias=False), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, 2, bias=False))
    optimizer, loss = torch.optim.Adam(model.parameters(), lr=RATE), nn.CrossEntropyLoss()
    order = torch.randperm(len(x))
    began = 0.0
    for step in range(-2, steps):
        if step == 0:
            began = time.perf_counter()
        first = (step * BATCH) % (len(x) - BATCH)
        picked = order[first : first + BATCH]
        optimizer.zero_grad()
        loss(model(x[picked]), y[picked]).backward()
        optimizer.step()
    return (time.perf_counter() - began) / steps


def ours(x: np.ndarray, y: np.ndarray, depth: int, steps: int, group: int | None) -> tuple[float, float, int]:
    """Seconds a network and step, seconds a network and look, and networks side by side."""
    network = Network.parse(f"{depth} x [dense(weight_var=2) > relu] > dense")
    how = plan(len(x), lr=RATE, steps=[0, steps + 2], batch=BATCH)
    trainer = DescriptionTrainer(network, x, y, None, how, width=WIDTH, threads=cores(), memory=8e9, group=group)
    times: list[list[float]] = [[] for _ in range(trainer.threads)]

    def clock(into: list[float]) -> Callable[[], bool]:
        def stopped() -> bool:
            into.append(time.perf_counter())
            return False

        return stopped

    def work(index: int) -> None:
        members = range(index * trainer.group, (index + 1) * trainer.group)
        trainer.train(members, how.looks, lambda *seen: None, clock(times[index]))

    workers = [threading.Thread(target=work, args=(i,)) for i in range(trainer.threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    # The first look lies between the first two times.
    each = [(t[-1] - t[1]) / (len(t) - 2) for t in times]
    looks = [t[1] - t[0] - one for t, one in zip(times, each, strict=True)]
    networks = trainer.group * trainer.threads
    return float(np.mean(each)) / networks, float(np.mean(looks)) / networks, trainer.group


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--group", type=int, default=None, help="networks side by side in a thread")
    given = parser.parse_args()
    torch.set_num_threads(cores())
    rng = np.random.default_rng(0)
    y = np.arange(N) % 2
    x = (rng.standard_normal((N, D)) + 0.1 * (2 * y - 1)[:, None]).astype(np.float32)
    tx, ty = torch.from_numpy(x), torch.from_numpy(y)
    print(f"{'':6}{'plain loop':>12}{'fg.train':>12}{'ratio':>8}   {'side by side':>12}{'a look, in steps':>18}")
    for name, depth, steps in (("SHLP", 1, 120), ("MHLP", 20, 40)):
        steps = 8 if given.quick else steps
        best, fast, look, group = math.inf, math.inf, math.inf, 1
        for _ in range(1 if given.quick else given.rounds):
            best = min(best, plain(tx, ty, depth, steps))
            one, seen, group = ours(x, y, depth, max(8, steps // 4), given.group)
            fast, look = min(fast, one), min(look, seen)
            torch.set_num_threads(cores())
        columns = f"{best * 1e3:>9.2f} ms{fast * 1e3:>9.2f} ms{best / fast:>7.2f}×"
        print(f"{name:6}{columns}   {group:>12}{look / fast:>18.1f}", flush=True)


if __name__ == "__main__":
    main()
