"""Transformers and mixers written by hand, and Hugging Face's from tiny configurations, for tests of reading."""

from __future__ import annotations

import math
import warnings

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, HEADS, VOCABULARY, CLASSES = 32, 4, 50, 5
IDS = torch.randint(2, 49, (4, 10), generator=torch.Generator().manual_seed(0))
IMAGES = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))


class Fused(nn.Module):
    """Queries, keys and values from one layer; `how` they are cut, and how attention is written."""

    def __init__(self, how="split", causal=True):
        super().__init__()
        self.qkv, self.proj, self.drop = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), nn.Dropout(0.1)
        self.how, self.causal = how, causal
        self.register_buffer("mask", torch.tril(torch.ones(64, 64)).view(1, 1, 64, 64))

    def forward(self, x):
        n, tokens, width = x.size()
        if self.how == "unbind":
            q, k, v = self.qkv(x).reshape(n, tokens, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4).unbind(0)
        elif self.how == "index":
            qkv = self.qkv(x).reshape(n, tokens, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
            q, k, v = qkv[0], qkv[1], qkv[2]
        else:
            parts = self.qkv(x).split(width, dim=2)
            q, k, v = (part.view(n, tokens, HEADS, width // HEADS).transpose(1, 2) for part in parts)
        if self.how == "written out":
            a = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            a = a.masked_fill(self.mask[:, :, :tokens, :tokens] == 0, float("-inf"))
            mixed = self.drop(F.softmax(a, dim=-1)) @ v
        else:
            dropped = 0.1 if self.training else 0.0
            mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=dropped, is_causal=self.causal)
        return self.drop(self.proj(mixed.transpose(1, 2).contiguous().view(n, tokens, width)))


class Apart(nn.Module):
    """Queries, keys and values from three layers without biases."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x):
        n, tokens, width = x.shape
        q, k, v = (f(x).view(n, tokens, HEADS, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        return self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, tokens, width))


class Multihead(nn.Module):
    def __init__(self, causal=False):
        super().__init__()
        self.inner, self.causal = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True), causal

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1)) if self.causal else None
        return self.inner(x, x, x, attn_mask=mask, need_weights=False)[0]


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class SwiGLU(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up = nn.Linear(WIDTH, 48, bias=False), nn.Linear(WIDTH, 48, bias=False)
        self.down = nn.Linear(48, WIDTH, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Halves(nn.Module):
    """A gate from two halves of one layer, the second of which is bent."""

    def __init__(self):
        super().__init__()
        self.both, self.down = nn.Linear(WIDTH, 96), nn.Linear(48, WIDTH)

    def forward(self, x):
        up, gate = self.both(x).chunk(2, dim=-1)
        return self.down(up * F.gelu(gate))


class Block(nn.Module):
    def __init__(self, attention, mlp, pre=True):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.mlp, self.pre = attention, mlp, pre

    def forward(self, x):
        if self.pre:
            x = x + self.attention(self.norm1(x))
            return x + self.mlp(self.norm2(x))
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.mlp(x))


class Text(nn.Module):
    """Embedding, positions, two blocks, a norm, one vector, a head."""

    def __init__(self, attention, mlp=MLP, *, pre=True, pool="last", positions="table", end=None):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.kind, self.pool, self.end = positions, pool, end
        if positions == "table":
            self.places = nn.Embedding(64, WIDTH)
        elif positions == "parameter":
            self.places = nn.Parameter(torch.empty(1, 64, WIDTH).normal_(std=0.02))
        self.blocks = nn.ModuleList([Block(attention(), mlp(), pre) for _ in range(2)])
        self.drop, self.norm, self.head = nn.Dropout(0.1), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, ids):
        _, tokens = ids.shape
        x = self.tokens(ids)
        if self.kind == "table":
            x = x + self.places(torch.arange(tokens, device=ids.device))
        elif self.kind == "parameter":
            x = x + self.places[:, :tokens]
        x = self.drop(x)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        x = x.mean(dim=1) if self.pool == "mean" else x[:, 0 if self.pool == "cls" else -1]
        x = self.head(x)
        return x if self.end is None else self.end(x, dim=-1)


class Encoder(nn.Module):
    """torch's own encoder behind scaled embeddings."""

    def __init__(self, pre, activation="relu", mask=None):
        super().__init__()
        self.tokens, self.head, self.mask = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, CLASSES), mask
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 64, batch_first=True, norm_first=pre, activation=activation)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(WIDTH) if pre else None, enable_nested_tensor=False)

    def forward(self, ids):
        x = self.tokens(ids) * math.sqrt(WIDTH)
        return self.head(self.encoder(x, mask=self.mask).mean(1))


class ViT(nn.Module):
    def __init__(self, how="unbind"):
        super().__init__()
        self.patch = nn.Conv2d(3, WIDTH, 4, 4)
        self.cls = nn.Parameter(torch.empty(1, 1, WIDTH).normal_(std=0.02))
        self.places = nn.Parameter(torch.empty(1, 17, WIDTH).normal_(std=0.02))
        self.blocks = nn.Sequential(*[Block(Fused(how, causal=False), MLP()) for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], dim=1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


class MixerBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2, self.mlp, self.act = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), MLP(), nn.GELU()
        self.over1, self.over2 = nn.Linear(16, 24), nn.Linear(24, 16)

    def forward(self, x):
        x = x + self.over2(self.act(self.over1(self.norm1(x).transpose(1, 2)))).transpose(1, 2)
        return x + self.mlp(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch, self.blocks = nn.Conv2d(3, WIDTH, 4, 4), nn.Sequential(MixerBlock(), MixerBlock())
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(dim=1))


BY_HAND = {
    "split": lambda: Text(Fused),
    "written out": lambda: Text(lambda: Fused("written out"), pool="mean"),
    "multihead, post-norm": lambda: Text(Multihead, pre=False, positions="parameter", pool="cls"),
    "multihead, causal": lambda: Text(lambda: Multihead(causal=True), positions=None),
    "swiglu, log-softmax": lambda: Text(Apart, SwiGLU, positions=None, end=F.log_softmax),
    "halves": lambda: Text(Apart, Halves, positions=None),
    "encoder, pre-norm": lambda: Encoder(True, "gelu"),
    "encoder, post-norm": lambda: Encoder(False),
    "vit, unbind": ViT,
    "vit, index": lambda: ViT("index"),
    "mixer": Mixer,
}


def example_of(name):
    return IMAGES if name.startswith(("vit", "mixer", "ViT", "DeiT")) else IDS


def hugging_face(name, width=WIDTH, depth=2, **more):
    """A model with a head by the start of its class's name."""
    import transformers

    sizes = {"hidden_size": width, "num_hidden_layers": depth, "num_attention_heads": HEADS, "intermediate_size": 80}
    sizes |= {"vocab_size": VOCABULARY, "num_labels": CLASSES}
    if name == "GPT2":
        own = {"n_embd": width, "n_layer": depth, "n_head": HEADS, "n_positions": 64, "pad_token_id": 49}
        sizes = {"vocab_size": VOCABULARY, "num_labels": CLASSES, "bos_token_id": 0, "eos_token_id": 0} | own
    elif name == "DistilBert":
        own = {"dim": width, "n_layers": depth, "n_heads": HEADS, "hidden_dim": 80, "max_position_embeddings": 64}
        sizes = {"vocab_size": VOCABULARY, "num_labels": CLASSES} | own
    elif name in ("Llama", "Mistral"):
        sizes |= {"pad_token_id": 49} | ({"num_key_value_heads": 2} if name == "Mistral" else {})
    elif name in ("ViT", "DeiT"):
        sizes |= {"image_size": 16, "patch_size": 4}
        del sizes["vocab_size"]
    else:
        sizes["max_position_embeddings"] = 66
    what = "ForImageClassification" if name in ("ViT", "DeiT") else "ForSequenceClassification"
    config = getattr(transformers, f"{name}Config")(**(sizes | more))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(transformers, f"{name}{what}")(config)


FAMILIES = ("GPT2", "Llama", "Mistral", "Bert", "Roberta", "DistilBert", "ViT", "DeiT")
