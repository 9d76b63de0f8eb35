"""MF's practical trick: does tuning at the edge shorten the search for a learning rate? A small sweep by phase."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from firstguess import FirstguessError
from firstguess_papers.charts import lines
from firstguess_papers.items import Entry
from firstguess_papers.judging import Number, claimed
from firstguess_papers.measured import Found, measured
from firstguess_papers.mf_first_steps import overshoot
from firstguess_papers.mf_simulation import mf_settings
from firstguess_papers.mf_training import BATCH, PHASES
from firstguess_papers.running import Run
from firstguess_papers.training_pieces import Array, predicted, trained
from firstguess_papers.training_speed import EDGE, SAME_SCORE, exceeds, number, part_of, scores, with_held_out

if TYPE_CHECKING:
    from firstguess.data import Data

TIMES = (1 / 64, 1 / 16, 1 / 4, 1.0, 4.0, 16.0)  # rates, in units of the edge's overshoot
NEAR = 0.05  # held-out accuracy this far from the best is good enough
SAME_COUNT = 0.25  # of a rate: less is no difference
_EARLY = 0.1  # of all steps: where a rate is picked
_DRAWS = 20


@dataclass(frozen=True, eq=False)
class Search:
    """Of one phase: training accuracy at the early look and held-out accuracy at the end, (networks, rates)."""

    early: Array
    end: Array
    rates: tuple[float, ...]
    known: tuple[Number | None, ...] = ()  # held-out accuracy predicted at each rate

    def good(self, best: float) -> Array:
        """How many rates end within 0.05 of the best, of every network."""
        return (self.end >= best - NEAR).sum(axis=1).astype(float)

    def regret(self) -> Array:
        """What each network loses at the end by the rate that is best on training points at the early look.

        Of rates that are equally good then, the average.
        """
        tops = self.early >= self.early.max(axis=1, keepdims=True)
        picked = (self.end * tops).sum(axis=1) / tops.sum(axis=1)
        return self.end.max(axis=1) - picked


def _searches(run: Run, phi: str, x: Data, held: Data, *, depth: int, width: int, steps: int) -> dict[str, Search]:
    texts = {phase: next(s for s in mf_settings() if s.name == name).text(depth) for phase, name in PHASES[phi].items()}
    batch = part_of(x, np.arange(min(BATCH, x.n)))
    unit = overshoot(run, texts[EDGE], batch, width, f"{phi}, edge")
    early = max(1, round(_EARLY * steps))
    looks = [0, early, steps]
    found: dict[str, Search] = {}
    for phase, text in texts.items():
        first: list[Array] = []
        last: list[Array] = []
        known: list[Number | None] = []
        for times in TIMES:
            options: dict[str, Any] = {
                "test": held, "lr": times * unit, "steps": looks, "optimizer": "sgd", "batch": BATCH, "width": width,
            }  # fmt: skip
            label = f"{phi}, {phase}, {times:g} × overshoot"
            arm = trained(run, text, x, label=label, inits=10, **options)
            first.append(scores(arm, "accuracy", early))
            last.append(scores(arm, "test accuracy"))
            try:
                guess = predicted(run, text, x, label=label, draws=_DRAWS, trust=False, **options)
                known.append(number(scores(guess, "test accuracy")))
            except FirstguessError:
                known.append(None)  # beyond the rates that have a prediction
        rates = tuple(times * unit for times in TIMES)
        found[phase] = Search(np.stack(first, axis=1), np.stack(last, axis=1), rates, tuple(known))
    return found


def best_of(searches: dict[str, Search]) -> float:
    """The best mean accuracy on held-out points, of all phases and rates of an activation."""
    return max(float(s.end.mean(axis=0).max()) for s in searches.values())


def judged_search(found: dict[str, dict[str, Search]]) -> Entry:
    """M15, its second half."""
    best = {phi: best_of(by) for phi, by in found.items()}
    others = [(phi, by[EDGE], phase, s) for phi, by in found.items() for phase, s in by.items() if phase != EDGE]
    return claimed(
        "M15", "“tuning at the edge shortens the search”, as far as six rates say: at the edge",
        [exceeds(f"{phi}, rates that end within {NEAR} of the best accuracy", edge.good(best[phi]), s.good(best[phi]),
                 room=SAME_COUNT, than=f"{phase}'s") for phi, edge, phase, s in others],
        within=[exceeds(f"{phi}, cost of picking a rate after a tenth of the steps", edge.regret(), s.regret(),
                        room=SAME_SCORE, than=f"{phase}'s", below=True) for phi, edge, phase, s in others],
        limit="more rates are good at the edge, but an early choice among them is not cheaper than elsewhere",
        headline="; ".join(
            f"{phi}: " + ", ".join(f"{phase} {number(s.good(best[phi]))}" for phase, s in by.items()) + " rates"
            for phi, by in found.items()
        ),
        otherwise="another phase has as many good rates, or more",
        also="best accuracy: " + ", ".join(f"{phi} {value:.3f}" for phi, value in best.items()),
    )  # fmt: skip


def _rows(phi: str, searches: dict[str, Search]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for phase, s in searches.items():
        for k, times in enumerate(TIMES):
            end, early, known = number(s.end[:, k]), number(s.early[:, k]), s.known[k] if s.known else None
            rows.append(
                {"activation": phi, "phase": phase, "times_overshoot": times, "rate": s.rates[k]}
                | {"test_accuracy": end.value, "test_error": end.error}
                | {"early_accuracy": early.value, "early_error": early.error}
                | {"predicted": None if known is None else known.value}
            )
    return rows


def _found(c: Found) -> dict[str, Any]:
    x, held = with_held_out(c.run, "fashion_mnist:parity", c.points, c.points)
    found = {phi: _searches(c.run, phi, x, held, depth=c.depth, width=c.width, steps=c.steps) for phi in PHASES}
    return {"found": found, "rows": [line for phi, by in found.items() for line in _rows(phi, by)]}


lr_search = measured(
    "mf/lr-search", "Searching a learning rate, phase by phase", "MF §4, practical trick", claims=("M15",),
    needs=("fashion_mnist",),
    about="Fashion-MNIST by parity, {points} images and as many held-out ones, mini-batches of 100; MF's seven "
    "settings, {depth} hidden layers of {width} (MF: 100 of 1000), {steps} steps, six rates from 1/64 to 16 times the "
    "edge's overshoot, 10 networks each; a rate is picked after a tenth of the steps.",
    quick=dict(depth=12, width=30, steps=30, points=150),
    full=dict(depth=20, width=100, steps=100, points=300),
    seconds=(25, 240),
    quantities=_found,
    judge=lambda c: [judged_search(c.found)],
    tables=lambda c: {"rates": c.rows},
    charts=lambda c: {"rates": lines(
        [row | {"error": row["test_error"]} for row in c.rows], "times_overshoot", "test_accuracy", by="phase",
        panel="activation", theory="predicted", title="Which learning rates work, phase by phase",
        x_title="Learning rate, by the rate at which the edge's bias overshoots (logarithmic)",
        y_title="Held-out accuracy", x_scale="log", percent=True, width=440, y_domain=(0.4, 1.0),
    )},
    holds={"rates": "At the edge of chaos the most learning rates work"},
    notes=[
        "One network has one set of weights at all rates and, up to scale, in all phases: differences are taken "
        "network by network. Networks that diverged count with an accuracy of one half.",
        "A search of six rates by factors of four; what more could be tuned (momentum, schedule, depth) is not tested.",
    ],
)  # fmt: skip
