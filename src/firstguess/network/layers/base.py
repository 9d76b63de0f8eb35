"""What a layer is: a frozen dataclass that knows its closed-form meaning and its own text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from numbers import Integral, Real
from typing import ClassVar, Protocol, runtime_checkable

from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.base.text import number
from firstguess.network.points import Points, Step, Whole
from firstguess.network.signal import Signal


@runtime_checkable
class Layer(Protocol):
    """One layer of a description. `kind` is its name in text; its dataclass fields are its arguments there."""

    kind: ClassVar[str]

    def moments(self, signal: Signal) -> Signal:
        """The closed-form reading: the signal after this layer."""
        ...

    def covariance(self, points: Points) -> tuple[Points, Step | Whole]:
        """The kernel reading: the points after this layer, and the step that maps the covariance of pairs."""
        ...

    def gradient(self, signal: Signal) -> float | None:
        """What the layer multiplies the mean square of gradients by, going back: theory.md (10). None: not known."""
        ...

    def assumptions(self) -> Iterable[str]:
        """What the closed form takes for granted here, in words."""
        ...


def text(layer: Layer) -> str:
    """The layer as text, leaving out arguments that have their default value."""
    own = getattr(layer, "text", None)
    if own is not None:
        return own()
    own_fields = fields(layer) if is_dataclass(layer) else ()
    arguments = [f"{f.name}={number(value)}" for f in own_fields if (value := getattr(layer, f.name)) != f.default]
    return layer.kind + (f"({', '.join(arguments)})" if arguments else "")


def steps(layers: Iterable[Layer], signal: Signal, *, prefix: str = "") -> Iterator[tuple[Layer, Signal, Signal]]:
    """Fold a signal through layers, yielding (layer, before, after); an error names the layer it came from."""
    for index, layer in enumerate(layers, start=1):
        try:
            after = layer.moments(signal)
        except FirstguessError as error:
            raise error.at(f"{prefix}layer {index} ({text(layer)})") from None
        yield layer, signal, after
        signal = after


def check_number(value: float, name: str, kind: str, *, low: float = 0.0, strict: bool = False, hint: str = "") -> None:
    """Raise InvalidInput unless `value` is a finite number ≥ low (> low if strict)."""
    ok = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if not ok or value < low or (strict and value == low):
        relation = "above" if strict else "of at least"
        bound = "" if low == -math.inf else f" {relation} {number(float(low))}"
        raise InvalidInput(f"a finite {name}{bound}", got=value, where=kind, hint=hint or f"{kind}({name}=1)")


def check_weights(weight_var: float, bias_var: float, kind: str) -> None:
    """Raise InvalidInput where weights and biases are all zero: nothing would be left of the data."""
    if weight_var == 0.0 == bias_var:
        raise InvalidInput(
            "weights or biases that are not all zero",
            got="weight_var 0 and bias_var 0",
            where=kind,
            hint=f"{kind}(weight_var=2)",
        )


def check_count(value: int | None, name: str, kind: str, *, low: int = 1) -> None:
    """Raise InvalidInput unless `value` is None or a whole number ≥ low."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, Integral) or value < low:
        raise InvalidInput(f"a whole {name} of at least {low}", got=value, where=kind, hint=f"{kind}({name}={low})")
