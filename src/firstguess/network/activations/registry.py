"""Activations by name, functions of one's own, and centring."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from firstguess.base import gaussian
from firstguess.base.checks import check_number, is_module
from firstguess.base.errors import InvalidInput
from firstguess.base.gaussian import Feature, Function
from firstguess.network.activations import catalogue
from firstguess.network.activations.record import Activation

ALIASES = {"identity": "linear", "swish": "silu", "hard_swish": "hardswish", "logistic": "sigmoid", "sine": "sin"}


# In the order in which they are listed; those with parameters are functions of them.
_BUILT_IN: tuple[Activation | Callable[..., Activation], ...] = (
    catalogue.LINEAR, catalogue.RELU, catalogue.ABS, catalogue.TANH, catalogue.ERF, catalogue.GELU, catalogue.GELU_TANH,
    catalogue.SILU, catalogue.MISH, catalogue.SELU, catalogue.SOFTPLUS, catalogue.SIGMOID, catalogue.HARDTANH,
    catalogue.RELU6, catalogue.HARDSWISH, catalogue.SIN, catalogue.SQUARE, catalogue.SIGN, catalogue.leaky_relu,
    catalogue.prelu, catalogue.elu,
)  # fmt: skip
_TABLE: dict[str, Callable[..., Activation]] = {}


def register(what: Activation | Callable[..., Activation]) -> None:
    """Add a record, or a function from parameters (all with defaults) to one, under its name."""
    if isinstance(what, Activation):
        _TABLE[what.name] = lambda: what
    else:
        _TABLE[what().name] = what


for _record in _BUILT_IN:
    register(_record)


def names() -> list[str]:
    """Every registered activation, in the order of the table."""
    return list(_TABLE)


def _as_name(module: str) -> str:
    """What a class of torch.nn is called here."""
    for key, make in _TABLE.items():
        names = make().torch
        if names is not None and module in (names.module, *(other.module for other in names.also)):
            given = ", ".join(f"{parameter}=…" for _, parameter in names.arguments)
            return f"fg.activation({key!r}, {given})" if given else repr(key)
    return "lambda x: np.maximum(x, 0), written with NumPy"


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

    A function of your own is integrated and differentiated numerically; name the points where it bends or jumps. Its
    `derivative`, if you give it, makes slopes exact.

    >>> activation("leaky_relu", slope=0.2)
    Activation(name='leaky_relu', params=(('slope', 0.2),), centered=False)
    >>> print(f"{activation(lambda x: np.maximum(x, 0), kinks=[0.0]).moments(0.0, 1.0).mean:.6f}")   # 1/√(2π)
    0.398942
    """
    if isinstance(what, Activation):
        return what
    if callable(what):
        if is_module(what):
            kind = what.__name__ if isinstance(what, type) else type(what).__name__
            hint = _as_name(kind)
            raise InvalidInput("the name of an activation or a NumPy function", got=f"the module {kind}()", hint=hint)
        return _custom(what, name or getattr(what, "__name__", "custom"), kinks, derivative)
    key = ALIASES.get(str(what).strip().lower(), str(what).strip().lower())
    if key not in _TABLE:
        import difflib

        close = difflib.get_close_matches(key, [*_TABLE, *ALIASES], n=1)
        hint = f"{close[0]!r}" if close else "one of " + ", ".join(_TABLE)
        raise InvalidInput("the name of an activation or a NumPy function", got=repr(what), hint=hint)
    for label, value in params.items():
        try:
            finite = math.isfinite(value)
        except TypeError:
            finite = False
        if not finite:
            raise InvalidInput(f"a finite number for {label}", got=value, where=key, hint=f"{key}({label}=0.1)")
    try:
        return _TABLE[key](**{k: float(v) for k, v in params.items()})
    except TypeError:
        hint = "firstguess activations"
        raise InvalidInput(f"parameters that {key} has", got=", ".join(params), where=key, hint=hint) from None


def _kink_at_zero(fn: Function) -> bool:
    # Most kinks are at 0, where quadrature panels meet: undeclared, one would hide there instead of spoiling agreement.
    # 2·d(h/2) − d(h), d(h) = (φ(h) + φ(−h) − 2φ(0))/h, is the jump of the slope; a smooth φ leaves only O(h³).
    h = 1e-4
    at = gaussian.evaluate(fn, h * np.array([-1.0, -0.5, 0.0, 0.5, 1.0]))
    outer, inner = (at[0] + at[4] - 2.0 * at[2]) / h, 2.0 * (at[1] + at[3] - 2.0 * at[2]) / h
    step = float(np.max(np.abs(np.diff(at))))
    rounding = 1e-14 * float(np.max(np.abs(at)))
    if step > 1e-2 or h * abs(2.0 * inner - outer) > 1e-8 * step + rounding:
        return True
    # Likewise the jump of the second derivative (softsign, ELU), from second differences on both sides.
    h = 1e-3
    at = gaussian.evaluate(fn, h * np.arange(-2.0, 3.0, 0.5))[:9]
    wide, narrow = (
        (at[4 + 2 * k] - 2 * at[4 + k] + 2 * at[4 - k] - at[4 - 2 * k]) / (0.5 * k * h) ** 2 for k in (2, 1)
    )
    slope = float(np.max(np.abs(np.diff(at)))) / h
    return abs(2.0 * narrow - wide) > 1e-3 * (slope + abs(wide)) + 1e-7 * float(np.max(np.abs(at)))


def _custom(fn: Function, name: str, kinks: Iterable[float], derivative: Function | None) -> Activation:
    points = tuple(float(k) for k in kinks)
    if not all(math.isfinite(k) for k in points):
        raise InvalidInput("finite kinks", got=points, where=f"activation {name}", hint="kinks=(0.0,)")
    probe = np.concatenate([np.linspace(-30.0, 30.0, 121), np.array([0.0])])
    values = gaussian.evaluate(fn, probe)
    offset = float(values[-1])
    if 0.0 not in points and _kink_at_zero(fn):
        points = (*points, 0.0)
    left, right = (gaussian.evaluate(fn, np.array([k + d for k in points])) for d in (-1e-9, 1e-9))
    jumps = bool(points) and bool(np.any(np.abs(right - left) > 1e-5 * (1.0 + np.abs(left))))
    if derivative is None and not jumps:
        derivative = gaussian.numerical_slope(fn, points)
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
    if not name.isidentifier() or name in _TABLE:
        hint = "register_activation('mine', fn)"
        raise InvalidInput("a new name made of letters, digits and _", got=repr(name), hint=hint)
    made = _custom(fn, name, kinks, derivative)
    register(made)
    return made


def centered(what: str | Activation | Function, /) -> Activation:
    """φ − E φ: the activation with its own mean subtracted, which cures it of bias (theory.md §4; IGB App. G).

    The mean is the one at the variance the activation meets in its place in the network.

    >>> print(centered("relu"))
    centered(relu)
    """
    return replace(activation(what), centered=True)


def check_variance(q: float, where: str, hint: str) -> None:
    """Raise InvalidInput unless q is a variance whose square float64 can hold."""
    check_number(q, "q", where, strict=True, hint=hint)
    if not 1e-100 <= q <= 1e100:
        raise InvalidInput("a q from 1e-100 to 1e100", got=q, where=where, hint=hint)
