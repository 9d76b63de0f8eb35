"""A record is all there is to say of an activation: its torch names mean its function, and a new one is one record."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import firstguess as fg
from firstguess.base.gaussian import Feature, Moments
from firstguess.ensemble.engine import DescriptionEngine
from firstguess.ensemble.member_module import build
from firstguess.modules.read.read import read
from firstguess.network.activations import registry
from firstguess.network.activations.kernels import kernel_map
from firstguess.network.activations.record import Activation, Kink, Piecewise, TorchNames
from firstguess.network.activations.tensors import by_call, by_module, elementwise, module_of, resolve

X = torch.linspace(-8.0, 8.0, 1001, dtype=torch.float64)
NAMES = registry.names()  # at import: other tests may register their own


def same(got: Tensor, phi: Activation) -> None:
    # torch's elementwise functions are good to a few units in the last place of the largest part
    np.testing.assert_allclose(got.numpy(), phi.offset + phi.rise(X.numpy()), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("name", [*NAMES, "leaky_relu(0.3)", "prelu(-0.2)", "elu(0.5)"])
def test_torch_names_mean_the_function(name: str) -> None:
    phi = fg.Network.parse(f"dense > {name} > dense").layers[1].phi
    assert phi.torch is not None
    in_place = X.clone()
    got = elementwise(phi)(in_place)
    assert got.data_ptr() == in_place.data_ptr()
    same(got, phi)
    same(elementwise(phi, 0.25)(X.clone()) + 0.25, phi)
    same(module_of(phi)(X.clone()), phi)
    params = dict(phi.params)
    for one in (phi.torch, *phi.torch.also):
        keywords = dict(one.fixed) | {theirs: params[ours] for theirs, ours in one.arguments if ours in params}
        for call in one.calls:
            fn = getattr(Tensor, call[7:]) if call.startswith("Tensor.") else resolve(call)
            same(fn(X.clone(), **keywords), phi)


def test_what_torch_spells_is_read_back() -> None:
    for kind, spelling in by_module().items():
        module = kind()
        phi = spelling.meaning(lambda _, key, default, module=module: getattr(module, key, default))
        assert isinstance(phi, Activation)
        same(module(X.clone()), phi)
    for target, spelling in by_call().items():
        phi = spelling.meaning(lambda _, key, default: default)
        assert isinstance(phi, Activation)
        same((getattr(Tensor, target) if isinstance(target, str) else target)(X.clone()), phi)


def test_variants_that_mean_something_else() -> None:
    def means(module: nn.Module) -> str:
        found = by_module()[type(module)].meaning(lambda _, key, default: getattr(module, key, default))
        return str(found)

    assert means(nn.GELU()) == "gelu"
    assert means(nn.GELU(approximate="tanh")) == "gelu_tanh"
    assert means(nn.Hardtanh(0.0, 6.0)) == "relu6"
    assert means(nn.Hardtanh(-2.0, 1.0)) == "clips to [-2, 1]; the description's hardtanh to [-1, 1]"
    assert means(nn.Softplus(beta=2.0)) == "beta = 2; the description's softplus has 1"
    assert means(nn.LeakyReLU(0.3)) == "leaky_relu(slope=0.3)"
    assert means(nn.ELU(2.0)) == "elu(alpha=2)"
    assert nn.Identity not in by_module()  # nothing at all, rather than a linear activation
    assert nn.PReLU not in by_module()  # its slope is a weight


# --- a new one --------------------------------------------------------------------------------------------------------


def cosine_moments(between: float, spread: float) -> Moments:
    """E cos u cos v = e^{−q} cosh r; the mean is that of cos − 1."""
    q = between + spread
    scale = math.exp(-q)
    return Moments(
        math.exp(-0.5 * q) - 1.0,
        scale * (math.cosh(between) - 1.0),
        scale * (math.cosh(q) - math.cosh(between)),
    )


def cosine_kernel(k: np.ndarray, qa: np.ndarray, qb: np.ndarray, slope: bool) -> tuple[np.ndarray, np.ndarray | None]:
    scale = np.exp(-0.5 * (qa + qb))
    return scale * np.cosh(k), scale * np.sinh(k) if slope else None


COSINE = Activation(
    "test_cosine",
    rise=lambda x: np.cos(x) - 1.0,
    derivative=lambda x: -np.sin(x),
    offset=1.0,
    near=(0.0, 0.0),
    closed=cosine_moments,
    kernel=cosine_kernel,
    torch=TorchNames("torch.cos_", calls=("torch.cos", "Tensor.cos")),
)
HARDSIGMOID = Activation(
    "test_hardsigmoid",
    rise=lambda x: np.clip(x, -3.0, 3.0) / 6.0,
    derivative=lambda x: np.where(np.abs(x) < 3.0, 1.0 / 6.0, 0.0),
    offset=0.5,
    features=(Feature(-3.0, 0.0), Feature(3.0, 0.0)),
    near=(1.0 / 6.0, 1.0 / 6.0),
    nondecreasing=True,
    pieces=Piecewise(
        (0.5, 1.0 / 6.0, 0.0),
        (Kink(1.0, 3.0, (0.0, -1.0 / 6.0, 0.0)), Kink(-1.0, 3.0, (0.0, 1.0 / 6.0, 0.0))),
    ),
    torch=TorchNames("aten.hardsigmoid_", "Hardsigmoid", ("F.hardsigmoid",)),
)


def softshrink(threshold: float = 0.5) -> Activation:
    """Nothing but the function, a parameter and names: moments and kernel come by quadrature."""
    return Activation(
        "test_softshrink",
        (("threshold", threshold),),
        odd=True,
        rise=lambda x: np.sign(x) * np.maximum(np.abs(x) - threshold, 0.0),
        derivative=lambda x: np.where(np.abs(x) > threshold, 1.0, 0.0),
        features=(Feature(-threshold, 0.0), Feature(threshold, 0.0)),
        near=(0.0, 0.0),
        far=(1.0, 1.0),
        torch=TorchNames(module="Softshrink", calls=("F.softshrink",), arguments=(("lambd", "threshold"),)),
        text_argument="threshold",
    )


class Ramp(nn.Module):
    """A user's class: torch has no such function, and its parameter has a name of its own."""

    def __init__(self, how_steep: float = 1.0) -> None:
        super().__init__()
        self.how_steep = how_steep

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.how_steep * x)


def ramp(beta: float = 1.0) -> Activation:
    """x·σ(βx), which torch has for β = 1 only."""

    def sigmoid(x: np.ndarray) -> np.ndarray:
        return 0.5 * (1.0 + np.tanh(0.5 * beta * x))

    return Activation(
        "test_ramp",
        (("beta", beta),),
        rise=lambda x: x * sigmoid(x),
        derivative=lambda x: sigmoid(x) * (1.0 + beta * x * (1.0 - sigmoid(x))),
        features=(Feature(0.0, math.pi / beta),),
        near=(0.5, 0.5),
        far=(0.0, 1.0),
        torch=TorchNames(module=Ramp, arguments=(("how_steep", "beta"),)),
        text_argument="beta",
    )


@pytest.mark.usefixtures("registered", "one_thread")
def test_an_activation_of_a_users_class_whose_parameter_has_another_name() -> None:
    x = torch.randn(30, 10, generator=torch.Generator().manual_seed(3))
    model = nn.Sequential(nn.Linear(10, 20), Ramp(1.7), nn.Linear(20, 3))
    found = read(model, x).network
    assert found is not None
    assert str(found.layers[1].phi) == "test_ramp(beta=1.7)"
    built = build(found, 10, width=20)
    ramps = [one for one in built.modules() if isinstance(one, Ramp)]
    assert [one.how_steep for one in ramps] == [1.7]
    silu = fg.predict("dense > test_ramp(1) > dense").gamma
    assert silu == pytest.approx(fg.predict("dense > silu > dense").gamma, rel=1e-9)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_TABLE", dict(registry._TABLE))
    for one in (COSINE, HARDSIGMOID, softshrink, ramp):
        registry.register(one)


class Calls(nn.Module):
    """The same activation as a function."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name, self.inner, self.outer = name, nn.Linear(10, 20), nn.Linear(20, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x)
        if self.name == "test_cosine":
            return self.outer(x.cos_())
        return self.outer(F.hardsigmoid(x) if self.name == "test_hardsigmoid" else F.softshrink(x, 0.75))


@pytest.mark.usefixtures("registered", "one_thread")
@pytest.mark.parametrize("text", ["test_cosine", "test_hardsigmoid", "test_softshrink(threshold=0.75)"])
def test_an_activation_is_one_record(text: str) -> None:
    name = text.partition("(")[0]
    assert name in registry.names()
    net = fg.Network.parse(f"dense(weight_var=2) > {text.replace('threshold=', '')} > dense", classes=3)
    assert str(net) == f"dense(weight_var=2) > {text} > dense"
    phi = net.layers[1].phi

    # closed form: moments against a plain sum over a grid, of pairs with the correlation 0.4
    z = np.linspace(-9.0, 9.0, 3001)
    weights = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi) * (z[1] - z[0])
    first, second = phi(math.sqrt(2.0) * z), phi(math.sqrt(2.0) * (0.4 * z[:, None] + math.sqrt(0.84) * z))
    mean, square, both = weights @ first, weights @ first**2, (weights * first) @ (second @ weights)
    m = phi.moments(0.8, 1.2)
    assert m.mean == pytest.approx(mean, abs=1e-5)
    assert m.between == pytest.approx(both - mean**2, abs=1e-5)
    assert m.spread == pytest.approx(square - both, abs=1e-5)
    assert fg.causes_bias(phi) == (fg.predict(net).gamma[-1] > 0.0) == (name != "test_softshrink")

    # kernel: the same numbers for points of one size, and a whole reading
    q = np.array([[2.0]])
    k, slopes = kernel_map(phi, q)(0.4 * q, q, q, True)
    assert k[0, 0] == pytest.approx(m.mean**2 + m.between, rel=1e-8)
    assert slopes is not None
    h = 1e-4
    up, down = phi.moments(0.8 + h, 1.2 - h), phi.moments(0.8 - h, 1.2 + h)
    assert slopes[0, 0] == pytest.approx((up.between - down.between) / (2.0 * h), rel=1e-6)
    data = np.random.default_rng(3).standard_normal((40, 10)).astype(np.float32)
    one_size = fg.Network.parse(f"dense > rmsnorm > {text} > dense")  # kinks away from 0 want it, unless in `pieces`
    assert math.isfinite(float(fg.predict(one_size, data=data).gamma[-1]))

    # ensemble: the engine and the plain module
    members = DescriptionEngine(net, data, width=20, reduce=False, seed=3).run(0, 2)
    for member in range(2):
        model = build(net, data, width=20, seed=3, member=member)
        guesses = model(torch.from_numpy(data)).argmax(1).numpy()
        np.testing.assert_allclose(members.fractions[member], np.bincount(guesses, minlength=3) / 40, atol=2 / 40)

    # reading: of the module that it is built with, and of a call
    for model in (build(net, 10, width=20), Calls(name)):
        found = read(model, torch.from_numpy(data)).network
        assert found is not None
        assert found.layers[1] == net.layers[1]


def test_and_it_is_gone_afterwards() -> None:
    assert not {"test_cosine", "test_hardsigmoid", "test_softshrink"} & set(registry.names())
    assert nn.Hardsigmoid not in by_module()
    assert "cos" not in by_call()
