"""The head of the report: whose network, the verdict, its main cause, and the best fix with its price and code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from firstguess.diagnosis import sentences
from firstguess.diagnosis.expected import agreement
from firstguess.show.charts.theme import unbroken
from firstguess.show.report import wording
from firstguess.show.report.elements import tag
from firstguess.show.report.glossary import cited

if TYPE_CHECKING:
    from firstguess.diagnosis.result import Advice, Diagnosis, Expected

_EXPECTED = {
    "as measured": "yes: theory predicts this for the architecture",
    "close": "yes: theory predicts nearly this for the architecture",
    "not as measured": "no: theory predicts something else for the architecture",
    "too few to tell": "not sure: too few initializations to tell",
}


def title(d: Diagnosis) -> str:
    """Of the window."""
    on = f" on {d.data_name}" if d.data_name else ""
    return f"{d.name}{on}: {d.verdict.name} · firstguess"


def head(d: Diagnosis) -> Markup:
    """Whose network, and what to know of it."""
    sure = wording.sureness(d.verdict)
    where = tag("p", "Untrained, on ", tag("strong", d.data_name), class_="soft") if d.data_name else Markup("")
    return tag(
        "header",
        tag("p", "firstguess: what this network believes before it has learned anything", class_="eyebrow"),
        tag("h1", d.name),
        where,
        tag(
            "div",
            tag(
                "p",
                tag("strong", d.verdict.title, class_="badge"),
                *([tag("span", f" {sure}", class_="soft")] if sure else []),
            ),
            tag("p", unbroken(sentences.headline(d)), class_="headline"),
            *([tag("p", wording.sentence(d.verdict.why), class_="soft")] if d.verdict.why else []),
            _answers(d),
            class_=f"verdict {d.verdict.name.replace(' ', '-')}",
        ),
    )


def _answers(d: Diagnosis) -> Markup:
    rows: list[Markup] = []
    if d.measurement is not None and d.causes:
        rows.append(_row("Main cause", wording.sentence(sentences.cause(d)), "causes"))
    if d.measurement is not None:
        rows.append(_row("Expected?", wording.sentence(_expected(d.expected)), "expected"))
    fix = best(d)
    if fix is not None:
        rows.append(_row("Best fix", wording.sentence(f"{fix.title}: {sentences.result(fix)}"), "advice"))
        if fix.price:
            rows.append(_row("Its price", wording.sentence(fix.price)))
    elif d.advice:
        rows.append(_row("Best fix", "No change that was tried is worth making.", "advice"))
    coded = with_code(d)
    code = Markup("") if coded is None else Markup("").join([_preface(coded, fix), code_block(coded.code, "the fix")])
    return Markup("").join([tag("dl", *rows, class_="answers") if rows else Markup(""), code])


def _row(name: str, words: str, link: str = "") -> Markup:
    term = tag("a", name, href=f"#{link}") if link else name
    return Markup("").join([tag("dt", term), tag("dd", cited(words))])


def _expected(e: Expected) -> str:
    if e.comparison is None:
        return "not known: theory has no number for this architecture that could be compared"
    return _EXPECTED[agreement(e.comparison)]


def best(d: Diagnosis) -> Advice | None:
    """The change that is ranked first."""
    return d.ranked[0] if d.ranked else None


def with_code(d: Diagnosis) -> Advice | None:
    """The first change that can be pasted."""
    return next((a for a in d.ranked if a.code), None)


def _preface(coded: Advice, fix: Advice | None) -> Markup:
    which = "It" if coded is fix else f"That one is a change of the architecture. What can be pasted: {coded.title}. It"
    needs = " and ".join(tag("code", name) for name in ("model", "loader") if name in coded.code) or "nothing else"
    own = " (yours: the network, and batches of its data)" if "loader" in coded.code else ""
    return tag("p", f"{which} needs ", Markup(needs), f"{own}:", class_="soft before-code")


def code_block(code: str, name: str) -> Markup:
    """Code in a box of its own; the script adds a button that copies it."""
    return tag("div", tag("pre", tag("code", code), tabindex="0"), class_="code", data_code=name)
