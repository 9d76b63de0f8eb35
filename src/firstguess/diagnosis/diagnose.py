"""`diagnose`: look, measure, trace, read, predict, differentiate, train copies, try remedies; one answer from it."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any, Unpack, cast

import torch
from torch import nn

from firstguess.base import checks
from firstguess.base.errors import FirstguessError, InvalidInput, NotFinite
from firstguess.base.progress import showing
from firstguess.base.text import percent
from firstguess.data.streams import POINTS
from firstguess.diagnosis import advice as advising
from firstguess.diagnosis import session
from firstguess.diagnosis.advice import Advised, Descent, Trial
from firstguess.diagnosis.answer import LEAST_STEPS, LITTLE, apart, serious, trainability_of
from firstguess.diagnosis.bias_duration import PredictedDuration, predict_duration
from firstguess.diagnosis.causes import Found, causes_of, ranked, without_ending
from firstguess.diagnosis.expectation import Expected, expectation
from firstguess.diagnosis.faults import Fault, Patient, check_loss, find_faults
from firstguess.diagnosis.faults.labels import MAY_NOT_GO, by_heart
from firstguess.diagnosis.faults.order import arranged
from firstguess.diagnosis.rehearsal import LONGEST, Rehearsal, RehearsalPlan, TrainedWith, rehearse, trained_with
from firstguess.diagnosis.remedies import Case
from firstguess.diagnosis.remedies.base import inputs_of
from firstguess.diagnosis.result import Diagnosis, Goal, Verdict
from firstguess.diagnosis.session import Clock, Progress, Stages, Subject
from firstguess.diagnosis.verdict import broken, check_fresh, verdict_of
from firstguess.ensemble.measurement import Measurement
from firstguess.ensemble.member_statistics import PARTLY, Finding, FindingKind
from firstguess.modules.call_model import part
from firstguess.modules.hooks.examination import Examination
from firstguess.modules.optimizers import recipe
from firstguess.modules.options import OPTIONS, ModelOptions, settled
from firstguess.modules.outputs import BY_SIGN
from firstguess.modules.train import LR
from firstguess.network.walk import every, needs_images, needs_tokens

# As many networks on every machine, so that the verdict is the same: few models need the time allowed.
INITS, SECONDS = 64, 180.0
_KERNEL_POINTS = 1000
_FEW = 16  # points that the loss is tried on

# Parts of the time allowed: most of it draws networks, for the verdict and for the remedies.
_LOOK, _MEASURE, _FLOW, _EFFECTS, _EXPECT, _GRADIENTS = 0.02, 0.34, 0.05, 0.1, 0.05, 0.1
_LASTING, _COPIES, _ADVICE = 0.05, 0.1, 0.18
_QUESTIONS = 0.05  # to loss, optimizer and copies
_ANYWAY = 0.2  # seconds that questions may take even where time is up: of a small model all of them
_AFTER_CAUSES = _EXPECT + _GRADIENTS + _QUESTIONS + _LASTING + _COPIES + 0.4 * _ADVICE  # for all that follows them
_HEADS = 0.03  # within that for advice: centred heads


@checks.takes(OPTIONS)
@showing("diagnosing")
@torch.inference_mode(False)  # a copy made in a caller's inference mode could not be differentiated
def diagnose(
    what: object,
    data: object,
    *,
    inits: int = INITS,
    seed: int = 0,
    points: int = POINTS,
    seconds: float = SECONDS,
    classes: int | None = None,
    width: int = 1000,
    batch_size: int | None = None,
    advice: bool = True,
    progress: Progress | bool | None = None,
    precision: float | None = None,
    loss: Any = None,
    optimizer: Any = None,
    lr: float | None = None,
    steps: int | None = None,
    epochs: int | None = None,
    goal: Goal = "even start",
    name: str | None = None,
    data_name: str | None = None,
    **options: Unpack[ModelOptions],
) -> Diagnosis:
    """Say what to do about how a network guesses before training: fix this, worth a change, harmless, nothing to do.

    Ctrl-C keeps the parts that are done, once there is a measurement: a finding then says what was left out.

    >>> d = diagnose("5 x [dense(weight_var=2) > relu] > dense", "blob:n=200,d=50", inits=30, width=200, advice=False)
    >>> d.verdict.name, d.causes[0].words, str(d.answer)
    ('biased', 'the 5 ReLU layers', 'not known')

    Args:
        what: An `nn.Module` (re-initialized, never changed), a class, a factory, a `Network` or its text.
        data: Anything that `fg.measure` takes: a loader, arrays, `Data`, a name.
        inits: Number of initializations, the same on every machine.
        seed: Random seed.
        points: Data points at most, always the same ones.
        seconds: About how long it may take: fewer initializations are drawn when time is up, and the verdict is then
            called preliminary.
        classes: For a text, the number of classes (default: that of the labels, or 2).
        width: Width of layers of a description that name none.
        batch_size: Size of the batches that a model gets; BatchNorm depends on it.
        advice: Try remedies.
        progress: Called with (percent done, 100); by default a bar, on a terminal; False: none.
        precision: As for `fg.measure`.
        loss: What you will train with: a function of outputs and labels (default: cross-entropy).
        optimizer: Likewise: an optimizer of this model, a class of `torch.optim`, a function of the parameters, "gd"
            (full batches), "sgd" or "adam" (default: Adam at 1e-3). Copies are trained with it for some steps, in the
            batches that the model gets; an optimizer that you pass is not stepped.
        lr: The rate, where the optimizer does not have it.
        steps: How long you will train, or
        epochs: (default: one epoch, at least 100 steps): a bias that is gone by then is harmless.
        goal: What advice is ranked by: "even start" (the largest share that is left), "trainability" (the least
            nonlinear, with gradients that keep their size), "worst class early" (both, as far as theory.md §10 knows).
        name: What the page calls the network (default: its class, its factory, or your variable).
        data_name: What the page calls the data (default: their own name, or your variable).
        options: `ModelOptions`, as for `fg.measure`: init, logits, forward, mode, redraw and others.
    """
    checks.within(seconds, "a time in seconds", "diagnose(seconds)", "seconds=180", infinite=True)
    points = checks.count(points, 2, "number of points", "diagnose(points)", "points=1000")
    using = trained_with(optimizer, lr, loss, what)
    checks.choice(goal, advising.GOALS, "diagnose(goal)", "goal")
    known = settled(options) | checks.given(precision=precision)
    clock = Clock(float(seconds))
    names = name or session.model_name(what), data_name or session.data_name(data)
    subject = Subject(what, data, points, classes, width, batch_size, seed, known)
    subject.name, subject.data_name = name or subject.name or names[0], names[1]
    run = _length(subject, steps, epochs)
    said = optimizer is not None or lr is not None
    if said and not isinstance(optimizer, torch.optim.Optimizer):
        trainer = recipe(using.make, using.rate(math.nan) if isinstance(using.make, str) else None).make
    else:
        trainer = optimizer
    asked = {"loss": loss if callable(loss) else None, "optimizer": trainer, "logits": known.get("logits")}
    asked["steps"] = run if steps or epochs else None
    asked["loader"] = data if hasattr(data, "dataset") and (said or loss is not None) else None
    assert callable(progress)  # see `showing`
    tick = progress
    tick(0, 100)
    look = subject.look(max(_LOOK * seconds, min(1.0, 0.1 * seconds)))
    first, last = session.LOOKED, session.MEASURED
    tick(first, 100)
    cheap = look is not None and not look.a_point * sum(batch.size for batch in subject.batches) > _QUESTIONS * seconds
    if callable(loss) and subject.model is not None and cheap:  # one line, rather than a page of a loop that would fail
        few = part(subject.batches[0], 0, min(_FEW, subject.batches[0].size))
        patient = Patient(subject.model, [few], loss, pick=known.get("logits"), seed=seed, seconds=math.inf)
        check_loss(patient, fitted=True)
    fewer = subject.fit(look, _MEASURE * seconds)

    def measuring(done: int, total: int) -> None:
        tick(first + (last - first) * done // max(total, 1), 100)

    try:
        m = subject.measure(inits=inits, seconds=_MEASURE * seconds, progress=measuring)
    except NotFinite as error:
        return replace(_broken(subject, error, clock), faults=_faults(subject, look, None, asked, clock)[0])
    check_fresh(m)
    if look is not None and look.now.single and look.now.probabilities:
        subject.decide_at_half()
    partly = any(finding.kind in PARTLY for finding in m.findings)
    notes: list[str] = [subject.note] if subject.note else []
    unlabelled = any(batch.labels is None for batch in subject.batches)
    if look is not None and look.now.single and unlabelled and not look.now.probabilities:
        notes.append(BY_SIGN)
    parts = Stages(m, clock, tick, notes)
    parts.tick(last)
    verdict = verdict_of(m, wanted=inits)
    if hasattr(tick, "say"):  # a provisional answer next to the bar
        share = f"{verdict.name}, {percent(m.guesses.expected_max())} in one class"
        seen_faults = find_faults(look, m)[0]
        cast("Any", tick).say(f"so far: {f'fix this: {seen_faults[0].name}' if seen_faults else share}")
    flow = parts.attempt("causes", lambda: subject.flow(clock.share(_FLOW)), members=2)
    causes, given = Found(), math.nan
    if flow is not None:
        flow = without_ending(flow, m)
        if partly:
            flow = subject.fresh_part(flow)
            given = flow.steps[0].before if flow.steps else math.nan
            notes.append("causes are those of the fresh part")
        allowed = clock.spare(_EFFECTS, reserve=_AFTER_CAUSES)
        effects = partial(subject.effects, flow, m=m, seconds=allowed)
        found = parts.attempt("effects of causes", lambda: ranked(flow, effects, seconds / allowed), members=2)
        causes = found or Found(causes_of(flow))
    parts.tick(session.CAUSES)
    late = None, "there was no time to read it"
    structure, why = parts.do("structure", lambda: subject.structure(m), quick=True, members=2) or late

    def expect() -> Expected:
        given, own = subject.data(_KERNEL_POINTS), subject.own_size
        return expectation(subject.network, why, given, m, size=own, seed=seed, seconds=_EXPECT * seconds)

    expected = parts.do("theory", expect, quick=True) or Expected(None, None, "it was left out")
    parts.tick(session.EXPECTED)
    gradients = parts.attempt("gradients", lambda: subject.gradients(clock.share(_GRADIENTS), m), members=4)
    theory = math.nan if subject.network is None else advising.growth(subject.network)
    plain = subject.network is not None and subject.network.plain  # else phases mean nothing
    train = None if gradients is None else trainability_of(gradients, plain=plain, predicted=theory)
    parts.tick(session.DIFFERENTIATED)
    faults, unasked = _faults(subject, look, m, asked, clock)
    notes += unasked
    lasts = None
    if subject.network is not None:
        title, failed = "how long the bias lasts", "prediction of how long the bias lasts"
        lasts = parts.attempt(title, partial(_duration, subject, m, verdict, using, clock), members=16, failed=failed)
    parts.tick(session.LASTED)
    counts = verdict.name not in LITTLE
    given_training = optimizer is not None or lr is not None or loss is not None
    doubt = next((note for note in unasked if note.startswith(MAY_NOT_GO)), "")
    rate = math.nan if lasts is None else lasts.lr
    rehearsal = partial(_rehearsed, subject, using, rate, run, clock, doubt, counts, given_training)
    seen = parts.do("copies in training", rehearsal, members=8)
    parts.tick(session.REHEARSED)
    if seen is not None and seen.by_heart:
        faults = arranged([*faults, by_heart(seen.own, seen.held, seen.held_error, seen.last)])
    if fewer:
        verdict = replace(verdict, preliminary=f"{verdict.preliminary or f'{m.inits} initializations'}, {fewer}")
    tried = Advised()
    if to_fix := serious(faults, gradients, seen):
        notes.append(f"no remedies were tried: fix this first ({to_fix[0].name})")
    elif advice:
        left = max(0.0, clock.left)
        case = Case(
            subject.network,
            subject.model,
            subject.batches,
            m,
            flow,
            study=subject.study,
            pick=known.get("logits"),
            trusted=expected.trusted,
            logits=partial(subject.logits, seconds=clock.share(_HEADS)),
            gamma=verdict.gamma,
            seconds=left,
        )
        subject.release()
        trial = Trial(
            case,
            expected.for_changes,
            subject.convert,
            subject.variant,
            seconds=left,
            seed=seed,
            goal=goal,
            width=width,
            at="" if expected.wide is None else ", infinite width",
            only="centre the head" if partly else "",
            remark=expected.why if expected.wide is None else "",
            descent=_descent(subject, lasts),
        )
        tried = parts.do("remedies", lambda: advising.advise(trial)) or tried
        if tried.interrupted:
            parts.interrupt("some remedies" if tried.advice else "remedies")
    parts.tick(session.ADVISED)
    hidden = max(0, len(m.weights_layers) - 1)
    # What is known is known of training from scratch.
    better = (
        "" if partly else advising.with_labels(advising.case_of(verdict, train, hidden, lasts, seen), subject.batches)
    )
    changes = advising.with_measured(tried.advice, train)
    found = Diagnosis(verdict, causes.causes, expected, train, changes, better, subject.name, m, structure)
    assumed = _assumed(using, run, said=steps is not None or epochs is not None)
    return replace(
        found,
        findings=_findings(parts.findings(m), subject, m.classes),
        notes=(*(structure.notes if structure is not None else ()), *notes, *causes.notes, *tried.notes),
        provenance=m.provenance,
        seconds=clock.passed,
        faults=faults,
        lasting=lasts,
        goal=goal,
        data_name=subject.data_name,
        rehearsal=seen,
        run=run,
        assumed=assumed if _duration_known(lasts, seen) else "",
        causes_need=causes.needed,
        given=given,
    )


def _duration_known(lasts: PredictedDuration | None, seen: Rehearsal | None) -> bool:
    """Whether the page says something of training, by theory or by copies."""
    return (seen is not None and seen.known) or (lasts is not None and math.isfinite(lasts.steps))


def _assumed(using: TrainedWith, run: int, *, said: bool) -> str:
    """What the user did not say of the training."""
    parts = [f"{using.title} at lr {using.rate(math.nan):.3g}"] if using.chosen else []
    parts += ["cross-entropy"] if using.chosen and using.loss == "cross-entropy" else []
    parts += [] if said else [f"a run of {run} steps"]
    names = [name for name, part in (("optimizer=, loss=", using.chosen), ("steps=", not said)) if part]
    return f"{', '.join(parts)} (pass {', '.join(names)})" if parts else ""


def _faults(
    subject: Subject, look: Examination | None, m: Measurement | None, asked: dict[str, Any], clock: Clock
) -> tuple[tuple[Fault, ...], tuple[str, ...]]:
    """Those of a model as it is, with what its loss and optimizer tell where somebody says these."""
    if subject.model is None:
        return find_faults(look, m)
    points = sum(batch.size for batch in subject.batches)
    a_point = 0.0 if m is None else m.seconds / max(1, m.inits) / points  # a look is slow where it is the first call
    seconds, known = max(clock.share(_QUESTIONS), _ANYWAY), {"model": subject.model, "batches": subject.batches}
    return find_faults(look, m, seconds=seconds, a_point=a_point, **known, **asked)


def _length(subject: Subject, steps: int | None, epochs: int | None) -> int:
    """Steps of the run."""
    if steps is not None and epochs is not None:
        raise InvalidInput("steps or epochs, one of them", got="both", where="diagnose", hint=f"steps={steps}")
    if steps is not None:
        return checks.count(steps, 1, "number of steps", "diagnose(steps)", "steps=1000")
    count = 1 if epochs is None else checks.count(epochs, 1, "number of epochs", "diagnose(epochs)", "epochs=10")
    whole = count * math.ceil(subject.total / subject.batches[0].size)
    return whole if epochs is not None else max(LEAST_STEPS, whole)


def _rehearsed(
    subject: Subject,
    using: TrainedWith,
    predicted: float,
    run: int,
    clock: Clock,
    doubt: str,
    counts: bool,
    given: bool,
) -> Rehearsal:
    """Copies of the model, or of the network that a description describes, in their first steps. `counts`: the answer
    hangs on the number of steps; `given`: the user says how it is trained, so that data are those of training."""
    seconds = clock.spare(_COPIES, reserve=_ADVICE)
    own = not isinstance(using.make, str | type | partial)  # a function, which has the rate
    words = using.words(predicted)
    plan = RehearsalPlan(
        subject.maker,
        subject.batches,
        subject.loss_of_logits(using.loss),
        using.make,
        lr=LR if own else using.rate(predicted),
        words=words,
        options=subject.drawn_by,
        seed=subject.seed,
        easy=subject.easy(),
        doubt=doubt,
        hold_out=given,
    )

    def sure(found: Rehearsal) -> bool:
        return not counts or not apart(found.low, found.high)

    def enough(found: Rehearsal) -> bool:
        over = 2 * found.diverged >= found.inits
        return over or (found.learns and not found.behind and (math.isnan(found.steps) or found.steps < math.inf))

    try:
        return rehearse(plan, enough=enough, sure=sure, seconds=seconds, most=max(run, LONGEST))
    except (FirstguessError, RuntimeError, TypeError, ValueError, AttributeError, LookupError) as error:
        said = error.reason if isinstance(error, FirstguessError) else str(error).partition("\n")[0]
        return Rehearsal(why=f"no copy could be trained: {said}", how=words)


def _descent(subject: Subject, lasts: PredictedDuration | None) -> Descent | None:
    """The closed form's descent, where the kernel could follow this network's bias under plain descent."""
    x = inputs_of(subject.batches)
    if lasts is None or not lasts.known or lasts.optimizer != "gd" or x is None:
        return None
    return Descent(lasts.lr, subject.width, x[0].numel(), len(x))


def _findings(findings: tuple[Finding, ...], subject: Subject, classes: int) -> tuple[Finding, ...]:
    """All, but that classes differ where they are tokens and the head is tied: it favours the tokens of the input."""
    network, model = subject.network, subject.model
    of_tokens = network is not None and network.layers[-1].each_token
    if not of_tokens and not (isinstance(model, nn.Module) and _is_tied(model, classes)):
        return findings
    return tuple(finding for finding in findings if finding.kind != FindingKind.CLASSES_DIFFER)


def _is_tied(model: nn.Module, classes: int) -> bool:
    """Whether one parameter is both a lookup with this number of rows and the weight of another layer."""
    lookups = [m for m in model.modules() if isinstance(m, nn.Embedding) and len(m.weight) == classes]
    others = [getattr(m, "weight", None) for m in model.modules() if not isinstance(m, nn.Embedding)]
    return any(weight is lookup.weight for lookup in lookups for weight in others)


def _duration(
    subject: Subject, m: Measurement, verdict: Verdict, using: TrainedWith, clock: Clock
) -> PredictedDuration | None:
    """Where a description was read; nothing where "Is it expected?" says already why there is none."""
    if subject.network is None or subject.network.classes != m.classes or verdict.name == "degenerate head":
        return None
    if verdict.name == "even":
        return PredictedDuration("there is hardly any: guesses are about even at the start")
    if needs_tokens(subject.network.layers):
        return PredictedDuration("not predicted: no tangent kernel of attention is known here")
    if needs_images(subject.network.layers) and any(layer.kind == "maxpool" for layer in every(subject.network.layers)):
        return PredictedDuration("not predicted: no tangent kernel of max-pooling is known here")
    ending = next((f.message for f in m.findings if f.kind == FindingKind.PROBABILITIES), "log-softmax")
    if "log-softmax" not in ending:  # whose loss is that of the logits
        return PredictedDuration("not predicted: the model returns probabilities, and theory is of a loss of logits")
    if using.why or using.named is None:
        return PredictedDuration(f"not predicted: {using.why}")
    batch = None if using.named == "gd" else subject.batches[0].size
    known: dict[str, Any] = {"batch": batch, "lr": using.lr, "optimizer": using.named, "whole": subject.whole}
    known |= {"width": subject.width, "seconds": clock.share(_LASTING), "seed": subject.seed}
    return predict_duration(subject.network, subject.data(m.points), subject.starts, **known)


def _broken(subject: Subject, error: NotFinite, clock: Clock) -> Diagnosis:
    verdict = broken("every initialization gives NaN or Inf", error.where)
    expected = Expected(None, None, "the network gives no finite logits")
    findings = (Finding(FindingKind.NONFINITE, str(error), error.where),)
    found = Diagnosis(verdict, (), expected, None, (), "", subject.name, None, None, findings)
    return replace(found, seconds=clock.passed, data_name=subject.data_name)
