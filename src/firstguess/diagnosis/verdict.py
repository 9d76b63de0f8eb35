"""The verdict: which word the guesses deserve, and how sure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from scipy import special

from firstguess.base.errors import InvalidInput
from firstguess.base.text import percent
from firstguess.ensemble.measurement import TIED, Measurement
from firstguess.ensemble.member_statistics import ASSUMED, PARTLY, Finding, FindingKind
from firstguess.theory.prediction import WORDS, edges_of_shares, gamma_of_share, word, word_of_share

VerdictName = Literal["even", "leaning", "biased", "deeply biased", "repeats its input", "degenerate head", "broken"]

_LIKELY = 0.9  # the chance from which on one word is the verdict
_LOST = 0.5  # share of initializations with NaN from which a network is called broken
_OWN = 0.5  # share of positions that guess the token that they hold, from which guesses are those of the data


@dataclass(frozen=True)
class Verdict:
    """A word for the guesses, how sure it is, and the γ that explain it, each with its 95 % interval.

    `name` follows the guesses: it is the word for `guess_gamma`, the γ whose distribution has the average largest share
    that was measured (theory.md (6)-(8)). `gamma` is measured at the output layer; where its word is another, `why`
    says so. `chances` are those of even, leaning, biased, deeply biased, given the interval of the average largest
    share (half a normal on each side); `probability` is that of `name`: 1 where that share does not decide (a head that
    repeats its input, a degenerate one, NaN), NaN where there is no interval (one initialization) and where an
    instance's own values had to say how it is drawn (findings "other scale", "kept values"). `low`, `high` and the like
    are NaN where γ could not be measured. `preliminary` says how many of the wanted initializations were drawn, if time
    was up before all were.
    """

    name: VerdictName
    probability: float
    gamma: float
    low: float
    high: float
    why: str = ""
    guess_gamma: float = math.nan
    guess_low: float = math.nan
    guess_high: float = math.nan
    chances: tuple[float, ...] = ()
    preliminary: str = ""

    @property
    def title(self) -> str:
        """The word; or, where no single word is likely, what is certain and on which border it is."""
        return self._said()[0]

    @property
    def sureness(self) -> str:
        """The chance that the title is right, as text; empty where it is not known."""
        chance = self._said()[1]
        return "" if math.isnan(chance) else "> 99.9 %" if chance > 0.999 else f"{100 * chance:.3g} %"

    def _said(self) -> tuple[str, float]:
        if not self.chances or self.probability >= _LIKELY:
            return self.name, self.probability
        # Not the last word, whose own chance is below; and then at most the second or more, for the same reason.
        least = max(k for k in range(len(WORDS) - 1) if k == 0 or sum(self.chances[k:]) >= _LIKELY)
        if least > 0:
            return f"at least {WORDS[least]}, borderline {WORDS[least + 1]}", sum(self.chances[least:])
        most = min(k for k in range(1, len(WORDS)) if k == len(WORDS) - 1 or sum(self.chances[: k + 1]) >= _LIKELY)
        return f"at most {WORDS[most]}, borderline {WORDS[most - 1]}", sum(self.chances[: most + 1])


def verdict_of(m: Measurement, *, wanted: int | None = None) -> Verdict:
    """The verdict by the guesses, unless repeated inputs, ties or NaN decide: the word for the γ whose distribution has
    the average largest share that was seen.

    γ of the output explains the guesses, and is given next to that of the guesses; where it has another word, `why`
    says so. Where an instance had to be followed by a guess (`ASSUMED`), or one initialization was drawn, there is no
    probability. With fewer than `wanted` initializations drawn, the verdict is preliminary.
    """
    last = m.layers[-1] if m.layers else None
    gamma, low, high = (math.nan,) * 3 if last is None else (last.gamma, last.low, last.high)
    if m.ties >= TIED and (bad := first_bad(m.findings)):
        return broken(f"{percent(m.ties)} of all guesses are ties, of infinite logits", bad)
    if m.ties >= TIED:
        place = next((f.layer for f in m.findings if f.kind == FindingKind.ZERO_HEAD), "")
        head = f"the head {place}" if place else "the head"
        why = f"{percent(m.ties)} of all guesses are ties: {head} gives classes equal logits"
        return Verdict("degenerate head", 1.0, math.nan, math.nan, math.nan, why)
    lost = next((f for f in m.findings if f.kind == FindingKind.LEFT_OUT), None)
    left_out = 0 if lost is None else int(lost.message.split()[0])
    if lost is not None and left_out >= _LOST * (left_out + m.inits):
        return broken(lost.message, first_bad(m.findings))
    share, ends = m.guesses.expected_max(), m.guesses.interval("expected_max")
    name = word_of_share(share, m.classes, m.points)
    middle, least, most = (gamma_of_share(x, m.classes, m.points) for x in (share, *ends))
    found = Verdict(name, math.nan, gamma, low, high, "", middle, least, most)
    repeats = m.own_guess is not None and m.own_guess[0] - 5.0 * m.own_guess[1] >= _OWN
    other = "" if repeats else _other_word(found)
    kept = f"{part}the rest of the model keeps its values" if (part := of_the_part(m.findings)) else ""
    why = "; ".join(text for text in (kept, other) if text)
    found = replace(found, why=why, chances=_chances(share, ends, m))
    if wanted is not None and m.inits < wanted and any(f.kind in _STOPPED for f in m.findings):
        found = replace(found, preliminary=f"{m.inits} of {wanted} initializations")
    if repeats:
        return _assumed(replace(found, name="repeats its input", probability=1.0, chances=()), m.findings)
    found = replace(found, probability=found.chances[_PLACE[name]] if found.chances else math.nan)
    return _assumed(found, m.findings)


_PLACE = {"even": 0, "leaning": 1, "biased": 2, "deeply biased": 3}
_STOPPED = (FindingKind.TIME_IS_UP, FindingKind.INTERRUPTED)


def of_the_part(findings: Iterable[Finding]) -> str:
    """What a verdict begins with where part of the model keeps its values."""
    return "of the fresh part: " if any(finding.kind in PARTLY for finding in findings) else ""


def check_fresh(m: Measurement) -> None:
    """No verdict about the initialization of weights that are all trained, or of one model."""
    kinds = {finding.kind: finding for finding in reversed(m.findings)}
    if FindingKind.NOTHING_DRAWN in kinds:
        got = "an instance of which no initializer is known: all initializations are this one model"
        hint = "a function that builds the model, or its class, or init=; fg.measure for its guesses"
        raise InvalidInput("a model that can be drawn again", got=got, hint=hint)
    if (nothing := kinds.get(FindingKind.NOTHING_FRESH)) is not None:
        got = f"one whose weights all look trained ({nothing.layer}): there is no initialization to judge"
        hint = 'redraw="head" for a fresh last layer, redraw="all" for the architecture; fg.measure for its guesses'
        raise InvalidInput("a model with weights that are drawn", got=got, hint=hint)


def _assumed(verdict: Verdict, findings: tuple[Finding, ...]) -> Verdict:
    """Without a probability where the measured network is partly a guess, of which no interval says anything."""
    guessed = [f for f in findings if f.kind in ASSUMED]
    if not guessed:
        return verdict
    first = " and ".join(f"{f.kind} at {f.layer}" for f in guessed)
    sure = "to be sure, pass its class, or a function that builds it"
    if all(f.kind == FindingKind.MAYBE_TRAINED for f in guessed) and any(f.kind in PARTLY for f in findings):
        return replace(verdict, probability=math.nan, chances=())  # the line of what is kept says it
    if_so = f"this holds if every run starts with such values as this instance has ({first}); {sure}"
    return replace(verdict, probability=math.nan, chances=(), why="; ".join(filter(None, (verdict.why, if_so))))


def broken(message: str, layer: str) -> Verdict:
    """NaN or Inf: nothing else can be said."""
    place = f" (the first layer with NaN or Inf is {layer})" if layer else ""
    return Verdict("broken", 1.0, math.nan, math.nan, math.nan, f"{message}{place}")


def first_bad(findings: tuple[Finding, ...]) -> str:
    """The layer that first made a NaN or Inf."""
    return next((f.layer for f in findings if f.kind == FindingKind.NONFINITE), "")


def _chances(share: float, ends: tuple[float, float], m: Measurement) -> tuple[float, ...]:
    """The chance of every word: that of the average largest fraction to be in its range.

    Half a normal on each side of what was seen, of the 95 % interval's own width.
    """
    low, high = ends
    if not all(math.isfinite(v) for v in (share, low, high)):
        return ()
    below, above = max((share - low) / 1.96, 1e-12), max((high - share) / 1.96, 1e-12)

    def cdf(x: float) -> float:
        return float(special.ndtr((x - share) / (below if x < share else above)))

    at = [0.0, *(cdf(edge) for edge in edges_of_shares(m.classes, m.points)), 1.0]
    return tuple(b - a for a, b in itertools.pairwise(at))


def _other_word(v: Verdict) -> str:
    """What to say where γ of the output alone would be called otherwise."""
    if math.isnan(v.gamma) or (other := word(v.gamma)) == v.name:
        return ""
    text = f"γ of the output alone, {v.gamma:.3g}, would be called {other}"
    if math.isnan(v.low) or math.isnan(v.guess_low):
        return text
    if v.low <= v.guess_high and v.guess_low <= v.high:
        return f"{text}: within their errors the two agree"
    return (
        f"{text}: it is a ratio of averages over networks, and these guess as networks of γ = {v.guess_gamma:.3g} do "
        "(as where layers are deep and narrow, points come in clusters, or logits are not Gaussian); the word follows "
        "the guesses"
    ).replace("inf ", "∞ ")
