"""The report's charts: each once as a picture, for readers without scripts, and once as what the script draws."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import vl_convert
from markupsafe import Markup

from firstguess.show import charts as figures
from firstguess.show.charts.theme import unbroken
from firstguess.show.report.elements import tag

if TYPE_CHECKING:
    from firstguess.diagnosis.result import Diagnosis

Drawn: TypeAlias = dict[str, Markup]

_GLOBAL = "window.vegaEmbed = vegaEmbed;"


def draw(d: Diagnosis, *, live: bool = True) -> Drawn:
    """The figures that this diagnosis has something for, by name; not `live`: as pictures only."""
    return {name: figure(name, chart().to_dict(validate=False), live=live) for name, chart in _charts(d)}


def _charts(d: Diagnosis) -> Iterator[tuple[str, Callable[[], Any]]]:
    m, t = d.measurement, d.trainability
    if m is not None:
        yield "law", lambda: figures.law_chart(m, d.expected.prediction)
        yield "strip", lambda: figures.strip_chart(m)
        if m.layers:
            yield "correlation", lambda: figures.correlation_chart(d)
    if t is not None and t.gradients is not None and t.gradients.layers:
        gradients = t.gradients
        yield "gradients", lambda: figures.gradients_chart(gradients)
    if d.advice:
        yield "advice", lambda: figures.advice_chart(d.advice)


def figure(name: str, spec: dict[str, Any], *, live: bool = True) -> Markup:
    """Title and setting are the page's own text, which wraps and is read out; a saved chart has them inside."""
    title, setting = (" ".join(spec["title"].get(part, "")) for part in ("text", "subtitle"))
    return tag(
        "figure",
        tag("h3", title, id=f"{name}-title"),
        tag("p", "Wider than this screen: scroll it sideways →", class_="sideways soft"),
        tag(
            "div", _picture(name, spec), class_="chart", role="img", aria_labelledby=f"{name}-title", id=f"{name}-chart"
        ),
        tag("figcaption", unbroken(setting)),
        *([tag("script", _json(spec), type="application/json", class_="spec")] if live else []),
        class_="card",
        data_chart=name,
    )


def shown(spec: dict[str, Any]) -> dict[str, Any]:
    """A chart as the page shows it: its title is text beside it, its ground the page's. The script does the same."""
    spec = copy.deepcopy(spec)
    del spec["title"]
    spec["config"] |= {"background": None, "padding": 4, "aria": False}
    return spec


def _picture(name: str, spec: dict[str, Any]) -> Markup:
    svg = vl_convert.vegalite_to_svg(shown(spec))
    # Every picture calls its clips clip0, clip1, …: in one page the first would clip all.
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    return Markup(svg)


def _json(spec: dict[str, Any]) -> Markup:
    """Users' texts are in it: no "</script>" in a name ends the script."""
    return Markup(json.dumps(spec, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"))


@cache
def libraries() -> Markup:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    script = vl_convert.javascript_bundle(_GLOBAL)
    return tag("script", Markup(script.replace("</script", "<\\/script")))
