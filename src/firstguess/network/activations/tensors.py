"""Activations in torch: in place on tensors, as modules, and back from classes and functions to records.

Nothing but the names in a record says what it is there. Torch is loaded when one of these functions is called.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

from firstguess.base.errors import NotCovered
from firstguess.network.activations import registry
from firstguess.network.activations.record import Activation, TorchNames

if TYPE_CHECKING:
    from torch import Tensor, nn

Op = Callable[["Tensor"], "Tensor"]
_FLOAT32 = 3.4e38


def resolve(name: str) -> Any:
    """What a dotted name of a record stands for."""
    import torch

    root, *rest = name.split(".")
    found: Any = {"torch": torch, "F": torch.nn.functional, "aten": torch.ops.aten, "operator": operator}[root]
    for part in rest:
        found = getattr(found, part)
    return found


def elementwise(phi: Activation, constant: float = 0.0) -> Op:
    """φ(x) − constant, in place. A function that torch has no name for runs in NumPy, in float64."""
    apply = _in_place(phi)
    if constant == 0.0:
        return apply
    return lambda x: apply(x).sub_(constant)


def _in_place(phi: Activation) -> Op:
    import torch

    if phi.torch is None or not phi.torch.inplace:
        return lambda x: x.copy_(torch.from_numpy(phi.offset + phi.rise(x.double().numpy())))
    # in place: fresh memory of this size is slow, and fragments
    run = resolve(phi.torch.inplace)
    keywords = _keywords(phi, phi.torch)
    if phi.torch.inplace.endswith(".out"):
        return lambda x: run(x, out=x, **keywords)
    return partial(run, **keywords) if keywords else run


def derivative(phi: Activation, run: Op) -> Derivative | None:
    """`run`, which is φ up to a constant, in training; None where nobody knows its derivative."""
    import torch

    names = phi.torch
    if names is not None and names.backward:
        back = resolve(names.backward)
        keywords = _keywords(phi, names) | dict(names.backward_with)

        def named(gradient: Tensor, kept: Tensor, more: Kept) -> Tensor:
            return back(gradient, kept, grad_input=gradient, **keywords)

        # a constant is subtracted the output after φ, so then the output is not φ's
        keeps = names.backward_of if not phi.centered else "input"
        if keeps == names.backward_of:
            return Derivative(lambda x, out: _into(run, x, out), named, keeps)
    if names is not None and (names.module or names.calls):
        module = module_of(phi)

        def forward(x: Tensor, out: Tensor) -> Kept:
            with torch.enable_grad():
                given = x.detach().clone().requires_grad_()
                value = module(given)
            _into(run, x, out)
            return given, value

        def traced(gradient: Tensor, kept: Tensor, more: Kept) -> Tensor:
            given, value = more
            return gradient.copy_(torch.autograd.grad(value, given, gradient)[0])

        return Derivative(forward, traced, "nothing")
    slope = phi.derivative
    if slope is None:
        return None

    def numeric(gradient: Tensor, kept: Tensor, more: Kept) -> Tensor:
        return gradient.mul_(torch.from_numpy(slope(kept.double().numpy())).to(gradient))

    return Derivative(lambda x, out: _into(run, x, out), numeric, "input")


def _into(run: Op, x: Tensor, out: Tensor) -> Kept:
    if out is not x:
        out.copy_(x)
    value = run(out)
    if value is not out:
        out.copy_(value)
    return ()


def mean_free(of: Derivative | None) -> Derivative | None:
    """The same, and then the mean over data and units of every initialization subtracted."""
    if of is None:
        return None

    def forward(x: Tensor, out: Tensor) -> Kept:
        more = of.forward(x, out)
        kept = (out.clone(),) if of.keeps == "output" else ()
        out.sub_(out.mean((1, 2), keepdim=True))
        return *more, *kept

    def backward(gradient: Tensor, kept: Tensor, more: Kept) -> Tensor:
        gradient.sub_(gradient.mean((1, 2), keepdim=True))
        if of.keeps == "output":
            return of.backward(gradient, more[-1], more[:-1])
        return of.backward(gradient, kept, more)

    return Derivative(forward, backward, "input" if of.keeps == "input" else "nothing")


def module_of(phi: Activation) -> nn.Module:
    """The module of torch.nn that is this activation before centring, or one that calls its function."""
    from torch import nn

    if phi.torch is not None and isinstance(phi.torch.module, type):
        return phi.torch.module(*_keywords(phi, phi.torch).values())
    if phi.torch is not None and phi.torch.module:
        return getattr(nn, str(phi.torch.module))(**_keywords(phi, phi.torch))
    return _elementwise_class()(phi)


def _keywords(phi: Activation, names: TorchNames) -> dict[str, Any]:
    params = dict(phi.params)
    for name, value in params.items():
        if abs(value) > _FLOAT32:  # torch raises its own error in the middle of a run
            raise NotCovered(
                "parameters that float32 can hold (up to 3e38)",
                got=f"{name}={value:g}",
                where=str(phi),
                hint="a smaller one",
            )
    return dict(names.fixed) | {theirs: params[ours] for theirs, ours in names.arguments if ours in params}


@lru_cache(maxsize=1)
def _elementwise_class() -> Callable[[Activation], nn.Module]:
    import torch
    from torch import nn

    class Elementwise(nn.Module):
        """An activation that torch has no module for; one of your own runs in NumPy and has no gradient."""

        def __init__(self, phi: Activation) -> None:
            super().__init__()
            self.phi = phi
            self.known: Op | None = resolve(phi.torch.calls[0]) if phi.torch and phi.torch.calls else None

        def extra_repr(self) -> str:
            return str(self.phi)

        def forward(self, x: Tensor) -> Tensor:
            if self.known is not None:
                return self.known(x)
            value = self.phi.offset + self.phi.rise(x.detach().double().cpu().numpy())
            return torch.from_numpy(value).to(x)

    return Elementwise


class Spelling(NamedTuple):
    """The activations that one class or function of torch may be, and the keywords by which they differ."""

    candidates: tuple[tuple[str, TorchNames], ...]
    keywords: tuple[tuple[str, Any], ...]  # with torch's defaults, in the order of its arguments

    def meaning(self, value: Callable[[int, str, Any], Any]) -> Activation | str:
        """The activation, or why none; `value(index, keyword, default)` gives an argument, the signal being 0."""
        given = {key: value(index, key, default) for index, (key, default) in enumerate(self.keywords, 1)}
        for name, names in self.candidates:
            if all(given[key] == wanted for key, wanted in names.fixed):
                parameters: dict[str, Any] = {ours: float(given[theirs]) for theirs, ours in names.arguments}
                return registry.activation(name, **parameters)
        refuse = next((names.refuse for _, names in self.candidates if names.refuse), "")
        return refuse.format(**given) or "a description has no such variant"


def module_names() -> tuple[str | type, ...]:
    """The classes that are activations: of torch.nn by name, and users'."""
    return _names(tuple(registry.names()))[0]


def call_names() -> tuple[str, ...]:
    """The functions and methods that are."""
    return _names(tuple(registry.names()))[1]


@lru_cache(maxsize=1)
def _names(names: tuple[str, ...]) -> tuple[tuple[str | type, ...], tuple[str, ...]]:
    known = [one for name in names for one in _read(registry.activation(name))]
    modules, calls = (one.module for one in known if one.module), (call for one in known for call in one.calls)
    return tuple(dict.fromkeys(modules)), tuple(dict.fromkeys(calls))


def by_module() -> dict[type[nn.Module], Spelling]:
    """Every class of torch.nn that is an activation, subclasses before what they derive from."""
    return _tables(tuple(registry.names()))[0]


def by_call() -> dict[Any, Spelling]:
    """Every function that is an activation, and the names of methods."""
    return _tables(tuple(registry.names()))[1]


@lru_cache(maxsize=1)
def _tables(names: tuple[str, ...]) -> tuple[dict[type[nn.Module], Spelling], dict[Any, Spelling]]:
    from torch import nn

    modules: dict[type[nn.Module], list[tuple[str, TorchNames]]] = {}
    calls: dict[Any, list[tuple[str, TorchNames]]] = {}
    for name in names:
        for one in _read(registry.activation(name)):
            if one.module:
                kind = one.module if isinstance(one.module, type) else getattr(nn, one.module)
                modules.setdefault(kind, []).append((name, one))
            for key in (key for call in one.calls for key in targets(call)):
                calls.setdefault(key, []).append((name, one))
    ordered = sorted(modules, key=lambda kind: -len(kind.mro()))
    return {kind: _spelling(modules[kind]) for kind in ordered}, {key: _spelling(calls[key]) for key in calls}


def _read(phi: Activation) -> Iterator[TorchNames]:
    if phi.torch is not None and phi.torch.read:
        yield from (phi.torch, *phi.torch.also)


def targets(call: str) -> tuple[Any, ...]:
    """What a graph has for a function, or for a method and its in-place form, by its name in a record."""
    root, _, name = call.partition(".")
    return (name, f"{name}_") if root == "Tensor" else (resolve(call),)


def _spelling(candidates: list[tuple[str, TorchNames]]) -> Spelling:
    """Functions have the defaults of the class that does the same."""
    from torch import nn

    keywords: dict[str, Any] = {}
    for _, names in candidates:
        for key in (*(theirs for theirs, _ in names.arguments), *(key for key, _ in names.fixed)):
            kind = names.module if isinstance(names.module, type) else getattr(nn, names.module)
            given = inspect.signature(cast("Callable[..., nn.Module]", kind)).parameters.get(key)
            keywords[key] = None if given is None else given.default  # an attribute of a class that is no argument
    return Spelling(tuple(candidates), tuple(keywords.items()))


# --------------------------------------------------------------------------------------------------------------
# The backward pass through an operation without weights: what training asks of an activation or a norm.

Kept: TypeAlias = "tuple[Tensor, ...]"


@dataclass(frozen=True)
class Derivative:
    """An operation on a batch of points in training, layout (inits, units, points), and its backward pass.

    `forward(x, out)` writes the result into `out`, which may be x itself unless the input is kept, and gives what
    `backward` needs besides. `backward(gradient, kept, more)` makes, of the gradient by the result, in place, that by
    the input; `kept` is the input or the output, as `keeps` says, as it was then.
    """

    forward: Callable[[Tensor, Tensor], Kept]
    backward: Callable[[Tensor, Tensor, Kept], Tensor]
    keeps: Literal["input", "output", "nothing"]


def linear_derivative(factor: float, shift: float = 0.0) -> Derivative:
    """Of factor · x + shift."""

    def forward(x: Tensor, out: Tensor) -> Kept:
        if out is not x:
            out.copy_(x)
        out.mul_(factor).add_(shift)
        return ()

    return Derivative(forward, lambda gradient, kept, more: gradient.mul_(factor), "nothing")
