"""NORM's choice of hyper-parameters and geometry in training: what the numbers are, and that checks can fail."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from firstguess_papers import norm_depth, norm_variants
from firstguess_papers.measured import decided
from firstguess_papers.norm_depth import descend, lazily, motion
from firstguess_papers.norm_variants import choose
from paper_trainings import arm_of, tiny

import firstguess as fg
from firstguess.theory.training.problem import kernel_of

_NET = "dense(weight_var=2) > relu > dense(weight_var=2)"


# -- Geometry


def test_a_wide_network_follows_its_kernel() -> None:
    """Margins of one network, width 2000, against theory.md (14) from its own start: off by some 1/√width."""
    x = fg.data.two_blobs(20, 30, seed=2)
    assert x.y is not None
    looks = np.array([0, 1, 10, 30])
    logits = descend(fg.Network.parse(_NET), x, 2000, 2e-4, looks, 0, 1, far=0.0)
    assert logits is not None
    seen = logits[..., 1] - logits[..., 0]
    tangent = kernel_of(fg.Network.parse(_NET), x.x.astype(float), 2000).tangent
    assert tangent is not None
    known = lazily(seen[:1], tangent, x.y, 2e-4, looks)[0]
    moved = float(np.abs(seen[-1] - seen[0]).mean())
    assert moved > 0.2
    assert float(np.abs(known - seen).mean()) < 0.1 * moved


def test_lazy_steps_are_the_golden_ones() -> None:
    """theory.md §7: x = (1, 0), (0, 1), (.6, .8), ReLU L1 N = 100, y = 0, 1, 1, g₀ = .5, −1, 2, η = .01."""
    x = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    tangent = kernel_of(fg.Network.parse(_NET), x, 100).tangent
    assert tangent is not None
    found = lazily(np.array([[0.5, -1.0, 2.0]]), tangent, np.array([0, 1, 1]), 0.01, np.array([0, 1, 100]))[0]
    np.testing.assert_allclose(found[1], [0.39318951, -0.78411451, 2.10285014], atol=1e-6)
    np.testing.assert_allclose(found[2], [-2.80172069, 3.34886323, 3.62452125], atol=1e-6)


def _motion(move: float, turn: float, networks: int = 12) -> dict[str, Any]:
    """Offsets that fall as e^(−t/move), and a signal that grows as 1 − e^(−t/turn), next to noise that stays."""
    rng = np.random.default_rng(3)
    steps, y = np.arange(0, 400, 2), np.arange(40) % 2
    noise = rng.standard_normal((networks, 1, 40))
    own = 1 + 0.1 * rng.standard_normal((networks, 1, 1))
    t = steps[None, :, None] * own
    return motion(steps, 2 * np.exp(-t / move) + noise + 3 * (1 - np.exp(-t / turn)) * (2 * y - 1), y)


def test_times_of_moving_and_turning() -> None:
    found = motion(np.array([0, 1, 2]), np.array([[[1.5, 2.5], [1.5, 0.5], [0.5, -0.5]]]), np.array([1, 0]))
    np.testing.assert_allclose(found["offset"].draws, [[1.0, 0.5, 0.0]])
    assert found["translated"].tolist() == [1.0]
    np.testing.assert_allclose(found["alignment"].draws, [[-1.0, 1.0, 1.0]])
    assert found["rotated"].tolist() == [0.5]


def test_geometry_can_fail() -> None:
    def verdicts(move: float, turn: float, networks: int = 12) -> list[str]:
        seen, known = {"ReLU": _motion(move, turn, networks)}, {"ReLU": _motion(5.0, 150.0, networks)}
        return [entry.verdict for entry in decided(norm_depth.geometry, seen=seen, moved=known)]

    assert verdicts(5.0, 150.0) == ["holds", "holds"]
    assert verdicts(150.0, 5.0) == ["does not hold", "does not hold"]
    assert verdicts(5.0, 150.0, 4) == ["not tested", "not tested"]


def test_geometry_runs_tiny(tmp_path: Path) -> None:
    sizes = dict(n=12, width=20, steps=10, inits=2, parts=2)
    outcome = norm_depth.geometry.outcome(tiny(norm_depth.geometry, tmp_path, sizes))
    assert [e.verdict for e in outcome.entries] == ["not tested", "not tested"]
    for chart in outcome.charts.values():
        assert chart.to_dict()["title"]["text"]
    assert len(outcome.tables["times"]["member"]) == 2 * 3 * 4


# -- Selection


def _candidates() -> dict[Any, Any]:
    """The first looks better early, and serves one class only; of the third, one network has diverged."""
    one = arm_of([0, 5, 9], [[0.9, 1.0, 0.9]] * 2, [[0.1, 0.5, 0.5]] * 2, held=([[0.9] * 3] * 2, [[0.1, 0.2, 0.4]] * 2))
    two = arm_of([0, 5, 9], [[0.6, 0.7, 0.9]] * 2, [[0.4, 0.7, 0.9]] * 2, held=([[0.8] * 3] * 2, [[0.8] * 3] * 2))
    bad = arm_of(
        [0, 5, 9], [[0.5, np.nan, np.nan], [0.5, 0.7, 0.7]], [[0.5, np.nan, np.nan], [0.5, 0.8, 0.7]],
        held=([[0.5, np.nan, np.nan], [0.6] * 3], [[0.5, np.nan, np.nan], [0.6] * 3]),
    )  # fmt: skip
    return {("no norm", 1.0): one, ("LayerNorm after", 1.0): two, ("LayerNorm after", 2.0): bad}


def test_each_network_takes_what_is_best_for_it() -> None:
    arms = _candidates()
    by_global, by_worst = choose(arms, "accuracy", 5), choose(arms, "worst", 5)
    # global: 0.75, 0.7 and nothing or 0.75, which ties; worst: 0.5, 0.7 and nothing or 0.7, which ties
    np.testing.assert_allclose(by_global["lead"], [0.5, (0.5 - 0.1) / 2], atol=1e-12)
    np.testing.assert_allclose(by_global["worst"], [0.4, (0.4 + 0.6) / 2])
    np.testing.assert_allclose(by_global["after"], [0.0, 0.5])
    np.testing.assert_allclose(by_worst["lead"], [0.0, -0.05], atol=1e-12)
    np.testing.assert_allclose(by_worst["final"], [0.8, 0.7])
    np.testing.assert_allclose(by_worst["after"], [1.0, 1.0])


def test_selection_can_fail() -> None:
    rng = np.random.default_rng(8)
    one = next(iter(_candidates().values()))

    def choice(lead: float, worst: float) -> dict[str, Any]:
        noise = 0.01 * rng.standard_normal((4, 12))
        return {"lead": lead + noise[0], "final": 0.8 + noise[1], "worst": worst + noise[2], "after": noise[3]}

    def verdicts(by_global: dict[str, Any], by_worst: dict[str, Any]) -> set[str]:
        sets, rules = norm_variants.SETS, norm_variants.RULES
        both = dict(zip(rules, (by_global, by_worst), strict=True))
        picks = {(words, "trained", rule, 5): by for words in sets for rule, by in both.items()}
        picked = {key: {what: one.number(values) for what, values in by.items()} for key, by in picks.items()}
        known: dict[str, Any] = {
            "picks": picks,
            "picked": picked,
            "one": one,
            "end": 5,
            "ideal": dict.fromkeys(sets, 1),
        }
        return {entry.verdict for entry in decided(norm_variants.selection, **known)}

    greedy, fair = choice(0.5, 0.6), choice(0.1, 0.8)
    few = {what: np.array([0.5, 0.4]) for what in greedy}
    assert verdicts(greedy, fair) == {"holds"}
    assert verdicts(greedy, choice(0.1, 0.6)) == {"holds with a limit"}
    assert verdicts(fair, greedy) == {"does not hold"}
    assert verdicts(few, few) == {"not tested"}


def test_selection_runs_tiny(tmp_path: Path) -> None:
    sizes = dict(n=12, held=20, width=30, steps=10, inits=2, parts=1, draws=4)
    outcome = norm_variants.selection.outcome(tiny(norm_variants.selection, tmp_path, sizes))
    assert [e.verdict for e in outcome.entries] == ["not tested", "not tested"]
    assert outcome.charts["picks"].to_dict()["title"]["text"][0].startswith("Learning rate and norm placement")
    assert {"trained", "predicted"} == set(outcome.tables["picks"]["source"])
    assert all(math.isfinite(v) for v in outcome.tables["picks"]["worst"])


@pytest.mark.parametrize("placement", list(norm_variants.PLACEMENTS))
def test_placements_are_what_they_say(placement: str) -> None:
    text = norm_variants.PLACEMENTS[placement]
    order = {"no norm": "relu]", "LayerNorm before": "layernorm > relu]", "LayerNorm after": "relu > layernorm]"}
    assert order[placement] in text
    fg.Network.parse(text)
