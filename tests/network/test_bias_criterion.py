"""`fg.causes_bias` of blocks: the answer is that of closed form, drawn nodes and oddness, with its reason."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest
from simulated import forward

import firstguess as fg
from firstguess.network.grammar import parse_layers

YES = {
    "relu": "relu gives nodes a mean",
    "tanh > maxpool(2)": r"maxpool\(2\) gives nodes a mean over centred data: 0.362",
    "maxpool(4)": "maxpool",
    "relu > rmsnorm": "relu gives",
    "relu > avgpool(4)": "relu gives",
    "shift(0.5) > tanh": r"shift\(0.5\) gives",
    "tanh > shift(0.1)": r"shift\(0.1\) gives",
    "dense > relu > dense": "relu gives",
    "dense(bias_var=1)": "centers over centred data: 1 ",
    "groupnorm(each=4) > relu": "relu gives",
    "tanh > relu": "by sampled nodes",
    "tanh > maxpool(2) > tanh": "by sampled nodes",
    "relu > batchcenter > relu": "by sampled nodes",
    "residual[relu > dense]": "residual",
}
NO = {
    "tanh": "odd in every layer",
    "tanh > avgpool(4) > dense > layernorm > erf > batchnorm": "odd in every layer",
    "residual[tanh > dense > batchcenter | scale(-0.5)]": "odd in every layer",
    "centered(relu)": "no mean",
    "relu > layernorm": "layernorm subtracts the mean",
    "relu > batchnorm": "batchnorm subtracts",
    "relu > batchcenter": "batchcenter subtracts",
    "relu > groupnorm(each=4)": "subtracts",
}


@pytest.mark.parametrize("source", YES)
def test_blocks_that_cause_bias(source: str) -> None:
    answer = fg.causes_bias(source)
    assert bool(answer) is True
    assert answer == True  # noqa: E712 - it counts as one
    assert re.search(YES[source], answer.reason), answer
    assert repr(answer) == f"True: {answer.reason}"
    if "by sampled" not in answer.reason:  # the same number by the closed form of a network that has no more than that
        net = fg.predict(f"dense > {source} > dense")
        assert answer.correlation == pytest.approx(net.correlation[-1], rel=1e-12)


@pytest.mark.parametrize("source", NO)
def test_blocks_that_do_not(source: str) -> None:
    answer = fg.causes_bias(source)
    assert bool(answer) is False
    assert answer.correlation == 0.0
    assert NO[source] in answer.reason
    assert fg.predict(f"dense > {source} > dense").gamma[-1] == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize("source", ["tanh > relu", "tanh > maxpool(2) > tanh", "relu > layernorm > gelu"])
def test_sampled_answers_are_those_of_drawn_nodes(source: str) -> None:
    """mean²/mean square of 240 × 20 000 nodes in plain NumPy: 5.5 standard errors of both."""
    answer = fg.causes_bias(source)
    rng = np.random.default_rng(20261116)
    layers = parse_layers(source)
    means, squares = np.array(
        [
            (float(y.mean()), float(np.mean(y * y)))
            for y in (forward(layers, rng.standard_normal((10, 2000)), rng, 1) for _ in range(240))
        ]
    ).T
    share = abs(means.mean()) / math.sqrt(squares.mean())
    error = means.std(ddof=1) / math.sqrt(240) / math.sqrt(squares.mean())
    assert abs(math.sqrt(answer.correlation) - share) <= 5.5 * math.hypot(error, 2 * error)


def test_a_mean_that_cannot_be_told_from_none_is_refused() -> None:
    fg.register_activation("nearly_odd", lambda x: np.tanh(x) + 1e-12 * x * x)
    try:
        with pytest.raises(fg.NotCovered, match=r"a mean that sampled nodes can tell from 0.*layer 2"):
            fg.causes_bias("tanh > nearly_odd")
    finally:
        from firstguess.network.activations import registry

        del registry._TABLE["nearly_odd"]


def test_what_centres_at_the_end_needs_no_closed_form() -> None:
    for source in ("tanh > relu > layernorm", "tanh > centered(relu)", "relu > relu > groupnorm(each=3)"):
        answer = fg.causes_bias(source)
        assert not answer
        assert "subtracts the mean" in answer.reason


def test_what_has_no_answer_says_so() -> None:
    with pytest.raises(fg.NotCovered, match="instancenorm"):
        fg.causes_bias("conv > relu > instancenorm")
    with pytest.raises(fg.InvalidInput, match="relu"):
        fg.causes_bias("reluu")
    with pytest.raises(fg.ParseError):
        fg.causes_bias("tanh > ")


def test_as_a_number() -> None:
    answers = [fg.causes_bias("relu"), fg.causes_bias("tanh")]
    assert sum(answers) == 1
    assert json.dumps([bool(a) for a in answers]) == "[true, false]"
