"""The public names, once: what editors see, and what `import firstguess` finds when a name is first used."""

from firstguess import data as data
from firstguess import errors as errors
from firstguess import figures as figures
from firstguess import phases as phases
from firstguess import results as results
from firstguess import schedules as schedules
from firstguess import watch as watch
from firstguess._version import __version__ as __version__

# These work as well, and are not listed: most are in fg.results, fg.errors and fg.phases too.
from firstguess.base.errors import (
    FirstguessError as FirstguessError,
)
from firstguess.base.errors import (
    InvalidInput as InvalidInput,
)
from firstguess.base.errors import (
    NotConverged as NotConverged,
)
from firstguess.base.errors import (
    NotCovered as NotCovered,
)
from firstguess.base.errors import (
    NotFinite as NotFinite,
)
from firstguess.base.errors import (
    ParseError as ParseError,
)
from firstguess.diagnosis.assert_even import NotEven as NotEven
from firstguess.diagnosis.assert_even import NotNeutral as NotNeutral
from firstguess.diagnosis.assert_even import assert_even as assert_even
from firstguess.diagnosis.assert_even import assert_neutral as assert_neutral
from firstguess.diagnosis.compare import Comparison as Comparison
from firstguess.diagnosis.compare import compare as compare
from firstguess.diagnosis.diagnose import diagnose as diagnose
from firstguess.diagnosis.explain_guess import Explanation as Explanation
from firstguess.diagnosis.explain_guess import explain_guess as explain_guess
from firstguess.diagnosis.result import Diagnosis as Diagnosis
from firstguess.diagnosis.training_comparison import TrainingComparison as TrainingComparison
from firstguess.ensemble.gradient_statistics import Gradients as Gradients
from firstguess.ensemble.measurement import Logits as Logits
from firstguess.ensemble.measurement import Measurement as Measurement
from firstguess.ensemble.predict_training import predict_training as predict_training
from firstguess.ensemble.trained import TrainedMembers as TrainedMembers
from firstguess.modules.match_prior import Matched as Matched
from firstguess.modules.match_prior import match_prior as match_prior
from firstguess.modules.measure import measure as measure
from firstguess.modules.measure_gradients import measure_gradients as measure_gradients
from firstguess.modules.read.read import read as read
from firstguess.modules.read.result import Structure as Structure
from firstguess.modules.repair import Repaired as Repaired
from firstguess.modules.repair import repair as repair
from firstguess.modules.train import train as train
from firstguess.network.activations.record import Activation as Activation
from firstguess.network.activations.registry import (
    activation as activation,
)
from firstguess.network.activations.registry import (
    centered as centered,
)
from firstguess.network.activations.registry import (
    register_activation as register_activation,
)
from firstguess.network.builders import (
    cnn as cnn,
)
from firstguess.network.builders import (
    mixer as mixer,
)
from firstguess.network.builders import (
    mlp as mlp,
)
from firstguess.network.builders import (
    residual_mlp as residual_mlp,
)
from firstguess.network.builders import (
    transformer as transformer,
)
from firstguess.network.causes_bias import causes_bias as causes_bias
from firstguess.network.inputs import Inputs as Inputs
from firstguess.network.inputs import Tokens as Tokens
from firstguess.network.network import Network as Network
from firstguess.studies.study import Grid as Grid
from firstguess.studies.study import Study as Study
from firstguess.studies.study import grid as grid
from firstguess.studies.study import study as study
from firstguess.theory.data_bias import DataBias as DataBias
from firstguess.theory.data_bias import data_bias as data_bias
from firstguess.theory.frontier import Frontier as Frontier
from firstguess.theory.frontier import frontier as frontier
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
from firstguess.theory.predict import predict as predict
from firstguess.theory.predict import width_needed as width_needed
from firstguess.theory.prediction import FiniteSize as FiniteSize
from firstguess.theory.prediction import Prediction as Prediction
from firstguess.theory.prediction import regime as regime
from firstguess.theory.shares.empirical import EmpiricalGuesses as EmpiricalGuesses
from firstguess.theory.shares.gaussian import Guesses as Guesses
from firstguess.theory.shares.mixture import MixedGuesses as MixedGuesses
from firstguess.theory.training.runs import PredictedTraining as PredictedTraining
from firstguess.theory.tune import Stand as Stand
from firstguess.theory.tune import Tuned as Tuned
from firstguess.theory.tune import tune as tune
from firstguess.watch.loop import Watch as Watch
from firstguess.watch.seen import EarlyEvaluation as EarlyEvaluation
from firstguess.watch.seen import WatchedTraining as WatchedTraining

__all__ = [
    "Inputs",
    "Network",
    "Tokens",
    "Watch",
    "__version__",
    "assert_even",
    "cnn",
    "compare",
    "data",
    "diagnose",
    "errors",
    "explain_guess",
    "figures",
    "frontier",
    "grid",
    "match_prior",
    "measure",
    "mixer",
    "mlp",
    "phases",
    "predict",
    "predict_training",
    "read",
    "repair",
    "residual_mlp",
    "results",
    "study",
    "train",
    "transformer",
    "tune",
]
