"""The options that commands share, each written once, what Tab offers for them, and what they mean: a network, data."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from firstguess.base.errors import InvalidInput
from firstguess.base.progress import bar
from firstguess.base.text import is_path

if TYPE_CHECKING:
    from firstguess.data import Data
    from firstguess.network.activations.record import Activation
    from firstguess.network.network import Network

WORDS = ("mlp", "residual_mlp", "cnn")
NORMS = ("batchnorm", "layernorm", "rmsnorm", "groupnorm", "instancenorm")
STANDARDIZATIONS = ("none", "global", "channel", "pixel", "centre")


def _of(words: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]


def _offering(words: Iterable[str]) -> Callable[[str], list[str]]:
    def offer(incomplete: str) -> list[str]:  # a function, whose annotations Typer reads
        return _of(words, incomplete)

    return offer


def activations(incomplete: str) -> list[str]:
    from firstguess.network.activations.registry import names

    return _of(names(), incomplete)


builders, norms, standardizations = map(_offering, (WORDS, NORMS, STANDARDIZATIONS))


def data_sets(incomplete: str) -> list[str]:
    from firstguess.data.sources import names

    return _of(names(), incomplete)


# -- Options -----------------------------------------------------------------------------------------------------------


class Placement(StrEnum):
    before = "before"
    after = "after"


POINTS = 1000  # of larger data sets, where --points does not say otherwise
LARGE = ("mnist", "fashion_mnist", "cifar10")  # have more than anyone asks for

Subject = Annotated[
    str,
    typer.Argument(
        autocompletion=builders,
        help="A description, or module:factory (a class or function that makes a model).",
    ),
]
DataName = Annotated[
    str,
    typer.Option(
        "--data",
        autocompletion=data_sets,
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
        autocompletion=standardizations,
        help="global, channel, pixel, centre or none. [default: as in the papers]",
    ),
]
Points = Annotated[int | None, typer.Option(help="Random subset of this size. [default: 1000, or all]")]
AllPoints = Annotated[int | None, typer.Option(help="Random subset of this size. [default: all]")]
Shift = Annotated[float, typer.Option(help="Add a constant to all inputs.")]
Inits = Annotated[int, typer.Option(help="Number of initializations.")]
Width = Annotated[int, typer.Option(help="Units of layers that name no width (descriptions).")]
Classes = Annotated[int | None, typer.Option(help="Number of classes. [default: the data's, or 2]")]
BatchSize = Annotated[int | None, typer.Option(help="Batch size for a model; BatchNorm depends on it.")]
Seed = Annotated[int, typer.Option(help="Random seed.")]

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

# -- Groups of options -------------------------------------------------------------------------------------------------


def option(kind: Any, help: str, **more: Any) -> Any:
    """An option of a group, which need not be given."""
    return Annotated[kind | None, typer.Option(help=help, **more)]


def flag(name: str, help: str) -> Any:
    """A flag of a group."""
    return Annotated[bool, typer.Option(name, help=help)]


def dashed(name: str) -> str:
    """An option as it is typed."""
    return f"--{name.replace('_', '-')}"


# Of a network that is named by its builder.
NETWORK: dict[str, Any] = {
    "depth": option(int, "Hidden layers of mlp, residual_mlp, cnn. [default: 1; cnn: 2]"),
    "activation": option(str, "See 'firstguess activations'. [default: relu]", autocompletion=activations),
    "norm": option(str, f"{', '.join(NORMS[:4])}, batchnorm(batch=16). [default: none]", autocompletion=norms),
    "placement": option(Placement, "Norm before or after the activation. [default: before]"),
    "pool": option(str, "maxpool(4) or avgpool(4) after the activation (mlp, cnn)."),
    "weight_var": option(float, "σw²: weights have variance σw²/fan-in. [default: 2]"),
    "bias_var": option(float, "σb², the variance of biases. [default: 0]"),
}

# Of `fg.train` and `fg.predict_training`.
_OPTIMIZERS = "gd (all points), sgd or adam; to train a model also a class of torch.optim, or module:function."
TRAINING: dict[str, Any] = {
    "lr": option(float, "Learning rate. [default: 0.001]"),
    "steps": option(int, "Steps of training. [default: 1000; predicted: 10000]"),
    "optimizer": option(str, f"{_OPTIMIZERS} [default: adam; predicted: gd]"),
    "batch": option(int, "Size of mini-batches. [default: all points]"),
    "loss": option(str, "cross-entropy or squared. [default: cross-entropy]"),
    "weight_decay": option(float, "As torch's optimizers have it. [default: 0]"),
    "start": option(str, "Which starts to keep: any, even (or neutral) or biased. [default: any]"),
}
SCHEDULE: dict[str, Any] = {
    "schedule": option(str, "Of the learning rate: constant, cosine or linear. [default: constant]"),
    "warmup": option(int, "Steps of warm-up. [default: 0]"),
}

# Of data that a command has already, and of those that it reads: as `DataOptions`.
SOME_DATA: dict[str, Any] = {"data_dir": DataDir, "points": Points, "standardize": Standardize, "seed": Seed}
DATA: dict[str, Any] = {"data": DataName, **SOME_DATA}

# Of what is measured: `subject` takes them.
MODEL: dict[str, Any] = {"width": Width, "init": Init, "redraw": Redraw}

REQUIRED: Any = inspect.Parameter.empty


def takes(
    name: str,
    group: Mapping[str, Any],
    *,
    panel: str | None = None,
    hidden: bool = False,
    make: Callable[..., Any] | None = None,
    **defaults: Any,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command that has the options of a group where it names one parameter; it gets those that were given, as a dict,
    or what `make` makes of all of them.

    `panel` is their heading in the help; an option is None by default, unless `defaults` have it.
    """

    def wrapped(function: Callable[..., None]) -> Callable[..., None]:
        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(function, eval_str=True).parameters.values():
            parameter = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            if parameter.name != name:
                parameters.append(parameter)
                continue
            for option, annotation in group.items():
                kind, info = get_args(annotation)
                info = copy.copy(info)
                info.rich_help_panel, info.hidden = panel, hidden
                if defaults.get(option) not in (None, REQUIRED):  # which typer says itself
                    info.help = info.help.partition(" [default:")[0]
                one = parameter.replace(name=option, default=defaults.get(option), annotation=Annotated[kind, info])
                parameters.append(one)

        @functools.wraps(function)
        def command(**given: Any) -> None:
            found = {option: value for option in group if (value := given.pop(option)) is not None}
            function(**{name: found if make is None else make(**found)}, **given)

        command.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]
        command.__annotations__ = {one.name: one.annotation for one in parameters}
        del command.__wrapped__
        return command

    return wrapped


# -- What they mean ----------------------------------------------------------------------------------------------------


def described_by(network: str, options: Mapping[str, Any], classes: int | None) -> Network:
    """What a word and its options say, or a text without any; `options` that are None were not given."""
    from firstguess.network.builders import BUILDERS, as_network

    given = {name: value for name, value in options.items() if value is not None}
    if network not in WORDS:
        text = as_network(network, classes)  # what is no description at all says so first
        if given:
            names = ", ".join(map(dashed, given))
            expected = "options for mlp, residual_mlp or cnn only together with one of these words"
            hint = 'write them into the text, e.g. "20 x [dense(weight_var=2) > layernorm > relu] > dense"'
            raise InvalidInput(expected, got=f"{names} with a description", hint=hint)
        return text
    if network == "residual_mlp" and "pool" in given:
        hint = "describe the network as text instead"
        raise InvalidInput("no --pool with residual_mlp", got=given["pool"], hint=hint)
    if "activation" in given:
        given["activation"] = _activation(str(given["activation"]))
    if "placement" in given:
        place, words = str(given["placement"].value), {"before": "before branch", "after": "after sum"}
        given["placement"] = words[place] if network == "residual_mlp" else place
    return BUILDERS[network](**given, classes=2 if classes is None else classes)


def _activation(text: str) -> Activation:
    """`leaky_relu(0.2)` and `centered(relu)` as well as a plain name."""
    from firstguess.network.grammar import parse_layers
    from firstguess.network.layers import Activate

    layers = parse_layers(text)
    if len(layers) != 1 or not isinstance(layers[0], Activate):
        raise InvalidInput("one activation", got=text, where="--activation", hint="firstguess activations")
    return layers[0].phi


def subject(what: str, *, width: int, init: str | None = None, redraw: str | None = None) -> tuple[Any, dict[str, Any]]:
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


@dataclass(frozen=True)
class DataOptions:
    """What the options say about data."""

    data: str
    data_dir: str | Path | None = None
    standardize: str | None = None
    shift: float = 0.0
    points: int | None = None
    seed: int = 0

    def load(self, most: int | None = None) -> Data:
        """Data by name, with a progress bar; with `most`, at most that many of their points."""
        from firstguess.data import load

        points = self.points if most is None else most if self.data.partition(":")[0] in LARGE else None
        known: dict[str, Any] = {"data_dir": self.data_dir, "points": points, "standardize": self.standardize}
        with bar("reading data") as tick:
            found = load(self.data, shift=self.shift, seed=self.seed, progress=tick, **known)
        return found.subset(most, self.seed) if most is not None and found.n > most else found

    def some(self) -> Data:
        """As many points as were asked for; where nothing was said, at most 1000."""
        return self.load(POINTS if self.points is None else None)


reads_data = functools.partial(takes, "source", DATA, make=DataOptions, data=REQUIRED, seed=0)
takes_model = functools.partial(takes, "model", MODEL, width=1000)


def init_option(text: str) -> Any:
    if "," not in text:
        return text
    try:
        weight_var, bias_var = (float(part) for part in text.split(","))
    except ValueError:
        raise InvalidInput("two numbers for --init", got=text, hint="--init 2,0") from None
    return weight_var, bias_var
