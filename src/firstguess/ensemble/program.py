"""The order of work: a description as a flat list of instructions, cut into segments, with sizes that fit memory.

A segment runs chunk by chunk with the data hot in cache; it ends where the next instruction needs the whole data set
(BatchNorm), or where the weights held at once would take too much memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch

from firstguess.base.errors import InvalidInput
from firstguess.ensemble import ops
from firstguess.ensemble.places import Step, nodes
from firstguess.network.layers import Activate, BatchNorm, Conv, Dense, Residual

Kind = Literal["dense", "conv", "local", "batchnorm", "center", "save", "swap", "add"]
Draw = Literal["direct", "factor", "conditional"]
_NEEDS_ALL_POINTS = ("batchnorm", "center")

# Nanoseconds on the machine of performance.md; only their ratios matter, and only for which exact way is shorter.
_NORMAL, _FLOP32, _FLOP64 = 4.0, 1 / 90, 1 / 41
# Elements of one activation buffer that stay in a core's cache, and points of a chunk (performance.md).
_CACHE = 400_000
_CHUNK = 1000
_SLOTS = 8_000_000


@dataclass(frozen=True)
class Instr:
    """One instruction; `observe`: node moments are taken of its result, `probe`: the probed layer that it ends."""

    kind: Kind
    step: Step
    apply: Callable[[torch.Tensor, ops.Scratch], torch.Tensor] | None = None
    draw: Draw = "direct"
    shape: tuple[int, ...] = ()  # of one member's weights
    bias: bool = False
    observe: bool = False
    probe: int = -1

    @property
    def drawn(self) -> int:
        """Numbers that one member draws here."""
        return math.prod(self.shape) + (self.shape[0] if self.bias else 0) if self.shape else 0


@dataclass(frozen=True)
class Reductions:
    """Which exact reductions to use: the data's triangular factor, and the number of points for conditional draws."""

    factor: bool = False
    points: int | None = None


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


def conditional_pays(points: int, fan_in: int, units: int) -> bool:
    """Whether drawing a whole layer given its Gram matrix is less work than drawing its weights: performance.md (2)."""
    if points >= min(fan_in, units):
        return False
    direct = _NORMAL * fan_in * units + 2 * _FLOP32 * points * fan_in * units
    gram = 2 * _FLOP64 * points**2 * fan_in + 2 * _FLOP64 * points**3 / 3
    return gram + _NORMAL * points * units + 2 * _FLOP32 * points**2 * units < direct


def compile_steps(
    steps: Sequence[Step], probes: Sequence[int], *, batch: Callable[[BatchNorm], int | None], reductions: Reductions
) -> tuple[Instr, ...]:
    """The instructions of these steps; `probes[i]` numbers the probed layer of step i (−1: not probed)."""
    out: list[Instr] = []
    for index, (step, probe) in enumerate(zip(steps, probes, strict=True)):
        out += _instructions(step, batch, reductions, first=index == 0)
        if probe >= 0:
            out[-1] = replace(out[-1], observe=True, probe=probe)
    for i, instr in enumerate(out):
        if instr.kind in _NEEDS_ALL_POINTS:
            out[i - 1] = replace(out[i - 1], observe=True)
    return tuple(out)


def _instructions(
    step: Step, batch: Callable[[BatchNorm], int | None], reductions: Reductions, *, first: bool = False
) -> list[Instr]:
    layer = step.layer
    if isinstance(layer, Residual):
        branch, other = (
            [instr for s in path for instr in _instructions(s, batch, reductions)]
            for path in (step.branch, step.shortcut)
        )
        between = [Instr("swap", step)] if other else []
        return [Instr("save", step), *branch, *between, *other, Instr("add", step)]
    if isinstance(layer, Dense):
        units = step.after[0]
        direct = Instr("dense", step, shape=(units, step.fan_in), bias=layer.bias_var > 0.0)
        if layer.init != "normal" or reductions.points is None:
            return [direct]
        if first:  # its input is the data: the factor draws points × units numbers as well
            return [replace(direct, draw="factor", shape=(units, reductions.points))] if reductions.factor else [direct]
        if conditional_pays(reductions.points, step.fan_in, units):
            return [replace(direct, draw="conditional", shape=(units, reductions.points), bias=False)]
        return [direct]
    if isinstance(layer, Conv):
        shape = (step.after[0], step.before[0], layer.kernel, layer.kernel)
        return [Instr("conv", step, shape=shape, bias=layer.bias_var > 0.0)]
    if isinstance(layer, BatchNorm):
        size = batch(layer)
        return [Instr("batchnorm", step) if size is None else Instr("local", step, ops.local(step, batch=size))]
    apply = Instr("local", step, ops.local(step))
    if isinstance(layer, Activate) and step.constant is None:
        return [apply, Instr("center", step)]
    return [apply]


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
    """Choose inits a group, points a chunk and where to cut, for speed within the memory budget.

    `multiple`: chunks hold whole batches of so many points. Nothing here changes a member's numbers.
    """
    # The data are shared, not held by inits; but a residual block in front keeps a copy for each.
    widest = max(nodes(i.step.before if i.kind == "save" else i.step.after) for i in instructions)
    all_points = any(i.draw == "conditional" for i in instructions)
    size = points if all_points else min(points, chunk or _CHUNK)
    if instructions[0].draw == "factor" and not all_points and chunk is None:
        # Zeros of the triangular factor are skipped chunk by chunk; small chunks cost the layers after it.
        mostly = 2 * instructions[0].drawn > sum(i.drawn for i in instructions)
        size = min(points, max(200, min(_CHUNK, points // (4 if mostly else 2))))
    if not all_points and size < points and chunk is None:
        size = math.ceil(points / math.ceil(points / size))  # chunks of one size
    size = min(points, math.ceil(size / multiple) * multiple)
    natural = [i for i, instr in enumerate(instructions) if instr.kind in _NEEDS_ALL_POINTS]
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
                    cuts = _cuts(instructions, natural, every)
                    need = workers * trial * _bytes(instructions, cuts, carried, points, widest, itemsize)
                    if need <= memory:
                        return Program(tuple(instructions), cuts, trial, carried, workers, trial * widest * carried)
                trial //= 2
    raise InvalidInput(
        f"memory for one initialization, {need:.2g} bytes",
        got=f"memory={memory:.2g}",
        where="measure",
        hint=f"memory={need * 1.1:.1g}, a smaller width, or fewer points",
    )


def _cuts(instructions: Sequence[Instr], natural: list[int], every: bool) -> tuple[int, ...]:
    more = [i for i, instr in enumerate(instructions) if instr.drawn] if every else []
    return tuple(sorted({0, *natural, *more}))


def _bytes(
    instructions: Sequence[Instr], cuts: tuple[int, ...], chunk: int, points: int, widest: int, itemsize: int
) -> float:
    """What a worker holds for one init: a segment's weights, activation buffers, node moments, and Gram matrices."""
    ends = (*cuts[1:], len(instructions))
    drawn = [i.drawn for i in instructions]
    # Weights are drawn in float32; in float64 a cast copy lives beside them.
    weights = max(sum(drawn[a:b]) for a, b in zip(cuts, ends, strict=True)) * (4 if itemsize == 4 else 12)
    nested = depth = 0
    for instr in instructions:
        depth += {"save": 1, "add": -1}.get(instr.kind, 0)
        nested = max(nested, depth)
    held = points if len(cuts) > 1 else chunk
    buffers = float(held * (1 + nested) + 3 * chunk) * widest * itemsize
    if any(i.kind == "conv" for i in instructions):
        buffers += 10.0 * chunk * widest * itemsize  # unfolded images inside the convolution
    chunks = math.ceil(points / chunk)
    moments = sum(nodes(i.step.after) for i in instructions if i.observe) * itemsize * (2.0 * chunks + 1)
    gram = 8.0 * points * 5 * points if any(i.draw == "conditional" for i in instructions) else 0.0
    return weights + buffers + moments + gram
