"""IGB App. G.3: a constant added to an activation brings bias; subtracting a batch's own mean removes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import firstguess as fg
from firstguess_papers.charts import lines
from firstguess_papers.items import Entry, Holds
from firstguess_papers.judging import Number, Truth, above, below, entry, same
from firstguess_papers.measured import Cell, Found, measured
from firstguess_papers.sweeps import EVEN, FLIPS, KAIMING, beyond_flips, deep, gammas, layer_lines, line
from firstguess_papers.tables import gamma

CONSTANTS = (0.0, 0.25, 0.5, 1.0, 2.0)
NO_BIAS = 0.02  # γ that we cannot tell from none
PLAIN, WHOLE, BATCHES = "ReLU", "minus the mean of all data", "minus the mean of a batch of 16"
BLOCKS = {PLAIN: "relu", WHOLE: "relu > batchcenter", BATCHES: "relu > batchcenter(batch=16)"}


def judge_shift(found: Sequence[Number], theory: Sequence[float]) -> Entry:
    """I22, first half: γ of tanh + constant, over `CONSTANTS`."""
    return entry(
        "I22",
        f"tanh plus a constant of 0, ¼, ½, 1, 2: γ is 0 within {NO_BIAS} at 0 and grows at every step; without a limit "
        "within 10 % + 0.02 of the closed form",
        ", ".join(f"{g} at {a:g} (closed form {t:.4g})" for a, g, t in zip(CONSTANTS, found, theory, strict=True)),
        [same(found[0], 0.0, room=NO_BIAS), *(above(b, a) for a, b in pairwise(found))],
        within=[same(g, t, room=0.02 + 0.1 * t) for g, t in zip(found, theory, strict=True)],
        headline=f"tanh + {CONSTANTS[3]:g}: γ = {found[3]}",
        limit="at this width γ departs from the closed form by more",
    )


def judge_centre(found: Mapping[str, Sequence[Number]], left: Mapping[str, Number]) -> Entry:
    """I22, second half: γ by depth of ReLU, and with the batch's own mean taken off; `left` is beyond coin flips."""
    plain, whole, batches = found[PLAIN], found[WHOLE], found[BATCHES]
    return entry(
        "I22",
        f"ReLU minus the mean over all data, after every layer: γ even (within {EVEN} of 0) at every depth, and the "
        f"largest of ten fractions less than {FLIPS} above coin flips, where plain ReLU's γ grows and its largest "
        "fraction is above that; without a limit the same with means over batches of 16",
        f"after 1 and {len(plain)} layers: plain {plain[0]}, {plain[-1]}; all data {whole[0]}, {whole[-1]}; batches of "
        f"16 {batches[0]}, {batches[-1]}; largest fraction beyond coin flips: "
        + ", ".join(f"{name} {value}" for name, value in left.items()),
        [
            above(plain[0], EVEN),
            above(plain[-1], plain[0]),
            above(left[PLAIN], FLIPS),
            *_even(whole),
            below(left[WHOLE], FLIPS),
        ],
        within=[*_even(batches), below(left[BATCHES], FLIPS)],
        headline=f"largest fraction beyond coin flips: {left[PLAIN]} → {left[WHOLE]}",
        limit="with the means of small batches some bias is left",
    )


def _even(found: Sequence[Number]) -> list[Truth]:
    return [same(g, 0.0, room=EVEN) for g in found]


SHIFTED = {a: f"{KAIMING} > tanh > shift({a:g}) > {KAIMING}" for a in CONSTANTS}


def _quantities(c: Found) -> dict[str, Any]:
    shifted = [line("tanh + constant", gamma(c[a]), at=a, theory=float(fg.predict(text).gamma[-1]))
               for a, text in SHIFTED.items()]  # fmt: skip
    found = {(name,): gammas(c[name]) for name in BLOCKS}
    theory = {(name,): fg.predict(deep(block, c.depth)).gamma[1:] for name, block in BLOCKS.items() if name != BATCHES}
    known = layer_lines({key: found[key] for key in theory}, ["name"], theory)
    rest = layer_lines({(BATCHES,): found[BATCHES,]}, ["name"])
    return {"shifted": shifted, "found": {name: g for (name,), g in found.items()}, "by_depth": [*known, *rest]}


constants = measured(
    "igb/constants", "A constant brings bias, a batch's own mean takes it away", "IGB App. G.3", claims=("I22",),
    about="tanh + 0 to 2, one hidden layer of {width}; ReLU without and with its batch's mean taken off (all {n} "
    "points, or batches of 16), {depth} layers of {width} and one more (our sizes); Kaiming, blobs of that dimension; "
    "{inits} networks of ten outputs each.",
    quick=dict(width=200, n=320, inits=200, depth=6),
    full=dict(width=500, n=640, inits=300, depth=6),
    seconds=(8, 60),
    measure={"classes": 10},
    cells=lambda c: {a: Cell(text, c.blob(c.n, c.width)) for a, text in SHIFTED.items()} | {
        name: Cell(deep(block, c.depth + 1), c.blob(c.n, c.width), {"probe": "weights"})
        for name, block in BLOCKS.items()
    },
    quantities=_quantities,
    judge=lambda c: [
        judge_shift([row["value"] for row in c.shifted], [row["theory"] for row in c.shifted]),
        judge_centre(c.found, {name: beyond_flips(c[name]) for name in BLOCKS}),
    ],
    table="",
    tables=lambda c: {
        "constants": c.shifted,
        "centred": [{name: row[name] for name in ("name", "depth", "value")} for row in c.by_depth],
    },
    charts=lambda c: {
        "centred": lines(c.by_depth, "depth", title="ReLU minus its batch's own mean: γ by depth"),
        "constants": lines(
            c.shifted, "at", title="tanh plus a constant: γ of the output", x_title="Constant added after tanh"
        ),
    },
    holds={
        "constants": Holds("A constant gives an odd activation bias", entries=(0,)),
        "centred": Holds("Taking a batch's own mean off keeps ReLU even at every depth", entries=(1,)),
    },
)  # fmt: skip
