"""A residual block: the input plus a branch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from firstguess.covariance import OnCorrelations, Points, Step, Tile, Whole
from firstguess.errors import InvalidInput, NotCovered
from firstguess.gaussian import Array
from firstguess.kernel_carry import carry
from firstguess.layers.base import Layer, check_number, steps, text
from firstguess.signal import Gaussian, Signal, Unknown
from firstguess.text import number


@dataclass(frozen=True)
class Residual:
    """x + scale · f(x), f ending in random weights: the branch is uncorrelated with x, so moments add (theory.md §2).

    A norm at the head of the branch is "before the branch", one that follows this layer "after the sum".
    """

    kind: ClassVar[str] = "residual"
    branch: tuple[Layer, ...]
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_number(self.scale, "scale", "residual", low=float("-inf"), hint="residual(scale=0.5)[relu > dense]")
        if not self.branch:
            raise InvalidInput("a branch with at least one layer", got="residual[]", hint="residual[relu > dense]")

    def text(self) -> str:
        from firstguess.layers.grammar import sequence_text

        head = "residual" + (f"(scale={number(self.scale)})" if self.scale != 1.0 else "")
        return f"{head}[{sequence_text(self.branch)}]"

    def moments(self, signal: Signal) -> Signal:
        if self.branch[-1].kind not in ("dense", "conv"):
            raise NotCovered(
                "a residual branch that ends in random weights (dense or conv)",
                got=f"one that ends in {text(self.branch[-1])}",
                hint="move the last layers in front of the weights, or use the ensemble reading: fg.measure(...)",
            )
        *_, (_, _, branch) = steps(self.branch, signal, prefix="branch ")
        branch = branch.times(self.scale)
        scale = max(signal.log_scale, branch.log_scale)
        x, f = signal.at_scale(scale), branch.at_scale(scale)
        law = Gaussian() if isinstance(signal.law, Gaussian) else Unknown("a residual sum whose input is not Gaussian")
        return replace(x, between=x.between + f.between, spread=x.spread + f.spread, law=law).rescaled()

    def covariance(self, points: Points) -> tuple[Points, Step | Whole]:
        """Both kernels add: the branch ends in random weights, so it is uncorrelated with its input."""
        if self.branch[-1].kind not in ("dense", "conv"):
            raise NotCovered(
                "a residual branch that ends in random weights",
                got=f"one that ends in {text(self.branch[-1])}",
                hint="move the last layers in front of the weights, or use the ensemble reading: fg.measure(...)",
            )
        square, inner = self.scale**2, points
        run: list[Step] = []
        for layer in self.branch:
            inner, step = layer.covariance(inner)
            if isinstance(step, Whole):
                return points, Whole(lambda k, t: self._whole(points, k, t))
            run.append(step)

        def both(tile: Tile) -> None:
            branch = Tile(tile.k.copy(), None if tile.t is None else tile.t.copy(), tile.rows, tile.cols)
            for step in run:
                step(branch)
            tile.k += square * branch.k
            if tile.t is not None and branch.t is not None:
                tile.t += square * branch.t

        after = self._after(points, inner)
        maps = [step.correlate for step in run if isinstance(step, OnCorrelations)]
        shares = square * inner.q / after.q
        if len(maps) < len(run) or not np.ptp(shares) <= 1e-12:
            return after, both
        share = float(shares[0])

        def correlate(c: Array) -> Array:
            branch = c.copy()
            for each in maps:
                branch = each(branch)
            return (1.0 - share) * c + share * branch

        return after, OnCorrelations(both, correlate)

    def _whole(self, points: Points, k: Array, t: Array | None) -> tuple[Array, Array | None, Points, tuple[str, ...]]:
        """A branch that mixes the points (BatchNorm): the whole matrix goes through it."""
        square = self.scale**2
        branch = carry(
            self.branch,
            points,
            k.copy(),
            None if t is None else t.copy(),
            lambda index, layer: f"branch layer {index} ({text(layer)})",
        )
        k += square * branch.k
        if t is not None and branch.t is not None:
            t += square * branch.t
        return k, t, self._after(points, branch.points), tuple(branch.remarks)

    def _after(self, points: Points, inner: Points) -> Points:
        return Points(
            points.q + self.scale**2 * inner.q,
            points.mean,
            points.gaussian,
            inner.width,
            points.width_after,
            what=f"a residual sum with {points.what}",
        )

    def gradient(self, signal: Signal) -> float | None:
        product = self.scale * self.scale
        for layer, before, _ in steps(self.branch, signal, prefix="branch "):
            factor = layer.gradient(before)
            if factor is None:
                return None
            product *= factor
        return 1.0 + product

    def assumptions(self) -> Iterable[str]:
        for layer in self.branch:
            yield from layer.assumptions()
