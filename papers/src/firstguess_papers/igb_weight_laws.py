"""IGB §3, NORM §2: any centred independent weights of the same variance give the same law. Heavy tails are the end."""

from __future__ import annotations

from collections.abc import Mapping

from firstguess_papers.items import Entry, Outcome, item
from firstguess_papers.judging import Number, Truth, above, all_of, below, entry, same, stated
from firstguess_papers.norm import NEUTRAL, ROOM, beyond_even
from firstguess_papers.running import Run
from firstguess_papers.sweeps import differ, failing
from firstguess_papers.tables import columns, std

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


@item(
    "igb/weight_laws",
    "Weights of any law with the same variance",
    claims=("I20",),
    where="IGB §3; NORM §2",
    about="Eight laws of weights, three ReLU layers, Kaiming variances; blobs in {d} dimensions, {n} points; networks "
    "each by width (our sizes): {sizes}. LayerNorm after ReLU at width {wide}: {after} networks each.",
    quick=dict(d=150, n=300, sizes={40: 150, 150: 200}, wide=150, after=150),
    full=dict(d=300, n=300, sizes={50: 500, 200: 500, 600: 250}, wide=200, after=250),
    seconds=(15, 110),
)
def weight_laws(run: Run) -> Outcome:
    """I20: std of G₀ by the law of the weights and the width, against the closed form."""
    import firstguess as fg
    from firstguess_papers.library import Dot, dots_chart

    d, n, sizes, wide, after = run.take("d n sizes wide after")
    x = fg.data.blob(n, d, seed=run.seed)
    plain = {
        (law, width): std(run.measure(network(law), x, inits=inits, width=width, classes=2, probe="output",
                                      label=f"{law}, width {width}"))
        for law in LAWS for width, inits in sizes.items()
    }  # fmt: skip
    cured = {
        law: beyond_even(run.measure(network(law, "relu > layernorm"), x, inits=after, width=wide, classes=2,
                                     probe="output", label=f"{law}, LayerNorm after"))
        for law in LAWS
    }  # fmt: skip
    theory = fg.Guesses(float(fg.predict(network("normal")).gamma[-1]), 2, n).std()
    entries = judge(plain, cured, theory)
    widths = list(sizes)
    panels: dict[str, list[Dot]] = {"Plain ReLU": [], f"LayerNorm after ReLU, width {wide}: beyond even": []}
    plainly, even = panels.values()
    for law in LAWS:
        plainly += [Dot(NAMES[law], f"width {w}", plain[law, w].value, plain[law, w].error) for w in widths]
        plainly.append(Dot(NAMES[law], "closed form", theory))
        even += [
            Dot(NAMES[law], f"width {wide}", cured[law].value, cured[law].error),
            Dot(NAMES[law], "closed form", 0),
        ]
    usual = all_of(same(plain[law, widths[-1]], theory, room=ROOM) for law in LAWS if law not in (SLOW, ENDLESS))
    chart = dots_chart(
        panels,
        title=stated(
            usual,
            "The law of the weights does not matter while tails are light; without a variance LayerNorm after ReLU "
            f"leaves {cured[ENDLESS].value:.2f}",
            f"Spread of the guesses by the law of the weights; without a variance LayerNorm after ReLU leaves "
            f"{cured[ENDLESS].value:.2f}",
        ),
        subtitle=["Three hidden layers, Kaiming variances, random data, two classes; measured ± 2 standard errors. "
                  "Orthogonal weights are not independent."],
        x_title="Standard deviation of a guess fraction", x_domain=(-0.02, 0.42), columns=2, width=360,
    )  # fmt: skip
    rows = [
        {"law": law, "width": width, "std": v.value, "std_error": v.error, "theory": theory}
        for (law, width), v in plain.items()
    ]
    return Outcome(entries, {"laws": columns(rows)}, {"laws": chart}, [
        "Student weights of 1.5 degrees have no variance: scaled by N^(−1/1.5), with which sums neither vanish "
        "nor grow."
    ])  # fmt: skip
