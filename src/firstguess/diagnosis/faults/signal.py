"""What is lost on the way: NaN, logarithms of 0, units that are 0 on all points, layers that no gradient reaches."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from scipy import special
from torch import Tensor, nn

from firstguess.data.streams import IsolatedRandomness
from firstguess.diagnosis.faults.base import Fault, Seen
from firstguess.modules.call_model import leaves
from firstguess.modules.hooks.examination import are_alike


def nonfinite(seen: Seen) -> Fault | None:
    """The first layer that gives one."""
    now = seen.now
    if not now.nonfinite:
        return None
    share, message = now.lost / max(now.points, 1), f"{now.nonfinite} is the first layer that gives NaN or Inf"
    fix = "look at that layer's weights and inputs: torch.isfinite(…).all()"
    evidence = f"{share:.1%} of the points have no guess"
    return seen.fault("NaN or Inf", message, fix, now.nonfinite, evidence, points_lost=share)


def log_of_zero(seen: Seen) -> Fault | None:
    """−Inf from a logarithm, where it reaches the outputs (masks are made by log(0) on purpose, and do not)."""
    x = seen.examination
    if not x.ops.logs or not (x.now.lost or x.now.nonfinite):
        return None
    place, count = next(iter(x.ops.logs.items()))
    share = x.now.lost / max(x.now.points, 1)
    message = "a logarithm of 0 gives −Inf, and it reaches the outputs"
    fix = "log_softmax instead of log(softmax(x)); else log(x.clamp_min(1e-12)), or log1p"
    evidence = f"{count} times; {share:.1%} of the points have outputs that are not finite"
    return seen.fault("log(0)", message, fix, place, evidence, count=count, points_lost=share)


def same_output(seen: Seen) -> Fault | None:
    """All points of each batch have the same outputs, up to rounding."""
    x = seen.examination
    # Dropout in train mode makes outputs differ: without it they may be one.
    same = x.same or (seen.asker is not None and seen.doctor.patient.given.training and are_alike(seen.doctor.out))
    if not same or seen.found:
        return None
    place = f" from {x.same_from} on" if x.same_from else ""
    message = f"all points of a batch have the same values{place}, though inputs differ: the batch was averaged "
    message += "(inputs replaced by their mean), or what tells points apart is lost to rounding"
    fix = "look for a mean over dim 0, and for layers that shrink the signal"
    return seen.fault("same output for all inputs", message, fix, x.same_from)


_POINTS = 16  # fewer do not tell a dead unit from one that is rarely on
_MOST = 0.9  # of a layer; a unit whose sign is that of its bias alone is dead in half of all cases
_CHANCE = 1e-6  # of as many dead units, if each is dead in half of all cases
_HALF = 0.5
_MORE = 0.25  # more dead nodes than the ensemble's average
_SDS = 4.0  # … and standard deviations of its members
_TIES = 0.01


def dead_units(seen: Seen) -> Fault | None:
    """Nearly all ReLUs of a layer; or most of a layer's nodes, far more than after an initialization."""
    if {"identical inputs", "Dropout(1)"} & set(seen.found):
        return None
    return _against_initializations(seen) or _outright(seen)


def _against_initializations(seen: Seen) -> Fault | None:
    layers = dead_layers(seen)
    if not layers or not (seen.notable or seen.now.ties >= _TIES):
        return None
    if {"saturated outputs", "vanishing logits"} & set(seen.found):  # which make values one up to rounding
        return None
    first, (share, usual) = next(iter(layers.items()))
    message = "most units of a layer give one value on all points, far more than after an initialization"
    evidence = f"{first}: {share:.0%} of its units, {usual:.0%} after an initialization; {len(layers)} such layers"
    numbers = {"dead": share, "dead_in_ensemble": usual, "layers": list(layers)}
    return seen.fault("dead units", message, _DO, first, evidence, **numbers)


_DO = "look at the biases and weights before it, and at the learning rate if it was trained"


def dead_layers(seen: Seen) -> dict[str, tuple[float, float]]:
    """Layers where most nodes give one value on all points, far more than in the ensemble: (now, ensemble).

    A few units of a gate may all be off by chance, which an ensemble of ten does not show: so either all outputs are
    dead, or it is a layer with too many ReLUs for chance.
    """
    found: dict[str, tuple[float, float]] = {}
    if seen.measurement is None:
        return found
    usual = {layer.name: layer for layer in seen.measurement.layers}
    head = seen.now.head if seen.now.head_zero else ""
    many = {name for (_, name), alive in seen.examination.ops.alive.items() if _is_rare(alive)}
    for name, share in seen.now.dead.items():
        if name not in usual or share < _HALF or name == head:
            continue
        mean, error = usual[name].dead, usual[name].dead_se
        sd = error * math.sqrt(seen.measurement.inits) if math.isfinite(error) else 0.0
        if share > mean + max(_MORE, _SDS * sd) and (seen.examination.same or name in many):
            found[name] = (share, mean)
    return found


def _is_rare(alive: Tensor) -> bool:
    """Whether as many units are off as chance hardly gives, if each is off in half of all cases."""
    # Positions of a sequence are not independent: its last axis is.
    free = alive.shape[-1] if alive.ndim > 1 else alive.numel()
    off = math.floor(_off(alive) * free)
    return off > 0 and float(special.bdtrc(off - 1, free, _HALF)) < _CHANCE


def _off(alive: Tensor) -> float:
    return 1 - float(alive.double().mean()) if alive.numel() else 0.0


def _outright(seen: Seen) -> Fault | None:
    found = _units_off(seen)
    if not found:
        return None
    first, share = next(iter(found.items()))
    message = "units of a ReLU are 0 on all points, and pass no gradient"
    evidence = f"{first}: {share:.0%} of its units; {len(found)} such {'layers' if len(found) > 1 else 'layer'}"
    return seen.fault("dead units", message, _DO, first, evidence, dead=share, layers=list(found))


def _units_off(seen: Seen) -> dict[str, float]:
    """ReLUs of which nearly all units are 0 on all points: which share."""
    found: dict[str, float] = {}
    for (_, name), alive in () if seen.now.nonfinite else seen.examination.ops.alive.items():
        share = _off(alive)
        most = share >= _MOST and seen.now.samples >= _POINTS and _is_rare(alive)
        if most or (share == 1 and seen.examination.same):
            found.setdefault(name, share)
    return found


_VANISHED = 1e-3  # the first layer's gradient over its size, against the last one's
_STUCK = 0.02  # of the way to the best loss


def dead_layer(seen: Seen) -> Iterator[Fault]:
    """Find, on a copy of the model as it is, weights whose gradient is exactly 0, or none, now and after each of three
    steps; gradients that are NaN; units that are copies of each other."""
    doctor = seen.doctor
    if doctor.learned or not doctor.training.depends:
        return
    if {"softmax over one unit", "frozen parameters", "loss does not depend on the outputs"} & set(seen.found):
        return
    model = doctor.patient.training_copy()
    free = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    for parameter in model.parameters():
        parameter.requires_grad_(parameter.is_floating_point())
    looks = doctor.probe.gradients(model, steps=3)
    cut = _cut_off(seen, free - set(looks[0])) if looks else list(doctor.weights)
    if cut:
        layer = cut[-1].rpartition(".")[0]
        message = "outputs depend on a layer, and no gradient goes back to it: the graph is cut after it"
        fix = "no .detach(), .data, .item(), argmax, numpy or torch.no_grad() between it and the outputs; if it is not "
        fix += f"to learn, {seen.code(layer)}.requires_grad_(False)"
        evidence = f"{len(cut)} of {len(doctor.weights)} weights have no gradient at all"
        yield seen.fault("dead layer", message, fix, layer, evidence, layers=cut)
        return
    if not looks:
        return
    lost = [n for n, g in looks[0].items() if not bool(torch.isfinite(g).all())]
    if lost and not seen.now.nonfinite and not seen.now.lost:
        message = "outputs are finite, and their gradients are not: the first step makes every weight NaN"
        fix = "look for a root or logarithm of 0, and for 0 / 0 that torch.where hides: (x + 1e-8).sqrt()"
        evidence = f"{len(lost)} of {len(looks[0])} gradients have NaN or Inf"
        yield seen.fault("NaN or Inf", message, fix, lost[-1].rpartition(".")[0], evidence, layers=lost)
        return
    names = [n for n, g in looks[0].items() if n in doctor.weights and g.ndim > 1]
    dead = [n for n in names if all(n in g and not bool(g[n].any()) for g in looks)]
    if dead:
        layer = dead[0].rpartition(".")[0]
        message = "no gradient reaches a layer, now or after three steps: it never learns"
        fix = f"nn.init.kaiming_normal_({seen.code(layer)}.weight); with ReLU also look at the biases before it"
        evidence = f"the gradient is exactly 0 for {len(dead)} of {len(names)} weights"
        off = next((path for path, share in _units_off(seen).items() if share == 1.0), "")
        if off:  # gradients end there
            message = "all units of a ReLU are 0 on all points, and no gradient goes back through it"
            fix = _DO.replace(" it,", f" {seen.code(off)},")
        yield seen.fault("dead layer", message, fix, off or layer, evidence, layers=dead)
        return
    same = [n for n in names if n in free and _copies(doctor.weights[n])]
    twins = [n for n in same if all(_copies(g[n]) for g in looks)]
    if (twins and len(names) > 1) or len(same) > max(1, len(names) / 2):
        layer = same[0].rpartition(".")[0]
        message = "all units of most layers have the same weights, and hardly differ"
        if twins:
            message = "all units of a layer have the same weights and get the same gradient: they stay one unit"
        fix, found = f"nn.init.kaiming_normal_({seen.code(layer)}.weight)", twins or same
        evidence = f"{len(found)} of {len(names)} layers"
        yield seen.fault("identical units", message, fix, layer, evidence, layers=found)


def _cut_off(seen: Seen, without: set[str]) -> list[str]:
    """Weights without a gradient that outputs nevertheless depend on; those that are not used at all are no fault."""
    model = seen.doctor.patient.training_copy()
    mine = [name for name in seen.doctor.weights if name in without]
    if not mine:
        return []
    with torch.no_grad(), IsolatedRandomness(seen.doctor.patient.seed):
        before = seen.doctor.patient.outputs(model)
        for name in mine:
            model.get_parameter(name).mul_(1.5)
        after = seen.doctor.patient.outputs(model)
    return [] if torch.equal(before, after) else mine


_GROWN = 1e3  # times the inputs' size


def exploding(seen: Seen) -> Fault | None:
    """Values inside the model as it is that are a thousand times the inputs', where it has not learned anything."""
    doctor = seen.doctor
    if {"weights never initialized", "NaN or Inf", "log(0)"} & set(seen.found) or doctor.has_learned:
        return None
    p = doctor.patient
    floats = [x.detach().double() for x in leaves(p.batch.inputs).values() if x.is_floating_point()]
    size = max([1.0, *(float(x.square().mean().sqrt()) for x in floats)])
    sizes: dict[str, float] = {}
    model = p.training_copy()

    def keep(name: str) -> Any:
        def hook(_module: nn.Module, _args: Any, out: Any) -> None:
            if isinstance(out, torch.Tensor) and out.is_floating_point() and out.numel():
                values = out.detach().flatten().abs()
                values = values[:: max(1, len(values) // 4096)].float()
                # Masks of large numbers are no signal: three quarters of all values are not beyond this.
                sizes[name] = max(sizes.get(name, 0.0), float(values.quantile(0.75)))

        return hook

    for name, module in model.named_modules():
        module.register_forward_hook(keep(name))
    with torch.no_grad(), IsolatedRandomness(p.seed):
        p.outputs(model)
    grown = {name: value for name, value in sizes.items() if value > _GROWN * size}
    if not grown:
        return None
    first = next(iter(grown))
    grads = next(iter(doctor.probe.gradients(p.training_copy())), {})
    times = [float(g.norm() / w.detach().norm()) for n, w in doctor.weights.items() if (g := grads.get(n)) is not None]
    message = "values grow from layer to layer, or from step to step of a sequence, and gradients with them"
    fix = "weights as nn.init.kaiming_normal_ gives them, a norm, tanh in recurrent layers; "
    fix += "nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
    evidence = f"values of {max(grown.values()):.2g} where inputs have {size:.2g}; the largest gradient is "
    evidence += f"{max(times, default=0.0):.2g} times its weights"
    return seen.fault("gradients explode", message, fix, first, evidence, values=grown)


def _copies(w: torch.Tensor) -> bool:
    rows = w.detach().reshape(len(w), -1)
    return len(rows) > 2 and bool(rows.any()) and bool((rows - rows[0]).abs().max() <= 1e-6 * rows.abs().max())


def vanishing_gradients(seen: Seen) -> Fault | None:
    """Find a first layer with next to no gradient, re-initialized or as it is, where only a constant is learned."""
    doctor = seen.doctor
    found = {"vanishing logits", "gradients explode"} & set(seen.found)
    if doctor.patient.optimizer is None or doctor.learned or found:
        return None
    for own, model in ((False, doctor.patient.fresh()), (True, doctor.patient.training_copy())):
        grads = next(iter(doctor.probe.gradients(model)), {})
        sizes = {
            n: float(grads[n].norm() / w.detach().norm().clamp_min(1e-30))
            for n, w in model.named_parameters()
            if n in grads and n in doctor.weights
        }
        if len(sizes) < 3:
            return None
        first, last = next(iter(sizes)), list(sizes)[-1]
        ratio = sizes[first] / max(sizes[last], 1e-30)
        if not ratio < _VANISHED:
            continue
        run = doctor.probe.run(1.0, own=own)
        if doctor.progress(min(run.start, doctor.training.constant[0]), run.end) > _STUCK:
            continue
        message = "gradients shrink from layer to layer, and the first layers do not learn"
        fix = "ReLU or GELU in place of sigmoid and tanh, a norm before each activation, or residual connections"
        fix = "weights of the usual size: nn.init.kaiming_normal_(layer.weight) for each layer" if own else fix
        evidence = f"over its weights, the gradient of {first} is {ratio:.1g} times that of {last}"
        return seen.fault("gradients vanish", message, fix, first.rpartition(".")[0], evidence, ratio=ratio)
    return None
