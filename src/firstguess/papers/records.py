"""What is kept of an item that ran: one JSON file an item, and the ledger of all of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from firstguess.base.errors import FirstguessError
from firstguess.papers.items import Entry
from firstguess.papers.piece_store import write_table

Status: TypeAlias = Literal["done", "skipped", "failed"]
RECORD = "record.json"


@dataclass(frozen=True)
class Record:
    """One item's result: entries, file names of charts and tables (beside the record), settings, seconds of work."""

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

    def to_dict(self) -> dict[str, Any]:
        """Plain data; `from_dict` reads it back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Record:
        """The inverse of `to_dict`."""
        plain: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        plain["entries"] = tuple(Entry(**entry) for entry in data["entries"])
        return cls(**plain)


def folder_of(out: Path, quick: bool, id: str) -> Path:
    """Where an item's files are: quick and full runs never share one."""
    return out / ("quick" if quick else "full") / id


def write(out: Path, record: Record) -> None:
    """Keep a record beside the item's files."""
    folder = folder_of(out, record.quick, record.id)
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
    (folder / RECORD).write_text(text + "\n", encoding="utf-8")


def read_all(out: Path, quick: bool, order: Sequence[str]) -> list[Record]:
    """The records of all items in `order` that ever ran with this output folder."""
    found: list[Record] = []
    for id in order:
        path = folder_of(out, quick, id) / RECORD
        if path.exists():
            try:
                found.append(Record.from_dict(json.loads(path.read_text(encoding="utf-8"))))
            except (ValueError, KeyError, TypeError) as error:
                raise FirstguessError(
                    "a record that firstguess wrote", got=str(error), where=str(path), hint=f"remove {path.parent}"
                ) from error
    return found


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
    path = folder / "ledger.json"
    path.write_text(json.dumps(lines, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if lines:
        write_table(folder / "ledger.parquet", {key: [line[key] for line in lines] for key in lines[0]})
    return path
