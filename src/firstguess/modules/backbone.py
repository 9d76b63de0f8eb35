"""What every gradient passes on its way back: the operations of one forward that no path to the input goes around."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

_PRIME = (1 << 61) - 1  # paths are counted modulo this: a network of n skips has 2ⁿ
_MOST_NODES = 200_000  # of autograd's graph; an unrolled recurrence may have more, and then nothing is said


@dataclass(frozen=True)
class Block:
    """A stretch between two operations of the backbone with several paths, on which there are layers with weights."""

    start: Any  # autograd's node of what enters it, and of what leaves it
    end: Any
    layers: tuple[str, ...]


@dataclass(frozen=True)
class Backbone:
    """`layers` with weights that every path from the logits to the first layer passes, and `blocks`; input first."""

    layers: tuple[str, ...]
    blocks: tuple[Block, ...]
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
    """Nodes behind `output`, each before those that it gets its inputs from."""
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
    blocks = tuple(Block(order[following[top]], order[top], tuple(inside[top])) for top in sorted(inside, reverse=True))
    return Backbone(tuple(on), blocks, _after(order, cut, place, blocks))


def _after(order: list[Any], cut: list[int], place: dict[Any, int], blocks: tuple[Block, ...]) -> Any:
    """Behind the last block, the first operation of the kind that blocks start from: an addition, a norm, a ReLU."""
    if len(blocks) < 2:
        return None
    kind = blocks[-1].start.name()
    for i in reversed([c for c in cut if c <= place[blocks[-1].end]]):
        if order[i].name() == kind:
            return order[i]
    return None
