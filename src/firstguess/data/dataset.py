"""`Data`: points, labels, and what a prediction needs to know about them."""

from __future__ import annotations

import hashlib
import math
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, SupportsIndex, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from firstguess.base import checks
from firstguess.base.errors import InvalidInput

# Which classes to keep and which to join, decided on labels alone: images need not be decoded for it.

IntArray: TypeAlias = npt.NDArray[np.int64]

Classes: TypeAlias = str | Sequence[int | str] | Mapping[str, Sequence[int | str]]
"""`"cat-dog"`, `"even-odd"`; `["cat", "dog"]`; `{"vehicles": ["ship", "truck"], "pets": ["cat", "dog"]}`."""

# NORM's C2-B. Its text omits ship, its code has it (claims.md, Settings).
_GROUPS: dict[str, tuple[str, ...]] = {
    "vehicles": ("airplane", "automobile", "ship", "truck"),
    "animals": ("cat", "deer", "dog", "horse"),
}


def regroup(
    y: IntArray, class_names: tuple[str, ...] | None, classes: Classes, *, where: str
) -> tuple[IntArray, IntArray, tuple[str, ...]]:
    """The rows to keep, their new labels 0, 1, …, and the new class names, in the order in which they were asked for.

    >>> regroup(np.array([3, 0, 4, 7]), None, "even-odd", where="example")
    (array([0, 1, 2, 3]), array([1, 0, 0, 1]), ('even', 'odd'))
    """
    chooser = _ClassChooser(y, class_names, where)
    groups = chooser.groups(classes)
    new_label: dict[int, int] = {}
    for number, (name, members) in enumerate(groups):
        for member in members:
            if member in new_label:
                got = f"class {chooser.name(member)!r} twice (again in {name!r})"
                raise InvalidInput("each class in one group only", got=got, where=where)
            new_label[member] = number
    old = np.array(sorted(new_label), dtype=np.int64)
    rows = np.flatnonzero(np.isin(y, old)).astype(np.int64)
    if rows.size == 0:
        expected = "at least one point of the chosen classes"
        hint = f"classes that occur here: {chooser.listed(np.unique(y).tolist())}"
        raise InvalidInput(expected, got=f"none among {y.size} points", where=where, hint=hint)
    lookup = np.array([new_label[int(label)] for label in old], dtype=np.int64)
    return rows, lookup[np.searchsorted(old, y[rows])], tuple(name for name, _ in groups)


class _ClassChooser:
    """Classes by their names and numbers."""

    def __init__(self, y: IntArray, names: tuple[str, ...] | None, where: str) -> None:
        self._names, self._where = names, where
        self._known = [int(label) for label in np.unique(y)] if names is None else list(range(len(names)))

    def groups(self, classes: Classes) -> list[tuple[str, list[int]]]:
        if isinstance(classes, str):
            return self._from_text(classes)
        if isinstance(classes, Mapping):
            many = [(str(name), [of] if isinstance(of, str) else of) for name, of in classes.items()]
            groups = [(name, [self._label(member) for member in members]) for name, members in many]
        else:
            groups = [(self.name(label), [label]) for label in map(self._label, classes)]
        if not groups or not all(members for _, members in groups):
            raise InvalidInput("at least one class, and no empty group", got=repr(classes), where=self._where)
        return groups

    def _from_text(self, text: str) -> list[tuple[str, list[int]]]:
        text = "even-odd" if text.strip().lower() == "parity" else text
        # A name may hold a dash ("T-shirt/top"): the whole text is tried as a name first; " vs " always separates.
        parts = re.split(r"\s+vs\.?\s+", text.strip())
        if self._find(text) is not None:
            parts = [text]
        elif len(parts) == 1:
            parts = text.split("-")
        groups: list[tuple[str, list[int]]] = []
        for part in parts:
            members = [label for word in part.split("+") for label in self._members(word.strip())]
            one = len(members) == 1 and "+" not in part
            groups.append((self.name(members[0]) if one else part.strip(), members))
        return groups

    def _members(self, word: str) -> list[int]:
        if (found := self._find(word)) is not None:
            return [found]
        lower = word.lower()
        if lower in ("even", "odd"):
            members = [label for label in self._known if label % 2 == (lower == "odd")]
            if members:
                return members
        if lower in _GROUPS and self._names is not None:
            labels = [self._find(name) for name in _GROUPS[lower]]
            if None not in labels:
                return [label for label in labels if label is not None]
        return [self._label(word)]

    def _label(self, member: int | str) -> int:
        if (found := self._find(member)) is None:
            hint = f"one of {self.listed(self._known)}; in text, 'a-b', or 'a vs b' when a name has a dash"
            raise InvalidInput("the name or number of a class", got=repr(member), where=self._where, hint=hint)
        return found

    def _find(self, member: int | str) -> int | None:
        if isinstance(member, str):
            plain = [_plain(name) for name in self._names or ()]
            if _plain(member) in plain:
                return plain.index(_plain(member))
            member = member.strip()
            if not re.fullmatch(r"-?[0-9]+", member):
                return None
        return int(member) if int(member) in self._known else None

    def name(self, label: int) -> str:
        return str(label) if self._names is None else self._names[label]

    def listed(self, labels: Sequence[int]) -> str:
        shown = ", ".join(self.name(label) for label in labels[:30])
        return shown if len(labels) <= 30 else f"{shown}, … ({len(labels)} in all)"


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", " ")


def encode(labels: Any, names: tuple[str, ...] | None, *, where: str) -> tuple[IntArray, tuple[str, ...]] | None:
    """Labels that are texts as classes 0, 1, … with their names: those given, else the texts in order; or None.

    >>> encode(np.array(["dog", "ant", "dog"]), None, where="toy")[1]
    ('ant', 'dog')
    """
    if labels.dtype.kind == "O":
        if not all(isinstance(one, str) for one in labels.ravel()):
            return None
    elif labels.dtype.kind != "U":
        return None
    found, y = np.unique(labels.astype(str), return_inverse=True)
    texts = [str(one) for one in found]
    if names is None:
        return y.reshape(labels.shape).astype(np.int64), tuple(texts)
    unknown = [one for one in texts if one not in names]
    if unknown:
        expected = f"labels from the class names {', '.join(names)}"
        raise InvalidInput(expected, got=", ".join(map(repr, unknown[:5])), where=where)
    place = np.array([names.index(one) for one in texts], dtype=np.int64)
    return place[y].reshape(labels.shape), names


FloatArray: TypeAlias = npt.NDArray[np.float32]
DoubleArray: TypeAlias = npt.NDArray[np.float64]
Standardization: TypeAlias = Literal["global", "channel", "pixel", "centre", "none"]

_CHUNK = 1 << 22  # numbers converted to float64 at a time: 32 MB, so 50 000 images never exist twice in float64


class InputMoments(NamedTuple):
    """The "input" row of theory.md (2): the state (mean, mean_square, mean_square + variance)."""

    mean: float
    """m̄, the mean of all entries."""
    mean_square: float
    """m0 = ‖E x‖²/d, the mean over coordinates of the squared data mean (not the mean of x²)."""
    variance: float
    """v0 = tr Cov(x)/d, with 1/n: these points are the data, not a sample of it."""


@dataclass(frozen=True, eq=False, repr=False)
class Data:
    """Points as a read-only float32 array (n, …), with optional labels: whole numbers, or texts, which name classes.

    Every operation returns a new `Data` and is recorded in its name. Images are (n, channels, height, width).

    >>> data = Data(np.array([[0.0, 2.0], [2.0, 2.0]]), np.array([0, 1]), name="toy")
    >>> data
    Data('toy', 2 points of shape (2,), 2 classes)
    >>> data.inputs()
    InputMoments(mean=1.5, mean_square=2.5, variance=0.5)
    >>> data.standardize("global").shift(1.0).x.mean().item()
    1.0
    """

    x: FloatArray
    y: IntArray | None = None
    name: str = "data"
    class_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        x = _points(self.x, where=self.name)
        object.__setattr__(self, "x", x)
        if self.class_names is not None:
            object.__setattr__(self, "class_names", tuple(str(name) for name in self.class_names))
        if self.y is not None:
            encoded = encode(np.asarray(self.y), self.class_names, where=self.name)
            if encoded is not None:
                object.__setattr__(self, "class_names", encoded[1])
            y = _labels(self.y if encoded is None else encoded[0], len(x), where=self.name)
            object.__setattr__(self, "y", y)
            if self.class_names is not None and (y.min() < 0 or y.max() >= len(self.class_names)):
                expected = f"labels 0…{len(self.class_names) - 1}, one for each class name"
                raise InvalidInput(expected, got=f"labels from {y.min()} to {y.max()}", where=self.name)

    @property
    def n(self) -> int:
        """The number of points."""
        return len(self.x)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one point."""
        return self.x.shape[1:]

    @property
    def d(self) -> int:
        """The number of coordinates of one point."""
        return math.prod(self.shape)

    @property
    def classes(self) -> int | None:
        """The number of classes, or None without labels."""
        if self.y is None:
            return None
        return len(np.unique(self.y)) if self.class_names is None else len(self.class_names)

    @property
    def prepared(self) -> str:
        """The name with how the points were prepared: it lists all steps, and here also that none standardized them."""
        known = any(word in self.name for word in ("standardized", "centred", "blob")) or self.name == "data"
        return self.name if known else f"{self.name}, not standardized"

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        labels = "no labels" if self.classes is None else f"{self.classes} classes"
        return f"Data({self.name!r}, {self.n} points of shape {self.shape}, {labels})"

    def flat(self) -> FloatArray:
        """The points as rows, (n, d)."""
        return self.x.reshape(self.n, self.d)

    @cached_property
    def hash(self) -> str:
        """Twelve hexadecimal digits of the SHA-256 of shape, points and labels."""
        digest = hashlib.sha256(repr((self.x.shape, self.y is not None)).encode())
        digest.update(self.x.astype("<f4", copy=False).data)
        if self.y is not None:
            digest.update(self.y.astype("<i8", copy=False).data)
        return digest.hexdigest()[:12]

    @cached_property
    def _pixel_moments(self) -> tuple[DoubleArray, DoubleArray]:
        """Mean and variance over the data of each coordinate, (d,) each; two passes, so that no digits cancel."""
        rows = self.flat()
        mean = np.zeros(self.d)
        for part in _chunks(self.n, self.d):
            mean += rows[part].sum(axis=0, dtype=np.float64)
        mean /= self.n
        variance = np.zeros(self.d)
        for part in _chunks(self.n, self.d):
            variance += np.square(rows[part] - mean).sum(axis=0)
        return mean, variance / self.n

    def inputs(self) -> InputMoments:
        """(m̄, m0, v0) of theory.md (2), where the closed form starts; in float64.

        >>> Data(np.array([[1.0, 1.0], [3.0, 1.0]])).inputs()
        InputMoments(mean=1.5, mean_square=2.5, variance=0.5)
        """
        mean, variance = self._pixel_moments
        return InputMoments(float(mean.mean()), float(np.square(mean).mean()), float(variance.mean()))

    def subset(self, n: int, seed: int = 0) -> Data:
        """`n` points drawn without replacement, in their old order; a smaller subset lies inside a larger one.

        >>> data = Data(np.arange(20.0).reshape(10, 2))
        >>> set(data.subset(3).x[:, 0]) <= set(data.subset(6).x[:, 0])
        True
        """
        rows = pick(self.n, n, seed=seed, where=self.name)
        return self._with(x=self.x[rows], y=None if self.y is None else self.y[rows], step=f"{n} points")

    def select(self, classes: Classes) -> Data:
        """Keep some classes, relabelled 0, 1, … in the order given; in text form or with a mapping, also join them.

        Text: `"cat-dog"` or `"cat vs dog"`; `"0+1 vs 2"` joins; `"even-odd"` (or `"parity"`) splits all labels by
        parity; `"vehicles-animals"` is NORM's split of CIFAR-10 (airplane, automobile, ship, truck; cat, deer,
        dog, horse).

        >>> data = Data(np.eye(4), np.arange(4), class_names=("ant", "bee", "cow", "dog"))
        >>> data.select(["dog", "bee"]).y.tolist(), data.select("ant+bee vs cow+dog").y.tolist()
        ([1, 0], [0, 0, 1, 1])
        """
        if self.y is None:
            raise InvalidInput("labels, to choose classes by", got="data without labels", where=self.name)
        rows, y, names = regroup(self.y, self.class_names, classes, where=self.name)
        return self._with(x=self.x[rows], y=y, class_names=names, step=class_step(names))

    def standardize(self, how: Standardization) -> Data:
        """Mean 0 and variance 1: of all entries together, of each channel (axis 1 of (n, C, …)), or of each pixel.

        This changes the bias: it sets m̄ = 0, and m0 = 0 with "pixel" and "centre" only. Coordinates that never vary
        (MNIST's border) become 0 under "pixel". "centre" subtracts the mean point and scales nothing. The statistics
        are those of these points.

        >>> data = Data(np.array([[0.0, 10.0], [2.0, 30.0]]))
        >>> data.standardize("pixel").x.tolist()
        [[-1.0, -1.0], [1.0, 1.0]]
        """
        checks.choice(how, get_args(Standardization), self.name, "standardize")
        if how == "none":
            return self
        if how == "channel" and len(self.shape) < 2:
            expected = "points with channels, (n, C, …), to standardize by channel"
            hint = '"global" or "pixel"'
            raise InvalidInput(expected, got=f"points of shape {self.shape}", where=self.name, hint=hint)
        if how == "centre":
            centre = self._pixel_moments[0].reshape(self.shape)
            return self._with(x=(self.x - centre).astype(np.float32), step="centred")
        # As many blocks of coordinates as there are means to subtract: 1, C or d.
        blocks = {"global": 1, "channel": self.shape[0], "pixel": self.d}[how]
        pixel_mean, pixel_variance = (moment.reshape(blocks, -1) for moment in self._pixel_moments)
        mean = pixel_mean.mean(axis=1, keepdims=True)
        std = np.sqrt(pixel_variance.mean(axis=1, keepdims=True) + pixel_mean.var(axis=1, keepdims=True))
        # Below float32 resolution a spread is rounding, and dividing by it would turn rounding into data.
        constant = std <= 4 * np.finfo(np.float32).eps * np.abs(mean)
        if constant.all():
            raise InvalidInput("data that vary", got="one constant value", where=self.name, hint='standardize="none"')
        std = np.where(constant, 1.0, std)
        x = np.empty_like(self.x)
        old, new = self.x.reshape(self.n, blocks, -1), x.reshape(self.n, blocks, -1)
        for part in _chunks(self.n, self.d):
            new[part] = np.where(constant, 0.0, (old[part] - mean) / std)
        return self._with(x=x, step=f"standardized ({how})")

    def shift(self, value: float) -> Data:
        """Add a constant to every entry: it raises m0, and with it the bias (NORM G.3; MF shifts by 0, 2, 4, 6)."""
        if not abs(value) < 1e37:  # float32 ends at 3e38
            raise InvalidInput("a finite shift", got=value, where=self.name)
        return self if value == 0 else self._with(x=self.x + np.float32(value), step=f"shifted by {value:g}")

    def to_dict(self) -> dict[str, Any]:
        """What a result records of its data: everything but the arrays."""
        return {
            "name": self.name,
            "n": self.n,
            "shape": list(self.shape),
            "class_names": None if self.class_names is None else list(self.class_names),
            "class_counts": None if self.y is None else np.unique(self.y, return_counts=True)[1].tolist(),
            "hash": self.hash,
            "inputs": self.inputs()._asdict(),
        }

    def _with(self, *, x: FloatArray, step: str, **changes: Any) -> Data:
        x.flags.writeable = False  # made here: nobody else holds it, so no copy is needed
        fields: dict[str, Any] = {"y": self.y, "class_names": self.class_names, **changes}
        return Data(x, name=f"{self.name}, {step}", **fields)


def class_step(names: tuple[str, ...]) -> str:
    """How a choice of classes is written in a name."""
    return " vs ".join(names) if len(names) <= 4 else f"{len(names)} classes"


def pick(available: int, points: int | None, *, seed: int, where: str) -> IntArray:
    """Which of the `available` rows are kept: all, or `points` of them at random (sorted), by `seed` alone."""
    if points is None:
        return np.arange(available, dtype=np.int64)
    if not 1 <= (points := whole_number(points, "points")) <= available:
        raise InvalidInput(f"between 1 and {available} points: there are {available}", got=points, where=where)
    whole_number(seed, "seed", 0, "a seed that is not negative")
    order = np.random.default_rng(seed).permutation(available)
    return np.sort(order[:points]).astype(np.int64)


def chosen(
    labels: IntArray | None,
    total: int,
    class_names: tuple[str, ...] | None,
    classes: Classes | None,
    points: int | None,
    *,
    seed: int,
    name: str,
    missing: InvalidInput,
) -> tuple[IntArray, IntArray | None, tuple[str, ...] | None, str]:
    """Rows of a file to keep, with their labels, class names and the name of the data; `missing`: without labels."""
    rows = np.arange(total, dtype=np.int64)
    if classes is not None:
        if labels is None:
            raise missing
        rows, labels, class_names = regroup(labels, class_names, classes, where=name)
        name = f"{name}, {class_step(class_names)}"
    kept = pick(len(rows), points, seed=seed, where=name)
    name = name if points is None else f"{name}, {points} points"
    return rows[kept], None if labels is None else labels[kept], class_names, name


def whole_number(value: object, name: str, least: float = -math.inf, expected: str = "") -> int:
    """`value` as an int, if it is a whole number from `least` on and not a float or a bool."""
    try:
        if isinstance(value, bool) or not isinstance(value, SupportsIndex):
            raise TypeError
        whole = operator.index(value)
    except TypeError:
        raise InvalidInput(f"a whole number for {name}", got=repr(value)) from None
    if whole < least:
        raise InvalidInput(expected or f"{name} of at least {least}", got=value)
    return whole


def not_finite(count: int, total: int, point: int, entry: tuple[int, ...], *, where: str) -> InvalidInput:
    """The error for NaN and Inf in data."""
    got = f"NaN or Inf in {count} of {total} entries, first in point {point}, entry {entry}"
    return InvalidInput("finite numbers", got=got, where=where, hint="drop or fill these points")


def _chunks(n: int, d: int) -> Iterator[slice]:
    rows = max(1, _CHUNK // max(d, 1))
    return (slice(start, start + rows) for start in range(0, n, rows))


def _points(value: Any, *, where: str) -> FloatArray:
    given = np.asarray(value)
    if given.dtype.kind not in "fiub":
        raise InvalidInput("real numbers", got=f"an array of dtype {given.dtype}", where=where)
    if given.ndim < 2:
        expected = "points as an array (n, …) with at least two axes"
        hint = "x[None, :] for one point, x[:, None] for points with one coordinate"
        raise InvalidInput(expected, got=f"shape {given.shape}", where=where, hint=hint)
    if given.size == 0:
        raise InvalidInput("at least one point with at least one coordinate", got=f"shape {given.shape}", where=where)
    with np.errstate(over="ignore"):  # beyond float32 becomes Inf, which is reported below
        x = np.ascontiguousarray(given, dtype=np.float32)
    # Neither NaN nor Inf survives min and max, and no temporary as large as the data is made.
    if not (np.isfinite(x.min()) and np.isfinite(x.max())):
        bad = np.argwhere(~np.isfinite(x))
        point, *entry = (int(i) for i in bad[0])
        raise not_finite(len(bad), x.size, point, tuple(entry), where=where)
    # A writable array still belongs to someone: take a copy, so that the content (and its hash) cannot change.
    if x.flags.writeable:
        x = x.copy() if np.may_share_memory(x, given) else x
        x.flags.writeable = False
    return x


def _labels(value: Any, n: int, *, where: str) -> IntArray:
    given = np.asarray(value)
    if given.ndim == 2 and given.shape[1] == 1:
        given = given[:, 0]
    if given.shape != (n,):
        hint = "one-hot labels: y.argmax(axis=1)"
        raise InvalidInput(f"{n} labels, one per point", got=f"shape {given.shape}", where=where, hint=hint)
    with np.errstate(invalid="ignore"):
        y = given.astype(np.int64) if given.dtype.kind in "fiub" else None
    if y is None or not np.array_equal(y, given):
        hint = "np.unique(y, return_inverse=True)[1] numbers them; or leave labels out: a guess needs none"
        raise InvalidInput("whole numbers as labels", got=f"an array of dtype {given.dtype}", where=where, hint=hint)
    y.flags.writeable = False
    return y
