"""What mixes tokens with random weights: self-attention, and two dense layers over tokens (MLP-Mixer)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import ClassVar, Literal

import numpy as np

from firstguess.base import checks
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.gaussian import Array
from firstguess.network.activations import registry
from firstguess.network.activations.kernels import kernel_map
from firstguess.network.activations.record import Activation
from firstguess.network.attention_theory import Heads, annealed, attention_back, sampled, uniform
from firstguess.network.layer import Back, Fold, Layer, Symmetry, TokenLayer, register
from firstguess.network.ops import ops, spelled
from firstguess.network.points import AllPairsMap, Done, Points, Remark, split
from firstguess.network.shapes import Shape, check_unpadded
from firstguess.network.tensors import Draw, Place, Weights
from firstguess.network.walk import check_tokens, keeps_tokens

Weighing = Literal["auto", "uniform", "annealed", "renormalized", "sampled"]
_WAYS = ("auto", "uniform", "annealed", "renormalized", "sampled")
_EQUATIONS = {"uniform": 24, "annealed": 25, "renormalized": 26, "sampled": 27}
# β² up to which weights are taken as uniform, annealed, renormalized: γ of a GPT-2 of 4 layers is then off by up to
# 0.03, 0.1 and 0.5 %
_UNIFORM, _ANNEALED, _RENORMALIZED = 2e-3, 0.1, 1.0
_MANY = 32.0  # tokens attended to that these were found for: with fewer, what soft-max divides by is less of an average
_ALIKE = 1e-3  # of the mean square
_TURNED = 0.02  # β² up to which queries and keys are left out of gradients where they turn: no formula is known
_WORK = 4e13  # operations beyond which heads are not sampled unless that is asked for


class TwoWeights(TokenLayer):
    """A layer of tokens that has weights twice; the second have the variances of the first where none are given."""

    weighted = True
    symmetry = Symmetry.WEIGHTS
    weight_var: float
    bias_var: float
    out_var: float | None
    out_bias_var: float | None

    @property
    def _outer(self) -> tuple[float, float]:
        """Variances of the second weights and of their biases."""
        return (
            self.weight_var if self.out_var is None else self.out_var,
            self.bias_var if self.out_bias_var is None else self.out_bias_var,
        )

    def _no_tangent(self, t: Array | None) -> None:
        if t is not None:
            hint = "fg.predict(net, data=x) without tangent"
            raise NotCovered(f"a tangent kernel of {self.kind}", got="none is known here", hint=hint)


@register
class Attention(TwoWeights):
    """Multi-head self-attention: W_o of the heads' Σ_t A_st v_t, A the soft-max of q·k/√(width/heads): theory.md (23).

    Variances are times the fan-in, as a dense layer's: `weight_var` of queries, keys and values, `out_var` of the
    output (None: the same), `bias_var` and `out_bias_var` of their biases. `causal`: a token attends to itself and
    those before it; `window`: only to those nearer than this, |s − t| < window. `groups`: the number of keys and
    values, each of heads/groups queries (None: one of each a head); their distribution is the same, (23) being an
    average over heads, and only a finite network has fewer values to average over. `rotary`: queries and keys turn with
    their place, `base` being the longest wave's. `by` says how the kernel takes the weights A; by itself it goes by the
    variance β² of logits (theory.md (24)-(27)). Nobody attends to padding (`embed(padding=…)`).
    """

    kind: ClassVar[str] = "attention"
    brief: ClassVar[tuple[str, ...]] = ("heads", "causal", "rotary")
    above = ("weight_var", "out_var", "base")
    example = "12"
    heads: int
    causal: bool = False
    rotary: bool = False
    weight_var: float = field(default=1.0, kw_only=True)
    out_var: float | None = field(default=None, kw_only=True)
    bias_var: float = field(default=0.0, kw_only=True)
    out_bias_var: float | None = field(default=None, kw_only=True)
    base: float = field(default=10000.0, kw_only=True)
    by: Weighing = field(default="auto", kw_only=True)
    groups: int | None = field(default=None, kw_only=True)
    window: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.choice(self.by, _WAYS, "attention", "by", hint="by=sampled")
        if self.groups is not None and self.heads % self.groups:
            near = next(g for g in range(min(self.groups, self.heads), 0, -1) if self.heads % g == 0)
            expected = f"groups that divide the heads, {self.heads}"
            hint = f"attention({self.heads}, groups={near})"
            raise InvalidInput(expected, got=self.groups, where="attention", hint=hint)

    def shape(self, before: Shape, units: int | None) -> Shape:
        check_tokens(before, self.kind)
        if before.width is None or (units is not None and not before.drawn):
            return before  # a width that nobody named is no one's choice of heads
        if before.width % self.heads:
            near = next(h for h in range(min(self.heads, before.width), 0, -1) if before.width % h == 0)
            hint = f"attention({near})"
            raise InvalidInput(f"heads that divide the width, {before.width}", got=self.heads, hint=hint)
        if self.rotary and before.width // self.heads % 2:
            hint = "fewer heads"
            raise InvalidInput("heads of an even width for rotary positions", got=before.width // self.heads, hint=hint)
        return before

    def _size(self, width: int) -> int:
        return max(2, width // self.heads // 2 * 2) if self.rotary else max(1, width // self.heads)

    def _turns(self, width: int) -> Array | None:
        """Angles per token, one for every two units of a head."""
        half = self._size(width) // 2
        return self.base ** (-np.arange(half) / half) if self.rotary else None

    def covariance(self, points: Points, fold: Fold) -> AllPairsMap:
        """K' = σo²(σv² E_heads[A K Aᵀ] + σb²) + σbo²: theory.md (23)."""
        return AllPairsMap(lambda k, t: self._run(points, k, t))

    def _run(self, points: Points, k: Array, t: Array | None) -> Done:
        self._no_tangent(t)
        heads = self.heads_of(points)
        beta = float(heads.logit_variance(k).max())
        way = self.way(beta, heads, points)
        said = f"attention by {way} weights: the variance of logits is β² = {beta:.2g}, theory.md ({_EQUATIONS[way]})"
        kind, error = way, beta
        if way == "sampled":
            mixed, error, count = sampled(k, heads)
            said += f"; {count} heads, a covariance to ±{error:.2%} of the diagonal (one standard error)"
            kind = "heads"
        else:
            mixed = uniform(k, heads) if way == "uniform" else annealed(k, heads, renormalize=way == "renormalized")
        out_var, out_bias = self._outer
        mixed *= self.gain
        mixed += out_var * self.bias_var + out_bias
        q = mixed.diagonal().copy()
        after = points.after(self, q, np.zeros_like(q), gaussian=True, what="attention")
        return Done(mixed, None, after, (Remark(said, kind, error),))

    @property
    def gain(self) -> float:
        """σv²σo²."""
        return self.weight_var * self._outer[0]

    def heads_of(self, points: Points) -> Heads:
        """What is known of its heads' logits on these points."""
        width = points.width
        return Heads(
            points.count,
            points.grid.places,
            self.weight_var**2,
            self.causal,
            self.bias_var / self.weight_var,
            self._size(width),
            self._turns(width),
            # A window that none leaves is none: then sums are cumulative, or over all.
            None if self.window is None or self.window >= points.grid.places else self.window,
            None if points.real is None else points.real.reshape(points.count, -1),
        )

    def way(self, beta: float, heads: Heads, points: Points) -> str:
        """How weights are taken at this variance of logits."""
        # Different sizes move annealed weights by β² of their spread: what ε of a norm leaves of it is none of these.
        apart = float(np.ptp(points.shown) / points.shown.max())
        alike = apart <= _ALIKE or (beta <= _ANNEALED and beta * apart <= _ALIKE)
        formula = alike and not self.rotary  # both want a common diagonal, and know no rotations
        if self.by in ("annealed", "renormalized") and not formula:
            expected = f"tokens of one mean square, without rotations, for {self.by} attention"
            got = "rotary positions" if self.rotary else "tokens that differ in size"
            raise NotCovered(expected, got=got, hint="attention(…, by=sampled), or a norm before it")
        if self.by != "auto":
            return self.by
        if beta <= _UNIFORM:
            return "uniform"
        few = min(1.0, float(heads.windows.max(axis=-1).min()) / _MANY)  # of the sequence where tokens attend to fewest
        if beta <= few * _ANNEALED and formula:
            return "annealed"
        if beta <= few * _RENORMALIZED and formula:
            return "renormalized"
        work = 32 * 4.0 * heads.tokens * points.q.size**2 + float(points.q.size) ** 3
        return "sampled" if work <= _WORK or not formula else "renormalized"

    def token_gradients(self, points: Points, k: Array, along: Callable[[Sequence[Layer]], Back]) -> Back:
        heads = self.heads_of(points)
        beta = float(heads.logit_variance(k).max())
        if self.rotary and beta > _TURNED:
            self._refuse("gradients, where rotations matter,")
        level = self.way(beta, heads, points) == "uniform"
        return lambda g: self.gain * attention_back(k, g, heads, uniform=level)

    def assumptions(self) -> Iterable[str]:
        yield "attention: many heads"

    def module(self, place: Place, draw: Draw) -> ops.nn.Module:
        """Queries, keys and values in one matrix, as torch's own; then the output."""
        width = place.before.units
        few = self.heads if self.groups is None else self.groups
        inner = Weights((width + 2 * (width // self.heads * few), width), width, self.weight_var, self.bias_var)
        outer = Weights((width, width), width, *self._outer)
        first, last = ops.linear(draw, inner), ops.linear(draw, outer)
        return ops.SelfAttention(first, last, self.heads, self.causal, self._turns(width), few, self.window)


_GELU = registry.activation("gelu")
_FEWEST, _MOST = 256, 8192  # units that are drawn
_UNITS_WORK = 2e10  # operations that they may take
_AT_ONCE = 4_000_000  # numbers of units drawn together


@register
class TokenMix(TwoWeights):
    """W₂ φ(W₁ x) over the tokens of every unit (MLP-Mixer), `width` units between: theory.md (29).

    Its weights are shared by all units, so the mean over units is random and does not vanish: LayerNorm subtracts it,
    RMSNorm does not. Variances are times the fan-in; `out_var` and `out_bias_var` None: those of the first weights.
    """

    kind: ClassVar[str] = "tokenmix"
    brief: ClassVar[tuple[str, ...]] = ("width", "phi")
    above = ("weight_var", "out_var")
    example = "256"
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

    shape = keeps_tokens

    def covariance(self, points: Points, fold: Fold) -> AllPairsMap:
        return AllPairsMap(lambda k, t: self._run(points, k, t))

    def _run(self, points: Points, k: Array, t: Array | None) -> Done:
        """K' = δ_st σ₂² E F(k), and δ_st σ₂² E F(n) of the means over units; biases add to both: theory.md (29).

        Given the weights w of a unit, it is Gaussian over nodes with the covariance k_ab = wᵀK_ab w + σb², of which
        n_ab = wᵀN_ab w + σb² is common to all units. Over units k fluctuates about σ₁²·mean_t K_tt by √(2/tokens), by
        more where tokens are alike: so units are drawn, and F averaged.
        """
        self._no_tangent(t)
        check_unpadded(points.real)
        if points.mean.any():
            hint = "a layernorm before it, or fg.measure(...)"
            raise NotCovered("tokens whose mean over nodes is 0 before tokenmix", got=points.what, hint=hint)
        places, n = points.grid.places, points.count
        pairs, means, error, units = self._units(split(k, points.grid), points.level)
        out_var, out_bias = self._outer
        new = np.zeros((n, places, n, places))
        every = np.arange(places)
        new[:, every, :, every] = out_var * pairs + out_bias
        level = np.repeat((out_var * means + out_bias)[:, :, None], places, axis=2)
        own = np.repeat(out_var * pairs.diagonal() + out_bias, places)
        after = points.after(self, own, np.zeros_like(own), gaussian=False, what="mixed tokens", level=level)
        said = f"tokenmix by {units} sampled units, a covariance to ±{error:.2%} of the diagonal (one standard error)"
        return Done(new.reshape(k.shape), None, after, (Remark(said, "nodes", error),))

    def _units(self, blocks: Array, level: Array | None) -> tuple[Array, Array, float, int]:
        """E F(k) and E F(n) over drawn units, one standard error by the diagonal, how many; `blocks`: (n, T, n, T)."""
        n, places = blocks.shape[:2]
        work = 2.0 * blocks.size + 500.0 * n * n
        count = int(min(max(_UNITS_WORK / work, _FEWEST), _MOST))
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
        return pairs, means, error, count

    def assumptions(self) -> Iterable[str]:
        yield "tokenmix: many units"

    def module(self, place: Place, draw: Draw) -> ops.nn.Module:
        _, tokens = place.before.sizes
        inner = Weights((self.width, tokens), tokens, self.weight_var, self.bias_var)
        outer = Weights((tokens, self.width), self.width, *self._outer)
        first = ops.linear(draw, inner)
        return ops.TokenMixModule(first, spelled.module_of(self.phi), ops.linear(draw, outer))
