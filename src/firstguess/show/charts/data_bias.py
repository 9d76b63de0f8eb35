"""The drift ratio γ₀ that data bring, as they are and after each standardization."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstguess.base.text import spaced
from firstguess.show.charts import theme
from firstguess.show.charts.dots import Dot, dots_chart

if TYPE_CHECKING:
    from firstguess.theory.data_bias import DataBias


def data_bias_chart(bias: DataBias, *, title: str | None = None) -> theme.Chart:
    """γ₀ of the points as they are given, and what each standardization would leave of it."""
    rows = {"none: as they are": bias.gamma, **{how: gamma for how, gamma in bias.after.items() if how != "none"}}
    return dots_chart(
        {"": [Dot(name, "drift ratio γ", gamma) for name, gamma in rows.items()]},
        title=title or f"These data bring a drift ratio γ of {theme.number(bias.gamma)}",
        x_title="Drift ratio γ of the data",
        subtitle=[
            f"{bias.name}: {spaced(bias.points)} points. Recommended: {bias.recommended}. About "
            f"{max(1, round(bias.directions))} directions tell the points apart."
        ],
    )
