"""What is kept of an item that ran: one JSON file an item, the code that it ran on, and the ledger of all of them.

Records of full runs are also kept next to the page of claims, in the repository (`keep`, `kept`): so full runs can be
split over invocations and machines (`merged`), and the page can be written without running anything.
"""

from __future__ import annotations

import inspect
import json
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from firstguess import FirstguessError
from firstguess_papers.items import Entry, Item, Sizes
from firstguess_papers.library import write_table

UNCOMMITTED = "uncommitted"
_NUMBERS = (":/papers/src", ":/src")  # from the top of the checkout: what numbers come from


@dataclass(frozen=True)
class Provenance:
    """`commit` and `checks` as short hashes; "" where firstguess is no git checkout.

    `commit` ends in "+ changes" if the papers or the library differ from it; `checks` is the last commit of the file
    that the item is written in, or "uncommitted" if that has changes.
    """

    commit: str = ""
    checks: str = ""


def provenance(item: Item) -> Provenance:
    """Of an item that runs now."""
    source = inspect.getsourcefile(item.function or item.charts)
    package = Path(__file__).parent
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:  # installed, or some other repository
        return Provenance()
    head = _git(package, "rev-parse", "--short", "HEAD")
    if head is None:
        return Provenance()
    commit = f"{head} + changes" if _git(package, "status", "--porcelain", "--", *_NUMBERS) else head
    module = Path(source) if source is not None else None
    if module is None or not module.is_file() or _git(module.parent, "status", "--porcelain", "--", module.name) != "":
        return Provenance(commit, UNCOMMITTED)
    return Provenance(commit, _git(module.parent, "log", "-1", "--format=%h", "--", module.name) or UNCOMMITTED)


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says; None if it fails, or is not there."""
    try:
        said = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return said.stdout.strip() if said.returncode == 0 else None


Status: TypeAlias = Literal["done", "skipped", "failed"]
RECORD = "record.json"


@dataclass(frozen=True)
class Record:
    """One item's result: entries, file names of charts and tables (beside the record), settings, seconds of work.

    `commit` and `checks` are those of `provenance`: on which code it ran, and which commit fixed its checks.
    """

    id: str
    title: str
    claims: tuple[str, ...]
    where: str
    status: Status
    quick: bool
    settings: str
    version: int
    firstguess: str
    seed: int
    seconds: float
    entries: tuple[Entry, ...] = ()
    charts: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    reason: str = ""  # why it was skipped or failed
    commit: str = ""
    checks: str = ""
    sizes: tuple[dict[str, Any], ...] = ()  # as JSON has them; older records have none
    look: int = 0  # where sampling went on: 2^look times as many networks

    def to_dict(self) -> dict[str, Any]:
        """Plain data; `from_dict` reads it back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Record:
        """The inverse of `to_dict`."""
        plain: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        plain["entries"] = tuple(Entry(**entry) for entry in data["entries"])
        return cls(**plain)

    def current(self, item: Item | None) -> bool:
        """Whether these are numbers of the item as it is now: of its version, and of its sizes where they are known."""
        if item is None or self.version != item.version:
            return False
        now, then = ([{k: v for k, v in one.items() if (k, v) != ("parts", 1)} for one in sizes]
                     for sizes in (plain(item.sizes(self.quick)), self.sizes))  # fmt: skip
        return not self.sizes or now == then  # one part or none is the same


def plain(sizes: Sequence[Sizes]) -> list[dict[str, Any]]:
    """Sizes as a record keeps them: what JSON makes of them."""
    return json.loads(json.dumps([*sizes]))


def folder_of(out: Path, quick: bool, id: str, changed: Sizes | None = None) -> Path:
    """Where an item's files are: quick and full runs, and runs of other sizes, never share one."""
    size = "quick" if quick else "full"
    own = ",".join(f"{name}={value}" for name, value in sorted((changed or {}).items()))
    return out / (f"{size} {own.replace('/', '_')}" if own else size) / id


def write(folder: Path, record: Record) -> None:
    """Keep a record beside the item's files."""
    _write(folder / RECORD, record)


def read_all(out: Path, quick: bool, order: Sequence[str]) -> list[Record]:
    """The records of all items in `order` that ever ran with this output folder."""
    return [found for id in order if (found := read(out, quick, id)) is not None]


def read(out: Path, quick: bool, id: str) -> Record | None:
    """An item's record in this output folder."""
    path = folder_of(out, quick, id) / RECORD
    return _read(path, remove=path.parent) if path.exists() else None


def kept_in(page: Path) -> Path:
    """The folder of the records that a page of claims is made from: docs/claims/records for docs/claims.md."""
    return page.with_suffix("") / "records"


def keep(folder: Path, found: Sequence[Record]) -> None:
    """One file a full run that was done, if it is not there as it is."""
    for record in found:
        path = folder / f"{record.id.replace('/', '_')}.json"
        if record.status == "done" and not record.quick and not (path.exists() and _read(path) == record):
            _write(path, record)


def kept(folder: Path) -> list[Record]:
    """All records that `keep` ever wrote there."""
    return [_read(path) for path in sorted(folder.glob("*.json"))]


def merged(
    stored: Sequence[Record], here: Sequence[Record], items: Mapping[str, Item], *, ran: Collection[str] = ()
) -> list[Record]:
    """One record an item, in the order of `items`: what ran just now, else what is current, else what was stored.

    A run that was skipped or failed here never replaces one that was done elsewhere.
    """
    old, new = ({record.id: record for record in found} for found in (stored, here))
    chosen: list[Record] = []
    for id in dict.fromkeys((*items, *old)):
        candidates = [record for record in (new.get(id), old.get(id)) if record is not None]
        if not candidates:
            continue
        item = items.get(id)
        chosen.append(
            max(
                candidates,
                key=lambda r, item=item: (
                    r.status == "done",
                    r is new.get(r.id) and r.id in ran,
                    r.current(item),
                    r is old.get(r.id),
                ),
            )
        )
    return chosen


def _write(path: Path, record: Record) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def _read(path: Path, *, remove: Path | None = None) -> Record:
    try:
        return Record.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise FirstguessError(
            "a record that firstguess wrote", got=str(error), where=str(path), hint=f"remove {remove or path}"
        ) from error


def write_ledger(out: Path, records: Sequence[Record], quick: bool) -> Path:
    """`ledger.json` and `ledger.parquet`: one line an entry; gives the path of the first."""
    lines: list[dict[str, Any]] = []
    for record in records:
        about = {"item": record.id, "quick": record.quick, "status": record.status, "seconds": record.seconds}
        rows: Sequence[Entry] = record.entries or tuple(
            Entry(claim, "", "", "not tested", record.reason or "no entry") for claim in record.claims
        )
        lines += [asdict(row) | about for row in rows]
    folder = out / ("quick" if quick else "full")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "ledger.json"
    path.write_text(json.dumps(lines, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if lines:
        write_table(folder / "ledger.parquet", {key: [line[key] for line in lines] for key in lines[0]})
    return path
