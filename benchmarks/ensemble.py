"""Ensembles of descriptions against a plain loop and torch.func's vmap, interleaved in one run.

    python benchmarks/ensemble.py            every job, some minutes
    python benchmarks/ensemble.py --quick    a smoke run
    python benchmarks/ensemble.py a:20       jobs whose name contains the word

The job is the distribution of the guess fractions: draw, one forward pass over all data, arg-max, count.
Each way does the same work per initialization and nothing else (no layer statistics). The plain loop is what users
write: an nn.Sequential of nn.Linear per initialization, re-initialized, inference mode, all torch threads. The lean
loop leaves out PyTorch's own default initialization (skip_init), whose draws the re-drawing throws away.
Percent of peak counts the products of the full problem, also where an exact reduction does less.

Case (d), a ResNet-18-sized convolutional network through the module engine, is benchmarks/modules.py.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from firstguess.ensemble.engine import DescriptionEngine
from firstguess.network.builders import mlp
from firstguess.network.layers import BatchNorm, Dense, LayerNorm
from firstguess.network.network import Network

SETTINGS: dict[str, tuple[str | None, str]] = {
    "none": (None, "before"),
    "BN before": ("batchnorm", "before"),
    "BN after": ("batchnorm", "after"),
    "LN before": ("layernorm", "before"),
    "LN after": ("layernorm", "after"),
}


@dataclass(frozen=True)
class Job:
    """One line of the table: data, network, what is asked of it."""

    name: str
    points: int
    dims: int
    width: int
    depth: int
    setting: str
    peak: float = 0.0  # percent of peak asked for
    ratio: float = 0.0  # times the plain loop asked for

    @property
    def network(self) -> Network:
        norm, placement = SETTINGS[self.setting]
        return mlp(self.depth, norm=norm, placement="before" if placement == "before" else "after")

    @property
    def flops(self) -> float:
        """Multiplications and additions of all products for one initialization."""
        inner = self.dims * self.width + (self.depth - 1) * self.width**2 + self.width * 2
        return 2.0 * self.points * inner


def jobs() -> list[Job]:
    out: list[Job] = []
    for depth in (1, 20):
        for setting in SETTINGS:
            plain, batch = 90.0 if depth == 1 else 80.0, 65.0 if "BN" in setting else 0.0
            asked = plain if setting == "none" else batch
            out.append(Job(f"a:{depth} {setting}", 20_000, 1_000, 100, depth, setting, asked, 1.4))
    for depth in (1, 20):
        for setting in SETTINGS:
            out.append(Job(f"b:{depth} {setting}", 1_000, 3_072, 100, depth, setting, 0.0, 5.0 if depth == 1 else 3.0))
    out.append(Job("c", 100, 100, 1_000, 100, "none", 0.0, 20.0))
    return out


def plain_module(
    network: Network, dims: int, width: int, generator: torch.Generator, *, lean: bool = True
) -> nn.Sequential:
    """The model of one initialization, in plain PyTorch."""
    modules: list[nn.Module] = []
    fan_in = dims
    for index, layer in enumerate(network.layers):
        if isinstance(layer, Dense):
            units = network.classes if index == len(network.layers) - 1 else width
            make = (lambda *a, **k: nn.utils.skip_init(nn.Linear, *a, **k)) if lean else nn.Linear
            linear = make(fan_in, units, bias=False)
            std = math.sqrt(layer.weight_var / fan_in)
            nn.init.normal_(linear.get_parameter("weight"), 0.0, std, generator=generator)
            modules.append(linear)
            fan_in = units
        elif isinstance(layer, BatchNorm):
            modules.append(nn.BatchNorm1d(fan_in, affine=False, track_running_stats=False))
        elif isinstance(layer, LayerNorm):
            modules.append(nn.LayerNorm(fan_in, elementwise_affine=False))
        else:
            modules.append(nn.ReLU(inplace=True))
    return nn.Sequential(*modules)


def plain_loop(job: Job, x: torch.Tensor, inits: int, *, lean: bool = False) -> Callable[[], None]:
    generator = torch.Generator().manual_seed(0)

    def run() -> None:
        with torch.inference_mode():
            for _ in range(inits):
                logits = plain_module(job.network, job.dims, job.width, generator, lean=lean)(x)
                torch.bincount(logits.argmax(1), minlength=2)

    return run


def vmapped(job: Job, x: torch.Tensor, inits: int, together: int) -> Callable[[], None]:
    """torch.func: `together` initializations in one call."""
    generator = torch.Generator().manual_seed(0)
    model = plain_module(job.network, job.dims, job.width, generator)
    names = [(name, p.shape) for name, p in model.named_parameters()]
    empty = plain_module(job.network, job.dims, job.width, generator).to("meta")

    def one(parameters: dict[str, torch.Tensor], data: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(empty, parameters, (data,))

    many = torch.func.vmap(one, in_dims=(0, None))

    def run() -> None:
        with torch.inference_mode():
            for _ in range(0, inits, together):
                drawn = {
                    name: torch.empty(together, *shape).normal_(0.0, math.sqrt(2.0 / shape[1]), generator=generator)
                    for name, shape in names
                }
                guesses = many(drawn, x).argmax(2)
                torch.nn.functional.one_hot(guesses, 2).double().mean(1)

    return run


def best(run: Callable[[], object], seen: float) -> float:
    started = time.perf_counter()
    run()
    return min(seen, time.perf_counter() - started)


def peak(size: int = 2048) -> float:
    """Operations per second of a large square float32 product on all threads, best of three."""
    a, b, out = torch.randn(size, size), torch.randn(size, size), torch.empty(size, size)
    seen = math.inf
    for _ in range(3):
        seen = best(lambda: torch.mm(a, b, out=out), seen)
    return 2.0 * size**3 / seen


def measure(job: Job, rounds: int, seconds: float, vmap_sizes: tuple[int, ...]) -> str:
    rng = np.random.default_rng(0)
    data = rng.standard_normal((job.points, job.dims), dtype=np.float32)
    x = torch.from_numpy(data)
    engine = DescriptionEngine(job.network, data, width=job.width, probe="output")
    ways: dict[str, tuple[Callable[[], object], int]] = {}
    inits = engine.batch_hint
    engine.run(0, inits)
    started = time.perf_counter()
    engine.run(0, inits)
    stretch = max(1, round(seconds / (time.perf_counter() - started)))
    ways["ours"] = (lambda: engine.run(0, inits * stretch), inits * stretch)
    loop = plain_loop(job, x, 1)
    per = best(loop, math.inf)
    repeat = max(1, round(seconds / per))
    ways["loop"] = (plain_loop(job, x, repeat), repeat)
    ways["lean"] = (plain_loop(job, x, repeat, lean=True), repeat)
    for together in vmap_sizes:
        calls = max(1, round(seconds / (per * together)))
        ways[f"vmap {together}"] = (vmapped(job, x, calls * together, together), calls * together)
    seen = dict.fromkeys(ways, math.inf)
    top = 0.0
    for _ in range(rounds):
        top = max(top, peak())
        for name, (run, _) in ways.items():
            seen[name] = best(run, seen[name])
    cost = {name: seen[name] / number for name, (_, number) in ways.items()}
    fastest_vmap = min((name for name in cost if name.startswith("vmap")), key=lambda name: cost[name])
    percent = 100.0 * job.flops / cost["ours"] / top
    ratio = cost["loop"] / cost["ours"]
    asked = [f"≥ {job.peak:.0f} % of peak"] * (job.peak > 0) + [f"≥ {job.ratio:g}× loop"] * (job.ratio > 0)
    met = percent >= job.peak and ratio >= job.ratio
    vmap, lean = cost[fastest_vmap], cost["lean"]
    return (
        f"{job.name:<14}{1e3 * cost['loop']:>10.2f}{1e3 * lean:>10.2f}{1e3 * vmap:>10.2f} ({fastest_vmap[5:]:>2})"
        f"{1e3 * cost['ours']:>10.2f}{top / 1e9:>8.0f}{percent:>7.0f} %{ratio:>8.1f}×{lean / cost['ours']:>8.1f}×"
        f"{vmap / cost['ours']:>8.1f}×   {'yes' if met else 'NO '}  {', '.join(asked)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("words", nargs="*", help="only jobs whose name contains one of these")
    parser.add_argument("--quick", action="store_true", help="one short round: does it run at all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one timing of one way")
    arguments = parser.parse_args()
    rounds, seconds = (1, 0.05) if arguments.quick else (arguments.rounds, arguments.seconds)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; milliseconds per initialization")
    columns = {"loop": 10, "lean": 10, "vmap": 10, "": 5, "ours": 10, "GF/s": 8, "of peak": 9, "/ loop": 9, "/ lean": 9}
    columns["/ vmap"] = 9
    print(f"{'job':<14}" + "".join(f"{name:>{size}}" for name, size in columns.items()) + "   met")
    for job in jobs():
        if not arguments.words or any(word in job.name for word in arguments.words):
            sizes = (2,) if arguments.quick else (2, 4) if job.name.startswith(("a", "c")) else (4, 16)
            print(measure(job, rounds, seconds, sizes), flush=True)


if __name__ == "__main__":
    main()
