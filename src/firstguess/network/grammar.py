"""Layers as text, and back: `20 x [dense(weight_var=2) > layernorm > relu] > dense(weight_var=2)`.

sequence := item ('>' item)*
item     := COUNT 'x' '[' sequence ']'  |  NAME [ '(' arguments ')' ] [ '[' sequence [ '|' sequence ] ']' ]

Only `residual` has the latter brackets: its branch and, after a bar, the layers of its shortcut.
"""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import MISSING, fields
from typing import Any

from firstguess.base.errors import InvalidInput, ParseError
from firstguess.network import weights
from firstguess.network.activations import registry
from firstguess.network.activations.record import Activation
from firstguess.network.layer import Layer
from firstguess.network.layers import KINDS

_EXAMPLE = "20 x [dense(weight_var=2) > layernorm > relu] > dense(weight_var=2)"
_TOKEN = re.compile(
    r"\s*(?:(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<name>[A-Za-z_]\w*)|(?P<mark>[\[\]()>,=/×|]))"
)
_MOST_LAYERS = 1_000_000
_ACTIVATION = "activation"  # the kind whose text is the name of a function
_DEEPEST = 50  # brackets within brackets

_EXAMPLES = {"std": 0.02, "at": "mean", "phi": "silu"}  # of arguments that have no default
Argument = float | str | bool | Activation


def parse_layers(source: str) -> tuple[Layer, ...]:
    """Read a sequence of layers from text, or raise a ParseError that points at the place.

    >>> [layer.text() for layer in parse_layers("2 x [dense(weight_var=2) > relu] > dense")]
    ['dense(weight_var=2)', 'relu', 'dense(weight_var=2)', 'relu', 'dense']
    """
    return _Parser(source).whole()


class _Parser:
    def __init__(self, source: str) -> None:
        self.source = source
        self.tokens: list[tuple[str, str, int]] = []
        position, end = 0, len(source.rstrip())
        while position < end:
            match = _TOKEN.match(source, position)
            if match is None:
                bad = len(source) - len(source[position:].lstrip())
                expected = "a layer, a number or one of [ ] ( ) > , = |"
                raise ParseError(expected, got=repr(source[bad]), where=self._place(bad), hint=_EXAMPLE)
            kind = match.lastgroup or ""
            self.tokens.append((kind, match.group(kind), match.start(kind)))
            position = match.end()
        self.index = 0
        self.nesting = 0

    def whole(self) -> tuple[Layer, ...]:
        if not self.tokens:
            raise ParseError("at least one layer", got="empty text", hint=_EXAMPLE)
        layers = self.sequence()
        if self.index < len(self.tokens):
            self._fail("'>' or the end", "check that brackets are balanced")
        return tuple(layers)

    def sequence(self) -> list[Layer]:
        self._enter()
        layers = self.item()
        while self._accept(">"):
            layers += self.item()
            if len(layers) > _MOST_LAYERS:
                self._fail(f"at most {_MOST_LAYERS} layers", "fewer repetitions")
        self.nesting -= 1
        return layers

    def _enter(self) -> None:
        self.nesting += 1
        if self.nesting > _DEEPEST:
            self._fail(f"brackets nested at most {_DEEPEST} deep", "a flatter description")

    def item(self) -> list[Layer]:
        kind, value, _ = self._peek()
        if kind == "number":
            return self._repetition(value)
        if kind != "name":
            self._fail("a layer", "a name such as dense, relu, layernorm")
        return [self._layer()]

    def _repetition(self, value: str) -> list[Layer]:
        start = self.index
        self.index += 1
        if not value.isdigit() or not value.strip("0"):
            self.index = start
            self._fail("a whole number of repetitions of at least 1", "20 x [dense > relu]")
        if len(value) > 20 or int(value) > _MOST_LAYERS:
            self.index = start
            self._fail(f"at most {_MOST_LAYERS} layers", "fewer repetitions")
        times = self._peek()
        if times[1] not in ("x", "X", "×"):
            self._fail("'x' after the number of repetitions", "20 x [dense > relu]")
        self.index += 1
        self._expect("[")
        inner = self.sequence()
        self._expect("]")
        if int(value) * len(inner) > _MOST_LAYERS:
            self.index = start
            self._fail(f"at most {_MOST_LAYERS} layers", "fewer repetitions")
        return inner * int(value)

    def _layer(self) -> Layer:
        _, name, position = self._peek()
        self.index += 1
        paths: list[tuple[Layer, ...]] = []
        try:
            positional, named = self._arguments() if self._accept("(") else ([], {})
            if self._accept("["):
                paths.append(tuple(self.sequence()))
                if self._accept("|"):
                    paths.append(tuple(self.sequence()))
                self._expect("]")
            return self._build(name, positional, named, paths)
        except ParseError:
            raise
        except InvalidInput as error:
            raise ParseError(
                error.expected, got=error.got, where=error.where or self._place(position), hint=error.hint
            ) from None

    def _build(
        self, name: str, positional: list[Argument], named: dict[str, Argument], paths: list[tuple[Layer, ...]]
    ) -> Layer:
        cls: Any = KINDS.get(name) or KINDS.get(name.lower())  # torch writes LayerNorm; its arguments are fields
        if cls is not None and cls.brackets:
            if not paths:
                self._fail(f"a branch in brackets after {name}", f"{name}[relu > dense]")
            return cls(**dict(zip(cls.brackets, paths, strict=False)), **_as_fields(cls, positional, named))
        if paths:
            hint = "2 x [dense > relu] or residual[relu > dense]"
            raise InvalidInput("brackets after a repetition or residual only", got=f"{name}[…]", hint=hint)
        if cls is not None and name != _ACTIVATION:
            return cls(**_as_fields(cls, positional, named))
        activate: Any = KINDS[_ACTIVATION]
        return activate(_activation(name, positional, named))

    def _arguments(self) -> tuple[list[Argument], dict[str, Argument]]:
        self._enter()
        positional: list[Argument] = []
        named: dict[str, Argument] = {}
        while not self._accept(")"):
            if positional or named:
                self._expect(",")
            kind, value, _ = self._peek()
            if kind == "name" and self.index + 1 < len(self.tokens) and self.tokens[self.index + 1][1] == "=":
                if value in named:
                    self._fail("each argument once", "leave one of them out")
                self.index += 2
                named[value] = self._value()
            elif named:
                self._fail("a name=value", "positional arguments come first")
            else:
                positional.append(self._value())
        self.nesting -= 1
        return positional, named

    def _value(self) -> Argument:
        kind, value, _ = self._peek()
        if kind == "number":
            self.index += 1
            result = float(value)
            if self._accept("/"):
                below = self._peek()
                if below[0] != "number" or float(below[1]) == 0.0:
                    self._fail("a number other than 0 after '/'", "weight_var=1/3")
                self.index += 1
                result /= float(below[1])
            return result
        if kind == "name":
            self.index += 1
            if self._accept("("):
                if value == weights.STUDENT:
                    return _student(*self._arguments())
                return _activation(value, *self._arguments())
            return {"true": True, "false": False}.get(value, value)
        self._fail("a value", "weight_var=2")
        raise AssertionError

    def _peek(self) -> tuple[str, str, int]:
        return self.tokens[self.index] if self.index < len(self.tokens) else ("end", "the end", len(self.source))

    def _accept(self, mark: str) -> bool:
        if self._peek()[0] == "mark" and self._peek()[1] == mark:
            self.index += 1
            return True
        return False

    def _expect(self, mark: str) -> None:
        if not self._accept(mark):
            self._fail(f"'{mark}'", "check that brackets are balanced")

    def _fail(self, expected: str, hint: str) -> None:
        _, value, position = self._peek()
        got = f"'{value}'" if value != "the end" else value
        raise ParseError(expected, got=got, where=self._place(position), hint=hint)

    def _place(self, position: int) -> str:
        return f"character {position + 1} of {self.source!r}" if len(self.source) <= 80 else f"character {position + 1}"


def _student(positional: list[Argument], named: dict[str, Argument]) -> str:
    """The distribution student(3) as a value of `init`."""
    if named or len(positional) != 1 or not isinstance(positional[0], float):
        raise InvalidInput("one number of degrees of freedom", got="something else", hint="init=student(3)")
    return weights.student(positional[0])


def _activation(name: str, positional: list[Argument], named: dict[str, Argument]) -> Activation:
    if name == "centered":
        if len(positional) != 1 or named or isinstance(positional[0], (int, float)):
            raise InvalidInput("one activation inside centered(…)", got="something else", hint="centered(relu)")
        return registry.centered(positional[0])
    known = [*(kind for kind in KINDS if kind != _ACTIVATION), "centered", *registry.names()]
    if name.lower() not in registry.names() and name.lower() not in registry.ALIASES:
        close = difflib.get_close_matches(name.lower()[:80], known, n=1)  # of a megabyte it would take minutes
        hint = close[0] if close else "one of " + ", ".join(known)
        raise InvalidInput("the name of a layer or an activation", got=repr(name), hint=hint)
    if len(positional) > 1:
        raise InvalidInput("at most one argument without a name", got=len(positional), where=name, hint=f"{name}(0.1)")
    if positional:
        key = registry.activation(name).text_argument
        if key in named:
            raise InvalidInput("each argument once", got=f"{key} twice", where=name, hint=f"{name}({key}=0.1)")
        named = {key: positional[0], **named}
    if own := {"name", "kinks", "derivative"} & set(named):  # these describe a function, not a name
        raise InvalidInput(f"parameters that {name} has", got=", ".join(own), where=name, hint=name)
    return registry.activation(name, **named)  # type: ignore[arg-type]  # values are checked there


def _without_names(cls: Any, known: list[str], flags: set[str], positional: list[Argument]) -> dict[str, Argument]:
    """Arguments without a name, by their place; a flag's name alone means that it is true: attention(12, causal)."""
    given: dict[str, Argument] = {}
    places = iter(known)
    for value in positional:
        flag = isinstance(value, str) and value in flags
        key = value if isinstance(value, str) and flag else next(places)
        if key in given:
            raise InvalidInput("each argument once", got=f"{key} twice", where=cls.kind, hint=f"{cls.kind}({key}=…)")
        given[key] = True if flag else value
    return given


def _as_fields(cls: Any, positional: list[Argument], named: dict[str, Argument]) -> dict[str, Any]:
    """Arguments under their field names, whole numbers as int where the field wants one."""
    known = {f.name: f for f in fields(cls) if f.init and f.name not in cls.brackets}
    nameless = [name for name, f in known.items() if not f.kw_only]
    if len(positional) > len(nameless):
        most = f"at most {len(nameless)} arguments" + (" without a name" if len(nameless) < len(known) else "")
        raise InvalidInput(most, got=len(positional), where=cls.kind, hint=cls.kind)
    flags = {name for name, f in known.items() if name in cls.brief and str(f.type) == "bool"}
    given = _without_names(cls, nameless, flags, positional)
    for key, value in named.items():
        if key not in known:
            close = difflib.get_close_matches(key[:80], known, n=1)
            hint = close[0] if close else ", ".join(known) or f"{cls.kind} without arguments"
            raise InvalidInput(f"an argument that {cls.kind} has", got=repr(key), where=cls.kind, hint=hint)
        if key in given:
            raise InvalidInput("each argument once", got=f"{key} twice", where=cls.kind, hint=f"{cls.kind}({key}=2)")
        given[key] = value
    for key, one in known.items():
        if key not in given and one.default is MISSING and one.default_factory is MISSING:
            example = f"{cls.kind}({_EXAMPLES.get(key, 2)})"
            raise InvalidInput(f"the argument {key} of {cls.kind}", got="none", where=cls.kind, hint=example)
    result: dict[str, Any] = {}
    for key, value in given.items():
        wants = str(known[key].type)
        if value == "None" and "None" in wants:
            result[key] = None
            continue
        if "int" in wants and isinstance(value, float) and math.isfinite(value) and value.is_integer():
            result[key] = int(value)
            continue
        if ("int" in wants or "float" in wants) and not isinstance(value, float):
            raise InvalidInput(f"a number for {key}", got=str(value), where=cls.kind, hint=f"{cls.kind}({key}=2)")
        result[key] = value
    return result
