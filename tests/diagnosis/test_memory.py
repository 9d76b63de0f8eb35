"""Copies of a model: few at a time, and none when a diagnosis is over."""

import gc
from typing import Any

import pytest
import torch
from torch import nn

import firstguess as fg
from firstguess.diagnosis import session
from firstguess.modules import gradient_passes


class Marked(nn.Linear):
    """To be counted."""


def alive() -> int:
    gc.collect()
    return sum(type(o) is Marked for o in gc.get_objects())


def model() -> nn.Module:
    return nn.Sequential(Marked(12, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 2))


@pytest.mark.filterwarnings("ignore::FutureWarning")  # looking at all objects touches torch's deprecated ones
def test_nothing_is_left_of_a_diagnosis() -> None:
    mine, data = model(), fg.data.blob(60, 12)
    before = alive()
    d = fg.diagnose(mine, data, inits=6)
    assert d.trainability is not None
    assert alive() == before


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_large_model_has_one_copy_when_remedies_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_LARGE", 0)
    seen: list[int] = []
    study = session.Subject.study

    def counted(self: session.Subject, what: Any, **others: Any) -> Any:
        source = study(self, what, **others)
        seen.append(alive())
        return source

    monkeypatch.setattr(session.Subject, "study", counted)
    mine = nn.Sequential(
        Marked(12, 20), nn.RReLU(), nn.ReLU(), nn.Linear(20, 2)
    )  # not described: remedies are measured
    fg.diagnose(mine, fg.data.Data(fg.data.blob(60, 12).x + 1.0), inits=6)
    assert len(seen) > 1
    assert max(seen) <= 3  # the user's, an edited one, and the copy of it that is drawn


def test_weights_of_one_batch_are_squared_as_those_of_several() -> None:
    torch.manual_seed(0)
    mine, data = model(), fg.data.blob(64, 12)
    one = fg.measure_gradients(mine, data, inits=3, batch_size=64)
    two = fg.measure_gradients(mine, data, inits=3, batch_size=32)
    for a, b in zip(one.layers, two.layers, strict=True):
        assert a.weight.value == pytest.approx(b.weight.value, rel=1e-4)
    assert gradient_passes._total_square(torch.full((3, 1 << 20), 2.0)) == 4.0 * 3 * (1 << 20)
