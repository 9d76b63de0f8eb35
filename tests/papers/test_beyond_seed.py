"""beyond/seed-print: correlations by hand, the lazy prediction against a wide network, and checks that can fail."""

from __future__ import annotations

import math

import numpy as np
import pytest
from firstguess_papers import beyond_starts as item
from firstguess_papers.beyond_starts import ADAM, DECAYED, MLP, TIED, UNTIED, Kept

from firstguess.data import two_blobs

ARMS = (MLP, ADAM, ADAM + DECAYED, UNTIED, UNTIED + DECAYED, TIED, TIED + DECAYED)


def arms(logits: float = 0.1, direction: float = 0.9, decayed: float = 0.1, weights: float = 1.0) -> dict[str, Kept]:
    """Twelve networks each, at the start, at step 30 and at the end of 1/(η·wd) = 20 steps, three times."""
    noise = 0.01 * np.linspace(-1.0, 1.0, 12)[:, None]
    steps = np.array([0.0, 20.0, 30.0, 60.0])

    def one(name: str) -> Kept:
        end = decayed if DECAYED in name else direction
        left = weights * np.exp(-steps / 20.0)
        all_of = {"logits": logits, "direction": end, "ranks": end, "other": 0.0, "weights": left, "largest": 0.2}
        return Kept(steps, **{key: value + noise * np.ones(4) for key, value in all_of.items()})

    return {name: one(name) for name in ARMS}


def test_checks_can_fail() -> None:
    lazy = {"largest": 0.2, "logits": 0.1, "rate": 1.0}
    fine = [entry.verdict for entry in item.judged(arms(), lazy, 20)]
    assert fine == ["holds"] * 4
    for k, found, theory in (
        (0, arms(direction=0.2), lazy),
        (0, arms(logits=0.8), lazy),
        (1, arms(), lazy | {"logits": 0.9}),
        (2, arms(weights=1.6), lazy),
        (3, arms(decayed=0.6), lazy),
    ):
        assert item.judged(found, theory, 20)[k].verdict == "does not hold"


def test_correlations_are_with_the_own_start() -> None:
    rng = np.random.default_rng(3)
    seen = [[(rng.normal(size=5), rng.normal(size=40), 0.5, 0.3) for _ in range(2)] for _ in range(3)]
    found = item.kept([0, 4], seen)
    np.testing.assert_allclose(found["direction"][:, 0], 1.0)
    a, b = seen[1][0][1], seen[1][1][1]
    by_hand = np.mean((a - a.mean()) * (b - b.mean())) / (a.std() * b.std())
    assert found["direction"][1, 1] == pytest.approx(by_hand)
    orders = [np.sign((a[i] - a[j]) * (b[i] - b[j])) for i in range(40) for j in range(i)]
    assert found["ranks"][1, 1] == pytest.approx(float(np.mean(orders)))
    assert found["other"][1, 0] == pytest.approx(float(np.corrcoef(seen[0][0][1], a)[0, 1]))


def test_the_lazy_prediction_is_what_wide_networks_do() -> None:
    """24 networks of width 512: largest share and mean logits at step 30, within 5.6 standard errors and 0.05."""
    x = two_blobs(16, 20, seed=1)
    assert x.y is not None
    lazy = item.lazily(x, 512)
    found = item.of_images(x, width=512, inits=24, seed=3, steps=item.EARLY, rate=lazy["rate"], decay=0.0)
    last = int(np.flatnonzero(np.asarray(found["steps"]) == item.EARLY)[0])
    for what in ("largest", "logits"):
        values = np.asarray(found[what])[:, last]
        error = float(values.std(ddof=1)) / math.sqrt(len(values))
        assert abs(values.mean() - lazy[what]) <= 5.6 * error + 0.05, (what, values.mean(), error, lazy[what])
