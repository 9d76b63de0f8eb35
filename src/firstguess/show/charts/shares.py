"""Shares of the guesses by class, or before and after a repair, as results of single models have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from firstguess.base.text import rounded_off, spaced
from firstguess.base.text import share_change as percents
from firstguess.show.charts import theme
from firstguess.show.charts.dots import Dot, dots_chart

if TYPE_CHECKING:
    from firstguess.diagnosis.explain_guess import Explanation
    from firstguess.modules.priors import Matched
    from firstguess.modules.repair import Repaired

_CLASSES = 12  # rows: the largest of more


def explanation_chart(explanation: Explanation, *, title: str | None = None) -> theme.Chart:
    """The share of each class in this model's guesses, beside an even split."""
    shares = np.array(explanation.fractions)
    even = 1 / len(shares)
    rows = _largest(shares)
    dots = [
        dot for c in rows for dot in (Dot(f"class {c}", "guesses", float(shares[c])), Dot(f"class {c}", "even", even))
    ]
    return _percent(
        dots,
        title or f"{theme.percent(explanation.largest)} of the guesses are class {explanation.favoured}",
        [f"{spaced(explanation.points)} data points, {spaced(len(shares))} classes{_rest(shares, rows)}."],
    )


def matched_chart(matched: Matched, *, title: str | None = None) -> theme.Chart:
    """The prior of each class beside the share of the guesses that is expected over initializations."""
    rows = _largest(matched.prior)
    dots = [Dot(f"class {c}", "prior", float(matched.prior[c])) for c in rows]
    dots += [Dot(f"class {c}", "expected guesses", float(matched.shares[c])) for c in rows]
    first, then = matched.loss
    return _percent(
        dots,
        title or "Guesses expected from a head that starts at the prior",
        [f"First loss {first:.3g} → {then:.3g}{_rest(matched.prior, rows)}."],
    )


def repaired_chart(repaired: Repaired, *, title: str | None = None) -> theme.Chart:
    """The share of the largest class before and after."""
    (before, after), (g0, g1) = repaired.largest, repaired.gamma
    return _percent(
        [Dot("largest class", "before", before), Dot("largest class", "after", after)],
        title or f"Largest class: {percents(before, after)} of the guesses",
        [f"Drift ratio γ of the output {theme.number(g0)} → {theme.number(rounded_off(g1))}."],
    )


def _largest(shares: Any) -> list[int]:
    """Classes in their order, the largest of many."""
    return sorted(int(c) for c in np.argsort(-np.asarray(shares), kind="stable")[:_CLASSES])


def _rest(shares: Any, rows: Sequence[int]) -> str:
    return f"; the {len(rows)} largest of {spaced(len(shares))}" if len(rows) < len(shares) else ""


def _percent(dots: Sequence[Dot], title: str, subtitle: Sequence[str]) -> theme.Chart:
    return dots_chart(
        {"": dots}, title=theme.unbroken(title), x_title="Share", subtitle=subtitle, x_domain=(0.0, 1.0), percent=True
    )
