"""Networks: text and back, equality, edits, builders, plain data."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from properties import examples
from random_networks import networks

import firstguess as fg
from firstguess.network.layers import Activate, Dense, LayerNorm, MaxPool, Residual
from firstguess.network.network import Network


@given(networks())
def test_text_reads_back(net: Network) -> None:
    again = Network.parse(str(net), classes=net.classes)
    assert again == net
    assert hash(again) == hash(net)
    assert str(again) == str(net)


@given(networks())
@examples(50)
def test_plain_data_reads_back(net: Network) -> None:
    assert Network.from_dict(json.loads(json.dumps(net.to_dict(), allow_nan=False))) == net


@given(networks(), networks())
def test_equal_text_is_equal_network(a: Network, b: Network) -> None:
    assert (str(a) == str(b)) == (a.layers == b.layers)


@given(networks())
@examples(50)
def test_edits_leave_the_rest_alone(net: Network) -> None:
    """Taking a kind out twice is taking it out once; what is left is in the old order."""
    stem = Network((Dense(), *net.layers, Dense()), net.classes)
    try:
        once = stem.without("layernorm")
    except fg.InvalidInput as error:  # a residual branch of nothing else: refused, never left empty
        assert "branch with at least one layer" in str(error)  # noqa: PT017
        return
    assert once.without("layernorm") == once
    assert "layernorm" not in str(once)
    assert once.classes == net.classes
    rest = iter(stem.layers)
    assert all(
        any(layer == old or (isinstance(layer, Residual) and isinstance(old, Residual)) for old in rest)
        for layer in once.layers
    )


def test_canonical_text() -> None:
    net = Network.parse("2x[dense(weight_var = 2.0)>ReLU]  >dense( 2 ) > RELU>dense(width=None)")
    assert str(net) == "3 x [dense(weight_var=2) > relu] > dense"
    assert Network.parse("dense(1/3)") == Network.parse("dense(weight_var=0.3333333333333333)")
    assert str(Network.parse("dense > swish > dense")) == "dense > silu > dense"
    assert repr(net) == "Network('3 x [dense(weight_var=2) > relu] > dense', classes=2)"
    assert "&gt;" in net._repr_html_()


def test_nested_repetitions_are_flat() -> None:
    net = Network.parse("2 x [dense > 3 x [relu > layernorm]] > dense")
    assert len(net.layers) == 15
    assert Network.parse(str(net)) == net


# --- edits ------------------------------------------------------------------------------------------------------------


def test_where_moves_and_adds() -> None:
    net = fg.mlp(3, norm="layernorm")
    assert net.where("layernorm after relu") == fg.mlp(3, norm="layernorm", placement="after")
    assert net.where("layernorm before relu") == net
    assert net.without("layernorm") == fg.mlp(3)
    assert fg.mlp(3).where("batchnorm(batch=16) before relu") == fg.mlp(3, norm="batchnorm(batch=16)")
    assert str(fg.mlp(2).where("maxpool(2) after relu")) == str(fg.mlp(2, pool="maxpool(2)"))
    assert str(fg.mlp(1, "leaky_relu").where("rmsnorm after leaky_relu")).count("rmsnorm") == 1


def test_where_reaches_into_branches() -> None:
    net = fg.residual_mlp(2)
    assert net.where("layernorm before relu") == fg.residual_mlp(2, norm="layernorm")
    assert net.where("layernorm after residual") == fg.residual_mlp(2, norm="layernorm", placement="after sum")
    assert fg.residual_mlp(2, norm="rmsnorm").without("rmsnorm") == net


@pytest.mark.parametrize(
    "edit", ["", "layernorm", "layernorm near relu", "after relu", "foo after relu", "(", "2 after relu"]
)
def test_bad_edits(edit: str) -> None:
    with pytest.raises(fg.InvalidInput) as caught:
        fg.mlp(2).where(edit)
    assert caught.value.hint


def test_edits_that_find_nothing() -> None:
    with pytest.raises(fg.InvalidInput, match="has tanh"):
        fg.mlp(2).where("layernorm after tanh")
    with pytest.raises(fg.InvalidInput, match="one layer"):
        fg.mlp(2).where("layernorm > scale(2) after relu")
    with pytest.raises(fg.InvalidInput, match="at least one layer"):
        Network.parse("dense").without("dense")


# --- builders ---------------------------------------------------------------------------------------------------------


def test_builders() -> None:
    net = fg.mlp(
        depth=20, activation="relu", norm="layernorm", placement="before", weight_var=2.0, bias_var=0.0, classes=10
    )
    assert str(net) == "20 x [dense(weight_var=2) > layernorm > relu] > dense(weight_var=2)"
    assert (net.depth, net.classes, len(net.layers)) == (20, 10, 61)
    assert fg.predict(net).gamma.shape == (21,)
    assert fg.mlp(np.int64(3), weight_var=np.float64(0.1), classes=np.int64(4)) == fg.mlp(3, weight_var=0.1, classes=4)  # type: ignore[arg-type]
    assert str(fg.cnn(2, norm="batchnorm", width=16)).startswith("2 x [conv(weight_var=2, width=16, padding=1) > batch")
    assert fg.residual_mlp(4, branch_scale=0.5).depth == 5
    assert Network.parse(str(fg.cnn(3, kernel=5, pool=None))) == fg.cnn(3, kernel=5, pool=None)
    custom = fg.mlp(2, lambda x: np.maximum(x, 0.0))
    assert fg.predict(custom).gamma == pytest.approx(fg.predict(fg.mlp(2)).gamma, rel=1e-9)
    assert fg.mlp(2, fg.centered("gelu"), norm=LayerNorm()).layers[2] == Activate(fg.centered("gelu"))


@pytest.mark.parametrize(
    "build",
    [
        lambda: fg.mlp(0),
        lambda: fg.mlp(-3),
        lambda: fg.mlp(2.5),  # type: ignore[arg-type]
        lambda: fg.mlp(None),  # type: ignore[arg-type]
        lambda: fg.mlp(True),
        lambda: fg.mlp(10**12),
        lambda: fg.mlp(2, "rleu"),
        lambda: fg.mlp(2, norm="layernrom"),
        lambda: fg.mlp(2, norm="layernorm > relu"),
        lambda: fg.mlp(2, norm=3),  # type: ignore[arg-type]
        lambda: fg.mlp(2, norm=LayerNorm),  # type: ignore[arg-type]
        lambda: fg.mlp(2, placement="between"),  # type: ignore[arg-type]
        lambda: fg.mlp(2, weight_var=-1),
        lambda: fg.mlp(2, weight_var="2"),  # type: ignore[arg-type]
        lambda: fg.mlp(2, bias_var=float("nan")),
        lambda: fg.mlp(2, classes=1),
        lambda: fg.mlp(2, classes=2.0),  # type: ignore[arg-type]
        lambda: fg.mlp(2, width=0),
        lambda: fg.mlp(2, width=3, pool="maxpool(4)"),
        lambda: fg.mlp(2, pool=MaxPool(5), width=4),
        lambda: fg.residual_mlp(2, placement="before"),  # type: ignore[arg-type]
        lambda: fg.residual_mlp(2, branch_scale=float("inf")),
        lambda: fg.cnn(2, kernel=0),
        lambda: fg.cnn(2, kernel="3"),  # type: ignore[arg-type]
        lambda: fg.cnn(0),
        lambda: Network(()),
        lambda: Network("dense > relu"),  # type: ignore[arg-type]
        lambda: Network(("dense",)),  # type: ignore[arg-type]
        lambda: Network(3),  # type: ignore[arg-type]
        lambda: Network((Dense(),), classes=1),
        lambda: Network((Dense(),), classes=True),
        lambda: Network((Dense(width=3), MaxPool(2), MaxPool(2))),
        lambda: Network.parse("dense(width=8) > residual[relu > maxpool(9) > dense]"),
    ],
)
def test_bad_networks(build: object) -> None:
    with pytest.raises(fg.InvalidInput) as caught:
        build()  # type: ignore[operator]
    assert caught.value.hint, str(caught.value)


def test_a_pool_wider_than_its_layer_is_named() -> None:
    with pytest.raises(fg.InvalidInput, match=r"at most 4 nodes.*got 9, at layer 3 \(maxpool\(9\)\)"):
        Network.parse("dense(width=4) > relu > maxpool(9) > dense")
