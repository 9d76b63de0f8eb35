"""`firstguess repair`: a model whose first guesses are as even as wanted, written as safetensors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast

import typer

from firstguess.base.errors import InvalidInput
from firstguess.base.text import is_path
from firstguess.cli import subjects
from firstguess.cli.output import Json, print_json, say

EXAMPLES = """Examples:

firstguess repair package.module:factory --data digits --out repaired.safetensors

firstguess repair mymodels:Net --data mnist:even-odd --data-dir data --gamma 0 --out net.safetensors
"""


def repair(
    what: Annotated[str, typer.Argument(help="A model's class or factory, package.module:name.", metavar="MODEL")],
    data: subjects.DataName,
    out: Annotated[Path, typer.Option(help="Write the weights there, as safetensors.", metavar="FILE")],
    data_dir: subjects.DataDir = None,
    gamma: Annotated[float, typer.Option(help="The wanted γ of the output; 0 removes all of the bias.")] = 0.2,
    how: Annotated[str, typer.Option(help="head: one bias is moved; layers: all are centred.")] = "head",
    points: Annotated[int, typer.Option(help="Points over which means are taken.")] = 512,
    standardize: subjects.Standardize = None,
    force: Annotated[bool, typer.Option("--force", help="Also a model that looks trained.")] = False,
    seed: subjects.Seed = 0,
    json: Json = False,
) -> None:
    """Write a copy of a model whose output bias is shifted so that no class is favoured on average.

    It changes first guesses, not trainability.
    """
    import torch
    from torch import nn

    import firstguess as fg
    from firstguess.modules.members.sources import found_at

    if not is_path(what):
        raise InvalidInput(
            "a model, package.module:name", got=what, where="repair", hint="firstguess tune for descriptions"
        )
    torch.manual_seed(seed)
    factory: Any = found_at(what)
    try:
        made: Any = factory()
    except Exception as error:  # of the user's code, or of what is no factory at all
        raise InvalidInput(
            "a factory of nn.Module, called without arguments", got=f"{type(error).__name__}: {error}", where=what
        ) from error
    if not isinstance(made, nn.Module):
        raise InvalidInput("a factory of nn.Module", got=type(made).__name__, where=what)
    source = subjects.load_data(
        data, data_dir=data_dir, points=points, standardize=standardize, seed=seed, at_most=True
    )
    fixed = fg.repair(made, source, gamma=gamma, how=cast("Any", how), points=points, force=force, seed=seed)
    fixed.save(out)
    if json:
        print_json(fixed.to_dict() | {"out": str(out)})
    else:
        typer.echo(str(fixed))
    say(f"wrote {out}")
