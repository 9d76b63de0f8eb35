"""What a model's own values say of how its constructor draws them, where that is not what its initializers do.

An instance does not say how it was built. But a bias that is all zeros where the initializer draws numbers, or weights
beyond the ends of the initializer's distribution, were not drawn by it; then a re-draw follows the instance, and says
so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from scipy import special
from torch import nn

from firstguess.ensemble.member_statistics import Finding, FindingKind
from firstguess.modules.members.initializers import RUNNING_NORMS, in_float
from firstguess.modules.members.weight_statistics import SHAPED, Numbers, differs, fitting, orthogonal_gains, sampled

# What to do to be sure of how a class draws its weights, in Python and in the shell.
BY_CONSTRUCTOR = "pass the class, or a function that builds the model, to run its constructor itself"
ALPHA = 1e-6  # how often a model as its initializers draw it is said to be another, by a test of any of its parameters
_EQUAL = 1e-7  # chance, from which on equal entries are no accident
_CLOSE = 0.005  # relative, for values that were bfloat16 once
_KNOWN = 1_000  # entries from which a distribution is known well enough to compare with
_DRAWS = 1_000  # so that the ends of a uniform distribution are known also for a few biases
_BUDGET = 2_000_000  # numbers that one initializer draws beyond two initializations
_ZEROS = 4  # exact ones among 65 536 entries: float32 has one by chance in 4 of 1000 draws
_FEW = 8  # entries by which equal tensors are looked for
_PRINT = 4096  # entries that two draws are compared by
_DISCRETE = 4  # different values of a large tensor that are no draw: an identity, a mask


@dataclass
class InitializerStatistics:
    """Statistics of what an initializer gives, over several draws."""

    numbers: Numbers = field(default_factory=Numbers)
    fixed: bool = True  # the same in every draw
    first: torch.Tensor | None = None
    zeros: bool = False  # several entries are exactly 0, such as those of padding
    sparse: bool = False  # zeros that are no accident, in all entries of the first draw

    def add(self, value: torch.Tensor) -> None:
        entries = sampled(value)
        few = entries[:_PRINT].clone()
        if self.first is None:
            self.first = few
            self.sparse = _blanks(value) is not None
        elif self.fixed and not torch.equal(self.first, few):
            self.fixed = False
        self.numbers.add(entries, gains=False)
        self.zeros = self.zeros or int((entries == 0).sum()) >= _ZEROS

    @property
    def known(self) -> bool:
        return self.fixed or self.numbers.count >= _KNOWN


def clones(values: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Parameters whose values are bitwise those of an earlier one, which two draws never have: each with the first.

    Constants and tensors of few different values (ones of norms, identities, masks) are no draws, and left out.
    """
    seen: dict[object, list[str]] = {}
    found: dict[str, str] = {}
    for name, value in values.items():
        if not value.is_floating_point() or value.numel() < 2:
            continue
        mark = value.shape, value.dtype, value.device, tuple(value.flatten()[:_FEW].tolist())
        same = (first for first in seen.get(mark, ()) if torch.equal(values[first], value))
        first = next(same, None)
        if first is None:
            seen.setdefault(mark, []).append(name)
        elif int(sampled(value)[:_PRINT].unique().numel()) > min(_DISCRETE, value.numel() - 1):
            found[name] = first
    return found


def _blanks(value: torch.Tensor) -> torch.Tensor | None:
    """Mask of entries that are exactly 0, if that is no accident of rounding."""
    zero = value.detach() == 0
    count = int(zero.sum())
    if not _ZEROS <= count < value.numel():
        return None
    # A draw of 24 random bits has 0 with chance 2⁻²⁴; below 3e-8 a number was 0 if it was float16 once.
    size = float(sampled(value).float().square().mean()) ** 0.5 * (value.numel() / (value.numel() - count)) ** 0.5
    chance = 4 * torch.finfo(value.dtype).eps + 6e-8 / max(size, 1e-30)
    return zero if special.pdtrc(count - 1, value.numel() * chance) < _EQUAL else None


def learn(draw: Callable[[], object], parameters: Mapping[str, torch.Tensor]) -> dict[str, InitializerStatistics]:
    """Learn what initializers give from two draws."""
    laws = {name: InitializerStatistics() for name in parameters}
    for _ in range(2):
        draw()
        for name, parameter in parameters.items():
            laws[name].add(parameter)
    return laws


def learn_more(
    draw: Callable[[], object], parameters: Mapping[str, torch.Tensor], laws: dict[str, InitializerStatistics]
) -> None:
    """Draw more often, while a distribution is not known and not too much has been drawn."""
    room = _BUDGET // max(1, sum(parameter.numel() for parameter in parameters.values()))
    few = {name: parameters[name] for name, law in laws.items() if name in parameters and not law.known}
    rows: dict[str, list[torch.Tensor]] = {name: [] for name in few}
    need = {name: math.ceil((_KNOWN - laws[name].numbers.count) / sampled(few[name]).numel()) for name in few}
    for done in range(min(_DRAWS, room, max(need.values(), default=0))):
        draw()
        for name, parameter in few.items():
            if done < need[name]:
                rows[name].append(sampled(parameter).clone())
    for name, found in rows.items():
        if found:
            law, drawn = laws[name], torch.stack(found)
            law.numbers.add(drawn, gains=False)
            law.zeros = law.zeros or int((drawn == 0).sum(1).max()) >= _ZEROS


@dataclass(frozen=True)
class ObservedWeights:
    """A parameter's own values in the model that was given."""

    name: str
    value: torch.Tensor
    numbers: Numbers
    blank: torch.Tensor | None = None  # where it is 0 and a draw is not; `numbers` are those of the other entries

    @classmethod
    def of(cls, name: str, value: torch.Tensor) -> ObservedWeights:
        return cls(name, value, Numbers.of(sampled(value)))

    def beside(self, law: InitializerStatistics) -> ObservedWeights:
        """Set its zeros aside, if a draw of `law` has none."""
        blank = None if law.fixed or law.sparse else _blanks(self.value)
        if blank is None:
            return self
        return replace(self, numbers=Numbers.of(sampled(self.value[~blank])), blank=blank)

    @property
    def finite(self) -> bool:
        return math.isfinite(self.numbers.square)

    @property
    def constant(self) -> bool:
        """Whether all entries are one value, and that by no accident of rounding."""
        low, high = torch.aminmax(self.value)
        if not bool(low == high):
            return False
        # A uniform draw has 24 random bits in float32, 8 in bfloat16: the next has the same with this chance.
        bits = 1 - math.log2(torch.finfo(self.value.dtype).eps)
        return 2.0 ** (-bits * (self.value.numel() - int(bool(low != 0)))) < _EQUAL

    @property
    def discrete(self) -> bool:
        return self.value.numel() >= _DISCRETE**2 and int(self.value.unique().numel()) <= _DISCRETE

    @property
    def plain(self) -> bool:
        """Whether it is a weight, and not what a weight is made from."""
        return ".parametrizations." not in self.name and not self.name.endswith("_g")

    @cached_property
    def rules(self) -> list[tuple[str, float]]:
        """The known rules that a weight may come from."""
        return list(fitting(self.numbers, tuple(self.value.shape))) if self.value.ndim > 1 else []

    def drawn_by(self, law: InitializerStatistics, now: torch.Tensor, alpha: float) -> bool:
        """Whether these values, but for those aside, may be one more draw of `law`; `now` is one."""
        if law.fixed:
            size = float(now.abs().max())
            return torch.allclose(self.value.to(now.device), now, rtol=_CLOSE, atol=_CLOSE * size)
        return not self.constant and not differs(self.numbers, law.numbers, alpha)

    def distance(self, law: InitializerStatistics) -> float:
        """How far apart the sizes are: |log| of their ratio."""
        one, two = self.numbers.mean_square, law.numbers.mean_square
        return abs(math.log(one / two)) if one > 0 and two > 0 else math.inf if one != two else 0.0


@dataclass(frozen=True)
class Adjustment:
    """What is done to one parameter after its initializer has run."""

    kind: FindingKind
    name: str
    run: Callable[[torch.Tensor], object]
    ratio: float = 1.0
    rule: str = ""
    certain: bool = False  # training would not give such values


def follow(strange: list[tuple[ObservedWeights, InitializerStatistics]]) -> list[Adjustment]:
    """What makes draws of each distribution draws as the model's own, for values that are not of this distribution."""
    fits = [own.rules for own, _ in strange if own.rules]
    names = [{name for name, _ in rules} for rules in fits]
    shared = set.intersection(*names) if names else set[str]()  # one constructor mostly uses one rule
    return [one for own, law in strange for one in _adjustments(own, law, shared)]


def _adjustments(own: ObservedWeights, law: InitializerStatistics, shared: set[str]) -> Iterator[Adjustment]:
    blank = own.blank
    if blank is None or law.fixed or own.value.ndim < 2 or own.discrete:
        yield _follow(own, law, shared)
        return
    if differs(own.numbers, law.numbers, ALPHA):
        yield _scaled(own, law, shared)
    rule = f"{int(blank.sum())} zeros among {blank.numel()} entries"
    yield Adjustment(FindingKind.CONSTANTS, own.name, lambda p: p.masked_fill_(blank.to(p.device), 0.0), rule=rule)


def _follow(own: ObservedWeights, law: InitializerStatistics, shared: set[str]) -> Adjustment:
    value = own.value
    if own.constant:
        return _constant(FindingKind.CONSTANTS, own)
    if law.fixed or value.ndim < 2 or value.numel() < 2:
        return _constant(FindingKind.KEPT_VALUES, own)
    if own.discrete:
        return _constant(FindingKind.CONSTANTS, own)
    wide = value.float() if value.dtype.itemsize < 4 else value
    gains = orthogonal_gains(wide) if own.plain and min(value.shape[0], value[0].numel()) > 1 else None
    if gains is not None:
        said = ", ".join(sorted({f"{gain:.4g}" for gain in gains}))
        rule = f"gain {said}" if len(gains) == 1 else f"gain {said} in each of {len(gains)} blocks"
        return Adjustment(FindingKind.ORTHOGONAL, own.name, lambda p: _orthogonal(p, gains), rule=rule, certain=True)
    return _scaled(own, law, shared)


def _constant(kind: FindingKind, own: ObservedWeights) -> Adjustment:
    low, high = (float(v) for v in torch.aminmax(own.value))
    rule, certain = f"{low:.4g}" if low == high else "", low == high == 0 and own.value.ndim < 2
    return Adjustment(kind, own.name, lambda p: p.copy_(own.value), rule=rule, certain=certain)


def _orthogonal(parameter: torch.Tensor, gains: list[float]) -> None:
    def draw(wide: torch.Tensor) -> None:
        for block, gain in zip(wide.chunk(len(gains)), gains, strict=True):
            nn.init.orthogonal_(block, gain)

    in_float(parameter, draw)


def _scaled(own: ObservedWeights, law: InitializerStatistics, shared: set[str]) -> Adjustment:
    """A draw with the size that the model's values have, or that of the one rule that they fit; uniform or normal as
    they are, if its own distribution is one of the two."""
    mine, others = own.numbers, law.numbers
    centre, start = (mine.mean if mine.off_centre else 0.0), (others.mean if others.off_centre else 0.0)
    size = math.sqrt(mine.variance if centre else mine.mean_square)
    before = math.sqrt(others.variance if start else others.mean_square)
    ratio = size / before if before > 0 else math.inf
    simple = own.plain and not law.zeros and not start and (others.uniform or 2.5 < others.kurtosis < 3.5)
    flat = mine.uniform and not centre and (mine.count >= SHAPED or others.uniform)
    rule = ""
    if not centre:
        found = [(name, value) for name, value in own.rules if name in shared or not shared]
        if len({value for _, value in found}) == 1:
            rule, square = found[0]
            size = math.sqrt(square / own.value[0].numel())
        elif flat and mine.count >= SHAPED:
            # The ends of a uniform distribution are known to 1/n, its standard deviation to 0.45/√n only.
            size = mine.reach * (1 + 1 / mine.count) / math.sqrt(3)
    certain = bool(rule) and flat and mine.count >= SHAPED  # trained weights do not end where a rule's do
    kind = FindingKind.OWN_RULE if certain else FindingKind.OTHER_SCALE
    if not simple:
        factor = size / before if before > 0 else 0.0
        return Adjustment(kind, own.name, lambda p: p.sub_(start).mul_(factor).add_(centre), ratio, rule, certain)
    if flat:
        end = math.sqrt(3) * size
        return Adjustment(kind, own.name, lambda p: p.uniform_(-end, end), ratio, rule, certain)
    return Adjustment(kind, own.name, lambda p: p.normal_(centre, size), ratio, rule, certain)


def and_more(places: Collection[str]) -> str:
    """What to say where the first of some places is named."""
    return f", here and in {len(places) - 1} more" if len(places) > 1 else ""


def not_followed(adjustments: list[Adjustment]) -> Finding:
    """One for all parameters that are drawn by their initializers though the model's own values are others."""
    message = f"the model's own values are not what its initializers give, in {len(adjustments)} parameters: it was "
    message += "trained, or its constructor initializes them in its own way; to compare with that, "
    return Finding(FindingKind.OTHER_VALUES, f"{message}{BY_CONSTRUCTOR}", _worst(adjustments).name)


def _worst(adjustments: list[Adjustment]) -> Adjustment:
    return max(adjustments, key=lambda one: abs(math.log(max(one.ratio, 1e-9))))


def findings(adjustments: list[Adjustment]) -> list[Finding]:
    """One for each kind of adjustment, with what to do to be sure."""
    words = {
        FindingKind.RANDOM_VALUES: "values that look drawn, by no initializer of the model: re-initialized as they "
        "look ({rules}, which no interval includes)",
        FindingKind.CONSTANTS: "the model has {rules} where its initializer gives other values: kept, as the "
        "constructor set it",
        FindingKind.KEPT_VALUES: "kept in every initialization: its initializer cannot give these values, so the "
        "constructor set them, or they are trained; intervals hold for these values alone",
        FindingKind.ORTHOGONAL: "re-initialized as orthogonal ({rules}), as the model's values are and its "
        "initializer's are not",
        FindingKind.OWN_RULE: "re-initialized by {rules}, the distribution that the model's values have "
        "and its initializer has not",
        FindingKind.OTHER_SCALE: "re-initialized at the size of the model's own values ({ratio:.3g} times its "
        "initializer's{fits}), with one size for the whole tensor: its constructor draws in its own way, or it was "
        "trained",
    }
    found: list[Finding] = []
    for kind, text in words.items():
        mine = [one for one in adjustments if one.kind == kind]
        if not mine:
            continue
        worst = _worst(mine)
        rules = sorted({one.rule for one in mine if one.rule}) or ["few different values"]
        said = "; ".join([*rules[:3], *(["…"] if len(rules) > 3 else [])])
        fits = f", which fits {worst.rule}" if worst.rule else ""
        message = text.format(rules=said, ratio=worst.ratio, fits=fits)
        here = f"here and in {len(mine) - 1} more: " if len(mine) > 1 else ""
        found.append(Finding(kind, f"{here}{message}; {BY_CONSTRUCTOR}", worst.name))
    return found


# Biases, other vectors and buffers that a model's constructor draws in its own way, as an instance shows them.
#
# A vector of 32 or more entries that look like independent normal or uniform numbers is drawn again at the size that it
# has. Shorter ones say too little of themselves: they are drawn with the longer ones if they have their size; else
# they stay what they are, and that is said. Buffers are no parameters: what the constructor has drawn there stays, and
# that is said too.

_LONG = 32  # entries, whose size is known to one part in 8
_DOUBT = 3.29  # standard errors: 1 in 1000 random vectors is taken for one with structure, and kept
_NORMAL, _UNIFORM = 1.04, 1.63  # √n times the distance of Lilliefors and of Kolmogorov and Smirnov: 1 in 100
_BLOCKS = (2, 3, 4)  # halves, and gates of cells
_LOOKED = 4096  # entries of a buffer


@dataclass(frozen=True)
class _FittedDistribution:
    mean: float
    size: float  # standard deviation
    flat: bool
    entries: int

    def draw(self, parameter: torch.Tensor) -> None:
        if self.flat:
            half = math.sqrt(3.0) * self.size
            parameter.uniform_(self.mean - half, self.mean + half)
        else:
            parameter.normal_(self.mean, self.size)

    @property
    def words(self) -> str:
        known = 1.0 / math.sqrt(2.0 * self.entries)
        return f"{'uniform' if self.flat else 'normal'}, standard deviation {self.size:.3g}, known to {known:.0%}"

    def fits(self, value: torch.Tensor) -> bool:
        """Whether a vector may be of this distribution, by its mean square about the mean."""
        n = value.numel()
        square = float((value.double() - self.mean).square().sum()) / self.size**2
        below = float(special.chdtr(n, square))
        return 5e-4 < below < 1.0 - 5e-4


def random_vectors(owns: Iterable[ObservedWeights]) -> list[Adjustment]:
    """What re-draws those of these vectors that look drawn."""
    candidates = [own for own in owns if own.value.ndim == 1 and own.finite and not own.constant]
    laws = {own.name: law for own in candidates if (law := _law(own.value.flatten())) is not None}
    if not laws:
        return []
    long = [own for own in candidates if own.name in laws]
    common = _common(long, laws)
    if common is not None:
        laws = dict.fromkeys(laws, common)
        laws |= {own.name: common for own in candidates if own.value.numel() < _LONG and common.fits(own.value)}
    return [Adjustment(FindingKind.RANDOM_VALUES, name, law.draw, rule=law.words) for name, law in laws.items()]


def _common(long: list[ObservedWeights], laws: Mapping[str, _FittedDistribution]) -> _FittedDistribution | None:
    """The one distribution that all have: a constructor mostly uses one."""
    values = torch.cat([own.value.detach().flatten().double() for own in long])
    means = {laws[own.name].mean for own in long}
    if len(long) > 1 and means != {0.0}:
        return None
    mean = means.pop()
    normal, flat = _distances(values)
    size = float((values - mean).square().mean().sqrt())
    found = _FittedDistribution(mean, size, flat < _UNIFORM and normal > _NORMAL, values.numel())
    return found if all(found.fits(own.value) for own in long) else None


def _law(value: torch.Tensor) -> _FittedDistribution | None:
    """The distribution that entries look drawn from; None if they are few, or have structure."""
    x = value.detach().double()
    n = x.numel()
    if n < _LONG or int(x.unique().numel()) < n // 2:
        return None
    mean, size = float(x.mean()), float(x.std())
    if not size > 0.0 or _structured((x - mean) / size):
        return None
    normal, flat = _distances(x)
    if normal > _NORMAL and flat > _UNIFORM:
        return None
    centred = abs(mean) <= 5.0 * size / math.sqrt(n)
    about = 0.0 if centred else mean
    return _FittedDistribution(about, float((x - about).square().mean().sqrt()), normal > _NORMAL, n)


def _distances(x: torch.Tensor) -> tuple[float, float]:
    """√n times how far the entries are from a normal distribution, and from a uniform one between their ends."""
    n = x.numel()
    ordered = x.sort().values
    steps = torch.arange(n, dtype=torch.float64, device=x.device) / n
    low, high = ordered[0], ordered[-1]
    laws = torch.special.ndtr((ordered - x.mean()) / x.std()), (ordered - low) / (high - low)
    normal, flat = (max(float((p - steps).max()), float((steps + 1 / n - p).max())) * math.sqrt(n) for p in laws)
    return normal, flat


def _structured(unit: torch.Tensor) -> bool:
    """Whether neighbours are alike, values go with their place, or blocks differ; of standardized entries."""
    n = unit.numel()
    root = math.sqrt(n)
    place = torch.arange(n, dtype=torch.float64, device=unit.device)
    place = (place - place.mean()) / place.std()
    signs = [float((unit * place).sum()) / root, float((unit[1:] * unit[:-1]).sum()) / root]
    signs += [float((unit[2:] * unit[:-2]).sum()) / root]
    for count in _BLOCKS:
        blocks = torch.stack(list(unit[: n - n % count].chunk(count)))
        signs += (blocks.mean(1) * math.sqrt(blocks.shape[1])).tolist()
        signs += ((blocks.square().mean(1) - 1.0) * math.sqrt(blocks.shape[1] / 2.0)).tolist()
    return max(abs(sign) for sign in signs[:3]) > _DOUBT or max(abs(sign) for sign in signs[3:]) > _DOUBT + 0.7


def random_buffers(model: nn.Module) -> dict[str, torch.Tensor]:
    """Copies of the buffers that look drawn: random features and projections, not running statistics or encodings."""
    skipped = {id(buffer) for part in model.modules() if _keeps_vectors(part) for buffer in part.buffers(recurse=False)}
    found: dict[str, torch.Tensor] = {}
    for name, buffer in model.named_buffers():
        if id(buffer) in skipped or not buffer.is_floating_point() or buffer.is_quantized or buffer.is_meta:
            continue
        if buffer.numel() >= _LONG and bool(buffer.isfinite().all()) and _law(sampled(buffer)[:_LOOKED]) is not None:
            found[name] = buffer.detach().clone()
    return found


def _keeps_vectors(part: nn.Module) -> bool:
    """Running statistics, and vectors of spectral norm, which are drawn with their weight."""
    own = (part, *vars(part)["_forward_pre_hooks"].values())
    return isinstance(part, RUNNING_NORMS) or any("SpectralNorm" in type(one).__name__ for one in own)


def buffer_findings(held: list[str]) -> list[Finding]:
    """That these buffers are what they are in every initialization."""
    message = f"a buffer whose values look drawn{and_more(held)}: every initialization has this instance's own, and "
    message += f"all numbers and intervals are for these; {BY_CONSTRUCTOR}"
    return [Finding(FindingKind.RANDOM_BUFFERS, message, held[0])] if held else []
