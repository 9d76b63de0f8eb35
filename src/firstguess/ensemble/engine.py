"""The ensemble reading of a description: many initializations at once, streamed through the data."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from firstguess.base.checks import count, number
from firstguess.base.errors import InvalidInput
from firstguess.base.threads import cores
from firstguess.ensemble import ops
from firstguess.ensemble.members import Finding, FindingKind, Members, Probe, ProbedLayer
from firstguess.ensemble.moments import NodeMoments, statistics
from firstguess.ensemble.places import Step, has_centered, nodes, resolve
from firstguess.ensemble.program import Program, Reductions, compile_steps, schedule
from firstguess.ensemble.seeds import check_seed, member_seeds
from firstguess.ensemble.worker import Worker
from firstguess.network.layers import BatchNorm, Dense
from firstguess.network.network import Network
from firstguess.network.signal import Inputs

_GOOD_STRETCH = 5e10  # operations between two looks at the clock: some tenths of a second
_threads_lock = threading.RLock()


class DescriptionEngine:
    """Initializations of a `Network` description on given data: the `Engine` protocol of raw.py.

    `width` is the number of units (channels) of every layer that does not say its own; `batch` the batch size of
    BatchNorms that do not say their own (None: the whole data set is the batch). `probe` says at which layers node
    statistics are taken: every one, those with weights, or the output only; taking them costs about 0.2 ns a value, a
    tenth of a layer of width 100 and a hundredth of one of width 1000.

    Member i depends on (seed, i) only. With `reduce` two exact reductions for Gaussian weights are used where they are
    shorter (performance.md): they draw other numbers of the same law, and `notes` names them. `memory` bounds what the
    engine allocates, in bytes; the data, if already float32 and contiguous, are not copied. `group` and `chunk` (inits
    and points carried together) are chosen for speed; results do not depend on them beyond rounding.

    >>> from firstguess.network.network import mlp
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
        group: int | None = None,
        chunk: int | None = None,
    ) -> None:
        if dtype not in (torch.float32, torch.float64):
            raise InvalidInput("dtype float32 or float64", got=str(dtype), where="measure", hint="torch.float32")
        if probe not in ("all", "weights", "output"):
            raise InvalidInput("probe 'all', 'weights' or 'output'", got=probe, where="measure", hint="probe='all'")
        if not number(memory) > 0:
            raise InvalidInput("a positive memory budget in bytes", got=memory, where="measure", hint="memory=2e9")
        self.seed = check_seed(seed, "measure")
        width = count(width, 1, "width", "measure", "width=1000")
        workers = count(cores() if threads is None else threads, 1, "number of threads", "measure", "threads=2")
        self._batch = None if batch is None else count(batch, 2, "batch", "measure", "batch=128")
        data = check_data(x)
        self.network = network
        self.points = len(data)
        self.classes = network.classes
        inputs = moments_of(data) if has_centered(network.layers) else None
        steps = resolve(network, data.shape[1:], width=width, inputs=inputs)
        self._check_batches(steps)
        lead = next(i for i, step in enumerate(steps) if step.weights)
        last = len(steps) - 1
        chosen = [i for i, s in enumerate(steps) if probe == "all" or (s.weights if probe == "weights" else i == last)]
        self.layers = tuple(
            ProbedLayer(steps[i].name, steps[i].layer.kind, nodes(steps[i].after), steps[i].weights) for i in chosen
        )
        place = {step: k for k, step in enumerate(chosen)}
        tensor = _as_tensor(data).to(dtype)
        self._fixed: dict[int, NDArray[np.float64]] = {}  # statistics before any weights: the same for every member
        tensor = self._lead(tensor, steps[:lead], place)
        self.notes: tuple[str, ...] = ()
        reductions = Reductions()
        first = steps[lead].layer
        if reduce:
            gaussian = isinstance(first, Dense) and first.init == "normal"
            fits = 60.0 * self.points**2 <= memory  # the factorization's float64 copies
            small = gaussian and nodes(steps[lead].before) > self.points and fits
            reductions = Reductions(small, self.points)
            if small:
                tensor = _factor(tensor)
                memory -= tensor.nbytes
                self.notes += (
                    f"exact reduction: {steps[lead].fan_in} input dimensions replaced by the triangular factor of "
                    f"the {self.points} points (Gaussian weights see the data through their overlaps only)",
                )
        self._steps = steps[lead:]
        self._data = tensor
        self._program = schedule(
            compile_steps(
                self._steps,
                [place.get(i, -1) for i in range(lead, len(steps))],
                batch=self._batch_of,
                reductions=reductions,
            ),
            points=self.points,
            multiple=self._multiple(steps),
            memory=memory,
            threads=workers,
            itemsize=tensor.element_size(),
            group=group,
            chunk=chunk,
        )
        drawn = [i.step.name for i in self._program.instructions if i.draw == "conditional"]
        if drawn:
            self.notes += (
                f"exact reduction: {len(drawn)} dense layer{'s' if len(drawn) > 1 else ''} drawn whole, given the Gram "
                f"matrix of the {self.points} points before it, instead of weight by weight",
            )
        self._workers: list[Worker] = []
        self._lock = threading.Lock()

    @property
    def stretch(self) -> int:
        """How many members are convenient to ask for at once: whole groups for every thread, tenths of a second."""
        program = self._program
        work = 0.0
        for instr in program.instructions:
            places = nodes(instr.step.after) // instr.step.after[0]
            work += instr.drawn * (2.0 * self.points * places + 400.0)  # a normal costs some 400 operations
        round_ = program.group * program.threads
        return round_ * max(1, min(round(_GOOD_STRETCH / (work * round_)), 1000))

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
        for index, fixed in self._fixed.items():
            stats[:, index] = fixed
        firsts = iter(range(0, inits, group))

        def work(worker: Worker) -> None:
            while (first := _next(firsts, self._lock)) is not None and not failures:
                part = slice(first, min(first + group, inits))
                worker.run(start + first, seeds[part], fractions[part], ties[part], stats[part])

        failures: list[BaseException] = []
        with self._lock:
            missing = min(self._program.threads, -(-inits // group)) - len(self._workers)
            self._workers += [self._worker(self._program) for _ in range(missing)]
            workers, self._workers = self._workers, []
        with one_torch_thread():
            if len(workers) == 1:
                work(workers[0])
            else:
                _in_threads(work, workers, failures)
        with self._lock:
            self._workers = workers
        bad = ~(np.isfinite(fractions).all(1) & np.isfinite(stats).all((1, 2)))
        findings = self._nonfinite(start, np.flatnonzero(bad), inits) if bad.any() else ()
        return Members(start, fractions, ties, stats, findings)

    def _worker(self, program: Program) -> Worker:
        return Worker(program, self._data, self.points, self.classes, self.seed)

    def _nonfinite(self, start: int, bad: NDArray[np.intp], inits: int) -> tuple[Finding, ...]:
        """Run the first bad member once more, looking at every layer."""
        member = start + int(bad[0])
        with one_torch_thread():
            step = self._worker(self._program).first_nonfinite(member, member_seeds(self.seed, member, member + 1))
        name, where = (step.name, step.where) if step is not None else ("", "the statistics")
        return (
            Finding(
                FindingKind.NONFINITE,
                f"{len(bad)} of {inits} initializations have NaN or Inf; in member {member} first after {where}",
                name,
            ),
        )

    def _batch_of(self, layer: BatchNorm) -> int | None:
        size = layer.batch or self._batch
        return None if size is None or (size >= self.points and layer.estimator == "usual") else size

    def _check_batches(self, steps: tuple[Step, ...]) -> None:
        for step in _every(steps):
            if isinstance(step.layer, BatchNorm) and (size := self._batch_of(step.layer)) is not None:
                least = 5 if step.layer.estimator == "leave_one_out" else 2
                rest = self.points % size
                if 0 < rest < least:
                    raise InvalidInput(
                        f"a last batch of at least {least} points",
                        got=f"{self.points} points in batches of {size}",
                        where=step.where,
                        hint=f"{self.points - rest} points, or another batch size",
                    )

    def _multiple(self, steps: tuple[Step, ...]) -> int:
        sizes = [self._batch_of(s.layer) or 1 for s in _every(steps) if isinstance(s.layer, BatchNorm)]
        return min(int(np.lcm.reduce(sizes)) if sizes else 1, self.points)

    def _lead(self, data: torch.Tensor, lead: tuple[Step, ...], place: dict[int, int]) -> torch.Tensor:
        """Apply the layers before any weights once, to the data."""
        shape = lead[0].before if lead else None
        if shape is None:
            return data if data.dim() == 4 and self._images() else data.flatten(1)
        x = data.unsqueeze(1).clone() if len(shape) == 3 else data.flatten(1).T.contiguous().unsqueeze(0)
        for index, step in enumerate(lead):
            batch = self._batch_of(step.layer) if isinstance(step.layer, BatchNorm) else None
            apply = ops.local(step, batch=batch)
            x = ops.batchnorm(x, *_moments(x)) if apply is None else apply(x, torch.empty_like)
            if step.constant is None:
                x = x - x.mean()
            if index in place:
                self._fixed[place[index]] = statistics(*_moments(x), self.points)[0].numpy()
        return x.squeeze(1) if len(shape) == 3 else x[0].T.contiguous()

    def _images(self) -> bool:
        from firstguess.network.grammar import kinds_of

        return "conv" in kinds_of(self.network.layers)


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
            hint="more points: guess fractions are shares of a data set",
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


def _factor(data: torch.Tensor) -> torch.Tensor:
    """Points by points: with Xᵀ = QR the rows of Rᵀ have the overlaps of the data, so W x and W' r are equal in law.

    In float64, some dimensions at a time: R of (R so far, next rows) is R of all of them, and needs little memory.
    """
    points, dims = data.shape
    upper = torch.empty(0, points, dtype=torch.float64)
    for first in range(0, dims, 2 * points):
        rows = data[:, first : first + 2 * points].T.double()
        upper = torch.linalg.qr(torch.cat([upper, rows]), mode="r").R
    return upper.T.to(data.dtype).contiguous()


def _every(steps: tuple[Step, ...]) -> Iterator[Step]:
    for step in steps:
        yield step
        yield from _every((*step.branch, *step.shortcut))


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
