"""Intervals of measurements: the table that they use, and how often they hold (docs/intervals.md).

python benchmarks/intervals.py table       # of src/firstguess/theory/shares/empirical.py
python benchmarks/intervals.py coverage    # of docs/intervals.md
python benchmarks/intervals.py few         # of docs/intervals.md: 12 to 64 initializations, formulas and modules
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, cast

import numpy as np
from scipy import integrate, optimize, special

from firstguess.base import statistics
from firstguess.theory.shares.empirical import CLASSES, MEANS, EmpiricalGuesses, Summary
from firstguess.theory.shares.gaussian import Guesses

POINTS = 1000

# -- The table ---------------------------------------------------------------------------------------------------


def scaled_means(law: Guesses) -> tuple[float, float]:
    """Of (max G − 1/M)/(1 − 1/M) and of Σ(G − 1/M)²/(1 − 1/M)."""
    room = 1 - 1 / law.classes
    return (law.expected_max() - 1 / law.classes) / room, law.var() * law.classes / room


def at_the_end(classes: int) -> tuple[float, float]:
    """Mean 1: jumps 1 − max G = Φ(−x) and 1 − Σ G² = 2Φ(−x)Φ(x), x uniform."""

    def ratio(jump: Callable[[float], float]) -> float:
        above = integrate.quad(lambda x: jump(special.ndtr(-x)) ** 2, 0, 12)[0]
        return above / integrate.quad(lambda x: jump(special.ndtr(-x)), 0, 12)[0] / (1 - 1 / classes)

    return ratio(lambda d: d), ratio(lambda d: 2 * d * (1 - d))


def variances(gamma: float, classes: int) -> tuple[float, float]:
    """Var of the two at γ, over m²(1 − m), from samples about the exact means."""
    law = Guesses(gamma, classes)
    rows = law.sample(400_000 if classes == 2 else max(4_000, 400_000 // classes), seed=1)
    room = 1 - 1 / classes
    seen = (rows.max(axis=1) - 1 / classes) / room, np.square(rows - 1 / classes).sum(axis=1) / room
    means = scaled_means(law)
    one, two = (float(x.var()) / (m * m * (1 - m)) for x, m in zip(seen, means, strict=True))
    return one, two


def table() -> None:
    for which in (0, 1):
        print(("_LARGEST", "_SQUARES")[which])
        for classes in CLASSES:
            row: list[float] = []
            for mean in MEANS:
                if mean == 1:
                    row.append(at_the_end(classes)[which])
                    continue

                def excess(log: float, mean: float = mean, classes: int = classes, which: int = which) -> float:
                    return scaled_means(Guesses(math.exp(log), classes))[which] - mean

                gamma = 1e-6 if mean == 0 else math.exp(cast("float", optimize.brentq(excess, -20, 30)))
                row.append(variances(gamma, classes)[which])
            print("    (" + ", ".join(f"{v:.3f}" for v in row) + "),", flush=True)


# -- How often the intervals hold ---------------------------------------------------------------------------------


def coverage(repetitions: int = 1000) -> None:
    """Of E max G, std of G, and γ of the output: by the distribution, and for networks that do not follow it."""
    print("| classes | γ | initializations | std of G | average largest fraction | γ of the output |")
    print("|---|---|---|---|---|---|")
    for classes in (2, 10):
        for gamma in (0.47, 18.0, 300.0, 2000.0):
            for inits in (20, 100):
                seed = [classes, int(100 * gamma), inits]
                held = [of_guesses(Guesses(gamma, classes, POINTS), inits, repetitions, seed)]
                held.append([of_gamma(gamma, classes, inits, repetitions, seed)])
                cells = " | ".join(f"{100 * share:.1f} %" for part in held for share in part)
                print(f"| {classes} | {gamma:g} | {inits} | {cells} |", flush=True)
    print()
    print("| networks | classes | initializations | std of G | average largest fraction |")
    print("|---|---|---|---|---|")
    for name in MIXTURES:
        for classes in (2, 10):
            for inits in (20, 100):
                one, two = of_mixture(name, classes, inits, repetitions, [classes, inits])
                print(f"| {name} | {classes} | {inits} | {100 * one:.1f} % | {100 * two:.1f} % |", flush=True)


def shares(rows: np.ndarray, points: int, std: float, largest: float) -> list[float]:
    """How often the intervals of rows (repetitions, inits, classes) hold the truth."""
    seen = [EmpiricalGuesses(one, points) for one in rows]
    truth: tuple[tuple[Summary, float], ...] = (("std", std), ("expected_max", largest))
    ends = {what: [one.interval(what) for one in seen] for what, _ in truth}
    return [float(np.mean([low <= value <= high for low, high in ends[what]])) for what, value in truth]


def of_guesses(law: Guesses, inits: int, repetitions: int, seed: list[int]) -> list[float]:
    """Members drawn from theory.md (8), then a multinomial; truth by (6) to (8)."""
    rows = law.sample(repetitions * inits, seed=int(np.random.default_rng(seed).integers(2**31)))
    return shares(rows.reshape(repetitions, inits, -1), law.points or POINTS, law.std(), law.expected_max())


def of_gamma(gamma: float, classes: int, inits: int, repetitions: int, seed: list[int]) -> float:
    """Logits centred over classes (theory.md (38)) have M − 1 nodes' worth of centres and variances."""
    rng = np.random.default_rng(seed)
    nodes, shape = classes - 1, (inits, repetitions)
    spread = rng.chisquare(nodes * (POINTS - 1), shape) / (nodes * (POINTS - 1))
    center = (gamma + 1 / POINTS) * rng.chisquare(nodes, shape) / nodes - spread / POINTS
    found = statistics.ratios(center, spread)
    return float(np.mean((found.low <= gamma) & (gamma <= found.high)))


def few(repetitions: int = 2000) -> None:
    """12 to 64 initializations: classes and γ that chose no constant of the method, and modules of PyTorch."""
    print("| classes or module | γ | initializations | std of G | average largest share | γ of the output |")
    print("|---|---|---|---|---|---|")
    for classes in (3, 5, 20):
        for gamma in (0.1, 2.0, 50.0):
            for inits in (12, 24, 64):
                seed = [classes, int(100 * gamma), inits, 5]
                held = of_guesses(Guesses(gamma, classes, POINTS), inits, repetitions, seed)
                held.append(of_gamma(gamma, classes, inits, repetitions, seed))
                _print_row(f"{classes}", f"{gamma:g}", inits, held)
    for name, build in MODULES.items():
        for inits, held in of_module(build, repetitions):
            _print_row(name, "", inits, held)


def _print_row(name: str, gamma: str, inits: int, held: Sequence[float]) -> None:
    cells = " | ".join(f"{100 * share:.1f} %" for share in held)
    print(f"| {name} | {gamma} | {inits} | {cells} |", flush=True)


MODULES: dict[str, Callable[[], Any]] = {
    "3 ReLU layers of 32, 4 classes": lambda: _layers(32, 3, "ReLU", 4),
    "2 tanh layers of 16, 3 classes": lambda: _layers(16, 2, "Tanh", 3),
    "GELU, 6 layers of 24, 2 classes": lambda: _layers(24, 6, "GELU", 2),
}


def _layers(width: int, depth: int, name: str, classes: int) -> Any:
    from torch import nn

    sizes = [20, *[width] * depth]
    body = [part for one, two in pairwise(sizes) for part in (nn.Linear(one, two), getattr(nn, name)())]
    return nn.Sequential(*body, nn.Linear(width, classes))


def of_module(build: Callable[[], Any], repetitions: int, members: int = 20_000) -> Iterator[tuple[int, list[float]]]:
    """Members drawn by PyTorch itself; truth from all of them, ensembles are drawn out of them."""
    import torch

    torch.manual_seed(3)
    x = torch.randn(100, 20)
    logits = np.empty((members, 100, build()[-1].out_features))
    with torch.no_grad():
        for member in range(members):
            logits[member] = build()(x).numpy()
    guessed = logits.argmax(axis=2)  # no ties among drawn logits
    rows = np.stack([(guessed == c).mean(axis=1) for c in range(logits.shape[2])], axis=1)
    logits -= logits.mean(axis=2, keepdims=True)
    spread = logits.var(axis=1, ddof=1).mean(axis=1)
    center = np.square(logits.mean(axis=1)).mean(axis=1) - spread / 100
    gamma = float(center.mean() / spread.mean())
    rng = np.random.default_rng(9)
    for inits in (12, 24, 64):
        drawn = rng.integers(0, members, (repetitions, inits))
        held = shares(rows[drawn], 100, math.sqrt(float(rows.var(axis=0).mean())), float(rows.max(axis=1).mean()))
        found = statistics.ratios(center[drawn].T, spread[drawn].T)
        yield inits, [*held, float(np.mean((found.low <= gamma) & (gamma <= found.high)))]


def log_normal(size: int, rng: np.random.Generator) -> np.ndarray:
    return 5.0 * np.exp(2.0 * rng.standard_normal(size))


def either(size: int, rng: np.random.Generator) -> np.ndarray:
    return np.where(rng.random(size) < 0.5, 0.1, 1000.0)


def one_in_ten(size: int, rng: np.random.Generator) -> np.ndarray:
    return np.where(rng.random(size) < 0.1, 1e6, 0.05)


MIXTURES = {
    "γ log-normal over members (5, ×e² either way)": (log_normal, 0.0),
    "γ 0.1 or 1000, as often": (either, 0.0),
    "one class preferred by 1.5 σ": (lambda size, rng: np.ones(size), 1.5),
    "γ 0.05, one in ten at 10⁶": (one_in_ten, 0.0),
}


def of_mixture(name: str, classes: int, inits: int, repetitions: int, seed: list[int]) -> list[float]:
    """Members with a γ of their own; truth from 40 000 others."""
    rng = np.random.default_rng(seed)
    draw, shift = MIXTURES[name]

    def rows(size: int) -> np.ndarray:
        centres = rng.standard_normal((size, classes))
        centres[:, 0] += shift
        centres *= np.sqrt(draw(size, rng))[:, None]
        counts = np.zeros((size, classes))
        for start in range(0, size, 2000):
            part = centres[start : start + 2000, None, :]
            logits = part + rng.standard_normal((len(part), 200, classes), dtype=np.float32)
            guesses = logits.argmax(axis=2)
            for c in range(classes):
                counts[start : start + 2000, c] = (guesses == c).mean(axis=1)
        return counts

    many = rows(40_000)
    few = many[rng.integers(0, len(many), (repetitions, inits))]
    return shares(few, 200, math.sqrt(float(many.var(axis=0).mean())), float(many.max(axis=1).mean()))


if __name__ == "__main__":
    {"table": table, "coverage": coverage, "few": few}[sys.argv[1]]()
