"""Skewness and kurtosis of pre-activations by layer: against plain loops, on both engines; and what is flagged.

Random checks are 5 standard errors wide: a two-sided false-alarm rate of 6e-7 each.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import firstguess as fg
from firstguess.data import blob, collect
from firstguess.ensemble.engine import DescriptionEngine
from firstguess.ensemble.higher_moments import KURTOSIS, MEAN_FOURTH, MEAN_SQUARE, SKEW_SQUARE, LayerShape, layer_shapes
from firstguess.ensemble.measurement import Measurement
from firstguess.ensemble.seeds import member_seeds
from firstguess.modules.engine import ModuleEngine
from firstguess.modules.members.sources import source_of

Z = 5.0
TEXT = "dense(weight_var=2) > relu > dense(weight_var=2) > tanh > dense(weight_var=1, bias_var=0.5)"


def looped(u: np.ndarray) -> np.ndarray:
    """(points, nodes): one node at a time, by SciPy's estimators and the definitions."""
    n = len(u)
    skews, tails = [], []
    for column in u.T:
        if column.std() > 1e-6 * abs(column.mean()):
            skews.append(float(stats.skew(column)) ** 2 - 6 * (n - 2) / ((n + 1) * (n + 3)))
            tails.append(float(stats.kurtosis(column, bias=False)))
    means = [float(column.mean()) for column in u.T]
    row = np.full(4, np.nan)
    row[MEAN_SQUARE], row[MEAN_FOURTH] = np.mean([m**2 for m in means]), np.mean([m**4 for m in means])
    if tails:
        row[SKEW_SQUARE], row[KURTOSIS] = np.mean(skews), np.mean(tails)
    return row


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 8), nn.Tanh(), nn.Linear(8, 3))


def by_hand(engine: ModuleEngine, what: nn.Sequential, x: torch.Tensor, member: int, seed: int) -> list[np.ndarray]:
    """Outputs of every layer of a member, in float64."""
    source = source_of(what, collect(x), mode="train")
    with source.member(int(member_seeds(seed, member, member + 1)[0])) as drawn, torch.no_grad():
        values, h = [], x.double()
        for layer in drawn.double():
            h = layer(h)
            values.append(h.numpy())
    return values


@pytest.mark.parametrize("strategy", ["loop", "vmap"])
def test_modules_against_a_plain_loop(strategy: str) -> None:
    x = torch.randn(50, 6, generator=torch.Generator().manual_seed(1)) + 0.5
    engine = ModuleEngine(model(), collect(x, batch_size=16), seed=3, moments=4, strategy=strategy)
    members = engine.run(0, 3)
    assert members.shapes is not None
    for member in range(3):
        values = by_hand(engine, model(), x, member, 3)
        logits = (values[-1] - values[-1].mean(1, keepdims=True)) * math.sqrt(3 / 2)  # what arg-max sees
        for layer, u in {0: values[0], 2: values[2], 4: logits}.items():
            np.testing.assert_allclose(members.shapes[member, layer], looped(u), rtol=1e-3, atol=1e-4)
    assert np.isnan(members.shapes[:, [1, 3]]).all()  # no pre-activations
    assert engine.run(0, 1).shapes is not None
    assert ModuleEngine(model(), collect(x), seed=3).run(0, 1).shapes is None


class Masked(nn.Module):
    """Tokens, some of which are padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, inputs: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        h = self.embed(inputs).tanh() * attention_mask[..., None]
        return self.head(h.sum(1) / attention_mask.sum(1, keepdim=True))


@pytest.mark.parametrize("strategy", ["loop", "vmap"])
def test_padding_does_not_count(strategy: str) -> None:
    rng = torch.Generator().manual_seed(2)
    x, lengths = torch.randn(40, 3, 4, generator=rng), torch.arange(40) % 3 + 1
    mask = (torch.arange(3) < lengths[:, None]).long()
    engine = ModuleEngine(
        Masked(),
        collect([{"inputs": x[i : i + 10], "attention_mask": mask[i : i + 10]} for i in range(0, 40, 10)]),
        seed=1,
        moments=4,
        strategy=strategy,
    )
    found = engine.run(0, 1).shapes
    assert found is not None
    source = source_of(Masked(), collect({"inputs": x, "attention_mask": mask}), mode="train")
    with source.member(int(member_seeds(1, 0, 1)[0])) as drawn, torch.no_grad():
        u = drawn.embed(x).double().numpy()
    keep = mask.numpy().astype(bool)
    nodes = [looped(u[keep[:, t], t, k][:, None]) for t in range(3) for k in range(5)]
    np.testing.assert_allclose(found[0, 0], np.mean(nodes, axis=0), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("reduce", [True, False])
@pytest.mark.parametrize("chunk", [None, 17])
def test_descriptions_against_a_plain_loop(reduce: bool, chunk: int | None) -> None:
    x = np.random.default_rng(0).standard_normal((60, 12), dtype=np.float32) + 1
    net = fg.Network.parse(TEXT, classes=5)
    engine = DescriptionEngine(net, x, width=7, seed=2, moments=4, reduce=reduce, chunk=chunk)
    members = engine.run(0, 3)
    assert members.shapes is not None
    assert members.logits is not None
    for member, u in enumerate(members.logits.astype(float)):
        np.testing.assert_allclose(members.shapes[member, -1], looped(u), rtol=1e-3, atol=1e-4)
    plain = DescriptionEngine(net, x, width=7, seed=2, reduce=reduce, chunk=chunk).run(0, 3)
    np.testing.assert_array_equal(plain.stats, members.stats)  # asking for more changes nothing else
    assert plain.shapes is None


@pytest.mark.parametrize("size", [1e-9, 1e9])
def test_any_scale(size: float) -> None:
    """Fourth powers of 1e10, and of 1e-10, are not in float32."""
    x = np.random.default_rng(0).standard_normal((40, 6), dtype=np.float32)
    engine = DescriptionEngine(fg.Network.parse("dense", classes=4), x * np.float32(size), moments=4, reduce=False)
    members = engine.run(0, 1)
    assert members.shapes is not None
    assert members.logits is not None
    u = members.logits[0].astype(float)
    np.testing.assert_allclose(members.shapes[0, 0, :2], looped(u)[:2], rtol=1e-3, atol=1e-4)


def test_images_against_a_plain_loop() -> None:
    """Nodes are channels at positions; the first layer's moments are those of its convolution."""
    x = np.random.default_rng(0).standard_normal((30, 2, 5, 5), dtype=np.float32)
    engine = DescriptionEngine(
        fg.Network.parse("conv(width=3, kernel=3) > relu > dense", classes=3), x, seed=4, moments=4
    )
    members = engine.run(0, 2)
    found, logits = members.shapes, members.logits
    assert found is not None
    assert logits is not None
    for member in range(2):
        np.testing.assert_allclose(found[member, -1], looped(logits[member].astype(float)), rtol=1e-3, atol=1e-4)
    assert np.isfinite(found[:, 0]).all()
    assert np.isnan(found[:, 1]).all()


def test_gaussian_where_it_is() -> None:
    """The first layer on Gaussian data is Gaussian in both senses: exactly, at any width."""
    m = fg.measure("dense(weight_var=1, bias_var=1) > relu > dense", blob(300, 10), inits=200, width=20, moments=4)
    first = m.shapes[0]
    # The data are a sample too, common to all members: over directions, kurtosis averages to Mardia's (1970), of
    # standard deviation 3√(8/(n d (d+2))); an average of skewness² deviates no more than that of one direction, √2·6/n.
    assert abs(first.kurtosis) < Z * math.hypot(first.kurtosis_se, 3 * math.sqrt(8 / (300 * 10 * 12)))
    assert first.skewness**2 < Z * math.sqrt(2) * 6 / 300
    assert abs(first.center_kurtosis) < Z * first.center_kurtosis_se
    assert first.gaussian
    assert not [f for f in m.findings if f.kind == "not gaussian"]


def test_flagged_where_it_fails() -> None:
    """Two clusters far apart: every node of the first layer has two peaks, excess kurtosis −2 for equal halves."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((400, 20)) * 0.05 + np.where(np.arange(400) % 2, 1.0, -1.0)[:, None]
    m = fg.measure("dense > tanh > dense", x, inits=50, width=50, moments=4, classes=2)
    assert m.shapes[0].kurtosis == pytest.approx(-2, abs=0.3)
    assert not m.shapes[0].gaussian
    (said,) = [finding for finding in m.findings if finding.kind == "not gaussian"]
    assert said.layer == m.shapes[0].name
    assert "excess kurtosis" in said.message
    assert " no\n" in str(m)
    again = Measurement.from_dict(m.to_dict())
    assert [str(shape) for shape in again.shapes] == [str(shape) for shape in m.shapes]
    assert str(again) == str(m)


def test_centers_of_uniform_biases() -> None:
    """Biases alone make centers: PyTorch's uniform ones have excess kurtosis −1.2."""

    def make() -> nn.Module:
        net = nn.Sequential(nn.Linear(5, 60), nn.Tanh(), nn.Linear(60, 2))
        with torch.no_grad():
            net[0].weight.normal_(0, 0.1)
            net[0].bias.uniform_(-3, 3)
        return net

    m = fg.measure(make, blob(500, 5), inits=60, moments=4)
    shape = m.shapes[0]
    assert shape.center_kurtosis == pytest.approx(-1.2, abs=Z * shape.center_kurtosis_se + 0.02)
    assert not shape.gaussian


def test_errors_are_those_of_the_ensemble() -> None:
    """Means over members with their standard errors; the centers' kurtosis by its influence function."""
    rng = np.random.default_rng(0)
    means = rng.standard_normal((400, 30)) * rng.gamma(4, size=(400, 1)) ** 0.5  # a scale of its own a network
    rows = np.zeros((400, 1, 4))
    rows[:, 0, SKEW_SQUARE], rows[:, 0, KURTOSIS] = 0.25 + 0.01 * rng.standard_normal(400), rng.standard_normal(400)
    rows[:, 0, MEAN_SQUARE], rows[:, 0, MEAN_FOURTH] = (means**2).mean(1), (means**4).mean(1)
    layer = fg.measure("dense", blob(20, 3), inits=2, classes=2).layers[0]
    (shape,) = layer_shapes([layer], rows, [1.0])  # type: ignore[list-item]
    assert shape.skewness == pytest.approx(0.5, abs=0.01)
    assert shape.kurtosis_se == pytest.approx(rows[:, 0, KURTOSIS].std(ddof=1) / 20)
    jack = []
    for left in range(400):
        rest = np.delete(np.arange(400), left)
        jack.append((means[rest] ** 4).mean() / (means[rest] ** 2).mean() ** 2)
    assert shape.center_kurtosis == pytest.approx((means**4).mean() / (means**2).mean() ** 2 - 3)
    assert shape.center_kurtosis_se == pytest.approx(np.std(jack) * math.sqrt(399), rel=0.05)
    assert math.isnan(layer_shapes([layer], rows, [0.01])[0].center_kurtosis)  # type: ignore[list-item]
    # A gamma-distributed variance of shape 4 has E s⁴/(E s²)² = 1 + 1/4: excess kurtosis 3/4.
    assert shape.center_kurtosis == pytest.approx(0.75, abs=Z * shape.center_kurtosis_se)
    assert LayerShape.from_dict(shape.to_dict()) == shape


def test_other_moments_are_refused() -> None:
    with pytest.raises(fg.InvalidInput, match="moments 2 or 4"):
        fg.measure("dense", blob(20, 3), moments=3)  # type: ignore[arg-type]
