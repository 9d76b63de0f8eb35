"""NORM in training: neutral and prejudiced starts (Figs 2, G.3–G.8), and norms before and after (Figs 4, G.1–G.6).

Is "neutral starts converge faster" a matter of the optimizer? theory.md §7 says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import firstguess as fg
from firstguess_papers.charts import arms_chart, by_class, deep, lines_of, rows_chart
from firstguess_papers.items import Entry, Holds, Item
from firstguess_papers.judging import UNKNOWN, Array, Check, Number, check, claimed, each
from firstguess_papers.measured import Found, Training, measured
from firstguess_papers.norm import PLACES, network
from firstguess_papers.training_pieces import Arm, curve_rows, sooner

if TYPE_CHECKING:
    from firstguess.data import Data
    from firstguess_papers.library import Chart

NET = "dense(weight_var=2) > relu > dense(weight_var=2)"  # SHLP
STARTS = {"neutral start": "even", "prejudiced start": "biased"}
NEUTRAL, PREJUDICED = STARTS
DESCENT = "gradient descent"
LEARNT = 0.75  # accuracy at which a network counts as having learnt
FASTER = 1.1  # ratio of steps from which on one is faster
OPEN = 0.05  # gap between classes that still counts as one
STRICT = 0.95  # largest share at which |G₀ − G₁| is 0.9: NORM's filter; the library's is 0.9
LEAST_RATIO, LEAST_GAP, LEAST_STEPS = 0.05, 0.01, 5.0  # what is too small to matter, stated before sampling goes on
ROOM_FILTERED = 0.15  # of predicted by measured ratios


@dataclass(frozen=True)
class Both:
    """Neutral and prejudiced starts under one optimizer: trained, and predicted where that is asked for."""

    trained: dict[str, Arm]
    predicted: dict[str, Arm]

    @property
    def ratio(self) -> Number:
        """Steps to `LEARNT` from prejudiced starts by those from neutral ones."""
        return slower(self.trained[PREJUDICED], self.trained[NEUTRAL])

    @property
    def strict(self) -> Number:
        """The same for the prejudiced ones that NORM's own filter keeps."""
        start = self.trained[PREJUDICED].draws["largest"][:, 0]
        return slower(self.trained[PREJUDICED].kept(start >= STRICT), self.trained[NEUTRAL])

    @property
    def foretold(self) -> Number:
        """The ratio in the prediction."""
        return slower(self.predicted[PREJUDICED], self.predicted[NEUTRAL])

    @property
    def gap(self) -> Number:
        """Favoured − others of prejudiced starts, at the first look at which they have learnt."""
        arm = self.trained[PREJUDICED]
        when = arm.first_look("accuracy", LEARNT)
        return UNKNOWN if when is None else arm.at("gap", when)


def slower(one: Arm, other: Arm) -> Number:
    """Steps to `LEARNT` of one arm by those of the other; unknown where a network does not get there."""
    return one.steps_to("accuracy", LEARNT) / other.steps_to("accuracy", LEARNT)


def _starts(c: Found, name: str, data: Data, test: Data | None = None, **options: Any) -> dict[Any, Training]:
    """Both kinds of starts under one optimizer."""
    draws = c.known.get("draws", 0)
    return {
        (name, label): Training(NET, data, {"start": start, "width": 100, **options}, test=test, draws=draws)
        for label, start in STARTS.items()
    }


def _both(c: Found, name: str) -> Both:
    return Both(c.arms(name), c.known_arms(name))


def judged_filtered(adam: Both, descent: Both) -> list[Entry]:
    """What the numbers say of N12. Thresholds are those above, chosen before the first full run."""
    fast, plain = adam.ratio, descent.ratio
    return [
        claimed(
            "N12", f"steps of prejudiced starts over those of neutral ones, to an accuracy of {LEARNT}",
            [check("Adam", fast, above=FASTER, least=LEAST_RATIO)],
            within=[check(DESCENT, plain, above=FASTER, least=LEAST_RATIO),
                    check("Adam with NORM's filter (|G₀ − G₁| > 0.9)", adam.strict, above=FASTER)],
            headline=f"prejudiced by neutral starts, steps: {fast} under Adam, {plain} under {DESCENT}",
        ),
        claimed(
            "N12", f"the gap between classes persists: favoured − others when prejudiced starts have {LEARNT}",
            [check("Adam", adam.gap, above=OPEN, least=LEAST_GAP)],
            within=[check(DESCENT, descent.gap, above=OPEN, least=LEAST_GAP)],
        ),
        claimed(
            "N12", "beyond the paper: it is an effect of the optimizer, ratio of steps",
            [check("Adam", fast, above=plain, by=0.1, than=f"{DESCENT}'s", least=LEAST_RATIO)],
        ),
        claimed(
            "N12", "beyond the paper: the tangent kernel predicts both ratios without training, predicted by measured",
            each({"Adam": adam.foretold / fast, DESCENT: descent.foretold / plain}, near=1.0, room=ROOM_FILTERED),
        ),
    ]  # fmt: skip


def _cells_filtered(c: Found, data: Data, test: Data | None) -> dict[Any, Training]:
    adam = {"optimizer": "adam", "lr": c.adam, "batch": c.known.get("batch", 128), "steps": c.steps}
    plain = {"optimizer": "gd", "lr": c.gd, "steps": c.gd_steps, "batch": None}
    return _starts(c, "Adam", data, test, **adam) | _starts(c, DESCENT, data, test, **plain)


def _notes(c: Found) -> list[str]:
    overshoot = c.descent.predicted[NEUTRAL].about["overshoot"]
    return [
        "Prejudiced starts are those whose largest share is at least 0.9; NORM's |G₀ − G₁| > 0.9 is 0.95, and is "
        "looked at apart.",
        f"The learning rate of plain descent is ours: the bias overshoots at {overshoot / c.gd:.2g} times as much.",
    ]


def _compared(
    id: str, title: str, where: str, data: Callable[[Found], tuple[Data, Data | None]], note: str, **options: Any
) -> Item:
    """An item: both optimizers on these data."""

    def rows(c: Found) -> Mapping[str, Both]:
        return {"Adam": c.adam_starts, "Gradient descent": c.descent}

    return measured(
        id, title, where, claims=("N12",),
        cells=lambda c: _cells_filtered(c, *data(c)),
        quantities=lambda c: {"adam_starts": _both(c, "Adam"), "descent": _both(c, DESCENT)},
        judge=lambda c: judged_filtered(c.adam_starts, c.descent),
        tables=lambda c: {"curves": _curves(rows(c))},
        charts=lambda c: {"starts": rows_chart(
            {name: (found.trained, found.predicted) for name, found in rows(c).items()},
            ["largest", "classes", "accuracy", *(["test accuracy"] if c.adam_starts.trained[NEUTRAL].tested else [])],
            title="Neutral and prejudiced starts",
        )},
        holds={"starts": Holds("Neutral starts learn faster than prejudiced ones under Adam", entries=(0,))},
        notes=lambda c: [*_notes(c), note],
        **options,
    )  # fmt: skip


def _curves(rows: Mapping[str, Both]) -> list[dict[str, Any]]:
    return [
        line
        for name, found in rows.items()
        for line in curve_rows([*found.trained.values(), *found.predicted.values()], optimizer=name)
    ]


fig2 = _compared(
    "norm/fig2", "Neutral and prejudiced starts: who learns faster, and under which optimizer", "NORM Fig 2",
    lambda c: (fg.data.two_blobs(c.points, c.d, seed=c.run.seed), None),
    "Dimensions, points, learning rate and batches are ours and smaller than NORM's: norm/fig2-size has its own.",
    about="SHLP of 100; two blobs of {points} points a class in {d} dimensions (NORM: 10 000 in 1000, for which see "
    "norm/fig2-size); Adam {adam} (NORM: 1e-5) in batches of {batch} (512), {steps} steps, and gradient descent {gd}, "
    "{gd_steps} steps; {networks} networks a start and optimizer, {draws} predicted.",
    quick=dict(points=150, d=200, inits=16, draws=60, parts=1, adam=2e-4, batch=128, steps=250, gd=0.01, gd_steps=250),
    full=dict(points=300, d=300, inits=20, draws=100, parts=2, adam=1e-4, batch=128, steps=500, gd=0.01, gd_steps=400),
    seconds=(12, 90),
)  # fmt: skip

fig2_size = measured(
    "norm/fig2-size", "Neutral and prejudiced starts at NORM's own dimension, batch and learning rate", "NORM Fig 2",
    claims=("N12",), seconds=(15, 280),
    about="SHLP of 100; two blobs of {n} points a class (NORM: 10 000) in 1000 dimensions, Adam {rate} in batches of "
    "{batch}, {steps} steps (NORM's 80 epochs: 3125); {networks} networks a start.",
    quick=dict(n=300, rate=1e-4, batch=128, steps=150, inits=10, parts=1),
    full=dict(n=2000, rate=1e-5, batch=512, steps=3125, inits=2, parts=6),
    cells=lambda c: _starts(c, "Adam", fg.data.two_blobs(c.n, 1000, seed=c.run.seed), optimizer="adam", lr=c.rate),
    quantities=lambda c: {"adam": _both(c, "Adam")},
    judge=lambda c: [claimed(
        "N12", f"{2 * c.n:,} points in 1000 dimensions, Adam {c.rate:g}, batches of {c.batch}, to an accuracy of "
        f"{LEARNT}",
        [check("steps of prejudiced starts over those of neutral ones", c.adam.ratio, above=FASTER),
         check("favoured − others by then", c.adam.gap, above=OPEN)],
    )],
    tables=lambda c: {"curves": _curves({"Adam": c.adam})},
    charts=lambda c: {"starts": rows_chart({"Adam": (c.adam.trained, {})}, ["largest", "classes", "accuracy"])},
    holds={"starts": "At NORM's learning rate, too, prejudiced starts need longer"},
    notes=["No prediction: with so many points those for Adam, which follow some thousand weights, are too slow and "
           "too rough."],
)  # fmt: skip

_IMAGES = (
    "SHLP of 100; {n} images and as many held out; Adam {adam} in batches of 128, {steps} steps, and gradient descent "
    "{gd}, {gd_steps} steps; {networks} networks a start and optimizer, {draws} predicted."
)
_QUICK_FILTERED = dict(n=120, adam=3e-5, gd=2e-3, steps=150, gd_steps=80, inits=10, parts=1, draws=30)
_FULL = dict(adam=1e-5, gd=2e-3, draws=80)
OURS = "The numbers of images, batches and steps are ours, the learning rate of a full run is NORM's."


def images(c: Found, spec: str) -> tuple[Data, Data]:
    """Images of two classes, and as many held-out ones."""
    name, _, choice = spec.partition(":")
    held = c.run.data(f"{name}:test,{choice}", points=c.n, seed=c.run.seed)
    return c.run.data(spec, points=c.n, seed=c.run.seed), held


fig_g3 = _compared(
    "norm/fig-g3", "Neutral and prejudiced starts on CIFAR-10, vehicles against animals", "NORM Figs G.3, G.4",
    lambda c: images(c, "cifar10:vehicles-animals"), OURS, needs=("cifar10",), about=_IMAGES, quick=_QUICK_FILTERED,
    full=_FULL | dict(n=400, steps=400, gd_steps=150, inits=6, parts=4), seconds=(10, 240),
)  # fmt: skip

fig_g5_starts = _compared(
    "norm/fig-g5-starts", "Neutral and prejudiced starts on MNIST, even against odd digits",
    "NORM Figs G.5, G.6 (training)", lambda c: images(c, "mnist:even-odd"), OURS, needs=("mnist",), about=_IMAGES,
    quick=_QUICK_FILTERED, full=_FULL | dict(n=600, steps=600, gd_steps=200, inits=10, parts=3), seconds=(11, 150),
)  # fmt: skip


LEVELS = (0.6, 0.7, 0.8)  # accuracies of neutral starts at which both are compared
OVERLAP = 0.05  # difference of global accuracies up to which curves overlap
SPLIT = 0.1  # gap between classes from which on their curves are split
SOON = 10  # the step at which that is looked at first


@dataclass(frozen=True)
class Size:
    """Both starts on so many points."""

    points: int
    arms: dict[str, Arm]

    def apart(self, what: str, step: int | None) -> Number:
        """Neutral − prejudiced starts; unknown at no step."""
        one, other = (self.arms[start] for start in (NEUTRAL, PREJUDICED))
        return UNKNOWN if step is None else one.at(what, step) - other.at(what, step)

    def levels(self) -> dict[float, int | None]:
        """Steps at which neutral starts have an accuracy, on average."""
        return {level: self.arms[NEUTRAL].first_look("accuracy", level) for level in LEVELS}

    def early(self) -> Number:
        """The gap between classes of prejudiced starts when neutral ones have the first level."""
        step = self.levels()[LEVELS[0]]
        return UNKNOWN if step is None else self.arms[PREJUDICED].at("gap", step)

    def checks(self) -> list[Check]:
        """Whether accuracies overlap, level by level."""
        found = {
            f"at {level}, {self.points:,} points": self.apart("accuracy", at) for level, at in self.levels().items()
        }
        return each(found, near=0.0, room=OVERLAP)


def judged_deep(many: Size, few: Size, depth: int) -> list[Entry]:
    """What the numbers say of N14. Thresholds are those above, chosen before the first full run."""
    sizes = {f"{one.points:,} points": one for one in (many, few)}
    return [
        claimed(
            "N14", f"{depth} hidden layers: curves of classes split, favoured − others; neutral − prejudiced starts "
            f"at step {SOON}, without a limit of prejudiced starts when neutral ones have {LEVELS[0]}",
            each({f"difference, {name}": s.apart("gap", SOON) for name, s in sizes.items()}, below=-SPLIT),
            within=each({f"prejudiced starts, {name}": s.early() for name, s in sizes.items()}, above=SPLIT),
            limit="the split is gone before much is learnt",
        ),
        claimed(
            "N14", f"{depth} hidden layers: accuracy, neutral − prejudiced starts, when neutral ones have so much",
            many.checks(), within=few.checks(), limit="they overlap with many points only",
            headline="accuracy, neutral − prejudiced: "
            + ", ".join(f"{one.found} {one.name.partition(',')[0]}" for one in many.checks()),
        ),
    ]  # fmt: skip


def _cells_deep(c: Found) -> dict[Any, Training]:
    data = {n: fg.data.two_blobs(n // 2, c.d, seed=c.run.seed) for n in c.counts}
    return {
        (f"{n} points", name): Training(
            deep("relu", c.depth), x, {"start": start, "optimizer": "adam", "lr": c.rate, "batch": min(c.batch, n)}
        )
        for n, x in data.items()
        for name, start in STARTS.items()
    }


def _trust(c: Found) -> dict[str, Any]:
    """What the theory says of itself here."""
    t = fg.predict_training(
        deep("relu", c.depth), data=fg.data.two_blobs(50, c.d, seed=c.run.seed), lr=c.rate, steps=1, draws=2,
        width=c.width, optimizer="gd", seed=c.run.seed,
    )  # fmt: skip
    assert t.trust is not None
    return {"word": t.trust.word}


def _quantities(c: Found) -> dict[str, Any]:
    many, few = (Size(n, c.arms(f"{n} points")) for n in c.counts)
    key = {"trust": c.depth, "width": c.width, "d": c.d, "lr": c.rate}
    return {"many": many, "few": few, "trust": c.run.piece(key, lambda: _trust(c), label="trust of the theory")["word"]}


fig_g7 = measured(
    "norm/fig-g7", "Twenty hidden layers: do neutral starts still learn faster?", "NORM Figs G.7, G.8", claims=("N14",),
    about="{depth} hidden ReLU layers of {width} (NORM: 20 of 100), Kaiming; two blobs of {counts} points in {d} "
    "dimensions (NORM: 20 000 in 1000); Adam {rate} in batches of {batch} or all points, {steps} steps (NORM: 3125); "
    "{networks} networks a start and size.",
    quick=dict(depth=10, width=60, d=100, counts=(600, 100), rate=1e-4, batch=64, steps=120, inits=10, parts=1),
    full=dict(depth=20, width=100, d=1000, counts=(4000, 400), rate=1e-5, batch=512, steps=600, inits=3, parts=4),
    seconds=(20, 280),
    cells=_cells_deep,
    quantities=_quantities,
    judge=lambda c: judged_deep(c.many, c.few, c.depth),
    tables=lambda c: {
        "curves": [line for s in (c.many, c.few) for line in curve_rows(s.arms.values(), points=s.points)]
    },
    charts=lambda c: {"starts": rows_chart(
        {f"{s.points:,} points": (s.arms, {}) for s in (c.many, c.few)}, ["largest", "classes", "accuracy"]
    )},
    holds={"starts": Holds("Deep networks, too: classes split by start, and global accuracy overlaps")},
    notes=lambda c: [
        "Neutral starts are rare at this depth: "
        + ", ".join(f"{s.arms[NEUTRAL].networks} of {s.arms[NEUTRAL].drawn:,} drawn" for s in (c.many, c.few)) + ".",
        "Global accuracies of neutral and prejudiced starts are compared at the same steps. Points and steps are ours; "
        "there is no prediction, because so deep and narrow a network leaves its kernel behind: of itself the theory "
        f"says “{c.trust}” here.",
    ],
)  # fmt: skip


NORMS = ("BatchNorm", "LayerNorm")
ABSORBED = 0.6  # largest share at which the bias counts as absorbed
ROOM_PLACEMENT = 0.05  # of predicted against trained shares of the largest class


@dataclass(frozen=True)
class Placed:
    """All places of the norm at one depth."""

    depth: int
    trained: dict[str, Arm]
    predicted: dict[str, Arm]

    def gaps(self, place: str) -> list[Number]:
        """Favoured − others at the start, then about three a decade."""
        arm = self.trained[place]
        steps = sorted({0, *(arm.near(10 ** (k / 3)) for k in range(20) if 10 ** (k / 3) <= arm.last)})
        return [arm.at("gap", step) for step in steps]

    def time(self, place: str) -> Number:
        """Mean steps until the largest share is `ABSORBED`; networks that are not there by the end count with it."""
        return self.trained[place].steps_to("largest", ABSORBED, least=True)

    def each(self, norm: str) -> Array:
        """By how many steps sooner the bias is absorbed with the norm after than before, network by network."""
        return sooner(self.trained[f"{norm} before"], self.trained[f"{norm} after"], ABSORBED)

    def saved(self, norm: str) -> Number:
        """The mean of `each`."""
        return self.trained["no norm"].number(self.each(norm))

    def more(self) -> Number:
        """By how many steps more LayerNorm saves than BatchNorm; networks share their weights, so one by one."""
        return self.trained["no norm"].number(self.each("LayerNorm") - self.each("BatchNorm"))


def judged_placement(found: list[Placed]) -> list[Entry]:
    """What the numbers say of N13. Thresholds are those above, chosen before the first full run."""
    cases = [(one, norm) for one in found for norm in NORMS]
    # from the step where half of the way to the end is on a logarithmic axis
    half = {one.depth: one.trained["no norm"].near(one.trained["no norm"].last ** 0.5) for one in found}
    entries = [
        claimed(
            "N13", "favoured − others: with a norm after at every look, with one before at the start",
            [*each({f"{norm} after, depth {one.depth}": one.gaps(f"{norm} after") for one, norm in cases}, below=SPLIT,
                   least=LEAST_GAP),
             *each({f"{norm} before, depth {one.depth}": one.gaps(f"{norm} before")[0] for one, norm in cases},
                   above=SPLIT)],
        ),
        claimed(
            "N13", f"steps that moving the norm after saves until the bias is absorbed (largest share {ABSORBED})",
            each({f"{norm}, depth {one.depth}": one.saved(norm) for one, norm in cases}, above=0.0,
                 least=LEAST_STEPS),
            also="mean steps, " + "; ".join(
                f"depth {one.depth}: " + ", ".join(f"{place} {one.time(place)}" for place in one.trained)
                for one in found
            ),
            headline="steps saved: " + ", ".join(f"{norm} {found[0].saved(norm)}" for norm in NORMS),
        ),
        claimed(
            "N13", "most of all under LayerNorm: steps that moving it saves beyond those that moving BatchNorm saves",
            each({f"depth {one.depth}": one.more() for one in found}, above=0.0),
            otherwise=f"moving BatchNorm saves more{_modes(found)}",
        ),
    ]  # fmt: skip
    if all(one.predicted for one in found):
        off = {
            f"{place}, depth {one.depth}": arm.at("largest", half[one.depth])
            - one.predicted[place].at("largest", half[one.depth])
            for one in found
            for place, arm in one.trained.items()
        }
        about = "beyond the paper: largest share halfway (in the logarithm of steps), trained − by the tangent kernel"
        entries.append(claimed("N13", about, each(off, near=0.0, room=ROOM_PLACEMENT)))
    return entries


def _modes(found: list[Placed]) -> str:
    """What the tangent kernel says of BatchNorm after: whether anything moves the bias there."""
    arms = [one.predicted.get("BatchNorm after") for one in found]
    ratios = [arm.about["bias"] / arm.about["signal"] for arm in arms if arm is not None]
    if not ratios or max(ratios) > 1e-3:
        return ""
    return "; with BatchNorm after the activation the tangent kernel has no bias mode at all (λ_b/λ_signal = 0)"


def _chart(found: list[Placed]) -> Chart:
    """By depth: share of the largest class, accuracy by class under each norm."""
    panels: dict[str, Any] = {}
    for one in found:
        where = f"{one.depth} layer{'s' if one.depth > 1 else ''}"
        panels[f"{where}: share of the largest class"] = lines_of("largest", one.trained, one.predicted)
        for norm in NORMS:
            places = [f"{norm} before", f"{norm} after"]
            arms, known = ({p: arms[p] for p in places if p in arms} for arms in (one.trained, one.predicted))
            panels[f"{where}, {norm}: accuracy by class"] = by_class(arms, known)
    limits = dict.fromkeys((h for h in panels if "share" in h), (0.48, 1.0))
    return arms_chart(panels, width=360, height=230, y_domains=limits)


def _placed(
    id: str, title: str, where: str, data: Callable[[Found], tuple[Data, Data | None]],
    layers: Callable[[Found], dict[int, int]], note: str, **options: Any,
) -> Item:  # fmt: skip
    """An item: unfiltered starts, every place of the norm at every depth (`layers`: their width by their number).

    Members share their weights over places.
    """

    def cells(c: Found) -> dict[Any, Training]:
        x, test = data(c)
        adam = {"optimizer": "adam", "lr": c.lr, "batch": 128}
        return {
            (place, f"depth {depth}"): Training(
                network(place, depth), x, adam | {"width": width}, test=test, draws=c.draws, predict={"test": None}
            )
            for depth, width in layers(c).items()
            for place in PLACES
        }

    def places(c: Found) -> list[Placed]:
        both = (c.cells, c.predictions)
        return [Placed(k, *({place: of[place, f"depth {k}"] for place in PLACES} for of in both)) for k in layers(c)]

    return measured(
        id, title, where, claims=("N13",),
        cells=cells,
        quantities=lambda c: {"places": places(c)},
        judge=lambda c: judged_placement(c.places),
        tables=lambda c: {"curves": [
            line for one in c.places for arms in (one.trained, one.predicted) for place, arm in arms.items()
            for line in curve_rows([arm], place=place, depth=one.depth)
        ]},
        charts=lambda c: {"places": _chart(c.places)},
        holds={"places": Holds("With the norm after, the bias is absorbed sooner", entries=(1,))},
        notes=["After a BatchNorm predictions for Adam are rough (averages over layers).", note],
        **options,
    )  # fmt: skip


fig4 = _placed(
    "norm/fig4", "Norms before and after the activation in training, from unfiltered starts", "NORM Fig 4",
    lambda c: (fg.data.two_blobs(c.n, c.d, seed=c.run.seed), None), lambda c: {1: 100, c.deep: c.width},
    "The learning rate is ten times NORM's and more: fewer steps.",
    about="No norm, BatchNorm and LayerNorm before and after ReLU; one hidden layer of 100 and {deep} of {width} "
    "(ours); two blobs of {n} points a class in {d} dimensions (NORM: 10 000 in 1000); Adam {lr} in batches of 128, "
    "{steps} steps; {networks} unfiltered networks each, {draws} predicted.",
    quick=dict(n=100, d=100, lr=3e-4, steps=60, inits=24, parts=1, draws=40, deep=3, width=100),
    full=dict(n=300, d=300, lr=1e-4, steps=300, inits=20, parts=3, draws=100, deep=5, width=200),
    seconds=(20, 220),
)  # fmt: skip

_PHOTOS = (
    "No norm, BatchNorm and LayerNorm before and after ReLU; one hidden layer of 100; {n} images and as many held out; "
    "Adam {lr} in batches of 128, {steps} steps; {networks} unfiltered networks each, {draws} predicted."
)
_QUICK_PLACEMENT = dict(n=100, lr=3e-5, steps=80, inits=16, parts=1, draws=30)

fig_g1 = _placed(
    "norm/fig-g1", "Norms before and after in training on CIFAR-10, vehicles against animals", "NORM Figs G.1, G.2",
    lambda c: images(c, "cifar10:vehicles-animals"), lambda c: {1: 100}, OURS, needs=("cifar10",), about=_PHOTOS,
    quick=_QUICK_PLACEMENT, full=dict(n=400, lr=1e-5, steps=300, inits=6, parts=4, draws=80), seconds=(10, 240),
)  # fmt: skip

fig_g5_training = _placed(
    "norm/fig-g5-training", "Norms before and after in training on MNIST, even against odd digits",
    "NORM Figs G.5, G.6 (training)", lambda c: images(c, "mnist:even-odd"), lambda c: {1: 100}, OURS, needs=("mnist",),
    about=_PHOTOS, quick=_QUICK_PLACEMENT, full=dict(n=500, lr=1e-5, steps=300, inits=20, parts=2, draws=80),
    seconds=(10, 150),
)  # fmt: skip
