"""IGB §3, App. I.1: structure in the data amplifies bias. Where it does, and where it does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import firstguess as fg
from firstguess_papers.charts import lines, predicted
from firstguess_papers.items import Entry, Holds, Outcome, item
from firstguess_papers.judging import Number, Truth, above, entry, same
from firstguess_papers.running import Run
from firstguess_papers.sweeps import deep
from firstguess_papers.tables import columns, std

NOISE = "independent pixels"
PHI = {"ReLU": "relu", "GELU": "gelu", "tanh": "tanh"}
SHALLOW = 1
ROOM = 0.04  # between kernel and networks, of the standard deviation of G₀
Key = tuple[str, str, int]  # data, activation, depth
Found = Mapping[Key, Number]


def exact_std(covariance: NDArray[np.float64]) -> float:
    """Standard deviation of G₀ over networks of infinite width, two classes: theory.md (41), with no draws.

    Var G₀ = Σ_ab arcsin(c_ab)/(2πn²), c the correlation of the logits at points a and b; a = b gives 1/4n.

    >>> print(exact_std(np.ones((5, 5))), exact_std(np.eye(25)))  # all points alike; all independent
    0.5 0.1
    """
    scale = np.sqrt(covariance.diagonal())
    c = np.clip(covariance / np.outer(scale, scale), -1.0, 1.0)
    return float(np.sqrt(np.arcsin(c).mean() / (2 * np.pi)))


def judge(found: Found, kernel: Mapping[Key, float]) -> list[Entry]:
    """I23: std of G₀ on images against noise of the same shape, shallow and deep, by the kernel and by networks."""
    # The kernel has no error, so that it decides; networks of finite width must not contradict it.
    more = {key: kernel[key] > kernel[NOISE, key[1], key[2]] for key in found if key[0] != NOISE}
    seen: dict[Key, Truth] = {key: above(found[key], found[NOISE, key[1], key[2]]) for key in more}
    less: dict[Key, Truth] = {key: above(found[NOISE, key[1], key[2]], found[key]) for key in more}
    against = [key for key in more if (less[key] if more[key] else seen[key]) is True]
    pairs = [f"{phi}, depth {depth}, {data}: {found[data, phi, depth]} against {found[NOISE, phi, depth]} (kernel "
             f"{kernel[data, phi, depth]:.4f}, {kernel[NOISE, phi, depth]:.4f})"
             for data, phi, depth in more]  # fmt: skip
    where = f"less biased on images: {named([key for key, larger in more.items() if not larger])}; surely so among " + (
        f"networks: {named([key for key, check in less.items() if check is True])}"
    )
    worst = max(found, key=lambda key: abs(found[key].value - kernel[key]))
    return [
        entry(
            "I23",
            "std of G₀ is larger on images than on independent pixels, for ReLU, GELU and tanh after one hidden layer "
            "(kernel reading of these points, exact at infinite width, and no measured pair surely contradicts it); "
            "without a limit at every depth",
            "; ".join(pairs),
            [*(larger for key, larger in more.items() if key[2] == SHALLOW), not against],
            within=[larger for key, larger in more.items() if key[2] != SHALLOW],
            headline=f"more biased than on independent pixels in {sum(more.values())} of {len(more)} settings",
            limit=f"not at every depth; {where}",
            otherwise=f"networks against the kernel: {named(against)}; {where}",
        ),
        entry(
            "I23",
            f"the kernel reading of these very points has all of them: within {ROOM} of networks, on images and noise",
            f"largest departure {found[worst]} against {kernel[worst]:.4f} ({named([worst])})",
            [same(value, kernel[key], room=ROOM) for key, value in found.items()],
            headline=f"largest departure: {found[worst]} against {kernel[worst]:.3f}",
            otherwise="networks of this width depart from it by more",
        ),
    ]


def named(keys: Sequence[Key]) -> str:
    """Settings in words."""
    return ", ".join(f"{phi} on {data}, depth {depth}" for data, phi, depth in keys) or "nowhere"


def _kernel(run: Run, text: str, data: Any) -> float:
    def compute() -> dict[str, Any]:

        p = fg.predict(text, data=data, classes=2, draws=100)
        assert p.covariance is not None
        return {"std": exact_std(np.asarray(p.covariance))}

    return float(run.piece({"kernel": text, "data": data.hash}, compute, label=f"kernel of {text}")["std"])


@item(
    "igb/structure",
    "Does structure in the data amplify bias?",
    claims=("I23",),
    where="IGB §3, App. I.1",
    needs=("mnist", "cifar10"),
    about="MNIST and CIFAR-10 images (standardized, {n} each) and noise of CIFAR-10's shape; ReLU, GELU and tanh, "
    "hidden layers: width and networks each = {sizes}, Kaiming, two classes (our sizes); the kernel reading of the "
    "same points.",
    quick=dict(n=150, sizes={1: (200, 250), 20: (150, 60)}),
    full=dict(n=200, sizes={1: (300, 1500), 5: (300, 300), 20: (300, 300)}),
    seconds=(15, 110),
)
def structure(run: Run) -> Outcome:
    """I23: std of G₀ by depth, on images and on noise, with the kernel reading."""

    n, sizes = run.take("n sizes")
    images = {"MNIST": run.data("mnist:test", points=n), "CIFAR-10": run.data("cifar10:test", points=n)}
    rng = np.random.default_rng([run.seed, 23])
    noise = fg.data.as_data(rng.standard_normal((n, 3072), dtype=np.float32))
    data: dict[str, Any] = {NOISE: noise} | {name: fg.data.as_data(x.flat()) for name, x in images.items()}
    found: dict[Key, Number] = {}
    kernel: dict[Key, float] = {}
    depths = sorted({1, 2, 5, 10, 20} | set(sizes))
    for name, x in data.items():
        for label, phi in PHI.items():
            for depth, (width, inits) in sizes.items():
                found[name, label, depth] = std(
                    run.measure(deep(phi, depth), x, inits=inits, width=width, classes=2, probe="output",
                                label=f"{label}, {depth} layers, {name}")
                )  # fmt: skip
            kernel |= {(name, label, depth): _kernel(run, deep(phi, depth), x) for depth in depths}
    entries = judge(found, kernel)
    rows = [
        {"data": name, "activation": phi, "depth": depth, "std": v, "kernel": kernel[name, phi, depth]}
        for (name, phi, depth), v in found.items()
    ]
    known = {label: [predicted(name, depths, [kernel[name, label, k] for k in depths]) for name in data]
             for label in PHI}  # fmt: skip
    chart = lines(
        rows, "depth", "std", by="data", panel="activation", also=known,
        title="Guesses on images against independent pixels (lines: kernel reading of the same points)",
        x_scale="log", y_domain=(0.0, 0.5), x_domain=(0.8, 26.0), width=290, height=300,
    )  # fmt: skip
    return Outcome(entries, {"structure": columns(rows)}, {"structure": chart}, [
        "Images are standardized as in the papers (CIFAR-10 per channel): their pixels keep means of their own."
    ], {"structure": Holds("Images bias networks more than independent pixels do", (0,), ("holds",))})  # fmt: skip
