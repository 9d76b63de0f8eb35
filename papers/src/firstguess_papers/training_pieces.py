"""Real and predicted training as resumable pieces, numbers with errors of their curves, the bias mode of a model.

`trained` and `predicted` both give an `Arm`: curves of every network over the steps that were looked at, in the words
of `fg.train` and `fg.predict_training`. Errors are over networks; fewer trained ones than `MEMBERS` decide nothing. In
comparisons of speed a network that diverged (NaN or Inf) counts as one that guesses a single class for ever: otherwise
an arm that breaks would look better, or undecided, for having lost its worst.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

import firstguess as fg
from firstguess import InvalidInput
from firstguess.data import Data
from firstguess_papers import library
from firstguess_papers.judging import Array, Check, Number, Truth, above, average
from firstguess_papers.library import BIASED, Curve, Curves, Piece
from firstguess_papers.running import Run

MEMBERS = 10  # fewer trained networks in an arm decide nothing
SEEDS = 1000  # between parts of an arm: each is an ensemble of its own
_FALLING = ("largest", "loss", "gap")  # curves whose thresholds are reached from above


@dataclass(frozen=True, eq=False)
class Arm:
    """One setting, trained or predicted: curves by name, a row for every network; NaN: diverged, or not looked at.

    "largest" (share of the largest class), "accuracy" (all points), "favoured", "others" (classes by the start), "class
    0", …, "loss"; "gap" (favoured − others, network by network) and "worst" (the lowest accuracy of a class) follow
    from these; "test largest", … are those of held-out points; "gradients" the norm of the gradient (trained only).
    """

    label: str
    steps: NDArray[np.int64]
    draws: Mapping[str, Array]  # (networks, steps) by the name of the curve
    level: float = math.nan  # of the largest share: at it bias counts as absorbed
    real: bool = True  # trained, not predicted
    shares: Array = field(default_factory=lambda: np.zeros((0, 0, 0)))  # (networks, steps, classes); none if predicted
    diverged: tuple[tuple[int, int], ...] = ()  # (row of the network, step)
    drawn: int = 0  # starts that were looked at, of which the networks were kept
    about: Mapping[str, Any] = field(default_factory=dict[str, Any])  # prediction: trust, overshoot, lr_limit, floor, …

    @property
    def networks(self) -> int:
        """How many."""
        return len(next(iter(self.draws.values())))

    @property
    def classes(self) -> list[int]:
        """Those that have points."""
        return [int(name.removeprefix("class ")) for name in self.draws if name.startswith("class ")]

    @property
    def tested(self) -> bool:
        """Whether held-out points were looked at."""
        return "test loss" in self.draws

    def curve(self, what: str) -> Curve:
        """A curve by its name."""
        held, name = "test " * what.startswith("test "), what.removeprefix("test ")
        if name in ("gap", "worst") and f"{held}accuracy" in self.draws:
            if name == "gap":
                return Curve(self.steps, self.draws[f"{held}favoured"] - self.draws[f"{held}others"])
            return Curve(self.steps, np.min([self.draws[f"{held}class {c}"] for c in self.classes], axis=0))
        if what not in self.draws:
            raise InvalidInput(f"a curve of {self.label}: {', '.join(self.draws)}", got=what, where="curve")
        return Curve(self.steps, self.draws[what])

    def values(self, what: str, step: int) -> Array:
        """Of every network at a step that was looked at."""
        found = np.flatnonzero(self.steps == step)
        if not len(found):
            raise InvalidInput("a step that was looked at", got=step, where=f"{self.label}: {self.steps.tolist()}")
        return self.curve(what).draws[:, int(found[0])]

    def at(self, what: str, step: int) -> Number:
        """Mean ± standard error over networks, at a step that was looked at."""
        return self.number(self.values(what, step))

    def first_look(self, what: str, threshold: float) -> int | None:
        """The first step looked at where the mean over networks is at the threshold or above; None: nowhere."""
        there = np.flatnonzero(self.curve(what).mean >= threshold)
        return int(self.steps[there[0]]) if len(there) else None

    def kept(self, mask: NDArray[np.bool_]) -> Arm:
        """The networks of a mask only."""
        rows = {int(old): new for new, old in enumerate(np.flatnonzero(mask))}
        return replace(
            self,
            draws={name: draws[mask] for name, draws in self.draws.items()},
            shares=self.shares[mask] if len(self.shares) else self.shares,
            diverged=tuple((rows[row], step) for row, step in self.diverged if row in rows),
        )

    def near(self, step: float) -> int:
        """The step that was looked at and is nearest on a logarithmic scale."""
        return int(self.steps[np.abs(np.log1p(self.steps) - math.log1p(step)).argmin()])

    @property
    def last(self) -> int:
        """The last step."""
        return int(self.steps[-1])

    def number(self, values: Array) -> Number:
        """Mean ± standard error of one value a network; with too few networks the error is unknown (NaN)."""
        fine = values[np.isfinite(values)]
        if len(fine) < 2 or (self.real and len(fine) < MEMBERS):
            return Number(float(fine.mean()) if len(fine) else math.nan, math.nan)
        return average(fine)

    def reached(self, what: str, threshold: float) -> Array:
        """Steps at which every network's curve first is at the threshold, linear between looks; inf: not within these.

        "largest", "loss" and "gap" come from above, all others from below.
        """
        curve = self.curve(what)
        sign = -1.0 if what.removeprefix("test ") in _FALLING else 1.0
        return np.array([first(sign * row, curve.steps.astype(float), sign * threshold) for row in curve.draws])

    def steps_to(self, what: str, threshold: float, *, least: bool = False) -> Number:
        """Mean ± standard error of `reached`; unknown (NaN) if a network does not get there.

        `least`: those that do not count with the last step, so that the mean is at least so large.
        """
        found = self.reached(what, threshold)
        if least:
            found = np.minimum(found, float(self.last))
        elif not np.isfinite(found).all():
            return Number(math.nan, math.nan)
        return self.number(found)

    def rows(self, **more: Any) -> list[dict[str, Any]]:
        """Lines of a table: mean and standard error of the main curves at every step."""
        names = ["largest", "accuracy", "favoured", "others", "loss"]
        names += [f"test {name}" for name in names[1:]] if self.tested else []
        return [
            {"arm": self.label, "source": "trained" if self.real else "predicted", **more}
            | {"networks": self.networks, "curve": name, "step": int(step), "mean": float(m), "error": float(e)}
            for name in names
            for step, m, e in zip(self.steps, self.curve(name).mean, self.curve(name).se, strict=True)
        ]


def curve_rows(arms: Iterable[Arm], **more: Any) -> list[dict[str, Any]]:
    """Lines of a table: the `rows` of all these arms."""
    return [line for arm in arms for line in arm.rows(**more)]


def paired(one: Arm, other: Arm, what: str, step: int) -> Number:
    """The difference of two arms whose networks are the same members, network by network."""
    if one.networks != other.networks:
        raise InvalidInput("as many networks in both arms", got=f"{one.networks} and {other.networks}", where="paired")
    return one.number(one.values(what, step) - other.values(what, step))


def sooner(one: Arm, other: Arm, share: float) -> Array:
    """By how many steps the largest share is at `share` sooner in the other arm, network by network.

    A network that does not get there counts with the last step; where neither does, it says nothing (NaN).
    """
    last = float(one.last)
    first, second = (arm.reached("largest", share) for arm in (one, other))
    apart = np.minimum(first, last) - np.minimum(second, last)
    return np.where(np.isfinite(first) | np.isfinite(second), apart, math.nan)


def first(row: Array, steps: Array, threshold: float) -> float:
    """The step at which a curve first is at the threshold or above, linear between looks; inf: nowhere."""
    there = np.flatnonzero(row >= threshold)
    if not len(there):
        return math.inf
    k = int(there[0])
    if k == 0 or not math.isfinite(row[k - 1]):
        return float(steps[k])
    return float(steps[k - 1] + (threshold - row[k - 1]) / (row[k] - row[k - 1]) * (steps[k] - steps[k - 1]))


def trained(
    run: Run, what: Any, data: Data, *, label: str, name: str = "", test: Data | None = None, parts: int = 1,
    seed: int | None = None, **options: Any,
) -> Arm:  # fmt: skip
    """`fg.train`, kept as a piece, or as `parts` of them (each `inits` networks, with a seed of its own).

    A description is its own key; a module or a factory, and options that are functions, need a `name` that says it all.
    """
    key = _key(what, name, data, test, options)
    first = run.seed if seed is None else seed
    given: dict[str, Any] = {"what": what, "data": data, "test": test, "options": options}
    pieces = [
        run.promise(
            {"trained": key, "seed": own}, train_piece, given | {"seed": own},
            label=f"training: {label}" + (f" ({part + 1} of {parts})" if parts > 1 else ""),
        )
        for part, own in enumerate(range(first, first + SEEDS * parts, SEEDS))
    ]  # fmt: skip

    return run.later(Arm, lambda: joined(label, [_unpack(piece()) for piece in pieces]))


def predicted(
    run: Run, network: str, data: Data, *, label: str, test: Data | None = None, name: str = "", **options: Any
) -> Arm:
    """`fg.predict_training`, kept as a piece; options that are functions (a schedule) need a `name`."""
    key = _key(network, name, data, test, options)
    seed = options.get("seed", run.seed)
    given: dict[str, Any] = {"network": network, "data": data, "test": test, "options": {"seed": seed, **options}}
    piece = run.promise({"predicted": key, "seed": seed}, prediction_piece, given, label=f"prediction: {label}")
    return run.later(Arm, lambda: replace(_unpack(piece()), label=label, real=False))


def modes(run: Run, network: str, data: Data, width: int, *, label: str = "modes") -> Mapping[str, Any]:
    """The numbers that explain a prediction: rates at which the bias overshoots and swings for ever, its modes."""
    return predicted(run, network, data, label=label, lr=1e-7, steps=[0, 1], width=width, draws=20).about


def starts(
    run: Run, network: fg.Network, x: NDArray[Any], width: int, members: range, *, label: str, seed: int
) -> Array:
    """`starts_of`, kept as a piece."""
    given: dict[str, Any] = {"network": network, "x": x, "width": width, "members": members, "seed": seed}
    return run.keep(_starts, label=f"starts of {label}", **given)["logits"]


def _starts(**given: Any) -> Piece:
    return {"logits": starts_of(**given)}


def starts_of(network: fg.Network, x: NDArray[Any], width: int, members: range, seed: int) -> Array:
    """Logits before training of the members that `fg.train` trains: (networks, points, classes)."""
    import torch

    points = torch.from_numpy(np.array(x, dtype=np.float32))
    with torch.inference_mode():
        models = (library.build(network, x.shape[1:], width=width, seed=seed, member=member) for member in members)
        return np.array([model(points).double().numpy() for model in models])


def _key(what: Any, name: str, data: Data, test: Data | None, options: dict[str, Any]) -> dict[str, Any]:

    described = isinstance(what, (fg.Network, str))
    functions = [key for key, value in options.items() if callable(value)]
    if not name and (functions or not described):
        raise InvalidInput(
            "name=: functions and modules have no key", got=functions or type(what).__name__, where="arm"
        )
    given = {key: value for key, value in options.items() if not callable(value) and key != "threads"}
    return {"what": str(what) if described else "", "name": name, "data": data.hash, "options": given} | (
        {} if test is None else {"test": test.hash}
    )


def prediction_piece(*, network: str, data: Data, test: Data | None, options: Mapping[str, Any]) -> Piece:
    """`fg.predict_training` as a piece."""
    t = fg.predict_training(network, data=data, test=test, **options)
    trust = t.trust
    numbers = {"bias": float(t.modes.bias), "signal": float(t.modes.signal)}
    numbers |= {name: getattr(t, name) for name in ("overshoot", "lr_limit", "floor")}
    said = {"trust": trust and trust.word, "trust_why": trust and trust.why, "spread": trust and trust.spread}
    return _packed(t) | {"about": json.dumps(numbers | said)}


def train_piece(
    *,
    what: Any,
    data: Data,
    test: Data | None,
    seed: int,
    options: Mapping[str, Any],
    progress: Callable[[int, int], object] | None = None,
) -> Piece:
    """`fg.train` as a piece, for this process or another."""
    r = fg.train(what, data=data, test=test, seed=seed, progress=progress, **options)
    if r.interrupted:
        raise KeyboardInterrupt  # half an ensemble must not pass for a whole one in the next run
    rows = {member: row for row, member in enumerate(r.members)}  # filtered starts: not 0, 1, 2, …
    lost = np.array([(rows[member], step) for member, step in r.diverged], dtype=np.int64).reshape(-1, 2)
    return _packed(r) | {"gradients": r.gradients.draws, "shares": r.shares, "diverged": lost}


def _packed(r: fg.TrainedMembers | fg.PredictedTraining) -> dict[str, Any]:
    piece: dict[str, Any] = {"steps": r.steps, "level": r.level, "drawn": r.drawn}
    return piece | draws_of(r.curves) | ({} if r.test is None else draws_of(r.test, "test "))


def draws_of(curves: Curves, prefix: str = "") -> dict[str, Array]:
    """The curves of `Arm.draws`, from those of `fg.train` and `fg.predict_training`."""
    groups = curves.accuracy.groups.items()
    named = {which if isinstance(which, str) else f"class {which}": draws for which, draws in groups}
    named |= {what: getattr(curves, what).draws for what in ("largest", "accuracy", "loss")}
    return {f"{prefix}{name}": draws for name, draws in named.items()}


def _unpack(piece: Mapping[str, Any]) -> Arm:
    known = dict(piece)
    steps, lost = (np.asarray(known.pop(name, ()), dtype=np.int64) for name in ("steps", "diverged"))
    shares, about = known.pop("shares", np.zeros((0, 0, 0))), json.loads(known.pop("about", "{}"))
    level, drawn = float(known.pop("level")), int(known.pop("drawn"))
    diverged = tuple((int(row), int(step)) for row, step in lost.reshape(-1, 2))
    return Arm("", steps, known, level, True, shares, diverged, drawn, about)


def joined(label: str, arms: Sequence[Arm]) -> Arm:
    """Parts of one arm, one after the other: rows are networks; those that diverged are counted on."""
    before = np.cumsum([0, *(arm.networks for arm in arms)])
    return replace(
        arms[0],
        label=label,
        draws={name: np.concatenate([arm.draws[name] for arm in arms]) for name in arms[0].draws},
        shares=np.concatenate([arm.shares for arm in arms]),
        diverged=tuple(
            (row + int(k), step) for k, arm in zip(before, arms, strict=False) for row, step in arm.diverged
        ),
        drawn=sum(arm.drawn for arm in arms),
    )


SAME_SCORE = 0.02  # accuracies that differ by less are the same


def few_looks(steps: int) -> list[int]:
    """Steps 0 to 3, then five a decade, and the last: a look at all points takes as long as many steps.

    >>> few_looks(100)
    [0, 1, 2, 3, 4, 6, 10, 16, 25, 40, 63, 100]
    """
    later = (round(10 ** (k / 5)) for k in range(3, 40))
    return sorted({0, 1, 2, 3, steps, *(step for step in later if step < steps)})


def with_held_out(run: Run, spec: str, points: int, held: int) -> list[Data]:
    """Training points and others of the same data, standardized together, in an order of their own."""
    return split(run.data(spec, points=points + held), (points, held), run.seed, 0x7E57)


def split(data: Data, sizes: Sequence[int], *seed: int) -> list[Data]:
    """Disjoint parts of this many points, in an order of their own."""
    order, ends = np.random.default_rng(seed).permutation(data.n), np.cumsum([0, *sizes]).tolist()
    return [part_of(data, order[a:b]) for a, b in pairwise(ends)]


def part_of(data: Data, rows: NDArray[np.int64]) -> Data:
    """Some of the points, with their labels."""

    assert data.y is not None
    return Data(data.x[rows], data.y[rows], name=f"{data.name}, {len(rows)} of them", class_names=data.class_names)


def settled(arm: Arm, level: float | None = None) -> Array:
    """Steps from which on the largest share of each network stays at or below the level until the end; inf: never.

    Not the first time that it is there: where classes hand over to each other the share passes the level on its way
    from one to the other. Linear between the look before and the look at which it is there for good.
    """
    limit = arm.level if level is None else level
    steps = arm.steps.astype(float)
    found = np.full(arm.networks, math.inf)
    for i, row in enumerate(arm.draws["largest"]):
        out = np.flatnonzero(~(row <= limit))  # NaN is out, too
        if not len(out):
            found[i] = 0.0
        elif out[-1] + 1 < len(row):
            k = int(out[-1])
            part = (row[k] - limit) / (row[k] - row[k + 1]) if math.isfinite(row[k]) else 1.0
            found[i] = steps[k] + part * (steps[k + 1] - steps[k])
    return found


def log_steps(steps: Array, last: int) -> Array:
    """log10(1 + steps), those that never end at the last step: a mean of these is at least so large."""
    return np.log10(1.0 + np.minimum(steps, float(last)))


def scores(arm: Arm, what: str, step: int | None = None) -> Array:
    """A share of every network at a step (default: the last); of a network that diverged, that of a single class."""
    values = arm.values(what, arm.last if step is None else step)
    return np.where(np.isfinite(values), values, _lost(arm, what))


def over_looks(arm: Arm, what: str) -> Array:
    """The mean of a share over the looks from step 1 on, which are even on a logarithmic axis: speed and height."""
    draws = arm.curve(what).draws[:, arm.steps >= 1]
    return np.where(np.isfinite(draws), draws, _lost(arm, what)).mean(axis=1)


def _lost(arm: Arm, what: str) -> float:
    return 1.0 if what.endswith("largest") else 1.0 / len(arm.classes)


def number(values: Array) -> Number:
    """Mean ± standard error over networks; fewer than ten decide nothing (NaN)."""
    return average(values) if len(values) >= MEMBERS else Number(float(values.mean()), math.nan)


def apart(one: Array, other: Array) -> Number:
    """The mean difference, network by network: arms have the same members, drawn from the same numbers."""
    return number(one - other)


def more(one: Array, other: Array, *, room: float) -> Truth:
    """Whether one arm has more than the other, by 4 standard errors: a difference of less than `room` is none.

    >>> more(np.linspace(0.5, 0.6, 20), np.linspace(0.3, 0.4, 20), room=0.02)
    True
    >>> more(np.linspace(0.5, 0.501, 20), np.full(20, 0.5), room=0.02)
    False
    """
    difference = apart(one, other)
    if abs(difference.value) < room and 2 * difference.error <= room:
        return False
    return above(difference, 0.0)


def exceeds(name: str, one: Array, other: Array, *, room: float, than: str, below: bool = False) -> Check:
    """`more`, or less (`below`), as a named check, network by network."""
    truth = more(other, one, room=room) if below else more(one, other, room=room)
    asked = f"{'below' if below else 'above'} {than} (less than {room:g} is no difference)"
    return Check(name, asked, truth, f"{number(one)} against {number(other)}")


def typical(logs: Number) -> str:
    """A number of log10(1 + steps) as steps, the error as a factor.

    >>> typical(Number(2.0, 0.1))
    '99 steps (×/÷ 1.26)'
    """
    steps = 10**logs.value - 1
    said = f"{steps:.0f}" if steps >= 10 else f"{steps:.1f}"
    return f"{said} steps" + (f" (×/÷ {10**logs.error:.2f})" if math.isfinite(logs.error) and logs.error > 0 else "")


GAP = 0.2  # of recall: classes whose recalls differ by more have parted (60 and 40 % in a network that guesses)
_NODES, _MASSES = np.polynomial.hermite_e.hermegauss(41)


@dataclass(frozen=True, eq=False)
class BiasModes:
    """Of several untrained networks: mean m and spread s of g = f₁ − f₀ over the data, and λ_b = ‖∇ m‖²/2 of each.

    One backward pass gives them. Descent moves the mean by `m ← m − 2ηλ_b (E σ(m + s z) − ½)` (theory.md (16)). Nothing
    is learned here: what is predicted is when the bias goes, or where it overshoots (2κ/λ_b), or swings (4κ/λ_b).
    """

    mean: Array
    spread: Array
    eigenvalue: Array

    @property
    def kappa(self) -> Array:
        """κ = √(1 + π s²/8)."""
        return np.sqrt(1.0 + math.pi * self.spread**2 / 8.0)

    @property
    def overshoot(self) -> Number:
        """2κ/λ_b, the learning rate from which on classes hand over to each other: mean ± standard error."""
        return average(2.0 * self.kappa / self.eigenvalue)

    def biased(self) -> BiasModes:
        """Those whose largest share is at least 0.9, as `start="biased"` keeps them."""
        kept = special.ndtr(np.abs(self.mean) / self.spread) >= BIASED
        return BiasModes(self.mean[kept], self.spread[kept], self.eigenvalue[kept])

    def time_constant(self, lr: float) -> float:
        """Steps in which a small bias falls by e: 2κ/(ηλ_b), at the average overshoot."""
        return self.overshoot.value / lr

    def means(self, lr: float, steps: Sequence[int] | NDArray[np.int64]) -> Array:
        """m at these steps, (networks, steps); one step of descent after the other."""
        m = np.abs(self.mean)
        found = np.empty((len(m), len(steps)))
        looks = {int(step): k for k, step in enumerate(steps)}
        for step in range(int(max(steps)) + 1):
            if step in looks:
                found[:, looks[step]] = m
            pull = special.expit(m[:, None] + self.spread[:, None] * _NODES) @ _MASSES / _MASSES.sum() - 0.5
            m = m - 2.0 * lr * self.eigenvalue * pull
        return found

    def recalls(self, lr: float, steps: NDArray[np.int64]) -> tuple[Curve, Curve]:
        """Of the class that is favoured at the start, and of the other: Φ(m/s) and the rest, as nothing is learned."""
        share = special.ndtr(self.means(lr, steps) / self.spread[:, None])
        return Curve(steps, share), Curve(steps, 1.0 - share)


def bias_modes(run: Run, make: Callable[[], Any], data: Data, *, name: str, draws: int, weight_var: float) -> BiasModes:
    """Of `draws` networks that a factory makes, as a piece: one forward and one backward pass each.

    Weights are Gaussian with variance weight_var/fan-in, biases 0: `init=(weight_var, 0)` of `fg.train`.
    """
    key = {"bias modes": name, "data": data.hash, "draws": draws, "weight_var": weight_var}
    piece = run.piece(key, lambda: _passes(make, data, run.seed, draws, weight_var), label=f"bias modes of {name}")
    return BiasModes(*(np.asarray(piece[part]) for part in ("mean", "spread", "eigenvalue")))


def _passes(make: Callable[[], Any], data: Data, seed: int, draws: int, weight_var: float) -> dict[str, Any]:
    import torch

    x = torch.from_numpy(np.array(data.x))
    found: list[tuple[float, float, float]] = []
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        for draw in range(draws):
            torch.manual_seed((seed << 20) + draw)
            model = make()
            _draw(model, weight_var)
            rows = model(x)
            g = rows[:, 1] - rows[:, 0]
            g.mean().backward()
            square = sum(float(p.grad.double().square().sum()) for p in model.parameters() if p.grad is not None)
            found.append((float(g.detach().mean()), float(g.detach().std()), square / 2.0))
    mean, spread, eigenvalue = np.array(found).T
    return {"mean": mean, "spread": spread, "eigenvalue": eigenvalue}


def _draw(model: Any, weight_var: float) -> None:
    from torch import nn

    for layer in model.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.normal_(layer.weight, std=math.sqrt(weight_var / layer.weight[0].numel()))
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def hand_overs(gaps: Array) -> Array:
    """How often each network passes from one class to the other: its gap of recalls from above GAP to below −GAP or
    back, however long in between. Rows are networks, columns steps; what comes after NaN (diverged) does not count.

    >>> hand_overs(np.array([[0.9, 0.1, -0.5, -0.1, -0.3, 0.4], [0.9, 0.5, 0.1, -0.1, 0.1, 0.0]])).tolist()
    [2.0, 0.0]
    """
    found = np.zeros(len(gaps))
    for i, row in enumerate(gaps):
        sides = [math.copysign(1.0, gap) for gap in row if abs(gap) > GAP]  # NaN is above nothing
        found[i] = sum(a != b for a, b in pairwise(sides))
    return found


def chosen(data: Data, counts: Sequence[int], *, skip: Sequence[int] | None = None, flat: bool = False) -> Data:
    """The first `counts[c]` points of every class c (after the first `skip[c]`), in their old order.

    >>> from firstguess.data import as_data
    >>> data = as_data((np.arange(12.0).reshape(6, 2), np.array([0, 1, 0, 1, 0, 1])))
    >>> chosen(data, (2, 1)).y.tolist(), chosen(data, (1, 1), skip=(2, 1)).x[:, 0].tolist()
    ([0, 1, 0], [6.0, 8.0])
    """
    assert data.y is not None
    rows: list[int] = []
    for label, count in enumerate(counts):
        first = 0 if skip is None else skip[label]
        own = np.flatnonzero(data.y == label)[first : first + count]
        if len(own) < count:
            raise InvalidInput(f"{count} points of class {label}", got=len(own), where=data.name, hint="more points")
        rows += own.tolist()
    kept = np.sort(np.array(rows))
    x = data.x[kept]
    return fg.data.as_data((x.reshape(len(x), -1) if flat else x, data.y[kept]))
