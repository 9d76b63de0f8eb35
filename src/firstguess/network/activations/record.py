"""Activations: their names, their Gaussian moments (in closed form where one is known), and the bias criterion."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from firstguess.base import gaussian
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.gaussian import Array, Feature, Function, Moments
from firstguess.base.text import number
from firstguess.network.activations import closed_moments

# Beyond this |log q| an activation is its own asymptote to 1e-16, and √q would soon leave float64.
_FAR = 75.0


@dataclass(frozen=True)
class Activation:
    """A scalar function with what is known about it. Get one with `fg.activation("gelu")`.

    The function is `offset + rise(x)` with `rise(0) = 0`, so that small signals on a large constant keep their digits.
    Two activations are equal when their names and parameters are; what is known of them lives in zoo.py.
    """

    name: str
    params: tuple[tuple[str, float], ...] = ()
    rise: Function = field(default=lambda x: x, compare=False, repr=False)
    derivative: Function | None = field(default=None, compare=False, repr=False)
    offset: float = field(default=0.0, repr=False)  # compared: asymptotes of different functions differ only in it
    features: tuple[Feature, ...] = field(default=(), repr=False)  # compared: the same callable with other kinks
    degree: int | None = field(default=None, compare=False, repr=False)  # φ(ax) = a^degree φ(x) for a > 0
    near: tuple[float, float] | None = field(default=None, compare=False, repr=False)  # slopes left, right of 0
    far: tuple[float, float] | None = field(default=None, compare=False, repr=False)  # slopes at −∞, +∞; None: bounded
    nondecreasing: bool = field(default=False, compare=False, repr=False)
    odd: bool = field(default=False, compare=False, repr=False)  # its mean is 0 exactly, not to rounding
    closed: closed_moments.ClosedForm | None = field(default=None, compare=False, repr=False)
    shifted: closed_moments.ShiftedForm | None = field(default=None, compare=False, repr=False)  # about any mean
    energy: Callable[[float], float] | None = field(default=None, compare=False, repr=False)  # closed E φ'(√q z)²
    slopes: closed_moments.SlopeKernel | None = field(default=None, compare=False, repr=False)  # closed E φ'φ'
    jumps: bool = field(default=False, compare=False, repr=False)
    source: Function | None = field(default=None, repr=False)  # a user's callable: part of its identity
    centered: bool = False

    def __call__(self, x: Array) -> Array:
        """φ(x), elementwise. A centered activation subtracts its mean at unit variance."""
        x = np.asarray(x, dtype=np.float64)
        value = self.offset + self.rise(x)
        return value - replace(self, centered=False).moments(0.0, 1.0).mean if self.centered else value

    def __str__(self) -> str:
        base = self.name + (f"({', '.join(f'{k}={number(v)}' for k, v in self.params)})" if self.params else "")
        return f"centered({base})" if self.centered else base

    def moments(self, between: float, spread: float, *, mean: float = 0.0) -> Moments:
        """The moments of φ(u) for a Gaussian u with this mean, between-node and over-data variance: theory.md (4)."""
        result = _shifted_moments(self, mean, between, spread) if mean != 0.0 else _moments(self, between, spread)
        return result._replace(mean=0.0) if self.centered else result

    def mean_square_slope(self, q: float) -> float:
        """E φ'(√q z)²: what a layer does to the mean square of gradients, up to σw² (theory.md (10))."""
        if self.jumps:
            return math.inf
        if self.energy is not None:
            return self.energy(q)
        derivative = self.derivative
        if derivative is None:  # R(θ→0) of a callable whose derivative nobody gave
            s = 1e-30 * q
            return self._integrate(self.rise, q - s, s, jumps=False).spread / s
        return gaussian.expectation(lambda x: derivative(x) ** 2, q, self.features)

    def slope_kernel(self, between: float, spread: float) -> float:
        """E φ'(u_a)φ'(u_b) for two data points: the derivative of the correlation map."""
        if self.slopes is not None:
            return self.slopes(between, spread)
        if self.jumps:
            raise NotCovered("an activation without jumps", got=f"{self}", hint="a steep but continuous version of it")
        if self.derivative is None:
            raise NotCovered(
                "an activation whose derivative is known",
                got=f"{self}",
                hint="pass it: fg.activation(fn, derivative=...)",
            )
        m = self._integrate(self.derivative, between, spread, jumps=True)  # a kink of φ is a jump of φ'
        return m.mean**2 + m.between

    def _integrate(self, fn: Function, between: float, spread: float, *, jumps: bool) -> Moments:
        run = gaussian.moments if self.source is None else gaussian.checked_moments
        return run(fn, between, spread, self.features, jumps=jumps)

    def asymptote(self, log_q: float) -> Activation | None:
        """The piecewise-linear function φ is equal to at such scales, None where it must be computed."""
        if self.degree is not None or abs(log_q) <= _FAR:
            return None
        slopes = self.near if log_q < 0 else self.far
        if slopes is None:
            return None
        left, right = slopes
        ray = piecewise("piecewise_linear", left, right, (("left", left), ("right", right)))
        return replace(ray, offset=self.offset if log_q < 0 else 0.0, centered=self.centered)


@lru_cache(maxsize=65536)
def _moments(phi: Activation, between: float, spread: float) -> Moments:
    if between + spread == 0.0:
        return Moments(phi.offset, 0.0, 0.0)
    if phi.closed is not None:
        result = phi.closed(between, spread)
    elif phi.source is not None:
        result = gaussian.checked_moments(phi.rise, between, spread, phi.features, jumps=phi.jumps)
    else:
        result = gaussian.moments(phi.rise, between, spread, phi.features, derivative=phi.derivative)
    return result._replace(mean=0.0 if phi.odd else phi.offset + result.mean)


@lru_cache(maxsize=4096)
def _shifted_moments(phi: Activation, mean: float, between: float, spread: float) -> Moments:
    if phi.shifted is not None:
        return phi.shifted(between, spread, mean)
    features = tuple(Feature(f.at - mean, f.width) for f in phi.features)
    if phi.source is not None:
        result = gaussian.checked_moments(lambda x: phi.rise(x + mean), between, spread, features, jumps=phi.jumps)
    else:
        slope = phi.derivative
        result = gaussian.moments(
            lambda x: phi.rise(x + mean),
            between,
            spread,
            features,
            jumps=phi.jumps,
            derivative=None if slope is None else lambda x: slope(x + mean),
        )
    return result._replace(mean=phi.offset + result.mean)


def piecewise(name: str, left: float, right: float, params: tuple[tuple[str, float], ...] = ()) -> Activation:
    """`right·x` above 0, `left·x` below."""
    return Activation(
        name,
        params,
        rise=lambda x: np.where(x > 0, right * x, left * x),
        derivative=lambda x: np.where(x > 0, right, left) + 0.0 * x,
        features=(Feature(0.0, 0.0),) if left != right else (),
        degree=1,
        nondecreasing=left >= 0 and right >= 0,
        closed=lambda b, s: closed_moments.piecewise_linear(left, right, b, s),
        energy=lambda q: 0.5 * (left * left + right * right),
        slopes=lambda b, s: closed_moments.piecewise_linear_slope_kernel(left, right, b, s),
    )


ALIASES = {"identity": "linear", "swish": "silu", "hard_swish": "hardswish", "logistic": "sigmoid", "sine": "sin"}


@lru_cache(maxsize=1)
def _table() -> dict[str, Callable[..., Activation]]:
    from firstguess.network.activations.zoo import registered  # it builds on this module

    return registered()


def names() -> list[str]:
    """Every registered activation, in the order of the table."""
    return list(_table())


def activation(
    what: str | Activation | Function,
    /,
    *,
    name: str | None = None,
    kinks: Iterable[float] = (),
    derivative: Function | None = None,
    **params: float,
) -> Activation:
    """An activation from its name, or from any NumPy function.

    A function of your own is integrated numerically; name the points where it bends or jumps, and give its derivative
    (`derivative`) if you want depth scales.

    >>> activation("leaky_relu", slope=0.2)
    Activation(name='leaky_relu', params=(('slope', 0.2),), centered=False)
    >>> print(f"{activation(lambda x: np.maximum(x, 0), kinks=[0.0]).moments(0.0, 1.0).mean:.6f}")   # 1/√(2π)
    0.398942
    """
    if isinstance(what, Activation):
        return what
    if callable(what):
        return _custom(what, name or getattr(what, "__name__", "custom"), kinks, derivative)
    key = ALIASES.get(str(what).strip().lower(), str(what).strip().lower())
    if key not in _table():
        import difflib

        close = difflib.get_close_matches(key, [*_table(), *ALIASES], n=1)
        raise InvalidInput(
            "the name of an activation or a NumPy function",
            got=repr(what),
            hint=f"{close[0]!r}" if close else "one of " + ", ".join(_table()),
        )
    for label, value in params.items():
        try:
            finite = math.isfinite(value)
        except TypeError:
            finite = False
        if not finite:
            raise InvalidInput(f"a finite number for {label}", got=value, where=key, hint=f"{key}({label}=0.1)")
    try:
        return _table()[key](**{k: float(v) for k, v in params.items()})
    except TypeError:
        raise InvalidInput(
            f"parameters that {key} has", got=", ".join(params), where=key, hint="firstguess activations"
        ) from None


def _bends_at_zero(fn: Function) -> bool:
    # Most kinks are at 0, where quadrature panels meet: undeclared, one would hide there instead of spoiling agreement.
    # 2·d(h/2) − d(h), d(h) = (φ(h) + φ(−h) − 2φ(0))/h, is the jump of the slope; a smooth φ leaves only O(h³).
    h = 1e-4
    at = gaussian.evaluate(fn, np.array([-h, -0.5 * h, 0.0, 0.5 * h, h]))
    outer, inner = (at[0] + at[4] - 2.0 * at[2]) / h, 2.0 * (at[1] + at[3] - 2.0 * at[2]) / h
    step = float(np.max(np.abs(np.diff(at))))
    rounding = 1e-14 * float(np.max(np.abs(at)))
    return step > 1e-2 or h * abs(2.0 * inner - outer) > 1e-8 * step + rounding


def _custom(fn: Function, name: str, kinks: Iterable[float], derivative: Function | None) -> Activation:
    points = tuple(float(k) for k in kinks)
    if not all(math.isfinite(k) for k in points):
        raise InvalidInput("finite kinks", got=points, where=f"activation {name}", hint="kinks=(0.0,)")
    probe = np.concatenate([np.linspace(-30.0, 30.0, 121), np.array([0.0])])
    values = gaussian.evaluate(fn, probe)
    offset = float(values[-1])
    if 0.0 not in points and _bends_at_zero(fn):
        points = (*points, 0.0)
    left, right = (gaussian.evaluate(fn, np.array([k + d for k in points])) for d in (-1e-9, 1e-9))
    jumps = bool(points) and bool(np.any(np.abs(right - left) > 1e-5 * (1.0 + np.abs(left))))
    # Nothing is known about its smoothness: a feature of width 1 at 0, and the quadrature refines until it agrees.
    return Activation(
        name,
        rise=lambda x: np.asarray(fn(x), dtype=np.float64) - offset,
        derivative=derivative,
        offset=offset,
        features=(*(Feature(k, 0.0) for k in points), Feature(0.0, 1.0)),
        source=fn,
        jumps=jumps,
        nondecreasing=bool(np.all(np.diff(values[:-1]) >= 0)),
    )


def register_activation(
    name: str, fn: Function, *, kinks: Iterable[float] = (), derivative: Function | None = None
) -> Activation:
    """Give a function of your own a name, so that it can be used in text: `dense > mine > dense`."""
    if not name.isidentifier() or name in _table():
        raise InvalidInput(
            "a new name made of letters, digits and _", got=repr(name), hint="register_activation('mine', fn)"
        )
    made = _custom(fn, name, kinks, derivative)
    _table()[name] = lambda: made
    return made


def centered(what: str | Activation | Function, /) -> Activation:
    """φ − E φ: the activation with its own mean taken off, which cures it of bias (theory.md §4; IGB App. G).

    The mean is the one at the variance the activation meets in its place in the network.

    >>> print(centered("relu"))
    centered(relu)
    """
    return replace(activation(what), centered=True)


def causes_bias(what: str | Activation | Function, /, *, q: float = 1.0) -> bool:
    """Whether an activation causes initial guessing bias: iff E φ(√q z) ≠ 0 (theory.md §4; IGB App. G).

    >>> causes_bias("gelu"), causes_bias("tanh"), causes_bias(centered("gelu"))
    (True, False, False)
    """
    m = activation(what).moments(0.0, q)
    return abs(m.mean) > 1e-9 * math.sqrt(m.mean**2 + m.spread)
