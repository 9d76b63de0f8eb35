"""`firstguess data`: what data bring before any network is chosen."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from firstguess.base.progress import bar
from firstguess.cli import completion, subjects
from firstguess.cli.output import Json, print_json, print_pairs

EXAMPLES = """Examples:

firstguess data digits

firstguess data mnist:even-odd --data-dir ~/data --points 5000 --json
"""


def data(
    name: Annotated[str, typer.Argument(metavar="DATA", autocompletion=completion.data_sets, help=subjects.DATA_HELP)],
    data_dir: subjects.DataDir = None,
    points: Annotated[int | None, typer.Option(help="Random subset of this size. [default: all]")] = None,
    standardize: subjects.Standardize = None,
    seed: subjects.Seed = 0,
    json: Json = False,
) -> None:
    """Show the bias that data alone cause: γ₀, how low-dimensional the data are, and which standardization helps.

    γ₀ is the drift ratio of the points: how far their common mean outweighs their differences. Every network starts
    from it. Points are prepared as in every command; --standardize none leaves them raw.
    """
    import firstguess as fg

    with bar("reading") as tick:
        how = cast("fg.data.Standardization | None", standardize)  # load checks it
        given = fg.data.load(
            name,
            data_dir=None if data_dir is None else str(data_dir),
            points=points,
            standardize=how,
            seed=seed,
            progress=tick,
        )
    bias = fg.data_bias(given, seed=seed)
    if json:
        print_json(bias.to_dict())
    else:
        print_pairs("Data bias", bias.summary())
