"""Numbers as text."""

from __future__ import annotations

import math
import re
import shutil
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any

COLUMNS = 100  # of a page, at most: long lines are hard to read

_LONGEST_PERIOD = 64  # layers of a segment that is written once with its count
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: object) -> str:
    """The shortest text that reads back to the same value.

    >>> number(2.0), number(1 / 3), number(7), number(True)
    ('2', '0.3333333333333333', '7', 'true')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Real) and not isinstance(value, Integral):  # NumPy's numbers too
        value = float(value)
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    return str(value)


def four_digits(text: object) -> str:
    """A description of a network to look at: its numbers with four digits.

    >>> four_digits("dense(weight_var=0.3333333333333333, width=100)")
    'dense(weight_var=0.3333, width=100)'
    """
    return re.sub(r"\d*\.\d+(?:e-?\d+)?|\d+e-?\d+", lambda match: f"{float(match[0]):.4g}", str(text))


def spaced(value: float, beyond: str = "inf") -> str:
    """A whole number, thousands apart; `beyond`: what to say of one that is not finite.

    >>> spaced(12500.3), spaced(math.inf, "never")
    ('12 500', 'never')
    """
    return f"{value:,.0f}".replace(",", " ") if math.isfinite(value) else beyond


def short(value: float) -> str:
    """Three digits, and ∞ as such.

    >>> short(18.390547), short(float("inf")), short(0.0), short(123456.0), short(1e12), short(-2.5e-7)
    ('18.4', '∞', '0', '123 456', '1e12', '−2.5e−7')
    """
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if 1000 <= abs(value) < 1e6:
        return spaced(value).replace("-", "−")
    mantissa, _, exponent = f"{value:.3g}".replace("-", "−").partition("e")
    return f"{mantissa}e{exponent[0].strip('+')}{exponent[1:].lstrip('0')}" if exponent else mantissa


def rounded(value: float, digits: int = 2) -> str:
    """This number of digits, thousands apart.

    >>> rounded(432.1), rounded(12345.0, 1), rounded(5.46)
    ('430', '10 000', '5.5')
    """
    value = float(f"{value:.{digits}g}")
    return spaced(value) if value >= 10 or value == int(value) else f"{value:g}"


def magnitude(count: int) -> str:
    """A large count, in thousands, millions or billions.

    >>> magnitude(740), magnitude(9610), magnitude(11_200_000)
    ('740', '9.6 k', '11 M')
    """
    power = min((len(str(count)) - 1) // 3, 3)
    value = count / 1000**power
    return f"{value:.{0 if power == 0 or value >= 10 else 1}f} {' kMG'[power]}".rstrip()


def in_bytes(size: float) -> str:
    """A number of bytes.

    >>> in_bytes(2.34567e9), in_bytes(4.2e7), in_bytes(8e12)
    ('2.35 GB', '42 MB', '8 TB')
    """
    if size < 1e9:
        return f"{size / 1e6:.0f} MB"
    value, unit = (size / 1e9, "GB") if size < 9.995e11 else (size / 1e12, "TB")
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def power_of_ten(exponent: int) -> str:
    """A power of ten as people write it.

    >>> power_of_ten(-12)
    '10⁻¹²'
    """
    return f"10{str(exponent).translate(_RAISED)}"


def by_powers(value: float) -> str:
    """The text of `short`, for large and small numbers with powers of ten.

    >>> by_powers(12345.0), by_powers(3e6), by_powers(1e-5)
    ('12 345', '3·10⁶', '10⁻⁵')
    """
    if value == 0.0 or 1e-3 <= abs(value) < 1e5 or not math.isfinite(value):
        return short(value)
    power = math.floor(math.log10(abs(value)) + 1e-9)
    front = value / 10.0**power
    return power_of_ten(power) if abs(front - 1.0) < 1e-6 else f"{front:.2g}·{power_of_ten(power)}"


def capital(text: str) -> str:
    """A sentence's first letter as it is written, and no second full stop.

    >>> capital("remove both..")
    'Remove both.'
    """
    return f"{text[:1].upper()}{text[1:]}".replace("..", ".")


def is_path(text: str) -> bool:
    """`package.module:name` or `file.py:name`: no layer is written like this.

    >>> is_path("mymodels.nets:make"), is_path("nets/mine.py:Net"), is_path("dense > relu > dense")
    (True, True, False)
    """
    module, colon, name = text.rpartition(":")
    dotted = module.endswith(".py") or all(part.isidentifier() for part in module.split("."))
    return bool(colon) and dotted and all(part.isidentifier() for part in name.split("."))


def plain(value: Any) -> Any:
    """Data as strict JSON can hold it: inf and nan as the text that `float` reads back.

    >>> plain({"gamma": [1.0, math.inf]})
    {'gamma': [1.0, 'inf']}
    """
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def with_old_names(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose `largest` can be read as `expected_max`, too, as it was called until 0.2.

    >>> with_old_names({"largest": 0.6, "largest_se": 0.1, "std": 0.2})
    {'largest': 0.6, 'largest_se': 0.1, 'std': 0.2, 'expected_max': 0.6, 'expected_max_se': 0.1}
    """
    return row | {k.replace("largest", "expected_max"): v for k, v in row.items() if k.startswith("largest")}


def interval(low: float, high: float, inits: int, form: str = ".4g") -> str:
    """A 95 % interval after a value, or why there is none.

    >>> interval(0.25, 0.5, 20), interval(math.nan, math.nan, 1)
    ('(95 %: 0.25 to 0.5)', '(no interval from one initialization)')
    """
    if not math.isnan(low) and not math.isnan(high):
        return f"(95 %: {low:{form}} to {high:{form}})"
    return "(no interval from one initialization)" if inits < 2 else "(no interval)"


def ends(low: float, high: float) -> list[float] | None:
    """An interval as data: None where there is none."""
    return None if math.isnan(low) or math.isnan(high) else [low, high]


def with_error(value: float, error: float) -> str:
    """A value and its standard error, where it has one.

    >>> with_error(0.1875, 0.0123), with_error(3.0, math.nan), with_error(24920.3, 132.0)
    ('0.1875 ± 0.012', '3', '24 920 ± 130')
    """
    shown = spaced(value) if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"
    if not math.isfinite(error):
        return shown
    return f"{shown} ± {rounded(error) if 10 <= error < 1e9 else f'{error:.2g}'}"


def deviation(z: float) -> str:
    """A difference in standard errors.

    >>> deviation(-2.345), deviation(12345.0), deviation(math.nan)
    ('−2.3', 'over +999', 'not known')
    """
    if math.isnan(z):
        return "not known"
    sign = "−" if z < 0 else "+"
    return f"{sign}{abs(z):.1f}" if abs(z) < 1000 else f"over {sign}999"


def duration(seconds: float) -> str:
    """A time as one says it.

    >>> duration(10.0), duration(75.0), duration(600.0), duration(0.25), duration(9000.0)
    ('10 seconds', '75 seconds', '10 minutes', '0.2 seconds', '2.5 hours')
    """
    if seconds < 120.0:
        return f"{seconds:{'.0f' if seconds >= 10.0 else '.1g'}} seconds"
    return f"{round(seconds / 60.0)} minutes" if seconds < 7200.0 else f"{rounded(seconds / 3600.0)} hours"


def brief(seconds: float) -> str:
    """A short time, in the unit that fits.

    >>> brief(0.19), brief(0.00042), brief(3.2), brief(104.0)
    ('190 ms', '0.42 ms', '3.2 s', '104 s')
    """
    value, unit = (1e3 * seconds, "ms") if seconds < 1.0 else (seconds, "s")
    return f"{value:.0f} {unit}" if value >= 10.0 else f"{value:.2g} {unit}"


def counted(texts: Iterable[str]) -> list[str]:
    """Each text once, in the order of the first, with how many times it came.

    >>> counted(["cat", "add", "cat"])
    ['cat (2 times)', 'add']
    """
    return [text if times == 1 else f"{text} ({times} times)" for text, times in Counter(texts).items()]


def columns() -> int:
    """Count the columns of a page: those of the terminal, or of COLUMNS; 56 at least, at most 100."""
    return min(COLUMNS, max(56, shutil.get_terminal_size((COLUMNS, 24)).columns))


def page(title: str, rows: Sequence[tuple[str, str]], *, table: Iterable[str] = (), remarks: Iterable[str] = ()) -> str:
    """A result as text: a title, label and value one a line (long values wrap under themselves), a table, remarks.

    >>> print(page("Result", [("verdict", "leaning"), ("γ", "0.4669")], remarks=["note: 100 points"]))
    Result
      verdict  leaning
      γ        0.4669
      note: 100 points
    """
    width = max((len(label) for label, _ in rows), default=0)
    lines = [title]
    for label, value in rows:
        start, rest = f"  {label:<{width}}  ", " " * (width + 4)
        lines += textwrap.wrap(value, columns(), initial_indent=start, subsequent_indent=rest)
    lines += table
    for remark in remarks:
        lines += textwrap.wrap(remark, columns(), initial_indent="  ", subsequent_indent="    ")
    return "\n".join(lines)


def without_middle(lines: Sequence[str], mark: str, most: int = 24) -> list[str]:
    """The lines of a table; of more than `most` the first and the last, and between them the mark, with how many.

    >>> without_middle(["a", "b", "c", "d", "e"], "… {} more", most=2)
    ['a', '… 3 more', 'e']
    """
    hidden, half = len(lines) - most, most // 2
    return list(lines) if hidden <= 0 else [*lines[:half], mark.format(hidden), *lines[-half:]]


def elided(text: str, width: int) -> str:
    """The text, with its middle left out where it is too long: of a module's path the end tells most.

    >>> elided("bert.encoder.layer.11.attention.output.LayerNorm", 28)
    'bert…ention.output.LayerNorm'
    """
    if len(text) <= width:
        return text
    head = max(width // 6, 1)
    return f"{text[:head]}…{text[-(width - head - 1) :]}"


def rounded_off(gamma: float) -> float:
    """0 for a γ that is 0 but for rounding, on either side.

    >>> rounded_off(-7.5e-9), rounded_off(2e-5)
    (0.0, 2e-05)
    """
    return 0.0 if abs(gamma) < 1e-6 else gamma


def percent_apart(text: str) -> str:
    """The text with a space between a number and its %, of which 0 tenths are not said.

    >>> percent_apart("62.3% of 50, even 10.0%")
    '62.3 % of 50, even 10 %'
    """
    return re.sub(r"(?<=\d)(?:\.0)?%", " %", text)


def share_change(before: float, after: float) -> str:
    """A change of shares, with as many digits as tell the two apart, up to a hundredth of a percent.

    >>> share_change(0.731, 0.66), share_change(0.9991, 0.9987)
    ('73 % → 66 %', '99.91 % → 99.87 %')
    """
    texts = [(f"{before:.{digits}%}", f"{after:.{digits}%}") for digits in range(3)]
    one, other = next((pair for pair in texts if pair[0] != pair[1]), texts[0])
    return f"{one[:-1]} % → {other[:-1]} %"


def repeated(words: list[str]) -> list[str]:
    """Words, segments that repeat written once, with their count.

    >>> repeated(["dense", "relu", "dense", "relu", "dense"])
    ['2 x [dense > relu]', 'dense']
    """
    parts: list[str] = []
    i = 0
    while i < len(words):
        period, count = _repeat_at(words, i)
        parts.append(f"{count} x [{' > '.join(words[i : i + period])}]" if count > 1 else words[i])
        i += period * count
    return parts


def _repeat_at(words: list[str], i: int) -> tuple[int, int]:
    """The shortest period that repeats at i, and how often."""
    for period in range(1, min(_LONGEST_PERIOD, (len(words) - i) // 2) + 1):
        count = 1
        while words[i : i + period] == words[i + count * period : i + (count + 1) * period]:
            count += 1
        if count > 1:
            return period, count
    return 1, 1


# Shares and changes as every page writes them: "78 %", "+1.5 %", "× 3.2".

_SURELY = 1e-5  # a rest below this is said in words


def percent(share: float) -> str:
    """A share in percent, with more digits where it would look like none or all.

    >>> percent(0.6908), percent(0.9996), percent(1.0), percent(0.0012), percent(1 - 1e-9), percent(-0.05)
    ('69 %', '99.96 %', '100 %', '0.1 %', 'over 99.999 %', '−5 %')
    """
    return percents(share)[0]


def percents(*shares: float) -> list[str]:
    """Shares to be compared: all with as many digits as the one that needs most.

    >>> percents(0.9899, 0.9902), percents(0.9899), percents(0.9, 1.0), percents(0.5, 0.0)
    (['99.0 %', '99.0 %'], ['99 %'], ['90 %', '100 %'], ['50 %', '0 %'])
    """
    rests = [min(abs(share), abs(1 - share)) for share in shares]
    digits = max((max(0, math.ceil(-math.log10(rest)) - 2) for rest in rests if rest >= _SURELY), default=0)
    return [_percent(share, rest, digits) for share, rest in zip(shares, rests, strict=True)]


def _percent(share: float, rest: float, digits: int) -> str:
    if math.isnan(share):
        return "unknown"
    if 0 < rest < _SURELY:
        return "over 99.999 %" if share > 0.5 else "under 0.001 %"
    return f"{100 * share:.{digits if rest > 0 else 0}f} %".replace("-", "−")


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
    """An interval of factors on the mean square, in one notation.

    >>> size_changes(0.993, 1.06), size_changes(0.19, 0.27)
    ('−0.35 % to +3 %', '× 0.44 to × 0.52')
    """
    return "{} to {}".format(*size_change_of(low, high))
