"""An activation applied to every unit, and a gate: one half of the units through it, times the other half."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import field, replace
from typing import Any, ClassVar

import numpy as np

from firstguess.base.checks import float_range
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.gaussian import Array, correlate_leaky, correlated_leaky
from firstguess.base.text import number
from firstguess.network.activations import registry
from firstguess.network.activations.kernels import kernel_map, leaky_slopes, means, shifted
from firstguess.network.activations.record import Activation
from firstguess.network.activations.registry import activation
from firstguess.network.finite_sample import PointSample
from firstguess.network.finite_signal import FiniteSignal
from firstguess.network.layer import (
    Call,
    Fold,
    Layer,
    Mix,
    ReadContext,
    ReadResult,
    Symmetry,
    keeps_shape,
    nothing_assumed,
    register,
)
from firstguess.network.ops import ops, spelled
from firstguess.network.points import PairwiseMap, Points, Tile, UnitMap, Values, in_strips, same_map
from firstguess.network.shapes import Shape
from firstguess.network.signal import Signal, Unknown
from firstguess.network.tensors import FUNCTION, Draw, Local, OverData, Place, Scratch, SourceWriter

_TABLE = 15.0  # times as long as a relu where a kernel has no closed form (tanh)


def centre_of(phi: Activation, points: Points) -> float:
    """What a centred activation subtracts: one constant, its mean at the average variance."""
    level = float(points.mean[0])
    if level:
        phi = shifted(phi, level)
    return float(means(phi, np.array([float(points.q.mean()) - level**2]))[0][0])


def _constant_at(phi: Activation, signal: Signal | None) -> float | None:
    """E φ at the variance that the closed form predicts before a centred φ (theory.md §4), else 0.

    None where the closed form has no answer.
    """
    if not phi.centered:
        return 0.0
    if signal is None:
        return None
    with float_range():
        unit = signal.at_scale(0.0)
        return replace(phi, centered=False).moments(unit.between, unit.spread, mean=unit.mean).mean


@register
class Activate(Layer):
    """φ on every unit: theory.md (4). Needs a signal whose distribution is known."""

    kind: ClassVar[str] = "activation"
    weighted = False
    mixes = Mix.NOTHING
    breaks_gaussianity = True
    by_token = True
    phi: Activation
    symmetry: Symmetry = field(default=Symmetry.NONE, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "symmetry", Symmetry.ODD if self.phi.odd else Symmetry.NONE)

    @property
    def name(self) -> str:
        return self.phi.name

    @property
    def leaky_slopes(self) -> tuple[float, float] | None:
        return None if self.phi.centered else leaky_slopes(self.phi)

    @property
    def function(self) -> Activation:
        return self.phi

    def text(self) -> str:
        return str(self.phi)

    shape = keeps_shape

    def moments(self, signal: Signal) -> Signal:
        return (signal.distribution or Unknown("a signal of unknown distribution")).activate(signal, self.phi)

    def covariance(self, points: Points, fold: Fold) -> PairwiseMap:
        """K'_ab = E φ(u_a)φ(u_b), Θ ← Θ ∘ E φ'φ': theory.md (11), (12).

        A position that is 0 in all channels of an image (a black border) stays at φ(0), without a correlation.
        """
        if points.grid.flat:
            return self._by_pair(points)
        dead = points.q <= 0.0
        if not dead.any() or dead.all():
            move = self._by_pair(points)
            return PairwiseMap(move.after, in_strips(move.step))
        if self.phi.centered:
            expected = "images without positions that are 0 before a centred activation"
            hint = "a bias variance above 0, or standardized images"
            raise NotCovered(expected, got=f"{int(dead.sum())} of them", hint=hint)
        move = self._by_pair(replace(points, q=np.where(dead, np.median(points.q[~dead]), points.q)))
        run = in_strips(move.step)
        zero = float((self.phi.offset + self.phi.rise(np.zeros(1)))[0])
        mean, q = np.where(dead, zero, move.after.mean), np.where(dead, zero**2, move.after.q)

        def step(tile: Tile) -> None:
            run(tile)
            tile.k[dead[tile.rows]] = zero * mean[None, tile.cols]
            tile.k[:, dead[tile.cols]] = zero * mean[tile.rows, None]

        return PairwiseMap(replace(move.after, mean=mean, q=q), step)

    def _by_pair(self, points: Points) -> PairwiseMap:
        if not points.gaussian:
            hint = "put a dense layer between them, or use the ensemble reading: fg.measure(...)"
            raise NotCovered("a Gaussian signal before an activation", got=points.what, hint=hint)
        if points.level is not None or np.ptp(points.mean) > 0.0:
            expected = "a signal with one mean for all data points before an activation"
            hint = "a dense layer between them, or the ensemble reading: fg.measure(...)"
            raise NotCovered(expected, got=points.what, hint=hint)
        level = float(points.mean[0])
        phi, q = (self.phi, points.q) if level == 0.0 else (shifted(self.phi, level), points.q - level**2)
        if np.any(q <= 0.0):
            got = f"{int(np.sum(q <= 0.0))} points without any signal"
            raise NotCovered("data points that are not zero", got=got, hint="a bias variance above 0, or drop them")
        mean, square = means(phi, q)
        constant = centre_of(self.phi, points) if phi.centered else 0.0
        squares, what = square - 2.0 * constant * mean + constant**2, f"the output of {self.phi}"
        before = points if level == 0.0 else None
        after = points.after(self, squares, mean - constant, gaussian=False, what=what, before=before, phi=phi)
        slopes = leaky_slopes(phi)
        if slopes is not None:
            left, right = slopes
            growth = math.sqrt(0.5 * (left * left + right * right))

            def apply(tile: Tile) -> Array | None:
                slope = correlate_leaky(left, right, tile.correlations(q), tile.t is not None, tile.spare)
                tile.scale(growth)
                return slope

        else:
            run = kernel_map(phi, q)

            def apply(tile: Tile) -> Array | None:
                tile.k, slope = run(tile.k, q[tile.rows, None], q[None, tile.cols], tile.t is not None)
                return slope

        def step(tile: Tile) -> None:
            if level:
                tile.k -= level**2
            slope = apply(tile)
            if constant:
                tile.k -= constant * (mean[tile.rows, None] + mean[None, tile.cols] - constant)
            if tile.t is not None and slope is not None:
                tile.t = tile.t * slope

        if slopes is None or level or constant:
            return PairwiseMap(after, step)
        return PairwiseMap(after, step, lambda c: correlated_leaky(*slopes, c))

    def sampled_units(self, points: Points, known: bool) -> UnitMap:
        phi = self.phi
        constant = centre_of(phi, points) if known and phi.centered else None

        def run(y: Values) -> Values:
            out = phi.rise(y).astype(y.dtype, copy=False)
            if phi.centered:
                out -= out.mean() if constant is None else y.dtype.type(constant - phi.offset)
            elif phi.offset:
                out += y.dtype.type(phi.offset)
            return out

        return same_map(run)

    def finite(self, before: FiniteSignal, after: Signal) -> FiniteSignal:
        return before.activated(self.phi, after)

    def point_sample(self, sample: PointSample) -> PointSample:
        """φ of every unit; a centred one subtracts its mean at the variance that the closed form predicts here."""
        constant = _constant_at(self.phi, sample.signal)
        if constant is None:
            hint = "fg.measure(...)"
            raise NotCovered("a centred activation whose mean the closed form knows", got=f"{self.phi}", hint=hint)
        return sample.with_values(self.phi.rise(sample.values) + (self.phi.offset - constant))

    def effort(self) -> float:
        return _TABLE if self.phi.degree is None and self.phi.kernel is None else 1.0

    def gradient(self, signal: Signal) -> float | None:
        return signal.distribution.mean_square_slope(signal, self.phi) if signal.distribution is not None else None

    def assumptions(self) -> Iterable[str]:
        if self.phi.centered:
            yield f"{self.phi}: its mean is subtracted exactly, at the variance it meets"

    def _constant(self, place: Place) -> float | None:
        """What a centred φ takes off; None: φ's own mean over data and units, in each initialization."""
        return _constant_at(self.phi, place.signal() if self.phi.centered else None)

    def tensors(self, place: Place) -> Local | OverData:
        constant = self._constant(place)
        run = spelled.elementwise(self.phi, constant or 0.0)

        def apply(x: ops.Tensor, scratch: Scratch) -> ops.Tensor:
            return run(x)

        if constant is not None:
            return Local(apply)
        common = (-1, 1, 1, 1) if place.before.images else (-1, 1, 1)
        return OverData(
            lambda x, mean, variance: (mean.mean(1).to(x.dtype).view(common),),
            lambda x, terms: x.sub_(*terms),
            first=apply,
            whole=lambda x: x - x.mean(),
        )

    def source(self, at: SourceWriter) -> str:
        names = self.phi.torch
        if names is None or not (names.module or names.calls) or self.phi.centered:
            self._refuse("PyTorch source")
        if not names.module:
            title = self.phi.name.capitalize()
            at.classes[FUNCTION.format(name=title, call=names.calls[0])] = None
            return f"{title}()"
        given = dict(self.phi.params)
        words = [f"{key}={number(given[parameter])}" for key, parameter in names.arguments if parameter in given]
        words += [f"{key}={value!r}" for key, value in names.fixed if key != "inplace"]
        return f"nn.{names.module}({', '.join(words)})"

    def module(self, place: Place, draw: Draw) -> ops.nn.Module:
        module, constant = spelled.module_of(self.phi), self._constant(place)
        if constant is None:
            return ops.nn.Sequential(module, ops.MeanFree())
        return module if constant == 0.0 else ops.nn.Sequential(module, ops.Affine(1.0, -constant))

    modules = ("PReLU",)

    @classmethod
    def read_modules(cls) -> tuple[str | type, ...]:
        return *spelled.names()[0], *cls.modules

    @classmethod
    def read_calls(cls) -> tuple[str, ...]:
        return spelled.names()[1]

    @classmethod
    def from_module(cls, module: Any, context: ReadContext) -> ReadResult:
        """What the records say; the slope of a PReLU is a parameter."""
        if context.claim == "PReLU":
            slope = context.constants.get("weight")
            phi = "its slopes differ" if slope is None else activation("prelu", slope=slope)
        else:
            spelling = next(one for kind, one in spelled.by_module().items() if isinstance(module, kind))
            phi = spelling.meaning(lambda _, key, default: getattr(module, key, default))
        return ReadResult(why=phi) if isinstance(phi, str) else ReadResult((cls(phi),))

    @classmethod
    def from_call(cls, call: Call, context: ReadContext) -> ReadResult:
        phi = spelled.by_call()[call.target].meaning(call.argument)
        return ReadResult(why=phi) if isinstance(phi, str) else ReadResult((cls(phi),))


_WIDTH = 2  # units that become one


@register
class Gated(Layer):
    """φ(gate)·up, the two halves of what a dense layer gives (SwiGLU: gated(silu)): K' = F_φ(K)∘K, theory.md (22).

    Gate and up have weights of their own, so they are independent. 0 where two points are: gating creates no bias.
    """

    kind: ClassVar[str] = "gated"
    brief: ClassVar[tuple[str, ...]] = ("phi",)
    weighted = False
    mixes = Mix.UNITS
    symmetry = Symmetry.NONE
    breaks_gaussianity = True
    by_token = True
    phi: Activation

    def __post_init__(self) -> None:
        if isinstance(self.phi, str):
            object.__setattr__(self, "phi", registry.activation(self.phi))
        if not isinstance(self.phi, Activation) or self.phi.centered:
            raise InvalidInput("an activation, not centred", got=str(self.phi), where="gated", hint="gated(silu)")

    def text(self) -> str:
        return f"gated({self.phi})"

    @property
    def pools(self) -> int:
        return _WIDTH

    def shape(self, before: Shape, units: int | None) -> Shape:
        if before.width is None:
            return before
        if before.width % _WIDTH and (before.drawn or before.width < _WIDTH):
            hint = f"a width of {before.width + 1} in the dense layer before it"
            raise InvalidInput("an even width before a gate: two halves", got=before.width, hint=hint)
        return replace(before, width=before.width // _WIDTH)

    def moments(self, signal: Signal) -> Signal:
        """Independent factors: means, centers and totals multiply."""
        gate = (signal.distribution or Unknown("a signal of unknown distribution")).activate(signal, self.phi)
        between = gate.between * signal.center + gate.mean**2 * signal.between
        spread = gate.center * signal.spread + gate.spread * signal.total
        distribution = Unknown(f"the output of {self.text()}")
        scale = gate.log_scale + signal.log_scale
        return Signal(gate.mean * signal.mean, between, spread, scale, distribution).rescaled()

    def covariance(self, points: Points, fold: Fold) -> PairwiseMap:
        """K' = F∘K, Θ' = Θ∘(Ḟ∘K + F), entry by entry."""
        move = Activate(self.phi).covariance(points, fold)
        gate = move.after

        def step(tile: Tile) -> None:
            up, tangent = tile.k.copy(), tile.t
            tile.t = None if tangent is None else np.ones_like(tangent)
            move.step(tile)
            if tangent is not None:
                assert tile.t is not None  # now Ḟ
                tile.t = tangent * (tile.t * up + tile.k)
            tile.k *= up

        what = f"the output of {self.text()}"
        after = points.after(self, gate.q * points.q, gate.mean * points.mean, gaussian=False, what=what)
        return PairwiseMap(after, step)

    def sampled_units(self, points: Points, known: bool) -> UnitMap:
        phi = self.phi

        def run(y: Values) -> Values:
            gate, up = y.reshape(-1, _WIDTH, y.shape[1]).swapaxes(0, 1)
            out = phi.rise(gate).astype(y.dtype, copy=False)
            out += y.dtype.type(phi.offset)
            return out * up

        return same_map(run)

    def gradient(self, signal: Signal) -> float | None:
        """E (∂/∂gate)² + E (∂/∂up)² = E φ'²·E x² + E φ²."""
        if signal.distribution is None:
            return None
        slope = signal.distribution.mean_square_slope(signal, self.phi)
        gate = signal.distribution.activate(signal, self.phi)
        return None if slope is None else slope * signal.q + gate.q

    def effort(self) -> float:
        return Activate(self.phi).effort() + 1.0

    assumptions = nothing_assumed

    def tensors(self, place: Place) -> Local:
        run, axis = spelled.elementwise(self.phi, 0.0), 2 if place.before.images else 1

        def apply(x: ops.Tensor, scratch: Scratch) -> ops.Tensor:
            gate, up = x.chunk(2, dim=axis)
            return run(gate.contiguous()).mul_(up)

        return Local(apply)

    def module(self, place: Place, draw: Draw) -> ops.nn.Module:
        return ops.Gate(spelled.module_of(self.phi), 1 if place.before.images else -1)
