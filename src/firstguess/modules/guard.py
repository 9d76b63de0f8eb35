"""Leave a user's objects as they were, bit for bit: copies of models, isolated randomness, restored state."""

from __future__ import annotations

import copy
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from typing import Any, cast

import torch
from torch import nn
from torch.autograd.grad_mode import _unsafe_preserve_version_counter  # pyright: ignore[reportPrivateUsage]
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from firstguess.base.errors import InvalidInput

_WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def unwrapped(model: nn.Module) -> nn.Module:
    """The model itself inside `torch.compile`'s and data parallelism's wrappers: hooks and re-drawing need it."""
    while True:
        if isinstance(model, torch.jit.ScriptModule):
            hint = "the nn.Module that it was made from: compiled code cannot be re-initialized or looked into"
            raise InvalidInput("a model in Python", got=f"a TorchScript module ({type(model).__name__})", hint=hint)
        inner = model.__dict__.get("_modules", {}).get("_orig_mod")  # torch.compile, without importing its machinery
        if inner is None and isinstance(model, _WRAPPERS):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def is_lazy(model: nn.Module) -> bool:
    """Whether some parameter or buffer has no shape before the first forward."""
    kinds = (UninitializedParameter, UninitializedBuffer)
    return any(isinstance(tensor, kinds) for tensor in (*model.parameters(), *model.buffers()))


def own_copy(model: nn.Module) -> nn.Module | None:
    """A deep copy that shares nothing with `model`, or None if it cannot be copied (it holds a lock, a file, …)."""
    memo: dict[int, Any] = {}
    for buffer in model.buffers():
        if isinstance(buffer, UninitializedBuffer):  # which torch cannot copy
            memo[id(buffer)] = cast("Any", UninitializedBuffer)(device=buffer.device, dtype=buffer.dtype)
    for module in model.modules():
        for value in vars(module).values():
            # A tensor in a graph, such as what a forward has cached, refuses to be deep-copied; its value is enough.
            if isinstance(value, torch.Tensor) and not value.is_leaf:
                memo[id(value)] = value.detach().clone()
    try:
        twin = copy.deepcopy(model, memo)
    except Exception:  # whatever a user's __deepcopy__, __reduce__ or a C extension raises: then it cannot be copied
        return None
    mine = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
    if any(id(tensor) in mine for tensor in (*twin.parameters(), *twin.buffers())):
        return None  # a __deepcopy__ of its own that shares
    for module in list(twin.modules()):
        for name, child in list(module.named_children()):
            setattr(module, name, unwrapped(child))
        vars(module).pop("_compiled_call_impl", None)
    return twin


@contextmanager
def hooked(handles: Iterable[Any]) -> Generator[None]:
    """Hooks that are removed at the end, whatever happens."""
    kept = list(handles)
    try:
        yield
    finally:
        for handle in kept:
            handle.remove()


@contextmanager
def differentiable(model: nn.Module | None = None) -> Generator[None]:
    """Gradients, whatever mode the caller is in; also of the frozen parameters of `model`."""
    known = [] if model is None else [(p, p.requires_grad) for p in model.parameters() if p.is_floating_point()]
    with torch.inference_mode(False), torch.enable_grad():
        try:
            for parameter, _ in known:
                parameter.requires_grad_(True)
            yield
        finally:
            for parameter, before in known:
                parameter.requires_grad_(before)


@contextmanager
def every_module_called() -> Generator[None]:
    """Without torch's fused transformer layers, which pass over submodules and their hooks."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextmanager
def restored(model: nn.Module, *, parameters: bool) -> Generator[nn.Module]:
    """`model` itself, for use as if it were ours: afterwards it is as before, also after an exception.

    Buffers (and parameters, if they are to be written) point to copies meanwhile, so that the user's memory is never
    written and tensors saved for a backward pass stay valid. Attributes of modules are restored by name, with the
    content of plain lists, dicts and sets.
    """
    modules = list(model.modules())
    # Each attribute with a copy of its content where that is a plain container (hooks, children, buffers, …).
    before = [{name: (value, _content(value)) for name, value in vars(module).items()} for module in modules]
    tensors = [*model.parameters(), *model.buffers()]
    grads = [(tensor, tensor.grad, tensor.requires_grad) for tensor in tensors if tensor.is_leaf]
    memory = [(tensor, tensor.data) for tensor in (tensors if parameters else model.buffers())]
    versions = ExitStack()
    for tensor, data in memory:
        if not tensor.is_inference():  # which has no version, and is in no graph
            # What autograd has saved of it for a backward pass must not look changed.
            versions.enter_context(_unsafe_preserve_version_counter(tensor))
        tensor.data = data.clone(memory_format=torch.preserve_format)
    try:
        yield model
    finally:
        versions.close()
        for tensor, data in memory:
            tensor.data = data
        for module, state in zip(modules, before, strict=True):
            _restore(module, state)
        for tensor, grad, required in grads:
            tensor.requires_grad_(required)
            tensor.grad = grad


class StateOfCalls:
    """What calls leave in a model besides its weights: buffers, tensors as attributes; not in modules of `apart`."""

    def __init__(self, model: nn.Module, apart: tuple[type[nn.Module], ...]) -> None:
        self._kept: list[tuple[dict[str, Any], str, Any, tuple[torch.Tensor, int] | None]] = []
        for part in model.modules():
            for place in () if isinstance(part, apart) else (vars(part)["_buffers"], vars(part)):
                for name, value in place.items():
                    if name in _OF_EVERY_MODULE or not (value is None or isinstance(value, torch.Tensor)):
                        continue
                    changes = value is not None and not value.is_inference() and not value.requires_grad
                    content = (value.clone(), value._version) if value is not None and changes else None
                    self._kept.append((place, name, value, content))

    def put_back(self) -> None:
        """Make the next call the first one again."""
        for place, name, value, content in self._kept:
            if place.get(name) is not value:
                place[name] = value
            if content is not None and value._version != content[1]:
                value.copy_(content[0])


_OF_EVERY_MODULE = frozenset(vars(nn.Module()))


def _content(value: Any) -> Any:
    """The content of a plain container; None for what is none. Not by `copy.copy`: four times as long."""
    if isinstance(value, dict):
        return dict(cast("dict[Any, Any]", value))
    if isinstance(value, list):
        return list(cast("list[Any]", value))
    return set(cast("set[Any]", value)) if isinstance(value, set) else None


def _restore(module: nn.Module, state: dict[str, tuple[Any, Any]]) -> None:
    attributes = vars(module)
    for name in [name for name in attributes if name not in state]:
        del attributes[name]
    for name, (value, content) in state.items():
        attributes[name] = value
        if isinstance(value, list):
            value[:] = content
        elif content is not None:
            holder = cast("dict[Any, Any] | set[Any]", value)
            holder.clear()
            holder.update(content)
