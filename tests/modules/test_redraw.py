"""Re-drawing: every module's own initializers, rules, ties, parametrizations; and what nobody draws is told."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import firstguess as fg
from firstguess.base.errors import InvalidInput
from firstguess.data.streams import IsolatedRandomness
from firstguess.modules.members.initializers import rule
from firstguess.modules.members.redraw import Redraw


def drawn(model: nn.Module, seed: int, init=None) -> dict[str, torch.Tensor]:
    redraw = Redraw(model, init)
    with IsolatedRandomness(seed):
        redraw.draw()
    return {name: value.clone() for name, value in model.state_dict().items()}


def left(model: nn.Module, init=None) -> list[str]:
    return [f.layer for f in Redraw(model, init).findings if f.kind == "not redrawn"]


def test_torch_modules_leave_nothing() -> None:
    zoo = nn.ModuleList([
        nn.Linear(3, 4), nn.Conv2d(2, 3, 3), nn.ConvTranspose1d(2, 3, 3), nn.Bilinear(2, 3, 4), nn.Embedding(5, 3),
        nn.EmbeddingBag(5, 3), nn.BatchNorm2d(3), nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.RMSNorm(4), nn.PReLU(),
        nn.InstanceNorm2d(3, affine=True), nn.LSTM(3, 4, proj_size=2), nn.GRUCell(3, 4),
        nn.MultiheadAttention(4, 2, kdim=3, vdim=5), nn.Transformer(8, 2, 1, 1, 16, batch_first=True),
    ])  # fmt: skip
    assert left(zoo) == []
    one, two, again = drawn(zoo, 1), drawn(zoo, 2), drawn(zoo, 1)
    assert all(torch.equal(one[name], again[name]) for name in one)
    for name, value in one.items():
        if value.ndim > 1:
            assert not torch.equal(value, two[name]), name


def test_constants_are_not_said_to_be_left() -> None:
    """A LayerScale or a gain is the same in every initialization because it is meant to be; other values are told."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.gain = nn.Parameter(1e-5 * torch.ones(4)), nn.Parameter(torch.tensor(2.0))
            self.table = nn.Parameter(torch.arange(4.0))

    assert left(Scaled()) == ["table"]
    assert left(nn.Sequential(nn.Linear(4, 4), Scaled())) == ["1.table"]


def test_law_of_torch_defaults_is_kept() -> None:
    """Kaiming uniform with a = √5 is U(−1/√fan_in, 1/√fan_in): mean square 1/(3·fan_in), within 6 standard errors."""
    weight = drawn(nn.Linear(100, 200), 3)["weight"]
    assert abs(weight.square().mean() * 300 - 1) < 6 * math.sqrt(0.8 / weight.numel())
    assert float(weight.abs().max()) <= 0.1


@pytest.mark.parametrize(("init", "scale"), [("kaiming_normal", 2.0), ("kaiming_uniform", 2.0), ((1.5, 0.0), 1.5)])
def test_rules_set_the_variance(init, scale: float) -> None:
    """Weights of every kind have variance scale/fan_in: within 6 standard errors of a Gaussian (1 in 5e8 each)."""
    modules: list[tuple[nn.Module, str, int]] = [
        (nn.Linear(50, 80), "weight", 50),
        (nn.Conv2d(16, 32, 3, groups=2), "weight", 72),
        (nn.MultiheadAttention(48, 2), "in_proj_weight", 48),
        (nn.GRU(30, 40), "weight_hh_l0", 40),
    ]
    for module, name, fan_in in modules:
        weight = drawn(module, 5, init)[name]
        assert abs(weight.square().mean() * fan_in / scale - 1) < 6 * math.sqrt(2 / weight.numel())
        assert left(module, init) == []
        assert all(not value.any() for key, value in module.state_dict().items() if "bias" in key)


def test_biases_xavier_and_orthogonal() -> None:
    bias = drawn(nn.Linear(3, 4000), 1, (1.0, 0.25))["bias"]
    assert abs(bias.square().mean() / 0.25 - 1) < 6 * math.sqrt(2 / 4000)
    weight = drawn(nn.Linear(60, 40), 1, "xavier_normal")["weight"]
    assert abs(weight.square().mean() * 50 - 1) < 6 * math.sqrt(2 / weight.numel())
    q = drawn(nn.Linear(60, 40, dtype=torch.bfloat16), 1, "orthogonal")["weight"].float()
    torch.testing.assert_close(q @ q.T, torch.eye(40), atol=0.02, rtol=0)


def test_transposed_convolutions_use_the_inputs_that_reach_an_output() -> None:
    module = nn.ConvTranspose2d(64, 3, 4, stride=2)
    weight = drawn(module, 2, (1.0, 0.0))["weight"]
    assert abs(weight.square().mean() * 64 * 4 - 1) < 6 * math.sqrt(2 / weight.numel())


def test_functions_and_what_they_do_not_reach() -> None:
    model = nn.Sequential(nn.Linear(5, 6), nn.LayerNorm(6), nn.Linear(6, 2))

    def constant(module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            nn.init.constant_(module.weight, 0.5)

    found = drawn(model, 1, constant)
    assert (found["0.weight"] == 0.5).all()
    assert found["0.bias"].any()  # by its own initializer
    with pytest.raises(ZeroDivisionError):
        Redraw(model, lambda module: 1 / 0)
    for bad in ("he", (1,), (1, -1), (True, 0), 3):
        with pytest.raises(InvalidInput):
            rule(bad)  # type: ignore[arg-type]


def test_ties_survive_and_are_drawn_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(30, 20), nn.Linear(20, 30, bias=False)
            self.head.weight = self.embed.weight

    model = Tied()
    redraw = Redraw(model)
    redraw.draw()
    assert model.head.weight is model.embed.weight
    assert len(redraw.calls) == 1


def test_parents_and_owners_have_the_last_word() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.Linear(4, 4)
            self.gain = nn.Parameter(torch.ones(4))
            self.reset_parameters()

        def reset_parameters(self) -> None:
            nn.init.zeros_(self.dense.bias)
            self.gain.data.fill_(3.0)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block, self.head = Block(), nn.Linear(4, 2)
            self.apply(self._init_weights)

        def _init_weights(self, module: nn.Module) -> None:
            if isinstance(module, nn.Linear):
                nn.init.ones_(module.weight)
                module.bias.data *= 2.0

    model = Net()
    redraw = Redraw(model)
    assert not redraw.findings
    found = drawn(model, 1)
    assert (found["block.dense.weight"] == 1).all()
    assert not found["block.dense.bias"].any()
    assert float(found["head.bias"].abs().max()) <= 1.0  # twice U(−½, ½)
    assert (found["block.gain"] == 3).all()
    again = drawn(model, 1)
    assert all(torch.equal(found[name], again[name]) for name in found)  # twice the bias, not four times


def test_parameters_that_are_only_scaled_stay_what_they_were() -> None:
    class Scales(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def reset_parameters(self) -> None:
            self.weight.data *= 0.5

    model = Scales()
    assert left(model) == ["weight"]
    assert (drawn(model, 1)["weight"] == drawn(model, 2)["weight"] * 2).all()  # each Redraw starts from the last
    redraw = Redraw(model)
    redraw.draw()
    once = model.weight.clone()
    redraw.draw()
    assert torch.equal(once, model.weight)


def test_initializers_that_fail_or_need_arguments() -> None:
    class Fails(nn.Linear):
        ready = False

        def reset_parameters(self) -> None:
            if self.ready:
                raise FileNotFoundError("weights.pt")
            super().reset_parameters()

    model = Fails(3, 2)
    model.ready = True
    assert {f.kind for f in Redraw(model).findings} == {"initializer failed", "not redrawn"}

    class Needs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def reset_parameters(self, std: float) -> None:
            raise AssertionError

    assert left(Needs()) == ["weight"]


@pytest.mark.parametrize("name", ["weight_norm", "orthogonal", "spectral_norm"])
@pytest.mark.parametrize("init", [None, (1.0, 0.0)])
def test_parametrizations(name: str, init) -> None:
    model = nn.Sequential(getattr(parametrizations, name)(nn.Linear(8, 8)))
    weights: list[torch.Tensor] = []
    for seed in (1, 2, 1):
        drawn(model, seed, init)
        weights.append(model[0].weight.detach().clone())
    assert left(model, init) == []
    assert not torch.allclose(weights[0], weights[1])
    if name != "spectral_norm":  # whose power iteration resumes from where it was
        torch.testing.assert_close(weights[0], weights[2])


def test_weight_norm_keeps_the_law_of_the_plain_weight() -> None:
    model = parametrizations.weight_norm(nn.Linear(100, 200))
    drawn(model, 3)
    assert abs(model.weight.square().mean() * 300 - 1) < 6 * math.sqrt(0.8 / model.weight.numel())


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("norm", [nn.utils.weight_norm, nn.utils.spectral_norm])
@pytest.mark.parametrize("forward_first", [False, True])
def test_norms_by_hooks(norm, forward_first: bool) -> None:
    """Weights are distributed as the plain module's, those of a spectral norm the norm 1; the instance stays."""
    model = nn.Sequential(norm(nn.Linear(64, 80)), nn.ReLU(), nn.Linear(80, 4))
    x = torch.randn(100, 64)
    if forward_first:
        model(x)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    measured = fg.measure(model, x, inits=4)
    assert measured.findings == ()
    assert len({tuple(row) for row in measured.guesses.fractions}) > 1
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    redraw = Redraw(model.eval())
    weights: list[torch.Tensor] = []
    for seed in (1, 2, 1):
        with IsolatedRandomness(seed):
            redraw.draw()
        with torch.inference_mode():
            model(x)
        weights.append(model[0].weight)
    assert torch.equal(weights[0], weights[2])
    assert not torch.allclose(weights[0], weights[1])
    if norm is nn.utils.weight_norm:
        assert abs(weights[0].square().mean() * 192 - 1) < 6 * math.sqrt(0.8 / weights[0].numel())
    else:
        assert float(torch.linalg.matrix_norm(weights[0], 2)) == pytest.approx(1.0, rel=0.05)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_rules_and_own_values_under_norms_by_hooks() -> None:
    weight = drawn(nn.utils.weight_norm(nn.Linear(60, 80)), 1, (2.0, 0.0))["weight_v"]
    assert abs(weight.square().mean() * 30 - 1) < 6 * math.sqrt(2 / weight.numel())
    dense = nn.Linear(60, 50)
    nn.init.kaiming_normal_(dense.weight)
    model = nn.utils.spectral_norm(dense).eval()
    assert [f.layer for f in Redraw(model).findings if f.kind == "other scale"] == ["weight_orig"]
    drawn(model, 1)
    model(torch.ones(1, 60))
    assert float(torch.linalg.matrix_norm(model.weight.detach(), 2)) == pytest.approx(1.0, rel=0.05)


def test_models_without_values() -> None:
    with pytest.raises(InvalidInput, match=r"meta device.*to_empty"):
        fg.measure(nn.Sequential(nn.Linear(8, 3, device="meta")), torch.randn(10, 8), inits=2)


class _Remembers(nn.Module):
    """Adds 100 to the first class from the second call on: what a spiking neuron's potential does, exaggerated."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.layer, self.how = nn.Linear(6, 3), how
        self.seen: torch.Tensor | None = None
        if how == "buffer":
            del self.seen
            self.register_buffer("seen", torch.zeros(0), persistent=False)
        if how == "in place":
            self.seen = torch.zeros(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.layer(x)
        out = out + self.seen if self.seen is not None and len(self.seen) else out
        if self.how == "in place":
            assert self.seen is not None
            self.seen += torch.tensor([100.0, 0.0, 0.0])
        else:
            self.seen = torch.tensor([100.0, 0.0, 0.0])
        return out


@pytest.mark.parametrize("how", ["buffer", "attribute", "in place"])
def test_what_a_call_leaves_in_the_model_is_not_passed_on(how: str) -> None:
    x = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
    model = _Remembers(how)
    m = fg.measure(model, x, inits=6, seed=1)
    assert float(m.guesses.fractions[:, 0].max()) < 1.0
    assert model.seen is None or not bool(model.seen.any())
