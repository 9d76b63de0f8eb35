"""Speed of the theory engine, against the same numbers obtained with scipy's dblquad point by point.

Prints what the project promises: a 20-layer prediction (median, warm), a 100 × 100 phase diagram, the cold shell, and
ratios to the straightforward way, measured side by side in this run. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
from scipy.integrate import dblquad

import firstguess as fg
from firstguess.network.activations import record
from firstguess.theory.phases import layer_map


def clear() -> None:
    """Forget cached integrals: a warm library, but no remembered answers."""
    for cached in (record._moments, record._shifted_moments, layer_map._after, layer_map._slope):  # pyright: ignore
        cached.cache_clear()


def median(job: Callable[[], object], repeats: int) -> float:
    times: list[float] = []
    for _ in range(repeats):
        clear()
        started = time.perf_counter()
        job()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def by_dblquad(q: float, c: float) -> float:
    """E tanh u tanh v the straightforward way."""
    root = math.sqrt(1.0 - c * c)
    scale = math.sqrt(q)

    def integrand(y: float, x: float) -> float:
        return (
            math.tanh(scale * x)
            * math.tanh(scale * (c * x + root * y))
            * math.exp(-(x * x + y * y) / 2)
            / (2 * math.pi)
        )

    return dblquad(integrand, -8.0, 8.0, -8.0, 8.0)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    repeats = 5 if parser.parse_args().quick else 25

    print("prediction of a 20-layer network, median, warm, nothing cached (promise: 20 ms)")
    for name in ("relu", "gelu", "tanh", "silu", "elu", "hardtanh"):
        net = fg.mlp(depth=20, activation=name, weight_var=1.8, bias_var=0.05)
        print(f"  {name:10s} {1e3 * median(lambda net=net: fg.predict(net), repeats):8.2f} ms")
    pooled = fg.mlp(depth=20, pool="maxpool(4)")
    print(f"  relu+maxpool {1e3 * median(lambda: fg.predict(pooled), max(3, repeats // 5)):6.2f} ms")

    weights, biases = np.linspace(0.04, 4.0, 100), np.linspace(0.0, 0.5, 100)
    print("phase diagram 100 × 100, tolerance 1e-6 (promise: 2 s)")
    ours = math.inf
    for name in ("tanh", "erf", "relu", "gelu", "hardtanh"):
        seconds = median(
            lambda name=name: fg.phase_diagram(name, weight_vars=weights, bias_vars=biases, lines=False), 3
        )
        ours = seconds if name == "tanh" else ours
        print(f"  {name:10s} {seconds:8.3f} s")
    seconds = median(lambda: fg.phase_diagram("tanh", weight_vars=weights, bias_vars=biases), 1)
    print(f"  tanh with its three lines {seconds:8.3f} s")

    print("one correlation map E φφ, tanh, q = 1, c = 0.5")
    phi = fg.activation("tanh")
    exact = by_dblquad(1.0, 0.5)
    m = phi.moments(0.5, 0.5)
    straightforward = median(lambda: by_dblquad(1.0, 0.5), 3)
    mine = median(lambda: phi.moments(0.5, 0.5), repeats)
    print(
        f"  dblquad {1e3 * straightforward:.2f} ms, ours {1e6 * mine:.0f} µs: ratio {straightforward / mine:.0f}"
        f"   (difference {abs(m.mean**2 + m.between - exact):.1e})"
    )
    depth_100 = 100 * weights.size * biases.size * straightforward
    print(
        f"  the diagram by iterating dblquad 100 layers a point: {depth_100 / 3600:.1f} h, ratio {depth_100 / ours:.2g}"
    )

    edge = median(lambda: [fg.edge_of_chaos("tanh", bias_var=float(b)) for b in biases[1:]], 1)
    print(f"edge of chaos of tanh, 99 points: {edge:.3f} s")

    cold = [_cold() for _ in range(max(3, repeats // 5))]
    print(f"cold shell, firstguess predict mlp --depth 20: {statistics.median(cold):.2f} s (promise: 1 s)")


def _cold() -> float:
    started = time.perf_counter()
    code = "from firstguess.cli import main; main()"
    subprocess.run([sys.executable, "-c", code, "predict", "mlp", "--depth", "20"], check=True, capture_output=True)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
