"""A residual block: a shortcut plus a branch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from firstguess.base.checks import check_number
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.gaussian import Array
from firstguess.base.text import number
from firstguess.network.finite_sample import PointSample
from firstguess.network.layer import Back, Fold, Layer, Mix, Symmetry, register, sequence_text, signal_after, steps
from firstguess.network.layers.affine import Scale
from firstguess.network.ops import ops
from firstguess.network.points import AllPairsMap, Done, PairwiseMap, Points, Tile, along
from firstguess.network.shapes import Shape
from firstguess.network.signal import Signal, distribution_of_sum
from firstguess.network.tensors import RESIDUAL, Draw, Paths, Place, SourceWriter
from firstguess.network.walk import shapes, through, unsigned, wants_all_pairs


@register
class Residual(Layer):
    """s(x) + scale · f(x): what enters, or a shortcut of layers `s`, plus a branch (theory.md §2).

    Let one of the two, say f, end in random weights W and then only in odd maps T(−h) = −T(h): norms, scales, average
    pools, odd activations. Given all that comes before, W and −W have the same distribution, so (s, f) and (s, −f)
    have: s and f are uncorrelated, at every pair of units and of data points. Hence moments and covariances add, and so
    do squared gradients and tangent kernels, since f's Jacobian changes sign too. A shift after T adds its constant to
    the mean only. The sum is Gaussian where both parts are; else its distribution is sampled
    (`signal.Pairs`).

    A norm at the head of the branch is "before the branch", one at its end "before the sum", one that follows this
    layer "after the sum".

    >>> from firstguess.network.grammar import parse_layers
    >>> (block,) = parse_layers("residual[conv > batchnorm > relu > conv > batchnorm | conv(kernel=1) > batchnorm]")
    >>> [layer.text() for layer in block.shortcut]
    ['conv(kernel=1)', 'batchnorm']
    """

    kind: ClassVar[str] = "residual"
    brackets = ("branch", "shortcut")
    weighted = True
    mixes = Mix.NOTHING
    symmetry = Symmetry.NONE
    breaks_gaussianity = False
    by_token = True
    branch: tuple[Layer, ...]
    scale: float = 1.0
    shortcut: tuple[Layer, ...] = ()  # none: the input as it is

    def __post_init__(self) -> None:
        check_number(self.scale, "scale", "residual", low=float("-inf"), hint="residual(scale=0.5)[relu > dense]")
        if not self.branch:
            raise InvalidInput("a branch with at least one layer", got="residual[]", hint="residual[relu > dense]")

    def text(self) -> str:
        head = "residual" + (f"(scale={number(self.scale)})" if self.scale != 1.0 else "")
        paths = [sequence_text(path) for path in (self.branch, self.shortcut) if path]
        return f"{head}[{' | '.join(paths)}]"

    @property
    def paths(self) -> tuple[tuple[Layer, ...], tuple[Layer, ...]]:
        """The branch and the shortcut (empty: the input as it is)."""
        return self.branch, self.shortcut

    def with_paths(self, change: Callable[[tuple[Layer, ...]], tuple[Layer, ...]]) -> Residual:
        """The same block with other layers in both paths; `change` is not called for a shortcut without layers."""
        return replace(self, branch=change(self.branch), shortcut=change(self.shortcut) if self.shortcut else ())

    def balanced(self, share: float) -> Residual:
        return replace(self, scale=share, shortcut=(*self.shortcut, Scale(math.sqrt(1.0 - share * share))))

    def shape(self, before: Shape, units: int | None) -> Shape:
        """What both paths give; weights that name no width make the other path's width."""
        return self.inside(before, units)[0][-1]

    def inside(self, before: Shape, units: int | None) -> tuple[list[Shape], list[Shape]]:
        """The shapes before every layer of branch and shortcut, and after the last ones."""
        free = replace(before, drawn=False)
        given = shapes(self.branch, free, None, prefix="branch ")[-1].width if self.shortcut else None
        shortcut = shapes(self.shortcut, before, units, last=given or before.width, prefix="shortcut ")
        branch = shapes(self.branch, before, units, last=shortcut[-1].width, prefix="branch ")
        got, wanted = branch[-1], shortcut[-1]
        if got.grid != wanted.grid or (before.drawn and got.width != wanted.width):
            full = before.drawn and wanted.width is not None and got.width is not None
            what, came = (f"{s.sizes}" if full else f"{s.grid}" for s in (wanted, got))
            gives = "gives the same shape as its shortcut" if self.shortcut else "gives back the shape it gets"
            hint = "leave the width of its last layer out; for conv(kernel=3) padding=1"
            hint += ", and one stride in all" if self.shortcut else ""
            raise InvalidInput(f"a branch that {gives}, {what}", got=came, hint=hint)
        return branch, shortcut

    def check(self) -> None:
        """Raise NotCovered unless the two paths are uncorrelated, by the argument above."""
        why = unsigned(self.branch)
        if why and (not self.shortcut or unsigned(self.shortcut)):
            raise NotCovered(
                "a residual branch that ends in random weights (dense or conv), and then at most in norms, scales, "
                "average pools and odd activations",
                got=why,
                hint="move the last layers before the weights, or use the ensemble reading: fg.measure(...)",
            )

    def moments(self, signal: Signal) -> Signal:
        self.check()
        f, x = (
            signal_after(path, signal, prefix=name)
            for path, name in zip(self.paths, ("branch ", "shortcut "), strict=True)
        )
        distribution = distribution_of_sum(x, f, self.scale)
        f = f.times(self.scale)
        scale = max(x.log_scale, f.log_scale)
        x, f = x.at_scale(scale), f.at_scale(scale)
        total = Signal(x.mean + f.mean, x.between + f.between, x.spread + f.spread, scale, distribution)
        return total.rescaled()

    def covariance(self, points: Points, fold: Fold) -> PairwiseMap | AllPairsMap:
        """Both kernels add: K ← K_s + scale²·K_f, and Θ likewise (means, where there are any, multiply)."""
        self.check()
        if wants_all_pairs(self, points.grid):
            return AllPairsMap(lambda k, t: self._whole(points, fold, k, t))
        branch, shortcut = (_moves(path, points, fold) for path in self.paths)
        inner, outer = (path[-1].after if path else points for path in (branch, shortcut))

        def both(tile: Tile) -> None:
            other = Tile(tile.k.copy(), None if tile.t is None else tile.t.copy(), tile.rows, tile.cols)
            other.previous = tile.previous
            along(branch, other)
            along(shortcut, tile)
            self._add(tile, other, outer, inner)

        after = self._sum(points, outer, inner)
        looks = any(path[0].needs_previous for path in (branch, shortcut) if path)
        maps = [[move.correlate for move in path if move.correlate is not None] for path in (branch, shortcut)]
        shares = self.scale**2 * inner.q / after.q
        plain = inner.centred or outer.centred
        if len(maps[0]) < len(branch) or len(maps[1]) < len(shortcut) or not np.ptp(shares) <= 1e-12 or not plain:
            return PairwiseMap(after, both, needs_previous=looks)
        share = float(shares[0])

        def correlate(c: Array) -> Array:
            other = c.copy()
            for each in maps[0]:
                other = each(other)
            for each in maps[1]:
                c = each(c)
            return (1.0 - share) * c + share * other

        return PairwiseMap(after, both, correlate, needs_previous=looks)

    def _add(self, tile: Tile, branch: Tile, outer: Points, inner: Points) -> None:
        """Add the branch's covariances to the shortcut's, in place."""
        square = self.scale**2
        tile.k += square * branch.k
        if not outer.centred and not inner.centred:
            cross = outer.mean[tile.rows, None] * inner.mean[None, tile.cols]
            cross += inner.mean[tile.rows, None] * outer.mean[None, tile.cols]
            tile.k += self.scale * cross
        if tile.t is not None and branch.t is not None:
            tile.t += square * branch.t

    def _sum(self, points: Points, outer: Points, inner: Points) -> Points:
        """The points after the sum of shortcut and branch."""
        q = outer.q + self.scale**2 * inner.q + 2.0 * self.scale * outer.mean * inner.mean
        mean, level = outer.mean + self.scale * inner.mean, _levels(outer, inner, self.scale)
        gaussian = outer.gaussian and inner.gaussian
        what = f"a residual sum with {outer.what if inner.gaussian else inner.what}"
        return points.after(self, q, mean, gaussian=gaussian, what=what, level=level)

    def _whole(self, points: Points, fold: Fold, k: Array, t: Array | None) -> Done:
        """A path that mixes points, or wants the covariances within one: all pairs go through both."""
        f = fold.through(self.branch, points, k.copy(), None if t is None else t.copy(), "branch")
        x = fold.through(self.shortcut, points, k, t, "shortcut") if self.shortcut else Done(k, t, points)
        everything = slice(0, x.k.shape[0])
        tile = Tile(x.k, x.t, everything, everything)
        self._add(tile, Tile(f.k, f.t, everything, everything), x.points, f.points)
        return Done(tile.k, tile.t, self._sum(points, x.points, f.points), (*f.remarks, *x.remarks))

    def point_sample(self, sample: PointSample) -> PointSample:
        """Both paths on the same units: a shortcut keeps its own, which the branch's sums are added to."""
        sample = sample.with_values(sample.values)  # drawn once, for both
        self.shape(Shape(sample.values.shape[2], drawn=True), sample.width)
        outer = _last(self.shortcut, sample, None) if self.shortcut else sample
        inner = _last(self.branch, sample, outer.values.shape[2])
        return sample.with_values(outer.values + self.scale * inner.values)

    def gradient(self, signal: Signal) -> float | None:
        total = 0.0
        factors = self.scale * self.scale, 1.0
        for path, factor, name in zip(self.paths, factors, ("branch ", "shortcut "), strict=True):
            for layer, before, _ in steps(path, signal, prefix=name):
                one = layer.gradient(before)
                if one is None:
                    return None
                factor *= one
            total += factor
        return total

    def token_gradients(self, points: Points, k: Array, along: Callable[[Sequence[Layer]], Back]) -> Back:
        branch, shortcut = along(self.branch), along(self.shortcut)
        return lambda g: shortcut(g) + self.scale**2 * branch(g)

    def assumptions(self) -> Iterable[str]:
        for layer in (*self.branch, *self.shortcut):
            yield from layer.assumptions()

    def tensors(self, place: Place) -> Paths:
        return Paths(self.scale)

    def source(self, at: SourceWriter) -> str:
        at.classes[RESIDUAL] = None
        size, texts = at.size, list[str]()
        for path in self.paths:
            at.size, calls = size, list[str]()
            for index, layer in enumerate(path):
                at.out = None if any(other.weighted for other in path[index + 1 :]) else size
                calls.append(layer.source(at))
            texts.append(calls[0] if len(calls) == 1 else f"nn.Sequential({', '.join(calls)})")
        at.size, at.out = size, None
        return f"ScaledResidual({texts[0]}, {number(self.scale)}{f', {texts[1]}' if self.shortcut else ''})"

    def module(self, place: Place, draw: Draw) -> ops.nn.Module:
        branch, shortcut = place.paths
        drawn = draw.path(branch)  # first, as the engine does
        return ops.ResidualSum(drawn, self.scale, draw.path(shortcut) if shortcut else None)


def _last(path: Sequence[Layer], sample: PointSample, nodes: int | None) -> PointSample:
    for _, sample in through(path, sample, last=nodes):  # noqa: B007, B020  # the last one
        pass
    return sample


def _levels(outer: Points, inner: Points, scale: float) -> Array | None:
    """Random means of both paths: uncorrelated, as their units are."""
    if inner.level is None:
        return outer.level
    own = scale * scale * inner.level
    return own if outer.level is None else outer.level + own


def _moves(path: Sequence[Layer], points: Points, fold: Fold) -> list[PairwiseMap]:
    """The moves of a path whose layers act on pairs alone: one that asks the fold wants all pairs at once."""
    found: list[PairwiseMap] = []
    for layer in path:
        move = layer.covariance(points, fold)
        assert isinstance(move, PairwiseMap)
        found.append(move)
        points = move.after
    return found
