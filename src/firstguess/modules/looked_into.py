"""A model as it stands, for forwards that leave no trace."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch
from torch import nn

from firstguess.modules.guard import PrivateRandomness, borrowed, every_module_called, unwrapped
from firstguess.modules.initializers import RUNNING_NORMS
from firstguess.modules.sources import Mode


@contextmanager
def looked_into(model: nn.Module, mode: Mode) -> Generator[nn.Module]:
    """The model inside its wrappers, without dropout and gradients, for forwards that leave no trace.

    BatchNorm normalizes by the batch, as in training; those that were put in eval mode while the rest trains stay so.
    """
    inner = unwrapped(model)
    cached = torch.is_autocast_cache_enabled()
    with (
        torch.inference_mode(False),
        torch.no_grad(),
        PrivateRandomness(0),
        every_module_called(),
        borrowed(inner, parameters=False),
    ):
        found = inner.training
        for module in inner.modules():
            own = module.training or not found
            module.training = mode == "train" and own and isinstance(module, RUNNING_NORMS)
        # A weight that is cast here, without gradient, must not be the one that training then finds in the cache.
        torch.set_autocast_cache_enabled(False)
        try:
            yield inner
        finally:
            torch.set_autocast_cache_enabled(cached)
