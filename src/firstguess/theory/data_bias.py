"""What the data alone bring: a direction that all points share, and how few directions tell them apart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from firstguess.base import checks, record
from firstguess.base.errors import InvalidInput
from firstguess.base.record import Shown, StoredRecord
from firstguess.base.text import elided
from firstguess.theory.shares.gaussian import Guesses

Treatment = Literal["none", "global", "channel", "pixel", "centre"]
TOP = (1, 3, 10)  # directions whose share of the variance is reported

_MOST = 5000  # points that the spectrum is taken of
_SMALL = 0.01  # γ₀ below which there is nothing to repair: two classes then split 53 to 47 at most
_FEW = 50  # effective directions below which centred points still move together (MNIST has 31, CIFAR-10 9)
_CHUNK = 1 << 22  # numbers converted to float64 at a time
_DENSE = 600  # size up to which all eigenvalues are computed

_WORDS: dict[str, str] = {
    "none": "leave the data as they are",
    "global": "subtract one mean from all entries, divide by one standard deviation",
    "channel": "standardize each channel",
    "pixel": "standardize each coordinate by itself",
    "centre": "subtract the mean point, scale nothing",
}


@dataclass(frozen=True)
class DataBias(StoredRecord, Shown):
    """The bias that data bring to any network. Print it; `after` says what each standardization would do.

    `gamma` is γ₀ = m0/v0 with m0 = ‖E x‖²/d and v0 = tr Cov(x)/d (theory.md (2), first row): the drift ratio that the
    first layer gets. `correlation` is the mean cosine of two different points. `shares` are the parts of the
    variance in the first 1, 3 and 10 directions, `directions` = (tr C)²/tr C² how many there are in effect: with
    few of them, points move together even when they are centred (theory.md §6).
    """

    name: str
    points: int
    shape: tuple[int, ...]
    gamma: float
    mean_square: float
    variance: float
    correlation: float
    shares: tuple[float, ...]
    directions: float
    after: dict[str, float]  # standardization -> γ₀
    notes: tuple[str, ...] = ()
    hash: str = ""

    @property
    def recommended(self) -> Treatment:
        """The mildest standardization that takes most of γ₀ away."""
        if self.gamma < _SMALL:
            return "none"
        for how in ("global", "channel"):
            if how in self.after and self.after[how] < max(_SMALL, 0.1 * self.gamma):
                return how
        return "centre"

    @property
    def recommendation(self) -> str:
        """What to do, in words."""
        how = self.recommended
        if how == "none":
            text = "nothing to repair: the points share almost no direction"
        else:
            text = f"{how}: {_WORDS[how]}; γ₀ falls from {self.gamma:.3g} to {self.after[how]:.3g}"
            usual = "channel" if "channel" in self.after else "global"
            if how == "centre":
                text += f" ({usual} leaves {self.after[usual]:.3g})"
        if self.directions < _FEW:
            text += (
                f". About {max(1, round(self.directions))} directions tell the points apart: expect bias that no "
                "standardization removes; fg.predict(net, data=x) says how much"
            )
        return text

    def summary(self) -> list[tuple[str, str]]:
        """Label and value of every headline number."""
        even = Guesses(self.gamma, 2).expected_max()
        tops = ", ".join(f"{k}: {share:.1%}" for k, share in zip(TOP, self.shares, strict=False))
        after = ", ".join(f"{how} {gamma:.3g}" for how, gamma in self.after.items())
        most = min(math.prod(self.shape), self.points - 1)
        return [
            ("data", f"{self.name}: {self.points} points of shape {self.shape}"),
            (
                "drift ratio γ₀ of the data",
                f"{self.gamma:.4g}  (mean² {self.mean_square:.4g}, variance {self.variance:.4g})",
            ),
            ("random linear classifier, two classes", f"{even:.1%} in the favoured class by γ₀ alone"),
            ("mean correlation of two points", f"{self.correlation:z.4f}"),
            ("variance in the first directions", tops),
            ("effective number of directions", f"{self.directions:.1f}  (of at most {most})"),
            ("γ₀ after standardization", after),
            ("recommended", self.recommendation),
            *(("note", note) for note in self.notes),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain data; `DataBias.from_dict` reads it back."""
        said = {"recommended": self.recommended, "recommendation": self.recommendation}
        return record.to_dict(self, **said, top=list(TOP))

    def __repr__(self) -> str:
        return f"DataBias({elided(self.name, 80)}: γ₀ = {self.gamma:.4g}, {self.points} points)"

    def __str__(self) -> str:
        rows = self.summary()
        width = max(len(label) for label, _ in rows)
        return "\n".join(["Data bias", *(f"  {label:<{width}}  {value}" for label, value in rows)])


def data_bias(x: object, *, points: int | None = None, standardize: Treatment | None = None, seed: int = 0) -> DataBias:
    """How much bias the data alone cause (γ₀), which preprocessing reduces it, and how low-dimensional the data are.

    `x` is anything that `fg.data` takes. A name such as "digits" is prepared as everywhere (`fg.data.load`), unless
    `standardize` says how. `points` of them are drawn by `seed`. Of more than 5000 points, 5000 are drawn for the
    spectrum, which the result says.

    >>> bias = data_bias("digits", standardize="none")
    >>> print(f"γ₀ {bias.gamma:.3f}, correlation {bias.correlation:.3f}, {bias.directions:.1f} directions")
    γ₀ 2.199, correlation 0.688, 13.2 directions
    >>> {how: round(gamma, 3) for how, gamma in bias.after.items()}
    {'none': 2.199, 'global': 0.928, 'channel': 0.928, 'pixel': 0.0, 'centre': 0.0}
    >>> bias.recommended
    'centre'
    """
    from firstguess.data import as_data, load

    if isinstance(x, str):
        data = load(x, standardize=standardize, points=points, seed=seed)
    else:
        data = as_data(x, points=points, seed=seed).standardize(standardize or "none")
    checks.within(data.n, "at least 2 data points", "data_bias", "more data", low=2, closed=True)
    rows = data.flat()
    mean, variance = _moments(rows)
    m0, v0 = float(np.square(mean).mean()), float(variance.mean())
    if v0 <= (4.0 * float(np.finfo(np.float32).eps)) ** 2 * m0:  # rounding of equal points
        hint = "check how the data were loaded"
        raise InvalidInput("data points that differ", got=f"{data.n} copies of one point", where="data_bias", hint=hint)
    notes: list[str] = []
    correlation, zero = _correlation(rows)
    if zero:
        notes.append(f"{zero} points are zero everywhere: not in the mean correlation")
    if constant := int(np.sum(variance <= 1e-12 * v0)):
        notes.append(f"{constant} of {data.d} coordinates never vary")
    used = rows
    if data.n > _MOST:
        used = data.subset(_MOST, seed).flat()
        notes.append(f"spectrum: {_MOST} of the {data.n} points, drawn at random")
    shares, directions = _spectrum(used)
    return DataBias(
        data.prepared, data.n, data.shape, m0 / v0, m0, v0, correlation, shares, directions,
        _treated(mean, variance, data.shape), tuple(notes), data.hash,
    )  # fmt: skip


def _moments(rows: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Mean and variance (1/n) of every coordinate, in float64 and in two passes, so that no digits cancel."""
    mean = rows.mean(axis=0, dtype=np.float64)
    variance = np.zeros_like(mean)
    for part in _chunks(rows):
        variance += np.square(part - mean).sum(axis=0)
    return mean, variance / len(rows)


def _correlation(rows: npt.NDArray[np.float32]) -> tuple[float, int]:
    """The mean cosine over pairs of different points, (‖Σ u‖² − n)/(n(n−1)); how many points have no direction."""
    total, count = np.zeros(rows.shape[1]), 0
    for part in _chunks(rows):
        wide = part.astype(np.float64)
        size = np.sqrt(np.square(wide).sum(axis=1))
        keep = size > 0.0
        total += (wide[keep] / size[keep, None]).sum(axis=0)
        count += int(keep.sum())
    cosine = (float(total @ total) - count) / (count * (count - 1)) if count > 1 else math.nan
    return cosine, len(rows) - count


def _spectrum(rows: npt.NDArray[np.float32]) -> tuple[tuple[float, ...], float]:
    """Shares of the variance in the first directions and their effective number, from the smaller of two matrices."""
    centred = rows - rows.mean(axis=0, dtype=np.float64).astype(np.float32)
    scale = float(np.abs(centred).max())
    centred /= np.float32(scale)  # squares of any data then stay in float32
    n, d = centred.shape
    gram = (centred.T @ centred if d <= n else centred @ centred.T).astype(np.float64)
    trace = float(np.trace(gram))
    values = _largest(gram, max(TOP))
    shares = tuple(min(1.0, float(values[:k].sum()) / trace) for k in TOP)
    return shares, trace**2 / float(np.einsum("ij,ij->", gram, gram))


def _largest(gram: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.float64]:
    size = gram.shape[0]
    if size <= max(_DENSE, 3 * count):
        values = np.linalg.eigvalsh(gram)
    else:
        from scipy.sparse.linalg import eigsh

        start = np.random.default_rng(0).standard_normal(size)  # fixed: the same data give the same digits
        find: Any = eigsh  # its stubs take the tolerance for an int
        values = np.asarray(find(gram, k=count, v0=start, tol=1e-6, return_eigenvectors=False))
    return np.maximum(np.sort(values)[::-1][:count], 0.0)


def _treated(
    mean: npt.NDArray[np.float64], variance: npt.NDArray[np.float64], shape: tuple[int, ...]
) -> dict[str, float]:
    """γ₀ after each standardization, from the moments alone: m0 and v0 of (x − level)/scale, block by block."""
    found = {"none": float(mean @ mean / variance.sum())}
    cuts = {"global": 1} | ({"channel": shape[0]} if len(shape) > 1 else {})
    for how, blocks in cuts.items():
        m, v = mean.reshape(blocks, -1), variance.reshape(blocks, -1)
        square = (v.mean(axis=1) + m.var(axis=1))[:, None]
        square = np.where(square > 0.0, square, 1.0)
        above = np.square(m - m.mean(axis=1, keepdims=True)) / square
        found[how] = float(above.sum() / (v / square).sum())
    return found | {"pixel": 0.0, "centre": 0.0}


def _chunks(rows: npt.NDArray[np.float32]) -> list[npt.NDArray[np.float32]]:
    step = max(1, _CHUNK // rows.shape[1])
    return [rows[start : start + step] for start in range(0, len(rows), step)]
