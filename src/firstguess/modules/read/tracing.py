"""The graph of a model's forward, traced on a private copy; what stops the tracing is kept whole, and named."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

import torch
from torch import fx, nn
from torch.fx.proxy import TraceError

from firstguess.modules.read.dispatch import is_whole

Whole: TypeAlias = Callable[[nn.Module], bool]  # whether a module is looked at as one, not into
MODEL = "model"  # the name of the model inside `OneInput`
_TRIES = 100  # submodules that may stop the tracing before it is given up


class OneInput(nn.Module):
    """A model as a function of one thing: a tensor, a tuple of positional or a dict of keyword arguments.

    So the graph has one input, and arguments that were not given keep their defaults while it is traced. `as_one`: the
    tuple or dict itself is the model's one argument.
    """

    def __init__(self, model: nn.Module, keys: Sequence[str] | int | None, *, as_one: bool = False) -> None:
        super().__init__()
        self.model = model
        self.keys = keys
        self.as_one = as_one

    def forward(self, inputs: Any) -> Any:
        if self.keys is None:
            return self.model(inputs)
        if isinstance(self.keys, int):
            several = tuple(inputs[i] for i in range(self.keys))
            return self.model(several) if self.as_one else self.model(*several)
        named = {key: inputs[key] for key in self.keys}
        return self.model(named) if self.as_one else self.model(**named)


def keys_of(model: nn.Module, inputs: Any) -> Sequence[str] | int | None:
    """How a model is called on these inputs; without any, with as many tensors as its forward needs."""
    if isinstance(inputs, dict):
        return list(cast("dict[str, Any]", inputs))
    if isinstance(inputs, (tuple, list)):
        return len(cast("tuple[Any, ...]", inputs))
    if inputs is not None:
        return None
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):
        return None
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = sum(p.kind in plain and p.default is p.empty for p in parameters)
    return needed if needed > 1 else None


class _Tracer(fx.Tracer):
    def __init__(self, opaque: dict[str, str], whole: Whole = is_whole) -> None:
        super().__init__()
        self.opaque, self.whole = opaque, whole
        self.stopped: str | None = None  # the innermost module that did not let itself be traced
        self.values: dict[fx.Node, Any] = {}
        self.problem = ""  # the first call that failed on the example

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        path = module_qualified_name
        return path in self.opaque or self.whole(m) or super().is_leaf_module(m, path)

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        try:
            return super().call_module(m, forward, args, kwargs)
        except Exception:
            if self.stopped is None:
                self.stopped = self.path_of_module(m)
            raise


_CALL, _ATTRIBUTE = nn.Module.__call__, nn.Module.__getattr__  # as they are while nothing is traced


@contextmanager
def _untraced() -> Generator[None]:
    """While a graph is traced, modules give proxies of what they compute and of their parameters: here, tensors."""
    patched = nn.Module.__call__, nn.Module.__getattr__
    nn.Module.__call__, nn.Module.__getattr__ = _CALL, _ATTRIBUTE
    try:
        yield
    finally:
        nn.Module.__call__, nn.Module.__getattr__ = patched


class _Sized(fx.Proxy):
    """A signal whose shape is known while it is traced, so that decisions by shape can be taken."""

    tracer: _SizedTracer

    def _sizes(self) -> tuple[int, ...] | None:
        value = self.tracer.values.get(self.node)
        return tuple(value.shape) if isinstance(value, torch.Tensor) else None

    def __getattr__(self, k: str) -> Any:
        sizes = self._sizes() if k in ("shape", "ndim") else None
        if sizes is None:
            return super().__getattr__(k)
        return torch.Size(sizes) if k == "shape" else len(sizes)

    def size(self, dim: int | None = None) -> Any:
        sizes = self._sizes()
        if sizes is None:
            return self.tracer.create_proxy("call_method", "size", (self,) if dim is None else (self, dim), {})
        return torch.Size(sizes) if dim is None else sizes[dim]

    def __iter__(self) -> Any:
        value = self.tracer.values.get(self.node)
        if isinstance(value, (tuple, list, torch.Tensor)):
            own: Any = self
            return iter([own[i] for i in range(len(cast("Sequence[Any]", value)))])
        return super().__iter__()

    def dim(self) -> Any:
        sizes = self._sizes()
        return self.tracer.create_proxy("call_method", "dim", (self,), {}) if sizes is None else len(sizes)


class _SizedTracer(_Tracer):
    """Runs the example along with the tracing."""

    def __init__(self, opaque: dict[str, str], inputs: Any, whole: Whole = is_whole) -> None:
        super().__init__(opaque, whole)
        self.inputs = inputs

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Sized(node, self)

    def create_proxy(self, *args: Any, **kwargs: Any) -> fx.Proxy:
        made = super().create_proxy(*args, **kwargs)
        try:
            self.values[made.node] = self._value(made.node)
        except Exception as error:  # of someone else's forward; its shape is not known
            self.problem = self.problem or f"{type(error).__name__}: {_first_line(error)}"
        return made

    def _value(self, node: fx.Node) -> Any:
        if node.op == "placeholder":
            return self.inputs
        args, kwargs = fx.map_arg((node.args, node.kwargs), self._given)
        target: Any = node.target
        with torch.no_grad(), _untraced():
            if node.op == "call_module":
                return self.root.get_submodule(target)(*args, **kwargs)
            if node.op == "call_method":
                return getattr(args[0], target)(*args[1:], **kwargs)
            return self._attribute(target) if node.op == "get_attr" else target(*args, **kwargs)

    def _given(self, node: fx.Node) -> Any:
        """The value of an argument; a tensor that the forward made of no input is no proxy, and has a node alone."""
        if node not in self.values and node.op == "get_attr":
            with _untraced():
                self.values[node] = self._attribute(cast(str, node.target))
        return self.values[node]

    def _attribute(self, target: str) -> Any:
        owner, _, name = target.rpartition(".")
        return getattr(self.root.get_submodule(owner), name)


@dataclass(frozen=True)
class Traced:
    """`graph` is None where the model itself stopped the tracing; `opaque`: what did, by path, and why."""

    graph: fx.Graph | None
    opaque: dict[str, str]
    values: dict[fx.Node, Any] = field(default_factory=dict[fx.Node, Any])
    problem: str = ""  # why the example could not be run through the graph


def path_of(target: str) -> str:
    """A module's path in the user's model, from its path below `OneInput`."""
    return "" if target == MODEL else target.removeprefix(f"{MODEL}.")


def trace(model: nn.Module, inputs: Any, *, as_one: bool = False, whole: Whole = is_whole) -> Traced:
    """The graph of `model`. Submodules with control flow stay whole; values are known if there are inputs."""
    call = OneInput(model, keys_of(model, inputs), as_one=as_one)
    found = _trace(call, inputs, whole)
    if inputs is not None and (found.graph is None or found.opaque or found.problem):  # without shapes
        other = _trace(call, None, whole)
        if other.graph is not None and (found.problem or len(other.opaque) < len(found.opaque)):
            found = _run(call, other, inputs)
    return replace(found, opaque={path_of(path): why for path, why in found.opaque.items()})


def _run(call: OneInput, traced: Traced, inputs: Any) -> Traced:
    """A graph with the values of all nodes: a GraphModule would write Python, and a layer's name may be `class`."""
    values = fx.Interpreter(call, graph=traced.graph, garbage_collect_values=False)
    try:
        with torch.no_grad():
            values.run(inputs)
    except Exception as error:
        return replace(traced, problem=f"{type(error).__name__}: {_first_line(error)}")
    return replace(traced, values=values.env)


def _trace(call: OneInput, inputs: Any, whole: Whole) -> Traced:
    """The graph, and what stopped the tracing by its path and why; with inputs, shapes are known meanwhile."""
    opaque: dict[str, str] = {}
    for _ in range(_TRIES):
        tracer = _Tracer(opaque, whole) if inputs is None else _SizedTracer(opaque, inputs, whole)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of torch, about what a proxy cannot do: it fails, or is in the graph
                graph = tracer.trace(call)
        except Exception as error:  # a user's forward on proxies: anything can happen
            path = tracer.stopped or MODEL
            again = path in opaque
            opaque[path] = _reason(error)
            if path == MODEL or again:
                break
        else:
            return Traced(graph, opaque, tracer.values, tracer.problem)
    return Traced(None, opaque)


def _reason(error: Exception) -> str:
    text = _first_line(error)
    if isinstance(error, TraceError) and "control flow" in text:
        return "its forward takes decisions by values or shapes (control flow), so its structure cannot be traced"
    if isinstance(error, NotImplementedError) and (passed := re.search(r"argument of type: .*?(\w+)'>", text)):
        keys = "; model.config.use_cache = False leaves it out" if "Cache" in passed[1] else ""
        return f"its forward passes a {passed[1]} from part to part, which tracing cannot follow{keys}"
    return f"its forward cannot be traced ({type(error).__name__}: {text})"


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0][:160]
