"""How fast networks absorb bias and learn, one number per network; phases in training, and the checks of M10.

A network that diverged (NaN or Inf) counts as one that guesses a single class for ever: never absorbed, accuracy
1/classes, largest share 1. Otherwise an arm that breaks would look better, or undecided, for having lost its worst.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from firstguess_papers.judging import Array, Check, Number, Truth, above, average
from firstguess_papers.training_pieces import MEMBERS, Arm

if TYPE_CHECKING:
    from firstguess.data import Data
    from firstguess_papers.running import Run

SAME_TIME = 0.1  # of log10: times that differ by less than 26 % are the same
SAME_SCORE = 0.02  # accuracies that differ by less are the same


def few_looks(steps: int) -> list[int]:
    """Steps 0 to 3, then five a decade, and the last: a look at all points takes as long as many steps.

    >>> few_looks(100)
    [0, 1, 2, 3, 4, 6, 10, 16, 25, 40, 63, 100]
    """
    later = (round(10 ** (k / 5)) for k in range(3, 40))
    return sorted({0, 1, 2, 3, steps, *(step for step in later if step < steps)})


def with_held_out(run: Run, spec: str, points: int, held: int) -> tuple[Data, Data]:
    """Training points and others of the same data, standardized together, in an order of their own."""
    whole = run.data(spec, points=points + held)
    order = np.random.default_rng([run.seed, 0x7E57]).permutation(whole.n)
    return part_of(whole, order[:points]), part_of(whole, order[points:])


def part_of(data: Data, rows: NDArray[np.int64]) -> Data:
    """Some of the points, with their labels."""
    from firstguess.data import Data

    assert data.y is not None
    return Data(data.x[rows], data.y[rows], name=f"{data.name}, {len(rows)} of them", class_names=data.class_names)


def balanced(data: Data, points: int) -> Data:
    """The first points of every class, as many of each: no class is favoured by the labels."""
    assert data.y is not None
    classes = int(data.y.max()) + 1
    rows = np.concatenate([np.flatnonzero(data.y == c)[: points // classes] for c in range(classes)])
    return part_of(data, np.sort(rows))


def settled(arm: Arm, level: float | None = None) -> Array:
    """Steps from which on the largest share of each network stays at or below the level until the end; inf: never.

    Not the first time that it is there: where classes hand over to each other the share passes the level on its way
    from one to the other. Linear between the look before and the look at which it is there for good.
    """
    limit = arm.level if level is None else level
    steps = arm.steps.astype(float)
    found = np.full(arm.networks, math.inf)
    for i, row in enumerate(arm.largest.draws):
        out = np.flatnonzero(~(row <= limit))  # NaN is out, too
        if not len(out):
            found[i] = 0.0
        elif out[-1] + 1 < len(row):
            k = int(out[-1])
            part = (row[k] - limit) / (row[k] - row[k + 1]) if math.isfinite(row[k]) else 1.0
            found[i] = steps[k] + part * (steps[k + 1] - steps[k])
    return found


def log_steps(steps: Array, last: int) -> Array:
    """log10(1 + steps), those that never end at the last step: a mean of these is at least so large."""
    return np.log10(1.0 + np.minimum(steps, float(last)))


def scores(arm: Arm, what: str, step: int | None = None) -> Array:
    """A share of every network at a step (default: the last); of a network that diverged, that of a single class."""
    values = arm.values(what, arm.last if step is None else step)
    return np.where(np.isfinite(values), values, _lost(arm, what))


def over_looks(arm: Arm, what: str) -> Array:
    """The mean of a share over the looks from step 1 on, which are even on a logarithmic axis: speed and height."""
    draws = arm.curve(what).draws[:, arm.steps >= 1]
    return np.where(np.isfinite(draws), draws, _lost(arm, what)).mean(axis=1)


def _lost(arm: Arm, what: str) -> float:
    classes = sum(isinstance(which, int) for which in arm.accuracy.groups)
    return 1.0 if what.endswith("largest") else 1.0 / classes


def number(values: Array) -> Number:
    """Mean ± standard error over networks; fewer than ten decide nothing (NaN)."""
    return average(values) if len(values) >= MEMBERS else Number(float(values.mean()), math.nan)


def apart(one: Array, other: Array) -> Number:
    """The mean difference, network by network: arms have the same members, drawn from the same numbers."""
    return number(one - other)


def more(one: Array, other: Array, *, room: float) -> Truth:
    """Whether one arm has more than the other, by 4 standard errors: a difference of less than `room` is none.

    >>> more(np.linspace(0.5, 0.6, 20), np.linspace(0.3, 0.4, 20), room=0.02)
    True
    >>> more(np.linspace(0.5, 0.501, 20), np.full(20, 0.5), room=0.02)
    False
    """
    difference = apart(one, other)
    if abs(difference.value) < room and 2 * difference.error <= room:
        return False
    return above(difference, 0.0)


def less(one: Array, other: Array, *, room: float) -> Truth:
    """The mirror of `more`."""
    return more(other, one, room=room)


def exceeds(name: str, one: Array, other: Array, *, room: float, than: str, below: bool = False) -> Check:
    """`more`, or `less` (`below`), as a named check, network by network."""
    truth = less(one, other, room=room) if below else more(one, other, room=room)
    asked = f"{'below' if below else 'above'} {than} (less than {room:g} is no difference)"
    return Check(name, asked, truth, f"{number(one)} against {number(other)}")


def typical(logs: Number) -> str:
    """A number of log10(1 + steps) as steps, the error as a factor.

    >>> typical(Number(2.0, 0.1))
    '99 steps (×/÷ 1.26)'
    """
    steps = 10**logs.value - 1
    said = f"{steps:.0f}" if steps >= 10 else f"{steps:.1f}"
    return f"{said} steps" + (f" (×/÷ {10**logs.error:.2f})" if math.isfinite(logs.error) and logs.error > 0 else "")
