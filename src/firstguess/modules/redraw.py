"""Draw an instance's parameters anew through its own initializers, or through a rule.

What runs, in this order, children before parents: every module's own method without arguments (`reset_parameters`,
`_reset_parameters`, …); then `_init_weights(module)` of the model around it (Hugging Face, timm, nanoGPT); then `init`.
A call whose every result is overwritten by a later one is left out, so that large models are drawn once and not twice.
Then every parameter whose own values in the instance none of this can give is made to follow them (follow.py).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, cast

import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import _SpectralNorm  # pyright: ignore[reportPrivateUsage]  # it has no other name
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from firstguess.base.errors import InvalidInput
from firstguess.ensemble.members import Finding, FindingKind
from firstguess.modules.guard import PrivateRandomness
from firstguess.modules.initializers import Init, rule
from firstguess.modules.own_values import ALPHA, Law, Own, Step, findings, follow, learn, learn_more, not_followed

_OWN = ("reset_parameters", "_reset_parameters", "init_weights", "initialize_weights", "_initialize_weights")
_PROBE = 0.12345  # a value that no initializer sets
_ITERATIONS = 15  # of spectral norm's power method: torch's own number at construction


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
    """Re-draws `model` in place. `trained`: follow its own values only where training would not give them."""

    def __init__(self, model: nn.Module, init: Init = None, *, trained: bool = False) -> None:
        if any(parameter.is_meta for parameter in model.parameters()):
            raise InvalidInput(
                "a model whose parameters have values",
                got=f"{type(model).__name__} on the meta device",
                hint='model.to_empty(device="cpu") and its initialization, or give the class itself',
            )
        self.model, self._trained = model, trained
        kept = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        self.failures: list[Finding] = []
        self._steps: list[Step] = []
        self._chosen: dict[str, _Call] = {}
        calls = list(_own_calls(model))
        if init is not None:
            draw = rule(init)
            calls += [_Call(name, part, _on_plain(part, draw), given=True) for name, part in _post_order(model)]
        self._hooked = [(part, hook.name) for part in model.modules() for hook in _hooks(part)]
        with PrivateRandomness(0), torch.no_grad():
            self._free_hooked()
            usable = [call for call in calls if self._study(call)]
            _set(model, kept)
            self.calls = _needed(usable)
            written = set[str]().union(*(call.writes for call in usable))
            self.left = tuple(name for name in kept if name not in written)
            changed = set[str]().union(*(call.changes for call in usable))
            self._kept = {name: kept[name] for name in self.left if name in changed}
            followed = tuple(self._follow(kept, usable))
            if followed:
                self.draw()
        self.findings = (*self._left_findings(), *followed, *self.failures)

    def draw(self) -> None:
        """Draw every parameter from the global generators, which the caller has made private."""
        parameters = dict(self.model.named_parameters()) if self._chosen or self._steps else {}
        with torch.no_grad():
            self._free_hooked()
            if self._kept:
                _set(self.model, self._kept)  # else an initializer that scales what it finds would do so every time
            chosen: dict[str, torch.Tensor] = {}
            for call in self.calls:
                call.run()
                chosen |= {name: parameters[name].clone() for name, by in self._chosen.items() if by is call}
            _set(self.model, chosen)
            for step in self._steps:
                step.run(parameters[step.name])
            if self._steps:
                self._renew_vectors({step.name for step in self._steps})

    def _free_hooked(self) -> None:
        """Weights that a hook makes are no parameters: a parent's initializer may write to them, without effect."""
        for module, name in self._hooked:
            setattr(module, name, getattr(module, name).detach().clone())

    def _follow(self, kept: dict[str, torch.Tensor], usable: list[_Call]) -> Iterator[Finding]:
        """Take from the model's own values what its initializers would not give. What init= reaches is as it says."""
        asked = set[str]().union(*(call.writes | call.changes for call in usable if call.given))
        parameters = {
            name: parameter
            for name, parameter in self.model.named_parameters()
            if name not in self.left and name not in asked and parameter.is_floating_point() and parameter.numel()
        }
        laws = learn(self.draw, parameters)
        owns = {name: Own.of(name, kept[name]) for name in parameters}
        # Now, because a call that is run alone below writes parameters that a later one would set.
        settled = {name for name, law in laws.items() if law.fixed and owns[name].of_law(law, parameters[name], 0.0)}
        last = {name: call for call in usable for name in (*call.writes, *call.changes)}
        for call in self.calls:
            mine = {name: laws[name] for name in call.writes if name in laws and last[name] is call}
            if any(not law.known for law in mine.values()):
                learn_more(call.run, _named(self.model, call.module), mine)
        alpha = ALPHA / (3 * max(len(laws), 1))  # three tests each
        strange: list[tuple[Own, Law]] = []
        for name, law in laws.items():
            own = owns[name].beside(law)
            if name in settled or not own.finite:
                continue
            if not law.fixed and own.blank is None and own.of_law(law, parameters[name], alpha):
                continue
            others = [call for call in usable if name in call.writes][:-1]
            found, fits = self._writer(owns[name], law, others, alpha)
            if found is not None:
                self._chosen[name], law = found
                yield self._writer_finding(name, self._chosen[name])
            if not fits:
                strange.append((owns[name].beside(law), law))
        lost = [name for name, own in owns.items() if not own.finite]
        if lost:
            more = f", here and in {len(lost) - 1} more" if len(lost) > 1 else ""
            yield Finding(
                FindingKind.NOT_FINITE,
                f"the model's own values are not finite{more}: drawn as its initializers do, whatever the model was",
                lost[0],
            )
        if self._chosen:
            self.calls = _needed(usable, self._chosen)
        steps = follow(strange)
        self._steps = [step for step in steps if step.certain or not self._trained]
        yield from findings(self._steps, type(self.model).__name__)
        if len(self._steps) < len(steps):
            others = [step for step in steps if not step.certain]
            yield not_followed(others, type(self.model).__name__)

    def _writer(self, own: Own, last: Law, others: list[_Call], alpha: float) -> tuple[tuple[_Call, Law] | None, bool]:
        """Of several initializers of a parameter, the one whose size is nearest to the model's own values, if it is not
        the last; and whether these are of its law."""
        parameter = dict(self.model.named_parameters())[own.name]
        best, nearest = None, (True, own.distance(last))
        for call in others:
            laws = learn(call.run, {own.name: parameter})
            learn_more(call.run, _named(self.model, call.module), laws)
            law = laws[own.name]
            mine = own.beside(law)
            rank = (mine.blank is not None or not mine.of_law(law, parameter, alpha), mine.distance(law))
            if rank < nearest:
                best, nearest = (call, law), rank
        return best, not nearest[0]

    def _writer_finding(self, name: str, call: _Call) -> Finding:
        parameter = dict(self.model.named_parameters())[name]
        places = [
            f"{path}.{last}" if path else last
            for path, module in self.model.named_modules()
            for last, other in module.named_parameters(recurse=False)
            if other is parameter
        ]
        by = f"{call.name or 'the model'} ({type(call.module).__name__})"
        kind = FindingKind.TIED if len(places) > 1 else FindingKind.OTHER_INITIALIZER
        what = f"one parameter is {' and '.join(places)}" if len(places) > 1 else "several initializers draw it"
        return Finding(
            kind,
            f"{what}: drawn as by {by}, whose size is nearest to the model's own values; pass the class or a factory "
            f"to run the constructor itself: fg.measure(lambda: {type(self.model).__name__}(…), data)",
            name,
        )

    def _renew_vectors(self, names: set[str]) -> None:
        for path, module in self.model.named_modules():
            for hook in _hooks(module):
                if isinstance(hook, SpectralNorm) and f"{path}.{hook.name}_orig".lstrip(".") in names:
                    _new_hook_vectors(module, hook)
            if not parametrize.is_parametrized(module):
                continue
            for tensor, found in cast("nn.ModuleDict", module.parametrizations).items():
                if f"{path}.parametrizations.{tensor}.original".lstrip(".") in names:
                    _new_vectors(found, cast("Any", found).original.detach())

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
                self.failures.append(
                    Finding(FindingKind.INITIALIZER_FAILED, f"{type(error).__name__}: {error}", call.name)
                )
                return False
            after.append({name: p.detach().clone() for name, p in _named(self.model, call.module).items()})
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
                FindingKind.NOT_REDRAWN,
                "no initializer draws all of this parameter, so every initialization has the model's own value: give a "
                "factory (lambda: Model()) or init=function",
                name,
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
            yield _Call(name, module, _on_plain(module, lambda m, method=method: getattr(m, method)()))
    owners = {name: module for name, module in order if _takes(getattr(module, "_init_weights", None), 1)}
    for name, module in order:
        if not owners:
            break
        _clear_flags(module)
        around = [path for path in owners if path in ("", name) or name.startswith(f"{path}.")]
        if around:
            owner: Any = owners[max(around, key=len)]
            yield _Call(name, module, _on_plain(module, lambda m, o=owner: o._init_weights(m)))


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


def _hooks(module: Any) -> list[WeightNorm | SpectralNorm]:
    return [hook for hook in module._forward_pre_hooks.values() if isinstance(hook, (WeightNorm, SpectralNorm))]


def _on_plain(module: nn.Module, draw: Callable[[Any], Any]) -> Callable[[], Any]:
    """`draw` of the module; under the hooks of nn.utils.weight_norm and nn.utils.spectral_norm, whose weight is no
    parameter, of a plain twin, and what it draws is put where the hook makes the weight from."""
    hooks = _hooks(module)
    if not hooks:
        return lambda: draw(module)

    def run() -> None:
        twin: Any = object.__new__(type(module))
        made = {hook.name for hook in hooks}
        vars(twin).update({name: value for name, value in vars(module).items() if name not in made})
        before = {hook.name: _unhooked(module, hook) for hook in hooks}
        twin._parameters = dict(module.named_parameters(recurse=False)) | {
            name: nn.Parameter(value.clone()) for name, value in before.items()
        }
        draw(twin)
        for hook in hooks:
            weight = getattr(twin, hook.name).detach()
            if not torch.equal(weight, before[hook.name]):
                _put(module, hook, weight)

    return run


def _unhooked(module: nn.Module, hook: WeightNorm | SpectralNorm) -> torch.Tensor:
    if isinstance(hook, WeightNorm):
        return hook.compute_weight(module).detach()
    return getattr(module, f"{hook.name}_orig").detach()


def _put(module: Any, hook: WeightNorm | SpectralNorm, weight: torch.Tensor) -> None:
    if isinstance(hook, WeightNorm):
        getattr(module, f"{hook.name}_g").copy_(torch.norm_except_dim(weight, 2, hook.dim))
        getattr(module, f"{hook.name}_v").copy_(weight)
        return
    getattr(module, f"{hook.name}_orig").copy_(weight)
    _new_hook_vectors(module, hook)


def _new_hook_vectors(module: Any, hook: SpectralNorm) -> None:
    """Near the norm, as a first forward in training makes them; in eval mode they stay what they are."""
    u, v = (getattr(module, f"{hook.name}_{vector}") for vector in "uv")
    matrix = hook.reshape_weight_to_matrix(getattr(module, f"{hook.name}_orig").detach())
    u.copy_(nn.functional.normalize(torch.randn_like(u), dim=0, eps=hook.eps))
    for _ in range(_ITERATIONS):
        v.copy_(nn.functional.normalize(matrix.T @ u, dim=0, eps=hook.eps))
        u.copy_(nn.functional.normalize(matrix @ v, dim=0, eps=hook.eps))


def _new_vectors(parametrizations: Any, weight: torch.Tensor) -> None:
    """Spectral norm: what its constructor does, for a new weight; in eval mode it keeps the vectors that it has, and
    those of another weight give any norm at all."""
    for found in parametrizations:
        if isinstance(found, _SpectralNorm) and weight.ndim > 1:
            norm: Any = found
            for vector in (norm._u, norm._v):
                vector.copy_(nn.functional.normalize(torch.randn_like(vector), dim=0, eps=norm.eps))
            norm._power_method(norm._reshape_weight_to_matrix(weight), _ITERATIONS)


def _needed(calls: list[_Call], chosen: Mapping[str, _Call] = MappingProxyType({})) -> list[_Call]:
    """Without calls whose every result is replaced by a later one, or by the one that is `chosen` for it. Those with
    buffers stay: what they do to them is not known."""
    kept: list[_Call] = []
    covered: set[str] = set()
    for call in reversed(calls):
        others = {name for name, by in chosen.items() if by is not call}
        mine = {name for name, by in chosen.items() if by is call}
        if (
            mine
            or (call.writes | call.changes) - covered - others
            or any(True for _ in call.module.buffers(recurse=False))
        ):
            kept.append(call)
            covered = (covered | call.writes) - call.changes
    return kept[::-1]


def _named(model: nn.Module, part: nn.Module) -> dict[str, nn.Parameter]:
    """Parameters of a part by their names in the whole; a tied one goes by its first."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {names[id(parameter)]: parameter for parameter in part.parameters() if id(parameter) in names}


def _set(model: nn.Module, values: dict[str, torch.Tensor]) -> None:
    for name, parameter in model.named_parameters():
        if name in values:
            parameter.copy_(values[name])
