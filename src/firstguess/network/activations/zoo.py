"""The activations that firstguess knows by name: functions, derivatives, closed forms, where they bend."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from firstguess.base.gaussian import Array, Feature, Function
from firstguess.network.activations import closed_moments
from firstguess.network.activations.record import Activation, piecewise

_KINK = (Feature(0.0, 0.0),)
_ELU = (Feature(0.0, 0.0), Feature(0.0, 4.0))  # e^x is entire: 16 nodes are exact on panels of 4
_SELU_SCALE, _SELU_ALPHA = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717
_SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)


def leaky_relu(slope: float = 0.01) -> Activation:
    return piecewise("leaky_relu", slope, 1.0, (("slope", slope),))


def _logistic(x: Array) -> Array:
    return 0.5 + 0.5 * np.tanh(0.5 * x)


def _softplus(x: Array) -> Array:
    return np.logaddexp(0.0, x)


def _mish_slope(x: Array) -> Array:
    t = np.tanh(_softplus(x))
    return t + x * (1.0 - t * t) * _logistic(x)


def _gelu_tanh_inner(x: Array) -> Array:
    return _SQRT_2_OVER_PI * x * (1.0 + 0.044715 * x * x)


def _gelu_tanh_slope(x: Array) -> Array:
    t = np.tanh(_gelu_tanh_inner(x))
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * _SQRT_2_OVER_PI * (1.0 + 3 * 0.044715 * x * x)


def _elu(scale: float, alpha: float) -> Function:
    return lambda x: scale * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0.0)))


def _elu_slope(scale: float, alpha: float) -> Function:
    return lambda x: scale * np.where(x > 0, 1.0, alpha * np.exp(np.minimum(x, 0.0)))


def _special(name: str) -> Function:
    """scipy.special is imported only when an activation that needs it is evaluated."""

    def fn(x: Array) -> Array:
        from scipy import special

        if name == "erf":
            return special.erf(x)
        if name == "gelu":
            return x * special.ndtr(x)
        return special.ndtr(x) + x * np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)  # GELU's slope

    return fn


def elu(alpha: float = 1.0) -> Activation:
    return Activation(
        "elu",
        (("alpha", alpha),) if alpha != 1.0 else (),
        _elu(1.0, alpha),
        _elu_slope(1.0, alpha),
        features=_ELU,
        near=(alpha, 1.0),
        far=(0.0, 1.0),
        nondecreasing=alpha >= 0,
    )


def registered() -> dict[str, Callable[..., Activation]]:
    """Every activation by name, in the order of the table; a value takes the activation's parameters."""
    bend = (Feature(-1.0, 0.0), Feature(1.0, 0.0))
    six = (Feature(0.0, 0.0), Feature(6.0, 0.0))
    three = (Feature(-3.0, 0.0), Feature(3.0, 0.0))
    plain: list[Activation] = [
        piecewise("linear", 1.0, 1.0),
        piecewise("relu", 0.0, 1.0),
        piecewise("abs", -1.0, 1.0),
        Activation(
            "tanh",
            odd=True,
            rise=np.tanh,
            derivative=lambda x: 1.0 - np.tanh(x) ** 2,
            features=(Feature(0.0, math.pi / 2),),
            near=(1.0, 1.0),
            nondecreasing=True,
        ),
        Activation(
            "erf",
            odd=True,
            rise=_special("erf"),
            derivative=lambda x: 2.0 / math.sqrt(math.pi) * np.exp(-x * x),
            features=(Feature(0.0, 0.8),),
            near=(2.0 / math.sqrt(math.pi), 2.0 / math.sqrt(math.pi)),
            nondecreasing=True,
            closed=closed_moments.erf,
            energy=lambda q: closed_moments.erf_slope_kernel(q, 0.0),
            slopes=closed_moments.erf_slope_kernel,
        ),
        Activation(
            "gelu",
            rise=_special("gelu"),
            derivative=_special("gelu slope"),
            features=(Feature(0.0, 0.8),),
            near=(0.5, 0.5),
            far=(0.0, 1.0),
            closed=closed_moments.gelu,
            energy=lambda q: closed_moments.gelu_slope_kernel(q, 0.0),
            slopes=closed_moments.gelu_slope_kernel,
        ),
        Activation(
            "gelu_tanh",
            rise=lambda x: 0.5 * x * (1.0 + np.tanh(_gelu_tanh_inner(x))),
            derivative=_gelu_tanh_slope,
            features=(Feature(0.0, 2.0),),  # poles at ±0.63 ± 2.75i, then a row of them outwards at ±30°
            near=(0.5, 0.5),
            far=(0.0, 1.0),
        ),
        Activation(
            "silu",
            rise=lambda x: x * _logistic(x),
            derivative=lambda x: _logistic(x) * (1.0 + x * _logistic(-x)),
            features=(Feature(0.0, math.pi),),
            near=(0.5, 0.5),
            far=(0.0, 1.0),
        ),
        Activation(
            "mish",
            rise=lambda x: x * np.tanh(_softplus(x)),
            derivative=_mish_slope,
            features=(Feature(0.0, 2.0),),  # poles at ½ log 2 ± 3πi/4
            near=(0.6, 0.6),
            far=(0.0, 1.0),
        ),
        Activation(
            "selu",
            rise=_elu(_SELU_SCALE, _SELU_ALPHA),
            derivative=_elu_slope(_SELU_SCALE, _SELU_ALPHA),
            features=_ELU,
            near=(_SELU_SCALE * _SELU_ALPHA, _SELU_SCALE),
            far=(0.0, _SELU_SCALE),
            nondecreasing=True,
        ),
        # log(1+e^x) − log 2 = log1p(expm1(x)/2) for x < 0, and x + the same at −x above
        Activation(
            "softplus",
            rise=lambda x: np.maximum(x, 0.0) + np.log1p(0.5 * np.expm1(-np.abs(x))),
            derivative=_logistic,
            offset=math.log(2.0),
            features=(Feature(0.0, math.pi),),
            near=(0.5, 0.5),
            far=(0.0, 1.0),
            nondecreasing=True,
        ),
        Activation(
            "sigmoid",
            rise=lambda x: 0.5 * np.tanh(0.5 * x),
            derivative=lambda x: 0.25 / np.cosh(np.minimum(0.5 * np.abs(x), 350.0)) ** 2,
            offset=0.5,
            features=(Feature(0.0, math.pi),),
            near=(0.25, 0.25),
            nondecreasing=True,
        ),
        Activation(
            "hardtanh",
            odd=True,
            rise=lambda x: np.clip(x, -1.0, 1.0),
            derivative=lambda x: np.where(np.abs(x) < 1.0, 1.0, 0.0),
            features=bend,
            near=(1.0, 1.0),
            nondecreasing=True,
        ),
        Activation(
            "relu6",
            rise=lambda x: np.clip(x, 0.0, 6.0),
            derivative=lambda x: np.where((x > 0.0) & (x < 6.0), 1.0, 0.0),
            features=six,
            near=(0.0, 1.0),
            nondecreasing=True,
        ),
        Activation(
            "hardswish",
            rise=lambda x: x * np.clip(x + 3.0, 0.0, 6.0) / 6.0,
            derivative=lambda x: np.where(x <= -3.0, 0.0, np.where(x >= 3.0, 1.0, x / 3.0 + 0.5)),
            features=three,
            near=(0.5, 0.5),
            far=(0.0, 1.0),
        ),
        Activation(
            "sin",
            odd=True,
            rise=np.sin,
            derivative=np.cos,
            near=(1.0, 1.0),
            closed=closed_moments.sine,
            shifted=closed_moments.sine,
            energy=lambda q: closed_moments.sine_slope_kernel(q, 0.0),
            slopes=closed_moments.sine_slope_kernel,
        ),
        Activation(
            "square",
            rise=lambda x: x * x,
            derivative=lambda x: 2.0 * x,
            degree=2,
            closed=closed_moments.square,
            shifted=closed_moments.square,
            energy=lambda q: 4.0 * q,
            slopes=lambda b, s: 4.0 * b,
        ),
        Activation(
            "sign",
            odd=True,
            rise=np.sign,
            features=_KINK,
            degree=0,
            nondecreasing=True,
            closed=closed_moments.sign,
            slopes=closed_moments.sign_slope_kernel,
            jumps=True,
        ),
    ]
    table: dict[str, Callable[..., Activation]] = {a.name: (lambda a=a: a) for a in plain}
    table["leaky_relu"] = leaky_relu
    table["prelu"] = lambda slope=0.25: replace(piecewise("prelu", slope, 1.0), params=(("slope", slope),))
    table["elu"] = elu
    return table
