"""Tiny settings for items on training: arms made of given curves, and a `Run` whose sizes and data are a test's own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from firstguess_papers.items import Item
from firstguess_papers.running import Run
from firstguess_papers.training_pieces import Arm, draws_of

import firstguess as fg
from firstguess.studies.store import Store
from firstguess.theory.training.curves import Accuracy, Curve, Curves


def curves_of(steps: Any, favoured: Any, others: Any) -> Curves:
    """Curves of networks that favour class 0 of two even ones; rows are networks."""
    steps = np.asarray(steps, dtype=np.int64)
    one, two = (np.atleast_2d(np.asarray(x, dtype=float)) for x in (favoured, others))
    groups: dict[Any, Any] = {"favoured": one, "others": two, 0: one, 1: two}
    share = 0.5 + np.abs(one - two) / 2
    return Curves(Curve(steps, share), Accuracy(steps, (one + two) / 2, groups), Curve(steps, 1 - (one + two) / 2))


def arm_of(steps: Any, favoured: Any, others: Any, *, held: tuple[Any, Any] | None = None) -> Arm:
    """A trained arm with these recalls."""
    draws = draws_of(curves_of(steps, favoured, others))
    draws |= {} if held is None else draws_of(curves_of(steps, *held), "test ")
    return Arm("arm", np.asarray(steps), draws, 0.6)


def around(values: Any, networks: int = 12, noise: float = 0.01) -> Any:
    """The same curve for every network, up to a little noise."""
    rng = np.random.default_rng(5)
    return np.asarray(values, dtype=float) + noise * rng.standard_normal((networks, len(values)))


@dataclass
class TinyRun(Run):
    """Data are noise with a signal, of the shape of the data set asked for."""

    def data(self, spec: str, **options: Any) -> Any:
        shape = (3, 32, 32) if spec.startswith("cifar10") else (1, 12, 12)
        rng = np.random.default_rng(7)
        n = int(options["points"])
        y = np.arange(n) % 2
        x = rng.standard_normal((n, *shape)) + 0.5 * (2 * y - 1).reshape(-1, 1, 1, 1)
        return fg.data.as_data((x.astype(np.float32), y))


def tiny(item: Item, folder: Path, sizes: dict[str, Any]) -> TinyRun:
    """A quick run of an item at the test's own sizes."""
    return TinyRun(item, True, Store(folder), changed=sizes)
