"""The end of a model against its loss: what the last operation can give, and what the loss is lowest for."""

from __future__ import annotations

import math

from firstguess.diagnosis.faults.base import Fault, Seen

_SHORT = 0.3  # of the way from the best loss to that of a constant guess, that a head cannot go


def one_unit(seen: Seen) -> Fault | None:
    """A softmax over an axis of one entry is 1 whatever comes in."""
    if seen.doctor is None:
        return None
    out, end = seen.doctor.out, seen.doctor.end
    if "softmax" not in end.name or not out.ndim or out.shape[end.axis] != 1:
        return None
    value = "1" if end.name == "softmax" else "0"
    return seen.fault(
        "softmax over one unit",
        f"a {end.name} over one unit is {value} for every input, and passes no gradient",
        "nn.Sigmoid() in its place; or none, with nn.BCEWithLogitsLoss()",
        seen.now.head,
        f"outputs {tuple(out.shape)}, all {value}",
    )


def misfit(seen: Seen) -> Fault | None:
    """A softmax or sigmoid before a loss that has one; or outputs that cannot come near the targets."""
    if seen.doctor is None or "softmax over one unit" in seen.found:
        return None
    a, end = seen.doctor.answers, seen.doctor.end
    if not end.name or end.name == "log-softmax" or not a.depends:
        return None
    best, constant, reached = a.free, a.constant[0], a.reached(end)
    short = (reached - best) / (constant - best) if constant > best else math.nan
    numbers = {"reached": reached, "best": best, "constant": constant}
    evidence = f"the loss cannot fall below {reached:.3g}; a constant guess has {constant:.3g}, free outputs {best:.3g}"
    if end.name == "softmax" and a.softmax_axis is not None:
        return seen.fault(
            "softmax twice",
            "the model ends in a softmax, and the loss has one too: gradients are small, and it cannot be sure",
            "no softmax at the end of the model; or log_softmax with nn.NLLLoss()",
            seen.now.head,
            evidence,
            outputs="softmax",
            **numbers,
        )
    exclusive = a.softmax_axis is not None or a.normalizes or (a.only_label and bool(a.wants_probabilities))
    if end.name == "sigmoid" and a.width > 1 and exclusive:
        return seen.fault(
            "sigmoid with a softmax loss",
            "each output is a probability of its own, and the loss is one of classes that exclude each other",
            "no sigmoid, with nn.CrossEntropyLoss(); for labels that may occur together nn.BCEWithLogitsLoss()",
            seen.now.head,
            evidence,
            **numbers,
        )
    if end.name == "ReLU" or not short > _SHORT:
        return None
    again = end.name == "sigmoid" and a.classes is not None and not a.numeric
    return seen.fault(
        "head cannot reach the targets",
        "the model ends in a sigmoid, and the loss has one too"
        if again
        else f"the model ends in a {end.name}, and targets lie outside of what it gives",
        "no sigmoid at the end of the model; or nn.BCELoss()" if again else "no activation after the last layer",
        seen.now.head,
        evidence,
        **numbers,
    )
