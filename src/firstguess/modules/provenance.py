"""Where a measurement comes from: versions of what computed it, and a hash of its data."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np

from firstguess._version import __version__

if TYPE_CHECKING:
    from firstguess.data import Batch


def versions() -> dict[str, Any]:
    """Of firstguess, Python, NumPy and torch."""
    return {
        "firstguess": __version__,
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "torch": metadata.version("torch"),
    }


def data_hash(batches: Sequence[Batch]) -> str:
    """Twelve hexadecimal digits of the SHA-256 of all inputs, in order, however they are cut into batches."""
    import torch

    parts: dict[str, Any] = {}
    for batch in batches:
        inputs: Any = batch.inputs
        listed: Any = inputs if isinstance(inputs, dict | tuple) else (inputs,)
        named: dict[Any, Any] = listed if isinstance(listed, dict) else dict(enumerate(listed))
        for name, leaf in named.items():
            if isinstance(leaf, torch.Tensor):
                digest = parts.setdefault(f"{name} {leaf.dtype} {tuple(leaf.shape[1:])}", hashlib.sha256())
                digest.update(leaf.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    whole = "; ".join(f"{name}: {parts[name].hexdigest()}" for name in sorted(parts))
    return hashlib.sha256(whole.encode()).hexdigest()[:12]
