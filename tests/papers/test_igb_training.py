"""IGB's items on training: what their numbers are, and that their checks can fail."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from firstguess_papers import igb_training
from firstguess_papers.items import Item
from firstguess_papers.judging import Number
from firstguess_papers.measured import decided
from firstguess_papers.norm_depth import descend
from firstguess_papers.training_pieces import BiasModes, bias_modes, hand_overs, trained
from paper_trainings import arm_of, around, tiny

import firstguess as fg

_STEPS = [0, 1, 2, 5, 10, 20, 50, 100]


# -- The bias mode


def test_the_bias_mode_of_a_linear_model_is_the_formula(tmp_path: Path) -> None:
    """f = Wx + b: ∇ of the mean of f₁ − f₀ is (x̄, 1) and (−x̄, −1), so λ_b = ‖x̄‖² + 1, whatever the weights."""
    from torch import nn

    run = tiny(igb_training.fig14, tmp_path, {})
    x = fg.data.as_data((np.random.default_rng(1).standard_normal((30, 4)).astype(np.float32) + 1, np.arange(30) % 2))
    found = bias_modes(run, lambda: nn.Linear(4, 2), x, name="linear", draws=3, weight_var=2.0)
    np.testing.assert_allclose(found.eigenvalue, float(np.sum(x.x.mean(axis=0) ** 2) + 1), rtol=1e-5)
    assert len(set(found.mean.tolist())) == 3


def test_bias_decays_as_the_closed_form_says() -> None:
    """theory.md (16): ηλ_b = 1, (m₀, s) = (2, 1.4) takes 4.840086 to a share of 0.6; here in steps of 0.01 of that."""
    modes = BiasModes(np.array([2.0]), np.array([1.4]), np.array([1.0]))
    steps = np.arange(0, 1000)
    favoured, other = modes.recalls(0.01, steps)
    reached = int(np.flatnonzero(favoured.draws[0] <= 0.6)[0])
    assert 0.01 * reached == pytest.approx(4.840086, rel=0.03)  # its E σ is approximated by σ(m/κ)
    np.testing.assert_allclose(favoured.draws + other.draws, 1.0)


@pytest.mark.parametrize(("times", "factor"), [(0.5, 0.5), (1.5, -0.5), (2.5, -1.5)])
def test_thresholds_of_the_bias_mode(times: float, factor: float) -> None:
    """Without spread κ = 1 and a small m is multiplied by 1 − ηλ_b/2 a step: 1 − η/(2κ/λ_b)."""
    modes = BiasModes(np.array([1e-4, 2e-4]), np.zeros(2), np.array([3.0, 3.0]))
    assert modes.overshoot.value == pytest.approx(2 / 3)
    m = modes.means(times * modes.overshoot.value, [0, 1, 2])
    np.testing.assert_allclose(m[:, 1:] / m[:, :-1], factor, rtol=1e-6)


def test_biased_starts_are_those_of_train() -> None:
    modes = BiasModes(np.array([0.1, -2.0, 1.3]), np.ones(3), np.ones(3))
    assert modes.biased().mean.tolist() == [-2.0, 1.3]  # Φ(1.3) = 0.903


def test_hand_overs_are_counted_until_divergence() -> None:
    gaps = np.array([[1, -1, 1, -1], [1, -1, math.nan, math.nan], [1, 0.1, -0.1, 0.3], [0, 0, 0, 0]])
    assert hand_overs(gaps).tolist() == [3, 1, 0, 0]


# -- Curves again


def test_hand_overs_and_recalls_are_those_of_a_plain_loop(tmp_path: Path) -> None:
    """Fig 15's MLP arm, at a rate beyond its threshold, against one torch loop a network."""
    run = tiny(igb_training.fig15, tmp_path, {})
    x = fg.data.two_blobs(15, 20, seed=3)
    net, looks = "dense(weight_var=2) > relu > dense(weight_var=2)", list(range(9))
    arm = trained(run, net, x, label="mlp", inits=4, width=50, optimizer="gd", lr=0.05, steps=looks)
    counts: list[float] = []
    for member in range(4):
        logits = descend(fg.Network.parse(net), x, 50, 0.05, np.array(looks), 0, member, far=0.0)
        assert logits is not None
        assert x.y is not None
        right = logits.argmax(axis=2) == x.y
        own = np.array([right[:, x.y == c].mean(axis=1) for c in (0, 1)])
        np.testing.assert_allclose(arm.curve("class 0").draws[member], own[0], atol=1.1 / 15)
        np.testing.assert_allclose(arm.curve("class 1").draws[member], own[1], atol=1.1 / 15)
        counts.append(float(hand_overs((own[0] - own[1])[None])[0]))
    assert hand_overs(arm.curve("gap").draws).tolist() == counts


# -- Checks


def _verdicts(item: Item, **known: Any) -> list[str]:
    return [entry.verdict for entry in decided(item, **known)]


def test_fig14_can_fail() -> None:
    def verdict(biased: Any, even: Any) -> str:
        return _verdicts(igb_training.fig14, biased=biased, even=even, at=10, learned=Number(0.0), again={})[0]

    low, high = [0.05, 0.05, 0.05, 0.1, 0.15, 0.3, 0.5, 0.7], [0.95, 0.95, 0.95, 0.9, 0.85, 0.75, 0.65, 0.7]
    split, even = arm_of(_STEPS, around(high), around(low)), arm_of(_STEPS, around([0.55] * 8), around([0.45] * 8))
    assert verdict(split, even) == "holds"
    assert verdict(even, split) == "does not hold"
    assert verdict(split, split) == "does not hold"
    few = arm_of(_STEPS, around(high, 5), around(low, 5))
    assert verdict(few, even) == "not tested"  # five networks decide nothing


def test_fig15_can_fail() -> None:
    swings, calm = around([0.95, 0.05] * 4), around([0.6] * 8)
    one, two = arm_of(_STEPS, swings, 1 - swings), arm_of(_STEPS, calm, 1.2 - calm)
    assert igb_training.handed(one) == Number(7.0, 0.0)
    assert igb_training.handed(one, last=3).value == 3.0
    none, some = Number(0.0), Number(3.0, 0.1)

    def verdicts(biased: Any, even: Any, below: Number, last: Number) -> list[str]:
        counts = {"trained": {0.5: below, 1.5: some}, "predicted": {}}
        late = {"trained": {1.5: none, 3.0: last}}
        known = {"cnn": [biased, even, one, one], "counts": counts, "late": late, "steps": 8, "unit": 1.0}
        return _verdicts(igb_training.fig15, ratios=dict.fromkeys(igb_training.KINDS, 1.0), **known)

    assert verdicts(one, two, none, some) == ["holds", "holds"]
    assert verdicts(two, one, some, some) == ["does not hold", "does not hold"]
    assert verdicts(one, two, none, none) == ["holds", "holds with a limit"]


def test_window_by_hand() -> None:
    """Between 0.5 and 0.9 the line of 90 % is at 0.86: a rise over one decade is above it for a tenth of that."""
    assert igb_training.window([0.1, 1.0, 10.0], np.array([0.5, 0.9, 0.9])) == pytest.approx(1.1)
    assert igb_training.window([0.1, 1.0, 10.0], np.array([0.9, 0.5, 0.9])) == pytest.approx(0.2)


def _by_rate(ends: dict[float, float], gap: float = 0.0, networks: int = 12) -> dict[float, Any]:
    return {
        rate: arm_of(
            [0, 10],
            around([0.5, 0.9], networks),
            around([0.5, 0.9], networks),
            held=(around([0.5, end + gap / 2], networks), around([0.5, end - gap / 2], networks)),
        )
        for rate, end in ends.items()
    }


def test_window_and_ends_can_fail() -> None:
    wide = _by_rate({0.1: 0.8, 1.0: 0.8, 10.0: 0.8})
    narrow = _by_rate({0.1: 0.5, 1.0: 0.8, 10.0: 0.5})
    widths = [igb_training.window_of(arms, 1.0, 10) for arms in (narrow, wide, wide)]
    assert widths[1].value == pytest.approx(2.0)
    assert widths[0].value < 0.5
    assert igb_training.best(narrow) == 1.0

    def verdicts(widths: list[Number], biased: Any, even: Any) -> list[str]:
        seen = dict(zip(igb_training.ARMS, widths, strict=True))
        known = {igb_training.BIASED: biased, igb_training.EVEN: even}
        return _verdicts(igb_training.rates, rates=known, widths=seen, early=seen, sooner=5)

    assert verdicts(widths, wide, wide) == ["holds", "holds"]
    assert verdicts(widths[::-1], wide, _by_rate({1.0: 0.7})) == ["does not hold", "does not hold"]
    assert (
        verdicts([widths[0], widths[0], widths[1]], wide, _by_rate({1.0: 0.8}, gap=0.2)) == ["holds with a limit"] * 2
    )
    assert math.isnan(igb_training.window_of(_by_rate({0.1: 0.5, 1.0: 0.8}, networks=5), 1.0, 10).error)


# -- Whole items, tiny: two networks an arm leave every claim untested


def test_fig14_runs_tiny(tmp_path: Path) -> None:
    sizes = dict(half=12, steps=6, short=3, inits=2, draws=12)
    outcome = igb_training.fig14.outcome(tiny(igb_training.fig14, tmp_path, sizes))
    assert [e.verdict for e in outcome.entries] == ["not tested"]
    assert outcome.charts["recall"].to_dict()["title"]["text"][0].startswith("A small learning rate")
    assert len(outcome.tables["curves"]["step"]) > 20


def test_fig15_runs_tiny(tmp_path: Path) -> None:
    sizes = dict(n=20, steps=12, inits=2, draws=3, width=20, biased=2)
    outcome = igb_training.fig15.outcome(tiny(igb_training.fig15, tmp_path, sizes))
    assert [e.verdict for e in outcome.entries] == ["not tested", "not tested"]
    for chart in outcome.charts.values():
        assert chart.to_dict()["title"]["text"]
    assert outcome.tables["rates"]["factor"][: len(igb_training.FACTORS_LARGE)] == list(igb_training.FACTORS_LARGE)


def test_window_runs_tiny(tmp_path: Path) -> None:
    sizes = dict(n=12, held=20, width=30, steps=8, inits=2, draws=4)
    outcome = igb_training.rates.outcome(tiny(igb_training.rates, tmp_path, sizes))
    assert [e.verdict for e in outcome.entries] == ["not tested", "not tested"]
    assert outcome.charts["window"].to_dict()["title"]["text"][0].startswith("Accuracy at the end")
