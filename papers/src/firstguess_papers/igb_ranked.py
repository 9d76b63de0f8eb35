"""IGB App. H, NORM App. A and B: ranked fractions, the law of the k-th largest, the entropy of the guesses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import firstguess as fg
from firstguess import figures
from firstguess_papers import library
from firstguess_papers.charts import lines
from firstguess_papers.items import Entry, Holds, Outcome, item
from firstguess_papers.judging import Number, Truth, entry, same
from firstguess_papers.running import Run
from firstguess_papers.sweeps import KAIMING
from firstguess_papers.tables import columns

CLASSES = 10
ROOM = 0.02  # of a fraction, E G_(k)
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
        return [same(a, b, room=ROOM) for a, b in zip(self.means, self.theory, strict=True)]

    @property
    def laws(self) -> list[Truth]:
        return [same(a, b, room=SHARE) for a, b in zip(self.below, self.half, strict=True)]


def judge(found: Sequence[Ranked]) -> list[Entry]:
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
            f"ten classes: the average k-th largest fraction is within {ROOM} of theory for k = 1 to 5; without a "
            f"limit half of the networks (within {SHARE}) are below the predicted median for k = 1, 2, 3",
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
    entries = judge(found)
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
