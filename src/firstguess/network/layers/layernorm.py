"""LayerNorm and RMSNorm: one scale per sample over the units, and one mean for LayerNorm."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

from firstguess.network.layer import Mix, ReadContext, ReadResult, Symmetry, register
from firstguess.network.layers.affine import Scale
from firstguess.network.norms import UnitNorm


@register
@final
@dataclass(frozen=True)
class LayerNorm(UnitNorm):
    """Subtract a sample's mean over units, divide by √(variance over units + eps): theory.md §2, (21).

    On tokens each token by itself.
    """

    kind: ClassVar[str] = "layernorm"
    weighted = False
    mixes = Mix.UNITS
    symmetry = Symmetry.REMOVES_MEAN
    breaks_gaussianity = False
    by_token = True
    torch_name = "LayerNorm"
    modules = ("LayerNorm",)
    eps: float = field(default=0.0, kw_only=True)


@register
@final
@dataclass(frozen=True)
class RMSNorm(UnitNorm):
    """Divide a sample by √(mean square over units + eps): it does not centre, so after φ it does not cure.

    On tokens each token by itself.
    """

    kind: ClassVar[str] = "rmsnorm"
    weighted = False
    mixes = Mix.UNITS
    symmetry = Symmetry.ODD
    breaks_gaussianity = False
    by_token = True
    centre = False
    torch_name = "RMSNorm"
    modules = ("RMSNorm", "*RMSNorm")
    eps: float = field(default=0.0, kw_only=True)

    @classmethod
    def from_module(cls, module: Any, context: ReadContext) -> ReadResult:
        tried = context.claim == "*RMSNorm" and not context.tokens  # a model of tokens is compared as a whole
        return _tried(module, context) if tried else super().from_module(module, context)


def _tried(module: Any, context: ReadContext) -> ReadResult:
    """A class called …RMSNorm, tried on random vectors: c·x/rms(x) with one c, or not read."""
    import torch

    weight = module.weight
    if weight.ndim != 1:
        return ReadResult(why=f"called RMSNorm, with a weight of {weight.ndim} axes")
    if why := context.whole_sample(weight.ndim):
        return ReadResult(why=why)
    x = torch.randn(8, weight.numel(), generator=torch.Generator().manual_seed(0)).to(weight)
    try:
        with torch.no_grad():
            ratio = (module(x) / (x / x.square().mean(-1, keepdim=True).sqrt())).double()
    except Exception as error:  # someone else's forward
        return ReadResult(why=f"called RMSNorm, but fails on vectors: {type(error).__name__}")
    factor = float(ratio.median())
    if not math.isfinite(factor) or float((ratio - factor).abs().max()) > 1e-2 * max(abs(factor), 1e-3):
        return ReadResult(why="called RMSNorm, but does not divide by the root mean square")
    factor = float(f"{factor:.3g}")
    if factor == 1.0:
        return ReadResult((RMSNorm(),))
    return ReadResult((RMSNorm(), Scale(factor)), notes=(f"the norm starts with weights of {factor:g}, not 1",))
