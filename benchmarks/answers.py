"""Whether the answers of `fg.diagnose` are right: 60 models, each diagnosed, and trained for 500 steps by a plain loop.

    python benchmarks/answers.py run made        the 30 that the rules were made with; resumes
    python benchmarks/answers.py run held        30 others, drawn by another seed and not looked at before the first run
    python benchmarks/answers.py run new         20 of other architectures, data and optimizers, run once
    python benchmarks/answers.py run last        20 more of these, after a rule was changed because of one of them
    python benchmarks/answers.py run fresh       20 of both families, after more copies and held-out points; run once
    python benchmarks/answers.py run blind       22 of both families, drawn and not chosen, of settings that no case had
    python benchmarks/answers.py run sealed      25 of other networks, data, optimizers, faults (answers_sealed.py)
    python benchmarks/answers.py table           the confusion tables, as docs/answers.md has them

Models are drawn: a kind (sound, biased, deep, faulty, repaired: six each), then architecture, data and optimizer. What
happened is told by three other initializations than the diagnosis looked at: learned at the usual speed (the balanced
accuracy on the training points is half of the way from chance to 1 within 250 steps), late (within 500), not at all.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import answers_sealed as sealed
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import firstguess as fg
from firstguess.data import load

time.perf_counter = time.process_time  # on a machine that others use, `seconds=` are those of this process

RESULTS = Path(__file__).with_name("answers.jsonl")
KINDS = ("sound", "biased", "deep", "faulty", "repaired")
SEEDS = {"made": 1, "held": 2, "new": 3, "last": 4, "fresh": 5, "blind": 6, "sealed": sealed.SEED}
STEPS, USUAL, MEMBERS, BATCH = 500, 250, 4, 32
MORE = 8  # trainings of a fresh case: of four, one in three was judged by noise where starts are all in one class
MOST = 32  # of a sealed one, until the bias is to be gone: of eight, too
APART, LATER = 2.0, 5.0  # a stated number of steps is right within this factor, or this many steps …
LEFT = 0.35  # … if no more than this is left of the starting bias then: a quarter, and the noise of four trainings
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adam": lambda p: torch.optim.Adam(p, lr=1e-3),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.03, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=3e-3, weight_decay=0.05),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.95, nesterov=True),
    "huge rate": lambda p: torch.optim.Adam(p, lr=30.0),  # which the network of new-14 learns with
    "larger rate": lambda p: torch.optim.SGD(p, lr=30.0, momentum=0.9),
    **sealed.OPTIMIZERS,
}
OLD, OTHER = ("adam", "sgd", "momentum"), ("adamw", "rmsprop", "nesterov")
FAULTS = ("softmax twice", "softmax over the batch", "relu head", "head bias", "pixels", "labels", "dropout", "dead")
OTHER_FAULTS = ("sigmoid head", "constant weights", "huge rate", "shuffled labels")


@dataclass(frozen=True)
class Case:
    """One model, its data and its optimizer."""

    half: str
    number: int
    kind: str
    net: str  # mlp, cnn, vit, resmlp; new: mlp, lenet, gru, cls
    depth: int
    activation: str
    norm: str  # "", before, after
    gain: float  # of weights, times PyTorch's default; 0: that default, with its biases
    data: str  # digits, uneven, blobs; new: moons, bars, series
    shift: float
    optimizer: str
    fault: str = ""

    @property
    def name(self) -> str:
        return f"{self.half}-{self.number:02d}"


def cases(half: str) -> list[Case]:
    """Thirty, drawn; twenty of the new and the fresh ones, 22 of the blind ones."""
    if half in ("new", "last"):
        return new_cases(half)
    if half == "fresh":
        return fresh_cases()
    if half == "blind":
        return blind_cases()
    if half == "sealed":
        return sealed.drawn(Case)
    return _drawn(half, SEEDS[half])


def _drawn(half: str, seed: int) -> list[Case]:
    rng = np.random.default_rng(seed)

    def one(*among: Any) -> Any:
        return among[int(rng.integers(len(among)))]

    found: list[Case] = []
    for number, kind in enumerate(itertools.chain.from_iterable([k] * 6 for k in KINDS)):
        net, norm, gain, shift, fault = one("mlp", "cnn", "vit", "resmlp"), "", 0.0, 0.0, ""
        depth = one(1, 2, 3, 4)
        activation = one("relu", "gelu", "tanh")
        if kind == "sound":
            norm = one("", "after", "before")
        elif kind == "biased":
            net, depth, activation = one("mlp", "cnn", "resmlp"), one(3, 4, 5, 6), one("relu", "gelu", "sigmoid")
            gain, shift = one(0.0, 2.45), one(0.0, 1.0)
        elif kind == "deep":
            net, depth, activation = "mlp", one(10, 16, 24, 30), one("relu", "tanh", "gelu")
            norm, gain = one("", "", "before", "after"), one(0.0, 0.0, 2.45, 4.0)
        elif kind == "faulty":
            net, fault = one("mlp", "cnn"), FAULTS[number % len(FAULTS)] if half == "made" else one(*FAULTS)
            depth = one(2, 3)
        else:
            net, depth, activation = one("mlp", "cnn"), one(3, 5, 8), one("relu", "gelu")
            gain = 2.45
        data = one("digits", "uneven", "blobs") if net == "mlp" else one("digits", "uneven")
        found.append(Case(half, number, kind, net, depth, activation, norm, gain, data, shift, one(*OLD), fault))
    return found


def new_cases(half: str) -> list[Case]:
    """Four of each kind, of other architectures, data and optimizers than those that the rules were made with."""
    rng = np.random.default_rng(SEEDS[half])

    def one(*among: Any) -> Any:
        return among[int(rng.integers(len(among)))]

    nets = {"moons": ("mlp",), "bars": ("lenet", "cls", "mlp"), "series": ("gru", "cls", "mlp")}
    found: list[Case] = []
    for number, kind in enumerate(itertools.chain.from_iterable([k] * 4 for k in KINDS)):
        data, optimizer = one("moons", "bars", "bars", "series"), one(*OTHER)
        net, depth, activation, norm, gain, shift, fault = (
            one(*nets[data]),
            one(1, 2, 3),
            one("elu", "silu"),
            "",
            0.0,
            0.0,
            "",
        )
        if kind == "sound":
            norm = one("", "before")
        elif kind == "biased":
            net, depth, activation = (
                one("mlp", "lenet") if data == "bars" else "mlp",
                one(2, 4, 6),
                one("leaky", "softplus"),
            )
            gain, shift = one(0.0, 2.0), one(0.0, 2.0)
        elif kind == "deep":
            net, depth, activation, gain = "mlp", one(8, 14, 20), one("elu", "leaky", "sigmoid"), one(0.0, 2.0, 3.0)
        elif kind == "faulty":
            net, fault = one("mlp", "lenet") if data == "bars" else "mlp", OTHER_FAULTS[number % len(OTHER_FAULTS)]
            if fault == "huge rate":
                optimizer = fault if half == "new" else "larger rate"
        else:
            net, depth, activation = (
                one("mlp", "lenet") if data == "bars" else "mlp",
                one(2, 4, 6),
                one("leaky", "silu"),
            )
            gain = one(0.0, 2.0)
        found.append(Case(half, number, kind, net, depth, activation, norm, gain, data, shift, optimizer, fault))
    return found


def fresh_cases() -> list[Case]:
    """Ten of either family, two of each kind: the first of each kind by another seed than before."""
    old = [case for i, case in enumerate(_drawn("fresh", SEEDS["fresh"])) if i % 6 < 2]
    new = [case for i, case in enumerate(new_cases("fresh")) if i % 4 < 2 or (case.kind == "faulty" and i % 4 == 3)]
    new = [case for case in new if case.fault != "constant weights"]  # shuffled labels instead, of which two were wrong
    return [replace(case, number=number) for number, case in enumerate([*old, *new])]


def blind_cases() -> list[Case]:
    """The first two of each kind in either family, and every fault of the second, but for settings that were seen.

    Numbers start at 100, so that data points and weights are others, too.
    """

    def settings(case: Case) -> tuple[Any, ...]:
        return tuple(value for name, value in asdict(case).items() if name not in ("half", "number"))

    seen = {settings(case) for half in SEEDS if half not in ("blind", "sealed") for case in cases(half)}
    found: list[Case] = []
    for family in (_drawn("blind", SEEDS["blind"]), new_cases("blind")):
        fresh = [case for case in family if settings(case) not in seen]
        for kind in KINDS:
            own = [case for case in fresh if case.kind == kind]
            found += own if kind == "faulty" and own[0].fault in OTHER_FAULTS else own[:2]
    return [replace(case, number=100 + number) for number, case in enumerate(found)]


# -- Data and models --------------------------------------------------------------------------------------------------


def points(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    """640 labelled points."""
    if case.half == "sealed":
        return sealed.points(case)
    rng = np.random.default_rng(case.number)
    if case.data in ("moons", "bars", "series"):
        return new_points(case, rng)
    if case.data == "blobs":
        middle = rng.standard_normal((4, 20)) * 0.8
        y = rng.integers(0, 4, 640)
        x = middle[y] + rng.standard_normal((640, 20))
    else:
        digits = load("digits")
        assert digits.y is not None
        kept = rng.permutation(digits.n)
        if case.data == "uneven":  # class 0 and 1 are six times as frequent as the others
            kept = kept[(digits.y[kept] < 2) | (rng.random(digits.n) < 0.25)]
        x, y = digits.x[kept[:640]], digits.y[kept[:640]]
        x = x.reshape(len(x), 1, 8, 8)
    data, labels = torch.tensor(np.asarray(x)).float() + case.shift, torch.tensor(np.asarray(y)).long()
    if case.fault == "pixels":
        data = ((data - data.min()) / (data.max() - data.min()) * 255).round()
    return data, labels + 1 if case.fault == "labels" else labels


def new_points(case: Case, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """640 points: two moons among 20 inputs; stripes of three directions and two widths; noisy waves."""
    if case.data == "moons":
        y, angle = rng.integers(0, 2, 640), np.pi * rng.random(640)
        x = np.zeros((640, 20))
        x[:, 0], x[:, 1] = np.cos(angle + np.pi * y) + y, np.sin(angle + np.pi * y) + 0.3 * y
        x = (x + 0.1 * rng.standard_normal(x.shape)) @ np.linalg.qr(rng.standard_normal((20, 20)))[0] * 2
    elif case.data == "bars":
        y, (row, column) = rng.integers(0, 6, 640), np.mgrid[:12, :12]
        along = np.stack([row, column, row + column])[y % 3] * np.where(y < 3, 1.0, 0.5)[:, None, None]
        wave = np.sin(along * np.pi / 2 + rng.uniform(0, 1, 640)[:, None, None])
        x = wave[:, None] * rng.uniform(0.5, 1.5, (640, 3))[..., None, None] + 0.5 * rng.standard_normal(
            (640, 3, 12, 12)
        )
    else:
        y, t = rng.integers(0, 5, 640), np.arange(16)
        wave = np.sin((0.3 + 0.25 * y)[:, None] * t + rng.uniform(0, 2 * np.pi, 640)[:, None])
        x = wave[..., None] * rng.uniform(0.5, 1.5, (640, 1, 4)) + 0.3 * rng.standard_normal((640, 16, 4))
    y = rng.permutation(y) if case.fault == "shuffled labels" else y
    return torch.tensor(x).float() + case.shift, torch.tensor(y).long()


class Gru(nn.Module):
    """The last state of a recurrent network is classified."""

    def __init__(self, inputs: int, depth: int, classes: int) -> None:
        super().__init__()
        self.gru, self.head = nn.GRU(inputs, 32, num_layers=depth, batch_first=True), nn.Linear(32, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.gru(x)[0][:, -1])


class Cls(nn.Module):
    """A post-norm encoder of PyTorch's over time steps, or rows of an image; the first token is classified."""

    def __init__(self, inputs: int, tokens: int, depth: int, classes: int) -> None:
        super().__init__()
        self.embed, self.cls = nn.Linear(inputs, 32), nn.Parameter(0.02 * torch.randn(1, 1, 32))
        self.positions = nn.Parameter(0.1 * torch.randn(tokens + 1, 32))
        layers = [nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True) for _ in range(depth)]
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(32, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x if x.ndim == 3 else x.transpose(1, 2).flatten(2)
        tokens = torch.cat([self.cls.expand(len(x), -1, -1), self.embed(tokens)], 1)
        return self.head(self.layers(tokens + self.positions)[:, 0])


class Residual(nn.Module):
    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.block(x)


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


class ViT(nn.Module):
    """Rows of an image as tokens; pre-norm blocks; the mean over tokens is classified."""

    def __init__(self, depth: int, act: Callable[[], nn.Module], classes: int, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.positions = nn.Parameter(0.02 * torch.randn(8, width))
        self.blocks = nn.Sequential(
            *(
                nn.Sequential(
                    Residual(nn.Sequential(nn.LayerNorm(width), Attention(width))),
                    Residual(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 64), act(), nn.Linear(64, width))),
                )
                for _ in range(depth)
            )
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.embed(x[:, 0]) + self.positions)).mean(1))


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid,
    "elu": nn.ELU, "silu": nn.SiLU, "leaky": lambda: nn.LeakyReLU(0.1), "softplus": nn.Softplus,
}  # fmt: skip
CLASSES = {"blobs": 4, "moons": 2, "bars": 6, "series": 5}


def build(case: Case, data: tuple[torch.Tensor, torch.Tensor]) -> nn.Module:
    """As PyTorch draws it, or with weights of another size; then its fault, or its repair."""
    act = ACTIVATIONS.get(case.activation, nn.ReLU)
    classes = CLASSES.get(case.data, 10)
    example = data[0][0]
    if case.half == "sealed":
        model: nn.Module = sealed.network(case, example)
    elif case.net == "vit":
        model = ViT(case.depth, act, classes)
    elif case.net == "gru":
        model = Gru(example.shape[-1], case.depth, classes)
    elif case.net == "cls":
        tokens = example.shape[-2]
        model = Cls(example.numel() // tokens, tokens, case.depth, classes)
    else:
        model = nn.Sequential(*_layers(case, act, data[0][0], classes))
    if case.gain:
        for module in model.modules():
            if isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d)):
                with torch.no_grad():
                    module.weight.mul_(case.gain)
                    if module.bias is not None:
                        module.bias.zero_()
    if case.fault == "constant weights":
        for parameter in model.parameters():
            nn.init.constant_(parameter, 0.05)
    if case.kind == "repaired":
        return fg.repair(model, data, gamma=0.0).model
    return model


def _layers(case: Case, act: Callable[[], nn.Module], example: torch.Tensor, classes: int) -> list[nn.Module]:
    width, cnn = (16, True) if case.net in ("cnn", "lenet") else (48, False)

    def stage(inputs: int) -> list[nn.Module]:
        linear = nn.Conv2d(inputs, width, 3, padding=1) if cnn else nn.Linear(inputs, width)
        norm = [nn.BatchNorm2d(width) if cnn else nn.LayerNorm(width)]
        before, after = norm if case.norm == "before" else [], norm if case.norm == "after" else []
        return [linear, *before, act(), *after]

    layers: list[nn.Module] = [] if cnn else [nn.Flatten()]
    for k in range(case.depth):
        inputs = (example.shape[0] if cnn else example.numel()) if k == 0 else width
        block = stage(inputs)
        layers += [Residual(nn.Sequential(*block))] if case.net == "resmlp" and k > 0 else block
        if case.fault == "dead" and k == case.depth - 1:
            nn.init.constant_(block[0].bias, -100.0)  # pyright: ignore[reportArgumentType]
        if case.fault == "dropout" and k == 0:
            layers.append(nn.Dropout(1.0))
        if case.net == "lenet" and k < 2:
            layers.append(nn.MaxPool2d(2))
    layers += [nn.AdaptiveAvgPool2d(2), nn.Flatten()] if cnn else []
    head = nn.Linear(4 * width if cnn else width, classes)
    if case.fault == "head bias":
        with torch.no_grad():
            head.bias[case.number % classes] = 15.0
    ends: dict[str, list[nn.Module]] = {
        "softmax twice": [nn.Softmax(-1), nn.Softmax(-1)],
        "softmax over the batch": [nn.Softmax(0)],
        "relu head": [nn.ReLU()],
        "sigmoid head": [nn.Sigmoid()],
    }
    return [*layers, head, *ends.get(case.fault, [])]


# -- What happened ----------------------------------------------------------------------------------------------------


def trained(case: Case, data: tuple[torch.Tensor, torch.Tensor], seed: int, steps: int = STEPS) -> tuple[Any, Any]:
    """Steps, and the accuracy on every class at each of them, by a plain loop."""
    torch.manual_seed(10_000 + 100 * case.number + seed)
    model, (x, y) = build(case, data), data
    optimizer = OPTIMIZERS[case.optimizer](model.parameters())
    order = torch.Generator().manual_seed(seed)
    at: list[int] = []
    by_class: list[list[float]] = []
    rows = torch.empty(0, dtype=torch.long)
    model.train()
    for step in range(steps + 1):
        if step % 10 == 0 or step < 10:
            with torch.no_grad():
                guess = model(x).argmax(1)
            at.append(step)
            by_class.append([float((guess[y == c] == c).double().mean()) for c in torch.unique(y)])
        if len(rows) < BATCH:
            rows = torch.randperm(len(x), generator=order)
        batch, rows = rows[:BATCH], rows[BATCH:]
        loss = F.cross_entropy(model(x[batch]), y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return at, by_class


def happened(case: Case, data: tuple[torch.Tensor, torch.Tensor], until: float = 0.0) -> dict[str, Any]:
    """How fast it learned, on average over four trainings, and what was left of the starting bias: accuracies by class,
    without their average over trainings, projected on those of the start. More trainings tell the latter `until` a
    step."""
    curves: list[Any] = []
    at: list[int] = []
    for seed in range(MORE if case.half in ("fresh", "blind", "sealed") else MEMBERS):
        try:
            at, by_class = trained(case, data, seed)
        except (IndexError, RuntimeError) as error:
            return {"word": "not at all", "why": str(error).splitlines()[0]}
        curves.append(by_class)
    found = np.array(curves)  # (trainings, steps, classes)
    accuracy, chance = found.mean(axis=(0, 2)), 1.0 / found.shape[2]
    left = left_of(found)
    if until:
        last = min(STEPS, 10 * int(np.ceil(until / 10)))
        others = [trained(case, data, seed, last)[1] for seed in range(len(curves), MOST)]
        count = len(others[0])
        left[:count] = left_of(np.concatenate([found[:, :count], others]))
    half = next((step for step, value in zip(at, accuracy, strict=True) if value >= chance + 0.5 * (1 - chance)), None)
    word = "not at all" if half is None else "usual speed" if half <= USUAL else "late"
    return {"word": word, "half": half, "accuracy": float(accuracy[-1]), "at": at, "left": left.round(4).tolist()}


def left_of(found: Any) -> Any:
    """Of the starting bias, by accuracies (trainings, steps, classes)."""
    apart = found - found.mean(axis=0)
    size = float(np.square(apart[:, 0]).sum())
    return np.einsum("nsc,nc->s", apart, apart[:, 0]) / size if size > 0.01 else np.zeros(found.shape[1])


def judged(case: Case) -> dict[str, Any]:
    """The answer, and what happened."""
    began = time.perf_counter()
    data = points(case)
    torch.manual_seed(case.number)
    model = build(case, data)
    told = case.half in ("last", "fresh", "blind", "sealed")  # else it is assumed
    loss = nn.NLLLoss() if case.fault == "nll of logits" else nn.CrossEntropyLoss() if told else None
    d = fg.diagnose(
        model,
        data,
        optimizer=OPTIMIZERS[case.optimizer],
        loss=loss,
        batch_size=BATCH,
        inits=16,
        points=400,
        seconds=200,
        advice=False,
    )
    seen = {"answer": str(d.answer), "headline": d.headline, "steps": d.duration.steps, "run": d.run}
    faults = [fault.name for fault in d.faults]
    took = time.perf_counter() - began
    until = gone_by(d.duration.steps) if case.half == "sealed" and d.answer == "harmless" else 0.0
    return {
        **asdict(case), **seen, "faults": faults, "verdict": d.verdict.name, "will_train": str(d.will_train),
        "seconds": round(took, 1), "happened": happened(case, data, until), "commit": commit(),
    }  # fmt: skip


def commit() -> str:
    here = Path(__file__).parent
    return subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=here, capture_output=True, text=True
    ).stdout.strip()


def right(row: dict[str, Any]) -> bool:
    """FIX THIS on planted faults only; HARMLESS and NOTHING TO DO where it learns (and the bias has gone by the stated
    step); WORTH A CHANGE where it learned late or not at all, or the bias was left at the end of the run."""
    word, answer = row["happened"]["word"], row["answer"]
    if row["fault"] or answer == "fix this":
        return bool(row["fault"]) and answer == "fix this"
    if answer == "worth a change":
        return word != "usual speed" or left_at(row, row["run"]) > 0.25
    if answer == "harmless":
        return word != "not at all" and abs(left_at(row, gone_by(float(row["steps"])))) <= LEFT
    return answer == "nothing to do" and word != "not at all"


def gone_by(step: float) -> float:
    """When the bias has to be gone, where this step is stated."""
    return max(APART * step, step + LATER)


def left_at(row: dict[str, Any], step: float) -> float:
    """What is left of the starting bias at a step."""
    found = row["happened"]
    return float(np.interp(step, found["at"], found["left"])) if "at" in found else 0.0


def rows() -> list[dict[str, Any]]:
    if not RESULTS.exists():
        return []
    return [json.loads(line) for line in RESULTS.read_text("utf-8").splitlines()]


def run(half: str, part: int, parts: int) -> None:
    """All that are missing, of every `parts`-th case."""
    torch.set_num_threads(1)
    for case in cases(half)[part::parts]:
        if (half, case.number) in {(row["half"], row["number"]) for row in rows()}:
            continue
        row = judged(case)
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
        mark = "right" if right(row) else "WRONG"
        print(case.name, case.kind, row["answer"], row["happened"]["word"], mark, f"{row['seconds']} s", flush=True)


def table() -> None:
    """Answers by what happened, for each half."""
    words = ("usual speed", "late", "not at all")
    answers = ("fix this", "worth a change", "harmless", "nothing to do", "not known")
    for half in SEEDS:
        found = [row for row in rows() if row["half"] == half]
        code = Counter(row.get("commit", "older code") for row in found)
        run_on = ", ".join(f"{count} on {name}" for name, count in code.items())
        print(f"\n{half}: {sum(map(right, found))} of {len(found)} right ({run_on})")
        print("| answer | " + " | ".join(words) + " | planted fault | right |")
        print("|---|---|---|---|---|---|")
        for answer in answers:
            own = [row for row in found if row["answer"] == answer]
            counts = Counter("planted" if row["fault"] else row["happened"]["word"] for row in own)
            cells = [str(counts[word]) for word in (*words, "planted")]
            print(f"| {answer} | " + " | ".join(cells) + f" | {sum(map(right, own))} of {len(own)} |")
        for row in found:
            if not right(row):
                print(f"wrong: {row['half']}-{row['number']:02d} {row['kind']} {row['answer']}: {row['headline']}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("half", nargs="?", choices=list(SEEDS), default="made")
    parser.add_argument("--part", type=int, default=0, help="which of --parts, to share the work")
    parser.add_argument("--parts", type=int, default=1)
    asked = parser.parse_args()
    run(asked.half, asked.part, asked.parts) if asked.what == "run" else table()
