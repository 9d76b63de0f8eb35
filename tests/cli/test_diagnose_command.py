"""`firstguess diagnose` and `firstguess check`, as users call them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

MODEL = """
import os
import signal

import torch
from torch import nn

signal.signal(signal.SIGINT, signal.default_int_handler)  # what a background job starts ignores Ctrl-C

def biased():
    return nn.Sequential(nn.Linear(20, 60), nn.Sigmoid(), nn.Linear(60, 2))

def broken():
    raise RuntimeError("no such weights")

def at_once():
    os.kill(os.getpid(), signal.SIGINT)
    return even()

class Late(nn.Module):
    # Ctrl-C at the first pass that could go back: measuring has none.
    done = False

    def __init__(self):
        super().__init__()
        self.body = even()

    def forward(self, x):
        if torch.is_grad_enabled() and not Late.done:
            Late.done = True
            os.kill(os.getpid(), signal.SIGINT)
        return self.body(x)

class Killed(nn.Module):
    # kill, without -9, while members are drawn
    count = 0

    def __init__(self):
        super().__init__()
        self.body = even()

    def forward(self, x):
        Killed.count += 1
        if Killed.count == 30:
            os.kill(os.getpid(), signal.SIGTERM)
        return self.body(x)

def twice():
    return nn.Sequential(even(), nn.Softmax(-1), nn.Softmax(-1))

def even():
    return nn.Sequential(nn.Linear(20, 60, bias=False), nn.Tanh(), nn.Linear(60, 2, bias=False))
"""


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "firstguess", *arguments], cwd=cwd, capture_output=True, text=True, timeout=300
    )


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MODEL)
    return tmp_path


def test_diagnose_prints_a_page_and_writes_a_report(here: Path):
    done = run(
        "diagnose", "mine:biased", "--data", "blob:n=100,d=20", "--inits", "10", "--report", "r.html", "--init", "1,0",
        cwd=here,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("NOT KNOWN   ")  # blobs have no labels
    first = next(line for line in done.stdout.splitlines() if line.startswith("mine:biased: "))
    assert "BIASED" in first  # ten networks need not tell biased from deeply biased
    assert "Sigmoid (`1`)" in done.stdout
    assert "wrote r.html" in done.stderr
    assert (here / "r.html").read_text(encoding="utf-8").lstrip().lower().startswith("<!doctype html>")


def test_diagnose_as_json(here: Path):
    done = run(
        "diagnose",
        "dense > relu > dense",
        "--data",
        "blob:n=60,d=20",
        "--inits",
        "6",
        "--width",
        "40",
        "--json",
        cwd=here,
    )
    found = json.loads(done.stdout)
    assert found["verdict"]["name"] in ("leaning", "biased")
    assert found["bias_test"]["found"] is True
    assert found["causes"][0]["kind"] == "ReLU"


def test_check_is_a_gate(here: Path):
    passed = run("check", "mine:even", "--data", "blob:n=100,d=20", cwd=here)
    assert (passed.returncode, passed.stdout[:7]) == (0, "passed:"), passed.stderr
    failed = run("check", "mine:biased", "--data", "blob:n=100,d=20", "--init", "1,0", cwd=here)
    assert failed.returncode == 1
    assert "Sigmoid (`1`)" in failed.stdout
    assert "firstguess diagnose mine:biased --data blob:n=100,d=20 names the layer" in failed.stdout
    as_json = run("check", "mine:even", "--data", "blob:n=100,d=20", "--json", cwd=here)
    assert json.loads(as_json.stdout)["passed"] is True
    assert json.loads(as_json.stdout)["max_gamma"] == 1.0
    shared = run("check", "mine:biased", "--data", "blob:n=100,d=20", "--init", "1,0", "--max-share", "0.7", cwd=here)
    assert shared.returncode == 1
    assert "the share of the largest class, on average, is" in shared.stdout


def test_check_fails_on_a_fault_and_tells_github(here: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(here / "summary.md"))
    failed = run("check", "mine.py:twice", "--data", "blob:n=100,d=20", "--max-share", "0.99", cwd=here)
    assert failed.returncode == 1, failed.stderr
    assert failed.stdout.startswith("FIX THIS: ")
    assert failed.stdout.splitlines()[1].startswith("the guesses alone passed: ")
    errors = [line for line in failed.stdout.splitlines() if line.startswith("::error")]
    assert [line.startswith("::error title=firstguess check mine.py:twice::FIX THIS") for line in errors] == [True]
    summary = (here / "summary.md").read_text("utf-8")
    assert summary.startswith("### firstguess check: mine.py:twice failed")
    assert "- FIX THIS: " in summary
    passed = run("check", "mine:even", "--data", "blob:n=100,d=20", cwd=here)
    assert passed.returncode == 0
    assert "::error" not in passed.stdout
    assert "mine:even passed" in (here / "summary.md").read_text("utf-8")


def test_explain_takes_a_file(here: Path):
    done = run("explain", "mine.py:twice", "--data", "blob:n=100,d=20", "--inits", "4", cwd=here)
    assert done.returncode == 0, done.stderr
    assert "softmax twice" in done.stdout
    refused = run("explain", "dense > relu > dense", "--data", "blob:n=100,d=20", cwd=here)
    assert refused.returncode == 2
    assert "firstguess diagnose" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("diagnose", "dense >", "--data", "digits"), "firstguess:"),
        (("diagnose", "mine:biased", "--data", "digits", "--report", "r.pdf"), ".html"),
        (("check", "mine:nothing", "--data", "digits"), "a class, a function or a model"),
        (("check", "mine:even", "--data", "blob:n=100,d=20", "--max-gamma", "0"), "a drift ratio above 0"),
        (("check", "mine:even", "--data", "blob:n=100,d=20", "--max-share", "2"), "a share between 0 and 1"),
        (("check", "mine:broken", "--data", "blob:n=100,d=20"), "no such weights"),
    ],
)
def test_bad_input_ends_in_one_line(arguments: tuple[str, ...], words: str, here: Path):
    done = run(*arguments, cwd=here)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["diagnose", "check", "measure"])
def test_an_interruption_before_there_is_anything_is_said(command: str, here: Path):
    done = run(command, "mine:at_once", "--data", "blob:n=100,d=20", cwd=here)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.splitlines()[-1] == "firstguess: interrupted"
    assert "Traceback" not in done.stderr


def test_an_interrupted_diagnosis_is_printed_and_written(here: Path):
    done = run(
        "diagnose", "mine:Late", "--data", "blob:n=100,d=20", "--inits", "10", "--report", "r.html", cwd=here
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    assert "\nmine:Late: " in done.stdout
    said = " ".join(done.stdout.split())
    assert "! interrupted: left out: causes, gradients, how long the bias lasts, copies in training, remedies" in said
    assert "left out: causes" in (here / "r.html").read_text(encoding="utf-8")


def test_a_killed_measurement_keeps_its_members(here: Path):
    done = run("measure", "mine:Killed", "--data", "blob:n=100,d=20", "--inits", "5000", cwd=here)
    assert done.returncode == 130, done.stderr
    assert "of 5000 initializations were computed" in done.stdout
    assert done.stderr.splitlines()[-1] == "firstguess: interrupted; the page has what was computed"
