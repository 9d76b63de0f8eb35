"""The ledger: records that survive, versions that are not mixed, an opening that says what records say."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from firstguess_papers import claims, ledger, records, registry
from firstguess_papers.execute import run_item
from firstguess_papers.items import Entry, Item, Outcome
from firstguess_papers.judging import UNDECIDED
from firstguess_papers.records import Record
from firstguess_papers.running import Run

from firstguess.base.errors import FirstguessError

DOCS = Path(__file__).parents[2] / "docs"


def toy(id: str = "beyond/toy", **options: Any) -> Item:
    def function(run: Run) -> Outcome:
        return Outcome([Entry("I4", "s", "1 ± 0", "holds")])

    given: dict[str, Any] = {"claims": ("I4",), "where": "§0", "seconds": (1, 2), "about": "{coins} coins."}
    given |= {"quick": {"coins": 2}, "full": {"coins": 9}}
    return Item(id, "A toy", function=function, **(given | options))


def record_of(one: Item, *entries: Entry, **changes: Any) -> Record:
    made = Record(
        one.id, one.title, one.claims, one.where, "done", False, one.settings(False), one.version, "0.1.0", 0, 12.0,
        entries, sizes=one.sizes(False),
    )  # fmt: skip
    return replace(made, **changes)


def whole(*given: Any, **options: Any) -> str:
    """All pages, one after the other."""
    return "\n".join(ledger.pages(*given, **options).values())


HOLDS = Entry("I4", "coins are fair", "0.5 ± 0.1", "holds")


# -- Records that survive


def test_kept_records_come_back_word_for_word(tmp_path: Path) -> None:
    one = toy()
    full = record_of(
        one,
        Entry("I4", "a | b\\c", "γ = 1 ± 0.1; 2", "holds with a limit", "only “here”", "γ = 1"),
        HOLDS,
        charts=("a.png", "b.png"),
        notes=("σw² = 2",),
        commit="abc1234 + changes",
        checks="def5678",
    )
    records.keep(
        tmp_path, [full, replace(full, id="igb/other", quick=True), replace(full, id="igb/x", status="failed")]
    )
    assert [path.name for path in tmp_path.iterdir()] == ["beyond_toy.json"]  # neither quick ones nor failures
    assert records.kept(tmp_path) == [full]
    old = full.to_dict()
    for name in ("commit", "checks"):
        del old[name]
    del old["entries"][0]["headline"]  # as firstguess 0.1.0 wrote them
    assert Record.from_dict(old) == replace(
        full, commit="", checks="", entries=(replace(full.entries[0], headline=""), HOLDS)
    )
    (tmp_path / "beyond_toy.json").write_text("{}", encoding="utf-8")
    with pytest.raises(FirstguessError, match=r"remove .*beyond_toy\.json"):
        records.kept(tmp_path)


def test_merging_prefers_what_ran_now_then_what_is_current() -> None:
    now = toy(version=2)
    items = {now.id: now}
    here, stored, old = (record_of(now, HOLDS, seconds=s, version=v) for s, v in ((1.0, 2), (2.0, 2), (3.0, 1)))
    assert records.merged([stored], [here], items) == [stored]
    assert records.merged([stored], [here], items, ran=[now.id]) == [here]
    assert records.merged([old], [here], items) == [here]
    assert records.merged([stored], [old], items) == [stored]
    assert records.merged([], [here], items) == [here]
    assert records.merged([stored], [], items) == [stored]
    failed = replace(here, status="skipped", entries=(), reason="no data")
    assert records.merged([stored], [failed], items, ran=[now.id]) == [stored]
    assert records.merged([], [failed], items, ran=[now.id]) == [failed]
    gone = replace(old, id="igb/gone")
    assert [r.id for r in records.merged([gone, stored], [], items)] == [now.id, "igb/gone"]


def test_a_page_shows_figures_of_records_from_elsewhere(tmp_path: Path) -> None:
    one = toy()
    full = record_of(one, HOLDS, charts=("a.png", "lost.png"))
    figures = tmp_path / "claims"
    figures.mkdir()
    (figures / "beyond_toy_a.png").write_bytes(b"a figure")
    ledger.write(tmp_path / "claims.md", [full], out=tmp_path / "out", figures=figures, items={one.id: one})
    text = (tmp_path / "claims" / "beyond.md").read_text(encoding="utf-8")
    assert "![beyond/toy](beyond_toy_a.png)" in text
    assert "lost" not in text
    assert (figures / "beyond_toy_a.png").read_bytes() == b"a figure"


# -- Versions are not mixed


@pytest.mark.parametrize("change", [{"version": 2}, {"full": {"coins": 10}}])
def test_a_record_of_another_version_is_no_verdict(change: dict[str, Any]) -> None:
    before, now = toy(), toy(**change)
    text = whole([record_of(before, HOLDS)], items={now.id: now})
    assert "beyond/toy (" in text
    assert "outdated: run `firstguess reproduce beyond/toy`" in text
    assert "**outdated** | – | beyond/toy |" in text
    assert "coins are fair" not in text
    assert "0.5 ± 0.1" not in text
    assert "holds** |" not in text
    assert "coins are fair" in whole([record_of(now, HOLDS)], items={now.id: now})


def test_a_record_without_an_item_is_no_verdict() -> None:
    text = whole([record_of(toy(), HOLDS)], items={})
    assert "beyond/toy: no such item any more" in text
    assert "coins are fair" not in text


def test_sections_say_on_which_code_they_ran() -> None:
    one = toy(version=3)
    items = {one.id: one}
    full = record_of(one, HOLDS, commit="abc1234", checks="def5678", seed=4)
    said = "Version 3, seed 4, commit abc1234, checks fixed in def5678."
    assert said in whole([full], items=items)
    assert "checks not committed before it ran." in whole([replace(full, checks="uncommitted")], items=items)
    assert "Version 3." in whole([replace(full, seed=0, commit="", checks="")], items=items)


def test_the_stored_page_is_what_its_records_say(tmp_path: Path) -> None:
    """Not edited by hand, and as its records are: `firstguess reproduce --ledger docs/claims.md`."""
    found = records.merged(records.kept(DOCS / "claims" / "records"), [], registry.items())
    assert len(found) >= 81
    (tmp_path / "claims").mkdir()
    for figure in (DOCS / "claims").glob("*.png"):
        (tmp_path / "claims" / figure.name).symlink_to(figure)
    ledger.write(tmp_path / "claims.md", found, out=tmp_path / "out", figures=tmp_path / "claims")
    for page in (
        "claims.md",
        *(f"claims/{name}.md" for name in ("igb", "norm", "mf", "beyond", "undecided", "changed")),
    ):
        assert (tmp_path / page).read_text(encoding="utf-8") == (DOCS / page).read_text(encoding="utf-8"), page


def test_the_summary_is_one_screen_and_its_links_lead_somewhere() -> None:
    summary = (DOCS / "claims.md").read_text(encoding="utf-8")
    assert len(summary.splitlines()) <= 45
    assert "![" not in summary
    for target in re.findall(r"\]\(([^)]+)\)", summary):
        page, _, heading = target.partition("#")
        text = (DOCS / page).read_text(encoding="utf-8")
        known = {ledger.anchor(line.lstrip("# ")) for line in text.splitlines() if line.startswith("#")}
        assert not heading or heading in known, target


# -- Which code


def git(folder: Path, *arguments: str) -> str:
    names = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", "-C", str(folder), *names, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_provenance_of_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package, papers = tmp_path / "src" / "firstguess", tmp_path / "papers" / "src" / "firstguess_papers"
    package.mkdir(parents=True)
    papers.mkdir(parents=True)
    module = papers / "beyond_x.py"
    (papers / "__init__.py").write_text("", encoding="utf-8")
    monkeypatch.setattr(records, "__file__", str(papers / "records.py"))
    monkeypatch.setattr(records.inspect, "getsourcefile", lambda _function: str(module))
    assert records.provenance(toy()) == records.Provenance()  # no checkout
    git(tmp_path, "init", "-q")
    module.write_text("checks = 1", encoding="utf-8")
    assert records.provenance(toy()) == records.Provenance()  # a checkout, but not of firstguess
    git(tmp_path, "add", "papers/src/firstguess_papers/__init__.py")
    git(tmp_path, "commit", "-qm", "one")
    first = git(tmp_path, "rev-parse", "--short", "HEAD")
    assert records.provenance(toy()) == records.Provenance(f"{first} + changes", "uncommitted")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "checks")
    checks = git(tmp_path, "rev-parse", "--short", "HEAD")
    (package / "other.py").write_text("", encoding="utf-8")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "something else")
    head = git(tmp_path, "rev-parse", "--short", "HEAD")
    assert records.provenance(toy()) == records.Provenance(head, checks)
    (package / "other.py").write_text("x = 1", encoding="utf-8")
    assert records.provenance(toy()) == records.Provenance(f"{head} + changes", checks)
    module.write_text("checks = 2", encoding="utf-8")
    assert records.provenance(toy()).checks == "uncommitted"


def test_records_name_their_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from firstguess_papers import execute

    monkeypatch.setattr(execute, "provenance", lambda _item: records.Provenance("abc", "def"))
    made = run_item(toy(), tmp_path)
    assert (made.commit, made.checks) == ("abc", "def")


# -- The opening


def row(text: str, claim: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(f"| {claim} | "))


def test_claims_have_a_verdict_and_a_line_of_number() -> None:
    one, idle = toy(claims=("I4", "I5")), toy("igb/idle", claims=("I6",))
    entries = (
        HOLDS,
        Entry("I4", "s", "0.9 ± 0.1", "does not hold", "no"),
        Entry("I5", "s", "1; " * 100, "holds", "", "γ = 2 ± 1"),
    )
    text = whole([record_of(one, *entries)], items={one.id: one, idle.id: idle})
    assert "| **✓ holds; ✗ does not hold** | 0.9 ± 0.1 | [beyond/toy](beyond.md#beyondtoy) |" in row(text, "I4")
    assert "| **✓ holds** | γ = 2 ± 1 | [beyond/toy](beyond.md#beyondtoy) |" in row(text, "I5")
    assert row(text, "I6").endswith("| **○ undecided** | – | igb/idle |")
    assert row(text, "I7").endswith("| **open** | – | – |")
    assert row(text, "B3").startswith("| B3 | *Tokens.* ")
    places = [text.index(words) for words in ("# What holds", "| I1 |", "| B1 |", "# Items", "# Checks and sizes")]
    assert places == sorted(places)


def test_a_claim_is_judged_by_what_it_says_and_a_number_names_its_item() -> None:
    one, other = toy(claims=("I4",)), toy("igb/other", claims=("I4",))
    extra = Entry("I4", "beyond the paper: more", "3 ± 1", "does not hold", "no", "extra 3 ± 1")
    limit = Entry("I4", "s", "0.5 ± 0.1", "holds with a limit", "narrow")
    text = whole([record_of(one, HOLDS, extra), record_of(other, limit)], items={one.id: one, other.id: other})
    assert "| **✓ holds; ◐ holds with a limit** | 0.5 ± 0.1 (igb/other) | " in row(text, "I4")
    alone = whole([record_of(one, extra)], items={one.id: one})
    assert "| **✗ does not hold** | extra 3 ± 1 | " in row(alone, "I4")


@pytest.mark.parametrize("room", range(10, 90, 7))
def test_a_cut_never_parts_a_value_from_its_error(room: int) -> None:
    for text in (
        "std 0.2313 ± 0.0039 (theory 0.2, 0.3); largest 0.69 ± 0.01, and 3.00 ± 0.25 of them at 7.5",
        "blobs shifted by 1: linear 1.084 ± 0.044 tanh 0.891 ± 0.036 erf 0.854 ± 0.035 sin 0.500 ± 0.020 ReLU 1.5",
    ):
        short = ledger.cut(text, room)
        assert len(short) <= room + 2
        kept = short.removesuffix(" …").split(" ")
        rest = text.split(" ")[len(kept) :]
        assert kept[-1] != "±"
        assert not rest or rest[0] != "±"


def shown(finding: claims.Finding, **changes: Any) -> tuple[str, bool]:
    """A page whose only record is the entry that a finding rests on; whether the finding is shown as found."""
    one = toy(finding.item, claims=(finding.claim,))
    given: dict[str, Any] = {"verdict": finding.verdicts[0], "why": "because"} | changes
    entry = Entry(finding.claim, f"some {finding.about} words", "1.25 ± 0.01", **given)
    text = whole([record_of(one, entry)], {one.id: [f"claims/{finding.chart or 'a.png'}"]}, {one.id: one})
    return text, f"\n## {finding.title}\n" in text


@pytest.mark.parametrize("finding", claims.FINDINGS, ids=lambda f: f.claim)
def test_findings_are_shown_only_where_a_record_says_so(finding: claims.Finding) -> None:
    text, found = shown(finding)
    assert found
    assert f"**{ledger.marked(finding.verdicts[0])}**: 1.25 ± 0.01\n" in text
    assert f"![{finding.title}](claims/{finding.chart or 'a.png'})" in text
    others = {"holds", "holds with a limit", "does not hold", "not tested"} - set(finding.verdicts)
    for verdict in others:
        text, found = shown(finding, verdict=verdict)
        assert not found
        assert f"- {finding.title}? ({finding.claim}, {finding.item}; the record says: {verdict})" in text
    assert not shown(finding, why=UNDECIDED)[1]
    nothing = whole([], items={})
    assert f"- {finding.title}? ({finding.claim}, {finding.item}; no item yet)" in nothing
    now = toy(finding.item, claims=(finding.claim,), version=2)
    assert f"not run: `firstguess reproduce {finding.item}`)" in whole([], items={now.id: now})
    old = record_of(toy(finding.item), HOLDS)
    assert f"outdated: run `firstguess reproduce {finding.item}`)" in whole([old], items={now.id: now})


def test_findings_and_topics_name_claims_that_exist() -> None:
    assert {finding.claim for finding in claims.FINDINGS} <= set(claims.CLAIMS)
    assert [*claims.TOPICS] == [claim for claim in claims.CLAIMS if claim[0] == "B"]
