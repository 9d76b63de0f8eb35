"""The nouns of `firstguess reproduce`: an `Item` is one figure, an `Outcome` what it found, an `Entry` one verdict.

An item's sizes are data, a quick and a full set. The sentence of its settings, the keys of what is stored, and whether
a record is current follow from them: they are written nowhere else.
"""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from firstguess import InvalidInput

if TYPE_CHECKING:
    from firstguess_papers.library import Chart
    from firstguess_papers.measured import Cell, Found, Training
    from firstguess_papers.running import Run

Verdict: TypeAlias = Literal["holds", "holds with a limit", "does not hold", "not tested"]
VERDICTS: tuple[str, ...] = get_args(Verdict)
MEANINGS = {
    "holds": "every check that the claim needs passed",
    "holds with a limit": "it holds where the paper has it; a named neighbouring case breaks it, or is not decided",
    "does not hold": "the numbers contradict it",
    "not tested": "no item ran, or its errors were too large to decide",
}
Table: TypeAlias = Mapping[str, Sequence[Any]]  # column name -> values, all of one length
Rows: TypeAlias = Sequence[Mapping[str, Any]]
PAPERS = {
    "igb": "Initial Guessing Bias (ICML 2024)",
    "norm": "Where You Place the Norm Matters (2025; version 4 of April 2026: Pre-Norm vs Post-Norm)",
    "mf": "When Bias Meets Trainability (ICLR 2026; version 4 of February 2026)",
    "beyond": "Beyond the papers",
}


@dataclass(frozen=True)
class Entry:
    """One line of the ledger: a claim, what exactly was tested, what came out, and the verdict.

    `measured` has numbers with errors (`judging.pm` writes them); `verdict` comes from `judging.verdict`, never from
    the keyboard; `why` names the limit, or why nothing could be decided. `headline`, if given, is the one line of
    number that the ledger's opening shows: short, with its error.
    """

    claim: str
    statement: str
    measured: str
    verdict: Verdict
    why: str = ""
    headline: str = ""

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise InvalidInput(f"a verdict: {', '.join(VERDICTS)}", got=repr(self.verdict), where="Entry")
        if self.verdict != "holds" and not self.why:
            raise InvalidInput("why it does not simply hold", got="nothing", where=f"Entry({self.claim})")


@dataclass(frozen=True)
class Holds:
    """A chart's title that states a finding: it stands where the verdicts of `entries` (all, or these) say so.

    Otherwise the chart keeps the title that it was made with, which names what is shown and claims nothing.
    """

    title: str
    entries: tuple[int, ...] | None = None
    verdicts: tuple[str, ...] = ("holds", "holds with a limit")

    def by(self, entries: Sequence[Entry]) -> bool:
        """Whether these entries say so.

        >>> Holds("coins are fair").by([Entry("I4", "s", "m", "does not hold", "they are not")])
        False
        """
        chosen = entries if self.entries is None else [entries[k] for k in self.entries]
        return bool(chosen) and all(entry.verdict in self.verdicts for entry in chosen)


@dataclass(frozen=True)
class Outcome:
    """What an item found: tables become Parquet, charts PNG and HTML, entries lines of the ledger.

    Names of tables and charts are file names; the first chart is the one that the ledger shows first. `notes` are lines
    for the reader that are no verdict (sizes that are ours, stand-ins). `holds` has titles that state findings, by
    chart: titles follow verdicts.
    """

    entries: Sequence[Entry]
    tables: Mapping[str, Table] = field(default_factory=dict[str, Table])
    charts: Mapping[str, Chart] = field(default_factory=dict[str, Any])
    notes: Sequence[str] = ()
    holds: Mapping[str, Holds | str] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        for name, found in self.holds.items():
            finding = Holds(found) if isinstance(found, str) else found
            if finding.by(self.entries):
                entitle(self.charts[name], finding.title)


def entitle(chart: Chart, title: str) -> None:
    """Give a chart this title."""
    own: Any = chart.title
    own.text = textwrap.wrap(title, 78 if len(title) < 150 else 120)


KEYS = ("Points: ", "Measured ±", "Lines", "Dots: ", "Bars: ")  # how a line begins that says what marks are


def _describe(chart: Chart, title: str, settings: str) -> None:
    """Give a chart the item's title and the sentence of its settings, where it has none of its own."""
    own: Any = chart.title
    if not any(own.text):
        entitle(chart, title)
    lines = [line for line in own.subtitle if line]
    if not lines or str(lines[0]).startswith(KEYS):
        whole = re.sub(r"(?<=\d) (?=\d{3}\b)", "\N{NO-BREAK SPACE}", settings)  # 10 000 stays on one line
        own.subtitle = [*textwrap.wrap(whole, 112), *lines]


Sizes: TypeAlias = Mapping[str, Any]  # name -> number, text, or several of them
WORK = ("parts", "chunk")  # sizes that say how work is divided, not what is computed


@dataclass(frozen=True, eq=False)
class Item:
    """One figure of a paper. `id` is "paper/name"; `seconds` are processor time of quick and full, estimated.

    `about` is the sentence of the settings with a place for every size: "{inits} networks of width {width}". `quick`
    and `full` are the sizes, or several sets of them, each of which is computed. `needs` names data sets, `packages`
    optional Python packages: where one is absent the item is skipped, and says how to get it. `version` goes up when
    the item's numbers change: what other versions have stored is not used, and their records are outdated.

    What it does is data, too. `cells` are measured, each with the options `measure` of `fg.measure`, or trained;
    `quantities` are read off them, or computed in other pieces; `judge` gives the entries for the `claims`.
    `rows(found, *key)` has further columns of a cell's line in the `table` ("laws" where there is no other table).
    `tables` are others, `charts` are drawn, of these tables if they like; `holds` are titles of charts that state a
    finding, all others have the item's unless they have one. All get what the first set of sizes found. What does not
    fit is a `function`.

    >>> toy = Item("beyond/toy", "A toy", "§4", claims=["I4"], about="{coins} coins", quick=dict(coins=2),
    ...            full=dict(coins=9), seconds=(1, 2), function=lambda run: Outcome(()))
    >>> toy.paper, toy.settings(quick=True)
    ('beyond', '2 coins')
    """

    id: str
    title: str
    where: str
    _: KW_ONLY
    about: str
    quick: Sizes | Sequence[Sizes]
    full: Sizes | Sequence[Sizes]
    seconds: tuple[float, float]
    claims: Sequence[str] = ()
    needs: Sequence[str] = ()
    packages: Sequence[str] = ()
    version: int = 1
    cells: Callable[[Found], Mapping[Any, Cell | Training]] = lambda _: {}
    measure: Mapping[str, Any] = field(default_factory=dict[str, Any])
    quantities: Callable[[Found], Mapping[str, Any]] = lambda _: {}
    judge: Callable[[Found], Sequence[Entry]] = lambda _: ()
    rows: Callable[..., Mapping[str, Any]] | None = None
    table: str = ""
    tables: Callable[[Found], Mapping[str, Table | Rows]] | None = None
    charts: Callable[[Found], Mapping[str, Chart]] = lambda _: {}
    holds: Mapping[str, Holds | str] = field(default_factory=dict[str, Any])
    notes: Sequence[str] | Callable[[Found], Sequence[str]] = ()
    function: Callable[[Run], Outcome] | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z]+/[a-z0-9_.-]+", self.id) or self.paper not in PAPERS:
            raise InvalidInput(f"an id such as igb/fig5; papers: {', '.join(PAPERS)}", got=repr(self.id), where="item")
        asked = set(re.findall(r"{(\w+)", self.about))
        said = asked | {*WORK, *(["inits"] if "networks" in asked else [])}
        for sizes in (*_sets(self.quick), *_sets(self.full)):
            if not set(sizes) <= said or not asked <= {*sizes, "networks"}:
                raise InvalidInput(f"about= with the sizes {', '.join(sizes)}", got=self.about, where=self.id)

    def outcome(self, run: Run) -> Outcome:
        """What it finds: computed now, or taken from where the run keeps it."""
        from firstguess_papers.measured import found

        outcome = self.function(run) if self.function else found(self, run)
        for chart in outcome.charts.values():
            _describe(chart, self.title, self.settings(run.quick, run.changed, run.times))
        return outcome

    @property
    def paper(self) -> str:
        """The part of the id before the slash."""
        return self.id.partition("/")[0]

    def sizes(self, quick: bool, changed: Sizes | None = None, times: int = 1) -> tuple[dict[str, Any], ...]:
        """The sets of sizes, with some of them changed: `{"width": 400}`, and `times` as many parts of an ensemble.

        >>> toy = Item("beyond/toy", "A toy", "§4", about="{coins} coins", quick=dict(coins=2), full=dict(coins=9),
        ...            seconds=(1, 2))
        >>> toy.sizes(False), toy.sizes(True, {"coins": 3})
        (({'coins': 9},), ({'coins': 3},))
        """
        chosen = _sets(self.quick if quick else self.full)
        for name, value in (changed or {}).items():
            known = list(dict.fromkeys(name for sizes in chosen for name in sizes))
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1, cutoff=0.4) or known
                raise InvalidInput(f"a size of {self.id}: {', '.join(known)}", got=name, where="--set", hint=near[0])
            like = next(sizes[name] for sizes in chosen if name in sizes)
            if not _fits(value, like):
                raise InvalidInput(f"{name} like {_words(like)}", got=_words(value), where="--set")
            own = [
                one
                for sizes in (*_sets(self.quick), *_sets(self.full))
                if name in sizes
                for one in _several(sizes[name])
            ]
            for one in _several(value):
                if isinstance(one, str) and one not in own:
                    raise InvalidInput(f"{name} of {self.id}: {'; '.join(dict.fromkeys(own))}", got=one, where="--set")
        if times > 1 and not any("parts" in sizes for sizes in chosen):
            raise InvalidInput("an item whose ensembles have parts", got=self.id, where="--until-decided")
        own = changed or {}
        found = [
            dict(sizes) | {k: (v,) if isinstance(sizes[k], tuple) and not isinstance(v, tuple) else v
                           for k, v in own.items() if k in sizes}
            for sizes in chosen
        ]  # fmt: skip
        return tuple(one | ({"parts": times * one["parts"]} if "parts" in one else {}) for one in found)

    def settings(self, quick: bool, changed: Sizes | None = None, times: int = 1) -> str:
        """The settings in words."""
        told = [
            self.about.format_map(
                {"networks": _words(sizes["inits"] * sizes["parts"]) if {"inits", "parts"} <= sizes.keys() else ""}
                | {name: _words(value) for name, value in sizes.items()}
            )
            for sizes in self.sizes(quick, changed, times)
        ]
        return " Again: ".join(told)


def _sets(given: Sizes | Sequence[Sizes]) -> Sequence[Sizes]:
    return (given,) if isinstance(given, Mapping) else given


def _several(value: Any) -> list[Any]:
    return [*value] if isinstance(value, (tuple, list)) else [value]


def _fits(value: Any, like: Any) -> bool:
    """Whether a size can stand in for another: one number or several, whole ones for whole ones, none below 0.

    >>> _fits(400, 300), _fits(400, (100, 800)), _fits("wide", 300), _fits(-5, 300), _fits(0.5, 300), _fits((1, 2), 300)
    (True, True, False, False, False, False)
    """
    if isinstance(like, (tuple, list)):
        return all(_fits(one, like[0]) for one in _several(value))
    if isinstance(like, str) or not isinstance(like, (int, float)):
        return type(value) is type(like)
    kinds = (int,) if isinstance(like, int) else (int, float)
    return isinstance(value, kinds) and (value > 0 or value == like)


def _words(value: Any) -> str:
    """A size as it is said.

    >>> _words((30, 100, 10_000)), _words({30: 400, 100: 600}), _words(1e-5), _words("two blobs")
    ('30, 100 and 10 000', '30: 400, 100: 600', '1e-05', 'two blobs')
    """
    if isinstance(value, Mapping):
        return ", ".join(f"{_words(name)}: {_words(one)}" for name, one in value.items())
    if isinstance(value, (tuple, list)):
        parts = [_words(one) for one in value]
        return " and ".join((", ".join(parts[:-1]), parts[-1])) if len(parts) > 1 else "".join(parts)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}".replace(",", " ") if value >= 10_000 else str(value)
    return f"{value:g}" if isinstance(value, float) else str(value)
