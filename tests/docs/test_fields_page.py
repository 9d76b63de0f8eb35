"""docs/fields.md names every field of the results that it is about, and results have no field twice by other names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
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
    "Explained guess": lambda: fg.explain_guess(nn.Sequential(nn.Linear(20, 3)), torch.randn(60, 20), inits=4),
    "Trained networks": lambda: fg.train(NET, data=(blob(30, 20).x, np.arange(30) % 2), inits=2, width=10, steps=2),
    "Comparison": lambda: fg.compare(
        fg.predict(NET, data=blob(30, 20), draws=200), fg.measure(NET, blob(30, 20), inits=4, width=20)
    ),
    "Diagnosis": lambda: fg.diagnose(nn.Sequential(nn.Linear(20, 3)), torch.randn(60, 20), seconds=3.0),
    "Phases": lambda: fg.phase_diagram("tanh", weight_vars=[1.0, 2.0], bias_vars=[0.1]),
    "Phases ": lambda: fg.fixed_point("tanh", weight_var=1.2, bias_var=0.1),
    "Prediction ": lambda: fg.predict(NET, width=50),
    "Trained networks ": lambda: fg.predict_training(
        NET, data=(blob(30, 20).x, np.arange(30) % 2), lr=0.1, steps=4, width=30
    ),
    "Gradients": lambda: fg.measure_gradients(NET, (blob(30, 20).x, np.arange(30) % 2), inits=3, width=10),
    "Tuned": lambda: fg.tune(fg.mlp(depth=3), gamma=0.3),
    "Frontier": lambda: fg.frontier(fg.mlp(depth=3)),
    "Bias of the data": lambda: fg.data_bias(blob(30, 20)),
    "Logits": lambda: fg.measure(NET, blob(60, 20), inits=3, width=20).logits,
    "Structure": lambda: fg.read(nn.Sequential(nn.Linear(20, 5), nn.ReLU(), nn.Linear(5, 2)), torch.randn(4, 20)),
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
    assert not {"regime", "verdict"} <= set(data)  # the verdict's thresholds are others: two words for one network


def test_a_measurements_dict_has_what_its_table_prints() -> None:
    m = fg.measure(NET, blob(60, 20), inits=12, width=20)
    data = m.to_dict()
    assert data["gamma_interval"] == m.gamma_interval.tolist()
    assert data["correlation_se"] == [layer.correlation_se for layer in m.weights_layers]
    assert data["over_90"] == m.guesses.prob_max_above(0.9)
    assert data["over_90_interval"] == list(m.guesses.interval(("prob_max_above", 0.9)))
    assert fg.predict(NET).to_dict()["over_90"] == fg.predict(NET).guesses.prob_max_above(0.9)


def test_the_largest_share_has_one_name_and_its_old_one() -> None:
    m = fg.measure(NET, blob(60, 20), inits=12, width=20)
    mean = m.guesses.fractions.max(axis=1).mean()
    for data in (m.to_dict(), fg.predict(NET).to_dict()):
        assert data["largest"] == data["expected_max"]
    assert m.to_dict()["largest"] == pytest.approx(mean, rel=1e-12)
    assert m.to_dict()["largest_interval"] == m.to_dict()["expected_max_interval"]
    assert m.guesses.interval("largest") == m.guesses.interval("expected_max")
    assert m.guesses.standard_error("largest") == m.guesses.standard_error("expected_max")
    assert fg.predict(NET).guesses.standard_error("largest") == 0.0
    assert fg.results.Measurement.from_dict(m.to_dict()).to_dict() == m.to_dict()


def test_a_table_of_a_study_has_both_names(tmp_path: Path) -> None:
    study = fg.study("names", [{"depth": 2}], lambda p: fg.predict(fg.mlp(**p)), store=tmp_path).run(workers=1)
    row = study.table().to_pylist()[0]
    assert row["largest"] == row["expected_max"]
    assert study.plot(x="depth", y="expected_max").to_dict()


def test_a_negative_estimate_is_explained() -> None:
    """Every x next to its −x: all means over the data are exactly 0, less than n independent points have."""
    x = torch.randn(50, 20, generator=torch.Generator().manual_seed(0))
    m = fg.measure(lambda: nn.Linear(20, 3, bias=False), torch.cat([x, -x]), inits=4)
    assert m.gamma[-1] == pytest.approx(-1 / 100, rel=1e-6)
    assert "read it as 0" in str(m)
    assert "read it as 0" not in str(fg.measure("dense(bias_var=1) > relu > dense", blob(60, 20), inits=4, width=20))
