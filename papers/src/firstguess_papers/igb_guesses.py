"""IGB: ranks and entropy of guesses (App. H), the logits of one network (§3), structure in the data (§3, App. I.1)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import special

import firstguess as fg
from firstguess import figures
from firstguess.data import Data
from firstguess_papers.charts import KAIMING, deep, grid, lines, predicted, std, theory_gamma
from firstguess_papers.items import Holds, Item
from firstguess_papers.judging import Array, Check, above, average, check, claimed, close, proportion, root
from firstguess_papers.measured import Cell, Found

SHOWN = (1, 2, 3, 4, 5)
RANKS = (1, 2, 3)  # whose laws are drawn and checked


def ranks_of(fractions: Array) -> Array:
    """Fractions of every network from the largest on."""
    return -np.sort(-fractions, axis=1)


def entropies(fractions: Array) -> Array:
    """Of every network's guesses, in nats."""
    return -np.where(fractions > 0, fractions * np.log(np.maximum(fractions, 1e-300)), 0.0).sum(axis=1)


def compare(gamma: float, fractions: Array, law: Mapping[str, Any]) -> dict[str, Any]:
    """Average ranks and entropy, and shares of networks below predicted medians, beside `predict_ranks`.

    `half` is what the predicted law has below its median: ½, but for its steps.
    """
    ranked = ranks_of(fractions)
    return {
        "gamma": gamma, "means": [average(ranked[:, k - 1]) for k in SHOWN], "theory": [*map(float, law["means"])],
        "below": [proportion(ranked[:, k - 1] <= float(law["medians"][k - 1]) + 1e-9) for k in RANKS],
        "half": [*map(float, law["half"])], "entropy": average(entropies(fractions)),
        "entropy_theory": float(law["entropy"]),
    }  # fmt: skip


def predict_ranks(gamma: float, points: int) -> dict[str, Any]:
    """Predicted averages of the ranks SHOWN, medians and values of the first three, and the entropy."""
    law = fg.Guesses(gamma, 10, points)
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


def _over_ranks(c: Found, name: str, found: str, known: str, room: float) -> Check:
    """Numbers of every network and rank, near those of theory."""
    pairs = {f"γ = {r['gamma']:.3g}, k = {k}": pair for r in c.found
             for k, pair in enumerate(zip(r[found], r[known], strict=True), start=1)}  # fmt: skip
    seen, theory = zip(*pairs.values(), strict=True)
    return check(name, seen, near=theory, room=room, than="theory", at=pairs)


def _pooled(pool: int) -> str:
    return f"{KAIMING} > relu > maxpool({pool}) > {KAIMING}"


POOLS = {"no pool": 1, "pool of 4": 4, "pool of 25": 25}


def _ranked(c: Found) -> dict[str, Any]:
    found: list[dict[str, Any]] = []
    panels: list[figures.Panel] = []

    def panel(label: str, values: Array, theory: Array, end: float, note: str) -> None:
        edges = np.linspace(0.0, end, 21)
        bars, curve = (
            np.histogram(np.clip(v, 0, end - 1e-9), edges)[0] / len(v) / (end / 20) for v in (values, theory)
        )
        panels.append(figures.Panel(label, edges, bars, {"theory": curve}, note))

    for name, m in c.cells.items():
        gamma = theory_gamma(_pooled(POOLS[name]))
        law = c.run.keep(predict_ranks, label=f"theory, γ = {gamma:.3g}", gamma=gamma, points=c.n)
        fractions = np.asarray(m.guesses.fractions)
        found.append({"network": name, **compare(gamma, fractions, law)})
        for k, word in zip(RANKS, ("largest", "second", "third"), strict=True):
            panel(f"γ = {gamma:.3g}: {word}", ranks_of(fractions)[:, k - 1], np.asarray(law[f"values{k}"]),
                  1 / k, f"average {found[-1]['means'][k - 1]}")  # fmt: skip
        panel("entropy", entropies(fractions), np.asarray(law["entropies"]), 2.4, f"average {found[-1]['entropy']}")
    return {"found": found, "panels": panels}


ranked = Item(
    "igb/ranked", "The k-th largest class, and the entropy of the guesses", "IGB App. H; NORM App. A, B",
    claims=("I24",),
    about="Ten classes, one hidden ReLU layer with max-pools of 1, 4 and 25 over {nodes} pooled nodes or more (γ = "
    "0.47, 2.4, 15; our sizes), Kaiming; blobs in 200 dimensions, {n} points; {inits} networks each.",
    quick=dict(n=500, inits=400, nodes=60),
    full=dict(n=1000, inits=800, nodes=200),
    seconds=(15, 100), measure={"classes": 10},
    cells=lambda c: {
        name: Cell(_pooled(pool), c.blob(c.n, 200), {"width": max(300, c.nodes * pool)}) for name, pool in POOLS.items()
    },
    quantities=_ranked,
    judge=lambda c: [
        claimed(
            "I24", "ten classes",
            [_over_ranks(c, "average k-th largest fraction, k = 1 to 5", "means", "theory", 0.02)],
            within=[_over_ranks(c, "share of networks below the predicted median, k = 1, 2, 3", "below", "half", 0.1)],
            headline=f"first class, γ = {c.found[-1]['gamma']:.3g}: {c.found[-1]['means'][0]}, theory "
            f"{c.found[-1]['theory'][0]:.3f}",
            limit="averages are right, the law is not in all of them",
        ),
        claimed(
            "I24", f"average entropy of the guesses in nats (ln 10 = {math.log(10):.2f} if even)",
            [check("entropy", [r["entropy"] for r in c.found], near=[r["entropy_theory"] for r in c.found], room=0.1,
                   than="theory", at=[f"γ = {r['gamma']:.3g}" for r in c.found])],
            headline="{entropy} nats at γ = {gamma:.3g}, theory {entropy_theory:.3f}".format(**c.found[-1]),
        ),
    ],
    tables=lambda c: {
        "ranks": [
            {"network": r["network"], "gamma": r["gamma"], "k": k, "mean": a.value, "error": a.error, "theory": t}
            for r in c.found for k, a, t in zip(SHOWN, r["means"], r["theory"], strict=True)
        ],
        "entropy": [
            {"network": r["network"], "gamma": r["gamma"], "entropy": r["entropy"].value, "error": r["entropy"].error,
             "theory": r["entropy_theory"]} for r in c.found
        ],
    },
    charts=lambda c: {
        "ranks": lines(
            [row | {"name": f"γ = {row['gamma']:.3g}"} for row in c.tables["ranks"]], "k", "mean",
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
        "laws": "Not only averages: distributions of the first classes and of the entropy follow theory",
    },
)  # fmt: skip


NEAR = 0.5  # spreads of the cloud: points nearer to the boundary than this are called near
FINE = np.geomspace(1.0, 30.0, 60).tolist()
EVEN = "LayerNorm after, 1 layer"
NETWORKS = {EVEN: ("relu > layernorm", 1)} | {f"ReLU, {k} layer{'s' * (k > 1)}": ("relu", k) for k in (1, 5, 20)}


def _near(variance: float) -> float:
    """Share of points within NEAR spreads of the boundary; margins in spreads are N(0, 1 + γ) over data, networks."""
    return 2 * float(special.ndtr(NEAR / math.sqrt(variance))) - 1


def numbers(margins: Array) -> dict[str, Array]:
    """One value a network, from margins f₁ − f₀ (networks, points).

    `squares`: (Δμ)²/(spread of the margin)², whose average is γ; `near`: the share of points near the boundary; `gap`:
    |share of the favoured class − Φ(distance)|, 0 where margins are Gaussian; `skewness`; `rigid`: log of (spread of
    the nearer half)/(of the farther half) of the points.
    """
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


def cloud(gamma: float, values: Mapping[str, Array]) -> dict[str, Any]:
    """Averages over networks with their errors, of `numbers`; γ and the share near the boundary in closed form."""
    found = {key: average(np.asarray(values[key])) for key in ("squares", "near", "gap", "skewness", "rigid")}
    rms = root(average(np.asarray(values["skewness"]) ** 2))
    return {"gamma": gamma, "near_theory": _near(1 + gamma), **found, "skewness": rms}


def margins_of(text: str, x: Data, width: int, inits: int, seed: int) -> dict[str, Any]:
    """Of an ensemble: `numbers`, and the logits of its typical network among the first (points, 2)."""
    found: list[dict[str, Array]] = []
    typical: list[Array] = []
    for start in range(0, inits, 8):  # a measurement keeps the logits of its first eight networks
        m = fg.measure(text, x, inits=8, seed=seed + 1000 + start, width=width, classes=2, probe="output", points=x.n)
        logits = np.stack([m.logits_of(k).values for k in range(8)])
        found.append(numbers(logits[:, :, 1] - logits[:, :, 0]))
        typical.append(np.asarray(m.logits.values))
    return {key: np.concatenate([f[key] for f in found]) for key in found[0]} | {"typical": typical[0]}


def _logits(c: Found) -> dict[str, Any]:
    given: dict[str, Any] = {"x": c.blob(c.n, c.d), "width": c.width, "seed": c.run.seed}
    pieces = {
        name: c.run.keep(margins_of, label=f"logits of {name}", text=deep(block, depth),
                         inits=c.least if depth > 5 else c.inits, **given)
        for name, (block, depth) in NETWORKS.items()
    }  # fmt: skip
    found = {name: cloud(theory_gamma(deep(*NETWORKS[name])), piece) for name, piece in pieces.items()}
    return {
        "found": found,
        "drawn": {n: fg.Logits(np.asarray(p["typical"])) for n, p in pieces.items() if "5" not in n},
    }


def _steps(c: Found, what: str, *, rises: bool) -> list[Check]:
    return [
        check(
            name, c.found[name][what], **{"above" if rises else "below": c.found[before][what]}, than="the one before"
        )
        for before, name in pairwise(c.found)
    ]


def _ends(c: Found, what: str) -> str:
    first, *_, last = (one[what] for one in c.found.values())
    return f"{first} when even, {last} at most bias"


logits = Item(
    "igb/logits", "The logits of one network: bias is a cloud that misses the boundary",
    "IGB §3, Figs 3, 4; NORM App. C.1", claims=("I27",),
    about="Two classes, {n} random points in {d} dimensions; LayerNorm after ReLU (1 layer) and plain ReLU of 1, 5 and "
    "20 layers of {width} (our sizes), Kaiming; {inits} networks each (20 layers: {least}), all of their logits.",
    quick=dict(n=1000, d=200, width=200, inits=160, least=160),
    full=dict(n=2000, d=500, width=400, inits=400, least=200),
    seconds=(15, 110), quantities=_logits,
    judge=lambda c: [
        claimed(
            "I27", "centers stand apart: the average of (Δμ)²/(spread of the margin)²",
            [check(EVEN, c.found[EVEN]["squares"], below=0.05), *_steps(c, "squares", rises=True),
             *(close(name, c.found[name]["squares"], c.found[name]["gamma"], 0.2, 0.05, to="γ")
               for name in ("ReLU, 1 layer", "ReLU, 5 layers"))],
            headline=f"(Δμ/spread)²: {_ends(c, 'squares')}",
        ),
        claimed(
            "I27", f"points move away from the boundary: the share within {NEAR} spreads of it",
            [*_steps(c, "near", rises=False),
             *(check(name, one["near"], near=one["near_theory"], room=0.04, than="that of N(0, 1 + γ)")
               for name, one in c.found.items())],
            within=[check(f"{name}, log ratio of the distances of nearest and farthest tenth from the median",
                          one["rigid"], near=0.0, room=0.1) for name, one in c.found.items()],
            headline=f"points near the boundary: {_ends(c, 'near')}",
            limit="the cloud is skewed: points do not keep their distances where bias is strong",
        ),
        claimed(
            "I27", "the margin is N(Δμ, 2σ_y²) in one network: the favoured class's share away from Φ(Δμ/spread), on "
            "average",
            [check(name, one["gap"], below=0.02) for name, one in c.found.items()],
            headline=f"largest average departure from a Gaussian share: {max(one['gap'] for one in c.found.values())}",
            otherwise="one network's margins are not Gaussian enough",
            also="skewness of the margin (rms): " + ", ".join(f"{n} {one['skewness']}" for n, one in c.found.items()),
        ),
    ],
    tables=lambda c: {"clouds": [{"network": name, **one} for name, one in c.found.items()]},
    charts=lambda c: {"clouds": figures.logits_chart(c.drawn), "near": lines(
        [row | {"name": "networks", "1 + γ, in closed form": 1 + row["gamma"]} for row in c.tables["clouds"]],
        "1 + γ, in closed form", "near",
        also={"": [predicted("N(0, 1 + γ)", FINE, [*map(_near, FINE)])]},
        title="Points near the boundary, by bias", y_title="Points within half a spread of the boundary",
        x_scale="log", percent=True, y_domain=(0.0, 0.45), dodge=False,
    )},
    holds={"near": Holds("With bias all points leave the boundary", entries=(1,))},
)  # fmt: skip


NOISE = "independent pixels"
PHI = {"ReLU": "relu", "GELU": "gelu", "tanh": "tanh"}
SHALLOW = 1


def exact_std(covariance: Array) -> float:
    """Standard deviation of G₀ over networks of infinite width, two classes: theory.md (41), with no draws.

    Var G₀ = Σ_ab arcsin(c_ab)/(2πn²), c the correlation of the logits at points a and b; a = b gives 1/4n.

    >>> print(exact_std(np.ones((5, 5))), exact_std(np.eye(25)))  # all points alike; all independent
    0.5 0.1
    """
    scale = np.sqrt(covariance.diagonal())
    c = np.clip(covariance / np.outer(scale, scale), -1.0, 1.0)
    return float(np.sqrt(np.arcsin(c).mean() / (2 * np.pi)))


def _name(data: str, phi: str, depth: int) -> str:
    return f"{phi} on {data}, depth {depth}"


def _larger(c: Found, shallow: bool) -> Check:
    """The kernel has no error, so that it decides; networks of finite width must not contradict it."""
    own = [key for key in c.found if key[0] != NOISE and (key[2] == SHALLOW) is shallow]
    return check(f"kernel reading {'after one hidden layer' if shallow else 'deeper'}", [c.kernel[key] for key in own],
                 above=[c.kernel[NOISE, *key[1:]] for key in own], than="that of independent pixels",
                 at=[_name(*key) for key in own])  # fmt: skip


def _more(c: Found) -> dict[tuple[str, str, int], bool]:
    """Whether the kernel has more bias on images than on noise of the same shape."""
    return {key: c.kernel[key] > c.kernel[NOISE, *key[1:]] for key in c.found if key[0] != NOISE}


def _networks(c: Found) -> Check:
    noise = {key: c.found[NOISE, *key[1:]] for key in _more(c)}
    against = [_name(*key) for key, more in _more(c).items() if above(c.found[key], noise[key]) is (not more)]
    said = "; ".join(f"{_name(*key)}: {c.found[key]} against {other}" for key, other in noise.items())
    return Check("networks", "never surely against it", not against, said, ", ".join(against))


def _data(c: Found) -> dict[str, Any]:
    noise = np.random.default_rng([c.run.seed, 23]).standard_normal((c.n, 3072), dtype=np.float32)
    images = {"MNIST": c.run.data("mnist:test", points=c.n), "CIFAR-10": c.run.data("cifar10:test", points=c.n)}
    return {NOISE: fg.data.as_data(noise)} | {name: fg.data.as_data(x.flat()) for name, x in images.items()}


def _kernel(text: str, data: Data) -> dict[str, float]:
    p = fg.predict(text, data=data, classes=2, draws=100)
    assert p.covariance is not None
    return {"std": exact_std(np.asarray(p.covariance))}


def _structure(c: Found) -> dict[str, Any]:
    depths = sorted({1, 2, 5, 10, 20} | set(c.sizes))
    pieces = {
        (name, label, depth): c.run.keep(_kernel, label=f"kernel of {deep(phi, depth)}", text=deep(phi, depth), data=x)
        for name, x in _data(c).items() for label, phi in PHI.items() for depth in depths
    }  # fmt: skip
    known = {key: float(piece["std"]) for key, piece in pieces.items()}
    found = {key: std(m) for key, m in c.cells.items()}
    worst = max(found, key=lambda key: abs(found[key].value - known[key]))
    return {"found": found, "depths": depths, "kernel": known, "worst": worst}


structure = Item(
    "igb/structure", "Does structure in the data amplify bias?", "IGB §3, App. I.1", claims=("I23",),
    needs=("mnist", "cifar10"), seconds=(15, 110),
    about="MNIST and CIFAR-10 images (standardized, {n} each) and noise of CIFAR-10's shape; ReLU, GELU and tanh, "
    "hidden layers: width and networks each = {sizes}, Kaiming, two classes (our sizes); the kernel reading of the "
    "same points.",
    quick=dict(n=150, sizes={1: (200, 250), 20: (150, 60)}),
    full=dict(n=200, sizes={1: (300, 1500), 5: (300, 300), 20: (300, 300)}),
    measure={"classes": 2},
    cells=lambda c: {
        (name, label, depth): Cell(deep(phi, depth), x, {"inits": inits, "width": width})
        for name, x in _data(c).items() for label, phi in PHI.items() for depth, (width, inits) in c.sizes.items()
    },
    quantities=_structure,
    judge=lambda c: [
        claimed(
            "I23", "std of G₀ on images (the kernel reading of these points is exact at infinite width)",
            [_larger(c, True), _networks(c)], within=[_larger(c, False)],
            headline=f"more biased than on independent pixels in {sum(_more(c).values())} of {len(_more(c))} settings",
            limit="less biased on images",
        ),
        claimed(
            "I23", "std of G₀ of networks, on images and noise",
            [check("networks", [*c.found.values()], near=[c.kernel[key] for key in c.found], room=0.04,
                   than="the kernel reading of these very points", at=[_name(*key) for key in c.found])],
            headline=f"largest departure: {c.found[c.worst]} against {c.kernel[c.worst]:.3f}",
            otherwise="networks of this width depart from it by more",
        ),
    ],
    tables=lambda c: {"structure": grid("data activation depth", std=c.found, kernel=c.kernel)},
    charts=lambda c: {"structure": lines(
        c.tables["structure"], "depth", "std", by="data", panel="activation",
        also={label: [predicted(name, c.depths, [c.kernel[name, label, k] for k in c.depths])
                      for name in dict.fromkeys(name for name, *_ in c.found)] for label in PHI},
        title="Guesses on images against independent pixels (lines: kernel reading of the same points)",
        x_scale="log", y_domain=(0.0, 0.5), x_domain=(0.8, 26.0), width=290, height=300,
    )},
    holds={"structure": Holds("Images bias networks more than independent pixels do", (0,), ("holds",))},
    notes=["Images are standardized as in the papers (CIFAR-10 per channel): their pixels keep means of their own."],
)  # fmt: skip
