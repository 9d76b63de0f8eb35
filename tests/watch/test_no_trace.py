"""A training with a watch is the same training, bit for bit."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from small_models import points, some_labels
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.utils.data import DataLoader, Dataset, TensorDataset, WeightedRandomSampler

import firstguess as fg

pytestmark = pytest.mark.usefixtures("one_thread")

STEPS = 25


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Dropout(0.3), nn.Linear(20, 3))


def cnn() -> nn.Module:
    body = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, momentum=None), nn.ReLU(), nn.Dropout2d(0.2), nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(nn.Unflatten(1, (1, 3, 4)), *body, nn.Flatten(), nn.Linear(4, 3))


def attention() -> nn.Module:
    layer = nn.TransformerEncoderLayer(4, 2, 8, 0.1, batch_first=True)
    return nn.Sequential(nn.Unflatten(1, (3, 4)), layer, nn.Flatten(), nn.Linear(12, 3))


def spectral() -> nn.Module:
    return nn.Sequential(spectral_norm(nn.Linear(12, 20)), nn.Tanh(), nn.Linear(20, 3))


class Counts(nn.Module):
    """Has state that is neither parameter nor buffer, and randomness of its own in every forward."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.calls, self.seen = nn.Linear(12, 3), 0, list[float]()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.seen.append(float(x.mean()))
        noise = random.random() + np.random.random() + torch.rand(())  # noqa: NPY002 - the generators that are checked
        return self.inner(x) + noise * self.calls


class Noisy(Dataset[Any]):
    """Augments with all three generators."""

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> Any:
        x = points(12, seed=index) + random.random() + float(np.random.random())  # noqa: NPY002
        return x + torch.rand(12), index % 3


def plain() -> Any:
    return DataLoader(TensorDataset(points(60, 12), some_labels(60, 3)), batch_size=10, shuffle=True)


def augmented() -> Any:
    return DataLoader(Noisy(), batch_size=10, shuffle=True, generator=torch.Generator().manual_seed(3))


def weighted() -> Any:
    sampler = WeightedRandomSampler([1.0, 2.0, 3.0] * 20, 60, generator=torch.Generator().manual_seed(4))
    return DataLoader(Noisy(), batch_size=10, sampler=sampler)


def generators() -> list[Any]:
    return [torch.get_rng_state().tolist(), random.getstate(), [str(x) for x in np.random.get_state()]]  # noqa: NPY002


def train(make: Callable[[], nn.Module], load: Callable[[], Any], *, watched: bool) -> tuple[Any, ...]:
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    model, loader = make(), load()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    watch = fg.Watch(model, loader, every=2, cost=None) if watched else None
    step, losses = 0, list[float]()
    while step < STEPS:
        for x, y in loader:
            if watch is not None:
                watch.step(step)
            step += 1
            out = model(x)
            loss = nn.functional.cross_entropy(out, y)
            if watch is not None:  # between forward and backward, with a graph and gradients alive
                watch.evaluating(step)
            loss.backward()
            losses.append(loss.item())
            optimizer.step()
            if step % 2:  # gradients stay over a look
                optimizer.zero_grad()
    state = {key: value.tolist() for key, value in model.state_dict().items()}
    grads = [None if p.grad is None else p.grad.tolist() for p in model.parameters()]
    modes = [module.training for module in model.modules()]
    hooks = [len(module._forward_hooks) + len(module._backward_hooks) for module in model.modules()]
    extra = (model.calls, model.seen) if isinstance(model, Counts) else ()
    opt = copy.deepcopy(optimizer.state_dict()["state"])
    flat = [[torch.as_tensor(v).tolist() for v in one.values()] for one in opt.values()]
    if watch is not None:
        assert len(watch.result.looks) > STEPS // 2
    return (
        state,
        grads,
        modes,
        hooks,
        extra,
        losses,
        flat,
        generators(),
        [p.requires_grad for p in model.parameters()],
    )


@pytest.mark.filterwarnings("ignore::firstguess.EarlyEvaluation")
@pytest.mark.parametrize("load", [plain, augmented, weighted])
@pytest.mark.parametrize("make", [mlp, cnn, attention, spectral, Counts])
def test_training_is_the_same_bit_for_bit(make: Callable[[], nn.Module], load: Callable[[], Any]) -> None:
    assert train(make, load, watched=True) == train(make, load, watched=False)


def test_gradients_under_autocast_do_not_lose_their_graph() -> None:
    """A look inside of autocast would else leave casted weights without a graph in its cache."""
    grads: list[Any] = []
    for watched in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 3))
        x, y = points(30, 12), some_labels(30, 3)
        watch = fg.Watch(model, (x, y)) if watched else None
        with torch.autocast("cpu", torch.bfloat16):
            if watch is not None:
                watch.step(0)
            nn.functional.cross_entropy(model(x), y).backward()
        grads.append([None if p.grad is None else p.grad.tolist() for p in model.parameters()])
    assert grads[0] == grads[1]
    assert None not in grads[0]


def test_frozen_batchnorms_stay_frozen_in_looks() -> None:
    """Those in eval mode while the rest trains normalize by their running statistics, as in training itself."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Linear(20, 3)).train()
    model[1].eval()
    model[1].running_mean.fill_(5.0)
    x = points(60, 12)
    watch = fg.Watch(model, x)
    watch.step(0)
    with torch.no_grad():
        share = np.bincount(model(x).argmax(1).numpy(), minlength=3) / 60
    assert watch.result.shares[0].tolist() == share.tolist()
    assert [m.training for m in model.modules()] == [True, True, False, True, True]


def test_a_look_with_an_error_inside_leaves_no_trace() -> None:
    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.broken = nn.Sequential(nn.Linear(12, 3), nn.BatchNorm1d(3)), False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = self.inner(x)
            if self.broken:
                raise RuntimeError("out of something")
            return out

    model = Fails()
    watch = fg.Watch(model, points(60, 12))
    watch.step(0)
    model.broken = True
    before = copy.deepcopy(model.state_dict()), generators()
    with pytest.warns(RuntimeWarning, match="looks ended at step 1: RuntimeError: out of something"):
        watch.step(1)
    watch.step(2)  # says nothing more
    assert all(torch.equal(value, before[0][key]) for key, value in model.state_dict().items())
    assert generators() == before[1]
    assert model.training
    assert watch.result.steps.tolist() == [0]
    assert "looks ended at step 1" in str(watch.result)
