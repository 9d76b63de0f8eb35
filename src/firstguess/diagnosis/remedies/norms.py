"""Remedies by normalization layers: after the activation, and LayerNorm in place of RMSNorm, which does not centre."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import nn

from firstguess.diagnosis.remedies import base
from firstguess.diagnosis.remedies.base import Case, Variant
from firstguess.modules.flow import Flow
from firstguess.modules.members.initializers import is_norm
from firstguess.network.layers import Activate, BatchNorm, GroupNorm, Layer, LayerNorm, Residual, RMSNorm
from firstguess.network.network import Network
from firstguess.network.walk import every

_NORMS = (BatchNorm, LayerNorm, GroupNorm, RMSNorm)
_AFTER = "norm after the activation"
_AFTER_PRICE = "gradients grow with every layer towards the input: harmless while shallow, not in deep nets"
_AFTER_CODE = """for norm, phi in {pairs}:
    first, second = model.get_submodule(norm), model.get_submodule(phi)
    put(model, norm, second)
    put(model, phi, first)
"""
_LAYERNORM = "LayerNorm in place of RMSNorm"
_LAYERNORM_PRICE = "gradients grow with every layer towards the input, as after any norm that centres"
_LAYERNORM_CODE = """for path in {paths}:
    put(model, path, nn.LayerNorm(list(model.get_submodule(path).weight.shape)))
"""


def after_the_activation(case: Case) -> Iterator[Variant]:
    """Every plain [norm, activation] pair turned round: the norm removes the activation's mean (NORM, Th 4.2, 4.4)."""
    example = case.example()
    pairs = plain_pairs(example, case.flow) if example is not None and case.flow is not None else []

    def of_description(network: Network) -> Iterator[Variant]:
        layers, swapped = _turned(network.layers)
        if swapped:
            new = Network(layers, network.classes)
            rms = any(isinstance(layer, RMSNorm) for layer in every(network.layers))
            note = "RMSNorm does not centre: after the activation it removes no bias, LayerNorm does" if rms else ""
            yield Variant(_places(swapped), str(new), network=new, note=note, price=_AFTER_PRICE)

    def turn(model: nn.Module) -> nn.Module:
        for norm, phi in pairs:
            first, second = model.get_submodule(norm), model.get_submodule(phi)
            base.replace_module(model, norm, second)
            base.replace_module(model, phi, first)
        return model

    shown, code = [f"{a} <-> {b}" for a, b in pairs], base.pasted(_AFTER_CODE.format(pairs=pairs)) if pairs else ""
    of_model = partial(base.of_modules, case, shown, turn, _places(len(pairs)), "swap modules", price=_AFTER_PRICE)
    yield from (replace(variant, code=code) for variant in case.either(of_description, of_model))


def layernorm_for_rmsnorm(case: Case) -> Iterator[Variant]:
    """LayerNorm where an RMSNorm follows an activation, where it cures nothing (theory.md §2); in a model, at all."""
    example = case.example()
    modules = () if example is None else example.named_modules()
    paths = [path for path, module in modules if "rmsnorm" in type(module).__name__.lower()]

    def change(model: nn.Module) -> nn.Module:
        for path in paths:
            weight = getattr(model.get_submodule(path), "weight", None)
            if isinstance(weight, torch.Tensor):
                base.replace_module(model, path, nn.LayerNorm(list(weight.shape)))
        return model

    def layernorm(layer: Layer, before: Layer | None) -> Layer | None:
        return LayerNorm() if isinstance(layer, RMSNorm) and isinstance(before, Activate) else None

    code = base.pasted(_LAYERNORM_CODE.format(paths=paths))
    describe = partial(base.described, title=_LAYERNORM, change=layernorm, price=_LAYERNORM_PRICE)
    of_model = partial(
        base.of_modules, case, paths, change, _LAYERNORM, "nn.LayerNorm at", price=_LAYERNORM_PRICE, code=code
    )
    yield from case.either(describe, of_model)


def plain_pairs(model: nn.Module, flow: Flow) -> list[tuple[str, str]]:
    """(norm, activation) paths where the norm's output goes to the activation unchanged, and nowhere else."""
    calls = [step.name for step in flow.steps]
    modules = dict(model.named_modules())
    pairs: list[tuple[str, str]] = []
    for first, second in flow.only_to.items():
        norm, phi = modules.get(first), modules.get(second)
        if norm is None or phi is None or not is_norm(norm) or not base.is_activation(phi):
            continue
        again = any(name.startswith((f"{first}#", f"{second}#")) for name in calls)
        shared = sum(m is phi for _, m in model.named_modules(remove_duplicate=False)) > 1
        if not again and not shared:
            pairs.append((first, second))
    return pairs


def _places(count: int) -> str:
    return f"{_AFTER} ({count} place{'s' if count > 1 else ''})"


def _turned(layers: tuple[Layer, ...]) -> tuple[tuple[Layer, ...], int]:
    result: list[Layer] = []
    swapped = 0
    for layer in layers:
        before = result[-1] if result else None
        if isinstance(layer, Activate) and isinstance(before, _NORMS):
            result[-1:] = [layer, before]
            swapped += 1
            continue
        if isinstance(layer, Residual):
            (branch, one), (shortcut, other) = (_turned(path) for path in layer.paths)
            layer = Residual(branch, layer.scale, shortcut)
            swapped += one + other
        result.append(layer)
    return tuple(result), swapped
