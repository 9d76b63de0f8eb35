"""Every number of docs/findings.md stands in the record that its sentence links to, and verdicts allow what is said."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
RECORDS = ROOT / "docs" / "claims" / "records"
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:[.,:]\d+)*(?:e-?\d+)?")


def sentences() -> list[tuple[str, list[str]]]:
    """Pieces of the page that rest on records, with the items they link to: a piece ends with its links."""
    found: list[tuple[str, list[str]]] = []
    for item in re.findall(
        r"^- (.*?)(?=^- |^\n|^#|\Z)", TEXT.partition("## Limits")[0], flags=re.DOTALL | re.MULTILINE
    ):
        rest = item
        while link := re.search(r"\(\[([a-z]+/[^\]]+)\]\(claims/[a-z]+\.md#([^)]+)\)\)", rest):
            found.append((rest[: link.start()], [link[1]]))
            assert link[2] == link[1].replace("/", "").replace(".", ""), link[0]
            rest = rest[link.end() :]
    return found


def record(item: str) -> dict[str, object]:
    return json.loads((RECORDS / f"{item.replace('/', '_', 1)}.json").read_text(encoding="utf-8"))


def said(item: str) -> str:
    kept = json.loads((RECORDS / f"{item.replace('/', '_', 1)}.json").read_text(encoding="utf-8"))
    parts = [kept["settings"], kept["title"], *kept["notes"]]
    for entry in kept["entries"]:
        parts += [entry["statement"], entry["measured"], entry["why"], entry["headline"]]
    return " ".join(parts)


def missing(piece: str, items: list[str]) -> list[str]:
    """Numbers, with their errors, that no record of these items has."""
    text = " ".join(said(item) for item in items)
    pairs = re.findall(r"-?[\d.]+ ± [\d.]+|\(×/÷ [\d.]+\)", piece)
    left = [pair for pair in pairs if pair not in text]
    known = set(NUMBER.findall(text)) | {n.lstrip("-") for n in NUMBER.findall(text)}
    return left + [n for n in NUMBER.findall(piece) if n.rstrip(".,:") not in known]


PIECES = sentences()


def test_the_page_rests_on_many_records() -> None:
    assert len(PIECES) >= 20
    assert len({items[0] for _, items in PIECES}) >= 18


@pytest.mark.parametrize(("piece", "items"), PIECES, ids=lambda value: value[0] if isinstance(value, list) else "")
def test_numbers_are_those_of_the_record(piece: str, items: list[str]) -> None:
    kept = record(items[0])
    assert kept["status"] == "done"
    assert not kept["quick"]
    assert missing(piece, items) == []


def test_another_number_would_be_seen() -> None:
    piece, items = next((p, i) for p, i in PIECES if i == ["norm/rmsnorm"])
    assert missing(piece.replace("0.02694", "0.02695"), items)
    assert missing(piece.replace("± 0.00097", "± 0.00098"), items)


# What the page says holds, or does not: item, part of the statement, verdicts that allow it.
VERDICTS = [
    ("igb/criterion", "25 activations", ("holds",)),
    ("igb/fig7", "ReLU: γ grows", ("holds",)),
    ("igb/window", "held-out accuracy at the end", ("holds",)),
    ("norm/rmsnorm", "after ReLU, RMSNorm leaves", ("holds",)),
    ("mf/phases", "ReLU with pools of 2", ("holds with a limit",)),
    ("mf/training", "absorbs fastest", ("does not hold",)),
    ("mf/training", "learns fastest", ("does not hold",)),
    ("mf/edge-bias", "as it is said", ("does not hold",)),
    ("norm/fig2", "effect of the optimizer", ("holds",)),
    ("norm/fig-g3", "effect of the optimizer", ("not tested",)),
    ("igb/weight_scale", "as guesses, in general", ("does not hold",)),
    ("igb/multiclass", "strongest rival", ("does not hold",)),
    ("norm/fig-g9", "“raises”", ("does not hold",)),
    ("norm/fig5", "ResNet, norm after: training is faster", ("does not hold",)),
    ("beyond/frontier", "= P within 0.05", ("holds",)),
    ("beyond/tokens-norm", "LayerNorm and with RMSNorm", ("holds",)),
    ("beyond/tokens-depth", "the sums (post)", ("holds",)),
    ("beyond/tokens-own", "guess themselves", ("holds",)),
    ("beyond/tokens-shared", "as they start", ("holds", "holds with a limit")),
    ("beyond/absorption", "mean time to a largest share", ("holds", "holds with a limit")),
]


@pytest.mark.parametrize(("item", "part", "verdicts"), VERDICTS)
def test_verdicts_allow_what_is_said(item: str, part: str, verdicts: tuple[str, ...]) -> None:
    kept = json.loads((RECORDS / f"{item.replace('/', '_', 1)}.json").read_text(encoding="utf-8"))
    found = [entry["verdict"] for entry in kept["entries"] if part in entry["statement"]]
    assert found
    assert set(found) <= set(verdicts)


def test_number_of_claims() -> None:
    from firstguess_papers.claims import CLAIMS

    assert f"We tested {sum(claim[0] in 'INM' for claim in CLAIMS)} of\ntheir claims" in TEXT


def test_bibtex_is_that_of_the_citation_file() -> None:
    yaml = pytest.importorskip("yaml")
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["references"]
    entries = re.findall(r"@\w+\{.*?\n\}", TEXT, flags=re.DOTALL)
    assert len(entries) == len(cited) + 1
    for entry, reference in zip(entries, cited, strict=False):
        assert f"{{{reference['title']}}}" in entry
        authors = " and ".join(f"{a['family-names']}, {a['given-names']}" for a in reference["authors"])
        assert f"{{{authors}}}" in entry
        assert f"{{{reference['year']}}}" in entry
