"""What the output is without a step: against plain loops that follow the definition once more."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from firstguess.data import Batch, blob, collect
from firstguess.ensemble.seeds import member_seeds
from firstguess.modules.ablation import RemovalEffect, effects_of, of_all
from firstguess.modules.flow import DATA, trace_flow
from firstguess.modules.members.sources import source_of

X = torch.as_tensor(np.array(blob(251, 30, seed=1).x), dtype=torch.float32) + 0.7
BATCHES = collect(X, batch_size=251)
Change = Callable[[torch.Tensor], torch.Tensor]


def found(model: nn.Module, *removed: str, batches: list[Batch] | None = None, inits: int = 6) -> RemovalEffect:
    given = BATCHES if batches is None else batches
    members = source_of(model, given)
    flow = trace_flow(members, given, inits=inits)
    effects = effects_of(members, given, flow, {"one": removed}, inits=inits)
    assert effects.impossible == effects.late == ()
    return effects.found["one"]


def by_hand(model: nn.Module, forward: Callable[[nn.Module, bool], torch.Tensor], inits: int = 6) -> np.ndarray:
    """(inits, 2): the largest fraction with and without, of the same members."""
    members = source_of(model, BATCHES)
    rows: list[list[float]] = []
    for seed in member_seeds(0, 0, inits):
        with members.member(int(seed)) as mine, torch.no_grad():
            logits = [forward(mine, without) for without in (False, True)]
            rows.append([float(z.argmax(1).bincount(minlength=z.shape[1]).max()) / len(z) for z in logits])
    return np.array(rows)


def center_and_spread(x: torch.Tensor) -> tuple[float, float]:
    x = x.double().reshape(len(x), -1)
    spread = float(x.var(0).mean())
    return float(x.mean(0).square().mean()) - spread / len(x), spread


def own_lowered(y: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """The definition of `modules/ablation.py`, by bisection: less of the grand average, then of all nodes' averages."""

    def grand_share(x: torch.Tensor) -> float:
        return float(x.double().mean()) ** 2 / sum(center_and_spread(x))

    def c(x: torch.Tensor) -> float:
        center, spread = center_and_spread(x)
        return center / (center + spread)

    def least(change: Callable[[float], torch.Tensor], measure: Change, limit: float) -> torch.Tensor:
        low, high = 0.0, 1.0  # how much is subtracted
        if float(measure(change(0.0))) <= limit:
            return change(0.0)
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if float(measure(change(middle))) > limit else (low, middle)
        return change(high)

    y = y.double()
    grand = y.mean()
    y = least(lambda part: y - part * grand, grand_share, grand_share(before))  # type: ignore[arg-type]
    mean = y.mean(0, keepdim=True)
    return least(lambda part: y - part * mean, c, max(c(before), 0.0)).float()  # type: ignore[arg-type]


def agree(effect: RemovalEffect, rows: np.ndarray) -> None:
    """The same members on the same points: a guess may flip by rounding, so to two points."""
    assert effect.inits == len(rows)
    assert effect.points == 251
    assert effect.largest_before == pytest.approx(rows[:, 0].mean(), abs=2 / 251)
    assert effect.largest_after == pytest.approx(rows[:, 1].mean(), abs=2 / 251)
    change = rows[:, 1] - rows[:, 0]
    assert effect.error == pytest.approx(change.std(ddof=1) / len(rows) ** 0.5, abs=2 / 251)


def deep(phi: Callable[[], nn.Module]) -> nn.Sequential:
    blocks = [m for i in range(3) for m in (nn.Linear(30 if i == 0 else 80, 80), phi())]
    return nn.Sequential(*blocks, nn.Linear(80, 5))


@pytest.mark.parametrize("phi", [nn.ReLU, nn.Softplus, nn.Sigmoid])
@pytest.mark.parametrize("removed", [("1",), ("3",), ("1", "3", "5")])
def test_activations_without_their_own_part(phi: type[nn.Module], removed: tuple[str, ...]) -> None:
    def forward(model: nn.Module, without: bool) -> torch.Tensor:
        h = X
        for name, module in model.named_children():
            y = module(h)
            h = own_lowered(y, h) if without and name in removed else y
        return h

    model = deep(phi)
    effect = found(model, *removed)
    agree(effect, by_hand(model, forward))


@pytest.mark.parametrize("phi", [nn.ReLU, nn.Tanh, nn.LeakyReLU])
def test_data_without_their_mean_point(phi: type[nn.Module]) -> None:
    model = deep(phi)
    effect = found(model, DATA)
    agree(effect, by_hand(model, lambda m, without: m(X - X.mean(0) if without else X)))


@pytest.mark.parametrize("norm", [nn.LayerNorm, nn.BatchNorm1d])
def test_a_norm_that_lowers_correlation_gets_it_back(norm: type[nn.Module]) -> None:
    model = nn.Sequential(nn.Linear(30, 80), nn.ReLU(), norm(80), nn.Linear(80, 5))

    def forward(m: nn.Module, without: bool) -> torch.Tensor:
        before = m[1](m[0](X))  # type: ignore[index]
        after = m[2](before)  # type: ignore[index]
        if without:
            center, spread = center_and_spread(before)
            mean, wanted = before.mean(0), center / (center + spread)
            low, high = 0.0, 1e4
            for _ in range(100):
                middle = (low + high) / 2
                one, other = center_and_spread(after + middle * mean)
                low, high = (middle, high) if one / (one + other) < wanted else (low, middle)
            after = after + high * mean
        return m[3](after)  # type: ignore[index]

    effect = found(model, "2")
    agree(effect, by_hand(model, forward))
    assert effect.largest_after > effect.largest_before


class Residual(nn.Module):
    """Plain code whose result is read twice: by the next layer, and by a skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(30, 80), nn.Linear(80, 80), nn.Linear(80, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.relu(self.a(x))
        return self.c(self.b(h) + h)


def test_what_plain_code_makes_is_changed_for_all_that_read_it() -> None:
    def forward(m: nn.Module, without: bool) -> torch.Tensor:
        before = m.a(X)  # type: ignore[operator]
        h = own_lowered(F.relu(before), before) if without else F.relu(before)
        return m.c(m.b(h) + h)  # type: ignore[operator]

    model = Residual()
    agree(found(model, "code before b"), by_hand(model, forward))


class Returns(nn.Module):
    """A step that returns several things."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: torch.Tensor) -> object:
        y = F.relu(x)
        return {"tuple": (y, x), "list": [y, x], "dict": {"y": y, "x": x}}[self.kind]


@pytest.mark.parametrize("kind", ["tuple", "list", "dict"])
def test_results_of_several_tensors(kind: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.phi, self.c = nn.Linear(30, 80), Returns(kind), nn.Linear(80, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.phi(self.a(x))
            return self.c(y["y" if kind == "dict" else 0])

    def forward(m: nn.Module, without: bool) -> torch.Tensor:
        before = m.a(X)  # type: ignore[operator]
        return m.c(own_lowered(F.relu(before), before) if without else F.relu(before))  # type: ignore[operator]

    model = Model()
    agree(found(model, "phi"), by_hand(model, forward))


def test_a_head_that_cannot_be_told_apart_is_said_to_be_impossible() -> None:
    tokens = torch.randint(0, 50, (61, 7), generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 5))
    batches = collect(tokens, batch_size=61)
    members = source_of(model, batches)
    flow = trace_flow(members, batches, inits=3)
    effects = effects_of(members, batches, flow, {"head": ("1",), "words": ("0",)}, inits=3)
    assert effects.impossible == ("head",)
    assert set(effects.found) == {"words"}


def test_a_change_seen_on_some_is_said_of_all() -> None:
    """A control variate: right on average, and closer than the plain mean where the change depends on the share."""
    stream = np.random.default_rng(7)
    plain, ours, claimed = [], [], []
    for _ in range(4000):
        shares = stream.uniform(0.3, 1.0, 64)
        change = -0.8 * (shares[:20] - 0.2) + 0.05 * stream.standard_normal(20)
        before, moved, error = of_all(shares, range(20), change)
        assert before == shares.mean()
        plain.append(change.mean())
        ours.append(moved)
        claimed.append(error)
    truth = -0.8 * (0.65 - 0.2)
    assert abs(np.mean(ours) - truth) < 5 * np.std(ours) / math.sqrt(4000)  # five standard errors: 6e-7
    assert np.std(ours) < 0.7 * np.std(plain)
    assert 0.9 < np.mean(claimed) / np.std(ours) < 1.1  # ± 0.011 of 4000


def test_no_time_no_effects_and_all_of_them_are_late() -> None:
    model = deep(nn.ReLU)
    members = source_of(model, BATCHES)
    flow = trace_flow(members, BATCHES, inits=3)
    effects = effects_of(members, BATCHES, flow, {"a": ("1",), "b": (DATA,)}, seconds=1e-9)
    assert effects.found == {}
    assert effects.late == ("a", "b")


def test_nothing_of_the_users_model_or_data_changes() -> None:
    model = nn.Sequential(nn.Linear(30, 80), nn.BatchNorm1d(80), nn.ReLU(inplace=True), nn.Linear(80, 5))
    before, state, data = (
        {k: v.clone() for k, v in model.state_dict().items()},
        torch.get_rng_state(),
        X.clone(),
    )
    found(model, "2", DATA)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(X, data)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
