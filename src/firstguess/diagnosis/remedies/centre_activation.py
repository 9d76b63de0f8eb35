"""Subtract the activation's own mean: φ − E φ causes no bias (theory.md §4; IGB's shifted ReLU)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from firstguess.base.errors import FirstguessError
from firstguess.diagnosis.remedies.base import (
    IMPORTS,
    PUT,
    Case,
    Variant,
    described,
    edited,
    is_activation,
    replace_module,
)
from firstguess.modules.flow import trace_flow
from firstguess.network.activations.registry import centered
from firstguess.network.bias_criterion import causes_bias
from firstguess.network.layers import Activate, Layer

TITLE = "centre the activation"
PRICE = "it becomes more nonlinear with every layer: little while shallow, much when deep"
_CODE = """class Centred(nn.Module):
    '''phi minus its mean over the first batch that it sees.'''

    def __init__(self, phi):
        super().__init__()
        self.phi = phi
        self.register_buffer("mean", None)

    def forward(self, x):
        y = self.phi(x)
        if self.mean is None:
            self.mean = y.detach().mean()
        return y - self.mean


for path in {paths}:
    put(model, path, Centred(model.get_submodule(path)))
"""


def variants(case: Case) -> Iterator[Variant]:
    """The network with φ − E φ in place of every φ that causes bias."""
    code = _code(case)
    for variant in case.either(lambda network: described(network, TITLE, _centred, price=PRICE), _of_model):
        yield replace(variant, code=code)


def _paths(example: nn.Module) -> list[str]:
    return [path for path, module in example.named_modules() if path and is_activation(module)]


def _code(case: Case) -> str:
    """On the model itself, where each activation is a module of its own."""
    example = case.example()
    if example is None:
        return ""
    paths = _paths(example)
    places = sum(1 for path, m in example.named_modules(remove_duplicate=False) if path and is_activation(m))
    return f"{IMPORTS}{PUT}{_CODE.format(paths=paths)}" if paths and places == len(paths) else ""


def _of_model(case: Case) -> Iterator[Variant]:
    example = case.example()
    if example is None or case.model is None:
        return
    paths = _paths(example)
    if not paths:
        return
    means = Means()

    def wrap(model: nn.Module) -> nn.Module:
        for path in paths:
            module = model.get_submodule(path)
            if not isinstance(module, Centred):
                replace_module(model, path, Centred(module, path, means))
        return model

    model = edited(case.model, wrap)
    if model is None:
        return
    source = case.source(model)
    try:
        with source.isolated():
            trace_flow(source, case.batches, inits=4, seed=1, logits=case.pick)  # each forward notes its means
    except FirstguessError:
        return
    means.fix()
    kinds = sorted({type(example.get_submodule(path)).__name__ for path in paths})
    edit = f"subtract its mean from each {' and '.join(kinds)}"
    yield Variant(TITLE, edit, model=model, source=source, price=PRICE)


def _centred(layer: Layer, _: Layer | None) -> Layer | None:
    return Activate(centered(layer.phi)) if isinstance(layer, Activate) and causes_bias(layer.phi) else None


class Means:
    """Means of activations by place, gathered over a few initializations and then fixed; copies of a model share it."""

    def __init__(self) -> None:
        self.seen: dict[str, list[float]] = {}
        self.fixed: dict[str, float] | None = None

    def fix(self) -> None:
        self.fixed = {place: float(np.mean(values)) for place, values in self.seen.items()}

    def __deepcopy__(self, _: Any) -> Means:
        return self


class Centred(nn.Module):
    """An activation minus a constant: the mean over nodes and data of this place in the network."""

    def __init__(self, phi: nn.Module, place: str, means: Means) -> None:
        super().__init__()
        self.phi, self.place, self.means = phi, place, means

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.phi(x)
        if self.means.fixed is None:
            mean = float(y.detach().mean())
            self.means.seen.setdefault(self.place, []).append(mean)
            return y - mean
        return y - self.means.fixed.get(self.place, 0.0)
