"""`firstguess data`: what data bring before any network is chosen."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from firstguess.base.progress import bar
from firstguess.cli import completion
from firstguess.cli.output import Json, print_json, print_pairs
from firstguess.cli.subjects import Standardize

EXAMPLES = """Examples:

firstguess data digits

firstguess data mnist:even-odd --data-dir ~/data --points 5000 --json
"""

DATA_HELP = (
    "digits, mnist, fashion_mnist, cifar10, cifar100, tiny-imagenet (with a choice: mnist:even-odd), "
    "blob:n=2000,d=100, or a file."
)
DataDir = Annotated[
    str | None, typer.Option("--data-dir", metavar="FOLDER", help="Where data sets are. [default: $FIRSTGUESS_DATA]")
]


def data(
    name: Annotated[str, typer.Argument(metavar="DATA", autocompletion=completion.data_sets, help=DATA_HELP)],
    data_dir: DataDir = None,
    points: Annotated[int | None, typer.Option(help="So many points, drawn at random. [default: all]")] = None,
    standardize: Standardize = None,
    seed: Annotated[int, typer.Option(help="Of that drawing.")] = 0,
    json: Json = False,
) -> None:
    """Show the bias that data bring: γ₀, how few directions tell points apart, and which standardization helps.

    γ₀ is the drift ratio of the points: how far their common mean outweighs their differences. Every network starts
    from it. Points are prepared as in every command; --standardize none leaves them raw.
    """
    import firstguess as fg

    with bar("reading") as tick:
        how = cast("fg.data.Standardization | None", standardize)  # load checks it
        given = fg.data.load(name, data_dir=data_dir, points=points, standardize=how, seed=seed, progress=tick)
    bias = fg.data_bias(given, seed=seed)
    if json:
        print_json(bias.to_dict())
    else:
        print_pairs("Data bias", bias.summary())
