"""What a user lends comes back bit for bit, also after an exception."""

from __future__ import annotations

import random
import threading
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn

from firstguess.base.errors import InvalidInput
from firstguess.data import collect
from firstguess.modules.engine import ModuleEngine

pytestmark = pytest.mark.usefixtures("one_thread")


class Model(nn.Module):
    """Everything that could be left changed; `lock` makes it impossible to deep-copy."""

    def __init__(self, lock: bool, fail_at: int = -1) -> None:
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(10), nn.Dropout()
        self.inner = nn.Sequential(nn.Linear(10, 8), nn.ReLU(inplace=True), nn.LSTM(8, 8, batch_first=True))
        self.head = nn.Linear(8, 3)
        self.lock = threading.Lock() if lock else None
        self.calls: list[int] = []
        self.cache: torch.Tensor | None = None
        self.fail_at = fail_at
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.append(len(x))
        self.steps += 1
        if 0 < self.fail_at <= len(self.calls):
            raise RuntimeError("in the middle")
        self.cache = self.inner(self.norm(x))[0]
        return self.head(self.drop(self.cache))


def state(model: nn.Module) -> dict[str, object]:
    """All there is, with identities, in a form that `==` compares."""
    found: dict[str, object] = {}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        grad = None if tensor.grad is None else (id(tensor.grad), tensor.grad.numpy().tobytes())
        where = (id(tensor), tensor.data_ptr(), tensor.dtype, tensor.device)
        found[name] = (*where, tensor._version, tensor.requires_grad, tensor.detach().numpy().tobytes(), grad)
    for name, module in model.named_modules():
        hooks = (list(module._forward_hooks), list(module._forward_pre_hooks))
        names = (list(vars(module)), list(module._buffers), list(module._parameters))
        found[f"{name}/"] = (module.training, type(module), hooks, names)
    if isinstance(model, Model):
        found["own"] = (list(model.calls), id(model.calls), id(model.cache))
    return found


def generators() -> tuple[bytes, bytes, object]:
    return torch.get_rng_state().numpy().tobytes(), np.random.get_state()[1].tobytes(), random.getstate()  # noqa: NPY002


@pytest.mark.parametrize("lock", [False, True])
@pytest.mark.parametrize("fail_at", [-1, 3, 9])
def test_model_and_generators_are_as_before(lock: bool, fail_at: int) -> None:
    model = Model(lock)
    loss = model(torch.randn(5, 10, requires_grad=True)).sum()
    loss.backward(retain_graph=True)
    model.inner.eval()
    model.head.bias.requires_grad_(False)
    seen: list[str] = []
    model.inner[0].register_forward_hook(lambda *_: seen.append("hook"))
    model.fail_at = fail_at + 1 if fail_at > 0 else -1
    x = torch.randn(40, 10)
    before, streams, data = state(model), generators(), x.clone()
    # A borrowed model starts each member with the calls it had, so only the early failure reaches it.
    fails = fail_at == 3 or (fail_at > 0 and not lock)
    with pytest.raises((InvalidInput, RuntimeError), match="in the middle") if fails else nullcontext():
        engine = ModuleEngine(model, collect(x, batch_size=10), init="xavier_normal" if lock else None)
        for _ in range(2):
            engine.run(0, 3)
    assert state(model) == before
    assert generators() == streams
    assert torch.equal(x, data)
    loss.backward()  # what autograd saved is still valid
    assert torch.backends.mha.get_fastpath_enabled()


def test_borrowed_and_copied_models_give_the_same_numbers() -> None:
    x = collect(torch.linspace(-1, 1, 200).reshape(20, 10))
    one, two = Model(lock=False), Model(lock=True)
    assert np.array_equal(*(ModuleEngine(m, x, strategy="loop").run(0, 3).stats for m in (one, two)))
    with pytest.raises(InvalidInput, match="deep-copied"):
        ModuleEngine(two, x, dtype=torch.float64)


def test_factories_leave_generators_alone() -> None:
    def factory() -> nn.Module:
        random.random(), np.random.rand()  # noqa: NPY002
        return nn.Linear(10, 2)

    streams = generators()
    x = torch.linspace(-1, 1, 200).reshape(20, 10)
    ModuleEngine(factory, collect(x)).run(0, 3)
    assert generators() == streams


def test_models_with_a_graph_in_an_attribute_are_copied() -> None:
    model = nn.Linear(10, 2)
    model.last = model(torch.ones(1, 10))  # not a leaf: `copy.deepcopy` refuses it
    engine = ModuleEngine(model, collect(torch.linspace(-1, 1, 200).reshape(20, 10)))
    assert engine._source.shared_copy is not None


def test_models_that_need_gradients_inside() -> None:
    class Force(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.energy = nn.Sequential(nn.Linear(10, 8), nn.Tanh(), nn.Linear(8, 1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.enable_grad():
                x = x.clone().requires_grad_()
                (force,) = torch.autograd.grad(self.energy(x).sum(), x)
            return force

    engine = ModuleEngine(Force(), collect(torch.linspace(-1, 1, 200).reshape(20, 10)))
    assert engine.run(0, 6).fractions.shape == (6, 10)
    assert engine.layers[-1].name == "(output)"
