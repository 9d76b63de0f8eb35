"""Frozen dataclasses as records: quick copies with some fields changed, plain values and back; and their charts."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import numpy as np

from firstguess.base.text import plain

if TYPE_CHECKING:
    import altair as alt

    Chart: TypeAlias = alt.Chart | alt.LayerChart | alt.HConcatChart | alt.VConcatChart

_T = TypeVar("_T")


def changed(record: _T, **values: Any) -> _T:
    """A copy of a frozen dataclass without slots, with other values; `dataclasses.replace` at a fifth of its time.

    Nothing is checked: `__post_init__` is not called.
    """
    made = object.__new__(type(record))
    made.__dict__.update(record.__dict__)
    made.__dict__.update(values)
    return made


def to_dict(record: Any, **more: Any) -> dict[str, Any]:
    """The fields of a dataclass, and `more` of the same kind, as values that strict JSON can hold.

    Arrays and tuples become lists, records dicts (by their own `to_dict` where they have one), inf and nan text.
    """
    values = {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
    return {name: plain(_listed(value)) for name, value in (values | more).items()}


def _listed(value: Any) -> Any:
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if dataclasses.is_dataclass(value):
        return to_dict(value)
    if isinstance(value, np.ndarray | np.generic):
        return cast(Any, value).tolist()
    if isinstance(value, dict):
        return {key: _listed(one) for key, one in cast(dict[Any, Any], value).items()}
    if isinstance(value, list | tuple):
        return [_listed(one) for one in cast(list[Any], value)]
    return value


def from_dict(kind: type[_T], data: Mapping[str, Any], **read: Any) -> _T:
    """The dataclass of `to_dict`, by the annotations of its fields: floats, arrays, tuples; `read` has what is more.

    Fields that `data` lacks get their defaults; names that are no fields (what `to_dict` added) are left out.
    """
    fields = (f for f in dataclasses.fields(cast(Any, kind)) if f.init and f.name in data and f.name not in read)
    return kind(**{f.name: _value(data[f.name], str(f.type)) for f in fields}, **read)


def _value(value: Any, annotation: str) -> Any:
    if value is None:
        return None
    if annotation.startswith("float"):
        return float(value)
    if annotation.startswith("Array"):
        return np.array(value, dtype=np.float64)
    if annotation.startswith("NDArray[np.str_]"):
        return np.array(value, dtype=np.str_)
    return _tuples(value) if annotation.startswith("tuple") else value


def _tuples(value: Any) -> Any:
    return tuple(_tuples(one) for one in cast(list[Any], value)) if isinstance(value, list) else value


# --------------------------------------------------------------------------------------------------------------
# Results that draw themselves. What shows results stands above them, so it is looked up by name, when it is needed.


def room() -> Any:
    """`firstguess.show.results`: this is the one place that looks up to what shows results."""
    return importlib.import_module("firstguess.show.results")


class Shown:
    """A result with a chart of its own; in a notebook, the chart above its numbers."""

    __slots__ = ()

    def plot(self, what: str | None = None, *, title: str | None = None) -> Chart:
        """The chart of this result, an altair chart. `what` names another one where there are several.

        An unknown name ends in an error that lists them; `fg.figures` has the charts that show several results side by
        side, and `fg.figures.save(chart, "figure.png")` writes one.

        >>> import firstguess as fg
        >>> fg.predict(fg.mlp(depth=3)).plot("pie")
        Traceback (most recent call last):
        ...
        firstguess.InvalidInput: Expected one of guesses, depth, but got 'pie', at Prediction.plot. Try: plot("guesses")
        """
        return room().chart(self, what, title)

    def _repr_html_(self) -> str:
        return room().html(self)
