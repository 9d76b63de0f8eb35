"""`fg.repair`: a copy of a model whose first guesses are as even as wanted, theory.md (37)."""

from __future__ import annotations

import errno
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from torch import nn

from firstguess.base import checks
from firstguess.base.checks import count, known_options
from firstguess.base.errors import FirstguessError, InvalidInput, NotCovered
from firstguess.base.files import write
from firstguess.base.record import Record, Shown
from firstguess.base.text import percents, rounded_off
from firstguess.data import Batch, collect, load
from firstguess.ensemble.measurement import Logits
from firstguess.modules.call_model import Caller, Forward, fed, first_forward
from firstguess.modules.guard import own_copy, unwrapped
from firstguess.modules.hooks.accumulators import Blocks, logit_sums
from firstguess.modules.hooks.session import Hooks
from firstguess.modules.members.initializers import CONVOLUTIONS, is_hugging_face_conv1d, is_lookup
from firstguess.modules.members.sources import REPAIR, Mode, repair_of, source_of, unwrapped_in_mode
from firstguess.modules.members.weight_statistics import TRAINED, score
from firstguess.modules.outputs import LogitCaller, Pick, classes_of

OWN_INPUT = "tied to {tied}, it guesses its own input, which a bias cannot centre"
_CLOSE = 1e-4  # relative: what is handed on, or averaged over positions


@dataclass(eq=False)
class Head:
    """Where logits come from: `path` of a module, whose bias, one number per class, is theirs."""

    path: str
    module: nn.Module
    tied: str = ""  # the lookup that it shares its weights with

    @property
    def bias(self) -> torch.Tensor | None:
        found = getattr(self.module, "bias", None)
        return found if isinstance(found, torch.Tensor) else None

    @property
    def key(self) -> str:
        """Key of the bias in the state dict."""
        return f"{self.path}.bias" if self.path else "bias"

    def move(self, by: torch.Tensor) -> bool:
        """Add to the logits of every class; whether a bias had to be made for it."""
        bias = self.bias
        if bias is not None:
            with torch.no_grad():
                bias.add_(by.to(bias))
            return False
        weight = self.module.weight
        assert isinstance(weight, torch.Tensor)
        self.module.bias = nn.Parameter(by.to(weight), requires_grad=weight.requires_grad)
        return True


@dataclass(eq=False)
class LogitRows:
    """Rows of logits (points, classes) over some batches, and the head that they come from, if it is known."""

    rows: torch.Tensor
    head: Head | None
    labels: torch.Tensor | None

    @property
    def classes(self) -> int:
        return classes_of(self.rows)

    def gamma(self) -> float:
        """γ of this one network, center and spread free of the bias of finite data: theory.md (38)."""
        sums = logit_sums(self.rows, Blocks())
        found = math.nan if sums is None else sums.gamma()
        if not math.isfinite(found):
            got = "the same ones for all of them, as a head of zeros gives"
            hint = "fg.explain_guess(model, data) says why"
            raise InvalidInput("logits that differ from point to point", got=got, where="the model's output", hint=hint)
        return found

    def largest(self) -> float:
        """The largest class's share of the guesses; ties count in equal parts."""
        return float(Logits(self.rows).shares.max())


def logits_of(model: nn.Module, batches: Sequence[Batch], *, pick: Pick = None, mode: Mode = "train") -> LogitRows:
    """All logits of a model as it stands; it stays so."""
    call, parts, labels = LogitCaller(pick), list[torch.Tensor](), list[torch.Tensor]()
    head: Head | None = None
    known = True
    with unwrapped_in_mode(model, mode) as inner:
        for index, batch in enumerate(batches):
            seen: list[tuple[str, nn.Module, torch.Tensor]] = []
            with first_forward(batch), Hooks(inner, lambda *what: seen.append(what)) as hooks:  # noqa: B023 - called within this turn
                hooks.begin()
                raw, found = call.rows(inner, batch)
            if index == 0:
                head = _head(inner, raw, seen)
            parts.append(found.detach().float().cpu())
            if batch.labels is None or batch.labels.numel() != len(parts[-1]):
                known = False
            else:
                labels.append(batch.labels.reshape(-1).cpu())
    rows = torch.cat(parts)
    if not bool(torch.isfinite(rows).all()):
        hint = "fg.explain_guess(model, data)"
        raise InvalidInput("finite logits", got="NaN or Inf", where="the model's output", hint=hint)
    return LogitRows(rows, head, torch.cat(labels) if known and labels else None)


def _head(model: nn.Module, raw: torch.Tensor, seen: Sequence[tuple[str, nn.Module, torch.Tensor]]) -> Head | None:
    """The last module whose output is the logits, at one of its positions or on average over them."""
    channels = raw.shape[-1] if raw.ndim > 1 else 1
    for name, module, out in reversed(seen):
        if not hasattr(module, "bias") or not _gives(out, raw):
            continue
        bias, weight = getattr(module, "bias", None), getattr(module, "weight", None)
        if isinstance(bias, torch.Tensor) and bias.numel() == channels:
            return Head(name, module, _tied(model, module))
        plain = isinstance(module, nn.Linear) or is_hugging_face_conv1d(module) or isinstance(module, nn.Conv2d)
        if bias is None and plain and isinstance(weight, torch.Tensor):
            return Head(name, module, _tied(model, module))
    return None


def _gives(out: torch.Tensor, raw: torch.Tensor) -> bool:
    if out.ndim > raw.ndim and out.shape[: raw.ndim] == raw.shape:
        out = out.flatten(raw.ndim).mean(-1)
    if out.ndim == raw.ndim + 1 and out.shape[-1] == 1:
        out = out[..., 0]
    if not out.is_floating_point():
        return False
    near = _CLOSE * float(raw.abs().max())
    if out.ndim == 3 and raw.ndim == 2 and (out.shape[0], out.shape[2]) == raw.shape:  # one of its tokens, or all
        apart = (out.float() - raw.float()[:, None]).abs().amax(2).amin(1)
        mean = (out.float().mean(1) - raw.float()).abs().amax(1)
        return bool(torch.minimum(apart, mean).amax() <= near)
    return out.shape == raw.shape and torch.allclose(out.float(), raw.float(), rtol=_CLOSE, atol=near)


def _tied(model: nn.Module, head: nn.Module) -> str:
    weight = getattr(head, "weight", None)
    for name, module in model.named_modules():
        if module is not head and is_lookup(module) and getattr(module, "weight", None) is weight:
            return name
    return ""


def needed(logits: LogitRows, where: str) -> Head:
    """The head, or why there is none to move."""
    head = logits.head
    if head is None:
        got, hint = "none: logits are made by something else", "end the model in nn.Linear(features, classes)"
        expected = "a model whose logits are the output of a layer or norm with one bias per class"
        raise NotCovered(expected, got=got, where=where, hint=hint)
    if head.tied:
        got, hint = f"{head.path}: {OWN_INPUT.format(tied=head.tied)}", "untie them (tie_word_embeddings=False)"
        raise NotCovered("a head with weights of its own", got=got, where=where, hint=hint)
    return head


How: TypeAlias = Literal["head", "layers"]
_STEPS = 12  # of the bisection over how far all layers are centred
_NOTE = "The first predictions become even; gradients, training speed and what can be learned stay as they were."


@dataclass(frozen=True, eq=False)
class Repaired(Record, Shown):
    """A repaired model. γ and the largest share are measured on the data given, before and after."""

    _apart = ("model",)

    model: nn.Module = field(repr=False)
    how: How
    gamma: tuple[float, float]
    largest: tuple[float, float]
    moved: float  # ρ: the part of the mean logits (or of all layers' means) that was subtracted
    changed: tuple[str, ...]  # keys of the state dict with other values
    added: tuple[str, ...]  # keys that were not there before
    notes: tuple[str, ...]

    def save(self, path: str | Path) -> Path:
        """Write the weights as safetensors; gives the path back."""
        return save_weights(self.model, path)

    def __repr__(self) -> str:
        (g0, g1), (m0, m1) = self.gamma, self.largest
        return f"Repaired({self.how}: γ {g0:.3g} → {rounded_off(g1):.3g}, largest class {m0:.0%} → {m1:.0%})"

    def __str__(self) -> str:
        keys = [f"changed: {', '.join(self.changed)}"] if self.changed else []
        keys += [f"added to the state dict: {', '.join(self.added)}"] if self.added else []
        (g0, g1), largest = self.gamma, " → ".join(percents(*self.largest))
        first = f"γ {g0:.3g} → {rounded_off(g1):.3g}, largest class {largest} of the guesses"
        return "\n".join([first, *keys, *self.notes])


@known_options
def repair(
    model: nn.Module,
    data: object,
    *,
    gamma: float = 0.2,
    how: How = "head",
    in_place: bool = False,
    force: bool = False,
    points: int = 512,
    forward: Forward | None = None,
    logits: Pick = None,
    mode: Mode = "train",
    seed: int = 0,
) -> Repaired:
    """A copy of `model` whose output has at most this γ on these data: the head's bias subtracts mean logits.

    With ρ = 1 − √(γ*/γ) of the mean logits subtracted, γ falls to (1 − ρ)²γ exactly; nothing else changes: theory.md
    (37). `gamma=0` subtracts all of it. Initializations that are drawn from the copy, by `fg.measure`, `fg.diagnose` or
    `fg.train`, are repaired in the same way, each for itself.

    Args:
        model: An untrained model, or a trained one with a fresh head; one whose head is trained too is refused, unless
            `force=True`.
        data: What it will be trained on: a loader, arrays, or anything that `fg.measure` takes.
        gamma: The wanted γ; where it is lower already, nothing is changed.
        how: "head" moves one bias. "layers" centres every layer, as far as the output needs it: measured, not
            predicted, and at a cost in gradients.
        in_place: Change `model` itself instead of a copy.
        points: How many points the means are taken over.
        forward: How the model is called, as for `fg.measure`; likewise `logits`.
        mode: "train": BatchNorm normalizes by the batch, as at the first step; "eval": by its running statistics.

    >>> model = nn.Sequential(nn.Linear(20, 50), nn.ReLU(), nn.Linear(50, 50), nn.ReLU(), nn.Linear(50, 3))
    >>> fixed = repair(model, torch.randn(300, 20), gamma=0.01)
    >>> fixed.changed, round(fixed.gamma[1], 3)
    (('4.bias',), 0.01)
    """
    check_instance(model, "repair")
    checks.within(gamma, "a γ of at least 0", "repair(gamma)", "gamma=0.2", closed=True)
    checks.choice(how, ("head", "layers"), "repair(how)", "how")
    whole = load(data) if isinstance(data, str) else data
    points = count(points, 2, "number of points", "repair(points)", "points=512")
    batches = fed(model, collect(whole, points, seed=seed), forward)
    fine = partial(has_fresh_head, model, batches, logits, mode, seed) if how == "head" else lambda: False
    fixed = to_change(model, "repair", in_place=in_place, force=force, allowed=fine)
    biases = {key: value.clone() for key, value in fixed.state_dict().items() if key.endswith("bias")}
    before, after, part, moved, notes = _moved(fixed, batches, logits, how=how, gamma=gamma, mode=mode)
    if moved:
        now = fixed.state_dict()
        was = {key: biases.get(key, torch.zeros_like(now[key])) for key in moved}
        was |= (repair_of(fixed) or {}).get("was", {})
        known = {"how": how, "gamma": gamma, "mode": mode, "was": was, "now": {key: now[key].clone() for key in was}}
        setattr(unwrapped(fixed), REPAIR, known)
    added, changed = (tuple(key for key in moved if (key in biases) is known) for known in (False, True))
    gammas, largest = (before.gamma(), after.gamma()), (before.largest(), after.largest())
    return Repaired(fixed, how, gammas, largest, part, changed, added, notes)


def _moved(
    model: nn.Module, batches: Sequence[Batch], pick: Pick, *, how: How, gamma: float, mode: Mode
) -> tuple[LogitRows, LogitRows, float, tuple[str, ...], tuple[str, ...]]:
    """Move biases until γ is `gamma`: logits before and after, the part that was subtracted, keys, and what to say."""

    def now() -> LogitRows:
        return logits_of(model, batches, pick=pick, mode=mode)

    before = now()
    was = before.gamma()
    if not was > gamma:
        notes = [f"γ is {was:.3g} already, not above {gamma:.3g}: nothing was changed."]
        if before.head is not None and before.head.tied:
            notes.append(f"Nor could centring help: {before.head.path} {OWN_INPUT.format(tied=before.head.tied)}.")
        return before, before, 0.0, (), tuple(notes)
    if how == "layers":
        part = _centre_layers(model, batches, pick, mode, gamma, now)
        keys = tuple(f"{name}.bias" for name, _, _ in _centred_layers(model))
        changed = "All layers are centred: gradients change with them. Measure them: fg.measure_gradients(model, data)."
        return before, now(), part, keys, (changed,)
    head = needed(before, "repair")
    luck = 1.0 / len(before.rows)  # what this number of points adds to γ, which is free of it
    part = 1.0 - math.sqrt((gamma + luck) / (was + luck))
    mean = before.rows.double().mean(0)  # what classes have in common is no bias: differences alone are subtracted
    head.move(-part * (mean.reshape(1) if before.rows.ndim == 1 else mean - mean.mean()))
    return before, now(), part, (head.key,), (_NOTE,)


def again(model: nn.Module, repaired: dict[str, Any], batches: Sequence[Batch], pick: Pick) -> None:
    """Repair a new initialization as its model was; one whose logits do not differ has nothing to centre."""
    with suppress(InvalidInput):
        _moved(model, batches, pick, **{name: repaired[name] for name in ("how", "gamma", "mode")})


def has_fresh_head(model: nn.Module, batches: Sequence[Batch], pick: Pick, mode: Mode, seed: int) -> bool:
    """Whether the head is drawn where `fg.measure` keeps what looks trained: fine-tuning moves only its bias."""
    head = logits_of(model, batches[:1], pick=pick, mode=mode).head
    own = None if head is None else getattr(head.module, "weight", None)
    if head is None or own is None:
        return False
    with source_of(model, batches, logits=pick).member(seed) as drawn:
        other: Any = drawn.get_submodule(head.path).weight
        return not torch.equal(other, own)


def _centred_layers(model: nn.Module) -> list[tuple[str, nn.Module, torch.Tensor]]:
    """(path, module, bias) of every layer with weights and biases."""
    kinds = (nn.Linear, *CONVOLUTIONS)
    layers = [(name, m) for name, m in model.named_modules() if isinstance(m, kinds) or is_hugging_face_conv1d(m)]
    return [(name, module, module.bias) for name, module in layers if isinstance(module.bias, torch.Tensor)]


def _centre_layers(
    model: nn.Module, batches: Sequence[Batch], pick: Pick, mode: Mode, gamma: float, now: Callable[[], LogitRows]
) -> float:
    """Every bias moved by −ρ of its layer's means, one layer after another; ρ by bisection on the measured γ."""
    layers = _centred_layers(model)
    if not layers:
        hint = 'how="head", or bias=True in the layers'
        raise InvalidInput("layers with biases", got="none", where='repair(how="layers")', hint=hint)
    first = [bias.detach().clone() for _, _, bias in layers]

    def centre(part: float) -> float:
        with torch.no_grad():
            for (_, _, bias), was in zip(layers, first, strict=True):
                bias.copy_(was)
            for _, module, bias in layers:
                mean = _mean_output(model, module, batches, pick, mode)
                if mean is not None:
                    bias.sub_(part * mean.to(bias))
        return now().gamma()

    low, high = 0.0, 1.0
    if centre(1.0) > gamma:
        return 1.0
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if centre(middle) <= gamma else (middle, high)
    centre(high)
    return high


def _mean_output(
    model: nn.Module, module: nn.Module, batches: Sequence[Batch], pick: Pick, mode: Mode
) -> torch.Tensor | None:
    """Mean of every unit over points and positions."""
    total: torch.Tensor | None = None
    rows = 0
    axis = 1 if isinstance(module, CONVOLUTIONS) else -1

    def see(name: str, seen: nn.Module, out: torch.Tensor) -> None:
        nonlocal total, rows
        if seen is module:
            flat = out.detach().double().movedim(axis, -1).reshape(-1, out.shape[axis])
            total = flat.sum(0) if total is None else total + flat.sum(0)
            rows += len(flat)

    call = Caller()
    with unwrapped_in_mode(model, mode) as inner, Hooks(inner, see) as hooks:
        for batch in batches:
            hooks.begin()
            call(inner, batch, copies=True)
    return None if total is None else total / rows


def check_instance(model: object, where: str) -> None:
    """Raise for what is no model that could be changed."""
    if not isinstance(model, nn.Module):
        got, hint = type(model).__name__, f"fg.{where}(model, data): the model comes first"
        raise InvalidInput("a model, an instance of nn.Module", got=got, where=f"{where}(model)", hint=hint)


def to_change(model: nn.Module, where: str, *, in_place: bool, force: bool, allowed: Callable[[], bool]) -> nn.Module:
    """The model or a copy of it. A weight that looks trained is refused, as its bias is then no accident of the draw;
    unless that is `allowed`, or by `force`."""
    for name, value in unwrapped(model).named_parameters() if not force else ():
        if score(value) > TRAINED and not allowed():
            hint = "force=True if you mean it"
            raise InvalidInput("an untrained model", got=f"{name} looks trained", where=where, hint=hint)
    found = model if in_place else own_copy(unwrapped(model))
    if found is None:
        raise InvalidInput("a model that can be copied", got=type(model).__name__, where=where, hint="in_place=True")
    return found


def save_weights(model: nn.Module, path: str | Path) -> Path:
    """Write safetensors; tied weights are written once, as the format has it."""
    try:
        from safetensors import SafetensorError
        from safetensors.torch import save_model
    except ImportError as error:
        hint = "pip install 'firstguess[repair]'"
        raise FirstguessError("the package safetensors", got="not installed", hint=hint) from error

    def whole(half: Path) -> None:
        half.touch()
        mode = half.stat().st_mode  # as any new file; safetensors makes one that its owner alone may read
        try:
            save_model(model, str(half))
            half.chmod(mode)
        except SafetensorError as error:  # a full disk, too
            raise OSError(errno.EIO, str(error)) from error

    return write(Path(path), whole)
