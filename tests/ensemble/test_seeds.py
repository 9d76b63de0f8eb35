"""Members' seeds: distinct by construction, unrelated between seeds, and nothing but (seed, i) in them."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from firstguess.base.errors import InvalidInput
from firstguess.ensemble.member_module import build
from firstguess.ensemble.seeds import fill_weights, member_seeds, tie_stream
from firstguess.network.builders import mlp
from firstguess.network.tensors import Weights


@cache
def a_million(seed: int) -> NDArray[np.uint32]:
    return member_seeds(seed, 0, 1_000_000)


@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**64 + 5])
def test_a_million_members_have_a_million_seeds(seed: int) -> None:
    seeds = a_million(seed)
    assert seeds.dtype == np.uint32
    assert len(np.unique(seeds)) == 1_000_000


def test_the_last_members_too() -> None:
    assert len(np.unique(member_seeds(3, 2**32 - 100_000, 2**32))) == 100_000
    with pytest.raises(InvalidInput, match="members"):
        member_seeds(3, 2**32, 2**32 + 1)


def test_a_member_depends_on_its_number_only() -> None:
    np.testing.assert_array_equal(member_seeds(7, 0, 1000)[400:500], member_seeds(7, 400, 500))


@pytest.mark.parametrize(("a", "b"), [(0, 1), (1, 2), (0, 2**32), (5, 5 + 2**64)])
def test_seeds_are_unrelated(a: int, b: int) -> None:
    """Bits of two seeds' values differ half the time: 32·10⁶ bits, 6 standard errors, false alarm 2e-9."""
    first, second = a_million(a), a_million(b)
    share = np.unpackbits((first ^ second).view(np.uint8)).mean()
    assert abs(share - 0.5) < 6 * 0.5 / math.sqrt(32e6)
    # 10⁶ values of each among 2³²: 10¹²/2³² = 233 in common by chance, 6 standard deviations
    assert abs(len(np.intersect1d(first, second)) - 232.8) < 6 * math.sqrt(232.8)
    assert np.sum(first == second) <= 3  # the same member: 10⁶/2³² expected


def test_neighbours_are_unrelated() -> None:
    seeds = a_million(0)
    share = np.unpackbits((seeds[1:] ^ seeds[:-1]).view(np.uint8)).mean()
    assert abs(share - 0.5) < 6 * 0.5 / math.sqrt(32 * 999_999)


@pytest.mark.parametrize("bad", [-1, 1.5, "a", True, None])
def test_bad_seeds(bad: object) -> None:
    with pytest.raises(InvalidInput, match="seed"):
        member_seeds(bad, 0, 1)  # type: ignore[arg-type]


def test_ties_have_a_stream_of_their_own() -> None:
    assert tie_stream(0, 1).random() != tie_stream(0, 2).random()
    assert tie_stream(0, 1).random() == tie_stream(0, 1).random()


@pytest.mark.parametrize("init", ["normal", "uniform", "orthogonal"])
@pytest.mark.parametrize("shape", [(200, 100), (100, 200)])
def test_weights_have_the_variance_asked_for(init: str, shape: tuple[int, int]) -> None:
    """20 000 numbers: 6 standard errors of a variance (kurtosis ≤ 3) are 6·√(2/20 000) = 6 %, false alarm 2e-9."""
    generator = torch.Generator().manual_seed(1)
    w = fill_weights(torch.empty(shape), generator, Weights(shape, shape[1], 2.0, 0.0, init))  # type: ignore[arg-type]
    assert abs(float(w.square().mean()) * shape[1] / 2.0 - 1.0) < 0.06
    assert abs(float(w.mean())) < 6 * math.sqrt(2.0 / shape[1] / w.numel())
    if init == "orthogonal":
        gram = w.T @ w if shape[0] > shape[1] else w @ w.T
        off = gram - torch.diag(gram.diagonal())
        assert float(off.abs().max()) < 1e-5
    if init == "uniform":
        assert float(w.abs().max()) <= math.sqrt(6.0 / shape[1]) * (1 + 1e-6)


def test_members_share_no_weights() -> None:
    """Weights of one layer in 50 members and two seeds: no number occurs in two of them at the same place."""
    models = [build(mlp(1), 20, width=10, seed=s, member=m) for s in (0, 1) for m in range(50)]
    stack = np.array([model[0].weight.detach().numpy().ravel() for model in models])
    correlation = np.corrcoef(stack)
    off = correlation[~np.eye(100, dtype=bool)]
    assert np.abs(off).max() < 6.5 / math.sqrt(200)  # 4950 pairs: false alarm 4e-7
