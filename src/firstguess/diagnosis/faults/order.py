"""One headline: which fault stands first, and which ones another explains."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import get_args

from firstguess.diagnosis.faults.base import Fault, FaultName

# Data before the model, the model before its training, facts before what follows from them.
RANKS: tuple[str, ...] = get_args(FaultName)
_STATE = (
    "NaN or Inf", "dead units", "dead layer", "saturated outputs", "head bias", "vanishing logits",
    "same output for all inputs", "gradients vanish", "gradients explode", "identical units",
)  # fmt: skip
_TRAINING = (
    "learning rate too high", "learning rate too small", "too few steps", "weight decay too strong",
    "gradients left over",
)  # fmt: skip
_SLOW = ("learning rate too small", "too few steps")
_DATA = ("class imbalance", "class weights", "rare labels")
_BEYOND = ("head cannot reach the targets", "loss wants probabilities")
_LOSS = ("softmax twice", "loss does not depend on the outputs", "targets broadcast", "loss wants probabilities")
EXPLAINS: dict[str, tuple[str, ...]] = {
    "labels out of range": (*_DATA, *_TRAINING, "dead layer"),
    "identical inputs": (*_STATE, *_TRAINING, "inputs replaced by their mean"),
    "inputs replaced by their mean": (*_STATE, *_TRAINING),
    "points of a batch are mixed": (*_STATE, *_TRAINING, "labels do not go with inputs"),
    "one class of labels": (*_STATE, *_TRAINING, *_DATA, "outputs and labels not paired"),
    "frozen parameters": (*_TRAINING, "dead layer"),
    "parameters missing from the optimizer": _TRAINING,
    "weights never initialized": (*_STATE, "zero head", *_SLOW, "log(0)", "unscaled inputs"),
    "mask that hides everything": (*_STATE, *_TRAINING),
    "log(0)": _STATE,
    "Dropout(1)": (*_STATE, "ReLU after the head"),
    "softmax over one unit": (*_STATE, "zero head", *_TRAINING, *_DATA, *_LOSS, "softmax over the batch"),
    "softmax over the batch": ("softmax twice", "saturated outputs", *_TRAINING),
    "loss does not depend on the outputs": (*_TRAINING, "dead layer", *_DATA),
    "ReLU after the head": (*_STATE, "zero head", *_TRAINING, *_DATA, *_BEYOND),
    "head cannot reach the targets": (*_STATE, *_TRAINING, "targets broadcast", "targets not scaled", "softmax twice"),
    "targets broadcast": (*_STATE, *_TRAINING, *_DATA, "loss wants probabilities", "regression loss for classes"),
    "outputs and labels not paired": (*_STATE, *_TRAINING, *_DATA),
    "loss wants probabilities": (*_STATE, *_TRAINING, *_DATA),
    "loss wants log-probabilities": (*_STATE, *_TRAINING, *_DATA, "softmax twice"),
    "sigmoid with a softmax loss": (*_STATE, *_TRAINING, *_DATA),
    "softmax twice": (*_STATE, *_TRAINING, *_DATA),
    "regression loss for classes": (*_STATE, *_TRAINING, *_DATA, "targets not scaled"),
    "unscaled inputs": (*_STATE, *_TRAINING),
    "labels do not go with inputs": (*_TRAINING, *_DATA),
    "inputs unlike the reference": ("unscaled inputs", "saturated outputs", "dead units", "same output for all inputs"),
    "last token is padding": ("same output for all inputs", *_TRAINING),
    "running statistics": ("saturated outputs", "same output for all inputs", "NaN or Inf"),
    "spectral norm before its first step": ("saturated outputs",),
    "batchnorm in eval mode before training": ("vanishing logits",),
    "targets not scaled": (*_STATE, *_TRAINING),
    "weight decay too strong": (*_STATE, "zero head", "learning rate too high", *_SLOW, *_DATA),
    "learning rate too high": (*_STATE, "zero head", "weights never initialized", "log(0)", *_DATA),
    "class weights": ("head bias", "class imbalance", "same output for all inputs"),
    "dead layer": (
        "dead units",
        "same output for all inputs",
        "zero head",
        "gradients vanish",
        *_SLOW,
        *_DATA,
        "vanishing logits",
    ),
    "identical units": ("same output for all inputs", *_SLOW, "vanishing logits", "gradients vanish"),
    "gradients explode": ("saturated outputs", "dead units", "gradients vanish", "same output for all inputs", *_DATA),
    "checkpoint not loaded": (*_SLOW, *_DATA),
    "dead units": ("same output for all inputs", *_SLOW, *_DATA),
    "zero head": ("same output for all inputs",),
    "gradients vanish": ("same output for all inputs", *_SLOW, *_DATA),
    "vanishing logits": ("same output for all inputs", "gradients vanish", *_SLOW, *_DATA),
    "learning rate too small": ("class imbalance", "rare labels"),
    "too few steps": ("class imbalance", "rare labels"),
    "NaN or Inf": ("saturated outputs", *_SLOW),
}
# What only training does to a model: a fault of these that a fresh copy has as well is none of its symptoms.
_ACQUIRED = ("learning rate too high", "weight decay too strong")


def arranged(found: Sequence[Fault], fresh: Collection[str] = ()) -> tuple[Fault, ...]:
    """The headline first; what another fault explains is among its symptoms. `fresh` are faults of a fresh copy."""
    ranked = sorted(found, key=lambda f: RANKS.index(f.name) if f.name in RANKS else len(RANKS))
    kept: list[Fault] = []
    for fault in ranked:
        if not any(explains(one, fault, fresh) for one in ranked):
            mine = [one for one in ranked if explains(fault, one, fresh)]
            kept.append(replace(fault, symptoms=(*fault.symptoms, *mine)) if mine else fault)
    return tuple(kept) or tuple(ranked)


def is_symptom(name: str) -> bool:
    """Whether a rate that is too high may bring this fault."""
    return name in EXPLAINS["learning rate too high"]


def explains(cause: Fault, fault: Fault, fresh: Collection[str] = ()) -> bool:
    """Whether `fault` follows from `cause`; what is said with an "if" explains nothing."""
    if cause is fault or (cause.name == "softmax twice" and not cause.evidence):
        return False
    return fault.name in EXPLAINS.get(cause.name, ()) and not (cause.name in _ACQUIRED and fault.name in fresh)
