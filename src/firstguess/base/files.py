"""Files: paths checked before anything long is computed, results written whole or not at all, and their addresses."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import uuid
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

from firstguess.base.errors import InvalidInput

_P = ParamSpec("_P")
_T = TypeVar("_T")


def reads_files(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """The function, where a system that refuses a path (permissions, a name too long) ends in one clear error."""

    @functools.wraps(function)
    def reading(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except OSError as error:
            raise InvalidInput(
                "files that can be read", got=reason(error), hint="check the path and its permissions"
            ) from error

    return reading


def no_pipe(path: Path) -> Path:
    """The path, unless it is a pipe or a device: these may never say anything, and reading would wait for ever."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        got = f"{str(path)!r}, a pipe or a device"
        raise InvalidInput("a file or a folder", got=got, where="data", hint="save it as .npz")
    return path


def reason(error: OSError) -> str:
    """What the system says, and of which file."""
    what = error.strerror or str(error) or type(error).__name__
    return what if error.filename is None else f"{what}: {error.filename}"


def checked(path: str | Path, endings: Collection[str], *, said: str, example: str, where: str = "save(path)") -> Path:
    """The path, if a file with one of the endings can be written there; `said` are the endings in words.

    >>> checked("distribution.gif", (".png", ".svg"), said=".png or .svg", example="figure.png")
    Traceback (most recent call last):
    ...
    firstguess.InvalidInput: Expected a file name that ends in .png or .svg, but got 'distribution.gif', at save(path).
    Try: distribution.png
    """
    target, model = Path(path), Path(example)
    try:
        target.is_dir()
    except (OSError, ValueError) as error:  # a name too long, a folder that may not be searched, a null byte
        got = reason(error) if isinstance(error, OSError) else str(error)
        raise InvalidInput("a path to write to", got=got, where=where, hint=str(model)) from error
    if target.suffix.lower() not in endings:
        raise InvalidInput(
            f"a file name that ends in {said}",
            got=repr(str(path)),
            where=where,
            hint=f"{target.stem or model.stem}{model.suffix}",
        )
    if not target.parent.is_dir():
        raise InvalidInput(
            "a folder that exists", got=repr(str(target.parent)), where=where, hint=f"mkdir -p {target.parent}"
        )
    if target.is_dir():
        raise InvalidInput("a file", got=f"{str(path)!r}, a folder", where=where, hint=str(target / model))
    return target


def write(target: Path, content: bytes) -> Path:
    """Write the file, whole or not at all, and return its path; a disk that refuses is one clear error."""
    try:
        place(target.resolve(), lambda half: half.write_bytes(content))
    except OSError as error:
        raise InvalidInput(
            "a file that can be written", got=f"{target} ({error.strerror})", where="save(path)", hint="another folder"
        ) from error
    return target


def place(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file next to its place and move it there: readers, other processes and a crash see all or nothing.

    A folder that is missing is made. No half-written file remains; OSError where the disk refuses.
    """
    half = path.with_name(f"{path.stem}.{uuid.uuid4().hex[:12]}.part")
    try:
        try:
            write(half)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            write(half)
        half.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            half.unlink(missing_ok=True)
        raise


def address(*parts: Any) -> str:
    """Sixteen hexadecimal digits of everything that a stored result depends on; arrays count by their bytes.

    >>> address("igb/fig5", 1, {"n": 100, "widths": (1, 2)}) == address("igb/fig5", 1, {"widths": [1, 2], "n": 100})
    True
    >>> address({"x": np.zeros(3)}) != address({"x": np.zeros(4)})
    True
    """
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, default=_content)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def _content(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return str(value)
    held: np.ndarray[Any, Any] = np.ascontiguousarray(value)
    return ["array", held.dtype.str, held.shape, hashlib.sha256(held.data).hexdigest()]
