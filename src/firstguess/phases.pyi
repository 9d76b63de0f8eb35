"""`fg.phases`: where signals and gradients of deep networks survive: edge of chaos, neutrality line, phase diagrams."""

from firstguess.network.causes_bias import causes_bias as causes_bias
from firstguess.theory.phases.fixed_points import (
    FixedPoint as FixedPoint,
)
from firstguess.theory.phases.fixed_points import (
    edge_of_chaos as edge_of_chaos,
)
from firstguess.theory.phases.fixed_points import (
    fixed_point as fixed_point,
)
from firstguess.theory.phases.fixed_points import (
    neutrality_line as neutrality_line,
)
from firstguess.theory.phases.phase_diagram import PhaseDiagram as PhaseDiagram
from firstguess.theory.phases.phase_diagram import phase_diagram as phase_diagram
from firstguess.theory.phases.transformer_phases import TransformerPhases as TransformerPhases
from firstguess.theory.phases.transformer_phases import transformer_phases as transformer_phases

__all__ = [
    "FixedPoint",
    "PhaseDiagram",
    "TransformerPhases",
    "causes_bias",
    "edge_of_chaos",
    "fixed_point",
    "neutrality_line",
    "phase_diagram",
    "transformer_phases",
]
