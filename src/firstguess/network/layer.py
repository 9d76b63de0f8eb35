"""What a layer is: one class in one file that holds every meaning, and says so where it has none.

A reading is a fold over layers; what it asks of a layer is a method here. Every default raises `NotCovered` by name: a
meaning that was forgotten refuses, it never falls through to a neighbour's formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum, Flag, auto
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol, TypeVar, dataclass_transform

from firstguess.base.checks import check_count, check_flag, check_number, float_range
from firstguess.base.errors import FirstguessError, NotCovered
from firstguess.base.text import number, repeated
from firstguess.network.shapes import Shape
from firstguess.network.tensors import SourceWriter, Unbatched

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import nn

    from firstguess.base.gaussian import Array
    from firstguess.network.activations.record import Activation
    from firstguess.network.finite_sample import PointSample
    from firstguess.network.finite_signal import FiniteSignal
    from firstguess.network.points import AllPairsMap, ControlVariates, Done, Joint, Need, PairwiseMap, Points, UnitMap
    from firstguess.network.shapes import PositionGrid
    from firstguess.network.signal import Signal
    from firstguess.network.tensors import Draw, Place, Tensors


class Mix(Flag):
    """What a layer mixes, apart from the units that weights sum over."""

    NOTHING = 0
    UNITS = auto()  # a norm over units
    POSITIONS = auto()  # pools and kernels, where there are positions
    POINTS = auto()  # statistics over the data
    TOKENS = auto()  # it is about the tokens of a sequence: makes, marks, mixes or pools them


class Symmetry(Enum):
    """What a layer does to the sign of what it gets: whether x and −x give y and −y."""

    WEIGHTS = auto()  # its own weights have a sign that nobody sees
    ODD = auto()
    LINEAR = auto()  # odd, also about a constant that was added before
    REMOVES_MEAN = auto()  # odd, and subtracts a constant that was added before
    SHIFTS = auto()  # adds a constant
    NONE = auto()


_EXAMPLES = {"weight_var": 2, "bias_var": 0.1, "out_bias_var": 0.1, "eps": 1e-5, "types": 0.02, "base": 10000}
_STATED = ("kind", "weighted", "mixes", "symmetry", "breaks_gaussianity")
_READINGS = (
    ("tensors", "the ensemble reading: fg.measure(...)"),
    ("covariance", "the kernel reading: fg.predict(net, data=x)"),
    ("moments", "the closed form: fg.predict(net)"),
)


Back = Callable[["Array"], "Array"]


class Fold(Protocol):
    """What the kernel's fold does for a layer that needs more than a pair of points."""

    def within(self, point: int) -> Array:
        """K[i p, i p'] of one data point before the layer."""
        ...

    def through(self, layers: Sequence[Layer], points: Points, k: Array, t: Array | None, path: str) -> Done:
        """All pairs through the layers of a path; `k` and `t` may be overwritten."""
        ...


class Layer:
    """One layer of a description. `kind` is its name in text; its dataclass fields are its arguments there.

    `@register` makes concrete ones frozen dataclasses. What has no default here they must state themselves.
    """

    kind: ClassVar[str]
    brackets: ClassVar[tuple[str, ...]] = ()  # fields that hold layers, in square brackets in its text
    brief: ClassVar[tuple[str, ...]] = ()  # fields whose value stands alone in its text, and flags by their name
    by_token: ClassVar[bool] = False  # it acts on every token alike, or knows what to do with them; else it is refused
    each_token: ClassVar[bool] = False  # as the output layer, it guesses at every token: a language model's head
    # Classes that `from_module` reads: a name in torch.nn, the class itself, or "*Name": any class with a weight whose
    # name ends so; what it does has to be tried out there.
    modules: ClassVar[tuple[str | type, ...]] = ()
    # Functions that `from_call` reads: "torch.…", "F.…" (torch.nn.functional), "operator.…", "Tensor.…" for methods.
    calls: ClassVar[tuple[str, ...]] = ()
    example: ClassVar[str] = ""  # of the arguments that it cannot do without, for hints
    least: ClassVar[tuple[tuple[str, float], ...]] = ()  # of arguments, where it is not 0 of numbers and 1 of counts
    above: ClassVar[tuple[str, ...]] = ()  # arguments that have to be above 0
    batch: int | None = None  # how many points it looks at together, where that is not all of them
    weighted: bool  # its output is a pre-activation, sums over random weights (a residual block's too)
    mixes: Mix
    symmetry: Symmetry
    breaks_gaussianity: bool  # Gaussian nodes stop being Gaussian

    def __post_init__(self) -> None:
        for name, optional, check in _argument_checks(type(self)):
            value = getattr(self, name)
            if value is not None or not optional:
                check(value)

    @property
    def name(self) -> str:
        """What edits call it: `net.without("relu")`."""
        return self.kind

    @property
    def paths(self) -> tuple[tuple[Layer, ...], ...]:
        """Layers within, in the order in which they draw weights."""
        return ()

    @property
    def leaky_slopes(self) -> tuple[float, float] | None:
        """Slopes left and right of 0, if a kink there is all that it does to a unit."""
        return None

    @property
    def pools(self) -> int:
        """How many units it takes for one, where there are no positions."""
        return 1

    @property
    def together(self) -> int:
        """How many units it looks at together and keeps (a narrow group): sampled units come in such bunches."""
        return 1

    @property
    def gaussian(self) -> bool:
        """Whether its weights, if it has any, are Gaussian."""
        return True

    @property
    def draws(self) -> bool:
        """Whether it has weights of its own."""
        return self.weighted and not self.paths

    @property
    def kernel_side(self) -> int:
        """Positions a side that its weights run over; 0: they have nothing to do with positions."""
        return 0

    @property
    def one_size(self) -> bool:
        """Whether all points leave it with the same mean square, in every network of any width."""
        return False

    @property
    def multiplier(self) -> float | None:
        """The number, if multiplying by one is all that it does."""
        return None

    @property
    def function(self) -> Activation | None:
        """What it applies to every unit, if that is all that it does."""
        return None

    def with_variances(self, weight_var: float, bias_var: float) -> Layer:
        """Its weights and biases with other variances; a layer that draws none stays as it is."""
        if self.draws:
            self._refuse("other variances")
        return self

    def with_distribution(self, init: str) -> Layer:
        """Draw its weights from another distribution of the same variance (`network.weights`), if it draws any."""
        if self.draws:
            self._refuse("another distribution of its weights")
        return self

    def frozen_weights(self) -> Layer:
        """Itself with weights that are not trained; a layer that cannot say so as it is."""
        return self

    def with_shared(self, factor: float) -> Layer:
        """What it brings to all sequences alike (positions, types, a class token), times a factor; else itself."""
        return self

    def balanced(self, share: float) -> Layer:
        """√(1 − share²) of what enters plus `share` of the branch: theory.md (34)."""
        self._refuse("a branch to scale")

    def as_output(self) -> tuple[Layer, int | None] | None:
        """Itself with a unit for every class, and how many it had; None: it is no output layer."""
        return None

    @property
    def affine(self) -> bool:
        """Whether it is a·x + b on every unit, a and b constants."""
        return self.mixes is Mix.NOTHING and self.symmetry in (Symmetry.LINEAR, Symmetry.SHIFTS)

    def text(self) -> str:
        """Its text, leaving out arguments that have their default value."""
        own_fields = fields(self) if is_dataclass(self) else ()
        given = [(f.name, getattr(self, f.name)) for f in own_fields if f.init and getattr(self, f.name) != f.default]
        brief = [name if value is True else number(value) for key in self.brief for name, value in given if name == key]
        arguments = [*brief, *(f"{name}={number(value)}" for name, value in given if name not in self.brief)]
        return self.kind + (f"({', '.join(arguments)})" if arguments else "")

    def with_paths(self, change: Callable[[tuple[Layer, ...]], tuple[Layer, ...]]) -> Layer:
        """The same layer with other layers in its paths; `change` is not called for a path without layers."""
        if self.paths:
            self._refuse("an edit of its paths")
        return self

    def shape(self, before: Shape, units: int | None) -> Shape:
        """The shape after it, or InvalidInput. `units` is what weights without a width of their own get."""
        self._refuse("a rule for sizes")

    def inside(self, before: Shape, units: int | None) -> tuple[list[Shape], ...]:
        """The shapes of every path: those before its layers, and after the last one."""
        if self.paths:
            self._refuse("sizes within its paths")
        return ()

    def tokens_of(self, x: NDArray[Any]) -> NDArray[Any] | None:
        """Data as tokens, for a layer that makes them of data: ids (n, tokens), or numbers (n, tokens, numbers)."""
        return None

    def real_tokens(self, tokens: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Which of these tokens are no padding, where some are."""
        return None

    def moments(self, signal: Signal) -> Signal:
        """The closed-form reading: the signal after this layer."""
        self._refuse("a closed form")

    def gradient(self, signal: Signal) -> float | None:
        """What the layer multiplies the mean square of gradients by, going back: theory.md (10). None: not known."""
        self._refuse("a gradient in closed form")

    def covariance(self, points: Points, fold: Fold) -> PairwiseMap | AllPairsMap:
        """The kernel reading on the grid of these points: what is known after it, and how it maps covariances."""
        self._refuse("a kernel")

    def sampled_units(self, points: Points, known: bool) -> UnitMap:
        """Arithmetic on sampled units; `known`: the control variates use the statistics of `points`, by formula."""
        self._refuse("a meaning on sampled nodes")

    def control_variates(self, points: Points, k: Array, t: Array | None) -> ControlVariates:
        """The control variates after a layer that mixes points, their covariance (in place) and tangent."""
        self._refuse("twins of sampled nodes")

    def finite(self, before: FiniteSignal, after: Signal) -> FiniteSignal:
        """The closed form with terms in 1/width and 1/dimension; `after` is `moments` of the mean: theory.md §12."""
        self._refuse("an expansion in 1/width")

    def point_sample(self, sample: PointSample) -> PointSample:
        """A few points after it, in many networks of real width: theory.md (41)."""
        self._refuse("a meaning at finite width")

    def token_gradients(self, points: Points, k: Array, along: Callable[[Sequence[Layer]], Back]) -> Back | None:
        """How Σ_nodes ∂L/∂x_s ∂L/∂x_t of one sequence of covariance k goes back through a layer of tokens.

        `along` gives the same of a path within; None: a factor for every entry, which its kernel tells.
        """
        if Mix.TOKENS in self.mixes:
            self._refuse("gradients of tokens")
        return None

    def sampled(self, grid: PositionGrid) -> bool:
        """Whether sampled units may serve it better than a formula, which `need` then tells."""
        return False

    def need(self, points: Points, k: Array) -> Need:
        """How far formulas do for it, on these covariances before the segment that it is in."""
        self._refuse("a word on sampled nodes")

    def exact(self, rest: Sequence[Layer]) -> bool:
        """Whether its formula is exact with these layers after it, for Gaussian nodes before."""
        return False

    def jointly(self, rest: Sequence[Layer]) -> Joint | None:
        """An exact formula for it and all those after it, for Gaussian nodes before."""
        return None

    def effort(self) -> float:
        """What its kernel costs a pair, in units of a relu: for the refusal of what would take too long."""
        return sum((x.effort() for path in self.paths for x in path), 0.0) if self.paths else 1.0

    def assumptions(self) -> Iterable[str]:
        """What the formulas take for granted here, in words."""
        self._refuse("a list of assumptions")

    def tensors(self, place: Place) -> Tensors:
        """The ensemble reading: what the engine needs to know to take many initializations through this layer."""
        self._refuse("a meaning on tensors")

    def module(self, place: Place, draw: Draw) -> nn.Module:
        """The torch module that this layer is in one member of an ensemble."""
        self._refuse("a torch module")

    def source(self, at: SourceWriter) -> str:
        """The PyTorch expression that makes this layer; moves `at.size` on."""
        self._refuse("PyTorch source")

    @classmethod
    def read_modules(cls) -> tuple[str | type, ...]:
        """What `from_module` reads, where that is not fixed."""
        return cls.modules

    @classmethod
    def read_calls(cls) -> tuple[str, ...]:
        """What `from_call` reads, where that is not fixed."""
        return cls.calls

    @classmethod
    def from_module(cls, module: Any, context: ReadContext) -> ReadResult:
        """What a torch module of `modules` is, or why it is nothing that a description can say."""
        return ReadResult(why=f"{cls.kind} does not say how it is read from a module")

    @classmethod
    def from_call(cls, call: Call, context: ReadContext) -> ReadResult:
        """The same for a call of one of `calls`."""
        return ReadResult(why=f"{cls.kind} does not say how it is read from a call")

    def _refuse(self, what: str) -> NoReturn:
        """Raise NotCovered, naming the reading that does cover this layer; a fold adds the place."""
        cls = type(self)
        covered = next((hint for method, hint in _READINGS if has_reading(cls, method)), "")
        raise NotCovered(f"{what} of {self.kind}", got="a layer without one", hint=covered)


@lru_cache(maxsize=128)
def _argument_checks(cls: type[Layer]) -> list[tuple[str, bool, Callable[[Any], None]]]:
    """How the arguments of a kind are checked, by their fields: finite numbers, counts, flags; whether None is one."""
    found, least = list[tuple[str, bool, Callable[[Any], None]]](), dict(cls.least)
    for place, one in enumerate(fields(cls) if is_dataclass(cls) else ()):
        name, wants = one.name, str(one.type)
        check: Any = None
        if wants.startswith("int"):
            check = partial(check_count, name=name, kind=cls.kind, low=int(least.get(name, 1)))
        elif wants == "bool":
            check = partial(check_flag, name=name, kind=cls.kind)
        elif wants.startswith("float"):
            said = [cls.example] if cls.example else []
            said += [] if said and place == 0 else [f"{name}={_EXAMPLES.get(name, 1)}"]
            strict, hint = name in cls.above, f"{cls.kind}({', '.join(said)})"
            low = least.get(name, 0.0)
            check = partial(check_number, name=name, kind=cls.kind, low=low, strict=strict, hint=hint)
        if check is not None:
            found.append((name, wants.endswith("None"), check))
    return found


@dataclass(frozen=True)
class ReadResult:
    """What a module or function is in a description; `why` (not empty): it is not, and the reason."""

    layers: tuple[Layer, ...] = ()
    axes: int | None = None  # of the batch after it; None: as before
    notes: tuple[str, ...] = ()
    why: str = ""
    affine: bool = False  # its weight multiplies and its bias adds afterwards, one number each
    widths: tuple[int, int] | None = None  # units (channels) before and after, where its weights say so
    variances: Variances | None = None
    zero: bool = False  # its output is 0 on all inputs at initialization
    last: str = ""  # what it is at the end of a network, where the guess does not depend on it; else `why` counts


def has_reading(cls: type[Layer], method: str) -> bool:
    """Whether a kind of layer has a meaning of its own, not the default that refuses."""
    return getattr(cls, method, None) is not getattr(Layer, method, None)


def keeps_shape(self: Layer, before: Shape, units: int | None) -> Shape:
    """The `shape` of a layer that changes no size: written down by each such layer, never inherited."""
    return before


def nothing_assumed(self: Layer) -> Iterable[str]:
    """The `assumptions` of a layer whose formulas take nothing for granted: written down, never inherited."""
    return ()


def same_gradients(self: Layer, points: Points, k: Array, along: Callable[[Sequence[Layer]], Back]) -> Back:
    """The `token_gradients` of a layer that adds something to the tokens, or makes them."""
    return lambda g: g


class TokenLayer(Layer):
    """A layer about tokens, of which nothing is assumed; its members run one after another, as modules."""

    mixes = Mix.TOKENS
    breaks_gaussianity = False
    by_token = True
    assumptions = nothing_assumed

    def tensors(self, place: Place) -> Unbatched:
        return Unbatched()


KINDS: dict[str, type[Layer]] = {}
Kind = TypeVar("Kind", bound=type[Layer])


@dataclass_transform(frozen_default=True)
def register(cls: Kind) -> Kind:
    """Make a class a frozen dataclass and a kind of layer that the grammar, reading and the contract tests know.

    A class that is a frozen dataclass already stays as it is. Refuses one that inherits from another kind (it would
    inherit all its meanings), or that leaves a flag unsaid.
    """
    if any("kind" in vars(base) for base in cls.__mro__[1:]):
        raise TypeError(f"{cls.__name__}: a layer is no variant of another one, or it would inherit its meanings")
    missing = [name for name in _STATED if not hasattr(cls, name)]
    if missing:
        raise TypeError(f"{cls.__name__} has to state {', '.join(missing)}: these have no default")
    if cls.kind in KINDS and KINDS[cls.kind] is not cls:
        raise TypeError(f"{cls.__name__}: there is a layer {cls.kind} already")
    for name in (*cls.modules, *cls.calls):
        others = (kind for kind in KINDS.values() if kind is not cls and name in (*kind.modules, *kind.calls))
        if other := next(others, None):
            raise TypeError(f"{cls.__name__}: {name} is read as {other.kind} already")
    KINDS[cls.kind] = made = cls if "__dataclass_fields__" in vars(cls) else dataclass(frozen=True)(cls)
    return made


def by_module() -> dict[str | type, type[Layer]]:
    """Which kind says what a module of torch is, by what it calls the module's class."""
    return {name: kind for kind in KINDS.values() for name in kind.read_modules()}


def by_call() -> dict[str, type[Layer]]:
    """Which kind says what a function of torch is."""
    return {name: kind for kind in KINDS.values() for name in kind.read_calls()}


def text(layer: Layer) -> str:
    """The layer as text, leaving out arguments that have their default value."""
    return layer.text()


def steps(layers: Iterable[Layer], signal: Signal, *, prefix: str = "") -> Iterator[tuple[Layer, Signal, Signal]]:
    """Fold a signal through layers, yielding (layer, before, after); an error names the layer it came from."""
    for index, layer in enumerate(layers, start=1):
        try:
            with float_range():
                after = layer.moments(signal)
                after.rescaled()  # what is not finite is refused here, where the layer is known
        except FirstguessError as error:
            raise error.at(f"{prefix}layer {index} ({text(layer)})") from None
        yield layer, signal, after
        signal = after


def signal_after(layers: Iterable[Layer], signal: Signal, *, prefix: str = "") -> Signal:
    """The signal after the last of these layers."""
    for _, _, signal in steps(layers, signal, prefix=prefix):  # noqa: B007, B020  # the last one
        pass
    return signal


def sequence_text(layers: Sequence[Layer]) -> str:
    """The canonical text of a sequence: repeated segments are written once, with their count."""
    return " > ".join(repeated([text(layer) for layer in layers]))


@dataclass(frozen=True)
class LayerReading:
    """One layer of a prediction: the signal after it."""

    layer: str
    weights: bool  # a pre-activation: the output of a dense layer, a convolution or a residual block
    gamma: float
    correlation: float
    one_minus_c: float
    log_q: float
    gradient: float | None  # factor on the mean square of gradients going back through this layer; None: not known

    @classmethod
    def of(cls, layer: Layer, q: float, q_ab: float) -> LayerReading:
        """What the mean covariances of a point with itself and of two points say; gradients are not known here."""
        c = q_ab / q if q > 0.0 else math.inf
        gamma = q_ab / (q - q_ab) if q > q_ab else math.inf
        return cls(layer.text(), layer.weighted, gamma, c, 1.0 - c, math.log(q) if q > 0.0 else -math.inf, None)

    @property
    def q(self) -> float:
        """The mean square."""
        return math.exp(self.log_q)

    @property
    def q_ab(self) -> float:
        """The mean covariance of two points."""
        return self.correlation * self.q if self.q else 0.0


# What a reader of models tells a kind of layer about a module or function of torch: records, without torch.

FLAT, IMAGE = 2, 4  # axes of a batch


@dataclass(frozen=True)
class Variances:
    """σw² and σb² of a layer with random weights, estimated over `draws` initializations.

    `rule` names the initializer that they were recognised as ("measured" if none was): then the description has that
    rule's exact numbers, else these estimates. `weight_var` and `bias_var` here are always the estimates.
    `distribution` is what the weights look drawn from: normal, uniform, orthogonal, or "" (none of these, or not looked
    at). The wide limit knows variances only; finite width knows more (theory.md §12).
    """

    weight_var: float
    weight_se: float
    bias_var: float
    bias_se: float
    rule: str
    draws: int
    distribution: str = ""

    def __str__(self) -> str:
        text = f"σw² = {self.weight_var:.4g} ± {self.weight_se:.1g}"
        if self.bias_var > 0.0:
            text += f", σb² = {self.bias_var:.3g} ± {self.bias_se:.1g}"
        return f"{text}: {self.rule}"


@dataclass(frozen=True)
class RandomWeights:
    """What a module's weights and biases are drawn from; `why` (not empty): from nothing that a description has."""

    weight_var: float = 0.0
    bias_var: float = 0.0
    units: int = 0
    orthogonal: bool = False
    why: str = "its weights could not be drawn"


@dataclass(frozen=True)
class ReadContext:
    """Where a module or a call stands: what comes in, and what its parameters start as."""

    axes: int | None = None  # of the batch that comes in, where that is known
    shape: tuple[int, ...] | None = None  # all of it, where an example was run
    path: str = ""  # of the module in the model
    claim: str = ""  # the name in `modules` or `calls` that it was found by
    weights: RandomWeights = field(default_factory=RandomWeights)  # of a kind whose output is sums over weights
    # The value that all numbers of `weight` (`bias`) start with, None where they differ; not there: no such parameter.
    constants: Mapping[str, float | None] = field(default_factory=dict[str, "float | None"])
    tokens: bool = False  # the model is one of tokens: what acts on units acts on each of them, and norms keep their ε

    def whole_sample(self, axes: int) -> str:
        """Why a norm over the last `axes` axes is not over all units of a sample, as a description's; "": it is."""
        if self.tokens:
            return "" if axes == 1 else "normalizes over more than the nodes of a token"
        if self.axes is not None and axes != self.axes - 1:
            return "normalizes every position by itself; the description's norm is over all nodes of a sample"
        return "" if axes in (FLAT - 1, IMAGE - 1) or self.axes is not None else f"normalizes over {axes} axes"


@dataclass(frozen=True)
class Call:
    """A function of torch, or a method of a tensor by its name, that is called with one signal in it, its first."""

    target: Any
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def argument(self, index: int, name: str, default: Any) -> Any:
        """An argument by its place (the signal is 0) or name."""
        return self.args[index] if len(self.args) > index else self.kwargs.get(name, default)
