"""Modules and functions that are nothing to a description: dropout, flattening, softmax at the end, copies."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from firstguess.network.layer import Meaning
from firstguess.network.meaning import FLAT, Call, Site

_DROPOUT = "dropout is off at initialization, and left out"
_SOFTMAX = Meaning(
    why="a softmax within the network has no closed form here",
    last="softmax does not change which class is guessed, and is left out at the end",
)


def _nothing(module: Any, site: Site) -> Meaning:
    return Meaning()


def _dropout(module: Any, site: Site) -> Meaning:
    return Meaning(notes=(_DROPOUT,))


def _softmax(module: Any, site: Site) -> Meaning:
    return _SOFTMAX


def _flatten(module: Any, site: Site) -> Meaning:
    whole = module.start_dim == 1 and module.end_dim == -1
    return Meaning(axes=FLAT) if whole else Meaning(why="flattens some axes only")


PASSIVE: dict[type[nn.Module], Callable[[Any, Site], Meaning]] = {
    nn.Identity: _nothing,
    nn.Dropout: _dropout,
    nn.Dropout1d: _dropout,
    nn.Dropout2d: _dropout,
    nn.Dropout3d: _dropout,
    nn.AlphaDropout: _dropout,
    nn.FeatureAlphaDropout: _dropout,
    nn.Softmax: _softmax,
    nn.LogSoftmax: _softmax,
    nn.Softmax2d: _softmax,
    nn.Flatten: _flatten,
}


def _dropout_call(call: Call) -> Meaning:
    on = call.argument(2, "train" if call.target is torch.dropout else "training", True)
    if on is False or call.argument(1, "p", 0.5) == 0:
        return Meaning(notes=(_DROPOUT,))
    return Meaning(why="this dropout is on in evaluation as well; write training=self.training, or nn.Dropout")


_COPIES = (torch.clone, torch.detach, operator.pos)
_COPYING = (  # methods
    "contiguous", "clone", "detach", "float", "double", "half", "bfloat16", "to", "type", "requires_grad_",
)  # fmt: skip
_DROPOUTS = (
    F.dropout, torch.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout,
)  # fmt: skip
_SOFTMAXES = (F.softmax, F.log_softmax, torch.softmax, torch.log_softmax, "softmax", "log_softmax")


def passive_call(call: Call) -> Meaning | None:
    """The meaning of a function or method (by its name) that is none of a layer's, None if this is no such one."""
    if call.target in _COPIES or call.target in _COPYING:
        return Meaning()
    if call.target in _DROPOUTS:
        return _dropout_call(call)
    return _SOFTMAX if call.target in _SOFTMAXES else None
