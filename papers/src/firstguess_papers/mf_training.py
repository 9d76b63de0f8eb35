"""MF, main figures: ReLU and tanh networks of every phase in training. Absorbing and learning are judged apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from firstguess import FirstguessError
from firstguess_papers import training_speed as speed
from firstguess_papers.items import Item, Outcome, item
from firstguess_papers.mf import BIAS_VAR, Setting, mf_settings
from firstguess_papers.running import Run
from firstguess_papers.training_pieces import Arm, predicted, trained
from firstguess_papers.training_speed import with_held_out

if TYPE_CHECKING:
    from firstguess.data import Data

BATCH = 100  # MF's
RATE = 0.2  # of the rate from which on the edge's bias overshoots (theory.md (17)), with two classes
RATE_OF_TEN = 0.1  # with ten: about MF's 1e-5 at its λ ≈ 1e5, the overshoot being at 10/λ
PHASES = {
    "ReLU": {speed.ORDERED: "ReLU, ordered", speed.EDGE: "ReLU, edge", speed.BIASED: "ReLU, chaotic"},
    "tanh": {phase: f"tanh, {phase}" for phase in (speed.ORDERED, speed.EDGE, speed.BIASED, speed.NEUTRAL)},
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


def _phases(id: str, title: str, where: str, spec: str, words: str, **options: Any) -> Item:
    """The item of one data set."""

    @item(id, title, claims=("M10",), where=where, **options)
    def made(run: Run) -> Outcome:
        """M10: who absorbs the bias first, who learns best and fastest."""
        return phases_in_training(run, spec, words, Sizes(**run.sizes[0]))

    return made


training = _phases(
    "mf/training", "Phases in training: Fashion-MNIST by parity", "MF, main figures on Fashion-MNIST",
    "fashion_mnist:parity", "Fashion-MNIST by parity", needs=("fashion_mnist",),
    about="{depth} hidden layers of {width} (MF: 100 of 1000), again with {other}; MF's seven settings, bias variance "
    "0.1; mini-batches of 100 (MF's), plain descent, {steps} steps (in units of the bias's own time, rate × λ × "
    "steps, 160 are about MF's 10 000 at 1e-7), {inits} networks each; {points} images, {held} held-out ones. One "
    "rate for all phases of an activation, 0.2 of the edge's overshoot, and once more 0.2 of each phase's own.",
    quick=dict(depth=16, other=8, width=50, steps=40, inits=10, points=150, held=150),
    full=dict(depth=30, other=15, width=150, steps=160, inits=10, points=300, held=300),
    seconds=(22, 300),
)  # fmt: skip

training_cifar10 = _phases(
    "mf/training-cifar10", "Phases in training: CIFAR-10", "MF, main figures on CIFAR-10", "cifar10", "CIFAR-10",
    needs=("cifar10",),
    about="As mf/training with ten classes: {depth} hidden layers of {width} (MF: 100 of 1000), again with {other}; "
    "{steps} steps (fewer than MF's 10 000 at 1e-5 in the bias's own time, too: training ends long before theirs), "
    "{inits} networks each; {points} images, {held} held-out ones; rates are 0.1 of the overshoot, ReLU's chaos is at "
    "1.5 × critical (MF's here).",
    quick=dict(depth=10, other=5, width=40, steps=40, inits=10, points=150, held=150),
    full=dict(depth=30, other=15, width=120, steps=150, inits=10, points=600, held=400),
    seconds=(30, 300),
)  # fmt: skip


def phases_in_training(run: Run, spec: str, title: str, sizes: Sizes) -> Outcome:
    """Main sweep (one rate), own rates, and the second depth; entries, tables and figures."""
    x, held = with_held_out(run, spec, sizes.points, sizes.held)
    settings = {s.name: s for s in mf_settings()}
    if x.classes != 2:  # MF's multiple on CIFAR-10
        settings["ReLU, chaotic"] = Setting("ReLU, chaotic", "relu", 3.0, BIAS_VAR)
    main, own, other = (
        {phi: _sweep(run, settings, phi, x, held, sizes, depth=depth, own=own_rates) for phi in PHASES}
        for depth, own_rates in ((sizes.depth, False), (sizes.depth, True), (sizes.other, False))
    )
    entries = speed.judged(main, own, other, other_words=f"{sizes.other} layers", subjects="ReLU and tanh")
    where = f"{sizes.points} images of {title}, batches of {BATCH}, {sizes.inits} networks a line"
    return Outcome(
        entries,
        speed.phases_tables([*main.items(), *own.items(), *other.items()]),
        {
            "one_rate": speed.phases_chart(main, title=speed.phases_title(main), subtitle=[
                f"One rate for all phases of an activation; {sizes.depth} hidden layers of {sizes.width}; {where}."
            ]),
            "own_rates": speed.phases_chart(
                own, title=speed.phases_title(own, rates="with a rate of its own for each phase"),
                subtitle=["The rate of a phase is the same fraction of the one from which on its own bias overshoots;",
                          f"{sizes.depth} hidden layers of {sizes.width}; {where}."],
            ),
        },
        _notes(main, own, sizes),
    )  # fmt: skip


def _sweep(
    run: Run, settings: dict[str, Setting], phi: str, x: Data, held: Data, sizes: Sizes, *, depth: int, own: bool
) -> speed.Sweep:
    """Trains every phase of an activation; `own`: at its own rate, else at the edge's."""
    batch = speed.part_of(x, np.arange(min(BATCH, x.n)))  # λ of the mode that all points of one mini-batch share
    limits = {
        phase: _limits(run, settings[name].text(depth), batch, sizes.width, f"{name}, {depth} layers")
        for phase, name in PHASES[phi].items()
    }
    arms: dict[str, Arm] = {}
    known: dict[str, Arm] = {}
    rates: dict[str, float] = {}
    for phase, name in PHASES[phi].items():
        overshoot, limit = limits[phase]
        rate = (RATE if x.classes == 2 else RATE_OF_TEN) * (overshoot if own else limits[speed.EDGE][0])
        text = settings[name].text(depth)
        options: dict[str, Any] = {
            "test": held, "optimizer": "sgd", "batch": BATCH, "lr": rate, "steps": speed.few_looks(sizes.steps),
            "width": sizes.width,
        }  # fmt: skip
        label = f"{name}, {depth} layers" + (", own rate" if own else "")
        arms[phase] = speed.relabelled(trained(run, text, x, label=label, inits=sizes.inits, **options), phase)
        rates[phase] = rate
        if rate < limit and depth == sizes.depth:
            try:
                known[phase] = speed.relabelled(predicted(run, text, x, label=label, draws=_DRAWS, **options), phase)
            except FirstguessError:
                continue  # a rate at which the wide limit has no prediction
    return speed.Sweep(arms, known, rates, f"{depth} layers, {'own rates' if own else 'one rate'}")


def _limits(run: Run, text: str, data: Data, width: int, label: str) -> tuple[float, float]:
    """The rates from which on the bias overshoots, and for ever: 2κ/λ_b and 4κ/λ_b of the wide limit."""
    found = predicted(
        run, text, data, label=f"rates of {label}", lr=1e-12, steps=1, width=width, draws=4, trust=False
    )  # fmt: skip
    return float(found.about["overshoot"]), float(found.about["lr_limit"])


def _notes(main: dict[str, speed.Sweep], own: dict[str, speed.Sweep], sizes: Sizes) -> list[str]:
    trusts = [
        f"{phi} {phase}: {arm.about.get('trust')}"
        for phi, s in main.items()
        for phase, arm in own[phi].known.items() | s.known.items()
    ]
    rates = "; ".join(
        f"{phi} {main[phi].rates[speed.EDGE]:.2g} (own: {', '.join(f'{p} {r:.2g}' for p, r in own[phi].rates.items())})"
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
