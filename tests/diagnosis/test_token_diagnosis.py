"""`fg.diagnose` of transformers: the reading says whether the bias is expected."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
import torch
from token_models import hugging_face

import firstguess as fg
from firstguess.data import as_data
from firstguess.diagnosis.expectation import predicted_tokens, sequences_of, tokens_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("transformers", reason="transformers is not installed")

pytestmark = pytest.mark.usefixtures("one_thread")
GPT2 = fg.transformer("gpt2", depth=1, width=32, heads=4, classes=5)


def zipf(n, tokens, seed=0):
    rng = np.random.default_rng(seed)
    p = 1.0 / np.arange(1, 48)
    return torch.tensor(rng.choice(47, size=(n, tokens), p=p / p.sum()) + 2)


def test_a_transformer_is_expected_or_not():
    d = fg.diagnose(hugging_face("GPT2", depth=1), zipf(40, 8), inits=16, advice=False, seconds=30)
    assert d.expected.prediction is not None, d.expected.why
    assert d.expected.prediction.reading == "kernel"
    assert d.structure is not None
    assert d.structure.complete
    gamma = d.expected.comparison.layers[-1]
    assert abs(gamma.measured - gamma.predicted) < 5.1 * gamma.se + 4 / 32 * (1 + gamma.predicted)  # a room of 4/D
    assert "predicted on your data, the largest share is" in str(d)
    assert "no tangent kernel of attention" in str(d)


def test_inputs_by_name():
    ids = zipf(20, 8)
    words = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    d = fg.diagnose(hugging_face("Bert", depth=1), words, inits=4, advice=False, seconds=15)
    assert d.expected.prediction is not None, d.expected.why


def test_padding_is_said():
    ids = zipf(20, 8)
    mask = torch.ones_like(ids)
    mask[3, -2:] = 0
    words = {"input_ids": ids, "attention_mask": mask}
    d = fg.diagnose(hugging_face("Bert", depth=1), words, inits=4, advice=False, seconds=15)
    assert d.expected.prediction is None
    assert "padding" in d.expected.why


def test_a_description_of_tokens_is_predicted_on_its_sequences():
    d = fg.diagnose(GPT2, zipf(40, 8).numpy(), inits=20, advice=False)
    assert d.expected.prediction is not None, d.expected.why
    assert d.expected.prediction.reading == "kernel"


def test_fewer_sequences_then_the_closed_form():
    ids = zipf(600, 12)
    data = as_data(ids.numpy())
    whole, said = predicted_tokens(GPT2, as_data(ids[:60].numpy()), draws=200, seed=0, seconds=60.0)
    assert said == ""
    few, said = predicted_tokens(GPT2, data, draws=200, seed=0, seconds=0.2)
    assert "of the 600 sequences" in said
    assert few.guesses.points == 600
    assert few.gamma[-1] == pytest.approx(whole.gamma[-1], rel=0.25)  # of other sequences
    closed, said = predicted_tokens(GPT2, data, draws=200, seed=0, seconds=1e-6)
    assert closed.reading == "closed form"
    assert re.fullmatch(  # in words of a page, with the reason, and no error's text
        r"not on your own sequences, because it needs at most \d+ tokens in all, .*; here: 600 sequences of 12 tokens: "
        r".* GB; random tokens are taken instead, two of them the same in \d+ % of cases, as in yours",
        said,
    )
    assert closed.gamma[-1] == pytest.approx(whole.gamma[-1], rel=0.25)


def test_what_is_known_of_sequences():
    ids = zipf(300, 20).numpy()
    p = 1.0 / np.arange(1, 48)
    assert tokens_of(ids).chance == pytest.approx(np.sum((p / p.sum()) ** 2), rel=0.1)
    shared = np.concatenate([np.full((300, 2), 99), ids], axis=1)
    found = tokens_of(shared)
    assert (found.length, found.shared, found.chance) == (22, 2, tokens_of(ids).chance)
    assert tokens_of(np.ones((4, 3), dtype=int)) is None
    assert tokens_of(np.ones((4, 3, 8, 8))) is None


def test_sequences_of_batches():
    from firstguess.data import Batch

    ids = torch.ones(3, 5, dtype=torch.long)
    one = Batch(ids, None, 3)
    assert sequences_of([one, one]).shape == (6, 5)
    assert sequences_of([one, Batch(ids[:, :4], None, 3)]) is None
    named = Batch({"input_ids": ids, "attention_mask": ids, "token_type_ids": 0 * ids}, None, 3)
    assert torch.equal(sequences_of([named]), ids)
    assert sequences_of([Batch({"input_ids": ids, "attention_mask": 0 * ids}, None, 3)]) is None
    padded = Batch({"input_ids": 0 * ids, "attention_mask": 0 * ids}, None, 3)
    assert sequences_of([padded]) is None
    assert torch.equal(sequences_of([padded, named], 0), torch.cat([0 * ids, ids]))
    assert sequences_of([Batch({"input_ids": ids, "attention_mask": 0 * ids}, None, 3)], 0) is None
    shorter = sequences_of([named, Batch({"input_ids": ids[:, :3], "attention_mask": ids[:, :3]}, None, 3)], 0)
    assert shorter[:, 3:].sum(1).tolist() == [2, 2, 2, 0, 0, 0]
    assert sequences_of([Batch({"input_ids": ids, "token_type_ids": ids}, None, 3)]) is None
    assert sequences_of([Batch({"input_ids": ids, "more": ids}, None, 3)]) is None


def offered(network):
    from firstguess.diagnosis.remedies import REMEDIES, Case

    case = Case(network, None, (), None, None)
    names = ("smaller shared embeddings", "gate the MLPs", "pre-norm")
    return {name: [variant.network for variant in REMEDIES[name](case)] for name in names}


def test_remedies_of_transformers():
    """By the closed form, each makes guesses of BERT more even; LLaMA has nothing to change."""
    bert = fg.transformer("bert", depth=2, width=32, heads=4, classes=5)
    tokens = fg.Tokens(length=12, coincidence=0.05)

    def gamma(network):
        return float(fg.predict(network, inputs=tokens).gamma[-1])

    found = offered(bert)
    assert [len(networks) for networks in found.values()] == [1, 1, 1]
    smaller, gated, pre = (networks[0] for networks in found.values())
    assert str(smaller).startswith("embed(0.02, width=32, types=0.002) > positions(0.002) > 2 x [layernorm")
    assert "dense(weight_var=0.0128, width=256) > gated(gelu) > dense(weight_var=0.0512)" in str(gated)
    assert str(pre).count("residual[layernorm(eps=1e-12) > ") == 2
    assert str(pre).endswith("] > layernorm(eps=1e-12) > pool_tokens(cls) > dense(weight_var=0.0128)")
    assert gamma(smaller) < 0.1 * gamma(bert)
    assert gamma(gated) <= gamma(bert)
    assert not any(offered(fg.transformer("llama", depth=2, width=32, heads=4)).values())
    assert not any(offered(fg.mlp(depth=2)).values())


def test_post_norm_is_more_biased_than_pre_norm():
    """Distinct tokens without positions, of unit variance: theory.md §9 has 1.557 against .659 for a token, 12 deep."""
    block = "residual[attention(4)] > layernorm > residual[dense(width=256) > gelu > dense] > layernorm"
    post = fg.Network.parse(f"embed(1, width=64) > 4 x [{block}] > pool_tokens(last) > dense")
    (pre,) = offered(post)["pre-norm"]
    tokens = fg.Tokens(length=16)
    one, other = (float(fg.predict(net, inputs=tokens).gamma[-1]) for net in (post, pre))
    assert other < one
