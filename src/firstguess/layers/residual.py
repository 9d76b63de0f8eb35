"""A residual block: a shortcut plus a branch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from firstguess.covariance import OnCorrelations, Points, Step, Tile, Whole
from firstguess.errors import InvalidInput, NotCovered
from firstguess.gaussian import Array
from firstguess.kernel_carry import Carried, carry
from firstguess.layers.activate import Activate
from firstguess.layers.base import Layer, check_number, steps, text
from firstguess.node_pairs import law_of_sum
from firstguess.signal import Signal
from firstguess.text import number

_WEIGHTS = ("dense", "conv")
_CENTRING = ("batchnorm", "layernorm", "groupnorm")  # odd, and they undo a shift in front of them


@dataclass(frozen=True)
class Residual:
    """s(x) + scale · f(x): what enters, or a shortcut of layers `s`, plus a branch (theory.md §2).

    Let one of the two, say f, end in random weights W and then only in odd maps T(−h) = −T(h): norms, scales, average
    pools, odd activations. Given all that comes before, W and −W have the same law, so (s, f) and (s, −f) have: s and f
    are uncorrelated, at every pair of nodes and of data points. Hence moments and covariances add, and so do squared
    gradients and tangent kernels, since f's Jacobian changes sign too. A shift after T adds its constant to the mean
    only. The sum is Gaussian where both parts are; else its law is sampled (`node_pairs`, `kernel_sums`).

    A norm at the head of the branch is "before the branch", one at its end "before the sum", one that follows this
    layer "after the sum".

    >>> from firstguess.layers import parse_layers, text
    >>> (block,) = parse_layers("residual[conv > batchnorm > relu > conv > batchnorm | conv(kernel=1) > batchnorm]")
    >>> [text(layer) for layer in block.shortcut]
    ['conv(kernel=1)', 'batchnorm']
    """

    kind: ClassVar[str] = "residual"
    branch: tuple[Layer, ...]
    scale: float = 1.0
    shortcut: tuple[Layer, ...] = ()  # none: the input as it is

    def __post_init__(self) -> None:
        check_number(self.scale, "scale", "residual", low=float("-inf"), hint="residual(scale=0.5)[relu > dense]")
        if not self.branch:
            raise InvalidInput("a branch with at least one layer", got="residual[]", hint="residual[relu > dense]")

    def text(self) -> str:
        from firstguess.layers.grammar import sequence_text

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

    def check(self) -> None:
        """Raise NotCovered unless the two paths are uncorrelated, by the argument above."""
        why = unsigned(self.branch)
        if why and (not self.shortcut or unsigned(self.shortcut)):
            raise NotCovered(
                "a residual branch that ends in random weights (dense or conv), and then at most in norms, scales, "
                "average pools and odd activations",
                got=why,
                hint="move the last layers in front of the weights, or use the ensemble reading: fg.measure(...)",
            )

    def moments(self, signal: Signal) -> Signal:
        self.check()
        f, x = (_through(path, signal, name) for path, name in zip(self.paths, ("branch ", "shortcut "), strict=True))
        law = law_of_sum(x, f, self.scale)
        f = f.times(self.scale)
        scale = max(x.log_scale, f.log_scale)
        x, f = x.at_scale(scale), f.at_scale(scale)
        total = Signal(x.mean + f.mean, x.between + f.between, x.spread + f.spread, scale, law)
        return total.rescaled()

    def covariance(self, points: Points) -> tuple[Points, Step | Whole]:
        """Both kernels add: K ← K_s + scale²·K_f, and Θ likewise (means, where there are any, multiply)."""
        self.check()
        branch, shortcut = (_steps(path, points) for path in self.paths)
        if branch is None or shortcut is None:
            return points, Whole(lambda k, t: self._whole(points, k, t))
        (inner, run), (outer, other) = branch, shortcut

        def both(tile: Tile) -> None:
            branch = Tile(tile.k.copy(), None if tile.t is None else tile.t.copy(), tile.rows, tile.cols)
            branch.before = tile.before  # a branch may begin with a max-pool
            for step in run:
                step(branch)
            for step in other:
                step(tile)
            self.add(tile, branch, outer, inner)

        after = self.sum_of(outer, inner)
        square = self.scale**2
        maps = [[s.correlate for s in each if isinstance(s, OnCorrelations)] for each in (run, other)]
        shares = square * inner.q / after.q
        plain = not (inner.mean.any() and outer.mean.any())
        if len(maps[0]) < len(run) or len(maps[1]) < len(other) or not np.ptp(shares) <= 1e-12 or not plain:
            return after, both
        share = float(shares[0])

        def correlate(c: Array) -> Array:
            branch = c.copy()
            for each in maps[0]:
                branch = each(branch)
            for each in maps[1]:
                c = each(c)
            return (1.0 - share) * c + share * branch

        return after, OnCorrelations(both, correlate)

    def add(self, tile: Tile, branch: Tile, outer: Points, inner: Points) -> None:
        """Add the branch's covariances to the shortcut's, in place."""
        square = self.scale**2
        tile.k += square * branch.k
        if outer.mean.any() and inner.mean.any():
            cross = outer.mean[tile.rows, None] * inner.mean[None, tile.cols]
            cross += inner.mean[tile.rows, None] * outer.mean[None, tile.cols]
            tile.k += self.scale * cross
        if tile.t is not None and branch.t is not None:
            tile.t += square * branch.t

    def sum_of(self, outer: Points, inner: Points) -> Points:
        """The points after the sum of shortcut and branch."""
        return Points(
            outer.q + self.scale**2 * inner.q + 2.0 * self.scale * outer.mean * inner.mean,
            outer.mean + self.scale * inner.mean,
            outer.gaussian and inner.gaussian,
            inner.width,
            outer.width_after,
            what=f"a residual sum with {outer.what if inner.gaussian else inner.what}",
        )

    def _whole(self, points: Points, k: Array, t: Array | None) -> tuple[Array, Array | None, Points, tuple[str, ...]]:
        """A path that mixes the points (BatchNorm): the whole matrix goes through both."""

        def through(path: Sequence[Layer], name: str, k: Array, t: Array | None) -> Carried:
            return carry(path, points, k, t, lambda index, layer: f"{name} layer {index} ({text(layer)})")

        f = through(self.branch, "branch", k.copy(), None if t is None else t.copy())
        x = through(self.shortcut, "shortcut", k, t) if self.shortcut else Carried(k, t, points, [], [])
        everything = slice(0, k.shape[0])
        tile = Tile(x.k, x.t, everything, everything)
        self.add(tile, Tile(f.k, f.t, everything, everything), x.points, f.points)
        return tile.k, tile.t, self.sum_of(x.points, f.points), (*f.remarks, *x.remarks)

    def gradient(self, signal: Signal) -> float | None:
        total = 0.0
        for path, factor, name in (
            (self.branch, self.scale * self.scale, "branch "),
            (self.shortcut, 1.0, "shortcut "),
        ):
            for layer, before, _ in steps(path, signal, prefix=name):
                one = layer.gradient(before)
                if one is None:
                    return None
                factor *= one
            total += factor
        return total

    def assumptions(self) -> Iterable[str]:
        for layer in (*self.branch, *self.shortcut):
            yield from layer.assumptions()


def unsigned(path: Sequence[Layer]) -> str:
    """Why a path does not change sign with its last weights (up to a constant), in words; "" if it does."""
    last = max((i for i, layer in enumerate(path) if layer.kind in _WEIGHTS), default=None)
    if last is None:
        return f"one without weights ({text(path[-1])})" if path else "one without layers"
    ends = f"one that ends in {text(path[-1])}"
    shifted = False
    for layer in path[last + 1 :]:
        if layer.kind == "shift":
            shifted = True
        elif layer.kind in _CENTRING:
            shifted = False
        elif layer.kind not in ("scale", "avgpool"):
            odd = layer.kind == "rmsnorm" or (isinstance(layer, Activate) and layer.phi.odd)
            if shifted or not odd:
                return ends
    return ""


def _through(path: Sequence[Layer], signal: Signal, name: str) -> Signal:
    for _, _, signal in steps(path, signal, prefix=name):  # noqa: B007, B020  # the last one
        pass
    return signal


def _steps(path: Sequence[Layer], points: Points) -> tuple[Points, list[Step]] | None:
    """The steps of a path that acts on pairs of points alone; None if it does not."""
    run: list[Step] = []
    for layer in path:
        points, step = layer.covariance(points)
        if isinstance(step, Whole):
            return None
        run.append(step)
    return points, run
