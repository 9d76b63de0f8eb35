"""Named faults: the questions of one subject are in one file. Each sees what one pass of the model showed, what the
loss says of made-up outputs and what short trainings of copies do, and says what is wrong and what to change.

False alarms: most are facts of the model or its data, with thresholds far from what any initializer gives; `dead units`
has a chance of 1e-6 per layer, or four standard deviations of the ensemble. docs/named-faults.md has the scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import torch

from firstguess.base.errors import FirstguessError
from firstguess.data import Batch
from firstguess.diagnosis.faults import data, head, labels, loss, modes, optimizer, signal, weights
from firstguess.diagnosis.faults.base import Fault, FaultName, Seen, is_notable
from firstguess.diagnosis.faults.doctor import Doctor
from firstguess.diagnosis.faults.looking import look_into
from firstguess.diagnosis.faults.order import arranged, is_symptom
from firstguess.diagnosis.faults.patient import FaultRemark, Loss, NotApplicable, Optimizer, Patient, check_loss
from firstguess.ensemble.measurement import Measurement
from firstguess.modules.call_model import fewer
from firstguess.modules.hooks.examination import Examination, examine
from firstguess.modules.hooks.session import Snapshot
from firstguess.modules.outputs import Pick

_PASSES, _LEAST = 10, 16  # that questions take, at least; points that they need

Question: TypeAlias = Callable[[Seen], "Fault | Iterator[Fault] | None"]

# Of the model as it is, by one pass; the order is that in which one may rule out another.
READ: tuple[Question, ...] = (
    labels.out_of_range, data.identical, modes.mask, signal.log_of_zero, signal.nonfinite, modes.dropout,
    data.unscaled, head.over_batch, head.twice, head.relu, head.saturated, weights.vanishing, signal.dead_units,
    head.zero, modes.fresh_norms, head.bias_decides, signal.same_output,
)  # fmt: skip
# Of its loss, its optimizer and its data, by questions of their own.
ASKED: tuple[Question, ...] = (
    weights.absurd, weights.not_loaded, labels.shares, data.blocks, data.unlike, data.augmentation, head.one_unit,
    loss.find, head.misfit, labels.rare, labels.unrelated, optimizer.holds, modes.padding, modes.mixed,
    modes.running, modes.spectral, labels.target_scale, signal.dead_layer, signal.exploding, optimizer.learning_rate,
    optimizer.weight_decay, signal.vanishing_gradients,
)  # fmt: skip
FAULTS: tuple[Question, ...] = (*READ, *ASKED)


def faults_of(seen: Seen, questions: Sequence[Question] = READ) -> tuple[list[Fault], list[str]]:
    """Those that hold, as they are asked, and why a question could not be asked."""
    found: list[Fault] = []
    notes: list[str] = []
    unasked: dict[str, list[str]] = {}  # by reason
    for ask in questions:
        try:
            one = ask(replace(seen, found=(*seen.found, *(fault.name for fault in found))))
            found += [] if one is None else [one] if isinstance(one, Fault) else list(one)
        except FaultRemark as remark:
            notes.append(str(remark))
        except NotApplicable as why:
            unasked.setdefault(str(why), []).append(_title(ask))
        except FirstguessError:
            raise
        except Exception as error:  # of a user's model, loss or optimizer, in a question that nobody foresaw
            if any(fault.name == "labels out of range" for fault in found):
                continue  # the fault says it
            words = str(error).splitlines()[0] if str(error) else ""
            unasked.setdefault(f"{type(error).__name__}: {words}", []).append(_title(ask))
    return found, [*notes, *(f"{', '.join(names)}: not checked, {why}" for why, names in unasked.items() if why)]


def _title(ask: Question) -> str:
    return f"{ask.__module__.rpartition('.')[2]} ({ask.__name__})".replace("_", " ").replace(" (find)", "")


def find_faults(
    look: Examination | None,
    measurement: Measurement | None = None,
    *,
    model: Any = None,
    batches: Sequence[Batch] = (),
    trained: Snapshot | None = None,
    loss: Loss = None,
    optimizer: Optimizer = None,
    loader: Any = None,
    dataset: Any = None,
    reference: Any = None,
    steps: int | None = None,
    logits: Pick = None,
    untrained: str = "",
    seed: int = 0,
    seconds: float = 10.0,
    a_point: float = 0.0,
) -> tuple[tuple[Fault, ...], tuple[str, ...]]:
    """Name the faults of a model that was looked at once, headline first, and what could not be asked.

    `measurement` is of its initializations, `trained` a look with BatchNorms in train mode; `model` (an instance, or
    what makes one) and `batches` with labels as the loss gets them are needed for what `loss` and `optimizer` tell.
    `a_point`: seconds of a pass per point; questions are asked with fewer points, or not at all, where that is long.
    """
    if look is None:
        return (), ()
    now = look.now
    seen = Seen(look, measurement, is_notable(now.fractions, now.points - now.lost), trained)
    if model is None or not batches:
        return arranged(faults_of(seen)[0]), ()
    points = sum(batch.size for batch in batches)
    if _PASSES * a_point * points > seconds:
        if (few := int(seconds / (_PASSES * a_point))) < min(_LEAST, points):
            slow = f"that takes about {_PASSES * _LEAST * a_point:.1g} s, and {max(seconds, 0.0):.1g} s were left"
            return arranged(faults_of(seen)[0]), (f"faults that loss and optimizer show were not looked for: {slow}",)
        batches = fewer(batches, few)
    patient = Patient(
        model, batches, loss, optimizer, loader, dataset, reference, steps, logits, untrained, seed, seconds
    )
    with torch.inference_mode(False):
        found, notes = faults_of(replace(seen, asker=Doctor(patient)), FAULTS)
        fresh = _fresh_names(patient, found, notes)
    return arranged(found, fresh), tuple(dict.fromkeys(notes))


def explain_collapse(
    model: Any,
    batches: Sequence[Batch],
    *,
    loss: Loss = None,
    optimizer: Optimizer = None,
    logits: Pick = None,
    seed: int = 0,
    seconds: float = 5.0,
) -> tuple[Fault, ...]:
    """Name why a model in training gives one class now, headline first: one pass, then the questions. It is not
    changed, and the optimizer is not stepped."""
    look = look_into(model, batches, logits=logits, seed=seed, seconds=0.2 * seconds)
    known: dict[str, Any] = {"loss": loss, "optimizer": optimizer, "logits": logits, "seed": seed}
    return find_faults(look, model=model, batches=batches, seconds=0.8 * seconds, **known)[0]


def _fresh_names(patient: Patient, found: Sequence[Fault], notes: list[str]) -> set[str]:
    """Faults that a re-initialized copy has as well; nothing where it is not needed."""
    if len(found) < 2:
        return set()
    try:
        look = examine(patient.fresh(), [patient.batch], pick=patient.pick, seed=patient.seed)
        return {fault.name for fault in faults_of(Seen(look))[0]}
    except Exception as error:  # of a user's model
        notes.append(f"a re-initialized copy could not be looked at: {type(error).__name__}")
        return set()


__all__ = [
    "FAULTS", "Fault", "FaultName", "Loss", "Optimizer", "Patient", "Seen", "check_loss", "explain_collapse",
    "faults_of", "find_faults", "is_symptom",
]  # fmt: skip
