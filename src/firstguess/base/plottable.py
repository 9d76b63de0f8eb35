"""Results that draw themselves. What shows results stands above them, so it is looked up by name, when it is asked."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import altair as alt

    Chart: TypeAlias = alt.Chart | alt.LayerChart | alt.HConcatChart | alt.VConcatChart


def room() -> Any:
    """`firstguess.show.results`: this is the one place that looks up to what shows results."""
    return importlib.import_module("firstguess.show.results")


class Shown:
    """A result with a chart of its own; in a notebook, the chart above its numbers."""

    __slots__ = ()

    def plot(self, what: str | None = None, *, title: str | None = None) -> Chart:
        """The chart of this result, an altair chart. `what` names another one where there are several.

        An unknown name ends in an error that lists them; `fg.figures` has the charts that lay several results side by
        side, and `fg.figures.save(chart, "figure.png")` writes one.

        >>> import firstguess as fg
        >>> fg.predict(fg.mlp(depth=3)).plot("pie")
        Traceback (most recent call last):
        ...
        firstguess.InvalidInput: Expected one of guesses, depth, but got 'pie', at Prediction.plot. Try: plot("guesses")
        """
        return room().chart(self, what, title)

    def _repr_html_(self) -> str:
        return room().html(self)
