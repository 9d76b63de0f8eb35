"""Bias at a glance: the cloud of one network's logits, its boundary, and the distribution of its margin."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import altair as alt
import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from firstguess.base.errors import InvalidInput
from firstguess.base.gaussian import Array
from firstguess.base.text import capital
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

    x: Array
    y: Array
    center: float  # of y; that of x is its negative

    @classmethod
    def of(cls, logits: Logits, above: int, below: int) -> View:
        """The plane in which class `above` is guessed over the diagonal, `below` under it."""
        one, other = logits.values[:, above], logits.values[:, below]
        spread = float((one - other).std(ddof=1)) or 1.0
        middle = (one.mean() + other.mean()) / 2
        unit = np.sqrt(2) / spread  # so that a point's distance from the diagonal is its margin in spreads
        center = float((one.mean() - other.mean()) / 2 * unit)
        return cls((other - middle) * unit, (one - middle) * unit, center)

    @property
    def reach(self) -> float:
        """How far the axes must go, without the few farthest points."""
        return float(np.quantile(np.abs([self.x, self.y]), 0.995))


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
    ends = min(float(edges[0]) for edges, _ in laws.values()), max(float(edges[-1]) for edges, _ in laws.values())
    top = 1.08 * max(0.4, *(float(heights.max()) for _, heights in laws.values()))
    many = len(clouds) > 1
    columns: list[Any] = []
    for index, (name, logits) in enumerate(clouds.items()):
        above, below = logits.favoured, logits.rival
        inks = [{above: FAVOURED, below: RIVAL}.get(int(g), OTHER) for g in logits.guesses]
        words = [f"guess: class {c}" if logits.classes == 2 else f"class {c} is higher" for c in (above, below)]
        titles = f"Logit of class {below}, in spreads", f"Logit of class {above}, in spreads"
        plane = theme.stacked(_plane(views[name], inks, reach, titles, words), SIZE, SIZE, title=_heading(name, logits))
        margin = _margin(*laws[name], logits, ends, top, first=index == 0)
        law = theme.stacked(margin, SIZE, _LAW if many else SIZE)
        columns += [alt.vconcat(plane, law, spacing=22)] if many else [plane, law]
    entries = [Entry("point guessed as the favoured class", FAVOURED, shape="circle")]
    entries.append(Entry("as its rival", RIVAL, shape="circle"))
    if any(logits.classes > 2 for logits in clouds.values()):
        entries.append(Entry("as another", OTHER, shape="circle"))
    entries += [Entry("centre of the cloud", theme.INK, shape="cross"), Entry("Gaussian", theme.INK)]
    chart: Any = alt.vconcat(key_above(entries), alt.hconcat(*columns, spacing=46), spacing=12)
    said = title or theme.unbroken(_title(clouds))
    return theme.house(chart, said, subtitle or _subtitle(clouds), wide=len(clouds) > 2)


def _plane(
    view: View, inks: Sequence[str], reach: float, titles: tuple[str, str | None], words: Sequence[str] = ()
) -> list[alt.Chart]:
    """The points, evenly chosen where there are many, those beyond the axes at their edge; cut by the diagonal.

    With `words` for what is guessed on each side, and the shortest way from the boundary to the cloud's center.
    """
    step = theme.round_step(reach, 4)
    ticks = [step * k for k in range(-4, 5) if abs(step * k) <= reach]
    look = theme.axis([-reach, reach], values=ticks, grid=False, format="~g")
    # Titles too: layers whose axes differ in them show none.
    plane = {"x": alt.X("x:Q", title=titles[0], **look), "y": alt.Y("y:Q", title=titles[1], **look)}
    sides = theme.chart([{"x": v, "y": v, "low": -reach, "high": reach} for v in (-reach, reach)], **plane)
    layers = [
        sides.mark_area(color=_ABOVE, clip=True).encode(y2="high:Q"),
        sides.mark_area(color=_BELOW, clip=True).encode(y2="low:Q"),
        sides.mark_line(color=theme.SOFT, strokeWidth=2, clip=True),
    ]
    chosen = np.unique(np.linspace(0, len(view.x) - 1, min(_DOTS, len(view.x))).astype(int))
    x, y = (np.clip(values, -reach, reach).tolist() for values in (view.x, view.y))
    rows = [{"x": x[i], "y": y[i], "ink": inks[i]} for i in chosen]
    dots = theme.chart(rows, color=alt.Color("ink:N", scale=None), **plane)
    layers.append(dots.mark_point(filled=True, size=22 if words else 14, opacity=0.55))
    corners: Any = ((-0.95 * reach, "left", "top", FAVOURED), (0.95 * reach, "right", "bottom", RIVAL))
    for text, (at, align, baseline, ink) in zip(words, corners, strict=False):
        word = theme.chart([{"x": at, "y": -at, "text": text}], text="text:N", **plane)
        layers += theme.halo(word, align=align, baseline=baseline, color=ink, fontSize=14)
    end = {"x": -view.center, "y": view.center}
    if words:
        way = theme.chart([{"x": 0.0, "y": 0.0}, end], **plane)
        layers += [way.mark_line(color=c, strokeWidth=wide) for c, wide in (("white", 5), (theme.INK, 2.2))]
    cross = theme.chart([end], **plane)
    mark: Any = {"shape": "cross", "filled": True, "opacity": 1}
    return [*layers, *(cross.mark_point(size=n, color=c, **mark) for n, c in ((260, "white"), (130, theme.INK)))]


def _law(logits: Logits) -> tuple[Array, Array]:
    """The density of the margin in spreads: edges that have 0 among them, and heights."""
    margin = logits.margin / (logits.margin_spread or 1.0)
    low, high = min(float(margin.min()), -1.0), max(float(margin.max()), 1.0)
    step = (high - low) / _BINS
    edges = step * np.arange(np.floor(low / step), np.ceil(high / step) + 1)
    return edges, np.histogram(margin, edges)[0] / (len(margin) * step)


def _margin(
    edges: Array, heights: Array, logits: Logits, ends: tuple[float, float], top: float, *, first: bool
) -> list[alt.Chart]:
    rival = FAVOURED, RIVAL if logits.classes == 2 else OTHER
    rows = [
        {"x": float(a), "to": float(b), "y": float(h), "zero": 0.0, "ink": rival[0] if a + b > 0 else rival[1]}
        for a, b, h in zip(edges, edges[1:], heights, strict=False)
    ]
    x = alt.X("x:Q", title="Margin of the favoured class, in spreads", **theme.axis(ends, tickCount=7, format="~g"))
    y = alt.Y("y:Q", title="Density" if first else None, **theme.axis([0, top], tickCount=3, labels=first))
    bars = theme.chart(rows).mark_rect(stroke="white", strokeWidth=0.7, opacity=0.6)
    t = np.linspace(*ends, 160)
    normal = np.exp(-0.5 * (t - logits.distance) ** 2 - 0.5 * np.log(2 * np.pi))
    curve = [{"x": float(a), "y": float(b)} for a, b in zip(t, normal, strict=True)]
    text: Any = {"align": "right", "dx": -6, "color": theme.SOFT, "fontSize": 13}
    return [
        bars.encode(x=x, x2="to:Q", y=y, y2="zero:Q", color=alt.Color("ink:N", scale=None)),
        theme.chart(curve).mark_line(color=theme.INK, strokeWidth=2).encode(x=x, y=y),
        *theme.named_rule(x, 0.0, "boundary", 8, dash=[1, 0], width=2, rule=theme.SOFT, **text),
    ]


def _heading(name: str, logits: Logits) -> alt.TitleParams:
    share = theme.percent(float(logits.shares[logits.favoured]))
    named = f"{name[:1].upper()}{name[1:]}: " if name else ""
    return theme.heading(theme.unbroken(f"{named}{share} in class {logits.favoured}"), _where(logits))


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
    if len(film) < 2:
        raise InvalidInput("logits at two steps at least", got=f"{len(film)}", where="logits_film")
    sizes = {logits.values.shape for logits in film.values()}
    if len(sizes) > 1:
        raise InvalidInput("logits of the same points at every step", got=f"shapes {sizes}", where="logits_film")
    steps = list(film)
    first = film[steps[0]]
    above, below = first.favoured, first.rival
    chosen = _chosen(steps, at)
    views = {step: View.of(film[step], above, below) for step in chosen}
    reach = 1.06 * max(2.5, *(view.reach for view in views.values()))
    y = None if labels is None else np.asarray(labels)
    pictures: list[Any] = []
    for step in chosen:
        inks = [{above: FAVOURED, below: RIVAL}.get(int(c), OTHER) for c in (film[step].guesses if y is None else y)]
        titles = f"Logit of class {below}", None if pictures else f"Logit of class {above}"
        share = theme.percent(float(film[step].shares[above]))
        note = theme.unbroken(f"{share} guessed class {above}")
        head = theme.heading(f"step {theme.spaced(step)}", note, size=16)
        pictures.append(theme.stacked(_plane(views[step], inks, reach, titles), _SIZE, _SIZE, title=head))
    margins = {step: logits.margin_of(above) for step, logits in film.items()}
    shift = np.array([m.mean() / (m.std(ddof=1) or 1.0) for m in margins.values()])
    turn = None if y is None else np.array([logits.alignment(y, above) for logits in film.values()])
    wide = (_SIZE * len(chosen) + 24 * (len(chosen) - 1)) // 2 - 40
    words = "Translation: distance of the centre from the boundary, in spreads"
    curves = [_curve(steps, shift, chosen, words, wide)]
    if turn is not None:
        words = "Rotation: correlation of the margin with the labels"
        curves.append(_curve(steps, turn, chosen, words, wide))
    whose = "point of" if y is not None else "point guessed as"
    entries = [Entry(f"{whose} class {above}, favoured at the start", FAVOURED, shape="circle")]
    entries.append(Entry(f"{whose} class {below}", RIVAL, shape="circle"))
    entries += [Entry("another class", OTHER, shape="circle")] if first.classes > 2 else []
    entries.append(Entry("centre of the cloud", theme.INK, shape="cross"))
    rows = alt.hconcat(*pictures, spacing=24), alt.hconcat(*curves, spacing=70)
    chart: Any = alt.vconcat(key_above(entries), *rows, spacing=18)
    share = theme.percent(float(first.shares[above]))
    default = (
        f"One network's logits on {theme.spaced(first.points)} points at {len(steps)} steps of training, in standard "
        f"deviations of the margin; the diagonal is the boundary. At the start {share} are guessed to be of one class."
    )
    said = title or theme.unbroken(_logits_film_title(steps, shift, turn))
    return theme.house(chart, said, subtitle or [default], wide=True)


def _chosen(steps: list[int], at: Sequence[int] | None) -> list[int]:
    if at is not None:
        missing = [step for step in at if step not in steps]
        if missing or not at:
            raise InvalidInput("steps of the film", got=f"{missing or 'none'}", where="at", hint=f"at={steps[:3]}")
        return sorted(at)
    if len(steps) <= _FRAMES:
        return steps
    return [steps[i] for i in np.unique(np.linspace(0, len(steps) - 1, _FRAMES).round().astype(int))]


def _curve(steps: list[int], values: Array, chosen: list[int], words: str, wide: int) -> alt.LayerChart:
    known = zip(steps, values.tolist(), strict=True)
    rows = [{"step": s, "y": v, "shown": s in chosen} for s, v in known if math.isfinite(v)]
    ends = [min(0.0, float(np.nanmin(values))), 1.05 * max(0.1, float(np.nanmax(values)))]
    x, y = theme.steps_axis(np.array(steps)), alt.Y("y:Q", title=None, **theme.axis(ends, tickCount=4))
    picked = theme.chart([row for row in rows if row["shown"]], x=x, y=y)
    layers = [
        theme.chart([{"y": 0.0}], y=y).mark_rule(color=theme.SOFT, strokeDash=[2, 3]),
        theme.chart(rows, x=x, y=y).mark_line(color=theme.INK, strokeWidth=2.5),
        picked.mark_point(filled=True, color=theme.INK, size=70, opacity=1, stroke="white", strokeWidth=1),
    ]
    return theme.stacked(layers, wide, 150, title=heading(words))


def _logits_film_title(steps: list[int], shift: Array, turn: Array | None) -> str:
    """A title that says when half of the way is gone, there and here: which comes first is what was found."""
    near = next((s for s, v in zip(steps, shift, strict=True) if abs(v) <= _HALF * abs(shift[0])), None)
    gone = "the cloud stays away"
    if near is not None:
        gone = f"the cloud is half-way to the boundary by step {theme.spaced(near)}"
    if turn is None or not np.isfinite(turn).any():
        return capital(gone)
    best = float(np.nanmax(turn))
    if best < 0.1:
        return f"{capital(gone)}; it has not turned towards the labels by step {theme.spaced(steps[-1])}"
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
