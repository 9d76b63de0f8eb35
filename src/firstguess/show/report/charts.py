"""The report's charts: each once as a picture, for readers without scripts, and once as what the script draws."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping
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


def draw(d: Diagnosis, titles: Mapping[str, str], *, live: bool = True) -> Drawn:
    """The figures that this diagnosis has something for, by name: each for a wide page, and for a phone.

    `titles` say what no other place of the page does: one number, one place. Not `live`: as pictures only.
    """
    specs = {
        name: [chart(narrow).to_dict(validate=False) for narrow in (False, True)] for name, chart in _charts(d, titles)
    }
    return {name: figure(name, wide, narrow, live=live) for name, (wide, narrow) in specs.items()}


def _charts(d: Diagnosis, titles: Mapping[str, str]) -> Iterator[tuple[str, Callable[[bool], Any]]]:
    m, t = d.measurement, d.trainability

    def named(name: str, narrow: bool) -> Any:
        return {"title": unbroken(titles[name]) if name in titles else None, "narrow": narrow}

    if m is not None:
        yield "law", lambda narrow: figures.law_chart(m, d.expected.prediction, **named("law", narrow))
        yield "strip", lambda narrow: figures.strip_chart(m, **named("strip", narrow))
        if m.layers:
            yield "correlation", lambda narrow: figures.correlation_chart(d, **named("correlation", narrow))
    if t is not None and t.gradients is not None and t.gradients.layers:
        gradients = t.gradients
        yield "gradients", lambda narrow: figures.gradients_chart(gradients, **named("gradients", narrow))
    if d.advice:
        yield "advice", lambda narrow: figures.advice_chart(d.advice, **named("advice", narrow))


def figure(name: str, spec: dict[str, Any], narrow: dict[str, Any] | None = None, *, live: bool = True) -> Markup:
    """Title and setting are the page's own text, which wraps and is read out; a saved chart has them inside."""
    title, setting = (" ".join(spec["title"].get(part, "")) for part in ("text", "subtitle"))
    sizes = {"wide": spec, "narrow": narrow} if narrow is not None else {"": spec}
    return tag(
        "figure",
        tag("h3", title, id=f"{name}-title"),
        *(
            tag(
                "div",
                _picture(f"{name}{size}", one),
                class_=f"chart {size}".strip(),
                role="img",
                aria_labelledby=f"{name}-title",
                id=f"{name}-chart{f'-{size}' if size else ''}",
            )
            for size, one in sizes.items()
        ),
        tag("figcaption", unbroken(setting)),
        *(
            tag("script", _json(one), type="application/json", class_="spec", data_size=size or "any")
            for size, one in (sizes.items() if live else ())
        ),
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
def libraries() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    return vl_convert.javascript_bundle(_GLOBAL).replace("</script", "<\\/script")
