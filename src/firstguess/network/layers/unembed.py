"""The head of a language model: a logit for every token of the vocabulary, at every place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, final

from firstguess.base.checks import check_flag, check_number
from firstguess.network import weights
from firstguess.network.layer import Fold, Layer, Mix, Symmetry, register
from firstguess.network.points import PairwiseMap, Points, random_sum_map
from firstguess.network.shapes import Shape
from firstguess.network.tensors import Draw, Place, Unbatched, Weights
from firstguess.network.walk import check_tokens

if TYPE_CHECKING:
    from torch import nn


@register
@final
@dataclass(frozen=True)
class Unembed(Layer):
    """A language model's head: the classes are the vocabulary, and every token is a point that is guessed.

    Weights of its own, Var W = weight_var / width, or `tied`: the vectors of the embedding, by which the logit of the
    own input stands higher: theory.md (30). `init` is the weights' distribution, as for `dense`: rows of different
    lengths win at different rates, and Gaussian rows differ more than uniform ones: theory.md (52).
    """

    kind: ClassVar[str] = "unembed"
    brief: ClassVar[tuple[str, ...]] = ("tied",)
    weighted = True
    mixes = Mix.TOKENS
    symmetry = Symmetry.WEIGHTS
    breaks_gaussianity = False
    by_token = True
    each_token: ClassVar[bool] = True
    tied: bool = False
    weight_var: float = field(default=1.0, kw_only=True)
    init: str = field(default="normal", kw_only=True)

    def __post_init__(self) -> None:
        check_flag(self.tied, "tied", "unembed")
        check_number(self.weight_var, "weight_var", "unembed", strict=True, hint="unembed(weight_var=1)")
        object.__setattr__(self, "init", weights.checked(self.init, "unembed"))

    def with_distribution(self, init: str) -> Unembed:
        return replace(self, init=init)

    def shape(self, before: Shape, units: int | None) -> Shape:
        check_tokens(before, self.kind)
        return Shape(units, before.grid, before.drawn)

    def covariance(self, points: Points, fold: Fold) -> PairwiseMap:
        """Of a class's logits at all tokens; what ties add is for `theory/language.py`, which draws them."""
        return random_sum_map(self, points, self.weight_var, 0.0, "a language-model head")

    def assumptions(self) -> Iterable[str]:
        return ()

    def tensors(self, place: Place) -> Unbatched:
        return Unbatched()

    def module(self, place: Place, draw: Draw) -> nn.Module:
        from torch import nn

        from firstguess.network.torch_ops import TiedHead

        if self.tied:
            return TiedHead()
        units, width = place.after.width, place.before.width
        assert units is not None
        assert width is not None
        head = nn.utils.skip_init(nn.Linear, width, units, bias=False)
        return draw.fill(head, Weights((units, width), width, self.weight_var, 0.0, self.init))
