"""What a result has to say beside its numbers."""

from __future__ import annotations

from collections.abc import Iterable


class Remark(str):
    """Something the result has to say; of several of one kind the largest speaks for all (`merged`)."""

    kind: str
    size: float

    def __new__(cls, said: str, kind: str, size: float) -> Remark:
        made = super().__new__(cls, said)
        made.kind, made.size = kind, size
        return made


def merged(remarks: Iterable[str]) -> tuple[str, ...]:
    """Every remark once, and of each kind of `Remark` only the largest, with the number of layers it stands for."""
    plain: dict[str, None] = {}
    kinds: dict[str, list[Remark]] = {}
    for remark in remarks:
        if isinstance(remark, Remark):
            kinds.setdefault(remark.kind, []).append(remark)
        else:
            plain[remark] = None
    for group in kinds.values():
        worst = max(group, key=lambda r: r.size)
        plain[worst if len(group) == 1 else f"{worst} (the worst of {len(group)} layers)"] = None
    return tuple(str(said) for said in plain)
