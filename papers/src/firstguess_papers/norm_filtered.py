"""NORM: networks that start neutral against networks that start prejudiced, under Adam and under plain descent.

Figs 2, G.3–G.6. Is "neutral starts converge faster" a matter of the optimizer? theory.md §7 says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from firstguess_papers.items import Entry, Outcome, item
from firstguess_papers.judging import Number, Truth, above, all_of, below, entry, same, stated
from firstguess_papers.running import Run
from firstguess_papers.tables import columns
from firstguess_papers.training_pieces import Arm, predicted, trained

if TYPE_CHECKING:
    from firstguess.data import Data
    from firstguess_papers.library import Chart

NET = "dense(weight_var=2) > relu > dense(weight_var=2)"  # SHLP
STARTS = {"neutral start": "even", "prejudiced start": "biased"}
NEUTRAL, PREJUDICED = STARTS
LEARNT = 0.75  # accuracy at which a network counts as having learnt
FASTER = 1.1  # ratio of steps from which on one is faster
OPEN = 0.05  # gap between classes that still counts as one
STRICT = 0.95  # largest share at which |G₀ − G₁| is 0.9: NORM's filter; the library's is 0.9
ROOM = 0.15  # of predicted by measured ratios


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
        start = self.trained[PREJUDICED].largest.draws[:, 0]
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
        return Number(np.nan, np.nan) if when is None else arm.at("gap", when)


def slower(one: Arm, other: Arm) -> Number:
    """Steps to `LEARNT` of one arm by those of the other; unknown where a network does not get there."""
    return one.steps_to("accuracy", LEARNT) / other.steps_to("accuracy", LEARNT)


def both(run: Run, data: Data, name: str, *, inits: int, draws: int, parts: int = 1, **options: Any) -> Both:
    """Both kinds of starts under one optimizer; `draws` = 0: no prediction."""
    arms, known = {}, {}
    test = options.pop("test", None)
    for label, start in STARTS.items():
        shown = f"{name}, {label}"
        arms[label] = trained(
            run, NET, data, label=shown, test=test, parts=parts, inits=inits, start=start, width=100, **options
        )
        if draws:
            known[label] = predicted(
                run,
                NET,
                data,
                label=shown,
                test=test,
                draws=draws,
                start=start,
                width=100,
                trust=not run.quick,
                **options,
            )
    return Both(arms, known)


def _whose(not_so: Truth) -> str:
    """Whether plain descent is known not to do it, or only not known to."""
    return "it is Adam's: under plain gradient descent" if not_so is True else "not decided under plain descent:"


def judged(adam: Both, descent: Both) -> list[Entry]:
    """What the numbers say of N12. Thresholds are those above, chosen before the first full run."""
    fast, plain = adam.ratio, descent.ratio
    return [
        entry(
            "N12",
            f"under Adam prejudiced starts need more than {FASTER} times as many steps as neutral ones to an accuracy "
            f"of {LEARNT}; without a limit if so under plain gradient descent, too, and with NORM's own filter "
            "(|G₀ − G₁| > 0.9)",
            f"Adam {fast} (NORM's filter {adam.strict}), gradient descent {plain}",
            [above(fast, FASTER)],
            within=[above(plain, FASTER) is True, above(adam.strict, FASTER)],
            limit=f"{_whose(below(plain, FASTER))} prejudiced starts need {plain} times as many steps",
            headline=f"prejudiced by neutral starts, steps: {fast} under Adam, {plain} under gradient descent",
        ),
        entry(
            "N12",
            f"the gap between classes persists: when prejudiced starts have an accuracy of {LEARNT} under Adam, that "
            f"of the class favoured at the start is still more than {OPEN} above the others'; without a limit if "
            "under plain gradient descent, too",
            f"Adam {adam.gap}, gradient descent {descent.gap}",
            [above(adam.gap, OPEN)],
            within=[above(descent.gap, OPEN) is True],
            limit=f"{_whose(below(descent.gap, OPEN))} the gap is {descent.gap} by then",
        ),
        entry(
            "N12",
            "beyond the paper: it is an effect of the optimizer: the ratio of steps is higher under Adam than under "
            "gradient descent by more than 0.1",
            f"Adam {fast}, gradient descent {plain}",
            [above(fast, plain, by=0.1)],
        ),
        entry(
            "N12",
            f"beyond the paper: the tangent kernel foretells both ratios within {100 * ROOM:.0f} %, without training",
            f"predicted by measured: Adam {adam.foretold / fast}, gradient descent {descent.foretold / plain}",
            [same(adam.foretold / fast, 1.0, room=ROOM), same(descent.foretold / plain, 1.0, room=ROOM)],
        ),
    ]


def title(adam: Both, descent: Both) -> str:
    """What was found, as far as checks say it."""
    faster = above(adam.ratio, FASTER)
    only = all_of([faster, above(adam.ratio, descent.ratio, by=0.1)])
    so = (
        f"Prejudiced starts need {adam.ratio.value:.2f} times as long to learn under Adam, {descent.ratio.value:.2f} "
        "times under plain gradient descent"
    )
    return stated(only, so, stated(faster, "Neutral starts learn faster under Adam", "Neutral and prejudiced starts"))


def chart(rows: dict[str, Both], heading: str, subtitle: list[str]) -> Chart:
    """One row of panels an optimizer: share, accuracy by class, accuracy over all points; held-out where there is."""
    from firstguess_papers.training_charts import Line, arms_chart, by_class, lines_of

    panels: dict[str, list[Line]] = {}
    held = all(arm.test is not None for found in rows.values() for arm in found.trained.values())
    for name, found in rows.items():
        panels[f"{name}: share of the largest class"] = lines_of("largest", found.trained, found.predicted)
        panels[f"{name}: accuracy by class"] = by_class(found.trained, found.predicted)
        panels[f"{name}: accuracy, all points"] = lines_of("accuracy", found.trained, found.predicted)
        if held:
            known = {k: arm for k, arm in found.predicted.items() if arm.test is not None}
            panels[f"{name}: accuracy, held-out"] = lines_of("test accuracy", found.trained, known)
    across, width = (4, 290) if held else (3, 360)
    return arms_chart(panels, title=heading, subtitle=subtitle, columns=across, width=width, height=220)


def table(rows: dict[str, Both]) -> dict[str, list[Any]]:
    """All curves, and predictions of them."""
    every = [
        line
        for name, found in rows.items()
        for arms in (found.trained, found.predicted)
        for arm in arms.values()
        for line in arm.rows(optimizer=name)
    ]
    return columns(every)


def networks(found: Both) -> str:
    """How many were trained and how many starts were looked at for them."""
    return ", ".join(f"{arm.networks} with a {name} of {arm.drawn} drawn" for name, arm in found.trained.items())


def compared(run: Run, data: Data, about: str, sizes: dict[str, Any], notes: list[str], **test: Any) -> Outcome:
    """An item: both optimizers on these data."""
    common = {"inits": sizes["inits"], "draws": sizes["draws"], "parts": sizes["parts"], **test}
    adam = both(run, data, "Adam", optimizer="adam", lr=sizes["adam"], batch=sizes["batch"], steps=sizes["steps"],
                **common)  # fmt: skip
    descent = both(run, data, "gradient descent", optimizer="gd", lr=sizes["gd"], steps=sizes["gd_steps"], **common)
    rows = {"Adam": adam, "Gradient descent": descent}
    subtitle = [
        f"{about}; one hidden ReLU layer of 100. Adam: learning rate {sizes['adam']:g}, batches of {sizes['batch']}; "
        f"gradient descent: {sizes['gd']:g}, all points.",
        f"Adam: {networks(adam)}. Neutral: largest share at most 55 %; prejudiced: at least 90 %.",
    ]
    return Outcome(
        judged(adam, descent),
        {"curves": table(rows)},
        {"starts": chart(rows, title(adam, descent), subtitle)},
        [
            "Prejudiced starts are those whose largest share is at least 0.9; NORM's |G₀ − G₁| > 0.9 is 0.95, and is "
            "looked at apart.",
            "The learning rate of plain descent is ours: the bias overshoots at "
            f"{descent.predicted[NEUTRAL].about['overshoot'] / sizes['gd']:.2g} times as much.",
            *notes,
        ],
    )


@item(
    "norm/fig2",
    "Neutral and prejudiced starts: who learns faster, and under which optimizer",
    claims=("N12",),
    where="NORM Fig 2",
    about="SHLP of 100; two blobs of {points} points a class in {d} dimensions (NORM: 10 000 in 1000, for which see "
    "norm/fig2-size); Adam {adam} (NORM: 1e-5) in batches of {batch} (512), {steps} steps, and gradient descent {gd}, "
    "{gd_steps} steps; {networks} networks a start and optimizer, {draws} predicted.",
    quick=dict(points=150, d=200, inits=16, draws=60, parts=1, adam=2e-4, batch=128, steps=250, gd=0.01, gd_steps=250),
    full=dict(points=300, d=300, inits=20, draws=100, parts=2, adam=1e-4, batch=128, steps=500, gd=0.01, gd_steps=400),
    seconds=(12, 90),
)
def fig2(run: Run) -> Outcome:
    """N12 on two blobs."""
    import firstguess as fg

    (sizes,) = run.sizes
    points, d = run.take("points d")
    data = fg.data.two_blobs(points, d, seed=run.seed)
    return compared(
        run, data, f"Two blobs, {data.n} points in {d} dimensions", sizes,
        ["Dimensions, points, learning rate and batches are ours and smaller than NORM's: norm/fig2-size has its own."],
    )  # fmt: skip


@item(
    "norm/fig2-size",
    "Neutral and prejudiced starts at NORM's own dimension, batch and learning rate",
    claims=("N12",),
    where="NORM Fig 2",
    about="SHLP of 100; two blobs of {n} points a class (NORM: 10 000) in 1000 dimensions, Adam {rate} in batches of "
    "{batch}, {steps} steps (NORM's 80 epochs: 3125); {networks} networks a start.",
    quick=dict(n=300, rate=1e-4, batch=128, steps=150, inits=10, parts=1),
    full=dict(n=2000, rate=1e-5, batch=512, steps=3125, inits=2, parts=6),
    seconds=(15, 280),
)
def fig2_size(run: Run) -> Outcome:
    """N12 under Adam alone, at NORM's sizes but for the number of points and steps; no prediction."""
    import firstguess as fg

    n, rate, batch, steps, inits, parts = run.take("n rate batch steps inits parts")
    data = fg.data.two_blobs(n, 1000, seed=run.seed)
    adam = both(
        run, data, "Adam", inits=inits, draws=0, parts=parts, optimizer="adam", lr=rate, batch=batch, steps=steps
    )
    ratio, gap = adam.ratio, adam.gap
    fast, wide = above(ratio, FASTER), above(gap, OPEN)
    said = f"{data.n:,} points in 1000 dimensions, Adam {rate:g}, batches of {batch}"
    return Outcome(
        [
            entry(
                "N12",
                f"{said}: prejudiced starts need more than {FASTER} times as many steps as neutral ones to an accuracy "
                f"of {LEARNT}, and by then the favoured class is still more than {OPEN} above the others",
                f"{ratio} times as many steps; gap {gap}",
                [fast, wide],
            )
        ],
        {"curves": table({"Adam": adam})},
        {
            "starts": chart(
                {"Adam": adam},
                stated(
                    fast,
                    f"At NORM's learning rate, too, prejudiced starts need {ratio.value:.2g} times as long",
                    "Neutral and prejudiced starts at NORM's dimension",
                ),
                [f"Two blobs, {said}; one hidden ReLU layer of 100: {networks(adam)}"],
            )
        },
        [
            "No prediction: with so many points those for Adam, which follow some thousand weights, are too slow and "
            "too rough.",
        ],
    )


_IMAGES = (
    "SHLP of 100; {n} images and as many held out; Adam {adam} in batches of 128, {steps} steps, and gradient descent "
    "{gd}, {gd_steps} steps; {networks} networks a start and optimizer, {draws} predicted."
)
_QUICK = dict(n=120, adam=3e-5, gd=2e-3, steps=150, gd_steps=80, inits=10, parts=1, draws=30)
_FULL = dict(adam=1e-5, gd=2e-3, draws=80)


def _images(run: Run, spec: str, about: str) -> Outcome:
    (sizes,) = run.sizes
    name, _, choice = spec.partition(":")
    data = run.data(spec, points=sizes["n"], seed=run.seed)
    test = run.data(f"{name}:test,{choice}", points=sizes["n"], seed=run.seed)
    notes = ["The numbers of images, batches and steps are ours, the learning rate of a full run is NORM's."]
    return compared(run, data, f"{data.n} images, {about}", sizes | {"batch": 128}, notes, test=test)


@item(
    "norm/fig-g3",
    "Neutral and prejudiced starts on CIFAR-10, vehicles against animals",
    claims=("N12",),
    where="NORM Figs G.3, G.4",
    needs=("cifar10",),
    about=_IMAGES,
    quick=_QUICK,
    full=_FULL | dict(n=400, steps=400, gd_steps=150, inits=6, parts=4),
    seconds=(10, 240),
)
def fig_g3(run: Run) -> Outcome:
    """N12 on images of vehicles and animals."""
    return _images(run, "cifar10:vehicles-animals", "CIFAR-10 vehicles against animals")


@item(
    "norm/fig-g5-starts",
    "Neutral and prejudiced starts on MNIST, even against odd digits",
    claims=("N12",),
    where="NORM Figs G.5, G.6 (training)",
    needs=("mnist",),
    about=_IMAGES,
    quick=_QUICK,
    full=_FULL | dict(n=600, steps=600, gd_steps=200, inits=10, parts=3),
    seconds=(10, 150),
)
def fig_g5_starts(run: Run) -> Outcome:
    """N12 on digits."""
    return _images(run, "mnist:even-odd", "MNIST even against odd")
