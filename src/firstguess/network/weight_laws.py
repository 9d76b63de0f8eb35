"""Laws that weights may be drawn from, by their text: `init=uniform`, `init=rademacher`, `init=student(3)`.

All are centred, independent (but for orthogonal ones) and scaled to Var W = weight_var/fan_in. In the wide limit a sum
over many of them is Gaussian whatever their law, as long as that variance is finite; so theory asks for no more. Where
it is infinite (Student's t with at most 2 degrees) sums are stable laws, not Gaussian: theory refuses, ensembles draw.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.text import number

NAMES = ("normal", "uniform", "orthogonal", "rademacher", "laplace")
STUDENT = "student"
_STUDENT = re.compile(r"student\((.+)\)")
_FINITE = 2.0  # degrees of Student's t above which its variance is finite
_FOURTH = 4.0  # and its fourth moment, which says how fast sums become Gaussian


def student(degrees: float) -> str:
    """The text of Student's t with so many degrees of freedom, as `init` holds it.

    >>> student(3.0), student(2.5)
    ('student(3)', 'student(2.5)')
    """
    return f"{STUDENT}({number(float(degrees))})"


def degrees_of(init: str) -> float | None:
    """The degrees of freedom of a Student's t; None for any other law."""
    match = _STUDENT.fullmatch(init)
    try:
        return float(match.group(1)) if match else None
    except ValueError:
        return math.nan


def checked(init: object, kind: str) -> str:
    """The law in its shortest text, or InvalidInput."""
    if isinstance(init, str):
        if init in NAMES:
            return init
        degrees = degrees_of(init)
        if degrees is not None and 0.0 < degrees < math.inf:
            return student(degrees)
    raise InvalidInput(
        f"init to be {', '.join(NAMES)} or student(degrees of freedom)",
        got=init,
        where=kind,
        hint=f"{kind}(init=uniform), {kind}(init=student(3))",
    )


def has_variance(init: str) -> bool:
    """Whether the variance is finite."""
    degrees = degrees_of(init)
    return degrees is None or degrees > _FINITE


def covered(init: str) -> None:
    """Raise NotCovered where sums over many weights are not Gaussian."""
    if not has_variance(init):
        raise NotCovered(
            "weights of finite variance: sums over many of them are Gaussian then, and only then",
            got=f"init={init}, whose variance is infinite",
            hint="init=student(3), or the ensemble reading: fg.measure(...)",
        )


def covered_at_finite_width(init: str) -> None:
    """Raise NotCovered where sums over finitely many weights are not Gaussian, which shows in the order 1/width."""
    if init != "normal":
        raise NotCovered(
            "Gaussian weights at finite width", got=f"init={init}", hint="width=None, or the ensemble: fg.measure(...)"
        )


def assumed(init: str) -> Iterator[str]:
    """What theory takes for granted of a law that is not Gaussian, in words."""
    if init == "normal":
        return
    degrees = degrees_of(init)
    slowly = ", slowly: they have no fourth moment" if degrees is not None and degrees <= _FOURTH else ""
    yield f"{init} weights have the moments of Gaussian ones in the wide limit{slowly}"


def scale_of(init: str, weight_var: float, fan_in: int) -> float:
    """What a unit draw is multiplied by: √(weight_var/fan_in) for those of variance 1.

    Student's t of at most 2 degrees ν has no variance: √weight_var/fan_in^(1/ν), with which sums neither vanish nor
    grow (the scaling of stable laws).
    """
    degrees = degrees_of(init)
    if degrees is None or degrees > _FINITE:
        return math.sqrt(weight_var / fan_in)
    return math.sqrt(weight_var) * float(fan_in) ** (-1.0 / degrees)
