"""NORM: a ResNet with BatchNorm and a Mixer with LayerNorm in training, norms before and after (Figs 5, G.10, G.11).

Stand-ins: the depth of a ResNet34 and the shape of a Mixer, at smaller widths, on fewer images and for fewer epochs. So
each conclusion is drawn twice more: with layers twice as wide, and after half of the training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from firstguess_papers.items import Entry, Outcome, item
from firstguess_papers.judging import Number, Truth, above, all_of, below, entry, stated
from firstguess_papers.norm_models import Model, Place
from firstguess_papers.running import Run
from firstguess_papers.tables import columns
from firstguess_papers.training_pieces import Arm, paired, sooner, trained

if TYPE_CHECKING:
    from firstguess_papers.training_charts import Line

BEFORE, AFTER = "norm before", "norm after"
ABSORBED = 0.28  # largest of ten shares at which the bias counts as absorbed: a fifth of the way from 0.1 to 1
SHIFTS = (0.0, 2.0, 4.0, 6.0)
LEARNT = 0.2  # accuracy that is more than chance, twice
_LOOKS = 10  # about so many, besides half of the training and its end


@dataclass(frozen=True)
class Setting:
    """A model with data shifted by a constant, the norm at every place that is compared."""

    width: int
    shift: float
    arms: dict[str, Arm]

    @property
    def last(self) -> int:
        """The last step."""
        return self.arms[BEFORE].last

    @property
    def half(self) -> int:
        """Half of the training."""
        return self.arms[BEFORE].near(self.last / 2)

    def gain(self, place: str, what: str = "accuracy", step: int | None = None) -> Number:
        """By how much a place is ahead of "before", network by network: members share weights and order of data."""
        return paired(self.arms[place], self.arms[BEFORE], what, self.last if step is None else step)

    def ahead(self, place: str, until: int | None = None) -> Number:
        """The same averaged over the looks from step 1 on, which are even on a logarithmic axis.

        At the end says little of speed: two networks that both know all their images by then are alike there.
        """
        one, other = (self.arms[which].curve("accuracy") for which in (place, BEFORE))
        mask = (one.steps >= 1) & (one.steps <= (self.last if until is None else until))
        return self.arms[place].number((one.draws - other.draws)[:, mask].mean(axis=1))

    def sooner(self, place: str) -> Number:
        """By how many steps sooner the largest share is at `ABSORBED` than with the norm before; the end counts.

        Networks that get there at neither place say nothing.
        """
        return self.arms[place].number(sooner(self.arms[BEFORE], self.arms[place], ABSORBED))


def looks(steps: int) -> list[int]:
    """Which steps are looked at: few, because a look costs as much as several steps."""
    spread = np.rint(np.geomspace(1, steps, _LOOKS)).astype(int).tolist()
    return sorted({0, *spread, steps // 2, steps})


def setting(
    run: Run,
    model: Model,
    places: dict[str, Place],
    shift: float,
    *,
    n: int,
    batch: int,
    steps: int,
    inits: int,
    parts: int,
) -> Setting:
    """Train the model at all places, on images shifted by a constant."""
    data = run.data("cifar10", points=n, shift=shift, seed=run.seed)
    test = run.data("cifar10:test", points=n, shift=shift, seed=run.seed)
    arms = {
        label: trained(
            run, model.factory(place), data, label=f"{model.kind} of {model.widths[0]}, shift {shift:g}, {label}",
            name=f"{model.name(place)}, Kaiming", test=test, inits=inits, parts=parts, optimizer="adam", lr=1e-3,
            batch=batch, steps=looks(steps), init="kaiming_normal", strategy="loop",
        )
        for label, place in places.items()
    }  # fmt: skip
    return Setting(model.widths[0], shift, arms)


def judged(kind: str, base: Setting, wide: Setting, place: str) -> list[Entry]:
    """N15's first three parts for one model at shift 0. Every check is 4 standard errors of paired differences."""
    others = [base.ahead(place, base.half), wide.ahead(place), wide.ahead(place, wide.half)]
    absorbed = [base.sooner(place), wide.sooner(place)]
    held = [base.gain(place, "test accuracy"), wide.gain(place, "test accuracy")]
    known = [above(base.arms[arm].at("test accuracy", base.last), LEARNT) for arm in (BEFORE, place)]
    small = "in these small stand-ins the numbers contradict it"
    return [
        entry(
            "N15",
            f"{kind}, {place}: training is faster: accuracy, averaged over looks up to step {base.last} (even on a "
            "logarithmic axis), is higher than with the norm before; without a limit if also up to half of it, and "
            "with layers twice as wide",
            f"after − before: {base.ahead(place)}; up to half {others[0]}; twice as wide {others[1]}, up to half "
            f"{others[2]}; at the end {base.gain(place)}; twice as wide {wide.gain(place)}",
            [above(base.ahead(place), 0.0)],
            within=[above(gain, 0.0) is True for gain in others],
            limit="not at every width and time",
            otherwise=small,
            headline=f"{kind}, {place}: {base.ahead(place)} of accuracy ahead on average up to step {base.last}",
        ),
        entry(
            "N15",
            f"{kind}, {place}: the largest of ten shares is at {ABSORBED} in fewer steps than with the norm before; "
            "without a limit if also with layers twice as wide",
            f"steps sooner: {absorbed[0]}; twice as wide {absorbed[1]}",
            [above(absorbed[0], 0.0)],
            within=[above(absorbed[1], 0.0) is True],
            limit="not clearly so with layers twice as wide",
            otherwise=small,
        ),
        entry(
            "N15",
            f"{kind}, {place}: accuracy on held-out images is higher at the end than with the norm before (not "
            f"decided where neither has learnt what holds for them: accuracy {LEARNT}); without a limit if also with "
            "layers twice as wide",
            f"after − before: {held[0]}; twice as wide {held[1]}",
            [above(held[0], 0.0) if True in known else None],
            within=[above(held[1], 0.0) is True],
            undecided="" if True in known else "no network has learnt what holds for other images",
            limit="not clearly so with layers twice as wide",
            otherwise=small,
        ),
    ]


def shifted(settings: list[Setting]) -> list[Entry]:
    """N15's last part: what a shift of the data does to both places, and to the difference between them."""
    none, most = settings[0], settings[-1]
    slower = {p: paired(most.arms[p], none.arms[p], "accuracy", none.last) for p in (BEFORE, AFTER)}
    gains = [one.gain(AFTER) for one in settings]
    each = (most.arms[AFTER].values("accuracy", most.last) - most.arms[BEFORE].values("accuracy", most.last)) - (
        none.arms[AFTER].values("accuracy", none.last) - none.arms[BEFORE].values("accuracy", none.last)
    )
    wider = none.arms[BEFORE].number(each)
    learnt = [above(most.arms[place].at("accuracy", most.last), LEARNT) for place in (BEFORE, AFTER)]
    shown = "; ".join(f"shift {one.shift:g}: {gain}" for one, gain in zip(settings, gains, strict=True))
    return [
        entry(
            "N15",
            f"Mixer: with data shifted by {most.shift:g} training is slower in both places (accuracy after {none.last} "
            "steps)",
            "; ".join(f"{place}: {value}" for place, value in slower.items()),
            [below(value, 0.0) for value in slower.values()],
        ),
        entry(
            "N15",
            f"Mixer: the difference between the places is wider with data shifted by {most.shift:g} than with none "
            f"(not decided where neither has learnt anything by then: accuracy {LEARNT})",
            f"accuracy after − before: {shown}; wider by {wider}",
            [above(wider, 0.0) if True in learnt else None],
        ),
    ]


def title(kind: str, base: Setting, wide: Setting, place: str) -> str:
    """What was found, as far as checks say it."""
    gains, sooner = [base.ahead(place), wide.ahead(place)], [base.sooner(place), wide.sooner(place)]
    faster, slower = (all_of(check(gain, 0.0) for gain in gains) for check in (above, below))
    absorbed: Truth = all_of(above(value, 0.0) for value in sooner)
    value = abs(100 * base.ahead(place).value)
    learns = stated(
        faster,
        f"with the {place} learns faster (by {value:.0f} points of accuracy on average)",
        stated(
            slower,
            f"with the {place} learns more slowly (by {value:.0f} points on average)",
            f"in training, {place} or before",
        ),
    )
    evens = stated(absorbed, f", and its guesses are even {base.sooner(place).value:.0f} steps sooner", "")
    return f"A {kind} {learns}{evens}"


def panels(settings: list[Setting], names: list[str]) -> dict[str, list[Line]]:
    """Rows by setting: accuracy, share of the largest class, accuracy on held-out images."""
    from firstguess_papers.training_charts import lines_of

    found: dict[str, list[Line]] = {}
    for one, name in zip(settings, names, strict=True):
        found[f"{name}: accuracy"] = lines_of("accuracy", one.arms)
        found[f"{name}: share of the largest class"] = lines_of("largest", one.arms)
        found[f"{name}: accuracy, held-out"] = lines_of("test accuracy", one.arms)
    return found


def _table(settings: list[Setting]) -> dict[str, list[Any]]:
    return columns([
        line
        for one in settings
        for place, arm in one.arms.items()
        for line in arm.rows(place=place, shift=one.shift, width=one.width)
    ])  # fmt: skip


_NOTE = "No prediction: these are modules without a description; the tangent kernel is known for dense networks."


@item(
    "norm/fig5",
    "A ResNet with BatchNorm before and after the activation, in training",
    claims=("N15",),
    where="NORM Fig 5",
    needs=("cifar10",),
    packages=("transformers",),
    about="Stand-in: ResNet with {blocks} basic blocks, widths from {first} to 8 times that, and twice as wide "
    "(ResNet34: 64 to 512), Kaiming; {n} CIFAR-10 images (NORM: 50 000), shifted by 0 and 6; Adam 1e-3 in batches of "
    "{batch}, {steps} steps; {networks} networks each.",
    quick=dict(first=4, blocks=(1, 1, 1, 1), n=64, batch=32, steps=6, inits=10, parts=1),
    full=dict(first=8, blocks=(3, 4, 6, 3), n=512, batch=64, steps=64, inits=3, parts=4),
    seconds=(25, 280),
)
def fig5(run: Run) -> Outcome:
    """N15 for a ResNet: plain pairs turned, and norms also behind the sums."""
    from firstguess_papers.training_charts import arms_chart

    sizes = dict(run.sizes[0])
    first, blocks = sizes.pop("first"), sizes.pop("blocks")
    everywhere = "norm after, also behind the sums"
    places: dict[str, Place] = {BEFORE: "before", AFTER: "after", everywhere: "after, also behind the sums"}
    models = [
        Model("ResNet", "ResNet", tuple(width * 2**k for k in range(4)), blocks, 10, "basic")
        for width in (first, 2 * first)
    ]
    base, wide = (setting(run, model, places, 0.0, **sizes) for model in models)
    moved = setting(run, models[0], places, SHIFTS[-1], **sizes)
    layers = 2 + 2 * sum(blocks)
    chart = arms_chart(
        panels([base, moved, wide], ["As is", f"Shifted by {SHIFTS[-1]:g}", "Twice as wide"]),
        title=title("ResNet", base, wide, everywhere),
        subtitle=[
            f"ResNet of {layers} layers, widths from {first} (twice as wide: {2 * first}); {sizes['n']} CIFAR-10 "
            f"images, Adam 0.001, batches of {sizes['batch']}; {base.arms[BEFORE].networks} networks each, the same "
            "weights at every place.",
        ],
        columns=3,
        width=360,
        height=210,
    )
    return Outcome(
        [*judged("ResNet", base, wide, AFTER), *judged("ResNet", base, wide, everywhere)],
        {"curves": _table([base, wide, moved])},
        {"places": chart},
        [
            f"Data shifted by {SHIFTS[-1]:g} (shown, not judged: BatchNorm takes a shift out): accuracy after − before "
            f"at the end {moved.gain(AFTER)}, also behind the sums {moved.gain(everywhere)}.",
            "After: conv → ReLU → BatchNorm wherever it was conv → BatchNorm → ReLU; the norms of a block's last "
            "convolution and of its shortcut stay, or are replaced by one behind the ReLU of their sum.",
            "Widths, images, epochs and the learning rate are ours. Held-out images are normalized by running "
            "statistics.",
            _NOTE,
        ],
    )  # fmt: skip


@item(
    "norm/fig-g10",
    "A Mixer with LayerNorm before and after the activation in training, on shifted data",
    claims=("N15",),
    where="NORM Figs 5, G.10, G.11",
    needs=("cifar10",),
    about="Stand-in: MLP-Mixer of {blocks} blocks of width {width} and of twice that, patches of 8, Kaiming (all "
    "ours); {n} CIFAR-10 images (NORM: 50 000), shifted by 0, 2, 4, 6 (the wider one: 0 only); Adam 1e-3 in batches "
    "of {batch}, {steps} steps; {networks} networks each.",
    quick=dict(width=16, blocks=2, n=64, batch=32, steps=10, inits=10, parts=1),
    full=dict(width=32, blocks=4, n=256, batch=64, steps=160, inits=3, parts=4),
    seconds=(20, 200),
)
def fig_g10(run: Run) -> Outcome:
    """N15 for a Mixer, by shift."""
    from firstguess_papers.training_charts import arms_chart, lines_of

    sizes = dict(run.sizes[0])
    width, blocks = sizes.pop("width"), sizes.pop("blocks")
    places: dict[str, Place] = {BEFORE: "before", AFTER: "after"}
    small, large = (Model("Mixer", "Mixer", (w,), (blocks,), 10, patch=8) for w in (width, 2 * width))
    settings = [setting(run, small, places, by, **sizes) for by in SHIFTS]
    wide = setting(run, large, places, 0.0, **sizes)
    shown = {f"Shift {one.shift:g}: accuracy": lines_of("accuracy", one.arms) for one in settings}
    shown |= {f"Shift {one.shift:g}: largest share": lines_of("largest", one.arms) for one in settings}
    chart = arms_chart(
        shown,
        title=title("Mixer", settings[0], wide, AFTER),
        subtitle=[
            f"MLP-Mixer of {blocks} blocks of {width}, patches of 8; {sizes['n']} CIFAR-10 images plus a constant, "
            f"Adam 0.001, batches of {sizes['batch']}; {wide.arms[BEFORE].networks} networks each, the same weights at "
            "both places.",
        ],
        columns=4,
        width=280,
        height=210,
    )
    return Outcome(
        [*judged("Mixer", settings[0], wide, AFTER), *shifted(settings)],
        {"curves": _table([*settings, wide])},
        {"places": chart},
        [
            "After: the LayerNorms in front of a Mixer's MLPs go behind their GELUs; the one in front of the head "
            "stays.",
            "Widths, patches, images, epochs and the learning rate are ours.",
            _NOTE,
        ],
    )
