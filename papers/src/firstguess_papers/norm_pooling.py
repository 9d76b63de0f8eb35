"""NORM App. E.1, E.2.1: BatchNorm before with pooling; BatchNorm after for any mean and variance of the input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from firstguess_papers.items import Entry, Outcome, item
from firstguess_papers.judging import Number, Truth, above, all_of, below, entry, same, stated
from firstguess_papers.running import Run
from firstguess_papers.sweeps import EVEN, FLIPS, beyond_flips, deep, failing, gammas, line, measured, predicted
from firstguess_papers.tables import columns

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
        f"BatchNorm before ReLU, with max-pools of 2 and 4, average-pools of 4, or none: γ behind 2 to {DEPTH} "
        "layers is "
        "that behind one within 10 % + 0.02, where it grows without a norm; without a limit within 10 % + 0.02 of the "
        "closed form",
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


@item(
    "norm/pooling",
    "BatchNorm with pooling, and on data of any mean and variance",
    claims=("N18",),
    where="NORM App. E.1, E.2.1",
    about="ReLU, Kaiming, 6 hidden layers of {width} nodes before pooling (our size): BatchNorm before with pools of "
    "1, 2 and 4, and no norm; BatchNorm after on blobs of mean 0, 1, 3 and spread 0.1, 1, 10; {d} dimensions, {n} "
    "points; {inits} networks of ten outputs each.",
    quick=dict(width=400, d=200, n=300, inits=40),
    full=dict(width=1200, d=500, n=500, inits=60),
    seconds=(12, 100),
)
def pooling(run: Run) -> Outcome:
    """N18: γ by depth, with pools, and after a shift and a scale of the inputs."""
    import firstguess as fg
    from firstguess import figures
    from firstguess_papers.library import Dot, Series, dots_chart

    width, d, n, inits = run.take("width d n inits")
    x = fg.data.blob(n, d, seed=run.seed)
    at = list(range(1, DEPTH + 1))
    found: dict[tuple[str, str], list[Number]] = {}
    theory: dict[tuple[str, str], list[float]] = {}
    panels: dict[str, list[Series]] = {}
    for heading, norm in (("BatchNorm before ReLU", "batchnorm > "), ("No norm", "")):
        panels[heading] = []
        for pool, layers in POOLS.items():
            text = deep(f"{norm}relu{layers}", DEPTH + 1)
            m = run.measure(text, x, inits=inits, width=width, classes=10, probe="weights", label=f"{heading}, {pool}")
            found[heading, pool] = gammas(m)
            theory[heading, pool] = fg.predict(text).gamma[1:-1].tolist()
            panels[heading] += [predicted(pool, at, theory[heading, pool]), measured(pool, at, found[heading, pool])]
    after: dict[tuple[float, float], list[Number]] = {}
    left: dict[tuple[float, float], Number] = {}
    for mean, spread in INPUTS:
        data = fg.data.as_data(x.flat() * spread + mean)
        m = run.measure(deep("relu > batchnorm", DEPTH + 1), data, inits=inits, width=200, classes=10, probe="weights",
                        label=f"BatchNorm after, mean {mean:g}, spread {spread:g}")  # fmt: skip
        after[mean, spread], left[mean, spread] = gammas(m), beyond_flips(m)
    normed = {pool: found["BatchNorm before ReLU", pool] for pool in POOLS}
    known = {pool: theory["BatchNorm before ReLU", pool][0] for pool in POOLS}
    entries = [judge_pools(normed, known, found["No norm", "no pool"]), judge_inputs(after, left)]
    flat = entries[0].verdict in ("holds", "holds with a limit")
    levels = ", ".join(f"{values[-1].value:.2g}" for values in normed.values())
    pools = figures.lines_chart(
        panels,
        title=stated(
            flat,
            f"BatchNorm before ReLU keeps γ constant in depth with pooling, too: at {levels}",
            "BatchNorm before ReLU with pooling: γ is not constant in depth",
        ),
        subtitle=[f"Drift ratio γ, layers of {width} before pooling, random data. Points: measured ± 2 "
                  "standard errors; "
                  "lines: closed form."],
        x_title="Hidden layers", y_title="Drift ratio γ", y_scale="log",
        x_domain=(0.7, 5.3), dodge=True, columns=2, width=400,
    )  # fmt: skip
    fair = entries[1].verdict == "holds"
    worst = max(left.values(), key=lambda v: v.value)
    spreads = sorted({s for _, s in INPUTS})
    inputs = dots_chart(
        {"": [Dot(f"mean {m:g}", f"spread {s:g}", left[m, s].value, left[m, s].error)
              for m in sorted({m for m, _ in INPUTS}) for s in spreads if (m, s) in left]},
        title=stated(
            fair,
            "BatchNorm after ReLU guesses evenly whatever the data's mean and scale: at most "
            f"{100 * max(worst.value, 0):.1f} % beyond coin flips",
            f"BatchNorm after ReLU on data of other means and scales: {100 * worst.value:.1f} % beyond coin flips",
        ),
        subtitle=[f"Average largest of ten guess fractions beyond that of coin flips; {DEPTH + 1} layers of "
                  "200, random "
                  "data shifted and scaled; ± 2 standard errors."],
        x_title="Largest fraction beyond coin flips", x_domain=(-0.02, 0.08), percent=True, width=560,
    )  # fmt: skip
    rows = [line(pool, g, norm=norm, depth=k, theory=t) for (norm, pool), values in found.items()
            for k, (g, t) in enumerate(zip(values, theory[norm, pool], strict=True), start=1)]  # fmt: skip
    others = [line("BatchNorm after", g, mean=m, spread=s, depth=k) for (m, s), values in after.items()
              for k, g in enumerate(values, start=1)]  # fmt: skip
    return Outcome(entries, {"pools": columns(rows), "inputs": columns(others)}, {"pools": pools, "inputs": inputs})
