"""NORM App. E.1: values behind a BatchNorm of small batches, usual and leave-one-out (Figs E.1, E.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special, stats

import firstguess as fg
from firstguess import figures
from firstguess_papers import library
from firstguess_papers.charts import lines
from firstguess_papers.items import Holds, Outcome, item
from firstguess_papers.judging import Number, Truth, above, below, entry, same
from firstguess_papers.running import Run
from firstguess_papers.tables import columns, gamma

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
    """P(|û| > t) behind a BatchNorm of Gaussian values: Beta (usual) or Student's t (leave-one-out), theory.md (5).

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


def _simulate(run: Run, n: int, d: int, width: int, layer: int, batch: int) -> dict[str, Any]:
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


def _number(values: Array) -> Number:
    return Number(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))


@item(
    "norm/fig-e1",
    "BatchNorm of small batches: the law of the values, centre and tails",
    claims=("N7",),
    where="NORM Figs E.1, E.2, App. E.1.2",
    about="Hidden layers 1 and 3 of one ReLU network of width 100, Kaiming; blob of {n} points in 100 dimensions in "
    "batches of 8, 16, 64, 256 (sizes ours). γ after a ReLU: {inits} networks of width 200, 768 points.",
    quick=dict(n=10_240, inits=120),
    full=dict(n=51_200, inits=500),
    seconds=(9, 60),
)
def fig_e1(run: Run) -> Outcome:
    """N7: mean, variance, tails and difference of the two estimators, measured and exact."""

    n, inits = run.take("n inits")
    found = {(layer, b): _simulate(run, n, 100, 100, layer, b) for layer in (1, 3) for b in BATCHES}
    gauss = np.diff(special.ndtr(EDGES)) / np.diff(EDGES)
    shown = BATCHES[:3]
    centre = [
        library.Panel(f"{kind}, batch of {b}", EDGES, found[1, b][f"density {kind}"],
                      {"exact": in_bins(kind, b), "Gaussian": gauss}, top=0.44)
        for kind in KINDS for b in shown
    ]  # fmt: skip
    tails = {
        f"batch of {b}": [
            *(library.Series(kind, REACH, beyond(kind, b, REACH), mark="line") for kind in KINDS),
            *(library.Series(kind, REACH, found[1, b][f"tail {kind}"], mark="points") for kind in KINDS),
            library.Series("Gaussian", REACH, 2 * special.ndtr(-REACH), mark="dashed"),
        ]
        for b in shown
    }
    drift = _drift(run, inits)
    charts = {
        "tails": figures.lines_chart(
            tails, title="Tails of values after BatchNorm, usual and leave-one-out",
            subtitle=[f"First hidden layer, width 100, {n:,} random points. Points: measured. Lines: exact "
                      "distributions (Beta; Student's t)."],
            x_title="Threshold t", y_title="Share of values beyond ± t", y_scale="log", y_domain=(1e-6, 1.2), width=330,
        ),
        "centre": figures.panels_chart(
            centre, title="Values after BatchNorm, usual and leave-one-out, beside a Gaussian",
            subtitle=[f"Values after a BatchNorm, first hidden layer, width 100, {n:,} random points."],
            x_title="Normalized value", percent=False,
        ),
        "gamma": drift["chart"],
    }  # fmt: skip
    rows = [
        {
            "layer": layer, "batch": b, "estimator": kind,
            "mean": _number(p[f"mean {kind}"]).value, "variance": _number(p[f"square {kind}"]).value,
            "variance_error": _number(p[f"square {kind}"]).error, "variance_exact": _variance(kind, b),
            **{f"beyond_{t:g}": float(p[f"beyond {kind}"][:, k].mean()) for k, t in enumerate(THRESHOLDS)},
            **{f"beyond_{t:g}_exact": float(beyond(kind, b, t)) for t in THRESHOLDS},
        }
        for (layer, b), p in found.items()
        for kind in KINDS
    ]  # fmt: skip
    return Outcome(
        [_claim(found), _exact(found), drift["entry"]],
        {"values": columns(rows), "gamma": columns(drift["rows"])},
        charts,
        ["Sizes are ours. Errors are over batches: values of one batch are not independent."],
        holds={
            "tails": Holds(
                "Leaving a point out of its own statistics turns light tails into heavy ones; large batches forget it",
                entries=(0,),
            ),
            "gamma": Holds("Small batches raise the bias that BatchNorm before ReLU keeps", entries=(2,)),
        },
    )


def _variance(kind: str, batch: int) -> float:
    return 1.0 if kind == "usual" else batch / (batch - 1) * (batch - 2) / (batch - 4)


def _claim(found: dict[tuple[int, int], dict[str, Any]]) -> Any:
    must: list[Truth] = []
    said: list[str] = []
    gaussian = float(2 * special.ndtr(-3.0))
    for layer in (1, 3):
        variance = [_number(found[layer, b]["square leave-one-out"]) for b in BATCHES]
        usual = [_number(found[layer, b]["beyond usual"][:, 2]) for b in BATCHES]
        other = [_number(found[layer, b]["beyond leave-one-out"][:, 2]) for b in BATCHES]
        apart = [_number(found[layer, b]["apart"]) for b in BATCHES]
        must += [same(_number(found[layer, b]["mean leave-one-out"]), 0.0, room=0.02) for b in BATCHES]
        must += [above(v, 1.0) for v in variance[:3]]
        must += [below(variance[k + 1], variance[k]) for k in range(2)]
        must += [above(b, a) for a, b in zip(usual[:3], other[:3], strict=True)]
        must += [below(apart[k + 1], apart[k]) for k in range(3)] + [below(apart[3], 0.01)]
        must += [same(other[3], gaussian, room=0.0015)]
        said.append(
            f"layer {layer}, batches of {', '.join(map(str, BATCHES))}: variance {', '.join(map(str, variance))} "
            f"against 1; beyond ±3: {', '.join(map(str, other))} against {', '.join(map(str, usual))} (Gaussian "
            f"{gaussian:.4f}); apart by more than 0.1: {', '.join(map(str, apart))}"
        )
    return entry(
        "N7",
        "leave-one-out against usual: mean 0 within 0.02; variance above 1 up to batches of 64 and falling; more "
        "beyond ±3; P(difference > 0.1) falls with the batch to below 0.01 at 256; there P(|value| > 3) is Gaussian "
        "within 0.0015",
        "; ".join(said),
        must,
    )


def _exact(found: dict[tuple[int, int], dict[str, Any]]) -> Any:
    """The exact laws hold where values are Gaussian over the data: in the first layer; the third shows the limit."""
    off: dict[int, list[tuple[Number, Truth]]] = {1: [], 3: []}
    for (layer, b), p in found.items():
        for kind in KINDS:
            for k, t in enumerate(THRESHOLDS):
                rest = _number(p[f"beyond {kind}"][:, k]) - Number(float(beyond(kind, b, t)))
                off[layer].append((rest, same(rest, 0.0, room=0.004)))
    worst = {layer: max((r for r, _ in values), key=lambda r: abs(r.value)) for layer, values in off.items()}
    return entry(
        "N7",
        "beyond the paper: shares beyond ±1, 2, 3, 4 by the exact laws (Beta; Student's t) within 0.004, in layer 1; "
        "without a limit if also in layer 3",
        f"largest difference {worst[1]} in layer 1, {worst[3]} in layer 3",
        [truth for _, truth in off[1]],
        within=[truth for _, truth in off[3]],
        limit="values of deeper narrow layers are not quite Gaussian over the data",
    )


def _drift(run: Run, inits: int) -> dict[str, Any]:
    """γ behind BatchNorm and a ReLU by batch size: theory.md (5)."""

    x = fg.data.blob(768, 200, seed=run.seed)
    sizes = {"usual": (2, 4, 8, 16, 64, 256), "leave-one-out": (8, 16, 64, 256)}
    rows: list[dict[str, Any]] = []
    checks: list[Truth] = []
    for kind, batches in sizes.items():
        option = ", estimator=leave_one_out" if kind == "leave-one-out" else ""
        for b in batches:
            # a second hidden layer, whose γ is an average over many nodes
            text = f"dense(weight_var=2) > batchnorm(batch={b}{option}) > relu > dense(weight_var=2) > tanh > dense"
            m = run.measure(text, x, inits=inits, width=200, probe="weights", label=f"γ, {kind}, batches of {b}")
            found, theory = gamma(m, 1), float(fg.predict(text).gamma[1])
            checks.append(same(found / Number(theory), 1.0, room=0.1))
            rows.append({"estimator": kind, "batch": b, "gamma": found.value, "error": found.error, "theory": theory})
    chart = lines(
        rows, "batch", "gamma", by="estimator", title="Bias that BatchNorm before ReLU keeps, by batch size",
        x_title="Batch size", y_title="Drift ratio γ of the layer after", x_scale="log",
        rules={"all data: 1/(π − 1)": 1 / (np.pi - 1)}, dodge=False, width=760,
    )  # fmt: skip
    shown = ", ".join(
        f"{r['estimator']} {r['batch']}: {Number(r['gamma'], r['error'])} ({r['theory']:.4f})" for r in rows
    )
    statement = "beyond the paper: γ behind BatchNorm and ReLU by batch size is that of theory.md (5) within 10 %"
    return {"chart": chart, "rows": rows, "entry": entry("N7", statement, shown, checks)}
