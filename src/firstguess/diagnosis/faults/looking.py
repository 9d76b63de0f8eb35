"""One look at a model before it is measured: a few points first, and as many as a little time allows."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from firstguess.data import Batch
from firstguess.data.streams import IsolatedRandomness
from firstguess.modules.call_model import fewer
from firstguess.modules.guard import unwrapped
from firstguess.modules.hooks.examination import Examination, examine, load_probes
from firstguess.modules.hooks.session import examined
from firstguess.modules.members.initializers import Init, rule
from firstguess.modules.outputs import Pick

_FIRST = 16  # points; labels and inputs are looked at whole


def look_into(
    what: nn.Module | Callable[[], Any],
    batches: Sequence[Batch],
    *,
    logits: Pick = None,
    init: Init = None,
    seed: int = 0,
    seconds: float = 2.0,
) -> Examination | None:
    """What one pass shows of a model as it is, or of one that a factory makes; None where it cannot be run."""
    try:
        with torch.inference_mode(False), _subject(what, batches[0], init, seed) as model:
            return _within(model, batches, logits, seed, seconds)
    except Exception:  # whatever a user's model or factory raises: measuring it says so, in words
        return None


def _within(model: nn.Module, batches: Sequence[Batch], pick: Pick, seed: int, seconds: float) -> Examination:
    total, count, taken = sum(batch.size for batch in batches), _FIRST, 0.0
    load_probes()
    try:
        few = fewer(batches, count)
        for _ in range(2):  # the first call of a model is slower
            began = time.perf_counter()
            found = examine(model, few, data=batches, pick=pick, seed=seed)
            taken = time.perf_counter() - began
            if taken > seconds or count >= total:
                return replace(found, a_point=taken / min(count, total))
    except Exception:  # a model that takes whole batches only
        return examine(model, batches[:1], data=batches, pick=pick, seed=seed)
    room = min(total, int(count * seconds / max(taken, 1e-6)))
    found = examine(model, fewer(batches, max(count, room)), data=batches, pick=pick, seed=seed)
    return replace(found, a_point=taken / count)


@contextmanager
def _subject(what: nn.Module | Callable[[], Any], first: Batch, init: Init, seed: int) -> Generator[nn.Module]:
    if not isinstance(what, nn.Module):
        with IsolatedRandomness(seed):
            what = unwrapped(what())
    with examined(what, first, seed) as model:
        if init is not None and model is not unwrapped(what):  # on a copy only
            with IsolatedRandomness(seed), torch.no_grad():
                model.apply(rule(init))
        yield model
