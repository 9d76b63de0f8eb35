"""A gate for tests and CI: fail, with an explanation, when an untrained network's guesses are not even enough."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from firstguess.base import checks
from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.data import collect, load
from firstguess.data.streams import limit
from firstguess.diagnosis.causes import causes_of, without_ending
from firstguess.diagnosis.result import Cause
from firstguess.ensemble.measurement import Measurement
from firstguess.ensemble.members import ASSUMED, FindingKind, Probe
from firstguess.modules.feeding import Forward, fed
from firstguess.modules.flow import Flow, trace_flow
from firstguess.modules.measuring import Progress, measure
from firstguess.network.network import Network

if TYPE_CHECKING:
    import torch
    from torch import nn

    from firstguess.modules.choice import Strategy
    from firstguess.modules.initializers import Init
    from firstguess.modules.outputs import Pick
    from firstguess.modules.probes import Node
    from firstguess.modules.sources import Mode

_TRACED = 20  # initializations of the trace that names the step: as many as `diagnose` traces
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
    sure: bool  # the 95 % interval of γ does not hold the limit, and no initializer of an instance was guessed
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


@checks.known_options
def assert_neutral(
    what: object,
    data: object,
    max_gamma: float = 1.0,
    *,
    inits: int = _MOST,
    seed: int = 0,
    width: int | None = None,
    classes: int | None = None,
    precision: float | None = None,
    progress: Progress | None = None,
    reduce: bool = True,
    memory: float = 2e9,
    points: int | None = None,
    batch_size: int | None = None,
    seconds: float | None = None,
    probe: Probe = "all",
    dtype: torch.dtype | None = None,
    init: Init = None,
    logits: Pick = None,
    forward: Forward | None = None,
    mode: Mode | None = None,
    node: Node | None = None,
    device: torch.device | str | None = None,
    strategy: Strategy | None = None,
    trained: bool = False,
    threads: int | None = None,
) -> Measurement:
    """Raise `NotNeutral`, an AssertionError that explains itself, unless γ of the output is at most `max_gamma`.

    γ = 1 is where two classes' fractions are spread uniformly (theory.md §1). Options are those of `fg.measure`; 50
    initializations are drawn, and up to `inits` while the 95 % interval of γ holds the limit. The result depends on the
    seed only, so a test that passes once passes always.

    >>> from firstguess.data import blob
    >>> m = assert_neutral("dense > tanh > dense", blob(100, 30), width=50)
    >>> assert_neutral("9 x [dense(weight_var=2) > relu] > dense", blob(100, 30), width=50)
    Traceback (most recent call last):
        ...
    firstguess.diagnosis.gate.NotNeutral: γ of the output is 2.99 (95 %: 2.4 to 3.79), at most 1 is allowed.
      untrained, it puts 87% of the inputs into one class on average (even: 50%)
      c rises most at layer relu (activation): from 0.00 to 0.32
      what to do: fg.diagnose(model, data) names the layer and tries remedies
    """
    options = checks.given(
        width=width,
        classes=classes,
        precision=precision,
        progress=progress,
        points=points,
        batch_size=batch_size,
        seconds=seconds,
        dtype=dtype,
        init=init,
        logits=logits,
        forward=forward,
        mode=mode,
        node=node,
        device=device,
        strategy=strategy,
        trained=trained or None,
        threads=threads,
    )
    found = check(what, data, max_gamma, inits=inits, seed=seed, reduce=reduce, memory=memory, probe=probe, **options)
    if not found.passed:
        raise NotNeutral(found.message, found.measurement)
    return found.measurement


def check(
    what: object, data: object, max_gamma: float = 1.0, *, inits: int = _MOST, seed: int = 0, **options: Any
) -> Check:
    """What `assert_neutral` asserts, as a result."""
    if not 0 < checks.number(max_gamma) < math.inf:
        raise InvalidInput("a drift ratio above 0", got=max_gamma, where="max_gamma", hint="max_gamma=1.0")
    most = checks.count(inits, 2, "number of initializations", "inits", "inits=400")
    if isinstance(data, Iterator):  # to be read more than once
        data = collect(data, limit(data, options.pop("points", None)), batch_size=options.pop("batch_size", None))
    count = min(_FIRST, most)
    while True:
        m = measure(what, data, inits=count, seed=seed, **options)
        if any(finding.kind == FindingKind.INTERRUPTED for finding in m.findings):
            raise KeyboardInterrupt  # what `measure` keeps is no answer of a gate
        gamma, low, high = _gamma(m)
        if count >= most or not low <= max_gamma <= high:
            break
        count = min(2 * count, most)
    tied = m.ties > 0.5
    passed = gamma <= max_gamma and not tied
    where = "" if passed or tied else _where(what, data, m, seed, options)
    message = _message(m, passed, max_gamma, where, tied=tied)
    sure = not low <= max_gamma <= high and not any(finding.kind in ASSUMED for finding in m.findings)
    return Check(passed, sure, max_gamma, m, message)


def _gamma(m: Measurement) -> tuple[float, float, float]:
    if not m.layers:
        raise InvalidInput("a model whose output says something about the data", got="no layer that does")
    last = m.layers[-1]
    return last.gamma, last.low, last.high


def _message(m: Measurement, passed: bool, limit: float, where: str, *, tied: bool) -> str:
    gamma, low, high = _gamma(m)
    allowed = f"at most {limit:g} is allowed"
    if tied:
        return f"{m.ties:.0%} of all guesses are ties: the head gives all classes the same logit"
    head = f"γ of the output is {gamma:.3g} (95 %: {low:.3g} to {high:.3g}), {allowed}."
    guessed = [f"  {finding}" for finding in m.findings if finding.kind in ASSUMED]
    if passed:
        return "\n".join([head, *guessed])
    lines = [head, *guessed]
    if low <= limit:
        lines.append(f"  not sure after {m.inits} initializations: the interval holds the limit; raise inits")
    largest, even = m.guesses.expected_max(), 1 / m.classes
    lines.append(f"  untrained, it puts {largest:.0%} of the inputs into one class on average (even: {even:.0%})")
    lines += [f"  {where}"] if where else []
    lines.append("  what to do: fg.diagnose(model, data) names the layer and tries remedies")
    return "\n".join(lines)


def _where(what: object, data: object, m: Measurement, seed: int, options: dict[str, Any]) -> str:
    """The step that raises c most, in words. Of a module, from the trace that `diagnose` uses: what is measured there
    are modules, so that `F.relu` between two of them would be blamed on the second."""
    if isinstance(what, (Network, str)):
        return _largest_step(m, code=False)
    try:
        causes = causes_of(without_ending(_flow(what, data, m, seed, options), m))
    # As in `diagnose`: a model that could be measured need not be one that can be traced.
    except (FirstguessError, RuntimeError, TypeError, ValueError, AttributeError, LookupError):
        return _largest_step(m, code=True)
    return _words(causes[0]) if causes else ""


def _flow(what: object, data: object, m: Measurement, seed: int, options: dict[str, Any]) -> Flow:
    loaded = load(data) if isinstance(data, str) else data
    batches = collect(loaded, limit(loaded, options.get("points")), batch_size=options.get("batch_size"))
    batches = fed(what, batches, options.get("forward"))
    known = {name: options[name] for name in ("init", "logits", "mode") if name in options}
    model = cast("nn.Module | Callable[[], nn.Module]", what)
    return trace_flow(model, batches, inits=min(_TRACED, m.inits), seed=seed, **known)


def _words(cause: Cause) -> str:
    rise = f"from {max(cause.before, 0.0):.2f} to {cause.after:.2f}"
    if cause.kind == "data":
        return f"c is {cause.after:.2f} in the data themselves: more than any layer adds"
    if cause.kind.startswith("code: "):
        return f"c rises most in {cause.words}: {rise}"
    return f"c rises most at layer {cause.name} ({cause.kind}): {rise}"


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
    rise = f"from {max(before.correlation, 0.0):.2f} to {layer.correlation:.2f}"
    if code:
        return (
            f"c rises most between the outputs of {before.name} ({before.kind}) and {layer.name} ({layer.kind}): {rise}"
        )
    return f"c rises most at layer {layer.name} ({layer.kind}): {rise}"
