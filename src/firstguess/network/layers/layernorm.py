"""LayerNorm: one mean and one scale per sample, over the units."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, final

from firstguess.base.checks import check_number
from firstguess.network.layer import Mix, Symmetry, register
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

    def __post_init__(self) -> None:
        check_number(self.eps, "eps", "layernorm", hint="layernorm(eps=1e-5)")
