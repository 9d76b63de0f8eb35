"""What is chosen on the page: a network, its inputs, a learning rate; and its link, Python and PyTorch."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import Any, Literal, get_args
from urllib.parse import parse_qsl, urlencode

import numpy as np

from firstguess.base import checks
from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.network.builders import Style, mlp, residual_mlp, transformer
from firstguess.network.inputs import Inputs, Tokens
from firstguess.network.layer import text
from firstguess.network.network import Network, pytorch_code
from firstguess.network.walk import every, needs_tokens
from firstguess.theory import closed_form
from firstguess.theory.closed_form import predict_tokens
from firstguess.theory.frontier import Frontier, frontier
from firstguess.theory.phases.fixed_points import FixedPoint, fixed_point
from firstguess.theory.phases.phase_diagram import PhaseDiagram, phase_diagram
from firstguess.theory.predict import predict
from firstguess.theory.prediction import Prediction
from firstguess.theory.training.curves import Absorption

Kind = Literal["plain", "residual", "transformer", "text"]
KINDS: tuple[Kind, ...] = get_args(Kind)
STYLES: tuple[Style, ...] = ("gpt2", "bert", "llama", "vit", "original")
NORMS = ("none", "layernorm", "rmsnorm", "batchnorm")
POOLS = ("none", "maxpool(2)", "avgpool(2)")
ACTIVATIONS = (
    "relu", "leaky_relu(0.1)", "gelu", "silu", "elu", "selu", "tanh", "sigmoid", "erf", "abs", "centered(relu)",
    "centered(gelu)",
)  # fmt: skip
# Networks to begin with, by name: what their links end in.
PRESETS = {
    "MLP": "",
    "ResNet-18 style": "kind=residual&depth=8&classes=10",
    "GPT-2 style": "kind=transformer&style=gpt2&depth=12",
    "BERT style": "kind=transformer&style=bert&depth=12",
    "ViT style": "kind=transformer&style=vit&depth=12&classes=10",
    "LLaMA style": "kind=transformer&style=llama&depth=12",
}
_TEXT = "10 x [dense(weight_var=2) > relu > layernorm] > dense(weight_var=2)"


@dataclass(frozen=True)
class Choice:
    """One state of the page; `Choice.of(choice.query)` is the choice."""

    kind: Kind = "plain"
    activation: str = "relu"
    depth: int = 10
    norm: str = "none"
    after: bool = False  # of plain ones: after the activation; of residual ones: after the sum
    pool: str = "none"
    style: Style = "gpt2"
    length: int = 32  # tokens of a sequence
    weight_var: float = 2.0
    bias_var: float = 0.0
    classes: int = 2
    mean_square: float = 0.0  # of the inputs' common part, with a variance of 1
    lr: float = 1e-4
    text: str = _TEXT

    @property
    def network(self) -> Network:
        """The description."""
        if self.kind == "text":
            return replace(Network.parse(self.text), classes=self.classes)
        build: dict[str, Any] = {"plain": mlp, "residual": residual_mlp, "transformer": transformer}
        return build[self.kind](**self._arguments())

    def _arguments(self) -> dict[str, Any]:
        """The arguments of the builder that differ from its defaults, and the depth."""
        if self.kind == "transformer":
            return {"style": self.style, "depth": self.depth, "classes": self.classes}
        given: dict[str, Any] = {"depth": self.depth, "activation": self.activation, "weight_var": self.weight_var}
        if self.norm != "none":
            places = ("before", "after") if self.kind == "plain" else ("before branch", "after sum")
            given |= {"norm": self.norm, "placement": places[self.after]}
        if self.kind == "plain" and self.pool != "none":
            given["pool"] = self.pool
        if self.bias_var:
            given["bias_var"] = self.bias_var
        return given | {"classes": self.classes}

    @property
    def inputs(self) -> Inputs | Tokens:
        """Random inputs: i.i.d. components, or tokens."""
        if needs_tokens(self.network.layers):
            return Tokens(self.length)
        return Inputs(mean_square=self.mean_square)

    @property
    def python(self) -> str:
        """The same in Python: runs as it stands."""
        if self.kind == "text":
            made = f"fg.Network.parse({self.text!r}, classes={self.classes})"
        else:
            builder = {"plain": "mlp", "residual": "residual_mlp", "transformer": "transformer"}[self.kind]
            made = f"fg.{builder}({', '.join(f'{name}={value!r}' for name, value in self._arguments().items())})"
        if needs_tokens(self.network.layers):
            given = f", inputs=fg.Tokens({self.length})"
        else:
            given = f", inputs=fg.Inputs(mean_square={self.mean_square!r})" if self.mean_square else ""
        return f"import firstguess as fg\n\nnet = {made}\nprediction = fg.predict(net{given})\nprint(prediction)\n"

    @property
    def pytorch(self) -> str:
        """A function that builds it in PyTorch."""
        return pytorch_code(self.network)

    @property
    def query(self) -> str:
        """What a link to this state ends in: only what differs from the page's start."""
        start = asdict(Choice())
        own = {name: value for name, value in asdict(self).items() if value != start[name]}
        return urlencode({name: str(int(value) if isinstance(value, bool) else value) for name, value in own.items()})

    @classmethod
    def of(cls, query: str | dict[str, Any]) -> Choice:
        """Read a link; InvalidInput where it names what there is not."""
        given = dict(parse_qsl(query)) if isinstance(query, str) else query
        start, known = cls(), {field.name for field in fields(cls)}
        return replace(start, **{name: _read(name, given[name], start) for name in given if name in known})


_CLOSED = {"kind": KINDS, "activation": ACTIVATIONS, "norm": NORMS, "pool": POOLS, "style": STYLES}
RANGES: dict[str, tuple[float, float]] = {
    "depth": (1, 100),
    "length": (2, 128),
    "classes": (2, 100),
    "weight_var": (0.1, 6.0),
    "bias_var": (0.0, 2.0),
    "mean_square": (0.0, 4.0),
    "lr": (1e-4, 1.0),
}


def _read(name: str, word: object, start: Choice) -> object:
    said = str(word)
    if name in _CLOSED:
        checks.choice(said, _CLOSED[name], "the link", name)
        return said
    if name == "text":
        return said
    if name == "after":
        return said == "1"
    try:
        value = type(getattr(start, name))(said)
    except ValueError:
        raise InvalidInput(f"a number for {name}", got=said, where="the link") from None
    low, high = RANGES[name]
    if not low <= value <= high:
        raise InvalidInput(f"{name} from {low:g} to {high:g}", got=said, where="the link")
    return value


# What the page says of a choice: closed form, in a few milliseconds; and why, where a part is not known.


TOKENS = {
    "frontier": "Not known for tokens: the limit on γ at given gradients is derived for networks of vectors; "
    "attention mixes tokens, and the nonlinearity of a network that does is not known.",
    "absorption": "Not known for tokens: it takes the tangent kernel, and that of attention is not part of the theory.",
    "phases": "None for tokens: phases are known for repeated blocks of vectors, not for blocks with attention, which "
    "mix tokens.",
}
_PHASES = {
    "residual": "Not drawn here: that of residual blocks takes 20 s. `firstguess phases` draws it.",
    "text": "Drawn for plain networks only: a text may hold blocks that differ, which have no phase in common.",
}
_SLOW = "Takes too long for a slider with max pools of this activation: prediction.absorption(lr=…) has it."
_OVERSHOOTS = "Not a number of steps: at this learning rate descent overshoots, and classes take turns."
_ROTARY = "Not known: there is no formula for gradients through rotary positions unless attention is nearly uniform."
DIMENSION = WIDTH = 1000  # that training is predicted for


@dataclass(frozen=True)
class ExploredNetwork:
    """All that moves with a slider. A part that is not known is None, and `why` has the reason by the part's name."""

    choice: Choice
    prediction: Prediction
    frontier: Frontier | None
    absorption: Absorption | None
    why: dict[str, str]
    later: tuple[str, ...] = ()  # what the charts do not wait for: gradients of tokens, absorption of many classes

    @property
    def gradients(self) -> list[tuple[int, float]]:
        """(layer, mean square of the gradients there by that at the output), from the output back to the first."""
        growth = self.prediction.gradient_growth
        back = np.cumprod(growth[::-1]).tolist()
        last = len(growth) + 1
        return [(last, 1.0), *((last - 1 - k, value) for k, value in enumerate(back))]

    @property
    def stream(self) -> list[tuple[int, float]]:
        """(residual block, mean square of the stream's gradients after it by that after the last); none: []."""
        back, value, found = reversed(self.prediction.layers), 1.0, list[float]()
        for layer in back:
            if layer.layer.startswith("residual"):
                found.append(value)
            if layer.gradient is None:
                return []
            value = value * layer.gradient if found else 1.0
        return [(len(found) - k, v) for k, v in enumerate(found)]


def see(choice: Choice, *, whole: bool = True) -> ExploredNetwork:
    """Predict a choice; errors are the network's own. Unless `whole`, what is slow waits for `with_the_rest`."""
    network, inputs = choice.network, choice.inputs
    if isinstance(inputs, Tokens) and not whole:
        prediction = predict_tokens(network, inputs, None, gradients=False)
    else:
        prediction = predict(network, inputs=inputs)
    if isinstance(inputs, Tokens):
        why = dict(TOKENS)
        if any(getattr(layer, "rotary", False) for layer in every(network.layers)):
            why["gradients"] = _ROTARY
        return ExploredNetwork(choice, prediction, None, None, why, ("gradients",) * (not whole))
    why = dict[str, str]()
    standing: Frontier | None = None
    try:
        standing = frontier(network, targets=(), inputs=inputs)
    except FirstguessError as error:
        why["frontier"] = error.reason
    later = ("absorption",) if not whole and network.classes > 2 else ()
    seen = ExploredNetwork(choice, prediction, standing, None, why, later)
    return seen if seen.later else _with_absorption(seen)


def _with_absorption(seen: ExploredNetwork) -> ExploredNetwork:
    """Add the time that the bias lasts, or why it is not known."""
    p = seen.prediction
    try:
        if not _slow(p.network):
            found = p.absorption(lr=seen.choice.lr, dimension=DIMENSION, width=WIDTH)
            return replace(seen, absorption=found, later=())
        why = _SLOW
    except InvalidInput:  # the one that is left: steps that overshoot
        why = f"{_OVERSHOOTS} Lower the learning rate." if seen.choice.lr > RANGES["lr"][0] else _OVERSHOOTS
    except FirstguessError as error:
        why = error.reason
    return replace(seen, why={**seen.why, "absorption": why}, later=())


def with_the_rest(seen: ExploredNetwork) -> ExploredNetwork:
    """Add what was put off."""
    if not seen.later:
        return seen
    inputs = seen.choice.inputs
    if isinstance(inputs, Tokens):
        return replace(seen, prediction=closed_form.with_gradients(seen.prediction, inputs), later=())
    return _with_absorption(seen)


def _slow(network: Network) -> bool:
    """Max pools of what is not piecewise linear: their tangents take a minute, those of a ReLU half a second once."""
    layers = list(every(network.layers))
    bent = any(layer.function is not None and layer.function.degree is None for layer in layers)
    return bent and any(layer.kind == "maxpool" for layer in layers)


def of_tokens(choice: Choice) -> bool:
    """Whether its inputs are sequences."""
    return isinstance(choice.inputs, Tokens)


def phases_of(choice: Choice) -> tuple[PhaseDiagram, FixedPoint] | str:
    """The phase diagram of a plain choice's block, and its point in it; or why there is none."""
    if choice.kind != "plain":
        return TOKENS["phases"] if of_tokens(choice) else _PHASES[choice.kind]
    layers = choice.network.layers
    block = " > ".join(text(layer) for layer in layers[1 : (len(layers) - 1) // choice.depth])
    return _diagram(block), fixed_point(block, weight_var=choice.weight_var, bias_var=choice.bias_var)


@lru_cache(maxsize=64)
def _diagram(block: str) -> PhaseDiagram:
    """Phases over the range of the sliders, coarse: a third of a second, once for each block."""
    weights, biases = np.linspace(0.1, 6.0, 49), np.linspace(0.0, 2.0, 33)
    return phase_diagram(block, weight_vars=weights, bias_vars=biases, tolerance=1e-3, lines=False)
