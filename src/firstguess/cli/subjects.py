"""What a command is given as a network: a description, or module:name for a model of the user's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from firstguess.base.errors import InvalidInput
from firstguess.base.progress import bar
from firstguess.base.text import is_path
from firstguess.cli import completion

if TYPE_CHECKING:
    from firstguess.data import Data, Standardization

LARGE = ("mnist", "fashion_mnist", "cifar10")  # have more than anyone asks for

Subject = Annotated[
    str,
    typer.Argument(
        autocompletion=completion.builders,
        help="A description, or module:factory (a class or function that makes a model).",
    ),
]
DataName = Annotated[
    str,
    typer.Option(
        "--data",
        autocompletion=completion.data_sets,
        help="digits, blob:n=2000,d=3072, mnist:even-odd, cifar10:cat-dog, x.npz, …",
    ),
]
DataDir = Annotated[Path | None, typer.Option(help="Where data sets are. [default: $FIRSTGUESS_DATA]")]
Standardize = Annotated[
    str | None,
    typer.Option(
        autocompletion=completion.standardizations,
        help="global, channel, pixel, centre or none. [default: as in the papers]",
    ),
]


Redraw = Annotated[
    str | None,
    typer.Option(
        help="For a model, what is fresh: names such as 'classifier*' (several with commas), head or all; the rest is "
        "kept. [default: what does not look trained]"
    ),
]


def subject(what: str, *, init: str | None, width: int, redraw: str | None = None) -> tuple[Any, dict[str, Any]]:
    """The network that is meant, and the options of `fg.measure` that only its kind takes."""
    if is_path(what):
        options: dict[str, Any] = {} if init is None else {"init": init_option(init)}
        if redraw is not None:
            names = [name for part in redraw.split(",") if (name := part.strip())]
            options["redraw"] = names[0] if len(names) == 1 else names
        from firstguess.modules.members.sources import found_at

        return found_at(what), options
    from firstguess.network.builders import as_network

    as_network(what, where="NETWORK")  # an error here comes before the data are read
    if init is not None:
        raise InvalidInput("--init with a model only", got="a description", hint="write dense(init=orthogonal)")
    if redraw is not None:
        raise InvalidInput("--redraw with a model only", got="a description, which is drawn as a whole")
    return what, {"width": width}


def load_data(
    spec: str,
    *,
    data_dir: Path | None,
    points: int | None,
    standardize: str | None,
    shift: float = 0.0,
    seed: int = 0,
    at_most: bool = False,
) -> Data:
    """Data by name, with a progress bar; with `at_most`, fewer than `points` are fine."""
    from firstguess.data import load

    ask = not at_most or spec.partition(":")[0] in LARGE
    with bar("reading data") as reading:
        found = load(
            spec,
            data_dir=data_dir,
            points=points if ask else None,
            standardize=cast("Standardization | None", standardize),  # load checks it
            shift=shift,
            seed=seed,
            progress=reading,
        )
    return found.subset(points, seed) if points is not None and found.n > points else found


def init_option(text: str) -> Any:
    if "," not in text:
        return text
    try:
        weight_var, bias_var = (float(part) for part in text.split(","))
    except ValueError:
        raise InvalidInput("two numbers for --init", got=text, hint="--init 2,0") from None
    return weight_var, bias_var
