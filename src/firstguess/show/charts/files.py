"""A chart becomes a file: PNG, SVG, PDF, or one HTML page that opens offline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from firstguess.base import files
from firstguess.base.errors import InvalidInput

if TYPE_CHECKING:
    from firstguess.show.charts.theme import Chart

_FORMATS = (".html", ".pdf", ".png", ".svg")


def save(chart: Chart, path: str | Path) -> Path:
    """Write a chart as PNG (two pixels a point), SVG, PDF or HTML, by the ending of `path`; gives the path back.

    HTML is one file with everything in it: it opens, with tooltips, on a machine without a network.
    """
    target = check_path(path)
    if not hasattr(chart, "to_dict"):
        hint = "save(guesses_chart(prediction), path)"
        raise InvalidInput("a chart", got=type(chart).__name__, where="save(chart)", hint=hint)
    import vl_convert

    spec: dict[str, Any] = chart.to_dict()
    ending = target.suffix.lower()
    content: str | bytes
    if ending == ".html":
        content = _page(spec)
    elif ending == ".png":
        content = vl_convert.vegalite_to_png(spec, scale=2)
    elif ending == ".pdf":
        content = vl_convert.vegalite_to_pdf(spec)
    else:
        content = vl_convert.vegalite_to_svg(spec)
    return files.write(target, content.encode() if isinstance(content, str) else content)


def _page(spec: dict[str, Any]) -> str:
    """One page with the libraries inside. Texts come from users: a "</script>" in a label must not end the script."""
    import json

    import vl_convert

    mark = "\ue0fc"  # of the private use area, so in no text; vl-convert writes "<" as it is
    page = vl_convert.vegalite_to_html(json.dumps(spec, ensure_ascii=False).replace("<", mark), bundle=True)
    return page.replace(mark, "\\u003c")


def check_path(path: str | Path) -> Path:
    """The path, if `save` could write there: for callers that want to know before a long computation."""
    return files.checked(path, _FORMATS, said=".html, .pdf, .png or .svg", example="figure.png")
