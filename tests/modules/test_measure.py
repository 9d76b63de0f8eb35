"""`measure`: stretches, progress, early stops, interruption, findings; both engines; clear errors before long work.

Random checks are 5 standard errors wide: a two-sided false-alarm rate of 6e-7 each.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from firstguess.base.errors import InvalidInput, NotFinite
from firstguess.data import blob
from firstguess.ensemble.measurement import Measurement
from firstguess.ensemble.member_statistics import BETWEEN, SPREAD, Finding, FindingKind, Members, ProbedLayer
from firstguess.modules.measure import measure, run
from firstguess.network.network import Network
from firstguess.theory.closed_form import predict
from firstguess.theory.shares.empirical import EmpiricalGuesses
from firstguess.theory.shares.gaussian import Guesses

Z = 5.0
TEXT = "dense(weight_var=2) > relu > dense(weight_var=2)"


@dataclass
class FakeEngine:
    """Members of a known distribution; each depends on its number only."""

    gamma: float = 1.0
    classes: int = 2
    points: int = 500
    batch_hint: int = 7
    layers: tuple[ProbedLayer, ...] = (
        ProbedLayer("in", "dense", 10, True),
        ProbedLayer("relu", "relu", 10, False),
        ProbedLayer("out", "dense", 2, True),
    )
    notes: tuple[str, ...] = ("made up",)
    findings: tuple[Finding, ...] = ()
    asked: list[tuple[int, int]] = field(default_factory=list)

    def member(self, i: int) -> tuple[np.ndarray, np.ndarray, int]:
        fractions = Guesses(self.gamma, self.classes, self.points).sample(1, seed=i)[0]
        stats = np.zeros((len(self.layers), 4))
        stats[:, BETWEEN] = self.gamma * np.random.default_rng(i).chisquare(2, len(self.layers)) / 2
        stats[:, SPREAD] = 1.0
        return fractions, stats, 0

    def run(self, start: int, stop: int) -> Members:
        self.asked.append((start, stop))
        found = [self.member(i) for i in range(start, stop)]
        fractions, stats, ties = (np.array(part) for part in zip(*found, strict=True))
        return Members(start, fractions, ties, stats, self.findings)


def test_members_are_asked_for_in_stretches_and_progress_is_told():
    engine, told = FakeEngine(), []
    m = run(engine, inits=20, progress=lambda done, total: told.append((done, total)))
    assert engine.asked == [(0, 7), (7, 14), (14, 20)]
    assert told == [(7, 20), (14, 20), (20, 20)]
    assert (m.inits, m.points, m.classes, m.notes, m.findings) == (20, 500, 2, ("made up",), ())
    assert m.gamma.shape == m.gamma_se.shape == m.correlation.shape == m.correlation_se.shape == (2,)
    assert m.gamma_interval.shape == (2, 2)
    assert [layer.name for layer in m.layers] == ["in", "relu", "out"]
    assert run(FakeEngine(batch_hint=3), inits=20).guesses == m.guesses


def test_interruption_keeps_what_was_computed():
    def stop(done: int, total: int) -> None:
        if done >= 14:
            raise KeyboardInterrupt

    m = run(FakeEngine(), inits=1000, progress=stop)
    assert m.inits == 14
    assert [f.kind for f in m.findings] == ["interrupted"]
    assert "14 of 1000" in m.findings[0].message
    assert m.guesses == run(FakeEngine(), inits=14).guesses


def test_interruption_inside_the_first_stretch_is_raised():
    class Slow(FakeEngine):
        def run(self, start: int, stop: int) -> Members:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Slow(), inits=10)


@pytest.mark.parametrize("classes", [2, 5])
def test_precision_stops_as_soon_as_the_interval_is_narrow(classes):
    told = []
    m = run(FakeEngine(classes=classes), inits=5000, precision=0.02, progress=lambda *x: told.append(x))
    low, high = m.guesses.interval("std" if classes == 2 else "expected_max")
    assert (high - low) / 2 <= 0.02
    assert 50 <= m.inits < 5000
    assert told[-1] == (m.inits, m.inits)
    assert not m.findings
    # Neither the size of a stretch nor the number allowed changes where it stops.
    again = run(FakeEngine(classes=classes, batch_hint=64), inits=4000, precision=0.02)
    assert again.guesses == m.guesses


def test_precision_is_never_reached_by_few_members():
    constant = FakeEngine(gamma=0.0, points=10**6, batch_hint=1)  # narrow at once
    assert run(constant, inits=1000, precision=0.01).inits == 50
    short = run(FakeEngine(), inits=30, precision=0.001)
    assert short.inits == 30
    assert [f.kind for f in short.findings] == ["precision not reached"]


def test_findings_are_told_once():
    finding = Finding(FindingKind.NOT_REDRAWN, "no initializer draws this parameter", "head.scale")
    m = run(FakeEngine(findings=(finding,)), inits=20)
    assert m.findings == (finding,)
    assert "! not redrawn at head.scale: no initializer" in str(m)


def test_members_with_nan_are_left_out_and_counted():
    class Broken(FakeEngine):
        def member(self, i: int) -> tuple[np.ndarray, np.ndarray, int]:
            fractions, stats, ties = super().member(i)
            if i % 5 == 0:
                fractions, stats = np.full_like(fractions, np.nan), np.full_like(stats, np.inf)
            return fractions, stats, ties

    m = run(Broken(), inits=20)
    assert m.inits == 16
    assert np.isfinite(m.gamma).all()
    assert [f.kind for f in m.findings] == ["left out"]
    assert "4 of 20" in m.findings[0].message

    class Hopeless(Broken):
        def member(self, i: int) -> tuple[np.ndarray, np.ndarray, int]:
            return super().member(0)

    with pytest.raises(NotFinite, match="NaN or Inf in all 20 initializations, at out"):
        run(Hopeless(findings=(Finding(FindingKind.NONFINITE, "NaN", "out"),)), inits=20)


def test_ties_and_preferences_are_findings():
    class Tied(FakeEngine):
        def member(self, i: int) -> tuple[np.ndarray, np.ndarray, int]:
            return *super().member(i)[:2], 450

    m = run(Tied(gamma=0.01), inits=40)
    assert m.ties == pytest.approx(0.9)
    assert [f.kind for f in m.findings] == ["ties"]
    # only one member is looked at where all are one trained model: its own ties, not the sum over its batch
    one = run(Tied(gamma=0.01, findings=(Finding(FindingKind.NOTHING_FRESH, "trained"),)), inits=40)
    assert (one.inits, one.ties) == (1, pytest.approx(0.9))

    class Preferring(FakeEngine):
        def member(self, i: int) -> tuple[np.ndarray, np.ndarray, int]:
            fractions, stats, ties = super().member(i)
            return np.sort(fractions)[::-1], stats, ties

    (finding,) = run(Preferring(classes=3), inits=40).findings
    assert finding.kind == "classes differ"
    assert "class 0" in finding.message


def test_regime_falls_back_to_the_guesses():
    assert run(FakeEngine(gamma=20.0), inits=300).regime == "deeply biased"
    for gamma, regime in ((0.2, "neutral"), (3.0, "biased"), (100.0, "deeply biased"), (math.inf, "deeply biased")):
        rows = Guesses(gamma, 3, 1000).sample(3000, seed=0)
        assert Measurement(EmpiricalGuesses(rows, 1000), ()).regime == regime
    assert Measurement(EmpiricalGuesses(np.full((5, 2), 0.5), 10), ()).regime == "neutral"


def test_measurement_round_trips_through_json_and_fits_a_terminal():
    layers = tuple(ProbedLayer(f"blocks.{i}.attention.output.projection", "dense", 10, True) for i in range(200))
    m = run(FakeEngine(layers=layers), inits=9)
    again = Measurement.from_dict(json.loads(json.dumps(m.to_dict(), allow_nan=False)))
    assert again.to_dict() == m.to_dict()
    assert again.guesses == m.guesses
    assert again.layers == m.layers
    lines = str(m).splitlines()
    assert len(lines) < 45
    assert max(map(len, lines)) <= 100
    assert "… 176 more" in str(m)
    assert "… 176 more" in m._repr_html_()
    alone = run(FakeEngine(), inits=1)  # no error bars: NaN, as text
    back = Measurement.from_dict(json.loads(json.dumps(alone.to_dict(), allow_nan=False)))
    assert math.isnan(back.layers[0].gamma_se)
    assert str(back) == str(alone)


# --- the real engines -------------------------------------------------------------------------------------------


def test_a_description_is_measured():
    data = blob(300, 40)
    before = data.x.copy()
    m = measure(TEXT, data, inits=60, width=50, seed=3)
    assert np.array_equal(before, data.x)
    assert m.inits == 60
    assert m.points == 300
    assert m.provenance["data"]["hash"] == data.hash
    assert m.provenance["network"] == TEXT
    assert {"firstguess", "numpy", "torch", "python", "seed"} <= set(m.provenance)
    assert m.gamma.shape == (2,)
    assert measure(Network.parse(TEXT), data.x, inits=60, width=50, seed=3).guesses == m.guesses
    fewer = measure(TEXT, data, inits=10, width=50, seed=3)
    assert np.abs(fewer.guesses.fractions - m.guesses.fractions[:10]).max() <= 1 / 300  # one tie to rounding


def test_a_wide_description_agrees_with_theory():
    """γ = 1/(π−1) after one ReLU layer; 3 % of room for finite width and one fixed data set."""
    m = measure(TEXT, blob(500, 200), inits=400, width=200)
    predicted = predict(TEXT).gamma[-1]
    assert abs(m.gamma[-1] - predicted) < Z * m.gamma_se[-1] + 0.03 * predicted


def test_classes_come_from_the_labels_of_the_data():
    x = np.random.default_rng(0).standard_normal((30, 4))
    assert measure(TEXT, (x, np.arange(30) % 3), inits=2, width=8).classes == 3
    assert measure(TEXT, x, inits=2, width=8).classes == 2
    assert measure(TEXT, (x, np.arange(30) % 3), inits=2, width=8, classes=4).classes == 4
    assert measure(Network.parse(TEXT, classes=5), (x, np.arange(30) % 3), inits=2, width=8).classes == 5


def test_data_by_name_and_a_number_of_points():
    m = measure(TEXT, "blob:n=80,d=6", inits=2, width=8, points=50)
    assert m.points == 50
    assert "blob" in m.provenance["data"]["name"]


@pytest.mark.parametrize("kind", ["instance", "factory", "class"])
def test_modules_are_measured(kind):
    class Net(nn.Sequential):
        def __init__(self) -> None:
            super().__init__(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 3))

    what = {"instance": Net(), "factory": lambda: Net(), "class": Net}[kind]
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((64, 6)).astype(np.float32))
    random_before = torch.random.get_rng_state()
    m = measure(what, x, inits=8, batch_size=32)
    assert torch.equal(random_before, torch.random.get_rng_state())
    assert (m.inits, m.points, m.classes) == (8, 64, 3)
    assert len(m.gamma) == 2
    assert m.provenance["batch_sizes"] == [32]
    whole = measure(what, x, inits=8, batch_size=64).provenance
    assert whole["data"]["hash"] == m.provenance["data"]["hash"]
    assert measure(what, x + 1, inits=1).provenance["data"]["hash"] != m.provenance["data"]["hash"]


class Slow(nn.Module):
    """A model whose forward takes a time that no number of points changes."""

    def __init__(self, outputs: int = 3) -> None:
        super().__init__()
        self.head, self.calls = nn.Linear(5, outputs), []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.append(len(x))
        time.sleep(0.1)
        return self.head(x)


@pytest.mark.parametrize(("outputs", "size"), [(3, None), (2, 50), (3, 1000)])
def test_a_slow_forward_is_timed_and_fits_into_the_seconds(monkeypatch, outputs, size):
    """Counted in calls, of 0.1 s each: a machine that is busy makes fewer of them."""
    calls = []
    monkeypatch.setattr(time, "sleep", lambda seconds, wait=time.sleep: (calls.append(seconds), wait(seconds)))
    m = measure(Slow(outputs), np.random.default_rng(0).standard_normal((1000, 5)), batch_size=size, seconds=0.6)
    assert sum(calls) <= 0.6 + 0.05
    assert m.inits >= 2
    said = [finding.message for finding in m.findings if finding.kind == FindingKind.TIME_IS_UP]
    points = m.guesses.points
    assert points == 1000 or f"{points} of 1000 points, for two initializations within 0.6 s" in said
    assert (points == 1000) == (size == 1000)
    whole = measure(Slow(outputs), np.random.default_rng(0).standard_normal((1000, 5))[:100], inits=2)
    assert not any(finding.kind == FindingKind.TIME_IS_UP for finding in whole.findings)


def test_zero_head_is_a_finding():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(6, 20), nn.Linear(20, 2)
            nn.init.zeros_(self.head.weight)
            nn.init.zeros_(self.head.bias)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(x).relu())

    m = measure(Net, np.random.default_rng(0).standard_normal((200, 6)), inits=30)
    assert m.ties == 1.0
    assert "zero head" in {f.kind for f in m.findings}
    assert m.guesses.expected_max() < 0.7
    assert m.regime == "neutral"


# --- errors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"inits": 0}, "number of initializations, at least 1"),
        ({"inits": 2.5}, "number of initializations"),
        ({"seed": -1}, "seed"),
        ({"width": 0}, "width"),
        ({"classes": 1}, "number of classes, at least 2"),
        ({"precision": 0}, "precision between 0 and 1"),
        ({"precision": "fine"}, "precision"),
        ({"memory": -1}, "memory"),
        ({"points": 0}, "number of points"),
        ({"points": 10**6}, "points"),
        ({"init": "orthogonal"}, "an option of measure"),
        ({"colour": 1}, "an option of measure.*colour="),
    ],
)
def test_bad_arguments_are_refused(arguments, text):
    with pytest.raises(InvalidInput, match=text):
        measure(TEXT, np.ones((10, 3)), **arguments)


@pytest.mark.parametrize("what", [TEXT, nn.Linear(3, 2)])
def test_copies_of_one_point_are_refused_in_one_line(what):
    with pytest.raises(InvalidInput, match=r"^Expected data points that differ, but got 10 copies of one point.*$"):
        measure(what, np.ones((10, 3), np.float32), inits=2)
    x = np.ones((10, 3), np.float32)
    x[-1, -1] = 2.0
    assert measure(what, x, inits=2).points == 10


def test_copies_of_one_sequence_are_refused():
    model = nn.Sequential(nn.Embedding(7, 5), nn.Flatten(), nn.Linear(20, 2))
    ids = torch.tensor([[1, 2, 3, 4]])
    loader = DataLoader(ids.repeat(9, 1), batch_size=4)
    with pytest.raises(InvalidInput, match="got 9 copies of one point"):
        measure(model, loader, inits=2)
    assert measure(model, torch.cat([ids.repeat(8, 1), ids.flip(1)]), inits=2).points == 9


def test_bad_networks_and_data_are_refused():
    x = np.arange(30, dtype=np.float32).reshape(10, 3)
    for what in (None, 3, [TEXT]):
        with pytest.raises(InvalidInput, match="a Network, its text"):
            measure(what, x)
    with pytest.raises(InvalidInput):
        measure("dense > rellu > dense", x)
    with pytest.raises(InvalidInput):
        measure(TEXT, np.full((10, 3), np.nan))
    with pytest.raises(InvalidInput, match="a module has its own"):
        measure(nn.Linear(3, 2), x, width=10)
    with pytest.raises(InvalidInput, match="2 classes, what the model gives"):
        measure(nn.Linear(3, 2), x, classes=3)
    with pytest.raises(InvalidInput, match="an option of measure"):
        measure(nn.Linear(3, 2), x, threads=2)


def test_results_load_without_torch():
    code = (
        "import sys, firstguess.ensemble, firstguess.modules.measure\n"
        "import firstguess.diagnosis.compare, firstguess.theory.shares.empirical\n"
        "assert 'torch' not in sys.modules\n"
        "import firstguess\n"
        "assert callable(firstguess.measure) and callable(firstguess.compare)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
