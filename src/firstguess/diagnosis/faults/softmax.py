"""Softmax where logits are expected, and softmax over the wrong axis."""

from __future__ import annotations

from firstguess.diagnosis.faults.base import Fault, Seen


def over_batch(seen: Seen) -> Fault | None:
    """Outputs of each class that sum to 1 over the points of a batch."""
    if not seen.examination.over_batch:
        return None
    return seen.fault(
        "softmax over the batch",
        "each class's outputs sum to 1 over the points of a batch, so that points compete with each other, not classes",
        "softmax over the classes, dim=-1; or none at all, where the loss is CrossEntropyLoss",
    )


def twice(seen: Seen) -> Fault | None:
    """A softmax of probabilities; or outputs that are probabilities, which become one where the loss has a softmax."""
    x = seen.examination
    if seen.doctor is not None and seen.doctor.patient.loss is not None:
        return None  # the loss itself is asked
    if x.ops.twice:
        place = x.ops.twice[0]
        message = "a softmax of what are probabilities already: its outputs are all within a factor e of each other"
        return seen.fault("softmax twice", message, "one softmax, or none where the loss has it", place)
    if not x.probabilities:
        return None
    return seen.fault(
        "softmax twice",
        "outputs are probabilities; if your loss applies softmax again, as CrossEntropyLoss does, gradients are small "
        "and the loss cannot come near 0",
        "no softmax at the end of the model; or log_softmax with NLLLoss",
        outputs="softmax",
    )
