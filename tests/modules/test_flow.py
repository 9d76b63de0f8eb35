"""Which step adds correlation: against closed forms, and on models with plain code between modules."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from firstguess.data import blob, collect
from firstguess.modules.flow import DATA, Flow, FlowStep, trace_flow

BATCHES = collect(blob(251, 100), batch_size=251)


def by_name(flow: Flow) -> dict[str, FlowStep]:
    return {step.name: step for step in flow.steps}


def test_relu_adds_what_theory_says():
    """theory.md (4): on a blob c goes from 0 to 1/π at the first ReLU.

    The sample's own error: the s.e. over 20 networks, and 1/√(n·d) of the blob for c of the inputs. 6 s.e.: false alarm
    below 1e-8 for a Gaussian, a few 1e-6 for Student's t with 19 degrees of freedom, hence 8.
    """
    model = nn.Sequential(nn.Linear(100, 2000, bias=False), nn.ReLU(), nn.Linear(2000, 10, bias=False))
    steps = by_name(trace_flow(model, BATCHES, inits=20))
    relu = steps["1"]
    noise = 1 / math.sqrt(251 * 100)
    assert abs(relu.after - 1 / math.pi) < 8 * (relu.se + noise)
    assert abs(steps["0"].added) < 8 * (steps["0"].se + noise)
    assert relu.se < 0.01


def test_plain_code_is_a_step_of_its_own():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(100, 300), nn.Linear(300, 300), nn.Linear(300, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = F.relu(self.a(x))
            return self.c(F.relu(h + self.b(h)))

    flow = trace_flow(Net(), BATCHES, inits=4)
    steps = by_name(flow)
    assert steps["code before b"].kind == "code: relu"
    assert steps["code before b"].sources == ("a",)
    assert steps["code before c"].kind == "code: add > relu"
    assert set(steps["code before c"].sources) == {"code before b", "b"}
    assert max(flow.steps, key=lambda s: s.added).name == "code before b"


def test_a_sum_is_not_blamed_for_its_summands():
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dense, self.norm = nn.Linear(300, 300), nn.BatchNorm1d(300)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.norm(self.dense(x))
            y += x  # in place: the norm's output is written over
            return y

    model = nn.Sequential(nn.Linear(100, 300), nn.ReLU(), Block(), nn.Linear(300, 2))
    steps = by_name(trace_flow(model, BATCHES, inits=4))
    total = steps["code before 3"]
    assert "1" in total.sources
    assert total.before == pytest.approx(steps["1"].after)
    assert total.added < 0


def test_views_hand_on_and_readers_are_found():
    model = nn.Sequential(
        nn.Unflatten(1, (1, 10, 10)), nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(256, 3)
    )
    flow = trace_flow(model, BATCHES, inits=3)
    steps = by_name(flow)
    assert steps["1"].sources == (DATA,)
    assert steps["5"].sources == ("3",)
    assert flow.only_to["2"] == "3"
    assert not any(name.startswith("code") for name in steps)


def test_nothing_of_the_users_model_changes():
    model = nn.Sequential(nn.Linear(100, 20), nn.BatchNorm1d(20), nn.ReLU(inplace=True), nn.Linear(20, 2))
    model[0].weight.requires_grad_(False)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    state = torch.get_rng_state()
    trace_flow(model, BATCHES, inits=2)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert not model[0].weight.requires_grad
    assert model[3].weight.grad is None
    assert model.training
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_integer_inputs_start_at_the_embedding():
    tokens = torch.randint(0, 50, (61, 7))
    model = nn.Sequential(nn.Embedding(50, 32), nn.Flatten(), nn.Linear(224, 5))
    flow = trace_flow(model, collect(tokens, batch_size=61), inits=3)
    assert [step.name for step in flow.steps] == ["0", "2"]
    assert math.isnan(flow.data)
