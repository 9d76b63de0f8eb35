"""The arms of `beyond/repair`: deep networks as they are and repaired, a shallow one of equal nonlinearity, trained.

Every dense layer has biases that start at 0 (drawn with a standard deviation of 1e-6) and are trained. Network i of all
arms that have layers of the same shape has the same underlying draws, and all see mini-batches in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from firstguess import Inputs, Network, Stand, predict, tune
from firstguess_papers.library import Dense, Layer, changed, stand
from firstguess_papers.running import Run
from firstguess_papers.training_pieces import Arm, Array, trained
from firstguess_papers.training_speed import log_steps, over_looks, part_of, scores

if TYPE_CHECKING:
    from torch import nn

    from firstguess.data import Data

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
