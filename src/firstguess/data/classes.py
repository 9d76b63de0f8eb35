"""Which classes to keep and which to join, decided on labels alone: images need not be decoded for it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from firstguess.base.errors import InvalidInput

IntArray: TypeAlias = npt.NDArray[np.int64]

Classes: TypeAlias = str | Sequence[int | str] | Mapping[str, Sequence[int | str]]
"""`"cat-dog"`, `"even-odd"`; `["cat", "dog"]`; `{"vehicles": ["ship", "truck"], "pets": ["cat", "dog"]}`."""

# NORM's C2-B. Its text omits ship, its code has it (claims.md, Settings).
_GROUPS: dict[str, tuple[str, ...]] = {
    "vehicles": ("airplane", "automobile", "ship", "truck"),
    "animals": ("cat", "deer", "dog", "horse"),
}


def regroup(
    y: IntArray, class_names: tuple[str, ...] | None, classes: Classes, *, where: str
) -> tuple[IntArray, IntArray, tuple[str, ...]]:
    """The rows to keep, their new labels 0, 1, …, and the new class names, in the order in which they were asked for.

    >>> regroup(np.array([3, 0, 4, 7]), None, "even-odd", where="example")
    (array([0, 1, 2, 3]), array([1, 0, 0, 1]), ('even', 'odd'))
    """
    known = [int(label) for label in np.unique(y)] if class_names is None else list(range(len(class_names)))
    groups = _groups(classes, known, class_names, where=where)
    new_label: dict[int, int] = {}
    for number, (name, members) in enumerate(groups):
        for member in members:
            if member in new_label:
                raise InvalidInput(
                    "each class in one group only",
                    got=f"class {_name(member, class_names)!r} twice (again in {name!r})",
                    where=where,
                )
            new_label[member] = number
    old = np.array(sorted(new_label), dtype=np.int64)
    rows = np.flatnonzero(np.isin(y, old)).astype(np.int64)
    if rows.size == 0:
        raise InvalidInput(
            "at least one point of the chosen classes",
            got=f"none among {y.size} points",
            where=where,
            hint=f"classes that occur here: {_list(np.unique(y).tolist(), class_names)}",
        )
    lookup = np.array([new_label[int(label)] for label in old], dtype=np.int64)
    return rows, lookup[np.searchsorted(old, y[rows])], tuple(name for name, _ in groups)


def _groups(
    classes: Classes, known: list[int], class_names: tuple[str, ...] | None, *, where: str
) -> list[tuple[str, list[int]]]:
    if isinstance(classes, str):
        return _from_text(classes, known, class_names, where=where)
    if isinstance(classes, Mapping):
        groups: list[tuple[str, list[int]]] = []
        for name, members in classes.items():
            many = [members] if isinstance(members, str) else members
            groups.append((str(name), [_label(m, known, class_names, where=where) for m in many]))
    else:
        labels = [_label(member, known, class_names, where=where) for member in classes]
        groups = [(_name(label, class_names), [label]) for label in labels]
    if not groups or not all(members for _, members in groups):
        raise InvalidInput("at least one class, and no empty group", got=repr(classes), where=where)
    return groups


def _from_text(
    text: str, known: list[int], class_names: tuple[str, ...] | None, *, where: str
) -> list[tuple[str, list[int]]]:
    if text.strip().lower() == "parity":
        text = "even-odd"
    # A name may hold a dash ("T-shirt/top"): the whole text is tried as a name first, and " vs " always separates.
    if _find(text, known, class_names) is not None:
        parts = [text]
    else:
        parts = re.split(r"\s+vs\.?\s+", text.strip())
        parts = text.split("-") if len(parts) == 1 else parts
    groups: list[tuple[str, list[int]]] = []
    for part in parts:
        members: list[int] = []
        for word in part.split("+"):
            members += _members(word.strip(), known, class_names, where=where)
        one = len(members) == 1 and "+" not in part
        groups.append((_name(members[0], class_names) if one else part.strip(), members))
    return groups


def _members(word: str, known: list[int], class_names: tuple[str, ...] | None, *, where: str) -> list[int]:
    found = _find(word, known, class_names)
    if found is not None:
        return [found]
    lower = word.lower()
    if lower in ("even", "odd"):
        members = [label for label in known if label % 2 == (lower == "odd")]
        if members:
            return members
    if lower in _GROUPS and class_names is not None:
        labels = [_find(name, known, class_names) for name in _GROUPS[lower]]
        if None not in labels:
            return [label for label in labels if label is not None]
    return [_label(word, known, class_names, where=where)]


def _label(member: int | str, known: list[int], class_names: tuple[str, ...] | None, *, where: str) -> int:
    found = _find(member, known, class_names)
    if found is None:
        raise InvalidInput(
            "the name or number of a class",
            got=repr(member),
            where=where,
            hint=f"one of {_list(known, class_names)}; in text, 'a-b', or 'a vs b' when a name has a dash",
        )
    return found


def _find(member: int | str, known: list[int], class_names: tuple[str, ...] | None) -> int | None:
    if isinstance(member, str):
        if class_names is not None:
            plain = [_plain(name) for name in class_names]
            if _plain(member) in plain:
                return plain.index(_plain(member))
        member = member.strip()
        if not re.fullmatch(r"-?[0-9]+", member):
            return None
    return int(member) if int(member) in known else None


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", " ")


def _name(label: int, class_names: tuple[str, ...] | None) -> str:
    return str(label) if class_names is None else class_names[label]


def _list(labels: Sequence[int], class_names: tuple[str, ...] | None, most: int = 30) -> str:
    shown = ", ".join(_name(label, class_names) for label in labels[:most])
    return shown if len(labels) <= most else f"{shown}, … ({len(labels)} in all)"


def encode(labels: Any, names: tuple[str, ...] | None, *, where: str) -> tuple[IntArray, tuple[str, ...]] | None:
    """Labels that are texts as classes 0, 1, … with their names: those given, else the texts in order; or None.

    >>> encode(np.array(["dog", "ant", "dog"]), None, where="toy")[1]
    ('ant', 'dog')
    """
    if labels.dtype.kind == "O":
        if not all(isinstance(one, str) for one in labels.ravel()):
            return None
    elif labels.dtype.kind != "U":
        return None
    found, y = np.unique(labels.astype(str), return_inverse=True)
    texts = [str(one) for one in found]
    if names is None:
        return y.reshape(labels.shape).astype(np.int64), tuple(texts)
    unknown = [one for one in texts if one not in names]
    if unknown:
        raise InvalidInput(
            f"labels from the class names {', '.join(names)}", got=", ".join(map(repr, unknown[:5])), where=where
        )
    place = np.array([names.index(one) for one in texts], dtype=np.int64)
    return place[y].reshape(labels.shape), names
