"""Image networks: IGB's CNNs, ResNets and vision transformers, NORM's stand-ins, ResNet101 and Swin-L at true size.

Before training a norm has no parameters that matter (scale 1, shift 0). So a network of true size is its weights, and
the place of the norms an argument of the pass: all places of one network see the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor, nn

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


Place = Literal["before", "after", "after, also behind the sums"]


@dataclass(frozen=True)
class Model:
    """A kind of model at one size; `name` has all of its sizes, so that it can be a piece's key."""

    kind: Literal["ResNet", "Swin", "Mixer"]
    label: str
    widths: tuple[int, ...]
    depths: tuple[int, ...]
    classes: int
    block: Literal["bottleneck", "basic"] = "bottleneck"
    patch: int = 4  # of a Mixer, on images of 32 × 32

    def name(self, place: Place) -> str:
        """For the store of pieces."""
        sizes = f"widths {self.widths}, blocks {self.depths}, {self.classes} classes"
        patches = "" if self.patch == 4 else f", patches of {self.patch}"
        return f"{self.kind} ({self.block}), {sizes}, norm {place}{patches}"

    def factory(self, place: Place = "before") -> Callable[[], nn.Module]:
        """A function that draws one; weights do not depend on the place of the norm."""
        make = {"ResNet": _resnet, "Swin": _swin, "Mixer": _mixer}[self.kind]
        return lambda: make(self, place)


def _resnet(model: Model, place: Place) -> Any:
    """ResNet of transformers. After: conv → ReLU → BatchNorm wherever it was conv → BatchNorm → ReLU.

    "also behind the sums": the norms of a block's last convolution and of its shortcut are taken out, and one is put
    after the ReLU that follows their sum.
    """
    from torch import nn
    from transformers import ResNetConfig, ResNetForImageClassification

    widths, depths = list(model.widths), list(model.depths)
    config: Any = ResNetConfig(embedding_size=widths[0], hidden_sizes=widths, depths=depths, layer_type=model.block)
    config.num_labels = model.classes
    net: Any = ResNetForImageClassification(config)
    if place == "before":
        return net
    for module in list(net.modules()):
        kind = type(module).__name__
        if kind == "ResNetConvLayer" and not isinstance(module.activation, nn.Identity):
            module.normalization, module.activation = module.activation, module.normalization
        elif place != "after" and kind in ("ResNetBasicLayer", "ResNetBottleNeckLayer"):
            last = module.layer[-1]
            norm, last.normalization = last.normalization, nn.Identity()
            if not isinstance(module.shortcut, nn.Identity):
                module.shortcut.normalization = nn.Identity()
            module.activation = nn.Sequential(module.activation, norm)
    return net


def _swin(model: Model, place: Place) -> Any:
    """Swin of transformers, patches of 4 on 32 × 32. After: the LayerNorm before an MLP goes after its GELU."""
    from torch import nn
    from transformers import SwinConfig, SwinForImageClassification

    config: Any = SwinConfig(
        image_size=32, patch_size=4, embed_dim=model.widths[0], depths=list(model.depths), window_size=2,
        num_heads=[2 * 2**k for k in range(len(model.depths))], drop_path_rate=0.0,
    )  # fmt: skip
    config.num_labels = model.classes
    net: Any = SwinForImageClassification(config)
    if place == "before":
        return net
    for module in list(net.modules()):
        if type(module).__name__ == "SwinLayer":
            module.layernorm_after = nn.Identity()
            hidden: int = module.mlp.fc1.out_features
            module.mlp.activation_fn = nn.Sequential(module.mlp.activation_fn, nn.LayerNorm(hidden))
    return net


def _mixer(model: Model, place: Place) -> Any:
    """MLP-Mixer. LayerNorm before every MLP, or after its GELU."""
    import torch
    from torch import nn

    width = model.widths[0]

    def mlp(size: int) -> nn.Sequential:
        inside = 4 * size
        back = [nn.LayerNorm(inside)] if place != "before" else []
        return nn.Sequential(nn.Linear(size, inside), nn.GELU(), *back, nn.Linear(inside, size))

    class Block(nn.Module):
        def __init__(self, tokens: int) -> None:
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(width) if place == "before" else nn.Identity() for _ in range(2)])
            self.tokens, self.channels = mlp(tokens), mlp(width)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x + self.tokens(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
            return x + self.channels(self.norms[1](x))

    class Mixer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, width, model.patch, stride=model.patch)
            self.blocks = nn.Sequential(*[Block((32 // model.patch) ** 2) for _ in range(model.depths[0])])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, model.classes)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found = self.blocks(self.patches(x).flatten(2).transpose(1, 2))
            return self.head(self.norm(found).mean(dim=1))

    return Mixer()


Init: TypeAlias = Literal["Kaiming", "the library's own"]
_BN_EPS, _LN_EPS = 1e-5, 1e-5


@dataclass(frozen=True)
class ResNet:
    """A bottleneck ResNet; by default ResNet101."""

    depths: tuple[int, ...] = (3, 4, 23, 3)
    widths: tuple[int, ...] = (256, 512, 1024, 2048)
    stem: int = 64
    classes: int = 200
    whole_batch: ClassVar[bool] = True  # BatchNorm

    def draw(self, init: Init, seed: int) -> list[Tensor]:
        """Weights in the order of the pass: stem, by block three convolutions and a shortcut's, head and its bias."""
        normal = _drawing(seed)
        library = init != "Kaiming"

        def conv(out: int, into: int, kernel: int) -> Tensor:
            fan = (out if library else into) * kernel**2  # torchvision's own is Kaiming by fan-out
            return normal((out, into, kernel, kernel), (2 / fan) ** 0.5)

        weights = [conv(self.stem, 3, 7)]
        into = self.stem
        for stage, (width, depth) in enumerate(zip(self.widths, self.depths, strict=True)):
            for index in range(depth):
                inside = width // 4
                weights += [conv(inside, into, 1), conv(inside, inside, 3), conv(width, inside, 1)]
                weights += [conv(width, into, 1)] if self._shortcut(stage, index) else []
                into = width
        deviation = (1 / (3 * into)) ** 0.5 if library else (2 / into) ** 0.5
        bias = normal((self.classes,), deviation if library else 0.0)
        return [*weights, normal((self.classes, into), deviation), bias]

    def logits(self, x: Tensor, weights: list[Tensor], place: Place) -> Tensor:
        """One batch, BatchNorm by its own statistics."""
        import torch.nn.functional as F

        def norm(y: Tensor) -> Tensor:
            return F.batch_norm(y, None, None, training=True, eps=_BN_EPS)

        def unit(y: Tensor, w: Tensor, stride: int = 1) -> Tensor:
            y = F.conv2d(y, w, stride=stride, padding=w.shape[-1] // 2)
            return F.relu(norm(y)) if place == "before" else norm(F.relu(y))

        following = iter(weights)
        x = F.max_pool2d(unit(x, next(following), 2), 3, stride=2, padding=1)
        for stage, depth in enumerate(self.depths):
            for index in range(depth):
                stride = 2 if stage and index == 0 else 1
                y = unit(unit(x, next(following)), next(following), stride)
                y = F.conv2d(y, next(following))
                if through := self._shortcut(stage, index):
                    x = F.conv2d(x, next(following), stride=stride)
                if place == "after, also behind the sums":
                    x = norm(F.relu(y + x))
                else:
                    x = F.relu(norm(y) + (norm(x) if through else x))
        return F.linear(x.mean(dim=(2, 3)), next(following), next(following))

    def _shortcut(self, stage: int, index: int) -> bool:
        """Whether a block's shortcut has a convolution: where sizes change."""
        return index == 0 and (stage > 0 or self.stem != self.widths[0])


@dataclass(frozen=True)
class Swin:
    """A Swin transformer with patches of 4; by default Swin-L. Maps that windows do not divide are padded with 0."""

    depths: tuple[int, ...] = (2, 2, 18, 2)
    width: int = 192
    heads: tuple[int, ...] = (6, 12, 24, 48)
    window: int = 7
    side: int = 64
    classes: int = 200
    whole_batch: ClassVar[bool] = False

    def draw(self, init: Init, seed: int) -> list[Tensor]:
        """Patches; by block the table of positions, query-key-value, projection, both of the MLP; mergings; head."""
        normal = _drawing(seed)

        def dense(out: int, into: int) -> Tensor:
            return normal((out, into), 0.02 if init != "Kaiming" else (2 / into) ** 0.5)

        weights = [dense(self.width, 48).reshape(self.width, 3, 4, 4)]
        for stage, depth in enumerate(self.depths):
            width = self.width * 2**stage
            window, _ = self._windows(stage, 0)
            for _ in range(depth):
                table = normal(((2 * window - 1) ** 2, self.heads[stage]), 0.02)
                weights += [table, dense(3 * width, width), dense(width, width)]
                weights += [dense(4 * width, width), dense(width, 4 * width)]
            if stage + 1 < len(self.depths):
                weights.append(dense(2 * width, 4 * width))
        return [*weights, dense(self.classes, self.width * 2 ** (len(self.depths) - 1))]

    def logits(self, x: Tensor, weights: list[Tensor], place: Place) -> Tensor:
        """After: the LayerNorm before each MLP goes after its GELU; the one before attention stays."""
        import torch
        import torch.nn.functional as F

        def norm(y: Tensor) -> Tensor:
            return F.layer_norm(y, y.shape[-1:], eps=_LN_EPS)

        following = iter(weights)
        x = norm(F.conv2d(x, next(following), stride=4).permute(0, 2, 3, 1))
        for stage, depth in enumerate(self.depths):
            for index in range(depth):
                window, shift = self._windows(stage, index)
                x = x + _attention(norm(x), following, self.heads[stage], window, shift)
                if place == "before":
                    inside = F.gelu(F.linear(norm(x), next(following)))
                else:
                    inside = norm(F.gelu(F.linear(x, next(following))))
                x = x + F.linear(inside, next(following))
            if stage + 1 < len(self.depths):
                corners = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
                x = F.linear(norm(torch.cat(corners, dim=-1)), next(following))
        return F.linear(norm(x).mean(dim=(1, 2)), next(following))

    def _windows(self, stage: int, index: int) -> tuple[int, int]:
        """Side of the windows and their shift: a map no larger than a window is one window, unshifted."""
        side = self.side // 4 // 2**stage
        return (side, 0) if side <= self.window else (self.window, self.window // 2 * (index % 2))


def _attention(x: Tensor, following: Iterator[Tensor], heads: int, window: int, shift: int) -> Tensor:
    """Attention inside (shifted) windows with a learned bias by relative position."""
    import torch.nn.functional as F

    table, qkv, out = next(following), next(following), next(following)
    n, side, _, width = x.shape
    padded = -(-side // window) * window
    x = F.pad(x, (0, 0, 0, padded - side, 0, padded - side))
    x = x.roll((-shift, -shift), (1, 2)) if shift else x
    per, size = padded // window, window * window
    cut = x.reshape(n, per, window, per, window, width).transpose(2, 3).reshape(-1, size, width)
    q, k, v = F.linear(cut, qkv).reshape(-1, size, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
    bias = table[_positions(window)].permute(2, 0, 1)
    if shift:
        apart = _apart(padded, window, shift)  # (windows, size, size)
        bias = (bias[None] + apart[:, None]).repeat(n, 1, 1, 1)
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).reshape(-1, size, width)
    y = F.linear(mixed, out).reshape(n, per, per, window, window, width).transpose(2, 3)
    y = y.reshape(n, padded, padded, width)
    y = y.roll((shift, shift), (1, 2)) if shift else y
    return y[:, :side, :side]


@cache
def _positions(window: int) -> Tensor:
    """For each pair of places in a window the row of its table."""
    import torch

    at = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
    difference = at[:, :, None] - at[:, None, :] + window - 1
    return difference[0] * (2 * window - 1) + difference[1]


@cache
def _apart(side: int, window: int, shift: int) -> Tensor:
    """−100 between places of a shifted window that were not neighbours before the shift."""
    import torch

    part = torch.zeros(side)
    part[side - window : side - shift] = 1
    part[side - shift :] = 2
    label = (3 * part[:, None] + part[None, :]).reshape(side // window, window, side // window, window)
    label = label.transpose(1, 2).reshape(-1, window * window)
    return torch.where(label[:, :, None] == label[:, None, :], 0.0, -100.0)


def _drawing(seed: int) -> Callable[[tuple[int, ...], float], Tensor]:
    import torch

    generator = torch.Generator().manual_seed(seed)
    return lambda shape, deviation: torch.empty(shape).normal_(generator=generator).mul_(deviation)
