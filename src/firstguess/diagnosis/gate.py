"""A gate for tests and CI: fail, with an explanation, when an untrained network's guesses are not even enough."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from firstguess import _checks
from firstguess.ensemble.measurement import LayerMeasurement, Measurement
from firstguess.ensemble.run import measure
from firstguess.errors import InvalidInput

_FIRST, _MOST = 50, 400  # initializations: more are drawn only while the interval holds the limit


class NotNeutral(AssertionError):
    """An untrained network is more biased than a test allows. `measurement` has the numbers."""

    def __init__(self, message: str, measurement: Measurement) -> None:
        super().__init__(message)
        self.measurement = measurement


@dataclass(frozen=True, eq=False)
class Check:
    """What a check found: whether γ of the output is at most `max_gamma`, and how sure that is."""

    passed: bool
    sure: bool  # the 95 % interval of γ does not hold the limit
    max_gamma: float
    measurement: Measurement
    message: str

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "passed": self.passed,
            "sure": self.sure,
            "max_gamma": self.max_gamma,
            "message": self.message,
            "measurement": self.measurement.to_dict(),
        }


def assert_neutral(
    what: object, data: object, max_gamma: float = 1.0, *, inits: int = _MOST, seed: int = 0, **options: Any
) -> Measurement:
    """Raise `NotNeutral`, an AssertionError that explains itself, unless γ of the output is at most `max_gamma`.

    γ = 1 is where two classes' fractions are spread uniformly (theory.md §1). Takes what `fg.measure` takes; 50
    initializations are drawn, and up to `inits` while the 95 % interval of γ holds the limit. The result depends on the
    seed only, so a test that passes once passes always.

    >>> from firstguess.data import blob
    >>> m = assert_neutral("dense > tanh > dense", blob(100, 30), width=50)
    >>> assert_neutral("9 x [dense(weight_var=2) > relu] > dense", blob(100, 30), width=50)
    Traceback (most recent call last):
        ...
    firstguess.diagnosis.gate.NotNeutral: γ of the output is 2.99 (95 %: 2.35 to 3.77), at most 1 is allowed.
      untrained, it puts 87% of the inputs into one class on average (even: 50%)
      c rises most at layer relu (activation): from 0.00 to 0.32
      what to do: fg.diagnose(model, data) names the layer and tries remedies
    """
    found = check(what, data, max_gamma, inits=inits, seed=seed, **options)
    if not found.passed:
        raise NotNeutral(found.message, found.measurement)
    return found.measurement


def check(
    what: object, data: object, max_gamma: float = 1.0, *, inits: int = _MOST, seed: int = 0, **options: Any
) -> Check:
    """What `assert_neutral` asserts, as a result."""
    if not 0 < _checks.number(max_gamma) < math.inf:
        raise InvalidInput("a drift ratio above 0", got=max_gamma, where="max_gamma", hint="max_gamma=1.0")
    most = _checks.count(inits, 2, "number of initializations", "inits", "inits=400")
    count = min(_FIRST, most)
    while True:
        m = measure(what, data, inits=count, seed=seed, **options)
        gamma, low, high = _gamma(m)
        if count >= most or not low <= max_gamma <= high:
            break
        count = min(2 * count, most)
    tied = m.ties > 0.5
    passed = gamma <= max_gamma and not tied
    return Check(passed, not low <= max_gamma <= high, max_gamma, m, _message(m, passed, max_gamma, tied=tied))


def _gamma(m: Measurement) -> tuple[float, float, float]:
    if not m.layers:
        raise InvalidInput("a model whose output says something about the data", got="no layer that does")
    last = m.layers[-1]
    return last.gamma, last.low, last.high


def _message(m: Measurement, passed: bool, limit: float, *, tied: bool) -> str:
    gamma, low, high = _gamma(m)
    allowed = f"at most {limit:g} is allowed"
    if tied:
        return f"{m.ties:.0%} of all guesses are ties: the head gives all classes the same logit"
    head = f"γ of the output is {gamma:.3g} (95 %: {low:.3g} to {high:.3g}), {allowed}."
    if passed:
        return head
    lines = [head]
    if low <= limit:
        lines.append(f"  not sure after {m.inits} initializations: the interval holds the limit; raise inits")
    largest, even = m.guesses.expected_max(), 1 / m.classes
    lines.append(f"  untrained, it puts {largest:.0%} of the inputs into one class on average (even: {even:.0%})")
    step = _largest_step(m)
    if step is not None:
        before, layer = step
        if before is None:  # what the data bring is not measured here
            already = f"c is {layer.correlation:.2f} already after the first layer, {layer.name} ({layer.kind})"
            lines.append(f"  {already}: of the data themselves, or of its biases")
        else:
            rise = f"from {max(before.correlation, 0.0):.2f} to {layer.correlation:.2f}"
            lines.append(f"  c rises most at layer {layer.name} ({layer.kind}): {rise}")
    lines.append("  what to do: fg.diagnose(model, data) names the layer and tries remedies")
    return "\n".join(lines)


def _largest_step(m: Measurement) -> tuple[LayerMeasurement | None, LayerMeasurement] | None:
    """The layer after which c is largest compared with the layer called before it."""
    steps = [(None, m.layers[0]), *zip(m.layers, m.layers[1:], strict=False)]
    finite = [(a, b) for a, b in steps if math.isfinite(b.correlation) and (a is None or math.isfinite(a.correlation))]
    if not finite:
        return None
    return max(finite, key=lambda pair: pair[1].correlation - (pair[0].correlation if pair[0] is not None else 0.0))
