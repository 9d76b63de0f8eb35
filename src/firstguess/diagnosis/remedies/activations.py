"""Remedies by activations and weights: centred activations, the edge of chaos, a tuned family."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from firstguess.base.errors import FirstguessError
from firstguess.diagnosis.remedies import base
from firstguess.diagnosis.remedies.base import Case, Variant
from firstguess.modules.flow import trace_flow
from firstguess.network.activations.record import Activation
from firstguess.network.activations.registry import centered
from firstguess.network.causes_bias import causes_bias
from firstguess.network.layers import Activate, Conv, Dense, Layer
from firstguess.network.network import Network, pytorch_code
from firstguess.network.walk import needs_images, needs_tokens
from firstguess.theory.frontier import said
from firstguess.theory.phases.fixed_points import edge_of_chaos
from firstguess.theory.predict import predict
from firstguess.theory.tune import HARMLESS, tune

_CENTRED = "centre the activation"
_CENTRED_PRICE = "it becomes more nonlinear with every layer: little while shallow, much when deep"
_CENTRED_CODE = """class Centred(nn.Module):
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
_EDGE_CODE = """for m in model.modules():
    if isinstance(m, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        nn.init.normal_(m.weight, std=({weight_var:.6g} / m.weight[0].numel()) ** 0.5)
        if m.bias is not None:
            nn.init.normal_(m.bias, std={bias_var:.6g} ** 0.5)
"""
_CLOSE = 0.02  # relative distance from the edge that is not worth a change
_PREDICTIONS, _PART = 40, 0.3  # that tuning takes, and its part of the time for all remedies
_NONLINEAR = 1.5  # the nonlinearity aimed at: γ = 0.5 where the data bring none


def centred(case: Case) -> Iterator[Variant]:
    """φ − E φ in place of every φ that causes bias: it causes none (theory.md §4; IGB's shifted ReLU)."""
    example = case.example()
    places = () if example is None else example.named_modules(remove_duplicate=False)
    shared = [module for path, module in places if path and base.is_activation(module)]
    modules = () if example is None else example.named_modules()
    paths = [path for path, module in modules if path and base.is_activation(module)]
    # On the model itself, where each activation is a module of its own.
    code = base.pasted(_CENTRED_CODE.format(paths=paths)) if paths and len(shared) == len(paths) else ""

    def centre(layer: Layer, _: Layer | None) -> Layer | None:
        return Activate(centered(layer.phi)) if isinstance(layer, Activate) and causes_bias(layer.phi) else None

    describe = partial(base.described, title=_CENTRED, change=centre, price=_CENTRED_PRICE)
    yield from (replace(one, code=code) for one in case.either(describe, lambda: _of_model(case, paths)))


def _of_model(case: Case, paths: list[str]) -> Iterator[Variant]:
    means = Means()

    def wrap(model: nn.Module) -> nn.Module:
        for path in paths:
            module = model.get_submodule(path)
            if not isinstance(module, Centred):
                base.replace_module(model, path, Centred(module, path, means))
        return model

    for variant in base.of_modules(case, paths, wrap, _CENTRED, "", price=_CENTRED_PRICE):
        assert variant.model is not None
        source = case.source(variant.model)
        try:
            with source.isolated():
                trace_flow(source, case.batches, inits=4, seed=1, logits=case.pick)  # each forward notes its means
        except FirstguessError:
            return
        means.fix()
        yield replace(variant, edit="subtract its mean from each activation", source=source)


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


def edge(case: Case) -> Iterator[Variant]:
    """(σw², σb²) of a plain network (no norms, no skips, one activation) at the edge of chaos (theory.md (10))."""
    network = case.network
    plain = _plain(network) if network is not None else None
    if network is None or plain is None:
        return
    phi, weight_var, bias_var = plain
    try:
        target = edge_of_chaos(phi, bias_var=bias_var)
    except FirstguessError:
        return  # no edge, or none that can be found: nothing to offer
    if abs(target - weight_var) <= _CLOSE * target:
        return
    layers = tuple(layer.with_variances(target, bias_var) for layer in network.layers)
    shown = f"init=({target:.4g}, {bias_var:.3g})"
    # Where theory fails the model itself is drawn so; its gradients are still those of theory.
    drawn = None if case.trusted or case.model is None else case.source(case.model, (target, bias_var))
    yield Variant(
        f"weights at the edge of chaos (σw² {weight_var:.3g} → {target:.4g})",
        shown,
        network=Network(layers, network.classes),
        model=case.model if drawn is not None else None,
        source=drawn,
        aim="gradients",
        code="" if case.model is None else f"{base.IMPORTS}{_EDGE_CODE.format(weight_var=target, bias_var=bias_var)}",
        price="none in gradients; guesses of a deep plain network are biased there",
        note="at the edge gradients keep their size through any depth, once the signal's own size has settled",
        otherwise="for gradients, not for even guesses: deep plain networks at the edge are biased, and keep gradients",
    )


def _plain(network: Network) -> tuple[Activation, float, float] | None:
    """(φ, σw², σb²) of a network of dense or conv layers and one activation; None for any other."""
    hidden: tuple[Layer, ...] = network.layers[:-1]
    if not all(isinstance(layer, (Dense, Conv, Activate)) for layer in hidden):
        return None
    activations = [layer.phi for layer in hidden if isinstance(layer, Activate)]
    weighted = [layer for layer in hidden if isinstance(layer, (Dense, Conv))]
    if not activations or not weighted or any(phi.name != activations[0].name for phi in activations):
        return None
    count = len(weighted)
    weight_var = sum(layer.weight_var for layer in weighted) / count
    bias_var = sum(layer.bias_var for layer in weighted[1:] or weighted) / max(count - 1, 1)
    if any(abs(layer.weight_var - weight_var) > 0.2 * weight_var for layer in weighted):
        return None
    return activations[0], weight_var, bias_var


class TimeIsUp(FirstguessError):
    """Tuning would take too long."""


def tuned(case: Case) -> Iterator[Variant]:
    """The family's own parameter tuned at constant gradients, if that is less nonlinear (theory.md §10)."""
    network = case.network
    if network is None or needs_tokens(network.layers) or needs_images(network.layers):
        return
    given = base.signal_of(case.batches)
    gamma = _NONLINEAR * (1.0 + given.mean_square / given.variance) - 1.0
    began = time.perf_counter()
    try:
        predict(network, inputs=given)
        needed = _PREDICTIONS * (time.perf_counter() - began)
        if needed > _PART * case.seconds:
            expected = f"a network that is tuned in {_PART * case.seconds:.0f} s"
            hint = "fg.tune(fg.read(model, data).network, gamma=0.5)"
            raise TimeIsUp(expected, got=f"about {needed:.0f} s", hint=hint)
        s = tune(network, gamma=gamma, inputs=given)
    except TimeIsUp:
        raise
    except FirstguessError:
        return  # several activations, one without a knob, a norm that sets gradients itself: nothing to offer
    if s.before.nonlinearity <= s.nonlinearity:
        return
    title, price = f"tune it: {said(s)} at constant gradients", HARMLESS[:1].lower() + HARMLESS[1:].rstrip(".")
    yield Variant(title, str(s.network), s.network, code=pytorch_code(s.network), aim="training", price=price)
