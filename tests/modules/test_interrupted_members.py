"""Ctrl-C in the middle of a stretch: every member that was finished is kept, and is the member it would have been."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from firstguess.data import blob, collect
from firstguess.ensemble.engine import DescriptionEngine
from firstguess.ensemble.member_statistics import Interrupted, Members
from firstguess.ensemble.worker import TokenWorker, Worker
from firstguess.modules.engine import ModuleEngine
from firstguess.modules.measure import measure
from firstguess.network.network import Network


class Cut(nn.Module):
    """Is interrupted in the forward of a member, once."""

    after = -1

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 30), nn.ReLU(), nn.Linear(30, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if Cut.after == 0:
            Cut.after = -1
            raise KeyboardInterrupt
        Cut.after -= Cut.after > 0
        return self.body(x)


@pytest.mark.parametrize("make", [Cut(), Cut])
def test_a_models_finished_members_are_kept(make: Any) -> None:
    data = collect(blob(40, 8))  # one batch: a forward is a member
    engine = ModuleEngine(make, data, strategy="loop")
    Cut.after = 5
    with pytest.raises(Interrupted) as cut:
        engine.run(2, 60)
    whole = engine.run(2, 7)
    assert cut.value.members.start == 2
    np.testing.assert_array_equal(cut.value.members.fractions, whole.fractions)
    np.testing.assert_array_equal(cut.value.members.stats, whole.stats)


def test_measure_says_how_many_there_are():
    data = blob(40, 8)
    engine = ModuleEngine(Cut(), collect(data), strategy="loop")  # forwards before the first member are not counted
    Cut.after = 7
    with pytest.raises(Interrupted) as cut:
        engine.run(0, 60)
    assert cut.value.members.inits == 7
    Cut.after = 30
    m = measure(Cut(), data, inits=60, strategy="loop")
    assert 4 < m.inits < 30
    assert [f.message for f in m.findings if f.kind == "interrupted"] == [
        f"{m.inits} of 60 initializations were computed"
    ]
    assert m.guesses == measure(Cut(), data, inits=m.inits, strategy="loop").guesses


TOKENS = "embed(0.5, vocabulary=9) > residual[attention(2, causal)] > rmsnorm > unembed"


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("kind", "source"), [(Worker, "dense > relu > dense"), (TokenWorker, TOKENS)])
def test_a_descriptions_finished_groups_are_kept(
    kind: Any, source: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = blob(50, 10).x if kind is Worker else np.random.default_rng(5).integers(0, 9, (10, 4))
    network = Network.parse(source, classes=2 if kind is Worker else 9)
    engine = DescriptionEngine(network, data, width=20, threads=threads, group=3)
    whole = engine.run(0, 30)
    engine = DescriptionEngine(network, data, width=20, threads=threads, group=3)
    run, seen = kind.run, list[int]()

    def cut(self: Any, seeds: Any, into: Members) -> None:
        seen.append(into.start)
        if into.start == 12:
            raise KeyboardInterrupt
        run(self, seeds, into)

    monkeypatch.setattr(kind, "run", cut)
    with pytest.raises(Interrupted) as stopped:
        engine.run(0, 30)
    kept = stopped.value.members
    assert kept.inits == 12
    np.testing.assert_array_equal(kept.fractions, whole.fractions[:12])
    np.testing.assert_array_equal(kept.stats, whole.stats[:12])
    assert max(seen) < 30
    for name in ("logits", "own", "places"):
        one, other = getattr(kept, name), getattr(whole, name)
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_array_equal(one, other[:12])
