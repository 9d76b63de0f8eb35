"""Records of the other activations: exponential below 0, a wave, a power, a step."""

from __future__ import annotations

import numpy as np

from firstguess.base.gaussian import Feature, Function
from firstguess.network.activations import closed_kernels, closed_moments
from firstguess.network.activations.record import Activation, TorchNames

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
    closed=closed_moments.sine,
    shifted=closed_moments.sine,
    energy=closed_moments.sine_energy,
    kernel=closed_kernels.sine,
    torch=TorchNames("torch.sin_", calls=("torch.sin", "Tensor.sin")),
)

SQUARE = Activation(
    "square",
    rise=lambda x: x * x,
    derivative=lambda x: 2.0 * x,
    degree=2,
    closed=closed_moments.square,
    shifted=closed_moments.square,
    energy=lambda q: 4.0 * q,
    kernel=closed_kernels.square,
    torch=TorchNames("torch.square_", calls=("torch.square", "Tensor.square")),
)

SIGN = Activation(
    "sign",
    odd=True,
    rise=np.sign,
    features=(Feature(0.0, 0.0),),
    degree=0,
    nondecreasing=True,
    closed=closed_moments.sign,
    kernel=closed_kernels.sign,
    torch=TorchNames("aten.sign_", calls=("torch.sign", "Tensor.sign")),
    jumps=True,
)
