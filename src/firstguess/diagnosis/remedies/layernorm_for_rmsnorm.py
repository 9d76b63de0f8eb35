"""LayerNorm in place of RMSNorm, which does not centre: behind an activation it cures nothing (theory.md §2)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from firstguess.diagnosis.remedies.base import IMPORTS, PUT, Case, Variant, described, edited, replace_module
from firstguess.network.layers import Activate, Layer, LayerNorm, RMSNorm

TITLE = "LayerNorm in place of RMSNorm"
PRICE = "gradients grow with every layer towards the input, as behind any norm that centres"
_CODE = """for path in {paths}:
    put(model, path, nn.LayerNorm(list(model.get_submodule(path).weight.shape)))
"""


def variants(case: Case) -> Iterator[Variant]:
    """The network with LayerNorm where an RMSNorm follows an activation; in a model, in place of every RMSNorm."""
    yield from case.either(lambda network: described(network, TITLE, _layernorm, price=PRICE), _of_model)


def _of_model(case: Case) -> Iterator[Variant]:
    example = case.example()
    if example is None or case.model is None:
        return
    paths = [path for path, module in example.named_modules() if "rmsnorm" in type(module).__name__.lower()]
    if not paths:
        return

    def change(model: nn.Module) -> nn.Module:
        for path in paths:
            old = model.get_submodule(path)
            weight = getattr(old, "weight", None)
            if isinstance(weight, torch.Tensor):
                replace_module(model, path, nn.LayerNorm(list(weight.shape)))
        return model

    model = edited(case.model, change)
    if model is not None:
        edit = f"nn.LayerNorm at {', '.join(paths[:3])}{', …' if len(paths) > 3 else ''}"
        yield Variant(TITLE, edit, model=model, code=f"{IMPORTS}{PUT}{_CODE.format(paths=paths)}", price=PRICE)


def _layernorm(layer: Layer, before: Layer | None) -> Layer | None:
    return LayerNorm() if isinstance(layer, RMSNorm) and isinstance(before, Activate) else None
