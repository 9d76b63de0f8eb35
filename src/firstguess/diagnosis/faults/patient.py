"""The model under examination, with what it is trained by: copies of it, fresh ones, its loss, its optimizer."""

from __future__ import annotations

import copy
import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias, cast

import torch
import torch.nn.functional as F
from torch import nn, optim

from firstguess.base.errors import InvalidInput
from firstguess.data import Batch
from firstguess.data.streams import IsolatedRandomness
from firstguess.diagnosis.faults.asking import Answers
from firstguess.modules.call_model import Caller, fewer, joined, signature
from firstguess.modules.guard import every_module_called, is_lazy, own_copy, unwrapped
from firstguess.modules.members.sources import shaped_by, source_of
from firstguess.modules.optimizers import recipe
from firstguess.modules.outputs import Pick, find_logits

# A loss of (outputs, labels), and an optimizer: an instance, or a function of the parameters.
Loss: TypeAlias = "Callable[[Any, Any], Any] | None"
Optimizer: TypeAlias = Any

POINTS, FEWEST = 256, 32  # that questions are asked with
_RESIZED = 4.0  # of a weight's size: further off it was blown up, or decayed
_STEPS = 400  # of training that there should be time for


@dataclass
class Patient:
    """A model (an instance, or what makes one), data, and all that is known of its training."""

    what: Any
    batches: Sequence[Batch]
    loss: Loss = None
    optimizer: Optimizer = None
    loader: Any = None
    dataset: Any = None
    reference: Any = None
    steps: int | None = None
    pick: Pick = None
    untrained: str = ""  # what looks like a fresh draw, of a model that is said to be trained: "all", or in words
    seed: int = 0
    seconds: float = 10.0
    began: float = field(default_factory=time.perf_counter)
    _call: Caller = field(default_factory=Caller)
    _states: dict[int, dict[str, torch.Tensor]] = field(default_factory=dict[int, dict[str, torch.Tensor]])

    @property
    def left(self) -> float:
        """Seconds."""
        return self.began + self.seconds - time.perf_counter()

    # -- Models --------------------------------------------------------------------------------------------------------

    @cached_property
    def given(self) -> nn.Module:
        """The user's instance, or one that the factory makes. It is not to be run."""
        if isinstance(self.what, nn.Module):
            return unwrapped(self.what)
        with IsolatedRandomness(self.seed):
            return unwrapped(self.what())

    def copy(self) -> nn.Module:
        """The model as it is, in its mode."""
        twin = own_copy(self.given)
        if twin is None:
            raise NotApplicable("the model cannot be copied")
        if is_lazy(twin):
            with IsolatedRandomness(self.seed), torch.no_grad():
                shaped_by(twin, self.batches[0])
        for parameter in twin.parameters():
            parameter.grad = None
        return twin

    def training_copy(self) -> nn.Module:
        """The model as it is, in train mode but for dropout."""
        return in_training(self.copy())

    @cached_property
    def _source(self) -> Any:
        if not isinstance(self.what, nn.Module):
            return source_of(self.what, [self.batch], mode="train")
        return source_of(self.given, [self.batch], mode="train", trained=self.stepped, redraw="all")

    @property
    def stepped(self) -> bool:
        """Whether the model may have been trained: unless its optimizer has not taken a step."""
        own = isinstance(self.optimizer, optim.Optimizer)
        return not own or bool(self.optimizer.state) or not self.optimizer_keeps_state

    @property
    def optimizer_keeps_state(self) -> bool:
        """Whether a step leaves a trace in the optimizer: plain descent keeps none."""
        return not (isinstance(self.optimizer, optim.SGD) and not self.optimizer.param_groups[0].get("momentum"))

    def fresh(self, seed: int = 0) -> nn.Module:
        """A re-initialized copy in train mode but for dropout; buffers are those of no data."""
        twin = self.training_copy()
        if seed not in self._states:
            with self._source.member(self.seed + seed) as member:
                self._states[seed] = {name: value.detach().clone() for name, value in member.state_dict().items()}
            if self.stepped:
                _resize(self._states[seed], self.given)
        twin.load_state_dict(self._states[seed])
        for module in twin.modules():
            if isinstance(module, nn.modules.batchnorm._NormBase):  # pyright: ignore[reportPrivateUsage]
                module.reset_running_stats()
        return twin

    # -- One step ------------------------------------------------------------------------------------------------------

    @cached_property
    def batch(self) -> Batch:
        """Points that questions are asked with, spread over the data: as many as some hundred steps have time for."""
        count = POINTS
        if self.seconds == math.inf:
            return _whole(fewer(self.batches, count))
        while True:
            batch = _whole(fewer(self.batches, count))
            model, began = self.training_copy(), time.perf_counter()
            with IsolatedRandomness(self.seed), torch.enable_grad():
                for _ in range(2):  # the first call of a model is slower
                    began = time.perf_counter()
                    out = self.outputs(model, batch)
                    if out.requires_grad:
                        out.float().square().mean().backward()
            room = self.seconds / (_STEPS * max(time.perf_counter() - began, 1e-6))
            if room >= 1 or count <= FEWEST:
                return batch
            count = max(FEWEST, min(count // 2, int(count * room)))

    @property
    def table(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and labels as rows of numbers, one of each per point: at most some hundred."""
        few = _whole(fewer(self.batches, 2 * POINTS))
        x, y = few.inputs, few.labels
        if not isinstance(x, torch.Tensor) or not x.is_floating_point() or y is None or len(y) != len(x):
            raise NotApplicable("")
        whole = not y.is_floating_point()
        if y.numel() != len(y) and (whole or y.ndim > 2):
            raise NotApplicable("")
        if whole and int(y.max()) > 1:
            y = F.one_hot(y.reshape(-1).clamp_min(0))
        return x.detach().cpu().double().flatten(1), y.detach().cpu().double().reshape(len(x), -1)

    def outputs(self, model: nn.Module, batch: Batch | None = None) -> torch.Tensor:
        """What the loss gets of a model, with its graph."""
        with warnings.catch_warnings(), every_module_called():
            warnings.simplefilter("ignore")
            return find_logits(self._call(model, batch or self.batch, copies=True), self.pick)

    @cached_property
    def objective(self) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
        """The user's loss; without one, the cross-entropy that goes with outputs and labels."""
        if self.loss is not None:
            return _scalar(self.loss)
        y = self.labels
        with torch.no_grad(), IsolatedRandomness(self.seed):
            out = tuple(self.outputs(self.training_copy()).shape)
        if not y.is_floating_point() and len(out) == y.ndim + 1 and out[1] > int(y.max()):
            return F.cross_entropy
        if set(y.unique().tolist()) <= {0, 1} and math.prod(out) == y.numel():
            return lambda o, t: F.binary_cross_entropy_with_logits(o.reshape(-1), t.reshape(-1).to(o.dtype))
        numbered = not y.is_floating_point() and len(out) == y.ndim + 1  # beyond the classes: a fault of its own
        raise NotApplicable("" if numbered else "the loss is not known, and labels leave it open: pass loss=")

    @property
    def labels(self) -> torch.Tensor:
        if self.batch.labels is None:
            raise NotApplicable("")
        return self.batch.labels

    def loss_of(self, out: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
        """One number, with its graph."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y = self.labels if labels is None else labels
            return self.objective(out, y.to(out.device))

    # -- The optimizer -------------------------------------------------------------------------------------------------

    @cached_property
    def recipe(self) -> Callable[[nn.Module], optim.Optimizer]:
        """How the user trains; without an optimizer, a step of Adam that is small."""
        if self.optimizer is None:
            return lambda model: optim.Adam(_trainable(model), 1e-3)
        if isinstance(self.optimizer, optim.Optimizer):
            return _like(self.given, self.optimizer)
        make = recipe(self.optimizer, None).make
        return lambda model: make(_trainable(model))

    def optimizer_of(self, model: nn.Module, factor: float = 1.0, decay: bool = True) -> optim.Optimizer:
        """The user's optimizer for a copy of the model, with its rates times `factor`."""
        found = self.recipe(model)
        for group in found.param_groups:
            group["lr"] = factor * max(float(group["lr"]), float(group.get("initial_lr", 0.0)))
            if not decay:
                group["weight_decay"] = 0.0
        return found

    @cached_property
    def example(self) -> optim.Optimizer:
        """The user's optimizer, or one as it would be made; it is not to be stepped."""
        if isinstance(self.optimizer, optim.Optimizer):
            return self.optimizer
        return self.recipe(self.training_copy())

    @property
    def rate(self) -> float:
        """The learning rate; that of a warm-up's end, where a scheduler says it."""
        return max(max(float(g["lr"]), float(g.get("initial_lr", 0.0))) for g in self.example.param_groups)


def _whole(batches: Sequence[Batch]) -> Batch:
    """Batches as one, so that it has points of all of them; the first one where they cannot be put together."""
    if len(batches) == 1 or len({signature(batch) for batch in batches}) > 1 or batches[0].call is not None:
        return batches[0]
    return joined(batches)


def _resize(state: dict[str, torch.Tensor], model: nn.Module) -> None:
    """Give weights the size that they have in a model which training has not changed much: that of its initializer."""
    ratios = {
        name: float(w.detach().double().square().mean().sqrt()) / max(size, 1e-30)
        for name, w in model.named_parameters()
        if w.ndim > 1 and w.is_floating_point() and (size := float(state[name].double().square().mean().sqrt())) > 0
    }
    if all(1 / _RESIZED < ratio < _RESIZED for ratio in ratios.values()):
        for name, ratio in ratios.items():
            state[name].mul_(ratio)


class NotApplicable(Exception):
    """Why a question cannot be asked."""


class FaultRemark(Exception):
    """What a question found that is no fault: a note."""


def _like(model: nn.Module, given: optim.Optimizer) -> Callable[[nn.Module], optim.Optimizer]:
    """A new one of the same class and settings, for the parameters of the same names; if it has none of them, all."""
    names = {id(p): name for name, p in model.named_parameters()}
    kept = [
        ({k: copy.copy(v) for k, v in group.items() if k != "params"}, [names.get(id(p)) for p in group["params"]])
        for group in given.param_groups
    ]
    lost = not any(name for _, mine in kept for name in mine)
    kind = cast("Any", type(given))

    def make(twin: nn.Module) -> optim.Optimizer:
        mine = dict(twin.named_parameters())
        groups = [{**options, "params": [mine[name] for name in names if name]} for options, names in kept]
        if lost:
            groups = [{**kept[0][0], "params": _trainable(twin)}]
        try:
            return kind(groups, lr=groups[0]["lr"])
        except (TypeError, ValueError) as error:
            raise NotApplicable(f"a {kind.__name__} cannot be made again: {error}") from error

    return make


def _trainable(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad] or list(model.parameters())


def in_training(model: nn.Module) -> nn.Module:
    """Train mode, without dropout."""
    model.train()
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):  # pyright: ignore[reportPrivateUsage]
            module.eval()
        elif isinstance(module, nn.RNNBase | nn.MultiheadAttention):
            module.dropout = 0.0
    return model


def _scalar(loss: Callable[[Any, Any], Any]) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """A loss with reduction="none" is averaged, as it is in training."""

    def whole(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        found = loss(out, labels)
        if isinstance(found, (tuple, list)):
            found = cast("Any", found)[0]
        if not isinstance(found, torch.Tensor):
            return torch.as_tensor(float(found))
        return found if not found.ndim else found.mean()

    return whole


def check_loss(patient: Patient, *, fitted: bool = False) -> Pick:
    """Raise one line where the loss cannot take what the model gives, with both shapes and what it probably wants.

    `fitted`: the loss of a single logit gets labels of its form and type, as training copies does.
    Give what picks the logits: where nothing but the loss tells whether one output is a probability, by the loss.
    """
    if patient.loss is None or patient.batch.labels is None:
        return patient.pick
    try:
        with IsolatedRandomness(patient.seed), torch.no_grad():
            out, y = patient.outputs(patient.training_copy()), patient.labels
    except Exception:  # of a user's model: running it says so in words
        return patient.pick
    with IsolatedRandomness(patient.seed), torch.no_grad():
        try:
            patient.loss_of(out)
            return _by_loss(patient, out)
        except Exception as error:  # of a user's loss
            words, kind = str(error).splitlines()[0] if str(error) else "", type(error).__name__
            name = getattr(patient.loss, "__name__", type(patient.loss).__name__)
            wants = next((hint for made, hint in _forms(out, y) if _takes(patient, *made)), "")
            if fitted and out.numel() == y.numel():
                return patient.pick
            if "out of bounds" in words or "between 0 and 1" in words or "probabilities" in words:
                return patient.pick  # labels, or outputs, that a fault is named after
            got = f"{name} of outputs {_form(out)} and labels {_form(y)}: {kind}: {words}"
            hint = wants or "labels as your training loop gives them to the loss"
            raise InvalidInput("a loss that takes (outputs, labels)", got=got, where="loss", hint=hint) from error


def _by_loss(patient: Patient, out: torch.Tensor) -> Pick:
    alone = out.numel() == len(out) and sorted(out.unique().tolist()) == [0.0, 1.0]
    if callable(patient.pick) or not alone:
        return patient.pick
    share = bool(Answers(patient.loss_of, out, patient.labels).wants_probabilities)
    return lambda output: find_logits(output, patient.pick) - (0.5 if share else 0.0)


def _form(x: torch.Tensor) -> str:
    return f"{tuple(x.shape)} {str(x.dtype).removeprefix('torch.')}"


def _takes(patient: Patient, out: torch.Tensor, y: torch.Tensor) -> bool:
    try:
        return bool(torch.isfinite(patient.loss_of(out, y)))
    except Exception:  # of a user's loss
        return False


def _forms(out: torch.Tensor, y: torch.Tensor) -> list[tuple[tuple[torch.Tensor, torch.Tensor], str]]:
    """Other forms of labels and outputs, each with its words."""
    forms: list[tuple[tuple[torch.Tensor, torch.Tensor], str]] = [
        ((out, y.to(out.dtype)), f"labels as floats: y.float(), {tuple(y.shape)}"),
        ((out, y.long()), f"labels as whole numbers: y.long(), {tuple(y.shape)}"),
    ]
    if y.ndim == out.ndim and y.shape[-1] == 1:
        forms += [((out, y.squeeze(-1).long()), f"class numbers of shape {tuple(y.shape[:-1])}: y.squeeze(-1).long()")]
    if y.ndim == out.ndim and y.shape[-1] > 1:
        forms += [((out, y.argmax(-1)), f"class numbers of shape {tuple(y.shape[:-1])}: y.argmax(-1)")]
    if y.ndim == out.ndim - 1:
        forms += [((out, y.to(out.dtype).unsqueeze(-1)), "labels with an axis more: y.float().unsqueeze(-1)")]
        if out.shape[-1] > 1 and not y.is_floating_point() and int(y.min()) >= 0 and int(y.max()) < out.shape[-1]:
            hot = F.one_hot(y, out.shape[-1]).to(out.dtype)
            words = f"one-hot labels of shape {tuple(hot.shape)}: F.one_hot(y, {out.shape[-1]}).float()"
            forms += [((out, hot), words)]
    if out.ndim > 2:
        forms += [((out.movedim(-1, 1), y), "classes on axis 1: outputs.movedim(-1, 1)")]
    if out.ndim == 2 and out.shape[1] == 1:
        forms += [((out[:, 0], y.to(out.dtype)), "outputs.squeeze(1), and labels as floats")]
    return forms
