"""Stand-ins for the large models of NORM App. G: small ResNets, Swins and Mixers, with their norms before or after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import nn

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

    config: Any = ResNetConfig(
        embedding_size=model.widths[0],
        hidden_sizes=list(model.widths),
        depths=list(model.depths),
        layer_type=model.block,
    )
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
        image_size=32,
        patch_size=4,
        embed_dim=model.widths[0],
        depths=list(model.depths),
        num_heads=[2 * 2**k for k in range(len(model.depths))],
        window_size=2,
        drop_path_rate=0.0,
    )
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
