"""The page of a watched training: complete, escaped, and without holes; its numbers are the result's."""

from __future__ import annotations

import html
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firstguess as fg
from firstguess.watch.chart import watch_chart
from firstguess.watch.evaluation import Look
from firstguess.watch.seen import Cost, LazyPrediction

NASTY = "</script><b>cat & 'dog'"


def looks(steps: list[int], classes: int = 3, *, labelled: bool = True, lost: tuple[int, ...] = ()) -> tuple[Look, ...]:
    """A favourite that falls from 90 % to an even share, 100 points of each class."""
    found: list[Look] = []
    for step in steps:
        broken = step in lost
        own = 1 / classes + (0.9 - 1 / classes) * math.exp(-step / 40)
        shares = np.full(classes, (1 - own) / (classes - 1))
        shares[1] = own
        right = np.round(100 * np.minimum(1.0, shares * classes * 0.9)).astype(np.int64)
        shares = np.full(classes, math.nan) if broken else shares
        loss = math.nan if broken or not labelled else 1.0 / (1 + step)
        gamma = math.nan if broken else 5 * math.exp(-step / 40)
        found.append(Look(step, shares, right if labelled else None, loss, gamma, 300 * broken, 0))
    return tuple(found)


def sample(**changes: Any) -> fg.WatchedTraining:
    given: dict[str, Any] = {
        "looks": looks([0, 1, 2, 5, 10, 20, 40, 80, 100, 150, 200]),
        "points": 300,
        "classes": 3,
        "labels": np.arange(300) % 3,
        "level": 1 / 3 + 0.2 * 2 / 3,
        "early": (2, 5),
        "notes": ("a note",),
        "names": ("fish", NASTY, "owl"),
        "cost": Cost(11, 0.011, 1.0, 200, 0.008),
        "provenance": {"model": "somewhere.Net", "mode": "train"},
    }
    return fg.WatchedTraining(**{**given, **changes})


def page(seen: fg.WatchedTraining, folder: Path) -> str:
    return seen.save(folder / "training.html").read_text("utf-8")


def words(text: str) -> str:
    """What is read on the page."""
    body = re.sub(r"(?s)<(script|style)\b.*?</\1>", " ", text)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).replace("\N{NO-BREAK SPACE}", " ").split())


def test_the_page_has_the_finding_and_the_numbers(tmp_path: Path) -> None:
    seen = sample(names=())
    text = page(seen, tmp_path)
    said = words(text)
    assert "Training of Net" in said
    assert "Absorbed as of step 200" in said or "absorbed as of step 200" in said
    assert "The starting bias, 90 % of all guesses for class 1, was absorbed at step 63." in said
    assert "Evaluated before absorption The model was evaluated at steps 2, 5" in said
    assert "All looks 11 looks" in said
    assert "Notes A note." in said
    assert "0.8 % of the training's time" in said
    assert "This file is complete: it loads nothing." in said
    assert not re.search(r'(src|href)="http', text)
    spec = json.loads(re.search(r'(?s)<script type="application/json" class="spec"[^>]*>(.*?)</script>', text)[1])  # pyright: ignore[reportOptionalSubscript]
    title = spec["title"]["text"][0].replace("\N{NO-BREAK SPACE}", " ")
    assert title.startswith("Class 1: 90 % of the guesses at first, 34 % at last")


def test_users_texts_are_escaped(tmp_path: Path) -> None:
    text = page(sample(notes=(NASTY,)), tmp_path)
    assert "</script><b>cat" not in text
    assert "cat &amp;" in text


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"labels": None, "looks": looks([0, 10, 100], labelled=False)}, "Absorbed"),
        ({"looks": looks([300, 310, 320])}, "so the starting bias is not known"),
        ({"looks": looks([0, 10, 20], lost=(20,))}, "NaN or Inf from step 20 on"),
        ({"looks": looks([0], lost=(0,))}, "NaN or Inf already"),
        ({"looks": looks([0])}, "the network starts with 90 % of all guesses"),
        ({"looks": ()}, "nothing was looked at yet"),
        ({"looks": looks([0, 5, 10])}, "is not absorbed at step 10: the largest class still gets"),
        ({"level": 0.95, "early": ()}, "hardly any bias to absorb"),
        ({"prediction": LazyPrediction(why="no reason")}, "Not predicted: no reason."),
    ],
)
def test_every_kind_of_training_has_a_page(changes: dict[str, Any], says: str, tmp_path: Path) -> None:
    seen = sample(**changes)
    said = words(page(seen, tmp_path))
    assert says.lower() in said.lower()
    assert "nan %" not in said
    for text in (str(seen), seen._repr_html_(), repr(seen), json.dumps(seen.to_dict(), allow_nan=False)):
        assert text


def test_many_classes_are_cut_short(tmp_path: Path) -> None:
    seen = sample(classes=80, labels=np.arange(320) % 80, looks=looks([0, 10, 100], 80), names=())
    said = words(page(seen, tmp_path))
    assert "… and 30 more, less guessed at the start." in said
    spec = watch_chart(seen).to_dict(validate=False)
    assert len(json.dumps(spec)) < 30_000  # no line for each of them


def test_only_html_is_written(tmp_path: Path) -> None:
    with pytest.raises(fg.InvalidInput, match=r"ends in \.html"):
        sample().save(tmp_path / "training.pdf")
    with pytest.raises(fg.InvalidInput, match="a training that was looked at"):
        fg.figures.watch_chart(sample(looks=()))


def test_text_form() -> None:
    assert str(sample(names=())).splitlines()[:3] == [
        "Watched training (11 looks, 300 points, 3 classes)",
        "  finding                      the starting bias, 90 % of all guesses for class 1, was absorbed at",
        "                               step 63",
    ]


def test_a_browser_draws_it_without_asking_for_anything(browser: Any, tmp_path: Path) -> None:
    page(sample(), tmp_path)
    for scheme in ("light", "dark"):
        seen = browser.open(tmp_path / "training.html", scheme=scheme)
        assert seen.errors == []
        assert len(seen.requests) == 1  # the file itself
        assert browser.run("document.documentElement.dataset.charts") == "drawn"
        assert browser.run("document.documentElement.scrollWidth <= window.innerWidth")
