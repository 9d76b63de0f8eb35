"""Records of activations made of straight and quadratic pieces."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from firstguess.base.errors import NotCovered
from firstguess.base.gaussian import Array, Feature, Function, pdf
from firstguess.network.activations import record
from firstguess.network.activations.record import Activation, Kink, Piecewise, TorchNames, piecewise_linear

# Kernels in closed form for any two variances: covariances k to E φ(u_a)φ(u_b), and for a slope E φ'(u_a)φ'(u_b).


def _erf_kernel(k: Array, qa: Array, qb: Array, slope: bool) -> tuple[Array, Array | None]:
    product = (1.0 + 2.0 * qa) * (1.0 + 2.0 * qb)
    out = 2.0 / math.pi * np.arcsin(2.0 * k / np.sqrt(product))
    return out, (4.0 / math.pi / np.sqrt(product - 4.0 * k * k) if slope else None)


def _gelu_kernel(k: Array, qa: Array, qb: Array, slope: bool) -> tuple[Array, Array | None]:
    """Stein's lemma, twice: P(q_a q_b − r² + r²s) + r(¼ + arcsin(r/√(·))/2π), P = 1/(2π√D), s = Σ 1/(1+q)."""
    product = (1.0 + qa) * (1.0 + qb)
    d = product - k * k
    p = 1.0 / (2.0 * math.pi * np.sqrt(d))
    s = 1.0 / (1.0 + qa) + 1.0 / (1.0 + qb)
    arc = 0.25 + np.arcsin(k / np.sqrt(product)) / (2.0 * math.pi)
    bracket = qa * qb + k * k * (s - 1.0)
    out = p * bracket + k * arc
    return out, (p * k * (bracket / d + 2.0 * s - 1.0) + arc if slope else None)


def _sine_kernel(k: Array, qa: Array, qb: Array, slope: bool) -> tuple[Array, Array | None]:
    middle = 0.5 * (qa + qb)
    plus, minus = np.exp(k - middle), np.exp(-k - middle)
    return 0.5 * (plus - minus), (0.5 * (plus + minus) if slope else None)


def _sign_kernel(k: Array, qa: Array, qb: Array, slope: bool) -> tuple[Array, Array | None]:
    if slope:
        expected = "an activation with a derivative, for the tangent kernel"
        raise NotCovered(expected, got="sign, through which no gradient flows", hint="hardtanh or tanh")
    return 2.0 / math.pi * np.arcsin(np.clip(k / np.sqrt(qa * qb), -1.0, 1.0)), None


# The records.

LINEAR = piecewise_linear("linear", 1.0, 1.0, torch=TorchNames("torch.positive", "Identity", read=False))

RELU = piecewise_linear(
    "relu",
    0.0,
    1.0,
    torch=TorchNames("torch.relu_", "ReLU", ("torch.relu", "torch.relu_", "F.relu", "F.relu_", "Tensor.relu")),
)

ABS = piecewise_linear(
    "abs", -1.0, 1.0, torch=TorchNames("torch.abs_", calls=("torch.abs", "operator.abs", "Tensor.abs"))
)


def leaky_relu(slope: float = 0.01) -> Activation:
    names = TorchNames("aten.leaky_relu_", "LeakyReLU", ("F.leaky_relu",), arguments=(("negative_slope", "slope"),))
    return piecewise_linear("leaky_relu", slope, 1.0, (("slope", slope),), names)


def prelu(slope: float = 0.25) -> Activation:
    # nn.PReLU is read by the reader of weights: its slopes are parameters
    names = TorchNames("aten.leaky_relu_", "LeakyReLU", arguments=(("negative_slope", "slope"),), read=False)
    return piecewise_linear("prelu", slope, 1.0, (("slope", slope),), names)


HARDTANH = Activation(
    "hardtanh",
    odd=True,
    rise=lambda x: np.clip(x, -1.0, 1.0),
    derivative=lambda x: np.where(np.abs(x) < 1.0, 1.0, 0.0),
    features=(Feature(-1.0, 0.0), Feature(1.0, 0.0)),
    near=(1.0, 1.0),
    nondecreasing=True,
    pieces=Piecewise((0.0, 1.0, 0.0), (Kink(1.0, 1.0, (0.0, -1.0, 0.0)), Kink(-1.0, 1.0, (0.0, 1.0, 0.0)))),
    torch=TorchNames(
        "aten.hardtanh_",
        "Hardtanh",
        ("F.hardtanh",),
        fixed=(("min_val", -1.0), ("max_val", 1.0)),
        refuse="clips to [{min_val:g}, {max_val:g}]; the description's hardtanh to [-1, 1]",
    ),
)

RELU6 = Activation(
    "relu6",
    rise=lambda x: np.clip(x, 0.0, 6.0),
    derivative=lambda x: np.where((x > 0.0) & (x < 6.0), 1.0, 0.0),
    features=(Feature(0.0, 0.0), Feature(6.0, 0.0)),
    near=(0.0, 1.0),
    nondecreasing=True,
    pieces=Piecewise((0.0, 0.0, 0.0), (Kink(1.0, 0.0, (0.0, 1.0, 0.0)), Kink(1.0, 6.0, (0.0, -1.0, 0.0)))),
    torch=TorchNames(
        "aten.relu6_",
        "ReLU6",
        ("F.relu6",),
        also=(TorchNames("", "Hardtanh", ("F.hardtanh",), fixed=(("min_val", 0.0), ("max_val", 6.0))),),
    ),
)

HARDSWISH = Activation(
    "hardswish",
    rise=lambda x: x * np.clip(x + 3.0, 0.0, 6.0) / 6.0,
    derivative=lambda x: np.where(x <= -3.0, 0.0, np.where(x >= 3.0, 1.0, x / 3.0 + 0.5)),
    features=(Feature(-3.0, 0.0), Feature(3.0, 0.0)),
    near=(0.5, 0.5),
    far=(0.0, 1.0),
    pieces=Piecewise(
        (0.0, 0.5, 1.0 / 6.0), (Kink(1.0, 3.0, (0.0, -0.5, -1.0 / 6.0)), Kink(-1.0, 3.0, (0.0, -0.5, -1.0 / 6.0)))
    ),
    torch=TorchNames("aten.hardswish_", "Hardswish", ("F.hardswish",)),
)


# Records of smooth activations: sigmoids, and smooth relatives of ReLU.

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


TANH = Activation(
    "tanh",
    odd=True,
    rise=np.tanh,
    derivative=lambda x: 1.0 - np.tanh(x) ** 2,
    features=(Feature(0.0, math.pi / 2),),
    near=(1.0, 1.0),
    nondecreasing=True,
    torch=TorchNames("torch.tanh_", "Tanh", ("torch.tanh", "F.tanh", "Tensor.tanh")),
)

ERF = Activation(
    "erf",
    odd=True,
    rise=special.erf,
    derivative=lambda x: 2.0 / math.sqrt(math.pi) * np.exp(-x * x),
    features=(Feature(0.0, 0.8),),
    near=(2.0 / math.sqrt(math.pi), 2.0 / math.sqrt(math.pi)),
    nondecreasing=True,
    closed=record.erf,
    energy=lambda q: 4.0 / math.pi / math.sqrt(1.0 + 4.0 * q),  # E erf'(u)²
    kernel=_erf_kernel,
    torch=TorchNames("torch.erf_", calls=("torch.erf", "torch.special.erf", "Tensor.erf")),
)

GELU = Activation(
    "gelu",
    rise=lambda x: x * special.ndtr(x),
    derivative=lambda x: special.ndtr(x) + x * pdf(x),
    features=(Feature(0.0, 0.8),),
    near=(0.5, 0.5),
    far=(0.0, 1.0),
    closed=record.gelu,
    energy=record.gelu_energy,
    kernel=_gelu_kernel,
    torch=TorchNames("aten.gelu_", "GELU", ("F.gelu",), fixed=(("approximate", "none"),)),
)

GELU_TANH = Activation(
    "gelu_tanh",
    rise=lambda x: 0.5 * x * (1.0 + np.tanh(_gelu_tanh_inner(x))),
    derivative=_gelu_tanh_slope,
    features=(Feature(0.0, 2.0),),  # poles at ±0.63 ± 2.75i, then a row of them outwards at ±30°
    near=(0.5, 0.5),
    far=(0.0, 1.0),
    torch=TorchNames("aten.gelu_", "GELU", ("F.gelu",), fixed=(("approximate", "tanh"),)),
)

SILU = Activation(
    "silu",
    rise=lambda x: x * _logistic(x),
    derivative=lambda x: _logistic(x) * (1.0 + x * _logistic(-x)),
    features=(Feature(0.0, math.pi),),
    near=(0.5, 0.5),
    far=(0.0, 1.0),
    torch=TorchNames("aten.silu_", "SiLU", ("F.silu",)),
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
        "torch.sigmoid_", "Sigmoid", ("torch.sigmoid", "F.sigmoid", "torch.special.expit", "Tensor.sigmoid")
    ),
)


# Records of the other activations: exponential below 0, a wave, a power, a step.

_ELU = (Feature(0.0, 0.0), Feature(0.0, 4.0))  # e^x is entire: 16 nodes are exact on panels of 4
_SELU_SCALE, _SELU_ALPHA = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717


def _elu(scale: float, alpha: float) -> Function:
    return lambda x: scale * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0.0)))


def _elu_slope(scale: float, alpha: float) -> Function:
    return lambda x: scale * np.where(x > 0, 1.0, alpha * np.exp(np.minimum(x, 0.0)))


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
        torch=TorchNames("aten.elu_", "ELU", ("F.elu",), arguments=(("alpha", "alpha"),)),
        text_argument="alpha",
    )


SELU = Activation(
    "selu",
    rise=_elu(_SELU_SCALE, _SELU_ALPHA),
    derivative=_elu_slope(_SELU_SCALE, _SELU_ALPHA),
    features=_ELU,
    near=(_SELU_SCALE * _SELU_ALPHA, _SELU_SCALE),
    far=(0.0, _SELU_SCALE),
    nondecreasing=True,
    torch=TorchNames("torch.selu_", "SELU", ("torch.selu", "F.selu")),
)

SIN = Activation(
    "sin",
    odd=True,
    rise=np.sin,
    derivative=np.cos,
    near=(1.0, 1.0),
    closed=record.sine,
    shifted=record.sine,
    energy=lambda q: 0.5 * (1.0 + math.exp(-2.0 * q)),  # E cos² u = e^{−q} cosh q
    kernel=_sine_kernel,
    torch=TorchNames("torch.sin_", calls=("torch.sin", "Tensor.sin")),
)

SQUARE = Activation(
    "square",
    rise=lambda x: x * x,
    derivative=lambda x: 2.0 * x,
    degree=2,
    closed=record.square,
    shifted=record.square,
    energy=lambda q: 4.0 * q,
    kernel=lambda k, qa, qb, slope: (qa * qb + 2.0 * k * k, 4.0 * k if slope else None),
    torch=TorchNames("torch.square_", calls=("torch.square", "Tensor.square")),
)

SIGN = Activation(
    "sign",
    odd=True,
    rise=np.sign,
    features=(Feature(0.0, 0.0),),
    degree=0,
    nondecreasing=True,
    closed=record.sign,
    kernel=_sign_kernel,
    torch=TorchNames("aten.sign_", calls=("torch.sign", "Tensor.sign")),
    jumps=True,
)
