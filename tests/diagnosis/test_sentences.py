"""Sentences that terminal and report share: their numbers, counted another way."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from diagnoses import bare, broken, measurement, sample

from firstguess.base.text import size_change
from firstguess.diagnosis import sentences
from firstguess.diagnosis.verdict import verdict_of
from firstguess.ensemble.member_statistics import Finding, FindingKind
from firstguess.show.report.pages import sentence


@pytest.mark.parametrize("classes", [2, 10])
def test_the_headline_has_the_average_and_the_even_split(classes: int) -> None:
    d = sample(classes)
    assert d.measurement is not None
    seen = np.asarray(d.measurement.guesses.fractions)  # (initializations, classes)
    said = sentences.start(d)
    shares = [int(n) for n in re.findall(r"(\d+) %", said)]
    assert shares[0] == round(100 * seen.max(axis=1).mean())
    assert shares[-1] == round(100 / classes)
    assert shares[1] == 95
    assert shares[2] <= shares[0] <= shares[3]
    assert said in " ".join(str(d).split())


@pytest.mark.parametrize("gamma", [0.0, 3.0])
def test_how_often_one_class_gets_nearly_all(gamma: float) -> None:
    m = measurement(gamma=gamma)
    d = replace(sample(), measurement=m, verdict=verdict_of(m))
    share = float((np.asarray(m.guesses.fractions).max(axis=1) > 0.9).mean())
    said = sentences.often(d)
    assert said.startswith(f"{100 * share:.0f} % of all initializations" if share else "No initialization puts over")
    assert (share > 0) == (gamma > 0)


@pytest.mark.parametrize(
    "name", ["even", "leaning", "biased", "deeply biased", "repeats its input", "degenerate head", "broken"]
)
def test_every_verdict_has_a_sentence(name: Any) -> None:
    d = bare()
    sentence = sentences.start(replace(d, verdict=replace(d.verdict, name=name)))
    assert sentence.endswith(".")
    none = ("repeats its input", "degenerate head", "broken")
    assert ("on average its favourite gets" in sentence) == (name not in none)
    assert sentences.facts(broken()) == []


def test_a_verdict_on_a_border_is_worded_by_what_is_sure() -> None:
    d = sample()
    border = replace(d.verdict, name="deeply biased", probability=0.54, chances=(0.0, 0.0, 0.46, 0.54))
    assert border.title == "at least biased, borderline deeply biased"
    assert "already prefers one class" in sentences.start(replace(d, verdict=border))


def test_sizes_are_roots_of_mean_squares() -> None:
    for factor in np.geomspace(0.26, 3.9, 23):
        said = size_change(float(factor)).replace("−", "-")
        assert float(said.split()[0]) == pytest.approx(100 * (factor**0.5 - 1), rel=0.06, abs=1e-9)
    for factor in (1e-6, 0.2, 5.0, 1e8):
        assert float(size_change(factor).split()[1]) == pytest.approx(math.sqrt(factor), rel=0.06)
    assert size_change(math.nan) == "not known"


def test_greek_letters_keep_their_case() -> None:
    assert sentence("γ of the output") == "γ of the output."
    assert sentence("going on") == "Going on."


def test_a_change_says_what_it_comes_to() -> None:
    first, second = sample().advice
    assert sentences.result(first) == "the largest share falls to 55 % (measured)"
    assert sentences.result(second) == "guesses do not become more even (predicted)"
    assert [str(e) for e in sentences.effects(second)] == ["largest share 83 % → 99 %", "γ 3 → ∞"]
    found = "the 2 ReLU layers: without them the largest share falls from 83 % to 56 % (± 2 %)"
    assert sentences.cause(sample()) == found
    assert sentences.known_by(first) == "measured"


def test_a_main_cause_that_changes_little_says_so() -> None:
    d = sample()  # of two classes: from 83 % an even split is 33 % away
    little = replace(d.causes[0], largest_after=d.causes[0].largest_before - 0.02, error=0.005)
    said = sentences.cause(replace(d, causes=(little,)))
    assert said == (
        "no single layer does much; of those with a clear effect, the 2 ReLU layers: without them the largest share "
        "falls from 83 % to 81 % (± 0.5 %)"
    )


def test_numbers_of_any_size_are_written_one_way() -> None:
    d = sample()
    large = replace(d, verdict=replace(d.verdict, gamma=1.673e8, low=8140.0, high=math.inf))
    assert dict(sentences.facts(large))["drift ratio γ of the output"] == "1.67e8 (95 %: 8 140 to ∞)"


def test_ten_findings_of_one_kind_are_one_line() -> None:
    found = tuple(Finding(FindingKind.NOT_REDRAWN, "nothing draws it", f"layer{i}") for i in range(10))
    page = str(replace(sample(), findings=found))
    assert page.count("nothing draws it") == 1
    assert "layer0" in page
    assert "more" in page
