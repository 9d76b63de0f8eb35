"""What a watch has seen: one network's guesses over its training, in numbers and in words."""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firstguess.base.gaussian import Array
from firstguess.base.record import Record, Shown
from firstguess.base.text import brief, page, percent, plain, spaced
from firstguess.theory.training import curves as follow
from firstguess.theory.training.curves import FAVOURED, OTHERS, Absorption, Accuracy, Curve, Curves, Followed
from firstguess.theory.training.runs import PredictedTraining
from firstguess.watch.evaluation import Look, reached

FIRST = 100  # steps of a watch in which looks are made whatever they cost: 20 of them
_ALL = 0.98  # share of the guesses for one class from which outputs count as collapsed
_LONG = 10  # steps that this has to last
_RISEN = 1.5  # times the starting loss: what a rate that is too high does to it


@dataclass(frozen=True)
class Cost:
    """What looking took, compared with the training itself."""

    looks: int
    seconds: float  # of all looks, with logging
    training: float  # seconds between looks
    steps: int  # that this time was for
    later: float = math.nan  # share of the training's time that looks took since the first steps
    predicting: float = 0.0  # seconds of the prediction, which is made when it is first asked for
    naming: float = 0.0  # seconds that it took to name a collapse; not among those of looks

    @property
    def share(self) -> float:
        """The share of the training's own time."""
        return self.seconds / self.training if self.training > 0 else math.nan

    def __str__(self) -> str:
        if not self.looks:
            return "nothing was looked at"
        words = f"{self.looks} look{'s' if self.looks > 1 else ''} of {brief(self.seconds / self.looks)}"
        asked = f"; the prediction took {brief(self.predicting)}" if self.predicting else ""
        asked += f"; naming the collapse took {brief(self.naming)}" if self.naming else ""
        if not self.steps or math.isnan(self.share):
            return words + asked
        part = f"{self.share:.0f} times" if self.share > 2 else f"{100 * self.share:.1f} % of"
        words = f"{part} the training's time ({words}; a step takes {brief(self.training / self.steps)}"
        since = "" if math.isnan(self.later) else f"; {100 * self.later:.1f} % since the first {FIRST} steps"
        return f"{words}{since}){asked}"


@dataclass(eq=False)
class LazyPrediction:
    """A prediction of the training that is made when it is first asked for; or why there is none."""

    make: Callable[[], tuple[PredictedTraining | None, str]] | None = None
    why: str = ""
    found: PredictedTraining | None = None
    seconds: float = 0.0

    def __call__(self) -> PredictedTraining | None:
        if self.make is not None:
            began, make, self.make = time.perf_counter(), self.make, None
            self.found, self.why = make()
            self.seconds = time.perf_counter() - began
        return self.found


@dataclass(frozen=True)
class Collapse:
    """Outputs that became one class for all points while training, and stay so.

    `name` is that of the fault that `fg.explain_guess` names first, and `why` its words; where it names none, "learning
    rate too high" if the loss rose above that of the start, else "outputs collapsed".
    """

    step: int
    label: int  # the class that all points are guessed as, at the last look
    name: str
    loss: tuple[float, float, int] | None = None  # at the start, the highest, and its step
    why: str = ""


class EarlyEvaluation(UserWarning):
    """A model was evaluated before the bias of its start was absorbed: scores by class favour the classes that the
    untrained network favoured (claim M12 of docs/claims.md)."""


EarlyEvaluation.__module__ = "firstguess"


@dataclass(frozen=True, eq=False, repr=False)
class WatchedTraining(Followed, Record, Shown):
    """One network's guesses over its training. Print it, or `save` it as a page.

    Curves have one network, `.draws[0]`. The favourite is the class with most guesses at the first look.
    """

    _also = (
        "finding", "steps", "favourite", "start_known", "shares", "recall", "gamma", "left", "direction",
        "direction_ranks", "absorbed_at", "relapses", "diverged", "collapse", "predicted", "unpredicted",
    )  # fmt: skip
    _apart = ("looks", "labels", "early", "names", "prediction", "named")

    looks: tuple[Look, ...]
    points: int  # guesses that are counted at each look: inputs, or tokens
    classes: int
    labels: NDArray[np.int64] | None  # of the points that have one
    level: float
    early: tuple[int, ...] = ()  # steps at which it was evaluated before absorption
    notes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    cost: Cost = field(default_factory=lambda: Cost(0, 0.0, 0.0, 0))
    prediction: LazyPrediction = field(default_factory=LazyPrediction)
    provenance: dict[str, Any] = field(default_factory=dict[str, Any])
    named: tuple[str, str] = ("", "")  # the fault that explains a collapse, and its words

    @property
    def steps(self) -> NDArray[np.int64]:
        """The steps that were looked at: updates done."""
        return np.array([look.step for look in self.looks], np.int64)

    @property
    def shares(self) -> Array:
        """(steps, classes): of the points, by guessed class; NaN where logits are not finite."""
        return np.array([look.shares for look in self.looks]).reshape(len(self.looks), self.classes)

    @property
    def recall(self) -> Array:
        """(steps, classes): the share of each class's points that are guessed rightly; NaN where there is none."""
        found = np.full((len(self.looks), self.classes), math.nan)
        if self.labels is not None:
            sizes = np.bincount(self.labels, minlength=self.classes)
            for i, look in enumerate(self.looks):
                if look.right is not None and not look.lost:
                    found[i, sizes > 0] = look.right[sizes > 0] / sizes[sizes > 0]
        return found

    @property
    def gamma(self) -> Array:
        """γ of this network's output at each look: center over spread, over points and classes (theory.md (2), (38)).

        An ensemble's γ is a ratio of averages over initializations, of which this network is one: `fg.measure` with
        one initialization gives this number.
        """
        return np.array([look.gamma for look in self.looks])

    @property
    def curves(self) -> Curves:  # pyright: ignore[reportIncompatibleVariableOverride] - made of looks, not kept
        """Largest share, accuracy and loss, as predicted and real training have them; NaN where labels are needed."""
        if self.labels is None:
            largest = Curve(self.steps, self.shares.max(axis=1)[None])
            none = np.full((1, len(self.looks)), math.nan)
            return Curves(largest, Accuracy(self.steps, none), Curve(self.steps, none))
        recorder = follow.CurveRecorder(self.steps, self.labels, self.classes, 1)
        for i, look in enumerate(self.looks):
            right = np.zeros(self.classes) if look.right is None else look.right.astype(np.float64)
            recorder.add(i, look.shares[None], right[None], np.array([look.loss]))
        return recorder.curves(np.array([self.favourite]))

    @property
    def start_known(self) -> bool:
        """Whether the first look was at step 0, before any update; not so where a training was resumed."""
        return bool(self.looks) and self.looks[0].step == 0

    @property
    def favourite(self) -> int:
        """The class with most guesses at the first look (the first of those that share it)."""
        first = next((look for look in self.looks if not look.lost), None)
        return 0 if first is None else int(np.argmax(first.shares))

    @property
    def due(self) -> float:
        """The share that the favourite has among the labels; without labels, an even one."""
        if self.labels is None:
            return 1.0 / self.classes
        return float(np.mean(self.labels == self.favourite))

    @property
    def left(self) -> Array:
        """The share of the starting bias that is left: (G_f(t) − p_f) / (G_f(0) − p_f).

        G_f is the share of guesses for the favourite of the start, p_f its share among the labels (1/classes without
        them): 1 at the start, 0 where it is guessed as often as it occurs, below 0 where it is guessed less often. NaN
        where the start is not known, or had hardly any bias (a largest share at `level` or below).
        """
        if not self.start_known or not self.looks[0].largest > self.level:
            return np.full(len(self.looks), math.nan)
        own = self.shares[:, self.favourite]
        return (own - self.due) / (own[0] - self.due)

    @property
    def direction(self) -> Array:
        """What is left of the hidden direction: correlation over units of the last hidden mean with the first look's.

        1 at the start; that of another seed is 0 ± 1/√units. Training absorbs the guesses by a small move of the head
        and leaves the direction, by which a seed stays detectable: theory.md (54). NaN without a hidden layer.
        """
        return self._directions(lambda a, b: float(np.corrcoef(a, b)[0, 1]))

    @property
    def direction_ranks(self) -> Array:
        """The same by ranks: Kendall's τ over units."""
        return self._directions(_kendall)

    def _directions(self, alike: Callable[[Array, Array], float]) -> Array:
        means = [look.hidden for look in self.looks]
        start = means[0] if means else None
        found = np.full(len(means), math.nan)
        if start is not None and len(start) > 1 and np.ptp(start) > 0.0:
            for i, mean in enumerate(means):
                if mean is not None and len(mean) == len(start) and np.isfinite(mean).all() and np.ptp(mean) > 0.0:
                    found[i] = alike(start, mean)
        return found

    def absorbed(self, level: float) -> Absorption:
        """The step at which the largest share has fallen to this level, linear between looks; inf: not yet.

        NaN where the watch began later than step 0, and found it there already.
        """
        kept = [look for look in self.looks if not look.lost]
        if not kept:
            return Absorption(level, np.array([math.inf]))
        if kept[0].largest <= level and kept[0].step > 0:
            return Absorption(level, np.array([math.nan]))
        steps = np.array([look.step for look in kept], np.int64)
        return follow.absorption(Curve(steps, np.array([[look.largest for look in kept]])), level)

    @property
    def absorbed_at(self) -> float:
        """`absorption` of this one network: a step, inf or NaN."""
        return float(self.absorption.draws[0])

    @property
    def diverged(self) -> int | None:
        """The first step with NaN or Inf among the logits."""
        return next((look.step for look in self.looks if look.lost), None)

    @property
    def predicted(self) -> PredictedTraining | None:
        """What theory expects; computed when it is first asked for."""
        return self.prediction()

    @property
    def full_cost(self) -> Cost:
        """`cost`, with the time of the prediction, where one was tried."""
        return replace(self.cost, predicting=self.prediction.seconds if self.predicted or self.unpredicted else 0.0)

    @property
    def unpredicted(self) -> str:
        """Why there is no prediction; empty where none was asked for."""
        self.prediction()
        return self.prediction.why

    @property
    def collapse(self) -> Collapse | None:
        """Where outputs became one class for all points, other than at the start; None where they did not.

        At least 98 % of the guesses for one class at all looks of the last ten steps or more; once they were, a loss
        far above that of the start counts as well, where outputs jump from class to class. A class with more than half
        of the labels does not count, nor does the favourite of the start that stays, unless the loss rose.
        """
        fine = [look for look in self.looks if not look.lost]
        if not fine:
            return None

        def one_class(look: Look) -> bool:
            return look.largest >= _ALL and int(np.argmax(look.shares)) != common

        common = -1
        if self.labels is not None:
            counts = np.bincount(self.labels, minlength=self.classes)
            common = int(counts.argmax()) if 2 * counts.max() > counts.sum() else -1
        tail = len(fine)
        while tail and one_class(fine[tail - 1]):
            tail -= 1
        loss = self._risen
        if tail == 0:
            moved = (i for i, look in enumerate(fine) if int(np.argmax(look.shares)) != self.favourite)
            rose = next((i for i, look in enumerate(fine) if loss and look.step == loss[2]), len(fine))
            tail = next(moved, rose)
        run = fine[tail:]
        if loss and not _long(run):
            thrown = len(fine)
            while thrown and fine[thrown - 1].loss > _RISEN * loss[0]:
                thrown -= 1
            run = fine[next((i for i in range(thrown, len(fine)) if one_class(fine[i])), len(fine)) :]
        if not _long(run):
            return None
        name, why = self.named
        name = name or ("learning rate too high" if loss else "outputs collapsed")
        return Collapse(run[0].step, int(np.argmax(run[-1].shares)), name, loss, why)

    @property
    def _risen(self) -> tuple[float, float, int] | None:
        """The loss of the start, the highest one and its step, where it rose as with a rate that is too high."""
        known = [look for look in self.looks if math.isfinite(look.loss)]
        top = max(known, key=lambda look: look.loss, default=None)
        return (known[0].loss, top.loss, top.step) if top and top.loss > _RISEN * known[0].loss else None

    @property
    def relapses(self) -> tuple[tuple[int, int], ...]:
        """First and last look of every time that the largest share was above `level` again after absorption.

        By more than two standard errors of a share of this many points.
        """
        limit = self.level + 2.0 * math.sqrt(self.level * (1.0 - self.level) / max(self.points, 1))
        found: list[tuple[int, int]] = []
        within = False
        for look in self.looks:
            above = look.step > self.absorbed_at and not look.lost and look.largest > limit
            if above:
                found = [*found[:-1], (found[-1][0], look.step)] if within else [*found, (look.step, look.step)]
            within = above
        return tuple(found)

    @property
    def difference(self) -> float:
        """The largest difference between predicted and seen largest share, over the steps that both have."""
        if self.predicted is None:
            return math.nan
        both, mine, its = np.intersect1d(self.steps, self.predicted.steps, return_indices=True)
        off = np.abs(self.largest.draws[0][mine] - self.predicted.largest.mean[its])
        return float(np.nanmax(off)) if len(both) and np.isfinite(off).any() else math.nan

    def _again(self) -> str:
        """What to say of relapses."""
        said = [spaced(a) if a == b else f"{spaced(a)}–{spaced(b)}" for a, b in self.relapses]
        if not said:
            return ""
        later = (look for look in self.looks if look.step > self.absorbed_at and not look.lost)
        top = max(later, key=lambda look: look.largest)
        who = self.name(int(np.argmax(top.shares)))
        listed = ", ".join(said[:3]) + (" and more" if len(said) > 3 else "")
        more = "step" if len(said) == 1 and "–" not in said[0] else "steps"
        return f", but a class had more again at {more} {listed} (up to {percent(top.largest)}, {who})"

    def name(self, c: int) -> str:
        """The name of a class."""
        return self.names[c] if c < len(self.names) else f"class {c}"

    @property
    def finding(self) -> str:
        """What became of the starting bias, in one sentence."""
        if not self.looks:
            return "nothing was looked at yet"
        if self.looks[0].lost:
            return f"at step {spaced(self.looks[0].step)}, the first look, logits are NaN or Inf already"
        broken = "" if self.diverged is None else f"; logits are NaN or Inf from step {spaced(self.diverged)} on"
        fine = [look for look in self.looks if not look.lost]
        first, last = fine[0], fine[-1]
        favoured = self.name(self.favourite)
        at, when = self.absorbed_at, spaced(last.step)
        if not self.start_known:
            since = f"watched from step {spaced(first.step)} on, so the starting bias is not known: the largest class"
            got = f"{since} got {percent(first.largest)} there"
            if math.isfinite(at):
                return f"{got} ({favoured}), and {percent(self.level)} at step {reached(at)}{broken}"
            still = "still " if math.isinf(at) else ""
            return f"{got}, and {still}gets {percent(last.largest)} at step {when}{broken}"
        start = f"{percent(first.largest)} of all guesses for {favoured}"
        if broken and self._risen is not None:
            low, high, when = self._risen
            return f"learning rate too high: the loss rose from {low:.2g} to {high:.3g} at step {spaced(when)}{broken}"
        if self.collapse is not None:
            return f"{collapsed(self, self.collapse)} (at the start {start}){broken}"
        again = self._again()
        if at == 0.0:
            why = f" ({self.named[0]})" if self.named[0] else ""
            return f"hardly any bias to absorb: {start} at the start{again}{why}{broken}"
        if math.isfinite(at):
            held = f"; until then outputs were one class: {self.named[0]}" if self.named[0] else ""
            return f"the starting bias, {start}, was absorbed at step {reached(at)}{again}{held}{broken}"
        if last is first:
            return f"the network starts with {start}{broken}"
        now = self.name(int(np.argmax(last.shares)))
        same = "" if now == favoured else f", now {now},"
        still = f"the largest class{same} still gets {percent(last.largest)}{broken}"
        return f"the starting bias, {start}, is not absorbed at step {when}: {still}"

    def summary(self) -> list[tuple[str, str]]:
        """Label and value of every headline number."""
        return summary(self)

    def __repr__(self) -> str:
        return f"WatchedTraining({len(self.looks)} looks, {self.points} points, {self.classes} classes: {self.finding})"

    def __str__(self) -> str:
        what = f"Watched training ({len(self.looks)} looks, {self.points} points, {self.classes} classes)"
        remarks = [f"note: {note}" for note in self.notes]
        return page(what, [("finding", self.finding), *self.summary()], remarks=remarks)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with NaN and inf as text."""
        cost = {**asdict(self.full_cost), "share": self.cost.share}
        return super().to_dict() | plain({**_of_one(self.curves), "early_evaluations": list(self.early), "cost": cost})

    def save(self, path: str | Path) -> Path:
        """Write it as one HTML file that opens offline; gives the path back."""
        return importlib.import_module("firstguess.watch.document").write(self, path)  # by name: it is made of these


def _of_one(curves: Curves) -> Mapping[str, Any]:
    """Curves of one network as plain lists."""
    groups = {str(which): values[0].tolist() for which, values in curves.accuracy.groups.items()}
    accuracy = {"all": curves.accuracy.draws[0].tolist(), **groups}
    return {"largest": curves.largest.draws[0].tolist(), "accuracy": accuracy, "loss": curves.loss.draws[0].tolist()}


def _kendall(a: Array, b: Array) -> float:
    """Kendall's τ_b: over pairs, how often both are in the same order minus how often they are not."""
    first, second = (np.sign(one[:, None] - one) for one in (a, b))
    return float(np.sum(first * second) / math.sqrt(np.abs(first).sum() * np.abs(second).sum()))


def _long(run: Sequence[Look]) -> bool:
    return len(run) >= 3 and run[-1].step - run[0].step >= _LONG


def collapsed(w: WatchedTraining, c: Collapse) -> str:
    """What happened, in one clause: the name, the step and the class."""
    run = [look for look in w.looks if not look.lost and look.step >= c.step]
    now = f"{w.name(c.label)} gets {percent(run[-1].largest)} of all guesses"
    if len({int(np.argmax(look.shares)) for look in run}) > 1:
        now = f"one class after another gets most guesses: at step {spaced(run[-1].step)} {now}"
    since = f"from step {spaced(c.step)} on {now}"
    if c.loss is not None:
        start, top, when = c.loss
        since = f"the loss rose from {start:.2g} to {top:.3g} at step {spaced(when)}, and {since}"
    return f"{c.name}: {since}{f'; {c.why}' if c.why else ''}"


def thinned(looks: Sequence[Look], most: int) -> list[int]:
    """Indices of at most `most` looks, about evenly over the logarithm of steps, both ends included."""
    if len(looks) <= most:
        return list(range(len(looks)))
    place = np.log1p([look.step for look in looks])
    wanted = np.linspace(place[0], place[-1], most)
    return np.unique([int(np.abs(place - at).argmin()) for at in wanted]).tolist()


# In sentences.

_FEW = 3  # early evaluations that are listed


def summary(w: WatchedTraining) -> list[tuple[str, str]]:
    """Label and value of every headline number."""
    fine = [look for look in w.looks if not look.lost]
    if not fine:
        return [("cost", str(w.cost))]
    first, last = fine[0], fine[-1]
    where = "at the start" if first.step == 0 else f"at step {spaced(first.step)}"
    end = f"at step {spaced(last.step)}"
    top = w.name(int(np.argmax(last.shares)))
    largest = f"{percent(first.largest)} {where} ({w.name(w.favourite)}), {percent(last.largest)} {end} ({top})"
    if w.labels is not None:
        largest += f"; of the labels {percent(float(np.bincount(w.labels).max() / len(w.labels)))}"
    rows = [("largest share", largest), ("absorbed", _absorbed(w))]
    if math.isfinite(w.left[-1]):
        rows.append(("starting bias that is left", f"{percent(w.left[-1])} {end} (guesses for {w.name(w.favourite)})"))
    direction, ranks = w.direction, w.direction_ranks
    if math.isfinite(direction[-1]) and (hidden := w.looks[0].hidden) is not None:
        left = f"correlation {direction[-1]:.2f}, Kendall's τ {ranks[-1]:.2f} {end}"
        n = len(hidden)  # of both by chance, as units of another seed are exchangeable
        chance = f"0 ± {(n - 1) ** -0.5:.2g} and 0 ± {math.sqrt((4 * n + 10) / (9 * n * (n - 1))):.2g}"
        rows.append(("hidden direction that is left", f"{left} (another seed: {chance})"))
    if w.labels is not None:
        groups = [(name, w.accuracy[which].draws[0]) for name, which in (("favoured", FAVOURED), ("others", OTHERS))]
        said = [f"{name} {_ends(values, '.2f')}" for name, values in groups if np.isfinite(values).any()]
        if said:
            rows.append(("recall by class", ", ".join(said)))
        rows.append(("accuracy", _ends(w.accuracy.draws[0], ".2f")))
    if np.isfinite(w.gamma).any():
        rows.append(("γ of this network's output", _ends(w.gamma, ".3g")))
    if w.early:
        rows.append(("evaluated before absorption", early(w)))
    if w.predicted is not None or w.unpredicted:
        rows.append(("predicted", predicted(w)))
    rows.append(("cost", str(w.full_cost)))
    return rows


def early(w: WatchedTraining) -> str:
    """Where it was evaluated too early, and what that means."""
    steps = [spaced(step) for step in w.early]
    listed = ", ".join(steps[:_FEW]) + (f" and {len(steps) - _FEW} more" if len(steps) > _FEW else "")
    at = {look.step: look for look in w.looks if not look.lost}
    leaders = dict.fromkeys(int(np.argmax(at[step].shares)) for step in w.early if step in at)
    return f"at step{'s' if len(steps) > 1 else ''} {listed}: scores by class there favour {_named(w, leaders)}"


def _named(w: WatchedTraining, classes: Iterable[int]) -> str:
    """Classes by name, the favourite of the start told apart."""
    first = f"the favourite of the {'start' if w.start_known else 'first look'}"
    return " and ".join(w.name(c) + (f", {first}" if c == w.favourite else "") for c in classes)


def predicted(w: WatchedTraining) -> str:
    """LazyPrediction next to what was seen, or why there is none."""
    t = w.predicted
    if t is None:
        return f"not: {w.unpredicted}"
    at = t.absorption.median
    last = spaced(float(t.steps[-1]))
    when = f"absorbed at step {reached(at)}" if math.isfinite(at) else f"not absorbed within {last} steps"
    words = f"{when}; largest share off by at most {w.difference:.2f} up to step {last}"
    return words if t.trust is None else f"{words}; trust, for averages over networks: {t.trust}"


def warning(w: WatchedTraining, step: int) -> str:
    """The warning of an evaluation before absorption."""
    now = next(look for look in reversed(w.looks) if not look.lost)
    even = "" if w.labels is not None else "; no labels were given, so classes are taken for even"
    again = math.isfinite(w.absorbed_at)
    when = "while one class leads again after absorption" if again else "before the bias of the start is absorbed"
    leader = int(np.argmax(now.shares))
    past = f" (at the {'start' if w.start_known else 'first look'} {w.name(w.favourite)} did)"
    past = "" if leader == w.favourite else past
    gets = f"{w.name(leader)} gets {percent(now.largest)} of the guesses (absorbed is {percent(w.level)} or less{even})"
    favour = f"Scores by class now favour {_named(w, [leader])}: evaluate again later"
    return f"evaluated at step {spaced(step)}, {when}: {gets}{past}. {favour}"


def _absorbed(w: WatchedTraining) -> str:
    at, level = w.absorbed_at, f"a largest share of {percent(w.level)}"
    if math.isnan(at):
        return f"not known: {level} or less at the first look already"
    if math.isinf(at):
        return f"not yet: {level} was not reached"
    if at == 0.0:
        return f"at the start: {level} or less there already"
    again = ", ".join(f"{spaced(a)} to {spaced(b)}" if b > a else spaced(a) for a, b in w.relapses)
    return f"at step {reached(at)} ({level})" + (f"; above it again at steps {again}" if again else "")


def _ends(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]], form: str) -> str:
    fine = values[np.isfinite(values)]
    return f"{fine[0]:{form}} → {fine[-1]:{form}}" if len(fine) else "unknown"
