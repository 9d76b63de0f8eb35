"""Beyond the papers: a head's bias moves γ and nothing else; at 1:20 class weights against starts that lean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from firstguess import Inputs, Network
from firstguess_papers.beyond_frontier import ratio
from firstguess_papers.items import Entry, Holds, Outcome, item
from firstguess_papers.judging import Number, Truth, above, entry, same
from firstguess_papers.running import Run
from firstguess_papers.tables import columns
from firstguess_papers.training_charts import Line, arms_chart
from firstguess_papers.training_pieces import Arm, Array, trained
from firstguess_papers.training_speed import apart, more, number, part_of

if TYPE_CHECKING:
    import torch
    from torch import nn

    from firstguess.data import Data
    from firstguess_papers.library import Chart
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


@item(
    "beyond/imbalance",
    "A moved head, and one class in twenty",
    claims=("B8",),
    where="theory.md §10",
    needs=("mnist", "cifar10"),
    about="MNIST 4 against 9, {rare} and 20 times as many images, {held} of each held out; 5 hidden layers of {width}, "
    "batches of 64, SGD and Adam at one rate each, {steps} steps, {networks} networks an arm. Heads: three models, "
    "{points} images of CIFAR-10 and as many others, {members} initializations.",
    quick=dict(rare=20, held=200, width=40, steps=100, inits=10, points=60, members=10, parts=1),
    full=dict(rare=60, held=400, width=100, steps=400, inits=16, points=300, members=16, parts=3),
    seconds=(20, 150),
)  # fmt: skip
def imbalance(run: Run) -> Outcome:
    """B8: γ and gradients of moved heads; recall of the rare class from four starts or losses."""
    from firstguess_papers import moved_heads

    rare, held, width, steps, inits = run.take("rare held width steps inits")
    points, members = run.take("points members")
    x, test = uneven(run.data("mnist:4-9"), rare, held, run.seed)
    looks = [k for k in (1, 3, 10, EARLY, 100, 200, 400) if k <= steps]
    parts = run.take("parts")
    arms = {o: _trained(run, o, x, test, width, looks, inits, parts) for o in RATES}
    images = run.data("cifar10", points=2 * points)
    heads: dict[str, Moved] = {}
    for name, make in moved_heads.MODELS.items():
        key = {
            "model": name,
            "moved by": "ρ of the mean logits",
            "data": images.hash,
            "points": points,
            "inits": members,
        }
        compute = partial(moved_heads.moved, make, images, members, run.seed)
        heads[name] = moved_heads.numbers(run.piece(key, compute, label=f"moved head, {name}"), ratio)
    return Outcome(
        [judged_heads(heads), *judged_arms(arms)],
        {
            "recall": columns([line for o, by in arms.items() for line in _rows(o, by)]),
            "heads": columns([_head_row(name, one) for name, one in heads.items()]),
        },
        {"recall": _chart(arms)},
        [
            "One rate an optimizer for all arms: "
            + ", ".join(f"{o} {lr:g}" for o, lr in RATES.items())
            + f". The tilted start guesses {_FIRST:.0%} of the training points as the minority; the log prior is "
            "a head's bias with weights so small that the first loss is the prior's entropy + 0.01; class weights are "
            "inverse frequencies.",
        ],
        {"recall": Holds("At 1:20 class weights help the rare class more than any start", entries=(1,))},
    )


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


def _trained(
    run: Run,
    optimizer: Literal["sgd", "adam"],
    x: Data,
    test: Data,
    width: int,
    looks: list[int],
    inits: int,
    parts: int,
) -> dict[str, Arm]:
    found: dict[str, Arm] = {}
    for arm in ARMS:
        options: dict[str, Any] = {"loss": weighted} if arm == WEIGHTS else {}
        found[arm] = trained(
            run, factory(arm, x, width), x, test=test, label=f"{arm}, {optimizer}", name=f"{arm}, {_TEXT}, {width}",
            optimizer=optimizer, lr=RATES[optimizer], batch=64, steps=looks, inits=inits, parts=parts, strategy="loop",
            **options,
        )  # fmt: skip
    return found


# -- Checks


def recall(arm: Arm, step: int, of: int = RARE) -> Array:
    """Of a class's held-out points, network by network; a network that diverged recalls none."""
    return np.nan_to_num(arm.values(f"test class {of}", step), nan=0.0)


def balanced(arm: Arm, step: int) -> Array:
    """The mean recall of both classes."""
    return 0.5 * (recall(arm, step, RARE) + recall(arm, step, MANY))


def helps_early(arms: Mapping[str, Arm]) -> Truth:
    """The tilted start recalls more of the rare class early on."""
    return more(recall(arms[TILTED], EARLY), recall(arms[PLAIN], EARLY), room=0.02)


def gone_at_the_end(arms: Mapping[str, Arm]) -> Truth:
    """At the end it does not, by 0.05."""
    last = arms[PLAIN].last
    return above(Number(ROOM), apart(recall(arms[TILTED], last), recall(arms[PLAIN], last)))


def dwarfs(arms: Mapping[str, Arm]) -> list[Truth]:
    """Class weights recall more than every start, early and at the end, by 0.05."""
    return [
        above(apart(recall(arms[WEIGHTS], step), recall(arms[other], step)), DWARFS)
        for step in (EARLY, arms[PLAIN].last)
        for other in (PLAIN, PRIOR, TILTED)
    ]


def judged_arms(arms: Mapping[str, Mapping[str, Arm]]) -> list[Entry]:
    """B8, its second half."""
    last = next(iter(arms.values()))[PLAIN].last
    every = list(arms.values())
    said = "; ".join(
        f"{o}: " + ", ".join(f"{arm} {number(recall(a, EARLY))} / {number(recall(a, last))}" for arm, a in by.items())
        for o, by in arms.items()
    )
    fair = "; ".join(
        f"{o}: " + ", ".join(f"{arm} {number(balanced(a, last))}" for arm, a in by.items()) for o, by in arms.items()
    )
    steps = f"recall of the rare class at steps {EARLY} / {last}: "
    return [
        entry(
            "B8",
            f"at 1:{TIMES} class weights recall more of the rare class than every start, by over {DWARFS} at step "
            f"{EARLY} and at the end, with both optimizers; without a limit both classes' mean recall is higher, too",
            f"{steps}{said}; mean recall of both classes at the end: {fair}",
            [check for by in every for check in dwarfs(by)],
            within=[
                above(apart(balanced(by[WEIGHTS], last), balanced(by[a], last)), 0.0) for by in every for a in ARMS[:3]
            ],
            limit="the other class pays as much",
            otherwise="not at both steps and with both optimizers",
            headline=f"{steps}{said}",
        ),
        *(
            entry(
                "B8",
                f"{WORDS[o]}: a start tilted to the rare class helps it briefly: more recall at step {EARLY} than the "
                f"plain start; without a limit it is gone at the end (less than {ROOM} more)",
                f"{steps}{said}",
                [helps_early(by)],
                within=[gone_at_the_end(by)],
                limit="it is still ahead at the end",
                otherwise="it does not help even then",
            )
            for o, by in arms.items()
        ),
        entry(
            "B8",
            f"a start at the log prior leaves recall of the rare class where it was, within {ROOM}, at both steps",
            f"{steps}{said}",
            [
                same(apart(recall(by[PRIOR], step), recall(by[PLAIN], step)), 0.0, room=ROOM)
                for by in every
                for step in (EARLY, last)
            ],
        ),
    ]


def judged_heads(heads: Mapping[str, Moved]) -> Entry:
    """B8, its first half."""
    from firstguess_papers.moved_heads import EQUAL, NEAR, PARTS

    said = "; ".join(
        f"{name}: γ {one.gamma}"
        + "".join(f", ρ = {p:g}: {one.after[p]} (× {one.kept[p]}), gradients × {one.gradients[p]}" for p in PARTS)
        for name, one in heads.items()
    )
    return entry(
        "B8",
        f"taking ρ of the mean logits off by the head's bias leaves (1 − ρ)² of γ, within {NEAR} on points that it was "
        f"not moved by, and changes neither spreads nor gradients of logits (by {EQUAL})",
        said,
        [one.judged() for one in heads.values()],
        headline="γ at ρ = 0, ½, 1: "
        + "; ".join(f"{name} {one.gamma}, {one.after[0.5]}, {one.after[1.0]}" for name, one in heads.items()),
    )


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


def _chart(arms: Mapping[str, Mapping[str, Arm]]) -> Chart:
    words = {RARE: "the rare class", MANY: "the other class"}
    return arms_chart(
        {
            f"{WORDS[o]}: recall of {words[of]}": [Line(name, a.curve(f"test class {of}")) for name, a in by.items()]
            for o, by in arms.items()
            for of in words
        },
        title="One class in twenty: three starts, and class weights", columns=2, width=400, height=230,
    )  # fmt: skip
