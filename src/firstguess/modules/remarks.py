"""What an ensemble of models shows that a user should know: of one member, and of its BatchNorms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from firstguess.ensemble.members import DEAD, Finding, FindingKind, ProbedLayer
from firstguess.modules.initializers import BATCH_NORMS
from firstguess.modules.outputs import Tally
from firstguess.modules.probe_sums import Recorder
from firstguess.modules.probes import OUTPUT

if TYPE_CHECKING:
    from torch import nn

    from firstguess.modules.sources import Mode

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


def batchnorm_remarks(model: nn.Module, mode: Mode, sizes: set[int]) -> tuple[bool, list[Finding]]:
    """Whether BatchNorms normalize over each batch, of these sizes, and what to say about it."""
    norms = [(n, m) for n, m in model.named_modules() if isinstance(m, BATCH_NORMS)]
    if not norms:
        return False, []
    place, most, least = norms[0][0], max(sizes), min(sizes)
    if mode != "train" and all(m.track_running_stats for _, m in norms):
        message = (
            "BatchNorm in eval mode uses the running statistics of a network without data (mean 0, variance 1), so "
            "it does nothing yet; mode='train' is what the first training step sees"
        )
        fresh = any(n.running_mean is not None and not bool(n.running_mean.any()) for _, n in norms)
        return False, [Finding(FindingKind.EVAL_BATCHNORM, message, place)] if fresh else []
    several = f"{most}" if most == least else f"{most} (the smallest has {least})"
    found = [
        Finding(
            FindingKind.BATCHNORM, f"BatchNorm normalizes over each batch of {several} points, as in training", place
        )
    ]
    if least < 2:
        found.append(Finding(FindingKind.BATCH_OF_ONE, "BatchNorm over one point removes all that it says", place))
    return True, found
