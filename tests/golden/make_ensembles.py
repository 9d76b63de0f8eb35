"""Writes ensembles.json: three initializations each of forty descriptions, as a hash of every bit that comes out.

A hash can only be compared where libraries and processor are those it was made with (`inside.machine`): another
processor adds float32 numbers in another order. Everywhere else the test compares the plain numbers next to it, to 1e-5
of a layer's mean square, and guesses up to one point of a class. Written again, with the reason in the commit, by

    python tests/golden/make_ensembles.py
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Any

import inside
import numpy as np
from numpy.typing import NDArray

import firstguess as fg

INITS = 3
FLAT = [  # 40 points, 15 dimensions, width 24
    "dense",
    "dense(weight_var=2) > relu > dense",
    "dense(weight_var=2, bias_var=0.5) > tanh > dense(bias_var=0.1)",
    "dense(init=uniform, bias_var=0.2) > gelu > dense(init=uniform)",
    "dense(init=orthogonal) > erf > dense(init=orthogonal) > sin > dense(init=orthogonal)",
    "dense(width=30) > silu > dense(width=12) > mish > dense",
    "dense > abs > dense > leaky_relu(slope=0.2) > dense > prelu > dense > gelu_tanh > dense",
    "dense > elu > dense > selu > dense > softplus > dense > sigmoid > dense",
    "dense > hardtanh > dense > relu6 > dense > hardswish > dense > square > dense > sign > dense > linear > dense",
    "dense > batchnorm > relu > dense > relu > batchnorm > dense",
    "dense > batchnorm(batch=16) > relu > dense",
    "dense > batchnorm(batch=10, estimator=leave_one_out) > relu > dense",
    "dense > layernorm > relu > layernorm > dense",
    "dense > rmsnorm > relu > rmsnorm > dense",
    "dense > groupnorm(groups=4) > relu > groupnorm(groups=3) > dense",
    "dense > relu > maxpool(4) > dense > relu > avgpool(3) > dense",
    "dense > relu > scale(-0.5) > shift(0.3) > dense",
    "dense > centered(relu) > dense > centered(gelu) > dense",
    "dense > relu > centered(softplus) > dense",
    "dense > residual(scale=0.5)[layernorm > relu > dense] > relu > dense",
    "dense > residual[batchnorm > relu > dense(width=10) > relu > dense] > batchnorm > dense",
    "dense > residual[residual[relu > dense] > dense] > dense",
    "dense > relu > residual[dense > relu > dense(width=21) > batchnorm | dense > layernorm] > relu > dense",
    "residual[dense(width=8) > rmsnorm | dense > tanh] > residual[dense > avgpool(2) | avgpool(2)] > dense",
    "layernorm > relu > dense > relu > dense",
    "batchnorm > dense > relu > dense",
    "10 x [dense(weight_var=2) > layernorm > relu] > dense",
]
SMALL_FAN_IN = [  # 30 points, 90 dimensions, width 60: both exact reductions
    "3 x [dense(weight_var=2) > relu] > dense(weight_var=2)",
    "2 x [dense(bias_var=0.3) > tanh] > dense",
    "dense > residual[relu > dense] > maxpool(2) > dense(bias_var=0.2) > relu > dense",
    "dense > batchnorm > relu > dense > relu > dense",
]
IMAGES = [  # 20 images of 2 channels, 8×8 pixels, 6 channels
    "conv(weight_var=2, padding=1) > relu > conv > relu > dense",
    "conv(bias_var=0.1, stride=2) > layernorm > relu > groupnorm(groups=2) > dense > relu > dense",
    "conv(padding=1) > residual[batchnorm > relu > conv(padding=1)] > rmsnorm > relu > dense",
    "conv(padding=1) > batchnorm(batch=10) > tanh > avgpool(4) > dense",
    "conv(padding=1) > relu > maxpool(9, stride=2, padding=1) > conv > maxpool(4, stride=1) > dense",
    "residual[conv(padding=1) > avgpool(4) | avgpool(4) > conv(kernel=1)] > relu > dense",
    "conv(padding=1) > relu > residual[conv(stride=2, padding=1, width=8) > batchnorm | conv(kernel=1, stride=2) > "
    "batchnorm] > relu > avgpool(4) > dense",
    "residual[relu > conv(padding=1)] > centered(relu) > dense",
    "dense > relu > dense",
]
OPTIONS: dict[str, dict[str, Any]] = {  # on the flat data
    "no reduction": {"reduce": False},
    "float64": {"dtype": "float64"},
    "batches of 10": {"batch": 10},
    "another seed": {"seed": 7},
    "in groups and chunks": {"group": 2, "chunk": 15},
}


def points(n: int, *shape: int) -> NDArray[np.float32]:
    """A common part, unequal lengths, two points that almost coincide."""
    rng = np.random.default_rng(20261118)
    x = rng.standard_normal((n, *shape)) * rng.uniform(0.5, 2.0, (n, *[1] * len(shape))) + 0.3
    x[1] = x[0] + 1e-3 * x[1]
    return x.astype(np.float32)


def ensemble(text: str, x: NDArray[np.float32], width: int, **options: Any) -> dict[str, Any]:
    if "dtype" in options:
        import torch

        options["dtype"] = getattr(torch, options["dtype"])
    engine = inside.engine(fg.Network.parse(text, classes=3), x, width=width, **options)
    members = engine.run(0, INITS)
    arrays = [np.ascontiguousarray(a) for a in (members.fractions, members.ties, members.stats)]
    digest = hashlib.sha256(b"".join(a.tobytes() for a in arrays)).hexdigest()
    return {
        "hash": digest,
        "notes": list(engine.notes),
        "layers": [f"{one.name}: {one.kind}, {one.nodes}{', weights' if one.weights else ''}" for one in engine.layers],
        "fractions": members.fractions.round(6).tolist(),
        "stats": [[float(f"{v:.8g}") for v in row] for row in members.stats[0]],  # of the first member
    }


def jobs() -> inside.Jobs:
    """All ensembles by name."""
    found: inside.Jobs = {}
    kinds = (FLAT, points(40, 15), 24), (SMALL_FAN_IN, points(30, 90), 60), (IMAGES, points(20, 2, 8, 8), 6)
    for texts, x, width in kinds:
        place = f"{' × '.join(str(side) for side in x.shape)}, width {width}"
        found |= {f"{place}: {text}": partial(ensemble, text, x, width) for text in texts}
    for name, options in OPTIONS.items():
        text = "dense > batchnorm > relu > dense > relu > dense"
        found[name] = partial(ensemble, text, points(40, 60), 50, **options)
    return found


if __name__ == "__main__":
    inside.write("ensembles.json", jobs())
