"""IGB Fig 14: training at a small learning rate, class by class, with bias and without."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import firstguess as fg
from firstguess_papers import image_networks as networks
from firstguess_papers.bias_mode import GAP, BiasModes, bias_modes, chosen
from firstguess_papers.image_networks import CNN_A, KINDS, Block, Kind
from firstguess_papers.items import Entry
from firstguess_papers.judging import Number, Truth, above, all_of, below, entry
from firstguess_papers.measured import Found, Training, measured
from firstguess_papers.running import Run
from firstguess_papers.training_charts import Line, arms_chart, by_class
from firstguess_papers.training_pieces import Arm, curve_rows

if TYPE_CHECKING:
    from firstguess.data import Data
    from firstguess_papers.library import Chart

SMALL, LARGE = 1e-3, 1e-1  # learning rates: ours, fixed before the first run
HALF_A = (Block(8, 5, 2, 2), Block(32, 5, 4, 4))  # half of CNN-A's channels, for quick runs on 16 × 16 pixels
LOW = 0.4  # a recall below is low: two classes at even shares have 0.5
LONG = 10.0  # steps that count as long
TORCH, KAIMING = 1 / 3, 2.0  # variance of a weight × fan-in: as PyTorch draws by default (but biases 0), and Kaiming's


@dataclass(frozen=True)
class Convolutional:
    """CNN-A on cats and dogs, or its half on shrunken images."""

    blocks: tuple[Block, ...]
    size: int  # pixels of a side
    words: str

    def data(self, run: Run, counts: tuple[int, int]) -> Data:
        """Balanced or not: `counts` cats and dogs."""
        x = chosen(run.data("cifar10:cat-dog", points=3 * max(counts) + 100), counts)
        by = 32 // self.size
        if by == 1:
            return x
        small = x.x.reshape(x.n, 3, self.size, by, self.size, by).mean(axis=(3, 5))
        return fg.data.as_data((small, x.y)).standardize("channel")

    def factory(self, kind: Kind) -> Any:
        """Makes one, with two classes."""
        return networks.cnn(self.blocks, kind, (3, self.size, self.size), 2)

    def name(self, kind: Kind) -> str:
        """With all sizes: the key of pieces."""
        return f"{kind}: " + ", ".join(f"{b.channels}c{b.kernel}p{b.pool}s{b.stride}" for b in self.blocks)

    def modes(self, run: Run, kind: Kind, x: Data, *, draws: int, weight_var: float = TORCH) -> BiasModes:
        """The bias modes of untrained ones."""
        return bias_modes(run, self.factory(kind), x, name=self.name(kind), draws=draws, weight_var=weight_var)

    def training(self, kind: Kind, x: Data, *, weight_var: float = TORCH, **options: Any) -> Training:
        """Trained one by one; biases start at 0."""
        given: dict[str, Any] = {"strategy": "loop", "init": (weight_var, 0.0), "width": None, **options}
        return Training(self.factory(kind), x, given, name=self.name(kind))


NETWORKS = {
    "half of CNN-A (8 and 32 channels) on cats and dogs of 16 × 16 pixels": (HALF_A, 16),
    "CNN-A on cats and dogs": (CNN_A, 32),
}
HALF, WHOLE = NETWORKS


def network_of(run: Run) -> Convolutional:
    """CNN-A, or for quick runs its half."""
    words = run.take("network")
    return Convolutional(*NETWORKS[words], words)


def split(arm: Arm, step: int) -> Number:
    """How far the recall of the class favoured at the start is above the other's."""
    return arm.at("gap", step)


def judged(biased: Arm, even: Arm, step: int) -> list[Truth]:
    """I17 itself: with bias recalls part and the other class's stays low for long, without they coincide."""
    return [
        above(split(biased, step), GAP),
        above(biased.steps_to("others", LOW, least=True), LONG),
        below(split(even, step), GAP),
        below(split(even, 0), GAP),
    ]


def learned_half(arm: Arm) -> Number:
    """Steps until the accuracy of a network is half-way from one half to what the arm ends with on average."""
    end = arm.at("accuracy", arm.last).value
    return arm.steps_to("accuracy", 0.5 + 0.5 * (end - 0.5), least=True)


TANH, RELU = KINDS


def _cells(c: Found) -> dict[Any, Training]:
    net = network_of(c.run)
    x = net.data(c.run, (c.half, c.half))
    modes = {TANH: net.modes(c.run, TANH, x, draws=c.draws), RELU: net.modes(c.run, RELU, x, draws=c.draws).biased()}
    scaled = net.modes(c.run, RELU, x, draws=c.draws, weight_var=KAIMING).biased()
    other = c.lr * scaled.overshoot.value / modes[RELU].overshoot.value
    c.known |= {"modes": modes, "scaled": scaled, "other": other}
    how: dict[str, Any] = {"optimizer": "sgd", "batch": 32}
    again: dict[str, Any] = how | {"steps": c.short, "parts": c.fewer, "start": "biased"}
    return {
        RELU: net.training(RELU, x, lr=c.lr, start="biased", **how),
        TANH: net.training(TANH, x, lr=c.lr, **how),
        f"{RELU} at {c.lower:g}": net.training(RELU, x, lr=c.lower, **again),
        f"{RELU}, Kaiming": net.training(RELU, x, weight_var=KAIMING, lr=other, **again),
    }


def _quantities(c: Found) -> dict[str, Any]:
    biased, even, slow, kaiming = c.cells.values()
    return {
        "biased": biased, "even": even, "at": biased.near(c.modes[RELU].time_constant(c.lr)),
        "low": biased.steps_to("others", LOW, least=True), "learned": learned_half(biased),
        "slower": split(slow, slow.near(c.modes[RELU].time_constant(c.lower))),
        "kaiming": split(kaiming, kaiming.near(c.scaled.time_constant(c.other))),
    }  # fmt: skip


def _entry(c: Found) -> Entry:
    long, again = above(c.low, c.learned), [above(c.slower, GAP), above(c.kaiming, GAP)]
    reasons = {
        "it does not last: the bias is absorbed before half of the accuracy is there": long,
        "at another rate or with Kaiming weights the recalls do not part as far": all_of(again),
    }
    return entry(
        "I17",
        f"CNN-A, ReLU + max-pool: one predicted time constant into training recalls differ by over {GAP}, and "
        f"the other class's is below {LOW} for over {LONG:.0f} steps; tanh + average-pool: less than {GAP} at "
        "both steps. Without a limit: it is low until half of the accuracy is there; also at a lower rate and "
        "with Kaiming weights",
        f"step {c.at} (one predicted time constant): gap {split(c.biased, c.at)} with bias, {split(c.even, c.at)} "
        f"without (start: {split(c.biased, 0)} and {split(c.even, 0)}); the other class's recall is below {LOW} for "
        f"{c.low} steps, half of the accuracy is there after {c.learned}; gaps at {c.lower:g}: {c.slower}, with "
        f"Kaiming weights at {c.other:.2g}: {c.kaiming}",
        judged(c.biased, c.even, c.at),
        within=[long, *again],
        limit="; ".join(text for text, check in reasons.items() if check is False),
    )


def _chart(c: Found) -> Chart:
    gap = "Gap of recalls, favoured − other"
    recalls = by_class({RELU: c.biased, TANH: c.even})
    for k, line in enumerate(recalls):
        foreseen = c.modes[line.label].recalls(c.lr, c.biased.steps)[line.dashed]
        recalls[k] = Line(line.label, line.trained, foreseen, line.dashed)
    return arms_chart(
        {"Recall by class": recalls, gap: [Line(arm.label, arm.curve("gap")) for arm in c.cells.values()]},
        columns=2, width=430, plain=(gap,), y_domains={gap: (-0.1, 1.0)},
    )  # fmt: skip


fig14 = measured(
    "igb/fig14", "A small learning rate: recall class by class, with bias and without", "IGB Fig 14", claims=("I17",),
    needs=("cifar10",), seconds=(20, 220),
    about="{network}, {half} of each, weights of PyTorch's variance (1/3 by fan-in), biases 0, SGD in batches of 32 at "
    "{lr}, {steps} steps, {networks} networks each, those with bias from starts whose largest share is at least 0.9. "
    "Model, data and rate are in no text: ours, fixed before the first run (of the half network, whose bias mode is a "
    "fifth, five times the rate). With bias again at {lower}, and with Kaiming weights at the same part of the rate "
    "that overshoots, {short} steps, {fewer} times {inits} networks each. Bias modes: {draws} draws.",
    quick=dict(network=HALF, half=80, steps=100, short=50, inits=12, parts=1, fewer=1, lr=5 * SMALL, lower=1.5 * SMALL,
               draws=30),
    full=dict(network=WHOLE, half=160, steps=360, short=200, inits=4, parts=4, fewer=3, lr=SMALL, lower=0.3 * SMALL,
              draws=40),
    cells=_cells,
    quantities=_quantities,
    judge=lambda c: [_entry(c)],
    tables=lambda c: {"curves": curve_rows(c.cells.values())},
    charts=lambda c: {"recall": _chart(c)},
    holds={"recall": "With bias one class's recall stays low for long; without, the classes go together"},
    notes=lambda c: [
        "Model, data and learning rates of the figure are in no text: CNN-A, cats and dogs, 1e-3 (Fig 15: 1e-1) are "
        "ours, fixed beforehand. Weights have PyTorch's variance because the predicted thresholds then lie between the "
        "two rates (with Kaiming weights 1e-3 would already overshoot); biases start at 0 because PyTorch's random "
        "ones bias both variants.",
        f"Predicted rates from which on classes hand over, 2κ/λ_b: {RELU} {c.modes[RELU].overshoot}, {TANH} "
        f"{c.modes[TANH].overshoot}, {RELU} with Kaiming weights {c.scaled.overshoot}.",
    ],
)  # fmt: skip
