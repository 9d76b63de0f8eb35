"""Training many members at once: our own backward pass against autograd over the batched forward, in CPU time.

    python benchmarks/backward.py            a minute
    python benchmarks/backward.py --quick    a smoke run

Both train the same 8 members on batches of 128 points of 784 dimensions, in one thread, with torch's fused Adam. With
autograd the members' losses are summed, so that one backward gives every member's gradient. Steps of the two take
turns, and the line has the median of each. At these sizes autograd is within 10 % of `ensemble/training_batched.py`.
Small networks decide for ours: at width 64 on 200 points of 20 dimensions autograd took 1.4 times as long (batches of
32: 1.4 to 1.5), at width 100 on 500 points 1.3 times. Members that depend on (seed, i) only are no obstacle: where
points are padded so that points × units is a multiple of 32 (the two vectors that torch's elementwise kernels take at
once; the tail of a buffer goes another way), all 192 of 192 members had the same bits whatever they were trained with.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from firstguess.ensemble.member_module import resolve
from firstguess.ensemble.training_batched import BatchedTrainer, compile_ops
from firstguess.ensemble.training_loop import plan
from firstguess.network.network import Network

NETWORKS = {
    "ReLU": "3 x [dense(weight_var=2) > relu] > dense",
    "LayerNorm, tanh": "3 x [dense > layernorm > tanh] > dense",
    "residual, BatchNorm": "dense > 3 x [residual[dense > batchnorm > relu > dense]] > dense",
}
D, POINTS, BATCH, MEMBERS, WIDTH = 784, 512, 128, 8, 256


def batchnorm(x: Tensor) -> Tensor:
    """Over points, unit by unit, of (members, units, points)."""
    mean = x.mean(2, keepdim=True)
    centred = x - mean
    return centred * centred.square().mean(2, keepdim=True).rsqrt()


def layernorm(x: Tensor) -> Tensor:
    """Over units."""
    return F.layer_norm(x.transpose(1, 2), (x.shape[1],)).transpose(1, 2)


def forward(name: str, weights: list[Tensor], x: Tensor) -> Tensor:
    """One of the networks, of all members: (members, units, points)."""
    given = iter(weights)

    def dense(x: Tensor) -> Tensor:
        return torch.bmm(next(given), x)

    if name == "residual, BatchNorm":
        x = dense(x)
        for _ in range(3):
            x = x + dense(torch.relu(batchnorm(dense(x))))
        return dense(x)
    for _ in range(3):
        x = torch.relu(dense(x)) if name == "ReLU" else torch.tanh(layernorm(dense(x)))
    return dense(x)


def steps(name: str, text: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """One step of each way, on its own copy of the same members."""
    rng = np.random.default_rng(0)
    x, labels = rng.standard_normal((POINTS, D)).astype(np.float32), rng.integers(0, 2, POINTS)
    network = Network.parse(text)
    how = plan(POINTS, lr=1e-3, batch=BATCH, epochs=None, steps=10**6, optimizer="adam", loss="cross-entropy",
               weight_decay=0.0, seed=0)  # fmt: skip
    ops = compile_ops(resolve(network, (D,), width=WIDTH, inputs=lambda: None))
    assert not isinstance(ops, str), ops
    trainer = BatchedTrainer(ops, x, labels, None, how, classes=2, threads=1, memory=4e9, group=MEMBERS)
    group = trainer._group(range(MEMBERS))  # pyright: ignore[reportPrivateUsage]
    batch = torch.from_numpy(x[:BATCH]).expand(MEMBERS, -1, -1).contiguous().transpose(1, 2)
    wanted = torch.from_numpy(labels[:BATCH]).expand(MEMBERS, -1)
    group.trained.grad = group.gradient
    ours = torch.optim.Adam([group.trained], fused=True)
    from firstguess.ensemble.training_batched import every_dense

    weights = [op.matrix.clone().requires_grad_() for op in every_dense(group._ops)]  # pyright: ignore
    theirs = torch.optim.Adam(weights, fused=True)

    def own() -> object:
        with torch.no_grad():
            group.differentiate(batch, wanted, "cross-entropy")
        return ours.step()

    def autograd() -> object:
        theirs.zero_grad()
        logits = forward(name, weights, batch)
        (F.cross_entropy(logits, wanted, reduction="sum") / BATCH).backward()
        return theirs.step()

    own()
    autograd()  # the same gradients, before anything is timed
    found = torch.cat([(w.grad if w.grad is not None else w).flatten(1) for w in weights], 1)
    mine = torch.cat([op.matrix_gradient.flatten(1) for op in every_dense(group._ops)], 1)  # pyright: ignore
    assert torch.allclose(found, mine, rtol=1e-3, atol=1e-6), float((found - mine).abs().max())
    return own, autograd


def main() -> None:
    """Print a line per network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    turns = 3 if parser.parse_args().quick else 40
    torch.set_num_threads(1)
    for name, text in NETWORKS.items():
        ways = steps(name, text)
        times: list[list[float]] = [[], []]
        for _ in range(turns):
            for way, taken in zip(ways, times, strict=True):
                began = time.process_time()
                for _ in range(5):
                    way()
                taken.append((time.process_time() - began) / 5)
        own, autograd = (statistics.median(taken) for taken in times)
        print(f"{name:<20}  own {1e3 * own:6.2f} ms   autograd {1e3 * autograd:6.2f} ms   ratio {autograd / own:.2f}")


if __name__ == "__main__":
    main()
