"""Predicted training compared with torch: weight decay, divergence, which starts are kept, refusals."""

import numpy as np
import pytest
import torch
from torch import nn

import firstguess as fg
from firstguess.data import Data, two_blobs
from firstguess.ensemble.member_module import build
from firstguess.network.network import Network
from firstguess.theory.training import stepwise
from firstguess.theory.training.flow import DescentTask
from firstguess.theory.training.stepwise import BatchRows

RELU = "dense(weight_var=2) > relu > dense(weight_var=2)"


def trained_logits(model, x, y, lr, decay, steps, loss, batches):
    """Logits before and after training by torch.optim.SGD, of x; the first len(y) points are trained on."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=lr, weight_decay=decay)
    inputs, labels = torch.from_numpy(x), torch.from_numpy(y)
    with torch.no_grad():
        first = model(inputs).numpy()
    for _ in range(steps):
        rows = torch.arange(len(y))[batches.next()]
        optimizer.zero_grad()
        with torch.enable_grad():
            f = model(inputs[rows])
            if loss == "squared":
                value = 0.5 * (f - nn.functional.one_hot(labels[rows], f.shape[1])).square().sum(1).mean()
            else:
                value = nn.functional.cross_entropy(f, labels[rows])
            value.backward()
        optimizer.step()
    with torch.no_grad():
        return first, model(inputs).numpy()


@pytest.mark.parametrize("batch", [None, 5])
@pytest.mark.parametrize("loss", ["cross-entropy", "squared"])
@pytest.mark.parametrize("classes", [2, 3])
def test_weight_decay_of_a_linear_network_is_torchs(classes, loss, batch):
    """One layer of weights is its own linearisation and Θ = XXᵀ: equal to rounding, each network in its own order."""
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(16, 6)).astype(np.float32).astype(float), np.arange(12) % classes
    lr, decay, steps = 0.05, 0.4, 30
    theta = fg.predict("dense", data=x, tangent=True, draws=1, classes=classes).tangent
    np.testing.assert_allclose(theta, x @ x.T, rtol=1e-12)
    starts, ends = [], []
    for i in range(3):
        model = nn.Linear(6, classes, bias=False).double()
        batches = BatchRows(12, batch, np.random.default_rng([4, stepwise._STREAM, i if batch else 0]))
        first, last = trained_logits(model, x, y, lr, decay, steps, loss, batches)
        starts.append(first)
        ends.append(last)
    paired = classes == 2
    z0, z1 = ([f[:, 1:] - f[:, :1] if paired else f for f in both] for both in (starts, ends))
    task, start = DescentTask(y, classes, 3, loss), np.concatenate(z0, axis=1)
    looks = np.array([0, steps])
    options = {"batch": batch, "seed": 4, "decay": decay, "layers": 1}
    state = list(stepwise.step_by_step(task, theta[:12, :12], start[:12], lambda _: lr, looks, **options))[-1]
    wanted = np.concatenate(z1, axis=1)
    np.testing.assert_allclose(state.z, wanted[:12], rtol=1e-9, atol=1e-11)
    held = state.kept * start[12:] - task.factor * theta[12:, :12] @ state.s
    np.testing.assert_allclose(held, wanted[12:], rtol=1e-9, atol=1e-11)
    assert np.abs(wanted - start).max() > 0.5


@pytest.mark.parametrize("batch", [None, 10])
@pytest.mark.parametrize(
    "network", [RELU, "dense(weight_var=2, frozen=true) > relu > dense(weight_var=2)"], ids=["both", "one frozen"]
)
def test_weight_decay_of_wide_networks(network, batch):
    """Final losses of 16 networks of width 1500, each next to its prediction from the same start: 8 standard errors
    of the mean difference (false alarm 1e-6 by Student's t). Without decay the prediction is further off."""
    data = two_blobs(15, 8)
    x, y = data.x.astype(np.float32), np.array(data.y)
    net, width, steps = Network.parse(network), 1500, 60
    free = fg.predict_training(net, data=data, lr=1e-9, steps=1, draws=1, width=width, trust=False)
    lr = 0.04 * free.overshoot
    decay = 1.0 / (lr * steps)  # each layer's weights shrink to 0.36
    starts, losses = [], []
    for member in range(16):
        model = build(net, x, width=width, seed=3, member=member)
        order = BatchRows(30, batch, np.random.default_rng([6, stepwise._STREAM, member // 2 if batch else 0]))
        first, last = trained_logits(model, x, y, lr, decay, steps, "cross-entropy", order)
        starts.append(first)
        losses.append(float(nn.functional.cross_entropy(torch.from_numpy(last), torch.from_numpy(y))))
    options = {"data": data, "lr": lr, "steps": steps, "start": np.array(starts), "width": width, "seed": 6}
    options |= {"optimizer": "sgd", "batch": batch} if batch else {}
    found = fg.predict_training(net, weight_decay=decay, trust=False, **options).loss.draws[:, -1]
    off = found - np.array(losses)
    se = off.std(ddof=1) / np.sqrt(len(off))
    assert abs(off.mean()) < 8 * se
    without = fg.predict_training(net, trust=False, **options).loss.draws[:, -1] - np.array(losses)
    assert abs(without.mean()) > 12 * se


def test_divergence_is_a_result():
    """Single points have steeper losses than all of them: a rate that full batches stand, mini-batches do not."""
    data = two_blobs(10, 30)
    options = {"data": data, "loss": "squared", "draws": 5, "trust": False}
    lr = 1.9 / fg.predict_training(RELU, lr=1e-9, steps=1, **options).modes.largest
    calm = fg.predict_training(RELU, lr=lr, steps=3000, **options)
    assert calm.diverged == ()
    wild = fg.predict_training(RELU, lr=lr, steps=3000, optimizer="sgd", batch=1, **options)
    assert [network for network, _ in wild.diverged] == [0, 1, 2, 3, 4]
    assert all(0 < step <= 3000 for _, step in wild.diverged)
    assert "5 of 5 networks" in str(wild)
    first = min(step for _, step in wild.diverged)
    assert np.isfinite(wild.largest.mean[wild.steps < first]).all()
    assert wild.to_dict()["diverged"][0][0] == 0


def said(call):
    """The one line of a refusal."""
    with pytest.raises(fg.InvalidInput) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_rate_above_the_limit_says_the_limit():
    data = two_blobs(10, 5)
    t = fg.predict_training(RELU, data=data, lr=1e-9, steps=1, draws=1, trust=False)
    assert f"below {t.lr_limit:.3g}" in said(lambda: fg.predict_training(RELU, data=data, lr=1.001 * t.lr_limit))
    limit = 2 / t.modes.largest
    options = {"data": data, "loss": "squared", "steps": 2, "draws": 1, "trust": False}
    assert f"below {limit:.3g}" in said(lambda: fg.predict_training(RELU, lr=1.001 * limit, **options))
    fg.predict_training(RELU, lr=0.999 * limit, **options)


def test_labels_that_do_not_match_are_refused():
    x = np.random.default_rng(0).normal(size=(6, 3))
    y = np.arange(6) % 2
    assert "6" in said(lambda: fg.predict_training(RELU, data=(x, y[:5])))
    assert "one class" in said(lambda: fg.predict_training(RELU, data=(x, np.ones(6, int))))
    assert "labels 0, 1" in said(lambda: fg.predict_training(RELU, data=(x, y - 1)))
    assert "classes=4" in said(lambda: fg.predict_training(RELU, data=(x, 3 * y), classes=2))
    assert "classes=3" in said(lambda: fg.predict_training(RELU, data=(x, y), test=(x, 2 * y), classes=2))
    assert "labelled" in said(lambda: fg.predict_training(RELU, data=(x, y), test=x))


def test_too_many_points_for_memory_say_how_many_would_fit():
    data = two_blobs(500, 5)
    words = said(lambda: fg.predict_training(RELU, data=data, memory=5e6))
    fits = int(words.split("random subset of ")[1].split()[0])
    assert 50 < fits < 1000
    options = {"lr": 1e-9, "steps": 1, "memory": 5e6, "trust": False}
    half = fits // 2
    fg.predict_training(RELU, data=Data(data.x[-2 * half :][: 2 * half], np.arange(2 * half) % 2), **options)
    assert "subset" in said(
        lambda: fg.predict_training(RELU, data=Data(data.x[: fits + 3], np.arange(fits + 3) % 2), **options)
    )


def test_even_is_the_papers_neutral():
    data = Data(two_blobs(30, 20).x, np.arange(60) % 2)
    both = [
        fg.predict_training(RELU, data=data, lr=1e-5, steps=3, draws=10, start=start, trust=False)
        for start in ("even", "neutral")
    ]
    np.testing.assert_array_equal(both[0].loss.draws, both[1].loss.draws)
    assert both[0].drawn == both[1].drawn > 10
    assert both[0].largest.draws[:, 0].max() <= 0.55
    seen = [
        fg.train(RELU, data=data, inits=3, width=30, steps=3, optimizer="gd", lr=1e-3, start=start)
        for start in ("even", "neutral")
    ]
    np.testing.assert_array_equal(seen[0].loss.draws, seen[1].loss.draws)
    assert seen[0].members == seen[1].members
    assert seen[0].largest.draws[:, 0].max() <= 0.55
    with pytest.raises(fg.InvalidInput, match="'even'"):
        fg.train(RELU, data=data, inits=3, width=30, steps=3, start="odd")


def test_absorption_says_what_its_level_is_and_prints_no_median_of_networks_without_bias() -> None:
    from firstguess.theory.training.curves import Absorption

    half = Absorption(0.636, np.array([0.0, 0.0, 0.0, 12.0, 40.0]))
    assert half.label == "steps until the largest share is 0.636 (absorbed)"
    assert half.words(100) == "60 % of networks start below it; the others take 12 in the median"
    assert Absorption(0.6, np.array([0.0, 3.0, 5.0])).words(100).startswith("3 in the median")
