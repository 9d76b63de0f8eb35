"""Hugging Face's transformers of width 256: read, predicted and drawn, as docs/transformers.md's table has them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("transformers", reason="transformers is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]
# Six models; Student's t of 39 degrees of freedom is beyond ± 6.4 once in 7 million: 9e-7 for all of them.
SIGMAS = 6.4
_BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
if not _BENCHMARKS.exists():
    pytest.skip("the benchmarks are not here", allow_module_level=True)
sys.path.append(str(_BENCHMARKS))  # they import each other
table = importlib.import_module("read_transformers")
SMALL = [case for case in table.CASES if not case.large]


def test_all_six_are_there():
    assert len(SMALL) == 6


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_read_and_predicted_is_what_models_have(case):
    """γ of 40 models, within standard errors: what 1/D adds is less than one of them (docs/transformers.md)."""
    (found,) = table.run({"case": case.name, "inits": 40})
    assert "unread" not in found
    assert np.isfinite([found["predicted"], found["measured"]]).all()
    assert 0.0 < found["error"] < 0.2 * found["measured"]  # else the comparison says nothing
    assert abs(found["measured"] - found["predicted"]) < SIGMAS * found["error"]
