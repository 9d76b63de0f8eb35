"""IGB: convolutional networks on images (Figs 1, 10, 11, 12), ResNet and vision transformer (Fig 13)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import firstguess as fg
from firstguess_papers import image_models as networks
from firstguess_papers import library
from firstguess_papers.charts import largest, laws, note_largest, std
from firstguess_papers.image_models import CNN_A, KINDS, Block, Kind
from firstguess_papers.items import Holds, Item
from firstguess_papers.judging import Check, Number, average, check, claimed
from firstguess_papers.measured import Cell, Found

KAIMING = (2.0, 0.0)  # σw², σb²
TANH, RELU = KINDS
_SHOWN = 20  # images of a class up to which the figure of 100 classes goes
_LOOK: dict[str, Any] = {"columns": 2, "width": 320}
KERNEL = "kernel {kernel}"  # what tells sets of sizes apart
ROOM = 0.05  # of the average largest fraction, beyond coin flips: from there on we say biased


def _cnn(c: Found, x: Any, blocks: tuple[Block, ...], kind: Kind, classes: int, inits: int | None = None) -> Cell:
    """One variant of a CNN on images, Kaiming weights."""
    sizes = ", ".join(f"{b.channels}c{b.kernel}p{b.pool}s{b.stride}" for b in blocks)
    options = {"inits": inits or c.inits, "init": KAIMING, "seed": c.run.seed}
    made = networks.cnn(blocks, kind, x.shape, classes)
    return Cell(made, x, options, name=f"{kind}: {sizes}, {classes} classes")


def _cnn_b(c: Found, spec: str, classes: int) -> dict[Kind, Cell]:
    x = c.run.data(spec, points=c.n)
    return {kind: _cnn(c, x, networks.cnn_b(kernel=c.kernel), kind, classes) for kind in KINDS}


def coin_flips(classes: int, points: int) -> float:
    """The average largest fraction where every point's class is drawn evenly at random."""
    return fg.Guesses(0.0, classes, points).expected_max()


def _fig1_cells(c: Found) -> dict[Any, Cell]:
    x = c.run.data("cifar10:test,cat-dog", points=c.n)
    return {
        (kind, kernel): _cnn(c, x, tuple(Block(b.channels, kernel, b.pool, b.stride) for b in CNN_A), kind, 2)
        for kernel in c.kernels
        for kind in KINDS
    }


fig1 = Item(
    "igb/fig1", "CNN-A on two CIFAR-10 classes: the choice of activation and pool decides", "IGB Fig 1",
    claims=("I8",), needs=("cifar10",), seconds=(13, 90),
    about="CNN-A (kernel {kernels}, last pool 4: our sizes), cats and dogs, {n} images; {inits} networks each, "
    "Kaiming.",
    quick=dict(n=100, inits=100, kernels=(5,)),
    full=dict(n=300, inits=250, kernels=(5, 3)),
    cells=_fig1_cells,
    rows=lambda c, _, kernel: {"kernel": kernel},
    judge=lambda c: [claimed("I8", "CNN-A on cat and dog images, std of G₀", [
        check(f"{RELU}, kernel {k}", std(c[RELU, k]), above=std(c[TANH, k]), by=0.1, than=TANH) for k in c.kernels
    ])],
    charts=lambda c: {"laws": laws(
        c.cells, lambda kind, k: f"{kind}, kernel {k}", title="Cats or dogs? Guesses of two variants of CNN-A", **_LOOK
    )},
    holds={"laws": Holds("Cats or dogs? tanh + average-pool is undecided, ReLU + max-pool is sure")},
)  # fmt: skip


def _fig10_cells(c: Found) -> dict[Any, Cell]:
    x = c.run.data("mnist:test,even-odd", points=c.n)
    rng = np.random.default_rng([c.run.seed, 10])
    noise = fg.data.as_data(rng.standard_normal((c.n, *x.shape), dtype=np.float32))
    return {
        (kind, label): _cnn(c, data, networks.cnn_b(kernel=c.kernel), kind, 2, inits)
        for label, data, inits in (("MNIST", x, c.inits), ("noise", noise, c.inits // 2))
        for kind in KINDS
    }


fig10 = Item(
    "igb/fig10", "CNN-B on MNIST, even or odd: data correlations amplify", "IGB Fig 10",
    claims=("I13",), needs=("mnist",), seconds=(9, 100),
    about="CNN-B (16 channels, kernel {kernel}, last pool 4: our sizes), {n} images, standardized, {inits} networks "
    "each, Kaiming; half as many on noise with independent pixels.",
    quick=dict(kernel=5, n=40, inits=60),
    full=[dict(kernel=9, n=150, inits=50), dict(kernel=5, n=100, inits=80)],
    cells=_fig10_cells,
    rows=lambda c, _, label: {"data": label, "kernel": c.kernel},
    judge=lambda c: [claimed(
        "I13", "average largest fraction",
        c.over(lambda c: [*(check(f"{kind}, MNIST", largest(c[kind, "MNIST"]), above=coin_flips(2, c.n), by=ROOM,
                           than="coin flips") for kind in KINDS),
                   check(f"{RELU}, MNIST", largest(c[RELU, "MNIST"]), above=largest(c[TANH, "MNIST"]), than=TANH)],
               KERNEL),
        within=c.over(lambda c: [check(f"{kind}, MNIST", largest(c[kind, "MNIST"]), above=largest(c[kind, "noise"]),
                                       than="on noise") for kind in KINDS], KERNEL),
        limit="not for both: one variant is no more biased on MNIST than on independent pixels",
    )],
    charts=lambda c: {"laws": laws(
        c.cells, lambda kind, label: f"{kind}, {label}", note=note_largest,
        title="Even or odd? Guesses of two variants of CNN-B on digits and on noise", **_LOOK,
    )},
    holds={"laws": Holds("On digits both networks are biased, ReLU with max-pooling more")},
)  # fmt: skip


def _means(m: Any) -> dict[str, float]:
    means = m.guesses.class_means
    chance = library.equal_means_test(m.guesses.fractions)[1]
    return {"smallest_mean": float(means.min()), "largest_mean": float(means.max()), "p_alike": chance}


fig11 = Item(
    "igb/fig11", "CNN-B on CIFAR-10, ten classes", "IGB Fig 11",
    claims=("I14",), needs=("cifar10",), seconds=(13, 100),
    about="CNN-B (16 channels, kernel {kernel}, last pool 4: our sizes), {n} images; {inits} networks each, Kaiming.",
    quick=dict(kernel=5, n=60, inits=50),
    full=[dict(kernel=9, n=200, inits=50), dict(kernel=5, n=100, inits=100)],
    cells=lambda c: _cnn_b(c, "cifar10:test", 10),
    rows=lambda c, kind: {"kernel": c.kernel, **_means(c[kind])},
    judge=lambda c: [claimed(
        "I14", "average largest fraction, and class means over networks (χ² test)", c.over(lambda c: [
            *(check(f"{k}, p of alike class means", _means(m)["p_alike"], above=1e-4) for k, m in c.cells.items()),
            check(RELU, largest(c[RELU]), above=largest(c[TANH]), by=ROOM, than=TANH),
        ], KERNEL),
    )],
    charts=lambda c: {"laws": laws(
        c.cells, str, bins=25, note=note_largest, title="Ten classes: guesses of two variants of CNN-B",
        says="Each class gets a tenth on average over networks.", common=False, **_LOOK,
    )},
    holds={"laws": Holds("Ten classes: ReLU with max-pooling gives most images to one of them")},
)  # fmt: skip


def _empty(m: Any) -> Number:
    """The share of classes that get nothing."""
    return average((m.guesses.fractions == 0).mean(axis=1))


def _counts(c: Found, kind: Kind) -> Any:
    """How often a class gets 0, 1, … images."""
    return np.bincount(np.round(c[kind].guesses.fractions * c.n).astype(int).ravel())


def _most_get_nothing(c: Found, kind: Kind) -> list[Check]:
    often = int(_counts(c, kind).argmax())
    return [check(f"{kind}, classes that get nothing", _empty(c[kind]), above=0.5),
            Check(f"{kind}, most frequent count", "0", often == 0, str(often))]  # fmt: skip


def _fig12_chart(c: Found) -> dict[str, Any]:
    tanh, relu = (100 * _empty(c[kind]).value for kind in KINDS)
    return {"laws": fg.figures.panels_chart(
        [_panel(c, kind) for kind in KINDS],
        title=f"A hundred classes: {tanh:.0f} % get nothing with tanh and average-pooling, {relu:.0f} % with ReLU and "
        "max-pooling",
        subtitle=[f"Bars: networks. Classes with more than {_SHOWN} images are not shown."],
        **_LOOK, x_title=f"Images guessed to be of one class (of {c.n})", percent=False,
    )}  # fmt: skip


def _panel(c: Found, kind: Kind) -> Any:
    """How often a class gets k images, and how often it would if every image's class were drawn evenly."""
    from scipy import stats

    counts = _counts(c, kind)
    shares = np.zeros(_SHOWN + 1)
    shares[: len(counts)] = counts[: _SHOWN + 1] / counts.sum()
    even: Any = stats.binom.pmf(np.arange(_SHOWN + 1), c.n, 1 / 100)
    note = f"{100 * _empty(c[kind]).value:.0f} % of classes get nothing"
    return fg.figures.Panel(kind, np.arange(_SHOWN + 2) - 0.5, shares, {"coin flips": even}, note)


fig12 = Item(
    "igb/fig12", "A hundred classes: most get nothing", "IGB Fig 12",
    claims=("I15",), needs=("cifar100",), seconds=(14, 110), version=2,
    about="CNN-B (16 channels, kernel {kernel}) on {n} CIFAR-100 images, 100 classes; {inits} networks each, Kaiming.",
    quick=dict(kernel=5, n=300, inits=14),
    full=[dict(kernel=9, n=400, inits=20), dict(kernel=5, n=300, inits=30)],
    cells=lambda c: _cnn_b(c, "cifar100:test", 100),
    rows=lambda c, kind: {"kernel": c.kernel, "empty": _empty(c[kind]).value, "empty_error": _empty(c[kind]).error},
    judge=lambda c: [claimed(
        "I15", "a hundred classes", c.over(lambda c: _most_get_nothing(c, RELU), KERNEL),
        within=c.over(lambda c: _most_get_nothing(c, TANH), KERNEL),
        limit="with tanh and average-pooling fewer than half of the classes go empty, or 0 is not the most frequent "
        "count",
        also=f"coin flips leave {(1 - 1 / 100) ** c.n:.3f} of the classes empty",
    )],
    charts=_fig12_chart,
    notes=["Images of CIFAR-100's test split, as many of it as are at hand (version 1 of this item took CIFAR-10's)."],
)  # fmt: skip


MODELS: dict[str, Callable[[], Any]] = {
    "ResNet34": lambda: networks.Model("ResNet", "", (64, 128, 256, 512), (3, 4, 6, 3), 10, "basic").factory(),
    "ViT, width 192, 12 blocks": lambda: networks.vit(192, 12, 10),
    "ResNet10": lambda: networks.Model("ResNet", "", (32, 64, 128, 256), (1, 1, 1, 1), 10, "basic").factory(),
    "ViT, width 128, 4 blocks": lambda: networks.vit(128, 4, 10),
}


def _fig13_cells(c: Found) -> dict[Any, Cell]:
    x = c.run.data("cifar10:test", points=c.n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers warns about its own future while it is imported
        return {name: Cell(MODELS[name](), x, name=name) for name in c.models}


fig13 = Item(
    "igb/fig13", "ResNet and vision transformer before training", "IGB Fig 13",
    claims=("I16",), needs=("cifar10",), packages=("transformers",), seconds=(14, 110),
    about="{models} (stand-ins: ResNet10 with blocks 1, 1, 1, 1 of 32 to 256 channels; ViTs of patch 4, the narrower "
    "one with 4 blocks), own initialization (Hugging Face), BatchNorm on the batch; {n} CIFAR-10 images, {inits} "
    "networks each.",
    quick=dict(models=("ResNet10", "ViT, width 128, 4 blocks"), n=80, inits=20),
    full=dict(models=tuple(MODELS), n=100, inits=20),
    cells=_fig13_cells,
    judge=lambda c: [claimed("I16", "average largest of ten fractions", [
        check(name, largest(m), above=coin_flips(10, c.n), by=ROOM, than="coin flips") for name, m in c.cells.items()
    ])],
    charts=lambda c: {"laws": laws(
        c.cells, str, bins=25, note=note_largest, title="Guesses of residual networks and transformers before training",
        says=f"Coin flips would give the largest class {100 * coin_flips(10, c.n):.0f} %.", **_LOOK,
    )},
    holds={"laws": Holds("Residual networks and transformers prefer a few classes before training, too")},
)  # fmt: skip
