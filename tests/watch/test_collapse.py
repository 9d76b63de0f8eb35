"""Why outputs collapsed in a training that is watched: the name, the step and the class."""

from __future__ import annotations

import re
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import firstguess as fg
from firstguess.diagnosis import faults
from firstguess.watch import loop

pytestmark = pytest.mark.usefixtures("one_thread")


def collapsing(rate: float, watched: bool, steps: int = 40, **known: Any) -> tuple[nn.Module, Any]:
    """A training whose rate is too high, with or without a watch."""
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(0)
    x = torch.randn(256, 20, generator=g)
    y = (x @ torch.randn(20, 4, generator=g)).argmax(1)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4), nn.Dropout(0.1))
    optimizer = torch.optim.SGD(model.parameters(), rate)
    options: dict[str, Any] = {"optimizer": optimizer, "loss": nn.CrossEntropyLoss(), "predict_seconds": 0.0, **known}
    watch = fg.Watch(model, (x, y), **options) if watched else None
    for k in range(steps):
        if watch is not None:
            watch.step(k)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model, watch


def test_a_collapse_has_the_doctor_s_name_its_step_and_class_and_is_warned_of_once() -> None:
    with pytest.warns(RuntimeWarning, match="learning rate too high") as caught:
        model, watch = collapsing(30.0, True)
    watch.finish()  # any further warning would be an error
    said = [str(w.message) for w in caught if "firstguess.Watch" in str(w.message)]
    assert len(said) == 1
    found = watch.result.collapse
    assert found is not None
    assert found.name == "learning rate too high"
    assert "a re-initialized copy is thrown off at lr = 30" in found.why
    assert "What to do: lr=" in found.why
    x = watch._eyes.batches[0].inputs
    assert found.label == int(model(x).argmax(1).mode().values)
    assert found.step < 40
    # Warned of as soon as it is one: at a rate like this another class may lead by the end.
    warned = re.search(r"from step (\d+) on (?:class \d gets|one class after another gets most guesses)", said[0])
    assert warned is not None
    assert int(warned[1]) <= found.step + 1
    assert watch.cost.naming > 0
    assert "naming the collapse took" in str(watch.cost)
    assert watch.result.to_dict()["collapse"]["why"] == found.why


def test_naming_a_collapse_leaves_the_training_as_it_is() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        alone, _ = collapsing(30.0, False)
        model, watch = collapsing(30.0, True)
    assert watch.result.collapse is not None
    for a, b in zip(alone.parameters(), model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_collapse_without_an_optimizer_is_told_by_the_loss() -> None:
    with pytest.warns(RuntimeWarning, match="learning rate too high: the loss rose"):
        collapsing(30.0, True, optimizer=None)


def test_weights_that_blew_up_in_a_watched_training_are_not_called_never_initialized(monkeypatch: pytest.MonkeyPatch):
    """Where time is short only the weights are looked at as they are now, up to 1e25: memory as it was found?"""
    monkeypatch.setattr(loop, "_NAMING", 1e-6)
    torch.manual_seed(5)
    y = torch.arange(300) % 3
    x = torch.randn(300, 12, generator=torch.Generator().manual_seed(4))
    x[torch.arange(300), y] += 3.0
    model = nn.Sequential(nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 3))
    optimizer = torch.optim.SGD(model.parameters(), 50.0)
    watch = fg.Watch(model, (x, y), optimizer=optimizer, loss=nn.CrossEntropyLoss(), predict_seconds=0.0)

    def train() -> None:
        for k in range(40):
            watch.step(k)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

    with pytest.warns(RuntimeWarning, match="learning rate too high: the loss rose"):
        train()
    assert watch.result.collapse is not None
    assert watch.result.collapse.name == "learning rate too high"


@pytest.mark.parametrize(("seconds", "name"), [(1e-6, "learning rate too high"), (1e6, "gradients explode")])
def test_what_the_rate_may_bring_is_no_name_where_time_was_up_before_the_rate_was_asked_about(
    monkeypatch: pytest.MonkeyPatch, seconds: float, name: str
) -> None:
    monkeypatch.setattr(loop, "_NAMING", seconds)
    answer = (SimpleNamespace(name="gradients explode", words="values grow from layer to layer"),)
    monkeypatch.setattr(faults, "explain_collapse", lambda *args, **known: answer)
    with pytest.warns(RuntimeWarning, match=name):
        _, watch = collapsing(30.0, True)
    assert watch.result.collapse.name == name


def test_a_collapse_that_ends_in_ties_is_still_said() -> None:
    """Weight decay halves the weights at every step until logits are equal: even guesses then, and nothing learned."""
    torch.manual_seed(5)
    y = torch.arange(150) % 3
    x = torch.randn(150, 12, generator=torch.Generator().manual_seed(1))
    model = nn.Sequential(nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, weight_decay=5.0)
    watch = fg.Watch(model, (x, y), optimizer=optimizer, predict_seconds=0.0)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        for k in range(250):
            watch.step(k)
            optimizer.zero_grad()
            (0.0 * model(x).sum()).backward()
            optimizer.step()
        watch.finish()
    assert any("of all guesses" in str(one.message) for one in heard)
    assert watch.result.collapse is None
    assert "until then outputs were one class: " in watch.result.finding
    assert "the prediction took" not in str(watch.result)


def test_a_calm_training_has_no_collapse() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, watch = collapsing(0.1, True)
    assert watch.result.collapse is None
    assert watch.cost.naming == 0
