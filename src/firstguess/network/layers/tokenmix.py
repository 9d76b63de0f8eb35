"""Token mixing: two dense layers over tokens, the same for every unit."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple, final

import numpy as np

from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.gaussian import Array
from firstguess.network.activations import registry
from firstguess.network.activations.kernels import kernel_map
from firstguess.network.activations.record import Activation
from firstguess.network.layer import Fold, Layer, Mix, Symmetry, register, unbatched
from firstguess.network.points import AllPairsMap, Done, Points, Remark, split
from firstguess.network.tensors import Draw, Place, Weights
from firstguess.network.walk import keeps_tokens

if TYPE_CHECKING:
    from torch import nn

_GELU = registry.activation("gelu")
_FEWEST, _MOST = 256, 8192  # units that are drawn
_WORK = 2e10  # operations that they may take
_AT_ONCE = 4_000_000  # numbers of units drawn together


class _Units(NamedTuple):
    """E φ_a φ_b over units and units, the same of its means over units, one standard error by the diagonal."""

    k: Array
    level: Array
    error: float
    units: int


@register
@final
@dataclass(frozen=True)
class TokenMix(Layer):
    """W₂ φ(W₁ x) over the tokens of every unit (MLP-Mixer), `width` units between: theory.md (29).

    Its weights are shared by all units, so the mean over units is random and does not vanish: LayerNorm subtracts it,
    RMSNorm does not. Variances are times the fan-in; `out_var` and `out_bias_var` None: those of the first weights.
    """

    kind: ClassVar[str] = "tokenmix"
    brief: ClassVar[tuple[str, ...]] = ("width", "phi")
    weighted = True
    mixes = Mix.TOKENS
    symmetry = Symmetry.WEIGHTS
    breaks_gaussianity = False
    above = ("weight_var", "out_var")
    example = "256"
    by_token = True
    width: int
    phi: Activation = _GELU
    weight_var: float = field(default=1.0, kw_only=True)
    out_var: float | None = field(default=None, kw_only=True)
    bias_var: float = field(default=0.0, kw_only=True)
    out_bias_var: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.phi, str):
            object.__setattr__(self, "phi", registry.activation(self.phi))
        if not isinstance(self.phi, Activation) or self.phi.centered:
            raise InvalidInput("an activation, not centred", got=str(self.phi), where="tokenmix", hint="tokenmix(256)")

    @property
    def _outer(self) -> tuple[float, float]:
        """Variances of the second weights and of its biases."""
        return (
            self.weight_var if self.out_var is None else self.out_var,
            self.bias_var if self.out_bias_var is None else self.out_bias_var,
        )

    shape = keeps_tokens

    def covariance(self, points: Points, fold: Fold) -> AllPairsMap:
        return AllPairsMap(lambda k, t: self._run(points, k, t))

    def _run(self, points: Points, k: Array, t: Array | None) -> Done:
        """K' = δ_st σ₂² E F(k), and δ_st σ₂² E F(n) of the means over units; biases add to both: theory.md (29).

        Given the weights w of a unit, it is Gaussian over nodes with the covariance k_ab = wᵀK_ab w + σb², of which
        n_ab = wᵀN_ab w + σb² is common to all units. Over units k fluctuates about σ₁²·mean_t K_tt by √(2/tokens), by
        more where tokens are alike: so units are drawn, and F averaged.
        """
        if t is not None:
            raise NotCovered(
                "a tangent kernel of tokenmix", got="none is known here", hint="fg.predict(net, data=x) without tangent"
            )
        if points.real is not None:
            raise NotCovered(
                "sequences without padding before tokenmix, which has a weight for every place",
                got="padding",
                hint="sequences of one length",
            )
        if points.mean.any():
            raise NotCovered(
                "tokens whose mean over nodes is 0 before tokenmix",
                got=points.what,
                hint="a layernorm before it, or fg.measure(...)",
            )
        places, n = points.grid.places, points.count
        found = self._units(split(k, points.grid), points.level)
        out_var, out_bias = self._outer
        new = np.zeros((n, places, n, places))
        every = np.arange(places)
        new[:, every, :, every] = out_var * found.k + out_bias
        level = np.repeat((out_var * found.level + out_bias)[:, :, None], places, axis=2)
        own = np.repeat(out_var * found.k.diagonal() + out_bias, places)
        after = points.after(self, own, np.zeros_like(own), gaussian=False, what="mixed tokens", level=level)
        said = (
            f"tokenmix by {found.units} sampled units, a covariance to ±{found.error:.2%} of the diagonal "
            "(one standard error)"
        )
        return Done(new.reshape(k.shape), None, after, (Remark(said, "nodes", found.error),))

    def _units(self, blocks: Array, level: Array | None) -> _Units:
        """E F(k) and E F(n) over drawn units; `blocks` is (n, T, n, T)."""
        n, places = blocks.shape[:2]
        work = 2.0 * blocks.size + 500.0 * n * n
        count = int(min(max(_WORK / work, _FEWEST), _MOST))
        rng = np.random.default_rng(np.frombuffer(np.float64(blocks.mean()).tobytes(), dtype=np.uint32))
        pairs, means, seen = np.zeros((n, n)), np.zeros((n, n)), list[float]()
        at_once = max(1, min(count, _AT_ONCE // (n * n * places)))
        for first in range(0, count, at_once):
            w = rng.standard_normal((min(at_once, count - first), places))
            w *= np.sqrt(places / np.einsum("ut,ut->u", w, w))[:, None]  # below, its length comes back
            part = np.tensordot(w, blocks, axes=(1, 1))  # (units, n, n, T)
            length = self.weight_var * rng.chisquare(places, len(w))[:, None, None] / places**2
            k = length * np.einsum("uabt,ut->uab", part, w) + self.bias_var
            common = np.full_like(k, self.bias_var)
            if level is not None:
                common += length * np.einsum("abt,ut->uab", level, w**2)
            q = np.einsum("uaa->ua", k).copy()
            run = kernel_map(self.phi, q.ravel())
            f, _ = run(k, q[:, :, None], q[:, None, :], False)
            m, _ = run(common, q[:, :, None], q[:, None, :], False)
            pairs += f.sum(axis=0)
            means += m.sum(axis=0)
            seen += list(f.mean(axis=(1, 2)))
        pairs, means = (0.5 * (x + x.T) / count for x in (pairs, means))
        error = float(np.std(seen, ddof=1)) / math.sqrt(count) / float(pairs.diagonal().mean())
        return _Units(pairs, means, error, count)

    def assumptions(self) -> Iterable[str]:
        yield "tokenmix: many units"

    tensors = unbatched

    def module(self, place: Place, draw: Draw) -> nn.Module:
        from torch import nn

        from firstguess.network import torch_ops
        from firstguess.network.activations.tensors import module_of

        _, tokens = place.before.sizes
        inner = Weights((self.width, tokens), tokens, self.weight_var, self.bias_var)
        outer = Weights((tokens, self.width), self.width, *self._outer)
        first, second = (
            draw.fill(
                nn.utils.skip_init(nn.Linear, weights.shape[1], weights.shape[0], bias=weights.bias_var > 0.0), weights
            )
            for weights in (inner, outer)
        )
        return torch_ops.TokenMixModule(first, module_of(self.phi), second)
