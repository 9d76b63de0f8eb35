"""Rows as one Arrow table: configuration first, results behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

TASK, SECONDS = "task", "seconds"  # the two columns that every table has at its end
_FOUND = "_found"  # behind the name of a result that has the name of a setting, and another value


def joined(shown: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration and its result as one row.

    >>> joined({"depth": 3, "seed": 1}, {"seed": 1, "depth": 4.0, "gamma": 0.5})
    {'depth': 3, 'seed': 1, 'depth_found': 4.0, 'gamma': 0.5}
    """
    found = dict(shown)
    for name, value in row.items():
        if name not in shown:
            found[name] = value
        elif not (np.ndim(value) == 0 and value == shown[name]):
            found[name + _FOUND] = value
    return found


def table_of(rows: Sequence[Mapping[str, Any]]) -> Any:
    """A `pyarrow.Table` of rows that may differ in their names: what a row lacks is null.

    >>> t = table_of([{"depth": 1, "norm": None}, {"depth": 2.5, "norm": "rmsnorm", "shares": np.array([0.5, 0.5])}])
    >>> t.column_names, t["depth"].to_pylist(), t["shares"].to_pylist()
    (['depth', 'norm', 'shares'], [1.0, 2.5], [None, [0.5, 0.5]])
    """
    import pyarrow as pa

    names = dict.fromkeys(name for row in rows for name in row)
    last = [name for name in (SECONDS, TASK) if name in names]
    ordered = [name for name in names if name not in last] + last
    return pa.table({name: _column([row.get(name) for row in rows]) for name in ordered})


def _column(values: list[Any]) -> Any:
    import pyarrow as pa

    plain = [value.tolist() if isinstance(value, np.ndarray) else value for value in values]
    kinds = {type(value) for value in plain} - {type(None)}
    if kinds == {int, float}:
        plain = [None if value is None else float(value) for value in plain]
    elif len(kinds) > 1:  # a setting that is a word here and a number there
        plain = [None if value is None else str(value) for value in plain]
    elif kinds == {list}:
        return pa.array(plain, _list_type(plain))
    return pa.array(plain)


def _list_type(values: list[Any]) -> Any:
    """Of arrays as lists: the least that holds them all, since some may be whole numbers and others not."""
    import pyarrow as pa

    arrays = [np.asarray(value) for value in values if value is not None and np.size(value)]
    kind: Any = pa.float64()
    if arrays and all(array.dtype.kind == "U" for array in arrays):
        kind = pa.string()
    elif arrays and all(array.dtype.kind in "iu" for array in arrays):
        kind = pa.int64()
    elif arrays and all(array.dtype.kind == "b" for array in arrays):
        kind = pa.bool_()
    for _ in range(max((np.ndim(value) for value in values if value is not None), default=1)):
        kind = pa.list_(kind)
    return kind
