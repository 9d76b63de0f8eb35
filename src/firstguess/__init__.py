"""firstguess: what a neural network believes before it has learned anything.

An untrained classifier often puts nearly all inputs into one class. firstguess predicts this initial guessing bias from
a description of the network, measures it on real ones, says which layer causes it, and what to change.

>>> import firstguess as fg
>>> p = fg.predict(fg.mlp(depth=20))  # or "20 x [dense(weight_var=2) > relu] > dense(weight_var=2)"
>>> p.verdict, round(float(p.gamma[-1]), 2), round(p.guesses.expected_max(), 3)
('deeply biased', 18.39, 0.927)

γ is the drift ratio: how far the mean outputs of the classes are apart against how outputs differ between inputs. Up to
0.05 a network is called even, below 1 leaning, above it biased, from 9.5 on deeply biased. Every result prints a page,
has .plot() for a chart and .to_dict() for plain data, and shows itself in a notebook.

A model of yours (PyTorch)
    diagnose(model, data)         is it biased, which layer does it, is that expected, what to change
    explain_guess(model, data)    the state a model is in now: bias or bug?
    assert_even(model, data)      a gate for tests (assert_neutral: by γ)
    measure(model, data)          how untrained networks guess, with error bars; measure_gradients
    read(model, data)             its description, where it can be read: read(model, data).network
    repair, match_prior           a copy that guesses evenly, or by the classes' frequencies
    train(model, data=...)        many initializations, trained for real: how long the bias lasts
    Watch(model, loader)          the same of your own training; firstguess.watch has callbacks
A description (no weight is drawn, no torch is loaded)
    mlp, residual_mlp, cnn, transformer, mixer    make one; Network.parse(text) and str(net) too
    predict(net)                  random data (Inputs, Tokens); predict(net, data=x): your data; width=: your width
    predict_training(net, data=x, lr=...)    how training absorbs the bias, from kernels
    phase_diagram, edge_of_chaos, neutrality_line, fixed_point    where gradients vanish or explode
    tune, frontier, width_needed  the bias you want at the gradients you need
    causes_bias, activation, centered, register_activation    activations, yours too
Beside each other, and many at once
    compare(prediction, measurement)    differences in standard errors
    grid, study                   a sweep that resumes, on one machine or on Ray
    data.digits(), data.load("mnist:even-odd"), data_bias(x)    data, and the bias that they bring
    figures, schedules            charts that lay results side by side; learning rates over time; regime(γ): the word

Results: Prediction, Guesses, MixedGuesses, EmpiricalGuesses, FiniteSize, Measurement, Logits, Gradients, Diagnosis,
Explanation, Structure, Comparison, TrainingComparison, PredictedTraining, TrainedMembers, WatchedTraining,
PhaseDiagram, FixedPoint, Frontier, Tuned (and Stand), Repaired, Matched, DataBias, Study; set: Activation, Grid.
Errors: FirstguessError, of which InvalidInput, ParseError, NotCovered, NotConverged, NotFinite; NotEven (NotNeutral) of
the gates; EarlyEvaluation warns.

help(fg.diagnose) has the arguments of one function. In the shell: firstguess --help.
"""

from firstguess._version import __version__

TYPE_CHECKING = False  # editors take it for typing's, which takes longer to import than the rest of this file
if TYPE_CHECKING:
    from firstguess import data, figures, schedules, watch
    from firstguess.base.errors import FirstguessError, InvalidInput, NotConverged, NotCovered, NotFinite, ParseError
    from firstguess.diagnosis.comparison import Comparison, compare
    from firstguess.diagnosis.diagnose import diagnose
    from firstguess.diagnosis.explain_guess import Explanation, explain_guess
    from firstguess.diagnosis.gate import NotEven, NotNeutral, assert_even, assert_neutral
    from firstguess.diagnosis.result import Diagnosis
    from firstguess.diagnosis.training_comparison import TrainingComparison
    from firstguess.ensemble.gradient_statistics import Gradients
    from firstguess.ensemble.logits import Logits
    from firstguess.ensemble.measurement import Measurement
    from firstguess.ensemble.predict_training import predict_training
    from firstguess.ensemble.trained import TrainedMembers
    from firstguess.modules.measure import measure
    from firstguess.modules.measure_gradients import measure_gradients
    from firstguess.modules.priors import Matched, match_prior
    from firstguess.modules.read.read import read
    from firstguess.modules.read.result import Structure
    from firstguess.modules.repair import Repaired, repair
    from firstguess.modules.train import train
    from firstguess.network.activations.record import Activation
    from firstguess.network.activations.registry import activation, centered, register_activation
    from firstguess.network.bias_criterion import causes_bias
    from firstguess.network.builders import cnn, mixer, mlp, residual_mlp, transformer
    from firstguess.network.inputs import Inputs, Tokens
    from firstguess.network.network import Network
    from firstguess.studies.configurations import Grid, grid
    from firstguess.studies.study import Study, study
    from firstguess.theory.data_bias import DataBias, data_bias
    from firstguess.theory.frontier import Frontier, frontier
    from firstguess.theory.phases.diagram import PhaseDiagram, phase_diagram
    from firstguess.theory.phases.fixed_points import FixedPoint, edge_of_chaos, fixed_point, neutrality_line
    from firstguess.theory.predict import predict, width_needed
    from firstguess.theory.prediction import FiniteSize, Prediction, regime
    from firstguess.theory.shares.empirical import EmpiricalGuesses
    from firstguess.theory.shares.gaussian import Guesses
    from firstguess.theory.shares.mixture import MixedGuesses
    from firstguess.theory.training.result import PredictedTraining
    from firstguess.theory.tune import Stand, Tuned, tune
    from firstguess.watch.loop import Watch
    from firstguess.watch.watched import EarlyEvaluation, WatchedTraining

# module -> the public names it defines; resolved on first use, so that `import firstguess` does no work
_NAMES = {
    "base.errors": "FirstguessError InvalidInput NotConverged NotCovered NotFinite ParseError",
    "network.activations.registry": "activation centered register_activation",
    "network.bias_criterion": "causes_bias",
    "network.activations.record": "Activation",
    "network.builders": "cnn mixer mlp residual_mlp transformer",
    "network.network": "Network",
    "network.inputs": "Inputs Tokens",
    "theory.data_bias": "DataBias data_bias",
    "theory.phases.diagram": "PhaseDiagram phase_diagram",
    "theory.shares.empirical": "EmpiricalGuesses",
    "theory.prediction": "FiniteSize Prediction regime",
    "theory.shares.gaussian": "Guesses",
    "theory.shares.mixture": "MixedGuesses",
    "theory.predict": "predict width_needed",
    "theory.phases.fixed_points": "FixedPoint edge_of_chaos fixed_point neutrality_line",
    "theory.training.result": "PredictedTraining",
    "ensemble.gradient_statistics": "Gradients",
    "ensemble.predict_training": "predict_training",
    "theory.frontier": "Frontier frontier",
    "theory.tune": "Stand Tuned tune",
    "modules.repair": "Repaired repair",
    "modules.priors": "Matched match_prior",
    "ensemble.logits": "Logits",
    "ensemble.measurement": "Measurement",
    "ensemble.trained": "TrainedMembers",
    "modules.measure_gradients": "measure_gradients",
    "modules.measure": "measure",
    "modules.read.read": "read",
    "modules.read.result": "Structure",
    "modules.train": "train",
    "diagnosis.comparison": "Comparison compare",
    "diagnosis.explain_guess": "Explanation explain_guess",
    "diagnosis.gate": "NotEven NotNeutral assert_even assert_neutral",
    "diagnosis.result": "Diagnosis",
    "diagnosis.diagnose": "diagnose",
    "diagnosis.training_comparison": "TrainingComparison",
    "studies.configurations": "Grid grid",
    "studies.study": "Study study",
    "watch.loop": "Watch",
    "watch.watched": "EarlyEvaluation WatchedTraining",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
_ROOMS = ("data", "figures", "schedules", "watch")  # public as they are

__all__ = [
    "Activation",
    "Comparison",
    "DataBias",
    "Diagnosis",
    "EarlyEvaluation",
    "EmpiricalGuesses",
    "Explanation",
    "FiniteSize",
    "FirstguessError",
    "FixedPoint",
    "Frontier",
    "Gradients",
    "Grid",
    "Guesses",
    "Inputs",
    "InvalidInput",
    "Logits",
    "Matched",
    "Measurement",
    "MixedGuesses",
    "Network",
    "NotConverged",
    "NotCovered",
    "NotEven",
    "NotFinite",
    "NotNeutral",
    "ParseError",
    "PhaseDiagram",
    "PredictedTraining",
    "Prediction",
    "Repaired",
    "Stand",
    "Structure",
    "Study",
    "Tokens",
    "TrainedMembers",
    "TrainingComparison",
    "Tuned",
    "Watch",
    "WatchedTraining",
    "__version__",
    "activation",
    "assert_even",
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
    "frontier",
    "grid",
    "match_prior",
    "measure",
    "measure_gradients",
    "mixer",
    "mlp",
    "neutrality_line",
    "phase_diagram",
    "predict",
    "predict_training",
    "read",
    "regime",
    "register_activation",
    "repair",
    "residual_mlp",
    "schedules",
    "study",
    "train",
    "transformer",
    "tune",
    "watch",
    "width_needed",
]  # fmt: skip
_PUBLIC = tuple(__all__)

if not TYPE_CHECKING:  # an editor takes the names from above, and a name that is not there for a mistake
    # At run time `help(fg)` would print each name of __all__ with all of its methods, 4 000 lines: the text at the top
    # is what there is to read, and `dir(fg)` has the names. So `from firstguess import *` gives nothing.
    __all__ = []

    def __getattr__(name):
        import importlib
        import sys

        if name in _ROOMS:
            value = importlib.import_module(f"firstguess.{name}")
        elif name in _HOMES:
            value = getattr(importlib.import_module(f"firstguess.{_HOMES[name]}"), name)
        else:
            raise AttributeError(f"module 'firstguess' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
        globals()[name] = value
        return value

    def __dir__():
        return sorted(_PUBLIC)
