"""One worker of the description engine: its own generators and buffers, one group of initializations at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firstguess.base.statistics import guesses as tied_guesses
from firstguess.base.statistics import settle
from firstguess.ensemble.higher_moments import member_shape
from firstguess.ensemble.member_module import drawn
from firstguess.ensemble.member_statistics import Members
from firstguess.ensemble.program import Instr, Program, conditional
from firstguess.ensemble.seeds import fill_biases, fill_weights, tie_stream
from firstguess.network.tensors import Place, Scratch

# What is read off tensors: unit means and variances over the data, and guesses.

# A unit whose standard deviation is below this share of its mean is constant to float32.
_CONSTANT = 4.0 * 2.0**-23


def is_image(x: Tensor) -> bool:
    """Which of the two layouts a tensor has."""
    return x.dim() == 5


class NodeMoments:
    """Mean and variance of every unit over the data, chunk by chunk: sums in float32 about a pivot, then float64.

    The pivot (the unit's mean in the first chunk) keeps digits where γ is large: Σx² − n·m² would lose them. Sum and
    vector_norm, because var_mean is 25–70 times slower on CPU (performance.md). With `order` 4 also third and fourth
    moments, of differences in units of their own root mean square: fourth powers of 1e10 are not in float32.
    """

    def __init__(self, order: int = 2) -> None:
        self.order = order
        self.powers: list[tuple[Tensor, Tensor]] = []  # Σ(x − pivot)³ and Σ(x − pivot)⁴
        self.points = 0
        self.dim = 2
        self.pivot: Tensor | None = None
        self.sums: list[tuple[Tensor, Tensor]] = []
        self.terms: tuple[Tensor, ...] | None = None  # what the next layer makes of them
        self._done: tuple[Tensor, Tensor] | None = None

    def add(self, x: Tensor, scratch: Scratch) -> None:
        """Take in a chunk: (inits, units, points) or (points, inits, channels, height, width)."""
        if is_image(x):
            x, self.dim = x.view(*x.shape[:2], -1), 0
        dim = self.dim
        if self.pivot is None:
            self.pivot = x.sum(dim, keepdim=True).div_(x.shape[dim])
        difference = torch.sub(x, self.pivot, out=scratch(x))
        self.sums.append((difference.sum(dim), torch.linalg.vector_norm(difference, dim=dim)))
        if self.order == 4:
            scale = (self.sums[-1][1] / x.shape[dim] ** 0.5).unsqueeze(dim)
            unit = difference / scale.clamp_min(torch.finfo(scale.dtype).tiny)
            square, wide = unit * unit, scale.squeeze(dim).double()
            third = unit.mul_(square).sum(dim).double() * wide**3
            self.powers.append((third, square.square_().sum(dim).double() * wide**4))
        self.points += x.shape[dim]

    def result(self) -> tuple[Tensor, Tensor]:
        """Means and population variances, (inits, units) in float64."""
        if self._done is not None:
            return self._done
        assert self.pivot is not None
        pivot = self.pivot.squeeze(self.dim)
        total = torch.stack([s for s, _ in self.sums]).double().sum(0) / self.points
        square = torch.stack([q for _, q in self.sums]).double().square().sum(0) / self.points
        self._done = pivot.double() + total, (square - total.square()).clamp_min_(0.0)
        return self._done

    def shape(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Means, and second, third and fourth central moments, (inits, units) in float64."""
        assert self.pivot is not None
        mean, variance = self.result()
        off = mean - self.pivot.squeeze(self.dim).double()
        square = variance + off.square()
        third, fourth = (torch.stack(part).sum(0) / self.points for part in zip(*self.powers, strict=True))
        return (
            mean,
            variance,
            third - 3 * off * square + 2 * off**3,
            fourth - 4 * off * third + 6 * off.square() * square - 3 * off**4,
        )


def statistics(mean: Tensor, variance: Tensor, points: int) -> Tensor:
    """(inits, 4): MEAN, BETWEEN, SPREAD and DEAD of `Members` from unit means and population variances."""
    spread = variance.mean(1) * (points / (points - 1) if points > 1 else np.nan)
    between = mean.var(1, correction=0) - spread / points
    dead = (variance <= (_CONSTANT * mean).square()).double().mean(1)
    return torch.stack([mean.mean(1), between, spread, dead], 1)


class GuessCounts:
    """Counts of the largest logit, chunk by chunk; ties are kept aside and broken at the end, in order of points."""

    def __init__(self, inits: int, classes: int) -> None:
        self.counts = torch.zeros(inits, classes, dtype=torch.float64)
        self.lost = torch.zeros(inits, dtype=torch.bool)  # a logit that is not a number
        self.tied: dict[int, list[tuple[int, NDArray[np.bool_]]]] = {}

    def add(self, logits: Tensor, first: int) -> None:
        """Take in logits (inits, classes, points) of the points from `first` on.

        The maximum and comparisons with it: 9 times faster than arg-max and one-hot (performance.md).
        """
        points = logits.shape[2]
        largest = logits.amax(1, keepdim=True)
        equal = logits == largest
        counts = equal.sum(2)
        self.counts += counts
        shared = counts.sum(1)
        self.lost |= shared < points  # NaN is equal to nothing
        for i in torch.nonzero(shared > points).flatten().tolist():
            several = equal[i].sum(0) > 1
            self.counts[i] -= equal[i][:, several].sum(1)
            self.tied.setdefault(i, []).append((first, equal[i][:, several].numpy()))

    def ties(self, i: int) -> int:
        """How many points of init i had several largest logits."""
        return sum(mask.shape[1] for _, mask in self.tied.get(i, ()))

    def settle(self, i: int, stream: np.random.Generator) -> None:
        """Break the ties of init i at random."""
        for _, mask in sorted(self.tied.get(i, ()), key=lambda part: part[0]):
            settle(mask, stream)
            self.counts[i] += torch.from_numpy(mask.sum(1))


def fill(into: Members, guesses: GuessCounts, moments: Mapping[int, NodeMoments], points: int, seed: int) -> None:
    """Write into the arrays what members guess, and the statistics of their probed layers."""
    for i in guesses.tied:
        into.ties[i] = guesses.ties(i)
        guesses.settle(i, tie_stream(seed, into.start + i))
    into.fractions[:] = guesses.counts.numpy() / points
    into.fractions[guesses.lost.numpy()] = math.nan  # no class for NaN
    for probe, found in moments.items():
        into.stats[:, probe] = statistics(*found.result(), found.points).numpy()
        if into.shapes is not None and found.order == 4:
            mean, *powers = (part.numpy() for part in found.shape())
            for i in range(into.inits):
                into.shapes[i, probe] = member_shape(mean[i], [power[i] for power in powers], found.points)


@dataclass
class _State:
    """A chunk of points on its way: its tensor, the buffer below it (None: the data), and saved residual inputs."""

    first: int
    x: Tensor
    flat: Tensor | None = None
    saved: list[tuple[Tensor, Tensor]] = field(default_factory=list[tuple[Tensor, Tensor]])


_DrawnLayer: TypeAlias = "tuple[Tensor, Tensor | None]"  # weights (inits, units, inputs…) and biases (inits, units)


class Worker:
    """Carries chunks of points through segments of a program for a group of members; buffers are reused."""

    def __init__(self, program: Program, data: Tensor, points: int, classes: int, seed: int, order: int = 2) -> None:
        self.program = program
        self.data = data  # (points, dimensions) or (points, channels, height, width)
        self.points = points
        self.classes = classes
        self.seed = seed
        self.order = order  # of the unit moments at layers with weights: 2 or 4
        self._free: list[Tensor] = []
        self._store: dict[int, Tensor] = {}
        self._generators = [torch.Generator() for _ in range(program.group)]

    def run(self, seeds: NDArray[np.uint32], into: Members) -> None:
        """Compute the members of these seeds and write what they give into the arrays."""
        moments, guesses, _ = self._through(seeds, logits=into.logits)
        probes = {i: instr.probe for i, instr in enumerate(self.program.instructions) if instr.probe >= 0}
        fill(into, guesses, {probe: moments[i] for i, probe in probes.items()}, self.points, self.seed)

    def first_nonfinite(self, seeds: NDArray[np.uint32]) -> Place | None:
        """The first layer after which a member has NaN or Inf."""
        _, _, found = self._through(seeds, watch=True)
        return found

    def _through(
        self, seeds: NDArray[np.uint32], *, watch: bool = False, logits: NDArray[np.float32] | None = None
    ) -> tuple[dict[int, NodeMoments], GuessCounts, Place | None]:
        instructions = self.program.instructions
        inits = len(seeds)
        for generator, value in zip(self._generators, seeds.tolist(), strict=False):
            generator.manual_seed(value)
        moments = {i: NodeMoments(self._order(instr)) for i, instr in enumerate(instructions) if instr.observe}
        guesses = GuessCounts(inits, self.classes)
        slots = [_State(a, self.data[a : a + self.program.chunk]) for a in range(0, self.points, self.program.chunk)]
        segments = self.program.segments
        for segment in segments:
            drawn = {i: self._draw(i, instructions[i], inits) for i in segment if instructions[i].shape}
            found: list[int] = []
            for state in slots:
                for i in segment:
                    self._apply(instructions[i], drawn.get(i), state, inits, moments.get(i - 1))
                    if i in moments:
                        moments[i].add(state.x, self._scratch)
                    if watch and not bool(torch.isfinite(state.x).all()):
                        found.append(i)
                        break
                if segment is segments[-1] and not watch:
                    guesses.add(state.x, state.first)
                    if logits is not None and len(logits):
                        points = slice(state.first, state.first + state.x.shape[2])
                        logits[:, points] = state.x[: len(logits)].transpose(1, 2).numpy()
                    self._give(state.flat)
                    state.flat = None
            slots.reverse()  # the chunks that are still in cache come first
            if found:
                return moments, guesses, instructions[min(found)].place
        return moments, guesses, None

    def _apply(
        self, instr: Instr, drawn: _DrawnLayer | None, state: _State, inits: int, before: NodeMoments | None
    ) -> None:
        if instr.weights is not None:
            assert drawn is not None
            if instr.weights.product is None:
                self._rows(instr, drawn, state, inits)
            else:
                self._product(instr, drawn, state, inits)
        elif instr.local is not None:
            self._replace(state, instr.local.apply(state.x, self._scratch))
        elif instr.over_data is not None:
            assert before is not None
            if before.terms is None:
                before.terms = instr.over_data.terms(state.x, *before.result())
            self._replace(state, instr.over_data.apply(state.x, before.terms))
        elif instr.kind == "save":
            self._save(state, inits)
        elif instr.kind == "swap":
            assert state.flat is not None
            x, flat = state.saved.pop()
            state.saved.append((state.x, state.flat))
            state.x, state.flat = x, flat
        else:
            assert instr.kind == "add"
            x, flat = state.saved.pop()
            scale = _held(instr.scale, x.dtype)
            if instr.place.paths[1]:  # which is what comes last; the first one was put aside
                state.x.add_(x, alpha=scale)
                self._give(flat)
            else:
                x.add_(state.x, alpha=scale)
                self._give(state.flat)
                state.x, state.flat = x, flat

    def _rows(self, instr: Instr, drawn: _DrawnLayer, state: _State, inits: int) -> None:
        """Rows of weights times all units of a point."""
        assert instr.weights is not None
        weights, bias = drawn
        if state.flat is not None and is_image(state.x):
            turned = state.x.flatten(2).permute(1, 2, 0)
            self._move(state, turned.shape).copy_(turned)
        points = state.x.shape[0] if state.flat is None else state.x.shape[2]
        flat = self._take()
        out = flat[: inits * instr.place.after.nodes * points].view(inits, -1, points)
        if state.flat is None:  # the data, common to all inits: their weights side by side
            x, matrix = state.x, weights.flatten(0, 1)
            if instr.way == "factor":  # triangular: point a has a + 1 coordinates
                known = state.first + points
                x, matrix = x[:, :known], matrix[:, :known]
            torch.mm(matrix, x.T, out=out.view(-1, points))
        elif instr.way == "conditional":
            conditional(state.x, weights, instr.weights, out)
        else:
            torch.bmm(weights, state.x, out=out)
        if bias is not None:
            out.add_(bias.unsqueeze(2))
        self._give(state.flat)
        state.x, state.flat = out, flat

    def _product(self, instr: Instr, drawn: _DrawnLayer, state: _State, inits: int) -> None:
        """A product of the layer's own; its result goes into the state's buffer."""
        assert instr.weights is not None
        assert instr.weights.product is not None
        shared = state.flat is None
        out = instr.weights.product(state.x, *drawn, shared)
        flat = self._take() if shared else state.flat
        assert flat is not None
        state.flat = flat
        after = instr.place.after
        points = out.numel() // (inits * after.nodes)
        shape = (points, inits, *after.sizes) if after.images else (inits, after.nodes, points)
        state.x = flat[: out.numel()].view(shape)
        state.x.copy_(out.view_as(state.x))

    def _save(self, state: _State, inits: int) -> None:
        if state.flat is None:  # the data, once for every init
            many = state.x.unsqueeze(1) if state.x.dim() == 4 else state.x.T.unsqueeze(0)
            shape = list(many.shape)
            shape[1 if state.x.dim() == 4 else 0] = inits
            self._move(state, shape).copy_(many)
        flat = self._take()
        copy = flat[: state.x.numel()].view(state.x.shape).copy_(state.x)
        state.saved.append((copy, flat))

    def _order(self, instr: Instr) -> int:
        return self.order if instr.probe >= 0 and instr.place.layer.weighted else 2

    def _draw(self, index: int, instr: Instr, inits: int) -> _DrawnLayer:
        """Weights of one layer for every init of the group, each from its own generator."""
        weights = instr.weights
        assert weights is not None
        raw = self._buffer(index, inits * math.prod(instr.shape)).view(inits, *instr.shape)
        bias = torch.empty(inits, instr.shape[0]) if instr.bias else None
        for i in range(inits):
            if instr.way == "conditional":
                raw[i].normal_(generator=self._generators[i])
            else:
                fill_weights(raw[i], self._generators[i], weights)
            if bias is not None:
                fill_biases(bias[i], self._generators[i], weights)
        dtype = self.data.dtype
        return raw.to(dtype), None if bias is None else bias.to(dtype)

    def _buffer(self, index: int, size: int) -> Tensor:
        """A float32 buffer for the weights of an instruction; segments after another share."""
        segment = next(s for s in self.program.segments if index in s)
        key = index - segment.start
        if key not in self._store or self._store[key].numel() < size:
            self._store[key] = torch.empty(size)
        return self._store[key][:size]

    def _take(self) -> Tensor:
        return self._free.pop() if self._free else torch.empty(self.program.capacity, dtype=self.data.dtype)

    def _give(self, flat: Tensor | None) -> None:
        if flat is not None:
            self._free.append(flat)

    def _move(self, state: _State, shape: list[int] | torch.Size) -> Tensor:
        """Give a state another buffer of this shape; its content is for the caller to write."""
        flat = self._take()
        self._give(state.flat)  # still readable until the next take
        state.flat = flat
        state.x = flat[: math.prod(shape)].view(*shape)
        return state.x

    def _replace(self, state: _State, result: Tensor) -> None:
        """Results of operations that could not work in place go back into the state's buffer."""
        if result.data_ptr() != state.x.data_ptr():
            assert state.flat is not None
            state.x = state.flat[: result.numel()].view(result.shape).copy_(result)

    def _scratch(self, like: Tensor) -> Tensor:
        """A buffer to write into at once; nobody else holds it, nobody keeps it."""
        if not self._free:
            self._free.append(self._take())
        return self._free[-1][: like.numel()].view(like.shape)


def _held(number: float, dtype: torch.dtype) -> float:
    """The number as this precision has it; torch itself raises where that is infinite."""
    return number if abs(number) <= torch.finfo(dtype).max else math.copysign(math.inf, number)


# Networks of tokens: one member at a time, as torch modules.


@dataclass(frozen=True)
class TokenProgram:
    """A network of tokens whose modules run one after another, some sequences at a time."""

    places: tuple[Place, ...]
    probes: dict[int, int]  # the place of a probed layer: its number
    guessed: Tensor  # (points,), or (points, tokens) of a language model: what is guessed
    dtype: torch.dtype
    chunk: int
    threads: int
    before_norm: int | None  # of a language model: its last norm, if it stands before the head and no token is padding
    group: int = 1

    @property
    def each_token(self) -> bool:
        """Whether it is a language model, which guesses at every token."""
        return self.places[-1].layer.each_token

    @property
    def work(self) -> float:
        """Operations of a member on a point."""
        return 8.0 * sum(place.after.nodes * (place.before.width or 1) for place in self.places if place.layer.weighted)


class TokenWorker:
    """Runs members of a `TokenProgram`, one at a time."""

    def __init__(
        self, program: TokenProgram, data: Tensor, points: int, classes: int, seed: int, order: int = 2
    ) -> None:
        self.program, self.data, self.points, self.classes = program, data, points, classes
        self.seed, self.order = seed, order

    def run(self, seeds: NDArray[np.uint32], into: Members) -> None:
        """Compute the member of this seed and write what it gives into the arrays."""
        chain, first, same, broken = self.program, 0, 0, tie_stream(int(seeds[0]), 0)
        modules = list(drawn(chain.places, int(seeds[0])).to(chain.dtype))
        weighted = {i for i, place in enumerate(chain.places) if place.layer.weighted}
        moments = {i: NodeMoments(self.order if i in weighted else 2) for i in chain.probes}
        guesses = GuessCounts(1, self.classes)
        for given, guessed in self._chunks():
            x = given
            for index, module in enumerate(modules):
                if into.places is not None and index == chain.before_norm:
                    into.places[0] += x.double().square().mean(dim=2).sum(dim=0).numpy() / len(self.data)
                x = module(x)
                if index == len(modules) - 1 and chain.each_token:
                    x = x[guessed]  # tokens are points
                    same += int((tied_guesses(x.numpy(), broken) == given[guessed].numpy()).sum())
                if index in moments:
                    moments[index].add(x.flatten(1).T.unsqueeze(0), torch.empty_like)
            guesses.add(x.T.unsqueeze(0), first)
            if into.logits is not None and len(into.logits):
                kept = into.logits[0, first : first + len(x)]
                kept[:] = x[: len(kept)].numpy()
            first += len(x)
        fill(into, guesses, {chain.probes[i]: found for i, found in moments.items()}, self.points, self.seed)
        if into.own is not None:  # how often a language model guesses the token that it is given
            into.own[0] = same / self.points

    def first_nonfinite(self, seeds: NDArray[np.uint32]) -> Place | None:
        """The first layer after which a member has NaN or Inf."""
        modules, lost = list(drawn(self.program.places, int(seeds[0])).to(self.program.dtype)), math.inf
        for x, guessed in self._chunks():
            for index, module in enumerate(modules):
                x = module(x)
                if index == len(modules) - 1 and self.program.each_token:
                    x = x[guessed]
                if index < lost and not bool(torch.isfinite(x).all()):
                    lost = index
        return self.program.places[int(lost)] if lost < math.inf else None

    def _chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Some sequences at a time, and which of them, or of their tokens, are guessed."""
        return zip(self.data.split(self.program.chunk), self.program.guessed.split(self.program.chunk), strict=True)
