"""NORM §2, footnote: InstanceNorm and GroupNorm as "trivial extensions" of LayerNorm, before and after ReLU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import firstguess as fg
from firstguess_papers.charts import lines
from firstguess_papers.items import Entry, Holds
from firstguess_papers.judging import Number, Truth, above, all_of, below, entry, same, stated
from firstguess_papers.measured import Cell, measured
from firstguess_papers.measured import Found as Result
from firstguess_papers.sweeps import EVEN, deep, failing, gammas, layer_lines

EACH = (2, 4, 8, 32)
LAYER = "LayerNorm"
DEPTH = 5
GROUPS = {LAYER: "layernorm"} | {f"groups of {k}": f"groupnorm(each={k})" for k in EACH}
INSTANCE, BATCH = "InstanceNorm", "BatchNorm"
IMAGE = {LAYER: "layernorm", INSTANCE: "instancenorm", BATCH: "batchnorm"}
Found = Mapping[tuple[str, str], Sequence[Number]]  # (norm, "before" or "after") -> γ behind 1, 2, … layers


def block(norm: str, place: str) -> str:
    """The norm before or after ReLU."""
    return f"{norm} > relu" if place == "before" else f"relu > {norm}"


def _even(values: Sequence[Number]) -> Truth:
    return all_of(same(g, 0.0, room=EVEN) for g in values)


def judge_groups(found: Found) -> Entry:
    """N17, GroupNorm: before as LayerNorm, growing; after none, for groups of any width."""
    names = list(GROUPS)[1:]
    layer = found[LAYER, "before"]
    core: dict[str, Truth] = {f"{name} after": _even(found[name, "after"]) for name in names}
    core |= {f"{name} before": above(found[name, "before"][-1], found[name, "before"][0]) for name in names}
    alike: dict[str, Truth] = {
        name: all_of(same(g, t, room=0.02 + 0.1 * t.value) for g, t in zip(found[name, "before"], layer, strict=True))
        for name in names
    }
    said = "; ".join(f"{name} {found[name, 'before'][0]} → {found[name, 'before'][-1]}, after "
                     f"{found[name, 'after'][-1]}" for name in GROUPS)  # fmt: skip
    return entry(
        "N17",
        f"GroupNorm with groups of 2, 4, 8, 32 nodes: even after ReLU (γ within {EVEN} of 0 at every depth); before it "
        f"γ grows from 1 to {DEPTH} layers, as with LayerNorm; without a limit it is LayerNorm's within 10 % + 0.02 at "
        "every depth",
        f"γ before, 1 → {DEPTH} layers: {said}",
        core.values(),
        within=alike.values(),
        headline=f"groups of 2 before ReLU, one layer: γ {found['groups of 2', 'before'][0]}, LayerNorm {layer[0]}",
        limit=f"narrow groups before ReLU have a law of their own: {failing(alike)}",
        otherwise=f"not as LayerNorm: {failing(core)}",
    )


def judge_instance(found: Found) -> Entry:
    """N17, InstanceNorm on images: after none; before, does it grow as LayerNorm's or stay as BatchNorm's?"""
    own, layer, batch = (found[name, "before"] for name in (INSTANCE, LAYER, BATCH))
    return entry(
        "N17",
        f"InstanceNorm in convolutional networks: even after ReLU (γ within {EVEN} of 0 at every depth); before it the "
        "hidden γ grows with depth as LayerNorm's does (within 15 % + 0.02 of it at the last hidden layer)",
        f"hidden γ before ReLU, first → last: InstanceNorm {own[0]} → {own[-1]}, LayerNorm {layer[0]} → {layer[-1]}, "
        f"BatchNorm {batch[0]} → {batch[-1]}; InstanceNorm after {found[INSTANCE, 'after'][-1]}",
        [
            _even(found[INSTANCE, "after"]),
            above(layer[-1], layer[0]),
            same(own[-1], layer[-1], room=0.02 + 0.15 * layer[-1].value),
        ],
        headline=f"before ReLU: InstanceNorm {own[-1]}, LayerNorm {layer[-1]}, BatchNorm {batch[-1]}",
        otherwise=stated(
            all_of([below(own[-1], layer[-1]),
                    same(own[-1], batch[-1], room=0.02 + 0.15 * batch[-1].value)]),
            "before the activation it takes each channel's own center off, as BatchNorm does, and not as LayerNorm",
            "before the activation it is not as LayerNorm",
        ),
    )  # fmt: skip


DENSE = {(name, place): deep(block(norm, place), DEPTH + 1)
         for place in ("before", "after") for name, norm in GROUPS.items()}  # fmt: skip
CONV = "4 x [conv(weight_var=2, kernel=3, padding=1) > {}] > dense(weight_var=2)"
IMAGES = {(name, place): CONV.format(block(norm, place))
          for place in ("before", "after") for name, norm in IMAGE.items()}  # fmt: skip


def _cells(c: Result) -> dict[Any, Cell]:
    shape = (c.images, 3, c.side, c.side)
    pictures = np.random.default_rng([c.run.seed, 17]).standard_normal(shape, dtype=np.float32)
    return {key: Cell(text, c.blob(c.n, c.d)) for key, text in DENSE.items()} | {
        (*key, "images"): Cell(text, fg.data.as_data(pictures), {"inits": c.many, "width": c.channels})
        for key, text in IMAGES.items()
    }


groups = measured(
    "norm/groups", "GroupNorm and InstanceNorm: LayerNorm again?", "NORM §2, footnote", claims=("N17",),
    about="ReLU, Kaiming. GroupNorm with groups of 2, 4, 8, 32 and LayerNorm, before and after: 6 hidden layers of "
    "{width}, blobs in {d} dimensions, {n} points, {inits} networks of ten outputs. InstanceNorm, LayerNorm, "
    "BatchNorm: 4 convolutional layers of {channels} channels on {images} images of {side}×{side} independent pixels, "
    "{many} networks. Sizes are ours.",
    quick=dict(width=192, d=200, n=300, inits=80, side=8, images=60, channels=32, many=60),
    full=dict(width=512, d=500, n=500, inits=200, side=12, images=100, channels=64, many=80),
    seconds=(12, 100),
    measure={"classes": 10, "probe": "weights"},
    cells=_cells,
    quantities=lambda c: {
        "found": {key: gammas(c[key]) for key in DENSE},
        "theory": {key: fg.predict(text).gamma[1:-1] for key, text in DENSE.items()},
        "seen": {key: gammas(c[(*key, "images")]) for key in IMAGES},
    },
    judge=lambda c: [judge_groups(c.found), judge_instance(c.seen)],
    table="",
    tables=lambda c: {"groups": [
        {"data": data, **row} for data, part in (("blob", c.found), ("images", c.seen))
        for row in layer_lines(part, ["name", "place"])
    ]},
    charts=lambda c: {
        "groups": lines(
            layer_lines(c.found, ["name", "place"], c.theory), "depth", panel="place",
            title="GroupNorm before and after ReLU, by the width of its groups",
        ),
        "images": lines(
            layer_lines(c.seen, ["name", "place"]), "depth", panel="place", x_title="Convolutional layers",
            title="InstanceNorm before and after ReLU on images, beside LayerNorm and BatchNorm",
        ),
    },
    holds={
        "groups": Holds("GroupNorm behaves as LayerNorm: even after ReLU, growing before", entries=(0,)),
        "images": Holds("InstanceNorm on images is as LayerNorm", entries=(1,)),
    },
)  # fmt: skip
