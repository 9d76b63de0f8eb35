"""A state of the explorer: the link restores it, the code it gives runs and means the same network."""

import re

import hypothesis.strategies as st
import pytest
from hypothesis import given

import firstguess as fg
from firstguess.explore import panels
from firstguess.explore.choice import ACTIVATIONS, KINDS, NORMS, POOLS, PRESETS, RANGES, STYLES, Choice

CHOICES = st.builds(
    Choice,
    kind=st.sampled_from(KINDS),
    activation=st.sampled_from(ACTIVATIONS),
    depth=st.integers(1, 100),
    norm=st.sampled_from(NORMS),
    after=st.booleans(),
    pool=st.sampled_from(POOLS),
    style=st.sampled_from(STYLES),
    length=st.integers(2, 128),
    weight_var=st.floats(*RANGES["weight_var"]),
    bias_var=st.floats(*RANGES["bias_var"]),
    classes=st.integers(2, 100),
    mean_square=st.floats(*RANGES["mean_square"]),
    lr=st.floats(*RANGES["lr"]),
)


@given(CHOICES)
def test_a_link_restores_the_state(choice):
    assert Choice.of(choice.query) == choice


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("norm", NORMS)
def test_copied_python_is_the_network_of_the_page(kind, norm):
    choice = Choice(kind, "gelu", 3, norm, True, bias_var=0.1, classes=5, mean_square=0.5)
    made: dict = {}
    exec(choice.python.replace("print(prediction)", ""), made)
    assert made["net"] == choice.network
    assert made["prediction"].gamma[-1] == fg.predict(choice.network, inputs=choice.inputs).gamma[-1]


WRITTEN = [name for name in ACTIVATIONS if not name.startswith("centered")]


@pytest.mark.parametrize("activation", WRITTEN)
def test_copied_pytorch_is_the_activation_of_the_page(activation):
    """With its weights set to the identity the module is φ itself, as NumPy has it."""
    import numpy as np
    import torch

    choice = Choice("plain", activation, 1, classes=5)
    made: dict = {}
    exec(choice.pytorch, made)
    x = torch.linspace(-3, 3, 35, dtype=torch.float64).reshape(7, 5)
    with torch.random.fork_rng(), torch.no_grad():
        model = made["build"](5).double()
        first, last = (layer for layer in model if isinstance(layer, torch.nn.Linear))
        for layer in (first, last):
            layer.weight.zero_()
            layer.bias.zero_()
            layer.weight[:5, :5] = torch.eye(5)
        got = model(x).numpy()
    phi = choice.network.layers[1].function
    assert got == pytest.approx(np.asarray(phi(x.numpy())), abs=1e-7)


def test_what_has_no_pytorch_says_so():
    with pytest.raises(fg.NotCovered, match="PyTorch source"):
        _ = Choice("plain", "centered(relu)").pytorch


@pytest.mark.parametrize(
    ("query", "said"),
    [("kind=mpl", "kind 'plain'"), ("depth=0", "depth from 1 to 100"), ("weight_var=many", "a number for weight_var")],
)
def test_a_broken_link_says_what_is_wrong(query, said):
    with pytest.raises(fg.InvalidInput, match=said):
        Choice.of(query)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_a_network_and_its_link_is_the_shortest(name: str) -> None:
    chosen = Choice.of(PRESETS[name])
    assert chosen.network.layers
    assert set(chosen.query.split("&")) <= set(PRESETS[name].split("&"))


def test_a_chart_is_as_wide_as_its_marks() -> None:
    """It was drawn 1 000 wide, the width of the networks, with marks for 380."""
    chart = panels.SvgChart(panels.AxisScale(0, 1), panels.AxisScale(0, 1), "x", "y")
    chart.level(0.5)
    assert f'viewBox="0 0 {panels.CHART_WIDTH} {panels.HEIGHT}"' in chart.svg("a chart")
    assert max(float(x) for x in re.findall(r'x2="([0-9.]+)"', chart.svg("a chart"))) <= panels.CHART_WIDTH
