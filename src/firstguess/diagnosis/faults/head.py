"""The end of a model: what its last operation can give, and what its weights and biases decide."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from firstguess.diagnosis.faults.base import NOTABLE, Fault, Seen, excess, named

_SHORT = 0.3  # of the way from the best loss to that of a constant guess, that a head cannot go
_NO_ACTIVATION = "no activation after the last layer"


def one_unit(seen: Seen) -> Fault | None:
    """A softmax over an axis of one entry is 1 whatever comes in."""
    out, end = seen.doctor.out, seen.doctor.end
    if "softmax" not in end.name or not out.ndim or out.shape[end.axis] != 1:
        return None
    value = "1" if end.name == "softmax" else "0"
    message = f"a {end.name} over one unit is {value} for every input, and passes no gradient"
    fix = "nn.Sigmoid() in its place; or none, with nn.BCEWithLogitsLoss()"
    evidence = f"outputs {tuple(out.shape)}, all {value}"
    return seen.fault("softmax over one unit", message, fix, seen.now.head, evidence)


def misfit(seen: Seen) -> Fault | None:
    """A softmax or sigmoid before a loss that has one; or outputs that cannot come near the targets."""
    if "softmax over one unit" in seen.found:
        return None
    a, end = seen.doctor.answers, seen.doctor.end
    logs = end.name == "log-softmax" and (a.softmax_axis is not None or a.linear or not a.numeric)
    if not end.name or logs or not a.depends:
        return None
    best, constant, reached = a.free, a.constant[0], a.reached(end)
    short = (reached - best) / (constant - best) if constant > best else math.nan
    numbers: dict[str, Any] = {"reached": reached, "best": best, "constant": constant}
    evidence = f"the loss cannot fall below {reached:.3g}; a constant guess has {constant:.3g}, free outputs {best:.3g}"
    if end.name == "softmax" and a.softmax_axis is not None:
        places = dict.fromkeys(place for pair in seen.examination.ops.twice[:1] for place in pair if place)
        own = f"in {' and in '.join(map(named, places))}" if places else "at the end of the model"
        message = (
            f"softmax is applied {own}, and again in the loss: gradients are small, and the loss cannot come near 0"
        )
        fix, last = "no softmax at the end of the model; or log_softmax with nn.NLLLoss()", [seen.now.head, *places][-1]
        return seen.fault("softmax twice", message, fix, last, evidence, outputs="softmax", **numbers)
    exclusive = a.softmax_axis is not None or a.normalizes or (a.only_label and bool(a.wants_probabilities))
    if end.name == "sigmoid" and a.width > 1 and exclusive:
        message = "each output is a probability of its own, and the loss is one of classes that exclude each other"
        fix = "no sigmoid, with nn.CrossEntropyLoss(); for labels that may occur together nn.BCEWithLogitsLoss()"
        return seen.fault("sigmoid with a softmax loss", message, fix, seen.now.head, evidence, **numbers)
    if end.name == "ReLU" or not short > _SHORT:
        return None
    message, fix = f"the model ends in a {end.name}, and targets lie outside of what it gives", _NO_ACTIVATION
    if end.name == "sigmoid" and a.classes is not None and not a.numeric:
        message = "the model ends in a sigmoid, and the loss has one too"
        fix = "no sigmoid at the end of the model; or nn.BCELoss()"
    return seen.fault("head cannot reach the targets", message, fix, seen.now.head, evidence, **numbers)


def over_batch(seen: Seen) -> Fault | None:
    """Outputs of each class that sum to 1 over the points of a batch."""
    if not seen.examination.over_batch:
        return None
    message = (
        "each class's outputs sum to 1 over the points of a batch, so that points compete with each other, not classes"
    )
    fix = "softmax over the classes, dim=-1; or none at all, where the loss is CrossEntropyLoss"
    return seen.fault("softmax over the batch", message, fix)


def twice(seen: Seen) -> Fault | None:
    """A softmax of probabilities; or outputs that are probabilities, which become one where the loss has a softmax."""
    x = seen.examination
    if seen.asker is not None and seen.doctor.patient.loss is not None:
        return None  # the loss itself is asked
    if x.ops.twice:
        first, place = x.ops.twice[0]
        both = f": in {named(first)} and in {named(place)}" if first and first != place else f" in {named(place)}"
        message = f"softmax is applied twice{both}, which flattens probabilities to within a factor e of each other"
        fix = "remove both if you use nn.CrossEntropyLoss, which applies softmax itself; otherwise remove one"
        return seen.fault("softmax twice", message, fix, place)
    if not x.probabilities:
        return None
    return seen.fault(
        "softmax twice",
        "outputs are probabilities; if your loss applies softmax again, as CrossEntropyLoss does, gradients are small "
        "and the loss cannot come near 0",
        "no softmax at the end of the model; or log_softmax with NLLLoss",
        outputs="softmax",
    )


def relu(seen: Seen) -> Fault | None:
    """What the model returns is what a ReLU returned."""
    x = seen.examination
    end = None if seen.asker is None else seen.doctor.end.name
    if (not x.relu if end is None else end not in ("ReLU", "clamp")) or "Dropout(1)" in seen.found:
        return None
    if end == "clamp" and not (x.relu and x.zeros):  # cut elsewhere, or at 0 and never there
        return None
    message = "logits go through a ReLU: where they are 0 no gradient passes, and classes tie"
    place, evidence = x.relu or seen.now.head, f"{x.zeros:.0%} of them are 0 on these points"
    return seen.fault("ReLU after the head", message, _NO_ACTIVATION, place, evidence, zeros=x.zeros)


_TIES = 0.01


def zero(seen: Seen) -> Fault | None:
    """Ties of a head whose weights are 0, or that gives every class the same logit; or weights 0 with a bias."""
    now = seen.now
    if {"Dropout(1)", "ReLU after the head", "dead units", "mask that hides everything"} & set(seen.found):
        return None
    constant, level = now.head_zero and seen.examination.same, now.level or seen.examination.level
    if not constant and not (level or (now.head_zero and now.ties >= _TIES)):
        return None
    why = "its weights are zero" if now.head_zero else "it gives every class the same logit"
    then = "so its bias alone decides, the same for all points" if now.head_zero else "up to rounding, which decides"
    if now.ties >= _TIES:
        then = f"so {now.ties:.1%} of the points have no largest logit; an arg-max takes the first class"
    fix = "small random weights; or leave it if it is meant: the first step of training moves it"
    meant = seen.asker is not None and seen.doctor.moves(now.head)
    numbers: dict[str, Any] = {"ties": now.ties, "weights_zero": now.head_zero, "meant": meant}
    return seen.fault("zero head", f"{now.head}: {why}, {then}", fix, now.head, **numbers)


_HALF = 0.5
_APART = 3.0  # times what torch's initializer reaches, 1/√fan_in, and times the range of the other classes


def bias_decides(seen: Seen) -> Fault | None:
    """The favoured class's bias stands apart, and decides: without it that class, or the excess over an even split,
    gets half at most; or it is far beyond what the rest of the logits vary by."""
    now = seen.now
    if now.bias is None or now.without_bias is None or now.level or now.head_zero:
        return None
    if (against := _against(seen)) is not None:
        return against
    if not float(excess(now.fractions)) >= NOTABLE:  # of few points too: what follows is no play of chance
        return None
    bias = np.array([-now.bias[0], now.bias[0]]) if now.single else now.bias
    favoured = int(now.fractions.argmax())
    others = np.delete(bias, favoured)
    apart = float(bias[favoured] - np.median(others))
    # What an initializer gives is never so far apart.
    if apart <= _APART * max(now.reach, float(np.ptp(others))):
        return None
    mine, without, even = float(now.fractions[favoured]), float(now.without_bias[favoured]), 1 / len(bias)
    fewer = without <= _HALF * mine or now.without_bias.max() - even < _HALF * (mine - even)
    # The one bias's part in the mean square of the logits, without what all classes share (theory.md (38)).
    own = (apart / 2) ** 2 if now.single else apart**2 / len(bias)
    rest = math.sqrt(max(0.0, seen.examination.size**2 - own))
    if not fewer and apart <= _APART * rest:
        return None
    evidence = (
        f"it is {apart:.3g} larger than for others; the class gets {mine:.1%} of the points, {without:.1%} without it"
    )
    return _head_bias(seen, f"decides for class {favoured}", evidence)


def _head_bias(seen: Seen, does: str, evidence: str) -> Fault:
    now, fix = seen.now, "unless it is set to the classes' frequencies on purpose"
    assert now.bias is not None and now.without_bias is not None  # noqa: PT018 - known by both who call this
    fix = f"nn.init.zeros_({seen.code(now.head)}.bias), {fix}"
    numbers: dict[str, Any] = {"bias": now.bias.tolist(), "largest_without": float(now.without_bias.max())}
    return seen.fault("head bias", f"the head's bias {does}", fix, now.head, evidence, **numbers)


def _against(seen: Seen) -> Fault | None:
    """A class that its bias alone keeps from ever being guessed, though labels are of it where these are known."""
    now = seen.now
    assert now.bias is not None and now.without_bias is not None  # noqa: PT018 - asked before
    if len(now.bias) < 3 or len(now.bias) != len(now.without_bias):
        return None
    least = int(now.bias.argmin())
    others = np.delete(now.bias, least)
    apart = float(np.median(others) - now.bias[least])
    share, without = float(now.fractions[least]), float(now.without_bias[least])
    far = apart > _APART * max(now.reach, float(np.ptp(others)), 1.0)
    if not far or share > 0 or without < _HALF / len(now.bias) or _hardly_any(seen, least):
        return None
    evidence = f"it is {apart:.3g} smaller than for others; the class gets none of the points, {without:.1%} without it"
    return _head_bias(seen, f"keeps class {least} from ever being guessed", evidence)


def _hardly_any(seen: Seen, label: int) -> bool:
    try:
        known = seen.doctor.training.classes if seen.asker is not None else None
    except Exception:  # no labels, or none that tell
        return False
    return known is not None and float((known[0] == label).double().mean()) < 0.2 / known[1]


_DO = "smaller weights or inputs before it, or a norm"


def saturated(seen: Seen) -> Fault | None:
    """More than half of all values beyond 0.99 of the range."""
    x = seen.examination
    if seen.asker is not None and seen.doctor.has_learned:
        return None  # it is certain because it knows
    if seen.notable and x.now.probabilities and x.now.sure > _HALF:
        message = f"the model ends in a {x.now.probabilities} at the ends of its range, where gradients are almost 0"
        numbers: dict[str, Any] = {"outputs": x.now.probabilities, "sure": x.now.sure}
        evidence = f"above 0.99 on {x.now.sure:.0%} of the points"
        return seen.fault("saturated outputs", message, _DO, evidence=evidence, **numbers)
    layers: dict[str, float] = {}
    for site, (at, of) in x.ops.ends.items():
        name = site[1]
        if at > _HALF * of and site not in x.ops.gates:  # open and closed is what gates are for
            layers[name] = max(at / of, layers.get(name, 0.0))
    if not layers:
        return None
    worst = max(layers, key=layers.__getitem__)
    message = f"{worst} is at the ends of its range, where gradients are almost 0"
    evidence = f"{layers[worst]:.0%} of its values are beyond 0.99 of the range; {len(layers)} such layers"
    return seen.fault("saturated outputs", message, _DO, worst, evidence, saturated=layers[worst], layers=layers)
