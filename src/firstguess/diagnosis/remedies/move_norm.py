"""Put the norm behind the activation: it then removes the mean that the activation brings (NORM, Th 4.2 and 4.4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torch import nn

from firstguess.diagnosis.remedies.base import IMPORTS, PUT, Case, Variant, edited, is_activation, replace_module
from firstguess.modules.flow import Flow
from firstguess.modules.members.initializers import is_norm
from firstguess.network.layers import Activate, BatchNorm, GroupNorm, Layer, LayerNorm, Residual, RMSNorm
from firstguess.network.network import Network
from firstguess.network.walk import every

_NORMS = (BatchNorm, LayerNorm, GroupNorm, RMSNorm)
TITLE = "norm after the activation"
PRICE = "gradients grow with every layer towards the input: harmless while shallow, not in deep nets"
_CODE = """for norm, phi in {pairs}:
    first, second = model.get_submodule(norm), model.get_submodule(phi)
    put(model, norm, second)
    put(model, phi, first)
"""


def variants(case: Case) -> Iterator[Variant]:
    """The network with every plain [norm, activation] pair turned round."""
    code = _code(case)
    for variant in case.either(_of_description, _of_model):
        yield replace(variant, code=code)


def _of_description(network: Network) -> Iterator[Variant]:
    layers, swapped = _turned(network.layers)
    if swapped:
        new = Network(layers, network.classes)
        yield Variant(_title(swapped), str(new), network=new, note=_rms(network.layers), price=PRICE)


def _of_model(case: Case) -> Iterator[Variant]:
    example = case.example()
    if example is None or case.model is None or case.flow is None:
        return
    pairs = plain_pairs(example, case.flow)
    if not pairs:
        return

    def turn(model: nn.Module) -> nn.Module:
        for norm, phi in pairs:
            first, second = model.get_submodule(norm), model.get_submodule(phi)
            replace_module(model, norm, second)
            replace_module(model, phi, first)
        return model

    model = edited(case.model, turn)
    if model is not None:
        shown = ", ".join(f"{a} <-> {b}" for a, b in pairs[:3]) + (", …" if len(pairs) > 3 else "")
        yield Variant(_title(len(pairs)), f"swap modules {shown}", model=model, price=PRICE)


def _code(case: Case) -> str:
    """The pairs of the model itself; nothing for a description, which is written out."""
    example = case.example()
    pairs = plain_pairs(example, case.flow) if example is not None and case.flow is not None else []
    return f"{IMPORTS}{PUT}{_CODE.format(pairs=pairs)}" if pairs else ""


def _title(places: int) -> str:
    return f"{TITLE} ({places} place{'s' if places > 1 else ''})"


def plain_pairs(model: nn.Module, flow: Flow) -> list[tuple[str, str]]:
    """(norm, activation) paths where the norm's output goes to the activation unchanged, and nowhere else."""
    calls = [step.name for step in flow.steps]
    modules = dict(model.named_modules())
    pairs: list[tuple[str, str]] = []
    for first, second in flow.only_to.items():
        norm, phi = modules.get(first), modules.get(second)
        if norm is None or phi is None or not is_norm(norm) or not is_activation(phi):
            continue
        again = any(name.startswith((f"{first}#", f"{second}#")) for name in calls)
        shared = sum(m is phi for _, m in model.named_modules(remove_duplicate=False)) > 1
        if not again and not shared:
            pairs.append((first, second))
    return pairs


def _turned(layers: tuple[Layer, ...]) -> tuple[tuple[Layer, ...], int]:
    result: list[Layer] = []
    swapped = 0
    index = 0
    while index < len(layers):
        layer = layers[index]
        following = layers[index + 1] if index + 1 < len(layers) else None
        if isinstance(layer, _NORMS) and isinstance(following, Activate):
            result += [following, layer]
            swapped += 1
            index += 2
            continue
        if isinstance(layer, Residual):
            (branch, one), (shortcut, other) = (_turned(path) for path in layer.paths)
            layer = Residual(branch, layer.scale, shortcut)
            swapped += one + other
        result.append(layer)
        index += 1
    return tuple(result), swapped


def _rms(layers: tuple[Layer, ...]) -> str:
    if any(isinstance(layer, RMSNorm) for layer in every(layers)):
        return "RMSNorm does not centre: behind the activation it cures nothing, LayerNorm does"
    return ""
