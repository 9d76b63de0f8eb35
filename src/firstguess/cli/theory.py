"""`firstguess phases`, `tune`, `activations` and `coordinates`: commands on theory besides `predict`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

import firstguess as fg
from firstguess.base import files
from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.base.text import capital, is_path
from firstguess.cli import output, subjects
from firstguess.cli.output import Figure, Json, check_figure, examples, print_json, print_pairs, print_table

if TYPE_CHECKING:
    from firstguess.modules.coordinates import Coordinates


# -- Edge of chaos, neutrality line, fixed points, phase diagrams -----------------------------------------------------


@examples("""Examples:

firstguess phases tanh --bias-var 0.05

firstguess phases tanh --bias-var 0.05 --weight-var 2.5

firstguess phases "relu > maxpool(2)" --figure phases.png
""")
def phases(
    block: Annotated[
        str,
        typer.Argument(
            autocompletion=subjects.activations,
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
    """Show where a deep network with this activation is ordered, at the edge of chaos, chaotic, biased or neutral.

    Ordered: gradients vanish going back. Chaotic: they explode. At the edge they keep their size: deep plain networks
    train there, although they start deeply (but briefly) biased. Beyond the neutrality line γ stays below 1.
    """
    import numpy as np

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
                expected = "a range from a smaller to a larger number, not below 0"
                raise InvalidInput(expected, got=f"{a} {b}", where=axis, hint=f"{axis} 0 4")
        size = 100 if stage is None else 25  # a residual block or BatchNorm goes point by point
        step = (high - low) / size
        weights = np.linspace(low + step, high, size) if weight_range or not found["variance_edge"] else None
        diagram = fg.phase_diagram(block, weight_vars=weights, bias_vars=np.linspace(*bias_range, size))
        output.save_figure(fg.figures.phase_diagram_chart(diagram, mark=own), figure)


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
            ("  gradient growth χ per layer", f"{chi:.6g}"),
            ("  depth scale of correlations", f"{scale:.4g} layers"),
        ]
        if fixed["note"]:
            pairs.append(("  note", fixed["note"]))
    print_pairs(f"Phases of {block} at bias_var {bias_var:g}", pairs)


# -- The bias you want at the gradients you need ----------------------------------------------------------------------


@subjects.takes("words", {name: subjects.NETWORK[name] for name in ("depth", "activation", "norm")})
@subjects.takes("source", {name: subjects.DATA[name] for name in ("data", "data_dir", "standardize")})
@examples("""Examples:

firstguess tune "20 x [dense(weight_var=2) > relu] > dense(weight_var=2)" --gamma 0.5

firstguess tune mlp --depth 50 --activation gelu --gamma 0.2 --code model.py

firstguess tune residual_mlp --depth 20 --gamma 1 --data digits --json

firstguess tune mlp --depth 20 --gamma 0.5 --figure frontier.png
""")
def tune(
    network: Annotated[
        str,
        typer.Argument(
            autocompletion=subjects.builders, help='A description, or "mlp" or "residual_mlp" with options.'
        ),
    ],
    gamma: Annotated[float, typer.Option(help="The wanted γ of the output; 0.01 is even.")],
    words: dict[str, Any],
    source: dict[str, Any],
    gradients: Annotated[
        float | None, typer.Option(help="Factor on the mean square of gradients, last layer to first.")
    ] = 1.0,
    knob: Annotated[
        str | None, typer.Option(help="slope, branch_scale, variances or affine. [default: by activation]")
    ] = None,
    width: Annotated[int, typer.Option(help="Units of a layer in the code.")] = 100,
    code: Annotated[Path | None, typer.Option(help="Write runnable PyTorch there.", metavar="FILE")] = None,
    json: Json = False,
    figure: Figure = None,
) -> None:
    """Tune a network: the bias you want, at the gradients you need.

    At constant gradients γ is the network's nonlinearity, (1 + γ)·g = P: a parameter moves it along that frontier.
    --figure draws it, with where the network stands and where other remedies lead. Tuning lets a deep plain network
    train as well as a shallow one, not better.
    """
    check_figure(figure)
    net = subjects.described_by(network, words, None)
    points: Any = subjects.DataOptions(**source).load() if "data" in source else None
    s = fg.tune(net, gamma=gamma, gradients=gradients, knob=cast("Any", knob), data=points)

    def chart() -> Any:
        from firstguess.theory.frontier import TARGETS

        return fg.frontier(net, targets=tuple(sorted({*TARGETS, gamma})), data=points).plot()

    output.show(s, json=json, figure=figure, chart=chart)
    if code is not None:
        files.write(code, s.code(width=width).encode())
        output.say(f"wrote {code}")


# -- The table of activations -----------------------------------------------------------------------------------------


@examples("""Examples:

firstguess activations

firstguess activations --q 2 --json
""")
def activations(
    q: Annotated[float, typer.Option(help="Variance of the pre-activations.")] = 1.0,
    json: Json = False,
) -> None:
    """List every activation: its mean, the bias of one layer, its gain, and whether it causes bias.

    γ₁ is the drift ratio after one hidden layer on centred inputs; the gain is the weight variance that keeps the
    signal's size, σw² = q/E φ². An activation causes bias iff its mean on centred inputs is not zero.
    """
    from firstguess.network.activations.registry import check_variance, names

    check_variance(q, "activations", "--q 1")
    rows: list[dict[str, Any]] = []
    cells: list[tuple[str, ...]] = []
    for name in names():
        phi = fg.activation(name)
        m, slope, bias = phi.moments(0.0, q), phi.mean_square_slope(q), bool(fg.causes_bias(phi, q=q))
        first, gain = m.mean**2 / m.spread, q / (m.mean**2 + m.spread)
        row = {"name": str(phi), "mean": m.mean, "gamma_1": first, "gain": gain, "mean_square_slope": slope}
        rows.append({**row, "causes_bias": bias})
        shown = f"{m.mean:z.6f}", f"{first:.6f}", f"{gain:.6f}", "∞" if math.isinf(slope) else f"{slope:.6f}"
        cells.append((str(phi), *shown, "yes" if bias else "no"))
    if json:
        print_json({"q": q, "activations": rows})
        return
    columns = ("activation", "mean E φ", "γ₁", "gain", "E φ'²", "causes bias?")
    print_table(f"Activations at q = {q:g}", columns, cells)


# Coordinates: do sizes of activations and gradients depend on width, in the first steps?


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
    options: dict[str, Any] = {"widths": sizes, "steps": steps, "optimizer": optimizer, "lr": lr, "inits": inits}
    found = measured(chosen, given, points=given.n, seed=source.seed, **options)
    if json:
        print_json(found.to_dict())
    else:
        _print(found)
    if figure is not None:
        output.save_figure(chart(found), figure)


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
    columns = (*columns, f"gradient at {first}", f"at {last}")
    print_table(f"Coordinates, {found.optimizer} at lr {found.lr:g}", columns, rows)
    output.say(f"{found.verdict} (average of {found.inits} initializations)")


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
    subtitle = [f"{found.optimizer} at learning rate {found.lr:g}; {found.inits} initializations{expected}."]
    axes: dict[str, Any] = {"x_title": "Width", "y_title": "Size of a layer's output"}
    title, axes = capital(found.verdict), axes | {"x_scale": "log", "y_scale": "log"}
    return lines_chart(panels, title=title, subtitle=subtitle, columns=2, **axes)
