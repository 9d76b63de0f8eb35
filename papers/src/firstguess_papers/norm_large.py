"""NORM: ResNets, Swins and Mixers, norms before and after: guesses (Fig G.9), and training (Figs 5, G.10, G.11).

Trained are stand-ins: the depth of a ResNet34 and the shape of a Mixer, at smaller widths, on fewer images. So each
conclusion is drawn twice more: with layers twice as wide, and after half of the training.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from firstguess import EmpiricalGuesses
from firstguess_papers.charts import arms_chart, dots, gamma, largest, lines, lines_of, ratio, row, rows_chart
from firstguess_papers.image_models import Init, Model, Place, ResNet, Swin
from firstguess_papers.items import Entry, Holds
from firstguess_papers.judging import Check, Number, above, all_of, check, claimed, each
from firstguess_papers.measured import Found, Training, measured
from firstguess_papers.mf import mean
from firstguess_papers.running import Run
from firstguess_papers.training_pieces import Arm, curve_rows, paired, sooner

if TYPE_CHECKING:
    from torch import Tensor

    from firstguess import Measurement
    from firstguess.data import Data
    from firstguess_papers.library import Chart

SHIFTS = (0.0, 2.0, 4.0, 6.0)
INITS: dict[Init, Any] = {"Kaiming": "kaiming_normal", "the library's own": None}


@contextmanager
def _one_thread() -> Generator[None]:
    """One thread inside torch: models this small gain nothing from more, and lose much where other work is going on."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _measure(run: Run, model: Model, place: Place, data: Data, label: str, **options: Any) -> Measurement:
    with _one_thread():
        return run.measure(
            model.factory(place), data, name=model.name(place), probe="output", label=label, strategy="loop", **options
        )


def _change(moved: Measurement | PlacedArm, before: Measurement | PlacedArm) -> Number:
    """How much the largest fraction changes; members share their weights, so the difference is taken one by one."""
    return mean(moved.guesses.largest - before.guesses.largest)


def _stand_ins(run: Run, x: Data, inits: int) -> list[PlacedArm]:
    """Quick: both sizes with Kaiming, the smaller ones also as the library initializes them."""
    models = [
        Model("ResNet", "ResNet, 26 layers", (16, 32, 64, 128), (2, 2, 2, 2), CLASSES),
        Model("ResNet", "ResNet, 50 layers", (16, 32, 64, 128), (3, 4, 6, 3), CLASSES),
        Model("Swin", "Swin, 5 blocks", (16,), (1, 1, 3), CLASSES),
        Model("Swin", "Swin, 10 blocks", (16,), (2, 2, 6), CLASSES),
    ]
    found: list[PlacedArm] = []
    for how, init in INITS.items():
        for model in models if how == "Kaiming" else models[2:3]:
            for place in PLACES[model.kind]:
                m = _measure(run, model, place, x, f"{model.label}, norm {place}, {how}", inits=inits, init=init)
                found.append(PlacedArm(how, model.kind, model.label, place, m.guesses, gamma(m)))
    return found


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


@dataclass(frozen=True)
class PlacedArm:
    """Networks of one kind with their norms at one place: guess fractions, and γ of the output."""

    how: Init
    kind: str
    label: str
    place: Place
    guesses: EmpiricalGuesses
    gamma: Number

    @property
    def name(self) -> str:
        """Of its checks."""
        return f"{self.label.replace(',', '')} norm {self.place.replace(',', '')}, {self.how}"

    @property
    def largest(self) -> Number:
        """The average largest fraction."""
        return Number(self.guesses.expected_max(), self.guesses.standard_error("expected_max"))

    def row(self) -> dict[str, Any]:
        """For the table of numbers."""
        about: dict[str, Any] = {"name": self.label, "init": self.how, "norm": self.place, "inits": self.guesses.inits}
        about |= {"points": self.guesses.points, "classes": self.guesses.classes}
        return about | {"largest": self.largest, "gamma": self.gamma}


def true_size_arms(run: Run, data: Data) -> list[PlacedArm]:
    """ResNet101 with Kaiming, Swin-L with Kaiming and with the library's own initialization; all places each."""
    x = enlarged(data)
    plan: list[tuple[Init, str, str, ResNet | Swin, int]] = [
        ("Kaiming", "ResNet", "ResNet101", ResNet(classes=CLASSES), 24),
        ("Kaiming", "Swin", "Swin-L", Swin(side=SIDE, classes=CLASSES), 16),
        ("the library's own", "Swin", "Swin-L", Swin(side=SIDE, classes=CLASSES), 10),
    ]
    found: list[PlacedArm] = []
    for how, kind, label, net, many in plan:
        places = PLACES[kind]
        pieces = [
            run.piece(
                {"net": label, "sizes": str(net), "init": how, "data": data.hash, "member": k},
                lambda net=net, how=how, places=places, k=k: measure_places(net, x, places, how, 1000 * run.seed + k),
                label=f"{label}, {how}, network {k + 1} of {many}",
            )
            for k in range(many)
        ]
        for index, place in enumerate(places):
            fractions, center, spread = (
                np.stack([np.asarray(p[name])[index] for p in pieces]) for name in ("fractions", "center", "spread")
            )
            law = EmpiricalGuesses(fractions, data.n, run.seed)
            found.append(PlacedArm(how, kind, label, place, law, ratio(center, spread)))
    return found


def enlarged(data: Data) -> Tensor:
    """Images at 64 × 64, bilinear."""
    import torch
    from torch.nn.functional import interpolate

    return interpolate(torch.tensor(data.x), size=(SIDE, SIDE), mode="bilinear", align_corners=False)


def measure_places(net: ResNet | Swin, x: Tensor, places: Sequence[Place], init: Init, seed: int) -> dict[str, Any]:
    """One network, drawn, measured at all places and dropped: guess fractions, center and spread of its outputs."""
    import torch

    with _one_thread(), torch.inference_mode():
        weights = net.draw(init, seed)
        parts = (x,) if net.whole_batch else x.split(_CHUNK)  # BatchNorm sees one batch
        logits = [torch.cat([net.logits(part, weights, place) for part in parts]).double().numpy() for place in places]
    read = [_reading(u) for u in logits]
    return {key: np.stack([one[key] for one in read]) for key in ("fractions", "center", "spread")}


def _reading(u: np.ndarray[Any, Any]) -> dict[str, Any]:
    """theory.md §1: variance of the nodes' means (without what finite data add), average variance over data."""
    n, classes = u.shape
    spread = float(u.var(axis=0, ddof=1).mean())
    counts = np.bincount(u.argmax(axis=1), minlength=classes)
    return {"fractions": counts / n, "center": float(u.mean(axis=0).var(ddof=1)) - spread / n, "spread": spread}


def _largest_chart(arms: Sequence[PlacedArm]) -> Chart:
    """The average largest fraction of every arm, by initialization."""
    headings = {"Kaiming": "Kaiming initialization", "the library's own": "Initialized as the library does"}
    return dots(
        [{"label": a.label, "place": f"norm {a.place}", "largest": a.largest, "panel": headings[a.how]} for a in arms],
        "label", "largest", by="place", panel="panel", title="The largest guess fraction by the place of the norms",
        x_title=f"Average largest of {CLASSES} guess fractions", percent=True, width=440,
    )  # fmt: skip


TRIED = ("Kaiming", "the library's own")


def _moved(c: Found) -> dict[str, Any]:
    """Stand-ins or true sizes, and by how much the largest fraction changes with the norm's place."""
    x = c.run.data("cifar10", points=c.n)
    arms = true_size_arms(c.run, x) if c.models == TRUE_SIZE else _stand_ins(c.run, x, 24)
    before = {(arm.how, arm.label): arm for arm in arms if arm.place == "before"}
    return {"members": arms, "changes": [(a, _change(a, before[a.how, a.label])) for a in arms if a.place != "before"]}


def _judge_moved(c: Found) -> list[Entry]:
    """Settles which of NORM's two sentences is right."""

    def pick(kind: str, place: Place, how: str = TRIED[0]) -> dict[str, Number]:
        return {a.name: v for a, v in c.changes if (a.kind, a.place, a.how) == (kind, place, how)}

    whole = pick("ResNet", EVERYWHERE) | pick("Swin", SWAPPED)
    more = pick("ResNet", SWAPPED) | pick("Swin", SWAPPED, TRIED[1])
    where = "ResNet101 and Swin-L" if c.models == TRUE_SIZE else "stand-ins"
    said = "; ".join(f"{a.label}, {a.place}: {v}" for a, v in c.changes if a.how == TRIED[0])
    return [
        claimed(
            "N10", f"“raises”: change of the average largest fraction with the norm after, {where}",
            each(whole | more, above=0.0), headline=f"change of the largest fraction: {said}",
            otherwise="App. G.3 says two paragraphs later that bias is reduced (next line); not higher",
        ),
        claimed(
            "N10", f"“reduces”: the same, {where}: in ResNets with norms also behind the sums and in Swins, Kaiming; "
            "without a limit also in ResNets with plain pairs turned and in Swins as the library initializes them",
            each(whole, below=0.0), within=each(more, below=0.0),
            limit="the ReLU after each sum brings the mean back, small weights leave a Swin as it is; not lower",
            also="γ of the output: "
            + "; ".join(f"{a.name} {a.gamma.value:.2f} ± {a.gamma.error:.2f}" for a in c.members),
        ),
    ]  # fmt: skip


fig_g9 = measured(
    "norm/fig-g9", "Moving the norms of a ResNet101 and a Swin-L after the activations", "NORM Fig G.9, App. G.3",
    claims=("N10",), needs=("cifar10",), packages=("transformers",), version=2, seconds=(17, 1100),
    about="{models}; 200 outputs, {n} CIFAR-10 images, one batch.",
    quick=dict(models=STAND_INS, n=64),
    full=dict(models=TRUE_SIZE, n=200),
    quantities=_moved,
    judge=_judge_moved,
    tables=lambda c: {"largest": [arm.row() for arm in c.members]},
    charts=lambda c: {"largest": _largest_chart(c.members)},
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
        name: [_measure(c.run, model, place, c.run.data("cifar10", points=c.n, shift=by), f"{name}, shift {by:g}",
                        inits=inits, init="kaiming_normal", mode=mode) for by in SHIFTS]
        for name, (model, place, mode, inits) in cases.items()
    }  # fmt: skip
    rows = [row(name, m, shift=by) for name, ms in found.items() for by, m in zip(SHIFTS, ms, strict=True)]
    return {"found": found, "lines": rows, "rise": {name: _change(m[-1], m[0]) for name, m in found.items()}}


def _judge_shifted(c: Found) -> list[Entry]:
    steps = [_change(b, a) for a, b in itertools.pairwise(c.found[MIXER])]
    kept = all_of(above(step, -0.02) is not False for step in steps)  # only a clear breach should fail
    return [
        claimed(
            "N11", "change of the average largest fraction from shift 0 to 6",
            [check(MIXER, c.rise[MIXER], above=0.1),
             Check(f"{MIXER}, by step", "not falling", kept, ", ".join(map(str, steps)))],
            within=[check(BY_BATCH, c.rise[BY_BATCH], above=0.1)],
            limit="BatchNorm in train mode subtracts the shift at the first layer, but for the image's border",
            also="; ".join(f"{name}: {' → '.join(str(largest(m)) for m in ms)}" for name, ms in c.found.items()),
        ),
        claimed(
            "N11", "beyond the paper: the same in eval mode before training, where running statistics are 0 and 1",
            [check(BY_RUNNING, c.rise[BY_RUNNING], above=0.0)],
        ),
    ]  # fmt: skip


shift = measured(
    "norm/shift", "A constant added to all pixels as a knob for the bias", "NORM App. G.3", claims=("N11",),
    needs=("cifar10",), packages=("transformers",), seconds=(15, 90),
    about="CIFAR-10 images, standardized, + 0, 2, 4, 6. Stand-ins: ResNet with {blocks} basic blocks of widths "
    "{widths}, and MLP-Mixer of {depth} blocks of width {mixer} (ours); Kaiming, 10 outputs; {n} images, one batch; "
    "{many} networks each ({few} for LayerNorm after and BatchNorm by batch).",
    quick=dict(n=64, many=48, few=16, widths=(8, 16, 32, 64), blocks=(2, 2, 2, 2), mixer=32, depth=4),
    full=dict(n=128, many=60, few=30, widths=(16, 32, 64, 128), blocks=(3, 4, 6, 3), mixer=64, depth=8),
    quantities=_shifted,
    judge=_judge_shifted,
    tables=lambda c: {"largest": c.lines},
    charts=lambda c: {"largest": lines(
        c.lines, "shift", "largest", title="Largest fraction by a constant added to all pixels",
        x_title="Constant added to all standardized pixels", y_title="Average largest of ten fractions", percent=True,
        x_domain=(-0.3, 6.3), y_domain=(0.0, 1.05), rules={"an even split": 0.1}, dodge=False, width=760, height=360,
    )},
    holds={"largest": Holds("Shifted pixels dial bias up, unless BatchNorm takes the shift out of every batch",
                            entries=(0,), verdicts=("holds with a limit",))},
    notes=["Mixer, norm after: the LayerNorms before its MLPs go after their GELUs."],
)  # fmt: skip


BEFORE, AFTER = "norm before", "norm after"
ABSORBED = 0.28  # largest of ten shares at which the bias counts as absorbed: a fifth of the way from 0.1 to 1
LEARNT = 0.2  # accuracy that is more than chance, twice
_LOOKS = 10  # about so many, besides half of the training and its end


@dataclass(frozen=True)
class Setting:
    """A model with data shifted by a constant, the norm at every place that is compared."""

    width: int
    shift: float
    arms: dict[str, Arm]

    @property
    def last(self) -> int:
        """The last step."""
        return self.arms[BEFORE].last

    @property
    def half(self) -> int:
        """Half of the training."""
        return self.arms[BEFORE].near(self.last / 2)

    def gain(self, place: str, what: str = "accuracy") -> Number:
        """By how much a place ends ahead of "before", network by network: members share weights and order of data."""
        return paired(self.arms[place], self.arms[BEFORE], what, self.last)

    def ahead(self, place: str, until: int | None = None) -> Number:
        """The same averaged over the looks from step 1 on, which are even on a logarithmic axis.

        At the end says little of speed: two networks that both know all their images by then are alike there.
        """
        one, other = (self.arms[which].curve("accuracy") for which in (place, BEFORE))
        mask = (one.steps >= 1) & (one.steps <= (self.last if until is None else until))
        return self.arms[place].number((one.draws - other.draws)[:, mask].mean(axis=1))

    def sooner(self, place: str) -> Number:
        """By how many steps sooner the largest share is at `ABSORBED` than with the norm before; the end counts.

        Networks that get there at neither place say nothing.
        """
        return self.arms[place].number(sooner(self.arms[BEFORE], self.arms[place], ABSORBED))


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


def _setting(c: Found, model: Model, shift: float) -> Setting:
    return Setting(model.widths[0], shift, c.arms(f"{model.kind} of {model.widths[0]}, shift {shift:g}"))


def judged(kind: str, base: Setting, wide: Setting, place: str) -> list[Entry]:
    """N15's first three parts for one model at shift 0. Every check is 4 standard errors of paired differences."""
    arms = f"{kind}, {place} − {BEFORE}"
    learnt = any(above(base.arms[arm].at("test accuracy", base.last), LEARNT) is True for arm in (BEFORE, place))
    small = "in these small stand-ins the numbers contradict it"
    sizes = {"as it is": base, "twice as wide": wide}
    return [
        claimed(
            "N15", f"{arms}: training is faster, accuracy averaged over looks (even on a logarithmic axis)",
            [check(f"up to step {base.last}", base.ahead(place), above=0.0)],
            within=each({"up to half": base.ahead(place, base.half), "up to the end, twice as wide": wide.ahead(place),
                         "up to half, twice as wide": wide.ahead(place, wide.half)}, above=0.0),
            limit="not at every width and time", otherwise=small,
            also="at the end " + ", ".join(f"{one.gain(place)} ({name})" for name, one in sizes.items()),
            headline=f"{kind}, {place}: {base.ahead(place)} of accuracy ahead on average up to step {base.last}",
        ),
        claimed(
            "N15", f"{arms}: steps by which the largest of ten shares is at {ABSORBED} sooner",
            [check("as it is", base.sooner(place), above=0.0)],
            within=[check("twice as wide", wide.sooner(place), above=0.0)], otherwise=small,
        ),
        claimed(
            "N15", f"{arms}: accuracy on held-out images at the end (not decided where neither has {LEARNT} of it)",
            [check("as it is", base.gain(place, "test accuracy"), above=0.0, decided=learnt)],
            within=[check("twice as wide", wide.gain(place, "test accuracy"), above=0.0)], otherwise=small,
            undecided="" if learnt else "no network has learnt what holds for other images",
        ),
    ]  # fmt: skip


def shifted(settings: list[Setting]) -> list[Entry]:
    """N15's last part: what a shift of the data does to both places, and to the difference between them."""
    none, most = settings[0], settings[-1]
    each_gain = [s.arms[AFTER].values("accuracy", s.last) - s.arms[BEFORE].values("accuracy", s.last)
                 for s in (none, most)]  # fmt: skip
    learnt = any(above(most.arms[place].at("accuracy", most.last), LEARNT) is True for place in (BEFORE, AFTER))
    return [
        claimed(
            "N15", f"Mixer: accuracy after {none.last} steps with data shifted by {most.shift:g} − without a shift",
            each({p: paired(most.arms[p], none.arms[p], "accuracy", none.last) for p in (BEFORE, AFTER)}, below=0.0),
        ),
        claimed(
            "N15", f"Mixer: by how much wider the difference between the places is with data shifted by {most.shift:g} "
            f"than with none (not decided where neither has an accuracy of {LEARNT} by then)",
            [check("after − before", none.arms[BEFORE].number(each_gain[1] - each_gain[0]), above=0.0, decided=learnt)],
            also="; ".join(f"shift {one.shift:g}: {one.gain(AFTER)}" for one in settings),
        ),
    ]  # fmt: skip


def _curves(settings: list[Setting]) -> list[dict[str, Any]]:
    return [
        line
        for one in settings
        for place, arm in one.arms.items()
        for line in curve_rows([arm], place=place, shift=one.shift, width=one.width)
    ]


_NOTE = "No prediction: these are modules without a description; the tangent kernel is known for dense networks."
BEHIND_SUMS = "norm after, also behind the sums"
TRAINED_PLACES: dict[str, Place] = {BEFORE: "before", AFTER: "after", BEHIND_SUMS: "after, also behind the sums"}


def _resnets(c: Found) -> list[tuple[Model, float]]:
    """As it is, twice as wide, and on shifted data."""
    small, large = (
        Model("ResNet", "ResNet", tuple(width * 2**k for k in range(4)), c.blocks, 10, "basic")
        for width in (c.known["first"], 2 * c.known["first"])
    )
    return [(small, 0.0), (large, 0.0), (small, SHIFTS[-1])]


fig5 = measured(
    "norm/fig5", "A ResNet with BatchNorm before and after the activation, in training", "NORM Fig 5",
    claims=("N15",), needs=("cifar10",), packages=("transformers",), seconds=(25, 280),
    about="Stand-in: ResNet with {blocks} basic blocks, widths from {first} to 8 times that, and twice as wide "
    "(ResNet34: 64 to 512), Kaiming; {n} CIFAR-10 images (NORM: 50 000), shifted by 0 and 6; Adam 1e-3 in batches of "
    "{batch}, {steps} steps; {networks} networks each.",
    quick=dict(first=4, blocks=(1, 1, 1, 1), n=64, batch=32, steps=6, inits=10, parts=1),
    full=dict(first=8, blocks=(3, 4, 6, 3), n=512, batch=64, steps=64, inits=3, parts=4),
    cells=lambda c: _cells(c, _resnets(c), TRAINED_PLACES),
    quantities=lambda c: dict(zip(("base", "wide", "moved"), (_setting(c, *one) for one in _resnets(c)), strict=True)),
    judge=lambda c: [one for place in (AFTER, BEHIND_SUMS) for one in judged("ResNet", c.base, c.wide, place)],
    tables=lambda c: {"curves": _curves([c.base, c.wide, c.moved])},
    charts=lambda c: {"places": rows_chart(
        {"As is": (c.base.arms, {}), f"Shifted by {SHIFTS[-1]:g}": (c.moved.arms, {}),
         "Twice as wide": (c.wide.arms, {})},
        ["accuracy", "largest", "test accuracy"],
    )},
    holds={"places": Holds("A ResNet with norms after, also behind the sums, learns faster", entries=(3,))},
    notes=lambda c: [
        f"Data shifted by {SHIFTS[-1]:g} (shown, not judged: BatchNorm takes a shift out): accuracy after − before "
        f"at the end {c.moved.gain(AFTER)}, also behind the sums {c.moved.gain(BEHIND_SUMS)}.",
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


fig_g10 = measured(
    "norm/fig-g10", "A Mixer with LayerNorm before and after the activation in training, on shifted data",
    "NORM Figs 5, G.10, G.11", claims=("N15",), needs=("cifar10",), seconds=(20, 200),
    about="Stand-in: MLP-Mixer of {blocks} blocks of width {width} and of twice that, patches of 8, Kaiming (all "
    "ours); {n} CIFAR-10 images (NORM: 50 000), shifted by 0, 2, 4, 6 (the wider one: 0 only); Adam 1e-3 in batches "
    "of {batch}, {steps} steps; {networks} networks each.",
    quick=dict(width=16, blocks=2, n=64, batch=32, steps=10, inits=10, parts=1),
    full=dict(width=32, blocks=4, n=256, batch=64, steps=160, inits=3, parts=4),
    cells=lambda c: _cells(c, _mixers(c), {BEFORE: "before", AFTER: "after"}),
    quantities=lambda c: {"settings": [_setting(c, *one) for one in _mixers(c)]},
    judge=lambda c: [*judged("Mixer", c.settings[0], c.settings[-1], AFTER), *shifted(c.settings[:-1])],
    tables=lambda c: {"curves": _curves(c.settings)},
    charts=lambda c: {"places": arms_chart(
        {f"Shift {one.shift:g}: {words}": lines_of(what, one.arms)
         for what, words in (("accuracy", "accuracy"), ("largest", "largest share")) for one in c.settings[:-1]},
        columns=4, width=280, height=210,
    )},
    holds={"places": Holds("A Mixer with the norm after learns faster", entries=(0,))},
    notes=[
        "After: the LayerNorms before a Mixer's MLPs go after their GELUs; the one before the head stays.",
        _NOTE,
    ],
)  # fmt: skip
