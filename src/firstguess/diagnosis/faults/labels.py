"""Labels and targets: of no class of the model, of one class, hardly of the others, far larger than outputs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from firstguess.base.statistics import guesses
from firstguess.diagnosis.faults.asking import IGNORED
from firstguess.diagnosis.faults.base import Fault, Seen
from firstguess.diagnosis.faults.patient import FaultRemark

_MOST, _HALF, _EVEN = 0.85, 0.5, 4.0  # share of the largest class; or half, and this many times an even share
_RARE = 0.05  # of labels that are 1, where several may be
_RECALL = 0.6  # mean recall of a model that has learned the small classes


def out_of_range(seen: Seen) -> Fault | None:
    """Whole numbers below 0 (but −100, which torch leaves out) or from the number of classes on; NaN."""
    y = seen.examination.labels
    if y is None or not y.outside:
        return None
    if y.missing:
        numbers: dict[str, Any] = {"missing": y.missing, "labels": y.count}
        evidence = f"{y.missing} of {y.count}"
        return seen.fault("labels out of range", "labels are NaN", "drop these points", evidence=evidence, **numbers)
    if (y.low, y.high, y.classes) == (-1.0, 1.0, 2) and seen.now.single:
        return None  # −1 and 1, for the sign of one logit: hinge losses want them
    if seen.asker is not None and seen.doctor.patient.loss is not None and seen.now.single:
        a = seen.doctor.training
        if a.numeric or not a.free < -1:  # no loss of probabilities falls below 0 for labels 0 and 1
            return None  # one output, and numbers to regress on
    one_based = y.low == 1 and y.high == y.classes
    message = f"labels go from {y.low:.0f} to {y.high:.0f}, and the model has {y.classes} classes, 0 to {y.classes - 1}"
    fix = "subtract 1 from the labels" if one_based else "number the classes from 0 on, or give the head more outputs"
    numbers = {"low": y.low, "high": y.high, "classes": y.classes, "outside": y.outside, "labels": y.count}
    evidence = f"{y.outside} of {y.count} are none of them"
    return seen.fault("labels out of range", message, fix, evidence=evidence, **numbers)


def shares(seen: Seen) -> Fault | None:
    """One class only; or imbalance that neither the loss evens out nor the model has learned to see through."""
    doctor = seen.doctor
    every = doctor.patient.labels
    if not every.is_floating_point() and bool((every == IGNORED).all()):
        message = f"every label is {IGNORED}, which torch's losses leave out: there is nothing to learn"
        fix, evidence = "look at how labels are made: torch.unique(y)", f"{every.numel()} of {every.numel()} labels"
        return seen.fault("labels out of range", message, fix, evidence=evidence)
    known = doctor.training.classes
    if known is None:
        return None
    y, classes = known
    counts = torch.bincount(y, minlength=classes)
    share, top = float(counts.max()) / len(y), int(counts.argmax())
    if share == 1 and len(y) > 1:
        message = f"every label is class {top}: there is nothing to learn but that"
        fix = "look at how labels are made and at what the split left: torch.bincount(y)"
        evidence = f"{len(y)} of {len(y)} labels"
        return seen.fault("one class of labels", message, fix, evidence=evidence, label=top)
    if not (share >= _MOST or (share >= _HALF and share * classes >= _EVEN)):
        return None
    prefers = doctor.training.preferred
    if prefers is not None and len(prefers) == classes and float(prefers[top]) < 0.5 * (share + 1 / classes):
        return None  # the loss weighs classes
    if doctor.learned or _recall(seen, y, classes) > _RECALL:
        return None
    message = f"most labels are class {top}: guessing it always is nearly right"
    fix = "weights for rare classes: w = 1 / torch.bincount(y).clamp_min(1).float(); "
    fix += "nn.CrossEntropyLoss(weight=w / w.mean()), or a WeightedRandomSampler"
    evidence = f"{share:.0%} of {len(y)} labels; {classes} classes"
    return seen.fault("class imbalance", message, fix, evidence=evidence, share=share, label=top)


def _recall(seen: Seen, y: torch.Tensor, classes: int) -> float:
    """The mean, over classes, of how many of its points are recognized."""
    a, out = seen.doctor.training, seen.doctor.out.detach()
    if a.width == 1:
        guess = (out > (0.5 if seen.doctor.end.name == "sigmoid" else 0.0)).long().reshape(-1)
    else:
        best = guesses(out.movedim(a.axis, -1).cpu().float().numpy(), np.random.default_rng(0))
        guess = torch.from_numpy(best).to(y.device).reshape(-1)
    if len(guess) != len(y):
        return 0.0
    right = torch.bincount(y[guess == y], minlength=classes).double()
    counts = torch.bincount(y, minlength=classes)
    return float((right[counts > 0] / counts[counts > 0]).mean())


def rare(seen: Seen) -> Fault | None:
    """Labels of which several may be 1, and hardly any is: a start at one half has to unlearn that first."""
    a = seen.doctor.answers
    y = a.y
    if a.width < 2 or tuple(y.shape) != a.shape or a.classes is not None or not bool(((y == 0) | (y == 1)).all()):
        return None
    share, constant = float(y.double().mean()), a.constant[0]
    if not share < _RARE or a.softmax_axis is not None or not seen.doctor.loss > 3 * constant:
        return None
    message = "hardly any label is 1, and the model starts by expecting half of them"
    bias = float(torch.logit(torch.tensor(max(share, 1e-6))))
    fix = f"fg.match_prior(model, data, prior='labels'): a head's bias of log(p / (1 − p)), here about {bias:.2f}"
    evidence = f"{share:.1%} are 1; the loss is {seen.doctor.loss:.3g}, that of a constant guess {constant:.3g}"
    return seen.fault("rare labels", message, fix, seen.now.head, evidence, share=share)


MAY_NOT_GO = "labels may not go with the inputs"  # how the remark begins
_POINTS, _SHUFFLES = 200, 99  # that tell a relation from none; of the labels
_CHANCE = 0.1  # of as good a fit to shuffled labels
_SHUFFLE = "shuffle inputs and labels by one permutation, and look at some pairs"


def unrelated(seen: Seen) -> Fault | None:
    """Labels that inputs tell nothing about: ridge regression, linear and by distances, fits shuffled ones as well.

    A note, unless the data are those of training: labels may hang on what no such regression sees.
    """
    doctor = seen.doctor
    x, y = doctor.patient.table
    if {"identical inputs", "one class of labels", "labels out of range"} & set(seen.found) or doctor.has_learned:
        return None
    if len(x) < _POINTS or not bool(y.var(0).any()):
        return None
    fits, chance = _fit(x, y, doctor.patient.seed)
    if not chance > _CHANCE:
        return None
    best = f"inputs predict {max(fits, 0.0):.1%} of their variance"
    words = f"{best}, and shuffled labels do as well in {chance:.0%} of cases"
    if doctor.patient.loader is None and doctor.patient.dataset is None:
        raise FaultRemark(f"{MAY_NOT_GO}: {words} (ridge regression, {len(x)} points)")
    message = "no regression predicts labels from inputs: these were shuffled against each other, or labels are random"
    return seen.fault("labels do not go with inputs", message, _SHUFFLE, evidence=words, chance=chance)


def by_heart(own: float, held: float, error: float, steps: int) -> Fault:
    """Labels that copies in training learn, of points that they see, and of no others."""
    return Fault(
        "labels do not go with inputs",
        f"copies learn labels by heart ({own:.0%} after {steps} steps), and know nothing of points that they have not "
        f"seen ({held:.0%}): these were shuffled against each other, or labels are random",
        "",
        f"balanced accuracy on held-out points is {held:.1%} ± {error:.1%}, every point held out once",
        f"{_SHUFFLE}; if they fit, there are too few points",
        {"own": own, "held": held, "error": error, "steps": steps},
    )


def _fit(x: torch.Tensor, y: torch.Tensor, seed: int) -> tuple[float, float]:
    """The best share of variance that is predicted, each point from all others; and how often shuffled labels are
    predicted as well: the same kernels and penalties, the best of them each time."""
    x = (x - x.mean(0)) / x.std(0).clamp_min(1e-12)
    x = x[:, x.abs().amax(0) > 0]
    y = (y - y.mean(0)) / y.std(0).clamp_min(1e-12)
    stream = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(len(x), generator=stream) for _ in range(_SHUFFLES)]
    tries = torch.stack([y, *(y[order] for order in orders)], 1).reshape(len(x), -1)
    far = torch.cdist(x, x).square()
    best = torch.full((_SHUFFLES + 1,), -math.inf, dtype=x.dtype)
    for kernel in (x @ x.T, torch.exp(-far / far.median().clamp_min(1e-12))):
        kernel = kernel - kernel.mean(0) - kernel.mean(1, keepdim=True) + kernel.mean()
        sizes, axes = torch.linalg.eigh(kernel)
        for penalty in (0.01, 0.1, 1.0):
            kept = sizes.clamp_min(0) / (sizes.clamp_min(0) + penalty * sizes[-1].clamp_min(1e-12))
            hat = (axes * kept) @ axes.T
            off = (tries - hat @ tries) / (1 - hat.diagonal() - 1 / len(x)).clamp_min(1e-6)[:, None]
            best = torch.maximum(best, 1 - off.square().mean(0).reshape(_SHUFFLES + 1, -1).mean(1))
    return float(best[0]), float((best >= best[0]).double().mean())


_TIMES = 30.0  # the outputs' size at the start


def target_scale(seen: Seen) -> Fault | None:
    """Far from the outputs of a re-initialized copy, and at the user's rate it does not get there."""
    doctor = seen.doctor
    if doctor.patient.optimizer is None or doctor.learned or doctor.end.name:
        return None
    a = doctor.answers
    if not a.numeric or not a.y.is_floating_point() or a.y.numel() != doctor.out.numel():
        return None
    y = a.y.double()
    size, out = float(y.square().mean().sqrt()), doctor.patient.outputs(doctor.patient.fresh()).detach().double()
    mine = float(out.square().mean().sqrt())
    if not size > _TIMES * max(mine, 1.0):
        return None
    run = doctor.probe.run(1.0)
    if not run.wild and doctor.progress(run.start, run.end) > 0.5:
        return None
    spread = math.sqrt(float(y.var())) if y.numel() > 1 else size
    message = "targets are far larger than what the model gives at the start"
    fix = "standardize them: (y - y.mean()) / y.std(), and undo it after the model"
    evidence = f"targets have RMS {size:.3g} (standard deviation {spread:.3g}), outputs {mine:.3g}; after "
    evidence += f"{len(run.losses) - 1} steps the loss is {run.end:.3g} of {run.start:.3g}"
    return seen.fault("targets not scaled", message, fix, seen.now.head, evidence, targets=size, outputs=mine)
