"""What trained members showed, a small file each: a training that was killed goes on where it was.

A file's name is a hash of all that its numbers depend on. Numbers only (NumPy's npz, no pickle); a file is there whole
or not at all, and one that cannot be read is as good as none.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import threading
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firstguess.base.errors import InvalidInput
from firstguess.base.files import told

VERSION = 1  # of what is stored, and of the arithmetic behind it: another one starts anew


def address(**parts: Any) -> str:
    """Twenty hexadecimal digits of a configuration; arrays go in by their bytes.

    >>> address(lr=[0.1], x=np.zeros(3)) == address(x=np.zeros(3), lr=[0.1]) != address(lr=[0.2], x=np.zeros(3))
    True
    """
    digest = hashlib.sha256(f"firstguess training {VERSION}".encode())
    for name in sorted(parts):
        value = parts[name]
        if isinstance(value, np.ndarray):
            found: NDArray[Any] = np.ascontiguousarray(value)
            digest.update(f"{name} {found.dtype.str} {found.shape}".encode())
            digest.update(found.data)
        else:
            digest.update(f"{name} {json.dumps(value, sort_keys=True, default=str)}".encode())
    return digest.hexdigest()[:20]


@dataclass(frozen=True)
class MemberStore:
    """A folder, and the address of one configuration in it."""

    folder: Path
    key: str

    @classmethod
    def at(cls, folder: str | os.PathLike[str], key: str) -> MemberStore:
        """The store, if its folder can be made and written to."""
        try:
            target = Path(folder)
            target.mkdir(parents=True, exist_ok=True)
            if not os.access(target, os.W_OK):
                raise PermissionError(13, "Permission denied", str(target))
        except (OSError, TypeError, ValueError) as error:
            got = told(error) if isinstance(error, OSError) else str(error)
            raise InvalidInput("a folder to keep results in", got=got, where="train(store)", hint="store='runs'") from (
                error
            )
        return cls(target, key)

    def _path(self, member: int) -> Path:
        return self.folder / f"train-{self.key}-{member}.npz"

    def read(self, member: int, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray[Any]] | None:
        """A member's arrays; None if they are not there, not whole, or of other shapes."""
        try:
            with np.load(io.BytesIO(self._path(member).read_bytes()), allow_pickle=False) as file:
                found = {name: file[name] for name in file.files}
        except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, NotImplementedError):
            return None
        same = {name: array.shape for name, array in found.items()} == dict(shapes)
        return found if same and all(array.dtype == np.float64 for array in found.values()) else None

    def write(self, member: int, arrays: Mapping[str, NDArray[np.float64]]) -> None:
        """Keep a member; a reader sees all of it or nothing."""
        target = self._path(member)
        half = target.with_suffix(f".{os.getpid()}.{threading.get_ident()}.part")
        try:
            with half.open("wb") as file:
                np.savez(file, allow_pickle=False, **dict(arrays))
                file.flush()
                os.fsync(file.fileno())
            half.replace(target)
        except OSError as error:
            raise InvalidInput(
                "a folder that takes results", got=told(error), where="train(store)", hint="another folder"
            ) from error
