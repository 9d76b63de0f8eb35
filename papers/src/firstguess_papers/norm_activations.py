"""NORM §4.1, App. B: do the four theorems on norms hold for other activations than ReLU?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import firstguess as fg
from firstguess_papers.charts import lines
from firstguess_papers.items import Entry, Holds
from firstguess_papers.judging import Number, Truth, above, all_of, below, entry, same
from firstguess_papers.measured import Cell, measured
from firstguess_papers.sweeps import EVEN, FLIPS, beyond_flips, deep, failing, gammas, layer_lines

PHI = {"ReLU": "relu", "GELU": "gelu", "SiLU": "silu", "sigmoid": "sigmoid", "tanh": "tanh"}
ODD = ("tanh",)
NONE, BN_BEFORE, LN_BEFORE, BN_AFTER, LN_AFTER = (
    "no norm", "BatchNorm before", "LayerNorm before", "BatchNorm after", "LayerNorm after"
)  # fmt: skip
PLACES = {
    NONE: "{}", BN_BEFORE: "batchnorm > {}", LN_BEFORE: "layernorm > {}", BN_AFTER: "{} > batchnorm",
    LN_AFTER: "{} > layernorm",
}  # fmt: skip
DEPTH = 5
Found = Mapping[tuple[str, str], Sequence[Number]]  # (activation, place) -> γ behind 1, 2, … layers
Left = Mapping[tuple[str, str], Number]  # the largest of ten fractions beyond coin flips, behind all layers


def room(gamma: float) -> float:
    """A difference of γ that does not matter: 15 % and 0.02."""
    return 0.02 + 0.15 * abs(gamma)


def theorems(found: Found, left: Left) -> dict[str, dict[str, Truth]]:
    """Each theorem, activation by activation."""
    biased = [phi for phi in PHI if phi not in ODD]

    def even(place: str) -> dict[str, Truth]:
        return {
            phi: all_of([*(same(g, 0.0, room=EVEN) for g in found[phi, place]), below(left[phi, place], FLIPS)])
            for phi in PHI
        }

    before = {phi: found[phi, BN_BEFORE] for phi in PHI}
    return {
        "4.1": {phi: same(g[-1], g[0], room=room(g[0].value)) for phi, g in before.items()},
        "4.2": even(BN_AFTER),
        "4.3": {phi: above(found[phi, LN_BEFORE][-1], found[phi, LN_BEFORE][0]) for phi in biased},
        "4.4": even(LN_AFTER),
    }


def correlation(gamma: Number) -> Number:
    """c = γ/(1 + γ), with its error to first order."""
    return Number(gamma.value / (1 + gamma.value), gamma.error / (1 + gamma.value) ** 2)


def like_none(found: Found) -> dict[str, Truth]:
    """Theorem 4.3's other half: LayerNorm before is as no norm at all."""
    return {
        phi: same(found[phi, LN_BEFORE][-1], found[phi, NONE][-1], room=room(found[phi, NONE][-1].value)) for phi in PHI
    }


def judge(found: Found, left: Left) -> list[Entry]:
    """N16: every theorem for every activation; and LayerNorm before as none."""
    checked, alike = theorems(found, left), like_none(found)
    wrong = "; ".join(
        f"Theorem {name}: {failing(checks)}" for name, checks in checked.items() if all_of(checks.values()) is False
    )

    def ends(place: str) -> str:
        return ", ".join(f"{phi} {found[phi, place][0]} → {found[phi, place][-1]}" for phi in PHI)

    return [
        entry(
            "N16",
            f"ReLU, GELU, SiLU, sigmoid, tanh, γ behind 1 and {DEPTH} layers: BatchNorm before constant (15 % + 0.02), "
            f"BatchNorm and LayerNorm after even (γ within {EVEN} of 0 at every depth, the largest of ten fractions "
            f"less than {FLIPS} above coin flips), LayerNorm before growing (all but tanh, which has no bias)",
            "; ".join(f"{place}: {ends(place)}" for place in PLACES if place != NONE)
            + "; largest fraction beyond coin flips: "
            + ", ".join(f"{phi}, {place} {left[phi, place]}" for place in (BN_AFTER, LN_AFTER) for phi in PHI),
            [check for checks in checked.values() for check in checks.values()],
            headline=f"GELU, {DEPTH} layers: γ with BatchNorm before {found['GELU', BN_BEFORE][-1]}, LayerNorm "
            f"before {found['GELU', LN_BEFORE][-1]}, after {found['GELU', LN_AFTER][-1]}",
            otherwise=wrong,
        ),
        entry(
            "N16",
            f"LayerNorm before is as no norm: γ behind {DEPTH} layers the same within 15 % + 0.02, for all five",
            "; ".join(
                f"{phi}: {found[phi, LN_BEFORE][-1]} against {found[phi, NONE][-1]} without" for phi in PHI
            ),
            alike.values(),
            headline=f"sigmoid: γ {found['sigmoid', LN_BEFORE][-1]} against {found['sigmoid', NONE][-1]} without",
            otherwise=f"not for activations that see the scale, which LayerNorm sets: {failing(alike)}",
        ),
    ]  # fmt: skip


NETWORKS = {(label, place): deep(block.format(phi), DEPTH + 1)
            for label, phi in PHI.items() for place, block in PLACES.items()}  # fmt: skip

activations = measured(
    "norm/activations", "The theorems on norms for other activations", "NORM §4.1, App. B", claims=("N16",),
    about="Five activations × no norm, BatchNorm and LayerNorm before and after; 6 hidden layers of {width} (our "
    "sizes), Kaiming variances; blobs of that dimension, {n} points; {inits} networks of ten outputs each, γ by layer.",
    quick=dict(width=200, n=300, inits=40),
    full=dict(width=500, n=500, inits=100),
    seconds=(12, 100),
    measure={"classes": 10, "probe": "weights"},
    cells=lambda c: {key: Cell(text, c.blob(c.n, c.width)) for key, text in NETWORKS.items()},
    quantities=lambda c: {
        "found": {key: gammas(c[key]) for key in NETWORKS},
        "theory": {key: fg.predict(text).gamma[1:-1] for key, text in NETWORKS.items()},
    },
    judge=lambda c: judge(c.found, {key: beyond_flips(c[key]) for key in NETWORKS}),
    table="",
    tables=lambda c: {"activations": layer_lines(c.found, ["name", "place"], c.theory)},
    charts=lambda c: {"activations": lines(
        layer_lines(
            {key: [correlation(g) for g in values] for key, values in c.found.items()}, ["name", "place"],
            {key: values / (1 + values) for key, values in c.theory.items()},
        ),
        "depth", by="place", panel="name", y_title="Correlation c = γ/(1 + γ)",
        y_domain=(-0.05, 1.05), width=280, height=260,
    )},
    holds={"activations": Holds("Norms do for other activations what they do for ReLU", entries=(0,))},
)  # fmt: skip
