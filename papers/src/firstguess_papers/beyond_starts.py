"""Beyond the papers: moved heads, one class in twenty, and what stays of the seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

import firstguess as fg
from firstguess import Network
from firstguess.data import Data
from firstguess_papers.charts import Line, arms_chart, lines
from firstguess_papers.items import Entry, Holds, Item
from firstguess_papers.judging import Array, Check, Number, average, check, claimed, each
from firstguess_papers.library import Piece
from firstguess_papers.measured import Found, Training
from firstguess_papers.running import Missing, Run
from firstguess_papers.training_pieces import Arm, apart, more, number, part_of

if TYPE_CHECKING:
    import torch
    from torch import nn


PLAIN, PRIOR, TILTED, WEIGHTS = "plain", "log prior", "start tilted to the minority", "class weights"
ARMS = (PLAIN, PRIOR, TILTED, WEIGHTS)
RATES: Mapping[Literal["sgd", "adam"], float] = {"sgd": 0.02, "adam": 5e-4}
WORDS = {"sgd": "SGD", "adam": "Adam"}
RARE, MANY = 0, 1  # classes: fours are rare, nines are not
Heads: TypeAlias = Mapping[str, Mapping[float, Number]]  # as `models.numbers` has them
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
    from firstguess_papers.models import members_of

    def change(model: nn.Sequential) -> None:
        import torch

        points = torch.from_numpy(np.array(x.x, dtype=np.float32))
        if arm == PRIOR:
            log_prior(model, points, x.y)
        if arm == TILTED:
            tilt(model, points)

    return members_of(Network.parse(_TEXT, classes=2), x, width, change)


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


def _cells(c: Found) -> dict[Any, Training]:
    """Four starts or losses under both optimizers."""
    x, test = uneven(c.run.data("mnist:4-9"), c.rare, c.held, c.run.seed)
    looks = [k for k in (1, 3, 10, EARLY, 100, 200, 400) if k <= c.steps]
    how: dict[str, Any] = {"batch": 64, "steps": looks, "strategy": "loop", "width": None}
    return {
        (o, arm): Training(
            factory(arm, x, c.width), x, test=test, name=f"{arm}, {_TEXT}, {c.width}",
            options=how | {"optimizer": o, "lr": lr} | ({"loss": weighted} if arm == WEIGHTS else {}),
        ) for o, lr in RATES.items() for arm in ARMS
    }  # fmt: skip


def _heads(c: Found) -> dict[str, Any]:
    """Moved heads of three models."""
    from firstguess_papers import models

    x, given = c.run.data("cifar10", points=2 * c.points), {"inits": c.members, "seed": c.run.seed}
    return {name: models.numbers(c.run.keep(models.moved, label=f"moved head, {name}", kind=name, images=x, **given))
            for name in models.MODELS}  # fmt: skip


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


def judged_heads(heads: Mapping[str, Heads]) -> Entry:
    """B8, its first half."""
    from firstguess_papers.models import NEAR, PARTS
    from firstguess_papers.models import SAME as EQUAL

    return claimed(
        "B8", "taking ρ of the mean logits off by the head's bias, on points that it was not moved by: what is left of "
        "γ, and spreads and gradients of logits over those before",
        [found for part in PARTS for name, one in heads.items() for found in (
            check(f"γ at ρ = {part:g}, {name}", one["kept"][part], near=(1.0 - part) ** 2, room=NEAR),
            *each({f"spreads at ρ = {part:g}, {name}": one["spreads"][part],
                   f"gradients at ρ = {part:g}, {name}": one["gradients"][part]}, near=1.0, room=EQUAL))],
        headline="γ at ρ = 0, ½, 1: "
        + "; ".join(f"{name} {', '.join(map(str, one['gamma'].values()))}" for name, one in heads.items()),
    )  # fmt: skip


def _rows(optimizer: str, arms: Mapping[str, Arm]) -> list[dict[str, Any]]:
    return [
        {"optimizer": optimizer, "arm": name, "step": step, "networks": arm.networks, "rare": number(recall(arm, step))}
        | {"many": number(recall(arm, step, MANY)), "balanced": number(balanced(arm, step))}
        for name, arm in arms.items()
        for step in arm.steps.tolist()
    ]


def _head_row(name: str, one: Heads) -> dict[str, Any]:
    known, *parts = one["gamma"].items()
    return {"model": name, "gamma": known[1]} | {key: value for part, after in parts for key, value in (
        (f"gamma_{part:g}", after), (f"gradients_{part:g}", one["gradients"][part].value),
        (f"spread_{part:g}", one["spreads"][part].value))}  # fmt: skip


imbalance = Item(
    "beyond/imbalance", "A moved head, and one class in twenty", "theory.md §10", claims=("B8",),
    needs=("mnist", "cifar10"), seconds=(16, 150),
    about="MNIST 4 against 9, {rare} and 20 times as many images, {held} of each held out; 5 hidden layers of {width}, "
    "batches of 64, SGD and Adam at one rate each, {steps} steps, {networks} networks an arm. Heads: three models, "
    "{points} images of CIFAR-10 and as many others, {members} initializations.",
    quick=dict(rare=20, held=200, width=40, steps=100, inits=10, points=60, members=10, parts=1),
    full=dict(rare=60, held=400, width=100, steps=400, inits=16, points=300, members=16, parts=3),
    cells=_cells, quantities=lambda c: {"heads": _heads(c), "trainings": {o: c.arms(o) for o in RATES}},
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


MLP, ADAM, UNTIED, TIED = "MLP by gradient descent", "MLP by AdamW", "untied transformer", "tied transformer"
DECAYED = " with weight decay"
RATE = 1e-3  # of AdamW
GONE, STAYS, ENDED = 0.5, 0.5, 0.3  # correlations with the start: absorbed below, there above, at an end below
LAZY, LEFT = 0.1, 0.1  # tolerances: of a largest share and the direction, and of the start's part in the weights
ALIKE = 0.2  # tolerance of the mean logits' correlation with the start
OTHERS = 0.1  # another seed's correlation with the start is 0 within this
_FIVE = "5 x [dense(weight_var=2) > relu] > dense(weight_var=2)"
_DRAWS = 100  # of lazy networks
_BATCH = 16  # sequences


@dataclass(frozen=True)
class Kept:
    """Of every network at the looks: (networks, looks) correlations with its start, and the largest share."""

    steps: Array
    logits: Array  # of mean logits
    direction: Array  # of the hidden mean
    ranks: Array  # the same by Kendall's τ
    other: Array  # of the hidden mean with another seed's start
    weights: Array  # the part of the start that is left in the weights
    largest: Array

    def at(self, what: str, step: int) -> Number:
        """Mean ± standard error over networks, at the look nearest to a step."""
        values = getattr(self, what)[:, int(np.abs(self.steps - step).argmin())]
        return average(values)


def _prints(c: Found) -> dict[str, Any]:
    """Mean logits and hidden means of trained networks, compared with their starts."""
    images, texts, steps = c.run.data("mnist", points=c.points), _texts(c.run, c.length + 1, c.words), 3 * c.end
    lazy = lazily(images, c.width)
    pieces: dict[str, Mapping[str, Any]] = {}
    for name, decay in ((MLP, 0.0), (ADAM, 0.0), (ADAM, 1.0), (UNTIED, 0.0), (UNTIED, 1.0), (TIED, 0.0), (TIED, 1.0)):
        label, wd = name + (DECAYED if decay else ""), decay / (RATE * c.end)
        given: dict[str, Any] = {"inits": c.inits, "seed": c.run.seed, "steps": steps, "decay": wd}
        if name in (MLP, ADAM):
            rate = lazy["rate"] if name == MLP else 0
            pieces[label] = c.run.keep(of_images, label=label, x=images, width=c.width, rate=rate, **given)
        else:
            pieces[label] = c.run.keep(of_texts, label=label, x=texts, width=c.size, tied=name == TIED, **given)
    fields = Kept.__dataclass_fields__
    found = {n: Kept(*(np.asarray(piece[k], dtype=np.float64) for k in fields)) for n, piece in pieces.items()}
    return {"prints": found, "lazy": lazy, "rows": [
        {"what": words, "name": label, "step": int(step), "value": kept.at(what, int(step))}
        for what, words in (("logits", "mean logits"), ("direction", "hidden direction"), ("ranks", "by ranks"))
        for label, kept in found.items() for step in kept.steps
    ]}  # fmt: skip


seed_print = Item(
    "beyond/seed-print", "What stays of the seed: guesses and the hidden direction", "theory.md §14", claims=("B10",),
    needs=("mnist", "ag-news"), seconds=(5, 290),
    about="MLP of 5 × {width} on {points} images of MNIST, gradient descent and AdamW; GPT-2 of 2 × {size} on AG News "
    "({words} words, sequences of {length}), untied and tied, AdamW in batches of 16; weight decay such that 1/(η·wd) "
    "is {end} steps, three times as many steps, {inits} networks each.",
    quick=dict(width=48, points=40, size=16, words=60, length=12, end=10, inits=4),
    full=dict(width=256, points=128, size=64, words=512, length=32, end=200, inits=12),
    quantities=_prints, judge=lambda c: judged(c.prints, c.lazy, c.end), tables=lambda c: {"kept": c.rows},
    charts=lambda c: {"kept": lines(
        [row for row in c.rows if row["what"] != "by ranks"], "step", "value", by="name", theory="", panel="what",
        y_title="correlation with the start", x_scale="symlog", dodge=False, title="Mean logits and the hidden mean",
    )},
    holds={"kept": Holds("Guesses are absorbed, the hidden direction is not", entries=(0,))},
    notes=["Correlations are over classes (mean logits) and over units (hidden mean, before the head), averaged over "
           "fixed points; gradient descent at the bias mode's own rate, AdamW at 0.001."],
)  # fmt: skip


def _texts(run: Run, length: int, words: int) -> Data:
    from firstguess.data import ag_news

    try:
        return ag_news(run.data_dir, length=length, words=words, points=16 * _BATCH, seed=run.seed)
    except fg.InvalidInput as error:
        raise Missing(str(error)) from error


def lazily(x: Data, width: int) -> Mapping[str, float]:
    """The rate of the bias mode, and by tangent kernels the largest share and mean logits at step 30."""
    from firstguess_papers.library import kernel_of

    assert x.y is not None
    found = kernel_of(fg.Network.parse(_FIVE, classes=10), x.x.reshape(x.n, -1).astype(np.float64), width)
    theta = np.asarray(found.tangent, dtype=np.float64)
    rate = x.n**2 / float(theta.sum())
    values, vectors = np.linalg.eigh(np.asarray(found.covariance, dtype=np.float64))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    f = np.random.default_rng(0x5EED).normal(size=(_DRAWS, 10, x.n)) @ root.T
    start, target = f.mean(-1), np.eye(10)[x.y].T
    for _ in range(EARLY):
        odds = np.exp(f - f.max(1, keepdims=True))
        f = f - rate / x.n * (odds / odds.sum(1, keepdims=True) - target) @ theta
    largest = float(np.mean([np.bincount(row, minlength=10).max() / x.n for row in f.argmax(1)]))
    logits = float(np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(start, f.mean(-1), strict=True)]))
    return {"rate": rate, "largest": largest, "logits": logits}


def of_images(x: Data, *, width: int, inits: int, seed: int, steps: int, rate: float, decay: float) -> Piece:
    """MLPs on all points at every step: gradient descent at a rate, AdamW without one."""
    import torch

    from firstguess_papers.library import build

    points = torch.from_numpy(np.array(x.x, dtype=np.float32)).flatten(1)
    labels = torch.from_numpy(np.array(x.y))
    net = fg.Network.parse(_FIVE, classes=10)

    def batches(member: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        while True:
            yield points, labels

    def make(member: int) -> nn.Sequential:
        return build(net, points.shape[1:], width=width, seed=seed, member=member)

    return trained_seeds(make, batches, points, inits, steps, rate, decay)


def of_texts(x: Data, *, width: int, inits: int, seed: int, steps: int, tied: bool, decay: float) -> Piece:
    """GPT-2 of two layers that predicts the next word, AdamW."""
    import torch

    from firstguess_papers.library import build

    ids = torch.from_numpy(np.array(x.x).astype(np.int64))
    size = int(ids.max()) + 1
    net = fg.transformer("gpt2", depth=2, width=width, heads=4, head="language", vocabulary=size, tied=tied)

    def batches(member: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        rng = np.random.default_rng((seed, member, 0x7E))
        while True:
            some = ids[torch.from_numpy(rng.choice(len(ids), _BATCH, replace=False))]
            yield some[:, :-1], some[:, 1:]

    def make(member: int) -> nn.Sequential:
        return build(net, ids[:, :-1].numpy(), width=width, seed=seed, member=member)

    return trained_seeds(make, batches, ids[:_BATCH, :-1], inits, steps, 0.0, decay)


def trained_seeds(
    make: Callable[[int], nn.Sequential],
    batches: Callable[[int], Iterator[tuple[torch.Tensor, torch.Tensor]]],
    shown: torch.Tensor,
    inits: int,
    steps: int,
    rate: float,
    decay: float,
) -> Piece:
    """Trained networks, and what is left of their starts on the points shown: a piece with the fields of `Kept`."""
    import torch

    looks = sorted({0, 3, 10, EARLY, *(round(part * steps) for part in (0.1, 1 / 6, 1 / 3, 2 / 3, 1.0))})
    looks = [look for look in looks if look <= steps]
    seen: list[list[tuple[Array, Array, float, float]]] = []
    for member in range(inits):
        model = make(member)
        start = [p.detach().clone() for p in model.parameters()]
        kind: Any = torch.optim.SGD(model.parameters(), lr=rate) if rate else None
        kind = kind or torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=decay)
        source, own = batches(member), []
        for step in range(steps + 1):
            if step in looks:
                own.append(_look(model, shown, start))
            x, y = next(source)
            kind.zero_grad()
            torch.nn.functional.cross_entropy(model(x).flatten(0, -2), y.flatten()).backward()
            kind.step()
        seen.append(own)
    return kept(looks, seen)


def _look(model: nn.Sequential, shown: torch.Tensor, start: list[torch.Tensor]) -> tuple[Array, Array, float, float]:
    """Mean logits, the hidden mean, the part of the start in the weights, and the largest share."""
    import torch

    with torch.no_grad():
        *body, head = list(model)
        h = shown
        for module in body:
            h = module(h)
        out = head(h).flatten(0, -2).double()
        largest = float(torch.bincount(out.argmax(1)).max()) / len(out)
        both = [(p.double() * s.double()).sum() for p, s in zip(model.parameters(), start, strict=True)]
        part = float(sum(both)) / float(sum(s.double().square().sum() for s in start))
        return out.mean(0).numpy(), h.flatten(0, -2).double().mean(0).numpy(), part, largest


def kept(looks: list[int], seen: list[list[tuple[Array, Array, float, float]]]) -> Piece:
    """Correlations with the start, network by network; another seed is the network before."""
    from scipy import stats

    kendall: Any = stats.kendalltau  # SciPy's types do not know its result

    def over(function: Callable[[int, int], float]) -> Array:
        return np.array([[function(i, k) for k in range(len(looks))] for i in range(len(seen))])

    def alike(a: Array, b: Array) -> float:
        return float(np.corrcoef(a, b)[0, 1])

    return {
        "steps": np.array(looks, dtype=np.float64),
        "logits": over(lambda i, k: alike(seen[i][0][0], seen[i][k][0])),
        "direction": over(lambda i, k: alike(seen[i][0][1], seen[i][k][1])),
        "ranks": over(lambda i, k: float(kendall(seen[i][0][1], seen[i][k][1]).statistic)),
        "other": over(lambda i, k: alike(seen[i - 1][0][1], seen[i][k][1])),
        "weights": over(lambda i, k: seen[i][k][2]),
        "largest": over(lambda i, k: seen[i][k][3]),
    }


def judged(found: Mapping[str, Kept], lazy: Mapping[str, float], end: int) -> list[Entry]:
    """B10: absorbed or not without weight decay; the lazy prediction; what weight decay ends."""
    last = 3 * end
    plain, decayed = ([name for name in found if (DECAYED in name) == own] for own in (False, True))
    ranks = "; ".join(f"Kendall's τ, {n}: {found[n].at('ranks', last)}" for n in found)
    theory, when = "the tangent kernel", (end, last)
    said = [f"{n}: logits {found[n].at('logits', last)}, direction {found[n].at('direction', last)}" for n in plain]
    return [
        claimed(
            "B10", f"correlations with the start at step {last}",
            [*(check(f"{n}, mean logits", found[n].at("logits", last), below=GONE) for n in plain),
             *(check(f"{n}, hidden direction", found[n].at("direction", last), above=STAYS) for n in plain),
             *(check(f"{n}, another seed", found[n].at("other", last), near=0.0, room=OTHERS) for n in plain)],
            also=ranks, headline="; ".join(said),
        ),
        claimed(
            "B10", f"the lazy prediction for gradient descent at step {EARLY}",
            [check("largest share", found[MLP].at("largest", EARLY), near=lazy["largest"], room=LAZY, than=theory),
             check("mean logits", found[MLP].at("logits", EARLY), near=lazy["logits"], room=ALIKE, than=theory),
             check("hidden direction", found[MLP].at("direction", EARLY), near=1.0, room=LAZY, than="its limit")],
        ),
        claimed(
            "B10", f"weight decay w leaves of the start in the weights, at steps {end} and {last}",
            [check(n, [found[n].at("weights", s) for s in when], near=[Number(math.exp(-s / end)) for s in when],
                   room=LEFT, than="exp(-tηw)") for n in decayed],
        ),
        claimed(
            "B10", f"weight decay w ends the hidden direction after 3/(ηw) = {last} steps: correlation",
            [check(n, found[n].at("direction", last), below=ENDED) for n in decayed],
        ),
    ]  # fmt: skip
