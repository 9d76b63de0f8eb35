"""The report's numbers in words that a stranger understands."""

from __future__ import annotations

import math

from firstguess.show.charts.theme import number, unbroken

_NAMES = {
    "std of a class's share": "spread of a class's share (standard deviation)",
    "average largest share": "largest share, average",
    "P(largest share > 0.9)": "chance that one class gets over 90 %",
}


def compared(name: str) -> str:
    """A compared number by a name that a reader knows."""
    return _NAMES.get(name, name)


def with_error(x: float, error: float) -> str:
    """A number and its standard error where it has one, or a dash."""
    if not math.isfinite(x):
        return "–"
    return number(x) if math.isnan(error) else f"{number(x)} ± {error:.2g}"


def value(x: float, digits: int = 3) -> str:
    """A number with so many decimals, or a dash."""
    if math.isnan(x):
        return "–"
    return f"{x:.{digits}f}".replace("-", "−") if math.isfinite(x) else number(x)


def sentence(text: str) -> str:
    """With a capital and an end."""
    text = text.strip()
    first = text[:1].upper() if text[:1].isascii() else text[:1]  # γ stays γ
    return unbroken(f"{first}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}")
