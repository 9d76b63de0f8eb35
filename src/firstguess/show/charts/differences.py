"""Prediction against what was seen, as a result has it: differences in standard errors, and curves over training."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from firstguess.base.text import spaced
from firstguess.show.charts import theme
from firstguess.show.charts.dots import Dot, dots_chart
from firstguess.show.charts.lines import Series, lines_chart

if TYPE_CHECKING:
    from firstguess.diagnosis.comparison import Comparison
    from firstguess.diagnosis.training_comparison import TrainingComparison

_MOST = 24  # rows: of a deep network the layers that differ most


def differences_chart(comparison: Comparison, *, title: str | None = None) -> theme.Chart:
    """Measured minus predicted of every number, in standard errors; what cannot be told in them is left out."""
    known = [d for d in comparison.differences if math.isfinite(d.z)]
    most = sorted(known, key=lambda d: -abs(d.z))[:_MOST]
    shown = [d for d in known if d in most]
    words = "agree" if comparison.agrees else "do not agree"
    subtitle = [
        f"{spaced(comparison.inits)} initializations, {spaced(comparison.points)} data points; beyond the difference "
        "that finitely many data allow."
    ]
    left = len(comparison.differences) - len(shown)
    subtitle += [f"{left} of {len(comparison.differences)} numbers are not shown."] if left else []
    reach = 1.1 * max(3.0, *(abs(d.z) for d in shown))
    return dots_chart(
        {"": [Dot(d.name, "measured − predicted", d.z) for d in shown]},
        title=title or f"Prediction and measurement {words}",
        x_title="Difference in standard errors",
        subtitle=subtitle,
        x_domain=(-reach, reach),
    )


def curves_chart(comparison: TrainingComparison, *, title: str | None = None) -> theme.Chart:
    """Every curve that was compared: predicted as a line, trained as points ± 2 standard errors."""
    panels = {
        c.name: [
            Series("predicted", c.steps.tolist(), c.predicted.tolist(), mark="line"),
            Series("trained", c.steps.tolist(), c.trained.tolist(), c.trained_se.tolist(), mark="points"),
        ]
        for c in comparison.curves
        if len(c.steps)
    }
    words = "agree" if comparison.agrees else "do not agree"
    return lines_chart(
        panels,
        title=title or f"Predicted and real training {words}",
        x_title="Step",
        y_title="",
        x_scale="symlog",
        subtitle=[
            f"Means over {spaced(comparison.draws)} predicted and {spaced(comparison.members)} trained networks."
        ],
        width=300,
        height=200,
    )
