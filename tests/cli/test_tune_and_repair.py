"""`firstguess tune` and `firstguess repair`, as a user types them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import firstguess as fg
from firstguess.base.errors import InvalidInput
from firstguess.cli.app import app

MODEL = """
from torch import nn

def net():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))
"""


def test_tune_prints_the_python_numbers(tmp_path: Path) -> None:
    code = tmp_path / "model.py"
    args = ["tune", "mlp", "--depth", "8", "--gamma", "0.3", "--json", "--code", str(code)]
    found = CliRunner().invoke(app, args)
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)
    s = fg.tune(fg.mlp(8), gamma=0.3)
    assert told["settings"] == s.settings
    assert told["network"] == str(s.network)
    assert code.read_text(encoding="utf-8") == s.code()
    assert "not better" in CliRunner().invoke(app, args[:6]).stdout


def test_tune_draws_the_frontier(tmp_path: Path) -> None:
    figure = tmp_path / "frontier.svg"
    found = CliRunner().invoke(app, ["tune", "mlp", "--depth", "8", "--gamma", "0.7", "--figure", str(figure)])
    assert found.exit_code == 0, found.output
    drawn = figure.read_text(encoding="utf-8")
    tuned = fg.tune(fg.mlp(8), gamma=0.7)
    assert f"slope {tuned.settings['slope']:.3g}" in drawn  # the one that was asked for is among them
    assert "this network" in drawn
    args = ["tune", "mlp", "--gamma", "0.7", "--figure", str(tmp_path / "frontier.gif")]
    with pytest.raises(fg.InvalidInput, match=r"\.png"):
        CliRunner().invoke(app, args, catch_exceptions=False)


def test_diagnose_ranks_by_the_goal() -> None:
    args = [
        "diagnose",
        "3 x [dense(weight_var=2) > relu] > dense",
        "--data",
        "blob:n=80,d=20",
        "--inits",
        "6",
        "--width",
    ]
    found = CliRunner().invoke(app, [*args, "60", "--json", "--goal", "trainability"])
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)
    assert told["goal"] == "trainability"
    known = [a["nonlinearity_after"] for a in told["advice"] if a["worth_it"]]
    assert known == sorted(known)
    assert all(a["price"] for a in told["advice"])


def test_repair_writes_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    from safetensors.torch import load_file

    (tmp_path / "a_model_to_repair.py").write_text(MODEL, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    out = tmp_path / "repaired.safetensors"
    args = ["repair", "a_model_to_repair:net", "--data", "digits", "--gamma", "0.1", "--out", str(out), "--json"]
    found = CliRunner().invoke(app, args)
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)
    assert told["changed"] == ["3.bias"]
    assert told["gamma"][1] == pytest.approx(0.1, rel=1e-3)
    stored = load_file(out)
    torch.manual_seed(0)
    model = sys.modules["a_model_to_repair"].net()
    assert {k for k, v in model.state_dict().items() if not torch.equal(v, stored[k])} == {"3.bias"}
    with pytest.raises(fg.InvalidInput, match=r"package\.module:name"):
        CliRunner().invoke(app, ["repair", "mlp", "--data", "digits", "--out", str(out)], catch_exceptions=False)


@pytest.mark.parametrize("what", ["json:dumps", "math:sqrt", "torch.nn:Linear"])
def test_what_is_no_factory_is_one_line(tmp_path: Path, what: str) -> None:
    args = ["repair", what, "--data", "digits", "--out", str(tmp_path / "w.safetensors")]
    with pytest.raises(InvalidInput, match=f"called without arguments, but got TypeError.*at {what}"):
        CliRunner().invoke(app, args, catch_exceptions=False)
