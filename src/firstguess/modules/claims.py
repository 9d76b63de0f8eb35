"""Which kind of layer says what a module or function of torch is: by the class whose forward a module really runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, cast

from torch import nn

from firstguess.modules.initializers import BATCH_NORMS, CONVOLUTIONS, is_lookup
from firstguess.modules.passive import PASSIVE
from firstguess.network.activations.tensors import targets
from firstguess.network.layer import Meaning, by_call, by_module
from firstguess.network.layers import Layer  # from here: so that every kind is registered
from firstguess.network.meaning import Site

_Names = tuple[tuple["str | type", type[Layer]], ...]


class Claim(NamedTuple):
    """Who says what a module is; a kind of None: it is no layer (dropout, flattening)."""

    name: str  # the one in the kind's `modules`
    kind: type[Layer] | None
    meaning: Callable[[Any, Site], Meaning]


def claim(module: nn.Module) -> Claim | None:
    """Who says what a module is; None: nobody, as where a known class has a forward of its own."""
    known, endings = _claims(tuple(by_module().items()))
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
        return _call_claims(tuple(by_call().items())).get(target)
    except TypeError:  # someone's callable that has no hash
        return None


@lru_cache(maxsize=4)
def _claims(names: _Names) -> tuple[dict[type[nn.Module], Claim], dict[str, Claim]]:
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
def _call_claims(names: tuple[tuple[str, type[Layer]], ...]) -> dict[Any, tuple[str, type[Layer]]]:
    return {target: (name, kind) for name, kind in names for target in targets(name)}


def is_attention(module: nn.Module) -> bool:
    return "attention" in type(module).__name__.lower() or isinstance(
        module, (nn.MultiheadAttention, nn.Transformer, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
    )


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
    known, _ = _claims(tuple(by_module().items()))
    base = next((cls.__name__ for cls in known if isinstance(module, cls)), None)
    return f"a {base} with a forward of its own" if base is not None else "a description has no such layer"
