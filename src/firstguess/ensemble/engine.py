"""The ensemble reading of a description: many initializations at once, streamed through the data."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from firstguess.base.checks import count, number
from firstguess.base.errors import InvalidInput
from firstguess.base.threads import cores
from firstguess.ensemble.member_statistics import (
    Finding,
    FindingKind,
    Interrupted,
    Members,
    Probe,
    ProbedLayer,
    logits_kept,
)
from firstguess.ensemble.moments import NodeMoments, statistics
from firstguess.ensemble.program import Instr, Program, Reductions, compile_places, schedule, triangular
from firstguess.ensemble.resolved import resolve
from firstguess.ensemble.seeds import check_seed, member_seeds
from firstguess.ensemble.worker import Worker
from firstguess.network.inputs import Inputs
from firstguess.network.network import Network
from firstguess.network.shapes import Shape

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
        if dtype not in (torch.float32, torch.float64):
            raise InvalidInput("dtype float32 or float64", got=str(dtype), where="measure", hint="torch.float32")
        if probe not in ("all", "weights", "output"):
            raise InvalidInput("probe 'all', 'weights' or 'output'", got=probe, where="measure", hint="probe='all'")
        if not number(memory) > 0:
            raise InvalidInput("a positive memory budget in bytes", got=memory, where="measure", hint="memory=2e9")
        self.seed, self._order = check_seed(seed, "measure"), moments
        width = count(width, 1, "width", "measure", "width=1000")
        workers = count(cores() if threads is None else threads, 1, "number of threads", "measure", "threads=2")
        batch = None if batch is None else count(batch, 2, "batch", "measure", "batch=128")
        data = check_data(x)
        self.network = network
        self.points = len(data)
        self.classes = network.classes
        asked = [data]
        places = resolve(
            network, data.shape[1:], width=width, inputs=lambda: moments_of(asked[0]), points=self.points, batch=batch
        )
        last = len(places) - 1
        chosen = [
            i for i, p in enumerate(places) if probe == "all" or (p.layer.weighted if probe == "weights" else i == last)
        ]
        self.layers = tuple(
            ProbedLayer(p.name, p.layer.kind, p.after.nodes, p.layer.weighted) for p in (places[i] for i in chosen)
        )
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
        if not 0 <= start < stop:
            raise InvalidInput("members start < stop", got=f"{start} … {stop}", where="run", hint="run(0, 100)")
        seeds = member_seeds(self.seed, start, stop)
        group = self._program.group
        inits = stop - start
        fractions = np.empty((inits, self.classes))
        ties = np.zeros(inits, np.int64)
        stats = np.empty((inits, len(self.layers), 4))
        shapes = np.full((inits, len(self.layers), 4), np.nan) if self._order == 4 else None
        kept = max(0, min(stop, logits_kept(self.points, self.classes)) - start)
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


def check_data(x: NDArray[Any]) -> NDArray[np.float32]:
    """The data as contiguous float32 (n, d) or (n, channels, height, width), or one clear error."""
    if not hasattr(x, "ndim") or x.ndim not in (2, 4) or x.dtype.kind not in "fiub":
        got = f"shape {x.shape}, {x.dtype}" if hasattr(x, "ndim") else type(x).__name__
        raise InvalidInput(
            "numbers of shape (n, d) or (n, channels, height, width)", got=got, where="data", hint="x.reshape(n, -1)"
        )
    if x.shape[0] < 2 or 0 in x.shape:
        raise InvalidInput(
            "at least 2 data points of at least 1 dimension",
            got=f"shape {x.shape}",
            where="data",
            hint="more points: class shares are shares of a data set",
        )
    data = np.ascontiguousarray(x, dtype=np.float32)
    for first in range(0, len(data), 4096):
        finite = np.isfinite(data[first : first + 4096]).reshape(len(data[first : first + 4096]), -1).all(1)
        if not finite.all():
            raise InvalidInput(
                "finite data",
                got=f"NaN or Inf in point {first + int(np.argmin(finite))}",
                where="data",
                hint="x[np.isfinite(x).all(axis=1)]",
            )
    return data


def _as_tensor(data: NDArray[np.float32]) -> torch.Tensor:
    with warnings.catch_warnings():  # torch cannot promise to leave read-only arrays alone; this engine does
        warnings.filterwarnings("ignore", message="The given NumPy array is not writ", category=UserWarning)
        return torch.from_numpy(data)


def moments_of(data: NDArray[np.float32]) -> Inputs | None:
    """m0, v0 and the mean of theory.md (2), first row; None for points that all coincide."""
    flat = data.reshape(len(data), -1)
    mean = flat.mean(0, dtype=np.float64)
    variance = float(flat.var(0, dtype=np.float64).mean()) * len(flat) / (len(flat) - 1)
    if variance == 0.0:
        return None
    return Inputs(float(np.mean(mean**2)), variance, float(mean.mean()))


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
