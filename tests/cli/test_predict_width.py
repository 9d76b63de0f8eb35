"""`firstguess predict --width`, `--dimension` and `--width-needed`: the library's numbers, and what they mean."""

from __future__ import annotations

import json

import pytest
from commands import refused
from commands import run_here as run

import firstguess as fg

AFTER = "20 x [dense(weight_var=2) > relu > layernorm] > dense(weight_var=2)"


def test_infinite_stands_beside_finite() -> None:
    output = run("predict", AFTER, "--width", "100", "--dimension", "1000", "--points", "600").stdout
    p = fg.predict(AFTER, width=100, inputs=fg.Inputs(dimension=1000), points=600)
    wide = fg.predict(AFTER, points=600)
    row = next(line for line in output.splitlines() if line.strip().startswith("standard deviation") and "+" in line)
    numbers = [float(word) for word in row.split()[-3:]]
    assert numbers == pytest.approx(
        [wide.guesses.std(), p.guesses.std(), p.guesses.std() - wide.guesses.std()], abs=6e-5
    )
    assert "width 100, dimension 1000" in output
    assert "infinite size" in output


def test_json_has_what_size_changed() -> None:
    found = json.loads(run("predict", AFTER, "--width", "100", "--dimension", "1000", "--json").stdout)
    p = fg.predict(AFTER, width=100, inputs=fg.Inputs(dimension=1000))
    assert p.finite_size is not None
    assert found["finite_size"] == p.finite_size.to_dict()
    assert "finite_size" not in json.loads(run("predict", AFTER, "--json").stdout)


def test_on_data() -> None:
    options = ("--data", "digits", "--points", "100", "--draws", "300", "--width", "100")
    found = json.loads(run("predict", AFTER, *options, "--json").stdout)
    data = fg.data.load("digits", points=100)
    p = fg.predict(fg.Network.parse(AFTER, classes=10), data=data, draws=300, width=100)
    assert p.finite_size is not None
    assert found["finite_size"] == p.finite_size.to_dict()
    assert found["std"] == pytest.approx(p.guesses.std())
    assert "added" in run("predict", AFTER, *options).stdout


def test_the_width_that_is_needed() -> None:
    found = json.loads(run("predict", AFTER, "--width-needed", "0.02", "--json").stdout)
    assert found["width_needed"] == fg.width_needed(AFTER, tolerance=0.02)
    assert str(found["width_needed"]) in run("predict", AFTER, "--width-needed", "0.02").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["predict", AFTER, "--data", "digits", "--dimension", "9"], "leave --dimension out"),
        (["predict", AFTER, "--data", "digits", "--width-needed", "0.1"], "--width-needed without --data"),
        (["predict", AFTER, "--width-needed", "2"], "a tolerance between 0 and 1"),
        (["predict", AFTER, "--width", "1"], "width"),
        (["predict", "conv > relu > dense", "--width", "50"], "finite width"),
    ],
)
def test_refusals_say_what_to_do(arguments: list[str], words: str) -> None:
    assert words in refused(*arguments)
