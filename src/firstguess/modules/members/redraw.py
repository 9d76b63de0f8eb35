"""Re-draw an instance's parameters through its own initializers, or through a rule.

What runs: the model's own initializers (initializers.py), then `init`. A call whose every result is overwritten by a
later one is left out, so that large models are drawn once and not twice.
Then every parameter whose own values in the instance none of this can give is made to follow them
(infer_initializer.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.spectral_norm import SpectralNorm

from firstguess.base.errors import InvalidInput
from firstguess.data.streams import IsolatedRandomness
from firstguess.ensemble.member_statistics import Finding, FindingKind
from firstguess.modules.members import infer_initializer as infer
from firstguess.modules.members import initializers
from firstguess.modules.members.infer_initializer import Adjustment, InitializerStatistics, ObservedWeights
from firstguess.modules.members.initializers import Init, Initializer, RedrawnPart
from firstguess.modules.members.weight_statistics import SHAPED, TRAINED, has_power, score

_PROBE = 0.12345  # a value that no initializer sets


class Redraw:
    """Re-draws `model` in place, or `part` of it, with weights times `scale`.

    `trained`: follow its own values only where training would not give them. `own`: these values, where somebody else
    has them (the model that this one is a copy of): large models are not copied once more.
    """

    def __init__(
        self,
        model: nn.Module,
        init: Init = None,
        *,
        trained: bool = False,
        own: Mapping[str, torch.Tensor] | None = None,
        part: RedrawnPart = RedrawnPart(),  # noqa: B008 - frozen
        scale: float = 1.0,
    ) -> None:
        if any(parameter.is_meta for parameter in model.parameters()):
            hint = 'model.to_empty(device="cpu") and its initialization, or give the class itself'
            got = f"{type(model).__name__} on the meta device"
            raise InvalidInput("a model whose parameters have values", got=got, hint=hint)
        self.model, self._trained, self._part, self._scale = model, trained, part, scale
        kept = _values(model, own)
        self.failures: list[Finding] = []
        self._adjustments: list[Adjustment] = []
        self._chosen: dict[str, Initializer] = {}
        self._clones: dict[str, str] = {}
        self._random = set[str]()
        self.held: frozenset[str] = frozenset() if part.names is None else frozenset(kept) - part.names
        self._restored: dict[str, torch.Tensor] = {}  # of what is held: what calls write all the same
        self._buffers = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
        self._held_buffers: dict[str, torch.Tensor] = {}
        self._scaled: dict[str, torch.Tensor | None] = {}  # None: multiplied after each draw
        calls = list(initializers.own_calls(model))
        if init is not None:
            draw = initializers.rule(init)
            calls += [
                Initializer(name, part, initializers.on_plain(part, draw), given=True)
                for name, part in initializers.post_order(model)
            ]
        self._hooked = [(part, hook.name) for part in model.modules() for hook in initializers.hooks_of(part)]
        with IsolatedRandomness(0), torch.no_grad():
            self._free_hooked()
            usable = [call for call in calls if self._study(call)]
            _assign(model, kept)
            self.calls = _needed(usable, {})
            self._hold(kept)
            written = set[str]().union(*(call.writes for call in usable))
            self.left = tuple(name for name in kept if name not in written and name not in self.held)
            changed = set[str]().union(*(call.changes for call in usable))
            self._kept = {name: kept[name].clone() for name in self.left if name in changed}
            followed = tuple(self._follow(kept, usable))
            buffers = infer.random_buffers(model)
            asked = _touched(call for call in usable if call.given)
            clones = infer.clones({n: value for n, value in kept.items() if n not in asked and n not in self.held})
            if followed or clones or buffers:
                self.draw()
            now = dict(model.named_buffers())
            held = [name for name, value in buffers.items() if torch.equal(now[name], value)]
            if clones:  # but for what every draw gives alike
                now = dict(model.named_parameters())
                self._clones = {name: first for name, first in clones.items() if not torch.equal(now[name], now[first])}
                self.draw()
            fresh = _touched(self.calls) - self.held
            for name in initializers.weights_of(model) if scale != 1.0 else ():
                self._scaled[name] = None if name in fresh else kept[name] * scale
            _assign(model, {name: kept[name] for name in self.held})  # which studying has drawn
            del self._buffers
        found = [*self._left_findings(), *followed, *self._clone_findings(), *infer.buffer_findings(held)]
        if self._scaled:
            found.insert(0, initializers.scale_finding(scale, self._scaled))
        if part.names is not None and self.held:
            found.insert(0, initializers.named_finding(model, part.names, self.held))
        self.findings = (*found, *self.failures)

    def draw(self) -> None:
        """Draw every parameter from the global generators, which the caller has made private."""
        by_name = self._chosen or self._adjustments or self._clones
        parameters = dict(self.model.named_parameters()) if by_name else {}
        with torch.no_grad():
            self._free_hooked()
            if self._kept:
                _assign(self.model, self._kept)  # else an initializer that scales what it finds would do so every time
            chosen: dict[str, torch.Tensor] = {}
            for call in self.calls:
                call.run()
                chosen |= {name: parameters[name].clone() for name, by in self._chosen.items() if by is call}
            _assign(self.model, chosen)
            for one in self._adjustments:
                one.run(parameters[one.name])
            for name, first in self._clones.items():
                parameters[name].copy_(parameters[first])
            _assign(self.model, self._restored)
            for name, buffer in self.model.named_buffers() if self._held_buffers else ():
                if name in self._held_buffers:
                    buffer.copy_(self._held_buffers[name])
            for name, parameter in self.model.named_parameters() if self._scaled else ():
                if name in self._scaled:
                    value = self._scaled[name]
                    parameter.mul_(self._scale) if value is None else parameter.copy_(value)
            if self._adjustments or self._clones:
                self._renew_vectors({*(one.name for one in self._adjustments), *self._clones})

    def _hold(self, kept: dict[str, torch.Tensor]) -> None:
        """Leave out the calls that draw only what is held, and put back what the others write of it."""
        if not self.held:
            return
        self.calls = [call for call in self.calls if (call.writes | call.changes) - self.held]
        touched = _touched(self.calls)
        self._restored = {name: kept[name] for name in self.held & touched}
        fresh = {name.rpartition(".")[0] for name in kept if name not in self.held}
        self._held_buffers = {n: value for n, value in self._buffers.items() if n.rpartition(".")[0] not in fresh}

    def _free_hooked(self) -> None:
        """Weights that a hook makes are no parameters: a parent's initializer may write to them, without effect."""
        for module, name in self._hooked:
            setattr(module, name, getattr(module, name).detach().clone())

    def _follow(self, kept: dict[str, torch.Tensor], usable: list[Initializer]) -> Iterator[Finding]:
        """Take from the model's own values what its initializers would not give. What init= reaches is as it says."""
        asked = _touched(call for call in usable if call.given)
        parameters = {
            name: parameter
            for name, parameter in self.model.named_parameters()
            if name not in (*self.left, *self.held, *asked) and parameter.is_floating_point() and parameter.numel()
        }
        laws = infer.learn(self.draw, parameters)
        owns = {name: ObservedWeights.of(name, kept[name]) for name in parameters}
        # Which of the model's own values look trained, and how much.
        looks = {name: score(own.value) for name, own in owns.items() if self._part.look and not laws[name].fixed}
        looks = {name: size for name, size in looks.items() if size > TRAINED and not owns[name].discrete}
        kept_layers = {initializers.layer_of(name) for name in looks}
        # Now, because a call that is run alone below writes parameters that a later one would set.
        settled = {name for name, law in laws.items() if law.fixed and owns[name].drawn_by(law, parameters[name], 0.0)}
        last = {name: call for call in usable for name in (*call.writes, *call.changes)}
        for call in self.calls:
            mine = {name: laws[name] for name in call.writes if name in laws and last[name] is call}
            if any(not law.known for law in mine.values()):
                infer.learn_more(call.run, _parameters(self.model, call.module), mine)
        alpha = infer.ALPHA / (3 * max(len(laws), 1))  # three tests each
        strange: list[tuple[ObservedWeights, InitializerStatistics]] = []
        for name, law in laws.items():
            own = owns[name].beside(law)
            if name in settled or initializers.layer_of(name) in kept_layers or not own.finite:
                continue
            if not law.fixed and own.blank is None and own.drawn_by(law, parameters[name], alpha):
                continue
            others = [call for call in usable if name in call.writes][:-1]
            found, fits = self._writer(owns[name], law, others, alpha)
            if found is not None:
                self._chosen[name], law = found
            if not fits:
                strange.append((owns[name].beside(law), law))
        lost = [name for name, own in owns.items() if not own.finite]
        if lost:
            message = f"the model's own values are not finite{infer.and_more(lost)}: drawn as its initializers do"
            yield Finding(FindingKind.NOT_FINITE, f"{message}, whatever the model was", lost[0])
        if self._chosen:
            self.calls = _needed(usable, self._chosen)
            self._hold(kept)
        if looks:
            # 8 standard deviations of a normal distribution: one of 1e15 entries.
            far = {n for n, own in owns.items() if own.numbers.reach > 8 * math.sqrt(laws[n].numbers.mean_square)}
            bounded = {n for n in far if not laws[n].fixed and laws[n].numbers.kurtosis < 3.5}
            yield from self._keep_trained(looks, infer.follow(strange), bounded, laws, kept)
            strange = [(own, law) for own, law in strange if own.name not in self.held]
        for name, call in self._chosen.items():
            yield self._writer_finding(name, call)
        alone = {*self.left} - {*self._kept} - self.held - asked
        known = [name for name in kept if name in alone and kept[name].is_floating_point() and kept[name].numel()]
        left = [ObservedWeights.of(name, kept[name]) for name in known]
        vectors = infer.random_vectors([*(own for own, _ in strange), *left])
        random = {one.name for one in vectors}
        adjustments = [*vectors, *infer.follow([(own, law) for own, law in strange if own.name not in random])]
        self._adjustments = [one for one in adjustments if one.certain or not self._trained]
        self._random = random if not self._trained else set()
        yield from infer.findings(self._adjustments)
        if len(self._adjustments) < len(adjustments):
            yield infer.not_followed([one for one in adjustments if not one.certain])

    def _keep_trained(
        self,
        looks: dict[str, float],
        others: list[Adjustment],
        far: set[str],
        laws: dict[str, InitializerStatistics],
        kept: dict[str, torch.Tensor],
    ) -> list[Finding]:
        """Hold what looks trained and, layer by layer, what goes with it. `others` are not as their initializers draw
        them, `far` have entries that these cannot give.

        From 160 entries on, values as their initializer draws them are no accident. Where most weights do not look
        trained, those that do may be a table that was loaded or set by a formula (sinusoids, Gabor filters), and say
        nothing of the other layers.
        """
        _assign(self.model, kept)
        fixed = {name for name, law in laws.items() if law.fixed}
        strange = far | {one.name for one in others if not one.certain}
        unmoved = (fixed - strange) | {one.name for one in others if one.certain}  # training would have moved them
        mostly = 2 * len(looks) >= sum(not law.fixed and has_power(kept[name]) for name, law in laws.items())
        head = self._part.head()
        layers: dict[str, set[str]] = {}
        for name in laws:
            layers.setdefault(initializers.layer_of(name), set()).add(name)
        held, fresh, unsure = set[str](), set[str](), set[str]()
        for mine in layers.values():
            last, drawn = not mine.isdisjoint(head), mine - fixed
            if not mine.isdisjoint(looks) or not drawn:
                held |= mine
            elif not mostly:
                fresh |= mine
            elif mine.isdisjoint(strange):
                sure = sum(kept[name].numel() for name in drawn) >= SHAPED
                (fresh if sure or last else held).update(mine)
                unsure |= set() if sure else mine
            else:
                # A head that its owner drew in another way still has a bias that training would have moved.
                (fresh if last and not mine.isdisjoint(unmoved) else held).update(mine)
                unsure |= mine if last else set()
        self.held = frozenset(held)
        self._chosen = {name: call for name, call in self._chosen.items() if name not in self.held}
        self._hold(kept)
        return initializers.trained_findings(self.model, held, fresh, unsure, max(looks.values()))

    def _writer(
        self, own: ObservedWeights, last: InitializerStatistics, others: list[Initializer], alpha: float
    ) -> tuple[tuple[Initializer, InitializerStatistics] | None, bool]:
        """Of several initializers of a parameter, the one whose size is nearest to the model's own values, if it is not
        the last; and whether these are of its distribution."""
        parameter = dict(self.model.named_parameters())[own.name]
        best, nearest = None, (True, own.distance(last))
        for call in others:
            laws = infer.learn(call.run, {own.name: parameter})
            infer.learn_more(call.run, _parameters(self.model, call.module), laws)
            law = laws[own.name]
            mine = own.beside(law)
            rank = (mine.blank is not None or not mine.drawn_by(law, parameter, alpha), mine.distance(law))
            if rank < nearest:
                best, nearest = (call, law), rank
        return best, not nearest[0]

    def _writer_finding(self, name: str, call: Initializer) -> Finding:
        parameter = dict(self.model.named_parameters())[name]
        places = [
            f"{path}.{last}" if path else last
            for path, module in self.model.named_modules()
            for last, other in module.named_parameters(recurse=False)
            if other is parameter
        ]
        kind = type(call.module).__name__
        whose = name.rpartition(".")[0] == call.name  # said alike of all of them, so that they are one line
        by = f"its own {kind}" if whose else f"{call.name or 'the model'} ({kind})"
        said = FindingKind.TIED if len(places) > 1 else FindingKind.OTHER_INITIALIZER
        what = f"one parameter is {' and '.join(places)}" if len(places) > 1 else "several initializers draw it"
        message = f"{what}: drawn as by {by}, whose size is nearest to the model's own values; {infer.BY_CONSTRUCTOR}"
        return Finding(said, message, name)

    def _renew_vectors(self, names: set[str]) -> None:
        for path, module in self.model.named_modules():
            for hook in initializers.hooks_of(module):
                if isinstance(hook, SpectralNorm) and f"{path}.{hook.name}_orig".lstrip(".") in names:
                    initializers.new_hook_vectors(module, hook)
            if not parametrize.is_parametrized(module):
                continue
            for tensor, found in cast("nn.ModuleDict", module.parametrizations).items():
                if f"{path}.parametrizations.{tensor}.original".lstrip(".") in names:
                    initializers.new_vectors(found, cast("Any", found).original.detach())

    def _study(self, call: Initializer) -> bool:
        """Find out what a call does, from what it makes of NaN and of a constant; False if it fails."""
        filled = self._filled(call, math.nan, lambda p: bool(p.isnan().any()))
        if filled is None:
            return False
        call.writes.update(name for name, partly in filled.items() if not partly)
        if all(name in call.writes for name in filled):
            return True
        changed = self._filled(call, _PROBE, lambda p: bool((p != torch.full((), _PROBE).to(p)).any()))
        if changed is None:
            return False
        call.changes.update(name for name, other in changed.items() if other and name not in call.writes)
        return True

    def _filled(self, call: Initializer, value: float, look: Callable[[torch.Tensor], bool]) -> dict[str, bool] | None:
        """What `look` says of each parameter of a call that finds `value` everywhere; None if the call fails."""
        for parameter in call.module.parameters():
            if parameter.is_floating_point():
                parameter.fill_(value)
        try:
            call.run()
        except Exception as error:  # a model's own initializer: the reading continues without it, and says so
            if call.given:
                raise
            self.failures.append(Finding(FindingKind.INITIALIZER_FAILED, f"{type(error).__name__}: {error}", call.name))
            return None
        own = _parameters(self.model, call.module)
        return {name: look(p.detach()) for name, p in own.items() if p.is_floating_point()}

    def _clone_findings(self) -> Iterator[Finding]:
        if not self._clones:
            return
        name, first = next(iter(self._clones.items()))
        message = f"has exactly the values of {first}{infer.and_more(self._clones)}: a layer that was copied after it "
        message += "was drawn (nn.TransformerEncoder does that); every initialization keeps them equal. Layers of "
        yield Finding(FindingKind.CLONED, f"{message}their own: build each, or give init=", name)

    def _left_findings(self) -> Iterator[Finding]:
        values = dict(self.model.named_parameters())
        for name in self.left:
            value = values[name].detach().flatten() if name in values else torch.empty(0)
            # A constant that no initializer is for (a gain, a LayerScale) is meant to be the same everywhere.
            drawn = hasattr(self.model.get_submodule(name.rpartition(".")[0]), "reset_parameters")
            constant = not drawn and len(value) > 0 and bool((value == value[0]).all())
            if name in self._random or constant:
                continue
            message = "no initializer draws all of this parameter, so every initialization has the model's own value, "
            message += f"and intervals are for this value; {infer.BY_CONSTRUCTOR}, or give init="
            yield Finding(FindingKind.NOT_REDRAWN, message, name)


def _values(model: nn.Module, own: Mapping[str, torch.Tensor] | None) -> dict[str, torch.Tensor]:
    """The model's values, by name: those of `own` where they are the same tensors elsewhere, else copies."""
    found: dict[str, torch.Tensor] = {}
    for name, parameter in model.named_parameters():
        other = None if own is None else own.get(name)
        if other is not None and (other.shape, other.dtype) == (parameter.shape, parameter.dtype):
            found[name] = other.detach() if other.device == parameter.device else parameter.detach().clone()
        else:
            found[name] = parameter.detach().clone()
    return found


def _touched(calls: Iterable[Initializer]) -> set[str]:
    """The parameters that any of these calls writes or changes."""
    return set[str]().union(*(call.writes | call.changes for call in calls))


def _needed(calls: list[Initializer], chosen: Mapping[str, Initializer]) -> list[Initializer]:
    """Without calls whose every result is replaced by a later one, or by the one that is `chosen` for it. Those with
    buffers stay: what they do to them is not known."""
    kept: list[Initializer] = []
    covered: set[str] = set()
    for call in reversed(calls):
        others = {name for name, by in chosen.items() if by is not call}
        needed = len(others) < len(chosen) or (call.writes | call.changes) - covered - others
        if needed or any(True for _ in call.module.buffers(recurse=False)):
            kept.append(call)
            covered = (covered | call.writes) - call.changes
    return kept[::-1]


def _parameters(model: nn.Module, part: nn.Module) -> dict[str, nn.Parameter]:
    """Parameters of a part by their names in the whole; a tied one goes by its first."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {names[id(parameter)]: parameter for parameter in part.parameters() if id(parameter) in names}


def _assign(model: nn.Module, values: dict[str, torch.Tensor]) -> None:
    for name, parameter in model.named_parameters():
        if name in values:
            parameter.copy_(values[name])
