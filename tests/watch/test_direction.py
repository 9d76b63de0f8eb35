"""What is left of the hidden direction while guesses are absorbed, theory.md (54): against a plain loop."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch
from scipy import stats
from small_models import points, some_labels
from torch import nn

import firstguess as fg

pytestmark = pytest.mark.usefixtures("one_thread")


def network(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(12, 60), nn.ReLU(), nn.Linear(60, 64), nn.ReLU(), nn.Linear(64, 3))


def others(seed: int) -> np.ndarray:
    return hidden(network(seed), points(120, 12))


def hidden(model: nn.Sequential, x: torch.Tensor) -> np.ndarray:
    with torch.no_grad():
        return model[:-1](x).double().mean(0).numpy()


def test_direction_is_that_of_a_plain_loop() -> None:
    x, y = points(120, 12), some_labels(120, 3)
    model = network(3)
    watch = fg.Watch(model, (x, y), points=120)
    start = hidden(model, x)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for step in range(30):
        watch.step(step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    watch.finish(30)
    found = watch.result
    end, other = hidden(model, x), hidden(network(4), x)
    assert found.direction[0] == pytest.approx(1.0)
    assert found.direction[-1] == pytest.approx(np.corrcoef(start, end)[0, 1], abs=1e-5)
    assert found.direction_ranks[-1] == pytest.approx(stats.kendalltau(start, end).statistic, abs=1e-6)
    # Other seeds: 0 by both measures, with the scatter that is said; 5.6 standard errors of 60 networks' mean squares.
    pairs = [(np.corrcoef(start, h)[0, 1], stats.kendalltau(start, h).statistic) for h in map(others, range(4, 64))]
    said = re.search(r"another seed: 0 ± ([\d.]+) and 0 ± ([\d.]+)\)", " ".join(str(found).split()))
    assert said is not None
    for values, scatter in zip(np.transpose(pairs), said.groups(), strict=True):
        ratio = float(np.square(values).mean()) / float(scatter) ** 2
        assert abs(ratio - 1.0) <= 5.6 * math.sqrt(2 / 60) + 0.05  # of which two digits are shown
    assert np.corrcoef(start, other)[0, 1] == pytest.approx(pairs[0][0])
    assert found.direction[-1] > 0.8
    assert "hidden direction that is left" in str(found)
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert found.to_dict()["direction"][0] == pytest.approx(1.0)


def test_no_hidden_layer_no_direction() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    x, y = points(80, 12), some_labels(80, 3)
    watch = fg.Watch(model, (x, y))
    watch.step(0)
    found = watch.result
    assert np.isnan(found.direction).all()
    assert "hidden direction" not in str(found)
