"""Inputs and how they come: identical, unscaled, unlike those of training, in blocks of a class, drowned by noise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch

from firstguess.data import batches as as_batches
from firstguess.data.streams import IsolatedRandomness
from firstguess.diagnosis.faults.base import Fault, Seen
from firstguess.modules.call_model import leaves


def identical(seen: Seen) -> Fault | None:
    """Facts, up to a rounding of 1e-6 of the largest value."""
    given = seen.examination.given
    if given.same:
        message = "all points are the same: one point copied, or each replaced by their mean"
        fix, evidence = "look at what the loader gives: x[0], x[1], x.std(0)", f"{seen.now.points} points"
        return seen.fault("identical inputs", message, fix, evidence=evidence, same=True)
    if given.flat:
        message = "every point has one value in all its entries, as if it were replaced by its mean"
        fix = "look at what the loader gives, and at averages (mean, pooling) in its transforms"
        return seen.fault("inputs replaced by their mean", message, fix, flat=True)
    return None


_LARGE = 10.0  # RMS of what the first layer with weights gets; standardized data have 1, pixels from 0 to 255 about 100
_PIXELS = 255
_LOSS = 1.5  # times log M: what is large but no pixels must do harm


def unscaled(seen: Seen) -> Fault | None:
    """Find inputs unscaled at the first weights: a model that divides by 255, or normalizes first, is fine."""
    given = seen.examination.given
    if not given.rms > _LARGE or "identical inputs" in seen.found:
        return None
    pixels = given.low >= 0 and _PIXELS / 2 < given.high <= _PIXELS
    loss = seen.examination.loss if not math.isnan(seen.examination.loss) else seen.examination.loss_even
    if not pixels and not loss > _LOSS * math.log(len(seen.now.fractions)):
        return None
    what = "pixels from 0 to 255 that nobody scaled" if pixels else f"values from {given.low:.3g} to {given.high:.3g}"
    message = f"the first layer with weights gets {what}"
    fix = "x / 255, then subtract the mean and divide by the standard deviation" if pixels else "standardize the inputs"
    evidence = f"RMS {given.rms:.3g}{f'; {words}' if (words := seen.words_of_loss) else ''}"
    numbers: dict[str, Any] = {"low": given.low, "high": given.high, "rms": given.rms, "loss": loss, "pixels": pixels}
    return seen.fault("unscaled inputs", message, fix, evidence=evidence, **numbers)


_BATCHES, _BLOCKS = 64, 0.5  # that are read; of the entropy of all labels
_APART, _TIMES = 2.0, 3.0  # standard deviations between means; ratio of standard deviations
_DROWNED = 0.3  # correlation of two draws of one item, over what different items have


def blocks(seen: Seen) -> Fault | None:
    """Labels within the batches of training's loader differ far less than all of them do."""
    doctor = seen.doctor
    if doctor.patient.loader is None:
        return None
    batches = list(islice(as_batches(doctor.patient.loader), _BATCHES))
    labels = [_classes(b.labels) for b in batches if b.labels is not None]
    labels = [y for y in labels if y is not None and len(y) > 1]
    if len(labels) < 2:
        return None
    every = torch.cat(labels)
    whole = _entropy(every)
    order = torch.randperm(len(every), generator=torch.Generator().manual_seed(0))
    dealt = [_entropy(part) for part in every[order].split([len(y) for y in labels])]
    within = [_entropy(y) for y in labels]
    mine, usual = sum(within) / len(within), sum(dealt) / len(dealt)
    sd = math.sqrt(sum((d - usual) ** 2 for d in dealt) / len(dealt))
    if whole == 0 or not mine < _BLOCKS * usual or not usual - mine > 5 * sd / math.sqrt(len(dealt)):
        return None
    message = "batches hold points of few classes each, one after the other: the last class seen wins"
    evidence = f"entropy of labels within a batch {mine:.2f}, {usual:.2f} if they were shuffled"
    fix = "DataLoader(…, shuffle=True)"
    return seen.fault("labels come in blocks", message, fix, evidence=evidence, within=mine, shuffled=usual)


def _classes(y: torch.Tensor) -> torch.Tensor | None:
    if y.is_floating_point() and not bool((y == y.round()).all()):
        return None
    if y.ndim > 1 and y.shape[1] > 1 and not y.is_floating_point():
        return None
    return y.argmax(1) if y.ndim == 2 and y.shape[1] > 1 else y.flatten().long()


def _entropy(y: torch.Tensor) -> float:
    p = torch.unique(y, return_counts=True)[1].double() / len(y)
    return float(-(p * p.log()).sum())


def unlike(seen: Seen) -> Fault | None:
    """Inputs against the training inputs that `reference=` gives: mean and standard deviation of all entries."""
    doctor = seen.doctor
    if doctor.patient.reference is None:
        return None
    mine = _entries([leaves(b.inputs) for b in doctor.patient.batches])
    other = _entries([leaves(b.inputs) for b in islice(as_batches(doctor.patient.reference), _BATCHES)])
    if mine is None or other is None:
        return None
    (m, s), (m0, s0) = ((float(x.mean()), float(x.std())) for x in (mine, other))
    times = max(s / max(s0, 1e-30), s0 / max(s, 1e-30))
    if not (abs(m - m0) > _APART * max(s0, 1e-30) or times > _TIMES):
        return None
    message = "these inputs are scaled differently from those of training"
    fix = "the same transform for training and use, with the training data's mean and standard deviation"
    evidence = f"mean {m:.3g}, standard deviation {s:.3g}; in training {m0:.3g} and {s0:.3g}"
    numbers: dict[str, Any] = {"mean": m, "std": s, "reference_mean": m0, "reference_std": s0}
    return seen.fault("inputs unlike the reference", message, fix, evidence=evidence, **numbers)


def _entries(many: list[dict[Any, torch.Tensor]]) -> torch.Tensor | None:
    floats = [x.detach().double().flatten() for one in many for x in one.values() if x.is_floating_point()]
    return torch.cat(floats) if floats else None


def augmentation(seen: Seen) -> Iterator[Fault]:
    """Two draws of the same items are hardly more alike than different items are."""
    doctor = seen.doctor
    dataset: Any = doctor.patient.dataset
    dataset = getattr(doctor.patient.loader, "dataset", None) if dataset is None else dataset
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        return
    count = min(24, len(dataset))
    with IsolatedRandomness(doctor.patient.seed):
        draws = [[_first(dataset[i * len(dataset) // count]) for i in range(count)] for _ in range(2)]
    if any(x is None or x.shape != draws[0][0].shape for draw in draws for x in draw) or count < 8:
        return
    one, two = (torch.stack([x.double().flatten() for x in draw]) for draw in draws)
    if torch.equal(one, two):
        return
    middle = torch.cat((one, two)).mean(0)
    one, two = one - middle, two - middle
    alike = float((one * two).sum() / (one.norm() * two.norm()).clamp_min(1e-30))
    if alike < _DROWNED:
        message = "two draws of the same item have hardly more in common than two items"
        evidence = f"correlation of two draws of one item {alike:.2f}"
        fix = "weaker augmentation: look at dataset[0] a few times"
        yield seen.fault("augmentation drowns the signal", message, fix, evidence=evidence, correlation=alike)


def _first(item: Any) -> Any:
    x = item[0] if isinstance(item, (tuple, list)) else item
    return x.detach() if isinstance(x, torch.Tensor) and x.is_floating_point() and x.numel() > 1 else None
