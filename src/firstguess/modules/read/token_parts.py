"""From modules of torch to layers of tokens, and the guard of such a reading: with the model's weights, its outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

import numpy as np
import torch
from torch import nn

from firstguess.base.errors import FirstguessError
from firstguess.data.streams import IsolatedRandomness
from firstguess.ensemble.member_module import resolve
from firstguess.modules.guard import own_copy
from firstguess.modules.members.initializers import is_hugging_face_conv1d
from firstguess.modules.members.weight_statistics import Numbers
from firstguess.modules.read.dispatch import Drawn, Modules, estimate
from firstguess.modules.read.result import Part
from firstguess.network import layers as kinds
from firstguess.network.activations import registry
from firstguess.network.activations.record import Activation
from firstguess.network.layer import Layer, Variances, text
from firstguess.network.layers import Activate, Dense, Embed, Gated, PoolTokens, Residual, Unembed
from firstguess.network.network import Network
from firstguess.network.tensors import Place, Weights
from firstguess.network.torch_ops import join

Tensors: TypeAlias = Callable[[str], torch.Tensor]  # a parameter by its name in the model


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


@dataclass
class Filled:
    """How layers that were read are filled: by identity, since layers that are equal have weights of their own."""

    own: dict[int, tuple[Layer, Layer, tuple[Fill, ...]]] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set[str])  # parameters of norms: one constant each

    def add(self, layer: Layer, check: Layer, *fills: Fill) -> None:
        """`check`: the layer with biases wherever the model has them; its module draws `fills` in this order."""
        self.own[id(layer)] = layer, check, fills

    def checks(self, layers: Sequence[Layer]) -> tuple[Layer, ...]:
        """The layers as they are compared."""
        found = (self.own[id(x)][1] if id(x) in self.own else x for x in layers)
        return tuple(x.with_paths(self.checks) if x.paths else x for x in found)

    def fills(self, layers: Sequence[Layer]) -> Iterator[Fill]:
        """What they are filled with, in the order of drawing."""
        for layer in layers:
            for path in layer.paths:
                yield from self.fills(path)
            yield from self.own[id(layer)][2] if id(layer) in self.own else ()


@dataclass
class _Weights:
    """Stand in for a member's draws: the model's own parameters, one after another; at last the identity."""

    fills: list[Fill]
    tensors: Tensors
    used: int = field(default=0)

    def fill(self, module: nn.Module, weights: Weights) -> nn.Module:
        parameter = module.get_parameter("weight")
        with torch.no_grad():
            if self.used >= len(self.fills):
                parameter.copy_(torch.eye(*parameter.shape))
                return module
            one = self.fills[self.used]
            self.used += 1
            value = one.weight(self.tensors)
            value = value[: len(parameter)] if parameter.ndim == 2 and value.ndim == 2 else value  # places of the table
            module.to(value.dtype)
            parameter = module.get_parameter("weight")
            parameter.copy_(value.reshape(parameter.shape))
            if weights.bias_var > 0.0:
                module.get_parameter("bias").copy_(one.bias(self.tensors))
        return module

    def path(self, places: Sequence[Place]) -> nn.Sequential:
        return nn.Sequential(*(place.layer.module(place, self) for place in places))


_TOLERANCE = {torch.float64: 1e-4, torch.float32: 1e-3}  # of the outputs' own size
_LARGE = 3_000_000  # parameters from which on there is no copy in double precision
_BIASES = 0.3


def difference(
    model: nn.Module,
    layers: Sequence[Layer],
    filled: Filled,
    inputs: torch.Tensor,
    call: Callable[[nn.Module, torch.Tensor], torch.Tensor],
    *,
    head: bool,
    ending: Callable[[torch.Tensor], torch.Tensor] = lambda x: x,
) -> str:
    """Why the description with the model's weights does not give the model's outputs; "": it does.

    `call` gives the model's outputs (1, …, classes) for one input; without a `head` they are tokens or nodes. Twice:
    with the weights as they are drawn, where ε counts, and with larger ones and all biases, where attention is far from
    uniform. `ending`: what the model does to logits. Nothing of the model is changed.
    """
    one = own_copy(model)
    if one is None:
        return "the model cannot be copied, so it could not be compared with its description"
    one = one.eval().requires_grad_(False)
    one = one.double() if sum(p.numel() for p in one.parameters()) < _LARGE else one.float()
    given = inputs.to(next(one.parameters()).dtype) if inputs.is_floating_point() else inputs
    why = ""
    with IsolatedRandomness(0), torch.no_grad():
        for larger in (False, True):
            # Weights that make logits of attention differ by about 1, and biases; norms stay as they are.
            for name, parameter in one.named_parameters() if larger else ():
                size = parameter[0].numel() ** -0.5 if parameter.ndim > 1 else _BIASES
                if name not in filled.kept:
                    parameter.add_(torch.randn_like(parameter) * min(size, 1.0))
            try:
                why = why or _apart(one, layers, filled, given, call, head, ending)
            except FirstguessError as error:
                why = f"the description does not fit the model: {error}"
            except Exception as error:  # of a model that does not take these inputs, or a shape that does not fit
                why = f"it could not be compared with its description ({type(error).__name__}: {error})"
    return why.partition("\n")[0] or _shared(model, list(filled.fills(layers)))


def _apart(
    model: nn.Module,
    layers: Sequence[Layer],
    filled: Filled,
    inputs: torch.Tensor,
    call: Callable[..., Any],
    head: bool,
    ending: Callable[[torch.Tensor], torch.Tensor],
) -> str:
    wanted = torch.cat([call(model, x[None]) for x in inputs])
    checks = [*filled.checks(layers)]
    padding = getattr(checks[0], "padding", None)
    real = torch.ones(wanted.shape[:2]) if padding is None or wanted.ndim < 3 else (inputs != padding)
    if not head:  # the mean over tokens, through an identity
        if wanted.ndim == 3:
            wanted = (wanted * real.unsqueeze(2)).sum(1) / real.sum(1, keepdim=True)
            checks.append(PoolTokens("mean"))
        checks.append(Dense())
    network = Network(tuple(checks), wanted.shape[-1])
    vocabulary = getattr(checks[0], "vocabulary", None)
    places = resolve(network, tuple(inputs.shape[1:]), width=2, inputs=lambda: None, vocabulary=vocabulary)
    weights = _Weights(list(filled.fills(layers)), model.get_parameter)
    twin = weights.path(places).to(wanted.dtype)
    join(twin)
    if weights.used != len(weights.fills):
        return "the description has no place for some of the model's weights"
    found = ending(twin(inputs))
    if wanted.ndim == 3:  # a guess at every token: those of padding are nobody's
        found, wanted = (x[real.bool()] for x in (found, wanted))
    size = max(float(wanted.double().pow(2).mean().sqrt()), 1e-30)
    worst = float((found - wanted).abs().max()) / size
    if worst <= _TOLERANCE[wanted.dtype]:
        return ""
    return f"its description, with the same weights, gives other outputs (by {worst:.1e} of their size)"


def _shared(model: nn.Module, fills: Sequence[Fill]) -> str:
    """Why weights that are used twice have no description; "": none are."""
    used = [(id(model.get_parameter(own.name)), own.rows, own.name) for one in fills for own in one.weights]
    seen = {one[:2] for one in used}
    if len(seen) == len(used):
        return ""
    name = next(name for *key, name in used if sum(other[:2] == tuple(key) for other in used) > 1)
    return f"{name} is used more than once; a description has new weights in every layer"


class Piece(NamedTuple):
    """A layer, and the parts of the model that it comes from."""

    layer: Layer
    parts: tuple[Part, ...] = ()


class Stop(Exception):
    """What cannot be read: where, which kind of module, and why."""

    def __init__(self, path: str, kind: str, why: str, before: Sequence[Piece] = ()) -> None:
        super().__init__(why)
        self.path, self.kind, self.why = path, kind, why
        self.before = tuple(before)  # what was read before it


def residual(branch: Sequence[Piece]) -> Piece:
    """x plus a branch."""
    layer = Residual(tuple(piece.layer for piece in branch))
    return Piece(layer, tuple(part for piece in branch for part in piece.parts))


@dataclass(frozen=True)
class Matrix:
    """A dense layer's weight and bias, wherever the model keeps them."""

    path: str
    weight: ModelTensor
    bias: ModelTensor | None
    units: int
    inputs: int

    def part(self, start: int, stop: int) -> Matrix:
        """Some of its units: queries, keys or values of a fused layer."""
        bias = None if self.bias is None else ModelTensor(self.bias.name, rows=(start, stop))
        weight = ModelTensor(self.weight.name, self.weight.transposed, (start, stop))
        return Matrix(self.path, weight, bias, stop - start, self.inputs)

    def thirds(self) -> tuple[Matrix, Matrix, Matrix]:
        """Queries, keys and values of a layer for all of them, one after another."""
        size = self.inputs
        return self.part(0, size), self.part(size, 2 * size), self.part(2 * size, 3 * size)


_Kind = TypeVar("_Kind", bound=Layer)
_SIGMAS = 5.0  # in which two sizes may differ and be the same
_GRID = torch.linspace(-9.0, 9.0, 601, dtype=torch.float64)


def _rounded(value: float) -> float:
    """√(0.02²) as 0.02."""
    near = float(f"{value:.12g}")
    return near if math.isclose(near, value, rel_tol=1e-14) else value


class Builder:
    """Pieces of one model, with the distributions of its parameters over draws."""

    def __init__(self, modules: Modules) -> None:
        self.model, self.modules = modules.model, modules
        self.filled = Filled()
        self.notes: list[str] = []

    def kind(self, path: str) -> str:
        return type(self.model.get_submodule(path)).__name__

    def stop(self, path: str, why: str) -> Stop:
        """What cannot be read, by its path."""
        return Stop(path, self.kind(path), why)

    def _piece(self, layer: Layer, check: Layer, fills: Sequence[Fill], *parts: Part) -> Piece:
        """A layer that is compared as `check`, with biases wherever the model has them."""
        self.filled.add(layer, check, *fills)
        return Piece(layer, parts)

    def changed(self, piece: Piece, **arguments: Any) -> Piece:
        """The same piece with other arguments."""
        layer, check, fills = self.filled.own[id(piece.layer)]
        layer, check = (cast(Layer, replace(cast(Any, one), **arguments)) for one in (layer, check))
        return self._piece(layer, check, fills, *piece.parts)

    # Distributions: parameters by name, wherever they are, and sizes that several of them share

    def _numbers(self, name: str, path: str) -> Numbers:
        """Statistics of a parameter: of one draw where all draws have the same values, as no initializer draws it."""
        found = self.modules.draws.numbers.get(name)
        if found is None or not found.count:
            raise self.stop(path, f"its {name.rpartition('.')[2]} could not be drawn")
        value = attrgetter(name)(self.model).detach()  # an old spectral_norm's is no parameter
        if found.constant is not None or found.count <= value.numel() or float(value.max()) != found.high:
            return found
        own = Numbers.of(value)
        same = own.low == found.low and math.isclose(own.mean_square, found.mean_square, rel_tol=1e-9)
        return own if same else found

    def _drawn(self, matrix: Matrix) -> Drawn:
        """What a matrix is drawn from, by the rule that it fits."""
        name, known = matrix.weight.name, self.modules.estimates
        weight = self._numbers(name, matrix.path)
        bias = None if matrix.bias is None else self._numbers(matrix.bias.name, matrix.path)
        if name not in known or known[name].weight is not weight:
            shape = self.model.get_parameter(name).shape
            shape = torch.Size([shape[1], shape[0]]) if matrix.weight.transposed else shape
            known[name] = estimate(weight, bias, shape, self.modules.init)
        found = self.modules.drawn(known[name], matrix.units, self._sizes.get(name))
        why = known[name].odd
        if weight.constant is not None:
            why = f"its weights all start with {weight.constant:g}"
        elif found.constant:
            why = f"its biases start with {found.constant:g}: a description has 0 or random ones"
        if why:
            raise self.stop(matrix.path, why)
        weights = replace(found.weights, weight_var=_rounded(found.weights.weight_var))
        return found._replace(weights=weights, variances=replace(found.variances, distribution=""))

    @cached_property
    def _sizes(self) -> dict[str, float]:
        """E w² by name: a rounder number that fits, else one for all parameters that cannot be told apart.

        The best known ones come first, so that others may join them.
        """
        sizes, found = dict[str, float](), list[tuple[float, float]]()  # E w², its standard error
        depth = max([1, *(len(m) for m in self.model.modules() if isinstance(m, (nn.ModuleList, nn.Sequential)))])
        scales = [1.0, 2.0 * depth, float(depth)]  # of GPT-2's last weights of a branch
        likely = [digit * 10.0**-k / scale**0.5 for scale in scales for k in range(4) for digit in (1.0, 2.0, 5.0)]
        random = {n: x for n, x in self.modules.draws.numbers.items() if x.count and x.constant is None}
        for name in sorted(random, key=lambda n: -random[n].count):
            numbers = self._numbers(name, "")
            if numbers is not random[name]:
                sizes[name] = numbers.mean_square
                continue
            own = numbers.mean_square / (1.0 - self._empty(name))
            error = own * math.sqrt(max(numbers.kurtosis - 1.0, 0.1) / numbers.count)
            close = [std * std for std in likely if abs(std * std - own) <= _SIGMAS * error]
            rounder = close if error < 0.02 * own else []
            same = [value for value, se in found if abs(value - own) <= _SIGMAS * math.hypot(error, se)]
            sizes[name] = (rounder or same or [own])[0]
            if not rounder and not same:
                found.append((own, error))
        return sizes

    def _empty(self, name: str) -> float:
        """The part of an embedding's rows that are 0: that of padding."""
        table: Any = self.model.get_submodule(name.rpartition(".")[0])
        if not isinstance(table, nn.Embedding) or table.padding_idx is None or table.num_embeddings < 2:
            return 0.0
        return 0.0 if bool(table.weight[table.padding_idx].any()) else 1.0 / table.num_embeddings

    def _std(self, name: str, path: str) -> float:
        """The standard deviation of vectors that are looked up or added as they are, padding apart."""
        numbers = self._numbers(name, path)
        if numbers.constant:
            raise self.stop(path, f"{name} starts with {numbers.constant:g} everywhere")
        if numbers.off_centre:
            raise self.stop(path, f"{name} has a mean other than 0, which the theory does not cover")
        return 0.0 if numbers.constant is not None else _rounded(math.sqrt(self._sizes[name]))

    # Matrices

    def matrix(self, path: str) -> Matrix:
        """A dense layer by its path."""
        module: Any = self.model.get_submodule(path)
        conv1d = is_hugging_face_conv1d(module)
        if not conv1d and not (isinstance(module, nn.Linear) and type(module).forward is nn.Linear.forward):
            raise self.stop(path, "not a dense layer that a description has")
        if vars(module).get("_forward_hooks") or vars(module).get("_forward_pre_hooks"):
            raise self.stop(path, "has forward hooks, which may change what it does")
        shape = tuple(reversed(module.weight.shape)) if conv1d else tuple(module.weight.shape)
        bias = None if getattr(module, "bias", None) is None else ModelTensor(f"{path}.bias")
        return Matrix(path, ModelTensor(f"{path}.weight", conv1d), bias, shape[0], shape[1])

    # Pieces

    def _weighted(
        self, kind: Callable[..., _Kind], *groups: Sequence[Matrix], path: str, what: str = "", **arguments: Any
    ) -> tuple[_Kind, dict[str, Variances]]:
        """A layer with these weights, of which those of a group lie side by side, and what was measured by path."""
        given, found = dict[str, Any](), dict[str, Variances]()
        for names, group in zip((("weight_var", "bias_var"), ("out_var", "out_bias_var")), groups, strict=False):
            drawn = [self._drawn(matrix) for matrix in group]
            found |= {matrix.path: one.variances for matrix, one in zip(group, drawn, strict=True)}
            for name, said in zip(names, (what, f"biases of {what}"), strict=True):
                values = [one.weights.bias_var if "bias" in name else one.weights.weight_var for one in drawn]
                if max(values) - min(values) > 1e-12 * max(values):
                    why = f"{said} are drawn with different variances; a description has one for them"
                    raise self.stop(path, why)
                given[name] = values[0]
        for name, first in (("out_var", "weight_var"), ("out_bias_var", "bias_var")):
            if name in given and given[name] == given[first]:
                given[name] = None
        layer = kind(**arguments, **given)
        biased = any(matrix.bias is not None for group in groups for matrix in group)
        check = replace(cast(Any, layer), **{name: 1.0 for name in given if "bias" in name and biased})
        fills = (Fill(tuple(m.weight for m in group), tuple(m.bias for m in group)) for group in groups)
        self.filled.add(layer, check, *fills)
        return layer, found

    def dense(self, *matrices: Matrix, width: bool = True) -> Piece:
        """One dense layer, or several on the same input side by side (gate and up)."""
        units = sum(matrix.units for matrix in matrices) if width else None
        layer, found = self._weighted(Dense, matrices, path=matrices[0].path, what="gate and up", width=units)
        own = ((m.path, text(replace(layer, width=m.units if width else None))) for m in matrices)
        return Piece(layer, tuple(Part(path, self.kind(path), said, found[path]) for path, said in own))

    def attention(
        self,
        path: str,
        three: tuple[Matrix, Matrix, Matrix],
        out: Matrix,
        heads: int,
        *,
        base: float | None = None,
        groups: int | None = None,
        **how: Any,
    ) -> Piece:
        """Queries, keys, values, and the output; `base` of rotary positions, `groups` of keys and values."""
        width = three[0].inputs
        few = heads if groups is None else groups
        units = [width, width * few // heads, width * few // heads]
        if [m.units for m in three] != units or (out.units, out.inputs) != (width, width):
            raise self.stop(path, "its heads together are not as wide as the stream; a description's are")
        how |= {"rotary": base is not None, "groups": None if few == heads else few}
        how |= {} if base is None else {"base": base}
        what = "queries, keys and values"
        layer, found = self._weighted(kinds.Attention, three, (out,), path=path, what=what, heads=heads, **how)
        roles = ("queries", "keys", "values") if len({m.path for m in three}) == 3 else (what,) * 3
        said = {m.path: f"{role} of attention" for m, role in zip((*three, out), (*roles, "output"), strict=True)}
        parts = (Part(at, self.kind(at), role, found[at]) for at, role in said.items() if at != path)
        return Piece(layer, (Part(path, self.kind(path), text(layer), found.get(path)), *parts))

    def module(self, path: str, axes: int | None = None) -> list[Piece]:
        """A module by its class, as on vectors: a norm over the nodes of a token, an activation, dropout."""
        module = self.model.get_submodule(path)
        found = self.modules.meaning(path, axes, tokens=True)
        if found.why and not any(True for _ in module.parameters()) and not any(True for _ in module.children()):
            return [self.activate(module, path)]
        if found.why or any(not layer.by_token or layer.weighted for layer in found.layers):
            raise self.stop(path, found.why or "not a layer that a description of tokens has")
        self.notes += found.notes
        self.filled.kept.update(f"{path}.{name}" for name, _ in module.named_parameters(recurse=False))
        part = Part(path, self.kind(path), " > ".join(text(x) for x in found.layers), found.variances)
        return [Piece(layer, () if i else (part,)) for i, layer in enumerate(found.layers)]

    def embed(self, path: str, types: str | None = None) -> Piece:
        """Token vectors; `types`: the table of segments, of which all tokens have the first."""
        module: Any = self.model.get_submodule(path)
        if not isinstance(module, nn.Embedding) or module.max_norm is not None:
            raise self.stop(path, "not a table of token vectors that a description has")
        std = self._std(f"{path}.weight", path)
        more = 0.0 if types is None else self._std(f"{types}.weight", types)
        layer = Embed(std, width=module.embedding_dim, types=more)
        fills, check = (Fill((ModelTensor(f"{path}.weight"),)),), replace(layer, vocabulary=module.num_embeddings)
        parts = [Part(path, type(module).__name__, text(layer))]
        if types is not None:
            fills = (*fills, Fill((ModelTensor(f"{types}.weight", rows=(0, 1)),)))
            check = replace(check, types=more or 1.0)
            parts.append(Part(types, self.kind(types), ""))
        return self._piece(layer, check, fills, *parts)

    def shared(self, kind: Callable[[float], Layer], name: str, *, start: int = 0) -> Piece:
        """Vectors that all sequences get: positions, of which the first is the row `start`, or a first token."""
        path = name.rpartition(".")[0]
        layer = kind(self._std(name, path))
        fill = Fill((ModelTensor(name, rows=(start, None)),))
        return self._piece(layer, layer, (fill,), Part(path, self.kind(path), text(layer)))

    def patches(self, path: str) -> Piece:
        """A convolution whose kernels lie side by side."""
        conv: Any = self.model.get_submodule(path)
        if not isinstance(conv, nn.Conv2d) or type(conv).forward is not nn.Conv2d.forward:
            raise self.stop(path, "not a convolution that cuts patches")
        size = conv.kernel_size[0]
        plainly = conv.padding in ((0, 0), "valid") and conv.groups == 1 and conv.dilation == (1, 1)
        if conv.kernel_size != (size, size) or conv.stride != (size, size) or not plainly:
            why = "its kernels do not lie side by side: patches of a description are square and do not overlap"
            raise self.stop(path, why)
        bias = None if conv.bias is None else ModelTensor(f"{path}.bias")
        inputs = math.prod(conv.weight.shape[1:])
        matrix = Matrix(path, ModelTensor(f"{path}.weight"), bias, conv.out_channels, inputs)
        layer, found = self._weighted(kinds.Patches, (matrix,), path=path, size=size, width=conv.out_channels)
        return Piece(layer, (Part(path, "Conv2d", text(layer), found[path]),))

    def tokenmix(self, first: Matrix, phi: Activation, second: Matrix) -> Piece:
        """Two dense layers over tokens."""
        layer, found = self._weighted(kinds.TokenMix, (first,), (second,), path=first.path, width=first.units, phi=phi)
        own = ((first.path, text(layer)), (second.path, ""))
        return Piece(layer, tuple(Part(path, self.kind(path), said, found[path]) for path, said in own))

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
        return Piece(layer, (Part(path, kind, text(layer)),))

    def mlp(self, layers: Sequence[str], function: Callable[[torch.Tensor], torch.Tensor], act: str) -> list[Piece]:
        """Widen, bend, narrow; of three layers the first is a gate. `act`: the path that names the activation."""
        *wide, last = (self.matrix(path) for path in layers)
        bend = self.activate(function, act)
        if len(wide) > 1:
            gate = Gated(self.phi(function, act, self.kind(act)))
            bend = Piece(gate, (Part(act, self.kind(act), text(gate)),))
        return [self.dense(*wide), bend, self.dense(last, width=False)]

    def unembed(self, matrix: Matrix, *, tied: bool) -> Piece:
        """A language model's head; the embedding's own vectors are filled in with the embedding."""
        if tied:
            return Piece(Unembed(True), (Part(matrix.path, self.kind(matrix.path), text(Unembed(True))),))
        law, variances, _ = self._drawn(matrix)
        known = self.modules.draws.numbers[matrix.weight.name].law  # lengths of rows matter here: theory.md (52)
        layer = Unembed(weight_var=law.weight_var, init=known or "normal")
        fill = Fill((matrix.weight,))
        part = Part(matrix.path, self.kind(matrix.path), text(layer), variances)
        return self._piece(layer, layer, (fill,), part)

    def pool(self, at: Any) -> Piece:
        return Piece(PoolTokens(at))
