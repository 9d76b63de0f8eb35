"""All that the papers use of firstguess beyond its public names, and nothing else: each should become public, or go.

Resolved on first use: importing this loads neither torch nor altair.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from firstguess._version import NUMERICS as NUMERICS
    from firstguess.base.files import address as address
    from firstguess.base.statistics import equal_means_test as equal_means_test
    from firstguess.base.text import power_of_ten as power_of_ten
    from firstguess.base.threads import cores as cores
    from firstguess.data.sources import PREPARED as PREPARED
    from firstguess.diagnosis.comparison import predicted_law as predicted_law
    from firstguess.ensemble.gradient_statistics import GradientLayer as GradientLayer
    from firstguess.ensemble.gradient_statistics import Level as Level
    from firstguess.ensemble.higher_moments import SKEWED as SKEWED
    from firstguess.ensemble.higher_moments import TAILED as TAILED
    from firstguess.ensemble.member_module import build as build
    from firstguess.ensemble.member_module import drawn as drawn
    from firstguess.ensemble.member_module import resolve as resolve
    from firstguess.ensemble.member_statistics import FindingKind as FindingKind
    from firstguess.ensemble.seeds import orders as orders
    from firstguess.modules.gradient_passes import loss_gradient as loss_gradient
    from firstguess.modules.guard import IsolatedRandomness as IsolatedRandomness
    from firstguess.modules.outputs import contrasts as contrasts
    from firstguess.network.builders import as_network as as_network
    from firstguess.network.layer import Layer as Layer
    from firstguess.network.layers import Dense as Dense
    from firstguess.network.layers import Embed as Embed
    from firstguess.network.layers import FirstToken as FirstToken
    from firstguess.network.layers import PoolTokens as PoolTokens
    from firstguess.network.layers import Positions as Positions
    from firstguess.show.charts import save as save
    from firstguess.show.charts import theme as theme
    from firstguess.show.charts.dots import Dot as Dot
    from firstguess.show.charts.dots import dots_chart as dots_chart
    from firstguess.show.charts.lines import Panel as Panel
    from firstguess.show.charts.lines import Series as Series
    from firstguess.show.charts.theme import Chart as Chart
    from firstguess.show.charts.theme import heading as heading
    from firstguess.studies.pools import LocalPool as LocalPool
    from firstguess.studies.pools import RayPool as RayPool
    from firstguess.studies.scheduler import Pool as Pool
    from firstguess.studies.store import Piece as Piece
    from firstguess.studies.store import Store as Store
    from firstguess.studies.store import write_table as write_table
    from firstguess.studies.tasks import Job as Job
    from firstguess.studies.tasks import Work as Work
    from firstguess.theory.language import own_guess_chance as own_guess_chance
    from firstguess.theory.prediction import DEEPLY_BIASED as DEEPLY_BIASED
    from firstguess.theory.shares import gaussian_argmax as gaussian_argmax
    from firstguess.theory.shares.argmax_sampling import draw_guesses as draw_guesses
    from firstguess.theory.tokens import token_covariances as token_covariances
    from firstguess.theory.training.absorption import Tangent as Tangent
    from firstguess.theory.training.absorption import absorption_of as absorption_of
    from firstguess.theory.training.absorption import scalar_tangent as scalar_tangent
    from firstguess.theory.training.absorption import steps_to as steps_to
    from firstguess.theory.training.curves import Accuracy as Accuracy
    from firstguess.theory.training.curves import Curve as Curve
    from firstguess.theory.training.curves import Curves as Curves
    from firstguess.theory.training.curves import Followed as Followed
    from firstguess.theory.training.curves import looked_at as looked_at
    from firstguess.theory.training.problem import kernel_of as kernel_of
    from firstguess.theory.training.runs import BIASED as BIASED
    from firstguess.theory.tunable_families import changed as changed
    from firstguess.theory.tune import stand as stand

_HOME = {
    "firstguess._version": "NUMERICS",
    "firstguess.base.statistics": "equal_means_test",
    "firstguess.base.files": "address",
    "firstguess.base.text": "power_of_ten",
    "firstguess.base.threads": "cores",
    "firstguess.data.sources": "PREPARED",
    "firstguess.diagnosis.comparison": "predicted_law",
    "firstguess.ensemble.gradient_statistics": "GradientLayer Level",
    "firstguess.ensemble.higher_moments": "SKEWED TAILED",
    "firstguess.ensemble.member_module": "build drawn resolve",
    "firstguess.ensemble.member_statistics": "FindingKind",
    "firstguess.ensemble.seeds": "orders",
    "firstguess.modules.gradient_passes": "loss_gradient",
    "firstguess.modules.guard": "IsolatedRandomness",
    "firstguess.modules.outputs": "contrasts",
    "firstguess.network.activations": "activation_registry=registry",
    "firstguess.network.activations.registry": "activation_names=names",
    "firstguess.network.builders": "as_network",
    "firstguess.network.layer": "Layer",
    "firstguess.network.layers": "Dense Embed FirstToken PoolTokens Positions",
    "firstguess.show.charts": "save theme",
    "firstguess.show.charts.dots": "Dot dots_chart",
    "firstguess.show.charts.lines": "Panel Series",
    "firstguess.show.charts.theme": "Chart heading",
    "firstguess.studies.pools": "LocalPool RayPool",
    "firstguess.studies.scheduler": "Pool",
    "firstguess.studies.store": "Piece Store write_table",
    "firstguess.studies.tasks": "Job Work",
    "firstguess.theory.prediction": "DEEPLY_BIASED",
    "firstguess.theory.language": "own_guess_chance",
    "firstguess.theory.shares": "gaussian_argmax",
    "firstguess.theory.shares.argmax_sampling": "draw_guesses",
    "firstguess.theory.tokens": "token_covariances",
    "firstguess.theory.training.absorption": "Tangent absorption_of scalar_tangent steps_to",
    "firstguess.theory.training.curves": "Accuracy Curve Curves Followed looked_at",
    "firstguess.theory.training.problem": "kernel_of",
    "firstguess.theory.training.runs": "BIASED",
    "firstguess.theory.tunable_families": "changed",
    "firstguess.theory.tune": "stand",
}
_PLACES = {
    alias: (module, name or alias)
    for module, names in _HOME.items()
    for alias, _, name in (text.partition("=") for text in names.split())
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, own = _PLACES[name]
    home = importlib.import_module(module)
    return getattr(home, own) if hasattr(home, own) else importlib.import_module(f"{module}.{own}")
