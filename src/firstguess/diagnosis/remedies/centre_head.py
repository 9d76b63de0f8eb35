"""Centre the head: its bias takes the mean logits off, theory.md (37). First guesses change, trainability does not."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from firstguess.diagnosis.remedies.base import Case, Outcome, Variant
from firstguess.ensemble.logits import Logits
from firstguess.modules.repair import logits_of, needed

TITLE = "centre the head (fg.repair)"
PRICE = (
    "it changes first guesses, not trainability: gradients and nonlinearity stay. In our trainings the worst class "
    "gained early in a ResNet, not in a CNN or a ViT"
)
_CODE = """import firstguess as fg

model = fg.repair(model, loader, gamma=0.0).model  # a copy, in which the head's bias alone moves
"""
_WORTH = 0.05  # γ up to which guesses are even
_INITS = 20


def variants(case: Case) -> Iterator[Variant]:
    """Every initialization with its own mean logits taken off, on these points."""
    if case.logits is None or not case.gamma > _WORTH:
        return
    model = case.example()
    if model is not None:
        needed(logits_of(model, case.batches[:1], pick=case.pick), "repair")  # or why no bias can be moved
    shares: list[float] = []
    for _, rows in zip(range(_INITS), case.logits(), strict=False):
        mean = rows.double().mean(0, keepdim=rows.ndim > 1)
        shares.append(float(Logits(rows.double() - mean).shares.max()))
    if len(shares) < 2:
        return
    error = float(np.std(shares, ddof=1)) / math.sqrt(len(shares))
    yield Variant(
        TITLE,
        "the head's bias minus the mean logits on your data",
        outcome=Outcome(0.0, float(np.mean(shares)), error, len(shares)),
        aim="first guesses",
        code=_CODE,
        price=PRICE,
    )
