"""The verdict: which regime, and how sure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from scipy import special

from firstguess.base.errors import InvalidInput
from firstguess.diagnosis.result import Verdict
from firstguess.ensemble.measurement import Measurement
from firstguess.ensemble.members import ASSUMED, PARTLY, Finding, FindingKind
from firstguess.theory.prediction import DEEPLY_BIASED, regime

_TIED = 0.5  # share of tied guesses from which the head decides, not γ
_LOST = 0.5  # share of initializations with NaN from which a network is called broken
_EDGES = {"neutral": (-math.inf, 1.0), "biased": (1.0, DEEPLY_BIASED), "deeply biased": (DEEPLY_BIASED, math.inf)}


def verdict_of(m: Measurement) -> Verdict:
    """By γ of the output, unless ties or NaN decide.

    Where no γ was measured (no layer says anything about the output), by the γ whose law has the same average largest
    fraction, without an interval. Where an instance had to be followed by a guess (`ASSUMED`), without a probability.
    """
    gamma, low, high = math.nan, math.nan, math.nan
    if m.layers:
        last = m.layers[-1]
        gamma, low, high = last.gamma, last.low, last.high
    if m.ties >= _TIED and (bad := first_bad(m.findings)):
        return broken(f"{m.ties:.0%} of all guesses are ties, of infinite logits", bad)
    if m.ties >= _TIED:
        place = next((f.layer for f in m.findings if f.kind == FindingKind.ZERO_HEAD), "")
        why = f"{m.ties:.0%} of all guesses are ties: the head{f' {place}' if place else ''} gives classes equal logits"
        return Verdict("degenerate head", 1.0, math.nan, math.nan, math.nan, why)
    lost = next((f for f in m.findings if f.kind == FindingKind.LEFT_OUT), None)
    if lost is not None and _share(lost, m) >= _LOST:
        return broken(f"{lost.message}", first_bad(m.findings))
    name = m.regime if math.isnan(gamma) else regime(gamma)
    why = f"{of_the_part(m.findings)}{_words(name, m)}"
    return _assumed(Verdict(name, _probability(name, gamma, low, high), gamma, low, high, why), m.findings)


def of_the_part(findings: Iterable[Finding]) -> str:
    """What a verdict begins with where part of the model keeps its values."""
    return "of the fresh part: " if any(finding.kind in PARTLY for finding in findings) else ""


def check_fresh(m: Measurement) -> None:
    """No verdict about the initialization of weights that are all trained."""
    nothing = next((finding for finding in m.findings if finding.kind == FindingKind.NOTHING_FRESH), None)
    if nothing is not None:
        raise InvalidInput(
            "a model with weights that are drawn",
            got=f"one whose weights all look trained ({nothing.layer}): there is no initialization to judge",
            hint='redraw="head" for a fresh last layer, redraw="all" for the architecture; fg.measure for its guesses',
        )


def _assumed(verdict: Verdict, findings: tuple[Finding, ...]) -> Verdict:
    """Without a probability where the measured network is partly a guess, of which γ's interval says nothing."""
    guessed = [f for f in findings if f.kind in ASSUMED]
    if not guessed:
        return verdict
    first = " and ".join(f"{f.kind} at {f.layer}" for f in guessed)
    why = f"{verdict.why}; if it starts as this instance's own values suggest ({first}): to be sure, pass its class or "
    return replace(verdict, probability=math.nan, why=f"{why}a factory")


def broken(message: str, layer: str) -> Verdict:
    """NaN or Inf: nothing else can be said."""
    place = f" (the first layer with NaN or Inf is {layer})" if layer else ""
    return Verdict("broken", 1.0, math.nan, math.nan, math.nan, f"{message}{place}")


def first_bad(findings: tuple[Finding, ...]) -> str:
    """The layer that first made a NaN or Inf."""
    return next((f.layer for f in findings if f.kind == FindingKind.NONFINITE), "")


def _share(lost: Finding, m: Measurement) -> float:
    left_out = int(lost.message.split()[0])
    return left_out / (left_out + m.inits)


def _probability(name: str, gamma: float, low: float, high: float) -> float:
    """The chance that γ is within its regime's range: half a normal on each side, of the interval's own width."""
    if not all(math.isfinite(v) for v in (gamma, low, high)):
        return math.nan
    below, above = (max((gamma - low) / 1.96, 1e-12), max((high - gamma) / 1.96, 1e-12))

    def cdf(x: float) -> float:
        return float(special.ndtr((x - gamma) / (below if x < gamma else above)))

    start, stop = _EDGES[name]
    return cdf(stop) - cdf(start)


def _words(name: str, m: Measurement) -> str:
    largest, often = m.guesses.expected_max(), m.guesses.prob_max_above(0.9)
    if name == "neutral":
        return f"untrained, it spreads its guesses: the largest class gets {largest:.0%} on average"
    times = f", and over 90 % in {often:.0%} of initializations" if often > 0 else ""
    return f"untrained, it puts {largest:.0%} of the inputs into one class on average{times}"
