"""Where members come from: an instance that is re-initialized, or a factory that is called once for each."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeGuard, TypeVar

import torch
from torch import nn

from firstguess.base import checks
from firstguess.base.errors import InvalidInput
from firstguess.base.text import is_path
from firstguess.data import Batch
from firstguess.data.streams import IsolatedRandomness
from firstguess.ensemble.member_statistics import Finding, FindingKind
from firstguess.modules.call_model import Caller, part
from firstguess.modules.guard import StateOfCalls, every_module_called, is_lazy, own_copy, restored, unwrapped
from firstguess.modules.members import initializers
from firstguess.modules.members.initializers import Init, Redrawn
from firstguess.modules.members.redraw import Redraw
from firstguess.modules.outputs import Pick, find_logits

Mode: TypeAlias = Literal["train", "eval"]
Forward: TypeAlias = Callable[[nn.Module], Any]
_T = TypeVar("_T")


_A_FACTORY = "a function that builds the model, or its class"
REPAIR = "_firstguess_repair"  # what `fg.repair` did to a model, in plain data: how, γ, biases before and after


def repair_of(model: object) -> dict[str, Any] | None:
    """What `fg.repair` did to a model, as long as the biases that it moved are what it made them."""
    inner = unwrapped(model) if isinstance(model, nn.Module) else None
    known: dict[str, Any] | None = getattr(inner, REPAIR, None)
    if inner is None or known is None:
        return None
    state = inner.state_dict()
    same = all(key in state and torch.equal(state[key].cpu(), now.cpu()) for key, now in known["now"].items())
    return known if same else None


@dataclass(frozen=True)
class Setup:
    """What is done to a model before it is used: device, type, dropout off, BatchNorm by `mode`, weights × `scale`."""

    mode: Mode
    device: torch.device | None
    dtype: torch.dtype | None
    forward: Forward
    logits: Forward | None = None
    scale: float = 1.0
    repaired: Forward | None = None

    def __call__(self, model: nn.Module) -> nn.Module:
        if self.moves:
            model = model.to(device=self.device, dtype=self.dtype)
        model.eval()
        for module in model.modules():
            if isinstance(module, initializers.RUNNING_NORMS):
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
    """A model that is re-initialized on a private copy; where it cannot be copied, on itself, and then restored."""

    def __init__(
        self, model: nn.Module, init: Init, setup: Setup, *, trained: bool = False, redraw: Redrawn = None
    ) -> None:
        self.given = model
        self._model = unwrapped(model)
        self._setup = setup
        repair = repair_of(self._model)
        before: dict[str, torch.Tensor] = {} if repair is None else repair["was"]
        self.shared_copy = own_copy(self._model)
        if self.shared_copy is None:
            if setup.moves or is_lazy(self._model):
                expected = "a model that can be deep-copied, to move, cast or materialise it"
                raise InvalidInput(expected, got=type(model).__name__, hint=_A_FACTORY)
            with restored(self._model, parameters=True):
                known = self._options(setup(self._model), init, redraw)
                self._redraw = Redraw(self._model, init, trained=trained, own=before, **known)
        else:
            lazy = is_lazy(self._model)
            with IsolatedRandomness(0):
                setup(self.shared_copy)
            own = None if lazy else dict(self._model.named_parameters()) | before
            known = self._options(self.shared_copy, init, redraw)
            self._redraw = Redraw(self.shared_copy, init, trained=trained, own=own, **known)
            self._state = StateOfCalls(self.shared_copy, initializers.RUNNING_NORMS)
        self.findings = self._redraw.findings
        self._repairs = repair is not None and not self.held & set(before)
        if repair is not None and self._repairs:
            said = f"every initialization is repaired for itself, as the model is: fg.repair, γ ≤ {repair['gamma']:g}"
            self.findings += (Finding(FindingKind.REPAIRED, said, next(iter(before))),)

    @property
    def held(self) -> frozenset[str]:
        return self._redraw.held

    def _options(self, model: nn.Module, init: Init, redraw: Redrawn) -> dict[str, Any]:
        def head() -> set[str]:
            return self._head(model, sure=redraw is not None)

        names = None
        if redraw is not None and not (isinstance(redraw, str) and redraw == initializers.ALL):
            whose = model if isinstance(redraw, str) else self._model  # a module is one of the model that was given
            names = frozenset(initializers.chosen(whose, redraw, head))
        part = initializers.RedrawnPart(names, init is None and redraw is None, head)
        return {"part": part, "scale": self._setup.scale}

    def _head(self, model: nn.Module, *, sure: bool) -> set[str]:
        """The parameters that make the logits; `sure`: or an error."""
        try:
            with IsolatedRandomness(0), restored(model, parameters=False):
                return initializers.head_of(model, self._setup.logits or self._setup.forward)
        except Exception as error:  # of a user's model
            if not sure:
                return set()
            got, hint = f"{type(error).__name__}: {error}", 'its name: redraw="classifier*"'
            raise InvalidInput("a model whose last layer can be found", got=got, where="redraw", hint=hint) from error

    @contextmanager
    def member(self, seed: int) -> Generator[nn.Module]:
        if self.shared_copy is not None:
            with IsolatedRandomness(seed):
                self._state.put_back()  # a spiking neuron's potential, a cache: the last member's
                self._draw(self.shared_copy)
                yield self.shared_copy
            return
        with restored(self._model, parameters=True), IsolatedRandomness(seed):
            self._setup(self._model)
            self._draw(self._model)
            yield self._model

    def _draw(self, model: nn.Module) -> None:
        self._redraw.draw()
        if self._repairs and self._setup.repaired is not None:
            self._setup.repaired(model)

    def isolated(self) -> AbstractContextManager[object]:
        # Not the parameters: those are re-initialized for every member.
        return nullcontext() if self.shared_copy is None else restored(self.shared_copy, parameters=False)


class Factory:
    """A class or function that builds a new model at each call; what it returns is still restored after use, because
    it may contain a part (a pretrained backbone) that lives on elsewhere."""

    shared_copy: nn.Module | None = None
    held: frozenset[str] = frozenset()

    def __init__(self, factory: Callable[[], Any], init: Init, setup: Setup) -> None:
        self.given = self._factory = factory
        self._setup = setup
        self._init = None if init is None else initializers.rule(init)
        name = getattr(factory, "__name__", type(factory).__name__)
        try:
            inspect.signature(factory).bind()
        except TypeError as error:
            got, hint = f"{name}: {error}", f"def make(): return {name}(…), and make instead"
            raise InvalidInput("a factory that needs no arguments", got=got, where="the factory", hint=hint) from error
        except ValueError:  # a builtin without a signature
            pass
        self.findings = tuple(self._compare(name))

    def build(self) -> nn.Module:
        model = self._factory()
        if not isinstance(model, nn.Module):
            got, where = f"a {type(model).__name__}", getattr(self._factory, "__name__", "the factory")
            raise InvalidInput("a factory that returns an nn.Module", got=got, where=where, hint=_A_FACTORY)
        return unwrapped(model)

    def _compare(self, name: str) -> Iterator[Finding]:
        """Two calls, side by side: what they share is not re-initialized."""
        models: list[nn.Module] = []
        for seed in (0, 1):
            with IsolatedRandomness(seed):
                models.append(self.build())
        one, two = models
        if one is two:
            expected = "a factory that builds a new model at each call"
            hint = "give the model itself: it is re-initialized, and never changed"
            raise InvalidInput(expected, got="the same object twice", where=name, hint=hint)
        if self._setup.scale != 1.0 and not is_lazy(one):
            yield initializers.scale_finding(self._setup.scale, initializers.weights_of(one))
        if is_lazy(one) or is_lazy(two) or self._init is not None:
            return
        others = dict(two.named_parameters())
        equal, loaded = True, set[str]()
        for path, parameter in one.named_parameters():
            other = others.get(path)
            if other is parameter:
                yield Finding(FindingKind.NOT_REDRAWN, "the factory puts the same parameter into every model", path)
                loaded.add(path)
            elif other is None or other.shape != parameter.shape or not torch.equal(other, parameter):
                equal = False
            elif parameter.ndim > 1 and parameter.numel() > 1 and bool((parameter != parameter.flatten()[0]).any()):
                loaded.add(path)
        if equal and others:
            message = "the factory builds the same weights at every call: does it set a seed, or load them?"
            yield Finding(FindingKind.NOT_REDRAWN, message)
        elif loaded:
            message = "the factory gives these the same values at every call (loaded, or set by a formula)"
            yield Finding(
                FindingKind.PART, f"{message}: results are of the rest, the fresh part", initializers.brief(one, loaded)
            )

    @contextmanager
    def member(self, seed: int) -> Generator[nn.Module]:
        with IsolatedRandomness(seed):
            model = self.build()
            self._setup.materialise(model)
            with restored(model, parameters=self._init is not None or self._setup.moves or self._setup.scale != 1.0):
                model = self._setup(model)
                with torch.no_grad():
                    if self._init is not None:
                        model.apply(self._init)
                    for name in initializers.weights_of(model) if self._setup.scale != 1.0 else ():
                        model.get_parameter(name).mul_(self._setup.scale)
                yield model

    def isolated(self) -> AbstractContextManager[object]:
        return nullcontext()


# Gives members: within `member(seed)` the global generators are the member's own. `held` keep their values in all of
# them; `shared_copy`: one module that they share in turn, and nobody else sees.
Source: TypeAlias = Instance | Factory


def is_source(what: object) -> TypeGuard[Source]:
    """Whether members come from it already."""
    return isinstance(what, Instance | Factory)


def source(what: object, init: Init, setup: Setup, *, trained: bool = False, redraw: Redrawn = None) -> Source:
    """The source of a model or a factory; a source that there is already stays as it is: a model is studied once.

    `trained`: an instance's own values may not be those that its constructor gave it. `redraw`: what of it is fresh; of
    a factory, one model is built then, and what is not fresh keeps the values that it has there.
    """
    if is_source(what):
        return what
    if isinstance(what, nn.Module):
        return Instance(what, init, setup, trained=trained, redraw=redraw)
    if callable(what):
        made = Factory(what, init, setup)
        if redraw is None or (isinstance(redraw, str) and redraw == initializers.ALL):
            return made
        with IsolatedRandomness(0):
            model = made.build()
        return Instance(model, init, setup, trained=trained, redraw=redraw)
    expected = "an nn.Module, a class of them, or a function that builds one"
    raise InvalidInput(expected, got=f"a {type(what).__name__}", hint="the model itself")


def source_of(
    what: object,
    batches: Sequence[Batch],
    *,
    init: Init = None,
    mode: Mode = "train",
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    trained: bool = False,
    redraw: Redrawn = None,
    scale: float = 1.0,
    logits: Pick = None,
) -> Source:
    """`source` of what runs on these batches: the first gives lazy layers their shape."""
    checks.within(scale, "a scale above 0, that weights are multiplied by", "scale", "0.5")
    place = None if device is None else torch.device(device)
    call = Caller()

    def found(model: nn.Module) -> torch.Tensor:
        return on_few(batches[0], lambda few: find_logits(call(model, few, copies=True), logits))

    def repaired(model: nn.Module) -> None:  # by name: a repair draws members
        importlib.import_module("firstguess.modules.repair").again(model, repair_of(what), batches, logits)

    shaped = partial(shaped_by, batch=batches[0])
    setup = Setup(mode, place, dtype, shaped, found, float(scale), repaired)
    return source(what, init, setup, trained=trained, redraw=redraw)


def shaped_by(model: nn.Module, batch: Batch) -> None:
    """One forward, which gives lazy layers their shape."""
    on_few(batch, lambda few: Caller()(model, few, copies=True))


def on_few(batch: Batch, run: Callable[[Batch], _T]) -> _T:
    """What a user's model gives on two points, or on all of a batch if it takes no other number."""
    try:
        return run(part(batch, 0, min(2, batch.size)))
    except Exception:  # whatever a user's model raises, or it fails again
        return run(batch)


# A model by its name, `package.module:factory`, as the shell and Python take it.


def named(what: Any) -> Any:
    """What `package.module:name` names; anything else as it is.

    >>> named("collections:Counter"), named("dense > relu")
    (<class 'collections.Counter'>, 'dense > relu')
    """
    return found_at(what) if isinstance(what, str) and is_path(what) else what


def found_at(path: str) -> Any:
    """The class, function or model of a module, or of a file; modules of the current folder are found."""
    module, _, name = path.rpartition(":")
    folder = Path(module).absolute().parent if module.endswith(".py") else Path.cwd()
    module = Path(module).stem if module.endswith(".py") else module
    sys.path.insert(0, str(folder))
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        hint = "run in the folder that contains it, or install it"
        raise InvalidInput("a module that can be imported", got=f"{module} ({error})", where=path, hint=hint) from None
    finally:
        sys.path.pop(0)
    for attribute in name.split("."):
        if not hasattr(found, attribute):
            expected = f"a class, a function or a model in {module}"
            hint = "one of " + ", ".join(sorted(n for n in vars(found) if not n.startswith("_"))[:8])
            raise InvalidInput(expected, got=f"no {name}", where=path, hint=hint)
        found = getattr(found, attribute)
    return found


# A model as it stands, for forwards that leave no trace.


@contextmanager
def unwrapped_in_mode(model: nn.Module, mode: Mode) -> Generator[nn.Module]:
    """The model inside its wrappers, without dropout and gradients, for forwards that leave no trace.

    BatchNorm normalizes by the batch, as in training; those that were put in eval mode while the rest trains stay so.
    """
    inner = unwrapped(model)
    cached = torch.is_autocast_cache_enabled()
    alone = IsolatedRandomness(0)
    with torch.inference_mode(False), torch.no_grad(), alone, every_module_called(), restored(inner, parameters=False):
        found = inner.training
        for module in inner.modules():
            own = module.training or not found
            module.training = mode == "train" and own and isinstance(module, initializers.RUNNING_NORMS)
        # A weight that is cast here, without gradient, must not be the one that training then finds in the cache.
        torch.set_autocast_cache_enabled(False)
        try:
            yield inner
        finally:
            torch.set_autocast_cache_enabled(cached)
