"""The image networks of IGB, as PyTorch modules: CNN-A, CNN-B, ResNet34 and a vision transformer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["tanh + average-pool", "ReLU + max-pool"]
KINDS: tuple[Kind, Kind] = ("tanh + average-pool", "ReLU + max-pool")


@dataclass(frozen=True)
class Block:
    """A convolution (same size), the activation, a pool."""

    channels: int
    kernel: int
    pool: int
    stride: int


CNN_A = (Block(16, 5, 2, 2), Block(64, 5, 4, 4))


def cnn_b(channels: int = 16, kernel: int = 9) -> tuple[Block, ...]:
    """Five blocks that keep the size, two that shrink it. Channels, kernel and last pool are ours."""
    return (*[Block(channels, kernel, 2, 1)] * 5, Block(channels, 5, 2, 2), Block(channels, 5, 4, 4))


def cnn(blocks: tuple[Block, ...], kind: Kind, shape: tuple[int, ...], classes: int) -> Callable[[], Any]:
    """A factory of such a network for images of `shape` (channels, height, width)."""
    from torch import nn

    relu = kind.startswith("ReLU")

    def make() -> Any:
        layers: list[Any] = []
        into, side = shape[0], shape[1]
        for block in blocks:
            layers.append(nn.Conv2d(into, block.channels, block.kernel, padding=block.kernel // 2))
            layers.append(nn.ReLU() if relu else nn.Tanh())
            layers.append((nn.MaxPool2d if relu else nn.AvgPool2d)(block.pool, block.stride))
            into, side = block.channels, (side - block.pool) // block.stride + 1
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(into * side * side, classes))

    return make


def resnet(depths: tuple[int, ...], widths: tuple[int, ...], classes: int) -> Callable[[], Any]:
    """A ResNet with basic blocks from its Hugging Face configuration; (3, 4, 6, 3) and (64, …, 512) are ResNet34."""
    import transformers

    settings: Any = transformers.ResNetConfig  # its arguments are not all in its signature

    def make() -> Any:
        config = settings(
            embedding_size=widths[0], hidden_sizes=list(widths), depths=list(depths), layer_type="basic",
            num_labels=classes,
        )  # fmt: skip
        return transformers.ResNetForImageClassification(config)

    return make


def vit(width: int, blocks: int, classes: int) -> Callable[[], Any]:
    """A vision transformer for 32 × 32 images: patches of 4, heads of 64, GELU; from its Hugging Face configuration."""
    import transformers

    settings: Any = transformers.ViTConfig

    def make() -> Any:
        config = settings(
            hidden_size=width, num_hidden_layers=blocks, num_attention_heads=width // 64, intermediate_size=4 * width,
            image_size=32, patch_size=4, num_labels=classes,
        )  # fmt: skip
        return transformers.ViTForImageClassification(config)

    return make
