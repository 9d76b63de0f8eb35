"""Distributions of random weights, from their values: sizes, bounds, rules they fit, whether they look trained."""

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

    @classmethod
    def of(cls, *draws: torch.Tensor) -> Numbers:
        """Sums over these draws, without a look at whether they are orthogonal."""
        found = cls()
        for value in draws:
            found.add(value, gains=False)
        return found

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
    matrix = w.flatten(1) if w.ndim > 1 else w.reshape(1, -1)
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
    known = [(f"{name} normal", value) for name, value in _rules(fan_in, fan_out)]
    known += [(f"normal, standard deviation {std}", std * std * fan_in) for std in (0.02, 0.01)]
    for name, value in known if asked is None else [("init=", asked)]:
        if of_size(weight, value / fan_in):
            yield name, value


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


def scaled_size(w: torch.Tensor) -> float:
    """RMS·√fan_in, which initializers make 0.1 to 2."""
    return float(sampled(w, _ENTRIES).double().square().mean().sqrt()) * math.sqrt(w.numel() / w.shape[0])


def differs(own: Numbers, law: Numbers, alpha: float) -> bool:
    """Whether `own` values cannot be one more draw of the `law` that others were drawn from.

    By the ends of a uniform distribution (exact), by the F-ratio of variances (exact for a normal distribution, with
    fewer degrees of freedom for one of heavier tails) and by the mean (Student's t): each is wrong with probability
    `alpha` at most.

    >>> _ = torch.manual_seed(0)
    >>> law = Numbers.of(*(torch.rand(10) for _ in range(200)))
    >>> differs(Numbers.of(torch.rand(10)), law, 1e-9), differs(Numbers.of(torch.tensor([0.5, 1.2])), law, 1e-9)
    (False, True)
    """
    n, m = own.count, law.count
    # The largest of m uniform numbers misses the end by more than a part 1 − α^(1/m) of the range with probability α.
    centred = not law.off_centre
    # Uniform between its ends, wherever its middle is.
    middle, half = (law.high + law.low) / 2, (law.high - law.low) / 2
    flat = half**2 <= 3.0 * law.variance * (1 + _SIGMAS * math.sqrt(0.8 / m))
    if m >= SHAPED and flat and abs(middle - law.mean) <= _SIGMAS * math.sqrt(law.variance / m):
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


# Whether a weight looks trained: singular values that no draw of independent entries has.
#
# Of independent entries the largest singular value stays at the Marchenko-Pastur edge σ(√m + √n), within Tracy-Widom
# fluctuations of about ½(m^-½ + n^-½)^⅓·σ. Training adds directions that many rows share, and they stand out of it.
# Rows and columns are brought to one size and their means subtracted first, so that neither scale, nor blocks of
# different scale (a fused projection of q, k and v), nor a distribution with a mean, nor rows of zeros (padding) count.
# The edge itself is that of the same entries with random signs, which keeps whatever distribution, zeros and outliers
# they have.

# In standard deviations of Tracy and Widom's distribution, whose tail is exp(−⅔s^1.5): below 1e-9 per weight, 1e-6 per
# model of a thousand. Of 12 000 fresh weights of 30 distributions none was above 5, but for copied rows, which are
# taken once.
TRAINED = 8.0
_SCREEN = 4.0  # beyond the edge of equal variances, from where on random signs are asked
_SHORT, _LONG = 256, 1024  # rows and columns that are looked at, at even distances
_LEAST = 8  # rows and columns: fewer have no power
_SIGNS = 4  # draws of random signs
_SD = 1.27  # of Tracy and Widom's distribution for real entries


def has_power(value: torch.Tensor) -> bool:
    """Whether training could be seen at all: a matrix of at least 8 rows and columns, in some view."""
    return value.is_floating_point() and any(min(view.shape) >= _LEAST for view in _views(value))


def score(value: torch.Tensor) -> float:
    """How far the largest singular value is beyond what independent entries give, in standard deviations.

    Of a kernel also along its inputs and along its positions. 0 where there is no power (`has_power`).

    >>> g = torch.Generator().manual_seed(0)
    >>> w = torch.randn(100, 300, generator=g)
    >>> score(w) < 4, score(torch.cat([w, 10 * w.flip(1)])) < 4, score(w + 0.2 * w[:, :1] * w[:1]) > TRAINED
    (True, True, True)
    """
    if not value.is_floating_point():
        return 0.0
    generator = torch.Generator().manual_seed(0)
    return max((_score(view, generator) for view in _views(value.detach())), default=0.0)


def _views(value: torch.Tensor) -> Iterator[torch.Tensor]:
    """The matrices that a weight (units, inputs, positions …) is, one for each axis."""
    if value.ndim < 2 or value.numel() == 0:
        return
    yield value.flatten(1)
    if value.ndim > 2:
        yield value.transpose(0, 1).flatten(1)
        yield value.flatten(0, 1).flatten(1)


def _score(matrix: torch.Tensor, generator: torch.Generator) -> float:
    found = _against_signs(_part(matrix), generator)
    if found > TRAINED:  # rows or columns that were copied when they were drawn (ICNR, shared heads) are one draw
        for axis in (0, 1):
            matrix = _without_copies(matrix, axis)
        found = _against_signs(_part(matrix), generator)
    return found


def _against_signs(w: torch.Tensor, generator: torch.Generator) -> float:
    if not bool(torch.isfinite(w).all()):
        return 0.0
    w = _levelled(w)
    rows, columns = w.shape
    if min(rows, columns) < _LEAST:
        return 0.0
    known = (w != 0).to(w.dtype)
    centred = _centred(w, known)
    entries = centred * math.sqrt(rows * columns / ((rows - 1) * (columns - 1)))  # what centring took
    squares = entries.square()
    size = math.sqrt(float(squares.mean()))
    if size == 0.0:
        return 0.0
    heavy = math.sqrt(max(1.0, float(squares.square().mean()) / (3.0 * size**4)))  # outliers: fewer that count
    unit = 0.5 * _SD * (rows**-0.5 + columns**-0.5) ** (1 / 3) * size * heavy
    own = _largest(centred)
    if own < size * (math.sqrt(rows) + math.sqrt(columns)) + _SCREEN * unit:
        return 0.0
    signs = (2.0 * torch.randint(0, 2, w.shape, generator=generator) - 1.0 for _ in range(_SIGNS))
    return (own - sum(_largest(_centred(entries * sign, known)) for sign in signs) / _SIGNS) / unit


def _part(matrix: torch.Tensor) -> torch.Tensor:
    """At most 256 × 1024 entries, at even distances, with the short side first."""
    matrix = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    for axis, most in enumerate((_SHORT, _LONG)):
        size = matrix.shape[axis]
        if size > most:
            chosen = torch.linspace(0, size - 1, most, device=matrix.device).round().long()
            matrix = matrix.index_select(axis, chosen)
    return matrix.double().cpu()


def _levelled(w: torch.Tensor) -> torch.Tensor:
    """Rows and columns of one standard deviation, of the entries that are not 0; without those that have none."""
    for axis in (1, 0):
        low, high = w.amin(axis), w.amax(axis)
        w = w.index_select(1 - axis, (high > low).nonzero().flatten())
        if w.numel() == 0:
            return w
    for axis in (1, 0, 1, 0):
        if w.numel() == 0:
            return w
        known = (w != 0).to(w.dtype)
        count = known.sum(axis, keepdim=True).clamp_min(1.0)
        mean = w.sum(axis, keepdim=True) / count
        sd = (((w - mean) * known).square().sum(axis, keepdim=True) / count).sqrt()
        # Else too few entries for a mean and a size, or rounding, of a row that is one constant.
        varies = ((count >= _LEAST) & (sd > 1e-6 * mean.abs())).flatten()
        w = (w / sd.clamp_min(1e-300)).index_select(1 - axis, varies.nonzero().flatten())
    return w


def _centred(w: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
    for axis in (1, 0):
        w = (w - w.sum(axis, keepdim=True) / known.sum(axis, keepdim=True).clamp_min(1.0)) * known
    return w


def _largest(w: torch.Tensor) -> float:
    w = w if w.shape[0] <= w.shape[1] else w.T
    return math.sqrt(max(float(torch.linalg.eigvalsh(w @ w.T)[-1]), 0.0))


def _without_copies(matrix: torch.Tensor, axis: int) -> torch.Tensor:
    """The first of all rows (axis 0) or columns (1) that are equal, told by their product with random numbers."""
    across = matrix if axis == 0 else matrix.T
    mark = torch.randn(across.shape[1], generator=torch.Generator().manual_seed(1)).to(across)
    products = (across * mark).sum(1)
    ordered, order = torch.sort(products, stable=True)
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return across[order[first].sort().values] if axis == 0 else across[order[first].sort().values].T
