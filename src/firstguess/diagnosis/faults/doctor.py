"""Who asks: short trainings of copies, answers of the loss, the state of a fresh copy; each asked once."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from firstguess.data.streams import IsolatedRandomness
from firstguess.diagnosis.faults.asking import Answers, End, end_of
from firstguess.diagnosis.faults.patient import NotApplicable, Patient

STEPS = 30
_RISE = 1.3  # of the loss, that is no noise of 30 steps on the same points
_PEAK = 5.0
_ALIKE = 0.01  # of the outputs' size: how little they differ from point to point where they have collapsed
_LAST = 5  # steps that the end is the average of


@dataclass(frozen=True)
class Run:
    """Losses before each step and after the last, and what the outputs are then."""

    losses: tuple[float, ...]
    varies: tuple[float, float]  # standard deviation of outputs over points: at the start, at the end
    size: float  # root mean square of the outputs at the end, without what classes share

    @property
    def start(self) -> float:
        return self.losses[0]

    @property
    def end(self) -> float:
        last = self.losses[-_LAST:] if len(self.losses) > 2 * _LAST else self.losses[-1:]
        return sum(last) / len(last)

    @property
    def finite(self) -> bool:
        return all(math.isfinite(x) for x in self.losses)

    @property
    def collapsed(self) -> bool:
        return self.varies[1] < min(_ALIKE * self.size, 0.1 * self.varies[0]) or self.varies[1] == 0 < self.varies[0]

    @property
    def wild(self) -> bool:
        """Whether the loss rose, left the numbers, or outputs became one for all points."""
        if not self.finite:
            return True
        top, size = max(self.losses), abs(self.start) + 1e-12
        risen = self.end - self.start > (_RISE - 1) * size
        return risen or self.collapsed or (top - self.start > (_PEAK - 1) * size and self.end > 0.9 * self.start)

    @property
    def calm(self) -> bool:
        return self.finite and not self.collapsed and self.end <= self.start + 0.02 * abs(self.start)


@dataclass
class Probe:
    """Runs of re-initialized copies, or of the model as it is, on the same points."""

    patient: Patient
    _runs: dict[tuple[float, ...], Run] = field(default_factory=dict[tuple[float, ...], Run])
    _a_step: float = 0.0

    def run(self, factor: float, *, decay: bool = True, seed: int = 0, steps: int = STEPS, own: bool = False) -> Run:
        """Train a copy at `factor` times the rate; with weight decay if `decay`, from the `own` weights if so."""
        key = (factor, decay, seed, steps, own)
        if key not in self._runs:
            if self._a_step * steps > self.patient.left:
                raise NotApplicable("there was no time left")
            model = self.patient.training_copy() if own else self.patient.fresh(seed)
            self._runs[key] = self._train(model, factor, decay, steps)
        return self._runs[key]

    def _train(self, model: nn.Module, factor: float, decay: bool, steps: int) -> Run:
        p = self.patient
        optimizer = p.optimizer_of(model, factor, decay)
        losses: list[float] = []
        first = (0.0, 0.0)
        began = time.perf_counter()
        with IsolatedRandomness(p.seed), torch.enable_grad():

            def closure() -> torch.Tensor:
                optimizer.zero_grad(set_to_none=True)
                loss = p.loss_of(p.outputs(model))
                if loss.grad_fn is not None:
                    loss.backward()
                return loss

            for k in range(steps):
                if not losses:
                    with torch.no_grad():
                        first = spread(p.outputs(model))
                if isinstance(optimizer, torch.optim.LBFGS):
                    value = optimizer.step(closure)  # pyright: ignore[reportArgumentType, reportCallIssue]
                    losses.append(float(value))  # pyright: ignore[reportArgumentType]
                else:
                    losses.append(float(closure().detach()))
                    optimizer.step()
                if not math.isfinite(losses[-1]):
                    break
                if k == 2:
                    self._a_step = (time.perf_counter() - began) / 3
                if k >= 2 and p.left < 0:
                    raise NotApplicable("there was no time left")
            with torch.no_grad():
                out = p.outputs(model)
                losses.append(float(p.loss_of(out)))
        last = spread(out)
        return Run(tuple(losses), (first[0], last[0]), last[1])

    @cached_property
    def sharpness(self) -> float:
        """The largest eigenvalue of the loss's Hessian at a re-initialized copy, by 12 products with vectors."""
        p = self.patient
        model = p.fresh()
        weights = [w for w in model.parameters() if w.requires_grad]
        with IsolatedRandomness(p.seed), torch.enable_grad():
            grads: Any = torch.autograd.grad(p.loss_of(p.outputs(model)), weights, create_graph=True, allow_unused=True)
            pairs = [(g, w) for g, w in zip(grads, weights, strict=True) if g is not None and g.requires_grad]
            v = [torch.randn_like(w) for _, w in pairs]
            size = 0.0
            for _ in range(12):
                norm = math.sqrt(sum(float(x.square().sum()) for x in v)) or 1.0
                v = [x / norm for x in v]
                found, weights = [g for g, _ in pairs], [w for _, w in pairs]
                products: Any = torch.autograd.grad(found, weights, v, retain_graph=True, allow_unused=True)
                new = [torch.zeros_like(x) if h is None else h for h, x in zip(products, v, strict=True)]
                size = sum(float((a * b).sum()) for a, b in zip(new, v, strict=True))
                v = new
        return size

    def gradients(self, model: nn.Module, steps: int = 0, factor: float = 1.0) -> list[dict[str, torch.Tensor]]:
        """The gradient of every parameter that the loss reaches: now, and after each of some steps."""
        p = self.patient
        found: list[dict[str, torch.Tensor]] = []
        optimizer = p.optimizer_of(model, factor) if steps else None
        with IsolatedRandomness(p.seed), torch.enable_grad():
            for k in range(steps + 1):
                model.zero_grad(set_to_none=True)
                loss = p.loss_of(p.outputs(model))
                if loss.grad_fn is None:
                    return found
                loss.backward()
                found.append({n: w.grad.clone() for n, w in model.named_parameters() if w.grad is not None})
                if optimizer is not None and k < steps and not isinstance(optimizer, torch.optim.LBFGS):
                    optimizer.step()
        return found


def spread(out: torch.Tensor) -> tuple[float, float]:
    """The standard deviation of outputs over points, and their root mean square, without what classes share."""
    rows = out.detach().double().reshape(len(out), -1)
    if rows.shape[1] > 1:
        rows = rows - rows.mean(1, keepdim=True)
    if len(rows) < 2 or not bool(torch.isfinite(rows).all()):
        return math.nan, math.nan
    return float(rows.var(0, correction=0).mean().sqrt()), float(rows.square().mean().sqrt())


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
        """The answers of the user's loss."""
        if self.patient.loss is None:
            raise NotApplicable("")
        found = Answers(self.patient.loss_of, self.out, self.patient.labels, self.patient.seed)
        if found.fails:
            raise NotApplicable("")
        return found

    @cached_property
    def training(self) -> Answers:
        """The answers of the loss that it is trained with, which may be one that goes with outputs and labels."""
        return Answers(self.patient.loss_of, self.out, self.patient.labels, self.patient.seed)

    @cached_property
    def loss(self) -> float:
        """The loss of the model as it is."""
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
        """The weights of the model as it is: what multiplies, by name."""
        return {name: w for name, w in self.patient.given.named_parameters() if w.ndim > 1 and w.is_floating_point()}
