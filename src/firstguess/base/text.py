"""Numbers as text."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any

COLUMNS = 100  # of a terminal


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


def counted(texts: Iterable[str]) -> list[str]:
    """Each text once, in the order of the first, with how many times it came.

    >>> counted(["cat", "add", "cat"])
    ['cat (2 times)', 'add']
    """
    return [text if times == 1 else f"{text} ({times} times)" for text, times in Counter(texts).items()]


def page(title: str, rows: Sequence[tuple[str, str]], *, table: Iterable[str] = (), remarks: Iterable[str] = ()) -> str:
    """A result as text: a title, label and value one a line (long values wrap under themselves), a table, remarks.

    >>> print(page("Result", [("regime", "neutral"), ("γ", "0.4669")], remarks=["note: 100 points"]))
    Result
      regime  neutral
      γ       0.4669
      note: 100 points
    """
    width = max((len(label) for label, _ in rows), default=0)
    lines = [title]
    for label, value in rows:
        start, rest = f"  {label:<{width}}  ", " " * (width + 4)
        lines += textwrap.wrap(value, COLUMNS, initial_indent=start, subsequent_indent=rest)
    lines += table
    for remark in remarks:
        lines += textwrap.wrap(remark, COLUMNS, initial_indent="  ", subsequent_indent="    ")
    return "\n".join(lines)
