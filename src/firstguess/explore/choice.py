"""What is chosen on the page: a network, its inputs, a learning rate; and its link, Python and PyTorch."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args
from urllib.parse import parse_qsl, urlencode

from firstguess.base import checks
from firstguess.base.errors import InvalidInput
from firstguess.network.builders import Style, mlp, residual_mlp, transformer
from firstguess.network.inputs import Inputs, Tokens
from firstguess.network.network import Network
from firstguess.network.walk import needs_tokens

Kind = Literal["plain", "residual", "transformer", "text"]
KINDS: tuple[Kind, ...] = get_args(Kind)
STYLES: tuple[Style, ...] = ("gpt2", "bert", "llama", "original")  # a ViT has images, not tokens
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
    mean_square: float = 0.0  # of the inputs' common part, beside a variance of 1
    lr: float = 1e-5
    text: str = _TEXT

    @property
    def network(self) -> Network:
        """The description."""
        if self.kind == "text":
            return replace(Network.parse(self.text), classes=self.classes)
        build: dict[str, Any] = {
            "plain": mlp,
            "residual": residual_mlp,
            "transformer": transformer,
        }
        return build[self.kind](**self._arguments())

    def _arguments(self) -> dict[str, Any]:
        """Of the builder: what differs from its defaults, and the depth."""
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
        from firstguess.network.network import pytorch_code

        return pytorch_code(self.network)

    @property
    def query(self) -> str:
        """What a link to this state ends in: only what differs from the page's start."""
        start = asdict(Choice())
        return urlencode({name: _told(value) for name, value in asdict(self).items() if value != start[name]})

    @classmethod
    def of(cls, query: str | dict[str, Any]) -> Choice:
        """From a link; InvalidInput where it names what there is not."""
        given = dict(parse_qsl(query)) if isinstance(query, str) else query
        start, known = cls(), {field.name for field in fields(cls)}
        return replace(start, **{name: _read(name, given[name], start) for name in given if name in known})


def _told(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


_CLOSED: dict[str, tuple[str, ...]] = {
    "kind": KINDS,
    "activation": ACTIVATIONS,
    "norm": NORMS,
    "pool": POOLS,
    "style": STYLES,
}
RANGES: dict[str, tuple[float, float]] = {
    "depth": (1, 100),
    "length": (2, 128),
    "classes": (2, 100),
    "weight_var": (0.1, 6.0),
    "bias_var": (0.0, 2.0),
    "mean_square": (0.0, 4.0),
    "lr": (1e-8, 1.0),
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
