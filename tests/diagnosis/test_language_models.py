"""Diagnoses of language models: a tied head repeats its input, and that is said; an untied one does not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import firstguess as fg

transformers = pytest.importorskip("transformers")
V = 300


@pytest.mark.parametrize("tied", [True, False])
def test_a_tied_head_is_said_to_repeat_its_input(tied: bool) -> None:
    """How often is counted once more, by a plain loop over the model that was passed: 0.5 against 1/300."""
    ids = torch.from_numpy(np.random.default_rng(3).integers(0, V, (16, 12)))
    size = {"n_positions": 16, "n_embd": 64, "n_layer": 1, "n_head": 4, "bos_token_id": None, "eos_token_id": None}
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=V, tie_word_embeddings=tied, **size)).eval()
    with torch.inference_mode():
        plain = float((model(ids).logits.argmax(-1) == ids).double().mean())
    d = fg.diagnose(model, ids, inits=8, advice=False, progress=False, seconds=30)
    assert d.measurement is not None
    assert d.measurement.own_guess is not None
    share, _ = d.measurement.own_guess
    assert abs(share - plain) < 5 * (0.25 / ids.numel()) ** 0.5 + 0.05  # networks differ by a few percent
    assert (share > 0.1) == tied
    text = " ".join(str(d).split())
    assert ("It repeats its input" in text) == tied
    assert "of the last state is the token's own embedding" in text
    assert ("tokens (effective support" in text) != tied
    if tied:
        with pytest.raises(fg.InvalidInput, match="whose head is not tied"):
            d.plot("support")
        return
    rows = [row for part in d.plot("support").to_dict()["datasets"].values() for row in part if "step" in row]
    values = {row["step"]: row["value"] for row in rows}
    assert next(iter(values)) == "even guessing"
    assert values["even guessing"] == pytest.approx(d.measurement.guesses.null().effective_support)
    assert values["measured"] == pytest.approx(d.measurement.guesses.effective_support().mean)
    assert d.expected.prediction is not None
    again = fg.Prediction.from_dict(d.expected.prediction.to_dict())
    assert [list(step) for step in again.support_steps] == [list(step) for step in d.expected.prediction.support_steps]


def test_a_tied_head_on_one_frequent_token_is_not_called_biased() -> None:
    """Six of ten positions hold one token, and a tied head repeats it, as a plain loop shows: no favourite class."""
    rng = np.random.default_rng(4)
    ids = np.where(rng.random((16, 12)) < 0.6, 7, rng.integers(0, V, (16, 12)))
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=V, hidden_size=64, num_hidden_layers=1, num_attention_heads=4, intermediate_size=128,
        tie_word_embeddings=True,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.inference_mode():
        plain = float((model(torch.from_numpy(ids)).logits.argmax(-1) == 7).double().mean())
    d = fg.diagnose(model, torch.from_numpy(ids), inits=8, advice=False, progress=False, seconds=30)
    assert d.measurement is not None
    assert abs(d.measurement.guesses.expected_max() - plain) < 0.02
    assert plain == pytest.approx(np.mean(ids == 7), abs=0.02)
    assert d.verdict.name == "repeats its input"
    assert str(d.answer) == "nothing to do"
    assert "of positions guess the token that they hold" in d.headline
    assert "whatever they show" not in str(d)
