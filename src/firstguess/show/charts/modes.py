"""The modes of the tangent kernel: how fast the bias relaxes, and how fast the labels are learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from firstguess.base.errors import InvalidInput
from firstguess.show.charts import theme
from firstguess.show.charts.parts import Entry, key
from firstguess.theory.prediction import Prediction
from firstguess.theory.training.runs import KernelSpectrum, spectrum

_WIDTH, _HEIGHT = 720, 420
_BIAS, _SIGNAL, _OTHER = theme.PALETTE[0], theme.PALETTE[1], "#B5B5B5"
_LEAST = 0.01  # share of a direction from which on a mode is marked
_SMALLEST = 1e-8  # of the largest eigenvalue: below is rounding
_LARGEST_DOT = 900.0


def modes_chart(
    modes: KernelSpectrum | Prediction,
    labels: NDArray[np.int64] | Sequence[int] | None = None,
    *,
    title: str | None = None,
    subtitle: Sequence[str] = (),
) -> theme.Chart:
    """Eigenvalues of Θ/n by rank: a mode's rate is η times its own. Dots are as large as the share of the bias's
    direction (common to all points) and of the labels' direction that a mode holds.

    `modes` is a kernel reading with its tangent, `fg.predict(net, data=x, tangent=True)`, beside the labels.
    """
    found = _spectrum(modes, labels)
    n = len(found.values)
    kept = np.flatnonzero(found.values > _SMALLEST * found.values[0])
    x = alt.X(
        "rank:Q",
        title="Mode of the tangent kernel, the fastest first",
        scale=alt.Scale(type="log", domain=[0.8, 1.25 * n], nice=False),
        axis=alt.Axis(values=[10**k for k in range(7) if 10**k <= n], labelExpr="format(datum.value, ',')"),
    )
    low, top = float(found.values[kept[-1]]), float(found.values[0])
    y = alt.Y(
        "value:Q",
        title="Eigenvalue λ of Θ/n",
        scale=alt.Scale(type="log", domain=[low / 1.5, top * 2.0], nice=False),
        axis=alt.Axis(
            values=[10.0**k for k in range(-12, 13) if low / 1.5 <= 10.0**k <= top * 2],
            labelExpr="format(datum.value, '~g')",
            grid=True,
        ),
    )
    layers: list[Any] = [*_rule(found.modes.bias, "λ of the bias", _BIAS, y, above=True)]
    layers += _rule(found.modes.signal, "λ of the labels", _SIGNAL, y, above=found.modes.signal > found.modes.bias)
    layers.append(_dots(found, kept, np.full(n, 0.02), _OTHER, x, y))
    for share, ink in ((found.bias, _BIAS), (found.signal, _SIGNAL)):
        layers.append(_dots(found, kept[share[kept] >= _LEAST], share, ink, x, y))
    entries = [
        Entry("the bias, common to all points", _BIAS, shape="circle"),
        Entry("the labels", _SIGNAL, shape="circle"),
        Entry("other modes", _OTHER, shape="circle"),
    ]
    chart = theme.stacked([*layers, *key(entries)], _WIDTH, _HEIGHT)
    return theme.house(chart, title or _title(found), subtitle or _subtitle(found))


def _spectrum(modes: Any, labels: Any) -> KernelSpectrum:
    if isinstance(modes, KernelSpectrum):
        return modes
    tangent = getattr(modes, "tangent", None)
    if tangent is None or labels is None:
        raise InvalidInput(
            "a kernel reading with its tangent, and labels",
            got="no tangent" if tangent is None else "no labels",
            where="modes_chart",
            hint="modes_chart(fg.predict(net, data=x, tangent=True), y)",
        )
    return spectrum(tangent, np.asarray(labels))


def _dots(found: KernelSpectrum, which: NDArray[Any], share: Any, ink: str, x: alt.X, y: alt.Y) -> alt.Chart:
    rows = [
        {"rank": int(i) + 1, "value": float(found.values[i]), "size": 24.0 + _LARGEST_DOT * float(share[i]),
         "bias": float(found.bias[i]), "signal": float(found.signal[i])}
        for i in which
    ]  # fmt: skip
    tooltip = [
        alt.Tooltip("rank:Q", title="mode"),
        alt.Tooltip("value:Q", title="λ", format=".4~g"),
        alt.Tooltip("bias:Q", title="of the bias", format=".1%"),
        alt.Tooltip("signal:Q", title="of the labels", format=".1%"),
    ]
    base = alt.Chart(theme.data(rows)).mark_point(filled=True, color=ink, opacity=0.75, stroke="white", strokeWidth=0.5)
    return base.encode(x=x, y=y, tooltip=tooltip, size=alt.Size("size:Q", scale=None, legend=None))


def _rule(value: float, name: str, ink: str, y: alt.Y, *, above: bool) -> list[Any]:
    rows = [{"value": value, "text": f"{name}: {theme.number(value)}"}]
    base = alt.Chart(theme.data(rows)).encode(y=y)
    word = base.encode(text="text:N", x=alt.value(_WIDTH - 6))
    return [
        base.mark_rule(color=ink, strokeDash=[6, 4], strokeWidth=1.5),
        *theme.halo(word, align="right", baseline="bottom" if above else "top", dy=-5 if above else 6, color=ink),
    ]


def _title(found: KernelSpectrum) -> str:
    ratio = found.modes.ratio
    if ratio >= 1.5:
        return f"The bias goes {theme.number(float(f'{ratio:.2g}'))} times as fast as the labels are learned"
    if ratio > 1 / 1.5:
        return "The bias goes about as fast as the labels are learned"
    return f"The labels are learned {theme.number(float(f'{1 / ratio:.2g}'))} times as fast as the bias goes"


def _subtitle(found: KernelSpectrum) -> list[str]:
    first = int(np.argmax(found.bias))
    held = f"{100 * found.bias[first]:.0f} % of the bias is mode {first + 1}"
    return [f"{len(found.values)} points; {held}; a dot is as large as the share of its direction in a mode"]
