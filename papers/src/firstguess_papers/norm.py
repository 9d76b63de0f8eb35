"""NORM: where the norm sits. The law of the guesses on random data and on CIFAR-10 (Fig 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from firstguess_papers.items import Entry, Holds, Outcome, item
from firstguess_papers.judging import Number, Truth, above, below, entry, same
from firstguess_papers.running import Run
from firstguess_papers.tables import columns, law_panel, row, std

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from firstguess import EmpiricalGuesses, Measurement, Prediction
    from firstguess.data import Data

PLACES = {
    "no norm": "relu",
    "BatchNorm before": "batchnorm > relu",
    "LayerNorm before": "layernorm > relu",
    "BatchNorm after": "relu > batchnorm",
    "LayerNorm after": "relu > layernorm",
}
DEPTHS = (1, 20)
ONE_LAYER = 0.2270630  # std of G₀ after one plain ReLU layer, √(arcsin(1/π)/2π): theory.md §3
NEUTRAL = ONE_LAYER / 3  # what still counts as neutral in the checks of this file
ROOM = 0.03  # difference of two standard deviations of G₀ that does not matter: an eighth of ONE_LAYER

Found = dict[tuple[str, int, int], "Measurement"]  # (place, depth, width)


def network(place: str, depth: int) -> str:
    """`depth` hidden layers with a norm in one of the `PLACES`, Kaiming, no biases."""
    return f"{depth} x [dense(weight_var=2) > {PLACES[place]}] > dense(weight_var=2)"


def kernel_law(run: Run, text: str, data: Data, *, classes: int = 2) -> EmpiricalGuesses:
    """The law of the guesses by the kernel reading of these very points (theory.md (11)), kept as a piece."""
    from firstguess import EmpiricalGuesses

    def compute() -> dict[str, object]:
        import firstguess as fg

        p = fg.predict(text, data=data, classes=classes, draws=4000, seed=run.seed)
        assert isinstance(p.guesses, EmpiricalGuesses)
        return {"fractions": p.guesses.fractions, "gamma": float(p.gamma[-1])}

    kept = run.piece(
        {"kernel": text, "data": data.hash, "classes": classes, "draws": 4000}, compute, label=f"kernel of {text}"
    )
    return EmpiricalGuesses(kept["fractions"], data.n, run.seed)


def _laws(run: Run, data: Data, widths: tuple[int, ...], inits: int, wider: int = 0) -> Found:
    found: Found = {}
    for width in widths:
        for depth in DEPTHS:
            for place in PLACES:
                found[place, depth, width] = run.measure(
                    network(place, depth),
                    data,
                    inits=inits if width == widths[0] else wider,
                    width=width,
                    classes=2,
                    probe="output",
                    label=f"{place}, {depth} layers of {width}",
                )
    return found


def _rows(found: Found, data: str) -> list[dict[str, object]]:
    import firstguess as fg

    return [
        row(place, m, data=data, depth=depth, width=width, theory_std=fg.predict(network(place, depth)).guesses.std())
        for (place, depth, width), m in found.items()
    ]


def beyond_even(m: Measurement) -> Number:
    """Standard deviation of G₀ beyond that of n independent even guesses, ½/√n: 0 where γ = 0, for any n."""
    whole = std(m)
    rest = float(np.sqrt(max(whole.value**2 - 0.25 / m.points, 0.0)))
    return Number(rest, whole.error * (whole.value / rest if rest > 0.5 * whole.value else 2.0))


def paired(one: Measurement, other: Measurement) -> Number:
    """Difference of two standard deviations of G₀ whose members share their weights: by the jackknife over members."""
    a, b = one.guesses.fractions[:, 0], other.guesses.fractions[:, 0]
    n = len(a)

    def without(x: NDArray[np.float64]) -> NDArray[np.float64]:
        centred = x - x.mean()
        return np.sqrt(np.maximum((centred**2).sum() - centred**2 * n / (n - 1), 0.0) / (n - 2))

    left_out = without(a) - without(b)
    error = float(np.sqrt((n - 1) / n * np.square(left_out - left_out.mean()).sum()))
    return Number(float(a.std(ddof=1) - b.std(ddof=1)), error)


def _spread(found: Found, place: str, depth: int, width: int) -> Number:
    return std(found[place, depth, width])


def _agree(found: Found, places: tuple[str, ...], widths: tuple[int, ...]) -> list[Truth]:
    import firstguess as fg

    return [
        fg.compare(fg.predict(network(place, depth)), found[place, depth, width]).agrees
        for place in places
        for depth in DEPTHS
        for width in widths
    ]


@item(
    "norm/fig3",
    "Norm before or after the activation: how untrained networks split random data",
    claims=("N1", "N2", "N3", "N4"),
    where="NORM Fig 3, Th 4.1-4.4",
    about="1 and 20 hidden ReLU layers of {widths} (NORM: 100), Kaiming; blob of {n} points in 1000 dimensions, all of "
    "them one batch; {inits} networks each, {wider} of the wider ones.",
    quick=dict(n=400, widths=(100, 200), inits=300, wider=100),
    full=dict(n=1000, widths=(100, 400), inits=1000, wider=150),
    seconds=(12, 120),
)
def fig3(run: Run) -> Outcome:
    """N1–N4: std(G₀) at two depths and widths, against the closed form for as many points."""
    import firstguess as fg
    from firstguess import figures

    n, widths, inits, wider = run.take("n widths inits wider")
    found = _laws(run, fg.data.blob(n, 1000, seed=run.seed), widths, inits, wider)
    panels = [
        law_panel(
            f"{place}, {depth} layer{'s' if depth > 1 else ''}",
            found[place, depth, widths[0]],
            theory={"theory": fg.predict(network(place, depth))},
            note=f"std {std(found[place, depth, widths[0]])}",
        )
        for depth in DEPTHS
        for place in PLACES
    ]
    chart = figures.panels_chart(
        panels,
        title="Guesses with norms before and after the activation",
        subtitle=[
            f"Random data, {n:,} points; layers of {widths[0]}, {inits:,} networks a panel. Lines: closed form for "
            "infinite width and as many points, no free parameter."
        ],
        columns=5,
        width=200,
    )
    return Outcome(
        [_batchnorm_before(found, widths), *_after(found, widths), _layernorm_before(found, widths)],
        {"laws": columns(_rows(found, "blob"))},
        {"laws": chart},
        ["The paper's numbers of points and networks are not given: ours. Every check is made at both widths."],
        holds={
            "laws": Holds(
                "After the activation a norm makes guesses even; before it, bias stays (BatchNorm) or grows (LayerNorm)"
            )
        },
    )


def _said(found: Found, place: str, widths: tuple[int, ...]) -> str:
    return "; ".join(
        f"width {w}: {' → '.join(str(_spread(found, place, depth, w)) for depth in DEPTHS)}" for w in widths
    )


def _batchnorm_before(found: Found, widths: tuple[int, ...]) -> Entry:
    must: list[Truth] = []
    for w in widths:
        must += [same(_spread(found, "BatchNorm before", depth, w), ONE_LAYER, room=ROOM) for depth in DEPTHS]
    return entry(
        "N1",
        f"with BatchNorm before ReLU, std of G₀ at 1 and at 20 layers is that of one plain layer ({ONE_LAYER:.4f}) "
        f"within {ROOM}",
        f"1 → 20 layers, {_said(found, 'BatchNorm before', widths)}",
        must,
        within=_agree(found, ("BatchNorm before",), widths),
        limit="the level is kept within the room, but some law differs from the closed form (finite width)",
    )


def _after(found: Found, widths: tuple[int, ...]) -> list[Entry]:
    entries: list[Entry] = []
    for claim, place in (("N2", "BatchNorm after"), ("N4", "LayerNorm after")):
        cases = [found[place, depth, w] for depth in DEPTHS for w in widths]
        even = 0.5 / np.sqrt(cases[0].points)
        entries.append(
            entry(
                claim,
                f"{place} ReLU: std of G₀ beyond that of even guesses is below {NEUTRAL:.3f}, a third of one plain "
                "layer's, at 1 and 20 layers; without a limit if nowhere clearly more than even guesses have (γ = 0)",
                f"1 → 20 layers, {_said(found, place, widths)}; even guesses of independent points have {even:.4f}",
                [below(beyond_even(m), NEUTRAL) for m in cases],
                within=[above(std(m), even) is not True for m in cases],
                limit="only in wide networks is nothing left: narrow deep ones keep a little (see the two widths)",
            )
        )
    return entries


def _layernorm_before(found: Found, widths: tuple[int, ...]) -> Entry:
    must: list[Truth] = []
    for w in widths:
        must += [same(paired(found["LayerNorm before", d, w], found["no norm", d, w]), 0.0, room=ROOM) for d in DEPTHS]
        must.append(
            above(_spread(found, "LayerNorm before", 20, w), _spread(found, "LayerNorm before", 1, w), by=2 * ROOM)
        )
    return entry(
        "N3",
        f"with LayerNorm before ReLU, std of G₀ is that without a norm within {ROOM}, at 1 and at 20 layers, and "
        f"larger at 20 by more than {2 * ROOM:g}",
        f"1 → 20 layers, {_said(found, 'LayerNorm before', widths)}; no norm: {_said(found, 'no norm', widths)}",
        must,
        within=_agree(found, ("LayerNorm before",), widths),
        limit="as without a norm, but some law differs from the closed form: finite width weakens deep bias",
    )


@item(
    "norm/fig3-cifar10",
    "The same on CIFAR-10: how far random data serve as a model of images",
    claims=("N8",),
    where="NORM Fig 3",
    needs=("cifar10",),
    about="1 and 20 hidden ReLU layers of {widths}, Kaiming, two outputs; {n} CIFAR-10 images, standardized by "
    "channel, one batch; {inits} networks each, {wider} of the wider ones. Kernel reading of the same images "
    "(BatchNorm: up to {deepest} layers).",
    quick=dict(n=250, widths=(100,), inits=240, wider=0, deepest=1),
    full=dict(n=600, widths=(100, 400), inits=1000, wider=150, deepest=20),
    seconds=(12, 150),
)
def fig3_cifar10(run: Run) -> Outcome:
    """N8: std(G₀) on images against the closed form for random data, and against the kernel reading."""
    import firstguess as fg
    from firstguess import figures

    n, widths, inits, wider, deepest = run.take("n widths inits wider deepest")
    x = run.data("cifar10", points=n)
    found = _laws(run, x, widths, inits, wider)
    kernels = {
        (place, depth): kernel_law(run, network(place, depth), x)
        for place in PLACES
        for depth in DEPTHS
        if depth <= deepest or "Batch" not in place
    }
    panels = []
    for depth in DEPTHS:
        for place in PLACES:
            theory: dict[str, Prediction | EmpiricalGuesses] = {"random data": fg.predict(network(place, depth))}
            panel = law_panel(
                f"{place}, {depth} layer{'s' if depth > 1 else ''}",
                found[place, depth, widths[0]],
                theory=theory | ({"kernel, these images": kernels[place, depth]} if (place, depth) in kernels else {}),
                note=f"std {std(found[place, depth, widths[0]])}",
            )
            panels.append(panel)
    differences = {
        key: std(m) - Number(fg.predict(network(key[0], key[1]), points=n).guesses.std()) for key, m in found.items()
    }
    biased = [d for (place, _, _), d in differences.items() if "after" not in place]
    after = [d for (place, _, _), d in differences.items() if "after" in place]
    known = [same(std(found[p, d, widths[-1]]), kernels[p, d].std(), room=ROOM) for p, d in kernels]
    chart = figures.panels_chart(
        panels,
        title="CIFAR-10: guesses with norms before and after the activation",
        subtitle=[
            f"{n:,} images, two outputs; layers of {widths[0]}, {inits:,} networks a panel. Kernel: infinite width, "
            "these very images, no free parameter."
        ],
        columns=5,
        width=200,
    )
    worst = max(differences, key=lambda key: abs(differences[key].value))
    shown = ", ".join(f"{place}, {depth}: {std(m)}" for (place, depth, width), m in found.items() if width == widths[0])
    rows = _rows(found, "cifar10")
    for line, key in zip(rows, found, strict=True):
        line["kernel_std"] = kernels[key[0], key[1]].std() if (key[0], key[1]) in kernels else None
    return Outcome(
        [
            entry(
                "N8",
                "std of G₀ on CIFAR-10 within 0.05 of the closed form for random data: without a norm and with one "
                "before the activation; without a limit if also with one after it",
                f"{shown}; the largest difference is {differences[worst]} ({worst[0]}, {worst[1]} layers)",
                [same(d, 0.0, room=0.05) for d in biased],
                within=[same(d, 0.0, room=0.05) for d in after],
                limit="not with a norm after the activation: images are not independent of each other, and LayerNorm "
                "does not remove what they share",
                otherwise=f"off by more than 0.05: {worst[0]}, {worst[1]} layers, {differences[worst]}",
            ),
            entry(
                "N8",
                f"beyond the paper: the kernel reading of the same images gives std of G₀ within {ROOM}",
                ", ".join(f"{p}, {d}: {kernels[p, d].std():.4f}" for p, d in kernels),
                known,
                otherwise="finite width: the kernel is for infinitely wide layers",
            ),
        ],
        {"laws": columns(rows)},
        {"laws": chart},
        [
            "Two outputs on images of all ten classes: labels play no part before training.",
            "Numbers of images and networks are ours.",
        ],
        holds={
            "laws": Holds(
                "CIFAR-10 follows the theory for random data, without a norm and with one before ReLU", entries=(0,)
            )
        },
    )
