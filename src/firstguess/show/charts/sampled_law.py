"""The distribution of class shares that were counted or drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstguess.base.text import spaced
from firstguess.show.charts import parts, theme

if TYPE_CHECKING:
    from firstguess.theory.shares.empirical import EmpiricalGuesses


def sampled_law_chart(guesses: EmpiricalGuesses, *, title: str | None = None) -> theme.Chart:
    """The histogram of all class shares over initializations."""
    share = theme.percent(guesses.expected_max())
    drawn, points, classes = spaced(guesses.inits), spaced(guesses.points), theme.count(guesses.classes)
    return theme.house(
        parts.law_panel({}, guesses, bars="counted"),
        title or theme.unbroken(f"The largest class gets {share} of the data on average"),
        [f"{drawn} initializations, {points} data points, {classes} classes."],
    )
