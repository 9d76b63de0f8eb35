"""What is left of the hidden direction while guesses are absorbed, theory.md (54): against a plain loop."""

from __future__ import annotations

import math

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
    assert abs(np.corrcoef(start, other)[0, 1]) < 5.5 / math.sqrt(64)  # another seed: 0 ± 1/√units
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
