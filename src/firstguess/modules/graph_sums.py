"""Sums of two signals of a graph: residual blocks, where what the branch adds is uncorrelated with the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import fx

from firstguess.modules import calls
from firstguess.modules.graph import Carrier, Trail
from firstguess.network.layer import Layer, Meaning, text
from firstguess.network.layers import Residual, Scale
from firstguess.network.layers.residual import unsigned


def sum_of(trail: Trail, node: fx.Node, path: str, left: fx.Node, right: fx.Node) -> Carrier:
    """The sum of two signals that come from one: a residual block, or why it is none."""
    axes = trail.carriers[left].axes
    carrier = Carrier(path, calls.function_name(node), Meaning(), left, axes)
    one, other = trail.back(left), trail.back(right)
    fork = next((n for n in one if n in set(other)), None)
    if fork is None:
        carrier.meaning = Meaning(why=calls.of_several(node))
        return carrier
    sides = one[: one.index(fork)][::-1], other[: other.index(fork)][::-1]
    for side, rest in ((sides[0], right), (sides[1], left)):
        if zero := _zero(trail, side):
            trail.idle.update(side)
            carrier.before = trail.passed[node] = rest
            carrier.meaning = Meaning(
                notes=(f"{zero} starts at zero, so the branch that it ends adds nothing and is left out",)
            )
            return carrier
    carrier.before = fork
    shapes = [trail.shape(n) for n in (left, right)]
    widths = [trail.carriers[n].width for n in (left, right)]
    if None not in shapes and shapes[0] != shapes[1]:
        carrier.meaning = Meaning(why="adds two signals of different shapes")
    elif None in shapes and None not in widths and widths[0] != widths[1]:
        carrier.meaning = Meaning(why=f"adds two signals of different widths, {widths[0]} and {widths[1]}")
    elif any(trail.carriers[n].unread for side in sides for n in side):
        carrier.broken = True
    else:
        carrier.meaning = _residual(trail, sides, (left, right), calls.is_difference(node))
    return carrier


def _residual(
    trail: Trail, sides: tuple[list[fx.Node], list[fx.Node]], ends: tuple[fx.Node, fx.Node], minus: bool
) -> Meaning:
    left, right = ([layer for n in side for layer in trail.carriers[n].meaning.layers] for side in sides)
    if not left and not right:
        return Meaning(why="the signal minus itself") if minus else Meaning((Scale(2.0),))
    if minus:
        right = [*right, Scale(-1.0)]
    # The branch is the path that does more, and has weights to be uncorrelated by.
    paths = left, right
    low, high = sorted((0, 1), key=lambda i: (not unsigned(paths[i]), *_work(paths[i])))
    shortcut, branch = paths[low], paths[high]
    scale = 1.0
    while branch and (factor := branch[-1].multiplier) is not None:
        scale *= factor
        branch = branch[:-1]
    if not branch or unsigned(branch):
        last = text(branch[-1]) if branch else "a scale"
        return Meaning(
            why=f"a branch that ends in {last}; a description's residual branch ends in random weights, and then "
            "at most in norms"
        )
    weights = next(n for n in reversed(sides[high]) if trail.carriers[n].draws)
    if _repeats(trail, ends[low], weights):
        name = trail.carriers[weights].path
        return Meaning(why=f"what {name} adds is in the other side of the sum already, so the two are correlated")
    return Meaning((Residual(tuple(branch), scale, tuple(shortcut)),))


def _repeats(trail: Trail, end: fx.Node, weights: fx.Node) -> bool:
    """Whether a signal is correlated with what these weights put out.

    Its terms that end in other weights are not, even where these ones go into them: the later weights and their
    negatives have the same law, and only one of the two signals changes sign with them.
    """
    curved: list[fx.Node] = []
    todo, seen = [end], set[fx.Node]()
    while todo:
        node = todo.pop()
        if node is weights:
            return True
        if node in seen or trail.carriers[node].draws:
            continue
        seen.add(node)
        layers = trail.carriers[node].meaning.layers
        linear = calls.is_sum(node) or all(layer.affine for layer in layers)
        (todo if linear else curved).extend(trail.terms(node))
    return weights in trail.sources(curved)


def _zero(trail: Trail, side: Iterable[fx.Node]) -> str:
    """The path of what makes a branch zero at initialization, or ""."""
    for node in reversed(list(side)):
        carrier = trail.carriers[node]
        layers = carrier.meaning.layers
        if carrier.meaning.zero or any(layer.multiplier == 0.0 for layer in layers[-1:]):
            return carrier.path or carrier.kind
        if carrier.unread or any(layer.multiplier is None for layer in layers):
            return ""
    return ""


def _work(path: Sequence[Layer]) -> tuple[int, int, int]:
    """Weights, the size of kernels, and layers: a projection is the path with less of them."""
    return sum(layer.draws for layer in path), sum(layer.kernel_side for layer in path), len(path)
