"""What every layer promises to an ensemble: tensors and modules are what a plain forward does with the same weights,
or the layer is refused. In float64, so that only a wrong meaning differs; float32 is `tests/ensemble`'s business."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
import pytest
import torch
from simulated import Array, member
from torch import nn

import firstguess as fg
from firstguess.base.errors import FirstguessError, NotCovered
from firstguess.ensemble import engine as ensemble
from firstguess.ensemble.engine import DescriptionEngine
from firstguess.ensemble.member_module import build
from firstguess.ensemble.member_statistics import BETWEEN, MEAN, SPREAD
from firstguess.network.layer import KINDS, Layer, Mix, Symmetry, keeps_shape, register
from firstguess.network.network import Network
from firstguess.network.tensors import Local, Paths, Place, Weights
from firstguess.network.walk import every

if TYPE_CHECKING:
    from firstguess.network.shapes import Shape
    from firstguess.network.signal import Signal

# Before the last dense layer; every kind, more where an argument changes what it does.
STRETCHES = [
    "dense(weight_var=1.7, bias_var=0.3)",
    "dense(weight_var=2, init=uniform)",
    "dense(init=orthogonal, width=8)",
    "dense(weight_var=2, init=rademacher, bias_var=0.3)",
    "dense(init=laplace)",
    "dense(init=student(3))",
    "dense(init=student(1.5))",
    "conv(weight_var=2, bias_var=0.1, init=student(5))",
    "conv(init=orthogonal)",
    "conv(weight_var=1.7, bias_var=0.3)",
    "conv(kernel=2, stride=2, padding=1, width=8)",
    "relu",
    "gelu",
    "relu > centered(softplus)",
    "batchnorm",
    "batchnorm(batch=8)",
    "batchnorm(batch=7)",
    "batchnorm(batch=8, estimator=leave_one_out)",
    "batchcenter",
    "batchcenter(batch=7)",
    "relu > batchcenter > maxpool(4)",
    "instancenorm",
    "relu > instancenorm > avgpool(4)",
    "layernorm",
    "rmsnorm",
    "groupnorm(groups=2)",
    "dense > groupnorm(each=4)",
    "conv > groupnorm(each=4)",
    "groupnorm(each=1)",
    "relu > groupnorm(each=2) > maxpool(4)",
    "maxpool(4)",
    "maxpool(4, stride=1)",
    "maxpool(9, stride=2, padding=1)",
    "avgpool(4)",
    "scale(-0.7)",
    "shift(0.4)",
    "gated(silu)",
    "layernorm(eps=0.3)",
    "relu > rmsnorm(eps=0.3)",
    "residual(scale=0.5)[relu > dense(weight_var=2, bias_var=0.1)]",
    "residual[layernorm > tanh > conv(padding=1)]",
    "residual(scale=-2)[dense(width=8) > batchnorm | avgpool(2) > dense > shift(1)]",
    "residual[conv(padding=1) > maxpool(4) | residual[conv(padding=1) > batchnorm] > avgpool(4)]",
    *(
        f"{norm} > {phi} > {pool}"
        for norm in ("batchnorm", "batchnorm(batch=8)", "layernorm", "rmsnorm", "groupnorm(groups=2)")
        for phi, pool in (("relu", "maxpool(4)"), ("tanh", "avgpool(4)"))
    ),
    "relu > batchnorm > maxpool(4)",
    "maxpool(4) > gelu > layernorm",
    "avgpool(4) > batchnorm(batch=8) > abs",
]
# What cannot mean anything, in words of its refusal. All else must have a meaning.
REFUSED = {
    ("flat", "groupnorm(each=1)"): "groups of at least 2 nodes",
    ("flat", "instancenorm"): "images of at least 2 positions",
    ("flat", "relu > instancenorm > avgpool(4)"): "images of at least 2 positions",
    ("flat", "maxpool(4, stride=1)"): "where there are no images",
    ("flat", "maxpool(9, stride=2, padding=1)"): "where there are no images",
    ("images", "batchnorm(batch=8, estimator=leave_one_out)"): "the usual estimator for a BatchNorm of images",
    ("images", "residual(scale=0.5)[relu > dense(weight_var=2, bias_var=0.1)]"): "gives back the shape it gets",
    ("images", "residual(scale=-2)[dense(width=8) > batchnorm | avgpool(2) > dense > shift(1)]"): "a square number",
}
POINTS, WIDTH, MEMBERS = 24, 16, 3


def data(grid: str) -> np.ndarray:
    sizes = (12,) if grid == "flat" else (2, 6, 6)
    return 0.3 + np.random.default_rng(11).standard_normal((POINTS, *sizes), dtype=np.float32)


def network(grid: str, source: str) -> Network:
    first = "dense(weight_var=2, bias_var=0.1)" if grid == "flat" else "conv(weight_var=2, padding=1)"
    return Network.parse(f"{first} > {source} > dense", classes=3)


def weights_of(model: nn.Module) -> Iterator[tuple[Array, Array]]:
    """Weights and biases in the order of drawing."""
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            bias = np.zeros(len(module.weight)) if module.bias is None else module.bias.detach().double().numpy()
            yield module.weight.detach().double().numpy(), bias


def outputs(net: Network, x: np.ndarray, model: nn.Module) -> list[Array]:
    weights = weights_of(model)
    images = any(layer.kind == "conv" for layer in every(net.layers))
    now = x.astype(np.float64) if images else x.astype(np.float64).reshape(len(x), -1)
    found: list[Array] = []
    for layer in net.layers:
        now = member((layer,), now, weights)
        found.append(now)
    assert next(weights, None) is None
    return found


def statistics(values: Array) -> list[float]:
    flat = values.reshape(len(values), -1)
    mean, spread = flat.mean(0), float(flat.var(0, ddof=1).mean())
    return [float(mean.mean()), float(mean.var()) - spread / len(flat), spread]


def agree(net: Network, x: np.ndarray, *, seed: int = 4) -> None:
    """Tensors, modules and the plain forward, member by member and layer by layer."""
    engine = DescriptionEngine(net, x, width=WIDTH, seed=seed, reduce=False, dtype=torch.float64, chunk=8)
    members = engine.run(0, MEMBERS)
    assert not members.findings
    for i in range(MEMBERS):
        model = build(net, x, width=WIDTH, seed=seed, member=i).double()
        wanted = outputs(net, x, model)
        seen: list[torch.Tensor] = []
        with torch.no_grad():
            now = torch.from_numpy(x).double()
            for name, module in model.named_children():
                now = module(now)
                if not name.startswith("flatten"):
                    seen.append(now)
        assert len(seen) == len(wanted) == len(engine.layers)
        for k, (mine, module_output) in enumerate(zip(wanted, seen, strict=True)):
            size = math.sqrt(float(np.mean(mine**2)))
            np.testing.assert_allclose(module_output.numpy(), mine, rtol=0.0, atol=1e-9 * max(size, 1.0))
            got = members.stats[i, k, [MEAN, BETWEEN, SPREAD]]
            np.testing.assert_allclose(got, statistics(mine), rtol=0.0, atol=1e-9 * max(size, size**2, 1.0))
            assert engine.layers[k].nodes == mine[0].size
        guesses = np.bincount(wanted[-1].argmax(1), minlength=net.classes) / len(x)
        np.testing.assert_array_equal(members.fractions[i], guesses)


def test_every_kind_is_under_contract() -> None:
    kinds = {layer.kind for source in STRETCHES for layer in every(Network.parse(f"{source} > dense").layers)}
    tokens = {kind for kind, cls in KINDS.items() if Mix.TOKENS in cls.mixes}  # test_contract_tokens.py
    assert kinds == set(KINDS) - tokens


@pytest.mark.parametrize("grid", ["flat", "images"])
@pytest.mark.parametrize("source", STRETCHES)
def test_tensors_and_modules_are_what_a_plain_forward_does(source: str, grid: str) -> None:
    if grid == "flat" and "conv" in source:
        with pytest.raises(FirstguessError, match="images"):
            DescriptionEngine(network(grid, source), data(grid))
        return
    if (grid, source) in REFUSED:
        with pytest.raises(FirstguessError, match=REFUSED[grid, source]) as caught:
            DescriptionEngine(network(grid, source), data(grid), width=WIDTH)
        assert "layer " in caught.value.where
        assert caught.value.hint
        return
    agree(network(grid, source), data(grid))


@pytest.mark.parametrize(
    ("grid", "source"),
    [
        (grid, source)
        for grid in ("flat", "images")
        for source in STRETCHES
        if (grid, source) not in REFUSED and "dense" not in source and "conv" not in source
    ],
)
def test_layers_in_front_of_any_weights(grid: str, source: str) -> None:
    agree(Network.parse(f"{source} > {'dense' if grid == 'flat' else 'conv(kernel=1)'} > relu > dense"), data(grid))


@pytest.mark.parametrize(
    ("layer", "fan_in"),
    [
        ("dense(weight_var=1.7, bias_var=0.3, width=300)", 12),
        ("dense(weight_var=0.4, init=uniform, bias_var=2, width=300)", 12),
        ("dense(weight_var=1.7, init=orthogonal, width=300)", 12),
        ("conv(weight_var=1.7, bias_var=0.3, width=200)", 18),
    ],
)
def test_weights_have_the_variance_that_is_written(layer: str, fan_in: int) -> None:
    """Mean squares of N numbers with kurtosis ≤ 3 within 5.5·√(2/N): false alarm below 1e-7."""
    x = data("images" if layer.startswith("conv") else "flat")
    net = Network.parse(f"{layer} > dense")
    first = net.layers[0]
    drawn = [next(weights_of(build(net, x, seed=2, member=i))) for i in range(20)]
    for index, wanted in ((0, first.weight_var / fan_in), (1, first.bias_var)):  # type: ignore[attr-defined]
        numbers = np.concatenate([pair[index].ravel() for pair in drawn])
        assert abs(float(np.mean(numbers**2)) - wanted) <= 5.5 * math.sqrt(2 / numbers.size) * wanted


class Toy(Layer):
    """What the toys below do not want to repeat."""

    shape = keeps_shape


@pytest.fixture
def registered() -> Iterator[dict[str, Any]]:
    """Three layers of one class and one `@register` each; gone afterwards."""

    @register
    class Soft(Toy):
        """x / (1 + s·|x|)."""

        kind: ClassVar[str] = "soft"
        weighted = False
        mixes = Mix.NOTHING
        symmetry = Symmetry.ODD
        breaks_gaussianity = True
        strength: float = 1.0

        def tensors(self, place: Place) -> Local:
            return Local(lambda x, scratch: x.div_(torch.abs(x, out=scratch(x)).mul_(self.strength).add_(1.0)))

    @register
    class Gains(Toy):
        """A random factor for every node."""

        kind: ClassVar[str] = "gains"
        weighted = True
        mixes = Mix.NOTHING
        symmetry = Symmetry.WEIGHTS
        breaks_gaussianity = True

        def shape(self, before: Shape, units: int | None) -> Shape:
            return before

        def tensors(self, place: Place) -> Weights:
            def product(x: torch.Tensor, gains: torch.Tensor, bias: torch.Tensor | None, shared: bool) -> torch.Tensor:
                return (x.T if shared else x) * gains.unsqueeze(2)

            return Weights((place.before.nodes,), 1, weight_var=1.5, bias_var=0.0, product=product)

    @register
    class Silent(Toy):
        """A layer that only the closed form knows."""

        kind: ClassVar[str] = "silent"
        weighted = False
        mixes = Mix.NOTHING
        symmetry = Symmetry.ODD
        breaks_gaussianity = False

        def moments(self, signal: Signal) -> Signal:
            return signal

    kinds = {"soft": Soft, "gains": Gains, "silent": Silent}
    yield kinds
    for kind in kinds:
        del KINDS[kind]


def test_a_layer_of_your_own_passes_through_measure(registered: dict[str, Any]) -> None:
    x = data("flat")
    source = "dense(weight_var=2) > soft(2) > gains > relu > residual[soft > dense] > dense"
    m = fg.measure(source, x, inits=40, width=20, seed=3)
    assert [layer.name for layer in m.layers if layer.name in ("soft(strength=2)", "gains")] == [
        "soft(strength=2)",
        "gains",
    ]
    # the same, by hand, layer by layer and with the same draws
    engine = DescriptionEngine(Network.parse("soft(2) > gains > soft > dense"), x, seed=3, reduce=False, group=2)
    stats = engine.run(0, 3).stats
    for i in range(3):
        generator = torch.Generator().manual_seed(int(ensemble.member_seeds(3, i, i + 1)[0]))
        gains = torch.empty(12).normal_(0.0, math.sqrt(1.5), generator=generator).numpy()
        matrix = torch.empty(2, 12).normal_(0.0, math.sqrt(1 / 12), generator=generator).numpy()
        soft = x.astype(np.float64) / (1 + 2 * np.abs(x))
        after = soft * gains / (1 + np.abs(soft * gains))
        for k, wanted in enumerate((soft, soft * gains, after, after @ matrix.T)):
            np.testing.assert_allclose(stats[i, k, :3], statistics(wanted), atol=1e-6)


def test_a_layer_without_tensors_is_refused_by_name(
    registered: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def long_work(*_: object) -> None:
        raise AssertionError("refuse first")

    for name in ("triangular", "moments_of", "schedule"):
        monkeypatch.setattr(ensemble, name, long_work)
    for source, place in (
        ("dense > silent > dense", "layer 2 (silent)"),
        ("silent > dense", "layer 1 (silent)"),
        ("dense > residual[silent > dense] > dense", "layer 2 (residual[silent > dense]), branch layer 1 (silent)"),
    ):
        with pytest.raises(NotCovered) as caught:
            fg.measure(source, np.ones((5, 40), np.float32), inits=2)
        assert "a meaning on tensors of silent" in str(caught.value)
        assert caught.value.where == place
        assert caught.value.hint == "the closed form: fg.predict(net)"
    with pytest.raises(NotCovered, match="a torch module of soft") as caught:
        build(Network.parse("dense > soft > dense"), 4)
    assert caught.value.hint == "the ensemble reading: fg.measure(...)"


def test_paths_need_the_shapes_within() -> None:
    """A layer with paths that forgets `inside` is refused as well, and never taken for one without."""

    @final
    @dataclass(frozen=True)
    class Twice(Toy):
        kind: ClassVar[str] = "twice"
        weighted = True
        mixes = Mix.NOTHING
        symmetry = Symmetry.NONE
        breaks_gaussianity = False
        inner: tuple[Layer, ...] = ()

        @property
        def paths(self) -> tuple[tuple[Layer, ...], ...]:
            return (self.inner, ())

        def tensors(self, place: Place) -> Paths:
            return Paths()

    dense = Network.parse("dense").layers[0]
    with pytest.raises(NotCovered, match=r"sizes within its paths of twice, but got .*, at layer 1"):
        DescriptionEngine(Network((Twice((dense,)), dense)), data("flat"))
