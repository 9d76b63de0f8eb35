"""Networks of tokens: the golden numbers of theory.md §9, and the readings against each other."""

from __future__ import annotations

import math

import numpy as np
import pytest

import firstguess as fg
from firstguess.network.network import Network
from firstguess.theory.language import own_guess_chance
from firstguess.theory.tokens import prototype_kernel, token_kernel

WIDE, DEEP = 768 * 0.02**2, 3072 * 0.02**2  # σ² of weights with std .02
MLP = "dense(weight_var={wide}) > {phi} > dense(weight_var={deep})"


def gpt2(depth: int, pool: str) -> str:
    attention = f"attention(12, causal, weight_var={WIDE}, out_var={WIDE / (2 * depth)}, by=uniform)"
    mlp = MLP.format(wide=WIDE, phi="gelu", deep=DEEP / (2 * depth))
    block = f"residual[layernorm > {attention}] > residual[layernorm > {mlp}]"
    return f"embed(0.02) > positions(0.02) > {depth} x [{block}] > layernorm > pool_tokens({pool}) > dense"


def bert(depth: int, pool: str) -> str:
    attention = f"attention(12, weight_var={WIDE}, by=uniform)"
    mlp = MLP.format(wide=WIDE, phi="gelu", deep=DEEP)
    block = f"residual[{attention}] > layernorm > residual[{mlp}] > layernorm"
    return f"embed(0.02, types=0.02) > positions(0.02) > layernorm > {depth} x [{block}] > pool_tokens({pool}) > dense"


def llama(depth: int, pool: str) -> str:
    attention = f"attention(12, causal, rotary, weight_var={WIDE}, by=uniform)"
    mlp = MLP.format(wide=WIDE, phi="gated(silu)", deep=DEEP)
    block = f"residual[rmsnorm > {attention}] > residual[rmsnorm > {mlp}]"
    return f"embed(0.02) > {depth} x [{block}] > rmsnorm > pool_tokens({pool}) > dense"


PRE = (
    "embed(1) > 12 x [residual[{n} > attention(4, by=uniform)] > residual[{n} > dense > gelu > dense]] > {n}"
    " > pool_tokens({p}) > dense"
)
POST = (
    "embed(1) > 12 x [residual[attention(4, by=uniform)] > {n} > residual[dense > gelu > dense] > {n}]"
    " > pool_tokens({p}) > dense"
)
BOS, ZIPF = fg.Tokens(length=64, shared=1), fg.Tokens(length=64, coincidence=0.01)
DISTINCT, SHORT = fg.Tokens(length=64), fg.Tokens(length=16)
GOLDEN = [  # theory.md §9, "Golden": D = 768, F = 3072, std .02, T = 64, ε = 0, exact GELU, uniform
    (gpt2(1, "last"), DISTINCT, 1.042735),
    (gpt2(12, "last"), DISTINCT, 1.627303),
    (gpt2(1, "mean"), DISTINCT, 1.444050),
    (gpt2(12, "mean"), DISTINCT, 2.807325),
    (bert(1, "cls"), BOS, 2116.024),
    (bert(12, "cls"), BOS, 164.2118),
    (bert(1, "mean"), BOS, 66.71717),
    (bert(12, "mean"), BOS, 71.78946),
    (llama(4, "last"), BOS, 0.0554041),
    (llama(4, "mean"), BOS, 0.229029),
    (llama(4, "last"), ZIPF, 0.0747493),
    (llama(4, "mean"), ZIPF, 0.0539035),
    *((PRE.format(n=norm, p="last"), SHORT, 0.658929) for norm in ("layernorm", "rmsnorm")),
    *((PRE.format(n=norm, p="mean"), SHORT, 1.189168) for norm in ("layernorm", "rmsnorm")),
    *((POST.format(n=norm, p="cls"), SHORT, 1.557346) for norm in ("layernorm", "rmsnorm")),
    *((POST.format(n=norm, p="mean"), SHORT, 1.566599) for norm in ("layernorm", "rmsnorm")),
]


@pytest.mark.parametrize(("net", "tokens", "gamma"), GOLDEN)
def test_golden(net: str, tokens: fg.Tokens, gamma: float) -> None:
    """To 1e-6, or all digits that are written down."""
    found = fg.predict(net, inputs=tokens)
    digits = 6 - math.floor(math.log10(gamma))
    assert float(found.gamma[-1]) == pytest.approx(gamma, abs=0.51 * 10.0 ** -(min(digits, 6) if gamma < 1 else digits))
    assert float(found.gamma[-1]) == pytest.approx(gamma, rel=1e-5)
    assert found.reading == "closed form"
    assert found.guesses.gamma == pytest.approx(float(found.gamma[-1]), rel=1e-9)


@pytest.mark.parametrize(("shift", "vocabulary", "chance"), [(3.48, 2000, 0.518636), (1.88, 50257, 0.011449)])
def test_own_guesses(shift: float, vocabulary: int, chance: float) -> None:
    assert own_guess_chance(shift, vocabulary) == pytest.approx(chance, abs=5.1e-7)


def test_own_guesses_in_limits() -> None:
    assert own_guess_chance(0.0, 50) == pytest.approx(1 / 50, rel=1e-9)
    assert own_guess_chance(40.0, 50) == pytest.approx(1.0, rel=1e-9)
    rng = np.random.default_rng(0)
    hits = np.mean(rng.normal(size=(100_000, 30))[:, 1:].max(1) < rng.normal(1.5, 1.0, 100_000))
    assert abs(hits - own_guess_chance(1.5, 30)) < 5.5 * 0.5 / math.sqrt(100_000)


def test_prototypes_are_the_average_over_sequences() -> None:
    """Without anything that bends, K is linear in the indicator: the closed form is the mean over drawn sequences."""
    p = np.array([0.4, 0.3, 0.2, 0.1])
    net = Network.parse("embed(1) > positions(0.5) > attention(2, causal, by=uniform) > pool_tokens(mean) > dense")
    k = prototype_kernel(net, fg.Tokens(length=4, frequencies=p)).covariance
    rng = np.random.default_rng(3)
    found = []
    for _ in range(300):
        one = token_kernel(net, rng.choice(4, (8, 4), p=p)).covariance
        found.append([one.diagonal().mean(), (one.sum() - np.trace(one)) / 56])
    mean, error = np.mean(found, 0), np.std(found, 0, ddof=1) / math.sqrt(len(found))
    assert abs(mean[0] - k[0, 0]) < 5.5 * error[0]
    assert abs(mean[1] - k[0, 1]) < 5.5 * error[1]


def test_gating_creates_no_bias() -> None:
    plain = fg.predict("embed(1) > dense > gelu > pool_tokens(last) > dense", inputs=SHORT)
    gated = fg.predict("embed(1) > dense > gated(gelu) > pool_tokens(last) > dense", inputs=SHORT)
    assert gated.gamma[-1] == 0.0 < plain.gamma[-1]


def test_epsilon_counts_where_the_stream_is_small() -> None:
    net = "embed(0.02) > residual[layernorm{} > attention(4, by=uniform)] > pool_tokens(last) > dense"
    free, kept = (fg.predict(net.format(e), inputs=ZIPF).layers[1].log_q for e in ("", "(eps=1e-5)"))
    share = 4e-4 / (4e-4 + 1e-5)  # of the branch's variance
    assert math.exp(kept) - 4e-4 == pytest.approx(share * (math.exp(free) - 4e-4), rel=1e-9)


def test_what_was_taken_for_granted_is_said() -> None:
    net = "embed(1) > layernorm > attention(4, weight_var={}) > pool_tokens(mean) > dense"
    for variance, way, equation in (
        (0.03, "uniform", 24),
        (0.2, "annealed", 25),
        (0.9, "renormalized", 26),
        (3, "sampled", 27),
    ):
        said = [a for a in fg.predict(net.format(variance), inputs=DISTINCT).assumptions if "logits" in a]
        assert len(said) == 1
        assert said[0].startswith(f"attention by {way} weights: the variance of logits is β² = {variance**2:.2g}")
        assert f"theory.md ({equation})" in said[0]
    # fewer tokens than 32 to divide by: the bound is lower
    assert any("by sampled weights" in a for a in fg.predict(net.format(0.9), inputs=SHORT).assumptions)


def test_bad_input_is_one_clear_line() -> None:
    net = "embed(1, vocabulary=10) > attention(2) > pool_tokens(last) > dense"
    ids, cut = np.arange(12).reshape(2, 6), "patches(5) > pool_tokens(mean) > dense"
    for call, words in (
        (lambda: fg.predict(net, data=ids), "ids below the vocabulary's size, 10"),
        (lambda: fg.measure(net, ids, inits=2), "ids below the vocabulary's size, 10"),
        (lambda: fg.predict(net, data=ids + 0.5), "whole numbers"),
        (lambda: fg.predict(net, data=-ids), "whole numbers"),
        (lambda: fg.predict(net), "sequences for a network of tokens"),
        (lambda: fg.predict(net, data=ids % 10, tangent=True), "tangent kernel of a network of tokens"),
        (lambda: fg.predict(net, inputs=fg.Tokens(length=20_000)), "tokens in all"),
        (lambda: fg.predict(net.replace(" > dense", ""), inputs=SHORT), "ends in its output layer"),
        (lambda: fg.predict("embed(1) > attention(2) > dense", inputs=SHORT), "ends in a dense layer"),
        (lambda: fg.measure(net, ids % 10, inits=2, width=33), "heads that divide the width, 33"),
        (lambda: Network.parse("embed(1, width=10) > attention(3) > dense"), "heads that divide the width, 10"),
        (lambda: fg.transformer("gpt2", width=100), "heads that divide the width"),
        (lambda: fg.transformer("gpt3"), "style 'gpt2'"),
        (lambda: fg.Tokens(length=8, coincidence=1.2), "coincidence below 1"),
        (lambda: fg.Tokens(length=8, coincidence=0.1, frequencies=[1, 2]), "coincidence or frequencies"),
        (lambda: fg.Tokens(length=8, frequencies=[-1, 2]), "frequencies of tokens"),
        (lambda: fg.Tokens(length=8, frequencies=[0.5, 0.3]), "that sum to 1, or counts"),
        (lambda: fg.Tokens(length=8, shared=8), "sequences that differ"),
        (lambda: fg.predict(cut, data=np.ones((3, 1, 8, 8))), "copies of one"),
        (lambda: fg.predict(cut, data=np.eye(64).reshape(64, 1, 8, 8)), "multiples of 5"),
    ):  # fmt: skip
        with pytest.raises(fg.FirstguessError, match=words) as caught:
            call()
        assert caught.value.hint
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("style", ["gpt2", "bert", "llama", "vit", "original"])
def test_transformers_are_built_and_predicted(style: str) -> None:
    net = fg.transformer(style, depth=2, width=48, heads=4)  # type: ignore[arg-type]
    assert Network.parse(str(net), classes=10) == net
    found = fg.predict(net, inputs=fg.Tokens(length=12, coincidence=0.02, shared=int(style == "bert")))
    assert found.gamma[-1] > 0.0
    assert fg.Prediction.from_dict(found.to_dict()).gamma[-1] == found.gamma[-1]
    assert str(found).startswith("Prediction (closed form, 10 classes)")


def test_transformers_are_those_of_the_golden_numbers() -> None:
    for style, depth, pool, text, tokens in (
        ("bert", 12, "mean", bert(12, "mean"), BOS),
        ("gpt2", 12, "last", gpt2(12, "last").replace("> gelu >", "> gelu_tanh >"), DISTINCT),
    ):
        mine = str(fg.transformer(style, depth=depth, pool=pool, eps=0.0))  # type: ignore[arg-type]
        uniform = mine.replace("attention(12, causal,", "attention(12, causal, by=uniform,").replace(
            "(12, weight", "(12, by=uniform, weight"
        )
        found, wanted = (fg.predict(net, inputs=tokens).gamma[-1] for net in (uniform, text))
        assert found == pytest.approx(wanted, rel=1e-9)


def test_a_tangent_of_prototypes_is_refused() -> None:
    with pytest.raises(fg.NotCovered, match="a tangent of vectors"):
        fg.predict(gpt2(1, "last"), inputs=SHORT).absorption(lr=1e-3)
