"""What the papers claim, what the records add up to, and checks that were changed after a first look: `claims.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firstguess_papers.items import Verdict


@dataclass(frozen=True)
class Claim:
    """One claim that can be measured: `id` (I: IGB, N: NORM, M: MF, B: ours), what it says, where it is made."""

    id: str
    text: str
    where: str


@dataclass(frozen=True)
class Finding:
    """A sentence about a claim: said if `item`'s entry on it (whose statement has `about`) got one of `verdicts`.

    `chart` is the file of the figure that shows it; "" is the item's first.
    """

    title: str
    text: str
    claim: str
    item: str
    verdicts: tuple[Verdict, ...]
    about: str = ""
    chart: str = ""


_KEPT: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
CLAIMS = {id: Claim(id, *row) for id, row in _KEPT["claims"].items()}
FINDINGS = tuple(Finding(**row | {"verdicts": tuple(row["verdicts"])}) for row in _KEPT["findings"])
TOPICS: dict[str, str] = {claim: title for title, claims in _KEPT["topics"].items() for claim in claims}  # of ours
REVISIONS: dict[str, str] = _KEPT["revisions"]
