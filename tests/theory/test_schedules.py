"""Learning rates over training."""

import numpy as np
import pytest
import torch

import firstguess as fg
from firstguess.theory.training.flow import DescentTask, descend

NET = "2 x [dense(weight_var=2) > relu] > dense(weight_var=2)"


def test_in_torch_they_are_factors():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    ours = fg.schedules.warmup(fg.schedules.cosine(1.0, steps=20), steps=5)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, ours)
    for k in range(25):
        assert scheduler.get_last_lr()[0] == pytest.approx(0.5 * ours(k))
        optimizer.step()
        scheduler.step()


def test_a_cosine_and_a_line_are_those_of_torch():
    optimizers = [torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5) for _ in range(2)]
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizers[0], 20)
    linear = torch.optim.lr_scheduler.LinearLR(optimizers[1], 1.0, 0.0, total_iters=20)
    ours = (fg.schedules.cosine(0.5, steps=20), fg.schedules.linear(0.5, steps=20))
    for k in range(21):
        for optimizer, scheduler, rate in zip(optimizers, (cosine, linear), ours, strict=True):
            assert scheduler.get_last_lr()[0] == pytest.approx(rate(k), abs=1e-12)
            optimizer.step()
            scheduler.step()


def test_a_rate_above_the_limit_between_looks_is_found():
    with pytest.raises(fg.InvalidInput, match="at step 7"):
        fg.predict_training(
            NET, data=fg.data.two_blobs(20, 5), lr=lambda k: 10.0 if k == 7 else 1e-5, steps=[5, 10], trust=False
        )
    with pytest.raises(fg.InvalidInput, match="at step 3"):
        fg.predict_training(NET, data=fg.data.two_blobs(5, 5), lr=lambda k: float("nan") if k == 3 else 1e-5, steps=5)


def test_the_flow_waits_for_a_warm_up():
    """Small rates first: the flow must not take over before the large ones are known to be like it."""
    data = fg.data.two_blobs(40, 10)
    p = fg.predict(NET, data=data, tangent=True, width=300, draws=1)
    start = np.random.default_rng(0).normal(size=(80, 5))
    top = float(np.linalg.eigvalsh(p.tangent)[-1] / 80)
    rate = fg.schedules.warmup(1.5 / top, steps=60)
    both = [
        list(
            descend(
                DescentTask(np.asarray(data.y), 2, 5), p.tangent, start, rate, np.array([0, 200]), spread=top, exact=e
            )
        )
        for e in (False, True)
    ]
    size = np.sqrt(np.mean(both[1][-1].z ** 2))
    assert np.sqrt(np.mean((both[0][-1].z - both[1][-1].z) ** 2)) < 0.01 * size


def test_memory_is_refused_before_anything_is_done():
    with pytest.raises(fg.InvalidInput, match=r"a random subset of \d+ points"):
        fg.predict_training(NET, data=fg.data.two_blobs(1000, 5), memory=1e6)
