"""MF: the first steps of training. Whom an early look favours, unequal gradients, the search for a rate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from firstguess import FirstguessError, Network
from firstguess.data import Data
from firstguess_papers import library
from firstguess_papers.charts import Line, arms_chart, lines
from firstguess_papers.items import Entry, Item
from firstguess_papers.judging import UNKNOWN, Array, Number, check, claimed, jackknife
from firstguess_papers.library import Curve, looked_at
from firstguess_papers.measured import Found
from firstguess_papers.mf import limits, text_of
from firstguess_papers.mf_training import BATCH, EDGE, PHASES
from firstguess_papers.running import Run
from firstguess_papers.training_pieces import (
    MEMBERS,
    SAME_SCORE,
    Arm,
    chosen,
    exceeds,
    first,
    log_steps,
    number,
    part_of,
    predicted,
    scores,
    starts,
    trained,
    with_held_out,
)

_BATCH = 100
_EARLY = 0.25  # of the absorption time
_ROOM = math.log10(3.0)  # a time within a factor of three of another is the same
_ARMS = {  # setting, rate in units of the overshoot
    "ReLU, edge": ("ReLU, edge", 0.1),
    "ReLU, edge, a quarter of the rate": ("ReLU, edge", 0.025),
    "tanh, edge": ("tanh, edge", 0.1),
    "tanh, ordered": ("tanh, ordered", 0.1),
}


@dataclass(frozen=True, eq=False)
class Ranks:
    """Of one arm: rank correlation of classes' scores with initial shares (networks, looks), and absorption times."""

    label: str
    steps: Array
    draws: Array
    absorbed: Array  # steps; inf: not within these
    known: Array | None = None  # the same correlation of the prediction from the same starts

    @property
    def absorption(self) -> float:
        """The typical time: the mean over networks on a logarithmic scale."""
        return 10 ** float(log_steps(self.absorbed, int(self.steps[-1])).mean()) - 1

    def early(self) -> Number:
        """The correlation at the look nearest to a quarter of the absorption time, from step 1 on."""
        wanted = max(1.0, _EARLY * self.absorption)
        index = int(np.abs(np.log1p(self.steps) - math.log1p(wanted)).argmin())
        values = self.draws[:, max(index, 1)]
        return number(values[np.isfinite(values)])

    def halved(self) -> Number:
        """log10 of the time at which the mean correlation is half of the first, by the absorption time.

        The error is from leaving out one network at a time; NaN where a time is not reached (the absorption time by
        more than a quarter of the networks).
        """
        if len(self.draws) < MEMBERS or not np.isfinite(self.absorbed).mean() >= 0.75:
            return UNKNOWN
        return jackknife(self._ratio, self.draws, self.absorbed)

    def _ratio(self, draws: Array, absorbed: Array) -> float:
        mean = np.nanmean(draws, axis=0)
        half = first(-mean, self.steps, -0.5 * float(mean[0]))
        if math.isinf(half):
            return math.nan
        return math.log10(1 + half) - float(log_steps(absorbed, int(self.steps[-1])).mean())


def rank_correlation(scores: Array, shares: Array) -> Array:
    """Spearman's, over the last axis; NaN where one side is constant.

    >>> rank_correlation(np.array([[0.1, 0.5, 0.9]]), np.array([[0.2, 0.3, 0.4]])).tolist()
    [1.0]
    """
    from scipy import stats

    a, b = (stats.rankdata(side, axis=-1) for side in (scores, shares))
    a, b = (side - side.mean(axis=-1, keepdims=True) for side in (a, b))
    size = np.sqrt((a**2).sum(axis=-1) * (b**2).sum(axis=-1))
    return np.where(size > 0, (a * b).sum(axis=-1) / np.where(size > 0, size, 1.0), math.nan)


def by_step(arm: Arm, shares: Array) -> Array:
    """(networks, looks): correlation of the classes' held-out scores with shares (networks, classes)."""
    scores = np.stack([arm.draws[f"test class {c}"] for c in arm.classes], axis=-1)
    broken = ~np.isfinite(scores).all(axis=-1)
    found = rank_correlation(np.nan_to_num(scores), np.broadcast_to(shares[:, None, arm.classes], scores.shape))
    return np.where(broken, math.nan, found)


def _ranks(
    run: Run, label: str, name: str, times: float, x: Data, held: Data, *, depth: int, inits: int,
    options: dict[str, Any],
) -> Ranks:  # fmt: skip
    text = text_of(name, depth)
    rate = times * limits(run, text, x, options["width"], name)[0]
    arm = trained(run, text, x, label=label, test=held, inits=inits, lr=rate, **options)
    network, both = Network.parse(text, classes=int(x.classes or 2)), np.concatenate([x.x, held.x])
    own = starts(run, network, both, options["width"], range(inits), label=name, seed=run.seed)
    known = predicted(run, text, x, label=label, test=held, lr=rate, start=own, **options)
    shares = arm.shares[:, 0]
    return Ranks(
        label, arm.steps.astype(float), by_step(arm, shares), arm.reached("largest", arm.level), by_step(known, shares)
    )


def judged_ranks(ranks: list[Ranks]) -> Entry:
    """M12."""
    early = {r.label: r.early() for r in ranks}
    return claimed(
        "M12", "rank correlation of the classes' held-out scores with the shares of guesses before training",
        [check(f"{name}, at a quarter of the absorption time", value, above=0.3) for name, value in early.items()],
        within=[check(f"{r.label}, log10 of the time at which it is half of its first value over the absorption time",
                      r.halved(), near=0.0, room=_ROOM, than="within a factor of three of 1") for r in ranks],
        limit="the preference does not end when the bias does",
        headline="; ".join(f"{label}: {value}" for label, value in list(early.items())[::2]),
        also="absorption times in steps: " + ", ".join(f"{r.absorption:.0f} ({r.label})" for r in ranks),
    )  # fmt: skip


def _rank_rows(ranks: list[Ranks]) -> list[dict[str, Any]]:
    return [
        {"arm": r.label, "source": source, "step": int(s), "correlation": float(m), "error": float(e)}
        | {"absorption": r.absorption, "networks": len(draws)}
        for r in ranks
        for source, draws in (("trained", r.draws), ("predicted", r.known))
        if draws is not None
        for curve in [Curve(r.steps.astype(np.int64), draws)]
        for s, m, e in zip(curve.steps, curve.mean, curve.se, strict=True)
    ]


def _rank_chart(ranks: list[Ranks]) -> library.Chart:
    """Trained networks and their predictions; at 1 the bias is absorbed."""
    lines_of = _rank_rows(ranks)
    known = {(row["arm"], row["step"]): row["correlation"] for row in lines_of if row["source"] == "predicted"}
    rows = [
        {"name": "networks", "panel": f"{row['arm']}: absorbed in {row['absorption']:.0f} steps"}
        | {"at": row["step"] / row["absorption"], "value": Number(row["correlation"], row["error"])}
        | {"theory": known.get((row["arm"], row["step"]))}
        for row in lines_of
        if row["source"] == "trained" and row["step"] > 0
    ]
    return lines(
        rows, "at", panel="panel", title="Early scores of classes against the untrained network's guesses",
        x_title="Steps, in units of the absorption time (logarithmic)", y_title="Rank correlation", x_scale="log",
        columns=2, height=240, rules={"no relation": 0.0}, dodge=False,
    )  # fmt: skip


def _first_ranks(c: Found) -> dict[str, Any]:
    x, held = with_held_out(c.run, "fashion_mnist", c.points, c.points)
    options: dict[str, Any] = {"width": c.width, "steps": c.steps, "optimizer": "sgd", "batch": _BATCH}
    return {"ranks": [
        _ranks(c.run, label, name, times, x, held, depth=c.depth, inits=c.inits, options=options)
        for label, (name, times) in _ARMS.items()
    ]}  # fmt: skip


first_steps = Item(
    "mf/first-steps", "The first steps: whom an early look favours", "MF, discussion", claims=("M12",),
    needs=("fashion_mnist",),
    about="Fashion-MNIST, ten classes, {points} images and as many held-out ones, mini-batches of 100; ReLU (two "
    "rates) and tanh at the edge, tanh ordered, {depth} hidden layers of {width}, {steps} steps, {inits} networks "
    "each. Sizes and rates (0.1 and 0.025 of the overshoot) are ours.",
    quick=dict(depth=5, width=50, steps=80, inits=10, points=150),
    full=dict(depth=10, width=100, steps=400, inits=24, points=300),
    seconds=(15, 120), quantities=_first_ranks, judge=lambda c: [judged_ranks(c.ranks)],
    tables=lambda c: {"ranks": _rank_rows(c.ranks)},
    charts=lambda c: {"ranks": _rank_chart(c.ranks)},
    holds={"ranks": "An early look ranks classes as the untrained network did"},
    notes=[
        "A class's score is its accuracy on held-out images; ties share ranks, and networks whose scores are all alike "
        "have no rank correlation at that step.",
        "Absorbed: the largest share is a fifth of the way from even to 1; the typical time is the mean over networks "
        "on a logarithmic scale, those not absorbed within these steps counting with the last.",
    ],
)  # fmt: skip


_TIE = -0.3  # a rank correlation stronger than this: a tenth of the differences in speed
_CHUNK = 60  # networks a piece
_RATE = 0.2  # of the overshoot


@dataclass(frozen=True, eq=False)
class Pulls:
    """Of one arm: norms of classes' gradients (networks, looks, classes), shares, accuracies; those made equal."""

    steps: Any
    norms: Array
    shares: Array
    right: Array
    evened: Array  # accuracies of the first networks, with gradients of equal length
    known: Array  # accuracies predicted from the same starts

    @property
    def imbalance(self) -> Array:
        """|ln| of the ratio of the two classes' gradients at the start, of every network."""
        return np.abs(np.log(self.norms[:, 0, 0] / self.norms[:, 0, 1]))

    @property
    def speed(self) -> Array:
        """Accuracy on training points, averaged over looks from step 1 on."""
        return self.right[:, self.steps >= 1].mean(axis=1)

    def tie(self) -> Number:
        """Rank correlation, over networks, of imbalance and speed."""
        n = len(self.right)
        value = float(rank_correlation(self.imbalance, self.speed))
        return Number(value, 1 / math.sqrt(n - 3) if n >= MEMBERS else math.nan)

    def third(self, unequal: bool) -> Any:
        """Which networks are in the third with the most, or least, unequal gradients."""
        cut = np.quantile(self.imbalance, 2 / 3 if unequal else 1 / 3)
        return self.imbalance >= cut if unequal else self.imbalance <= cut


def _pulls(run: Run, name: str, x: Data, *, depth: int, width: int, steps: int, many: int, few: int) -> Pulls:
    from firstguess_papers.models import EQUAL, PLAIN, follow

    text, looks = text_of(name, depth), looked_at(steps)
    rate = _RATE * limits(run, text, x, width, name)[0]
    given: dict[str, Any] = {"network": text, "x": x.x, "y": x.y, "width": width, "lr": rate, "looks": looks.tolist()}

    def part(how: str, members: range) -> Mapping[str, Any]:
        label = f"gradients of {name}, {how}, {members.start + 1} to {members.stop}"
        return run.keep(follow, label=label, how=how, members=members, seed=run.seed, **given)

    found = [part(PLAIN, range(a, min(a + _CHUNK, many))) for a in range(0, many, _CHUNK)]
    norms, shares, right = (np.concatenate([p[k] for p in found]) for k in ("norms", "shares", "right"))
    evened = part(EQUAL, range(few))["right"]
    own = starts(run, Network.parse(text, classes=2), x.x, width, range(many), label=name, seed=run.seed)
    known = predicted(
        run, text, x, label=f"{name}, two classes", lr=rate, steps=steps, width=width, optimizer="gd", start=own
    ).draws["accuracy"]
    return Pulls(looks, norms, shares, right, evened, known)


def judged_pulls(pulls: dict[str, Pulls]) -> Entry:
    """M15, its first half; the second is mf/lr-search."""
    return claimed(
        "M15", "“unequal gradients of classes slow learning”: over networks at the edge",
        [check(f"{name}, rank correlation of imbalance at the start and speed of learning", p.tie(), below=_TIE)
         for name, p in pulls.items()],
        within=[exceeds(f"{name}, speed with gradients of equal length", p.evened[:, p.steps >= 1].mean(axis=1),
                        p.speed[: len(p.evened)], room=SAME_SCORE, than="the same networks' own")
                for name, p in pulls.items()],
        limit="networks with unequal gradients are slower, but equal lengths do not make them faster",
        headline="; ".join(f"{name}: rank correlation {p.tie()}" for name, p in pulls.items()),
        otherwise="imbalance at the start explains little of the speed, or the opposite",
        also="typical imbalance × " + ", ".join(f"{math.exp(float(np.median(p.imbalance))):.2f} ({name})"
                                                for name, p in pulls.items()),
    )  # fmt: skip


def _ticks(lines: list[Line]) -> tuple[float, float]:
    """Half decades around all curves: axes begin and end with a tick."""
    means = np.concatenate([line.trained.mean for line in lines if line.trained is not None])
    return math.floor(2 * float(np.nanmin(means)) - 0.2) / 2, math.ceil(2 * float(np.nanmax(means)) + 0.2) / 2


def _pull_chart(pulls: dict[str, Pulls]) -> library.Chart:
    panels: dict[str, list[Line]] = {}
    plain: list[str] = []
    for name, p in pulls.items():
        favoured = p.shares[:, 0].argmax(axis=1)
        each = np.arange(len(favoured))
        heading = f"{name}: log10 of gradient's norm"
        plain.append(heading)
        panels[heading] = [
            Line(words, Curve(p.steps, np.log10(p.norms[each, :, which])))
            for words, which in (("class favoured at the start", favoured), ("other class", 1 - favoured))
        ]
        panels[f"{name}: accuracy, training"] = [
            Line(words, Curve(p.steps, p.right[p.third(unequal)]), Curve(p.steps, p.known[p.third(unequal)]))
            for words, unequal in (("third with the most equal gradients", False), ("with the least equal", True))
        ]
    return arms_chart(
        panels,
        title="Gradients of classes in the first steps, and the speed of learning",
        columns=2,
        plain=plain,
        y_domains={h: _ticks(lines) if h in plain else (0.4, 1.0) for h, lines in panels.items()},
        width=430,
    )


def _class_pulls(c: Found) -> dict[str, Any]:
    x = chosen(c.run.data("fashion_mnist:parity", points=3 * c.points), (c.points // 2,) * 2)
    sizes: dict[str, Any] = {"depth": c.depth, "width": c.width, "steps": c.steps}
    sizes |= {"many": c.parts * c.many, "few": c.parts * c.few}
    return {"pulls": {name: _pulls(c.run, name, x, **sizes) for name in ("ReLU, edge", "tanh, edge")}}


class_gradients = Item(
    "mf/class-gradients", "The first steps: unequal gradients of classes", "MF §4", claims=("M15",),
    needs=("fashion_mnist",),
    about="Fashion-MNIST by parity, {points} images, as many of each class, full batches; ReLU and tanh at the edge, "
    "{depth} hidden layers of {width}, {steps} steps, {parts} × {many} networks each, of {parts} × {few} with "
    "gradients made equal, too. Sizes "
    "and the rate (0.2 of the overshoot) are ours.",
    quick=dict(depth=5, width=40, steps=20, many=40, few=10, points=80, parts=1),
    full=dict(depth=10, width=80, steps=50, many=240, few=24, points=150, parts=1),
    seconds=(15, 150), quantities=_class_pulls, judge=lambda c: [judged_pulls(c.pulls)],
    tables=lambda c: {"gradients": [
        {"arm": name, "network": i, "imbalance": float(a), "speed": float(b)}
        for name, p in c.pulls.items() for i, (a, b) in enumerate(zip(p.imbalance, p.speed, strict=True))
    ]},
    charts=lambda c: {"gradients": _pull_chart(c.pulls)},
    holds={"gradients": "Networks whose classes pull unequally at the start learn more slowly"},
    notes=[
        "Gradients: norms over all weights of the gradient of the mean loss on one class. Made equal: every class's "
        "gradient is given the same length, and the step the length that it had.",
    ],
)  # fmt: skip


TIMES = (1 / 64, 1 / 16, 1 / 4, 1.0, 4.0, 16.0)  # rates, in units of the edge's overshoot
NEAR = 0.05  # held-out accuracy this far from the best is good enough
SAME_COUNT = 0.25  # of a rate: less is no difference
_PICKED = 0.1  # of all steps: where a rate is picked
_DRAWS = 20


@dataclass(frozen=True, eq=False)
class Search:
    """Of one phase: training accuracy at the early look and held-out accuracy at the end, (networks, rates)."""

    early: Array
    end: Array
    rates: tuple[float, ...]
    known: tuple[Number | None, ...] = (None,) * len(TIMES)  # held-out accuracy predicted at each rate

    def good(self, best: float) -> Array:
        """How many rates end within 0.05 of the best, of every network."""
        return (self.end >= best - NEAR).sum(axis=1).astype(float)

    def regret(self) -> Array:
        """What each network loses at the end by the rate that is best on training points at the early look.

        Of rates that are equally good then, the average.
        """
        tops = self.early >= self.early.max(axis=1, keepdims=True)
        picked = (self.end * tops).sum(axis=1) / tops.sum(axis=1)
        return self.end.max(axis=1) - picked


def _searches(
    run: Run, phi: str, x: Data, held: Data, *, depth: int, width: int, steps: int, parts: int
) -> dict[str, Search]:
    texts = {phase: text_of(name, depth) for phase, name in PHASES[phi].items()}
    batch = part_of(x, np.arange(min(BATCH, x.n)))
    unit = limits(run, texts[EDGE], batch, width, f"{phi}, edge")[0]
    early = max(1, round(_PICKED * steps))
    found: dict[str, Search] = {}
    for phase, text in texts.items():
        arms: list[Arm] = []
        known: list[Number | None] = []
        for times in TIMES:
            options: dict[str, Any] = {
                "test": held, "lr": times * unit, "steps": [0, early, steps], "optimizer": "sgd", "batch": BATCH,
                "width": width,
            }  # fmt: skip
            label = f"{phi}, {phase}, {times:g} × overshoot"
            arms.append(trained(run, text, x, label=label, inits=10, parts=parts, **options))
            try:
                guess = predicted(run, text, x, label=label, draws=_DRAWS, trust=False, **options)
                known.append(number(scores(guess, "test accuracy")))
            except FirstguessError:
                known.append(None)  # beyond the rates that have a prediction
        first = np.stack([scores(arm, "accuracy", early) for arm in arms], axis=1)
        last = np.stack([scores(arm, "test accuracy") for arm in arms], axis=1)
        found[phase] = Search(first, last, tuple(times * unit for times in TIMES), tuple(known))
    return found


def best_of(searches: dict[str, Search]) -> float:
    """The best mean accuracy on held-out points, of all phases and rates of an activation."""
    return max(float(s.end.mean(axis=0).max()) for s in searches.values())


def judged_search(found: dict[str, dict[str, Search]]) -> Entry:
    """M15, its second half."""
    best = {phi: best_of(by) for phi, by in found.items()}
    others = [(phi, by[EDGE], phase, s) for phi, by in found.items() for phase, s in by.items() if phase != EDGE]
    return claimed(
        "M15", "“tuning at the edge shortens the search”, as far as six rates say: at the edge",
        [exceeds(f"{phi}, rates that end within {NEAR} of the best accuracy", edge.good(best[phi]), s.good(best[phi]),
                 room=SAME_COUNT, than=f"{phase}'s") for phi, edge, phase, s in others],
        within=[exceeds(f"{phi}, cost of picking a rate after a tenth of the steps", edge.regret(), s.regret(),
                        room=SAME_SCORE, than=f"{phase}'s", below=True) for phi, edge, phase, s in others],
        limit="more rates are good at the edge, but an early choice among them is not cheaper than elsewhere",
        headline="; ".join(
            f"{phi}: " + ", ".join(f"{phase} {number(s.good(best[phi]))}" for phase, s in by.items()) + " rates"
            for phi, by in found.items()
        ),
        otherwise="another phase has as many good rates, or more",
        also="best accuracy: " + ", ".join(f"{phi} {value:.3f}" for phi, value in best.items()),
    )  # fmt: skip


def _rows(phi: str, searches: dict[str, Search]) -> list[dict[str, Any]]:
    return [
        {"activation": phi, "phase": phase, "times_overshoot": times, "rate": rate}
        | {"test_accuracy": end.value, "test_error": end.error, "early_accuracy": early.value}
        | {"early_error": early.error, "predicted": None if known is None else known.value}
        for phase, s in searches.items()
        for k, (times, rate, known) in enumerate(zip(TIMES, s.rates, s.known, strict=True))
        for end, early in [(number(s.end[:, k]), number(s.early[:, k]))]
    ]


def _all_searches(c: Found) -> dict[str, Any]:
    x, held = with_held_out(c.run, "fashion_mnist:parity", c.points, c.points)
    sizes: dict[str, int] = {"depth": c.depth, "width": c.width, "steps": c.steps, "parts": c.parts}
    found = {phi: _searches(c.run, phi, x, held, **sizes) for phi in PHASES}
    return {"found": found, "rows": [line for phi, by in found.items() for line in _rows(phi, by)]}


lr_search = Item(
    "mf/lr-search", "Searching a learning rate, phase by phase", "MF §4, practical trick", claims=("M15",),
    needs=("fashion_mnist",),
    about="Fashion-MNIST by parity, {points} images and as many held-out ones, mini-batches of 100; MF's seven "
    "settings, {depth} hidden layers of {width} (MF: 100 of 1000), {steps} steps, six rates from 1/64 to 16 times the "
    "edge's overshoot, {parts} × 10 networks each; a rate is picked after a tenth of the steps.",
    quick=dict(depth=12, width=30, steps=30, points=150, parts=1),
    full=dict(depth=20, width=100, steps=100, points=300, parts=1),
    seconds=(25, 240), quantities=_all_searches, judge=lambda c: [judged_search(c.found)],
    tables=lambda c: {"rates": c.rows},
    charts=lambda c: {"rates": lines(
        [row | {"error": row["test_error"]} for row in c.rows], "times_overshoot", "test_accuracy", by="phase",
        panel="activation", theory="predicted", title="Which learning rates work, phase by phase",
        x_title="Learning rate, by the rate at which the edge's bias overshoots (logarithmic)",
        y_title="Held-out accuracy", x_scale="log", percent=True, width=440, y_domain=(0.4, 1.0),
    )},
    holds={"rates": "At the edge of chaos the most learning rates work"},
    notes=[
        "One network has one set of weights at all rates and, up to scale, in all phases: differences are taken "
        "network by network. Networks that diverged count with an accuracy of one half.",
        "A search of six rates by factors of four; what more could be tuned (momentum, schedule, depth) is not tested.",
    ],
)  # fmt: skip
