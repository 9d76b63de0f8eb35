"""The closed form at finite width and dimension: the overlap of two points is then not one number.

Over pairs of points and networks it has a mean e, a variance v and a third cumulant k; of v a part u is between
networks: the covariance of the overlaps of two disjoint pairs. A layer maps them by what it does to one overlap, and
its N nodes add to them (`node_moments`): theory.md (40), (42), (45). The state's `signal` carries e, as in the wide
limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from firstguess.base.errors import NotCovered
from firstguess.network.activations.record import Activation
from firstguess.network.node_moments import NodeLaw, at, at_zero, taken_off
from firstguess.network.signal import Signal

_SMALL_EPS = 1e-3  # a share of the variance that a norm's ε may have: more, and it is no norm to the expansion
_ROUNDING = 1e-9  # of a variance that is 0 for points that nearly coincide
_ONE_SIZE = 1e-6  # relative variance of sizes that is none
_SMALL_SIZES = 0.01  # relative variance of the inputs' sizes that a centring norm behind φ makes a small correction of


def _refuse(what: str, got: str) -> NotCovered:
    return NotCovered(f"{what}, for an expansion in 1/width", got=got, hint="fg.measure(net, x, width=…)")


@dataclass(frozen=True)
class FiniteSignal:
    """Overlaps of two points through a network of finite layers.

    `nodes` is how many of them the next weights sum over (the data's dimension, at first), `law` what they are, `e` the
    mean overlap of the Gaussian nodes that they were made of. `even`: in the wide limit all overlaps are 0; then e is
    of the order 1/nodes itself, and one more order is known (42).
    """

    signal: Signal
    nodes: float  # may be infinite
    width: float  # of layers that name none
    even: bool
    sizes: float  # 0: all points have one size; else about the relative variance of their mean squares
    e: float
    v: float = 0.0
    k: float = 0.0
    u: float = 0.0
    law: NodeLaw = field(default_factory=NodeLaw)
    shifted: bool = False  # a constant was taken off behind φ, which is right at one size only
    inputs: bool = False  # no weights so far
    fixed: bool = False  # a norm stands between φ and the next weights
    over_points: bool = False  # so does one over points
    pulls: tuple[float, ...] = ()  # behind norms over points: how sizes of points un-centred them, layer by layer
    points: float = math.inf  # of a batch
    triangle: float = 0.0  # of even networks: E c_ab c_bc c_ca, and the covariance of two overlaps with a common point
    common: float = 0.0
    leading: tuple[float, float] = (0.0, 0.0)  # e and v by (40) alone, of even networks: what the next order changed

    def __post_init__(self) -> None:
        if self.inputs and not self.law.fixed_center:
            object.__setattr__(self, "law", replace(self.law, fixed_center=True))

    def activated(self, phi: Activation, after: Signal) -> FiniteSignal:
        """φ on every node."""
        if self.law.phi is not None:
            raise _refuse("one activation between two layers of weights", "two")
        if phi.degree is None and self.law.centred_first:
            raise _refuse("a scale-free activation behind a norm", str(phi))
        plain = replace(phi, centered=False) if phi.centered else phi
        law = replace(self.law, phi=plain, q=1.0 if phi.degree is not None else self.signal.q)
        return replace(self, signal=after, law=law, shifted=phi.centered)

    def normed(self, after: Signal, *, centres: bool, eps: float) -> FiniteSignal:
        """A norm over nodes: in front of φ, or behind it."""
        if eps > _SMALL_EPS * self.signal.q:
            raise _refuse("a norm whose ε is far below the variance", f"ε = {eps:g}")
        if self.law.phi is None and not self.inputs:
            return replace(self, signal=after, law=replace(self.law, centred_first=centres or self.law.centred_first))
        if self.law.phi is None and centres:
            raise _refuse("inputs that meet a dense layer first", "a norm on the inputs")
        if self.law.centred_first:
            raise _refuse("a norm on one side of the activation", "norms on both")
        law = replace(self.law, centres=centres or self.law.centres)
        return replace(self, signal=after, law=law, fixed=True)

    def normed_over_points(self, after: Signal) -> FiniteSignal:
        """A norm over the points of a batch, behind a scale-free φ: theory.md (44)."""
        phi = self.law.phi
        if phi is None or phi.degree is None or not self.even or self.fixed or self.law.centred_first:
            got = "one in front of it" if phi is None else str(phi)
            raise _refuse("a norm over points behind a scale-free activation, and no other norm", got)
        law = replace(self.law, centres=True)
        return replace(self, signal=after, law=law, shifted=False, fixed=True, over_points=True)

    def _behind_batch(self) -> tuple[_Change, float, tuple[float, ...]]:
        """theory.md (44): what a layer adds, the relative variance of the points' sizes V, and the pulls.

        Signs see directions, and sizes that differ over points un-centre the unit vectors: by βV and skew/N a layer.
        """
        z, n, v, k = at_zero(self.law), self.nodes, self.v, self.k
        kept = 1.0 - min(1.0, 4.0 * z.s1 * self.e / self.sizes) if self.sizes > 0.0 else 1.0
        mean, scale = taken_off(self.law)
        pulls = (*(kept * pull for pull in self.pulls), kept * 0.5 * mean / scale * self.sizes + z.skew / n)
        last = len(pulls) - 1
        e = 0.25 * sum(z.c1 ** (last - i) * pull**2 for i, pull in enumerate(pulls))
        third = z.c1**3 * k + 3.0 * z.c1**2 * z.c2 * v * v + 3.0 * z.c1 * z.s1 * v / n + (z.skew / n) ** 2
        triangle = z.c1**3 * self.triangle + 3.0 * z.c1**2 * v / n + 1.0 / n**2
        wide = z.c1**2 * v + z.s0 / n
        return (
            _Change(e, wide, third, 0.0, (e, wide), triangle, 0.0),
            kept**2 * self.sizes + (z.fourth - 1.0) / n,
            pulls,
        )

    def weighted(self, after: Signal, bias_var: float, nodes: float) -> FiniteSignal:
        """Behind Gaussian weights, which sum over all nodes; `after` is the closed form there for the mean overlap."""
        self._check(bias_var)
        pulls, sizes = self.pulls, 0.0 if self.fixed else self.sizes + 2.0 / self.nodes
        if self.over_points:
            change, sizes, pulls = self._behind_batch()
        else:
            change = self._even() if self.even else self._about_e()
        one_minus_c = self.signal.one_minus_c
        kept = after.one_minus_c / one_minus_c if one_minus_c > 0.0 else 0.0  # biases add the same to all pairs
        shift = kept * change.e * after.total
        if not (-after.total < after.between + shift < after.total and change.v > -_ROUNDING):
            raise _refuse("corrections that are small", f"a mean overlap of {after.correlation + kept * change.e:.3g}")
        signal = replace(after, between=after.between + shift, spread=after.spread - shift)
        return FiniteSignal(
            signal,
            nodes,
            self.width,
            self.even,
            sizes,
            signal.correlation,
            kept**2 * max(change.v, 0.0),
            kept**3 * change.k,
            kept**2 * change.u,
            pulls=pulls,
            points=self.points,
            triangle=kept**3 * change.triangle,
            common=kept**2 * change.common,
            leading=change.leading,
        )

    def _check(self, bias_var: float) -> None:
        """Refuse what makes an overlap depend on more than the overlap before: the sizes of the points."""
        phi, centres = self.law.phi, self.law.centres
        if (self.over_points or self.pulls) and bias_var > 0.0:
            raise _refuse("no biases beside norms over points", f"bias_var={bias_var:g}")
        if self.pulls and phi is not None and not self.over_points:
            raise _refuse("norms over points behind every activation", "some without")
        if self.shifted and not centres:
            raise _refuse("an activation that is centred at any size", f"centered({phi})")
        if bias_var > 0.0 and self.sizes > _ONE_SIZE and not self.fixed:
            raise _refuse("points of one size in front of biases", "points whose sizes differ")
        if phi is None or phi.degree is not None or self.sizes <= _ONE_SIZE:
            return
        if not (self.even and centres and self.sizes <= _SMALL_SIZES):
            raise _refuse("points of one size in front of an activation that is not scale-free", str(phi))

    def _even(self) -> _Change:
        """theory.md (42), and its terms in the third derivative of C where φ has one; (40) beside it."""
        z, e, v, k, n = at_zero(self.law), self.e, self.v, self.k, self.nodes
        slope = z.c1 + z.c2 * e
        change = 0.5 * (z.c2 + z.c3 * e) * v + z.c3 * k / 6.0 + z.c4 * v * v / 8.0 + (z.b1 * e + 0.5 * z.b2 * v) / n
        own = z.s0 / (n - 1.0 if self.law.centres else n)
        wide = slope**2 * v + slope * z.c2 * k + (0.5 * z.c2**2 + z.c1 * z.c3) * v * v + 2.0 * z.c1 * z.b1 * v / n
        third = slope**3 * k + 3.0 * z.c1**2 * z.c2 * v * v + 3.0 * z.c1 * z.s1 * v / n + (z.skew / n) ** 2
        e1, v1 = self.leading
        leading = z.c1 * e1 + 0.5 * z.c2 * (e1 * e1 + v1), (z.c1 + z.c2 * e1) ** 2 * v1 + z.s0 / n
        # to leading order: noise of the nodes at two of three sides, or at all; at two sides with a common point
        triangle = z.c1**3 * self.triangle + 3.0 * z.c1**2 * v / n + 1.0 / n**2
        common = z.c1**2 * self.common + (z.c1 * e + 0.5 * z.c2 * v) / n
        wide += own + (z.s1 * e + 0.5 * z.s2 * (v + e * e)) / n
        return _Change(change, wide, third, 0.0, leading, triangle, common)

    def _about_e(self) -> _Change:
        """theory.md (45), with the moments of what is centred where a norm behind φ centres."""
        here, n = at(self.law, self.e), self.nodes
        square = here.slope**2
        return _Change(
            0.5 * here.curve * self.v + here.b / n, square * self.v + here.s / n, 0.0, square * self.u + here.s4 / n
        )


class _Change(NamedTuple):
    """What a layer of nodes adds to the mean overlap in the wide limit, and v, k, u behind it."""

    e: float
    v: float
    k: float
    u: float
    leading: tuple[float, float] = (0.0, 0.0)
    triangle: float = 0.0
    common: float = 0.0
