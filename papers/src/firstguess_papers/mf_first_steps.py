"""MF on the first steps of training: whom an early look favours, against the time in which bias is absorbed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from firstguess_papers.charts import lines
from firstguess_papers.items import Entry
from firstguess_papers.judging import Number, check, claimed
from firstguess_papers.library import Curve
from firstguess_papers.measured import Found, measured
from firstguess_papers.mf_simulation import mf_settings
from firstguess_papers.running import Run
from firstguess_papers.training_pieces import MEMBERS, Arm, Array, predicted, trained
from firstguess_papers.training_speed import log_steps, number, with_held_out

if TYPE_CHECKING:
    from firstguess.data import Data
    from firstguess_papers.library import Chart

_BATCH = 100
_EARLY = 0.25  # of the absorption time
_ROOM = math.log10(3.0)  # a time within a factor of three of another is the same
_ARMS = {  # setting, rate in units of the overshoot
    "ReLU, edge": ("ReLU, edge", 0.1),
    "ReLU, edge, a quarter of the rate": ("ReLU, edge", 0.025),
    "tanh, edge": ("tanh, edge", 0.1),
    "tanh, ordered": ("tanh, ordered", 0.1),
}


@dataclass(frozen=True, eq=False)
class Ranks:
    """Of one arm: rank correlation of classes' scores with initial shares (networks, looks), and absorption times."""

    label: str
    steps: Array
    draws: Array
    absorbed: Array  # steps; inf: not within these
    known: Array | None = None  # the same correlation of the prediction from the same starts

    @property
    def absorption(self) -> float:
        """The typical time: the mean over networks on a logarithmic scale."""
        return 10 ** float(log_steps(self.absorbed, int(self.steps[-1])).mean()) - 1

    def early(self) -> Number:
        """The correlation at the look nearest to a quarter of the absorption time, from step 1 on."""
        wanted = max(1.0, _EARLY * self.absorption)
        index = int(np.abs(np.log1p(self.steps) - math.log1p(wanted)).argmin())
        values = self.draws[:, max(index, 1)]
        return number(values[np.isfinite(values)])

    def halved(self) -> Number:
        """log10 of the time at which the mean correlation is half of the first, by the absorption time.

        The error is from leaving out one network at a time; NaN where a time is not reached (the absorption time by
        more than a quarter of the networks).
        """
        every = np.arange(len(self.draws))
        if len(every) < MEMBERS or not np.isfinite(self.absorbed).mean() >= 0.75:
            return Number(math.nan, math.nan)
        left = np.array([self._ratio(every != i) for i in every])
        n = len(every)
        return Number(self._ratio(every >= 0), math.sqrt((n - 1) / n * float(((left - left.mean()) ** 2).sum())))

    def _ratio(self, kept: Any) -> float:
        mean = np.nanmean(self.draws[kept], axis=0)
        under = np.flatnonzero(mean <= 0.5 * mean[0])
        if not len(under):
            return math.nan
        k = int(under[0])
        part = (mean[k - 1] - 0.5 * mean[0]) / (mean[k - 1] - mean[k])
        half = self.steps[k - 1] + part * (self.steps[k] - self.steps[k - 1])
        return math.log10(1 + half) - float(log_steps(self.absorbed[kept], int(self.steps[-1])).mean())


# -- M12: ranks ---------------------------------------------------------------------------------------------------


def rank_correlation(scores: Array, shares: Array) -> Array:
    """Spearman's, over the last axis; NaN where one side is constant.

    >>> rank_correlation(np.array([[0.1, 0.5, 0.9]]), np.array([[0.2, 0.3, 0.4]])).tolist()
    [1.0]
    """
    from scipy import stats

    a, b = (stats.rankdata(side, axis=-1) for side in (scores, shares))
    a, b = (side - side.mean(axis=-1, keepdims=True) for side in (a, b))
    size = np.sqrt((a**2).sum(axis=-1) * (b**2).sum(axis=-1))
    return np.where(size > 0, (a * b).sum(axis=-1) / np.where(size > 0, size, 1.0), math.nan)


def by_step(arm: Arm, shares: Array) -> Array:
    """(networks, looks): correlation of the classes' held-out scores with shares (networks, classes)."""
    classes = [which for which in arm.accuracy.groups if isinstance(which, int)]
    scores = np.stack([arm.curve(f"test class {c}").draws for c in classes], axis=-1)
    broken = ~np.isfinite(scores).all(axis=-1)
    found = rank_correlation(np.nan_to_num(scores), np.broadcast_to(shares[:, None, classes], scores.shape))
    return np.where(broken, math.nan, found)


def _ranks(
    run: Run, label: str, name: str, times: float, x: Data, held: Data, *, depth: int, inits: int,
    options: dict[str, Any],
) -> Ranks:  # fmt: skip
    text = next(s for s in mf_settings() if s.name == name).text(depth)
    rate = times * overshoot(run, text, x, options["width"], name)
    arm = trained(run, text, x, label=label, test=held, inits=inits, lr=rate, **options)
    own = starts(run, text, np.concatenate([x.x, held.x]), int(x.classes or 2), range(inits), options["width"], name)
    known = predicted(run, text, x, label=label, test=held, lr=rate, start=own, **options)
    shares = arm.shares[:, 0]
    return Ranks(label, arm.steps.astype(float), by_step(arm, shares), arm.absorption.draws, by_step(known, shares))


def overshoot(run: Run, text: str, data: Data, width: int, label: str) -> float:
    """The rate from which on the bias of this network overshoots, in the wide limit: 2κ/λ_b."""
    found = predicted(run, text, data, label=f"rates of {label}", lr=1e-12, steps=1, width=width, draws=4, trust=False)
    return float(found.about["overshoot"])


def starts(run: Run, text: str, x: Any, classes: int, members: range, width: int, label: str) -> Array:
    """(members, points, classes): logits before training of the members that `fg.train` trains."""

    def compute() -> dict[str, Any]:
        import torch

        from firstguess import Network
        from firstguess_papers.library import build

        network = Network.parse(text, classes=classes)
        points = torch.from_numpy(np.array(x))
        with torch.inference_mode():
            found = [build(network, x.shape[1:], width=width, seed=run.seed, member=m)(points).numpy() for m in members]
        return {"logits": np.array(found)}

    key = {"starts": text, "members": [members.start, members.stop], "width": width, "classes": classes}
    key |= {"data": float(np.abs(x, dtype=np.float64).sum()), "points": len(x)}
    return np.asarray(run.piece(key, compute, label=f"starts of {label}")["logits"])


def judged_ranks(ranks: list[Ranks]) -> Entry:
    """M12."""
    early = {r.label: r.early() for r in ranks}
    return claimed(
        "M12", "rank correlation of the classes' held-out scores with the shares of guesses before training",
        [check(f"{name}, at a quarter of the absorption time", value, above=0.3) for name, value in early.items()],
        within=[check(f"{r.label}, log10 of the time at which it is half of its first value over the absorption time",
                      r.halved(), near=0.0, room=_ROOM, than="within a factor of three of 1") for r in ranks],
        limit="the preference does not end when the bias does",
        headline="; ".join(f"{label}: {value}" for label, value in list(early.items())[::2]),
        also="absorption times in steps: " + ", ".join(f"{r.absorption:.0f} ({r.label})" for r in ranks),
    )  # fmt: skip


# -- Tables and figures -------------------------------------------------------------------------------------------


def _rank_rows(ranks: list[Ranks]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for r in ranks:
        for source, draws in (("trained", r.draws), ("predicted", r.known)):
            if draws is None:
                continue
            curve = Curve(r.steps.astype(np.int64), draws)
            rows += [
                {"arm": r.label, "source": source, "step": int(s), "correlation": float(m), "error": float(e)}
                | {"absorption": r.absorption, "networks": len(draws)}
                for s, m, e in zip(curve.steps, curve.mean, curve.se, strict=True)
            ]
    return rows


def _rank_chart(ranks: list[Ranks]) -> Chart:
    """Trained networks and their predictions; at 1 the bias is absorbed."""
    rows: list[dict[str, Any]] = []
    for r in ranks:
        steps = r.steps.astype(np.int64)
        real, known = Curve(steps, r.draws), None if r.known is None else Curve(steps, r.known).mean
        heading = f"{r.label}: absorbed in {r.absorption:.0f} steps"
        rows += [
            {"name": "networks", "panel": heading, "at": r.steps[k] / r.absorption}
            | {"value": Number(float(real.mean[k]), float(real.se[k]))}
            | {"theory": None if known is None else float(known[k])}
            for k in range(1, len(steps))
        ]
    return lines(
        rows, "at", panel="panel", title="Early scores of classes against the untrained network's guesses",
        x_title="Steps, in units of the absorption time (logarithmic)", y_title="Rank correlation", x_scale="log",
        columns=2, height=240, rules={"no relation": 0.0}, dodge=False,
    )  # fmt: skip


def _found(c: Found) -> dict[str, Any]:
    x, held = with_held_out(c.run, "fashion_mnist", c.points, c.points)
    options: dict[str, Any] = {"width": c.width, "steps": c.steps, "optimizer": "sgd", "batch": _BATCH}
    return {"ranks": [
        _ranks(c.run, label, name, times, x, held, depth=c.depth, inits=c.inits, options=options)
        for label, (name, times) in _ARMS.items()
    ]}  # fmt: skip


first_steps = measured(
    "mf/first-steps", "The first steps: whom an early look favours", "MF, discussion", claims=("M12",),
    needs=("fashion_mnist",),
    about="Fashion-MNIST, ten classes, {points} images and as many held-out ones, mini-batches of 100; ReLU (two "
    "rates) and tanh at the edge, tanh ordered, {depth} hidden layers of {width}, {steps} steps, {inits} networks "
    "each. Sizes and rates (0.1 and 0.025 of the overshoot) are ours.",
    quick=dict(depth=5, width=50, steps=80, inits=10, points=150),
    full=dict(depth=10, width=100, steps=400, inits=24, points=300),
    seconds=(15, 120),
    quantities=_found,
    judge=lambda c: [judged_ranks(c.ranks)],
    tables=lambda c: {"ranks": _rank_rows(c.ranks)},
    charts=lambda c: {"ranks": _rank_chart(c.ranks)},
    holds={"ranks": "An early look ranks classes as the untrained network did"},
    notes=[
        "A class's score is its accuracy on held-out images; ties share ranks, and networks whose scores are all alike "
        "have no rank correlation at that step.",
        "Absorbed: the largest share is a fifth of the way from even to 1; the typical time is the mean over networks "
        "on a logarithmic scale, those not absorbed within these steps counting with the last.",
    ],
)  # fmt: skip
