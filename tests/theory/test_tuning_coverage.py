"""Every activation, plain and residual, norms in any place, shallow to deep, γ from .01 to 100: right, or refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pytest

import firstguess as fg
from firstguess.network.activations import registry

REFUSED = {  # why, by a part of what is said
    "outside of the range": "reaches at these gradients, from",
    "γ is 0 wherever the knob stands (a norm that centres comes after φ)": "from 0 to 0",
    "gradients are what the norm makes them (BatchNorm)": "a family whose gradients can change",
    "the activation jumps, or is linear": "bends and does not jump",
    "no shift and scale make it stable": "that a shift and a scale make stable",
    "γ has gaps or no closed form": "a family whose γ is known",
    "γ jumps": "changes smoothly",
}
NAMES = tuple(registry.names())  # as they come: other tests register activations of their own
NORMS = [f"{norm} {place}" for norm in ("layernorm", "batchnorm", "rmsnorm") for place in ("before", "after")]
KINDS = ["plain", "residual", "residual layernorm", *NORMS]


def network(kind: str, name: str, depth: int) -> fg.Network:
    if kind.startswith("residual"):
        return fg.residual_mlp(depth, name, norm="layernorm" if " " in kind else None)
    if kind == "plain":
        return fg.mlp(depth, name)
    norm, place = kind.split()
    return fg.mlp(depth, name, norm=norm, placement="before" if place == "before" else "after")


def outcome(net: fg.Network, gamma: float) -> str:
    """ "right", or the reason of the refusal; an error where a result is not what was asked."""
    try:
        s = fg.tune(net, gamma=gamma)
    except (fg.InvalidInput, fg.NotCovered) as error:
        return next(why for why, said in REFUSED.items() if said in " ".join(str(error).split()))
    p = fg.predict(str(s.network))  # as a reader of the text has it
    assert p.gamma[-1] == pytest.approx(gamma, rel=1e-6)
    assert np.prod(p.gradient_growth) == pytest.approx(1.0, rel=1e-5)
    assert s.nonlinearity == pytest.approx(1.0 + gamma, rel=1e-4)  # (31)
    low, high = s.reachable
    assert low <= gamma <= high
    return "right"


def walk(
    depth: int, kinds: list[str], gammas: list[float], names: Iterable[str] = ()
) -> Iterator[tuple[str, str, float, str]]:
    for name in names or NAMES:
        for kind in kinds:
            for gamma in gammas:
                yield name, kind, gamma, outcome(network(kind, name, depth), gamma)


def test_shallow_ones() -> None:
    found = list(walk(5, ["plain", "residual", "layernorm before", "batchnorm after"], [0.3]))
    said = {(name, kind): why for name, kind, _, why in found}
    for name in ("relu", "tanh", "gelu", "silu", "softplus", "sin", "hardtanh", "selu"):
        for kind in ("plain", "layernorm before"):
            assert said[name, kind] == "right", (name, kind)
        # five branches of a softplus bend too little
        assert said[name, "residual"] == ("outside of the range" if name == "softplus" else "right"), name
        assert "is 0 wherever" in said[name, "batchnorm after"]
    assert {name for name, *_, why in found if "jumps, or" in why} == {"linear", "sign"}


@pytest.mark.slow
@pytest.mark.parametrize("depth", [5, 100])
def test_all_of_them(depth: int) -> None:
    found = list(walk(depth, KINDS, [0.01, 0.3, 10.0, 100.0]))
    right = {(name, kind) for name, kind, _, why in found if why == "right"}
    for name in ("relu", "tanh", "gelu", "silu", "softplus", "sin", "selu"):
        for kind in ("plain", "residual", "layernorm before"):
            assert (name, kind) in right
    # Stable shifts of an ELU end with gaps: γ = 100 at 100 layers, of the 121 that its family has there.
    gaps = {(name, gamma) for name, kind, gamma, why in found if "gaps" in why and "batchnorm" not in kind}
    assert gaps <= {("elu", 100.0)} | {("square", gamma) for gamma in (0.01, 0.3, 10.0, 100.0)}


@pytest.mark.slow
def test_a_thousand_layers() -> None:
    found = list(walk(1000, ["plain", "residual"], [0.01, 100.0], ["relu", "tanh", "gelu"]))
    assert {why for *_, why in found} == {"right"}
