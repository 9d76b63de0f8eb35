"""`firstguess predict`: γ by layer and the distribution of class shares, without drawing a weight."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import firstguess as fg
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.progress import bar
from firstguess.base.text import four_digits, rounded_off, spaced, with_error, with_old_names
from firstguess.cli import output, subjects
from firstguess.cli.output import Figure, Json, check_figure, examples, print_json, print_pairs, print_table
from firstguess.cli.subjects import DataOptions, dashed, flag, option

if TYPE_CHECKING:
    from firstguess.data import Data
    from firstguess.ensemble.measurement import Measurement
    from firstguess.network.network import Network
    from firstguess.show.charts.theme import Chart
    from firstguess.theory.prediction import Prediction


# -- What finite size adds, and from which width on it adds little -----------------------------------------------------


def show(prediction: Prediction, infinite: Prediction | None) -> None:
    """Infinite size next to this one; nothing for a prediction that has no size."""
    size = prediction.finite_size
    if size is None or infinite is None:
        return
    sizes = [f"{name} {value}" for name, value in (("width", size.width), ("dimension", size.dimension)) if value]
    names = ["standard deviation of a class's share", "average share of the largest class"]
    names.append("chance that one class gets over 90 %")
    one, other = ((g.std(), g.expected_max(), g.prob_max_above(0.9)) for g in (infinite.guesses, prediction.guesses))
    found = zip(names, one, other, strict=True)
    rows = [(name, f"{a:.4f}", f"{b:.4f}", f"{b - a:+.4f}") for name, a, b in found]
    print_table("", ("guesses", "infinite size", ", ".join(sizes), "added"), rows)


def needed(network: Network, tolerance: float, inputs: fg.Inputs, *, alone: bool, json: bool) -> None:
    """The width from which on infinite theory is right to a tolerance."""
    if not alone:
        hint = "leave --data out: it is for i.i.d. inputs"
        raise InvalidInput("--width-needed without --data", got="both", hint=hint)
    width = fg.width_needed(network, tolerance=tolerance, inputs=inputs)
    if json:
        print_json({"network": network.to_dict(), "tolerance": tolerance, "width_needed": width})
        return
    right = f"from there on infinite theory has the standard deviation of a class's share right to {tolerance:g}"
    described = f"{four_digits(network)}  ({network.classes} classes)"
    print_pairs("Width needed", [("network", described), ("width", f"{spaced(width)}: {right}")])


class Standardize(StrEnum):
    none = "none"
    all = "global"
    channel = "channel"
    pixel = "pixel"
    centre = "centre"


class ChartChoice(StrEnum):
    guesses = "guesses"
    depth = "depth"


_HOW = "none, global, channel, pixel or centre. [default: channel for colour images, global for others]"
_SIZED = (
    "Units of layers that name no width: the guesses of such networks, compared with infinite width. Nearly even "
    "networks of width 100 are far from it. [default: infinite; measured ones: 1000]"
)
_NEEDED = "Only say from which width on infinite theory is right: the standard deviation of a class's share to this, "
_IID: dict[str, Any] = {
    "mean_square": option(float, "m0 of i.i.d. inputs: |mean|²/d. [default: 0]"),
    "variance": option(float, "v0 of i.i.d. inputs: total variance/d. [default: 1]"),
}
_GIVEN: dict[str, Any] = {
    "points": option(int, "Size of the data set. [default: infinite; with --data at most 1000]"),
    **_IID,
    "data": option(str, f"Your data instead of i.i.d. inputs: {subjects.DATA_HELP}", autocompletion=subjects.data_sets),
    "data_dir": subjects.DataDir,
    "standardize": option(Standardize, _HOW),
    "shift": option(float, "Added to every entry of the data. [default: 0]"),
    "draws": option(int, "Initializations to draw. [default: 10000]"),
    "seed": option(int, "Random seed. [default: 0]"),
    "compare": flag("--compare", "With --data: closed form, kernel and a measured ensemble side by side."),
    "inits": option(int, "Measured initializations, for --compare. [default: 100]"),
    "width": option(int, _SIZED),
    "dimension": option(
        int, "Dimensions of i.i.d. inputs, 1000 in the norm paper; data have their own. [default: infinite]"
    ),
    "width_needed": option(float, f"{_NEEDED}e.g. 0.02.", metavar="TOLERANCE"),
}


@subjects.takes("words", subjects.NETWORK, panel="A network named by mlp, residual_mlp or cnn")
@subjects.takes("given", _GIVEN, compare=False)
@subjects.takes("learning", {**subjects.TRAINING, **subjects.SCHEDULE}, hidden=True)
@examples("""Examples:

firstguess predict mlp --depth 20 --norm layernorm --placement before

firstguess predict "20 x [dense(weight_var=2) > layernorm > relu] > dense(weight_var=2)" --classes 10

firstguess predict mlp --depth 20 --norm layernorm --placement after --width 100 --dimension 1000 --points 1000

firstguess predict mlp --depth 20 --norm layernorm --placement after --width-needed 0.02

firstguess predict cnn --activation tanh --pool "avgpool(4)" --figure shares.png

firstguess predict mlp --depth 5 --data mnist:even-odd --data-dir ~/data --points 1000 --compare --figure readings.png
""")
def predict(
    network: Annotated[
        str,
        typer.Argument(
            autocompletion=subjects.builders,
            help="mlp, residual_mlp, cnn, or a description such as "
            '"20 x [dense(weight_var=2) > relu] > dense(weight_var=2)".',
        ),
    ],
    *,
    words: dict[str, Any],
    learning: dict[str, Any],
    classes: subjects.Classes = None,
    given: dict[str, Any],
    training: Annotated[bool, typer.Option("--training", hidden=True, help="As firstguess predict-training.")] = False,
    layers: Annotated[bool, typer.Option("--layers", help="Show every layer.")] = False,
    json: Json = False,
    figure: Figure = None,
    draw: Annotated[
        ChartChoice, typer.Option(help="What --figure shows: guesses (their distribution) or depth (γ by layer).")
    ] = ChartChoice.guesses,
) -> None:
    """Predict how an untrained network spreads its guesses over the classes.

    Closed form: i.i.d. inputs, wide layers. γ is the drift ratio: up to 0.05 even, below 1 leaning, above 1 biased,
    above 9.5 deeply biased; γ fixes the whole distribution of class shares. With --data, the kernel: these data, wide
    layers, a sampled distribution. With --width and --dimension, the guesses of networks of that size, and how they
    differ from those of infinite ones.
    """
    check_figure(figure)
    compare, tolerance = given.pop("compare"), given.pop("width_needed", None)
    iid = {name: value for name in (*_IID, "dimension") if (value := given.pop(name, None)) is not None}
    asked = _kernel_options(given, compare=compare, inputs=iid)
    described = subjects.described_by(network, words, classes)
    if training or learning:
        if not training:
            names = ", ".join(map(dashed, learning))
            raise InvalidInput(f"--training together with {names}", got="no --training", hint="--training")
        predicted_training(described, asked, learning, json=json, figure=figure)
        return
    inputs = fg.Inputs(mean_square=iid.get("mean_square", 0.0), variance=iid.get("variance", 1.0))
    if tolerance is not None:
        needed(described, tolerance, inputs, alone=asked is None, json=json)
        return
    infinite: fg.Prediction | None = None
    if asked is None:
        points, width, dimension = given.get("points"), given.get("width"), iid.get("dimension")
        prediction = infinite = fg.predict(described, inputs=inputs, points=points)
        if width is not None or dimension is not None:
            sized: dict[str, Any] = {"points": points, "width": width, "seed": given.get("seed", 0)}
            with bar("finite size") as tick:  # a chain of networks takes seconds
                finite = replace(inputs, dimension=dimension)
                prediction = fg.predict(described, inputs=finite, progress=tick, **sized)
        references: list[fg.Prediction] = []
    else:
        loaded = asked.some()
        if classes is None and loaded.classes is not None:
            described = fg.Network(described.layers, max(2, loaded.classes))
        if compare:
            compare_readings(described, loaded, asked, json=json, figure=figure)
            return
        prediction = kernel(described, loaded, asked, asked.width)
        if asked.width is not None and not json:
            infinite = kernel(described, loaded, asked)
        references = [closed_form(described, loaded)] if figure is not None else []
    if json:
        print_json(prediction.to_dict() if asked is None else short(prediction))
    else:
        _show(prediction, layers)
        show(prediction, infinite)
    if figure is not None:
        output.save_figure(_chart(prediction, references, draw), figure)


def _kernel_options(given: dict[str, Any], *, compare: bool, inputs: dict[str, float]) -> KernelOptions | None:
    """The options about data, or None without --data; refused where they contradict each other."""
    if "data" not in given:
        idle = [dashed(k) for k in given if k not in ("points", "width", "seed")] + ["--compare"] * compare
        if idle:
            raise InvalidInput(f"--data together with {', '.join(idle)}", got="no --data", hint="--data digits")
        return None
    if names := ", ".join(map(dashed, inputs)):
        hint = f"leave {names} out; --shift and --standardize change the data"
        expected = "either --data or a description of i.i.d. inputs"
        raise InvalidInput(expected, got=f"both --data and {names}", hint=hint)
    if "inits" in given and not compare:
        raise InvalidInput("--compare together with --inits", got="no --compare", hint="--compare")
    if "standardize" in given:
        given["standardize"] = given["standardize"].value
    return KernelOptions(**given)


def _show(prediction: Prediction, layers: bool) -> None:
    pairs = prediction.summary()
    if prediction.reading == "kernel":
        pairs += [("note", remark) for remark in prediction.assumptions]
    print_pairs(f"Prediction ({prediction.reading}, {prediction.network.classes} classes)", pairs)
    if not layers:
        return
    rows: list[tuple[str, ...]] = []
    for i, r in enumerate(prediction.layers, start=1):
        log_q = 0.0 if abs(r.log_q) < 1e-12 else r.log_q  # which is 0 but for rounding
        numbers = f"{rounded_off(r.gamma):.6g}", f"{rounded_off(r.correlation):.6g}", f"{log_q:.5g}"
        rows.append((f"{i}  {r.layer}", *numbers, "–" if r.gradient is None else f"{r.gradient:.5g}"))
    print_table("", ("layer", "γ", "c", "log q", "gradient factor"), rows)


def _chart(prediction: Prediction, references: list[Prediction], draw: ChartChoice) -> Chart:
    """The distribution of class shares or γ by depth; a kernel's next to the closed form's."""
    if draw is ChartChoice.depth:
        named = {p.reading: p for p in (*references, prediction)}
        return fg.figures.gamma_by_depth_chart(named if references else [prediction])
    if references:
        return fg.figures.readings_chart(references[0], prediction)
    return fg.figures.guesses_chart(prediction)


# On data: the kernel reading, and with `--compare` all three readings of one data set.


INITS, WIDTH, DRAWS = 100, 1000, 10_000
LR, STEPS = 1e-3, 10_000  # predict_training's


@dataclass(frozen=True)
class KernelOptions(DataOptions):
    """What the options say about data, and about what is read on them."""

    draws: int = DRAWS
    inits: int = INITS
    width: int | None = None

    @property
    def real_width(self) -> int:
        """The width of networks that are drawn, or trained."""
        return WIDTH if self.width is None else self.width


def kernel(network: Network, data: Data, asked: KernelOptions, width: int | None = None) -> Prediction:
    """The kernel reading, at infinite width or at this one, with a progress bar."""
    with bar("kernel" if width is None else f"kernel at width {width}") as tick:
        return fg.predict(network, data=data, draws=asked.draws, seed=asked.seed, width=width, progress=tick)


def predicted_training(
    network: Network, asked: KernelOptions | None, options: dict[str, Any], *, json: bool, figure: Path | None
) -> None:
    """What training does to the bias, predicted: a page or JSON, and a figure."""
    if asked is None:
        raise InvalidInput("--data together with --training", got="no --data", hint="--data digits")
    shape, warmup = options.pop("schedule", "constant"), options.pop("warmup", 0)
    if shape != "constant" or warmup:
        steps = options.get("steps", STEPS)
        options["lr"] = fg.schedules.named(shape, options.get("lr", LR), steps=steps, warmup=warmup)
    data = asked.some()
    options |= {} if asked.draws == DRAWS else {"draws": asked.draws}
    with bar("training, predicted") as tick:
        t = fg.predict_training(network, data=data, width=asked.real_width, seed=asked.seed, progress=tick, **options)
    if json:
        print_json(t.to_dict())
    else:
        title = f"Predicted training ({len(t.largest.draws)} networks, {t.network.classes} classes, {data.n} points)"
        print_pairs(title, [*t.summary(), *(("assumes", remark) for remark in t.assumptions)])
    if figure is not None:
        output.save_figure(fg.figures.training_chart(t), figure)


def closed_form(network: Network, data: Data) -> Prediction:
    """The closed form for i.i.d. inputs with these data's mean and variance."""
    return fg.predict(network, inputs=fg.Inputs.of_data(data), points=data.n)


def compare_readings(network: Network, data: Data, asked: KernelOptions, *, json: bool, figure: Path | None) -> None:
    """All three readings of a network on these data: a table or JSON, and a figure."""
    predictions: dict[str, Prediction] = {}
    why: dict[str, str] = {}
    asks: dict[str, Callable[[], Prediction]] = {
        "closed form": lambda: closed_form(network, data),
        "kernel": lambda: kernel(network, data, asked),
    }
    if asked.width is not None:
        asks[f"kernel, width {asked.width}"] = lambda: kernel(network, data, asked, asked.width)
    for name, read in asks.items():
        try:
            predictions[name] = read()
        except NotCovered as error:
            why[name] = str(error)
    with bar("measuring") as tick:
        known: dict[str, Any] = {"inits": asked.inits, "width": asked.real_width, "seed": asked.seed}
        measured = fg.measure(network, data, progress=tick, **known)
    rows = [*(_predicted(name, p) for name, p in predictions.items()), _measured(measured, asked)]
    if json:
        found = {"network": network.to_dict(), "data": data.to_dict(), "seed": asked.seed}
        print_json({**found, "readings": rows, "notes": why})
    else:
        pairs = [
            ("network", f"{four_digits(network)}  ({network.classes} classes)"),
            ("data", f"{data.name}: {data.n} points"),
        ]
        pairs += [(f"{name}: none", reason) for name, reason in why.items()]
        print_pairs(f"{'Three readings' if asked.width is None else 'Readings'} of one network", pairs)
        print_table("", ("reading", "γ of the output", "std of G₀", "E max G", "seconds"), [_row(r) for r in rows])
        for name, p in predictions.items():
            for remark in p.assumptions if name.startswith("kernel") else ():
                output.say(f"{name}: {remark}")
    if figure is not None:
        chart = fg.figures.readings_chart(predictions.get("closed form"), predictions.get("kernel"), measured)
        output.save_figure(chart, figure)


def short(prediction: Prediction) -> dict[str, Any]:
    """A sampled prediction as plain data, its distribution by quantiles: nobody reads 10 000 draws."""
    data = prediction.to_dict()
    law = prediction.guesses
    levels = [0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99]
    quantiles = {f"{level:g}": float(law.quantile(level)) for level in levels}
    above = {f"{t:g}": float(law.prob_max_above(t)) for t in (0.5, 0.75, 0.9, 0.99)}
    guesses = {"classes": law.classes, "points": law.points, "quantiles": quantiles, "prob_max_above": above}
    return {**data, "guesses": guesses}


def _predicted(name: str, prediction: Prediction) -> dict[str, Any]:
    law: Any = prediction.guesses
    row: dict[str, Any] = {"reading": name, "gamma": prediction.gamma.tolist(), "std": law.std()}
    row |= {"largest": law.expected_max(), "prob_max_above_0.9": law.prob_max_above(0.9), "seconds": prediction.seconds}
    if prediction.finite_size is not None:
        row["finite_size"] = prediction.finite_size.to_dict()
    if name.startswith("kernel"):
        row |= {f"{what}_se": law.standard_error(what) for what in ("std", "largest")}
        row["assumptions"] = list(prediction.assumptions)
    return with_old_names(row)


def _measured(measured: Measurement, asked: KernelOptions) -> dict[str, Any]:
    law = measured.guesses
    row: dict[str, Any] = {"reading": "measured", "gamma": measured.gamma.tolist()}
    row |= {"gamma_se": measured.gamma_se.tolist(), "std": law.std(), "std_se": law.standard_error("std")}
    row |= {"largest": law.expected_max(), "largest_se": law.standard_error("largest")}
    row |= {"prob_max_above_0.9": law.prob_max_above(0.9), "seconds": measured.seconds, "inits": measured.inits}
    findings = [f"{f.kind}: {f.message}" for f in measured.findings]
    return with_old_names({**row, "width": asked.real_width, "findings": findings})


def _row(reading: dict[str, Any]) -> tuple[str, ...]:
    gamma, errors = reading["gamma"], reading.get("gamma_se")
    last = with_error(gamma[-1], errors[-1] if errors else math.nan) if gamma else "–"
    two = [with_error(reading[what], reading.get(f"{what}_se", math.nan)) for what in ("std", "largest")]
    name = reading["reading"]
    if name == "measured":
        name += f" ({reading['inits']} initializations, width {reading['width']})"
    return (name, last, *two, f"{reading['seconds']:.2g}")
