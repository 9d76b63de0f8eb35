"""`firstguess coordinates`: do sizes of activations and gradients depend on width, in the first steps?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from firstguess.base.errors import InvalidInput
from firstguess.base.text import is_path
from firstguess.cli import subjects
from firstguess.cli.output import Figure, Json, check_figure, examples, print_json, print_table, save_figure, say

if TYPE_CHECKING:
    from firstguess.modules.coordinates import Coordinates


@subjects.reads_data(points=128)
@examples("""Examples:

firstguess coordinates "3 x [dense(weight_var=2) > relu] > dense" --data digits --figure coordinates.png

firstguess coordinates mymodels:net --data digits --widths 64,128,256 --steps 5 --lr 1e-3 --json
""")
def coordinates(
    what: Annotated[
        str,
        typer.Argument(
            autocompletion=subjects.builders,
            metavar="NETWORK",
            help="A description, or module:function, a function that takes a width and returns a model.",
        ),
    ],
    source: subjects.DataOptions,
    widths: Annotated[str, typer.Option(help="Widths, separated by commas.")] = "64,128,256,512",
    steps: Annotated[int, typer.Option(help="Steps of training.")] = 3,
    optimizer: Annotated[str, typer.Option(help="adam or sgd.")] = "adam",
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 1e-3,
    inits: subjects.Inits = 5,
    json: Json = False,
    figure: Figure = None,
) -> None:
    """Check coordinates: sizes of activations and gradients by layer, over width and the first steps of training.

    Lines that stay flat over width are what maximal update parameterization (μP) asks for. At initialization the
    predicted size of wide layers is drawn as well, where it is known.
    """  # fmt: skip
    from firstguess.modules.coordinates import coordinates as measured

    check_figure(figure)
    try:
        sizes = [int(part) for part in widths.split(",")]
    except ValueError:
        raise InvalidInput("whole numbers", got=widths, where="--widths", hint="--widths 64,128,256") from None
    chosen: Any = what
    if is_path(what):
        from firstguess.modules.members.sources import found_at

        chosen = found_at(what)
    given = source.load(most=source.points)
    found = measured(
        chosen, given, widths=sizes, steps=steps, optimizer=optimizer, lr=lr, inits=inits, points=given.n,
        seed=source.seed,
    )  # fmt: skip
    if json:
        print_json(found.to_dict())
    else:
        _print(found)
    if figure is not None:
        save_figure(chart(found), figure)


def _print(found: Coordinates) -> None:
    """A row per layer and step: sizes at the smallest and largest width, and the power of width between them."""
    rows = [
        (
            layer, str(step), f"{found.outputs[0, step, k]:.3g}", f"{found.outputs[-1, step, k]:.3g}",
            f"{found.exponents[step, k]:+.2f} ± {found.exponents_se[step, k]:.2f}",
            f"{found.predicted[k]:.3g}" if found.predicted and step == 0 else "",
            f"{found.gradients[0, step, k]:.2g}", f"{found.gradients[-1, step, k]:.2g}",
        )
        for k, layer in enumerate(found.layers)
        for step in range(found.outputs.shape[1])
    ]  # fmt: skip
    first, last = found.widths[0], found.widths[-1]
    columns = ("layer", "step", f"size at {first}", f"at {last}", "power of width", "predicted")
    print_table(
        f"Coordinates, {found.optimizer} at lr {found.lr:g}", (*columns, f"gradient at {first}", f"at {last}"), rows
    )
    say(f"{found.verdict} (average of {found.inits} initializations)")


def chart(found: Coordinates) -> Any:
    """Outputs over width, a line per layer, a panel per step; dashed: predicted for wide layers."""
    from firstguess.show.charts.lines import Series, lines_chart

    panels: dict[str, list[Series]] = {}
    for step in range(found.outputs.shape[1]):
        name = "at initialization" if step == 0 else f"after {step} step{'s' if step > 1 else ''}"
        panels[name] = [
            Series(layer, found.widths, found.outputs[:, step, k], found.outputs_se[:, step, k])
            for k, layer in enumerate(found.layers)
        ]
        if step == 0 and found.predicted:
            ends = (found.widths[0], found.widths[-1])
            panels[name] += [
                Series(layer, ends, (size, size), mark="dashed")
                for layer, size in zip(found.layers, found.predicted, strict=True)
            ]
    expected = "; dashed: predicted for wide layers" if found.predicted else ""
    return lines_chart(
        panels,
        title=found.verdict[0].upper() + found.verdict[1:],
        subtitle=[f"{found.optimizer} at learning rate {found.lr:g}; {found.inits} initializations{expected}."],
        x_title="Width",
        y_title="Size of a layer's output",
        x_scale="log",
        y_scale="log",
        columns=2,
    )
