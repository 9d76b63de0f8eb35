"""The head: give a zero one weights; scale one whose logits are so large that the first loss is."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from torch import nn

from firstguess.diagnosis.remedies.base import IMPORTS, PUT, Case, Variant, edited, replace_module
from firstguess.ensemble.member_statistics import FindingKind

_SCALED = """head = model.get_submodule({path!r})
with torch.no_grad():
    for value in head.parameters():
        value.mul_({factor:.6g})
"""
_FILLED = "put(model, {path!r}, nn.Linear({inputs}, {outputs}, bias={bias}))\n"
_LARGE = 4.0  # mean square of logits beyond which softmax is far from even at initialization
_DRAWS = 20_000


def variants(case: Case) -> Iterator[Variant]:
    """For a zero head, one with weights; for large logits, a smaller scale."""
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
        yield Variant(
            f"scale the head by {1 / math.sqrt(size):.2g}",
            f"multiply the weights of {last.name} by {1 / math.sqrt(size):.3g}",
            note=f"the first loss falls from {before:.3g} to {after:.3g} (even guesses: {math.log(m.classes):.3g}); "
            "guesses stay: the arg-max does not see a common scale",
            unchanged=True,
            aim="loss",
            code=f"{IMPORTS}{_SCALED.format(path=last.name, factor=1 / math.sqrt(size))}"
            if example is not None and last.name in dict(example.named_modules())
            else "",
            price="none: the loss starts where even guesses have it",
        )


def _with_weights(case: Case, path: str, head: nn.Linear) -> Iterator[Variant]:
    assert case.model is not None
    bias = "bias" in dict(head.named_parameters())
    made = _FILLED.format(path=path, inputs=head.in_features, outputs=head.out_features, bias=bias)

    def fill(model: nn.Module) -> nn.Module:
        replace_module(model, path, nn.Linear(head.in_features, head.out_features, bias))
        return model

    model = edited(case.model, fill)
    if model is not None:
        yield Variant(
            "draw the head's weights",
            f"nn.Linear's own initialization for {path}",
            model=model,
            aim="repair",
            code=f"{IMPORTS}{PUT}{made}",
            price="the first loss is no longer that of even guesses exactly",
            note="a zero head ties all classes: the first step decides, and nothing flows back through it until then",
        )


def expected_loss(mean_square: float, classes: int) -> float:
    """Cross-entropy of labels that know nothing of the logits: E log Σ exp z, z ~ N(0, mean_square).

    >>> round(expected_loss(1e-9, 10), 4)  # log 10
    2.3026
    """
    z = np.random.default_rng(0).normal(size=(_DRAWS, classes)) * math.sqrt(mean_square)
    top = z.max(axis=1)
    return float((top + np.log(np.exp(z - top[:, None]).sum(axis=1))).mean())
