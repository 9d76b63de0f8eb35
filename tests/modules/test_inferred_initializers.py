"""An instance whose constructor initializes parameters itself is drawn again as its class would, and says so."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch
from small_models import mlp, points
from torch import nn
from torch.nn.utils import parametrizations

import firstguess as fg
from firstguess.data.streams import IsolatedRandomness
from firstguess.ensemble.member_statistics import ASSUMED, FOLLOWED
from firstguess.modules.members.infer_initializer import ALPHA, ObservedWeights, _blanks
from firstguess.modules.members.redraw import Redraw
from firstguess.modules.members.weight_statistics import Numbers

pytestmark = pytest.mark.usefixtures("one_thread")

X = points(200, 64)
TOKENS = torch.randint(0, 50, (200, 12), generator=torch.Generator().manual_seed(0))


class Prior(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(64, 64), nn.Tanh()), nn.Linear(64, 2)
        with torch.no_grad():
            self.head.bias.copy_(torch.tensor([4.6, 0.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


class SmallPrior(nn.Sequential):
    """A bias of three times the default's bound, among four."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
        with torch.no_grad():
            self[2].bias[0] = 0.4


class ZeroRow(nn.Sequential):
    def __init__(self, gain: float = 1.0) -> None:
        super().__init__(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
        with torch.no_grad():
            self[2].weight.mul_(gain)[0] = 0.0
            self[2].bias.zero_()


class Started(nn.Sequential):
    """Dense layers that the constructor starts in its own way."""

    def __init__(self, start: Callable[[nn.Linear], object], depth: int = 3, act: type[nn.Module] = nn.Tanh) -> None:
        super().__init__(*[m for _ in range(depth) for m in (nn.Linear(64, 64), act())], nn.Linear(64, 10))
        for module in self:
            if isinstance(module, nn.Linear):
                start(module)


def zero_biases(m: nn.Linear) -> None:
    nn.init.zeros_(m.bias)


def xavier_uniform(m: nn.Linear) -> None:
    nn.init.xavier_uniform_(m.weight)
    nn.init.zeros_(m.bias)


def kaiming_normal(m: nn.Linear) -> None:
    nn.init.kaiming_normal_(m.weight, nonlinearity="relu")


def truncated(m: nn.Linear) -> None:
    nn.init.trunc_normal_(m.weight, std=0.02)
    nn.init.zeros_(m.bias)


def orthogonal(m: nn.Linear) -> None:
    nn.init.orthogonal_(m.weight, 1.5)


def off_centre(m: nn.Linear) -> None:
    nn.init.uniform_(m.weight, 0.0, 0.3)


class ZeroGamma(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))
        nn.init.zeros_(self[1].weight)


class Identity(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3))
        nn.init.eye_(self[0].weight)


class Tied(nn.Module):
    """One matrix of 50 words: `owner` has drawn it."""

    def __init__(self, owner: str, std: float = 0.0, first: str = "embed") -> None:
        super().__init__()
        if first == "embed":
            self.embed, self.out = nn.Embedding(50, 24), nn.Linear(24, 50, bias=False)
        else:
            self.out, self.embed = nn.Linear(24, 50, bias=False), nn.Embedding(50, 24)
        self.dense = nn.Linear(24, 24)
        if owner == "embed":
            self.out.weight = self.embed.weight
        else:
            self.embed.weight = self.out.weight
        if std:
            nn.init.normal_(self.embed.weight, 0, std)

    def forward(self, t: torch.Tensor) -> torch.Tensor:
        return self.out(torch.tanh(self.dense(self.embed(t).mean(1))))


CASES: dict[str, tuple[Callable[[], nn.Module], set[str]]] = {
    "prior": (Prior, {"kept values"}),
    "zero row": (ZeroRow, {"constants"}),
    "zero row, its own size": (lambda: ZeroRow(3.0), {"constants", "other scale"}),
    "zero biases": (lambda: Started(zero_biases), {"constants"}),
    "xavier uniform": (lambda: Started(xavier_uniform), {"constants", "own rule"}),
    "kaiming normal": (lambda: Started(kaiming_normal), {"other scale"}),
    "truncated": (lambda: Started(truncated), {"constants", "other scale"}),
    "orthogonal": (lambda: Started(orthogonal), {"orthogonal"}),
    "off centre": (lambda: Started(off_centre), {"other scale"}),
    "zero gamma": (ZeroGamma, {"constants"}),
    "identity": (Identity, {"constants"}),
    "tied, the embedding's": (lambda: Tied("embed"), {"tied"}),
    "tied, the head's": (lambda: Tied("out", first="out"), {"tied"}),
    "tied, its own size": (lambda: Tied("embed", 0.4), {"tied", "other scale"}),
    "tied, as the last draws": (lambda: Tied("out"), set()),
    "bfloat16": (lambda: Started(kaiming_normal).bfloat16(), {"other scale"}),
}


def drawn(redraw: Redraw, seed: int) -> dict[str, torch.Tensor]:
    with IsolatedRandomness(seed):
        redraw.draw()
    return {name: value.detach().clone() for name, value in redraw.model.named_parameters()}


@pytest.mark.parametrize("name", CASES)
def test_every_parameter_has_the_law_of_the_class(name: str) -> None:
    """Mean and mean square over 30 draws of each. Six standard errors of a normal law, of which the instance's own n
    entries have one: below 1e-6 for the 20 numbers of a case."""
    make, kinds = CASES[name]
    torch.manual_seed(1)
    redraw = Redraw(make())
    assert {f.kind for f in redraw.findings} == kinds
    ours = [drawn(redraw, seed) for seed in range(30)]
    theirs = [{k: v.detach() for k, v in make().named_parameters()} for _ in range(30)]
    for key in ours[0]:
        one, two = (torch.stack([draw[key] for draw in draws]).double() for draws in (ours, theirs))
        n = one[0].numel()
        size, error = float(two.square().mean()), 6 * math.sqrt(2 / n + 4 / (30 * n))
        assert abs(float(one.square().mean()) - size) <= error * size, key
        assert abs(float(one.mean() - two.mean())) <= error * math.sqrt(size), key
        varies = bool((two[0] != two[1]).any())
        assert bool((one[0] != one[1]).any()) == varies, key


@pytest.mark.parametrize(
    "name", ["prior", "small prior", "zero row", "zero biases", "xavier uniform", "tied, the embedding's"]
)
def test_instance_and_class_are_measured_alike(name: str) -> None:
    """Average largest fractions of 100 initializations each: within 5.5 standard errors (4e-8)."""
    make = SmallPrior if name == "small prior" else CASES[name][0]
    data = TOKENS if "tied" in name else X
    torch.manual_seed(2)
    one, two = fg.measure(make(), data, inits=100), fg.measure(make, data, inits=100, seed=1)
    a, b = (m.guesses.fractions.max(1) for m in (one, two))
    error = math.sqrt((a.var() + b.var()) / 100)
    assert abs(a.mean() - b.mean()) <= 5.5 * error + 1e-9


def test_the_gate_sees_what_the_constructor_set() -> None:
    with pytest.raises(fg.NotEven):
        fg.assert_even(Prior(), X)
    fg.assert_even(Started(zero_biases, depth=6), X)


def test_zero_heads_of_instances_are_zero_heads() -> None:
    for hidden in (24, 64):  # 240 and 640 weights
        model = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))
        nn.init.zeros_(model[2].weight)
        nn.init.zeros_(model[2].bias)
        found = fg.measure(model, X, inits=5)
        assert {f.kind for f in found.findings} == {"constants", "zero head"}
        assert math.isnan(found.layers[-1].gamma)


def test_ordinary_instances_are_drawn_as_ever() -> None:
    """Bit for bit what their modules' own methods draw, children before parents, from the member's generator."""
    zoo = nn.Sequential(
        nn.Linear(5, 7), nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)), nn.Embedding(9, 4, padding_idx=0),
        nn.LSTM(3, 4), nn.Linear(4, 1), nn.PReLU(), nn.LayerNorm(4),
    )  # fmt: skip
    redraw = Redraw(zoo)
    assert redraw.findings == ()
    other = copy.deepcopy(zoo)
    with IsolatedRandomness(3):
        for module in (other[0], other[1][0], other[1][1], *other[2:]):
            module.reset_parameters()
    ours = drawn(redraw, 3)
    for name, value in other.named_parameters():
        assert torch.equal(ours[name], value), name


def test_no_ordinary_instance_is_said_to_be_another() -> None:
    """60 models of small tensors, also after a loss of precision: the chance of any finding is 60 · 1e-6."""
    assert ALPHA <= 1e-6
    for seed in range(60):
        torch.manual_seed(seed)
        model = nn.ModuleList([
            nn.Linear(1, 1), nn.Linear(3, 2), nn.Linear(20, 10), nn.Conv1d(2, 3, 3), nn.Bilinear(2, 3, 2), nn.GRU(3, 2),
            nn.Embedding(5, 3, padding_idx=1), nn.BatchNorm1d(3), nn.RMSNorm(2), nn.MultiheadAttention(4, 2),
        ])  # fmt: skip
        kind = [torch.float32, torch.float64, torch.bfloat16, torch.float16][seed % 4]
        assert Redraw(model.to(kind).float()).findings == ()


def test_parametrized_modules() -> None:
    torch.manual_seed(0)
    plain = [parametrizations.weight_norm(nn.Linear(8, 8)), parametrizations.orthogonal(nn.Linear(8, 8))]
    assert Redraw(nn.ModuleList([*plain, parametrizations.spectral_norm(nn.Linear(8, 8))])).findings == ()
    dense = nn.Linear(60, 50)
    nn.init.kaiming_normal_(dense.weight)
    model = nn.Sequential(parametrizations.weight_norm(copy.deepcopy(dense)), parametrizations.spectral_norm(dense))
    size = float(model[0].weight.detach().square().mean())
    redraw = Redraw(model.eval())
    assert {f.kind for f in redraw.findings} == {"other scale", "cloned"}  # of the deep copy above
    drawn(redraw, 1)
    assert float(model[0].weight.detach().square().mean()) == pytest.approx(size, rel=12 * math.sqrt(2 / 3000))
    assert float(torch.linalg.matrix_norm(model[1].weight.detach(), 2)) == pytest.approx(1.0, rel=0.05)


def test_what_init_says_holds_and_the_rest_is_followed() -> None:
    redraw = Redraw(ZeroGamma(), (2.0, 0.0))
    assert {(f.kind, f.layer) for f in redraw.findings} == {("constants", "1.weight")}
    assert not Redraw(Prior(), (2.0, 0.0)).findings
    assert not drawn(Redraw(Prior(), (2.0, 0.0)), 1)["head.bias"].any()


def test_of_a_trained_model_only_what_training_does_not_give() -> None:
    model = Prior()
    nn.init.zeros_(model.body[0].bias)
    redraw = Redraw(model, trained=True)
    assert {(f.kind, f.layer) for f in redraw.findings} == {("constants", "body.0.bias"), ("other values", "head.bias")}
    found = drawn(redraw, 1)
    assert float(found["head.bias"].abs().max()) <= 1 / 8
    assert not found["body.0.bias"].any()


def test_nan_is_not_followed() -> None:
    model = mlp()
    with torch.no_grad():
        model[0].weight.fill_(math.nan)
        model[2].bias[0] = math.inf
    redraw = Redraw(model)
    assert [(f.kind, f.layer) for f in redraw.findings] == [("not finite", "0.weight")]
    assert "in 1 more" in redraw.findings[0].message
    assert all(bool(value.isfinite().all()) for value in drawn(redraw, 1).values())


@pytest.mark.parametrize("seed", range(8))
def test_one_bias_of_few_is_seen(seed: int) -> None:
    torch.manual_seed(seed)
    redraw = Redraw(SmallPrior())
    assert [(f.kind, f.layer) for f in redraw.findings] == [("kept values", "2.bias")]
    assert float(drawn(redraw, 1)["2.bias"][0]) == pytest.approx(0.4)


def test_zeros_of_a_part_stay_where_they_are() -> None:
    for kind in (torch.float32, torch.bfloat16):
        redraw = Redraw(ZeroRow().to(kind))
        assert ("constants", "2.weight") in {(f.kind, f.layer) for f in redraw.findings if "64 zeros" in f.message}
        weight = drawn(redraw, 1)["2.weight"]
        assert not weight[0].any()
        assert bool(weight[1:].any(1).all())
    padded = nn.Embedding(5000, 64, padding_idx=7)  # a row that few of the sampled entries lie in
    assert Redraw(padded).findings == ()
    assert Redraw(nn.Sequential(nn.Linear(1000, 1000)).half().float()).findings == ()


@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("inputs", [8, 32, 48, 200])
def test_gates_that_are_orthogonal_each(cell: Callable[[int, int], nn.Module], inputs: int) -> None:
    gates = 4 if cell is nn.LSTM else 3
    model = cell(inputs, 32)
    for name, value in model.named_parameters():
        if "weight" in name:
            for block in value.detach().chunk(gates):
                nn.init.orthogonal_(block, 1.5)
    redraw = Redraw(model)
    assert [f.kind for f in redraw.findings] == ["orthogonal"]
    assert f"gain 1.5 in each of {gates} blocks" in redraw.findings[0].message
    for name, value in drawn(redraw, 1).items():
        if "weight" in name:
            for block in value.chunk(gates):
                gram = block @ block.T if block.shape[0] <= block.shape[1] else block.T @ block
                torch.testing.assert_close(gram, 2.25 * torch.eye(min(block.shape)), atol=1e-4, rtol=0)


@pytest.mark.parametrize("shape", [(96, 32), (128, 32), (32, 96), (64, 64)])
def test_matrices_that_are_orthogonal_as_a_whole(shape: tuple[int, int]) -> None:
    model = nn.Linear(shape[1], shape[0])
    nn.init.orthogonal_(model.weight)
    redraw = Redraw(model)
    assert [f.kind for f in redraw.findings] == ["orthogonal"]
    assert "(gain 1)" in redraw.findings[0].message
    weight = drawn(redraw, 1)["weight"]
    gram = weight @ weight.T if shape[0] <= shape[1] else weight.T @ weight
    torch.testing.assert_close(gram, torch.eye(min(shape)), atol=1e-4, rtol=0)


def test_one_size_is_assumed_for_a_tensor_and_said() -> None:
    found = Redraw(Started(kaiming_normal)).findings
    assert "one size for the whole tensor" in found[0].message


def test_models_that_cannot_be_copied_come_back() -> None:
    model = Prior()
    model.lock = threading.Lock()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = fg.measure(model, X, inits=4)
    assert [f.layer for f in found.findings if f.kind == "kept values"] == ["head.bias"]
    assert np.allclose(found.guesses.fractions[:, 0], 1.0)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_lazy_layers_with_zero_biases() -> None:
    model = nn.Sequential(nn.LazyLinear(20), nn.ReLU(), nn.Linear(20, 3))
    nn.init.zeros_(model[2].bias)
    assert [(f.kind, f.layer) for f in fg.measure(model, X, inits=3).findings] == [("constants", "2.bias")]


def test_a_guess_has_no_probability_and_says_why() -> None:
    short = {"inits": 20, "seconds": 4.0, "advice": False}
    guessed = fg.diagnose(Started(kaiming_normal, depth=2, act=nn.ReLU), X, **short)
    assert math.isnan(guessed.verdict.probability)
    assert " %)" not in str(guessed).splitlines()[0]
    assert "such values as this instance has (other scale at" in guessed.verdict.why
    known = fg.diagnose(Started(zero_biases, depth=2), X, **short)
    assert known.verdict.name in ("even", "leaning")
    assert known.verdict.probability > 0.5
    assert "note: constants at 0.bias" in str(known)
    assert not FOLLOWED & ASSUMED
    for d in (guessed, known):
        words = [f.message for f in d.findings if f.kind in FOLLOWED | ASSUMED]
        assert words
        assert all("pass the class" in message and "lambda" not in message for message in words)


@pytest.mark.parametrize(("zeros", "known"), [(3, False), (4, True), (5, True)])
def test_four_exact_zeros_are_no_accident(zeros: int, known: bool) -> None:
    """Of 1000 float32 numbers: a draw has one with a chance of 5e-4, so three could be, and four could not."""
    value = torch.linspace(0.5, 1.5, 1000)
    value[:zeros] = 0.0
    found = _blanks(value)
    assert (found is not None) == known
    if found is not None:
        assert torch.equal(found, value == 0)


@pytest.mark.parametrize(("different", "discrete"), [(4, True), (5, False)])
def test_a_large_tensor_of_four_values_is_no_draw(different: int, discrete: bool) -> None:
    value = torch.arange(different).repeat(100).float().reshape(10, -1)
    assert ObservedWeights("weight", value, Numbers(1)).discrete == discrete
