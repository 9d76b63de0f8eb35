"""`firstguess tune`: the network with the bias you want at the gradients you need."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast

import typer

from firstguess.base import files
from firstguess.cli import completion, subjects
from firstguess.cli.completion import described_by
from firstguess.cli.output import Figure, Json, check_figure, print_json, say

EXAMPLES = """Examples:

firstguess tune "20 x [dense(weight_var=2) > relu] > dense(weight_var=2)" --gamma 0.5

firstguess tune mlp --depth 50 --activation gelu --gamma 0.2 --code model.py

firstguess tune residual_mlp --depth 20 --gamma 1 --data digits --json

firstguess tune mlp --depth 20 --gamma 0.5 --figure frontier.png
"""


def tune(
    network: Annotated[
        str,
        typer.Argument(
            autocompletion=completion.builders, help='A description, or "mlp" or "residual_mlp" with options.'
        ),
    ],
    gamma: Annotated[float, typer.Option(help="The wanted γ of the output; 0.01 is even.")],
    gradients: Annotated[
        float | None, typer.Option(help="Factor on the mean square of gradients, last layer to first.")
    ] = 1.0,
    knob: Annotated[
        str | None, typer.Option(help="slope, branch_scale, variances or affine. [default: by activation]")
    ] = None,
    depth: subjects.Depth = None,
    activation: subjects.Activation = None,
    norm: subjects.Norm = None,
    data: Annotated[
        str | None, typer.Option(autocompletion=completion.data_sets, help="Data whose own γ counts, such as digits.")
    ] = None,
    data_dir: subjects.DataDir = None,
    standardize: subjects.Standardize = None,
    width: Annotated[int, typer.Option(help="Units of a layer in the code.")] = 100,
    code: Annotated[Path | None, typer.Option(help="Write runnable PyTorch there.", metavar="FILE")] = None,
    json: Json = False,
    figure: Figure = None,
) -> None:
    """Tune a network: the bias you want, at the gradients you need.

    At constant gradients γ is the network's nonlinearity, (1 + γ)·g = P: a knob moves along that frontier. --figure
    draws it, with where the network stands and where other remedies lead. Tuning lets a deep
    plain network train as well as a shallow one, not better.
    """
    import firstguess as fg

    check_figure(figure)

    net = described_by(network, {"depth": depth, "activation": activation, "norm": norm}, None)
    points: Any = None
    if data is not None:
        points = subjects.load_data(data, data_dir=data_dir, points=None, standardize=standardize)
    s = fg.tune(net, gamma=gamma, gradients=gradients, knob=cast("Any", knob), data=points)
    if json:
        print_json(s.to_dict())
    else:
        typer.echo(str(s))
    if figure is not None:
        from firstguess.theory.frontier import TARGETS

        targets = tuple(sorted({*TARGETS, gamma}))
        chart = fg.figures.frontier_chart(fg.frontier(net, targets=targets, data=points))
        fg.figures.save(chart, figure)
        say(f"wrote {figure}")
    if code is not None:
        files.write(code, s.code(width=width).encode())
        say(f"wrote {code}")
