"""What a study is made of: a grid, a list of configurations, or networks by name."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, overload

import numpy as np

from firstguess.base.errors import InvalidInput
from firstguess.base.files import address
from firstguess.base.text import number, spaced
from firstguess.network.network import Network
from firstguess.studies.identity import identity


@dataclass(frozen=True, eq=False, repr=False)
class Grid(Sequence[dict[str, Any]]):
    """All combinations of some axes, in the order of nested loops; a sequence of dicts that is never held whole."""

    axes: dict[str, tuple[Any, ...]]

    def __len__(self) -> int:
        return math.prod(len(values) for values in self.axes.values())

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        at = range(len(self))[index]
        chosen: dict[str, Any] = {}
        for name, values in reversed(self.axes.items()):
            at, place = divmod(at, len(values))
            chosen[name] = values[place]
        return {name: chosen[name] for name in self.axes}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for values in itertools.product(*self.axes.values()):
            yield dict(zip(self.axes, values, strict=True))

    def __add__(self, other: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        return [*self, *other]

    def __repr__(self) -> str:
        axes = ", ".join(f"{name}={list(values)!r}" for name, values in self.axes.items())
        return f"fg.grid({axes})"

    def __str__(self) -> str:
        width = max(len(name) for name in self.axes)
        lines = [f"Grid ({spaced(len(self))} configurations)"]
        lines += [f"  {name:<{width}}  {', '.join(map(_said, values))}" for name, values in self.axes.items()]
        return "\n".join(lines)


def grid(**axes: Iterable[Any]) -> Grid:
    """All combinations of the values of some axes: what a study goes through.

    >>> print(grid(depth=[1, 5, 20], norm=[None, "layernorm"]))
    Grid (6 configurations)
      depth  1, 5, 20
      norm   none, layernorm
    >>> grid(depth=[1, 5], norm=[None, "layernorm"])[1]
    {'depth': 1, 'norm': 'layernorm'}
    """
    found: dict[str, tuple[Any, ...]] = {}
    for name, values in axes.items():
        if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
            raise InvalidInput(
                "a list of values for each axis", got=f"{name}={values!r}", where="grid", hint=f"{name}=[{values!r}]"
            )
        listed = values.tolist() if isinstance(values, np.ndarray) else values
        found[name] = tuple(cast("Iterable[Any]", listed))
        if not found[name]:
            raise InvalidInput("at least one value for each axis", got=f"{name}=[]", where="grid", hint=f"{name}=[1]")
    if not found:
        raise InvalidInput("at least one axis", got="none", where="grid", hint="fg.grid(depth=[1, 5, 20])")
    return Grid(found)


@dataclass(frozen=True)
class Configuration:
    """What the function gets, and what the table shows of it."""

    given: Any
    shown: dict[str, Any]


def configurations(given: object) -> Iterator[Configuration]:
    """Each configuration of a grid, a list of dicts, a list of networks, or networks (or dicts) by name."""
    if isinstance(given, Mapping):
        for name, value in cast("Mapping[Any, Any]", given).items():
            if isinstance(value, Mapping):
                yield Configuration(value, {"name": str(name), **_columns(cast("Mapping[Any, Any]", value))})
            else:
                yield Configuration(value, {"network": str(name)})
        return
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise _expected(given)
    for value in cast("Iterable[Any]", given):
        if isinstance(value, Mapping):
            yield Configuration(value, _columns(cast("Mapping[Any, Any]", value)))
        elif isinstance(value, Network | str):
            yield Configuration(value, {"network": str(value)})
        else:
            raise _expected(value)


def _expected(got: object) -> InvalidInput:
    return InvalidInput(
        "a grid, a list of dicts, or a dict of networks",
        got=type(got).__name__,
        where="study(configurations)",
        hint="fg.grid(depth=[1, 5, 20])",
    )


def _columns(values: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(name): _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    """A number, a text or None, as a table can hold it."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return ", ".join(_said(item) for item in cast("Iterable[Any]", value))
    return _said(value)


def _said(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, int | float):
        return number(value)
    if isinstance(value, np.ndarray):
        return f"array {value.shape}"
    text = str(value)
    return getattr(value, "__name__", type(value).__name__) if " at 0x" in text else text


def digest(given: Any) -> str:
    """Of all configurations: of a grid by its axes, so that a million take no time."""
    return address(identity(given.axes)) if isinstance(given, Grid) else address(identity(given))
