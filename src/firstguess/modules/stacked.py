"""Several members at once by `torch.func`: their parameters stacked, one vmapped forward with the probes inside."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import torch
from torch import nn
from torch.func import functional_call, vmap
from torch.utils import _pytree as pytree

from firstguess.base.text import brief as short_time
from firstguess.data import Batch
from firstguess.modules.call_model import Caller, mask_of
from firstguess.modules.guard import restored
from firstguess.modules.hooks import accumulators
from firstguess.modules.hooks.accumulators import BatchSums, LayerRecorder, Record
from firstguess.modules.hooks.session import Hooks
from firstguess.modules.members.initializers import RUNNING_NORMS
from firstguess.modules.members.sources import Source
from firstguess.modules.outputs import Tally, own_tokens

Strategy: TypeAlias = Literal["auto", "loop", "vmap"]
Way: TypeAlias = Literal["loop", "channels last", "vmap"]

_RUNS: dict[Way, int] = {"loop": 4, "channels last": 3, "vmap": 2}  # timed before the choice; the best of them counts
_GAIN = 0.95  # another way must be this much faster than the loop
_WORDS: dict[Way, str] = {
    "loop": "one by one",
    "channels last": "one by one, with channels last in memory",
    "vmap": "several at once by vmap",
}


class StrategyChoice:
    """Tries each way, then stays with the fastest.

    >>> choice = StrategyChoice("auto", ["loop", "vmap"])
    >>> for seconds in (0.02, 0.01, 0.01, 0.01):
    ...     choice.record(choice.way(), seconds)
    >>> choice.way(members=1), choice.way()  # one member is no trial of several at once
    ('loop', 'vmap')
    >>> choice.record("vmap", 0.004)
    >>> choice.record("vmap", 0.005)
    >>> choice.way(), choice.note
    ('vmap', 'members run several at once by vmap: 4 ms each (one by one: 10 ms)')
    """

    def __init__(self, strategy: Strategy, ways: list[Way]) -> None:
        self.asked = strategy != "auto"
        self._ways: list[Way] = ways if strategy == "auto" else [strategy]
        self._times: dict[Way, list[float]] = {way: [] for way in self._ways}
        self._dropped: dict[Way, str] = {}

    def way(self, members: int = 2) -> Way:
        """Choose for the next one, of this many `members`."""
        for way in self._ways:
            if len(self._times[way]) < _RUNS[way] and not self.asked and (way != "vmap" or members > 1):
                return way
        return self._best()

    def _best(self) -> Way:
        usual = self._ways[0]
        best = min(self._ways, key=self.seconds)
        return best if self.seconds(best) < _GAIN * self.seconds(usual) else usual

    def seconds(self, way: Way | None = None) -> float:
        """Seconds of one member, in the chosen way; infinite if not known yet."""
        return min(self._times.get(way or self._best(), ()), default=math.inf)

    def record(self, way: Way, seconds: float) -> None:
        times = self._times[way]
        if len(times) < _RUNS[way]:
            times.append(seconds)

    def drop(self, way: Way, reason: str) -> None:
        self._ways.remove(way)
        self._dropped[way] = reason

    @property
    def note(self) -> str:
        best = self._best()
        words = f"members run {_WORDS[best]}"
        if self.asked:
            return f"{words}, as requested"
        known: list[Way] = [way for way in self._ways if self._times[way]]
        others = [f"{_WORDS[way]}: {short_time(self.seconds(way))}" for way in known if way != best]
        others += [f"{_WORDS[way]}: not possible, {reason}" for way, reason in self._dropped.items()]
        spent = f": {short_time(self.seconds(best))} each" if known else ""
        return f"{words}{spent}" + (f" ({'; '.join(others)})" if others else "")


def brief(error: Exception) -> str:
    """Why a way was dropped, in one line."""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


# From a model's output, the batch and what the output layer returned: what is counted, and the logits.
Logits: TypeAlias = "Callable[[Any, Batch, torch.Tensor | None], tuple[torch.Tensor, torch.Tensor]]"


def run_stacked(
    source: Source,
    seeds: Sequence[int],
    batches: Sequence[Batch],
    call: Caller,
    logits: Logits,
    recorders: Sequence[LayerRecorder],
    tallies: Sequence[Tally],
) -> None:
    """Fill each member's recorder and tally. Weights are the loop's: drawn one member at a time, then stacked."""
    model = source.shared_copy
    assert model is not None
    state: dict[str, list[torch.Tensor]] = {}
    for seed in seeds:
        with source.member(seed):
            for name, tensor in (*model.named_parameters(), *model.named_buffers()):
                state.setdefault(name, []).append(tensor.detach().clone())
    # Of buffers: running statistics, which a forward writes, or what differs; index tables and masks are shared.
    norms = (m for m in model.modules() if isinstance(m, RUNNING_NORMS))
    running = {id(buffer) for norm in norms for buffer in norm.buffers(recurse=False)}
    shared = {name for name, buffer in model.named_buffers() if id(buffer) not in running}
    own = {n: x for n, x in state.items() if n not in shared or not all(torch.equal(one, x[0]) for one in x[1:])}
    stacked = {name: torch.stack(tensors) for name, tensors in own.items()}
    del state, own
    with restored(model, parameters=False):  # what a module keeps of a vmapped call is of no use after it
        for batch in batches:
            rows, scores, found, powers, masked = _forward(model, stacked, batch, call, logits, recorders[0])
            tokens = own_tokens(batch, rows[0])
            layers = {name: accumulators.doubles(*sums) for name, sums in found.items()}
            shapes = {name: accumulators.doubles(sums)[0] for name, sums in powers.items()}
            for k, (recorder, tally) in enumerate(zip(recorders, tallies, strict=True)):
                tally.add(rows[k], tokens)
                for name, (ref, first, second, count) in layers.items():
                    points = count[k] if name in masked else float(count[k, 0])
                    recorder.take(name, BatchSums.shifted(ref[k], first[k], second[k], points))
                for name, sums in shapes.items():
                    recorder.shape(name, sums[k])
                recorder.logits(scores[k])  # after the layers before it, of which the first with a NaN is named


def _forward(
    model: nn.Module,
    stacked: dict[str, torch.Tensor],
    batch: Batch,
    call: Caller,
    logits: Logits,
    recorder: LayerRecorder,
) -> tuple[torch.Tensor, torch.Tensor, dict[str, tuple[torch.Tensor, ...]], dict[str, torch.Tensor], set[str]]:
    """What is counted and the logits (members, points, classes), sums of layers, their powers where these are asked
    for, and the names of those with a mask."""
    mask = mask_of(batch)
    at = places(model)
    masked: set[str] = set()
    found: dict[str, tuple[torch.Tensor, ...]] = {}
    powers: dict[str, torch.Tensor] = {}

    def see(name: str, _: nn.Module | None, tensor: torch.Tensor) -> None:
        if name == recorder.output:
            recorder.returned = tensor
            return
        spec = recorder.specs.get(name)
        x = None if spec is None else spec.samples_first(tensor, batch.size)
        if spec is None or x is None:
            return
        if (sums := recorder.powers(spec, x, mask)) is not None:
            powers[name] = sums
        x, keep = recorder.unpadded(x, mask)
        if keep is not None:
            found[name] = accumulators.masked_sums(x, keep)
            masked.add(name)
            return
        points = accumulators.matrix(x, spec.channel, recorder.node)
        found[name] = (*accumulators.plain_sums(points), torch.tensor([float(len(points))]))

    def one(
        tensors: dict[str, torch.Tensor],
    ) -> tuple[torch.Tensor, torch.Tensor, dict[str, tuple[torch.Tensor, ...]], dict[str, torch.Tensor]]:
        found.clear()
        powers.clear()
        hooks.begin()
        output = call(Functional(model, {name: tensors[first] for name, first in at if first in tensors}), batch)
        rows, scores = logits(output, batch, recorder.returned)
        recorder.returned = None  # vmap's, of no use outside of it
        return rows, scores, dict(found), dict(powers)

    with Hooks(model, see) as hooks:
        return *vmap(one, randomness="error")(stacked), masked


def places(model: nn.Module) -> list[tuple[str, str]]:
    """Where tensors live, each with the first name of what is there: tied ones have several places.

    A module that is used under several names is one place. `functional_call` ties by name instead, and swaps such a
    module's tensors once for every name, after which it restores the wrong ones.
    """
    first = {id(tensor): name for name, tensor in (*model.named_parameters(), *model.named_buffers())}
    found: list[tuple[str, str]] = []
    for path, module in model.named_modules():
        own = (
            *module.named_parameters(recurse=False, remove_duplicate=False),
            *module.named_buffers(recurse=False, remove_duplicate=False),
        )
        found += [(f"{path}.{name}" if path else name, first[id(tensor)]) for name, tensor in own]
    return found


class Functional(nn.Module):
    """A model with other parameters, for one call."""

    def __init__(self, model: nn.Module, tensors: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.__dict__["_inner"] = model
        self.__dict__["_tensors"] = tensors

    def parameters(self, recurse: bool = True) -> Any:
        return self.__dict__["_inner"].parameters(recurse)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return functional_call(self.__dict__["_inner"], self.__dict__["_tensors"], args, kwargs, tie_weights=False)

    def run_by(self, call: Callable[[Any, Any], Any], item: Any) -> Any:
        """What a user's `forward=` makes of the model and a batch: it may use any part of the model."""
        tensors = {f"inner.{name}": tensor for name, tensor in self.__dict__["_tensors"].items()}
        return functional_call(_Called(self.__dict__["_inner"], call), tensors, (item,), tie_weights=False)


class _Called(nn.Module):
    def __init__(self, inner: nn.Module, call: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.inner, self._call = inner, call

    def forward(self, item: Any) -> Any:
        return self._call(self.inner, item)


# A kept body under fresh heads: what it returns is computed once, and used for every member.

_PLAIN = (torch.Tensor, int, float, str, type(None))


@dataclass
class _Call:
    """One call of a kept module: what it got, what it returned, and what was recorded inside it."""

    given: list[Any]
    leaves: list[Any]
    spec: Any
    records: list[Record]


@dataclass
class FrozenBody:
    """The largest parts of a model whose parameters are all kept, with what they returned on every batch.

    A part is run again where it gets other inputs than before: after a fresh layer nothing is remembered in vain. What
    takes more than `memory` bytes is forgotten, and everything run in full.
    """

    parts: dict[str, nn.Module]
    memory: float
    off: bool = False
    reused: set[str] = field(default_factory=set[str])  # parts whose outputs were used again
    _calls: dict[tuple[str, int, int], _Call] = field(default_factory=dict[tuple[str, int, int], _Call])
    _bytes: int = 0

    @contextmanager
    def used(self, recorder: LayerRecorder) -> Generator[Callable[[int], None]]:
        """Within it the parts remember. Gives a function to be called with the number of each batch before it."""
        counts = Counter[str]()
        batch = 0

        def begin(number: int) -> None:
            nonlocal batch
            batch = number
            counts.clear()

        def remembering(path: str, forward: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                key = path, batch, counts[path]
                counts[path] += 1
                given = pytree.tree_leaves((args, kwargs))
                known = self._calls.get(key)
                if known is not None and _same(known.given, given):
                    self.reused.add(path)
                    for record in known.records:
                        recorder.replay(record)
                    return pytree.tree_unflatten(_copies(known.leaves), known.spec)
                if known is not None:  # other inputs: it comes after a fresh layer
                    return forward(*args, **kwargs)
                with recorder.remembered() as records:
                    output = forward(*args, **kwargs)
                self._keep(key, given, output, records)
                return output

            return call

        changed = [] if self.off else list(self.parts.items())
        for path, module in changed:
            module.forward = remembering(path, module.forward)
        try:
            yield begin
        finally:
            for _, module in changed:
                del module.forward

    def _keep(self, key: tuple[str, int, int], given: list[Any], output: Any, records: list[Record]) -> None:
        leaves, spec = pytree.tree_flatten(output)
        if self.off or not all(isinstance(leaf, _PLAIN) for leaf in (*leaves, *given)):
            return self.forget()
        self._bytes += sum(x.numel() * x.element_size() for x in (*leaves, *given) if isinstance(x, torch.Tensor))
        if self._bytes > self.memory:
            return self.forget()
        self._calls[key] = _Call(list(_copies(given)), list(_copies(leaves)), spec, records)
        return None

    def forget(self) -> None:
        """Run everything in full from now on."""
        self.off = True
        self._calls.clear()


def frozen_body(source: Source, memory: float) -> FrozenBody | None:
    """What all members share, to be run once; None where no part of a model is kept as a whole."""
    model = source.shared_copy
    parts = {} if model is None or not source.held else dict(_largest(model, "", source.held))
    return FrozenBody(parts, memory) if parts else None


def _largest(module: nn.Module, path: str, held: frozenset[str]) -> Iterator[tuple[str, nn.Module]]:
    for name, child in module.named_children():
        place = f"{path}.{name}" if path else name
        own = [f"{place}.{key}" for key, _ in child.named_parameters(remove_duplicate=False)]
        if own and held.issuperset(own) and "forward" not in vars(child):
            yield place, child
        else:
            yield from _largest(child, place, held)


def _same(one: list[Any], other: list[Any]) -> bool:
    def equal(a: Any, b: Any) -> bool:
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
            return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)
        return type(a) is type(b) and a == b

    return len(one) == len(other) and all(equal(a, b) for a, b in zip(one, other, strict=True))


def _copies(leaves: list[Any]) -> Iterator[Any]:
    """Of tensors: what comes after may change them in place."""
    return (leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves)
