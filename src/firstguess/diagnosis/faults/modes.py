"""What differs between training and use: dropout, running statistics, spectral norms, masks, the token that is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.spectral_norm import SpectralNorm

from firstguess.data.streams import IsolatedRandomness
from firstguess.diagnosis.faults.base import Fault, Seen
from firstguess.modules.call_model import leaves
from firstguess.modules.hooks.session import training_norms
from firstguess.modules.members.initializers import BATCH_NORMS, hooks_of

_WORSE = 1.5  # loss in eval mode over that in train mode
_OFF = 4.0  # ratio of variances, or squared distance of means in variances
_MIXED = 1e-3  # of the outputs' standard deviation: what rounding does not change
_LOOSE = 0.5  # of the largest singular value
_PADS, _TIMES = 0.5, 10.0  # of the outputs' gradient, at a pad that is read last; at a pad, times that at a token


def running(seen: Seen) -> Fault | None:
    """BatchNorms in eval mode whose statistics are far from these data's, and whose loss is far above train mode's."""
    doctor = seen.doctor
    if seen.examination.norms:
        return None
    p = doctor.patient
    model = p.copy()
    norms = {n: m for n, m in model.named_modules() if isinstance(m, BATCH_NORMS) and m.running_var is not None}
    norms = {n: m for n, m in norms.items() if not m.training}
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
    message = "BatchNorms use running statistics in eval mode that are far from those of these data"
    fix = "a smaller momentum and larger batches; or count them again: module.reset_running_stats(), then the training "
    fix += "data through model.train() without steps"
    evidence = f"the loss is {before:.3g}, with the batch's own statistics {after:.3g}"
    evidence = f"off by a factor of {off[worst]:.3g}; {evidence}"
    return seen.fault("running statistics", message, fix, worst, evidence, factor=off[worst])


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


def mixed(seen: Seen) -> Fault | None:
    """A layer that wants sequences first gets points first: other points in a batch change the outputs of a point."""
    p = seen.doctor.patient
    x = p.batch.inputs
    model = p.copy().eval()
    layers = [name for name, module in model.named_modules() if getattr(module, "batch_first", True) is False]
    if not layers or not isinstance(x, torch.Tensor) or len(x) < 4:
        return None
    half = len(x) // 2
    others = x.clone()
    others[:half] = x[-half:]
    with torch.no_grad(), IsolatedRandomness(p.seed):
        before = p.outputs(model)
        after = p.outputs(model, replace(p.batch, inputs=others))
    if len(before) != len(x) or not (far := float((after - before)[half:].abs().max())) > _MIXED * float(before.std()):
        return None
    message = "the output of a point depends on the other points of its batch: a layer takes the batch for its sequence"
    fix = f"batch_first=True in {seen.code(layers[0])}; or x.transpose(0, 1) before it and back after it"
    evidence = f"with other points in half of the batch, outputs of the other half change by up to {far:.2g}"
    return seen.fault("points of a batch are mixed", message, fix, layers[0], evidence, change=far)


def spectral(seen: Seen) -> Fault | None:
    """Spectral norms in eval mode whose vectors were never iterated: the weight is divided by far too little."""
    for name, module in seen.doctor.patient.given.named_modules():
        if module.training:
            continue
        for w, u, v in _spectral_norms(module):
            known, largest = abs(float(u @ w @ v)), float(torch.linalg.matrix_norm(w.double(), 2))
            if known < _LOOSE * largest:
                message = "a spectral norm in eval mode has not been iterated: its weight is far larger than it says"
                fix = "a forward in train mode first: model.train(); model(x); model.eval()"
                evidence = f"divided by {known:.3g}, where the largest singular value is {largest:.3g}"
                numbers = {"estimate": known, "largest": largest}
                return seen.fault("spectral norm before its first step", message, fix, name, evidence, **numbers)
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


def padding(seen: Seen) -> Fault | None:
    """Outputs that hang on the last token, which is a pad in most sequences: by their gradient at each token."""
    doctor = seen.doctor
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
    pads = ids == pad
    if bool(sizes[:, :-1][pads[:, :-1]].any()) and not bool(sizes[~pads].any()):
        message = "outputs depend on the padding alone: every real token is hidden"
        evidence = f"their gradient is exactly 0 at every token but {pad}"
        return seen.fault("mask that hides everything", message, _SENSE, evidence=evidence, pad=pad)
    ended = pads[:, -1]
    if float(ended.double().mean()) < 0.5:
        return None
    mine, sizes = pads[ended], sizes[ended]
    share = float((sizes[:, -1] / sizes.sum(1).clamp_min(1e-30)).mean())
    # Of a recurrent network the last steps count: a pad there, against a token that is none.
    times = float(sizes[mine].mean() / sizes[~mine].mean().clamp_min(1e-30)) if bool((~mine).any()) else math.nan
    if not (share > _PADS or times > _TIMES):
        return None
    message = "the class is read at the last position, which is padding in most sequences"
    fix = "read it at the last real token: outputs[torch.arange(len(ids)), (ids != pad).sum(1) - 1]; or pad on the left"
    evidence = f"{float(ended.double().mean()):.0%} of the sequences end in {pad}, where {share:.0%} of the outputs' "
    evidence += f"gradient is; at a pad it is {times:.3g} times that at a token"
    return seen.fault("last token is padding", message, fix, evidence=evidence, pad=pad, share=share)


def _pad(ids: torch.Tensor, tables: list[nn.Embedding]) -> int | None:
    """The padding index of the embedding; else a token that most sequences end in more than once."""
    for table in tables:
        if table.padding_idx is not None:
            return int(table.padding_idx)
    last = int(ids[:, -1].mode().values)
    double = (ids[:, -1] == last) & (ids[:, -2] == last)
    return last if float(double.double().mean()) > 0.5 else None


def dropout(seen: Seen) -> Fault | None:
    """A fact: modules, calls of F.dropout, and the dropout of attention and recurrent layers."""
    dropped = seen.examination.ops.dropped
    if not dropped:
        return None
    place, p = next(iter(dropped.items()))
    left = "nothing" if p == 1 else f"{1 - p:.1%}"
    message = f"dropout leaves {left} of the signal in training: p is the part that is dropped, not kept"
    return seen.fault("Dropout(1)", message, "nn.Dropout(p=0.1)", place, f"p = {p:g}", p=p, layers=list(dropped))


def fresh_norms(seen: Seen) -> Fault | None:
    """A fact; where the guess is notable, with the guess in train mode."""
    norms = seen.examination.norms
    if not norms:
        return None
    cure, numbers = "", {"layers": norms}
    if seen.trained is not None and seen.notable:
        cure = f"; in train mode the largest share is {seen.trained.largest:.1%}"
        numbers |= {"largest_in_train_mode": seen.trained.largest}
    message = "BatchNorms are in eval mode with running statistics that have seen no data, so they do nothing"
    fix, evidence = "model.train(), as in the first step of training", f"{len(norms)} of them{cure}"
    return seen.fault("batchnorm in eval mode before training", message, fix, norms[0], evidence, **numbers)


_SENSE = (
    "check the mask's sense: where tokens count, an attention_mask is 1, a key_padding_mask False, a boolean attn_mask "
    "True (of nn.MultiheadAttention: False)"
)


def mask(seen: Seen) -> Fault | None:
    """A softmax, or an attention, all of whose scores are hidden for some point; or a mask of one value throughout, and
    outputs that are NaN or the same for all points."""
    x = seen.examination
    for place, points in x.ops.hidden_points.items():
        share = points / max(x.now.samples, 1)
        message = "every score is masked, so that the softmax has nothing to choose from"
        evidence = f"at {share:.0%} of the points"
        return seen.fault("mask that hides everything", message, _SENSE, place, evidence, share=share)
    lost = x.now.lost > 0 or x.same or x.now.points == 0
    if x.masks and (lost or "attention_mask" in x.masks):
        name = x.masks[0]
        what = "its outputs are NaN" if x.now.lost else "no token is left" if not x.now.points else "nothing is left"
        what = "its outputs are the same for all points" if x.same and not x.now.lost else what
        message = f"{name} has one value throughout, and hides every token: {what}"
        return seen.fault("mask that hides everything", message, _SENSE, mask=name)
    return None
