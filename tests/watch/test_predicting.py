"""What theory expects of a watched training: exact where it is, and silent, with the reason, where it has nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from small_models import points, some_labels
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import firstguess as fg

pytestmark = pytest.mark.usefixtures("one_thread")


def blobs(n: int = 120, classes: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    y = some_labels(n, classes)
    x = points(n, 20)
    x[torch.arange(n), y] += 1.0
    return x + 0.5, y


def linear(outputs: int) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(20, outputs))


def run(watch: fg.Watch, model: nn.Module, x: torch.Tensor, y: torch.Tensor, optimizer: Any, steps: int = 60) -> Any:
    for k in range(steps):
        watch.step(k)
        optimizer.zero_grad()
        out = model(x)
        loss = nn.functional.cross_entropy(out, y) if out.shape[1] > 1 else _binary(out[:, 0], y)
        loss.backward()
        optimizer.step()
    return watch.finish(steps)


def _binary(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.binary_cross_entropy_with_logits(z, y.float())


@pytest.mark.parametrize(("outputs", "classes"), [(2, 2), (1, 2), (3, 3)])
def test_one_layer_is_predicted_exactly(outputs: int, classes: int) -> None:
    """Its tangent kernel never changes: the held points are all points, so prediction and training are the same."""
    model = linear(outputs)
    x, y = blobs(classes=classes)
    rate = 0.02
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    watch = fg.Watch(model, (x, y), optimizer=optimizer, points=120, cost=None)
    seen = run(watch, model, x, y, optimizer)
    assert seen.predicted is not None, seen.unpredicted
    expected, found = seen.predicted.curves, seen.curves
    # A point whose two largest logits are within rounding of each other may fall on either side.
    np.testing.assert_allclose(expected.largest.mean, found.largest.draws[0], atol=2 / 120)
    np.testing.assert_allclose(expected.loss.mean, found.loss.draws[0], rtol=1e-3)
    assert seen.difference <= 2 / 120
    assert found.loss.draws[0, 0] - found.loss.draws[0, -1] > 0.05  # there was something to predict
    assert "largest share off by at most" in str(seen)


def test_a_schedule_is_followed() -> None:
    model = linear(2)
    x, y = blobs()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 20, 0.1)
    watch = fg.Watch(model, (x, y), optimizer=optimizer, points=120)
    for k in range(60):
        watch.step(k)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        schedule.step()
    seen = watch.finish()
    assert seen.predicted is not None, seen.unpredicted
    np.testing.assert_allclose(seen.predicted.curves.loss.mean, seen.loss.draws[0], rtol=1e-3)
    said = fg.Watch(linear(2), (x, y), lr=lambda step: 0.02 * 0.1 ** (step // 20), points=120)
    model = linear(2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    own = fg.Watch(model, (x, y), lr=lambda step: 0.02 * 0.1 ** (step // 20), points=120)
    run(own, model, x, y, optimizer)
    assert own.result.predicted is not None
    np.testing.assert_allclose(own.result.predicted.curves.loss.mean, seen.predicted.curves.loss.mean, rtol=1e-6)
    assert said.result.unpredicted == ""


def relu(norm: Callable[[int], nn.Module] | None = None) -> nn.Sequential:
    middle = [norm(30)] if norm is not None else []
    return nn.Sequential(nn.Linear(20, 30), *middle, nn.ReLU(), nn.Linear(30, 2))


def looks_trained() -> nn.Module:
    model = relu()
    with torch.no_grad():
        model[0].weight += torch.outer(points(30), points(20, seed=1))  # a direction that all rows share
    return model


class Unread(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = relu()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x) * torch.sigmoid(x.mean(1, keepdim=True))


def frozen() -> nn.Module:
    model = relu()
    model[0].weight.requires_grad_(False)
    return model


@pytest.mark.parametrize(
    ("make", "options", "why"),
    [
        (Unread, {"lr": 0.01}, "could not be read"),
        (looks_trained, {"lr": 0.01}, "look trained"),
        (frozen, {"lr": 0.01}, "frozen"),
        (relu, {"lr": 1e9}, "a learning rate below"),
        (lambda: linear(1), {"lr": 0.01, "optimizer": "adam"}, "Adam on one logit"),
    ],
)
def test_what_cannot_be_predicted_is_said_in_the_result(make: Any, options: dict[str, Any], why: str) -> None:
    model = make()
    x, y = blobs()
    watch = fg.Watch(model, (x, y), **options)
    seen = run(watch, model, x, y, torch.optim.SGD(linear(2).parameters(), lr=0.1), steps=3)
    assert seen.predicted is None
    assert why in seen.unpredicted
    assert f"not: {seen.unpredicted}"[:40] in " ".join(str(seen).split())


def test_a_prediction_is_made_when_it_is_asked_for_and_within_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaving the block predicts nothing; printing does, its time is part of the cost, and it ends when time is up."""
    from firstguess.watch import loop as predicting

    torch.manual_seed(0)
    x, y = torch.randn(64, 5), torch.arange(64) % 2
    model = nn.Linear(5, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    asked: list[float] = []
    real = predicting.predict_training
    monkeypatch.setattr(predicting, "predict_training", lambda *a, **k: asked.append(0.0) or real(*a, **k))
    for seconds in (20.0, 1e-6):
        with fg.Watch(model, (x, y), optimizer=optimizer, predict_seconds=seconds) as watch:
            for k in range(20):
                watch.step(k)
        assert not asked
        said = " ".join(str(watch.result).split())
        assert asked
        assert "the prediction took" in said
        assert watch.result.full_cost.predicting > 0
        assert ("seconds were up at step" in said) == (seconds < 1)
        asked.clear()


def test_without_labels_from_the_middle_or_unasked_nothing_is_predicted() -> None:
    x, y = blobs()
    for data, first, options, why in (
        (x, 0, {"lr": 0.01}, "some points have no label"),
        ((x, y), 7, {"lr": 0.01}, "began at step 7"),
        ((x, y), 0, {}, ""),
    ):
        watch = fg.Watch(linear(2), data, **options)
        watch.step(first)
        watch.step(first + 1)
        assert watch.result.predicted is None
        assert watch.result.unpredicted.startswith("the watch began" if "began" in why else why)
    assert "predicted" not in str(watch.result)


@pytest.mark.parametrize(
    ("make", "known"),
    [
        (lambda p: torch.optim.SGD(p, lr=0.1), True),
        (lambda p: torch.optim.Adam(p, lr=1e-3), True),
        (lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.0), True),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), False),
        (lambda p: torch.optim.AdamW(p, lr=1e-3), False),
        (lambda p: torch.optim.Adam(p, lr=1e-3, betas=(0.5, 0.9)), False),
        (lambda p: torch.optim.RMSprop(p, lr=1e-3), False),
    ],
)
def test_optimizers_that_theory_knows(make: Callable[[Any], Any], known: bool) -> None:
    model = relu()
    x, y = blobs()
    optimizer = make(list(model.parameters()))
    loader = DataLoader(TensorDataset(x, y), batch_size=60)
    watch = fg.Watch(model, loader, optimizer=optimizer)
    seen = run(watch, model, x, y, optimizer, steps=4)
    assert (seen.predicted is not None) == known, seen.unpredicted
    if known:
        assert seen.predicted.provenance["optimizer"] == ("sgd" if isinstance(optimizer, torch.optim.SGD) else "adam")
    else:
        assert "is not one of plain SGD and Adam" in seen.unpredicted
