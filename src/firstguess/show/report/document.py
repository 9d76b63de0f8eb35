"""The whole page: the answer, the evidence, the details; style, charts and the script that draws them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING

from markupsafe import Markup

from firstguess._version import __version__
from firstguess.diagnosis import sentences
from firstguess.show.report import changes, charts, details, glossary, sections, top
from firstguess.show.report.dark import dark_style
from firstguess.show.report.elements import tag
from firstguess.show.report.policy import policy, script

if TYPE_CHECKING:
    from firstguess.diagnosis.result import Diagnosis


def document(d: Diagnosis, *, live: bool = True) -> str:
    """One HTML file that loads nothing; not `live`: without scripts, charts are pictures."""
    drawn = charts.draw(d, _titles(d), live=live)
    evidence = [
        sections.faults(d),
        sections.findings(d),
        sections.guesses(d, drawn),
        sections.causes(d, drawn),
        sections.expected(d),
        sections.trainability(d, drawn),
        sections.lasting(d),
        changes.advice(d, drawn),
        details.details(d),
    ]
    head = top.head(d)
    words = glossary.glossary(Markup(" ").join([head, *evidence]).striptags())
    evidence += [words, glossary.papers()]
    body = [head, contents(evidence), *evidence]
    return whole(top.title(d), body, drawn, copies=changes.has_code(d), live=live)


def _titles(d: Diagnosis) -> dict[str, str]:
    found = {"law": sentences.often(d), "correlation": sections.correlation_title(d), "advice": changes.title(d)}
    return found if d.trainability is None else found | {"gradients": sections.gradients_title(d.trainability)}


def contents(parts: Sequence[str]) -> Markup:
    """Links to all headings."""
    found = re.findall(r'<h2 id="([^"]*)">(.*?)</h2>', "".join(parts))
    items = [tag("li", tag("a", Markup(title), href=f"#{key}")) for key, title in found]
    return tag("nav", tag("ul", *items), aria_label="Contents")


def whole(
    title: str,
    body: Sequence[str],
    drawn: charts.Drawn,
    *,
    copies: bool = False,
    live: bool = True,
    own: Sequence[str] = (),
) -> str:
    """A page of the house: its sections, the style, what draws its charts, and scripts of its `own`."""
    folded = "Not on paper: what is folded on the screen, such as tables and code of further changes."
    foot = tag(
        "footer",
        tag("p", f"Made with firstguess {__version__}. This file is complete: it loads nothing."),
        *([tag("p", folded, class_="paper")] if "<details" in "".join(body) else []),
    )
    scripts = [charts.libraries()] if drawn and live else []
    scripts += [_resource("script.js")] if (drawn or copies) and live else []
    scripts += own
    head = Markup("").join(
        [
            Markup('<meta charset="utf-8">'),
            policy(scripts),
            Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            Markup('<meta name="color-scheme" content="light dark">'),
            Markup('<meta name="referrer" content="no-referrer">'),
            tag("title", title),
            tag("style", Markup(_resource("style.css") + dark_style())),
        ]
    )
    page = tag("html", tag("head", head), tag("body", tag("main", *body), foot, *map(script, scripts)), lang="en")
    return f"<!DOCTYPE html>\n{page}\n"


def _resource(name: str) -> str:
    return resources.files("firstguess.show.report").joinpath(name).read_text("utf-8")
