"""torch's own: nn.MultiheadAttention, nn.TransformerEncoderLayer and nn.TransformerEncoder."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from firstguess.modules.transformers_read.kit import Kit
from firstguess.modules.transformers_read.pieces import Matrix, Own, Piece, residual


def is_causal(mask: Any, *, taken: bool = False) -> bool | None:
    """Whether a mask (T, T) lets a token attend to itself and those before it; None: it is another one.

    As for nn.MultiheadAttention: True, or −∞, is where it may not; `taken`: True is where it may.
    """
    if mask is None:
        return False
    mask = torch.as_tensor(mask)
    mask = mask.reshape(mask.shape[-2:]) if mask.ndim > 2 and mask.numel() == mask[..., :, :].shape[-1] ** 2 else mask
    if mask.ndim != 2 or mask.shape[0] != mask.shape[1]:
        return None
    open_ = (mask if taken else ~mask) if mask.dtype == torch.bool else mask == 0
    if not bool(open_.any()) or (mask.dtype != torch.bool and not bool(torch.isneginf(mask[~open_]).all())):
        return None
    if bool(open_.all()):
        return False
    return True if torch.equal(open_, torch.ones_like(open_).tril()) else None


def multihead(kit: Kit, path: str, *, causal: bool) -> Piece:
    """nn.MultiheadAttention as self-attention."""
    module: Any = kit.model.get_submodule(path)
    if not module.batch_first:
        raise kit.stop(path, "batch_first=False: tokens come first, and a description has points first")
    if module.in_proj_weight is None or module.bias_k is not None or module.add_zero_attn:
        raise kit.stop(path, "keys or values of other widths, or more keys than tokens")
    dot, width = f"{path}." if path else "", module.embed_dim
    bias = None if module.in_proj_bias is None else f"{dot}in_proj_bias"
    three = tuple(
        Matrix(
            path,
            "MultiheadAttention",
            Own(f"{dot}in_proj_weight", rows=(i * width, (i + 1) * width)),
            None if bias is None else Own(bias, rows=(i * width, (i + 1) * width)),
            width,
            width,
        )
        for i in range(3)
    )
    out = module.out_proj
    last = Matrix(
        f"{dot}out_proj",
        type(out).__name__,
        Own(f"{dot}out_proj.weight"),
        None if out.bias is None else Own(f"{dot}out_proj.bias"),
        width,
        width,
    )
    return kit.attention(path, (three[0], three[1], three[2]), last, module.num_heads, causal=causal)


def encoder_layer(kit: Kit, path: str, *, causal: bool) -> list[Piece]:
    """nn.TransformerEncoderLayer, norms in front or behind."""
    module: Any = kit.model.get_submodule(path)
    if type(module).forward is not nn.TransformerEncoderLayer.forward:
        raise kit.stop(path, "an encoder layer with a forward of its own")
    dot = f"{path}." if path else ""
    attention = multihead(kit, f"{dot}self_attn", causal=causal)
    mlp = kit.mlp(f"{dot}linear1", module.activation, f"{dot}linear2", path)
    norms = kit.norm(f"{dot}norm1"), kit.norm(f"{dot}norm2")
    if module.norm_first:
        return [residual([*norms[0], attention]), residual([*norms[1], *mlp])]
    return [residual([attention]), *norms[0], residual(mlp), *norms[1]]


def encoder(kit: Kit, path: str, *, causal: bool) -> list[Piece]:
    """nn.TransformerEncoder: its layers, and the norm at the end if there is one."""
    module: Any = kit.model.get_submodule(path)
    dot = f"{path}." if path else ""
    pieces = [
        piece for i in range(len(module.layers)) for piece in encoder_layer(kit, f"{dot}layers.{i}", causal=causal)
    ]
    return pieces if module.norm is None else [*pieces, *kit.norm(f"{dot}norm")]
