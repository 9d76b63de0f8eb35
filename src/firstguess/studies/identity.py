"""What a result depends on, as plain data that can be hashed: values, data, and functions with all that they refer to.

Two things with the same identity give the same numbers; the same thing may get another identity (another version of
Python, an object that pickles differently), and is then computed again. What is not seen: code of other packages, and
your own modules that your module imports. `fg.study(version=…)` is for those.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import inspect
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, cast

import numpy as np

from firstguess._version import __version__
from firstguess.base.errors import InvalidInput
from firstguess.data.dataset import Data
from firstguess.network.network import Network

_PACKAGE = Path(__file__).resolve().parents[1]


def identity(value: Any) -> Any:
    """Plain data that says what a value is; JSON of it is the same wherever the value is.

    >>> identity((1, "a", np.float64(2.0)))
    [1, 'a', 2.0]
    >>> identity(np.zeros(3)) == identity(np.zeros(3)) != identity(np.zeros(4))
    True
    """
    return _identity(value, ())


def code_version() -> str:
    """The version of firstguess, and ten digits of a hash of its own source: an edited copy is another version."""
    return f"{__version__}+{_source()}"


@functools.lru_cache(maxsize=1)
def _source() -> str:
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        digest.update(path.relative_to(_PACKAGE).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:10]


def _identity(value: Any, inside: tuple[int, ...]) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value if type(value) in (bool, int, float, str, type(None)) else [type(value).__name__, str(value)]
    if id(value) in inside:
        return ["again", inside.index(id(value))]
    inside = (*inside, id(value))
    if isinstance(value, np.ndarray) and value.dtype != object:
        return ["array", value.dtype.str, list(value.shape), _digest(np.ascontiguousarray(value).tobytes())]
    if isinstance(value, list | tuple | range):
        return [_identity(item, inside) for item in cast("Iterable[Any]", value)]
    if isinstance(value, Mapping):
        pairs = [[str(k), _identity(v, inside)] for k, v in cast("Mapping[Any, Any]", value).items()]
        return {"mapping": sorted(pairs, key=lambda pair: pair[0])}
    if isinstance(value, Network):
        return ["network", str(value), value.classes]
    if isinstance(value, Data):
        return ["data", value.hash, list(value.class_names or ())]
    return _object(value, inside)


def _object(value: Any, inside: tuple[int, ...]) -> Any:
    if isinstance(value, FunctionType):
        return _function(value, inside)
    if isinstance(value, MethodType):
        return ["method", _identity(value.__func__, inside), _identity(value.__self__, inside)]
    if isinstance(value, functools.partial):
        parts = (value.func, value.args, value.keywords)
        return ["partial", *(_identity(part, inside) for part in parts)]
    if isinstance(value, CodeType):
        return _code(value, inside)
    if isinstance(value, ModuleType):
        return ["module", value.__name__, _text_of(value.__name__)]
    if inspect.isbuiltin(value):
        return ["builtin", f"{value.__module__}.{value.__qualname__}"]
    if isinstance(value, type):
        named = [f"{value.__module__}.{value.__qualname__}"]
        if value.__module__ == "__main__":
            return ["class", *named, _pickled(value)]
        return ["class", *named, _text_of(value.__module__)]
    return ["object", f"{type(value).__module__}.{type(value).__qualname__}", _pickled(value)]


def _function(value: FunctionType, inside: tuple[int, ...]) -> Any:
    if not _own(value.__module__) and vars(sys.modules[value.__module__]) is value.__globals__:
        return ["function", f"{value.__module__}.{value.__qualname__}"]
    cells = [cell.cell_contents for cell in value.__closure__ or ()]
    names = sorted(set(_globals_of(value.__code__)))
    world = {name: _identity(value.__globals__[name], inside) for name in names if name in value.__globals__}
    parts = (value.__defaults__, value.__kwdefaults__, cells)
    return ["function", _code(value.__code__, inside), *(_identity(part, inside) for part in parts), world]


def _code(code: CodeType, inside: tuple[int, ...]) -> Any:
    """What is executed: no names of files and no numbers of lines, so that a function may be moved."""
    constants = [_identity(sorted(c, key=repr) if isinstance(c, frozenset) else c, inside) for c in code.co_consts]
    named = [list(names) for names in (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)]
    called = [code.co_argcount, code.co_kwonlyargcount, code.co_posonlyargcount, code.co_flags]
    return ["code", sys.implementation.cache_tag, _digest(code.co_code), constants, *named, called]


def _globals_of(code: CodeType) -> Iterable[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield str(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals_of(constant)


@functools.lru_cache(maxsize=1000)
def _own(module: str | None) -> bool:
    """Whether it is the user's code, which may change from one run to the next."""
    found = sys.modules.get(module or "__main__")
    file = getattr(found, "__file__", None)
    if file is None:
        return module in (None, "__main__") or found is None
    path = Path(file).resolve()
    others = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return _PACKAGE not in path.parents and not any(folder in path.parents for folder in others)


def _text_of(module: str) -> str:
    file = getattr(sys.modules.get(module), "__file__", None)
    return _digest(Path(file).read_bytes()) if file is not None and _own(module) and Path(file).is_file() else ""


def _pickled(value: Any) -> str:
    import cloudpickle

    try:
        return _digest(cloudpickle.dumps(value))
    except Exception as error:  # what refuses to be pickled raises anything
        raise not_sent(error) from error


def not_sent(error: Exception) -> InvalidInput:
    """The error for a function, or something that it refers to, that cannot go to another process."""
    lines = str(error).strip().splitlines()
    return InvalidInput(
        "a function that can be sent to another process, with all that it refers to",
        got=f"{type(error).__name__}: {lines[0] if lines else 'no reason given'}",
        where="study(function)",
        hint="make files, locks, loaders and generators inside the function",
    )


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:20]
