"""Beyond the papers: a head's bias moves γ and nothing else; at 1:20 class weights against starts that lean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from firstguess import Inputs, Network
from firstguess_papers.items import Entry, Holds
from firstguess_papers.judging import Check, Number, check, claimed, each
from firstguess_papers.measured import Found, measured
from firstguess_papers.training_charts import Line, arms_chart
from firstguess_papers.training_pieces import Arm, Array, trained
from firstguess_papers.training_speed import apart, more, number, part_of

if TYPE_CHECKING:
    import torch
    from torch import nn

    from firstguess.data import Data
    from firstguess_papers.moved_heads import Moved

PLAIN, PRIOR, TILTED, WEIGHTS = "plain", "log prior", "start tilted to the minority", "class weights"
ARMS = (PLAIN, PRIOR, TILTED, WEIGHTS)
RATES: Mapping[Literal["sgd", "adam"], float] = {"sgd": 0.02, "adam": 5e-4}
WORDS = {"sgd": "SGD", "adam": "Adam"}
RARE, MANY = 0, 1  # classes: fours are rare, nines are not
TIMES = 20  # as many nines as fours
EARLY = 30
ROOM = 0.05  # of recall: less is no difference
DWARFS = 0.05  # of recall: by how much class weights must be ahead
_FIRST = 0.99  # of the training points guessed as the minority by a tilted start
_EXCESS = 0.01  # nats of the first loss above the entropy of the prior, where the head starts at the log prior
_TEXT = "5 x [dense(weight_var=2, bias_var=1e-12) > relu] > dense(weight_var=2, bias_var=1e-12)"


def uneven(data: Data, rare: int, held: int, seed: int) -> tuple[Data, Data]:
    """So many of the rare class and 20 times as many of the other; and held-out points, as many of each."""
    assert data.y is not None
    order = np.random.default_rng([seed, 0x1B20]).permutation(data.n)
    own = {c: order[data.y[order] == c] for c in (RARE, MANY)}
    kept = {RARE: rare, MANY: TIMES * rare}
    train = np.concatenate([own[c][: kept[c]] for c in own])
    test = np.concatenate([own[c][kept[c] : kept[c] + held] for c in own])
    return part_of(data, np.sort(train)), part_of(data, np.sort(test))


def factory(arm: str, x: Data, width: int) -> Callable[[], nn.Module]:
    """Members with the same weights in all arms; what differs is the head's start."""
    from firstguess_papers.library import drawn, resolve

    places = resolve(Network.parse(_TEXT, classes=2), x.x.shape[1:], width=width, inputs=Inputs)

    def make() -> nn.Module:
        import torch

        model = drawn(places, torch.initial_seed(), flat=False)  # made under the member's own seed
        if arm == PRIOR:
            log_prior(model, torch.from_numpy(np.array(x.x, dtype=np.float32)), x.y)
        if arm == TILTED:
            tilt(model, torch.from_numpy(np.array(x.x, dtype=np.float32)))
        return model

    return make


def log_prior(model: nn.Sequential, x: torch.Tensor, labels: Any) -> None:
    """The head's bias is the log prior; its weights have the size whose first loss is _EXCESS above the entropy."""
    import torch

    p = np.bincount(labels, minlength=2) / len(labels)
    weight, bias = model[-1].get_parameter("weight"), model[-1].get_parameter("bias")
    with torch.no_grad():
        out = model(x).double() - bias.double()
        size = float((out - out.mean(1, keepdim=True)).square().mean()) * 2.0
        weight.mul_(float(np.sqrt(2.0 * _EXCESS / (1.0 - np.sum(p * p)) / size)))
        bias.copy_(torch.from_numpy(np.log(p)))


def tilt(model: nn.Sequential, x: torch.Tensor) -> None:
    """Move the head's bias so that this share of the points is guessed as the rare class."""
    import torch

    with torch.no_grad():
        out = model(x)
        apart = (out[:, RARE] - out[:, MANY]).quantile(1.0 - _FIRST)
        bias = model[-1].get_parameter("bias")
        bias[RARE] -= 0.5 * apart
        bias[MANY] += 0.5 * apart


def weighted(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy with weights by inverse frequency, as torch averages it."""
    import torch

    weights = torch.ones(2)
    weights[RARE] = float(TIMES)
    return torch.nn.functional.cross_entropy(outputs, labels, weight=weights)


def _trained(c: Found, optimizer: Literal["sgd", "adam"], x: Data, test: Data) -> dict[str, Arm]:
    looks = [k for k in (1, 3, 10, EARLY, 100, 200, 400) if k <= c.steps]
    own: dict[str, Any] = {WEIGHTS: {"loss": weighted}}
    return {
        arm: trained(
            c.run, factory(arm, x, c.width), x, test=test, label=f"{arm}, {optimizer}",
            name=f"{arm}, {_TEXT}, {c.width}", optimizer=optimizer, lr=RATES[optimizer], batch=64, steps=looks,
            inits=c.inits, parts=c.parts, strategy="loop", **own.get(arm, {}),
        )
        for arm in ARMS
    }  # fmt: skip


def _both(c: Found) -> dict[str, Any]:
    """Four starts or losses under both optimizers, and moved heads of three models."""
    from firstguess_papers import moved_heads

    x, test = uneven(c.run.data("mnist:4-9"), c.rare, c.held, c.run.seed)
    images = c.run.data("cifar10", points=2 * c.points)
    key = {"moved by": "ρ of the mean logits", "data": images.hash, "points": c.points, "inits": c.members}
    heads = {
        name: moved_heads.numbers(c.run.piece(
            {"model": name, **key}, partial(moved_heads.moved, make, images, c.members, c.run.seed),
            label=f"moved head, {name}",
        ))
        for name, make in moved_heads.MODELS.items()
    }  # fmt: skip
    return {"trainings": {o: _trained(c, o, x, test) for o in RATES}, "heads": heads}


# -- Checks


def recall(arm: Arm, step: int, of: int = RARE) -> Array:
    """Of a class's held-out points, network by network; a network that diverged recalls none."""
    return np.nan_to_num(arm.values(f"test class {of}", step), nan=0.0)


def balanced(arm: Arm, step: int) -> Array:
    """The mean recall of both classes."""
    return 0.5 * (recall(arm, step, RARE) + recall(arm, step, MANY))


def judged_arms(arms: Mapping[str, Mapping[str, Arm]]) -> list[Entry]:
    """B8, its second half."""
    last = next(iter(arms.values()))[PLAIN].last
    steps = (EARLY, last)

    def ahead(one: str, other: str, step: int, what: Any = recall) -> dict[str, Number]:
        """By optimizer: how much more one arm recalls than the other."""
        return {f"{WORDS[o]}, against {other} at step {step}": apart(what(by[one], step), what(by[other], step))
                for o, by in arms.items()}  # fmt: skip

    def early(by: Mapping[str, Arm]) -> Check:
        """A difference below 0.02 is none."""
        tilted, plain = (recall(by[arm], EARLY) for arm in (TILTED, PLAIN))
        return Check(f"at step {EARLY}", "above 0", more(tilted, plain, room=0.02), str(apart(tilted, plain)))

    said = f"recall of the rare class at steps {EARLY} / {last}: " + "; ".join(
        f"{WORDS[o]}: "
        + ", ".join(f"{arm} {number(recall(a, EARLY))} / {number(recall(a, last))}" for arm, a in by.items())
        for o, by in arms.items()
    )
    return [
        claimed(
            "B8", f"at 1:{TIMES}, by how much class weights recall more of the rare class than every start; without a "
            "limit by how much both classes' mean recall is higher, too",
            [one for step in steps for a in ARMS[:3] for one in each(ahead(WEIGHTS, a, step), above=DWARFS)],
            within=[one for a in ARMS[:3] for one in each(ahead(WEIGHTS, a, last, balanced), above=0.0)],
            limit="the other class pays as much", headline=said, also=said,
        ),
        *(
            claimed(
                "B8", f"{WORDS[o]}: recall of the rare class from a start tilted to it − from the plain start",
                [early(by)],
                within=[check("at the end", apart(recall(by[TILTED], last), recall(by[PLAIN], last)), below=ROOM)],
                limit="it is still ahead", otherwise="it does not help even then",
            )
            for o, by in arms.items()
        ),
        claimed(
            "B8", "recall of the rare class from a start at the log prior − from the plain start",
            [one for step in steps for one in each(ahead(PRIOR, PLAIN, step), near=0.0, room=ROOM)],
        ),
    ]  # fmt: skip


def judged_heads(heads: Mapping[str, Moved]) -> Entry:
    """B8, its first half."""
    from firstguess_papers.moved_heads import EQUAL, NEAR, PARTS

    return claimed(
        "B8", "taking ρ of the mean logits off by the head's bias, on points that it was not moved by: what is left of "
        "γ, and spreads and gradients of logits over those before",
        [found for part in PARTS for name, one in heads.items() for found in (
            check(f"γ at ρ = {part:g}, {name}", one.kept[part], near=(1.0 - part) ** 2, room=NEAR),
            *each({f"spreads at ρ = {part:g}, {name}": one.spreads[part],
                   f"gradients at ρ = {part:g}, {name}": one.gradients[part]}, near=1.0, room=EQUAL))],
        headline="γ at ρ = 0, ½, 1: "
        + "; ".join(f"{name} {one.gamma}, {one.after[0.5]}, {one.after[1.0]}" for name, one in heads.items()),
    )  # fmt: skip


# -- Tables, figures


def _rows(optimizer: str, arms: Mapping[str, Arm]) -> list[dict[str, Any]]:
    return [
        {"optimizer": optimizer, "arm": name, "step": step, "networks": arm.networks, "rare": number(recall(arm, step))}
        | {"many": number(recall(arm, step, MANY)), "balanced": number(balanced(arm, step))}
        for name, arm in arms.items()
        for step in arm.steps.tolist()
    ]


def _head_row(name: str, one: Moved) -> dict[str, Any]:
    line: dict[str, Any] = {"model": name, "gamma": one.gamma}
    for part, after in one.after.items():
        line |= {f"gamma_{part:g}": after, f"gradients_{part:g}": one.gradients[part].value}
        line |= {f"spread_{part:g}": one.spreads[part].value}
    return line


imbalance = measured(
    "beyond/imbalance", "A moved head, and one class in twenty", "theory.md §10", claims=("B8",),
    needs=("mnist", "cifar10"), seconds=(16, 150),
    about="MNIST 4 against 9, {rare} and 20 times as many images, {held} of each held out; 5 hidden layers of {width}, "
    "batches of 64, SGD and Adam at one rate each, {steps} steps, {networks} networks an arm. Heads: three models, "
    "{points} images of CIFAR-10 and as many others, {members} initializations.",
    quick=dict(rare=20, held=200, width=40, steps=100, inits=10, points=60, members=10, parts=1),
    full=dict(rare=60, held=400, width=100, steps=400, inits=16, points=300, members=16, parts=3),
    quantities=_both,
    judge=lambda c: [judged_heads(c.heads), *judged_arms(c.trainings)],
    tables=lambda c: {
        "recall": [line for o, by in c.trainings.items() for line in _rows(o, by)],
        "heads": [_head_row(name, one) for name, one in c.heads.items()],
    },
    charts=lambda c: {"recall": arms_chart(
        {f"{WORDS[o]}: recall of the {words} class": [Line(name, a.curve(f"test class {of}")) for name, a in by.items()]
         for o, by in c.trainings.items() for of, words in ((RARE, "rare"), (MANY, "other"))},
        title="One class in twenty: three starts, and class weights", columns=2, width=400, height=230,
    )},
    holds={"recall": Holds("At 1:20 class weights help the rare class more than any start", entries=(1,))},
    notes=[f"One rate an optimizer for all arms: {', '.join(f'{o} {lr:g}' for o, lr in RATES.items())}. The tilted "
           f"start guesses {_FIRST:.0%} of the training points as the minority; the log prior is a head's bias with "
           "weights so small that the first loss is the prior's entropy + 0.01; class weights: inverse frequencies."],
)  # fmt: skip
