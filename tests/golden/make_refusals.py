"""Writes refusals.json: bad descriptions, options and data, and what is said about each, word for word.

python tests/golden/make_refusals.py
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import inside
import numpy as np

import firstguess as fg

TEXTS = [
    "", "dense >", "> dense", "dense > rleu", "dense > layernrom", "2 x [dense > relu > dense", "dense ? relu",
    "dense(weightvar=2)", "dense(weight_var=-1)", "dense(weight_var=nan)", "dense(weight_var=2, weight_var=3)",
    "dense(init=xavier)", "dense(width=0)", "dense(2, 3, 4, 5, 6)", "dense[relu]", "relu(0.1)",
    "leaky_relu(slope=tanh)", "centered", "centered(foo)", "centered(dense)", "residual", "residual[]",
    "residual[dense | relu | tanh]",
    "maxpool(0)", "maxpool(1.5)", "maxpool(4, 2, 2)", "maxpool(2000000)", "avgpool(relu)", "scale(relu)", "shift()",
    "batchnorm(1)", "batchnorm(batch=16, estimator=jackknife)", "batchnorm(batch=3, estimator=leave_one_out)",
    "groupnorm(0)", "conv(kernel=0)", "conv(stride=-1)", "0 x [dense]", "999999999 x [dense]", "dense | relu",
    "dense(width=4) > relu > maxpool(9) > dense", "dense(width=8) > residual[relu > maxpool(9) > dense]",
    "dense(width=8) > residual[dense(width=3)] > dense",
]  # fmt: skip
PREDICTED = [  # closed form
    "dense > relu", "dense > relu > relu > dense", "dense > gelu > maxpool(2) > dense", "relu > dense > shift(1)",
    "dense > residual[relu > dense > relu] > dense", "dense > batchnorm(batch=4) > relu > maxpool(2) > dense",
    "dense > batchnorm(batch=6, estimator=leave_one_out) > square > dense", "dense(weight_var=0) > layernorm > dense",
    "dense(weight_var=0, bias_var=1) > batchnorm > dense", "dense > layernorm > sign > maxpool(2) > dense",
]  # fmt: skip
MEASURED = [  # 12 points of 5 dimensions, then 6 images of 2 × 4 × 4
    ("conv > relu > dense", "points"), ("dense > conv > dense", "images"), ("conv(kernel=6) > dense", "images"),
    ("conv(padding=1) > maxpool(2) > dense", "images"), ("conv > maxpool(9) > dense", "images"),
    ("conv > residual[conv] > dense", "images"), ("dense > residual[dense(width=3)] > dense", "points"),
    ("dense > groupnorm(groups=7) > dense", "points"), ("dense > maxpool(40) > dense", "points"),
    ("dense > batchnorm(batch=1000) > dense", "points"), ("dense > batchnorm(batch=11) > dense", "points"),
    ("dense > relu > maxpool(9, stride=2, padding=1) > dense", "points"), ("dense > relu", "points"),
    ("dense > batchnorm(batch=4, estimator=leave_one_out) > dense", "points"), ("maxpool(2) > dense", "points"),
]  # fmt: skip


def data(name: str) -> Any:
    return np.random.default_rng(1).standard_normal((12, 5) if name == "points" else (6, 2, 4, 4))


def _others() -> dict[str, Callable[[], Any]]:
    x, net = data("points"), fg.mlp(2)
    broken = x.copy()
    broken[3, 2] = np.nan
    large = np.ones((1, 60, 60)) * x[:9, :1, None, None]
    zero = x.copy()
    zero[3] = 0.0
    return {
        "classes": lambda: fg.Network.parse("dense", classes=1),
        "no layers": lambda: fg.Network(()),
        "depth": lambda: fg.mlp(0),
        "norm": lambda: fg.mlp(2, norm="layernrom"),
        "placement": lambda: fg.mlp(2, placement="between"),  # type: ignore[arg-type]
        "residual placement": lambda: fg.residual_mlp(2, placement="before"),  # type: ignore[arg-type]
        "kernel": lambda: fg.cnn(2, kernel=0),
        "edit": lambda: net.where("layernorm near relu"),
        "edit that finds nothing": lambda: net.where("layernorm after tanh"),
        "activation": lambda: fg.activation("rleu"),
        "edge of chaos": lambda: fg.edge_of_chaos("relu", bias_var=0.1),
        "neutrality line": lambda: fg.neutrality_line("relu"),
        "fixed point": lambda: fg.fixed_point("tanh", weight_var=-1),
        "phase diagram": lambda: fg.phase_diagram("residual[relu > dense > tanh]"),
        "inputs": lambda: fg.Inputs(mean_square=-1.0),
        "points of a prediction": lambda: fg.predict(net, points=0),
        "data and inputs": lambda: fg.predict(net, data=x, inputs=fg.Inputs()),
        "draws": lambda: fg.predict(net, data=x, draws=0),
        "precision": lambda: fg.predict(net, data=x, precision="half"),
        "one point": lambda: fg.predict(net, data=x[:1]),
        "copies of a point": lambda: fg.predict(net, data=np.ones((5, 3))),
        "not finite": lambda: fg.predict(net, data=broken),
        "a point that is zero": lambda: fg.predict(net, data=zero),
        "name of data": lambda: fg.predict(net, data="digitz"),
        "kind of data": lambda: fg.predict(net, data=object()),
        "images for the kernel": lambda: fg.predict("conv > relu > dense", data=x),
        "end of the kernel": lambda: fg.predict("dense > relu", data=x),
        "too long": lambda: fg.predict("conv(padding=1) > tanh > dense", data=large, seconds=1e-3),
        "what is measured": lambda: fg.measure(3, x),
        "inits": lambda: fg.measure(net, x, inits=0),
        "seed": lambda: fg.measure(net, x, seed=-1),
        "width": lambda: fg.measure(net, x, width=0),
        "precision of a measurement": lambda: fg.measure(net, x, precision=2),
        "memory": lambda: fg.measure(net, x, memory=10, threads=1),
        "option": lambda: fg.measure(net, x, inits=2, prob="all"),
        "probe": lambda: fg.measure(net, x, inits=2, probe="some"),
        "data that are not finite": lambda: fg.measure(net, broken, inits=2),
        "overflow": lambda: fg.measure("40 x [dense(weight_var=1e6) > relu] > dense", 10 * x, inits=2, width=20),
    }  # fmt: skip


def jobs() -> inside.Jobs:
    """All of them by name; "accepted" where nothing is said."""

    def accept(work: Callable[[], Any]) -> str:
        work()
        return "accepted"

    works: inside.Jobs = {f"parse: {text}": partial(fg.Network.parse, text) for text in TEXTS}
    works |= {f"predict: {text}": partial(fg.predict, text) for text in PREDICTED}
    for text, name in MEASURED:
        works[f"measure on {name}: {text}"] = partial(fg.measure, text, data(name), inits=2, width=12)
    return {name: partial(accept, work) for name, work in {**works, **_others()}.items()}


if __name__ == "__main__":
    inside.write("refusals.json", jobs())
