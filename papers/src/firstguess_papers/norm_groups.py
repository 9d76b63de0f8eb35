"""NORM §2, footnote: InstanceNorm and GroupNorm as "trivial extensions" of LayerNorm, before and after ReLU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from firstguess_papers.items import Entry, Outcome, item
from firstguess_papers.judging import Number, Truth, above, all_of, below, entry, same, stated
from firstguess_papers.running import Run
from firstguess_papers.sweeps import EVEN, deep, failing, gammas, line, measured, predicted
from firstguess_papers.tables import columns

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
        f"hidden γ before ReLU, first → last: InstanceNorm {own[0]} → {own[-1]}, LayerNorm "
        f"{layer[0]} → {layer[-1]}, BatchNorm {batch[0]} → {batch[-1]}; InstanceNorm "
        f"after {found[INSTANCE, 'after'][-1]}",
        [
            _even(found[INSTANCE, "after"]),
            above(layer[-1], layer[0]),
            same(own[-1], layer[-1], room=0.02 + 0.15 * layer[-1].value),
        ],
        headline=f"before ReLU: InstanceNorm {own[-1]}, LayerNorm {layer[-1]}, BatchNorm {batch[-1]}",
        otherwise=stated(
            all_of([below(own[-1], layer[-1]),
                    same(own[-1], batch[-1], room=0.02 + 0.15 * batch[-1].value)]),
            "before the activation it takes each channel's own center off, as BatchNorm does, and not as "
            "LayerNorm",
            "before the activation it is not as LayerNorm",
        ),
    )  # fmt: skip


@item(
    "norm/groups",
    "GroupNorm and InstanceNorm: LayerNorm again?",
    claims=("N17",),
    where="NORM §2, footnote",
    about="ReLU, Kaiming. GroupNorm with groups of 2, 4, 8, 32 and LayerNorm, before and after: 6 hidden layers of "
    "{width}, blobs in {d} dimensions, {n} points, {inits} networks of ten outputs. InstanceNorm, LayerNorm, "
    "BatchNorm: 4 convolutional layers of {channels} channels on {images} images of {side}×{side} independent pixels, "
    "{many} networks. Sizes are ours.",
    quick=dict(width=192, d=200, n=300, inits=80, side=8, images=60, channels=32, many=60),
    full=dict(width=512, d=500, n=500, inits=200, side=12, images=100, channels=64, many=80),
    seconds=(12, 100),
)
def groups(run: Run) -> Outcome:
    """N17: γ by depth for groups of every width, and for InstanceNorm on images."""
    import numpy as np

    import firstguess as fg
    from firstguess import figures
    from firstguess_papers.library import Series

    width, d, n, inits = run.take("width d n inits")
    side, images, channels, many = run.take("side images channels many")
    x = fg.data.blob(n, d, seed=run.seed)
    found: dict[tuple[str, str], list[Number]] = {}
    at = list(range(1, DEPTH + 1))
    panels: dict[str, list[Series]] = {}
    for place in ("before", "after"):
        heading = f"Norm {place} ReLU"
        panels[heading] = []
        for name, norm in GROUPS.items():
            text = deep(block(norm, place), DEPTH + 1)
            m = run.measure(text, x, inits=inits, width=width, classes=10, probe="weights", label=f"{name} {place}")
            found[name, place] = gammas(m)
            theory = fg.predict(text).gamma[1:-1].tolist()
            panels[heading] += [predicted(name, at, theory), measured(name, at, found[name, place])]
    rng = np.random.default_rng([run.seed, 17])
    pictures = fg.data.as_data(rng.standard_normal((images, 3, side, side), dtype=np.float32))
    seen: dict[tuple[str, str], list[Number]] = {}
    conv_layers = 4
    for place in ("before", "after"):
        for name, norm in IMAGE.items():
            conv = "conv(weight_var=2, kernel=3, padding=1)"
            text = f"{conv_layers} x [{conv} > {block(norm, place)}] > dense(weight_var=2)"
            m = run.measure(text, pictures, inits=many, width=channels, classes=10, probe="weights",
                            label=f"{name} {place}, images")  # fmt: skip
            seen[name, place] = gammas(m)
    entries = [judge_groups(found), judge_instance(seen)]
    grows = entries[0].verdict
    first = found["groups of 2", "before"][0], found[LAYER, "before"][0]
    grouped = figures.lines_chart(
        panels,
        title=stated(
            grows in ("holds", "holds with a limit"),
            "GroupNorm behaves as LayerNorm: even after ReLU, growing before"
            + (f"; groups of 2 start at γ = {first[0].value:.2f}, not {first[1].value:.2f}"
               if grows == "holds with a limit" else ""),
            "GroupNorm by the width of its groups: not as LayerNorm in all",
        ),
        subtitle=[f"Drift ratio γ by depth, layers of {width}, random data. Points: measured ± 2 standard errors; "
                  "lines: closed form."],
        x_title="Hidden layers", y_title="Drift ratio γ", x_domain=(0.7, 5.3), dodge=True, columns=2, width=400,
    )  # fmt: skip
    behind = list(range(1, conv_layers))  # a node is a channel at a position; the output would see all of them
    like = entries[1].verdict
    on_images = figures.lines_chart(
        {f"Norm {place} ReLU": [measured(name, behind, seen[name, place]) for name in IMAGE]
         for place in ("before", "after")},
        title=stated(
            like == "holds",
            "InstanceNorm on images is as LayerNorm",
            f"InstanceNorm before ReLU: γ {seen[INSTANCE, 'before'][-1].value:.2f} behind {conv_layers - 1} layers, "
            f"where LayerNorm has {seen[LAYER, 'before'][-1].value:.2f} and BatchNorm "
            f"{seen[BATCH, 'before'][-1].value:.2f}",
        ),
        subtitle=[f"Drift ratio γ of hidden nodes (a channel at a position), {channels} channels, {images} images of "
                  f"{side}×{side} independent pixels; ± 2 standard errors."],
        x_title="Convolutional layers", y_title="Drift ratio γ", x_domain=(0.8, 3.2), dodge=True, columns=2, width=400,
    )  # fmt: skip
    rows = [line(name, g, place=place, depth=k, data=data) for data, part in (("blob", found), ("images", seen))
            for (name, place), values in part.items() for k, g in enumerate(values, start=1)]  # fmt: skip
    return Outcome(entries, {"groups": columns(rows)}, {"groups": grouped, "images": on_images})
