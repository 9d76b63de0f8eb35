"""The command, mostly in a subprocess as a user has it: output, JSON, figures, errors, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import refused, run_here

import firstguess as fg

TEXT = "20 x [dense(weight_var=2) > layernorm > relu] > dense"


def run(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    result = subprocess.run(
        [sys.executable, "-c", "from firstguess.cli import main; main()", *arguments],
        env=dict(os.environ),  # as Python has it: readline, which pytest loads, adds COLUMNS for other processes
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert result.returncode == code, result.stderr + result.stdout
    return result


def run_json(*arguments: str) -> dict[str, Any]:
    return json.loads(run(*arguments, "--json").stdout)


def test_predict_a_description() -> None:
    data = run_json("predict", TEXT, "--classes", "10")
    assert data["gamma"][-1] == pytest.approx(18.390547, abs=1e-6)
    assert len(data["gamma"]) == 21
    assert data["network"] == {"text": TEXT, "classes": 10}
    assert data["verdict"] == "deeply biased"
    assert "regime" not in data
    assert data["has_bias"] is True


def test_a_builder_and_its_text_agree() -> None:
    built = run_json("predict", "mlp", "--depth", "20", "--norm", "layernorm", "--placement", "before")
    assert built["network"]["text"] == TEXT + "(weight_var=2)"
    assert built["gamma"] == run_json("predict", built["network"]["text"])["gamma"]


def test_every_builder_and_option() -> None:
    data = run_json("predict", "residual_mlp", "--depth", "3", "--norm", "layernorm", "--placement", "after")
    assert "residual[relu > dense(weight_var=2)] > layernorm" in data["network"]["text"]
    data = run_json("predict", "cnn", "--depth", "2", "--activation", "leaky_relu(0.2)", "--pool", "avgpool(4)")
    assert "leaky_relu(slope=0.2)" in data["network"]["text"]
    data = run_json("predict", "mlp", "--mean-square", "0.3", "--points", "1000", "--bias-var", "0.1")
    assert data["gamma"][0] == pytest.approx((2 * 0.3 + 0.1) / 2)
    assert data["guesses"]["points"] == 1000


def test_the_table_keeps_brackets_and_says_the_verdict() -> None:
    output = run("predict", "mlp", "--depth", "2", "--layers").stdout
    assert "2 x [dense(weight_var=2) > relu] > dense(weight_var=2)" in output
    assert "leaning" in output
    assert "neutral" not in output
    assert "0.975235" in output


def test_phases() -> None:
    data = run_json("phases", "tanh", "--bias-var", "0.05", "--weight-var", "2.5")
    assert data["edge_of_chaos"] == pytest.approx(1.760955, abs=1e-6)
    assert data["neutrality_line"] == pytest.approx(2.378266, abs=1e-6)
    assert data["fixed_point"]["name"] == "chaotic, neutral"
    assert "1.760955" in run("phases", "tanh", "--bias-var", "0.05").stdout
    data = run_json("phases", "relu > maxpool(2)")
    assert data["edge_of_chaos"] == pytest.approx(4 / 3)
    assert data["variance_edge"] == pytest.approx(1.0999225243159931)
    assert data["neutrality_line"] is None
    assert "c* = 1" in data["notes"]["neutrality_line"]


def test_activations() -> None:
    data = run_json("activations")
    rows = {row["name"]: row for row in data["activations"]}
    assert rows["relu"]["gamma_1"] == pytest.approx(0.466942, abs=1e-6)
    assert rows["relu"]["gain"] == pytest.approx(2.0)
    assert rows["relu"]["causes_bias"] is True
    assert rows["tanh"]["causes_bias"] is False
    assert rows["sign"]["mean_square_slope"] == "inf"
    assert len(rows) >= 21
    assert "causes bias?" in run("activations").stdout


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf", ".html"])
def test_figures(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"law{suffix}"
    result = run_here("predict", "mlp", "--depth", "3", "--figure", str(path))
    assert "wrote" in result.stderr
    magic = {".png": b"\x89PNG", ".svg": b"<svg", ".pdf": b"%PDF", ".html": b"<!DOCTYPE html>"}[suffix]
    assert magic in path.read_bytes()[:200]


def test_the_other_figures(tmp_path: Path) -> None:
    run_here("predict", "mlp", "--depth", "3", "--figure", str(tmp_path / "depth.svg"), "--draw", "depth")
    assert "<svg" in (tmp_path / "depth.svg").read_text()[:200]
    point = ("--bias-var", "0.05", "--weight-var", "2.5")
    run_here("phases", "tanh", *point, "--figure", str(tmp_path / "phases.svg"))
    assert "edge of chaos" in (tmp_path / "phases.svg").read_text()
    assert "Marked: σw² 2.5, σb² 0.05" in (tmp_path / "phases.svg").read_text()


def test_a_fixed_point_may_be_infinite() -> None:
    output = run("phases", "relu", "--weight-var", "3").stdout
    assert "inf" in output
    assert "the variance grows without limit" in output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["predict", "mlp", "--depth", "0"], "depth of at least 1"),
        (["predict", "2 x [dense > relu"], "balanced"),
        (["predict", "dense > reluu > dense"], "Try: relu"),
        (["predict", "dense(weight_var=-1)"], "weight_var"),
        (["predict", "dense(weight_var=nan)"], "weight_var"),
        (["predict", "dense", "--classes", "1"], "at least 2 classes"),
        (["predict", "dense > relu > relu > dense"], "layer 3 (relu)"),
        (["predict", "dense(width=4) > relu > maxpool(9) > dense"], "at most 4 nodes"),
        (["predict", "dense > relu"], "add '> dense'"),
        (["predict", "dense", "--points", "0"], "points"),
        (["predict", "dense", "--depth", "3"], "--depth"),
        (["predict", "dense", "--figure", "law.jpeg"], ".png"),
        (["predict", "dense", "--figure", "no/such/folder/law.png"], "folder"),
        (["predict", ""], "at least one layer"),
        (["phases", "tanhh"], "tanh"),
        (["phases", "residual[relu > dense > tanh]"], "residual stream"),
        (["phases", "tanh", "--bias-var", "-1"], "bias_var"),
        (["phases", "tanh", "--weight-var", "0"], "weight_var"),
        (["activations", "--q", "-1"], "q"),
        (["predict"], "Try: firstguess predict --help"),
        (["predict", "mlp", "--nonsense"], "No such option: --nonsense"),
        (["predict", "mlp", "--placement", "beside"], "--placement"),
        (["predictt", "mlp"], "predict"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: list[str], words: str) -> None:
    assert words in refused(*arguments)


def test_bad_input_as_a_shell_sees_it() -> None:
    result = run("predict", "dense > reluu > dense", code=2)
    assert result.stderr == refused("predict", "dense > reluu > dense") + "\n"
    assert result.stdout == ""


def test_no_words_at_all_are_answered_with_the_help() -> None:
    assert "diagnose" in run(code=2).stdout


def test_the_default_depths_are_those_of_the_builders() -> None:
    helps = " ".join(run("predict", "--help").stdout.replace("│", " ").split())
    assert f"[default: {len(fg.mlp().layers) // 2}; cnn: {len(fg.cnn().layers) // 3}]" in helps


def test_a_billion_points_take_no_longer_than_a_thousand() -> None:
    """It would run into the time limit of `run`: the distribution of the counts has 10⁹ + 1 probabilities."""
    found = json.loads(run("predict", "mlp", "--points", "1000000000", "--classes", "10", "--json").stdout)
    limit = json.loads(run("predict", "mlp", "--classes", "10", "--json").stdout)
    assert found["expected_max"] == pytest.approx(limit["expected_max"], abs=1e-4)


def test_help_teaches() -> None:
    for command in ([], ["predict"], ["phases"], ["activations"]):
        output = run(*command, "--help").stdout
        assert "firstguess" in output
    assert "Examples" in run("predict", "--help").stdout
    assert run("--version").stdout.startswith("firstguess 0.")


def test_theory_commands_load_neither_torch_nor_altair() -> None:
    code = (
        "import sys\nfrom firstguess.cli import main\nsys.argv = {argv!r}\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "loaded = [m for m in ('torch', 'altair', 'pyarrow', 'pandas', 'sklearn') if m in sys.modules]\n"
        "assert not loaded, loaded"
    )
    for argv in (
        ["firstguess", "predict", "mlp", "--depth", "5", "--classes", "10"],
        ["firstguess", "phases", "tanh"],
        ["firstguess", "activations"],
    ):
        subprocess.run([sys.executable, "-c", code.format(argv=argv)], check=True, capture_output=True, timeout=60)
