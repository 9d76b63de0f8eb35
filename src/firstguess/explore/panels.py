"""The page's panels: sentences, SVG charts and a table of what is seen."""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Sequence
from html import escape

import numpy as np

from firstguess.base.shares import percent
from firstguess.base.text import power_of_ten, rounded_off, spaced
from firstguess.explore.choice import Choice
from firstguess.explore.drawing import BLUE, GREEN, GREY, ORANGE, Drawing, Scale
from firstguess.explore.seen import DIMENSION, WIDTH, Seen
from firstguess.theory.diagrams import PhaseDiagram
from firstguess.theory.guesses import Guesses
from firstguess.theory.phases import FixedPoint
from firstguess.theory.ranked import average_kth
from firstguess.theory.stream_growth import stream_growth
from firstguess.theory.trade_off import Mark
from firstguess.theory.words import EDGES, largest_share

STYLE = """<style>
.fg-page{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(290px,100%),1fr));gap:14px 26px}
.fg-page h3{font-size:1rem;margin:.2rem 0}.fg-page p{margin:.2rem 0;font-size:.9rem}
.fg-head{font-size:1.15rem;margin:.3rem 0 .1rem}.fg-soft{opacity:.75;font-size:.9rem;margin:.1rem 0}
.fg-scroll{overflow-x:auto}.fg-scroll table{border-collapse:collapse;font-size:.9rem}
.fg-scroll td,.fg-scroll th{padding:.15rem .6rem;text-align:right;white-space:nowrap}
.fg-scroll td:first-child,.fg-scroll th:first-child{text-align:left}
.fg-wide{grid-column:1/-1}.fg-text{font-family:ui-monospace,monospace;overflow-wrap:anywhere;font-size:.85rem}
</style>"""
_LEAST = 1e-4  # γ below this is drawn as this
_HUGE = 1e12
_NO_GRADIENTS = "Not known in closed form for this network."


def live(seen: Seen) -> str:
    """All that moves with a slider; its attributes are for those who read it by program."""
    p = seen.prediction
    largest, gamma = p.guesses.expected_max(), float(p.gamma[-1])
    gradients, lasting = ("" if name in seen.later else draw(seen) for name, draw in _PUT_OFF.items())
    parts = [_shares(seen), _gamma(seen), gradients, _frontier(seen), lasting, _remedies(seen)]
    return (
        f'{STYLE}<section id="fg-live" aria-label="Prediction" aria-live="polite" '
        f'data-state="{escape(seen.choice.query)}" data-gamma="{gamma:.6g}" data-largest="{largest:.6g}">'
        f'<p class="fg-head"><b>{escape(p.verdict.capitalize())}</b>: the largest of {p.network.classes} classes gets '
        f"<b>{percent(largest)}</b> of the guesses on average; drift ratio γ = {number(rounded_off(gamma))}.</p>"
        f'<p class="fg-text">{escape(_brief(str(p.network)))}</p>'
        f'<div class="fg-page">{"".join(parts)}</div></section>'
    )


def _brief(text: str) -> str:
    """Numbers to six digits; "Copy as Python" has them all."""
    return re.sub(r"\d+\.\d{7,}", lambda found: f"{float(found[0]):.6g}", text)


def refused(choice: Choice, why: str) -> str:
    """A choice that has no closed form."""
    return (
        f'{STYLE}<section id="fg-live" aria-live="polite" data-state="{escape(choice.query)}" data-gamma="nan">'
        f'<p class="fg-head">Not predicted.</p><p>{escape(why)}</p></section>'
    )


def number(value: float) -> str:
    """As the page has it: three digits, powers of ten."""
    if value == 0.0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.3g}"
    return (
        "∞"
        if math.isinf(value)
        else f"{value / 10 ** math.floor(math.log10(abs(value))):.2g}·"
        + power_of_ten(math.floor(math.log10(abs(value))))
    )


def _panel(title: str, body: str, *, wide: bool = False) -> str:
    return f"<div{' class=fg-wide' if wide else ''}><h3>{escape(title)}</h3>{body}</div>"


def _shares(seen: Seen) -> str:
    """Two classes: the density of a share; more: the average shares in order."""
    law = seen.prediction.guesses
    assert isinstance(law, Guesses)  # of closed forms
    over = f"One class gets over 90 % of the guesses in {percent(law.prob_max_above(0.9))} of networks."
    if law.std() < 1e-6:
        drawing = Drawing(Scale(0, 1), Scale(0, 1.0), "share of a class", "")
        drawing.line([(1 / law.classes, 0.0), (1 / law.classes, 0.97)], name="every network")
        over = f"Every class gets {percent(1 / law.classes)} in every network."
    elif law.classes == 2:
        reach = min(0.496, 6.0 * law.std())  # a narrow peak would fall between places far apart
        at = np.linspace(0.5 - reach, 0.5 + reach, 121)
        found = list(zip(at.tolist(), law.pdf(at).tolist(), strict=True))
        top = max(y for _, y in found)
        top = top if law.gamma < 1.0 else min(top, 6.0)  # from γ = 1 on it has poles at the ends
        drawing = Drawing(Scale(0, 1), Scale(0, top * 1.08 + 0.05), "share of a class", "density")
        drawing.area(found)
        drawing.line(found)
    else:
        shown = min(law.classes, 10)
        means = [average_kth(law.classes, k, law.gamma, quick=True) for k in range(1, shown + 1)]
        drawing = Drawing(
            Scale(0.4, shown + 0.6), Scale(0, max(means) * 1.08), "class, from the largest share on", "share"
        )
        for k, mean in enumerate(means, start=1):
            drawing.bar(k, mean, 0.38, name=f"number {k}: {percent(mean)}")
        drawing.level(1 / law.classes, "even")
    return _panel("Distribution of class shares", drawing.svg(over) + f"<p>{over}</p>")


def _gamma(seen: Seen) -> str:
    values = np.clip(seen.prediction.gamma, _LEAST, _HUGE)
    points = [(k, float(v)) for k, v in enumerate(values, start=1)]
    y = Scale.around([*values.tolist(), EDGES[0] / 3, EDGES[2] * 3], log=True)
    drawing = Drawing(Scale(0.5, len(points) + 0.5), y, "layer of weights", "drift ratio γ")
    for edge, name in zip(EDGES, ("leaning", "biased", "deeply biased"), strict=True):
        drawing.level(edge, name, left=True)
    drawing.line(points)
    drawing.dot(*points[-1], name=f"output: γ = {number(float(seen.prediction.gamma[-1]))}")
    return _panel("γ through the layers", drawing.svg(f"γ from {number(values[0])} to {number(values[-1])}"))


def _gradients(seen: Seen) -> str:
    p = seen.prediction
    stream = stream_growth([(layer.layer, layer.gradient) for layer in p.layers])
    growth = p.gradient_growth
    if stream is not None:
        said = f"Gradients change by {signed(stream[0])} a residual block towards the input (mean square)."
        return _gradients_drawn(seen.stream, "residual block", said)
    if not growth.size or not np.isfinite(growth).all():
        return _panel("Gradients", f"<p>{escape(seen.why.get('gradients', _NO_GRADIENTS))}</p>")
    said = f"Gradients change by {signed(float(growth[-1]))} a layer towards the input (mean square, last layers)."
    return _gradients_drawn(seen.gradients, "layer of weights", said)


def _gradients_drawn(found: Sequence[tuple[int, float]], what: str, said: str) -> str:
    points = [(k, min(max(v, 1e-300), 1e300)) for k, v in found]
    y = Scale.around([v for _, v in points], log=True, least=2.0)
    drawing = Drawing(Scale(0.5, len(points) + 0.5), y, what, "gradient, mean square")
    drawing.line(points, ORANGE)
    drawing.level(1.0)
    return _panel("Gradients", drawing.svg(said) + f"<p>{said}</p>")


def signed(factor: float) -> str:
    """A factor as a change, in words."""
    change = 100 * (factor - 1)
    if abs(change) < 0.05:
        return "0 %"
    return f"a factor of {factor:.3g}" if change >= 99.5 else f"{'+' if change > 0 else '−'}{abs(change):.2g} %"


def _frontier(seen: Seen) -> str:
    f = seen.frontier
    if f is None:
        return _panel("Bias against gradients", f"<p>{escape(seen.why['frontier'])}</p>")
    marks = [f.here, *f.remedies]
    places = [(min(max(m.gradients, 1e-30), 1e30), 1 + min(max(m.gamma, 0), _HUGE)) for m in marks]
    x = Scale.around([g for g, _ in places] + [1.0], log=True, least=2.0)
    y = Scale.around([v for _, v in places] + [1.0], log=True, least=2.0)
    drawing = Drawing(x, y, "gradients, output to input (mean square)", "1 + γ")
    edge = 1 + f.data_gamma
    steps = np.geomspace(x.low, x.high, 60)
    drawing.line(
        [(g, edge / g) for g in steps if y.low <= edge / g <= y.high], GREY, dash="4 4", name="nothing lies below"
    )
    for together in _near(places, drawing):
        names = ", ".join("here" if k == 0 else str(k) for k in together)
        here = 0 in together
        told = "; ".join(marks[k].name for k in together)
        drawing.dot(*places[together[0]], names, BLUE if here else GREEN, name=told, size=6 if here else 4.5)
    said = "Numbers are the changes of the table. But for a centred head, no network lies below the dashed line."
    return _panel("Bias against gradients", drawing.svg(said) + f"<p>{said}</p>")


def _near(places: Sequence[tuple[float, float]], drawing: Drawing) -> list[list[int]]:
    """Marks that would cover each other, as one."""
    found: list[list[int]] = []
    for k, place in enumerate(places):
        at = drawing.at(*place)
        for group in found:
            if math.dist(at, drawing.at(*places[group[0]])) < 14:
                group.append(k)
                break
        else:
            found.append([k])
    return found


def _lasting(seen: Seen) -> str:
    title = "How long the bias lasts"
    if seen.absorption is None:
        return _panel(title, f"<p>{escape(seen.why['absorption'])}</p>")
    found, lr = seen.absorption, seen.choice.lr
    where = (
        f"Full-batch descent at a learning rate of {number(lr)}, random inputs of {spaced(DIMENSION)} components, "
        f"layers of {spaced(WIDTH)}."
    )
    if found.quantile(0.95) == 0.0:
        return _panel(title, f"<p>There is none to absorb: no class gets {percent(found.level)} at the start.</p>")
    said = (
        f"Until the largest share is below {percent(found.level)}: <b>{_steps(found.median)}</b> in the median "
        f"network, {_steps(found.quantile(0.95))} in all but the slowest twentieth."
    )
    return _panel(title, f"<p>{said}</p><p class='fg-soft'>{where}</p>")


def _steps(count: float) -> str:
    if math.isinf(count):
        return "never"
    whole = math.ceil(count - 1e-9)
    return f"{spaced(whole)} step{'' if whole == 1 else 's'}"


_PUT_OFF = {"gradients": _gradients, "absorption": _lasting}


def rest(seen: Seen, names: Sequence[str]) -> str:
    """The parts that the live ones did not wait for."""
    return "".join(_PUT_OFF[name](seen) for name in names)


def _remedies(seen: Seen) -> str:
    f = seen.frontier
    if f is None:
        return ""
    classes = seen.prediction.network.classes
    rows = "".join(_row(k, m, classes) for k, m in enumerate([f.here, *f.remedies]))
    head = "<tr><th>change</th><th>γ</th><th>largest share</th><th>gradients</th></tr>"
    notes = "".join(f"<p class='fg-soft'>{escape(m.name)}: {escape(m.note)}</p>" for m in f.remedies if m.note)
    return _panel(
        "What each change does", f'<div class="fg-scroll"><table>{head}{rows}</table></div>{notes}', wide=True
    )


def _row(k: int, m: Mark, classes: int) -> str:
    name = f"{k}. {m.name}" if k else m.name
    cells = (number(m.gamma), percent(largest_share(max(m.gamma, 0.0), classes)), f"× {number(m.gradients)}")
    return f"<tr><td>{escape(name)}</td>" + "".join(f"<td>{escape(c)}</td>" for c in cells) + "</tr>"


# -- Phases -----------------------------------------------------------------------------------------------------------


def phases(choice: Choice, diagram: PhaseDiagram, here: FixedPoint, rest: str = "") -> str:
    """Where the variances stand: colours are γ at depth, the lines where gradients keep their size; `rest`: beside."""
    w, b = (Scale(float(v[0]), float(v[-1])) for v in (diagram.weight_vars, diagram.bias_vars))
    drawing = Drawing(w, b, "weight variance", "bias variance")
    drawing.picture(_colours(diagram.gamma))
    for line in _level_lines(diagram):
        drawing.line(line, "#222222", name="gradients keep their size")
    drawing.dot(choice.weight_var, choice.bias_var, "here", "#111111", size=5.5)
    said = f"Here, at large depth: {here.name}."
    key = "Colour is γ at large depth, pale (even) to orange (deeply biased); on the line gradients keep their size."
    body = drawing.svg(said) + f"<p>{escape(said)}</p><p class=fg-soft>{key}</p>"
    return f'{STYLE}<section id="fg-phases" class="fg-page">{_panel("Phase diagram", body)}{rest}</section>'


def no_phases(why: str, rest: str = "") -> str:
    """In place of the diagram; `rest`: beside it."""
    told = _panel("Phase diagram", f"<p>{escape(why)}</p>")
    return f'{STYLE}<section id="fg-phases" class="fg-page">{told}{rest}</section>'


def _colours(gamma: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> str:
    """A PNG, bias variances upwards: from pale blue at γ = 0 to orange from 10 on."""
    from PIL import Image

    with np.errstate(invalid="ignore"):  # ∞/∞
        part = np.nan_to_num(gamma / (1.0 + gamma), nan=1.0)[::-1, :, None]
    low, high = np.array([222.0, 235.0, 247.0]), np.array([213.0, 94.0, 0.0])
    pixels = np.clip(low + (high - low) * part**2, 0, 255).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return base64.b64encode(stream.getvalue()).decode()


def _level_lines(diagram: PhaseDiagram) -> Sequence[list[tuple[float, float]]]:
    """Where χ passes 1, for each bias variance, by straight lines between grid points."""
    found: list[tuple[float, float]] = []
    for b, row in zip(diagram.bias_vars, diagram.chi, strict=True):
        with np.errstate(invalid="ignore", divide="ignore"):
            logs = np.log(row)
        for k in range(len(row) - 1):
            a, c = logs[k], logs[k + 1]
            if math.isfinite(a) and math.isfinite(c) and a < 0.0 <= c:
                w0, w1 = diagram.weight_vars[k], diagram.weight_vars[k + 1]
                found.append((float(w0 + (w1 - w0) * (-a) / (c - a)), float(b)))
                break
    return [found]
