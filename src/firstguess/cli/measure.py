"""`firstguess measure`: draw many untrained networks, run data through them, count."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from firstguess.base.progress import bar
from firstguess.cli import on_data, subjects
from firstguess.cli.output import Figure, Json, check_figure, leave_if_interrupted, print_json, say

EXAMPLES = """Examples:

firstguess measure "5 x [dense(weight_var=2) > relu] > dense(weight_var=2)" --data digits --inits 500

firstguess measure package.module:factory --data blob:n=2000,d=3072 --inits 100

firstguess measure mymodels:Net --data mnist:even-odd --data-dir data --init kaiming_normal --figure law.png
"""


def measure(
    what: subjects.Subject,
    data: subjects.DataName,
    data_dir: subjects.DataDir = None,
    inits: Annotated[int | None, typer.Option(help="Number of initializations. [default: 100]")] = None,
    width: subjects.Width = 1000,
    classes: subjects.Classes = None,
    points: subjects.Points = None,
    batch_size: subjects.BatchSize = None,
    standardize: subjects.Standardize = None,
    shift: subjects.Shift = 0.0,
    init: subjects.Init = None,
    redraw: subjects.Redraw = None,
    precision: Annotated[float | None, typer.Option(help="Stop when the 95 % interval is this narrow (±).")] = None,
    seed: subjects.Seed = 0,
    json: Json = False,
    figure: Figure = None,
) -> None:
    """Measure how untrained networks spread their guesses, with error bars: the ensemble reading.

    Ctrl-C keeps what was computed.
    """
    import firstguess as fg

    check_figure(figure)
    chosen, options = subjects.subject(what, init=init, width=width, redraw=redraw)
    source: Any = subjects.load_data(
        data, data_dir=data_dir, points=points, standardize=standardize, shift=shift, seed=seed
    )
    with bar("drawing networks") as drawing:
        m = fg.measure(
            chosen,
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
        if isinstance(chosen, str):
            prediction = on_data.closed_form(fg.Network.parse(chosen, classes=m.classes), source)
            chart = fg.figures.compare_chart(prediction, m)
        else:
            chart = fg.figures.readings_chart(None, None, m)
        fg.figures.save(chart, figure)
        say(f"wrote {figure}")
    leave_if_interrupted(m.findings)
