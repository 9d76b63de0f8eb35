"""Hugging Face models from tiny configurations: what cannot be read is listed, and nothing crashes."""

from __future__ import annotations

import math
import warnings

import pytest
import torch

import firstguess as fg
from firstguess.modules.read.read import read

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")

pytestmark = pytest.mark.usefixtures("one_thread")
IMAGES = {"pixel_values": torch.zeros(2, 3, 16, 16)}
WORDS = {"input_ids": torch.full((2, 7), 3), "attention_mask": torch.ones(2, 7, dtype=torch.long)}


def small_resnet(kind):
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[2, 1], layer_type=kind, num_labels=5
    )
    return transformers.ResNetForImageClassification(config)


def test_resnet():
    found = read(small_resnet("basic"), {"pixel_values": torch.zeros(2, 3, 32, 32)})
    assert found.complete, str(found)
    conv, last = "conv(weight_var=2, width={}, padding=1)", "batchnorm > relu > conv(weight_var=2, width={}, padding=1)"
    block = f"residual[{conv.format(8)} > {last.format(8)} > batchnorm] > relu"
    down = (
        f"residual[conv(width=16, stride=2, padding=1) > {last.format(16)} > batchnorm | "
        "conv(width=16, kernel=1, stride=2) > batchnorm] > relu"
    )
    assert str(found.network) == (  # Kaiming by fan-out: σw² = 2 · fan-in / fan-out
        "conv(weight_var=0.75, width=8, kernel=7, stride=2, padding=3) > batchnorm > relu > "
        f"maxpool(9, stride=2, padding=1) > 2 x [{block}] > {down} > avgpool(16) > "
        "dense(weight_var=0.3333333333333333, bias_var=0.020833333333333332)"
    )
    assert found.network.classes == 5
    # On paper: after the last block nodes are N(0, 2), relu of them has mean² 1/π, and the average of 16 divides what
    # is left of its mean square, 1 − 1/π, by 16.
    center, spread = 1 / math.pi / 3 + 1 / 48, (1 - 1 / math.pi) / 16 / 3
    assert fg.predict(found.network).gamma[-1] == pytest.approx(center / spread, rel=1e-9)
    rules = {p.variances.rule for p in found.parts if p.variances and p.kind == "Conv2d"}
    assert rules == {"Kaiming by fan-out normal"}


def test_bottlenecks_of_a_resnet():
    found = read(small_resnet("bottleneck"), {"pixel_values": torch.zeros(2, 3, 32, 32)})
    assert found.complete, str(found)
    blocks = [layer for layer in found.network.layers if layer.kind == "residual"]
    assert [sum(x.kind == "conv" for x in block.branch) for block in blocks] == [3, 3, 3]
    assert [len(block.shortcut) for block in blocks] == [0, 0, 2]
    assert fg.predict(found.network).gamma[-1] > 1.0


def test_a_resnet_without_an_example_names_what_decides_by_shapes():
    found = read(small_resnet("basic"))
    assert not found.complete
    why = {(u.path, u.kind): u.why for u in found.unread}
    assert "control flow" in why["resnet.embedder", "ResNetEmbeddings"]
    assert "example" in why["resnet.pooler", "AdaptiveAvgPool2d"]
    assert "residual[" in str(found.fragment)


@pytest.mark.parametrize("shown", [True, False], ids=["example", "no example"])
def test_attention_of_a_class_that_is_not_known_is_listed_by_path(shown):
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.ElectraConfig(vocab_size=50, embedding_size=16, **sizes)
    found = read(transformers.ElectraForSequenceClassification(config), WORDS if shown else None)
    attention = [u for u in found.unread if "attention is read in models of known classes" in u.why]
    assert len(attention) == 2
    assert all("attention" in u.path for u in attention)
    assert found.network is None
    assert any(u.kind == "Embedding" for u in found.unread)
    heads = [p for p in found.parts if p.path == "classifier.out_proj"]
    assert heads[0].variances.rule == "normal, standard deviation 0.02"


def test_a_cache_that_stops_the_reading_is_said_in_words():
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.Qwen2Config(vocab_size=20, num_key_value_heads=1, num_labels=3, pad_token_id=0, **small)
    model, ids = transformers.Qwen2ForSequenceClassification(config), torch.arange(1, 15).reshape(2, 7)
    page = " ".join(str(read(model, ids)).split())
    assert "NotImplementedError" not in page
    assert "class '" not in page
    assert (
        "passes a DynamicCache from part to part, which tracing cannot follow; model.config.use_cache = False" in page
    )
    model.config.use_cache = False  # what the page says to do
    assert "DynamicCache" not in str(read(model, ids))
