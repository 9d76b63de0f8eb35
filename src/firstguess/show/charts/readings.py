"""Closed form, kernel and ensemble side by side: the distribution of class shares, and γ by layer."""

from __future__ import annotations

import math
from typing import Any, cast

import altair as alt

from firstguess.base.errors import InvalidInput
from firstguess.ensemble.measurement import Measurement
from firstguess.show.charts import parts, theme
from firstguess.theory.prediction import Prediction
from firstguess.theory.shares.base import ClassShares


def readings_chart(
    closed_form: Prediction | None,
    kernel: Prediction | None = None,
    measurement: Measurement | None = None,
    *,
    title: str | None = None,
) -> theme.Chart:
    """The readings of one network on one data set; any may be left out, but not all.

    Left: the distribution of a class's share, all readings in the same bins; the measured one is filled. Right: γ of
    the pre-activations by layer, measured with 95 % intervals (only the output's where it has other layers).
    """
    predictions = _check(closed_form, kernel, measurement)
    points = measurement.points if measurement is not None else _points(predictions)
    laws = {name: _law(p, points) for name, p in predictions.items()}
    chart: Any = parts.law_panel(laws, None if measurement is None else measurement.guesses)
    gammas = {name: p.gamma.tolist() for name, p in predictions.items()}
    measured = parts.measured_layers(measurement, {len(g) for g in gammas.values()})
    if predictions or measured:
        chart = alt.hconcat(chart, parts.gamma_panel(gammas, measured), spacing=48)
    lines = _subtitle(predictions, measurement, points)
    return theme.house(chart, title or _title(laws, measurement), lines, wide=True)


def _check(
    closed_form: Prediction | None, kernel: Prediction | None, measurement: Measurement | None
) -> dict[str, Prediction]:
    given: dict[str, object] = {"closed form": closed_form, "kernel": kernel}
    for name, one in given.items():
        if one is not None and (not isinstance(one, Prediction) or one.reading != name):
            got = f"a {one.reading} prediction" if isinstance(one, Prediction) else type(one).__name__
            raise InvalidInput(
                f"a {name} prediction, or None",
                got=got,
                where="readings_chart",
                hint="readings_chart(fg.predict(net), fg.predict(net, data=x), fg.measure(net, x))",
            )
    last = cast("object", measurement)
    if last is not None and not isinstance(last, Measurement):
        raise InvalidInput(
            "a Measurement, or None", got=type(last).__name__, where="readings_chart", hint="fg.measure(net, x)"
        )
    found = {name: one for name, one in given.items() if isinstance(one, Prediction)}
    classes = {p.guesses.classes for p in found.values()} | ({measurement.classes} if measurement else set[int]())
    if len(classes) != 1:
        raise InvalidInput(
            "at least one reading, all with the same number of classes",
            got="none" if not classes else f"{' and '.join(map(str, sorted(classes)))} classes",
            where="readings_chart",
            hint="fg.predict(net, classes=…)",
        )
    return found


def _points(predictions: dict[str, Prediction]) -> int | None:
    if "kernel" in predictions:
        return predictions["kernel"].guesses.points
    return predictions["closed form"].guesses.points


def _law(prediction: Prediction, points: int | None) -> ClassShares:
    """The closed form's law for as many data points as the others have."""
    return prediction.guesses.on_points(points)


def _title(laws: dict[str, ClassShares], measurement: Measurement | None) -> str:
    digits = 1
    parts = [f"{100 * law.expected_max():.{digits}f} % by {name}" for name, law in laws.items()]
    if measurement is not None:
        error = measurement.guesses.standard_error("expected_max")
        room = f" ± {100 * error:.{digits}f}" if math.isfinite(error) and error > 0 else ""
        parts.append(f"{100 * measurement.guesses.expected_max():.{digits}f}{room} % by measurement")
    parts[0] = parts[0].replace(" % by", " % of the data by", 1)
    return f"The largest class gets {', '.join(parts)}"


def _subtitle(predictions: dict[str, Prediction], measurement: Measurement | None, points: int | None) -> list[str]:
    classes = [p.guesses.classes for p in predictions.values()] or [measurement.classes if measurement else 2]
    origin = predictions["kernel"].provenance if "kernel" in predictions else {}
    data = str(origin.get("data", "")) or (parts.data_name(measurement) if measurement is not None else "")
    amount = "infinitely many data points" if points is None else f"{theme.spaced(points)} data points"
    lines = [f"{theme.count(classes[0]).capitalize()} classes, {amount}{f': {data}' if data else ''}."]
    said: list[str] = []
    if "closed form" in predictions:
        size = predictions["closed form"].finite_size
        wide = "infinitely wide" if size is None or size.width is None else f"layers of width {size.width}"
        said.append(f"closed form: i.i.d. inputs, {wide}")
    if "kernel" in predictions:
        law = predictions["kernel"].guesses
        drawn = f", {theme.spaced(law.inits)} draws" if law.inits is not None else ""
        said.append(f"kernel: these data, infinitely wide{drawn}")
    if measurement is not None:
        width = measurement.provenance.get("width")
        wide = f" of width {width}" if width else ""
        said.append(f"measured: {theme.spaced(measurement.inits)} initializations{wide} (± one s.e.)")
    text = "; ".join(said)
    lines.append(f"{text[:1].upper()}{text[1:]}.")
    network = next((str(p.network) for p in predictions.values()), "")
    return [*lines, *([f"Network: {network}"] if network else [])]
