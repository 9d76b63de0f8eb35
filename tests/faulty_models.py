"""Models with a named fault: each fault on a dense, a convolutional and an attention network, in several variants."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

POINTS, CLASSES = 192, 5


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1000 + seed))


def labels(n: int = POINTS, classes: int = CLASSES) -> torch.Tensor:
    return torch.arange(n) % classes


class Dense(nn.Module):
    """An MLP on 20 numbers."""

    shape = (20,)

    def __init__(self, act: Callable[[], nn.Module] = nn.ReLU, norm: bool = False, classes: int = CLASSES) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for fan_in in (20, 48):
            layers += [nn.Linear(fan_in, 48), *([nn.BatchNorm1d(48)] if norm else []), act()]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(48, classes)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x))


class Conv(nn.Module):
    """A CNN on images of 8 × 8."""

    shape = (3, 8, 8)

    def __init__(self, act: Callable[[], nn.Module] = nn.ReLU, norm: bool = False, classes: int = CLASSES) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for fan_in in (3, 24):
            layers += [nn.Conv2d(fan_in, 24, 3, padding=1), *([nn.BatchNorm2d(24)] if norm else []), act()]
        self.body = nn.Sequential(*layers, nn.MaxPool2d(2))
        self.head = nn.Linear(24 * 16, classes)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x).flatten(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x))


class Attention(nn.Module):
    """A transformer of one block on sequences of 6 × 16, with attention written out."""

    shape = (6, 16)

    def __init__(self, act: Callable[[], nn.Module] = nn.ReLU, norm: bool = False, classes: int = CLASSES) -> None:
        super().__init__()
        self.embed = nn.Linear(16, 32)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.first = nn.BatchNorm1d(32) if norm else nn.LayerNorm(32)
        self.second = nn.LayerNorm(32)
        self.mlp = nn.Sequential(nn.Linear(32, 64), act(), nn.Linear(64, 32))
        self.head = nn.Linear(32, classes)

    def scores(self, scores: torch.Tensor) -> torch.Tensor:
        return scores

    def features(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        y = self.first(x.flatten(0, 1)).view_as(x) if isinstance(self.first, nn.BatchNorm1d) else self.first(x)
        q, k, v = self.qkv(y).chunk(3, -1)
        x = x + self.out(self.scores(q @ k.mT / math.sqrt(32)).softmax(-1) @ v)
        return (x + self.mlp(self.second(x))).mean(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x))


class Encoder(nn.Module):
    """torch's own encoder, with its masks."""

    shape = (6, 16)

    def __init__(self, hide: str = "", classes: int = CLASSES) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(16, classes)
        self.hide = hide

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.ones(x.shape[:2], dtype=torch.bool)
        if self.hide == "padding":
            return self.head(self.encoder(x, src_key_padding_mask=hidden).mean(1))
        mask = torch.ones(6, 6, dtype=torch.bool) if self.hide == "attention" else None
        return self.head(self.encoder(x, mask=mask).mean(1))


ARCHITECTURES: tuple[type[Any], ...] = (Dense, Conv, Attention)


class Ended(nn.Module):
    """A model, and something after it (or before it)."""

    def __init__(
        self, model: nn.Module, end: Callable[[Any], Any] | None = None, start: Callable[[Any], Any] | None = None
    ) -> None:
        super().__init__()
        self.model = model
        self.end, self.start = end, start

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.model(x if self.start is None else self.start(x))
        return y if self.end is None else self.end(y)


@dataclass
class Faulty:
    fault: str  # what is wrong, as the issue has it
    names: tuple[str, ...]  # of the faults, any of which is right
    variant: str
    model: nn.Module
    data: Any
    refused: str = ""  # where one clear line is the answer: what it says
    also: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def id(self) -> str:
        return f"{self.fault}, {self.variant}".replace(" ", "_")


def changed(model: nn.Module, change: Callable[[Any], Any]) -> nn.Module:
    with torch.no_grad():
        change(model)
    return model


def _times(factor: float, only: str = "", biases: bool = True) -> Callable[[nn.Module], None]:
    def change(model: nn.Module) -> None:
        for name, parameter in model.named_parameters():
            if name.startswith(only) and (biases or parameter.ndim > 1):
                parameter.mul_(factor)

    return change


def faulty_models(seed: int = 0) -> Iterator[Faulty]:
    """Every fault on every architecture that can have it, in at least three variants."""
    for kind in ARCHITECTURES:
        torch.manual_seed(seed)
        x = noise(POINTS, *kind.shape, seed=seed)
        yield from _of_heads(kind, x)
        yield from _of_layers(kind, x)
        yield from _of_data(kind, x)
    yield from _of_masks(seed)


def _of_heads(kind: type[Any], x: torch.Tensor) -> Iterator[Faulty]:
    name, data = kind.__name__, (x, labels())

    def one(fault: str, names: str | tuple[str, ...], variant: str, model: nn.Module) -> Faulty:
        return Faulty(fault, (names,) if isinstance(names, str) else names, f"{name}: {variant}", model, data)

    def zero(model: Any, bias: float | None) -> None:
        model.head.weight.zero_()
        if bias is not None:
            model.head.bias.fill_(bias)

    yield one("zero head", "zero head", "weights and bias", changed(kind(), lambda m: zero(m, 0.0)))
    yield one("zero head", "zero head", "weights", changed(kind(), lambda m: zero(m, None)))
    yield one(
        "zero head", "zero head", "one row for all", changed(kind(), lambda m: (zero(m, 0.3), m.head.weight.add_(0.1)))
    )
    for value in (3.0, 10.0):
        model = changed(kind(), lambda m, value=value: m.head.bias[2].fill_(value))
        yield one("head bias set for one class", "head bias", f"bias {value:g}", model)
    model = changed(kind(classes=2), lambda m: m.head.bias.copy_(torch.tensor([5.0, 0.0])))
    yield Faulty("head bias set for one class", ("head bias",), f"{name}: two classes", model, (x, labels(classes=2)))
    model = changed(kind(), lambda m: m.head.bias[0].fill_(8.0))
    yield one(
        "head bias set for one class", "head bias", "before log_softmax", Ended(model, lambda z: z.log_softmax(1))
    )

    yield one("softmax twice", "softmax twice", "one, and the loss's", Ended(kind(), lambda z: z.softmax(1)))
    yield one("softmax twice", "softmax twice", "module", nn.Sequential(kind(), nn.Softmax(dim=1)))
    yield one("softmax twice", "softmax twice", "two", Ended(kind(), lambda z: z.softmax(1).softmax(1)))
    yield one(
        "softmax twice", "softmax twice", "and its logarithm", Ended(kind(), lambda z: F.log_softmax(z.softmax(1), 1))
    )
    yield one("softmax over the batch", "softmax over the batch", "dim 0", Ended(kind(), lambda z: z.softmax(0)))
    yield one("softmax over the batch", "softmax over the batch", "module", nn.Sequential(kind(), nn.Softmax(dim=0)))
    yield one("softmax over the batch", "softmax over the batch", "log", Ended(kind(), lambda z: z.log_softmax(0)))
    yield one("ReLU after the head", "ReLU after the head", "module", nn.Sequential(kind(), nn.ReLU()))
    yield one("ReLU after the head", "ReLU after the head", "in place", nn.Sequential(kind(), nn.ReLU(inplace=True)))
    yield one("ReLU after the head", "ReLU after the head", "clamp", Ended(kind(), lambda z: z.clamp(min=0)))
    yield one("ReLU after the head", "ReLU after the head", "function", Ended(kind(), F.relu))
    yield one("log(0)", "log(0)", "of a sharp softmax", Ended(kind(), lambda z: (1e4 * z).softmax(1).log()))
    yield one("log(0)", "log(0)", "of a ReLU", Ended(kind(), lambda z: torch.log(F.relu(z))))
    yield one("log(0)", "log(0)", "of the inputs", Ended(kind(), start=lambda z: z.clamp(min=0).log()))
    for value in (1e-4, 1e-35):
        fade = ("vanishing logits",)
        yield one("weights ×1e-4, logits at 1e-35", fade, f"all ×{value:g}", changed(kind(), _times(value)))
    yield one("weights ×1e-4, logits at 1e-35", fade, "weights ×1e-4", changed(kind(), _times(1e-4, biases=False)))
    yield one("weights ×1e-4, logits at 1e-35", fade, "head ×1e-4", changed(kind(), _times(1e-4, "head")))
    yield one("weights ×1e-4, logits at 1e-35", fade, "logits ×1e-35", Ended(kind(), lambda z: z * 1e-35))


def _of_layers(kind: type[Any], x: torch.Tensor) -> Iterator[Faulty]:
    name, data = kind.__name__, (x, labels())
    first = {"Dense": "body.2", "Conv": "body.2", "Attention": "mlp.0"}[name]

    def one(fault: str, names: str, variant: str, model: nn.Module) -> Faulty:
        return Faulty(fault, (names,), f"{name}: {variant}", model, data)

    def bias(value: float, path: str = first) -> Callable[[nn.Module], None]:
        return lambda m: m.get_submodule(path).bias.fill_(value)

    def negative(m: nn.Module) -> None:
        layer = m.get_submodule(first)
        layer.weight.mul_(0.1)
        layer.bias.copy_(-3 * layer.bias.abs() - 3)

    yield one("dead ReLUs", "dead units", "bias −100", changed(kind(), bias(-100.0)))
    yield one("dead ReLUs", "dead units", "bias −10", changed(kind(), bias(-10.0)))
    yield one("dead ReLUs", "dead units", "small weights, negative biases", changed(kind(), negative))
    for value in (30.0, -30.0):
        yield one("saturated tanh", "saturated outputs", f"bias {value:g}", changed(kind(nn.Tanh), bias(value)))
    large = changed(kind(nn.Tanh), lambda m: m.get_submodule(first).weight.mul_(100))
    yield one("saturated tanh", "saturated outputs", "weights ×100", large)
    large = changed(kind(nn.Sigmoid), lambda m: m.get_submodule(first).weight.mul_(300))
    yield one("saturated tanh", "saturated outputs", "sigmoid, weights ×300", large)
    fresh = "batchnorm in eval mode before training"
    yield one("eval-mode BatchNorm before training", fresh, "eval()", kind(norm=True).eval())
    half = kind(norm=True)
    for module in half.modules():
        if "BatchNorm" in type(module).__name__:
            module.eval()
    yield one("eval-mode BatchNorm before training", fresh, "norms only", half)
    yield one("eval-mode BatchNorm before training", fresh, "tanh", kind(nn.Tanh, norm=True).eval())
    every = (("module", nn.Dropout(1.0)), ("in eval mode", nn.Dropout(1.0).eval()))
    for variant, dropout in every:
        model = kind()
        model.head = nn.Sequential(dropout, model.head)
        yield one("Dropout(1)", "Dropout(1)", variant, model.train(dropout.training))
    model = kind()
    model.start = None
    body = model.features
    model.features = lambda x: F.dropout(body(x), 1.0, model.training)
    yield one("Dropout(1)", "Dropout(1)", "function", model)
    one_in_front = Ended(kind(), start=lambda x: F.dropout(x, p=1.0, training=True))
    yield one("Dropout(1)", "Dropout(1)", "of the inputs", one_in_front)


def _of_data(kind: type[Any], x: torch.Tensor) -> Iterator[Faulty]:
    name = kind.__name__

    def one(fault: str, names: str | tuple[str, ...], variant: str, data: Any, **more: Any) -> Faulty:
        model = more.pop("model", None) or kind()
        return Faulty(fault, (names,) if isinstance(names, str) else names, f"{name}: {variant}", model, data, **more)

    pixels = (128 + 60 * x).clamp(0, 255).round()
    yield one("0–255 pixels", "unscaled inputs", "whole numbers", (pixels, labels()))
    yield one("0–255 pixels", "unscaled inputs", "without labels", pixels)
    yield one("0–255 pixels", "unscaled inputs", "blurred", (pixels * 0.9 + 10, labels()))
    wide = Ended(kind(), start=lambda x: x.float())
    yield one("0–255 pixels", "unscaled inputs", "uint8", (pixels.to(torch.uint8), labels()), model=wide)
    for variant, value in (("NaN", math.nan), ("Inf", math.inf)):
        bad = x.clone()
        bad.view(-1)[77] = value
        yield one("NaN in the data", (), variant, (bad, labels()), refused="NaN or Inf in 1 of")
    bad = x.clone()
    bad[5] = math.nan
    yield one(
        "NaN in the data", (), "a point, in batches", [(bad[:96], labels(96)), (bad[96:], labels(96))], refused="NaN"
    )
    same = ("identical inputs", "inputs replaced by their mean", "same output for all inputs")
    yield one("inputs replaced by their mean", same[:2], "of all", (x.mean(0, keepdim=True).expand_as(x) + 0, labels()))
    own = x.flatten(1).mean(1).view(-1, *[1] * (x.ndim - 1)).expand_as(x) + 0
    yield one("inputs replaced by their mean", same[:2], "its own", (own, labels()))
    inside = Ended(kind(), start=lambda x: x.mean(0, keepdim=True).expand_as(x))
    yield one("inputs replaced by their mean", same, "in the model", (x, labels()), model=inside)
    yield one("identical inputs", "identical inputs", "copies", (x[:1].expand_as(x) + 0, labels()))
    yield one("identical inputs", "identical inputs", "zeros", (torch.zeros_like(x), labels()))
    yield one("identical inputs", "identical inputs", "up to rounding", (x[:1] * (1 + 1e-7 * torch.sign(x)), labels()))
    yield one("labels out of range", "labels out of range", "from 1 on", (x, labels() + 1))
    yield one("labels out of range", "labels out of range", "negative", (x, labels() - 1))
    yield one("labels out of range", "labels out of range", "of ten classes", (x, torch.arange(POINTS) % 10))


class Hiding(Attention):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def scores(self, scores: torch.Tensor) -> torch.Tensor:
        return scores.masked_fill(torch.ones_like(scores, dtype=torch.bool), self.value)


class Tokens(nn.Module):
    """A text classifier that takes a mask, and averages what it leaves."""

    def __init__(self, floor: float = 0.0, every: bool = False) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(50, 32), nn.Linear(32, CLASSES)
        self.floor, self.every = floor, every

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        x = self.embed(input_ids)
        if self.every:
            return self.head(torch.relu(x))
        kept = attention_mask[..., None].to(x.dtype)
        return self.head((x * kept).sum(1) / kept.sum(1).clamp_min(self.floor))


def _of_masks(seed: int) -> Iterator[Faulty]:
    fault, names = "mask that hides everything", ("mask that hides everything",)
    torch.manual_seed(seed)
    x = noise(POINTS, 6, 16, seed=seed)
    for value in (-math.inf, -1e9, torch.finfo(torch.float32).min):
        yield Faulty(fault, names, f"Attention: scores {value:.3g}", Hiding(value), (x, labels()))
    for hide in ("padding", "attention"):
        yield Faulty(fault, names, f"Encoder: {hide} mask", Encoder(hide), (x, labels()))
    ids = torch.randint(0, 50, (POINTS, 6), generator=torch.Generator().manual_seed(seed))
    tokens = {"input_ids": ids, "attention_mask": torch.zeros(POINTS, 6, dtype=torch.long), "labels": labels()}
    yield Faulty(fault, names, "Tokens: average of nothing", Tokens(), tokens)
    yield Faulty(fault, names, "Tokens: 0 for nothing", Tokens(1e-6), tokens)
    del tokens["labels"]
    refused = "an attention_mask that hides every token"
    yield Faulty(fault, (), "Tokens: a guess at every token", Tokens(every=True), tokens, refused)
