"""Ensembles that are cut into blocks join to the very numbers of one run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import firstguess as fg
from firstguess.ensemble import member_statistics as sharding
from firstguess.ensemble.member_statistics import Members

pytestmark = pytest.mark.usefixtures("one_thread")

X = np.random.default_rng(8).standard_normal((30, 12), dtype=np.float32)
IMAGES = np.random.default_rng(9).standard_normal((12, 3, 6, 6), dtype=np.float32)
IDS = np.random.default_rng(10).integers(0, 50, (6, 8))


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 9), nn.ReLU(), nn.Linear(9, 3))


CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "dense": (fg.mlp(depth=2, classes=3), X, {"inits": 150, "width": 20}),
    "batchnorm, four moments": (fg.mlp(depth=1, norm="batchnorm"), X, {"inits": 150, "width": 20, "moments": 4}),
    "conv": (fg.cnn(depth=1), IMAGES, {"inits": 150, "width": 6}),
    "tokens": (fg.transformer(depth=1, width=8, heads=2), IDS, {"inits": 5}),
    "module": (net, X, {"inits": 7, "strategy": "loop"}),
}


def in_blocks(size: int, what: Any, data: Any, options: dict[str, Any]) -> tuple[Any, list[Members]]:
    found: list[Members] = []
    total = 1
    while sum(block.inits for block in found) < total:
        with pytest.raises(sharding.Cut) as cut, sharding.cut(sum(block.inits for block in found), size):
            fg.measure(what, data, **options)
        found.append(cut.value.members)
        total = cut.value.total
    with sharding.joined(found[::-1], size):
        return fg.measure(what, data, **options), found


@pytest.mark.parametrize("name", CASES)
def test_blocks_join_to_the_numbers_of_one_run(name: str) -> None:
    what, data, options = CASES[name]
    whole = fg.measure(what, data, **options)
    joined, found = in_blocks(2, what, data, options)
    assert len(found) > 2
    one, other = (m.to_dict() | {"seconds": 0, "notes": []} for m in (whole, joined))
    assert one == other
    np.testing.assert_array_equal(whole.guesses.fractions, joined.guesses.fractions)
    for a, b in zip(whole.kept_logits, joined.kept_logits, strict=True):
        np.testing.assert_array_equal(a, b)


def test_only_the_first_measurement_is_cut_and_none_outside() -> None:
    what, data, options = CASES["dense"]
    with pytest.raises(sharding.Cut), sharding.cut(0, 2):
        fg.measure(what, data, **options)
    assert fg.measure(what, data, **options).inits == 150
    with sharding.cut(0, 200):  # one block holds them all
        assert fg.measure(what, data, **options).inits == 150


@pytest.mark.parametrize("options", [{"precision": 0.2}, {"seconds": 60.0}])
def test_what_stops_by_itself_is_not_cut(options: dict[str, Any]) -> None:
    what, data, sizes = CASES["dense"]
    with sharding.cut(0, 2):
        assert fg.measure(what, data, **sizes, **options).inits > 2


def test_what_the_clock_decides_is_not_cut() -> None:
    torch.manual_seed(0)
    with sharding.cut(0, 2):
        assert fg.measure(net, X, inits=7).inits == 7
