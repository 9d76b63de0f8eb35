"""What a user gives as a network: a description, its text, or the word of a builder; and what was meant otherwise."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder

from firstguess.base.checks import is_module
from firstguess.base.errors import InvalidInput, ParseError
from firstguess.base.text import is_path
from firstguess.network.builders import cnn, mlp, residual_mlp
from firstguess.network.layers import KINDS
from firstguess.network.network import Network

BUILDERS: dict[str, Callable[..., Network]] = {"mlp": mlp, "residual_mlp": residual_mlp, "cnn": cnn}


def as_network(network: Network | str, classes: int | None = None, *, where: str = "predict") -> Network:
    """A network, its text or a builder's word (`mlp`, `residual_mlp`, `cnn`), with another number of classes if asked.

    >>> print(as_network("mlp"))
    dense(weight_var=2) > relu > dense(weight_var=2)
    >>> as_network("mpl")
    Traceback (most recent call last):
    ...
    firstguess.ParseError: Expected a description or a builder, but got 'mpl', at predict. Try: 'mlp'
    """
    if isinstance(network, str):
        return _of_text(network.strip(), 2 if classes is None else classes, where)
    if not isinstance(network, Network):
        module, kind = is_module(network), network if isinstance(network, type) else type(network)
        raise InvalidInput(
            "a Network or its text",
            got=f"{kind.__name__}, a module" if module else kind.__name__,
            where=where,
            hint=f"fg.{where}(fg.read(model, data).network)" if module else f"fg.{where}(fg.mlp(depth=20))",
        )
    return network if classes in (None, network.classes) else Network(network.layers, classes)


def _of_text(text: str, classes: int, where: str) -> Network:
    if text in BUILDERS:
        return BUILDERS[text](classes=classes)
    try:
        return Network.parse(text, classes=classes)
    except ParseError as error:
        _meant(text, where)
        raise error


def _meant(text: str, where: str) -> None:
    """Something that is no description at all, and what it looks like."""
    if is_path(text):
        raise ParseError(
            "a description", got=repr(text), where=where,
            hint="fg.read(model, data).network, or the shell's firstguess diagnose for module:factory",
        ) from None  # fmt: skip
    if "." in text and all(part.isidentifier() for part in text.split(".")):
        raise ParseError(
            "a description, or module:factory", got=repr(text), where=where, hint=f"{text}:make_model"
        ) from None
    if text.isidentifier() and text not in KINDS and _is_module(text):
        raise ParseError(
            "a description, or module:factory", got=f"{text!r}, a module", where=where, hint=f"{text}:make_model"
        ) from None
    if text.isidentifier() and (close := difflib.get_close_matches(text.lower(), BUILDERS, n=1)):
        raise ParseError("a description or a builder", got=repr(text), where=where, hint=repr(close[0])) from None
    return


def _is_module(name: str) -> bool:
    """Whether a user's module of this name could be imported, as `module:factory` would be; nothing is run."""
    if name in sys.stdlib_module_names:
        return False
    spec = PathFinder.find_spec(name, ["", *sys.path])
    return spec is not None and spec.origin is not None  # a folder of that name alone is none
