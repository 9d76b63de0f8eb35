"""Writes readings.json: what the closed form and the kernel say of many networks, to the last bit.

These are not true values (tests against mpmath and simulations are elsewhere) but what the code said on the day they
were written, so that moving code about can be seen to change nothing. A change that is meant to change numbers writes
them again and says why:

    python tests/golden/make_readings.py [--only TEXT]

For every network: the closed form (γ, 1 − c, log q and the gradient's factor after every layer) and, on small seeded
data, the kernel (the covariance of six points, its mean, q and q_ab after every layer, the remarks) and the tangent
kernel. What is refused is stored in the words of the refusal.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import inside
import numpy as np
from numpy.typing import NDArray

import firstguess as fg

# On 24 points of 10 dimensions, unless said otherwise
FLAT = [
    "dense",
    "dense(weight_var=2) > relu > dense(weight_var=2)",
    "20 x [dense(weight_var=2) > relu] > dense(weight_var=2)",
    "20 x [dense(weight_var=2) > layernorm > relu] > dense",
    "20 x [dense(weight_var=2) > relu > layernorm] > dense",
    "12 x [dense(weight_var=1.76, bias_var=0.05) > tanh] > dense",
    "8 x [dense(weight_var=2.5, bias_var=0.1) > erf] > dense(bias_var=0.2)",
    "3 x [dense > gelu] > dense(width=50) > linear > dense",
    "dense > abs > dense > leaky_relu(slope=0.2) > dense > prelu > dense",
    "dense > gelu_tanh > dense > silu > dense > mish > dense",
    "dense(bias_var=0.1) > elu > dense > selu > dense > softplus > dense > sigmoid > dense",
    "dense(weight_var=4) > hardtanh > dense(weight_var=9) > relu6 > dense(weight_var=9) > hardswish > dense",
    "dense(weight_var=3) > sin > dense > square > dense > sign > dense",
    "dense > sign > dense > relu > dense",
    "dense > square > dense > tanh > dense",
    "3 x [dense > rmsnorm > gelu] > dense",
    "3 x [dense > relu > rmsnorm] > dense",
    "dense > groupnorm(groups=2) > silu > dense > relu > groupnorm(groups=2) > dense",
    "layernorm > relu > dense",
    "layernorm > dense > relu > dense",
    "rmsnorm > dense(bias_var=0.3) > tanh > layernorm > dense",
    "dense(bias_var=0.3) > centered(gelu) > dense > centered(relu) > dense",
    "dense > layernorm > centered(softplus) > dense > centered(tanh) > dense",
    "dense > shift(0.5) > relu > dense > shift(-0.4) > tanh > shift(1) > dense",
    "dense > scale(-0.3) > relu > scale(2) > dense > scale(0.5) > shift(1) > dense",
    "dense > relu > avgpool(3) > dense > tanh > avgpool(2) > dense",
    "dense(weight_var=2) > relu > maxpool(3) > dense > maxpool(2) > dense",
    "dense > layernorm > tanh > maxpool(4) > dense",
    "dense > relu > maxpool(1) > avgpool(1) > maxpool(2) > dense",
    "dense > leaky_relu(slope=0.1) > maxpool(4) > layernorm > dense > relu > dense",
    "dense > tanh > maxpool(2) > dense",
    "dense > gelu > maxpool(2) > dense",
    "dense > relu > maxpool(9, stride=2, padding=1) > dense",
    "dense > residual(scale=0.7)[layernorm > relu > dense(weight_var=2)] > rmsnorm > gelu > dense",
    "dense > 12 x [residual[relu > dense(weight_var=2)]] > layernorm > dense",
    "dense > 6 x [residual(scale=0.4)[rmsnorm > tanh > dense(bias_var=0.1)]] > dense",
    "dense > residual[relu > dense(weight_var=2) > layernorm | dense > rmsnorm] > relu > dense",
    "dense > relu > residual(scale=-0.5)[dense > tanh > avgpool(2) | avgpool(2) > shift(0.3)] > layernorm > dense",
    "dense > residual[dense > relu | dense > rmsnorm] > dense",
    "dense > relu > residual[maxpool(2) > dense] > dense",
    "dense > relu > residual[dense > avgpool(2) | maxpool(2)] > dense",
    "dense > residual[residual(scale=0.5)[relu > dense] > relu > dense] > tanh > dense",
    "dense > relu > residual[dense] > relu > residual(scale=0.3)[dense > layernorm] > relu > dense",
    "dense > relu > residual[dense > batchnorm > relu > dense > batchnorm | dense > batchnorm] > relu > dense",
    "dense > residual[relu > dense > relu] > dense",
    "dense > batchnorm > dense",
    "3 x [dense > batchnorm > relu] > dense",
    "3 x [dense > relu > batchnorm] > dense",
    "dense > batchnorm > tanh > dense",
    "dense(bias_var=0.2) > batchnorm > scale(2) > shift(0.3) > gelu > dense",
    "dense > batchnorm > relu > maxpool(4) > dense",
    "dense > tanh > batchnorm > layernorm > dense",
    "dense > batchnorm > relu > avgpool(2) > rmsnorm > batchnorm > dense",
    "2 x [dense > batchnorm(batch=8) > relu] > dense",
    "dense > batchnorm(batch=12, estimator=leave_one_out) > tanh > dense",
    "dense > batchnorm(batch=2) > relu > batchnorm(batch=6) > dense",
    "dense > batchnorm(batch=23) > relu > dense",
    "batchnorm > dense > relu > dense",
    "batchnorm(batch=8) > dense > tanh > dense",
    "dense > residual(scale=0.5)[batchnorm > tanh > dense] > dense",
    "dense > residual[batchnorm > relu > dense | scale(0.5)] > batchnorm > relu > dense",
    "dense > batchnorm > centered(relu) > dense",
    "dense > relu > relu > dense",
    "dense > relu > residual[maxpool(2) > dense > batchnorm] > dense",
    "dense > relu",
]
# On 8 images of 2 channels, 6×5 pixels, of which one has a black border
IMAGES = [
    "conv > relu > dense",
    "conv(weight_var=2, padding=1) > relu > conv(weight_var=2, padding=1, bias_var=0.1) > relu > dense(weight_var=2)",
    "conv(kernel=1) > tanh > conv(kernel=2, stride=2) > gelu > dense > relu > dense",
    "conv(padding=2, stride=2) > leaky_relu(slope=0.2) > layernorm > conv > dense(bias_var=0.2)",
    "layernorm > conv(bias_var=0.1) > rmsnorm > erf > groupnorm(groups=2) > dense",
    "conv(padding=1) > relu > avgpool(4) > conv(padding=1) > tanh > avgpool(4) > dense",
    "conv(padding=1) > relu > maxpool(4) > conv(kernel=2) > relu > dense",
    "conv(padding=1) > gelu > maxpool(9, stride=2, padding=1) > layernorm > dense > relu > maxpool(2) > dense",
    "2 x [conv(padding=1) > batchnorm > relu] > dense",
    "conv(padding=1) > tanh > batchnorm > avgpool(4) > dense",
    "conv(bias_var=0.1) > batchnorm(batch=4) > relu > dense",
    "conv > dense > batchnorm > relu > maxpool(4) > dense",
    "conv(padding=1) > residual(scale=0.5)[relu > conv(padding=1)] > scale(2) > shift(0.5) > relu > dense",
    "conv(padding=1) > residual[relu > conv(padding=1, stride=2) | conv(kernel=1, stride=2)] > relu > dense",
    "conv(padding=1) > residual[batchnorm > relu > conv(padding=1)] > batchnorm > relu > dense",
    "conv > relu > residual[conv(padding=1) > batchnorm | conv(kernel=1) > batchnorm] > relu > avgpool(4) > dense",
    "conv(padding=1) > relu > residual[conv(padding=1)] > relu > dense",
    "residual[conv(padding=1) > avgpool(4) | avgpool(4) > conv(kernel=1)] > relu > dense",
    "conv > residual[relu > dense > layernorm | layernorm > dense] > relu > dense",
    "conv > centered(tanh) > dense",
    "conv(kernel=7) > dense",
    "conv(padding=1) > maxpool(2) > dense",
    "conv(padding=1) > residual[conv] > dense",
    "dense > conv",
    "conv > relu",
]
# Over tile borders: 300 points; in float32 as well
LARGE = [
    "6 x [dense(weight_var=2) > relu] > dense",
    "2 x [dense(bias_var=0.1) > tanh] > dense",
    "dense > residual[relu > dense] > layernorm > dense",
    "dense > relu > maxpool(2) > dense",
    "dense > relu > batchnorm > dense",
]
# Also with inputs on a level
ON_A_LEVEL = [
    "dense(weight_var=2) > relu > dense(weight_var=2)",
    "20 x [dense(weight_var=2) > relu > layernorm] > dense",
    "12 x [dense(weight_var=1.76, bias_var=0.05) > tanh] > dense",
    "dense(weight_var=2) > relu > maxpool(3) > dense > maxpool(2) > dense",
    "dense > residual(scale=0.7)[layernorm > relu > dense(weight_var=2)] > rmsnorm > gelu > dense",
    "3 x [dense > relu > batchnorm] > dense",
]
# Guesses drawn from the kernel: the way through `fg.predict`
DRAWN = [
    "4 x [dense(weight_var=2) > relu] > dense",
    "dense > batchnorm > relu > dense",
    "conv(padding=1) > relu > avgpool(4) > dense",
]


def points(n: int, d: int) -> NDArray[np.float64]:
    """Not i.i.d. on purpose: a common part, unequal sizes, two points that almost coincide."""
    rng = np.random.default_rng(20261116)
    x = rng.standard_normal((n, d)) * rng.uniform(0.5, 2.0, (n, 1)) + 0.3
    x[1] = x[0] + 1e-3 * x[1]
    return x


def images() -> NDArray[np.float64]:
    x = np.random.default_rng(20261117).standard_normal((8, 2, 6, 5)) + 0.3
    x[3, :, :2] = 0.0
    return x


def closed(text: str, inputs: fg.Inputs | None = None) -> dict[str, Any]:
    found = fg.predict(text, inputs=inputs)
    gradient = [math.nan if r.gradient is None else r.gradient for r in found.layers]
    return {
        "layers": " | ".join(r.layer for r in found.layers) if len(found.layers) < 12 else len(found.layers),
        "weights": "".join(str(int(r.weights)) for r in found.layers),
        "gamma": inside.numbers([r.gamma for r in found.layers]),
        "one_minus_c": inside.numbers([r.one_minus_c for r in found.layers]),
        "log_q": inside.numbers([r.log_q for r in found.layers]),
        "gradient": inside.numbers(gradient),
        "assumptions": list(found.assumptions),
    }


def kernel(text: str, x: NDArray[np.float64], *, tangent: bool = False, single: bool = False) -> dict[str, Any]:
    found = inside.kernel(fg.Network.parse(text), x, tangent=tangent, single=single)
    few = np.array([0, 1, 2, len(x) // 2, len(x) - 2, len(x) - 1])
    upper = few[:, None], few[None, :]

    def part(k: NDArray[Any]) -> list[str]:
        assert np.array_equal(k, k.T) or np.abs(k - k.T).max() <= 1e-6 * np.abs(k).max()
        entries = k[upper].astype(np.float64)
        return [*inside.numbers(entries[np.triu_indices(len(few))]), *inside.numbers([k.mean(dtype=np.float64)])]

    if tangent:
        return {
            "tangent": part(found.tangent),
            "error": inside.numbers([found.error]),
            "remarks": list(found.remarks),
        }
    return {
        "q": inside.numbers([r.q for r in found.layers]),
        "q_ab": inside.numbers([r.q_ab for r in found.layers]),
        "covariance": part(found.covariance),
        "error": inside.numbers([found.error]),
        "remarks": list(found.remarks),
    }


def drawn(text: str, x: NDArray[np.float64]) -> dict[str, Any]:
    found = fg.predict(text, data=x, draws=400, classes=3, tangent=True)
    assert found.per_point is not None
    assert found.tangent is not None
    return {
        "numbers": inside.numbers([found.guesses.std(), found.guesses.expected_max(), *found.gamma, *found.per_point]),
        "assumptions": list(found.assumptions),
    }


def jobs() -> inside.Jobs:
    """All readings by name."""
    found: inside.Jobs = {}
    x, y, large = points(24, 10), images(), points(300, 12)
    for text in [*FLAT, *IMAGES]:
        found[f"closed form: {text}"] = partial(closed, text)
    for text in ON_A_LEVEL:
        found[f"closed form, inputs on a level: {text}"] = partial(closed, text, fg.Inputs(mean_square=0.3))
    for texts, data in ((FLAT, x), (IMAGES, y)):
        for text in texts:
            found[f"kernel: {text}"] = partial(kernel, text, data)
            found[f"tangent: {text}"] = partial(kernel, text, data, tangent=True)
    for text in LARGE:
        found[f"kernel, 300 points: {text}"] = partial(kernel, text, large)
        found[f"kernel, 300 points, float32: {text}"] = partial(kernel, text, large, single=True)
    for text in DRAWN:
        found[f"guesses: {text}"] = partial(drawn, text, y if "conv" in text else x)
    return found


if __name__ == "__main__":
    inside.write("readings.json", jobs())
