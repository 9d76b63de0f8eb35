"""The ensemble reading of a description: many initializations at once, streamed through the data."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firstguess.base import checks
from firstguess.base.checks import count
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.statistics import guesses as tied_guesses
from firstguess.base.text import in_bytes
from firstguess.base.threads import cores
from firstguess.ensemble.member_module import check_data, drawn, moments_of, resolve
from firstguess.ensemble.member_statistics import (
    Finding,
    FindingKind,
    Interrupted,
    Members,
    Probe,
    ProbedLayer,
    members_with_logits,
    tokens_with_logits,
)
from firstguess.ensemble.program import Instr, Program, Reductions, compile_places, schedule, triangular
from firstguess.ensemble.seeds import check_seed, member_seeds, tie_stream
from firstguess.ensemble.worker import GuessCounts, NodeMoments, Worker, statistics
from firstguess.network.layer import Mix
from firstguess.network.network import Network
from firstguess.network.shapes import PositionGrid, Shape
from firstguess.network.tensors import Place

_GOOD_STRETCH = 5e10  # operations between two looks at the clock: some tenths of a second
_threads_lock = threading.RLock()


class DescriptionEngine:
    """Initializations of a `Network` description on given data: the `Engine` protocol of `member_statistics.py`.

    `width` is the number of units (channels) of every layer that does not say its own; `batch` the batch size of
    BatchNorms that do not say their own (None: the whole data set is the batch). `probe` says at which layers unit
    statistics are taken: every one, those with weights, or the output only; taking them costs about 0.2 ns a value, a
    tenth of a layer of width 100 and a hundredth of one of width 1000. `moments` 4 adds skewness and kurtosis.

    Member i depends on (seed, i) only. With `reduce` two exact reductions for Gaussian weights are used where they are
    shorter (performance.md): they draw other numbers of the same distribution, and `notes` names them. `memory` bounds
    what the engine allocates, in bytes; the data, if already float32 and contiguous, are not copied. `group` and
    `chunk` (inits and points carried together) are chosen for speed; results do not depend on them beyond rounding.

    >>> from firstguess.network.builders import mlp
    >>> x = np.random.default_rng(0).standard_normal((200, 20), dtype=np.float32)
    >>> members = DescriptionEngine(mlp(depth=2), x, width=64).run(0, 8)
    >>> members.fractions.shape, members.stats.shape
    ((8, 2), (8, 5, 4))
    """

    def __init__(
        self,
        network: Network,
        x: NDArray[Any],
        *,
        seed: int = 0,
        width: int = 1000,
        memory: float = 2e9,
        threads: int | None = None,
        reduce: bool = True,
        batch: int | None = None,
        dtype: torch.dtype = torch.float32,
        probe: Probe = "all",
        moments: int = 2,
        group: int | None = None,
        chunk: int | None = None,
    ) -> None:
        _check(dtype, probe, memory, width)
        self.seed, self._order, workers = check_seed(seed, "measure"), moments, _threads(threads)
        batch = None if batch is None else count(batch, 2, "batch", "measure", "batch=128")
        data = check_data(x)
        self.network = network
        self.points = len(data)
        self.classes = network.classes
        asked = [data]
        places = resolve(
            network, data.shape[1:], width=width, inputs=lambda: moments_of(asked[0]), points=self.points, batch=batch
        )
        chosen, self.layers = _probed(places, probe, network.classes)
        numbers = {i: k for k, i in enumerate(chosen)}
        probes = [numbers.get(i, -1) for i in range(len(places))]
        lead = next(i for i, place in enumerate(places) if place.layer.weighted)
        fits = 60.0 * self.points**2 <= memory  # the factorization's float64 copies
        fixed = compile_places(places[:lead], probes[:lead])
        drawn = compile_places(places[lead:], probes[lead:], Reductions(fits, self.points) if reduce else None)
        asked.clear()  # places live longer than this copy of the data should, and nobody asks any more
        self._fixed: dict[int, NDArray[np.float64]] = {}  # statistics before any weights: the same for every member
        tensor = self._lead(_as_tensor(data).to(dtype), fixed, places[0].before)
        self.notes: tuple[str, ...] = ()
        if drawn[0].way == "factor":
            tensor = triangular(tensor)
            memory -= tensor.nbytes
            self.notes += (
                f"exact reduction: {places[lead].before.nodes} input dimensions replaced by the triangular factor of "
                f"the {self.points} points (Gaussian weights see the data through their overlaps only)",
            )
        self._data = tensor
        together = [instr.local.batch for instr in (*fixed, *drawn) if instr.local is not None]
        self._program = schedule(
            drawn,
            points=self.points,
            multiple=min(math.lcm(*together), self.points),
            memory=memory if moments == 2 else memory / 1.5,  # for the powers of a chunk
            threads=workers,
            itemsize=tensor.element_size(),
            group=group,
            chunk=chunk,
        )
        whole = [i for i in self._program.instructions if i.way == "conditional"]
        if whole:
            self.notes += (
                f"exact reduction: {len(whole)} dense layer{'s' if len(whole) > 1 else ''} drawn whole, given the Gram "
                f"matrix of the {self.points} points before it, instead of weight by weight",
            )
        self._workers: list[Worker] = []
        self._lock = threading.Lock()

    @property
    def batch_hint(self) -> int:
        """How many members are convenient to ask for at once: whole groups for every thread, tenths of a second."""
        program = self._program
        work = 0.0
        for instr in program.instructions:
            positions = instr.place.after.nodes // instr.place.after.sizes[0]
            work += instr.drawn * (2.0 * self.points * positions + 400.0)  # a normal costs some 400 operations
        round_ = program.group * program.threads
        return round_ * max(1, min(round(_GOOD_STRETCH / (work * round_)), 1000))

    @property
    def bitwise_group(self) -> int:
        """Members that are computed side by side: runs cut at its multiples give the same bits as one run."""
        return self._program.group

    def run(self, start: int, stop: int) -> Members:
        """Compute members start … stop − 1."""
        seeds = _seeds(self.seed, start, stop)
        group = self._program.group
        inits = stop - start
        fractions = np.empty((inits, self.classes))
        ties = np.zeros(inits, np.int64)
        stats = np.empty((inits, len(self.layers), 4))
        shapes = np.full((inits, len(self.layers), 4), np.nan) if self._order == 4 else None
        kept = max(0, min(stop, members_with_logits(self.points, self.classes)) - start)
        logits = np.empty((kept, self.points, self.classes), np.float32)
        for index, fixed in self._fixed.items():
            stats[:, index] = fixed
        firsts = iter(range(0, inits, group))
        done: set[int] = set()

        def work(worker: Worker) -> None:
            while not failures and (first := _next(firsts, self._lock)) is not None:
                part = slice(first, min(first + group, inits))
                shaped = None if shapes is None else shapes[part]
                worker.run(start + first, seeds[part], fractions[part], ties[part], stats[part], shaped, logits[part])
                done.add(first)

        def finished(count: int) -> Members:
            """Return the first ones: those that come before a group that was cut."""
            bad = ~(np.isfinite(fractions[:count]).all(1) & np.isfinite(stats[:count]).all((1, 2)))
            findings = self._nonfinite(start, np.flatnonzero(bad), count) if bad.any() else ()
            shaped = None if shapes is None else shapes[:count]
            return Members(start, fractions[:count], ties[:count], stats[:count], findings, shaped, logits[:count])

        failures: list[BaseException] = []
        with self._lock:
            missing = min(self._program.threads, -(-inits // group)) - len(self._workers)
            self._workers += [self._worker(self._program) for _ in range(missing)]
            workers, self._workers = self._workers, []
        try:
            with one_torch_thread():
                if len(workers) == 1:
                    work(workers[0])
                else:
                    _in_threads(work, workers, failures)
        except KeyboardInterrupt:
            whole = next((first for first in range(0, inits, group) if first not in done), inits)
            if not whole:
                raise
            raise Interrupted(finished(whole)) from None
        with self._lock:
            self._workers = workers
        return finished(inits)

    def _worker(self, program: Program) -> Worker:
        return Worker(program, self._data, self.points, self.classes, self.seed, self._order)

    def _nonfinite(self, start: int, bad: NDArray[np.intp], inits: int) -> tuple[Finding, ...]:
        """Run the first bad member once more, looking at every layer."""
        member = start + int(bad[0])
        with one_torch_thread():
            place = self._worker(self._program).first_nonfinite(member, member_seeds(self.seed, member, member + 1))
        name, where = (place.name, place.where) if place is not None else ("", "the statistics")
        return (
            Finding(
                FindingKind.NONFINITE,
                f"{len(bad)} of {inits} initializations have NaN or Inf; in member {member} first after {where}",
                name,
            ),
        )

    def _lead(self, data: torch.Tensor, lead: Sequence[Instr], shape: Shape) -> torch.Tensor:
        """Apply the layers before any weights once, to the data."""
        if not lead:
            return data if shape.images else data.flatten(1)
        x = data.unsqueeze(1).clone() if shape.images else data.flatten(1).T.contiguous().unsqueeze(0)
        for instr in lead:
            if instr.local is not None:
                x = instr.local.apply(x, torch.empty_like)
            else:
                assert instr.over_data is not None
                over = instr.over_data
                x = over.whole(x) if over.whole is not None else over.apply(x, over.terms(x, *_moments(x)))
            if instr.probe >= 0:
                self._fixed[instr.probe] = statistics(*_moments(x), self.points)[0].numpy()
        return x.squeeze(1) if shape.images else x[0].T.contiguous()


def _moments(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    moments = NodeMoments()
    moments.add(x, torch.empty_like)
    return moments.result()


def _check(dtype: torch.dtype, probe: Probe, memory: float, width: int) -> None:
    """Refuse options that neither engine has."""
    if dtype not in (torch.float32, torch.float64):
        raise InvalidInput("dtype float32 or float64", got=str(dtype), where="measure", hint="torch.float32")
    checks.choice(probe, ("all", "weights", "output"), "measure", "probe")
    checks.within(memory, "a positive memory budget in bytes", "measure", "memory=2e9", infinite=True)
    count(width, 1, "width", "measure", "width=1000")


def _probed(
    places: Sequence[Place], probe: Probe, classes: int, *, padded: bool = False
) -> tuple[list[int], tuple[ProbedLayer, ...]]:
    """The places that are measured, and what is said of them; those of padded tokens are not, but for the output."""
    last = len(places) - 1
    wanted = {"all": lambda i: True, "weights": lambda i: places[i].layer.weighted, "output": lambda i: i == last}
    chosen = [
        i
        for i, place in enumerate(places)
        if wanted[probe](i) and (not padded or i == last or place.after.grid == PositionGrid())
    ]
    return chosen, tuple(
        ProbedLayer(p.name, p.layer.kind, classes if p.layer.each_token else p.after.nodes, p.layer.weighted)
        for p in (places[i] for i in chosen)
    )


def _threads(threads: int | None) -> int:
    return count(cores() if threads is None else threads, 1, "number of threads", "measure", "threads=2")


def _as_tensor(data: NDArray[np.float32]) -> torch.Tensor:
    with warnings.catch_warnings():  # torch cannot promise to leave read-only arrays alone; this engine does
        warnings.filterwarnings("ignore", message="The given NumPy array is not writ", category=UserWarning)
        return torch.from_numpy(data)


def _seeds(seed: int, start: int, stop: int) -> NDArray[np.uint32]:
    if not 0 <= start < stop:
        raise InvalidInput("members start < stop", got=f"{start} … {stop}", where="run", hint="run(0, 100)")
    return member_seeds(seed, start, stop)


def _next(items: Iterator[int], lock: threading.Lock) -> int | None:
    with lock:
        return next(items, None)


@contextmanager
def one_torch_thread() -> Generator[None]:
    """One thread inside torch, in inference mode; the setting that was there comes back, whatever happens."""
    with _threads_lock:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with torch.inference_mode():
                yield
        finally:
            torch.set_num_threads(before)


def _in_threads(work: Any, workers: list[Worker], failures: list[BaseException]) -> None:
    def guarded(worker: Worker) -> None:
        torch.set_num_threads(1)  # OpenMP's setting belongs to the thread
        try:
            with torch.inference_mode():
                work(worker)
        except BaseException as error:  # handed to the caller below
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(w,), daemon=True) for w in workers]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException as error:  # Ctrl-C: let the groups under way finish, start no more
        failures.append(error)
        for thread in threads:
            thread.join()
        raise
    if failures:
        raise failures[0]


# The ensemble reading of networks of tokens: one member after another, as torch modules, a core each.


_HELD = 12.0  # activations of the widest layer that are alive at once
_MASK = 6.0  # bytes a pair of tokens, of who attends to whom
_CHUNK = 64  # sequences carried together: more do not fit the cache
_PADDED = "some tokens are padding: layers are measured after the one that reads the tokens"


class TokenEngine:
    """Initializations of a `Network` of tokens on ids (n, tokens), or on images that it cuts into patches.

    Member i depends on (seed, i) only, and is `build(network, x, seed=seed, member=i)`. Options as
    `DescriptionEngine`'s; there is nothing to reduce or to group here.
    """

    def __init__(
        self,
        network: Network,
        x: NDArray[Any],
        *,
        seed: int = 0,
        width: int = 1000,
        memory: float = 2e9,
        threads: int | None = None,
        reduce: bool = True,
        batch: int | None = None,
        dtype: torch.dtype = torch.float32,
        probe: Probe = "all",
        group: int | None = None,
        chunk: int | None = None,
    ) -> None:
        _check(dtype, probe, memory, width)
        self.seed, self._threads = check_seed(seed, "measure"), _threads(threads)
        data = check_data(x)
        tokens = network.layers[0].tokens_of(data)  # ids that are none, and images that do not fit, are refused here
        real = None if tokens is None else network.layers[0].real_tokens(tokens)
        vocabulary = int(data.max()) + 1 if data.ndim == 2 else None
        self._places = resolve(
            network, data.shape[1:], width=width, inputs=lambda: None, points=len(data), vocabulary=vocabulary
        )
        for place in self._places:
            place.layer.tensors(place)  # a layer without a meaning is refused before any long work
        each_token = self._places[-1].layer.each_token
        whole = np.ones(data.shape[: 2 if each_token else 1], dtype=bool) if real is None or not each_token else real
        self._guessed = torch.from_numpy(whole)  # (points,), or (points, tokens) of a language model: what is guessed
        self.network, self.points, self.classes = network, int(whole.sum()), network.classes
        self.notes: tuple[str, ...] = () if real is None else (_PADDED,)
        chosen, self.layers = _probed(self._places, probe, network.classes, padded=real is not None)
        self._probes = {i: k for k, i in enumerate(chosen)}
        self._dtype = dtype
        self._data = torch.from_numpy(data.astype(np.int64) if data.ndim == 2 else data.astype(np.float32))
        if data.ndim != 2:
            self._data = self._data.to(dtype)
        widest = max(_widest(place) for place in self._places)
        size = 4.0 if dtype == torch.float32 else 8.0
        masked = real is not None or any(getattr(p.layer, "window", None) for p in _all(self._places))
        one = size * _HELD * widest + (_MASK * data.shape[1] ** 2 if masked and data.ndim == 2 else 0.0)
        if one > memory:
            raise NotCovered(
                f"sequences of which one takes at most {in_bytes(memory)}",
                got=f"{in_bytes(one)}, with {data.shape[1:]} numbers each",
                where="measure",
                hint=f"shorter sequences, or memory={2 * one:.0e}",
            )
        fitting = int(memory / (self._threads * one))
        self._chunk = chunk or max(1, min(len(data), _CHUNK, fitting))

    @property
    def batch_hint(self) -> int:
        """How many members are convenient to ask for at once."""
        nodes = sum(place.after.nodes * (place.before.width or 1) for place in self._places if place.layer.weighted)
        return self._threads * max(1, min(round(_GOOD_STRETCH / (8.0 * nodes * len(self._data))), 100))

    @property
    def bitwise_group(self) -> int:
        """Members that are computed side by side: none, each is alone."""
        return 1

    def run(self, start: int, stop: int) -> Members:
        """Compute members start … stop − 1."""
        seeds, inits = _seeds(self.seed, start, stop), stop - start
        fractions, tied = np.empty((inits, self.classes)), np.zeros(inits, np.int64)
        stats, bad = np.empty((inits, len(self.layers), 4)), dict[int, Place]()
        own = np.zeros(inits)
        squares = np.zeros((inits, self._data.shape[1])) if self._before_norm is not None else None
        logits = np.zeros((0, 0, self.classes), np.float32)
        if self._places[-1].layer.each_token:
            kept = max(0, min(stop, members_with_logits(1, 1)) - start)
            logits = np.zeros((kept, tokens_with_logits(self.points, self.classes), self.classes), np.float32)

        def one(index: int) -> None:
            torch.set_num_threads(1)  # OpenMP's setting belongs to the thread
            with torch.inference_mode():
                moments, guesses, place, hits = self._through(
                    int(seeds[index]),
                    logits[index] if index < len(logits) else np.zeros((0, self.classes), np.float32),
                    None if squares is None else squares[index],
                )
            own[index] = hits / self.points
            if place is not None:
                bad[index] = place
            if 0 in guesses.tied:
                tied[index] = guesses.ties(0)
                guesses.settle(0, tie_stream(self.seed, start + index))
            fractions[index] = guesses.counts[0].numpy() / self.points
            if bool(guesses.lost[0]):
                fractions[index] = np.nan  # no class for NaN
            for at, probe in self._probes.items():
                stats[index, probe] = statistics(*moments[at].result(), moments[at].points)[0].numpy()

        with one_torch_thread(), ThreadPoolExecutor(min(self._threads, inits)) as pool:
            for _ in pool.map(one, range(inits)):
                pass
        found = Members(start, fractions, tied, stats, self._nonfinite(start, inits, bad))
        each = self._places[-1].layer.each_token
        return replace(found, own=own, logits=logits, places=squares) if each else found

    @property
    def _before_norm(self) -> int | None:
        """The place of a language model's last norm, if it stands just before the head and no token is padding."""
        layers = self.network.layers
        norm = len(layers) > 2 and layers[-1].each_token and layers[-2].mixes is Mix.UNITS
        return len(layers) - 2 if norm and bool(self._guessed.all()) else None

    def _nonfinite(self, start: int, inits: int, bad: dict[int, Place]) -> tuple[Finding, ...]:
        if not bad:
            return ()
        first = min(bad)
        said = f"{len(bad)} of {inits} initializations have NaN or Inf; in member {start + first} first after "
        return (Finding(FindingKind.NONFINITE, said + bad[first].where, bad[first].name),)

    def _through(
        self, seed: int, kept: NDArray[np.float32], squares: NDArray[np.float64] | None
    ) -> tuple[dict[int, NodeMoments], GuessCounts, Place | None, int]:
        """One member on all points; the first layer after which a number is not finite, if there is one.

        Last how often a language model guesses the token that it is given. `kept` gets logits of its first tokens,
        `squares` the mean square before the last norm by position.
        """
        modules = list(drawn(self._places, seed).to(self._dtype))
        moments = {i: NodeMoments() for i in self._probes}
        guesses, lost, hits = GuessCounts(1, self.classes), len(modules), 0
        first, broken = 0, tie_stream(seed, 0)
        for given, guessed in self._chunks():
            x = given
            for index, module in enumerate(modules):
                if squares is not None and index == self._before_norm:
                    squares += x.double().square().mean(dim=2).sum(dim=0).numpy() / len(self._data)
                x = module(x)
                if index == len(modules) - 1 and self._places[-1].layer.each_token:
                    x = x[guessed]  # tokens are points
                    hits += int((tied_guesses(x.numpy(), broken) == given[guessed].numpy()).sum())
                if index < lost and not bool(torch.isfinite(x).all()):
                    lost = index
                if index in moments:
                    moments[index].add(x.flatten(1).T.unsqueeze(0), torch.empty_like)
            guesses.add(x.T.unsqueeze(0), first)
            kept[first : first + len(x)] = x[: max(len(kept) - first, 0)].numpy() if first < len(kept) else kept[:0]
            first += len(x)
        return moments, guesses, self._places[lost] if lost < len(modules) else None, hits

    def _chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Some sequences at a time, and which of them, or of their tokens, are guessed."""
        for first in range(0, len(self._data), self._chunk):
            part = slice(first, first + self._chunk)
            yield self._data[part], self._guessed[part]


def _all(places: Iterable[Place]) -> Iterator[Place]:
    """All layers, those within others included."""
    for place in places:
        yield place
        for path in place.paths:
            yield from _all(path)


def _widest(place: Place) -> int:
    """The most numbers that a point has in or after a layer."""
    inner = [_widest(one) for path in place.paths for one in path]
    return max([place.after.nodes, *inner])
