"""MF, main figures: networks of every phase in training, plain ones and transformers without norms and skips.

Absorbing and learning are judged apart. Each sweep is run at one rate for all phases of an activation, at each phase's
own, and at a second depth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from firstguess import FirstguessError
from firstguess.data import Data
from firstguess_papers import library
from firstguess_papers.charts import rows_chart
from firstguess_papers.items import Entry, Item
from firstguess_papers.judging import Array, Check, Number, Truth, above, all_of, check, claimed
from firstguess_papers.measured import Found
from firstguess_papers.mf import BIAS_VAR, Setting, limits, mf_settings
from firstguess_papers.mf_vit import EXPECTED
from firstguess_papers.training_pieces import (
    SAME_SCORE,
    Arm,
    apart,
    exceeds,
    few_looks,
    log_steps,
    number,
    over_looks,
    part_of,
    predicted,
    scores,
    settled,
    trained,
    typical,
    with_held_out,
)

SAME_TIME = 0.1  # of log10: times that differ by less than 26 % are the same
ORDERED, EDGE, BIASED, NEUTRAL = "ordered", "edge", "biased chaos", "neutral chaos"
PAST = 0.05  # accuracy above chance from which on a phase has learned anything


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

    def biased(self, phase: str) -> bool:
        """Whether its networks are biased at the start: the mean largest share is above the level."""
        arm = self.arms[phase]
        return above(number(scores(arm, "largest", 0)), arm.level) is True

    @property
    def classes(self) -> int:
        """Of the labels."""
        return len(self.arms[EDGE].classes)


def absorbs_first(s: Sweep) -> list[Check]:
    """The edge is rid of its bias for good sooner than the ordered phase and than biased chaos.

    Only between phases that are biased at the start (the mean largest share is above the level): else nothing is said.
    """
    return [
        _decides(
            exceeds("log10 of 1 + steps at the edge", s.times(EDGE), s.times(phase), room=SAME_TIME, than=f"{phase}'s",
                    below=True),
            s.biased(EDGE) and s.biased(phase),
        )
        for phase in (ORDERED, BIASED)
    ]  # fmt: skip


def learns_best(s: Sweep) -> list[Check]:
    """The edge's accuracy on held-out points at the end is above that of every other phase."""
    return _edge_above(s, "test accuracy", scores)


def learns_fastest(s: Sweep) -> list[Check]:
    """The edge's accuracy on training points, averaged over looks, is above that of every other phase."""
    return _edge_above(s, "accuracy", over_looks)


def _edge_above(s: Sweep, what: str, statistic: Any) -> list[Check]:
    """Where no phase ends past chance there is nothing to compare: not decided, rather than equal."""
    learned = any(above(number(scores(arm, what)), 1 / s.classes, by=PAST) is True for arm in s.arms.values())
    edge = statistic(s.arms[EDGE], what)
    return [
        _decides(exceeds("edge", edge, statistic(arm, what), room=SAME_SCORE, than=f"{phase}'s"), learned)
        for phase, arm in s.arms.items()
        if phase != EDGE
    ]


def _decides(one: Check, can: bool) -> Check:
    return one if can else replace(one, truth=None)


def keeps_bias(s: Sweep) -> list[Check]:
    """At the end the ordered phase's largest share is above the edge's by more than 0.1."""
    return [
        check(
            "ordered − edge",
            apart(*(scores(s.arms[phase], "largest") for phase in (ORDERED, EDGE))),
            above=0.1,
            least=SAME_SCORE,
        )
    ]


def chaos_is_poor(s: Sweep) -> list[Check]:
    """At the end deep chaos is below the edge on held-out points by more than 0.05."""
    if NEUTRAL not in s.arms:
        return []
    rest = apart(*(scores(s.arms[phase], "test accuracy") for phase in (EDGE, NEUTRAL)))
    return [check("edge − neutral chaos", rest, above=0.05)]


def judged(
    main: dict[str, Sweep], own: dict[str, Sweep], other: dict[str, Sweep], *, other_words: str, subjects: str
) -> list[Entry]:
    """The parts of M10, each with its own verdict; those that no phase here speaks of are left out."""

    def checks(what: Any, sweeps: dict[str, Sweep]) -> list[Check]:
        return [replace(one, name=f"{phi}, {one.name}, {s.words}") for phi, s in sweeps.items() for one in what(s)]

    def judge(what: Any, statement: str, said: Any) -> Entry:
        beyond = {"own rates": checks(what, own), other_words: checks(what, other)}
        failing = [name for name, found in beyond.items() if all_of(one.truth for one in found) is not True]
        phi, first = list(main.items())[-1]
        return claimed(
            "M10", f"{statement}; {subjects}, one rate for all phases, else at each phase's own or with {other_words}",
            checks(what, main), within=[one for found in beyond.values() for one in found],
            limit=f"not with {' nor with '.join(failing)}", undecided=_idle(what, main),
            headline=f"{phi}: {said(first)}",
        )  # fmt: skip

    parts = (
        (absorbs_first, "“the edge absorbs fastest”: steps until the largest share is at its level for good (a fifth "
         "of the way from even to 1), where phases are biased at the start", _said_times),
        (learns_best, "“the edge learns best”: accuracy on held-out points at the end, where one phase is past chance "
         "by 0.05", lambda s: _said(s, "test accuracy", scores)),
        (learns_fastest, "“the edge learns fastest”: accuracy on training points, averaged over looks (even on a "
         "logarithmic axis), where one phase ends past chance by 0.05", lambda s: _said(s, "accuracy", over_looks)),
        (keeps_bias, "“ordered networks keep the bias”: the largest share at the end",
         lambda s: _said(s, "largest", scores)),
        (chaos_is_poor, "“deep chaos learns poorly”: accuracy on held-out points at the end (tanh alone has neutral "
         "chaos)", lambda s: _said(s, "test accuracy", scores)),
    )  # fmt: skip
    return [judge(*part) for part in parts if checks(part[0], main)]


def _idle(what: Any, sweeps: dict[str, Sweep]) -> str:
    """Why a comparison says nothing though its errors may be small."""
    if what is absorbs_first:
        even = [f"{phi} {p}" for phi, s in sweeps.items() for p in (ORDERED, EDGE, BIASED) if not s.biased(p)]
        return f"not clearly biased at the start: {', '.join(even)}" if even else ""
    idle = [
        phi
        for phi, s in sweeps.items()
        if what in (learns_best, learns_fastest) and all(one.truth is None for one in what(s))
    ]
    return f"no phase of {' and '.join(idle)} ends past chance by 0.05" if idle else ""


def _said_times(s: Sweep) -> str:
    never = {phase: int((~np.isfinite(settled(arm))).sum()) for phase, arm in s.arms.items()}
    return ", ".join(
        f"{phase} {typical(number(s.times(phase)))}"
        + (f", {never[phase]} of {arm.networks} never" * bool(never[phase]))
        for phase, arm in s.arms.items()
    )


def _said(s: Sweep, what: str, statistic: Any) -> str:
    return ", ".join(f"{phase} {_short(number(statistic(arm, what)))}" for phase, arm in s.arms.items())


def _short(value: Number) -> str:
    return f"{value.value:.3f} ± {value.error:.3f}" if math.isfinite(value.error) else f"{value.value:.3f}"


def summary_rows(phi: str, s: Sweep) -> list[dict[str, Any]]:
    """What is compared, by phase; of predictions, too."""
    return [
        {"activation": phi, "sweep": s.words, "phase": phase, "source": source, "networks": arm.networks}
        | {"diverged": len(arm.diverged), "trust": arm.about.get("trust") or ""}
        | {
            "log10_steps_settled": number(log_steps(settled(arm), arm.last)),
            "largest_end": number(scores(arm, "largest")),
        }
        | {"test_accuracy_end": number(scores(arm, "test accuracy"))}
        | {"accuracy_over_looks": number(over_looks(arm, "accuracy"))}
        for source, arms in (("trained", s.arms), ("predicted", s.known))
        for phase, arm in arms.items()
    ]


def phases_title(sweeps: dict[str, Sweep], *, subject: str = "The edge of chaos", rates: str = "at one rate") -> str:
    """What was found of absorbing and learning; what was not decided is not said."""

    def found(what: Any) -> Truth:
        return all_of(one.truth for s in sweeps.values() for one in what(s))

    absorbs = {True: "absorbs its bias first", False: "is not the first to absorb its bias"}
    learns = {True: "learns best", False: "is not the best learner on held-out images"}
    first, best = found(absorbs_first), found(learns_best)
    if first is None and best is None:
        return f"Phases in training, {rates}"
    said = [absorbs[first]] if first is not None else []
    said += [learns[best]] if best is not None else []
    return f"{subject} {(' and ' if first == best else ', but ').join(said)}, {rates}"


Sweeps: TypeAlias = "dict[str, Sweep]"


def _tables(sweeps: Sequence[tuple[str, Sweep]], *, named: bool = True) -> dict[str, Any]:
    """All curves, and what is compared, of sweeps by activation; `named`: curves say which."""
    return {
        "curves": [
            ({"activation": phi} if named else {}) | {"sweep": s.words, **line, "rate": s.rates[line["arm"]]}
            for phi, s in sweeps for arm in (*s.arms.values(), *s.known.values()) for line in arm.rows()
        ],
        "summary": [line for one in sweeps for line in summary_rows(*one)],
    }  # fmt: skip


def phases_chart(sweeps: Sweeps, *, title: str) -> library.Chart:
    """A row of panels for every sweep: largest share, accuracy on training and on held-out points."""
    floor = 0.4 if all(s.classes == 2 for s in sweeps.values()) else None  # of two classes nothing happens below
    rows = {phi: (s.arms, s.known) for phi, s in sweeps.items()}
    return rows_chart(rows, ["largest", "accuracy", "test accuracy"], title=title, floor=floor)


def _phases(
    id: str, title: str, where: str, sweep: Callable[..., Sweeps], charts: Callable[[Found], dict[str, library.Chart]],
    notes: Callable[[Found], list[str]], *, depth: str, subjects: str, named: bool = True, **options: Any,
) -> Item:  # fmt: skip
    """An item: `sweep(c, depth, own)` at one rate, at own rates, and at a second depth; `depth`: its size in units."""
    size, _, unit = depth.partition(" in ")

    def quantities(c: Found) -> dict[str, Any]:
        first = c.known[size]
        return {"main": sweep(c, first, False), "own": sweep(c, first, True), "second": sweep(c, c.other, False)}

    return Item(
        id, title, where, claims=("M10",), quantities=quantities, charts=charts, notes=notes,
        judge=lambda c: judged(c.main, c.own, c.second, other_words=f"{c.other} {unit}", subjects=subjects),
        tables=lambda c: _tables([*c.main.items(), *c.own.items(), *c.second.items()], named=named),
        **options,
    )  # fmt: skip


BATCH = 100  # MF's
RATE = 0.2  # of the rate from which on the edge's bias overshoots (theory.md (17)), with two classes
RATE_OF_TEN = 0.1  # with ten: about MF's 1e-5 at its λ ≈ 1e5, the overshoot being at 10/λ
PHASES = {
    "ReLU": {ORDERED: "ReLU, ordered", EDGE: "ReLU, edge", BIASED: "ReLU, chaotic"},
    "tanh": {phase: f"tanh, {phase}" for phase in (ORDERED, EDGE, BIASED, NEUTRAL)},
}
_DRAWS = 30  # predicted networks


def _plain_sweep(c: Found, spec: str, depth: int, own: bool) -> Sweeps:
    """Trains every phase of both activations; `own`: at its own rate, else at the edge's."""
    x, held = with_held_out(c.run, spec, c.points, c.held)
    settings = {s.name: s for s in mf_settings()}
    if x.classes != 2:  # MF's multiple on CIFAR-10
        settings["ReLU, chaotic"] = Setting("ReLU, chaotic", "relu", 3.0, BIAS_VAR)
    return {phi: _plain_phases(c, settings, phi, x, held, depth, own) for phi in PHASES}


def _plain_phases(
    c: Found, settings: dict[str, Setting], phi: str, x: Data, held: Data, depth: int, own: bool
) -> Sweep:
    batch = part_of(x, np.arange(min(BATCH, x.n)))  # λ of the mode that all points of one mini-batch share
    texts = {phase: settings[name].text(depth) for phase, name in PHASES[phi].items()}
    known_rates = {
        phase: limits(c.run, text, batch, c.width, f"{PHASES[phi][phase]}, {depth} layers")
        for phase, text in texts.items()
    }
    found = Sweep({}, {}, {}, f"{depth} layers, {'own rates' if own else 'one rate'}")
    for phase, text in texts.items():
        overshoot, limit = known_rates[phase]
        rate = (RATE if x.classes == 2 else RATE_OF_TEN) * (overshoot if own else known_rates[EDGE][0])
        label = f"{PHASES[phi][phase]}, {depth} layers" + (", own rate" if own else "")
        options: dict[str, Any] = {"label": label, "test": held, "optimizer": "sgd", "batch": BATCH, "lr": rate}
        options |= {"steps": few_looks(c.steps), "width": c.width}
        found.arms[phase] = replace(trained(c.run, text, x, inits=c.inits, parts=c.parts, **options), label=phase)
        found.rates[phase] = rate
        if rate < limit and depth == c.depth:
            try:
                found.known[phase] = replace(predicted(c.run, text, x, draws=_DRAWS, **options), label=phase)
            except FirstguessError:
                continue  # a rate at which the wide limit has no prediction
    return found


def _plain_charts(c: Found) -> dict[str, library.Chart]:
    rates = "with a rate of its own for each phase"
    return {"one_rate": phases_chart(c.main, title=phases_title(c.main)),
            "own_rates": phases_chart(c.own, title=phases_title(c.own, rates=rates))}  # fmt: skip


def _notes(c: Found) -> list[str]:
    trusts = {f"{phi} {phase}: {arm.about.get('trust')}" for phi, s in c.main.items()
              for phase, arm in (c.own[phi].known | s.known).items()}  # fmt: skip
    rates = "; ".join(
        f"{phi} {s.rates[EDGE]:.2g} (own: {', '.join(f'{p} {r:.2g}' for p, r in c.own[phi].rates.items())})"
        for phi, s in c.main.items()
    )
    lost = [
        f"{phi} {phase}, {s.words}: {len(arm.diverged)} of {arm.networks}"
        for sweeps in (c.main, c.own) for phi, s in sweeps.items() for phase, arm in s.arms.items() if arm.diverged
    ]  # fmt: skip
    return [
        f"Learning rates: {rates}. Predictions are missing where a rate is beyond the one that has any.",
        f"Trust in the predictions, in their own words: {'; '.join(sorted(trusts)) or 'none made'}.",
        "Networks that diverged (NaN) count as guessing a single class: " + ("; ".join(lost) or "none did") + ".",
    ]


_PLAIN: dict[str, Any] = {
    "charts": _plain_charts, "notes": _notes, "depth": "depth in layers", "subjects": "ReLU and tanh",
}  # fmt: skip
training = _phases(
    "mf/training", "Phases in training: Fashion-MNIST by parity", "MF, main figures on Fashion-MNIST",
    lambda c, depth, own: _plain_sweep(c, "fashion_mnist:parity", depth, own), needs=("fashion_mnist",),
    about="{depth} hidden layers of {width} (MF: 100 of 1000), again with {other}; MF's seven settings, bias variance "
    "0.1; mini-batches of 100 (MF's), plain descent, {steps} steps (in units of the bias's own time, rate × λ × "
    "steps, 160 are about MF's 10 000 at 1e-7), {networks} networks each; {points} images, {held} held-out ones. One "
    "rate for all phases of an activation, 0.2 of the edge's overshoot, and once more 0.2 of each phase's own.",
    quick=dict(depth=16, other=8, width=50, steps=40, inits=10, parts=1, points=150, held=150),
    full=dict(depth=30, other=15, width=150, steps=160, inits=10, parts=1, points=300, held=300),
    seconds=(22, 300), **_PLAIN,
)  # fmt: skip

training_cifar10 = _phases(
    "mf/training-cifar10", "Phases in training: CIFAR-10", "MF, main figures on CIFAR-10",
    lambda c, depth, own: _plain_sweep(c, "cifar10", depth, own), needs=("cifar10",),
    about="As mf/training with ten classes: {depth} hidden layers of {width} (MF: 100 of 1000), again with {other}; "
    "{steps} steps (fewer than MF's 10 000 at 1e-5 in the bias's own time, too: training ends long before theirs), "
    "{networks} networks each; {points} images, {held} held-out ones; rates are 0.1 of the overshoot, ReLU's chaos is "
    "at 1.5 × critical (MF's here).",
    quick=dict(depth=10, other=5, width=40, steps=40, inits=10, parts=1, points=150, held=150),
    full=dict(depth=30, other=15, width=120, steps=150, inits=10, parts=1, points=600, held=400),
    seconds=(30, 300), **_PLAIN,
)  # fmt: skip


MULTIPLES = {ORDERED: 0.7, EDGE: 1.0, BIASED: 1.3}
_NAME = "plain transformer"
_PROBED = 1000  # members that give the rates are none of those that are trained


def _vit_sweep(c: Found, blocks: int, own: bool) -> Sweeps:
    x, held = with_held_out(c.run, "cifar10:vehicles-animals", c.points, c.points)
    sizes: dict[str, Any] = {"blocks": blocks, "width": c.width}
    variances = {phase: times * EXPECTED for phase, times in MULTIPLES.items()}
    given: dict[str, Any] = {"x": x.x[: c.batch], "seed": c.run.seed, **sizes}
    found = {phase: c.run.keep(_eigenvalues, label=f"rate at {v:.3f}", weight_var=v, **given)["values"]
             for phase, v in variances.items()}  # fmt: skip
    units = {phase: 2.0 / float(values.mean()) for phase, values in found.items()}
    rates = {phase: RATE * units[phase if own else EDGE] for phase in variances}
    arms = {
        phase: replace(trained(
            c.run, factory(weight_var=v, **sizes), x, test=held,
            name=f"vanilla ViT, {blocks} blocks of {c.width}, weight_var {v!r}",
            inits=10, parts=c.parts, label=f"{phase}, {blocks} blocks" + (", own rate" if own else ""), optimizer="sgd",
            lr=rates[phase], batch=c.batch, steps=few_looks(c.steps), strategy="loop",
        ), label=phase)
        for phase, v in variances.items()
    }  # fmt: skip
    return {_NAME: Sweep(arms, {}, rates, f"{blocks} blocks, {'own rates' if own else 'one rate'}")}


vit_training = _phases(
    "mf/vit-training", "Phases in training: a vision transformer without norms and skips", "MF, vanilla ViT",
    _vit_sweep, needs=("cifar10",),
    about="Patches of 4, {blocks} blocks of width {width} (MF: 20 of 300), again with {other}, one head, ReLU, no "
    "biases, norms, skips or positions; weight variance 0.7, 1, 1.3 × 2^¼ (mf/vit measures what is critical); "
    "CIFAR-10, vehicles against animals, {points} images and as many held-out ones, mini-batches of {batch}, plain "
    "descent, {steps} steps, {parts} × 10 networks each; one rate for all, 0.2 of the critical network's overshoot, "
    "and once more 0.2 of each one's own.",
    quick=dict(blocks=3, other=2, width=24, points=50, batch=25, steps=16, parts=1),
    full=dict(blocks=8, other=4, width=40, points=100, batch=40, steps=60, parts=1),
    seconds=(17, 280), depth="blocks in blocks", subjects="vanilla ViT, critical weight variance 2^¼", named=False,
    charts=lambda c: {"one_rate": phases_chart(
        {"One rate": c.main[_NAME], "Own rates": c.own[_NAME]},
        title=phases_title(c.main, subject="A plain transformer's edge of chaos", rates="at one rate (above)"),
    )},
    notes=lambda _: [
        "There is no prediction: the tangent kernel of attention is not carried. The overshoot is 2/λ with λ = "
        "½‖∇ of the mean logit difference‖², measured on four other networks.",
    ],
)  # fmt: skip


def factory(*, width: int, blocks: int, weight_var: float) -> Any:
    """Makes a network from torch's own generator, which `fg.train` seeds for every member."""

    def make() -> Any:
        import torch

        from firstguess_papers.models import VanillaViT

        drawn = int(torch.randint(1 << 31, ()))
        return VanillaViT(width=width, blocks=blocks, classes=2, weight_var=weight_var, seed=0, member=drawn)

    return make


def _eigenvalues(x: Any, *, weight_var: float, blocks: int, width: int, seed: int) -> dict[str, Any]:
    """λ of the mode that all points of a mini-batch share, of four networks: ½‖∇ mean(f₁ − f₀)‖²."""
    import torch

    from firstguess_papers.models import VanillaViT

    images = torch.tensor(np.asarray(x, dtype=np.float32)).reshape(-1, 3, 32, 32)
    found: list[float] = []
    for member in range(_PROBED, _PROBED + 4):
        model = VanillaViT(width=width, blocks=blocks, classes=2, weight_var=weight_var, seed=seed, member=member)
        logits = model(images)
        slopes = torch.autograd.grad((logits[:, 1] - logits[:, 0]).mean(), list(model.parameters()))
        found.append(0.5 * sum(float((g.double() ** 2).sum()) for g in slopes))
    return {"values": np.array(found)}
