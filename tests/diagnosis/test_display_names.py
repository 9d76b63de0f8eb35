"""Pages call a model and its data what the user calls them."""

from __future__ import annotations

import functools

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import firstguess as fg
from firstguess.diagnosis.session import data_name, model_name


class Mine(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Birds(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(2)


def make() -> nn.Module:
    return Mine()


def test_models() -> None:
    backbone = nn.Sequential(nn.Linear(3, 2))
    own = lambda: Mine()  # noqa: E731
    assert model_name(Mine()) == model_name(Mine) == "Mine"
    assert model_name(make) == model_name(functools.partial(make)) == "make"
    assert model_name(backbone) == "backbone"
    assert model_name(own) == "own"
    assert model_name(nn.Sequential(nn.Linear(3, 2))) == "Sequential, 1 layer, 8 parameters"
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    assert model_name(model) == "Sequential, 2 layers, 9.6 k parameters"  # 64·128 + 128 + 128·10 + 10 = 9 610


def test_data() -> None:
    x_train, y_train = np.zeros((4, 2)), np.zeros(4, dtype=int)
    pairs = (x_train, y_train)
    batches = [torch.zeros(3, 2)]
    loader = DataLoader(TensorDataset(torch.zeros(4, 2)), batch_size=2)
    assert data_name(x_train) == data_name((x_train, y_train)) == "x_train"
    assert data_name(pairs) == "pairs"
    assert data_name(batches) == "batches"
    assert data_name(loader) == "loader"
    assert data_name(DataLoader(Birds())) == data_name(Birds()) == "Birds"
    assert data_name(fg.data.blob(4, 2)) == "blob(n=4, d=2)"
    data = x = x_train.copy()
    assert data_name([[1.0]]) == data_name(data) == data_name(x) == "your data"


def test_a_diagnosis_has_both() -> None:
    little = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2))
    points = torch.randn(30, 5, generator=torch.Generator().manual_seed(0))
    d = fg.diagnose(little, points, inits=4, advice=False, seconds=20)
    assert (d.name, d.data_name) == ("little", "points")
    assert "\n\nlittle: " in str(d)  # after the answer
    assert d.provenance["data"]["name"] == "points"
    other = fg.diagnose(little, points, inits=4, advice=False, seconds=20, name="a net", data_name="rows")
    assert (other.name, other.data_name) == ("a net", "rows")
    assert (other.to_dict()["name"], other.to_dict()["data_name"]) == ("a net", "rows")
    assert "Sequential" not in str(other)
