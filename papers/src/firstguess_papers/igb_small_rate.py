"""IGB Fig 14: training at a small learning rate, class by class, with bias and without."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from firstguess_papers import image_networks as networks
from firstguess_papers.bias_mode import GAP, BiasModes, bias_modes, chosen
from firstguess_papers.image_networks import CNN_A, KINDS, Block, Kind
from firstguess_papers.items import Outcome, item
from firstguess_papers.judging import Number, Truth, above, all_of, below, entry, stated
from firstguess_papers.running import Run
from firstguess_papers.tables import columns
from firstguess_papers.training_pieces import Arm, trained

if TYPE_CHECKING:
    from firstguess.data import Data
    from firstguess_papers.training_charts import Line

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
        import firstguess as fg

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

    def trained(self, run: Run, kind: Kind, x: Data, label: str, *, weight_var: float = TORCH, **options: Any) -> Arm:
        """Trained one by one, as pieces; biases start at 0."""
        given: dict[str, Any] = {"strategy": "loop", "init": (weight_var, 0.0), **options}
        return trained(run, self.factory(kind), x, label=label, name=self.name(kind), **given)


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


@item(
    "igb/fig14",
    "A small learning rate: recall class by class, with bias and without",
    claims=("I17",),
    where="IGB Fig 14",
    needs=("cifar10",),
    about="{network}, {half} of each, weights of PyTorch's variance (1/3 by fan-in), biases 0, SGD in batches of 32 at "
    "{lr}, {steps} steps, {networks} networks each, those with bias from starts whose largest share is at least 0.9. "
    "Model, data and rate are in no text: ours, fixed before the first run (of the half network, whose bias mode is a "
    "fifth, five times the rate). With bias again at {lower}, and with Kaiming weights at the same part of the rate "
    "that overshoots, {short} steps, {fewer} times {inits} networks each. Bias modes: {draws} draws.",
    quick=dict(
        network=HALF,
        half=80,
        steps=100,
        short=50,
        inits=12,
        parts=1,
        fewer=1,
        lr=5 * SMALL,
        lower=1.5 * SMALL,
        draws=30,
    ),
    full=dict(
        network=WHOLE, half=160, steps=360, short=200, inits=4, parts=4, fewer=3, lr=SMALL, lower=0.3 * SMALL, draws=40
    ),
    seconds=(20, 220),
)
def fig14(run: Run) -> Outcome:
    """I17: gap of recalls one predicted time constant into training; how long the other class's recall is low."""
    from firstguess_papers.training_charts import Line, arms_chart, by_class

    net = network_of(run)
    half, steps, short, draws = run.take("half steps short draws")
    inits, parts, fewer, lr, lower = run.take("inits parts fewer lr lower")
    x = net.data(run, (half, half))
    tanh, relu = KINDS
    how: dict[str, Any] = {"optimizer": "sgd", "batch": 32, "inits": inits}
    modes = {tanh: net.modes(run, tanh, x, draws=draws), relu: net.modes(run, relu, x, draws=draws).biased()}
    scaled = net.modes(run, relu, x, draws=draws, weight_var=KAIMING).biased()
    other = lr * scaled.overshoot.value / modes[relu].overshoot.value
    biased = net.trained(run, relu, x, relu, lr=lr, steps=steps, parts=parts, start="biased", **how)
    even = net.trained(run, tanh, x, tanh, lr=lr, steps=steps, parts=parts, **how)
    how |= {"steps": short, "parts": fewer, "start": "biased"}
    slow = net.trained(run, relu, x, f"{relu} at {lower:g}", lr=lower, **how)
    kaiming = net.trained(run, relu, x, f"{relu}, Kaiming", weight_var=KAIMING, lr=other, **how)
    at = biased.near(modes[relu].time_constant(lr))
    must = judged(biased, even, at)
    low, learned = biased.steps_to("others", LOW, least=True), learned_half(biased)
    start = "starts with a largest share of at least 90 %"
    again = [
        above(split(slow, slow.near(modes[relu].time_constant(lower))), GAP),
        above(split(kaiming, kaiming.near(scaled.time_constant(other))), GAP),
    ]
    long = above(low, learned)
    so = all_of(must)
    lines: dict[str, list[Line]] = {"Recall by class": by_class({relu: biased, tanh: even})}
    for index, kind in enumerate(KINDS[::-1]):
        favoured, others = modes[kind].recalls(lr, biased.steps)
        for k, curve in enumerate((favoured, others)):
            line = lines["Recall by class"][2 * k + index]
            lines["Recall by class"][2 * k + index] = Line(line.label, line.trained, curve, line.dashed)
    lines["Gap of recalls, favoured − other"] = [
        Line(arm.label, arm.curve("gap")) for arm in (biased, even, slow, kaiming)
    ]
    chart = arms_chart(
        lines,
        title=stated(
            so,
            f"With bias one class's recall stays low for {low.value:.0f} steps; without, the classes go together",
            "A small learning rate: recall by class, with bias (ReLU + max-pool) and without (tanh + average-pool)",
        ),
        subtitle=[
            f"{net.words}: SGD at {lr:g}, {biased.networks} networks each (ReLU: {start}). Predicted: the bias mode "
            "alone, from one backward pass of untrained networks; it does not know that anything is learned."
        ],
        columns=2,
        width=430,
        plain=("Gap of recalls, favoured − other",),
        y_domains={"Gap of recalls, favoured − other": (-0.1, 1.0)},
    )
    said = (
        f"step {at} (one predicted time constant): gap {split(biased, at)} with bias, {split(even, at)} without "
        f"(start: {split(biased, 0)} and {split(even, 0)}); the other class's recall is below {LOW} for {low} steps, "
        f"half of the accuracy is there after {learned}; gaps at {lower:g}: "
        f"{split(slow, slow.near(modes[relu].time_constant(lower)))}, with Kaiming weights at {other:.2g}: "
        f"{split(kaiming, kaiming.near(scaled.time_constant(other)))}"
    )
    reasons = {
        "it does not last: the bias is absorbed before half of the accuracy is there": long,
        "at another rate or with Kaiming weights the recalls do not part as far": all_of(again),
    }
    return Outcome(
        [
            entry(
                "I17",
                f"CNN-A, ReLU + max-pool: one predicted time constant into training recalls differ by over {GAP}, and "
                f"the other class's is below {LOW} for over {LONG:.0f} steps; tanh + average-pool: less than {GAP} at "
                "both steps. Without a limit: it is low until half of the accuracy is there; also at a lower rate and "
                "with Kaiming weights",
                said,
                must,
                within=[long, *again],
                limit="; ".join(text for text, check in reasons.items() if check is False),
            )
        ],
        {"curves": columns([row for arm in (biased, even, slow, kaiming) for row in arm.rows()])},
        {"recall": chart},
        [
            "Model, data and learning rates of the figure are in no text: CNN-A, cats and dogs, 1e-3 (Fig 15: 1e-1) "
            "are ours, fixed beforehand. Weights have PyTorch's variance because the predicted thresholds then lie "
            "between the two rates (with Kaiming weights 1e-3 would already overshoot); biases start at 0 because "
            "PyTorch's random ones bias both variants.",
            f"Predicted rates from which on classes hand over, 2κ/λ_b: {relu} {modes[relu].overshoot}, {tanh} "
            f"{modes[tanh].overshoot}, {relu} with Kaiming weights {scaled.overshoot}.",
        ],
    )
