"""No message in a shell asks for a function of Python, which cannot be typed there."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import refused

import firstguess as fg
from firstguess.base.errors import InvalidInput
from firstguess.cli.output import in_shell

SOURCE = Path(fg.__file__).parent

MODELS = """
import torch
from torch import nn


class Words(nn.Linear):
    def __init__(self):
        super().__init__(6, 3)

    def forward(self, x):
        return "no logits"


class Whole(Words):
    def forward(self, x):
        return (super(Words, self).forward(x) > 0).long()


class Swapped(Words):
    def forward(self, x):
        return super(Words, self).forward(x)[None].expand(7, -1, -1)


class Deep(Words):
    def forward(self, x):
        return super(Words, self).forward(x)[:, :, None, None].expand(-1, -1, 2, 2)


class Plain(Words):
    def forward(self, x):
        return super(Words, self).forward(x)


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def broken(parameters):
    return torch.optim.SGD(parameters, rate=0.1)
"""


def hints() -> list[str]:
    """Every text of the package with a lambda, but for docstrings; what is filled in is a word."""
    found: list[str] = []
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docs = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
        parts = {id(part) for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for part in n.values}
        for node in ast.walk(tree):
            if id(node) in docs | parts or not isinstance(node, ast.Constant | ast.JoinedStr):
                continue
            values = node.values if isinstance(node, ast.JoinedStr) else [node]
            text = "".join(str(v.value) if isinstance(v, ast.Constant) else "word" for v in values)
            if "lambda " in text:
                found.append(text)
    return found


def test_every_hint_with_a_lambda_becomes_one_that_can_be_typed() -> None:
    found = hints()
    assert len(found) >= 10
    for hint in found:
        inner = InvalidInput("something", got="else", hint=hint)
        for error in (inner, InvalidInput("a model that runs", got=f"InvalidInput: {inner}", hint="another")):
            said = in_shell(str(error))
            assert "lambda" not in said, hint
            assert "MODULE:NAME" in said


def test_other_hints_stay() -> None:
    error = InvalidInput("a width", got=-1, where="predict(width)", hint="width=100")
    assert in_shell(str(error)) == str(error)
    assert in_shell("no lambda is asked for here") == "no lambda is asked for here"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("measure", "nets:Words"), "whose forward returns logits"),
        (("measure", "nets:Whole"), "whose forward returns logits"),
        (("measure", "nets:Swapped"), "whose forward returns logits"),
        (("diagnose", "nets:Deep"), "whose forward returns logits"),
        (("check", "nets:Words"), "whose forward returns logits"),
        (("train", "nets:Plain", "--optimizer", "nets:optimizer", "--lr", "0.1", "--steps", "2"), "--optimizer MODULE"),
        (("train", "nets:Plain", "--optimizer", "nets:broken", "--steps", "2"), "--optimizer MODULE"),
    ],
)
def test_models_that_need_a_function_are_told_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], hint: str
) -> None:
    (tmp_path / "nets.py").write_text(MODELS)
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "xy.npz", x=rng.normal(size=(20, 6)).astype(np.float32), y=np.arange(20) % 3)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "nets", raising=False)
    line = refused(*words, "--data", "xy.npz")
    assert "lambda" not in line
    assert hint in line.partition(" Try: ")[2]
