"""`firstguess activations`: the table of activations."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer

from firstguess.cli.output import Json, print_json, print_table

EXAMPLES = """Examples:

firstguess activations

firstguess activations --q 2 --json
"""


def activations(
    q: Annotated[float, typer.Option(help="Variance of the pre-activations.")] = 1.0,
    json: Json = False,
) -> None:
    """List every activation: its mean, the bias of one layer, its gain, and whether it causes bias.

    γ₁ is the drift ratio after one hidden layer on centred inputs; the gain is the weight variance that keeps the
    signal's size, σw² = q/E φ². An activation causes bias iff its mean on centred inputs is not zero.
    """
    import firstguess as fg
    from firstguess.network.activations.registry import check_variance, names

    check_variance(q, "activations", "--q 1")
    rows: list[dict[str, Any]] = []
    for name in names():
        phi = fg.activation(name)
        m = phi.moments(0.0, q)
        rows.append(
            {
                "name": str(phi),
                "mean": m.mean,
                "gamma_1": m.mean**2 / m.spread,
                "gain": q / (m.mean**2 + m.spread),
                "mean_square_slope": phi.mean_square_slope(q),
                "causes_bias": bool(fg.causes_bias(phi, q=q)),
            }
        )
    if json:
        print_json({"q": q, "activations": rows})
        return
    print_table(
        f"Activations at q = {q:g}",
        ("activation", "mean E φ", "γ₁", "gain", "E φ'²", "causes bias?"),
        [
            (
                r["name"],
                f"{r['mean']:z.6f}",
                f"{r['gamma_1']:.6f}",
                f"{r['gain']:.6f}",
                "∞" if math.isinf(r["mean_square_slope"]) else f"{r['mean_square_slope']:.6f}",
                "yes" if r["causes_bias"] else "no",
            )
            for r in rows
        ],
    )
