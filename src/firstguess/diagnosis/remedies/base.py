"""What a remedy is given and what it gives, and how modules are edited on a copy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from firstguess.data import Batch, Data
from firstguess.data.streams import IsolatedRandomness
from firstguess.diagnosis.result import Aim
from firstguess.ensemble.measurement import Measurement
from firstguess.modules.flow import Flow
from firstguess.modules.guard import own_copy
from firstguess.modules.members.initializers import Init
from firstguess.modules.members.sources import Source, source_of
from firstguess.modules.outputs import Pick
from firstguess.network.activations.tensors import by_module
from firstguess.network.inputs import Inputs
from firstguess.network.layers import Layer, Residual
from firstguess.network.network import Network

Model = nn.Module | Callable[[], nn.Module]
Edit = Callable[[nn.Module], nn.Module]


@dataclass(frozen=True, eq=False)
class Case:
    """What is known of a network when remedies are asked: its description where it was read, its model, its data."""

    network: Network | None
    model: Model | None  # None for a description
    batches: Sequence[Batch]
    measurement: Measurement
    flow: Flow | None
    study: Callable[..., Source] | None = None  # as the diagnosis was told: mode, …; init too, unless it is given here
    pick: Pick = None  # of the logits
    trusted: bool = True  # theory's prediction is what was measured
    logits: Callable[[], Iterator[torch.Tensor]] | None = None  # rows of fresh initializations, one after the other
    gamma: float = math.nan  # of the output, as measured
    seconds: float = math.inf  # that all remedies together may take

    def either(
        self, description: Callable[[Network], Iterator[Variant]], model: Callable[[], Iterator[Variant]]
    ) -> Iterator[Variant]:
        """Changes of the description, which are predicted; of the model itself where there is none or theory fails."""
        found = [] if self.network is not None and self.trusted else list(model())
        yield from found or (() if self.network is None else description(self.network))

    def source(self, model: Model, init: Init = None) -> Source:
        """Members of an edited model."""
        known: dict[str, Any] = {} if init is None else {"init": init}
        return source_of(model, self.batches, **known) if self.study is None else self.study(model, **known)

    def example(self) -> nn.Module | None:
        """A model to look at: never to change."""
        if isinstance(self.model, nn.Module) or self.model is None:
            return self.model
        with IsolatedRandomness(0):
            return self.model()


@dataclass(frozen=True)
class MeasuredChange:
    """γ and the average largest fraction after a change, as measured; nothing else changes."""

    gamma: float
    largest: float
    error: float
    inits: int


@dataclass(frozen=True, eq=False)
class Variant:
    """A changed network: as a description (predicted, or measured where theory is not trusted), as a model (measured),
    or on changed data.

    `unchanged` means that the guesses cannot change, and `note` says what does. `aim` is what the change is for, and
    `otherwise` is said in place of the note where guesses do not become more even. `outcome` is what it comes to where
    the remedy has measured that itself. `code` is PyTorch on `model` and `loader`; without it the description is
    written out. `price` is what the change costs, in a sentence.
    """

    title: str
    edit: str
    network: Network | None = None
    model: Model | None = None
    source: Source | None = None  # of the model, if it was studied already
    batches: Sequence[Batch] | None = None
    note: str = ""
    unchanged: bool = False
    aim: Aim = "guesses"
    otherwise: str = ""
    outcome: MeasuredChange | None = None
    code: str = ""
    price: str = ""


IMPORTS = "import torch\nfrom torch import nn\n\n\n"  # of code that users paste
# For such code: puts a module where another one is.
PUT = """def put(model, path, module):
    parent, _, name = path.rpartition(".")
    setattr(model.get_submodule(parent), name, module)


"""


def edited(model: Model, edit: Edit) -> Model | None:
    """The model, or what the factory makes, with an edit; the user's own object stays as it is."""
    if not isinstance(model, nn.Module):
        factory = model
        return lambda: edit(factory())
    twin = own_copy(model)
    return None if twin is None else edit(twin)


def of_modules(
    case: Case, places: Sequence[str], edit: Edit, title: str, does: str, *, price: str, code: str = ""
) -> Iterator[Variant]:
    """The model with its modules at these places changed, if there are any."""
    model = edited(case.model, edit) if case.model is not None and places else None
    if model is not None:
        shown = f"{does} {', '.join(places[:3])}{', …' if len(places) > 3 else ''}"
        yield Variant(title, shown, model=model, code=code, price=price)


def pasted(code: str) -> str:
    """Code that puts modules in place of others, with what it needs."""
    return f"{IMPORTS}{PUT}{code}"


def changed(
    layers: tuple[Layer, ...], change: Callable[[Layer, Layer | None], Layer | None]
) -> tuple[tuple[Layer, ...], int]:
    """Layers with `change(layer, the one before)` in place of each for which it is not None, also inside residual
    blocks; and how many there were."""
    result: list[Layer] = []
    count = 0
    for layer in layers:
        new = change(layer, result[-1] if result else None)
        if new is not None:
            count += 1
        elif isinstance(layer, Residual):
            (branch, one), (shortcut, other) = (changed(path, change) for path in layer.paths)
            new, count = replace(layer, branch=branch, shortcut=shortcut), count + one + other
        result.append(layer if new is None else new)
    return tuple(result), count


def described(
    network: Network, title: str, change: Callable[[Layer, Layer | None], Layer | None], price: str
) -> Iterator[Variant]:
    """The description with that change of layers, if there is anything to change."""
    layers, count = changed(network.layers, change)
    if count:
        new = Network(layers, network.classes)
        yield Variant(title, str(new), network=new, price=price)


def replace_module(model: nn.Module, path: str, new: nn.Module) -> None:
    """Put `new` where the module at `path` is."""
    parent, _, name = path.rpartition(".")
    owner = model.get_submodule(parent)
    if isinstance(owner, (nn.Sequential, nn.ModuleList)):
        owner[int(name) if name.isdigit() else list(dict(owner.named_children())).index(name)] = new
    else:
        setattr(owner, name, new)


_NOT_DESCRIBED = (
    nn.CELU, nn.Hardsigmoid, nn.Softsign, nn.LogSigmoid, nn.Tanhshrink, nn.Softshrink, nn.Hardshrink,
)  # fmt: skip


def is_activation(module: nn.Module) -> bool:
    """An elementwise activation function without weights, also one that a description does not have."""
    name = type(module).__name__.lower()
    known = isinstance(module, (*by_module(), *_NOT_DESCRIBED))
    named = name.endswith("activation") or name.startswith(("gelu", "newgelu", "fastgelu", "quickgelu", "silu"))
    return (known or named) and not any(True for _ in module.parameters())


def inputs_of(batches: Sequence[Batch]) -> torch.Tensor | None:
    """All points as one float tensor that NumPy has too, or None if a model gets something else (token ids, …)."""
    tensors = [b.inputs for b in batches if isinstance(b.inputs, torch.Tensor)]
    if len(tensors) != len(batches) or not all(t.is_floating_point() for t in tensors):
        return None
    if len({tuple(t.shape[1:]) for t in tensors}) > 1:
        return None
    x = torch.cat(tensors)
    return x.float() if x.dtype.itemsize < 4 else x


def signal_of(batches: Sequence[Batch]) -> Inputs:
    """What the closed form knows of the points: their mean square and variance."""
    x = inputs_of(batches)
    return Inputs() if x is None else Inputs.of_data(Data(x.numpy()))
