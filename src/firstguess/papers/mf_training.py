"""MF, main figures: ReLU and tanh networks of every phase in training. Absorbing and learning are judged apart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from firstguess.base.errors import FirstguessError
from firstguess.papers.items import Entry, Outcome, item
from firstguess.papers.judging import Number, Truth, above, all_of, entry
from firstguess.papers.mf_simulation import BIAS_VAR, Setting, mf_settings
from firstguess.papers.running import Run
from firstguess.papers.tables import columns
from firstguess.papers.training_pieces import Arm, Array, predicted, trained
from firstguess.papers.training_speed import (
    SAME_SCORE,
    SAME_TIME,
    apart,
    less,
    log_steps,
    more,
    number,
    over_looks,
    part_of,
    relabelled,
    scores,
    settled,
    typical,
    with_held_out,
)  # fmt: skip

if TYPE_CHECKING:
    from firstguess.data import Data
    from firstguess.show.charts.theme import Chart

BATCH = 100  # MF's
RATE = 0.2  # of the rate from which on the edge's bias overshoots (theory.md (17))
ORDERED, EDGE, BIASED, NEUTRAL = "ordered", "edge", "biased chaos", "neutral chaos"
PHASES = {
    "ReLU": {ORDERED: "ReLU, ordered", EDGE: "ReLU, edge", BIASED: "ReLU, chaotic"},
    "tanh": {
        ORDERED: "tanh, ordered",
        EDGE: "tanh, edge",
        BIASED: "tanh, biased chaos",
        NEUTRAL: "tanh, neutral chaos",
    },
}
_DRAWS = 30  # predicted networks


@dataclass(frozen=True)
class Sizes:
    """Of one item: hidden layers (and the second depth), nodes, steps, networks, points."""

    depth: int
    other: int
    width: int
    steps: int
    inits: int
    points: int
    held: int


@dataclass(frozen=True, eq=False)
class Sweep:
    """One activation at one depth: arms by phase, predictions of those that have one, rates."""

    arms: dict[str, Arm]
    known: dict[str, Arm]
    rates: dict[str, float]
    words: str  # what differs from the main sweep, for tables

    def times(self, phase: str) -> Array:
        """log10(1 + steps until the bias is gone for good)."""
        return log_steps(settled(self.arms[phase]), self.arms[phase].last)


@item(
    "mf/training",
    "Phases in training: Fashion-MNIST by parity",
    claims=("M10",),
    where="MF, main figures on Fashion-MNIST",
    needs=("fashion_mnist",),
    quick="16 hidden layers of 50 (MF: 100 of 1000), again with 8; MF's seven settings, bias variance 0.1; "
    "mini-batches of 100 (MF's), plain descent, 40 steps, 10 networks each; 150 images, 150 held-out ones. One rate "
    "for all phases of an activation, 0.2 of the edge's overshoot, and once more 0.2 of each phase's own.",
    full="30 hidden layers of 150 (MF: 100 of 1000), again with 15; MF's seven settings, bias variance 0.1; "
    "mini-batches of 100 (MF's), plain descent, 160 steps (in units of the bias's own time, rate × λ × steps, about "
    "MF's 10 000 at 1e-7), 10 networks each; 300 images, 300 held-out ones. One rate for all phases of an activation, "
    "0.2 of the edge's overshoot, and once more 0.2 of each phase's own.",
    seconds=(30, 300),
)
def training(run: Run) -> Outcome:
    """M10: who absorbs the bias first, who learns best and fastest, on a data set of two classes."""
    sizes = run.either(Sizes(16, 8, 50, 40, 10, 150, 150), Sizes(30, 15, 150, 160, 10, 300, 300))
    return phases_in_training(run, "fashion_mnist:parity", "Fashion-MNIST by parity", sizes)


@item(
    "mf/training-cifar10",
    "Phases in training: CIFAR-10",
    claims=("M10",),
    where="MF, main figures on CIFAR-10",
    needs=("cifar10",),
    quick="As mf/training with ten classes: 10 hidden layers of 40 (MF: 100 of 1000), again with 5; 30 steps, 10 "
    "networks each; 150 images, 150 held-out ones; ReLU's chaos at 1.5 × critical (MF's here).",
    full="As mf/training with ten classes: 30 hidden layers of 120 (MF: 100 of 1000), again with 15; 150 steps (fewer "
    "than MF's 10 000 at 1e-5 in the bias's own time, too: training ends long before theirs), 10 networks each; 300 "
    "images, 300 held-out ones; ReLU's chaos at 1.5 × critical (MF's here).",
    seconds=(30, 300),
)
def training_cifar10(run: Run) -> Outcome:
    """M10 with ten classes."""
    sizes = run.either(Sizes(10, 5, 40, 30, 10, 150, 150), Sizes(30, 15, 120, 150, 10, 300, 300))
    return phases_in_training(run, "cifar10", "CIFAR-10", sizes)


def phases_in_training(run: Run, spec: str, title: str, sizes: Sizes) -> Outcome:
    """Main sweep (one rate), own rates, and the second depth; entries, tables and figures."""
    x, held = with_held_out(run, spec, sizes.points, sizes.held)
    settings = {s.name: s for s in mf_settings()}
    if x.classes != 2:  # MF's multiple on CIFAR-10
        settings["ReLU, chaotic"] = Setting("ReLU, chaotic", "relu", 3.0, BIAS_VAR)
    main, own, other = (
        {
            phi: _sweep(run, settings, phi, x, held, sizes, depth=depth, own=own_rates)
            for phi in PHASES
        }
        for depth, own_rates in ((sizes.depth, False), (sizes.depth, True), (sizes.other, False))
    )  # fmt: skip
    entries = judged(main, own, other, other_words=f"{sizes.other} layers", subjects="ReLU and tanh")
    sweeps = [*main.items(), *own.items(), *other.items()]
    rows = [
        {"activation": phi, "sweep": s.words, **line} | {"rate": s.rates[line["arm"]]}
        for phi, s in sweeps
        for arm in (*s.arms.values(), *s.known.values())
        for line in arm.rows()
    ]
    where = f"{sizes.points} images of {title}, batches of {BATCH}, {sizes.inits} networks a line"
    return Outcome(
        entries,
        {"curves": columns(rows), "summary": columns([line for phi, s in sweeps for line in summary_rows(phi, s)])},
        {
            "one_rate": phases_chart(
                main,
                title=phases_title(main),
                subtitle=f"One rate for all phases of an activation; {sizes.depth} hidden layers of {sizes.width}; "
                f"{where}.",
            ),
            "own_rates": phases_chart(
                own,
                title=phases_title(own, rates="with a rate of its own for each phase"),
                subtitle="The rate of a phase is the same fraction of the one from which on its own bias overshoots; "
                f"{sizes.depth} hidden layers of {sizes.width}; {where}.",
            ),
        },
        _notes(main, own, sizes),
    )


def _sweep(
    run: Run, settings: dict[str, Setting], phi: str, x: Data, held: Data, sizes: Sizes, *, depth: int, own: bool
) -> Sweep:
    """Trains every phase of an activation; `own`: at its own rate, else at the edge's."""
    batch = part_of(x, np.arange(min(BATCH, x.n)))  # λ of the mode that all points of one mini-batch share
    limits = {
        phase: _limits(run, settings[name].text(depth), batch, sizes.width, f"{name}, {depth} layers")
        for phase, name in PHASES[phi].items()
    }
    arms: dict[str, Arm] = {}
    known: dict[str, Arm] = {}
    rates: dict[str, float] = {}
    for phase, name in PHASES[phi].items():
        overshoot, limit = limits[phase]
        rate = RATE * (overshoot if own else limits[EDGE][0])
        text = settings[name].text(depth)
        options: dict[str, Any] = {
            "test": held, "optimizer": "sgd", "batch": BATCH, "lr": rate, "steps": sizes.steps, "width": sizes.width,
        }  # fmt: skip
        label = f"{name}, {depth} layers" + (", own rate" if own else "")
        arms[phase] = relabelled(trained(run, text, x, label=label, inits=sizes.inits, **options), phase)
        rates[phase] = rate
        if rate < limit and depth == sizes.depth:
            try:
                known[phase] = relabelled(predicted(run, text, x, label=label, draws=_DRAWS, **options), phase)
            except FirstguessError:
                continue  # a rate at which the wide limit has no prediction
    return Sweep(arms, known, rates, f"{depth} layers, {'own rates' if own else 'one rate'}")


def _limits(run: Run, text: str, data: Data, width: int, label: str) -> tuple[float, float]:
    """The rates from which on the bias overshoots, and for ever: 2κ/λ_b and 4κ/λ_b of the wide limit."""
    found = predicted(
        run, text, data, label=f"rates of {label}", lr=1e-12, steps=1, width=width, draws=4, trust=False
    )  # fmt: skip
    return float(found.about["overshoot"]), float(found.about["lr_limit"])


# -- What is judged -----------------------------------------------------------------------------------------------


def absorbs_first(s: Sweep) -> list[Truth]:
    """The edge is rid of its bias for good sooner than the ordered phase and than biased chaos."""
    return [less(s.times(EDGE), s.times(phase), room=SAME_TIME) for phase in (ORDERED, BIASED)]


def learns_best(s: Sweep) -> list[Truth]:
    """The edge's accuracy on held-out points at the end is above that of every other phase."""
    edge = scores(s.arms[EDGE], "test accuracy")
    return [more(edge, scores(a, "test accuracy"), room=SAME_SCORE) for p, a in s.arms.items() if p != EDGE]


def learns_fastest(s: Sweep) -> list[Truth]:
    """The edge's accuracy on training points, averaged over looks, is above that of every other phase."""
    edge = over_looks(s.arms[EDGE], "accuracy")
    return [more(edge, over_looks(a, "accuracy"), room=SAME_SCORE) for p, a in s.arms.items() if p != EDGE]


def keeps_bias(s: Sweep) -> list[Truth]:
    """At the end the ordered phase's largest share is above the edge's by more than 0.1."""
    return [above(apart(scores(s.arms[ORDERED], "largest"), scores(s.arms[EDGE], "largest")), 0.1)]


def chaos_is_poor(s: Sweep) -> list[Truth]:
    """At the end deep chaos is below the edge on held-out points by more than 0.05."""
    if NEUTRAL not in s.arms:
        return []
    edge, deep = (scores(s.arms[phase], "test accuracy") for phase in (EDGE, NEUTRAL))
    return [above(apart(edge, deep), 0.05)]


def judged(
    main: dict[str, Sweep], own: dict[str, Sweep], other: dict[str, Sweep], *, other_words: str, subjects: str
) -> list[Entry]:
    """The parts of M10, each with its own verdict; those that no phase here speaks of are left out."""
    beyond = f"without a limit if also at each phase's own rate and with {other_words}"

    def checks(what: Any, sweeps: dict[str, Sweep]) -> list[Truth]:
        return [check for s in sweeps.values() for check in what(s)]

    def judge(what: Any, statement: str, said: Any) -> Entry:
        within = [*checks(what, own), *checks(what, other)]
        fine = {"own rates": all_of(checks(what, own)), other_words: all_of(checks(what, other))}
        failing = [name for name, truth in fine.items() if truth is not True]
        measured = "; ".join(
            f"{phi}, {sweep.words}: {said(sweep)}" for s in (main, own, other) for phi, sweep in s.items()
        )
        return entry(
            "M10",
            f"{statement}; {subjects}, one rate for all phases; {beyond}",
            measured,
            checks(what, main),
            within=within,
            limit=f"not with {' nor with '.join(failing)}",
            otherwise=_failing(what, main),
        )

    parts = (
        (absorbs_first, "“the edge absorbs fastest”: the largest share is at its level for good (a fifth of the way "
         "from even to 1) sooner than in the ordered phase and in biased chaos (less than 26 % is no difference)",
         _said_times),
        (learns_best, "“the edge learns best”: accuracy on held-out points at the end is above that of every other "
         "phase (less than 0.02 is no difference)", lambda s: _said(s, "test accuracy", scores)),
        (learns_fastest, "“the edge learns fastest”: accuracy on training points, averaged over looks (even on a "
         "logarithmic axis), is above that of every other phase (less than 0.02 is no difference)",
         lambda s: _said(s, "accuracy", over_looks)),
        (keeps_bias, "“ordered networks keep the bias”: their largest share ends above the edge's by more than 0.1",
         lambda s: _said(s, "largest", scores)),
        (chaos_is_poor, "“deep chaos learns poorly”: neutral chaos (tanh alone has it) ends below the edge on held-out "
         "points by more than 0.05", lambda s: _said(s, "test accuracy", scores)),
    )  # fmt: skip
    return [judge(*part) for part in parts if checks(part[0], main)]


def _failing(what: Any, sweeps: dict[str, Sweep]) -> str:
    """Which activations contradict it."""
    found = [phi for phi, s in sweeps.items() if all_of(what(s)) is False]
    return f"contradicted by {' and '.join(found)}" if found else ""


def _said_times(s: Sweep) -> str:
    parts: list[str] = []
    for phase, arm in s.arms.items():
        never = sum(not math.isfinite(t) for t in settled(arm))
        parts.append(
            f"{phase} {typical(number(s.times(phase)))}" + (f", {never} of {arm.networks} never" if never else "")
        )
    return ", ".join(parts)


def _said(s: Sweep, what: str, statistic: Any) -> str:
    return ", ".join(f"{phase} {_short(number(statistic(arm, what)))}" for phase, arm in s.arms.items())


def _short(value: Number) -> str:
    return f"{value.value:.3f} ± {value.error:.3f}" if math.isfinite(value.error) else f"{value.value:.3f}"


def summary_rows(phi: str, s: Sweep) -> list[dict[str, Any]]:
    """What is compared, by phase; of predictions, too."""
    rows: list[dict[str, Any]] = []
    for source, arms in (("trained", s.arms), ("predicted", s.known)):
        for phase, arm in arms.items():
            values = {
                "log10_steps_settled": log_steps(settled(arm), arm.last),
                "test_accuracy_end": scores(arm, "test accuracy"),
                "accuracy_over_looks": over_looks(arm, "accuracy"),
                "largest_end": scores(arm, "largest"),
            }
            line: dict[str, Any] = {"activation": phi, "sweep": s.words, "phase": phase, "source": source}
            line |= {"networks": arm.networks, "diverged": len(arm.diverged), "trust": arm.about.get("trust") or ""}
            for name, found in values.items():
                one = number(found)
                line |= {name: one.value, f"{name}_error": one.error}
            rows.append(line)
    return rows


def phases_title(
    sweeps: dict[str, Sweep], *, subject: str = "The edge of chaos", rates: str = "at one rate for all phases"
) -> str:
    """What was found of absorbing and learning; what was not decided is not said."""

    def found(what: Any) -> Truth:
        return all_of(check for s in sweeps.values() for check in what(s))

    absorbs = {True: "absorbs its bias first", False: "is not the first to absorb its bias"}
    learns = {True: "learns best", False: "is not the best learner on held-out images"}
    first, best = found(absorbs_first), found(learns_best)
    if first is None and best is None:
        return f"Phases in training, {rates}"
    said = [absorbs[first]] if first is not None else []
    said += [learns[best]] if best is not None else []
    return f"{subject} {(' and ' if first == best else ', but ').join(said)}, {rates}"


def _classes(sweeps: dict[str, Sweep]) -> int:
    groups = next(iter(sweeps.values())).arms[EDGE].accuracy.groups
    return sum(isinstance(which, int) for which in groups)


def phases_chart(sweeps: dict[str, Sweep], *, title: str, subtitle: str) -> Chart:
    """A row of panels for every sweep: largest share, accuracy on training and on held-out points."""
    from firstguess.papers.training_charts import Line, arms_chart, lines_of

    floor = 0.4 if _classes(sweeps) == 2 else 0.0  # of two classes nothing happens below
    panels: dict[str, list[Line]] = {}
    for phi, s in sweeps.items():
        for words, what in (
            ("largest share", "largest"),
            ("accuracy, training", "accuracy"),
            ("accuracy, held out", "test accuracy"),
        ):
            panels[f"{phi}: {words}"] = lines_of(what, s.arms, s.known)
    domains = {name: (floor, 1.0) for name in panels}
    return arms_chart(panels, title=title, subtitle=[subtitle], y_domains=domains)


def _notes(main: dict[str, Sweep], own: dict[str, Sweep], sizes: Sizes) -> list[str]:
    trusts = [
        f"{phi} {phase}: {arm.about.get('trust')}"
        for phi, s in main.items()
        for phase, arm in own[phi].known.items() | s.known.items()
    ]
    rates = "; ".join(
        f"{phi} {main[phi].rates[EDGE]:.2g} (own: {', '.join(f'{p} {r:.2g}' for p, r in own[phi].rates.items())})"
        for phi in main
    )
    lost = [
        f"{phi} {phase}, {s.words}: {len(arm.diverged)} of {arm.networks}"
        for sweeps in (main, own) for phi, s in sweeps.items() for phase, arm in s.arms.items() if arm.diverged
    ]  # fmt: skip
    return [
        f"Ours: {sizes.depth} hidden layers of {sizes.width} instead of MF's 100 of 1000, {sizes.points} images, "
        f"{sizes.steps} steps; the settings of the phases and the size of mini-batches are MF's.",
        f"Learning rates: {rates}. Predictions are missing where a rate is beyond the one that has any.",
        f"Trust in the predictions, in their own words: {'; '.join(sorted(set(trusts))) or 'none made'}.",
        "Networks that diverged (NaN) count as guessing a single class: " + ("; ".join(lost) or "none did") + ".",
    ]
