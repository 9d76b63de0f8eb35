"""The head: the module whose output is the logits, and the bias in it that can be moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.data import Batch
from firstguess.ensemble.logits import Logits
from firstguess.modules.call_model import Caller
from firstguess.modules.hooks.probes import hooked
from firstguess.modules.members.initializers import is_hugging_face_conv1d, is_lookup
from firstguess.modules.members.sources import Mode, looked_into
from firstguess.modules.outputs import Pick, as_rows, contrasts, find_logits

OWN_INPUT = "tied to {tied}, it guesses its own input, which a bias cannot centre"
_CLOSE = 1e-4  # relative: what is handed on, or averaged over positions


@dataclass(eq=False)
class Head:
    """Where logits come from: `path` of a module, whose bias of one number a class is theirs."""

    path: str
    module: nn.Module
    tied: str = ""  # the lookup that it shares its weights with

    @property
    def bias(self) -> torch.Tensor | None:
        found = getattr(self.module, "bias", None)
        return found if isinstance(found, torch.Tensor) else None

    @property
    def key(self) -> str:
        """Of the bias in the state dict."""
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
class Seen:
    """Rows of logits (points, classes) over some batches, and the head that they come from, if it is known."""

    rows: torch.Tensor
    head: Head | None
    labels: torch.Tensor | None
    classes: int = field(init=False)

    def __post_init__(self) -> None:
        self.classes = 2 if self.rows.ndim == 1 else self.rows.shape[1]

    def gamma(self) -> float:
        """γ of this one network, center and spread free of the bias of finite data: theory.md (38)."""
        x = contrasts(self.rows)
        spread = float(x.var(0).mean())
        if not spread > 0.0:
            raise InvalidInput(
                "logits that differ from point to point",
                got="the same ones for all of them, as a head of zeros gives",
                where="the model's output",
                hint="fg.explain_guess(model, data) says why",
            )
        return (float(x.mean(0).square().mean()) - spread / len(x)) / spread

    def largest(self) -> float:
        """The largest class's share of the guesses; ties count in equal parts."""
        return float(Logits(self.rows).shares.max())


def logits_of(model: nn.Module, batches: Sequence[Batch], *, pick: Pick = None, mode: Mode = "train") -> Seen:
    """All logits of a model as it stands; it stays so."""
    call, parts, labels = Caller(), list[torch.Tensor](), list[torch.Tensor]()
    head: Head | None = None
    known = True
    with looked_into(model, mode) as inner:
        for index, batch in enumerate(batches):
            seen: list[tuple[str, nn.Module, torch.Tensor]] = []
            with hooked(inner, lambda *what: seen.append(what)) as hooks:  # noqa: B023 - called within this turn
                hooks.begin()
                raw = find_logits(call(inner, batch, copies=True), pick)
            if index == 0:
                head = _head(inner, raw, seen)
            parts.append(as_rows(raw.detach(), batch, pick).float().cpu())
            if batch.labels is None or batch.labels.numel() != len(parts[-1]):
                known = False
            else:
                labels.append(batch.labels.reshape(-1).cpu())
    rows = torch.cat(parts)
    if not bool(torch.isfinite(rows).all()):
        raise InvalidInput(
            "finite logits", got="NaN or Inf", where="the model's output", hint="fg.explain_guess(model, data)"
        )
    return Seen(rows, head, torch.cat(labels) if known and labels else None)


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
    if (
        out.ndim == 3 and raw.ndim == 2 and (out.shape[0], out.shape[2]) == raw.shape
    ):  # one of its tokens, or all of them
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


def needed(logits: Seen, where: str) -> Head:
    """The head, or why there is none to move."""
    head = logits.head
    if head is None:
        raise NotCovered(
            "a model whose logits are the output of a layer or norm with one bias a class",
            got="none: logits are made by something else",
            where=where,
            hint="end the model in nn.Linear(features, classes)",
        )
    if head.tied:
        raise NotCovered(
            "a head with weights of its own",
            got=f"{head.path}: {OWN_INPUT.format(tied=head.tied)}",
            where=where,
            hint="untie them (tie_word_embeddings=False)",
        )
    return head
