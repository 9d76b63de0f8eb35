"""Biases, other vectors and buffers that a model's constructor draws in its own way, as an instance shows them.

A vector of 32 or more entries that look like independent normal or uniform numbers is re-drawn at the size that it has.
Shorter ones say too little of themselves: they are re-drawn with the longer ones if they have their size; else they
stay what they are, and that is said. Buffers are no parameters: what the constructor has drawn there stays, and that is
said too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from scipy import special
from torch import nn

from firstguess.ensemble.members import Finding, FindingKind
from firstguess.modules.initializers import RUNNING_NORMS
from firstguess.modules.own_values import Adjustment, Own
from firstguess.modules.weight_statistics import sampled

_LONG = 32  # entries, whose size is known to one part in 8
_DOUBT = 3.29  # standard errors: 1 in 1000 random vectors is taken for one with structure, and kept
_NORMAL, _UNIFORM = 1.04, 1.63  # √n times the distance of Lilliefors and of Kolmogorov and Smirnov: 1 in 100
_BLOCKS = (2, 3, 4)  # halves, and gates of cells
_LOOKED = 4096  # entries of a buffer


@dataclass(frozen=True)
class _Law:
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

    def fits(self, value: torch.Tensor) -> bool:
        """Whether a vector may be of this law, by its mean square about the mean."""
        n = value.numel()
        square = float((value.double() - self.mean).square().sum()) / self.size**2
        below = float(special.chdtr(n, square))
        return 5e-4 < below < 1.0 - 5e-4


def random_vectors(owns: Iterable[Own]) -> list[Adjustment]:
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
    return [
        Adjustment(FindingKind.RANDOM_VALUES, name, law.draw, rule=_words(law), ratio=1.0) for name, law in laws.items()
    ]


def _common(long: list[Own], laws: Mapping[str, _Law]) -> _Law | None:
    """The one law that all have: a constructor mostly uses one."""
    values = torch.cat([own.value.detach().flatten().double() for own in long])
    means = {laws[own.name].mean for own in long}
    if len(long) > 1 and means != {0.0}:
        return None
    mean = means.pop()
    normal, flat = _distances(values)
    size = float((values - mean).square().mean().sqrt())
    found = _Law(mean, size, flat < _UNIFORM and normal > _NORMAL, values.numel())
    return found if all(found.fits(own.value) for own in long) else None


def _words(law: _Law) -> str:
    known = 1.0 / math.sqrt(2.0 * law.entries)
    return f"{'uniform' if law.flat else 'normal'}, standard deviation {law.size:.3g}, known to {known:.0%}"


def random_findings(adjustments: list[Adjustment], model: str) -> list[Finding]:
    """One for all vectors that are re-drawn by their looks."""
    if not adjustments:
        return []
    rules = sorted({one.rule for one in adjustments})
    here = f"here and in {len(adjustments) - 1} more: " if len(adjustments) > 1 else ""
    said = "; ".join(rules[:3]) + ("; …" if len(rules) > 3 else "")
    return [
        Finding(
            FindingKind.RANDOM_VALUES,
            f"{here}values that look drawn, by no initializer that the model has: re-drawn as they look ({said}, which "
            f"no interval includes); pass the class or a factory to run the constructor itself: "
            f"fg.measure(lambda: {model}(…), data)",
            adjustments[0].name,
        )
    ]


def _law(value: torch.Tensor) -> _Law | None:
    """The law that entries look drawn from; None if they are few, or have structure."""
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
    return _Law(about, float((x - about).square().mean().sqrt()), normal > _NORMAL, n)


def _distances(x: torch.Tensor) -> tuple[float, float]:
    """√n times how far the entries are from a normal law, and from a uniform one between their ends."""
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
    spectral = "SpectralNorm" in type(part).__name__ or any(
        "SpectralNorm" in type(hook).__name__ for hook in vars(part)["_forward_pre_hooks"].values()
    )
    return isinstance(part, RUNNING_NORMS) or spectral


def buffer_findings(held: list[str]) -> list[Finding]:
    """That these buffers are what they are in every initialization."""
    if not held:
        return []
    more = f", here and in {len(held) - 1} more" if len(held) > 1 else ""
    return [
        Finding(
            FindingKind.RANDOM_BUFFERS,
            f"a buffer whose values look drawn{more}: every initialization has this instance's own, and all numbers "
            "and intervals are for these; pass the class or a factory to draw them too",
            held[0],
        )
    ]
