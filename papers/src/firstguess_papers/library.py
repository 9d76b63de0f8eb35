"""All that the papers use of firstguess beyond its public names, and nothing else: each should become public, or go.

Resolved on first use: importing this loads neither torch nor altair.
"""

from __future__ import annotations

import ast
import importlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from firstguess._version import NUMERICS as NUMERICS
    from firstguess.base.files import address as address
    from firstguess.base.statistics import equal_means_test as equal_means_test
    from firstguess.base.threads import cores as cores
    from firstguess.base.threads import torch_threads as torch_threads
    from firstguess.data.sources import PREPARED as PREPARED
    from firstguess.data.streams import IsolatedRandomness as IsolatedRandomness
    from firstguess.diagnosis.compare import predicted_law as predicted_law
    from firstguess.ensemble.higher_moments import SKEWED as SKEWED
    from firstguess.ensemble.higher_moments import TAILED as TAILED
    from firstguess.ensemble.member_module import build as build
    from firstguess.ensemble.member_module import drawn as drawn
    from firstguess.ensemble.member_module import resolve as resolve
    from firstguess.ensemble.seeds import orders as orders
    from firstguess.modules.gradient_passes import loss_gradient as loss_gradient
    from firstguess.modules.outputs import contrasts as contrasts
    from firstguess.network.activations.registry import names as names
    from firstguess.show.charts import theme as theme
    from firstguess.show.charts.theme import Chart as Chart
    from firstguess.studies.pools import LocalPool as LocalPool
    from firstguess.studies.pools import RayPool as RayPool
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
    from firstguess.theory.training.curves import Curve as Curve
    from firstguess.theory.training.curves import Curves as Curves
    from firstguess.theory.training.curves import looked_at as looked_at
    from firstguess.theory.training.problem import kernel_of as kernel_of
    from firstguess.theory.training.runs import BIASED as BIASED
    from firstguess.theory.tunable_families import changed as changed
    from firstguess.theory.tune import stand as stand


@cache
def _places() -> dict[str, tuple[str, str]]:
    """Where each name comes from: the imports above, which are read and not run."""
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    return {name.asname: (str(node.module), name.name) for node in imports for name in node.names if name.asname}


def __getattr__(name: str) -> Any:
    if name not in _places():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, own = _places()[name]
    home = importlib.import_module(module)
    return getattr(home, own) if hasattr(home, own) else importlib.import_module(f"{module}.{own}")
