"""docs/fields.md names every field of the results that it is about, and results have no field twice by other names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import firstguess as fg
from firstguess.data import blob

PAGE = Path(__file__).parents[2] / "docs" / "fields.md"
NET = "dense > relu > dense"


def watched() -> Any:
    watch = fg.Watch(nn.Linear(20, 2), (torch.randn(60, 20), torch.arange(60) % 2))
    watch.step(0)
    return watch.result


RESULTS = {
    "Measurement": lambda: fg.measure(NET, blob(60, 20), inits=5, width=20),
    "Prediction": lambda: fg.predict(NET, data=blob(30, 20), draws=200),
    "Watched training": watched,
    "Repaired and matched": lambda: fg.repair(nn.Sequential(nn.Linear(20, 3)), torch.randn(60, 20), gamma=0.0),
    "Repaired and matched ": lambda: fg.match_prior(nn.Linear(20, 2), (torch.randn(60, 20), torch.arange(60) % 2)),
}


@pytest.mark.parametrize("section", RESULTS)
def test_every_field_is_on_the_page(section: str) -> None:
    text = PAGE.read_text("utf-8").split(f"## {section.strip()}", 1)[1].split("\n## ", 1)[0]
    named = set(re.findall(r"`(\w+)`", text))
    data = RESULTS[section]().to_dict()
    assert set(data) <= named, sorted(set(data) - named)
    layers = data.get("layers")
    if layers:
        assert set(layers[-1]) <= named
    assert "regime" not in data  # the verdict's thresholds are others: two words for one network


def test_a_measurements_dict_has_what_its_table_prints() -> None:
    m = fg.measure(NET, blob(60, 20), inits=12, width=20)
    data = m.to_dict()
    assert data["gamma_interval"] == m.gamma_interval.tolist()
    assert data["correlation_se"] == [layer.correlation_se for layer in m.weights_layers]
    assert data["over_90"] == m.guesses.prob_max_above(0.9)
    assert data["over_90_interval"] == list(m.guesses.interval(("prob_max_above", 0.9)))
    assert fg.predict(NET).to_dict()["over_90"] == fg.predict(NET).guesses.prob_max_above(0.9)
