"""Bias at a glance: the cloud of one network's logits, its boundary, and the distribution of its margin."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import altair as alt
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from firstguess.base.errors import InvalidInput
from firstguess.ensemble.measurement import Logits, Measurement
from firstguess.show.charts import theme
from firstguess.show.charts.theme import Entry, heading, key_above

SIZE = 330  # pixels of a cloud's panel, both ways
_LAW = 130  # height of the margin's law
_DOTS = 800  # points drawn, evenly chosen
_BINS = 40
FAVOURED, RIVAL, OTHER = theme.PALETTE[0], theme.PALETTE[1], "#9A9A9A"
_ABOVE, _BELOW = "#E3F0F8", "#FBEBDF"  # the two sides of the boundary

Cloud: TypeAlias = "Logits | Measurement | ArrayLike"


@dataclass(frozen=True)
class View:
    """Points of one network in the plane of two classes, in spreads of the cloud; the boundary is the diagonal.

    The mean of the two classes, which arg-max does not see, is taken out: the cloud's center is at (−d, d)/√2.
    """

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    center: float  # of y; that of x is its negative
    spread: float  # of the margin, in units of the logits

    @classmethod
    def of(cls, logits: Logits, above: int, below: int) -> View:
        """The plane in which class `above` is guessed over the diagonal, `below` under it."""
        one, other = logits.values[:, above], logits.values[:, below]
        spread = float((one - other).std(ddof=1)) or 1.0
        middle = (one.mean() + other.mean()) / 2
        unit = np.sqrt(2) / spread  # so that a point's distance from the diagonal is its margin in spreads
        center = float((one.mean() - other.mean()) / 2 * unit)
        return cls((other - middle) * unit, (one - middle) * unit, center, spread)

    @property
    def reach(self) -> float:
        """How far the axes must go, without the few farthest points."""
        both = np.abs(np.concatenate([self.x, self.y]))
        return float(np.quantile(both, 0.995))


def as_logits(given: Any) -> Logits:
    """The logits of a measurement's typical network, or those given."""
    return given if isinstance(given, Logits) else given.logits if isinstance(given, Measurement) else Logits(given)


def logits_chart(
    networks: Mapping[str, Cloud] | Cloud, *, title: str | None = None, subtitle: Sequence[str] = ()
) -> theme.Chart:
    """One network's cloud of logits next to another's: center, boundary, distribution of the margin, N(Δμ, 2σ_y²).

    `networks` by name: `Logits`, arrays (points, classes), or measurements, whose typical network is drawn. With more
    than two classes the plane is that of the favoured class and its rival, and the margin is to the strongest rival.
    Lengths are in spreads of the cloud: a point's distance from the boundary is its margin.
    """
    named = dict(networks) if isinstance(networks, Mapping) else {"": networks}
    clouds = {str(name): as_logits(given) for name, given in named.items()}
    if not clouds:
        raise InvalidInput("at least one network", got="none", where="logits_chart", hint="logits_chart(m.logits)")
    views = {name: View.of(logits, logits.favoured, logits.rival) for name, logits in clouds.items()}
    reach = 1.06 * max(3.0, *(view.reach for view in views.values()))
    laws = {name: _law(logits) for name, logits in clouds.items()}
    low = min(float(edges[0]) for edges, _ in laws.values())
    high = max(float(edges[-1]) for edges, _ in laws.values())
    top = 1.08 * max(0.4, *(float(heights.max()) for _, heights in laws.values()))
    many = len(clouds) > 1
    columns: list[Any] = []
    for index, (name, logits) in enumerate(clouds.items()):
        plane = theme.stacked(_plane(views[name], logits, reach), SIZE, SIZE, title=_heading(name, logits))
        law = theme.stacked(
            _margin(*laws[name], logits, (low, high), top, first=index == 0), SIZE, _LAW if many else SIZE
        )
        columns += [alt.vconcat(plane, law, spacing=22)] if many else [plane, law]
    entries = [
        Entry("point guessed as the favoured class", FAVOURED, shape="circle"),
        Entry("as its rival", RIVAL, shape="circle"),
    ]
    if any(logits.classes > 2 for logits in clouds.values()):
        entries.append(Entry("as another", OTHER, shape="circle"))
    entries += [Entry("centre of the cloud", theme.INK, shape="cross"), Entry("Gaussian", theme.INK)]
    head = key_above(entries)
    chart: Any = alt.vconcat(head, alt.hconcat(*columns, spacing=46), spacing=12)
    return theme.house(
        chart, title or theme.unbroken(_title(clouds)), subtitle or _subtitle(clouds), wide=len(clouds) > 2
    )


def axes(reach: float, below: str | None, above: str | None) -> dict[str, Any]:
    """Two equal axes with their titles, which all layers of a plane must share: else none is shown."""
    step = theme.round_step(reach, 4)
    ticks = [step * k for k in range(-4, 5) if abs(step * k) <= reach]
    look = theme.axis([-reach, reach], values=ticks, grid=False, format="~g")
    return {"x": alt.X("x:Q", title=below, **look), "y": alt.Y("y:Q", title=above, **look)}


def sides(reach: float, plane: dict[str, Any]) -> list[alt.Chart]:
    """The plane, cut by the diagonal."""
    rows = [
        {"x": -reach, "y": -reach, "low": -reach, "high": reach},
        {"x": reach, "y": reach, "low": -reach, "high": reach},
    ]
    base = alt.Chart(theme.data(rows)).encode(**plane)
    return [
        base.mark_area(color=_ABOVE, clip=True).encode(y2="high:Q"),
        base.mark_area(color=_BELOW, clip=True).encode(y2="low:Q"),
        base.mark_line(color=theme.SOFT, strokeWidth=2, clip=True),
    ]


def _words(reach: float, plane: dict[str, Any], above: str, below: str) -> list[alt.Chart]:
    """What is guessed on each side, over the points."""
    words = [
        ({"x": -0.95 * reach, "y": 0.95 * reach, "text": above}, "left", "top", FAVOURED),
        ({"x": 0.95 * reach, "y": -0.95 * reach, "text": below}, "right", "bottom", RIVAL),
    ]
    layers: list[alt.Chart] = []
    for row, align, baseline, ink in words:
        base = alt.Chart(theme.data([row])).encode(text="text:N", **plane)
        layers += theme.halo(base, align=align, baseline=baseline, color=ink, fontSize=14)
    return layers


def dots(view: View, inks: Sequence[str], reach: float, plane: dict[str, Any], size: float) -> alt.Chart:
    """The points, evenly chosen where there are many; those beyond the axes at their edge."""
    chosen = np.unique(np.linspace(0, len(view.x) - 1, min(_DOTS, len(view.x))).astype(int))
    rows = [
        {"x": float(np.clip(view.x[i], -reach, reach)), "y": float(np.clip(view.y[i], -reach, reach)), "ink": inks[i]}
        for i in chosen
    ]
    return (
        alt.Chart(theme.data(rows))
        .mark_point(filled=True, size=size, opacity=0.55)
        .encode(color=alt.Color("ink:N", scale=None), **plane)
    )


def _plane(view: View, logits: Logits, reach: float) -> list[alt.Chart]:
    inks = [{logits.favoured: FAVOURED, logits.rival: RIVAL}.get(int(g), OTHER) for g in logits.guesses]
    plane = axes(reach, f"Logit of class {logits.rival}, in spreads", f"Logit of class {logits.favoured}, in spreads")
    sayings = (f"guess: class {logits.favoured}", f"guess: class {logits.rival}")
    if logits.classes > 2:
        sayings = (f"class {logits.favoured} is higher", f"class {logits.rival} is higher")
    return [
        *sides(reach, plane),
        dots(view, inks, reach, plane, 22),
        *_words(reach, plane, *sayings),
        *_center(view, plane),
    ]


def _center(view: View, plane: dict[str, Any]) -> list[alt.Chart]:
    """The shortest way from the boundary to the cloud's center."""
    base = alt.Chart(theme.data([{"x": 0.0, "y": 0.0}, {"x": -view.center, "y": view.center}])).encode(**plane)
    lines = [base.mark_line(color="white", strokeWidth=5), base.mark_line(color=theme.INK, strokeWidth=2.2)]
    return [*lines, *_cross(view, plane)]


def _cross(view: View, plane: dict[str, Any]) -> list[alt.Chart]:
    end = alt.Chart(theme.data([{"x": -view.center, "y": view.center}])).encode(**plane)
    look: Any = {"shape": "cross", "filled": True, "opacity": 1}
    return [end.mark_point(size=size, color=ink, **look) for size, ink in ((260, "white"), (130, theme.INK))]


def _law(logits: Logits) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The density of the margin in spreads: edges that have 0 among them, and heights."""
    margin = logits.margin / (logits.margin_spread or 1.0)
    low, high = min(float(margin.min()), -1.0), max(float(margin.max()), 1.0)
    step = (high - low) / _BINS
    edges = step * np.arange(np.floor(low / step), np.ceil(high / step) + 1)
    return edges, np.histogram(margin, edges)[0] / (len(margin) * step)


def _margin(
    edges: NDArray[np.float64],
    heights: NDArray[np.float64],
    logits: Logits,
    ends: tuple[float, float],
    top: float,
    *,
    first: bool,
) -> list[alt.Chart]:
    rival = FAVOURED, RIVAL if logits.classes == 2 else OTHER
    rows = [
        {"x": float(a), "to": float(b), "y": float(h), "zero": 0.0, "ink": rival[0] if a + b > 0 else rival[1]}
        for a, b, h in zip(edges, edges[1:], heights, strict=False)
    ]
    x = alt.X("x:Q", title="Margin of the favoured class, in spreads", **theme.axis(ends, tickCount=7, format="~g"))
    y = alt.Y("y:Q", title="Density" if first else None, **theme.axis([0, top], tickCount=3, labels=first))
    bars = alt.Chart(theme.data(rows)).mark_rect(stroke="white", strokeWidth=0.7, opacity=0.6)
    t = np.linspace(*ends, 160)
    normal = np.exp(-0.5 * (t - logits.distance) ** 2 - 0.5 * np.log(2 * np.pi))
    curve = [{"x": float(a), "y": float(b)} for a, b in zip(t, normal, strict=True)]
    text: Any = {"align": "right", "dx": -6, "color": theme.SOFT, "fontSize": 13}
    return [
        bars.encode(x=x, x2="to:Q", y=y, y2="zero:Q", color=alt.Color("ink:N", scale=None)),
        alt.Chart(theme.data(curve)).mark_line(color=theme.INK, strokeWidth=2).encode(x=x, y=y),
        *theme.named_rule(x, 0.0, "boundary", 8, dash=[1, 0], width=2, rule=theme.SOFT, **text),
    ]


def _heading(name: str, logits: Logits) -> alt.TitleParams:
    share = theme.percent(float(logits.shares[logits.favoured]))
    named = f"{name[:1].upper()}{name[1:]}: " if name else ""
    return alt.TitleParams(
        theme.unbroken(f"{named}{share} in class {logits.favoured}"),
        subtitle=[_where(logits)],
        anchor="start", frame="group", fontSize=17, subtitleFontSize=14, fontWeight="normal", offset=10,
        subtitlePadding=4,
    )  # fmt: skip


def _where(logits: Logits) -> str:
    if logits.classes > 2:  # a plane shows one rival, the margin is to the strongest of all
        return f"margin to the strongest other class: {_spreads(logits.distance)} on average"
    return f"centre {_spreads(abs(logits.distance))} {'beyond' if logits.distance > 0 else 'behind'} the boundary"


def _spreads(distance: float) -> str:
    size = f"{distance:.2f}" if abs(distance) < 0.995 else f"{distance:.1f}"
    return f"{size.replace('-', '−')} spreads"


def _title(clouds: Mapping[str, Logits]) -> str:
    def said(logits: Logits) -> str:
        return theme.percent(float(logits.shares[logits.favoured]))

    if len(clouds) == 1:
        (one,) = clouds.values()
        where = "beyond" if one.distance > 0 else "behind"
        return (
            f"The cloud is centred {_spreads(one.distance)} {where} the boundary: {said(one)} of the data in one class"
        )
    near, *_, far = sorted(clouds.values(), key=lambda logits: logits.distance)
    if said(near) == said(far):
        return f"The clouds lie alike: {said(near)} of the data in one class"
    return (
        f"Bias is a cloud that misses the boundary: {_spreads(far.distance)} off, one class gets {said(far)} of the "
        f"data; {_spreads(near.distance)} off, {said(near)}"
    )


def _subtitle(clouds: Mapping[str, Logits]) -> list[str]:
    one = next(iter(clouds.values()))
    text = "Logits of one untrained network each over the data; " if len(clouds) > 1 else "Logits of one network; "
    text += "lengths in standard deviations of the margin. "
    worst = max(clouds.values(), key=lambda logits: abs(_gap(logits)))
    if all(abs(_gap(logits)) < 0.02 for logits in clouds.values()):
        text += "A Gaussian margin would give the same shares within 2 %."
    else:
        gauss, share = theme.percents(float(special.ndtr(worst.distance)), float(worst.shares[worst.favoured]))
        text += f"The margin is not quite Gaussian: that would give {gauss} where {share} are seen."
    sizes = {logits.points for logits in clouds.values()}
    return [f"{text} {theme.spaced(one.points)} points." if len(sizes) == 1 else text]


def _gap(logits: Logits) -> float:
    return logits.gaussian_share - float(logits.shares[logits.favoured])


# The film of training in the plane of logits: the cloud moves to the boundary (bias goes), then turns (signal).

_SIZE = 190
_FRAMES = 5  # pictures of a film, where nobody says which
_HALF = 0.5  # of the way from the first distance to 0, and to the best alignment: what the title tells


def logits_film(
    frames: Mapping[int, Any] | Iterable[tuple[int, Any]],
    labels: ArrayLike | None = None,
    *,
    at: Sequence[int] | None = None,
    title: str | None = None,
    subtitle: Sequence[str] = (),
) -> theme.Chart:
    """Pictures of one network's logits at some steps of training and, below, two curves over all steps.

    *Translation*: the distance of the cloud's center from the boundary, in spreads of the margin; *rotation*: the
    correlation of the margin with the labels, which is the cosine of the angle between them. NORM App. C.1 says that
    the first goes to 0 before the second grows. The class that is favoured at the first step is followed throughout.

    `frames` are {step: logits} or (step, logits) in any order, logits (points, classes) as arrays, tensors or `Logits`,
    always of the same points; `labels` the points' classes, without which the second curve is left out; `at` which
    steps are drawn as pictures: by default five, the first and the last among them.
    """
    given: dict[int, Any] = dict(frames)
    film = {int(step): as_logits(given[step]) for step in sorted(given)}
    _check(film)
    steps = list(film)
    first = film[steps[0]]
    above, below = first.favoured, first.rival
    chosen = _chosen(steps, at)
    views = {step: View.of(film[step], above, below) for step in chosen}
    reach = 1.06 * max(2.5, *(view.reach for view in views.values()))
    y = None if labels is None else np.asarray(labels)
    pictures = [
        _picture(step, film[step], views[step], y, (above, below), reach, first=index == 0)
        for index, step in enumerate(chosen)
    ]
    margins = {step: logits.margin_of(above) for step, logits in film.items()}
    shift = np.array([m.mean() / (m.std(ddof=1) or 1.0) for m in margins.values()])
    turn = None if y is None else np.array([logits.alignment(y, above) for logits in film.values()])
    wide = _SIZE * len(chosen) + 24 * (len(chosen) - 1)
    curves = [
        _curve(
            steps, shift, chosen, "Translation: distance of the centre from the boundary, in spreads", wide // 2 - 40
        )
    ]
    if turn is not None:
        words = "Rotation: correlation of the margin with the labels"
        curves.append(_curve(steps, turn, chosen, words, wide // 2 - 40))
    names = [f"class {above}, favoured at the start", f"class {below}"]
    whose = "point of" if y is not None else "point guessed as"
    entries = [
        Entry(f"{whose} {names[0]}", FAVOURED, shape="circle"),
        Entry(f"{whose} {names[1]}", RIVAL, shape="circle"),
        *([Entry("another class", OTHER, shape="circle")] if first.classes > 2 else []),
        Entry("centre of the cloud", theme.INK, shape="cross"),
    ]
    chart: Any = alt.vconcat(
        key_above(entries), alt.hconcat(*pictures, spacing=24), alt.hconcat(*curves, spacing=70), spacing=18
    )
    said = title or theme.unbroken(_logits_film_title(steps, shift, turn))
    return theme.house(chart, said, subtitle or _logits_film_subtitle(first, len(steps)), wide=True)


def _check(film: Mapping[int, Logits]) -> None:
    if len(film) < 2:
        raise InvalidInput("logits at two steps at least", got=f"{len(film)}", where="logits_film")
    sizes = {logits.values.shape for logits in film.values()}
    if len(sizes) > 1:
        raise InvalidInput("logits of the same points at every step", got=f"shapes {sizes}", where="logits_film")


def _chosen(steps: list[int], at: Sequence[int] | None) -> list[int]:
    if at is not None:
        missing = [step for step in at if step not in steps]
        if missing or not at:
            raise InvalidInput("steps of the film", got=f"{missing or 'none'}", where="at", hint=f"at={steps[:3]}")
        return sorted(at)
    if len(steps) <= _FRAMES:
        return steps
    return [steps[i] for i in np.unique(np.linspace(0, len(steps) - 1, _FRAMES).round().astype(int))]


def _picture(
    step: int,
    logits: Logits,
    view: View,
    labels: NDArray[Any] | None,
    pair: tuple[int, int],
    reach: float,
    *,
    first: bool,
) -> alt.LayerChart:
    shown = logits.guesses if labels is None else labels
    inks = [{pair[0]: FAVOURED, pair[1]: RIVAL}.get(int(c), OTHER) for c in shown]
    plane = axes(reach, f"Logit of class {pair[1]}", f"Logit of class {pair[0]}" if first else None)
    share = theme.percent(float(logits.shares[pair[0]]))
    layers = [*sides(reach, plane), dots(view, inks, reach, plane, 14), *_cross(view, plane)]
    head = alt.TitleParams(
        f"step {theme.spaced(step)}", subtitle=[theme.unbroken(f"{share} guessed class {pair[0]}")], anchor="start",
        frame="group", fontSize=16, subtitleFontSize=13, fontWeight="normal", offset=8, subtitlePadding=3,
    )  # fmt: skip
    return theme.stacked(layers, _SIZE, _SIZE, title=head)


def _curve(steps: list[int], values: NDArray[np.float64], chosen: list[int], words: str, wide: int) -> alt.LayerChart:
    rows = [
        {"step": s, "y": float(v), "shown": s in chosen}
        for s, v in zip(steps, values, strict=True)
        if math.isfinite(float(v))
    ]
    x = theme.steps_axis(np.array(steps))
    ends = [min(0.0, float(np.nanmin(values))), 1.05 * max(0.1, float(np.nanmax(values)))]
    y = alt.Y("y:Q", title=None, **theme.axis(ends, tickCount=4))
    base = alt.Chart(theme.data(rows)).encode(x=x, y=y)
    zero = alt.Chart(theme.data([{"y": 0.0}])).mark_rule(color=theme.SOFT, strokeDash=[2, 3]).encode(y=y)
    picked = alt.Chart(theme.data([row for row in rows if row["shown"]])).encode(x=x, y=y)
    layers = [
        zero,
        base.mark_line(color=theme.INK, strokeWidth=2.5),
        picked.mark_point(filled=True, color=theme.INK, size=70, opacity=1, stroke="white", strokeWidth=1),
    ]
    return theme.stacked(layers, wide, 150, title=heading(words))


def _logits_film_title(steps: list[int], shift: NDArray[np.float64], turn: NDArray[np.float64] | None) -> str:
    """A title that says when half of the way is gone, there and here: which comes first is what was found."""
    near = next((s for s, v in zip(steps, shift, strict=True) if abs(v) <= _HALF * abs(shift[0])), None)
    gone = (
        f"the cloud is half-way to the boundary by step {theme.spaced(near)}"
        if near is not None
        else "the cloud stays away"
    )
    if turn is None or not np.isfinite(turn).any():
        return gone[0].upper() + gone[1:]
    best = float(np.nanmax(turn))
    if best < 0.1:
        return f"{gone[0].upper()}{gone[1:]}; it has not turned towards the labels by step {theme.spaced(steps[-1])}"
    half = float(turn[0]) + _HALF * (best - float(turn[0]))
    turned = next(s for s, v in zip(steps, turn, strict=True) if v >= half)
    if near is None:
        return (
            f"The cloud stays away from the boundary, and is half turned to the labels by step {theme.spaced(turned)}"
        )
    if near < turned:
        return f"First translation, then rotation: {gone}, half turned to the labels by step {theme.spaced(turned)}"
    if near == turned:
        return f"Translation and rotation together: half of both by step {theme.spaced(near)}"
    return f"Rotation before translation: half turned to the labels by step {theme.spaced(turned)}, {gone}"


def _logits_film_subtitle(first: Logits, steps: int) -> list[str]:
    share = theme.percent(float(first.shares[first.favoured]))
    return [
        f"One network's logits on {theme.spaced(first.points)} points at {steps} steps of training, in standard "
        f"deviations of the margin; the diagonal is the boundary. At the start {share} are guessed to be of one class."
    ]
