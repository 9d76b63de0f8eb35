"""What an engine hands back: plain numbers of each initialization, before any statistics.

Two engines fill it, one for descriptions and one for modules; `measure()` asks for some members at a time, so it
can show progress, stop early, and keep what was computed when interrupted.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from firstguess.base.errors import FirstguessError
from firstguess.base.gaussian import Array
from firstguess.base.record import StoredRecord

# Which layers are measured.
Probe: TypeAlias = Literal["all", "weights", "output"]

# The last axis of Members.stats.
MEAN, BETWEEN, SPREAD, DEAD = range(4)

_NAMED = 3  # layers of which the same is said
_KEPT, _NUMBERS = 8, 1 << 20  # members whose logits are kept, and float32 numbers in all of them


class FindingKind(StrEnum):
    """What a finding is about: short stable words, as they stand in JSON."""

    # Guesses
    NONFINITE = "nonfinite"
    LEFT_OUT = "left out"
    TIES = "ties"
    ZERO_HEAD = "zero head"
    DEAD = "dead"
    CLASSES_DIFFER = "classes differ"
    NOT_GAUSSIAN = "not gaussian"
    # The model and its data
    BATCHNORM = "batchnorm"
    BATCH_OF_ONE = "batch of one"
    EVAL_BATCHNORM = "eval batchnorm"
    PROBABILITIES = "probabilities"
    REGRESSION = "regression"
    NODE = "node"
    CONTROL_FLOW = "control flow"
    NO_GRADIENT = "no gradient"
    ASIDE = "not given to the model"
    # The work
    TIME_IS_UP = "time is up"
    PRECISION_NOT_REACHED = "precision not reached"
    INTERRUPTED = "interrupted"
    # Initializers, and an instance's own values
    NOT_REDRAWN = "not redrawn"
    INITIALIZER_FAILED = "initializer failed"
    NOT_FINITE = "not finite"
    OTHER_VALUES = "other values"
    CONSTANTS = "constants"
    OWN_RULE = "own rule"
    ORTHOGONAL = "orthogonal"
    TIED = "tied"
    CLONED = "cloned"
    OTHER_INITIALIZER = "other initializer"
    OTHER_SCALE = "other scale"
    KEPT_VALUES = "kept values"
    RANDOM_VALUES = "random values"
    RANDOM_BUFFERS = "random buffers"
    # What of a model is fresh
    PART = "fresh part"
    TRAINED = "trained"
    MAYBE_TRAINED = "maybe trained"
    NOTHING_FRESH = "nothing fresh"
    NOTHING_DRAWN = "nothing drawn"
    SCALED = "scaled"
    REPAIRED = "repaired"


# Findings about an instance that is not as its initializers would draw it: FOLLOWED are certain and only to be known;
# ASSUMED may be wrong, because a trained model looks like this as well.
FOLLOWED = frozenset({
    FindingKind.CONSTANTS, FindingKind.OWN_RULE, FindingKind.ORTHOGONAL, FindingKind.TIED, FindingKind.CLONED,
    FindingKind.OTHER_INITIALIZER, FindingKind.PART, FindingKind.SCALED, FindingKind.REPAIRED,
})  # fmt: skip
ASSUMED = frozenset(
    {FindingKind.OTHER_SCALE, FindingKind.KEPT_VALUES, FindingKind.RANDOM_VALUES, FindingKind.MAYBE_TRAINED}
)
# Part of the model keeps its values: what is said is said of the rest.
PARTLY = frozenset({FindingKind.PART, FindingKind.TRAINED})


@dataclass(frozen=True)
class Finding(StoredRecord):
    """Something a user should know; `layer` is the path of the module where it belongs, `evidence` what it is from."""

    kind: FindingKind
    message: str
    layer: str = ""
    evidence: str = ""

    def __str__(self) -> str:
        mark = "note:" if self.kind in FOLLOWED else "!"
        return f"{mark} {self.kind}{f' at {self.layer}' if self.layer else ''}: {self.message}"


def merged(findings: Iterable[Finding], kinds: Collection[FindingKind] | None = None) -> list[Finding]:
    """Findings of these kinds (None: all); those that say the same of several layers are one, naming the first."""
    layers: dict[tuple[FindingKind, str, str], list[str]] = {}
    for finding in findings:
        if kinds is None or finding.kind in kinds:
            layers.setdefault((finding.kind, finding.message, finding.evidence), []).append(finding.layer)
    found: list[Finding] = []
    for (kind, message, evidence), names in layers.items():
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        found.append(Finding(kind, message, ", ".join(filter(None, names[:_NAMED])) + more, evidence))
    return found


@dataclass(frozen=True)
class ProbedLayer:
    """A place where signals are looked at, in call order: its path or text, its kind, how many units it has."""

    name: str
    kind: str
    nodes: int
    weights: bool  # its output is a pre-activation (dense, conv, linear): what a prediction's gamma lists


@dataclass(frozen=True)
class Members:
    """Numbers of the members [start, start + inits) of an ensemble.

    With x_k(a) unit k's value on data point a, m_k its mean over the n points and V_k its unbiased variance over them:
    MEAN = mean_k m_k; BETWEEN = population variance over k of m_k, minus mean_k V_k / n (may be negative);
    SPREAD = mean_k V_k; DEAD = fraction of units whose value is the same on all points.
    So the center (theory.md (2)) is MEAN² + BETWEEN and γ = center / SPREAD, with averages over members taken first.
    """

    start: int
    fractions: NDArray[np.float64]  # (inits, classes): share of the points whose largest logit is this class
    ties: NDArray[np.int64]  # (inits,): points whose largest logit was shared; broken at random
    stats: NDArray[np.float64]  # (inits, layers, 4)
    findings: tuple[Finding, ...] = ()
    shapes: NDArray[np.float64] | None = None  # (inits, layers, 4) as in higher_moments.py, where they were asked for

    logits: NDArray[np.float32] | None = None  # (kept, points, classes) of the first members; of the first tokens
    own: NDArray[np.float64] | None = None  # (inits,) of language models: the share of tokens that guess themselves
    places: NDArray[np.float64] | None = None  # (inits, T) of language models: mean square before the last norm

    @property
    def inits(self) -> int:
        return self.fractions.shape[0]

    def part(self, first: int, stop: int) -> Members:
        """The members first … stop − 1 of these, as views."""
        arrays = {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return replace(self, start=self.start + first, **{name: value[first:stop] for name, value in arrays.items()})


def members_with_logits(points: int, classes: int) -> int:
    """How many members' logits are kept, the first of an ensemble: eight, if they are no more than 4 MB.

    >>> members_with_logits(1000, 10), members_with_logits(1000, 500), members_with_logits(10_000, 50_000)
    (8, 2, 0)
    """
    return min(_KEPT, _NUMBERS // (points * classes))


def tokens_with_logits(points: int, classes: int) -> int:
    """How many tokens, the first ones, a language model's logits are kept of, for each of eight members.

    >>> tokens_with_logits(512, 1000), tokens_with_logits(512, 32_000)
    (131, 4)
    """
    return min(points, max(1, _NUMBERS // (_KEPT * classes)))


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in the middle of `run`, with the members that were finished."""

    def __init__(self, members: Members) -> None:
        super().__init__()
        self.members = members


class Engine(Protocol):
    """Runs members of an ensemble. Member i depends on (seed, i) only."""

    classes: int
    points: int
    notes: tuple[str, ...]  # what was done to save work, e.g. an exact reduction

    @property
    def layers(self) -> tuple[ProbedLayer, ...]: ...

    def run(self, start: int, stop: int) -> Members:
        """Compute members start … stop − 1; after Ctrl-C, raise `Interrupted` with those that are done, if any."""
        ...

    @property
    def batch_hint(self) -> int:
        """How many members are convenient to ask for at once."""
        ...


# Blocks of members: an ensemble that is cut into pieces for several machines, and joined from them again.
#
# `measure` asks here for its engine, `train` for the members it should train (`share`). Outside of `cut` and `joined`
# they do all of their work. Member i depends on (seed, i) only, but rounding depends on which members are computed side
# by side (`bitwise_group`): blocks hold whole groups of them, and so join to the very numbers of one machine, bit for
# bit. Engines that choose their way by the clock have no such group, and are not cut; nor are measurements that stop by
# precision or time, and trainings of starts that are picked.


@dataclass(frozen=True, eq=False)
class TrainedBlock:
    """What consecutive members of a training showed: arrays by name, a row each."""

    start: int
    arrays: dict[str, Array]

    @property
    def inits(self) -> int:
        """How many members."""
        return len(next(iter(self.arrays.values())))


@dataclass
class _BlockRequest:
    """What this thread's next ensemble is to do; the one after it does all of its own work."""

    size: int
    start: int = 0
    known: Sequence[Members | TrainedBlock] = ()
    used: bool = False


@dataclass(frozen=True)
class Share:
    """Members `start` … `stop` − 1 of an ensemble; or all of them, where they are `known`."""

    start: int
    stop: int
    size: int  # of every block but the last
    known: Sequence[Any] = ()


class Cut(BaseException):
    """Ends an ensemble that was cut, with the members of its block; nobody's `except Exception` stops it."""

    def __init__(self, members: Members | TrainedBlock, total: int, size: int) -> None:
        super().__init__("an ensemble was cut into blocks")
        self.members = members
        self.total = total  # members in all
        self.size = size  # of every block but the last


_asked: ContextVar[_BlockRequest | None] = ContextVar("firstguess_blocks", default=None)


@contextmanager
def cut(start: int, size: int) -> Generator[None]:
    """The first ensemble inside computes the block that begins at member `start`, and ends with `Cut`.

    `size` is rounded up to whole groups of members. What has no more than one block, or cannot be cut, is done as ever.
    """
    yield from _with(_BlockRequest(size, start))


@contextmanager
def joined(blocks: Sequence[Members | TrainedBlock], size: int) -> Generator[None]:
    """The first ensemble inside takes its members from these blocks, all there are, in order."""
    yield from _with(_BlockRequest(size, known=blocks))


def _with(asked: _BlockRequest) -> Generator[None]:
    token = _asked.set(asked)
    try:
        yield
    finally:
        _asked.reset(token)


def share(inits: int, bitwise_group: int) -> Share | None:
    """Which of `inits` members are asked for, in blocks of whole `bitwise_group`s; None: all, as ever."""
    asked = _asked.get()
    if asked is None or asked.used or not bitwise_group:
        return None
    asked.used = True
    size = bitwise_group * -(-asked.size // bitwise_group)
    if inits <= size:
        return None
    if not asked.known:
        return Share(asked.start, min(asked.start + size, inits), size)
    blocks = {block.start: block for block in asked.known}
    for start in range(0, inits, size):
        if start not in blocks or blocks[start].inits != min(size, inits - start):
            got = "others: workers computed them in groups of another size"
            hint = "machines with as much memory, or no block="
            raise FirstguessError(f"blocks of {size} members", got=got, where="a join", hint=hint)
    return Share(0, inits, size, [blocks[start] for start in range(0, inits, size)])


def engine_for(engine: Engine, inits: int) -> Engine:
    """The engine that `measure` should ask for its `inits` members; inside `cut`, `Cut` instead."""
    found = share(inits, getattr(engine, "bitwise_group", 0))
    if found is None:
        return engine
    if found.known:
        return _Joined(engine, {block.start: block for block in found.known}, found.size)
    raise Cut(engine.run(found.start, found.stop), inits, found.size)


class _Joined:
    def __init__(self, engine: Engine, blocks: dict[int, Members], size: int) -> None:
        self.layers: tuple[ProbedLayer, ...] = engine.layers
        self.classes = engine.classes
        self.points = engine.points
        self.notes = engine.notes
        self.batch_hint = size
        self._blocks = blocks

    def run(self, start: int, stop: int) -> Members:
        block = self._blocks[start]
        assert block.inits == stop - start, (start, stop, block.inits)
        return block
