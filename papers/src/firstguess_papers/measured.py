"""Items that are data: a sweep of measurements, quantities of it, checks, a sentence and charts.

Sizes say how large; `cells` which networks on which data; `quantities` what is read off them, or computed in other
pieces; `judge` which checks decide a claim. Settings, keys, table, measured text, verdicts and titles
follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from firstguess import InvalidInput, Measurement
from firstguess.data import Data
from firstguess_papers.charts import columns, row
from firstguess_papers.items import Entry, Item, Outcome, Sizes
from firstguess_papers.judging import Check
from firstguess_papers.running import Run
from firstguess_papers.training_pieces import Arm, predicted, trained


@dataclass(frozen=True)
class Cell:
    """One network on one data set. `options` go to `fg.measure`; `inits` and `width` are the sizes' unless given.

    A module needs a `name` that says what it is, with all its sizes.
    """

    what: Any
    data: Any
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    name: str = ""


@dataclass(frozen=True)
class Training:
    """Networks that are trained, and predicted if there are `draws`. `options` go to `fg.train` and to the prediction.

    `inits`, `parts`, `width`, `batch` and `steps` are the sizes' unless given (None: none).
    """

    what: Any
    data: Data
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    name: str = ""
    test: Data | None = None
    draws: int = 0
    predict: Mapping[str, Any] = field(default_factory=dict[str, Any])  # options of the prediction alone


class Found:
    """What one set of sizes found: measurements by key, and sizes and quantities as attributes.

    `every` are those of all sets of sizes, this one among them.
    """

    def __init__(self, run: Run, sizes: Sizes, every: list[Found]) -> None:
        self.run, self.first, self.every = run, not every, every
        self.known: dict[str, Any] = dict(sizes)
        self.cells: dict[Any, Any] = {}
        self.predictions: dict[Any, Arm] = {}  # of those that are trained
        self.tables: dict[str, Any] = {}  # as the item gives them: for charts
        every.append(self)

    def learn(self, quantities: Mapping[str, Any]) -> None:
        """Add quantities; a name that is one of ours already would never be found."""
        taken = [name for name in quantities if name in vars(self) or hasattr(type(self), name)]
        if taken:
            raise InvalidInput("other names for quantities", got=", ".join(taken), where=self.run.item.id)
        self.known |= quantities

    def blob(self, points: int, dimensions: int) -> Data:
        """Random data, the same for all that ask for these sizes."""
        from firstguess.data import blob

        return blob(points, dimensions, seed=self.run.seed)

    def __getitem__(self, key: Any) -> Any:
        return self.cells[key]

    def over(self, checks: Callable[[Found], Iterable[Check]], each: str = "width {width}") -> list[Check]:
        """The checks of all sets of sizes; `each` tells these apart, where there are several."""
        named = [(one, f", {each.format(**one.known)}" if len(self.every) > 1 else "") for one in self.every]
        return [replace(check, name=check.name + end) for one, end in named for check in checks(one)]

    def arms(self, *first: Any) -> dict[Any, Arm]:
        """Trained arms whose keys begin so, by the rest of the key."""
        return {key[-1]: arm for key, arm in self.cells.items() if key[:-1] == first}

    def known_arms(self, *first: Any) -> dict[Any, Arm]:
        """The predictions of `arms`."""
        return {key[-1]: arm for key, arm in self.predictions.items() if key[:-1] == first}

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["known"][name]
        except KeyError:
            raise AttributeError(name) from None


def found(item: Item, run: Run) -> Outcome:
    """What an item that is data finds. All cells are asked for before one is looked at: workers can share them."""
    name = item.table or ("" if item.tables and not item.rows else "laws")
    every: list[Found] = []
    for sizes in run.sizes:
        here = Found(run, sizes, every)
        for key, cell in item.cells(here).items():
            shown = ", ".join(str(part) for part in _parts(key))
            if isinstance(cell, Training):
                _train(here, key, cell, shown)
                continue
            given = {k: sizes[k] for k in ("inits", "width") if isinstance(sizes.get(k), int)}
            given |= {"probe": "output", **item.measure, **cell.options}
            here.cells[key] = run.measure(cell.what, cell.data, name=cell.name, label=shown, **given)
    for here in every:
        here.learn(item.quantities(here))
    lines = [
        row(str(_parts(key)[0]), m, **(item.rows(here, *_parts(key)) if item.rows else {}))
        for here in every
        for key, m in here.cells.items()
        if name and isinstance(m, Measurement)
    ]
    own = every[0].tables = dict(item.tables(every[0]) if item.tables else {})
    tables = ({name: lines} if lines else {}) | own
    return Outcome(
        item.judge(every[0]),
        {title: one if isinstance(one, Mapping) else columns(one) for title, one in tables.items()},
        item.charts(every[0]),
        item.notes(every[0]) if callable(item.notes) else item.notes,
        item.holds,
    )


def decided(item: Item, cells: Mapping[Any, Any] | None = None, **known: Any) -> list[Entry]:
    """The entries of an item that is data, by its own checks, of these measurements, sizes and quantities."""
    run: Any = None
    every: list[Found] = []
    found = Found(run, known, every)
    found.cells |= cells or {}
    return [*item.judge(found)]


def _train(found: Found, key: Any, cell: Training, label: str) -> None:
    """Train the networks of a cell, and predict them if that is asked for."""
    run, sizes = found.run, found.known
    given = {k: sizes[k] for k in ("width", "batch", "steps") if isinstance(sizes.get(k), int)} | {**cell.options}
    given = {k: value for k, value in given.items() if value is not None}
    count = {k: given.pop(k, sizes.get(k, 1)) for k in ("inits", "parts")}
    found.cells[key] = trained(run, cell.what, cell.data, label=label, name=cell.name, test=cell.test, **count, **given)
    if cell.draws:
        known: dict[str, Any] = {"test": cell.test, "trust": not run.quick, **given, **cell.predict}
        known = {k: value for k, value in known.items() if value is not None}
        found.predictions[key] = predicted(run, cell.what, cell.data, label=label, draws=cell.draws, **known)


def _parts(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)
