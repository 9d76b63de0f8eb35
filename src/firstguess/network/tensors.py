"""What a layer is to an ensemble: data that it provides, from which the engine makes instructions (no torch here).

Many initializations go through the data at once, in one of two layouts. Without positions: (inits, units, points), so
that the weights of several networks side by side times the data land in the shape that the next batched product wants
(performance.md). Images: (points, inits, channels, height, width), which is what a grouped convolution takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, TypeVar

from firstguess.network.shapes import Shape

if TYPE_CHECKING:
    from torch import Tensor, nn

    from firstguess.network.signal import Signal

Scratch: TypeAlias = "Callable[[Tensor], Tensor]"  # a buffer of the shape of its argument, to be used at once
Apply: TypeAlias = "Callable[[Tensor, Scratch], Tensor]"  # may work in place; returns its result
Terms: TypeAlias = "tuple[Tensor, ...]"


class OnTensors(Protocol):
    """What an ensemble asks of a layer."""

    kind: ClassVar[str]
    each_token: ClassVar[bool]

    @property
    def weighted(self) -> bool: ...

    @property
    def draws(self) -> bool: ...

    def tensors(self, place: Place) -> Tensors: ...

    def module(self, place: Place, draw: Draw) -> nn.Module: ...


@dataclass(frozen=True)
class Place:
    """A layer where it stands: the shapes of one data point before and after it, and what else its place decides."""

    layer: OnTensors
    name: str  # its text
    where: str  # "layer 3 (relu)"
    before: Shape
    after: Shape
    signal: Callable[[], Signal | None]  # the closed form before it; None where it does not cover this layer
    points: int | None = None  # in the whole data set; None: a module, to which any number may come
    batch: int | None = None  # points to a batch, for layers that mix them and say no number themselves
    paths: tuple[tuple[Place, ...], ...] = ()


@dataclass(frozen=True)
class Weights:
    """Weights of `shape` (units first), Var W = weight_var / fan_in, and biases of the units where bias_var > 0.

    `product(x, weights, bias, shared)` is the layer on weights (inits, *shape) and biases (inits, units): x has the
    layout above, or is the data itself, `shared` by all inits. None: rows of weights times all units of a point. That
    product is the engine's own, with what is exact for Gaussian rows (performance.md).
    """

    shape: tuple[int, ...]
    fan_in: int
    weight_var: float
    bias_var: float
    init: str = "normal"  # a distribution of `network.weights`
    product: Callable[[Tensor, Tensor, Tensor | None, bool], Tensor] | None = None
    room: float = 0.0  # what the product allocates on its way, in copies of its input
    trained: bool = True


@dataclass(frozen=True)
class Local:
    """An operation on any segment of the points; `batch`: on segments that hold whole batches of this size."""

    apply: Apply
    batch: int = 1


@dataclass(frozen=True)
class OverData:
    """An operation that needs statistics of every unit over all points.

    `first`, if any, is applied to all points; then `terms(x, mean, variance)` makes of the unit statistics (inits,
    units) in float64 what `apply(x, terms)` needs. `whole(x)` does the same where all points are in one tensor.
    """

    terms: Callable[[Tensor, Tensor, Tensor], Terms]
    apply: Callable[[Tensor, Terms], Tensor]
    first: Apply | None = None
    whole: Callable[[Tensor], Tensor] | None = None


@dataclass(frozen=True)
class Paths:
    """Two paths from one input, and their sum: second + scale · first. A second one without layers is the input."""

    scale: float = 1.0


@dataclass(frozen=True)
class Unbatched:
    """Nothing to share between initializations: the layer's module, one member after another (tokens)."""


Tensors: TypeAlias = Weights | Local | OverData | Paths | Unbatched


class Draw(Protocol):
    """One member's draws, in the order in which they are asked for."""

    def fill(self, module: nn.Module, weights: Weights) -> nn.Module:
        """The module with its `weight`, and its `bias` if there are biases, drawn."""
        ...

    def path(self, places: Sequence[Place]) -> nn.Module:
        """The modules of these layers, one after another."""
        ...


# The leave-one-out estimator of NORM App. E.1, in operations that NumPy and torch share.

_Values = TypeVar("_Values", bound=Any)  # arrays, or tensors


def variance_of_others(d: _Values, total: _Values, size: int) -> _Values:
    """sd'² of theory.md (5), (u − mean')/sd' over the other B − 1 points: with d = u − mean of all B, total = Σd²,

    u − mean' = d·B/(B−1) and sd'² = (Σd² − d²·B/(B−1))/(B−2).
    """
    return ((total - d * d * (size / (size - 1))) / (size - 2)).clip(min=0.0)


# What a layer needs to know to be written as PyTorch source.

AFFINE = '''

class Affine(nn.Module):
    """scale * x + shift."""

    def __init__(self, scale: float = 1.0, shift: float = 0.0):
        super().__init__()
        self.scale, self.shift = scale, shift

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * x + self.shift
'''
FUNCTION = """

class {name}(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return {call}(x)
"""
RESIDUAL = '''

class ScaledResidual(nn.Module):
    """shortcut(x) + scale * branch(x)."""

    def __init__(self, branch: nn.Module, scale: float, shortcut: nn.Module | None = None):
        super().__init__()
        self.branch, self.scale, self.shortcut = branch, scale, shortcut or nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.shortcut(x) + self.scale * self.branch(x)
'''


@dataclass
class SourceWriter:
    """Where in the text a layer stands: the size of what enters, as an expression, and of what has to come out."""

    size: str
    width: int  # of layers that name none
    out: str | None = None
    classes: dict[str, None] = field(default_factory=dict[str, None])  # their texts, each once, in order of use
