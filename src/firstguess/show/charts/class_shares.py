"""Closed form, kernel and ensemble side by side: the distribution of class shares, and γ by layer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, cast

import altair as alt
import numpy as np

from firstguess.base.errors import InvalidInput
from firstguess.base.text import capital, four_digits, spaced
from firstguess.diagnosis.compare import check_pair, predicted_law
from firstguess.ensemble.measurement import LayerMeasurement, Measurement
from firstguess.show.charts import gamma_by_depth, theme
from firstguess.show.charts.gamma_by_depth import GammaScale
from firstguess.show.charts.guesses import guesses_chart
from firstguess.show.charts.theme import Entry, heading, key
from firstguess.theory.prediction import Prediction
from firstguess.theory.shares import histograms
from firstguess.theory.shares.base import ClassShares
from firstguess.theory.shares.empirical import EmpiricalGuesses
from firstguess.theory.shares.histograms import Histogram, pooled


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
    last = list(predictions.values())[-1:]  # the kernel's, where there is one
    points = measurement.points if measurement is not None else last[0].guesses.points
    laws = {name: p.guesses.on_points(points) for name, p in predictions.items()}
    chart: Any = law_panel(laws, None if measurement is None else measurement.guesses)
    gammas = {name: p.gamma.tolist() for name, p in predictions.items()}
    measured = measured_layers(measurement, {len(g) for g in gammas.values()})
    if predictions or measured:
        chart = alt.hconcat(chart, gamma_panel(gammas, measured), spacing=48)
    seen = {} if measurement is None else {"measurement": measurement.guesses}
    lines = _subtitle(predictions, measurement, points)
    return theme.house(chart, title or _title({**laws, **seen}), lines, wide=True)


def _check(
    closed_form: Prediction | None, kernel: Prediction | None, measurement: Measurement | None
) -> dict[str, Prediction]:
    given: dict[str, object] = {"closed form": closed_form, "kernel": kernel}
    for name, one in given.items():
        if one is not None and (not isinstance(one, Prediction) or one.reading != name):
            got = f"a {one.reading} prediction" if isinstance(one, Prediction) else type(one).__name__
            hint = "readings_chart(fg.predict(net), fg.predict(net, data=x), fg.measure(net, x))"
            raise InvalidInput(f"a {name} prediction, or None", got=got, where="readings_chart", hint=hint)
    last = cast("object", measurement)
    if last is not None and not isinstance(last, Measurement):
        hint = "fg.measure(net, x)"
        raise InvalidInput("a Measurement, or None", got=type(last).__name__, where="readings_chart", hint=hint)
    found = {name: one for name, one in given.items() if isinstance(one, Prediction)}
    classes = {p.guesses.classes for p in found.values()} | ({measurement.classes} if measurement else set[int]())
    if len(classes) != 1:
        expected = "at least one reading, all with the same number of classes"
        got = "none" if not classes else f"{' and '.join(map(str, sorted(classes)))} classes"
        raise InvalidInput(expected, got=got, where="readings_chart", hint="fg.predict(net, classes=…)")
    return found


def _title(laws: Mapping[str, ClassShares], digits: int = 1) -> str:
    parts: list[str] = []
    for name, law in laws.items():
        error = law.standard_error("expected_max") if name == "measurement" else math.nan
        room = f" ± {100 * error:.{digits}f}" if math.isfinite(error) and error > 0 else ""
        parts.append(f"{100 * law.expected_max():.{digits}f}{room} % {'' if parts else 'of the data '}by {name}")
    return f"The largest class gets {', '.join(parts)}"


def _subtitle(predictions: dict[str, Prediction], measurement: Measurement | None, points: int | None) -> list[str]:
    classes = [p.guesses.classes for p in predictions.values()] or [measurement.classes if measurement else 2]
    origin = predictions["kernel"].provenance if "kernel" in predictions else {}
    data = str(origin.get("data", "")) or (data_name(measurement) if measurement is not None else "")
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
    lines.append(f"{capital('; '.join(said))}.")
    network = next((four_digits(p.network) for p in predictions.values()), "")
    return [*lines, *([f"Network: {network}"] if network else [])]


# The measured distribution of class shares, the predicted one over it: of one of two classes, or of the largest.

_WIDTH, _HEIGHT = 760, 340
_SHORT = 40  # characters of an assumption that fits below a chart


def law_chart(
    measurement: Measurement, prediction: Prediction | None = None, *, title: str | None = None, narrow: bool = False
) -> theme.Chart:
    """The histogram over initializations of G₀ (two classes) or of max_c G_c (more), and its predicted distribution.

    The prediction is for as many data points as were measured, in the same bins: theory.md (7), (8). `narrow` is for
    a phone.
    """
    seen = measurement.guesses
    laws = {} if prediction is None else {"predicted": predicted_law(prediction, seen.points)}
    two = seen.classes == 2
    histogram = histograms.of_one_class(laws, seen) if two else histograms.of_largest(laws, seen)
    words = "Share of the data guessed to be of the first class" if two else "Share of the data in the largest class"
    width = theme.NARROW if narrow else _WIDTH
    ticks = [0, 0.25, 0.5, 0.75, 1] if narrow else None
    places = {"even split": 1 / seen.classes} | ({} if two else {"average": seen.expected_max()})
    layers = histogram_layers(histogram, words, places, ticks=ticks, width=width)
    chart = theme.stacked(layers, width, _HEIGHT)
    said = title or theme.unbroken(_law_title(measurement, laws))
    return theme.house(chart, said, _law_subtitle(measurement, prediction, histogram))


def _law_title(measurement: Measurement, laws: dict[str, ClassShares]) -> str:
    seen, *rest = theme.percents(measurement.guesses.expected_max(), *(law.expected_max() for law in laws.values()))
    text = f"Before training, {seen} of the data end up in one class on average"
    if measurement.verdict in ("even", "leaning"):
        even = theme.percent(1 / measurement.classes)
        text = f"Before training, the largest class gets {seen} of the data on average (an even split: {even})"
    return f"{text}; theory predicts {rest[0]}" if rest else text


def _law_subtitle(measurement: Measurement, prediction: Prediction | None, histogram: Histogram) -> list[str]:
    seen = measurement.guesses
    error = seen.standard_error("expected_max")
    room = f" (standard error of that average: {100 * error:.2g} %)" if math.isfinite(error) and error > 0 else ""
    inits, points = theme.spaced(seen.inits), theme.spaced(seen.points)
    text = f"{inits} initializations, {theme.count(seen.classes)} classes, {points} data points{room}."
    if prediction is not None:
        short = [said for said in prediction.assumptions if len(said) <= _SHORT]  # the page has the others
        assumed = theme.assumed(short) + (", and more" if len(short) < len(prediction.assumptions) else "")
        known = "on your data" if prediction.reading == "kernel" else "for random data"
        text += f" Predicted {known}{f'; assumed: {assumed}' if assumed else ''}."
    if histogram.cut:
        text += f" The {histogram.cut} distribution continues above the figure."
    return [text]


# The distribution of class shares that were counted or drawn.


def sampled_law_chart(guesses: EmpiricalGuesses, *, title: str | None = None) -> theme.Chart:
    """The histogram of all class shares over initializations."""
    share = theme.percent(guesses.expected_max())
    drawn, points, classes = spaced(guesses.inits), spaced(guesses.points), theme.count(guesses.classes)
    return theme.house(
        law_panel({}, guesses, bars="counted"),
        title or theme.unbroken(f"The largest class gets {share} of the data on average"),
        [f"{drawn} initializations, {points} data points, {classes} classes."],
    )


# Prediction against measurement: the distribution of class shares, and γ by layer with error bars.


def compare_chart(prediction: Prediction, measurement: Measurement, *, title: str | None = None) -> theme.Chart:
    """What was predicted next to what was measured: class shares at the left, γ by layer at the right.

    Left: the measured histogram of all class shares, and the predicted probability of the same bins for as many data
    points, theory.md (7). Right: predicted γ with the difference that `fg.compare` allows on this many points, and
    measured γ with 95 % intervals; only the output's where the two do not have the same number of layers with weights,
    and no right half where no such layer was probed.
    """
    check_pair(prediction, measurement, "compare_chart")
    law = predicted_law(prediction, measurement.points)
    chart: Any = law_panel({"predicted": law}, measurement.guesses)
    theory = prediction.gamma.tolist()
    measured = measured_layers(measurement, {len(theory)})
    if measured:
        chart = alt.hconcat(chart, gamma_panel({"predicted": theory}, measured, points=measurement.points), spacing=48)
    lines = _measured_subtitle(prediction, measurement, rooms=bool(measured))
    seen = measurement.guesses
    error = seen.standard_error("expected_max")
    digits = min(4, max(1, math.ceil(-math.log10(100 * error)))) if math.isfinite(error) and error > 0 else 1
    said = title or _title({"prediction": law, "measurement": seen}, digits)
    return theme.house(chart, said, lines, wide=bool(measured))


def _measured_subtitle(prediction: Prediction, measurement: Measurement, *, rooms: bool) -> list[str]:
    inits, points = theme.spaced(measurement.inits), theme.spaced(measurement.points)
    words = f"Allowed: a difference of up to (1 + γ)/{points}, as these points have a mean of their own."
    return [
        f"Average over {inits} initializations ± one standard error; {theme.count(measurement.classes)} "
        f"classes, {points} data points. Prediction: {prediction.reading}, assumes "
        f"{', '.join(prediction.assumptions) or 'nothing else'}.",
        f"Network: {four_digits(prediction.network)}",
        *([words] * rooms),
        *(f"Note: {finding.kind}" for finding in measurement.findings[:2]),
    ]


# Class shares as a strip: one column an initialization, divided as that network divides the data.

_STRIP_WIDTH, _STRIP_HEIGHT = 760, 320
_COLUMNS = 120
_FEW = 6  # classes up to which each has its own colour; beyond, colours are ranks
_RANKS = ("#0B4F7A", "#4A9CCB", "#A9D0E8", "#E4E4E4")


def strip_chart(measurement: Measurement, *, title: str | None = None, narrow: bool = False) -> theme.Chart:
    """How every initialization divides the data between the classes.

    Two classes: columns in the order of G₀. Up to six: by favoured class. More: from the largest class of a column up,
    in the order of its size, because a thousand colours say nothing. `narrow` is for a phone.
    """
    seen = measurement.guesses
    order, bands, names, colours = _by_class(seen) if seen.classes <= _FEW else _by_rank(seen)
    chosen = order
    if len(order) > _COLUMNS:
        chosen = order[np.round(np.linspace(0, len(order) - 1, _COLUMNS)).astype(int)]
    rows = [
        row for column, member in enumerate(chosen) for row in _column(column, bands[member], names, seen, int(member))
    ]
    # All of the data, unless the ten largest of many classes are far from that.
    named = float(bands[:, :-1].sum(axis=1).max()) if seen.classes > _FEW else 1.0
    top = 1.0 if named > 0.4 else 1.3 * named
    width = theme.NARROW if narrow else _STRIP_WIDTH
    rects = _rects(rows, len(chosen), names, colours, top, 2 if narrow else len(names))
    layers = [rects, *_even(seen, top, named=not narrow)]
    half = float(np.median(seen.largest))
    much = "all of the data" if half == 1.0 else f"at least {theme.percent(half)} of the data"
    said = title or theme.unbroken(f"In half of the initializations one class gets {much}")
    chart = theme.stacked(layers, width, _STRIP_HEIGHT)
    return theme.house(chart, said, _strip_subtitle(seen, len(chosen), names[-1] if top < 1 else ""))


def _by_class(seen: EmpiricalGuesses) -> tuple[Any, Any, list[str], list[str]]:
    favoured = seen.fractions.argmax(axis=1)
    order = np.argsort(-seen.fractions[:, 0]) if seen.classes == 2 else np.lexsort((-seen.largest, favoured))
    names = [f"class {c}" for c in range(seen.classes)]
    return order, seen.fractions, names, [theme.colour(c) for c in range(seen.classes)]


def _by_rank(seen: EmpiricalGuesses) -> tuple[Any, Any, list[str], list[str]]:
    ranked = -np.sort(-seen.fractions, axis=1)
    edges = [0, 1, 3, min(10, seen.classes), seen.classes] if seen.classes > 10 else [0, 1, 2, 3, seen.classes]
    names = ["largest class", "2nd and 3rd", "4th to 10th", f"the other {theme.spaced(seen.classes - 10)}"]
    if seen.classes <= 10:
        names = ["largest class", "2nd", "3rd", f"the other {seen.classes - 3}"]
    bands = np.stack([ranked[:, a:b].sum(axis=1) for a, b in pairwise(edges)], axis=1)
    return np.argsort(-seen.largest), bands, names, list(_RANKS)


def _column(column: int, shares: Any, names: list[str], seen: EmpiricalGuesses, member: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    low = 0.0
    favoured, largest = int(seen.fractions[member].argmax()), float(seen.largest[member])
    for name, share in zip(names, shares, strict=True):
        high = low + float(share)
        if share > 0:
            rows.append(
                {"column": column, "to": column + 1, "low": low, "high": min(high, 1.0), "band": name,
                 "share": float(share), "member": member, "favoured": f"class {favoured}", "largest": largest}
            )  # fmt: skip
        low = high
    return rows


def _rects(
    rows: Sequence[theme.Row], columns: int, names: Sequence[str], colours: Sequence[str], top: float, side: int
) -> alt.Chart:
    tooltip = theme.tooltip(
        "member|initialization", "band|part", "share|of the data|.1%", "favoured", "largest|its share|.1%"
    )
    across = theme.axis([0, columns], labels=False, ticks=False)
    up = theme.axis([0, top], tickCount=5, labelExpr=theme.PERCENT, grid=False)
    look: Any = {"orient": "top", "direction": "horizontal", "columns": side, "symbolType": "square"}
    legend, scale = alt.Legend(offset=12, padding=0, **look), alt.Scale(domain=list(names), range=list(colours))
    border = 1 if columns <= 60 and side > 2 else 0.4
    base = theme.chart(rows).mark_rect(clip=True, stroke="white", strokeWidth=border)
    x = alt.X("column:Q", title="Initializations, one a column, sorted", **across)
    color = alt.Color("band:N", title=None, sort=list(names), scale=scale, legend=legend)
    y = alt.Y("low:Q", title="Share of the data", **up)
    return base.encode(x=x, x2="to:Q", y=y, y2="high:Q", color=color, tooltip=tooltip)


def _even(seen: EmpiricalGuesses, top: float, *, named: bool) -> list[alt.Chart]:
    """Where an even split would put the first border, if that is distinguishable from 0."""
    if 1 / seen.classes < 0.02 * top:
        return []
    base = theme.chart([{"low": 1 / seen.classes, "text": "even share"}], y="low:Q")
    word = base.encode(x=alt.value(_STRIP_WIDTH + 8), text="text:N")
    rule = base.mark_rule(color=theme.INK, strokeDash=[5, 4], strokeWidth=1.5)
    return [rule, word.mark_text(align="left", baseline="middle", color=theme.SOFT)] if named else [rule]


def _strip_subtitle(seen: EmpiricalGuesses, columns: int, beyond: str) -> list[str]:
    shown = f"{seen.inits} initializations"
    if columns < seen.inits:
        shown = f"{columns} of {theme.spaced(seen.inits)} initializations, evenly chosen"
    times = np.bincount(seen.fractions.argmax(axis=1), minlength=seen.classes)
    winner, count = int(times.argmax()), int(times.max())
    favoured = f"Favoured most often: class {winner}, in {theme.percent(count / seen.inits)} of them"
    even = f"an even chance would be {theme.percent(1 / seen.classes)}"
    rest = f" The axis ends early: above it is only {beyond}." if beyond else ""
    return [
        f"{shown}, {theme.count(seen.classes)} classes, {theme.spaced(seen.points)} data points.{rest}",
        f"{favoured}; {even}.",
    ]


def prediction_chart(prediction: Prediction, *, title: str | None = None) -> theme.Chart:
    """The distribution of class shares; where it is sampled, as a histogram next to γ by layer."""
    if prediction.guesses.inits is not None:
        return readings_chart(None, prediction, title=title)
    return guesses_chart(prediction, title=title)


# What several of these are made of: a histogram with curves over it, γ by layer with intervals.

WIDTH = 520
MEASURED = theme.PALETTE[0]
COLOURS = {"closed form": theme.PALETTE[1], "kernel": theme.PALETTE[2], "predicted": theme.PALETTE[1]}
DASHES = {"closed form": [7, 4], "kernel": [1, 0], "predicted": [1, 0]}
WIDTHS = {"closed form": 2.5, "kernel": 3.5, "predicted": 2.5}  # a solid line looks out from under dashes

_RULES = {"even split": (theme.SOFT, [2, 3]), "average": (MEASURED, [7, 4])}
_PALE = "#F2CFB3"  # the prediction's orange, as faint as the bars of what is allowed


# -- The distribution of class shares ----------------------------------------------------------------------------------


def histogram_layers(
    histogram: Histogram,
    x_title: str,
    places: Mapping[str, float],
    *,
    ticks: Sequence[float] | None = None,
    bars: str = "measured",
    width: int = WIDTH,
) -> list[alt.Chart]:
    """Measured bars, distributions as outlines over them, upright lines at `places` by name, and the key."""
    edges = histogram.edges
    marks: Any = {"tickCount": 6} if ticks is None else {"values": list(ticks)}
    ends = theme.axis([float(edges[0]), float(edges[-1])], labelExpr=theme.PERCENT, labelFlush=False, **marks)
    x = alt.X("from:Q", title=x_title, **ends)
    bar = float(edges[-1] - edges[0]) / (len(edges) - 1)  # they may differ by a data point
    unit = 10.0 ** math.floor(math.log10(1.2 * bar))  # no wider than a bar, which then holds at most 100 % per unit
    words = f"format({100 * unit} * datum.value, '.3~g') + ' %'"
    room = histogram.top * unit
    step = next(s for k in range(-6, 9) for s in (10.0**k, 2 * 10.0**k, 5 * 10.0**k) if room / s <= 6)
    ticks_up = [k * step / unit for k in range(int(room / step) + 1)]  # where a unit holds a round part
    look = theme.axis([0, histogram.top], values=ticks_up, labelExpr=words)
    y = alt.Y("density:Q", title=f"Of the initializations, per {theme.percent(unit)} of the data", **look)
    layers: list[alt.Chart] = []
    if histogram.measured is not None:
        wide = edges[1:] - edges[:-1]
        parts = {f"{law} part": heights * wide for law, heights in histogram.laws.items()}
        more = {**histogram.laws, **parts, "part": histogram.heights["measured"] * wide}
        tips = [f"part|{bars}, of the initializations|.3~%", *(f"{law} part|{law}|.3~%" for law in histogram.laws)]
        layers.append(theme.bars(edges, histogram.heights["measured"], x, y, more, tips))
    # The first law on top: its dashes leave the solid ones below in sight where the two coincide.
    for name, height in reversed(list(histogram.laws.items())):
        layers.append(theme.outline(edges, height, x, y, COLOURS[name], DASHES[name], WIDTHS[name], reading=name))
    rules = [Entry(name, *_RULES[name]) for name in places]
    for rule in rules:
        base = theme.chart([{"from": places[rule.name], "text": rule.name}], x=x)
        layers.append(base.mark_rule(color=rule.colour, strokeDash=list(rule.dash), strokeWidth=2))
    seen = [Entry(bars, theme.PALE_BLUE, shape="square")] if histogram.measured is not None else []
    return [*layers, *key([*_lines(list(histogram.laws)), *seen, *rules], width=width)]


def law_panel(
    laws: Mapping[str, ClassShares], measured: EmpiricalGuesses | None, *, bars: str = "measured"
) -> alt.LayerChart:
    """The distribution of class shares, all classes together."""
    histogram = pooled(laws, measured)
    words = "Share of the data guessed to be of one class"
    title = "The distribution of class shares"
    if histogram.cut:
        title += f" (the {histogram.cut} continues above)"
    classes = next(law.classes for law in (*laws.values(), measured) if law is not None)
    whole = histogram.edges[-1] >= 1
    ticks = [0, 0.25, 0.5, 0.75, 1] if whole else None
    layers = histogram_layers(histogram, words, {"even split": 1 / classes}, ticks=ticks, bars=bars)
    return theme.stacked(layers, WIDTH, gamma_by_depth.HEIGHT, title=heading(title))


# -- γ by layer ----------------------------------------------------------------------------------------------------


def measured_layers(measurement: Measurement | None, lengths: set[int]) -> list[LayerMeasurement]:
    """The layers with weights whose γ is known; only the output where predictions have another number of layers."""
    if measurement is None:
        return []
    layers = list(measurement.weights_layers)
    if lengths and lengths != {len(layers)}:
        layers = layers[-1:]
    return [layer for layer in layers if math.isfinite(layer.gamma)]


def gamma_panel(
    gammas: Mapping[str, Sequence[float]], measured: Sequence[LayerMeasurement], *, points: int | None = None
) -> alt.LayerChart:
    """Predicted γ as lines, measured γ with 95 % intervals.

    With `points`, the difference that `fg.compare` allows on this many data points, (1 + γ)/n, is a pale bar about each
    γ.
    """
    last = max([len(measured), *(len(g) for g in gammas.values())])
    theory = [g for values in gammas.values() for g in values if not math.isnan(g)]
    sure = [layer.gamma for layer in measured if layer.low > 0]
    noise = [v for m in measured for v in (m.gamma, m.low, m.high)]
    scale = GammaScale.of([*(g for g in theory if g >= 0), *sure], noise=[*noise, *theory])
    x, y = gamma_by_depth.layer_axis(last, last), scale.axis()
    layers = gamma_by_depth.bands(scale)
    if points is not None:
        layers += [bar for name, g in gammas.items() for bar in _rooms(g, COLOURS[name], points, scale, x, y)]
    for name, values in reversed(list(gammas.items())):  # dashes over solid lines, as in the distribution
        layers += gamma_by_depth.curve(values, name, COLOURS[name], DASHES[name], scale, x, y)
    if measured:
        layers += _intervals(measured, last - len(measured), x, y)
    seen = [Entry("measured, 95 % intervals", MEASURED, shape="circle")] if measured else []
    rooms = [Entry("allowed", _PALE, shape="square")] if points is not None else []
    layers += key([*_lines(list(gammas)), *rooms, *seen])
    title = heading("The drift ratio by layer")
    return theme.stacked(layers, gamma_by_depth.WIDTH - 60, gamma_by_depth.HEIGHT, title=title)


def _rooms(gammas: Sequence[float], colour: str, points: int, scale: GammaScale, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    rows = [
        {"layer": k, "position": max(g - (1 + g) / points, scale.low), "room": min(g + (1 + g) / points, scale.top)}
        for k, g in enumerate(gammas, start=1)
        if math.isfinite(g)
    ]
    base = theme.chart(rows).mark_rule(color=colour, strokeWidth=14, opacity=0.3)
    return [base.encode(x=x, y=y, y2="room:Q")]


def _intervals(measured: Sequence[LayerMeasurement], offset: int, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    rows = [
        {
            "layer": offset + k,
            "position": layer.gamma,
            "low": layer.low if math.isfinite(layer.low) else layer.gamma,
            "high": layer.high if math.isfinite(layer.high) else layer.gamma,
            "name": layer.name,
            "gamma_se": layer.gamma_se if math.isfinite(layer.gamma_se) else None,
        }
        for k, layer in enumerate(measured, start=1)
    ]
    tooltip = theme.tooltip("name|layer", "position|measured γ|.4~g", "low|95 % from|.4~g", "high|95 % to|.4~g")
    base = theme.chart(rows, x=x, y=y, tooltip=tooltip)
    return [
        theme.chart(rows).mark_rule(color=MEASURED, strokeWidth=2).encode(x=x, y="low:Q", y2="high:Q"),
        *(
            base.mark_tick(color=MEASURED, thickness=2, width=9, orient="horizontal").encode(y=f"{end}:Q")
            for end in ("low", "high")
        ),
        base.mark_point(filled=True, color=MEASURED, size=64, opacity=1, stroke="white", strokeWidth=1),
    ]


# -- Words ---------------------------------------------------------------------------------------------------------


def _lines(names: Sequence[str]) -> list[Entry]:
    return [Entry(name, COLOURS[name], DASHES[name]) for name in names]


def data_name(measurement: Measurement) -> str:
    """What was measured on, where that is known."""
    data: Any = measurement.provenance.get("data", {})
    return str(data.get("name", "")) if isinstance(data, dict) else str(data)
