"""One visit of the zoo: a plain loop, the class, one instance re-initialized, and what its first values are."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import torch
from torch import nn

from firstguess.base.errors import FirstguessError
from firstguess.base.statistics import guesses
from firstguess.diagnosis.explain_guess import explain_guess
from firstguess.modules.measure import measure
from firstguess.modules.members.initializers import BATCH_NORMS
from firstguess.modules.outputs import find_logits
from firstguess.modules.read.read import read
from firstguess.studies.zoo import ZooModel, brief, never_initialized, quiet, strange
from firstguess.theory.predict import predict


def visit(case: ZooModel, *, inits: int = 16, seconds: float = 12.0, seed: int = 0) -> dict[str, Any]:
    """One row: the largest share by a plain loop, by the class and by the instance, and what its first values are.

    All three have the same number of initializations, so that the difference of two means is symmetric about 0; fewer
    than `inits` (four at least) where one takes longer than `seconds`/`inits`. Give every model a `seed` of its own:
    relatives with the same seed share their random numbers, and their differences.
    """
    began = time.perf_counter()
    row: dict[str, Any] = {"class": case.note, "failed": ""}
    with quiet():
        own = _own(case, inits, seconds, seed)
        torch.manual_seed(seed)
        model = case.make()
        before = {name: value.detach().clone() for name, value in model.state_dict().items()}
        row |= {"parameters": sum(p.numel() for p in model.parameters()), "own": float(own.mean()), "inits": len(own)}
        for which, what in (("class", case.make), ("instance", model)):
            try:
                m = measure(what, case.inputs, inits=len(own), seed=seed + 1)
            except FirstguessError as error:
                row[f"{which}_refused"] = str(error)
                continue
            tops = m.guesses.fractions.max(axis=1)
            row |= {f"{which}_share": float(tops.mean()), f"{which}_z": _apart(tops, own)}
            row |= {"classes": m.classes, "points": m.points}
            if which == "class":
                row |= {"gamma": float(m.gamma[-1]), "verdict": m.verdict}
            else:
                row |= strange(m.findings)
        after = model.state_dict()
        row["came_back"] = all(
            torch.equal(after[name], value) or bool(value.isnan().any()) for name, value in before.items()
        )
        row["never_initialized"] = never_initialized(case.make)
        row |= _explained(model, case, seconds)
    row["seconds"] = time.perf_counter() - began
    return row


def _explained(model: nn.Module, case: ZooModel, seconds: float) -> dict[str, Any]:
    """Faults that are named, and what theory says where the model is read."""
    found: dict[str, Any] = {}
    try:
        told = explain_guess(model, case.inputs, inits=8, seconds=min(seconds, 4.0))
        found["faults"] = [fault.name for fault in getattr(told, "faults", ())]
    except Exception as error:
        found["explain_failed"] = brief(error)
    try:
        network = read(model, case.inputs).network
        if network is not None:
            found["predicted"] = float(predict(network, data=_first(case.inputs).numpy()).guesses.expected_max())
    except Exception as error:
        found["not_predicted"] = brief(error)
    return found


def _own(case: ZooModel, inits: int, seconds: float, seed: int) -> np.ndarray:
    """Largest shares by a loop of plain PyTorch."""
    found: list[float] = []
    began = time.perf_counter()
    for member in range(inits):
        torch.manual_seed(seed + 1000 + member)
        model = case.make()
        for module in model.modules():  # BatchNorm by its batch, no dropout: as `measure` has it
            module.training = isinstance(module, BATCH_NORMS)
        with torch.no_grad():
            raw = find_logits(model(**case.inputs) if isinstance(case.inputs, dict) else model(case.inputs), None)
        if not bool(torch.isfinite(raw).all()):
            continue
        rows = raw.reshape(-1, raw.shape[-1])
        if rows.shape[1] == 1:  # a probability, or a logit, of the second of two classes
            rows = torch.cat([torch.full_like(rows, 0.5 if bool(((rows >= 0) & (rows <= 1)).all()) else 0.0), rows], 1)
        shares = np.bincount(guesses(rows.numpy(), np.random.default_rng(member)), minlength=rows.shape[1]) / len(rows)
        found.append(float(shares.max()))
        if time.perf_counter() - began > seconds and len(found) > 3:
            break
    return np.array(found)


def _first(inputs: Any) -> torch.Tensor:
    return next(iter(inputs.values())) if isinstance(inputs, dict) else inputs


def _apart(x: np.ndarray, y: np.ndarray) -> float:
    """The difference of two means in standard errors; 0 where both are the same constant."""
    if len(x) < 2 or len(y) < 2:
        return math.nan
    error = math.sqrt(x.var(ddof=1) / len(x) + y.var(ddof=1) / len(y))
    off = float(x.mean() - y.mean())
    return off / error if error > 0.0 else 0.0 if off == 0.0 else math.inf
