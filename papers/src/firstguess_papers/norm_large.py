"""NORM App. G.3: ResNet, Swin and Mixer shapes. The norm's place (Fig G.9), and data shifted by a constant."""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from firstguess import EmpiricalGuesses
from firstguess_papers.charts import dots, lines
from firstguess_papers.items import Holds, Outcome, item
from firstguess_papers.judging import Number, Truth, above, below, entry
from firstguess_papers.norm_models import Model, Place
from firstguess_papers.norm_true_size import Init, ResNet, Swin
from firstguess_papers.running import Run
from firstguess_papers.tables import columns, gamma, largest, row

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


def _change(moved: Measurement | Arm, before: Measurement | Arm) -> Number:
    """How much the largest fraction changes; members share their weights, so the difference is taken one by one."""
    apart = moved.guesses.largest - before.guesses.largest
    return Number(float(apart.mean()), float(apart.std(ddof=1) / np.sqrt(len(apart))))


def _stand_ins(run: Run, x: Data, inits: int) -> list[Arm]:
    """Quick: both sizes with Kaiming, the smaller ones also as the library initializes them."""
    models = [
        Model("ResNet", "ResNet, 26 layers", (16, 32, 64, 128), (2, 2, 2, 2), CLASSES),
        Model("ResNet", "ResNet, 50 layers", (16, 32, 64, 128), (3, 4, 6, 3), CLASSES),
        Model("Swin", "Swin, 5 blocks", (16,), (1, 1, 3), CLASSES),
        Model("Swin", "Swin, 10 blocks", (16,), (2, 2, 6), CLASSES),
    ]
    found: list[Arm] = []
    for how, init in INITS.items():
        for model in models if how == "Kaiming" else models[2:3]:
            for place in PLACES[model.kind]:
                m = _measure(run, model, place, x, f"{model.label}, norm {place}, {how}", inits=inits, init=init)
                found.append(Arm(how, model.kind, model.label, place, m.guesses, gamma(m)))
    return found


STAND_INS = (
    "Stand-ins: bottleneck ResNets of 26 and 50 layers at an eighth and less of the usual widths, Swins of 5 and 10 "
    "blocks of width 16; 24 networks each, Kaiming; the smaller Swin also with the library's own initialization"
)
TRUE_SIZE = (
    "ResNet101 (24 networks) and Swin-L (16) at their true size, Kaiming, and 10 Swin-L with the library's own "
    "initialization, on images enlarged to 64 × 64 (bilinear)"
)


@item(
    "norm/fig-g9",
    "Moving the norms of a ResNet101 and a Swin-L behind the activations",
    claims=("N10",),
    where="NORM Fig G.9, App. G.3",
    needs=("cifar10",),
    packages=("transformers",),
    about="{models}; 200 outputs, {n} CIFAR-10 images, one batch.",
    quick=dict(models=STAND_INS, n=64),
    full=dict(models=TRUE_SIZE, n=200),
    seconds=(17, 1100),
    version=2,
)
def fig_g9(run: Run) -> Outcome:
    """N10: the change of E max_c G_c, network by network; settles which of NORM's two sentences is right."""
    n, models = run.take("n models")
    true_size = models == TRUE_SIZE
    x = run.data("cifar10", points=n)
    arms = true_size_arms(run, x) if true_size else _stand_ins(run, x, 24)
    found = {(arm.how, arm.label, arm.place): arm for arm in arms}
    changes = {key: _change(arm, found[key[0], key[1], "before"]) for key, arm in found.items() if key[2] != "before"}

    def pick(kind: str, place: Place, how: str) -> list[Number]:
        return [v for key, v in changes.items() if key[2] == place and key[0] == how and found[key].kind == kind]

    whole = [*pick("ResNet", EVERYWHERE, "Kaiming"), *pick("Swin", SWAPPED, "Kaiming")]
    swapped, own = pick("ResNet", SWAPPED, "Kaiming"), pick("Swin", SWAPPED, "the library's own")
    tested = [*whole, *swapped, *own]
    risen, fallen = (sum(check(v, 0.0) is True for v in tested) for check in (above, below))
    said = "; ".join(f"{label}, norm {place}, {how}: {v}" for (how, label, place), v in changes.items())
    kinds = {
        kind: "; ".join(
            f"{arm.label}, {arm.how}, {arm.place}: {arm.gamma.value:.2f} ± {arm.gamma.error:.2f}"
            for arm in arms
            if arm.kind == kind
        )
        for kind in ("ResNet", "Swin")
    }
    reduced = [below(v, 0.0) for v in whole]
    where = "in ResNet101 and Swin-L" if true_size else "in every stand-in"
    headline = "; ".join(f"{label}, {place}: {v}" for (how, label, place), v in changes.items() if how == "Kaiming")
    return Outcome(
        [
            replace(
                entry(
                    "N10",
                    "“raises”: the average largest fraction is higher with the norm after (paired difference above 0) "
                    f"{where}",
                    said,
                    [above(v, 0.0) for v in tested],
                    otherwise=f"higher in {risen}, lower in {fallen} of {len(tested)} cases, by 4 s.e.; App. G.3 says "
                    "two paragraphs later that bias is reduced: next line",
                ),
                headline=f"change of the largest fraction: {headline}",
            ),
            entry(
                "N10",
                f"“reduces”: the average largest fraction is lower with the norm after, {where}: in ResNets with "
                "norms also behind the sums and in Swins, Kaiming; without a limit if also in ResNets with plain "
                "pairs turned and in Swins as the library initializes them",
                f"γ of the output: {kinds['ResNet']}; {kinds['Swin']}; changes as above",
                reduced,
                within=[_lower(v) for v in (*swapped, *own)],
                limit=_limit(swapped, own),
            ),
        ],
        {"largest": columns([arm.row() for arm in arms])},
        {"largest": arms_chart(arms, n)},
        [
            "After, ResNet: conv → ReLU → BatchNorm in the stem and in the first two convolutions of a block. Also "
            "behind the sums: the norms of a block's last convolution and of its shortcut are replaced by one behind "
            "the ReLU of their sum.",
            "After, Swin: the LayerNorm in front of each MLP goes behind its GELU; the one in front of attention "
            "stays.",
            "Tiny ImageNet is not here: CIFAR-10 images and a head of 200. The library's own initialization of a "
            "ResNet is Kaiming's, by fan-out; of a Swin, normal weights with a deviation of 0.02.",
        ],
        {"largest": Holds("Norms after the activation lower the largest guess fraction", entries=(1,))},
    )  # fmt: skip


def _limit(swapped: list[Number], own: list[Number]) -> str:
    """Names those of the two neighbouring cases that fail, by what was measured."""
    said: list[str] = []
    if not all(_lower(v) for v in swapped):
        by = " and ".join(map(str, swapped))
        said.append(
            f"turning conv → BatchNorm → ReLU alone changes a ResNet's largest fraction by {by}: the ReLU behind each "
            "sum brings the mean back"
        )
    if not all(_lower(v) for v in own):
        said.append(f"a Swin with the library's small weights changes by {' and '.join(map(str, own))}")
    return "; ".join(said)


def _lower(change: Number) -> Truth:
    """Whether a change is a fall; an undecided one counts as none, which is a limit and not a failure."""
    return below(change, 0.0) is True


@item(
    "norm/shift",
    "A constant added to all pixels as a knob for the bias",
    claims=("N11",),
    where="NORM App. G.3",
    needs=("cifar10",),
    packages=("transformers",),
    about="CIFAR-10 images, standardized, + 0, 2, 4, 6. Stand-ins: ResNet with {blocks} basic blocks of widths "
    "{widths}, and MLP-Mixer of {depth} blocks of width {mixer} (ours); Kaiming, 10 outputs; {n} images, one batch; "
    "{many} networks each ({few} for LayerNorm after and BatchNorm by batch).",
    quick=dict(n=64, many=48, few=16, widths=(8, 16, 32, 64), blocks=(2, 2, 2, 2), mixer=32, depth=4),
    full=dict(n=128, many=60, few=30, widths=(16, 32, 64, 128), blocks=(3, 4, 6, 3), mixer=64, depth=8),
    seconds=(15, 90),
)
def shift(run: Run) -> Outcome:
    """N11: the largest fraction by shift, for BatchNorm (by batch and by running statistics) and LayerNorm."""

    n, many, few = run.take("n many few")
    widths, blocks, width, depth = run.take("widths blocks mixer depth")
    resnet, mixer = (
        Model("ResNet", "ResNet", widths, blocks, 10, "basic"),
        Model("Mixer", "Mixer", (width,), (depth,), 10),
    )
    cases: dict[str, tuple[Model, Place, str, int]] = {
        "Mixer, LayerNorm before": (mixer, "before", "train", many),
        "Mixer, LayerNorm after": (mixer, SWAPPED, "train", few),
        "ResNet, BatchNorm by batch": (resnet, "before", "train", few),
        "ResNet, BatchNorm by running statistics": (resnet, "before", "eval", many),
    }
    found: dict[str, list[Measurement]] = {}
    for name, (model, place, mode, inits) in cases.items():
        found[name] = [
            _measure(run, model, place, run.data("cifar10", points=n, shift=by), f"{name}, shift {by:g}", inits=inits,
                     init="kaiming_normal", mode=mode)
            for by in SHIFTS
        ]  # fmt: skip
    rise = {name: _change(m[-1], m[0]) for name, m in found.items()}
    steps = {name: [_change(b, a) for a, b in itertools.pairwise(m)] for name, m in found.items()}
    layernorm, batch = "Mixer, LayerNorm before", "ResNet, BatchNorm by batch"
    rows = [row(name, m, shift=by) for name, ms in found.items() for by, m in zip(SHIFTS, ms, strict=True)]
    chart = lines(
        rows, "shift", "largest", title="Largest fraction by a constant added to all pixels",
        x_title="Constant added to all standardized pixels", y_title="Average largest of ten fractions", percent=True,
        x_domain=(-0.3, 6.3), y_domain=(0.0, 1.05), rules={"an even split": 0.1}, dodge=False, width=760, height=360,
    )  # fmt: skip
    shown = "; ".join(f"{name}: {' → '.join(str(largest(m)) for m in ms)}" for name, ms in found.items())
    return Outcome(
        [
            entry(
                "N11",
                "the average largest fraction rises by more than 0.1 from shift 0 to 6 in a Mixer with LayerNorm and "
                "falls at no step; without a limit if it rises by more than 0.1 in a ResNet with BatchNorm (train "
                "mode), too",
                f"shifts 0, 2, 4, 6: {shown}",
                [above(rise[layernorm], 0.1), *(not_false(above(v, -0.02)) for v in steps[layernorm])],
                within=[above(rise[batch], 0.1) is True],
                limit=f"BatchNorm in train mode subtracts the shift at the first layer, but for the image's border: "
                f"the ResNet changes by {rise[batch]}",
            ),
            entry(
                "N11",
                "beyond the paper: with running statistics (eval mode before training, where they are 0 and 1) the "
                "same ResNet's largest fraction rises from shift 0 to 6",
                f"{' → '.join(str(largest(m)) for m in found['ResNet, BatchNorm by running statistics'])}",
                [above(rise["ResNet, BatchNorm by running statistics"], 0.0)],
            ),
        ],
        {"largest": columns(rows)},
        {"largest": chart},
        ["All sizes are ours. Mixer, norm after: the LayerNorms in front of its MLPs go behind their GELUs."],
        holds={
            "largest": Holds(
                "Shifted pixels dial bias up, unless BatchNorm takes the shift out of every batch",
                entries=(0,),
                verdicts=("holds with a limit",),
            )
        },
    )


def not_false(truth: Truth) -> Truth:
    """Undecided counts as fine: for conditions that only a clear breach should fail."""
    return truth is not False


SWAPPED: Place = "after"
EVERYWHERE: Place = "after, also behind the sums"
CLASSES = 200  # as many as Tiny ImageNet has
PLACES: dict[str, tuple[Place, ...]] = {"ResNet": ("before", SWAPPED, EVERYWHERE), "Swin": ("before", SWAPPED)}
SIDE = 64
_CHUNK = 50  # images at once where no batch is needed: less memory


@dataclass(frozen=True)
class Arm:
    """Networks of one kind with their norms at one place: guess fractions, and γ of the output."""

    how: Init
    kind: str
    label: str
    place: Place
    guesses: EmpiricalGuesses
    gamma: Number

    @property
    def largest(self) -> Number:
        """The average largest fraction."""
        return Number(self.guesses.expected_max(), self.guesses.standard_error("expected_max"))

    def row(self) -> dict[str, Any]:
        """For the table of numbers."""
        about = {"name": self.label, "init": self.how, "norm": self.place, "inits": self.guesses.inits}
        numbers = {"largest": self.largest, "gamma": self.gamma}
        values = {key: v for name, x in numbers.items() for key, v in ((name, x.value), (f"{name}_error", x.error))}
        return {**about, "points": self.guesses.points, "classes": self.guesses.classes, **values}


def true_size_arms(run: Run, data: Data) -> list[Arm]:
    """ResNet101 with Kaiming, Swin-L with Kaiming and with the library's own initialization; all places each."""
    x = enlarged(data)
    plan: list[tuple[Init, str, str, ResNet | Swin, int]] = [
        ("Kaiming", "ResNet", "ResNet101", ResNet(classes=CLASSES), 24),
        ("Kaiming", "Swin", "Swin-L", Swin(side=SIDE, classes=CLASSES), 16),
        ("the library's own", "Swin", "Swin-L", Swin(side=SIDE, classes=CLASSES), 10),
    ]
    found: list[Arm] = []
    for how, kind, label, net, many in plan:
        places = PLACES[kind]
        pieces = [
            run.piece(
                {"net": label, "sizes": str(net), "init": how, "data": data.hash, "member": k},
                lambda net=net, how=how, places=places, k=k: measured(net, x, places, how, 1000 * run.seed + k),
                label=f"{label}, {how}, network {k + 1} of {many}",
            )
            for k in range(many)
        ]
        for index, place in enumerate(places):
            fractions, center, spread = (
                np.stack([np.asarray(p[name])[index] for p in pieces]) for name in ("fractions", "center", "spread")
            )
            law = EmpiricalGuesses(fractions, data.n, run.seed)
            found.append(Arm(how, kind, label, place, law, ratio(center, spread)))
    return found


def enlarged(data: Data) -> Tensor:
    """Images at 64 × 64, bilinear."""
    import torch
    from torch.nn.functional import interpolate

    return interpolate(torch.tensor(data.x), size=(SIDE, SIDE), mode="bilinear", align_corners=False)


def measured(net: ResNet | Swin, x: Tensor, places: Sequence[Place], init: Init, seed: int) -> dict[str, Any]:
    """One network, drawn, measured at all places and dropped: guess fractions, center and spread of its outputs."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)  # others are at work beside
    try:
        with torch.inference_mode():
            weights = net.draw(init, seed)
            parts = (x,) if net.whole_batch else x.split(_CHUNK)  # BatchNorm sees one batch
            logits = [
                torch.cat([net.logits(part, weights, place) for part in parts]).double().numpy() for place in places
            ]
    finally:
        torch.set_num_threads(before)
    read = [_reading(u) for u in logits]
    return {key: np.stack([one[key] for one in read]) for key in ("fractions", "center", "spread")}


def _reading(u: np.ndarray[Any, Any]) -> dict[str, Any]:
    """theory.md §1: variance of the nodes' means (without what finite data add), average variance over data."""
    n, classes = u.shape
    spread = float(u.var(axis=0, ddof=1).mean())
    counts = np.bincount(u.argmax(axis=1), minlength=classes)
    return {"fractions": counts / n, "center": float(u.mean(axis=0).var(ddof=1)) - spread / n, "spread": spread}


def ratio(center: np.ndarray[Any, Any], spread: np.ndarray[Any, Any]) -> Number:
    """γ of an ensemble: the ratio of averages, with its error over networks."""
    value = float(center.mean() / spread.mean())
    error = float((center - value * spread).std(ddof=1) / spread.mean() / math.sqrt(len(center)))
    return Number(value, error)


def arms_chart(arms: Sequence[Arm], points: int) -> Chart:
    """The average largest fraction of every arm, by initialization."""
    headings = {"Kaiming": "Kaiming initialization", "the library's own": "Initialized as the library does"}
    inits = " or ".join(str(k) for k in sorted({arm.guesses.inits for arm in arms}))
    return dots(
        [{"label": a.label, "place": f"norm {a.place}", "largest": a.largest, "panel": headings[a.how]} for a in arms],
        "label", "largest", by="place", panel="panel", title="The largest guess fraction by the place of the norms",
        subtitle=f"{points} CIFAR-10 images, one batch; {inits} networks a point, the same weights in every place. "
        "ResNet: BatchNorm and ReLU; Swin: LayerNorm and GELU.",
        x_title=f"Average largest of {CLASSES} guess fractions", percent=True, width=440,
    )  # fmt: skip
