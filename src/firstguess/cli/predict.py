"""`firstguess predict`: γ by layer and the law of the guesses, without drawing a weight."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from firstguess.cli.output import Figure, Json, check_figure, print_json, print_pairs, print_table, say
from firstguess.errors import InvalidInput

if TYPE_CHECKING:
    from firstguess.activations import Activation

EXAMPLES = """Examples:

firstguess predict mlp --depth 20 --norm layernorm --placement before

firstguess predict "20 x [dense(weight_var=2) > layernorm > relu] > dense(weight_var=2)" --classes 10

firstguess predict cnn --activation tanh --pool "avgpool(4)" --figure law.png
"""


class Placement(StrEnum):
    before = "before"
    after = "after"


class Drawing(StrEnum):
    guesses = "guesses"
    depth = "depth"


def predict(
    network: Annotated[
        str,
        typer.Argument(
            help="mlp, residual_mlp, cnn, or a description such as "
            '"20 x [dense(weight_var=2) > relu] > dense(weight_var=2)".'
        ),
    ],
    depth: Annotated[int | None, typer.Option(help="Hidden layers (mlp, residual_mlp, cnn). [default: 1]")] = None,
    activation: Annotated[str | None, typer.Option(help="See 'firstguess activations'. [default: relu]")] = None,
    norm: Annotated[
        str | None, typer.Option(help="batchnorm, layernorm, rmsnorm, groupnorm, batchnorm(batch=16). [default: none]")
    ] = None,
    placement: Annotated[
        Placement | None, typer.Option(help="Of the norm, as to the activation. [default: before]")
    ] = None,
    pool: Annotated[str | None, typer.Option(help="maxpool(4) or avgpool(4) after the activation.")] = None,
    weight_var: Annotated[
        float | None, typer.Option(help="σw²: weights have variance σw²/fan-in. [default: 2]")
    ] = None,
    bias_var: Annotated[float | None, typer.Option(help="σb², the variance of biases. [default: 0]")] = None,
    classes: Annotated[int, typer.Option(help="Number of classes.")] = 2,
    points: Annotated[int | None, typer.Option(help="Size of the data set. [default: infinite]")] = None,
    mean_square: Annotated[float, typer.Option(help="m0 of the inputs: |mean|²/d; 0 is centred.")] = 0.0,
    variance: Annotated[float, typer.Option(help="v0 of the inputs: total variance/d.")] = 1.0,
    layers: Annotated[bool, typer.Option("--layers", help="Show every layer.")] = False,
    json: Json = False,
    figure: Figure = None,
    draw: Annotated[
        Drawing, typer.Option(help="What --figure shows: the law of the guesses, or γ by depth.")
    ] = Drawing.guesses,
) -> None:
    """Predict how an untrained network spreads its guesses over the classes.

    Closed form: i.i.d. inputs, wide layers. γ is the drift ratio: below 1 neutral, above 1 biased; γ of two classes
    fixes the whole law of the guess fractions.
    """
    import firstguess as fg

    check_figure(figure)
    builders: dict[str, Callable[..., fg.Network]] = {"mlp": fg.mlp, "residual_mlp": fg.residual_mlp, "cnn": fg.cnn}
    given: dict[str, Any] = {
        k: v
        for k, v in {
            "depth": depth,
            "activation": activation,
            "norm": norm,
            "placement": placement,
            "pool": pool,
            "weight_var": weight_var,
            "bias_var": bias_var,
        }.items()
        if v is not None
    }
    if network in builders:
        if network == "residual_mlp" and pool is not None:
            raise InvalidInput("no --pool with residual_mlp", got=pool, hint="describe the network as text instead")
        if "activation" in given:
            given["activation"] = _activation(str(activation))
        if placement is not None:
            words = {"before": "before branch", "after": "after sum"}
            given["placement"] = words[placement.value] if network == "residual_mlp" else placement.value
        described = builders[network](**given, classes=classes)
    else:
        if given:
            options = ", ".join("--" + k.replace("_", "-") for k in given)
            raise InvalidInput(
                "options for mlp, residual_mlp or cnn only together with one of these words",
                got=f"{options} with a description",
                hint='write them into the text, e.g. "20 x [dense(weight_var=2) > layernorm > relu] > dense"',
            )
        described = fg.Network.parse(network, classes=classes)
    inputs = fg.Inputs(mean_square=mean_square, variance=variance)
    prediction = fg.predict(described, inputs=inputs, points=points)
    if json:
        print_json(prediction.to_dict())
    else:
        print_pairs(f"Prediction ({prediction.reading}, {classes} classes)", prediction.summary())
        if layers:
            rows = [
                (
                    f"{i}  {r.layer}",
                    f"{r.gamma:.6g}",
                    f"{r.correlation:.6g}",
                    f"{r.log_q:.5g}",
                    "–" if r.gradient is None else f"{r.gradient:.5g}",
                )
                for i, r in enumerate(prediction.layers, start=1)
            ]
            print_table("", ("layer", "γ", "c", "log q", "gradient factor"), rows)
    if figure is not None:
        chart = (
            fg.figures.guesses_chart(prediction)
            if draw is Drawing.guesses
            else fg.figures.gamma_by_depth_chart([prediction])
        )
        fg.figures.save(chart, figure)
        say(f"wrote {figure}")


def _activation(text: str) -> Activation:
    """`leaky_relu(0.2)` and `centered(relu)` as well as a plain name."""
    from firstguess.layers import Activate, parse_layers

    layers = parse_layers(text)
    if len(layers) != 1 or not isinstance(layers[0], Activate):
        raise InvalidInput("one activation", got=text, where="--activation", hint="firstguess activations")
    return layers[0].phi
