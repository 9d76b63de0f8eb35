"""`firstguess reproduce` in a subprocess: the list, one small item, the ledger, errors."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


def run(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    result = subprocess.run(
        [sys.executable, "-c", "from firstguess.cli import main; main()", "reproduce", *arguments],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert result.returncode == code, result.stderr + result.stdout
    return result


def test_the_list() -> None:
    rows = json.loads(run("--list", "--json").stdout)
    assert {"igb/fig5", "igb/multiclass"} <= {row["id"] for row in rows}
    assert all(row["seconds_quick"] > 0 for row in rows)
    text = run("--list").stdout
    assert "igb/fig10" in text
    assert "mnist" in text
    quick, full = (sum(row[f"seconds_{size}"] for row in rows) for size in ("quick", "full"))
    words = text.replace("\n", " ").split()
    assert f"{len(rows)}" in words
    assert f"{quick / 60:.0f}" in words
    assert f"{full / 60:.0f}" in words
    assert "processor time" in " ".join(words)


def test_a_narrow_terminal_shows_ids_and_costs() -> None:
    program = "from firstguess.cli import main; main()"
    narrow = {**os.environ, "COLUMNS": "80", "FORCE_COLOR": "1", "TERM": "xterm"}
    result = subprocess.run(
        [sys.executable, "-c", program, "reproduce", "--list"],
        capture_output=True, text=True, timeout=120, check=True, env=narrow,
    )  # fmt: skip
    text = re.sub(r"\x1b\[[0-9;]*m", "", result.stdout)
    for row in json.loads(run("--list", "--json").stdout):
        costs = rf"quick {row['seconds_quick']:.0f} s · full {row['seconds_full']:.0f} s".replace(" ", r"\s+")
        found = re.search(rf"^{re.escape(row['id'])}\n((?:  .*\n)+)", text, re.MULTILINE)  # stacked: it is too wide
        assert found, row["id"]
        assert re.search(costs, found[1]), row["id"]


def test_listing_loads_neither_torch_nor_altair() -> None:
    program = (
        "import sys; sys.argv = ['firstguess', 'reproduce', '--list']\n"
        "from firstguess.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([m for m in ('torch', 'altair', 'pyarrow') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert result.stdout.splitlines()[-1] == "[]", result.stdout + result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("igb/fig55",), "igb/fig5"),
        (("igb/fig5", "--figures", "x"), "--ledger"),
        (("igb/fig1", "--quick", "--data-dir", "no/such/folder"), "no/such/folder"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: tuple[str, ...], words: str) -> None:
    result = run(*arguments, code=2)
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_skipped_item_says_how_to_get_its_data(tmp_path: Path) -> None:
    result = run("igb/fig10", "--quick", "--data-dir", str(tmp_path), "--out", str(tmp_path / "out"), code=1)
    assert "skipped" in result.stderr
    assert "nothing ran" in result.stderr
    assert "images-idx3-ubyte" in result.stderr


SMALL = """
import sys
from firstguess.cli import main
from firstguess_papers import registry
from firstguess_papers.items import Item, Outcome
from firstguess_papers.judging import check, claimed
from firstguess_papers.charts import columns, row, std

full = dict(inits=30 if "other settings" in sys.argv[0] else 20)

def function(run):
    import firstguess as fg
    from firstguess.show import charts as figures
    from firstguess_papers.charts import law_panel

    x = fg.data.blob(50, 5, seed=run.seed)
    m = run.measure("dense > relu > dense", x, inits=run.sizes[0]["inits"], width=8)
    if "stop" in sys.argv[0] and not ("twice" in sys.argv[0] and run.item.id == "beyond/small"):
        raise KeyboardInterrupt
    print(run.computed, run.reused, file=sys.stderr)
    chart = figures.panels_chart([law_panel("ReLU", m, bins=5)], title="A small item")
    one = claimed("I4", "small", [check("std", std(m), near=0.2, room=0.3)])
    return Outcome([one], {"laws": columns([row("ReLU", m)])}, {"laws": chart})

ids = ["beyond/small", "beyond/smaller"] if "twice" in sys.argv[0] else ["beyond/small"]
known = {id: Item(id, "Small", "here", claims=["I4"], about="{inits} networks", quick=dict(inits=10), full=full,
                  seconds=(1, 1), function=function)
         for id in ids}
registry.items = lambda: known
main()
"""


def small(
    *arguments: str, code: int = 0, name: str = "go", item: str = "beyond/small"
) -> subprocess.CompletedProcess[str]:
    program = f"import sys; sys.argv[0] = {name!r}\n{SMALL}"
    result = subprocess.run(
        [sys.executable, "-c", program, "reproduce", *([item] if item else []), *arguments],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert result.returncode == code, result.stderr + result.stdout
    return result


def test_an_item_is_interrupted_resumed_and_written(tmp_path: Path) -> None:
    page = tmp_path / "claims.md"
    options = (
        "--quick",
        "--out",
        str(tmp_path),
        "--ledger",
        str(page),
        "--figures",
        str(tmp_path / "figures"),
        "--json",
    )
    stopped = small(*options, code=130, name="stop")
    assert "the same command resumes from there" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    done = small(*options)
    assert "[] ['dense > relu > dense']" in done.stderr  # the network was measured before the interruption, and kept
    again = small("--quick", "--out", str(tmp_path / "other"), "--json")  # all at once, elsewhere: the same numbers
    first, second = json.loads(done.stdout), json.loads(again.stdout)
    assert first[0]["status"] == "done"
    assert first[0]["entries"] == second[0]["entries"]
    assert first[0]["entries"][0]["verdict"] == "holds"
    one, two = (folder / "quick/beyond/small/laws.parquet" for folder in (tmp_path, tmp_path / "other"))
    assert one.read_bytes() == two.read_bytes()
    assert "[beyond/small](beyond.md#beyondsmall)" in (tmp_path / "claims/igb.md").read_text(encoding="utf-8")  # of I4
    beyond = (tmp_path / "claims/beyond.md").read_text(encoding="utf-8")
    assert "![beyond/small](../figures/beyond_small_laws.png)" in beyond
    for name in ("laws.png", "laws.html", "laws.parquet", "record.json"):
        assert (tmp_path / "quick/beyond/small" / name).exists()
    lines = json.loads((tmp_path / "quick/ledger.json").read_text(encoding="utf-8"))
    assert [(line["claim"], line["item"], line["verdict"]) for line in lines] == [("I4", "beyond/small", "holds")]


def test_other_sizes_are_computed_and_never_count_as_the_published_ones(tmp_path: Path) -> None:
    out = ("--out", str(tmp_path))
    found = small("--quick", "--set", "inits=14", *out)
    said = " ".join(found.stdout.split())
    assert "s of processor time (1 s declared)" in " ".join((found.stdout + found.stderr).split())
    assert "inits=14: not the published setting" in said
    assert "One large network does not show the ensemble's average" in said  # the claim, with its verdict
    assert "every check that the claim needs passed" in said
    record = json.loads(next(tmp_path.rglob("quick inits=14/**/record.json")).read_text())
    assert record["sizes"] == [{"inits": 14}]
    assert "14 networks" in record["settings"]
    assert not (tmp_path / "quick").exists()
    assert "a size of beyond/small: inits" in small("--quick", "--set", "width=4", *out, code=2).stderr
    assert "SIZE=VALUE" in small("--quick", "--set", "width", *out, code=2).stderr
    page = str(tmp_path / "claims.md")
    assert "published settings" in small("--set", "inits=4", "--ledger", page, *out, code=2).stderr


def test_full_records_are_kept_beside_the_page_and_merged(tmp_path: Path) -> None:
    page = tmp_path / "claims.md"
    small("--out", str(tmp_path / "one"), "--ledger", str(page))
    kept = tmp_path / "claims/records/beyond_small.json"
    assert json.loads(kept.read_text(encoding="utf-8"))["settings"] == "20 networks"
    figure = tmp_path / "claims/beyond_small_laws.png"
    assert figure.exists()
    before = (kept.read_bytes(), figure.read_bytes(), page.read_text(encoding="utf-8"))
    page.unlink()
    told = small("--out", str(tmp_path / "two"), "--ledger", str(page), item="")  # elsewhere, and nothing runs
    assert "beyond/small:" not in told.stderr
    assert (kept.read_bytes(), figure.read_bytes(), page.read_text(encoding="utf-8")) == before
    refused = small("--quick", "--out", str(tmp_path / "three"), "--ledger", str(page), code=2)
    assert "quick" in refused.stderr
    assert page.read_text(encoding="utf-8") == before[2]
    changed = small("--out", str(tmp_path / "two"), "--ledger", str(page), item="", name="other settings")
    assert "wrote" in changed.stderr
    text = page.read_text(encoding="utf-8")
    assert "outdated: run `firstguess reproduce beyond/small`" in text
    assert "std is 0.2 within 0.3" not in text


def test_a_run_of_all_items_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """Two items, stopped in the second: what the first measured is not measured again, and costs are said."""
    options = ("--quick", "--out", str(tmp_path))
    stopped = small(*options, item="all", name="stop twice", code=130)
    assert "[1/2] beyond/small: " in stopped.stderr
    assert "stopped in beyond/smaller" in stopped.stderr
    done = small(*options, item="all", name="twice")
    assert done.stderr.count("[] ['dense > relu > dense']") == 2
    assert "[2/2] beyond/smaller: " in done.stderr
    assert "2 items: " in done.stderr


@pytest.mark.slow
def test_a_real_item(tmp_path: Path) -> None:
    record = json.loads(run("igb/layers", "--quick", "--out", str(tmp_path), "--json").stdout)[0]
    assert record["status"] == "done"
    assert {entry["claim"] for entry in record["entries"]} == {"I10"}
    assert (tmp_path / "quick/igb/layers/layers.png").exists()
