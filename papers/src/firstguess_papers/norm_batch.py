"""NORM App. E.1: values after a BatchNorm of small batches, usual and leave-one-out (Figs E.1, E.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special, stats

import firstguess as fg
from firstguess import figures
from firstguess_papers import library
from firstguess_papers.charts import lines
from firstguess_papers.items import Entry, Holds
from firstguess_papers.judging import Check, Number, check, claimed, each
from firstguess_papers.measured import Cell, Found, measured
from firstguess_papers.mf_simulation import mean
from firstguess_papers.running import Run
from firstguess_papers.tables import gamma

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

BATCHES = (8, 16, 64, 256)
THRESHOLDS = (1.0, 2.0, 3.0, 4.0)
EDGES = np.linspace(-4.0, 4.0, 41)
KINDS = ("usual", "leave-one-out")
REACH = np.arange(0.0, 6.01, 0.25)  # for the tails


def normalized(u: Array) -> tuple[Array, Array]:
    """Values (batches, B, nodes) by both estimators; leave-one-out takes the mean and variance of the other B − 1.

    Leaving out is done by arithmetic: û' = √(B/(B−1)) û √((B−2)/(B−1−û²)), theory.md below (5).

    >>> u = np.array([[[0.0], [1.0], [2.0], [5.0], [1.0]]])
    >>> others = u[0, [0, 1, 2, 4], 0]
    >>> print(f"{normalized(u)[1][0, 3, 0]:.9f} {(5.0 - others.mean()) / others.std(ddof=1):.9f}")
    4.898979486 4.898979486
    """
    size = u.shape[1]
    usual = (u - u.mean(axis=1, keepdims=True)) / u.std(axis=1, keepdims=True)
    left = size - 1.0 - np.square(usual)  # 0 only where all others are equal
    return usual, np.sqrt(size / (size - 1.0) * (size - 2.0) / left) * usual


def beyond(kind: str, batch: int, t: Array | float) -> Array:
    """P(|û| > t) after a BatchNorm of Gaussian values: Beta (usual) or Student's t (leave-one-out), theory.md (5).

    >>> print(beyond("usual", 4, 1.0).round(6), beyond("leave-one-out", 1000, 2.0).round(3))
    0.42265 0.046
    """
    t = np.asarray(t, dtype=np.float64)
    if kind == "usual":
        return 1.0 - special.betainc(0.5, (batch - 2) / 2, np.minimum(t**2 / (batch - 1), 1.0))
    return 2.0 * stats.t.sf(t * np.sqrt((batch - 1) / batch), batch - 2)


def in_bins(kind: str, batch: int) -> Array:
    """Probability density in the bins `EDGES`."""
    above_edge = np.where(EDGES >= 0, 0.5, -0.5) * (1.0 - beyond(kind, batch, np.abs(EDGES)))
    return np.diff(above_edge) / np.diff(EDGES)


def _simulate(run: Run, n: int, layer: int, batch: int, d: int = 100, width: int = 100) -> dict[str, Any]:
    """Values of one hidden layer in batches; all averages are over nodes and points of a batch, one number a batch."""

    def compute() -> dict[str, Any]:

        x = fg.data.blob(n, d, seed=run.seed).flat().astype(np.float64)
        rng = np.random.default_rng([run.seed, layer, width])
        for _ in range(layer - 1):
            x = np.maximum(x @ (rng.standard_normal((x.shape[1], width)) * np.sqrt(2.0 / x.shape[1])), 0.0)
        u = x @ (rng.standard_normal((x.shape[1], width)) * np.sqrt(2.0 / x.shape[1]))
        one, other = normalized(u.reshape(-1, batch, width))
        kept: dict[str, Any] = {"apart": (np.abs(other - one) > 0.1).mean(axis=(1, 2))}
        for kind, values in zip(KINDS, (one, other), strict=True):
            kept[f"mean {kind}"] = values.mean(axis=(1, 2))
            kept[f"square {kind}"] = np.square(values).mean(axis=(1, 2))
            kept[f"beyond {kind}"] = np.stack([(np.abs(values) > t).mean(axis=(1, 2)) for t in THRESHOLDS], axis=1)
            kept[f"density {kind}"] = np.histogram(values, EDGES)[0] / (values.size * np.diff(EDGES))
            kept[f"tail {kind}"] = np.array([(np.abs(values) > t).mean() for t in REACH])
        return kept

    key = {"values": layer, "points": n, "dimensions": d, "width": width, "batch": batch}
    return run.piece(key, compute, label=f"layer {layer}, batches of {batch}")


SIZES = {"usual": (2, 4, 8, 16, 64, 256), "leave-one-out": (8, 16, 64, 256)}  # batches whose γ is measured


def _cells(c: Found) -> dict[Any, Cell]:
    """BatchNorm, ReLU and a second hidden layer, whose γ is an average over many nodes."""
    x = c.blob(768, 200)
    texts = {
        (kind, b): f"dense(weight_var=2) > batchnorm(batch={b}{', estimator=leave_one_out' * (kind != 'usual')}) > "
        "relu > dense(weight_var=2) > tanh > dense"
        for kind, batches in SIZES.items() for b in batches
    }  # fmt: skip
    c.known["theory"] = {key: float(fg.predict(text).gamma[1]) for key, text in texts.items()}
    return {key: Cell(text, x, {"width": 200, "probe": "weights"}) for key, text in texts.items()}


def _variance(kind: str, batch: int) -> float:
    return 1.0 if kind == "usual" else batch / (batch - 1) * (batch - 2) / (batch - 4)


def judge(c: Found) -> list[Entry]:
    """N7: usual and leave-one-out, the exact distributions, and γ by batch."""
    gaussian = float(2 * special.ndtr(-3.0))
    must: list[Check] = []
    for layer in (1, 3):
        in_layer = f"layer {layer}"

        def found(what: str, batches: Sequence[int] = BATCHES, layer: int = layer) -> list[Number]:
            values = [np.asarray(c.values[layer, b][what]) for b in batches]
            return [mean(v[:, 2] if v.ndim == 2 else v) for v in values]  # shares beyond ±3

        variance, apart = found("square leave-one-out"), found("apart")
        other = found("beyond leave-one-out")
        must += [
            check(f"mean of leave-one-out, {in_layer}", found("mean leave-one-out"), near=0.0, room=0.02),
            check(f"its variance up to batches of 64, {in_layer}", variance[:3], above=1.0),
            check(f"its variance, {in_layer}", variance[1:3], below=variance[:2], than="with smaller batches"),
            check(f"beyond ±3 up to batches of 64, {in_layer}", other[:3], above=found("beyond usual", BATCHES[:3]),
                  than="the usual estimator's"),
            check(f"apart by more than 0.1, {in_layer}", apart[1:], below=apart[:-1], than="with smaller batches"),
            check(f"apart by more than 0.1 in batches of 256, {in_layer}", apart[3], below=0.01),
            check(f"beyond ±3 in batches of 256, {in_layer}", other[3], near=gaussian, room=0.0015, than="Gaussian"),
        ]  # fmt: skip

    def off(layer: int) -> list[Check]:
        return [
            check(f"{kind} batches of {b}, layer {layer}",
                  [mean(c.values[layer, b][f"beyond {kind}"][:, k]) - Number(float(beyond(kind, b, t)))
                   for k, t in enumerate(THRESHOLDS)], near=0.0, room=0.004)
            for b in BATCHES for kind in KINDS
        ]  # fmt: skip

    return [
        claimed("N7", "values by the leave-one-out estimator, by batch size", must),
        claimed(
            "N7", "beyond the paper: shares beyond ±1, 2, 3, 4 − those of the exact distributions (Beta; Student's t)",
            off(1), within=off(3), limit="values of deeper narrow layers are not quite Gaussian over the data",
        ),
        claimed(
            "N7", "beyond the paper: γ after BatchNorm and ReLU by batch size, over that of theory.md (5)",
            each({f"{kind} batches of {b}": gamma(c[kind, b], 1) / Number(c.theory[kind, b])
                  for kind, b in c.cells}, near=1.0, room=0.1),
        ),
    ]  # fmt: skip


def _value_rows(c: Found) -> list[dict[str, Any]]:
    return [
        {"layer": layer, "batch": b, "estimator": kind, "mean": mean(p[f"mean {kind}"]).value,
         "variance": mean(p[f"square {kind}"]), "variance_exact": _variance(kind, b),
         **{f"beyond_{t:g}": float(p[f"beyond {kind}"][:, k].mean()) for k, t in enumerate(THRESHOLDS)},
         **{f"beyond_{t:g}_exact": float(beyond(kind, b, t)) for t in THRESHOLDS}}
        for (layer, b), p in c.values.items() for kind in KINDS
    ]  # fmt: skip


def _gamma_rows(c: Found) -> list[dict[str, Any]]:
    return [
        {"estimator": kind, "batch": b, "gamma": g.value, "error": g.error, "theory": c.theory[kind, b]}
        for (kind, b), g in ((key, gamma(m, 1)) for key, m in c.cells.items())
    ]


def _charts(c: Found) -> dict[str, Any]:
    gauss = np.diff(special.ndtr(EDGES)) / np.diff(EDGES)
    shown = BATCHES[:3]
    where = f"irst hidden layer, width 100, {c.n:,} random points."
    tails = {
        f"batch of {b}": [
            *(library.Series(kind, REACH, beyond(kind, b, REACH), mark="line") for kind in KINDS),
            *(library.Series(kind, REACH, c.values[1, b][f"tail {kind}"], mark="points") for kind in KINDS),
            library.Series("Gaussian", REACH, 2 * special.ndtr(-REACH), mark="dashed"),
        ]
        for b in shown
    }
    return {
        "tails": figures.lines_chart(
            tails, title="Tails of values after BatchNorm, usual and leave-one-out",
            subtitle=[f"F{where} Points: measured. Lines: exact distributions (Beta; Student's t)."],
            x_title="Threshold t", y_title="Share of values beyond ± t", y_scale="log", y_domain=(1e-6, 1.2), width=330,
        ),
        "centre": figures.panels_chart(
            [library.Panel(f"{kind}, batch of {b}", EDGES, c.values[1, b][f"density {kind}"],
                           {"exact": in_bins(kind, b), "Gaussian": gauss}, top=0.44) for kind in KINDS for b in shown],
            title="Values after BatchNorm, usual and leave-one-out, beside a Gaussian",
            subtitle=[f"Values after a BatchNorm, f{where}"], x_title="Normalized value", percent=False,
        ),
        "gamma": lines(
            _gamma_rows(c), "batch", "gamma", by="estimator", x_title="Batch size", x_scale="log", dodge=False,
            title="Bias that BatchNorm before ReLU keeps, by batch size", y_title="Drift ratio γ of the layer after",
            rules={"all data: 1/(π − 1)": 1 / (np.pi - 1)}, width=760,
        ),
    }  # fmt: skip


fig_e1 = measured(
    "norm/fig-e1", "BatchNorm of small batches: the law of the values, centre and tails",
    "NORM Figs E.1, E.2, App. E.1.2", claims=("N7",),
    about="Hidden layers 1 and 3 of one ReLU network of width 100, Kaiming; blob of {n} points in 100 dimensions in "
    "batches of 8, 16, 64, 256 (sizes ours). γ after a ReLU: {inits} networks of width 200, 768 points.",
    quick=dict(n=10_240, inits=120),
    full=dict(n=51_200, inits=500),
    seconds=(9, 60),
    cells=_cells,
    quantities=lambda c: {"values": {(k, b): _simulate(c.run, c.n, k, b) for k in (1, 3) for b in BATCHES}},
    judge=judge,
    table="",
    tables=lambda c: {"values": _value_rows(c), "gamma": _gamma_rows(c)},
    charts=_charts,
    holds={
        "tails": Holds("Leaving a point out of its own statistics turns light tails into heavy ones; large batches "
                       "forget it", entries=(0,)),
        "gamma": Holds("Small batches raise the bias that BatchNorm before ReLU keeps", entries=(2,)),
    },
    notes=["Sizes are ours. Errors are over batches: values of one batch are not independent."],
)  # fmt: skip
