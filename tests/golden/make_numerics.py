"""Writes numerics.json: which golden numbers belong to which `NUMERICS`.

Run it after golden numbers were added, or after they were changed on purpose and `NUMERICS` (`_version.py`) was raised.
It refuses to record changed numbers under the old number.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

from inside import HERE

from firstguess._version import NUMERICS

RECORD = HERE / "numerics.json"
STORES = ("readings.json", "ensembles.json")
_WORDS = ("layers", "weights", "assumptions", "remarks", "notes")


def digests() -> dict[str, dict[str, Any]]:
    """For each store the machine that made it, and a hash of the numbers of each entry; refusals have none."""
    found: dict[str, dict[str, Any]] = {}
    for store in STORES:
        entries = json.loads((HERE / store).read_text(encoding="utf-8"))
        made = entries.pop("made")
        numbers = {
            name: {field: value for field, value in entry.items() if field not in _WORDS}
            for name, entry in entries.items()
            if isinstance(entry, dict)
        }
        hashes = {name: hashlib.sha256(json.dumps(one).encode()).hexdigest()[:8] for name, one in numbers.items()}
        found[store] = {"made": made, "entries": hashes}
    return found


def changed(recorded: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Entries that both have, made on one machine, with other numbers."""
    return [
        f"{store}: {name}"
        for store in STORES
        if recorded[store]["made"] == now[store]["made"]
        for name, digest in now[store]["entries"].items()
        if recorded[store]["entries"].get(name, digest) != digest
    ]


if __name__ == "__main__":
    found = digests()
    if RECORD.exists():
        before = json.loads(RECORD.read_text(encoding="utf-8"))
        if before["numerics"] == NUMERICS and (others := changed(before, found)):
            sys.exit(f"{len(others)} golden numbers changed ({others[0]} …): raise NUMERICS in _version.py first")
    RECORD.write_text(json.dumps({"numerics": NUMERICS} | found, indent=1) + "\n", encoding="utf-8")
