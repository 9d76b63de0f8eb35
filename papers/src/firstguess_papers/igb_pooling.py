"""IGB §4.2, eq. 16: bias comes from activation and pooling together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import integrate, special

import firstguess as fg
from firstguess_papers.charts import dots
from firstguess_papers.items import Entry, Holds
from firstguess_papers.judging import Number, Truth, above, entry, same
from firstguess_papers.measured import Cell, Found, measured
from firstguess_papers.sweeps import KAIMING
from firstguess_papers.tables import gamma

PHI = {
    "linear": "linear", "tanh": "tanh", "erf": "erf", "sin": "sin", "ReLU": "relu", "ReLU − mean": "centered(relu)",
    "GELU": "gelu",
}  # fmt: skip
POOLS = {"no pool": "", "average of 4": "avgpool(4)", "largest of 2": "maxpool(2)", "largest of 4": "maxpool(4)"}
NO_BIAS = 0.02  # γ that we cannot tell from none
SHIFTED = "tanh − pooled mean"


@dataclass(frozen=True)
class Block:
    """An activation with a pool: γ measured after one such layer, what the criterion says, and the closed form's γ."""

    activation: str
    pool: str
    text: str
    causes: bool
    found: Number
    theory: float | None

    @property
    def right(self) -> Truth:
        return above(self.found, 0.0) if self.causes else same(self.found, 0.0, room=NO_BIAS)

    @property
    def close(self) -> Truth:
        return None if self.theory is None else same(self.found, self.theory, room=0.02 + 0.1 * self.theory)

    def __str__(self) -> str:
        return f"{self.activation}, {self.pool} {self.found}"


def judge(blocks: Sequence[Block]) -> list[Entry]:
    """I21: odd and linear nodes get bias from max-pooling and from nothing else here; all as the criterion says."""
    odd = [b for b in blocks if b.activation in ("linear", "tanh", "erf", "sin")]
    most = [b for b in odd if b.pool.startswith("largest")]
    rest = [b for b in odd if not b.pool.startswith("largest")]
    wrong = [b for b in blocks if b.right is not True]
    known = [b for b in blocks if b.theory is not None]
    off = [b for b in known if b.close is False]
    shifted = [b for b in blocks if b.activation == SHIFTED]
    return [
        entry(
            "I21",
            f"linear, tanh, erf and sin nodes: γ above 0 with max-pools of 2 and 4, 0 within {NO_BIAS} without a pool "
            "and with average-pools",
            "; ".join(str(b) for b in odd),
            [*(above(b.found, NO_BIAS) for b in most), *(same(b.found, 0.0, room=NO_BIAS) for b in rest)],
            headline="γ with max-pools: " + "; ".join(str(b) for b in most[:3]),
        ),
        entry(
            "I21",
            f"together: in all {len(blocks)} blocks γ is above 0 exactly where the mean of the pooled nodes is not 0 "
            f"(fg.causes_bias; else 0 within {NO_BIAS}), with tanh minus the mean of the largest of two among them: "
            "biased by itself, not with the pool; without a limit within 10 % + 0.02 of the closed form where there is "
            "one",
            "; ".join(str(b) for b in (*shifted, *(b for b in blocks if b not in odd and b not in shifted))),
            [b.right for b in blocks],
            within=[b.close for b in known],
            limit=f"at this width some depart from theory by more: {', '.join(map(str, off))}",
            headline=f"{len(blocks) - len(wrong)} of {len(blocks)} blocks surely as the criterion says",
            otherwise=f"not as the criterion says: {', '.join(map(str, wrong))}",
        ),
    ]


def pooled_mean(activation: str, pool: int, q: float = 2.0) -> float:
    """The mean of the largest of K activated nodes, for a φ that never decreases: E φ(√q · max z), by quadrature.

    >>> print(f"{pooled_mean('linear', 2, 1.0):.6f}")  # 1/√π
    0.564190
    """
    z = np.linspace(-12.0, 12.0, 24_001)
    weight = pool * special.ndtr(z) ** (pool - 1) * np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    return float(integrate.simpson(fg.activation(activation)(np.sqrt(q) * z) * weight, x=z))


def texts() -> dict[tuple[str, str], str]:
    """All blocks, by activation and pool."""
    found = {(a, p): " > ".join(filter(None, (phi, pool))) for a, phi in PHI.items() for p, pool in POOLS.items()}
    shift = f"shift({-pooled_mean('tanh', 2):.12g})"
    found[SHIFTED, "no pool"] = f"tanh > {shift}"
    found[SHIFTED, "largest of 2"] = f"tanh > maxpool(2) > {shift}"  # the same as taking it off before
    return found


def _block(c: Found, activation: str, pool: str, text: str) -> Block:
    try:
        theory = float(fg.predict(f"{KAIMING} > {text} > {KAIMING}").gamma[-1])
    except fg.NotCovered:
        theory = None
    return Block(activation, pool, text, bool(fg.causes_bias(text, q=2.0)), gamma(c[activation, pool]), theory)


pooling = measured(
    "igb/pooling", "Bias comes from activation and pooling together", "IGB §4.2, eq. 16", claims=("I21",),
    about="One hidden layer of {nodes} pooled nodes (our size), Kaiming: seven activations × no pool, average of 4, "
    "largest of 2 and of 4, and tanh minus the mean of the largest of two; blobs in {d} dimensions, {n} points; "
    "{inits} networks of ten outputs each.",
    quick=dict(d=200, n=300, inits=150, nodes=150),
    full=dict(d=500, n=500, inits=300, nodes=300),
    seconds=(12, 80),
    measure={"classes": 10},
    cells=lambda c: {
        (a, p): Cell(f"{KAIMING} > {text} > {KAIMING}", c.blob(c.n, c.d),
                     {"width": c.nodes * (4 if "4" in p else 2 if "2" in p else 1)})
        for (a, p), text in texts().items()
    },
    quantities=lambda c: {"blocks": [_block(c, *key, text) for key, text in texts().items()]},
    judge=lambda c: judge(c.blocks),
    table="",
    tables=lambda c: {"blocks": [
        {"activation": b.activation, "pool": b.pool, "text": b.text, "causes": b.causes, "gamma": b.found,
         "theory": b.theory} for b in c.blocks
    ]},
    charts=lambda c: {"blocks": dots(
        [vars(b) | {"gamma": b.found} for b in c.blocks], "activation", "gamma", panel="pool",
        x_domain=(-0.1, 1.05 * max(b.found.value + 2 * b.found.error for b in c.blocks)),
    )},
    holds={"blocks": Holds("Max-pooling biases odd activations: what counts is the mean after the pool", entries=(1,))},
    notes=["Max-pools of GELU and sin, which fall somewhere, have no closed form."],
)  # fmt: skip
