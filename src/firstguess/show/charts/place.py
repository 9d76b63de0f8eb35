"""Where a network stands: its law or γ by depth, or its place among the phases. Theory is asked, no weight is drawn."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from firstguess.base.errors import InvalidInput
from firstguess.show.charts import theme
from firstguess.show.charts.gamma_by_depth import gamma_by_depth_chart
from firstguess.show.charts.guesses import guesses_chart
from firstguess.show.charts.phases import phase_diagram_chart
from firstguess.show.charts.readings import readings_chart
from firstguess.theory.phases.diagram import phase_diagram
from firstguess.theory.predict import predict

if TYPE_CHECKING:
    from firstguess.modules.read.result import Structure
    from firstguess.theory.phases.fixed_points import FixedPoint
    from firstguess.theory.prediction import Prediction
    from firstguess.theory.tune import Tuned

_CELLS = 40  # along each axis


def prediction_chart(prediction: Prediction, *, title: str | None = None) -> theme.Chart:
    """The distribution of class shares; where it is sampled, as a histogram beside γ by layer."""
    if prediction.guesses.inits is not None:
        return readings_chart(None, prediction, title=title)
    return guesses_chart(prediction, title=title)


def structure_chart(structure: Structure, *, title: str | None = None) -> theme.Chart:
    """γ by depth of the network that was read."""
    if structure.network is None:
        raise InvalidInput("a model that was read as a whole", got=repr(structure), where="Structure.plot")
    return gamma_by_depth_chart([predict(structure.network)], title=title)


def tuned_chart(tuned: Tuned, *, title: str | None = None) -> theme.Chart:
    """γ by depth of the tuned network."""
    name = re.sub(r"\d+\.\d{5,}", lambda found: f"{float(found[0]):.4g}", str(tuned.network))
    return gamma_by_depth_chart({name: predict(tuned.network, inputs=tuned.inputs)}, title=title)


def fixed_point_chart(point: FixedPoint, *, title: str | None = None) -> theme.Chart:
    """The place of a network in the phase diagram of its block."""
    wide, high = max(4.0, 1.25 * point.weight_var), max(0.5, 1.25 * point.bias_var)
    diagram = phase_diagram(
        point.block,
        weight_vars=np.linspace(wide / _CELLS, wide, _CELLS),
        bias_vars=np.linspace(0.0, high, _CELLS),
    )
    return phase_diagram_chart(diagram, mark=point, title=title)
