"""Beyond the papers: what stays of the seed. Guesses are absorbed, the hidden direction stays; weight decay."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import firstguess as fg
from firstguess_papers.charts import lines
from firstguess_papers.items import Entry, Holds, Outcome, item
from firstguess_papers.judging import Number, check, claimed
from firstguess_papers.running import Missing, Run
from firstguess_papers.tables import columns
from firstguess_papers.training_pieces import Array

if TYPE_CHECKING:
    import torch
    from torch import nn

    from firstguess.data import Data
    from firstguess_papers.library import Piece

MLP, ADAM, UNTIED, TIED = "MLP by gradient descent", "MLP by AdamW", "untied transformer", "tied transformer"
DECAYED = " with weight decay"
RATE = 1e-3  # of AdamW
EARLY = 30
GONE, STAYS, ENDED = 0.5, 0.5, 0.3  # correlations with the start: absorbed below, there above, at an end below
LAZY, LEFT = 0.1, 0.1  # tolerances: of a largest share and the direction, and of the start's part in the weights
ALIKE = 0.2  # tolerance of the mean logits' correlation with the start
OTHERS = 0.1  # another seed's correlation with the start is 0 within this
_TEXT = "5 x [dense(weight_var=2) > relu] > dense(weight_var=2)"
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
        return Number(float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values))))


@item(
    "beyond/seed-print",
    "What stays of the seed: guesses and the hidden direction",
    claims=("B10",),
    where="theory.md §14",
    needs=("mnist", "ag-news"),
    about="MLP of 5 × {width} on {points} images of MNIST, gradient descent and AdamW; GPT-2 of 2 × {size} on AG News "
    "({words} words, sequences of {length}), untied and tied, AdamW in batches of 16; weight decay such that 1/(η·wd) "
    "is {end} steps, three times as many steps, {inits} networks each.",
    quick=dict(width=48, points=40, size=16, words=60, length=12, end=10, inits=4),
    full=dict(width=256, points=128, size=64, words=512, length=32, end=200, inits=12),
    seconds=(5, 290),
)  # fmt: skip
def seed_print(run: Run) -> Outcome:
    """B10: mean logits and hidden means of trained networks, beside their starts."""
    width, points, size, words, length, end, inits = run.take("width points size words length end inits")
    images = run.data("mnist", points=points)
    texts = _texts(run, length + 1, words)
    lazy = lazily(images, width)
    found: dict[str, Kept] = {}
    for name, decay in ((MLP, 0.0), (ADAM, 0.0), (ADAM, 1.0), (UNTIED, 0.0), (UNTIED, 1.0), (TIED, 0.0), (TIED, 1.0)):
        label = name + (DECAYED if decay else "")
        wd = decay / (RATE * end)
        if name in (MLP, ADAM):
            compute = partial(
                of_images, images, width, inits, run.seed, 3 * end, lazy["rate"] if name == MLP else 0, wd
            )
        else:
            compute = partial(of_texts, texts, size, words, inits, run.seed, 3 * end, name == TIED, wd)
        key = {"arm": label, "data": (images if name in (MLP, ADAM) else texts).hash}
        piece = run.piece(key, compute, label=label)
        found[label] = Kept(*(np.asarray(piece[k], dtype=np.float64) for k in Kept.__dataclass_fields__))
    rows = [
        {"what": words_of, "name": label, "step": int(step), "value": kept.at(what, int(step))}
        for what, words_of in (("logits", "mean logits"), ("direction", "hidden direction"), ("ranks", "by ranks"))
        for label, kept in found.items()
        for step in kept.steps
    ]
    chart = lines(
        [row for row in rows if row["what"] != "by ranks"], "step", "value", by="name", theory="", panel="what",
        y_title="correlation with the start", x_scale="symlog", dodge=False, title="Mean logits and the hidden mean",
    )  # fmt: skip
    return Outcome(
        judged(found, lazy, end),
        {"kept": columns(rows)},
        {"kept": chart},
        [
            "Correlations are over classes (mean logits) and over units (hidden mean, before the head), averaged "
            "over fixed points; gradient descent at the bias mode's own rate, AdamW at 0.001.",
        ],
        {"kept": Holds("Guesses are absorbed, the hidden direction is not", entries=(0,))},
    )


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
    found = kernel_of(fg.Network.parse(_TEXT, classes=10), x.x.reshape(x.n, -1).astype(np.float64), width)
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


def of_images(x: Data, width: int, inits: int, seed: int, steps: int, rate: float, decay: float) -> Piece:
    """MLPs on all points at every step: gradient descent at a rate, AdamW without one."""
    import torch

    from firstguess_papers.library import build

    points = torch.from_numpy(np.array(x.x, dtype=np.float32)).flatten(1)
    labels = torch.from_numpy(np.array(x.y))
    net = fg.Network.parse(_TEXT, classes=10)

    def batches(member: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        while True:
            yield points, labels

    def make(member: int) -> nn.Sequential:
        return build(net, points.shape[1:], width=width, seed=seed, member=member)

    return trained(make, batches, points, inits, steps, rate, decay)


def of_texts(x: Data, width: int, words: int, inits: int, seed: int, steps: int, tied: bool, decay: float) -> Piece:
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

    return trained(make, batches, ids[:_BATCH, :-1], inits, steps, 0.0, decay)


def trained(
    make: Callable[[int], nn.Sequential],
    batches: Callable[[int], Iterator[tuple[torch.Tensor, torch.Tensor]]],
    shown: torch.Tensor,
    inits: int,
    steps: int,
    rate: float,
    decay: float,
) -> Piece:
    """Networks trained, and what is left of their starts on the points shown: a piece with the fields of `Kept`."""
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
    plain = [name for name in found if DECAYED not in name]
    decayed = [name for name in found if DECAYED in name]
    gone = [check(f"{n}, mean logits", found[n].at("logits", last), below=GONE) for n in plain]
    stays = [check(f"{n}, hidden direction", found[n].at("direction", last), above=STAYS) for n in plain]
    seeds = [check(f"{n}, another seed", found[n].at("other", last), near=0.0, room=OTHERS) for n in plain]
    ranks = "; ".join(f"Kendall's τ, {n}: {found[n].at('ranks', last)}" for n in found)
    theory = "the tangent kernel"
    lazily = [
        check("largest share", found[MLP].at("largest", EARLY), near=lazy["largest"], room=LAZY, than=theory),
        check("mean logits", found[MLP].at("logits", EARLY), near=lazy["logits"], room=ALIKE, than=theory),
        check("hidden direction", found[MLP].at("direction", EARLY), near=1.0, room=LAZY, than="its limit"),
    ]
    when = (end, last)
    falls = [math.exp(-step / end) for step in when]
    left = [
        check(
            n, [found[n].at("weights", s) for s in when], near=[Number(v) for v in falls], room=LEFT, than="exp(-tηw)"
        )
        for n in decayed
    ]
    ends = [check(n, found[n].at("direction", last), below=ENDED) for n in decayed]
    said = [f"{n}: logits {found[n].at('logits', last)}, direction {found[n].at('direction', last)}" for n in plain]
    return [
        claimed(
            "B10", f"correlations with the start at step {last}", [*gone, *stays, *seeds], also=ranks,
            headline="; ".join(said),
        ),
        claimed("B10", f"the lazy prediction for gradient descent at step {EARLY}", lazily),
        claimed("B10", f"weight decay w leaves of the start in the weights, at steps {end} and {last}", left),
        claimed("B10", f"weight decay w ends the hidden direction after 3/(ηw) = {last} steps: correlation", ends),
    ]  # fmt: skip
