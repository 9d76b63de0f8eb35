"""NORM: ResNets, Swins and Mixers, norms before and after: guesses (Fig G.9), and training (Figs 5, G.10, G.11).

Trained are stand-ins: the depth of a ResNet34 and the shape of a Mixer, at smaller widths, on fewer images. So each
conclusion is drawn twice more: with layers twice as wide, and after half of the training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

import firstguess as fg
from firstguess import EmpiricalGuesses
from firstguess.data import Data
from firstguess_papers import library
from firstguess_papers.charts import arms_chart, dots, gamma, largest, lines, lines_of, ratio, row, rows_chart
from firstguess_papers.image_models import Init, Model, Place, ResNet, Swin
from firstguess_papers.items import Entry, Holds, Item
from firstguess_papers.judging import Check, Number, above, all_of, average, check, claimed, each
from firstguess_papers.measured import Found, Training
from firstguess_papers.training_pieces import Arm, curve_rows, paired, sooner

if TYPE_CHECKING:
    from torch import Tensor

SHIFTS = (0.0, 2.0, 4.0, 6.0)
KAIMING, OWN = "Kaiming", "the library's own"
STAND_INS = (
    "Stand-ins: bottleneck ResNets of 26 and 50 layers at an eighth and less of the usual widths, Swins of 5 and 10 "
    "blocks of width 16; 24 networks each, Kaiming; the smaller Swin also with the library's own initialization"
)
TRUE_SIZE = (
    "ResNet101 (24 networks) and Swin-L (16) at their true size, Kaiming, and 10 Swin-L with the library's own "
    "initialization, on images enlarged to 64 × 64 (bilinear)"
)
SWAPPED: Place = "after"
EVERYWHERE: Place = "after, also behind the sums"
CLASSES = 200  # as many as Tiny ImageNet has
PLACES: dict[str, tuple[Place, ...]] = {"ResNet": ("before", SWAPPED, EVERYWHERE), "Swin": ("before", SWAPPED)}
SIDE = 64
_CHUNK = 50  # images at once where no batch is needed: less memory


def _measure(c: Found, model: Model, place: Place, data: Data, label: str, **options: Any) -> fg.Measurement:
    with library.torch_threads(1):  # models this small gain nothing from more, and lose where other work is going on
        return c.run.measure(
            model.factory(place), data, name=model.name(place), probe="output", label=label, strategy="loop", **options
        )


def _change(moved: EmpiricalGuesses, before: EmpiricalGuesses) -> Number:
    """How much the largest fraction changes; members share their weights, so the difference is taken one by one."""
    return average(moved.largest - before.largest)


def _arm(how: str, kind: str, label: str, place: Place, law: EmpiricalGuesses, found: Number) -> dict[str, Any]:
    """Networks of one kind with their norms at one place: guess fractions, and γ of the output."""
    return {
        "how": how, "kind": kind, "label": label, "place": place, "guesses": law, "gamma": found,
        "name": f"{label.replace(',', '')} norm {place.replace(',', '')}, {how}",
        "largest": Number(law.expected_max(), law.standard_error("expected_max")),
    }  # fmt: skip


def _stand_ins(c: Found, x: Data) -> list[dict[str, Any]]:
    """Quick: both sizes with Kaiming, the smaller ones also as the library initializes them."""
    models = [
        Model("ResNet", "ResNet, 26 layers", (16, 32, 64, 128), (2, 2, 2, 2), CLASSES),
        Model("ResNet", "ResNet, 50 layers", (16, 32, 64, 128), (3, 4, 6, 3), CLASSES),
        Model("Swin", "Swin, 5 blocks", (16,), (1, 1, 3), CLASSES),
        Model("Swin", "Swin, 10 blocks", (16,), (2, 2, 6), CLASSES),
    ]
    found: list[dict[str, Any]] = []
    for how, init, chosen in ((KAIMING, "kaiming_normal", models), (OWN, None, models[2:3])):
        for model in chosen:
            for place in PLACES[model.kind]:
                m = _measure(c, model, place, x, f"{model.label}, norm {place}, {how}", inits=24, init=init)
                found.append(_arm(how, model.kind, model.label, place, m.guesses, gamma(m)))
    return found


def _true_sizes(c: Found, data: Data) -> list[dict[str, Any]]:
    """ResNet101 with Kaiming, Swin-L with Kaiming and with the library's own initialization; all places each."""
    swin = Swin(side=SIDE, classes=CLASSES)
    plan: list[tuple[Init, str, str, ResNet | Swin, int]] = [
        ("Kaiming", "ResNet", "ResNet101", ResNet(classes=CLASSES), 24),
        ("Kaiming", "Swin", "Swin-L", swin, 16),
        ("the library's own", "Swin", "Swin-L", swin, 10),
    ]
    found: list[dict[str, Any]] = []
    for how, kind, label, net, many in plan:
        given: dict[str, Any] = {"net": net, "data": data, "places": PLACES[kind], "init": how}
        pieces = [
            c.run.keep(
                _enlarged, label=f"{label}, {how}, network {k + 1} of {many}", seed=1000 * c.run.seed + k, **given
            )
            for k in range(many)
        ]
        for index, place in enumerate(PLACES[kind]):
            fractions, center, spread = (
                np.stack([np.asarray(p[name])[index] for p in pieces]) for name in ("fractions", "center", "spread")
            )
            law = EmpiricalGuesses(fractions, data.n, c.run.seed)
            found.append(_arm(how, kind, label, place, law, ratio(center, spread)))
    return found


def _enlarged(data: Data, **given: Any) -> dict[str, Any]:
    import torch

    x = torch.tensor(data.x)
    x = torch.nn.functional.interpolate(x, size=(SIDE, SIDE), mode="bilinear", align_corners=False)
    return measure_places(x=x, **given)


def measure_places(net: ResNet | Swin, x: Tensor, places: Sequence[Place], init: Init, seed: int) -> dict[str, Any]:
    """One network, drawn, measured at all places and dropped: guess fractions, center and spread of its outputs.

    theory.md §1: variance of the nodes' means (without what finite data add), average variance over data.
    """
    import torch

    found: dict[str, list[Any]] = {"fractions": [], "center": [], "spread": []}
    with library.torch_threads(1), torch.inference_mode():
        weights = net.draw(init, seed)
        parts = (x,) if net.whole_batch else x.split(_CHUNK)  # BatchNorm sees one batch
        for place in places:
            u = torch.cat([net.logits(part, weights, place) for part in parts]).double().numpy()
            n, classes = u.shape
            found["fractions"].append(np.bincount(u.argmax(axis=1), minlength=classes) / n)
            found["spread"].append(float(u.var(axis=0, ddof=1).mean()))
            found["center"].append(float(u.mean(axis=0).var(ddof=1)) - found["spread"][-1] / n)
    return {key: np.stack(values) for key, values in found.items()}


def _moved(c: Found) -> dict[str, Any]:
    """Stand-ins or true sizes, and by how much the largest fraction changes with the norm's place."""
    x = c.run.data("cifar10", points=c.n)
    arms = _true_sizes(c, x) if c.models == TRUE_SIZE else _stand_ins(c, x)
    before = {(a["how"], a["label"]): a["guesses"] for a in arms if a["place"] == "before"}
    changes = {(a["kind"], a["place"], a["how"], a["name"]): _change(a["guesses"], before[a["how"], a["label"]])
               for a in arms if a["place"] != "before"}  # fmt: skip

    def pick(*wanted: tuple[str, str, str]) -> dict[str, Number]:
        return {key[3]: change for one in wanted for key, change in changes.items() if key[:3] == one}

    said = "; ".join(f"{a['label']}, {a['place']}: {changes[a['kind'], a['place'], a['how'], a['name']]}"
                     for a in arms if a["place"] != "before" and a["how"] == KAIMING)  # fmt: skip
    return {
        "members": arms, "said": said, "whole": pick(("ResNet", EVERYWHERE, KAIMING), ("Swin", SWAPPED, KAIMING)),
        "more": pick(("ResNet", SWAPPED, KAIMING), ("Swin", SWAPPED, OWN)),
        "which": "ResNet101 and Swin-L" if c.models == TRUE_SIZE else "stand-ins",
    }  # fmt: skip


fig_g9 = Item(
    "norm/fig-g9", "Moving the norms of a ResNet101 and a Swin-L after the activations", "NORM Fig G.9, App. G.3",
    claims=("N10",), needs=("cifar10",), packages=("transformers",), version=2, seconds=(17, 1100),
    about="{models}; 200 outputs, {n} CIFAR-10 images, one batch.",
    quick=dict(models=STAND_INS, n=64),
    full=dict(models=TRUE_SIZE, n=200),
    quantities=_moved,
    judge=lambda c: [  # which of NORM's two sentences is right
        claimed(
            "N10", f"“raises”: change of the average largest fraction with the norm after, {c.which}",
            each(c.whole | c.more, above=0.0), headline=f"change of the largest fraction: {c.said}",
            otherwise="App. G.3 says two paragraphs later that bias is reduced (next line); not higher",
        ),
        claimed(
            "N10", f"“reduces”: the same, {c.which}: in ResNets with norms also behind the sums and in Swins, Kaiming; "
            "without a limit also in ResNets with plain pairs turned and in Swins as the library initializes them",
            each(c.whole, below=0.0), within=each(c.more, below=0.0),
            limit="the ReLU after each sum brings the mean back, small weights leave a Swin as it is; not lower",
            also="γ of the output: "
            + "; ".join(f"{a['name']} {a['gamma'].value:.2f} ± {a['gamma'].error:.2f}" for a in c.members),
        ),
    ],
    tables=lambda c: {"largest": [
        {"name": a["label"], "init": a["how"], "norm": a["place"], "inits": a["guesses"].inits,
         "points": a["guesses"].points, "classes": a["guesses"].classes, "largest": a["largest"], "gamma": a["gamma"]}
        for a in c.members
    ]},
    charts=lambda c: {"largest": dots(
        [a | {"place": f"norm {a['place']}", "panel": "Kaiming initialization" if a["how"] == KAIMING else
              "Initialized as the library does"} for a in c.members],
        "label", "largest", by="place", panel="panel", title="The largest guess fraction by the place of the norms",
        x_title=f"Average largest of {CLASSES} guess fractions", percent=True, width=440,
    )},
    holds={"largest": Holds("Norms after the activation lower the largest guess fraction", entries=(1,))},
    notes=[
        "After, ResNet: conv → ReLU → BatchNorm in the stem and in the first two convolutions of a block. Also "
        "behind the sums: the norms of a block's last convolution and of its shortcut are replaced by one after "
        "the ReLU of their sum.",
        "After, Swin: the LayerNorm before each MLP goes after its GELU; the one before attention stays.",
        "Tiny ImageNet is not here: CIFAR-10 images and a head of 200. The library's own initialization of a "
        "ResNet is Kaiming's, by fan-out; of a Swin, normal weights with a deviation of 0.02.",
    ],
)  # fmt: skip


MIXER, BY_BATCH = "Mixer, LayerNorm before", "ResNet, BatchNorm by batch"
BY_RUNNING = "ResNet, BatchNorm by running statistics"


def _shifted(c: Found) -> dict[str, Any]:
    """The largest fraction by shift, for BatchNorm (by batch and by running statistics) and LayerNorm."""
    resnet = Model("ResNet", "ResNet", c.known["widths"], c.blocks, 10, "basic")
    mixer = Model("Mixer", "Mixer", (c.mixer,), (c.depth,), 10)
    cases: dict[str, tuple[Model, Place, str, int]] = {
        MIXER: (mixer, "before", "train", c.many),
        "Mixer, LayerNorm after": (mixer, SWAPPED, "train", c.few),
        BY_BATCH: (resnet, "before", "train", c.few),
        BY_RUNNING: (resnet, "before", "eval", c.many),
    }
    found = {
        name: [_measure(c, model, place, c.run.data("cifar10", points=c.n, shift=by), f"{name}, shift {by:g}",
                        inits=inits, init="kaiming_normal", mode=mode) for by in SHIFTS]
        for name, (model, place, mode, inits) in cases.items()
    }  # fmt: skip
    rise = {name: _change(ms[-1].guesses, ms[0].guesses) for name, ms in found.items()}
    return {"found": found, "rise": rise, "steps": [_change(b.guesses, a.guesses) for a, b in pairwise(found[MIXER])]}


shift = Item(
    "norm/shift", "A constant added to all pixels as a knob for the bias", "NORM App. G.3", claims=("N11",),
    needs=("cifar10",), packages=("transformers",), seconds=(15, 90),
    about="CIFAR-10 images, standardized, + 0, 2, 4, 6. Stand-ins: ResNet with {blocks} basic blocks of widths "
    "{widths}, and MLP-Mixer of {depth} blocks of width {mixer} (ours); Kaiming, 10 outputs; {n} images, one batch; "
    "{many} networks each ({few} for LayerNorm after and BatchNorm by batch).",
    quick=dict(n=64, many=48, few=16, widths=(8, 16, 32, 64), blocks=(2, 2, 2, 2), mixer=32, depth=4),
    full=dict(n=128, many=60, few=30, widths=(16, 32, 64, 128), blocks=(3, 4, 6, 3), mixer=64, depth=8),
    quantities=_shifted,
    judge=lambda c: [
        claimed(
            "N11", "change of the average largest fraction from shift 0 to 6",
            [check(MIXER, c.rise[MIXER], above=0.1),
             Check(f"{MIXER}, by step", "not falling",  # only a clear breach should fail
                   all_of(above(step, -0.02) is not False for step in c.steps), ", ".join(map(str, c.steps)))],
            within=[check(BY_BATCH, c.rise[BY_BATCH], above=0.1)],
            limit="BatchNorm in train mode subtracts the shift at the first layer, but for the image's border",
            also="; ".join(f"{name}: {' → '.join(str(largest(m)) for m in ms)}" for name, ms in c.found.items()),
        ),
        claimed(
            "N11", "beyond the paper: the same in eval mode before training, where running statistics are 0 and 1",
            [check(BY_RUNNING, c.rise[BY_RUNNING], above=0.0)],
        ),
    ],
    tables=lambda c: {"largest": [
        row(name, m, shift=by) for name, ms in c.found.items() for by, m in zip(SHIFTS, ms, strict=True)
    ]},
    charts=lambda c: {"largest": lines(
        c.tables["largest"], "shift", "largest", title="Largest fraction by a constant added to all pixels",
        x_title="Constant added to all standardized pixels", y_title="Average largest of ten fractions", percent=True,
        x_domain=(-0.3, 6.3), y_domain=(0.0, 1.05), rules={"an even split": 0.1}, dodge=False, width=760, height=360,
    )},
    holds={"largest": Holds("Shifted pixels dial bias up, unless BatchNorm takes the shift out of every batch",
                            entries=(0,), verdicts=("holds with a limit",))},
    notes=["Mixer, norm after: the LayerNorms before its MLPs go after their GELUs."],
)  # fmt: skip


BEFORE, AFTER = "norm before", "norm after"
ABSORBED = 0.28  # largest of ten shares at which the bias counts as absorbed: a fifth of the way from 0.1 to 1
LEAST = 1.0  # step: less is no difference; stated before sampling goes on
LEARNT = 0.2  # accuracy that is more than chance, twice
_LOOKS = 10  # about so many, besides half of the training and its end
Arms = Mapping[str, Arm]  # by place of the norm: one model, data shifted by a constant


def _gain(arms: Arms, place: str, what: str = "accuracy") -> Number:
    """By how much a place ends ahead of "before", network by network: members share weights and order of data."""
    return paired(arms[place], arms[BEFORE], what, arms[BEFORE].last)


def _ahead(arms: Arms, place: str, part: float = 1.0) -> Number:
    """The same averaged over the looks from step 1 on, which are even on a logarithmic axis; to a part of the training.

    At the end says little of speed: two networks that both know all their images by then are alike there.
    """
    one, other = (arms[which].curve("accuracy") for which in (place, BEFORE))
    mask = (one.steps >= 1) & (one.steps <= arms[BEFORE].near(part * arms[BEFORE].last))
    return arms[place].number((one.draws - other.draws)[:, mask].mean(axis=1))


def _sooner(arms: Arms, place: str) -> Number:
    """By how many steps sooner the largest share is at `ABSORBED` than with the norm before; the end counts.

    Networks that get there at neither place say nothing.
    """
    return arms[place].number(sooner(arms[BEFORE], arms[place], ABSORBED))


def _learnt(arms: Arms, what: str, *places: str) -> bool:
    return any(above(arms[place].at(what, arms[place].last), LEARNT) is True for place in places)


def looks(steps: int) -> list[int]:
    """Which steps are looked at: few, because a look costs as much as several steps."""
    spread = np.rint(np.geomspace(1, steps, _LOOKS)).astype(int).tolist()
    return sorted({0, *spread, steps // 2, steps})


def _cells(c: Found, models: list[tuple[Model, float]], places: dict[str, Place]) -> dict[Any, Training]:
    """Each model at all places, on images shifted by a constant."""
    adam: dict[str, Any] = {"optimizer": "adam", "lr": 1e-3, "init": "kaiming_normal", "strategy": "loop"}
    adam |= {"steps": looks(c.steps), "width": None}  # which is the model's
    found: dict[Any, Training] = {}
    for model, shift in models:
        data, test = (
            c.run.data(spec, points=c.n, shift=shift, seed=c.run.seed) for spec in ("cifar10", "cifar10:test")
        )
        for label, place in places.items():
            key = (f"{model.kind} of {model.widths[0]}, shift {shift:g}", label)
            found[key] = Training(model.factory(place), data, adam, name=f"{model.name(place)}, Kaiming", test=test)
    return found


def _settings(c: Found, models: list[tuple[Model, float]], *names: str) -> dict[str, Any]:
    """Arms by (width, shift), and the first of them by name."""
    found = {(model.widths[0], by): c.arms(f"{model.kind} of {model.widths[0]}, shift {by:g}") for model, by in models}
    return {"settings": found, **dict(zip(names, found.values(), strict=False))}


def judged(kind: str, base: Arms, wide: Arms, place: str) -> list[Entry]:
    """N15's first three parts for one model at shift 0. Every check is 4 standard errors of paired differences."""
    arms, last = f"{kind}, {place} − {BEFORE}", base[BEFORE].last
    learnt = _learnt(base, "test accuracy", BEFORE, place)
    small = "in these small stand-ins the numbers contradict it"
    return [
        claimed(
            "N15", f"{arms}: training is faster, accuracy averaged over looks (even on a logarithmic axis)",
            [check(f"up to step {last}", _ahead(base, place), above=0.0)],
            within=each({"up to half": _ahead(base, place, 0.5), "up to the end, twice as wide": _ahead(wide, place),
                         "up to half, twice as wide": _ahead(wide, place, 0.5)}, above=0.0),
            limit="not at every width and time", otherwise=small,
            also=f"at the end {_gain(base, place)} (as it is), {_gain(wide, place)} (twice as wide)",
            headline=f"{kind}, {place}: {_ahead(base, place)} of accuracy ahead on average up to step {last}",
        ),
        claimed(
            "N15", f"{arms}: steps by which the largest of ten shares is at {ABSORBED} sooner",
            [check("as it is", _sooner(base, place), above=0.0, least=LEAST)],
            within=[check("twice as wide", _sooner(wide, place), above=0.0, least=LEAST)], otherwise=small,
        ),
        claimed(
            "N15", f"{arms}: accuracy on held-out images at the end (not decided where neither has {LEARNT} of it)",
            [check("as it is", _gain(base, place, "test accuracy"), above=0.0, decided=learnt)],
            within=[check("twice as wide", _gain(wide, place, "test accuracy"), above=0.0)], otherwise=small,
            undecided="" if learnt else "no network has learnt what holds for other images",
        ),
    ]  # fmt: skip


def shifted(by_shift: Mapping[float, Arms]) -> list[Entry]:
    """N15's last part: what a shift of the data does to both places, and to the difference between them."""
    (_, none), *_, (most, moved) = by_shift.items()
    last = none[BEFORE].last
    gains = [arms[AFTER].values("accuracy", last) - arms[BEFORE].values("accuracy", last) for arms in (none, moved)]
    return [
        claimed(
            "N15", f"Mixer: accuracy after {last} steps with data shifted by {most:g} − without a shift",
            each({p: paired(moved[p], none[p], "accuracy", last) for p in (BEFORE, AFTER)}, below=0.0),
        ),
        claimed(
            "N15", f"Mixer: by how much wider the difference between the places is with data shifted by {most:g} "
            f"than with none (not decided where neither has an accuracy of {LEARNT} by then)",
            [check("after − before", none[BEFORE].number(gains[1] - gains[0]), above=0.0,
                   decided=_learnt(moved, "accuracy", BEFORE, AFTER))],
            also="; ".join(f"shift {shift:g}: {_gain(arms, AFTER)}" for shift, arms in by_shift.items()),
        ),
    ]  # fmt: skip


def _curves(c: Found) -> list[dict[str, Any]]:
    return [line for (width, shift), arms in c.settings.items() for place, arm in arms.items()
            for line in curve_rows([arm], place=place, shift=shift, width=width)]  # fmt: skip


_NOTE = "No prediction: these are modules without a description; the tangent kernel is known for dense networks."
BEHIND_SUMS = "norm after, also behind the sums"


def _resnets(c: Found) -> list[tuple[Model, float]]:
    """As it is, twice as wide, and on shifted data."""
    small, large = (
        Model("ResNet", "ResNet", tuple(width * 2**k for k in range(4)), c.blocks, 10, "basic")
        for width in (c.known["first"], 2 * c.known["first"])
    )
    return [(small, 0.0), (large, 0.0), (small, SHIFTS[-1])]


fig5 = Item(
    "norm/fig5", "A ResNet with BatchNorm before and after the activation, in training", "NORM Fig 5",
    claims=("N15",), needs=("cifar10",), packages=("transformers",), seconds=(25, 280),
    about="Stand-in: ResNet with {blocks} basic blocks, widths from {first} to 8 times that, and twice as wide "
    "(ResNet34: 64 to 512), Kaiming; {n} CIFAR-10 images (NORM: 50 000), shifted by 0 and 6; Adam 1e-3 in batches of "
    "{batch}, {steps} steps; {networks} networks each.",
    quick=dict(first=4, blocks=(1, 1, 1, 1), n=64, batch=32, steps=6, inits=10, parts=1),
    full=dict(first=8, blocks=(3, 4, 6, 3), n=512, batch=64, steps=64, inits=3, parts=4),
    cells=lambda c: _cells(c, _resnets(c), {BEFORE: "before", AFTER: "after", BEHIND_SUMS: EVERYWHERE}),
    quantities=lambda c: _settings(c, _resnets(c), "base", "wide", "moved"),
    judge=lambda c: [one for place in (AFTER, BEHIND_SUMS) for one in judged("ResNet", c.base, c.wide, place)],
    tables=lambda c: {"curves": _curves(c)},
    charts=lambda c: {"places": rows_chart(
        {"As is": (c.base, {}), f"Shifted by {SHIFTS[-1]:g}": (c.moved, {}), "Twice as wide": (c.wide, {})},
        ["accuracy", "largest", "test accuracy"],
    )},
    holds={"places": Holds("A ResNet with norms after, also behind the sums, learns faster", entries=(3,))},
    notes=lambda c: [
        f"Data shifted by {SHIFTS[-1]:g} (shown, not judged: BatchNorm takes a shift out): accuracy after − before "
        f"at the end {_gain(c.moved, AFTER)}, also behind the sums {_gain(c.moved, BEHIND_SUMS)}.",
        "After: conv → ReLU → BatchNorm wherever it was conv → BatchNorm → ReLU; the norms of a block's last "
        "convolution and of its shortcut stay, or are replaced by one after the ReLU of their sum.",
        "Held-out images are normalized by running statistics.",
        _NOTE,
    ],
)  # fmt: skip


def _mixers(c: Found) -> list[tuple[Model, float]]:
    """By shift, and twice as wide."""
    small, large = (Model("Mixer", "Mixer", (w,), (c.blocks,), 10, patch=8) for w in (c.width, 2 * c.width))
    return [*((small, shift) for shift in SHIFTS), (large, 0.0)]


fig_g10 = Item(
    "norm/fig-g10", "A Mixer with LayerNorm before and after the activation in training, on shifted data",
    "NORM Figs 5, G.10, G.11", claims=("N15",), needs=("cifar10",), seconds=(20, 200),
    about="Stand-in: MLP-Mixer of {blocks} blocks of width {width} and of twice that, patches of 8, Kaiming (all "
    "ours); {n} CIFAR-10 images (NORM: 50 000), shifted by 0, 2, 4, 6 (the wider one: 0 only); Adam 1e-3 in batches "
    "of {batch}, {steps} steps; {networks} networks each.",
    quick=dict(width=16, blocks=2, n=64, batch=32, steps=10, inits=10, parts=1),
    full=dict(width=32, blocks=4, n=256, batch=64, steps=160, inits=3, parts=4),
    cells=lambda c: _cells(c, _mixers(c), {BEFORE: "before", AFTER: "after"}),
    quantities=lambda c: _settings(c, _mixers(c)) | {
        "by_shift": {shift: c.arms(f"Mixer of {c.width}, shift {shift:g}") for shift in SHIFTS}
    },
    judge=lambda c: [*judged("Mixer", c.by_shift[0.0], c.settings[2 * c.width, 0.0], AFTER), *shifted(c.by_shift)],
    tables=lambda c: {"curves": _curves(c)},
    charts=lambda c: {"places": arms_chart(
        {f"Shift {shift:g}: {words}": lines_of(what, arms) for what, words in (
            ("accuracy", "accuracy"), ("largest", "largest share")) for shift, arms in c.by_shift.items()},
        columns=4, width=280, height=210,
    )},
    holds={"places": Holds("A Mixer with the norm after learns faster", entries=(0,))},
    notes=[
        "After: the LayerNorms before a Mixer's MLPs go after their GELUs; the one before the head stays.",
        _NOTE,
    ],
)  # fmt: skip
