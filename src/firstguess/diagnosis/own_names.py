"""What a model and its data are called on the page: by the user's own names, never "Sequential" or "list"."""

from __future__ import annotations

import functools
import sys
from typing import Any

from torch import nn

from firstguess.data import Data
from firstguess.network.network import Network

_OURS = ("firstguess", "torch", "contextlib", "functools")  # packages whose names are not the user's
_LIBRARIES = ("torch", "builtins", "numpy", "pandas", "datasets", "functools", "collections")


def model_name(what: object) -> str:
    """A description's own text; the name of a class of the user's, or of a function; else of the caller's variable.

    >>> model_name("dense > relu > dense"), model_name(nn.Sequential)
    ('dense > relu > dense', 'Sequential')
    >>> model_name(nn.Sequential(nn.Linear(3, 2)))
    'model (nn.Sequential)'
    """
    if isinstance(what, (str, Network)):
        return str(what)
    if isinstance(what, functools.partial):
        what = what.func
    name = str(getattr(what, "__name__", ""))  # of a class or a function
    if name and name != "<lambda>":
        return name
    kind = type(what)
    if isinstance(what, nn.Module) and not _is_from(kind, _LIBRARIES):
        return kind.__name__
    own = variable(what)
    if own:
        return own
    return f"model (nn.{kind.__name__})" if isinstance(what, nn.Module) else "model"


def data_name(data: object) -> str:
    """The name that data have; of a loader that of its data set; else of the caller's variable.

    >>> data_name("digits"), data_name([[1.0, 2.0]])
    ('digits', 'your data')
    """
    if isinstance(data, str):
        return data
    if isinstance(data, Data) and data.name != "data":
        return data.name
    inner: Any = getattr(data, "dataset", data)  # of a DataLoader
    if not _is_from(type(inner), _LIBRARIES) and not isinstance(inner, Data):
        return type(inner).__name__
    own = variable(data) or variable(inner)
    if not own and isinstance(data, (tuple, list)) and data:
        own = variable(data[0])  # (x, y), written in the call
    return own or "your data"


def variable(value: object) -> str:
    """The name of the variable in the first frame that is not ours, if this very object has one there.

    >>> variable(object())
    ''
    """
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]  # what `inspect.currentframe` is on CPython
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] in _OURS:
        frame = frame.f_back
    if frame is None:
        return ""
    return next((name for name, seen in frame.f_locals.items() if seen is value and _is_own(name)), "")


def _is_from(kind: type, packages: tuple[str, ...]) -> bool:
    return kind.__module__.partition(".")[0] in packages


def _is_own(name: str) -> bool:
    """Not `_` and `_12` of a notebook, nor what a test's assertions are rewritten to."""
    return name.isidentifier() and not name.startswith("_")
