"""What guesses would be without a step's part in what all inputs have in common: the rest of the network is run on it.

A step's own part is taken away by changing the averages over the data that it hands on, and nothing else. Of a step
that raises c (1) the average over all units falls to the share of the signal that it had before the step: φ − E φ
after random weights, theory.md §4; (2) where c is still above what it was, the averages of all units shrink until it
is not: centred data, biases of 0. To a step that lowers c the averages that it got are given back until c is what it
was. Removing all that is in common would be another question, to which the last step is always the answer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from firstguess.base.gaussian import Array
from firstguess.data import Batch
from firstguess.ensemble.seeds import member_seeds
from firstguess.modules import flow as flows
from firstguess.modules.call_model import leaves, replaced
from firstguess.modules.flow import DATA, Flow, FlowStep, StepAverages
from firstguess.modules.guard import every_module_called
from firstguess.modules.hooks.session import OUTPUT, Hooks, same_memory
from firstguess.modules.members.initializers import CONVOLUTIONS
from firstguess.modules.members.sources import Source
from firstguess.modules.outputs import LogitCaller, Pick, Tally, as_rows, classes_of, contrasts

_ENOUGH = 6  # initializations that an effect should have; steps are left out before there are fewer
_FEWEST = 31  # points below which largest shares say little
_FEWEST_PAIRS = 3  # of finite numbers: fewer have no error to speak of
_PROBED = 1.5  # what a forward with its averages takes of one without
_LARGEST_FACTOR = 10.0  # on averages that are nearly 0: more would be noise


@dataclass(frozen=True)
class RemovalEffect:
    """The output as it is and without some steps, over the same initializations and points.

    `largest_…` is the average largest guess fraction, `error` the standard error of its change (of pairs, and of all
    initializations where their shares are known); γ is Σ center/Σ spread of the output (theory.md (38)).
    """

    largest_before: float
    largest_after: float
    error: float
    gamma_before: float
    gamma_after: float
    inits: int
    points: int


@dataclass(frozen=True)
class Effects:
    """Effects by removal; `impossible`: those not told from the rest, `late`: those that time was up for.

    `needed`: seconds that all of them take, on as many points.
    """

    found: dict[Any, RemovalEffect] = field(default_factory=dict[Any, RemovalEffect])
    impossible: tuple[Any, ...] = ()
    late: tuple[Any, ...] = ()
    needed: float = math.nan


def effects_of(
    members: Source,
    batches: Sequence[Batch],
    flow: Flow,
    removals: Mapping[Hashable, Sequence[str]],
    *,
    inits: int = 20,
    seed: int = 0,
    seconds: float = math.inf,
    logits: Pick = None,
    shares: Array | None = None,
) -> Effects:
    """The output without the steps of each removal (names of `flow.steps`, or "(data)"), the most wanted first.

    Steps of one removal are all taken to raise c, or all to lower it, by what they add together. `shares`: the largest
    shares of more initializations, the same ones first, which largest shares are then said of.

    As many initializations as there is time for, of the same seeds as `trace_flow`'s. Where time is short there are
    first fewer points, then fewer removals, then fewer initializations; none where not even three of two fit.
    """
    started = time.perf_counter()
    call, keys = LogitCaller(logits), list(removals)
    batch: Batch | None = None
    rows: list[dict[Any, tuple[float, float, float]]] = []
    impossible: set[Any] = set()
    needed = math.nan
    for number, member_seed in enumerate(member_seeds(seed, 0, inits)):
        with members.member(int(member_seed)) as model:
            if batch is None:
                batch, a_pass = _batch(model, batches, flow, call, seconds / (_ENOUGH * (len(keys) + 1)))
                left = seconds - (time.perf_counter() - started)
                needed = (_ENOUGH * (len(keys) + 1) + 2) * a_pass
                most = int(min(len(keys), max(left / (_ENOUGH * a_pass) - 1, 2.0))) if left > 9 * a_pass else 0
                keys = keys[:most]
                if not keys:
                    break
            row: dict[Any, tuple[float, float, float]] = {}
            state = torch.get_rng_state()
            for key in (None, *keys):
                if key in impossible:
                    continue
                torch.set_rng_state(state)  # a forward that draws numbers draws the same
                run = _AblatedForward(flow, frozenset(() if key is None else removals[key]), model, batch)
                try:
                    found = run.output(model, call, seed, number)
                except Exception:  # whatever a model raises on inputs that are not its own, as codes of categories
                    if key is None:
                        raise
                    impossible.add(key)
                    continue
                if run.impossible:
                    impossible.add(key)
                else:
                    row[key] = found
            rows.append(row)
        passed = time.perf_counter() - started
        if len(rows) == 1 and passed > seconds / _ENOUGH:
            keys = keys[: max(2, int(len(keys) * seconds / _ENOUGH / passed))]
        if len(rows) >= _FEWEST_PAIRS and passed * (1 + 1 / len(rows)) > seconds:
            break
    late = tuple(key for key in removals if key not in keys)
    if batch is None or len(rows) < _FEWEST_PAIRS:
        return Effects(late=tuple(removals), needed=needed)
    found = {key: e for key in keys if key not in impossible and (e := _effect(rows, key, batch.size, shares))}
    return Effects(found, tuple(key for key in keys if key in impossible), late, needed)


def _effect(
    rows: Sequence[dict[Any, tuple[float, float, float]]], key: Hashable, points: int, shares: Array | None
) -> RemovalEffect | None:
    own = [i for i, row in enumerate(rows) if key in row and np.isfinite((row[None], row[key])).all()]
    if len(own) < _FEWEST_PAIRS:
        return None
    pairs = np.array([(rows[i][None], rows[i][key]) for i in own])  # (inits, 2, 3)
    largest, center, spread = pairs[:, :, 0], pairs[:, :, 1].sum(0), pairs[:, :, 2].sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        gamma = center / spread
    change = largest[:, 1] - largest[:, 0]
    before, moved, error = float(largest[:, 0].mean()), float(change.mean()), _error(change)
    if shares is not None:
        before, moved, error = of_all(shares, own, change)
    after = float(np.clip(before + moved, largest[:, 1].min(), largest[:, 1].max()))
    return RemovalEffect(before, after, error, float(gamma[0]), float(gamma[1]), len(own), points)


def of_all(shares: Array, own: Sequence[int], change: Array) -> tuple[float, float, float]:
    """The average share of all initializations, and its change by that of some, with its error: regression on their
    own shares (a control variate); the plain change of a few, or of more than all of these."""
    all_of = float(shares.mean())
    if len(own) < _ENOUGH or max(own) >= len(shares):
        return all_of, float(change.mean()), _error(change)
    x = shares[list(own)]
    slope = float(np.cov(change, x)[0, 1] / x.var(ddof=1)) if np.ptp(x) > 0 else 0.0
    rest = change - slope * (x - x.mean())
    error = math.hypot(_error(rest) * math.sqrt((len(x) - 1) / (len(x) - 2)), slope * _error(shares))
    return all_of, float(change.mean()) + slope * (all_of - float(x.mean())), error


def _error(values: Array) -> float:
    return float(values.std(ddof=1)) / math.sqrt(len(values))


def _batch(
    model: nn.Module, batches: Sequence[Batch], flow: Flow, call: LogitCaller, a_pass: float
) -> tuple[Batch, float]:
    """As many points as memory and `a_pass` seconds for a forward allow, by how long a few take; and how long it is."""
    available = sum(b.size for b in batches)
    numbers = max(1, flows.MOST_NUMBERS // max(flow.points, 1)) // 8  # of a point's largest tensor; it is not kept
    try:
        batch = flows.gathered(batches, min(flows.most_points(numbers, available), _FEWEST))
        taken = min(_timed(model, batch, call) for _ in range(2))  # the first call is slower
        points = flows.most_points(numbers, int(min(available, batch.size * max(a_pass / taken, 1.0))))
        if points > batch.size:
            batch = flows.gathered(batches, points)
            taken = _timed(model, batch, call)
    except Exception:  # of a user's model: one that takes whole batches only, or it fails again
        return batches[0], _timed(model, batches[0], call)
    return batch, taken


def _timed(model: nn.Module, batch: Batch, call: LogitCaller) -> float:
    began = time.perf_counter()
    with torch.no_grad(), every_module_called():
        call.raw(model, batch)
    return _PROBED * (time.perf_counter() - began)


class _AblatedForward:
    """One forward without the part of some steps."""

    def __init__(self, flow: Flow, removed: frozenset[str], model: nn.Module, batch: Batch) -> None:
        self._steps: dict[str, FlowStep] = {step.name: step for step in flow.steps}
        self._removed, self._batch = removed, batch
        constant = {step.name for step in flow.steps if step.constant}
        steps = [self._steps[name] for name in removed if name in self._steps]
        self._before = {step.name: [s for s in step.sources if s not in constant] for step in steps}
        self._needed = {source for sources in self._before.values() for source in sources}
        self._seen: dict[str, StepAverages] = {}
        self._raises = sum(step.added for step in steps) >= 0
        biased = {step.name for step in steps if step.bias and self._raises}
        self._bias = {name: model.get_submodule(name.partition("#")[0]) for name in biased}  # of what raises c by it
        self._last = flow.steps[-1].name if flow.steps else ""
        kept = (*model.parameters(), *model.buffers())
        self._kept = {tensor.untyped_storage().data_ptr() for tensor in kept if tensor.device.type != "meta"}
        self.impossible = False

    def output(self, model: nn.Module, call: LogitCaller, seed: int, member: int) -> tuple[float, float, float]:
        """Largest guess fraction, center and spread of the output."""
        batch = self._batch
        inputs = {key: x for key, x in leaves(batch.inputs).items() if flows.varies(x, batch.size)}
        if DATA in self._removed:
            inputs = {key: x - x.mean(0, keepdim=True) for key, x in inputs.items()}
            batch = replace(batch, inputs=replaced(batch.inputs, inputs))
        elif DATA in self._needed and inputs:
            self._note(DATA, next(iter(inputs.values())))
        with torch.no_grad(), every_module_called(), Hooks(model, enter=self._enter, leave=self._leave):
            result = call.raw(model, batch)
            name = f"code before {OUTPUT}"
            if name in self._removed:
                result = self._without(name, result)
        rows = as_rows(result, batch, call.pick)
        tally = Tally(classes_of(rows), seed, member)
        tally.add(rows)
        seen = flows.step_averages(contrasts(rows))
        return float(tally.fractions.max()), seen.center, seen.spread

    def _enter(self, name: str, _: nn.Module, tensor: torch.Tensor | None) -> torch.Tensor | None:
        gap = f"code before {name}"
        if tensor is None or gap not in self._steps:
            return None
        if gap not in self._removed:
            self._note(gap, tensor)
            return None
        new = self._without(gap, tensor)
        self._note(gap, new)
        # What code made may be read again, by a skip connection: the tensor itself is changed, where it is only that.
        own = tensor.untyped_storage().data_ptr() not in self._kept and 0 not in tensor.stride()
        return tensor.copy_(new) if own and not same_memory(tensor, new) else new

    def _leave(self, name: str, tensor: torch.Tensor | None, _: Any) -> torch.Tensor | None:
        if tensor is None:
            return None
        new = self._without(name, tensor) if name in self._removed else None
        self._note(name, tensor if new is None else new)
        return new

    def _note(self, name: str, tensor: torch.Tensor) -> None:
        x = flows.as_samples(tensor, self._batch.size) if name in self._needed else None
        if x is not None:
            self._seen[name] = flows.step_averages(x)

    def _without(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor with averages over the points as they would be if c were what it was before the step."""
        x = flows.as_samples(tensor, self._batch.size)
        last = name == self._last
        if self._steps[name].constant:
            return torch.zeros_like(tensor)
        if x is None or (last and tensor.ndim > 2):
            self.impossible = True
            return tensor
        if self._bias:  # layers without bias parameters hand on what they get, but for chance
            new = _without_bias(self._bias[name], tensor) if name in self._bias else tensor
            self.impossible |= new is None
            return tensor if new is None else new
        raw = flows.step_averages(x)
        # Of an output, c is that of what arg-max sees.
        seen = flows.step_averages(contrasts(x if x.shape[1] > 1 else x[:, 0])) if last else raw
        sources = [self._seen[source] for source in self._before[name] if source in self._seen]
        before = max((source.correlation for source in sources), default=0.0)
        wanted = before / (1 - before) * seen.spread if before < 1 else math.inf
        if self._raises:
            shares = [source.grand_share for source in sources]
            return self._moved(tensor, _lowered(raw, seen, wanted, 1.0 if last else max(shares, default=0.0)))
        alike = [s for s in sources if s.correlation == before and s.mean.shape == raw.mean.shape and not last]
        if not math.isfinite(wanted):
            self.impossible = True
        elif alike:
            return self._moved(tensor, _given_back(seen, alike[0].mean, wanted, len(x)))
        elif seen.center > 0 and wanted < _LARGEST_FACTOR**2 * seen.center:
            return self._moved(tensor, max(math.sqrt(wanted / seen.center) - 1, 0.0) * raw.mean)
        else:
            self.impossible = True
        return tensor

    def _moved(self, tensor: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        """The tensor, with something added to every unit, whichever axis runs over the points."""
        size = self._batch.size
        shift = shift.to(tensor.dtype)
        if tensor.shape[0] % size:
            moved = tensor.movedim(1, 0)
            return (moved + shift.reshape(moved.shape[1:])).movedim(0, 1)
        rows = tensor.shape[0] // size
        wide = tensor.reshape(size, rows, *tensor.shape[1:]) + shift.reshape(rows, *tensor.shape[1:])
        return wide.reshape(tensor.shape)


def _without_bias(layer: nn.Module, tensor: torch.Tensor) -> torch.Tensor | None:
    """What the layer gives with bias parameters of 0; None where they are not one per unit."""
    bias, units = cast("torch.Tensor", layer.bias), 1 if isinstance(layer, CONVOLUTIONS) else tensor.ndim - 1
    if bias.ndim != 1 or tensor.shape[units] != len(bias):
        return None
    return tensor - bias.reshape([-1 if axis == units else 1 for axis in range(tensor.ndim)])


def _lowered(raw: StepAverages, seen: StepAverages, wanted: float, share: float) -> torch.Tensor:
    """What to add to units so that their grand average has at most that share, and their center is at most `wanted`."""
    rest, grand = raw.center + raw.spread - raw.grand**2, raw.grand
    kept = math.sqrt(share / (1 - share) * max(rest, 0.0)) if share < 1 else math.inf
    off = grand - math.copysign(min(kept, abs(grand)), grand)
    # Σ (mean − off)² = Σ mean² − n (2 grand − off) off
    center = seen.center - (2 * grand - off) * off
    factor = math.sqrt(min(max(wanted, 0.0) / center, 1.0)) if center > 0 else 1.0
    return factor * (raw.mean - off) - raw.mean


def _given_back(seen: StepAverages, mean: torch.Tensor, wanted: float, points: int) -> torch.Tensor:
    """How much of another tensor's averages gives the center `wanted`: the positive root of a quadratic."""
    a, b = float(mean.square().mean()), float((mean * seen.mean).mean())
    c = seen.center - wanted
    root = b * b - a * c
    if a <= 0 or c >= 0 or root < 0:
        return torch.zeros_like(mean)
    return (math.sqrt(root) - b) / a * mean
