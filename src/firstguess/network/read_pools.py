"""Pools of torch as those of a description: what max- and average pools share when they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from firstguess.network.layer import Layer, Meaning
from firstguess.network.meaning import FLAT, IMAGE, Call, Site

_PLAIN = ("kernel_size", "stride", "padding")


class Window(NamedTuple):
    """What a pool runs over, by height and width."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]


def window_of_module(module: Any) -> Window | str:
    """The window of a pool of torch.nn, or why it is none of a description's."""
    if module.ceil_mode or _pair(getattr(module, "dilation", 1)) != (1, 1):
        return "a description's pools have no dilation or ceil_mode"
    if getattr(module, "divisor_override", None) is not None or getattr(module, "return_indices", False):
        return "divisor_override and return_indices are not part of a description"
    return Window(_pair(module.kernel_size), _pair(module.stride), _pair(module.padding))


def window_of_call(call: Call) -> Window | str:
    """The same of a pool that is a function."""
    usual = (*_PLAIN, "input", "count_include_pad")
    odd = {key: value for key, value in call.kwargs.items() if key not in usual and value}
    if odd.get("dilation") in (1, (1, 1), [1, 1]):
        del odd["dilation"]
    if odd or len(call.args) > 1 + len(_PLAIN):
        return "a description's pools have no dilation, ceil_mode or divisor_override"
    kernel = call.argument(1, "kernel_size", None)
    sizes = kernel, call.argument(2, "stride", None) or kernel, call.argument(3, "padding", 0)
    if not all(isinstance(n, int) for size in sizes for n in (size if isinstance(size, (tuple, list)) else [size])):
        return "what it pools depends on the shape"
    return Window(_pair(sizes[0]), _pair(sizes[1]), _pair(sizes[2]))


def pool_of(
    kind: Callable[..., Layer], window: Window | str, site: Site, *, flat: bool = False, overlaps: bool = False
) -> Meaning:
    """A pool over positions or (flat) over nodes; `overlaps`: whether this kind has a stride and padding."""
    if isinstance(window, str):
        return Meaning(why=window)
    kernel, stride, padding = window
    size = kernel[0]
    if kernel != (size, size) or stride[0] != stride[1] or padding[0] != padding[1]:
        return Meaning(why=f"a pool of {kernel[0]}×{kernel[1]}; a description has square ones")
    axes = FLAT if flat else IMAGE
    if site.axes not in (None, axes):
        return Meaning(why=f"a {'one' if flat else 'two'}-dimensional pool of a batch with {site.axes} axes")
    if (stride, padding) == (kernel, (0, 0)):
        return Meaning((kind(size if flat else size * size),), axes=axes)
    if flat or not overlaps:
        what = "of nodes" if flat else "of averages"
        return Meaning(
            why=f"pools of {size} at a stride of {stride[0]} overlap or leave gaps; those {what} do not here"
        )
    return Meaning((kind(size * size, None if stride == kernel else stride[0], padding[0]),), axes=axes)


def pool_to(kind: Callable[[int], Layer], output: Any, site: Site) -> Meaning:
    """A pool to a given size is a pool of positions, once the size of the image is known."""
    high, wide = (output, output) if output is None or isinstance(output, int) else (output[0], output[-1])
    if site.shape is None:
        return Meaning(why="how many positions it pools depends on the images: give an example of the inputs")
    if len(site.shape) != IMAGE:
        return Meaning(why=f"a pool of images of a batch with {len(site.shape)} axes")
    sides = site.shape[2:]
    high, wide = high or sides[0], wide or sides[1]
    if sides[0] % high or sides[1] % wide or sides[0] // high != sides[1] // wide:
        return Meaning(why=f"{sides[0]}×{sides[1]} positions to {high}×{wide}; a description has square pools")
    size = (sides[0] // high) ** 2
    return Meaning((kind(size),) if size > 1 else (), axes=IMAGE)


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[-1]))
