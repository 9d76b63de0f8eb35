"""measure_gradients: the numbers of a plain autograd loop, χ̃ of the theory, and models that come back untouched."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import special
from small_models import points, some_labels
from torch import nn

from firstguess.ensemble.gradient_statistics import Growth, growth_of
from firstguess.ensemble.seeds import member_seeds
from firstguess.modules.gradient_passes import loss_gradient
from firstguess.modules.measure_gradients import measure_gradients
from firstguess.network.network import Network
from firstguess.theory.closed_form import predict

pytestmark = pytest.mark.usefixtures("one_thread")


def redrawn(model: nn.Module, seed: int, member: int) -> nn.Module:
    torch.manual_seed(int(member_seeds(seed, member, member + 1)[0]))
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            module.reset_parameters()
    return model


# -- The numbers themselves ------------------------------------------------------------------------------------------


def test_equals_a_plain_autograd_loop():
    """Three dense layers, an in-place activation, three classes: levels are log10 of what autograd says by hand."""
    x, y = points(40, 8), some_labels(40, 3)
    model = nn.Sequential(
        nn.Linear(8, 12), nn.ReLU(inplace=True), nn.Linear(12, 10), nn.Tanh(), nn.Linear(10, 9), nn.Linear(9, 3)
    )
    found = measure_gradients(model, (x, y), inits=4, seed=5)

    levels = []
    for member in range(4):
        one, _, two, _, three, four = redrawn(model, 5, member)
        u = one(x)
        v = two(u.clamp(min=0))
        k = three(v.tanh())
        w = four(k)
        for t in (u, v, k, w):
            t.retain_grad()
        model.zero_grad()
        F.cross_entropy(w, y, reduction="sum").backward()
        favoured = y == w.argmax(1).bincount(minlength=3).argmax()
        rows = []
        for t, layer in ((u, one), (v, two), (k, three), (w, four)):
            square = (t.grad.double() ** 2).sum(1)
            weight = (layer.weight.grad.double() / 40) ** 2
            rows.append([square.mean(), square[favoured].mean(), square[~favoured].mean(), weight.mean()])
        levels.append(torch.tensor(rows).log10())
    expected = torch.stack(levels)
    for i, layer in enumerate(found.layers):
        for j, level in enumerate((layer.all, layer.favoured, layer.others, layer.weight)):
            assert level.value == pytest.approx(float(expected[:, i, j].mean()), abs=1e-4)
            assert level.error == pytest.approx(float(expected[:, i, j].std() / 2), abs=1e-4)
            assert (level.inits, level.zeros) == (4, 0)
    slope = (expected[:, 1, 0] - expected[:, 2, 0]).mean() * math.log(10)  # without the first and the last
    assert found.growth.value == pytest.approx(float(slope.exp()), rel=1e-3)


def test_convolutions_and_one_logit_equal_a_plain_autograd_loop():
    """By hand: one backward pass a point; its gradient at the kernel over the size of a patch of its own."""
    x, y = points(12, 2, 6, 6), some_labels(12, 2)
    model = nn.Sequential(nn.Conv2d(2, 5, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(80, 1))
    found = measure_gradients(model, (x, y), inits=1, seed=1)
    conv, _, _, head = redrawn(model, 1, 0)
    kernel, output = 0.0, 0.0
    for point, label in zip(x, y, strict=True):
        model.zero_grad()
        z = head(conv(point[None]).relu().flatten(1))
        z.retain_grad()
        F.binary_cross_entropy_with_logits(z[:, 0], label[None].float(), reduction="sum").backward()
        patches = point.unfold(1, 3, 1).unfold(2, 3, 1)  # (channels, 4, 4, 3, 3)
        kernel += float(conv.weight.grad.double().square().sum() / (patches.double().square().sum() / 16)) / 12
        output += float(z.grad.double().square().sum()) / 12
    assert found.classes == 2
    assert found.points == 12
    assert found.layers[0].all.mean_square == pytest.approx(kernel, rel=1e-4)
    assert found.layers[1].all.mean_square == pytest.approx(output, rel=1e-4)
    assert found.growth.word == "not known"
    assert math.isnan(found.growth.value)


def test_batches_do_not_matter_without_batchnorm_and_do_with_it():
    x, y = points(60, 8), some_labels(60, 2)
    plain = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 2))
    normed = nn.Sequential(nn.Linear(8, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 2))
    for model, same in ((plain, True), (normed, False)):
        whole, split = (measure_gradients(model, (x, y), inits=3, batch_size=size) for size in (None, 15))
        a, b = (
            [level.value for level in (i.all, i.favoured, i.others, i.weight)]
            for i in (whole.layers[0], split.layers[0])
        )
        assert (a == pytest.approx(b, abs=1e-5)) is same
        assert any("BatchNorm" in note for note in whole.notes) is not same


def test_the_gradient_of_a_sure_point_is_not_lost():
    """float32 softmax − one-hot would be 0, or rounding noise of 1e-8, at a logit gap of 60."""
    gap = torch.tensor([[60.0, 0.0, -1.0], [1.0, 2.0, 3.0]])
    g = loss_gradient(gap, torch.tensor([0, 1]))
    assert float(g[0, 1]) == pytest.approx(math.exp(-60), rel=1e-12)
    assert float(g[0, 0]) == pytest.approx(-math.exp(-60) - math.exp(-61), rel=1e-12)
    assert torch.allclose(g[1], torch.softmax(gap[1].double(), 0) - torch.tensor([0.0, 1.0, 0.0]).double())
    one = loss_gradient(torch.tensor([50.0, 50.0]), torch.tensor([1, 0]))
    assert one.tolist() == pytest.approx([-math.exp(-50), 1.0], rel=1e-12)


# -- Against the theory ------------------------------------------------------------------------------------------------


def far(growth: Growth, expected: float, width: int) -> float:
    """Distance of log growth from the theory, in units of what is allowed: below 1 but for one time in 1e7.

    Allowed: Student's t at 1e-7, plus finite width. One layer's ratio of mean squares fluctuates with a variance of 5/N
    (ReLU: 1/N·(E[(g 1{u>0})⁴]/E[..]² − 1) = 5/N), so that its logarithm is lower by 5/(2N) on average.
    """
    error = math.log(growth.high / growth.low) / 2 / special.stdtrit(growth.inits - 1, 0.975)
    room = special.stdtrit(growth.inits - 1, 1 - 5e-8) * error + 2.5 / width
    return abs(math.log(growth.value / expected)) / room


@pytest.mark.parametrize(("weight_var", "word"), [(1.5, "shrink"), (2.0, "keep their size"), (2.5, "grow")])
def test_relu_grows_by_half_the_weight_variance(weight_var: float, word: str):
    """theory.md (10): χ̃ = σw²/2, for either group of points."""
    net = f"20 x [dense(weight_var={weight_var}) > relu] > dense"
    g = measure_gradients(net, points(48, 60).numpy(), inits=24, width=300)
    for growth in (g.growth, g.favoured_growth, g.others_growth):
        assert far(growth, weight_var / 2, 300) < 1
    assert g.word == word
    assert g.growth.high / g.growth.low < 1.04  # the three variances are told apart, by far


def test_tanh_at_its_edge_follows_the_closed_form():
    """Before q is at its fixed point χ̃ is not yet 1: the slope of the predicted logarithms has the same transient."""
    net = Network.parse("20 x [dense(weight_var=1.760955, bias_var=0.05) > tanh] > dense")
    g = measure_gradients(net, points(48, 60).numpy(), inits=24, width=300)
    logs = -np.cumsum(np.log(predict(net).gradient_growth))[:-1]  # hidden layers 2…20, up to a constant
    expected = math.exp(-np.polyfit(np.arange(len(logs)), logs, 1)[0])
    assert far(g.growth, expected, 300) < 1
    assert abs(math.log(expected)) < 0.02
    assert g.word == "keep their size"


def test_batchnorm_before_relu_explodes_whatever_the_variance():
    """theory.md §5: π/(π − 1) a layer for large batches; 1 % for the batch of 512 and the width (both O(1/512))."""
    for weight_var in (1.0, 3.0):
        net = f"12 x [dense(weight_var={weight_var}) > batchnorm > relu] > dense"
        g = measure_gradients(net, points(512, 60).numpy(), inits=8, width=400, points=512)
        assert far(g.growth, math.pi / (math.pi - 1), 250) < 1
        assert g.growth.high / g.growth.low < 1.02


def test_chaotic_relu_starves_the_favoured_class():
    """MF: its points are already right with certainty, so their gradient at the output is tiny; the others' is not.

    20 layers at weight_var 3 multiply the logits' variance by 1.5²⁰ = 3300 over the edge's: gaps of tens, whose
    exponentials are the favoured class's gradients. The bounds are far from what any ensemble of 16 would give.
    """
    x, y = points(64, 60), some_labels(64, 2)
    chaotic, edge = (
        measure_gradients(f"20 x [dense(weight_var={v}) > relu] > dense(weight_var={v})", (x, y), inits=16, width=150)
        for v in (3.0, 2.0)
    )
    assert chaotic.contrast < -3
    assert chaotic.contrast < edge.contrast - 2
    assert chaotic.layers[-1].others.value > -0.5
    # What reaches the layers below grows alike: the classes differ in the loss's own gradient.
    assert far(chaotic.favoured_growth, 1.5, 150) < 1


# -- Words and intervals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("growth", "word"),
    [
        (Growth(1.2, 1.1, 1.3, 5, 2e4), "explode"),
        (Growth(1.2, 1.1, 1.3, 5, 3.0), "grow"),
        (Growth(1.2, 1.1, 1.3, 5, 1.9), "keep their size"),
        (Growth(1.2, 0.9, 1.5, 5, 3.0), "keep their size"),
        (Growth(0.8, 0.7, 0.9, 5, 0.4), "shrink"),
        (Growth(0.8, 0.7, 0.9, 5, 9e-5), "vanish"),
        (Growth(0.8, math.nan, math.nan, 1, 0.4), "not known"),
        (Growth(math.nan, math.nan, math.nan, 5, 1e-5, 4, 1e-6, 1e-4), "vanish"),
        (Growth(math.nan, math.nan, math.nan, 5, 0.1, 4, 1e-3, 10.0), "keep their size"),
        (Growth(math.nan, math.nan, math.nan, 5, 0.0, 4, 0.0, 0.0), "vanish"),
        (Growth(math.nan, math.nan, math.nan, 0, math.nan, 4, zeros=5), "zero"),
        (Growth(math.nan, math.nan, math.nan, 0, math.nan, 4, lost=5), "not finite"),
    ],
)
def test_words(growth: Growth, word: str):
    assert growth.word == word


def test_the_interval_of_the_growth_covers():
    """Student's t on Gaussian slopes covers 95 %: 2000 ensembles, six standard errors of the coverage (2e-9)."""
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(2000):
        slopes = 0.1 + 0.05 * rng.standard_normal(8)
        growth = growth_of(np.exp(-np.outer(slopes, np.arange(4))))
        hits += growth.low <= math.exp(0.1) <= growth.high
    assert abs(hits / 2000 - 0.95) < 6 * math.sqrt(0.95 * 0.05 / 2000)


def test_one_initialization_prints_no_nan():
    """A single member has no standard error and no interval: the page says so, without "nan"."""
    model = nn.Sequential(
        nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 12), nn.Linear(12, 2)
    )
    found = measure_gradients(model, (points(20, 6), some_labels(20, 2)), inits=1)
    assert "nan" not in str(found).lower()
    assert "no interval from one initialization" in " ".join(str(found).split())
