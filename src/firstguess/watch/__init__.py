"""Watch a training: how the bias of the start is absorbed, in a plain loop, Lightning or Transformers.

>>> import firstguess.watch
>>> sorted(firstguess.watch.__all__)
['EarlyEvaluation', 'LightningWatch', 'TransformersWatch', 'Watch', 'WatchedTraining']

Importing this loads neither torch nor a trainer; the names do, when they are first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from firstguess.watch.lightning_callback import LightningWatch
    from firstguess.watch.loop import Watch
    from firstguess.watch.seen import EarlyEvaluation, WatchedTraining
    from firstguess.watch.transformers_callback import TransformersWatch

__all__ = ["EarlyEvaluation", "LightningWatch", "TransformersWatch", "Watch", "WatchedTraining"]

_HOMES = {"LightningWatch": "lightning_callback", "TransformersWatch": "transformers_callback", "Watch": "loop"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'seen')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
