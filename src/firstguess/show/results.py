"""The charts that each kind of result has, its own first, and what a notebook shows of it. Loads no altair by itself.

`base.record` looks this up: a result knows that it can be shown, not how.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.show import charts

_LARGEST = 300_000  # bytes of an SVG in a notebook
# How Jupyter, VS Code, Colab and marimo mark a dark page: it need not be what the system prefers.
_DARK_PAGES = ':is([data-jp-theme-light="false"], .vscode-dark, [theme="dark"], [data-theme="dark"], .dark)'

if TYPE_CHECKING:
    from firstguess.base.record import Chart

    Draw = Callable[..., Chart]


def _drawn(name: str) -> Draw:
    """A chart that takes the result as it is, by its name in `charts/__init__.pyi`."""
    return lambda result, **options: getattr(charts, name)(result, **options)


# Kind of result -> its charts by name. By the class's name: some of these classes stand above this room.
CHARTS: dict[str, dict[str, Draw]] = {
    "Comparison": {"differences": _drawn("differences_chart")},
    "DataBias": {"standardization": _drawn("data_bias_chart")},
    "Diagnosis": {
        "guesses": lambda d, **options: charts.law_chart(_measured(d), d.expected.prediction, **options),
        "initializations": lambda d, **options: charts.strip_chart(_measured(d), **options),
        "correlation": _drawn("correlation_chart"),
        "gradients": lambda d, **options: charts.gradients_chart(_gradients(d), **options),
        "advice": lambda d, **options: charts.advice_chart(d.advice, **options),
        "support": lambda d, **options: charts.support_chart(d.expected.prediction, d.measurement, **options),
    },
    "EmpiricalGuesses": {"guesses": _drawn("sampled_law_chart")},
    "Explanation": {"shares": _drawn("explanation_chart")},
    "FiniteSize": {"std": _drawn("finite_size_chart")},
    "FixedPoint": {"phases": _drawn("fixed_point_chart")},
    "Frontier": {"frontier": _drawn("frontier_chart")},
    "Gradients": {"gradients": _drawn("gradients_chart")},
    "Guesses": {"guesses": _drawn("guesses_chart")},
    "Logits": {"logits": _drawn("logits_chart")},
    "Matched": {"shares": _drawn("matched_chart")},
    "Measurement": {
        "guesses": _drawn("law_chart"),
        "depth": lambda m, **options: charts.readings_chart(None, None, m, **options),
        "initializations": _drawn("strip_chart"),
        "logits": lambda m, **options: charts.logits_chart(m, **options),
    },
    "MixedGuesses": {"guesses": _drawn("guesses_chart")},
    "PhaseDiagram": {
        "correlation": _drawn("phase_diagram_chart"),
        "gradients": lambda d, **options: charts.phase_diagram_chart(d, color="gradients", **options),
    },
    "PredictedTraining": {"training": _drawn("training_chart")},
    "Prediction": {
        "guesses": _drawn("prediction_chart"),
        "depth": lambda p, **options: charts.gamma_by_depth_chart([p], **options),
        "support": _drawn("support_chart"),
    },
    "Repaired": {"shares": _drawn("repaired_chart")},
    "Structure": {"depth": _drawn("structure_chart")},
    "Study": {"study": lambda s, **options: s.plot(**options)},
    "TrainedMembers": {"training": _drawn("training_chart")},
    "TrainingComparison": {"curves": _drawn("curves_chart")},
    "TransformerPhases": {
        "similarity": _drawn("transformer_phases_chart"),
        "entropy": lambda d, **options: charts.transformer_phases_chart(d, color="entropy", **options),
        "gamma": lambda d, **options: charts.transformer_phases_chart(d, color="gamma", **options),
        "gradients": lambda d, **options: charts.transformer_phases_chart(d, color="gradients", **options),
    },
    "Tuned": {"depth": _drawn("tuned_chart")},
    "Watch": {"watch": lambda w, **options: charts.watch_chart(_seen(w.result), **options)},
    "WatchedTraining": {"watch": lambda w, **options: charts.watch_chart(_seen(w), **options)},
}


def chart(result: Any, what: str | None = None, title: str | None = None) -> Chart:
    """The chart of a result, or another one of it by name."""
    kind = type(result).__name__
    known = CHARTS[kind]
    first = next(iter(known))
    if what is not None and what not in known:
        raise InvalidInput(f"one of {', '.join(known)}", got=repr(what), where=f"{kind}.plot", hint=f'plot("{first}")')
    return known[what or first](result, **({} if title is None else {"title": title}))


def html(result: Any) -> str:
    """What a notebook shows: the verdict, the chart as a picture, the numbers as a table; a diagnosis as its report.

    The report has a frame of its own, without scripts, so that styles stay apart.
    """
    from firstguess.show.report.pages import render

    if type(result).__name__ == "Diagnosis":
        from firstguess.show.report.content import document

        return str(render("frame.html", page=document(result, live=False), name=result.name))
    picture, problem = None, ""
    try:
        picture = _picture(chart(result).to_dict())
    except FirstguessError as error:
        problem = str(error)
    summary = getattr(result, "summary", None)
    rows = [] if summary is None else summary()
    badge = getattr(result, "verdict", getattr(result, "answer", "")) if rows else ""
    given = {"badge": badge, "picture": picture, "no_picture": problem, "rows": rows, "text": str(result)}
    return str(render("notebook.html", **given))


def save(diagnosis: Any, path: str | Path) -> Path:
    """Write the report of a diagnosis."""
    from firstguess.show.report import write

    return write(diagnosis, path)


def _picture(spec: dict[str, Any]) -> dict[str, Any]:
    """A chart that needs no network and no script: SVG, dark on dark pages, or PNG where that is far smaller (maps)."""
    import base64

    import vl_convert
    from markupsafe import Markup

    from firstguess.base.files import address
    from firstguess.show.report.pages import dark_style, own_ids

    title = " ".join(spec["title"].get("text", ""))
    svg = vl_convert.vegalite_to_svg(spec)
    if len(svg) > _LARGEST:
        picture = base64.b64encode(vl_convert.vegalite_to_png(spec)).decode()
        return {
            "title": title,
            "source": f"data:image/png;base64,{picture}",
            "dark": Markup(f"{_DARK_PAGES} .firstguess-map"),
        }
    return {"title": title, "svg": own_ids(svg, address(svg)), "style": dark_style(f"{_DARK_PAGES} .firstguess-chart ")}


def _measured(d: Any) -> Any:
    if d.measurement is None:
        expected = "a diagnosis with a measurement"
        raise InvalidInput(expected, got=d.verdict.why or d.verdict.name, where="Diagnosis.plot")
    return d.measurement


def _seen(w: Any) -> Any:
    if all(look.lost for look in w.looks):
        raise InvalidInput("a look at finite outputs", got=w.finding, where="WatchedTraining.plot")
    return w


def _gradients(d: Any) -> Any:
    found = None if d.trainability is None else d.trainability.gradients
    if found is None:
        raise InvalidInput("a diagnosis with gradients", got="one without", where="Diagnosis.plot")
    return found
