"""Hugging Face's transformers are read by class, and compared with the model; what is not read is named by path."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from token_models import FAMILIES, IDS, example_of, hugging_face
from torch import nn

import firstguess as fg

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")

pytestmark = pytest.mark.usefixtures("one_thread")
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")


def same(network, wanted):
    """Whether two descriptions have the same words, and numbers that differ by rounding."""
    one, other = str(network), str(wanted)
    assert _NUMBER.sub("#", one) == _NUMBER.sub("#", other)
    numbers = [[float(x) for x in _NUMBER.findall(text)] for text in (one, other)]
    assert numbers[0] == pytest.approx(numbers[1], rel=1e-9)
    assert network.classes == wanted.classes


def built(name, depth=2, **more):
    sizes = {"depth": depth, "width": 32, "heads": 4, "hidden": 80}
    sizes |= {} if "head" in more else {"classes": 5}
    return fg.transformer(name, **(sizes | more))


def test_gpt2_is_what_the_builder_builds():
    found = fg.read(hugging_face("GPT2"))
    same(found.network, built("gpt2", hidden=128))
    assert any("same weights" in note for note in found.notes)
    rules = {part.path: part.variances.rule for part in found.parts if part.variances}
    assert rules["transformer.h.0.attn.c_attn"] == "normal, standard deviation 0.02"


def test_three_layers_of_gpt2_have_last_weights_that_no_rule_names():
    found = fg.read(hugging_face("GPT2", depth=3))
    same(found.network, built("gpt2", depth=3, hidden=128))  # 0.02/√6 is a likely size


def test_llama_is_what_the_builder_builds():
    same(fg.read(hugging_face("Llama"), IDS).network, built("llama"))


def test_grouped_queries_and_windows_are_read():
    """Compared with the model by the reader itself, with weights that make attention far from uniform."""
    for window in (4, 4096):
        found = fg.read(hugging_face("Mistral", sliding_window=window), IDS)
        more = {"groups": 2, "window": window}
        wanted = fg.Network(
            tuple(
                replace(layer, branch=tuple(replace(x, **more) if x.kind == "attention" else x for x in layer.branch))
                if layer.paths
                else layer
                for layer in built("llama").layers
            ),
            5,
        )
        same(found.network, wanted)
    assert "groups=2" in str(fg.read(hugging_face("Llama", num_key_value_heads=2)).network)
    assert "groups=1" in str(fg.read(hugging_face("Llama", num_key_value_heads=1, attention_bias=True)).network)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("name", ["GPT2", "Llama", "Mistral", "Bert", "Roberta", "DistilBert"])
def test_padding_is_read_where_a_mask_says_so(name, side):
    """With the same weights, padded sequences give the model's own logits: else the reader refuses."""
    model = hugging_face(name)
    found = fg.read(model, padded(model, side))
    if side == "left" and name.endswith(("Bert", "Roberta")):  # reads the first token
        assert found.network is None
        assert "begin with a token" in found.unread[0].why
    else:
        assert found.network.layers[0].padding == model.config.pad_token_id


def test_padding_of_models_without_and_with_other_heads():
    for kind in ("Model", "ForCausalLM"):
        config = hugging_face("Llama").config
        model = getattr(transformers, f"Llama{kind}")(config)
        assert fg.read(model, padded(model, "right")).network.layers[0].padding == 49


def padded(model, side):
    """A batch of sequences of 10, 7, 4 and 2 tokens."""
    pad, ids = model.config.pad_token_id, IDS.clone()
    for row, length in enumerate((10, 7, 4, 2)):
        ids[row, slice(length, None) if side == "right" else slice(10 - length)] = pad
    return {"input_ids": ids, "attention_mask": (ids != pad).long()}


def test_bert_is_what_the_builder_builds_and_its_pooler():
    wanted = fg.Network.parse(
        f"{fg.Network(built('bert').layers[:-1])} > dense(weight_var=0.0128, width=32) > tanh > "
        "dense(weight_var=0.0128)",
        classes=5,
    )
    words = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS), "token_type_ids": torch.zeros_like(IDS)}
    masked = fg.Network((replace(wanted.layers[0], padding=0), *wanted.layers[1:]), 5)
    same(fg.read(hugging_face("Bert"), words).network, masked)
    same(fg.read(hugging_face("Roberta")).network, wanted)


def test_distilbert_has_no_types_and_a_relu():
    text = str(fg.read(hugging_face("DistilBert")).network)
    assert text.startswith("embed(0.02, width=32) > positions(0.02) > ")
    assert text.endswith("pool_tokens(cls) > dense(weight_var=0.0128, width=32) > relu > dense(weight_var=0.0128)")


def test_vit_is_what_the_builder_builds():
    same(fg.read(hugging_face("ViT")).network, built("vit", patch=4))


def test_deit_starts_with_two_tokens_of_zeros():
    network = fg.read(hugging_face("DeiT"), example_of("DeiT")).network
    assert str(network).startswith("patches(4, weight_var=0.0192, width=32) > 2 x [cls(0)] > positions(0) > ")
    assert np.isfinite(fg.predict(network, data=example_of("DeiT").numpy()).gamma[-1])


def test_other_sizes_are_measured():
    def model():
        found = hugging_face("GPT2", initializer_range=0.05)
        for block in found.transformer.h:
            nn.init.normal_(block.mlp.c_fc.weight, std=0.07)
        return found

    text = str(fg.read(model).network)
    assert text.startswith("embed(0.05, width=32) > positions(0.05) > ")
    assert float(re.search(r"dense\(weight_var=([\d.]+), width=128\)", text)[1]) == pytest.approx(
        32 * 0.07**2, rel=0.01
    )


def test_bare_models_are_read_up_to_what_they_return():
    bert = transformers.BertModel(hugging_face("Bert").config)
    assert str(fg.read(bert).network).endswith("pool_tokens(cls) > dense(weight_var=0.0128, width=32) > tanh")
    llama = transformers.LlamaModel(hugging_face("Llama").config)
    assert str(fg.read(llama).network).endswith("> rmsnorm(eps=1e-06)")


def test_language_models_tied_and_not():
    gpt2 = transformers.GPT2LMHeadModel(hugging_face("GPT2").config)
    same(fg.read(gpt2).network, built("gpt2", hidden=128, head="language", vocabulary=50))
    llama = transformers.LlamaForCausalLM(hugging_face("Llama").config)
    same(fg.read(llama, IDS).network, built("llama", head="language", vocabulary=50, tied=False))


# What is not read


def stopped(model, example=None):
    found = fg.read(model, example)
    assert found.network is None
    (one,) = found.unread
    return one.path, one.why


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda m: setattr(m.transformer.h[1].attn, "scaling", 0.1), "other outputs"),
        (lambda m: setattr(m.transformer.h[0].ln_1, "eps", 1e-2), ""),
        (lambda m: setattr(m.transformer.h[0].mlp, "act", nn.Softshrink()), "not an activation"),
        (
            lambda m: setattr(m.transformer.h[0].mlp.c_fc, "weight", m.transformer.h[1].mlp.c_fc.weight),
            "more than once",
        ),
    ],
    ids=["scale", "eps", "activation", "shared"],
)
def test_a_model_that_does_something_else_is_not_taken_for_its_class(change, word):
    model = hugging_face("GPT2")
    change(model)
    found = fg.read(model)
    if not word:
        assert "layernorm(eps=0.01)" in str(found.network)
        return
    assert found.network is None
    assert any(word in unread.why for unread in found.unread), str(found)


def test_an_epsilon_that_is_not_the_attribute_shows_in_the_comparison():
    model = hugging_face("Llama")
    forward = type(model.model.norm).forward

    class OtherRMSNorm(type(model.model.norm)):
        def forward(self, x):
            return forward(self, x + 0.01 * x.square())

    model.model.layers[0].input_layernorm.__class__ = OtherRMSNorm
    assert "other outputs" in stopped(model)[1]


def test_queries_of_another_size_are_named_by_path():
    def model():
        found = hugging_face("Bert")
        nn.init.normal_(found.bert.encoder.layer[1].attention.self.query.weight, std=0.1)
        return found

    path, why = stopped(model)
    assert path == "bert.encoder.layer.1.attention.self"
    assert "different variances" in why


def test_a_masked_language_model_is_read_up_to_its_head():
    found = fg.read(transformers.BertForMaskedLM(hugging_face("Bert").config))
    assert found.network is None
    assert found.unread[0].path == "cls"
    assert "embed(0.02, width=32, types=0.02) > positions(0.02) > 2 x [" in str(found.fragment)


def test_other_masks_types_and_scaled_rotations_are_refused_by_name():
    mask = torch.ones_like(IDS)
    mask[0, -1] = 0
    masked = {"input_ids": IDS, "attention_mask": mask}
    assert "other tokens than those with the id of padding, 0" in stopped(hugging_face("Bert"), masked)[1]
    assert "no pad_token_id" in stopped(hugging_face("Llama", pad_token_id=None), masked)[1]
    filled = IDS.clone()
    filled[0, -2:] = 49
    assert "without an attention_mask" in stopped(hugging_face("GPT2"), filled)[1]
    types = {"input_ids": IDS, "token_type_ids": mask}
    assert "segments" in stopped(hugging_face("Bert"), types)[1]
    rope = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}
    path, why = stopped(hugging_face("Llama", rope_parameters=rope))
    assert path == "model.rotary_emb"
    assert "linear" in why


# Laws


def measured(model, x, inits):
    """γ of the output, predicted on these sequences and measured; a difference in standard errors beyond a 1/D room."""
    network = fg.read(model, x).network
    ids = x["input_ids"] if isinstance(x, dict) else x
    predicted = float(fg.predict(network, data=ids.numpy(), draws=200).gamma[-1])
    last = fg.measure(model, x, inits=inits, probe="output").layers[-1]
    return predicted, last.gamma, last.gamma_se


def zipf(n, tokens, seed=0):
    rng = np.random.default_rng(seed)
    p = 1.0 / np.arange(1, 48)
    return torch.tensor(rng.choice(47, size=(n, tokens), p=p / p.sum()) + 2)


def test_the_law_that_was_read_is_that_of_the_model():
    """Room: 4/D of 1 + γ, for finite width and n = 48 points; 5.1 standard errors: a false alarm in 3e6 runs."""
    predicted, gamma, se = measured(lambda: hugging_face("GPT2", width=64), zipf(48, 12), 60)
    assert predicted == pytest.approx(1.23, abs=0.25)
    assert abs(gamma - predicted) < 5.1 * se + 4 / 64 * (1 + predicted)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_laws_of_all_families(name):
    x = example_of(name) if name in ("ViT", "DeiT") else zipf(48, 12)
    if name in ("ViT", "DeiT"):
        x = torch.randn(48, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    predicted, gamma, se = measured(lambda: hugging_face(name, width=128), x, 100)
    assert abs(gamma - predicted) < 5.1 * se + 4 / 128 * (1 + predicted)


@pytest.mark.slow
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("name", ["GPT2", "Mistral", "Bert"])
def test_laws_of_padded_batches(name, side):
    """Sequences of 3 to 12 tokens; of Mistral in a window of 5, with half as many keys as queries."""
    if (name, side) == ("Bert", "left"):
        return  # refused: it reads the first token
    more = {"sliding_window": 5} if name == "Mistral" else {}
    model, ids = hugging_face(name, width=128, **more), zipf(48, 12)
    pad = model.config.pad_token_id
    for row, length in zip(ids, np.random.default_rng(3).integers(3, 13, 48).tolist(), strict=True):
        row[slice(length, None) if side == "right" else slice(12 - length)] = pad
    batch = {"input_ids": ids, "attention_mask": (ids != pad).long()}
    predicted, gamma, se = measured(lambda: hugging_face(name, width=128, **more), batch, 100)
    assert abs(gamma - predicted) < 5.1 * se + 4 / 128 * (1 + predicted)


def test_a_class_token_of_three_axes_makes_all_parameters_those_of_tokens() -> None:
    """(1, 1, width), as timm has it, with no embedding and no attention of torch next to it."""
    from firstguess.modules.read.read import token_parameters

    class Tokens(nn.Module):
        def __init__(self, *shape: int) -> None:
            super().__init__()
            self.token, self.head = nn.Parameter(torch.randn(*shape)), nn.Linear(8, 3)

    assert list(token_parameters(Tokens(1, 1, 8))) == ["token", "head.weight", "head.bias"]
    assert list(token_parameters(Tokens(8))) == []
