"""What the questions share: answers of the loss, short trainings, the state of a fresh copy; each asked once."""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import Tensor, nn

from firstguess.diagnosis.faults.asking import Answers, End, end_of
from firstguess.diagnosis.faults.patient import NotAsked, Patient
from firstguess.diagnosis.faults.probe import Probe
from firstguess.modules.guard import IsolatedRandomness

_LEARNED = 0.7  # of the way from the best loss to that of a constant guess: below it a model has learned something


class Doctor:
    """Asks a patient, and remembers."""

    def __init__(self, patient: Patient) -> None:
        self.patient = patient
        self.probe = Probe(patient)

    @cached_property
    def out(self) -> Tensor:
        """Outputs of the model as it is, in train mode but for dropout, with a graph to all parameters."""
        model = self.patient.training_copy()
        for parameter in model.parameters():
            parameter.requires_grad_(parameter.is_floating_point())
        with torch.enable_grad(), IsolatedRandomness(self.patient.seed):
            return self.patient.outputs(model)

    @cached_property
    def end(self) -> End:
        return end_of(self.out)

    @cached_property
    def answers(self) -> Answers:
        """Of the user's loss."""
        if self.patient.loss is None:
            raise NotAsked("")
        found = Answers(self.patient.loss_of, self.out, self.patient.labels, self.patient.seed)
        if found.fails:
            raise NotAsked("")
        return found

    @cached_property
    def training(self) -> Answers:
        """Of the loss that it is trained with, which may be one that goes with outputs and labels."""
        return Answers(self.patient.loss_of, self.out, self.patient.labels, self.patient.seed)

    @cached_property
    def loss(self) -> float:
        """Of the model as it is."""
        return self.training.value(self.out.detach())

    @cached_property
    def learned(self) -> bool:
        """Whether it does better than any constant guess."""
        best, constant = self.training.free, self.training.constant[0]
        return self.loss < best + _LEARNED * (constant - best) if not math.isnan(best + constant) else False

    @cached_property
    def has_learned(self) -> bool:
        """The same, and False where nothing tells."""
        try:
            return self.learned
        except Exception:  # no labels, no loss, or one that fails
            return False

    def moves(self, layer: str) -> bool:
        """Whether the loss has a gradient for a layer; False where there is no loss."""
        if self.patient.loss is None:
            return False
        try:
            grads = next(iter(self.probe.gradients(self.patient.training_copy())), {})
        except Exception:  # of a user's model or loss
            return False
        return f"{layer}.weight" in grads and bool(grads[f"{layer}.weight"].any())

    def progress(self, start: float, end: float) -> float:
        """The part of the way from `start` to the best loss that `end` has come."""
        way = start - self.training.free
        return (start - end) / way if way > 0 and math.isfinite(end) else 0.0

    @cached_property
    def weights(self) -> dict[str, nn.Parameter]:
        """Of the model as it is: what multiplies, by name."""
        return {name: w for name, w in self.patient.given.named_parameters() if w.ndim > 1 and w.is_floating_point()}
