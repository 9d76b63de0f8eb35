"""`seconds`: slow models get fewer points and fewer networks, late parts are left out, and the page says so."""

# pyright: reportPrivateUsage=false

import math
import time
from dataclasses import replace
from typing import Any

import pytest
import torch
from diagnoses import sample
from torch import nn

import firstguess as fg
from firstguess.diagnosis import sentences
from firstguess.diagnosis.diagnose import _QUESTIONS
from firstguess.diagnosis.session import Clock


class Slow(nn.Module):
    """This many seconds for a point, whatever the weights."""

    def __init__(self, a_point: float) -> None:
        super().__init__()
        self.a_point = a_point
        self.body = nn.Sequential(nn.Linear(10, 30), nn.ReLU(), nn.Linear(30, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(self.a_point * len(x))
        return self.body(x)


def test_a_slow_model_keeps_to_its_time():
    began = time.process_time(), time.perf_counter()
    d = fg.diagnose(Slow(2e-3), fg.data.blob(600, 10), seconds=6)
    asleep = time.perf_counter() - began[1] - (time.process_time() - began[0])
    assert asleep < 1.25 * 6 + 3 * 2e-3 * 600  # and one pass forward and back; what a busy machine takes does not count
    assert d.measurement is not None
    assert d.measurement.inits >= 2
    assert d.measurement.points < 600
    assert "of 600 points" in d.verdict.preliminary
    assert "preliminary" in str(d)


def test_what_was_left_out_is_said():
    d = fg.diagnose(Slow(5e-3), fg.data.blob(100, 10), seconds=0.5)
    late = [f.message for f in d.findings if f.kind == "time is up" and "skipped" in f.message]
    assert len(late) == 1
    assert "gradients" in late[0]
    assert d.trainability is None


def test_a_small_model_is_asked_about_its_loss_even_where_time_is_up(monkeypatch: pytest.MonkeyPatch):
    """ "That takes about 0.02 s, and 0 s were left", said a page of eight seconds."""
    share = Clock.share
    monkeypatch.setattr(Clock, "share", lambda self, part: 0.0 if part == _QUESTIONS else share(self, part))
    model = nn.Sequential(nn.Linear(10, 30), nn.ReLU(), nn.Linear(30, 2), nn.Softmax(1))
    d = fg.diagnose(model, fg.data.blob(300, 10), advice=False, inits=8)
    assert not [note for note in d.notes if "were not looked for" in note]
    slow = fg.diagnose(Slow(5e-3), fg.data.blob(100, 10), seconds=0.5)
    assert [note for note in slow.notes if "were not looked for" in note]


def test_ordinary_models_are_not_cut():
    d = fg.diagnose(nn.Sequential(nn.Linear(10, 30), nn.ReLU(), nn.Linear(30, 2)), fg.data.blob(300, 10), advice=False)
    assert d.measurement is not None
    assert (d.measurement.inits, d.measurement.points) == (64, 300)
    assert d.verdict.preliminary == ""


def test_gradients_stop_in_time():
    g = fg.measure_gradients(Slow(1e-2), fg.data.blob(20, 10), inits=50, seconds=0.5)
    assert 2 <= g.inits < 50


@pytest.mark.parametrize("what", [lambda: Slow(1e-2), Slow(1e-2)])
def test_a_measurement_stops_between_members(what: Any):
    m = fg.measure(what, fg.data.blob(20, 10), inits=500, seconds=1.0)
    assert 2 <= m.inits < 20


class Counted(nn.Module):
    """Two milliseconds for a point, which are counted."""

    slept = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 40), nn.ReLU(), nn.Linear(40, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(2e-3 * len(x))
        type(self).slept += 2e-3 * len(x)
        return self.net(x)


def test_seconds_bound_what_passes_of_a_slow_model_take() -> None:
    """With labels, loss and optimizer: questions to the model are passes, too (they took three times the limit)."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(1000, 10, generator=generator), torch.randint(0, 3, (1000,), generator=generator)
    Counted.slept = 0.0
    loss = nn.CrossEntropyLoss()
    fg.diagnose(Counted(), (x, y), seconds=4, loss=loss, optimizer=torch.optim.SGD, lr=0.1, progress=False)
    assert Counted.slept < 4.0  # one pass of all points takes 2


class Sleepy(nn.Module):
    """A fifth of a second for a call, however few its points are, which is counted; one of its classes may win."""

    slept = 0.0

    def __init__(self, norm: nn.Module | None = None, lead: float = 0.0) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 40), norm or nn.Identity(), nn.ReLU(), nn.Linear(40, 3))
        self.lead = torch.tensor([lead, 0.0, 0.0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.2)
        type(self).slept += 0.2
        return self.net(x) + self.lead


def _explained(model: nn.Module, data: Any, **options: Any) -> Any:
    return fg.explain_guess(model, data, loss=nn.CrossEntropyLoss(), optimizer=torch.optim.SGD, **options)


def _diagnosed(model: nn.Module, data: Any, **options: Any) -> Any:
    return fg.diagnose(model, data, loss=nn.CrossEntropyLoss(), progress=False, **options)


@pytest.mark.parametrize(
    "make", [Sleepy, lambda: Sleepy(nn.BatchNorm1d(40)), lambda: Sleepy(nn.BatchNorm1d(40), lead=9.0)]
)
@pytest.mark.parametrize(("ask", "passes"), [(fg.measure, 4), (fg.explain_guess, 5), (_explained, 6), (_diagnosed, 5)])
def test_a_pass_of_a_fifth_of_the_time(ask: Any, passes: int, make: Any) -> None:
    """As 2 s are of 10: a look, two calls that tell axes apart, two initializations, and one for what the loss takes.
    Passes are what is counted: what else a busy machine takes is not ours."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(100, 10, generator=generator) + 1.0, torch.randint(0, 3, (100,), generator=generator)
    Sleepy.slept = 0.0
    ask(make(), (x, y), seconds=1)
    assert 0.75 < Sleepy.slept < 0.2 * passes + 0.1


def test_causes_that_were_not_tried_say_what_they_need() -> None:
    d = sample()
    untried = replace(d.causes[0], largest_after=math.nan)
    late = replace(d, causes=(untried,), causes_need=431.0)
    assert sentences.cause(late) == "causes were not tried: that needs about 8 minutes: seconds=480"
    some = replace(d, causes=(replace(d.causes[0], error=1.0), untried), causes_need=431.0)
    assert sentences.cause(some).startswith(
        "too little to tell, of 1 steps that were tried: that needs about 8 minutes"
    )
    assert "statistically clear effect" in sentences.cause(replace(d, causes=(replace(d.causes[0], error=1.0),)))
