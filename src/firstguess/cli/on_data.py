"""`firstguess predict --data …`: the kernel reading, and with `--compare` all three readings of one data set."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.progress import bar
from firstguess.base.text import with_old_names
from firstguess.cli.output import print_json, print_pairs, print_table, save_figure, say
from firstguess.cli.subjects import DataOptions

if TYPE_CHECKING:
    from firstguess.data import Data
    from firstguess.ensemble.measurement import Measurement
    from firstguess.network.network import Network
    from firstguess.theory.prediction import Prediction

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
        """Of networks that are drawn, or trained."""
        return WIDTH if self.width is None else self.width


def kernel(network: Network, data: Data, asked: KernelOptions, width: int | None = None) -> Prediction:
    """The kernel reading, at infinite width or at this one, with a progress bar."""
    import firstguess as fg

    with bar("kernel" if width is None else f"kernel at width {width}") as tick:
        return fg.predict(network, data=data, draws=asked.draws, seed=asked.seed, width=width, progress=tick)


def training(
    network: Network, asked: KernelOptions | None, options: dict[str, Any], *, json: bool, figure: Path | None
) -> None:
    """What training does to the bias, predicted: a page or JSON, and a figure."""
    import firstguess as fg

    if asked is None:
        raise InvalidInput("--data together with --training", got="no --data", hint="--data digits")
    shape, warmup = options.pop("schedule", "constant"), options.pop("warmup", 0)
    if shape != "constant" or warmup:
        steps = options.get("steps", STEPS)
        options["lr"] = fg.schedules.named(shape, options.get("lr", LR), steps=steps, warmup=warmup)
    data = asked.some()
    draws = {} if asked.draws == DRAWS else {"draws": asked.draws}
    with bar("training, predicted") as tick:
        t = fg.predict_training(
            network, data=data, width=asked.real_width, seed=asked.seed, progress=tick, **draws, **options
        )
    if json:
        print_json(t.to_dict())
    else:
        title = f"Predicted training ({len(t.largest.draws)} networks, {t.network.classes} classes, {data.n} points)"
        print_pairs(title, [*t.summary(), *(("assumes", remark) for remark in t.assumptions)])
    if figure is not None:
        save_figure(fg.figures.training_chart(t), figure)


def closed_form(network: Network, data: Data) -> Prediction:
    """The closed form for i.i.d. inputs with these data's mean and variance."""
    import firstguess as fg

    return fg.predict(network, inputs=fg.Inputs.of_data(data), points=data.n)


def compare(network: Network, data: Data, asked: KernelOptions, *, json: bool, figure: Path | None) -> None:
    """All three readings of a network on these data: a table or JSON, and a figure."""
    import firstguess as fg

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
    measured = _measure(network, data, asked)
    rows = [*(_predicted(name, p) for name, p in predictions.items()), _measured(measured, asked)]
    if json:
        print_json(
            {"network": network.to_dict(), "data": data.to_dict(), "seed": asked.seed, "readings": rows, "notes": why}
        )
    else:
        print_pairs(
            "Readings of one network" if asked.width is not None else "Three readings of one network",
            [
                ("network", f"{network}  ({network.classes} classes)"),
                ("data", f"{data.name}: {data.n} points"),
                *((f"{name}: none", reason) for name, reason in why.items()),
            ],
        )
        print_table("", ("reading", "γ of the output", "std of G₀", "E max G", "seconds"), [_row(r) for r in rows])
        for name, p in predictions.items():
            for remark in p.assumptions if name.startswith("kernel") else ():
                say(f"{name}: {remark}")
    if figure is not None:
        chart = fg.figures.readings_chart(predictions.get("closed form"), predictions.get("kernel"), measured)
        save_figure(chart, figure)


def short(prediction: Prediction) -> dict[str, Any]:
    """A sampled prediction as plain data, its distribution by quantiles: nobody reads 10 000 draws."""
    data = prediction.to_dict()
    law = prediction.guesses
    levels = [0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99]
    data["guesses"] = {
        "classes": law.classes,
        "points": law.points,
        "quantiles": {f"{level:g}": float(law.quantile(level)) for level in levels},
        "prob_max_above": {f"{t:g}": float(law.prob_max_above(t)) for t in (0.5, 0.75, 0.9, 0.99)},
    }
    return data


def _measure(network: Network, data: Data, asked: KernelOptions) -> Measurement:
    import firstguess as fg

    with bar("measuring") as tick:
        return fg.measure(network, data, inits=asked.inits, width=asked.real_width, seed=asked.seed, progress=tick)


def _predicted(name: str, prediction: Prediction) -> dict[str, Any]:
    law: Any = prediction.guesses
    row: dict[str, Any] = {
        "reading": name,
        "gamma": prediction.gamma.tolist(),
        "std": law.std(),
        "largest": law.expected_max(),
        "prob_max_above_0.9": law.prob_max_above(0.9),
        "seconds": prediction.seconds,
    }
    if prediction.finite_size is not None:
        row["finite_size"] = prediction.finite_size.to_dict()
    if name.startswith("kernel"):
        row |= {f"{what}_se": law.standard_error(what) for what in ("std", "largest")}
        row["assumptions"] = list(prediction.assumptions)
    return with_old_names(row)


def _measured(measured: Measurement, asked: KernelOptions) -> dict[str, Any]:
    law = measured.guesses
    return with_old_names(
        {
            "reading": "measured",
            "gamma": measured.gamma.tolist(),
            "gamma_se": measured.gamma_se.tolist(),
            "std": law.std(),
            "std_se": law.standard_error("std"),
            "largest": law.expected_max(),
            "largest_se": law.standard_error("largest"),
            "prob_max_above_0.9": law.prob_max_above(0.9),
            "seconds": measured.seconds,
            "inits": measured.inits,
            "width": asked.real_width,
            "findings": [f"{f.kind}: {f.message}" for f in measured.findings],
        }
    )


def _row(reading: dict[str, Any]) -> tuple[str, ...]:
    def number(value: float, error: float | None) -> str:
        return f"{value:.4g}" + (f" ± {error:.2g}" if error is not None and math.isfinite(error) else "")

    gamma, errors = reading["gamma"], reading.get("gamma_se")
    last = number(gamma[-1], errors[-1] if errors else None) if gamma else "–"
    two = [number(reading[what], reading.get(f"{what}_se")) for what in ("std", "largest")]
    name = reading["reading"]
    if name == "measured":
        name += f" ({reading['inits']} initializations, width {reading['width']})"
    return (name, last, *two, f"{reading['seconds']:.2g}")
