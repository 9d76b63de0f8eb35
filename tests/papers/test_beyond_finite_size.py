"""B9: the verdict on ten panels follows from z-scores, and says what is not covered."""

from __future__ import annotations

from dataclasses import replace

from firstguess_papers import beyond as b9
from firstguess_papers.norm import network

import firstguess as fg
from firstguess.ensemble.measurement import Measurement

POINTS, INITS = 300, 400


def panel(place: str, depth: int, *, stretched: float = 1.0, covered: bool = True) -> b9.Panel:
    """Networks that guess as the theory at this size says (or differ more, by a factor)."""
    text = network(place, depth)
    finite = fg.predict(text, width=b9.WIDTH, inputs=fg.Inputs(dimension=b9.DIMENSION), points=POINTS)
    fractions = 0.5 + stretched * (finite.guesses.sample(INITS, seed=7) - 0.5)
    measured = Measurement(fg.EmpiricalGuesses(fractions, POINTS, 7), layers=())
    infinite = fg.predict(text, points=POINTS)
    return b9.Panel(place, depth, measured, infinite, finite if covered else None, "" if covered else "refused")


def test_the_verdict_is_that_of_the_panels() -> None:
    """Drawn from the prediction |z| ≤ 3 but for 1 in 370, with a fixed seed; 1.3 of the spread is 8 standard errors."""
    good = [panel("no norm", 1), panel("LayerNorm after", 20)]
    found = b9.judge(good)
    assert found.verdict == "holds"
    assert abs(good[1].z_infinite) > 10
    assert b9.judge([good[1], panel("LayerNorm after", 20, stretched=1.3)]).verdict == "does not hold"
    partly = b9.judge([*good, panel("no norm", 1, covered=False)])
    assert partly.verdict == "holds with a limit"
    assert "not covered: no norm, 1 layer" in partly.why


def test_nothing_is_shown_where_infinite_width_is_right_too() -> None:
    same = panel("no norm", 1)
    assert b9.judge([replace(same, finite=same.infinite, infinite=same.infinite)]).verdict == "does not hold"


def test_z_by_hand() -> None:
    p = panel("LayerNorm after", 20)
    law = p.finite
    assert law is not None
    assert law.finite_size is not None
    g = p.measured.guesses
    error = (
        g.standard_error("std") ** 2 + (law.finite_size.next_order * law.finite_size.std / law.guesses.std()) ** 2
    ) ** 0.5
    assert abs(p.z_finite - (g.std() - law.guesses.std()) / error) < 1e-9
