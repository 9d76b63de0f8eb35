"""Hugging Face models from tiny configurations: no download, their own initializers, their own outputs."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch

from firstguess.base.errors import InvalidInput
from firstguess.data import collect
from firstguess.modules.engine import ModuleEngine

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")

pytestmark = pytest.mark.usefixtures("one_thread")


def images(n: int = 8) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(n, 3, 16, 16, generator=torch.Generator().manual_seed(0))}


def words(n: int = 8, padded: bool = True) -> dict[str, torch.Tensor]:
    mask = torch.ones(n, 7, dtype=torch.long)
    if padded:
        mask[n // 2 :, 5:] = 0
    ids = torch.randint(5, 50, (n, 7), generator=torch.Generator().manual_seed(0))
    return {"input_ids": ids, "attention_mask": mask}


def bert(**options):
    return transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, **options
    )


def gpt2():
    return transformers.GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=2, n_head=2)


def vit():
    return transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=16, patch_size=8,
        num_labels=5,
    )  # fmt: skip


def resnet():
    return transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=5
    )


MODELS = {
    "ResNet": (lambda: transformers.ResNetForImageClassification(resnet()), images(), 8, 5),
    "ViT": (lambda: transformers.ViTForImageClassification(vit()), images(), 8, 5),
    "BERT": (lambda: transformers.BertForSequenceClassification(bert(num_labels=3)), words(), 8, 3),
    "BERT masked LM": (lambda: transformers.BertForMaskedLM(bert()), words(), 48, 50),
    "GPT-2": (lambda: transformers.GPT2LMHeadModel(gpt2()), words(padded=False), 56, 50),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_run_and_every_parameter_is_drawn(name: str) -> None:
    make, data, points, classes = MODELS[name]
    model = make()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    engine = ModuleEngine(model, collect(data), strategy="loop")
    members = engine.run(0, 3)
    assert (engine.points, engine.classes) == (points, classes)
    # nothing left, no other scale; tied words have the embedding's zero row of padding, and are drawn as it draws them
    assert {finding.kind for finding in members.findings} <= {
        "batchnorm",
        *(["tied"] if name == "BERT masked LM" else []),
    }
    assert np.isfinite(members.stats).all()
    assert members.stats.shape[1] > 8
    np.testing.assert_allclose(members.fractions.sum(1), 1)
    assert not np.allclose(members.stats[0], members.stats[1])
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert engine.layers[-1].weights  # the logits are the head's output
    assert not any("position" in layer.name or "token_type" in layer.name for layer in engine.layers)  # no data in them


@pytest.mark.parametrize("name", ["ViT", "BERT", "GPT-2"])
def test_instances_have_the_law_of_new_models(name: str) -> None:
    """Mean SPREAD of every layer, re-initialized and newly built: |z| < 6 for some 40 layers, once in 1e7."""
    make, data, _, _ = MODELS[name]
    count = 60
    instance = ModuleEngine(make(), collect(data), seed=1, strategy="loop").run(0, count).stats[:, :, 2]
    built = ModuleEngine(make, collect(data), seed=2).run(0, count).stats[:, :, 2]
    error = np.hypot(instance.std(0), built.std(0)) / math.sqrt(count - 1)
    assert (np.abs(instance.mean(0) - built.mean(0)) < 6 * error + 1e-9).all()


def test_tied_embeddings_stay_tied_and_are_drawn_once() -> None:
    model = transformers.GPT2LMHeadModel(gpt2())
    engine = ModuleEngine(model, collect(words(padded=False)))
    private = engine._source.shared_copy
    engine.run(0, 2)
    assert private.lm_head.weight is private.transformer.wte.weight
    drawn = [call.name for call in engine._source._redraw.calls]
    assert len([name for name in drawn if name in ("lm_head", "transformer.wte")]) == 1
    assert drawn.count("transformer.h.0.mlp.c_proj") <= 1


def test_a_model_without_a_head_says_what_there_is() -> None:
    model = transformers.BertModel(bert(), add_pooling_layer=True)
    with pytest.raises(InvalidInput, match="last_hidden_state"):
        ModuleEngine(model, collect(words()))
    engine = ModuleEngine(model, collect(words()), logits="pooler_output")
    assert engine.classes == 16


def test_loop_and_vmap_agree_where_vmap_works() -> None:
    model = transformers.ViTForImageClassification(vit())
    loop = ModuleEngine(model, collect(images()), strategy="loop").run(0, 3)
    auto = ModuleEngine(model, collect(images()))
    auto.run(0, 8)
    again = auto.run(0, 3)
    np.testing.assert_allclose(loop.stats, again.stats, rtol=2e-5, atol=1e-6)
    assert auto.notes
