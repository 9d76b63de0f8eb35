"""`firstguess measure`: draw many untrained networks, run data through them, count."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from firstguess.cli import on_data
from firstguess.cli.output import Figure, Json, bar, check_figure, print_json, say
from firstguess.errors import InvalidInput

if TYPE_CHECKING:
    from firstguess.data import Standardization

EXAMPLES = """Examples:

firstguess measure "5 x [dense(weight_var=2) > relu] > dense(weight_var=2)" --data digits --inits 500

firstguess measure package.module:factory --data blob:n=2000,d=3072 --inits 100

firstguess measure mymodels:Net --data mnist:even-odd --data-dir data --init kaiming_normal --figure law.png
"""


def measure(
    what: Annotated[
        str, typer.Argument(help="A description, or module:factory (a class or function that makes a model).")
    ],
    data: Annotated[str, typer.Option(help="digits, blob:n=2000,d=3072, mnist:even-odd, cifar10:cat-dog, x.npz, …")],
    data_dir: Annotated[Path | None, typer.Option(help="Where data sets are. [default: $FIRSTGUESS_DATA]")] = None,
    inits: Annotated[int | None, typer.Option(help="Initializations. [default: 100]")] = None,
    width: Annotated[int, typer.Option(help="Nodes of layers that name no width (descriptions).")] = 1000,
    classes: Annotated[int | None, typer.Option(help="Classes. [default: those of the data, or 2]")] = None,
    points: Annotated[int | None, typer.Option(help="Use a random subset of the data.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Batches for a model; BatchNorm depends on it.")] = None,
    standardize: Annotated[
        str | None, typer.Option(help="global, channel, pixel or none. [default: as in the papers]")
    ] = None,
    shift: Annotated[float, typer.Option(help="Add a constant to all inputs.")] = 0.0,
    init: Annotated[
        str | None,
        typer.Option(
            help="For a model: kaiming_normal, kaiming_uniform, xavier_normal, "
            "xavier_uniform, orthogonal, or WEIGHT_VAR,BIAS_VAR."
        ),
    ] = None,
    precision: Annotated[float | None, typer.Option(help="Stop when the 95 % interval is this narrow (±).")] = None,
    seed: Annotated[int, typer.Option(help="Member i depends on the seed and i only.")] = 0,
    json: Json = False,
    figure: Figure = None,
) -> None:
    """Measure how untrained networks spread their guesses, with error bars: the ensemble reading.

    Ctrl-C keeps what was computed.
    """
    import firstguess as fg

    check_figure(figure)
    options: dict[str, Any] = {}
    subject: Any = what
    if _is_path(what):
        subject = _factory(what)
        if init is not None:
            options["init"] = _init(init)
    else:
        fg.Network.parse(what)  # an error here comes before the data are read
        options["width"] = width
        if init is not None:
            raise InvalidInput("--init with a model only", got="a description", hint="write dense(init=orthogonal)")
    with bar("reading data") as reading:
        way = cast("Standardization | None", standardize)  # load checks it
        source: Any = fg.data.load(
            data, data_dir=data_dir, points=points, standardize=way, shift=shift, seed=seed, progress=reading
        )
    with bar("drawing networks") as drawing:
        m = fg.measure(
            subject,
            source,
            inits=inits,
            seed=seed,
            classes=classes,
            precision=precision,
            batch_size=batch_size,
            progress=drawing,
            **options,
        )
    if json:
        print_json(m.to_dict())
    else:
        typer.echo(str(m))
    if figure is not None:
        if isinstance(subject, str):
            prediction = on_data.closed_form(fg.Network.parse(subject, classes=m.classes), source)
            chart = fg.figures.compare_chart(prediction, m)
        else:
            chart = fg.figures.readings_chart(None, None, m)
        fg.figures.save(chart, figure)
        say(f"wrote {figure}")


def _is_path(what: str) -> bool:
    """`package.module:name`: no layer is written like this."""
    module, colon, name = what.partition(":")
    return bool(colon) and all(part.isidentifier() for part in [*module.split("."), *name.split(".")])


def _factory(path: str) -> Any:
    import importlib

    module, _, name = path.partition(":")
    sys.path.insert(0, str(Path.cwd()))  # as `python -m` does: models live beside the user
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise InvalidInput(
            "a module that can be imported",
            got=f"{module} ({error})",
            where=path,
            hint="run in the folder that contains it, or install it",
        ) from None
    finally:
        sys.path.pop(0)
    for part in name.split("."):
        if not hasattr(found, part):
            raise InvalidInput(
                f"a class, a function or a model in {module}",
                got=f"no {name}",
                where=path,
                hint="one of " + ", ".join(sorted(n for n in vars(found) if not n.startswith("_"))[:8]),
            )
        found = getattr(found, part)
    return found


def _init(text: str) -> Any:
    if "," not in text:
        return text
    try:
        weight_var, bias_var = (float(part) for part in text.split(","))
    except ValueError:
        raise InvalidInput("two numbers for --init", got=text, hint="--init 2,0") from None
    return weight_var, bias_var
