"""Files: paths checked before anything long is computed, results written whole or not at all, and their addresses."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import os
import tempfile
import uuid
import zipfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar

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
            hint = "check the path and its permissions"
            raise InvalidInput("files that can be read", got=reason(error), hint=hint) from error

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
        hint = f"{target.stem or model.stem}{model.suffix}"
        raise InvalidInput(f"a file name that ends in {said}", got=repr(str(path)), where=where, hint=hint)
    if not target.parent.is_dir():
        hint = f"mkdir -p {target.parent}"
        raise InvalidInput("a folder that exists", got=repr(str(target.parent)), where=where, hint=hint)
    if target.is_dir():
        raise InvalidInput("a file", got=f"{str(path)!r}, a folder", where=where, hint=str(target / model))
    return target


def write(target: Path, content: bytes | Callable[[Path], object]) -> Path:
    """Write the file, whole or not at all, and return its path; a disk that refuses is one clear error."""
    try:
        place(target.resolve(), content if callable(content) else lambda half: half.write_bytes(content))
    except OSError as error:
        got = f"{target} ({error.strerror})"
        raise InvalidInput("a file that can be written", got=got, where="save(path)", hint="another folder") from error
    return target


def place(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file next to its place and move it there: readers, other processes and a crash see all or nothing.

    A folder that is missing is made. No half-written file remains; OSError where the disk refuses. A device or a pipe
    is written to and stays what it is: root could replace /dev/null, and safetensors' own writer does.
    """
    if path.exists() and not path.is_file():
        with tempfile.TemporaryDirectory() as folder:
            write(whole := Path(folder) / path.name)
            path.write_bytes(whole.read_bytes())
        return
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


# Results in a folder, a small file each, by their keys.


@dataclass(frozen=True)
class Codec(Generic[_T]):
    """How one result becomes a file: its ending, what writes it, and what reads it (None: not there, or not whole)."""

    ending: str
    write: Callable[[Path, _T], object]
    read: Callable[[Path], _T | None]


@dataclass(frozen=True)
class FolderStore(Generic[_T]):
    """Results by key, each a file of its own that is there whole or not at all. Keys may name folders: "3f/3f09…"."""

    folder: Path
    codec: Codec[_T]
    prefix: str = ""  # before every key: of the configuration that these are results of

    def path(self, key: str) -> Path:
        """Where the result with this key is, or would be."""
        return self.folder / f"{self.prefix}{key}{self.codec.ending}"

    def read(self, key: str) -> _T | None:
        """The result; None if it is not there, or not whole."""
        return self.codec.read(self.path(key))

    def keep(self, key: str, result: _T) -> None:
        """Write a result: a reader sees all of it or nothing. OSError where the disk refuses."""
        place(self.path(key), lambda half: self.codec.write(half, result))

    def set_aside(self, key: str) -> bool:
        """Give a damaged result another name, so that it is missing; whether there was one."""
        try:
            self.path(key).replace(self.path(key).with_suffix(".corrupt"))
        except OSError:
            return False
        return True


Arrays: TypeAlias = Mapping[str, "np.ndarray[Any, Any]"]


def _write_arrays(path: Path, arrays: Arrays) -> None:
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **dict(arrays))
        file.flush()
        os.fsync(file.fileno())


def _read_arrays(path: Path) -> Arrays | None:
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, NotImplementedError):
        return None


ARRAYS: Codec[Arrays] = Codec(".npz", _write_arrays, _read_arrays)  # no pickle, and no package beyond NumPy


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
