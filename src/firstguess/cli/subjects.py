"""The options that commands share, each written once, and what they mean: a network or a model, and data."""

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
DATA_HELP = (
    "digits, mnist, fashion_mnist, cifar10, cifar100, tiny-imagenet (with a choice: mnist:even-odd), "
    "blob:n=2000,d=100, or a file."
)
DataDir = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Folder with the data sets. [default: $FIRSTGUESS_DATA]")
]
Standardize = Annotated[
    str | None,
    typer.Option(
        autocompletion=completion.standardizations,
        help="global, channel, pixel, centre or none. [default: as in the papers]",
    ),
]
Points = Annotated[int | None, typer.Option(help="Random subset of this size. [default: 1000, or all]")]
Shift = Annotated[float, typer.Option(help="Add a constant to all inputs.")]
Inits = Annotated[int, typer.Option(help="Number of initializations.")]
Width = Annotated[int, typer.Option(help="Units of layers that name no width (descriptions).")]
Classes = Annotated[int | None, typer.Option(help="Number of classes. [default: the data's, or 2]")]
BatchSize = Annotated[int | None, typer.Option(help="Batch size for a model; BatchNorm depends on it.")]
Seed = Annotated[int, typer.Option(help="Random seed.")]

# Of a network that is named by its builder.
Depth = Annotated[int | None, typer.Option(help="Hidden layers of mlp, residual_mlp, cnn. [default: 1; cnn: 2]")]
Activation = Annotated[
    str | None,
    typer.Option(autocompletion=completion.activations, help="See 'firstguess activations'. [default: relu]"),
]
Norm = Annotated[
    str | None,
    typer.Option(
        autocompletion=completion.norms,
        help="batchnorm, layernorm, rmsnorm, groupnorm, batchnorm(batch=16). [default: none]",
    ),
]
NormPlacement = Annotated[
    completion.Placement | None, typer.Option(help="Norm before or after the activation. [default: before]")
]
Pool = Annotated[str | None, typer.Option(help="maxpool(4) or avgpool(4) after the activation (mlp, cnn).")]
WeightVar = Annotated[float | None, typer.Option(help="σw²: weights have variance σw²/fan-in. [default: 2]")]
BiasVar = Annotated[float | None, typer.Option(help="σb², the variance of biases. [default: 0]")]

# Of a model.
Init = Annotated[
    str | None,
    typer.Option(
        help="For a model: kaiming_normal, kaiming_uniform, xavier_normal, xavier_uniform, orthogonal, or "
        "WEIGHT_VAR,BIAS_VAR."
    ),
]
Redraw = Annotated[
    str | None,
    typer.Option(
        help="For a model, what to re-initialize: names such as 'classifier*' (several with commas), head or all; the "
        "rest is kept. [default: what does not look trained]"
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
