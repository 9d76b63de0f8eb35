"""Real and predicted training as resumable pieces, and numbers with errors from their curves.

`trained` and `predicted` both give an `Arm`: curves of every network over the steps that were looked at, in the words
of `fg.train` and `fg.predict_training`. Errors are over networks; fewer trained ones than `MEMBERS` decide nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import firstguess as fg
from firstguess import InvalidInput
from firstguess_papers.judging import Array, Number, average
from firstguess_papers.library import Curve
from firstguess_papers.running import Run

if TYPE_CHECKING:
    from firstguess import Network, PredictedTraining, TrainedMembers
    from firstguess.data import Data
    from firstguess_papers.library import Curves, Piece

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
        return np.array([_first(sign * row, curve.steps.astype(float), sign * threshold) for row in curve.draws])

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


def _first(row: Array, steps: Array, threshold: float) -> float:
    there = np.flatnonzero(row >= threshold)
    if not len(there):
        return math.inf
    k = int(there[0])
    if k == 0 or not math.isfinite(row[k - 1]):
        return float(steps[k])
    return float(steps[k - 1] + (threshold - row[k - 1]) / (row[k] - row[k - 1]) * (steps[k] - steps[k - 1]))


# -- Pieces --------------------------------------------------------------------------------------------------------


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


def starts(run: Run, network: Network, x: NDArray[Any], width: int, members: range, *, label: str, seed: int) -> Array:
    """`starts_of`, kept as a piece."""
    given: dict[str, Any] = {"network": network, "x": x, "width": width, "members": members, "seed": seed}
    return run.keep(_starts, label=f"starts of {label}", **given)["logits"]


def _starts(**given: Any) -> Piece:
    return {"logits": starts_of(**given)}


def starts_of(network: Network, x: NDArray[Any], width: int, members: range, seed: int) -> Array:
    """Logits before training of the members that `fg.train` trains: (networks, points, classes)."""
    import torch

    from firstguess_papers.library import build

    points = torch.from_numpy(np.array(x, dtype=np.float32))
    with torch.inference_mode():
        models = (build(network, x.shape[1:], width=width, seed=seed, member=member) for member in members)
        return np.array([model(points).double().numpy() for model in models])


def _key(what: Any, name: str, data: Data, test: Data | None, options: dict[str, Any]) -> dict[str, Any]:
    from firstguess import Network

    described = isinstance(what, (Network, str))
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


def _packed(r: TrainedMembers | PredictedTraining) -> dict[str, Any]:
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
