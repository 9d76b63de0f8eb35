"""`Run`: what an item's function gets. Data, quick or full, and pieces of work that survive an interruption."""

from __future__ import annotations

import functools
import inspect
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

import firstguess as fg
from firstguess import FirstguessError, InvalidInput
from firstguess.data import Data
from firstguess_papers import library
from firstguess_papers.items import WORK, Item, Sizes
from firstguess_papers.library import NUMERICS, Piece, Store, address

Progress: TypeAlias = Callable[[str, int, int], object]  # (what, done, total)
T = TypeVar("T")


class Crew(Protocol):
    """Others who compute pieces meanwhile: `execute.Workers`, in processes of this machine or on Ray."""

    def submit(self, where: str, function: Callable[..., Piece], given: Mapping[str, Any]) -> None:
        """Have `function(**given)` computed and kept in the store under this address."""
        ...

    def finish(self, where: str) -> None:
        """Wait until it is kept."""
        ...


class Missing(Exception):
    """Something that an item needs and that is not there: the item is skipped, and this says how to get it."""


def silent(what: str, done: int, total: int) -> None:
    """No progress is shown."""


@dataclass
class Run:
    """One item at work.

    Everything random takes its seed from `seed`, or from a number written in the item. The usual pattern:

        x = run.data("cifar10:cat-dog", points=n)                # skips the item where the data are absent
        m = run.measure("dense(weight_var=2) > relu > dense", x, inits=inits, width=500)      # a resumable piece
        p = run.keep(simulate, label="centers", points=n, seed=run.seed)                      # another one

    A piece should take at most half a minute: Ctrl-C loses only the one under way.
    """

    item: Item
    quick: bool
    store: Store
    data_dir: str | Path | None = None
    seed: int = 0
    progress: Progress = silent
    fresh: bool = False
    changed: Sizes | None = None  # sizes that are not the item's: `--set width=400`
    times: int = 1  # as many parts of every ensemble: sampling went on
    crew: Crew | None = None  # who else computes pieces; None: nobody
    computed: list[str] = field(default_factory=list[str])  # labels of pieces computed now, for tests and the curious
    reused: list[str] = field(default_factory=list[str])
    saved_seconds: float = 0.0  # what the reused pieces took when they were computed

    @property
    def sizes(self) -> tuple[dict[str, Any], ...]:
        """The sets of sizes of this run."""
        return self.item.sizes(self.quick, self.changed, self.times)

    def data(self, spec: str, **options: Any) -> Data:
        """`fg.data.load(spec, data_dir=…)`; for the data sets that the item `needs`, absence skips the item.

        Standardized by the points that are kept, as the ledger's numbers are; `load` does so by all of them.
        """
        how = options.pop("standardize", None) or library.PREPARED.get(spec.partition(":")[0].replace("-", "_"), "none")
        by = options.pop("shift", 0.0)
        try:
            return fg.data.load(spec, data_dir=self.data_dir, standardize="none", **options).standardize(how).shift(by)
        except (InvalidInput, ImportError) as error:
            if spec.partition(":")[0] in self.item.needs:
                raise Missing(str(error)) from error
            raise

    def piece(
        self, key: Any, compute: Callable[[], Piece], *, label: str | None = None, complete: bool = False
    ) -> dict[str, Any]:
        """The piece with this key: from the store, or computed now and kept.

        `key` says what the numbers depend on beyond the item, its version, the seed and the run's sizes: names, and
        `data.hash` if data come in. A `complete` key has all sizes that matter: it stays valid where others change. A
        piece is a dict of numbers, texts and arrays (of any shape); they come back as such, arrays as NumPy arrays.
        """
        name = label or (key if isinstance(key, str) else " ".join(str(v) for v in _leaves(key)))
        where = self._where(key, complete)
        if not self.fresh and (found := self.store.read(where)) is not None:
            self.reused.append(name)
            self.saved_seconds += found[1]
            return found[0]
        self.progress(name, 0, 1)
        started = time.perf_counter()
        self.store.write(where, compute(), time.perf_counter() - started)
        self.computed.append(name)
        self.progress(name, 1, 1)
        found = self.store.read(where)  # what a later run will see, so that both give the same numbers
        if found is None:
            raise FirstguessError("a folder that keeps what is written", got=str(self.store.folder))
        return found[0]

    def keep(self, function: Callable[..., Piece], *, label: str, **given: Any) -> Mapping[str, Any]:
        """`function(**given)` as a piece, here or by the crew: its key is the function's name and all that it is given.

        With a crew it is waited for when something is first read: ask for all pieces, then read. The function stands at
        the top level of a module; one that takes `progress` is given `progress(done, total)`.
        """
        unknown = [name for name, value in given.items() if callable(value)]
        if unknown or function.__qualname__ != function.__name__:
            raise InvalidInput("a function at the top level, given data", got=unknown or function, where="Run.keep")
        known = {  # a network's text does not say how many classes it has
            name: getattr(value, "hash", repr(value) if isinstance(value, fg.Network) else value)
            for name, value in given.items()
        }
        return Later(self.promise({"keep": function.__name__, **known}, function, given, label=label))

    def _where(self, key: Any, complete: bool) -> str:
        sizes = [] if complete else [{k: v for k, v in one.items() if k not in WORK} for one in self.sizes]
        return address(self.item.id, self.item.version, self.seed, NUMERICS, sizes, key)

    def promise(
        self, key: Any, function: Callable[..., Piece], given: Mapping[str, Any], *, label: str
    ) -> Callable[[], dict[str, Any]]:
        """A piece with a complete key that the crew computes meanwhile: call what comes back when it is needed.

        `function(**given)` must be something that another process can read. Without a crew the piece is
        computed at once, here.
        """
        where, crew = self._where(key, True), self.crew
        if crew is None or (not self.fresh and self.store.has(where)):
            told: dict[str, Any] = {}
            if "progress" in inspect.signature(function).parameters:
                told["progress"] = functools.partial(self.progress, label)
            piece = self.piece(key, lambda: function(**told, **given), label=label, complete=True)
            return lambda: piece
        crew.submit(where, function, given)

        def wait() -> dict[str, Any]:
            started = time.perf_counter()
            crew.finish(where)
            waited = time.perf_counter() - started
            self.computed.append(label)
            found = self.store.read(where)
            if found is None:
                raise FirstguessError(
                    "an output folder that all nodes share", got=f"no piece {where} in {self.store.folder}",
                    where="--out", hint="--out on a disk in common",
                )  # fmt: skip
            self.saved_seconds += found[1] - waited  # work of another process, not the time that this one waited
            return found[0]

        return wait

    def measure(
        self, what: Any, data: Data, *, name: str = "", label: str | None = None, **options: Any
    ) -> fg.Measurement:
        """`fg.measure`, kept as a piece: law of the guesses, γ by layer.

        A description is its own key; a module or factory needs a `name` that says what it is, with all its sizes.
        """
        if isinstance(what, (fg.Network, str)):
            key: Any = {"network": str(what), "classes": getattr(what, "classes", None)}
        elif name:
            key = {"model": name}
        else:
            raise InvalidInput("name= for a module: its key", got=type(what).__name__, where="Run.measure")
        given = {k: v for k, v in options.items() if not callable(v)}
        seed = options.pop("seed", self.seed)
        key |= {"name": name, "data": data.hash, "seed": seed, "options": given}
        shown = label or name or str(what)
        task = {"what": what, "data": data, "seed": seed, "options": {"points": data.n} | options}
        piece = self.promise(key, measured, task, label=shown)
        return self.later(fg.Measurement, lambda: _unpack(piece()))

    def later(self, kind: type[T], make: Callable[[], T]) -> T:
        """What `make` gives: now, or with a crew when something is first asked of it, so that it can work meanwhile."""
        return make() if self.crew is None else later(kind, make)


class Later(Mapping[str, Any]):
    """A piece that may still be under way: reading waits for it."""

    def __init__(self, wait: Callable[[], dict[str, Any]]) -> None:
        self._piece = functools.cache(wait)

    def __getitem__(self, name: str) -> Any:
        return self._piece()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._piece())

    def __len__(self) -> int:
        return len(self._piece())


def measured(
    *,
    what: Any,
    data: Data,
    seed: int,
    options: Mapping[str, Any],
    progress: Callable[[int, int], object] | None = None,
) -> Piece:
    """`fg.measure` as a piece, for this process or another."""
    m = fg.measure(what, data, seed=seed, progress=progress, **options)
    if any(finding.kind == "interrupted" for finding in m.findings):
        raise KeyboardInterrupt  # half an ensemble must not pass for a whole one in the next run
    return _pack(m)


def later(kind: type[T], make: Callable[[], T]) -> T:
    """An instance of `kind` that is made when something is first asked of it.

    >>> class Word(str):
    ...     pass
    >>> made = []
    >>> word = later(Word, lambda: made.append(1) or Word("bias"))
    >>> list(made), isinstance(word, Word), word.upper(), word.lower(), made
    ([], True, 'BIAS', 'bias', [1])
    """
    value = functools.cache(make)

    def ask(self: object, name: str) -> Any:
        return getattr(value(), name)

    lazy: Any = type(kind.__name__, (kind,), {"__getattribute__": ask})
    return kind.__new__(lazy)


def _pack(m: fg.Measurement) -> dict[str, Any]:
    plain = m.to_dict()
    plain["guesses"] = {"points": m.points, "seed": m.guesses.seed}
    plain["seconds"] = 0.0  # wall times would make two equal runs differ
    return {"fractions": m.guesses.fractions, "rest": json.dumps(plain, sort_keys=True)}


def _unpack(piece: Piece) -> fg.Measurement:

    plain = json.loads(piece["rest"])
    plain["guesses"]["fractions"] = np.asarray(piece["fractions"])
    return fg.Measurement.from_dict(plain)


def _leaves(key: Any) -> list[Any]:
    if isinstance(key, dict):
        return [leaf for value in key.values() for leaf in _leaves(value)]
    return [leaf for value in key for leaf in _leaves(value)] if isinstance(key, (list, tuple)) else [key]
