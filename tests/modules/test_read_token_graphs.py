"""Transformers and mixers that are written by hand, read from their graph and compared with the model."""

from __future__ import annotations

import threading

import pytest
import torch
from token_models import BY_HAND, IDS, IMAGES, WIDTH, Encoder, Fused, Multihead, Text, ViT, example_of, hugging_face
from torch import nn

import firstguess as fg
from firstguess.modules.read.tokens import is_causal

pytestmark = pytest.mark.usefixtures("one_thread")
_THIRD = "weight_var=0.3333333333333333"
_MLP = (
    "residual[layernorm(eps=1e-05) > dense({t}, bias_var=0.010416666666666666, width=64) > gelu > dense({t}, bias_var="
)
_MLP = _MLP.format(t=_THIRD)
EXPECTED = {
    "split": f"embed(1, width=32) > positions(1) > 2 x [residual[layernorm(eps=1e-05) > attention(4, causal, {_THIRD}, "
    f"bias_var=0.010416666666666666)] > {_MLP}",
    "written out": f"> attention(4, causal, {_THIRD}, bias_var=0.010416666666666666)]",
    "multihead, post-norm": f"2 x [residual[attention(4, weight_var=0.5, out_{_THIRD.removeprefix('weight_')})] > "
    "layernorm(eps=1e-05) > residual[dense(",
    "multihead, causal": "attention(4, causal, weight_var=0.5, out_var=0.3333333333333333)",
    "swiglu, log-softmax": f"attention(4, {_THIRD})] > residual[layernorm(eps=1e-05) > dense({_THIRD}, width=96) > "
    f"gated(silu) > dense({_THIRD}, width=32)]]",
    "halves": "> gated(gelu) >",
    "encoder, pre-norm": "> gelu > dense(weight_var=0.3333333333333333, bias_var=0.005208333333333333)]] > "
    "layernorm(eps=1e-05) > pool_tokens(mean)",
    "encoder, post-norm": "embed(1, width=32) > scale(5.656854249492381) > 2 x [residual[attention(4, weight_var=0.5, "
    "out_var=0.3333333333333333)] > layernorm(eps=1e-05) > residual[",
    "vit, unbind": "> pool_tokens(cls) >",
    "vit, index": "attention(4, weight_var=0.3333333333333333, bias_var=0.010416666666666666)",
    "mixer": "residual[layernorm(eps=1e-05) > tokenmix(24, weight_var=0.3333333333333333, "
    "bias_var=0.020833333333333332, out_bias_var=0.013888888888888888)]",
}


@pytest.mark.parametrize("name", BY_HAND)
def test_models_by_hand(name):
    found = fg.read(BY_HAND[name](), example_of(name))
    assert found.complete, str(found)
    assert EXPECTED[name] in str(found.network)
    assert found.network.classes == 5
    assert any("same weights" in note for note in found.notes)


def test_parts_are_named_by_path():
    parts = {part.path: part for part in fg.read(BY_HAND["split"](), IDS).parts}
    assert parts["blocks.1.attention"].layer.startswith("attention(4, causal")
    assert parts["blocks.1.attention.qkv"].layer == "queries, keys and values of attention"
    assert parts["blocks.1.attention.proj"].variances.rule == "PyTorch's default"


def test_a_hugging_face_trunk_inside_of_a_model_of_ones_own():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = hugging_face("Bert").config

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk = transformers.BertModel(config, add_pooling_layer=False)
            self.head = nn.Linear(WIDTH, 3)

        def forward(self, ids):
            return self.head(self.trunk(ids).last_hidden_state.mean(dim=1))

    found = fg.read(Own(), IDS)
    assert found.complete, str(found)
    assert str(found.network).startswith("embed(0.02, width=32, types=0.02) > positions(0.02) > 2 x [layernorm(")
    assert "> pool_tokens(mean) > dense(" in str(found.network)
    assert found.network.classes == 3


class Plain(nn.Module):
    """Tokens through a few layers, their mean, a head."""

    def __init__(self, *layers, head=None):
        super().__init__()
        self.tokens, self.layers = nn.Embedding(50, WIDTH), nn.Sequential(*layers)
        self.head = nn.Linear(WIDTH, 3) if head is None else head

    def forward(self, ids):
        return self.head(self.layers(self.tokens(ids)).mean(dim=1))


class Scaled(nn.LayerNorm):
    def reset_parameters(self):
        nn.init.constant_(self.weight, 2.0)
        nn.init.constant_(self.bias, 0.5)


_HEAD = " > pool_tokens(mean) > dense(weight_var=0.3333333333333333, bias_var=0.010416666666666666)"


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (Plain(Scaled(WIDTH)), "layernorm(eps=1e-05) > scale(2) > shift(0.5)"),
        (Plain(nn.PReLU(), nn.Dropout(0.1)), "prelu(slope=0.25)"),
        (Plain(nn.RMSNorm(WIDTH, eps=1e-3)), "rmsnorm(eps=0.001)"),
        (Plain(nn.ReLU(), head=nn.Sequential(nn.Linear(WIDTH, 3), nn.Softmax(-1))), "relu"),
    ],
    ids=["constants of a norm", "prelu", "rmsnorm", "softmax at the end"],
)
def test_modules_on_tokens_are_what_they_are_on_vectors(model, text):
    found = fg.read(model, IDS)
    assert str(found.network) == f"embed(1, width=32) > {text}{_HEAD}", str(found)
    assert any("same weights" in note for note in found.notes)


def test_inputs_may_be_brought_to_the_type_of_a_weight_first():
    class Typed(ViT):
        def forward(self, x):
            return super().forward(x.to(dtype=self.patch.weight.dtype))

    assert str(fg.read(Typed(), IMAGES).network).startswith("patches(4, "), str(fg.read(Typed(), IMAGES))


def test_a_module_that_is_only_called_attention_is_looked_into():
    class GateAttention(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(6, 8)

        def forward(self, x):
            return torch.relu(self.inner(x))

    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    found = fg.read(nn.Sequential(GateAttention(), nn.Linear(8, 3)), x)
    assert [layer.kind for layer in found.network.layers] == ["dense", "activation", "dense"], str(found)
    assert "same weights" not in str(found.notes)  # vectors are not compared


# What is not read


def window(tokens):
    far = torch.ones(tokens, tokens).tril() - torch.ones(tokens, tokens).tril(-3)
    return torch.zeros(tokens, tokens).masked_fill(far == 0, float("-inf"))


class Cross(Text):
    def forward(self, ids):
        x = self.tokens(ids)
        return self.head(self.blocks[0].attention.inner(x, self.norm(x), x)[0][:, 0])


class Padded(Encoder):
    def forward(self, ids):
        return self.head(self.encoder(self.tokens(ids), src_key_padding_mask=ids == 0)[:, 0])


class Parallel(Text):
    def forward(self, ids):
        x = self.tokens(ids)
        block = self.blocks[0]
        return self.head((x + block.attention(x) + block.mlp(x))[:, 0])


class Twice(Text):
    def forward(self, ids):
        x = self.tokens(ids)
        for _ in range(2):
            x = self.blocks[0](x)
        return self.head(self.norm(x)[:, 0])


class Third(Text):
    def forward(self, ids):
        return self.head(self.blocks[0](self.tokens(ids))[:, 3])


class Wide(Fused):
    """Logits that are divided by twice the root of a head's size."""

    def forward(self, x):
        n, tokens, width = x.shape
        q, k, v = (p.view(n, tokens, 4, -1).transpose(1, 2) for p in self.qkv(x).split(width, dim=2))
        weights = (q @ k.transpose(-2, -1) * (0.5 / 8**0.5)).softmax(dim=-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(n, tokens, width))


class Sum(nn.Module):
    """Learned positions that are added backwards."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(50, WIDTH), nn.Embedding(10, WIDTH)
        self.inner, self.head = Multihead(), nn.Linear(WIDTH, 3)

    def forward(self, ids):
        places = torch.arange(ids.shape[1]).flip(0)
        return self.head(self.inner(self.tokens(ids) + self.places(places))[:, 0])


class Locked(Plain):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()  # which Python does not copy


@pytest.mark.parametrize(
    ("model", "path", "word"),
    [
        (Encoder(True, mask=window(10)), "encoder", "not causal"),
        (Padded(True), "", "a padding mask by hand"),
        (Cross(Multihead, positions=None), "blocks.0.attention.inner", "different signals"),
        (Parallel(Multihead, positions=None), "", "neither is the input"),
        (Twice(Fused, positions=None), "", "more than once"),
        (Third(Fused, positions=None), "", "neither the first nor the last"),
        (Text(Wide, positions=None), "", "other outputs"),
        (Sum(), "places", "not row by row"),
        (Locked(), "", "cannot be copied"),
        (Plain(nn.Conv1d(10, 10, 1)), "layers.0", "two-dimensional convolutions only"),
        (Plain(head=nn.Sequential(nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, 3))), "head.0", "of tokens"),
    ],
    ids=[
        "window", "padding", "cross", "parallel", "twice", "third token", "other scale", "backwards", "lock",
        "convolution", "batchnorm",
    ],
)  # fmt: skip
def test_what_is_not_read_is_named_by_path(model, path, word):
    found = fg.read(model, IDS)
    assert found.network is None
    assert [u.path for u in found.unread] == [path], str(found)
    assert word in found.unread[0].why


def test_masks():
    square = torch.ones(4, 4, dtype=torch.bool)
    assert is_causal(None) is False
    assert is_causal(square, taken=True) is False
    assert is_causal(square.tril(), taken=True) is True
    assert is_causal(square.triu(1)) is True
    assert is_causal(square.tril()) is None
    assert is_causal(nn.Transformer.generate_square_subsequent_mask(4)) is True
    assert is_causal(torch.zeros(1, 1, 4, 4)) is False
    assert is_causal(window(5)) is None
    assert is_causal(torch.eye(4)) is None  # logits that are shifted, not masked
    assert is_causal(square) is None  # a token that attends to none


def test_the_model_is_left_as_it_was():
    model = BY_HAND["multihead, post-norm"]().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.random.get_rng_state()
    assert fg.read(model, IDS).complete
    assert torch.equal(state, torch.random.get_rng_state())
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
