"""One task, as a worker does it, wherever that is: limits, blocks of members, and what went wrong in words."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import numpy as np

from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.base.text import with_old_names
from firstguess.base.threads import THREADS
from firstguess.diagnosis.result import Diagnosis
from firstguess.ensemble.measurement import Measurement
from firstguess.ensemble.member_statistics import Cut, Finding, FindingKind, Members, TrainedBlock, cut, joined
from firstguess.ensemble.trained import TrainedMembers
from firstguess.studies.identity import code_version
from firstguess.studies.store import Piece
from firstguess.theory.prediction import Prediction
from firstguess.theory.training.curves import Curve, Followed

# Members of an ensemble as a piece of a store, and back: every bit of them.

_TRAINED = "trained "
_ALWAYS = ("fractions", "ties", "stats")
_OPTIONAL = {"shapes": np.float64, "logits": np.float32, "own": np.float64, "places": np.float64}


def packed(members: Members | TrainedBlock, total: int, size: int) -> Piece:
    """A block, with how many members there are in all and how many a block has."""
    if isinstance(members, TrainedBlock):
        arrays = {f"{_TRAINED}{name}": values for name, values in members.arrays.items()}
        return {"start": members.start, "total": total, "size": size, **arrays}
    findings = json.dumps([finding.to_dict() for finding in members.findings])
    piece: dict[str, Any] = {"start": members.start, "total": total, "size": size, "findings": findings}
    piece |= {name: getattr(members, name) for name in (*_ALWAYS, *_OPTIONAL)}
    return {name: value for name, value in piece.items() if value is not None}


def unpacked(piece: Mapping[str, Any]) -> Members | TrainedBlock:
    """The members of a block."""
    trained = {name[len(_TRAINED) :]: np.asarray(piece[name]) for name in piece if name.startswith(_TRAINED)}
    if trained:
        return TrainedBlock(int(piece["start"]), trained)
    known: dict[str, Any] = {name: np.asarray(piece[name]) for name in _ALWAYS}
    known |= {name: np.asarray(piece[name], dtype) for name, dtype in _OPTIONAL.items() if name in piece}
    findings = tuple(Finding.from_dict(found) for found in json.loads(piece["findings"]))
    return Members(int(piece["start"]), findings=findings, **known)


# A result as one flat row of numbers, texts and arrays.

_OFTEN = 0.9  # one class gets more than this


class Stopped(Exception):
    """A result that Ctrl-C cut short: half an ensemble must not pass for a whole one in the next run."""


def row_of(result: object) -> dict[str, Any]:
    """Name and value of every number of a result; those of results inside a dict are prefixed by its key.

    >>> row_of({"seed": 3, "losses": [0.5, 0.25], "fit": {"slope": 2.0, "word": None}})
    {'seed': 3, 'losses': array([0.5 , 0.25]), 'fit.slope': 2.0}

    Wall times are left out: two runs of one task give the same row.
    """
    match result:
        case Prediction():
            row = _prediction(result)
        case Measurement():
            row = _measurement(result)
        case Followed():
            row = _training(result)
        case Diagnosis():
            row = _diagnosis(result)
        case Mapping():
            row = _mapping(cast("Mapping[Any, Any]", result))
        case _:
            row = {"value": _value(result, "value")}
    if not row:
        raise _expected("nothing")
    return row


def _prediction(p: Prediction) -> dict[str, Any]:
    return with_old_names(
        {
            "network": str(p.network),
            "reading": str(p.reading),
            "verdict": str(p.verdict),
            "gamma": float(p.gamma[-1]),
            "correlation": float(p.correlation[-1]),
            "log_q": float(p.log_q[-1]),
            "largest": float(p.guesses.expected_max()),
            "over_90": float(p.guesses.prob_max_above(_OFTEN)),
            "std": float(p.guesses.std()),
            "classes": p.network.classes,
            **({"gradient_growth": float(p.gradient_growth[-1])} if p.gradient_growth.size else {}),
            **({} if p.own_guess is None else {"own_guess": p.own_guess}),
            "gamma_by_layer": p.gamma,
        }
    )


def _measurement(m: Measurement) -> dict[str, Any]:
    if any(finding.kind == FindingKind.INTERRUPTED for finding in m.findings):
        raise Stopped
    g = m.guesses
    row: dict[str, Any] = {"network": str(m.provenance.get("network", m.provenance.get("model", "")))}
    row["verdict"] = str(m.verdict)
    if m.weights_layers:
        last = m.weights_layers[-1]
        row |= {"gamma": last.gamma, "gamma_se": last.gamma_se, "gamma_low": last.low, "gamma_high": last.high}
        row |= {"correlation": last.correlation, "correlation_se": last.correlation_se}
    low, high = g.interval("expected_max")
    error = g.standard_error("expected_max")
    largest = {"largest": g.expected_max(), "largest_se": error, "largest_low": low, "largest_high": high}
    row |= with_old_names(largest)
    low, high = g.interval(("prob_max_above", _OFTEN))
    row |= {"over_90": g.prob_max_above(_OFTEN), "over_90_low": low, "over_90_high": high}
    low, high = g.interval("std")
    row |= {"std": g.std(), "std_low": low, "std_high": high, "ties": m.ties}
    row |= {"inits": m.inits, "points": m.points, "classes": m.classes, "seed": m.seed}
    row["findings"] = "; ".join(f"{f.kind}: {f.message}" for f in m.findings)
    if m.own_guess is not None:
        row |= {"own_guess": m.own_guess[0], "own_guess_se": m.own_guess[1]}
    return row | {"gamma_by_layer": m.gamma, "gamma_se_by_layer": m.gamma_se}


def _training(t: Followed) -> dict[str, Any]:
    row: dict[str, Any] = {}
    if isinstance(t, TrainedMembers):
        if t.interrupted:
            raise Stopped
        row |= {"network": t.what, "start": t.start, "diverged": len(t.diverged)}
    row |= {"networks": len(t.largest.draws), "steps": int(t.steps[-1])}
    row |= _ends("largest", t.largest) | _ends("accuracy", t.accuracy) | _ends("loss", t.loss)
    test = getattr(t, "test", None)
    if test is not None:
        row |= _ends("test_accuracy", test.accuracy)
    found = t.absorption
    row |= {"absorption": found.median, "absorbed": found.within, "level": found.level}
    curves = {"largest": t.largest, "accuracy": t.accuracy, "loss": t.loss}
    return row | {"at_step": t.steps} | {f"{name}_by_step": curve.mean for name, curve in curves.items()}


def _ends(name: str, curve: Curve) -> dict[str, float]:
    of = {"": curve.mean, "_se": curve.se}
    return {f"{name}_{at}{end}": float(of[end][k]) for at, k in (("start", 0), ("end", -1)) for end in of}


def _diagnosis(d: Diagnosis) -> dict[str, Any]:
    row: dict[str, Any] = {} if d.measurement is None else _measurement(d.measurement)
    v = d.verdict
    row |= {"verdict": str(v.name), "sureness": v.probability, "guess_gamma": v.guess_gamma}
    row["expected"] = d.expected.words
    row["agreement_p"] = d.expected.p_value
    row["causes"] = "; ".join(cause.name for cause in d.causes)
    row["faults"] = "; ".join(str(fault.name) for fault in d.faults)
    row["findings"] = "; ".join(f"{f.kind}: {f.message}" for f in d.findings)
    best = d.ranked[0] if d.ranked else None
    row["advice"] = "" if best is None else best.title
    return row | (
        {} if best is None else {name: best.largest_after for name in ("advice_largest", "advice_expected_max")}
    )


def _mapping(values: Mapping[Any, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for key, value in values.items():
        if value is None:
            continue
        if isinstance(value, Mapping | Prediction | Measurement | Followed | Diagnosis):
            row |= {f"{key}.{name}": inner for name, inner in row_of(cast("Any", value)).items()}
        else:
            row[str(key)] = _value(value, str(key))
    return row


def _value(value: Any, name: str) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool | int | float | str):
        if type(value) is int and not -(2**63) <= value < 2**63:
            raise _expected(f"{name} = {value}, beyond 64 bits")
        return value if type(value) in (bool, int, float, str) else str(value)
    if hasattr(value, "detach"):  # a tensor
        value = value.detach().cpu().numpy()
    array = np.asarray(value)
    if array.dtype.kind not in "biufU":
        raise _expected(f"{type(value).__name__} ({name})")
    return array.item() if array.ndim == 0 else array


def _expected(got: str) -> InvalidInput:
    return InvalidInput(
        "a result with numbers: a Prediction, Measurement, training or Diagnosis, or a dict of numbers, texts, arrays",
        got=got,
        where="what the study's function returns",
        hint='{"gamma": 1.5}',
    )


Kind: TypeAlias = Literal["row", "block"]  # what an outcome is: the result of a configuration, or members for one
TOGETHER = 0.1  # seconds of small jobs that are done in one call: what a worker that dies has to do again
_LONGEST = 4000  # characters of a traceback that is kept


@dataclass(frozen=True)
class Job:
    """A configuration; or one block of its members; or, with all blocks, the result that they join to."""

    key: str
    given: Any
    block: int | None = None  # members per block, about; None: all at once
    start: int = 0
    known: tuple[Piece, ...] = ()


@dataclass(frozen=True)
class TaskOutcome:
    """What became of a job: a piece to keep, or a reason."""

    key: str
    kind: Kind = "row"
    piece: dict[str, Any] = field(default_factory=dict[str, Any])
    seconds: float = 0.0
    reason: str = ""  # empty: it was done
    trace: str = ""


class Came(NamedTuple):
    """Jobs that were handed over together, and what became of the first of them; the others have to be done again."""

    jobs: tuple[Job, ...]
    outcomes: list[TaskOutcome]


@dataclass(frozen=True)
class Work:
    """What all jobs of a run share: sent to each worker once."""

    function: Callable[..., Any]
    data: Any = None
    threads: int = 1
    memory: float | None = None  # bytes that a task may use
    code: str = ""  # the driver's `code_version`: another one would give results that are not what their address says


def perform_all(
    work: Work, jobs: Iterable[Job], one: Callable[[Work, Job], TaskOutcome] | None = None
) -> list[TaskOutcome]:
    """Do small jobs one after the other; what has not begun after `TOGETHER` seconds is left."""
    until = time.perf_counter() + TOGETHER
    outcomes: list[TaskOutcome] = []
    for job in jobs:
        outcomes.append((one or perform)(work, job))
        if time.perf_counter() > until:
            break
    return outcomes


def perform(work: Work, job: Job) -> TaskOutcome:
    """Do a job; what it raises is its outcome."""
    started = time.perf_counter()
    os.environ[THREADS] = str(work.threads)
    arguments = (job.given,) if work.data is None else (job.given, work.data)
    kind: Kind = "row"
    piece: Piece = {}
    try:
        _check(work.code)
        with _memory(work.memory):
            try:
                with _members(job):
                    piece = row_of(work.function(*arguments))
            except Cut as cut:
                kind, piece = "block", packed(cut.members, cut.total, cut.size)
    except (Exception, SystemExit) as error:
        trace = "".join(traceback.format_exception(error))[-_LONGEST:]
        return TaskOutcome(job.key, seconds=time.perf_counter() - started, reason=_reason(error), trace=trace)
    return TaskOutcome(job.key, kind, dict(piece), time.perf_counter() - started)


def _check(code: str) -> None:
    if code and code != code_version():
        hint = "the same firstguess, numpy, scipy and torch on all nodes, and no edits while a study runs"
        raise InvalidInput(f"firstguess {code}, as the driver has it", got=code_version(), where="a worker", hint=hint)


def _members(job: Job) -> contextlib.AbstractContextManager[None]:
    if job.block is None:
        return contextlib.nullcontext()
    if job.known:
        return joined([unpacked(piece) for piece in job.known], job.block)
    return cut(job.start, job.block)


def _reason(error: BaseException) -> str:
    if isinstance(error, FirstguessError):
        return " ".join(str(error).split())
    if isinstance(error, MemoryError):
        return f"MemoryError: {error or 'no more memory'}"
    if isinstance(error, Stopped):
        return "it was interrupted"
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


@contextlib.contextmanager
def _memory(most: float | None) -> Generator[None]:
    """Limit the memory of this process to this many bytes, where the system can; the old limit is restored."""
    if most is None or not sys.platform.startswith("linux"):
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    room = int(most) if before[1] == resource.RLIM_INFINITY else min(int(most), before[1])
    resource.setrlimit(resource.RLIMIT_DATA, (room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
