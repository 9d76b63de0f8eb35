"""IGB: ranks and entropy of guesses (App. H), the logits of one network (§3), structure in the data (§3, App. I.1)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

import firstguess as fg
from firstguess import figures
from firstguess_papers import library
from firstguess_papers.charts import lines, predicted
from firstguess_papers.items import Entry, Holds, Outcome, item
from firstguess_papers.judging import Number, Truth, above, below, entry, same
from firstguess_papers.running import Run
from firstguess_papers.tables import KAIMING, columns, deep, std

CLASSES = 10
ROOM_RANKED = 0.02  # of a fraction, E G_(k)
NATS = 0.1  # of the entropy, whose largest value is ln 10 = 2.30
SHARE = 0.1  # of the networks below the predicted median: half of them, within this
SHOWN = (1, 2, 3, 4, 5)
RANKS = (1, 2, 3)  # whose laws are drawn and checked
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Ranked:
    """One network's ranked fractions (k in SHOWN) and entropy: measured and predicted averages, and networks below."""

    name: str
    gamma: float
    means: Sequence[Number]
    theory: Sequence[float]
    below: Sequence[Number]  # share of networks below the predicted median of the k-th largest, k in RANKS
    half: Sequence[float]  # what the predicted law has there (½, but for its steps)
    entropy: Number
    entropy_theory: float

    @property
    def ranks(self) -> list[Truth]:
        return [same(a, b, room=ROOM_RANKED) for a, b in zip(self.means, self.theory, strict=True)]

    @property
    def laws(self) -> list[Truth]:
        return [same(a, b, room=SHARE) for a, b in zip(self.below, self.half, strict=True)]


def judge_ranked(found: Sequence[Ranked]) -> list[Entry]:
    """I24: averages of ranks, medians of the first three, entropy."""
    ranked = "; ".join(
        f"γ = {r.gamma:.3g}: "
        + ", ".join(f"{a} ({t:.4f})" for a, t in list(zip(r.means, r.theory, strict=True))[: max(RANKS)])
        for r in found
    )
    medians = "; ".join(f"γ = {r.gamma:.3g}: " + ", ".join(map(str, r.below)) for r in found)
    entropies = ", ".join(f"{r.entropy} ({r.entropy_theory:.4f}) at γ = {r.gamma:.3g}" for r in found)
    return [
        entry(
            "I24",
            f"ten classes: the average k-th largest fraction is within {ROOM_RANKED} of theory for k = 1 to 5; without "
            f"a limit half of the networks (within {SHARE}) are below the predicted median for k = 1, 2, 3",
            f"k = 1, 2, 3 (theory): {ranked}; share of networks below the predicted median: {medians}",
            [check for r in found for check in r.ranks],
            within=[check for r in found for check in r.laws],
            headline=f"first class, γ = {found[-1].gamma:.3g}: {found[-1].means[0]}, theory {found[-1].theory[0]:.3f}",
            limit="averages are right, the law is not in all of them",
        ),
        entry(
            "I24",
            f"the average entropy of the guesses is within {NATS} nats of theory (ln 10 = {math.log(10):.2f} if even)",
            f"measured (theory): {entropies}",
            [same(r.entropy, r.entropy_theory, room=NATS) for r in found],
            headline=f"{found[-1].entropy} nats at γ = {found[-1].gamma:.3g}, theory {found[-1].entropy_theory:.3f}",
        ),
    ]


def ranks_of(fractions: Array) -> Array:
    """Fractions of every network from the largest on."""
    return -np.sort(-fractions, axis=1)


def _average(values: Array) -> Number:
    return Number(float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values))))


def compare(name: str, gamma: float, fractions: Array, law: dict[str, Any]) -> Ranked:
    """What was measured beside the predicted law, as `predict_ranks` gives it."""
    ranked = ranks_of(fractions)
    below: list[Number] = []
    for k in RANKS:
        inside = ranked[:, k - 1] <= float(law["medians"][k - 1]) + 1e-9
        p = float(inside.mean())
        below.append(Number(p, math.sqrt(max(p * (1 - p), 1 / len(inside)) / len(inside))))
    own = -np.where(fractions > 0, fractions * np.log(np.maximum(fractions, 1e-300)), 0.0).sum(axis=1)
    return Ranked(
        name,
        gamma,
        [_average(ranked[:, k - 1]) for k in SHOWN],
        [float(v) for v in law["means"]],
        below,
        [float(v) for v in law["half"]],
        _average(own),
        float(law["entropy"]),
    )


def predict_ranks(gamma: float, points: int) -> dict[str, Any]:
    """Predicted averages of the ranks SHOWN, medians and values of the first three, and the entropy."""

    law = fg.Guesses(gamma, CLASSES, points)
    kth = {k: law.kth_largest(k) for k in RANKS}
    drawn = ranks_of(law.sample(20_000, seed=24)).mean(axis=0)  # of further ranks averages suffice: error below 0.001
    entropy = law.entropy()
    medians = [float(kth[k].quantile(0.5)) for k in RANKS]
    return {
        "means": np.array([kth[k].mean if k in kth else drawn[k - 1] for k in SHOWN]),
        "medians": np.array(medians),
        "half": np.array([float(kth[k].cdf(m)) for k, m in zip(RANKS, medians, strict=True)]),
        "entropy": entropy.mean,
        "entropies": entropy.values,
        **{f"values{k}": kth[k].values for k in RANKS},
    }


@item(
    "igb/ranked",
    "The k-th largest class, and the entropy of the guesses",
    claims=("I24",),
    where="IGB App. H; NORM App. A, B",
    about="Ten classes, one hidden ReLU layer with max-pools of 1, 4 and 25 over {nodes} pooled nodes or more (γ = "
    "0.47, 2.4, 15; our sizes), Kaiming; blobs in 200 dimensions, {n} points; {inits} networks each.",
    quick=dict(n=500, inits=400, nodes=60),
    full=dict(n=1000, inits=800, nodes=200),
    seconds=(15, 100),
)
def ranked(run: Run) -> Outcome:
    """I24: E G_(k), laws of the first three, entropy, against theory.md (8)."""

    n, inits, nodes = run.take("n inits nodes")
    x = fg.data.blob(n, 200, seed=run.seed)
    found: list[Ranked] = []
    panels: list[library.Panel] = []
    for pool in (1, 4, 25):
        text = f"{KAIMING} > relu > maxpool({pool}) > {KAIMING}"
        name = f"pool of {pool}" if pool > 1 else "no pool"
        m = run.measure(text, x, inits=inits, width=max(300, nodes * pool), classes=CLASSES, probe="output", label=name)
        gamma = float(fg.predict(text).gamma[-1])
        law = run.piece(
            {"law": gamma, "points": n}, lambda g=gamma: predict_ranks(g, n), label=f"theory, γ = {gamma:.3g}"
        )
        fractions = np.asarray(m.guesses.fractions)
        found.append(compare(name, gamma, fractions, law))
        panels += _panels(found[-1], fractions, law)
    entries = judge_ranked(found)
    rows = [
        {"network": r.name, "gamma": r.gamma, "k": k, "mean": a.value, "error": a.error, "theory": t}
        for r in found for k, a, t in zip(SHOWN, r.means, r.theory, strict=True)
    ]  # fmt: skip
    ranks = lines(
        [row | {"name": f"γ = {row['gamma']:.3g}"} for row in rows], "k", "mean",
        title="The average k-th largest of ten classes: networks against theory", x_title="Rank k of the class",
        y_title="Average fraction of the k-th class", percent=True, dodge=False, height=360,
    )  # fmt: skip
    laws = figures.panels_chart(
        panels, title="The distributions of the first three classes and of the entropy, beside theory",
        subtitle=[f"{inits} networks each, ten classes, {n} random points; ln 10 = 2.3 nats is an even split."],
        columns=4, width=215, percent=False, x_title="Fraction, or entropy in nats (right)",
    )  # fmt: skip
    entropy = [
        {"network": r.name, "gamma": r.gamma, "entropy": r.entropy.value, "error": r.entropy.error}
        | {"theory": r.entropy_theory}
        for r in found
    ]
    tables = {"ranks": columns(rows), "entropy": columns(entropy)}
    return Outcome(entries, tables, {"ranks": ranks, "laws": laws}, holds={
        "ranks": Holds("Theory knows the ranks of the classes", entries=(0,)),
        "laws": Holds("Not only averages: distributions of the first classes and of the entropy follow theory"),
    })  # fmt: skip


def _panels(r: Ranked, fractions: Array, law: dict[str, Any]) -> list[Any]:

    def panel(label: str, values: Array, theory: Array, end: float, note: str) -> library.Panel:
        edges = np.linspace(0.0, end, 21)
        bars, curve = (
            np.histogram(np.clip(v, 0, end - 1e-9), edges)[0] / len(v) / (end / 20) for v in (values, theory)
        )
        return library.Panel(label, edges, bars, {"theory": curve}, note)

    ranked = ranks_of(fractions)
    found = [
        panel(
            f"γ = {r.gamma:.3g}: {('largest', 'second', 'third')[k - 1]}", ranked[:, k - 1],
            np.asarray(law[f"values{k}"]), (1.0, 0.5, 1 / 3)[k - 1], f"average {r.means[k - 1]}",
        )
        for k in RANKS
    ]  # fmt: skip
    own = -np.where(fractions > 0, fractions * np.log(np.maximum(fractions, 1e-300)), 0.0).sum(axis=1)
    return [*found, panel("entropy", own, np.asarray(law["entropies"]), 2.4, f"average {r.entropy}")]


NEAR = 0.5  # spreads of the cloud: points nearer to the boundary than this are called near
ROOM_LOGITS = 0.02  # of a share of the points
NETWORKS = {
    "LayerNorm after, 1 layer": ("relu > layernorm", 1),
    "ReLU, 1 layer": ("relu", 1),
    "ReLU, 5 layers": ("relu", 5),
    "ReLU, 20 layers": ("relu", 20),
}
EVEN = "LayerNorm after, 1 layer"


@dataclass(frozen=True)
class Clouds:
    """The margins f₁ − f₀ of many networks over the data, in numbers with errors over networks."""

    gamma: float  # closed form
    squares: Number  # (Δμ)²/(spread of the margin)², whose average is γ
    near: Number  # share of points within NEAR spreads of the boundary
    gap: Number  # |share of the favoured class − Φ(distance)|: 0 where margins are Gaussian
    skewness: Number  # root mean square over networks
    rigid: Number  # log of (spread of the nearer half)/(of the farther half) of the points

    @property
    def near_theory(self) -> float:
        """Margins in spreads are N(0, 1 + γ) over data and networks."""
        return 2 * float(special.ndtr(NEAR / math.sqrt(1 + self.gamma))) - 1


def numbers(margins: Array) -> dict[str, Array]:
    """What `Clouds` averages, one value a network, from margins f₁ − f₀ (networks, points)."""
    n = margins.shape[1]
    mean, spread = margins.mean(axis=1), margins.std(axis=1, ddof=1)
    distance = np.abs(mean) / spread
    toward = margins * np.sign(mean)[:, None]
    share = (toward > 0).mean(axis=1)
    away = (toward - toward.mean(axis=1, keepdims=True)) / spread[:, None]
    middle = np.median(away, axis=1)
    low, high = (np.abs(np.quantile(away, q, axis=1) - middle) for q in (0.1, 0.9))
    return {
        "squares": distance**2 - 1 / n,  # a mean of n points has 1/n of its own
        "near": (np.abs(margins) < NEAR * spread[:, None]).mean(axis=1),
        "gap": np.abs(share - special.ndtr(distance)),
        "skewness": (away**3).mean(axis=1),
        "rigid": np.log(low / high),
    }


def clouds(gamma: float, values: Mapping[str, Array]) -> Clouds:
    """Averages over networks with their errors."""

    def average(x: Array) -> Number:
        return Number(float(x.mean()), float(x.std(ddof=1) / math.sqrt(len(x))))

    squares = average(np.asarray(values["skewness"]) ** 2)
    size = math.sqrt(squares.value)
    skewness = Number(size, squares.error / (2 * size) if size else 0.0)
    rest = {key: average(np.asarray(values[key])) for key in ("squares", "near", "gap", "rigid")}
    return Clouds(gamma, skewness=skewness, **rest)


def judge_logits(found: Mapping[str, Clouds]) -> list[Entry]:
    """I27: centers apart as γ says; all points leave the boundary as one; margins Gaussian."""
    ordered = list(found.values())
    biased = [c for name, c in found.items() if name != EVEN]
    apart: list[Truth] = [
        below(found[EVEN].squares, 0.05),
        *(above(b.squares, a.squares) for a, b in pairwise(ordered)),
        *(same(c.squares, c.gamma, room=0.05 + 0.2 * c.gamma) for c in biased[:2]),
    ]
    leave: list[Truth] = [
        *(above(a.near, b.near) for a, b in pairwise(ordered)),
        *(same(c.near, c.near_theory, room=0.04) for c in ordered),
    ]
    gaussian: list[Truth] = [below(c.gap, ROOM_LOGITS) for c in ordered]
    uniform: list[Truth] = [same(c.rigid, 0.0, room=0.1) for c in ordered]

    def each(key: str) -> str:
        return ", ".join(f"{name} {getattr(c, key)}" for name, c in found.items())

    return [
        entry(
            "I27",
            "centers stand apart: the average of (Δμ)²/(spread of the margin)² grows from LayerNorm after ReLU (below "
            "0.05) to ReLU of 1, 5 and 20 layers, and is γ within 20 % + 0.05 for 1 and 5",
            f"{each('squares')}; closed form " + ", ".join(f"{c.gamma:.3g}" for c in ordered),
            apart,
            headline=f"(Δμ/spread)²: {ordered[0].squares} when even, {ordered[-1].squares} at most bias",
        ),
        entry(
            "I27",
            f"points move away from the boundary: the share within {NEAR} spreads of it falls at each step, and is "
            "that of N(0, 1 + γ) within 0.04; without a limit they move as one (distances from the median of the "
            "nearest and of the farthest tenth agree within 10 % on average)",
            f"{each('near')}; N(0, 1 + γ): {', '.join(f'{c.near_theory:.4f}' for c in ordered)}; log ratio of the two "
            f"distances {each('rigid')}",
            leave,
            within=uniform,
            headline=f"points near the boundary: {ordered[0].near} when even, {ordered[-1].near} at most bias",
            limit="the cloud is skewed: points do not keep their distances where bias is strong",
        ),
        entry(
            "I27",
            f"the margin's law is N(Δμ, 2σ_y²) in one network: the favoured class's share differs from Φ(Δμ/spread) by "
            f"less than {ROOM_LOGITS} on average",
            f"{each('gap')}; skewness of the margin, root mean square: {each('skewness')}",
            gaussian,
            headline="largest average departure from a Gaussian share: "
            f"{max((c.gap for c in ordered), key=lambda g: g.value)}",
            otherwise="one network's margins are not Gaussian enough",
        ),
    ]


def _margins(run: Run, name: str, x: Any, width: int, inits: int) -> tuple[Clouds, Array]:
    """`Clouds` of an ensemble, and the logits of its typical network among the first (points, 2)."""

    block, depth = NETWORKS[name]
    text = deep(block, depth)

    def compute() -> dict[str, Any]:
        found: list[dict[str, Array]] = []
        typical = None
        for start in range(0, inits, 8):  # a measurement keeps the logits of its first eight networks
            m = fg.measure(text, x, inits=8, seed=run.seed + 1000 + start, width=width, classes=2, probe="output",
                           points=x.n)  # fmt: skip
            logits = np.stack([m.logits_of(k).values for k in range(8)])
            found.append(numbers(logits[:, :, 1] - logits[:, :, 0]))
            typical = np.asarray(m.logits.values) if typical is None else typical
        assert typical is not None
        return {key: np.concatenate([f[key] for f in found]) for key in found[0]} | {"typical": typical}

    key = {"margins": text, "data": x.hash, "width": width, "inits": inits}
    piece = run.piece(key, compute, label=f"logits of {name}")
    gamma = float(fg.predict(text).gamma[-1])
    return clouds(gamma, piece), np.asarray(piece["typical"])


@item(
    "igb/logits",
    "The logits of one network: bias is a cloud that misses the boundary",
    claims=("I27",),
    where="IGB §3, Figs 3, 4; NORM App. C.1",
    about="Two classes, {n} random points in {d} dimensions; LayerNorm after ReLU (1 layer) and plain ReLU of 1, 5 and "
    "20 layers of {width} (our sizes), Kaiming; {inits} networks each (20 layers: {least}), all of their logits.",
    quick=dict(n=1000, d=200, width=200, inits=160, least=160),
    full=dict(n=2000, d=500, width=400, inits=400, least=200),
    seconds=(15, 110),
)
def logits(run: Run) -> Outcome:
    """I27: the margin's law in single networks, by γ."""

    n, d, width, inits, least = run.take("n d width inits least")
    x = fg.data.blob(n, d, seed=run.seed)
    found: dict[str, Clouds] = {}
    drawn: dict[str, Any] = {}
    for name, (_, depth) in NETWORKS.items():
        found[name], one = _margins(run, name, x, width, least if depth > 5 else inits)
        if name != "ReLU, 5 layers":
            drawn[name] = fg.Logits(one)
    entries = judge_logits(found)
    cloud = figures.logits_chart(drawn)
    rows: list[dict[str, Any]] = [
        {"network": name, "gamma": c.gamma, "near_theory": c.near_theory}
        | {key: getattr(c, key) for key in ("squares", "near", "gap", "skewness", "rigid")}
        for name, c in found.items()
    ]
    fine = np.geomspace(1.0, 30.0, 60).tolist()
    known = [2 * float(special.ndtr(NEAR / math.sqrt(v))) - 1 for v in fine]
    near = lines(
        [row | {"name": "networks", "1 + γ, in closed form": 1 + row["gamma"]} for row in rows],
        "1 + γ, in closed form", "near", also={"": [predicted("N(0, 1 + γ)", fine, known)]},
        title="Points near the boundary, by bias", y_title="Points within half a spread of the boundary",
        x_scale="log", percent=True, y_domain=(0.0, 0.45), dodge=False,
    )  # fmt: skip
    return Outcome(entries, {"clouds": columns(rows)}, {"clouds": cloud, "near": near}, holds={
        "near": Holds("With bias all points leave the boundary", entries=(1,)),
    })  # fmt: skip


NOISE = "independent pixels"
PHI = {"ReLU": "relu", "GELU": "gelu", "tanh": "tanh"}
SHALLOW = 1
ROOM_STRUCTURE = 0.04  # between kernel and networks, of the standard deviation of G₀
Key = tuple[str, str, int]  # data, activation, depth
Found = Mapping[Key, Number]


def exact_std(covariance: NDArray[np.float64]) -> float:
    """Standard deviation of G₀ over networks of infinite width, two classes: theory.md (41), with no draws.

    Var G₀ = Σ_ab arcsin(c_ab)/(2πn²), c the correlation of the logits at points a and b; a = b gives 1/4n.

    >>> print(exact_std(np.ones((5, 5))), exact_std(np.eye(25)))  # all points alike; all independent
    0.5 0.1
    """
    scale = np.sqrt(covariance.diagonal())
    c = np.clip(covariance / np.outer(scale, scale), -1.0, 1.0)
    return float(np.sqrt(np.arcsin(c).mean() / (2 * np.pi)))


def judge_structure(found: Found, kernel: Mapping[Key, float]) -> list[Entry]:
    """I23: std of G₀ on images against noise of the same shape, shallow and deep, by the kernel and by networks."""
    # The kernel has no error, so that it decides; networks of finite width must not contradict it.
    more = {key: kernel[key] > kernel[NOISE, key[1], key[2]] for key in found if key[0] != NOISE}
    seen: dict[Key, Truth] = {key: above(found[key], found[NOISE, key[1], key[2]]) for key in more}
    less: dict[Key, Truth] = {key: above(found[NOISE, key[1], key[2]], found[key]) for key in more}
    against = [key for key in more if (less[key] if more[key] else seen[key]) is True]
    pairs = [f"{phi}, depth {depth}, {data}: {found[data, phi, depth]} against {found[NOISE, phi, depth]} (kernel "
             f"{kernel[data, phi, depth]:.4f}, {kernel[NOISE, phi, depth]:.4f})"
             for data, phi, depth in more]  # fmt: skip
    where = f"less biased on images: {named([key for key, larger in more.items() if not larger])}; surely so among " + (
        f"networks: {named([key for key, check in less.items() if check is True])}"
    )
    worst = max(found, key=lambda key: abs(found[key].value - kernel[key]))
    return [
        entry(
            "I23",
            "std of G₀ is larger on images than on independent pixels, for ReLU, GELU and tanh after one hidden layer "
            "(kernel reading of these points, exact at infinite width, and no measured pair surely contradicts it); "
            "without a limit at every depth",
            "; ".join(pairs),
            [*(larger for key, larger in more.items() if key[2] == SHALLOW), not against],
            within=[larger for key, larger in more.items() if key[2] != SHALLOW],
            headline=f"more biased than on independent pixels in {sum(more.values())} of {len(more)} settings",
            limit=f"not at every depth; {where}",
            otherwise=f"networks against the kernel: {named(against)}; {where}",
        ),
        entry(
            "I23",
            f"the kernel reading of these very points has all of them: within {ROOM_STRUCTURE} of networks, on images "
            "and noise",
            f"largest departure {found[worst]} against {kernel[worst]:.4f} ({named([worst])})",
            [same(value, kernel[key], room=ROOM_STRUCTURE) for key, value in found.items()],
            headline=f"largest departure: {found[worst]} against {kernel[worst]:.3f}",
            otherwise="networks of this width depart from it by more",
        ),
    ]


def named(keys: Sequence[Key]) -> str:
    """Settings in words."""
    return ", ".join(f"{phi} on {data}, depth {depth}" for data, phi, depth in keys) or "nowhere"


def _kernel(run: Run, text: str, data: Any) -> float:
    def compute() -> dict[str, Any]:

        p = fg.predict(text, data=data, classes=2, draws=100)
        assert p.covariance is not None
        return {"std": exact_std(np.asarray(p.covariance))}

    return float(run.piece({"kernel": text, "data": data.hash}, compute, label=f"kernel of {text}")["std"])


@item(
    "igb/structure",
    "Does structure in the data amplify bias?",
    claims=("I23",),
    where="IGB §3, App. I.1",
    needs=("mnist", "cifar10"),
    about="MNIST and CIFAR-10 images (standardized, {n} each) and noise of CIFAR-10's shape; ReLU, GELU and tanh, "
    "hidden layers: width and networks each = {sizes}, Kaiming, two classes (our sizes); the kernel reading of the "
    "same points.",
    quick=dict(n=150, sizes={1: (200, 250), 20: (150, 60)}),
    full=dict(n=200, sizes={1: (300, 1500), 5: (300, 300), 20: (300, 300)}),
    seconds=(15, 110),
)
def structure(run: Run) -> Outcome:
    """I23: std of G₀ by depth, on images and on noise, with the kernel reading."""

    n, sizes = run.take("n sizes")
    images = {"MNIST": run.data("mnist:test", points=n), "CIFAR-10": run.data("cifar10:test", points=n)}
    rng = np.random.default_rng([run.seed, 23])
    noise = fg.data.as_data(rng.standard_normal((n, 3072), dtype=np.float32))
    data: dict[str, Any] = {NOISE: noise} | {name: fg.data.as_data(x.flat()) for name, x in images.items()}
    found: dict[Key, Number] = {}
    kernel: dict[Key, float] = {}
    depths = sorted({1, 2, 5, 10, 20} | set(sizes))
    for name, x in data.items():
        for label, phi in PHI.items():
            for depth, (width, inits) in sizes.items():
                found[name, label, depth] = std(
                    run.measure(deep(phi, depth), x, inits=inits, width=width, classes=2, probe="output",
                                label=f"{label}, {depth} layers, {name}")
                )  # fmt: skip
            kernel |= {(name, label, depth): _kernel(run, deep(phi, depth), x) for depth in depths}
    entries = judge_structure(found, kernel)
    rows = [
        {"data": name, "activation": phi, "depth": depth, "std": v, "kernel": kernel[name, phi, depth]}
        for (name, phi, depth), v in found.items()
    ]
    known = {label: [predicted(name, depths, [kernel[name, label, k] for k in depths]) for name in data]
             for label in PHI}  # fmt: skip
    chart = lines(
        rows, "depth", "std", by="data", panel="activation", also=known,
        title="Guesses on images against independent pixels (lines: kernel reading of the same points)",
        x_scale="log", y_domain=(0.0, 0.5), x_domain=(0.8, 26.0), width=290, height=300,
    )  # fmt: skip
    return Outcome(entries, {"structure": columns(rows)}, {"structure": chart}, [
        "Images are standardized as in the papers (CIFAR-10 per channel): their pixels keep means of their own."
    ], {"structure": Holds("Images bias networks more than independent pixels do", (0,), ("holds",))})  # fmt: skip
