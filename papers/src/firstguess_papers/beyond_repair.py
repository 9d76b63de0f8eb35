"""Beyond the papers: what repairs of deep networks do in training, beside a shallow network of equal nonlinearity."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from firstguess import Inputs, Network, Stand, predict, tune
from firstguess_papers.items import Entry, Outcome, item
from firstguess_papers.judging import Number, Truth, above, all_of, entry, same, stated
from firstguess_papers.library import Dense, Layer, changed, stand
from firstguess_papers.running import Run
from firstguess_papers.tables import columns
from firstguess_papers.training_pieces import Arm, Array, trained
from firstguess_papers.training_speed import SAME_SCORE, apart, log_steps, number, over_looks, part_of, scores, typical

if TYPE_CHECKING:
    from torch import nn

    from firstguess.data import Data
    from firstguess_papers.library import Chart

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

    def how(layer: Layer) -> list[Layer]:
        drawn = layer.weighted and not layer.paths
        return [replace(cast(Dense, layer), bias_var=_START) if drawn else layer]

    return replace(network, layers=changed(network.layers, how))


def centred_head(network: Network, x: Data, width: int) -> Callable[[], nn.Module]:
    """A factory of this description's members, each with its mean logits on x taken off by the head's bias."""
    from firstguess_papers.library import drawn, resolve

    places = resolve(network, x.x.shape[1:], width=width, inputs=Inputs)

    def make() -> nn.Module:
        import torch

        from firstguess import repair

        # Members are made under their own seed: these are the weights of the description's member.
        model = drawn(places, torch.initial_seed(), flat=False)
        return repair(model, (x.x, x.y), gamma=0.0, in_place=True, points=x.n).model

    return make


@dataclass(frozen=True)
class Sizes:
    """What a run has: networks, points and steps; `searched` and `steps` are the looks of both kinds of training."""

    depth: int
    width: int
    points: int
    validation: int
    held: int
    batch: int
    few: int  # networks that pick a rate
    inits: int
    first: int  # times 30 more networks of the fast arms, for the first steps only
    searched: tuple[int, ...]
    steps: tuple[int, ...]
    rates: Mapping[Optimizer, tuple[float, ...]]


@dataclass(frozen=True, eq=False)
class Setting:
    """One data set and optimizer: trained arms at their own rates."""

    data: str
    optimizer: Optimizer
    threshold: float
    arms: Mapping[str, Arm]
    rates: Mapping[str, float]
    first: Mapping[str, Arm]  # more networks of some arms, for the first steps only
    at_end: tuple[str, ...] = ()  # arms whose rate is the lowest or highest that was tried

    @property
    def name(self) -> str:
        return f"{self.data}, {'SGD' if self.optimizer == 'sgd' else 'Adam'}"

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


def worst(arm: Arm, step: int) -> Array:
    """The worst class's held-out accuracy; of a network that diverged 0, as it guesses a single class."""
    return np.nan_to_num(arm.values("test worst", step), nan=0.0)


def split(data: Data, sizes: Sequence[int], seed: int) -> list[Data]:
    """Disjoint parts of so many points, in an order of their own."""
    order = np.random.default_rng([seed, 0x5917]).permutation(data.n)
    ends = np.cumsum([0, *sizes]).tolist()
    return [part_of(data, order[a:b]) for a, b in pairwise(ends)]


def trained_setting(run: Run, name: str, whole: Data, optimizer: Optimizer, threshold: float, sizes: Sizes) -> Setting:
    """All arms: the rate by validation points and networks of its own, then the networks that are judged."""
    x, validation, held = split(whole, (sizes.points, sizes.validation, sizes.held), run.seed)
    arms: dict[str, Arm] = {}
    first: dict[str, Arm] = {}
    rates: dict[str, float] = {}
    ends: list[str] = []
    for arm, network in networks(sizes.depth).items():
        own = with_biases(network)
        options: dict[str, Any] = {"optimizer": optimizer, "batch": sizes.batch}
        what: Any = own
        if arm == HEAD:
            what = centred_head(own, x, sizes.width)
            options |= {"name": f"{own}, width {sizes.width}, head centred on the training points"}
            options |= {"strategy": "loop"}
        else:
            options |= {"width": sizes.width}
        grid = sizes.rates[optimizer]
        found = [
            trained(
                run, what, x, test=validation, label=f"{name}, {optimizer}, {arm}, rate {lr:g}", lr=lr,
                inits=sizes.few, steps=list(sizes.searched), seed=run.seed + _SEARCH, **options,
            )
            for lr in grid
        ]  # fmt: skip
        rates[arm] = picked(grid, [merit(one, sizes.searched) for one in found])
        if rates[arm] in (grid[0], grid[-1]):
            ends.append(arm)
        arms[arm] = trained(
            run, what, x, test=held, label=f"{name}, {optimizer}, {arm}", lr=rates[arm], inits=sizes.inits,
            steps=list(sizes.steps), **options,
        )  # fmt: skip
        if arm in FAST and sizes.first:
            first[arm] = trained(
                run, what, x, test=held, label=f"{name}, {optimizer}, {arm}, first steps", lr=rates[arm],
                inits=_MORE, parts=sizes.first, steps=list(EARLY), seed=run.seed + _FIRST, **options,
            )  # fmt: skip
    return Setting(name, optimizer, threshold, arms, rates, first, tuple(ends))


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


@item(
    "beyond/repair",
    "Repaired deep networks in training, beside a shallow one of equal nonlinearity",
    claims=("B5", "B8"),
    where="theory.md §10",
    needs=("fashion_mnist", "cifar10"),
    about="Eight arms of {depth} layers of {width} (and a shallow one), SGD and Adam, batches of {batch}; {points} "
    "images of {data}, {validation} to pick the rate of every arm ({rates}) with {few} networks of their own, looked "
    "at after {searched} steps, {held} held-out ones; looked at after {steps} steps, {inits} networks each; of the "
    "four arms of low nonlinearity {first} times 30 more for the first 30 steps.",
    quick=dict(
        data=("Fashion-MNIST",), depth=20, width=50, points=400, validation=200, held=300, batch=64, few=2, inits=10,
        first=0, searched=(10, 30), steps=(5, 10, 30, 60), rates={"sgd": (0.01, 0.04), "adam": (5e-4, 2e-3)},
    ),
    full=dict(
        data=("Fashion-MNIST", "CIFAR-10"), depth=20, width=100, points=1500, validation=500, held=1000, batch=64,
        few=2, inits=10, first=4, searched=(10, 30, 100), steps=(5, 10, 17, 30, 55, 100, 170, 300),
        rates={"sgd": (0.005, 0.01, 0.02, 0.04, 0.08, 0.16), "adam": (2e-4, 5e-4, 1e-3, 2e-3, 5e-3)},
    ),
    seconds=(20, 900),
)  # fmt: skip
def repair(run: Run) -> Outcome:
    """B5 and the training part of B8: steps to a threshold, the worst class early, accuracy at the end."""
    given = dict(run.sizes[0])
    chosen = given.pop("data")
    sizes = Sizes(**given)
    settings: list[Setting] = []
    for name in chosen:
        spec, threshold = DATA[name]
        whole = run.data(spec, points=sizes.points + sizes.validation + sizes.held)
        settings += [trained_setting(run, name, whole, o, threshold, sizes) for o in ("sgd", "adam")]
    places = stands(networks(sizes.depth))
    return Outcome(
        judged(settings, places),
        {"steps": columns([line for s in settings for line in rows(s, places)])},
        charts(settings, sizes),
        [
            "Rates: "
            + "; ".join(f"{s.name}: " + ", ".join(f"{arm} {lr:g}" for arm, lr in s.rates.items()) for s in settings)
            + ".",
            f"Picked at an end of the grid: "
            f"{'; '.join(f'{s.name}: ' + ', '.join(s.at_end) for s in settings if s.at_end) or 'none'}.",
            "Biases of all layers start at 0 and are trained; norms have nothing that is trained. A network that does "
            "not get to the threshold counts with the last step, one that diverged guesses a single class.",
        ],
    )


# -- Checks


def decides(setting: Setting) -> bool:
    """A setting in which the shallow network does not learn says nothing of speed."""
    return setting.reaching(SHALLOW) >= REACHING


def later(setting: Setting, one: str, other: str) -> Number:
    """By how much of log10(1 + steps) one arm gets to the threshold after the other."""
    return apart(setting.times(one), setting.times(other))


def at_most(difference: Number, room: float) -> Truth:
    """Whether a difference is below `room`, by 4 standard errors."""
    return above(Number(room), difference)


def pooled(numbers: Sequence[Number]) -> Number:
    """The mean over settings, whose errors are independent."""
    return Number(float(np.mean([n.value for n in numbers])), math.hypot(*(n.error for n in numbers)) / len(numbers))


def as_fast(settings: Sequence[Setting], arm: str) -> Truth:
    """On average over the settings not later than the shallow network by a factor of 1.5 or more."""
    if not all(decides(s) for s in settings):
        return None
    return at_most(pooled([later(s, arm, SHALLOW) for s in settings]), AS_FAST)


def not_faster(settings: Sequence[Setting], arm: str) -> Truth:
    """On average not sooner than the shallow network by that factor, and at the end not more accurate by 0.02."""
    if not all(decides(s) for s in settings):
        return None
    sooner = pooled([later(s, SHALLOW, arm) for s in settings])
    better = pooled([apart(s.final(arm), s.final(SHALLOW)) for s in settings])
    return all_of([at_most(sooner, AS_FAST), at_most(better, SAME_SCORE)])


def sooner_than_plain(settings: Iterable[Setting], arm: str) -> list[Truth]:
    """By more than that factor."""
    return [above(later(s, PLAIN, arm), AS_FAST) if decides(s) else None for s in settings]


def ahead(settings: Sequence[Setting], arm: str = INSIDE) -> list[Truth]:
    """Early on, averaged over the settings, the arm's worst class is better than that of every other deep arm."""
    others = [other for other in NAMES if other not in (arm, SHALLOW)]
    return [above(early(settings, arm), early(settings, other)) for other in others]


def no_better(settings: Sequence[Setting], arm: str = INSIDE) -> Truth:
    """Early on, averaged over the settings, the arm's worst class is not better than the shallow network's by 0.02."""
    return at_most(early(settings, arm) - early(settings, SHALLOW), SAME_SCORE)


def early(settings: Sequence[Setting], arm: str) -> Number:
    """The worst class early on, averaged over the settings."""
    return pooled([number(s.early(arm)) for s in settings])


def ordered(settings: Iterable[Setting], places: Mapping[str, Stand]) -> list[Truth]:
    """Every arm of low nonlinearity is sooner than every arm of a high one."""
    low = [arm for arm in NAMES if places[arm].nonlinearity <= LOW]
    high = [arm for arm in NAMES if places[arm].nonlinearity >= HIGH]
    return [above(later(s, slow, fast), 0.0) if decides(s) else None for s in settings for fast in low for slow in high]


def head_alike(settings: Iterable[Setting]) -> list[Truth]:
    """Accuracy over the looks and at the end does not change with the head's bias."""
    return [
        same(apart(of(s, HEAD), of(s, PLAIN)), 0.0, room=SAME_SCORE)
        for s in settings
        for of in (Setting.over, Setting.final)
    ]


def judged(settings: Sequence[Setting], places: Mapping[str, Stand]) -> list[Entry]:
    """B5: both tuned forms against the shallow network and the plain one, the worst class, the order; B8: the head."""
    data = "; ".join(dict.fromkeys(f"{s.threshold:.0%} on {s.data}" for s in settings))
    equal = f"P {places[SHALLOW].nonlinearity:.3g}, tuned {places[LEAKY].nonlinearity:.3g}"
    found = [
        entry(
            "B5",
            f"20 layers, {words}, get to {data} at most 1.5 times as late as one hidden layer of equal nonlinearity "
            f"({equal}), each arm at its own rate: on average over data and optimizers; without a limit in each",
            f"on average {_times(settings, arm)} as late; {_said(settings, (arm, SHALLOW), _steps)}",
            [as_fast(settings, arm)],
            within=[as_fast([s], arm) for s in settings],
            limit="not in every setting",
            otherwise="it is slower by more than that",
            headline=f"{arm}: {_times(settings, arm)} as late as one hidden layer, on average over "
            f"{len(settings)} settings",
        )
        for arm, words in ((RESIDUAL, "residual and tuned"), (LEAKY, "leaky ReLU and tuned"))
    ]
    both = (RESIDUAL, LEAKY)
    found.append(
        entry(
            "B5",
            "tuned depth is not faster than that shallow network: not sooner by a factor of 1.5, and at the end not "
            f"more accurate by {SAME_SCORE}, on average over data and optimizers; without a limit in each setting",
            f"{_said(settings, (*both, SHALLOW), _steps)}; at the end {_said(settings, (*both, SHALLOW), _final)}",
            [not_faster(settings, arm) for arm in both],
            within=[not_faster([s], arm) for s in settings for arm in both],
            limit="in single settings it is faster, or ends more accurate",
            otherwise="tuned depth is faster, or ends more accurate",
        )
    )
    found.append(
        entry(
            "B5",
            "tuning makes depth harmless: both tuned forms get there sooner than the plain deep network, by a factor "
            "of more than 1.5; without a limit both also end more accurate",
            _said(settings, (PLAIN, *both), _steps),
            [check for arm in both for check in sooner_than_plain(settings, arm)],
            within=[above(apart(s.final(arm), s.final(PLAIN)), 0.0) for s in settings for arm in both],
            limit="at the end the plain network is as accurate in at least one setting",
        )
    )
    averages = ", ".join(f"{arm} {early(settings, arm)}" for arm in NAMES)
    found.append(
        entry(
            "B5",
            "of all deep arms the residual form with the norm after φ inside the branch has the best worst class early "
            f"(held-out accuracy, mean of steps {EARLY[0]} and {EARLY[1]}), on average over the settings; without a "
            "limit in each of them",
            f"averages: {averages}; {_said(settings, NAMES, _early)}",
            ahead(settings),
            within=[check for s in settings for check in ahead([s])],
            limit="in single settings another arm is better",
            otherwise="another arm is better on average",
            headline=f"worst class early: {averages}",
        )
    )
    found.append(
        entry(
            "B5",
            f"even its worst class is not better early than that of one hidden layer, by {SAME_SCORE}, on average over "
            "the settings; without a limit in each of them",
            f"{INSIDE} {early(settings, INSIDE)}, {SHALLOW} {early(settings, SHALLOW)}; "
            f"{_said(settings, (INSIDE, SHALLOW), _early)}",
            [no_better(settings)],
            within=[no_better([s]) for s in settings],
            limit="in single settings it is better",
            otherwise="it is better",
        )
    )
    values = ", ".join(f"{arm} {place.nonlinearity:.3g}" for arm, place in places.items())
    found.append(
        entry(
            "B5",
            f"nonlinearity orders the arms: those with P ≤ {LOW:g} all get there before those with P ≥ {HIGH:g}",
            f"P: {values}; {_said(settings, NAMES, _steps)}",
            ordered(settings, places),
            otherwise="an arm of high nonlinearity is as fast as one of low nonlinearity, in at least one setting",
        )
    )
    found.append(
        entry(
            "B8",
            "moving the head's bias alone (all of the mean logits taken off) leaves training of the plain deep network "
            f"as it is: held-out accuracy, averaged over the looks, and at the end, is the same within {SAME_SCORE}; "
            "without a limit the worst class early, too",
            f"over the looks {_said(settings, (PLAIN, HEAD), _over)}; at the end "
            f"{_said(settings, (PLAIN, HEAD), _final)}; worst class early {_said(settings, (PLAIN, HEAD), _early)}",
            head_alike(settings),
            within=[same(apart(s.early(HEAD), s.early(PLAIN)), 0.0, room=SAME_SCORE) for s in settings],
            limit="the worst class early on changes",
            otherwise="training changes with the head's bias",
        )
    )
    return found


# -- Words, tables, figures


def _steps(setting: Setting, arm: str) -> str:
    reaching = setting.reaching(arm)
    short = "" if reaching == 1 else f" ({1 - reaching:.0%} do not)"
    return f"{typical(number(setting.times(arm)))}{short}"


def _times(settings: Sequence[Setting], arm: str) -> str:
    """How many times as late as the shallow network, the error as a factor."""
    ratio = pooled([later(s, arm, SHALLOW) for s in settings])
    return f"{10**ratio.value:.2f} times" + (f" (×/÷ {10**ratio.error:.2f})" if math.isfinite(ratio.error) else "")


def _final(setting: Setting, arm: str) -> str:
    return str(number(setting.final(arm)))


def _over(setting: Setting, arm: str) -> str:
    return str(number(setting.over(arm)))


def _early(setting: Setting, arm: str) -> str:
    return str(number(setting.early(arm)))


def _said(settings: Sequence[Setting], arms: Sequence[str], what: Callable[[Setting, str], str]) -> str:
    return "; ".join(f"{s.name}: " + ", ".join(f"{arm} {what(s, arm)}" for arm in arms) for s in settings)


def rows(setting: Setting, places: Mapping[str, Stand]) -> list[dict[str, Any]]:
    """Lines of the table: one an arm."""
    found: list[dict[str, Any]] = []
    for arm in NAMES:
        steps, final = number(setting.times(arm)), number(setting.final(arm))
        line: dict[str, Any] = {"data": setting.data, "optimizer": setting.optimizer, "arm": arm}
        line |= {"rate": setting.rates[arm], "networks": setting.arms[arm].networks}
        line |= vars(places[arm]) | {"threshold": setting.threshold, "reaching": setting.reaching(arm)}
        line |= {"log10_steps": steps.value, "log10_steps_error": steps.error}
        for step in (int(k) for k in setting.arms[arm].steps if k in (10, 30, 100, 300)):
            low = number(worst(setting.arms[arm], step))
            line |= {f"worst_{step}": low.value, f"worst_{step}_error": low.error}
        found.append(line | {"final": final.value, "final_error": final.error})
    return found


def charts(settings: Sequence[Setting], sizes: Sizes) -> dict[str, Chart]:
    """Accuracy and worst class of all arms but the moved head, and that beside the plain network."""
    from firstguess_papers.training_charts import Line, arms_chart

    def panels(arms: Sequence[str]) -> dict[str, list[Line]]:
        curves = {"accuracy": "test accuracy", "worst class": "test worst"}
        return {
            f"{s.name}: {words}": [Line(arm, s.arms[arm].curve(what)) for arm in arms]
            for s in settings
            for words, what in curves.items()
        }

    fast = all_of(as_fast(settings, arm) for arm in (RESIDUAL, LEAKY))
    sooner = all_of(check for arm in (RESIDUAL, LEAKY) for check in sooner_than_plain(settings, arm))
    title = stated(
        sooner,
        "Tuned depth learns sooner than plain depth"
        + {True: ", as fast as one hidden layer", False: ", not always as fast as one hidden layer", None: ""}[fast],
        "Deep networks, repaired in six ways, beside one hidden layer",
    )
    head = all_of(head_alike(settings))
    said = [
        f"Held-out accuracy of {sizes.depth} layers of {sizes.width} (shallow: one), {sizes.points} training images, "
        f"batches of {sizes.batch}, every arm at the learning rate that validation picks.",
    ]
    shared: dict[str, Any] = {"columns": 4 if len(settings) > 2 else 2, "width": 300, "height": 220}
    tops = {
        name: (0.0, float(np.ceil(20 * max(np.nanmax(line.trained.mean) for line in lines if line.trained)) / 20))
        for name, lines in panels(NAMES).items()
    }
    return {
        "arms": arms_chart(
            panels([arm for arm in NAMES if arm != HEAD]), title=title, subtitle=said, y_domains=tops, **shared
        ),
        "head": arms_chart(
            panels((PLAIN, HEAD)),
            title=stated(
                head,
                "Centring the head's bias leaves a deep network's accuracy where it was",
                "A deep ReLU network with and without a centred head",
            ),
            subtitle=said,
            y_domains=tops,
            **shared,
        ),
    }
