"""Files that results are written to: what is wrong with a path is said before anything long is computed."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from firstguess.base.errors import InvalidInput


def checked(path: str | Path, endings: Collection[str], *, said: str, example: str) -> Path:
    """The path, if a file with one of the endings can be written there; `said` are the endings in words.

    >>> checked("law.gif", (".png", ".svg"), said=".png or .svg", example="figure.png")
    Traceback (most recent call last):
    ...
    firstguess.InvalidInput: Expected a file name that ends in .png or .svg, but got 'law.gif', at save(path).
    Try: law.png
    """
    target, model = Path(path), Path(example)
    if target.suffix.lower() not in endings:
        raise InvalidInput(
            f"a file name that ends in {said}",
            got=repr(str(path)),
            where="save(path)",
            hint=f"{target.stem or model.stem}{model.suffix}",
        )
    if not target.parent.is_dir():
        raise InvalidInput(
            "a folder that exists", got=repr(str(target.parent)), where="save(path)", hint=f"mkdir -p {target.parent}"
        )
    if target.is_dir():
        raise InvalidInput("a file", got=f"{str(path)!r}, a folder", where="save(path)", hint=str(target / model))
    return target


def write(target: Path, content: bytes) -> Path:
    """Write the file and give its path back; a disk that refuses is the user's to hear of."""
    try:
        target.write_bytes(content)
    except OSError as error:
        raise InvalidInput(
            "a file that can be written", got=f"{target} ({error.strerror})", where="save(path)", hint="another folder"
        ) from error
    return target
