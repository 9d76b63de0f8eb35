"""The ensemble reading of a description: many initializations at once, streamed through the data."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from firstguess.base import checks
from firstguess.base.checks import count
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.text import in_bytes
from firstguess.base.threads import cores, run_all, torch_threads
from firstguess.ensemble import member_statistics
from firstguess.ensemble.member_module import check_data, moments_of, resolve
from firstguess.ensemble.member_statistics import Finding, Members, Probe, ProbedLayer
from firstguess.ensemble.program import Instr, Program, compile_places, schedule, triangular
from firstguess.ensemble.seeds import check_seed, member_seeds
from firstguess.ensemble.worker import NodeMoments, TokenProgram, TokenWorker, Worker, statistics
from firstguess.network.layer import Mix
from firstguess.network.network import Network
from firstguess.network.shapes import PositionGrid, Shape
from firstguess.network.tensors import Place
from firstguess.network.walk import every, needs_tokens

_GOOD_STRETCH = 5e10  # operations between two looks at the clock: some tenths of a second
_threads_lock = threading.RLock()

# Of networks of tokens.
_HELD = 12.0  # activations of the widest layer that are alive at once
_MASK = 6.0  # bytes a pair of tokens, of who attends to whom
_CHUNK = 64  # sequences carried together: more do not fit the cache
_PADDED = "some tokens are padding: layers are measured after the one that reads the tokens"


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

    Networks of tokens take ids (n, tokens), or images that they cut into patches. Their members run one after another,
    a core each, and are `build(network, x, seed=seed, member=i)`: there is nothing to reduce or to group.

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
        if dtype not in (torch.float32, torch.float64):
            raise InvalidInput("dtype float32 or float64", got=str(dtype), where="measure", hint="torch.float32")
        checks.choice(probe, ("all", "weights", "output"), "measure", "probe")
        checks.within(memory, "a positive memory budget in bytes", "measure", "memory=2e9", infinite=True)
        count(width, 1, "width", "measure", "width=1000")
        self.seed, self._order = check_seed(seed, "measure"), moments
        workers = count(cores() if threads is None else threads, 1, "number of threads", "measure", "threads=2")
        batch = None if batch is None else count(batch, 2, "batch", "measure", "batch=128")
        data = check_data(x)
        self.network, self.classes, self.points = network, network.classes, len(data)
        self.notes: tuple[str, ...] = ()
        self._fixed: dict[int, NDArray[np.float64]] = {}  # statistics before any weights: the same for every member
        self._workers: list[Worker | TokenWorker] = []
        self._lock = threading.Lock()
        self._program: Program | TokenProgram
        if needs_tokens(network.layers):
            self._program = self._token_program(data, probe, width, dtype, memory, workers, chunk)
            return
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
        drawn = compile_places(places[lead:], probes[lead:], self.points if reduce else None, factor=fits)
        asked.clear()  # places live longer than this copy of the data should, and nobody asks any more
        tensor = self._lead(_as_tensor(data).to(dtype), fixed, places[0].before)
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

    def _token_program(
        self,
        data: NDArray[np.float32],
        probe: Probe,
        width: int,
        dtype: torch.dtype,
        memory: float,
        threads: int,
        chunk: int | None,
    ) -> TokenProgram:
        """How a network of tokens is computed: one member after another, as modules."""
        network = self.network
        tokens = network.layers[0].tokens_of(data)  # ids that are none, and images that do not fit, are refused here
        real = None if tokens is None else network.layers[0].real_tokens(tokens)
        vocabulary = int(data.max()) + 1 if data.ndim == 2 else None
        places = resolve(
            network, data.shape[1:], width=width, inputs=lambda: None, points=len(data), vocabulary=vocabulary
        )
        for place in places:
            place.layer.tensors(place)  # a layer without a meaning is refused before any long work
        each_token = places[-1].layer.each_token
        guessed = np.ones(data.shape[: 2 if each_token else 1], dtype=bool) if real is None or not each_token else real
        self.points = int(guessed.sum())
        self.notes = () if real is None else (_PADDED,)
        chosen, self.layers = _probed(places, probe, network.classes, padded=real is not None)
        self._data = torch.from_numpy(data.astype(np.int64)) if data.ndim == 2 else _as_tensor(data).to(dtype)
        masked = real is not None or any(getattr(layer, "window", None) for layer in every(network.layers))
        one = (4.0 if dtype == torch.float32 else 8.0) * _HELD * max(_widest(place) for place in places)
        one += _MASK * data.shape[1] ** 2 if masked and data.ndim == 2 else 0.0
        if one > memory:
            expected = f"sequences of which one takes at most {in_bytes(memory)}"
            got = f"{in_bytes(one)}, with {data.shape[1:]} numbers each"
            raise NotCovered(expected, got=got, where="measure", hint=f"shorter sequences, or memory={2 * one:.0e}")
        chunk = chunk or max(1, min(len(data), _CHUNK, int(memory / (threads * one))))
        norm = len(places) > 2 and each_token and network.layers[-2].mixes is Mix.UNITS and bool(guessed.all())
        probes = {i: k for k, i in enumerate(chosen)}
        return TokenProgram(
            places, probes, torch.from_numpy(guessed), dtype, chunk, threads, len(places) - 2 if norm else None
        )

    @property
    def batch_hint(self) -> int:
        """How many members are convenient to ask for at once: whole groups for every thread, tenths of a second."""
        program = self._program
        if isinstance(program, TokenProgram):
            return program.threads * max(1, min(round(_GOOD_STRETCH / (program.work * len(self._data))), 100))
        round_ = program.group * program.threads
        return round_ * max(1, min(round(_GOOD_STRETCH / (program.work(self.points) * round_)), 1000))

    @property
    def bitwise_group(self) -> int:
        """Members that are computed side by side: runs cut at its multiples give the same bits as one run."""
        return self._program.group

    def run(self, start: int, stop: int) -> Members:
        """Compute members start … stop − 1."""
        if not 0 <= start < stop:
            raise InvalidInput("members start < stop", got=f"{start} … {stop}", where="run", hint="run(0, 100)")
        seeds = member_seeds(self.seed, start, stop)
        group, inits = self._program.group, stop - start
        found = self._members(start, inits)
        firsts = iter(range(0, inits, group))
        done: set[int] = set()
        halt = threading.Event()

        def work(worker: Worker | TokenWorker) -> None:
            torch.set_num_threads(1)  # OpenMP's setting belongs to the thread
            with torch.inference_mode():
                while not halt.is_set():
                    with self._lock:
                        first = next(firsts, inits)
                    if first == inits:
                        return
                    last = min(first + group, inits)
                    worker.run(seeds[first:last], found.part(first, last))
                    done.add(first)

        def finished(count: int) -> Members:
            """Return the first ones: those that come before a group that was cut."""
            part = found.part(0, count)
            bad = ~(np.isfinite(part.fractions).all(1) & np.isfinite(part.stats).all((1, 2)))
            return replace(part, findings=self._nonfinite(start, np.flatnonzero(bad), count)) if bad.any() else part

        with self._lock:
            missing = min(self._program.threads, -(-inits // group)) - len(self._workers)
            self._workers += [self._worker() for _ in range(missing)]
            workers, self._workers = self._workers, []
        try:
            with one_torch_thread():
                if len(workers) == 1:
                    work(workers[0])
                else:
                    run_all([partial(work, worker) for worker in workers], halt)
        except KeyboardInterrupt:
            whole = next((first for first in range(0, inits, group) if first not in done), inits)
            if not whole:
                raise
            raise member_statistics.Interrupted(finished(whole)) from None
        with self._lock:
            self._workers = workers
        return finished(inits)

    def _members(self, start: int, inits: int) -> Members:
        program = self._program
        language = isinstance(program, TokenProgram) and program.each_token
        kept = 1 if language else self.points * self.classes
        kept = max(0, min(start + inits, member_statistics.members_with_logits(kept, 1)) - start)
        tokens = member_statistics.tokens_with_logits(self.points, self.classes) if language else self.points
        before_norm = isinstance(program, TokenProgram) and program.before_norm is not None
        stats = np.empty((inits, len(self.layers), 4))
        for index, fixed in self._fixed.items():
            stats[:, index] = fixed
        return Members(
            start,
            np.empty((inits, self.classes)),
            np.zeros(inits, np.int64),
            stats,
            shapes=np.full((inits, len(self.layers), 4), np.nan) if self._order == 4 else None,
            logits=np.empty((kept, tokens, self.classes), np.float32),
            own=np.zeros(inits) if language else None,
            places=np.zeros((inits, self._data.shape[1])) if before_norm else None,
        )

    def _worker(self) -> Worker | TokenWorker:
        kind: Any = TokenWorker if isinstance(self._program, TokenProgram) else Worker
        return kind(self._program, self._data, self.points, self.classes, self.seed, self._order)

    def _nonfinite(self, start: int, bad: NDArray[np.intp], inits: int) -> tuple[Finding, ...]:
        """Run the first bad member once more, looking at every layer."""
        member = start + int(bad[0])
        with one_torch_thread():
            place = self._worker().first_nonfinite(member_seeds(self.seed, member, member + 1))
        name, where = (place.name, place.where) if place is not None else ("", "the statistics")
        words = f"{len(bad)} of {inits} initializations have NaN or Inf; in member {member} first after {where}"
        return (Finding(member_statistics.FindingKind.NONFINITE, words, name),)

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


def _as_tensor(data: NDArray[np.float32]) -> torch.Tensor:
    """The data itself, which is often read-only: a copy would be in no memory budget."""
    with warnings.catch_warnings():  # torch cannot promise to leave read-only arrays alone; this engine does
        warnings.filterwarnings("ignore", message="The given NumPy array is not writ", category=UserWarning)
        return torch.from_numpy(data)


@contextmanager
def one_torch_thread() -> Generator[None]:
    """One thread inside torch, in inference mode; the setting that was there comes back, whatever happens."""
    with _threads_lock, torch_threads(1), torch.inference_mode():
        yield


def _widest(place: Place) -> int:
    """The most numbers that a point has in or after a layer."""
    inner = [_widest(one) for path in place.paths for one in path]
    return max([place.after.nodes, *inner])
