"""Distributions that weights may be drawn from, by their text: `init=uniform`, `init=rademacher`, `init=student(3)`.

All are centred, independent (but for orthogonal ones) and scaled to Var W = weight_var/fan_in. In the wide limit a sum
over many of them is Gaussian whatever their distribution, as long as that variance is finite; so theory asks for no
more. Where it is infinite (Student's t with at most 2 degrees) sums are stable distributions, not Gaussian: theory
refuses, ensembles draw.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.text import number

NAMES = ("normal", "uniform", "orthogonal", "rademacher", "laplace")
STUDENT = "student"
_STUDENT = re.compile(r"student\((.+)\)")
_FINITE = 2.0  # degrees of Student's t above which its variance is finite
_FOURTH = 4.0  # and its fourth moment, which says how fast sums become Gaussian


def student(degrees: float) -> str:
    """The text of Student's t with these degrees of freedom, as `init` holds it.

    >>> student(3.0), student(2.5)
    ('student(3)', 'student(2.5)')
    """
    return f"{STUDENT}({number(float(degrees))})"


def degrees_of(init: str) -> float | None:
    """The degrees of freedom of a Student's t; None for any other distribution."""
    match = _STUDENT.fullmatch(init)
    try:
        return float(match.group(1)) if match else None
    except ValueError:
        return math.nan


def checked(init: object, kind: str) -> str:
    """The distribution in its shortest text, or InvalidInput."""
    if isinstance(init, str):
        if init in NAMES:
            return init
        degrees = degrees_of(init)
        if degrees is not None and 0.0 < degrees < math.inf:
            return student(degrees)
    hint = f"{kind}(init=uniform), {kind}(init=student(3))"
    raise InvalidInput(f"init to be {', '.join(NAMES)} or student(degrees of freedom)", got=init, where=kind, hint=hint)


def has_variance(init: str) -> bool:
    """Whether the variance is finite."""
    degrees = degrees_of(init)
    return degrees is None or degrees > _FINITE


def covered(init: str) -> None:
    """Raise NotCovered where sums over many weights are not Gaussian."""
    if not has_variance(init):
        expected = "weights of finite variance: sums over many of them are Gaussian then, and only then"
        hint = "init=student(3), or the ensemble reading: fg.measure(...)"
        raise NotCovered(expected, got=f"init={init}, whose variance is infinite", hint=hint)


def draw_weights(
    rng: np.random.Generator, init: str, weight_var: float, networks: int, fan_in: int, nodes: int
) -> NDArray[np.float32]:
    """(networks, fan_in, units) weights of Var W = weight_var/fan_in, as the ensemble draws them.

    Orthogonal ones are the Q of a Gaussian matrix, scaled to the same variance of an entry.
    """
    shape, scale = (networks, fan_in, nodes), np.float32(scale_of(init, weight_var, fan_in))
    if init == "normal":
        return rng.standard_normal(shape, dtype=np.float32) * scale
    if init == "uniform":
        return (rng.random(shape, dtype=np.float32) - np.float32(0.5)) * (np.float32(2.0 * math.sqrt(3.0)) * scale)
    if init == "rademacher":
        return rng.integers(0, 2, shape, dtype=np.int8).astype(np.float32) * (2.0 * scale) - scale
    if init == "laplace":
        return rng.laplace(0.0, math.sqrt(0.5), shape).astype(np.float32) * scale
    if (degrees := degrees_of(init)) is not None:
        unit = math.sqrt((degrees - 2.0) / degrees) if has_variance(init) else 1.0
        return (rng.standard_t(degrees, shape) * (unit * scale)).astype(np.float32)
    tall = rng.standard_normal((networks, max(fan_in, nodes), min(fan_in, nodes)))
    q, r = np.linalg.qr(tall)
    q = q * np.where(np.einsum("rkk->rk", r) < 0.0, -1.0, 1.0)[:, None, :]  # uniform over orthogonal matrices
    found = q if fan_in >= nodes else q.transpose(0, 2, 1)
    return (found * (scale * math.sqrt(max(fan_in, nodes)))).astype(np.float32)


def assumed(init: str) -> Iterator[str]:
    """What theory takes for granted of a distribution that is not Gaussian, in words."""
    if init == "normal":
        return
    degrees = degrees_of(init)
    slowly = ", slowly: they have no fourth moment" if degrees is not None and degrees <= _FOURTH else ""
    yield f"{init} weights have the moments of Gaussian ones in the wide limit{slowly}"


def scale_of(init: str, weight_var: float, fan_in: int) -> float:
    """What a unit draw is multiplied by: √(weight_var/fan_in) for those of variance 1.

    Student's t of at most 2 degrees ν has no variance: √weight_var/fan_in^(1/ν), with which sums neither vanish nor
    grow (the scaling of stable distributions).
    """
    degrees = degrees_of(init)
    if degrees is None or degrees > _FINITE:
        return math.sqrt(weight_var / fan_in)
    return math.sqrt(weight_var) * float(fan_in) ** (-1.0 / degrees)
