"""Named faults: one test a file. Each sees what one pass of the model showed, and says what is wrong and what to do.

False alarms: most are facts of the model or its data, with thresholds far from what any initializer gives; `dead units`
has a chance of 1e-6 a layer, or four standard deviations of the ensemble. docs/named-faults.md has the scores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from firstguess.data import Batch
from firstguess.diagnosis.faults import (
    dead_units,
    dropout,
    fresh_norms,
    head_bias,
    hidden_by_mask,
    identical_inputs,
    labels,
    log_of_zero,
    lost_inputs,
    nonfinite,
    relu_head,
    saturated,
    softmax,
    unscaled_inputs,
    vanishing,
    zero_head,
)
from firstguess.diagnosis.faults.base import Fault, FaultName, Seen, is_notable
from firstguess.ensemble.measurement import Measurement
from firstguess.modules.hooks.examination import Examination
from firstguess.modules.hooks.snapshot import Snapshot
from firstguess.modules.outputs import Pick

# A loss of (outputs, labels), and an optimizer: an instance, or a function of the parameters.
Loss: TypeAlias = "Callable[[Any, Any], Any] | None"
Optimizer: TypeAlias = Any

# The first to be named stands first on the page: data before the model, causes before what follows from them.
FAULTS: tuple[Callable[[Seen], Fault | None], ...] = (
    labels.find,
    identical_inputs.find,
    hidden_by_mask.find,
    log_of_zero.find,
    nonfinite.find,
    dropout.find,
    unscaled_inputs.find,
    softmax.over_batch,
    softmax.twice,
    relu_head.find,
    saturated.find,
    vanishing.find,
    dead_units.find,
    zero_head.find,
    fresh_norms.find,
    head_bias.find,
    lost_inputs.find,
)


def faults_of(seen: Seen) -> tuple[Fault, ...]:
    """Those that hold, in the order of `FAULTS`."""
    found: list[Fault] = []
    for find in FAULTS:
        fault = find(replace(seen, found=tuple(fault.name for fault in found)))
        if fault is not None:
            found.append(fault)
    return tuple(found)


def find_faults(
    look: Examination | None,
    measurement: Measurement | None = None,
    *,
    model: Any = None,
    batches: Sequence[Batch] = (),
    trained: Snapshot | None = None,
    loss: Loss = None,
    optimizer: Optimizer = None,
    loader: Any = None,
    dataset: Any = None,
    reference: Any = None,
    steps: int | None = None,
    logits: Pick = None,
    seed: int = 0,
    seconds: float = 3.0,
) -> tuple[tuple[Fault, ...], tuple[str, ...]]:
    """Name the faults of a model that was looked at once, headline first, and what could not be asked.

    `measurement` is of its initializations, `trained` a look with BatchNorms in train mode; `model` (an instance, or
    what makes one) and `batches` with labels as the loss gets them are needed for what `loss` and `optimizer` tell.
    """
    if look is None:
        return (), ()
    now = look.now
    return faults_of(Seen(look, measurement, is_notable(now.fractions, now.points - now.lost), trained)), ()


__all__ = ["FAULTS", "Fault", "FaultName", "Loss", "Optimizer", "Seen", "faults_of", "find_faults"]
