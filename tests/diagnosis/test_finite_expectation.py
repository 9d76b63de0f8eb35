"""Expectations at a model's own widths: what infinite width gets wrong is not called a surprise, a fault still is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import firstguess as fg
from firstguess.base.errors import NotCovered
from firstguess.diagnosis.expectation import OwnSize, agreement
from firstguess.modules.members.weight_statistics import Numbers
from firstguess.show import report

POINTS, DIMENSION = 200, 20


def model(*, gaussian: bool = True, depth: int = 20, width: int = 100, gain: float = 1.0) -> nn.Module:
    """LayerNorm behind ReLU, which infinite width has nearly even."""
    layers: list[nn.Module] = []
    for i in range(depth):
        dense = nn.Linear(width if i else DIMENSION, width, bias=False)
        layers += [dense, nn.ReLU(), nn.LayerNorm(width)]
    layers.append(nn.Linear(width, 2, bias=False))
    net = nn.Sequential(*layers)
    for dense in (module for module in net if isinstance(module, nn.Linear)):
        if gaussian:
            nn.init.kaiming_normal_(dense.weight)
        if gain != 1.0:
            with torch.no_grad():
                dense.weight.add_(gain)
    return net


def data() -> np.ndarray:
    return np.random.default_rng(3).standard_normal((POINTS, DIMENSION)).astype(np.float32)


@pytest.fixture(scope="module")
def narrow() -> fg.Diagnosis:
    return fg.diagnose(lambda: model(), data(), inits=120, advice=False)


def test_a_finite_width_is_expected_and_not_a_surprise(narrow: fg.Diagnosis) -> None:
    """Infinite width is rejected beyond doubt, the own width agrees (level 1e-3, and "close" is not accepted)."""
    expected = narrow.expected
    assert expected.prediction is not None
    assert expected.prediction.finite_size is not None
    assert expected.prediction.finite_size.width == 100
    assert agreement(expected.comparison) == "as measured"
    assert "at width 100" in expected.words
    assert "as measured" in expected.words
    wide, compared = expected.wide
    assert wide.finite_size is None
    assert not compared.agrees
    assert min(d.p_value for d in compared.differences) < 1e-9
    assert not expected.trusted  # what is off cannot tell of changes: they are measured
    assert expected.for_changes is wide
    assert "instead of" in expected.size


def test_the_page_says_what_width_changed(narrow: fg.Diagnosis) -> None:
    said = narrow.to_dict()["expected"]
    assert said["width"] == "width 100"
    assert said["prediction"]["finite_size"]["width"] == 100
    assert "finite width changed" in report.page(narrow).replace("\N{NO-BREAK SPACE}", " ")


def test_the_law_of_the_weights_is_that_of_the_model() -> None:
    """PyTorch's default is uniform, which shows in the order 1/width: predicted as such, and read back from dicts."""
    structure = fg.read(model(gaussian=False, depth=2), data())
    assert structure.law == "uniform"
    assert fg.read(model(depth=2), data()).law == "normal"
    again = type(structure).from_dict(structure.to_dict())
    assert again.law == "uniform"
    drawn = OwnSize(law=structure.law).drawn(structure.network)
    assert str(drawn).count("init=uniform") == str(drawn).count("dense(")
    assert OwnSize().drawn(structure.network) == structure.network
    with pytest.raises(NotCovered, match="one known distribution"):
        OwnSize(law="").drawn(structure.network)


def test_laws_by_their_entries() -> None:
    """Kurtosis of 40 000 entries: 3 ± 0.024 for a normal law, 1.8 ± 0.006 for a uniform one (5 of them: 6e-7).

    Clamped normal ones end as well, where uniform ones do not: 1.6 and 2.4.
    """
    rng = torch.Generator().manual_seed(int(np.random.default_rng(20261117).integers(2**31)))
    size = (200, 200)

    def law(values: torch.Tensor) -> str:
        numbers = Numbers()
        numbers.add(values)
        return numbers.law

    normal = torch.empty(size).normal_(generator=rng)
    assert law(normal) == "normal"
    assert law(torch.rand(size, generator=rng) - 0.5) == "uniform"
    assert law(nn.init.orthogonal_(torch.empty(size), generator=rng)) == "orthogonal"
    assert law(normal.clamp(-1.0, 1.0)) == ""
    assert law(normal.clamp(-2.0, 2.0)) == ""
    assert law(normal * torch.empty(size).exponential_(generator=rng).sqrt()) == ""
    assert law(normal + 1.0) == ""


def test_widths_in_words() -> None:
    net = fg.Network.parse("dense(width=30) > relu > dense(width=60) > relu > dense")
    assert OwnSize().words(net) == "widths 30 to 60"
    assert OwnSize(50).words(fg.Network.parse("dense > relu > dense")) == "width 50"
    assert OwnSize().words(fg.Network.parse("dense")) == "its own widths"


def test_convolutions_are_told_of_infinite_width() -> None:
    """What is not covered is predicted at infinite width, and says so."""
    x = np.random.default_rng(5).standard_normal((60, 1, 6, 6)).astype(np.float32)

    def make() -> nn.Module:
        return nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 2))

    expected = fg.diagnose(make, x, inits=20, advice=False).expected
    assert expected.prediction is not None
    assert expected.prediction.finite_size is None
    assert "convolutions" in expected.size
    assert "infinitely wide" in expected.size
