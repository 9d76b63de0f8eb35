"""MF: how far a finite network is from the wide limit, and how fast that falls with width."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import firstguess as fg
from firstguess_papers import library
from firstguess_papers.charts import lines, predicted
from firstguess_papers.items import Holds, Outcome, item
from firstguess_papers.judging import Number, Truth, entry, same
from firstguess_papers.judging import below as less
from firstguess_papers.mf_simulation import (
    CENTER,
    COSINE,
    SPREAD,
    Array,
    mf_settings,
    power_law,
    ratio,
    stored,
)
from firstguess_papers.running import Run
from firstguess_papers.tables import columns

_ONE, _MEAN = "one network (rms)", "ensemble"
_POINTS = 32
_FROM, _ROOM = 100, 0.1  # widths from which on theory at finite width must have the distance, to this share of it


@item(
    "mf/width",
    "When to trust the wide limit",
    claims=("M9",),
    where="MF, limits",
    about="γ after 1, 5, 20 hidden layers against its closed form; ReLU and tanh at their edges, bias variance 0.1; "
    "orthogonal inputs, 32 points; networks by width: {inits}.",
    quick=dict(inits={30: 600, 100: 500, 300: 240, 1000: 36}),
    full=dict(inits={30: 4000, 100: 2000, 300: 500, 1000: 80, 3000: 16}),
    seconds=(60, 300),
    version=2,
)
def width(run: Run) -> Outcome:
    """M9: distance of γ from its closed form: of one network, and of the ensemble, against width."""

    settings = [s for s in mf_settings() if s.name in ("ReLU, edge", "tanh, edge")]
    depths = (1, 5, 20)
    sizes: dict[int, int] = run.take("inits")
    stats = {
        w: stored(
            run, settings, width=w, depth=max(depths), members=n, chunk=200 if w < 1000 else 8, points=_POINTS, pairs=1
        )
        for w, n in sizes.items()
    }
    widths = list(sizes)
    must: list[Truth] = []
    within: list[Truth] = []
    known_at: list[Truth] = []
    narrow: list[Truth] = []
    foretold: list[str] = []
    said: list[str] = []
    rows: list[dict[str, Any]] = []
    panels: dict[str, list[library.Series]] = {}
    for hidden in depths:
        series: list[library.Series] = []
        for i, setting in enumerate(settings):
            known = float(fg.predict(setting.text(hidden)).gamma[-1])
            here = {w: stats[w][:, i, hidden] for w in widths}
            one = [_rms(np.log(np.maximum(here[w][:, CENTER] / here[w][:, SPREAD] / known, 1e-3))) for w in widths]
            every = [ratio(here[w][:, CENTER], here[w][:, SPREAD]) for w in widths]
            off = [Number(x.value / known - 1, x.error / known) for x in every]
            wide = [k for k, w in enumerate(widths) if w >= 100]
            exponent, factor = power_law([widths[k] for k in wide], [one[k] for k in wide])
            slow = _decay(widths, off)
            must.append(less(one[-1], Number(0.5 * one[0].value, 0.5 * one[0].error)))
            within.append(same(exponent, -0.5, room=0.1))
            name = setting.name.removesuffix(", edge")
            ten = (0.1 / factor) ** (1 / exponent.value)
            said.append(
                f"{name}, {hidden} {'layer' if hidden == 1 else 'layers'} (γ = {known:.3g}): "
                + ", ".join(_percent(x.value) for x in one)
                + f" %, as width^({exponent}), 10 % at width {ten:,.0f}; ensemble "
                + ", ".join(f"{100 * x.value:+.1f} ± {100 * x.error:.1f}" for x in off)
                + (f" %, as width^({slow})" if math.isfinite(slow.value) else " %")
            )
            limit = float(fg.predict(setting.text(hidden)).correlation[-1])
            theory = [apart(run, setting.text(hidden), w, limit) for w in widths]
            pairs = [_rms(here[w][:, COSINE] - limit) for w in widths]
            shares = [Number(a.value / b - 1, a.error / b) for a, b in zip(pairs, theory, strict=True)]
            told = [(w, same(x, 0.0, room=_ROOM)) for x, w in zip(shares, widths, strict=True)]
            known_at += [truth for w, truth in told if w >= _FROM and truth is not None]
            narrow += [truth for w, truth in told if w < _FROM]
            foretold.append(
                f"{name}, {hidden} {'layer' if hidden == 1 else 'layers'}: "
                + ", ".join(f"{t:.3f} ({100 * x.value:+.0f} ± {100 * x.error:.0f} %)"
                            for t, x in zip(theory, shares, strict=True))
            )  # fmt: skip
            rows += [
                {"activation": name, "hidden_layers": hidden, "width": w, "networks": sizes[w], "gamma_theory": known}
                | {"one_network": a.value, "one_network_error": a.error, "ensemble": b.value, "ensemble_error": b.error}
                | {"exponent_one": exponent.value, "exponent_ensemble": slow.value, "width_for_10_percent": ten}
                | {"cosine": c.value, "cosine_error": c.error, "cosine_theory": t}
                for w, a, b, c, t in zip(widths, one, off, pairs, theory, strict=True)
            ]
            ends = [100.0, float(widths[-1])]
            series.append(predicted(f"{name}: {_ONE}", ends, [factor * w**exponent.value for w in ends]))
        panels["1 hidden layer" if hidden == 1 else f"{hidden} hidden layers"] = series
    for row in rows:
        row["panel"] = "1 hidden layer" if row["hidden_layers"] == 1 else f"{row['hidden_layers']} hidden layers"
    far = [row | {"name": f"{row['activation']}: {_ONE}", "value": Number(row["one_network"], row["one_network_error"])}
           for row in rows]  # fmt: skip
    far += [
        row | {"name": f"{row['activation']}: {_MEAN}", "value": Number(abs(row["ensemble"]), row["ensemble_error"])}
        for row in rows
        if abs(row["ensemble"]) > 2 * row["ensemble_error"]  # else it is not told from theory
    ]
    look: dict[str, Any] = {"panel": "panel", "x_scale": "log", "y_scale": "log", "dodge": False, "width": 330}
    return Outcome(
        [
            entry(
                "M9",
                f"the rms distance of one network's γ from its closed form (in ln γ) at width {widths[-1]:,} is less "
                "than half of that at width 30, after 1, 5 and 20 layers; for `holds` it falls as width^−½ from "
                "width 100 on (exponent within 0.1)",
                f"one network at widths {', '.join(map(str, widths))}: " + "; ".join(said),
                must,
                within=within,
                limit="it falls, but not as width^−½ in all cases: see the exponents",
            ),
            entry(
                "M9",
                "beyond the paper: how far the cosine of two inputs in one network is from its value at infinite width "
                f"(rms) is what theory.md §12 says, within {100 * _ROOM:.0f} %, at widths from {_FROM} on where the "
                "errors could tell; without a limit in narrower networks as well",
                f"predicted (measured beyond it) at widths {', '.join(map(str, widths))}: " + "; ".join(foretold),
                known_at,
                within=narrow,
                limit=f"not below width {_FROM}",
            ),
        ],
        {"widths": columns([{key: value for key, value in row.items() if key != "panel"} for row in rows])},
        {
            "widths": lines(
                far,
                "width",
                also=panels,
                y_title="Relative distance of γ from its closed form",
                y_domain=(0.01, 2.0),
                title="How far one network, and an ensemble, stray from theory by width (lines: power laws)",
                **look,
            ),
            "cosines": lines(
                rows,
                "width",
                "cosine",
                by="activation",
                theory="cosine_theory",
                y_title="Distance of the cosine (rms)",
                title="How far one network is from infinite width, measured and predicted",
                **look,
            ),
        },
        [
            "γ of one network is taken over the nodes of the pre-activations behind that many hidden layers. Of an "
            "ensemble: the ratio of averages, as fg.measure gives it.",
            "Inputs are orthogonal (blobs in many dimensions), so that only width is finite.",
        ],
        holds={
            "widths": Holds("One network strays from theory as 1/√width", entries=(0,), verdicts=("holds",)),
            "cosines": Holds("How far one network is from infinite width: the theory at finite width has it", (1,)),
        },
    )


def apart(run: Run, text: str, width: int, known: float) -> float:
    """The rms distance of the cosine of two inputs from that at infinite width, √(v + (e − c)²), predicted.

    Its mean e and variance v over networks are those of theory.md §12; a dense layer behind makes the nodes that the
    cosine is read off a hidden layer of this width.
    """

    def compute() -> dict[str, Any]:

        size = fg.predict(f"{text} > dense", width=width, seed=run.seed).finite_size
        assert size is not None
        return {"square": size.overlap_variance + (size.overlap - known) ** 2}

    kept = run.piece({"finite": text, "width": width}, compute, label=f"theory at width {width}, {text}")
    return math.sqrt(float(kept["square"]))


def _percent(value: float) -> str:
    return f"{100 * value:.0f}" if value > 0.095 else f"{100 * value:.1f}"


def _rms(values: Array) -> Number:
    squares = values**2
    value = math.sqrt(float(squares.mean()))
    return Number(value, float(squares.std(ddof=1)) / math.sqrt(len(values)) / (2 * value))


def _decay(widths: Sequence[int], values: Sequence[Number]) -> Number:
    """Exponent p of A·width^p through numbers of either sign; NaN if they do not tell it from nothing."""
    from scipy.optimize import curve_fit

    x, y, s = np.array(widths) / 100.0, np.array([v.value for v in values]), np.array([v.error for v in values])
    model: Any = lambda w, a, p: a * w**p  # noqa: E731
    try:
        best, covariance = curve_fit(model, x, y, p0=(y[1] or 0.01, -1.0), sigma=s, absolute_sigma=True, maxfev=5000)
    except RuntimeError:
        return Number(math.nan, math.nan)
    error = math.sqrt(covariance[1, 1])
    return Number(float(best[1]), error) if math.isfinite(error) and error < 1 else Number(math.nan, math.nan)
