"""docs/zoo.md and what findings.md says of it are true of the rows in docs/zoo.json."""

from __future__ import annotations

import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS = json.loads((ROOT / "docs" / "zoo.json").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "zoo.md").read_text(encoding="utf-8")
TABLES = (ROOT / "docs" / "tables" / "zoo.txt").read_text(encoding="utf-8")
RAN = {name: row for name, row in ROWS.items() if not row["failed"] and "classes" in row}


def excess(row: dict[str, float]) -> float:
    return (row["own"] * row["classes"] - 1) / (row["classes"] - 1)


def median(start: str) -> float:
    return statistics.median(excess(row) for name, row in RAN.items() if name.startswith(start))


def cells(name: str) -> dict[str, list[str]]:
    """Lines of a table, by model."""
    assert f"<!-- rows of tables/zoo.txt: {name} -->" in PAGE  # the site puts it there
    body = f"\n\n{TABLES}".partition(f"\n\n{name}\n\n")[2].partition("\n|---")[2].partition("\n\n")[0]
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in body.splitlines()[1:]]
    return {line[0]: line[1:] for line in lines}


def test_every_model_is_in_a_table_with_its_own_numbers() -> None:
    assert len(RAN) >= 300
    table = cells("models")
    assert table.keys() == RAN.keys()
    for name, (share, even, by_class, by_instance, verdict, predicted, faults, seconds) in table.items():
        row = RAN[name]
        for text, value in ((share, row["own"]), (even, 1 / row["classes"]), (predicted, row.get("predicted"))):
            assert (text == "") == (value is None)
            assert not text or abs(float(text) - value) <= 0.000501, name
        for text, z in ((by_class, row["class_z"]), (by_instance, row["instance_z"])):
            assert abs(float(text) - z) <= 0.00501 if text else z != z, name
        assert verdict == row["verdict"]
        assert faults == ", ".join(row.get("faults", []))
        assert abs(float(seconds) - row["seconds"]) <= 0.501
    assert cells("did not run").keys() == ROWS.keys() - RAN.keys()


def test_every_fault_that_was_named_was_looked_at() -> None:
    looked = PAGE.partition("looked at one by one")[2].partition("## What")[0].casefold()
    short = {"gmlp_ti16_224": "gmlp", "mixer_s32_224": "mixer", "resmlp_12_224": "resmlp"}
    for name, row in RAN.items():
        if row.get("faults"):
            last = name.rpartition("/")[2]
            assert str(short.get(last, last)).casefold() in looked, name


def test_the_page_is_what_is_written_from_the_rows() -> None:
    if not (ROOT / "benchmarks").is_dir():
        pytest.skip("the benchmarks are not here")
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import zoo  # pyright: ignore[reportMissingImports]

    assert zoo.page() == PAGE
    assert zoo.tables() == TABLES


def test_the_finding_is_true_of_the_rows() -> None:
    text = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    said = " ".join(text.partition("## Published models")[2].partition("![")[0].split())
    z = [row[f"{which}_z"] for row in RAN.values() for which in ("class", "instance")]
    z = [value for value in z if value == value]
    one_class = [row["own"] for name, row in RAN.items() if name.startswith("deepctr/")]
    assert f"draws {len(RAN)} published architectures" in said
    assert f"the median is {median(''):.2f}" in said
    for words, start in {
        "language models are the most even": "language/", "multiple choice": "choice/", "tokens": "token/",
        "masked words": "masked/", "sequences": "sequence/", "images": "image/",
    }.items():  # fmt: skip
        (number,) = re.findall(rf"{words} \(([\d.]+)\)", said)
        assert abs(float(number) - median(start)) <= 0.00501, words
    assert f"are at {median('audio/'):.2f}" in said
    assert (len(one_class), sum(share == 1 for share in one_class)) == (12, 6)
    assert f"Of {len(z)} comparisons" in said
    assert sum(abs(value) > 4 for value in z) == 1


_SMALL = """<input id=zoo-filter><div id=zoo><table><thead><tr><th>model<th>share</thead><tbody>
<tr><td>image/vit<td>0.3<tr><td>audio/sew<td><tr><td>image/beit<td>-1.5<tr><td>token/bert<td>12.0</tbody></table></div>"""
_SHOWN = "[...document.querySelectorAll('#zoo tbody tr')].filter(r => r.offsetParent).map(r => r.cells[0].textContent)"


def test_the_table_sorts_and_filters(browser: Any, tmp_path: Path) -> None:
    """Numbers as numbers, upwards and then downwards; cells without one come last."""
    (tmp_path / "zoo.html").write_text(_SMALL + PAGE[PAGE.index("<script>") :], encoding="utf-8")
    seen = browser.open(tmp_path / "zoo.html")
    head = browser.page.locator("#zoo th").nth(1)
    head.click()
    assert browser.run(_SHOWN) == ["image/beit", "image/vit", "token/bert", "audio/sew"]
    head.click()
    assert browser.run(_SHOWN) == ["token/bert", "image/vit", "image/beit", "audio/sew"]
    browser.page.fill("#zoo-filter", "IMAGE be")
    assert browser.run(_SHOWN) == ["image/beit"]
    assert seen.errors == []
