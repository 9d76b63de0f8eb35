"""What of a model is fresh: named by `redraw=`, or told by looking at its weights.

Unless told, weights that look trained (trained_look.py) keep their values, and with them what stands beside them: the
other parameters of the same layer and, if most weights look trained, every parameter whose values its initializer
would not give. What is as its initializer draws it is fresh. A model without a weight that looks trained is re-drawn
as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TypeAlias

import torch
from torch import nn

from firstguess.base.errors import InvalidInput
from firstguess.ensemble.members import Finding, FindingKind
from firstguess.modules.initializers import is_norm

Redrawn: TypeAlias = "str | nn.Module | Sequence[str | nn.Module] | None"

HEAD, ALL = "head", "all"
_LISTED = 4  # names that a finding has room for
_MADE = ".parametrizations."


def _no_names() -> Collection[str]:
    return ()


@dataclass(frozen=True)
class Part:
    """What of an instance is drawn: `names`, or (None) all of it but what looks trained, if that is asked."""

    names: frozenset[str] | None = None
    look: bool = False
    head: Callable[[], Collection[str]] = _no_names  # the parameters that make the logits


def part_of(model: nn.Module, redraw: Redrawn, head: Callable[[], Collection[str]], *, look: bool) -> Part:
    """What `redraw` says of `model`; `look`: without it, keep what looks trained."""
    if redraw is None or (isinstance(redraw, str) and redraw == ALL):
        return Part(None, look and redraw is None, head)
    return Part(frozenset(chosen(model, redraw, head)), False, head)


def chosen(model: nn.Module, redraw: Redrawn, head: Callable[[], Collection[str]] = _no_names) -> set[str]:
    """Names of the parameters that `redraw` means: a pattern for names of parameters or modules, a module, several.

    >>> model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    >>> sorted(chosen(model, "1*")), sorted(chosen(model, model[0])), len(chosen(model, ["0", "*.bias"]))
    (['1.bias', '1.weight'], ['0.bias', '0.weight'], 3)
    """
    if isinstance(redraw, nn.Module):
        names = _names(model)
        return {names[id(p)] for p in redraw.parameters() if id(p) in names} or _nothing(model, type(redraw).__name__)
    if isinstance(redraw, str):
        if redraw == HEAD:
            found = set(head())
            return found or _nothing(model, "'head', and no layer that makes the logits was found")
        places = {
            name: [name, *(name.rsplit(".", k)[0] for k in range(1, name.count(".") + 1))]
            for name, _ in model.named_parameters(remove_duplicate=False)
        }
        names = {name: p for name, p in model.named_parameters(remove_duplicate=False)}
        first = _names(model)
        matched = {
            first[id(names[name])] for name, all_ in places.items() if any(fnmatchcase(place, redraw) for place in all_)
        }
        return matched or _nothing(model, repr(redraw))
    if isinstance(redraw, Iterable) and (several := list(redraw)):
        return set[str]().union(*(chosen(model, one, head) for one in several))
    raise InvalidInput(
        "redraw as a name (with * for the rest), a module, a list of these, 'head' or 'all'",
        got=repr(redraw),
        where="redraw",
        hint='redraw="classifier*"',
    )


def _names(model: nn.Module) -> dict[int, str]:
    return {id(parameter): name for name, parameter in model.named_parameters()}


def _nothing(model: nn.Module, got: str) -> set[str]:
    there = ", ".join(name for name, _ in model.named_children()) or "none"
    raise InvalidInput(
        "redraw as names of parameters or modules of the model, or a module in it",
        got=got,
        where="redraw",
        hint=f"one of {there}",
    )


@dataclass(frozen=True)
class Division:
    """Which parameters keep the values that they have, and what is not sure."""

    kept: frozenset[str]
    fresh: frozenset[str]
    unsure: frozenset[str] = field(default_factory=frozenset[str])


def divide(
    names: Collection[str],
    trained: Mapping[str, float],
    strange: Collection[str],
    fixed: Collection[str],
    unmoved: Collection[str],
    entries: Mapping[str, int],
    head: Collection[str],
    enough: int,
    mostly: bool,
) -> Division:
    """Layer by layer, of a model with weights that look `trained`.

    `strange` are parameters whose values their initializers do not give, `fixed` those whose initializer is a constant,
    `unmoved` those that training would have moved (zero biases, orthogonal weights). From `enough` entries on, values
    as their initializer draws them are no accident. `mostly`: most weights look trained; else those that do may be a
    table that was loaded or set by a formula (sinusoids, Gabor filters), and say nothing of the other layers.
    """
    layers: dict[str, set[str]] = {}
    for name in names:
        layers.setdefault(layer_of(name), set()).add(name)
    kept, fresh, unsure = set[str](), set[str](), set[str]()
    for mine in layers.values():
        last = not mine.isdisjoint(head)
        drawn = mine.difference(fixed)
        if not mine.isdisjoint(trained) or not drawn:
            kept |= mine
        elif not mostly:
            fresh |= mine
        elif mine.isdisjoint(strange):
            sure = sum(entries[name] for name in drawn) >= enough
            (fresh if sure or last else kept).update(mine)
            unsure |= set() if sure else mine
        else:
            # A head that its owner drew in another way still has a bias that training would have moved.
            (fresh if last and not mine.isdisjoint(unmoved) else kept).update(mine)
            unsure |= mine if last else set()
    return Division(frozenset(kept), frozenset(fresh), frozenset(unsure))


def layer_of(name: str) -> str:
    """The module whose weight, bias or parametrization a parameter is."""
    return name.split(_MADE)[0] if _MADE in name else name.rpartition(".")[0]


def trained_findings(model: nn.Module, found: Division, largest: float) -> list[Finding]:
    """What is kept because it looks trained, what is re-drawn, and how sure that is."""
    kept = brief(model, found.kept)
    why = (
        f"singular values up to {largest:.0f} standard deviations beyond those of any draw (chance below 1e-6), or not "
        "as its initializers give it"
    )
    nothing = (
        f"every weight looks trained ({why}): these are the guesses of these very weights, one model without "
        'an interval. redraw="head" draws its last layer, redraw="all" every weight'
    )
    message = (
        f"kept as it is ({len(found.kept)} parameters), because it looks trained: {why}. Fresh, "
        f'and re-drawn: {brief(model, found.fresh)}. To say it yourself: redraw=names, "head" or "all"'
    )
    findings = [Finding(FindingKind.TRAINED, message, kept)]
    if not found.fresh:
        findings = [Finding(FindingKind.NOTHING_FRESH, nothing, kept)]
    for which, word in ((found.fresh, "re-drawn"), (found.kept, "kept")):
        doubtful = found.unsure & which
        if doubtful:
            findings.append(
                Finding(
                    FindingKind.MAYBE_TRAINED,
                    f"{word}, but it may be otherwise: too few values to tell, or not as its initializer draws them; "
                    "redraw= decides",
                    brief(model, doubtful),
                )
            )
    return findings


def named_finding(model: nn.Module, fresh: Collection[str], kept: Collection[str]) -> Finding:
    """Of what `redraw=` names."""
    return Finding(
        FindingKind.PART,
        f"re-drawn, as redraw= says; the other {len(kept)} parameters keep the model's own values",
        brief(model, fresh),
    )


def brief(model: nn.Module, names: Collection[str]) -> str:
    """The largest modules all of whose parameters are among `names`, else parameters, the first few of them."""
    found: list[str] = []
    first = _names(model)

    def visit(path: str, module: nn.Module) -> None:
        all_ = {first[id(p)] for p in module.parameters()}
        if all_ and all_.issubset(names):
            found.append(path or type(model).__name__)
            return
        found.extend(
            full
            for _, p in module.named_parameters(recurse=False)
            if (full := first[id(p)]) in names and full not in found
        )
        for name, child in module.named_children():
            visit(f"{path}.{name}" if path else name, child)

    visit("", model)
    more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    return ", ".join(found[:_LISTED]) + more


def head_of(model: nn.Module, logits: Callable[[nn.Module], torch.Tensor]) -> set[str]:
    """Parameters of the last layers with weights before the logits: none lies between them and the logits.

    Back from the logits along autograd's graph, as far as the first weight on every way; biases, gains and temperatures
    after it belong to it. Of a module that is called, all its parameters. Empty where the logits have no graph.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2), nn.Softplus())
    >>> sorted(head_of(model, lambda m: m(torch.ones(1, 4))))
    ['2.bias', '2.weight']
    """
    names = _names(model)
    before = [(p, p.requires_grad) for p in model.parameters() if p.is_floating_point()]
    marks: dict[object, nn.Module] = {}

    def mark(module: nn.Module, _: object, output: object) -> None:
        node = output.grad_fn if isinstance(output, torch.Tensor) else None
        if node is not None:
            marks.setdefault(node, module)

    hooks = [m.register_forward_hook(mark) for m in model.modules() if _is_layer(m)]
    try:
        with torch.enable_grad():
            for parameter, _ in before:
                parameter.requires_grad_(True)
            return _walk(logits(model).grad_fn, marks, names)
    finally:
        for hook in hooks:
            hook.remove()
        for parameter, required in before:
            parameter.requires_grad_(required)


def _is_layer(module: nn.Module) -> bool:
    plain = all(name == "parametrizations" for name, _ in module.named_children())
    return plain and not is_norm(module) and any(p.ndim > 1 for p in module.parameters())


def _walk(start: object, marks: Mapping[object, nn.Module], names: Mapping[int, str]) -> set[str]:
    found, seen, todo = set[str](), set[object](), [start]
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node in marks:
            found |= {names[id(p)] for p in marks[node].parameters() if id(p) in names}
            continue
        following = [before for before, _ in getattr(node, "next_functions", ())]
        leaves = [leaf for before in following if (leaf := _leaf(before)) is not None and id(leaf) in names]
        found |= {names[id(leaf)] for leaf in leaves}
        if not any(leaf.ndim > 1 for leaf in leaves):
            todo += following
    return found


def _leaf(node: object) -> torch.Tensor | None:
    """The parameter that a node is, also seen through transposing and reshaping."""
    while node is not None and not hasattr(node, "variable"):
        following = [before for before, _ in getattr(node, "next_functions", ()) if before is not None]
        if len(following) != 1 or not any(word in type(node).__name__ for word in _VIEWS):
            return None
        node = following[0]
    return getattr(node, "variable", None)


_VIEWS = ("TBackward", "Transpose", "Permute", "View", "Reshape", "ToCopy", "Expand", "Unsqueeze")


def weights_of(model: nn.Module) -> list[str]:
    """What `scale=` multiplies: parameters of two or more axes, but for those of norms and those named a bias."""
    first = _names(model)
    aside = {id(p) for module in model.modules() if is_norm(module) for p in module.parameters(recurse=False)}
    return [
        first[id(p)]
        for name, p in model.named_parameters()
        if p.ndim > 1 and p.is_floating_point() and id(p) not in aside and "bias" not in name.rpartition(".")[2]
    ]


def scale_finding(scale: float, weights: Collection[str]) -> Finding:
    return Finding(
        FindingKind.SCALED,
        f"{len(weights)} weights (parameters of two or more axes, not norms and biases) are multiplied by {scale:g}",
    )
