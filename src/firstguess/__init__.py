"""firstguess: what a neural network believes before it has learned anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from firstguess._version import __version__

if TYPE_CHECKING:
    from firstguess import data, figures
    from firstguess.activations import Activation, activation, causes_bias, centered, register_activation
    from firstguess.comparison import Comparison, compare
    from firstguess.databias import DataBias, data_bias
    from firstguess.diagnosis.gate import NotNeutral, assert_neutral
    from firstguess.diagnosis.result import Diagnosis
    from firstguess.diagnosis.run import diagnose
    from firstguess.diagrams import PhaseDiagram, phase_diagram
    from firstguess.empirical import EmpiricalGuesses
    from firstguess.ensemble.gradient_statistics import Gradients
    from firstguess.ensemble.gradients import measure_gradients
    from firstguess.ensemble.measurement import Measurement
    from firstguess.ensemble.run import measure
    from firstguess.errors import FirstguessError, InvalidInput, NotConverged, NotCovered, ParseError
    from firstguess.explanation import Explanation, explain_guess
    from firstguess.guesses import Guesses
    from firstguess.network import Network, cnn, mlp, residual_mlp
    from firstguess.phases import FixedPoint, edge_of_chaos, fixed_point, neutrality_line
    from firstguess.prediction import Prediction, regime
    from firstguess.readings import predict
    from firstguess.signal import Inputs
    from firstguess.structure import Structure, read

# name -> module that defines it; resolved on first use, so that `import firstguess` does no work
_HOMES = {
    "Activation": "activations", "activation": "activations", "causes_bias": "activations", "centered": "activations",
    "register_activation": "activations",
    "predict": "readings",
    "DataBias": "databias", "data_bias": "databias",
    "FirstguessError": "errors", "InvalidInput": "errors", "NotConverged": "errors", "NotCovered": "errors",
    "ParseError": "errors",
    "Guesses": "guesses",
    "Network": "network", "cnn": "network", "mlp": "network", "residual_mlp": "network",
    "PhaseDiagram": "diagrams", "phase_diagram": "diagrams",
    "Measurement": "ensemble.measurement", "measure": "ensemble.run",
    "EmpiricalGuesses": "empirical",
    "Comparison": "comparison", "compare": "comparison",
    "FixedPoint": "phases", "edge_of_chaos": "phases", "fixed_point": "phases", "neutrality_line": "phases",
    "Prediction": "prediction", "regime": "prediction",
    "Inputs": "signal",
    "Diagnosis": "diagnosis.result", "diagnose": "diagnosis.run",
    "NotNeutral": "diagnosis.gate", "assert_neutral": "diagnosis.gate",
    "Gradients": "ensemble.gradient_statistics", "measure_gradients": "ensemble.gradients",
    "Explanation": "explanation", "explain_guess": "explanation",
    "Structure": "structure", "read": "structure",
    "data": "", "figures": "",
}  # fmt: skip

__all__ = [
    "Activation",
    "Comparison",
    "DataBias",
    "Diagnosis",
    "EmpiricalGuesses",
    "Explanation",
    "FirstguessError",
    "FixedPoint",
    "Gradients",
    "Guesses",
    "Inputs",
    "InvalidInput",
    "Measurement",
    "Network",
    "NotConverged",
    "NotCovered",
    "NotNeutral",
    "ParseError",
    "PhaseDiagram",
    "Prediction",
    "Structure",
    "__version__",
    "activation",
    "assert_neutral",
    "causes_bias",
    "centered",
    "cnn",
    "compare",
    "data",
    "data_bias",
    "diagnose",
    "edge_of_chaos",
    "explain_guess",
    "figures",
    "fixed_point",
    "measure",
    "measure_gradients",
    "mlp",
    "neutrality_line",
    "phase_diagram",
    "predict",
    "read",
    "regime",
    "register_activation",
    "residual_mlp",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module 'firstguess' has no attribute {name!r}")
    home = _HOMES[name]
    module = importlib.import_module(f"firstguess.{home or name}")
    value = getattr(module, name) if home else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
