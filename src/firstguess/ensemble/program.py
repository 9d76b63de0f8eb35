"""The order of work: a description as a flat list of instructions, cut into segments, with sizes that fit memory.

A segment runs chunk by chunk with the data hot in cache; it ends where the next instruction needs the whole data set
(BatchNorm), or where the weights held at once would take too much memory.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from firstguess.base.errors import FirstguessError, InvalidInput, NotCovered
from firstguess.base.numerics import least_jitter
from firstguess.network.tensors import Local, OverData, Paths, Place, Unbatched, Weights

# What is exact for Gaussian weights and shorter than drawing them (performance.md): their input is replaced by the
# data's triangular factor, or all units of a layer are drawn at once, given the Gram matrix of their input.

# Nanoseconds on the machine of performance.md; only their ratios matter, and only for which exact way is shorter.
_NORMAL, _FLOP32, _FLOP64 = 4.0, 1 / 90, 1 / 41


def conditional_pays(points: int, fan_in: int, units: int) -> bool:
    """Whether drawing a whole layer given its Gram matrix is less work than drawing its weights: performance.md (2)."""
    if points >= min(fan_in, units):
        return False
    direct = _NORMAL * fan_in * units + 2 * _FLOP32 * points * fan_in * units
    gram = 2 * _FLOP64 * points**2 * fan_in + 2 * _FLOP64 * points**3 / 3
    return gram + _NORMAL * points * units + 2 * _FLOP32 * points**2 * units < direct


def triangular(data: Tensor) -> Tensor:
    """Points by points: with Xᵀ = QR the rows of Rᵀ have the overlaps of the data, so W x and W' r are equal in
    distribution.

    In float64, some dimensions at a time: R of (R so far, next rows) is R of all of them, and needs little memory.
    """
    points, dims = data.shape
    upper = torch.empty(0, points, dtype=torch.float64)
    for first in range(0, dims, 2 * points):
        rows = data[:, first : first + 2 * points].T.double()
        upper = torch.linalg.qr(torch.cat([upper, rows]), mode="r").R
    return upper.T.to(data.dtype).contiguous()


def conditional(x: Tensor, normals: Tensor, weights: Weights, out: Tensor) -> Tensor:
    """All units of a layer at once, given its input x (inits, N, n): rows N(0, σw² xᵀx/N + σb² 11ᵀ).

    Exact at finite width for Gaussian weights (performance.md, reduction 2): n·units normals instead of N·units.
    Uses up x.
    """
    gram, deviations = _gram(x)
    lower, info = torch.linalg.cholesky_ex(gram.mul_(weights.weight_var / x.shape[1]).add_(weights.bias_var))
    for i in torch.nonzero(info).flatten().tolist():
        wide = deviations[0][i].double() + deviations[1][i].double()
        lower[i] = factor((wide.T @ wide).mul_(weights.weight_var / x.shape[1]).add_(weights.bias_var))
    return torch.bmm(normals, lower.to(x.dtype).mT, out=out)


def _gram(x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """xᵀx in float64 from products of the deviations d from each unit's mean m: dᵀd + mᵀd + dᵀm + mᵀm.

    Near c → 1 the differences between points are far below float32's resolution of xᵀx. Deviations keep them: the error
    is float32's relative to dᵀd, which the rounding of x itself has too, at half the cost of a float64 product.
    """
    mean = x.sum(2, keepdim=True).div_(x.shape[2])
    deviations = x.sub_(mean)
    gram = torch.bmm(deviations.mT, deviations).double()
    cross = torch.bmm(mean.mT, deviations).double()
    return gram.add_(cross).add_(cross.mT).add_(mean.double().square().sum(1, keepdim=True)), (mean, deviations)


def factor(gram: Tensor) -> Tensor:
    """The Cholesky factor of a Gram matrix, with jitter only if it is singular to float64 (points that coincide)."""
    size = float(gram.diagonal().mean())
    if size == 0.0 or not math.isfinite(size):
        return torch.full_like(gram, 0.0 if size == 0.0 else math.nan)
    identity = torch.eye(gram.shape[0], dtype=gram.dtype)

    def attempt(jitter: float) -> Tensor | None:
        lower, failed = torch.linalg.cholesky_ex(gram + jitter * size * identity)
        return None if failed else lower

    ladder = itertools.chain([0.0], itertools.accumulate(itertools.repeat(10.0), operator.mul, initial=1e-15))
    found = least_jitter(attempt, ladder)
    assert found is not None  # some multiple of the identity is enough
    return found[0]


Kind = Literal["weights", "local", "over data", "save", "swap", "add"]
Way = Literal["direct", "factor", "conditional"]

# Elements of one activation buffer that stay in a core's cache, and points of a chunk (performance.md).
_CACHE = 400_000
_CHUNK = 1000
_SLOTS = 8_000_000


@dataclass(frozen=True)
class Instr:
    """One instruction; `observe`: unit moments are taken of its result, `probe`: the probed layer that it ends."""

    kind: Kind
    place: Place
    weights: Weights | None = None
    local: Local | None = None
    over_data: OverData | None = None
    scale: float = 1.0  # of the first path, where two are added
    way: Way = "direct"  # in which weights are drawn
    shape: tuple[int, ...] = ()  # of what one member draws for them
    bias: bool = False
    observe: bool = False
    probe: int = -1

    @property
    def drawn(self) -> int:
        """Numbers that one member draws here."""
        return math.prod(self.shape) + (self.shape[0] if self.bias else 0) if self.shape else 0


@dataclass(frozen=True)
class Program:
    """Instructions in order, where segments begin, and how many inits and points are carried together."""

    instructions: tuple[Instr, ...]
    cuts: tuple[int, ...]
    group: int
    chunk: int
    threads: int
    capacity: int = field(default=0)  # elements of a buffer

    @property
    def segments(self) -> list[range]:
        ends = (*self.cuts[1:], len(self.instructions))
        return [range(a, b) for a, b in zip(self.cuts, ends, strict=True)]

    def work(self, points: int) -> float:
        """Operations of a member on all points."""
        work = 0.0
        for instr in self.instructions:
            positions = instr.place.after.nodes // instr.place.after.sizes[0]
            work += instr.drawn * (2.0 * points * positions + 400.0)  # a normal costs some 400 operations
        return work


def compile_places(
    places: Sequence[Place], probes: Sequence[int], points: int | None = None, *, factor: bool = False
) -> tuple[Instr, ...]:
    """The instructions of these layers; `probes[i]` numbers the probed layer at place i (−1: not probed).

    `points`: with the exact reductions for this number of them, and the data's triangular `factor` if asked. A layer
    without a meaning on tensors is refused here, before any long work.
    """
    out: list[Instr] = []
    for index, (place, probe) in enumerate(zip(places, probes, strict=True)):
        out += _instructions(place, points, first=index == 0, factor=factor)
        if probe >= 0:
            out[-1] = replace(out[-1], observe=True, probe=probe)
    for i, instr in enumerate(out[1:]):
        if instr.kind == "over data":
            out[i] = replace(out[i], observe=True)
    return tuple(out)


def _instructions(place: Place, points: int | None, *, first: bool = False, factor: bool = False) -> list[Instr]:
    try:
        found = place.layer.tensors(place)
    except FirstguessError as error:
        raise error.at(place.where) from None
    match found:
        case Weights() as weights:
            return [_weights(place, weights, points, first, factor)]
        case Local() as local:
            return [Instr("local", place, local=local)]
        case OverData() as over_data:
            whole = Instr("over data", place, over_data=over_data)
            return [Instr("local", place, local=Local(over_data.first)), whole] if over_data.first else [whole]
        case Unbatched():
            expected = "layers that many initializations go through at once"
            hint = "fg.measure(...), which takes networks of tokens one by one"
            raise NotCovered(expected, got=place.name, where=place.where, hint=hint)
        case Paths(scale):
            one, other = ([instr for p in path for instr in _instructions(p, points)] for path in place.paths)
            between = [Instr("swap", place)] if other else []
            return [Instr("save", place), *one, *between, *other, Instr("add", place, scale=scale)]


def _weights(place: Place, weights: Weights, points: int | None, first: bool, factor: bool) -> Instr:
    direct = Instr("weights", place, weights, shape=weights.shape, bias=weights.bias_var > 0.0)
    units = weights.shape[0]
    # Both exact reductions are about units that are independent Gaussian sums over all nodes.
    if points is None or weights.product is not None or weights.init != "normal":
        return direct
    if first:  # its input is the data: the factor draws points × units numbers as well
        small = factor and weights.fan_in > points
        return replace(direct, way="factor", shape=(units, points)) if small else direct
    if conditional_pays(points, weights.fan_in, units):
        return replace(direct, way="conditional", shape=(units, points), bias=False)
    return direct


def schedule(
    instructions: Sequence[Instr],
    *,
    points: int,
    multiple: int,
    memory: float,
    threads: int,
    itemsize: int,
    group: int | None = None,
    chunk: int | None = None,
) -> Program:
    """Choose inits per group, points per chunk and where to cut, for speed within the memory budget.

    `multiple`: chunks hold whole batches of this many points. Nothing here changes a member's numbers.
    """
    # The data are shared, not held by inits; but a residual block in front keeps a copy for each.
    widest = max((i.place.before if i.kind == "save" else i.place.after).nodes for i in instructions)
    all_points = any(i.way == "conditional" for i in instructions)
    size = points if all_points else min(points, chunk or _CHUNK)
    if instructions[0].way == "factor" and not all_points and chunk is None:
        # Zeros of the triangular factor are skipped chunk by chunk; small chunks cost the layers after it.
        mostly = 2 * instructions[0].drawn > sum(i.drawn for i in instructions)
        size = min(points, max(200, min(_CHUNK, points // (4 if mostly else 2))))
    if not all_points and size < points and chunk is None:
        size = math.ceil(points / math.ceil(points / size))  # chunks of one size
    size = min(points, math.ceil(size / multiple) * multiple)
    natural = [i for i, instr in enumerate(instructions) if instr.kind == "over data"]
    inits = group or max(1, min(64, _CACHE // (widest * size)))
    if natural and group is None:
        inits = max(1, min(inits, _SLOTS // (widest * points)))
    need = math.inf
    smaller = [size]
    while not all_points and smaller[-1] > max(64, multiple):
        smaller.append(math.ceil(smaller[-1] / 2 / multiple) * multiple)
    for workers in range(threads, 0, -1):
        for carried in smaller:
            trial = inits
            while trial >= 1:
                for every in (False, True):
                    cuts = tuple(
                        sorted({0, *natural, *(i for i, one in enumerate(instructions) if every and one.drawn)})
                    )
                    need = workers * trial * _bytes(instructions, cuts, carried, points, widest, itemsize)
                    if need <= memory:
                        return Program(tuple(instructions), cuts, trial, carried, workers, trial * widest * carried)
                trial //= 2
    expected = f"memory for one initialization, {need:.2g} bytes"
    hint = f"memory={need * 1.1:.1g}, a smaller width, or fewer points"
    raise InvalidInput(expected, got=f"memory={memory:.2g}", where="measure", hint=hint)


def _bytes(
    instructions: Sequence[Instr], cuts: tuple[int, ...], chunk: int, points: int, widest: int, itemsize: int
) -> float:
    """What a worker holds for one init: a segment's weights, activation buffers, unit moments, and Gram matrices."""
    ends = (*cuts[1:], len(instructions))
    drawn = [i.drawn for i in instructions]
    # Weights are drawn in float32; in float64 there is a cast copy besides.
    weights = max(sum(drawn[a:b]) for a, b in zip(cuts, ends, strict=True)) * (4 if itemsize == 4 else 12)
    nested = depth = 0
    for instr in instructions:
        depth += {"save": 1, "add": -1}.get(instr.kind, 0)
        nested = max(nested, depth)
    held = points if len(cuts) > 1 else chunk
    buffers = float(held * (1 + nested) + 3 * chunk) * widest * itemsize
    buffers += max((i.weights.room for i in instructions if i.weights), default=0.0) * chunk * widest * itemsize
    chunks = math.ceil(points / chunk)
    moments = sum(i.place.after.nodes for i in instructions if i.observe) * itemsize * (2.0 * chunks + 1)
    gram = 8.0 * points * 5 * points if any(i.way == "conditional" for i in instructions) else 0.0
    return weights + buffers + moments + gram
