"""Speed of the kernel reading, against a straightforward NumPy implementation, and against drawing real networks.

Competitors take turns in one process; the best of several rounds counts. `neural-tangents` joins in when it can be
imported. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import math
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import firstguess as fg
from firstguess.theory.kernel.propagation import kernel
from firstguess.theory.shares.argmax_sampling import draw_guesses

Array = NDArray[Any]

D = 3072  # CIFAR-10's shape
PROMISES = {1: 2.0, 5: 3.0, 20: 4.0}


def best(jobs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Seconds of every job, interleaved: the best of several rounds."""
    times = dict.fromkeys(jobs, math.inf)
    for _ in range(rounds):
        for name, job in jobs.items():
            started = time.perf_counter()
            job()
            times[name] = min(times[name], time.perf_counter() - started)
            time.sleep(0.2)  # OpenBLAS' threads keep the cores busy for some 0.1 s after a call
    return times


def straightforward(x: Array, depth: int) -> Array:
    """The arc-cosine recursion on whole matrices, as one would write it down (Kaiming weights)."""
    k = 2.0 * (x @ x.T) / x.shape[1]
    for _ in range(depth):
        root = np.sqrt(np.diag(k))
        scale = np.outer(root, root)
        c = np.clip(k / scale, -1.0, 1.0)
        k = scale / math.pi * (np.sqrt(1.0 - c * c) + c * (math.pi - np.arccos(c)))
    return k


def neural_tangents(depth: int) -> Callable[[Array], Any] | None:
    """The same network in neural-tangents, compiled; None if it is not installed."""
    try:
        import jax  # pyright: ignore[reportMissingImports]
        from neural_tangents import stax  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    layers: list[Any] = []
    for _ in range(depth):
        layers += [stax.Dense(1, W_std=math.sqrt(2.0)), stax.Relu()]
    _, _, kernel_fn = stax.serial(*layers, stax.Dense(1, W_std=math.sqrt(2.0)))
    compiled = jax.jit(lambda x: kernel_fn(x, None, "nngp"))
    return lambda x: compiled(x).block_until_ready()


def construction(quick: bool) -> None:
    print("kernel of n CIFAR-shaped points, ReLU (promise: 2, 3, 4 times as fast at depth 1, 5, 20)")
    for n in (1000,) if quick else (1000, 2000):
        plain: dict[int, float] = {}
        for dtype in (np.float64, np.float32):
            x = np.random.default_rng(0).standard_normal((n, D)).astype(dtype)
            gram = best({"gram": lambda x=x: x @ x.T}, 3)["gram"]
            for depth, promise in PROMISES.items():
                net = fg.mlp(depth=depth)
                jobs: dict[str, Callable[[], object]] = {
                    "ours": lambda x=x, net=net, dtype=dtype: kernel(net, x, dtype=dtype),
                    "numpy": lambda x=x, depth=depth: straightforward(x, depth),
                }
                other = neural_tangents(depth) if dtype is np.float32 else None
                if other is not None:
                    other(x)  # compiles
                    jobs["neural-tangents"] = lambda x=x, other=other: other(x)
                t = best(jobs, 3 if quick else 7)
                plain.setdefault(depth, t["numpy"])  # NumPy's default is float64
                rest = (t["numpy"] - gram) / max(t["ours"] - gram, 1e-9)
                line = "  ".join(f"{name} {1e3 * s:7.1f} ms" for name, s in t.items())
                ratios = ", ".join(f"{t[name] / t['ours']:.1f}× {name}" for name in t if name != "ours")
                if dtype is np.float32:
                    ratios += f", {plain[depth] / t['ours']:.1f}× numpy in float64"
                print(
                    f"  n {n} {np.dtype(dtype).name} depth {depth:2d}: {line}   {ratios} (promise {promise:g}×); "
                    f"layers alone, without X·Xᵀ ({1e3 * gram:.0f} ms): {rest:.1f}×; X·Xᵀ alone would be "
                    f"{t['numpy'] / gram:.1f}×"
                )


def large(quick: bool) -> None:
    n = 2000 if quick else 5000
    x = np.random.default_rng(0).standard_normal((n, D))
    started = time.perf_counter()
    kernel(fg.mlp(depth=20), x)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"n = {n}, 20 ReLU layers, float64: {time.perf_counter() - started:.1f} s, peak {peak:.2f} GB (60 s, 2 GB)")
    started = time.perf_counter()
    kernel(fg.mlp(depth=20, activation="tanh", weight_var=1.5, bias_var=0.05), x)
    print(f"n = {n}, 20 tanh layers, float64: {time.perf_counter() - started:.1f} s")


def drawing(quick: bool) -> None:
    x = np.random.default_rng(0).standard_normal((1000, D), dtype=np.float32)
    k = kernel(fg.mlp(depth=5), x).covariance
    seconds = best({"draw": lambda: draw_guesses(k, 10, draws=10_000)}, 1 if quick else 3)["draw"]
    print(f"10 000 initializations × 10 classes, n = 1 000: {seconds:.2f} s (promise 3 s)")


def against_networks(quick: bool) -> None:
    """The distribution of G from 5 000 initializations: the plain loop (a few, scaled up), and the kernel."""
    import torch
    from torch import nn

    n, inits = 1000, 5000
    x = np.random.default_rng(0).standard_normal((n, D), dtype=np.float32)
    data = torch.from_numpy(x)

    def one() -> None:
        layers: list[nn.Module] = []
        width = D
        for _ in range(5):
            layer = nn.Linear(width, 1000, bias=False)
            nn.init.kaiming_normal_(layer.weight)
            layers += [layer, nn.ReLU()]
            width = 1000
        head = nn.Linear(width, 10, bias=False)
        nn.init.kaiming_normal_(head.weight)
        with torch.no_grad():
            torch.bincount(nn.Sequential(*layers, head)(data).argmax(dim=1), minlength=10)

    def ours() -> None:
        draw_guesses(kernel(fg.mlp(depth=5), x, dtype=np.float32).covariance, 10, draws=inits)

    t = best({"one network": one, "kernel": ours}, 3 if quick else 7)
    loop = inits * t["one network"]
    print(
        f"the law of G, width 1 000, depth 5, n = {n}, {inits} initializations: plain loop {loop:.0f} s (from "
        f"{1e3 * t['one network']:.0f} ms each), kernel {t['kernel']:.2f} s: {loop / t['kernel']:.0f}× (promise 200×)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller and fewer rounds")
    quick = parser.parse_args().quick
    large(quick)
    construction(quick)
    drawing(quick)
    against_networks(quick)


if __name__ == "__main__":
    main()
