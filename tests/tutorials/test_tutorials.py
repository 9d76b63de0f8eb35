"""Tutorials run as scripts and as notebooks, and what their sentences say is so."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "tutorials").glob("*.py"))
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def seen() -> dict[str, tuple[str, dict[str, Any]]]:
    return {}


def ran(name: str, seen: dict[str, tuple[str, dict[str, Any]]]) -> tuple[str, dict[str, Any]]:
    """All texts of a notebook, as it renders them, and the names that its cells define; each is run once."""
    if name not in seen:
        spec = importlib.util.spec_from_file_location(f"tutorial_{name}", ROOT / "tutorials" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        outputs, names = module.app.run()
        texts = [output.text for output in outputs if "markdown" in getattr(output, "text", "")]
        seen[name] = re.sub(r"<[^>]+>|\s+", " ", " ".join(texts)), dict(names)
    return seen[name]


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["lasting", "one_class", "which_norm"]


@pytest.mark.slow  # the same cells as below, once more in a process of their own
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run_as_scripts(path: Path, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []  # no files are left behind


def test_one_class(seen: dict[str, tuple[str, dict[str, Any]]]) -> None:
    text, names = ran("one_class", seen)
    # "every one of them has a favourite": by `fg.Guesses(5.0, 10)` (these have γ about 7) a largest share is below 0.2
    # with a chance of 8e-5, which falls at least as the sixth power of what is above 0.1: 5e-7 for 0.13, ten networks
    assert len(names["digits"].y) == 1797
    assert min(names["shares"]) > 0.13
    # the share of fresh networks, counted once more, and "no fault was seen". The model is the sixth of ten, so that it
    # is beyond 50 fresh ones with a chance of 5e-5, and called unlike them (below 1e-4 by Student's t) never
    why = names["why"]
    assert why.surprise == np.mean(why.measurement.guesses.largest >= why.largest)
    assert f"{100 * why.surprise:.0f} % of fresh networks" in text
    assert set(why.kinds) <= {"expected from architecture"}
    # "biased" begins at a largest share of 0.43; 0.73 is predicted, the standard error of 32 is 0.04: 1e-13
    d = names["d"]
    assert d.verdict.name in ("biased", "deeply biased")
    # "the cause is the 8 ReLU layers": without them the share falls by 53 ± 6 %, 8 s.e. more than without others
    assert "ReLU" in d.causes[0].words
    assert d.expected is not None
    assert "norm after the activation" in str(d)
    # "the largest share falls" at the start: the ensembles of the diagnosis and of the gate differ by 0.5 ± 0.04
    before, after = d.measurement.guesses, names["passed"].guesses
    apart = before.expected_max() - after.expected_max()
    error = np.hypot(before.standard_error("expected_max"), after.standard_error("expected_max"))
    assert apart > 5 * error  # false alarm: 7 standard errors, 1e-12
    # of four networks trained nothing is asserted: the page has their means and errors, and these are the numbers
    for place, look, what in (("before", 0, 0), ("after", 2, 1), ("before", 2, 2), ("after", 4, 1)):
        seen = names["runs"][place][:, look, what]
        assert f"{100 * np.mean(seen):.0f} ± {100 * np.std(seen, ddof=1) / np.sqrt(4):.0f} %" in text
    # the gate
    assert "at most 0.5 is allowed" in names["refused"]


def test_which_norm(seen: dict[str, tuple[str, dict[str, Any]]]) -> None:
    text, names = ran("which_norm", seen)
    gamma, largest, plain = names["gamma"], names["largest"], (None, "before")
    for norm in ("batchnorm", "layernorm"):  # "γ = 0"
        assert all(gamma[norm, "after", depth] < 1e-9 for depth in (1, 5, 20))
    for depth in (1, 5, 20):  # "of a single layer, at any depth"; "as without a norm"
        assert gamma["batchnorm", "before", depth] == pytest.approx(1 / (np.pi - 1), rel=1e-6)
        for kind in (("layernorm", "before"), ("rmsnorm", "before"), ("rmsnorm", "after")):
            assert gamma[(*kind, depth)] == pytest.approx(gamma[(*plain, depth)], rel=1e-6)
    # half a 95 % interval is 1.96 standard errors: 5.9 of them, 4e-9 each, beyond 0.02 for width 200 and not infinite
    for foretold, measured, low, high in largest.values():
        assert abs(measured - foretold) < 3 * (high - low) / 2 + 0.02
    # "LayerNorm after is not even": 0.27 ± 0.01 here, 7 standard errors above 0.2, 13 above BatchNorm's; "where random
    # data are biased, so are digits": 0.58 ± 0.03 next to 0.33 ± 0.02, 7. False alarms below 1e-11
    assert largest[plain][1] > largest["batchnorm", "before"][1]
    assert largest["layernorm", "after"][1] > 0.2
    assert largest["layernorm", "after"][1] > largest["batchnorm", "after"][1]
    assert all(share >= 0.1 for _, share, _, _ in largest.values())  # always: the largest of ten
    # the frontier: (1 + γ)·g = P, and 2129-fold gradients
    after = names["after"]
    assert (1 + after.gamma) * after.gradients == pytest.approx(after.nonlinearity)
    assert after.gradients == pytest.approx((0.5 / (0.5 - 0.5 / np.pi)) ** 20, rel=1e-6)
    assert "grow 2129-fold" in text
    assert "from 0 to 66" in text


def test_lasting(seen: dict[str, tuple[str, dict[str, Any]]]) -> None:
    text, names = ran("lasting", seen)
    foretold, real, watched = names["foretold"], names["real"], names["watched"]
    assert foretold[300].modes.ratio > 10  # of the kernel: nothing is drawn, and the text has the number
    assert f"moves {foretold[300].modes.ratio:.0f} times" in text
    # "right to ten or twenty percent": asserted is a factor of 1.5. The median of 16 networks has an error of 1.25
    # standard deviations/4: 4 % of 32 steps at width 200, where the ratio is 0.84, and 6 % of 26 at 300, where it is
    # 1.04. That leaves 5.6 of them: a false alarm of 1e-8
    for width in (200, 300):
        assert 1 / 1.5 < real[width].absorption.median / foretold[width].absorption.median < 1.5
        favoured, others = real[width].accuracy["favoured"].mean, real[width].accuracy["others"].mean
        # By choice of the starts: of 150 points, 75 of each class, at least 135 are guessed to be of one
        assert favoured[0] >= 60 / 75
        assert others[0] <= 15 / 75
        # "falls", "rises": by 0.18 ± 0.013 and 0.7 ± 0.015, more than 10 standard errors
        assert favoured[-1] < favoured[0]
        assert others[-1] > others[0]
    # one network, watched: nothing about chance is asserted. The page says what the watch found, and when that was
    assert watched.finding in text
    below = np.flatnonzero(watched.largest.mean <= watched.level)
    assert watched.steps[below[0] - 1] < watched.absorbed_at <= watched.steps[below[0]]
