"""What layers use of torch, loaded when one first asks for it: descriptions load no torch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from firstguess.network import torch_ops as ops
    from firstguess.network.activations import tensors as spelled
else:

    class _Loaded:
        def __init__(self, module: str) -> None:
            self._module = module

        def __getattr__(self, name: str) -> Any:
            return getattr(importlib.import_module(self._module), name)

    ops = _Loaded("firstguess.network.torch_ops")
    spelled = _Loaded("firstguess.network.activations.tensors")

__all__ = ["ops", "spelled"]
