"""Why a model guesses as it does: each cause has a test of its own, with the numbers that support it.

False alarms. Faults have tests of their own (faults/). Of the other causes none is raised unless the guess is notable,
which fair coins are once in 2e6; then: centring must lower the excess of the same initializations by three standard
errors, on enough initializations that another seed would agree (`is_clear`), and is called "partly" the cause
unless it clearly takes half of the excess; "unlike its initialization" needs a guess beyond every
initialization that has a chance below 1e-4 at their γ: 0 of 330 000 pairs of a fresh MLP and its 50 initializations.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from firstguess.base.statistics import FloatArray, proportion
from firstguess.base.text import short
from firstguess.diagnosis.faults import Fault
from firstguess.diagnosis.faults.base import excess, is_notable
from firstguess.ensemble.measurement import Measurement
from firstguess.ensemble.member_statistics import FindingKind, Members
from firstguess.modules.call_model import fewer, first_forward
from firstguess.modules.hooks.examination import Examination, examine, load_probes
from firstguess.modules.hooks.session import Snapshot
from firstguess.theory.data_bias import DataBias
from firstguess.theory.shares.gaussian import Guesses

if TYPE_CHECKING:
    from firstguess.data import Batch
    from firstguess.diagnosis.session import Progress
    from firstguess.modules.engine import ModuleEngine

Fresh: TypeAlias = Literal["all", "part", "nothing"]

GAMMA = 0.3  # γ₀ of the data from which centring is tried: two classes split 66 to 34 by it alone
_HALF = 0.5
_OFTEN = 0.05  # share of initializations from which a guess is no surprise
_RARE = 1e-4  # chance below which a guess is unlike the initialization
_HARDLY = 0.025  # … of what looks fresh of a model, where only ranks are known
_FALL = 0.75  # of the excess over an even split that may remain where a cure is to count as one
_SURE = 3.0  # standard errors that centring must lower the excess by
_CLEAR = 5.0  # standard errors from which no more initializations are needed to say so
_SLIGHT = 0.1  # of the excess: centring that takes clearly less is no cause

# Faults of this model that its initializations do not have: they explain why it guesses unlike them.
_OWN = {
    "NaN or Inf", "log(0)", "zero head", "dead units", "saturated outputs", "head bias", "vanishing logits",
    "same output for all inputs", "Dropout(1)",  # which initializations are measured without
}  # fmt: skip


@dataclass(frozen=True)
class Observed:
    """All that was looked at."""

    now: Snapshot
    measurement: Measurement | None
    faults: Sequence[Fault]
    bias: DataBias | None
    centred: Snapshot | None  # now, on centred data
    raw_excess: FloatArray  # of members on the data, and of the same members on centred data
    centred_excess: FloatArray
    fresh: Fresh = "all"  # what of the ensemble is drawn; the rest is as in the model

    @property
    def notable(self) -> bool:
        return is_notable(self.now.fractions, self.now.points - self.now.lost)

    @property
    def p(self) -> tuple[float, float, float]:
        return surprise(self.now.largest, self.measurement)

    @staticmethod
    def excess(seen: Snapshot) -> float:
        return float(excess(seen.fractions)) if seen.points > seen.lost else math.nan


def surprise(largest: float, measurement: Measurement | None) -> tuple[float, float, float]:
    """The share of initializations whose largest share is at least this, with its 95 % Clopper-Pearson interval."""
    if measurement is None or math.isnan(largest):
        return (math.nan, math.nan, math.nan)
    tops = measurement.guesses.fractions.max(axis=1)
    hits, inits = int((tops >= largest - 1e-12).sum()), len(tops)
    return (hits / inits, *proportion(hits, inits, method="exact"))


def causes(seen: Observed) -> tuple[Fault, ...]:
    """Those that hold, the most important first: faults, then what is none."""
    found = list(seen.faults)
    for test in (_data, _expected, _unlike, _trained):
        if (cause := test(seen, found)) is not None:
            found.append(cause)
    return tuple(sorted(found, key=lambda cause: bool(cause.numbers.get("partly"))))


def is_clear(raw: FloatArray, cured: FloatArray) -> bool:
    """Whether this many pairs say if centring helps: it does by far more than `_SURE` standard errors, or clearly not.

    >>> import numpy as np
    >>> raw, noise = np.full(40, 0.5), np.resize([0.1, -0.1], 40)
    >>> is_clear(raw, 0.3 + noise), is_clear(raw, 0.5 + noise), is_clear(raw, 0.45 + noise)
    (True, True, False)
    """
    falls = raw - cured
    error = float(falls.std(ddof=1)) / math.sqrt(len(falls))
    return not raw.any() or float(falls.mean()) > _CLEAR * error or _taken(raw, cured)[2] < _SLIGHT


def _taken(raw: FloatArray, cured: FloatArray) -> tuple[float, float, float]:
    """The part of the excess that centring takes, with its 95 % interval: a ratio of averages over the same members."""
    rest = float(cured.mean()) / float(raw.mean())
    error = float((cured - rest * raw).std(ddof=1)) / math.sqrt(len(raw)) / float(raw.mean())
    return 1 - rest, 1 - rest - 1.96 * error, 1 - rest + 1.96 * error


def _data(seen: Observed, _: list[Fault]) -> Fault | None:
    if not seen.notable or seen.bias is None or seen.centred is None or len(seen.centred_excess) < 2:
        return None
    raw, cured = seen.raw_excess[: len(seen.centred_excess)], seen.centred_excess
    falls = raw - cured  # the same weights on both: a paired comparison
    error = float(falls.std(ddof=1)) / math.sqrt(len(falls))
    if seen.bias.gamma < GAMMA or not float(falls.mean()) > _SURE * error:
        return None
    share, low, high = _taken(raw, cured)
    # The ensemble has the same data: where it never guesses like this model, data are not the reason.
    mine = seen.excess(seen.centred) < _FALL * seen.excess(seen.now) or seen.p[0] >= _OFTEN
    if high < _SLIGHT or not mine:
        return None
    partly, largest, gamma = low < _HALF, seen.centred.largest, seen.bias.gamma
    numbers = {"gamma": gamma, "largest_centred": largest, "excess": float(raw.mean())}
    numbers |= {"excess_centred": float(cured.mean()), "share": share, "share_interval": [low, high]}
    return Fault(
        "data not centred",
        f"{'partly: ' if partly else ''}the points share a direction, γ₀ = {gamma:.3g}; with the mean point "
        f"subtracted the excess over an even split falls from {raw.mean():.2f} to {cured.mean():.2f}, by {share:.0%} "
        f"(95 %: {low:.0%} to {high:.0%}), on average over {len(cured)} initializations, and this model's largest "
        f"fraction is {largest:.1%}",
        numbers=numbers | {"partly": partly, "recommendation": seen.bias.recommendation},
    )


def _expected(seen: Observed, _: list[Fault]) -> Fault | None:
    p, low, high = seen.p
    if any(not fault.numbers.get("meant") for fault in seen.faults):  # with a fault, nothing is as expected
        return None
    if not seen.notable or seen.measurement is None or not p >= _OFTEN:
        return None
    m = seen.measurement
    over = next((layer.name for layer in m.weights_layers if layer.gamma > 1), "")
    gamma = float(m.gamma[-1]) if m.gamma.size else math.nan
    numbers: dict[str, Any] = {"p": p, "interval": [low, high], "gamma": gamma}
    if seen.fresh == "part":
        message = f"{p:.0%} of {m.inits} draws of the fresh part do the same or more on these data, with the trained "
        message += f"weights as they are: γ = {gamma:.3g} at the output"
        return Fault("expected of the fresh part", message, numbers=numbers)
    message = f"{p:.0%} of {m.inits} initializations on these data do the same or more: {m.verdict}, by the γ of "
    message += f"{short(m.guess_gamma)} that their guesses imply; {gamma:.3g} at the output"
    message += f", and above 1 from layer {over} on" if over else ""
    if any(finding.kind == FindingKind.OTHER_VALUES for finding in m.findings):
        message += "; but its own weights are not what its initializers give (trained?), so this need not be why"
    numbers |= {"verdict": m.verdict, "first_layer_above_1": over}
    return Fault("expected from architecture", message, numbers=numbers)


def _unlike(seen: Observed, found: list[Fault]) -> Fault | None:
    chance = _chance(seen)
    # Data, and what is in the architecture, are the same in the ensemble: they do not explain what it never does.
    if any(cause.kind in _OWN for cause in found) or not seen.notable or seen.measurement is None:
        return None
    if seen.p[0] > 0 or not chance < (_RARE if seen.fresh != "part" else _HARDLY):
        return None
    tops = seen.measurement.guesses.fractions.max(axis=1)
    numbers = {"chance": chance, "largest_in_ensemble": float(tops.max()), "interval": list(seen.p[1:])}
    if seen.fresh == "part":
        message = f"none of {len(tops)} draws of what looks fresh gives a largest share above {tops.max():.1%} with "
        message += f"the other weights as they are, as one in {len(tops) + 1} would by chance: else it is trained or "
        message += "set"
        return Fault("unlike its fresh part", message, numbers=numbers)
    since = "its weights have changed since, by training, loading or a fault"
    if any(finding.kind == FindingKind.OTHER_VALUES for finding in seen.measurement.findings):
        since += "; or, if it is fresh, its constructor draws them in its own way: pass the class, and see"
    message = f"none of {len(tops)} initializations has a largest share above {tops.max():.1%}, and at their γ one "
    message += f"would with a chance of at most {chance:.1g}: {since}"
    return Fault("unlike its initialization", message, numbers=numbers)


def _trained(seen: Observed, found: list[Fault]) -> Fault | None:
    if seen.fresh != "nothing" or not seen.notable or found:
        return None
    return Fault(
        "trained",
        "every weight looks trained: the guesses are what training, and the data, made of them, and the initialization "
        'has no part in it that could be found; redraw="all" compares with initializations of the same architecture',
    )


def _chance(seen: Observed) -> float:
    """The chance of a largest share as large, by the distribution at the ensemble's γ, the upper end of its interval.

    Where part of the model keeps its values there is no such distribution, and ranks alone tell: one more draw is the
    largest of all with a chance of 1/(draws + 1).
    """
    m = seen.measurement
    if m is None or seen.now.points <= seen.now.lost or m.inits < 3:
        return 1.0
    interval = m.gamma_interval
    high = float(interval[-1, 1]) if len(interval) else math.nan
    if seen.fresh == "part" or math.isnan(high):
        return 1.0 / (m.inits + 1)
    gamma = max(high, m.guess_gamma, 0.0)
    return Guesses(gamma, classes=m.classes, points=m.points).prob_max_above(seen.now.largest - 0.5 / m.points)


# An ensemble whose size a budget in seconds decides: how long a point takes, members while there is time.

_PAIRS = 200  # initializations at most that are run on centred data too, while it is not clear whether that helps


class Timed(NamedTuple):
    """Seconds of a pass for one point, whether the model takes all points only (a whole graph), how many were the last
    to be run, and what was seen of them."""

    a_point: float
    whole: bool
    points: int
    seen: Examination


def time_a_point(model: Any, batches: Sequence[Batch], pick: Any, seed: int, *, enough: float) -> Timed:
    """How long a pass takes, with its probes, of as many points as take `enough` seconds, or of all.

    A call has costs of its own, which a few points must not be charged with: points are doubled until they count.
    """
    load_probes()
    total, count, whole = sum(batch.size for batch in batches), 16, False
    while True:
        few = list(batches) if whole else fewer(batches, count)
        size, taken, seen = sum(batch.size for batch in few), math.inf, None
        for _ in range(2):  # the first call of a model is slower
            began = time.perf_counter()
            try:
                with first_forward(few[0]):
                    seen = examine(model, few, pick=pick, seed=seed)
            except Exception:  # of a user's model, on a part of the data
                if size >= total:
                    raise
                whole = True
                break
            taken = time.perf_counter() - began
            if taken > min(0.5, enough):
                break
        if seen is None or (size < total and whole):
            continue
        if taken >= enough or size >= total:
            return Timed(taken / size, whole, size, seen)
        count *= 2


def drawn(
    engine: ModuleEngine, start: int, stop: int, deadline: float, progress: Progress | None = None, *, least: int
) -> list[Members]:
    """Members until there are enough or the time is over."""
    parts: list[Members] = []
    done, step, slow = start, 1, 0.0
    while done < stop and (done - start < least or time.perf_counter() + slow < deadline):
        began = time.perf_counter()
        parts.append(engine.run(done, done + step))
        done += step
        slow = (time.perf_counter() - began) / step
        left = max(0.0, deadline - time.perf_counter())
        # At most a quarter of what is left at once: the first members of a new way of running can be slow.
        step = max(1, min(engine.batch_hint, stop - done, int(left / 4 / max(slow, 1e-6))))
        if progress is not None:
            progress(done, stop)
    return parts


def paired(engine: ModuleEngine, parts: Sequence[Members], centred: ModuleEngine, deadline: float) -> tuple[Any, Any]:
    """Excess of the same members on data and on centred data; of more members while these leave it open."""
    raw, done = list(parts), sum(part.inits for part in parts)
    cured = drawn(centred, 0, done, deadline, least=2)
    while True:
        before, after = excesses(raw, cured)
        both = sum(part.inits for part in cured) == done < _PAIRS and len(after) > 1
        if not both or is_clear(before, after) or time.perf_counter() > deadline:
            return before, after
        raw += drawn(engine, done, min(2 * done, _PAIRS), deadline, least=1)
        until = sum(part.inits for part in raw)
        cured += drawn(centred, done, until, deadline, least=1)
        done = until


def excesses(parts: Sequence[Members], others: Sequence[Members]) -> tuple[Any, Any]:
    """The excess of the same members on data and on centred data, without those that are not finite."""
    raw = excess(np.concatenate([part.fractions for part in parts]))
    if not others:
        return raw, np.empty(0)
    cured = excess(np.concatenate([part.fractions for part in others]))
    fine = np.isfinite(raw[: len(cured)]) & np.isfinite(cured)
    return raw[: len(cured)][fine], cured[fine]
