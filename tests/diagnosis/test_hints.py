"""Mistakes that newcomers make, and the hint that each gets: one line that names what to type."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import firstguess as fg

X, Y = torch.randn(40, 64, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 3


def mlp(outputs: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, outputs))


def cnn(channels: int = 3) -> nn.Module:
    return nn.Sequential(nn.Conv2d(channels, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))


class Raising(nn.Module):
    """It has an error of its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise KeyError(len(x))


class Table:
    """What a pandas DataFrame with a column of texts shows of itself."""

    def __init__(self, names: list[str]) -> None:
        self.columns = names

    def __array__(self, *_: Any, **__: Any) -> Any:
        return np.array([[1.0, "a"], [2.0, "b"]], dtype=object)

    def select_dtypes(self, exclude: str) -> Table:
        assert exclude == "number"
        return Table(["label"])

    def __iter__(self) -> Any:
        return iter([self])


class Rows:
    """What a Hugging Face dataset shows of itself."""

    __module__ = "datasets.arrow_dataset"

    def __init__(self, kind: str | None) -> None:
        self.format = {"type": kind}

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"x": X[i], "label": Y[i]} if self.format["type"] else {"x": X[i].tolist(), "label": int(Y[i])}


def sklearn_model() -> Any:
    return type("LogisticRegression", (), {"__module__": "sklearn.linear_model"})()


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "1 another number of features": (
        lambda: fg.measure(mlp(), torch.randn(40, 32), inits=2), "first Linear takes 64 features, and the data have 32"
    ),
    "1 images to a Linear": (
        lambda: fg.measure(mlp(), torch.randn(40, 1, 8, 8), inits=2), "x.flatten(1), or nn.Flatten() as the first layer"
    ),
    "1 images to a Linear, explained": (
        lambda: fg.explain_guess(mlp(), (torch.randn(40, 1, 8, 8), Y)), "nn.Flatten() as the first layer"
    ),
    "1 images to a Linear, repaired": (
        lambda: fg.repair(mlp(), (torch.randn(40, 1, 8, 8), Y)), "nn.Flatten() as the first layer"
    ),
    "1 images to a Linear, with a prior": (
        lambda: fg.match_prior(mlp(), (torch.randn(40, 1, 8, 8), Y)), "nn.Flatten() as the first layer"
    ),
    "1 a model that raises, read": (lambda: fg.read(Raising(), X), "Try: a call of the model on one batch by hand"),
    "2 images with channels last": (
        lambda: fg.measure(cnn(), torch.randn(40, 8, 8, 3), inits=2), r"Try: x.permute(0, 3, 1, 2)"
    ),
    "2 images with other channels": (
        lambda: fg.measure(cnn(), torch.randn(40, 1, 8, 8), inits=2), "the convolution takes 3 channels, and is given 1"
    ),
    "3 one sample": (lambda: fg.measure(mlp(), X[0], inits=2), "Try: x[None] for one point, torch.stack(x)"),
    "3 a list of samples": (lambda: fg.measure(mlp(), list(X), inits=2), "torch.stack(x) for a list"),
    "4 labels as a third argument": (lambda: fg.diagnose(mlp(), X, Y), "Try: fg.diagnose(model, (x, y))"),
    "6 a Hugging Face dataset": (
        lambda: fg.measure(mlp(), Rows(None), inits=2), 'Try: dataset.with_format("torch")'
    ),
    "7 a column of texts": (lambda: fg.measure(mlp(), Table([]), inits=2), "label is not a number"),
    "8 texts": (lambda: fg.measure(mlp(), ["one text", "another"], inits=2), "Try: texts tokenized first"),
    "9 linear for dense": (
        lambda: fg.predict("20 x [linear > relu] > dense"), "dense in place of linear, which is the identity here"
    ),
    "9 Linear for dense": (lambda: fg.predict("Linear > relu > dense"), "a layer with weights is dense"),
    "10 a checkpoint": (lambda: fg.measure("runs/model.pt", X), "a checkpoint, at measure. Try: model = MyModel()"),
    "11 a state dict": (lambda: fg.diagnose(mlp().state_dict(), X), "these are weights without a network"),
    "11 an estimator": (
        lambda: fg.measure(sklearn_model(), X), "LogisticRegression is not one, so its weights cannot be re-initialized"
    ),
    "14 no data": (lambda: fg.diagnose(mlp(), None), "but got no data. Try: fg.diagnose(model, x)"),
    "15 nothing": (lambda: fg.diagnose(mlp()), "but got no data. Try: fg.diagnose(model, x)"),  # pyright: ignore
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_hint_says_what_to_type(mistake: str) -> None:
    work, hint = MISTAKES[mistake]
    with pytest.raises(fg.FirstguessError) as raised:
        work()
    assert hint in " ".join(str(raised.value).split())


def test_5_a_path_is_data(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=X.numpy(), y=Y.numpy())
    by_path = fg.measure(mlp(), tmp_path / "d.npz", inits=3)
    by_name = fg.measure(mlp(), str(tmp_path / "d.npz"), inits=3)
    assert by_path.points == by_name.points == 40


def test_6_a_dataset_that_gives_tensors_works() -> None:
    assert fg.measure(mlp(), Rows("torch"), inits=2).points == 40


def test_12_one_output_may_be_a_regression() -> None:
    d = fg.diagnose(mlp(1), X, inits=4, advice=False)
    assert any("read as two classes by its sign" in note for note in d.notes)
    assert not any("by its sign" in note for note in fg.diagnose(mlp(1), (X, Y % 2), inits=4, advice=False).notes)


def test_12_measure_says_so_too() -> None:
    said = "a regression has no guesses to judge"
    assert said in " ".join(str(fg.measure(mlp(1), X, inits=2)).split())
    assert said not in " ".join(str(fg.measure(mlp(1), (X, Y % 2), inits=2)).split())


def test_13_a_class_by_accident() -> None:
    found = fg.measure(nn.Sequential, X, inits=2).findings
    assert any("no parameters" in finding.message for finding in found)


def test_a_page_has_no_notes_on_the_work_that_nobody_asked_for() -> None:
    """How fast members ran; and what was not checked, because labels are out of range, which the fault says."""
    m = fg.measure(mlp(), X, inits=2)
    assert any("members run" in note for note in m.notes)
    assert "members run" not in str(m)
    for options in ({}, {"loss": nn.CrossEntropyLoss()}):
        d = fg.diagnose(mlp(2), (X, Y), inits=4, advice=False, progress=False, **options)
        assert d.to_fix[0].name == "labels out of range"
        assert "not checked" not in str(d)


def test_a_result_is_as_wide_as_columns_say(monkeypatch: pytest.MonkeyPatch) -> None:
    m = fg.measure(mlp(), X, inits=4)
    widths = []
    for columns in ("64", "80", "300"):
        monkeypatch.setenv("COLUMNS", columns)
        widths.append(max(map(len, str(m).splitlines())))
        assert widths[-1] <= int(columns)
    assert widths[0] < widths[-1] <= 100


def test_softmaxes_are_named_where_they_stand() -> None:
    model = nn.Sequential(*mlp(), nn.Softmax(-1), nn.Softmax(-1))  # type: ignore[misc]
    d = fg.diagnose(model, (X, Y), loss=nn.CrossEntropyLoss(), inits=4, advice=False, progress=False)
    assert (d.to_fix[0].name, d.to_fix[0].where) == ("softmax twice", "`4` (Softmax)")
