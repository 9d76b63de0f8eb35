"""What differs between training and use: running statistics, spectral norms, the token that the class is read at."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.spectral_norm import SpectralNorm

from firstguess.diagnosis.faults.base import Fault, Seen
from firstguess.modules.call_model import leaves
from firstguess.modules.guard import IsolatedRandomness
from firstguess.modules.hooks.snapshot import training_norms
from firstguess.modules.members.initializers import BATCH_NORMS, hooks_of

_WORSE = 1.5  # loss in eval mode over that in train mode
_OFF = 4.0  # ratio of variances, or squared distance of means in variances
_LOOSE = 0.5  # of the largest singular value
_PADS = 0.5  # of the outputs' gradient, that is at a pad read last


def running(seen: Seen) -> Fault | None:
    """BatchNorms in eval mode whose statistics are far from these data's, and whose loss is far above train mode's."""
    doctor = seen.doctor
    if doctor is None or seen.examination.norms:
        return None
    p = doctor.patient
    model = p.copy()
    norms = {n: m for n, m in model.named_modules() if isinstance(m, BATCH_NORMS) and not m.training}
    norms = {n: m for n, m in norms.items() if m.running_var is not None}
    if not norms:
        return None
    off: dict[str, float] = {}
    hooks = [m.register_forward_pre_hook(_statistics(off, n)) for n, m in norms.items()]
    with torch.no_grad(), IsolatedRandomness(p.seed):
        use = p.outputs(model)
        for hook in hooks:
            hook.remove()
        with training_norms(model):
            train = p.outputs(model)
        worst = max(off, key=off.__getitem__) if off else ""
        if not worst or not off[worst] > _OFF:
            return None
        before, after = float(p.loss_of(use)), float(p.loss_of(train))
    if not before > _WORSE * after:
        return None
    return seen.fault(
        "running statistics",
        "BatchNorms use running statistics in eval mode that are far from those of these data",
        "a smaller momentum and larger batches; or count them again: module.reset_running_stats(), then the training "
        "data through model.train() without steps",
        worst,
        f"off by a factor of {off[worst]:.3g}; the loss is {before:.3g}, with the batch's own statistics {after:.3g}",
        factor=off[worst],
    )


def _statistics(off: dict[str, float], name: str) -> Callable[..., None]:
    def hook(module: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        x = args[0].detach()
        axes = [k for k in range(x.ndim) if k != 1]
        var, mean = torch.var_mean(x, axes, correction=0)
        kept, middle = module.get_buffer("running_var"), module.get_buffer("running_mean")
        ratio = (var + 1e-8) / (kept + 1e-8)
        far = torch.maximum(torch.maximum(ratio, 1 / ratio), (mean - middle).square() / (kept + 1e-8))
        off[name] = float(far.median())

    return hook


def spectral(seen: Seen) -> Fault | None:
    """Spectral norms in eval mode whose vectors were never iterated: the weight is divided by far too little."""
    if seen.doctor is None:
        return None
    for name, module in seen.doctor.patient.given.named_modules():
        if module.training:
            continue
        for w, u, v in _spectral_norms(module):
            if (found := _loose(seen, name, w, u, v)) is not None:
                return found
    return None


def _spectral_norms(module: nn.Module) -> Iterator[tuple[torch.Tensor, ...]]:
    """Weights as matrices, with the vectors of both kinds of torch's spectral norm."""
    for hook in hooks_of(module):
        if isinstance(hook, SpectralNorm):
            w = getattr(module, f"{hook.name}_orig").detach()
            yield hook.reshape_weight_to_matrix(w), *(getattr(module, f"{hook.name}_{k}") for k in "uv")
    for parts in cast("Any", module.parametrizations).values() if parametrize.is_parametrized(module) else ():
        for part in parts:
            if hasattr(part, "_u") and hasattr(part, "_reshape_weight_to_matrix"):
                yield part._reshape_weight_to_matrix(parts.original.detach()), part._u, part._v


def _loose(seen: Seen, name: str, w: torch.Tensor, u: torch.Tensor, v: torch.Tensor) -> Fault | None:
    known, largest = abs(float(u @ w @ v)), float(torch.linalg.matrix_norm(w.double(), 2))
    if not known < _LOOSE * largest:
        return None
    return seen.fault(
        "spectral norm before its first step",
        "a spectral norm in eval mode has not been iterated: its weight is far larger than it says",
        "a forward in train mode first: model.train(); model(x); model.eval()",
        name,
        f"divided by {known:.3g}, where the largest singular value is {largest:.3g}",
        estimate=known,
        largest=largest,
    )


def padding(seen: Seen) -> Fault | None:
    """Outputs that hang on the last token, which is a pad in most sequences: by their gradient at each token."""
    doctor = seen.doctor
    if doctor is None:
        return None
    p = doctor.patient
    ids = next((x for x in leaves(p.batch.inputs).values() if x.ndim == 2 and not x.is_floating_point()), None)
    if ids is None or ids.shape[1] < 3:
        return None
    model = p.training_copy()
    tables = [m for m in model.modules() if isinstance(m, nn.Embedding)]
    pad = _pad(ids, tables)
    if pad is None:
        return None
    kept: list[torch.Tensor] = []

    def keep(_: nn.Module, args: tuple[torch.Tensor, ...], out: torch.Tensor) -> torch.Tensor | None:
        if args and args[0].shape == ids.shape and torch.equal(args[0].cpu(), ids.cpu()):
            out = out.detach().requires_grad_()
            kept.append(out)
            return out
        return None

    hooks = [m.register_forward_hook(keep) for m in tables]
    with torch.enable_grad(), IsolatedRandomness(p.seed):
        out = p.outputs(model)
        for hook in hooks:
            hook.remove()
        if not kept or out.grad_fn is None or out.shape[0] != len(ids):
            return None
        weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(0)).to(out)
        g: Any = torch.autograd.grad((out * weights).sum(), kept[0], allow_unused=True)[0]
    if g is None:
        return None
    sizes = g.norm(dim=-1)
    ended = ids[:, -1] == pad
    share = float((sizes[:, -1] / sizes.sum(1).clamp_min(1e-30))[ended].mean()) if bool(ended.any()) else 0.0
    if float(ended.double().mean()) < 0.5 or not share > _PADS or math.isnan(share):
        return None
    return seen.fault(
        "last token is padding",
        "the class is read at the last position, which is padding in most sequences",
        "read it at the last real token: outputs[torch.arange(len(ids)), (ids != pad).sum(1) - 1]; or pad on the left",
        evidence=f"{float(ended.double().mean()):.0%} of the sequences end in {pad}, where {share:.0%} of the outputs' "
        "gradient is",
        pad=pad,
        share=share,
    )


def _pad(ids: torch.Tensor, tables: list[nn.Embedding]) -> int | None:
    """The padding index of the embedding; else a token that most sequences end in more than once."""
    for table in tables:
        if table.padding_idx is not None:
            return int(table.padding_idx)
    last = int(ids[:, -1].mode().values)
    double = (ids[:, -1] == last) & (ids[:, -2] == last)
    return last if float(double.double().mean()) > 0.5 else None
