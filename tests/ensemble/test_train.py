"""`fg.train` of descriptions: every member is a plain torch loop over `build`, whatever is trained next to it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import firstguess as fg
from firstguess.ensemble.member_module import build
from firstguess.ensemble.seeds import orders
from firstguess.ensemble.training_engine import DescriptionTrainer, train_description
from firstguess.network.network import Network

RELU = "dense(weight_var=2) > relu > dense(weight_var=2) > relu > dense(weight_var=2)"
WIDTH, N, D = 12, 45, 7


def points(n: int = N, classes: int = 3, seed: int = 5) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    x = rng.standard_normal((n, D)) + 0.7 * rng.standard_normal((classes, D))[y] + 0.3
    return x.astype(np.float32), y


def described(net: str, **options: Any) -> fg.TrainedMembers:
    """In float64, so that a plain loop in float64 is the same to many digits."""
    given: dict[str, Any] = {"inits": 3, "width": WIDTH, "threads": 1, "dtype": torch.float64, "test": None}
    given |= {"start": "any", "level": None, "store": None, "progress": None, "classes": None}
    given |= {"lr": 0.05, "steps": 25, "optimizer": "gd", "data": points()} | options
    data, test = given.pop("data"), given.pop("test")
    return train_description(net, data, test, **given)


def plain_loop(
    net: str,
    member: int,
    looks: NDArray[np.int64],
    *,
    data: Any = None,
    optimizer: str = "gd",
    lr: Any = 0.05,
    batch: int | None = None,
    loss: str = "cross-entropy",
    weight_decay: float = 0.0,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> tuple[NDArray[np.float64], NDArray[np.float64], nn.Module]:
    """Logits (looks, points, classes) and gradient norms, as anybody would write it."""
    x, y = data or points()
    network = Network.parse(net, classes=int(y.max()) + 1)
    model = build(network, x, width=WIDTH, seed=seed, member=member).to(dtype)
    for layer, module in zip(network.layers, model, strict=False):
        if getattr(layer, "frozen", False):
            module.requires_grad_(False)
    rate = lr if callable(lr) else lambda step: lr
    kind = torch.optim.Adam if optimizer == "adam" else torch.optim.SGD
    trained = [p for p in model.parameters() if p.requires_grad]
    steps = kind(trained, lr=1.0, weight_decay=weight_decay)
    inputs, labels = torch.tensor(x, dtype=dtype), torch.tensor(y)
    found: list[Any] = []
    norms: list[float] = []
    for step, picked in enumerate(orders(seed, member, len(x), batch)):
        steps.zero_grad()
        out = model(inputs[picked])
        if loss == "squared":
            value = 0.5 * (out - nn.functional.one_hot(labels[picked], out.shape[1])).square().sum(1).mean()
        else:
            value = nn.functional.cross_entropy(out, labels[picked])
        value.backward()
        if step in looks:
            with torch.no_grad():
                found.append(model(inputs).double().numpy())
            norms.append(math.sqrt(sum(float(p.grad.double().square().sum()) for p in trained if p.grad is not None)))
        if step == looks[-1]:
            return np.array(found), np.array(norms), model
        for group in steps.param_groups:
            group["lr"] = rate(step)
        steps.step()
    raise AssertionError


def agrees(r: fg.TrainedMembers, net: str, tolerance: float = 1e-7, **options: Any) -> None:
    """Losses, gradients and guesses of every member.

    Our norms have 1e-12 of the squared mean in the variance, torch's have not: 1e-9 of a loss, behind three nodes.
    """
    _, y = options.get("data") or points()
    for row, member in enumerate(r.members):
        logits, norms, _ = plain_loop(net, member, r.steps, **options)
        if options.get("loss") == "squared":
            losses = 0.5 * np.square(logits - np.eye(logits.shape[2])[y]).sum(2).mean(1)
        else:
            top = logits.max(2)
            losses = (top + np.log(np.exp(logits - top[..., None]).sum(2))).mean(1)
            losses -= logits[:, np.arange(len(y)), y].mean(1)
        np.testing.assert_allclose(r.loss.draws[row], losses, rtol=tolerance)
        np.testing.assert_allclose(r.gradients.draws[row], norms, rtol=tolerance, atol=tolerance)
        best = logits.argmax(2)
        shares = np.stack([(best == c).mean(1) for c in range(logits.shape[2])], axis=1)
        tied = ((logits == logits.max(2, keepdims=True)).sum(2) > 1).mean(
            1
        )  # broken at random, here by the first class
        assert (np.abs(r.shares[row] - shares).max(1) <= tied + 1e-12).all()
        assert (np.abs(r.accuracy.draws[row] - (best == y).mean(1)) <= tied + 1e-12).all()


NETWORKS = [
    RELU,
    "dense > tanh > dense > tanh > dense",
    "dense > gelu > dense(bias_var=0.1) > gelu_tanh > dense",
    "dense > leaky_relu(0.2) > dense > silu > dense(bias_var=0.2)",
    "dense > sigmoid > dense > elu > dense > mish > dense",
    "dense(bias_var=0.1) > erf > dense > softplus > dense > selu > dense",
    "dense > hardtanh > dense > relu6 > dense > hardswish > dense > abs > dense",
    "dense > sin > dense > square > scale(0.3) > dense",
    "dense > layernorm > relu > dense > relu > layernorm > dense",
    "dense > rmsnorm > relu > dense > tanh > rmsnorm > dense",
    "dense > groupnorm(3) > relu > dense > relu > groupnorm(4) > dense",
    "dense > batchnorm > relu > dense > relu > batchnorm > dense",
    "dense > batchnorm(batch=10) > tanh > dense",
    "layernorm > dense > tanh > dense",
    "batchnorm > dense > tanh > dense",
    "relu > dense > shift(0.5) > relu > scale(2) > dense",
    "dense > residual[relu > dense] > residual(scale=0.5)[layernorm > dense > tanh > dense] > dense",
    "residual[dense > tanh > dense] > relu > dense",
    "dense > residual[relu > dense | dense > tanh] > residual[relu > residual[tanh > dense] > dense] > relu > dense",
    "dense > centered(relu) > dense > centered(tanh) > dense",
    "dense > relu > centered(softplus) > dense > tanh > centered(relu) > dense",  # by the mean over data and nodes
    "dense(frozen=true) > relu > dense(bias_var=0.1) > relu > dense",
    "dense > relu > dense(frozen=true) > relu > dense(frozen=true)",
    "dense(init=orthogonal) > tanh > dense(init=uniform, bias_var=0.1) > tanh > dense",
    "dense > maxpool(2) > dense",
    "dense > batchnorm(batch=5, estimator=leave_one_out) > dense",
    "dense > batchcenter > relu > dense",
]


@pytest.mark.parametrize("net", NETWORKS)
@pytest.mark.parametrize("options", [{}, {"optimizer": "sgd", "batch": 8}], ids=["gd", "sgd"])
def test_each_member_is_a_plain_loop(net: str, options: dict[str, Any]) -> None:
    if "batch=" in net:
        options = options | ({"batch": 15} if options else {})
    r = described(net, **options)
    assert not r.notes  # side by side
    agrees(r, net, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "adam", "lr": 0.01},
        {"optimizer": "adam", "lr": 0.01, "batch": 16},
        {"optimizer": "adam", "lr": 0.01, "batch": 16, "weight_decay": 0.1},
        {"optimizer": "sgd", "batch": 16, "weight_decay": 0.05},
        {"loss": "squared"},
        {"loss": "squared", "optimizer": "adam", "batch": 10, "lr": 0.02},
        {"lr": lambda step: 0.1 * 0.9**step},
        {"optimizer": "adam", "lr": lambda step: 1e-3 * min(step, 10), "batch": 7},
        {"seed": 11, "optimizer": "sgd", "batch": 100},
    ],
)
@pytest.mark.parametrize("net", [RELU, "dense(bias_var=0.1) > layernorm > tanh > residual[relu > dense] > dense"])
def test_optimizers_losses_and_schedules_are_those_of_torch(net: str, options: dict[str, Any]) -> None:
    agrees(described(net, **options), net, **options)


def test_two_classes_and_float32() -> None:
    x, y = points(60, classes=2)
    r = fg.train(RELU, data=(x, y), inits=4, width=WIDTH, lr=0.01, batch=16, steps=12)
    for row, member in enumerate(r.members):
        logits, norms, _ = plain_loop(
            RELU, member, r.steps, data=(x, y), optimizer="adam", lr=0.01, batch=16, dtype=torch.float32
        )
        losses = np.log1p(np.exp(-(2 * y - 1) * (logits[..., 1] - logits[..., 0]))).mean(1)
        np.testing.assert_allclose(r.loss.draws[row], losses, rtol=2e-4)
        np.testing.assert_allclose(r.gradients.draws[row], norms, rtol=2e-3)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("group", [1, 2, 5])
def test_members_depend_on_seed_and_number_only(threads: int, group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is trained next to them, but for rounding; the same group gives the same bits."""
    net = "dense(bias_var=0.1) > layernorm > relu > residual[relu > dense] > batchnorm > tanh > dense"
    options: dict[str, Any] = {"data": points(), "width": 11, "lr": 0.02, "batch": 13, "steps": 40}
    r = fg.train(net, inits=5, threads=1, **options)
    np.testing.assert_array_equal(fg.train(net, inits=5, threads=1, **options).loss.draws, r.loss.draws)
    made = DescriptionTrainer.__init__
    monkeypatch.setattr(
        DescriptionTrainer,
        "__init__",
        lambda self, *a, **k: made(self, *a, **(k | {"group": group, "threads": threads})),
    )
    other = fg.train(net, inits=3, **options)
    np.testing.assert_allclose(other.loss.draws, r.loss.draws[:3], rtol=1e-5)
    np.testing.assert_allclose(other.gradients.draws, r.gradients.draws[:3], rtol=1e-5)


def test_networks_of_images_are_trained_one_by_one() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((24, 2, 6, 6)).astype(np.float32), np.arange(24) % 2
    net = "conv(weight_var=2) > batchnorm > relu > maxpool(4) > conv(kernel=2, frozen=true) > relu > dense"
    r = described(net, data=(x, y), test=(x[:5], y[:5]), width=4, steps=6)
    assert "one by one" in r.notes[0]
    network = Network.parse(net)
    for row, member in enumerate(r.members):
        model = build(network, x, width=4, member=member).double()
        assert [p.requires_grad for p in model.parameters()] == [True, False, True]
        steps = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05)
        for step in range(7):
            steps.zero_grad()
            loss = nn.functional.cross_entropy(model(torch.tensor(x).double()), torch.tensor(y))
            np.testing.assert_allclose(r.loss.draws[row, step], float(loss.detach()), rtol=1e-9)
            loss.backward()
            steps.step()


def test_both_ways_of_training_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Held-out points after a BatchNorm too: by the training points' statistics."""
    net = "dense > batchnorm > relu > dense > relu > dense"
    options: dict[str, Any] = {"test": points(20, seed=8), "optimizer": "adam", "lr": 0.01, "batch": 9}
    r = described(net, **options)
    monkeypatch.setattr("firstguess.ensemble.training_engine.needs_images", lambda layers: True)
    plain = described(net, **options)
    np.testing.assert_allclose(plain.loss.draws, r.loss.draws, rtol=1e-7)
    assert r.test is not None
    assert plain.test is not None
    np.testing.assert_allclose(plain.test.loss.draws, r.test.loss.draws, rtol=1e-7)
    assert not r.notes
    assert plain.notes


def test_held_out_points_get_the_statistics_of_the_training_points() -> None:
    """A BatchNorm that normalizes held-out points by themselves would not be changed by a shift of them."""
    net = "dense > batchnorm > relu > dense"
    x, _ = points()
    xt, yt = points(20, seed=9)
    r = described(net, test=(xt, yt))
    _, _, model = plain_loop(net, 0, r.steps)
    with torch.no_grad():
        z, held = (model[0](torch.tensor(p).double()) for p in (x, xt))
        h = (held - z.mean(0)) / z.var(0, unbiased=False).sqrt()
        loss = nn.functional.cross_entropy(model[3](h.relu()), torch.tensor(yt))
    assert r.test is not None
    np.testing.assert_allclose(r.test.loss.draws[0, -1], float(loss), rtol=1e-8)


def test_held_out_points_without_norms() -> None:
    xt, yt = points(31, seed=9)
    r = described(RELU, test=(xt, yt))
    _, _, model = plain_loop(RELU, 1, r.steps)
    with torch.no_grad():
        out = model(torch.tensor(xt).double())
    assert r.test is not None
    np.testing.assert_allclose(r.test.loss.draws[1, -1], float(nn.functional.cross_entropy(out, torch.tensor(yt))))
    guesses = out.argmax(1).numpy()
    favourite = int(r.favourites[1])
    np.testing.assert_allclose(r.test.accuracy["favoured"].draws[1, -1], (guesses == yt)[yt == favourite].mean())
    np.testing.assert_allclose(r.test.accuracy["others"].draws[1, -1], (guesses == yt)[yt != favourite].mean())


def test_orders_are_epochs_of_all_points_and_each_members_own() -> None:
    first = orders(3, 4, 10, 4)
    epochs = [np.concatenate([next(first) for _ in range(3)]) for _ in range(2)]
    assert [sorted(epoch.tolist()) for epoch in epochs] == [list(range(10))] * 2
    assert epochs[0].tolist() != epochs[1].tolist()
    assert next(orders(3, 5, 10, 4)).tolist() != epochs[0][:4].tolist()
    assert next(orders(3, 4, 10, 99)).tolist() == list(range(10))
