"""Rows of what draws weights: measurements, trainings, diagnoses; and plans that ask for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from in_process import InProcess

import firstguess as fg
from firstguess.ensemble.member_statistics import Finding, FindingKind
from firstguess.studies import study
from firstguess.studies.plans import planned
from firstguess.studies.tasks import Stopped, row_of

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = "dense(weight_var=2) > relu > dense(weight_var=2)"


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "LocalPool", InProcess)


def test_a_measurements_row() -> None:
    m = fg.measure(TEXT, np.random.default_rng(1).standard_normal((40, 6)), inits=20, width=12)
    row = row_of(m)
    largest = m.guesses.fractions.max(axis=1)
    assert row["expected_max"] == pytest.approx(largest.mean(), rel=1e-12)
    assert row["expected_max_se"] == pytest.approx(largest.std(ddof=1) / 20**0.5, rel=0.06)  # jackknife: √(19/20)
    assert row["over_90"] == pytest.approx((largest > 0.9).mean(), rel=1e-12)
    assert (row["gamma"], row["gamma_se"]) == (m.gamma[-1], m.gamma_se[-1])
    assert row["gamma_low"] < row["gamma"] < row["gamma_high"]
    assert (row["inits"], row["points"], row["classes"], row["verdict"]) == (20, 40, 2, m.verdict)
    assert "seconds" not in row


def test_half_an_ensemble_is_no_result() -> None:
    from dataclasses import replace

    m = fg.measure(TEXT, np.random.default_rng(1).standard_normal((40, 6)), inits=3, width=12)
    with pytest.raises(Stopped):
        row_of(replace(m, findings=(Finding(FindingKind.INTERRUPTED, "3 of 9"),)))


def test_a_trainings_row() -> None:
    data = fg.data.two_blobs(40, 10)
    r = fg.train(TEXT, data=data, test=data, inits=3, width=10, optimizer="gd", lr=0.05, steps=20)
    row = row_of(r)
    for name, draws in (("largest", r.largest.draws), ("accuracy", r.accuracy.draws), ("loss", r.loss.draws)):
        assert row[f"{name}_start"] == pytest.approx(draws[:, 0].mean(), rel=1e-12)
        assert row[f"{name}_end"] == pytest.approx(draws[:, -1].mean(), rel=1e-12)
        assert row[f"{name}_end_se"] == pytest.approx(draws[:, -1].std(ddof=1) / 3**0.5, rel=1e-12)
        np.testing.assert_allclose(row[f"{name}_by_step"], draws.mean(axis=0), rtol=1e-12)
    assert row["test_accuracy_end"] == row["accuracy_end"]  # the same points
    assert (row["networks"], row["steps"], row["diverged"]) == (3, 20, 0)
    assert row["absorption"] == r.absorption.median
    predicted = row_of(fg.predict_training(TEXT, data=data, lr=0.05, steps=20, width=10, draws=50))
    assert predicted["steps"] == 20
    assert 0.5 <= predicted["largest_end"] <= 1


def test_a_diagnosis_row() -> None:
    d = fg.diagnose(TEXT, np.random.default_rng(2).standard_normal((40, 6)), inits=20, width=12)
    row = row_of(d)
    assert d.measurement is not None
    assert row["verdict"] == d.verdict.name
    assert row["gamma"] == d.measurement.gamma[-1]
    assert row["causes"] == "; ".join(cause.name for cause in d.causes)
    assert row["advice"] == (d.ranked[0].title if d.ranked else "")


@pytest.mark.parametrize("reading", ["train", "diagnose"])
def test_a_plan_trains_and_diagnoses(tmp_path: Path, reading: str) -> None:
    sizes = {"train": "steps = 5\noptimizer = 'gd'\nlr = 0.05\ninits = 2\n", "diagnose": "inits = 10\n"}[reading]
    (tmp_path / "study.toml").write_text(
        f'reading = "{reading}"\nnetwork = "mlp"\ndata = "two_blobs:n=40,d=6"\n'
        f"[grid]\ndepth = [1, 2]\n[options]\nwidth = 8\n{sizes}"
    )
    s = planned(tmp_path / "study.toml", store=tmp_path / "runs").run()
    assert s.failures().to_pylist() == []
    t = s.table()
    assert t["depth"].to_pylist() == [1, 2]
    data: Any = fg.data.load("two_blobs:n=40,d=6")
    if reading == "train":
        one = fg.train(fg.mlp(depth=2), data=data, width=8, inits=2, steps=5, optimizer="gd", lr=0.05)
        assert t["loss_by_step"].to_pylist()[1] == one.loss.mean.tolist()
    else:
        assert all(word for word in t["verdict"].to_pylist())


@pytest.mark.parametrize("network", ["mlp", "{depth} x [dense > relu] > dense"])
@pytest.mark.parametrize("reading", ["measure", "predict"])
def test_a_plan_has_the_classes_of_its_data_and_options_may_be_the_networks(
    tmp_path: Path, network: str, reading: str
) -> None:
    """As `firstguess measure` has: digits are ten classes, though a builder's own default is two."""
    options = {"measure": "inits = 6\nwidth = 9\n", "predict": "draws = 50\n"}[reading]
    options += "activation = 'tanh'\n" if network == "mlp" else ""
    (tmp_path / "study.toml").write_text(
        f'reading = "{reading}"\nnetwork = "{network}"\ndata = "digits"\npoints = 40\n'
        f"[grid]\ndepth = [1]\n[options]\n{options}"
    )
    s = planned(tmp_path / "study.toml", store=tmp_path / "runs").run()
    assert s.failures().to_pylist() == []
    assert s.table()["classes"].to_pylist() == [10]
    assert ("tanh" in s.table()["network"].to_pylist()[0]) == (network == "mlp")
    two = (tmp_path / "study.toml").read_text().replace("[options]", "[options]\nclasses = 2")
    (tmp_path / "study.toml").write_text(two)
    if not (network != "mlp" and reading == "measure"):  # a description with labels of ten has no two
        assert planned(tmp_path / "study.toml", store=tmp_path / "runs").run().table()["classes"].to_pylist() == [2]
