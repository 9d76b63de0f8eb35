"""Every number of paper/paper.md is that of a record, or computed here; every citation has its entry."""

from __future__ import annotations

import json
import re
from pathlib import Path

import firstguess as fg
from firstguess.network.activations.registry import names

ROOT = Path(__file__).resolve().parents[2]
PAPER = (ROOT / "paper" / "paper.md").read_text(encoding="utf-8")
TEXT = " ".join(PAPER.split())
CLAIMS = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")


def test_the_ledger_counts() -> None:
    row = re.search(r"^\| in all \| (.*) \|$", CLAIMS, re.M)
    assert row is not None
    claims, holds, limit, fails, undecided = re.findall(r"\*\*(\d+)\*\*", row[1])
    items = len(list((ROOT / "docs" / "claims" / "records").glob("*.json")))
    assert f"by {items} items" in TEXT
    said = f"about {claims} claims, {holds} hold, {limit} hold with a limit, {fails} do not hold and {undecided} could"
    assert said in TEXT


def test_the_zoo_and_the_activations() -> None:
    (ran,) = set(re.findall(r"visited, (\d+) ran", (ROOT / "docs" / "zoo.md").read_text(encoding="utf-8")))
    assert f"On {ran} published architectures" in TEXT
    assert f"all {len(names())} activations" in TEXT


def test_the_theory_and_the_last_comparison() -> None:
    for net in ("20 x [dense(weight_var=2) > relu] > dense", "20 x [dense(weight_var=2) > layernorm > relu] > dense"):
        assert f"γ = {fg.predict(net).gamma[-1]:.3f}" in TEXT
    assert fg.predict("20 x [dense(weight_var=2) > relu > layernorm] > dense").gamma[-1] == 0
    record = json.loads((ROOT / "docs" / "claims" / "records" / "igb_window.json").read_text(encoding="utf-8"))
    shown = json.dumps(record, ensure_ascii=False)
    for number in ("0.8324 ± 0.0019", "0.8316 ± 0.0018"):
        assert number in TEXT
        assert number in shown


def test_every_number_is_one_of_these() -> None:
    """A new number needs a line above."""
    known = {
        "20",
        "18.391",
        "0",
        "21",
        "1e-12",
        "644",
        "82",
        "73",
        "88",
        "43",
        "27",
        "23",
        "0.8324",
        "0.0019",
        "0.8316",
    }
    body = re.sub(r"@\w+", "", PAPER.partition("# Summary")[2])
    assert set(re.findall(r"(?<![\w.])\d[\d.]*(?:e-\d+)?(?!\w)", body.replace(".\n", "\n"))) <= known | {"0.0018"}


def test_citations_have_entries() -> None:
    entries = set(re.findall(r"^@\w+\{(\w+),", (ROOT / "paper" / "paper.bib").read_text(encoding="utf-8"), re.M))
    assert set(re.findall(r"@(\w+)", PAPER)) == entries
