"""Beyond the papers: the closed form of the absorption time, against trained networks, and over depth by phase."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from firstguess import Network
from firstguess.data import two_blobs
from firstguess_papers.beyond_adam import starts_of
from firstguess_papers.charts import lines
from firstguess_papers.items import Entry, Holds
from firstguess_papers.judging import Check, Number, Truth, above, all_of, check, claimed
from firstguess_papers.library import Tangent, absorption_of, scalar_tangent, steps_to
from firstguess_papers.measured import Found, measured
from firstguess_papers.running import Run
from firstguess_papers.tables import ratio
from firstguess_papers.training_pieces import SEEDS, Array, trained

if TYPE_CHECKING:
    from firstguess.data import Data
    from firstguess_papers.library import Chart, Piece

PHASES = {
    "ordered": 1.59,
    "edge of chaos": 1.99,
}  # weight variances of tanh with biases of variance 0.1, as MF has them
DEPTHS = (20, 40, 60, 80, 100)
LEVEL = 0.6  # of the largest share: where bias counts as absorbed
RATE = 0.2  # ηλ_b of the trainings
_WIDE = 1000  # width and dimension of the closed form over depth
_STEADY = 0.1  # of 1: by how much steps a layer may differ from depth to depth
_VANISHING = 0.3  # what 20 more layers leave of a signal that vanishes, at most
_ROUGH, _CLOSE = 0.5, 0.2  # of 1: measured over predicted times, required and without a limit
_LOOKS = (*range(41), *range(43, 121, 3))


def _tanh(variance: float, depth: int) -> str:
    own = f"dense(weight_var={variance}, bias_var=0.1)"
    return f"{depth} x [{own} > tanh] > {own}"


CASES = {
    "ReLU, 1 layer": "dense(weight_var=2) > relu > dense(weight_var=2)",
    "ReLU, 3 layers": "3 x [dense(weight_var=2) > relu] > dense(weight_var=2)",
    "LayerNorm before ReLU, 3": "3 x [dense(weight_var=2) > layernorm > relu] > dense(weight_var=2)",
    "tanh, edge, 10": _tanh(PHASES["edge of chaos"], 10),
    "tanh, ordered, 10": _tanh(PHASES["ordered"], 10),
    "tanh, ordered, 20": _tanh(PHASES["ordered"], 20),
}


@dataclass(frozen=True)
class Times:
    """Steps of every network until the largest share is at 0.6: measured, and by the closed form from its own start."""

    measured: Array
    predicted: Array
    reached: float  # the share of networks that get there

    @property
    def over(self) -> Number:
        """Mean measured time over mean predicted time."""
        return ratio(self.measured, self.predicted)


def over_depth(variance: float) -> list[Tangent]:
    """Tangents of tanh networks of this weight variance, by depth, on random data."""
    return [
        scalar_tangent(Network.parse(_tanh(variance, depth), classes=2), dimension=_WIDE, width=_WIDE)
        for depth in DEPTHS
    ]


def scaled_time(tangent: Tangent) -> float:
    """ηλ_b·t in the median over initializations, for small steps: theory.md (16)."""
    small = 1e-6
    return small * absorption_of(tangent, lr=small / tangent.bias_mode(), level=LEVEL).median


def times_of(run: Run, name: str, text: str, x: Data, width: int, inits: int, parts: int = 1) -> Times:
    """Of `parts` times `inits` networks, each part with a seed of its own."""
    network = Network.parse(text, classes=2)
    tangent = scalar_tangent(network, dimension=int(np.prod(x.x.shape[1:])), width=width)
    lr = RATE / tangent.bias_mode(x.n)
    looks = list(_LOOKS)
    arm = trained(
        run, network, x, label=name, optimizer="gd", lr=lr, steps=looks, inits=inits, width=width, parts=parts
    )  # fmt: skip
    steps = arm.reached("largest", LEVEL)
    means: list[Array] = []
    for part in range(parts):
        seed = run.seed + SEEDS * part
        key = {"starts": text, "data": x.hash, "width": width, "inits": inits} | ({"seed": seed} if part else {})
        compute = partial(means_of, network, x, width, inits, seed)
        means.append(np.asarray(run.piece(key, compute, label=f"starts of {name}")["means"], dtype=np.float64))
    spread = float(np.sqrt(max(2.0 * (tangent.q - tangent.q_ab), 0.0)))
    known = steps_to(LEVEL, np.concatenate(means), spread, RATE)
    return Times(np.minimum(steps, float(looks[-1])), known, float(np.isfinite(steps).mean()))


def means_of(network: Network, x: Data, width: int, inits: int, seed: int) -> Piece:
    """The mean over the data of f₁ − f₀, of every member before training."""
    starts = starts_of(network, x, width, inits, seed)
    return {"means": (starts[..., 1] - starts[..., 0]).mean(axis=1)}


# -- Checks


def between(number: Number, room: float) -> Truth:
    """Whether a ratio is within `room` of 1, by 4 standard errors on either side."""
    return all_of([above(Number(1.0 + room), number), above(number, 1.0 - room)])


def linear(tangents: Sequence[Tangent]) -> float:
    """By how much of their mean the times that layers add from 40 on differ from it, at most; ∞ where one adds none."""
    added = np.diff([scaled_time(t) for t in tangents])[1:]
    return float(np.abs(added / added.mean() - 1.0).max()) if added.min() > 0 else math.inf


def judged(found: Mapping[str, Times], tangents: Mapping[str, Sequence[Tangent]]) -> list[Entry]:
    """B6: the closed form against networks; ordered networks over depth, beside the edge."""
    ordered, edge = tangents["ordered"], tangents["edge of chaos"]
    signal = np.array([t.signal for t in ordered])

    def within(room: float) -> list[Check]:
        asked = f"within {room:.0%} of 1"
        return [Check(name, asked, between(t.over, room), str(t.over)) for name, t in found.items()]

    return [
        claimed(
            "B6", f"mean time to a largest share of {LEVEL}, measured over the closed form's",
            within(_ROUGH), within=within(_CLOSE), limit="not that close",
            also="; ".join(
                f"{name} {t.measured.mean():.1f} steps"
                + ("" if t.reached == 1 else f", {1 - t.reached:.0%} not within {_LOOKS[-1]}")
                for name, t in found.items()
            ),
            headline="measured over predicted time: " + ", ".join(f"{name} {t.over}" for name, t in found.items()),
        ),
        claimed(
            "B6", "ordered tanh networks in closed form: from 40 layers on every layer adds the same time (in units of "
            "the bias mode's rate), and the signal vanishes; at the edge it stays from 20 to 100 layers",
            [check("times of layers apart", Number(linear(ordered)), below=_STEADY),
             check("signal that 20 layers leave", Number(float((signal[2:] / signal[1:-1]).max())),
                   below=_VANISHING),
             check("signal left at the edge", Number(edge[-1].signal / edge[0].signal), above=0.5)],
            also=f"at {', '.join(str(d) for d in DEPTHS)} layers: " + "; ".join(
                f"{phase}: ηλt = {', '.join(f'{scaled_time(t):.3g}' for t in by)}, signal "
                f"{', '.join(f'{t.signal / _WIDE:.2g}' for t in by)}" for phase, by in tangents.items()
            ),
            headline=f"ordered, 20 → 100 layers: ηλt {scaled_time(ordered[0]):.3g} → {scaled_time(ordered[-1]):.3g}, "
            f"signal {ordered[0].signal / _WIDE:.2g} → {ordered[-1].signal / _WIDE:.2g}",
        ),
    ]  # fmt: skip


# -- Tables, figures


def _row(name: str, times: Times) -> dict[str, Any]:
    over = times.over
    return {
        "network": name, "measured": float(times.measured.mean()), "predicted": float(times.predicted.mean()),
        "over": over, "reached": times.reached, "networks": len(times.measured),
    }  # fmt: skip


def _depth_row(phase: str, depth: int, tangent: Tangent) -> dict[str, Any]:
    return {"phase": phase, "depth": depth, "time": scaled_time(tangent), "signal": tangent.signal / _WIDE}


def charts(depths: Sequence[Mapping[str, Any]]) -> dict[str, Chart]:
    """Times over depth, and the signal, in closed form."""
    said = "Closed form for random data; tanh, biases of variance 0.1."
    look: dict[str, Any] = {"by": "phase", "theory": "", "dodge": False, "width": 560, "height": 280}
    return {
        "depths": lines(
            depths, "depth", "time", title="Time to absorb bias, over depth", y_title="ηλt", y_domain=(0.0, 15.0),
            subtitle=f"{said} Time to a largest share of {LEVEL}, median over initializations, in units of the bias "
            "mode's own rate.", **look,
        ),
        "signal": lines(
            depths, "depth", "signal", title="The signal, over depth", y_title="θ′/N (logarithmic)", y_scale="log",
            subtitle=f"{said} Derivative of the tangent kernel by the overlap of two inputs, over the width.", **look,
        ),
    }  # fmt: skip


def _times(c: Found) -> dict[str, Any]:
    x = two_blobs(c.points // 2, c.width, seed=c.run.seed)
    found = {
        name: times_of(c.run, name, text, x, c.width, c.inits, c.more if "ReLU" in name else 1)
        for name, text in list(CASES.items())[: c.known["cases"]]
    }
    tangents = {phase: over_depth(variance) for phase, variance in PHASES.items()}
    depths = [_depth_row(phase, depth, t) for phase, by in tangents.items()
              for depth, t in zip(DEPTHS, by, strict=True)]  # fmt: skip
    return {"times": found, "tangents": tangents, "depths": depths}


absorption = measured(
    "beyond/absorption", "How long bias lasts, in closed form and in networks", "theory.md §7", claims=("B6",),
    about="Closed form: tanh, ordered and at the edge, 20 to 100 layers. Trainings: {cases} networks of width {width}, "
    "{points} points of two blobs of that dimension, all of them at every step, ηλ = 0.2, {inits} networks each, of "
    "ReLU networks {more} times as many.",
    quick=dict(cases=3, width=100, points=60, inits=10, more=1),
    full=dict(cases=6, width=300, points=100, inits=24, more=4),
    seconds=(6, 120),
    quantities=_times,
    judge=lambda c: judged(c.times, c.tangents),
    tables=lambda c: {"times": [_row(name, times) for name, times in c.times.items()], "depths": c.depths},
    charts=lambda c: charts(c.depths),
    holds={
        "depths": Holds("Ordered networks absorb bias in a time linear in depth", entries=(1,)),
        "signal": Holds("What vanishes in ordered networks is the signal", entries=(1,)),
    },
    notes=["Times by the closed form are from the networks' own mean logits at the start; no number of it is free."],
)  # fmt: skip
