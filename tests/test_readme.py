"""What README and the examples show does run. Other pages: tests/docs/test_code_of_pages.py."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)


def test_readme_has_examples() -> None:
    assert len(BLOCKS) >= 4
    for command in ("make demo", "make test"):
        assert command in (ROOT / "README.md").read_text(encoding="utf-8")


def test_readme_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    for block in BLOCKS:  # one after the other, as a reader would type them
        exec(compile(block, "README.md", "exec"), scope)
    assert (tmp_path / "phases.html").stat().st_size > 10_000


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
