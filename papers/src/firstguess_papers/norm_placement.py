"""NORM: norms before and after the activation in training, from unfiltered starts (Figs 4, G.1, G.2, G.5, G.6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import firstguess as fg
from firstguess_papers.items import Entry, Holds, Item
from firstguess_papers.judging import Number, above, below, entry, same
from firstguess_papers.measured import Found, Training, measured
from firstguess_papers.norm import PLACES, network
from firstguess_papers.norm_filtered import OURS, images
from firstguess_papers.training_charts import arms_chart, by_class, lines_of
from firstguess_papers.training_pieces import Arm, Array, curve_rows, sooner

if TYPE_CHECKING:
    from firstguess.data import Data
    from firstguess_papers.library import Chart

NORMS = ("BatchNorm", "LayerNorm")
ABSORBED = 0.6  # largest share at which the bias counts as absorbed
SPLIT = 0.1  # gap between classes up to which curves count as those of a neutral start
ROOM = 0.05  # of predicted against trained shares of the largest class


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


def judged(found: list[Placed]) -> list[Entry]:
    """What the numbers say of N13. Thresholds are those above, chosen before the first full run."""
    neutral = [below(gap, SPLIT) for one in found for norm in NORMS for gap in one.gaps(f"{norm} after")]
    split = [above(one.gaps(f"{norm} before")[0], SPLIT) for one in found for norm in NORMS]
    worst = {
        f"{norm} after, depth {one.depth}": max(one.gaps(f"{norm} after"), key=lambda gap: gap.value)
        for one in found
        for norm in NORMS
    }
    starts = {f"{norm} before, depth {one.depth}": one.gaps(f"{norm} before")[0] for one in found for norm in NORMS}
    faster = [above(one.saved(norm), 0.0) for one in found for norm in NORMS]
    times = "; ".join(
        f"depth {one.depth}: " + ", ".join(f"{place} {one.time(place)}" for place in one.trained) for one in found
    )
    entries = [
        entry(
            "N13",
            f"with a norm after, classes go together as from a neutral start: favoured − others below {SPLIT} at every "
            f"look; with the norm before it starts above {SPLIT}",
            "largest gap: " + _listed(worst) + "; at the start: " + _listed(starts),
            [*neutral, *split],
        ),
        entry(
            "N13",
            f"the bias is absorbed (largest share {ABSORBED}) in fewer steps with the norm after than before, for both "
            "norms",
            f"mean steps, {times}",
            faster,
            headline="steps saved: " + ", ".join(f"{norm} {found[0].saved(norm)}" for norm in NORMS),
        ),
        entry(
            "N13",
            "most of all under LayerNorm: moving it saves more steps than moving BatchNorm, at every depth",
            "; ".join(f"depth {one.depth}: " + ", ".join(f"{norm} {one.saved(norm)}" for norm in NORMS)
                      for one in found),
            [above(one.more(), 0.0) for one in found],
            otherwise=f"moving BatchNorm saves more somewhere{_modes(found)}",
        ),
    ]  # fmt: skip
    if all(one.predicted for one in found):
        entries.append(_foretold(found))
    return entries


def _foretold(found: list[Placed]) -> Entry:
    """Predicted against trained shares, from the step where half of the way to the end is on the axis."""
    off: dict[str, Number] = {}
    for one in found:
        for place, arm in one.trained.items():
            step = arm.near(arm.last**0.5)
            off[f"{place}, depth {one.depth}"] = arm.at("largest", step) - one.predicted[place].at("largest", step)
    worst = max(off, key=lambda key: abs(off[key].value))
    return entry(
        "N13",
        f"beyond the paper: the tangent kernel foretells the largest share halfway (in the logarithm of steps) within "
        f"{ROOM}, for every place of the norm",
        f"largest difference {off[worst]} ({worst})",
        [same(value, 0.0, room=ROOM) for value in off.values()],
    )


def _listed(numbers: dict[str, Number]) -> str:
    return ", ".join(f"{name} {value}" for name, value in numbers.items())


def _modes(found: list[Placed]) -> str:
    """What the tangent kernel says of BatchNorm after: whether anything moves the bias there."""
    arms = [one.predicted.get("BatchNorm after") for one in found]
    ratios = [arm.about["bias"] / arm.about["signal"] for arm in arms if arm is not None]
    if not ratios or max(ratios) > 1e-3:
        return ""
    return ": behind BatchNorm after the activation the tangent kernel has no bias mode at all (λ_b/λ_signal = 0)"


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
        return [
            Placed(
                depth,
                {place: c[place, f"depth {depth}"] for place in PLACES},
                {place: c.predictions[place, f"depth {depth}"] for place in PLACES},
            )
            for depth in layers(c)
        ]

    return measured(
        id, title, where, claims=("N13",),
        cells=cells,
        quantities=lambda c: {"places": places(c)},
        judge=lambda c: judged(c.places),
        tables=lambda c: {"curves": [
            line for one in c.places for arms in (one.trained, one.predicted) for place, arm in arms.items()
            for line in curve_rows([arm], place=place, depth=one.depth)
        ]},
        charts=lambda c: {"places": _chart(c.places)},
        holds={"places": Holds("With the norm after, the bias is absorbed sooner", entries=(1,))},
        notes=["Behind a BatchNorm predictions for Adam are rough (averages over layers).", note],
        **options,
    )  # fmt: skip


fig4 = _placed(
    "norm/fig4", "Norms before and after the activation in training, from unfiltered starts", "NORM Fig 4",
    lambda c: (fg.data.two_blobs(c.n, c.d, seed=c.run.seed), None), lambda c: {1: 100, c.deep: c.width},
    "Sizes are ours, the learning rate is ten times NORM's and more: fewer steps.",
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
_QUICK = dict(n=100, lr=3e-5, steps=80, inits=16, parts=1, draws=30)

fig_g1 = _placed(
    "norm/fig-g1", "Norms before and after in training on CIFAR-10, vehicles against animals", "NORM Figs G.1, G.2",
    lambda c: images(c, "cifar10:vehicles-animals"), lambda c: {1: 100}, OURS, needs=("cifar10",), about=_PHOTOS,
    quick=_QUICK, full=dict(n=400, lr=1e-5, steps=300, inits=6, parts=4, draws=80), seconds=(10, 240),
)  # fmt: skip

fig_g5_training = _placed(
    "norm/fig-g5-training", "Norms before and after in training on MNIST, even against odd digits",
    "NORM Figs G.5, G.6 (training)", lambda c: images(c, "mnist:even-odd"), lambda c: {1: 100}, OURS, needs=("mnist",),
    about=_PHOTOS, quick=_QUICK, full=dict(n=500, lr=1e-5, steps=300, inits=20, parts=2, draws=80), seconds=(10, 150),
)  # fmt: skip
