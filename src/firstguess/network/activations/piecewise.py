"""Records of activations made of straight and quadratic pieces."""

from __future__ import annotations

import numpy as np

from firstguess.base.gaussian import Feature
from firstguess.network.activations.record import Activation, Bend, Pieces, TorchNames, piecewise_linear

LINEAR = piecewise_linear("linear", 1.0, 1.0, torch=TorchNames("torch.positive", "Identity", read=False))

RELU = piecewise_linear(
    "relu",
    0.0,
    1.0,
    torch=TorchNames(
        "torch.relu_",
        "ReLU",
        ("torch.relu", "torch.relu_", "F.relu", "F.relu_", "Tensor.relu"),
        backward="aten.threshold_backward.grad_input",
        backward_of="output",
        backward_with=(("threshold", 0.0),),
    ),
)

ABS = piecewise_linear(
    "abs", -1.0, 1.0, torch=TorchNames("torch.abs_", calls=("torch.abs", "operator.abs", "Tensor.abs"))
)


def leaky_relu(slope: float = 0.01) -> Activation:
    names = TorchNames(
        "aten.leaky_relu_",
        "LeakyReLU",
        ("F.leaky_relu",),
        arguments=(("negative_slope", "slope"),),
        backward="aten.leaky_relu_backward.grad_input",
        backward_of="output" if slope >= 0 else "input",
        backward_with=(("self_is_result", slope >= 0),),
    )
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
    pieces=Pieces((0.0, 1.0, 0.0), (Bend(1.0, 1.0, (0.0, -1.0, 0.0)), Bend(-1.0, 1.0, (0.0, 1.0, 0.0)))),
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
    pieces=Pieces((0.0, 0.0, 0.0), (Bend(1.0, 0.0, (0.0, 1.0, 0.0)), Bend(1.0, 6.0, (0.0, -1.0, 0.0)))),
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
    pieces=Pieces(
        (0.0, 0.5, 1.0 / 6.0),
        (Bend(1.0, 3.0, (0.0, -0.5, -1.0 / 6.0)), Bend(-1.0, 3.0, (0.0, -0.5, -1.0 / 6.0))),
    ),
    torch=TorchNames("aten.hardswish_", "Hardswish", ("F.hardswish",)),
)
