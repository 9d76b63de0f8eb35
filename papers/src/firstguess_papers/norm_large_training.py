"""NORM: a ResNet with BatchNorm and a Mixer with LayerNorm in training, norms before and after (Figs 5, G.10, G.11).

Stand-ins: the depth of a ResNet34 and the shape of a Mixer, at smaller widths, on fewer images and for fewer epochs. So
each conclusion is drawn twice more: with layers twice as wide, and after half of the training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from firstguess_papers.items import Entry, Holds
from firstguess_papers.judging import Number, above, check, claimed, each
from firstguess_papers.measured import Found, Training, measured
from firstguess_papers.norm_models import Model, Place
from firstguess_papers.training_charts import arms_chart, lines_of, rows_chart
from firstguess_papers.training_pieces import Arm, curve_rows, paired, sooner

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

    def gain(self, place: str, what: str = "accuracy") -> Number:
        """By how much a place ends ahead of "before", network by network: members share weights and order of data."""
        return paired(self.arms[place], self.arms[BEFORE], what, self.last)

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


def _cells(c: Found, models: list[tuple[Model, float]], places: dict[str, Place]) -> dict[Any, Training]:
    """Each model at all places, on images shifted by a constant."""
    adam: dict[str, Any] = {"optimizer": "adam", "lr": 1e-3, "init": "kaiming_normal", "strategy": "loop"}
    adam |= {"steps": looks(c.steps), "width": None}  # which is the model's
    found: dict[Any, Training] = {}
    for model, shift in models:
        data, test = (
            c.run.data(spec, points=c.n, shift=shift, seed=c.run.seed) for spec in ("cifar10", "cifar10:test")
        )
        for label, place in places.items():
            key = (f"{model.kind} of {model.widths[0]}, shift {shift:g}", label)
            found[key] = Training(model.factory(place), data, adam, name=f"{model.name(place)}, Kaiming", test=test)
    return found


def _setting(c: Found, model: Model, shift: float) -> Setting:
    return Setting(model.widths[0], shift, c.arms(f"{model.kind} of {model.widths[0]}, shift {shift:g}"))


def judged(kind: str, base: Setting, wide: Setting, place: str) -> list[Entry]:
    """N15's first three parts for one model at shift 0. Every check is 4 standard errors of paired differences."""
    arms = f"{kind}, {place} − {BEFORE}"
    learnt = any(above(base.arms[arm].at("test accuracy", base.last), LEARNT) is True for arm in (BEFORE, place))
    small = "in these small stand-ins the numbers contradict it"
    sizes = {"as it is": base, "twice as wide": wide}
    return [
        claimed(
            "N15", f"{arms}: training is faster, accuracy averaged over looks (even on a logarithmic axis)",
            [check(f"up to step {base.last}", base.ahead(place), above=0.0)],
            within=each({"up to half": base.ahead(place, base.half), "up to the end, twice as wide": wide.ahead(place),
                         "up to half, twice as wide": wide.ahead(place, wide.half)}, above=0.0),
            limit="not at every width and time", otherwise=small,
            also="at the end " + ", ".join(f"{one.gain(place)} ({name})" for name, one in sizes.items()),
            headline=f"{kind}, {place}: {base.ahead(place)} of accuracy ahead on average up to step {base.last}",
        ),
        claimed(
            "N15", f"{arms}: steps by which the largest of ten shares is at {ABSORBED} sooner",
            [check("as it is", base.sooner(place), above=0.0)],
            within=[check("twice as wide", wide.sooner(place), above=0.0)], otherwise=small,
        ),
        claimed(
            "N15", f"{arms}: accuracy on held-out images at the end (not decided where neither has {LEARNT} of it)",
            [check("as it is", base.gain(place, "test accuracy"), above=0.0, decided=learnt)],
            within=[check("twice as wide", wide.gain(place, "test accuracy"), above=0.0)], otherwise=small,
            undecided="" if learnt else "no network has learnt what holds for other images",
        ),
    ]  # fmt: skip


def shifted(settings: list[Setting]) -> list[Entry]:
    """N15's last part: what a shift of the data does to both places, and to the difference between them."""
    none, most = settings[0], settings[-1]
    each_gain = [s.arms[AFTER].values("accuracy", s.last) - s.arms[BEFORE].values("accuracy", s.last)
                 for s in (none, most)]  # fmt: skip
    learnt = any(above(most.arms[place].at("accuracy", most.last), LEARNT) is True for place in (BEFORE, AFTER))
    return [
        claimed(
            "N15", f"Mixer: accuracy after {none.last} steps with data shifted by {most.shift:g} − without a shift",
            each({p: paired(most.arms[p], none.arms[p], "accuracy", none.last) for p in (BEFORE, AFTER)}, below=0.0),
        ),
        claimed(
            "N15", f"Mixer: by how much wider the difference between the places is with data shifted by {most.shift:g} "
            f"than with none (not decided where neither has an accuracy of {LEARNT} by then)",
            [check("after − before", none.arms[BEFORE].number(each_gain[1] - each_gain[0]), above=0.0, decided=learnt)],
            also="; ".join(f"shift {one.shift:g}: {one.gain(AFTER)}" for one in settings),
        ),
    ]  # fmt: skip


def _curves(settings: list[Setting]) -> list[dict[str, Any]]:
    return [
        line
        for one in settings
        for place, arm in one.arms.items()
        for line in curve_rows([arm], place=place, shift=one.shift, width=one.width)
    ]


_NOTE = "No prediction: these are modules without a description; the tangent kernel is known for dense networks."
EVERYWHERE = "norm after, also behind the sums"
PLACES: dict[str, Place] = {BEFORE: "before", AFTER: "after", EVERYWHERE: "after, also behind the sums"}


def _resnets(c: Found) -> list[tuple[Model, float]]:
    """As it is, twice as wide, and on shifted data."""
    small, large = (
        Model("ResNet", "ResNet", tuple(width * 2**k for k in range(4)), c.blocks, 10, "basic")
        for width in (c.known["first"], 2 * c.known["first"])
    )
    return [(small, 0.0), (large, 0.0), (small, SHIFTS[-1])]


fig5 = measured(
    "norm/fig5", "A ResNet with BatchNorm before and after the activation, in training", "NORM Fig 5",
    claims=("N15",), needs=("cifar10",), packages=("transformers",), seconds=(25, 280),
    about="Stand-in: ResNet with {blocks} basic blocks, widths from {first} to 8 times that, and twice as wide "
    "(ResNet34: 64 to 512), Kaiming; {n} CIFAR-10 images (NORM: 50 000), shifted by 0 and 6; Adam 1e-3 in batches of "
    "{batch}, {steps} steps; {networks} networks each.",
    quick=dict(first=4, blocks=(1, 1, 1, 1), n=64, batch=32, steps=6, inits=10, parts=1),
    full=dict(first=8, blocks=(3, 4, 6, 3), n=512, batch=64, steps=64, inits=3, parts=4),
    cells=lambda c: _cells(c, _resnets(c), PLACES),
    quantities=lambda c: dict(zip(("base", "wide", "moved"), (_setting(c, *one) for one in _resnets(c)), strict=True)),
    judge=lambda c: [one for place in (AFTER, EVERYWHERE) for one in judged("ResNet", c.base, c.wide, place)],
    tables=lambda c: {"curves": _curves([c.base, c.wide, c.moved])},
    charts=lambda c: {"places": rows_chart(
        {"As is": (c.base.arms, {}), f"Shifted by {SHIFTS[-1]:g}": (c.moved.arms, {}),
         "Twice as wide": (c.wide.arms, {})},
        ["accuracy", "largest", "test accuracy"],
    )},
    holds={"places": Holds("A ResNet with norms after, also behind the sums, learns faster", entries=(3,))},
    notes=lambda c: [
        f"Data shifted by {SHIFTS[-1]:g} (shown, not judged: BatchNorm takes a shift out): accuracy after − before "
        f"at the end {c.moved.gain(AFTER)}, also behind the sums {c.moved.gain(EVERYWHERE)}.",
        "After: conv → ReLU → BatchNorm wherever it was conv → BatchNorm → ReLU; the norms of a block's last "
        "convolution and of its shortcut stay, or are replaced by one after the ReLU of their sum.",
        "Widths, images, epochs and the learning rate are ours. Held-out images are normalized by running statistics.",
        _NOTE,
    ],
)  # fmt: skip


def _mixers(c: Found) -> list[tuple[Model, float]]:
    """By shift, and twice as wide."""
    small, large = (Model("Mixer", "Mixer", (w,), (c.blocks,), 10, patch=8) for w in (c.width, 2 * c.width))
    return [*((small, shift) for shift in SHIFTS), (large, 0.0)]


fig_g10 = measured(
    "norm/fig-g10", "A Mixer with LayerNorm before and after the activation in training, on shifted data",
    "NORM Figs 5, G.10, G.11", claims=("N15",), needs=("cifar10",), seconds=(20, 200),
    about="Stand-in: MLP-Mixer of {blocks} blocks of width {width} and of twice that, patches of 8, Kaiming (all "
    "ours); {n} CIFAR-10 images (NORM: 50 000), shifted by 0, 2, 4, 6 (the wider one: 0 only); Adam 1e-3 in batches "
    "of {batch}, {steps} steps; {networks} networks each.",
    quick=dict(width=16, blocks=2, n=64, batch=32, steps=10, inits=10, parts=1),
    full=dict(width=32, blocks=4, n=256, batch=64, steps=160, inits=3, parts=4),
    cells=lambda c: _cells(c, _mixers(c), {BEFORE: "before", AFTER: "after"}),
    quantities=lambda c: {"settings": [_setting(c, *one) for one in _mixers(c)]},
    judge=lambda c: [*judged("Mixer", c.settings[0], c.settings[-1], AFTER), *shifted(c.settings[:-1])],
    tables=lambda c: {"curves": _curves(c.settings)},
    charts=lambda c: {"places": arms_chart(
        {f"Shift {one.shift:g}: {words}": lines_of(what, one.arms)
         for what, words in (("accuracy", "accuracy"), ("largest", "largest share")) for one in c.settings[:-1]},
        columns=4, width=280, height=210,
    )},
    holds={"places": Holds("A Mixer with the norm after learns faster", entries=(0,))},
    notes=[
        "After: the LayerNorms before a Mixer's MLPs go after their GELUs; the one before the head stays.",
        "Widths, patches, images, epochs and the learning rate are ours.",
        _NOTE,
    ],
)  # fmt: skip
