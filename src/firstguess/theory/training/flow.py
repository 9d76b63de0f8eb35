"""Gradient descent in the wide limit: logits move along the tangent kernel, and no network is trained (theory.md (13)).

Logits over the training points are (points, columns): of two classes g = f₁ − f₀, one column per network, of M classes
M. With S = Σ_t η_t r_t/n, r = softmax − Y the residuals, logits of any points are Z(0) − c·Θ_any,train S: (14).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from firstguess.theory.training.schedules import Rate

Values: TypeAlias = NDArray[np.floating[Any]]  # float32 where there are many points
Loss: TypeAlias = Literal["cross-entropy", "squared"]

_EXACT = 24  # steps that are taken one by one before the flow takes over
_CLOSE = 5e-4  # of the logits' size: by how much a step of descent and of the flow may differ then
_TOLERANCE = 1e-3  # of the logits' size, for one step of the integrator
_DAMPING = 2.0 / 13.0
_MOST_STAGES = 200


@dataclass(frozen=True)
class DescentTask:
    """What is learned: labels, by which loss; how logits are laid out."""

    labels: NDArray[np.int64]
    classes: int
    networks: int
    loss: Loss = "cross-entropy"
    gains: Values | None = None  # by column: factors on Θ of each network, theory.md (19)
    each: bool = False  # both logits of two classes are followed, not only their difference

    @property
    def columns(self) -> int:
        """Logits of one network: for two classes their difference."""
        return 1 if self.paired else self.classes

    @property
    def paired(self) -> bool:
        """Whether the difference of two classes' logits is all that is followed."""
        return self.classes == 2 and not self.each

    @property
    def factor(self) -> float:
        """c of Z = Z(0) − c·ΘS: both classes of two move against each other, under squared loss towards ±1."""
        return 2.0 if self.paired and self.loss == "cross-entropy" else 1.0

    @property
    def steepest(self) -> float:
        """The largest slope of c·r by the logits."""
        if self.loss == "squared":
            return 1.0
        return 0.5  # ¼ · 2 for two classes, and ½ at most for a softmax

    def shaped(self, z: Values) -> Values:
        """(points, networks, classes); the logits of two classes are 0 and g."""
        if not self.paired:
            return z.reshape(len(z), self.networks, self.classes)
        return np.stack([np.zeros_like(z), z], axis=2)

    def residuals(self, z: Values) -> Values:
        """dLoss/dlogits of every training point, times the network's own factor on Θ."""
        r = self._residuals(z)
        return r if self.gains is None else r * self.gains.astype(r.dtype)

    def _residuals(self, z: Values) -> Values:
        if self.paired:
            y = self.labels[:, None].astype(z.dtype)
            if self.loss == "squared":
                return z - (2 * y - 1)
            with np.errstate(over="ignore"):
                return 1.0 / (1.0 + np.exp(-z)) - y
        r = z.reshape(len(z), self.networks, self.classes).copy()
        if self.loss == "cross-entropy":
            r = np.exp(r - r.max(axis=2, keepdims=True))
            r /= r.sum(axis=2, keepdims=True)
        r[np.arange(len(z)), :, self.labels] -= 1
        return r.reshape(z.shape)


@dataclass(frozen=True)
class Product:
    """Z(0) − c·ΘS."""

    theta: Values
    start: Values
    factor: float

    def __call__(self, s: Values) -> Values:
        return self.start - self.theta.dtype.type(self.factor) * (self.theta @ s)


@dataclass(frozen=True)
class State:
    """The state after some steps: their number, the logits of training points, and S of every other point's logits."""

    step: int
    z: Values
    s: Values
    kept: float = 1.0  # what weight decay has left of logits at the start


def descend(
    task: DescentTask,
    theta: Values,
    start: Values,
    rate: Rate,
    looks: NDArray[np.int64],
    *,
    spread: float,
    exact: bool = False,
) -> Iterator[State]:
    """Full-batch descent: states at the steps `looks` (the first is 0).

    The first 24 steps are exact. Then, once a step of descent and one of the flow dZ/dt = −cΘr/n are alike (so they are
    where rates are small, or fast modes are gone), the flow is integrated by a stabilized Runge–Kutta method; before
    that, and with `exact`, every step is taken. `spread` is the largest eigenvalue of Θ/n.
    """
    product = Product(theta, start, task.factor)
    n = len(start)
    s = np.zeros_like(start)
    z = start
    size = float(np.sqrt(np.mean(np.square(start, dtype=np.float64)))) + 1e-30
    step, test = 0, _EXACT
    still = np.maximum.accumulate([rate(k) for k in range(int(looks[-1]))][::-1])[::-1]  # the largest rate to come
    for target in looks.tolist():
        while step < target:
            if not exact and step >= test:
                flow = _Flow(task, product, spread, size)
                far = flow.apart(s, z, float(still[step]) / n)
                if far <= _CLOSE:
                    yield from flow.run(s, z, step, looks[looks >= target], rate)
                    return
                test = 2 * step
            r = task.residuals(z)
            s = s + theta.dtype.type(rate(step) / n) * r
            z = product(s)
            step += 1
        yield State(step, z, s)


class _Flow:
    """dS/dτ = r(Z(0) − cΘS)/n by the second-order Runge–Kutta–Chebyshev method (Sommeijer, Shampine and Verwer 1998).

    τ = Σ η, so that any schedule of learning rates is one and the same flow.
    """

    def __init__(self, task: DescentTask, product: Product, spread: float, size: float) -> None:
        self._task, self._product, self._size = task, product, size
        self._n = len(product.start)
        # The Jacobian's spectral radius by τ, n included: Θ/n has the largest eigenvalue `spread`.
        self._radius = spread * task.steepest * 1.02

    def _slope(self, z: Values) -> Values:
        return self._task.residuals(z) / self._task_type(self._n)

    def _task_type(self, value: float) -> np.floating:
        return self._product.start.dtype.type(value)

    def apart(self, s: Values, z: Values, rate_by_n: float) -> float:
        """How far one step of descent is from the flow's, in sizes of the logits (root mean square)."""
        h = rate_by_n * self._n
        once = self._product(s + self._task_type(h) * self._slope(z))
        flowed, _, _ = self._step(s, z, self._slope(z), h)
        return float(np.sqrt(np.mean(np.square(once - self._product(flowed), dtype=np.float64)))) / self._size

    def _step(self, s: Values, z: Values, slope: Values, h: float) -> tuple[Values, Values, Values]:
        """S, Z and the slope after a time h."""
        number = self._task_type
        stages = max(2, min(_MOST_STAGES, 1 + math.ceil(math.sqrt(1.0 + 1.54 * h * self._radius))))
        first, rows = _coefficients(stages)
        before, now = s, s + number(first * h) * slope
        for mu, nu, tilde, gamma in rows:
            last = self._slope(self._product(now))
            new = number(1.0 - mu - nu) * s + number(mu) * now + number(nu) * before
            new += number(tilde * h) * last
            new += number(gamma * h) * slope
            before, now = now, new
        z = self._product(now)
        return now, z, self._slope(z)

    def run(self, s: Values, z: Values, step: int, looks: NDArray[np.int64], rate: Rate) -> Iterator[State]:
        slope = self._slope(z)
        h = 0.0
        for target in looks.tolist():
            left = math.fsum(rate(k) for k in range(step, target))
            h = h or 4.0 * left / max(target - step, 1)  # a schedule may begin with rates of 0
            while left > 0.0:
                # As many stages as there may be bound the step, too.
                longest = ((_MOST_STAGES - 1) ** 2 - 1.0) / (1.54 * max(self._radius, 1e-300))
                h = min(h, left, longest)
                new, z_new, slope_new = self._step(s, z, slope, h)
                error = self._error(s, new, slope, slope_new, h)
                grow = 0.8 * (_TOLERANCE / max(error, 1e-12)) ** (1.0 / 3.0)
                if error <= _TOLERANCE:
                    s, z, slope = new, z_new, slope_new
                    left = 0.0 if left - h <= 1e-12 * left else left - h
                h *= min(5.0, max(0.1, grow)) if math.isfinite(error) else 0.1
                if not h > 1e-12 * left:  # no step is short enough: not finite from here on
                    z, left = np.full_like(z, math.nan), 0.0
            step = target
            yield State(step, z, s)

    def _error(self, old: Values, new: Values, slope: Values, slope_new: Values, h: float) -> float:
        number = self._task_type
        estimate = number(0.8) * (old - new) + number(0.4 * h) * (slope + slope_new)
        moved = self._product(estimate) - self._product.start
        return float(np.sqrt(np.mean(np.square(moved, dtype=np.float64)))) / self._size


def _coefficients(stages: int) -> tuple[float, list[tuple[float, float, float, float]]]:
    """μ̃ of the first stage of the second-order method with a number of stages, and μ, ν, μ̃, γ̃ of the others."""
    w0 = 1.0 + _DAMPING / stages**2
    t, d, dd = [1.0, w0], [0.0, 1.0], [0.0, 0.0]  # Chebyshev polynomials at w0 and their derivatives
    for j in range(2, stages + 1):
        t.append(2 * w0 * t[j - 1] - t[j - 2])
        d.append(2 * t[j - 1] + 2 * w0 * d[j - 1] - d[j - 2])
        dd.append(4 * d[j - 1] + 2 * w0 * dd[j - 1] - dd[j - 2])
    w1 = d[stages] / dd[stages]
    b = [0.0, 0.0, *(dd[j] / d[j] ** 2 for j in range(2, stages + 1))]
    b[0] = b[1] = b[2]
    a = [1.0 - b[j] * t[j] for j in range(stages + 1)]
    rows: list[tuple[float, float, float, float]] = []
    for j in range(2, stages + 1):
        mu, nu, tilde = 2 * b[j] * w0 / b[j - 1], -b[j] / b[j - 2], 2 * b[j] * w1 / b[j - 1]
        rows.append((mu, nu, tilde, -a[j - 1] * tilde))
    return b[1] * w1, rows
