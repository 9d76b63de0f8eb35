"""What finite width adds to the spread of a class's share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstguess.base.text import spaced
from firstguess.show.charts import theme
from firstguess.show.charts.dots import Dot, dots_chart

if TYPE_CHECKING:
    from firstguess.theory.prediction import FiniteSize


def finite_size_chart(size: FiniteSize, *, title: str | None = None) -> theme.Chart:
    """The standard deviation of a class's share at this size and at infinite size."""
    named = [
        f"{name} {spaced(value)}" for name, value in (("width", size.width), ("dimension", size.dimension)) if value
    ]
    error = size.error if size.way == "chain" else size.next_order / 2  # bars are twice this: what is left out
    here = ", ".join(named) or "this size"
    known = "± 2 standard errors" if size.way == "chain" else "the next order of the expansion"
    return dots_chart(
        {"": [Dot("infinite size", "predicted", size.infinite), Dot(here, "predicted", size.std, error)]},
        title=title or f"Finite size adds {theme.number(size.added)} to the spread of a class's share",
        x_title="Standard deviation of a class's share",
        subtitle=[f"Infinitely many data points; the bar is {known}."],
    )
