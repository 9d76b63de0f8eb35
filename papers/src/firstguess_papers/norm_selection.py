"""NORM §1, §3.1, §6: choosing learning rate and norm placement early, by global and by worst-class accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firstguess_papers.bias_mode import chosen
from firstguess_papers.charts import lines
from firstguess_papers.items import Entry, Holds
from firstguess_papers.judging import Check, Number, check, claimed
from firstguess_papers.measured import Found, measured
from firstguess_papers.tables import deep
from firstguess_papers.training_pieces import Arm, modes, predicted, trained

Array = NDArray[np.float64]
PLACEMENTS = {
    "no norm": deep("relu", 5),
    "LayerNorm before": deep("layernorm > relu", 5),
    "LayerNorm after": deep("relu > layernorm", 5),
}
FACTORS = (0.01, 0.03, 0.1, 0.3, 0.9)  # learning rates by 2κ/λ_b of the network without a norm
RULES = {"global": "accuracy", "worst class": "worst"}  # what is looked at early, on the training points
SETS = {"All candidates": tuple(PLACEMENTS), "Learning rate only, no norm": ("no norm",)}
_EARLY = 5  # the step that is judged
_MORE = 0.05  # of recall: how much more the favoured class must have of it
_LOSS = 0.01  # of the worst class's accuracy at the end, that counts as a loss
Candidate = tuple[str, float]


@dataclass(frozen=True)
class Choice:
    """What every network's tuner chose at a step: its favoured class's lead then, and what it has at the end."""

    lead: Array  # favoured − other class, training points, at that step
    final: Array  # held-out accuracy at the end
    worst: Array  # of the worst class
    after: Array  # whether a norm after the activation was chosen


def choose(arms: Mapping[Candidate, Arm], rule: str, step: int) -> Choice:
    """Network i of every candidate is one tuner's: it takes the candidate that is best at `step`, of ties each in part.

    A candidate that has diverged is never taken.
    """
    score = _stack(arms, rule, step)
    best = (score == score.max(axis=0)).astype(float)
    part = best / best.sum(axis=0)

    def of(values: Array) -> Array:
        return (part * values).sum(axis=0)

    last = next(iter(arms.values())).last
    after = np.array([float(placement == "LayerNorm after") for placement, _ in arms])
    return Choice(
        of(_stack(arms, "gap", step)),
        of(_stack(arms, "test accuracy", last)),
        of(_stack(arms, "test worst", last)),
        of(np.broadcast_to(after[:, None], score.shape)),
    )


@dataclass(frozen=True)
class Picks:
    """Choices by rule and step, among what was trained and among what was predicted."""

    seen: Mapping[str, Mapping[int, Choice]]
    known: Mapping[str, Mapping[int, Choice]]

    @staticmethod
    def of(arms: Mapping[Candidate, Arm], forecasts: Mapping[Candidate, Arm], steps: Sequence[int]) -> Picks:
        """By both rules, at each step."""
        seen, known = (
            {rule: {k: choose(given, what, k) for k in steps} for rule, what in RULES.items()}
            for given in (arms, forecasts)
        )
        return Picks(seen, known)


def _stack(arms: Mapping[Candidate, Arm], what: str, step: int) -> Array:
    """(candidates, networks); what has diverged is worth nothing."""
    return np.array([np.nan_to_num(arm.values(what, step), nan=0.0) for arm in arms.values()])


def judged(one: Arm, by_global: Choice, by_worst: Choice) -> list[Check]:
    """N20: chosen by global accuracy, the favoured class leads by more; and the worst class ends lower."""
    return [
        check("lead of the favoured class, by global − by worst class", one.number(by_global.lead - by_worst.lead),
              above=_MORE),
        check("held-out worst class at the end, by worst class − by global",
              one.number(by_worst.worst - by_global.worst), above=_LOSS),
    ]  # fmt: skip


def _candidates(c: Found) -> dict[str, Any]:
    """Trained and predicted candidates, and what each network's tuner picks at step k by one number."""
    run = c.run
    whole = run.data("mnist:even-odd", points=2 * (c.n + c.held))
    x = chosen(whole, (c.n // 2, c.n // 2), flat=True)
    test = chosen(whole, (c.held // 2, c.held // 2), skip=(c.n // 2, c.n // 2), flat=True)
    unit = float(modes(run, PLACEMENTS["no norm"], x, c.width)["overshoot"])
    looks = [k for k in (0, 1, 2, _EARLY, 10, 20, 40, 70, 100, 150, 200, 300) if k <= c.steps]
    arms: dict[Candidate, Arm] = {}
    forecasts: dict[Candidate, Arm] = {}
    for placement, net in PLACEMENTS.items():
        limit = float(modes(run, net, x, c.width, label=f"{placement}, modes")["lr_limit"])
        for factor in FACTORS:
            how: dict[str, Any] = {"lr": factor * unit, "steps": looks, "width": c.width, "optimizer": "gd"}
            how |= {"label": f"{placement}, rate × {factor:g}", "test": test}
            arms[placement, factor] = trained(run, net, x, inits=c.inits, parts=c.parts, **how)
            if factor * unit < limit:
                forecasts[placement, factor] = predicted(run, net, x, draws=c.draws, trust=False, **how)
    picks = {words: Picks.of(_only(arms, names), _only(forecasts, names), looks[1:]) for words, names in SETS.items()}
    return {"candidates": arms, "forecasts": forecasts, "picks": picks,
            "one": next(iter(arms.values())), "other": next(iter(forecasts.values()))}  # fmt: skip


def _only(arms: Mapping[Candidate, Arm], names: Sequence[str]) -> dict[Candidate, Arm]:
    return {key: arm for key, arm in arms.items() if key[0] in names}


def _entry(words: str, one: Arm, found: Picks, arms: Mapping[Candidate, Arm]) -> Entry:
    early = {rule: found.seen[rule][_EARLY] for rule in RULES}
    ideal = float(np.max([np.nan_to_num(arm.values("test worst", arm.last)).mean() for arm in arms.values()]))
    leads, costs = judged(one, early["global"], early["worst class"])
    late = found.seen["global"][max(found.seen["global"])]
    return claimed(
        "N20", f"{words}, picked at step {_EARLY} by global accuracy or by the worst class's", [leads], within=[costs],
        limit="at the end the worst class is hardly lower: what was picked for the favoured class trains as well",
        otherwise="what both rules pick favours a class alike: with even classes, less bias is more accuracy by either",
        also="; ".join(
            f"by {rule}: lead {one.number(c.lead)}, held-out accuracy at the end {one.number(c.final)}, of the worst "
            f"class {one.number(c.worst)}, LayerNorm after chosen by {one.number(c.after)}" for rule, c in early.items()
        ) + f"; picked by global at the last step {one.number(late.worst)}; best single candidate {ideal:.3f}",
    )  # fmt: skip


def _rows(one: Arm, picks: Mapping[str, Mapping[int, Choice]], **more: str) -> list[dict[str, Any]]:
    return [
        {**more, "rule": rule, "step": k}
        | {f"{what}": one.number(getattr(c, what)).value for what in ("lead", "final", "worst", "after")}
        | {"worst_error": one.number(c.worst).error, "lead_error": one.number(c.lead).error}
        for rule, by_step in picks.items()
        for k, c in by_step.items()
    ]


def _chart(arms: tuple[Arm, Arm], found: Mapping[str, Picks]) -> Any:
    """Trained (points) and picked among predicted trainings (lines), by what is picked for."""
    shown = {"lead": "lead of the favoured class", "worst": "worst class at the end"}
    rows: list[dict[str, Any]] = []
    for words, picks in found.items():
        for what, heading in shown.items():
            for rule, by_step in picks.seen.items():
                for step, choice in by_step.items():
                    seen = arms[0].number(getattr(choice, what))
                    known = arms[1].number(getattr(picks.known[rule][step], what))
                    rows.append({"name": f"picked by {rule} accuracy", "panel": f"{words}: {heading}", "step": step})
                    rows[-1] |= {"value": Number(seen.value, float(np.nan_to_num(seen.error))), "theory": known.value}
    return lines(
        rows, "step", panel="panel", title="Learning rate and norm placement, picked early by two rules",
        x_title="Step at which one picks", y_title="", x_scale="log", y_domain=(-0.1, 1.0), percent=True, width=430,
        height=220,
    )  # fmt: skip


def _missing(c: Found) -> str:
    unknown = [f"{p}, rate × {factor:g}" for p, factor in c.candidates if (p, factor) not in c.forecasts]
    return f" No prediction beyond 4κ/λ_b: {', '.join(unknown)}." if unknown else ""


selection = measured(
    "norm/selection", "Choosing hyper-parameters early", "NORM §1, §3.1, §6", claims=("N20",), needs=("mnist",),
    about="3 placements of LayerNorm × 5 learning rates, 5 hidden layers of {width} on {n} MNIST images, even or odd; "
    "full batches, {steps} steps; {networks} networks a candidate, {draws} predicted; {held} held-out images. "
    "Network, data and candidates are ours.",
    quick=dict(n=60, held=200, width=60, steps=100, inits=16, parts=1, draws=40),
    full=dict(n=150, held=400, width=100, steps=200, inits=12, parts=2, draws=100),
    seconds=(20, 200),
    quantities=_candidates,
    judge=lambda c: [_entry(words, c.one, c.picks[words], _only(c.candidates, names)) for words, names in SETS.items()],
    tables=lambda c: {"picks": [
        row for words, p in c.picks.items()
        for arm, picks, source in ((c.one, p.seen, "trained"), (c.other, p.known, "predicted"))
        for row in _rows(arm, picks, candidates=words, source=source)
    ]},
    charts=lambda c: {"picks": _chart((c.one, c.other), c.picks)},
    holds={"picks": Holds("Picked early by global accuracy, the favoured class leads by more", entries=(0,))},
    notes=lambda c: [f"Picked on training images, judged on held-out ones; every network is one tuner.{_missing(c)}"],
)  # fmt: skip
