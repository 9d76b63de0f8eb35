"""A gate for tests and CI: fail, with an explanation, when an untrained network's guesses are not even enough."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack, cast

from firstguess.base import checks, statistics
from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.base.record import Record
from firstguess.base.text import interval, percent_apart
from firstguess.data import collect, load
from firstguess.data.streams import limit
from firstguess.diagnosis.answer import serious
from firstguess.diagnosis.causes import causes_of, without_ending
from firstguess.diagnosis.faults import Fault, find_faults
from firstguess.diagnosis.faults.looking import look_into
from firstguess.diagnosis.verdict import check_fresh
from firstguess.ensemble.measurement import Measurement
from firstguess.ensemble.member_statistics import ASSUMED, PARTLY, FindingKind
from firstguess.modules.call_model import fed
from firstguess.modules.flow import Flow, trace_flow
from firstguess.modules.measure import Progress, measure
from firstguess.modules.members.sources import named
from firstguess.modules.options import OPTIONS, ModelOptions, settled
from firstguess.network.network import Network

if TYPE_CHECKING:
    from torch import nn

_TRACED = 20  # initializations of the trace that names the step: as many as `diagnose` traces
_FIRST, _MOST = 50, 400  # initializations: more are drawn only while they leave it open whether a limit holds
_FALSE = 0.05  # the chance to be sure of the wrong answer, shared among the looks and the limits
_GAMMA = 1.0  # the limit where none is given


class NotEven(AssertionError):
    """An untrained network guesses less evenly than a test allows. `measurement` has the numbers."""

    def __init__(self, message: str, measurement: Measurement) -> None:
        super().__init__(message)
        self.measurement = measurement


NotNeutral = NotEven  # its name before there was a word for "even"


@dataclass(frozen=True, eq=False)
class Check(Record):
    """What a check found: whether γ of the output and the average largest share are at most what is allowed.

    `sure`: the numbers are so far from the limits that the answer is wrong with a chance of at most 5 %, after all
    looks at 50, 100, … initializations; and no initializer of an instance was guessed. Limits that were not set are
    None.
    """

    passed: bool
    sure: bool
    max_gamma: float | None
    measurement: Measurement
    message: str
    max_share: float | None = None


@checks.takes(OPTIONS)
def assert_even(
    what: object,
    data: object,
    max_share: float | None = None,
    max_gamma: float | None = None,
    *,
    strict: bool = False,
    inits: int = _MOST,
    seed: int = 0,
    width: int | None = None,
    classes: int | None = None,
    precision: float | None = None,
    progress: Progress | None = None,
    points: int | None = None,
    batch_size: int | None = None,
    seconds: float | None = None,
    **options: Unpack[ModelOptions],
) -> Measurement:
    """Raise `NotEven`, an AssertionError that explains itself, if untrained networks favour one class too much.

    `max_share` limits the average share of the largest class (½ is even for two classes), `max_gamma` the drift
    ratio γ of the output. Where neither is given it is `max_gamma=1.0`, from where on a network is called biased: two
    classes' fractions are then spread uniformly (theory.md §1). Options are those of `fg.measure`; 50 initializations
    are drawn, and up to `inits` while they leave it open on which side of a limit the network is. It fails only where
    the result is clear: a network at the limit fails with a chance of at most 5 %. `strict=True` fails wherever the
    measured number is above the limit, statistically clear or not. The result depends on the seed only.

    >>> from firstguess.data import blob
    >>> m = assert_even("dense > tanh > dense", blob(100, 30), max_share=0.6, width=50)
    >>> assert_even("9 x [dense(weight_var=2) > relu] > dense", blob(100, 30), width=50)
    Traceback (most recent call last):
        ...
    firstguess.diagnosis.assert_even.NotEven: γ of the output is 2.99 (95 %: 2.38 to 3.81), at most 1 is allowed.
      untrained, it puts 87 % of the inputs into one class on average (even: 50 %)
      c rises most at layer relu (activation): from 0.00 to 0.32
      what to do: fg.diagnose(model, data) names the layer and tries remedies
    """
    __tracebackhide__ = True  # pytest shows the user's line and the message, not this source
    known = checks.given(width=width, classes=classes, precision=precision, progress=progress, points=points)
    known |= checks.given(batch_size=batch_size, seconds=seconds) | settled(options)
    found = check(what, data, max_gamma, max_share, strict=strict, inits=inits, seed=seed, **known)
    if not found.passed:
        raise NotEven(found.message, found.measurement)
    return found.measurement


def assert_neutral(what: object, data: object, max_gamma: float = _GAMMA, **options: Any) -> Measurement:
    """The same as `assert_even(what, data, max_gamma=1.0)`, as it was called first."""
    __tracebackhide__ = True
    return assert_even(what, data, max_gamma=max_gamma, **options)


def check(
    what: object,
    data: object,
    max_gamma: float | None = None,
    max_share: float | None = None,
    *,
    strict: bool = False,
    inits: int = _MOST,
    seed: int = 0,
    **options: Any,
) -> Check:
    """What `assert_even` asserts, as a result."""
    limits = _limits(max_gamma, max_share)
    most = checks.count(inits, 2, "number of initializations", "inits", "inits=400")
    if isinstance(data, Iterator):  # to be read more than once
        data = collect(data, limit(data, options.pop("points", None)), batch_size=options.pop("batch_size", None))
    looks = [min(_FIRST, most)]
    while looks[-1] < most:
        looks.append(min(2 * looks[-1], most))
    alpha = _FALSE / len(looks) / len(limits)
    while True:
        m = measure(what, data, inits=looks.pop(0), seed=seed, **options)
        if any(finding.kind == FindingKind.INTERRUPTED for finding in m.findings):
            raise KeyboardInterrupt  # what `measure` keeps is no answer of a gate
        check_fresh(m)
        # Every look is one more chance to be misled: each gets its part of the chance that is allowed.
        sides = [_side(name, m, most, alpha) for name, most in limits.items()]
        unknown = any(math.isnan(_value(name, m)[0]) for name in limits)
        if not looks or m.ties > 0.5 or unknown or all(sides):
            break
    tied = m.ties > 0.5
    below = [_value(name, m)[0] <= limit for name, limit in limits.items()]
    passed = not tied and not unknown and (all(below) if strict else not any(side > 0 for side in sides))
    decided = all(side < 0 for side in sides) if passed else any(side > 0 for side in sides)
    sure = decided and not any(finding.kind in ASSUMED for finding in m.findings)
    where = "" if passed or tied else _where(what, data, m, seed, options)
    message = _message(m, passed, limits, where, tied=tied, decided=decided)
    return Check(passed, sure, limits.get("gamma"), m, message, limits.get("share"))


def _limits(max_gamma: float | None, max_share: float | None) -> dict[str, float]:
    if max_gamma is None and max_share is None:
        max_gamma = _GAMMA
    checks.within(max_gamma, "a drift ratio above 0", "max_gamma", "max_gamma=1.0", optional=True)
    checks.within(max_share, "a share between 0 and 1", "max_share", "max_share=0.7", high=1, optional=True)
    return {name: float(limit) for name, limit in checks.given(share=max_share, gamma=max_gamma).items()}


def _value(name: str, m: Measurement) -> tuple[float, float, float]:
    """What a limit is about, with its 95 % interval."""
    if name == "share":
        return (m.guesses.expected_max(), *m.guesses.interval("expected_max"))
    if not m.layers:
        raise InvalidInput("a model whose output says something about the data", got="no layer that does")
    last = m.layers[-1]
    return last.gamma, last.low, last.high


def _side(name: str, m: Measurement, limit: float, alpha: float) -> int:
    """1 for clearly above the limit, −1 for clearly below, each with a false-alarm rate of `alpha`/2; else 0."""
    if name == "share":
        low, high = m.guesses.interval("expected_max", level=1 - alpha)
        return (low > limit) - (high < limit)
    gamma, _, _ = _value(name, m)
    last = m.layers[-1]
    if math.isinf(gamma):
        return 1
    if not last.gamma_se > 0:  # one initialization; or no error bar, of which nothing is known
        return 0
    chance = statistics.chance((gamma - limit) / last.gamma_se, last.skew, m.inits)
    return 0 if chance >= alpha else 1 if gamma > limit else -1


def _message(
    m: Measurement, passed: bool, limits: Mapping[str, float], where: str, *, tied: bool, decided: bool
) -> str:
    if tied:
        return f"{m.ties:.0%} of all guesses are ties: the head gives all classes the same logit"
    names = {"gamma": "γ of the output is", "share": "the share of the largest class, on average, is"}
    lines: list[str] = []
    for name, allowed in limits.items():
        value, low, high = _value(name, m)
        around = interval(low, high, m.inits, ".3g")
        lines.append(f"{names[name]} {value:.3g} {around}, at most {allowed:g} is allowed.")
    lines[1:] = [f"  {line}" for line in lines[1:]]
    lines += [f"  {finding}" for finding in m.findings if finding.kind in ASSUMED | PARTLY]
    if not decided:
        rest = ", which strict=True would decide" if passed else "; raise inits"
        lines.append(f"  not clear after {m.inits} initializations: too close to the limit{rest}")
    if passed:
        return "\n".join(lines)
    largest, even = m.guesses.expected_max(), 1 / m.classes
    lines.append(f"  untrained, it puts {largest:.0%} of the inputs into one class on average (even: {even:.0%})")
    lines += [f"  {where}"] if where else []
    lines.append("  what to do: fg.diagnose(model, data) names the layer and tries remedies")
    return percent_apart("\n".join(lines))


def _where(what: object, data: object, m: Measurement, seed: int, options: dict[str, Any]) -> str:
    """The step that raises c most, in words. Of a module, from the trace that `diagnose` uses: what is measured there
    are modules, so that `F.relu` between two of them would be blamed on the second."""
    what = named(what)
    if isinstance(what, (Network, str)):
        return _largest_step(m, code=False)
    try:
        causes = causes_of(without_ending(_flow(what, data, m, seed, options), m))
    # As in `diagnose`: a model that could be measured need not be one that can be traced.
    except (FirstguessError, RuntimeError, TypeError, ValueError, AttributeError, LookupError):
        return _largest_step(m, code=True)
    if not causes:
        return ""
    first = causes[0]
    if first.kind == "data":
        return f"c is {first.after:.2f} in the data themselves: more than any one layer adds (all may add more)"
    return f"c rises most at {first.words}: from {max(first.before, 0.0):.2f} to {first.after:.2f}"


def _flow(what: object, data: object, m: Measurement, seed: int, options: dict[str, Any]) -> Flow:
    loaded = load(data) if isinstance(data, str) else data
    batches = collect(loaded, limit(loaded, options.get("points")), batch_size=options.get("batch_size"))
    batches = fed(what, batches, options.get("forward"))
    known = {name: options[name] for name in ("init", "logits", "mode", "redraw", "scale") if name in options}
    model = cast("nn.Module | Callable[[], nn.Module]", what)
    return trace_flow(model, batches, inits=min(_TRACED, m.inits), seed=seed, **known)


def _largest_step(m: Measurement, *, code: bool) -> str:
    """The layer after which c is largest compared with the one called before it; `code`: there may be some between."""
    steps = [(None, m.layers[0]), *zip(m.layers, m.layers[1:], strict=False)]
    finite = [(a, b) for a, b in steps if math.isfinite(b.correlation) and (a is None or math.isfinite(a.correlation))]
    if not finite:
        return ""
    before, layer = max(finite, key=lambda pair: pair[1].correlation - (pair[0].correlation if pair[0] else 0.0))
    if before is None:  # what the data bring is not measured here
        already = f"c is {layer.correlation:.2f} already after the first layer, {layer.name} ({layer.kind})"
        return f"{already}: of the data themselves, or of its biases"
    rise, place = f"from {max(before.correlation, 0.0):.2f} to {layer.correlation:.2f}", f"{layer.name} ({layer.kind})"
    between = f"between the outputs of {before.name} ({before.kind}) and {place}"
    return f"c rises most {between if code else f'at layer {place}'}: {rise}"


def faults_to_fix(what: object, data: object, *, points: int | None = None) -> list[Fault]:
    """Faults of a model as it is, or as its factory makes it, and of its data: those that are FIX THIS.

    Descriptions have none of their own.
    """
    if not callable(what):
        return []
    look = look_into(what, fed(what, collect(data, points)))
    return serious(find_faults(look)[0], None, None)
