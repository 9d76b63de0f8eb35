"""Text that is not a network: one clear error, whatever the text; and quickly."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from random_networks import networks

import firstguess as fg
from firstguess.network.grammar import parse_layers
from firstguess.network.network import Network

WORDS = [
    *("dense", "conv", "relu", "tanh", "layernorm", "batchnorm", "maxpool", "residual", "centered", "leaky_relu", "x"),
    *("weight_var", "bias_var", "scale", "slope", "batch", "estimator", "usual", "None", "nan", "inf", "name", "kinks"),
    *("[", "]", "(", ")", ">", ",", "=", "/", "×", "20", "2", "0", "-1", "1.5", "1e400", "1e-400", "-", "+", " ", "\n"),
    *("٣", "²", "x x", "\x00", "γ", "9" * 30),
]


def only_ours(source: str) -> None:
    try:
        net = Network.parse(source)
    except fg.InvalidInput as error:
        assert error.hint  # noqa: PT017
        assert str(error).startswith("Expected ")  # noqa: PT017
    else:
        assert Network.parse(str(net)) == net


@given(st.text())
def test_any_text(source: str) -> None:
    only_ours(source)


@given(st.lists(st.sampled_from(WORDS), max_size=25).map("".join))
@examples(300)
def test_any_words(source: str) -> None:
    only_ours(source)


@given(networks().map(str), st.data())
def test_mutated_networks(source: str, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, max(len(source) - 1, 0)))
        action = data.draw(st.sampled_from(["drop", "double", "insert", "cut"]))
        if action == "drop":
            source = source[:at] + source[at + 1 :]
        elif action == "double":
            source = source[:at] + source[at : at + 8] + source[at:]
        elif action == "insert":
            source = source[:at] + data.draw(st.sampled_from(WORDS)) + source[at:]
        else:
            source = source[:at]
    only_ours(source)


@pytest.mark.parametrize(
    "source",
    [
        "",
        "   ",
        ">",
        "dense >",
        "> dense",
        "dense dense",
        "dense > > relu",
        "2 x dense",
        "2 x [dense",
        "2 x dense]",
        "x [dense]",
        "0 x [dense]",
        "-2 x [dense]",
        "1.5 x [dense]",
        "2 [dense]",
        "dense]",
        "dense(",
        "dense)",
        "dense(weight_var)",
        "dense(weight_var=)",
        "dense(=2)",
        "dense(,)",
        "dense(1,,2)",
        "dense(weight_var=2, 3)",
        "dense(weight_var=1, weight_var=2)",
        "dense(1, weight_var=2)",
        "dense(1, 2, 3, normal, 5)",
        "dense(weight_var=-1)",
        "dense(weight_var=1/0)",
        "dense(weight_var=1e999)",
        "dense(weight_var=nan)",
        "dense(weight_var=inf)",
        "dense(weight_var=relu)",
        "dense(weight_var=tanh(2))",
        "dense(weightvar=2)",
        "dense(width=1.5)",
        "dense(init=xavier)",
        "dense[relu]",
        "dens",
        "Relu6x",
        "relu(0.1)",
        "leaky_relu(0.1, 0.2)",
        "leaky_relu(0.1, slope=0.2)",
        "leaky_relu(slope=tanh)",
        "leaky_relu(name=2)",
        "leaky_relu(kinks=2)",
        "centered",
        "centered()",
        "centered(2)",
        "centered(foo)",
        "centered(relu, tanh)",
        "centered(dense)",
        "residual",
        "residual[]",
        "residual(scale=2)",
        "maxpool(0)",
        "maxpool(-2)",
        "maxpool(1.5)",
        "maxpool(2, 3, 1)",
        "maxpool(4, 2, 1, 1)",
        "avgpool(relu)",
        "scale(relu)",
        "batchnorm(1)",
        "batchnorm(batch=16, estimator=jackknife)",
        "dense; relu",
        "dense | relu",
        "999999999 x [dense]",
        "1000000 x [1000000 x [dense]]",
        "9" * 5000 + " x [dense]",
        "0" * 5000 + " x [dense]",
        "residual[" * 5000,
        "residual[" * 5000 + "dense" + "]" * 5000,
        "2 x [" * 5000,
        "centered(" * 5000,
        "relu(" * 5000 + ")" * 5000,
        "(" * 100_000,
        "dense > " * 50_000,
        " " * 100_000 + "?",
    ],
    ids=lambda s: s[:30] or "empty",
)
def test_bad_text(source: str) -> None:
    started = time.process_time()  # of this process alone: the machine may be busy
    with pytest.raises(fg.ParseError) as caught:
        parse_layers(source)
    assert time.process_time() - started < 2.0
    assert len(str(caught.value)) < 6000
    assert caught.value.hint


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("dense > rleu", r"'rleu'.*Try: relu"),
        ("dense > layernrom", "Try: layernorm"),
        ("dense(weightvar=2)", r"an argument that dense has.*Try: weight_var"),
        ("2 x [dense > relu > dense", r"Expected '\]', but got the end, at character 26"),
        ("dense(weight_var=-1)", "a finite weight_var of at least 0, but got -1.0, at dense"),
        ("dense ? relu", r"but got '\?', at character 7"),
    ],
)
def test_messages_point_at_the_place(source: str, said: str) -> None:
    with pytest.raises(fg.ParseError, match=said):
        fg.Network.parse(source)


def test_long_text_is_read_in_linear_time() -> None:
    source = " > ".join(["dense(weight_var=2) > relu"] * 20_000)
    started = time.perf_counter()
    assert len(parse_layers(source)) == 40_000
    assert time.perf_counter() - started < 5.0


def test_a_million_layers_are_too_many_but_a_hundred_thousand_are_not() -> None:
    net = Network.parse("100000 x [dense > relu] > dense")
    assert str(net) == "100000 x [dense > relu] > dense"
    assert net.depth == 100_000


def test_registered_activations_are_words() -> None:
    mine = fg.register_activation("test_grammar_mine", lambda x: x * x * x)
    net = Network.parse("dense > test_grammar_mine > dense")
    assert net.layers[1].phi == mine  # type: ignore[attr-defined]
    assert Network.parse(str(net)) == net
