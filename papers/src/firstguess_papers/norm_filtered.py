"""NORM: networks that start neutral against networks that start prejudiced, under Adam and under plain descent.

Figs 2, G.3–G.6. Is "neutral starts converge faster" a matter of the optimizer? theory.md §7 says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import firstguess as fg
from firstguess_papers.items import Entry, Holds, Item
from firstguess_papers.judging import Number, Truth, above, below, entry, same
from firstguess_papers.measured import Found, Training, measured
from firstguess_papers.training_charts import rows_chart
from firstguess_papers.training_pieces import Arm, curve_rows

if TYPE_CHECKING:
    from firstguess.data import Data

NET = "dense(weight_var=2) > relu > dense(weight_var=2)"  # SHLP
STARTS = {"neutral start": "even", "prejudiced start": "biased"}
NEUTRAL, PREJUDICED = STARTS
LEARNT = 0.75  # accuracy at which a network counts as having learnt
FASTER = 1.1  # ratio of steps from which on one is faster
OPEN = 0.05  # gap between classes that still counts as one
STRICT = 0.95  # largest share at which |G₀ − G₁| is 0.9: NORM's filter; the library's is 0.9
ROOM = 0.15  # of predicted by measured ratios


@dataclass(frozen=True)
class Both:
    """Neutral and prejudiced starts under one optimizer: trained, and predicted where that is asked for."""

    trained: dict[str, Arm]
    predicted: dict[str, Arm]

    @property
    def ratio(self) -> Number:
        """Steps to `LEARNT` from prejudiced starts by those from neutral ones."""
        return slower(self.trained[PREJUDICED], self.trained[NEUTRAL])

    @property
    def strict(self) -> Number:
        """The same for the prejudiced ones that NORM's own filter keeps."""
        start = self.trained[PREJUDICED].largest.draws[:, 0]
        return slower(self.trained[PREJUDICED].kept(start >= STRICT), self.trained[NEUTRAL])

    @property
    def foretold(self) -> Number:
        """The ratio in the prediction."""
        return slower(self.predicted[PREJUDICED], self.predicted[NEUTRAL])

    @property
    def gap(self) -> Number:
        """Favoured − others of prejudiced starts, at the first look at which they have learnt."""
        arm = self.trained[PREJUDICED]
        when = arm.first_look("accuracy", LEARNT)
        return Number(np.nan, np.nan) if when is None else arm.at("gap", when)


def slower(one: Arm, other: Arm) -> Number:
    """Steps to `LEARNT` of one arm by those of the other; unknown where a network does not get there."""
    return one.steps_to("accuracy", LEARNT) / other.steps_to("accuracy", LEARNT)


def _starts(c: Found, name: str, data: Data, test: Data | None = None, **options: Any) -> dict[Any, Training]:
    """Both kinds of starts under one optimizer."""
    draws = c.known.get("draws", 0)
    return {
        (name, label): Training(NET, data, {"start": start, "width": 100, **options}, test=test, draws=draws)
        for label, start in STARTS.items()
    }


def _both(c: Found, name: str) -> Both:
    return Both(c.arms(name), c.known_arms(name))


def _whose(not_so: Truth) -> str:
    """Whether plain descent is known not to do it, or only not known to."""
    return "it is Adam's: under plain gradient descent" if not_so is True else "not decided under plain descent:"


def judged(adam: Both, descent: Both) -> list[Entry]:
    """What the numbers say of N12. Thresholds are those above, chosen before the first full run."""
    fast, plain = adam.ratio, descent.ratio
    return [
        entry(
            "N12",
            f"under Adam prejudiced starts need more than {FASTER} times as many steps as neutral ones to an accuracy "
            f"of {LEARNT}; without a limit if so under plain gradient descent, too, and with NORM's own filter "
            "(|G₀ − G₁| > 0.9)",
            f"Adam {fast} (NORM's filter {adam.strict}), gradient descent {plain}",
            [above(fast, FASTER)],
            within=[above(plain, FASTER) is True, above(adam.strict, FASTER)],
            limit=f"{_whose(below(plain, FASTER))} prejudiced starts need {plain} times as many steps",
            headline=f"prejudiced by neutral starts, steps: {fast} under Adam, {plain} under gradient descent",
        ),
        entry(
            "N12",
            f"the gap between classes persists: when prejudiced starts have an accuracy of {LEARNT} under Adam, that "
            f"of the class favoured at the start is still more than {OPEN} above the others'; without a limit if "
            "under plain gradient descent, too",
            f"Adam {adam.gap}, gradient descent {descent.gap}",
            [above(adam.gap, OPEN)],
            within=[above(descent.gap, OPEN) is True],
            limit=f"{_whose(below(descent.gap, OPEN))} the gap is {descent.gap} by then",
        ),
        entry(
            "N12",
            "beyond the paper: it is an effect of the optimizer: the ratio of steps is higher under Adam than under "
            "gradient descent by more than 0.1",
            f"Adam {fast}, gradient descent {plain}",
            [above(fast, plain, by=0.1)],
        ),
        entry(
            "N12",
            f"beyond the paper: the tangent kernel foretells both ratios within {100 * ROOM:.0f} %, without training",
            f"predicted by measured: Adam {adam.foretold / fast}, gradient descent {descent.foretold / plain}",
            [same(adam.foretold / fast, 1.0, room=ROOM), same(descent.foretold / plain, 1.0, room=ROOM)],
        ),
    ]


def _cells(c: Found, data: Data, test: Data | None) -> dict[Any, Training]:
    adam = {"optimizer": "adam", "lr": c.adam, "batch": c.known.get("batch", 128), "steps": c.steps}
    plain = {"optimizer": "gd", "lr": c.gd, "steps": c.gd_steps, "batch": None}
    return _starts(c, "Adam", data, test, **adam) | _starts(c, "gradient descent", data, test, **plain)


def _notes(c: Found) -> list[str]:
    overshoot = c.descent.predicted[NEUTRAL].about["overshoot"]
    return [
        "Prejudiced starts are those whose largest share is at least 0.9; NORM's |G₀ − G₁| > 0.9 is 0.95, and is "
        "looked at apart.",
        f"The learning rate of plain descent is ours: the bias overshoots at {overshoot / c.gd:.2g} times as much.",
    ]


def _compared(
    id: str, title: str, where: str, data: Callable[[Found], tuple[Data, Data | None]], note: str, **options: Any
) -> Item:
    """An item: both optimizers on these data."""

    def rows(c: Found) -> Mapping[str, Both]:
        return {"Adam": c.adam_starts, "Gradient descent": c.descent}

    return measured(
        id, title, where, claims=("N12",),
        cells=lambda c: _cells(c, *data(c)),
        quantities=lambda c: {"adam_starts": _both(c, "Adam"), "descent": _both(c, "gradient descent")},
        judge=lambda c: judged(c.adam_starts, c.descent),
        tables=lambda c: {"curves": _curves(rows(c))},
        charts=lambda c: {"starts": rows_chart(
            {name: (found.trained, found.predicted) for name, found in rows(c).items()},
            ["largest", "classes", "accuracy", *(["test accuracy"] if c.adam_starts.trained[NEUTRAL].test else [])],
            title="Neutral and prejudiced starts",
        )},
        holds={"starts": Holds("Neutral starts learn faster than prejudiced ones under Adam", entries=(0,))},
        notes=lambda c: [*_notes(c), note],
        **options,
    )  # fmt: skip


def _curves(rows: Mapping[str, Both]) -> list[dict[str, Any]]:
    return [
        line
        for name, found in rows.items()
        for line in curve_rows([*found.trained.values(), *found.predicted.values()], optimizer=name)
    ]


fig2 = _compared(
    "norm/fig2", "Neutral and prejudiced starts: who learns faster, and under which optimizer", "NORM Fig 2",
    lambda c: (fg.data.two_blobs(c.points, c.d, seed=c.run.seed), None),
    "Dimensions, points, learning rate and batches are ours and smaller than NORM's: norm/fig2-size has its own.",
    about="SHLP of 100; two blobs of {points} points a class in {d} dimensions (NORM: 10 000 in 1000, for which see "
    "norm/fig2-size); Adam {adam} (NORM: 1e-5) in batches of {batch} (512), {steps} steps, and gradient descent {gd}, "
    "{gd_steps} steps; {networks} networks a start and optimizer, {draws} predicted.",
    quick=dict(points=150, d=200, inits=16, draws=60, parts=1, adam=2e-4, batch=128, steps=250, gd=0.01, gd_steps=250),
    full=dict(points=300, d=300, inits=20, draws=100, parts=2, adam=1e-4, batch=128, steps=500, gd=0.01, gd_steps=400),
    seconds=(12, 90),
)  # fmt: skip

fig2_size = measured(
    "norm/fig2-size", "Neutral and prejudiced starts at NORM's own dimension, batch and learning rate", "NORM Fig 2",
    claims=("N12",), seconds=(15, 280),
    about="SHLP of 100; two blobs of {n} points a class (NORM: 10 000) in 1000 dimensions, Adam {rate} in batches of "
    "{batch}, {steps} steps (NORM's 80 epochs: 3125); {networks} networks a start.",
    quick=dict(n=300, rate=1e-4, batch=128, steps=150, inits=10, parts=1),
    full=dict(n=2000, rate=1e-5, batch=512, steps=3125, inits=2, parts=6),
    cells=lambda c: _starts(c, "Adam", fg.data.two_blobs(c.n, 1000, seed=c.run.seed), optimizer="adam", lr=c.rate),
    quantities=lambda c: {"adam": _both(c, "Adam")},
    judge=lambda c: [entry(
        "N12",
        f"{2 * c.n:,} points in 1000 dimensions, Adam {c.rate:g}, batches of {c.batch}: prejudiced starts need more "
        f"than {FASTER} times as many steps as neutral ones to an accuracy of {LEARNT}, and by then the favoured class "
        f"is still more than {OPEN} above the others",
        f"{c.adam.ratio} times as many steps; gap {c.adam.gap}",
        [above(c.adam.ratio, FASTER), above(c.adam.gap, OPEN)],
    )],
    tables=lambda c: {"curves": _curves({"Adam": c.adam})},
    charts=lambda c: {"starts": rows_chart({"Adam": (c.adam.trained, {})}, ["largest", "classes", "accuracy"])},
    holds={"starts": "At NORM's learning rate, too, prejudiced starts need longer"},
    notes=["No prediction: with so many points those for Adam, which follow some thousand weights, are too slow and "
           "too rough."],
)  # fmt: skip

_IMAGES = (
    "SHLP of 100; {n} images and as many held out; Adam {adam} in batches of 128, {steps} steps, and gradient descent "
    "{gd}, {gd_steps} steps; {networks} networks a start and optimizer, {draws} predicted."
)
_QUICK = dict(n=120, adam=3e-5, gd=2e-3, steps=150, gd_steps=80, inits=10, parts=1, draws=30)
_FULL = dict(adam=1e-5, gd=2e-3, draws=80)
OURS = "The numbers of images, batches and steps are ours, the learning rate of a full run is NORM's."


def images(c: Found, spec: str) -> tuple[Data, Data]:
    """Images of two classes, and as many held-out ones."""
    name, _, choice = spec.partition(":")
    held = c.run.data(f"{name}:test,{choice}", points=c.n, seed=c.run.seed)
    return c.run.data(spec, points=c.n, seed=c.run.seed), held


fig_g3 = _compared(
    "norm/fig-g3", "Neutral and prejudiced starts on CIFAR-10, vehicles against animals", "NORM Figs G.3, G.4",
    lambda c: images(c, "cifar10:vehicles-animals"), OURS, needs=("cifar10",), about=_IMAGES, quick=_QUICK,
    full=_FULL | dict(n=400, steps=400, gd_steps=150, inits=6, parts=4), seconds=(10, 240),
)  # fmt: skip

fig_g5_starts = _compared(
    "norm/fig-g5-starts", "Neutral and prejudiced starts on MNIST, even against odd digits",
    "NORM Figs G.5, G.6 (training)", lambda c: images(c, "mnist:even-odd"), OURS, needs=("mnist",), about=_IMAGES,
    quick=_QUICK, full=_FULL | dict(n=600, steps=600, gd_steps=200, inits=10, parts=3), seconds=(10, 150),
)  # fmt: skip
