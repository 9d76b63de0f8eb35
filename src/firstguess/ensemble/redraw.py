"""Draw an instance's parameters anew through its own initializers, or through a rule.

What runs, in this order, children before parents: every module's own method without arguments (`reset_parameters`,
`_reset_parameters`, …); then `_init_weights(module)` of the model around it (Hugging Face, timm, nanoGPT); then `init`.
A call whose every result is overwritten by a later one is left out, so that large models are drawn once and not twice.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import _SpectralNorm  # pyright: ignore[reportPrivateUsage]  # it has no other name

from firstguess.ensemble.guard import PrivateRandomness
from firstguess.ensemble.raw import Finding
from firstguess.ensemble.rules import Init, rule

_OWN = ("reset_parameters", "_reset_parameters", "init_weights", "initialize_weights", "_initialize_weights")
_PROBE = 0.12345  # a value that no initializer sets
_ITERATIONS = 15  # of spectral norm's power method: torch's own number at construction
_ENOUGH = 256  # entries of a weight from which its size says something


@dataclass
class _Call:
    """One initializer, and what it does to which parameters."""

    name: str
    module: nn.Module
    run: Callable[[], Any]
    given: bool = False  # by the user as init=
    writes: set[str] = field(default_factory=set[str])  # replaced in full
    changes: set[str] = field(default_factory=set[str])  # depends on what was there


class Redraw:
    """Re-draws `model` in place. `own=False`: only `init`, for a model that a factory has just built."""

    def __init__(self, model: nn.Module, init: Init = None, *, own: bool = True) -> None:
        self.model = model
        before = {name: _mean_square(parameter) for name, parameter in model.named_parameters()}
        kept = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        self.failures: list[Finding] = []
        calls = list(_own_calls(model)) if own else []
        if init is not None:
            draw = rule(init)
            calls += [_Call(name, part, lambda m=part: draw(m), given=True) for name, part in _post_order(model)]
        with PrivateRandomness(0), torch.no_grad():
            usable = [call for call in calls if self._study(call)]
            _set(model, kept)
            self.calls = _needed(usable)
            written = set[str]().union(*(call.writes for call in usable))
            self.left = tuple(name for name in kept if name not in written)
            changed = set[str]().union(*(call.changes for call in usable))
            self._kept = {name: kept[name] for name in self.left if name in changed}
            self.draw()
        left, sizes = self._left_findings() if own else (), self._size_findings(before) if own and init is None else ()
        self.findings = (*left, *sizes, *self.failures)

    def draw(self) -> None:
        """Draw every parameter from the global generators, which the caller has made private."""
        with torch.no_grad():
            if self._kept:
                _set(self.model, self._kept)  # else an initializer that scales what it finds would do so every time
            for call in self.calls:
                call.run()

    def _study(self, call: _Call) -> bool:
        """Find out what a call does, from what it makes of NaN and of a constant; False if it fails."""
        after: list[dict[str, torch.Tensor]] = []
        for value in (math.nan, _PROBE):
            for parameter in call.module.parameters():
                if parameter.is_floating_point():
                    parameter.fill_(value)
            try:
                call.run()
            except Exception as error:  # a model's own initializer: the reading goes on without it, and says so
                if call.given:
                    raise
                self.failures.append(Finding("initializer failed", f"{type(error).__name__}: {error}", call.name))
                return False
            prefix = f"{call.name}." if call.name else ""
            names = {id(p): name for name, p in self.model.named_parameters()}  # a tied one goes by its first name
            own = call.module.named_parameters()
            after.append({names.get(id(p), prefix + name): p.detach().clone() for name, p in own})
        for name, filled in after[0].items():
            if not filled.is_floating_point():
                continue
            if not bool(filled.isnan().any()):
                call.writes.add(name)
            elif bool((after[1][name] != torch.full_like(after[1][name], _PROBE)).any()):
                call.changes.add(name)
        return True

    def _left_findings(self) -> Iterator[Finding]:
        for name in self.left:
            yield Finding(
                "not redrawn",
                "no initializer draws all of this parameter, so every initialization has the model's own value: give a "
                "factory (lambda: Model()) or init=function",
                name,
            )

    def _size_findings(self, before: dict[str, float]) -> Iterator[Finding]:
        """Weights whose own initializers give another size than the model had: its constructor did something else."""
        other: list[tuple[str, float]] = []
        for name, parameter in self.model.named_parameters():
            if name not in before or name in self.left or parameter.ndim < 2 or parameter.numel() < _ENOUGH:
                continue
            now = _mean_square(parameter)
            ratio = math.sqrt(before[name] / now) if now > 0 else math.inf if before[name] > 0 else 1.0
            # Two Gaussian draws of n entries differ in size by a factor 1 ± 1/√n; six of these come up once in 5e8.
            if abs(math.log(max(ratio, 1e-9))) > 0.05 + 6 / math.sqrt(parameter.numel()):
                other.append((name, ratio))
        if other:
            worst = max(other, key=lambda item: abs(math.log(max(item[1], 1e-9))))
            yield Finding(
                "other scale",
                f"the model's own weights differ in size from re-drawn ones in {len(other)} parameters (here "
                f"{worst[1]:.3g} times): it was trained, or its constructor initializes them in its own way; "
                "to measure that, give a factory (lambda: Model()) or init=",
                worst[0],
            )


def _post_order(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Every module once, children before parents: the order of `nn.Module.apply` and of constructors."""
    found: dict[int, tuple[str, nn.Module]] = {}

    def visit(name: str, module: nn.Module) -> None:
        if id(module) in found:
            return
        for child, inner in module.named_children():
            visit(f"{name}.{child}" if name else child, inner)
        found.setdefault(id(module), (name, module))

    visit("", model)
    return list(found.values())


def _own_calls(model: nn.Module) -> Iterator[_Call]:
    order = _post_order(model)
    for name, module in order:
        if parametrize.is_parametrized(module):
            yield from _parametrized(name, module)
            continue
        method = next((m for m in _OWN if _takes(getattr(module, m, None), 0) and not _is_hugging_face(module)), None)
        if method is not None:
            yield _Call(name, module, getattr(module, method))
    owners = {name: module for name, module in order if _takes(getattr(module, "_init_weights", None), 1)}
    for name, module in order:
        if not owners:
            break
        _clear_flags(module)
        around = [path for path in owners if path in ("", name) or name.startswith(f"{path}.")]
        if around:
            owner: Any = owners[max(around, key=len)]
            yield _Call(name, module, lambda o=owner, m=module: o._init_weights(m))


def _takes(method: object, arguments: int) -> bool:
    """Whether `method` can be called with this many positional arguments and needs no other."""
    if not callable(method):
        return False
    try:
        needed = [p for p in inspect.signature(method).parameters.values() if p.default is p.empty]
    except (TypeError, ValueError):
        return False
    plain = [p for p in needed if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(plain) == arguments and not any(p.kind == p.KEYWORD_ONLY for p in needed)


def _is_hugging_face(module: nn.Module) -> bool:
    # `init_weights` of these skips whatever it has done before; `_init_weights(module)` does not.
    return hasattr(module, "_init_weights") and hasattr(module, "config")


def _clear_flags(module: Any) -> None:
    """Hugging Face's initializers leave a marked tensor as it is."""
    for item in (module, *module.parameters(recurse=False), *module.buffers(recurse=False)):
        if getattr(item, "_is_hf_initialized", False):
            item._is_hf_initialized = False


def _parametrized(name: str, module: nn.Module) -> Iterator[_Call]:
    """A module with `torch.nn.utils.parametrize` (weight norm, orthogonal, …): a plain twin is drawn and assigned, so
    that each parametrization inverts what it can."""
    # Not by remove_parametrizations on a copy: a copy shares the class that torch has made for it, and that changes.
    names = list(cast("nn.ModuleDict", module.parametrizations))
    plain: Any = type(module).__bases__[0]
    twin: Any = plain.__new__(plain)
    vars(twin).update(vars(module))
    twin._modules = {name: child for name, child in module.named_children() if name != "parametrizations"}
    own = dict(module.named_parameters(recurse=False)) | {name: getattr(module, name) for name in names}
    twin._parameters = {name: nn.Parameter(value.detach().clone()) for name, value in own.items()}
    if not _takes(getattr(twin, "reset_parameters", None), 0):
        return

    def run() -> None:
        twin.reset_parameters()
        for tensor in names:
            setattr(module, tensor, getattr(twin, tensor).detach())
            _new_vectors(cast("Any", module.parametrizations)[tensor], getattr(twin, tensor).detach())
        for tensor, parameter in module.named_parameters(recurse=False):
            parameter.copy_(getattr(twin, tensor))

    yield _Call(name, module, run)


def _new_vectors(parametrizations: Any, weight: torch.Tensor) -> None:
    """Spectral norm: what its constructor does, for a new weight; in eval mode it keeps the vectors that it has, and
    those of another weight give any norm at all."""
    for found in parametrizations:
        if isinstance(found, _SpectralNorm) and weight.ndim > 1:
            norm: Any = found
            for vector in (norm._u, norm._v):
                vector.copy_(nn.functional.normalize(torch.randn_like(vector), dim=0, eps=norm.eps))
            norm._power_method(norm._reshape_weight_to_matrix(weight), _ITERATIONS)


def _needed(calls: list[_Call]) -> list[_Call]:
    """Without calls whose every result is replaced by a later one. Those with buffers stay: what they do to them is
    not known."""
    kept: list[_Call] = []
    covered: set[str] = set()
    for call in reversed(calls):
        if (call.writes | call.changes) - covered or any(True for _ in call.module.buffers(recurse=False)):
            kept.append(call)
            covered = (covered | call.writes) - call.changes
    return kept[::-1]


def _set(model: nn.Module, values: dict[str, torch.Tensor]) -> None:
    for name, parameter in model.named_parameters():
        if name in values:
            parameter.copy_(values[name])


def _mean_square(parameter: torch.Tensor) -> float:
    value = parameter.detach()
    if not value.is_floating_point() or not value.numel():
        return 0.0
    return float(torch.linalg.vector_norm(value.float() if value.dtype.itemsize < 4 else value)) ** 2 / value.numel()
