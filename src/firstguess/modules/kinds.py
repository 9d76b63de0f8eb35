"""What each module of torch is in a description: its layers, or why a description cannot say it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn

from firstguess.modules.initializers import BATCH_NORMS, CONVOLUTIONS, is_lookup
from firstguess.modules.structure import Variances
from firstguess.network.activations.record import Activation
from firstguess.network.activations.tensors import by_module
from firstguess.network.layers import (
    Activate,
    AvgPool,
    BatchNorm,
    GroupNorm,
    Layer,
    LayerNorm,
    MaxPool,
    RMSNorm,
    Scale,
    Shift,
)

FLAT, IMAGE = 2, 4  # axes of a batch

# Not what they are: nothing at initialization, in evaluation or with dropout off.
_NOTHING = (
    nn.Identity,
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)
_ENDS = (nn.Softmax, nn.LogSoftmax, nn.Softmax2d)
_POOLS = (nn.MaxPool2d, nn.AvgPool2d, nn.MaxPool1d, nn.AvgPool1d)
_GLOBAL_POOLS = (nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d)
_SHAPES = (nn.Flatten,)
_WEIGHTED = (nn.Linear, nn.Conv2d)
_NORMS = (*BATCH_NORMS[:2], nn.LayerNorm, nn.RMSNorm, nn.GroupNorm)
_OTHERS = (nn.PReLU, *_ENDS, *_POOLS, *_GLOBAL_POOLS, *_SHAPES, *_WEIGHTED, *_NORMS)


@dataclass(frozen=True)
class Meaning:
    """What a module or function is in a description; `why` (not empty): it is not, and the reason."""

    layers: tuple[Layer, ...] = ()
    axes: int | None = None  # of the batch after it; None: as before
    notes: tuple[str, ...] = ()
    why: str = ""
    variances: Variances | None = None
    zero: bool = False  # its output is 0 on all inputs at initialization
    last: str = ""  # what it is at the end of a network, where the guess does not depend on it; else `why` counts


@dataclass(frozen=True)
class Place:
    """Where a module stands: axes of the batch that it gets, and its whole shape where an example was run."""

    axes: int | None = None
    shape: tuple[int, ...] | None = None


def activate(phi: Activation | str) -> Meaning:
    return Meaning(why=phi) if isinstance(phi, str) else Meaning((Activate(phi),))


def _known() -> tuple[type[nn.Module], ...]:
    return *_NOTHING, *by_module(), *_OTHERS


def known_class(module: nn.Module) -> type[nn.Module] | None:
    """The class of torch whose forward the module runs, if the reading knows it; not one with its own forward."""
    forward = type(module).forward
    if "forward" in vars(module):
        return None
    return next((kind for kind in _known() if isinstance(module, kind) and forward is kind.forward), None)


def is_rms_norm(module: nn.Module) -> bool:
    """A class of its own that is called …RMSNorm; whether it is one is tried out before it is believed."""
    # Not by module.weight: while a graph is traced, that is a proxy, and asking for it is part of the graph.
    return type(module).__name__.endswith("RMSNorm") and "weight" in dict(module.named_parameters(recurse=False))


def is_attention(module: nn.Module) -> bool:
    return "attention" in type(module).__name__.lower() or isinstance(
        module, (nn.MultiheadAttention, nn.Transformer, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
    )


def is_whole(module: nn.Module) -> bool:
    """Whether a module is looked at as one, not into."""
    return known_class(module) is not None or is_rms_norm(module) or is_attention(module)


def refusal(module: nn.Module) -> str:
    """Why a module that is none of the known ones has no description."""
    if is_attention(module):
        return "attention has no closed form here"
    if isinstance(module, (nn.RNNBase, nn.RNNCellBase)):
        return "recurrence has no closed form here: its weights are used again at every step"
    if is_lookup(module):
        return "looked-up tokens are not the inputs that the theory is for"
    if isinstance(module, CONVOLUTIONS):
        return "a description has two-dimensional convolutions only, and no transposed ones"
    if isinstance(module, (*BATCH_NORMS, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)):
        return "a description has BatchNorm (1d, 2d), LayerNorm, RMSNorm and GroupNorm only"
    base = next((kind.__name__ for kind in _known() if isinstance(module, kind)), None)
    if base is not None:
        return f"a {base} with a forward of its own"
    return "a description has no such layer"


def plain_module(module: nn.Module, kind: type[nn.Module], place: Place) -> Meaning:
    """The meaning of a known module without random weights; norms are without their parameters here."""
    m = cast(Any, module)
    if issubclass(kind, _NOTHING):
        return Meaning(notes=() if kind is nn.Identity else ("dropout is off at initialization, and left out",))
    if (spelling := by_module().get(kind)) is not None:
        return activate(spelling.meaning(lambda _, key, default: getattr(m, key, default)))
    if issubclass(kind, _ENDS):
        text = "softmax does not change which class is guessed, and is left out at the end"
        return Meaning(why="a softmax within the network has no closed form here", last=text)
    if issubclass(kind, nn.Flatten):
        whole = m.start_dim == 1 and m.end_dim == -1
        return Meaning(axes=FLAT) if whole else Meaning(why="flattens some axes only")
    if issubclass(kind, _POOLS):
        return _pool(m, kind, place)
    if issubclass(kind, _GLOBAL_POOLS):
        return global_pool(m.output_size, place, largest=issubclass(kind, nn.AdaptiveMaxPool2d))
    return _norm(m, kind, place)


def _norm(m: Any, kind: type[nn.Module], place: Place) -> Meaning:
    if issubclass(kind, BATCH_NORMS):
        needed = FLAT if issubclass(kind, nn.BatchNorm1d) else IMAGE
        if place.axes not in (None, needed):
            return Meaning(why=f"normalizes over an axis of positions ({place.axes} axes)")
        return Meaning((BatchNorm(),), axes=needed)
    if issubclass(kind, nn.GroupNorm):
        return Meaning((GroupNorm(m.num_groups),))
    over = len(m.normalized_shape)
    if place.axes is not None and over != place.axes - 1:
        return Meaning(why="normalizes every position by itself; the description's norm is over all nodes of a sample")
    if place.axes is None and over not in (FLAT - 1, IMAGE - 1):
        return Meaning(why=f"normalizes over {over} axes")
    return Meaning((RMSNorm() if issubclass(kind, nn.RMSNorm) else LayerNorm(),), axes=over + 1)


def pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[-1]))


def _pool(m: Any, kind: type[nn.Module], place: Place) -> Meaning:
    largest, flat = issubclass(kind, (nn.MaxPool1d, nn.MaxPool2d)), issubclass(kind, (nn.MaxPool1d, nn.AvgPool1d))
    if m.ceil_mode or pair(getattr(m, "dilation", 1)) != (1, 1):
        return Meaning(why="a description's pools have no dilation or ceil_mode")
    if getattr(m, "divisor_override", None) is not None or getattr(m, "return_indices", False):
        return Meaning(why="divisor_override and return_indices are not part of a description")
    return pool(pair(m.kernel_size), pair(m.stride), pair(m.padding), place, largest=largest, flat=flat)


def pool(
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    place: Place,
    *,
    largest: bool,
    flat: bool = False,
) -> Meaning:
    """A max-pool or average pool, over positions or (flat) over nodes."""
    size = kernel[0]
    if kernel != (size, size) or stride[0] != stride[1] or padding[0] != padding[1]:
        return Meaning(why=f"a pool of {kernel[0]}×{kernel[1]}; a description has square ones")
    if place.axes not in (None, FLAT if flat else IMAGE):
        return Meaning(why=f"a {'one' if flat else 'two'}-dimensional pool of a batch with {place.axes} axes")
    axes = FLAT if flat else IMAGE
    if (stride, padding) == (kernel, (0, 0)):
        return Meaning(((MaxPool if largest else AvgPool)(size if flat else size * size),), axes=axes)
    if flat or not largest:
        what = "of nodes" if flat else "of averages"
        return Meaning(
            why=f"pools of {size} at a stride of {stride[0]} overlap or leave gaps; those {what} do not here"
        )
    return Meaning((MaxPool(size * size, None if stride == kernel else stride[0], padding[0]),), axes=axes)


def global_pool(output: Any, place: Place, *, largest: bool = False) -> Meaning:
    """A pool to a given size is a pool of positions, once the size of the image is known."""
    high, wide = (output, output) if output is None or isinstance(output, int) else (output[0], output[-1])
    if place.shape is None:
        return Meaning(why="how many positions it pools depends on the images: give an example of the inputs")
    if len(place.shape) != IMAGE:
        return Meaning(why=f"a pool of images of a batch with {len(place.shape)} axes")
    sides = place.shape[2:]
    high, wide = high or sides[0], wide or sides[1]
    if sides[0] % high or sides[1] % wide or sides[0] // high != sides[1] // wide:
        return Meaning(why=f"{sides[0]}×{sides[1]} positions to {high}×{wide}; a description has square pools")
    size = (sides[0] // high) ** 2
    return Meaning(((MaxPool if largest else AvgPool)(size),) if size > 1 else (), axes=IMAGE)


def affine(layers: tuple[Layer, ...], weight: float | None, bias: float | None, what: str) -> Meaning:
    """A norm and its parameters, all equal within each: (1, 0) adds nothing, others a scale and a shift."""
    notes: tuple[str, ...] = ()
    if weight not in (None, 1.0):
        layers, notes = (*layers, Scale(weight)), (f"{what} starts with weights of {weight:g}, not 1",)
    if bias not in (None, 0.0):
        layers, notes = (*layers, Shift(bias)), (*notes, f"{what} starts with biases of {bias:g}, not 0")
    return Meaning(layers, notes=notes)


def tried_rms_norm(module: nn.Module, place: Place) -> Meaning:
    """A class called …RMSNorm, tried on random vectors: c·x/rms(x) with one c, or not read."""
    weight = cast(torch.Tensor, module.weight)
    if weight.ndim != 1:
        return Meaning(why=f"called RMSNorm, with a weight of {weight.ndim} axes")
    if place.axes not in (None, FLAT):
        return Meaning(why="normalizes every position by itself; the description's norm is over all nodes of a sample")
    x = torch.randn(8, weight.numel(), generator=torch.Generator().manual_seed(0)).to(weight)
    try:
        with torch.no_grad():
            ratio = (module(x) / (x / x.square().mean(-1, keepdim=True).sqrt())).double()
    except Exception as error:  # someone else's forward
        return Meaning(why=f"called RMSNorm, but fails on vectors: {type(error).__name__}")
    factor = float(ratio.median())
    if not math.isfinite(factor) or float((ratio - factor).abs().max()) > 1e-2 * max(abs(factor), 1e-3):
        return Meaning(why="called RMSNorm, but does not divide by the root mean square")
    factor = float(f"{factor:.3g}")
    return affine((RMSNorm(),), factor, None, "the norm")
