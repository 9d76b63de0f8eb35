"""NORM: where the norm sits. The law of the guesses on random data, CIFAR-10 (Fig 3) and MNIST (Figs G.5, G.6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

import firstguess as fg
from firstguess_papers.items import Holds
from firstguess_papers.judging import Number, Truth, above, below, same
from firstguess_papers.measured import Cell, Found, Tested, measured
from firstguess_papers.running import Run
from firstguess_papers.tables import law_panel, std

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from firstguess import EmpiricalGuesses, Measurement
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
NEARLY = 0.05  # std of G₀ beyond even guesses that still counts as nearly neutral, on digits
ROOM = 0.03  # difference of two standard deviations of G₀ that does not matter: an eighth of ONE_LAYER


def network(place: str, depth: int) -> str:
    """`depth` hidden layers with a norm in one of the `PLACES`, Kaiming, no biases."""
    return f"{depth} x [dense(weight_var=2) > {PLACES[place]}] > dense(weight_var=2)"


def kernel_law(run: Run, text: str, data: Data, *, classes: int = 2) -> EmpiricalGuesses:
    """The law of the guesses by the kernel reading of these very points (theory.md (11)), kept as a piece."""
    from firstguess import EmpiricalGuesses

    def compute() -> dict[str, object]:
        p = fg.predict(text, data=data, classes=classes, draws=4000, seed=run.seed)
        assert isinstance(p.guesses, EmpiricalGuesses)
        return {"fractions": p.guesses.fractions, "gamma": float(p.gamma[-1])}

    kept = run.piece(
        {"kernel": text, "data": data.hash, "classes": classes, "draws": 4000}, compute, label=f"kernel of {text}"
    )
    return EmpiricalGuesses(kept["fractions"], data.n, run.seed)


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


def _cells(c: Found, x: Data, **options: Any) -> dict[Any, Cell]:
    """Every place of the norm at every depth, of the first width and of the others, with their numbers of networks."""
    c.known["x"] = x
    many = c.inits if isinstance(c.inits, tuple) else (c.inits, *[c.wider] * (len(c.widths) - 1))
    return {
        (place, depth, width): Cell(network(place, depth), x, {"inits": inits, "width": width, **options})
        for width, inits in zip(c.widths, many, strict=True)
        for depth in DEPTHS
        for place in PLACES
    }


def _spreads(c: Found, place: str) -> str:
    """std of G₀ at both depths, width by width."""
    return "; ".join(f"width {w}: {' → '.join(str(std(c[place, depth, w])) for depth in DEPTHS)}" for w in c.widths)


def _of(c: Found, place: str) -> list[Measurement]:
    return [c[place, depth, width] for depth in DEPTHS for width in c.widths]


def _agree(c: Found, place: str) -> list[Truth]:
    keys = [(depth, width) for depth in DEPTHS for width in c.widths]
    return [fg.compare(fg.predict(network(place, d)), c[place, d, w]).agrees for d, w in keys]


def _laws(c: Found, title: str, subtitle: str, theory: Any) -> dict[str, Any]:
    """A panel a place and depth at the first width, with the laws that `theory(place, depth)` gives."""
    panels = [
        law_panel(
            f"{place}, {depth} layer{'s' if depth > 1 else ''}",
            c[place, depth, c.widths[0]],
            theory=theory(place, depth),
            note=f"std {std(c[place, depth, c.widths[0]])}",
        )
        for depth in DEPTHS
        for place in PLACES
    ]
    return {"laws": fg.figures.panels_chart(panels, title=title, subtitle=[subtitle], columns=5, width=200)}


def _neutral(claim: str, place: str) -> Tested:
    return Tested(
        claim,
        f"{place} ReLU: std of G₀ beyond that of even guesses is below {NEUTRAL:.3f}, a third of one plain layer's, at "
        "1 and 20 layers; without a limit if nowhere clearly more than even guesses have (γ = 0)",
        lambda c: (
            f"1 → 20 layers, {_spreads(c, place)}; even guesses of independent points have {0.5 / np.sqrt(c.n):.4f}"
        ),
        lambda c: [below(beyond_even(m), NEUTRAL) for m in _of(c, place)],
        within=lambda c: [above(std(m), 0.5 / np.sqrt(c.n)) is not True for m in _of(c, place)],
        limit="only in wide networks is nothing left: narrow deep ones keep a little (see the two widths)",
    )


def _as_without(c: Found) -> list[Truth]:
    checks: list[Truth] = []
    for w in c.widths:
        checks += [same(paired(c["LayerNorm before", d, w], c["no norm", d, w]), 0.0, room=ROOM) for d in DEPTHS]
        checks.append(above(std(c["LayerNorm before", 20, w]), std(c["LayerNorm before", 1, w]), by=2 * ROOM))
    return checks


fig3 = measured(
    "norm/fig3", "Norm before or after the activation: how untrained networks split random data",
    "NORM Fig 3, Th 4.1-4.4",
    about="1 and 20 hidden ReLU layers of {widths} (NORM: 100), Kaiming; blob of {n} points in 1000 dimensions, all of "
    "them one batch; {inits} networks each, {wider} of the wider ones.",
    quick=dict(n=400, widths=(100, 200), inits=300, wider=100),
    full=dict(n=1000, widths=(100, 400), inits=1000, wider=150),
    seconds=(12, 120),
    cells=lambda c: _cells(c, c.blob(c.n, 1000), classes=2),
    rows=lambda c, place, depth, width: {
        "data": "blob", "depth": depth, "width": width, "theory_std": fg.predict(network(place, depth)).guesses.std(),
    },
    tests=[
        Tested(
            "N1",
            f"with BatchNorm before ReLU, std of G₀ at 1 and at 20 layers is that of one plain layer ({ONE_LAYER:.4f}) "
            f"within {ROOM}",
            lambda c: f"1 → 20 layers, {_spreads(c, 'BatchNorm before')}",
            lambda c: [same(std(m), ONE_LAYER, room=ROOM) for m in _of(c, "BatchNorm before")],
            within=lambda c: _agree(c, "BatchNorm before"),
            limit="the level is kept within the room, but some law differs from the closed form (finite width)",
        ),
        _neutral("N2", "BatchNorm after"),
        _neutral("N4", "LayerNorm after"),
        Tested(
            "N3",
            f"with LayerNorm before ReLU, std of G₀ is that without a norm within {ROOM}, at 1 and at 20 layers, and "
            f"larger at 20 by more than {2 * ROOM:g}",
            lambda c: f"1 → 20 layers, {_spreads(c, 'LayerNorm before')}; no norm: {_spreads(c, 'no norm')}",
            _as_without,
            within=lambda c: _agree(c, "LayerNorm before"),
            limit="as without a norm, but some law differs from the closed form: finite width weakens deep bias",
        ),
    ],
    charts=lambda c: _laws(
        c, "Guesses with norms before and after the activation",
        f"Random data, {c.n:,} points; layers of {c.widths[0]}, {c.inits:,} networks a panel. "
        "Lines: closed form for infinite width and as many points, no free parameter.",
        lambda place, depth: {"theory": fg.predict(network(place, depth))},
    ),
    holds={"laws": Holds(
        "After the activation a norm makes guesses even; before it, bias stays (BatchNorm) or grows (LayerNorm)"
    )},
    notes=["The paper's numbers of points and networks are not given: ours. Every check is made at both widths."],
)  # fmt: skip


def _kernels(c: Found, deepest: int = 20) -> dict[tuple[str, int], EmpiricalGuesses]:
    """Kernel readings by place and depth; of BatchNorm, which takes time, up to a depth."""
    keys = [(place, depth) for place in PLACES for depth in DEPTHS if depth <= deepest or "Batch" not in place]
    return {(place, depth): kernel_law(c.run, network(place, depth), c.x) for place, depth in keys}


def _off_random(c: Found) -> dict[Any, Number]:
    """std of G₀ less that of the closed form for random data."""
    known = {key: fg.predict(network(*key), points=c.n).guesses.std() for key in _keys()}
    return {key: std(m) - Number(known[key[:2]]) for key, m in c.cells.items()}


def _keys() -> list[tuple[str, int]]:
    return [(place, depth) for depth in DEPTHS for place in PLACES]


def _farthest(numbers: Mapping[Any, Number]) -> Any:
    return max(numbers, key=lambda key: abs(numbers[key].value))


def _named(c: Found, key: Any) -> str:
    return f"{key[0]}, {key[1]} layers"


fig3_cifar10 = measured(
    "norm/fig3-cifar10", "The same on CIFAR-10: how far random data serve as a model of images", "NORM Fig 3",
    needs=("cifar10",), seconds=(12, 150),
    about="1 and 20 hidden ReLU layers of {widths}, Kaiming, two outputs; {n} CIFAR-10 images, standardized by "
    "channel, one batch; {inits} networks each, {wider} of the wider ones. Kernel reading of the same images "
    "(BatchNorm: up to {deepest} layers).",
    quick=dict(n=250, widths=(100,), inits=240, wider=0, deepest=1),
    full=dict(n=600, widths=(100, 400), inits=1000, wider=150, deepest=20),
    cells=lambda c: _cells(c, c.run.data("cifar10", points=c.n), classes=2),
    quantities=lambda c: {"kernels": _kernels(c, c.deepest), "off": _off_random(c), "worst": _farthest(_off_random(c))},
    rows=lambda c, place, depth, width: {
        "data": "cifar10", "depth": depth, "width": width,
        "theory_std": fg.predict(network(place, depth)).guesses.std(),
        "kernel_std": c.kernels[place, depth].std() if (place, depth) in c.kernels else None,
    },
    tests=[
        Tested(
            "N8",
            "std of G₀ on CIFAR-10 within 0.05 of the closed form for random data: without a norm and with one before "
            "the activation; without a limit if also with one after it",
            lambda c: ", ".join(f"{p}, {d}: {std(c[p, d, c.widths[0]])}" for p, d in _keys())
            + f"; the largest difference is {c.off[c.worst]} ({_named(c, c.worst)})",
            lambda c: [same(value, 0.0, room=0.05) for key, value in c.off.items() if "after" not in key[0]],
            within=lambda c: [same(value, 0.0, room=0.05) for key, value in c.off.items() if "after" in key[0]],
            limit="not with a norm after the activation: images are not independent of each other, and LayerNorm does "
            "not remove what they share",
            otherwise=lambda c: f"off by more than 0.05: {_named(c, c.worst)}, {c.off[c.worst]}",
        ),
        Tested(
            "N8",
            f"beyond the paper: the kernel reading of the same images gives std of G₀ within {ROOM}",
            lambda c: ", ".join(f"{p}, {d}: {law.std():.4f}" for (p, d), law in c.kernels.items()),
            lambda c: [same(std(c[p, d, c.widths[-1]]), law.std(), room=ROOM) for (p, d), law in c.kernels.items()],
            otherwise="finite width: the kernel is for infinitely wide layers",
        ),
    ],
    charts=lambda c: _laws(
        c, "CIFAR-10: guesses with norms before and after the activation",
        f"{c.n:,} images, two outputs; layers of {c.widths[0]}, {c.inits:,} networks a panel. "
        "Kernel: infinite width, these very images, no free parameter.",
        lambda p, d: {"random data": fg.predict(network(p, d))}
        | ({"kernel, these images": c.kernels[p, d]} if (p, d) in c.kernels else {}),
    ),
    holds={"laws": Holds(
        "CIFAR-10 follows the theory for random data, without a norm and with one before ReLU", entries=(0,)
    )},
    notes=["Two outputs on images of all ten classes: labels play no part before training.",
           "Numbers of images and networks are ours."],
)  # fmt: skip


def _places(c: Found, depth: int) -> str:
    return ", ".join(f"{place} {std(c[place, depth, c.widths[0]])}" for place in PLACES)


def _lower_after(c: Found) -> list[Truth]:
    less = [
        below(std(c[f"{norm} after", depth, w]), std(c[f"{norm} before", depth, w]))
        for norm in ("BatchNorm", "LayerNorm")
        for depth in DEPTHS
        for w in c.widths
    ]
    layernorm = [above(beyond_even(c["LayerNorm after", 1, w]), NEARLY) for w in c.widths]
    return [*less, *layernorm, *(below(beyond_even(m), NEARLY) for m in _of(c, "BatchNorm after"))]


def _off_kernel(c: Found) -> dict[Any, Number]:
    return {
        key: std(c[(*key, c.widths[-1])]) - Number(law.std(), law.standard_error("std"))
        for key, law in c.kernels.items()
    }


fig_g5 = measured(
    "norm/fig-g5", "The norm's place on MNIST, even against odd digits", "NORM Figs G.5, G.6 (initialization)",
    needs=("mnist",), seconds=(15, 150),
    about="1 and 20 hidden ReLU layers of {widths} (NORM: 100), Kaiming; {n} MNIST digits, standardized, one batch; "
    "{inits} networks each. Kernel reading of the same digits.",
    quick=dict(n=160, widths=(100, 200), inits=(400, 100)),
    full=dict(n=500, widths=(100, 400), inits=(1000, 150)),
    cells=lambda c: _cells(c, c.run.data("mnist:even-odd", points=c.n)),
    quantities=lambda c: {"kernels": {(p, d): kernel_law(c.run, network(p, d), c.x) for p, d in _keys()}},
    rows=lambda c, place, depth, width: {
        "depth": depth, "width": width, "kernel_std": c.kernels[place, depth].std(),
        "closed_form_std": fg.predict(network(place, depth), points=c.n).guesses.std(),
    },
    tests=[
        Tested(
            "N9",
            f"std of G₀ is lower with the norm after than before (both norms, depths, widths); beyond even guesses it "
            f"is "
            f"above {NEARLY} for LayerNorm after one layer and below {NEARLY} for BatchNorm after, at 1 and 20 layers",
            lambda c: f"1 layer: {_places(c, 1)}; 20 layers: {_places(c, 20)}",
            _lower_after,
        ),
        Tested(
            "N9",
            f"it departs in size: without a norm, std of G₀ after one layer is above that of random data "
            f"({ONE_LAYER:.4f})",
            lambda c: str(std(c["no norm", 1, c.widths[0]])),
            lambda c: [above(std(c["no norm", 1, c.widths[0]]), ONE_LAYER)],
        ),
        Tested(
            "N9",
            "beyond the paper: the kernel reading gives std of G₀ in all ten cases within 0.03 of networks of the "
            "larger width",
            lambda c: f"largest difference {_off_kernel(c)[_farthest(_off_kernel(c))]} "
            f"({_named(c, _farthest(_off_kernel(c)))}); LayerNorm after one layer: kernel "
            f"{c.kernels['LayerNorm after', 1].std():.4f}, measured {std(c['LayerNorm after', 1, c.widths[-1]])}",
            lambda c: [same(value, 0.0, room=ROOM) for value in _off_kernel(c).values()],
            otherwise="finite width: at 20 layers narrow networks differ from infinitely wide ones",
        ),
    ],
    charts=lambda c: _laws(
        c, "MNIST: guesses with norms before and after the activation",
        f"{c.n} digits, even against odd; layers of {c.widths[0]}, {c.inits[0]:,} networks a "
        "panel. The kernel reading knows the digits, the closed form does not; neither has a free parameter.",
        lambda p, d: {"kernel, these digits": c.kernels[p, d],
                      "closed form, random data": fg.predict(network(p, d))},
    ),
    holds={"laws": Holds(
        "On MNIST a norm after ReLU still means less bias, but LayerNorm after one layer is far from neutral",
        entries=(0,),
    )},
    notes=["The number of digits is ours: the kernel reading with BatchNorm takes time as its square."],
)  # fmt: skip
