"""Items that are data: a sweep of measurements, quantities of it, checks, a sentence and charts.

Sizes say how large; `cells` which networks on which data; `quantities` what is read off them; a `Tested` which checks
decide a claim. Settings, keys, table, measured text, verdicts and titles follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from firstguess_papers.items import Entry, Holds, Item, Outcome, Sizes, item
from firstguess_papers.judging import Truth, entry
from firstguess_papers.tables import columns, row

if TYPE_CHECKING:
    from firstguess import Measurement
    from firstguess.data import Data
    from firstguess_papers.library import Chart
    from firstguess_papers.running import Run


@dataclass(frozen=True)
class Cell:
    """One network on one data set. `options` go to `fg.measure`; `inits` and `width` are the sizes' unless given.

    A module needs a `name` that says what it is, with all its sizes.
    """

    what: Any
    data: Any
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    name: str = ""


class Found:
    """What one set of sizes found: measurements by key, and sizes and quantities as attributes."""

    def __init__(self, run: Run, sizes: Sizes, first: bool) -> None:
        self.run, self.first = run, first
        self.known: dict[str, Any] = dict(sizes)
        self.cells: dict[Any, Measurement] = {}

    def blob(self, points: int, dimensions: int) -> Data:
        """Random data, the same for all that ask for these sizes."""
        from firstguess.data import blob

        return blob(points, dimensions, seed=self.run.seed)

    def __getitem__(self, key: Any) -> Measurement:
        return self.cells[key]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["known"][name]
        except KeyError:
            raise AttributeError(name) from None


Words: TypeAlias = str | Callable[[Found], str]


@dataclass(frozen=True)
class Tested:
    """One entry of the ledger. `must` are the checks that the claim needs, `within` those to hold without a limit.

    `said` is what was measured: a text with places for sizes and quantities ("γ = {gamma}"), once a set of sizes.
    """

    claim: str
    statement: Words
    said: Words
    must: Callable[[Found], Iterable[Truth]]
    within: Callable[[Found], Iterable[Truth]] = lambda _: ()
    limit: Words = ""
    otherwise: Words = ""
    headline: Words = ""

    def entry(self, found: Sequence[Found]) -> Entry:
        """The verdict over all sets of sizes."""
        return entry(
            self.claim,
            _text(self.statement, found[0]),
            "; ".join(_text(self.said, one) for one in found),
            [check for one in found for check in self.must(one)],
            within=[check for one in found for check in self.within(one)],
            limit=_text(self.limit, found[0]),
            otherwise=_text(self.otherwise, found[0]),
            headline=_text(self.headline, found[0]),
        )


def _text(words: Words, found: Found) -> str:
    return words.format(**found.known) if isinstance(words, str) else words(found)


def measured(
    id: str,
    title: str,
    where: str,
    *,
    cells: Callable[[Found], Mapping[Any, Cell]],
    tests: Sequence[Tested],
    charts: Callable[[Sequence[Found]], Mapping[str, Chart]],
    quantities: Callable[[Found], Mapping[str, Any]] = lambda _: {},
    rows: Callable[..., Mapping[str, Any]] = lambda _, *key: {},
    tables: Callable[[Sequence[Found]], Mapping[str, Any]] = lambda _: {},
    table: str = "laws",
    notes: Sequence[str] = (),
    holds: Mapping[str, Holds] | None = None,
    probe: str = "output",
    **options: Any,
) -> Item:
    """An item that measures `cells`. `rows(found, *key)` has further columns of a cell's line in the table.

    All cells are asked for before one is looked at: workers can share them. `options` are those of `items.item`.
    """

    def function(run: Run) -> Outcome:
        every: list[Found] = []
        for sizes in run.sizes:
            found = Found(run, sizes, not every)
            every.append(found)
            for key, cell in cells(found).items():
                shown = ", ".join(str(part) for part in (key if isinstance(key, tuple) else (key,)))
                given = {k: sizes[k] for k in ("inits", "width") if isinstance(sizes.get(k), int)}
                given |= {"probe": probe, **cell.options}
                found.cells[key] = run.measure(cell.what, cell.data, name=cell.name, label=shown, **given)
        for found in every:
            found.known |= quantities(found)
        lines = [
            row(str(parts[0]), m, **rows(found, *parts))
            for found in every
            for key, m in found.cells.items()
            for parts in [key if isinstance(key, tuple) else (key,)]
        ]
        return Outcome(
            [test.entry(every) for test in tests],
            {table: columns(lines), **tables(every)},
            charts(every),
            notes,
            holds or {},
        )

    function.__doc__ = title
    claims = tuple(dict.fromkeys(test.claim for test in tests))
    return item(id, title, claims=claims, where=where, **options)(function)
