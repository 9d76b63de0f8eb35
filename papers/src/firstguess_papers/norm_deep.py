"""NORM: twenty hidden layers, from neutral and prejudiced starts, with many and with few points (Figs G.7, G.8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import firstguess as fg
from firstguess_papers.items import Entry, Holds
from firstguess_papers.judging import Number, above, all_of, entry, same
from firstguess_papers.measured import Found, Training, measured
from firstguess_papers.norm_filtered import NEUTRAL, PREJUDICED, STARTS
from firstguess_papers.training_charts import rows_chart
from firstguess_papers.training_pieces import Arm, curve_rows

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


def _cells(c: Found) -> dict[Any, Training]:
    data = {n: fg.data.two_blobs(n // 2, c.d, seed=c.run.seed) for n in c.counts}
    return {
        (f"{n} points", name): Training(
            text(c.depth), x, {"start": start, "optimizer": "adam", "lr": c.rate, "batch": min(c.batch, n)}
        )
        for n, x in data.items()
        for name, start in STARTS.items()
    }


def _trust(c: Found) -> dict[str, Any]:
    """What the theory says of itself here."""
    t = fg.predict_training(
        text(c.depth), data=fg.data.two_blobs(50, c.d, seed=c.run.seed), lr=c.rate, steps=1, draws=2, width=c.width,
        optimizer="gd", seed=c.run.seed,
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
    cells=_cells,
    quantities=_quantities,
    judge=lambda c: judged(c.many, c.few, c.depth),
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
