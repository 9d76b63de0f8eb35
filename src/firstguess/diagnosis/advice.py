"""Remedies, tried: each variant is predicted where it can be read, else measured on a small ensemble."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.base.text import size_change
from firstguess.data import Batch, Data
from firstguess.diagnosis.answer import LITTLE, as_predicted
from firstguess.diagnosis.expectation import predicted
from firstguess.diagnosis.remedies import REMEDIES, Case, Variant
from firstguess.diagnosis.remedies.base import signal_of
from firstguess.diagnosis.result import Advice, Goal, Trainability, Verdict
from firstguess.ensemble.member_statistics import FindingKind
from firstguess.network.inputs import Inputs
from firstguess.network.network import Network, pytorch_code
from firstguess.network.walk import every, needs_images, needs_tokens
from firstguess.theory.predict import predict
from firstguess.theory.prediction import Prediction
from firstguess.theory.references import NORM_PLACE, TRAINABILITY
from firstguess.theory.tune import stand

if TYPE_CHECKING:
    from firstguess.diagnosis.bias_duration import PredictedDuration
    from firstguess.diagnosis.rehearsal import Rehearsal
    from firstguess.ensemble.measurement import Measurement
    from firstguess.network.network import Network


# What theory adds to a change that was tried: nonlinearity, expected absorption, and the network written out.

GOALS: tuple[Goal, ...] = ("even start", "trainability", "worst class early")
# Of 20 layers on Fashion-MNIST: networks of P up to 3 were fast, from 19 on slow, theory.md §10.
_FAST, _SLOW_BY_THEORY = 3.0, 19.0
_ALIKE = 0.05  # of the largest share


class Descent(NamedTuple):
    """Full-batch descent, for the steps until a bias is absorbed."""

    lr: float
    width: int
    dimension: int
    points: int


class Outlook(NamedTuple):
    """P of theory.md (31), and the median steps of descent by (16); NaN where it is not known."""

    nonlinearity: float = math.nan
    absorption: float = math.nan


@lru_cache(maxsize=64)
def outlook(network: Network, inputs: Inputs, descent: Descent | None) -> Outlook:
    """The closed form's outlook, without tokens and pools: theory's gradients are those of single units and positions.

    >>> net = Network.parse("3 x [dense(weight_var=2) > relu] > dense(weight_var=2)")
    >>> print(f"{outlook(net, Inputs(), None).nonlinearity:.4f}")
    2.5305
    """
    pools = any(layer.pools > 1 for layer in every(network.layers))
    if pools or needs_tokens(network.layers) or needs_images(network.layers):
        return Outlook()
    try:
        p = predict(network, inputs=inputs)
        nonlinearity = stand(p).nonlinearity
    except FirstguessError:
        return Outlook()
    try:
        found = None if descent is None else p.absorption(**descent._asdict())
        return Outlook(nonlinearity, math.nan if found is None else float(found.median))
    except FirstguessError:  # no tangent kernel of some layer, or a rate that overshoots
        return Outlook(nonlinearity)


def written(network: Network | None, width: int) -> str:
    """A description as PyTorch; nothing where a layer has no source."""
    if network is None:
        return ""
    try:
        return pytorch_code(network, width=width)
    except FirstguessError:
        return ""


def order(goal: Goal, a: Advice) -> tuple[float, ...]:
    """The smaller, the better for this goal; what is not worth making comes last in any."""
    p, first = a.nonlinearity_after, float(not a.worth_it)
    if goal == "even start":
        # Of two that come to about the same, the one that changes more than first guesses.
        about, cosmetic = round(a.largest_after / _ALIKE), float(a.aim == "first guesses")
        return (float(not a.helps), first, about, cosmetic, a.largest_after)
    if goal == "trainability":
        change = abs(math.log(a.gradient_after)) if a.gradient_after > 0 else math.inf
        return (first, math.inf if math.isnan(p) else p, change, a.largest_after)
    band = 2.0 if math.isnan(p) else 0.0 if p <= _FAST else 1.0 if p < _SLOW_BY_THEORY else 3.0
    return (first, band, a.largest_after)


Measure = Callable[["Variant", float], "Measurement"]  # a small ensemble of a variant, within some seconds

_KERNEL = 0.2  # of the time for advice, for one prediction
_MILD = 0.1  # of the logarithm of a factor per layer: not worth a caution
_STUDIED = 4.0  # members that it takes at least to study an edited model and to draw two of it
_SLOW, _LEAST = ("tune", "centre the head"), 1.0  # remedies that compute before they offer, and seconds they need
_UNEVEN, _ENOUGH = 5, 50  # labels: times as many, and this many at least
_JUDGED = 8  # initializations of a changed network, at least: of fewer a share has no error to speak of
_DEEP = 5  # hidden layers from which "deep" is meant


@dataclass(frozen=True, eq=False)
class Trial:
    """What trying needs: the case, its prediction where there is one, data as an array, and how to measure."""

    case: Case
    prediction: Prediction | None
    as_data: Callable[[Sequence[Batch]], Data | None]
    measure: Measure
    seconds: float
    seed: int
    goal: Goal = "even start"
    width: int = 1000
    at: str = ""  # of which width changes are predicted, where the page has another prediction
    only: str = ""  # the one remedy that applies, where part of the model keeps its values
    remark: str = ""  # on what the prediction is of, where that is not all points: that of a change must be the same
    descent: Descent | None = None  # for the steps until a bias is absorbed; None: not requested, or not known


@dataclass(frozen=True)
class Advised:
    """Remedies that were tried, best first; notes on what could not be; and whether Ctrl-C ended it."""

    advice: tuple[Advice, ...] = ()
    notes: tuple[str, ...] = ()
    interrupted: bool = False


def advise(trial: Trial) -> Advised:
    """All remedies that apply, tried one by one; after Ctrl-C, those that were."""
    notes: list[str] = []
    found, interrupted = list[Advice](), False
    try:
        found.extend(_each_tried(trial, notes))
    except KeyboardInterrupt:
        interrupted = True
    return Advised(tuple(sorted(found, key=lambda a: order(trial.goal, a))), tuple(notes), interrupted)


def _each_tried(trial: Trial, notes: list[str]) -> Iterator[Advice]:
    started = time.perf_counter()
    m = trial.case.measurement
    least = _STUDIED * m.seconds / max(1, m.inits)
    for index, (name, remedy) in enumerate(REMEDIES.items()):
        if trial.only and name != trial.only:
            continue
        if name in _SLOW and trial.seconds - (time.perf_counter() - started) < _LEAST:
            notes.append(f"not tried, because time was up: {name}")
            continue
        # One by one: each has a copy of the model.
        for variant in _offered(name, remedy, trial, notes):
            left = trial.seconds - (time.perf_counter() - started)
            own = variant.unchanged or variant.outcome is not None  # nothing is drawn for it
            if not own and (variant.network is None or not _predicts(trial)) and left < least:
                notes.append(f"not tried, because time was up: {variant.title}")
                continue
            try:
                tried = _with_theory(_tried(variant, name, trial, left / (len(REMEDIES) - index)), variant, trial)
            except FirstguessError as error:
                notes.append(f"could not be tried: {variant.title} ({error.reason})")
                continue
            if variant.otherwise and not tried.helps:
                tried = replace(tried, note=tried.note.replace(variant.note, variant.otherwise, 1))
            yield tried
            del variant  # with its copy of the model, before the next has one


def _offered(name: str, remedy: Any, trial: Trial, notes: list[str]) -> Iterator[Variant]:
    try:
        yield from remedy(trial.case)
    except FirstguessError as error:
        notes.append(f"could not be tried: {name} ({error.reason})")


def _predicts(trial: Trial) -> bool:
    """A prediction that is not what was measured says nothing of a change either."""
    return trial.prediction is not None and trial.case.trusted


def _tried(variant: Variant, name: str, trial: Trial, seconds: float) -> Advice:
    """The advice with before and after by one reading, which is named."""
    said: dict[str, Any] = {"note": variant.note, "remedy": name, "aim": variant.aim, "price": variant.price}
    said["code"] = variant.code or written(variant.network, trial.width)
    m, before = trial.case.measurement, trial.prediction
    gamma = m.layers[-1].gamma if m.layers else math.nan
    largest = m.guesses.expected_max()
    if variant.unchanged:
        same = (gamma, gamma, largest, largest, 0.0)
        return Advice(variant.title, variant.edit, "measured", *same, **said, reading=f"{m.inits} initializations")
    if (own := variant.outcome) is not None:
        error = math.hypot(m.guesses.standard_error("expected_max"), own.error)
        factor = math.nan if before is None else growth(before.network)
        said |= {"gradient_before": factor, "gradient_after": factor}
        numbers = (gamma, own.gamma, largest, own.largest, error)
        reading = f"{m.inits} and {own.inits} initializations"
        return Advice(variant.title, variant.edit, "measured", *numbers, **said, reading=reading)
    described = variant.network is not None and variant.model is None and variant.batches is None
    if variant.network is not None and before is not None:
        factors = growth(before.network), growth(variant.network)
        said |= {"gradient_before": factors[0], "gradient_after": factors[1]}
        said["note"] = _cautioned(variant.note, *factors)
        after = _predicted(variant, trial) if _predicts(trial) else None
        if after is not None:
            gammas = float(before.gamma[-1]), float(after.gamma[-1])
            shares = before.guesses.expected_max(), after.guesses.expected_max(), 0.005  # two laws of 2000 draws
            reading = f"{after.reading} reading{trial.at}"
            return Advice(variant.title, variant.edit, "predicted", *gammas, *shares, **said, reading=reading)
    tokens = variant.network is not None and needs_tokens(variant.network.layers)
    if described and tokens and trial.case.model is not None:  # its description, drawn, is not what was measured
        raise InvalidInput("a change that is predicted as the network itself was", got="another reading in the time")
    after_m = trial.measure(variant, seconds)
    if any(f.kind == FindingKind.INTERRUPTED for f in after_m.findings):
        raise KeyboardInterrupt  # `measure` keeps what it has, which here is less than a comparison needs
    if after_m.inits < _JUDGED:
        raise InvalidInput(f"{_JUDGED} initializations to judge it by", got=f"{after_m.inits} in the time")
    error = math.hypot(m.guesses.standard_error("expected_max"), after_m.guesses.standard_error("expected_max"))
    gammas = gamma, after_m.layers[-1].gamma if after_m.layers else math.nan
    shares = largest, after_m.guesses.expected_max(), error
    reading = f"{m.inits} and {after_m.inits} initializations"
    return Advice(variant.title, variant.edit, "measured", *gammas, *shares, **said, reading=reading)


def _with_theory(tried: Advice, variant: Variant, trial: Trial) -> Advice:
    """Add nonlinearity and absorption before and after, where theory is what was measured."""
    network = trial.case.network
    if network is None or not _predicts(trial):
        return tried
    before = outlook(network, signal_of(trial.case.batches), trial.descent)
    if variant.unchanged or variant.outcome is not None:  # a bias or a scale of the head: neither is in P
        return replace(tried, nonlinearity_before=before.nonlinearity, nonlinearity_after=before.nonlinearity)
    if variant.network is None:
        return tried
    given = signal_of(trial.case.batches if variant.batches is None else variant.batches)
    after = outlook(variant.network, given, trial.descent)
    found = replace(tried, nonlinearity_before=before.nonlinearity, nonlinearity_after=after.nonlinearity)
    return replace(found, absorption_before=before.absorption, absorption_after=after.absorption)


def _predicted(variant: Variant, trial: Trial) -> Prediction | None:
    """The reading that the network itself was predicted by, on the same points; None where there is none."""
    data = trial.as_data(variant.batches if variant.batches is not None else trial.case.batches)
    if data is None or variant.network is None or trial.prediction is None:
        return None
    try:
        after, remark = predicted(variant.network, data, seed=trial.seed, seconds=_KERNEL * trial.seconds)
    except FirstguessError:
        return None
    same = after.reading == trial.prediction.reading and (after.reading != "kernel" or remark == trial.remark)
    return after if same and not math.isnan(float(after.gamma[-1])) else None


def _cautioned(note: str, before: float, after: float) -> str:
    """The note, and what the change would do to gradients where that is bad."""
    if math.isnan(after) or math.isnan(before) or abs(math.log(after)) <= max(abs(math.log(before)), _MILD):
        return note
    word = "grow" if after > 1 else "shrink"
    caution = f"gradients then {word} towards the input, {size_change(after)} per layer"
    return f"{note}; {caution}" if note else caution


def growth(network: Network) -> float:
    """χ̃ of a typical hidden layer (the median), in closed form; NaN where it is not known.

    Nor where there are residual blocks: theory has one factor for a block, a measured slope counts its layers. Nor
    where positions of images are pooled: theory's is of single positions, what trains is their sum (theory.md (39)).
    """
    if any(layer.kind == "residual" for layer in network.layers):
        return math.nan
    if needs_images(network.layers) and any("pool" in layer.kind for layer in network.layers):
        return math.nan
    try:
        factors = predict(network).gradient_growth
    except FirstguessError:
        return math.nan
    hidden = factors[:-1] if len(factors) > 1 else factors
    if not len(hidden) or not all(f > 0 for f in hidden):
        return math.nan
    return float(statistics.median(hidden))


def with_measured(advice: tuple[Advice, ...], train: Trainability | None) -> tuple[Advice, ...]:
    """Advice whose factor before is the measured one, so that a page has one; without any where theory's is another."""
    if train is None or math.isnan(train.growth):
        return advice

    def one(a: Advice) -> Advice:
        if math.isnan(a.gradient_before):
            return a
        if not as_predicted(train.growth, a.gradient_before):
            return replace(a, gradient_before=math.nan, gradient_after=math.nan)
        after = train.growth if a.gradient_after == a.gradient_before else a.gradient_after
        return replace(a, gradient_before=train.growth, gradient_after=after)

    return tuple(map(one, advice))


# By verdict and phase, whether a bias is one to worry about.
_IN_CHAOS = (
    "Little bias is no proof of a good start: here gradients grow towards the input, as deep in chaos, where plain "
    f"networks train poorly ({TRAINABILITY.name})."
)
_AT_THE_EDGE = (
    "Perhaps not: a deep plain network whose gradients keep their size is at the edge of chaos, where networks train "
    f"although the start is biased; the bias is absorbed early ({TRAINABILITY.name}). Even guesses would need chaos, a "
    "norm after the activation, a less nonlinear (tuned) network, or a head whose bias is moved, which changes first "
    "guesses only."
)
_CHAOTIC = (
    "Here the bias comes with gradients that grow towards the input: those of the favoured class die out while the "
    f"others' explode ({TRAINABILITY.name}). Smaller weights, towards the edge of chaos, come first."
)
_SHALLOW = (
    "Often, in shallow networks: even starts were seen to converge faster, and the gap between classes closes sooner "
    f"({NORM_PLACE.name}). The final accuracy need not differ."
)
_DEEP_ONE = (
    "It depends: in deep networks accuracy curves from biased and even starts were seen to overlap, while the gap "
    f"between classes closes sooner from even ones ({NORM_PLACE.name})."
)


def case_of(
    verdict: Verdict, train: Trainability | None, hidden: int, lasts: PredictedDuration | None, seen: Rehearsal | None
) -> str:
    """Whether this bias is one to worry about (theory.md §5, §8): even is not always better."""
    deep, phase = hidden >= _DEEP, "unknown" if train is None else train.phase
    if verdict.name in ("broken", "degenerate head", *LITTLE):
        return _IN_CHAOS if verdict.name in LITTLE and phase == "chaotic" and deep else ""
    if phase == "edge of chaos" and deep:
        return _AT_THE_EDGE
    # In the ordered phase a shallow network's gradients only shrink.
    word = "vanish" if train is None or train.gradients is None else train.gradients.word
    if lasts is not None and lasts.early and lasts.optimizer != "adam" and phase != "chaotic":
        slow = f"; gradients that {word} towards the input slow down learning, which larger weights help"
        early = "Hardly, here: by theory gradient descent loses the bias before much is learned"
        return f"{early}{slow if phase == 'ordered' else ''}."
    if phase == "ordered":
        comes = f"Here the bias comes with gradients that {word} towards the input"
        watched = seen is not None and math.isfinite(seen.steps)
        if not watched and (lasts is None or not lasts.known):
            stays = f"and so it stays in training for long ({TRAINABILITY.name})"
            return f"{comes}, {stays}: larger weights help more than even guesses do."
        if seen is not None and seen.learns and not seen.slow:
            return f"{comes}, which copies learn with all the same; in a deeper network larger weights would help."
        harm = "keep it from learning" if seen is not None and watched and not seen.learns else "slow down learning"
        return f"{comes}, which {harm}: larger weights help more than even guesses do."
    return _CHAOTIC if phase == "chaotic" else _DEEP_ONE if deep else _SHALLOW


def with_labels(case: str, batches: Sequence[Batch]) -> str:
    """Add, where labels are uneven, that no start does for rare classes what class weights do."""
    import torch

    labels = [b.labels for b in batches if b.labels is not None]
    if len(labels) < len(batches) or any(v.ndim != 1 or v.is_floating_point() for v in labels):
        return case
    seen = torch.unique(torch.cat(labels), return_counts=True)[1]
    if len(seen) < 2 or int(seen.max()) < _UNEVEN * int(seen.min()) or int(seen.max()) < _ENOUGH:
        return case
    more = f"The most frequent class has {float(seen.max() / seen.min()):.0f} times the labels of the rarest"
    do = "class weights in the loss do far more for rare classes than any start, even or tilted"
    return f"{case} {more}: early in training {do}.".strip()
