"""The optimizer: what it holds, its learning rate and weight decay, tried on re-initialized copies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, cast

import torch
from torch import nn, optim

from firstguess.base.text import number
from firstguess.data.streams import IsolatedRandomness
from firstguess.diagnosis.faults.base import Fault, Seen
from firstguess.diagnosis.faults.doctor import STEPS, Probe, Run
from firstguess.diagnosis.faults.weights import absurd_weights
from firstguess.modules.members.initializers import brief

_LEFT = 20.0  # times this batch's gradient
_REMAKE = "make the optimizer after the model is complete: optimizer = torch.optim.{}(model.parameters(), lr={:g})"
_MISSING = "parameters missing from the optimizer"


def holds(seen: Seen) -> Iterator[Fault]:
    """Facts of the instance; of a function that makes one, nothing is asked."""
    doctor = seen.doctor
    model, given = doctor.patient.given, doctor.patient.optimizer
    if not any(p.requires_grad for p in model.parameters()) and any(True for _ in model.parameters()):
        yield _frozen(seen, "every parameter of the model is frozen", "model.requires_grad_(True)")
        return
    yield from _unregistered(seen)
    if not isinstance(given, optim.Optimizer):
        return
    held = {id(p): p for group in given.param_groups for p in group["params"]}
    mine = {id(p): name for name, p in model.named_parameters()}
    free = {id(p) for p in model.parameters() if p.requires_grad}
    remake = _REMAKE.format(type(given).__name__, float(given.param_groups[0]["lr"]))
    strangers = sum(key not in mine for key in held)
    lacking = [name for key, name in mine.items() if key in free and key not in held]
    head = {f"{seen.now.head}.weight", f"{seen.now.head}.bias"} & set(lacking)
    if (strangers and lacking) or not set(mine) & set(held) or head:
        message = "the optimizer does not hold parameters of the model that are to learn"
        if strangers:
            message += ", but others that are not in it: the model was changed, or copied, after it was made"
        evidence = f"{len(lacking)} of {len(free)} parameters are missing ({brief(model, lacking)})"
        evidence, place = f"{evidence}, {strangers} are not the model's", seen.now.head if head else ""
        yield seen.fault(_MISSING, message, remake, place, evidence, missing=lacking)
    elif not set(held) & free:
        yield _frozen(seen, "every parameter that the optimizer holds is frozen", remake)
    yield from _left_over(seen)


def _unregistered(seen: Seen) -> Iterator[Fault]:
    """Layers in a plain list or dict, and tensors that are no parameters, which outputs depend on: the model does not
    see them, and an optimizer of its parameters does not move them."""
    p = seen.doctor.patient
    model = p.training_copy()
    known = {id(w) for w in (*model.parameters(), *model.buffers())}
    hidden: dict[str, torch.Tensor] = {}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name in ("_parameters", "_buffers", "_modules"):
                continue
            items = value.values() if isinstance(value, dict) else value
            for item in cast("Iterable[Any]", items if isinstance(value, (dict, list, tuple)) else [value]):
                for w in item.parameters() if isinstance(item, nn.Module) else [item]:
                    if isinstance(w, torch.Tensor) and w.is_leaf and w.requires_grad and id(w) not in known:
                        hidden.setdefault(f"{path}.{name}".lstrip("."), w)
    given = p.optimizer
    held = [w for group in given.param_groups for w in group["params"]] if isinstance(given, optim.Optimizer) else []
    mine = {id(w) for w in p.given.parameters()}
    if not hidden or any(id(w) not in mine for w in held):  # which may be these
        return
    with torch.no_grad(), IsolatedRandomness(p.seed):
        before = p.outputs(model)
        for w in hidden.values():
            w.mul_(1.5)
        if torch.equal(before, p.outputs(model)):
            return
    place = next(iter(hidden))
    what = "holds weights that the model does not see: model.parameters() is without them, and they never learn"
    fix = f"self.{place.rpartition('.')[2]} = nn.ModuleList([…]), nn.ModuleDict({{…}}) or nn.Parameter(…)"
    evidence = f"outputs depend on {', '.join(hidden)}; the model has {len(known)} parameters and buffers"
    yield seen.fault(_MISSING, f"{place} {what}", fix, evidence=evidence, hidden=list(hidden))


def _frozen(seen: Seen, message: str, fix: str) -> Fault:
    frozen = [not p.requires_grad for p in seen.doctor.patient.given.parameters()]
    evidence = f"{sum(frozen)} of {len(frozen)} are frozen"
    return seen.fault("frozen parameters", f"{message}: no step changes anything", fix, evidence=evidence)


def _left_over(seen: Seen) -> Iterator[Fault]:
    doctor = seen.doctor
    kept = {n: p.grad for n, p in doctor.patient.given.named_parameters() if p.grad is not None}
    if not kept:
        return
    sizes: list[float] = []
    for model in (doctor.patient.training_copy(), doctor.patient.fresh()):
        grads = next(iter(doctor.probe.gradients(model)), {})
        sizes.append(math.sqrt(sum(float(grads[n].square().sum()) for n in kept if n in grads)))
    size = math.sqrt(sum(float(g.square().sum()) for g in kept.values()))
    if size > _LEFT * max(sizes) > 0:
        message = "gradients on the model are far larger than this batch's: they are added up from step to step"
        fix = "optimizer.zero_grad() before loss.backward()"
        evidence = f"norm {size:.3g}; this batch's is {sizes[0]:.3g}"
        yield seen.fault("gradients left over", message, fix, evidence=evidence, norm=size)


_HARDLY = 0.1  # of the way to the best loss
_FAR, _STALLED = 0.5, 0.3  # of the way from the loss of a constant guess to the best: further, and hardly begun
_MORE = 5.0  # times as far by a larger rate
_PATIENCE = 10_000  # steps, where nobody says how many are planned
_FEW = 50  # planned steps that are few, whatever the rate
_LONGEST = 100.0  # times the rate


def learning_rate(seen: Seen) -> Iterator[Fault]:
    """Too high: wild at the user's rate and calm at a smaller one. Too small: hardly moved, and a larger one does."""
    doctor = seen.doctor
    if doctor.patient.optimizer is None or doctor.learned:
        return
    if not doctor.patient.rate:
        message = "the learning rate is 0: no step changes anything"
        yield seen.fault("learning rate too small", message, "lr=1e-3", evidence="lr = 0")
        return
    if "weights never initialized" in seen.found and absurd_weights(doctor.patient.fresh()):
        return  # which were never drawn: no copy says what the rate does to weights that are
    probe = doctor.probe
    run = probe.run(1.0)
    if run.wild or _is_overtaken(seen, 0):
        yield from _too_high(seen, probe, run)
    elif run.start > doctor.training.free:
        yield from _too_small(seen, probe, run)


def _is_overtaken(seen: Seen, seed: int) -> bool:
    """Whether a tenth of the rate learns in as many steps what this one does not."""
    constant, best = seen.doctor.training.constant[0], seen.doctor.training.free
    mine, slower = (
        (constant - seen.doctor.probe.run(factor, seed=seed).end) / (constant - best) if constant > best else 0.0
        for factor in (1.0, 0.1)
    )
    return mine < _STALLED and slower > mine + _FAR


_COLLAPSED = {"dead layer", "dead units", "same output for all inputs"}


def _too_high(seen: Seen, probe: Probe, run: Run) -> Iterator[Fault]:
    rate = seen.doctor.patient.rate
    for tried in (0.1, 0.01, 0.001):
        factor, calmer = tried, probe.run(tried)
        if not calmer.calm or (run.finite and not calmer.end < run.end - 0.02 * abs(run.end)):
            continue
        # One unlucky start tells nothing, unless this model has come to the same end.
        others = (1, 2) if _COLLAPSED & set(seen.found) else (1,)
        if not any(probe.run(1.0, seed=k).wild or _is_overtaken(seen, k) for k in others):
            return
        smaller = probe.run(0.1 * factor)
        if smaller.calm and smaller.end < calmer.end:
            factor, calmer = 0.1 * factor, smaller
        happens, good = "leaves the numbers", factor * rate
        if run.finite:
            top = max(run.losses) if max(run.losses) > 2 * max(run.start, run.end) else 0.0
            happens = f"goes from {run.start:.3g} to {run.end:.3g}{f' by way of {top:.3g}' if top else ''}"
            happens += ", with one output for all points" if run.collapsed else ""
        message = f"a re-initialized copy is thrown off at lr = {rate:g}, and learns at {good:g}"
        evidence = (
            f"in {len(run.losses) - 1} steps the loss {happens}; at {good:g}: {calmer.end:.3g}{_edge(seen, probe)}"
        )
        numbers: dict[str, Any] = {"lr": rate, "calm": good, "start": run.start, "end": run.end, "end_calm": calmer.end}
        yield seen.fault("learning rate too high", message, f"lr={good:g}", evidence=evidence, **numbers)
        return


def _edge(seen: Seen, probe: Probe) -> str:
    """How far the rate is beyond the edge of stability, for plain descent."""
    example, rate = seen.doctor.patient.example, seen.doctor.patient.rate
    if not isinstance(example, optim.SGD):
        return ""
    try:
        sharp = probe.sharpness
    except Exception:  # no second derivative
        return ""
    limit = 2 * (1 + float(example.param_groups[0].get("momentum", 0.0))) / sharp if sharp > 0 else math.inf
    return f"; curvature {sharp:.3g} allows {limit:.2g}" if rate > limit else ""


def _too_small(seen: Seen, probe: Probe, run: Run) -> Iterator[Fault]:
    doctor = seen.doctor
    planned, rate = doctor.patient.steps, doctor.patient.rate
    horizon = planned or _PATIENCE
    # Steps at a rate that is k times as large stand for k times as many.
    first = probe.run(1.0, steps=horizon) if horizon <= 2 * STEPS else probe.run(horizon / STEPS)
    mine = doctor.progress(first.start, first.end)
    if not mine < _HARDLY or first.wild:
        return
    for factor in (10.0**k for k in range(1, 7)):
        # Thirty steps are few for a network that has to unlearn something first: the last try is longer.
        steps = STEPS if factor < _LONGEST or planned is None else 10 * STEPS
        more = probe.run(factor * max(1.0, horizon / STEPS), steps=steps)
        far = doctor.progress(more.start, more.end)
        if more.wild:
            return
        if far > _HARDLY and far > _MORE * mine:
            message = f"at lr = {rate:g} {planned or 'thousands of'} steps hardly change anything"
            name, fix = "learning rate too small", f"lr={factor * rate:g}"
            if planned is not None and planned <= _FEW:
                message = f"{planned} steps are too few to learn anything at lr = {rate:g}"
                name, fix = "too few steps", f"steps={number(int(factor * horizon))}, or {fix}"
            evidence = f"a re-initialized copy comes {mine:.1%} of the way to the best loss"
            evidence += f", with {factor:g} times the rate {far:.0%}"
            numbers: dict[str, Any] = {"lr": rate, "progress": mine, "progress_larger": far, "factor": factor}
            yield seen.fault(name, message, fix, evidence=evidence, **numbers)
            return


_STRONGER, _DECOUPLED = 3.0, 1.0  # times the gradient; times a step of Adam
_STEPS = 60
_SPENT = 4.0  # time constants of the decay, after which e^-4 of a weight is left


def weight_decay(seen: Seen) -> Fault | None:
    """The pull of the decay on a re-initialized copy is beyond the gradient's, and without it the copy learns more."""
    doctor, p = seen.doctor, seen.doctor.patient
    if p.optimizer is None:
        return None
    group = max(p.example.param_groups, key=lambda g: float(g.get("weight_decay", 0.0)))
    decay, rate = float(group.get("weight_decay", 0.0)), p.rate
    if not decay:
        return None
    model = p.fresh()
    grads = next(iter(doctor.probe.gradients(model)), {})
    mine = {n: w for n, w in model.named_parameters() if n in grads and w.ndim > 1}
    size = math.sqrt(sum(float(w.detach().square().sum()) for w in mine.values()))
    count = sum(w.numel() for w in mine.values())
    decoupled = isinstance(p.example, optim.AdamW) or bool(group.get("decoupled_weight_decay"))
    # Adam's steps have the size of the rate, whatever the gradient; a decay outside of them competes with that.
    pull = math.sqrt(count) if decoupled else math.sqrt(sum(float(grads[n].square().sum()) for n in mine))
    if not mine or not decay * size > (_DECOUPLED if decoupled else _STRONGER) * pull:
        return None
    factor = max(1.0, _SPENT / (rate * decay * _STEPS)) if rate else 1.0
    with_, without = (doctor.probe.run(factor, decay=on, steps=_STEPS) for on in (True, False))
    if without.finite and with_.finite and not without.end < with_.end - 0.05 * abs(with_.end):
        return None
    ratio = decay * size / max(pull, 1e-30)
    message = f"weight_decay = {decay:g} pulls weights to 0 faster than the loss moves them"
    evidence = f"a re-initialized copy ends at {with_.end:.3g} with it, {without.end:.3g} without"
    evidence = f"the pull is {ratio:.3g} times the gradient; {evidence}"
    numbers: dict[str, Any] = {"weight_decay": decay, "ratio": ratio}
    fix = f"weight_decay={decay / 1000:.0e}"
    return seen.fault("weight decay too strong", message, fix, evidence=evidence, **numbers)
