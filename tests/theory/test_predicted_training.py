"""Training predicted from kernels: golden numbers, plain loops, limits, refusals."""

import numpy as np
import pytest

import firstguess as fg
from firstguess.data import Data, blob, two_blobs
from firstguess.network.network import Network
from firstguess.theory.training.curves import Curve, absorption, looked_at
from firstguess.theory.training.flow import DescentTask, descend
from firstguess.theory.training.problem import modes_of
from firstguess.theory.training.stepwise import layer_tangents

NET = "3 x [dense(weight_var=2) > relu] > dense(weight_var=2)"


def top(theta):
    return float(np.linalg.eigvalsh(theta)[-1] / len(theta))


def test_golden_steps_of_descent():
    """theory.md §7, last line."""
    x = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    net = "dense(weight_var=2) > relu > dense(weight_var=2)"
    start = np.zeros((1, 3, 2))
    start[0, :, 1] = 0.5, -1.0, 2.0
    y = np.array([0, 1, 1])
    p = fg.predict(net, data=x, tangent=True, width=100, draws=1)
    states = list(
        descend(
            DescentTask(y, 2, 1),
            p.tangent,
            start[0, :, 1:],
            lambda _: 0.01,
            np.array([0, 1, 100]),
            spread=1.0,
            exact=True,
        )
    )
    np.testing.assert_allclose(states[1].z[:, 0], [0.39318951, -0.78411451, 2.10285014], rtol=1e-6)
    np.testing.assert_allclose(states[2].z[:, 0], [-2.80172069, 3.34886323, 3.62452125], rtol=1e-6)


def test_golden_steps_of_descent_by_the_public_way():
    """The same numbers, by the losses that they are. A decay too small to be felt has every step taken one by one."""
    x, y = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]), np.array([0, 1, 1])
    start = np.zeros((1, 3, 2))
    start[0, :, 1] = 0.5, -1.0, 2.0
    net = "dense(weight_var=2) > relu > dense(weight_var=2)"
    options = {"data": (x, y), "lr": 0.01, "steps": [1, 100], "start": start, "width": 100, "trust": False}
    known = np.array([[0.39318951, -0.78411451, 2.10285014], [-2.80172069, 3.34886323, 3.62452125]])
    losses = np.log1p(np.exp(-known * (2 * y - 1))).mean(axis=1)
    exact = fg.predict_training(net, weight_decay=1e-15, **options).loss.mean
    np.testing.assert_allclose(exact[1:], losses, rtol=1e-6)
    flow = fg.predict_training(net, **options).loss.mean
    np.testing.assert_allclose(flow[1:], losses, rtol=1e-2)
    assert flow[1] == pytest.approx(losses[0], rel=1e-6)


def plain(theta, f, y, classes, lr, steps, loss):
    """Logits (n, classes) of one network, a loop."""
    onehot = np.eye(classes)[y]
    for _ in range(steps):
        if loss == "squared":
            r = f - onehot
        else:
            p = np.exp(f - f.max(1, keepdims=True))
            r = p / p.sum(1, keepdims=True) - onehot
        f = f - lr * theta @ r / len(y)
    return f


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("loss", ["cross-entropy", "squared"])
def test_against_a_plain_loop_on_all_classes(classes, loss):
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(30, 8)), rng.integers(0, classes, 30)
    y[:3] = 0, 1, classes - 1
    xt, yt = rng.normal(size=(10, 8)), rng.integers(0, classes, 10)
    starts = rng.normal(size=(4, 40, classes))
    t = fg.predict_training(
        NET, data=(x, y), test=(xt, yt), lr=2e-4, steps=20, start=starts, width=100, loss=loss, trust=False
    )
    both = np.concatenate([x, xt])
    theta = fg.predict(NET, data=both, tangent=True, width=100, draws=1).tangent
    for i, f0 in enumerate(starts):
        f = plain(theta[:30, :30], f0[:30], y, classes, 2e-4, 20, loss)
        best = f.argmax(1)
        assert t.largest.draws[i, -1] == pytest.approx(np.bincount(best).max() / 30)
        assert t.accuracy.draws[i, -1] == pytest.approx(np.mean(best == y))
        # held-out points, by moving all points and feeling only the residuals of the training ones
        g = f0.copy()
        onehot = np.eye(classes)[y]
        for _ in range(20):
            p = np.exp(g[:30] - g[:30].max(1, keepdims=True))
            r = (g[:30] if loss == "squared" else p / p.sum(1, keepdims=True)) - onehot
            g = g - 2e-4 * theta[:, :30] @ r / 30
        assert t.test is not None
        assert t.test.accuracy.draws[i, -1] == pytest.approx(np.mean(g[30:].argmax(1) == yt))
        if loss == "cross-entropy":
            p = np.exp(f - f.max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            assert t.loss.draws[i, -1] == pytest.approx(-np.log(p[np.arange(30), y]).mean(), rel=1e-6)


def test_accuracy_of_the_favoured_and_the_others():
    data = two_blobs(40, 10)
    t = fg.predict_training(NET, data=data, lr=1e-4, steps=3, draws=30, trust=False)
    y = np.asarray(data.y)
    both = np.stack([t.accuracy[0].draws[:, 0], t.accuracy[1].draws[:, 0]])
    np.testing.assert_allclose(t.accuracy["favoured"].draws[:, 0], both.max(0))  # whoever gets most is right most often
    np.testing.assert_allclose(t.accuracy["others"].draws[:, 0], both.min(0))
    np.testing.assert_allclose(t.accuracy.draws, 0.5 * (t.accuracy[0].draws + t.accuracy[1].draws))
    assert np.mean(y) == 0.5
    with pytest.raises(fg.InvalidInput, match="favoured"):
        t.accuracy["none"]


@pytest.mark.parametrize(("classes", "lr"), [(2, 1e-4), (2, 5e-4), (4, 3e-4)])
def test_the_flow_follows_exact_steps(classes, lr):
    """Shares, averaged over 40 networks, to 2e-3 at every step up to 2 000."""
    rng = np.random.default_rng(1)
    data = blob(120, 20)
    y = rng.integers(0, classes, 120)
    p = fg.predict(NET, data=data, tangent=True, width=300, draws=1)
    start = np.linalg.cholesky(p.covariance + 1e-9 * np.eye(120)) @ rng.normal(
        size=(120, 40 * (1 if classes == 2 else 4))
    )
    task, looks = DescentTask(y, classes, 40), looked_at(2000)
    by = [
        list(descend(task, p.tangent, start, lambda _: lr, looks, spread=top(p.tangent), exact=exact))
        for exact in (False, True)
    ]
    for flow, exact in zip(*by, strict=True):
        assert flow.step == exact.step
        shares = [
            np.stack([(task.shaped(s.z).argmax(2) == c).mean(0) for c in range(classes)]).max(0) for s in (flow, exact)
        ]
        assert abs(shares[0].mean() - shares[1].mean()) < 2e-3
        size = np.sqrt(np.mean(exact.z**2))
        assert np.sqrt(np.mean((flow.z - exact.z) ** 2)) < 0.01 * size


def test_schedules_are_one_flow_in_learning_time():
    data = two_blobs(60, 20)
    base = {"data": data, "draws": 20, "width": 200, "trust": False}
    fast = fg.predict_training(NET, lr=2e-5, steps=[400], **base)
    ramp = fg.predict_training(NET, lr=lambda k: 4e-5 * (k + 0.5) / 400, steps=[400], **base)
    assert abs(fast.largest.mean[-1] - ramp.largest.mean[-1]) < 3e-3


def test_layers_of_the_tangent_kernel_sum_to_it():
    x = blob(12, 6).x.astype(float)
    net = Network.parse("dense(weight_var=2) > residual[relu > dense] > tanh > dense(bias_var=0.1)")
    theta = fg.predict(net, data=x, tangent=True, width=50, draws=1).tangent
    parts = list(layer_tangents(net, x, 50))
    assert [weights for _, weights, _ in parts] == [6 * 50, 50 * 50, 50 * 2]
    assert [last for _, _, last in parts] == [False, False, True]
    np.testing.assert_allclose(sum(part for part, _, _ in parts), theta, rtol=1e-10)


def test_starts_are_filtered_and_said():
    data = blob(200, 100)
    labelled = Data(data.x, np.arange(200) % 2)
    t = fg.predict_training(NET, data=labelled, lr=1e-5, steps=1, draws=30, start="biased", trust=False)
    assert t.largest.draws[:, 0].min() >= 0.9
    assert t.drawn > 30
    t = fg.predict_training(NET, data=labelled, lr=1e-5, steps=1, draws=30, start="neutral", trust=False)
    assert t.largest.draws[:, 0].max() <= 0.55
    with pytest.raises(fg.InvalidInput, match="starts that are biased"):
        fg.predict_training("dense > tanh > dense", data=labelled, lr=1e-5, steps=1, draws=30, start="biased")


def test_weight_decay_alone_shrinks_logits_as_layers_do():
    """Without any pull (labels that the logits already have under squared loss) f ∝ (1 − ηλ)^(D·t)."""
    data = two_blobs(10, 5)
    y = np.asarray(data.y)
    start = np.eye(2)[y][None]
    t = fg.predict_training(
        NET, data=data, lr=1e-6, weight_decay=1e3, steps=50, start=start, loss="squared", trust=False
    )
    left = (1 - 1e-3) ** (4 * 50)
    assert t.loss.mean[-1] == pytest.approx(0.25 * (1 - left) ** 2, rel=0.02)
    with pytest.raises(fg.NotCovered, match="scale-free"):
        fg.predict_training("dense > tanh > dense", data=data, weight_decay=0.1)


def test_absorption_between_steps():
    curve = Curve(np.array([0, 1, 3]), np.array([[0.9, 0.7, 0.5], [0.55, 0.5, 0.5], [0.9, 0.8, 0.7]]))
    found = absorption(curve, 0.6)
    assert found.draws.tolist() == [2.0, 0.0, np.inf]
    assert found.within == pytest.approx(2 / 3)
    assert found.median == 2.0


def test_adam_moves_by_its_learning_rate_and_not_by_the_gradient():
    """Ten times the labels' pull changes nothing at the first step: every weight moves by lr."""
    data = two_blobs(50, 20)
    one = fg.predict_training(NET, data=data, lr=1e-6, steps=[1], optimizer="adam", draws=50, trust=False)
    two = fg.predict_training(NET, data=data, lr=2e-6, steps=[1], optimizer="adam", draws=50, trust=False)
    first = one.loss.mean[0] - one.loss.mean[1]
    assert two.loss.mean[0] - two.loss.mean[1] == pytest.approx(2 * first, rel=0.05)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lr": 0.0}, "learning rate above 0"),
        ({"lr": 100.0}, "learning rate below"),
        ({"optimizer": "sgd"}, "mini-batches"),
        ({"optimizer": "lion"}, "gd"),
        ({"batch": 10}, "all points"),
        ({"loss": "hinge"}, "cross-entropy"),
        ({"steps": 0}, "steps"),
        ({"steps": [0.5]}, "steps"),
        ({"level": 0.4}, "between"),
        ({"start": "odd"}, "start"),
        ({"start": np.zeros((2, 3, 2))}, "logits of shape"),
        ({"stepz": 3}, "stepz"),
    ],
)
def test_bad_input_is_one_line(options, words):
    with pytest.raises(fg.InvalidInput, match=words):
        fg.predict_training(NET, data=two_blobs(5, 3), **options)


def test_bad_labels_are_refused():
    x = np.random.default_rng(0).normal(size=(6, 3))
    with pytest.raises(fg.InvalidInput, match="labelled"):
        fg.predict_training(NET, data=x)
    with pytest.raises(fg.InvalidInput, match="one class"):
        fg.predict_training(NET, data=(x, np.zeros(6, int)))
    net = "dense > batchnorm > relu > dense"
    with pytest.raises(fg.NotCovered, match="held-out"):
        fg.predict_training(net, data=two_blobs(5, 3), test=two_blobs(5, 3))


def test_trust_is_measured():
    data = two_blobs(20, 10)
    wide = fg.predict_training("dense(weight_var=2) > relu > dense", data=data, lr=1e-5, steps=1, width=2000)
    deep = fg.predict_training("10 x [dense(weight_var=2) > relu] > dense", data=data, lr=1e-6, steps=1, width=30)
    assert wide.trust.word == "good"
    assert deep.trust.word == "not lazy"
    assert wide.trust.spread < 0.2 < deep.trust.spread


@pytest.mark.parametrize(("width", "classes", "said"), [(12, 5, True), (200, 2, False)])
def test_where_real_trainings_are_quicker_than_adam_s_prediction_it_says_so(
    width: int, classes: int, said: bool
) -> None:
    """By the products that both take: 3 a weight and network, 2 a sampled weight, logit and network."""
    x = np.random.default_rng(3).standard_normal((20, 6))
    net = "dense(weight_var=2) > relu > dense(weight_var=2) > relu > dense"
    t = fg.predict_training(
        net, data=(x, np.arange(20) % classes), optimizer="adam", steps=2, width=width, draws=100, trust=False
    )
    weights = [6 * width, width**2, width * classes]
    columns = 1 if classes == 2 else classes
    assert (3 * 60 * sum(weights) < 2 * 100 * columns * sum(min(size, 1000) for size in weights)) == said
    assert ("fg.train(…, inits=60)" in str(t)) == said


def test_the_signal_is_the_average_rayleigh_quotient_of_the_labels_directions():
    """λ of theory.md (15) by unit vectors, on classes of 3, 5 and 12 points."""
    rng = np.random.default_rng(0)
    factor = rng.standard_normal((20, 20))
    theta = factor @ factor.T
    labels = np.repeat([0, 1, 2], [3, 5, 12])
    quotients = []
    for c in range(3):
        unit = np.where(labels == c, 1.0, 0.0) - np.mean(labels == c)
        unit /= np.linalg.norm(unit)
        quotients.append(unit @ theta @ unit / 20)
    found = modes_of(theta, labels)
    assert found.signal == pytest.approx(np.mean(quotients), rel=1e-10)
    assert found.bias == pytest.approx(theta.mean(), rel=1e-10)
    assert found.largest == pytest.approx(np.linalg.eigvalsh(theta)[-1] / 20, rel=1e-5)
