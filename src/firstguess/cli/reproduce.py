"""`firstguess reproduce`: found where the papers' package is installed, else one line on how to install it."""

from __future__ import annotations

from typing import Any

import typer

from firstguess.base.errors import InvalidInput
from firstguess.cli.help import Command

EXAMPLES = ""


def reproduce() -> None:
    """Recompute figures and claims of the papers: numbers as Parquet, figures, and a ledger of what holds."""
    raise InvalidInput(
        "the package of the papers, which `firstguess reproduce` comes with",
        got="none installed",
        hint="pip install firstguess-papers (in a clone: pip install ./papers)",
    )


def installed(name: str) -> Any:
    """Return a command that another installed package brings (entry points "firstguess.commands"), or None."""
    from importlib.metadata import entry_points

    for point in entry_points(group="firstguess.commands", name=name):
        function = point.load()
        app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
        app.command(name, cls=Command, epilog=getattr(function, "examples", None))(function)
        return typer.main.get_command(app)
    return None
