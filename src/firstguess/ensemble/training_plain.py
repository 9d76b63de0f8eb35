"""Members trained one by one, as plain modules with autograd: for layers without a backward of ours."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.ensemble.member_module import build
from firstguess.ensemble.seeds import orders
from firstguess.ensemble.training_loop import Observe, Values
from firstguess.ensemble.training_plan import Plan
from firstguess.network.layer import Mix
from firstguess.network.network import Network
from firstguess.network.walk import every

_CHUNK = 1 << 22  # numbers of one activation that are carried together where points do not see each other


class PlainTrainer:
    """Each member is `build(network, x, …)` with torch's own optimizer; one at a time in each thread.

    Training points are looked at in train mode, all of them as one batch; held-out ones after a BatchNorm are
    normalized by the training points' statistics at that step.
    """

    group = 1
    bitwise_group = 1

    def __init__(
        self,
        network: Network,
        x: NDArray[np.float32],
        labels: NDArray[np.int64],
        held: NDArray[np.float32] | None,
        plan: Plan,
        *,
        width: int,
        nodes: Sequence[int],
        threads: int,
        memory: float,
        dtype: torch.dtype = torch.float32,
        notes: tuple[str, ...] = (),
    ) -> None:
        self.network, self.plan, self.width, self.notes = network, plan, width, notes
        self.classes = network.classes
        self._data, self._dtype = x, dtype
        self._x, self._y = _tensor(x, dtype), torch.tensor(labels)
        self._held = None if held is None else _tensor(held, dtype)
        self._mixes = any(Mix.POINTS in layer.mixes for layer in every(network.layers))
        self._widest = max(nodes)
        looked_at = 4 * self._widest * len(x) if self._mixes else 4 * _CHUNK
        need = 4.0 * (3 * sum(nodes) * (plan.batch or len(x)) + looked_at)
        self.threads = room_for(need, threads, memory)

    def first(self, members: Sequence[int]) -> Iterator[Values]:
        """Logits at the start, of each."""
        torch.set_num_threads(1)  # OpenMP's setting belongs to the thread
        for member in members:
            yield self._looked(self._member(member), self._x)

    def train(
        self, members: Sequence[int], looks: NDArray[np.int64], observe: Observe, stopped: Callable[[], bool]
    ) -> None:
        """One after another."""
        torch.set_num_threads(1)
        for member in members:
            if self._one(member, looks, observe, stopped):
                return

    def _one(self, member: int, looks: NDArray[np.int64], observe: Observe, stopped: Callable[[], bool]) -> bool:
        """Train one; True if it was stopped."""
        model, plan = self._member(member), self.plan
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = _optimizer(plan, trained)
        places = {int(step): index for index, step in enumerate(looks)}
        for step, batch in enumerate(orders(plan.seed, member, len(self._x), plan.batch)):
            if stopped():
                return True
            optimizer.zero_grad()
            picked = torch.from_numpy(batch)
            with torch.enable_grad():
                self._loss(model(self._x[picked]), self._y[picked]).backward()
            if step == 0:
                _all_reached(trained)
            if step in places:
                logits = self._looked(model, self._x)
                held = None if self._held is None else self._held_out(model, self._held)
                observe(member, places[step], logits, held, _norm(trained))
                if step == plan.steps or not np.isfinite(logits).all():
                    return False
            for group in optimizer.param_groups:
                group["lr"] = float(plan.rates[step])
            optimizer.step()
        return False

    def _member(self, member: int) -> nn.Module:
        model = build(self.network, self._data, width=self.width, seed=self.plan.seed, member=member)
        return model.to(self._dtype)

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        if self.plan.loss == "squared":
            wanted = nn.functional.one_hot(labels, self.classes).to(logits.dtype)
            return 0.5 * (logits - wanted).square().sum(1).mean()
        return nn.functional.cross_entropy(logits, labels)

    def _looked(self, model: nn.Module, x: Tensor) -> Values:
        with torch.no_grad():
            if self._mixes:
                return model(x).numpy()
            size = max(1, _CHUNK // self._widest)
            return torch.cat([model(part) for part in x.split(size)]).numpy()

    def _held_out(self, model: nn.Module, held: Tensor) -> Values:
        with _training_statistics(model, len(self._x)) as found:
            if found:
                self._looked(model, self._x)
                model.eval()
            return self._looked(model, held)


def room_for(need: float, threads: int, memory: float) -> int:
    """How many threads memory has room for, each of which needs `need` bytes."""
    if need > memory:
        raise InvalidInput(
            f"memory for one network in training, {need:.2g} bytes",
            got=f"{memory:.2g} bytes that are free",
            where="train",
            hint="a smaller batch, a smaller width, or fewer points",
        )
    return max(1, min(threads, int(memory // need)))


def _optimizer(plan: Plan, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    kind: Any = torch.optim.Adam if plan.optimizer == "adam" else torch.optim.SGD
    return kind(parameters, lr=1.0, weight_decay=plan.decay)


def _all_reached(parameters: list[nn.Parameter]) -> None:
    """A function that runs in NumPy lets no gradient through, and what comes before it would silently not learn."""
    missed = sum(p.grad is None for p in parameters)
    if missed:
        raise NotCovered(
            "activations whose derivative is known",
            got=f"gradients that do not reach {missed} of {len(parameters)} parameters",
            where="train",
            hint="fg.register_activation('mine', fn, derivative=slope)",
        )


def _norm(parameters: list[nn.Parameter]) -> float:
    return sum(float(p.grad.double().square().sum()) for p in parameters if p.grad is not None) ** 0.5


@contextmanager
def _training_statistics(model: nn.Module, points: int) -> Generator[bool]:
    """Norms over the data take down the statistics of the next batch, for eval mode; undone at the end.

    Whether there are any. torch takes down the unbiased variance: a part in n above what the batch was divided by.
    """
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)]
    for norm in norms:
        norm.track_running_stats, norm.momentum = True, 1.0
        like = next(model.parameters())
        norm.running_mean = torch.zeros(norm.num_features, dtype=like.dtype)
        norm.running_var = torch.ones(norm.num_features, dtype=like.dtype)
        norm.num_batches_tracked = torch.tensor(0)
    try:
        yield bool(norms)
    finally:
        model.train()
        for norm in norms:
            norm.track_running_stats, norm.running_mean, norm.running_var = False, None, None
            norm.num_batches_tracked = None


def _tensor(x: NDArray[np.float32], dtype: torch.dtype) -> Tensor:
    return torch.tensor(x).to(dtype)
