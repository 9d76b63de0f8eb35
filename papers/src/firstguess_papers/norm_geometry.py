"""NORM App. C.1: in training the boundary first translates (bias), then rotates (signal)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import firstguess as fg
from firstguess import figures
from firstguess_papers.bias_mode import chosen
from firstguess_papers.items import Entry, Holds
from firstguess_papers.judging import Number, claimed, each
from firstguess_papers.library import Curve, looked_at
from firstguess_papers.measured import Found, measured
from firstguess_papers.training_charts import Line, arms_chart
from firstguess_papers.training_pieces import MEMBERS, SEEDS

if TYPE_CHECKING:
    from firstguess import Network
    from firstguess.data import Data

Array = NDArray[np.float64]
Steps = NDArray[np.int64]
NETS = {
    "ReLU, 1 hidden layer": "dense(weight_var=2) > relu > dense(weight_var=2)",
    "ReLU, 3 hidden layers": "3 x [dense(weight_var=2) > relu] > dense(weight_var=2)",
    "tanh at its edge, 3 hidden layers": "3 x [dense(weight_var=1.99, bias_var=0.1) > tanh] > dense(weight_var=1.99)",
}
_SHOWN = "ReLU, 3 hidden layers"
_FAR = 0.5  # spreads of the margin: clouds nearer to the boundary have nothing to translate
_TRIES = 40  # starts looked at for one that is kept, at most
_PART = 0.05  # of the rate that overshoots
_TWO = 2.0  # times as late: two time scales
_CLOSE = math.log(1.25)  # of the logarithm of a time: predicted and measured agree


@dataclass(frozen=True, eq=False)
class Motion:
    """Margins g = f₁ − f₀ of networks over training, (networks, steps, points), and the points' labels."""

    steps: Steps
    margins: Array
    labels: NDArray[np.int64]

    @property
    def offset(self) -> Curve:
        """Translation: the mean margin by its value at the start."""
        m = self.margins.mean(axis=2)
        return Curve(self.steps, m / m[:, :1])

    @property
    def alignment(self) -> Curve:
        """Rotation: correlation over the data of margin and label, the cosine of the angle between them."""
        y = self.labels - self.labels.mean()
        g = self.margins - self.margins.mean(axis=2, keepdims=True)
        return Curve(self.steps, (g @ y) / np.sqrt((g**2).sum(axis=2) * float(y @ y)))

    @property
    def translated(self) -> Array:
        """Steps until half of the offset is gone, of every network; the last step where it is not."""
        return self._reached(-np.abs(self.offset.draws), np.full(len(self.margins), -0.5))

    @property
    def rotated(self) -> Array:
        """Steps until the alignment is half-way from its start to its end."""
        a = self.alignment.draws
        return self._reached(a, (a[:, 0] + a[:, -1]) / 2.0)

    def _reached(self, rows: Array, levels: Array) -> Array:
        t = self.steps.astype(float)
        found = np.full(len(rows), t[-1])
        for i, (row, level) in enumerate(zip(rows, levels, strict=True)):
            there = np.flatnonzero(row >= level)
            if len(there) and (k := int(there[0])) > 0:
                found[i] = t[k - 1] + (level - row[k - 1]) / (row[k] - row[k - 1]) * (t[k] - t[k - 1])
            elif len(there):
                found[i] = t[0]
        return found


def logarithm(values: Array) -> Number:
    """Mean of the logarithm of one positive value a network, ± standard error; unknown with too few networks."""
    logs = np.log(np.maximum(values, 1e-9))
    error = float(logs.std(ddof=1) / math.sqrt(len(logs))) if len(logs) >= MEMBERS else math.nan
    return Number(float(logs.mean()), error)


def later(motion: Motion) -> Number:
    """ln of how many times later the boundary turns than it moves, network by network."""
    return logarithm(motion.rotated / motion.translated)


def judged(seen: Mapping[str, Motion], known: Mapping[str, Motion]) -> list[Entry]:
    """N21: in each kind of network half of the turn comes later than half of the move; and the kernel's times."""

    def times(what: str) -> dict[str, Number]:
        return {
            f"half of the {'move' if what == 'translated' else 'turn'}, {name.replace(',', '')}":
            logarithm(getattr(seen[name], what) / getattr(known[name], what)) for name in seen
        }  # fmt: skip

    turns = {name: later(motion) for name, motion in seen.items()}
    return [
        claimed(
            "N21", "ln of how many times later than half of the move (mean margin) half of the turn (correlation of "
            f"margin and labels) comes; without a limit two time scales, {_TWO:g} times as late",
            each(turns, above=0.0), within=each(turns, above=math.log(_TWO), than=f"ln {_TWO:g}"),
            limit="not two time scales",
            also="; ".join(
                f"{name}: × {_times(turns[name])} (kernel × {_times(later(known[name]))})" for name in seen
            ),
        ),
        claimed(
            "N21", "ln of trained times over those of the tangent kernel, from each network's own start",
            each({**times("translated"), **times("rotated")}, near=0.0, room=_CLOSE),
        ),
    ]  # fmt: skip


def _motions(c: Found) -> dict[str, Any]:
    """Logits and margins of trained networks, and margins along the tangent kernel; rates, λ_b and λ_sig."""
    x = chosen(c.run.data("mnist:even-odd", points=4 * c.n), (c.n // 2, c.n // 2), flat=True)
    assert x.y is not None
    looks = looked_at(c.steps)
    found: dict[str, dict[str, Any]] = {"logits": {}, "seen": {}, "moved": {}, "scales": {}}

    def modes(text: str) -> dict[str, Any]:
        t = fg.predict_training(text, data=x, lr=1e-7, steps=1, width=c.width, draws=2, trust=False)
        return {"rate": _PART * t.overshoot, "bias": t.modes.bias, "signal": t.modes.signal}

    for name, text in NETS.items():
        about = {"data": x.hash, "width": c.width}
        own = c.run.piece({"modes": text, **about}, partial(modes, text), label=f"modes of {text}")
        found["scales"][name] = rate, _, _ = tuple(float(own[key]) for key in ("rate", "bias", "signal"))
        about |= {"motion": text, "rate": rate, "looks": looks.tolist(), "inits": c.inits}
        pieces = [
            c.run.piece({**about, "part": k}, partial(_moved, text, x, c.width, rate, looks, c.inits, seed),
                        label=f"{name}, part {k + 1}")
            for k, seed in enumerate(range(c.run.seed, c.run.seed + SEEDS * c.parts, SEEDS))
        ]  # fmt: skip
        logits, margins = (np.concatenate([np.asarray(p[key]) for p in pieces]) for key in ("trained", "predicted"))
        found["logits"][name] = logits  # (networks, steps, points, 2)
        found["seen"][name] = Motion(looks, logits[..., 1] - logits[..., 0], x.y)
        found["moved"][name] = Motion(looks, margins, x.y)
    return found


def _moved(text: str, x: Data, width: int, rate: float, looks: Steps, inits: int, seed: int) -> dict[str, Any]:
    """Logits of networks that start far from the boundary, trained; margins moved along the tangent kernel."""
    from firstguess_papers.library import as_network, kernel_of

    assert x.y is not None
    network = as_network(text)
    tangent = kernel_of(network, x.x.astype(np.float64), width).tangent
    assert tangent is not None
    tried = (descend(network, x, width, rate, looks, seed, member) for member in range(_TRIES * inits))
    seen = np.array(list(islice((found for found in tried if found is not None), inits)))
    starts = seen[:, 0, :, 1] - seen[:, 0, :, 0]
    return {"trained": seen, "predicted": lazily(starts, tangent, x.y, rate, looks)}


def descend(
    network: Network, x: Data, width: int, rate: float, looks: Steps, seed: int, member: int, *,
    far: float = _FAR,
) -> Array | None:  # fmt: skip
    """Logits of one network at these steps of gradient descent, (steps, points, 2); None if it starts too near."""
    import torch

    from firstguess_papers.library import build

    model = build(network, x.x, width=width, seed=seed, member=member)
    inputs, labels = torch.from_numpy(np.array(x.x)), torch.from_numpy(np.array(x.y, dtype=np.int64))
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=rate)
    found: list[Array] = []
    wanted = set(looks.tolist())
    with torch.enable_grad():
        for step in range(int(looks[-1]) + 1):
            rows = model(inputs)
            if step in wanted:
                found.append(rows.detach().double().numpy())
                g = found[0][:, 1] - found[0][:, 0]
                if abs(g.mean()) < far * g.std(ddof=1):
                    return None
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(rows, labels).backward()
            optimizer.step()
    return np.array(found)


def lazily(starts: Array, tangent: Array, labels: NDArray[np.int64], rate: float, looks: Steps) -> Array:
    """The same by theory.md (14): g ← g − (2η/n) Θ (σ(g) − y), (networks, steps, points)."""
    from scipy import special

    g, wanted = starts.T.copy(), set(looks.tolist())
    found: list[Array] = []
    for step in range(int(looks[-1]) + 1):
        if step in wanted:
            found.append(g.T.copy())
        g = g - (2.0 * rate / len(labels)) * (tangent @ (special.expit(g) - labels[:, None]))
    return np.array(found).transpose(1, 0, 2)


def _times(log: Number) -> str:
    factor = math.exp(log.value)
    return str(Number(factor, factor * log.error))


def _rows(seen: Mapping[str, Motion], known: Mapping[str, Motion]) -> list[dict[str, Any]]:
    return [
        {"network": name, "source": source, "member": k, "translated": float(a), "rotated": float(b)}
        for source, given in (("trained", seen), ("predicted", known))
        for name, motion in given.items()
        for k, (a, b) in enumerate(zip(motion.translated, motion.rotated, strict=True))
    ]


def _chart(seen: Mapping[str, Motion], known: Mapping[str, Motion]) -> Any:
    move, turn = "Translation: mean margin, by its start", "Rotation: correlation of margin and labels"
    return arms_chart(
        {move: [Line(name, seen[name].offset, known[name].offset) for name in seen],
         turn: [Line(name, seen[name].alignment, known[name].alignment) for name in seen]},
        title="How the boundary moves and turns in training", columns=2, width=430, plain=(move, turn),
        y_domains={move: (-0.2, 1.05), turn: (-0.3, 1.0)},
    )  # fmt: skip


def _film(motion: Motion, logits: Array) -> Any:
    """The network whose start is the most usual."""
    first = np.abs(motion.margins[:, 0].mean(axis=1)) / motion.margins[:, 0].std(axis=1, ddof=1)
    k = int(np.abs(first - np.median(first)).argmin())
    return figures.logits_film(dict(zip(motion.steps.tolist(), logits[k], strict=True)), motion.labels)


geometry = measured(
    "norm/geometry", "The boundary first translates, then rotates", "NORM App. C.1", claims=("N21",), needs=("mnist",),
    about="ReLU with 1 and 3 hidden layers of {width} and tanh at its edge, {n} MNIST images, even or odd; full "
    "batches at 0.05 of the rate that overshoots, {steps} steps; {networks} networks each whose cloud starts at least "
    "half its spread from the boundary. Network, data and rate are ours.",
    quick=dict(n=60, width=100, steps=150, inits=10, parts=1),
    full=dict(n=150, width=200, steps=400, inits=10, parts=2),
    seconds=(15, 120),
    quantities=_motions,
    judge=lambda c: judged(c.seen, c.moved),
    tables=lambda c: {"times": _rows(c.seen, c.moved)},
    charts=lambda c: {"curves": _chart(c.seen, c.moved), "film": _film(c.seen[_SHOWN], c.logits[_SHOWN])},
    holds={"curves": Holds("The boundary first moves, then turns", entries=(0,))},
    notes=lambda c: [
        "Networks whose cloud starts nearer than half its spread to the boundary are left out: nothing translates.",
        "Steps: " + "; ".join(
            f"{name}: half of the move {np.median(c.seen[name].translated):.3g} (kernel "
            f"{np.median(c.moved[name].translated):.3g}), of the turn {np.median(c.seen[name].rotated):.3g} (kernel "
            f"{np.median(c.moved[name].rotated):.3g}), 1/ηλ_b = {1 / (rate * bias):.3g}, 1/ηλ_sig = "
            f"{1 / (rate * signal):.3g}" for name, (rate, bias, signal) in c.scales.items()
        ) + ".",
    ],
)  # fmt: skip
