"""IGB §3, NORM §2: any centred independent weights of the same variance give the same law. Heavy tails are the end."""

from __future__ import annotations

from collections.abc import Mapping

import firstguess as fg
from firstguess_papers.charts import dots
from firstguess_papers.items import Entry, Holds
from firstguess_papers.judging import Number, Truth, above, below, entry, same
from firstguess_papers.measured import Cell, measured
from firstguess_papers.norm import NEUTRAL, ROOM, beyond_even
from firstguess_papers.sweeps import differ, failing
from firstguess_papers.tables import std

LAWS = ("normal", "uniform", "rademacher", "laplace", "orthogonal", "student(5)", "student(3)", "student(1.5)")
SLOW, ENDLESS = "student(3)", "student(1.5)"  # no fourth moment; no variance
NAMES = {
    "normal": "Gaussian", "uniform": "uniform", "rademacher": "±1 (Rademacher)", "laplace": "Laplace",
    "orthogonal": "orthogonal", "student(5)": "Student t, 5 degrees", SLOW: "Student t, 3 (no 4th moment)",
    ENDLESS: "Student t, 1.5 (no variance)",
}  # fmt: skip
DEPTH = 3
Found = Mapping[tuple[str, int], Number]  # (law, width)


def network(law: str, block: str = "relu") -> str:
    """Three hidden layers with weights of this law everywhere, Kaiming variances."""
    dense = f"dense(weight_var=2, init={law})"
    return f"{DEPTH} x [{dense} > {block}] > {dense}"


def judge(plain: Found, cured: Mapping[str, Number], theory: float) -> list[Entry]:
    """I20: `plain` is std of G₀ by law and width, `cured` what LayerNorm after ReLU leaves beyond even guesses."""
    widest = max(width for _, width in plain)
    usual = [law for law in LAWS if law not in (SLOW, ENDLESS)]
    must: dict[str, Truth] = {NAMES[law]: same(plain[law, widest], theory, room=ROOM) for law in usual}
    must |= {f"{NAMES[law]}, LayerNorm after": below(cured[law], NEUTRAL) for law in usual if law in cured}
    within: dict[str, Truth] = {NAMES[SLOW]: same(plain[SLOW, widest], theory, room=ROOM)}
    within |= {f"{NAMES[SLOW]}, LayerNorm after": below(cured[SLOW], NEUTRAL)} if SLOW in cured else {}
    seen = [plain[law, widest].value for law in usual]
    said = ", ".join(f"{NAMES[law]} {plain[law, widest]}" for law in LAWS)
    return [
        entry(
            "I20",
            f"three ReLU layers, widest: std of G₀ within {ROOM} of the closed form for Gaussian, uniform, Rademacher, "
            f"Laplace, orthogonal and Student weights of 5 degrees, and with LayerNorm after ReLU less than "
            f"{NEUTRAL:.3f} beyond even; without a limit also for Student weights of 3 degrees (no fourth moment)",
            f"width {widest}, closed form {theory:.4f}: {said}; LayerNorm after, beyond even: "
            + ", ".join(f"{NAMES[law]} {value}" for law, value in cured.items()),
            must.values(),
            within=within.values(),
            limit=f"with a variance but no fourth moment the limit is not reached at this width: {failing(within)}",
            headline=f"std of G₀ {min(seen):.3f} to {max(seen):.3f} by law of the weights, theory {theory:.3f}",
            otherwise=f"another law for: {failing(must)}",
        ),
        entry(
            "I20",
            f"the end of it: with weights without a variance (Student, 1.5 degrees) LayerNorm after ReLU leaves more "
            f"than {NEUTRAL:.3f} beyond even, where theory says none; without a limit the plain network's std of G₀, "
            f"too, is more than {ROOM} from the closed form at every width",
            f"LayerNorm after {cured[ENDLESS]}; plain, closed form {theory:.4f}: "
            + ", ".join(f"width {width} {value}" for (law, width), value in plain.items() if law == ENDLESS),
            [above(cured[ENDLESS], NEUTRAL)],
            within=[differ(value, theory, room=ROOM) for (law, _), value in plain.items() if law == ENDLESS],
            limit="what breaks is the cure; the plain network's spread is about the same without a variance",
            headline=f"without a variance LayerNorm after ReLU leaves {cured[ENDLESS]}",
            otherwise="even without a variance LayerNorm after ReLU leaves no bias",
        ),
    ]


weight_laws = measured(
    "igb/weight_laws", "Weights of any law with the same variance", "IGB §3; NORM §2", claims=("I20",),
    about="Eight laws of weights, three ReLU layers, Kaiming variances; blobs in {d} dimensions, {n} points; networks "
    "each by width (our sizes): {sizes}. LayerNorm after ReLU at width {wide}: {after} networks each.",
    quick=dict(d=150, n=300, sizes={40: 150, 150: 200}, wide=150, after=150),
    full=dict(d=300, n=300, sizes={50: 500, 200: 500, 600: 250}, wide=200, after=250),
    seconds=(15, 110),
    measure={"classes": 2},
    cells=lambda c: {
        (law, width): Cell(network(law), c.blob(c.n, c.d), {"inits": inits, "width": width})
        for law in LAWS for width, inits in c.sizes.items()
    } | {
        law: Cell(network(law, "relu > layernorm"), c.blob(c.n, c.d), {"inits": c.after, "width": c.wide})
        for law in LAWS
    },
    quantities=lambda c: {
        "plain": {key: std(m) for key, m in c.cells.items() if isinstance(key, tuple)},
        "cured": {law: beyond_even(c[law]) for law in LAWS},
        "theory": fg.Guesses(float(fg.predict(network("normal")).gamma[-1]), 2, c.n).std(),
    },
    judge=lambda c: judge(c.plain, c.cured, c.theory),
    table="",
    tables=lambda c: {"laws": [
        {"law": law, "width": width, "std": found, "theory": c.theory} for (law, width), found in c.plain.items()
    ]},
    charts=lambda c: {"laws": dots(
        [{"panel": "Plain ReLU", "law": NAMES[law], "width": f"width {width}", "std": found, "theory": c.theory}
         for (law, width), found in c.plain.items()]
        + [{"panel": "LayerNorm after ReLU: beyond even", "law": NAMES[law], "width": f"width {c.wide}", "std": found,
            "theory": 0.0} for law, found in c.cured.items()],
        "law", "std", by="width", panel="panel", x_domain=(-0.02, 0.42),
    )},
    holds={"laws": Holds("The distribution of the weights does not matter while tails are light", entries=(0,))},
    notes=["Student weights of 1.5 degrees have no variance: scaled by N^(−1/1.5), with which sums neither vanish nor "
           "grow."],
)  # fmt: skip
