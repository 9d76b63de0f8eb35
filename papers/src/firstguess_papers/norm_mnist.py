"""NORM App. G: the norm's place on MNIST, even against odd digits, before training (Figs G.5, G.6)."""

from __future__ import annotations

from firstguess_papers.items import Holds, Outcome, item
from firstguess_papers.judging import Number, above, below, entry, same
from firstguess_papers.norm import DEPTHS, ONE_LAYER, PLACES, ROOM, beyond_even, kernel_law, network
from firstguess_papers.running import Run
from firstguess_papers.tables import columns, law_panel, row, std

NEARLY = 0.05  # std of G₀ beyond even guesses that still counts as nearly neutral


@item(
    "norm/fig-g5",
    "The norm's place on MNIST, even against odd digits",
    claims=("N9",),
    where="NORM Figs G.5, G.6 (initialization)",
    needs=("mnist",),
    about="1 and 20 hidden ReLU layers of {widths} (NORM: 100), Kaiming; {n} MNIST digits, standardized, one batch; "
    "{inits} networks each. Kernel reading of the same digits.",
    quick=dict(n=160, widths=(100, 200), inits=(400, 100)),
    full=dict(n=500, widths=(100, 400), inits=(1000, 150)),
    seconds=(15, 150),
)
def fig_g5(run: Run) -> Outcome:
    """N9: std(G₀) by place and depth on MNIST, against random data's closed form and against the kernel reading."""
    import firstguess as fg
    from firstguess import figures

    n, widths, inits = run.take("n widths inits")
    x = run.data("mnist:even-odd", points=n)
    found = {
        (place, depth, width): run.measure(
            network(place, depth),
            x,
            inits=many,
            width=width,
            probe="output",
            label=f"{place}, {depth} layers of {width}",
        )
        for width, many in zip(widths, inits, strict=True)
        for depth in DEPTHS
        for place in PLACES
    }
    kernels = {(p, d): kernel_law(run, network(p, d), x) for d in DEPTHS for p in PLACES}
    panels = [
        law_panel(
            f"{place}, {depth} layer{'s' if depth > 1 else ''}",
            found[place, depth, widths[0]],
            theory={
                "kernel, these digits": kernels[place, depth],
                "closed form, random data": fg.predict(network(place, depth)),
            },
            note=f"std {std(found[place, depth, widths[0]])}",
        )
        for depth in DEPTHS
        for place in PLACES
    ]
    chart = figures.panels_chart(
        panels,
        title="MNIST: guesses with norms before and after the activation",
        subtitle=[
            f"{n} digits, even against odd; layers of {widths[0]}, {inits[0]:,} networks a panel. The kernel reading "
            "knows the digits, the closed form does not; neither has a free parameter."
        ],
        columns=5,
        width=200,
    )
    less = [
        below(std(found[f"{norm} after", depth, w]), std(found[f"{norm} before", depth, w]))
        for norm in ("BatchNorm", "LayerNorm")
        for depth in DEPTHS
        for w in widths
    ]
    layernorm = [beyond_even(found["LayerNorm after", 1, w]) for w in widths]
    batchnorm = [beyond_even(found["BatchNorm after", depth, w]) for depth in DEPTHS for w in widths]
    off = {
        key: std(found[(*key, widths[-1])]) - Number(law.std(), law.standard_error("std"))
        for key, law in kernels.items()
    }
    worst = max(off, key=lambda key: abs(off[key].value))
    first = {place: std(found[place, 1, widths[0]]) for place in PLACES}
    deep = {place: std(found[place, 20, widths[0]]) for place in PLACES}
    rows = [
        row(place, m, depth=depth, width=width, kernel_std=kernels[place, depth].std(),
            closed_form_std=fg.predict(network(place, depth), points=n).guesses.std())
        for (place, depth, width), m in found.items()
    ]  # fmt: skip
    return Outcome(
        [
            entry(
                "N9",
                "std of G₀ is lower with the norm after than before (both norms, depths, widths); beyond even guesses "
                f"it is above {NEARLY} for LayerNorm after one layer and below {NEARLY} for BatchNorm after, at 1 and "
                "20 layers",
                "1 layer: "
                + ", ".join(f"{p} {v}" for p, v in first.items())
                + "; 20 layers: "
                + ", ".join(f"{p} {v}" for p, v in deep.items()),
                [*less, *(above(v, NEARLY) for v in layernorm), *(below(v, NEARLY) for v in batchnorm)],
            ),
            entry(
                "N9",
                "it departs in size: without a norm, std of G₀ after one layer is above that of random data "
                f"({ONE_LAYER:.4f})",
                f"{first['no norm']}",
                [above(first["no norm"], ONE_LAYER)],
            ),
            entry(
                "N9",
                f"beyond the paper: the kernel reading gives std of G₀ in all ten cases within {ROOM} of networks of "
                f"width {widths[-1]}",
                f"largest difference {off[worst]} ({worst[0]}, {worst[1]} layers); LayerNorm after one layer: kernel "
                f"{kernels['LayerNorm after', 1].std():.4f}, measured {std(found['LayerNorm after', 1, widths[-1]])}",
                [same(v, 0.0, room=ROOM) for v in off.values()],
                otherwise="finite width: at 20 layers narrow networks differ from infinitely wide ones",
            ),
        ],
        {"laws": columns(rows)},
        {"laws": chart},
        ["The number of digits is ours: the kernel reading with BatchNorm takes time as its square."],
        holds={
            "laws": Holds(
                "On MNIST a norm after ReLU still means less bias, but LayerNorm after one layer is far from neutral",
                entries=(0,),
            )
        },
    )
