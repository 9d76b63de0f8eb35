"""beyond/adam: predictions start where the trained networks do, and checks that can fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from firstguess_papers import beyond_frontier as item
from firstguess_papers.beyond_frontier import CURVES, Case, Pair
from firstguess_papers.judging import Number
from firstguess_papers.running import Run
from firstguess_papers.training_pieces import Arm, starts_of

from firstguess.data import two_blobs
from firstguess.network.network import Network
from firstguess.studies.store import Store

RNG = np.random.default_rng(5)


def _pair(off: float, *, noise: float = 0.01, others: float | None = None, trust: str = "with a random factor") -> Pair:
    """Thirty networks whose prediction is off by so much on average."""
    real = {what: 0.5 + 0.1 * RNG.random((30, 4)) for what in CURVES}
    away = {what: off if others is None or what == "largest" else others for what in CURVES}
    apart = {what: away[what] + noise * np.linspace(-1, 1, 30)[:, None] for what in CURVES}
    steps = np.arange(4)
    known = Arm("", steps, {what: real[what] + apart[what] for what in CURVES}, real=False, about={"trust": trust})
    return Pair(Arm("", steps, real), known)


def _moved(pair: Pair, by: float) -> Pair:
    jitter = 1e-3 * np.cos(np.arange(30.0))[:, None]
    known = pair.predicted
    return Pair(pair.trained, replace(known, draws={w: v + by + jitter for w, v in known.draws.items()}))


def _verdicts(wide: Pair, none: Pair, factor: Pair) -> list[str]:
    narrow = {"narrow": (factor, none)}
    assert set(item.charts({"wide": wide}, narrow)) == {"adam", "factor"}
    return [entry.verdict for entry in item.judged_adam({"wide": wide}, narrow)]


def test_checks_can_fail() -> None:
    none = _pair(-0.04)
    better, worse = _moved(none, 0.03), _moved(none, -0.005)
    assert _verdicts(_pair(0.01), none, better) == ["holds", "holds"]
    assert _verdicts(_pair(0.08), none, worse) == ["does not hold", "holds with a limit"]
    assert _verdicts(_pair(0.01, others=0.09), none, _moved(none, 0.2)) == ["holds with a limit", "does not hold"]
    assert _verdicts(_pair(0.01, noise=0.5), none, better)[0] == "not tested"
    even = _pair(0.0, noise=0.05)
    assert item.nearer(_moved(even, 0.001), even) is None  # nothing to bring nearer


def test_farthest_and_average() -> None:
    one = _pair(0.0)
    np.asarray(one.predicted.draws["largest"])[:, 2] -= 0.3
    assert one.farthest("largest").value == pytest.approx(-0.3, abs=1e-12)
    assert one.off("largest").value == pytest.approx(-0.3 / 4, abs=1e-12)


def test_predictions_start_where_the_trained_networks_do(tmp_path: Path) -> None:
    x = two_blobs(10, 8, seed=3)
    case = Case("dense(weight_var=2) > relu > dense(weight_var=2)", "blobs", 12, 1e-4)
    starts = starts_of(Network.parse(case.network, classes=2), x.x, 12, range(10), 0)
    run = Run(item.adam, quick=True, store=Store(tmp_path))
    found = item.pair(run, "ReLU", case, x, 10)
    share = (starts[:, :, 1] > starts[:, :, 0]).mean(axis=1)
    for curves in (found.trained, found.predicted):
        np.testing.assert_allclose(curves.draws["largest"][:, 0], np.maximum(share, 1 - share))
    narrow = Case(case.network, "blobs", 12)
    both = [item.pair(run, "ReLU", narrow, x, 10, factor=own) for own in (True, False)]
    np.testing.assert_array_equal(*(one.trained.draws["largest"] for one in both))
    np.testing.assert_allclose(both[0].predicted.draws["largest"][:, 0], np.maximum(share, 1 - share))


def test_numbers_are_means_over_networks() -> None:
    one = _pair(0.02, noise=0.1)
    apart = one.predicted.draws["favoured"] - one.trained.draws["favoured"]
    assert one.off("favoured", 1) == pytest.approx(
        Number(float(apart[:, 1].mean()), float(np.std(apart[:, 1], ddof=1) / 30**0.5))
    )
