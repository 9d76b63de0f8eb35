"""Shares and changes as every page writes them: "78 %", "+1.5 %", "× 3.2"."""

from __future__ import annotations

import math

_SURELY = 1e-5  # a rest below this is said in words


def percent(share: float) -> str:
    """A share in percent, with more digits where it would look like none or all.

    >>> percent(0.6908), percent(0.9996), percent(1.0), percent(0.0012), percent(1 - 1e-9)
    ('69 %', '99.96 %', '100 %', '0.1 %', 'over 99.999 %')
    """
    return percents(share)[0]


def percents(*shares: float) -> list[str]:
    """Shares to be compared: all with as many digits as the one that needs most.

    >>> percents(0.9899, 0.9902), percents(0.9899), percents(0.9, 1.0), percents(0.5, 0.0)
    (['99.0 %', '99.0 %'], ['99 %'], ['90 %', '100 %'], ['50 %', '0 %'])
    """
    rests = [min(share, 1 - share) for share in shares]
    digits = max((max(0, math.ceil(-math.log10(rest)) - 2) for rest in rests if rest >= _SURELY), default=0)
    return [_percent(share, rest, digits) for share, rest in zip(shares, rests, strict=True)]


def _percent(share: float, rest: float, digits: int) -> str:
    if math.isnan(share):
        return "unknown"
    if 0 < rest < _SURELY:
        return "over 99.999 %" if share > 0.5 else "under 0.001 %"
    return f"{100 * share:.{digits if rest > 0 else 0}f} %"


def size_change(mean_square: float) -> str:
    """What a factor on the mean square does to the size: in percent, or as a factor where that says more.

    >>> size_change(1.03), size_change(1.0), size_change(0.81), size_change(0.0289), size_change(100.0)
    ('+1.5 %', '0 %', '−10 %', '× 0.17', '× 10')
    """
    if math.isnan(mean_square) or mean_square < 0:
        return "not known"
    size = math.sqrt(mean_square)
    if not 0.5 <= size <= 2:
        return f"× {size:.2g}"
    change = 100 * (size - 1)
    text = f"{abs(change):.2g}" if abs(change) >= 0.01 else "0"
    return "0 %" if text == "0" else f"{'+' if change > 0 else '−'}{text} %"


def size_change_of(before: float, after: float) -> tuple[str, str]:
    """Two of them to be compared: both in percent, or both as factors.

    >>> size_change_of(1.03, 0.81), size_change_of(0.16, 1.0)
    (('+1.5 %', '−10 %'), ('× 0.4', '× 1'))
    """
    said = size_change(before), size_change(after)
    if not any(text.startswith("×") for text in said):
        return said
    one, other = (f"× {math.sqrt(x):.2g}" if x >= 0 else "not known" for x in (before, after))
    return one, other


def size_changes(low: float, high: float) -> str:
    """An interval of factors on the mean square, in the same words.

    >>> size_changes(0.993, 1.06)
    '−0.35 % to +3 %'
    """
    return f"{size_change(low)} to {size_change(high)}"
