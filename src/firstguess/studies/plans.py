"""A study written as TOML: a grid, a network, data, a reading and its sizes.

    name = "norms"
    reading = "measure"                 # predict, measure, train or diagnose
    network = "mlp"                     # mlp, residual_mlp or cnn; or a description, with {names} of the grid in it
    data = "digits"                     # not for a prediction without data
    points = 500
    store = "runs"
    block = 100                         # members per task

    [grid]
    depth = [1, 5, 20]
    norm = ["none", "batchnorm", "layernorm"]

    [options]                           # of the reading, the same in all configurations
    inits = 200
    width = 500

A name in the grid is an argument of the network's builder, an option of the reading, `data`, or in the description.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from firstguess.base.checks import given as given_only
from firstguess.base.checks import keywords
from firstguess.base.errors import InvalidInput
from firstguess.base.files import reason
from firstguess.data import load
from firstguess.studies.study import Study, grid

BUILDERS = ("mlp", "residual_mlp", "cnn")
READINGS = ("predict", "measure", "train", "diagnose")
_KEYS = ("name", "reading", "network", "data", "points", "data_dir", "store", "block", "version", "grid", "options")
_NOT_OURS = ("data", "progress", "store", "test", "what", "network")  # of a reading: given otherwise, or not a value


def planned(path: str | Path, *, store: str | Path | None = None, data_dir: str | None = None) -> Study:
    """The study that a file describes; bad input is one line, before any work."""
    plan = _read(Path(path))
    for key in plan:
        if key not in _KEYS:
            raise _bad(path, f"one of the keys {', '.join(_KEYS)}", key)
    reading, network = (_text(plan, key, path) for key in ("reading", "network"))
    if reading not in READINGS:
        raise _bad(path, f"reading = {', '.join(READINGS)}", reading)
    axes, options = _table(plan, "grid", path), _table(plan, "options", path)
    if not axes:
        raise _bad(path, "a [grid] with at least one list", "none")
    data_dir = data_dir or plan.get("data_dir")
    sets = [*axes["data"]] if isinstance(axes.get("data"), list) else [plan["data"]] if "data" in plan else []
    if not sets and reading != "predict":
        raise _bad(path, f"data for {reading}", "none", 'data = "digits"')
    _check_names(path, reading, network, [*axes, *options])
    try:
        found = {name: load(name, data_dir=data_dir, points=plan.get("points")) for name in sets}
        configurations: list[dict[str, Any]] = []
        for one in grid(**axes):
            values: dict[str, Any] = {key: _none(value) for key, value in one.items()}
            if "data" in values:  # each task reads its own: the hash says which
                values["data_hash"] = found[values["data"]].hash
            configurations.append(values)
        function = functools.partial(
            perform_reading, reading, network, {key: _none(value) for key, value in options.items()},
            *((plan.get("points"), data_dir) if "data" in axes else (None, None)),
        )  # fmt: skip
        return Study(
            str(plan.get("name", Path(path).stem)),
            configurations,
            function,
            store=store or plan.get("store", "runs"),
            data=found[sets[0]] if sets and "data" not in axes else None,
            block=plan.get("block"),
            version=plan.get("version", ""),
            written=Path(path).read_text(encoding="utf-8").strip(),
        )
    except InvalidInput as error:
        raise error.within(str(path)) from error


def perform_reading(
    reading: str,
    network: str,
    options: Mapping[str, Any],
    points: int | None,
    data_dir: str | None,
    p: Mapping[str, Any],
    data: Any = None,
) -> Any:
    """One configuration of a plan."""
    import firstguess as fg

    given = dict(p)
    if (name := given.pop("data", None)) is not None:
        data = _loaded(str(name), points, data_dir)
        if data.hash != given.pop("data_hash"):
            raise InvalidInput("the data that the study was planned with", got=f"{name}, which has changed")
    what, rest = _network(network, {"classes": getattr(data, "classes", None), **options, **given})
    function: Callable[..., Any] = getattr(fg, reading)
    settings = {name: value for name, value in rest.items() if name in options or name in given}
    if reading == "predict" and isinstance(what, str) and data is not None:  # the others ask the data themselves
        settings = {**given_only(classes=data.classes), **settings}
    if reading in ("predict", "train"):
        return function(what, **settings) if data is None else function(what, data=data, **settings)
    return function(what, data, **settings)


@functools.lru_cache(maxsize=4)
def _loaded(name: str, points: int | None, data_dir: str | None) -> Any:
    return load(name, data_dir=data_dir, points=points)


def _network(text: str, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The network, and the settings that were not for it."""
    import firstguess as fg

    if text in BUILDERS:
        builder: Callable[..., Any] = getattr(fg, text)
        its = [name for name in given if name in inspect.signature(builder).parameters]
        its = [name for name in its if not (name == "classes" and given[name] is None)]
        what = builder(**{name: given[name] for name in its})
    else:
        its = [name for name in given if f"{{{name}}}" in text]
        what = functools.reduce(lambda t, name: t.replace(f"{{{name}}}", str(given[name])), its, text)
    return what, {name: value for name, value in given.items() if name not in its}


def _check_names(path: str | Path, reading: str, network: str, names: list[str]) -> None:
    """Every name has a place: in the network, or in the reading."""
    import firstguess as fg

    known = set(keywords(getattr(fg, reading))) - {*_NOT_OURS}
    if network in BUILDERS:
        known |= set(inspect.signature(getattr(fg, network)).parameters)
    else:
        holes = {part.partition("}")[0] for part in network.split("{")[1:]}
        if missing := holes - set(names):
            raise _bad(path, f"a list for {{{sorted(missing)[0]}}} in [grid]", "none")
        known |= holes
        if not holes:
            fg.Network.parse(network)
    for name in names:
        if name not in known and name != "data":
            words = f"{network} or of {reading}" if network in BUILDERS else f"{reading}, or {{{name}}} in the network"
            raise _bad(path, f"an argument of {words}", name, "".join(difflib.get_close_matches(name, known, n=1)))


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput("a file that can be read", got=reason(error), where=str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _bad(path, "TOML", str(error)) from error


def _text(plan: Mapping[str, Any], key: str, path: str | Path) -> str:
    value = plan.get(key)
    if not isinstance(value, str):
        raise _bad(path, f"{key} = a text", "none" if value is None else repr(value))
    return value


def _table(plan: Mapping[str, Any], key: str, path: str | Path) -> dict[str, Any]:
    value = plan.get(key, {})
    if not isinstance(value, dict):
        raise _bad(path, f"a table [{key}]", type(value).__name__)
    return cast("dict[str, Any]", value)


def _none(value: Any) -> Any:
    return None if value == "none" else value


def _bad(path: str | Path, expected: str, got: str, hint: str = "") -> InvalidInput:
    return InvalidInput(expected, got=got, where=str(path), hint=hint)
