"""Token mixing: two dense layers over tokens, the same for every node."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np

from firstguess.base.checks import check_count, check_number
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.gaussian import Array
from firstguess.network.activations import lookup
from firstguess.network.activations.kernels import kernel_map, means
from firstguess.network.activations.record import Activation
from firstguess.network.grid import Shape
from firstguess.network.layer import Fold, Layer, Mix, Parity, register
from firstguess.network.points import Done, Points, Whole, split
from firstguess.network.tensors import Alone, Draw, Place, Weights
from firstguess.network.token_grid import check_tokens

if TYPE_CHECKING:
    from torch import nn

_GELU = lookup.activation("gelu")


@register
@final
@dataclass(frozen=True)
class TokenMix(Layer):
    """W₂ φ(W₁ x) over the tokens of every node (MLP-Mixer), `width` units between: theory.md (29).

    Its weights are shared by all nodes, so the mean over nodes is random and does not vanish: LayerNorm takes it off,
    RMSNorm does not. Variances are times the fan-in; `out_var` None: that of the first weights.
    """

    kind: ClassVar[str] = "tokenmix"
    brief: ClassVar[tuple[str, ...]] = ("width", "phi")
    weighted = True
    mixes = Mix.TOKENS
    parity = Parity.WEIGHTS
    bends = False
    by_token = True
    width: int
    phi: Activation = _GELU
    weight_var: float = field(default=1.0, kw_only=True)
    out_var: float | None = field(default=None, kw_only=True)
    bias_var: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        check_count(self.width, "width", "tokenmix")
        if isinstance(self.phi, str):
            object.__setattr__(self, "phi", lookup.activation(self.phi))
        if not isinstance(self.phi, Activation) or self.phi.centered:
            raise InvalidInput("an activation, not centred", got=str(self.phi), where="tokenmix", hint="tokenmix(256)")
        check_number(self.weight_var, "weight_var", "tokenmix", strict=True, hint="tokenmix(256, weight_var=1)")
        if self.out_var is not None:
            check_number(self.out_var, "out_var", "tokenmix", strict=True, hint="tokenmix(256, out_var=1)")
        check_number(self.bias_var, "bias_var", "tokenmix", hint="tokenmix(256, bias_var=0.1)")

    def shape(self, before: Shape, units: int | None) -> Shape:
        check_tokens(before, self.kind)
        return before

    def covariance(self, points: Points, fold: Fold) -> Whole:
        return Whole(lambda k, t: self._run(points, k, t))

    def _run(self, points: Points, k: Array, t: Array | None) -> Done:
        """k_ab = σ₁²·mean_t K_tt; K' = δ_st σ₂² F(k), and its node means' δ_st σ₂² E φ_a E φ_b; biases add to both."""
        if t is not None:
            raise NotCovered(
                "a tangent kernel of tokenmix", got="none is known here", hint="fg.predict(net, data=x) without tangent"
            )
        if not points.centred:
            raise NotCovered(
                "tokens whose mean over nodes is 0 in front of tokenmix",
                got=points.what,
                hint="a layernorm or rmsnorm behind dense layers in front of it, or fg.measure(...)",
            )
        grid, places, n = points.grid, points.grid.places, points.count
        inner = self.weight_var * split(k, grid).diagonal(axis1=1, axis2=3).mean(axis=2) + self.bias_var
        q = inner.diagonal().copy()
        mapped, _ = kernel_map(self.phi, q)(inner, q[:, None], q[None, :], False)
        mean, square = means(self.phi, q)
        np.fill_diagonal(mapped, square)
        out_var = self.weight_var if self.out_var is None else self.out_var
        new = np.zeros((n, places, n, places))
        every = np.arange(places)
        new[:, every, :, every] = out_var * mapped + self.bias_var
        level = np.repeat((out_var * np.outer(mean, mean) + self.bias_var)[:, :, None], places, axis=2)
        own = np.repeat(out_var * square + self.bias_var, places)
        after = points.after(self, own, np.zeros_like(own), gaussian=False, what="mixed tokens", level=level)
        return Done(new.reshape(k.shape), None, after)

    def assumptions(self) -> Iterable[str]:
        yield "tokenmix: many tokens, none of which stands for many others"

    def tensors(self, place: Place) -> Alone:
        return Alone()

    def module(self, place: Place, draw: Draw) -> nn.Module:
        from torch import nn

        from firstguess.network import token_modules
        from firstguess.network.activations.tensors import module_of

        _, tokens = place.before.sizes
        biased = self.bias_var > 0.0
        out_var = self.weight_var if self.out_var is None else self.out_var
        inner = Weights((self.width, tokens), tokens, self.weight_var, self.bias_var)
        outer = Weights((tokens, self.width), self.width, out_var, self.bias_var)
        first, second = (
            draw.fill(nn.utils.skip_init(nn.Linear, weights.shape[1], weights.shape[0], bias=biased), weights)
            for weights in (inner, outer)
        )
        return token_modules.TokenMix(first, module_of(self.phi), second)
