"""The head of the report: whose network, and the answer, with what to type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from firstguess.diagnosis.sentences import best_change, rows_of
from firstguess.show.charts.theme import unbroken
from firstguess.show.report import wording
from firstguess.show.report.elements import tag
from firstguess.show.report.glossary import cited

if TYPE_CHECKING:
    from firstguess.diagnosis.result import Advice, Diagnosis


def title(d: Diagnosis) -> str:
    """Of the window."""
    on = f" on {d.data_name}" if d.data_name else ""
    return f"{d.name}{on}: {d.answer} · firstguess"


def head(d: Diagnosis) -> Markup:
    """Whose network, and the answer: what to do, why, what to type."""
    where = tag("p", "Untrained, on ", tag("strong", d.data_name), class_="soft") if d.data_name else Markup("")
    return tag(
        "header",
        tag("p", "firstguess: what this network believes before it has learned anything", class_="eyebrow"),
        tag("h1", d.name),
        where,
        tag(
            "div",
            tag("p", tag("strong", d.answer, class_="badge"), " ", tag("span", d.verdict.title, class_="soft")),
            tag("p", unbroken(d.headline), class_="headline"),
            _answers(d),
            class_=f"verdict {d.answer.replace(' ', '-')}",
        ),
    )


def _answers(d: Diagnosis) -> Markup:
    # A line of code is not a sentence: it stands whole in the box below.
    said = [
        (name, f"{words.partition('#')[2]}: the code below" if "   # " in words else words)
        for name, words in rows_of(d)
    ]
    rows = [_row(name, wording.sentence(words), _LINKS.get(name, "")) for name, words in said]
    coded = with_code(d)
    code = Markup("") if coded is None else Markup("").join([_preface(coded), code_block(coded.code, "the fix")])
    return Markup("").join([tag("dl", *rows, class_="answers") if rows else Markup(""), code])


_LINKS = {"Why": "causes", "Watch out": "lasting", "Optional": "advice", "Change": "advice", "Fix": "faults"}


def _row(name: str, words: str, link: str = "") -> Markup:
    term = tag("a", name, href=f"#{link}") if link else name
    return Markup("").join([tag("dt", term), tag("dd", cited(words))])


def with_code(d: Diagnosis) -> Advice | None:
    """The change that the answer asks for, if it can be pasted."""
    change = best_change(d)
    return change if change is not None and change.code else None


def _preface(coded: Advice) -> Markup:
    needs = " and ".join(tag("code", name) for name in ("model", "loader") if name in coded.code) or "nothing else"
    own = " (yours: the network, and batches of its data)" if "loader" in coded.code else ""
    return tag("p", "The code needs ", Markup(needs), f"{own}:", class_="soft before-code")


def code_block(code: str, name: str) -> Markup:
    """Code in a box of its own; the script adds a button that copies it."""
    return tag("div", tag("pre", tag("code", code), tabindex="0"), class_="code", data_code=name)
