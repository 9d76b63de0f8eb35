"""IGB §3, Figs 3 and 4, NORM App. C.1: the logits of one network. Centers stand apart, points leave the boundary."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

import firstguess as fg
from firstguess import figures
from firstguess_papers.charts import lines, predicted
from firstguess_papers.items import Entry, Holds, Outcome, item
from firstguess_papers.judging import Number, Truth, above, below, entry, same
from firstguess_papers.running import Run
from firstguess_papers.sweeps import deep
from firstguess_papers.tables import columns

NEAR = 0.5  # spreads of the cloud: points nearer to the boundary than this are called near
ROOM = 0.02  # of a share of the points
NETWORKS = {
    "LayerNorm after, 1 layer": ("relu > layernorm", 1),
    "ReLU, 1 layer": ("relu", 1),
    "ReLU, 5 layers": ("relu", 5),
    "ReLU, 20 layers": ("relu", 20),
}
EVEN = "LayerNorm after, 1 layer"
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Clouds:
    """The margins f₁ − f₀ of many networks over the data, in numbers with errors over networks."""

    gamma: float  # closed form
    squares: Number  # (Δμ)²/(spread of the margin)², whose average is γ
    near: Number  # share of points within NEAR spreads of the boundary
    gap: Number  # |share of the favoured class − Φ(distance)|: 0 where margins are Gaussian
    skewness: Number  # root mean square over networks
    rigid: Number  # log of (spread of the nearer half)/(of the farther half) of the points

    @property
    def near_theory(self) -> float:
        """Margins in spreads are N(0, 1 + γ) over data and networks."""
        return 2 * float(special.ndtr(NEAR / math.sqrt(1 + self.gamma))) - 1


def numbers(margins: Array) -> dict[str, Array]:
    """What `Clouds` averages, one value a network, from margins f₁ − f₀ (networks, points)."""
    n = margins.shape[1]
    mean, spread = margins.mean(axis=1), margins.std(axis=1, ddof=1)
    distance = np.abs(mean) / spread
    toward = margins * np.sign(mean)[:, None]
    share = (toward > 0).mean(axis=1)
    away = (toward - toward.mean(axis=1, keepdims=True)) / spread[:, None]
    middle = np.median(away, axis=1)
    low, high = (np.abs(np.quantile(away, q, axis=1) - middle) for q in (0.1, 0.9))
    return {
        "squares": distance**2 - 1 / n,  # a mean of n points has 1/n of its own
        "near": (np.abs(margins) < NEAR * spread[:, None]).mean(axis=1),
        "gap": np.abs(share - special.ndtr(distance)),
        "skewness": (away**3).mean(axis=1),
        "rigid": np.log(low / high),
    }


def clouds(gamma: float, values: Mapping[str, Array]) -> Clouds:
    """Averages over networks with their errors."""

    def average(x: Array) -> Number:
        return Number(float(x.mean()), float(x.std(ddof=1) / math.sqrt(len(x))))

    squares = average(np.asarray(values["skewness"]) ** 2)
    size = math.sqrt(squares.value)
    skewness = Number(size, squares.error / (2 * size) if size else 0.0)
    rest = {key: average(np.asarray(values[key])) for key in ("squares", "near", "gap", "rigid")}
    return Clouds(gamma, skewness=skewness, **rest)


def judge(found: Mapping[str, Clouds]) -> list[Entry]:
    """I27: centers apart as γ says; all points leave the boundary as one; margins Gaussian."""
    ordered = list(found.values())
    biased = [c for name, c in found.items() if name != EVEN]
    apart: list[Truth] = [
        below(found[EVEN].squares, 0.05),
        *(above(b.squares, a.squares) for a, b in pairwise(ordered)),
        *(same(c.squares, c.gamma, room=0.05 + 0.2 * c.gamma) for c in biased[:2]),
    ]
    leave: list[Truth] = [
        *(above(a.near, b.near) for a, b in pairwise(ordered)),
        *(same(c.near, c.near_theory, room=0.04) for c in ordered),
    ]
    gaussian: list[Truth] = [below(c.gap, ROOM) for c in ordered]
    uniform: list[Truth] = [same(c.rigid, 0.0, room=0.1) for c in ordered]

    def each(key: str) -> str:
        return ", ".join(f"{name} {getattr(c, key)}" for name, c in found.items())

    return [
        entry(
            "I27",
            "centers stand apart: the average of (Δμ)²/(spread of the margin)² grows from LayerNorm after ReLU (below "
            "0.05) to ReLU of 1, 5 and 20 layers, and is γ within 20 % + 0.05 for 1 and 5",
            f"{each('squares')}; closed form " + ", ".join(f"{c.gamma:.3g}" for c in ordered),
            apart,
            headline=f"(Δμ/spread)²: {ordered[0].squares} when even, {ordered[-1].squares} at most bias",
        ),
        entry(
            "I27",
            f"points move away from the boundary: the share within {NEAR} spreads of it falls at each step, and is "
            "that of N(0, 1 + γ) within 0.04; without a limit they move as one (distances from the median of the "
            "nearest and of the farthest tenth agree within 10 % on average)",
            f"{each('near')}; N(0, 1 + γ): {', '.join(f'{c.near_theory:.4f}' for c in ordered)}; log ratio of the two "
            f"distances {each('rigid')}",
            leave,
            within=uniform,
            headline=f"points near the boundary: {ordered[0].near} when even, {ordered[-1].near} at most bias",
            limit="the cloud is skewed: points do not keep their distances where bias is strong",
        ),
        entry(
            "I27",
            f"the margin's law is N(Δμ, 2σ_y²) in one network: the favoured class's share differs from Φ(Δμ/spread) by "
            f"less than {ROOM} on average",
            f"{each('gap')}; skewness of the margin, root mean square: {each('skewness')}",
            gaussian,
            headline="largest average departure from a Gaussian share: "
            f"{max((c.gap for c in ordered), key=lambda g: g.value)}",
            otherwise="one network's margins are not Gaussian enough",
        ),
    ]


def _margins(run: Run, name: str, x: Any, width: int, inits: int) -> tuple[Clouds, Array]:
    """`Clouds` of an ensemble, and the logits of its typical network among the first (points, 2)."""

    block, depth = NETWORKS[name]
    text = deep(block, depth)

    def compute() -> dict[str, Any]:
        found: list[dict[str, Array]] = []
        typical = None
        for start in range(0, inits, 8):  # a measurement keeps the logits of its first eight networks
            m = fg.measure(text, x, inits=8, seed=run.seed + 1000 + start, width=width, classes=2, probe="output",
                           points=x.n)  # fmt: skip
            logits = np.stack([m.logits_of(k).values for k in range(8)])
            found.append(numbers(logits[:, :, 1] - logits[:, :, 0]))
            typical = np.asarray(m.logits.values) if typical is None else typical
        assert typical is not None
        return {key: np.concatenate([f[key] for f in found]) for key in found[0]} | {"typical": typical}

    key = {"margins": text, "data": x.hash, "width": width, "inits": inits}
    piece = run.piece(key, compute, label=f"logits of {name}")
    gamma = float(fg.predict(text).gamma[-1])
    return clouds(gamma, piece), np.asarray(piece["typical"])


@item(
    "igb/logits",
    "The logits of one network: bias is a cloud that misses the boundary",
    claims=("I27",),
    where="IGB §3, Figs 3, 4; NORM App. C.1",
    about="Two classes, {n} random points in {d} dimensions; LayerNorm after ReLU (1 layer) and plain ReLU of 1, 5 and "
    "20 layers of {width} (our sizes), Kaiming; {inits} networks each (20 layers: {least}), all of their logits.",
    quick=dict(n=1000, d=200, width=200, inits=160, least=160),
    full=dict(n=2000, d=500, width=400, inits=400, least=200),
    seconds=(15, 110),
)
def logits(run: Run) -> Outcome:
    """I27: the margin's law in single networks, by γ."""

    n, d, width, inits, least = run.take("n d width inits least")
    x = fg.data.blob(n, d, seed=run.seed)
    found: dict[str, Clouds] = {}
    drawn: dict[str, Any] = {}
    for name, (_, depth) in NETWORKS.items():
        found[name], one = _margins(run, name, x, width, least if depth > 5 else inits)
        if name != "ReLU, 5 layers":
            drawn[name] = fg.Logits(one)
    entries = judge(found)
    cloud = figures.logits_chart(drawn)
    rows: list[dict[str, Any]] = [
        {"network": name, "gamma": c.gamma, "near_theory": c.near_theory}
        | {key: getattr(c, key) for key in ("squares", "near", "gap", "skewness", "rigid")}
        for name, c in found.items()
    ]
    fine = np.geomspace(1.0, 30.0, 60).tolist()
    known = [2 * float(special.ndtr(NEAR / math.sqrt(v))) - 1 for v in fine]
    near = lines(
        [row | {"name": "networks", "1 + γ, in closed form": 1 + row["gamma"]} for row in rows],
        "1 + γ, in closed form", "near", also={"": [predicted("N(0, 1 + γ)", fine, known)]},
        title="Points near the boundary, by bias", y_title="Points within half a spread of the boundary",
        x_scale="log", percent=True, y_domain=(0.0, 0.45), dodge=False,
    )  # fmt: skip
    return Outcome(entries, {"clouds": columns(rows)}, {"clouds": cloud, "near": near}, holds={
        "near": Holds("With bias all points leave the boundary", entries=(1,)),
    })  # fmt: skip
