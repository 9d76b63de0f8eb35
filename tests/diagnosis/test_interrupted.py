"""Ctrl-C: what is done is kept, what takes time is left out, and a finding says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import nn

import firstguess as fg
from firstguess.diagnosis import Diagnosis, advice, diagnose, session

BLOB = fg.data.blob(100, 20)


def ctrl_c(*_: object, **__: object) -> Any:
    raise KeyboardInterrupt


def model() -> nn.Module:
    return nn.Sequential(*[m for _ in range(3) for m in (nn.Linear(20, 20), nn.ReLU())], nn.Linear(20, 2))


def diagnosed(**options: Any) -> Diagnosis:
    return fg.diagnose(model(), BLOB, inits=8, **options)


def said(d: Diagnosis) -> list[str]:
    return [finding.message for finding in d.findings if finding.kind == "interrupted"]


@pytest.mark.parametrize(
    ("place", "left_out"),
    [
        ("trace_flow", "causes, gradients, how long the bias lasts, copies in training, remedies"),
        ("effects_of", "effects of causes, gradients, how long the bias lasts, copies in training, remedies"),
        ("read", "structure, gradients, copies in training, remedies"),
        ("expectation", "theory, gradients, how long the bias lasts, copies in training, remedies"),
        ("measure_gradients", "gradients, how long the bias lasts, copies in training, remedies"),
    ],
)
def test_parts_that_are_done_are_kept(
    place: str, left_out: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(diagnose if place == "expectation" else session, place, ctrl_c)
    d = diagnosed()
    assert said(d) == [f"left out: {left_out}"]
    assert d.verdict.gamma > 0
    assert bool(d.causes) == (place != "trace_flow")
    assert (d.expected.prediction is None) == (place in ("read", "expectation"))
    assert d.trainability is None
    assert d.advice == ()
    assert f"! interrupted: left out: {left_out}" in " ".join(str(d).split())
    if d.lasting is None and d.rehearsal is None:
        assert d.headline.endswith("not known: the diagnosis was interrupted.")
        assert "not requested" not in str(d)
    assert "interrupted" in d.save(tmp_path / "r.html").read_text("utf-8")


def test_remedies_that_were_tried_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    tried, calls = advice.predicted, []

    def second(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        return tried(*arguments, **options) if len(calls) < 2 else ctrl_c()

    monkeypatch.setattr(advice, "predicted", second)
    d = diagnosed()
    assert len(d.advice) == 1
    assert d.trainability is not None
    assert said(d) == ["left out: some remedies"]


def test_a_remedy_that_was_half_measured_is_no_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    """`measure` swallows Ctrl-C and gives what it has."""
    real = session.measure

    def halved(what: Any, data: Any, **options: Any) -> Any:
        return real(what, data, **(options if options["inits"] == 8 else options | {"progress": ctrl_c}))

    monkeypatch.setattr(session, "measure", halved)
    monkeypatch.setattr(diagnose, "expectation", lambda *_, **__: diagnose.Expected(None, None, "not asked"))
    d = diagnosed()
    assert d.advice == ()
    assert said(d) == ["left out: remedies"]


def test_after_an_interrupted_measurement_only_what_is_quick_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    real = session.measure

    def broken_off(what: Any, data: Any, **options: Any) -> Any:
        return real(what, data, **(options | {"progress": ctrl_c}))

    monkeypatch.setattr(session, "measure", broken_off)
    for slow in ("trace_flow", "measure_gradients", "advise"):
        monkeypatch.setattr(
            diagnose.advising if slow == "advise" else session, slow, lambda *_, **__: pytest.fail("this takes time")
        )
    d = fg.diagnose(model(), BLOB, inits=5000)
    assert d.measurement is not None
    done = d.measurement.inits
    assert done < 5000
    assert said(d) == [
        f"{done} of 5000 initializations were computed; left out: causes, gradients, how long the bias lasts, copies "
        "in training, remedies"
    ]
    assert d.expected.comparison is not None


def test_between_parts() -> None:
    def third(done: int, _: int) -> None:
        if done == session.EXPECTED:
            raise KeyboardInterrupt

    assert said(diagnosed(progress=third)) == [
        "left out: gradients, how long the bias lasts, copies in training, remedies"
    ]


def test_before_anything_is_measured_there_is_nothing_to_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "measure", ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        diagnosed()


def test_ctrl_c_while_networks_are_drawn_keeps_those() -> None:
    """Progress is told within the measurement too."""
    seen: list[int] = []

    def half(done: int, total: int) -> None:
        seen.append(done)
        assert total == 100
        if done > session.LOOKED:
            raise KeyboardInterrupt

    d = fg.diagnose(model(), BLOB, inits=3000, progress=half)
    assert d.measurement is not None
    assert 0 < d.measurement.inits < 3000
    assert any(session.LOOKED < done < session.MEASURED for done in seen)
    assert d.verdict.preliminary == f"{d.measurement.inits} of 3000 initializations"
