"""One family of errors. Each says what was expected, what came, where, and what to try next."""

from __future__ import annotations

import re

_LONGEST = 500  # characters of a part of a message


class FirstguessError(Exception):
    """Base of every error that firstguess raises on purpose.

    The message has up to four parts, and each is also an attribute, so a caller can show them its own way.

    >>> error = InvalidInput("a non-negative weight variance", got=-1.0, where="layer 1 (dense)", hint="weight_var=2.0")
    >>> print(error)
    Expected a non-negative weight variance, but got -1.0, at layer 1 (dense). Try: weight_var=2.0
    """

    def __init__(self, expected: str, *, got: object = None, where: str = "", hint: str = "") -> None:
        self.expected = expected
        self.got = got
        self.where = where
        self.hint = hint
        super().__init__(expected, got, where, hint)

    def __str__(self) -> str:
        text = f"Expected {_short(self.expected)}"
        if self.got is not None:
            text += f", but got {_short(self.got if isinstance(self.got, str) else repr(self.got))}"
        if self.where:
            text += f", at {_short(self.where)}"
        return f"{text}. Try: {_short(self.hint)}" if self.hint else f"{text}."

    @property
    def reason(self) -> str:
        """What was missing, for a page of results: no call of the reader's failed, so there is nothing to try again.

        >>> from firstguess.base.errors import NotCovered
        >>> NotCovered("a Gaussian signal", got="a sum", where="layer 5 (relu)", hint="use fg.measure").reason
        'it needs a Gaussian signal; here: a sum (layer 5 (relu))'
        """
        got = self.got if isinstance(self.got, str) else repr(self.got)
        place = f" ({_short(self.where)})" if self.where not in ("", "data") else ""
        return f"it needs {_short(self.expected)}{'' if self.got is None else f'; here: {_short(got)}'}{place}"

    def at(self, where: str) -> FirstguessError:
        """The same error with its place named; an inner place is kept."""
        return type(self)(self.expected, got=self.got, where=self.where or where, hint=self.hint)

    def within(self, where: str) -> FirstguessError:
        """The same error in a part of a larger place, which is named first."""
        place = f"{where}, {self.where}" if self.where else where
        return type(self)(self.expected, got=self.got, where=place, hint=self.hint)


def _short(text: str) -> str:
    """What a user gave may be a megabyte, and a message is one line that is read: its ends are kept, no addresses."""
    text = re.sub(r"(<[^<>]*) at 0x[0-9a-fA-F]+", r"\1", text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"


class InvalidInput(FirstguessError, ValueError):
    """An argument that cannot mean anything: negative variance, unknown name, depth 0, NaN."""


class ParseError(InvalidInput):
    """Text that is not the description of a network."""


class NotCovered(FirstguessError):
    """A valid question that this reading has no formula for; the hint names the reading that has."""


class NotConverged(FirstguessError):
    """A numerical method that could not reach its stated accuracy."""


class NotFinite(FirstguessError):
    """A network that gives NaN or Inf whatever its weights are: `where` names the layer that does."""


for _public in (FirstguessError, InvalidInput, ParseError, NotCovered, NotConverged, NotFinite):
    _public.__module__ = "firstguess"  # what a traceback shows is what one writes: `except firstguess.InvalidInput`
