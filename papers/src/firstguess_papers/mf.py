"""MF: the dictionary between the two theories (Theorem 3.1), how signals concentrate (Fig 2), and the wide limit.

Plain wide networks are simulated layer by layer. Every setting of one call uses the same standard normal numbers,
scaled: settings are compared on equal draws, and a layer's weights are drawn once for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import firstguess as fg
from firstguess import figures
from firstguess.data import Data
from firstguess_papers.charts import deep, lines, predicted
from firstguess_papers.items import Entry, Holds, Item
from firstguess_papers.judging import Array, Check, Number, average, check, claimed, jackknife, power_law, root
from firstguess_papers.measured import Found
from firstguess_papers.running import Run
from firstguess_papers.training_pieces import predicted as known_training

# The last axis of what `simulate` returns.
CENTER, SPREAD, Q_AA, Q_AB, COSINE = range(5)
BIAS_VAR = 0.1  # MF's bias variance


@dataclass(frozen=True)
class Setting:
    """An activation with its variances; `name` is what a figure calls it."""

    name: str
    activation: str
    weight_var: float
    bias_var: float

    def text(self, depth: int) -> str:
        """The network with `depth` hidden layers, as text."""
        return deep(self.activation, depth, f"dense(weight_var={self.weight_var!r}, bias_var={self.bias_var!r})")


def mf_settings() -> list[Setting]:
    """MF's seven settings: multiples of the weight variance at which gradients keep their size, for σb² = 0.1.

    >>> [f"{s.name}: {s.weight_var:.2f}" for s in mf_settings()][3:6]
    ['tanh, ordered: 1.59', 'tanh, edge: 1.99', 'tanh, biased chaos: 2.48']
    """
    found: list[Setting] = []
    named = {
        "relu": {"ReLU, ordered": 0.75, "ReLU, edge": 1.0, "ReLU, chaotic": 1.25},
        "tanh": {"tanh, ordered": 0.8, "tanh, edge": 1.0, "tanh, biased chaos": 1.25, "tanh, neutral chaos": 2.5},
    }
    for phi, multiples in named.items():
        edge = fg.edge_of_chaos(phi, bias_var=BIAS_VAR)
        found += [Setting(name, phi, round(times * edge, 6), BIAS_VAR) for name, times in multiples.items()]
    return found


def text_of(name: str, depth: int) -> str:
    """The network of one of MF's settings."""
    return next(s for s in mf_settings() if s.name == name).text(depth)


def limits(run: Run, text: str, data: Data, width: int, label: str) -> tuple[float, float]:
    """The rates from which on the bias overshoots, and for ever: 2κ/λ_b and 4κ/λ_b of the wide limit."""
    how: dict[str, Any] = {"lr": 1e-12, "steps": 1, "width": width, "draws": 4, "trust": False}
    about = known_training(run, text, data, label=f"rates of {label}", **how).about
    return float(about["overshoot"]), float(about["lr_limit"])


def simulate(
    settings: Sequence[Setting],
    *,
    width: int,
    depth: int,
    members: range,
    seed: int,
    points: int = 32,
    pairs: int = 8,
    dimensions: int | None = None,
) -> Array:
    """(members, settings, depth + 1, 5): `CENTER`, `SPREAD`, `Q_AA`, `Q_AB`, `COSINE` of each layer's pre-activations.

    Data first (IGB): over `points` inputs every node has a mean and a variance; σ_μ² is the mean over nodes of the
    squared mean, less the part that comes from finitely many points, and σ_y² that of the variance. Weights first (MF):
    q_aa and q_ab of two inputs are means over nodes of u_a² and u_a u_b, for `pairs` other pairs of inputs, two by two;
    their cosine is averaged over the pairs.

    Inputs are blobs in `dimensions`, new ones for every member; None stands for infinitely many dimensions (inputs are
    orthogonal and of one length: the first pre-activations are independent). Member i depends on (seed, i) only.
    """
    import torch

    functions = {"relu": torch.relu, "tanh": torch.tanh}
    shape = (len(settings), points + 2 * pairs, width)
    biases = torch.tensor([math.sqrt(s.bias_var) for s in settings])[:, None, None]
    stats = np.empty((len(members), len(settings), depth + 1, 5))
    with torch.inference_mode():
        for row, member in enumerate(members):
            generator = torch.Generator()
            generator.manual_seed(int(np.random.SeedSequence([seed, member]).generate_state(1, np.uint64)[0] >> 1))

            def draw(*size: int, generator: torch.Generator = generator) -> torch.Tensor:
                return torch.empty(*size).normal_(generator=generator)

            if dimensions is None:
                u = draw(shape[1], width).expand(shape)
            else:
                u = (draw(shape[1], dimensions) @ draw(dimensions, width) / math.sqrt(dimensions)).expand(shape)
            for layer in range(depth + 1):
                if layer:
                    x = torch.stack([functions[s.activation](u[i]) for i, s in enumerate(settings)])
                    u = (x.reshape(-1, width) @ draw(width, width)).reshape(shape) / math.sqrt(width)
                scales = torch.tensor([math.sqrt(s.weight_var) for s in settings])[:, None, None]
                u = u * scales + biases * draw(width)
                stats[row, :, layer] = _statistics(u.double().numpy(), points, pairs)
    return stats


def _statistics(u: Array, points: int, pairs: int) -> Array:
    """(settings, 5) from pre-activations (settings, points + 2·pairs, nodes)."""
    data, a, b = u[:, :points], u[:, points : points + pairs], u[:, points + pairs :]
    spread = data.var(axis=1, ddof=1).mean(axis=1)
    center = (data.mean(axis=1) ** 2).mean(axis=1) - spread / points
    q_aa = 0.5 * ((a**2).mean(axis=(1, 2)) + (b**2).mean(axis=(1, 2)))
    cosine = (a * b).sum(axis=2) / np.sqrt((a**2).sum(axis=2) * (b**2).sum(axis=2))
    return np.stack([center, spread, q_aa, (a * b).mean(axis=(1, 2)), cosine.mean(axis=1)], axis=1)


def stored(
    run: Run, settings: Sequence[Setting], *, width: int, depth: int, members: int, chunk: int, **options: int | None
) -> Array:
    """`simulate`, kept in pieces of `chunk` members."""
    given: dict[str, Any] = {"settings": settings, "width": width, "depth": depth, "seed": run.seed, **options}
    parts = [range(start, min(start + chunk, members)) for start in range(0, members, chunk)]
    pieces = [
        run.keep(_simulated, label=f"width {width}, networks {part.start + 1} to {part.stop}", members=part, **given)
        for part in parts
    ]
    return np.concatenate([piece["stats"] for piece in pieces])


def _simulated(**given: Any) -> dict[str, Any]:
    return {"stats": simulate(**given)}


def sampled(c: Found, settings: Sequence[Setting], depth: int, **options: int | None) -> Array:
    """`stored`, of the width and with the members that the sizes say."""
    given: dict[str, Any] = {"points": 32, "pairs": 1, **options}
    return stored(c.run, settings, width=c.width, depth=depth, members=c.members, chunk=c.chunk, **given)


def ratio(top: Array, bottom: Array) -> Number:
    """Ratio of means over members: γ scatters too much for an error to first order."""
    return jackknife(lambda a, b: a.sum() / b.sum(), top, bottom)


_DATA, _WEIGHTS = "data first, then nodes (IGB)", "weights first, two inputs (MF)"
LOOKED_AT = (1, 10, 30, 100)  # hidden layers below


def _theorem31(c: Found) -> dict[str, Any]:
    """Averages over data then nodes, and over weights for two inputs, of the same networks, and the closed form."""
    settings, depth = mf_settings(), 100
    stats = sampled(c, settings, depth, pairs=16, dimensions=1000)
    apart: dict[str, list[Number]] = {"q_aa": [], "q_ab": [], "c": [], "theory": []}
    rows: list[dict[str, Any]] = []
    shown: list[dict[str, Any]] = []
    for i, setting in enumerate(settings):
        theory, s = fg.predict(setting.text(depth)), stats[:, i]
        for hidden in LOOKED_AT:
            center, spread, q_aa, q_ab = (s[:, hidden, k] for k in range(4))
            total, known = center + spread, float(theory.correlation[hidden])
            c_data, c_weights = ratio(center, total), ratio(q_ab, q_aa)
            apart["q_aa"].append(average(q_aa / total - 1))  # network by network: one network's scale cancels
            apart["q_ab"].append(average((q_ab - center) / total))
            apart["c"].append(average(q_ab / q_aa - center / total))
            apart["theory"].append(c_data - Number(known))
            rows.append(
                {"setting": setting.name, "weight_var": setting.weight_var, "hidden_layers": hidden, "width": c.width}
                | {"c_data_first": c_data, "c_weights_first": c_weights, "c_theory": known}
                | {"q_ratio": Number(1 + apart["q_aa"][-1].value, apart["q_aa"][-1].error)}
                | {"gamma_theory": float(theory.gamma[hidden]), "gamma_data_first": ratio(center, spread).value}
                | {"q_data_first": float(total.mean()), "q_theory": float(theory.q[hidden])}
            )
        # every twelfth layer by both orders, in turn, so that neither hides the other
        for label, first in ((_DATA, 0), (_WEIGHTS, 6)):
            top, rest = (CENTER, s[:, :, CENTER] + s[:, :, SPREAD]) if label == _DATA else (Q_AB, s[:, :, Q_AA])
            shown += [
                {"setting": setting.name, "name": label, "layer": k + 1, "c": ratio(s[:, k, top], rest[:, k])}
                | {"q": average(rest[:, k]), "c_theory": float(theory.correlation[k]), "q_theory": float(theory.q[k])}
                for k in range(first, s.shape[1], 12)
            ]
    at = [f"{row['setting']}, hidden layers: {row['hidden_layers']}" for row in rows]
    return {"apart": apart, "rows": rows, "shown": shown, "at": at}


_LOOK: dict[str, Any] = {"panel": "setting", "columns": 4, "width": 250, "height": 200, "dodge": False}
theorem31 = Item(
    "mf/theorem3.1", "Two theories, one set of numbers", "MF Theorem 3.1", claims=("M1",),
    about="100 hidden layers of {width} (MF: 10 000), ReLU at 0.75, 1, 1.25 and tanh at 0.8, 1, 1.25, 2.5 times the "
    "critical weight variance, bias variance 0.1; blobs in 1000 dimensions; {members} networks, 32 points and 16 "
    "other pairs each.",
    quick=dict(width=300, members=32, chunk=8),
    full=dict(width=1000, members=64, chunk=4),
    seconds=(11, 100), quantities=_theorem31,
    judge=lambda c: [claimed(
        "M1", f"both orders of averaging, at {', '.join(map(str, LOOKED_AT))} hidden layers in seven settings",
        [check(text, c.apart[name], near=0.0, room=0.03, at=c.at) for name, text in (
            ("q_aa", "q_aa/(σ_μ²+σ_y²) − 1"), ("q_ab", "(q_ab − σ_μ²)/(σ_μ²+σ_y²)"), ("c", "c − γ/(1+γ)"),
        )],
        within=[check("γ/(1+γ) less its closed form", c.apart["theory"], near=0.0, room=0.05, at=c.at)],
        limit=f"the two averages agree, but at width {c.width:,} not everywhere with the wide limit",
    )],
    tables=lambda c: {"averages": c.rows},
    charts=lambda c: {
        "correlation": lines(
            c.shown, "layer", "c", theory="c_theory", y_title="Correlation c = γ/(1+γ)", y_domain=(0.0, 1.04),
            title="Correlation of two inputs by layer, averaged in two orders", **_LOOK,
        ),
        "variance": lines(
            [row for row in c.shown
             if row["setting"] in ("ReLU, edge", "ReLU, chaotic", "tanh, edge", "tanh, neutral chaos")],
            "layer", "q", theory="q_theory", y_title="q = σ_μ² + σ_y²", y_scale="log",
            title="Size of the signal by layer, averaged in two orders", **_LOOK,
        ),
    },
    holds={
        "correlation": "What one theory calls correlation of two inputs, the other calls bias: the same number",
        "variance": "The signal's size agrees as well, through ten decades",
    },
    notes=[
        "Inputs are drawn anew for every network. MF simulates width 10 000; ours is smaller, mf/width shows what that "
        "changes.",
        "q of one ReLU network at 100 layers scatters by decades at these widths: the ratio is taken network by "
        "network.",
    ],
)  # fmt: skip


EDGES = np.linspace(0.0, 2.4, 33)  # of histograms of one network's signal over the mean


def by_panel(laws: Mapping[tuple[str, str], tuple[Number, float]], widest: int) -> dict[str, list[figures.Series]]:
    """Lines of power laws from width 100 on, by (panel, name)."""
    ends = [100.0, float(widest)]
    found: dict[str, list[figures.Series]] = {panel: [] for panel, _ in laws}
    for (panel, name), (exponent, factor) in laws.items():
        found[panel].append(predicted(name, ends, [factor * w**exponent.value for w in ends]))
    return found


def _fig2(c: Found) -> dict[str, Any]:
    """The standard deviation over networks of one network's q_aa and q_ab, and its power of the width."""
    settings = [s for s in mf_settings() if s.name in ("ReLU, edge", "tanh, edge", "tanh, neutral chaos")]
    stats = {
        width: stored(c.run, settings, width=width, depth=max(c.depths), members=n, chunk=100 if width < 1000 else 20,
                      points=8, pairs=1)
        for width, n in c.inits.items()
    }  # fmt: skip
    rows: list[dict[str, Any]] = []
    laws: dict[tuple[str, str], tuple[Number, float]] = {}
    for depth in c.depths:
        for quantity, which in {"q_aa": Q_AA, "q_ab": Q_AB}.items():
            for i, setting in enumerate(settings):
                found = {w: _relative(s[:, i, depth, which], s[:, i, depth, Q_AA]) for w, s in stats.items()}
                wide = {w: x for w, x in found.items() if w >= 100}
                exponent, factor = power_law([*wide], [*wide.values()])
                laws[setting.name, f"{quantity}, {depth} hidden layers"] = exponent, factor
                rows += [
                    {"setting": setting.name, "quantity": quantity, "hidden_layers": depth, "width": w}
                    | {"relative_std": x.value, "error": x.error, "exponent": exponent.value}
                    for w, x in found.items()
                ]
    signals = {(s.name, w): stats[w][:, i, 10, Q_AA] for i, s in enumerate(settings) for w in (30, 300, 1000)}
    return {"rows": rows, "laws": laws, "signals": signals}


fig2 = Item(
    "mf/fig2", "Signals concentrate as networks get wider", "MF Fig 2", claims=("M1",),
    about="{depths} hidden layers (our depth); ReLU at its edge, tanh at its edge and in neutral chaos, bias variance "
    "0.1; orthogonal inputs; networks by width: {inits}.",
    quick=dict(depths=(10,), inits={30: 400, 100: 600, 300: 400, 1000: 100}),
    full=dict(depths=(10, 30), inits={30: 1000, 100: 1000, 300: 400, 1000: 120, 3000: 40}),
    seconds=(8, 70), quantities=_fig2,
    judge=lambda c: [claimed(
        "M1", "standard deviation over networks of q of two inputs, by the mean q_aa: its power of width from 100 on",
        [check(f"{name}, {panel}", law[0], near=-0.5, room=0.1) for (name, panel), law in c.laws.items()],
    )],
    tables=lambda c: {"concentration": c.rows},
    charts=lambda c: {
        "concentration": lines(
            [row | {"panel": f"{row['quantity']}, {row['hidden_layers']} hidden layers"} for row in c.rows], "width",
            "relative_std", by="setting", panel="panel", x_scale="log", y_scale="log", dodge=False,
            also=by_panel({(panel, name): law for (name, panel), law in c.laws.items()}, max(c.inits)),
            title="How much signals depend on the draw of the weights, by width (lines: power laws)",
            y_title="Relative standard deviation over networks",
        ),
        "laws": figures.panels_chart(
            [figures.Panel(f"{name}, width {width:,}", EDGES,
                           np.histogram(q / q.mean(), EDGES)[0] / len(q) / np.diff(EDGES),
                           note=f"standard deviation {_relative(q, q)}") for (name, width), q in c.signals.items()],
            title="One network's signal size over its ensemble mean, by width",
            subtitle=["Bars: q_aa of two inputs after 10 hidden layers, one number per network."],
            percent=False, x_title="q_aa / ensemble mean",
        ),
    },
    holds={
        "concentration": "The wider the network, the less its signals depend on the draw of its weights",
        "laws": "One network's signal size over its ensemble mean: its distribution narrows with width",
    },
)  # fmt: skip


def _relative(values: Array, scale: Array) -> Number:
    """Standard deviation over members, of values by the mean of another."""
    each = values / float(scale.mean())
    return Number(float(each.std(ddof=1)), jackknife(np.std, each).error)


_ONE, _MEAN = "one network (rms)", "ensemble"
_FROM, _ROOM = 100, 0.1  # widths from which on theory at finite width must have the distance, to this share of it


def _layers(hidden: int, word: str = "") -> str:
    return f"{hidden} {word}layer{'s' * (hidden > 1)}"


def _width(c: Found) -> dict[str, Any]:
    """Distance of γ from its closed form by width: of one network, and of the ensemble; that of the cosine."""
    settings = [s for s in mf_settings() if s.name in ("ReLU, edge", "tanh, edge")]
    stats = {
        w: stored(c.run, settings, width=w, depth=20, members=n, chunk=200 if w < 1000 else 8, points=32, pairs=1)
        for w, n in c.inits.items()
    }
    rows: list[dict[str, Any]] = []
    laws: dict[tuple[str, int], tuple[Number, float]] = {}
    for hidden in (1, 5, 20):
        for i, setting in enumerate(settings):
            wide = fg.predict(setting.text(hidden))
            known, limit = float(wide.gamma[-1]), float(wide.correlation[-1])
            here = {w: s[:, i, hidden] for w, s in stats.items()}
            one = {w: _rms(np.log(np.maximum(s[:, CENTER] / s[:, SPREAD] / known, 1e-3))) for w, s in here.items()}
            every = [ratio(s[:, CENTER], s[:, SPREAD]) for s in here.values()]
            off = [Number(x.value / known - 1, x.error / known) for x in every]
            exponent, factor = power_law([w for w in one if w >= 100], [x for w, x in one.items() if w >= 100])
            name = setting.name.removesuffix(", edge")
            laws[name, hidden] = exponent, factor
            slow = _decay(list(one), off).value
            for (w, n), mean_off in zip(c.inits.items(), off, strict=True):
                rows.append(
                    {"activation": name, "hidden_layers": hidden, "width": w, "networks": n, "gamma_theory": known}
                    | {"one_network": one[w], "ensemble": mean_off, "exponent_one": exponent.value}
                    | {"exponent_ensemble": slow, "width_for_10_percent": (0.1 / factor) ** (1 / exponent.value)}
                    | {"cosine": _rms(here[w][:, COSINE] - limit)}
                    | {"cosine_theory": apart(c.run, setting.text(hidden), w, limit)}
                )
    return {"rows": rows, "laws": laws}


def _judge_width(c: Found) -> list[Entry]:
    cases = {
        f"{name}, {_layers(hidden)}": [r for r in c.rows if r["activation"] == name and r["hidden_layers"] == hidden]
        for name, hidden in c.laws
    }

    def close(name: str, rows: list[dict[str, Any]]) -> list[Check]:
        shares = [Number(r["cosine"].value / r["cosine_theory"] - 1, r["cosine"].error / r["cosine_theory"])
                  for r in rows]  # fmt: skip
        each = [check(f"{name}, width {r['width']}", x, near=0.0, room=_ROOM)
                for r, x in zip(rows, shares, strict=True)]  # fmt: skip
        return [one for one, r in zip(each, rows, strict=True) if one.truth is not None or r["width"] < _FROM]

    every = [one for name, rows in cases.items() for one in close(name, rows)]
    narrow = [one for one in every if int(one.name.rpartition(" ")[2]) < _FROM]
    return [
        claimed(
            "M9", f"rms distance of one network's γ from its closed form, in ln γ, at width {max(c.inits):,}; its "
            "power of width from 100 on",
            [check(name, rows[-1]["one_network"], below=Number(*(0.5 * x for x in rows[0]["one_network"])),
                   than=f"half of that at width {min(c.inits)}") for name, rows in cases.items()],
            within=[check(f"{name}, exponent", exponent, near=-0.5, room=0.1)
                    for name, (exponent, _) in zip(cases, c.laws.values(), strict=True)],
            limit="it falls, but not as width^−½ in all cases",
            also="10 % at width " + ", ".join(f"{rows[0]['width_for_10_percent']:,.0f} ({name})"
                                               for name, rows in cases.items()),
        ),
        claimed(
            "M9", "beyond the paper: how far the cosine of two inputs in one network is from infinite width (rms), "
            f"relative to theory.md §12, from width {_FROM} on where the errors could tell",
            [one for one in every if one not in narrow], within=narrow, limit=f"not below width {_FROM}",
        ),
    ]  # fmt: skip


def _charts_width(c: Found) -> dict[str, Any]:
    rows = [row | {"panel": _layers(row["hidden_layers"], "hidden ")} for row in c.rows]
    far = [row | {"name": f"{row['activation']}: {_ONE}", "value": row["one_network"]} for row in rows]
    far += [
        row | {"name": f"{row['activation']}: {_MEAN}", "value": Number(abs(off.value), off.error)}
        for row in rows for off in [row["ensemble"]]
        if abs(off.value) > 2 * off.error  # else it is not told from theory
    ]  # fmt: skip
    laws = {(_layers(hidden, "hidden "), f"{name}: {_ONE}"): law for (name, hidden), law in c.laws.items()}
    look: dict[str, Any] = {"panel": "panel", "x_scale": "log", "y_scale": "log", "dodge": False, "width": 330}
    return {
        "widths": lines(
            far, "width", also=by_panel(laws, max(c.inits)), y_domain=(0.01, 2.0),
            y_title="Relative distance of γ from its closed form",
            title="How far one network, and an ensemble, stray from theory by width (lines: power laws)", **look,
        ),
        "cosines": lines(
            rows, "width", "cosine", by="activation", theory="cosine_theory", y_title="Distance of the cosine (rms)",
            title="How far one network is from infinite width, measured and predicted", **look,
        ),
    }  # fmt: skip


width = Item(
    "mf/width", "When to trust the wide limit", "MF, limits", claims=("M9",), version=2,
    about="γ after 1, 5, 20 hidden layers against its closed form; ReLU and tanh at their edges, bias variance 0.1; "
    "orthogonal inputs, 32 points; networks by width: {inits}.",
    quick=dict(inits={30: 600, 100: 500, 300: 240, 1000: 36}),
    full=dict(inits={30: 4000, 100: 2000, 300: 500, 1000: 80, 3000: 16}),
    seconds=(25, 300), quantities=_width, judge=_judge_width, tables=lambda c: {"widths": c.rows},
    charts=_charts_width,
    holds={
        "widths": Holds("One network strays from theory as 1/√width", entries=(0,), verdicts=("holds",)),
        "cosines": Holds("How far one network is from infinite width: the theory at finite width has it", (1,)),
    },
    notes=[
        "γ of one network is taken over the nodes of the pre-activations after that many hidden layers. Of an "
        "ensemble: the ratio of averages, as fg.measure gives it.",
    ],
)  # fmt: skip


def apart(run: Run, text: str, width: int, known: float) -> float:
    """The rms distance of the cosine of two inputs from that at infinite width, √(v + (e − c)²), predicted.

    Its mean e and variance v over networks are those of theory.md §12; one more dense layer makes the nodes that the
    cosine is read off a hidden layer of this width.
    """
    label = f"theory at width {width}, {text}"
    size = run.keep(_cosine, label=label, text=f"{text} > dense", width=width, seed=run.seed)
    return math.sqrt(size["variance"] + (size["mean"] - known) ** 2)


def _cosine(text: str, width: int, seed: int) -> dict[str, float]:
    size = fg.predict(text, width=width, seed=seed).finite_size
    assert size is not None
    return {"mean": size.overlap, "variance": size.overlap_variance}


def _rms(values: Array) -> Number:
    return root(average(values**2))


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
