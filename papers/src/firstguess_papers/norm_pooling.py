"""NORM App. E.1, E.2.1: BatchNorm before with pooling; BatchNorm after for any mean and variance of the input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import firstguess as fg
from firstguess_papers.charts import dots, lines
from firstguess_papers.items import Entry, Holds
from firstguess_papers.judging import Number, Truth, above, all_of, below, entry, same
from firstguess_papers.measured import Cell, Found, measured
from firstguess_papers.sweeps import EVEN, FLIPS, beyond_flips, deep, failing, gammas, layer_lines

POOLS = {
    "no pool": "",
    "largest of 2": " > maxpool(2)",
    "largest of 4": " > maxpool(4)",
    "average of 4": " > avgpool(4)",
}
DEPTH = 5
Input = tuple[float, float]
INPUTS = ((0.0, 1.0), (1.0, 1.0), (3.0, 1.0), (0.0, 0.1), (0.0, 10.0), (3.0, 0.1), (3.0, 10.0))  # mean, spread


def judge_pools(normed: Mapping[str, Sequence[Number]], theory: Mapping[str, float], plain: Sequence[Number]) -> Entry:
    """N18, first half: γ with BatchNorm before, by pool and depth; `plain` is the no-norm, no-pool network."""
    constant: dict[str, Truth] = {
        pool: all_of(same(g, values[0], room=0.02 + 0.1 * values[0].value) for g in values[1:])
        for pool, values in normed.items()
    }
    close: dict[str, Truth] = {
        pool: all_of(same(g, theory[pool], room=0.02 + 0.1 * theory[pool]) for g in values)
        for pool, values in normed.items()
    }
    return entry(
        "N18",
        f"BatchNorm before ReLU, with max-pools of 2 and 4, average-pools of 4, or none: γ behind 2 to {DEPTH} layers "
        "is that behind one within 10 % + 0.02, where it grows without a norm; without a limit within 10 % + 0.02 of "
        "the closed form",
        "; ".join(f"{pool}: {v[0]} → {v[-1]} (closed form {theory[pool]:.4g})" for pool, v in normed.items())
        + f"; no norm: {plain[0]} → {plain[-1]}",
        [*constant.values(), above(plain[-1], plain[0])],
        within=close.values(),
        headline=f"max-pools of 2: γ {normed['largest of 2'][0]} → {normed['largest of 2'][-1]}",
        limit=f"constant, but at another level than the closed form says: {failing(close)}",
        otherwise=f"not constant: {failing(constant)}",
    )


def judge_inputs(found: Mapping[Input, Sequence[Number]], left: Mapping[Input, Number]) -> Entry:
    """N18, second half: BatchNorm after, by mean and spread of the data: γ by depth, and what is beyond coin flips."""
    even: dict[str, Truth] = {
        f"mean {mean:g}, spread {spread:g}": all_of(
            [*(same(g, 0.0, room=EVEN) for g in values), below(left[mean, spread], FLIPS)]
        )
        for (mean, spread), values in found.items()
    }
    return entry(
        "N18",
        f"BatchNorm after ReLU on data of mean 0 to 3 and spread 0.1 to 10: γ even (within {EVEN} of 0) behind every "
        f"one of {DEPTH} layers, the largest of ten fractions less than {FLIPS} above coin flips",
        "largest fraction beyond coin flips: "
        + "; ".join(f"mean {m:g}, spread {s:g}: {left[m, s]} (γ {v[-1]})" for (m, s), v in found.items()),
        even.values(),
        headline=f"at most {max(left.values(), key=lambda v: v.value)} beyond coin flips",
        otherwise=f"not even: {failing(even)}",
    )


NORMED, PLAIN, AFTER = "BatchNorm before ReLU", "No norm", "BatchNorm after"
BLOCKS = {(norm, pool): f"{block}relu{layers}"
          for norm, block in ((NORMED, "batchnorm > "), (PLAIN, "")) for pool, layers in POOLS.items()}  # fmt: skip


def _cells(c: Found) -> dict[Any, Cell]:
    x = c.blob(c.n, c.d)
    data = {(mean, spread): fg.data.as_data(x.flat() * spread + mean) for mean, spread in INPUTS}
    return {key: Cell(deep(block, DEPTH + 1), x) for key, block in BLOCKS.items()} | {
        (AFTER, *key): Cell(deep("relu > batchnorm", DEPTH + 1), own, {"width": 200}) for key, own in data.items()
    }


pooling = measured(
    "norm/pooling", "BatchNorm with pooling, and on data of any mean and variance", "NORM App. E.1, E.2.1",
    claims=("N18",),
    about="ReLU, Kaiming, 6 hidden layers of {width} nodes before pooling (our size): BatchNorm before with pools of "
    "1, 2 and 4, and no norm; BatchNorm after on blobs of mean 0, 1, 3 and spread 0.1, 1, 10; {d} dimensions, {n} "
    "points; {inits} networks of ten outputs each.",
    quick=dict(width=400, d=200, n=300, inits=40),
    full=dict(width=1200, d=500, n=500, inits=60),
    seconds=(12, 100),
    measure={"classes": 10, "probe": "weights"},
    cells=_cells,
    quantities=lambda c: {
        "found": {key: gammas(c[key]) for key in BLOCKS},
        "theory": {key: fg.predict(deep(block, DEPTH + 1)).gamma[1:-1] for key, block in BLOCKS.items()},
        "after": {key: gammas(c[(AFTER, *key)]) for key in INPUTS},
        "left": {key: beyond_flips(c[(AFTER, *key)]) for key in INPUTS},
    },
    judge=lambda c: [
        judge_pools(
            {pool: c.found[NORMED, pool] for pool in POOLS},
            {pool: float(c.theory[NORMED, pool][0]) for pool in POOLS}, c.found[PLAIN, "no pool"],
        ),
        judge_inputs(c.after, c.left),
    ],
    table="",
    tables=lambda c: {
        "pools": layer_lines(c.found, ["norm", "name"], c.theory),
        "inputs": layer_lines({(AFTER, *key): g for key, g in c.after.items()}, ["name", "mean", "spread"]),
    },
    charts=lambda c: {
        "pools": lines(layer_lines(c.found, ["norm", "name"], c.theory), "depth", panel="norm", y_scale="log"),
        "inputs": dots(
            [{"mean": f"mean {m:g}", "spread": f"spread {s:g}", "value": v} for (m, s), v in sorted(c.left.items())],
            "mean", by="spread", title="BatchNorm after ReLU on data of other means and scales",
            x_title="Largest of ten guess fractions beyond that of coin flips", x_domain=(-0.02, 0.08), percent=True,
        ),
    },
    holds={
        "pools": Holds("BatchNorm before ReLU keeps γ constant in depth with pooling, too", entries=(0,)),
        "inputs": Holds("BatchNorm after ReLU guesses evenly whatever the data's mean and scale", entries=(1,)),
    },
)  # fmt: skip
