"""beyond/absorption: times from the networks' own starts, numbers of theory.md §7, and checks that can fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from firstguess_papers import beyond as item
from firstguess_papers.beyond import PHASES, Times
from firstguess_papers.beyond import TANH_DEPTHS as DEPTHS
from firstguess_papers.judging import Number
from firstguess_papers.running import Run
from firstguess_papers.training_pieces import starts_of

from firstguess.data import two_blobs
from firstguess.ensemble.member_module import build
from firstguess.network.network import Network
from firstguess.studies.store import Store
from firstguess.theory.training.absorption import Tangent


def _tangents(*, signal: float = 0.2, grown: float = 1.0) -> dict[str, list[Tangent]]:
    """Of which 20 layers leave `signal` when ordered; q_ab grows by exp(grown) with them, and time with √q_ab."""
    ordered = [
        Tangent(1.0 + (3.0 + grown * k) ** 2, (3.0 + grown * k) ** 2, 2.0, 1.0, signal**k, 1000) for k in range(5)
    ]
    edge = [Tangent(2.0, 1.0, 2.0, 1.0, 0.8, 1000) for _ in DEPTHS]
    return dict(zip(PHASES, (ordered, edge), strict=True))


def _times(over: float, noise: float = 0.01) -> Times:
    predicted = np.linspace(5.0, 25.0, 12)
    return Times(over * predicted * (1 + noise * np.sin(np.arange(12))), predicted, 1.0)


def _verdicts(over: float, tangents: dict[str, list[Tangent]], noise: float = 0.01) -> list[str]:
    found = {"ReLU": _times(over, noise)}
    return [entry.verdict for entry in item.judged(found, tangents)]


def test_ordered_times_are_those_of_the_theory() -> None:
    found = dict(zip(DEPTHS, item.over_depth(PHASES["ordered"]), strict=True))
    assert item.scaled_time(found[20]) == pytest.approx(4.7, abs=0.05)  # theory.md §7
    assert item.scaled_time(found[100]) == pytest.approx(13.0, abs=0.05)
    assert found[100].signal / 1000 == pytest.approx(8.7e-4, rel=0.01)
    # The median network starts at the median of |m₀|; there (16) can be integrated step by step.
    t = found[20]
    spread = np.sqrt(2 * (t.q - t.q_ab))
    m, time, small = 0.67448975 * np.sqrt(2 * t.q_ab), 0.0, 2e-3
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()
    while m > spread * 0.2533471:  # Φ⁻¹(0.6)
        m -= small * 2 * (float(weights @ (1 / (1 + np.exp(-m - spread * nodes)))) - 0.5)
        time += small
    assert item.scaled_time(t) == pytest.approx(time, rel=0.02)  # κ's approximation of the sigmoid's average


def test_linear_and_vanishing_can_fail() -> None:
    assert _verdicts(1.1, _tangents()) == ["holds", "holds"]
    assert _verdicts(1.1, _tangents(signal=0.9))[1] == "does not hold"
    bent = _tangents()
    bent["ordered"][4] = replace(bent["ordered"][4], q=901.0, q_ab=900.0)
    assert _verdicts(1.1, bent)[1] == "does not hold"
    lost = _tangents()
    lost["edge of chaos"][4] = replace(lost["edge of chaos"][4], signal=0.1)
    assert _verdicts(1.1, lost)[1] == "does not hold"


def test_times_are_judged_by_how_far_they_are_off() -> None:
    assert _verdicts(1.4, _tangents())[0] == "holds with a limit"
    assert _verdicts(1.7, _tangents())[0] == "does not hold"
    assert _verdicts(1.4, _tangents(), noise=0.9)[0] == "not tested"
    assert item.between(Number(0.4, 0.01), 0.5) is False


def test_predicted_times_start_where_the_trained_networks_do(tmp_path: Path) -> None:
    x = two_blobs(10, 8, seed=3)
    network = Network.parse("dense(weight_var=2) > relu > dense(weight_var=2)", classes=2)
    run = Run(item.absorption, quick=True, store=Store(tmp_path))
    logits = starts_of(network, x.x, 12, range(10), 0)
    means = (logits[..., 1] - logits[..., 0]).mean(axis=1)
    found = item.times_of(run, "ReLU", str(network), x, 12, 10)
    for member in range(10):
        with torch.no_grad():
            out = build(network, 8, width=12, seed=0, member=member)(torch.from_numpy(np.array(x.x)))
        share = float((out[:, 1] > out[:, 0]).double().mean())
        assert means[member] == pytest.approx(float((out[:, 1] - out[:, 0]).mean()), abs=1e-5)
        assert (found.measured[member] == 0.0) == (max(share, 1 - share) <= item.LEVEL)
    order = np.argsort(np.abs(means))
    assert (np.diff(found.predicted[order]) >= 0).all()
    assert found.over.value == pytest.approx(found.measured.mean() / found.predicted.mean())
    both = item.times_of(run, "ReLU", str(network), x, 12, 10, parts=2)
    np.testing.assert_array_equal(both.measured[:10], found.measured)
    np.testing.assert_array_equal(both.predicted[:10], found.predicted)
    assert len(both.predicted) == len(both.measured) == 20
    assert ((both.predicted[10:] > 0) == (both.measured[10:] > 0)).mean() > 0.5  # their own starts, too
