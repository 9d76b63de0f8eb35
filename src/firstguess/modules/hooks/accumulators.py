"""Sums over the data of each layer's outputs, taken at once, before anything overwrites them.

A node is a channel at a position, and a data point a sample; with node="channel" a node is a channel, and every
position of every sample a data point. Sums are taken about each unit's first value, so that a unit which hardly moves
(c → 1) keeps its digits, unless units move so much that no digits are at stake.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from firstguess.base.gaussian import Array
from firstguess.base.threads import torch_threads
from firstguess.ensemble.higher_moments import member_shape
from firstguess.ensemble.member_statistics import BETWEEN, DEAD, MEAN, SPREAD
from firstguess.modules.hooks.session import Node, Spec
from firstguess.modules.outputs import contrasts

# Third and fourth moments of a module's units over the data, batch by batch: for `fg.measure(…, moments=4)`.


def central_sums(x: torch.Tensor, keep: torch.Tensor | None = None) -> torch.Tensor:
    """(points, units) → (5, units) in float64: count, mean, and Σ(x − mean)^r for r = 2, 3, 4.

    `keep`, of the same shape: which entries count. In operations that `torch.func.vmap` knows.
    """
    step = max(1, _BLOCK // max(1, x.shape[0]))
    parts: list[torch.Tensor] = []
    for first in range(0, x.shape[1], step):
        wide = x[:, first : first + step].detach()
        wide = wide.cpu().double() if wide.device.type == "mps" else wide.double()  # which has no float64
        if keep is None:
            count = torch.full_like(wide[0], float(x.shape[0]))
            rest = wide - (mean := wide.mean(0))
        else:
            kept = keep[:, first : first + step]
            count = kept.sum(0).double()
            mean = torch.where(kept, wide, 0.0).sum(0) / count.clamp_min(1.0)
            rest = torch.where(kept, wide - mean, 0.0)
        square = rest * rest
        parts.append(torch.stack([count, mean, square.sum(0), (square * rest).sum(0), (square * square).sum(0)]))
    return torch.cat(parts, 1)


def _shape_of(sums: Array | None) -> Array:
    """(4,) as in `ensemble/higher_moments.py`, from central sums (5, units); NaN if there are none."""
    if sums is None:
        return np.full(4, np.nan)
    count, mean, *powers = sums[:, sums[0] > 0]
    return member_shape(mean, [power / count for power in powers], count)


def _merged(a: Array | None, b: Array) -> Array:
    """Pébay's (2008) update of central moments by those of another batch; other numbers of units are left out."""
    if a is None or a.shape != b.shape:
        return b if a is None else a
    (na, ma, a2, a3, a4), (nb, mb, b2, b3, b4) = a, b
    n = np.maximum(na + nb, 1.0)
    d = mb - ma
    u, v = na / n, nb / n
    second = a2 + b2 + d**2 * na * v
    third = a3 + b3 + d**3 * na * v * (u - v) + 3 * d * (u * b2 - v * a2)
    fourth = a4 + b4 + d**4 * na * v * (u * u - u * v + v * v)
    fourth += 6 * d**2 * (u * u * b2 + v * v * a2) + 4 * d * (u * b3 - v * a3)
    return np.stack([na + nb, ma + d * v, second, third, fourth])


_BLOCK = 1 << 20  # numbers of a block of rows: 4 MB, which stays in a core's cache between its three passes
_ROWS = 4096  # of one float32 sum
_DIRECT = 0.25  # share of Σx² that must be left after Σx was taken out: then float32 keeps six digits
_NEAR = 1e-3  # relative: above the rounding of a float32 sum over `_ROWS` rows, 2.4e-4 at worst
_FEW = 10  # rows that rule out most units from being constant
_SMALL = 1 << 15  # numbers up to which NumPy in float64 is faster
_TINY = 1e-25  # a sum of float32 squares below this has lost some of them to underflow


@dataclass(frozen=True)
class BatchSums:
    """Sums of one layer over one batch: units' means, Σ(x − mean)², a value of each unit, and if it is the only one."""

    mean: Array  # (units,)
    square: Array  # (units,), or () for the sum over units
    ref: Array  # (units,)
    constant: NDArray[np.bool_]  # (units,)
    count: Array | float  # (units,) where a mask leaves units different numbers of points

    @classmethod
    def shifted(cls, ref: Array, first: Array, second: Array, count: Array | float) -> BatchSums | None:
        """Make them from Σ(x − ref) and Σ(x − ref)²; None if they are not finite."""
        if not np.isfinite(first + second).all():
            return None
        mean = first / np.maximum(count, 1.0)
        return cls(ref + mean, np.maximum(second - first * mean, 0.0), ref, second == 0.0, count)

    def merged(self, new: BatchSums) -> BatchSums | None:
        """Those of both batches, by Chan, Golub & LeVeque's update; None where there are other numbers of units."""
        if len(self.mean) != len(new.mean):
            return None
        total = self.count + new.count
        part = new.count / np.maximum(total, 1.0)
        rest = new.mean - self.mean
        moved = np.square(rest) * (self.count * part)
        constant = self.constant & new.constant & (self.ref == new.ref)
        # Where a mask left no points, the other batch alone tells.
        constant |= (np.equal(new.count, 0) & self.constant) | (np.equal(self.count, 0) & new.constant)
        ref = np.where(np.equal(self.count, 0), new.ref, self.ref)
        if self.square.ndim and new.square.ndim:
            square = self.square + new.square + moved
        else:
            square = np.array(self.square.sum() + new.square.sum() + moved.sum())
        return BatchSums(self.mean + rest * part, square, ref, constant, total)

    def stats(self) -> Array:
        """MEAN, BETWEEN, SPREAD, DEAD of `Members`; NaN where no unit has points."""
        row = np.full(4, np.nan)
        mean, square, constant, count = self.mean, self.square, self.constant, self.count
        if not isinstance(count, float):  # then squares are by unit as well
            enough = count > 1
            mean, square, constant, count = mean[enough], square[enough], constant[enough], np.asarray(count)[enough]
            if not len(mean):
                return row
            variance = square / (count - 1)
            row[SPREAD], of_mean = variance.mean(), (variance / count).mean()
        else:
            row[SPREAD] = square.sum() / len(mean) / (count - 1) if count > 1 else np.nan
            of_mean = row[SPREAD] / count
        row[MEAN] = mean.mean()
        row[BETWEEN] = mean.var() - of_mean
        row[DEAD] = constant.mean()
        return row

    def gamma(self) -> float:
        """center/spread of this one network (theory.md (2), (38)), both free of the bias of finite data."""
        row = self.stats()
        center, spread = row[MEAN] ** 2 + row[BETWEEN], row[SPREAD]
        return float(center / spread if spread > 0 else math.inf if center > 0 else math.nan)


def doubles(*tensors: torch.Tensor) -> list[Array]:
    """NumPy arrays of float64, which do not share memory with a layer's output."""
    return [tensor.detach().cpu().to(torch.float64).numpy() for tensor in tensors]


def matrix(x: torch.Tensor, channel: int, node: Node, order: tuple[int, ...] | None = None) -> torch.Tensor:
    """A layer's output (samples, …) as (points, units); `order` of the axes only permutes units, without a copy."""
    if x.ndim == 1:
        return x[:, None]
    if node == "channel":
        return (x.movedim(channel, -1) if channel != -1 else x).reshape(-1, x.shape[channel])
    return (x.permute(order) if order else x).reshape(x.shape[0], -1)


def memory_order(x: torch.Tensor) -> tuple[int, ...] | None:
    """Axes by stride after the first, for outputs that are dense but not in torch's default order (channels last)."""
    if x.is_contiguous() or x.ndim < 3:
        return None
    return (0, *sorted(range(1, x.ndim), key=x.stride, reverse=True))


def plain_sums(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(ref, Σ, Σ²) of (points, units), in operations that `torch.func.vmap` knows."""
    wide = x if x.dtype == torch.float64 else x.float()
    ref = wide[0].clone()  # a view would follow what a later layer does in place
    rest = _double(wide - ref)
    return ref, rest.sum(0), rest.square().sum(0)


def _double(x: torch.Tensor) -> torch.Tensor:
    return x if x.device.type == "mps" else x.double()  # which has no float64


class Blocks:
    """Sums over (points, units).

    Where units move at least half as much as they are away from 0, Σx and Σx² are enough: two passes over memory, and
    none written. Else sums are taken about each unit's first value, in blocks of rows that stay in cache.
    """

    def __init__(self) -> None:
        self._buffers: dict[torch.dtype, torch.Tensor] = {}

    def __call__(self, x: torch.Tensor, *, by_unit: bool = False) -> BatchSums | None:
        """None if a value is not finite. `by_unit`: squares are wanted for each unit, not only their sum."""
        count = float(x.shape[0])
        if x.device.type != "cpu":
            return _about(plain_sums(x), count)
        if x.numel() <= _SMALL:
            return _small(x)
        sums = self._direct(x) if x.dtype in (torch.float32, torch.float64) and not by_unit else None
        if sums is not None:
            return sums
        ref, first, second = self._about_first(x)
        largest = float(second.max())
        if not largest > _TINY or not math.isfinite(largest + float(first.sum())):  # or constant, or not finite
            return _about(plain_sums(x.double()), count) if bool(x.isfinite().all()) else None
        return _about((ref, first, second), count)

    def _direct(self, x: torch.Tensor) -> BatchSums | None:
        """Make them from Σx and Σx², or None if that would lose digits."""
        count = len(x)
        rows = min(_ROWS, count)
        ones = torch.ones(rows, dtype=x.dtype)
        first = ones @ x[:rows]
        norms = [torch.linalg.vector_norm(x[:rows], dim=1)]
        for start in range(rows, count, rows):
            part = x[start : start + rows]
            first += ones[: len(part)] @ part
            norms.append(torch.linalg.vector_norm(part, dim=1))
        total = float(torch.cat(norms).double().square().sum())
        mean = doubles(first)[0] / count
        square = total - count * float(np.square(mean).sum())
        if not _TINY < total < math.inf or square < _DIRECT * total:
            return None
        ref = doubles(x[0].clone())[0]
        # A constant unit's mean is its first value, up to the rounding of a float32 sum: that rules out most units.
        near = np.flatnonzero(np.abs(mean - ref) <= _NEAR * np.abs(ref))
        constant = np.zeros(len(ref), dtype=np.bool_)
        constant[near] = _one_value(x, torch.from_numpy(near)).numpy()
        return BatchSums(mean, np.array(square), ref, constant, float(count))

    def _about_first(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        points, nodes = x.shape
        kind = torch.float64 if x.dtype == torch.float64 else torch.float32
        rows = max(1, min(_BLOCK // nodes, _ROWS, points))
        buffer = self._buffers.get(kind)
        if buffer is None or buffer.numel() < rows * nodes:
            buffer = self._buffers[kind] = torch.empty(max(rows * nodes, _BLOCK), dtype=kind)
        ones = torch.ones(rows, dtype=kind)
        ref = x[0].to(kind, copy=True)  # a view would follow what a later layer does in place
        first, second = torch.zeros(nodes, dtype=kind), torch.zeros(nodes, dtype=kind)
        for start in range(0, points, rows):
            part = x[start : start + rows]
            size = len(part)
            block = buffer[: size * nodes].view(size, nodes)
            torch.sub(part if part.dtype == kind else part.to(kind), ref, out=block)
            first += ones[:size] @ block
            second += ones[:size] @ block.mul_(block)
        return ref, first, second


def _about(sums: tuple[torch.Tensor, torch.Tensor, torch.Tensor], count: float) -> BatchSums | None:
    ref, first, second = doubles(*sums)
    return BatchSums.shifted(ref, first, second, count)


def _small(x: torch.Tensor) -> BatchSums | None:
    """Sum in float64 by NumPy, whose calls cost less than torch's; on few numbers nothing else counts."""
    wide = doubles(x)[0]
    ref = wide[0].copy()
    with np.errstate(invalid="ignore", over="ignore"):
        rest = wide - ref
        return BatchSums.shifted(ref, rest.sum(0), np.einsum("an,an->n", rest, rest), float(len(wide)))


def _constant(x: torch.Tensor) -> NDArray[np.bool_]:
    """Which units have one value on all points: a few rows rule out most of them."""
    same = torch.ones(x.shape[1], dtype=torch.bool, device=x.device)
    for row in x[1:_FEW]:
        same &= row == x[0]
        if not bool(same.any()):
            return same.cpu().numpy()
    left = same.nonzero()[:, 0]
    same[left] = _one_value(x, left)
    return same.cpu().numpy()


def _one_value(x: torch.Tensor, units: torch.Tensor) -> torch.Tensor:
    """Whether each of these units has one value on all points."""
    columns = x[:, units]
    return (columns == columns[0]).all(0)


def masked_sums(x: torch.Tensor, keep: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """(ref, Σ, Σ², count) of (samples, tokens, …): a unit is token × channel, its points the samples that `keep` it."""
    wide = x.reshape(*x.shape[:2], -1)
    wide = wide if wide.dtype == torch.float64 else wide.float()
    first_kept = keep.int().argmax(0)
    ref = wide[first_kept, torch.arange(wide.shape[1], device=x.device)]
    rest = torch.where(keep[:, :, None], _double(wide - ref), 0.0)
    count = keep.sum(0)[:, None].expand(wide.shape[1:]).reshape(-1)
    return ref.reshape(-1), rest.sum(0).reshape(-1), rest.square().sum(0).reshape(-1), count.cpu().double()


def logit_sums(rows: torch.Tensor, blocks: Blocks) -> BatchSums | None:
    """Sums of what arg-max sees in logits (points, classes) or (points,): theory.md (38)."""
    sums = blocks(contrasts(rows))
    # What is constant is told by the logits themselves: a mean over classes is rounded.
    return sums and replace(sums, ref=doubles(rows[0])[0].reshape(-1), constant=_constant(rows.reshape(len(rows), -1)))


Record: TypeAlias = "tuple[str, BatchSums | None, torch.Tensor | NDArray[np.float64] | None]"  # a layer's, of one batch


class LayerRecorder:
    """Sums of every layer of one member: `start` a member, `begin` each forward, `see` each output, `logits` after it,
    then `stats`. The last of `specs` is the output, whose sums are those of the logits. `padded`: some batch has a
    mask, which leaves units different numbers of points, so that all batches are summed by unit, in one order. `order`
    4: also third and fourth moments, of layers with weights and of the logits, for `shapes`. `keep`: the logits."""

    def __init__(
        self,
        specs: Sequence[Spec],
        node: Node,
        ignored: Iterable[str] = (),
        *,
        padded: bool = False,
        order: int = 2,
        keep: bool = False,
    ) -> None:
        self.order = order
        self._keep = keep
        self.specs = {spec.name: spec for spec in specs}
        self.output = specs[-1].name
        self.returned: torch.Tensor | None = None  # by the output layer, in the latest forward
        self.node: Node = node
        self._by_node = padded and node == "position"
        self._ignored = set(ignored)
        self._blocks = Blocks()
        self._remembered: list[Record] | None = None
        self.start()

    def start(self) -> None:
        self.layers: dict[str, BatchSums | None] = dict.fromkeys(self.specs)
        shaped = [n for n, s in self.specs.items() if self.order == 4 and (s.weights or n == self.output)]
        self._shapes: dict[str, Array | None] = dict.fromkeys(shaped)
        self.nonfinite = ""  # the first layer, in the order of calls, with a NaN or Inf
        self.surprises: set[str] = set()  # calls that were not there when the layers were found, or not so shaped
        self._broken: set[str] = set()
        self._kept: list[torch.Tensor] = []
        self._orders: dict[str, tuple[int, ...] | None] = {}

    def begin(self, size: int, mask: torch.Tensor | None) -> None:
        self._size, self._mask, self.returned = size, mask, None

    def logits(self, rows: torch.Tensor) -> None:
        """(points, classes) of a batch, or (points,): as they are counted."""
        if self._keep:
            self._kept.append(rows)
        for block in rows.split(max(1, _BLOCK // (rows.shape[1] if rows.ndim > 1 else 1))):
            self.take(self.output, logit_sums(block, self._blocks))
            self.shape(self.output, central_sums(contrasts(block)) if self.order == 4 else None)

    def see(self, name: str, _: nn.Module | None, tensor: torch.Tensor) -> None:
        if name == self.output:
            self.returned = tensor
            return
        spec = self.specs.get(name)
        x = None if spec is None else spec.samples_first(tensor, self._size)
        if spec is None or x is None:
            if name not in self._ignored:
                self.surprises.add(name)
            return
        with torch_threads(1):  # memory is the limit, not cores; and waiting for a busy core costs far more
            record = name, self._sums(spec, x), self.powers(spec, x, self._mask)
            self.replay(record)
            if self._remembered is not None:
                self._remembered.append(record)

    @contextmanager
    def remembered(self) -> Generator[list[Record]]:
        """What is seen within it, for `replay`."""
        found = self._remembered = list[Record]()
        try:
            yield found
        finally:
            self._remembered = None

    def replay(self, record: Record) -> None:
        """Take a layer's record as if it had been seen now."""
        name, sums, powers = record
        self.take(name, sums)
        self.shape(name, powers)

    def take(self, name: str, sums: BatchSums | None) -> None:
        """A layer's sums over a batch; None if a value was not finite."""
        if sums is None:
            self.nonfinite = self.nonfinite or name
            self._broken.add(name)
        elif name not in self._broken:
            known = self.layers[name]
            merged = sums if known is None else known.merged(sums)
            if merged is None:
                self.surprises.add(name)
            else:
                self.layers[name] = merged

    def powers(self, spec: Spec, x: torch.Tensor, keep: torch.Tensor | None) -> torch.Tensor | None:
        """Central sums of a layer's output; None where they are not requested."""
        if spec.name not in self._shapes:
            return None
        x, keep = self.unpadded(x, keep)
        if keep is not None:
            return central_sums(x.flatten(1), keep[:, :, None].expand(*keep.shape, x[0, 0].numel()).flatten(1))
        return central_sums(matrix(x, spec.channel, self.node))

    def unpadded(self, x: torch.Tensor, keep: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None]:
        """What of (samples, tokens, …) is summed: only tokens that are no padding; units by position need the mask."""
        if keep is None or x.ndim < 3 or x.shape[:2] != keep.shape:
            return x, None
        keep = keep.to(x.device)
        return (x, keep) if self.node == "position" else (x[keep], None)

    def shape(self, name: str, powers: torch.Tensor | NDArray[np.float64] | None) -> None:
        """A layer's `powers` over a batch."""
        if powers is not None:
            new = powers if isinstance(powers, np.ndarray) else doubles(powers)[0]
            self._shapes[name] = _merged(self._shapes[name], new)

    def _sums(self, spec: Spec, x: torch.Tensor) -> BatchSums | None:
        """None if a value is not finite."""
        x, keep = self.unpadded(x, self._mask)
        if keep is not None:
            ref, first, second, count = doubles(*masked_sums(x, keep))
            return BatchSums.shifted(ref, first, second, count)
        if self.node == "position" and not self._by_node and spec.name not in self._orders:
            self._orders[spec.name] = memory_order(x)
        order = self._orders.get(spec.name)
        return self._blocks(matrix(x, spec.channel, self.node, order), by_unit=self._by_node)

    def stats(self) -> Array:
        """(layers, 4); NaN of layers that were not called, or had a value that is not finite."""
        found = {name: sums for name, sums in self.layers.items() if sums is not None and name not in self._broken}
        return np.array([found[name].stats() if name in found else np.full(4, np.nan) for name in self.layers])

    def shapes(self) -> Array:
        """(layers, 4) as in `ensemble/higher_moments.py`, or nothing where they were not requested."""
        if self.order == 2:
            return np.empty(0)
        return np.array([_shape_of(None if n in self._broken else self._shapes.get(n)) for n in self.layers])

    def all_logits(self) -> NDArray[np.float32]:
        """(points, classes) of this member; one logit z, decided at 0, stands as (−z/2, z/2)."""
        rows = torch.cat([rows.detach().cpu().float() for rows in self._kept])
        return (rows if rows.ndim == 2 else torch.stack([-rows / 2, rows / 2], 1)).numpy()

    @property
    def missed(self) -> list[str]:
        """Layers that this member did not call."""
        return [name for name, sums in self.layers.items() if sums is None and name not in self._broken]
