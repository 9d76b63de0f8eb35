"""Adam on a sample of weights: with all weights in it, a plain loop of torch.optim.Adam on the linearised network.

The linearised network f(0) + J·(w − w(0)) has J from autograd, in float64, one logit of one point at a time.
"""

import numpy as np
import pytest
import torch
from torch import nn

from firstguess.ensemble.member_module import build
from firstguess.ensemble.predict_training import trained, weight_sample
from firstguess.network.network import Network
from firstguess.theory.training import stepwise as adam
from firstguess.theory.training.flow import DescentTask
from firstguess.theory.training.stepwise import BatchRows, WeightSample, sampled_adam

N, HELD = 9, 4
RATES = [3e-3, 1e-2, 5e-3, 2e-2, 1e-2, 1e-2, 3e-3, 8e-3, 1e-2, 4e-3, 1e-2, 2e-3]
DENSE = "dense(weight_var=2, width=16) > relu > dense(width=12) > tanh > dense"
NETWORKS = {
    "dense": DENSE,
    "frozen": "dense(weight_var=2, width=16, frozen=true) > relu > dense(width=12) > tanh > dense",
    "biases": "dense(width=16, bias_var=0.5) > tanh > dense(bias_var=0.3)",
    "residual": "dense(width=12) > residual[relu > dense(width=12) | dense(width=12)] > layernorm > dense",
    "conv": "conv(width=4, padding=1) > relu > maxpool(4) > conv(width=5, padding=1, bias_var=1) > avgpool(4) > dense",
    "strides": "conv(width=4, stride=2, bias_var=0.2) > relu > conv(width=5, kernel=2) > tanh > dense",
}


def points(kind, count=N + HELD):
    shape = {"conv": (2, 4, 4), "strides": (2, 5, 5)}.get(kind, (5,))
    return np.random.default_rng(3).normal(size=(count, *shape)).astype(np.float32)


def autograd(model, parameters, x):
    """Logits (points, classes), and their derivatives (points, classes, weights) by layer, in float64."""
    model = model.double()
    inputs = torch.from_numpy(x).double()
    with torch.enable_grad():
        f = model(inputs)
        rows = [
            [torch.autograd.grad(f[a, c], parameters, retain_graph=True) for c in range(f.shape[1])]
            for a in range(len(x))
        ]
    return f.detach().numpy(), [
        np.array([[row[i].flatten().numpy() for row in point] for point in rows]) for i in range(len(parameters))
    ]


def plain_adam(f0, jacobian, y, loss, batches, rates):
    """Logits of all points at every step, of f = f0 + J·(w − w0) trained by torch itself."""
    start, j = torch.from_numpy(f0), torch.from_numpy(jacobian)
    moved = torch.zeros(j.shape[-1], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([moved], lr=1.0)
    labels = torch.from_numpy(y)
    found = [f0]
    for rate in rates:
        rows = torch.arange(N)[batches.next()]
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        with torch.enable_grad():
            f = start[rows] + j[rows] @ moved
            if loss == "squared":
                value = 0.5 * (f - nn.functional.one_hot(labels[rows], f.shape[1])).square().sum(1).mean()
            else:
                value = nn.functional.cross_entropy(f, labels[rows])
            value.backward()
        optimizer.step()
        found.append(f0 + (j @ moved.detach()).numpy())
    return np.array(found)


def evened(j, theta):
    """J (points, columns, weights) of one layer, turned such that JJᵀ is Θ for every logit: so it is at all widths."""
    n, k, weights = j.shape
    flat = j.reshape(n * k, weights)
    values, vectors = np.linalg.eigh(flat @ flat.T)
    assert values[0] > 1e-9 * values[-1]
    white = (vectors / np.sqrt(values)) @ vectors.T @ flat
    return (np.kron(np.linalg.cholesky(theta), np.eye(k)) @ white).reshape(n, k, weights)


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("classes", [2, 3])
def test_all_weights_of_a_network_are_those_of_autograd(kind, classes):
    net, x = Network.parse(NETWORKS[kind], classes=classes), points(kind)
    columns = 1 if classes == 2 else 3
    found = weight_sample(net, x, width=10, columns=columns, most=10**6, seed=1, member=2)
    model = build(net, x, width=10, seed=1, member=2)
    modules = trained(model, net)
    assert len(modules) == len(found.stands_for) == {"frozen": 2, "biases": 2, "residual": 4}.get(kind, 3)
    parameters = [p for module in modules for p in module.parameters()]
    _, parts = autograd(model, parameters, x)
    wanted = np.concatenate(parts, axis=2)
    if classes == 2:
        wanted = wanted[:, 1:] - wanted[:, :1]
    ours = found.jacobian.reshape(len(x), columns, -1)
    assert all((s == 1).all() for s in found.stands_for)
    # biases are after the weights of their own unit in one, of their layer in the other
    assert ours.shape == wanted.shape
    np.testing.assert_allclose(np.sort(ours, axis=2), np.sort(wanted, axis=2), rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(
        np.einsum("acw,bdw->acbd", ours, ours), np.einsum("acw,bdw->acbd", wanted, wanted), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize("batch", [None, 4])
@pytest.mark.parametrize("loss", ["cross-entropy", "squared"])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("kind", ["dense", "frozen", "conv"])
def test_with_all_weights_it_is_adam(kind, classes, loss, batch):
    """Both at every step, at training points and held-out ones, to rounding; two networks, each with its own sample."""
    net, x, k = Network.parse(NETWORKS[kind], classes=classes), points(kind), classes
    y = np.arange(N) % classes
    paired = classes == 2 and loss == "cross-entropy"
    thetas, samples, starts, wanted = None, [], [], []
    for member in range(2):
        model = build(net, x, width=10, seed=5, member=member)
        f0, layers = autograd(model, [m.weight for m in trained(model, net)], x)
        if thetas is None:
            thetas = [np.einsum("acw,bcw->ab", j, j) / k + np.eye(len(x)) for j in layers]
        layers = [wide(j, theta) for j, theta in zip(layers, thetas, strict=True)]
        batches = BatchRows(N, batch, np.random.default_rng([7, adam._ADAM_STREAM, member]))
        jacobian = np.concatenate(layers, axis=2)
        wanted.append(plain_adam(f0, jacobian, y, loss, batches, RATES))
        if paired:
            jacobian, f0 = jacobian[:, 1:] - jacobian[:, :1], f0[:, 1:] - f0[:, :1]
        columns = jacobian.shape[1]
        samples.append(WeightSample(jacobian.reshape(len(x) * columns, -1), tuple(np.ones(j.shape[2]) for j in layers)))
        starts.append(f0)
    task = DescentTask(y, classes, 2, loss, each=classes == 2 and not paired)
    z0 = np.concatenate(starts, axis=1)
    tangents = [theta[:, :N] for theta in thetas]
    looks = np.arange(len(RATES) + 1)
    found = list(sampled_adam(task, samples, tangents, z0, RATES.__getitem__, looks, batch=batch, seed=7))
    for step, z in enumerate(found):
        rows = z.reshape(len(x), 2, -1)
        for member in range(2):
            f = wanted[member][step]
            real = f[:, 1:] - f[:, :1] if paired else f
            np.testing.assert_allclose(rows[:, member], real, rtol=1e-7, atol=1e-7)
    assert np.abs(found[-1] - found[0]).max() > 0.05


def wide(j, theta):
    """A layer's derivatives as in the limit, JJᵀ = Θ for each logit; with more weights where it has too few for that.

    The further ones are its own, turned: all that matters is that none is like another."""
    n, k, weights = j.shape
    rng = np.random.default_rng(11)
    while j.shape[2] <= n * k:
        turn = np.linalg.qr(rng.normal(size=(weights, weights)))[0]
        extra = j[:, :, :weights] @ turn * rng.normal(size=(n, k, 1))
        j = np.concatenate([j, extra], axis=2)
    return evened(j, theta)


@pytest.mark.parametrize("kind", ["dense", "biases", "residual", "conv"])
def test_sampled_weights_tell_the_tangent_kernel_without_bias(kind):
    """Σ (how many each stands for) · J_a · J_b against all weights of the same network, of 200: in standard errors
    of their mean (16 numbers at most, false alarm below 1e-6 by Student's t: 6)."""
    net, x = Network.parse(NETWORKS[kind], classes=3), points(kind, 4)
    along = np.array([1.0, -1.0, 1.0, -1.0])
    found = []
    for member in range(200):
        both = [weight_sample(net, x, width=10, columns=3, most=most, seed=9, member=member) for most in (12, 10**6)]
        rows = []
        for sample in both:
            edges = np.cumsum([0, *map(len, sample.stands_for)])
            for i, s in enumerate(sample.stands_for):
                j = sample.jacobian.astype(float)[:, edges[i] : edges[i + 1]].reshape(4, 3, -1)
                theta = np.einsum("acw,bcw,w->ab", j, j, s)
                rows.append([theta.sum(), along @ theta @ along, theta[0, 1], np.trace(theta)])
        few, everything = np.split(np.array(rows), 2)
        found.append(few - everything)
        assert [len(s) for s in both[0].stands_for] == [min(12, len(s)) for s in both[1].stands_for]
    off = np.array(found)
    se = off.std(axis=0, ddof=1) / np.sqrt(len(off))
    assert (se > 0).all()
    assert (np.abs(off.mean(axis=0)) < 6 * se).all()
