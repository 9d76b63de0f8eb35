"""`firstguess measure` in a subprocess: descriptions, models of a user's own, JSON, figures, errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from commands import refused

TEXT = "2 x [dense(weight_var=2) > relu] > dense(weight_var=2)"
MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))

    def forward(self, x):
        return self.body(x.flatten(1))
"""


def run(*arguments: str, code: int = 0, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    result = subprocess.run(
        [sys.executable, "-c", "from firstguess.cli import main; main()", "measure", *arguments],
        capture_output=True, text=True, timeout=300, check=False, cwd=cwd,
    )  # fmt: skip
    assert result.returncode == code, result.stderr + result.stdout
    return result


def test_a_description_on_digits(tmp_path: Path) -> None:
    figure = tmp_path / "law.svg"
    options = ("--data", "digits", "--points", "200", "--inits", "20", "--width", "50", "--figure", str(figure))
    data = json.loads(run(TEXT, *options, "--json").stdout)
    assert len(data["layers"]) == 5
    assert data["provenance"]["network"] == TEXT
    assert "<svg" in figure.read_text(encoding="utf-8")[:200]


def test_the_page_says_the_verdict() -> None:
    output = run(TEXT, "--data", "blob:n=100,d=20", "--inits", "10", "--width", "30").stdout
    assert "Measurement (10 initializations, 100 points, 2 classes" in output
    assert "verdict" in output
    assert "bias detectable?" in output


def test_a_model_of_my_own(tmp_path: Path) -> None:
    (tmp_path / "mymodels.py").write_text(MODEL, encoding="utf-8")
    options = ("--data", "digits", "--points", "100", "--inits", "5", "--init", "2,0", "--figure", "law.svg", "--json")
    data = json.loads(run("mymodels:Net", *options, cwd=tmp_path).stdout)
    assert [layer["kind"] for layer in data["layers"]] == ["Linear", "ReLU", "Linear"]
    assert (tmp_path / "law.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((TEXT, "--data", "nothing"), "nothing"),
        ((TEXT, "--data", "blob:n=10,d=5", "--inits", "0"), "initializations"),
        (("dense > reluu", "--data", "digits"), "Try: relu"),
        (("no_such_module:Net", "--data", "digits"), "imported"),
        (("json:nothing", "--data", "digits"), "no nothing"),
        ((TEXT, "--data", "digits", "--init", "kaiming_normal"), "--init"),
        ((TEXT, "--data", "mnist", "--data-dir", "no/such/folder"), "no/such/folder"),
        ((TEXT, "--data", "blob:n=1000000000,d=5000"), "fit in memory"),
        ((TEXT,), "Missing option '--data'. Try: firstguess measure --help"),
        ((TEXT, "--data", "digits", "--widht", "5"), "No such option: --widht"),
        ((TEXT, "--data", "digits", "--inits", "many"), "--inits"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: tuple[str, ...], words: str) -> None:
    assert words in refused("measure", *arguments)


def test_what_is_fresh_is_named_in_the_shell(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODEL)
    options = ("--data", "digits", "--points", "100", "--inits", "4", "--json")
    for redraw, layer in (("head", "body.2"), ("body.2*", "body.2"), ("body.0.bias, body.2", "body.0.bias, body.2")):
        found = json.loads(run("mine:Net", *options, "--redraw", redraw, cwd=tmp_path).stdout)["findings"]
        assert [f["layer"] for f in found if f["kind"] == "fresh part"] == [layer]
    assert "a description" in refused("measure", TEXT, "--data", "digits", "--redraw", "head")
    bad = run("mine:Net", *options, "--redraw", "classifier*", code=2, cwd=tmp_path)
    assert "one of body" in bad.stderr
