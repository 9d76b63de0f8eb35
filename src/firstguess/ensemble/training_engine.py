"""Train descriptions: data and settings checked, the trainer chosen (batched, or one by one), members followed."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from firstguess._version import __version__
from firstguess.base import checks
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.threads import cores
from firstguess.ensemble.member_module import build, check_data, moments_of, resolve
from firstguess.ensemble.seeds import orders
from firstguess.ensemble.trained import TrainedMembers
from firstguess.ensemble.training_batched import BatchedTrainer, compile_ops
from firstguess.ensemble.training_loop import (
    MemberStore,
    Observe,
    Plan,
    Trainer,
    TrainingTask,
    Values,
    follow,
    mean_loss,
    plan,
    room_for,
)
from firstguess.network.builders import as_network
from firstguess.network.layer import Mix, text
from firstguess.network.network import Network
from firstguess.network.tensors import Place
from firstguess.network.walk import every
from firstguess.theory.training.problem import labelled, level_of, with_classes


def train_description(
    network: Network | str,
    data: Any,
    test: Any,
    *,
    width: int,
    inits: int,
    start: Any,
    level: float | None,
    threads: int | None,
    store: Any,
    progress: Any,
    classes: int | None,
    dtype: torch.dtype = torch.float32,
    **options: Any,
) -> TrainedMembers:
    """`fg.train` of a description."""
    network = as_network(network, classes, where="train")
    train, held = labelled(data, "data", np.float32), None if test is None else labelled(test, "test", np.float32)
    network = with_classes(network, classes, train, held)
    x, labels = check_data(train[0]), train[1]
    held_x = None if held is None else check_data(held[0])
    if held_x is not None and held_x.shape[1:] != x.shape[1:]:
        raise InvalidInput(f"held-out points of shape {x.shape[1:]}", got=held_x.shape[1:], where="test")
    how = plan(len(x), **options)
    width = checks.count(width, 1, "width", "train(width)", "width=1000")
    workers = cores() if threads is None else threads
    workers = checks.count(workers, 1, "number of threads", "train(threads)", "threads=2")
    trainer = _trainer(network, x, labels, held_x, how, width=width, threads=workers, dtype=dtype)
    task = TrainingTask(
        labels,
        None if held is None else held[1],
        network.classes,
        how.looks,
        mean_loss(how.loss),
        level_of(level, network.classes, labels),
        how.seed,
    )
    settings = {
        "network": str(network),
        "width": width,
        "optimizer": how.optimizer,
        "batch": how.batch,
        "loss": how.loss,
        "weight_decay": how.decay,
        "seed": how.seed,
    }
    kept = None
    if store is not None:
        empty = np.zeros(0)
        arrays = {"x": x, "y": labels, "held x": empty if held_x is None else held_x}
        arrays |= {"held y": empty if held is None else held[1], "rates": how.rates, "looks": how.looks}
        arrays["functions"] = _own_functions(network)
        kept = MemberStore.at(store, settings=settings, dtype=str(dtype), torch=torch.__version__, **arrays)
    origin = {"firstguess": __version__, "torch": torch.__version__, **settings}
    origin |= {"lr": float(how.rates[0]), "steps": how.steps}
    with _threads_kept():
        return follow(
            trainer,
            task,
            what=str(network),
            inits=inits,
            start=start,
            provenance=origin,
            store=kept,
            progress=progress,
        )


def _trainer(
    network: Network,
    x: NDArray[np.float32],
    labels: NDArray[np.int64],
    held: NDArray[np.float32] | None,
    how: Plan,
    *,
    width: int,
    threads: int,
    dtype: torch.dtype,
) -> Trainer:
    """Hand-batched where every layer has a backward pass, else one by one."""
    places = resolve(network, x.shape[1:], width=width, inputs=lambda: moments_of(x))
    _check_points(network, how, len(x), held is not None)
    common: dict[str, Any] = {"threads": threads, "memory": _free_memory(), "dtype": dtype}
    ops = compile_ops(places)
    if isinstance(ops, str):
        note = f"{ops} has no batched backward pass: networks were trained one by one, by autograd"
        nodes = list(_nodes(places))
        given: dict[str, Any] = {"width": width, "nodes": nodes, "notes": (note,)}
        return PlainTrainer(network, x, labels, held, how, **given, **common)
    return BatchedTrainer(ops, x, labels, held, how, classes=network.classes, **common)


def _nodes(places: Sequence[Place]) -> Iterator[int]:
    """Units of what comes out of every layer."""
    for place in places:
        for path in place.paths:
            yield from _nodes(path)
        yield place.after.nodes


def _check_points(network: Network, how: Plan, n: int, held: bool) -> None:
    """What norms over points cannot do: a batch of one, and held-out points where batches are their own."""
    for layer in every(network.layers):
        if Mix.POINTS not in layer.mixes:
            continue
        size, own = how.batch or n, getattr(layer, "batch", None)
        sizes = {size, n % size or size}
        if own is not None:
            sizes = {rest for one in sizes for rest in (min(own, one), one % own or own)}
        if 1 in sizes:
            raise InvalidInput(
                f"at least 2 points in every batch, for {text(layer)}",
                got=f"{n} points in batches of {size}" + (f", cut to {own}" if own is not None else ""),
                where="train(batch)",
                hint=f"another batch size, or {n - n % size} points",
            )
        if held and own is not None:
            raise NotCovered(
                "held-out points in a network without norms over batches of their own size",
                got=text(layer),
                where="test",
                hint="batchnorm without batch=: held-out points then get the training points' statistics",
            )


def _own_functions(network: Network) -> NDArray[np.float64]:
    """Values of activations that a user wrote: their names do not say what they are."""
    grid = np.linspace(-4.0, 4.0, 801)
    own = [getattr(layer, "phi", None) for layer in every(network.layers)]
    return np.array([phi(grid) for phi in own if phi is not None and phi.source is not None])


def _free_memory() -> float:
    """Bytes that this machine can still give, or what any has."""
    try:
        return 0.8 * os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 4e9


@contextmanager
def _threads_kept() -> Generator[None]:
    """Trainers set torch's number of threads; the setting that was there comes back."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


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
