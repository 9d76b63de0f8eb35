"""Distributions of random weights, from their values: sizes, bounds, rules they fit, whether two samples agree."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from scipy import special

TORCH_DEFAULT = "PyTorch's default"
_FALSE_ALARM = 1e-6  # how often a rule that holds is not recognised by its bound
_SIGMAS = 5.0  # two-sided 6e-7
SHAPED = 160  # entries from which a normal distribution goes beyond √3 standard deviations but for one time in 1e6
_SAME = 0.02  # relative differences in size, or of the mean in standard deviations, that change no reading
_ROUNDED = 0.005  # of a bound: values that were bfloat16 once
_MOST = 1 << 16  # entries that are looked at: their size is then known to 0.3 %
_ENTRIES = 1 << 20  # of one draw that are summed: a larger layer's size is known to 0.1 % then
_ROWS = 64  # of a matrix, which show already that it is not orthogonal


@dataclass
class Numbers:
    """Sums over all entries of one parameter in all draws."""

    count: int = 0
    total: float = 0.0
    square: float = 0.0
    fourth: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    gain: float | None = None  # W Wᵀ = gain²·I in every draw

    def add(self, value: torch.Tensor, *, gains: bool = True) -> None:
        gain = orthogonal_gain(value.detach()) if gains and (self.count == 0 or self.gain is not None) else None
        w = sampled(value, _ENTRIES).double()
        squares = w * w
        self.gain = gain if self.count == 0 or (gain and self.gain and abs(gain / self.gain - 1) < 1e-3) else None
        self.count += w.numel()
        self.total += float(w.sum())
        self.square += float(squares.sum())
        self.fourth += float((squares * squares).sum())
        self.low, self.high = min(self.low, float(w.min())), max(self.high, float(w.max()))

    @property
    def constant(self) -> float | None:
        """The one value that all entries have in all draws, or None."""
        return self.low if self.low == self.high else None

    @property
    def mean(self) -> float:
        return self.total / self.count

    @property
    def variance(self) -> float:
        """Variance about the mean; unbiased if all draws have one distribution."""
        return max(self.square - self.total * self.mean, 0.0) / max(self.count - 1, 1)

    @property
    def kurtosis(self) -> float:
        """E w⁴ / (E w²)²: 3 for a normal distribution, 1.8 for a uniform one (about 0)."""
        return self.fourth / self.count / self.mean_square**2 if self.mean_square > 0.0 else math.nan

    @property
    def reach(self) -> float:
        return max(abs(self.low), abs(self.high))

    @property
    def mean_square(self) -> float:
        return self.square / self.count

    @property
    def standard_error(self) -> float:
        return math.sqrt(max(self.fourth / self.count - self.mean_square**2, 0.0) / self.count)

    @property
    def off_centre(self) -> bool:
        """Whether the mean is not 0: by a hundredth of the size at least, and beyond chance."""
        mean, rms = self.mean, math.sqrt(self.mean_square)
        return abs(mean) > 0.01 * rms + _SIGMAS * rms / math.sqrt(self.count)

    @property
    def uniform(self) -> bool:
        """Whether no entry lies beyond √3 standard deviations, where uniform numbers end and normal ones do not."""
        room = 1.0 + _SIGMAS * self.standard_error / self.mean_square if self.mean_square > 0.0 else 1.0
        return self.reach**2 <= 3.0 * self.mean_square * room

    @property
    def law(self) -> str:
        """normal, uniform or orthogonal; "" where the entries look like neither, or are too few to tell.

        By the fourth moment, within 5 standard errors: kurtosis 3 (√(24/n) each) of a normal distribution, 1.8
        (√(1.32/n), by the delta method) of a uniform one, which also ends; truncated and heavy-tailed ones have
        another.
        """
        if self.gain is not None:
            return "orthogonal"
        if self.constant is not None or self.off_centre or self.count < SHAPED:
            return ""
        name, kurtosis, variance = ("uniform", 1.8, 1.32) if self.uniform else ("normal", 3.0, 24.0)
        return name if abs(self.kurtosis - kurtosis) <= _SIGMAS * math.sqrt(variance / self.count) else ""


def orthogonal_gain(w: torch.Tensor) -> float | None:
    """g where W Wᵀ = g²·I, or Wᵀ W is, to 1e-4; else None."""
    matrix = w.flatten(1) if w.ndim > 1 else w[None]
    matrix = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    if matrix.shape[0] < 2 or (matrix.shape[0] > _ROWS and orthogonal_gain(matrix[:_ROWS]) is None):
        return None
    matrix = matrix.double()
    gram = matrix @ matrix.T
    size = float(gram.diagonal().mean())
    if size <= 0.0:
        return None
    gram = gram / size
    gram.diagonal().sub_(1.0)
    return math.sqrt(size) if float(gram.abs().max()) < 1e-4 else None


def orthogonal_gains(w: torch.Tensor) -> list[float] | None:
    """The gain of a weight that is orthogonal, or of each block of rows if each gate of a cell is; else None."""
    rows, columns = w.shape[0], w[0].numel()
    counts = {1, 3, 4, rows // columns} if w.ndim == 2 else {1}
    found = {k: rows // k for k in counts if k > 0 and rows % k == 0 and (k == 1 or rows // k > 1)}
    # Rows of an orthogonal wide matrix are orthogonal in any block; so are columns of tall ones in all blocks together.
    for count in sorted(found, key=lambda k: (found[k] > columns, k if found[k] <= columns else -k)):
        gains = [orthogonal_gain(block) for block in w.chunk(count)]
        known = [gain for gain in gains if gain is not None]
        if len(known) == count:
            return known
    return None


def _rules(fan_in: int, fan_out: int) -> Iterator[tuple[str, float]]:
    both = fan_in + fan_out
    yield "Kaiming", 2.0
    yield "LeCun", 1.0
    yield "Xavier", 2.0 * fan_in / both
    yield "Kaiming by fan-out", 2.0 * fan_in / fan_out
    yield "Xavier with ReLU's gain", 4.0 * fan_in / both
    yield "Xavier with tanh's gain", 50.0 / 9.0 * fan_in / both
    yield "Kaiming with tanh's gain", 25.0 / 9.0


def fitting(weight: Numbers, shape: tuple[int, ...], asked: float | None = None) -> Iterator[tuple[str, float]]:
    """(rule, σw² = fan-in · E W²) of every rule that a weight of shape (units, inputs, …) may come from. `asked` is
    that of init=(σw², σb²), and then the only normal rule."""
    if weight.constant is not None:
        return
    units, fan_in = shape[0], math.prod(shape[1:])
    fan_out = units * math.prod(shape[2:])
    if weight.gain is not None:  # no sampling error: all rows, or all columns, have the length `gain`
        for square, name in ((1.0, "orthogonal"), (2.0, "orthogonal with ReLU's gain")):
            if abs(weight.gain**2 / square - 1.0) < 1e-4:
                yield name, square * fan_in / max(fan_in, units)
        return
    if weight.uniform:
        if bounded(weight, 1.0 / math.sqrt(fan_in)):
            yield TORCH_DEFAULT, 1.0 / 3.0
        for name, value in _rules(fan_in, fan_out):
            if bounded(weight, math.sqrt(3.0 * value / fan_in)):
                yield f"{name} uniform", value
        return
    known = list(_rules(fan_in, fan_out))
    if asked is not None:
        known = [("init", asked)]
    for name, value in known:
        if of_size(weight, value / fan_in):
            yield f"{name} normal" if name != "init" else "init=", value
    for std in (0.02, 0.01):
        if asked is None and of_size(weight, std * std):
            yield f"normal, standard deviation {std}", std * std * fan_in


def bounded(numbers: Numbers, bound: float) -> bool:
    """Whether the entries fill [−bound, bound]: the largest of n misses it by t·bound with probability (1 − t)ⁿ."""
    if not numbers.uniform or numbers.reach > bound * (1.0 + 1e-5):
        return False
    return numbers.count * math.log(max(numbers.reach / bound, 1e-300)) >= math.log(_FALSE_ALARM)


def of_size(numbers: Numbers, square: float) -> bool:
    """Whether normal entries of this variance would have this mean square."""
    return abs(numbers.mean_square / square - 1.0) <= _SIGMAS * math.sqrt(2.0 / numbers.count) if square > 0 else False


def sampled(value: torch.Tensor, most: int = _MOST) -> torch.Tensor:
    """Entries of a tensor, in a row: all, or `most` or fewer at even distances of a larger one."""
    flat = value.detach().flatten()
    return flat[:: math.ceil(flat.numel() / most)] if flat.numel() > most else flat


def differs(own: Numbers, law: Numbers, alpha: float) -> bool:
    """Whether `own` values cannot be one more draw of the `law` that others were drawn from.

    By the ends of a uniform distribution (exact), by the F-ratio of variances (exact for a normal distribution, with
    fewer degrees of freedom for one of heavier tails) and by the mean (Student's t): each is wrong with probability
    `alpha` at most.

    >>> def numbers(*tensors):
    ...     found = Numbers()
    ...     for tensor in tensors:
    ...         found.add(tensor, gains=False)
    ...     return found
    >>> _ = torch.manual_seed(0)
    >>> law = numbers(*(torch.rand(10) for _ in range(200)))
    >>> differs(numbers(torch.rand(10)), law, 1e-9), differs(numbers(torch.tensor([0.5, 1.2])), law, 1e-9)
    (False, True)
    """
    n, m = own.count, law.count
    # The largest of m uniform numbers misses the end by more than a part 1 − α^(1/m) of the range with probability α.
    centred = not law.off_centre
    if m >= SHAPED and _flat(law):
        slack = (law.high - law.low) * -math.expm1(math.log(alpha) / m) + _ROUNDED * law.reach
        if own.high > law.high + slack or own.low < law.low - slack:
            return True
        if centred and n * math.log(max(own.reach / law.reach, 1e-300)) < math.log(alpha):
            return True
    size = math.sqrt(law.variance)
    far = abs(own.mean - law.mean)
    if far > _SAME * size and far > special.stdtrit(m - 1, 1 - alpha / 2) * size * math.sqrt(1 / n + 1 / m):
        return True
    if n < 2 or law.variance == 0.0:
        return law.variance == 0.0 < own.variance
    heavy = min(1.0, 2.0 / max(law.kurtosis - 1.0, 1e-9)) if centred else 1.0
    ratio, top, bottom = own.variance / law.variance, (n - 1) * heavy, (m - 1) * heavy
    tail = special.fdtrc(top, bottom, ratio) if ratio > 1 else special.fdtr(top, bottom, ratio)
    return abs(ratio**0.5 - 1) > _SAME and bool(tail < alpha / 2)


def _flat(law: Numbers) -> bool:
    """Whether a distribution looks uniform between its ends, wherever its middle is."""
    middle, half = (law.high + law.low) / 2, (law.high - law.low) / 2
    return half**2 <= 3.0 * law.variance * (1 + _SIGMAS * math.sqrt(0.8 / law.count)) and (
        abs(middle - law.mean) <= _SIGMAS * math.sqrt(law.variance / law.count)
    )
