"""`fg.results`: the classes of what functions return. Each prints a page, and has .plot() and .to_dict()."""

from firstguess.diagnosis.compare import Comparison as Comparison
from firstguess.diagnosis.explain_guess import Explanation as Explanation
from firstguess.diagnosis.result import Diagnosis as Diagnosis
from firstguess.diagnosis.training_comparison import TrainingComparison as TrainingComparison
from firstguess.ensemble.gradient_statistics import Gradients as Gradients
from firstguess.ensemble.measurement import Logits as Logits
from firstguess.ensemble.measurement import Measurement as Measurement
from firstguess.ensemble.trained import TrainedMembers as TrainedMembers
from firstguess.modules.match_prior import Matched as Matched
from firstguess.modules.read.result import Structure as Structure
from firstguess.modules.repair import Repaired as Repaired
from firstguess.studies.study import Study as Study
from firstguess.theory.data_bias import DataBias as DataBias
from firstguess.theory.frontier import Frontier as Frontier
from firstguess.theory.phases.fixed_points import FixedPoint as FixedPoint
from firstguess.theory.phases.phase_diagram import PhaseDiagram as PhaseDiagram
from firstguess.theory.phases.transformer_phases import TransformerPhases as TransformerPhases
from firstguess.theory.prediction import FiniteSize as FiniteSize
from firstguess.theory.prediction import Prediction as Prediction
from firstguess.theory.shares.empirical import EmpiricalGuesses as EmpiricalGuesses
from firstguess.theory.shares.gaussian import Guesses as Guesses
from firstguess.theory.shares.mixture import MixedGuesses as MixedGuesses
from firstguess.theory.training.runs import PredictedTraining as PredictedTraining
from firstguess.theory.tune import Stand as Stand
from firstguess.theory.tune import Tuned as Tuned
from firstguess.watch.seen import WatchedTraining as WatchedTraining

__all__ = [
    "Comparison",
    "DataBias",
    "Diagnosis",
    "EmpiricalGuesses",
    "Explanation",
    "FiniteSize",
    "FixedPoint",
    "Frontier",
    "Gradients",
    "Guesses",
    "Logits",
    "Matched",
    "Measurement",
    "MixedGuesses",
    "PhaseDiagram",
    "PredictedTraining",
    "Prediction",
    "Repaired",
    "Stand",
    "Structure",
    "Study",
    "TrainedMembers",
    "TrainingComparison",
    "TransformerPhases",
    "Tuned",
    "WatchedTraining",
]
