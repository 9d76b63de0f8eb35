"""One rule for shared largest logits in measuring, training, predicting and watching; no bare arg-max of logits."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import firstguess as fg

N, CLASSES = 400, 4
X = torch.randn(N, 6, generator=torch.Generator().manual_seed(32))
Y = torch.arange(N) % CLASSES
APART = 5.5 * math.sqrt(0.25 * 0.75 / N)  # of a share of N points; < 1e-6 over all shares that are compared here


class Doubled(nn.Module):
    """The largest of four logits always stands twice."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x)[:, [0, 0, 1, 1]]


def zero_head() -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, CLASSES))
    for parameter in model[2].parameters():
        nn.init.zeros_(parameter)
    return model


def dead() -> nn.Module:
    """No unit of the hidden layer is ever above 0."""
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, CLASSES, bias=False))
    nn.init.constant_(model[0].bias, -1e3)
    return model


@pytest.mark.parametrize("make", [zero_head, dead])
def test_training_starts_level_where_nothing_is_guessed(make: Callable[[], nn.Module]) -> None:
    r = fg.train(make, data=(X, Y), inits=3, steps=1, lr=1e-3)
    assert np.abs(r.shares[:, 0] - 0.25).max() < APART
    assert np.array_equal(r.shares[:, 0], fg.measure(make, X, inits=3).guesses.fractions)  # the same ties, too
    with pytest.raises(fg.InvalidInput, match="starts that are biased"):
        fg.train(make, data=(X, Y), inits=1, steps=1, lr=1e-3, start="biased")


def test_doubled_logits_are_shared_by_both() -> None:
    shares = fg.train(Doubled, data=(X, Y), inits=20, steps=1, lr=1e-3).shares[:, 0]
    assert np.abs(shares[:, 0] - shares[:, 1]).max() < 2 * APART
    assert np.abs(shares[:, 2] - shares[:, 3]).max() < 2 * APART


def test_predicted_training_breaks_ties_alike() -> None:
    net, given = "dense(weight_var=2) > relu > dense", (X.numpy(), Y.numpy())
    zero = np.zeros((3, N, CLASSES))
    p = fg.predict_training(net, data=given, classes=CLASSES, lr=1e-4, steps=1, start=zero)
    assert np.abs(p.curves.largest.draws[:, 0] - 0.25).max() < APART


def test_watching_uses_the_rule() -> None:
    model = zero_head()
    with fg.Watch(model, (X, Y)) as watched:
        watched.step()
    assert np.abs(watched.result.looks[0].shares - 0.25).max() < APART


def test_logits_that_are_level_print_no_nan() -> None:
    told = str(fg.measure(zero_head, X, inits=2).logits)
    assert "nan" not in told
    assert "all guesses are ties" in told
    doubled = fg.measure(Doubled, X, inits=2).logits
    assert abs(doubled.shares[0] - doubled.shares[1]) < 2 * APART


# What may be arg-maxed: not logits, but shares, counts, labels, one-hot labels, masks, curves, normals.
ALLOWED = {
    "logits",  # in base/statistics.py, where the rule stands
    "flat", "y",  # one-hot labels
    "a.preferred", "chi[i] > 1.0", "labels", "np.bincount(labels)", "np.bincount(problem.labels)", "means",
    "tally.fractions", "now.fractions", "seen.fractions", "seen.fractions[member]", "shares", "self.shares", "start",
    "keep.int()", "of_tied", "top.int()", "counts", "bad[i]", "z", "real[:, ::-1]", "real.flip(1).long()", "share",
    "(ids == pad).sum(1)", "order", "back[:, ::-1]", "back", "options.rates", "first.shares", "times",
    "last.shares", "look.shares", "self.fractions", "size", "found.bias", "guesses.class_means",
}  # fmt: skip


def test_no_bare_argmax_of_logits() -> None:
    found: set[tuple[str, str]] = set()
    for path in sorted(Path(fg.__file__).parent.rglob("*.py")):
        if "papers" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if node.func.attr in ("argmax", "nanargmax"):
                of = node.func.value
                if isinstance(of, ast.Name) and of.id in ("np", "torch"):
                    of = node.args[0]
                found.add((ast.unparse(of), path.name))
    bare = sorted(
        (of, name)
        for of, name in found
        if (of not in ALLOWED and not of.endswith(".shares")) or (of == "logits" and name != "statistics.py")
    )
    assert not bare, "use firstguess.base.statistics.guesses for logits"
