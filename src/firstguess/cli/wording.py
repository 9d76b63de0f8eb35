"""One vocabulary for all commands: what stands behind an option in the help, by its name; flags have nothing there."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

# Option or argument -> what stands for its value. The same name means the same in every command.
VALUES = {
    "activation": "NAME", "address": "ADDRESS", "block": "BLOCK", "code": "FILE", "data": "DATA", "data_dir": "FOLDER",
    "draw": "WHAT", "engine": "NAME", "figure": "FILE", "figures": "FOLDER", "goal": "GOAL", "how": "HOW",
    "init": "NAME", "knob": "NAME", "ledger": "FILE", "loss": "NAME", "network": "NETWORK", "norm": "NAME",
    "optimizer": "NAME", "page": "FILE", "placement": "PLACE", "pool": "LAYER", "redraw": "NAMES", "report": "FILE",
    "schedule": "NAME", "standardize": "HOW", "start": "KIND", "store": "FOLDER", "study": "NAME", "test": "DATA",
    "what": "NETWORK", "weight_range": "FROM TO", "bias_range": "FROM TO",
}  # fmt: skip
_BY_TYPE = {"int": "N", "integer": "N", "float": "X", "Path": "FILE", "path": "FILE"}


def worded(parameter: Any) -> Any:
    """The same parameter with its word; Typer's own is <int> or <bool>."""
    if parameter.param_type_name == "argument":
        parameter.metavar = parameter.metavar or VALUES.get(parameter.name)
        parameter.display_type_rich = _nothing  # its name says it
    elif getattr(parameter, "is_flag", False):
        parameter.metavar = ""
    elif parameter.metavar is None:
        parameter.metavar = VALUES.get(parameter.name) or _BY_TYPE.get(_kind(parameter), "TEXT")
    return parameter


def _kind(parameter: Any) -> str:
    """The name of its type: newer versions of Typer have the annotation, older ones Click's type."""
    described = getattr(parameter, "type_descriptor", None)
    if described is not None:
        return getattr(described.annotation, "__name__", "")
    return getattr(parameter.type, "name", "")


def _nothing(*_: object, **__: object) -> None:
    return None


class Command(TyperCommand):
    """A command whose help has words for values."""

    def get_params(self, ctx: Any) -> list[Any]:
        return [worded(parameter) for parameter in super().get_params(ctx)]


class Group(TyperGroup):
    """The commands, likewise."""

    def get_params(self, ctx: Any) -> list[Any]:
        return [worded(parameter) for parameter in super().get_params(ctx)]
