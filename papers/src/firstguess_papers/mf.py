"""MF: the dictionary between the two theories (Theorem 3.1), how signals concentrate (Fig 2), and the wide limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import firstguess as fg
from firstguess import figures
from firstguess_papers import library
from firstguess_papers.charts import lines, predicted
from firstguess_papers.items import Holds, Outcome, item
from firstguess_papers.judging import Number, Truth, entry, same
from firstguess_papers.judging import below as less
from firstguess_papers.mf_simulation import (
    CENTER,
    COSINE,
    Q_AA,
    Q_AB,
    SPREAD,
    Array,
    mean,
    mf_settings,
    power_law,
    ratio,
    spread_of,
    stored,
)
from firstguess_papers.running import Run
from firstguess_papers.tables import columns

_DATA, _WEIGHTS = "data first, then nodes (IGB)", "weights first, two inputs (MF)"


@item(
    "mf/theorem3.1",
    "Two theories, one set of numbers",
    claims=("M1",),
    where="MF Theorem 3.1",
    about="100 hidden layers of {width} (MF: 10 000), ReLU at 0.75, 1, 1.25 and tanh at 0.8, 1, 1.25, 2.5 times the "
    "critical weight variance, bias variance 0.1; blobs in 1000 dimensions; {members} networks, 32 points and 16 "
    "other pairs each.",
    quick=dict(width=300, members=32, chunk=8),
    full=dict(width=1000, members=64, chunk=4),
    seconds=(11, 100),
)
def theorem31(run: Run) -> Outcome:
    """M1: averages over data then nodes, and over weights for two inputs, of the same networks, and the closed form."""

    settings, depth = mf_settings(), 100
    width, members, chunk = run.take("width members chunk")
    stats = stored(
        run, settings, width=width, depth=depth, members=members, chunk=chunk, points=32, pairs=16, dimensions=1000
    )
    looked_at = (1, 10, 30, 100)  # hidden layers below
    must: list[Truth] = []
    within: list[Truth] = []
    rows: list[dict[str, Any]] = []
    worst = {"q_aa": Number(0.0), "q_ab": Number(0.0), "c": Number(0.0), "theory": Number(0.0)}
    where = dict.fromkeys(worst, "")
    shown: list[dict[str, Any]] = []
    for i, setting in enumerate(settings):
        theory = fg.predict(setting.text(depth))
        s = stats[:, i]
        for hidden in looked_at:
            center, spread, q_aa, q_ab = (s[:, hidden, k] for k in range(4))
            total = center + spread
            c_data, c_weights = ratio(center, total), ratio(q_ab, q_aa)
            known = float(theory.correlation[hidden])
            differences = {
                "q_aa": mean(q_aa / total - 1),  # network by network: one network's scale cancels
                "q_ab": mean((q_ab - center) / total),
                "c": mean(q_ab / q_aa - center / total),
            }
            must += [same(number, 0.0, room=0.03) for number in differences.values()]
            differences["theory"] = c_data - Number(known)
            within.append(same(differences["theory"], 0.0, room=0.05))
            for name, number in differences.items():
                if abs(number.value) > abs(worst[name].value):
                    worst[name], where[name] = number, f"{setting.name}, hidden layers: {hidden}"
            rows.append(
                {"setting": setting.name, "weight_var": setting.weight_var, "hidden_layers": hidden, "width": width}
                | {"c_data_first": c_data.value, "c_data_first_error": c_data.error}
                | {"c_weights_first": c_weights.value, "c_weights_first_error": c_weights.error, "c_theory": known}
                | {"q_ratio": 1 + differences["q_aa"].value, "q_ratio_error": differences["q_aa"].error}
                | {"gamma_theory": float(theory.gamma[hidden]), "gamma_data_first": ratio(center, spread).value}
                | {"q_data_first": float(total.mean()), "q_theory": float(theory.q[hidden])}
            )
        shown += _shown(s, setting.name, theory.correlation, theory.q)
    said = "; ".join(
        f"{text} {worst[name]} ({where[name]})"
        for name, text in {
            "q_aa": "q_aa/(σ_μ²+σ_y²) − 1",
            "q_ab": "(q_ab − σ_μ²)/(σ_μ²+σ_y²)",
            "c": "c − γ/(1+γ)",
            "theory": "γ/(1+γ) less its closed form",
        }.items()
    )
    options: dict[str, Any] = {"panel": "setting", "columns": 4, "width": 250, "height": 200, "dodge": False}
    few = [
        row for row in shown if row["setting"] in ("ReLU, edge", "ReLU, chaotic", "tanh, edge", "tanh, neutral chaos")
    ]
    return Outcome(
        [
            entry(
                "M1",
                f"at {', '.join(map(str, looked_at))} hidden layers in seven settings, both orders of averaging give "
                "the same q_aa, q_ab (within 3 % of q_aa) and c (within 0.03); for `holds` c also meets the closed "
                "form within 0.05",
                f"largest differences: {said}",
                must,
                within=within,
                limit=f"the two averages agree, but at width {width:,} not everywhere with the wide limit within 0.05",
            )
        ],
        {"averages": columns(rows)},
        {
            "correlation": lines(
                shown,
                "layer",
                "c",
                theory="c_theory",
                title="Correlation of two inputs by layer, averaged in two orders",
                y_title="Correlation c = γ/(1+γ)",
                y_domain=(0.0, 1.04),
                **options,
            ),
            "variance": lines(
                few,
                "layer",
                "q",
                theory="q_theory",
                title="Size of the signal by layer, averaged in two orders",
                y_title="q = σ_μ² + σ_y²",
                y_scale="log",
                **options,
            ),
        },
        [
            "Inputs are drawn anew for every network. MF simulates width 10 000; ours is smaller, mf/width shows what "
            "that changes.",
            "q of one ReLU network at 100 layers scatters by decades at these widths: the ratio is taken network by "
            "network.",
        ],
        holds={
            "correlation": Holds(
                "What one theory calls correlation of two inputs, the other calls bias: the same number"
            ),
            "variance": Holds("The signal's size agrees as well, through ten decades"),
        },
    )


def _shown(s: Array, setting: str, correlation: Array, q: Array) -> list[dict[str, Any]]:
    """Every twelfth layer by both orders, in turn, so that neither hides the other."""
    found: list[dict[str, Any]] = []
    for label, first in ((_DATA, 0), (_WEIGHTS, 6)):
        top, rest = (CENTER, s[:, :, CENTER] + s[:, :, SPREAD]) if label == _DATA else (Q_AB, s[:, :, Q_AA])
        found += [
            {"setting": setting, "name": label, "layer": k + 1, "c": ratio(s[:, k, top], rest[:, k])}
            | {"q": mean(rest[:, k]), "c_theory": float(correlation[k]), "q_theory": float(q[k])}
            for k in range(first, s.shape[1], 12)
        ]
    return found


@item(
    "mf/fig2",
    "Signals concentrate as networks get wider",
    claims=("M1",),
    where="MF Fig 2",
    about="{depths} hidden layers (our depth); ReLU at its edge, tanh at its edge and in neutral chaos, bias variance "
    "0.1; orthogonal inputs; networks by width: {inits}.",
    quick=dict(depths=(10,), inits={30: 400, 100: 600, 300: 400, 1000: 100}),
    full=dict(depths=(10, 30), inits={30: 1000, 100: 1000, 300: 400, 1000: 120, 3000: 40}),
    seconds=(8, 70),
)
def fig2(run: Run) -> Outcome:
    """M1: the standard deviation over networks of one network's q_aa and q_ab falls as width^−½."""

    names = ("ReLU, edge", "tanh, edge", "tanh, neutral chaos")
    settings = [s for s in mf_settings() if s.name in names]
    depths = run.take("depths")
    widths: dict[int, int] = run.take("inits")
    stats = {
        width: stored(run, settings, width=width, depth=max(depths), members=n, chunk=100 if width < 1000 else 20,
                      points=8, pairs=1)
        for width, n in widths.items()
    }  # fmt: skip
    must: list[Truth] = []
    rows: list[dict[str, Any]] = []
    said: list[str] = []
    panels: dict[str, list[library.Series]] = {}
    for depth in depths:
        for quantity, which in {"q_aa": Q_AA, "q_ab": Q_AB}.items():
            series: list[library.Series] = []
            for i, setting in enumerate(settings):
                found = [_relative(stats[w][:, i, depth, which], stats[w][:, i, depth, Q_AA]) for w in widths]
                wide = [k for k, w in enumerate(widths) if w >= 100]
                exponent, factor = power_law([list(widths)[k] for k in wide], [found[k] for k in wide])
                must.append(same(exponent, -0.5, room=0.1))
                said.append(f"{setting.name}, {quantity}, {depth} layers: width^({exponent})")
                rows += [
                    {"setting": setting.name, "quantity": quantity, "hidden_layers": depth, "width": w}
                    | {"relative_std": x.value, "error": x.error, "exponent": exponent.value}
                    for w, x in zip(widths, found, strict=True)
                ]
                ends = [100.0, float(max(widths))]
                series.append(predicted(setting.name, ends, [factor * w**exponent.value for w in ends]))
            panels[f"{quantity}, {depth} hidden layers"] = series
    hists: list[library.Panel] = []
    edges = np.linspace(0.0, 2.4, 33)
    for i, setting in enumerate(settings):
        for width in (30, 300, 1000):
            q = stats[width][:, i, 10, Q_AA]
            density, _ = np.histogram(q / q.mean(), edges)
            note = f"standard deviation {_relative(q, q)}"
            density = density / len(q) / np.diff(edges)
            hists.append(library.Panel(f"{setting.name}, width {width:,}", edges, density, note=note))
    return Outcome(
        [
            entry(
                "M1",
                "over networks, the standard deviation of q_aa and of q_ab of two inputs, relative to the mean q_aa, "
                "falls as width^−½ from width 100 on (exponent within 0.1)",
                "; ".join(said),
                must,
            )
        ],
        {"concentration": columns(rows)},
        {
            "concentration": lines(
                [row | {"panel": f"{row['quantity']}, {row['hidden_layers']} hidden layers"} for row in rows],
                "width",
                "relative_std",
                by="setting",
                panel="panel",
                also=panels,
                x_scale="log",
                y_scale="log",
                dodge=False,
                title="How much signals depend on the draw of the weights, by width (lines: power laws)",
                y_title="Relative standard deviation over networks",
            ),
            "laws": figures.panels_chart(
                hists,
                title="One network's signal size over its ensemble mean, by width",
                subtitle=["q_aa of two inputs after 10 hidden layers. Each panel: one number per network."],
                percent=False,
                x_title="q_aa / ensemble mean",
            ),
        },
        ["The paper's depth is not given; the full setting has two. Inputs are orthogonal: blobs in many dimensions."],
        holds={
            "concentration": Holds("The wider the network, the less its signals depend on the draw of its weights"),
            "laws": Holds("One network's signal size over its ensemble mean: its distribution narrows with width"),
        },
    )


def _relative(values: Array, scale: Array) -> Number:
    return spread_of(values / float(scale.mean()))


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
