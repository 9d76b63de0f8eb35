"""The gate: passes, fails with an explanation, and says when it is not sure."""

import pytest
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
