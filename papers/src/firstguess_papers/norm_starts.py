"""NORM in training: neutral and prejudiced starts (Figs 2, G.3–G.8), and norms before and after (Figs 4, G.1–G.6).

Is "neutral starts converge faster" a matter of the optimizer? theory.md §7 says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import firstguess as fg
from firstguess.data import Data
from firstguess_papers.charts import arms_chart, by_class, deep, lines_of, rows_chart
from firstguess_papers.items import Holds, Item
from firstguess_papers.judging import UNKNOWN, Check, Number, check, claimed, each
from firstguess_papers.measured import Found, Training
from firstguess_papers.norm import PLACES, network
from firstguess_papers.training_pieces import Arm, curve_rows, sooner

NET = "dense(weight_var=2) > relu > dense(weight_var=2)"  # SHLP
STARTS = {"neutral start": "even", "prejudiced start": "biased"}
NEUTRAL, PREJUDICED = STARTS
DESCENT = "gradient descent"
LEARNT = 0.75  # accuracy at which a network counts as having learnt
FASTER = 1.1  # ratio of steps from which on one is faster
OPEN = 0.05  # gap between classes that still counts as one
STRICT = 0.95  # largest share at which |G₀ − G₁| is 0.9: NORM's filter; the library's is 0.9
LEAST_RATIO, LEAST_GAP, LEAST_STEPS = 0.05, 0.01, 5.0  # what is too small to matter, stated before sampling goes on
Arms = Mapping[str, Arm]


def _slower(one: Arm, other: Arm) -> Number:
    """Steps to `LEARNT` of one arm by those of the other; unknown where a network does not get there."""
    return one.steps_to("accuracy", LEARNT) / other.steps_to("accuracy", LEARNT)


def compared(trained: Arms, predicted: Arms) -> dict[str, Any]:
    """Neutral and prejudiced starts under one optimizer.

    `ratio`: steps to `LEARNT` from prejudiced starts by those from neutral ones; `strict`: of those that NORM's own
    filter keeps; `foretold`: in the prediction; `gap`: favoured − others when prejudiced starts first have learnt.
    """
    arm, even = trained[PREJUDICED], trained[NEUTRAL]
    when = arm.first_look("accuracy", LEARNT)
    return {
        "trained": trained, "predicted": predicted, "ratio": _slower(arm, even),
        "strict": _slower(arm.kept(arm.curve("largest").draws[:, 0] >= STRICT), even),
        "foretold": _slower(predicted[PREJUDICED], predicted[NEUTRAL]) if predicted else UNKNOWN,
        "gap": UNKNOWN if when is None else arm.at("gap", when),
    }  # fmt: skip


def _starts(c: Found, name: str, data: Data, test: Data | None = None, **options: Any) -> dict[Any, Training]:
    """Both kinds of starts under one optimizer."""
    draws = c.known.get("draws", 0)
    return {
        (name, label): Training(NET, data, {"start": start, "width": 100, **options}, test=test, draws=draws)
        for label, start in STARTS.items()
    }


def _both_optimizers(c: Found, data: Data, test: Data | None) -> dict[Any, Training]:
    adam = {"optimizer": "adam", "lr": c.adam, "batch": c.known.get("batch", 128), "steps": c.steps}
    plain = {"optimizer": "gd", "lr": c.gd, "steps": c.gd_steps, "batch": None}
    return _starts(c, "Adam", data, test, **adam) | _starts(c, DESCENT, data, test, **plain)


def _curves(c: Found) -> list[dict[str, Any]]:
    return [line for name, one in c.found.items() for arms in (one["trained"], one["predicted"])
            for line in curve_rows(arms.values(), optimizer=name.capitalize())]  # fmt: skip


def _compared(
    id: str, title: str, where: str, data: Callable[[Found], tuple[Data, Data | None]], note: str, **options: Any
) -> Item:
    """An item: both optimizers on these data. Thresholds were chosen before the first full run."""
    return Item(
        id, title, where, claims=("N12",),
        cells=lambda c: _both_optimizers(c, *data(c)),
        quantities=lambda c: {"found": {how: compared(c.arms(how), c.known_arms(how)) for how in ("Adam", DESCENT)}},
        judge=lambda c: [
            claimed(
                "N12", f"steps of prejudiced starts over those of neutral ones, to an accuracy of {LEARNT}",
                [check("Adam", c.found["Adam"]["ratio"], above=FASTER, least=LEAST_RATIO)],
                within=[check(DESCENT, c.found[DESCENT]["ratio"], above=FASTER, least=LEAST_RATIO),
                        check("Adam with NORM's filter (|G₀ − G₁| > 0.9)", c.found["Adam"]["strict"], above=FASTER)],
                headline=f"prejudiced by neutral starts, steps: {c.found['Adam']['ratio']} under Adam, "
                f"{c.found[DESCENT]['ratio']} under {DESCENT}",
            ),
            claimed(
                "N12", f"the gap between classes persists: favoured − others when prejudiced starts have {LEARNT}",
                [check("Adam", c.found["Adam"]["gap"], above=OPEN, least=LEAST_GAP)],
                within=[check(DESCENT, c.found[DESCENT]["gap"], above=OPEN, least=LEAST_GAP)],
            ),
            claimed(
                "N12", "beyond the paper: it is an effect of the optimizer, ratio of steps",
                [check("Adam", c.found["Adam"]["ratio"], above=c.found[DESCENT]["ratio"], by=0.1, than=f"{DESCENT}'s",
                       least=LEAST_RATIO)],
            ),
            claimed(
                "N12", "beyond the paper: the tangent kernel predicts both ratios without training, predicted by "
                "measured", each({name: one["foretold"] / one["ratio"] for name, one in c.found.items()}, near=1.0,
                                 room=0.15),
            ),
        ],
        tables=lambda c: {"curves": _curves(c)},
        charts=lambda c: {"starts": rows_chart(
            {name.capitalize(): (one["trained"], one["predicted"]) for name, one in c.found.items()},
            ["largest", "classes", "accuracy", *["test accuracy"] * c.cells["Adam", NEUTRAL].tested],
            title="Neutral and prejudiced starts",
        )},
        holds={"starts": Holds("Neutral starts learn faster than prejudiced ones under Adam", entries=(0,))},
        notes=lambda c: [
            "Prejudiced starts are those whose largest share is at least 0.9; NORM's |G₀ − G₁| > 0.9 is 0.95, and is "
            "looked at apart.",
            "The learning rate of plain descent is ours: the bias overshoots at "
            f"{c.predictions[DESCENT, NEUTRAL].about['overshoot'] / c.gd:.2g} times as much.", note,
        ],
        **options,
    )  # fmt: skip


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

fig2_size = Item(
    "norm/fig2-size", "Neutral and prejudiced starts at NORM's own dimension, batch and learning rate", "NORM Fig 2",
    claims=("N12",), seconds=(15, 280),
    about="SHLP of 100; two blobs of {n} points a class (NORM: 10 000) in 1000 dimensions, Adam {rate} in batches of "
    "{batch}, {steps} steps (NORM's 80 epochs: 3125); {networks} networks a start.",
    quick=dict(n=300, rate=1e-4, batch=128, steps=150, inits=10, parts=1),
    full=dict(n=2000, rate=1e-5, batch=512, steps=3125, inits=2, parts=6),
    cells=lambda c: _starts(c, "Adam", fg.data.two_blobs(c.n, 1000, seed=c.run.seed), optimizer="adam", lr=c.rate),
    quantities=lambda c: {"found": {"Adam": compared(c.arms("Adam"), {})}},
    judge=lambda c: [claimed(
        "N12", f"{2 * c.n:,} points in 1000 dimensions, Adam {c.rate:g}, batches of {c.batch}, to an accuracy of "
        f"{LEARNT}",
        [check("steps of prejudiced starts over those of neutral ones", c.found["Adam"]["ratio"], above=FASTER),
         check("favoured − others by then", c.found["Adam"]["gap"], above=OPEN)],
    )],
    tables=lambda c: {"curves": _curves(c)},
    charts=lambda c: {"starts": rows_chart({"Adam": (c.arms("Adam"), {})}, ["largest", "classes", "accuracy"])},
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


def _apart(arms: Arms, what: str, step: int | None) -> Number:
    """Neutral − prejudiced starts; unknown at no step."""
    return UNKNOWN if step is None else arms[NEUTRAL].at(what, step) - arms[PREJUDICED].at(what, step)


def _early(arms: Arms) -> Number:
    """The gap between classes of prejudiced starts when neutral ones have the first level, on average."""
    step = arms[NEUTRAL].first_look("accuracy", LEVELS[0])
    return UNKNOWN if step is None else arms[PREJUDICED].at("gap", step)


def _overlap(c: Found, n: int) -> list[Check]:
    """Whether accuracies of both starts on so many points are the same, level by level."""
    arms = c.by_points[n]
    return each({f"at {level}, {n:,} points": _apart(arms, "accuracy", arms[NEUTRAL].first_look("accuracy", level))
                 for level in LEVELS}, near=0.0, room=OVERLAP)  # fmt: skip


def _trust(depth: int, width: int, d: int, lr: float, seed: int) -> dict[str, Any]:
    """What the theory says of itself here."""
    x, how = fg.data.two_blobs(50, d, seed=seed), {"steps": 1, "draws": 2, "optimizer": "gd"}
    t = fg.predict_training(deep("relu", depth), data=x, lr=lr, width=width, seed=seed, **how)  # type: ignore[arg-type]
    assert t.trust is not None
    return {"word": t.trust.word}


fig_g7 = Item(
    "norm/fig-g7", "Twenty hidden layers: do neutral starts still learn faster?", "NORM Figs G.7, G.8", claims=("N14",),
    about="{depth} hidden ReLU layers of {width} (NORM: 20 of 100), Kaiming; two blobs of {counts} points in {d} "
    "dimensions (NORM: 20 000 in 1000); Adam {rate} in batches of {batch} or all points, {steps} steps (NORM: 3125); "
    "{networks} networks a start and size.",
    quick=dict(depth=10, width=60, d=100, counts=(600, 100), rate=1e-4, batch=64, steps=120, inits=10, parts=1),
    full=dict(depth=20, width=100, d=1000, counts=(4000, 400), rate=1e-5, batch=512, steps=600, inits=3, parts=4),
    seconds=(20, 280),
    cells=lambda c: {
        (f"{n} points", name): Training(deep("relu", c.depth), x, {
            "start": start, "optimizer": "adam", "lr": c.rate, "batch": min(c.batch, n)
        }) for n, x in {n: fg.data.two_blobs(n // 2, c.d, seed=c.run.seed) for n in c.counts}.items()
        for name, start in STARTS.items()
    },
    quantities=lambda c: {
        "by_points": {n: c.arms(f"{n} points") for n in c.counts},
        "trust": c.run.keep(_trust, label="trust of the theory", depth=c.depth, width=c.width, d=c.d, lr=c.rate,
                            seed=c.run.seed)["word"],
    },
    judge=lambda c: [
        claimed(
            "N14", f"{c.depth} hidden layers: curves of classes split, favoured − others; neutral − prejudiced starts "
            f"at step {SOON}, without a limit of prejudiced starts when neutral ones have {LEVELS[0]}",
            each({f"difference, {n:,} points": _apart(arms, "gap", SOON) for n, arms in c.by_points.items()},
                 below=-SPLIT),
            within=each({f"prejudiced starts, {n:,} points": _early(arms) for n, arms in c.by_points.items()},
                        above=SPLIT),
            limit="the split is gone before much is learnt",
        ),
        claimed(
            "N14", f"{c.depth} hidden layers: accuracy, neutral − prejudiced starts, when neutral ones have so much",
            _overlap(c, c.counts[0]), within=_overlap(c, c.counts[1]), limit="they overlap with many points only",
            headline="accuracy, neutral − prejudiced: "
            + ", ".join(f"{one.found} {one.name.partition(',')[0]}" for one in _overlap(c, c.counts[0])),
        ),
    ],
    tables=lambda c: {
        "curves": [line for n, arms in c.by_points.items() for line in curve_rows(arms.values(), points=n)]
    },
    charts=lambda c: {"starts": rows_chart(
        {f"{n:,} points": (arms, {}) for n, arms in c.by_points.items()}, ["largest", "classes", "accuracy"]
    )},
    holds={"starts": "Deep networks, too: classes split by start, and global accuracy overlaps"},
    notes=lambda c: [
        "Neutral starts are rare at this depth: "
        + ", ".join(f"{a[NEUTRAL].networks} of {a[NEUTRAL].drawn:,} drawn" for a in c.by_points.values()) + ".",
        "Global accuracies of neutral and prejudiced starts are compared at the same steps. Points and steps are ours; "
        "there is no prediction, because so deep and narrow a network leaves its kernel behind: of itself the theory "
        f"says “{c.trust}” here.",
    ],
)  # fmt: skip


NORMS = ("BatchNorm", "LayerNorm")
ABSORBED = 0.6  # largest share at which the bias counts as absorbed


def _gaps(arm: Arm) -> list[Number]:
    """Favoured − others at the start, then about three a decade."""
    steps = sorted({0, *(arm.near(10 ** (k / 3)) for k in range(20) if 10 ** (k / 3) <= arm.last)})
    return [arm.at("gap", step) for step in steps]


def placed(trained: Arms, predicted: Arms) -> dict[str, Any]:
    """All places of the norm at one depth, network by network, which share their weights.

    `saved`: by how many steps sooner the bias is absorbed with the norm after than before; `more`: by how many more
    LayerNorm saves than BatchNorm; `off`: largest share halfway (in the logarithm of steps), trained − predicted.
    """
    first = trained["no norm"]
    saved = {norm: sooner(trained[f"{norm} before"], trained[f"{norm} after"], ABSORBED) for norm in NORMS}
    half = first.near(first.last**0.5)
    return {
        "trained": trained, "predicted": predicted, "saved": {norm: first.number(v) for norm, v in saved.items()},
        "more": first.number(saved["LayerNorm"] - saved["BatchNorm"]),
        "off": {place: trained[place].at("largest", half) - arm.at("largest", half)
                for place, arm in predicted.items()},
    }  # fmt: skip


def _modes(c: Found) -> str:
    """What the tangent kernel says of BatchNorm after: whether anything moves the bias there."""
    arms = [one["predicted"].get("BatchNorm after") for one in c.by_depth.values()]
    ratios = [arm.about["bias"] / arm.about["signal"] for arm in arms if arm is not None]
    if not ratios or max(ratios) > 1e-3:
        return ""
    return "; with BatchNorm after the activation the tangent kernel has no bias mode at all (λ_b/λ_signal = 0)"


def _places_chart(c: Found) -> Any:
    """By depth: share of the largest class, accuracy by class under each norm."""
    panels: dict[str, Any] = {}
    for depth, one in c.by_depth.items():
        where = f"{depth} layer{'s' if depth > 1 else ''}"
        panels[f"{where}: share of the largest class"] = lines_of("largest", one["trained"], one["predicted"])
        for norm in NORMS:
            arms, known = ({p: arms[p] for p in (f"{norm} before", f"{norm} after") if p in arms}
                           for arms in (one["trained"], one["predicted"]))  # fmt: skip
            panels[f"{where}, {norm}: accuracy by class"] = by_class(arms, known)
    limits = dict.fromkeys((h for h in panels if "share" in h), (0.48, 1.0))
    return arms_chart(panels, width=360, height=230, y_domains=limits)


def _placed(
    id: str, title: str, where: str, data: Callable[[Found], tuple[Data, Data | None]],
    layers: Callable[[Found], dict[int, int]], note: str, **options: Any,
) -> Item:  # fmt: skip
    """An item: unfiltered starts, every place of the norm at every depth (`layers`: their width by their number).

    Thresholds were chosen before the first full run.
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

    def by_depth(c: Found) -> dict[int, Any]:
        both = (c.cells, c.predictions)
        return {k: placed(*({place: of[place, f"depth {k}"] for place in PLACES} for of in both)) for k in layers(c)}

    return Item(
        id, title, where, claims=("N13",),
        cells=cells,
        quantities=lambda c: {"by_depth": by_depth(c)},
        judge=lambda c: [
            claimed(
                "N13", "favoured − others: with a norm after at every look, with one before at the start",
                [*each({f"{norm} after, depth {k}": _gaps(one["trained"][f"{norm} after"])
                        for k, one in c.by_depth.items() for norm in NORMS}, below=SPLIT, least=LEAST_GAP),
                 *each({f"{norm} before, depth {k}": _gaps(one["trained"][f"{norm} before"])[0]
                        for k, one in c.by_depth.items() for norm in NORMS}, above=SPLIT)],
            ),
            claimed(
                "N13", f"steps that moving the norm after saves until the bias is absorbed (largest share {ABSORBED})",
                each({f"{norm}, depth {k}": saved for k, one in c.by_depth.items()
                      for norm, saved in one["saved"].items()}, above=0.0, least=LEAST_STEPS),
                also="mean steps, " + "; ".join(
                    f"depth {k}: " + ", ".join(f"{place} {arm.steps_to('largest', ABSORBED, least=True)}"
                                               for place, arm in one["trained"].items())
                    for k, one in c.by_depth.items()
                ),
                headline="steps saved: " + ", ".join(
                    f"{norm} {saved}" for norm, saved in next(iter(c.by_depth.values()))["saved"].items()),
            ),
            claimed(
                "N13", "most of all under LayerNorm: steps that moving it saves beyond those that moving BatchNorm "
                "saves", each({f"depth {k}": one["more"] for k, one in c.by_depth.items()}, above=0.0),
                otherwise=f"moving BatchNorm saves more{_modes(c)}",
            ),
            claimed(
                "N13", "beyond the paper: largest share halfway (in the logarithm of steps), trained − by the tangent "
                "kernel", each({f"{place}, depth {k}": off for k, one in c.by_depth.items()
                                for place, off in one["off"].items()}, near=0.0, room=0.05),
            ),
        ],
        tables=lambda c: {"curves": [
            line for k, one in c.by_depth.items() for arms in (one["trained"], one["predicted"])
            for place, arm in arms.items() for line in curve_rows([arm], place=place, depth=k)
        ]},
        charts=lambda c: {"places": _places_chart(c)},
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
