"""NORM App. D, IGB App. B: nodes are Gaussian under Lindeberg-type conditions. Skewness and kurtosis by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import firstguess as fg
from firstguess_papers.charts import lines
from firstguess_papers.items import Entry, Holds
from firstguess_papers.judging import Number, Truth, above, all_of, below, entry
from firstguess_papers.library import SKEWED, TAILED
from firstguess_papers.measured import Cell, measured
from firstguess_papers.running import Run
from firstguess_papers.sweeps import deep, failing

if TYPE_CHECKING:
    from firstguess import Measurement

BLOB, DIGITS, CLUSTERS, SPARSE = "random data", "digits", "two clusters", "one pixel in twenty"
DATA = (BLOB, DIGITS, CLUSTERS, SPARSE)
DEPTH = 5


@dataclass(frozen=True)
class Shape:
    """Skewness (root mean square over nodes) and excess kurtosis over the data, of the pre-activations of a layer."""

    skewness: Number
    kurtosis: Number

    @property
    def gaussian(self) -> Truth:
        """Below the sizes from which 2 % of the data are at stake, on both sides."""
        size = Number(abs(self.kurtosis.value), self.kurtosis.error)
        return all_of([below(self.skewness, SKEWED), below(size, TAILED)])


Found = Mapping[tuple[str, int], Sequence[Shape]]  # (data, width) -> layer by layer


def shapes(m: Measurement) -> list[Shape]:
    """Of the layers with weights, without the output (its few nodes)."""
    return [Shape(Number(s.skewness, s.skewness_se), Number(s.kurtosis, s.kurtosis_se)) for s in m.shapes[:-1]]


def judge(found: Found) -> list[Entry]:
    """N19: Gaussian where the theorem's conditions are met, more so with width; and where it fails."""
    widths = sorted({width for _, width in found})
    narrow, wide = widths[0], widths[-1]
    layers: dict[str, Truth] = {f"layer {k}": shape.gaussian for k, shape in enumerate(found[BLOB, wide], start=1)}
    falls = above(found[BLOB, narrow][-1].kurtosis, found[BLOB, wide][-1].kurtosis)
    others: dict[str, Truth] = {name: all_of(s.gaussian for s in found[name, wide]) for name in DATA if name != BLOB}

    def said(name: str, width: int) -> str:
        first, last = found[name, width][0], found[name, width][-1]
        return (f"{name}, width {width}: skewness {first.skewness} → {last.skewness}, kurtosis {first.kurtosis} → "
                f"{last.kurtosis}")  # fmt: skip

    return [
        entry(
            "N19",
            f"ReLU, random data: at width {wide} skewness below {SKEWED:g} and excess kurtosis below {TAILED:g} in "
            f"every of {DEPTH} layers, and the deepest layer's kurtosis falls from width {narrow} to {wide}; without a "
            "limit the same on digits, on two clusters and on sparse inputs",
            f"first → last layer: {said(BLOB, narrow)}; {said(BLOB, wide)}; "
            + "; ".join(said(name, wide) for name in others),
            [*layers.values(), falls],
            within=others.values(),
            headline=f"kurtosis in layer {DEPTH}: {found[BLOB, narrow][-1].kurtosis} at width {narrow}, "
            f"{found[BLOB, wide][-1].kurtosis} at {wide}",
            limit=f"not on every data: {failing(others)}",
            otherwise=f"not even on random data: {failing(layers)}"
            + (", and kurtosis does not fall with width" if falls is False else ""),
        ),
        entry(
            "N19",
            "where it fails on data, width is no cure: on two clusters and on sparse inputs the first layer's excess "
            f"kurtosis is the same size at width {narrow} and {wide}, beyond {TAILED / 2:g} on either side",
            "; ".join(f"{name}: {found[name, narrow][0].kurtosis}, {found[name, wide][0].kurtosis}"
                      for name in (CLUSTERS, SPARSE)),
            [above(Number(abs(k.value), k.error), TAILED / 2)
             for name in (CLUSTERS, SPARSE) for w in (narrow, wide) for k in [found[name, w][0].kurtosis]],
            headline=f"sparse inputs, width {wide}: kurtosis {found[SPARSE, wide][0].kurtosis}",
            otherwise="there the first layer is Gaussian enough",
        ),
    ]  # fmt: skip


def _data(run: Run, n: int, d: int) -> dict[str, Any]:
    rng = np.random.default_rng([run.seed, 19])
    x = rng.standard_normal((n, d), dtype=np.float32)
    side = np.where(rng.random(n) < 0.5, -2.0, 2.0).astype(np.float32)  # 2 spreads from the middle in every coordinate
    one = x * (rng.random((n, d)) < 0.05)
    return {
        BLOB: fg.data.as_data(x),
        DIGITS: fg.data.as_data(run.data("digits", points=n).flat()),
        CLUSTERS: fg.data.as_data(x + side[:, None]),
        SPARSE: fg.data.as_data((one * np.sqrt(20.0)).astype(np.float32)),
    }


gaussian = measured(
    "norm/gaussian", "Where pre-activations are Gaussian, and where not", "NORM App. D; IGB App. B", claims=("N19",),
    needs=("digits",), seconds=(12, 100),
    about="ReLU, 5 hidden layers of {widths} (our sizes), Kaiming; random data in 100 dimensions, digits, two clusters "
    "4 spreads apart in every coordinate, inputs with one pixel in twenty; {n} points; {inits} networks each.",
    quick=dict(n=400, widths=(20, 80, 320), inits=40),
    full=dict(n=1000, widths=(20, 80, 320, 800), inits=80),
    measure={"classes": 2, "moments": 4, "probe": "weights"},
    cells=lambda c: {
        (name, width): Cell(deep("relu", DEPTH), x, {"width": width})
        for name, x in _data(c.run, c.n, 100).items() for width in c.widths
    },
    quantities=lambda c: {"found": {key: shapes(m) for key, m in c.cells.items()}},
    judge=lambda c: judge(c.found),
    table="",
    tables=lambda c: {"shapes": [
        {"data": name, "width": width, "layer": k, **vars(shape)}
        for (name, width), layers in c.found.items() for k, shape in enumerate(layers, start=1)
    ]},
    charts=lambda c: {"shapes": lines(
        [{"panel": panel, "name": name, "layer": k, "value": shape.kurtosis}
         for panel, keys in (
             ("Random data, by width", {f"width {w}": (BLOB, w) for w in c.widths}),
             (f"Width {c.widths[-1]}, by data", {name: (name, c.widths[-1]) for name in DATA}),
         )
         for name, key in keys.items() for k, shape in enumerate(c.found[key], start=1)],
        "layer", panel="panel", y_title="Excess kurtosis over the data",
        rules={"Gaussian": 0.0, "not Gaussian above": TAILED, "nor below": -TAILED},
    )},
    holds={"shapes": Holds("Wide networks have Gaussian nodes in every layer on random data", entries=(0,))},
)  # fmt: skip
