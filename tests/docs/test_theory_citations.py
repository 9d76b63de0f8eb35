"""Every equation and section that code and pages cite as theory.md stands there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
THEORY, _, CHECKED = (ROOT / "docs" / "theory.md").read_text("utf-8").partition("## 15. Where each equation is checked")
IN_WORDS = {
    "3": "Gaussian (3) |",
    "4": "(4) |",
    "50": "starting from v = 0. (50)",
}  # what stands in a table or a sentence
NUMBERS = set(re.findall(r"\\tag\{(\d+)\}", THEORY)) | {number for number, said in IN_WORDS.items() if said in THEORY}
CITED = re.compile(r"theory\.md((?:[,;]? (?:and )?(?:§\d+|\(\d+\)(?:[-–]\(\d+\))?))+)")


def citations() -> dict[str, set[str]]:
    """What is cited ("§7", "(16)"), with the files that cite it."""
    found: dict[str, set[str]] = {}
    for folder in ("src", "papers", "docs", "benchmarks", "tutorials", "examples", "tests"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in (".py", ".md") or "claims" in path.parts or path.name == "theory.md":
                continue
            for group in CITED.findall(path.read_text("utf-8")):
                marks = set(re.findall(r"§\d+", group))
                for first, last in re.findall(r"\((\d+)\)(?:[-–]\((\d+)\))?", group):
                    marks |= {f"({number})" for number in range(int(first), int(last or first) + 1)}
                for mark in marks:
                    found.setdefault(mark, set()).add(path.relative_to(ROOT).as_posix())
    return found


def test_citations_are_found() -> None:
    assert len(citations()) > 40


def test_every_citation_leads_somewhere() -> None:
    sections = {f"§{number}" for number in re.findall(r"^## (\d+)\.", THEORY, re.M)}
    equations = {f"({number})" for number in NUMBERS}
    missing = {mark: sorted(files) for mark, files in citations().items() if mark not in sections | equations}
    assert not missing


def test_equations_are_numbered_without_gaps() -> None:
    assert {int(number) for number in NUMBERS} == set(range(1, len(NUMBERS) + 1))


def test_formulae_have_one_number_each() -> None:
    tags = re.findall(r"\\tag\{(\d+)\}", THEORY)
    assert len(tags) == len(set(tags)) == THEORY.count("\\tag")
    assert len(tags) > 45
    assert THEORY.count("$$") % 2 == 0


def test_every_equation_says_where_it_is_checked() -> None:
    listed: set[int] = set()
    for cell in re.findall(r"^\| (\(\d+\).*?) \|", CHECKED, re.M):
        for first, last in re.findall(r"\((\d+)\)(?:–\((\d+)\))?", cell):
            listed |= set(range(int(first), int(last or first) + 1))
    assert {int(tag) for tag in re.findall(r"\\tag\{(\d+)\}", THEORY)} <= listed
    assert listed == {int(number) for number in NUMBERS}
    for file in re.findall(r"`(tests/[\w/]+\.py)`", CHECKED):
        assert (ROOT / file).is_file(), file
