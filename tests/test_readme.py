"""What README and the examples show does run. Other pages: tests/docs/test_code_of_pages.py."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)


def test_readme_is_short_and_shows_what_its_code_prints() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 100
    assert len(BLOCKS) == 1
    for command in ("make demo", "make test", "pip install firstguess"):
        assert command in text


def test_readme_counts_are_those_of_the_ledger_and_the_zoo() -> None:
    """A claim that was decided changed the ledger, and README kept the old count."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    ledger = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
    row = next(line for line in ledger.splitlines() if line.startswith("| in all"))
    claims, holds, limited, fails, undecided = re.findall(r"\d+", row)
    said = f"{holds} statements hold, {limited} with a limit, {fails} do not, {undecided} are undecided"
    assert f"all {claims} claims" in readme
    assert said in readme
    (ran,) = set(re.findall(r"visited, (\d+) ran", (ROOT / "docs" / "zoo.md").read_text(encoding="utf-8")))
    assert f"on {ran} architectures" in readme


def test_readme_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The answer that README shows is the one that is printed; the share moves with the seed of the data."""
    monkeypatch.chdir(tmp_path)
    exec(compile(BLOCKS[0], "README.md", "exec"), {})
    shown = re.search(r"```text\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    assert shown is not None
    assert capsys.readouterr().out.split("-")[0] == shown[1].split("-")[0]
    assert (tmp_path / "report.html").stat().st_size > 100_000


def test_examples_of_transformers_run(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "transformers.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text.partition("<!-- table -->")[0], flags=re.DOTALL)
    assert len(blocks) >= 4
    scope: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "transformers.md", "exec"), scope)
    shown = capsys.readouterr().out
    for said in re.findall(r"  # (γ .*)", text):  # numbers that the page prints
        assert said in shown


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_examples_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
