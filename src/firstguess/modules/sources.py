"""Where members come from: an instance that is re-drawn, or a factory that is called once for each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal, Protocol, TypeAlias, TypeGuard

import torch
from torch import nn

from firstguess.base.errors import InvalidInput
from firstguess.data import Batch
from firstguess.ensemble.members import Finding, FindingKind
from firstguess.modules.calling import Caller, part
from firstguess.modules.guard import PrivateRandomness, borrowed, is_lazy, private_copy, unwrapped
from firstguess.modules.initializers import RUNNING_NORMS, Init, rule
from firstguess.modules.redraw import Redraw

Mode: TypeAlias = Literal["train", "eval"]
Forward: TypeAlias = Callable[[nn.Module], Any]


class Source(Protocol):
    """Gives members; within `member(seed)` the global generators are the member's own."""

    given: Callable[..., Any]  # what it was made from
    findings: tuple[Finding, ...]
    private: nn.Module | None  # one module that all members share in turn, and nobody else sees

    def member(self, seed: int) -> AbstractContextManager[nn.Module]: ...

    def lent(self) -> AbstractContextManager[object]:
        """Within it, what forwards leave in the private module (buffers, caches) is nobody else's."""
        ...


class Setup:
    """What is done to a model before it is used: device, type, dropout off, BatchNorm by `mode`."""

    def __init__(self, mode: Mode, device: torch.device | None, dtype: torch.dtype | None, forward: Forward) -> None:
        self.mode, self.device, self.dtype, self.forward = mode, device, dtype, forward

    def __call__(self, model: nn.Module) -> nn.Module:
        if self.moves:
            model = model.to(device=self.device, dtype=self.dtype)
        model.eval()
        for module in model.modules():
            if isinstance(module, RUNNING_NORMS):
                module.training = self.mode == "train"
        self.materialise(model)
        return model

    def materialise(self, model: nn.Module) -> None:
        """One forward, if some parameter gets its shape only then."""
        if is_lazy(model):
            with torch.no_grad():
                self.forward(model.eval())

    @property
    def moves(self) -> bool:
        return self.device is not None or self.dtype is not None


class Instance:
    """A model that is re-drawn on a private copy; where it cannot be copied, on itself, and then restored."""

    def __init__(self, model: nn.Module, init: Init, setup: Setup, *, trained: bool = False) -> None:
        self.given = model
        self._model = unwrapped(model)
        self._setup = setup
        self.private = private_copy(self._model)
        if self.private is None:
            if setup.moves or is_lazy(self._model):
                raise InvalidInput(
                    "a model that can be deep-copied, to move, cast or materialise it",
                    got=type(model).__name__,
                    hint="give a factory instead: lambda: MyModel(...)",
                )
            with borrowed(self._model, parameters=True):
                self._redraw = Redraw(setup(self._model), init, trained=trained)
        else:
            lazy = is_lazy(self._model)
            with PrivateRandomness(0):
                setup(self.private)
            own = None if lazy else dict(self._model.named_parameters())
            self._redraw = Redraw(self.private, init, trained=trained, own=own)
        self.findings = self._redraw.findings

    @contextmanager
    def member(self, seed: int) -> Generator[nn.Module]:
        if self.private is not None:
            with PrivateRandomness(seed):
                self._redraw.draw()
                yield self.private
            return
        with borrowed(self._model, parameters=True), PrivateRandomness(seed):
            self._setup(self._model)
            self._redraw.draw()
            yield self._model

    def lent(self) -> AbstractContextManager[object]:
        # Not the parameters: those are drawn anew for every member.
        return nullcontext() if self.private is None else borrowed(self.private, parameters=False)


class Factory:
    """A class or function that builds a new model at each call; what it returns is still treated as borrowed, because
    it may contain a part (a pretrained backbone) that lives on elsewhere."""

    private: nn.Module | None = None

    def __init__(self, factory: Callable[[], Any], init: Init, setup: Setup) -> None:
        self.given = self._factory = factory
        self._setup = setup
        self._init = None if init is None else rule(init)
        name = getattr(factory, "__name__", type(factory).__name__)
        try:
            inspect.signature(factory).bind()
        except TypeError as error:
            raise InvalidInput(
                "a factory that needs no arguments",
                got=f"{name}: {error}",
                where="the factory",
                hint=f"lambda: {name}(...)",
            ) from error
        except ValueError:  # a builtin without a signature
            pass
        self.findings = tuple(self._compare(name))

    def _build(self) -> nn.Module:
        model = self._factory()
        if not isinstance(model, nn.Module):
            raise InvalidInput(
                "a factory that returns an nn.Module",
                got=f"a {type(model).__name__}",
                where=getattr(self._factory, "__name__", "the factory"),
                hint="lambda: MyModel(...)",
            )
        return unwrapped(model)

    def _compare(self, name: str) -> Iterator[Finding]:
        """Two calls, side by side: what they share is not drawn anew."""
        models: list[nn.Module] = []
        for seed in (0, 1):
            with PrivateRandomness(seed):
                models.append(self._build())
        one, two = models
        if one is two:
            raise InvalidInput(
                "a factory that builds a new model at each call",
                got="the same object twice",
                where=name,
                hint="give the model itself: it is re-drawn, and never changed",
            )
        if is_lazy(one) or is_lazy(two) or self._init is not None:
            return
        others = dict(two.named_parameters())
        equal = True
        for path, parameter in one.named_parameters():
            other = others.get(path)
            if other is parameter:
                yield Finding(FindingKind.NOT_REDRAWN, "the factory puts the same parameter into every model", path)
            elif equal and (other is None or other.shape != parameter.shape or not torch.equal(other, parameter)):
                equal = False
        if equal and others:
            yield Finding(
                FindingKind.NOT_REDRAWN,
                "the factory builds the same weights at every call: does it set a seed, or load them?",
            )

    @contextmanager
    def member(self, seed: int) -> Generator[nn.Module]:
        with PrivateRandomness(seed):
            model = self._build()
            self._setup.materialise(model)
            with borrowed(model, parameters=self._init is not None or self._setup.moves):
                model = self._setup(model)
                if self._init is not None:
                    with torch.no_grad():
                        model.apply(self._init)
                yield model

    def lent(self) -> AbstractContextManager[object]:
        return nullcontext()


def is_source(what: object) -> TypeGuard[Source]:
    """Whether members come from it already."""
    return isinstance(what, Instance | Factory)


def source(what: object, init: Init, setup: Setup, *, trained: bool = False) -> Source:
    """Of a model or a factory; a source that there is already stays what it is, so that a model is studied once.

    `trained`: an instance's own values may not be those that its constructor gave it.
    """
    if is_source(what):
        return what
    if isinstance(what, nn.Module):
        return Instance(what, init, setup, trained=trained)
    if callable(what):
        return Factory(what, init, setup)
    raise InvalidInput(
        "an nn.Module, a class of them, or a function that builds one",
        got=f"a {type(what).__name__}",
        hint="lambda: MyModel(...)",
    )


def source_of(
    what: object,
    batches: Sequence[Batch],
    *,
    init: Init = None,
    mode: Mode = "train",
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    trained: bool = False,
) -> Source:
    """`source` of what runs on these batches: the first gives lazy layers their shape."""
    place = None if device is None else torch.device(device)
    setup = Setup(mode, place, dtype, lambda model: shaped_by(model, batches[0]))
    return source(what, init, setup, trained=trained)


def shaped_by(model: nn.Module, batch: Batch) -> None:
    """One forward, which gives lazy layers their shape: on two points, or on all for a model that takes no other."""
    sizes = tuple(dict.fromkeys((min(2, batch.size), batch.size)))
    for size in sizes:
        try:
            Caller()(model, part(batch, 0, size), copies=True)
            return
        except Exception:  # whatever a user's model raises
            if size == sizes[-1]:
                raise
