"""BatchSums of layers against their definitions in float64, where float32 is at its limits."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
import torch
from torch import nn

from firstguess.data import collect
from firstguess.modules.engine import ModuleEngine
from firstguess.modules.hooks.accumulators import BatchSums, Blocks, doubles, masked_sums


def definition(x: torch.Tensor) -> np.ndarray:
    x = x.double()
    m, v = x.mean(0), x.var(0)
    dead = (x == x[0]).all(0).double().mean()
    return np.array([m.mean(), m.var(unbiased=False) - (v / len(x)).mean(), v.mean(), dead])


def drawn(points: int, nodes: int, center: float, spread: float, dtype=torch.float32) -> torch.Tensor:
    g = torch.Generator().manual_seed(0)
    x = center * torch.randn(nodes, generator=g, dtype=torch.float64)
    return (x + spread * torch.randn(points, nodes, generator=g, dtype=torch.float64)).to(dtype)


def stats(parts: Iterable[torch.Tensor]) -> np.ndarray:
    """Statistics of all rows, summed part by part."""
    blocks, found = Blocks(), None
    for part in parts:
        sums = blocks(part)
        assert sums is not None
        found = sums if found is None else found.merged(sums)
    return found.stats()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    ("center", "spread"), [(0, 1), (1, 1), (1.5, 1), (2, 1), (10, 1), (1e3, 1), (1, 1e-5), (1e-30, 1e-25), (1e25, 1e20)]
)
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("nodes", [50, 500])  # small sums by NumPy, large ones by blocks
def test_any_center_and_spread(center: float, spread: float, dtype: torch.dtype, parts: int, nodes: int) -> None:
    """Whatever γ = (center/spread)² is, statistics of the numbers as they are (rounded ones) come out to 1e-5."""
    x = drawn(300, nodes, center, spread, dtype)
    x[:, :7] = x[0, :7]
    want = definition(x)
    got = stats(x.split(300 // parts))
    np.testing.assert_allclose(got[1:], want[1:], rtol=1e-5)
    assert abs(got[0] - want[0]) < 1e-6 * (abs(center) + abs(spread))


def test_many_rows_in_blocks() -> None:
    x = drawn(20_000, 30, 1.0, 1.0)
    np.testing.assert_allclose(stats([x]), definition(x), rtol=1e-5)


def test_constant_in_each_batch_is_not_constant() -> None:
    x = torch.tensor([[1.0, 5.0]] * 4 + [[2.0, 5.0]] * 4)
    assert stats(x.split(4))[3] == 0.5


def test_not_finite() -> None:
    for bad in (float("nan"), float("inf")):
        x = drawn(10, 5, 1, 1)
        x[3, 2] = bad
        assert Blocks()(x) is None


def test_masks_leave_nodes_different_counts() -> None:
    x = drawn(40, 6, 1, 1).reshape(20, 4, 3)
    keep = torch.ones(20, 4, dtype=torch.bool)
    keep[5:, 2] = False
    keep[10:, 3] = False
    parts = (doubles(*masked_sums(x[rows], keep[rows])) for rows in (slice(0, 8), slice(8, 20)))
    one, other = (BatchSums.shifted(*part) for part in parts)
    m = torch.stack([x[keep[:, t], t].double().mean(0) for t in range(4)])
    v = torch.stack([x[keep[:, t], t].double().var(0) for t in range(4)])
    n = keep.sum(0)[:, None]
    want = [m.mean(), m.var(unbiased=False) - (v / n).mean(), v.mean(), 0]
    np.testing.assert_allclose(one.merged(other).stats(), want, rtol=1e-5, atol=1e-7)


class Images(nn.Module):
    def __init__(self, view: bool) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8 * 36, 4)
        self.view = view

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.norm(self.conv(x)))
        return self.head(h.view(len(h), -1) if self.view else h.flatten(1))


@pytest.mark.parametrize("view", [False, True])
def test_channels_last_gives_the_same_numbers(view: bool) -> None:
    x = torch.randn(12, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    model = Images(view)
    loop = ModuleEngine(model, collect(x, batch_size=6), strategy="loop").run(0, 20)
    engine = ModuleEngine(model, collect(x, batch_size=6))
    seen: list[bool] = []
    call = engine._call.__class__.__call__

    def spy(self, *args, **kwargs):
        seen.append(self.channels_last)
        return call(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine._call.__class__, "__call__", spy)
        auto = engine.run(0, 20)
    assert any(seen)
    np.testing.assert_allclose(loop.stats, auto.stats, rtol=1e-5, atol=1e-6)
    assert ("view" in engine.notes[0]) == view  # said why not
