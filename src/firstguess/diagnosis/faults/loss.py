"""Losses that do not go with outputs or labels, told by what they say of made-up outputs."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from firstguess.diagnosis.faults.base import Fault, Seen

_FEW = 20  # classes
_FAVOUR = 5.0  # times the majority's chance that a rarer class gets from the best constant guess
_COUNTS, _EVEN = 3.0, 10.0  # times as much as a point of another class; of one that is about as frequent
_MISPLACED = 0.7  # of the labels that were changed


def find(seen: Seen) -> Iterator[Fault]:
    """What the user's loss shows, one question after the other."""
    a, end = seen.doctor.answers, seen.doctor.end
    shapes = f"outputs {a.shape}, labels {tuple(a.y.shape)}"
    if not a.depends:
        message = "the loss has no gradient for any outputs: something in it is detached, rounded or an arg-max"
        fix = "compute the loss from the outputs themselves: no .detach(), .data, .item(), argmax or round"
        evidence = "gradient 0 for normal numbers, probabilities and these outputs"
        yield seen.fault("loss does not depend on the outputs", message, fix, evidence=evidence)
        return
    if a.broadcast or (a.unpaired and tuple(a.y.shape) != a.shape):
        message = "labels are broadcast against the outputs: every output is compared with labels that are not its own"
        fix = f"one output per label, or one-hot labels: F.one_hot(y.long().flatten(), {a.width}).float()"
        if a.y.numel() == math.prod(a.shape):
            fix = f"labels of the outputs' shape: y.reshape({', '.join(map(str, (-1, *a.shape[1:])))})"
        evidence = f"{shapes}; outputs permuted over {'classes' if a.broadcast else 'points'} give the same loss"
        yield seen.fault("targets broadcast", message, fix, evidence=evidence)
    elif a.unpaired or a.misplaced > _MISPLACED:
        message = "the loss does not compare each output with its own label"
        fix = "compare outputs[i] with labels[i]; check means, flips and reshapes (outputs.movedim(1, -1) comes before "
        fix += ".reshape(-1, classes))"
        evidence = "outputs permuted over points give the same loss"
        if not a.unpaired:
            evidence = f"of labels changed one by one, {a.misplaced:.0%} move the gradients of other points"
        yield seen.fault("outputs and labels not paired", message, fix, evidence=f"{shapes}; {evidence}")
    if not end.bounded and end.name != "clamp" and (words := a.wants_probabilities):
        message = "the loss takes outputs for probabilities, and the model gives numbers of any size"
        last, other = ("softmax(dim=-1)", "CrossEntropyLoss") if a.width > 1 else ("sigmoid", "BCEWithLogitsLoss")
        fix = f"{last} after the last layer, or the loss of logits: nn.{other}()"
        yield seen.fault("loss wants probabilities", message, fix, evidence=f"outside 0 to 1 {words}")
    linear = a.linear and a.only_label and a.classes is not None and end.name != "log-softmax"
    if linear or a.minus_probability:
        message = "the loss is minus the label's probability: it takes the outputs of a softmax for their logarithms"
        evidence = "it cannot fall below −1"
        if linear:
            message = "the loss is linear in the outputs: it takes them for logarithms of probabilities"
            evidence = "its gradient is the same for any outputs"
        fix = "F.log_softmax(outputs, dim=1), or nn.CrossEntropyLoss() of the logits"
        yield seen.fault("loss wants log-probabilities", message, fix, evidence=evidence)
    yield from _regression(seen)
    yield from _weights(seen)


def _regression(seen: Seen) -> Iterator[Fault]:
    a = seen.doctor.answers
    if not a.numeric or a.classes is None or a.broadcast or a.unpaired:
        return
    y, classes = a.classes
    shares = torch.bincount(y, minlength=classes) / len(y)
    numbers = a.width == 1 and 2 < classes <= _FEW and float(shares.min()) > 0.3 / classes
    hot = a.width > 1 or classes == 2
    if numbers or (hot and a.kinked):
        message = "an absolute error is lowest for the most frequent answer, whatever the chances: rarer classes vanish"
        message = "class numbers are learned as amounts: class 2 is not twice class 1" if numbers else message
        fix = f"nn.Linear(…, {classes}) as the last layer and nn.CrossEntropyLoss() with y.long()"
        fix = fix if numbers or a.width > 1 else "nn.BCEWithLogitsLoss() of the logit"
        evidence = f"{classes} classes as labels {tuple(a.y.shape)}; an output beyond its label costs"
        yield seen.fault("regression loss for classes", message, fix, evidence=evidence, classes=classes)


def _weights(seen: Seen) -> Iterator[Fault]:
    a = seen.doctor.answers
    if a.classes is None:
        return
    y, classes = a.classes
    if a.ignored:
        message = (
            f"points of class {a.ignored[0]} do not count: whatever their outputs, the loss has no gradient for them"
        )
        fix = "check ignore_index, the weights, and the labels' form: a hinge loss wants −1 and 1, not 0 and 1"
        evidence = f"{float((y == a.ignored[0]).double().mean()):.0%} of the labels are of it"
        yield seen.fault("class weights", message, fix, evidence=evidence, ignored=a.ignored)
        return
    counts = a.counts
    if a.preferred is None or len(a.preferred) != classes or counts is None:
        return
    shares = torch.bincount(y, minlength=classes).double() / len(y)
    top, usual = int(a.preferred.argmax()), int(shares.argmax())
    rarest = int(torch.where(shares > 0, shares, 2.0).argmin())
    favour = float(a.preferred[top] / a.preferred[usual].clamp_min(1e-12))
    rare = favour > _FAVOUR and float(counts[top]) > _COUNTS * float(counts[usual])
    # Frequencies as weights, where their inverse was meant.
    uneven = float(shares[usual] / shares[rarest]) >= 2
    wrong_way = float(counts[usual]) > (_COUNTS if uneven else _EVEN) * float(counts[rarest])
    if rare or wrong_way:
        which, other = (top, usual) if rare else (usual, rarest)
        message = f"the loss's weights favour class {which} far beyond its share of the labels"
        fix = "weights of 1/frequency: w = 1 / torch.bincount(y).float(); nn.CrossEntropyLoss(weight=w / w.mean())"
        times = f"{float(counts[which] / counts[other].clamp_min(1e-12)):.3g} times"
        evidence = f"a point of it counts {times} one of class {other}; "
        evidence += f"{float(shares[which]):.0%} of the labels are of it, {float(shares[other]):.0%} of that"
        yield seen.fault("class weights", message, fix, evidence=evidence, favoured=which)
