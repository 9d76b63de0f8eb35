"""Beyond the papers: what repairs of deep networks do in training, beside a shallow network of equal nonlinearity."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

import firstguess as fg
from firstguess import Network, Stand, predict, tune
from firstguess.data import Data
from firstguess_papers import library
from firstguess_papers.charts import Line, arms_chart
from firstguess_papers.items import Entry, Holds, Item
from firstguess_papers.judging import UNKNOWN, Array, Check, Number, check, claimed, each
from firstguess_papers.library import changed, stand
from firstguess_papers.measured import Found
from firstguess_papers.training_pieces import (
    SAME_SCORE,
    Arm,
    apart,
    log_steps,
    number,
    over_looks,
    scores,
    split,
    trained,
    typical,
)

if TYPE_CHECKING:
    from torch import nn

PLAIN, BEFORE, AFTER, HEAD = "plain", "LayerNorm before", "LayerNorm after", "head centred"
LEAKY, RESIDUAL, INSIDE, SHALLOW = "leaky, tuned", "residual, tuned", "residual, norm after φ inside", "shallow"
NAMES = (PLAIN, BEFORE, AFTER, HEAD, LEAKY, RESIDUAL, INSIDE, SHALLOW)
GAMMA = 0.5  # of tuned networks
EARLY = (10, 30)  # steps whose worst class is judged
_START = 1e-12  # variance of biases at the start
FAST = (LEAKY, RESIDUAL, INSIDE, SHALLOW)  # arms of low nonlinearity: more networks for their first steps
_FIRST = 700  # between the seeds of trainings that are judged and those of the first steps only
_MORE = 30  # networks of a part of these
_SEARCH = 500  # between the seeds of trainings that pick a rate and those that are judged
Optimizer = Literal["sgd", "adam"]


def networks(depth: int) -> dict[str, Network]:
    """All arms by name, without trained biases; "head centred" is the plain network, whose head is moved at the start.

    >>> str(networks(2)["shallow"])
    'dense(weight_var=2) > relu > dense(weight_var=2)'
    """
    plain = f"{depth} x [dense(weight_var=2) > relu] > dense(weight_var=2)"
    stream = tune(f"dense > {depth} x [residual[relu > dense]] > dense", gamma=GAMMA, knob="branch_scale")
    branch, kept = (stream.settings[f"{name}_scale"] for name in ("branch", "shortcut"))
    texts = {
        PLAIN: plain,
        BEFORE: plain.replace("> relu", "> layernorm > relu"),
        AFTER: plain.replace("> relu", "> relu > layernorm"),
        HEAD: plain,
        INSIDE: f"dense > {depth} x [residual(scale={branch!r})[relu > layernorm > dense | scale({kept!r})]] > dense",
        SHALLOW: "dense(weight_var=2) > relu > dense(weight_var=2)",
    }
    found = {name: Network.parse(text, classes=10) for name, text in texts.items()}
    for name, tuned in ((LEAKY, tune(plain, gamma=GAMMA, knob="slope")), (RESIDUAL, stream)):
        found[name] = replace(tuned.network, classes=10)
    return {name: found[name] for name in NAMES}


def stands(arms: Mapping[str, Network]) -> dict[str, Stand]:
    """γ, gradients and nonlinearity of every arm for random data; a moved head changes γ alone, to 0."""
    found = {name: stand(predict(network)) for name, network in arms.items()}
    return found | ({HEAD: replace(found[HEAD], gamma=0.0)} if HEAD in found else {})


def with_biases(network: Network) -> Network:
    """The same with biases in all dense layers, at 0 but for a millionth, so that they are trained."""

    def how(layer: Any) -> list[Any]:
        return [replace(layer, bias_var=_START) if layer.weighted and not layer.paths else layer]

    return replace(network, layers=changed(network.layers, how))


def centred_head(network: Network, x: Data, width: int) -> Callable[[], nn.Module]:
    """A factory of this description's members, each with its mean logits on x taken off by the head's bias."""
    from firstguess_papers.models import members_of

    return members_of(network, x, width, lambda m: fg.repair(m, (x.x, x.y), gamma=0.0, in_place=True, points=x.n))


@dataclass(frozen=True, eq=False)
class Setting:
    """One data set and optimizer: trained arms at their own rates."""

    data: str
    optimizer: Optimizer
    threshold: float
    arms: dict[str, Arm]
    rates: dict[str, float]
    first: dict[str, Arm]  # more networks of some arms, for the first steps only
    at_end: list[str] = field(default_factory=list[str])  # arms whose rate is the lowest or highest that was tried

    @property
    def name(self) -> str:
        return f"{self.data} under {'SGD' if self.optimizer == 'sgd' else 'Adam'}"

    def times(self, arm: str) -> Array:
        """log10(1 + steps) until the threshold of held-out accuracy, of every network."""
        found = self.arms[arm]
        return log_steps(found.reached("test accuracy", self.threshold), found.last)

    def reaching(self, arm: str) -> float:
        """The share of networks that get there."""
        return float(np.isfinite(self.arms[arm].reached("test accuracy", self.threshold)).mean())

    def early(self, arm: str) -> Array:
        """The worst class's held-out accuracy, averaged over the early steps, of every network that was looked at."""
        parts = [self.arms[arm], *([self.first[arm]] if arm in self.first else [])]
        return np.concatenate([np.mean([worst(part, step) for step in EARLY], axis=0) for part in parts])

    def over(self, arm: str) -> Array:
        """Held-out accuracy over all looks from step 1 on, which are about even on a logarithmic axis."""
        return over_looks(self.arms[arm], "test accuracy")

    def final(self, arm: str) -> Array:
        """Held-out accuracy at the end, of every network."""
        return scores(self.arms[arm], "test accuracy")

    def decided(self, one: Array, other: Array) -> Number:
        """The mean difference; unknown where the shallow network does not learn, which says nothing of speed."""
        return apart(one, other) if self.reaching(SHALLOW) >= REACHING else UNKNOWN

    def later(self, one: str, other: str) -> Number:
        """By how much of log10(1 + steps) one arm gets to the threshold after the other."""
        return self.decided(self.times(one), self.times(other))

    def ahead(self, one: str, other: str) -> Number:
        """By how much the worst class is better early on."""
        return number(self.early(one)) - number(self.early(other))


def worst(arm: Arm, step: int) -> Array:
    """The worst class's held-out accuracy; of a network that diverged 0, as it guesses a single class."""
    return np.nan_to_num(arm.values("test worst", step), nan=0.0)


def trained_setting(c: Found, name: str, optimizer: Optimizer) -> Setting:
    """All arms: the rate by validation points and networks of its own, then the networks that are judged."""
    spec, threshold = DATA[name]
    whole = c.run.data(spec, points=c.points + c.validation + c.held)
    x, validation, held = split(whole, (c.points, c.validation, c.held), c.run.seed, 0x5917)
    found = Setting(name, optimizer, threshold, {}, {}, {}, [])
    more, grid, seed = c.parts * c.known["first"], c.rates[optimizer], c.run.seed
    for arm, network in networks(c.depth).items():
        own = with_biases(network)
        options: dict[str, Any] = {"optimizer": optimizer, "batch": c.batch}
        what: Any = own
        if arm == HEAD:
            what = centred_head(own, x, c.width)
            options |= {"name": f"{own}, width {c.width}, head centred on the training points", "strategy": "loop"}
        else:
            options |= {"width": c.width}

        def train(test: Data, lr: float, words: str = "", *, what: Any = what, **own: Any) -> Arm:
            return trained(c.run, what, x, test=test, lr=lr, label=f"{name}, {optimizer}, {words}", **own)

        merits = [
            merit(train(validation, lr, f"{arm}, rate {lr:g}", inits=c.few, steps=list(c.searched),
                        seed=seed + _SEARCH, **options), c.searched)
            for lr in grid
        ]  # fmt: skip
        found.rates[arm] = rate = picked(grid, merits)
        if rate in (grid[0], grid[-1]):
            found.at_end.append(arm)
        found.arms[arm] = train(held, rate, arm, inits=c.inits, parts=c.parts, steps=list(c.steps), **options)
        if arm in FAST and more:
            found.first[arm] = train(
                held, rate, f"{arm}, first steps", inits=_MORE, parts=more, steps=list(EARLY), seed=seed + _FIRST,
                **options,
            )  # fmt: skip
    return found


def merit(arm: Arm, looks: Sequence[int]) -> float:
    """What a rate is picked by: accuracy on validation points, averaged over these looks and the networks."""
    return float(np.mean([scores(arm, "test accuracy", step) for step in looks]))


def picked(grid: Sequence[float], merits: Sequence[float]) -> float:
    """The rate with the highest merit, of equal ones the lowest.

    >>> picked([0.1, 0.2, 0.4], [0.3, 0.5, 0.5])
    0.2
    """
    if len(grid) != len(merits) or not all(math.isfinite(m) for m in merits):
        raise ValueError(f"a merit for every rate, got {list(merits)}")
    return grid[int(np.argmax(merits))]


AS_FAST = 0.18  # of log10(1 + steps): a factor of 1.5
REACHING = 0.9  # of the shallow networks must get to the threshold, or a setting decides nothing
LOW, HIGH = 3.0, 15.0  # nonlinearity of arms that should be fast, and of those that should be slow
DATA = {"Fashion-MNIST": ("fashion_mnist", 0.6), "CIFAR-10": ("cifar10", 0.25)}  # and the threshold


def pooled(numbers: Sequence[Number]) -> Number:
    """The mean over settings, whose errors are independent."""
    return Number(float(np.mean([n.value for n in numbers])), math.hypot(*(n.error for n in numbers)) / len(numbers))


def judged(settings: Sequence[Setting], places: Mapping[str, Stand]) -> list[Entry]:
    """B5: both tuned forms against the shallow network and the plain one, the worst class, the order; B8: the head."""
    both = (RESIDUAL, LEAKY)
    reached = ", ".join(dict.fromkeys(f"{s.threshold:.0%} on {s.data}" for s in settings))

    def average(name: str, of: Callable[[Setting], Number], **asked: Any) -> list[Check]:
        """What is asked of the average over data and optimizers, and then of each of them."""
        name, found = name.replace(",", ""), {s.name: of(s) for s in settings}
        return [check(name, pooled(list(found.values())), **asked),
                *(check(f"{name}, {one}", value, **asked) for one, value in found.items())]  # fmt: skip

    def claim(about: str, checks: Sequence[Sequence[Check]], **words: str) -> Entry:
        """The averages are required, single settings without a limit."""
        return claimed(
            "B5", f"{about}, on average over data and optimizers", [one[0] for one in checks],
            within=[single for one in checks for single in one[1:]], limit="not in every setting", **words,
        )  # fmt: skip

    def as_late(arm: str) -> str:
        late = pooled([s.later(arm, SHALLOW) for s in settings])
        return f"{10**late.value:.2f} times" + (f" (×/÷ {10**late.error:.2f})" if math.isfinite(late.error) else "")

    def order(s: Setting) -> list[Number]:
        low, high = ([a for a in NAMES if fits(places[a].nonlinearity)] for fits in (LOW.__ge__, HIGH.__le__))
        return [s.later(slow, fast) for fast in low for slow in high]

    return [
        *(
            claim(
                f"steps to {reached}, log10 of by how much 20 layers are later than one hidden layer of equal "
                f"nonlinearity (P {places[SHALLOW].nonlinearity:.3g}, tuned {places[LEAKY].nonlinearity:.3g}), each "
                "arm at its own rate (0.18: a factor of 1.5)",
                [average(arm, lambda s, arm=arm: s.later(arm, SHALLOW), below=AS_FAST)],
                also=f"on average {as_late(arm)} as late; steps {_steps(settings, (arm, SHALLOW))}",
                headline=f"{arm}: {as_late(arm)} as late as one hidden layer, on average over {len(settings)} settings",
            )
            for arm in both
        ),
        claim(
            "tuned depth is not faster than that shallow network: log10 of by how much it is sooner, and accuracy "
            "beyond the shallow network's at the end",
            [*(average(f"{arm} sooner", lambda s, arm=arm: s.later(SHALLOW, arm), below=AS_FAST) for arm in both),
             *(average(f"{arm} at the end", lambda s, arm=arm: s.decided(s.final(arm), s.final(SHALLOW)),
                       below=SAME_SCORE) for arm in both)],
        ),
        claimed(
            "B5", "tuning makes depth harmless: log10 of by how much both tuned forms get there before the plain deep "
            "network, and their accuracy beyond its at the end",
            [one for arm in both for one in average(arm, lambda s, arm=arm: s.later(PLAIN, arm), above=AS_FAST)[1:]],
            within=[one for arm in both for one in average(
                f"{arm} at the end", lambda s, arm=arm: apart(s.final(arm), s.final(PLAIN)), above=0.0)[1:]],
            limit="the plain network ends as accurate", also=f"steps {_steps(settings, (PLAIN, *both))}",
        ),
        claim(
            f"the worst class early (held-out accuracy, mean of steps {EARLY[0]} and {EARLY[1]}), {INSIDE} beyond "
            "every other deep arm",
            [average(arm, lambda s, arm=arm: s.ahead(INSIDE, arm), above=0.0)
             for arm in NAMES if arm not in (INSIDE, SHALLOW)],
            headline="worst class early: "
            + ", ".join(f"{arm} {pooled([number(s.early(arm)) for s in settings])}" for arm in NAMES),
        ),
        claim(
            f"even there {INSIDE} is not better than one hidden layer, its worst class early beyond the shallow one's",
            [average(INSIDE, lambda s: s.ahead(INSIDE, SHALLOW), below=SAME_SCORE)],
        ),
        claimed(
            "B5", f"nonlinearity orders the arms: log10 of by how much each with P ≥ {HIGH:g} is later than each with "
            f"P ≤ {LOW:g}",
            each({s.name: order(s) for s in settings}, above=0.0),
            also=f"P: {', '.join(f'{arm} {place.nonlinearity:.3g}' for arm, place in places.items())}; steps "
            f"{_steps(settings, NAMES)}",
        ),
        claimed(
            "B8", "moving the head's bias alone (all of the mean logits taken off) leaves training of the plain deep "
            "network as it is: held-out accuracy, moved − plain",
            [one for s in settings for one in each({f"over the looks, {s.name}": apart(s.over(HEAD), s.over(PLAIN)),
                                                    f"at the end, {s.name}": apart(s.final(HEAD), s.final(PLAIN))},
                                                   near=0.0, room=SAME_SCORE)],
            within=each({f"worst class early, {s.name}": apart(s.early(HEAD), s.early(PLAIN)) for s in settings},
                        near=0.0, room=SAME_SCORE),
        ),
    ]  # fmt: skip


def _steps(settings: Sequence[Setting], arms: Sequence[str]) -> str:
    """Steps to the threshold, and how many do not get there."""

    def one(s: Setting, arm: str) -> str:
        lost = 1 - s.reaching(arm)
        return f"{arm} {typical(number(s.times(arm)))}" + (f" ({lost:.0%} do not)" if lost else "")

    return "; ".join(f"{s.name}: " + ", ".join(one(s, arm) for arm in arms) for s in settings)


def rows(setting: Setting, places: Mapping[str, Stand]) -> list[dict[str, Any]]:
    """Lines of the table: one an arm."""
    return [
        {"data": setting.data, "optimizer": setting.optimizer, "arm": arm, "rate": setting.rates[arm]}
        | {"networks": own.networks, **vars(places[arm])}
        | {"threshold": setting.threshold, "reaching": setting.reaching(arm)}
        | {"log10_steps": number(setting.times(arm))}
        | {f"worst_{k}": number(worst(own, k)) for k in own.steps.tolist() if k in (10, 30, 100, 300)}
        | {"final": number(setting.final(arm))}
        for arm, own in ((arm, setting.arms[arm]) for arm in NAMES)
    ]


def charts(settings: Sequence[Setting]) -> dict[str, library.Chart]:
    """Accuracy and worst class of all arms but the moved head, and that beside the plain network."""
    drawn = {
        "arms": ([arm for arm in NAMES if arm != HEAD], "Deep networks, repaired in six ways, beside one hidden layer"),
        "head": ([PLAIN, HEAD], "A deep ReLU network with and without a centred head"),
    }
    curves = {f"{s.name}: {words}": {arm: s.arms[arm].curve(what) for arm in NAMES} for s in settings
              for words, what in (("accuracy", "test accuracy"), ("worst class", "test worst"))}  # fmt: skip
    tops = {
        name: (0.0, float(np.ceil(20 * max(np.nanmax(curve.mean) for curve in by.values())) / 20))
        for name, by in curves.items()
    }
    return {
        chart: arms_chart(
            {name: [Line(arm, by[arm]) for arm in arms] for name, by in curves.items()}, title=title, y_domains=tops,
            columns=4 if len(settings) > 2 else 2, width=300, height=220,
        )
        for chart, (arms, title) in drawn.items()
    }  # fmt: skip


def _each(settings: Sequence[Setting], words: Callable[[Setting], Sequence[str]]) -> str:
    return "; ".join(f"{s.name}: {', '.join(words(s))}" for s in settings if words(s)) or "none"


repair = Item(
    "beyond/repair", "Repaired deep networks in training, beside a shallow one of equal nonlinearity", "theory.md §10",
    claims=("B5", "B8"), needs=("fashion_mnist", "cifar10"),
    about="Eight arms of {depth} layers of {width} (and a shallow one), SGD and Adam, batches of {batch}; {points} "
    "images of {data}, {validation} to pick the rate of every arm ({rates}) with {few} networks of their own, looked "
    "at after {searched} steps, {held} held-out ones; looked at after {steps} steps, {networks} networks each; of the "
    "four arms of low nonlinearity {parts} × {first} × 30 more for the first 30 steps.",
    quick=dict(
        data=("Fashion-MNIST",), depth=20, width=50, points=400, validation=200, held=300, batch=64, few=2, inits=10,
        parts=1, first=0, searched=(10, 30), steps=(5, 10, 30, 60), rates={"sgd": (0.01, 0.04), "adam": (5e-4, 2e-3)},
    ),
    full=dict(
        data=("Fashion-MNIST", "CIFAR-10"), depth=20, width=100, points=1500, validation=500, held=1000, batch=64,
        few=2, inits=10, parts=1, first=4, searched=(10, 30, 100), steps=(5, 10, 17, 30, 55, 100, 170, 300),
        rates={"sgd": (0.005, 0.01, 0.02, 0.04, 0.08, 0.16), "adam": (2e-4, 5e-4, 1e-3, 2e-3, 5e-3)},
    ),
    seconds=(26, 900),
    quantities=lambda c: {
        "settings": [trained_setting(c, name, optimizer) for name in c.data for optimizer in ("sgd", "adam")],
        "places": stands(networks(c.depth)),
    },
    judge=lambda c: judged(c.settings, c.places),
    tables=lambda c: {"steps": [line for s in c.settings for line in rows(s, c.places)]},
    charts=lambda c: charts(c.settings),
    holds={
        "arms": Holds("Tuned depth learns sooner than plain depth", entries=(3,)),
        "head": Holds("Centring the head's bias leaves a deep network's accuracy where it was", entries=(7,)),
    },
    notes=lambda c: [
        f"Rates: {_each(c.settings, lambda s: [f'{arm} {lr:g}' for arm, lr in s.rates.items()])}.",
        f"Picked at an end of the grid: {_each(c.settings, lambda s: s.at_end)}.",
        "Biases of all layers start at 0 and are trained; norms have nothing that is trained. A network that does "
        "not get to the threshold counts with the last step, one that diverged guesses a single class.",
    ],
)  # fmt: skip
