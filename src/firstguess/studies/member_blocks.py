"""Members of an ensemble as a piece of a store, and back: every bit of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from firstguess.ensemble.blocks import Trained
from firstguess.ensemble.members import Finding, Members
from firstguess.studies.store import Piece

_TRAINED = "trained "
_OPTIONAL = {"shapes": np.float64, "logits": np.float32, "own": np.float64}


def packed(members: Members | Trained, total: int, size: int) -> Piece:
    """A block, with how many members there are in all and how many a block has."""
    if isinstance(members, Trained):
        arrays = {f"{_TRAINED}{name}": values for name, values in members.arrays.items()}
        return {"start": members.start, "total": total, "size": size, **arrays}
    piece: dict[str, Any] = {
        "start": members.start,
        "total": total,
        "size": size,
        "fractions": members.fractions,
        "ties": members.ties,
        "stats": members.stats,
        "findings": json.dumps([finding.to_dict() for finding in members.findings]),
    }
    for name in _OPTIONAL:
        if (value := getattr(members, name)) is not None:
            piece[name] = value
    return piece


def unpacked(piece: Mapping[str, Any]) -> Members | Trained:
    """The members of a block."""
    trained = {name[len(_TRAINED) :]: np.asarray(piece[name]) for name in piece if name.startswith(_TRAINED)}
    if trained:
        return Trained(int(piece["start"]), trained)
    more: dict[str, Any] = {
        name: np.asarray(piece[name], dtype) if name in piece else None for name, dtype in _OPTIONAL.items()
    }
    return Members(
        int(piece["start"]),
        np.asarray(piece["fractions"]),
        np.asarray(piece["ties"]),
        np.asarray(piece["stats"]),
        tuple(Finding.from_dict(found) for found in json.loads(piece["findings"])),
        **more,
    )
