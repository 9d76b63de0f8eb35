"""What of a model is re-drawn: named by `redraw=`, or found by a test of its weights.

By default weights that look trained (the test below) keep their values, and with them what belongs to them: the other
parameters of the same layer and, if most weights look trained, every parameter whose values its initializer
would not give. What is as its initializer draws it is fresh. A model without a weight that looks trained is re-drawn
as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TypeAlias

import torch
from torch import nn

from firstguess.base.errors import InvalidInput
from firstguess.ensemble.member_statistics import Finding, FindingKind
from firstguess.modules.members.initializers import is_norm

Redrawn: TypeAlias = "str | nn.Module | Sequence[str | nn.Module] | None"

HEAD, ALL = "head", "all"
_LISTED = 4  # names that a finding has room for
_MADE = ".parametrizations."


def _no_names() -> Collection[str]:
    return ()


@dataclass(frozen=True)
class RedrawnPart:
    """What of an instance is drawn: `names`, or (None) all of it but what looks trained, if that is asked."""

    names: frozenset[str] | None = None
    look: bool = False
    head: Callable[[], Collection[str]] = _no_names  # the parameters that make the logits


def part_of(model: nn.Module, redraw: Redrawn, head: Callable[[], Collection[str]], *, look: bool) -> RedrawnPart:
    """What `redraw` says of `model`; `look`: without it, keep what looks trained."""
    if redraw is None or (isinstance(redraw, str) and redraw == ALL):
        return RedrawnPart(None, look and redraw is None, head)
    return RedrawnPart(frozenset(chosen(model, redraw, head)), False, head)


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
    """A finding for what `redraw=` names."""
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
    """The parameter that a unit is, also seen through transposing and reshaping."""
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


# Whether a weight looks trained: singular values that no draw of independent entries has.
#
# Of independent entries the largest singular value stays at the Marchenko-Pastur edge σ(√m + √n), within Tracy-Widom
# fluctuations of about ½(m^-½ + n^-½)^⅓·σ. Training adds directions that many rows share, and they stand out of it.
# Rows and columns are brought to one size and their means taken off first, so that neither scale, nor blocks of
# different scale (a fused projection of q, k and v), nor a distribution with a mean, nor rows of zeros (padding) count.
# The edge itself is that of the same entries with random signs, which keeps whatever distribution, zeros and outliers
# they have.

# In standard deviations of Tracy and Widom's distribution, whose tail is exp(−⅔s^1.5): below 1e-9 a weight, 1e-6 a
# model of a thousand. Of 12 000 fresh weights of 30 distributions none was above 5, but for copied rows, which are
# taken once.
TRAINED = 8.0
_SCREEN = 4.0  # beyond the edge of equal variances, from where on random signs are asked
_SHORT, _LONG = 256, 1024  # rows and columns that are looked at, at even distances
_LEAST = 8  # rows and columns: fewer have no power
_SIGNS = 4  # draws of random signs
_SD = 1.27  # of Tracy and Widom's distribution for real entries


def has_power(value: torch.Tensor) -> bool:
    """Whether training could be seen at all: a matrix of at least 8 rows and columns, in some view."""
    return value.is_floating_point() and any(min(view.shape) >= _LEAST for view in _views(value))


def score(value: torch.Tensor) -> float:
    """How far the largest singular value is beyond what independent entries give, in standard deviations.

    Of a kernel also along its inputs and along its positions. 0 where there is no power (`has_power`).

    >>> g = torch.Generator().manual_seed(0)
    >>> w = torch.randn(100, 300, generator=g)
    >>> score(w) < 4, score(torch.cat([w, 10 * w.flip(1)])) < 4, score(w + 0.2 * w[:, :1] * w[:1]) > TRAINED
    (True, True, True)
    """
    if not value.is_floating_point():
        return 0.0
    generator = torch.Generator().manual_seed(0)
    return max((_score(view, generator) for view in _views(value.detach())), default=0.0)


def _views(value: torch.Tensor) -> Iterator[torch.Tensor]:
    """The matrices that a weight (units, inputs, positions …) is, one for each axis."""
    if value.ndim < 2 or value.numel() == 0:
        return
    yield value.flatten(1)
    if value.ndim > 2:
        yield value.transpose(0, 1).flatten(1)
        yield value.flatten(0, 1).flatten(1)


def _score(matrix: torch.Tensor, generator: torch.Generator) -> float:
    found = _against_signs(_part(matrix), generator)
    if found > TRAINED:  # rows or columns that were copied when they were drawn (ICNR, shared heads) are one draw
        for axis in (0, 1):
            matrix = _without_copies(matrix, axis)
        found = _against_signs(_part(matrix), generator)
    return found


def _against_signs(w: torch.Tensor, generator: torch.Generator) -> float:
    if not bool(torch.isfinite(w).all()):
        return 0.0
    w = _levelled(w)
    rows, columns = w.shape
    if min(rows, columns) < _LEAST:
        return 0.0
    known = (w != 0).to(w.dtype)
    centred = _centred(w, known)
    entries = centred * math.sqrt(rows * columns / ((rows - 1) * (columns - 1)))  # what centring took
    squares = entries.square()
    size = math.sqrt(float(squares.mean()))
    if size == 0.0:
        return 0.0
    heavy = math.sqrt(max(1.0, float(squares.square().mean()) / (3.0 * size**4)))  # outliers: fewer that count
    unit = 0.5 * _SD * (rows**-0.5 + columns**-0.5) ** (1 / 3) * size * heavy
    own = _largest(centred)
    if own < size * (math.sqrt(rows) + math.sqrt(columns)) + _SCREEN * unit:
        return 0.0
    edges = [
        _largest(_centred(entries * (2.0 * torch.randint(0, 2, w.shape, generator=generator) - 1.0), known))
        for _ in range(_SIGNS)
    ]
    return (own - sum(edges) / _SIGNS) / unit


def _part(matrix: torch.Tensor) -> torch.Tensor:
    """At most 256 × 1024 entries, at even distances, with the short side first."""
    matrix = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    for axis, most in enumerate((_SHORT, _LONG)):
        size = matrix.shape[axis]
        if size > most:
            chosen = torch.linspace(0, size - 1, most, device=matrix.device).round().long()
            matrix = matrix.index_select(axis, chosen)
    return matrix.double().cpu()


def _levelled(w: torch.Tensor) -> torch.Tensor:
    """Rows and columns of one standard deviation, of the entries that are not 0; without those that have none."""
    for axis in (1, 0):
        low, high = w.amin(axis), w.amax(axis)
        w = w.index_select(1 - axis, (high > low).nonzero().flatten())
        if w.numel() == 0:
            return w
    for axis in (1, 0, 1, 0):
        if w.numel() == 0:
            return w
        known = (w != 0).to(w.dtype)
        count = known.sum(axis, keepdim=True).clamp_min(1.0)
        mean = w.sum(axis, keepdim=True) / count
        sd = (((w - mean) * known).square().sum(axis, keepdim=True) / count).sqrt()
        # Else too few entries for a mean and a size, or rounding, of a row that is one constant.
        varies = ((count >= _LEAST) & (sd > 1e-6 * mean.abs())).flatten()
        w = (w / sd.clamp_min(1e-300)).index_select(1 - axis, varies.nonzero().flatten())
    return w


def _centred(w: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
    for axis in (1, 0):
        w = (w - w.sum(axis, keepdim=True) / known.sum(axis, keepdim=True).clamp_min(1.0)) * known
    return w


def _largest(w: torch.Tensor) -> float:
    w = w if w.shape[0] <= w.shape[1] else w.T
    return math.sqrt(max(float(torch.linalg.eigvalsh(w @ w.T)[-1]), 0.0))


def _without_copies(matrix: torch.Tensor, axis: int) -> torch.Tensor:
    """The first of all rows (axis 0) or columns (1) that are equal, told by their product with random numbers."""
    across = matrix if axis == 0 else matrix.T
    mark = torch.randn(across.shape[1], generator=torch.Generator().manual_seed(1)).to(across)
    products = (across * mark).sum(1)
    ordered, order = torch.sort(products, stable=True)
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return across[order[first].sort().values] if axis == 0 else across[order[first].sort().values].T
