"""Figures of logits: what they draw is where the points are; their titles tell what was found."""

from __future__ import annotations

import math

import numpy as np
import pytest
from charts import rows, svg_text

import firstguess as fg
from firstguess.data import blob
from firstguess.ensemble.measurement import Logits
from firstguess.show.charts import logits_chart, logits_film, save
from firstguess.show.charts.logits import FAVOURED, OTHER, RIVAL, View


def cloud(shift: float, n: int = 400, classes: int = 2, seed: int = 0) -> Logits:
    """Class 1 is ahead by `shift` spreads of the margin."""
    values = np.random.default_rng(seed).standard_normal((n, classes))
    values[:, 1] += math.sqrt(2) * shift
    return Logits(values)


def test_distances_in_the_plane_are_margins() -> None:
    logits = cloud(1.5)
    view = View.of(logits, logits.favoured, logits.rival)
    away = (view.y - view.x) / math.sqrt(2)  # from the diagonal, with sign
    np.testing.assert_allclose(away, logits.margin / logits.margin_spread)
    assert view.center * math.sqrt(2) == pytest.approx(logits.distance)
    assert view.x.mean() == pytest.approx(-view.center)
    assert view.y.mean() == pytest.approx(view.center)


def test_even_beside_biased() -> None:
    even, biased = cloud(0.0), cloud(2.0)
    chart = logits_chart({"even start": even, "biased start": biased})
    said = svg_text(chart).replace("\N{NO-BREAK SPACE}", " ")
    for logits in (even, biased):
        assert f"{100 * logits.shares.max():.0f} %" in said
        assert f"{logits.distance:.2f}" in said or f"{logits.distance:.1f}" in said
    assert "Bias is a cloud that misses the boundary" in said
    assert "Logit of class 0, in spreads" in said
    drawn = [row for row in rows(chart) if row.get("ink") == "#0072B2" and "to" not in row]
    assert len(drawn) == (even.guesses == even.favoured).sum() + (biased.guesses == biased.favoured).sum()
    bars = [row for row in rows(chart) if "to" in row]
    assert sum(row["y"] * (row["to"] - row["x"]) for row in bars) == pytest.approx(2)  # two densities


def test_titles_tell_what_was_found() -> None:
    alike = svg_text(logits_chart({"a": cloud(1.0), "b": cloud(1.0)}))
    assert "lie alike" in alike
    skewed = Logits(np.stack([np.zeros(200), np.where(np.arange(200) < 30, -20.0, 1.0 + np.arange(200) / 200)], 1))
    assert "not quite Gaussian" in svg_text(logits_chart(skewed))
    assert "behind the boundary" in svg_text(logits_chart(skewed))
    assert "mine" in svg_text(logits_chart(cloud(1.0), title="mine"))


def test_measurements_and_many_classes(tmp_path) -> None:
    m = fg.measure("dense(weight_var=2) > relu > dense", blob(60, 8), inits=9, width=20, classes=4)
    chart = logits_chart(m)
    share = f"{100 * m.logits.shares.max():.0f} %"
    said = svg_text(chart).replace("\N{NO-BREAK SPACE}", " ")
    assert share in said
    assert "strongest other class" in said
    assert "as another" in said
    assert save(chart, tmp_path / "logits.png").stat().st_size > 10_000
    with pytest.raises(fg.InvalidInput, match="at least one network"):
        logits_chart({})


def frames(order: str) -> tuple[dict[int, np.ndarray], np.ndarray]:
    """A cloud that first shifts to the boundary and then turns, or the other way round."""
    rng = np.random.default_rng(0)
    y = np.arange(300) % 2
    noise = rng.standard_normal((300, 2))
    film = {}
    for i, step in enumerate([0, 1, 3, 10, 30, 100, 300]):
        early, late = max(0.0, 1 - i / 3), max(0.0, (i - 3) / 3)
        away, known = (early, late) if order == "translation" else (1 - late, 1 - early)
        film[step] = noise + np.outer(2 * y - 1, [-1.5 * known, 1.5 * known]) + [0.0, 3 * away]
    return film, y


def test_the_film_says_which_came_first() -> None:
    film, y = frames("translation")
    said = svg_text(logits_film(film, y))
    assert "First translation, then rotation" in said
    assert "by step 3," in said
    assert "step 300" in said
    other, y = frames("rotation")
    assert "Rotation before translation" in svg_text(logits_film(other, y))
    still = {step: film[0] for step in (0, 5, 9)}
    assert "stays away" in svg_text(logits_film(still, y))
    assert "Rotation" not in svg_text(logits_film(film))  # without labels


def test_the_film_takes_what_there_is() -> None:
    film, y = frames("translation")
    one = logits_film(film, y, at=[0, 300])
    same = logits_film(((step, Logits(values)) for step, values in reversed(film.items())), y, at=[300, 0])
    assert one.to_dict() == same.to_dict()
    curve = [row for row in rows(one) if "shown" in row]
    assert sorted({row["step"] for row in curve}) == list(film)
    start = Logits(film[0])
    assert curve[0]["y"] == pytest.approx(start.distance)
    for bad, text in (({0: film[0]}, "two steps"), ({0: film[0], 1: film[1][:5]}, "same points")):
        with pytest.raises(fg.InvalidInput, match=text):
            logits_film(bad)
    with pytest.raises(fg.InvalidInput, match="steps of the film"):
        logits_film(film, at=[2])


@pytest.mark.parametrize(("classes", "other"), [(2, RIVAL), (3, OTHER)])
def test_a_negative_margin_has_the_rivals_colour_only_where_there_is_one(classes: int, other: str) -> None:
    """Of several classes those points are of any of the others."""
    bars = [row for row in rows(logits_chart({"it": cloud(0.5, classes=classes)})) if "zero" in row]
    assert {row["ink"] for row in bars if row["x"] + row["to"] < 0} == {other}
    assert {row["ink"] for row in bars if row["x"] + row["to"] > 0} == {FAVOURED}
