"""The report as text: everything is inside, everything is escaped, and missing parts leave no holes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from diagnoses import NASTY, bare, broken, nasty, sample
from markupsafe import Markup

from firstguess.base.errors import InvalidInput
from firstguess.show import charts as figures
from firstguess.show import report
from firstguess.show.charts import theme
from firstguess.show.report import wording
from firstguess.show.report.dark import DARK
from firstguess.show.report.elements import table, tag

VOID = {"meta", "path", "rect", "line"}


class Outline(HTMLParser):
    """Headings, texts, and whether every tag is closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[tuple[str, str]] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.ids += [value for key, value in attributes if key == "id" and value]
        self.links += [f"{name} {key}={value}" for key, value in attributes if key in ("src", "href", "srcset")]
        if name not in VOID:
            self.open.append(name)
        if name in ("h1", "h2", "h3"):
            self.headings.append((name, ""))

    def handle_endtag(self, name: str) -> None:
        if name not in VOID:
            assert self.open.pop() == name

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("h1", "h2", "h3"):
            self.headings[-1] = (self.headings[-1][0], self.headings[-1][1] + data)
        if not {"script", "style"} & set(self.open):
            self.text += data.replace("\xa0", " ") + " "


@pytest.fixture(scope="module")
def page() -> str:
    return report.page(sample())


def test_it_says_everything_in_order(page: str) -> None:
    outline = Outline(page)
    assert not outline.open
    titles = [text for level, text in outline.headings if level in ("h1", "h2")]
    assert titles == [
        "A small MLP", "Findings", "How it guesses", "Where it comes from", "Is it expected?", "Will it train?",
        "What to change", "What was read of the model", "All layers", "Notes", "How this was made",
    ]  # fmt: skip
    predicted = sample().expected.prediction
    assert predicted is not None
    said = re.sub(r"\s+", " ", outline.text)
    for words in (
        "this network already prefers one class over the others: on average its favourite gets",
        "where an even split would be 50 %",
        "chance that this is right: 97 %",
        "drift ratio γ of the output",
        "95 %: 2.9 to 3.1",
        "the word above is that of the γ with which wide networks guess as these do: 3.2 (95 %: 2.4 to 4.3).",
        "Is there initial guessing bias at all? Yes: γ > 0 (p < 1e-12).",
        "1 all 2 ReLU",
        "2 ReLU at 1",
        "0.020 → 0.330 83 % → 70 % ± 2",
        "add > relu before 4",
        "– LayerNorm at 2",
        f"The closed form reading predicts γ = {predicted.gamma[-1]:.3g}",
        "Gradients vanish going back.",
        "83 % → 55 %",
        "3 → ∞",
        "guesses not more even",
        "It depends.",
        "control flow",
        "dead units at 3: a tenth of them",
        "a note on the work",
        '{"name": "digits"}',
    ):
        assert words in said


def test_changes_that_did_not_help_are_apart_and_have_no_rank(page: str) -> None:
    outline = Outline(page)
    assert ("h3", "Tried, did not help") in outline.headings
    ranked, _, failed = outline.text.partition("Tried, did not help")
    assert "1. Norm after the activation" in ranked
    assert "Weights at the edge of chaos" in failed
    assert "2. Weights" not in outline.text


def test_everything_is_inside_and_small(page: str) -> None:
    assert len(page.encode()) < 2_500_000
    assert Outline(page).links == []
    assert not re.search(r"@import|url\(\s*[\"']?https?:", page)
    assert "cdn.jsdelivr" not in page
    assert page.count("window.vegaEmbed") == 1  # the libraries are there once
    assert page.count("<script") == page.count("</script>")


def test_ids_are_unique_and_clips_are_found(page: str) -> None:
    ids = Outline(page).ids
    assert len(ids) == len(set(ids))
    clips = {clip for picture in pictures(page) for clip in re.findall(r"url\(#([^)]*)\)", picture)}
    assert clips
    assert clips <= set(ids)


def pictures(page: str) -> list[str]:
    return re.findall(r'<div class="chart"[^>]*>(<svg.*?</svg>)', page, re.DOTALL)


@pytest.mark.parametrize("classes", [2, 10])
def test_every_colour_has_its_dark_one(page: str, classes: int) -> None:
    drawn = pictures(page if classes == 2 else report.page(sample(classes)))
    assert len(drawn) == 5
    used = {c for p in drawn for c in re.findall(r'\b(?:fill|stroke)="([^"]*)"', p)} - {"none", "transparent"}
    assert used
    assert used <= set(DARK)
    assert set(theme.PALETTE) <= set(DARK)  # three to six classes have each its own


def test_charts_are_the_figures_of_the_library(page: str) -> None:
    found = re.findall(r'<script type="application/json" class="spec">(.*?)</script>', page, re.DOTALL)
    titles = {" ".join(json.loads(text)["title"]["text"]) for text in found}
    seen = sample().measurement
    assert seen is not None
    chart: Any = figures.strip_chart(seen)
    assert " ".join(chart.to_dict()["title"]["text"]) in titles
    assert len(titles) == 5


def test_texts_of_users_stay_texts() -> None:
    outline = Outline(report.page(nasty()))  # balanced tags
    assert "<img src=x" in outline.text
    assert NASTY in outline.text
    assert ("h1", NASTY) in outline.headings


def test_broken_models_and_bare_measurements_have_pages() -> None:
    outline = Outline(report.page(broken()))
    assert "gives no usable numbers" in outline.text
    assert "NaN first at layer 3" in outline.text
    assert not re.search(r"\bnan\b", outline.text)
    assert [t for _, t in outline.headings] == [
        "Broken", "Findings", "Is it expected?", "Will it train?", "What to change"
    ]  # fmt: skip
    text = Outline(report.page(bare())).text
    assert "spreads its guesses about evenly" in text
    assert "Not predicted: a layer could not be read." in text
    assert "Gradients were not measured." in text
    assert not re.search(r"\bnan\b", text)


def test_a_verdict_on_a_border_and_a_preliminary_one_say_so() -> None:
    d = sample()
    border = replace(
        d.verdict, probability=0.54, chances=(0.0, 0.0, 0.54, 0.46), preliminary="12 of 64 initializations"
    )
    text = re.sub(r"\s+", " ", Outline(report.page(replace(d, verdict=border))).text)
    assert (
        "at least biased, borderline deeply biased chance that this is right: > 99.9 %; preliminary: 12 of 64" in text
    )


@pytest.mark.parametrize("name", ["even", "leaning", "biased", "deeply biased", "degenerate head", "broken"])
def test_every_verdict_has_a_sentence(name: Any) -> None:
    d = bare()
    sentence = wording.headline(replace(d, verdict=replace(d.verdict, name=name)))
    assert sentence.endswith(".")
    assert ("on average its favourite gets" in sentence) == (name not in ("degenerate head", "broken"))


def test_write_checks_its_path(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    assert broken().save(target) == target
    assert target.read_text("utf-8").startswith("<!DOCTYPE html>")
    with pytest.raises(InvalidInput, match=r"ends in \.html.*Try: report\.html"):
        report.write(broken(), tmp_path / "report.pdf")
    with pytest.raises(InvalidInput, match="a folder that exists"):
        report.write(broken(), tmp_path / "nowhere" / "report.html")
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(InvalidInput, match="a folder"):
        report.write(broken(), tmp_path / "folder.html")


def test_markup_is_escaped_once() -> None:
    assert tag("p", "<", Markup("<b>"), data_x='"<') == '<p data-x="&#34;&lt;">&lt;<b></p>'
    assert table(["<"], [["&"]]).count("&lt;") == 2  # the head, and the box's name
