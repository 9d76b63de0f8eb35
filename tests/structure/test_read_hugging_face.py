"""Hugging Face models from tiny configurations: what cannot be read is listed, and nothing crashes."""

from __future__ import annotations

import warnings

import pytest
import torch

from firstguess.structure import read

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


IMAGES = {"pixel_values": torch.zeros(2, 3, 16, 16)}
WORDS = {"input_ids": torch.full((2, 7), 3), "attention_mask": torch.ones(2, 7, dtype=torch.long)}


@pytest.mark.parametrize("shown", [True, False], ids=["example", "no example"])
def test_resnet(shown):
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=5
    )
    found = read(transformers.ResNetForImageClassification(config), IMAGES if shown else None)
    assert not found.complete
    why = {(u.path, u.kind): u.why for u in found.unread}
    assert any("projection" in text for text in why.values())
    assert any("ends in batchnorm" in text for text in why.values())
    assert any(path.endswith("pooler") and kind == "MaxPool2d" for path, kind in why)
    rules = {p.variances.rule for p in found.parts if p.variances and p.kind == "Conv2d"}
    assert rules == {"Kaiming by fan-out normal"}
    assert next(p.layer for p in found.parts if p.path == "classifier.1").startswith(
        "dense(weight_var=0.3333333333333333"
    )


@pytest.mark.parametrize("shown", [True, False], ids=["example", "no example"])
def test_attention_is_listed_by_path(shown):
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=16, patch_size=8
    )
    found = read(transformers.ViTForImageClassification(config), IMAGES if shown else None)
    attention = [u for u in found.unread if u.why == "attention has no closed form here"]
    assert len(attention) == 2
    assert all("attention" in u.path for u in attention)
    assert found.network is None


def test_bert():
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    found = read(transformers.BertForSequenceClassification(config), WORDS)
    assert found.network is None
    assert any("attention" in u.why for u in found.unread)
    assert any(u.kind == "Embedding" for u in found.unread)
    heads = [p for p in found.parts if p.path == "classifier"]
    assert heads[0].variances.rule == "normal, standard deviation 0.02"
