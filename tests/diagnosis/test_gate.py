"""The gate: passes, fails with an explanation, and says when it is not sure."""

import pytest
import torch
from torch import nn

import firstguess as fg
from firstguess.diagnosis import gate

BLOB = fg.data.blob(150, 30)


def test_a_neutral_network_passes_and_gives_its_measurement():
    m = fg.assert_neutral("3 x [dense > tanh] > dense", BLOB, width=60)
    assert m.inits == 50
    assert m.gamma[-1] < 1


def test_a_biased_model_fails_with_the_layer():
    model = nn.Sequential(nn.Linear(30, 60), nn.Sigmoid(), nn.Linear(60, 2))
    with pytest.raises(AssertionError, match="c rises most at layer 1 \\(Sigmoid\\)") as caught:
        fg.assert_neutral(model, BLOB, init=(1.0, 0.0))
    assert isinstance(caught.value, fg.NotNeutral)
    assert caught.value.measurement.regime == "biased"


def test_more_networks_are_drawn_only_where_the_interval_holds_the_limit():
    sure = gate.check("dense > tanh > dense", BLOB, 1.0, width=60)
    close = gate.check("dense(weight_var=2) > relu > dense(weight_var=2)", BLOB, 0.47, width=60)
    assert sure.sure
    assert sure.measurement.inits == 50
    assert close.measurement.inits > 50


def test_a_failure_that_is_not_sure_says_so():
    """A limit just below the estimate, inside its interval: at most 50 networks leave no room to become sure."""
    text = "dense(weight_var=2) > relu > dense(weight_var=2)"
    gamma = gate.check(text, BLOB, 1.0, inits=50, width=60).measurement.gamma[-1]
    found = gate.check(text, BLOB, 0.99 * gamma, inits=50, width=60)
    assert not found.passed
    assert not found.sure
    assert "not sure after 50 initializations" in found.message


def test_a_zero_head_does_not_pass():
    with pytest.raises(fg.NotNeutral, match="ties"):
        fg.assert_neutral(_zeroed, BLOB)


def _zeroed() -> nn.Module:
    model = nn.Sequential(nn.Linear(30, 60), nn.Tanh(), nn.Linear(60, 3))
    nn.init.zeros_(model[2].weight)
    nn.init.zeros_(model[2].bias)
    return model


@pytest.mark.parametrize("limit", [0.0, -1.0, float("inf"), "1"])
def test_bad_limits_are_refused(limit: object):
    with pytest.raises(fg.InvalidInput, match="a drift ratio above 0"):
        fg.assert_neutral("dense > tanh > dense", BLOB, limit)  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [20_000.0, 0.5])
def test_an_interrupted_gate_neither_passes_nor_draws_on(limit: float):
    """`measure` keeps what it has when it is interrupted; a gate must not answer from that, whatever the limit."""
    calls: list[int] = []

    def once(done: int, total: int) -> None:
        calls.append(done)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fg.assert_neutral("dense(weight_var=2) > relu > dense(weight_var=2)", BLOB, limit, width=60, progress=once)
    assert len(calls) == 1


class Functional(nn.Module):
    """The bias is of a ReLU that is no module: 1/π of correlation between the embedding and the head (theory.md §4)."""

    def __init__(self) -> None:
        super().__init__()
        self.e, self.h = nn.Embedding(50, 64), nn.Linear(64, 2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.h(torch.relu(self.e(x).mean(1)))


TOKENS = torch.randint(0, 50, (300, 12), generator=torch.Generator().manual_seed(0))


def test_the_layer_behind_a_functional_activation_is_not_blamed():
    message = gate.check(Functional, TOKENS, 0.05).message
    assert "c rises most in mean > relu before h" in message
    assert "layer h" not in message


def test_where_no_trace_can_be_had_code_between_layers_is_not_left_out(monkeypatch: pytest.MonkeyPatch):
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no graph")

    monkeypatch.setattr(gate, "trace_flow", fails)
    message = gate.check(Functional, TOKENS, 0.05).message
    assert "c rises most between the outputs of e (Embedding) and h (Linear)" in message


def test_data_that_can_be_read_once_are_read_once():
    """A limit inside the interval of 50 networks: more are drawn, on the same points."""
    model = nn.Sequential(nn.Linear(30, 60, bias=False), nn.ReLU(), nn.Linear(60, 2, bias=False))
    x = torch.tensor(BLOB.x)
    close = float(fg.measure(model, x, inits=50).gamma[-1])
    found = gate.check(model, (part for part in x.split(50)), close)
    assert found.measurement.points == 150
    assert found.measurement.inits > 50
