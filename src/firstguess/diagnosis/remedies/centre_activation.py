"""Subtract the activation's own mean: φ − E φ causes no bias (theory.md §4; IGB's shifted ReLU)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from firstguess.base.errors import FirstguessError
from firstguess.diagnosis.remedies.base import Case, Variant, described, edited, is_activation, replace_module
from firstguess.modules.flow import trace_flow
from firstguess.network.activations.lookup import centered
from firstguess.network.bias_criterion import causes_bias
from firstguess.network.layers import Activate, Layer

TITLE = "centre the activation"


def variants(case: Case) -> Iterator[Variant]:
    """The network with φ − E φ in place of every φ that causes bias."""
    yield from case.either(lambda network: described(network, TITLE, _centred), _of_model)


def _of_model(case: Case) -> Iterator[Variant]:
    example = case.example()
    if example is None or case.model is None:
        return
    paths = [path for path, module in example.named_modules() if path and is_activation(module)]
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
        with source.lent():
            trace_flow(source, case.batches, inits=4, seed=1, logits=case.pick)  # each forward notes its means
    except FirstguessError:
        return
    means.fix()
    kinds = sorted({type(example.get_submodule(path)).__name__ for path in paths})
    yield Variant(TITLE, f"subtract its mean from each {' and '.join(kinds)}", model=model, source=source)


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
