"""Plain wide networks, layer by layer: the two orders of averaging of MF's Theorem 3.1 on the same simulation.

Every setting of one call uses the same standard normal numbers, scaled: settings are compared on equal draws, and a
layer's weights are drawn once for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from firstguess_papers.judging import Number, average
from firstguess_papers.running import Run

if TYPE_CHECKING:
    from firstguess_papers.measured import Found

Array = NDArray[np.float64]

# The last axis of what `simulate` returns.
CENTER, SPREAD, Q_AA, Q_AB, COSINE = range(5)
BIAS_VAR = 0.1  # MF's bias variance
mean = average  # over members


@dataclass(frozen=True)
class Setting:
    """An activation with its variances; `name` is what a figure calls it."""

    name: str
    activation: str
    weight_var: float
    bias_var: float

    def text(self, depth: int) -> str:
        """The network with `depth` hidden layers, as text."""
        dense = f"dense(weight_var={self.weight_var!r}, bias_var={self.bias_var!r})"
        return f"{depth} x [{dense} > {self.activation}] > {dense}"


def mf_settings() -> list[Setting]:
    """MF's seven settings: multiples of the weight variance at which gradients keep their size, for σb² = 0.1.

    >>> [f"{s.name}: {s.weight_var:.2f}" for s in mf_settings()][3:6]
    ['tanh, ordered: 1.59', 'tanh, edge: 1.99', 'tanh, biased chaos: 2.48']
    """
    from firstguess import edge_of_chaos

    found: list[Setting] = []
    named = {
        "relu": {"ReLU, ordered": 0.75, "ReLU, edge": 1.0, "ReLU, chaotic": 1.25},
        "tanh": {"tanh, ordered": 0.8, "tanh, edge": 1.0, "tanh, biased chaos": 1.25, "tanh, neutral chaos": 2.5},
    }
    for phi, multiples in named.items():
        edge = edge_of_chaos(phi, bias_var=BIAS_VAR)
        found += [Setting(name, phi, round(times * edge, 6), BIAS_VAR) for name, times in multiples.items()]
    return found


def simulate(
    settings: Sequence[Setting],
    *,
    width: int,
    depth: int,
    members: range,
    seed: int,
    points: int = 32,
    pairs: int = 8,
    dimensions: int | None = None,
) -> Array:
    """(members, settings, depth + 1, 5): `CENTER`, `SPREAD`, `Q_AA`, `Q_AB`, `COSINE` of each layer's pre-activations.

    Data first (IGB): over `points` inputs every node has a mean and a variance; σ_μ² is the mean over nodes of the
    squared mean, less the part that comes from finitely many points, and σ_y² that of the variance. Weights first (MF):
    q_aa and q_ab of two inputs are means over nodes of u_a² and u_a u_b, for `pairs` other pairs of inputs, two by two;
    their cosine is averaged over the pairs.

    Inputs are blobs in `dimensions`, new ones for every member; None stands for infinitely many dimensions (inputs are
    orthogonal and of one length: the first pre-activations are independent). Member i depends on (seed, i) only.
    """
    import torch

    functions = {"relu": torch.relu, "tanh": torch.tanh}
    shape = (len(settings), points + 2 * pairs, width)
    biases = torch.tensor([math.sqrt(s.bias_var) for s in settings])[:, None, None]
    stats = np.empty((len(members), len(settings), depth + 1, 5))
    with torch.inference_mode():
        for row, member in enumerate(members):
            generator = torch.Generator()
            generator.manual_seed(int(np.random.SeedSequence([seed, member]).generate_state(1, np.uint64)[0] >> 1))

            def draw(*size: int, generator: torch.Generator = generator) -> torch.Tensor:
                return torch.empty(*size).normal_(generator=generator)

            if dimensions is None:
                u = draw(shape[1], width).expand(shape)
            else:
                u = (draw(shape[1], dimensions) @ draw(dimensions, width) / math.sqrt(dimensions)).expand(shape)
            for layer in range(depth + 1):
                if layer:
                    x = torch.stack([functions[s.activation](u[i]) for i, s in enumerate(settings)])
                    u = (x.reshape(-1, width) @ draw(width, width)).reshape(shape) / math.sqrt(width)
                scales = torch.tensor([math.sqrt(s.weight_var) for s in settings])[:, None, None]
                u = u * scales + biases * draw(width)
                stats[row, :, layer] = _statistics(u.double().numpy(), points, pairs)
    return stats


def _statistics(u: Array, points: int, pairs: int) -> Array:
    """(settings, 5) from pre-activations (settings, points + 2·pairs, nodes)."""
    data, a, b = u[:, :points], u[:, points : points + pairs], u[:, points + pairs :]
    spread = data.var(axis=1, ddof=1).mean(axis=1)
    center = (data.mean(axis=1) ** 2).mean(axis=1) - spread / points
    q_aa = 0.5 * ((a**2).mean(axis=(1, 2)) + (b**2).mean(axis=(1, 2)))
    cosine = (a * b).sum(axis=2) / np.sqrt((a**2).sum(axis=2) * (b**2).sum(axis=2))
    return np.stack([center, spread, q_aa, (a * b).mean(axis=(1, 2)), cosine.mean(axis=1)], axis=1)


def stored(
    run: Run, settings: Sequence[Setting], *, width: int, depth: int, members: int, chunk: int, **options: int | None
) -> Array:
    """`simulate`, kept in pieces of `chunk` members."""
    found: list[Array] = []
    for start in range(0, members, chunk):
        part = range(start, min(start + chunk, members))
        texts = [s.text(depth) for s in settings]
        key = {"simulate": texts, "width": width, "from": part.start, "to": part.stop, **options}
        label = f"width {width}, networks {part.start + 1} to {part.stop}"
        given = {name: value for name, value in options.items() if value is not None}
        piece = run.piece(
            key,
            lambda part=part, given=given: {
                "stats": simulate(settings, width=width, depth=depth, members=part, seed=run.seed, **given)
            },
            label=label,
        )
        found.append(np.asarray(piece["stats"]))
    return np.concatenate(found)


def sampled(c: Found, settings: Sequence[Setting], depth: int, **options: int | None) -> Array:
    """`stored`, of the width and with the members that the sizes say."""
    given: dict[str, Any] = {"points": 32, "pairs": 1, **options}
    return stored(c.run, settings, width=c.width, depth=depth, members=c.members, chunk=c.chunk, **given)


def ratio(top: Array, bottom: Array) -> Number:
    """Ratio of means over members, with the error that leaving out one at a time gives.

    >>> print(ratio(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.5])))
    0.480 ± 0.018
    """
    n, above, below = len(top), float(top.sum()), float(bottom.sum())
    left_out = (above - top) / (below - bottom)
    return Number(above / below, float(math.sqrt((n - 1) / n * ((left_out - left_out.mean()) ** 2).sum())))


def spread_of(values: Array) -> Number:
    """Standard deviation over members, with the error that leaving out one at a time gives."""
    n = len(values)
    total, squares = values.sum(), (values**2).sum()
    left_out = np.sqrt(np.maximum((squares - values**2) / (n - 1) - ((total - values) / (n - 1)) ** 2, 0.0))
    error = math.sqrt((n - 1) / n * ((left_out - left_out.mean()) ** 2).sum())
    return Number(float(values.std(ddof=1)), error)


def power_law(x: Sequence[float], values: Sequence[Number]) -> tuple[Number, float]:
    """Exponent and factor of y = factor·x^exponent, by least squares in logarithms weighted with the errors.

    >>> exponent, factor = power_law([1, 10, 100], [Number(2, 0.1), Number(0.2, 0.01), Number(0.02, 0.001)])
    >>> print(exponent, f"{factor:.3f}")
    -1.000 ± 0.015 2.000
    """
    logs = np.log(np.asarray(x, dtype=float))
    y = np.log([v.value for v in values])
    weights = np.array([v.value / v.error for v in values]) ** 2
    middle = (weights * logs).sum() / weights.sum()
    away = weights * (logs - middle)
    precision = float((away * (logs - middle)).sum())
    exponent = float((away * y).sum()) / precision
    factor = math.exp(float((weights * (y - exponent * logs)).sum() / weights.sum()))
    return Number(exponent, 1 / math.sqrt(precision)), factor
