"""InstanceNorm: a BatchNorm whose batch is one image. Its tangent kernel, data of one channel, what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import firstguess as fg
from firstguess.network.layers.layernorm import _tangent
from firstguess.theory.kernel.propagation import image_kernel


def test_the_tangent_is_the_mean_of_jacobians() -> None:
    """E[(H − y_a y_aᵀ/P) T (H − y_b y_bᵀ/P)], y_a and y_b drawn: 5.5 standard errors over 400 means."""
    rng = np.random.default_rng(20261116)
    places = 4
    root = rng.normal(size=(2 * places, 2 * places)) / 2
    centre = np.eye(places) - 1.0 / places
    both = np.kron(np.eye(2), centre) @ root
    k = (both @ both.T).reshape(2, places, 2, places)
    t = np.einsum("ij,ajbk,kl->aibl", centre, rng.normal(size=k.shape), centre)
    t = t + t.transpose(2, 3, 0, 1)
    own = np.stack([k[a, :, a] for a in range(2)])
    found = _tangent(k, t, own, own)
    means = []
    for _ in range(400):
        y = (rng.normal(size=(500, 2 * places)) @ both.T).reshape(500, 2, places)
        jacobian = centre - np.einsum("rai,raj->raij", y, y) / places
        means.append(np.einsum("raij,ajbk,rblk->aibl", jacobian, t, jacobian, optimize=True) / 500)
    draws = np.array(means)
    error = draws.std(axis=0, ddof=1) / math.sqrt(len(draws))
    # entries that are 0 for every draw: rows and columns sum to 0
    assert np.all(np.abs(found - draws.mean(axis=0)) <= 5.5 * error + 1e-12)


def test_the_tangent_of_a_real_network() -> None:
    """Gradients of 60 wide networks; node scales fluctuate by √(2/directions), which Θ leaves out."""
    rng = np.random.default_rng(20261116)
    x = rng.normal(size=(4, 3, 6, 6))
    net = fg.Network.parse("conv(weight_var=2, width=200) > instancenorm > relu > dense")
    found = image_kernel(net, x, tangent=True)
    assert found.tangent is not None
    assert any("instancenorm: the tangent kernel leaves out" in remark for remark in found.remarks)
    kernels = []
    for seed in range(60):
        torch.manual_seed(seed)
        conv, head = nn.Conv2d(3, 200, 3, bias=False).double(), nn.Linear(200 * 16, 1, bias=False).double()
        nn.init.normal_(conv.weight, std=math.sqrt(2 / 27))
        nn.init.normal_(head.weight, std=math.sqrt(1 / 3200))
        out = head(torch.relu(nn.InstanceNorm2d(200, eps=1e-12)(conv(torch.from_numpy(x)))).flatten(1))[:, 0]
        rows = [torch.cat([g.ravel() for g in torch.autograd.grad(f, [conv.weight, head.weight], retain_graph=True)])
                for f in out]  # fmt: skip
        jacobian = torch.stack(rows)
        kernels.append((jacobian @ jacobian.T).numpy())
    draws = np.array(kernels)
    error = draws.std(axis=0, ddof=1) / math.sqrt(len(draws))
    scale = np.sqrt(np.outer(found.tangent.diagonal(), found.tangent.diagonal()))
    # 60 initializations: 6.5 standard errors for 2e-8 a number (Student's t)
    assert np.all(np.abs(draws.mean(axis=0) - found.tangent) <= 6.5 * error + 0.08 * scale)


def test_one_channel_of_data_is_exact_and_several_are_refused() -> None:
    rng = np.random.default_rng(20261116)
    grey = rng.normal(size=(5, 1, 4, 4)) + 1.0
    normed = (grey - grey.mean((2, 3), keepdims=True)) / grey.std((2, 3), keepdims=True)
    found = image_kernel(fg.Network.parse("instancenorm > conv > relu > dense"), grey)
    wanted = image_kernel(fg.Network.parse("conv > relu > dense"), normed)
    np.testing.assert_allclose(found.covariance, wanted.covariance, rtol=1e-10, atol=1e-12)
    with pytest.raises(fg.NotCovered, match=r"Gaussian nodes.*got the inputs"):
        image_kernel(fg.Network.parse("instancenorm > conv > relu > dense"), rng.normal(size=(5, 3, 4, 4)))
    blank = grey.copy()
    blank[2] = 0.7
    with pytest.raises(fg.NotCovered, match="1 images whose positions are all alike"):
        image_kernel(fg.Network.parse("instancenorm > conv > dense"), blank)


def test_many_positions_are_a_batchnorm_by_formula_of_one_image() -> None:
    """On pixels that are independent, a channel's statistics over many positions are those over the data: γ ≈ 0."""
    rng = np.random.default_rng(20261116)
    x = rng.normal(size=(6, 2, 24, 24)) + 0.5
    after = fg.predict("conv(weight_var=2, kernel=1) > relu > instancenorm > dense", data=x, draws=50)
    none = fg.predict("conv(weight_var=2, kernel=1) > relu > dense", data=x, draws=50)
    assert abs(after.gamma[-1]) < 0.02 < 0.4 < none.gamma[-1]


def test_running_statistics_are_not_read() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.InstanceNorm2d(8, track_running_stats=True), nn.Flatten(),
                          nn.Linear(8 * 16, 3))  # fmt: skip
    (unread,) = fg.read(model, torch.zeros(2, 3, 6, 6)).unread
    assert (unread.path, unread.why) == (
        "1",
        "keeps running statistics, which a description's instancenorm has none of",
    )
