"""`firstguess phases`: edge of chaos, neutrality line, fixed points, phase diagrams."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer

from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.cli import completion
from firstguess.cli.output import Figure, Json, check_figure, print_json, print_pairs, say

EXAMPLES = """Examples:

firstguess phases tanh --bias-var 0.05

firstguess phases tanh --bias-var 0.05 --weight-var 2.5

firstguess phases "relu > maxpool(2)" --figure phases.png
"""


def phases(
    block: Annotated[
        str,
        typer.Argument(
            autocompletion=completion.activations,
            help='An activation, with pools if you like: tanh, "relu > maxpool(2)".',
        ),
    ],
    bias_var: Annotated[float, typer.Option(help="σb², the variance of biases.")] = 0.0,
    weight_var: Annotated[
        float | None, typer.Option(help="Also show the fixed point at this σw², and mark it in the figure.")
    ] = None,
    weight_range: Annotated[
        tuple[float, float] | None, typer.Option(help="σw² axis of the figure. [default: 0 to 4 or 5]")
    ] = None,
    bias_range: Annotated[tuple[float, float], typer.Option(help="σb² axis of the figure.")] = (0.0, 0.5),
    json: Json = False,
    figure: Figure = None,
) -> None:
    """Where a deep network with this activation is ordered, at the edge of chaos, chaotic, biased or neutral.

    Ordered: gradients vanish going back. Chaotic: they explode. At the edge they keep their size: deep plain networks
    train there, although they start deeply (but briefly) biased. Beyond the neutrality line γ stays below 1.
    """
    import numpy as np

    import firstguess as fg
    from firstguess.theory.phases.layer_map import as_block, as_stage

    check_figure(figure)
    stage = as_stage(block)
    if stage is None:
        as_block(block)  # a block without phases is an error, a missing line is not
    found: dict[str, Any] = {"block": block, "bias_var": bias_var}
    why: dict[str, str] = {}
    for name, compute in (
        ("edge_of_chaos", lambda: fg.edge_of_chaos(block, bias_var=bias_var)),
        ("variance_edge", lambda: fg.edge_of_chaos(block, bias_var=bias_var, kind="variance")),
        ("neutrality_line", lambda: fg.neutrality_line(block, bias_var=bias_var)),
    ):
        try:
            found[name] = compute()
        except InvalidInput:
            raise
        except FirstguessError as error:
            found[name], why[name] = None, str(error.got)
    own = None if weight_var is None else fg.fixed_point(block, weight_var=weight_var, bias_var=bias_var)
    if own is not None:
        found["fixed_point"] = own.to_dict()
    if json:
        print_json({**found, "notes": why})
    else:
        _show(block, bias_var, found, why)
    if figure is not None:
        if own is not None and weight_range is None and own.weight_var > 4.0:
            weight_range = (0.0, 1.25 * own.weight_var)
        low, high = weight_range or (0.0, 4.0)
        for axis, (a, b) in {"--weight-range": (low, high), "--bias-range": bias_range}.items():
            if not (math.isfinite(a) and math.isfinite(b) and 0.0 <= a < b):
                raise InvalidInput(
                    "a range from a smaller to a larger number, not below 0",
                    got=f"{a} {b}",
                    where=axis,
                    hint=f"{axis} 0 4",
                )
        size = 100 if stage is None else 25  # a residual block or BatchNorm goes point by point
        step = (high - low) / size
        weights = np.linspace(low + step, high, size) if weight_range or not found["variance_edge"] else None
        diagram = fg.phase_diagram(block, weight_vars=weights, bias_vars=np.linspace(*bias_range, size))
        fg.figures.save(fg.figures.phase_diagram_chart(diagram, mark=own), figure)
        say(f"wrote {figure}")


def _show(block: str, bias_var: float, found: dict[str, Any], why: dict[str, str]) -> None:
    def line(name: str) -> str:
        return f"weight_var {found[name]:.6f}" if found[name] is not None else why[name]

    pairs = [("edge of chaos: gradients keep their size", line("edge_of_chaos"))]
    if found["variance_edge"] is not None:
        pairs.append(("variance keeps its size", line("variance_edge")))
    pairs.append(("neutrality line: c* = 1/2", line("neutrality_line")))
    fixed = found.get("fixed_point")
    if fixed:
        q, c, gamma, chi, scale = (float(fixed[k]) for k in ("q", "c", "gamma", "chi", "depth_scale"))  # may be "inf"
        pairs += [
            (f"at weight_var {fixed['weight_var']:g}", fixed["name"]),
            ("  variance q", f"{q:.6g}"),
            ("  correlation c*, drift ratio γ", f"{c:.6g}, {gamma:.6g}"),
            ("  gradient growth χ a layer", f"{chi:.6g}"),
            ("  depth scale of correlations", f"{scale:.4g} layers"),
        ]
        if fixed["note"]:
            pairs.append(("  note", fixed["note"]))
    print_pairs(f"Phases of {block} at bias_var {bias_var:g}", pairs)
