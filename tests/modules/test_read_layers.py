"""Every kind of layer says what it is read from: descriptions come back, and a kind of one's own is one class."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, final

import pytest
import torch
from torch import Tensor, nn

import firstguess as fg
from firstguess.ensemble.member_module import build
from firstguess.network.activations import registry
from firstguess.network.layer import KINDS, Call, Layer, Mix, ReadContext, ReadResult, Symmetry, keeps_shape, register
from firstguess.network.layers import Dense
from firstguess.network.walk import every

DENSE, CONV = "dense(weight_var=2, bias_var=0.1, width=24)", "conv(weight_var=2, bias_var=0.1, width=8, padding=1)"
HEAD = "dense(weight_var=2, bias_var=0.1)"
FLAT = [
    DENSE,
    "layernorm",
    "rmsnorm",
    "batchnorm",
    "batchcenter",
    "groupnorm(each=6)",
    "maxpool(4)",
    "avgpool(4)",
    "scale(-0.7)",
    "shift(0.4)",
    "leaky_relu(0.3)",
    "elu(0.5)",
    f"residual(scale=0.5)[relu > {DENSE}]",
    f"residual[relu > {DENSE} > batchnorm | {DENSE} > layernorm]",
    *(name for name in registry.names() if name not in ("linear", "prelu")),
]
IMAGES = [
    "conv(weight_var=2, bias_var=0.1, width=8, kernel=5, stride=2, padding=1)",
    "layernorm",
    "rmsnorm",
    "batchnorm",
    "batchcenter",
    "instancenorm",
    "groupnorm(each=2)",
    "maxpool(4)",
    "maxpool(9, stride=2, padding=1)",
    "avgpool(4)",
    "relu",
    f"residual[relu > {CONV}]",
]
CASES = [
    *((f"{DENSE} > {one} > {HEAD}", (12,)) for one in FLAT),
    *((f"{CONV} > {one} > {HEAD}", (3, 8, 8)) for one in IMAGES),
]
# What a description says and no module does: it comes back as the second text, or (None) not at all.
OTHERWISE = {
    "groupnorm(4)": "groupnorm(each=6)",  # of 24 nodes: a module's groups are narrow or wide by their size
    "linear": "",  # nn.Identity is left out
    "prelu": "leaky_relu(slope=0.25)",  # the slope is no parameter in a member
    "dense(weight_var=2, bias_var=0.1, width=24, init=uniform)": DENSE,  # `init` is asked for, and normal
    "batchnorm(batch=16)": None,  # its loop over batches has no graph
}


def described(text: str, shape: tuple[int, ...]) -> tuple[fg.Network, fg.Structure]:
    net = fg.Network.parse(text, classes=3)
    return net, fg.read(build(net, shape, width=24), torch.ones(2, *shape), init=(2.0, 0.1))


@pytest.mark.parametrize(("text", "shape"), CASES)
def test_what_a_description_builds_is_read_back(text: str, shape: tuple[int, ...]) -> None:
    net, found = described(text, shape)
    assert found.network == net, str(found)


@pytest.mark.parametrize("text", OTHERWISE)
def test_what_comes_back_otherwise(text: str) -> None:
    _, found = described(f"{DENSE} > {text} > {HEAD}", (12,))
    if (other := OTHERWISE[text]) is None:
        assert found.network is None
        assert {part.path for part in found.unread} == {"1"}
    else:
        assert found.network == fg.Network.parse(" > ".join(x for x in (DENSE, other, HEAD) if x), classes=3)


def test_every_kind_is_among_them() -> None:
    layers = [layer for text, _ in CASES for layer in every(fg.Network.parse(text).layers)]
    tokens = {kind for kind, cls in KINDS.items() if Mix.TOKENS in cls.mixes}
    unread = {"gated"}  # these are not read from models yet
    assert {layer.kind for layer in layers} == set(KINDS) - tokens - unread


# --- kinds of one's own -----------------------------------------------------------------------------------------------


class Halves(nn.Module):
    """x/2."""

    def forward(self, x: Tensor) -> Tensor:
        return x / 2 if x.sum() > 0 else 0.5 * x  # control flow: nothing that could be traced


class Otherwise(Halves):
    def forward(self, x: Tensor) -> Tensor:
        return x.sort().values


class Plain(nn.Module):
    """A dense layer that is no nn.Linear."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(units, inputs))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T


@pytest.fixture
def one_s_own() -> Iterator[Callable[[type[Layer]], type[Layer]]]:
    """Registers a kind, and takes it out again."""
    before = dict(KINDS)
    yield register
    KINDS.clear()
    KINDS.update(before)


@final
@dataclass(frozen=True)
class Half(Layer):
    kind: ClassVar[str] = "half"
    weighted = False
    mixes = Mix.NOTHING
    symmetry = Symmetry.LINEAR
    breaks_gaussianity = False
    shape = keeps_shape
    modules = (Halves,)
    calls = ("torch.cos", "Tensor.cosh")

    @classmethod
    def from_module(cls, module: Any, context: ReadContext) -> ReadResult:
        return ReadResult((cls(),), notes=(f"{context.path} is a {context.claim}",))

    @classmethod
    def from_call(cls, call: Call, context: ReadContext) -> ReadResult:
        return ReadResult((cls(),), notes=(f"called by {context.claim}",))


@final
@dataclass(frozen=True)
class Weights(Layer):
    kind: ClassVar[str] = "weights"
    weighted = True
    mixes = Mix.NOTHING
    symmetry = Symmetry.WEIGHTS
    breaks_gaussianity = False
    weight_var: float
    units: int
    shape = keeps_shape
    modules = (Plain,)

    @classmethod
    def from_module(cls, module: Any, context: ReadContext) -> ReadResult:
        return ReadResult(
            (cls(context.weights.weight_var, context.weights.units),), widths=(module.weight.shape[1], 24)
        )


@final
@dataclass(frozen=True)
class Silent(Layer):
    kind: ClassVar[str] = "silent"
    weighted = False
    mixes = Mix.NOTHING
    symmetry = Symmetry.NONE
    breaks_gaussianity = True
    shape = keeps_shape
    modules = (Halves,)
    calls = ("torch.cos",)


def around(*inside: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(12, 24), *inside, nn.Linear(24, 3))


class Calls(nn.Module):
    def __init__(self, how: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.last, self.how = nn.Linear(12, 24), nn.Linear(24, 3), how

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.how(self.first(x)))


def test_a_kind_of_one_s_own_is_read(one_s_own: Callable[[type[Layer]], type[Layer]]) -> None:
    x = torch.randn(4, 12)
    assert fg.read(around(Halves()), x).network is None
    one_s_own(Half)
    found = fg.read(around(nn.ReLU(), Halves()), x)
    assert found.network is not None
    assert [layer.kind for layer in found.network.layers] == ["dense", "activation", "half", "dense"]
    assert "2 is a Halves" in found.notes
    assert "1  Halves  half" in str(fg.read(around(Halves())))  # without an example, too
    for how, name in (
        (torch.cos, "torch.cos"),
        (lambda x: x.cosh(), "Tensor.cosh"),
        (lambda x: x.cosh_(), "Tensor.cosh"),
    ):
        found = fg.read(Calls(how), x)
        assert found.network is not None
        assert found.network.layers[1] == Half()
        assert f"called by {name}" in found.notes


def test_weights_of_one_s_own_are_drawn(one_s_own: Callable[[type[Layer]], type[Layer]]) -> None:
    one_s_own(Weights)
    found = fg.read(lambda: around(nn.Tanh(), Plain(24, 24)), torch.randn(4, 12))
    assert found.network is not None
    layer = found.network.layers[2]
    assert isinstance(layer, Weights)
    assert layer.units == 24
    part = found.parts[2].variances
    assert part is not None
    assert part.weight_var == layer.weight_var  # no rule has it
    # σw² = 24, of at least 16·24² weights: the relative standard error of a mean square is √(2/N)
    assert abs(layer.weight_var / 24.0 - 1.0) < 5.0 * (2.0 / (16 * 24**2)) ** 0.5
    shared = Plain(24, 24)
    (again,) = fg.read(around(shared, shared), torch.randn(4, 12)).unread
    assert (again.path, again.why) == ("1", "is called more than once; a description has new weights in every layer")


@pytest.mark.parametrize("model", [around(Halves()), Calls(torch.cos)], ids=["module", "call"])
def test_a_kind_that_does_not_say_how_is_not_read(
    one_s_own: Callable[[type[Layer]], type[Layer]], model: nn.Module
) -> None:
    one_s_own(Silent)
    found = fg.read(model, torch.randn(4, 12))
    (unread,) = found.unread
    assert found.network is None
    assert unread.path == ("1" if isinstance(model, nn.Sequential) else "")
    assert unread.why.startswith("silent does not say how it is read from a ")


def test_a_forward_of_its_own_is_not_taken_for_the_class(one_s_own: Callable[[type[Layer]], type[Layer]]) -> None:
    one_s_own(Half)
    (unread,) = fg.read(around(Otherwise()), torch.randn(4, 12)).unread
    assert unread.path == "1"
    module = Halves()
    module.forward = lambda x: x.sort().values  # type: ignore[method-assign]
    assert fg.read(around(module), torch.randn(4, 12)).network is None


def test_a_module_has_one_reader(one_s_own: Callable[[type[Layer]], type[Layer]]) -> None:
    one_s_own(Half)
    with pytest.raises(TypeError, match=r"Silent: .*Halves.* is read as half already"):
        one_s_own(Silent)
    assert "silent" not in KINDS


def test_and_they_are_gone_afterwards() -> None:
    assert KINDS["dense"] is Dense
    assert not {"half", "weights", "silent"} & set(KINDS)
    assert fg.read(around(Halves()), torch.randn(4, 12)).network is None
