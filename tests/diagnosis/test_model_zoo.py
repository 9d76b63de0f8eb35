"""`fg.diagnose` on every kind of model that users bring; small versions."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import firstguess as fg
from firstguess.theory.prediction import WORDS

transformers = pytest.importorskip("transformers")

Made = tuple[nn.Module, Any]


def images(channels: int = 3, size: int = 32, points: int = 24) -> torch.Tensor:
    return torch.randn(points, channels, size, size, generator=torch.Generator().manual_seed(1))


def tokens(vocabulary: int, length: int = 12, points: int = 24) -> torch.Tensor:
    return torch.randint(0, vocabulary, (points, length), generator=torch.Generator().manual_seed(1))


def placed(norm: type[nn.Module], place: str) -> Callable[[], Made]:
    def make() -> Made:
        layers: list[nn.Module] = []
        for i in range(4):
            inner: list[nn.Module] = [nn.ReLU()]
            inner.insert(0 if place == "before" else 1, norm(32))
            layers += [nn.Linear(20 if i == 0 else 32, 32), *inner]
        return nn.Sequential(*layers, nn.Linear(32, 3)), torch.randn(40, 20, generator=torch.Generator().manual_seed(1))

    return make


def cnn_a(phi: type[nn.Module], pool: type[nn.Module]) -> Callable[[], Made]:
    def make() -> Made:
        first: list[nn.Module] = [nn.Conv2d(3, 16, 5, padding=2), phi(), pool(2, 2)]
        second: list[nn.Module] = [nn.Conv2d(16, 64, 5, padding=2), phi(), pool(4, 4)]
        return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(64 * 4 * 4, 2)), images()

    return make


def cnn_b(phi: type[nn.Module], pool: type[nn.Module]) -> Callable[[], Made]:
    def make() -> Made:
        layers: list[nn.Module] = []
        for i in range(5):
            layers += [nn.Conv2d(1 if i == 0 else 16, 16, 9, padding=4), phi(), pool(2, 1)]
        layers += [
            nn.Conv2d(16, 16, 5, padding=2),
            phi(),
            pool(2, 2),
            nn.Conv2d(16, 16, 5, padding=2),
            phi(),
            pool(4, 4),
        ]
        return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(2)), images(1, 16)

    return make


class ResidualBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.dense = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.dense(torch.relu(self.norm(x)))


def residual_mlp() -> Made:
    model = nn.Sequential(nn.Linear(20, 32), *[ResidualBlock(32) for _ in range(4)], nn.Linear(32, 3))
    return model, torch.randn(40, 20, generator=torch.Generator().manual_seed(1))


def resnet(depths: list[int]) -> Callable[[], Made]:
    def make() -> Made:
        config = transformers.ResNetConfig(
            num_channels=3,
            embedding_size=8,
            hidden_sizes=[8, 8, 16, 16],
            depths=depths,
            layer_type="basic",
            num_labels=10,
        )
        return transformers.ResNetForImageClassification(config), images()

    return make


def vit() -> Made:
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=32, patch_size=8,
        num_labels=10,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config), images()


def swin() -> Made:
    config = transformers.SwinConfig(
        image_size=32, patch_size=2, embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=4, num_labels=10
    )
    return transformers.SwinForImageClassification(config), images()


class MixerBlock(nn.Module):
    def __init__(self, patches: int, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(nn.Linear(patches, 2 * patches), nn.GELU(), nn.Linear(2 * patches, patches))
        self.channels = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 8, stride=8)
        self.blocks = nn.Sequential(*[MixerBlock(16, 16) for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(1))


def mixer() -> Made:
    return Mixer(), images()


def bert() -> Made:
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, num_labels=4
    )
    ids = tokens(50)
    return transformers.BertForSequenceClassification(config), {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
    }


def gpt() -> Made:
    config = transformers.GPT2Config(vocab_size=30, n_positions=16, n_embd=16, n_layer=2, n_head=2)
    return transformers.GPT2LMHeadModel(config), {"input_ids": tokens(30)}


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.embed = nn.Linear(8, 16)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.embed(x)).mean(1))


def encoder() -> Made:
    return Encoder(), torch.randn(24, 5, 8, generator=torch.Generator().manual_seed(1))


class Custom(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.randn(32))
        self.first, self.second, self.head = nn.Linear(20, 32), nn.Linear(32, 32), nn.Linear(32, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.first(x)) * self.gain
        if float(h.detach().mean()) > 0:
            h = self.second(h)
        return self.head(h)


def custom() -> Made:
    return Custom(), torch.randn(40, 20, generator=torch.Generator().manual_seed(1))


MODELS: dict[str, Callable[[], Made]] = {
    **{
        f"mlp, {norm.__name__} {place}": placed(norm, place)
        for norm in (nn.BatchNorm1d, nn.LayerNorm, nn.RMSNorm)
        for place in ("before", "after")
    },
    "CNN-A, tanh and average-pool": cnn_a(nn.Tanh, nn.AvgPool2d),
    "CNN-A, ReLU and max-pool": cnn_a(nn.ReLU, nn.MaxPool2d),
    "CNN-B, tanh and average-pool": cnn_b(nn.Tanh, nn.AvgPool2d),
    "CNN-B, ReLU and max-pool": cnn_b(nn.ReLU, nn.MaxPool2d),
    "residual MLP": residual_mlp,
    "ResNet-18": resnet([2, 2, 2, 2]),
    "ResNet-34": resnet([3, 4, 6, 3]),
    "ViT": vit,
    "Swin": swin,
    "MLP-Mixer": mixer,
    "BERT": bert,
    "GPT": gpt,
    "nn.TransformerEncoder": encoder,
    "custom parameter and control flow": custom,
}


@pytest.mark.parametrize("name", MODELS)
def test_every_model_gets_a_page(name: str):
    torch.manual_seed(20261115)  # what is never re-initialized (a custom parameter) stays as it is made here
    model, data = MODELS[name]()
    before = {k: v.clone() for k, v in model.state_dict().items() if not nn.parameter.is_lazy(v)}
    mode, state = model.training, torch.get_rng_state()
    d = fg.diagnose(model, data, inits=6, seconds=60 if name.startswith("ResNet") else 12)
    assert d.verdict.name in (*WORDS, "repeats its input")  # a tied head
    assert d.verdict.low <= d.verdict.gamma <= d.verdict.high
    assert d.measurement is not None
    assert 4 <= d.measurement.inits <= 6
    assert d.causes or d.verdict.name in (
        "even",
        "leaning",
        "repeats its input",
    )  # Swin as Hugging Face draws it adds nothing
    assert d.trainability is not None
    # Few layers have no slope without the first, and uneven ones no one factor.
    assert d.trainability.growth > 0 or any(w in d.trainability.words for w in ("not measured", "no one factor"))
    assert d.expected.prediction is not None or d.expected.why
    assert d.structure is not None
    assert "not finite" not in d.trainability.words
    assert d.structure.complete or d.structure.unread
    assert max(len(line) for line in str(d).splitlines()) <= 100
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training == mode
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items() if k in before)


def test_per_token_guesses_of_a_language_model_count_tokens():
    model, data = gpt()
    d = fg.diagnose(model, data, inits=4, seconds=12)
    assert d.measurement is not None
    assert d.measurement.points == 24 * 12
    assert d.measurement.classes == 30
