"""NORM: twenty hidden layers, from neutral and prejudiced starts, with many and with few points (Figs G.7, G.8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from firstguess_papers.items import Entry, Outcome, item
from firstguess_papers.judging import Number, above, all_of, entry, same, stated
from firstguess_papers.norm_filtered import NEUTRAL, PREJUDICED, STARTS
from firstguess_papers.running import Run
from firstguess_papers.tables import columns
from firstguess_papers.training_pieces import Arm, trained

LEVELS = (0.6, 0.7, 0.8)  # accuracies of neutral starts at which both are compared
OVERLAP = 0.05  # difference of global accuracies up to which curves overlap
SPLIT = 0.1  # gap between classes from which on their curves are split
SOON = 10  # the step at which that is looked at first


def text(depth: int) -> str:
    """MHLP."""
    return f"{depth} x [dense(weight_var=2) > relu] > dense(weight_var=2)"


@dataclass(frozen=True)
class Size:
    """Both starts on so many points."""

    points: int
    arms: dict[str, Arm]

    @property
    def looks(self) -> dict[float, int]:
        """Steps at which neutral starts have each of the `LEVELS`, on average; without those they do not reach."""
        found = {level: self.arms[NEUTRAL].first_look("accuracy", level) for level in LEVELS}
        return {level: step for level, step in found.items() if step is not None}

    def apart(self, step: int) -> Number:
        """Global accuracy: neutral − prejudiced."""
        return self.arms[NEUTRAL].at("accuracy", step) - self.arms[PREJUDICED].at("accuracy", step)

    @property
    def overlap(self) -> list[bool | None]:
        """At each level; not decided where one is not reached."""
        found = [same(self.apart(step), 0.0, room=OVERLAP) for step in self.looks.values()]
        return [*found, *[None] * (len(LEVELS) - len(self.looks))]

    @property
    def split(self) -> Number:
        """The gap between classes at step `SOON`, prejudiced − neutral starts."""
        return self.arms[PREJUDICED].at("gap", SOON) - self.arms[NEUTRAL].at("gap", SOON)

    @property
    def early(self) -> Number:
        """The gap between classes of prejudiced starts when neutral ones have the first level."""
        step = self.looks.get(LEVELS[0])
        return Number(float("nan"), float("nan")) if step is None else self.arms[PREJUDICED].at("gap", step)

    def words(self) -> str:
        """The differences, level by level."""
        return f"{self.points:,} points: " + ", ".join(
            f"{self.apart(step)} at {level} (step {step})" for level, step in self.looks.items()
        )


def judged(many: Size, few: Size, depth: int) -> list[Entry]:
    """What the numbers say of N14. Thresholds are those above, chosen before the first full run."""
    return [
        entry(
            "N14",
            f"{depth} hidden layers: curves of the classes still split: after {SOON} steps favoured − others is more "
            f"than {SPLIT} larger from prejudiced starts than from neutral ones; without a limit if it is above "
            f"{SPLIT} even when neutral starts have an accuracy of {LEVELS[0]}",
            f"after {SOON} steps {many.split} ({many.points:,} points), {few.split} ({few.points:,}); at {LEVELS[0]}: "
            f"{many.early}, {few.early}",
            [above(many.split, SPLIT), above(few.split, SPLIT)],
            within=[above(many.early, SPLIT) is True, above(few.early, SPLIT) is True],
            limit="the split is gone, with many points or with few, before much is learnt",
        ),
        entry(
            "N14",
            f"{depth} hidden layers: global accuracies of neutral and prejudiced starts are the same within {OVERLAP} "
            f"when neutral ones have {', '.join(map(str, LEVELS))}; without a limit if with few points, too",
            f"neutral − prejudiced, {many.words()}; {few.words()}",
            many.overlap,
            within=[all_of(few.overlap) is True],
            limit="they overlap with many points only",
            headline=f"accuracy, neutral − prejudiced, {many.words()}",
        ),
    ]


def title(many: Size, few: Size, depth: int) -> str:
    """What was found, as far as checks say it."""
    with_many, with_few = all_of(many.overlap), all_of(few.overlap)
    split = all_of([above(many.split, SPLIT), above(few.split, SPLIT)])
    ends = f"{depth} layers: classes " + stated(split, "still split", "by start")
    if with_many is True and with_few is False:
        return f"{ends}; global accuracy overlaps with {many.points:,} points, and does not with {few.points:,}"
    if with_many is True and with_few is True:
        return f"{ends}; global accuracy of both starts overlaps"
    if with_many is False:
        return f"{ends}; global accuracy does not overlap: prejudiced starts learn at another speed"
    return f"{ends}; global accuracy of neutral and prejudiced starts"


@item(
    "norm/fig-g7",
    "Twenty hidden layers: do neutral starts still learn faster?",
    claims=("N14",),
    where="NORM Figs G.7, G.8",
    about="{depth} hidden ReLU layers of {width} (NORM: 20 of 100), Kaiming; two blobs of {counts} points in {d} "
    "dimensions (NORM: 20 000 in 1000); Adam {rate} in batches of {batch} or all points, {steps} steps (NORM: 3125); "
    "{networks} networks a start and size.",
    quick=dict(depth=10, width=60, d=100, counts=(600, 100), rate=1e-4, batch=64, steps=120, inits=10, parts=1),
    full=dict(depth=20, width=100, d=1000, counts=(4000, 400), rate=1e-5, batch=512, steps=600, inits=3, parts=4),
    seconds=(20, 280),
)
def fig_g7(run: Run) -> Outcome:
    """N14 on two blobs. No prediction: so deep and narrow a network is not lazy, and `fg.predict_training` says so."""
    import firstguess as fg
    from firstguess_papers.training_charts import Line, arms_chart, by_class, lines_of

    depth, width, d, counts, rate, batch, steps, inits, parts = run.take(
        "depth width d counts rate batch steps inits parts"
    )
    sizes: list[Size] = []
    panels: dict[str, list[Line]] = {}
    rows: list[dict[str, Any]] = []
    for n in counts:
        data = fg.data.two_blobs(n // 2, d, seed=run.seed)
        arms = {
            name: trained(
                run, text(depth), data, label=f"{n} points, {name}", inits=inits, parts=parts, start=start,
                width=width, optimizer="adam", lr=rate, batch=min(batch, n), steps=steps,
            )
            for name, start in STARTS.items()
        }  # fmt: skip
        sizes.append(Size(n, arms))
        panels[f"{n:,} points: share of the largest class"] = lines_of("largest", arms)
        panels[f"{n:,} points: accuracy by class"] = by_class(arms)
        panels[f"{n:,} points: accuracy, all points"] = lines_of("accuracy", arms)
        rows += [line for arm in arms.values() for line in arm.rows(points=n)]
    many, few = sizes
    trust = _trust(run, depth, width, d, rate)
    chart = arms_chart(
        panels,
        title=title(many, few, depth),
        subtitle=[
            f"Two blobs in {d} dimensions; {depth} hidden ReLU layers of {width}; Adam {rate:g}, batches of {batch}; "
            f"{many.arms[NEUTRAL].networks} networks a start. No prediction: {trust}."
        ],
        columns=3,
        width=360,
        height=220,
    )
    return Outcome(
        judged(many, few, depth),
        {"curves": columns(rows)},
        {"starts": chart},
        [
            "Neutral starts are rare at this depth: "
            + ", ".join(f"{s.arms[NEUTRAL].networks} of {s.arms[NEUTRAL].drawn:,} drawn" for s in sizes) + ".",
            "Global accuracies of neutral and prejudiced starts are compared at the same steps. Points and steps are "
            "ours; there is no prediction, because so deep and narrow a network leaves its kernel behind.",
        ],
    )  # fmt: skip


def _trust(run: Run, depth: int, width: int, d: int, rate: float) -> str:
    """What the theory says of itself here."""
    import firstguess as fg

    def compute() -> dict[str, Any]:
        t = fg.predict_training(
            text(depth), data=fg.data.two_blobs(50, d, seed=run.seed), lr=rate, steps=1, draws=2, width=width,
            optimizer="gd", seed=run.seed,
        )  # fmt: skip
        assert t.trust is not None
        return {"word": t.trust.word}

    word = run.piece({"trust": depth, "width": width, "d": d, "lr": rate}, compute, label="trust of the theory")["word"]
    return f"of itself the theory says “{word}” here"
