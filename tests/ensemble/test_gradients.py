"""measure_gradients: the numbers of a plain autograd loop, χ̃ of the theory, and models that come back untouched."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import special
from torch import nn

from firstguess.closed_form import predict
from firstguess.ensemble.build import build
from firstguess.ensemble.gradient_passes import Passes, loss_gradient
from firstguess.ensemble.gradient_statistics import Gradients, Growth, growth_of
from firstguess.ensemble.gradients import measure_gradients
from firstguess.ensemble.seeds import member_seeds
from firstguess.errors import InvalidInput
from firstguess.network import Network


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def points(n: int, *shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn((n, *shape), generator=torch.Generator().manual_seed(seed))


def some_labels(n: int, classes: int) -> torch.Tensor:
    return torch.arange(n) % classes


def redrawn(model: nn.Module, seed: int, member: int) -> nn.Module:
    torch.manual_seed(int(member_seeds(seed, member, member + 1)[0]))
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            module.reset_parameters()
    return model


# -- The numbers themselves ------------------------------------------------------------------------------------------


def test_equals_a_plain_autograd_loop():
    """Two dense layers, an in-place activation, three classes: levels are log10 of what autograd says by hand."""
    x, y = points(40, 8), some_labels(40, 3)
    model = nn.Sequential(nn.Linear(8, 12), nn.ReLU(inplace=True), nn.Linear(12, 10), nn.Tanh(), nn.Linear(10, 3))
    found = measure_gradients(model, (x, y), inits=4, seed=5)

    levels = []
    for member in range(4):
        one, _, two, _, three = redrawn(model, 5, member)
        u = one(x)
        v = two(u.clamp(min=0))
        w = three(v.tanh())
        for t in (u, v, w):
            t.retain_grad()
        model.zero_grad()
        F.cross_entropy(w, y, reduction="sum").backward()
        favoured = y == w.argmax(1).bincount(minlength=3).argmax()
        rows = []
        for t, layer in ((u, one), (v, two), (w, three)):
            square = t.grad.double() ** 2
            weight = (layer.weight.grad.double() / 40) ** 2
            rows.append([square.mean(), square[favoured].mean(), square[~favoured].mean(), weight.mean()])
        levels.append(torch.tensor(rows).log10())
    expected = torch.stack(levels)
    for i, layer in enumerate(found.layers):
        for j, level in enumerate((layer.all, layer.favoured, layer.others, layer.weight)):
            assert level.value == pytest.approx(float(expected[:, i, j].mean()), abs=1e-4)
            assert level.error == pytest.approx(float(expected[:, i, j].std() / 2), abs=1e-4)
            assert (level.inits, level.zeros) == (4, 0)
    slope = (expected[:, 0, 0] - expected[:, 1, 0]).mean() * math.log(10)
    assert found.growth.value == pytest.approx(float(slope.exp()), rel=1e-3)


def test_convolutions_and_one_logit_equal_a_plain_autograd_loop():
    x, y = points(12, 2, 6, 6), some_labels(12, 2)
    model = nn.Sequential(nn.Conv2d(2, 5, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(80, 1))
    found = measure_gradients(model, (x, y), inits=1, seed=1)
    conv, _, _, head = redrawn(model, 1, 0)
    u = conv(x)
    z = head(u.relu().flatten(1))
    u.retain_grad()
    z.retain_grad()
    F.binary_cross_entropy_with_logits(z[:, 0], y.float(), reduction="sum").backward()
    assert found.classes == 2
    assert found.points == 12
    assert found.layers[0].all.mean_square == pytest.approx(float(u.grad.double().square().mean()), rel=1e-4)
    assert found.layers[1].all.mean_square == pytest.approx(float(z.grad.double().square().mean()), rel=1e-4)
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


@pytest.mark.parametrize(("weight_var", "word"), [(1.5, "vanish"), (2.0, "keep their size"), (2.5, "explode")])
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


# -- What users bring --------------------------------------------------------------------------------------------------


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.drop(self.norm(self.conv(x)).relu_()).mean((2, 3)))


class Stubborn(Normed):
    def __deepcopy__(self, memo: object) -> None:
        raise RuntimeError("no copies")


@pytest.mark.parametrize("kind", [Normed, Stubborn])
def test_the_model_comes_back_untouched(kind: type[nn.Module]):
    model = kind()
    model.conv.weight.requires_grad_(False)
    model.head.weight.grad = torch.full_like(model.head.weight, 7.0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(3)
    state = torch.get_rng_state()
    with torch.no_grad():
        g = measure_gradients(model, points(16, 3, 5, 5), inits=2)
    assert torch.equal(state, torch.get_rng_state())
    assert model.training
    assert model.drop.training
    assert not model.conv.weight.requires_grad
    assert model.conv.weight.grad is None
    assert bool((model.head.weight.grad == 7).all())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())
    assert g.layers[0].weight.inits == 2  # a frozen weight has a gradient to measure all the same


def test_members_depend_on_seed_and_number_only():
    x = points(20, 8)
    model = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 2))
    net = Network.parse("dense(width=12) > relu > dense")
    seen = []
    from firstguess.ensemble.gradients import _batches, _built, _member
    from firstguess.ensemble.sources import Setup, source

    members = source(model, None, Setup("train", None, None, lambda m: m(x)))
    for make in (lambda i: _member(members, 0, i), _built(net, x.numpy(), 50, 0, None, None)):
        passes = [Passes(make, _batches(x, None, 20, None), 0, None, None) for _ in range(2)]
        passes[0].run(0)
        first, second = passes[0].run(3)[0], passes[1].run(3)[0]
        assert np.array_equal(first, second)
        seen.append(first)
    assert not np.allclose(seen[0], seen[1])


def test_a_description_and_its_module_agree():
    """`build` gives the same member that the description's passes use."""
    x, y = points(30, 8), some_labels(30, 2)
    net = Network.parse("2 x [dense(weight_var=2, width=16) > relu] > dense")
    one = measure_gradients(net, (x, y), inits=1, seed=4)
    module = build(net, x.numpy(), seed=4)
    rows = module(x)
    F.cross_entropy(rows, y, reduction="sum").backward()
    weight = module[0].weight.grad.double().div(30).square().mean()
    assert one.layers[0].weight.mean_square == pytest.approx(float(weight), rel=1e-4)


def test_labels():
    x = points(30, 8)
    model = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 3))
    assert any("the data have none" in note for note in measure_gradients(model, x, inits=1).notes)
    own = measure_gradients(model, (x, some_labels(30, 3)), inits=2)
    given = measure_gradients(model, x, inits=2, labels=some_labels(30, 3))
    other = measure_gradients(model, (x, some_labels(30, 3)), inits=2, labels="random")
    assert own.layers == given.layers != other.layers
    assert not own.notes
    described = "dense(width=12) > relu > dense"
    a = measure_gradients(described, (x, some_labels(30, 3)), inits=2, points=20)
    b = measure_gradients(described, x, inits=2, labels=some_labels(30, 3), points=20)
    assert a.classes == b.classes == 3
    assert a.layers == b.layers
    with pytest.raises(InvalidInput, match=r"labels 0…2"):
        measure_gradients(model, (x, some_labels(30, 4)), inits=1)
    with pytest.raises(InvalidInput, match="random"):
        measure_gradients(model, (x, some_labels(30, 3)), inits=1, labels="none")


class Reader(nn.Module):
    """A tag for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 16)
        self.block = nn.TransformerEncoderLayer(16, 2, 24, batch_first=True)
        self.head = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.block(self.words(x)))


def test_tokens_are_points():
    tokens = torch.randint(0, 20, (6, 7), generator=torch.Generator().manual_seed(0))
    g = measure_gradients(Reader, tokens, inits=3)
    assert (g.points, g.classes) == (42, 5)
    assert [layer.name for layer in g.layers] == ["block.self_attn", "block.linear1", "block.linear2", "head"]
    assert all(level.inits == 3 for layer in g.layers for level in (layer.all, layer.favoured, layer.others))
    assert any("tokens" in note for note in g.notes)


class Overflows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.head = nn.Linear(8, 9), nn.Linear(9, 9), nn.Linear(9, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.two(self.one(x).exp() * 1e38) * 1e3)


def test_nan_and_inf_are_blamed_on_their_layer():
    g = measure_gradients(Overflows, points(10, 8), inits=2)
    assert [(f.kind, f.layer) for f in g.findings] == [("nonfinite", "two")]
    assert math.isnan(g.layers[0].all.value)
    assert g.word == "not known"


def test_infinite_gradients_are_blamed_too():
    class Root(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x * 0).sqrt() + x  # finite, with an infinite slope at 0

    model = nn.Sequential(nn.Linear(8, 9), Root(), nn.Linear(9, 2))
    g = measure_gradients(model, points(10, 8), inits=2)
    assert [(f.kind, f.layer) for f in g.findings] == [("nonfinite", "0")]


def test_exact_zeros_have_no_logarithm_and_are_counted():
    """A head of size 1e4: the favoured class's gradient is below any number format."""
    model = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 2))

    def biased(module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            module.reset_parameters()
            if module.out_features == 2:
                module.bias.copy_(torch.tensor([1e4, 0.0]))

    g = measure_gradients(model, (points(10, 8), some_labels(10, 2)), inits=3, init=biased)
    assert g.favoured_fraction == 1.0
    last = g.layers[-1]
    assert (last.favoured.zeros, last.favoured.inits) == (3, 0)
    assert math.isnan(last.favoured.value)
    assert last.others.value == pytest.approx(0.0, abs=1e-6)  # sure and wrong: (±1)²
    assert any("exactly 0" in note and "favoured" in note for note in g.notes)


def test_a_cut_graph_is_a_finding():
    class Cut(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.detach()

    g = measure_gradients(nn.Sequential(nn.Linear(8, 9), Cut(), nn.Linear(9, 2)), points(10, 8), inits=1)
    assert [(f.kind, f.layer) for f in g.findings] == [("no gradient", "0")]


def test_it_prints_and_goes_to_json_and_back():
    g = measure_gradients("30 x [dense > relu] > dense", points(20, 8).numpy(), inits=3, width=20)
    assert max(len(line) for line in str(g).splitlines()) <= 100
    assert "more" in str(g)
    assert "favoured" in g._repr_html_()
    again = Gradients.from_dict(json.loads(json.dumps(g.to_dict(), allow_nan=False)))
    assert again == g
    lost = measure_gradients(Overflows, points(10, 8), inits=2)
    assert str(Gradients.from_dict(json.loads(json.dumps(lost.to_dict(), allow_nan=False)))) == str(lost)


def test_levels_off_a_line_are_noted():
    x = points(32, 20).numpy()
    even = measure_gradients("8 x [dense(weight_var=2) > relu] > dense", x, inits=3, width=100)
    uneven = measure_gradients(
        "4 x [dense > scale(0.05) > relu > dense > scale(20) > relu] > dense", x, inits=3, width=100
    )
    assert not any("off the line" in note for note in even.notes)
    assert any("off the line" in note for note in uneven.notes)


def test_in_inference_mode():
    model = nn.Sequential(nn.Linear(8, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 2))
    x = points(20, 8)
    with torch.inference_mode():
        inside = measure_gradients(model, x, inits=2)
    assert inside.layers == measure_gradients(model, x, inits=2).layers


def test_progress_and_bad_input():
    x, done = points(10, 8), []
    measure_gradients("dense > relu > dense", x.numpy(), inits=3, width=5, progress=lambda i, n: done.append((i, n)))
    assert done == [(1, 3), (2, 3), (3, 3)]
    for bad in ({"inits": 0}, {"points": 0}, {"mode": "test"}, {"seed": -1}, {"init": (2.0, 0.0)}):
        with pytest.raises(InvalidInput):
            measure_gradients("dense > relu > dense", x.numpy(), **bad)
    with pytest.raises(InvalidInput, match="width"):
        measure_gradients(nn.Linear(8, 2), x, width=5)
    with pytest.raises(InvalidInput, match="weights"):
        measure_gradients(nn.Sequential(nn.ReLU()), x)


@pytest.mark.parametrize(
    ("growth", "word"),
    [
        (Growth(1.2, 1.1, 1.3, 5, 3.0), "explode"),
        (Growth(1.2, 1.1, 1.3, 5, 1.9), "keep their size"),
        (Growth(1.2, 0.9, 1.5, 5, 3.0), "keep their size"),
        (Growth(0.8, 0.7, 0.9, 5, 0.4), "vanish"),
        (Growth(0.8, math.nan, math.nan, 1, 0.4), "not known"),
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
