"""Remedies at both ends: centred data, a centred head, a head with weights or of another scale."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from torch import nn

from firstguess.diagnosis.remedies import base
from firstguess.diagnosis.remedies.base import Case, MeasuredChange, Variant
from firstguess.ensemble.measurement import Logits
from firstguess.ensemble.member_statistics import FindingKind
from firstguess.modules.repair import logits_of, needed
from firstguess.theory.data_bias import data_bias

_DATA_CODE = """class Centred(nn.Module):
    def __init__(self, model, mean):
        super().__init__()
        self.model = model
        self.register_buffer("mean", mean)

    def forward(self, x):
        return self.model(x - self.mean)


points = [batch[0] if isinstance(batch, (list, tuple)) else batch for batch in loader]
model = Centred(model, torch.cat(points).mean(0))
"""
_HEAD_PRICE = (
    "it makes the first predictions even; gradients and training speed are unchanged. In our trainings the worst class "
    "gained early in a ResNet, not in a CNN or a ViT"
)
_HEAD_CODE = """import firstguess as fg

model = fg.repair(model, loader, gamma=0.0).model  # a copy, in which the head's bias alone moves
"""
_SCALED = """head = model.get_submodule({path!r})
with torch.no_grad():
    for value in head.parameters():
        value.mul_({factor:.6g})
"""
_FILLED = "put(model, {path!r}, nn.Linear({inputs}, {outputs}, bias={bias}))\n"
_LARGE = 4.0  # mean square of logits beyond which softmax is far from even at initialization
_DRAWS = 20_000
_DATA_WORTH = 0.01  # γ₀ below which there is nothing to gain
_HEAD_WORTH = 0.05  # γ up to which guesses are even
_INITS = 20


def centred_data(case: Case) -> Iterator[Variant]:
    """Data minus their mean point: a direction that all points share is bias before any layer (theory.md (2), m0)."""
    x = base.inputs_of(case.batches)
    if x is None or len(x) < 3:
        return
    bias = data_bias(x.numpy())
    # γ₀ of a sample has m0 too large by v0/n; what is left is the data's own.
    if bias.gamma - 1 / bias.points < _DATA_WORTH:
        return
    parts = (x - x.mean(0, keepdim=True)).split([b.size for b in case.batches])
    centred = [replace(b, inputs=part) for part, b in zip(parts, case.batches, strict=True)]
    note = f"the data alone cause a drift ratio γ₀ = {bias.gamma:.3g}"
    price, code = "none, if you also subtract the training mean at test time", f"{base.IMPORTS}{_DATA_CODE}"
    title, edit = "centre the data", "x - x.mean(0): subtract the mean point"
    yield Variant(title, edit, case.network, case.model, batches=centred, code=code, price=price, note=note)


def centred_head(case: Case) -> Iterator[Variant]:
    """A bias of the head that subtracts the mean logits, of every initialization (theory.md (37))."""
    if case.logits is None or not case.gamma > _HEAD_WORTH:
        return
    model = case.example()
    if model is not None:
        needed(logits_of(model, case.batches[:1], pick=case.pick), "repair")  # or why no bias can be moved
    shares: list[float] = []
    for _, rows in zip(range(_INITS), case.logits(), strict=False):
        mean = rows.double().mean(0, keepdim=rows.ndim > 1)
        shares.append(float(Logits(rows.double() - mean).shares.max()))
    if len(shares) < 2:
        return
    error = float(np.std(shares, ddof=1)) / math.sqrt(len(shares))
    outcome = MeasuredChange(0.0, float(np.mean(shares)), error, len(shares))
    title, edit = "centre the head (fg.repair)", "the head's bias minus the mean logits on your data"
    yield Variant(title, edit, outcome=outcome, aim="first guesses", code=_HEAD_CODE, price=_HEAD_PRICE)


def repaired_head(case: Case) -> Iterator[Variant]:
    """Give a zero head weights, or large logits a smaller scale."""
    m = case.measurement
    zero = next((f for f in m.findings if f.kind == FindingKind.ZERO_HEAD), None)
    example = case.example()
    if zero is not None and example is not None and case.model is not None:
        head = dict(example.named_modules()).get(zero.layer)
        if isinstance(head, nn.Linear):
            yield from _with_weights(case, zero.layer, head)
        return
    if not m.layers:
        return
    last = m.layers[-1]
    size = last.center + last.spread
    if math.isfinite(size) and size > _LARGE:
        before, after = expected_loss(size, m.classes), expected_loss(1.0, m.classes)
        factor, does = 1 / math.sqrt(size), f"multiply the weights of {last.name} by {1 / math.sqrt(size):.3g}"
        note = f"the first loss falls from {before:.3g} to {after:.3g} (even guesses: {math.log(m.classes):.3g}); "
        note += "guesses stay: the arg-max does not see a common scale"
        known = example is not None and last.name in dict(example.named_modules())
        code = f"{base.IMPORTS}{_SCALED.format(path=last.name, factor=factor)}" if known else ""
        found = Variant(f"scale the head by {factor:.2g}", does, note=note, unchanged=True, aim="loss", code=code)
        yield replace(found, price="none: the loss starts where even guesses have it")


def _with_weights(case: Case, path: str, head: nn.Linear) -> Iterator[Variant]:
    bias = "bias" in dict(head.named_parameters())
    made = _FILLED.format(path=path, inputs=head.in_features, outputs=head.out_features, bias=bias)

    def fill(model: nn.Module) -> nn.Module:
        base.replace_module(model, path, nn.Linear(head.in_features, head.out_features, bias))
        return model

    price = "the first loss is no longer that of even guesses exactly"
    note = "a zero head ties all classes: the first step decides, and nothing flows back through it until then"
    title, does = "draw the head's weights", "nn.Linear's own initialization for"
    for variant in base.of_modules(case, [path], fill, title, does, price=price, code=base.pasted(made)):
        yield replace(variant, aim="repair", note=note)


def expected_loss(mean_square: float, classes: int) -> float:
    """Cross-entropy of labels that know nothing of the logits: E log Σ exp z, z ~ N(0, mean_square).

    >>> round(expected_loss(1e-9, 10), 4)  # log 10
    2.3026
    """
    z = np.random.default_rng(0).normal(size=(_DRAWS, classes)) * math.sqrt(mean_square)
    top = z.max(axis=1)
    return float((top + np.log(np.exp(z - top[:, None]).sum(axis=1))).mean())
