"""Addresses: what changes numbers changes them, what does not leaves them."""

from __future__ import annotations

import functools
import json
from typing import Any

import numpy as np
import pytest

import firstguess as fg
from firstguess.studies.identity import code_version, identity

SCALE = 2.0
TABLE = np.arange(3.0)


def scaled(x: float) -> float:
    return SCALE * x + helper(x)


def helper(x: float) -> float:
    return x + float(TABLE.sum())


def test_values_that_differ_have_other_addresses() -> None:
    values: list[Any] = [
        None, 0, False, 0.0, "0", [], [0], {"a": 0}, {"a": 1}, np.zeros(2), np.zeros(3), np.zeros(2, np.float32),
        np.zeros((2, 1)), fg.mlp(depth=1), fg.mlp(depth=2), fg.Network(fg.mlp(depth=1).layers, 10), len, np.sum,
        lambda x: x, lambda x: x + 1, lambda x, y=1: x, fg.data.Data(np.zeros((2, 2))), fg.data.Data(np.ones((2, 2))),
        fg.predict, fg.mlp, {1, 2}, functools.partial(scaled, 1), functools.partial(scaled, 2),
    ]  # fmt: skip
    texts = [json.dumps(identity(value)) for value in values]
    assert len(set(texts)) == len(values)


def test_the_same_value_made_twice_has_one_address() -> None:
    def make(k: int) -> Any:
        return lambda p: k * p["depth"]

    assert identity(make(2)) == identity(make(2)) != identity(make(3))
    assert identity(np.arange(4)) == identity(np.arange(4))
    assert identity({"b": 1, "a": [1, 2]}) == identity({"a": (1, 2), "b": 1})
    assert identity(np.float64(0.5)) == identity(0.5)


def test_what_a_function_refers_to_is_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = identity(scaled)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    other = identity(scaled)
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    assert identity(scaled) == before != other
    monkeypatch.setitem(globals(), "TABLE", np.arange(4.0))  # two functions away
    assert identity(scaled) != before


def test_functions_without_a_module_are_told_apart() -> None:
    """What `exec` makes, as notebooks and doctests do, calls itself a function of `builtins`."""
    made: list[Any] = []
    for text in ("lambda p: p + 1", "lambda p: p + 2", "lambda p: p + 1"):
        scope: dict[str, Any] = {}
        exec(f"f = {text}", scope)
        made.append(identity(scope["f"]))
    assert made[0] == made[2] != made[1]


def test_a_function_that_calls_itself_has_an_address() -> None:
    def factorial(n: int) -> int:
        return 1 if n < 2 else n * factorial(n - 1)

    assert identity(factorial) == identity(factorial)


def test_what_cannot_be_sent_is_one_line() -> None:
    generator = (i for i in range(3))
    with pytest.raises(fg.InvalidInput, match="can be sent to another process"):
        identity(lambda p: next(generator))


def test_the_code_version_names_source() -> None:
    version, _, digits = code_version().partition("+")
    assert version == fg.__version__
    assert len(digits) == 10
