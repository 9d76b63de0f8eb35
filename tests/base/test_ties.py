"""One rule for shared largest logits: one of them, at random, whatever the size of blocks."""

from __future__ import annotations

import math

import numpy as np
import pytest

from firstguess.base import statistics
from firstguess.base.statistics import settle


def test_every_class_that_shares_is_as_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(20261115)
    top = np.zeros((4, 30_000), bool)
    top[[0, 2, 3], :12_000] = True  # shared by three
    top[1, 12_000:] = True
    whole = top.copy()
    seed = int(rng.integers(2**31))
    assert settle(whole, np.random.default_rng(seed)) == 12_000
    assert np.array_equal(whole[:, 12_000:], top[:, 12_000:])
    assert (whole.sum(axis=0) == 1).all()
    assert not (whole & ~top).any()
    each = whole[[0, 2, 3], :12_000].mean(axis=1)
    assert np.abs(each - 1 / 3).max() <= 5.5 * math.sqrt(2 / 9 / 12_000)
    monkeypatch.setattr(statistics, "_BLOCK", 100)
    assert settle(top, np.random.default_rng(seed)) == 12_000
    assert np.array_equal(top, whole)
