"""Which steps add correlation, ranked; the data's own share beside them."""

from __future__ import annotations

import math
from dataclasses import replace

from firstguess.diagnosis.result import Cause
from firstguess.ensemble.measurement import Measurement
from firstguess.ensemble.members import FindingKind
from firstguess.modules.flow import DATA, Flow

_LEAST = 0.005  # of correlation: less is not a cause
_SURE = 3.0  # standard errors that an addition must stand out by


def causes_of(flow: Flow) -> tuple[Cause, ...]:
    """Steps that raise c by more than their error, largest first, with shares of all that is added.

    Linear layers only carry c on, up to noise of few nodes: what they add is not counted unless it is sure.
    """
    found: list[tuple[str, str, float, float, float, float]] = []
    data = flow.data
    if math.isfinite(data) and data > _LEAST:
        found.append((DATA, "data", 0.0, data, data, 0.0))
    for step in flow.steps:
        error = 0.0 if math.isnan(step.se) else step.se
        if step.added > max(_LEAST, _SURE * error):
            found.append((step.name, step.kind, step.before, step.after, step.added, step.se))
    total = sum(row[4] for row in found)
    ranked = sorted(found, key=lambda row: -row[4])
    return tuple(Cause(*row, share=row[4] / total) for row in ranked)


def without_ending(flow: Flow, m: Measurement) -> Flow:
    """Up to the logits: a softmax or sigmoid behind them raises c, and changes no guess."""
    head = next((finding.layer for finding in m.findings if finding.kind == FindingKind.PROBABILITIES), "")
    place = next((i for i, step in enumerate(flow.steps) if step.name == head), None)
    return flow if place is None else replace(flow, steps=flow.steps[: place + 1])
