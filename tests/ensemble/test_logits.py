"""The logits of one network: numbers against plain loops, those that a measurement keeps, and a typical one of them."""

from __future__ import annotations

import math
import pickle
import statistics as plain_statistics

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import firstguess as fg
from firstguess.data import blob, collect
from firstguess.ensemble.engine import DescriptionEngine
from firstguess.ensemble.seeds import member_seeds
from firstguess.modules.engine import ModuleEngine
from firstguess.modules.members.sources import source_of

TEXT = "dense(weight_var=2) > relu > dense(weight_var=2)"


@pytest.mark.parametrize("classes", [2, 5])
def test_numbers_against_a_plain_loop(classes: int) -> None:
    values = np.random.default_rng(classes).standard_normal((40, classes)) + 0.7 * np.arange(classes)
    logits = fg.Logits(values, 3)
    guesses = [max(range(classes), key=lambda c, row=row: row[c]) for row in values]
    shares = [guesses.count(c) / 40 for c in range(classes)]
    first = max(range(classes), key=lambda c: shares[c])
    margin = [row[first] - max(v for c, v in enumerate(row) if c != first) for row in values]
    np.testing.assert_allclose(logits.shares, shares)
    assert (logits.favoured, logits.member, logits.points, logits.classes) == (first, 3, 40, classes)
    assert logits.guesses.tolist() == guesses
    np.testing.assert_allclose(logits.margin, margin)
    mean, spread = plain_statistics.fmean(margin), plain_statistics.stdev(margin)
    assert logits.offset == pytest.approx(mean)
    assert logits.margin_spread == pytest.approx(spread)
    assert logits.distance == pytest.approx(mean / spread)
    assert logits.gaussian_share == pytest.approx(stats.norm.cdf(mean / spread))
    np.testing.assert_allclose(logits.centers, [plain_statistics.fmean(column) for column in values.T])
    np.testing.assert_allclose(logits.spread, [plain_statistics.stdev(column) for column in values.T])
    others = sorted((c for c in range(classes) if c != first), key=lambda c: -shares[c])
    assert shares[logits.rival] == shares[others[0]]
    labels = np.arange(40) % classes
    assert logits.alignment(labels) == pytest.approx(np.corrcoef(margin, labels == first)[0, 1])
    assert logits.alignment(labels, 1) == pytest.approx(np.corrcoef(logits.margin_of(1), labels == 1)[0, 1])
    assert logits.to_dict()["distance"] == pytest.approx(mean / spread)
    assert f"{shares[first]:.1%}" in str(logits)


def test_what_logits_may_be() -> None:
    one = fg.Logits(torch.tensor([1.0, -2.0, 3.0], requires_grad=True))  # one logit, decided at 0
    assert one.values.tolist() == [[-0.5, 0.5], [1.0, -1.0], [-1.5, 1.5]]
    assert one.guesses.tolist() == [1, 0, 1]
    tied = fg.Logits([[0.0, 0.0, -1.0], [0.0, 0.0, -1.0]])
    assert tied.shares[:2].sum() == 1.0  # one of the two, at random, as everywhere
    assert math.isnan(tied.distance)
    sure = fg.Logits([[0.0, 1.0], [0.0, 1.0]])
    assert sure.distance == math.inf
    assert sure.gaussian_share == 1.0
    assert math.isnan(sure.alignment([0, 1]))
    empty = fg.Logits([[0.0, 5.0, 1.0], [0.0, 6.0, 2.0]])  # nobody guesses 0 or 2: the nearer one is the rival
    assert empty.rival == 2
    with pytest.raises(ValueError, match="read-only"):
        sure.values[0, 0] = 1.0
    for bad in (np.zeros((3, 1)), np.zeros((1, 3)), np.zeros((2, 2, 2)), [[math.nan, 0.0], [0.0, 0.0]]):
        with pytest.raises(fg.InvalidInput):
            fg.Logits(bad)
    with pytest.raises(fg.InvalidInput, match="label for each"):
        sure.alignment([0, 1, 2])
    with pytest.raises(fg.InvalidInput, match="class from 0 to 1"):
        sure.margin_of(2)


@pytest.mark.parametrize("chunk", [None, 7])
def test_a_description_keeps_its_first_members(chunk: int | None) -> None:
    engine = DescriptionEngine(fg.Network.parse(TEXT, classes=3), blob(50, 6).x, width=9, chunk=chunk, group=3)
    first, second = engine.run(0, 5), engine.run(5, 12)
    assert first.logits is not None
    assert second.logits is not None
    assert (first.logits.shape, second.logits.shape) == ((5, 50, 3), (3, 50, 3))  # eight in all
    for members in (first, second):
        for logits, fractions in zip(members.logits, members.fractions, strict=False):
            np.testing.assert_allclose(fg.Logits(logits).shares, fractions, atol=1e-12)
    assert engine.run(8, 10).logits is not None
    assert len(engine.run(8, 10).logits) == 0


@pytest.mark.parametrize("strategy", ["loop", "vmap"])
@pytest.mark.parametrize("outputs", [1, 3])
def test_a_module_keeps_its_first_members(strategy: str, outputs: int) -> None:
    model = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, outputs))
    x = torch.randn(50, 6, generator=torch.Generator().manual_seed(1))
    members = ModuleEngine(model, collect(x, batch_size=16), seed=3, strategy=strategy).run(0, 10)
    assert members.logits is not None
    assert len(members.logits) == 8
    source = source_of(model, collect(x), mode="train")
    for member in (0, 7):
        with source.member(int(member_seeds(3, member, member + 1)[0])) as drawn, torch.no_grad():
            expected = fg.Logits(drawn(x)[:, 0] if outputs == 1 else drawn(x)).values
        np.testing.assert_allclose(members.logits[member], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(fg.Logits(expected).shares, members.fractions[member], atol=1e-12)


def test_the_typical_network() -> None:
    m = fg.measure(TEXT, blob(100, 20), inits=31, width=50, classes=2)
    largest = m.guesses.fractions.max(axis=1)
    away = [abs(share - np.median(largest)) for share in largest[:8]]
    assert m.logits.member == away.index(min(away))
    for member in range(8):
        assert m.logits_of(member).shares.max() == pytest.approx(largest[member])
    with pytest.raises(fg.InvalidInput, match="first 8 networks"):
        m.logits_of(8)
    again = fg.Measurement.from_dict(m.to_dict())  # JSON has none
    with pytest.raises(fg.InvalidInput, match="none here"):
        _ = again.logits
    kept = pickle.loads(pickle.dumps(m))
    np.testing.assert_array_equal(kept.logits.values, m.logits.values)


def test_two_classes_follow_the_law_of_theory() -> None:
    """IGB Figs 3, 4: f₁ − f₀ is N(Δμ, 2σ_y²) over the data; over networks Δμ²/(2σ_y²) averages to γ.

    8 networks of 1000 points; a γ from 8 squares of normals: within 5 standard errors, √(2/8)·γ each, and width's 3 %.
    """
    m = fg.measure(TEXT, blob(1000, 400), inits=8, width=2000, classes=2)
    squares = [(m.logits_of(i).centers[1] - m.logits_of(i).centers[0]) ** 2 for i in range(8)]
    spreads = [m.logits_of(i).margin_spread ** 2 for i in range(8)]
    gamma = 1 / (math.pi - 1)
    assert abs(np.mean(squares) / np.mean(spreads) - gamma) < 5 * math.sqrt(2 / 8) * gamma
    for i in range(8):
        logits = m.logits_of(i)
        assert abs(logits.gaussian_share - logits.shares.max()) < 5 * 0.5 / math.sqrt(1000) + 0.01


def test_members_that_are_left_out_are_not_shown() -> None:
    """Rows of `guesses.fractions` are the finite members: logits are kept up to the first that is not."""

    class Sometimes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = self.head(x)
            return out * math.nan if float(self.head.bias[0].detach()) > 0.2 else out

    m = fg.measure(Sometimes, torch.randn(30, 4), inits=30, strategy="loop")
    assert m.inits < 30
    for member in range(len(m.kept_logits)):
        assert m.logits_of(member).shares.max() == pytest.approx(m.guesses.fractions[member].max())
