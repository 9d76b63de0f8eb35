"""The whole page: sections in order, style, charts and the script that draws them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING

from markupsafe import Markup

from firstguess._version import __version__
from firstguess.show.report import changes, charts, sections
from firstguess.show.report.dark import dark_style
from firstguess.show.report.elements import tag

if TYPE_CHECKING:
    from firstguess.diagnosis.result import Diagnosis


def document(d: Diagnosis, *, live: bool = True) -> str:
    """One HTML file that loads nothing; not `live`: without scripts, charts are pictures."""
    drawn = charts.draw(d, live=live)
    body = [
        sections.head(d),
        sections.faults(d),
        sections.numbers(d),
        sections.findings(d),
        sections.guesses(d, drawn),
        sections.causes(d, drawn),
        sections.expected(d),
        sections.trainability(d, drawn),
        sections.lasting(d),
        changes.advice(d, drawn),
        sections.structure(d),
        sections.layers(d.measurement),
        sections.notes(d),
        sections.provenance(d),
    ]
    return whole(f"{d.name}: {d.verdict.name} · firstguess", body, drawn, copies=changes.has_code(d), live=live)


def whole(title: str, body: Sequence[str], drawn: charts.Drawn, *, copies: bool = False, live: bool = True) -> str:
    """A page of the house: its sections, the style, and what draws its charts."""
    foot = tag("footer", tag("p", f"Made with firstguess {__version__}. This file is complete: it loads nothing."))
    scripts = [charts.libraries()] if drawn and live else []
    scripts += [tag("script", Markup(_resource("script.js")))] if (drawn or copies) and live else []
    head = Markup("").join(
        [
            Markup('<meta charset="utf-8">'),
            Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            Markup('<meta name="color-scheme" content="light dark">'),
            tag("title", title),
            tag("style", Markup(_resource("style.css") + dark_style())),
        ]
    )
    page = tag("html", tag("head", head), tag("body", tag("main", *body), foot, *scripts), lang="en")
    return f"<!DOCTYPE html>\n{page}\n"


def _resource(name: str) -> str:
    return resources.files("firstguess.show.report").joinpath(name).read_text("utf-8")
