"""From modules of torch to pieces: what every family of transformers is read with."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from firstguess.modules.initializers import Init, is_hugging_face_conv1d
from firstguess.modules.structure import Part
from firstguess.modules.transformers_read.laws import Laws, stop
from firstguess.modules.transformers_read.pieces import Fill, Matrix, Own, Piece, Stop, plain
from firstguess.modules.variances import Draws
from firstguess.network.activations import lookup
from firstguess.network.activations.record import Activation
from firstguess.network.layer import text
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
    RMSNorm,
    Scale,
    TokenMix,
    Unembed,
)

_GRID = torch.linspace(-9.0, 9.0, 601, dtype=torch.float64)


class Kit:
    """Pieces of one model, with the laws of its parameters over draws."""

    def __init__(self, model: nn.Module, draws: Draws, init: Init = None) -> None:
        self.model = model
        self.laws = Laws(model, draws, init)
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
        bias = None if getattr(module, "bias", None) is None else Own(f"{path}.bias")
        return Matrix(path, kind, Own(f"{path}.weight", conv1d), bias, shape[0], shape[1])

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
        fills, check = (Fill((Own(f"{path}.weight"),)),), replace(layer, vocabulary=module.num_embeddings)
        parts = [Part(path, type(module).__name__, text(layer))]
        if types is not None:
            fills = (*fills, Fill((Own(f"{types}.weight", rows=(0, 1)),)))
            check = replace(check, types=more or 1.0)
            parts.append(Part(types, self.kind(types), ""))
        return Piece(layer, check, fills, tuple(parts))

    def positions(self, name: str, path: str, *, start: int = 0) -> Piece:
        """A vector for every place; `start`: the row of the first."""
        layer = Positions(self.laws.std(name, path))
        fill = Fill((Own(name, rows=(start, None)),))
        return Piece(layer, layer, (fill,), (Part(path, self.kind(path), text(layer)),))

    def first_token(self, name: str, path: str) -> Piece:
        layer = FirstToken(self.laws.std(name, path))
        return Piece(layer, layer, (Fill((Own(name),)),), (Part(path, self.kind(path), text(layer)),))

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
        bias = None if conv.bias is None else Own(f"{path}.bias")
        matrix = Matrix(
            path, "Conv2d", Own(f"{path}.weight"), bias, conv.out_channels, math.prod(conv.weight.shape[1:])
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
        except Exception as error:
            raise Stop(path, kind, f"not an activation that a description has ({type(error).__name__})") from None
        for phi in _activations():
            if values.shape == _GRID.shape and np.abs(phi.offset + phi.rise(_GRID.numpy()) - values).max() < 1e-6:
                return phi
        raise Stop(path, kind, "not an activation that a description has")

    def activate(self, function: Callable[[torch.Tensor], torch.Tensor], path: str, kind: str | None = None) -> Piece:
        kind = self.kind(path) if kind is None else kind
        layer = Activate(self.phi(function, path, kind))
        return plain(layer, Part(path, kind, text(layer)))

    def mlp(self, first: str, function: Callable[[torch.Tensor], torch.Tensor], second: str, act: str) -> list[Piece]:
        """Widen, bend, narrow; `act` is the path that the activation is named by."""
        return [
            self.dense(self.matrix(first)),
            self.activate(function, act),
            self.dense(self.matrix(second), width=False),
        ]

    def gated(
        self, gate: str, up: str, function: Callable[[torch.Tensor], torch.Tensor], down: str, act: str
    ) -> list[Piece]:
        phi = self.phi(function, act, self.kind(act))
        return [
            self.dense(self.matrix(gate), self.matrix(up)),
            plain(Gated(phi), Part(act, self.kind(act), text(Gated(phi)))),
            self.dense(self.matrix(down), width=False),
        ]

    def unembed(self, matrix: Matrix, *, tied: bool) -> Piece:
        """A language model's head; the embedding's own vectors are filled in with the embedding."""
        if tied:
            return plain(Unembed(True), Part(matrix.path, matrix.kind, text(Unembed(True))))
        law = self.laws.dense(matrix)
        layer = Unembed(weight_var=law.weight_var)
        return Piece(
            layer, layer, (Fill((matrix.weight,)),), (Part(matrix.path, matrix.kind, text(layer), law.variances),)
        )

    def pool(self, at: Any) -> Piece:
        return plain(PoolTokens(at))


def _activations() -> Iterator[Activation]:
    for name in lookup.names():
        yield lookup.activation(name)
