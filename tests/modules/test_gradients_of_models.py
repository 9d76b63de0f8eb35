"""measure_gradients on what users bring: labels, tokens, broken models; and all of it comes back untouched."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from small_models import points, some_labels
from torch import nn

from firstguess.base.errors import InvalidInput
from firstguess.ensemble.gradient_statistics import Gradients
from firstguess.ensemble.member_module import build
from firstguess.modules.gradient_passes import Passes
from firstguess.modules.measure_gradients import measure_gradients
from firstguess.network.network import Network

pytestmark = pytest.mark.usefixtures("one_thread")


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
    from firstguess.modules.measure_gradients import _batches, _built, _member
    from firstguess.modules.members.sources import Setup, source

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
    assert g.word == "not finite"


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
    assert last.others.value == pytest.approx(math.log10(2), abs=1e-6)  # sure and wrong: 1² + (−1)²
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


def test_levels_off_a_line_have_no_factor():
    x = points(32, 20).numpy()
    even = measure_gradients("8 x [dense(weight_var=2) > relu] > dense", x, inits=3, width=100)
    uneven = measure_gradients(
        "4 x [dense(weight_var=2) > scale(0.05) > relu > dense(weight_var=2) > scale(20) > relu] > dense",
        x,
        inits=3,
        width=100,
    )
    assert "per layer" in str(even.growth)
    assert math.isnan(uneven.growth.value)
    assert "per layer" not in str(uneven.growth)
    assert uneven.word == "keep their size"  # of the two ends, which are alike


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
