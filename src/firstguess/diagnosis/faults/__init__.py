"""Named faults: one test a file. Each sees what one pass of the model showed, and says what is wrong and what to do.

False alarms: most are facts of the model or its data, with thresholds far from what any initializer gives; `dead units`
has a chance of 1e-6 a layer, or four standard deviations of the ensemble. docs/named-faults.md has the scores.
"""

from collections.abc import Callable
from dataclasses import replace

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
from firstguess.diagnosis.faults.base import Fault, FaultName, Seen
from firstguess.diagnosis.notable import is_notable
from firstguess.ensemble.measurement import Measurement
from firstguess.modules.examination import Examination

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


def named(look: Examination | None, m: Measurement | None = None) -> tuple[Fault, ...]:
    """Faults of a model that was looked at once, beside its initializations where these could be measured."""
    if look is None:
        return ()
    now = look.now
    return faults_of(Seen(look, m, is_notable(now.fractions, now.points - now.lost)))


__all__ = ["FAULTS", "Fault", "FaultName", "Seen", "faults_of", "named"]
