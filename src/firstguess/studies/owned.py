"""Which code is the user's, and may change from one run to the next; what of it a piece of code refers to."""

from __future__ import annotations

import dis
import functools
import hashlib
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType

_PACKAGE = Path(__file__).resolve().parents[1]


@functools.lru_cache(maxsize=1000)
def own(module: str | None) -> bool:
    """Whether it is the user's: not of Python, not of firstguess, and not installed."""
    found = sys.modules.get(module or "__main__")
    file = getattr(found, "__file__", None)
    if file is None:
        return module in (None, "__main__") or found is None
    return _theirs(file)


def _theirs(file: str) -> bool:
    path = Path(file).resolve()
    others = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return not any(folder in path.parents for folder in (_PACKAGE, *others))


def texts(module: str) -> list[list[str]]:
    """Name and hash of the source of a module of the user's, and of all such modules that it imports."""
    found: dict[str, str] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in found or name == "__main__" or name not in sys.modules or not own(name):
            continue
        file = Path(getattr(sys.modules[name], "__file__", None) or "")
        found[name] = _hash(file) if file.is_file() else ""
        for value in list(vars(sys.modules[name]).values()):
            other = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            if isinstance(other, str):
                waiting.append(other)
    return [[name, found[name]] for name in sorted(found)]


def globals_of(code: CodeType) -> Iterator[str]:
    """Names of what stands around a function and is used in it, or in functions inside it."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield str(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from globals_of(constant)


def imported(code: CodeType, package: str) -> list[list[str]]:
    """Name and hash of the source of the user's modules that a function imports when it runs."""
    found: dict[str, str] = {}
    for name in sorted(set(_imports(code, package))):
        if name in sys.modules:
            found |= {one: text for one, text in texts(name)}
        elif (file := _file(name)) is not None and _theirs(file):
            found[name] = _hash(Path(file))
    return [[name, found[name]] for name in sorted(found)]


def _imports(code: CodeType, package: str) -> Iterator[str]:
    steps = list(dis.get_instructions(code))
    for index, step in enumerate(steps):
        if step.opname != "IMPORT_NAME":
            continue
        level, names = (one.argval for one in steps[index - 2 : index])
        try:
            name = importlib.util.resolve_name("." * level + step.argval, package)
        except (ImportError, TypeError, ValueError):
            continue
        yield name
        yield from (f"{name}.{item}" for item in names or ())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _imports(constant, package)


def _file(module: str) -> str | None:
    """Where a module's source is; nothing is imported for it."""
    if "." in module and module.rpartition(".")[0] not in sys.modules:
        return None
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, AttributeError, ValueError):
        return None
    return None if found is None or not found.has_location else found.origin


def _hash(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:20]
