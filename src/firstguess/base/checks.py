"""Arguments, checked once: numbers, counts, arrays in; clear errors out."""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral, Real
from types import TracebackType
from typing import Any, ParamSpec, SupportsFloat, TypeVar, cast

import numpy as np
import numpy.typing as npt

from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.text import number as text_number

FloatArray = npt.NDArray[np.float64]
Numbers = Sequence[float] | npt.NDArray[Any]
OF_A_NETWORK = ("depth", "activation", "norm", "placement", "pool", "weight_var", "bias_var")  # said where it is made
_THREE = "the labels as a third argument"
_P = ParamSpec("_P")
_T = TypeVar("_T")
_TAKEN = "_firstguess_options"  # the attribute of a function that `takes` more than its signature lists


def optional(package: str, extra: str, where: str) -> Any:
    """Import a package that an extra of firstguess installs; without it one error says what to type."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        hint = f"pip install 'firstguess[{extra}]'"
        raise InvalidInput(f"the package {package}", got="none", where=where, hint=hint) from error


def known_options(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Give the function, whose unknown options end in the one clear error that other bad input ends in.

    >>> known_options(lambda x, *, seed=0: x)(3, sed=1)
    Traceback (most recent call last):
        ...
    firstguess.InvalidInput: Expected an option of <lambda>: seed=, but got sed=. Try: seed=
    >>> known_options(lambda x, *, data=None: x)(3, [1, 2])
    Traceback (most recent call last):
        ...
    firstguess.InvalidInput: Expected options of <lambda> by name after x, but got 2 arguments without one. Try: data=
    >>> known_options(lambda x, y: x)(3)
    Traceback (most recent call last):
        ...
    firstguess.InvalidInput: Expected <lambda>(x, y), but got no y. Try: y=
    >>> known_options(lambda x, *, width=0: x)("mlp", depth=3)
    Traceback (most recent call last):
        ...
    firstguess.InvalidInput: Expected an option of <lambda>: width=, but got depth=. Try: fg.mlp(depth=3) as the network
    """
    return takes(())(function)


def takes(options: Iterable[str]) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """`known_options` of functions that take these options as `**options` too, typed by a TypedDict.

    >>> takes(["mode"])(lambda x, *, seed=0, **options: options)(3, mod=1)
    Traceback (most recent call last):
        ...
    firstguess.InvalidInput: Expected an option of <lambda>: seed=, mode=, but got mod=. Try: mode=
    """

    def decorate(function: Callable[_P, _T]) -> Callable[_P, _T]:
        return _checked(function, tuple(options))

    return decorate


def keywords(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of all arguments of a function, those that `takes` adds included."""
    plain = [key for key, one in inspect.signature(function).parameters.items() if one.kind is not one.VAR_KEYWORD]
    return (*plain, *getattr(function, _TAKEN, ()))


def _checked(function: Callable[_P, _T], taken: tuple[str, ...]) -> Callable[_P, _T]:
    listed = inspect.signature(function).parameters
    parameters = {key: one for key, one in listed.items() if not (taken and one.kind is one.VAR_KEYWORD)}
    name = getattr(function, "__name__", "this")
    plain = [key for key, one in parameters.items() if one.kind is one.POSITIONAL_OR_KEYWORD]
    wanted = [key for key in plain if parameters[key].default is inspect.Parameter.empty]
    named = [f"{key}=" for key, one in parameters.items() if one.kind is one.KEYWORD_ONLY]
    named += [f"{key}=" for key in taken]
    open_ended = any(one.kind is one.VAR_POSITIONAL for one in parameters.values())

    @functools.wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        __tracebackhide__ = True  # pytest shows the user's call, not this
        for option in kwargs:
            if option not in parameters and option not in taken:
                close = "".join(difflib.get_close_matches(f"{option}=", named, n=1))
                said = f"fg.mlp({option}={kwargs[option]!r}) as the network" if option in OF_A_NETWORK else close
                hint = said if len(said) < 80 else close
                raise InvalidInput(f"an option of {name}: {', '.join(named)}", got=f"{option}=", hint=hint)
        if len(args) > len(plain) and named and not open_ended:
            if plain == ["what", "data"] and len(args) == 3 and hasattr(args[2], "__len__"):  # as scikit-learn has it
                hint = f"fg.{name}(model, (x, y))"
                raise InvalidInput(f"inputs and labels of {name} as a pair", got=_THREE, hint=hint)
            swapped = len(plain) == 1 and any(is_module(one) for one in args[1:]) and not callable(args[0])
            expected = f"options of {name} by name after {', '.join(plain)}"
            hint = f"{plain[0]} first, then {named[0]}" if swapped else named[0]
            raise InvalidInput(expected, got=f"{len(args)} arguments without one", hint=hint)
        absent = [key for key in wanted[len(args) :] if key not in kwargs]
        if absent:
            hint = f"fg.{name}(model, x)" if plain == ["what", "data"] else f"{absent[0]}="
            raise InvalidInput(f"{name}({', '.join(plain)})", got=f"no {' and no '.join(absent)}", hint=hint)
        return function(*args, **kwargs)

    setattr(checked, _TAKEN, taken)
    return checked


def no_model(what: object, where: str, otherwise: str) -> InvalidInput:
    """The error for what is no network, with what to do about a state dict, an estimator of scikit-learn's, …"""
    kind = type(what)
    hint = otherwise
    if hasattr(what, "keys") and hasattr(what, "values"):
        hint = "model = MyModel(); model.load_state_dict(…); then the model: these are weights without a network"
    elif kind.__module__.partition(".")[0] in ("sklearn", "xgboost", "lightgbm", "keras", "tensorflow"):
        hint = f"a PyTorch model, or its class: {kind.__name__} is not one, so its weights cannot be re-initialized"
    expected = "a Network, its text, an nn.Module, a class or a factory"
    return InvalidInput(expected, got=f"{kind.__module__}.{kind.__qualname__}", where=where, hint=hint)


def given(**options: Any) -> dict[str, Any]:
    """Those that are not None."""
    return {name: value for name, value in options.items() if value is not None}


def choice(value: object, choices: Iterable[_T], where: str, name: str = "", *, hint: str = "") -> _T:
    """The value, if it is one of these words, else InvalidInput; `name` is what the argument is called.

    >>> choice("mean", ("all", "weights", "output"), "measure(probe)", "probe")
    Traceback (most recent call last):
        ...
    firstguess.InvalidInput: Expected probe 'all', 'weights' or 'output', but got mean, at measure(probe).
    Try: probe='all'
    """
    known = list(choices)
    for one in known:
        if isinstance(value, str) and value == one:
            return one
    words = [repr(one) for one in known]
    listed = f"{', '.join(words[:-1])} or {words[-1]}"
    hint = hint or (f"{name}={words[0]}" if name else words[0])
    raise InvalidInput(f"{name} {listed}".strip(), got=value, where=where, hint=hint)


def within(
    value: object,
    expected: str,
    where: str,
    hint: str = "",
    *,
    low: float = 0.0,
    high: float = math.inf,
    closed: bool = False,
    infinite: bool = False,
    optional: bool = False,
) -> None:
    """Raise InvalidInput unless the value is a number above `low` (or equal, if `closed`) and below `high`.

    `infinite` numbers count where it says so; `optional`: None, too.

    >>> within(1.5, "a level between 0 and 1", "compare(level)", "level=0.95", high=1)
    Traceback (most recent call last):
        ...
    firstguess.InvalidInput: Expected a level between 0 and 1, but got 1.5, at compare(level). Try: level=0.95
    """
    if optional and value is None:
        return
    found = number(value)
    if not (low < found < high or (closed and found == low) or (infinite and found == math.inf)):
        raise InvalidInput(expected, got=value, where=where, hint=hint)


def two_classes(labels: npt.NDArray[Any], where: str = "data") -> None:
    """Raise InvalidInput unless there are points of two classes: with one there is nothing to learn."""
    if len(np.unique(labels)) < 2:
        raise InvalidInput("points of two classes at least", got="one class only", where=where)


def number(value: object) -> float:
    """The value as a float; NaN for what is not a number."""
    try:
        return math.nan if isinstance(value, str | bytes | bool) else float(cast(SupportsFloat, value))
    except (TypeError, ValueError):
        return math.nan


def count(value: object, least: int, what: str, where: str, hint: str) -> int:
    """A whole number, at least `least`."""
    try:
        whole = least - 1 if isinstance(value, bool) else operator.index(cast(Any, value))
    except TypeError:
        whole = least - 1
    if whole < least:
        raise InvalidInput(f"a whole {what}, at least {least}", got=value, where=where, hint=hint)
    return whole


def array(value: float | Numbers, expected: str, where: str) -> FloatArray:
    """A float64 array without NaN."""
    try:
        out = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        out = np.array(np.nan)
    if np.isnan(out).any():
        raise InvalidInput(f"{expected}, a number or an array of numbers", got=value, where=where, hint="0.5")
    return out


def unit(value: float | Numbers, expected: str, where: str, hint: str) -> FloatArray:
    """A float64 array of numbers from 0 to 1."""
    out = array(value, expected, where)
    if ((out < 0) | (out > 1)).any():
        raise InvalidInput(expected, got=value, where=where, hint=hint)
    return out


def like(value: float | Numbers, out: npt.NDArray[Any]) -> Any:
    """`out` as a float if `value` was a single number."""
    return out if np.ndim(value) else float(out)


def check_number(value: float, name: str, kind: str, *, low: float = 0.0, strict: bool = False, hint: str = "") -> None:
    """Raise InvalidInput unless an argument of a layer is a finite number ≥ low (> low if strict)."""
    ok = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if not ok or value < low or (strict and value == low):
        relation = "above" if strict else "of at least"
        bound = "" if low == -math.inf else f" {relation} {text_number(float(low))}"
        raise InvalidInput(f"a finite {name}{bound}", got=value, where=kind, hint=hint or f"{kind}({name}=1)")


def check_weights(weight_var: float, bias_var: float, kind: str) -> None:
    """Raise InvalidInput where weights and biases are all zero: nothing would be left of the data."""
    if weight_var == 0.0 == bias_var:
        expected = "weights or biases that are not all zero"
        raise InvalidInput(expected, got="weight_var 0 and bias_var 0", where=kind, hint=f"{kind}(weight_var=2)")


def check_flag(value: bool, name: str, kind: str) -> None:
    """Raise InvalidInput unless an argument of a layer is true or false."""
    if not isinstance(value, bool):
        raise InvalidInput(f"{name} to be true or false", got=value, where=kind, hint=f"{kind}({name}=true)")


def check_count(value: int | None, name: str, kind: str, *, low: int = 1) -> None:
    """Raise InvalidInput unless an argument of a layer is None or a whole number ≥ low."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, Integral) or value < low:
        raise InvalidInput(f"a whole {name} of at least {low}", got=value, where=kind, hint=f"{kind}({name}={low})")


def is_module(what: object) -> bool:
    """Whether this is an `nn.Module` or a class of them, without loading torch to ask."""
    kind = what if isinstance(what, type) else type(what)
    return any(base.__module__ == "torch.nn.modules.module" for base in kind.__mro__)


# Where float64 ends: one clear refusal instead of an OverflowError, a warning or a NaN.


class float_range:
    """Arithmetic that leaves float64, of Python and of NumPy alike, is a network that formulas cannot follow.

    Formulas move scales out of the way where they can (`network.signal`); this is for what is left. A class, because a
    generator would cost as much as a layer's closed form.

    >>> with float_range():
    ...     1e200 ** 2
    Traceback (most recent call last):
    firstguess.NotCovered: Expected numbers that float64 can hold (1e-308 to 1e308), but got others. Try: ...
    """

    def __enter__(self) -> None:
        self._errors = np.errstate(over="raise", invalid="raise", divide="raise")
        self._errors.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._errors.__exit__(kind, error, at)
        if isinstance(error, ArithmeticError):
            raise beyond_float64() from None


def beyond_float64() -> NotCovered:
    """What such arithmetic ends in."""
    hint = "parameters and variances nearer to 1"
    return NotCovered("numbers that float64 can hold (1e-308 to 1e308)", got="others", hint=hint)
