"""A frozen body is run once for all re-initialized heads, and members are those of full forwards."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import firstguess as fg
from firstguess.modules import engine

pytestmark = pytest.mark.usefixtures("one_thread")
CALLS: list[int] = []


class Body(nn.Module):
    """Counts the points that it is run on; what follows changes its output in place."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 40), nn.BatchNorm1d(40))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        CALLS.append(len(x))
        return {"features": self.layers(x)}


class Classifier(nn.Module):
    def __init__(self, *, after: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(12, 12) if after else nn.Identity()
        self.body = Body()
        self.head = nn.Linear(40, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.first(x))["features"].relu_())


def measured(
    model: nn.Module, redraw: str, monkeypatch: pytest.MonkeyPatch | None = None, **options: object
) -> tuple[fg.Measurement, int]:
    x = torch.randn(300, 12, generator=torch.Generator().manual_seed(1))
    CALLS.clear()
    if monkeypatch is not None:
        monkeypatch.setattr(engine, "frozen_body", lambda *a: None)
    m = fg.measure(model, x, inits=30, redraw=redraw, batch_size=100, strategy="loop", **options)
    return m, sum(size > 3 for size in CALLS)


@pytest.mark.parametrize("probe", ["all", "output"])
def test_thirty_heads_cost_the_body_two_passes(probe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = Classifier()
    m, passes = measured(model, "head.*", probe=probe)
    assert passes == 2 * 3  # the first member, and the second once more to check it; three batches each
    full, every = measured(model, "head.*", monkeypatch, probe=probe)
    assert every == 30 * 3
    assert m.guesses.fractions.tolist() == full.guesses.fractions.tolist()
    assert [layer.name for layer in m.layers] == [layer.name for layer in full.layers]
    np.testing.assert_array_equal([layer.gamma for layer in m.layers], [layer.gamma for layer in full.layers])
    assert any("what is kept (body) was run once" in note for note in m.notes)
    assert "forward" not in vars(model.body)


def test_a_body_after_a_fresh_layer_is_run_for_every_member(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = Classifier(after=True)
    m, passes = measured(model, "first.*")
    full, _ = measured(model, "first.*", monkeypatch)
    assert passes >= 30 * 3
    assert not any("was run once" in note for note in m.notes)
    assert m.guesses.fractions.tolist() == full.guesses.fractions.tolist()


def test_what_does_not_fit_in_memory_is_run_in_full() -> None:
    m, passes = measured(Classifier(), "head.*", memory=4e4)
    assert passes >= 30 * 3
    assert not any("was run once" in note for note in m.notes)
