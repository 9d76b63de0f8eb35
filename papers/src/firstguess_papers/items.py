"""The nouns of `firstguess reproduce`: an `Item` is one figure, an `Outcome` what it found, an `Entry` one verdict."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from firstguess.base.errors import InvalidInput

if TYPE_CHECKING:
    from firstguess.show.charts.theme import Chart
    from firstguess_papers.running import Run

Verdict: TypeAlias = Literal["holds", "holds with a limit", "does not hold", "not tested"]
VERDICTS: tuple[str, ...] = get_args(Verdict)
Table: TypeAlias = Mapping[str, Sequence[Any]]  # column name -> values, all of one length
PAPERS = {
    "igb": "Initial Guessing Bias (ICML 2024)",
    "norm": "Where You Place the Norm Matters (2025)",
    "mf": "When Bias Meets Trainability (ICLR 2026)",
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
class Outcome:
    """What an item found: tables become Parquet, charts PNG and HTML, entries lines of the ledger.

    Names of tables and charts are file names; the first chart is the one that `docs/claims.md` shows first. `notes` are
    lines for the reader that are no verdict (sizes that are ours, stand-ins).
    """

    entries: Sequence[Entry]
    tables: Mapping[str, Table] = field(default_factory=dict[str, Table])
    charts: Mapping[str, Chart] = field(default_factory=dict[str, Any])
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Item:
    """One figure of a paper. `id` is "paper/name"; `seconds` are the times of quick and full on two cores.

    `needs` names data sets, `packages` optional Python packages: where one is absent the item is skipped, and says how
    to get it. `quick` and `full` are the settings in words (networks, sizes, number of initializations). `version`
    goes up when the item's numbers change: stored pieces of other versions are not used.
    """

    id: str
    title: str
    claims: tuple[str, ...]
    where: str
    quick: str
    full: str
    seconds: tuple[float, float]
    function: Callable[[Run], Outcome]
    needs: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    version: int = 1

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z]+/[a-z0-9_.-]+", self.id) or self.paper not in PAPERS:
            raise InvalidInput(f"an id such as igb/fig5; papers: {', '.join(PAPERS)}", got=repr(self.id), where="item")

    @property
    def paper(self) -> str:
        """The part of the id before the slash."""
        return self.id.partition("/")[0]

    def settings(self, quick: bool) -> str:
        """The settings in words."""
        return self.quick if quick else self.full


def item(
    id: str,
    title: str,
    *,
    claims: Sequence[str],
    where: str,
    quick: str,
    full: str,
    seconds: tuple[float, float],
    needs: Sequence[str] = (),
    packages: Sequence[str] = (),
    version: int = 1,
) -> Callable[[Callable[[Run], Outcome]], Item]:
    """Turns a function from a `Run` to an `Outcome` into an `Item`; put it at the top level of a paper's module.

    >>> @item("beyond/toy", "A toy", claims=["I4"], where="§4.1", quick="2 coins", full="9 coins", seconds=(1, 2))
    ... def toy(run: Run) -> Outcome:
    ...     return Outcome([Entry("I4", "coins are fair", "0.5 ± 0.1", "holds")])
    >>> toy.paper, toy.settings(quick=True)
    ('beyond', '2 coins')
    """

    def wrap(function: Callable[[Run], Outcome]) -> Item:
        return Item(
            id, title, tuple(claims), where, quick, full, seconds, function, tuple(needs), tuple(packages), version
        )

    return wrap
