"""Which layer a module or function of torch is, with the variances of its random weights and its constants."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.nn.utils import parametrize

from firstguess.ensemble.seeds import member_seeds
from firstguess.modules.members.initializers import BATCH_NORMS, CONVOLUTIONS, Init, is_lookup
from firstguess.modules.members.sources import Source
from firstguess.modules.members.weight_statistics import TORCH_DEFAULT, Numbers, bounded, fitting, of_size
from firstguess.network.activations.registry import activation
from firstguess.network.activations.tensors import targets
from firstguess.network.layer import FLAT, Call, RandomWeights, ReadContext, ReadResult, Variances, by_call, by_module
from firstguess.network.layers import Activate, Layer, Scale, Shift  # from here: so that every kind is registered

# Modules and functions that are nothing to a description: dropout, flattening, softmax at the end, copies.

DROPOUT = "dropout is off at initialization, and left out"
_DROPOUT_MODULES = (
    nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout,
)  # fmt: skip
SOFTMAX = ReadResult(
    why="a softmax within the network has no closed form here",
    last="softmax does not change which class is guessed, and is left out at the end",
)


def _softmax(axis: Any, axes: int | None = None) -> ReadResult:
    """A softmax over classes; one over the points of a batch, the first axis, does change which class is guessed."""
    over_points = axis == 0 or (axes is not None and axis == -axes)
    return ReadResult(why="a softmax over the points of a batch has no closed form here") if over_points else SOFTMAX


def _flatten(module: Any, context: ReadContext) -> ReadResult:
    whole = module.start_dim == 1 and module.end_dim == -1
    return ReadResult(axes=FLAT) if whole else ReadResult(why="flattens some axes only")


PASSIVE: dict[type[nn.Module], Callable[[Any, ReadContext], ReadResult]] = {
    nn.Identity: lambda *_: ReadResult(),
    **dict.fromkeys(_DROPOUT_MODULES, lambda *_: ReadResult(notes=(DROPOUT,))),
    **dict.fromkeys((nn.Softmax, nn.LogSoftmax), lambda module, context: _softmax(module.dim, context.axes)),
    nn.Softmax2d: lambda *_: SOFTMAX,
    nn.Flatten: _flatten,
}


def _dropout_call(call: Call) -> ReadResult:
    on = call.argument(2, "train" if call.target is torch.dropout else "training", True)
    if on is False or call.argument(1, "p", 0.5) == 0:
        return ReadResult(notes=(DROPOUT,))
    return ReadResult(why="this dropout is on in evaluation as well; write training=self.training, or nn.Dropout")


_COPIES = (torch.clone, torch.detach, operator.pos)
_COPYING = (  # methods
    "contiguous", "clone", "detach", "float", "double", "half", "bfloat16", "to", "type", "type_as",
    "requires_grad_",
)  # fmt: skip
DROPOUTS: tuple[Any, ...] = (
    F.dropout, torch.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout,
)  # fmt: skip
_SOFTMAXES = (F.softmax, F.log_softmax, torch.softmax, torch.log_softmax, "softmax", "log_softmax")


def identity_call(call: Call) -> ReadResult | None:
    """The meaning of a function or method (by its name) that is none of a layer's, None if this is no such one."""
    if call.target in _COPIES or call.target in _COPYING:
        return ReadResult()
    if call.target in DROPOUTS:
        return _dropout_call(call)
    return _softmax(call.argument(1, "dim", None)) if call.target in _SOFTMAXES else None


_Names = tuple[tuple["str | type", type[Layer]], ...]


class Claim(NamedTuple):
    """Who says what a module is; a kind of None: it is no layer (dropout, flattening)."""

    name: str  # the one in the kind's `modules`
    kind: type[Layer] | None
    meaning: Callable[[Any, ReadContext], ReadResult]


def claim(module: nn.Module) -> Claim | None:
    """Who says what a module is; None: nobody, as where a known class has a forward of its own."""
    known, endings = _module_table(tuple(by_module().items()))
    if "forward" not in vars(module):
        forward = type(module).forward
        for kind, found in known.items():
            if isinstance(module, kind) and forward is kind.forward:
                return found
    name = type(module).__name__
    found = next((found for ending, found in endings.items() if name.endswith(ending)), None)
    # Not by module.weight: while a graph is traced, that is a proxy, and asking for it is part of the graph.
    return found if found is not None and "weight" in dict(module.named_parameters(recurse=False)) else None


def call_claim(target: Any) -> tuple[str, type[Layer]] | None:
    """Who says what a function (or a method, by its name) is, and by which name in its `calls`."""
    try:
        return _call_table(tuple(by_call().items())).get(target)
    except TypeError:  # someone's callable that has no hash
        return None


@lru_cache(maxsize=4)
def _module_table(names: _Names) -> tuple[dict[type[nn.Module], Claim], dict[str, Claim]]:
    """By class, subclasses before what they derive from; and by the ending of a class's name."""
    known = {cls: Claim(cls.__name__, None, meaning) for cls, meaning in PASSIVE.items()}
    endings: dict[str, Claim] = {}
    for name, kind in names:
        if isinstance(name, str) and name.startswith("*"):
            endings[name[1:]] = Claim(name, kind, kind.from_module)
            continue
        cls = cast("type[nn.Module]", getattr(nn, name) if isinstance(name, str) else name)
        known[cls] = Claim(cls.__name__, kind, kind.from_module)
    return {cls: known[cls] for cls in sorted(known, key=lambda cls: -len(cls.mro()))}, endings


@lru_cache(maxsize=4)
def _call_table(names: tuple[tuple[str, type[Layer]], ...]) -> dict[Any, tuple[str, type[Layer]]]:
    return {target: (name, kind) for name, kind in names for target in targets(name)}


def is_attention(module: nn.Module) -> bool:
    kinds = (nn.MultiheadAttention, nn.Transformer, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
    return "attention" in type(module).__name__.lower() or isinstance(module, kinds)


def is_whole(module: nn.Module) -> bool:
    """Whether a module is looked at as one, not into."""
    return claim(module) is not None or is_attention(module)


def refusal(module: nn.Module) -> str:
    """Why a module that nobody claims has no description."""
    if is_attention(module):
        return "attention is read in models of known classes, and in others with an example: fg.read(model, ids)"
    if isinstance(module, (nn.RNNBase, nn.RNNCellBase)):
        return "recurrence has no closed form here: its weights are used again at every step"
    if is_lookup(module):
        return "looked-up tokens are read with an example, in a model that is read as a whole: fg.read(model, ids)"
    if isinstance(module, CONVOLUTIONS):
        return "a description has two-dimensional convolutions only, and no transposed ones"
    if isinstance(module, (*BATCH_NORMS, nn.InstanceNorm1d, nn.InstanceNorm3d)):
        return "a description has BatchNorm (1d, 2d), InstanceNorm2d, LayerNorm, RMSNorm and GroupNorm only"
    known, _ = _module_table(tuple(by_module().items()))
    base = next((cls.__name__ for cls in known if isinstance(module, cls)), None)
    return f"a {base} with a forward of its own" if base is not None else "a description has no such layer"


# What functions and methods of tensors are in a description, where one signal goes in.

# Methods are known by their names.
_SHAPING = (torch.flatten, torch.reshape, torch.squeeze, "flatten", "view", "reshape", "squeeze")
_SUMS = (operator.add, operator.iadd, torch.add, "add", "add_")
_DIFFERENCES = (operator.sub, operator.isub, torch.sub, torch.subtract, "sub", "sub_")
_IN_PLACE = (operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.setitem)
PRODUCTS = (operator.mul, operator.imul, torch.mul, torch.multiply, "mul", "mul_", "multiply")
QUOTIENTS = (operator.truediv, operator.itruediv, torch.div, torch.true_divide, "div", "div_", "true_divide")
MATMULS = (torch.matmul, operator.matmul, torch.bmm, "matmul", "bmm", "__matmul__")
_ATTENTION = (F.scaled_dot_product_attention, torch.baddbmm, torch.einsum, "baddbmm", *MATMULS)
_JOINS = (torch.cat, torch.concat, torch.stack, torch.hstack, torch.vstack)


def function_name(node: fx.Node) -> str:
    """`relu` for torch.relu, F.relu and x.relu() alike."""
    target: Any = node.target
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))


def is_sum(node: fx.Node) -> bool:
    """Whether a node adds (or subtracts) two things, one as it is."""
    plain = node.kwargs.get("alpha", 1) == 1 and len(node.args) == 2
    return bool(node.target in (*_SUMS, *_DIFFERENCES) and plain)


def in_place(node: fx.Node) -> bool:
    """Whether a call writes into what it gets."""
    name = function_name(node)
    writes = name.endswith("_") and not name.endswith("__") and name != "requires_grad_"
    return bool(writes or node.target in _IN_PLACE or node.kwargs.get("inplace") or "out" in node.kwargs)


def is_difference(node: fx.Node) -> bool:
    return node.target in _DIFFERENCES


def function(node: fx.Node, context: ReadContext, after: tuple[int, ...] | None) -> ReadResult:
    """The meaning of a call with one signal in it; `after` is the shape of its result where an example was run."""
    call = Call(node.target, node.args, node.kwargs)
    if (claimed := call_claim(call.target)) is not None:
        name, kind = claimed
        return kind.from_call(call, replace(context, claim=name))
    if (passive := identity_call(call)) is not None:
        return passive
    target: Any = node.target
    if target in _SHAPING:
        return _shaping(call, function_name(node), context, after)
    if (found := arithmetic(call)) is not None:
        return found
    if target in _ATTENTION:
        return ReadResult(why="a product of signals, as in attention, has no closed form here")
    if target is operator.getitem:
        return ReadResult(why="takes a part of the signal")
    if target in (F.linear, F.conv2d, F.layer_norm, F.batch_norm, F.group_norm, F.rms_norm):
        return ReadResult(why="its parameters are not those of a module: write nn.Linear, nn.LayerNorm, …")
    return ReadResult(why="a description has no such function")


def of_several(node: fx.Node) -> str:
    """Why a call with several signals in it has no description."""
    target: Any = node.target
    if target in _JOINS:
        return "joins several signals; a description has one, and residual sums"
    if target in _ATTENTION:
        return "a product of signals, as in attention, has no closed form here"
    if target in PRODUCTS:
        return "a product of two signals (a gate) has no closed form here"
    if is_sum(node):
        return "a sum of two signals of which neither is the input of the other"
    return "several signals go in"


def _shaping(call: Call, name: str, context: ReadContext, after: tuple[int, ...] | None) -> ReadResult:
    if context.shape is not None and after is not None:
        same = after[:1] == context.shape[:1] and math.prod(after) == math.prod(context.shape)
        if same and (len(after) <= FLAT or after == context.shape):
            return ReadResult(axes=len(after) if len(after) > FLAT else FLAT)
        return ReadResult(why=f"makes {context.shape[1:]} of a sample into {after[1:]}; a description can flatten only")
    if name == "flatten" and call.argument(1, "start_dim", 0) == 1 and call.argument(2, "end_dim", -1) == -1:
        return ReadResult(axes=FLAT)
    sizes = call.args[1:]
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    if name in ("view", "reshape") and len(sizes) == FLAT and -1 in sizes and (sizes[0] == -1 or _is_batch(sizes[0])):
        note = f"{name} to two axes is taken for a flattening: give an example of the inputs to check it"
        return ReadResult(axes=FLAT, notes=() if isinstance(sizes[0], fx.Node) else (note,))
    if name == "squeeze" and context.axes == FLAT:
        return ReadResult()
    return ReadResult(why="what it does depends on the shape: give an example of the inputs")


def _is_batch(size: Any) -> bool:
    """Whether a size is x.size(0) or x.shape[0] of some signal: they all have the batch as their first axis."""
    if not isinstance(size, fx.Node):
        return False
    if size.target == "size":
        return Call("size", size.args, size.kwargs).argument(1, "dim", None) == 0
    if size.target is not operator.getitem or size.args[1] != 0:
        return False
    whole = size.args[0]
    if not isinstance(whole, fx.Node) or whole.kwargs:
        return False
    return whole.args[1:] == (("shape",) if whole.target is getattr else ()) and whole.target in (getattr, "size")


def arithmetic(call: Call) -> ReadResult | None:
    """Scalars times and plus the signal."""
    target: Any = call.target
    if target in (operator.neg, torch.neg, "neg"):
        return ReadResult((Scale(-1.0),))
    if target in (torch.pow, operator.pow, "pow") and call.argument(1, "exponent", None) == 2:
        return ReadResult((Activate(activation("square")),))
    if len(call.args) != 2 or call.kwargs:
        return None
    left, right = call.args
    number = right if isinstance(left, fx.Node) else left
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not math.isfinite(number):
        return None
    if target in _SUMS:
        return ReadResult((Shift(float(number)),) if number else ())
    if target in _DIFFERENCES:
        first = isinstance(left, fx.Node)
        return ReadResult((Shift(-float(number)),) if first else (Scale(-1.0), Shift(float(number))))
    if target in PRODUCTS:
        return ReadResult((Scale(float(number)),) if number != 1 else ())
    if target in QUOTIENTS and isinstance(left, fx.Node) and number:
        return ReadResult((Scale(1.0 / number),))
    return None


# Variances of weights, from the initializers themselves: draw, estimate, and recognise the rule where there is one.

ENOUGH = 20_000  # weights of a layer from which σw² is known to 1 %
_FEW = 2_000  # biases of a layer
_BUDGET = 20_000_000  # numbers that are drawn beyond the least of 16 initializations
_LEAST, _MOST = 16, 256
_PATIENCE = 160_000_000  # numbers that are drawn for these 16: a second or two; of larger models, two initializations


class ParameterDraws(NamedTuple):
    """Statistics of every parameter that the reading asks for, by name, over `inits` initializations."""

    numbers: dict[str, Numbers]
    inits: int


def tensor_at(model: nn.Module, name: str) -> torch.Tensor | None:
    """The parameter (or what a parametrization makes of it) under a dotted name."""
    owner, _, last = name.rpartition(".")
    value = getattr(model.get_submodule(owner), last, None)
    return value if isinstance(value, torch.Tensor) else None


def draw(source: Source, names: Iterable[str], seed: int) -> ParameterDraws:
    """Initialize until weights have 20 000 entries and biases 2 000, or 16 times (small models: 256, very large: 2)."""
    numbers = {name: Numbers() for name in names}
    done, most = 0, _LEAST
    while numbers and done < most:
        with source.member(int(member_seeds(seed, done, done + 1)[0])) as model:
            for name, sums in list(numbers.items()):
                value = tensor_at(model, name)
                if value is None or not value.numel() or not value.is_floating_point():
                    del numbers[name]
                else:
                    sums.add(value)
        done += 1
        if done == 1:
            size = max(1, sum(parameter.numel() for parameter in model.parameters()))
            most = min(_MOST, max(min(_LEAST, max(2, _PATIENCE // size)), _BUDGET // size))
        random = [(name, sums.count) for name, sums in numbers.items() if sums.constant is None]
        if done > 1 and all(count >= (_FEW if name.endswith("bias") else ENOUGH) for name, count in random):
            break
    return ParameterDraws(numbers, done)


@dataclass(frozen=True)
class Estimate:
    """What is known of a layer's variances, and the rules that they fit: (name, σw²)."""

    weight: Numbers
    bias: Numbers | None
    fan_in: int
    rules: tuple[tuple[str, float], ...]
    asked: float | None = None  # σb², where the user's init= says it

    @property
    def measured(self) -> float:
        """σw² = fan-in · E W²."""
        return self.fan_in * self.weight.mean_square

    @property
    def odd(self) -> str:
        """Why weights and biases have a distribution that a description does not say; "" if it does."""
        if self.weight.off_centre and self.weight.constant != 0.0:
            return "its weights have a mean other than 0, which the theory does not cover"
        if self.bias is not None and self.bias.constant is None and self.bias.off_centre:
            return "its biases have a mean other than 0 and differ, which the theory does not cover"
        return ""

    def choose(self, favourites: Sequence[str]) -> tuple[str, float]:
        """(rule, σw²): the one value that all fitting rules share, else that of the favourite, else the estimate."""
        values = {value for _, value in self.rules}
        if len(values) > 1:
            liked = next((name for name in favourites if any(name == rule for rule, _ in self.rules)), None)
            values = {value for name, value in self.rules if name == liked}
        if len(values) != 1:
            return "measured", self.measured
        value = values.pop()
        same = [name for name, other in self.rules if other == value]
        liked = [name for name in favourites if name in same]
        return (liked or same)[0], value

    def bias_var(self) -> float:
        """σb²: exact for PyTorch's default (uniform up to 1/√fan-in), init=(…, σb²) and constants, else E b²."""
        if self.bias is None or self.bias.constant is not None:
            return 0.0
        if self.asked is not None and of_size(self.bias, self.asked):
            return self.asked
        return self.default_bias if bounded(self.bias, 1.0 / math.sqrt(self.fan_in)) else self.bias.mean_square

    @property
    def default_bias(self) -> float:
        """σb² of PyTorch's default."""
        return 1.0 / (3.0 * self.fan_in)

    def variances(self, rule: str, draws: int, distribution: str = "") -> Variances:
        """What was measured, and the rule that it was recognised as."""
        random = None if self.bias is None or self.bias.constant is not None else self.bias
        bias = (0.0, 0.0) if random is None else (random.mean_square, random.standard_error)
        error = 0.0 if self.weight.gain is not None else self.fan_in * self.weight.standard_error
        return Variances(self.measured, error, *bias, rule, draws, distribution)


def estimate(weight: Numbers, bias: Numbers | None, shape: torch.Size, init: Init) -> Estimate:
    """From the statistics of a weight of shape (units, inputs, …) and of its bias."""
    asked = (float(init[0]), float(init[1])) if isinstance(init, tuple) else (None, None)
    rules = tuple(fitting(weight, tuple(shape), asked[0]))
    return Estimate(weight, bias, math.prod(shape[1:]), rules, asked[1])


def favourites(estimates: Iterable[Estimate]) -> list[str]:
    """Rules by how many layers each fits: a model is mostly initialized by one."""
    votes: dict[str, int] = {}
    for one in estimates:
        for name, _ in one.rules:
            votes[name] = votes.get(name, 0) + 1
    return sorted(votes, key=lambda name: -votes[name])


_ZERO = "weights and biases start at zero: its output is the same on all inputs, and guesses are ties"


def parameter_names(model: nn.Module) -> Iterator[str]:
    """Every weight and bias that the reading may want, by its first name."""
    for path, module in model.named_modules():
        if claim(module) is not None:
            for name in ("weight", "bias"):
                if isinstance(getattr(module, name, None), torch.Tensor):
                    yield f"{path}.{name}" if path else name


class Drawn(NamedTuple):
    """A weight and its bias over draws: what a description has for them, what was measured, and a constant bias."""

    weights: RandomWeights
    variances: Variances
    constant: float | None


@dataclass
class Modules:
    """The meaning of every module of `model`, with what is known of its parameters' distributions."""

    model: nn.Module
    draws: ParameterDraws
    init: Init = None
    used: dict[int, str] = field(default_factory=dict[int, str])  # what some layer has its weights from already, by id
    estimates: dict[str, Estimate] = field(default_factory=dict[str, Estimate])  # by name of the weight

    def __post_init__(self) -> None:
        for path, module in self.model.named_modules():
            weight, bias = self._name(path, "weight"), self._name(path, "bias")
            claimed = claim(module)
            if claimed is not None and _weighted(claimed.kind) and weight in self.draws.numbers:
                tensor = tensor_at(self.model, weight)
                if tensor is not None:
                    numbers = self.draws.numbers
                    self.estimates[weight] = estimate(numbers[weight], numbers.get(bias), tensor.shape, self.init)

    @staticmethod
    def _name(path: str, what: str) -> str:
        return f"{path}.{what}" if path else what

    def meaning(
        self, path: str, axes: int | None, shape: tuple[int, ...] | None = None, *, tokens: bool = False
    ) -> ReadResult:
        """What a module is that gets a batch with this many axes, or (where an example was run) of this shape.

        `tokens`: the model is one of tokens.
        """
        module = self.model.get_submodule(path)
        claimed = claim(module)
        if vars(module).get("_forward_hooks") or vars(module).get("_forward_pre_hooks"):
            return ReadResult(why="has forward hooks, which may change what it does")
        if claimed is None:
            return ReadResult(why=refusal(module))
        numbers = {what: self.draws.numbers.get(self._name(path, what)) for what in ("weight", "bias")}
        constants = {what: found.constant for what, found in numbers.items() if found is not None}
        context = ReadContext(axes, shape, path, claimed.name, constants=constants, tokens=tokens)
        if _weighted(claimed.kind):
            return self._random(path, module, claimed.meaning, context)
        found = claimed.meaning(module, context)
        return _with_constants(found, f"{path} ({type(module).__name__})", context) if found.affine else found

    def _random(
        self, path: str, module: nn.Module, say: Callable[[Any, ReadContext], ReadResult], context: ReadContext
    ) -> ReadResult:
        """A module whose weights are drawn: its kind gets their distribution; biases of one constant are a shift."""
        name = self._name(path, "weight")
        weight = tensor_at(self.model, name)
        if name not in self.estimates or weight is None:
            return ReadResult(why="its weights could not be drawn")
        sources = _sources(module, weight)
        shared = next((self.used[key] for key in sources if key in self.used), None)
        if shared is not None:
            what = "is called more than once" if shared == path else f"shares its weights with {shared}"
            return ReadResult(why=f"{what}; a description has new weights in every layer")
        self.used.update(dict.fromkeys(sources, path))
        weights, variances, constant = self.drawn(self.estimates[name], int(weight.shape[0]))
        meaning = say(module, replace(context, weights=weights))
        if meaning.why:
            return replace(meaning, zero=meaning.why == _ZERO and not constant)
        after: tuple[Layer, ...] = (Shift(constant),) if constant else ()
        notes = (f"{path} starts with biases of {constant:g}",) if constant else ()
        if weights.weight_var == 0.0:
            notes = (*notes, f"{path} starts with weights of 0: its output is its bias on all inputs")
        return replace(meaning, layers=(*meaning.layers, *after), notes=(*notes, *meaning.notes), variances=variances)

    def drawn(self, found: Estimate, units: int, size: float | None = None) -> Drawn:
        """What an estimate comes to; `size`: the mean square of weights that follow no rule, where more is known."""
        constant = None if found.bias is None else found.bias.constant
        fitting = found.choose(favourites(self.estimates.values()))
        rule, weight_var = fitting if found.weight.constant is None else ("zero", 0.0)
        if size is not None and rule == "measured":
            weight_var = found.fan_in * size
        bias_var = found.bias_var()
        zero = _ZERO if weight_var == 0.0 == bias_var else ""
        if rule == TORCH_DEFAULT and found.bias is not None and bias_var != found.default_bias:
            rule = f"{TORCH_DEFAULT} for weights, not for biases"
        weights = RandomWeights(weight_var, bias_var, units, found.weight.gain is not None, found.odd or zero)
        return Drawn(weights, found.variances(rule, self.draws.inits, found.weight.law), constant)


def _weighted(kind: type[Layer] | None) -> bool:
    return kind is not None and kind.weighted


def _with_constants(norm: ReadResult, what: str, context: ReadContext) -> ReadResult:
    """A norm and its parameters, all equal within each: (1, 0) adds nothing, others a scale and a shift."""
    odd = next((name for name, value in context.constants.items() if value is None), None)
    if odd is not None:
        return ReadResult(why=f"its {odd} differs from node to node at initialization")
    weight, bias = context.constants.get("weight"), context.constants.get("bias")
    layers, notes = norm.layers, norm.notes
    if weight not in (None, 1.0):
        layers, notes = (*layers, Scale(weight)), (*notes, f"{what} starts with weights of {weight:g}, not 1")
    if bias not in (None, 0.0):
        layers, notes = (*layers, Shift(bias)), (*notes, f"{what} starts with biases of {bias:g}, not 0")
    return replace(norm, layers=layers, notes=notes)


def _sources(module: nn.Module, weight: torch.Tensor) -> list[int]:
    """The ids of a module and of what its weights are made from: a parametrization makes new tensors at every look."""
    if not parametrize.is_parametrized(module, "weight"):
        return [id(module), id(weight)]
    made = cast(nn.Module, cast(Any, module).parametrizations["weight"])
    return [id(module), *(id(p) for name, p in made.named_parameters(recurse=False) if name.startswith("original"))]
