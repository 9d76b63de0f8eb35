"""From numbers with errors to verdicts, by criteria that are stated and the same for all items.

A check answers True, False, or None: not decided, the errors are too large. Differences count from `SIGMAS` = 4
standard errors on: a right claim is called wrong once in 16 000 checks (more often in small ensembles, whose errors are
themselves uncertain). A verdict follows from checks alone. Where one is open, sampling may go on to looks that are
planned beforehand; all further looks together have the chance to err of the first (`later_looks`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from firstguess_papers.items import Entry, Verdict

Truth: TypeAlias = bool | None
Array: TypeAlias = NDArray[np.float64]
SIGMAS = 4.0
MANY = 12  # checks that are named in a statement, at most
NOISY = "the errors of this run are too large to decide"  # so more networks can help
UNDECIDED = "beyond that, the errors of this run are too large to decide"  # a limit that nothing is known about
_sigmas: ContextVar[float] = ContextVar("sigmas", default=SIGMAS)


@contextmanager
def later_looks(count: int) -> Generator[float]:
    """Checks inside need more standard errors: `count` looks share the chance that one look has at `SIGMAS`.

    A bound for any dependence between looks, whatever made one go on.

    >>> with later_looks(3) as sigmas:
    ...     print(f"{sigmas:.3f}", above(Number(4.1, 1.0), 0.0))
    4.253 None
    """
    from scipy.stats import norm

    before = _sigmas.set(float(norm.isf(norm.sf(SIGMAS) / count)))
    try:
        yield _sigmas.get()
    finally:
        _sigmas.reset(before)


class Number(NamedTuple):
    """A value and its standard error (0: exact)."""

    value: float
    error: float = 0.0

    def __str__(self) -> str:
        return "unknown" if math.isnan(self.value) else pm(self.value, self.error)

    def __sub__(self, other: Number) -> Number:
        return Number(self.value - other.value, math.hypot(self.error, other.error))

    def __truediv__(self, other: Number) -> Number:
        """The ratio, with the error to first order."""
        ratio = self.value / other.value
        return Number(ratio, math.hypot(self.error / other.value, ratio * other.error / other.value))


UNKNOWN = Number(math.nan, math.nan)  # what was not found: nothing is decided by it


def average(values: NDArray[Any]) -> Number:
    """Mean and its standard error, of one value a network."""
    return Number(float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values))))


def jackknife(statistic: Callable[..., Any], *values: Array) -> Number:
    """Of networks, with the error that leaving out one of them at a time gives.

    >>> print(jackknife(lambda a, b: a.sum() / b.sum(), np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.5])))
    0.480 ± 0.018
    """
    n = len(values[0])
    left = np.array([statistic(*(np.delete(one, k, axis=0) for one in values)) for k in range(n)])
    return Number(float(statistic(*values)), float(np.sqrt((n - 1) / n * np.square(left - left.mean()).sum())))


def root(square: Number) -> Number:
    """√, with the error to first order (0 where there is nothing).

    >>> root(Number(0.04, 0.002))
    Number(value=0.2, error=0.005)
    """
    value = math.sqrt(square.value)
    return Number(value, square.error / (2 * value) if value else 0.0)


def power_law(x: Sequence[float], values: Sequence[Number]) -> tuple[Number, float]:
    """Exponent and factor of y = factor·x^exponent, by least squares in logarithms weighted with the errors.

    >>> exponent, factor = power_law([1, 10, 100], [Number(2, 0.1), Number(0.2, 0.01), Number(0.02, 0.001)])
    >>> print(exponent, f"{factor:.3f}")
    -1.000 ± 0.015 2.000
    """
    logs = np.log(np.asarray(x, dtype=float))
    y = np.log([v.value for v in values])
    weights = np.array([v.value / v.error for v in values]) ** 2
    middle = (weights * logs).sum() / weights.sum()
    away = weights * (logs - middle)
    precision = float((away * (logs - middle)).sum())
    exponent = float((away * y).sum()) / precision
    factor = math.exp(float((weights * (y - exponent * logs)).sum() / weights.sum()))
    return Number(exponent, 1 / math.sqrt(precision)), factor


def proportion(inside: NDArray[Any]) -> Number:
    """The share of networks of which it is true, with its binomial error (at least that of one)."""
    p, n = float(inside.mean()), len(inside)
    return Number(p, math.sqrt(max(p * (1 - p), 1 / n) / n))


def pm(value: float, error: float = 0.0) -> str:
    """A number with its standard error, to two digits of the error.

    >>> pm(0.22713, 0.00214), pm(3.0, 0.0), pm(12.7, 3.1), pm(0.5, float("nan")), pm(1e-7, 2e-9)
    ('0.2271 ± 0.0021', '3', '12.7 ± 3.1', '0.5', '1.000e-07 ± 2.0e-09')
    """
    if not (math.isfinite(error) and math.isfinite(value) and error > 0):
        return f"{value:.4g}"
    digits = 1 - math.floor(math.log10(error))
    if digits > 6 or digits < -3:
        return f"{value:.3e} ± {error:.1e}"
    return f"{value:.{max(0, digits)}f} ± {error:.{max(0, digits)}f}"


def above(one: Number, other: Number | float, *, by: float = 0.0, least: float = 0.0) -> Truth:
    """Whether `one` is larger than `other` by more than `by`: True or False where 4 standard errors tell, else None.

    `least` is the least difference worth deciding: where it is excluded (by two standard errors) the answer is no.

    >>> above(Number(0.30, 0.01), 0.2), above(Number(0.30, 0.05), 0.2), above(Number(0.1, 0.01), 0.2)
    (True, None, False)
    >>> above(Number(0.21, 0.004), 0.2), above(Number(0.21, 0.004), 0.2, least=0.02)
    (None, False)
    """
    rest = one - (other if isinstance(other, Number) else Number(other))
    if math.isnan(rest.value) or math.isnan(rest.error):
        return None
    if rest.error == 0:
        return bool(rest.value > by)  # NumPy's True is not True
    z = (rest.value - by) / rest.error
    if abs(z) > _sigmas.get():
        return bool(z > 0)
    return False if abs(rest.value - by) + 2 * rest.error <= least else None


def below(one: Number, other: Number | float, *, by: float = 0.0, least: float = 0.0) -> Truth:
    """The mirror of `above`."""
    other = other if isinstance(other, Number) else Number(other)
    return above(other, one, by=by, least=least)


def same(one: Number, other: Number | float, *, room: float) -> Truth:
    """Whether the two differ by less than `room`, a difference too small to matter, chosen before looking.

    False if they differ by more than `room` beyond 4 standard errors. True if they do not and two standard errors
    are at most `room`: an ensemble that could not have seen a difference of that size decides nothing.

    >>> same(Number(0.502, 0.004), 0.5, room=0.02), same(Number(0.6, 0.01), 0.5, room=0.02)
    (True, False)
    >>> print(same(Number(0.52, 0.04), 0.5, room=0.02))
    None
    """
    rest = one - (other if isinstance(other, Number) else Number(other))
    if math.isnan(rest.value) or math.isnan(rest.error):
        return None
    if abs(rest.value) > room + _sigmas.get() * rest.error:
        return False
    return True if 2 * rest.error <= room else None


def all_of(checks: Iterable[Truth]) -> Truth:
    """False if one is, else None if one is, else True.

    >>> all_of([True, True]), all_of([True, None]), all_of([None, False])
    (True, None, False)
    """
    found = [None if c is None else bool(c) for c in checks]  # NumPy's False is not False
    return False if any(c is False for c in found) else None if any(c is None for c in found) else True


def verdict(must: Iterable[Truth], *, within: Iterable[Truth] = ()) -> Verdict:
    """`must` are the checks that the claim itself needs; `within` those it needs to hold without a limit.

    What is not decided is not said: in `must` it leaves the claim untested, in `within` limited.

    >>> verdict([True, True]), verdict([True], within=[False]), verdict([True, False]), verdict([True, None])
    ('holds', 'holds with a limit', 'does not hold', 'not tested')
    """
    core = all_of(must)
    if core is None:
        return "not tested"
    if core is False:
        return "does not hold"
    return "holds" if all_of(within) is True else "holds with a limit"


@dataclass(frozen=True)
class Check:
    """A named number, what is asked of it, and the answer: an entry's texts and its verdict are made of these.

    `fails` names those of several numbers that fail.
    """

    name: str
    asked: str
    truth: Truth
    found: str
    fails: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "truth", None if self.truth is None else bool(self.truth))  # NumPy's is neither


Numbers: TypeAlias = Number | float | Sequence[Number | float]


def check(
    name: str,
    found: Numbers,
    *,
    above: Numbers | None = None,
    below: Numbers | None = None,
    near: Numbers | None = None,
    by: float = 0.0,
    least: float = 0.0,
    room: float | Sequence[float] = 0.0,
    than: str = "",
    at: Iterable[object] = (),
    decided: bool = True,
) -> Check:
    """Asks one thing of a number, or of each of several: to be `above` or `below` another, or `near` it within `room`.

    A difference below `least` is none: where it is excluded, the answer to `above` and `below` is no. `than` names the
    other, where it is no constant, or all that is asked ("within 10 % of theory"). `at` names each of
    several numbers: a few are all said, of many the one that is worst, and those that fail. What is not `decided` for
    another reason than its errors is said all the same.

    >>> check("layer 2", Number(0.33, 0.01), above=0.1)
    Check(name='layer 2', asked='above 0.1', truth=True, found='0.330 ± 0.010', fails='')
    >>> found = check("tanh", [Number(0.01, 0.004), Number(0.3, 0.01)], near=0.0, room=0.02, at=["shallow", "deep"])
    >>> found.truth, found.found, found.fails
    (False, '0.0100 ± 0.0040 (shallow), 0.300 ± 0.010 (deep)', 'deep')
    """
    many = [Number(one) if not isinstance(one, Number) else one for one in _several(found)]
    other = next(one for one in (above, below, near, 0.0) if one is not None)
    others = _several(other) * (len(many) if isinstance(other, (Number, float, int)) else 1)
    word = than or (f"{other:.4g}" if isinstance(other, (float, int)) else "the other")
    rooms = [room] * len(many) if isinstance(room, (float, int)) else list(room)
    if near is not None:
        truths = [same(one, two, room=size) for one, two, size in zip(many, others, rooms, strict=True)]
        own = than.startswith("within") or not isinstance(room, (float, int))
        asked = than if own else f"within {room:.3g} of {word}"
    else:
        rule = _above if above is not None else _below
        truths = [rule(one, two, by=by, least=least) for one, two in zip(many, others, strict=True)]
        asked = f"{'above' if above is not None else 'below'} {word}" + (f" by {by:g}" if by else "")
        asked += f" (less than {least:g} is no difference)" if least else ""
    labels = [str(one) for one in at]
    if labels:
        alike = isinstance(other, (Number, float, int))
        against = [f" against {_text(two)}" if than and not alike else "" for two in others]
        each = [f"{_text(one)}{two} ({label})" for one, two, label in zip(many, against, labels, strict=True)]
        sign = 0 if near is not None else 1 if above is not None else -1
        far = [_away(one, two, sign) - size for one, two, size in zip(many, others, rooms, strict=True)]
        said = ", ".join(each) if len(each) < 7 else f"at worst {each[far.index(max(far))]}"
        said += f", against {_text(others[0])}" if than and alike else ""
    else:
        one_other = others == others[:1] * len(others)
        said = _listed(many) + (f" against {_listed(others[:1] if one_other else others)}" if than else "")
    wrong = [label for label, truth in zip(labels, truths, strict=bool(labels)) if truth is False]
    return Check(name, asked, all_of(truths) if decided else None, said, ", ".join(wrong))


_above, _below = above, below


def close(
    name: str, found: Numbers, other: Numbers, part: float, plus: float = 0.0, *, to: str, at: Iterable[object] = ()
) -> Check:
    """Asks a number, or each of several, to be near another within a part of it, and `plus`.

    >>> found = close("ReLU", Number(0.5, 0.01), 0.47, 0.1, 0.02, to="theory")
    >>> found.truth, found.asked
    (True, 'within 10 % + 0.02 of theory')
    """
    sizes = [abs(one.value if isinstance(one, Number) else one) for one in _several(other)]
    rooms = [plus + part * size for size in sizes] * (len(_several(found)) if len(sizes) == 1 else 1)
    than = f"within {100 * part:.0f} %{f' + {plus:g}' if plus else ''} of {to}"
    return check(name, found, near=other, room=rooms, than=than, at=at)


def biased(name: str, found: Numbers, yes: bool, *, least: float = 0.0, at: Iterable[object] = ()) -> Check:
    """Asks γ to be above `least`, or not: within 0.02 of 0."""
    return check(name, found, above=least, at=at) if yes else check(name, found, near=0.0, room=0.02, at=at)


def each(found: Mapping[str, Numbers], **asked: Any) -> list[Check]:
    """The same asked of several numbers, by name.

    >>> [one.truth for one in each({"ReLU": Number(0.3, 0.01), "tanh": UNKNOWN}, above=0.1)]
    [True, None]
    """
    return [check(name, one, **asked) for name, one in found.items()]


def _several(numbers: Numbers) -> list[Number | float]:
    return [numbers] if isinstance(numbers, (Number, float, int)) else list(numbers)


def _away(one: Number, other: Number | float, sign: int) -> float:
    """How far a number is on the wrong side of another, or (sign 0) from it."""
    rest = one.value - (other.value if isinstance(other, Number) else other)
    return -math.inf if math.isnan(rest) else abs(rest) if sign == 0 else -sign * rest


def _text(number: Number | float) -> str:
    return str(number) if isinstance(number, Number) else f"{number:.4g}"


def _listed(numbers: Sequence[Number | float]) -> str:
    """All of a few numbers, the ends of many."""
    texts = [_text(n) for n in numbers]
    return ", ".join(texts) if len(texts) < 4 else f"{texts[0]} → {texts[-1]}"


def surely(one: Check) -> Check:
    """The check with no third answer: not decided is no."""
    return replace(one, truth=one.truth is True)


def asked(checks: Iterable[Check]) -> str:
    """What the checks ask, those that ask the same together; more than `MANY` of these are counted, not named.

    >>> asked([check("ReLU", Number(1, 0), above=0.1), check("GELU", Number(1, 0), above=0.1)])
    'ReLU, GELU above 0.1'
    """
    names: dict[str, list[str]] = {}
    for one in checks:
        names.setdefault(one.asked, []).append(one.name)
    return "; ".join(
        f"{together(own) if len(own) <= MANY else f'each of {len(own)}'} {rule}" for rule, own in names.items()
    )


def together(names: Iterable[str]) -> str:
    """Names in one list; those that end alike share their end, or those that begin alike their beginning.

    >>> together(["ReLU, one layer", "GELU, one layer", "tanh", "tanh, one layer"])
    'one layer (ReLU, GELU, tanh), tanh'
    >>> together(["ReLU, 1 layer", "ReLU, 3 layers"])
    'ReLU (1 layer, 3 layers)'
    """
    parts = [name.partition(", ")[::2] for name in dict.fromkeys(names)]
    shared, other = (0, 1) if len({first for first, _ in parts}) < len({end for _, end in parts}) else (1, 0)
    groups: dict[str, list[str]] = {}
    for part in parts:
        groups.setdefault(part[shared], []).append(part[other])
    return ", ".join(
        f"{common} ({', '.join(own)})"
        if common and len(own) > 1 and all(own)
        else ", ".join(", ".join(filter(None, (common, one) if shared == 0 else (one, common))) for one in own)
        for common, own in groups.items()
    )


def failing(checks: Iterable[Check]) -> str:
    """Names of the checks that fail, and of the numbers of each that do."""
    wrong = [one for one in checks if one.truth is False]
    return "; ".join(
        [*([plain] if (plain := together(one.name for one in wrong if not one.fails)) else [])]
        + [f"{one.name} ({one.fails})" for one in wrong if one.fails]
    )


def undecided_of(checks: Iterable[Check]) -> str:
    """Names of the checks that decide nothing."""
    return together(one.name for one in checks if one.truth is None)


def claimed(
    claim: str,
    about: str,
    must: Iterable[Check],
    *,
    within: Iterable[Check] = (),
    limit: str = "not so",
    otherwise: str = "not so",
    undecided: str = "",
    headline: str = "",
    also: str = "",
) -> Entry:
    """An `Entry` of named checks: its statement, what was measured, the verdict and the reason follow from them.

    `about` says of what; `limit` and `otherwise` stand before the names of the checks that fail, `also` after what was
    measured.

    >>> found = claimed("I10", "γ of hidden layers", [check("layer 1", Number(0.1, 0.01), near=0.0, room=0.02)])
    >>> found.statement, found.measured, found.verdict, found.why
    ('γ of hidden layers: layer 1 within 0.02 of 0', 'layer 1: 0.100 ± 0.010', 'does not hold', 'not so: layer 1')
    """
    core, beyond = list(must), list(within)
    found = verdict([one.truth for one in core], within=[one.truth for one in beyond])
    unknown = all_of(one.truth for one in beyond) is None
    why = {
        "holds": "",
        "holds with a limit": f"{UNDECIDED}: {undecided_of(beyond)}" if unknown else f"{limit}: {failing(beyond)}",
        "does not hold": f"{otherwise}: {failing(core)}",
        "not tested": undecided or f"{NOISY}: {undecided_of(core)}",
    }[found]
    said = dict.fromkeys(f"{one.name}: {one.found}" for one in (*core, *beyond))
    measured = [text for text in said if not any(other.startswith(f"{text} ") for other in said)]
    statement = f"{about}: {asked(core)}" + (f"; without a limit {asked(beyond)}" if beyond else "")
    return Entry(claim, statement, "; ".join([*measured, *([also] if also else [])]), found, why, headline)
