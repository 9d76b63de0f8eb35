"""`explain_guess`: why this model, as it is now, guesses as it does; and how surprising that is."""

from __future__ import annotations

import inspect
import math
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Unpack, cast, get_args

import numpy as np
import torch
from torch import nn

from firstguess.base import checks, record
from firstguess.base.errors import FirstguessError, InvalidInput, NotFinite
from firstguess.base.record import Shown, StoredRecord
from firstguess.base.text import capital, columns, percent, percent_apart
from firstguess.data import Batch, collect, load
from firstguess.data.streams import IsolatedRandomness
from firstguess.diagnosis.answer import Answer
from firstguess.diagnosis.faults import Fault, FaultName, Loss, Optimizer, Patient, check_loss, find_faults
from firstguess.diagnosis.faults.base import is_notable
from firstguess.diagnosis.guess_causes import GAMMA, Observed, causes, drawn, excesses, paired, time_a_point
from firstguess.diagnosis.sentences import fixes, opening
from firstguess.ensemble.measurement import Measurement
from firstguess.ensemble.member_statistics import PARTLY, Engine, FindingKind, merged
from firstguess.modules.call_model import centred, fed, fewer
from firstguess.modules.engine import ModuleEngine
from firstguess.modules.hooks.examination import examine
from firstguess.modules.hooks.session import examined, fresh_norms, look, training_norms
from firstguess.modules.measure import Progress, measured, recorded
from firstguess.modules.options import ModelOptions, settled
from firstguess.modules.outputs import find_logits
from firstguess.theory.data_bias import data_bias

_FEWEST = 64  # points that the budget does not go below
_LEAST = 2  # initializations that are run whatever the budget
_PASSES = 6  # that follow a look at other inputs or another mode, with it: two trials, two initializations
_SHARE = 0.7  # of the budget that the main ensemble may use
# Findings of the ensemble that a reader should know.
_OF_WEIGHTS = (FindingKind.OTHER_VALUES, FindingKind.NOT_REDRAWN, FindingKind.NOTHING_FRESH, FindingKind.NOTHING_DRAWN)
_SAID = (*_OF_WEIGHTS, FindingKind.ASIDE, FindingKind.REGRESSION, *PARTLY)


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(StoredRecord, Shown):
    """What a model guesses now, how surprising it is, and why. Print it.

    `surprise` is the share of initializations of the same architecture, on the same data, whose largest share is at
    least this one's, and `interval` its 95 % Clopper-Pearson interval: a p-value, with error. `causes` has the most
    important first, and is empty where guesses are spread and nothing is wrong.
    """

    _also = ("largest", "favoured")

    fractions: tuple[float, ...]
    points: int
    surprise: float
    interval: tuple[float, float]
    causes: tuple[Fault, ...]
    measurement: Measurement | None  # None: no initialization gave finite logits
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    loss: float = math.nan  # mean cross-entropy with the labels, where they are given

    @property
    def largest(self) -> float:
        """The share of the largest class; NaN if no point has finite logits."""
        return max(self.fractions)

    @property
    def favoured(self) -> int:
        """The class that it belongs to."""
        return int(np.argmax(self.fractions))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The names of the causes, the most important first."""
        return tuple(cause.name for cause in self.causes)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The causes that are faults, the headline first; what another one explains is among its symptoms.

        A zero head that the loss moves is a cause of ties, and no fault.
        """
        known = get_args(FaultName)
        return tuple(c for c in self.causes if c.name in known and not c.numbers.get("meant"))

    @property
    def answer(self) -> Answer:
        """What to do. Where guesses are uneven without a fault, only a diagnosis knows whether that matters."""
        if self.faults:
            return Answer.FIX
        if not self._notable:
            return Answer.NOTHING
        return Answer.CHANGE if self.causes and self.causes[0].name == "data not centred" else Answer.UNKNOWN

    @property
    def headline(self) -> str:
        """The answer's one sentence."""
        if self.faults:
            return capital(f"{self.faults[0].message}.")
        if not self._notable:
            return capital(f"{self._without_cause}.")
        inits = 0 if self.measurement is None else self.measurement.inits
        drawn = "draws of the fresh part" if self.kinds[:1] == ("expected of the fresh part",) else "initializations"
        alike = f", as in {percent(self.surprise)} of {inits} {drawn}" if inits else ""
        return f"{percent(self.largest)} of guesses are for class {self.favoured}{alike}; no fault was seen."

    def to_dict(self) -> dict[str, Any]:
        """Plain data, the answer first."""
        return {"answer": str(self.answer), "headline": self.headline} | super().to_dict()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Explanation:
        """The inverse of `to_dict`."""
        return record.from_dict(cls, data, causes=tuple(Fault.from_dict(cause) for cause in data["causes"]))

    def summary(self) -> list[tuple[str, str]]:
        """Label and value of every headline number."""
        even = 1 / len(self.fractions)
        named = "" if self.measurement is None else self.measurement.data
        rows: list[tuple[str, str]] = [("data", named)] if named else []
        share = f"{self.largest:.1%}, class {self.favoured}  (even {even:.1%})"
        share = "none: no point has finite logits" if math.isnan(self.largest) else share
        rows.append(("share of the largest class", share))
        if self.measurement is not None and not math.isnan(self.surprise):
            low, high = self.interval
            share = f"{self.surprise:.1%} of {self.measurement.inits}  (95 %: {low:.1%} to {high:.1%})"
            rows.append(("initializations that do so too", share))
        if not math.isnan(self.loss):
            classes = len(self.fractions)
            value = f"{self.loss:.3g}  (log {classes} = {math.log(classes):.3g} for an even guess)"
            rows.append(("cross-entropy with the labels", value))
        return rows

    @property
    def _notable(self) -> bool:
        return is_notable(np.array(self.fractions), self.points)

    @property
    def _rows(self) -> list[tuple[str, str]]:
        """What stands under the headline."""
        if self.faults:
            return fixes(self.faults)
        if self.answer is Answer.CHANGE:
            return [("Change", "standardize the data, or subtract their mean point, in training and afterwards")]
        if self.kinds[:1] in (("expected from architecture",), ("expected of the fresh part",)):
            return [("Missing", "how long that lasts in training, and what would change it: diagnose this model")]
        return []

    @property
    def _without_cause(self) -> str:
        if not self._notable:
            return "there is nothing to explain: no class gets a large part of the guesses, and no fault was seen"
        if self.measurement is None:
            return "no cause found: whether other initializations guess like this is not known"
        return "no cause found: few initializations guess like this, but too few were drawn to call it a fault"

    def __repr__(self) -> str:
        return f"Explanation({self.largest:.1%} in class {self.favoured}, {', '.join(self.kinds) or 'no cause needed'})"

    def __str__(self) -> str:
        rows = self.summary()
        width = max(len(label) for label, _ in rows)
        lines = [*opening(self.answer, self.headline, self._rows, columns()), ""]
        lines.append(f"Explanation ({self.points} points, {len(self.fractions)} classes)")
        lines += [f"  {label:<{width}}  {value}" for label, value in rows]
        if not self.causes and self._notable:
            lines.append(f"  {self._without_cause}")
        remarks = [f"{i}. {str(cause).removeprefix('! ')}" for i, cause in enumerate(self.causes, start=1)]
        for remark in [*remarks, *(f"note: {note}" for note in self.notes)]:
            lines += textwrap.wrap(percent_apart(remark), columns(), initial_indent="  ", subsequent_indent="     ")
        return percent_apart("\n".join(lines))


_TAKEN = ("init", "logits", "forward", "mode", "node", "device", "dtype", "memory", "strategy", "redraw", "trained")


@checks.takes(_TAKEN)
def explain_guess(
    model: object,
    data: object,
    *,
    loss: Loss = None,
    optimizer: Optimizer = None,
    loader: object = None,
    dataset: object = None,
    reference: object = None,
    steps: int | None = None,
    inits: int = 50,
    seed: int = 0,
    points: int = 1000,
    seconds: float = 30.0,
    progress: Progress | None = None,
    **options: Unpack[ModelOptions],
) -> Explanation:
    """Explain the guesses of a model as it is now: expected from its architecture, caused by the data, or a fault.

    The model's own fractions are compared with an ensemble of its initializations on the same points. Then each named
    fault is tested (docs/named-faults.md: a zero head, pixels from 0 to 255, dead units, a mask that hides everything,
    …), and whether data that are not centred are the cause. The model comes back untouched.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(10, 50), torch.nn.Tanh(), torch.nn.Linear(50, 2, bias=False))
    >>> with torch.no_grad():
    ...     _ = model[2].weight.zero_()
    >>> explain_guess(model, np.random.default_rng(0).standard_normal((100, 10)), inits=5).kinds
    ('zero head',)

    Args:
        model: An `nn.Module` (an instance, in the mode that is to be explained), or a function that makes one.
        data: Anything that `fg.measure` takes; labels as your loss gets them.
        loss: What you train with, of (outputs, labels): a module or any function.
        optimizer: What you train with: the instance, or a function of the parameters as for `fg.train`.
        loader: The training loader, to look at the order of its labels; by default `data` where that is a DataLoader.
        dataset: The training dataset, to draw an item twice; by default the loader's.
        reference: Training inputs, to compare `data` with.
        steps: How many you plan to train, for whether the learning rate is too small.
        inits: Initializations to compare with; fewer if time runs out, which the notes then say. Whether centred data
            help is asked of up to 200, while fewer leave it open.
        seed: Random seed of the ensemble, and of dropout if the model is in train mode.
        points: At most this many data points; fewer for a slow model, which the notes then say.
        seconds: About how long this may take. A pass of the model and two initializations on 16 points are run in any
            case.
        progress: Called with (initializations done, initializations in all).
        options: `ModelOptions` for the ensemble: init, logits, forward, mode, node, device, dtype, memory, strategy
            and redraw. BatchNorm's mode is by default "eval" if the model's are in eval mode and have seen no data,
            else "train". Of a model that is trained throughout, nothing is said about its initialization. With
            `trained=True` you say that it is trained, or a checkpoint loaded: weights that look like a fresh draw are
            then a fault.
    """
    started = time.perf_counter()
    what: Any = model
    if not isinstance(model, nn.Module):
        model = _made(model, seed)
    if not isinstance(model, nn.Module):
        kind = model.__name__ if isinstance(model, type) else type(model).__name__
        hint = "Model()" if isinstance(model, type) else "fg.explain_guess(model, data): the model comes first"
        raise InvalidInput("a model, an instance of nn.Module", got=kind, where="explain_guess", hint=hint)
    inits = checks.count(inits, 1, "number of initializations", "explain_guess(inits)", "inits=50")
    seed = checks.count(seed, 0, "seed", "explain_guess(seed)", "seed=0")
    points = checks.count(points, 2, "number of points", "explain_guess(points)", "points=1000")
    checks.within(seconds, "a time in seconds", "explain_guess(seconds)", "seconds=30.0")
    data = load(data) if isinstance(data, str) else data
    said_trained = options.pop("trained", False)
    known = settled(options)
    logits = known.pop("logits", None)
    batches = fed(model, collect(data, points), known.pop("forward", None))
    picked = logits
    if loss is not None:
        logits = check_loss(Patient(model, batches, loss, pick=logits, seed=seed, seconds=math.inf))
    notes: list[str] = []
    in_training, shifted, bias = None, None, None
    with torch.inference_mode(False), examined(model, batches[0], seed) as mine:
        norms = fresh_norms(mine)
        total = sum(batch.size for batch in batches)
        passes = 3 + 1.6 * inits  # as it is, in train mode, centred; each initialization costs more than its forward
        timed = time_a_point(mine, batches, logits, seed, enough=0.8 * seconds / passes)
        a_point, whole = timed.a_point, timed.whole
        room = int(0.8 * seconds / (a_point * passes))
        if room < total and not whole:
            fewest = min(_FEWEST, max(_FEWEST // 4, int(0.8 * seconds / (a_point * 10))))
            batches = fewer(batches, max(fewest, room))
            used = sum(batch.size for batch in batches)
            if used < total:
                notes.append(f"{used} of the {total} points, to stay within {seconds:g} seconds")
        used = sum(batch.size for batch in batches)
        looked = timed.seen if used == timed.points else examine(mine, batches, pick=logits, seed=seed)
        now = looked.now
        notable = is_notable(now.fractions, now.points - now.lost)
        flat = centred(batches) if notable else None
        a_pass = a_point * used
        if notable and (norms or flat is not None) and time.perf_counter() - started + _PASSES * a_pass > seconds:
            notes.append(f"other inputs and modes were not tried: a pass of {used} points takes {a_pass:.1g} s")
            notable, flat = False, None
        if norms and notable:
            with training_norms(mine):
                in_training = look(mine, batches, pick=logits, seed=seed)
        if flat is not None:
            bias = _data_bias(batches)
            if bias is not None and bias.gamma >= GAMMA:
                try:
                    shifted = look(mine, flat, pick=logits, seed=seed)
                except Exception:  # of a model that takes some of its inputs for ids of categories
                    flat = None
        if any(m.training and m.p > 0 for m in mine.modules() if isinstance(m, nn.Dropout)):
            notes.append(
                "dropout is on, as in training: the fractions are those of one draw; initializations have none"
            )
    if now.probabilities == "sigmoid":
        notes.append("outputs are probabilities (sigmoid): torch's cross-entropies expect logits, but for BCELoss")
        if len(now.fractions) == 2:
            logits = partial(_above_half, logits)
    known |= checks.given(logits=logits) | {"mode": known.get("mode", "eval" if norms else "train")}
    known["trained"] = True  # its weights are looked into: what is wrong with them must not be expected
    deadline = started + _SHARE * seconds
    engine = ModuleEngine(what, batches, seed=seed, seconds=seconds, cut=False, **known)
    findings = engine.run(0, 0).findings
    kinds = {finding.kind for finding in findings}
    fresh = "nothing" if FindingKind.NOTHING_FRESH in kinds else "part" if kinds & PARTLY else "all"
    parts = drawn(engine, 0, inits if fresh != "nothing" else 1, deadline, progress, least=_LEAST)
    done = sum(part.inits for part in parts)
    if done < inits and fresh != "nothing":
        notes.append(f"{done} of {inits} initializations, to stay within {seconds:g} seconds")
    origin = {"model": f"{type(model).__module__}.{type(model).__qualname__}", "data": recorded(data)}
    measurement: Measurement | None = None
    try:
        measurement = measured(cast(Engine, engine), parts, [], seed, origin, started)
    except NotFinite:
        notes.append("NaN or Inf in every initialization: there is nothing to compare with")
    else:
        notes += [f"{f.message} ({f.layer})" if f.layer else f.message for f in merged(measurement.findings, _SAID)]
        if any(finding.kind == FindingKind.NOTHING_DRAWN for finding in measurement.findings):
            measurement = None  # of one model nothing is expected
    if fresh == "nothing":
        measurement = None
    pairs = excesses(parts, ())
    limit, member = started + 0.95 * seconds, 1.6 * a_point * now.points
    if flat is not None and shifted is not None and fresh == "all" and time.perf_counter() + 3 * member < limit:
        pairs = paired(engine, parts, ModuleEngine(what, flat, seed=seed, **known), limit)
    given: dict[str, Any] = {"model": model, "batches": batches, "loss": loss, "optimizer": optimizer, "steps": steps}
    given |= {"loader": data if loader is None and hasattr(data, "dataset") else loader, "dataset": dataset}
    given |= {"reference": reference, "logits": picked, "seed": seed, "trained": in_training, "a_point": a_point}
    if said_trained and fresh != "nothing":  # what looks like a fresh draw: all, or the finding that says which part
        given["untrained"] = "all" if fresh == "all" else next(f.message for f in findings if f.kind in PARTLY)
    left = max(0.25 * seconds, started + seconds - time.perf_counter())
    faults, unasked = find_faults(looked, measurement, seconds=left, **given)
    seen = Observed(now, measurement, faults, bias, shifted, *pairs, fresh)
    p, low, high = seen.p
    fractions, found = tuple(float(x) for x in now.fractions), causes(seen)
    passed = time.perf_counter() - started
    return Explanation(
        fractions, now.points, p, (low, high), found, measurement, (*notes, *unasked), passed, looked.loss
    )


def _made(what: object, seed: int) -> object:
    """What a factory makes; anything else as it is."""
    if not callable(what):
        return what
    try:
        inspect.signature(what).bind()
    except (TypeError, ValueError):  # it wants arguments
        return what
    with IsolatedRandomness(seed):
        return what()


def _data_bias(batches: Sequence[Batch]) -> Any:
    x = torch.cat([batch.inputs for batch in batches if isinstance(batch.inputs, torch.Tensor)])
    try:
        return data_bias(x.float().numpy())
    except FirstguessError:  # one point, or copies of one
        return None


def _above_half(pick: Any, output: Any) -> Any:
    """A probability, as a number whose sign decides."""
    return find_logits(output, pick) - 0.5
