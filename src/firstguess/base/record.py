"""Frozen dataclasses as records: quick copies with some fields changed, plain values and back; and their charts."""

from __future__ import annotations

import dataclasses
import importlib
import math
import sys
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from itertools import repeat
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, TypeVar, Union, cast, get_args, get_origin

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
    object.__setattr__(made, "__dict__", record.__dict__ | values)
    return made


def to_dict(record: Any, **more: Any) -> dict[str, Any]:
    """The fields of a dataclass, and `more` of the same kind or instead, as values that strict JSON can hold.

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
    if isinstance(value, Mapping):
        return {key: _listed(one) for key, one in cast(Mapping[Any, Any], value).items()}
    if isinstance(value, list | tuple):
        return [_listed(one) for one in cast(list[Any], value)]
    return value.value if isinstance(value, Enum) else value


def from_dict(kind: type[_T], data: Mapping[str, Any], **read: Any) -> _T:
    """The dataclass of `to_dict`, by the annotations of its fields; `read` has what is more.

    Fields that `data` lacks get their defaults; names that are no fields (what `to_dict` added) are left out.
    """
    fields = (f for f in dataclasses.fields(cast(Any, kind)) if f.init and f.name in data and f.name not in read)
    return kind(**{f.name: _value(data[f.name], _annotation(kind, f.name)) for f in fields}, **read)


@lru_cache(maxsize=1024)
def _annotation(kind: type, name: str) -> Any:
    """What a field is said to be, in the names of the module that says so."""
    owner = next(one for one in kind.__mro__ if name in vars(one).get("__annotations__", ()))
    text = owner.__annotations__[name]
    return eval(text, vars(sys.modules[owner.__module__])) if isinstance(text, str) else text  # our own text


def _value(value: Any, kind: Any) -> Any:
    """Plain data as a value of this kind; a float that is not known may be None."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        known = next(one for one in inside if one is not NoneType)
        return None if value is None and NoneType in inside else _value(value, known)
    if origin is tuple:
        kinds = repeat(inside[0]) if inside[-1] is ... else inside
        return tuple(_value(one, each) for one, each in zip(value, kinds, strict=False))
    if origin is np.ndarray:
        return np.array(value, dtype=get_args(inside[1])[0])
    if kind is float:
        return math.nan if value is None else float(value)
    if not isinstance(kind, type) or value is None:
        return value
    if hasattr(kind, "from_dict"):
        return cast(Any, kind).from_dict(value)
    if dataclasses.is_dataclass(kind):
        return from_dict(kind, value)
    return kind(value) if issubclass(kind, Enum) else value


class Record:
    """A dataclass as plain data: its fields and what is named `_also`, without `_apart` and empty `_optional`.

    What is named `_as_text` is there as it prints.
    """

    __slots__ = ()
    _also: ClassVar[tuple[str, ...]] = ()
    _apart: ClassVar[tuple[str, ...]] = ()
    _optional: ClassVar[tuple[str, ...]] = ()
    _as_text: ClassVar[tuple[str, ...]] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with NaN and ∞ as text."""
        own = [f.name for f in dataclasses.fields(cast(Any, self)) if f.name not in self._apart]
        found = {name: plain(_listed(getattr(self, name))) for name in (*own, *self._also)}
        found |= {name: str(getattr(self, name)) for name in self._as_text}
        return {name: value for name, value in found.items() if value or name not in self._optional}


class StoredRecord(Record):
    """A record that can be read back."""

    __slots__ = ()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        return from_dict(cls, data)


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
        >>> fg.predict(fg.mlp(depth=3)).plot("pie")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        firstguess.InvalidInput: Expected one of guesses, depth, support, but got 'pie', at Prediction.plot. ...
        """
        return room().chart(self, what, title)

    def _repr_html_(self) -> str:
        return room().html(self)
