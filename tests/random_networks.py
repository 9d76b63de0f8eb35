"""Hypothesis strategies: layers, sequences and networks, every kind and parameter."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from firstguess.base.errors import InvalidInput
from firstguess.network.activations import registry
from firstguess.network.layers import (
    Activate,
    AvgPool,
    BatchNorm,
    Conv,
    Dense,
    GroupNorm,
    Layer,
    LayerNorm,
    MaxPool,
    Residual,
    RMSNorm,
    Scale,
    Shift,
)
from firstguess.network.network import Network

BUILT_IN = tuple(registry.names())  # at import: other tests may register their own
ANY_VAR = st.floats(1e-300, 1e300) | st.sampled_from([1.0, 2.0, 1 / 3, 0.1 + 0.2])
TAME_VAR = st.floats(1e-3, 1e3)


def _activations(names: tuple[str, ...]) -> st.SearchStrategy[Activate]:
    plain = st.sampled_from(names).map(registry.activation)
    sloped = st.builds(
        lambda name, slope: registry.activation(name, slope=slope),
        st.sampled_from(["leaky_relu", "prelu"]),
        st.floats(0.0, 1.0),
    )
    elu = st.floats(0.1, 3.0).map(lambda alpha: registry.activation("elu", alpha=alpha))
    every = plain | sloped | elu
    return st.builds(lambda phi, c: Activate(replace(phi, centered=c)), every, st.booleans())


def layers(var: st.SearchStrategy[float] = ANY_VAR, names: tuple[str, ...] = BUILT_IN) -> st.SearchStrategy[Layer]:
    """Any layer but a residual block."""
    bias = st.just(0.0) | var
    size = st.integers(1, 9)
    return st.one_of(
        st.builds(Dense, var, bias, st.none() | st.integers(64, 4096), st.sampled_from(["normal", "uniform"])),
        st.builds(Conv, var, bias, st.none() | size, size, size, st.integers(0, 3)),
        st.builds(BatchNorm, st.none() | st.integers(2, 300)),
        st.builds(BatchNorm, st.integers(5, 300), st.just("leave_one_out")),
        st.sampled_from([LayerNorm(), RMSNorm()]),
        st.builds(GroupNorm, size),
        st.builds(MaxPool, size),
        st.builds(MaxPool, st.integers(4, 30), st.none() | size, st.integers(0, 1)),
        st.builds(AvgPool, size),
        st.builds(Scale, st.floats(-1e3, 1e3)),
        st.builds(Shift, st.floats(-1e3, 1e3)),
        _activations(names),
    )


def sequences(leaf: st.SearchStrategy[Layer], most: int = 6) -> st.SearchStrategy[tuple[Layer, ...]]:
    """Sequences with repeated stretches and nested residual blocks."""
    flat = st.lists(leaf, min_size=1, max_size=most).map(tuple)
    repeated = st.builds(lambda a, n, b: a * n + b, flat, st.integers(1, 4), flat)
    nested = st.recursive(
        flat,
        lambda inner: st.builds(
            lambda head, branch, scale, shortcut, tail: (*head, Residual(branch, scale, shortcut), *tail),
            flat,
            inner,
            st.floats(-10.0, 10.0),
            st.just(()) | inner,
            flat,
        ),
        max_leaves=3,
    )
    return flat | repeated | nested


@st.composite
def networks(draw: st.DrawFn, leaf: st.SearchStrategy[Layer] | None = None) -> Network:
    """A network of any layers in any order; pools always fit."""
    chosen = draw(sequences(layers() if leaf is None else leaf))
    classes = draw(st.integers(2, 1000))
    try:
        return Network(chosen, classes)
    except InvalidInput:  # a pool wider than its layer: write no widths down
        return Network(_without_widths(chosen), classes)


def _without_widths(chosen: tuple[Layer, ...]) -> tuple[Layer, ...]:
    out: list[Layer] = []
    for layer in chosen:
        if isinstance(layer, Dense):
            layer = replace(layer, width=None)
        elif isinstance(layer, Residual):
            layer = layer.with_paths(_without_widths)
        out.append(layer)
    return tuple(out)
