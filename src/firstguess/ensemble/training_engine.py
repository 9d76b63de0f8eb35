"""Train descriptions: data and settings checked, groups of members trained side by side, each followed."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from firstguess.base import checks
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.threads import cores, torch_threads
from firstguess.ensemble.member_module import check_data, drawn, moments_of, resolve
from firstguess.ensemble.seeds import member_seeds, orders
from firstguess.ensemble.trained import TrainedMembers
from firstguess.ensemble.training_loop import Observe, Plan, Values, follow, member_store, plan
from firstguess.network.builders import as_network
from firstguess.network.layer import Mix, text
from firstguess.network.network import Network
from firstguess.network.tensors import Place
from firstguess.network.torch_ops import MIXES_POINTS, BatchCentre, MeanFree, ResidualSum
from firstguess.network.walk import every, needs_images, needs_tokens
from firstguess.theory.training.problem import labelled, with_classes


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
    _check_points(network, how, len(x), held is not None)
    trainer = DescriptionTrainer(
        network, x, labels, held_x, how, width=width, threads=workers, memory=_free_memory(), dtype=dtype
    )
    task = how.task(labels, None if held is None else held[1], network.classes, level)
    settings = {"network": str(network), "width": width, **how.recorded}
    kept = None
    if store is not None:
        empty = np.zeros(0)
        arrays = {"x": x, "y": labels, "held x": empty if held_x is None else held_x}
        arrays |= {"held y": empty if held is None else held[1], "rates": how.rates, "looks": how.looks}
        # Values of activations that a user wrote: their names do not say what they are.
        phis = [getattr(layer, "phi", None) for layer in every(network.layers)]
        own = [phi(np.linspace(-4.0, 4.0, 801)) for phi in phis if phi is not None and phi.source is not None]
        arrays["functions"] = np.array(own)
        kept = member_store(store, settings=settings, dtype=str(dtype), torch=torch.__version__, **arrays)
    origin = how.provenance(float(how.rates[0]), network=str(network), width=width)
    with torch_threads():  # which trainers set
        return follow(
            trainer, task, what=str(network), inits=inits, start=start, provenance=origin, store=kept, progress=progress
        )


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
            expected = f"at least 2 points in every batch, for {text(layer)}"
            got = f"{n} points in batches of {size}" + (f", cut to {own}" if own is not None else "")
            hint = f"another batch size, or {n - n % size} points"
            raise InvalidInput(expected, got=got, where="train(batch)", hint=hint)
        if held and own is not None:
            expected = "held-out points in a network without norms over batches of their own size"
            hint = "batchnorm without batch=: held-out points then get the training points' statistics"
            raise NotCovered(expected, got=text(layer), where="test", hint=hint)


def _free_memory() -> float:
    """Bytes that this machine can still give, or what any has."""
    try:
        return 0.8 * os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 4e9


_CACHE = 220_000  # numbers of one activation of a group in training
_CHUNK = 1 << 22  # numbers of one activation that are evaluated together where points do not see each other
_MOST = 16  # members of a group


class DescriptionTrainer:
    """Members as `member_module.build` makes them, several side by side: their losses are summed, one backward pass.

    Networks of images or tokens are trained one by one. Training points are evaluated as one batch; held-out ones
    after a norm over points are normalized by the training points' statistics at that step.
    """

    def __init__(
        self,
        network: Network,
        x: NDArray[np.float32],
        labels: NDArray[np.int64],
        held: NDArray[np.float32] | None,
        plan: Plan,
        *,
        width: int,
        threads: int,
        memory: float,
        dtype: torch.dtype = torch.float32,
        group: int | None = None,
    ) -> None:
        self.plan, self.classes, self.notes = plan, network.classes, ()
        alone = needs_images(network.layers) or needs_tokens(network.layers)
        if alone:
            self.notes = ("networks of images or tokens were trained one by one",)
        self._places = resolve(network, x.shape[1:], width=width, inputs=lambda: moments_of(x))
        points = x if held is None else np.concatenate([x, held])  # training points, then held-out ones
        self._x = torch.tensor(points if alone else points.reshape(len(points), -1), dtype=dtype)
        self._n, self._labels, self._dtype = len(x), torch.tensor(labels), dtype
        self._alone, self._mixes = alone, any(isinstance(m, MIXES_POINTS) for m in self._member(0).modules())
        self._nodes = list(_nodes(self._places))
        batch = plan.batch or self._n
        wanted = group or max(1, min(_MOST, _CACHE // (max(self._nodes) * batch)))
        self.group, self.threads = self._fitting(1 if alone else wanted, threads, memory)

    def _fitting(self, group: int, threads: int, memory: float) -> tuple[int, int]:
        """As many members and threads as memory has room for."""
        weights = sum(parameter.numel() for parameter in self._member(0).parameters())
        kept = 3.0 * sum(self._nodes) * (self.plan.batch or self._n)
        evaluated = 4.0 * max(self._nodes) * len(self._x)
        if not self._mixes:
            evaluated = min(evaluated, 4.0 * _CHUNK)

        def need(members: int) -> float:
            return self._dtype.itemsize * (members * (5.0 * weights + kept) + evaluated)

        while group > 1 and threads * need(group) > memory:
            group //= 2
        if need(group) > memory:
            expected = f"memory for one network in training, {need(group):.2g} bytes"
            hint = "a smaller batch, a smaller width, or fewer points"
            raise InvalidInput(expected, got=f"{memory:.2g} bytes that are free", where="train", hint=hint)
        return group, max(1, min(threads, int(memory // need(group))))

    @property
    def bitwise_group(self) -> int:
        """Those of a group: how sums are cut depends on how many there are."""
        return self.group

    def first(self, members: Sequence[int]) -> Iterator[Values]:
        """Logits at the start, of each."""
        torch.set_num_threads(1)  # OpenMP's setting belongs to the thread
        for member in members:
            yield self._evaluated(self._member(member), self._x[: self._n])

    def train(
        self, members: Sequence[int], looks: NDArray[np.int64], observe: Observe, stopped: Callable[[], bool]
    ) -> None:
        """Train these side by side: at most `group` of them."""
        torch.set_num_threads(1)
        plan, n = self.plan, self._n
        models = [self._member(member) for member in members]
        stack = None if self._alone else StackedLayers(models)
        trained = [p for p in (models[0].parameters() if stack is None else stack.parameters) if p.requires_grad]
        kind: Any = torch.optim.Adam if plan.optimizer == "adam" else torch.optim.SGD
        optimizer: torch.optim.Optimizer = kind(trained, lr=1.0, weight_decay=plan.decay, fused=True)
        places = {int(step): index for index, step in enumerate(looks)}
        alive = set(range(len(members)))
        rows = [orders(plan.seed, member, n, plan.batch) for member in members]
        for step in range(plan.steps + 1):
            if stopped():
                return
            optimizer.zero_grad()
            picked = torch.from_numpy(np.stack([next(own) for own in rows]))
            x = self._x[:n]
            if plan.batch is not None:
                x = x.index_select(0, picked.flatten())
            with torch.enable_grad():
                logits = models[0](x) if stack is None else stack.logits(x, shared=plan.batch is None)
                self._loss(logits, self._labels[picked].flatten(), picked.shape[1]).backward()
            # A function that runs in NumPy lets no gradient through: what comes before it would silently not learn.
            if step == 0 and (missed := sum(p.grad is None for p in trained)):
                got = f"gradients that do not reach {missed} of {len(trained)} parameters"
                hint = "fg.register_activation('mine', fn, derivative=slope)"
                raise NotCovered("activations whose derivative is known", got=got, where="train", hint=hint)
            if step in places:
                norms = gradient_norms(trained, len(members))
                for i in tuple(alive):
                    logits = self._evaluated(models[i], self._x)
                    held = logits[n:] if len(logits) > n else None
                    observe(members[i], places[step], logits[:n], held, norms[i])
                    if not np.isfinite(logits[:n]).all():
                        alive.discard(i)
                if not alive or step == plan.steps:
                    return
            optimizer.param_groups[0]["lr"] = float(plan.rates[step])
            optimizer.step()

    def _member(self, member: int) -> nn.Module:
        seed = int(member_seeds(self.plan.seed, member, member + 1)[0])
        return drawn(self._places, seed).to(self._dtype)

    def _loss(self, logits: Tensor, labels: Tensor, points: int) -> Tensor:
        """The sum over members of their mean losses over a batch of these many points."""
        if self.plan.loss == "squared":
            wanted = nn.functional.one_hot(labels, self.classes).to(logits.dtype)
            return 0.5 * (logits - wanted).square().sum() / points
        return nn.functional.cross_entropy(logits, labels, reduction="sum") / points

    def _evaluated(self, model: nn.Module, x: Tensor) -> Values:
        with torch.no_grad(), _statistics_of(model, self._n):
            parts = (x,) if self._mixes else x.split(max(1, _CHUNK // max(self._nodes)))
            return torch.cat([model(part) for part in parts]).numpy()


class StackedLayers:
    """Members that are the same sequence of dense layers and of modules without parameters, as one.

    Their parameters become views of the stacked ones, so that each model follows the training.
    """

    def __init__(self, models: Sequence[nn.Module]) -> None:
        self._model, self._members = models[0], len(models)
        self._stacked: dict[Tensor, nn.Parameter] = {}
        for own in zip(*(model.parameters() for model in models), strict=True):
            # matrices as (inputs, units): so are their gradients, and a fused step goes through both in order
            stacked = nn.Parameter(torch.stack([one.detach().t() for one in own]), requires_grad=own[0].requires_grad)
            for one, part in zip(own, stacked.detach(), strict=True):
                one.data = part.t()
            self._stacked[own[0]] = stacked
        self.parameters = tuple(self._stacked.values())

    def logits(self, x: Tensor, *, shared: bool) -> Tensor:
        """Logits of the first member's points, then of the next one's; `shared`: all have the same."""
        own = x.expand(self._members, -1, -1) if shared else x.unflatten(0, (self._members, -1))
        return self._through(self._model, own).flatten(0, 1)

    def _through(self, module: nn.Module, x: Tensor) -> Tensor:
        if isinstance(module, nn.Sequential):
            for part in module:
                x = self._through(part, x)
            return x
        if isinstance(module, ResidualSum):
            return self._through(module.shortcut, x) + module.scale * self._through(module.branch, x)
        if isinstance(module, nn.Linear):
            weight, bias = self._stacked[module.weight], cast("Tensor | None", module.bias)
            return torch.bmm(x, weight) if bias is None else torch.baddbmm(self._stacked[bias].unsqueeze(1), x, weight)
        if isinstance(module, nn.BatchNorm1d):
            centred = x - x.mean(1, keepdim=True)
            return centred * centred.square().mean(1, keepdim=True).add(module.eps).rsqrt()
        if isinstance(module, MIXES_POINTS):
            return torch.stack([module(own) for own in x])
        if isinstance(module, nn.GroupNorm):
            return module(x.flatten(0, 1)).unflatten(0, x.shape[:2])
        return module(x)  # unit by unit, or over the last axis


def gradient_norms(parameters: Iterable[nn.Parameter], members: int = 1) -> list[float]:
    """The norm of each member's gradient, of parameters that are stacked; NaN where there is none."""
    squares = [p.grad.double().square().view(members, -1).sum(1) for p in parameters if p.grad is not None]
    return torch.stack(squares).sum(0).sqrt().tolist() if squares else [math.nan] * members


@contextmanager
def _statistics_of(model: nn.Module, points: int) -> Generator[None]:
    """Norms over the data use the statistics of the first points, which are the training points; undone at the end."""
    kinds = nn.BatchNorm1d | nn.BatchNorm2d | MeanFree | BatchCentre
    norms: list[Any] = [module for module in model.modules() if isinstance(module, kinds)]
    for norm in norms:
        norm.forward = partial(_by_first, norm, points)
    try:
        yield
    finally:
        for norm in norms:
            del norm.forward


def _by_first(norm: nn.Module, points: int, x: Tensor) -> Tensor:
    first = x[:points]
    if isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d):
        variance, mean = torch.var_mean(first, [d for d in range(x.ndim) if d != 1], correction=0)
        return nn.functional.batch_norm(x, mean, variance, eps=norm.eps)
    return x - (first.mean() if isinstance(norm, MeanFree) else first.mean(0, keepdim=True))
