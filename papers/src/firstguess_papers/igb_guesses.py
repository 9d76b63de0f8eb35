"""IGB: ranks and entropy of guesses (App. H), the logits of one network (§3), structure in the data (§3, App. I.1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import special

import firstguess as fg
from firstguess import figures
from firstguess_papers.charts import KAIMING, deep, lines, predicted, std
from firstguess_papers.items import Entry, Holds
from firstguess_papers.judging import Array, Check, Number, above, average, check, claimed, proportion, root
from firstguess_papers.measured import Cell, Found, measured
from firstguess_papers.running import Run

CLASSES = 10
ROOM_RANKED = 0.02  # of a fraction, E G_(k)
NATS = 0.1  # of the entropy, whose largest value is ln 10 = 2.30
SHARE = 0.1  # of the networks below the predicted median: half of them, within this
SHOWN = (1, 2, 3, 4, 5)
RANKS = (1, 2, 3)  # whose laws are drawn and checked


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


def judge_ranked(found: Sequence[Ranked]) -> list[Entry]:
    """I24: averages of ranks, medians of the first three, entropy."""
    last, names = found[-1], [f"γ = {r.gamma:.3g}" for r in found]
    means, below = (
        [(f"{name}, k = {k}", *pair) for name, r in zip(names, found, strict=True)
         for k, pair in enumerate(zip(*of(r), strict=True), start=1)]
        for of in (lambda r: (r.means, r.theory), lambda r: (r.below, r.half))
    )  # fmt: skip
    return [
        claimed(
            "I24", "ten classes",
            [check("average k-th largest fraction, k = 1 to 5", [a for _, a, _ in means], near=[b for *_, b in means],
                   room=ROOM_RANKED, than="theory", at=[name for name, *_ in means])],
            within=[check("share of networks below the predicted median, k = 1, 2, 3", [a for _, a, _ in below],
                          near=[b for *_, b in below], room=SHARE, than="theory", at=[name for name, *_ in below])],
            headline=f"first class, {names[-1]}: {last.means[0]}, theory {last.theory[0]:.3f}",
            limit="averages are right, the law is not in all of them",
        ),
        claimed(
            "I24", f"average entropy of the guesses in nats (ln 10 = {math.log(10):.2f} if even)",
            [check("entropy", [r.entropy for r in found], near=[r.entropy_theory for r in found], room=NATS,
                   than="theory", at=names)],
            headline=f"{last.entropy} nats at {names[-1]}, theory {last.entropy_theory:.3f}",
        ),
    ]  # fmt: skip


def ranks_of(fractions: Array) -> Array:
    """Fractions of every network from the largest on."""
    return -np.sort(-fractions, axis=1)


def entropies(fractions: Array) -> Array:
    """Of every network's guesses, in nats."""
    return -np.where(fractions > 0, fractions * np.log(np.maximum(fractions, 1e-300)), 0.0).sum(axis=1)


def compare(name: str, gamma: float, fractions: Array, law: dict[str, Any]) -> Ranked:
    """What was measured beside the predicted law, as `predict_ranks` gives it."""
    ranked = ranks_of(fractions)
    below = [proportion(ranked[:, k - 1] <= float(law["medians"][k - 1]) + 1e-9) for k in RANKS]
    means = [average(ranked[:, k - 1]) for k in SHOWN]
    theory, half = ([*map(float, law[k])] for k in ("means", "half"))
    return Ranked(name, gamma, means, theory, below, half, average(entropies(fractions)), float(law["entropy"]))


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


def _pooled(pool: int) -> str:
    return f"{KAIMING} > relu > maxpool({pool}) > {KAIMING}"


def _ranked(c: Found) -> dict[str, Any]:
    found: list[Ranked] = []
    panels: list[fg.figures.Panel] = []
    for name, m in c.cells.items():
        gamma = float(fg.predict(_pooled(POOLS[name])).gamma[-1])
        law = c.run.piece({"law": gamma, "points": c.n}, lambda g=gamma: predict_ranks(g, c.n),
                          label=f"theory, γ = {gamma:.3g}")  # fmt: skip
        fractions = np.asarray(m.guesses.fractions)
        found.append(compare(name, gamma, fractions, law))
        panels += _panels(found[-1], fractions, law)
    return {"found": found, "panels": panels, "rows": [
        {"network": r.name, "gamma": r.gamma, "k": k, "mean": a.value, "error": a.error, "theory": t}
        for r in found for k, a, t in zip(SHOWN, r.means, r.theory, strict=True)
    ]}  # fmt: skip


POOLS = {"no pool": 1, "pool of 4": 4, "pool of 25": 25}
ranked = measured(
    "igb/ranked", "The k-th largest class, and the entropy of the guesses", "IGB App. H; NORM App. A, B",
    claims=("I24",),
    about="Ten classes, one hidden ReLU layer with max-pools of 1, 4 and 25 over {nodes} pooled nodes or more (γ = "
    "0.47, 2.4, 15; our sizes), Kaiming; blobs in 200 dimensions, {n} points; {inits} networks each.",
    quick=dict(n=500, inits=400, nodes=60),
    full=dict(n=1000, inits=800, nodes=200),
    seconds=(15, 100),
    cells=lambda c: {
        name: Cell(_pooled(pool), c.blob(c.n, 200), {"width": max(300, c.nodes * pool), "classes": CLASSES})
        for name, pool in POOLS.items()
    },
    quantities=_ranked,
    judge=lambda c: judge_ranked(c.found),
    tables=lambda c: {"ranks": c.rows, "entropy": [
        {"network": r.name, "gamma": r.gamma, "entropy": r.entropy.value, "error": r.entropy.error}
        | {"theory": r.entropy_theory} for r in c.found
    ]},
    charts=lambda c: {
        "ranks": lines(
            [row | {"name": f"γ = {row['gamma']:.3g}"} for row in c.rows], "k", "mean",
            title="The average k-th largest of ten classes: networks against theory", x_title="Rank k of the class",
            y_title="Average fraction of the k-th class", percent=True, dodge=False, height=360,
        ),
        "laws": figures.panels_chart(
            c.panels, title="The distributions of the first three classes and of the entropy, beside theory",
            subtitle=["Bars: networks. Lines: theory. An even split has ln 10 = 2.3 nats."],
            columns=4, width=215, percent=False, x_title="Fraction, or entropy in nats (right)",
        ),
    },
    holds={
        "ranks": Holds("Theory knows the ranks of the classes", entries=(0,)),
        "laws": Holds("Not only averages: distributions of the first classes and of the entropy follow theory"),
    },
)  # fmt: skip


def _panels(r: Ranked, fractions: Array, law: dict[str, Any]) -> list[Any]:

    def panel(label: str, values: Array, theory: Array, end: float, note: str) -> fg.figures.Panel:
        edges = np.linspace(0.0, end, 21)
        bars, curve = (
            np.histogram(np.clip(v, 0, end - 1e-9), edges)[0] / len(v) / (end / 20) for v in (values, theory)
        )
        return fg.figures.Panel(label, edges, bars, {"theory": curve}, note)

    ranked = ranks_of(fractions)
    found = [
        panel(
            f"γ = {r.gamma:.3g}: {('largest', 'second', 'third')[k - 1]}", ranked[:, k - 1],
            np.asarray(law[f"values{k}"]), (1.0, 0.5, 1 / 3)[k - 1], f"average {r.means[k - 1]}",
        )
        for k in RANKS
    ]  # fmt: skip
    return [*found, panel("entropy", entropies(fractions), np.asarray(law["entropies"]), 2.4, f"average {r.entropy}")]


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
    skewness = root(average(np.asarray(values["skewness"]) ** 2))
    rest = {key: average(np.asarray(values[key])) for key in ("squares", "near", "gap", "rigid")}
    return Clouds(gamma, skewness=skewness, **rest)


def judge_logits(found: Mapping[str, Clouds]) -> list[Entry]:
    """I27: centers apart as γ says; all points leave the boundary as one; margins Gaussian."""
    ordered, biased = list(found.values()), [name for name in found if name != EVEN]

    def steps(of: Callable[[Clouds], Number], *, rises: bool) -> list[Check]:
        rest = {name: (of(found[name]), of(found[before])) for before, name in pairwise(found)}
        return [check(name, one, above=other if rises else None, below=None if rises else other, than="the one before")
                for name, (one, other) in rest.items()]  # fmt: skip

    return [
        claimed(
            "I27", "centers stand apart: the average of (Δμ)²/(spread of the margin)²",
            [check(EVEN, found[EVEN].squares, below=0.05), *steps(lambda c: c.squares, rises=True),
             *(check(name, found[name].squares, near=found[name].gamma, room=0.05 + 0.2 * found[name].gamma,
                     than="within 20 % + 0.05 of γ") for name in biased[:2])],
            headline=f"(Δμ/spread)²: {ordered[0].squares} when even, {ordered[-1].squares} at most bias",
        ),
        claimed(
            "I27", f"points move away from the boundary: the share within {NEAR} spreads of it",
            [*steps(lambda c: c.near, rises=False),
             *(check(name, c.near, near=c.near_theory, room=0.04, than="that of N(0, 1 + γ)")
               for name, c in found.items())],
            within=[check(f"{name}, log ratio of the distances of nearest and farthest tenth from the median", c.rigid,
                          near=0.0, room=0.1) for name, c in found.items()],
            headline=f"points near the boundary: {ordered[0].near} when even, {ordered[-1].near} at most bias",
            limit="the cloud is skewed: points do not keep their distances where bias is strong",
        ),
        claimed(
            "I27", "the margin is N(Δμ, 2σ_y²) in one network: the favoured class's share away from Φ(Δμ/spread), on "
            "average",
            [check(name, c.gap, below=ROOM_LOGITS) for name, c in found.items()],
            headline="largest average departure from a Gaussian share: "
            f"{max((c.gap for c in ordered), key=lambda g: g.value)}",
            otherwise="one network's margins are not Gaussian enough",
            also="skewness of the margin (rms): " + ", ".join(f"{name} {c.skewness}" for name, c in found.items()),
        ),
    ]  # fmt: skip


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


def _logits(c: Found) -> dict[str, Any]:
    x = c.blob(c.n, c.d)
    both = {name: _margins(c.run, name, x, c.width, c.least if depth > 5 else c.inits)
            for name, (_, depth) in NETWORKS.items()}  # fmt: skip
    found = {name: one for name, (one, _) in both.items()}
    drawn = {name: fg.Logits(one) for name, (_, one) in both.items() if name != "ReLU, 5 layers"}
    return {"found": found, "drawn": drawn, "rows": [
        {"network": name, "gamma": one.gamma, "near_theory": one.near_theory}
        | {key: getattr(one, key) for key in ("squares", "near", "gap", "skewness", "rigid")}
        for name, one in found.items()
    ]}  # fmt: skip


def _chart_near(c: Found) -> Any:
    fine = np.geomspace(1.0, 30.0, 60).tolist()
    known = [2 * float(special.ndtr(NEAR / math.sqrt(v))) - 1 for v in fine]
    return lines(
        [row | {"name": "networks", "1 + γ, in closed form": 1 + row["gamma"]} for row in c.rows],
        "1 + γ, in closed form", "near", also={"": [predicted("N(0, 1 + γ)", fine, known)]},
        title="Points near the boundary, by bias", y_title="Points within half a spread of the boundary",
        x_scale="log", percent=True, y_domain=(0.0, 0.45), dodge=False,
    )  # fmt: skip


logits = measured(
    "igb/logits", "The logits of one network: bias is a cloud that misses the boundary",
    "IGB §3, Figs 3, 4; NORM App. C.1", claims=("I27",),
    about="Two classes, {n} random points in {d} dimensions; LayerNorm after ReLU (1 layer) and plain ReLU of 1, 5 and "
    "20 layers of {width} (our sizes), Kaiming; {inits} networks each (20 layers: {least}), all of their logits.",
    quick=dict(n=1000, d=200, width=200, inits=160, least=160),
    full=dict(n=2000, d=500, width=400, inits=400, least=200),
    seconds=(15, 110),
    quantities=_logits,
    judge=lambda c: judge_logits(c.found),
    tables=lambda c: {"clouds": c.rows},
    charts=lambda c: {"clouds": figures.logits_chart(c.drawn), "near": _chart_near(c)},
    holds={"near": Holds("With bias all points leave the boundary", entries=(1,))},
)  # fmt: skip


NOISE = "independent pixels"
PHI = {"ReLU": "relu", "GELU": "gelu", "tanh": "tanh"}
SHALLOW = 1
ROOM_STRUCTURE = 0.04  # between kernel and networks, of the standard deviation of G₀
Key = tuple[str, str, int]  # data, activation, depth


def exact_std(covariance: Array) -> float:
    """Standard deviation of G₀ over networks of infinite width, two classes: theory.md (41), with no draws.

    Var G₀ = Σ_ab arcsin(c_ab)/(2πn²), c the correlation of the logits at points a and b; a = b gives 1/4n.

    >>> print(exact_std(np.ones((5, 5))), exact_std(np.eye(25)))  # all points alike; all independent
    0.5 0.1
    """
    scale = np.sqrt(covariance.diagonal())
    c = np.clip(covariance / np.outer(scale, scale), -1.0, 1.0)
    return float(np.sqrt(np.arcsin(c).mean() / (2 * np.pi)))


def judge_structure(found: Mapping[Key, Number], kernel: Mapping[Key, float]) -> list[Entry]:
    """I23: std of G₀ on images against noise of the same shape, shallow and deep, by the kernel and by networks."""
    # The kernel has no error, so that it decides; networks of finite width must not contradict it.
    noise = {key: (NOISE, *key[1:]) for key in found if key[0] != NOISE}
    names = {key: f"{phi} on {data}, depth {depth}" for key in found for data, phi, depth in [key]}
    more = {key: kernel[key] > kernel[other] for key, other in noise.items()}
    apart = {key: above(found[key], found[other]) for key, other in noise.items()}
    against = [names[key] for key in noise if apart[key] is (not more[key])]

    def larger(shallow: bool) -> Check:
        own = [key for key in noise if (key[2] == SHALLOW) == shallow]
        name = f"kernel reading {'after one hidden layer' if shallow else 'deeper'}"
        return check(name, [kernel[key] for key in own], above=[kernel[noise[key]] for key in own],
                     than="that of independent pixels", at=[names[key] for key in own])  # fmt: skip

    worst = max(found, key=lambda key: abs(found[key].value - kernel[key]))
    return [
        claimed(
            "I23", "std of G₀ on images (the kernel reading of these points is exact at infinite width)",
            [larger(True), Check("networks", "never surely against it", not against, "; ".join(
                f"{names[key]}: {found[key]} against {found[other]}" for key, other in noise.items()
            ), ", ".join(against))],
            within=[larger(False)],
            headline=f"more biased than on independent pixels in {sum(more.values())} of {len(more)} settings",
            limit="less biased on images",
        ),
        claimed(
            "I23", "std of G₀ of networks, on images and noise",
            [check("networks", [*found.values()], near=[kernel[key] for key in found], room=ROOM_STRUCTURE,
                   than="the kernel reading of these very points", at=[names[key] for key in found])],
            headline=f"largest departure: {found[worst]} against {kernel[worst]:.3f}",
            otherwise="networks of this width depart from it by more",
        ),
    ]  # fmt: skip


def _kernel(run: Run, text: str, data: Any) -> float:
    def compute() -> dict[str, Any]:

        p = fg.predict(text, data=data, classes=2, draws=100)
        assert p.covariance is not None
        return {"std": exact_std(np.asarray(p.covariance))}

    return float(run.piece({"kernel": text, "data": data.hash}, compute, label=f"kernel of {text}")["std"])


def _structure_data(c: Found) -> dict[str, Any]:
    noise = np.random.default_rng([c.run.seed, 23]).standard_normal((c.n, 3072), dtype=np.float32)
    images = {"MNIST": c.run.data("mnist:test", points=c.n), "CIFAR-10": c.run.data("cifar10:test", points=c.n)}
    return {NOISE: fg.data.as_data(noise)} | {name: fg.data.as_data(x.flat()) for name, x in images.items()}


def _structure(c: Found) -> dict[str, Any]:
    depths = sorted({1, 2, 5, 10, 20} | set(c.sizes))
    kernel = {
        (name, label, depth): _kernel(c.run, deep(phi, depth), x)
        for name, x in _structure_data(c).items() for label, phi in PHI.items() for depth in depths
    }  # fmt: skip
    found = {key: std(m) for key, m in c.cells.items()}
    return {"found": found, "kernel": kernel, "depths": depths, "rows": [
        {"data": name, "activation": phi, "depth": depth, "std": v, "kernel": kernel[name, phi, depth]}
        for (name, phi, depth), v in found.items()
    ]}  # fmt: skip


structure = measured(
    "igb/structure", "Does structure in the data amplify bias?", "IGB §3, App. I.1", claims=("I23",),
    needs=("mnist", "cifar10"), seconds=(15, 110),
    about="MNIST and CIFAR-10 images (standardized, {n} each) and noise of CIFAR-10's shape; ReLU, GELU and tanh, "
    "hidden layers: width and networks each = {sizes}, Kaiming, two classes (our sizes); the kernel reading of the "
    "same points.",
    quick=dict(n=150, sizes={1: (200, 250), 20: (150, 60)}),
    full=dict(n=200, sizes={1: (300, 1500), 5: (300, 300), 20: (300, 300)}),
    cells=lambda c: {
        (name, label, depth): Cell(deep(phi, depth), x, {"inits": inits, "width": width, "classes": 2})
        for name, x in _structure_data(c).items() for label, phi in PHI.items()
        for depth, (width, inits) in c.sizes.items()
    },
    quantities=_structure,
    judge=lambda c: judge_structure(c.found, c.kernel),
    tables=lambda c: {"structure": c.rows},
    charts=lambda c: {"structure": lines(
        c.rows, "depth", "std", by="data", panel="activation",
        also={label: [predicted(name, c.depths, [c.kernel[name, label, k] for k in c.depths])
                      for name in dict.fromkeys(row["data"] for row in c.rows)] for label in PHI},
        title="Guesses on images against independent pixels (lines: kernel reading of the same points)",
        x_scale="log", y_domain=(0.0, 0.5), x_domain=(0.8, 26.0), width=290, height=300,
    )},
    holds={"structure": Holds("Images bias networks more than independent pixels do", (0,), ("holds",))},
    notes=["Images are standardized as in the papers (CIFAR-10 per channel): their pixels keep means of their own."],
)  # fmt: skip
