"""Figures: a result becomes a chart, and a chart a file. One figure a file; nothing is computed here but coordinates.

>>> import firstguess as fg
>>> from firstguess.show import charts as figures
>>> chart = figures.guesses_chart(fg.predict(fg.mlp(depth=1)), fg.predict(fg.mlp(depth=20)))
>>> figures.save(chart, "guesses.gif")
Traceback (most recent call last):
...
firstguess.InvalidInput: Expected a file name that ends in .html, .pdf, .png or .svg, but got 'guesses.gif', at
save(path). Try: guesses.png

`import firstguess.show.charts` loads no altair; the figures do, when they are first asked for.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from firstguess.base import files
from firstguess.base.errors import InvalidInput

if TYPE_CHECKING:
    from firstguess.show.charts.absorption import absorption_chart
    from firstguess.show.charts.advice import advice_chart
    from firstguess.show.charts.correlation import correlation_chart
    from firstguess.show.charts.frontier import frontier_chart
    from firstguess.show.charts.gamma_by_depth import gamma_by_depth_chart
    from firstguess.show.charts.gradients import gradients_chart
    from firstguess.show.charts.guesses import guesses_chart
    from firstguess.show.charts.law import law_chart
    from firstguess.show.charts.lines import lines_chart
    from firstguess.show.charts.logits import logits_chart
    from firstguess.show.charts.logits_film import logits_film
    from firstguess.show.charts.measured import compare_chart
    from firstguess.show.charts.modes import modes_chart
    from firstguess.show.charts.panels import panels_chart
    from firstguess.show.charts.phases import phase_diagram_chart
    from firstguess.show.charts.readings import readings_chart
    from firstguess.show.charts.strip import strip_chart
    from firstguess.show.charts.sweep import study_chart
    from firstguess.show.charts.theme import Chart
    from firstguess.show.charts.training import training_chart
    from firstguess.show.charts.watched import watch_chart

__all__ = [
    "absorption_chart",
    "advice_chart",
    "compare_chart",
    "correlation_chart",
    "frontier_chart",
    "gamma_by_depth_chart",
    "gradients_chart",
    "guesses_chart",
    "law_chart",
    "lines_chart",
    "logits_chart",
    "logits_film",
    "modes_chart",
    "panels_chart",
    "phase_diagram_chart",
    "readings_chart",
    "save",
    "strip_chart",
    "study_chart",
    "training_chart",
    "watch_chart",
]

_HOMES = {
    "absorption_chart": "absorption",
    "modes_chart": "modes",
    "strip_chart": "strip",
    "study_chart": "sweep",
    "training_chart": "training",
    "watch_chart": "watched",
    "law_chart": "law",
    "gradients_chart": "gradients",
    "correlation_chart": "correlation",
    "advice_chart": "advice",
    "compare_chart": "measured",
    "frontier_chart": "frontier",
    "gamma_by_depth_chart": "gamma_by_depth",
    "guesses_chart": "guesses",
    "lines_chart": "lines",
    "logits_chart": "logits",
    "logits_film": "logits_film",
    "panels_chart": "panels",
    "phase_diagram_chart": "phases",
    "readings_chart": "readings",
}
_FORMATS = (".html", ".pdf", ".png", ".svg")


def save(chart: Chart, path: str | Path) -> Path:
    """Write a chart as PNG (two pixels a point), SVG, PDF or HTML, by the ending of `path`; gives the path back.

    HTML is one file with everything in it: it opens, with tooltips, on a machine without a network.
    """
    target = check_path(path)
    if not hasattr(chart, "to_dict"):
        raise InvalidInput(
            "a chart", got=type(chart).__name__, where="save(chart)", hint="save(guesses_chart(prediction), path)"
        )
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


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
