"""The report as text: everything is inside, everything is escaped, and missing parts leave no holes."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from diagnoses import NASTY, bare, broken, nasty, sample

from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.diagnosis import sentences
from firstguess.diagnosis.result import Expected
from firstguess.show import charts as figures
from firstguess.show import report
from firstguess.show.charts import theme
from firstguess.show.report.content import TERMS
from firstguess.show.report.pages import DARK

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
        self.feed(re.sub(r"</?abbr[^>]*>", "", page))  # a tooltip is no end of a text
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value for key, value in attrs if key == "id" and value]
        self.links += [f"{tag} {key}={value}" for key, value in attrs if key in ("src", "href", "srcset")]
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("h1", "h2", "h3"):
            self.headings.append((tag, ""))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

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
        "What to change", "Details", "Words", "Papers",
    ]  # fmt: skip
    predicted = sample().expected.prediction
    assert predicted is not None
    said = re.sub(r"\s+", " ", outline.text)
    for words in (
        "this network already prefers one class over the others: on average its favourite gets",
        "where an even split would be 50 %",
        "Biased with a chance of 97 %, from 80 initializations on 200 points",
        "Why The 2 ReLU layers: without them the largest share falls from 83 % to 56 % (± 2 %).",
        "Not what theory predicts for this architecture (75 %).",
        "Optional Norm after the activation: the largest share falls to 55 % (measured).",
        "Its price Gradients grow going back.",
        "drift ratio γ of the output 3 (95 %: 2.9 to 3.1)",
        "γ implied by the guesses 3.2 (95 %: 2.4 to 4.3)",
        "bias detectable? yes (p < 1e-12)",
        "1 the 2 ReLU layers",
        "2 ReLU ( 1 )",
        "0.020 → 0.330 70 % ± 2 %",
        "sum and ReLU (before 4 )",
        "– LayerNorm ( 2 )",  # paths are code
        f"Predicted for random data, the largest share is {100 * predicted.guesses.expected_max():.0f} % on average "
        f"and γ = {predicted.gamma[-1]:.3g}: not what was measured",
        "Gradients vanish going back.",
        "83 % → 55 %",
        "3 → ∞",
        "It depends.",
        "control flow",
        "dead units at 3: a tenth of them",
        "a note on the work",
        "digits",
    ):
        assert words in said


def test_terminal_and_page_share_their_sentences(page: str) -> None:
    said = re.sub(r"\s+", " ", Outline(page).text).lower()
    d = sample()
    terminal = " ".join(str(d).split()).lower()
    shared = [sentences.start(d), sentences.often(d), d.expected.words, *(value for _, value in sentences.facts(d))]
    for words in shared:
        assert words.lower() in said
        assert words.lower() in terminal


def test_every_term_that_is_used_is_explained(page: str) -> None:
    outline = Outline(page)
    text, _, words = outline.text.rpartition(" Words ")
    used = [term.word for term in TERMS if term.is_in(text)]
    assert {"Drift ratio γ", "Correlation c", "Edge of chaos"} <= set(used)
    assert [word for word in used if f" {word} " not in f" {words}"] == []
    for term in TERMS:
        assert term.meaning.endswith(".")
        assert ". " not in term.meaning  # one sentence


def test_papers_are_named_and_linked(page: str) -> None:
    links = [link for link in Outline(page).links if not link.startswith("a href=#")]
    assert links[-3:] == [
        "a href=https://arxiv.org/abs/2306.00809",
        "a href=https://arxiv.org/abs/2505.11312",
        "a href=https://arxiv.org/abs/2505.12096",
    ]
    text = Outline(report.page(replace(sample(), case="See Where You Place the Norm Matters <b>."))).text
    assert "(NORM)" not in text
    assert "(MF)" not in text
    assert "theory.md" not in text


def test_links_of_the_contents_lead_somewhere(page: str) -> None:
    outline = Outline(page)
    inside = [link.removeprefix("a href=#") for link in outline.links if link.startswith("a href=#")]
    assert len(inside) >= 9
    assert set(inside) <= set(outline.ids)


def test_scripts_run_by_their_hashes(page: str) -> None:
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    rules = dict(rule.split(" ", 1) for rule in policy[1].split("; "))
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in rules["script-src"]
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    made = {f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts}
    assert len(scripts) == 2
    assert set(rules["script-src"].split()) == made


def test_no_text_of_errors_is_shown() -> None:
    error = NotCovered("a Gaussian signal", got="a sum", where="layer 5 (relu)", hint="fg.measure(...)")
    d = replace(sample(), expected=Expected(None, None, error.reason))
    text = Outline(report.page(d)).text
    assert "Not predicted: it needs a Gaussian signal; here: a sum (layer 5 (relu))." in text
    assert "Try:" not in text


def test_changes_that_did_not_help_are_apart_and_have_no_rank(page: str) -> None:
    outline = Outline(page)
    assert ("h3", "Tried, did not help") in outline.headings
    ranked, _, failed = outline.text.partition("Tried, did not help")
    assert "1. Norm after the activation: at the top of this page" in ranked
    assert "Weights at the edge of chaos: largest share 83 % → 99 %" in failed
    assert "2. Weights" not in outline.text


def test_everything_is_inside_and_small(page: str) -> None:
    assert len(page.encode()) < 2_500_000
    assert all(link.startswith(("a href=#", "a href=https://arxiv.org/abs/")) for link in Outline(page).links)
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
    return re.findall(r'<div class="chart[^>]*>(<svg.*?</svg>)', page, re.DOTALL)


@pytest.mark.parametrize("classes", [2, 10])
def test_every_colour_has_its_dark_one(page: str, classes: int) -> None:
    drawn = pictures(page if classes == 2 else report.page(sample(classes)))
    assert len(drawn) == 10  # wide, and for a phone
    used = {c for p in drawn for c in re.findall(r'\b(?:fill|stroke)="([^"]*)"', p)} - {"none", "transparent"}
    assert used
    assert used <= set(DARK)
    assert set(theme.PALETTE) <= set(DARK)  # three to six classes have each its own


def test_charts_are_the_figures_of_the_library(page: str) -> None:
    found = re.findall(r'<script type="application/json" class="spec"[^>]*>(.*?)</script>', page, re.DOTALL)
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
        "Broken", "Findings", "How it guesses", "Will it train?", "Papers"
    ]  # fmt: skip
    text = Outline(report.page(bare())).text
    assert "spreads its guesses about evenly" in text
    assert "Not predicted: a layer could not be read." in text
    assert "neither gradients nor a copy in training could be looked at" not in text
    assert not re.search(r"\bnan\b", text)


def test_a_verdict_on_a_border_and_a_preliminary_one_say_so() -> None:
    d = sample()
    border = replace(
        d.verdict, probability=0.54, chances=(0.0, 0.0, 0.54, 0.46), preliminary="12 of 64 initializations"
    )
    text = re.sub(r"\s+", " ", Outline(report.page(replace(d, verdict=border))).text)
    assert "At least biased, borderline deeply biased with a chance of > 99.9 %, from 80 initializations" in text
    assert "preliminary: 12 of 64" in text


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


def test_what_a_page_is_given_is_escaped_once() -> None:
    """In texts, in attributes, and in sentences whose papers become links."""
    d = replace(bare(), name='<i>"&', case="<b> See Where You Place the Norm Matters.", data_name="<&")
    text = report.page(d)
    assert text.count("&lt;i&gt;&#34;&amp;") >= 2  # the window's title, and the heading
    assert "<i>" not in text
    assert "&amp;lt;" not in text
    assert "&lt;b&gt; See <a href=" in text


def test_words_have_tooltips_where_they_are_first_read() -> None:
    from markupsafe import Markup

    from firstguess.show.report.pages import explained

    text = Markup("<h2>A share</h2><p>One share, a <code>share</code>, a share &amp; γ.</p><svg>γ</svg><p>γ</p>")
    found = explained(text, {r"\bshare\b": 'part of "all"', "γ": "drift ratio"})
    assert found == (
        '<h2>A share</h2><p>One <abbr title="part of &#34;all&#34;">share</abbr>, a <code>share</code>, a share &amp; '
        '<abbr title="drift ratio">γ</abbr>.</p><svg>γ</svg><p>γ</p>'
    )
    text = Markup("<p>`a.share`, `6`</p><h1>`7`</h1><pre>`8`</pre><svg>`9`</svg>")
    assert explained(text, {r"\bshare\b": "part"}) == (
        "<p><code>a.share</code>, <code>6</code></p><h1><code>7</code></h1><pre>`8`</pre><svg>`9`</svg>"
    )
