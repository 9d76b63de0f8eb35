"""What one member of an ensemble of models shows that a user should know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from firstguess.ensemble.members import DEAD, Finding, FindingKind, ProbedLayer
from firstguess.modules.outputs import Tally
from firstguess.modules.probe_sums import Recorder
from firstguess.modules.probes import OUTPUT

_TIES = 1e-3  # share of tied points from which they are a finding: below it is rounding


def remarks(
    layers: Sequence[ProbedLayer], tally: Tally, record: Recorder, stats: NDArray[np.float64]
) -> Iterator[Finding]:
    """Findings of one member. Their words hold no numbers of it, so that the same finding is the same."""
    head = next((layer.name for layer in reversed(layers) if layer.weights), OUTPUT)
    if tally.undefined or record.nonfinite:
        layer = record.nonfinite or OUTPUT
        yield Finding(
            FindingKind.NONFINITE, "NaN or Inf in some initialization: this layer is the first that has one", layer
        )
    elif tally.level:
        message = "all logits are equal on every point: the network guesses nothing; ties are broken at random"
        yield Finding(FindingKind.ZERO_HEAD, message, head)
    elif tally.ties > _TIES * tally.points:
        yield Finding(FindingKind.TIES, "points whose largest logit is shared by classes: broken at random", head)
    for layer, dead in zip(layers, stats[:, DEAD], strict=True):
        if dead == 1.0 and not (tally.level and layer.name in (head, layers[-1].name)):
            yield Finding(FindingKind.DEAD, "the same output for all data in some initialization", layer.name)
    for name in sorted(record.surprises):
        yield Finding(
            FindingKind.CONTROL_FLOW, "called, or shaped, in another way in some initialization or batch", name
        )
    for name in record.missed:
        yield Finding(FindingKind.CONTROL_FLOW, "not called in some initialization", name)
