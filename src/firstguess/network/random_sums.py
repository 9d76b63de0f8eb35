"""Sums over random weights: the closed form and the kernel of dense layers and convolutions."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from firstguess.network.layer import Layer
from firstguess.network.points import PairwiseMap, Points, Tile, unchanged
from firstguess.network.signal import Gaussian, Signal


def random_sum(signal: Signal, weight_var: float, bias_var: float) -> Signal:
    """Weights of variance σw²/fan-in and biases of variance σb²: theory.md (3). Gaussian in the wide limit."""
    # The bias is written in the units of the larger of the two, so that neither under- nor overflows.
    if weight_var == 0.0:
        return Signal(0.0, bias_var, 0.0, distribution=Gaussian()).rescaled()
    if not 1e-100 < weight_var < 1e100:
        signal, weight_var = replace(signal, log_scale=signal.log_scale + math.log(weight_var)), 1.0
    scale = signal.log_scale
    if bias_var > 0.0 and signal.log_q + math.log(weight_var) < math.log(bias_var) - 100.0:
        scale = 0.0 if 1e-10 < bias_var < 1e10 else math.log(bias_var)
        signal, weight_var = replace(signal, log_scale=signal.log_scale + math.log(weight_var)).at_scale(scale), 1.0
    bias = bias_var if scale == 0.0 or bias_var == 0.0 else math.exp(math.log(bias_var) - scale)
    return Signal(0.0, weight_var * signal.center + bias, weight_var * signal.spread, scale, Gaussian()).rescaled()


def random_sum_map(
    layer: Layer, points: Points, weight_var: float, bias_var: float, what: str, *, frozen: bool = False
) -> PairwiseMap:
    """K ← σw²K + σb², and Θ ← σw²Θ + N·K_in with N the fan-in: theory.md (11), (12).

    Biases are trained where they exist, that is where σb² > 0 (as `.module()` builds them): then Θ grows by 1. `frozen`
    weights and biases are not trained: Θ only passes through.
    """
    fan_in, root = points.width, math.sqrt(weight_var)

    def step(tile: Tile) -> None:
        if tile.t is not None:
            tile.t *= weight_var
            if not frozen:
                tile.t += fan_in * tile.k
                if bias_var:
                    tile.t += 1.0
        tile.scale(root)
        if bias_var:
            tile.k += bias_var

    q = weight_var * points.q + bias_var
    after = points.after(layer, q, np.zeros_like(q), gaussian=True, what=what)
    return PairwiseMap(after, step, None if bias_var else unchanged)
