"""`firstguess train`: descriptions and models, JSON, figures, comparison, interruption, errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import refused, run_here

import firstguess as fg

TEXT = "dense(weight_var=2) > relu > dense(weight_var=2)"
SMALL = ("--data", "two_blobs:n=30,d=10", "--inits", "3", "--width", "20")
MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(64, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10))

    def forward(self, x):
        return self.body(x.flatten(1))

def momentum(params):
    return torch.optim.SGD(params, lr=0.05, momentum=0.9)
"""
INTERRUPTING = """
import os, signal, sys
import firstguess.cli.train as command
from firstguess.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # what a background job starts ignores Ctrl-C

class Bar:
    def __enter__(self):
        return self.tick
    def __exit__(self, *_):
        pass
    def tick(self, done, total):
        if done > 0.2 * total:
            os.kill(os.getpid(), signal.SIGINT)

command.bar = lambda label: Bar()
main()
"""


def test_the_page_is_what_train_gives():
    said = run_here("train", TEXT, *SMALL, "--optimizer", "gd", "--lr", "0.01", "--steps", "30", "--seed", "4").stdout
    data = fg.data.two_blobs(30, 10)
    r = fg.train(TEXT, data=data, inits=3, width=20, optimizer="gd", lr=0.01, steps=30, seed=4)
    assert said.strip() == str(r).strip()
    assert "steps until the largest share is 0.6 (absorbed)" in said


def test_json_and_a_figure(tmp_path: Path):
    figure = tmp_path / "training.svg"
    options = ("--batch", "16", "--epochs", "3", "--test", "20", "--start", "any", "--figure", str(figure), "--json")
    found = json.loads(run_here("train", "mlp", "--depth", "2", *SMALL, *options).stdout)
    assert found["steps"][-1] == 3 * 3  # 40 of the 60 points, in three batches
    assert found["provenance"]["points"] == 40
    assert len(found["test"]["accuracy"]["all"]["mean"]) == len(found["steps"])
    assert "<svg" in figure.read_text(encoding="utf-8")[:200]


def test_held_out_points_are_none_of_the_others():
    from firstguess.cli.subjects import DataOptions
    from firstguess.cli.train import _data

    train, held = _data(DataOptions("digits"), "200")
    assert (train.n, held.n) == (800, 200)
    assert not {x.tobytes() for x in train.x} & {x.tobytes() for x in held.x}
    train, held = _data(DataOptions("two_blobs:n=20,d=3"), "two_blobs:n=10,d=3,seed=7")
    assert (train.n, held.n) == (40, 20)


def test_beside_the_prediction(tmp_path: Path):
    figure = tmp_path / "both.svg"
    options = ("--optimizer", "gd", "--lr", "0.01", "--steps", "30", "--test", "10", "--compare")
    said = run_here("train", TEXT, *SMALL, *options, "--figure", str(figure)).stdout
    for words in ("Training (gd, 3 networks", "Predicted training (gd, 200 networks", "Predicted and real training "):
        assert words in said
    found = json.loads(run_here("train", TEXT, *SMALL, *options, "--json").stdout)
    assert set(found) == {"trained", "predicted", "comparison"}
    assert found["comparison"]["steps"] == found["trained"]["steps"] == found["predicted"]["steps"]
    assert "trained networks" in figure.read_text(encoding="utf-8")


@pytest.mark.parametrize("optimizer", ["adam", "AdamW", "mymodels:momentum"])
def test_a_model_of_my_own(optimizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "mymodels.py").write_text(MODEL, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mymodels", raising=False)
    options = ("--data", "digits", "--points", "100", "--inits", "2", "--batch", "50", "--epochs", "2", "--json")
    found = json.loads(run_here("train", "mymodels:Net", *options, "--optimizer", optimizer, "--store", "runs").stdout)
    assert found["classes"] == 10
    assert found["provenance"]["optimizer"] == {"adam": "adam", "AdamW": "AdamW"}.get(optimizer, "SGD")
    assert len(list((tmp_path / "runs").glob("*.npz"))) == 2
    again = json.loads(run_here("train", "mymodels:Net", *options, "--optimizer", optimizer, "--store", "runs").stdout)
    assert again["loss"] == found["loss"]


def test_an_interrupted_training_keeps_its_curves():
    options = ("train", TEXT, *SMALL, "--optimizer", "gd", "--lr", "0.01", "--steps", "100000", "--json")
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTING, *options], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 130, done.stderr
    assert done.stderr.splitlines()[-1].startswith("firstguess: interrupted")
    found = json.loads(done.stdout)
    assert found["interrupted"]
    means = np.array([float(value) for value in found["loss"]["mean"]])
    assert np.isfinite(means[:5]).all()
    assert np.isnan(means[-1])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--optimizer", "AdamW"), "'gd', 'sgd' or 'adam'"),
        (("--lr", "0"), "learning rate above 0"),
        (("--steps", "5", "--epochs", "2"), "one of them"),
        (("--start", "odd"), "'even'"),
        (("--test", "60"), "fewer held-out points"),
        (("--depth", "3"), "mlp"),
        (("--figure", "x.doc"), "--figure"),
        (("--init", "2,0"), "--init with a model only"),
    ],
)
def test_bad_input_is_one_line(options: tuple[str, ...], words: str):
    assert words in refused("train", TEXT, *SMALL, *options)


def test_what_cannot_be_predicted_is_said_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    net = "dense(weight_var=2) > batchnorm > relu > dense(weight_var=2)"
    assert "held-out" in refused("train", net, *SMALL, "--test", "10", "--compare", "--steps", "100000000")
    (tmp_path / "mymodels.py").write_text(MODEL, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert "description" in refused("train", "mymodels:Net", "--data", "digits", "--compare")
    assert "labelled points" in refused("train", TEXT, "--data", "blob:n=20,d=3")


def test_help_teaches():
    said = run_here("train", "--help").stdout
    for words in ("--compare", "--store", "Ctrl-C", "Examples", "mymodels:Net"):
        assert words in said
