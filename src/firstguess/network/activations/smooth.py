"""Records of smooth activations: sigmoids, and smooth relatives of ReLU."""

from __future__ import annotations

import math

import numpy as np

from firstguess.base.gaussian import Array, Feature, Function
from firstguess.network.activations import closed_kernels, closed_moments
from firstguess.network.activations.record import Activation, TorchNames

_SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)


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


TANH = Activation(
    "tanh",
    odd=True,
    rise=np.tanh,
    derivative=lambda x: 1.0 - np.tanh(x) ** 2,
    features=(Feature(0.0, math.pi / 2),),
    near=(1.0, 1.0),
    nondecreasing=True,
    torch=TorchNames(
        "torch.tanh_",
        "Tanh",
        ("torch.tanh", "F.tanh", "Tensor.tanh"),
        backward="aten.tanh_backward.grad_input",
        backward_of="output",
    ),
)

ERF = Activation(
    "erf",
    odd=True,
    rise=_special("erf"),
    derivative=lambda x: 2.0 / math.sqrt(math.pi) * np.exp(-x * x),
    features=(Feature(0.0, 0.8),),
    near=(2.0 / math.sqrt(math.pi), 2.0 / math.sqrt(math.pi)),
    nondecreasing=True,
    closed=closed_moments.erf,
    energy=closed_moments.erf_energy,
    kernel=closed_kernels.erf,
    torch=TorchNames("torch.erf_", calls=("torch.erf", "torch.special.erf", "Tensor.erf")),
)

GELU = Activation(
    "gelu",
    rise=_special("gelu"),
    derivative=_special("gelu slope"),
    features=(Feature(0.0, 0.8),),
    near=(0.5, 0.5),
    far=(0.0, 1.0),
    closed=closed_moments.gelu,
    energy=closed_moments.gelu_energy,
    kernel=closed_kernels.gelu,
    torch=TorchNames(
        "aten.gelu_", "GELU", ("F.gelu",), fixed=(("approximate", "none"),), backward="aten.gelu_backward.grad_input"
    ),
)

GELU_TANH = Activation(
    "gelu_tanh",
    rise=lambda x: 0.5 * x * (1.0 + np.tanh(_gelu_tanh_inner(x))),
    derivative=_gelu_tanh_slope,
    features=(Feature(0.0, 2.0),),  # poles at ±0.63 ± 2.75i, then a row of them outwards at ±30°
    near=(0.5, 0.5),
    far=(0.0, 1.0),
    torch=TorchNames(
        "aten.gelu_", "GELU", ("F.gelu",), fixed=(("approximate", "tanh"),), backward="aten.gelu_backward.grad_input"
    ),
)

SILU = Activation(
    "silu",
    rise=lambda x: x * _logistic(x),
    derivative=lambda x: _logistic(x) * (1.0 + x * _logistic(-x)),
    features=(Feature(0.0, math.pi),),
    near=(0.5, 0.5),
    far=(0.0, 1.0),
    torch=TorchNames("aten.silu_", "SiLU", ("F.silu",), backward="aten.silu_backward.grad_input"),
)

MISH = Activation(
    "mish",
    rise=lambda x: x * np.tanh(_softplus(x)),
    derivative=_mish_slope,
    features=(Feature(0.0, 2.0),),  # poles at ½ log 2 ± 3πi/4
    near=(0.6, 0.6),
    far=(0.0, 1.0),
    torch=TorchNames("aten.mish_", "Mish", ("F.mish",)),
)

# log(1+e^x) − log 2 = log1p(expm1(x)/2) for x < 0, and x + the same at −x above
SOFTPLUS = Activation(
    "softplus",
    rise=lambda x: np.maximum(x, 0.0) + np.log1p(0.5 * np.expm1(-np.abs(x))),
    derivative=_logistic,
    offset=math.log(2.0),
    features=(Feature(0.0, math.pi),),
    near=(0.5, 0.5),
    far=(0.0, 1.0),
    nondecreasing=True,
    torch=TorchNames(
        "aten.softplus.out",
        "Softplus",
        ("F.softplus",),
        fixed=(("beta", 1.0),),
        refuse="beta = {beta:g}; the description's softplus has 1",
    ),
)

SIGMOID = Activation(
    "sigmoid",
    rise=lambda x: 0.5 * np.tanh(0.5 * x),
    derivative=lambda x: 0.25 / np.cosh(np.minimum(0.5 * np.abs(x), 350.0)) ** 2,
    offset=0.5,
    features=(Feature(0.0, math.pi),),
    near=(0.25, 0.25),
    nondecreasing=True,
    torch=TorchNames(
        "torch.sigmoid_",
        "Sigmoid",
        ("torch.sigmoid", "F.sigmoid", "torch.special.expit", "Tensor.sigmoid"),
        backward="aten.sigmoid_backward.grad_input",
        backward_of="output",
    ),
)
