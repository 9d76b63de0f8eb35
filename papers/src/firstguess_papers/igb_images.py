"""IGB: convolutional networks on images (Figs 1, 10, 11, 12), ResNet and vision transformer (Fig 13)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from firstguess_papers import image_networks as networks
from firstguess_papers.image_networks import CNN_A, KINDS, Block, Kind
from firstguess_papers.items import Holds, Outcome, item
from firstguess_papers.judging import Number, Truth, above, all_of, entry, stated
from firstguess_papers.running import Run
from firstguess_papers.tables import columns, largest, law_panel, row, std

KAIMING = (2.0, 0.0)  # σw², σb²
_SHOWN = 20  # images of a class up to which the figure of 100 classes goes
ROOM = 0.05  # of the average largest fraction, beyond coin flips: from there on we say biased


def _cnn(
    run: Run, x: Any, blocks: tuple[Block, ...], kind: Kind, *, what: str, inits: int, classes: int, seed: int = 0
) -> Any:
    """One variant of a CNN on images, Kaiming weights, as a piece."""
    sizes = ", ".join(f"{b.channels}c{b.kernel}p{b.pool}s{b.stride}" for b in blocks)
    return run.measure(
        networks.cnn(blocks, kind, x.shape, classes), x, name=f"{kind}: {sizes}, {classes} classes",
        label=f"{kind}, {what}", inits=inits, init=KAIMING, probe="output", seed=run.seed + seed,
    )  # fmt: skip


def coin_flips(classes: int, points: int) -> float:
    """The average largest fraction where every point's class is drawn evenly at random."""
    import firstguess as fg

    return fg.Guesses(0.0, classes, points).expected_max()


@item(
    "igb/fig1",
    "CNN-A on two CIFAR-10 classes: the choice of activation and pool decides",
    claims=("I8",),
    where="IGB Fig 1",
    needs=("cifar10",),
    about="CNN-A (kernel {kernels}, last pool 4: our sizes), cats and dogs, {n} images; {inits} networks each, Kaiming."
    "CNN-A (kernel {kernels}, last pool 4: our sizes), cats and dogs, {n} images; {inits} networks each, Kaiming.",
    quick=dict(n=100, inits=100, kernels=(5,)),
    full=dict(n=300, inits=250, kernels=(5, 3)),
    seconds=(13, 90),
)
def fig1(run: Run) -> Outcome:
    """I8 on images: tanh with average-pooling splits evenly, ReLU with max-pooling does not."""
    from firstguess import figures

    n, inits, kernels = run.take("n inits kernels")
    x = run.data("cifar10:test,cat-dog", points=n)
    rows: list[dict[str, Any]] = []
    panels: list[Any] = []
    must: list[Truth] = []
    said: list[str] = []
    for kernel in kernels:
        blocks = tuple(Block(b.channels, kernel, b.pool, b.stride) for b in CNN_A)
        found = [_cnn(run, x, blocks, kind, what=f"kernel {kernel}", inits=inits, classes=2) for kind in KINDS]
        rows += [row(kind, m, kernel=kernel) for kind, m in zip(KINDS, found, strict=True)]
        panels += [law_panel(f"{kind}, kernel {kernel}", m) for kind, m in zip(KINDS, found, strict=True)]
        must += [above(std(found[1]), std(found[0]), by=0.1)]
        said.append(f"kernel {kernel}: std of G₀ {std(found[0])} against {std(found[1])}, largest fraction "
                    f"{largest(found[0])} against {largest(found[1])}")  # fmt: skip
    chart = figures.panels_chart(
        panels,
        title="Cats or dogs? Guesses of two variants of CNN-A",
        subtitle=[f"Fraction of {n} CIFAR-10 images guessed to be cats by CNN-A before training; {inits} networks."],
        columns=2,
        width=320,
    )
    return Outcome(
        [
            entry(
                "I8",
                "CNN-A on cat and dog images: std of G₀ is larger by over 0.1 for ReLU with max-pooling than for "
                "tanh with average-pooling",
                "; ".join(said),
                must,
            )
        ],
        {"laws": columns(rows)},
        {"laws": chart},
        [
            "The paper does not name its kernel and last pool: ours are 5 and 4; the full setting repeats it with "
            "kernel 3."
        ],
        holds={"laws": Holds("Cats or dogs? tanh + average-pool is undecided, ReLU + max-pool is sure")},
    )


@item(
    "igb/fig10",
    "CNN-B on MNIST, even or odd: data correlations amplify",
    claims=("I13",),
    where="IGB Fig 10",
    needs=("mnist",),
    about="CNN-B (16 channels, kernel {kernel}, last pool 4: our sizes), {n} images, standardized, {inits} networks "
    "each, Kaiming; half as many on noise with independent pixels.",
    quick=[dict(kernel=5, n=40, inits=60)],
    full=[dict(kernel=9, n=150, inits=50), dict(kernel=5, n=100, inits=80)],
    seconds=(20, 100),
)
def fig10(run: Run) -> Outcome:
    """I13: both variants are biased on MNIST, ReLU + max-pool more; on noise images both less."""
    import firstguess as fg
    from firstguess import figures

    sizes = run.takes("kernel n inits")
    rows: list[dict[str, Any]] = []
    panels: list[Any] = []
    must: list[Truth] = []
    amplify: list[Truth] = []
    said: list[str] = []
    for kernel, n, inits in sizes:
        x = run.data("mnist:test,even-odd", points=n)
        rng = np.random.default_rng([run.seed, 10])
        noise = fg.data.as_data(rng.standard_normal((n, *x.shape), dtype=np.float32))
        flips = coin_flips(2, n)
        on: dict[str, list[Number]] = {}
        for label, data, runs in (("MNIST", x, inits), ("noise", noise, inits // 2)):
            for kind in KINDS:
                what = f"{label}, kernel {kernel}"
                m = _cnn(run, data, networks.cnn_b(kernel=kernel), kind, what=what, inits=runs, classes=2)
                on.setdefault(label, []).append(largest(m))
                rows.append(row(kind, m, data=label, kernel=kernel))
                if kernel == sizes[0][0]:
                    panels.append(law_panel(f"{kind}, {label}", m, note=f"largest fraction {largest(m)}"))
        must += [above(value, flips, by=ROOM) for value in on["MNIST"]]
        must.append(above(on["MNIST"][1], on["MNIST"][0]))
        amplify += [above(a, b) for a, b in zip(on["MNIST"], on["noise"], strict=True)]
        pairs = "; ".join(f"{label}: {a} (tanh), {b} (ReLU)" for label, (a, b) in on.items())
        said.append(f"kernel {kernel}, average largest fraction, {pairs}; coin flips {flips:.3f}")
    chart = figures.panels_chart(
        panels,
        title='Even or odd? Guesses of two variants of CNN-B on digits and on noise',
        subtitle=[f"CNN-B with kernel {sizes[0][0]} before training, {sizes[0][2]} networks on {sizes[0][1]} images: "
        "MNIST (even or "
                  "odd), or independent Gaussian pixels."],
        columns=2, width=320,
    )  # fmt: skip
    return Outcome(
        [
            entry(
                "I13",
                f"the average largest fraction on MNIST is over {ROOM} above coin flips for both, and larger for "
                "ReLU with max-pooling; without a limit it is larger on MNIST than on noise for both variants",
                "; ".join(said),
                must,
                within=amplify,
                limit="not for both: one variant is no more biased on MNIST than on independent pixels",
            )
        ],
        {"laws": columns(rows)},
        {"laws": chart},
        ["Kernel, channels and last pool of CNN-B are ours where the paper does not give them."],
        holds={"laws": Holds("On digits both networks are biased, ReLU with max-pooling more")},
    )


@item(
    "igb/fig11",
    "CNN-B on CIFAR-10, ten classes",
    claims=("I14",),
    where="IGB Fig 11",
    needs=("cifar10",),
    about="CNN-B (16 channels, kernel {kernel}, last pool 4: our sizes), {n} images; {inits} networks each, Kaiming.",
    quick=[dict(kernel=5, n=60, inits=50)],
    full=[dict(kernel=9, n=200, inits=50), dict(kernel=5, n=100, inits=100)],
    seconds=(13, 100),
)
def fig11(run: Run) -> Outcome:
    """I14: E max larger for ReLU + max-pool; class means alike."""
    from firstguess import figures
    from firstguess_papers.library import equal_means_test

    sizes = run.takes("kernel n inits")
    rows: list[dict[str, Any]] = []
    panels: list[Any] = []
    must: list[Truth] = []
    said: list[str] = []
    for kernel, n, inits in sizes:
        x = run.data("cifar10:test", points=n)
        found: list[Number] = []
        for kind in KINDS:
            m = _cnn(run, x, networks.cnn_b(kernel=kernel), kind, what=f"kernel {kernel}", inits=inits, classes=10)
            _, chance = equal_means_test(m.guesses.fractions)
            means = m.guesses.class_means
            found.append(largest(m))
            must.append(chance > 1e-4)
            rows.append(row(kind, m, kernel=kernel, smallest_mean=float(means.min()), largest_mean=float(means.max()),
                            p_alike=chance))  # fmt: skip
            said.append(f"{kind}, kernel {kernel}: largest {found[-1]}, class means {means.min():.3f} to "
            f"{means.max():.3f} "
                        f"(alike: p = {chance:.2g})")  # fmt: skip
            if kernel == sizes[0][0]:
                panels.append(law_panel(kind, m, bins=25, note=f"average largest fraction {largest(m)}"))
        must.append(above(found[1], found[0], by=ROOM))
    chart = figures.panels_chart(
        panels,
        title='Ten classes: guesses of two variants of CNN-B',
        subtitle=[f"All guess fractions of {sizes[0][2]} untrained CNN-B (kernel {sizes[0][0]}) on {sizes[0][1]} "
        "CIFAR-10 images. Each "
                  "class gets a tenth on average over networks."],
        columns=2, width=320, common=False,
    )  # fmt: skip
    return Outcome(
        [
            entry(
                "I14",
                f"the average largest fraction is larger by over {ROOM} for ReLU with max-pooling; class means over "
                "networks are alike in both (χ² test, level 1e-4)",
                "; ".join(said),
                must,
            )
        ],
        {"laws": columns(rows)},
        {"laws": chart},
        holds={"laws": Holds("Ten classes: ReLU with max-pooling gives most images to one of them")},
    )


@item(
    "igb/fig12",
    "A hundred classes: most get nothing",
    claims=("I15",),
    where="IGB Fig 12",
    needs=("cifar100",),
    about="CNN-B (16 channels, kernel {kernel}) on {n} CIFAR-100 images, 100 classes; {inits} networks each, Kaiming.",
    quick=[dict(kernel=5, n=300, inits=14)],
    full=[dict(kernel=9, n=400, inits=20), dict(kernel=5, n=300, inits=30)],
    seconds=(14, 110),
    version=2,
)
def fig12(run: Run) -> Outcome:
    """I15: the share of classes without any guess, and where the histogram is highest."""
    from firstguess import figures

    sizes = run.takes("kernel n inits")
    rows: list[dict[str, Any]] = []
    panels: list[Any] = []
    must: list[Truth] = []
    limits: list[Truth] = []
    said: list[str] = []
    shares: list[float] = []  # of classes that get nothing, in percent, by kind
    for kernel, n, inits in sizes:
        x = run.data("cifar100:test", points=n)
        empty_by_chance = (1 - 1 / 100) ** n
        for kind in KINDS:
            m = _cnn(run, x, networks.cnn_b(kernel=kernel), kind, what=f"kernel {kernel}", inits=inits, classes=100)
            per_network = (m.guesses.fractions == 0).mean(axis=1)
            empty = Number(float(per_network.mean()), float(per_network.std(ddof=1) / np.sqrt(inits)))
            counts = np.bincount(np.round(m.guesses.fractions * n).astype(int).ravel())
            checks: list[Truth] = [above(empty, 0.5), bool(counts.argmax() == 0)]
            (must if kind.startswith("ReLU") else limits).extend(checks)
            rows.append(row(kind, m, kernel=kernel, empty=empty.value, empty_error=empty.error))
            said.append(f"{kind}, kernel {kernel}: {empty} of classes get nothing (coin flips "
            f"{empty_by_chance:.3f}), largest "
                        f"{largest(m)}")  # fmt: skip
            if kernel == sizes[0][0]:
                panels.append(_counts(kind, counts, n, f"{100 * empty.value:.0f} % of classes get nothing"))
                shares.append(100 * empty.value)
    chart = figures.panels_chart(
        panels,
        title=stated(
            all_of(must),
            f"Of a hundred classes, ReLU with max-pooling never guesses {shares[1]:.0f} %, tanh with average-pooling "
            f"{shares[0]:.0f} %",
            f"A hundred classes: {shares[0]:.0f} % get nothing with tanh and average-pooling, {shares[1]:.0f} "
            "% with ReLU "
            "and max-pooling",
        ),
        subtitle=[
            f"Images that a class gets: all 100 classes of {sizes[0][2]} untrained CNN-B (kernel {sizes[0][0]}) on "
            f"{sizes[0][1]} CIFAR-100 images. Classes with more than {_SHOWN} are not shown."
        ],
        columns=2,
        width=320,
        x_title=f"Images guessed to be of one class (of {sizes[0][1]})",
        percent=False,
    )
    return Outcome(
        [
            entry(
                "I15",
                "ReLU with max-pooling: over half of the classes get no guess, and 0 is the most frequent count; "
                "without a limit the "
                "same for tanh with average-pooling",
                "; ".join(said),
                must,
                within=limits,
                limit="with tanh and average-pooling fewer than half of the classes go empty, or 0 is not the most "
                "frequent count",
            )
        ],
        {"laws": columns(rows)},
        {"laws": chart},
        ["Images of CIFAR-100's test split, as many of it as are at hand (version 1 of this item took CIFAR-10's)."],
    )


def _counts(label: str, counts: Any, n: int, note: str) -> Any:
    """How often a class gets k images, and how often it would if every image's class were drawn evenly."""
    from scipy import stats

    from firstguess_papers.library import Panel

    k = np.arange(_SHOWN + 1)
    shares = np.zeros(_SHOWN + 1)
    shares[: len(counts)] = counts[: _SHOWN + 1] / counts.sum()
    even: Any = stats.binom.pmf(k, n, 1 / 100)
    return Panel(label, np.arange(_SHOWN + 2) - 0.5, shares, {"coin flips": even}, note)


@item(
    "igb/fig13",
    "ResNet and vision transformer before training",
    claims=("I16",),
    where="IGB Fig 13",
    needs=("cifar10",),
    packages=("transformers",),
    about="{models} (stand-ins: ResNet10 with blocks 1, 1, 1, 1 of 32 to 256 channels; ViTs of patch 4, the narrower "
    "one with 4 blocks), own initialization (Hugging Face), BatchNorm on the batch; {n} CIFAR-10 images, {inits} "
    "networks each.",
    quick=dict(models=("ResNet10", "ViT, width 128, 4 blocks"), n=80, inits=20),
    full=dict(
        models=("ResNet34", "ViT, width 192, 12 blocks", "ResNet10", "ViT, width 128, 4 blocks"), n=100, inits=20
    ),
    seconds=(14, 110),
)
def fig13(run: Run) -> Outcome:
    """I16: the average largest fraction is above that of coin flips."""
    from firstguess import figures

    n, inits, chosen = run.take("n inits models")
    x = run.data("cifar10:test", points=n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers warns about its own future while it is imported
        makers: dict[str, Callable[[], Any]] = {
            "ResNet34": lambda: networks.resnet((3, 4, 6, 3), (64, 128, 256, 512), 10),
            "ViT, width 192, 12 blocks": lambda: networks.vit(192, 12, 10),
            "ResNet10": lambda: networks.resnet((1, 1, 1, 1), (32, 64, 128, 256), 10),
            "ViT, width 128, 4 blocks": lambda: networks.vit(128, 4, 10),
        }
        models = {name: makers[name]() for name in chosen}
        found = {
            name: run.measure(make, x, name=name, inits=inits, probe="output", label=name)
            for name, make in models.items()
        }
    flips = coin_flips(10, n)
    chart = figures.panels_chart(
        [law_panel(name, m, bins=25, note=f"average largest fraction {largest(m)}") for name, m in found.items()],
        title='Guesses of residual networks and transformers before training',
        subtitle=[f"All guess fractions of {inits} untrained networks on {n} CIFAR-10 images, ten classes. Coin "
        "flips would give the "
                  f"largest class {100 * flips:.0f} %."],
        columns=2, width=320,
    )  # fmt: skip
    return Outcome(
        [
            entry(
                "I16",
                f"the average largest of ten fractions is over {ROOM} above coin flips for each network",
                "; ".join(f"{name} {largest(m)}" for name, m in found.items()) + f"; coin flips {flips:.3f}",
                [above(largest(m), flips, by=ROOM) for m in found.values()],
            )
        ],
        {"laws": columns([row(name, m) for name, m in found.items()])},
        {"laws": chart},
        ["Quick runs use smaller stand-ins; the full setting shows both sizes."],
        holds={"laws": Holds("Residual networks and transformers prefer a few classes before training, too")},
    )
