"""Quick runs give the numbers and verdicts that they gave before items became data."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from firstguess_papers import registry
from firstguess_papers.execute import run_item

sys.path.insert(0, str(Path(__file__).parents[1] / "golden"))
from make_papers import KEPT, read

KNOWN: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
FAST = ("igb/layers", "beyond/tokens-own", "mf/table1")  # the others take up to a minute each


@pytest.mark.parametrize("id", [id if id in FAST else pytest.param(id, marks=pytest.mark.slow) for id in KNOWN])
def test_numbers_of_quick_runs_do_not_move(id: str, tmp_path: Path) -> None:
    record = run_item(registry.items()[id], tmp_path, quick=True)
    if record.status == "skipped":
        pytest.skip(record.reason)
    assert record.status == "done", record.reason
    now, known = read(tmp_path / "quick" / id), KNOWN[id]
    assert now["verdicts"] == known["verdicts"]
    assert now["tables"].keys() == known["tables"].keys()
    for name, table in known["tables"].items():
        assert now["tables"][name].keys() == table.keys(), name
        for column, kept in table.items():
            # other processors round otherwise, and trainings carry it on; the same one gives the same digits
            assert now["tables"][name][column] == pytest.approx(kept, rel=1e-3, abs=1e-6), f"{name}: {column}"
