"""A result as one flat row of numbers, texts and arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from firstguess.base.errors import InvalidInput
from firstguess.diagnosis.result import Diagnosis
from firstguess.ensemble.measurement import Measurement
from firstguess.ensemble.members import FindingKind
from firstguess.ensemble.trained import TrainedMembers
from firstguess.theory.curves import Curve, Followed
from firstguess.theory.prediction import Prediction

_OFTEN = 0.9  # one class gets more than this


class Stopped(Exception):
    """A result that Ctrl-C cut short: half an ensemble must not pass for a whole one in the next run."""


def row_of(result: object) -> dict[str, Any]:
    """Name and value of every number of a result; those of results inside a dict have its key in front.

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
    return {
        "network": str(p.network),
        "reading": str(p.reading),
        "verdict": str(p.verdict),
        "gamma": float(p.gamma[-1]),
        "correlation": float(p.correlation[-1]),
        "log_q": float(p.log_q[-1]),
        "expected_max": float(p.guesses.expected_max()),
        "over_90": float(p.guesses.prob_max_above(_OFTEN)),
        "std": float(p.guesses.std()),
        "classes": p.network.classes,
        **({"gradient_growth": float(p.gradient_growth[-1])} if p.gradient_growth.size else {}),
        **({} if p.own_guess is None else {"own_guess": p.own_guess}),
        "gamma_by_layer": p.gamma,
    }


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
    row |= {"expected_max": g.expected_max(), "expected_max_se": error}
    row |= {"expected_max_low": low, "expected_max_high": high}
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
    mean, error = curve.mean, curve.se
    return {
        f"{name}_start": float(mean[0]),
        f"{name}_start_se": float(error[0]),
        f"{name}_end": float(mean[-1]),
        f"{name}_end_se": float(error[-1]),
    }


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
    return row | ({} if best is None else {"advice_expected_max": best.largest_after})


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
