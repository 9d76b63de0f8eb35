"""What layers promise on tokens: modules and ensembles are what a plain forward does with the same weights; the kernel
is the covariance of such networks; what has no meaning there is refused by name."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from simulated import Array
from simulated_tokens import token_member
from torch import nn

import firstguess as fg
from firstguess.base.errors import FirstguessError
from firstguess.ensemble.engine import DescriptionEngine
from firstguess.ensemble.higher_moments import KURTOSIS, MEAN_FOURTH, MEAN_SQUARE
from firstguess.ensemble.member_module import build
from firstguess.ensemble.member_statistics import BETWEEN, MEAN, SPREAD
from firstguess.network.grammar import parse_layers
from firstguess.network.layer import KINDS, Mix
from firstguess.network.layers import sequence_text
from firstguess.network.network import Network
from firstguess.network.walk import every
from firstguess.theory.tokens import token_kernel

# After an embedding (or patches) and before pool_tokens > dense.
STRETCHES = [
    "positions(0.7)",
    "positions(sinusoidal)",
    "positions(sinusoidal) > layernorm",
    "cls(0.5)",
    "cls(0.5) > positions(0.3)",
    "attention(4)",
    "attention(4, causal)",
    "attention(4, causal, by=sampled)",
    "attention(4, by=sampled, weight_var=3, out_var=0.5, bias_var=0.2)",
    "attention(4, causal, rotary, weight_var=2)",
    "attention(2, rotary, base=100)",
    "attention(4, causal, groups=2)",
    "attention(4, groups=1, by=sampled, bias_var=0.2)",
    "attention(4, causal, window=2)",
    "layernorm > attention(4, window=2, by=annealed, weight_var=0.5)",
    "layernorm > attention(4, causal, window=3, by=renormalized)",
    "attention(4, causal, rotary, groups=2, window=3)",
    "tokenmix(96)",
    "tokenmix(96, relu, weight_var=1.5, out_var=0.5, bias_var=0.2)",
    "dense(weight_var=1.7, bias_var=0.3)",
    "dense > gelu",
    "dense(width=96) > gated(silu) > dense",
    "layernorm(eps=0.3)",
    "rmsnorm(eps=0.3)",
    "scale(-0.7)",
    "dense > relu > shift(0.4) > layernorm",
    "residual[layernorm > attention(4, causal)] > residual(scale=0.5)[layernorm > dense > gelu > dense]",
    "residual[attention(4)] > layernorm > residual[dense > relu > dense] > layernorm",
    "residual[layernorm > tokenmix(96)] > layernorm > dense > tanh",
    "residual[rmsnorm > tokenmix(96)] > residual[rmsnorm > tokenmix(96)] > rmsnorm",
]
FIRST = {
    "ids": "embed(1)",
    "padded": "embed(1, padding=3)",
    "types": "embed(0.6, types=0.8, vocabulary=12)",
    "images": "patches(3, bias_var=0.2)",
}
REFUSED = ("batchnorm", "batchcenter", "instancenorm", "groupnorm(2)", "avgpool(2)", "maxpool(2)", "conv")
POINTS, WIDTH, MEMBERS = 7, 48, 3


def data(first: str) -> np.ndarray:
    rng = np.random.default_rng(20261116)
    if first == "images":
        return (0.3 + rng.standard_normal((POINTS, 2, 6, 9))).astype(np.float32)
    ids = rng.integers(0, 12, (POINTS, 5))
    if first == "padded":
        ids[ids == 3] = 4
        for row, length in enumerate((5, 3, 1, 4, 2, 5)):
            ids[row, length:] = 3
    return ids


def network(first: str, source: str, pool: str = "mean") -> Network:
    return Network.parse(f"{FIRST[first]} > {source} > pool_tokens({pool}) > dense", classes=3)


PADDED = [
    "attention(4)",
    "attention(4, causal)",
    "attention(4, causal, by=sampled, weight_var=3)",
    "layernorm > attention(4, by=annealed, weight_var=0.5)",
    "layernorm > attention(4, causal, window=2, by=renormalized)",
    "attention(4, causal, rotary, groups=2, window=3)",
    "cls(0.5) > positions(0.3) > residual[attention(4)] > layernorm > residual[dense > relu > dense]",
    "residual[layernorm > attention(4, causal)] > residual[layernorm > dense > gelu > dense] > layernorm",
]
CASES = [
    *((first, s) for s in STRETCHES for first in (("ids", "images") if "residual" in s else ("ids",))),
    *(("padded", s) for s in PADDED),
    ("types", "attention(4)"),
    ("images", "cls(0.5) > attention(4)"),
]


@pytest.mark.parametrize(("first", "source"), CASES)
def test_modules_and_ensembles_are_what_a_plain_forward_does(first: str, source: str) -> None:
    for pool in ("mean", "cls", "last"):
        net, x = network(first, source, pool), data(first)
        engine = DescriptionEngine(net, x, width=WIDTH, seed=4, dtype=torch.float64, chunk=3, moments=4)
        members = engine.run(0, MEMBERS)
        assert not members.findings
        for i in range(MEMBERS):
            model = build(net, x, width=WIDTH, seed=4, member=i).double()
            weights = iter([p.detach().numpy() for p in model.parameters()])
            mine: Array = x.astype(np.float64)
            now = torch.from_numpy(x).double() if first == "images" else torch.from_numpy(x)
            for k, (layer, module) in enumerate(zip(net.layers, model, strict=True)):
                mine, now = token_member((layer,), mine, weights), module(now)
                size = max(math.sqrt(float(np.mean(mine**2))), 1.0)
                np.testing.assert_allclose(now.detach().numpy(), mine, rtol=0.0, atol=1e-9 * size)
                if first == "padded" and k < len(net.layers) - 2:
                    continue  # layers are not measured where tokens are padding
                at = k - (len(net.layers) - len(engine.layers))
                flat = mine.reshape(len(x), -1)
                mean, spread = flat.mean(0), float(flat.var(0, ddof=1).mean())
                wanted = [float(mean.mean()), float(mean.var()) - spread / len(flat), spread]
                got = members.stats[i, at, [MEAN, BETWEEN, SPREAD]]
                np.testing.assert_allclose(got, wanted, rtol=0.0, atol=1e-9 * size**2)
                assert engine.layers[at].nodes == flat.shape[1]
                if net.layers[k].weighted and len(x) >= 4 and flat.std(axis=0).min() > 1e-6 * size:
                    assert members.shapes is not None
                    wanted = [stats.kurtosis(flat, bias=False).mean(), np.square(mean).mean(), np.mean(mean**4)]
                    got = members.shapes[i, at, [KURTOSIS, MEAN_SQUARE, MEAN_FOURTH]]
                    np.testing.assert_allclose(got, wanted, rtol=1e-7, atol=1e-7 * size**4)
            assert next(weights, None) is None
            guesses = np.bincount(mine.argmax(1), minlength=3) / len(x)
            np.testing.assert_array_equal(members.fractions[i], guesses)


def drawn(net: Network, x: np.ndarray, width: int, groups: int) -> Array:
    """K of the nodes before the output, of this many networks."""
    found = []
    with torch.no_grad():
        for i in range(groups):
            model = build(net, x, width=width, seed=11, member=i)
            y = nn.Sequential(*list(model)[:-1])(torch.from_numpy(x)).double().numpy()
            found.append(y @ y.T / y.shape[1])
    return np.array(found)


@pytest.mark.parametrize(("first", "source"), CASES)
def test_the_covariance_is_that_of_drawn_networks(first: str, source: str) -> None:
    """As tests/network/layers/test_contract_kernel.py: the root mean square over entries, 5.6 standard errors.

    Room apart for the width, 2/width of the diagonal, and where attention is renormalized for 1 % (theory.md (26)).
    """
    width, groups = 256, 100
    for pool in ("mean", "last" if first == "padded" else "cls"):
        net, x = network(first, source, pool), data(first)
        found = token_kernel(net, x)
        draws = drawn(net, x, width, groups)
        q = float(found.covariance.diagonal().mean())
        simulated = math.sqrt(float(draws.var(axis=0, ddof=1).mean()) / groups)
        apart = math.sqrt(float(np.mean((found.covariance - draws.mean(axis=0)) ** 2)))
        finite = 2.0 / width if "tokenmix" not in source else 2.0 / 96
        if any("renormalized" in said or "annealed" in said for said in found.remarks):
            finite += 0.01
        assert apart <= 5.6 * math.hypot(simulated, found.error * q) + finite * q, (pool, apart / q, simulated / q)


def test_every_kind_that_is_about_tokens_is_under_contract() -> None:
    layers = [layer for first, s in CASES for layer in every(network(first, s).layers)]
    heads = {"unembed"}  # language models': tests/theory/test_language.py
    assert heads | {layer.kind for layer in layers} == {kind for kind, cls in KINDS.items() if cls.by_token}
    assert {kind for kind, cls in KINDS.items() if not cls.by_token} == {text.split("(")[0] for text in REFUSED}


@pytest.mark.parametrize("source", STRETCHES)
def test_text_reads_back(source: str) -> None:
    layers = parse_layers(source)
    assert parse_layers(sequence_text(layers)) == layers
    assert [hash(layer) for layer in layers] == [hash(layer) for layer in parse_layers(source)]


@pytest.mark.parametrize("source", REFUSED)
def test_what_has_no_meaning_on_tokens_is_refused_by_name(source: str) -> None:
    net, x = network("ids", source), data("ids")
    for read in (lambda: fg.predict(net, data=x), lambda: fg.measure(net, x, inits=2, width=8)):
        with pytest.raises(FirstguessError, match=r"layer 2 \(") as caught:
            read()
        assert caught.value.hint
    with pytest.raises(FirstguessError, match=r"layer 2 \("):
        fg.predict(net, inputs=fg.Tokens(length=5))


@pytest.mark.parametrize(
    "source", ["attention(2)", "positions(0.1)", "cls(0.1)", "pool_tokens(mean)", "tokenmix(4)", "embed(1)"]
)
def test_token_layers_without_tokens_are_refused(source: str) -> None:
    x = np.random.default_rng(0).normal(size=(6, 2, 4, 4)).astype(np.float32)
    with pytest.raises(FirstguessError):
        fg.predict(f"{source} > dense", data=x)
    with pytest.raises(fg.InvalidInput, match="sequences for a network of tokens"):
        fg.predict(f"dense > {source} > dense")


def test_gates_are_no_matter_of_tokens() -> None:
    assert not [kind for kind in ("gated", "dense", "layernorm") if Mix.TOKENS in KINDS[kind].mixes]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "ids",
    [[[1e300, 2.0]], [[np.inf, 2.0]], [[2.0**63, 1.0]], [[-1, 2]], [[0.5, 1.0]], [[1 + 0j, 2]], [["a", "b"]], [[], []]],
    ids=repr,
)
def test_what_is_no_token_is_refused_without_a_warning(ids: list[list[float]]) -> None:
    with pytest.raises(fg.InvalidInput, match="whole numbers from 0 on"):
        parse_layers("embed(1)")[0].tokens_of(np.array(ids))
    read = parse_layers("embed(1)")[0].tokens_of(np.array([[0, 2**40]], dtype=np.uint64))
    np.testing.assert_array_equal(read, [[0, 2**40]])


def test_sines_and_cosines_are_added_as_they_are() -> None:
    """Their sign is no matter of the draw, as that of parameters is: the module of a description adds them."""
    import torch

    from firstguess.network.layers.embed import waves
    from firstguess.network.torch_ops import AddPositions

    fixed = torch.from_numpy(np.asarray(waves(5, 8)))
    x = torch.randn(3, 5, 8, dtype=fixed.dtype, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(AddPositions(fixed)(x) - x, fixed.expand(3, 5, 8))
    assert float(fixed[0, 1::2].min()) == 1.0  # cos 0
