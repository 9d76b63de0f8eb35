"""Forward and backward passes of initializations, what every gradient passes, and mean squares by layer."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.data import Batch
from firstguess.ensemble.gradient_statistics import ALL, FAVOURED, OTHERS, WEIGHT
from firstguess.ensemble.member_statistics import Finding, FindingKind, ProbedLayer
from firstguess.modules.call_model import first_forward, mask_of, part
from firstguess.modules.guard import differentiable, hooked, restored
from firstguess.modules.hooks.session import Finder, Hooks, Spec, look
from firstguess.modules.members.initializers import BATCH_NORMS, is_hugging_face_conv1d, is_lookup, is_weighted
from firstguess.modules.outputs import LogitCaller, Pick, Tally, classes_of
from firstguess.network.torch_ops import BatchCentre, LeaveOneOutNorm, MeanFree

# The size of one point's gradient at a layer's weights, such that layers of any shape compare (theory.md (39)).

_AT_ONCE = 1 << 22  # numbers of one step: points are taken a few at a time


def weight_squares(
    grad: torch.Tensor, spec: Spec, size: int, given: tuple[nn.Module, torch.Tensor] | None = None, *, coupled: bool
) -> torch.Tensor | None:
    """By point, the squared gradient of its loss at the weights, for inputs of unit size: ‖∂L/∂W‖² / ‖h‖².

    With δ = ∂L/∂u at the layer's output u = W·h and positions p that share the weights (pixels, tokens),
    ∂L/∂W = Σ_p δ_p h_pᵀ, and ‖h‖² is the mean of ‖h_p‖² over positions (h_p: all that one output sees).

    It does not depend on shapes. Without positions it is Σ_i δ_i², which a wide dense layer multiplies going back by
    χ̃ = σw² E φ'² (theory.md (10)) whatever the widths: E δ_j² = φ'² Σ_i W_ij² δ_i², and W_ij² is σw²/fan-in on average.
    Where the terms of positions have nothing in common it is Σ_p ‖δ_p‖², which a convolution of any kernel and stride
    multiplies by the same χ̃. And an average over positions, which divides the gradient of each by their number, leaves
    the sum over them what it was. Where the input is not known (attention, recurrences) it is `bound`. None: not the
    shape that the layer had. `coupled`: the points of a batch see each other (a graph), and are positions of one.
    """
    x = spec.samples_first(grad, size)
    if x is None:
        return None
    if given is not None:
        module, h = given
        if not isinstance(module, (nn.Conv1d, nn.Conv2d)):
            sums = _dense(x, h, spec, size, coupled=coupled)
        else:
            sums = None if coupled else _conv(module, x, h, spec)
        if sums is not None:
            return sums
    return bound(x, spec.channel, coupled=coupled)


def bound(x: torch.Tensor, channel: int, *, coupled: bool = False) -> torch.Tensor:
    """By point, the larger of Σ_p ‖δ_p‖² and ‖Σ_p δ_p‖²: what `squares` is where no two positions see alike, and
    where all see the same; one without positions."""
    x = _rows(x, channel)
    x = x.flatten(0, 1).unsqueeze(0) if coupled else x
    return torch.maximum(x.square().sum((1, 2)), x.sum(1).square().sum(1))


def _rows(x: torch.Tensor, channel: int) -> torch.Tensor:
    """(points, positions, channels), in float64, whose squares reach further."""
    x = x.detach().to("cpu", torch.float64)
    if x.ndim < 3:
        return x.reshape(len(x), 1, -1)
    return x.movedim(channel, -1).flatten(1, -2)


def _dense(x: torch.Tensor, h: torch.Tensor, spec: Spec, size: int, *, coupled: bool) -> torch.Tensor | None:
    given = spec.samples_first(h, size)
    if given is None or given.shape[:-1] != x.shape[:-1]:
        return None
    n = 1 if coupled else len(x)
    return _by_point(x.reshape(n, 1, -1, x.shape[-1]), given.reshape(n, 1, -1, given.shape[-1]))


def _conv(module: nn.Conv1d | nn.Conv2d, x: torch.Tensor, h: torch.Tensor, spec: Spec) -> torch.Tensor | None:
    if spec.axis or spec.rows > 1 or len(h) != len(x) or h.ndim != x.ndim:
        return None
    groups, n = module.groups, len(x)
    channels = x.shape[1] // groups
    patches = h.shape[1] // groups * math.prod(module.kernel_size)
    positions = math.prod(x.shape[2:])
    step = max(1, _AT_ONCE // max(1, groups * positions * patches))
    found: list[torch.Tensor] = []
    for i in range(0, n, step):
        part = _patches(module, h[i : i + step]).reshape(-1, groups, patches, positions).transpose(2, 3)
        delta = x[i : i + step].reshape(-1, groups, channels, positions).transpose(2, 3)
        found.append(_by_point(delta, part))
    return torch.cat(found)


def _patches(module: nn.Conv1d | nn.Conv2d, h: torch.Tensor) -> torch.Tensor:
    """What each output position sees: (points, channels × kernel, positions)."""
    around: list[int] = []
    for axis in reversed(range(len(module.kernel_size))):  # `pad` begins with the last
        whole = module.dilation[axis] * (module.kernel_size[axis] - 1) if module.padding == "same" else 0
        even = 0 if isinstance(module.padding, str) else module.padding[axis]
        around += [whole // 2 + even, whole - whole // 2 + even]
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    h = F.pad(h, around, mode=mode)
    if h.ndim == 3:
        shape = [(1, v[0]) for v in (module.kernel_size, module.dilation, module.stride)]
        h = h.unsqueeze(2)
    else:
        shape = [cast("tuple[int, int]", v) for v in (module.kernel_size, module.dilation, module.stride)]
    kernel, dilation, stride = shape
    return F.unfold(h, kernel, dilation=dilation, stride=stride)


def _by_point(delta: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    """‖Σ_p δ_p h_pᵀ‖² over the mean of ‖h_p‖², of (points, groups, positions, channels in and out)."""
    n, groups, positions, out = delta.shape
    own = delta.to("cpu", torch.float64).square().sum((1, 2, 3))
    if positions == 1 and groups == 1:
        return own
    size = h.shape[-1]
    # Brought near 1, so that squares of tiny gradients are not lost in the number format.
    delta, unit = _near_one(delta)
    h, _ = _near_one(h)
    wide = min(positions * positions * 2, out * size) * groups
    step = max(1, _AT_ONCE // max(1, wide))
    found: list[torch.Tensor] = []
    for i in range(0, n, step):
        d, x = delta[i : i + step], h[i : i + step]
        if positions * (out + size) < out * size:  # products of positions are fewer than weights
            total = ((d @ d.mT) * (x @ x.mT)).sum((1, 2, 3), dtype=torch.float64)
        else:
            total = (d.mT @ x).square().sum((1, 2, 3), dtype=torch.float64)
        norm = x.square().sum((1, 2, 3), dtype=torch.float64) / (groups * positions)
        found.append(torch.where(norm > 0, total.clamp(min=0) / norm.clamp(min=1e-300), math.nan).cpu())
    seen = torch.cat(found) * unit.cpu().double() ** 2
    return torch.where(seen.isnan(), own, seen)  # an input of zeros, which has no size


def _near_one(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.detach()
    x = x if x.dtype in (torch.float32, torch.float64) else x.float()
    top = x.abs().amax((1, 2, 3)) if x.numel() else torch.ones(len(x))
    top = torch.where((top > 0) & top.isfinite(), top, torch.ones_like(top))
    return x / top[:, None, None, None], top


# What every gradient passes on its way back: the operations of one forward that no path to the input goes around.

_PRIME = (1 << 61) - 1  # paths are counted modulo this: a network of n skips has 2ⁿ
_MOST_NODES = 200_000  # of autograd's graph; an unrolled recurrence may have more, and then nothing is said


@dataclass(frozen=True)
class ResidualBlock:
    """The part between two operations of the backbone with several paths, on which there are layers with weights."""

    start: Any  # autograd's node of what enters it, and of what leaves it
    end: Any
    layers: tuple[str, ...]


@dataclass(frozen=True)
class Backbone:
    """`layers` with weights that every path from the logits to the first layer passes, and `blocks`; input first."""

    layers: tuple[str, ...]
    blocks: tuple[ResidualBlock, ...]
    after: Any = None  # what follows the last block and is of the kind that the others start from

    @property
    def residual(self) -> bool:
        """Whether blocks hold most layers: then the stream between them is what to follow (theory.md (39))."""
        return len(self.blocks) > 1 and sum(len(b.layers) for b in self.blocks) > len(self.layers)

    def stream(self) -> Iterator[tuple[str, str, Any]]:
        """(name, the layer it is read by or comes from, autograd's node) of the stream, input first."""
        for block in self.blocks:
            yield f"into {block.layers[0]}", block.layers[0], block.start
        if self.after is not None:
            yield f"after {self.blocks[-1].layers[-1]}", self.blocks[-1].layers[0], self.after


def backbone(output: Any, layers: Mapping[str, Any], lookups: Sequence[Any] = ()) -> Backbone | None:
    """The backbone between the logits' node and the first layer, or the lookup of tokens that makes the most of it.

    `layers`: autograd's node of what each layer with weights returned, in call order. An operation is on every path if
    as many paths go through it as there are at all: those to it times those from it.
    """
    order = _in_order(output)
    if order is None or not layers:
        return None
    place = {node: i for i, node in enumerate(order)}
    starts = [node for node in (next(iter(layers.values())), *lookups) if node in place]
    found = [_between(order, place, start, layers) for start in starts]
    return max(found, key=lambda b: (len(b.blocks), len(b.layers)), default=None)


def _in_order(output: Any) -> list[Any] | None:
    """Nodes that `output` comes from, each before those that it gets its inputs from."""
    done: set[Any] = set()
    order: list[Any] = []
    stack: list[tuple[Any, bool]] = [(output, False)]
    while stack:
        node, left = stack.pop()
        if left:
            order.append(node)
            continue
        if node in done:
            continue
        done.add(node)
        if len(done) > _MOST_NODES:
            return None
        stack.append((node, True))
        stack += [(parent, False) for parent, _ in node.next_functions if parent is not None and parent not in done]
    return order[::-1]


def _between(order: list[Any], place: dict[Any, int], start: Any, layers: Mapping[str, Any]) -> Backbone:
    last = place[start]
    parents = [[place[p] for p, _ in node.next_functions if p is not None] for node in order[: last + 1]]
    onward = [0] * len(order)  # paths from a node to the start
    onward[last] = 1
    for i in range(last - 1, -1, -1):
        onward[i] = sum(onward[p] for p in parents[i]) % _PRIME
    reached = [0] * len(order)  # paths from the output to a node
    reached[0] = 1
    for i in range(last):
        if reached[i] and onward[i]:
            for p in parents[i]:
                reached[p] = (reached[p] + reached[i]) % _PRIME
    total = onward[0]
    cut = [i for i in range(last + 1) if total and reached[i] * onward[i] % _PRIME == total]
    inside: dict[int, list[str]] = {}
    on: list[str] = []
    cuts = set(cut)
    for name, node in layers.items():
        i = place.get(node)
        if i is None or i > last or not onward[i]:
            continue
        if i in cuts:
            on.append(name)
        else:
            inside.setdefault(cut[bisect_left(cut, i) - 1], []).append(name)
    following = dict(pairwise(cut))  # of two on the backbone, the one nearer to the input
    tops = sorted(inside, reverse=True)
    blocks = tuple(ResidualBlock(order[following[top]], order[top], tuple(inside[top])) for top in tops)
    return Backbone(tuple(on), blocks, _after(order, cut, place, blocks))


def _after(order: list[Any], cut: list[int], place: dict[Any, int], blocks: tuple[ResidualBlock, ...]) -> Any:
    """After the last block, the first operation of the kind that blocks start from: an addition, a norm, a ReLU."""
    if len(blocks) < 2:
        return None
    kind = blocks[-1].start.name()
    for i in reversed([c for c in cut if c <= place[blocks[-1].end]]):
        if order[i].name() == kind:
            return order[i]
    return None


Member: TypeAlias = "Callable[[int], AbstractContextManager[nn.Module]]"

_STREAM = 0x6AD5  # keeps random labels apart from the streams that draw weights from the same seed


def loss_gradient(rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The gradient of each point's cross-entropy at its logits, in float64 and without cancellation where it is tiny.

    softmax − one-hot rounds to 0, or to noise of 1e-8, once the label's probability is near 1; its entry is minus
    the sum of the others. `rows` (points, classes), or (points,) for one logit of two classes.

    >>> loss_gradient(torch.tensor([[100.0, 0.0]]), torch.tensor([0]))[0].tolist()
    [-3.720075976020836e-44, 3.720075976020836e-44]
    """
    z = rows.detach().to("cpu", torch.float64)
    if z.ndim == 1:
        sign = 1.0 - 2.0 * labels
        return sign * torch.sigmoid(sign * z)
    g = torch.softmax(z, dim=1)
    index = labels[:, None]
    g.scatter_(1, index, 0.0)
    return g.scatter(1, index, -g.sum(1, keepdim=True))


def _total_square(grad: torch.Tensor) -> float:
    """Σ g² in float64, some millions at a time: a large model's gradient is not copied whole."""
    return sum(float(part.to("cpu", torch.float64).square().sum()) for part in grad.flatten().split(1 << 20))


class Passes:
    """Forward and backward passes of members over the batches."""

    def __init__(
        self, member: Member, batches: Sequence[Batch], seed: int, pick: Pick, labels: Literal["random"] | None
    ) -> None:
        self._member, self._batches, self._seed = member, batches, seed
        self._call = LogitCaller(pick)
        self.classes = 0
        self._tokens = 1
        self._coupled = False  # a model that takes whole batches only: its points may see each other
        self.findings: dict[tuple[str, str], Finding] = {}
        self.notes: list[str] = []
        self._nodes: dict[str, Any] = {}  # autograd's, of what layers with weights returned in the latest forward
        self._lookups: list[Any] = []
        self._given: dict[str, tuple[nn.Module, torch.Tensor]] = {}  # what layers got, likewise
        self.layers, spine = self._discover()
        self._specs = {spec.name: spec for spec in self.layers}
        if not self.layers:
            raise InvalidInput("a model that has a layer with weights", got="none that was called", where="the model")
        self._targets = self._labels(labels)
        self.points = sum(len(t) for t in self._targets)
        if self._coupled:
            self.notes.append("the model takes whole batches only: gradients are of a batch's loss, not of a point's")
        if len(batches) > 1:
            self.notes.append(f"{len(batches)} passes over batches of up to {max(b.size for b in batches)} points")
        self._got: dict[str, list[torch.Tensor]] = {}
        self._taken: dict[int, tuple[float, int]] = {}
        self.stream: tuple[ProbedLayer, ...] = ()  # what is followed besides the layers
        self._readers: dict[str, Spec] = {}
        self.path = self._way(spine)

    # Finding out what there is

    def _discover(self) -> tuple[tuple[Spec, ...], Backbone | None]:
        """Forwards over three and two samples: which axis grows tells samples from tokens and channels."""
        first = self._batches[0]
        finder, kinds, spine = Finder(), dict[str, bool](), None

        def see(name: str, module: nn.Module, tensor: torch.Tensor) -> None:
            finder.see(name, module, tensor)
            kinds[name] = is_weighted(module) or isinstance(module, nn.MultiheadAttention)
            self._note(name, tensor, weighted=kinds[name], lookup=is_lookup(module))

        with self._member(0) as model, differentiable(model), Hooks(model, see) as hooks:
            self._look(model)
            for size in (3, 2, first.size) if first.size >= 3 else (first.size,):
                if size == first.size and finder.order:  # only for a model that takes whole batches
                    break
                self._coupled = size == first.size and size > 3
                finder.begin(size)
                hooks.begin()
                self._forget()
                try:
                    with restored(model, parameters=False), first_forward(first):
                        raw, rows = self._call.rows(model, part(first, 0, size))
                        spine = self._spine(rows)
                except FirstguessError:
                    if size == first.size:
                        raise
                    finder.undo()
                    continue
                self.classes = classes_of(rows)
                self._tokens = raw.numel() // (size * (1 if rows.ndim == 1 else self.classes))
        self._forget()
        return tuple(spec for spec in finder.specs("position") if kinds[spec.name]), spine

    def _way(self, spine: Backbone | None) -> tuple[str, ...]:
        """What the growth is measured over, input first. Residual networks: what enters each block of the stream, and
        leaves the last. Others: the hidden layers with weights that every gradient passes; all hidden ones where there
        are no two such. The first is left out: its scale is that of the data."""
        if spine is not None and spine.residual:
            found = [(name, self._specs[reader]) for name, reader, _ in spine.stream() if reader in self._specs]
            self.stream = tuple(ProbedLayer(name, "stream", spec.nodes, False) for name, spec in found)
            self._readers = dict(found)
            return tuple(name for name, _ in found[1:])
        hidden = [layer.name for layer in self.layers[1:-1]]
        passed = [name for name in hidden if spine is not None and name in spine.layers]
        return tuple(passed if len(passed) > 1 else hidden)

    def _forget(self) -> None:
        self._nodes, self._lookups, self._given = {}, [], {}

    def _note(self, name: str, tensor: torch.Tensor, *, weighted: bool, lookup: bool = False) -> None:
        if weighted and tensor.grad_fn is not None:
            self._nodes[name] = tensor.grad_fn
        elif lookup and tensor.grad_fn is not None:
            self._lookups.append(tensor.grad_fn)

    def _spine(self, rows: torch.Tensor) -> Backbone | None:
        return None if rows.grad_fn is None else backbone(rows.grad_fn, self._nodes, self._lookups)

    def _look(self, model: nn.Module) -> None:
        by_batch = (m for m in model.modules() if isinstance(m, BATCH_NORMS) and (m.training or m.running_mean is None))
        own = (LeaveOneOutNorm, MeanFree, BatchCentre)
        if any(True for _ in by_batch) or any(isinstance(m, own) for m in model.modules()):
            coupled = "so that a point's gradient is that of all losses of its batch"
            self.notes.append(f"BatchNorm normalizes over the batch, {coupled}")

    def _labels(self, wish: Literal["random"] | None) -> list[torch.Tensor]:
        """One label for every point of every batch."""
        rng = np.random.default_rng([self._seed, _STREAM])
        targets: list[torch.Tensor] = []
        why = ""
        for batch in self._batches:
            mask = mask_of(batch)
            count = batch.size * self._tokens
            if self._tokens > 1 and mask is not None and mask.shape[1] == self._tokens:
                count = int(mask.sum())
            if self._tokens > 1:
                why = "tokens get uniformly random labels; attention makes a token's gradient that of several losses"
            elif wish == "random" or batch.labels is None:
                why = "labels are uniformly random" + (": the data have none" if batch.labels is None else "")
            else:
                targets.append(self._checked(batch.labels))
                continue
            targets.append(torch.from_numpy(rng.integers(0, self.classes, count)))
        if why:
            self.notes.append(why)
        return targets

    def _checked(self, labels: torch.Tensor) -> torch.Tensor:
        flat = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
        if flat.ndim == 2 and flat.shape[1] == self.classes and bool(((flat != 0).sum(1) == 1).all()):
            flat = flat.argmax(1)  # one-hot
        whole = flat.ndim == 1 and bool((flat == flat.round()).all() if flat.is_floating_point() else True)
        if not whole or int(flat.min()) < 0 or int(flat.max()) >= self.classes:
            got = f"shape {tuple(labels.shape)}" if not whole else f"{float(flat.min()):g} to {float(flat.max()):g}"
            expected, hint = f"labels 0…{self.classes - 1}, one per point", 'labels="random"'
            raise InvalidInput(expected, got=got, where="the labels", hint=hint)
        return flat.long()

    # Running

    def run(self, member: int) -> tuple[NDArray[np.float64], float]:
        """Mean squares (layers and stream, 4) of one member, and the share of guesses that its favoured class gets."""
        tally = Tally(self.classes, self._seed, member)
        self._got = {name: [] for name in (*self._specs, *self._readers)}
        with self._member(member) as model, differentiable(model), self._taken_at_once(model):
            model.zero_grad(set_to_none=True)
            for batch, labels in zip(self._batches, self._targets, strict=True):
                with Hooks(model, partial(self._watch, batch), enter=self._enter):
                    self._forget()
                    _, rows = self._call.rows(model, batch, copies=False)
                    if not rows.requires_grad:
                        got = "a model that cuts its graph (detach, no_grad)"
                        raise InvalidInput("logits that can be differentiated", got=got)
                    tally.add(rows.detach())
                    self._follow(rows, batch)
                    rows.backward(loss_gradient(rows, labels).to(rows))
                    del rows
            self._forget()  # the graph, whose hooks know this object: Python cannot collect such a circle
            weights = self._weight_squares(model)
            model.zero_grad(set_to_none=True)
        squares = self._squares(tally, weights)
        arrived = [squares[i, ALL] for i, layer in enumerate(self.layers) if self._got[layer.name]]
        if tally.undefined or np.isinf(squares).any() or np.isnan(arrived).any():
            squares[:] = math.nan
            self._blame(member)
        share = math.nan if tally.undefined else float(tally.fractions.max())
        return squares, share

    @contextmanager
    def _taken_at_once(self, model: nn.Module) -> Generator[None]:
        """In one batch, a weight's gradient is squared and dropped when it arrives: all together are as large as the
        model. (Those of several batches have to be added first.)"""
        self._taken = {}

        def take(parameter: torch.Tensor) -> None:
            if parameter.grad is not None and parameter.ndim > 1:
                self._taken[id(parameter)] = _total_square(parameter.grad), parameter.numel()
            parameter.grad = None

        known = list(model.parameters()) if len(self._batches) == 1 else []
        with hooked(p.register_post_accumulate_grad_hook(take) for p in known if p.requires_grad):
            yield

    def _enter(self, name: str, module: nn.Module, tensor: torch.Tensor | None) -> None:
        """Keep what dense layers and convolutions get; of others only the output's gradient is used."""
        known = isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d)) or is_hugging_face_conv1d(module)
        if tensor is not None and name in self._specs and known:
            self._given[name] = (module, tensor.detach())

    def _watch(self, batch: Batch, name: str, module: nn.Module, tensor: torch.Tensor) -> None:
        self._note(name, tensor, weighted=name in self._specs, lookup=is_lookup(module))
        if name in self._specs and tensor.requires_grad:
            # A hook of the tensor, not of the module: it also gets the gradient of values that an in-place
            # activation has overwritten since.
            tensor.register_hook(lambda grad: self._take(name, grad, batch))

    def _follow(self, rows: torch.Tensor, batch: Batch) -> None:
        """Watch the stream, of a member that has the same as the first."""
        spine = self._spine(rows) if self._readers else None
        for name, _, node in spine.stream() if spine is not None else ():
            if name in self._readers:
                node.register_prehook(lambda grads, name=name: self._take_stream(name, grads, batch))

    def _take_stream(self, name: str, grads: Sequence[torch.Tensor | None], batch: Batch) -> None:
        spec = self._readers[name]
        for grad in grads:
            if grad is None or not grad.ndim:
                continue
            x = spec.samples_first(grad, batch.size)
            if x is None and len(grad) == batch.size:  # windows, which its reader takes for samples, are cut later
                x = grad
            if x is not None:
                self._got[name].append(bound(self._by_token(x, batch), spec.channel, coupled=self._coupled))
                return

    def _take(self, name: str, grad: torch.Tensor, batch: Batch) -> None:
        spec, given = self._specs[name], self._given.pop(name, None)
        x = spec.samples_first(grad, batch.size)
        if x is None:
            return
        flat = self._by_token(x, batch)
        if flat is not x:
            found = bound(flat, -1, coupled=self._coupled)
        else:
            found = weight_squares(grad, spec, batch.size, given, coupled=self._coupled)
        if found is not None:
            self._got[name].append(found)

    def _by_token(self, x: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Where every token has its own logits, tokens are the points."""
        if self._tokens == 1 or x.ndim < 3 or x.shape[1] != self._tokens:
            return x
        mask = mask_of(batch)
        return x.flatten(0, 1) if mask is None or mask.shape[1] != self._tokens else x[mask.to(x.device)]

    def _squares(self, tally: Tally, weights: dict[str, float]) -> NDArray[np.float64]:
        labels = torch.cat(self._targets)
        favoured = labels == int(tally.fractions.argmax())
        followed = (*self.layers, *self.stream)
        out = np.full((len(followed), 4), math.nan)
        for i, layer in enumerate(followed):
            if parts := self._got[layer.name]:
                by_point = torch.cat(parts)
                out[i, ALL] = float(by_point.mean())
                if len(by_point) == len(labels):  # else a layer before tokens are told apart
                    for group, keep in ((FAVOURED, favoured), (OTHERS, ~favoured)):
                        out[i, group] = float(by_point[keep].mean()) if bool(keep.any()) else math.nan
            out[i, WEIGHT] = weights.get(layer.name, math.nan)
        return out

    def _weight_squares(self, model: nn.Module) -> dict[str, float]:
        modules = dict(model.named_modules())
        found: dict[str, float] = {}
        for name in self._specs:
            path = name.split("#")[0]
            own = list(modules["" if path == "(model)" else path].parameters())
            grads = [p.grad for p in own if p.ndim >= 2 and p.grad is not None]
            taken = [self._taken[id(p)] for p in own if id(p) in self._taken]
            total = sum(_total_square(g) for g in grads) + sum(square for square, _ in taken)
            size = sum(g.numel() for g in grads) + sum(count for _, count in taken)
            found[name] = total / size / self.points**2 if size else math.nan
        return found

    def _blame(self, member: int) -> None:
        """Name the first layer with NaN or Inf: in the forward pass, or else going back."""
        with self._member(member) as model:
            place = look(model, self._batches, pick=self._call.pick).nonfinite
        words = "NaN or Inf in some initialization: this layer is the first that has one"
        if not place:
            bad = [x.name for x in self.layers if any(not bool(torch.isfinite(g).all()) for g in self._got[x.name])]
            words = "NaN or Inf in gradients of some initialization: going back, the first is here"
            place = bad[-1] if bad else ""
        found = Finding(FindingKind.NONFINITE, f"{words}; left out", place)
        self.findings.setdefault((FindingKind.NONFINITE, place), found)

    def missing(self, squares: NDArray[np.float64]) -> list[Finding]:
        """Layers that no gradient reached in any member that is finite."""
        fine = np.isfinite(squares[:, len(self.layers) - 1, ALL])
        message = "no gradient arrives: the graph is cut after it (detach, no_grad, a function of NumPy's)"
        return [
            Finding(FindingKind.NO_GRADIENT, message, layer.name)
            for i, layer in enumerate(self.layers)
            if fine.any() and np.isnan(squares[fine, i, ALL]).all()
        ]
