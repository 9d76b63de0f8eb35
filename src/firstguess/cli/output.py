"""What every command shares: examples in its help, JSON, tables, figures, words for values, one line for an error."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from firstguess.base.errors import InvalidInput
from firstguess.base.files import checked

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from firstguess.ensemble.member_statistics import Finding


Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Figure = Annotated[
    Path | None, typer.Option("--figure", metavar="FILE", help="Draw it: a .png, .svg, .pdf or .html file.")
]
FIGURE_KINDS = (".png", ".svg", ".pdf", ".html")
_READABLE = 14  # characters of a column that is wrapped
_VALUES = 30  # characters of values next to their labels


def examples(text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command with what its help ends with."""

    def marked(command: Callable[..., None]) -> Callable[..., None]:
        command.examples = text  # pyright: ignore[reportFunctionMemberAccess]
        return command

    return marked


def check_figure(path: Path | None) -> None:
    """Refuse a bad --figure before any work is done."""
    if path is not None:
        checked(path, FIGURE_KINDS, said=", ".join(FIGURE_KINDS), example="figure.png", where="--figure")


def plain(value: Any) -> Any:
    """Numbers JSON has no word for (inf, nan) as text, arrays as lists."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    to_list = getattr(value, "tolist", None)
    return value if to_list is None else plain(to_list())


def print_json(data: Any) -> None:
    typer.echo(json.dumps(plain(data), indent=2, ensure_ascii=False, allow_nan=False))


def show(result: Any, *, json: bool, figure: Path | None = None, chart: Callable[[], Any] | None = None) -> None:
    """A result as its page, or as JSON; and its chart, where --figure asks for it."""
    if json:
        print_json(result.to_dict())
    else:
        typer.echo(str(result))
    if figure is not None:
        save_figure(result.plot() if chart is None else chart(), figure)


def save_figure(chart: Any, path: Path) -> None:
    """Write a chart, and say so."""
    from firstguess.show.charts import save

    save(chart, path)
    say(f"wrote {path}")


def _columns(console: Console) -> int:
    """The columns of a terminal; of a pipe those that COLUMNS says, else as many as there is text for."""
    return console.width if console.is_terminal or os.environ.get("COLUMNS", "").isdecimal() else 400


def _show(*parts: RenderableType) -> None:
    """Print to a terminal as it is, to a pipe without trailing blanks."""
    from rich.console import Console

    console = Console()
    if console.is_terminal:
        console.print(*parts, sep="\n")
        return
    wide = Console(width=_columns(console))
    with wide.capture() as capture:
        wide.print(*parts, sep="\n")
    typer.echo("\n".join(line.rstrip() for line in capture.get().rstrip().splitlines()))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, wrap: Sequence[str] = ()) -> None:
    """A table on a terminal, plain columns in a pipe. Where it is narrow the columns `wrap` are wrapped.

    Where even that does not fit, each row is its first cell with the others named under it: nothing is cut off.
    """
    from rich import box
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    cells = [tuple(row) for row in rows]
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    table.collapse_padding = True
    for index, column in enumerate(columns):
        folds = column in wrap
        widest = max(len(text) for text in (column, *(row[index] for row in cells)))
        least, side = min(widest, _READABLE) if folds else widest, "left" if index == 0 or folds else "right"
        table.add_column(column, justify=side, no_wrap=not folds, min_width=least)
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    console = Console()
    needed = Measurement.get(console, console.options.update(width=10_000), table).minimum
    if needed > (width := _columns(console)):
        _show(Text(title, style="bold"), *map(Text, _stacked(columns, cells, width)))
    else:
        _show(table)


def _stacked(columns: Sequence[str], rows: Iterable[Sequence[str]], width: int) -> Generator[str]:
    import textwrap

    blank = "\u00a0"  # a short cell and its name stay on one line
    for first, *others in rows:
        yield first
        named = [f"{column} {cell}" for column, cell in zip(columns[1:], others, strict=True) if cell]
        text = " · ".join(one.replace(" ", blank) if len(one) <= _READABLE + 10 else one for one in named)
        for line in textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="  "):
            yield line.replace(blank, " ")


def print_pairs(title: str, pairs: Sequence[tuple[str, str]]) -> None:
    """Label and value, one a line; long values wrap under themselves, on a narrow terminal under their labels."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    console = Console()
    labels = max((len(label) for label, _ in pairs), default=0)
    if _columns(console) - labels - 4 < _VALUES:
        parts = [part for a, b in pairs for part in (Text(f"  {a}", style="dim"), Padding(Text(b), (0, 0, 0, 4)))]
        _show(Text(title, style="bold"), *parts)
        return
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for label, value in pairs:
        grid.add_row(Text(label), Text(value))  # as Text: [brackets] of a description are not markup
    _show(Text(title, style="bold"), Padding(grid, (0, 0, 0, 2)))


def say(message: str) -> None:
    """A remark that is not the result: to stderr."""
    typer.echo(message, err=True)


# The argument that a hint writes as a function -> what one types in a shell, where no function can be written.
_IN_SHELL = {
    "logits": "MODULE:NAME of a class around your model, whose forward returns logits as (points, classes)",
    "forward": "MODULE:NAME of a class around your model, whose forward takes the whole batch",
    "optimizer": "--optimizer MODULE:NAME, a function of the parameters that returns an optimizer with its rate",
}


def in_shell(message: str) -> str:
    """A message whose hints can be typed: one that is a function of Python becomes a name in a file.

    >>> print(in_shell("Expected a study. Try: lambda p: fg.predict(fg.mlp(**p))"))
    Expected a study. Try: MODULE:NAME of a function in a file of yours
    >>> print(in_shell("Expected sequences. Try: inputs=fg.Tokens(length=8), or data=ids of shape (n, tokens)"))
    Expected sequences. Try: --data ids.npy, token ids of shape (sequences, tokens)
    """

    def typed(hint: str) -> str:
        if "data=ids" in hint:
            return "--data ids.npy, token ids of shape (sequences, tokens)"
        name = re.search(r"(\w+)=lambda", hint)
        return _IN_SHELL.get(name[1] if name else "", "MODULE:NAME of a function in a file of yours")

    said, *hints = message.split(" Try: ")
    return " Try: ".join((said, *(typed(hint) if re.search("lambda|data=ids", hint) else hint for hint in hints)))


def leave_if_interrupted(findings: Iterable[Finding]) -> None:
    """Exit with code 130, as after Ctrl-C, once the page of what there is was printed."""
    from firstguess.ensemble.member_statistics import FindingKind

    if any(finding.kind == FindingKind.INTERRUPTED for finding in findings):
        say("firstguess: interrupted; the page has what was computed")
        raise typer.Exit(130)


# A command line that cannot be read ends like any other bad input: in one line.


def run(app: typer.Typer) -> None:
    """Run the commands; a missing or unknown option is one line on stderr and exit code 2, not a box of five."""
    try:
        code: object = app(prog_name="firstguess", standalone_mode=False)
    except MemoryError as error:
        got, hint = str(error) or "no more of it", "fewer points or a smaller width"
        raise InvalidInput("something that fits in memory", got=got, hint=hint) from None
    except Exception as error:
        # Click's own exceptions by what they can do: newer versions of Typer carry a copy of Click, older ones use it.
        words = cast("Callable[[], str] | None", getattr(error, "format_message", None))
        if words is None:
            raise
        code = int(getattr(error, "exit_code", 2))
        if type(error).__name__ == "NoArgsIsHelpError":  # the message is the help, which Rich has printed already
            if words().strip():
                cast(Any, error).show()
        else:
            line, path = " ".join(words().split()), getattr(getattr(error, "ctx", None), "command_path", "firstguess")
            end = "" if line.endswith((".", "?", "!")) else "."
            sys.stderr.write(f"firstguess: {line}{end} Try: {path} --help\n")
    sys.exit(code if isinstance(code, int) else 0)


# One vocabulary for all commands: what stands after an option in the help, by its name; flags have nothing there.

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
        parameter.display_type_rich = lambda *_, **__: None  # its name says it
    elif getattr(parameter, "is_flag", False):
        parameter.metavar = ""
    elif parameter.metavar is None:
        parameter.metavar = VALUES.get(parameter.name) or _BY_TYPE.get(_kind(parameter), "TEXT")
    return parameter


def _kind(parameter: Any) -> str:
    """The name of its type: newer versions of Typer have the annotation, older ones Click's type."""
    described = getattr(parameter, "type_descriptor", None)
    return getattr(parameter.type, "name", "") if described is None else getattr(described.annotation, "__name__", "")


class Command(TyperCommand):
    """A command whose help has words for values."""

    def get_params(self, ctx: Any) -> list[Any]:
        return [worded(parameter) for parameter in super().get_params(ctx)]


class Group(TyperGroup):
    """The commands, likewise."""

    def get_params(self, ctx: Any) -> list[Any]:
        return [worded(parameter) for parameter in super().get_params(ctx)]
