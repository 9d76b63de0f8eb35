"""What a result depends on, as plain data that can be hashed: values, data, and functions with all that they refer to.

Two things with the same identity give the same numbers; the same thing may get another identity (another version of
Python), and is then computed again. Code is followed as far as it is the user's. For firstguess itself the number
`NUMERICS` counts, for the other packages that compute their versions. `fg.study(version=…)` is for what is not seen,
such as files.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import hashlib
import importlib.metadata
import importlib.util
import inspect
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, cast

import numpy as np

from firstguess._version import NUMERICS, __version__
from firstguess.base.errors import InvalidInput
from firstguess.data.dataset import Data
from firstguess.network.network import Network
from firstguess.network.walk import every

# Which code is the user's, and may change from one run to the next; what of it a piece of code refers to.


@functools.lru_cache(maxsize=1000)
def is_users(module: str | None) -> bool:
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
        if name in found or name == "__main__" or name not in sys.modules or not is_users(name):
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


def imported_code(code: CodeType, package: str) -> list[list[str]]:
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


_PACKAGE = Path(__file__).resolve().parents[1]
_COMPUTE = ("numpy", "scipy", "torch")  # another version of these may round the last digit otherwise
_ASIDE = (  # of a class: what says nothing of what it does, or is made from the rest of it
    "__dict__", "__weakref__", "__module__", "__doc__", "__qualname__", "__annotations__", "__firstlineno__",
    "__static_attributes__", "__dataclass_fields__", "__dataclass_params__", "__match_args__", "_abc_impl",
    "__annotate_func__", "__annotations_cache__",
)  # fmt: skip


def identity(value: Any) -> Any:
    """Plain data that says what a value is; JSON of it is the same in every process.

    >>> identity((1, "a", np.float64(2.0)))
    [1, 'a', 2.0]
    >>> identity(np.zeros(3)) == identity(np.zeros(3)) != identity(np.zeros(4))
    True
    """
    if type(value) is dict and all(type(one) in _PLAIN for one in value.values()):  # a configuration of a large grid
        return _mapping(value, None)
    return _Walk().of(value)


def numerics() -> str:
    """What all computed numbers depend on: our arithmetic, by a number raised by hand, and the libraries that compute.

    Not the source: a comment somewhere in the package must not make anybody's study start again.
    """
    return ", ".join([f"numerics {NUMERICS}", *(f"{name} {_version(name)}" for name in _COMPUTE)])


def code_version() -> str:
    """The version of firstguess with that of its numbers: what the driver of a study and its workers must share."""
    return f"{__version__}, {numerics()}"


@functools.cache
def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


_PLAIN = (bool, int, float, str, type(None))
_SAME = (np.float64, np.int64, np.bool_, np.str_)  # as Python's own in every computation


class _Walk:
    """One value and all that it refers to. Functions and classes are said once: they may refer to each other."""

    def __init__(self) -> None:
        self._said: dict[int, int] = {}
        self._alive: list[Any] = []  # what was said keeps its id

    def of(self, value: Any, inside: tuple[int, ...] = ()) -> Any:
        if type(value) in _PLAIN:
            return value
        if isinstance(value, np.generic) and value.dtype != object:
            return value.item() if type(value) in _SAME else ["number", value.dtype.str, repr(value.item())]
        if id(value) in inside:
            return ["again", inside.index(id(value))]
        inside = (*inside, id(value))
        if isinstance(value, np.ndarray) and value.dtype != object:
            return ["array", value.dtype.str, list(value.shape), _digest(np.ascontiguousarray(value).tobytes())]
        if type(value) in (list, tuple, range):
            return [self.of(item, inside) for item in cast("Iterable[Any]", value)]
        if isinstance(value, bytes | bytearray):
            return ["bytes", _digest(bytes(value))]
        if isinstance(value, set | frozenset):
            return ["set", *sorted((self.of(item, inside) for item in cast("Iterable[Any]", value)), key=repr)]
        if isinstance(value, Mapping):
            return _mapping(cast("Mapping[Any, Any]", value), lambda item: self.of(item, inside))
        if isinstance(value, Network):
            own = [getattr(layer, "phi", None) for layer in every(value.layers)]
            functions = [phi.source for phi in own if phi is not None and phi.source is not None]
            return ["network", str(value), value.classes, *(self.of(one, inside) for one in functions)]
        if isinstance(value, Data):
            whole = "" if value.x.dtype == np.float32 else _digest(np.ascontiguousarray(value.x).tobytes())
            return ["data", value.hash, value.x.dtype.str, whole, list(value.class_names or ())]
        if isinstance(value, FunctionType | type | CodeType | ModuleType):
            return self._once(value, inside)
        return self._object(value, inside)

    def _once(self, value: Any, inside: tuple[int, ...]) -> Any:
        if id(value) in self._said:
            return ["said", self._said[id(value)]]
        self._said[id(value)] = len(self._said)
        self._alive.append(value)
        if isinstance(value, FunctionType):
            return self._function(value, inside)
        if isinstance(value, CodeType):
            return self._code(value, inside)
        if isinstance(value, ModuleType):
            return ["module", value.__name__, texts(value.__name__)]
        return self._class(value, inside)

    def _object(self, value: Any, inside: tuple[int, ...]) -> Any:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        if isinstance(value, MethodType):
            return ["method", self.of(value.__func__, inside), self.of(value.__self__, inside)]
        if isinstance(value, functools.partial):
            parts = (value.func, value.args, value.keywords)
            return ["partial", *(self.of(part, inside) for part in parts)]
        if inspect.isbuiltin(value):
            owner = value.__self__
            bound = [] if owner is None or isinstance(owner, ModuleType) else [self.of(owner, inside)]
            return ["builtin", f"{value.__module__}.{value.__qualname__}", *bound]
        if (wrapped := getattr(value, "__wrapped__", None)) is not None:  # functools.cache, and the like
            return ["wrapped", kind, self.of(wrapped, inside)]
        if hasattr(value, "detach") and hasattr(value, "numpy"):  # a tensor; NumPy does not know all of its types
            found = value.detach().cpu()
            known = found if "bfloat16" not in str(found.dtype) else found.float()
            return ["tensor", str(found.dtype), self.of(known.numpy(), inside)]
        if dataclasses.is_dataclass(value):  # its fields: what it has cached besides does not count
            named = [[field.name, self.of(getattr(value, field.name), inside)] for field in dataclasses.fields(value)]
            return ["dataclass", self.of(type(value), inside), named]
        return ["object", *self._reduced(value, inside)]

    def _reduced(self, value: Any, inside: tuple[int, ...]) -> list[Any]:
        """What pickle would take it apart into, but the same in every process."""
        try:
            parts = value.__reduce_ex__(4)
            if isinstance(parts, str):
                return [f"{getattr(value, '__module__', '')}.{parts}"]
            made, arguments, *rest = parts
            state, *items = [*rest, None, None, None][:3]
            listed = [None if some is None else list(some) for some in items]
        except (InvalidInput, RecursionError):
            raise
        except Exception as error:  # what refuses to be pickled raises anything
            raise not_sent(error) from error
        return [self.of(part, inside) for part in (made, arguments, state, *listed)]

    # -- Code -------------------------------------------------------------------------------------------------------

    def _function(self, value: FunctionType, inside: tuple[int, ...]) -> Any:
        cells = [self._cell(cell, inside) for cell in value.__closure__ or ()]
        inner = getattr(value, "__wrapped__", None)
        wrapped = [] if inner is None else [self.of(inner, inside)]
        home = sys.modules.get(value.__module__ or "")
        if home is not None and not is_users(value.__module__) and vars(home) is value.__globals__:
            return ["function", f"{value.__module__}.{value.__qualname__}", *cells, *wrapped]
        names = sorted(set(globals_of(value.__code__)))
        world = {name: self.of(value.__globals__[name], inside) for name in names if name in value.__globals__}
        imported = imported_code(value.__code__, str(value.__globals__.get("__package__") or ""))
        parts = [self.of(part, inside) for part in (value.__defaults__, value.__kwdefaults__)]
        return ["function", self._code(value.__code__, inside), *parts, cells, world, imported, wrapped]

    def _cell(self, cell: Any, inside: tuple[int, ...]) -> Any:
        try:
            found = cell.cell_contents
        except ValueError:  # nothing has been put into it yet
            return ["empty"]
        return self.of(found, inside)

    def _code(self, code: CodeType, inside: tuple[int, ...]) -> Any:
        """What is executed: no names of files and no numbers of lines, so that a function may be moved."""
        constants = [self.of(constant, inside) for constant in code.co_consts]
        named = [list(names) for names in (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)]
        called = [code.co_argcount, code.co_kwonlyargcount, code.co_posonlyargcount, code.co_flags]
        return ["code", sys.implementation.cache_tag, _digest(code.co_code), constants, *named, called]

    def _class(self, value: type, inside: tuple[int, ...]) -> Any:
        named = f"{value.__module__}.{value.__qualname__}"
        if not is_users(value.__module__):
            return ["class", named]
        bases = [self.of(base, inside) for base in value.__bases__]
        members = {name: member for name, member in vars(value).items() if name not in _ASIDE}
        return ["class", value.__qualname__, bases, {k: self._member(v, inside) for k, v in sorted(members.items())}]

    def _member(self, member: Any, inside: tuple[int, ...]) -> Any:
        if isinstance(member, staticmethod | classmethod):
            return [type(member).__name__, self.of(cast("Any", member).__func__, inside)]
        if isinstance(member, property):
            return ["property", *(self.of(part, inside) for part in (member.fget, member.fset, member.fdel))]
        if isinstance(member, functools.cached_property):
            return ["cached", self.of(cast("Any", member).func, inside)]
        if inspect.ismemberdescriptor(member) or inspect.isgetsetdescriptor(member):
            return ["slot"]
        return self.of(member, inside)


def _mapping(value: Mapping[Any, Any], of: Any) -> Any:
    """A mapping by name, in any order; a name that is not a text is told apart from one that is."""
    pairs = [
        [k if type(k) is str else ["key", str(k) if of is None else of(k)], v if of is None else of(v)]
        for k, v in value.items()
    ]
    return {"mapping": sorted(pairs, key=lambda pair: repr(pair[0]))}


def not_sent(error: Exception) -> InvalidInput:
    """The error for a function, or something that it refers to, that cannot go to another process."""
    lines = str(error).strip().splitlines()
    expected = "a function that can be sent to another process, with all that it refers to"
    got = f"{type(error).__name__}: {lines[0] if lines else 'no reason given'}"
    hint = "make files, locks, loaders and generators inside the function"
    return InvalidInput(expected, got=got, where="study(function)", hint=hint)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:20]
