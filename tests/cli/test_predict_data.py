"""`firstguess predict --data`, `--compare` and `firstguess data`, on the embedded digits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import refused
from commands import run_here as run
from data_files import REAL

import firstguess as fg

NET = "2 x [dense(weight_var=2) > relu] > dense(weight_var=2)"


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FIRSTGUESS_DATA", raising=False)


def run_json(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.stderr == ""  # no progress bar, no remarks in a pipe
    return json.loads(result.stdout)


def test_the_kernel_reading_is_the_librarys() -> None:
    found = run_json("predict", NET, "--data", "digits", "--points", "60", "--draws", "500", "--seed", "3")
    data = fg.data.load("digits", points=60, seed=3)
    expected = fg.predict(fg.Network.parse(NET, classes=10), data=data, draws=500, seed=3)
    assert found["reading"] == "kernel"
    assert found["network"]["classes"] == 10  # the data's
    assert found["gamma"] == pytest.approx(expected.gamma.tolist())
    assert found["expected_max"] == pytest.approx(expected.guesses.expected_max())
    assert found["guesses"]["quantiles"]["0.5"] == pytest.approx(expected.guesses.quantile(0.5))
    assert found["provenance"]["data"] == data.name
    assert "fractions" not in found["guesses"]


def test_options_of_the_data() -> None:
    found = run_json(
        "predict", "mlp", "--depth", "2", "--data", "digits:even-odd", "--points", "40", "--standardize", "pixel",
        "--shift", "2", "--classes", "5", "--draws", "200",
    )  # fmt: skip
    assert found["network"]["classes"] == 5
    assert "even vs odd, standardized (pixel), 40 points, shifted by 2" in found["provenance"]["data"]
    assert run_json("predict", NET, "--data", "digits:even-odd", "--draws", "50")["provenance"]["points"] == 1000
    output = run("predict", NET, "--data", "digits:even-odd", "--points", "40", "--draws", "200", "--layers").stdout
    assert "Prediction (kernel, 2 classes)" in output
    assert "40 points" in output
    assert "the distribution is sampled" in output


def test_convolutions_on_images() -> None:
    found = run_json(
        "predict", "cnn", "--pool", "avgpool(4)", "--data", "digits", "--points", "12", "--draws", "200"
    )  # fmt: skip
    assert len(found["gamma"]) == 3
    assert found["per_point"] is not None
    pooled = run("predict", "cnn", "--data", "digits", "--points", "12", "--draws", "200").stdout
    assert "relu > maxpool(4): by 16384 sampled nodes" in pooled
    first = "maxpool(4) > conv > relu > dense"  # nothing Gaussian to sample before it
    message = run("predict", first, "--data", "digits", "--points", "12", code=2).stderr
    assert "layer 1 (maxpool(4))" in message
    assert "avgpool(4)" in message


def test_compare_lays_three_readings_side_by_side(tmp_path: Path) -> None:
    figure = tmp_path / "readings.svg"
    arguments = ["predict", NET, "--data", "digits:even-odd", "--points", "50", "--compare", "--inits", "60",
                 "--width", "50", "--draws", "400"]  # fmt: skip
    result = run(*arguments, "--figure", str(figure))
    for words in ("closed form", "kernel", "measured (60 initializations, width 50)", "std of G₀", "E max G"):
        assert words in result.stdout
    assert "wrote" in result.stderr
    assert "by measurement" in figure.read_text()
    found = run_json(*arguments)
    rows = {row["reading"]: row for row in found["readings"]}
    assert list(rows) == ["closed form", "kernel", "kernel, width 50", "measured"]
    assert rows["kernel, width 50"]["finite_size"]["width"] == 50
    assert all(len(row["gamma"]) == 3 for row in rows.values())
    moments = fg.data.load("digits:even-odd", points=50).inputs()
    # a sample's squared mean is too large by variance/(n−1); without that, closed form and kernel start from one γ
    excess = moments.variance / 49
    assert rows["closed form"]["gamma"][0] == pytest.approx(
        (moments.mean_square - excess) / (moments.variance + excess)
    )
    assert rows["closed form"]["gamma"][0] == pytest.approx(rows["kernel"]["gamma"][0])
    # 60 initializations; 6 standard errors and room for width 50: a false alarm in 10⁸
    room = 6 * rows["measured"]["expected_max_se"] + 3 * 0.25 / 50
    assert abs(rows["kernel"]["expected_max"] - rows["measured"]["expected_max"]) < room
    # at the width that was measured no room is needed: 6 standard errors of both
    own, real = rows["kernel, width 50"], rows["measured"]
    error = (own["expected_max_se"] ** 2 + real["expected_max_se"] ** 2) ** 0.5
    assert abs(own["expected_max"] - real["expected_max"]) < 6 * error
    assert rows["measured"]["inits"] == 60
    assert found["data"]["n"] == 50


def test_compare_shows_what_it_can() -> None:
    net = "dense > elu > maxpool(2) > dense"
    arguments = ["predict", net, "--data", "digits", "--points", "8", "--compare", "--inits", "4", "--width", "8"]
    found = run_json(*arguments)
    assert [row["reading"] for row in found["readings"]] == ["closed form", "measured"]
    assert "points of one size before a max-pool" in found["notes"]["kernel"]


def test_figures_of_a_kernel_reading(tmp_path: Path) -> None:
    arguments = ["predict", NET, "--data", "digits", "--points", "40", "--draws", "300", "--figure"]
    run(*arguments, str(tmp_path / "law.svg"))
    text = (tmp_path / "law.svg").read_text()
    assert "by kernel" in text
    run(*arguments, str(tmp_path / "depth.svg"), "--draw", "depth")
    assert "kernel" in (tmp_path / "depth.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["predict", NET, "--data", "digits", "--mean-square", "1"], "both --data and --mean-square"),
        (["predict", NET, "--compare"], "no --data"),
        (["predict", NET, "--data-dir", "."], "--data-dir"),
        (["predict", NET, "--data", "digits", "--inits", "10"], "--compare"),
        (["predict", NET, "--data", "blob:n=9,d=2", "--draws", "0"], "draws, at least 1"),
        (["predict", NET, "--data", "blob:n=9,d=2", "--points", "1"], "at least 2 data points"),
        (["predict", NET, "--data", "digitz"], "the name of data, or a path"),
        (["predict", NET, "--data", "mnist"], "FIRSTGUESS_DATA"),
        (["predict", "dense > reluu > dense", "--data", "no such data"], "Try: relu"),
        (["predict", "conv > relu > dense", "--data", "blob:n=20,d=5"], "images (n, channels, height, width)"),
        (["predict", "9 x [conv(padding=1) > relu] > dense", "--data", "digits", "--points", "1797"], "at most"),
        (["data", "digits", "--points", "1"], "at least 2 data points"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: list[str], words: str) -> None:
    assert words in refused(*arguments)


def test_data_prints_what_it_brings() -> None:
    output = run("data", "digits").stdout
    for words in ("standardized (global)", "drift ratio γ₀ of the data", "0.928", "number of directions", "centre"):
        assert words in output
    raw = run("data", "digits", "--standardize", "none").stdout
    assert "not standardized" in raw
    assert "2.199" in raw
    found = run_json("data", "digits:even-odd", "--points", "200", "--seed", "1")
    expected = fg.data_bias("digits:even-odd", points=200, seed=1)
    assert found["gamma"] == pytest.approx(expected.gamma)
    assert found["recommended"] == expected.recommended == "centre"


@pytest.mark.skipif(not (REAL / "mnist").is_dir(), reason=f"no MNIST in {REAL}")
def test_mnist_from_its_folder() -> None:
    folder = ["--data-dir", str(REAL), "--points", "100"]
    found = run_json("predict", NET, "--data", "mnist:even-odd", *folder, "--draws", "200")
    assert found["network"]["classes"] == 2
    assert run_json("data", "mnist", *folder)["shape"] == [1, 28, 28]


def test_the_kernel_reading_loads_neither_torch_nor_altair() -> None:
    code = (
        "import sys\nfrom firstguess.cli import main\n"
        "sys.argv = ['firstguess', 'predict', 'mlp', '--data', 'blob:n=30,d=5', '--draws', '50']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "loaded = [m for m in ('torch', 'altair', 'pyarrow', 'pandas', 'sklearn') if m in sys.modules]\n"
        "assert not loaded, loaded"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, capture_output=True, timeout=60)
