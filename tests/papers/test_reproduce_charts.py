"""The generic charts of `reproduce`: what is drawn is what was given."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from charts import rows
from firstguess_papers.charts import lines
from firstguess_papers.items import Entry, Item
from firstguess_papers.judging import Number
from firstguess_papers.running import Run

from firstguess.base.errors import InvalidInput
from firstguess.show import charts as figures
from firstguess.show.charts.lines import Panel, Series
from firstguess.studies.store import Store


def test_panels_draw_bars_and_steps(tmp_path: Any) -> None:
    panels = [
        Panel("one", [0, 0.5, 1], [1.5, 0.5], {"theory": [1.0, 1.0]}, note="γ = 1"),
        Panel("two", [0, 0.5, 1], None, {"other": [0.25, 1.75]}),
    ]
    chart = figures.panels_chart(panels, title="t", subtitle=["s"])
    found = rows(chart)
    assert {row["exact"] for row in found if "exact" in row} == {1.5, 0.5}
    assert sorted(row["density"] for row in found if "order" in row) == [0, 0, 0, 0, 0.25, 0.25, 1, 1, 1, 1, 1.75, 1.75]
    assert {row["name"] for row in found if "name" in row} == {"measured", "theory", "other"}
    figures.save(chart, tmp_path / "panels.svg")
    assert "γ = 1" in (tmp_path / "panels.svg").read_text(encoding="utf-8")


def test_peaks_are_cut_and_not_squeezed() -> None:
    chart = figures.panels_chart([Panel("one", [0, 0.5, 1], [100.0, 0.5], top=2.0)], title="t")
    assert max(row["density"] for row in rows(chart) if "density" in row) == 8.0


def test_panels_refuse_what_does_not_fit() -> None:
    with pytest.raises(InvalidInput, match="at least one panel"):
        figures.panels_chart([], title="t")
    with pytest.raises(InvalidInput, match="2 bins"):
        figures.panels_chart([Panel("one", [0, 0.5, 1], [1.0])], title="t")


def test_lines_have_error_bars_of_two_standard_errors(tmp_path: Any) -> None:
    series = [Series("a", [1, 10, 100], [1.0, 2.0, 3.0], [0.1, 0.2, 0.1]), Series("b", [1, 100], [2, 2], mark="dashed")]
    chart = figures.lines_chart(series, title="t", x_title="x", y_title="y", x_scale="log", rules={"limit": 2.5})
    bars = {(row["low"], row["high"]) for row in rows(chart) if row.get("series") == "a"}
    assert {(round(a, 6), round(b, 6)) for a, b in bars} == {(0.8, 1.2), (1.6, 2.4), (2.8, 3.2)}
    figures.save(chart, tmp_path / "lines.svg")
    assert "limit" in (tmp_path / "lines.svg").read_text(encoding="utf-8")


def test_a_logarithmic_axis_leaves_out_what_it_cannot_show() -> None:
    series = [Series("a", [1, 2, 3], [0.0, -1.0, 5.0], [1.0, 1.0, 9.0]), Series("b", [1], [math.nan])]
    chart = figures.lines_chart({"h": series}, title="t", x_title="x", y_title="y", y_scale="log")
    shown = [row for row in rows(chart) if "series" in row]
    assert {row["y"] for row in shown} == {5.0}
    assert all(row["low"] > 0 for row in shown)


def test_lines_refuse_what_does_not_fit() -> None:
    with pytest.raises(InvalidInput, match="at least one series"):
        figures.lines_chart([], title="t", x_title="x", y_title="y")
    with pytest.raises(InvalidInput, match="as many"):
        figures.lines_chart([Series("a", [1, 2], [1])], title="t", x_title="x", y_title="y")


def test_charts_of_tables_have_their_numbers_and_the_items_words(tmp_path: Path) -> None:
    table = [{"name": "ReLU", "depth": k, "value": Number(0.5 * k, 0.1), "theory": 0.4 * k} for k in (1, 2)]

    toy = Item(
        "beyond/toy", "A toy", "§4", claims=["I4"], about="{coins} coins.", quick=dict(coins=2), full=dict(coins=9),
        seconds=(1, 2), judge=lambda _: [Entry("I4", "s", "m", "holds")], tables=lambda _: {"toy": table},
        charts=lambda c: {"toy": lines(c.tables["toy"], "depth")},
    )  # fmt: skip

    outcome = toy.outcome(Run(toy, True, Store(tmp_path)))
    assert outcome.tables["toy"] == {
        "name": ["ReLU", "ReLU"], "depth": [1, 2], "value": [0.5, 1.0], "error": [0.1, 0.1], "theory": [0.4, 0.8]
    }  # fmt: skip
    drawn = outcome.charts["toy"].to_dict()
    assert drawn["title"]["text"] == ["A toy"]
    assert drawn["title"]["subtitle"][0] == "2 coins."
    found = {row["y"] for row in rows(outcome.charts["toy"]) if "y" in row}
    assert {0.5, 1.0, 0.4, 0.8} <= found
