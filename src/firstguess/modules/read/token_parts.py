"""From modules of torch to pieces: what every family of transformers is read with."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import nn

from firstguess.modules.members.initializers import is_hugging_face_conv1d
from firstguess.modules.members.weight_statistics import Numbers
from firstguess.modules.read.dispatch import Modules, estimate, favourites
from firstguess.modules.read.result import Part
from firstguess.network.activations import registry
from firstguess.network.activations.record import Activation
from firstguess.network.layer import Layer, Variances, text
from firstguess.network.layers import (
    Activate,
    Attention,
    Dense,
    Embed,
    FirstToken,
    Gated,
    LayerNorm,
    Patches,
    PoolTokens,
    Positions,
    Residual,
    RMSNorm,
    Scale,
    TokenMix,
    Unembed,
)

# A piece of a model of tokens: a layer, and the model's own parameters that the layer's module would hold.

Tensors: TypeAlias = Callable[[str], torch.Tensor]  # a parameter by its name in the model


class Stop(Exception):
    """What cannot be read: where, which kind of module, and why."""

    def __init__(self, path: str, kind: str, why: str, before: Sequence[Piece] = ()) -> None:
        super().__init__(why)
        self.path, self.kind, self.why = path, kind, why
        self.before = tuple(before)  # what was read before it


@dataclass(frozen=True)
class ModelTensor:
    """A parameter of the model or some of its rows, as (units, inputs)."""

    name: str
    transposed: bool = False  # GPT-2's Conv1D: (inputs, units)
    rows: tuple[int, int | None] = (0, None)  # from, to

    def of(self, tensors: Tensors) -> torch.Tensor:
        value = tensors(self.name)
        value = value.T if self.transposed else value
        value = value.reshape(-1, value.shape[-1]) if value.ndim == 3 and len(value) == 1 else value  # (1, tokens, D)
        return value[slice(*self.rows)]


@dataclass(frozen=True)
class Matrix:
    """A dense layer's weight and bias, wherever the model keeps them."""

    path: str
    kind: str
    weight: ModelTensor
    bias: ModelTensor | None
    units: int
    inputs: int

    def part(self, start: int, stop: int) -> Matrix:
        """Some of its units: queries, keys or values of a fused layer."""
        bias = None if self.bias is None else ModelTensor(self.bias.name, rows=(start, stop))
        weight = ModelTensor(self.weight.name, self.weight.transposed, (start, stop))
        return Matrix(self.path, self.kind, weight, bias, stop - start, self.inputs)

    def thirds(self) -> tuple[Matrix, Matrix, Matrix]:
        """Queries, keys and values of a layer for all of them, one after another."""
        size = self.inputs
        return self.part(0, size), self.part(size, 2 * size), self.part(2 * size, 3 * size)


@dataclass(frozen=True)
class Fill:
    """What a module of a layer is filled with where it would draw: rows of these, one below the other."""

    weights: tuple[ModelTensor, ...]
    biases: tuple[ModelTensor | None, ...] = ()

    def weight(self, tensors: Tensors) -> torch.Tensor:
        return torch.cat([own.of(tensors) for own in self.weights])

    def bias(self, tensors: Tensors) -> torch.Tensor:
        """Zeros where the model has none."""
        weights = [own.of(tensors) for own in self.weights]
        pairs = zip(weights, self.biases, strict=True)
        return torch.cat([w.new_zeros(len(w)) if own is None else own.of(tensors) for w, own in pairs])


@dataclass(frozen=True, eq=False)
class Piece:
    """A layer as the model initializes it; `check`: the same with biases wherever the model has them, zero or not.

    `fills` come in the order in which the module of `check` draws.
    """

    layer: Layer
    check: Layer
    fills: tuple[Fill, ...] = ()
    parts: tuple[Part, ...] = ()


def plain(layer: Layer, *parts: Part) -> Piece:
    """A piece without weights."""
    return Piece(layer, layer, (), parts)


def residual(branch: Sequence[Piece], scale: float = 1.0) -> Piece:
    """x plus a branch."""
    return Piece(
        Residual(tuple(piece.layer for piece in branch), scale),
        Residual(tuple(piece.check for piece in branch), scale),
        tuple(fill for piece in branch for fill in piece.fills),
        tuple(part for piece in branch for part in piece.parts),
    )


# What flows through the graph of a model of tokens.

Form: TypeAlias = Literal["ids", "image", "grid", "grid, nodes last", "nodes first", "tokens", "vector"]


@dataclass(frozen=True, eq=False)
class TokenSignal:
    """The signal after some pieces: ids (n, T), an image, tokens (n, T, D) or, nodes first, (n, D, T), or a vector.

    `matrix` and `base`: the dense layer that it has just come through, and the signal before it; `phi`: then this.
    """

    pieces: tuple[Piece, ...]
    form: Form
    base: TokenSignal | None = None
    matrix: Matrix | None = None
    phi: Activation | None = None


@dataclass(frozen=True, eq=False)
class DenseView:
    """What a dense layer makes of tokens, reshaped or in part: queries, keys, values, or the halves of a gate."""

    base: TokenSignal
    matrix: Matrix
    phi: Activation | None = None


@dataclass(frozen=True, eq=False)
class Several:
    """A tuple of signals."""

    items: tuple[Value | None, ...]


@dataclass(frozen=True, eq=False)
class Scores:
    """Logits of attention, or its weights."""

    query: DenseView
    key: DenseView
    heads: int
    causal: bool = False
    weights: bool = False


@dataclass(frozen=True, eq=False)
class Attended:
    """What heads take of the values; an output layer follows."""

    views: tuple[DenseView, DenseView, DenseView]
    heads: int
    causal: bool


@dataclass(frozen=True, eq=False)
class Mixing:
    """Dense layers over the tokens of every node, between two transpositions."""

    base: TokenSignal
    first: Matrix
    phi: Activation | None = None
    second: Matrix | None = None


Value: TypeAlias = TokenSignal | DenseView | Several | Scores | Attended | Mixing


# Laws of a model's parameters: which variance a description has for them.

_SIGMAS = 5.0  # in which two sizes may differ and be the same


def stop(model: nn.Module, path: str, why: str) -> Stop:
    """What cannot be read, by its path."""
    return Stop(path, type(model.get_submodule(path)).__name__, why)


class DenseVariances(NamedTuple):
    """σw² and σb² of a dense layer, as chosen; `variances` are what was measured."""

    weight_var: float
    bias_var: float
    variances: Variances


class Laws:
    """What the parameters of one model are drawn from."""

    def __init__(self, modules: Modules) -> None:
        self.model, self.draws, self._modules = modules.model, modules.draws, modules
        self._sizes: dict[str, float] = {}  # E w² of distributions that follow no rule
        self._measure_sizes()

    def numbers(self, name: str, path: str) -> Numbers:
        """Statistics of a parameter over draws."""
        found = self.draws.numbers.get(name)
        if found is None or not found.count:
            raise stop(self.model, path, f"its {name.rpartition('.')[2]} could not be drawn")
        return self._once(name, found)

    def _once(self, name: str, found: Numbers) -> Numbers:
        """Numbers of one draw where all draws have the same values: a parameter that no initializer draws."""
        value = attrgetter(name)(self.model).detach()  # an old spectral_norm's is no parameter
        if found.constant is not None or found.count <= value.numel() or float(value.max()) != found.high:
            return found
        own = Numbers.of(value)
        same = own.low == found.low and math.isclose(own.mean_square, found.mean_square, rel_tol=1e-9)
        return own if same else found

    def dense(self, matrix: Matrix) -> DenseVariances:
        """A dense layer's variances, by the rule that they fit."""
        weight = self.numbers(matrix.weight.name, matrix.path)
        bias = None if matrix.bias is None else self.numbers(matrix.bias.name, matrix.path)
        shape = self.model.get_parameter(matrix.weight.name).shape
        shape = torch.Size([shape[1], shape[0]]) if matrix.weight.transposed else shape
        known = self._modules.estimates
        if matrix.weight.name not in known or known[matrix.weight.name].weight is not weight:
            known[matrix.weight.name] = estimate(weight, bias, shape, self._modules.init)
        found = known[matrix.weight.name]
        why = found.odd
        if weight.constant is not None:
            why = f"its weights all start with {weight.constant:g}"
        elif bias is not None and bias.constant not in (None, 0.0):
            why = f"its biases start with {bias.constant:g}: a description has 0 or random ones"
        if why:
            raise stop(self.model, matrix.path, why)
        rule, value = found.choose(favourites(known.values()))
        if rule == "measured":
            value = found.fan_in * self._sizes[matrix.weight.name]
        return DenseVariances(_rounded(value), found.bias_var(), found.variances(rule, self.draws.count))

    def _measure_sizes(self) -> None:
        """E w²: a rounder number that fits, else one for all parameters of the model that cannot be told apart.

        The best known ones come first, so that others may join them.
        """
        found: list[tuple[float, float]] = []  # E w², its standard error
        scales = [1.0, 2.0 * self._depth(), float(self._depth())]  # of GPT-2's last weights of a branch
        likely = [digit * 10.0**-k / scale**0.5 for scale in scales for k in range(4) for digit in (1.0, 2.0, 5.0)]
        random = {n: x for n, x in self.draws.numbers.items() if x.count and x.constant is None}
        for name in sorted(random, key=lambda n: -random[n].count):
            numbers = self._once(name, random[name])
            if numbers is not random[name]:
                self._sizes[name] = numbers.mean_square
                continue
            own = numbers.mean_square / (1.0 - self._empty(name))
            error = own * math.sqrt(max(numbers.kurtosis - 1.0, 0.1) / numbers.count)
            rounder = (
                [std * std for std in likely if abs(std * std - own) <= _SIGMAS * error] if error < 0.02 * own else []
            )
            same = [value for value, se in found if abs(value - own) <= _SIGMAS * math.hypot(error, se)]
            self._sizes[name] = (rounder or same or [own])[0]
            if not rounder and not same:
                found.append((own, error))

    def _depth(self) -> int:
        """How many blocks there are: the longest list of modules."""
        lists = [len(m) for m in self.model.modules() if isinstance(m, (nn.ModuleList, nn.Sequential))]
        return max([1, *lists])

    def _empty(self, name: str) -> float:
        """The part of an embedding's rows that are 0: that of padding."""
        table: Any = self.model.get_submodule(name.rpartition(".")[0])
        if not isinstance(table, nn.Embedding) or table.padding_idx is None or table.num_embeddings < 2:
            return 0.0
        return 0.0 if bool(table.weight[table.padding_idx].any()) else 1.0 / table.num_embeddings

    def std(self, name: str, path: str) -> float:
        """The standard deviation of an embedding's entries; a row of padding, which is 0, does not count."""
        numbers = self.numbers(name, path)
        if numbers.constant is not None:
            if numbers.constant != 0.0:
                raise stop(self.model, path, f"{name} starts with {numbers.constant:g} everywhere")
            return 0.0
        if numbers.off_centre:
            raise stop(self.model, path, f"{name} has a mean other than 0, which the theory does not cover")
        return _rounded(math.sqrt(self._sizes[name]))


def _rounded(value: float) -> float:
    """√(0.02²) as 0.02."""
    near = float(f"{value:.12g}")
    return near if math.isclose(near, value, rel_tol=1e-14) else value


_GRID = torch.linspace(-9.0, 9.0, 601, dtype=torch.float64)


class Builder:
    """Pieces of one model, with the distributions of its parameters over draws."""

    def __init__(self, modules: Modules) -> None:
        self.model, self.laws = modules.model, Laws(modules)
        self.notes: list[str] = []
        self.norms: set[str] = set()  # parameters of norms: one constant each

    def kind(self, path: str) -> str:
        return type(self.model.get_submodule(path)).__name__

    def stop(self, path: str, why: str) -> Stop:
        return stop(self.model, path, why)

    # Matrices

    def matrix(self, path: str) -> Matrix:
        """A dense layer by its path."""
        module: Any = self.model.get_submodule(path)
        kind = type(module).__name__
        conv1d = is_hugging_face_conv1d(module)
        if not conv1d and not (isinstance(module, nn.Linear) and type(module).forward is nn.Linear.forward):
            raise self.stop(path, "not a dense layer that a description has")
        if vars(module).get("_forward_hooks") or vars(module).get("_forward_pre_hooks"):
            raise self.stop(path, "has forward hooks, which may change what it does")
        shape = tuple(reversed(module.weight.shape)) if conv1d else tuple(module.weight.shape)
        bias = None if getattr(module, "bias", None) is None else ModelTensor(f"{path}.bias")
        return Matrix(path, kind, ModelTensor(f"{path}.weight", conv1d), bias, shape[0], shape[1])

    # Pieces

    def dense(self, *matrices: Matrix, width: bool = True) -> Piece:
        """One dense layer, or several on the same input side by side (gate and up)."""
        first = matrices[0]
        laws = [self.laws.dense(matrix) for matrix in matrices]
        self._same(first.path, "gate and up", [law.weight_var for law in laws], [law.bias_var for law in laws])
        units = sum(matrix.units for matrix in matrices) if width else None
        layer = Dense(laws[0].weight_var, laws[0].bias_var, units)
        biased = any(matrix.bias is not None for matrix in matrices)
        fill = Fill(tuple(m.weight for m in matrices), tuple(m.bias for m in matrices))
        parts = tuple(
            Part(m.path, m.kind, text(replace(layer, width=m.units if width else None)), law.variances)
            for m, law in zip(matrices, laws, strict=True)
        )
        return Piece(layer, replace(layer, bias_var=1.0) if biased else layer, (fill,), parts)

    def _same(self, path: str, what: str, *values: list[float]) -> None:
        if any(max(v) - min(v) > 1e-12 * max(v) for v in values):
            raise self.stop(path, f"{what} are drawn with different variances; a description has one for them")

    def attention(
        self,
        path: str,
        three: tuple[Matrix, Matrix, Matrix],
        out: Matrix,
        heads: int,
        *,
        causal: bool,
        base: float | None = None,
        groups: int | None = None,
        window: int | None = None,
    ) -> Piece:
        """Queries, keys, values, and the output; `base` of rotary positions, `groups` of keys and values."""
        width = three[0].inputs
        few = heads if groups is None else groups
        units = [width, width * few // heads, width * few // heads]
        if [m.units for m in three] != units or (out.units, out.inputs) != (width, width):
            raise self.stop(path, "its heads together are not as wide as the stream; a description's are")
        laws, last = [self.laws.dense(matrix) for matrix in three], self.laws.dense(out)
        self._same(path, "queries, keys and values", [law.weight_var for law in laws])
        self._same(path, "biases of queries, keys and values", [law.bias_var for law in laws])
        bias_var = laws[0].bias_var
        layer = Attention(
            heads,
            causal,
            base is not None,
            weight_var=laws[0].weight_var,
            out_var=None if last.weight_var == laws[0].weight_var else last.weight_var,
            bias_var=bias_var,
            out_bias_var=None if last.bias_var == bias_var else last.bias_var,
            base=10000.0 if base is None else base,
            groups=None if few == heads else few,
            window=window,
        )
        biased = any(matrix.bias is not None for matrix in (*three, out))
        fills = (Fill(tuple(m.weight for m in three), tuple(m.bias for m in three)), Fill((out.weight,), (out.bias,)))
        roles = (
            ("queries", "keys", "values") if len({m.path for m in three}) == 3 else ("queries, keys and values",) * 3
        )
        rows = {
            m.path: Part(m.path, m.kind, f"{role} of attention", law.variances)
            for m, law, role in zip((*three, out), (*laws, last), (*roles, "output"), strict=True)
        }
        parts = [part for part in rows.values() if part.path != path]
        check = replace(layer, bias_var=1.0, out_bias_var=1.0) if biased else layer
        return Piece(
            layer,
            check,
            fills,
            (Part(path, self.kind(path), text(layer), rows[path].variances if path in rows else None), *parts),
        )

    def norm(self, path: str) -> list[Piece]:
        """LayerNorm or RMSNorm over the nodes of a token, with its ε; weights other than 1 are a scale."""
        module: Any = self.model.get_submodule(path)
        kind = type(module).__name__
        if isinstance(module, nn.LayerNorm) and type(module).forward is nn.LayerNorm.forward:
            shape, layer = module.normalized_shape, LayerNorm(eps=module.eps)
        elif kind.endswith("RMSNorm"):
            eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
            shape = tuple(module.weight.shape) if module.weight is not None else module.normalized_shape
            layer = RMSNorm(eps=torch.finfo(torch.float32).eps if eps is None else float(eps))
        else:
            raise self.stop(path, "not a norm of nodes that a description has")
        if len(shape) != 1:
            raise self.stop(path, "normalizes over more than the nodes of a token")
        constants = {}
        for what, _ in module.named_parameters(recurse=False):
            self.norms.add(f"{path}.{what}")
            constants[what] = self.laws.numbers(f"{path}.{what}", path).constant
        weight, bias = constants.get("weight", 1.0), constants.get("bias", 0.0)
        if weight is None or bias is None or bias != 0.0:
            raise self.stop(path, "its weights and biases do not start as one constant and 0")
        found = [plain(layer, Part(path, kind, text(layer)))]
        if weight != 1.0:
            self.notes.append(f"{path} starts with weights of {weight:g}, not 1")
            found.append(plain(Scale(weight)))
        return found

    def embed(self, path: str, types: str | None = None) -> Piece:
        """Token vectors; `types`: the table of segments, of which all tokens have the first."""
        module: Any = self.model.get_submodule(path)
        if not isinstance(module, nn.Embedding) or module.max_norm is not None:
            raise self.stop(path, "not a table of token vectors that a description has")
        std = self.laws.std(f"{path}.weight", path)
        more = 0.0 if types is None else self.laws.std(f"{types}.weight", types)
        layer = Embed(std, width=module.embedding_dim, types=more)
        fills, check = (Fill((ModelTensor(f"{path}.weight"),)),), replace(layer, vocabulary=module.num_embeddings)
        parts = [Part(path, type(module).__name__, text(layer))]
        if types is not None:
            fills = (*fills, Fill((ModelTensor(f"{types}.weight", rows=(0, 1)),)))
            check = replace(check, types=more or 1.0)
            parts.append(Part(types, self.kind(types), ""))
        return Piece(layer, check, fills, tuple(parts))

    def positions(self, name: str, path: str, *, start: int = 0) -> Piece:
        """A vector for every place; `start`: the row of the first."""
        layer = Positions(self.laws.std(name, path))
        fill = Fill((ModelTensor(name, rows=(start, None)),))
        return Piece(layer, layer, (fill,), (Part(path, self.kind(path), text(layer)),))

    def first_token(self, name: str, path: str) -> Piece:
        layer = FirstToken(self.laws.std(name, path))
        return Piece(layer, layer, (Fill((ModelTensor(name),)),), (Part(path, self.kind(path), text(layer)),))

    def patches(self, path: str) -> Piece:
        """A convolution whose kernels lie side by side."""
        conv: Any = self.model.get_submodule(path)
        if not isinstance(conv, nn.Conv2d) or type(conv).forward is not nn.Conv2d.forward:
            raise self.stop(path, "not a convolution that cuts patches")
        size = conv.kernel_size[0]
        plainly = conv.padding in ((0, 0), "valid") and conv.groups == 1 and conv.dilation == (1, 1)
        if conv.kernel_size != (size, size) or conv.stride != (size, size) or not plainly:
            raise self.stop(
                path, "its kernels do not lie side by side: patches of a description are square and do not overlap"
            )
        bias = None if conv.bias is None else ModelTensor(f"{path}.bias")
        matrix = Matrix(
            path, "Conv2d", ModelTensor(f"{path}.weight"), bias, conv.out_channels, math.prod(conv.weight.shape[1:])
        )
        law = self.laws.dense(matrix)
        layer = Patches(size, weight_var=law.weight_var, bias_var=law.bias_var, width=conv.out_channels)
        check = layer if bias is None else replace(layer, bias_var=1.0)
        return Piece(
            layer, check, (Fill((matrix.weight,), (bias,)),), (Part(path, "Conv2d", text(layer), law.variances),)
        )

    def tokenmix(self, first: Matrix, phi: Activation, second: Matrix) -> Piece:
        """Two dense layers over tokens."""
        laws = [self.laws.dense(first), self.laws.dense(second)]
        one, other = laws
        layer = TokenMix(
            first.units,
            phi,
            weight_var=one.weight_var,
            out_var=None if one.weight_var == other.weight_var else other.weight_var,
            bias_var=one.bias_var,
            out_bias_var=None if one.bias_var == other.bias_var else other.bias_var,
        )
        fills = tuple(Fill((m.weight,), (m.bias,)) for m in (first, second))
        parts = (
            Part(first.path, first.kind, text(layer), laws[0].variances),
            Part(second.path, second.kind, "", laws[1].variances),
        )
        biased = first.bias is not None or second.bias is not None
        check = replace(layer, bias_var=1.0, out_bias_var=1.0) if biased else layer
        return Piece(layer, check, fills, parts)

    def phi(self, function: Callable[[torch.Tensor], torch.Tensor], path: str, kind: str) -> Activation:
        """An activation by its values."""
        try:
            with torch.no_grad():
                values = function(_GRID.clone()).numpy()
        except Exception:  # of a function that is no activation: it takes no row of numbers
            raise Stop(path, kind, "not an activation that a description has") from None
        for phi in map(registry.activation, registry.names()):
            if values.shape == _GRID.shape and np.abs(phi.offset + phi.rise(_GRID.numpy()) - values).max() < 1e-6:
                return phi
        raise Stop(path, kind, "not an activation that a description has")

    def activate(self, function: Callable[[torch.Tensor], torch.Tensor], path: str, kind: str | None = None) -> Piece:
        kind = self.kind(path) if kind is None else kind
        layer = Activate(self.phi(function, path, kind))
        return plain(layer, Part(path, kind, text(layer)))

    def mlp(self, layers: Sequence[str], function: Callable[[torch.Tensor], torch.Tensor], act: str) -> list[Piece]:
        """Widen, bend, narrow; of three layers the first is a gate. `act`: the path that names the activation."""
        *wide, last = (self.matrix(path) for path in layers)
        bend = self.activate(function, act)
        if len(wide) > 1:
            gate = Gated(self.phi(function, act, self.kind(act)))
            bend = plain(gate, Part(act, self.kind(act), text(gate)))
        return [self.dense(*wide), bend, self.dense(last, width=False)]

    def unembed(self, matrix: Matrix, *, tied: bool) -> Piece:
        """A language model's head; the embedding's own vectors are filled in with the embedding."""
        if tied:
            return plain(Unembed(True), Part(matrix.path, matrix.kind, text(Unembed(True))))
        law = self.laws.dense(matrix)
        known = self.laws.draws.numbers[matrix.weight.name].law  # lengths of rows matter here: theory.md (52)
        layer = Unembed(weight_var=law.weight_var, init=known or "normal")
        return Piece(
            layer, layer, (Fill((matrix.weight,)),), (Part(matrix.path, matrix.kind, text(layer), law.variances),)
        )

    def pool(self, at: Any) -> Piece:
        return plain(PoolTokens(at))
