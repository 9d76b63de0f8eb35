"""Records: plain values and back, and quick copies."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

import firstguess as fg
from firstguess.base.gaussian import Array
from firstguess.base.record import changed, from_dict, to_dict
from firstguess.theory.data_bias import DataBias


@dataclass(frozen=True, eq=False)
class Kept:
    name: str
    size: float
    values: Array
    pairs: tuple[tuple[int, int], ...]
    missing: float | None = None
    words: tuple[str, ...] = field(default=())


def test_there_and_back_through_strict_json() -> None:
    one = Kept("a", math.inf, np.array([[1.0, math.nan]]), ((1, 2), (3, 4)), words=("x",))
    data = json.loads(json.dumps(to_dict(one, derived=7.0), allow_nan=False))
    assert data["size"] == "inf"
    assert data["derived"] == 7.0
    found = from_dict(Kept, data)
    assert (found.name, found.size, found.pairs, found.missing, found.words) == ("a", math.inf, one.pairs, None, ("x",))
    np.testing.assert_array_equal(found.values, one.values)
    assert from_dict(Kept, data, name="b").name == "b"


def test_what_is_missing_has_its_default_or_is_an_error() -> None:
    assert from_dict(Kept, {"name": "a", "size": 1, "values": [], "pairs": []}).words == ()
    with pytest.raises(TypeError, match="pairs"):
        from_dict(Kept, {"name": "a", "size": 1, "values": []})


def test_quick_copies_are_copies() -> None:
    one = Kept("a", 1.0, np.zeros(2), ())
    other = changed(one, size=2.0)
    assert (one.size, other.size, other.name) == (1.0, 2.0, "a")
    assert vars(other) == vars(replace(one, size=2.0))


def test_results_come_back() -> None:
    point = fg.fixed_point("relu", weight_var=2.0, bias_var=0.0)
    assert type(point).from_dict(json.loads(json.dumps(point.to_dict()))) == point
    diagram = fg.phase_diagram("tanh", weight_vars=[0.5, 1.5], bias_vars=[0.0, 0.1])
    back = type(diagram).from_dict(json.loads(json.dumps(diagram.to_dict(), allow_nan=False)))
    np.testing.assert_array_equal(back.gamma, diagram.gamma)
    assert back.phase.tolist() == diagram.phase.tolist()
    assert back.fine.shape == diagram.fine.shape
    bias = fg.data_bias(np.random.default_rng(0).normal(size=(30, 4)) + 1.0)
    assert DataBias.from_dict(json.loads(json.dumps(bias.to_dict()))) == bias
    prediction = fg.predict("dense > relu > dense", width=50)
    again = fg.Prediction.from_dict(json.loads(json.dumps(prediction.to_dict(), allow_nan=False)))
    assert (again.layers, again.finite_size) == (prediction.layers, prediction.finite_size)
