"""`fg.study`: many configurations of one function, each computed once, wherever and whenever."""

from __future__ import annotations

import ast
import inspect
import itertools
import math
import os
import random
import re
import sys
import textwrap
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, cast, overload

import numpy as np

from firstguess.base import checks
from firstguess.base.errors import InvalidInput
from firstguess.base.files import address, reason
from firstguess.base.text import number, page, spaced
from firstguess.base.threads import cores
from firstguess.data import Data, as_data, load
from firstguess.modules.measure import versions
from firstguess.network.network import Network
from firstguess.studies.identity import code_version, identity, numerics
from firstguess.studies.pools import LocalPool, RayPool
from firstguess.studies.scheduler import Drive, Pool, Ran, Task
from firstguess.studies.store import TASK
from firstguess.studies.study_files import Results, StudyFiles
from firstguess.studies.tasks import Work

if TYPE_CHECKING:
    from firstguess.show.charts.theme import Chart

Engine = Literal["local", "ray"]
_FORM = 2  # of what is stored: another one starts again


# -- What a study is made of: a grid, a list of configurations, or networks by name -----------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class Grid(Sequence[dict[str, Any]]):
    """All combinations of some axes, in the order of nested loops; a sequence of dicts that is never held whole."""

    axes: dict[str, tuple[Any, ...]]

    def __len__(self) -> int:
        return math.prod(len(values) for values in self.axes.values())

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        at = range(len(self))[index]
        chosen: dict[str, Any] = {}
        for name, values in reversed(self.axes.items()):
            at, place = divmod(at, len(values))
            chosen[name] = values[place]
        return {name: chosen[name] for name in self.axes}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for values in itertools.product(*self.axes.values()):
            yield dict(zip(self.axes, values, strict=True))

    def __add__(self, other: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        return [*self, *other]

    def __repr__(self) -> str:
        axes = ", ".join(f"{name}={list(values)!r}" for name, values in self.axes.items())
        return f"fg.grid({axes})"

    def __str__(self) -> str:
        width = max(len(name) for name in self.axes)
        lines = [f"Grid ({spaced(len(self))} configurations)"]
        lines += [f"  {name:<{width}}  {', '.join(map(_said, values))}" for name, values in self.axes.items()]
        return "\n".join(lines)


def grid(**axes: Iterable[Any]) -> Grid:
    """All combinations of the values of some axes: what a study goes through.

    >>> print(grid(depth=[1, 5, 20], norm=[None, "layernorm"]))
    Grid (6 configurations)
      depth  1, 5, 20
      norm   none, layernorm
    >>> grid(depth=[1, 5], norm=[None, "layernorm"])[1]
    {'depth': 1, 'norm': 'layernorm'}
    """
    found: dict[str, tuple[Any, ...]] = {}
    for name, values in axes.items():
        if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
            hint = f"{name}=[{values!r}]"
            raise InvalidInput("a list of values for each axis", got=f"{name}={values!r}", where="grid", hint=hint)
        listed = values.tolist() if isinstance(values, np.ndarray) else values
        found[name] = tuple(cast("Iterable[Any]", listed))
        if not found[name]:
            raise InvalidInput("at least one value for each axis", got=f"{name}=[]", where="grid", hint=f"{name}=[1]")
    if not found:
        raise InvalidInput("at least one axis", got="none", where="grid", hint="fg.grid(depth=[1, 5, 20])")
    return Grid(found)


@dataclass(frozen=True)
class Configuration:
    """What the function gets, and what the table shows of it."""

    given: Any
    shown: dict[str, Any]


def each_of(given: object) -> Iterator[Configuration]:
    """Each configuration of a grid, a list of dicts, a list of networks, or networks (or dicts) by name."""
    if isinstance(given, Mapping):
        for name, value in cast("Mapping[Any, Any]", given).items():
            if isinstance(value, Mapping):
                yield Configuration(value, {"name": str(name), **_columns(cast("Mapping[Any, Any]", value))})
            else:
                yield Configuration(value, {"network": str(name)})
        return
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise _expected(given)
    for value in cast("Iterable[Any]", given):
        if isinstance(value, Mapping):
            yield Configuration(value, _columns(cast("Mapping[Any, Any]", value)))
        elif isinstance(value, Network | str):
            yield Configuration(value, {"network": str(value)})
        else:
            raise _expected(value)


def _expected(got: object) -> InvalidInput:
    expected = "a grid, a list of dicts, or a dict of networks"
    hint = "fg.grid(depth=[1, 5, 20])"
    return InvalidInput(expected, got=type(got).__name__, where="study(configurations)", hint=hint)


def _columns(values: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(name): _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    """A number, a text or None, as a table can hold it."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return ", ".join(_said(item) for item in cast("Iterable[Any]", value))
    return _said(value)


def _said(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, int | float):
        return number(value)
    if isinstance(value, np.ndarray):
        return f"array {value.shape}"
    text = str(value)
    return getattr(value, "__name__", type(value).__name__) if " at 0x" in text else text


def equal(given: Any) -> Any:
    """A configuration with whole floats as integers: what is equal has one address.

    >>> equal({"depth": 2.0, "axes": (1.0, 0.5)})
    {'depth': 2, 'axes': (1, 0.5)}
    """
    if isinstance(given, np.floating):
        given = float(given)
    if type(given) is float:
        return int(given) if given.is_integer() and abs(given) < 2.0**53 else given
    if type(given) is dict:
        return {name: equal(value) for name, value in cast("dict[Any, Any]", given).items()}
    return type(given)(equal(value) for value in given) if type(given) in (list, tuple) else given


def digest(given: Any) -> str:
    """The digest of all configurations: of a grid by its axes, so that a million take no time."""
    return address(identity(given.axes)) if isinstance(given, Grid) else address(identity(given))


# -- The study --------------------------------------------------------------------------------------------------------


def _without_traceback(stop: KeyboardInterrupt) -> None:
    """Let a script end without the traceback of this Ctrl-C: what there is to say of it has been said."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if error is not stop:
            before(kind, error, trace)

    sys.excepthook = hook


class Study:
    """Configurations, a function, and a store of results. Made by `fg.study`; `run` it, then look at its `table`."""

    def __init__(
        self,
        name: str,
        configurations: Iterable[Any],
        function: Callable[..., Any],
        *,
        store: str | os.PathLike[str] = "runs",
        data: Any = None,
        block: int | None = None,
        version: str | int = "",
        written: str = "",
    ) -> None:
        """`written`: the study's text, where it was read from one."""
        if not re.fullmatch(r"[\w][\w .+=-]{0,99}", name) or name.endswith((".table", " ")):
            raise InvalidInput("a name that a file can have", got=repr(name), where="study(name)", hint='"norms"')
        if not callable(function):
            expected = "a function of one configuration"
            hint = "lambda p: fg.predict(fg.mlp(**p))"
            raise InvalidInput(expected, got=type(function).__name__, where="study(function)", hint=hint)
        if block is not None:
            block = checks.count(block, 1, "number of members per block", "study(block)", "block=100")
        given: Any = configurations
        self.name = name
        self._given: Any = given if hasattr(given, "__len__") else list(given)
        self._function = function
        self._data = _data(data)
        self._block = block
        self._version = str(version)
        self._written = written
        self.ran: Ran | None = None  # what the last `run` did
        if not len(self._given):
            raise InvalidInput("at least one configuration", got="none", where="study(configurations)")
        next(each_of(self._given))  # what cannot be one is refused here
        self._kept = StudyFiles(Results(_folder(store)), name)

    # -- What it is -------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._given)

    def settings(self) -> list[str]:
        """The names of what a configuration sets: the first columns of the table."""
        self._plan()
        return self._kept.settings()

    @cached_property
    def _common(self) -> str:
        """The address of what all tasks share."""
        return address(_FORM, identity(self._function), identity(self._data), numerics(), self._version)

    @cached_property
    def digest(self) -> str:
        """Sixteen digits that say which study this is: function, data, code and all configurations."""
        return address(self._common, digest(self._given))

    def _plan(self) -> None:
        """Keep configurations and the addresses of all tasks in the store, if they are not there."""
        if self._kept.about().get("digest") == self.digest:
            return
        found = list(each_of(self._given))
        keys = [address(self._common, identity(equal(one.given))) for one in found]
        known = {
            "name": self.name,
            "digest": self.digest,
            "function": self._written or _text(self._function),
            "data": "" if self._data is None else f"{_named(self._data)}, {self._data.hash}",
            "version": self._version,
            "code": code_version(),
            **versions(),
        }
        try:
            self._kept.write_plan([one.shown for one in found], keys, known)
        except OSError as error:
            raise _refused(self._kept.results.folder, error) from error

    def _tasks(self, keys: list[str], first: int) -> Iterator[Task]:
        """All tasks, from the one with this number on, and then those before it."""
        seen = set[str]()
        for part in (slice(first, None), slice(0, first)):
            pairs = zip(keys, each_of(self._given), strict=True)
            for key, one in itertools.islice(pairs, part.start, part.stop):
                if key not in seen:  # two configurations that are one task
                    seen.add(key)
                    yield Task(key, one.given)

    # -- Running ----------------------------------------------------------------------------------------------------

    @checks.known_options
    def run(
        self,
        *,
        engine: Engine = "local",
        workers: int | None = None,
        seconds: float | None = None,
        memory: float | None = None,
        retries: int = 3,
        address: str | None = None,
        cpus: int = 1,
        gpus: float = 0,
        progress: Callable[[Ran], object] | None = None,
    ) -> Study:
        """Compute what is missing, keep each result as it comes, and give the study back.

        A task that raises, runs out of time or takes its process down is a row in `failures()`, and the rest continues;
        the next `run` tries it again. Ctrl-C, a full disk or a lost power line leave all that was finished.

        Args:
            engine: "local": processes of this machine; "ray": Ray, `pip install 'firstguess[ray]'`.
            workers: Processes on this machine: by default one per core. Each uses one thread.
            seconds: The time limit of a task.
            memory: Bytes of data that a task may use (Linux): it fails, and not the machine.
            retries: How often a task is started again after its worker died.
            address: Address of a Ray cluster: "auto" finds the one here; None starts one on this machine, unless
                RAY_ADDRESS names one. A connection that you have made with `ray.init(…)` is used as it is.
            cpus: Processors per task, for Ray; its threads, too.
            gpus: GPUs per task, for Ray.
            progress: Called with what the run has done so far, after each task; by default a bar on a terminal.
        """
        checks.choice(engine, ("local", "ray"), "engine", "engine")
        for name, limit in (("seconds", seconds), ("memory", memory)):
            checks.within(limit, f"{name} above 0", f"run({name})", infinite=True, optional=True)
        retries = checks.count(retries, 0, "number of retries", "run(retries)", "retries=3")
        processes = checks.count(cores() if workers is None else workers, 1, "workers", "run(workers)", "workers=2")
        cpus = checks.count(cpus, 1, "number of processors", "run(cpus)", "cpus=1")
        work = Work(self._function, self._data, cpus if engine == "ray" else 1, memory, code_version())
        self._plan()
        keys: list[str] = self._kept.plan(self.digest)[TASK].to_pylist()
        total = len(set(keys))
        with self._kept.alone() as alone, _bar(self.name, total, progress) as tick:
            # Another run of this study is at work, from its first task on: this one begins somewhere else.
            first = 0 if alone or total < 2 else random.SystemRandom().randrange(1, len(keys))
            drive = Drive(self._kept.results, self._tasks(keys, first), total, block=self._block, tick=tick)
            self.ran = drive.ran

            def pool() -> Pool:
                if engine == "local":
                    return LocalPool(work, workers=min(processes, total), seconds=seconds, retries=retries)
                return RayPool(work, address=address, retries=retries, cpus=cpus, gpus=gpus, seconds=seconds)

            try:
                drive.run_in(pool)
            except KeyboardInterrupt as stop:
                ran, folder = drive.ran, self._kept.results.folder
                done = f"{spaced(ran.found + ran.done)} of {spaced(total)} done, kept in {folder}"
                sys.stderr.write(f"firstguess: stopped, {done}: run it again for the rest\n")
                _without_traceback(stop)
                raise
        return self

    # -- Looking ----------------------------------------------------------------------------------------------------

    def table(self) -> Any:
        """Configurations and results, a row each, as a `pyarrow.Table`: `pandas`, `polars` and DuckDB read it as it is.

        Rows without a result are left out: `failures()` has those that were tried.
        """
        self._plan()
        found, damaged = self._kept.table(self.digest)
        if damaged:
            sys.stderr.write(f"firstguess: {damaged} damaged result files were set aside: run() computes them again\n")
        return found

    def failures(self) -> Any:
        """Configurations that were tried and have no result, with the reason and the end of the traceback."""
        self._plan()
        return self._kept.failures()

    def plot(self, x: str | None = None, y: str | None = None, color: str | None = None) -> Chart:
        """A chart of one column over another, by colour for a third; with 95 % intervals where the table has them.

        By default the first number of the results over the first setting that varies, by colour for the second.
        """
        from firstguess.show.charts.sweep import defaults, study_chart

        table, settings = self.table(), self.settings()
        x, y, color = defaults(table, settings, x, y, color)
        return study_chart(table, x=x, y=y, color=color, settings=settings)

    def _repr_html_(self) -> str:
        from firstguess.show.results import html

        return html(self)

    def save(self, path: str | Path) -> Path:
        """Write the study as one HTML file that opens offline: table, figures, best and worst, how it was made."""
        from firstguess.studies.pages import write

        self._plan()
        return write(self._kept, self.table(), path)

    def counts(self) -> dict[str, int]:
        """How many tasks there are, are done, have failed, are missing."""
        self._plan()
        return self._kept.counts()

    def __repr__(self) -> str:
        return f"Study({self.name!r}, {len(self)} configurations, store={str(self._kept.results.folder)!r})"

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {word}" for word, count in self.counts().items())
        return page(f"Study {self.name}", [("store", str(self._kept.results.folder)), ("so far", counts)])


def study(
    name: str,
    configurations: Iterable[Any],
    function: Callable[..., Any],
    *,
    store: str | os.PathLike[str] = "runs",
    data: Any = None,
    block: int | None = None,
    version: str | int = "",
) -> Study:
    """A resumable sweep: one function, many configurations, and each result cached.

    >>> import tempfile
    >>> import firstguess as fg
    >>> s = study("depths", fg.grid(depth=[1, 20]), lambda p: fg.predict(fg.mlp(**p)), store=tempfile.mkdtemp())
    >>> t = s.run(workers=1).table()
    >>> [(d, round(g, 4)) for d, g in zip(t["depth"].to_pylist(), t["gamma"].to_pylist())]
    [(1, 0.4669), (20, 18.3905)]

    Args:
        name: Name of the study, in its store.
        configurations: A grid (`fg.grid`), a list of dicts, or a dict of networks. The function gets one of them.
        function: Returns a Prediction, a Measurement, a training, a Diagnosis, or a dict of numbers, texts and arrays.
            It may be a lambda, and use variables around it; it runs in another process.
        store: A folder. Results stand in it by a hash of all that they depend on: configuration, data, the function
            with what it refers to, the version of firstguess's numbers and those of numpy, scipy and torch. Studies
            share them, and what has changed is computed again. Runs may use one store at the same time.
        data: Anything that `firstguess.data` takes: read once, and the function's second argument. Data that the
            function names itself are known by that name only.
        block: Members per task: an ensemble that `fg.measure` or `fg.train` draws is split into tasks of about this
            many, and joined to the very numbers of one machine. By default an ensemble is one task.
        version: Part of the hash. Change it where something changed that is not seen: files, other packages.
    """
    return Study(name, configurations, function, store=store, data=data, block=block, version=version)


def _data(given: Any) -> Data | None:
    if given is None or isinstance(given, Data):
        return given
    return load(given) if isinstance(given, str) else as_data(given)


def _named(data: Data) -> str:
    points = f"{data.n} points"
    return data.prepared if points in data.prepared else f"{data.prepared}, {points}"


def _folder(store: str | os.PathLike[str]) -> Path:
    try:
        folder = Path(store)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _refused(Path(store), error) from error
    except TypeError as error:
        raise InvalidInput("a folder", got=type(store).__name__, where="study(store)", hint='store="runs"') from error
    return folder


def _refused(folder: Path, error: OSError) -> InvalidInput:
    return InvalidInput("a folder for results", got=reason(error), where=f"study(store={str(folder)!r})")


def _text(function: Callable[..., Any]) -> str:
    """The function as it was written, where that is known."""
    try:
        text = textwrap.dedent(inspect.getsource(function)).strip()
    except (OSError, TypeError):
        return getattr(function, "__qualname__", type(function).__qualname__)
    return _lambda(text) if getattr(function, "__name__", "") == "<lambda>" else text


def _lambda(text: str) -> str:
    """A lambda without the rest of the lines that it stands in, where that can be told."""
    start = text.find("lambda")
    for end in range(len(text), start, -1):
        try:
            found = ast.parse(text[start:end], mode="eval").body
        except (SyntaxError, ValueError):
            continue
        if isinstance(found, ast.Lambda):
            return text[start:end].strip()
    return text


@contextmanager
def _bar(name: str, total: int, given: Callable[[Ran], object] | None) -> Generator[Callable[[Ran], object]]:
    if given is not None or not sys.stderr.isatty():
        yield given or (lambda ran: None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        bar = shown.add_task(name, total=total)

        def tick(ran: Ran) -> None:
            words = f"{name}, {ran.failed} failed" if ran.failed else name
            shown.update(bar, description=words, completed=ran.found + ran.done + ran.failed)

        yield tick
