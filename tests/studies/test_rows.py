"""Results as rows, rows as a table, configurations."""

from __future__ import annotations

import math

import numpy as np
import pytest

import firstguess as fg
from firstguess.studies.store import joined, table_of
from firstguess.studies.study import each_of
from firstguess.studies.tasks import row_of


def test_a_predictions_row_has_its_numbers() -> None:
    p = fg.predict(fg.mlp(depth=3))
    row = row_of(p)
    assert row["gamma"] == p.gamma[-1]
    assert row["expected_max"] == p.guesses.expected_max()
    assert row["verdict"] == p.verdict
    assert row["gradient_growth"] == p.gradient_growth[-1]
    np.testing.assert_array_equal(row["gamma_by_layer"], p.gamma)


def test_results_in_a_dict_have_its_key_in_front() -> None:
    row = row_of({"a": fg.predict(fg.mlp(depth=1)), "lr": np.float32(0.5), "none": None})
    assert row["a.gamma"] == fg.predict(fg.mlp(depth=1)).gamma[-1]
    assert row["lr"] == 0.5
    assert "none" not in row


@pytest.mark.parametrize("result", [None, object(), {}, {"a": None}, {"a": object()}, {"a": 2**70}, [object()]])
def test_what_has_no_numbers_is_refused(result: object) -> None:
    with pytest.raises(fg.InvalidInput, match="a result with numbers"):
        row_of(result)


def test_a_table_holds_rows_that_differ() -> None:
    rows = [
        {"n": 1, "word": "a", "mixed": 1, "draws": np.array([1, 2]), "flag": True, "task": "x"},
        {"n": 2.5, "mixed": "b", "draws": np.array([0.5]), "deep": np.ones((2, 2)), "none": None, "task": "y"},
    ]
    t = table_of(rows)
    assert t.column_names == ["n", "word", "mixed", "draws", "flag", "deep", "none", "task"]
    assert t["n"].to_pylist() == [1.0, 2.5]
    assert t["mixed"].to_pylist() == ["1", "b"]
    assert t["draws"].to_pylist() == [[1.0, 2.0], [0.5]]
    assert t["deep"].to_pylist() == [None, [[1.0, 1.0], [1.0, 1.0]]]
    assert table_of([]).num_rows == 0


def test_a_result_never_hides_a_setting() -> None:
    assert joined({"seed": 1}, {"seed": 1, "x": 2}) == {"seed": 1, "x": 2}
    assert joined({"seed": 1}, {"seed": 2}) == {"seed": 1, "seed_found": 2}
    found = joined({"g": math.nan}, {"g": np.ones(2)})
    assert found["g_found"].tolist() == [1.0, 1.0]


def test_a_grid_is_a_sequence_of_all_combinations() -> None:
    g = fg.grid(depth=[1, 5], norm=[None, "layernorm", "rmsnorm"], seed=range(2))
    every = list(g)
    assert len(g) == len(every) == 12
    assert [g[i] for i in range(12)] == every
    assert g[-1] == {"depth": 5, "norm": "rmsnorm", "seed": 1}
    assert g[2:4] == every[2:4]
    assert len({tuple(p.values()) for p in every}) == 12
    more = [{"depth": 9}]
    assert g + more == [*every, *more]
    assert eval(repr(g), {"fg": fg}) is not None
    assert "12 configurations" in str(g)
    with pytest.raises(IndexError):
        g[12]


@pytest.mark.parametrize("axes", [{}, {"depth": []}, {"depth": 3}, {"norm": "layernorm"}])
def test_an_axis_is_a_list(axes: dict[str, object]) -> None:
    with pytest.raises(fg.InvalidInput):
        fg.grid(**axes)  # type: ignore[arg-type]


def test_configurations_come_from_lists_and_networks() -> None:
    nets = {"plain": fg.mlp(depth=1), "normed": fg.mlp(depth=1, norm="layernorm")}
    assert [c.shown for c in each_of(nets)] == [{"network": "plain"}, {"network": "normed"}]
    assert [c.given for c in each_of(nets)] == list(nets.values())
    listed = list(each_of([{"act": fg.activation("relu"), "widths": (1, 2), "f": len}]))
    assert listed[0].shown["widths"] == "1, 2"
    assert all(isinstance(value, str) for value in listed[0].shown.values())
    named = list(each_of({"a": {"depth": 3}}))
    assert named[0].shown == {"name": "a", "depth": 3}
    for bad in ("relu", 3, [3]):
        with pytest.raises(fg.InvalidInput, match="a grid"):
            list(each_of(bad))
