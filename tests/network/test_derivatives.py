"""Gradients of activations' modules: differences of the function, for functions of one's own too."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import firstguess as fg
from firstguess.network.activations import registry
from firstguess.network.activations.tensors import module_of


def gradient(phi: fg.Activation, x: torch.Tensor) -> torch.Tensor:
    given = x.clone().requires_grad_()
    module_of(phi)(given).sum().backward()
    assert given.grad is not None
    return given.grad


@pytest.mark.parametrize("name", registry.names())
def test_a_modules_gradient_is_the_functions_difference(name: str) -> None:
    phi = registry.activation(name)
    x = torch.randn(50, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    step = 1e-6
    rise = (phi.rise((x + step).numpy()) - phi.rise((x - step).numpy())) / (2 * step)
    np.testing.assert_allclose(gradient(phi, x), rise, rtol=1e-5, atol=1e-7)


def test_a_function_of_ones_own_has_its_derivative() -> None:
    x = torch.linspace(-3.0, 3.0, 60, dtype=torch.float64)
    own = fg.activation(lambda x: x * np.sin(x), derivative=lambda x: np.sin(x) + x * np.cos(x))
    numeric = fg.activation(lambda x: x * np.sin(x))
    np.testing.assert_allclose(gradient(own, x), torch.sin(x) + x * torch.cos(x), rtol=1e-12)
    np.testing.assert_allclose(gradient(numeric, x), torch.sin(x) + x * torch.cos(x), atol=1e-6)


def test_a_function_that_jumps_lets_no_gradient_through() -> None:
    step = fg.activation(lambda x: np.where(x > 0.0, 1.0, 0.0), name="step")
    assert not module_of(step)(torch.ones(3, requires_grad=True)).requires_grad
