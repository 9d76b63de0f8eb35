"""Language models: guesses over the vocabulary, predicted and measured, against plain forwards and drawn networks."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from simulated_tokens import token_member

import firstguess as fg
from firstguess.ensemble.engine import DescriptionEngine
from firstguess.ensemble.member_module import build
from firstguess.ensemble.member_statistics import Members
from firstguess.network.network import Network
from firstguess.studies.tasks import packed, unpacked
from firstguess.theory.language import own_guess_chance

V, D = 300, 64


def ids(n: int = 8, tokens: int = 12, vocabulary: int = V) -> np.ndarray:
    p = 1.0 / np.arange(1, vocabulary + 1)
    return np.random.default_rng(5).choice(vocabulary, (n, tokens), p=p / p.sum())


def agree(a: float, a_error: float, b: float, b_error: float) -> None:
    """Within 5.6 standard errors of both: a false alarm in fewer than 1e-6 tests, also with a few dozen networks."""
    assert abs(a - b) <= 5.6 * math.hypot(a_error, b_error), (a, a_error, b, b_error)


def fractions(found: fg.Prediction) -> np.ndarray:
    assert isinstance(found.guesses, fg.EmpiricalGuesses)
    return found.guesses.fractions


def share(values: np.ndarray) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values))


@pytest.mark.parametrize("head", ["unembed(tied)", "unembed", "dense > gelu > layernorm > unembed(tied)"])
def test_the_ensemble_is_what_a_plain_forward_does(head: str) -> None:
    source = f"embed(0.3, vocabulary=40) > positions(0.2) > residual[layernorm > attention(2, causal)] > {head}"
    net, x = Network.parse(source, classes=40), ids(5, 6, 40)
    members = DescriptionEngine(net, x, width=16, seed=3, dtype=torch.float64, chunk=2).run(0, 4)
    for i in range(4):
        model = build(net, x, width=16, seed=3, member=i).double()
        logits = token_member(net.layers, x, iter([p.detach().numpy() for p in model.parameters()]))
        np.testing.assert_allclose(model(torch.from_numpy(x)).detach().numpy(), logits, atol=1e-10)
        guess = logits.reshape(-1, 40).argmax(1)
        np.testing.assert_allclose(members.fractions[i], np.bincount(guess, minlength=40) / 30)
        assert members.own is not None
        assert members.own[i] == pytest.approx(np.mean(guess == x.ravel()))
    back = unpacked(packed(members, 8, 4))  # a block of a study, as it is stored
    assert isinstance(back, Members)
    for name, value in vars(members).items():
        np.testing.assert_array_equal(getattr(back, name), value)


@pytest.mark.parametrize("tied", [True, False])
def test_guesses_are_those_of_a_plain_loop(tied: bool) -> None:
    """h = e + p, and no more: nothing here is a limit of width, so all is within sampling errors."""
    x = ids()
    text = f"embed(0.5, vocabulary={V}) > positions(1) > layernorm > unembed{'(tied)' if tied else ''}"
    found = fg.predict(Network.parse(text, classes=V), data=x, width=D)
    rng, largest, own = np.random.default_rng(9), [], []
    for _ in range(200):
        table, places = 0.5 * rng.normal(size=(V, D)), rng.normal(size=(x.shape[1], D))
        h = (table[x] + places).reshape(-1, D)
        guess = (h @ (table if tied else rng.normal(size=(V, D))).T).argmax(1)
        largest.append(np.bincount(guess).max() / guess.size)
        own.append(np.mean(guess == x.ravel()))
    mine = fractions(found).max(axis=1)
    agree(*share(mine), *share(np.array(largest)))
    assert found.own_guess is not None
    spread = float(np.std(own))
    agree(found.own_guess, spread / math.sqrt(len(mine)), *share(np.array(own)))
    if tied:
        z = math.sqrt(D * 0.25 / 1.25)
        assert abs(found.own_guess - own_guess_chance(z, V)) < 0.05  # its limit of wide tokens


def test_features_matter_where_the_vocabulary_is_large() -> None:
    """Of eight nodes and 300 tokens: V independent logits of the same covariance would be other guesses."""
    from firstguess.theory.shares.argmax_sampling import draw_guesses

    x = ids(4, 8)
    net = Network.parse(f"embed(1, vocabulary={V}) > positions(1) > unembed", classes=V)
    few, many = (share(fractions(fg.predict(net, data=x, width=w)).max(1)) for w in (4, 2000))
    same = (x.ravel()[:, None] == x.ravel()) + np.tile(np.eye(8), (4, 4))
    independent = share(draw_guesses(same, V, draws=400).fractions.max(axis=1))
    agree(*many, *independent)
    assert few[0] - independent[0] > 5.6 * math.hypot(few[1], independent[1])


@pytest.mark.parametrize(("style", "tied"), [("gpt2", True), ("gpt2", False), ("llama", False), ("bert", True)])
def test_predicted_is_measured(style: str, tied: bool) -> None:
    """γ of the output over all pairs of tokens, the largest share and own guesses, of networks of width 192."""
    x = ids()
    net = fg.transformer(style, depth=1, width=192, heads=4, head="language", vocabulary=V, tied=tied)  # type: ignore[arg-type]
    assert Network.parse(str(net), classes=V) == net
    p, m = fg.predict(net, data=x, width=192), fg.measure(net, x, inits=40, width=192)
    finite = 2.0 / 192  # of c, as in tests/network/layers/test_contract_tokens.py
    apart = abs(p.correlation[-1] - m.correlation[-1])
    assert apart <= 5.6 * m.correlation_se[-1] + finite
    agree(*share(fractions(p).max(axis=1)), *share(m.guesses.fractions.max(axis=1)))
    assert p.own_guess is not None
    assert m.own_guess is not None
    error = max(m.own_guess[1], math.sqrt(p.own_guess * (1 - p.own_guess) / 40 / x.size))
    agree(p.own_guess, error, m.own_guess[0], error)
    assert (p.own_guess > 0.05) == (style == "gpt2" and tied)  # BERT's transform makes z = 0
    assert m.points == x.size
    assert fg.Prediction.from_dict(p.to_dict()).own_guess == p.own_guess
    assert fg.Measurement.from_dict(m.to_dict()).own_guess == m.own_guess
    assert "chance to guess the own input" in str(p)
    assert "chance to guess the own input" in str(m)
    g = m.guesses  # the line, from the counts of every network
    empty = float(np.mean([np.count_nonzero(row == 0) for row in g.fractions]))
    line = next(line for line in str(m).splitlines() if "tokens that are guessed" in line)
    assert f"{empty:.4g} ±" in line
    assert "tokens that are guessed" in str(p)


def test_described_tokens() -> None:
    net = fg.transformer("gpt2", depth=1, width=64, heads=4, head="language", vocabulary=500)
    found = fg.predict(net, inputs=fg.Tokens(length=16, coincidence=0.01, shared=1), points=128)
    assert found.guesses.points == 128
    assert any("100 tokens that are all equally frequent" in line for line in found.assumptions)
    assert any("theory.md (30)" in line for line in found.assumptions)


def test_real_vocabularies() -> None:
    for style, size in (("gpt2", 50257), ("bert", 30522), ("llama", 32000), ("original", 37000)):
        net = fg.transformer(style, depth=1, width=24, heads=2, head="language")  # type: ignore[arg-type]
        assert net.classes == size
        assert str(net).endswith("unembed(tied)") == (style != "llama")


def test_bad_input_is_one_clear_line() -> None:
    x = ids()
    tied = "embed(1, vocabulary=300) > {} > unembed(tied)"
    for call, words in (
        (lambda: fg.transformer("vit", head="language"), "a style that reads tokens"),
        (lambda: fg.transformer("gpt2", head="words"), "head 'classes' or 'language'"),  # type: ignore[arg-type]
        (lambda: fg.transformer("gpt2", vocabulary=10), "head='language' for a vocabulary"),
        (lambda: fg.predict(tied.format("layernorm"), data=x, classes=5), "as many classes as the vocabulary"),
        (lambda: fg.measure(tied.format("layernorm"), x, inits=2, classes=5), "as many classes as the vocabulary"),
        (lambda: fg.predict("embed(1) > unembed(tied)", data=x, classes=5), "as many classes as the vocabulary"),
        (lambda: fg.predict(tied.format("gelu"), data=x, classes=300), "a stream of residual blocks"),
        (lambda: fg.predict(tied.format("layernorm"), data=x, classes=300, tangent=True), "tangent kernel"),
        (lambda: fg.predict(tied.format("layernorm"), data=x, classes=300, width=2_000_000), "a head of at most 2 GB"),
        (
            lambda: fg.predict(
                tied.format("layernorm"), inputs=fg.Tokens(length=8, coincidence=0.001), classes=300
            ),
            "a coincidence of at least",
        ),
        (lambda: fg.predict(tied.format("layernorm"), inputs=fg.Tokens(length=8), classes=300, points=10**9),
         "at most 7812496 positions in all, which take 2 GB, but got 1000000000: 256 GB"),
        (lambda: fg.predict(tied.format("layernorm"), inputs=fg.Tokens(length=10**9), classes=300),
         "at most 7812500 positions in all, which take 2 GB, but got 2000000000: 512 GB"),
        (lambda: fg.predict(tied.format("layernorm"), inputs=fg.Tokens(length=8), classes=300, points=0),
         "a whole number of points, at least 2, but got 0"),
        (lambda: fg.predict(
            "embed(1, vocabulary=300) > positions(3) > unembed", data=ids(4000, 8), classes=300,
            width=20_000,
        ), "at most 8328 positions in all"),
        (lambda: fg.Tokens(length=8, frequencies=[[0.5, 0.5]]), "a list of numbers from 0 on"),
        (lambda: fg.predict(tied.format("layernorm"), data=x, classes=300, width=16).guesses.null(0), "at least 1"),
        (lambda: fg.predict("patches(4) > unembed", data=np.random.default_rng(0).normal(size=(4, 1, 8, 8))), "embed"),
    ):  # fmt: skip
        with pytest.raises(fg.FirstguessError, match=words) as caught:
            call()
        assert caught.value.hint
        assert "\n" not in str(caught.value)
