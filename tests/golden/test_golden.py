"""Nothing changed: readings, ensembles, refusals and printed pages are those that are stored next to this file.

Each file is written again by its script (`python tests/golden/make_….py`), in a commit that says why numbers or words
should change. On the machine that made them (`inside.machine`: libraries and processor) numbers agree to

- 1e-12: the closed form, and covariances by the diagonal;
- 1e-7 of the diagonal where nodes were sampled, which are float32: 1e-16 in a covariance moves them by 1e-8; and for
  the tangent kernel of activations with kinks, whose derivative has an infinite slope at c = 1;
- 1e-6 in float32;
- the last bit: ensembles.

Elsewhere libraries add in another order: 1e-9 and 1e-5 then, ensembles by plain numbers to 1e-5, and what was sampled
to its own standard error. (A covariance after a BatchNorm is singular, and its root, from which the next nodes are
drawn, turns with the last bit: six parts in 10⁴ were seen between AVX2 and AVX-512. So a change of the order of
arithmetic may fail here too, at networks with several sampled layers.)
"""

from __future__ import annotations

import json
import re
from typing import Any

import inside
import make_ensembles
import make_pages
import make_readings
import make_refusals
import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("one_thread")

READINGS, ENSEMBLES, REFUSALS = make_readings.jobs(), make_ensembles.jobs(), make_refusals.jobs()
PAGES = make_pages.jobs()
KINKS = re.compile("relu|abs|hard|maxpool")


def floats(texts: list[str]) -> Any:
    return np.array([float.fromhex(t) for t in texts])


def words(remarks: list[str], same: bool) -> list[str]:
    """Elsewhere a number in a remark may round the other way."""
    return remarks if same else [re.sub(r"\d+(\.\d+)?", "…", r) for r in remarks]


@pytest.mark.parametrize("name", READINGS)
def test_readings(name: str) -> None:
    stored, same = inside.read("readings.json")
    found, wanted = inside.attempt(READINGS[name]), stored[name]
    if isinstance(wanted, str) or isinstance(found, str):
        assert found == wanted
        return
    assert found.keys() == wanted.keys()
    for field in ("layers", "weights"):
        assert found.get(field) == wanted.get(field)
    for field in ("assumptions", "remarks"):
        assert words(found.get(field, []), same) == words(wanted.get(field, []), same)
    numbers = {field: (floats(found[field]), floats(wanted[field])) for field in wanted if is_numbers(wanted[field])}
    if name.startswith("closed form"):
        for field, (mine, theirs) in numbers.items():
            tight = {"rtol": 1e-12, "atol": 1e-12 if field == "log_q" else 0.0}
            np.testing.assert_allclose(
                mine, theirs, **(tight if same else {"rtol": 1e-9, "atol": 1e-12}), err_msg=field
            )
    elif name.startswith("guesses"):
        np.testing.assert_allclose(*numbers["numbers"], rtol=0.0, atol=1e-6 if same else 0.02)
    else:
        compare_kernels(name, numbers, same)


def is_numbers(value: Any) -> bool:
    return (
        isinstance(value, list)
        and value != []
        and all(isinstance(v, str) and re.match(r"-?(0x|nan|inf)", v) for v in value)
    )


def compare_kernels(name: str, numbers: dict[str, Any], same: bool) -> None:
    error = numbers.pop("error")
    np.testing.assert_allclose(*error, rtol=1e-4 if same else 0.05)
    sampled, kinks = float(error[1][0]), name.startswith("tangent") and KINKS.search(name)
    if same:
        tolerance = 1e-6 if "float32" in name else 1e-7 if sampled or kinks else 1e-12
    else:
        tolerance = sampled or (1e-5 if "float32" in name or kinks else 1e-9)
    for field, (mine, theirs) in numbers.items():
        # by the diagonal: a row of the upper triangle of six points begins with it
        scale = np.abs(numbers["q"][1]) if field.startswith("q") else theirs[[0, 6, 11, 15, 18, 20]].max()
        assert mine.shape == theirs.shape
        assert np.all(np.abs(mine - theirs) <= tolerance * scale), field


@pytest.mark.parametrize("name", ENSEMBLES)
def test_ensembles(name: str) -> None:
    stored, same = inside.read("ensembles.json")
    found, wanted = inside.attempt(ENSEMBLES[name]), stored[name]
    if isinstance(wanted, str) or isinstance(found, str):
        assert found == wanted
        return
    assert found["notes"] == wanted["notes"]
    assert found["layers"] == wanted["layers"]
    points = 40 if name in make_ensembles.OPTIONS else int(name.split()[0])
    np.testing.assert_allclose(found["fractions"], wanted["fractions"], rtol=0.0, atol=1.0 / points + 1e-6)
    mine, theirs = np.array(found["stats"]), np.array(wanted["stats"])
    mean, between, spread, _ = theirs.T
    scale = (mean**2 + np.abs(between) + spread)[:, None] * [0.0, 1.0, 1.0, 0.0]
    scale[:, 0] = np.sqrt(scale[:, 1])
    assert np.all(np.abs(mine - theirs) <= 1e-5 * scale + [0.0, 0.0, 0.0, 1e-6])
    if same:
        assert found["hash"] == wanted["hash"]


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name: str) -> None:
    stored, _ = inside.read("refusals.json")
    assert inside.attempt(REFUSALS[name]) == stored[name]


@pytest.mark.parametrize("name", PAGES)
def test_pages(name: str) -> None:
    made = json.loads((make_pages.PAGES / "made.json").read_text(encoding="utf-8"))
    if name in make_pages.MEASURED and made != inside.machine():
        pytest.skip("measured numbers of another machine")
    assert PAGES[name]() == (make_pages.PAGES / f"{name}.txt").read_text(encoding="utf-8")


def test_nothing_is_stored_that_is_not_looked_at() -> None:
    for name, jobs in (("readings", READINGS), ("ensembles", ENSEMBLES), ("refusals", REFUSALS)):
        assert list(inside.read(f"{name}.json")[0]) == list(jobs)
    assert {path.stem for path in make_pages.PAGES.glob("*.txt")} == set(PAGES)
