"""Descriptions, trained: data and settings checked, the engine chosen, members followed."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from firstguess._version import __version__
from firstguess.base import checks
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.threads import cores
from firstguess.ensemble.engine import check_data, moments_of
from firstguess.ensemble.resolved import resolve
from firstguess.ensemble.trained import TrainedMembers
from firstguess.ensemble.training_batched import BatchedTrainer, compile_ops
from firstguess.ensemble.training_loop import MemberStore, Trainer, TrainingTask, follow
from firstguess.ensemble.training_plain import PlainTrainer
from firstguess.ensemble.training_plan import Plan, mean_loss, plan
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
