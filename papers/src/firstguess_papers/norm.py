"""NORM: where the norm sits (Figs 3, G.5, G.6), and values after a BatchNorm of small batches (App. E.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import special, stats

import firstguess as fg
from firstguess.data import Data
from firstguess_papers.charts import deep, gamma, laws, lines, std
from firstguess_papers.items import Entry, Holds, Item
from firstguess_papers.judging import Array, Check, Number, above, average, check, claimed, each, jackknife
from firstguess_papers.measured import Cell, Found

AROUND = {  # an activation
    "no norm": "{}",
    "BatchNorm before": "batchnorm > {}",
    "LayerNorm before": "layernorm > {}",
    "BatchNorm after": "{} > batchnorm",
    "LayerNorm after": "{} > layernorm",
}
PLACES = {place: around.format("relu") for place, around in AROUND.items()}
DEPTHS = (1, 20)
KEYS = [(place, depth) for depth in DEPTHS for place in PLACES]
ONE_LAYER = 0.2270630  # std of G₀ after one plain ReLU layer, √(arcsin(1/π)/2π): theory.md §3
NEUTRAL = ONE_LAYER / 3  # what still counts as neutral in the checks of this file
NEARLY = 0.05  # std of G₀ beyond even guesses that still counts as nearly neutral, on digits
ROOM = 0.03  # difference of two standard deviations of G₀ that does not matter: an eighth of ONE_LAYER


def network(place: str, depth: int) -> str:
    """`depth` hidden layers with a norm in one of the `PLACES`, Kaiming, no biases."""
    return deep(PLACES[place], depth)


def beyond_even(m: fg.Measurement) -> Number:
    """Standard deviation of G₀ beyond that of n independent even guesses, ½/√n: 0 where γ = 0, for any n."""
    whole = std(m)
    rest = float(np.sqrt(max(whole.value**2 - 0.25 / m.points, 0.0)))
    return Number(rest, whole.error * (whole.value / rest if rest > 0.5 * whole.value else 2.0))


def paired(one: fg.Measurement, other: fg.Measurement) -> Number:
    """Difference of two standard deviations of G₀ whose members share their weights: by the jackknife over members."""
    columns = (m.guesses.fractions[:, 0] for m in (one, other))
    return jackknife(lambda a, b: a.std(ddof=1) - b.std(ddof=1), *columns)


def _cells(c: Found, x: Data) -> dict[Any, Cell]:
    """Every place of the norm at every depth, of the first width and of the others, with their numbers of networks."""
    c.known |= {"x": x, "last": c.widths[-1], "grid": [(d, w) for d in DEPTHS for w in c.widths]}
    many = c.inits if isinstance(c.inits, tuple) else (c.inits, *[c.wider] * (len(c.widths) - 1))
    return {
        (place, depth, width): Cell(network(place, depth), x, {"inits": inits, "width": width})
        for width, inits in zip(c.widths, many, strict=True)
        for place, depth in KEYS
    }


def _over(c: Found, place: str, of: Callable[[Any], Number], depths: Sequence[int] = DEPTHS) -> dict[str, Number]:
    """A number by depth and width."""
    return {f"{place}, {d} × {w}": of(c[place, d, w]) for d, w in c.grid if d in depths}


def _agree(c: Found, place: str) -> list[Check]:
    return [
        Check(f"{place}, {d} × {w}", "distributed as the closed form says",
              fg.compare(fg.predict(network(place, d)), c[place, d, w]).agrees, str(std(c[place, d, w])))
        for d, w in c.grid
    ]  # fmt: skip


def _laws(c: Found, title: str, says: str, theory: Any) -> dict[str, Any]:
    """A panel a place and depth at the first width, with the laws that `theory(place, depth)` gives."""
    return {"laws": laws(
        {key: c[*key, c.widths[0]] for key in KEYS},
        lambda place, depth: f"{place}, {depth} layer{'s' * (depth > 1)}, width {c.widths[0]}",
        theory=theory, note=lambda m: f"std {std(m)}", title=title, says=says, columns=5, width=200,
    )}  # fmt: skip


def _neutral(c: Found, claim: str, place: str) -> Entry:
    even = 0.5 / np.sqrt(c.n)
    return claimed(
        claim, "layers × width, std of G₀ beyond that of even guesses (one plain layer's is three times as large); "
        "without a limit std of G₀ is nowhere clearly above that of even guesses (γ = 0)",
        each(_over(c, place, beyond_even), below=NEUTRAL),
        within=[Check(name, "not above even guesses'", above(found, even) is not True, f"{found} against {even:.4f}")
                for name, found in _over(c, place, std).items()],
        limit="only in wide networks is nothing left: narrow deep ones keep a little",
    )  # fmt: skip


fig3 = Item(
    "norm/fig3", "Norm before or after the activation: how untrained networks split random data",
    "NORM Fig 3, Th 4.1-4.4", claims=("N1", "N2", "N4", "N3"),
    about="1 and 20 hidden ReLU layers of {widths} (NORM: 100), Kaiming; blob of {n} points in 1000 dimensions, all of "
    "them one batch; {inits} networks each, {wider} of the wider ones.",
    quick=dict(n=400, widths=(100, 200), inits=300, wider=100),
    full=dict(n=1000, widths=(100, 400), inits=1000, wider=150),
    seconds=(12, 120), measure={"classes": 2}, cells=lambda c: _cells(c, c.blob(c.n, 1000)),
    rows=lambda c, place, depth, width: {
        "data": "blob", "depth": depth, "width": width, "theory_std": fg.predict(network(place, depth)).guesses.std(),
    },
    judge=lambda c: [
        claimed(
            "N1", "layers × width, std of G₀",
            each(_over(c, "BatchNorm before", std), near=ONE_LAYER, room=ROOM, than="one plain layer's"),
            within=_agree(c, "BatchNorm before"),
            limit="the level is kept within the margin, but a distribution is off the closed form (finite width)",
        ),
        _neutral(c, "N2", "BatchNorm after"),
        _neutral(c, "N4", "LayerNorm after"),
        claimed(
            "N3", "layers × width, std of G₀ with LayerNorm before − without a norm, and by depth",
            [*each({f"{d} × {w}": paired(c["LayerNorm before", d, w], c["no norm", d, w]) for d, w in c.grid},
                   near=0.0, room=ROOM),
             *(check(f"LayerNorm before, 20 × {w}", std(c["LayerNorm before", 20, w]),
                     above=std(c["LayerNorm before", 1, w]), by=2 * ROOM, than="one layer's") for w in c.widths)],
            within=_agree(c, "LayerNorm before"),
            limit="as without a norm, but a distribution is off the closed form: finite width weakens deep bias",
        ),
    ],
    charts=lambda c: _laws(
        c, "Guesses with norms before and after the activation",
        "Lines: closed form for infinite width and as many points, no free parameter.",
        lambda place, depth: {"theory": fg.predict(network(place, depth))},
    ),
    holds={"laws": "After the activation a norm makes guesses even; before it, bias stays (BatchNorm) or grows "
                   "(LayerNorm)"},
)  # fmt: skip


def _kernels(c: Found, deepest: int = 20) -> dict[tuple[str, int], fg.EmpiricalGuesses]:
    """Laws by the kernel reading of these very points (theory.md (11)); of BatchNorm, which takes time, to a depth."""

    given: dict[str, Any] = {"data": c.x, "seed": c.run.seed}
    texts = {(p, d): network(p, d) for p in PLACES for d in DEPTHS if d <= deepest or "Batch" not in p}
    pieces = {key: c.run.keep(_law, label=f"kernel of {text}", text=text, **given) for key, text in texts.items()}
    return {key: fg.EmpiricalGuesses(piece["fractions"], c.n, c.run.seed) for key, piece in pieces.items()}


def _law(text: str, data: Data, seed: int) -> dict[str, Any]:
    p = fg.predict(text, data=data, classes=2, draws=4000, seed=seed)
    assert isinstance(p.guesses, fg.EmpiricalGuesses)
    return {"fractions": p.guesses.fractions, "gamma": float(p.gamma[-1])}


def _off_random(c: Found, where: str) -> list[Check]:
    """std of G₀ less that of the closed form for random data."""
    return each({
        f"{p}, {d} × {w}": std(m) - Number(fg.predict(network(p, d), points=c.n).guesses.std())
        for (p, d, w), m in c.cells.items() if ("after" in p) is (where == "after")
    }, near=0.0, room=0.05)  # fmt: skip


fig3_cifar10 = Item(
    "norm/fig3-cifar10", "The same on CIFAR-10: how far random data serve as a model of images", "NORM Fig 3",
    claims=("N8",), needs=("cifar10",), seconds=(12, 150),
    about="1 and 20 hidden ReLU layers of {widths}, Kaiming, two outputs; {n} CIFAR-10 images, standardized by "
    "channel, one batch; {inits} networks each, {wider} of the wider ones. Kernel reading of the same images "
    "(BatchNorm: up to {deepest} layers).",
    quick=dict(n=250, widths=(100,), inits=240, wider=0, deepest=1),
    full=dict(n=600, widths=(100, 400), inits=1000, wider=150, deepest=20),
    measure={"classes": 2}, cells=lambda c: _cells(c, c.run.data("cifar10", points=c.n)),
    quantities=lambda c: {"kernels": _kernels(c, c.deepest)},
    rows=lambda c, place, depth, width: {
        "data": "cifar10", "depth": depth, "width": width,
        "theory_std": fg.predict(network(place, depth)).guesses.std(),
        "kernel_std": c.kernels[place, depth].std() if (place, depth) in c.kernels else None,
    },
    judge=lambda c: [
        claimed(
            "N8", "layers × width, std of G₀ on CIFAR-10 − by the closed form for random data",
            _off_random(c, "before"), within=_off_random(c, "after"),
            limit="images are not independent, and LayerNorm after the activation does not remove what they share",
            otherwise="off by more than 0.05",
        ),
        claimed(
            "N8", "beyond the paper: std of G₀ and the kernel reading's of the same images",
            [check(f"{p}, {d} layers", std(c[p, d, c.last]), near=law.std(), room=ROOM, than="the kernel's")
             for (p, d), law in c.kernels.items()],
            otherwise="finite width: the kernel is for infinitely wide layers",
        ),
    ],
    charts=lambda c: _laws(
        c, "CIFAR-10: guesses with norms before and after the activation",
        "Kernel: infinite width, these very images, no free parameter.",
        lambda p, d: {"random data": fg.predict(network(p, d))}
        | ({"kernel, these images": c.kernels[p, d]} if (p, d) in c.kernels else {}),
    ),
    holds={"laws": Holds(
        "CIFAR-10 follows the theory for random data, without a norm and with one before ReLU", entries=(0,)
    )},
    notes=["Two outputs on images of all ten classes: labels play no part before training."],
)  # fmt: skip


fig_g5 = Item(
    "norm/fig-g5", "The norm's place on MNIST, even against odd digits", "NORM Figs G.5, G.6 (initialization)",
    claims=("N9",), needs=("mnist",), seconds=(15, 150),
    about="1 and 20 hidden ReLU layers of {widths} (NORM: 100), Kaiming; {n} MNIST digits, standardized, one batch; "
    "{inits} networks each. Kernel reading of the same digits.",
    quick=dict(n=160, widths=(100, 200), inits=(400, 100)),
    full=dict(n=500, widths=(100, 400), inits=(1000, 150)),
    cells=lambda c: _cells(c, c.run.data("mnist:even-odd", points=c.n)), quantities=lambda c: {"kernels": _kernels(c)},
    rows=lambda c, place, depth, width: {
        "depth": depth, "width": width, "kernel_std": c.kernels[place, depth].std(),
        "closed_form_std": fg.predict(network(place, depth), points=c.n).guesses.std(),
    },
    judge=lambda c: [
        claimed(
            "N9", "layers × width, std of G₀ with the norm after, and what of it is beyond even guesses",
            [*(check(f"{norm} after, {d} × {w}", std(c[f"{norm} after", d, w]), below=std(c[f"{norm} before", d, w]),
                     than="with the norm before") for norm in ("BatchNorm", "LayerNorm") for d, w in c.grid),
             *each(_over(c, "LayerNorm after", beyond_even, (1,)), above=NEARLY),
             *each(_over(c, "BatchNorm after", beyond_even), below=NEARLY)],
        ),
        claimed(
            "N9", "it departs in size: std of G₀ after one layer without a norm",
            [check("no norm", std(c["no norm", 1, c.widths[0]]), above=ONE_LAYER, than="random data's")],
        ),
        claimed(
            "N9", f"beyond the paper: std of G₀ at width {c.last} − by the kernel reading",
            each({f"{p}, {d} layers": std(c[p, d, c.last]) - Number(law.std(), law.standard_error("std"))
                  for (p, d), law in sorted(c.kernels.items(), key=lambda one: one[0][1])}, near=0.0, room=ROOM),
            otherwise="finite width: at 20 layers narrow networks differ from infinitely wide ones",
        ),
    ],
    charts=lambda c: _laws(
        c, "MNIST: guesses with norms before and after the activation",
        "The kernel reading knows the digits, the closed form does not; neither has a free parameter.",
        lambda p, d: {"kernel, these digits": c.kernels[p, d],
                      "closed form, random data": fg.predict(network(p, d))},
    ),
    holds={"laws": Holds(
        "On MNIST a norm after ReLU still means less bias, but LayerNorm after one layer is far from neutral",
        entries=(0,),
    )},
    notes=["The number of digits is ours: the kernel reading with BatchNorm takes time as its square."],
)  # fmt: skip


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


def _values(x: Data, layer: int, batch: int, width: int, seed: int) -> dict[str, Any]:
    """Values of one hidden layer in batches; all averages are over nodes and points of a batch, one number a batch."""
    u, rng = x.flat().astype(np.float64), np.random.default_rng([seed, layer, width])
    for k in range(layer):
        u = np.maximum(u, 0.0) if k else u
        u = u @ (rng.standard_normal((u.shape[1], width)) * np.sqrt(2.0 / u.shape[1]))
    one, other = normalized(u.reshape(-1, batch, width))
    kept: dict[str, Any] = {"apart": (np.abs(other - one) > 0.1).mean(axis=(1, 2))}
    for kind, values in zip(KINDS, (one, other), strict=True):
        kept[f"mean {kind}"] = values.mean(axis=(1, 2))
        kept[f"square {kind}"] = np.square(values).mean(axis=(1, 2))
        kept[f"beyond {kind}"] = np.stack([(np.abs(values) > t).mean(axis=(1, 2)) for t in THRESHOLDS], axis=1)
        kept[f"density {kind}"] = np.histogram(values, EDGES)[0] / (values.size * np.diff(EDGES))
        kept[f"tail {kind}"] = np.array([(np.abs(values) > t).mean() for t in REACH])
    return kept


def _all_values(c: Found) -> dict[str, Any]:
    """By layer and batch size, of a network of 100 in 100 dimensions."""
    given: dict[str, Any] = {"x": c.blob(c.n, 100), "width": 100, "seed": c.run.seed}
    return {"values": {
        (k, b): c.run.keep(_values, label=f"layer {k}, batches of {b}", layer=k, batch=b, **given)
        for k in (1, 3) for b in BATCHES
    }}  # fmt: skip


SIZES = {"usual": (2, 4, 8, 16, 64, 256), "leave-one-out": (8, 16, 64, 256)}  # batches whose γ is measured


def _batch_cells(c: Found) -> dict[Any, Cell]:
    """BatchNorm, ReLU and a second hidden layer, whose γ is an average over many nodes."""
    texts = {
        (kind, b): f"dense(weight_var=2) > batchnorm(batch={b}{', estimator=leave_one_out' * (kind != 'usual')}) > "
        "relu > dense(weight_var=2) > tanh > dense"
        for kind, batches in SIZES.items() for b in batches
    }  # fmt: skip
    c.known["theory"] = {key: float(fg.predict(text).gamma[1]) for key, text in texts.items()}
    return {key: Cell(text, c.blob(768, 200), {"width": 200, "probe": "weights"}) for key, text in texts.items()}


def _as_said(c: Found, layer: int) -> list[Check]:
    """What NORM says of values by the leave-one-out estimator in this layer, by batch size."""
    found = {
        what: [average(v[:, 2] if v.ndim == 2 else v) for v in (np.asarray(c.values[layer, b][what]) for b in BATCHES)]
        for what in ("mean leave-one-out", "square leave-one-out", "beyond leave-one-out", "beyond usual", "apart")
    }  # shares beyond ±3
    middle, variance, other, usual, apart = found.values()
    smaller = "with smaller batches"
    return [
        check(f"mean of leave-one-out, layer {layer}", middle, near=0.0, room=0.02),
        check(f"its variance up to batches of 64, layer {layer}", variance[:3], above=1.0),
        check(f"its variance, layer {layer}", variance[1:3], below=variance[:2], than=smaller),
        check(f"beyond ±3 up to batches of 64, layer {layer}", other[:3], above=usual[:3],
              than="the usual estimator's"),
        check(f"apart by more than 0.1, layer {layer}", apart[1:], below=apart[:-1], than=smaller),
        check(f"apart by more than 0.1 in batches of 256, layer {layer}", apart[3], below=0.01),
        check(f"beyond ±3 in batches of 256, layer {layer}", other[3], near=float(2 * special.ndtr(-3.0)), room=0.0015,
              than="Gaussian"),
    ]  # fmt: skip


def _exact(c: Found, layer: int) -> list[Check]:
    return [
        check(f"{kind} batches of {b}, layer {layer}",
              [average(c.values[layer, b][f"beyond {kind}"][:, k]) - Number(float(beyond(kind, b, t)))
               for k, t in enumerate(THRESHOLDS)], near=0.0, room=0.004)
        for b in BATCHES for kind in KINDS
    ]  # fmt: skip


fig_e1 = Item(
    "norm/fig-e1", "BatchNorm of small batches: the distribution of the values",
    "NORM Figs E.1, E.2, App. E.1.2", claims=("N7",),
    about="Hidden layers 1 and 3 of one ReLU network of width 100, Kaiming; blob of {n} points in 100 dimensions in "
    "batches of 8, 16, 64, 256 (sizes ours). γ after a ReLU: {inits} networks of width 200, 768 points.",
    quick=dict(n=10_240, inits=120),
    full=dict(n=51_200, inits=500),
    seconds=(9, 60), cells=_batch_cells,
    quantities=_all_values,
    judge=lambda c: [
        claimed("N7", "values by the leave-one-out estimator, by batch size", [*_as_said(c, 1), *_as_said(c, 3)]),
        claimed(
            "N7", "beyond the paper: shares beyond ±1, 2, 3, 4 − those of the exact distributions (Beta; Student's t)",
            _exact(c, 1), within=_exact(c, 3),
            limit="values of deeper narrow layers are not quite Gaussian over the data",
        ),
        claimed(
            "N7", "beyond the paper: γ after BatchNorm and ReLU by batch size, over that of theory.md (5)",
            each({f"{kind} batches of {b}": gamma(c[kind, b], 1) / Number(c.theory[kind, b])
                  for kind, b in c.cells}, near=1.0, room=0.1),
        ),
    ],
    tables=lambda c: {
        "values": [
            {"layer": layer, "batch": b, "estimator": kind, "mean": average(p[f"mean {kind}"]).value,
             "variance": average(p[f"square {kind}"]),
             "variance_exact": 1.0 if kind == "usual" else b / (b - 1) * (b - 2) / (b - 4),
             **{f"beyond_{t:g}": float(p[f"beyond {kind}"][:, k].mean()) for k, t in enumerate(THRESHOLDS)},
             **{f"beyond_{t:g}_exact": float(beyond(kind, b, t)) for t in THRESHOLDS}}
            for (layer, b), p in c.values.items() for kind in KINDS
        ],
        "gamma": [
            {"estimator": kind, "batch": b, "gamma": gamma(m, 1).value, "error": gamma(m, 1).error,
             "theory": c.theory[kind, b]} for (kind, b), m in c.cells.items()
        ],
    },
    charts=lambda c: {
        "tails": fg.figures.lines_chart(
            {f"batch of {b}": [
                *(fg.figures.Series(kind, REACH, beyond(kind, b, REACH), mark="line") for kind in KINDS),
                *(fg.figures.Series(kind, REACH, c.values[1, b][f"tail {kind}"], mark="points") for kind in KINDS),
                fg.figures.Series("Gaussian", REACH, 2 * special.ndtr(-REACH), mark="dashed"),
            ] for b in BATCHES[:3]},
            title="Tails of values after BatchNorm, usual and leave-one-out",
            subtitle=["Points: measured in the first layer. Lines: exact distributions (Beta; Student's t)."],
            x_title="Threshold t", y_title="Share of values beyond ± t", y_scale="log", y_domain=(1e-6, 1.2), width=330,
        ),
        "centre": fg.figures.panels_chart(
            [fg.figures.Panel(f"{kind}, batch of {b}", EDGES, c.values[1, b][f"density {kind}"],
                   {"exact": in_bins(kind, b), "Gaussian": np.diff(special.ndtr(EDGES)) / np.diff(EDGES)}, top=0.44)
             for kind in KINDS for b in BATCHES[:3]],
            title="Values after BatchNorm, usual and leave-one-out, beside a Gaussian",
            subtitle=["Bars: values of the first layer."], x_title="Normalized value", percent=False,
        ),
        "gamma": lines(
            c.tables["gamma"], "batch", "gamma", by="estimator", x_title="Batch size", x_scale="log", dodge=False,
            title="Bias that BatchNorm before ReLU keeps, by batch size", y_title="Drift ratio γ of the layer after",
            rules={"all data: 1/(π − 1)": 1 / (np.pi - 1)}, width=760,
        ),
    },
    holds={
        "tails": Holds("Leaving a point out of its own statistics turns light tails into heavy ones; large batches "
                       "forget it", entries=(0,)),
        "gamma": Holds("Small batches raise the bias that BatchNorm before ReLU keeps", entries=(2,)),
    },
    notes=["Errors are over batches: values of one batch are not independent."],
)  # fmt: skip
