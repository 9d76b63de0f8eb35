"""The way back of every operation without weights: what autograd finds, and what differences of the function say."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import firstguess as fg
from firstguess.ensemble.member_module import resolve
from firstguess.network.activations import registry
from firstguess.network.activations.tensors import Derivative
from firstguess.network.inputs import Inputs
from firstguess.network.network import Network
from firstguess.network.tensors import Local, OverData

OTHERS = [
    *("layernorm(eps=0.3)", "rmsnorm(eps=0.3)"),
    *("layernorm", "rmsnorm", "groupnorm(2)", "batchnorm", "batchnorm(batch=4)", "scale(-0.7)", "shift(0.4)"),
    *("leaky_relu(0.3)", "centered(relu)", "centered(tanh)", "centered(gelu)"),
]


def derivative_of(layer: str) -> Derivative:
    """As it stands after a dense layer."""
    place = resolve(Network.parse(f"dense > {layer} > dense"), (5,), width=6, inputs=Inputs)[1]
    record = place.layer.tensors(place)
    assert isinstance(record, Local | OverData)
    assert record.derivative is not None
    return record.derivative


@pytest.mark.parametrize("layer", [*registry.names(), *OTHERS])
def test_the_way_back_is_the_functions_difference(layer: str) -> None:
    d = derivative_of(layer)
    rng = torch.Generator().manual_seed(4)
    x, g, direction = (torch.randn(3, 6, 10, generator=rng, dtype=torch.float64) for _ in range(3))
    step = 1e-6

    def value(at: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(at)
        d.forward(at, out)
        return out

    with torch.no_grad():
        slope = float((g * (value(x + step * direction) - value(x - step * direction))).sum() / (2 * step))
        for inplace in (False, True) if d.keeps != "input" else (False,):
            given = x.clone()
            out = given if inplace else torch.empty_like(x)
            more = d.forward(given, out)
            back = d.backward(g.clone(), given if d.keeps == "input" else out, more)
            assert math.isclose(float((back * direction).sum()), slope, rel_tol=1e-5, abs_tol=1e-6)


def test_a_function_of_ones_own_goes_back_by_its_derivative() -> None:
    phi = fg.activation(lambda x: np.sin(2 * x), name="mine", derivative=lambda x: 2 * np.cos(2 * x))
    from firstguess.network.activations.tensors import derivative, elementwise

    d = derivative(phi, elementwise(phi))
    assert d is not None
    x, g = torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    out = torch.empty_like(x)
    more = d.forward(x, out)
    torch.testing.assert_close(out, torch.sin(2 * x))
    torch.testing.assert_close(d.backward(g.clone(), x, more), g * 2 * torch.cos(2 * x))


def test_a_function_without_its_derivative_goes_back_numerically_unless_it_jumps() -> None:
    from firstguess.network.activations.tensors import derivative, elementwise

    phi = fg.activation(lambda x: np.sin(2 * x), name="mine")
    d = derivative(phi, elementwise(phi))
    assert d is not None
    x, g = torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    torch.testing.assert_close(d.backward(g.clone(), x, d.forward(x, torch.empty_like(x))), g * 2 * torch.cos(2 * x))
    step = fg.activation(lambda x: np.where(x > 0.0, 1.0, 0.0), name="step", kinks=(0.0,))
    assert derivative(step, elementwise(step)) is None
